// SPDX-License-Identifier: GPL-2.0
/*
 * An XRC message against the destroy of the SRQ that it names. A message of the fast
 * path has no reference on the SRQ: the destroy waits for it.
 */
#include <string.h>

#include "duel.h"
#include "qp.h"
#include "t.h"

#define LEN	64

static char from[LEN], to[LEN];
static struct ibv_pd *pd;
static struct ibv_cq *send_cq, *recv_cq;
static struct ibv_xrcd *xrcd;
static struct ibv_mr *from_mr, *to_mr;
static struct ibv_qp *qp[2];
/* The first message of a connection goes here: it takes the slow path. */
static struct ibv_srq *first;
/* The SRQ of the round, its number, and the value of the bytes. */
static struct ibv_srq *srq;
static uint32_t srqn;
static char value;
static struct ibv_wc sent;
static int destroyed;

static void message(uint64_t wr_id, uint32_t number)
{
	struct ibv_send_wr *wr = send_wr(IBV_WR_SEND, wr_id, MEM(from_mr));

	wr->qp_type.xrc.remote_srqn = number;
	post(qp[0], wr);
}

static void connect_both(void)
{
	uint32_t number;

	qp_join(qp[0], qp[1]);
	CHECK_OK(ibv_get_srq_num(first, &number));
	post_srq_recv(first, 1, MEM(to_mr));
	message(1, number);
	CHECK_WC(send_cq, 1, IBV_WC_SUCCESS);
	CHECK_WC(recv_cq, 1, IBV_WC_SUCCESS);
}

static void prepare(void)
{
	srq = srq_new_xrc(pd, xrcd, recv_cq);
	CHECK_OK(ibv_get_srq_num(srq, &srqn));
	post_srq_recv(srq, 2, MEM(to_mr));
	memset(from, ++value, LEN);
}

static void send_one(void)
{
	message(2, srqn);
	sent = wc_get(send_cq);
}

static void destroy(void)
{
	destroyed = ibv_destroy_srq(srq);
}

/* The message arrives as a whole, or finds no SRQ. */
static enum duel_first judge(void)
{
	int i;

	CHECK_RET(destroyed, 0);
	CHECK_EQ(sent.wr_id, 2);
	if (sent.status == IBV_WC_SUCCESS) {
		CHECK_EQ(CHECK_WC(recv_cq, 2, IBV_WC_SUCCESS).byte_len, LEN);
		CHECK_NO_WC(recv_cq);
		CHECK_EQ(memcmp(from, to, LEN), 0);
		return DUEL_A;
	}
	/* The slow path found no SRQ, or found it with a reference, and then no owner. */
	if (sent.status != IBV_WC_REM_INV_REQ_ERR && sent.status != IBV_WC_REM_OP_ERR)
		FAIL("a message to a destroyed SRQ: got %s, want an invalid request or an operation error",
		     ibv_wc_status_str(sent.status));
	CHECK_NO_WC(recv_cq);
	for (i = 0; i < 2; i++)
		qp_to(qp[i], IBV_QPS_RESET);
	connect_both();
	return DUEL_B;
}

TEST_SLOW(srq, "XRC-9", "a message to an XRC SRQ against its destroy, both orders: the message arrives, or finds no SRQ", 120)
{
	pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	send_cq = cq_new(pd->context);
	recv_cq = cq_new(pd->context);
	xrcd = xrcd_new(pd->context);
	from_mr = MUST(ibv_reg_mr(pd, from, LEN, 0));
	to_mr = MUST(ibv_reg_mr(pd, to, LEN, IBV_ACCESS_LOCAL_WRITE));
	qp[0] = qp_new(pd, send_cq, IBV_QPT_XRC_SEND, NULL);
	qp[1] = qp_new_xrc_recv(xrcd);
	first = srq_new_xrc(pd, xrcd, recv_cq);
	connect_both();
	duel_short(prepare, send_one, destroy, judge);
}
