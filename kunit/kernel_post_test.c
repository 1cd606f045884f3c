// SPDX-License-Identifier: GPL-2.0
/*
 * Posting by kernel consumers: in atomic context, in the completion handler, to
 * a full queue, and work requests that are refused when they are posted.
 */
#include "pair.h"

#define LEN	100

static struct ib_rdma_wr send_wr(u64 wr_id, struct ib_sge *sge)
{
	return (struct ib_rdma_wr){
		.wr.wr_id = wr_id,
		.wr.opcode = IB_WR_SEND,
		.wr.send_flags = IB_SEND_SIGNALED,
		.wr.sg_list = sge,
		.wr.num_sge = 1,
	};
}

static void connected(struct kunit *test)
{
	pair_make(test->priv, IB_QPT_RC);
	pair_connect(test->priv);
}

static void arrived(struct pair *p, int i, u64 wr_id)
{
	KUNIT_EXPECT_EQ(p->test, IB_WC_SUCCESS, p->b.wc[i].status);
	KUNIT_EXPECT_EQ(p->test, wr_id, p->b.wc[i].wr_id);
	KUNIT_EXPECT_EQ(p->test, LEN, p->b.wc[i].byte_len);
}

/* Post at both ends under a spinlock, with interrupts off. */
static void post_atomic(struct kunit *test)
{
	struct ib_recv_wr recv = { .wr_id = 7, .num_sge = 1 };
	struct pair *p = test->priv;
	int sent, received, polled;
	struct ib_sge to, from;
	struct ib_rdma_wr wr;
	struct ib_wc wc;
	spinlock_t lock;

	connected(test);
	to = end_sge(p, &p->b, 0, LEN);
	from = end_sge(p, &p->a, 0, LEN);
	recv.sg_list = &to;
	wr = send_wr(8, &from);
	spin_lock_init(&lock);
	scoped_guard(spinlock_irqsave, &lock) {
		received = ib_post_recv(p->b.qp, &recv, NULL);
		sent = ib_post_send(p->a.qp, &wr.wr, NULL);
		polled = ib_poll_cq(p->clerk.cq, 1, &wc);
	}
	KUNIT_EXPECT_EQ(test, 0, received);
	KUNIT_EXPECT_EQ(test, 0, sent);
	KUNIT_EXPECT_EQ(test, 0, polled);
	pair_settle(p, &p->a, 1);
	KUNIT_EXPECT_EQ(test, 1, p->a.wcs);
	KUNIT_EXPECT_EQ(test, 8, p->a.wc[0].wr_id);
	KUNIT_EXPECT_EQ(test, IB_WC_SUCCESS, p->a.wc[0].status);
	KUNIT_EXPECT_EQ(test, 1, p->b.wcs);
	arrived(p, 0, 7);
	KUNIT_EXPECT_EQ(test, -1, end_differs(&p->b, 0, &p->a, 0, LEN));
}

/* Fails if what an earlier WQE has left in the ring becomes part of a later one. */
static void post_stale(struct kunit *test)
{
	struct pair *p = test->priv;
	const struct keel_uapi_send_wqe *wqe;
	struct keel_ring *ring;
	struct ib_rdma_wr wr;
	struct ib_sge sge;

	connected(test);
	ring = &to_kqp(p->a.qp)->sq.ring;
	sge = end_sge(p, &p->a, 0, LEN);
	wr = send_wr(8, &sge);
	end_recv(p, &p->b, 7, 0, LEN);
	memset(keel_ring_entry(ring, 0), 0xff, (size_t)keel_ring_size(ring) * ring->stride);
	wqe = keel_ring_entry(ring, ring->head->user);
	KUNIT_EXPECT_EQ(test, 0, ib_post_send(p->a.qp, &wr.wr, NULL));
	KUNIT_EXPECT_EQ(test, 0, wqe->inline_len);
	KUNIT_EXPECT_EQ(test, 0, wqe->imm);
	KUNIT_EXPECT_EQ(test, 0, wqe->srqn);
	KUNIT_EXPECT_EQ(test, 0, wqe->rdma.remote_addr);
	KUNIT_EXPECT_EQ(test, 0, wqe->rdma.rkey);
	KUNIT_EXPECT_EQ(test, 0, wqe->rdma.reserved);
	pair_settle(p, &p->a, 1);
	KUNIT_EXPECT_EQ(test, IB_WC_SUCCESS, p->a.wc[0].status);
	KUNIT_EXPECT_EQ(test, 1, p->b.wcs);
	arrived(p, 0, 7);
}

#define ROUNDS	10

/* The completion handler posts the next send. */
static void next_send(struct ib_cq *cq, void *context)
{
	struct pair *p = context;
	struct ib_rdma_wr wr;
	struct ib_sge sge;

	do {
		end_collect(&p->a);
	} while (ib_req_notify_cq(cq, IB_CQ_NEXT_COMP |
				      IB_CQ_REPORT_MISSED_EVENTS) > 0);
	if (p->a.wcs >= ROUNDS)
		return;
	sge = end_sge(p, &p->a, p->a.wcs * LEN, LEN);
	wr = send_wr(p->a.wcs, &sge);
	ib_post_send(p->a.qp, &wr.wr, NULL);
}

static void post_in_handler(struct kunit *test)
{
	struct pair *p = test->priv;
	u64 fast = pair_counter(p, KEEL_CTR_fast_msgs);
	struct ib_rdma_wr wr;
	struct ib_sge sge;
	int i;

	p->on_wc = next_send;
	connected(test);
	for (i = 0; i < ROUNDS; i++)
		end_recv(p, &p->b, i, i * LEN, LEN);
	KUNIT_EXPECT_EQ(test, 0, ib_req_notify_cq(p->a.cq, IB_CQ_NEXT_COMP));
	sge = end_sge(p, &p->a, 0, LEN);
	wr = send_wr(0, &sge);
	KUNIT_ASSERT_EQ(test, 0, ib_post_send(p->a.qp, &wr.wr, NULL));
	pair_settle(p, &p->b, ROUNDS);
	KUNIT_EXPECT_EQ(test, ROUNDS, p->a.wcs);
	for (i = 0; i < ROUNDS; i++) {
		KUNIT_EXPECT_EQ(test, IB_WC_SUCCESS, p->a.wc[i].status);
		KUNIT_EXPECT_EQ(test, i, p->a.wc[i].wr_id);
		arrived(p, i, i);
	}
	KUNIT_EXPECT_EQ(test, -1, end_differs(&p->b, 0, &p->a, 0, ROUNDS * LEN));
	/* All but the first message, from and to memory of fast registrations. */
	KUNIT_EXPECT_EQ(test, ROUNDS - 1, pair_counter(p, KEEL_CTR_fast_msgs) - fast);
}

/* DEV-4: the local DMA lkey, on the fast path: the SGEs have addresses of the kernel. */
static void dev_4_post_dma_lkey(struct kunit *test)
{
	struct ib_recv_wr recv = { .num_sge = 2 };
	struct pair *p = test->priv;
	struct ib_sge to[2], from[2];
	struct ib_rdma_wr wr;
	u64 fast;
	int i;

	connected(test);
	fast = pair_counter(p, KEEL_CTR_fast_msgs);
	for (i = 0; i < 2; i++) {
		to[i] = (struct ib_sge){ (uintptr_t)p->b.buf + i * 1000, 60 - 20 * i,
					 p->pd->local_dma_lkey };
		from[i] = (struct ib_sge){ (uintptr_t)p->a.buf + i * 500, 40 + 20 * i,
					   p->pd->local_dma_lkey };
	}
	recv.sg_list = to;
	wr = send_wr(8, from);
	wr.wr.num_sge = 2;
	for (i = 0; i < 2; i++) {
		memset(p->b.buf, 0, 2000);
		recv.wr_id = i;
		KUNIT_ASSERT_EQ(test, 0, ib_post_recv(p->b.qp, &recv, NULL));
		KUNIT_ASSERT_EQ(test, 0, ib_post_send(p->a.qp, &wr.wr, NULL));
		pair_settle(p, &p->b, i + 1);
		arrived(p, i, i);
		/* 40 and 60 bytes become 60 and 40. */
		KUNIT_EXPECT_EQ(test, 0, memcmp(p->b.buf, p->a.buf, 40));
		KUNIT_EXPECT_EQ(test, 0, memcmp(p->b.buf + 40, p->a.buf + 500, 20));
		KUNIT_EXPECT_EQ(test, 0, memcmp(p->b.buf + 1000, p->a.buf + 520, 40));
		KUNIT_EXPECT_EQ(test, 0, p->b.buf[60]);
		KUNIT_EXPECT_EQ(test, 0, p->b.buf[1040]);
		KUNIT_EXPECT_EQ(test, i, pair_counter(p, KEEL_CTR_fast_msgs) - fast);
	}
}

/* The state of the QP when its first completion was reported. */
static enum ib_qp_state state_reported;

static void note_state(struct ib_cq *cq, void *context)
{
	struct pair *p = context;

	state_reported = READ_ONCE(to_kqp(p->a.qp)->state);
}

/*
 * A consumer that sees an error at @a also sees the resulting state and the
 * flushed work requests. @from posts @send, which fails.
 */
static void error_state(struct kunit *test, struct end *from,
			struct ib_sge *send, u64 wr_id,
			enum ib_wc_status status)
{
	struct ib_rdma_wr wr = send_wr(1, send);
	struct pair *p = test->priv;

	state_reported = IB_QPS_RESET;
	KUNIT_EXPECT_EQ(test, 0, ib_req_notify_cq(p->a.cq, IB_CQ_NEXT_COMP));
	KUNIT_ASSERT_EQ(test, 0, ib_post_send(from->qp, &wr.wr, NULL));
	pair_settle(p, &p->a, 2);
	KUNIT_EXPECT_EQ(test, IB_QPS_ERR, state_reported);
	KUNIT_EXPECT_EQ(test, wr_id, p->a.wc[0].wr_id);
	KUNIT_EXPECT_EQ(test, status, p->a.wc[0].status);
	KUNIT_EXPECT_EQ(test, 8, p->a.wc[1].wr_id);
	KUNIT_EXPECT_EQ(test, IB_WC_WR_FLUSH_ERR, p->a.wc[1].status);
}

static void post_error_state(struct kunit *test)
{
	struct pair *p = test->priv;
	struct ib_sge sge;

	p->on_wc = note_state;
	connected(test);
	end_recv(p, &p->a, 8, 0, LEN);
	sge = end_sge(p, &p->a, 0, LEN);
	sge.lkey ^= 1;
	error_state(test, &p->a, &sge, 1, IB_WC_LOC_PROT_ERR);
}

/* The error of a receive WQE that is too small. */
static void post_error_state_recv(struct kunit *test)
{
	struct pair *p = test->priv;
	struct ib_sge sge;

	p->on_wc = note_state;
	connected(test);
	end_recv(p, &p->a, 7, 0, LEN - 1);
	end_recv(p, &p->a, 8, 0, LEN);
	sge = end_sge(p, &p->b, 0, LEN);
	error_state(test, &p->b, &sge, 7, IB_WC_LOC_LEN_ERR);
}

/* A consumer in the kernel cannot poll a CQ whose ring belongs to userspace. */
static void post_user_cq(struct kunit *test)
{
	struct pair *p = test->priv;
	struct keel_cq *cq;
	/* Only whether it is there matters here. */
	struct ib_umem umem;
	struct ib_wc wc;

	connected(test);
	cq = to_kcq(p->a.cq);
	cq->ring.umem = &umem;
	KUNIT_EXPECT_EQ(test, -EOPNOTSUPP, ib_poll_cq(p->a.cq, 1, &wc));
	cq->ring.umem = NULL;
	KUNIT_EXPECT_EQ(test, 0, ib_poll_cq(p->a.cq, 1, &wc));
}

/*
 * A consumer in the kernel cannot post to a queue whose ring belongs to userspace, nor
 * to the receive queue of a QP that takes its receive WQEs from an SRQ.
 */
static void post_user_queues(struct kunit *test)
{
	const struct ib_recv_wr recv = { .wr_id = 7 };
	const struct ib_recv_wr *bad_recv = NULL;
	const struct ib_send_wr *bad = NULL;
	struct pair *p = test->priv;
	/* Only whether it is there matters here. */
	struct ib_umem umem;
	struct ib_rdma_wr wr;
	struct keel_srq *srq;
	struct keel_qp *qp;
	struct ib_sge sge;

	p->with_srq = true;
	connected(test);
	qp = to_kqp(p->a.qp);
	srq = to_ksrq(p->srq);
	sge = end_sge(p, &p->a, 0, LEN);
	wr = send_wr(1, &sge);
	qp->user = true;
	KUNIT_EXPECT_EQ(test, -EOPNOTSUPP, ib_post_send(p->a.qp, &wr.wr, &bad));
	KUNIT_EXPECT_PTR_EQ(test, &wr.wr, bad);
	KUNIT_EXPECT_EQ(test, -EOPNOTSUPP,
			ib_post_recv(p->a.qp, &recv, &bad_recv));
	KUNIT_EXPECT_PTR_EQ(test, &recv, bad_recv);
	qp->user = false;
	bad_recv = NULL;
	srq->rq.ring.umem = &umem;
	KUNIT_EXPECT_EQ(test, -EOPNOTSUPP,
			ib_post_srq_recv(p->srq, &recv, &bad_recv));
	KUNIT_EXPECT_PTR_EQ(test, &recv, bad_recv);
	srq->rq.ring.umem = NULL;
	KUNIT_EXPECT_EQ(test, -EOPNOTSUPP, ib_post_recv(p->b.qp, &recv, NULL));
	/* None of them was posted. */
	KUNIT_EXPECT_EQ(test, 0, qp->sq.ring.head->user);
	KUNIT_EXPECT_EQ(test, 0, qp->rq.ring.head->user);
	KUNIT_EXPECT_EQ(test, 0, srq->rq.ring.head->user);
}

/* A list that is posted completely does not change @bad_wr, which RDS reads. */
static void post_bad_wr(struct kunit *test)
{
	const struct ib_recv_wr *bad_recv, untouched_recv = {};
	const struct ib_send_wr *bad, untouched = {};
	struct ib_recv_wr recv[2] = {};
	struct pair *p = test->priv;
	struct ib_rdma_wr wr[2];
	struct ib_sge to, from;
	int i;

	connected(test);
	to = end_sge(p, &p->b, 0, LEN);
	from = end_sge(p, &p->a, 0, LEN);
	for (i = 0; i < 2; i++) {
		recv[i].wr_id = i;
		recv[i].sg_list = &to;
		recv[i].num_sge = 1;
		wr[i] = send_wr(i, &from);
	}
	recv[0].next = &recv[1];
	wr[0].wr.next = &wr[1].wr;
	bad_recv = &untouched_recv;
	bad = &untouched;
	KUNIT_EXPECT_EQ(test, 0, ib_post_recv(p->b.qp, recv, &bad_recv));
	KUNIT_EXPECT_PTR_EQ(test, &untouched_recv, bad_recv);
	KUNIT_EXPECT_EQ(test, 0, ib_post_send(p->a.qp, &wr[0].wr, &bad));
	KUNIT_EXPECT_PTR_EQ(test, &untouched, bad);
	pair_settle(p, &p->a, 2);
	KUNIT_EXPECT_EQ(test, 2, p->b.wcs);
	/* The second work request is bad. The first one is posted. */
	recv[1].num_sge = 3;
	wr[1].wr.num_sge = 3;
	KUNIT_EXPECT_EQ(test, -EINVAL, ib_post_recv(p->b.qp, recv, &bad_recv));
	KUNIT_EXPECT_PTR_EQ(test, &recv[1], bad_recv);
	KUNIT_EXPECT_EQ(test, -EINVAL, ib_post_send(p->a.qp, &wr[0].wr, &bad));
	KUNIT_EXPECT_PTR_EQ(test, &wr[1].wr, bad);
	pair_settle(p, &p->a, 3);
	KUNIT_EXPECT_EQ(test, 3, p->a.wcs);
	KUNIT_EXPECT_EQ(test, 3, p->b.wcs);
	arrived(p, 2, 0);
	/* @bad_wr may be NULL. */
	KUNIT_EXPECT_EQ(test, -EINVAL, ib_post_recv(p->b.qp, &recv[1], NULL));
	KUNIT_EXPECT_EQ(test, -EINVAL, ib_post_send(p->a.qp, &wr[1].wr, NULL));
}

/* A list that does not fit: @bad_wr points to the first one not posted. */
static void post_full(struct kunit *test)
{
	struct ib_rdma_wr *wrs = kunit_kcalloc(test, PAIR_WRS + 2,
					       sizeof(*wrs), GFP_KERNEL);
	const struct ib_send_wr *bad = NULL;
	struct pair *p = test->priv;
	struct ib_sge sge;
	int i;

	KUNIT_ASSERT_NOT_NULL(test, wrs);
	connected(test);
	sge = end_sge(p, &p->a, 0, LEN);
	for (i = 0; i < PAIR_WRS + 2; i++) {
		wrs[i] = send_wr(i, &sge);
		if (i)
			wrs[i - 1].wr.next = &wrs[i].wr;
	}
	/* Without receive WQEs, the send WQEs stay in the queue. */
	KUNIT_EXPECT_EQ(test, -ENOMEM, ib_post_send(p->a.qp, &wrs[0].wr, &bad));
	KUNIT_EXPECT_PTR_EQ(test, &wrs[PAIR_WRS].wr, bad);
	for (i = 0; i < PAIR_WRS; i++)
		end_recv(p, &p->b, i, 0, LEN);
	pair_settle(p, &p->a, PAIR_WRS);
	KUNIT_EXPECT_EQ(test, PAIR_WRS, p->a.wcs);
	KUNIT_EXPECT_EQ(test, PAIR_WRS, p->b.wcs);
	for (i = 0; i < PAIR_WRS; i++) {
		KUNIT_EXPECT_EQ(test, i, p->a.wc[i].wr_id);
		KUNIT_EXPECT_EQ(test, IB_WC_SUCCESS, p->a.wc[i].status);
	}
	/* There is room again. The QP is destroyed while these sends wait. */
	KUNIT_EXPECT_EQ(test, 0, ib_post_send(p->a.qp, &wrs[PAIR_WRS].wr, &bad));
}

static void post_recv_full(struct kunit *test)
{
	struct pair *p = test->priv;
	struct ib_recv_wr one = { .wr_id = 1 }, two = { .next = &one };
	const struct ib_recv_wr *bad = NULL;
	int i;

	connected(test);
	for (i = 0; i < PAIR_WRS - 1; i++)
		end_recv(p, &p->b, i, 0, LEN);
	KUNIT_EXPECT_EQ(test, -ENOMEM, ib_post_recv(p->b.qp, &two, &bad));
	KUNIT_EXPECT_PTR_EQ(test, &one, bad);
}

/* Work requests that are refused when they are posted. */
static void post_refused(struct kunit *test)
{
	struct pair *p = test->priv;
	const struct ib_recv_wr *bad_recv = NULL;
	const struct ib_send_wr *bad = NULL;
	struct ib_recv_wr recv = {};
	struct ib_rdma_wr wr;
	struct ib_sge sge[3];
	int i;

	pair_make(p, IB_QPT_RC);
	for (i = 0; i < ARRAY_SIZE(sge); i++)
		sge[i] = end_sge(p, &p->a, 0, PAIR_INLINE / 2 + 1);
	wr = send_wr(1, sge);
	recv.sg_list = sge;
	KUNIT_EXPECT_EQ(test, -EINVAL, ib_post_recv(p->a.qp, &recv, &bad_recv));
	KUNIT_EXPECT_PTR_EQ(test, &recv, bad_recv);
	KUNIT_EXPECT_EQ(test, -EINVAL, ib_post_send(p->a.qp, &wr.wr, &bad));
	KUNIT_EXPECT_PTR_EQ(test, &wr.wr, bad);
	bad_recv = NULL;
	bad = NULL;
	pair_connect(p);
	wr.wr.num_sge = 3;
	recv.num_sge = 3;
	KUNIT_EXPECT_EQ(test, -EINVAL, ib_post_send(p->a.qp, &wr.wr, &bad));
	KUNIT_EXPECT_PTR_EQ(test, &wr.wr, bad);
	KUNIT_EXPECT_EQ(test, -EINVAL, ib_post_recv(p->a.qp, &recv, &bad_recv));
	KUNIT_EXPECT_PTR_EQ(test, &recv, bad_recv);
	/* Two bytes more than max_inline_data. */
	wr.wr.num_sge = 2;
	wr.wr.send_flags |= IB_SEND_INLINE;
	KUNIT_EXPECT_EQ(test, -EINVAL, ib_post_send(p->a.qp, &wr.wr, &bad));
	wr.wr.send_flags = 0;
	wr.wr.opcode = IB_WR_LSO;
	KUNIT_EXPECT_EQ(test, -EINVAL, ib_post_send(p->a.qp, &wr.wr, &bad));
	pair_settle(p, &p->a, 0);
	KUNIT_EXPECT_EQ(test, 0, p->a.wcs);
	KUNIT_EXPECT_EQ(test, IB_QPS_RTS, end_state(p, &p->a));
}

/* Inline data is copied when it is posted: the memory may change afterwards. */
static void post_inline(struct kunit *test)
{
	struct pair *p = test->priv;
	struct ib_rdma_wr wr;
	struct ib_sge sge[2];
	int ret;

	connected(test);
	sge[0] = end_sge(p, &p->a, 0, 10);
	sge[1] = end_sge(p, &p->a, 10, PAIR_INLINE - 10);
	/* The lkey is ignored. */
	sge[1].lkey = 0xdead;
	wr = send_wr(1, sge);
	wr.wr.num_sge = 2;
	wr.wr.send_flags |= IB_SEND_INLINE;
	ret = ib_post_send(p->a.qp, &wr.wr, NULL);
	memset(p->a.buf, 0, PAIR_INLINE);
	KUNIT_ASSERT_EQ(test, 0, ret);
	end_recv(p, &p->b, 1, 0, LEN);
	pair_settle(p, &p->a, 1);
	KUNIT_EXPECT_EQ(test, IB_WC_SUCCESS, p->a.wc[0].status);
	KUNIT_ASSERT_EQ(test, 1, p->b.wcs);
	KUNIT_EXPECT_EQ(test, PAIR_INLINE, p->b.wc[0].byte_len);
	KUNIT_EXPECT_EQ(test, -1, end_differs(&p->b, 0, &p->a, 0, PAIR_INLINE));
	KUNIT_EXPECT_EQ(test, -1,
			end_differs(&p->b, PAIR_INLINE, &p->b, PAIR_INLINE, LEN));
}

/*
 * The packet type of a datagram is only in network_hdr_type, not in @sl: kernel
 * consumers use @sl as the service level of their response.
 */
static void post_datagram(struct kunit *test)
{
	struct pair *p = test->priv;
	struct ib_ud_wr wr = {};
	struct ib_sge sge;

	pair_make(p, IB_QPT_UD);
	pair_connect(p);
	end_recv(p, &p->b, 7, 0, KEEL_GRH_BYTES + LEN);
	sge = end_sge(p, &p->a, 0, LEN);
	wr.wr = send_wr(8, &sge).wr;
	wr.ah = p->ah;
	wr.remote_qpn = p->b.qp->qp_num;
	wr.remote_qkey = PAIR_QKEY;
	KUNIT_ASSERT_EQ(test, 0, ib_post_send(p->a.qp, &wr.wr, NULL));
	pair_settle(p, &p->b, 1);
	KUNIT_EXPECT_EQ(test, IB_WC_SUCCESS, p->b.wc[0].status);
	KUNIT_EXPECT_EQ(test, 7, p->b.wc[0].wr_id);
	KUNIT_EXPECT_EQ(test, KEEL_GRH_BYTES + LEN, p->b.wc[0].byte_len);
	KUNIT_EXPECT_EQ(test, p->a.qp->qp_num, p->b.wc[0].src_qp);
	KUNIT_EXPECT_EQ(test, IB_WC_GRH | IB_WC_WITH_NETWORK_HDR_TYPE,
			p->b.wc[0].wc_flags);
	KUNIT_EXPECT_EQ(test, RDMA_NETWORK_IPV6, p->b.wc[0].network_hdr_type);
	KUNIT_EXPECT_EQ(test, 0, p->b.wc[0].sl);
	KUNIT_EXPECT_EQ(test, 0, memcmp(p->b.buf + KEEL_GRH_BYTES, p->a.buf,
					LEN));
}

/* Like storage drivers: register, use by lkey, and invalidate in one list. */
static void post_chain(struct kunit *test)
{
	struct ib_send_wr inv = {
		.opcode = IB_WR_LOCAL_INV,
		.send_flags = IB_SEND_SIGNALED,
		.wr_id = 3,
	};
	struct ib_rdma_wr write = { .wr.opcode = IB_WR_RDMA_WRITE };
	struct ib_reg_wr reg = { .wr.opcode = IB_WR_REG_MR };
	struct pair *p = test->priv;
	struct ib_sge sge;

	pair_make(p, IB_QPT_RC);
	pair_connect(p);
	sge = end_sge(p, &p->a, 0, PAIR_BYTES);
	sge.lkey = p->fresh->lkey;
	reg.mr = p->fresh;
	reg.key = p->fresh->rkey;
	reg.wr.next = &write.wr;
	write.wr.sg_list = &sge;
	write.wr.num_sge = 1;
	write.wr.next = &inv;
	write.remote_addr = (uintptr_t)p->b.buf;
	write.rkey = p->b.mr->rkey;
	inv.ex.invalidate_rkey = p->fresh->rkey;
	KUNIT_ASSERT_EQ(test, 0, ib_post_send(p->a.qp, &reg.wr, NULL));
	pair_settle(p, &p->a, 1);
	KUNIT_EXPECT_EQ(test, 1, p->a.wcs);
	KUNIT_EXPECT_EQ(test, 3, p->a.wc[0].wr_id);
	KUNIT_EXPECT_EQ(test, IB_WC_SUCCESS, p->a.wc[0].status);
	KUNIT_EXPECT_EQ(test, IB_WC_LOCAL_INV, p->a.wc[0].opcode);
	KUNIT_EXPECT_EQ(test, -1, end_differs(&p->b, 0, &p->a, 0, PAIR_BYTES));
}

static struct kunit_case kernel_post_cases[] = {
	KUNIT_CASE(post_atomic),
	KUNIT_CASE(post_stale),
	KUNIT_CASE(post_in_handler),
	KUNIT_CASE(dev_4_post_dma_lkey),
	KUNIT_CASE(post_error_state),
	KUNIT_CASE(post_error_state_recv),
	KUNIT_CASE(post_user_cq),
	KUNIT_CASE(post_user_queues),
	KUNIT_CASE(post_bad_wr),
	KUNIT_CASE(post_full),
	KUNIT_CASE(post_recv_full),
	KUNIT_CASE(post_refused),
	KUNIT_CASE(post_inline),
	KUNIT_CASE(post_datagram),
	KUNIT_CASE(post_chain),
	{}
};

static struct kunit_suite kernel_post_suite = {
	.name = "keel_kernel_post",
	.suite_init = pair_suite_init,
	.suite_exit = pair_suite_exit,
	.init = pair_init,
	.exit = pair_exit,
	.test_cases = kernel_post_cases,
};
kunit_test_suite(kernel_post_suite);
