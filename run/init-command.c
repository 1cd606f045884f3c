// SPDX-License-Identifier: GPL-2.0
/* The command: its streams, its user, its limits, its start */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "init.h"

extern char **environ;

/* The ends of the command's streams, as it gets them */
struct ends {
	int fd[3];
};

static int open_tty(const struct settings *s, int *slave)
{
	int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	struct winsize size = {
		.ws_row = s->run.win.rows, .ws_col = s->run.win.cols,
	};
	struct termios mode;
	char *name = NULL;

	if (master >= 0 && !grantpt(master) && !unlockpt(master))
		name = ptsname(master);
	if (!name)
		fail(STATUS_FAILED, "the guest cannot make a terminal: %s",
		     strerror(errno));
	*slave = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (*slave < 0)
		fail(STATUS_FAILED, "the guest cannot open %s: %s", name,
		     strerror(errno));
	chown(name, s->ids.uid, -1);
	ioctl(master, TIOCSWINSZ, &size);
	if (!s->run.raw_tty && !tcgetattr(*slave, &mode)) {
		/* The host's terminal processes what is printed. */
		mode.c_oflag &= ~OPOST;
		mode.c_lflag &= ~ECHO;
		tcsetattr(*slave, TCSANOW, &mode);
	}
	return master;
}

static int make_pipe(int *end, bool input)
{
	int fds[2];

	if (pipe2(fds, O_CLOEXEC))
		fail(STATUS_FAILED, "the guest cannot make a pipe: %s",
		     strerror(errno));
	*end = fds[input ? 0 : 1];
	return fds[input ? 1 : 0];
}

static void make_streams(struct command *command, struct ends *ends,
			 const struct settings *s)
{
	int *mine[3] = { &command->in, &command->out, &command->err };
	int i;

	command->tty = command->slave = -1;
	for (i = 0; i < 3; i++) {
		*mine[i] = ends->fd[i] = -1;
		if (s->run.stream[i] == STREAM_PIPE) {
			*mine[i] = make_pipe(&ends->fd[i], i == 0);
		} else if (s->run.stream[i] == STREAM_TTY) {
			if (command->slave < 0)
				command->tty = open_tty(s, &command->slave);
			ends->fd[i] = fcntl(command->slave, F_DUPFD_CLOEXEC, 10);
		}
	}
}

static void set_limits(const struct settings *s)
{
	struct rlimit unlimited = { RLIM_INFINITY, RLIM_INFINITY };
	size_t i;

	for (i = 0; i < s->limit_count; i++) {
		const struct wire_rlimit *limit = &s->limits[i];
		struct rlimit lim = { limit->soft, limit->hard };

		/* The guest's kernel has a largest number of files. */
		if (limit->resource == RLIMIT_NOFILE) {
			if (lim.rlim_max > 1 << 20)
				lim.rlim_max = 1 << 20;
			if (lim.rlim_cur > lim.rlim_max)
				lim.rlim_cur = lim.rlim_max;
		}
		setrlimit(limit->resource, &lim);
	}
	setrlimit(RLIMIT_MEMLOCK, &unlimited);
}

static void set_signals(uint64_t ignored)
{
	sigset_t none;
	int sig;

	for (sig = 1; sig < NSIG; sig++)
		signal(sig, ignored >> (sig - 1) & 1 ? SIG_IGN : SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

static void become_user(const struct settings *s)
{
	gid_t *groups = calloc(s->group_count + 1, sizeof(*groups));
	size_t i;

	if (!groups)
		_exit(STATUS_FAILED);
	for (i = 0; i < s->group_count; i++)
		groups[i] = s->groups[i];
	if (setgroups(s->group_count, groups) ||
	    setresgid(s->ids.gid, s->ids.gid, s->ids.gid) ||
	    setresuid(s->ids.uid, s->ids.uid, s->ids.uid))
		_exit(STATUS_FAILED);
	umask(s->ids.umask);
}

static void place_streams(const struct ends *ends, const struct settings *s)
{
	int i;

	for (i = 0; i < 3; i++) {
		if (ends->fd[i] < 0)
			close(i);
		else
			dup2(ends->fd[i], i);
		if (s->run.stream[i] == STREAM_TTY)
			ioctl(i, TIOCSCTTY, 0);
	}
}

/* Tell errno by @report, which execve() closes. */
static void run(const struct settings *s, const struct ends *ends, int report)
{
	int error;

	setsid();
	set_limits(s);
	become_user(s);
	place_streams(ends, s);
	set_signals(s->run.ignored);
	error = chdir(s->cwd) ? -1 : 0;
	if (!error) {
		environ = s->env.item;
		execvp(s->args.item[0], s->args.item);
		error = errno;
	}
	write(report, &error, sizeof(error));
	_exit(STATUS_FAILED);
}

static bool is_directory(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISDIR(st.st_mode);
}

/* Is there a file of that name anywhere in PATH? */
static bool in_path(const struct settings *s, const char *name)
{
	const char *p = "/bin:/usr/bin";
	size_t i;

	for (i = 0; i < s->env.count; i++)
		if (!strncmp(s->env.item[i], "PATH=", 5))
			p = s->env.item[i] + 5;
	while (*p) {
		size_t len = strcspn(p, ":");
		/* Nothing stands for the working directory. */
		char *file = len ? text("%.*s/%s", (int)len, p, name) :
				   text("%s", name);
		bool found = !access(file, F_OK);

		free(file);
		if (found)
			return true;
		p += len + (p[len] == ':');
	}
	return false;
}

static void explain(const struct settings *s, int error)
{
	const char *name = s->args.item[0];

	if (error < 0)
		fail(STATUS_FAILED, "the working directory %s cannot be entered "
		     "in the guest", s->cwd);
	/* A directory of PATH that cannot be searched gives EACCES. */
	if (!strchr(name, '/') &&
	    (error == ENOENT || (error == EACCES && !in_path(s, name))))
		fail(STATUS_NOT_FOUND, "%s: command not found", name);
	if (error == ENOENT && access(name, F_OK) == 0)
		fail(STATUS_NOT_EXECUTABLE,
		     "%s: its interpreter or loader was not found", name);
	if (error == ENOENT || error == ENOTDIR)
		fail(STATUS_NOT_FOUND, "%s: not found", name);
	if (is_directory(name))
		fail(STATUS_NOT_EXECUTABLE, "%s: is a directory", name);
	fail(STATUS_NOT_EXECUTABLE, "%s: cannot be executed: %s", name,
	     strerror(error));
}

/**
 * command_start() - start the command
 * @command: filled in
 * @settings: from the launcher
 *
 * Does not return if it cannot be executed.
 */
void command_start(struct command *command, const struct settings *settings)
{
	int report[2], error, i;
	struct ends ends = { { -1, -1, -1 } };
	ssize_t n;

	make_streams(command, &ends, settings);
	if (pipe2(report, O_CLOEXEC))
		fail(STATUS_FAILED, "the guest cannot make a pipe: %s",
		     strerror(errno));
	/* Names of files are relative to it. */
	chdir(settings->cwd);
	if (strchr(settings->args.item[0], '/'))
		userland_check(settings->args.item[0]);
	command->pid = fork();
	if (command->pid < 0)
		fail(STATUS_FAILED, "the guest cannot start a process: %s",
		     strerror(errno));
	if (!command->pid)
		run(settings, &ends, report[1]);
	close(report[1]);
	for (i = 0; i < 3; i++)
		if (ends.fd[i] >= 0)
			close(ends.fd[i]);
	n = read(report[0], &error, sizeof(error));
	close(report[0]);
	if (n == sizeof(error))
		explain(settings, error);
}
