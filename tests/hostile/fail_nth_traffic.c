// SPDX-License-Identifier: GPL-2.0
/*
 * Failing allocations while queue pairs are connected and work requests are
 * posted: see fail_nth.c. The allocations of workers do not fail, because only
 * those of one task do.
 */
#include <sys/mman.h>

#include "fault.h"
#include "qp.h"
#include "t.h"

#define BYTES	(64 * 4096UL)
#define ALL	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | \
		 IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)
#define MOST	2000

static struct ibv_mr *reg(struct ibv_pd *pd, int more)
{
	void *p = (void *)SYS(mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));

	return MUST(ibv_reg_mr(pd, p, BYTES, ALL | more));
}

static void dereg(struct ibv_mr *mr)
{
	void *p = mr->addr;

	CHECK_OK(ibv_dereg_mr(mr));
	SYS(munmap(p, BYTES));
}

/* --- connecting ------------------------------------------------------------- */

static int to_rtr(struct ibv_qp *qp)
{
	return qp_try_rtr(qp, qp->qp_num);
}

static int to_rts(struct ibv_qp *qp)
{
	return qp_try_rts(qp, 7);
}

static int to_reset(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

static const struct {
	const char *name;
	int (*go)(struct ibv_qp *qp);
	enum ibv_qp_state state;
} moves[] = {
	{ "to INIT", qp_try_init, IBV_QPS_INIT },
	{ "to RTR", to_rtr, IBV_QPS_RTR },
	{ "to RTS", to_rts, IBV_QPS_RTS },
	{ "to RESET", to_reset, IBV_QPS_RESET },
};

#define MOVES	((int)(sizeof(moves) / sizeof(*moves)))

/* Return whether something has failed in move @i of a new QP. */
static bool move_once(struct ibv_pd *pd, struct ibv_cq *cq, int i, int n,
		      int *refusals)
{
	struct ibv_qp *qp = qp_new(pd, cq, IBV_QPT_RC, NULL);
	enum ibv_qp_state state = IBV_QPS_RESET;
	bool failed;
	int j, err;

	for (j = 0; j < i; j++) {
		CHECK_OK(moves[j].go(qp));
		state = moves[j].state;
	}
	fault_start(n);
	err = moves[i].go(qp);
	failed = fault_end();
	if (err) {
		/* The kernel's table of routes has no other errno for its memory. */
		if (!failed || (err != ENOMEM && err != EFAULT &&
				err != ENETUNREACH))
			FAIL("%s, allocation %d fails: got %s, want ENOMEM or EFAULT",
			     moves[i].name, n, t_errname(err));
		++*refusals;
		CHECK_STATE(qp, state);
		CHECK_OK(moves[i].go(qp));
	}
	CHECK_STATE(qp, moves[i].state);
	CHECK_OK(ibv_destroy_qp(qp));
	return failed;
}

TEST_ONLY_DEBUG(modify, "DEV-4", "ibv_modify_qp() with each of its allocations and copies failing once: ENOMEM or EFAULT, and the QP stays in its state",
		"its kernel cannot let allocations fail", 120)
{
	struct ibv_pd *pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	struct ibv_cq *cq = cq_new(pd->context);
	int i, n, refusals;

	fault_init();
	fault_copies(true);
	fault_only_keel(false);
	for (i = 0; i < MOVES; i++) {
		refusals = 0;
		for (n = 1; move_once(pd, cq, i, n, &refusals); n++)
			CHECK(n < MOST);
		t_note("%s: %d refused", moves[i].name, refusals);
		CHECK(refusals > 0);
	}
	CHECK_OK(ibv_destroy_cq(cq));
	CHECK_OK(ibv_dealloc_pd(pd));
}

/* --- posting ---------------------------------------------------------------- */

struct work {
	struct link l;
	struct ibv_mr *from, *to;
	uint32_t len;
};

static int post_message(struct work *w)
{
	struct ibv_sge to = { (uintptr_t)w->to->addr, w->len, w->to->lkey };
	struct ibv_recv_wr recv = { .wr_id = 2, .sg_list = &to, .num_sge = 1 };
	struct mem from = { w->from->addr, w->len, w->from->lkey };
	struct ibv_send_wr *bad_send;
	struct ibv_recv_wr *bad;
	int err = ibv_post_recv(w->l.qp[1], &recv, &bad);

	return err ? err : ibv_post_send(w->l.qp[0],
					 send_wr(IBV_WR_SEND, 1, from),
					 &bad_send);
}

static int post_rdma_op(struct work *w, enum ibv_wr_opcode op)
{
	struct ibv_mr *local = op == IBV_WR_RDMA_READ ? w->to : w->from;
	struct ibv_mr *remote = op == IBV_WR_RDMA_READ ? w->from : w->to;
	struct ibv_send_wr *bad, *wr;

	wr = send_wr(op, 1, (struct mem){ local->addr, w->len, local->lkey });
	wr->wr.rdma.remote_addr = (uintptr_t)remote->addr;
	wr->wr.rdma.rkey = remote->rkey;
	return ibv_post_send(w->l.qp[0], wr, &bad);
}

static int post_write(struct work *w)
{
	return post_rdma_op(w, IBV_WR_RDMA_WRITE);
}

static int post_read(struct work *w)
{
	return post_rdma_op(w, IBV_WR_RDMA_READ);
}

static const struct {
	const char *name;
	int (*post)(struct work *w);
	uint32_t len;
	int more;
} works[] = {
	{ "send 64 B", post_message, 64, 0 },
	{ "send 256 KiB", post_message, BYTES, 0 },
	{ "send 256 KiB on demand", post_message, BYTES, IBV_ACCESS_ON_DEMAND },
	{ "RDMA write 64 B", post_write, 64, 0 },
	{ "RDMA write 256 KiB", post_write, BYTES, 0 },
	{ "RDMA read 256 KiB on demand", post_read, BYTES, IBV_ACCESS_ON_DEMAND },
};

/*
 * The copies of a doorbell do not fail in reality: its argument is on the stack
 * of the provider.
 */
TEST_ONLY_DEBUG(post, "DEV-4", "posting makes no allocation in the caller that could fail, for messages of either path and memory on demand",
		"its kernel cannot let allocations fail", 60)
{
	struct ibv_pd *pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	struct ibv_pd *other;
	struct work w;
	size_t i;

	fault_init();
	fault_copies(false);
	fault_only_keel(false);
	/* Another verb does make an allocation, which fails. */
	fault_start(1);
	other = ibv_alloc_pd(pd->context);
	CHECK(fault_end());
	if (other)
		CHECK_OK(ibv_dealloc_pd(other));
	for (i = 0; i < sizeof(works) / sizeof(*works); i++) {
		w = (struct work){
			.l = link_new(pd, pd, IBV_QPT_RC),
			.from = reg(pd, works[i].more),
			.to = reg(pd, works[i].more), .len = works[i].len,
		};
		memset(w.from->addr, 'f', BYTES);
		fault_start(1);
		CHECK_OK(works[i].post(&w));
		if (fault_end())
			FAIL("%s makes an allocation", works[i].name);
		CHECK_WC(w.l.cq[0], 1, IBV_WC_SUCCESS);
		if (works[i].post == post_message)
			CHECK_WC(w.l.cq[1], 2, IBV_WC_SUCCESS);
		CHECK_ALL(w.to->addr, 'f', w.len);
		link_free(&w.l);
		dereg(w.from);
		dereg(w.to);
	}
	CHECK_OK(ibv_dealloc_pd(pd));
}
