// SPDX-License-Identifier: GPL-2.0
/*
 * Flush: when a flush completes, all processes see the bytes written before it.
 * The device refuses persistence, because its memory does not survive a power
 * failure.
 */
#include <fcntl.h>

#include <infiniband/keeldv.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/keel-queue.h>

#include "peer.h"
#include "qp.h"
#include "t.h"

#define PAGE	4096
#define LW	IBV_ACCESS_LOCAL_WRITE
#define RW	IBV_ACCESS_REMOTE_WRITE
#define FG	IBV_ACCESS_FLUSH_GLOBAL
#define FP	IBV_ACCESS_FLUSH_PERSISTENT
#define GLOBAL	IBV_FLUSH_GLOBAL
#define PERSIST	IBV_FLUSH_PERSISTENT
#define RANGE	IBV_FLUSH_RANGE
#define MR	IBV_FLUSH_MR
#define OPS	(IBV_QP_EX_WITH_FLUSH | IBV_QP_EX_WITH_RDMA_WRITE |	\
		 IBV_QP_EX_WITH_ATOMIC_WRITE)

static char from[PAGE] __attribute__((aligned(PAGE)));
static char to[PAGE] __attribute__((aligned(PAGE)));

static struct ibv_pd *pd;
static struct ibv_mr *src, *dst;

/* The first QP requests flushes, the second QP permits them. */
static struct link setup(void)
{
	struct link l;

	if (!pd) {
		pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
		src = MUST(ibv_reg_mr(pd, from, PAGE, LW));
		dst = MUST(ibv_reg_mr(pd, to, PAGE, LW | RW | FG));
	}
	memset(from, 'f', PAGE);
	memset(to, 't', PAGE);
	l = link_new_ex(pd, OPS);
	qp_allow(l.qp[1], RW | FG | FP);
	return l;
}

struct what {
	uint64_t addr;
	size_t len;
	uint8_t type, level;
};

static void flush(struct link *l, uint64_t wr_id, uint32_t rkey,
		  struct what what)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(l->qp[0]);

	wr_begin(qp, wr_id);
	ibv_wr_flush(qp, rkey, what.addr, what.len, what.type, what.level);
	wr_end(qp);
}

TEST(offered, "DEV-2", "the device reports global flush and no persistence, RC and XRC QPs can have flush, UC and UD QPs cannot")
{
	struct link l = setup();
	struct ibv_device_attr_ex attr;

	CHECK_OK(ibv_query_device_ex(l.ctx, NULL, &attr));
	CHECK(attr.device_cap_flags_ex & IB_UVERBS_DEVICE_FLUSH_GLOBAL);
	CHECK(!(attr.device_cap_flags_ex & IB_UVERBS_DEVICE_FLUSH_PERSISTENT));
	CHECK_NULL(ibv_reg_mr(pd, to, PAGE, LW | FP), EOPNOTSUPP);
	CHECK_NULL(ibv_reg_mr(pd, to, PAGE, LW | FG | FP), EOPNOTSUPP);
	CHECK_EQ(ibv_rereg_mr(dst, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
			      LW | FP), IBV_REREG_MR_ERR_CMD);
	CHECK_EQ(errno, EOPNOTSUPP);
	qp_check_reliable(pd, IBV_QP_EX_WITH_FLUSH);
	link_free(&l);
}

TEST(good, "DEV-4", "a flush of a range, of no bytes or of a whole MR completes as IBV_WC_FLUSH, after the writes before it")
{
	const struct what cases[] = {
		{ (uintptr_t)to, PAGE, GLOBAL, RANGE },
		{ (uintptr_t)to + 100, 1, GLOBAL, RANGE },
		{ (uintptr_t)to, 0, GLOBAL, RANGE },
		{ (uintptr_t)to + PAGE, 0, GLOBAL, RANGE },
		{ (uintptr_t)to, PAGE, GLOBAL, MR },
		{ 0, 0, GLOBAL, MR },
		{ 12345, -1UL, GLOBAL, MR },
		{ (uintptr_t)to + 1, PAGE, GLOBAL, MR },
	};
	struct link l = setup();
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(l.qp[0]);
	unsigned int i, n = sizeof(cases) / sizeof(*cases);
	struct ibv_wc wc;

	for (i = 0; i < n; i++) {
		memset(from, 'a' + i, PAGE);
		wr_begin(qp, 100 + i);
		ibv_wr_rdma_write(qp, dst->rkey, (uintptr_t)to);
		ibv_wr_set_sge(qp, src->lkey, (uintptr_t)from, PAGE);
		qp->wr_id = i;
		ibv_wr_flush(qp, dst->rkey, cases[i].addr, cases[i].len,
			     cases[i].type, cases[i].level);
		wr_end(qp);
		CHECK_WC(l.cq[0], 100 + i, IBV_WC_SUCCESS);
		wc = CHECK_WC(l.cq[0], i, IBV_WC_SUCCESS);
		CHECK_EQ(wc.opcode, IBV_WC_FLUSH);
		CHECK_ALL(to, 'a' + i, PAGE);
	}
	CHECK_NO_WC(l.cq[1]);
	CHECK_STATE(l.qp[1], IBV_QPS_RTS);
	link_free(&l);
}

struct refused {
	const char *what;
	unsigned int rights;	/* of the MR */
	unsigned int qp;	/* of the responder */
	uint8_t type, level;
	long off, len;
	uint32_t xor;		/* flips bits of the key */
	enum ibv_wc_status status;
};

#define ACC	IBV_WC_REM_ACCESS_ERR
#define INV	IBV_WC_REM_INV_REQ_ERR
#define LOC	IBV_WC_LOC_QP_OP_ERR

static void refuse_one(const struct refused *c)
{
	struct link l = setup();
	struct ibv_mr *mr = MUST(ibv_reg_mr(pd, to, PAGE, c->rights));
	struct what what = {
		(uintptr_t)to + c->off, c->len, c->type, c->level,
	};
	enum ibv_qp_state peer = IBV_QPS_ERR;

	qp_allow(l.qp[1], c->qp);
	flush(&l, 1, mr->rkey ^ c->xor, what);
	CHECK_WC(l.cq[0], 1, c->status);
	if (c->status == LOC)
		peer = IBV_QPS_RTS;
	else
		CHECK_EVENT(l.ctx, c->status == ACC ? IBV_EVENT_QP_ACCESS_ERR :
						      IBV_EVENT_QP_REQ_ERR,
			    l.qp[1]);
	CHECK_NO_EVENT(l.ctx);
	CHECK_STATE(l.qp[0], IBV_QPS_ERR);
	CHECK_STATE(l.qp[1], peer);
	link_free(&l);
	CHECK_OK(ibv_dereg_mr(mr));
}

TEST(refused, "PD-4,DEV-4", "a flush that the MR forbids is an access error, that the QP forbids an invalid request, of a bad type a local error")
{
	static const struct refused cases[] = {
		{ "a region that may be written", LW | RW, FG, GLOBAL, RANGE,
		  0, 8, 0, ACC },
		{ "likewise, all of it", LW | RW, FG, GLOBAL, MR, 0, 8, 0,
		  ACC },
		{ "persistence", LW | FG, FG | FP, PERSIST, RANGE, 0, 8, 0,
		  ACC },
		{ "persistence of all", LW | FG, FG | FP, PERSIST, MR, 0, 8, 0,
		  ACC },
		{ "both", LW | FG, FG | FP, GLOBAL | PERSIST, RANGE, 0, 8, 0,
		  ACC },
		{ "before it", FG, FG, GLOBAL, RANGE, -1, 8, 0, ACC },
		{ "across its end", FG, FG, GLOBAL, RANGE, 1, PAGE, 0, ACC },
		{ "nothing, behind it", FG, FG, GLOBAL, RANGE, PAGE + 1, 0, 0,
		  ACC },
		{ "a sum that wraps", FG, FG, GLOBAL, RANGE, 8, -8, 0, ACC },
		{ "other tag", FG, FG, GLOBAL, RANGE, 0, 8, 1, ACC },
		{ "other tag, nothing", FG, FG, GLOBAL, RANGE, 0, 0, 1, ACC },
		{ "other tag, all", FG, FG, GLOBAL, MR, 0, 8, 1, ACC },
		{ "other key, all", FG, FG, GLOBAL, MR, 0, 8, 1U << 31, ACC },
		{ "QP may be written to", FG, RW, GLOBAL, RANGE, 0, 8, 0, INV },
		{ "QP without persistence", FG, FG, PERSIST, RANGE, 0, 8, 0,
		  INV },
		{ "QP without one of both", FG, FG, GLOBAL | PERSIST, MR, 0, 8,
		  0, INV },
		{ "no type", FG, FG, 0, RANGE, 0, 8, 0, LOC },
		{ "no such type", FG, FG, GLOBAL | 4, RANGE, 0, 8, 0, LOC },
		{ "no such level", FG, FG, GLOBAL, 2, 0, 8, 0, LOC },
		{ "nor this one", FG, FG, GLOBAL, 255, 0, 8, 0, LOC },
		{}
	};
	const struct refused *c;

	for (c = cases; c->what; c++) {
		t_note("%s", c->what);
		refuse_one(c);
	}
}

TEST(domain, "PD-4", "the responder refuses a flush of a range or a whole MR by a key of another domain")
{
	struct ibv_mr *mr;
	struct link l;
	int level;

	setup();
	mr = MUST(ibv_reg_mr(MUST(ibv_alloc_pd(pd->context)), to, PAGE, FG));
	for (level = RANGE; level <= MR; level++) {
		l = setup();
		flush(&l, 1, mr->rkey,
		      (struct what){ (uintptr_t)to, 8, GLOBAL, level });
		CHECK_WC(l.cq[0], 1, IBV_WC_REM_ACCESS_ERR);
	}
}

TEST(posting, "DEV-4", "ibv_post_send() refuses IBV_WR_FLUSH, and ibv_wr_complete() refuses a flush with data")
{
	struct link l = setup();
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(l.qp[0]);
	struct ibv_send_wr *bad, *wr = send_wr(IBV_WR_FLUSH, 1,
					       (struct mem){});
	int i;

	wr->num_sge = 0;
	CHECK_RET(ibv_post_send(l.qp[0], wr, &bad), EINVAL);
	CHECK(bad == wr);
	for (i = 0; i < 2; i++) {
		wr_begin(qp, 1);
		ibv_wr_flush(qp, dst->rkey, (uintptr_t)to, 8, GLOBAL, RANGE);
		if (i)
			ibv_wr_set_sge(qp, src->lkey, (uintptr_t)from, 8);
		else
			ibv_wr_set_inline_data(qp, from, 8);
		CHECK_RET(ibv_wr_complete(qp), EINVAL);
	}
	CHECK_NO_WC(l.cq[0]);
	CHECK_STATE(l.qp[0], IBV_QPS_RTS);
	link_free(&l);
}

TEST(depth, "DEV-4", "a flush counts as a read: read depth 0 is a local operation error at the requester, an invalid request at the responder")
{
	struct link l;
	int i;

	for (i = 0; i < 2; i++) {
		l = setup();
		qp_no_reads(l.qp[i], !i);
		flush(&l, 1, dst->rkey, (struct what){ 0, 0, GLOBAL, MR });
		CHECK_WC(l.cq[0], 1, i ? INV : LOC);
		link_free(&l);
	}
}

TEST(rereg, "DEV-4", "ibv_rereg_mr() grants and revokes the right to flush")
{
	struct what what = { (uintptr_t)to, 8, GLOBAL, RANGE };
	struct link l = setup();
	struct ibv_mr *mr = MUST(ibv_reg_mr(pd, to, PAGE, LW));

	CHECK_OK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
			      LW | FG));
	flush(&l, 1, mr->rkey, what);
	CHECK_WC(l.cq[0], 1, IBV_WC_SUCCESS);
	CHECK_OK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
			      LW));
	flush(&l, 2, mr->rkey, what);
	CHECK_WC(l.cq[0], 2, ACC);
	link_free(&l);
}

/* Bind a window of type 2 to a part of @mr with the second QP. */
static uint32_t bind(struct link *l, struct ibv_mr *mr, unsigned int access)
{
	struct ibv_mw *mw = MUST(ibv_alloc_mw(pd, IBV_MW_TYPE_2));
	struct ibv_send_wr wr = {
		.wr_id = 77, .opcode = IBV_WR_BIND_MW,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_mw = { .mw = mw, .rkey = ibv_inc_rkey(mw->rkey),
			     .bind_info = { .mr = mr, .length = 64,
					    .addr = (uintptr_t)to + 64,
					    .mw_access_flags = access } },
	};

	post(l->qp[1], &wr);
	CHECK_WC(l->cq[1], 77, IBV_WC_SUCCESS);
	return wr.bind_mw.rkey;
}

TEST(windows, "DEV-4", "a window bound with FLUSH_GLOBAL permits flushes of its bytes, only by the QP that bound it")
{
	struct what in = { (uintptr_t)to + 64, 64, GLOBAL, RANGE };
	struct what out = { (uintptr_t)to + 64, 65, GLOBAL, RANGE };
	struct what all = { 0, 0, GLOBAL, MR };
	struct link l, other;
	struct ibv_mr *mr;
	struct ibv_wc wc;
	uint32_t rkey;
	int i;

	for (i = 0; i < 3; i++) {
		l = setup();
		mr = MUST(ibv_reg_mr(pd, to, PAGE, LW | FG |
				     IBV_ACCESS_MW_BIND));
		rkey = bind(&l, mr, i == 0 ? RW : FG);
		if (i) {
			flush(&l, 1, rkey, in);
			CHECK_WC(l.cq[0], 1, IBV_WC_SUCCESS);
			flush(&l, 2, rkey, all);
			CHECK_WC(l.cq[0], 2, IBV_WC_SUCCESS);
		}
		if (i < 2) {
			flush(&l, 3, rkey, i ? out : in);
			CHECK_WC(l.cq[0], 3, ACC);
			continue;
		}
		other = setup();
		flush(&other, 4, rkey, in);
		wc = CHECK_WC(other.cq[0], 4, ACC);
		CHECK_EQ(wc.vendor_err, KEELDV_WHY_WINDOW);
		other = setup();
		flush(&other, 5, rkey, all);
		wc = CHECK_WC(other.cq[0], 5, ACC);
		CHECK_EQ(wc.vendor_err, KEELDV_WHY_WINDOW);
	}
}

static struct ibv_srq *xrc_srq(struct ibv_xrcd *xrcd, struct ibv_cq *cq)
{
	struct ibv_srq_init_attr_ex attr = {
		.attr = { .max_wr = 16, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC, .pd = pd, .xrcd = xrcd, .cq = cq,
	};

	return MUST(ibv_create_srq_ex(pd->context, &attr));
}

TEST(xrc, "XRC-9,DEV-4", "over XRC, a flush and an atomic write reach the PD of the named SRQ, and an unknown SRQ number is an invalid request")
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1, .oflags = O_CREAT,
	};
	static const uint64_t value = 0x0123456789abcdefULL;
	struct link l = setup();
	struct ibv_xrcd *xrcd = MUST(ibv_open_xrcd(l.ctx, &attr));
	struct ibv_srq *srq = xrc_srq(xrcd, l.cq[1]);
	struct ibv_qp_ex *qp = qp_new_ex(pd, l.cq[0], IBV_QPT_XRC_SEND, OPS);
	struct ibv_qp *recv = qp_new_xrc_recv(xrcd);
	struct ibv_wc wc;
	uint32_t srqn;
	int i;

	CHECK_OK(ibv_get_srq_num(srq, &srqn));
	qp_join(&qp->qp_base, recv);
	qp_allow(recv, RW | FG);
	for (i = 0; i < 2; i++) {
		wr_begin(qp, 1);
		ibv_wr_atomic_write(qp, dst->rkey, (uintptr_t)to + 8, &value);
		ibv_wr_set_xrc_srqn(qp, srqn);
		qp->wr_id = 2;
		ibv_wr_flush(qp, dst->rkey, (uintptr_t)to, 64, GLOBAL, RANGE);
		ibv_wr_set_xrc_srqn(qp, i ? srqn ^ 1 << 20 : srqn);
		wr_end(qp);
		wc = CHECK_WC(l.cq[0], 1, IBV_WC_SUCCESS);
		CHECK_EQ(wc.opcode, IBV_WC_ATOMIC_WRITE);
		CHECK_ALL(to, 't', 8);
		CHECK_MEM(to + 8, &value, 8);
		CHECK_ALL(to + 16, 't', PAGE - 16);
		wc = CHECK_WC(l.cq[0], 2, i ? INV : IBV_WC_SUCCESS);
		CHECK_EQ(wc.opcode, IBV_WC_FLUSH);
	}
}

/* The send queue ring of the newest QP. */
static struct keel_uapi_ring *sq_ring;

static void *ring_alloc(struct ibv_pd *at, void *context, size_t size,
			size_t alignment, uint64_t type)
{
	void *ring = MUST(aligned_alloc(alignment, size));

	if ((uint32_t)type == KEELDV_RES_SQ)
		sq_ring = ring;
	return ring;
}

static void ring_free(struct ibv_pd *at, void *context, void *ptr,
		      uint64_t type)
{
	free(ptr);
}

TEST(written_by_hand, "DEV-4", "hand-written WQEs are local operation errors: a flush with data, and a flush or an atomic write on a UC QP")
{
	struct ibv_parent_domain_init_attr attr = {
		.alloc = ring_alloc, .free = ring_free,
		.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS,
	};
	struct keel_uapi_send_wqe *wqe;
	struct ibv_pd *parent;
	struct link l;
	int i;

	setup();
	attr.pd = pd;
	parent = MUST(ibv_alloc_parent_domain(pd->context, &attr));
	for (i = 0; i < 4; i++) {
		l = link_new(pd, pd, i < 2 ? IBV_QPT_RC : IBV_QPT_UC);
		CHECK_OK(ibv_destroy_qp(l.qp[0]));
		l.qp[0] = qp_new(parent, l.cq[0], i < 2 ? IBV_QPT_RC :
							  IBV_QPT_UC, NULL);
		qp_to(l.qp[1], IBV_QPS_RESET);
		qp_join(l.qp[0], l.qp[1]);
		qp_to(l.qp[0], IBV_QPS_SQD);
		post_rdma(l.qp[0], IBV_WR_RDMA_WRITE, 1,
			  (struct mem){ from, 8, src->lkey }, (uintptr_t)to,
			  dst->rkey);
		/* The QP is in SQD, so the kernel has not read the WQE yet. */
		wqe = (struct keel_uapi_send_wqe *)(sq_ring + 1);
		wqe->opcode = i < 3 ? IBV_WR_FLUSH : IBV_WR_ATOMIC_WRITE;
		if (i < 3)
			wqe->flush.type = GLOBAL;
		if (i == 1) {
			wqe->flags |= IBV_SEND_INLINE;
			wqe->num_sge = 0;
		}
		qp_to(l.qp[0], IBV_QPS_RTS);
		CHECK_WC(l.cq[0], 1, LOC);
		CHECK_STATE(l.qp[1], IBV_QPS_RTS);
		link_free(&l);
	}
	CHECK_ALL(to, 't', PAGE);
}

/* The responder sends these values to the requester. */
struct told {
	uint32_t qpn, rkey;
	uint64_t addr;
};

static void written(struct peer *parent)
{
	struct link l = setup();
	struct told told = { l.qp[1]->qp_num, dst->rkey, (uintptr_t)to };
	uint32_t qpn;
	int i;

	peer_put_var(parent, told);
	peer_get_var(parent, qpn);
	qp_to(l.qp[1], IBV_QPS_RESET);
	qp_connect(l.qp[1], qpn);
	qp_allow(l.qp[1], RW | FG);
	peer_tell(parent);
	for (i = 0; i < 100; i++) {
		peer_wait(parent);
		CHECK_ALL(to, i, PAGE);
		peer_tell(parent);
	}
	/* From now on the MR permits remote writes and no flushes. */
	CHECK_OK(ibv_rereg_mr(dst, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
			      LW | RW));
	peer_tell(parent);
	CHECK_EVENT(l.ctx, IBV_EVENT_QP_ACCESS_ERR, l.qp[1]);
}

TEST(processes, "DEV-4", "a process sees bytes that another process wrote and flushed, and a flush fails after the responder revokes the right")
{
	struct peer peer;
	struct told told;
	struct link l;
	int i;

	peer_start(&peer, written);
	peer_get_var(&peer, told);
	l = setup();
	qp_to(l.qp[0], IBV_QPS_RESET);
	qp_connect(l.qp[0], told.qpn);
	peer_put_var(&peer, l.qp[0]->qp_num);
	peer_wait(&peer);
	for (i = 0; i <= 100; i++) {
		if (i == 100)
			peer_wait(&peer);
		memset(from, i, PAGE);
		post_rdma(l.qp[0], IBV_WR_RDMA_WRITE, 1000 + i,
			  (struct mem){ from, PAGE, src->lkey }, told.addr,
			  told.rkey);
		CHECK_WC(l.cq[0], 1000 + i, IBV_WC_SUCCESS);
		flush(&l, i, told.rkey,
		      (struct what){ told.addr, PAGE, GLOBAL, i % 2 });
		CHECK_WC(l.cq[0], i, i < 100 ? IBV_WC_SUCCESS : ACC);
		if (i == 100)
			break;
		peer_tell(&peer);
		peer_wait(&peer);
	}
	peer_end(&peer);
}
