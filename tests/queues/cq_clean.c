// SPDX-License-Identifier: GPL-2.0
/*
 * CQEs of a QP that is destroyed or reset before they were polled: the
 * application gets none of them, and the CQEs of all other QPs in order.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "dev.h"
#include "qp.h"
#include "t.h"

#define PAGE	4096
#define LEN	64
#define N	20

static char from[PAGE] __attribute__((aligned(PAGE)));
static char to[PAGE] __attribute__((aligned(PAGE)));

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct mem out, in;

static void setup(void)
{
	ctx = dev_open(KEEL0);
	pd = MUST(ibv_alloc_pd(ctx));
	out = MEM(MUST(ibv_reg_mr(pd, from, PAGE, IBV_ACCESS_LOCAL_WRITE)));
	in = MEM(MUST(ibv_reg_mr(pd, to, PAGE, IBV_ACCESS_LOCAL_WRITE)));
	out.len = LEN;
}

/* Two connected QPs. Other QPs may use their CQs, too. */
struct two {
	struct ibv_qp *a, *b;
};

static struct two two_new(struct ibv_cq *a, struct ibv_cq *b)
{
	struct two t = {
		.a = qp_new(pd, a, IBV_QPT_RC, NULL),
		.b = qp_new(pd, b, IBV_QPT_RC, NULL),
	};

	qp_join(t.a, t.b);
	return t;
}

/* Each pair in turn sends a message from a to b; the receive completes first. */
static void send_in_turn(const struct two *t, int pairs, int n)
{
	int i, j;

	for (i = 0; i < n; i++) {
		for (j = 0; j < pairs; j++) {
			post_recv(t[j].b, i, in);
			post_send(t[j].a, 100 + i, out);
		}
	}
}

static void send_and_wait(const struct two *t, int pairs, int n)
{
	long before = dev_counter("tx_msgs");

	send_in_turn(t, pairs, n);
	dev_counter_wait("tx_msgs", before, pairs * n);
}

/* Keep this order even where threads of the kernel send the messages. */
static void send_in_order(const struct two *t, int pairs, int n)
{
	long before = dev_counter("tx_msgs");
	int i, j;

	for (i = 0; i < n; i++) {
		for (j = 0; j < pairs; j++) {
			post_recv(t[j].b, i, in);
			post_send(t[j].a, 100 + i, out);
			dev_counter_wait("tx_msgs", before++, 1);
		}
	}
}

static void check_next(struct ibv_cq *cq, uint32_t qpn, uint64_t wr_id)
{
	CHECK_EQ(CHECK_WC(cq, wr_id, IBV_WC_SUCCESS).qp_num, qpn);
}

/* ibv_destroy_qp() or a move to RESET, after which the CQEs must be gone. */
typedef void (*end_fn)(struct ibv_qp *qp);

static void destroyed(struct ibv_qp *qp)
{
	CHECK_OK(ibv_destroy_qp(qp));
}

static void reset(struct ibv_qp *qp)
{
	qp_to(qp, IBV_QPS_RESET);
}

static void check_one_cq(end_fn end)
{
	struct ibv_cq *cq;
	struct two t[2];
	uint32_t qpn[4];
	int i;

	setup();
	cq = MUST(ibv_create_cq(ctx, 4 * N, NULL, NULL, 0));
	t[0] = two_new(cq, cq);
	t[1] = two_new(cq, cq);
	qpn[0] = t[0].a->qp_num;
	qpn[1] = t[0].b->qp_num;
	qpn[2] = t[1].a->qp_num;
	qpn[3] = t[1].b->qp_num;
	send_in_order(t, 2, N);
	/* Poll some CQEs first: the consumer index is not 0. */
	for (i = 0; i < 3; i++) {
		check_next(cq, qpn[1], i);
		check_next(cq, qpn[0], 100 + i);
		check_next(cq, qpn[3], i);
		check_next(cq, qpn[2], 100 + i);
	}
	end(t[0].b);
	check_next(cq, qpn[0], 100 + i);
	check_next(cq, qpn[3], i);
	check_next(cq, qpn[2], 100 + i++);
	end(t[1].a);
	for (; i < N; i++) {
		check_next(cq, qpn[0], 100 + i);
		check_next(cq, qpn[3], i);
	}
	CHECK_NO_WC(cq);
}

TEST(destroy, "DEV-2", "ibv_destroy_qp() removes the QP's CQEs from a shared CQ, and the CQEs of all other QPs come in order")
{
	check_one_cq(destroyed);
}

TEST(to_reset, "DEV-2", "ibv_modify_qp() to RESET removes the QP's CQEs from a shared CQ, and keeps the others in order")
{
	check_one_cq(reset);
}

TEST(two_cqs, "DEV-2", "a destroyed or reset QP leaves no CQE in its send CQ and its receive CQ, and both have room again")
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = QP_WRS, .max_recv_wr = QP_WRS,
			 .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_cq *scq, *rcq;
	struct ibv_qp *qp;
	int i;

	setup();
	/* Room for the messages of one QP, and no more. */
	scq = MUST(ibv_create_cq(ctx, 8, NULL, NULL, 0));
	rcq = MUST(ibv_create_cq(ctx, 8, NULL, NULL, 0));
	CHECK_EQ(scq->cqe, 8);
	init.send_cq = scq;
	init.recv_cq = rcq;
	for (i = 0; i < 3; i++) {
		qp = MUST(ibv_create_qp(pd, &init));
		qp_connect(qp, qp->qp_num);
		send_and_wait(&(struct two){ qp, qp }, 1, 8);
		if (i)
			CHECK_OK(ibv_destroy_qp(qp));
		else
			qp_to(qp, IBV_QPS_RESET);
		CHECK_NO_WC(scq);
		CHECK_NO_WC(rcq);
		CHECK_NO_EVENT(ctx);
	}
}

TEST(flushed, "DEV-2", "ibv_destroy_qp() removes flushed CQEs, too")
{
	struct ibv_cq *cq;
	struct two t;
	int i;

	setup();
	cq = cq_new(ctx);
	t = two_new(cq, cq);
	for (i = 0; i < N; i++) {
		post_recv(t.a, i, in);
		post_recv(t.b, 100 + i, in);
	}
	qp_to(t.a, IBV_QPS_ERR);
	qp_to(t.b, IBV_QPS_ERR);
	destroyed(t.a);
	for (i = 0; i < N; i++)
		CHECK_WC(cq, 100 + i, IBV_WC_WR_FLUSH_ERR);
	CHECK_NO_WC(cq);
}

/* @end a QP between ibv_start_poll() and ibv_end_poll(). @single: no locks. */
static void check_extended(bool single, end_fn end)
{
	struct ibv_cq_init_attr_ex init = {
		.cqe = 2 * QP_WRS, .wc_flags = IBV_WC_EX_WITH_QP_NUM,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
		.flags = single ? IBV_CREATE_CQ_ATTR_SINGLE_THREADED : 0,
	};
	struct ibv_poll_cq_attr attr = {};
	uint32_t qpn[2];
	struct ibv_cq_ex *cq;
	struct two t;
	int i;

	setup();
	cq = MUST(ibv_create_cq_ex(ctx, &init));
	t = two_new(ibv_cq_ex_to_cq(cq), ibv_cq_ex_to_cq(cq));
	qpn[0] = t.a->qp_num;
	qpn[1] = t.b->qp_num;
	send_and_wait(&t, 1, N);
	CHECK_OK(ibv_start_poll(cq, &attr));
	CHECK_EQ(cq->wr_id, 0);
	CHECK_EQ(ibv_wc_read_qp_num(cq), qpn[1]);
	/* The current CQE stays and can be read. */
	end(t.b);
	CHECK_EQ(cq->wr_id, 0);
	CHECK_EQ(ibv_wc_read_qp_num(cq), qpn[1]);
	for (i = 0; i < N; i++) {
		CHECK_OK(ibv_next_poll(cq));
		CHECK_EQ(cq->wr_id, 100 + i);
		CHECK_EQ(cq->status, IBV_WC_SUCCESS);
		CHECK_EQ(ibv_wc_read_qp_num(cq), qpn[0]);
		if (i == N / 2)
			break;
	}
	end(t.a);
	CHECK_EQ(cq->wr_id, 100 + i);
	CHECK_EQ(ibv_wc_read_qp_num(cq), qpn[0]);
	CHECK_RET(ibv_next_poll(cq), ENOENT);
	ibv_end_poll(cq);
	CHECK_RET(ibv_start_poll(cq, &attr), ENOENT);
	CHECK_NO_WC(ibv_cq_ex_to_cq(cq));
}

TEST(extended, "DEV-2", "if a QP is destroyed between ibv_start_poll() and ibv_end_poll(), its current CQE can be read and its other CQEs are skipped")
{
	check_extended(false, destroyed);
	check_extended(true, destroyed);
	check_extended(false, reset);
	check_extended(true, reset);
}

TEST(srq, "DEV-2", "a destroyed QP leaves no CQE of its SRQ; the receive WQEs are consumed, and the SRQ has room for as many as before")
{
	struct ibv_qp *a, *b, *c;
	struct ibv_cq *cq, *rcq;
	struct ibv_srq *srq;
	long before;
	int i;

	setup();
	cq = cq_new(ctx);
	rcq = cq_new(ctx);
	srq = srq_new(pd);
	a = qp_new(pd, cq, IBV_QPT_RC, NULL);
	b = qp_new(pd, rcq, IBV_QPT_RC, srq);
	c = qp_new(pd, rcq, IBV_QPT_RC, srq);
	qp_join(a, b);
	for (i = 0; i < QP_WRS; i++)
		post_srq_recv(srq, i, in);
	before = dev_counter("tx_msgs");
	for (i = 0; i < N; i++)
		post_send(a, i, out);
	dev_counter_wait("tx_msgs", before, N);
	destroyed(b);
	CHECK_NO_WC(rcq);
	for (i = 0; i < N; i++) {
		CHECK_WC(cq, i, IBV_WC_SUCCESS);
		post_srq_recv(srq, QP_WRS + i, in);
	}
	qp_to(a, IBV_QPS_RESET);
	qp_join(a, c);
	for (i = N; i < QP_WRS + N; i++) {
		post_send(a, i, out);
		CHECK_WC(rcq, i, IBV_WC_SUCCESS);
		CHECK_WC(cq, i, IBV_WC_SUCCESS);
	}
	CHECK_NO_WC(rcq);
}

TEST(xrc, "DEV-2,XRC-9", "a destroyed XRC_SEND QP leaves no CQE; CQEs of messages that an XRC_RECV QP delivered stay, as they belong to the SRQ")
{
	struct ibv_qp *send, *recv;
	struct ibv_xrcd *xrcd;
	struct ibv_send_wr *wr;
	struct ibv_srq *srq;
	struct ibv_cq *cq;
	uint32_t srqn, qpn;
	long before;
	int i;

	setup();
	cq = cq_new(ctx);
	xrcd = xrcd_new(ctx);
	srq = srq_new_xrc(pd, xrcd, cq);
	CHECK_OK(ibv_get_srq_num(srq, &srqn));
	send = qp_new(pd, cq, IBV_QPT_XRC_SEND, NULL);
	recv = qp_new_xrc_recv(xrcd);
	qpn = recv->qp_num;
	qp_join(send, recv);
	before = dev_counter("tx_msgs");
	for (i = 0; i < N; i++) {
		post_srq_recv(srq, i, in);
		wr = send_wr(IBV_WR_SEND, 100 + i, out);
		wr->qp_type.xrc.remote_srqn = srqn;
		post(send, wr);
	}
	dev_counter_wait("tx_msgs", before, N);
	destroyed(send);
	destroyed(recv);
	for (i = 0; i < N; i++)
		check_next(cq, qpn, i);
	CHECK_NO_WC(cq);
}

/* One pair sends without end; other QPs use its CQ and are destroyed. */
#define ROUNDS	200

static struct ibv_cq *shared_cq;
static struct two forever;
static atomic_bool stop;
static atomic_int credits;

static void *sender(void *arg)
{
	uint64_t i;

	for (i = 0; !atomic_load(&stop); i++) {
		while (!atomic_load(&credits) && !atomic_load(&stop))
			sched_yield();
		if (atomic_load(&stop))
			break;
		atomic_fetch_sub(&credits, 1);
		post_recv(forever.b, i, in);
		post_send(forever.a, i, out);
	}
	return NULL;
}

TEST_SLOW(while_added, "DEV-2", "while the kernel adds CQEs of other QPs, ibv_destroy_qp() removes the QP's CQEs, and no other CQE is lost or comes twice", 60)
{
	uint32_t gone[2] = {}, a, b;
	uint64_t next_a = 0, next_b = 0;
	struct ibv_wc wc[4];
	pthread_t thread;
	int round, i, n;
	struct two t;

	setup();
	shared_cq = MUST(ibv_create_cq(ctx, 256, NULL, NULL, 0));
	forever = two_new(shared_cq, shared_cq);
	a = forever.a->qp_num;
	b = forever.b->qp_num;
	atomic_store(&credits, N);
	CHECK_OK(pthread_create(&thread, NULL, sender, NULL));
	for (round = 0; round < t_rounds(ROUNDS); round++) {
		t = two_new(shared_cq, shared_cq);
		send_in_turn(&t, 1, N);
		gone[0] = t.a->qp_num;
		gone[1] = t.b->qp_num;
		destroyed(t.a);
		destroyed(t.b);
		n = ibv_poll_cq(shared_cq, 4, wc);
		CHECK(n >= 0);
		for (i = 0; i < n; i++) {
			CHECK(wc[i].qp_num != gone[0]);
			CHECK(wc[i].qp_num != gone[1]);
			CHECK_EQ(wc[i].status, IBV_WC_SUCCESS);
			if (wc[i].qp_num == b) {
				CHECK_EQ(wc[i].wr_id, next_b++);
				continue;
			}
			CHECK_EQ(wc[i].qp_num, a);
			CHECK_EQ(wc[i].wr_id, next_a++);
			atomic_fetch_add(&credits, 1);
		}
	}
	atomic_store(&stop, true);
	CHECK_OK(pthread_join(thread, NULL));
	CHECK(next_a > 0);
	CHECK_NO_EVENT(ctx);
}
