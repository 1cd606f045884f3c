// SPDX-License-Identifier: GPL-2.0
/*
 * A second process of a test. See peer.h.
 */
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "peer.h"
#include "t.h"

void peer_start(struct peer *p, void (*run)(struct peer *parent))
{
	int fds[2];

	SYS(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds));
	p->pid = SYS(fork());
	if (!p->pid) {
		struct peer parent = { .pid = getppid(), .fd = fds[1] };

		close(fds[0]);
		run(&parent);
		_exit(0);
	}
	close(fds[1]);
	p->fd = fds[0];
}

void peer_put(struct peer *p, const void *data, size_t len)
{
	if (send(p->fd, data, len, MSG_NOSIGNAL) != (ssize_t)len)
		FAIL("sending to process %d: got %s", p->pid, t_errname(errno));
}

void peer_get(struct peer *p, void *data, size_t len)
{
	if (recv(p->fd, data, len, MSG_WAITALL) != (ssize_t)len)
		FAIL("got nothing from process %d, want %zu bytes", p->pid, len);
}

void peer_tell(struct peer *p)
{
	peer_put(p, "", 1);
}

void peer_wait(struct peer *p)
{
	char c;

	peer_get(p, &c, 1);
}

void peers_turn(struct peer *p, int n)
{
	int i;

	for (i = 0; i < n; i++)
		peer_wait(&p[i]);
	for (i = 0; i < n; i++)
		peer_tell(&p[i]);
}

void *peer_shared(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		FAIL("mmap of %zu bytes: got %s", len, t_errname(errno));
	return p;
}

void peer_put_fd(struct peer *p, int fd)
{
	char c = 0, ctl[CMSG_SPACE(sizeof(fd))] = {};
	struct iovec iov = { .iov_base = &c, .iov_len = 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = ctl, .msg_controllen = sizeof(ctl),
	};
	struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);

	cmsg->cmsg_level = SOL_SOCKET;
	cmsg->cmsg_type = SCM_RIGHTS;
	cmsg->cmsg_len = CMSG_LEN(sizeof(fd));
	memcpy(CMSG_DATA(cmsg), &fd, sizeof(fd));
	SYS(sendmsg(p->fd, &msg, MSG_NOSIGNAL));
}

int peer_get_fd(struct peer *p)
{
	int fd;
	char c, ctl[CMSG_SPACE(sizeof(fd))] = {};
	struct iovec iov = { .iov_base = &c, .iov_len = 1 };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = ctl, .msg_controllen = sizeof(ctl),
	};

	CHECK_EQ(SYS(recvmsg(p->fd, &msg, 0)), 1);
	CHECK(CMSG_FIRSTHDR(&msg));
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fd));
	return fd;
}

void peer_end(struct peer *p)
{
	int status;

	close(p->fd);
	SYS(waitpid(p->pid, &status, 0));
	/* The process has reported its failure itself. */
	if (status)
		FAIL("process %d: got wait status 0x%x, want 0", p->pid, status);
}

void peer_kill(struct peer *p, int sig)
{
	int status;

	SYS(kill(p->pid, sig));
	SYS(waitpid(p->pid, &status, 0));
	CHECK_EQ(WTERMSIG(status), sig);
	close(p->fd);
}
