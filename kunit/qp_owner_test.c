// SPDX-License-Identifier: GPL-2.0
/*
 * QPs that have the worker of a process, which lives or is replaced: see qp_owner.h.
 */
#include <linux/delay.h>

#include <kunit/static_stub.h>

#include "keel_point.h"
#include "qp_owner.h"

static unsigned int qp_refs(struct ib_qp *qp)
{
	return kref_read(&to_kqp(qp)->obj.ref);
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
	    mutex_is_locked(&to_kqp(o->p->a.qp)->sq.from.lock) && !o->visits++)
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
	end_send_silently(p, &p->a, 1, OWNER_LEN);
	KUNIT_EXPECT_EQ(test, 0, keel_qp_run(to_kqp(p->a.qp)));
	end_collect(&p->a);
	KUNIT_ASSERT_EQ(test, 0, p->a.wcs);
	worker_test_hold(&o->t, o->t.worker);
	refs = qp_refs(p->a.qp);
	WRITE_ONCE(keel_point_hook.hit, owner_hook);
	end_recv(p, &p->b, 7, 0, OWNER_LEN);
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
	KUNIT_EXPECT_TRUE(test, keel_events_are_ours(events[0]));
	worker_test_stop(&o->t.workers);
	/* Nobody would wake the requesters that wait for an SRQ. */
	KUNIT_EXPECT_FALSE(test, keel_events_are_ours(events[0]));
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

/*
 * A send was missing memory, and is not any more. Fails if the references on the memory and
 * on its worker are not dropped.
 */
static void qp_owner_need(struct kunit *test)
{
	struct keel_turn turn = { .doorbell = true, .until = U64_MAX };
	struct pair *p = test->priv;
	struct owner *o = owner;
	unsigned int refs;
	struct keel_qp *qp;
	int mm_refs;

	owner_open(o);
	pair_make(p, IB_QPT_RC);
	pair_connect(p);
	qp = to_kqp(p->a.qp);
	refs = kref_read(&o->t.worker->ref);
	mm_refs = atomic_read(&current->mm->mm_count);
	mmgrab(current->mm);
	keel_worker_get(o->t.worker);
	qp->sq.from.fetch.ctl.need = (struct keel_need){
		.kind = KEEL_NEED_PAGES, .mm = current->mm, .worker = o->t.worker,
	};
	KUNIT_EXPECT_TRUE(test, keel_sq_run(qp, &turn));
	KUNIT_EXPECT_EQ(test, KEEL_NEED_NONE, qp->sq.from.fetch.ctl.need.kind);
	KUNIT_EXPECT_EQ(test, refs, kref_read(&o->t.worker->ref));
	KUNIT_EXPECT_EQ(test, mm_refs, atomic_read(&current->mm->mm_count));
}

static struct kunit_case owner_cases[] = {
	KUNIT_CASE(qp_run_peer),
	KUNIT_CASE(qp_owner_job),
	KUNIT_CASE(iso_2_qp_owner_events),
	KUNIT_CASE(qp_owner_need),
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
