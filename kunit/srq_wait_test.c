// SPDX-License-Identifier: GPL-2.0
/*
 * A requester that waits for a receive WQE of an SRQ: a post, an error of the SRQ and
 * an error of the requester end the wait. It waits without limit, so no timer ends it.
 */
#include "pair.h"

#define LEN	100

static struct keel_srq *srq_of(const struct pair *p)
{
	return to_ksrq(p->srq);
}

/* The SRQ that the first end waits for, or NULL. */
static struct keel_srq *awaited(const struct pair *p)
{
	return READ_ONCE(to_kqp(p->a.qp)->sq.from.srq);
}

/* Post a message to an SRQ that has no receive WQE. */
static void send_and_wait(struct pair *p)
{
	struct ib_sge sge;
	struct ib_send_wr wr = {
		.wr_id = 1, .opcode = IB_WR_SEND, .sg_list = &sge, .num_sge = 1,
		.send_flags = IB_SEND_SIGNALED,
	};

	p->with_srq = true;
	pair_make(p, IB_QPT_RC);
	pair_connect(p);
	KUNIT_EXPECT_PTR_EQ(p->test, NULL, awaited(p));
	sge = end_sge(p, &p->a, 0, LEN);
	KUNIT_ASSERT_EQ(p->test, 0, ib_post_send(p->a.qp, &wr, NULL));
	flush_workqueue(to_kdev(p->ibdev)->wq);
	end_collect(&p->a);
	KUNIT_EXPECT_EQ(p->test, 0, p->a.wcs);
	KUNIT_ASSERT_PTR_EQ(p->test, srq_of(p), awaited(p));
}

/* The message completes with @status, and nothing waits for the SRQ any more. */
static void wait_ended(struct pair *p, enum ib_wc_status status)
{
	pair_settle(p, &p->a, 1);
	KUNIT_EXPECT_EQ(p->test, 1, p->a.wcs);
	KUNIT_EXPECT_EQ(p->test, 1, p->a.wc[0].wr_id);
	KUNIT_EXPECT_EQ(p->test, status, p->a.wc[0].status);
	KUNIT_EXPECT_PTR_EQ(p->test, NULL, awaited(p));
	KUNIT_EXPECT_TRUE(p->test, list_empty(&srq_of(p)->waiters));
}

/* ISO-3: the next receive WQE wakes the requester. */
static void iso_3_srq_wait_posted(struct kunit *test)
{
	struct pair *p = test->priv;
	struct ib_recv_wr recv = { .wr_id = 7, .num_sge = 1 };
	struct ib_sge sge;

	send_and_wait(p);
	sge = end_sge(p, &p->b, 0, LEN);
	recv.sg_list = &sge;
	KUNIT_ASSERT_EQ(test, 0, ib_post_srq_recv(p->srq, &recv, NULL));
	wait_ended(p, IB_WC_SUCCESS);
	KUNIT_ASSERT_EQ(test, 1, p->b.wcs);
	KUNIT_EXPECT_EQ(test, 7, p->b.wc[0].wr_id);
	KUNIT_EXPECT_EQ(test, IB_WC_SUCCESS, p->b.wc[0].status);
	KUNIT_EXPECT_EQ(test, -1, end_differs(&p->b, 0, &p->a, 0, LEN));
}

/* The SRQ is in error: the requester is woken, and fails with its peer. */
static void wait_failed(struct pair *p)
{
	wait_ended(p, IB_WC_REM_OP_ERR);
	KUNIT_EXPECT_EQ(p->test, IB_QPS_ERR, end_state(p, &p->a));
	KUNIT_EXPECT_EQ(p->test, IB_QPS_ERR, end_state(p, &p->b));
	KUNIT_EXPECT_GT(p->test, p->b.nr_events, 0U);
	KUNIT_EXPECT_EQ(p->test, IB_EVENT_QP_FATAL, p->b.events[0]);
	KUNIT_EXPECT_EQ(p->test, 0, p->b.wcs);
}

/* ISO-3: another requester finds an invalid producer index. */
static void iso_3_srq_wait_index(struct kunit *test)
{
	struct pair *p = test->priv;
	struct keel_recv recv;

	send_and_wait(p);
	WRITE_ONCE(srq_of(p)->rq.ring.head->user, PAIR_WRS + 1);
	KUNIT_EXPECT_EQ(test, -EINVAL, keel_srq_take(srq_of(p), &recv));
	wait_failed(p);
}

/* ISO-3: the CQ of the SRQ overruns, as that of an XRC SRQ may. */
static void iso_3_srq_wait_cq(struct kunit *test)
{
	struct pair *p = test->priv;

	send_and_wait(p);
	keel_srq_fail(srq_of(p));
	wait_failed(p);
}

/* The requester itself fails. A later post finds no requester that waits. */
static void srq_wait_flushed(struct kunit *test)
{
	const struct ib_recv_wr recv = { .wr_id = 7 };
	struct pair *p = test->priv;

	send_and_wait(p);
	end_move(p, &p->a, IB_QPS_ERR);
	wait_ended(p, IB_WC_WR_FLUSH_ERR);
	KUNIT_EXPECT_EQ(test, 0, ib_post_srq_recv(p->srq, &recv, NULL));
	pair_settle(p, &p->a, 1);
	KUNIT_EXPECT_EQ(test, 1, p->a.wcs);
	KUNIT_EXPECT_EQ(test, 0, p->b.wcs);
	KUNIT_EXPECT_EQ(test, IB_QPS_RTS, end_state(p, &p->b));
}

/* ISO-3: no requester waits for an SRQ that is in error. */
static void iso_3_srq_wait_dead(struct kunit *test)
{
	struct pair *p = test->priv;
	struct keel_qp *qp;

	p->with_srq = true;
	pair_make(p, IB_QPT_RC);
	qp = to_kqp(p->a.qp);
	keel_srq_fail(srq_of(p));
	mutex_lock(&qp->sq.from.lock);
	KUNIT_EXPECT_TRUE(test, keel_srq_wait(srq_of(p), &qp->sq.from));
	mutex_unlock(&qp->sq.from.lock);
	KUNIT_EXPECT_PTR_EQ(test, NULL, awaited(p));
	KUNIT_EXPECT_TRUE(test, list_empty(&srq_of(p)->waiters));
}

static void wait_for(struct pair *p, struct keel_qp *qp)
{
	mutex_lock(&qp->sq.from.lock);
	KUNIT_EXPECT_FALSE(p->test, keel_srq_wait(srq_of(p), &qp->sq.from));
	mutex_unlock(&qp->sq.from.lock);
	KUNIT_EXPECT_PTR_EQ(p->test, srq_of(p), READ_ONCE(qp->sq.from.srq));
}

/*
 * ISO-3: if receive WQEs are left, the requester that has waited longest is woken, and
 * no other. Then all are woken that have waited before.
 */
static void iso_3_srq_wait_taken(struct kunit *test)
{
	struct pair *p = test->priv;
	struct keel_qp *first, *second;
	struct keel_srq *srq;

	p->with_srq = true;
	pair_make(p, IB_QPT_RC);
	srq = srq_of(p);
	first = to_kqp(p->clerk.qp);
	second = to_kqp(p->a.qp);
	wait_for(p, first);
	wait_for(p, second);
	scoped_guard(spinlock, &srq->rq.lock)
		keel_srq_taken(srq);
	KUNIT_EXPECT_NULL(test, READ_ONCE(first->sq.from.srq));
	KUNIT_EXPECT_PTR_EQ(test, srq, READ_ONCE(second->sq.from.srq));
	wait_for(p, first);
	/* As if the first had begun to wait again during the wake. */
	scoped_guard(spinlock, &srq->rq.lock)
		srq->waits--;
	keel_srq_wake(srq);
	KUNIT_EXPECT_NULL(test, READ_ONCE(second->sq.from.srq));
	KUNIT_EXPECT_PTR_EQ(test, srq, READ_ONCE(first->sq.from.srq));
	scoped_guard(spinlock, &srq->rq.lock)
		srq->waits++;
	keel_srq_wake(srq);
	KUNIT_EXPECT_NULL(test, READ_ONCE(first->sq.from.srq));
	scoped_guard(spinlock, &srq->rq.lock)
		keel_srq_taken(srq);
	KUNIT_EXPECT_TRUE(test, list_empty(&srq->waiters));
}

/* ISO-3: one post wakes the requesters for each time that one has waited. */
static void iso_3_srq_wanted_once(struct kunit *test)
{
	struct pair *p = test->priv;
	struct keel_rq *rq;

	p->with_srq = true;
	pair_make(p, IB_QPT_RC);
	rq = &srq_of(p)->rq;
	KUNIT_EXPECT_FALSE(test, keel_rq_was_wanted(rq));
	scoped_guard(spinlock, &rq->lock)
		KUNIT_EXPECT_FALSE(test, keel_rq_want(rq));
	KUNIT_EXPECT_TRUE(test, rq->ring.head->flags & KEEL_RING_F_DOORBELL);
	KUNIT_EXPECT_TRUE(test, keel_rq_was_wanted(rq));
	keel_rq_unwant(rq);
	KUNIT_EXPECT_FALSE(test, rq->ring.head->flags & KEEL_RING_F_DOORBELL);
	KUNIT_EXPECT_FALSE(test, keel_rq_was_wanted(rq));
}

static struct kunit_case srq_wait_cases[] = {
	KUNIT_CASE(iso_3_srq_wait_posted),
	KUNIT_CASE(iso_3_srq_wait_index),
	KUNIT_CASE(iso_3_srq_wait_cq),
	KUNIT_CASE(srq_wait_flushed),
	KUNIT_CASE(iso_3_srq_wait_dead),
	KUNIT_CASE(iso_3_srq_wait_taken),
	KUNIT_CASE(iso_3_srq_wanted_once),
	{}
};

static struct kunit_suite srq_wait_suite = {
	.name = "keel_srq_wait",
	.suite_init = pair_suite_init,
	.suite_exit = pair_suite_exit,
	.init = pair_init,
	.exit = pair_exit,
	.test_cases = srq_wait_cases,
};
kunit_test_suite(srq_wait_suite);
