// SPDX-License-Identifier: GPL-2.0
/*
 * QP states, what a QP does with its WQEs in each state, and the asynchronous
 * events of QPs, SRQs and CQs.
 */
#include "dev.h"
#include "qp.h"
#include "t.h"

#define PAGE	4096
#define RIGHTS	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)

static char from[PAGE] __attribute__((aligned(PAGE)));
static char to[PAGE] __attribute__((aligned(PAGE)));

static struct ibv_pd *pd;
static struct mem out, in;

static void setup(void)
{
	pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	out = MEM(MUST(ibv_reg_mr(pd, from, PAGE, RIGHTS)));
	in = MEM(MUST(ibv_reg_mr(pd, to, PAGE, RIGHTS)));
	memset(from, 'f', PAGE);
	memset(to, 't', PAGE);
}

TEST(flush, "DEV-4", "a QP moved to the error state flushes both queues in order, and flushes WQEs that are posted later")
{
	struct link l;
	int i;

	setup();
	l = link_new(pd, pd, IBV_QPT_RC);
	for (i = 0; i < QP_WRS; i++) {
		/* The sends wait: the peer has no receive WQE. */
		post_send(l.qp[0], i, out);
		post_recv(l.qp[0], 1000 + i, in);
	}
	CHECK_NO_WC(l.cq[0]);
	qp_to(l.qp[0], IBV_QPS_ERR);
	for (i = 0; i < QP_WRS; i++)
		CHECK_WC(l.cq[0], 1000 + i, IBV_WC_WR_FLUSH_ERR);
	for (i = 0; i < QP_WRS; i++)
		CHECK_WC(l.cq[0], i, IBV_WC_WR_FLUSH_ERR);
	CHECK_NO_WC(l.cq[0]);
	for (i = 0; i < 3 * QP_WRS; i++) {
		post_recv(l.qp[0], i, in);
		CHECK_WC(l.cq[0], i, IBV_WC_WR_FLUSH_ERR);
		post_send(l.qp[0], i, out);
		CHECK_WC(l.cq[0], i, IBV_WC_WR_FLUSH_ERR);
	}
	CHECK_ALL(to, 't', PAGE);
	CHECK_NO_EVENT(l.ctx);
	/* After a reset the QP works again. */
	qp_to(l.qp[0], IBV_QPS_RESET);
	qp_connect(l.qp[0], l.qp[1]->qp_num);
	post_recv(l.qp[1], 1, in);
	post_send(l.qp[0], 2, out);
	CHECK_WC(l.cq[1], 1, IBV_WC_SUCCESS);
	CHECK_WC(l.cq[0], 2, IBV_WC_SUCCESS);
	CHECK_ALL(to, 'f', PAGE);
	link_free(&l);
}

TEST(unsignaled, "DEV-4", "an unsignaled WQE that succeeds has no CQE, and one that is flushed has a CQE")
{
	struct ibv_send_wr *wr;
	struct link l;
	int i;

	setup();
	l = link_new(pd, pd, IBV_QPT_RC);
	for (i = 0; i < 3; i++) {
		if (i < 2)
			post_recv(l.qp[1], i, in);
		wr = send_wr(IBV_WR_SEND, 10 + i, out);
		wr->send_flags = i == 1 ? IBV_SEND_SIGNALED : 0;
		post(l.qp[0], wr);
	}
	CHECK_WC(l.cq[0], 11, IBV_WC_SUCCESS);
	CHECK_NO_WC(l.cq[0]);
	qp_to(l.qp[0], IBV_QPS_ERR);
	CHECK_WC(l.cq[0], 12, IBV_WC_WR_FLUSH_ERR);
	link_free(&l);
}

TEST(drained, "DEV-4", "in SQD the current send completes and raises SQ_DRAINED, later sends wait for RTS, and the QP still receives")
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1,
	};
	struct ibv_qp_init_attr init;
	struct link l;
	long before;

	setup();
	l = link_new(pd, pd, IBV_QPT_RC);
	before = dev_counter("rnr_waits");
	post_send(l.qp[0], 1, out);
	post_send(l.qp[0], 2, out);
	dev_counter_wait("rnr_waits", before, 1);
	CHECK_OK(ibv_modify_qp(l.qp[0], &attr, IBV_QP_STATE |
			       IBV_QP_EN_SQD_ASYNC_NOTIFY));
	CHECK_NO_EVENT(l.ctx);
	CHECK_OK(ibv_query_qp(l.qp[0], &attr, IBV_QP_STATE, &init));
	CHECK_EQ(attr.qp_state, IBV_QPS_SQD);
	CHECK_EQ(attr.sq_draining, 1);
	post_recv(l.qp[1], 3, in);
	post_recv(l.qp[1], 4, in);
	CHECK_WC(l.cq[1], 3, IBV_WC_SUCCESS);
	CHECK_WC(l.cq[0], 1, IBV_WC_SUCCESS);
	CHECK_EVENT(l.ctx, IBV_EVENT_SQ_DRAINED, l.qp[0]);
	CHECK_OK(ibv_query_qp(l.qp[0], &attr, IBV_QP_STATE, &init));
	CHECK_EQ(attr.sq_draining, 0);
	post_recv(l.qp[0], 5, in);
	post_send(l.qp[1], 6, out);
	CHECK_WC(l.cq[0], 5, IBV_WC_SUCCESS);
	CHECK_WC(l.cq[1], 6, IBV_WC_SUCCESS);
	CHECK_NO_WC(l.cq[0]);
	CHECK_NO_EVENT(l.ctx);
	qp_to(l.qp[0], IBV_QPS_RTS);
	CHECK_WC(l.cq[1], 4, IBV_WC_SUCCESS);
	CHECK_WC(l.cq[0], 2, IBV_WC_SUCCESS);
	link_free(&l);
}

/*
 * Move the QP from RTS to SQD with nothing to drain; @notify requests the
 * event.
 */
static void to_sqd(struct link *l, int mask, int notify)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = notify,
	};

	CHECK_OK(ibv_modify_qp(l->qp[0], &attr, IBV_QP_STATE | mask));
	CHECK_STATE(l->qp[0], IBV_QPS_SQD);
}

TEST(drained_once, "DEV-4", "each move to SQD raises SQ_DRAINED only if that move requests the event")
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct link l;
	int i;

	setup();
	l = link_new(pd, pd, IBV_QPT_RC);
	for (i = 0; i < 2; i++) {
		to_sqd(&l, IBV_QP_EN_SQD_ASYNC_NOTIFY, 1);
		CHECK_EVENT(l.ctx, IBV_EVENT_SQ_DRAINED, l.qp[0]);
		qp_to(l.qp[0], IBV_QPS_RTS);
		to_sqd(&l, 0, 0);
		CHECK_NO_EVENT(l.ctx);
		/* ib_uverbs does not report en_sqd_async_notify. */
		CHECK_OK(ibv_query_qp(l.qp[0], &attr, IBV_QP_STATE, &init));
		CHECK_EQ(attr.sq_draining, 0);
		qp_to(l.qp[0], IBV_QPS_RTS);
		to_sqd(&l, IBV_QP_EN_SQD_ASYNC_NOTIFY, 0);
		CHECK_NO_EVENT(l.ctx);
		qp_to(l.qp[0], IBV_QPS_RTS);
	}
	link_free(&l);
}

/* Post three sends, the second with an invalid lkey. */
static void post_three(struct link *l, struct ibv_ah *ah)
{
	struct ibv_send_wr wr[3], *bad;
	struct ibv_sge sge[3];
	int i;

	for (i = 0; i < 3; i++) {
		wr[i] = *send_wr(IBV_WR_SEND, i, out);
		sge[i] = *wr[i].sg_list;
		sge[i].length = 64;
		sge[i].lkey ^= i == 1;
		wr[i].sg_list = &sge[i];
		wr[i].next = i < 2 ? &wr[i + 1] : NULL;
		if (ah)
			wr_to(&wr[i], ah, l->qp[1]);
	}
	CHECK_OK(ibv_post_send(l->qp[0], wr, &bad));
}

TEST(sqe, "DEV-4", "a send error moves a UC or UD QP to SQE and flushes its send queue; the QP still receives, and sends again in RTS")
{
	static const enum ibv_qp_type types[] = { IBV_QPT_UC, IBV_QPT_UD };
	struct ibv_send_wr *wr;
	struct ibv_ah *ah;
	struct link l;
	int i, j;

	setup();
	ah = ah_self(pd);
	for (i = 0; i < 2; i++) {
		l = link_new(pd, pd, types[i]);
		for (j = 0; j < 3; j++)
			post_recv(l.qp[1], 10 + j, in);
		post_three(&l, i ? ah : NULL);
		CHECK_WC(l.cq[0], 0, IBV_WC_SUCCESS);
		CHECK_WC(l.cq[0], 1, IBV_WC_LOC_PROT_ERR);
		CHECK_WC(l.cq[0], 2, IBV_WC_WR_FLUSH_ERR);
		CHECK_WC(l.cq[1], 10, IBV_WC_SUCCESS);
		CHECK_NO_WC(l.cq[1]);
		CHECK_STATE(l.qp[0], IBV_QPS_SQE);
		CHECK_STATE(l.qp[1], IBV_QPS_RTS);
		post_recv(l.qp[0], 20, in);
		wr = send_wr(IBV_WR_SEND, 21, out);
		wr->sg_list->length = 64;
		wr_to(wr, ah, l.qp[0]);
		post(l.qp[1], wr);
		CHECK_WC(l.cq[1], 21, IBV_WC_SUCCESS);
		CHECK_WC(l.cq[0], 20, IBV_WC_SUCCESS);
		qp_to(l.qp[0], IBV_QPS_RTS);
		post_three(&l, i ? ah : NULL);
		CHECK_WC(l.cq[0], 0, IBV_WC_SUCCESS);
		CHECK_WC(l.cq[1], 11, IBV_WC_SUCCESS);
		CHECK_WC(l.cq[0], 1, IBV_WC_LOC_PROT_ERR);
		CHECK_WC(l.cq[0], 2, IBV_WC_WR_FLUSH_ERR);
		CHECK_NO_EVENT(l.ctx);
		link_free(&l);
	}
	CHECK_OK(ibv_destroy_ah(ah));
}

TEST(established, "DEV-4", "the first message to a QP in RTR raises COMM_EST; later messages and messages to a QP in RTS raise no event")
{
	struct ibv_qp *a, *b;
	struct ibv_cq *cq;
	int i;

	setup();
	cq = cq_new(pd->context);
	a = qp_new(pd, cq, IBV_QPT_RC, NULL);
	b = qp_new(pd, cq, IBV_QPT_RC, NULL);
	qp_connect(a, b->qp_num);
	qp_to_init(b);
	qp_to_rtr(b, a->qp_num);
	for (i = 0; i < 4; i++) {
		if (i == 2)
			qp_to_rts(b, 7);
		post_recv(b, i, in);
		post_send(a, 10 + i, out);
		CHECK_WC(cq, i, IBV_WC_SUCCESS);
		CHECK_WC(cq, 10 + i, IBV_WC_SUCCESS);
		if (!i)
			CHECK_EVENT(pd->context, IBV_EVENT_COMM_EST, b);
		CHECK_NO_EVENT(pd->context);
	}
}

TEST(last_wqe, "DEV-4", "a QP that fails raises LAST_WQE_REACHED, and its SRQ keeps its receive WQEs for other QPs")
{
	struct ibv_qp *a, *b, *c;
	struct ibv_srq *srq;
	struct ibv_cq *cq;

	setup();
	cq = cq_new(pd->context);
	srq = srq_new(pd);
	a = qp_new(pd, cq, IBV_QPT_RC, NULL);
	b = qp_new(pd, cq, IBV_QPT_RC, srq);
	c = qp_new(pd, cq, IBV_QPT_RC, srq);
	qp_join(a, b);
	post_srq_recv(srq, 1, in);
	post_srq_recv(srq, 2, in);
	post_send(a, 3, out);
	CHECK_EQ(CHECK_WC(cq, 1, IBV_WC_SUCCESS).qp_num, b->qp_num);
	CHECK_WC(cq, 3, IBV_WC_SUCCESS);
	CHECK_NO_EVENT(pd->context);
	qp_to(b, IBV_QPS_ERR);
	CHECK_EVENT(pd->context, IBV_EVENT_QP_LAST_WQE_REACHED, b);
	CHECK_NO_WC(cq);
	qp_to(a, IBV_QPS_RESET);
	qp_join(a, c);
	post_send(a, 4, out);
	CHECK_EQ(CHECK_WC(cq, 2, IBV_WC_SUCCESS).qp_num, c->qp_num);
	CHECK_WC(cq, 4, IBV_WC_SUCCESS);
	/*
	 * An error that the requester causes raises two events in this order.
	 */
	post_rdma(a, IBV_WR_RDMA_WRITE, 5, out, (uintptr_t)to, 12345);
	CHECK_WC(cq, 5, IBV_WC_REM_ACCESS_ERR);
	CHECK_EVENT(pd->context, IBV_EVENT_QP_ACCESS_ERR, c);
	CHECK_EVENT(pd->context, IBV_EVENT_QP_LAST_WQE_REACHED, c);
	CHECK_NO_EVENT(pd->context);
}

TEST(srq_limit, "DEV-4", "an SRQ that falls below its limit raises one event and clears the limit")
{
	struct ibv_srq_attr attr = { .srq_limit = 3 };
	struct ibv_srq *srq;
	struct ibv_qp *a, *b;
	struct ibv_cq *cq;
	int i;

	setup();
	cq = cq_new(pd->context);
	srq = srq_new(pd);
	a = qp_new(pd, cq, IBV_QPT_RC, NULL);
	b = qp_new(pd, cq, IBV_QPT_RC, srq);
	qp_join(a, b);
	for (i = 0; i < 5; i++)
		post_srq_recv(srq, i, in);
	CHECK_OK(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT));
	for (i = 0; i < 5; i++) {
		CHECK_OK(ibv_query_srq(srq, &attr));
		CHECK_EQ(attr.srq_limit, i < 3 ? 3 : 0);
		CHECK_NO_EVENT(pd->context);
		post_send(a, 10 + i, out);
		CHECK_WC(cq, i, IBV_WC_SUCCESS);
		CHECK_WC(cq, 10 + i, IBV_WC_SUCCESS);
		if (i == 2)
			CHECK_EVENT(pd->context, IBV_EVENT_SRQ_LIMIT_REACHED,
				    srq);
	}
	CHECK_NO_EVENT(pd->context);
}

TEST(overrun, "DEV-4", "a CQ overrun raises an event and fails the QP, the CQ's CQEs can still be polled, and QPs on other CQs go on")
{
	struct ibv_cq *cq, *other;
	struct ibv_qp *a, *b, *c;
	struct ibv_wc wc;
	int i, room, fatal = 0;

	setup();
	cq = MUST(ibv_create_cq(pd->context, 4, NULL, NULL, 0));
	other = cq_new(pd->context);
	room = cq->cqe;
	CHECK_EQ(room, 4);
	a = qp_new(pd, cq, IBV_QPT_RC, NULL);
	b = qp_new(pd, other, IBV_QPT_RC, NULL);
	c = qp_new(pd, cq, IBV_QPT_RC, NULL);
	qp_join(a, b);
	qp_connect(c, b->qp_num);
	for (i = 0; i < room + 1; i++) {
		CHECK_NO_EVENT(pd->context);
		post_recv(b, 10 + i, in);
		post_send(a, i, out);
	}
	for (i = 0; i < 2; i++) {
		struct ibv_async_event event;

		/* The two events may come in either order. */
		CHECK_OK(ibv_get_async_event(pd->context, &event));
		if (event.event_type == IBV_EVENT_QP_FATAL) {
			CHECK(event.element.qp == a);
			fatal++;
		} else {
			CHECK_EQ(event.event_type, IBV_EVENT_CQ_ERR);
			CHECK(event.element.cq == cq);
		}
		ibv_ack_async_event(&event);
	}
	CHECK_EQ(fatal, 1);
	CHECK_NO_EVENT(pd->context);
	CHECK_STATE(a, IBV_QPS_ERR);
	CHECK_STATE(b, IBV_QPS_RTS);
	for (i = 0; i < room; i++)
		CHECK_WC(cq, i, IBV_WC_SUCCESS);
	CHECK_EQ(ibv_poll_cq(cq, 1, &wc), 0);
	/* A CQ in error accepts no CQE and raises no further event. */
	post_recv(c, 1, in);
	qp_to(c, IBV_QPS_ERR);
	CHECK_EQ(ibv_poll_cq(cq, 1, &wc), 0);
	CHECK_NO_EVENT(pd->context);
	for (i = 0; i < room + 1; i++)
		CHECK_WC(other, 10 + i, IBV_WC_SUCCESS);
}

TEST(overrun_recv, "DEV-4", "a CQ overrun by a receive fails the responder's QP with an event, and the requester gets a remote operation error")
{
	struct ibv_cq *cq, *other;
	struct ibv_qp *a, *b;
	int i;

	setup();
	cq = MUST(ibv_create_cq(pd->context, 4, NULL, NULL, 0));
	other = cq_new(pd->context);
	a = qp_new(pd, other, IBV_QPT_RC, NULL);
	b = qp_new(pd, cq, IBV_QPT_RC, NULL);
	qp_join(a, b);
	for (i = 0; i < 5; i++) {
		CHECK_NO_EVENT(pd->context);
		CHECK_STATE(b, IBV_QPS_RTS);
		post_recv(b, 10 + i, in);
		post_send(a, i, out);
		CHECK_WC(other, i, i < 4 ? IBV_WC_SUCCESS : IBV_WC_REM_OP_ERR);
	}
	CHECK_EVENT(pd->context, IBV_EVENT_CQ_ERR, cq);
	CHECK_EVENT(pd->context, IBV_EVENT_QP_FATAL, b);
	CHECK_NO_EVENT(pd->context);
	CHECK_STATE(a, IBV_QPS_ERR);
	CHECK_STATE(b, IBV_QPS_ERR);
	for (i = 0; i < 4; i++)
		CHECK_WC(cq, 10 + i, IBV_WC_SUCCESS);
	CHECK_NO_WC(cq);
}
