// SPDX-License-Identifier: GPL-2.0
/*
 * A process that stalls the kernel whenever it accesses one of the process's
 * pages. See stall.h.
 */
#include <fcntl.h>
#include <grp.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include "stall.h"
#include "stall_fuse.h"
#include "t.h"

#define PAGE		4096UL
#define PIECES		8
#define FUSE_DEV	"/dev/fuse"
#define FUSE_MINOR	229

/* State of the hostile process. */
static struct stall_board *board;
static struct { void *at; size_t len; } pieces[PIECES];
static int n_pieces;
static void (*hostile_run)(struct peer *parent);
/* The server gets /dev/fuse over this socket. */
static int server_fd;

/* Return the state of a thread in /proc, or 0 if the thread does not exist. */
static char state_of(int pid, int tid)
{
	char path[64], text[512], *p;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", pid, tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	n = SYS(read(fd, text, sizeof(text) - 1));
	close(fd);
	text[n] = '\0';
	p = strrchr(text, ')');
	return p && p[1] ? p[2] : 0;
}

/* Let every user open the device, as udev does. */
static void fuse_device(void)
{
	t_shell_status("modprobe -q fuse");
	if (access(FUSE_DEV, F_OK))
		SYS(mknod(FUSE_DEV, S_IFCHR, makedev(10, FUSE_MINOR)));
	SYS(chmod(FUSE_DEV, 0666));
}

static void drop_root(void)
{
	SYS(setgroups(0, NULL));
	SYS(setresgid(STALL_UID, STALL_UID, STALL_UID));
	SYS(setresuid(STALL_UID, STALL_UID, STALL_UID));
	/* Give the process access to its own files in /proc again. */
	SYS(prctl(PR_SET_DUMPABLE, 1));
}

static void own_namespaces(void)
{
	SYS(unshare(CLONE_NEWUSER | CLONE_NEWNS));
	CHECK_OK(t_write_file("/proc/self/setgroups", "deny"));
	CHECK_OK(t_write_file("/proc/self/uid_map", "1000 1000 1"));
	CHECK_OK(t_write_file("/proc/self/gid_map", "1000 1000 1"));
}

/* Only the server may keep the device open. */
static void mount_fuse(void)
{
	struct peer server = { .pid = 0, .fd = server_fd };
	int fd = SYS(open(FUSE_DEV, O_RDWR | O_CLOEXEC));
	char options[128];

	snprintf(options, sizeof(options),
		 "fd=%d,rootmode=40000,user_id=%d,group_id=%d", fd, STALL_UID,
		 STALL_UID);
	SYS(mount("stall", STALL_DIR, "fuse", MS_NOSUID | MS_NODEV, options));
	peer_put_fd(&server, fd);
	close(fd);
	close(server_fd);
}

static void hostile_main(struct peer *parent)
{
	drop_root();
	own_namespaces();
	mount_fuse();
	hostile_run(parent);
}

static pid_t start_server(int fd, int other)
{
	struct peer hostile = { .pid = 0, .fd = fd };
	pid_t pid = SYS(fork());

	if (pid)
		return pid;
	close(other);
	drop_root();
	/* The server dies with the test, which ends the stall. */
	SYS(prctl(PR_SET_PDEATHSIG, SIGKILL));
	fuse_serve(peer_get_fd(&hostile), board);
	_exit(0);
}

void stall_start(struct stall *s, void (*run)(struct peer *parent))
{
	int fds[2];

	fuse_device();
	board = peer_shared(sizeof(*board));
	SYS(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds));
	s->board = board;
	s->server = start_server(fds[0], fds[1]);
	close(fds[0]);
	server_fd = fds[1];
	hostile_run = run;
	peer_start(&s->peer, hostile_main);
	close(server_fd);
}

void stall_settle(struct stall *s)
{
	char state;

	do {
		usleep(10000);
		state = state_of(s->peer.pid, s->peer.pid);
	} while (state == 'R');
	CHECK(state);
}

void stall_release(struct stall *s)
{
	atomic_store(&s->board->release, true);
}

void stall_abort(struct stall *s)
{
	if (s->server > 0) {
		kill(s->server, SIGKILL);
		waitpid(s->server, NULL, 0);
	}
	s->server = 0;
}

bool stall_gone(struct stall *s, int ms)
{
	for (; ms > 0; ms -= 2) {
		if (waitpid(s->peer.pid, NULL, WNOHANG) > 0) {
			s->peer.pid = 0;
			close(s->peer.fd);
			return true;
		}
		usleep(2000);
	}
	return false;
}

void stall_end(struct stall *s)
{
	stall_release(s);
	if (s->peer.pid) {
		kill(s->peer.pid, SIGKILL);
		kill(s->peer.pid, SIGCONT);
		CHECK(stall_gone(s, 10000));
	}
	stall_abort(s);
	munmap(s->board, sizeof(*s->board));
}

/* --- in the hostile process -------------------------------------------- */

static void *map(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED);
	return p;
}

void *stall_memory(size_t len)
{
	void *p = map(len);

	CHECK(n_pieces < PIECES);
	pieces[n_pieces].at = p;
	pieces[n_pieces++].len = len;
	return p;
}

static struct holder {
	pthread_t thread;
	atomic_int tid;
	atomic_bool go;
	void *page;
	int mem;
} reader, writer;

static void holder_ready(struct holder *h)
{
	atomic_store(&h->tid, syscall(SYS_gettid));
	while (!atomic_load(&h->go))
		usleep(1000);
}

/*
 * Reading the process's own memory through /proc takes the lock and faults
 * while holding it.
 */
static void *read_own(void *arg)
{
	char c;

	holder_ready(&reader);
	if (pread(reader.mem, &c, 1, (uintptr_t)reader.page) != 1 &&
	    errno != EIO)
		FAIL("reading /proc/self/mem: got %s", t_errname(errno));
	return NULL;
}

static void *map_more(void *arg)
{
	holder_ready(&writer);
	munmap(map(PAGE), PAGE);
	return NULL;
}

static void start_holders(void)
{
	CHECK_OK(pthread_create(&reader.thread, NULL, read_own, NULL));
	CHECK_OK(pthread_create(&writer.thread, NULL, map_more, NULL));
	while (!atomic_load(&reader.tid) || !atomic_load(&writer.tid))
		usleep(1000);
}

/* Lock all mapped pages in memory, except the pieces. */
static void settle(void)
{
	int i;

	SYS(mlockall(MCL_CURRENT));
	for (i = 0; i < n_pieces; i++) {
		SYS(munlock(pieces[i].at, pieces[i].len));
		SYS(madvise(pieces[i].at, pieces[i].len, MADV_DONTNEED));
	}
}

void stall_hold(void)
{
	int fd = SYS(open(STALL_FILE, O_RDONLY | O_CLOEXEC));

	reader.mem = SYS(open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
	start_holders();
	/* Call this once now, since no code can be loaded later. */
	state_of(getpid(), atomic_load(&writer.tid));
	settle();
	reader.page = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
	CHECK(reader.page != MAP_FAILED);
	atomic_store(&reader.go, true);
	while (!atomic_load(&board->waits))
		usleep(1000);
	atomic_store(&writer.go, true);
	/* The state is D for killable and uninterruptible sleep. */
	while (state_of(getpid(), atomic_load(&writer.tid)) != 'D')
		usleep(1000);
}

void stall_walk(void)
{
	/* After the release the file does not exist, or the server is dead. */
	CHECK(open(STALL_DOOR, O_RDONLY | O_CLOEXEC) < 0);
	CHECK(errno == ENOENT || errno == ECONNABORTED);
}

void *stall_uffd_memory(size_t len)
{
	struct uffdio_api api = { .api = UFFD_API };
	void *p = map(len);
	struct uffdio_register reg = {
		.range = { (uintptr_t)p, len },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	int fd = SYS(syscall(SYS_userfaultfd, O_CLOEXEC));

	SYS(ioctl(fd, UFFDIO_API, &api));
	SYS(ioctl(fd, UFFDIO_REGISTER, &reg));
	/* The descriptor stays open as long as the process lives. */
	return p;
}
