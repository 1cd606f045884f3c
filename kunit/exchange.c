// SPDX-License-Identifier: GPL-2.0
/*
 * An exchange: a work request that one end of a pair posts, and the expected
 * result at both ends. An empty send follows it. This send must be flushed
 * after an error, and arrive otherwise.
 */
#include <linux/unaligned.h>

#include "exchange.h"

#define WR_EXCHANGE		1
#define WR_NEXT		2
#define WR_RECV		10

/* Operations, and the opcodes of their completions. */
static const struct {
	enum ib_wc_opcode a, b;
	int b_flags;
	bool takes;	/* consumes a receive WQE */
} ops[] = {
	[IB_WR_RDMA_WRITE] = { .a = IB_WC_RDMA_WRITE },
	[IB_WR_RDMA_WRITE_WITH_IMM] = { IB_WC_RDMA_WRITE,
		IB_WC_RECV_RDMA_WITH_IMM, IB_WC_WITH_IMM, true },
	[IB_WR_SEND] = { IB_WC_SEND, IB_WC_RECV, 0, true },
	[IB_WR_SEND_WITH_IMM] = { IB_WC_SEND, IB_WC_RECV, IB_WC_WITH_IMM, true },
	[IB_WR_RDMA_READ] = { .a = IB_WC_RDMA_READ },
	[IB_WR_ATOMIC_CMP_AND_SWP] = { .a = IB_WC_COMP_SWAP },
	[IB_WR_ATOMIC_FETCH_AND_ADD] = { .a = IB_WC_FETCH_ADD },
	[IB_WR_SEND_WITH_INV] = { IB_WC_SEND, IB_WC_RECV,
		IB_WC_WITH_INVALIDATE, true },
	[IB_WR_ATOMIC_WRITE] = { .a = IB_WC_ATOMIC_WRITE },
	[IB_WR_LOCAL_INV] = { .a = IB_WC_LOCAL_INV },
	[IB_WR_REG_MR] = { .a = IB_WC_REG_MR },
};

static bool is_atomic(enum ib_wr_opcode op)
{
	return op == IB_WR_ATOMIC_CMP_AND_SWP ||
	       op == IB_WR_ATOMIC_FETCH_AND_ADD;
}

static bool has_memory(enum ib_wr_opcode op)
{
	return op != IB_WR_LOCAL_INV && op != IB_WR_REG_MR;
}

/* Bytes of a successful exchange. */
static u32 exchange_len(enum ib_wr_opcode op)
{
	return is_atomic(op) || op == IB_WR_ATOMIC_WRITE ? 8 : EXCHANGE_LEN;
}

/* Initialise a successful exchange. */
static void exchange_init(struct pair *p, struct exchange *s,
			  const struct exchange_case *c)
{
	u64 remote = (uintptr_t)p->b.buf + EXCHANGE_AT;

	s->sge = end_sge(p, &p->a, 0, exchange_len(c->op));
	s->recv_sge = end_sge(p, &p->b, 0, EXCHANGE_LEN + KEEL_GRH_BYTES);
	s->recvs = 2;
	s->wr.wr_id = WR_EXCHANGE;
	s->wr.opcode = c->op;
	s->wr.send_flags = IB_SEND_SIGNALED;
	s->wr.sg_list = &s->sge;
	s->wr.num_sge = has_memory(c->op);
	if (c->op == IB_WR_SEND_WITH_INV || c->op == IB_WR_LOCAL_INV)
		s->wr.ex.invalidate_rkey = c->op == IB_WR_LOCAL_INV ?
					   p->a.mr->rkey : p->b.mr->rkey;
	else
		s->wr.ex.imm_data = cpu_to_be32(EXCHANGE_IMM);
	if (c->type == IB_QPT_UD &&
	    (c->op == IB_WR_SEND || c->op == IB_WR_SEND_WITH_IMM)) {
		s->ud.ah = p->ah;
		s->ud.remote_qpn = p->b.qp->qp_num;
		s->ud.remote_qkey = PAIR_QKEY;
	} else if (is_atomic(c->op)) {
		s->atomic.remote_addr = remote;
		s->atomic.rkey = p->b.mr->rkey;
		s->atomic.compare_add = c->op == IB_WR_ATOMIC_CMP_AND_SWP ?
			get_unaligned((u64 *)(p->b.buf + EXCHANGE_AT)) : EXCHANGE_ADD;
		s->atomic.swap = EXCHANGE_ADD;
	} else if (c->op == IB_WR_REG_MR) {
		s->reg.mr = p->fresh;
		s->reg.key = p->fresh->rkey;
		s->reg.access = PAIR_RIGHTS;
	} else if (has_memory(c->op)) {
		s->rdma.remote_addr = remote;
		s->rdma.rkey = p->b.mr->rkey;
	}
}

static void exchange_post(struct pair *p, struct exchange *s)
{
	/* The second UD send needs an address, too. */
	struct ib_ud_wr next = {
		.wr.wr_id = WR_NEXT,
		.wr.opcode = IB_WR_SEND,
		.wr.send_flags = IB_SEND_SIGNALED,
		.ah = p->ah,
		.remote_qpn = p->b.qp->qp_num,
		.remote_qkey = PAIR_QKEY,
	};
	struct ib_recv_wr recv = {
		.sg_list = &s->recv_sge, .num_sge = 1,
	};
	const struct ib_send_wr *bad;
	int i;

	for (i = 0; i < s->recvs; i++) {
		recv.wr_id = WR_RECV + i;
		KUNIT_ASSERT_EQ(p->test, 0, ib_post_recv(p->b.qp, &recv, NULL));
		s->recv_sge = end_sge(p, &p->b, 2 * PAGE_SIZE, PAGE_SIZE);
	}
	s->wr.next = &next.wr;
	KUNIT_ASSERT_EQ(p->test, 0, ib_post_send(p->a.qp, &s->wr, &bad));
}

static void wc_is(struct pair *p, const struct end *end, int i, u64 wr_id,
		  int status, enum keel_uapi_why why, enum ib_wc_opcode opcode,
		  u32 len)
{
	const struct ib_wc *wc = &end->wc[i];

	if (i >= end->wcs) {
		KUNIT_FAIL(p->test, "completion %d of wr_id %llu is missing", i,
			   wr_id);
		return;
	}
	KUNIT_EXPECT_EQ(p->test, wr_id, wc->wr_id);
	KUNIT_EXPECT_EQ_MSG(p->test, status, wc->status, "status of wr_id %llu",
			    wr_id);
	KUNIT_EXPECT_EQ_MSG(p->test, why, wc->vendor_err, "reason of wr_id %llu",
			    wr_id);
	KUNIT_EXPECT_EQ_MSG(p->test, opcode, wc->opcode, "opcode of wr_id %llu",
			    wr_id);
	KUNIT_EXPECT_EQ_MSG(p->test, len, wc->byte_len, "length of wr_id %llu",
			    wr_id);
	KUNIT_EXPECT_PTR_EQ(p->test, end->qp, wc->qp);
}

/* Check the requester: the exchange, then the send that follows. */
static void sender_is(struct pair *p, const struct exchange_case *c)
{
	bool reads = c->op == IB_WR_RDMA_READ || is_atomic(c->op);
	bool fine = c->a.status == IB_WC_SUCCESS;
	bool stops = c->a.state == IB_QPS_ERR || c->a.state == IB_QPS_SQE;

	wc_is(p, &p->a, 0, WR_EXCHANGE, c->a.status, c->a.why, ops[c->op].a,
	      fine && reads ? exchange_len(c->op) : 0);
	/* The exchange succeeded, but the responder failed: the send fails. */
	if (fine && stops)
		wc_is(p, &p->a, 1, WR_NEXT, IB_WC_RETRY_EXC_ERR, KEEL_WHY_PEER,
		      IB_WC_SEND, 0);
	else
		wc_is(p, &p->a, 1, WR_NEXT,
		      stops ? IB_WC_WR_FLUSH_ERR : IB_WC_SUCCESS,
		      stops ? KEEL_WHY_FLUSH : KEEL_WHY_NONE, IB_WC_SEND, 0);
	KUNIT_EXPECT_EQ(p->test, 2, p->a.wcs);
	KUNIT_EXPECT_EQ(p->test, c->a.state, end_state(p, &p->a));
	KUNIT_EXPECT_EQ(p->test, 0, p->a.nr_events);
}

/* Check the other members of the CQE of a receive WQE with a message. */
static void received_is(struct pair *p, const struct exchange_case *c,
			const struct ib_wc *wc)
{
	int flags = ops[c->op].b_flags;

	if (c->type == IB_QPT_UD) {
		KUNIT_EXPECT_EQ(p->test, p->a.qp->qp_num, wc->src_qp);
		flags |= IB_WC_GRH | IB_WC_WITH_NETWORK_HDR_TYPE;
	}
	KUNIT_EXPECT_EQ(p->test, flags, wc->wc_flags);
	if (flags & IB_WC_WITH_IMM)
		KUNIT_EXPECT_EQ(p->test, EXCHANGE_IMM, be32_to_cpu(wc->ex.imm_data));
	if (flags & IB_WC_WITH_INVALIDATE)
		KUNIT_EXPECT_EQ(p->test, p->b.mr->rkey, wc->ex.invalidate_rkey);
}

/* Check the responder: it uses receive WQEs in order, or flushes them. */
static void receiver_is(struct pair *p, const struct exchange *s,
			const struct exchange_case *c)
{
	u32 grh = c->type == IB_QPT_UD ? KEEL_GRH_BYTES : 0;
	bool fine = c->b.status == IB_WC_SUCCESS;
	int i = 0;

	if (c->b.status != EXCHANGE_NOTHING) {
		wc_is(p, &p->b, i, WR_RECV + i, c->b.status, c->b.why,
		      c->b.status == IB_WC_WR_FLUSH_ERR ? IB_WC_RECV :
							  ops[c->op].b,
		      fine ? EXCHANGE_LEN + grh : 0);
		if (fine)
			received_is(p, c, &p->b.wc[i]);
		i++;
	}
	for (; c->b.state == IB_QPS_ERR && i < s->recvs; i++)
		wc_is(p, &p->b, i, WR_RECV + i, IB_WC_WR_FLUSH_ERR,
		      KEEL_WHY_FLUSH, IB_WC_RECV, 0);
	if (c->a.state == IB_QPS_RTS && c->b.state == IB_QPS_RTS && i < s->recvs) {
		wc_is(p, &p->b, i, WR_RECV + i, IB_WC_SUCCESS, KEEL_WHY_NONE,
		      IB_WC_RECV, grh);
		i++;
	}
	KUNIT_EXPECT_EQ(p->test, i, p->b.wcs);
	KUNIT_EXPECT_EQ(p->test, c->b.state, end_state(p, &p->b));
	if (c->event == KEEL_EVENT_NONE) {
		KUNIT_EXPECT_EQ(p->test, 0, p->b.nr_events);
		return;
	}
	KUNIT_EXPECT_EQ(p->test, 1, p->b.nr_events);
	KUNIT_EXPECT_EQ(p->test, c->event, p->b.events[0]);
}

/* @end has @n bytes of @of at @off, and the rest of its page is unchanged. */
static void copied_is(struct pair *p, const struct end *end, u64 off,
		      const struct end *of, u64 from, u64 n)
{
	KUNIT_EXPECT_EQ(p->test, -1, end_differs(end, 0, end, 0, off));
	KUNIT_EXPECT_EQ(p->test, -1, end_differs(end, off, of, from, n));
	KUNIT_EXPECT_EQ(p->test, -1,
			end_differs(end, off + n, end, off + n,
				    PAGE_SIZE - off - n));
}

static void untouched(struct pair *p, const struct end *end)
{
	copied_is(p, end, 0, end, 0, 0);
}

/* Check the operand at the responder, and the old value at the requester. */
static void atomic_is(struct pair *p, enum ib_wr_opcode op)
{
	u64 was, now = get_unaligned((u64 *)(p->b.buf + EXCHANGE_AT));

	copied_is(p, &p->a, 0, &p->b, EXCHANGE_AT, sizeof(was));
	was = get_unaligned((u64 *)p->a.buf);
	KUNIT_EXPECT_EQ(p->test, now, op == IB_WR_ATOMIC_CMP_AND_SWP ?
				      EXCHANGE_ADD : was + EXCHANGE_ADD);
}

static void data_are(struct pair *p, const struct exchange_case *c)
{
	u32 grh = c->type == IB_QPT_UD ? KEEL_GRH_BYTES : 0;

	if (c->a.status != IB_WC_SUCCESS || c->lost) {
		untouched(p, &p->a);
		/* The content of a failed receive is undefined. */
		if (c->b.status == EXCHANGE_NOTHING && !grh)
			untouched(p, &p->b);
		return;
	}
	if (is_atomic(c->op)) {
		atomic_is(p, c->op);
		return;
	}
	if (c->op == IB_WR_RDMA_READ) {
		copied_is(p, &p->a, 0, &p->b, EXCHANGE_AT, EXCHANGE_LEN);
		untouched(p, &p->b);
		return;
	}
	untouched(p, &p->a);
	if (!has_memory(c->op))
		untouched(p, &p->b);
	else if (c->op == IB_WR_RDMA_WRITE || c->op == IB_WR_ATOMIC_WRITE ||
		 c->op == IB_WR_RDMA_WRITE_WITH_IMM)
		copied_is(p, &p->b, EXCHANGE_AT, &p->a, 0, exchange_len(c->op));
	else if (!grh)
		copied_is(p, &p->b, 0, &p->a, 0, EXCHANGE_LEN);
	else
		KUNIT_EXPECT_EQ(p->test, -1,
				end_differs(&p->b, grh, &p->a, 0, EXCHANGE_LEN));
}

void exchange_run(struct kunit *test, const struct exchange_case *c)
{
	struct pair *p = test->priv;
	struct exchange s = {};

	pair_make(p, c->type);
	exchange_init(p, &s, c);
	if (c->arrange)
		c->arrange(p, &s);
	pair_connect(p);
	exchange_post(p, &s);
	pair_settle(p, &p->a, 2);
	sender_is(p, c);
	receiver_is(p, &s, c);
	data_are(p, c);
}
