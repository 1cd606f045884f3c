// SPDX-License-Identifier: GPL-2.0
/*
 * A connection joins two queue pairs. A QP that was reset and connected again
 * is a new QP with the same number: a requester of the old connection cannot
 * reach the QP until the requester starts anew, too.
 *
 * PSNs: a reliable connection works if the responder expects the PSN that the
 * requester starts with. UC takes the first packet of a message with any PSN
 * (InfiniBand specification, 9.8.2.2).
 */
#include <stdbool.h>

#include "iso.h"
#include "qp.h"
#include "t.h"

#define PAGE	ISO_PAGE
/* The page has two halves, a source and a destination. */
#define HALF	(PAGE / 2)
/* A message of several packets: the path MTU is 1024. */
#define LONG	10000
#define MESSAGES 5

static char page[PAGE] __attribute__((aligned(PAGE)));
static char from[LONG], to[LONG];

static struct ibv_pd *pd;
static struct ibv_mr *mr;

static struct mem sent(void)
{
	return (struct mem){ page, 64, mr->lkey };
}

static struct mem received(void)
{
	return (struct mem){ page + HALF, 64, mr->lkey };
}

static struct link setup(void)
{
	pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	mr = MUST(ibv_reg_mr(pd, page, PAGE, ISO_RIGHTS));
	memset(page, 's', HALF);
	return link_new(pd, pd, IBV_QPT_RC);
}

/* Exchange messages, which advance the PSNs. */
static void exchange(struct link *l)
{
	int i;

	for (i = 0; i < MESSAGES; i++) {
		memset(page + HALF, 0, HALF);
		post_recv(l->qp[1], 1, received());
		post_send(l->qp[0], 2, sent());
		CHECK_WC(l->cq[1], 1, IBV_WC_SUCCESS);
		CHECK_WC(l->cq[0], 2, IBV_WC_SUCCESS);
		CHECK_ALL(page + HALF, 's', 64);
	}
	memset(page + HALF, 0, HALF);
}

/* Reset QP 1 and connect it to QP 0 again, without telling QP 0. */
static void second_life(struct link *l)
{
	qp_to(l->qp[1], IBV_QPS_RESET);
	qp_connect(l->qp[1], l->qp[0]->qp_num);
}

/* Check that QP 0 gave up, and that its request had no effect. */
static void check_nothing(struct link *l, uint64_t wr_id)
{
	CHECK_WC(l->cq[0], wr_id, IBV_WC_RETRY_EXC_ERR);
	CHECK_STATE(l->qp[0], IBV_QPS_ERR);
	CHECK_STATE(l->qp[1], IBV_QPS_RTS);
	CHECK_NO_WC(l->cq[1]);
	CHECK_NO_EVENT(l->ctx);
	CHECK_ALL(page + HALF, 0, HALF);
}

/* After both QPs start anew, messages arrive. */
static void check_anew(struct link *l)
{
	int i;

	for (i = 0; i < 2; i++)
		qp_to(l->qp[i], IBV_QPS_RESET);
	for (i = 0; i < 2; i++)
		qp_connect(l->qp[i], l->qp[!i]->qp_num);
	exchange(l);
}

TEST(send, "ISO-4", "RC: a send to a QP that was reset and connected again ends with RETRY_EXC_ERR, until the sender starts anew")
{
	struct link l = setup();

	exchange(&l);
	second_life(&l);
	post_recv(l.qp[1], 3, received());
	post_send(l.qp[0], 4, sent());
	check_nothing(&l, 4);
	check_anew(&l);
}

TEST(waiting_send, "ISO-4", "RC: a send that waits for a receive WQE ends with RETRY_EXC_ERR after the peer was reset and connected again")
{
	struct link l = setup();

	exchange(&l);
	post_send(l.qp[0], 4, sent());
	second_life(&l);
	post_recv(l.qp[1], 3, received());
	check_nothing(&l, 4);
	check_anew(&l);
}

/* One RDMA operation on memory of the reset QP. */
static void check_rdma(enum ibv_wr_opcode op)
{
	struct link l = setup();
	uint64_t addr = (uintptr_t)page + HALF;
	struct mem mem = sent();

	exchange(&l);
	second_life(&l);
	if (op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		mem.len = 8;
		post_add(l.qp[0], 5, mem, addr, mr->rkey, 1);
	} else {
		post_rdma(l.qp[0], op, 5, mem, addr, mr->rkey);
	}
	check_nothing(&l, 5);
	CHECK_ALL(page, 's', HALF);
	check_anew(&l);
}

TEST(write, "ISO-4", "RC: an RDMA write to a QP that was reset and connected again writes nothing and ends with RETRY_EXC_ERR")
{
	check_rdma(IBV_WR_RDMA_WRITE);
}

TEST(read, "ISO-4", "RC: an RDMA read from a QP that was reset and connected again reads nothing and ends with RETRY_EXC_ERR")
{
	check_rdma(IBV_WR_RDMA_READ);
}

TEST(atomic, "ISO-4", "RC: an atomic on a QP that was reset and connected again changes nothing and ends with RETRY_EXC_ERR")
{
	check_rdma(IBV_WR_ATOMIC_FETCH_AND_ADD);
}

TEST(other_peer, "ISO-4", "RC: a QP that was reset and connected to another QP takes messages of its new peer only")
{
	struct link l = setup();
	struct link other = { .ctx = l.ctx };

	exchange(&l);
	other.cq[0] = cq_new(l.ctx);
	other.cq[1] = l.cq[1];
	other.qp[0] = qp_new(pd, other.cq[0], IBV_QPT_RC, NULL);
	other.qp[1] = l.qp[1];
	qp_to(l.qp[1], IBV_QPS_RESET);
	qp_join(other.qp[0], l.qp[1]);
	post_recv(l.qp[1], 3, received());
	post_send(l.qp[0], 4, sent());
	check_nothing(&l, 4);
	post_send(other.qp[0], 5, sent());
	CHECK_WC(l.cq[1], 3, IBV_WC_SUCCESS);
	CHECK_WC(other.cq[0], 5, IBV_WC_SUCCESS);
	exchange(&other);
}

/* Open both ends of an XRC connection in this process. */
static void xrc_open(struct iso_end *a, struct iso_end *b)
{
	struct iso_addr addr;

	iso_open(a, KEEL0, NULL, ISO_XRC);
	iso_open(b, KEEL0, a->ctx, ISO_XRC);
	a->mr = iso_mr(a, page, 0);
	b->mr = iso_mr(b, page, 0);
	addr = iso_addr(b);
	iso_connect(a, &addr);
	addr = iso_addr(a);
	iso_connect(b, &addr);
}

TEST(xrc, "ISO-4", "XRC: a send to an XRC_RECV QP that was reset and connected again ends with RETRY_EXC_ERR")
{
	struct iso_end a, b;
	int i;

	xrc_open(&a, &b);
	for (i = 0; i < MESSAGES; i++) {
		iso_post_recv(&b, 1, b.mr);
		CHECK_OK(iso_send(&a, 2, a.mr));
		CHECK_WC(b.cq, 1, IBV_WC_SUCCESS);
		CHECK_WC(a.cq, 2, IBV_WC_SUCCESS);
	}
	qp_to(b.recv_qp, IBV_QPS_RESET);
	qp_connect(b.recv_qp, a.qp->qp_num);
	iso_post_recv(&b, 3, b.mr);
	CHECK_OK(iso_send(&a, 4, a.mr));
	CHECK_WC(a.cq, 4, IBV_WC_RETRY_EXC_ERR);
	CHECK_NO_WC(b.cq);
	CHECK_STATE(b.recv_qp, IBV_QPS_RTS);
}

/* --- packet sequence numbers --------------------------------------------- */

static void modify(struct ibv_qp *qp, enum ibv_qp_state state, int mask,
		   struct ibv_qp_attr *attr)
{
	attr->qp_state = state;
	CHECK_OK(ibv_modify_qp(qp, attr, IBV_QP_STATE | mask));
}

/* Like qp_connect(), with the expected PSN and the first PSN. */
static void connect_psn(struct ibv_qp *qp, uint32_t dest, uint32_t rq_psn,
			uint32_t sq_psn)
{
	struct ibv_qp_attr attr = {
		.path_mtu = IBV_MTU_1024, .dest_qp_num = dest,
		.rq_psn = rq_psn, .sq_psn = sq_psn, .max_dest_rd_atomic = 1,
		.max_rd_atomic = 1, .min_rnr_timer = 1, .timeout = 10,
		.retry_cnt = 1, .rnr_retry = 7,
		.ah_attr = { .is_global = 1, .port_num = 1 },
	};
	int rtr = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
		  IBV_QP_RQ_PSN;
	int rts = IBV_QP_SQ_PSN;
	bool rc = qp->qp_type == IBV_QPT_RC;

	CHECK_OK(ibv_query_gid(qp->context, 1, 0, &attr.ah_attr.grh.dgid));
	if (rc || qp->qp_type == IBV_QPT_XRC_RECV)
		rtr |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	if (rc || qp->qp_type == IBV_QPT_XRC_SEND)
		rts |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		       IBV_QP_MAX_QP_RD_ATOMIC;
	if (qp->qp_type == IBV_QPT_XRC_RECV)
		rts |= IBV_QP_TIMEOUT;
	qp_to_init(qp);
	modify(qp, IBV_QPS_RTR, rtr, &attr);
	modify(qp, IBV_QPS_RTS, rts, &attr);
}

/* QP 0 starts with @sq_psn, QP 1 expects @rq_psn. */
static struct link psn_link(enum ibv_qp_type type, uint32_t sq_psn,
			    uint32_t rq_psn)
{
	struct link l = { .ctx = dev_open(KEEL0) };
	int i;

	pd = MUST(ibv_alloc_pd(l.ctx));
	mr = MUST(ibv_reg_mr(pd, page, PAGE, ISO_RIGHTS));
	memset(page, 's', HALF);
	for (i = 0; i < 2; i++) {
		l.cq[i] = cq_new(l.ctx);
		l.qp[i] = qp_new(pd, l.cq[i], type, NULL);
	}
	connect_psn(l.qp[0], l.qp[1]->qp_num, 0x1234, sq_psn);
	connect_psn(l.qp[1], l.qp[0]->qp_num, rq_psn, 0x1234);
	return l;
}

/* Messages of several packets in both directions, and reads. */
static void exchange_long(struct link *l)
{
	struct ibv_mr *src = MUST(ibv_reg_mr(pd, from, LONG, ISO_RIGHTS));
	struct ibv_mr *dst = MUST(ibv_reg_mr(pd, to, LONG, ISO_RIGHTS));
	int i;

	memset(from, 'f', LONG);
	for (i = 0; i < 2 * MESSAGES; i++) {
		memset(to, 0, LONG);
		post_recv(l->qp[!(i % 2)], 1, MEM(dst));
		post_send(l->qp[i % 2], 2, MEM(src));
		CHECK_WC(l->cq[!(i % 2)], 1, IBV_WC_SUCCESS);
		CHECK_WC(l->cq[i % 2], 2, IBV_WC_SUCCESS);
		CHECK_ALL(to, 'f', LONG);
		memset(to, 0, LONG);
		post_rdma(l->qp[i % 2], IBV_WR_RDMA_READ, 3, MEM(dst),
			  (uintptr_t)from, src->rkey);
		CHECK_WC(l->cq[i % 2], 3, IBV_WC_SUCCESS);
		CHECK_ALL(to, 'f', LONG);
	}
	CHECK_OK(ibv_dereg_mr(src));
	CHECK_OK(ibv_dereg_mr(dst));
}

TEST(equal_psn, "ISO-4", "RC: any PSN that both sides agree on works, also if it wraps in a message, and ibv_query_qp() returns it")
{
	static const uint32_t psns[] = { 0, 1, 0x800000, 0xfffffe, 0xffffff };
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct link l;
	int i;

	for (i = 0; i < 5; i++) {
		l = psn_link(IBV_QPT_RC, psns[i], psns[i]);
		CHECK_OK(ibv_query_qp(l.qp[1], &attr, IBV_QP_RQ_PSN |
				      IBV_QP_SQ_PSN, &init));
		CHECK_EQ(attr.rq_psn, psns[i]);
		CHECK_EQ(attr.sq_psn, 0x1234);
		exchange_long(&l);
		link_free(&l);
	}
}

static void check_other_psn(uint32_t sq_psn, uint32_t rq_psn)
{
	struct link l = psn_link(IBV_QPT_RC, sq_psn, rq_psn);

	memset(page + HALF, 0, HALF);
	post_recv(l.qp[1], 3, received());
	post_send(l.qp[0], 4, sent());
	check_nothing(&l, 4);
	/* In the other direction both PSNs are equal. */
	qp_to(l.qp[0], IBV_QPS_RESET);
	connect_psn(l.qp[0], l.qp[1]->qp_num, 0x1234, rq_psn);
	post_recv(l.qp[0], 5, sent());
	post_send(l.qp[1], 6, sent());
	CHECK_WC(l.cq[0], 5, IBV_WC_SUCCESS);
	CHECK_WC(l.cq[1], 6, IBV_WC_SUCCESS);
	link_free(&l);
}

TEST(other_psn, "ISO-4", "RC: a send with another PSN than the responder expects does not arrive and ends with RETRY_EXC_ERR")
{
	check_other_psn(1, 0);
	check_other_psn(0, 1);
	check_other_psn(0xffffff, 0x7fffff);
}

TEST(other_psn_write, "ISO-4", "RC: an RDMA write with another PSN than the responder expects writes nothing and ends with RETRY_EXC_ERR")
{
	struct link l = psn_link(IBV_QPT_RC, 100, 50);

	memset(page + HALF, 0, HALF);
	post_rdma(l.qp[0], IBV_WR_RDMA_WRITE, 5, sent(),
		  (uintptr_t)page + HALF, mr->rkey);
	check_nothing(&l, 5);
}

static void check_xrc_psn(uint32_t sq_psn, uint32_t rq_psn,
			  enum ibv_wc_status status)
{
	struct iso_end a, b;

	iso_open(&a, KEEL0, NULL, ISO_XRC);
	iso_open(&b, KEEL0, a.ctx, ISO_XRC);
	a.mr = iso_mr(&a, page, 0);
	b.mr = iso_mr(&b, page, 0);
	a.peer = iso_addr(&b);
	connect_psn(a.qp, b.recv_qp->qp_num, 0, sq_psn);
	connect_psn(b.recv_qp, a.qp->qp_num, rq_psn, 0);
	iso_post_recv(&b, 1, b.mr);
	CHECK_OK(iso_send(&a, 2, a.mr));
	CHECK_WC(a.cq, 2, status);
	if (status == IBV_WC_SUCCESS)
		CHECK_WC(b.cq, 1, IBV_WC_SUCCESS);
	else
		CHECK_NO_WC(b.cq);
}

TEST(xrc_psn, "ISO-4", "XRC: a send with the PSN that the XRC_RECV QP expects arrives, a send with another PSN ends with RETRY_EXC_ERR")
{
	check_xrc_psn(0xabcdef, 0xabcdef, IBV_WC_SUCCESS);
	check_xrc_psn(0xabcdef, 0xabcdee, IBV_WC_RETRY_EXC_ERR);
}

TEST(uc_psn, "ISO-4", "UC: a message arrives whatever its PSN")
{
	struct link l = psn_link(IBV_QPT_UC, 5, 0x900000);

	memset(page + HALF, 0, HALF);
	post_recv(l.qp[1], 1, received());
	post_send(l.qp[0], 2, sent());
	CHECK_WC(l.cq[1], 1, IBV_WC_SUCCESS);
	CHECK_WC(l.cq[0], 2, IBV_WC_SUCCESS);
	CHECK_ALL(page + HALF, 's', 64);
}
