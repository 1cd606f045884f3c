// SPDX-License-Identifier: GPL-2.0
/* The process that is the guest: started, watched, ended */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "keel-run.h"

/* The descriptor of the console's socket in the guest's process */
#define CONSOLE_FD	3

static void check_file_size(unsigned int mem)
{
	struct rlimit lim;

	if (!getrlimit(RLIMIT_FSIZE, &lim) &&
	    lim.rlim_max < (rlim_t)mem << 20)
		die("the limit on file sizes is below the guest's %u MiB of memory: "
		    "raise \"ulimit -f\", or lower --mem", mem);
}

static int open_log(const char *file)
{
	int fd;

	if (!file) {
		fd = memfd_create("keel-run-log", MFD_CLOEXEC);
		/* As the kernel of the guest does */
		if (fd < 0)
			fd = open(getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp",
				  O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
		if (fd < 0)
			die("this machine has no memfd_create(), and no file can "
			    "be made in TMPDIR: %s", strerror(errno));
		return fd;
	}
	fd = open(file, O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
	if (fd < 0)
		die("--kernel-log %s: %s", file, strerror(errno));
	return fd;
}

/**
 * limits_raise() - take all the limits of the caller allow
 *
 * They are for the command, not for its kernel, nor for who maps its memory.
 */
void limits_raise(void)
{
	static const int raised[] = {
		RLIMIT_AS, RLIMIT_CPU, RLIMIT_DATA, RLIMIT_FSIZE, RLIMIT_NOFILE,
	};
	struct rlimit lim;
	size_t i;

	for (i = 0; i < sizeof(raised) / sizeof(raised[0]); i++) {
		if (getrlimit(raised[i], &lim))
			continue;
		lim.rlim_cur = lim.rlim_max;
		setrlimit(raised[i], &lim);
	}
	if (!getrlimit(RLIMIT_CORE, &lim)) {
		lim.rlim_cur = 0;
		setrlimit(RLIMIT_CORE, &lim);
	}
}

static void close_from(int first)
{
	struct rlimit lim = { .rlim_cur = 4096 };
	rlim_t fd;

	if (!syscall(__NR_close_range, first, ~0u, 0))
		return;
	getrlimit(RLIMIT_NOFILE, &lim);
	for (fd = first; fd < lim.rlim_cur && fd < 1 << 20; fd++)
		close(fd);
}

static void place_descriptors(int socket, int log)
{
	int null = open("/dev/null", O_RDWR);

	/* Above the numbers that are assigned next */
	socket = fcntl(socket, F_DUPFD, 10);
	log = fcntl(log, F_DUPFD, 10);
	if (null < 0 || socket < 0 || log < 0)
		_exit(STATUS_FAILED);
	dup2(null, 0);
	dup2(log, 1);
	dup2(log, 2);
	dup2(socket, CONSOLE_FD);
	close_from(CONSOLE_FD + 1);
}

static char **command_line(const struct options *opt, const struct bundle *bundle)
{
	struct strings words = { 0 };
	size_t i;

	strings_add(&words, "linux");
	strings_add(&words, format("mem=%uM", opt->mem));
	strings_add(&words, format("ncpus=%u", opt->cpus));
	strings_add(&words, "seccomp=on");
	strings_add(&words, "root=/dev/root");
	strings_add(&words, "rootfstype=hostfs");
	strings_add(&words, "rootflags=/");
	strings_add(&words, "ro");
	strings_add(&words, format("init=\"%s\"", bundle->init));
	strings_add(&words, format("virtio_uml.device=/dev/fd/%d:3",
				   CONSOLE_FD));
	strings_add(&words, "uml_dir=none");
	strings_add(&words, "con=null");
	strings_add(&words, "con0=null,fd:1");
	strings_add(&words, "panic=-1");
	strings_add(&words, "dummy.numdummies=0");
	if (opt->debug) {
		/* Caches of free objects keep old pointers from kmemleak. */
		strings_add(&words, "slab_debug=F");
		strings_add(&words, "ignore_loglevel");
	} else if (opt->kernel_log) {
		strings_add(&words, "ignore_loglevel");
	}
	for (i = 0; i < opt->append.count; i++)
		strings_add(&words, opt->append.item[i]);
	strings_add(&words, NULL);
	return (char **)words.item;
}

static void become_guest(const struct bundle *bundle, char **words, int socket,
			 int log, pid_t parent)
{
	char *environment[] = { "HOME=/", "PATH=/usr/bin:/bin", NULL, NULL };
	char *tmpdir = getenv("TMPDIR");
	sigset_t none;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(STATUS_FAILED);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	signal(SIGCHLD, SIG_DFL);
	if (tmpdir)
		environment[2] = format("TMPDIR=%s", tmpdir);
	setsid();
	/* The guest applies the command's umask itself. */
	umask(0);
	/* Otherwise the kernel does this and starts once more. */
	personality(PER_LINUX | ADDR_NO_RANDOMIZE);
	place_descriptors(socket, log);
	execve(bundle->kernel, words, environment);
	dprintf(STDERR_FILENO, "keel-run: exec: %s\n", strerror(errno));
	_exit(STATUS_FAILED);
}

/**
 * guest_start() - start the guest's kernel
 * @guest: filled in
 * @opt: the options
 * @bundle: the kernel and the guest's init
 *
 * The guest ends when this process does, however that happens.
 */
void guest_start(struct guest *guest, const struct options *opt,
		 const struct bundle *bundle)
{
	const struct timeval patience = { .tv_sec = 5 };
	char **words = command_line(opt, bundle);
	pid_t parent = getpid();
	int pair[2];

	check_file_size(opt->mem);
	guest->log = open_log(opt->kernel_log);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		die("cannot make a socket: %s", strerror(errno));
	/* The guest sends whole messages: a part of one is no reason to wait. */
	setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	setsockopt(pair[0], SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	/* The guest's processes become ours when it dies, to be waited for. */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	guest->pid = fork();
	if (guest->pid < 0)
		die("cannot start a process: %s", strerror(errno));
	if (guest->pid == 0)
		become_guest(bundle, words, pair[1], guest->log, parent);
	close(pair[1]);
	guest->socket = pair[0];
}

/**
 * guest_reap() - wait for processes that ended
 * @guest: the guest
 *
 * Return: true if the guest's kernel was among them.
 */
bool guest_reap(struct guest *guest)
{
	bool ended = false;
	pid_t pid;

	while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) {
		if (pid != guest->pid)
			continue;
		guest->pid = 0;
		ended = true;
	}
	return ended;
}

/**
 * guest_kill() - end the guest and wait until nothing of it is left
 * @guest: the guest, which may be over
 *
 * The processes of the guest get SIGKILL when its kernel ends. A caller that
 * became keel-run by execve() may have left children that are none of the
 * guest's, so the wait is bounded.
 */
void guest_kill(struct guest *guest)
{
	const struct timespec pause = { .tv_nsec = 500 * 1000 };
	int left = 2000;
	pid_t pid;

	if (guest->pid > 0) {
		kill(guest->pid, SIGKILL);
		while (waitpid(guest->pid, NULL, 0) < 0 && errno == EINTR)
			;
		guest->pid = 0;
	}
	while ((pid = waitpid(-1, NULL, WNOHANG | __WALL)) >= 0 && left--)
		if (!pid)
			nanosleep(&pause, NULL);
}
