// SPDX-License-Identifier: GPL-2.0
/*
 * Calls of processes and threads: they share the file, and map, unmap and watch
 * it. Some of them change the calls that follow.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proc.h"
#include "watch.h"

/* Seconds that a child may take. */
#define PATIENCE_CHILD	10
/* Calls that a thread or a child takes at most. */
#define CALLS_TAKEN	8

static pid_t children[CHILDREN];
static int n_children;
static bool in_child;

/* The calls behind a "thread" or "fork", which takes some of them for itself. */
static __thread const struct call *rest;
static __thread int rest_count;

void run_calls(const struct call *calls, int n)
{
	const struct call *old = rest;
	int i, old_count = rest_count;
	const struct op *op;

	for (i = 0; i < n; i++) {
		op = op_of(calls[i].op);
		if (sh->show)
			text_calls(stdout, (const uint8_t *)&calls[i],
				   sizeof(calls[i]));
		rest = calls + i + 1;
		rest_count = n - i - 1;
		op->run(calls[i].a);
		/* The call has taken the calls at the front. */
		i = n - 1 - rest_count;
	}
	rest = old;
	rest_count = old_count;
}

/* Take up to @n of the calls that follow; return their number. */
static int take(const struct call **calls, int n)
{
	*calls = rest;
	if (n > rest_count)
		n = rest_count;
	rest += n;
	rest_count -= n;
	return n;
}

/* thread N: a thread runs the next N calls, beside those that follow. */
static void op_thread(const uint8_t *a)
{
	const struct call *calls;
	int n = take(&calls, a[0] % CALLS_TAKEN + 1);

	if (n)
		exec_thread(calls, n);
}

/* Send the open file to the peer of a socket. */
static void send_file(int to, int fd)
{
	char byte = 0, control[CMSG_SPACE(sizeof(fd))] = {};
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(fd));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	cmd_count(M_SCM_RIGHTS, sendmsg(to, &msg, MSG_DONTWAIT) == 1);
}

static int receive_file(int from)
{
	char byte, control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
		.msg_controllen = sizeof(control),
	};
	int fd = -1;

	if (recvmsg(from, &msg, 0) == 1 && CMSG_FIRSTHDR(&msg))
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
	return fd;
}

/* The end of a child, with all that it has open. */
static void child_end(void)
{
	kcov_collect_own();
	kill(getpid(), SIGKILL);
}

/* @calls is a copy: the parent may be at the next input before the child ends. */
static void child(pid_t parent, int *socks, bool apart,
		  const struct call *calls, int n)
{
	struct kcov kcov;

	in_child = true;
	n_children = 0;
	exec_without_threads();
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		kill(getpid(), SIGKILL);
	alarm(PATIENCE_CHILD);
	if (kcov_open(&kcov))
		kcov_start(&kcov);
	if (apart)
		world_of_child();
	if (socks[1] >= 0) {
		/* The parent's end: without it, this end sees the parent's close. */
		close(socks[0]);
		close(cmd_fd());
		cmd_set_fd(receive_file(socks[1]));
	}
	run_calls(calls, n);
	child_end();
}

/*
 * fork N HOW TIME: a child runs the next N calls on the file that it has
 * inherited, or gets over a socket, or opens itself. It is killed at the end, or
 * earlier. Threads and children do not fork: they run the calls themselves.
 */
static void op_fork(const uint8_t *a)
{
	struct call copy[CALLS_TAKEN];
	const struct call *calls;
	int n, socks[2] = { -1, -1 };
	pid_t me = getpid(), pid;

	if (!exec_is_main())
		return;
	n = take(&calls, a[0] % CALLS_TAKEN + 1);
	if (n_children == CHILDREN)
		return;
	if (a[1] % 2 && socketpair(AF_UNIX, SOCK_STREAM, 0, socks))
		return;
	memcpy(copy, calls, n * sizeof(*copy));
	pid = fork();
	if (!pid)
		child(me, socks, a[1] % 4 == 2, copy, n);
	cmd_count(M_FORK, pid > 0);
	if (pid > 0)
		children[n_children++] = pid;
	if (socks[0] >= 0) {
		send_file(socks[0], cmd_fd());
		close(socks[0]);
		close(socks[1]);
	}
	if (pid > 0 && a[1] % 8 >= 6) {
		usleep(a[2] * 8);
		kill(pid, SIGKILL);
	}
}

void proc_reap(void)
{
	int status;
	pid_t pid;

	while (n_children) {
		pid = children[--n_children];
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			;
		/* A child that ends as planned kills itself, or is killed. */
		if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
			watch_count_end(status);
	}
}

/*
 * die HOW: the process ends with all of its objects, while its threads run. A new
 * process costs the time of several inputs, so most values of HOW do nothing.
 */
static void op_die(const uint8_t *a)
{
	if (a[0] % 8 != 7)
		return;
	kcov_collect_own();
	if (!in_child)
		atomic_store(&sh->dies, true);
	kill(getpid(), SIGKILL);
}

/* spoil PART AT WIDTH VALUE: replace a part of the next command or WQE. */
static void op_spoil(const uint8_t *a)
{
	cmd_spoil(a);
}

/* via HOW: by write(), or by ioctl(). */
static void op_via(const uint8_t *a)
{
	cmd_via(a[0] % 2);
}

/* map_state HOW: the page with the state of the device. */
static void op_map_state(const uint8_t *a)
{
	void *state;
	int prot = a[0] % 4 == 3 ? PROT_READ | PROT_WRITE : PROT_READ;
	size_t len = a[0] % 8 == 6 ? 2 * PAGE : PAGE;

	state = mmap(NULL, len, prot, a[0] % 8 == 5 ? MAP_PRIVATE : MAP_SHARED,
		     cmd_fd(), KEEL_STATE_OFFSET + (a[1] & 0xf8) * PAGE / 8);
	cmd_count(M_MMAP_STATE, state != MAP_FAILED);
	if (state != MAP_FAILED)
		map_add(state, len);
}

/* unmap INDEX HOW: a mapping of the file, or its first page. */
static void op_unmap(const uint8_t *a)
{
	map_drop(a[0] % MAPS, a[1] % 4 == 3);
}

/* memory PAGE PAGES HOW: change memory that MRs may cover. */
static void op_memory(const uint8_t *a)
{
	void *p = (void *)data_at(a[0]);
	size_t len = a[1] % 4 ? PAGE : data_len(a[0], a[1]);

	switch (a[2] % 6) {
	case 0:
		madvise(p, len, MADV_DONTNEED);
		break;
	case 1:
		mprotect(p, len, PROT_READ);
		break;
	case 2:
		munmap(p, len);
		break;
	case 3:
		mmap(p, len, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		break;
	case 4:
		madvise(p, len, MADV_REMOVE);
		break;
	default:
		mprotect(p, len, PROT_READ | PROT_WRITE);
		break;
	}
}

/* events WHICH TIME: wait for events, and read one. */
static void op_events(const uint8_t *a)
{
	struct obj *chan = obj_pick(K_CHAN, a[0]);
	int fd = a[0] % 2 && chan ? (int)chan->handle : w.async_fd;
	struct pollfd fds = { .fd = fd, .events = POLLIN };
	struct ib_uverbs_async_event_desc event;

	if (fd <= 0)
		return;
	poll(&fds, 1, a[1] % 4);
	if (a[2] % 4 != 3 && read(fd, &event, sizeof(event)) < 0)
		return;
	/* Without its file, the kernel drops the events. */
	if (a[2] % 16 == 15)
		close(fd);
}

/* async: another file of asynchronous events. */
static void op_async(const uint8_t *a)
{
	uint32_t fd;

	if (cmd_method(M_ASYNC_EVENT, UVERBS_OBJECT_ASYNC_EVENT,
		       UVERBS_METHOD_ASYNC_EVENT_ALLOC,
		       ATTRS(NEW(UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, &fd))))
		return;
	fcntl(fd, F_SETFL, O_NONBLOCK);
	if (!w.async_fd)
		w.async_fd = fd;
}

/* close HOW: close a duplicate, or the file under calls in progress. */
static void op_close(const uint8_t *a)
{
	int fd = dup(cmd_fd());

	if (fd < 0)
		return;
	if (a[0] % 8 == 7) {
		close(cmd_fd());
		cmd_set_fd(fd);
		return;
	}
	close(fd);
}

const struct op proc_ops[] = {
	{ "thread", op_thread, 5 }, { "fork", op_fork, 1 },
	{ "die", op_die, 1 }, { "spoil", op_spoil, 4 }, { "via", op_via, 1 },
	{ "map_state", op_map_state, 1 }, { "unmap", op_unmap, 1 },
	{ "memory", op_memory, 3 }, { "events", op_events, 2 },
	{ "async", op_async, 1 }, { "close", op_close, 1 },
};

const int proc_ops_count = sizeof(proc_ops) / sizeof(*proc_ops);
