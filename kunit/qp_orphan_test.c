// SPDX-License-Identifier: GPL-2.0
/*
 * QPs of dead processes, and XRC_RECV QPs: they fail, and are flushed in steps. See
 * qp_owner.h.
 */
#include <linux/delay.h>

#include "qp_owner.h"

/* More than a step flushes. */
#define MANY	100
#define STEP	64

static bool steps(struct owner *o, int n)
{
	bool over = owner_steps(o, n);

	end_collect(&o->p->a);
	return over;
}

/*
 * ISO-2: the QP of a dead process is flushed once. Fails if a step that did not get the
 * lock of a queue waits for it, or counts as the flush; or if there is a second flush.
 */
static void iso_2_qp_orphan_flush(struct kunit *test)
{
	struct pair *p = test->priv;
	struct owner *o = owner;
	struct keel_qp *qp = owner_dies(o, IB_QPT_RC);

	end_recv(p, &p->a, 7, 0, OWNER_LEN);
	end_send_silently(p, &p->a, 1, OWNER_LEN);
	mutex_lock(&qp->sq.from.lock);
	mutex_lock(&qp->resp.lock);
	keel_qp_schedule(qp);
	KUNIT_EXPECT_FALSE(test, steps(o, 4));
	KUNIT_EXPECT_EQ(test, 0, p->a.wcs);
	mutex_unlock(&qp->resp.lock);
	KUNIT_EXPECT_FALSE(test, steps(o, 4));
	mutex_unlock(&qp->sq.from.lock);
	KUNIT_EXPECT_EQ(test, IB_QPS_ERR, keel_qp_state(qp));
	KUNIT_ASSERT_EQ(test, 1, p->a.wcs);
	KUNIT_EXPECT_EQ(test, 7, p->a.wc[0].wr_id);

	KUNIT_EXPECT_TRUE(test, steps(o, 100));
	KUNIT_ASSERT_EQ(test, 2, p->a.wcs);
	KUNIT_EXPECT_EQ(test, 1, p->a.wc[1].wr_id);
	KUNIT_EXPECT_EQ(test, IB_WC_WR_FLUSH_ERR, p->a.wc[0].status);
	KUNIT_EXPECT_EQ(test, IB_WC_WR_FLUSH_ERR, p->a.wc[1].status);
	end_send_silently(p, &p->a, 2, OWNER_LEN);
	/* This schedules the QP. */
	end_recv(p, &p->a, 8, 0, OWNER_LEN);
	KUNIT_EXPECT_TRUE(test, steps(o, 100));
	KUNIT_EXPECT_EQ(test, 2, p->a.wcs);
}

/*
 * ISO-1: whoever ends a dead worker calls its jobs. Fails if that thread flushes a QP for
 * the dead process.
 */
static void iso_1_qp_orphan_left(struct kunit *test)
{
	struct pair *p = test->priv;
	struct owner *o = owner;
	struct keel_qp *qp = owner_dies(o, IB_QPT_RC);

	end_recv(p, &p->a, 7, 0, OWNER_LEN);
	end_send_silently(p, &p->a, 1, OWNER_LEN);
	keel_orphans_set(&o->user->orphans, KEEL_ORPHANS_HOUR);
	/* The reference of the job. */
	keel_obj_get(&qp->obj);
	keel_qp_job(&qp->job, false);
	end_collect(&p->a);
	KUNIT_EXPECT_EQ(test, 0, p->a.wcs);
	KUNIT_EXPECT_EQ(test, IB_QPS_RTS, keel_qp_state(qp));
	KUNIT_EXPECT_TRUE(test, steps(o, 100));
	KUNIT_EXPECT_EQ(test, 2, p->a.wcs);
}

/*
 * The flush for a dead process was done, and the QP is scheduled once more. Fails if this
 * clears the flag that asks for a doorbell: another process that posts a receive WQE would
 * not learn that the QP is in the error state.
 */
static void qp_orphan_flag(struct kunit *test)
{
	struct owner *o = owner;
	struct keel_qp *qp = owner_dies(o, IB_QPT_RC);

	keel_qp_fail(qp, IB_QPS_ERR, KEEL_EVENT_NONE);
	KUNIT_EXPECT_TRUE(test, steps(o, 100));
	WRITE_ONCE(qp->rq.ring.head->flags, KEEL_RING_F_DOORBELL);
	WRITE_ONCE(qp->rq.wanted, true);
	keel_qp_schedule(qp);
	KUNIT_EXPECT_TRUE(test, steps(o, 100));
	KUNIT_EXPECT_FALSE(test, qp->rq.wanted);
	KUNIT_EXPECT_EQ(test, KEEL_RING_F_DOORBELL, qp->rq.ring.head->flags);
}

/* Let the work of a QP take one step in this thread. Returns true if there is more. */
static bool one_step(struct keel_qp *qp)
{
	qp->orphan.run(&qp->orphan);
	return qp->go_on;
}

/* As owner_dies(), with many WQEs in a queue, and no thread works for the user. */
static struct keel_qp *dies_with_many(struct owner *o, bool recv)
{
	struct keel_qp *qp;
	int i;

	o->p->one_cq = true;
	o->p->wrs = MANY;
	qp = owner_dies(o, IB_QPT_RC);
	keel_orphans_set(&o->user->orphans, KEEL_ORPHANS_HOUR);
	for (i = 0; i < MANY; i++)
		if (recv)
			end_recv(o->p, &o->p->a, i, 0, OWNER_LEN);
		else
			end_send_silently(o->p, &o->p->a, i, OWNER_LEN);
	return qp;
}

/* Poll all CQEs, of WQEs that were flushed, from @first on. Returns their number. */
static unsigned int flushed(struct pair *p, unsigned int first)
{
	struct ib_wc wc;
	unsigned int n;

	for (n = 0; ib_poll_cq(p->a.cq, 1, &wc) == 1; n++) {
		KUNIT_EXPECT_EQ(p->test, first + n, wc.wr_id);
		KUNIT_EXPECT_EQ(p->test, IB_WC_WR_FLUSH_ERR, wc.status);
	}
	return n;
}

/* ISO-2: a long queue is flushed in steps, between which others have their turn. */
static void iso_2_qp_orphan_steps(struct kunit *test)
{
	struct pair *p = test->priv;
	struct keel_qp *qp = dies_with_many(owner, false);

	KUNIT_EXPECT_TRUE(test, one_step(qp));
	KUNIT_EXPECT_EQ(test, STEP, flushed(p, 0));
	one_step(qp);
	KUNIT_EXPECT_EQ(test, MANY - STEP, flushed(p, STEP));
	KUNIT_EXPECT_FALSE(test, one_step(qp));
	KUNIT_EXPECT_EQ(test, 0, flushed(p, MANY));
}

/* ISO-2: so is a receive queue. */
static void iso_2_qp_orphan_recv_steps(struct kunit *test)
{
	struct pair *p = test->priv;
	struct keel_qp *qp = dies_with_many(owner, true);

	keel_qp_fail(qp, IB_QPS_ERR, KEEL_EVENT_NONE);
	KUNIT_EXPECT_TRUE(test, one_step(qp));
	KUNIT_EXPECT_EQ(test, STEP, flushed(p, 0));
	one_step(qp);
	KUNIT_EXPECT_EQ(test, MANY - STEP, flushed(p, STEP));
	KUNIT_EXPECT_FALSE(test, one_step(qp));
	KUNIT_EXPECT_EQ(test, 0, flushed(p, MANY));
	/* The posts have queued the work, and the destroy of the QP finds it queued. */
	KUNIT_EXPECT_TRUE(test, keel_orphans_look(&owner->user->orphans));
}

/*
 * ISO-2: another process takes the QP over in the middle of the flush, and its worker
 * flushes the rest. Fails if a WQE is flushed twice, or not at all, or if the work of the
 * dead process goes on.
 */
static void iso_2_qp_orphan_taken(struct kunit *test)
{
	unsigned long until = jiffies + TEST_PATIENCE;
	struct pair *p = test->priv;
	struct owner *o = owner;
	struct keel_qp *qp = dies_with_many(o, false);
	unsigned int n;

	KUNIT_EXPECT_TRUE(test, one_step(qp));
	n = flushed(p, 0);
	KUNIT_EXPECT_EQ(test, STEP, n);
	qp->context = &o->ctx.ib;
	KUNIT_EXPECT_EQ(test, 0, keel_qp_own_worker(qp));
	KUNIT_EXPECT_FALSE(test, keel_qp_is_orphan(qp));
	while (n < MANY && time_before(jiffies, until)) {
		n += flushed(p, n);
		usleep_range(1000, 2000);
	}
	KUNIT_EXPECT_EQ(test, MANY, n);
	KUNIT_EXPECT_EQ(test, 0, READ_ONCE(qp->send_left));
	KUNIT_EXPECT_EQ(test, 0, READ_ONCE(qp->recv_left));
	/* If it is queued nevertheless, the worker gets it. */
	KUNIT_EXPECT_TRUE(test, one_step(qp));
	KUNIT_EXPECT_EQ(test, 0, flushed(p, n));
	qp->context = NULL;
}

/*
 * ISO-1: a UD QP keeps a datagram whose memory its process was to provide. Fails if the QP
 * stays usable after the death of the process: it accepts no datagram any more. Without
 * such a datagram, it does.
 */
static void iso_1_qp_orphan_dgram(struct kunit *test)
{
	struct keel_dgram *dgram = kunit_kzalloc(test, sizeof(*dgram), GFP_KERNEL);
	struct keel_qp *qp = owner_dies(owner, IB_QPT_UD);

	KUNIT_ASSERT_NOT_NULL(test, dgram);
	qp->resp.dgram = dgram;
	KUNIT_EXPECT_FALSE(test, one_step(qp));
	KUNIT_EXPECT_EQ(test, IB_QPS_RTS, keel_qp_state(qp));
	dgram->pending = true;
	one_step(qp);
	qp->resp.dgram = NULL;
	KUNIT_EXPECT_EQ(test, IB_QPS_ERR, keel_qp_state(qp));
}

/* ISO-1: no process runs an XRC_RECV QP. Its flush does not wait for a requester. */
static void iso_1_qp_orphan_xrc(struct kunit *test)
{
	struct pair *p = test->priv;
	struct keel_qp *qp;

	p->with_srq = true;
	pair_make(p, IB_QPT_RC);
	pair_connect(p);
	qp = to_kqp(p->b.qp);
	KUNIT_EXPECT_FALSE(test, one_step(qp));
	keel_qp_fail(qp, IB_QPS_ERR, KEEL_EVENT_NONE);
	mutex_lock(&qp->resp.lock);
	KUNIT_EXPECT_TRUE(test, one_step(qp));
	mutex_unlock(&qp->resp.lock);
	KUNIT_EXPECT_FALSE(test, one_step(qp));
}

static struct kunit_case orphan_cases[] = {
	KUNIT_CASE(iso_2_qp_orphan_flush),
	KUNIT_CASE(iso_1_qp_orphan_left),
	KUNIT_CASE(qp_orphan_flag),
	KUNIT_CASE(iso_2_qp_orphan_steps),
	KUNIT_CASE(iso_2_qp_orphan_recv_steps),
	KUNIT_CASE(iso_2_qp_orphan_taken),
	KUNIT_CASE(iso_1_qp_orphan_dgram),
	KUNIT_CASE(iso_1_qp_orphan_xrc),
	{}
};

static struct kunit_suite orphan_suite = {
	.name = "keel_qp_orphan",
	.suite_init = pair_suite_init,
	.suite_exit = pair_suite_exit,
	.init = owner_init,
	.exit = owner_exit,
	.test_cases = orphan_cases,
};
kunit_test_suite(orphan_suite);
