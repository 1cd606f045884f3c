// SPDX-License-Identifier: GPL-2.0
/*
 * XRC: the XRC_RECV QP of one process takes a receive WQE of another process's SRQ,
 * and keeps it. The owner of the SRQ can destroy it and everything below it, and
 * its memory is no longer pinned.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "iso.h"
#include "qp.h"
#include "stall.h"
#include "t.h"
#include "tree.h"

#define FILE_OF_XRCD	"/tmp/keel-isolation-xrc"

static char page[ISO_PAGE] __attribute__((aligned(ISO_PAGE)));

void t_after(void)
{
	unlink(FILE_OF_XRCD);
}

static struct ibv_xrcd *join(struct ibv_context *ctx)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = SYS(open(FILE_OF_XRCD, O_RDONLY | O_CREAT, 0644)),
		.oflags = O_CREAT,
	};

	return MUST(ibv_open_xrcd(ctx, &attr));
}

/* Return the memory that is pinned for this process, in kB. */
static long pinned(pid_t pid)
{
	char *out = t_shell("sed -n 's/^VmPin:[^0-9]*//p' /proc/%d/status", pid);
	long kb = atol(out);

	free(out);
	return kb;
}

static void owner(struct peer *parent)
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	struct ibv_mr *mr = MUST(ibv_reg_mr(pd, page, ISO_PAGE, ISO_RIGHTS));
	struct ibv_cq *cq = cq_new(ctx);
	struct ibv_xrcd *xrcd = join(ctx);
	struct ibv_srq *srq = srq_new_xrc(pd, xrcd, cq);
	uint32_t srqn;

	CHECK_OK(ibv_get_srq_num(srq, &srqn));
	post_srq_recv(srq, 1, (struct mem){ page, 64, mr->lkey });
	peer_put_var(parent, srqn);
	peer_wait(parent);
	CHECK_NO_WC(cq);
	CHECK_OK(ibv_destroy_srq(srq));
	CHECK_OK(ibv_close_xrcd(xrcd));
	CHECK_OK(ibv_destroy_cq(cq));
	CHECK_OK(ibv_dereg_mr(mr));
	CHECK_OK(ibv_dealloc_pd(pd));
	peer_tell(parent);
	peer_wait(parent);
}

/* Send from memory that does not exist, after the SRQ's receive WQE was taken. */
static void taker(struct peer *parent)
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	struct ibv_cq *cq = cq_new(ctx);
	struct ibv_xrcd *xrcd = join(ctx);
	struct ibv_qp *from = qp_new(pd, cq, IBV_QPT_XRC_SEND, NULL);
	struct ibv_qp *to = qp_new_xrc_recv(xrcd);
	struct ibv_send_wr *wr, *bad;
	struct ibv_mr *mr;
	void *gone;

	gone = mmap(NULL, ISO_PAGE, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(gone != MAP_FAILED);
	mr = MUST(ibv_reg_mr(pd, gone, ISO_PAGE, IBV_ACCESS_LOCAL_WRITE |
			     IBV_ACCESS_ON_DEMAND));
	SYS(munmap(gone, ISO_PAGE));
	qp_connect(to, from->qp_num);
	qp_connect(from, to->qp_num);
	wr = send_wr(IBV_WR_SEND, 2, (struct mem){ gone, 64, mr->lkey });
	peer_get_var(parent, wr->qp_type.xrc.remote_srqn);
	CHECK_OK(ibv_post_send(from, wr, &bad));
	CHECK_WC(cq, 2, IBV_WC_LOC_PROT_ERR);
	peer_tell(parent);
	peer_wait(parent);
	/* The receive WQE is gone with the SRQ: the QP ends without it. */
	CHECK_NO_EVENT(ctx);
	qp_to(to, IBV_QPS_ERR);
	CHECK_EVENT(ctx, IBV_EVENT_QP_LAST_WQE_REACHED, to);
	CHECK_OK(ibv_destroy_qp(to));
	peer_tell(parent);
	peer_wait(parent);
}

/* The XRC domain belongs to the inode, and the other process has it open. */
static bool belongs(const struct tree *t, pid_t pid)
{
	int i;

	for (i = 0; i < t->count; i++)
		if (t->objs[i].pid == pid && strcmp(t->objs[i].kind, "xrcd"))
			return true;
	return false;
}

/* Start both, and return when the QP has a receive WQE of the SRQ. */
static void take(struct peer *o, struct peer *t)
{
	uint32_t srqn;
	char *text;

	peer_start(o, owner);
	peer_start(t, taker);
	peer_get_var(o, srqn);
	peer_put_var(t, srqn);
	peer_wait(t);
	text = tree_text(KEEL0);
	if (!strstr(text, " taken 1 "))
		FAIL("got no receive WQE that was taken:\n%s", text);
	free(text);
}

TEST(taken, "ISO-1,PD-3", "an SRQ, its CQ and its PD are freed when their owner destroys them, although another process's XRC_RECV QP has taken a receive WQE")
{
	struct peer o, t;
	struct tree tree;

	take(&o, &t);
	CHECK_STEP(&o, "the destroy of an SRQ");
	tree_read(KEEL0, &tree);
	if (belongs(&tree, o.pid))
		FAIL("got objects of the owner, want none:\n%s",
		     tree_text(KEEL0));
	tree_free(&tree);
	CHECK_EQ(pinned(o.pid), 0);
	CHECK_STEP(&t, "the destroy of an XRC_RECV QP");
	peer_tell(&o);
	peer_tell(&t);
	peer_end(&o);
	peer_end(&t);
	iso_check_empty(KEEL0);
}

/* Two SRQs, and a requester that names one of them. */
struct choice {
	struct ibv_cq *cq;
	struct ibv_srq *srq[2];
	struct ibv_qp *from, *to;
};

static void reconnect(const struct choice *c)
{
	qp_to(c->from, IBV_QPS_RESET);
	qp_connect(c->from, c->to->qp_num);
}

static void choose(const struct choice *c, int i, struct mem mem)
{
	struct ibv_send_wr *wr = send_wr(IBV_WR_SEND, 3, mem), *bad;

	CHECK_OK(ibv_get_srq_num(c->srq[i], &wr->qp_type.xrc.remote_srqn));
	CHECK_OK(ibv_post_send(c->from, wr, &bad));
}

static void check_arrives(const struct choice *c, int i, struct mem mem)
{
	choose(c, i, mem);
	CHECK_WC(c->cq, i, IBV_WC_SUCCESS);
	CHECK_WC(c->cq, 3, IBV_WC_SUCCESS);
}

/*
 * The message to the first SRQ waits for memory when the requester is reset. The QP
 * keeps the receive WQE until the next message names the second SRQ.
 */
static void changer(struct peer *parent)
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	struct ibv_xrcd *xrcd = xrcd_new(ctx);
	struct choice c = { .cq = cq_new(ctx) };
	struct ibv_mr *mr = MUST(ibv_reg_mr(pd, page, ISO_PAGE, ISO_RIGHTS));
	struct mem mem = { page, 64, mr->lkey }, to = { page + 64, 64, mr->lkey };
	void *memory = stall_memory(ISO_PAGE);
	struct ibv_mr *absent = MUST(ibv_reg_mr(pd, memory, ISO_PAGE,
					       IBV_ACCESS_LOCAL_WRITE |
					       IBV_ACCESS_ON_DEMAND));
	int i, round;

	c.from = qp_new(pd, c.cq, IBV_QPT_XRC_SEND, NULL);
	c.to = qp_new_xrc_recv(xrcd);
	qp_connect(c.from, c.to->qp_num);
	qp_connect(c.to, c.from->qp_num);
	for (i = 0; i < 2; i++) {
		c.srq[i] = srq_new_xrc(pd, xrcd, c.cq);
		for (round = 0; round < 2; round++)
			post_srq_recv(c.srq[i], i, to);
		/* During the stall, the process must touch no new page. */
		check_arrives(&c, i, mem);
	}
	/* Nor are the QPs bound to each other by a message. */
	qp_to(c.to, IBV_QPS_RESET);
	reconnect(&c);
	qp_connect(c.to, c.from->qp_num);
	stall_hold();
	choose(&c, 0, (struct mem){ memory, 64, absent->lkey });
	CHECK_NO_WC(c.cq);
	reconnect(&c);
	choose(&c, 1, mem);
	CHECK_WC(c.cq, 0, IBV_WC_WR_FLUSH_ERR);
	CHECK_WC(c.cq, 1, IBV_WC_SUCCESS);
	CHECK_WC(c.cq, 3, IBV_WC_SUCCESS);
	peer_tell(parent);
	pause();
}

TEST(other_srq, "PD-3,XRC-9", "a receive WQE that an XRC_RECV QP has taken is flushed when the next message names another SRQ, and its SRQ can be freed")
{
	struct stall s;

	stall_start(&s, changer);
	peer_wait(&s.peer);
	stall_end(&s);
	iso_check_empty(KEEL0);
}
