// SPDX-License-Identifier: GPL-2.0
/*
 * WQEs that no library writes: the QP is in SQD while the test changes a posted
 * WQE in its ring.
 */
#include "peer.h"
#include "qp.h"
#include "rings.h"
#include "t.h"

#define PAGE	4096
#define RIGHTS	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |	\
		 IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

static char from[PAGE] __attribute__((aligned(PAGE)));
static char to[PAGE] __attribute__((aligned(PAGE)));

/* Indexes of rings[]: the rings of two QPs, and of an SRQ. */
enum { SQ = 2, RQ, SQ_B, RQ_B, SRQ };

struct setup {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq[2];
	struct ibv_qp *qp[2];
	struct ibv_mr *src, *dst;
};

static struct setup setup(enum ibv_qp_type type)
{
	struct setup s = { .ctx = dev_open(KEEL0) };
	int i;

	s.pd = rings_pd(s.ctx);
	for (i = 0; i < 2; i++)
		s.cq[i] = rings_cq(s.pd);
	for (i = 0; i < 2; i++)
		s.qp[i] = qp_new(s.pd, s.cq[i], type, NULL);
	qp_join(s.qp[0], s.qp[1]);
	memset(from, 'f', PAGE);
	memset(to, 't', PAGE);
	s.src = MUST(ibv_reg_mr(s.pd, from, PAGE, RIGHTS));
	s.dst = MUST(ibv_reg_mr(s.pd, to, PAGE, RIGHTS));
	return s;
}

/* Post a WQE that the kernel does not run before go(). */
static struct keel_uapi_send_wqe *hold(struct setup *s,
				       struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	qp_to(s->qp[0], IBV_QPS_SQD);
	CHECK_OK(ibv_post_send(s->qp[0], wr, &bad));
	CHECK_NO_WC(s->cq[0]);
	return rings_send_wqe(SQ);
}

static void go(struct setup *s)
{
	qp_to(s->qp[0], IBV_QPS_RTS);
}

static struct mem part(struct ibv_mr *mr, uint32_t len)
{
	return (struct mem){ mr->addr, len, mr->lkey };
}

/* Values to write into members of a WQE. */
struct lie {
	const char *what;
	enum ibv_wr_opcode as;	/* opcode that is posted */
	int opcode;		/* replacement, or -1 */
	int flags;
	int num_sge;
	unsigned int inline_len;
};

static void lie_one(const struct lie *lie, enum ibv_qp_type type)
{
	struct setup s = setup(type);
	struct ibv_send_wr *wr = send_wr(lie->as, 1, part(s.src, 8));
	struct keel_uapi_send_wqe *wqe;

	t_note("%s", lie->what);
	wr->wr.rdma.remote_addr = (uintptr_t)to;
	wr->wr.rdma.rkey = s.dst->rkey;
	post_recv(s.qp[1], 2, part(s.dst, PAGE));
	wqe = hold(&s, wr);
	CHECK_EQ(wqe->wr_id, 1);
	CHECK_EQ(wqe->opcode, lie->as);
	if (lie->opcode >= 0)
		wqe->opcode = lie->opcode;
	wqe->flags |= lie->flags;
	wqe->num_sge = lie->num_sge;
	wqe->inline_len = lie->inline_len;
	go(&s);
	CHECK_WC(s.cq[0], 1, IBV_WC_LOC_QP_OP_ERR);
	CHECK_STATE(s.qp[0], type == IBV_QPT_UC ? IBV_QPS_SQE : IBV_QPS_ERR);
	CHECK_STATE(s.qp[1], IBV_QPS_RTS);
	CHECK_NO_WC(s.cq[1]);
	CHECK_NO_EVENT(s.ctx);
	CHECK_ALL(to, 't', PAGE);
	CHECK_ALL(from, 'f', PAGE);
	CHECK_OK(ibv_close_device(s.ctx));
}

#define INLINE	IBV_SEND_INLINE
#define SEND	IBV_WR_SEND
#define WRITE	IBV_WR_RDMA_WRITE

TEST(counts, "DEV-4", "a send WQE with more SGEs or inline data than its QP permits is a local operation error")
{
	static const struct lie lies[] = {
		{ "one SGE more", SEND, -1, 0, QP_SGES + 1, 0 },
		{ "as many as a device has", WRITE, -1, 0, KEEL_MAX_SGE, 0 },
		{ "one more than that", WRITE, -1, 0, KEEL_MAX_SGE + 1, 0 },
		{ "as many as can be said", SEND, -1, 0, 0xffff, 0 },
		{ "one byte more inline", SEND, -1, INLINE, 0, QP_INLINE + 1 },
		{ "a page inline", WRITE, -1, INLINE, 0, PAGE },
		{ "4 GiB inline", SEND, -1, INLINE, 0, -1U },
		{ "half of that", SEND, -1, INLINE, 0, 1U << 31 },
		{ "SGEs and inline data", SEND, -1, INLINE, 1, 8 },
		{ "a read inline", IBV_WR_RDMA_READ, -1, INLINE, 0, 8 },
		{}
	};
	const struct lie *lie;

	for (lie = lies; lie->what; lie++)
		lie_one(lie, IBV_QPT_RC);
}

TEST(opcodes, "DEV-4", "an opcode that is unknown, reserved for the kernel or wrong for the QP type is a local operation error")
{
	static const struct lie rc[] = {
		{ "one that is none", SEND, 16, 0, 1, 0 },
		{ "the one of TSO", SEND, IBV_WR_TSO, 0, 1, 0 },
		{ "fast registration", SEND, 0x20, 0, 1, 0 },
		{ "the last", SEND, 0xff, 0, 1, 0 },
		{ "the one behind that", SEND, 0x21, 0, 1, 0 },
		{}
	};
	static const struct lie uc[] = {
		{ "a read on UC", WRITE, IBV_WR_RDMA_READ, 0, 1, 0 },
		{ "an atomic on UC", WRITE, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 1,
		  0 },
		{ "a send with invalidate on UC", SEND, IBV_WR_SEND_WITH_INV,
		  0, 1, 0 },
		{}
	};
	const struct lie *lie;

	for (lie = rc; lie->what; lie++)
		lie_one(lie, IBV_QPT_RC);
	for (lie = uc; lie->what; lie++)
		lie_one(lie, IBV_QPT_UC);
}

static struct ibv_send_wr *to_ah(struct setup *s, struct ibv_ah *ah)
{
	struct ibv_send_wr *wr = send_wr(SEND, 1, part(s->src, 8));

	wr_to(wr, ah, s->qp[1]);
	return wr;
}

/* Return the AH number that the library writes into a WQE. */
static uint32_t ah_number(struct setup *s, struct ibv_ah *ah)
{
	struct keel_uapi_send_wqe *wqe = hold(s, to_ah(s, ah));
	uint32_t number = wqe->ud.ah;

	go(s);
	CHECK_WC(s->cq[0], 1, IBV_WC_SUCCESS);
	return number;
}

static void check_ah(const char *what, uint32_t number)
{
	struct setup s = setup(IBV_QPT_UD);
	struct ibv_ah *ah = ah_self(s.pd);
	struct keel_uapi_send_wqe *wqe;

	t_note("%s: %u", what, number);
	post_recv(s.qp[1], 2, part(s.dst, PAGE));
	wqe = hold(&s, to_ah(&s, ah));
	CHECK(wqe->ud.ah != number);
	wqe->ud.ah = number;
	go(&s);
	CHECK_WC(s.cq[0], 1, IBV_WC_LOC_QP_OP_ERR);
	CHECK_STATE(s.qp[0], IBV_QPS_SQE);
	CHECK_NO_WC(s.cq[1]);
	CHECK_ALL(to, 't', PAGE);
	CHECK_OK(ibv_close_device(s.ctx));
}

static void ah_owner(struct peer *parent)
{
	struct setup s = setup(IBV_QPT_UD);
	uint32_t number = ah_number(&s, ah_self(s.pd));

	peer_put_var(parent, number);
	peer_wait(parent);
}

TEST(address_handles, "PD-4,DEV-4", "a UD WQE with an AH of another domain or process, or a dead or unknown AH, is a local operation error")
{
	struct peer peer;
	struct setup s;
	struct ibv_pd *other;
	struct ibv_ah *ah;
	uint32_t number;

	peer_start(&peer, ah_owner);
	peer_get_var(&peer, number);
	check_ah("of another process", number);
	peer_tell(&peer);
	peer_end(&peer);
	check_ah("of a process that is gone", number);
	check_ah("none", 0);
	check_ah("none", -1U);
	check_ah("none", 1U << 31);

	/* An existing AH of the same process. */
	s = setup(IBV_QPT_UD);
	other = MUST(ibv_alloc_pd(s.ctx));
	ah = ah_self(other);
	post_recv(s.qp[1], 2, part(s.dst, PAGE));
	post(s.qp[0], to_ah(&s, ah));
	CHECK_WC(s.cq[0], 1, IBV_WC_LOC_QP_OP_ERR);
	CHECK_STATE(s.qp[0], IBV_QPS_SQE);
	CHECK_NO_WC(s.cq[1]);
	CHECK_ALL(to, 't', PAGE);
}

TEST(receives, "DEV-4", "a receive WQE with more SGEs than its queue or SRQ permits is an operation error on both sides")
{
	static const uint32_t counts[] = {
		QP_SGES + 1, KEEL_MAX_SGE + 1, 0xffff, -1U,
	};
	struct keel_uapi_recv_wqe *wqe;
	struct ibv_srq *srq;
	struct setup s;
	int i;

	for (i = 0; i < 8; i++) {
		s = setup(IBV_QPT_RC);
		if (i >= 4) {
			srq = srq_new(s.pd);
			CHECK_OK(ibv_destroy_qp(s.qp[1]));
			s.qp[1] = qp_new(s.pd, s.cq[1], IBV_QPT_RC, srq);
			qp_to(s.qp[0], IBV_QPS_RESET);
			qp_join(s.qp[0], s.qp[1]);
			post_srq_recv(srq, 1, part(s.dst, PAGE));
			wqe = rings_recv_wqe(SRQ);
		} else {
			post_recv(s.qp[1], 1, part(s.dst, PAGE));
			wqe = rings_recv_wqe(RQ_B);
		}
		CHECK_EQ(wqe->wr_id, 1);
		CHECK_EQ(wqe->num_sge, 1);
		wqe->num_sge = counts[i % 4];
		post_send(s.qp[0], 2, part(s.src, 8));
		CHECK_WC(s.cq[1], 1, IBV_WC_LOC_QP_OP_ERR);
		CHECK_WC(s.cq[0], 2, IBV_WC_REM_OP_ERR);
		CHECK_STATE(s.qp[0], IBV_QPS_ERR);
		CHECK_STATE(s.qp[1], IBV_QPS_ERR);
		CHECK_ALL(to, 't', PAGE);
		CHECK_OK(ibv_close_device(s.ctx));
	}
}

enum use { LKEY, RKEY, POSTED_RECV, POSTED_SEND, USES };

static void stale_one(enum use use, bool again)
{
	struct setup s = setup(IBV_QPT_RC);
	struct ibv_mr *mr = MUST(ibv_reg_mr(s.pd, to, PAGE, RIGHTS));
	struct mem mem = part(mr, 8);
	uint32_t rkey = mr->rkey;

	post_recv(s.qp[1], 1, use == POSTED_RECV ? mem : part(s.dst, PAGE));
	if (use == POSTED_SEND)
		hold(&s, send_wr(SEND, 2, mem));
	CHECK_OK(ibv_dereg_mr(mr));
	/* Register the same memory again, with another key. */
	if (again)
		CHECK(MUST(ibv_reg_mr(s.pd, to, PAGE, RIGHTS))->rkey != rkey);
	if (use == POSTED_SEND)
		go(&s);
	else if (use == RKEY)
		post_rdma(s.qp[0], WRITE, 2, part(s.src, 8), (uintptr_t)to,
			  rkey);
	else
		post_send(s.qp[0], 2, use == LKEY ? mem : part(s.src, 8));
	if (use == POSTED_RECV)
		CHECK_WC(s.cq[1], 1, IBV_WC_LOC_PROT_ERR);
	CHECK_WC(s.cq[0], 2, use == RKEY ? IBV_WC_REM_ACCESS_ERR :
		 use == POSTED_RECV ? IBV_WC_REM_OP_ERR : IBV_WC_LOC_PROT_ERR);
	if (use == RKEY) {
		CHECK_EVENT(s.ctx, IBV_EVENT_QP_ACCESS_ERR, s.qp[1]);
		CHECK_WC(s.cq[1], 1, IBV_WC_WR_FLUSH_ERR);
	}
	CHECK_NO_WC(s.cq[1]);
	CHECK_NO_EVENT(s.ctx);
	CHECK_STATE(s.qp[0], IBV_QPS_ERR);
	CHECK_STATE(s.qp[1], use == RKEY || use == POSTED_RECV ? IBV_QPS_ERR :
								 IBV_QPS_RTS);
	CHECK_ALL(to, 't', PAGE);
	CHECK_OK(ibv_close_device(s.ctx));
}

TEST(stale_keys, "PD-4,DEV-4", "a deregistered key fails as lkey and rkey, in WQEs posted before, and after its memory is registered again")
{
	int i;

	for (i = 0; i < 2 * USES; i++)
		stale_one(i % USES, i >= USES);
}

/* For kernel consumers, lkey 0 stands for all memory of the kernel. */
TEST(lkey_0, "PD-4,DEV-4", "a WQE of a process with lkey 0 has no memory: sends and receives of RC and UC, with and without an SRQ")
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC };
	struct mem none = { to, 8, 0 };
	struct ibv_srq *srq;
	struct setup s;
	int i;

	for (i = 0; i < 6; i++) {
		s = setup(types[i % 2]);
		if (i < 2) {
			none.addr = from;
			post_send(s.qp[0], 2, none);
			CHECK_WC(s.cq[0], 2, IBV_WC_LOC_PROT_ERR);
			none.addr = to;
			CHECK_OK(ibv_close_device(s.ctx));
			continue;
		}
		if (i >= 4) {
			srq = srq_new(s.pd);
			CHECK_OK(ibv_destroy_qp(s.qp[1]));
			s.qp[1] = qp_new(s.pd, s.cq[1], types[i % 2], srq);
			qp_to(s.qp[0], IBV_QPS_RESET);
			qp_join(s.qp[0], s.qp[1]);
			post_srq_recv(srq, 1, none);
		} else {
			post_recv(s.qp[1], 1, none);
		}
		post_send(s.qp[0], 2, part(s.src, 8));
		CHECK_WC(s.cq[1], 1, IBV_WC_LOC_PROT_ERR);
		CHECK_WC(s.cq[0], 2, i % 2 ? IBV_WC_SUCCESS : IBV_WC_REM_OP_ERR);
		CHECK_ALL(to, 't', PAGE);
		CHECK_OK(ibv_close_device(s.ctx));
	}
}
