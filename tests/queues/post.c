// SPDX-License-Identifier: GPL-2.0
/*
 * Lists of work requests: bad_wr names the first work request that was not
 * posted, and is not written if all were posted.
 */
#include "qp.h"
#include "t.h"

#define PAGE	4096
#define LEN	64
/* Length of a list, and the index of its invalid work request. */
#define WRS	4
#define BAD	2

static char from[PAGE] __attribute__((aligned(PAGE)));
static char to[PAGE] __attribute__((aligned(PAGE)));

static struct ibv_pd *pd;
static struct ibv_sge out, in;

static void setup(void)
{
	struct ibv_mr *mr;

	pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	mr = MUST(ibv_reg_mr(pd, from, PAGE, IBV_ACCESS_LOCAL_WRITE));
	out = (struct ibv_sge){ (uintptr_t)from, LEN, mr->lkey };
	mr = MUST(ibv_reg_mr(pd, to, PAGE, IBV_ACCESS_LOCAL_WRITE));
	in = (struct ibv_sge){ (uintptr_t)to, LEN, mr->lkey };
}

static struct ibv_send_wr *sends(int n)
{
	static struct ibv_send_wr wr[QP_WRS + 2];
	int i;

	for (i = 0; i < n; i++)
		wr[i] = (struct ibv_send_wr){
			.wr_id = i, .opcode = IBV_WR_SEND, .sg_list = &out,
			.num_sge = 1, .send_flags = IBV_SEND_SIGNALED,
			.next = i < n - 1 ? &wr[i + 1] : NULL,
		};
	return wr;
}

static struct ibv_recv_wr *recvs(int n)
{
	static struct ibv_recv_wr wr[QP_WRS + 2];
	int i;

	for (i = 0; i < n; i++)
		wr[i] = (struct ibv_recv_wr){
			.wr_id = 100 + i, .sg_list = &in, .num_sge = 1,
			.next = i < n - 1 ? &wr[i + 1] : NULL,
		};
	return wr;
}

/* Work requests that are in none of the lists. */
static struct ibv_send_wr no_send;
static struct ibv_recv_wr no_recv;

static void post_sends(struct ibv_qp *qp, struct ibv_send_wr *wr, int err,
		       struct ibv_send_wr *want)
{
	struct ibv_send_wr *bad = &no_send;

	CHECK_RET(ibv_post_send(qp, wr, &bad), err);
	CHECK(bad == want);
}

static void post_recvs(struct ibv_qp *qp, struct ibv_recv_wr *wr, int err,
		       struct ibv_recv_wr *want)
{
	struct ibv_recv_wr *bad = &no_recv;

	CHECK_RET(ibv_post_recv(qp, wr, &bad), err);
	CHECK(bad == want);
}

static void post_srq_recvs(struct ibv_srq *srq, struct ibv_recv_wr *wr,
			   int err, struct ibv_recv_wr *want)
{
	struct ibv_recv_wr *bad = &no_recv;

	CHECK_RET(ibv_post_srq_recv(srq, wr, &bad), err);
	CHECK(bad == want);
}

/* Check that exactly the first @n of both lists completed. */
static void check_arrived(struct ibv_cq *send_cq, struct ibv_cq *recv_cq, int n)
{
	int i;

	for (i = 0; i < n; i++) {
		CHECK_WC(recv_cq, 100 + i, IBV_WC_SUCCESS);
		CHECK_WC(send_cq, i, IBV_WC_SUCCESS);
	}
	CHECK_NO_WC(recv_cq);
	CHECK_NO_WC(send_cq);
}

TEST(whole, "DEV-4", "posting a whole list of sends, receives or SRQ receives leaves bad_wr unchanged")
{
	struct ibv_srq *srq;
	struct ibv_qp *a, *b;
	struct ibv_cq *cq;
	struct link l;

	setup();
	l = link_new(pd, pd, IBV_QPT_RC);
	post_recvs(l.qp[1], recvs(WRS), 0, &no_recv);
	post_sends(l.qp[0], sends(WRS), 0, &no_send);
	check_arrived(l.cq[0], l.cq[1], WRS);
	/*
	 * The same in the error state, in which a receive WQE needs a doorbell.
	 */
	qp_to(l.qp[1], IBV_QPS_ERR);
	post_recvs(l.qp[1], recvs(1), 0, &no_recv);
	CHECK_WC(l.cq[1], 100, IBV_WC_WR_FLUSH_ERR);
	post_sends(l.qp[1], sends(1), 0, &no_send);
	CHECK_WC(l.cq[1], 0, IBV_WC_WR_FLUSH_ERR);

	cq = cq_new(pd->context);
	srq = srq_new(pd);
	a = qp_new(pd, l.cq[0], IBV_QPT_RC, NULL);
	b = qp_new(pd, cq, IBV_QPT_RC, srq);
	qp_join(a, b);
	post_srq_recvs(srq, recvs(WRS), 0, &no_recv);
	post_sends(a, sends(WRS), 0, &no_send);
	check_arrived(l.cq[0], cq, WRS);
}

TEST(wrong, "DEV-4", "bad_wr names the invalid work request of a list; those before it are posted, those after it are not")
{
	struct ibv_send_wr *send;
	struct ibv_recv_wr *recv;
	struct ibv_srq *srq;
	struct ibv_qp *a, *b;
	struct ibv_cq *cq;
	struct link l;

	setup();
	l = link_new(pd, pd, IBV_QPT_RC);
	send = sends(WRS);
	send[BAD].num_sge = QP_SGES + 100;
	recv = recvs(WRS);
	recv[BAD].num_sge = QP_SGES + 100;
	post_recvs(l.qp[1], recv, EINVAL, &recv[BAD]);
	post_sends(l.qp[0], send, EINVAL, &send[BAD]);
	check_arrived(l.cq[0], l.cq[1], BAD);

	cq = cq_new(pd->context);
	srq = srq_new(pd);
	a = qp_new(pd, l.cq[0], IBV_QPT_RC, NULL);
	b = qp_new(pd, cq, IBV_QPT_RC, srq);
	qp_join(a, b);
	post_srq_recvs(srq, recv, EINVAL, &recv[BAD]);
	send = sends(BAD + 1);
	post_sends(a, send, 0, &no_send);
	/* The third send WQE waits for a receive WQE. */
	check_arrived(l.cq[0], cq, BAD);
	post_srq_recvs(srq, recvs(1), 0, &no_recv);
	CHECK_WC(cq, 100, IBV_WC_SUCCESS);
	CHECK_WC(l.cq[0], BAD, IBV_WC_SUCCESS);
}

TEST(full, "DEV-4", "bad_wr names the first work request that does not fit into the queue; those before it are posted")
{
	struct ibv_send_wr *send;
	struct ibv_recv_wr *recv;
	struct ibv_srq *srq;
	struct link l;

	setup();
	l = link_new(pd, pd, IBV_QPT_RC);
	send = sends(QP_WRS + 2);
	post_sends(l.qp[0], send, ENOMEM, &send[QP_WRS]);
	recv = recvs(QP_WRS + 2);
	post_recvs(l.qp[1], recv, ENOMEM, &recv[QP_WRS]);
	/*
	 * The sends completed without a doorbell, since the peer has receive
	 * WQEs now.
	 */
	check_arrived(l.cq[0], l.cq[1], QP_WRS);
	srq = srq_new(pd);
	post_srq_recvs(srq, recv, ENOMEM, &recv[QP_WRS]);
}

TEST(state, "DEV-4", "bad_wr names the first work request of a list that the QP state refuses")
{
	struct ibv_send_wr *send = sends(WRS);
	struct ibv_recv_wr *recv = recvs(WRS);
	struct ibv_srq *srq;
	struct ibv_cq *cq;
	struct ibv_qp *qp;

	setup();
	cq = cq_new(pd->context);
	qp = qp_new(pd, cq, IBV_QPT_RC, NULL);
	post_sends(qp, send, EINVAL, send);
	post_recvs(qp, recv, EINVAL, recv);
	qp_to_init(qp);
	post_sends(qp, send, EINVAL, send);
	post_recvs(qp, recv, 0, &no_recv);
	/* A QP with an SRQ has no receive queue. */
	srq = srq_new(pd);
	qp = qp_new(pd, cq, IBV_QPT_RC, srq);
	qp_to_init(qp);
	post_recvs(qp, recv, EINVAL, recv);
	CHECK_NO_WC(cq);
}
