// SPDX-License-Identifier: GPL-2.0
/*
 * QPs that have the worker of a process. The process is that of the test, whose thread
 * gets memory of its own. In all else the QPs are those of a kernel consumer.
 */
#include <linux/delay.h>
#include <linux/mm.h>
#include <linux/sched.h>

#include <kunit/static_stub.h>

#include "keel_point.h"
#include "pair.h"
#include "worker_jobs.h"

#define LEN	100
/* Of a user that the device does not have yet. */
#define USER_ID	4000000000ULL

/**
 * struct owner - what a test has
 * @p: the QPs
 * @t: the first worker of the test
 * @ctx: a context, which has nothing but workers
 * @mine: the worker of the test in @ctx, or NULL
 * @user: a user who has the requester, or NULL
 * @visits: how often the thread of the test has left the send queue of the requester
 * @refs: references on the requester at the first visit
 */
struct owner {
	struct pair *p;
	struct worker_test t;
	struct keel_ib_ctx ctx;
	struct keel_worker *mine;
	struct keel_user *user;
	int visits;
	unsigned int refs;
};

static struct owner *owner;

static unsigned int qp_refs(struct ib_qp *qp)
{
	return kref_read(&to_kqp(qp)->obj.ref);
}

static int owner_init(struct kunit *test)
{
	struct owner *o;
	int ret = pair_init(test);

	if (ret)
		return ret;
	o = kunit_kzalloc(test, sizeof(*o), GFP_KERNEL);
	if (!o)
		return -ENOMEM;
	o->p = test->priv;
	worker_test_setup(&o->t, test);
	keel_workers_setup(&o->ctx.workers);
	owner = o;
	return 0;
}

/* Give the requester a user, who is charged nothing. Its work is then that of the user. */
static void owner_charge(struct owner *o)
{
	struct keel_obj *obj = &to_kqp(o->p->a.qp)->obj;

	o->user = keel_user_get(&obj->reg->quotas, USER_ID, GFP_KERNEL);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(o->t.test, o->user);
	obj->user = o->user;
}

static void owner_disown(struct owner *o)
{
	struct keel_qp *qp;

	if (IS_ERR_OR_NULL(o->user))
		return;
	qp = to_kqp(o->p->a.qp);
	/* A step that runs may queue itself again. */
	keel_orphan_flush(&qp->orphan);
	while (keel_qp_cancel_orphan(qp)) {
		keel_obj_put(&qp->obj);
		keel_orphan_flush(&qp->orphan);
	}
	qp->obj.user = NULL;
	keel_user_put(o->user);
}

static void owner_exit(struct kunit *test)
{
	struct owner *o = owner;

	WRITE_ONCE(keel_point_hook.hit, NULL);
	owner = NULL;
	if (o) {
		worker_test_release(&o->t);
		owner_disown(o);
	}
	pair_exit(test);
	if (!o)
		return;
	worker_test_end(&o->t);
	keel_workers_stop(&o->ctx.workers);
	keel_worker_put(o->mine);
}

/* Give the thread of the test a worker in each of three lists. */
static void owner_open(struct owner *o)
{
	struct keel_worker *worker;

	worker_test_open(&o->t);
	worker = worker_of_thread(&o->ctx.workers);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(o->t.test, worker);
	o->mine = worker;
}

/* Give a QP a worker. The destroy of the QP drops the reference. */
static void owner_give(const struct end *end, struct keel_worker *worker)
{
	struct keel_qp *qp = to_kqp(end->qp);

	keel_worker_get(worker);
	guard(spinlock)(&qp->state_lock);
	qp->worker = worker;
}

/*
 * The post of a process runs the QP; that of a kernel consumer would only schedule it.
 * No other thread has the send queue of the requester, because its worker is kept.
 */
static void owner_hook(const char *name)
{
	struct owner *o = owner;

	if (current != o->t.task)
		return;
	if (!strcmp(name, "recv_posted"))
		keel_qp_run(to_kqp(o->p->b.qp));
	if (!strcmp(name, "sq_drained") &&
	    mutex_is_locked(&to_kqp(o->p->a.qp)->sq.lock) && !o->visits++)
		o->refs = qp_refs(o->p->a.qp);
}

/*
 * A receive WQE is posted for which a requester of the same process waits. Fails if the
 * thread that posts leaves the requester to the worker, or if it runs the requester
 * without a reference on it.
 */
static void qp_run_peer(struct kunit *test)
{
	struct pair *p = test->priv;
	struct owner *o = owner;
	unsigned long until = jiffies + TEST_PATIENCE;
	unsigned int refs;

	owner_open(o);
	pair_make(p, IB_QPT_RC);
	pair_connect(p);
	owner_give(&p->a, o->t.worker);
	end_send_silently(p, &p->a, 1, LEN);
	KUNIT_EXPECT_EQ(test, 0, keel_qp_run(to_kqp(p->a.qp)));
	end_collect(&p->a);
	KUNIT_ASSERT_EQ(test, 0, p->a.wcs);
	worker_test_hold(&o->t, o->t.worker);
	refs = qp_refs(p->a.qp);
	WRITE_ONCE(keel_point_hook.hit, owner_hook);
	end_recv(p, &p->b, 7, 0, LEN);
	WRITE_ONCE(keel_point_hook.hit, NULL);
	KUNIT_EXPECT_EQ(test, 1, o->visits);
	KUNIT_EXPECT_EQ(test, refs + 1, o->refs);
	/* On a busy machine, the worker has to do the rest. */
	worker_test_release(&o->t);
	pair_settle(p, &p->a, 1);
	KUNIT_EXPECT_EQ(test, IB_WC_SUCCESS, p->a.wc[0].status);
	while (qp_refs(p->a.qp) != refs && time_before(jiffies, until))
		usleep_range(1000, 2000);
	KUNIT_EXPECT_EQ(test, refs, qp_refs(p->a.qp));
}

static unsigned int cancelled, queued;

static bool cancel_stub(struct keel_worker *worker, struct keel_job *job)
{
	cancelled += worker == owner->t.worker && job == &to_kqp(owner->p->a.qp)->job;
	return true;
}

static int queue_stub(struct keel_worker *worker, struct keel_job *job)
{
	queued += worker == owner->mine && job == &to_kqp(owner->p->a.qp)->job;
	return 1;
}

/*
 * A process takes over a QP whose worker is dead. Fails if the reference of the job that
 * was left is not dropped, or if the new worker gets no job.
 */
static void qp_owner_job(struct kunit *test)
{
	struct pair *p = test->priv;
	struct owner *o = owner;
	struct keel_qp *qp;
	unsigned int refs;

	owner_open(o);
	pair_make(p, IB_QPT_RC);
	qp = to_kqp(p->a.qp);
	owner_give(&p->a, o->t.worker);
	KUNIT_EXPECT_FALSE(test, keel_qp_is_orphan(qp));
	worker_test_stop(&o->t.workers);
	KUNIT_EXPECT_TRUE(test, keel_qp_is_orphan(qp));

	qp->context = &o->ctx.ib;
	refs = qp_refs(p->a.qp);
	/* The reference of the job that was left. */
	keel_obj_get(&qp->obj);
	cancelled = 0;
	queued = 0;
	kunit_activate_static_stub(test, keel_job_cancel, cancel_stub);
	kunit_activate_static_stub(test, keel_job_queue, queue_stub);
	KUNIT_EXPECT_EQ(test, 0, keel_qp_own_worker(qp));
	kunit_deactivate_static_stub(test, keel_job_queue);
	kunit_deactivate_static_stub(test, keel_job_cancel);
	qp->context = NULL;
	KUNIT_EXPECT_EQ(test, 1, cancelled);
	KUNIT_EXPECT_EQ(test, 1, queued);
	KUNIT_EXPECT_FALSE(test, keel_qp_is_orphan(qp));
	/* The reference of the new job, which will not run. */
	KUNIT_ASSERT_EQ(test, refs + 1, qp_refs(p->a.qp));
	keel_obj_put(&qp->obj);
}

/* Let a worker raise the events of an object. The destroy drops the reference. */
static void owner_raises(struct keel_events *events, struct keel_worker *worker)
{
	keel_worker_get(worker);
	guard(spinlock_irqsave)(&events->lock);
	events->worker = worker;
}

/*
 * ISO-2: a process has a worker that runs a QP, but a process that is dead has created
 * the queues. Fails if a doorbell leaves the events of one of them to the workqueue.
 */
static void iso_2_qp_owner_events(struct kunit *test)
{
	struct pair *p = test->priv;
	struct owner *o = owner;
	struct keel_events *events[4];
	struct keel_cq *send_cq;
	struct keel_qp *qp;
	unsigned int i;

	owner_open(o);
	p->with_srq = true;
	pair_make(p, IB_QPT_RC);
	qp = to_kqp(p->b.qp);
	owner_give(&p->b, o->mine);
	events[0] = &qp->events;
	events[1] = &to_kqp(p->a.qp)->send_cq->events;
	events[2] = &qp->recv_cq->events;
	events[3] = &qp->srq->events;
	for (i = 0; i < ARRAY_SIZE(events); i++)
		owner_raises(events[i], o->t.worker);
	worker_test_stop(&o->t.workers);
	for (i = 0; i < ARRAY_SIZE(events); i++)
		KUNIT_EXPECT_TRUE_MSG(test, keel_events_are_orphaned(events[i]), "%u", i);

	/* The QPs of a pair have one CQ each. No assertion ends the test from here on. */
	send_cq = qp->send_cq;
	qp->send_cq = to_kqp(p->a.qp)->send_cq;
	qp->context = &o->ctx.ib;
	KUNIT_EXPECT_EQ(test, 0, keel_qp_run(qp));
	qp->context = NULL;
	qp->send_cq = send_cq;
	for (i = 0; i < ARRAY_SIZE(events); i++)
		KUNIT_EXPECT_FALSE_MSG(test, keel_events_are_orphaned(events[i]), "%u", i);
}

/* Let the work of orphans take some steps, and return whether it has ended. */
static bool owner_steps(struct owner *o, int steps)
{
	struct keel_orphans *orphans = &o->user->orphans;

	while (steps-- && keel_orphans_look(orphans))
		keel_orphans_set(orphans, 0);
	end_collect(&o->p->a);
	return !keel_orphans_look(orphans);
}

/*
 * ISO-2: the QP of a dead process is flushed once. Fails if a step that did not get the
 * lock of a queue waits for it, or counts as the flush; or if there is a second flush.
 */
static void iso_2_qp_owner_flush(struct kunit *test)
{
	struct pair *p = test->priv;
	struct owner *o = owner;
	struct keel_qp *qp;

	owner_open(o);
	pair_make(p, IB_QPT_RC);
	pair_connect(p);
	qp = to_kqp(p->a.qp);
	owner_charge(o);
	owner_give(&p->a, o->t.worker);
	worker_test_stop(&o->t.workers);
	end_recv(p, &p->a, 7, 0, LEN);
	end_send_silently(p, &p->a, 1, LEN);
	mutex_lock(&qp->sq.lock);
	mutex_lock(&qp->resp.lock);
	keel_qp_schedule(qp);
	KUNIT_EXPECT_FALSE(test, owner_steps(o, 4));
	KUNIT_EXPECT_EQ(test, 0, p->a.wcs);
	mutex_unlock(&qp->resp.lock);
	KUNIT_EXPECT_FALSE(test, owner_steps(o, 4));
	mutex_unlock(&qp->sq.lock);
	KUNIT_EXPECT_EQ(test, IB_QPS_ERR, keel_qp_state(qp));
	KUNIT_ASSERT_EQ(test, 1, p->a.wcs);
	KUNIT_EXPECT_EQ(test, 7, p->a.wc[0].wr_id);

	KUNIT_EXPECT_TRUE(test, owner_steps(o, 100));
	KUNIT_ASSERT_EQ(test, 2, p->a.wcs);
	KUNIT_EXPECT_EQ(test, 1, p->a.wc[1].wr_id);
	KUNIT_EXPECT_EQ(test, IB_WC_WR_FLUSH_ERR, p->a.wc[0].status);
	KUNIT_EXPECT_EQ(test, IB_WC_WR_FLUSH_ERR, p->a.wc[1].status);
	end_send_silently(p, &p->a, 2, LEN);
	/* This schedules the QP. */
	end_recv(p, &p->a, 8, 0, LEN);
	KUNIT_EXPECT_TRUE(test, owner_steps(o, 100));
	KUNIT_EXPECT_EQ(test, 2, p->a.wcs);
}

/*
 * ISO-1: whoever ends a dead worker calls its jobs. Fails if that thread flushes a QP for
 * the dead process.
 */
static void iso_1_qp_owner_left(struct kunit *test)
{
	struct pair *p = test->priv;
	struct owner *o = owner;
	struct keel_qp *qp;

	owner_open(o);
	pair_make(p, IB_QPT_RC);
	pair_connect(p);
	qp = to_kqp(p->a.qp);
	owner_charge(o);
	owner_give(&p->a, o->t.worker);
	worker_test_stop(&o->t.workers);
	end_recv(p, &p->a, 7, 0, LEN);
	end_send_silently(p, &p->a, 1, LEN);
	keel_orphans_set(&o->user->orphans, KTIME_MAX);
	/* The reference of the job. */
	keel_obj_get(&qp->obj);
	keel_qp_job(&qp->job, false);
	end_collect(&p->a);
	KUNIT_EXPECT_EQ(test, 0, p->a.wcs);
	KUNIT_EXPECT_EQ(test, IB_QPS_RTS, keel_qp_state(qp));
	KUNIT_EXPECT_TRUE(test, owner_steps(o, 100));
	KUNIT_EXPECT_EQ(test, 2, p->a.wcs);
}

/*
 * The flush for a dead process was done, and the QP is scheduled once more. Fails if this
 * clears the flag that asks for a doorbell: another process that posts a receive WQE would
 * not learn that the QP is in the error state.
 */
static void qp_owner_flag(struct kunit *test)
{
	struct pair *p = test->priv;
	struct owner *o = owner;
	struct keel_qp *qp;

	owner_open(o);
	pair_make(p, IB_QPT_RC);
	pair_connect(p);
	qp = to_kqp(p->a.qp);
	owner_charge(o);
	owner_give(&p->a, o->t.worker);
	worker_test_stop(&o->t.workers);
	keel_qp_fail(qp, IB_QPS_ERR, KEEL_EVENT_NONE);
	KUNIT_EXPECT_TRUE(test, owner_steps(o, 100));
	WRITE_ONCE(qp->rq.ring.head->flags, KEEL_RING_F_DOORBELL);
	WRITE_ONCE(qp->rq.wanted, true);
	keel_qp_schedule(qp);
	KUNIT_EXPECT_TRUE(test, owner_steps(o, 100));
	KUNIT_EXPECT_FALSE(test, qp->rq.wanted);
	KUNIT_EXPECT_EQ(test, KEEL_RING_F_DOORBELL, qp->rq.ring.head->flags);
}

static struct kunit_case owner_cases[] = {
	KUNIT_CASE(qp_run_peer),
	KUNIT_CASE(qp_owner_job),
	KUNIT_CASE(iso_2_qp_owner_events),
	KUNIT_CASE(iso_2_qp_owner_flush),
	KUNIT_CASE(iso_1_qp_owner_left),
	KUNIT_CASE(qp_owner_flag),
	{}
};

static struct kunit_suite owner_suite = {
	.name = "keel_qp_owner",
	.suite_init = pair_suite_init,
	.suite_exit = pair_suite_exit,
	.init = owner_init,
	.exit = owner_exit,
	.test_cases = owner_cases,
};
kunit_test_suite(owner_suite);
