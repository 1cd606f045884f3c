// SPDX-License-Identifier: GPL-2.0
/*
 * A queue pair whose address is that of another host is connected to a queue pair there. One
 * of this host that has the same number is not its peer. No test has such a host: nothing
 * that is sent to it arrives.
 */
#include <stdbool.h>

#include "iso.h"
#include "qp.h"
#include "t.h"

#define PAGE	ISO_PAGE
/* The page has two halves, a source and a destination. */
#define HALF	(PAGE / 2)

static char page[PAGE] __attribute__((aligned(PAGE)));
static struct ibv_mr *mr;
static union ibv_gid here, there;
/* Of the QPs that are connected. 10: about 4 ms, with two attempts. 0: without end. */
static uint8_t timeout = 10;
/* 7: they wait for a receive WQE without end. */
static uint8_t rnr_retry = 7, rnr_timer = 1;

static struct mem sent(void)
{
	return (struct mem){ page, 64, mr->lkey };
}

static struct mem received(void)
{
	return (struct mem){ page + HALF, 64, mr->lkey };
}

static void find_hosts(struct ibv_context *ctx)
{
	CHECK_OK(ibv_query_gid(ctx, 1, 0, &here));
	there = here;
	there.raw[15] ^= 1;
}

static void modify(struct ibv_qp *qp, enum ibv_qp_state state, int mask,
		   struct ibv_qp_attr *attr)
{
	attr->qp_state = state;
	CHECK_OK(ibv_modify_qp(qp, attr, IBV_QP_STATE | mask));
}

static void connect_to(struct ibv_qp *qp, uint32_t dest, const union ibv_gid *host)
{
	struct ibv_qp_attr attr = {
		.path_mtu = IBV_MTU_1024, .dest_qp_num = dest, .max_dest_rd_atomic = 1,
		.max_rd_atomic = 1, .min_rnr_timer = rnr_timer, .timeout = timeout,
		.retry_cnt = 1, .rnr_retry = rnr_retry,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh.dgid = *host },
	};
	int rtr = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	int rts = IBV_QP_SQ_PSN;
	bool rc = qp->qp_type == IBV_QPT_RC;

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

/* Another address, for a QP that stays connected to its number. ib_uverbs refuses UC. */
static void move(struct ibv_qp *qp, const union ibv_gid *host)
{
	struct ibv_qp_attr attr = {
		.ah_attr = { .is_global = 1, .port_num = 1, .grh.dgid = *host },
	};

	modify(qp, IBV_QPS_SQD, 0, &attr);
	modify(qp, IBV_QPS_SQD, IBV_QP_AV, &attr);
	modify(qp, IBV_QPS_RTS, 0, &attr);
}

/* QP 0 is connected to QP 1, and QP 1 to the number of QP 0 on @host. */
static struct link setup(enum ibv_qp_type type, bool other_host)
{
	struct link l = { .ctx = dev_open(KEEL0) };
	struct ibv_pd *pd = MUST(ibv_alloc_pd(l.ctx));
	int i;

	find_hosts(l.ctx);
	mr = MUST(ibv_reg_mr(pd, page, PAGE, ISO_RIGHTS));
	memset(page, 's', HALF);
	memset(page + HALF, 0, HALF);
	for (i = 0; i < 2; i++) {
		l.cq[i] = cq_new(l.ctx);
		l.qp[i] = qp_new(pd, l.cq[i], type, NULL);
	}
	connect_to(l.qp[0], l.qp[1]->qp_num, &here);
	connect_to(l.qp[1], l.qp[0]->qp_num, other_host ? &there : &here);
	return l;
}

static void check_nothing(struct link *l)
{
	CHECK_NO_WC(l->cq[1]);
	CHECK_ALL(page + HALF, 0, HALF);
}

static void check_arrives(struct link *l, int recv, int send)
{
	CHECK_WC(l->cq[1], recv, IBV_WC_SUCCESS);
	CHECK_WC(l->cq[0], send, IBV_WC_SUCCESS);
	CHECK_ALL(page + HALF, 's', 64);
	memset(page + HALF, 0, HALF);
}

/* UC loses what does not arrive. */
static enum ibv_wc_status lost(enum ibv_qp_type type)
{
	return type == IBV_QPT_UC ? IBV_WC_SUCCESS : IBV_WC_RETRY_EXC_ERR;
}

static void check_number(enum ibv_qp_type type)
{
	struct link l = setup(type, true);

	post_recv(l.qp[1], 1, received());
	post_send(l.qp[0], 2, sent());
	CHECK_WC(l.cq[0], 2, lost(type));
	check_nothing(&l);
	CHECK_STATE(l.qp[1], IBV_QPS_RTS);
	/* Its own messages do not arrive here, either. */
	qp_to(l.qp[0], IBV_QPS_RESET);
	connect_to(l.qp[0], l.qp[1]->qp_num, &here);
	post_recv(l.qp[0], 3, received());
	post_send(l.qp[1], 4, sent());
	CHECK_WC(l.cq[1], 4, lost(type));
	CHECK_NO_WC(l.cq[0]);
	CHECK_ALL(page + HALF, 0, HALF);
	link_free(&l);
}

TEST(number, "ISO-4", "RC, UC: a QP whose address is that of another host takes no message of a QP here, whatever its number, and sends none")
{
	check_number(IBV_QPT_RC);
	check_number(IBV_QPT_UC);
}

TEST(xrc, "ISO-4", "XRC: an XRC_RECV QP whose address is that of another host takes no message of a QP here")
{
	struct iso_end a, b;

	iso_open(&a, KEEL0, NULL, ISO_XRC);
	iso_open(&b, KEEL0, a.ctx, ISO_XRC);
	find_hosts(a.ctx);
	a.mr = iso_mr(&a, page, 0);
	b.mr = iso_mr(&b, page, 0);
	a.peer = iso_addr(&b);
	connect_to(a.qp, b.recv_qp->qp_num, &here);
	connect_to(b.recv_qp, a.qp->qp_num, &there);
	iso_post_recv(&b, 1, b.mr);
	CHECK_OK(iso_send(&a, 2, a.mr));
	CHECK_WC(a.cq, 2, IBV_WC_RETRY_EXC_ERR);
	CHECK_NO_WC(b.cq);
}

TEST(moves, "ISO-4", "RC: a connected QP that gets the address of another host takes no more messages, and takes them again when it gets its old one")
{
	struct link l;
	int i;

	timeout = 0;
	l = setup(IBV_QPT_RC, false);
	/* The second message takes the fast path, and finds its peer in a cache. */
	for (i = 0; i < 2; i++) {
		post_recv(l.qp[1], 1, received());
		post_send(l.qp[0], 2, sent());
		check_arrives(&l, 1, 2);
	}
	move(l.qp[1], &there);
	post_recv(l.qp[1], 3, received());
	post_send(l.qp[0], 4, sent());
	check_nothing(&l);
	CHECK_NO_WC(l.cq[0]);
	move(l.qp[1], &here);
	check_arrives(&l, 3, 4);
	link_free(&l);
}

TEST(wakes, "ISO-4", "RC: a send that waits for a peer goes on when that gets the address of this host; one that waits for a receive WQE gives up after it got another")
{
	struct link l;

	timeout = 0;
	l = setup(IBV_QPT_RC, true);
	post_recv(l.qp[1], 1, received());
	post_send(l.qp[0], 2, sent());
	CHECK_NO_WC(l.cq[0]);
	move(l.qp[1], &here);
	check_arrives(&l, 1, 2);
	link_free(&l);

	timeout = 10;
	l = setup(IBV_QPT_RC, false);
	post_send(l.qp[0], 2, sent());
	CHECK_NO_WC(l.cq[0]);
	move(l.qp[1], &there);
	CHECK_WC(l.cq[0], 2, IBV_WC_RETRY_EXC_ERR);
	check_nothing(&l);
	link_free(&l);
}

/*
 * Each time, the requester waits for its peer for a moment, and then again for a receive
 * WQE. Its time for that, half a second, must not begin anew.
 */
TEST(flaps, "ISO-1", "RC: a peer that posts no receive WQE, and changes its address again and again, delays a send no longer than one that does not")
{
	struct ibv_wc wc;
	struct link l;
	int i, n = 0;

	/* More than the test takes, also on a slow machine, and 3 times 164 ms. */
	timeout = 22;
	rnr_retry = 3;
	rnr_timer = 28;
	l = setup(IBV_QPT_RC, false);
	post_recv(l.qp[1], 1, received());
	post_send(l.qp[0], 2, sent());
	check_arrives(&l, 1, 2);
	post_send(l.qp[0], 3, sent());
	for (i = 0; i < 100 && !n; i++) {
		move(l.qp[1], &there);
		usleep(2000);
		move(l.qp[1], &here);
		usleep(40000);
		n = SYS(ibv_poll_cq(l.cq[0], 1, &wc));
	}
	CHECK_EQ(n, 1);
	CHECK_EQ(wc.wr_id, 3);
	CHECK_EQ(wc.status, IBV_WC_RNR_RETRY_EXC_ERR);
	check_nothing(&l);
	link_free(&l);
}
