// SPDX-License-Identifier: GPL-2.0
/*
 * Statuses of completions: every status of a work request, produced by a kernel
 * consumer, with the vendor error, the states of both QPs and the event.
 * Documentation/data-path.rst has the list.
 */
#include "exchange.h"

#define NO_EVENT	KEEL_EVENT_NONE
#define REQ_ERR		IB_EVENT_QP_REQ_ERR
#define ACCESS_ERR	IB_EVENT_QP_ACCESS_ERR
#define LOST		.lost = true

#define END(_status, _why, _state)	\
	{ IB_WC_##_status, KEEL_WHY_##_why, IB_QPS_##_state }
#define FINE		END(SUCCESS, NONE, RTS)
#define QUIET(_state)	{ EXCHANGE_NOTHING, KEEL_WHY_NONE, IB_QPS_##_state }
/* The exchange itself fails, and the peer does not notice. */
#define ONLY_A(_status, _why, _state)	\
	END(_status, _why, _state), QUIET(RTS), NO_EVENT
#define OP(_type, _op)	IB_QPT_##_type, IB_WR_##_op
#define IB_WR_CAS	IB_WR_ATOMIC_CMP_AND_SWP
#define IB_WR_FAA	IB_WR_ATOMIC_FETCH_AND_ADD

/* Changes to an exchange that cause errors. */

static void too_long(struct pair *p, struct exchange *s)
{
	s->sge.length = KEEL_MAX_MSG + 1;
}

static void four_bytes(struct pair *p, struct exchange *s)
{
	s->sge.length = 4;
}

static void beyond_mtu(struct pair *p, struct exchange *s)
{
	s->sge.length = 4097;
}

static void small_recv(struct pair *p, struct exchange *s)
{
	s->recv_sge.length = EXCHANGE_LEN - 1;
}

static void inline_data(struct pair *p, struct exchange *s)
{
	s->sge.length = PAIR_INLINE;
	s->wr.send_flags |= IB_SEND_INLINE;
}

static void no_depth(struct pair *p, struct exchange *s)
{
	p->a.attr.max_rd_atomic = 0;
}

static void no_depth_there(struct pair *p, struct exchange *s)
{
	p->b.attr.max_dest_rd_atomic = 0;
}

static void foreign_ah(struct pair *p, struct exchange *s)
{
	s->ud.ah = p->foreign_ah;
}

static void wrong_qkey(struct pair *p, struct exchange *s)
{
	s->ud.remote_qkey++;
}

static void wrong_lkey(struct pair *p, struct exchange *s)
{
	s->sge.lkey = p->a.mr->lkey ^ 1;
}

static void foreign_lkey(struct pair *p, struct exchange *s)
{
	s->sge.lkey = p->foreign->lkey;
}

static void lkey_range(struct pair *p, struct exchange *s)
{
	s->sge.lkey = p->a.mr->lkey;
	s->sge.addr += PAIR_BYTES - EXCHANGE_LEN + 1;
}

static void closed_lkey(struct pair *p, struct exchange *s)
{
	s->sge.lkey = p->closed->lkey;
	s->sge.addr = (uintptr_t)p->b.buf;
}

static void fresh_lkey(struct pair *p, struct exchange *s)
{
	s->sge.lkey = p->fresh->lkey;
}

static void recv_wrong_lkey(struct pair *p, struct exchange *s)
{
	s->recv_sge.lkey = p->b.mr->lkey ^ 1;
}

static void recv_foreign_lkey(struct pair *p, struct exchange *s)
{
	s->recv_sge.lkey = p->foreign->lkey;
}

static void recv_range(struct pair *p, struct exchange *s)
{
	s->recv_sge.lkey = p->b.mr->lkey;
	s->recv_sge.addr += PAIR_BYTES - EXCHANGE_LEN + 1;
}

static void recv_closed(struct pair *p, struct exchange *s)
{
	s->recv_sge.lkey = p->closed->lkey;
}

static void inv_wrong_key(struct pair *p, struct exchange *s)
{
	s->wr.ex.invalidate_rkey ^= 1;
}

static void inv_foreign(struct pair *p, struct exchange *s)
{
	s->wr.ex.invalidate_rkey = p->foreign->rkey;
}

static void inv_fresh(struct pair *p, struct exchange *s)
{
	s->wr.ex.invalidate_rkey = p->fresh->rkey;
}

static void reg_again(struct pair *p, struct exchange *s)
{
	s->reg.mr = p->a.mr;
	s->reg.key = p->a.mr->rkey;
}

static void reg_foreign(struct pair *p, struct exchange *s)
{
	s->reg.mr = p->foreign;
	s->reg.key = p->foreign->rkey;
}

static void reg_other_key(struct pair *p, struct exchange *s)
{
	s->reg.key ^= BIT(8);
}

static void reg_beyond(struct pair *p, struct exchange *s)
{
	p->fresh->length++;
}

static void forbidden(struct pair *p, struct exchange *s)
{
	p->b.attr.qp_access_flags = 0;
}

static void unaligned(struct pair *p, struct exchange *s)
{
	s->atomic.remote_addr += 4;
}

static void wrong_rkey(struct pair *p, struct exchange *s)
{
	s->rdma.rkey ^= 1;
}

static void foreign_rkey(struct pair *p, struct exchange *s)
{
	s->rdma.rkey = p->foreign->rkey;
}

static void closed_rkey(struct pair *p, struct exchange *s)
{
	s->rdma.rkey = p->closed->rkey;
}

static void fresh_rkey(struct pair *p, struct exchange *s)
{
	s->rdma.rkey = p->fresh->rkey;
}

static void rkey_range(struct pair *p, struct exchange *s)
{
	s->rdma.remote_addr += PAIR_BYTES - EXCHANGE_AT - EXCHANGE_LEN + 1;
}

static void rkey_below(struct pair *p, struct exchange *s)
{
	s->rdma.remote_addr -= EXCHANGE_AT + 1;
}

static void atomic_wrong_rkey(struct pair *p, struct exchange *s)
{
	s->atomic.rkey ^= 1;
}

static void atomic_closed(struct pair *p, struct exchange *s)
{
	s->atomic.rkey = p->closed->rkey;
}

static void no_recv(struct pair *p, struct exchange *s)
{
	s->recvs = 0;
	p->a.attr.rnr_retry = 1;
}

/* Time out quickly if there is no peer. */
static void impatient(struct pair *p)
{
	p->a.attr.timeout = 1;
	p->a.attr.retry_cnt = 0;
}

static void not_ready(struct pair *p, struct exchange *s)
{
	impatient(p);
	p->b.state = IB_QPS_INIT;
}

static void failed_peer(struct pair *p, struct exchange *s)
{
	impatient(p);
	p->b.state = IB_QPS_ERR;
}

static void not_connected(struct pair *p, struct exchange *s)
{
	impatient(p);
	p->b.attr.dest_qp_num = p->clerk.qp->qp_num;
}

static void nobodys_gid(struct pair *p, struct exchange *s)
{
	impatient(p);
	p->a.attr.ah_attr.grh.dgid.raw[15] ^= 1;
}

static void in_error(struct pair *p, struct exchange *s)
{
	p->a.state = IB_QPS_ERR;
}

static const struct exchange_case cases[] = {
	/* Success: every operation. */
	{ "RC send", OP(RC, SEND), NULL, FINE, FINE, NO_EVENT },
	{ "RC send, imm", OP(RC, SEND_WITH_IMM), NULL, FINE, FINE, NO_EVENT },
	{ "RC send, inv", OP(RC, SEND_WITH_INV), NULL, FINE, FINE, NO_EVENT },
	{ "RC write", OP(RC, RDMA_WRITE), NULL, FINE, QUIET(RTS), NO_EVENT },
	{ "RC write, imm", OP(RC, RDMA_WRITE_WITH_IMM), NULL, FINE, FINE,
	  NO_EVENT },
	{ "RC read", OP(RC, RDMA_READ), NULL, FINE, QUIET(RTS), NO_EVENT },
	{ "RC swap", OP(RC, CAS), NULL, FINE, QUIET(RTS), NO_EVENT },
	{ "RC add", OP(RC, FAA), NULL, FINE, QUIET(RTS), NO_EVENT },
	{ "RC atomic write", OP(RC, ATOMIC_WRITE), NULL, FINE, QUIET(RTS),
	  NO_EVENT },
	{ "RC register", OP(RC, REG_MR), NULL, FINE, QUIET(RTS), NO_EVENT },
	{ "RC invalidate", OP(RC, LOCAL_INV), NULL, FINE, QUIET(RTS), NO_EVENT },
	{ "UC send", OP(UC, SEND), NULL, FINE, FINE, NO_EVENT },
	{ "UC send, imm", OP(UC, SEND_WITH_IMM), NULL, FINE, FINE, NO_EVENT },
	{ "UC write", OP(UC, RDMA_WRITE), NULL, FINE, QUIET(RTS), NO_EVENT },
	{ "UC write, imm", OP(UC, RDMA_WRITE_WITH_IMM), NULL, FINE, FINE,
	  NO_EVENT },
	{ "UC invalidate", OP(UC, LOCAL_INV), NULL, FINE, QUIET(RTS), NO_EVENT },
	{ "UD send", OP(UD, SEND), NULL, FINE, FINE, NO_EVENT },
	{ "UD send, imm", OP(UD, SEND_WITH_IMM), NULL, FINE, FINE, NO_EVENT },

	/* Local length error. */
	{ "RC beyond 1 GiB", OP(RC, SEND), too_long,
	  ONLY_A(LOC_LEN_ERR, LENGTH, ERR) },
	{ "RC write beyond 1 GiB", OP(RC, RDMA_WRITE), too_long,
	  ONLY_A(LOC_LEN_ERR, LENGTH, ERR) },
	{ "RC read beyond 1 GiB", OP(RC, RDMA_READ), too_long,
	  ONLY_A(LOC_LEN_ERR, LENGTH, ERR) },
	{ "UC beyond 1 GiB", OP(UC, SEND), too_long,
	  ONLY_A(LOC_LEN_ERR, LENGTH, SQE) },
	{ "UD beyond the MTU", OP(UD, SEND), beyond_mtu,
	  ONLY_A(LOC_LEN_ERR, LENGTH, SQE) },
	{ "RC swap of 4 bytes", OP(RC, CAS), four_bytes,
	  ONLY_A(LOC_LEN_ERR, LENGTH, ERR) },
	{ "RC add of 4 bytes", OP(RC, FAA), four_bytes,
	  ONLY_A(LOC_LEN_ERR, LENGTH, ERR) },
	{ "RC atomic write of 4 bytes", OP(RC, ATOMIC_WRITE), four_bytes,
	  ONLY_A(LOC_LEN_ERR, LENGTH, ERR) },
	{ "RC small receive", OP(RC, SEND), small_recv,
	  END(REM_INV_REQ_ERR, LENGTH, ERR), END(LOC_LEN_ERR, LENGTH, ERR),
	  NO_EVENT },
	{ "UC small receive", OP(UC, SEND), small_recv, FINE,
	  END(LOC_LEN_ERR, LENGTH, ERR), NO_EVENT, LOST },
	{ "UD small receive", OP(UD, SEND), small_recv, FINE, QUIET(RTS),
	  NO_EVENT, LOST },

	/* Local QP operation error. */
	{ "UC send, inv", OP(UC, SEND_WITH_INV), NULL,
	  ONLY_A(LOC_QP_OP_ERR, OPCODE, SQE) },
	{ "UC read", OP(UC, RDMA_READ), NULL,
	  ONLY_A(LOC_QP_OP_ERR, OPCODE, SQE) },
	{ "UC swap", OP(UC, CAS), NULL, ONLY_A(LOC_QP_OP_ERR, OPCODE, SQE) },
	{ "UC add", OP(UC, FAA), NULL, ONLY_A(LOC_QP_OP_ERR, OPCODE, SQE) },
	{ "UD write", OP(UD, RDMA_WRITE), NULL,
	  ONLY_A(LOC_QP_OP_ERR, OPCODE, SQE) },
	{ "UD read", OP(UD, RDMA_READ), NULL,
	  ONLY_A(LOC_QP_OP_ERR, OPCODE, SQE) },
	{ "UD invalidate", OP(UD, LOCAL_INV), NULL,
	  ONLY_A(LOC_QP_OP_ERR, OPCODE, SQE) },
	{ "UD send, inv", OP(UD, SEND_WITH_INV), NULL,
	  ONLY_A(LOC_QP_OP_ERR, OPCODE, SQE) },
	{ "RC read inline", OP(RC, RDMA_READ), inline_data,
	  ONLY_A(LOC_QP_OP_ERR, SGES, ERR) },
	{ "RC read without depth", OP(RC, RDMA_READ), no_depth,
	  ONLY_A(LOC_QP_OP_ERR, DEPTH, ERR) },
	{ "RC add without depth", OP(RC, FAA), no_depth,
	  ONLY_A(LOC_QP_OP_ERR, DEPTH, ERR) },
	{ "PD-4: UD address of another domain", OP(UD, SEND), foreign_ah,
	  ONLY_A(LOC_QP_OP_ERR, AH, SQE) },

	/* Local protection error, of a send WQE and of a receive WQE. */
	{ "RC no such lkey", OP(RC, SEND), wrong_lkey,
	  ONLY_A(LOC_PROT_ERR, KEY, ERR) },
	{ "PD-4: RC lkey of another domain", OP(RC, SEND), foreign_lkey,
	  ONLY_A(LOC_PROT_ERR, DOMAIN, ERR) },
	{ "RC lkey out of range", OP(RC, SEND), lkey_range,
	  ONLY_A(LOC_PROT_ERR, RANGE, ERR) },
	{ "RC lkey not registered", OP(RC, SEND), fresh_lkey,
	  ONLY_A(LOC_PROT_ERR, RANGE, ERR) },
	{ "RC read to what is read-only", OP(RC, RDMA_READ), closed_lkey,
	  ONLY_A(LOC_PROT_ERR, ACCESS, ERR) },
	{ "UC no such lkey", OP(UC, SEND), wrong_lkey,
	  ONLY_A(LOC_PROT_ERR, KEY, SQE) },
	{ "UD no such lkey", OP(UD, SEND), wrong_lkey,
	  ONLY_A(LOC_PROT_ERR, KEY, SQE) },
	{ "RC receive, no such lkey", OP(RC, SEND), recv_wrong_lkey,
	  END(REM_OP_ERR, KEY, ERR), END(LOC_PROT_ERR, KEY, ERR), NO_EVENT },
	{ "PD-4: RC receive, lkey of another domain", OP(RC, SEND),
	  recv_foreign_lkey, END(REM_OP_ERR, DOMAIN, ERR),
	  END(LOC_PROT_ERR, DOMAIN, ERR), NO_EVENT },
	{ "RC receive, lkey out of range", OP(RC, SEND), recv_range,
	  END(REM_OP_ERR, RANGE, ERR), END(LOC_PROT_ERR, RANGE, ERR),
	  NO_EVENT },
	{ "RC receive to what is read-only", OP(RC, SEND), recv_closed,
	  END(REM_OP_ERR, ACCESS, ERR), END(LOC_PROT_ERR, ACCESS, ERR),
	  NO_EVENT },
	{ "UC receive, no such lkey", OP(UC, SEND), recv_wrong_lkey, FINE,
	  END(LOC_PROT_ERR, KEY, ERR), NO_EVENT, LOST },
	{ "UD receive, no such lkey", OP(UD, SEND), recv_wrong_lkey, FINE,
	  END(LOC_PROT_ERR, KEY, ERR), NO_EVENT, LOST },

	/* Memory management error. */
	{ "RC invalidate, no such key", OP(RC, LOCAL_INV), inv_wrong_key,
	  ONLY_A(MW_BIND_ERR, KEY, ERR) },
	{ "PD-4: RC invalidate, another domain", OP(RC, LOCAL_INV), inv_foreign,
	  ONLY_A(MW_BIND_ERR, DOMAIN, ERR) },
	{ "RC invalidate what is not valid", OP(RC, LOCAL_INV), inv_fresh,
	  ONLY_A(MW_BIND_ERR, WINDOW, ERR) },
	{ "UC invalidate, no such key", OP(UC, LOCAL_INV), inv_wrong_key,
	  ONLY_A(MW_BIND_ERR, KEY, SQE) },
	{ "RC register twice", OP(RC, REG_MR), reg_again,
	  ONLY_A(MW_BIND_ERR, WINDOW, ERR) },
	{ "PD-4: RC register, another domain", OP(RC, REG_MR), reg_foreign,
	  ONLY_A(MW_BIND_ERR, DOMAIN, ERR) },
	{ "RC register under another key", OP(RC, REG_MR), reg_other_key,
	  ONLY_A(MW_BIND_ERR, KEY, ERR) },
	{ "RC register more than its pages", OP(RC, REG_MR), reg_beyond,
	  ONLY_A(MW_BIND_ERR, RANGE, ERR) },

	/* Remote invalid request. */
	{ "RC write forbidden", OP(RC, RDMA_WRITE), forbidden,
	  END(REM_INV_REQ_ERR, QP_ACCESS, ERR), QUIET(ERR), REQ_ERR },
	{ "RC read forbidden", OP(RC, RDMA_READ), forbidden,
	  END(REM_INV_REQ_ERR, QP_ACCESS, ERR), QUIET(ERR), REQ_ERR },
	{ "RC swap forbidden", OP(RC, CAS), forbidden,
	  END(REM_INV_REQ_ERR, QP_ACCESS, ERR), QUIET(ERR), REQ_ERR },
	{ "UC write forbidden", OP(UC, RDMA_WRITE), forbidden, FINE, QUIET(RTS),
	  NO_EVENT, LOST },
	{ "RC read without depth there", OP(RC, RDMA_READ), no_depth_there,
	  END(REM_INV_REQ_ERR, DEPTH, ERR), QUIET(ERR), REQ_ERR },
	{ "RC add without depth there", OP(RC, FAA), no_depth_there,
	  END(REM_INV_REQ_ERR, DEPTH, ERR), QUIET(ERR), REQ_ERR },
	{ "RC swap unaligned", OP(RC, CAS), unaligned,
	  END(REM_INV_REQ_ERR, ALIGN, ERR), QUIET(ERR), REQ_ERR },
	{ "RC atomic write unaligned", OP(RC, ATOMIC_WRITE), rkey_below,
	  END(REM_INV_REQ_ERR, ALIGN, ERR), QUIET(ERR), REQ_ERR },
	{ "RC send, inv of no such key", OP(RC, SEND_WITH_INV), inv_wrong_key,
	  END(SUCCESS, NONE, ERR), END(REM_INV_REQ_ERR, KEY, ERR),
	  NO_EVENT },

	/* Remote access error. */
	{ "RC write, no such rkey", OP(RC, RDMA_WRITE), wrong_rkey,
	  END(REM_ACCESS_ERR, KEY, ERR), QUIET(ERR), ACCESS_ERR },
	{ "PD-4: RC write, rkey of another domain", OP(RC, RDMA_WRITE),
	  foreign_rkey, END(REM_ACCESS_ERR, DOMAIN, ERR), QUIET(ERR),
	  ACCESS_ERR },
	{ "RC write without the right", OP(RC, RDMA_WRITE), closed_rkey,
	  END(REM_ACCESS_ERR, ACCESS, ERR), QUIET(ERR), ACCESS_ERR },
	{ "RC write to what is not registered", OP(RC, RDMA_WRITE), fresh_rkey,
	  END(REM_ACCESS_ERR, ACCESS, ERR), QUIET(ERR), ACCESS_ERR },
	{ "RC write out of range", OP(RC, RDMA_WRITE), rkey_range,
	  END(REM_ACCESS_ERR, RANGE, ERR), QUIET(ERR), ACCESS_ERR },
	{ "RC write below the range", OP(RC, RDMA_WRITE), rkey_below,
	  END(REM_ACCESS_ERR, RANGE, ERR), QUIET(ERR), ACCESS_ERR },
	{ "RC write, imm, no such rkey", OP(RC, RDMA_WRITE_WITH_IMM), wrong_rkey,
	  END(REM_ACCESS_ERR, KEY, ERR), END(REM_ACCESS_ERR, KEY, ERR),
	  NO_EVENT },
	{ "RC read without the right", OP(RC, RDMA_READ), closed_rkey,
	  END(REM_ACCESS_ERR, ACCESS, ERR), QUIET(ERR), ACCESS_ERR },
	{ "RC read out of range", OP(RC, RDMA_READ), rkey_range,
	  END(REM_ACCESS_ERR, RANGE, ERR), QUIET(ERR), ACCESS_ERR },
	{ "RC add, no such rkey", OP(RC, FAA), atomic_wrong_rkey,
	  END(REM_ACCESS_ERR, KEY, ERR), QUIET(ERR), ACCESS_ERR },
	{ "RC swap without the right", OP(RC, CAS), atomic_closed,
	  END(REM_ACCESS_ERR, ACCESS, ERR), QUIET(ERR), ACCESS_ERR },
	{ "UC write, no such rkey", OP(UC, RDMA_WRITE), wrong_rkey, FINE,
	  QUIET(RTS), NO_EVENT, LOST },

	/* The responder does not take the message. */
	{ "RC no receive", OP(RC, SEND), no_recv,
	  ONLY_A(RNR_RETRY_EXC_ERR, NOT_READY, ERR) },
	{ "RC write, imm, no receive", OP(RC, RDMA_WRITE_WITH_IMM), no_recv,
	  ONLY_A(RNR_RETRY_EXC_ERR, NOT_READY, ERR) },
	{ "UC no receive", OP(UC, SEND), no_recv, FINE, QUIET(RTS), NO_EVENT,
	  LOST },
	{ "UD no receive", OP(UD, SEND), no_recv, FINE, QUIET(RTS), NO_EVENT,
	  LOST },
	{ "UD wrong Q_Key", OP(UD, SEND), wrong_qkey, FINE, QUIET(RTS),
	  NO_EVENT, LOST },
	{ "RC peer not ready", OP(RC, SEND), not_ready,
	  END(RETRY_EXC_ERR, PEER, ERR), QUIET(INIT), NO_EVENT },
	{ "RC peer not connected back", OP(RC, RDMA_WRITE), not_connected,
	  ONLY_A(RETRY_EXC_ERR, PEER, ERR) },
	{ "RC nobody's address", OP(RC, RDMA_READ), nobodys_gid,
	  ONLY_A(RETRY_EXC_ERR, PEER, ERR) },
	{ "UC peer not ready", OP(UC, SEND), not_ready, FINE, QUIET(INIT),
	  NO_EVENT, LOST },

	/* Flush error. */
	{ "RC peer in error", OP(RC, SEND), failed_peer,
	  END(RETRY_EXC_ERR, PEER, ERR), END(WR_FLUSH_ERR, FLUSH, ERR),
	  NO_EVENT },
	{ "RC in error", OP(RC, RDMA_READ), in_error,
	  ONLY_A(WR_FLUSH_ERR, FLUSH, ERR) },
	{ "UC in error", OP(UC, RDMA_WRITE), in_error,
	  ONLY_A(WR_FLUSH_ERR, FLUSH, ERR) },
	{ "UD in error", OP(UD, SEND), in_error,
	  ONLY_A(WR_FLUSH_ERR, FLUSH, ERR) },
};
KUNIT_ARRAY_PARAM_DESC(exchange, cases, desc);

static void status_of(struct kunit *test)
{
	exchange_run(test, test->param_value);
}

/* Exactly the documented statuses occur. */
static void status_all(struct kunit *test)
{
	static const u32 documented =
		BIT(IB_WC_SUCCESS) | BIT(IB_WC_LOC_LEN_ERR) |
		BIT(IB_WC_LOC_QP_OP_ERR) | BIT(IB_WC_LOC_PROT_ERR) |
		BIT(IB_WC_WR_FLUSH_ERR) | BIT(IB_WC_MW_BIND_ERR) |
		BIT(IB_WC_REM_INV_REQ_ERR) | BIT(IB_WC_REM_ACCESS_ERR) |
		BIT(IB_WC_REM_OP_ERR) | BIT(IB_WC_RETRY_EXC_ERR) |
		BIT(IB_WC_RNR_RETRY_EXC_ERR);
	u32 sender = 0, receiver = 0;
	int i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		sender |= BIT(cases[i].a.status);
		if (cases[i].b.status != EXCHANGE_NOTHING)
			receiver |= BIT(cases[i].b.status);
	}
	KUNIT_EXPECT_EQ(test, documented, sender);
	KUNIT_EXPECT_EQ(test, BIT(IB_WC_SUCCESS) | BIT(IB_WC_LOC_LEN_ERR) |
			      BIT(IB_WC_LOC_PROT_ERR) | BIT(IB_WC_WR_FLUSH_ERR) |
			      BIT(IB_WC_REM_INV_REQ_ERR) |
			      BIT(IB_WC_REM_ACCESS_ERR), receiver);
}

static struct kunit_case status_cases[] = {
	KUNIT_CASE_PARAM(status_of, exchange_gen_params),
	KUNIT_CASE(status_all),
	{}
};

static struct kunit_suite status_suite = {
	.name = "keel_status",
	.suite_init = pair_suite_init,
	.suite_exit = pair_suite_exit,
	.init = pair_init,
	.exit = pair_exit,
	.test_cases = status_cases,
};
kunit_test_suite(status_suite);
