// SPDX-License-Identifier: GPL-2.0
/*
 * Processes that do nothing for a peer: a stopped process, a process that
 * sleeps uninterruptibly in a path walk, and a process whose on-demand memory
 * belongs to an unserved userfaultfd. Each must not delay a process that sends
 * to it or reads its memory. Messages to its pinned memory must still complete.
 */
#include <sys/wait.h>

#include "iso.h"
#include "qp.h"
#include "stall.h"
#include "t.h"

#define UFFD	"/proc/sys/vm/unprivileged_userfaultfd"

enum how { STOPPED, IN_PATH_WALK, USERFAULT };

/* The victim's connections: a send, a read, and a send to pinned memory. */
enum { SEND, READ, PINNED, ENDS };

static enum how how;
static char page[ISO_PAGE] __attribute__((aligned(ISO_PAGE)));

void t_after(void)
{
	t_write_file(UFFD, "0");
}

static void hostile(struct peer *parent)
{
	struct iso_end e[ENDS];
	void *memory;
	int i;

	memory = how == USERFAULT ? stall_uffd_memory(ISO_PAGE) :
				    stall_memory(ISO_PAGE);
	for (i = 0; i < ENDS; i++) {
		iso_open(&e[i], KEEL0, i ? e[0].ctx : NULL, ISO_RC);
		e[i].mr = i == PINNED ? iso_mr(&e[i], page, 0) :
			  iso_mr(&e[i], memory, IBV_ACCESS_ON_DEMAND);
		iso_meet(&e[i], parent);
		iso_post_recv(&e[i], 1, e[i].mr);
	}
	peer_tell(parent);
	if (how == IN_PATH_WALK)
		stall_walk();
	pause();
}

static void victim(struct peer *parent)
{
	struct iso_end e[ENDS];
	int i;

	for (i = 0; i < ENDS; i++) {
		iso_open(&e[i], KEEL0, i ? e[0].ctx : NULL, ISO_RC);
		e[i].mr = iso_mr(&e[i], page, 0);
		iso_meet(&e[i], parent);
	}
	peer_wait(parent);
	CHECK_OK(iso_send(&e[SEND], 2, e[SEND].mr));
	peer_tell(parent);
	peer_wait(parent);
	CHECK_OK(iso_rdma(&e[READ], IBV_WR_RDMA_READ, 3, e[READ].mr));
	peer_tell(parent);
	peer_wait(parent);
	CHECK_OK(iso_send(&e[PINNED], 4, e[PINNED].mr));
	CHECK_WC(e[PINNED].cq, 4, IBV_WC_SUCCESS);
	peer_tell(parent);
	peer_wait(parent);
	for (i = 0; i < ENDS; i++) {
		CHECK_OK(ibv_dereg_mr(e[i].mr));
		CHECK_OK(ibv_destroy_qp(e[i].qp));
	}
	peer_tell(parent);
	peer_wait(parent);
}

static void stop(struct stall *s)
{
	int status;

	SYS(kill(s->peer.pid, SIGSTOP));
	SYS(waitpid(s->peer.pid, &status, WUNTRACED));
	CHECK(WIFSTOPPED(status));
}

static void start(struct stall *s, struct peer *v)
{
	int i;

	stall_start(s, hostile);
	peer_start(v, victim);
	for (i = 0; i < ENDS; i++)
		iso_introduce(&s->peer, v);
	peer_wait(&s->peer);
	stall_settle(s);
	if (how == STOPPED)
		stop(s);
}

static void check(enum how h)
{
	struct stall s;
	struct peer v;

	how = h;
	start(&s, &v);
	CHECK_STEP(&v, "ibv_post_send()");
	CHECK_STEP(&v, "posting an RDMA read");
	CHECK_STEP(&v, "a message to pinned memory");
	CHECK_STEP(&v, "ibv_dereg_mr() and ibv_destroy_qp()");
	CHECK_KILL(&v, "a process that has destroyed its QPs");
	stall_end(&s);

	start(&s, &v);
	CHECK_STEP(&v, "ibv_post_send()");
	CHECK_STEP(&v, "posting an RDMA read");
	CHECK_KILL(&v, "a process that has sent and reads");
	stall_end(&s);
	iso_check_empty(KEEL0);
}

#define PROVES	" delays no peer: a peer posts, destroys and dies within 1 s, and messages to pinned memory complete"

TEST(stopped, "ISO-1", "a stopped process" PROVES)
{
	check(STOPPED);
}

TEST(in_path_walk, "ISO-1", "a process in a path walk that its file system does not finish" PROVES)
{
	check(IN_PATH_WALK);
}

TEST(userfault, "ISO-1", "a process with an unserved userfaultfd" PROVES)
{
	/* An administrator may have set this. */
	CHECK_OK(t_write_file(UFFD, "1"));
	check(USERFAULT);
}
