// SPDX-License-Identifier: GPL-2.0
/*
 * Polling of a send queue by the worker of a process: see qp_owner.h.
 */
#include <linux/cpumask.h>
#include <linux/delay.h>
#include <linux/sched.h>

#include <kunit/static_stub.h>

#include "keel_point.h"
#include "qp_owner.h"

/* Longer than a test. */
#define LONG_US		(600 * USEC_PER_SEC)
#define SHORT_US	1000

/**
 * struct polling - what a test has
 * @qp: the requester
 * @refs: references on the requester before it was polled
 * @flag: the flags of the ring, where a hook reads them
 * @late: post a message at the point where the flag was cleared
 * @destroys: destroy the QP at the point where it is to be polled
 */
static struct polling {
	struct keel_qp *qp;
	unsigned int refs;
	u32 flag;
	bool late;
	bool destroys;
} polling;

static bool replace_stub(const struct keel_worker *worker)
{
	return true;
}

static bool keep_stub(const struct keel_worker *worker)
{
	return false;
}

static u32 ring_flags(void)
{
	return READ_ONCE(polling.qp->sq.ring.head->flags);
}

static bool is_polled(void)
{
	guard(spinlock)(&polling.qp->state_lock);
	return polling.qp->polled;
}

static unsigned int qp_refs(void)
{
	return kref_read(&polling.qp->obj.ref);
}

static u64 polls(void)
{
	return pair_counter(owner->p, KEEL_CTR_sq_polls);
}

/* Two QPs in RTS, the first with the worker of this process, which waits in a job. */
static void setup(struct kunit *test, unsigned int us)
{
	struct pair *p = test->priv;
	struct owner *o = owner;

	owner_open(o);
	pair_make(p, IB_QPT_RC);
	pair_connect(p);
	polling = (struct polling){ .qp = to_kqp(p->a.qp) };
	owner_give(&p->a, o->t.worker);
	WRITE_ONCE(o->t.worker->poll_us, us);
	polling.refs = qp_refs();
	kunit_activate_static_stub(test, keel_worker_may_replace, replace_stub);
	worker_test_hold(&o->t, o->t.worker);
}

/* Until the QP is not polled any more, and its job has ended. */
static void wait_for_end(struct kunit *test)
{
	unsigned long until = jiffies + TEST_PATIENCE;

	while ((is_polled() || qp_refs() != polling.refs) && time_before(jiffies, until))
		usleep_range(1000, 2000);
	KUNIT_EXPECT_FALSE(test, is_polled());
	KUNIT_EXPECT_EQ(test, 0, ring_flags());
	KUNIT_EXPECT_EQ(test, polling.refs, qp_refs());
}

/* The process asks for no polling any more: it ends at once. */
static void end_polling(struct kunit *test)
{
	WRITE_ONCE(owner->t.worker->poll_us, 0);
	wait_for_end(test);
}

/* A doorbell after a post. */
static void doorbell(void)
{
	WRITE_ONCE(polling.qp->poll_user, polling.qp->sq.ring.head->user - 1);
	keel_qp_poll(polling.qp);
}

static void expect_none(struct kunit *test, const char *why)
{
	u64 before = polls();

	doorbell();
	KUNIT_EXPECT_FALSE_MSG(test, is_polled(), "%s", why);
	KUNIT_EXPECT_EQ_MSG(test, 0, ring_flags(), "%s", why);
	KUNIT_EXPECT_EQ_MSG(test, polling.refs, qp_refs(), "%s", why);
	KUNIT_EXPECT_EQ_MSG(test, before, polls(), "%s", why);
}

/*
 * Fails if a doorbell begins polling that nobody has asked for, or that another thread
 * should do; or if it begins twice.
 */
static void iso_2_poll_begins(struct kunit *test)
{
	struct owner *o = owner;
	u64 before;

	setup(test, 0);
	expect_none(test, "not asked for");
	WRITE_ONCE(o->t.worker->poll_us, LONG_US);
	kunit_activate_static_stub(test, keel_worker_may_replace, keep_stub);
	expect_none(test, "one processor");
	kunit_activate_static_stub(test, keel_worker_may_replace, replace_stub);

	before = polls();
	/* The job is queued already, for another reason. */
	keel_qp_schedule(polling.qp);
	KUNIT_EXPECT_EQ(test, polling.refs + 1, qp_refs());
	doorbell();
	KUNIT_EXPECT_TRUE(test, is_polled());
	KUNIT_EXPECT_EQ(test, KEEL_RING_F_POLLED, ring_flags());
	KUNIT_EXPECT_TRUE(test, keel_job_is_queued(&polling.qp->job));
	KUNIT_EXPECT_EQ(test, polling.refs + 1, qp_refs());
	doorbell();
	KUNIT_EXPECT_EQ(test, polling.refs + 1, qp_refs());
	KUNIT_EXPECT_EQ(test, before + 1, polls());
	worker_test_release(&o->t);
	end_polling(test);
}

static int announced_stub(struct keel_worker *worker, struct keel_job *job)
{
	return 0;
}

/*
 * Fails if a doorbell for receive WQEs begins polling, of an empty queue or of one that
 * waits: a peer could keep a process polling that sends nothing new.
 */
static void iso_2_poll_receives(struct kunit *test)
{
	struct pair *p = test->priv;

	setup(test, SHORT_US);
	keel_qp_poll(polling.qp);
	KUNIT_EXPECT_FALSE(test, is_polled());
	KUNIT_EXPECT_EQ(test, polling.refs, qp_refs());
	end_send_silently(p, &p->a, 1, OWNER_LEN);
	keel_qp_poll(polling.qp);
	KUNIT_EXPECT_TRUE(test, is_polled());
	worker_test_release(&owner->t);
	wait_for_end(test);
	keel_qp_poll(polling.qp);
	KUNIT_EXPECT_FALSE(test, is_polled());
	end_recv(p, &p->b, 7, 0, OWNER_LEN);
	pair_settle(p, &p->a, 1);
}

/*
 * Wait until the worker has found the WQEs that were posted, and then begun the time again,
 * which ended at @end.
 */
static void wait_found(struct kunit *test, u64 end)
{
	unsigned long until = jiffies + TEST_PATIENCE;
	struct keel_qp *qp = polling.qp;

	while ((READ_ONCE(qp->poll_user) != qp->sq.ring.head->user ||
		READ_ONCE(qp->poll_end) == end) && time_before(jiffies, until))
		usleep_range(1000, 2000);
	KUNIT_ASSERT_EQ(test, qp->sq.ring.head->user, READ_ONCE(qp->poll_user));
}

/*
 * Fails if the peer prolongs polling with receive WQEs for messages that have waited, whether
 * they were posted before a doorbell or while the worker polled.
 */
static void iso_2_poll_prolongs(struct kunit *test)
{
	struct pair *p = test->priv;
	u64 end, last;
	int i;

	setup(test, LONG_US);
	for (i = 0; i < 3; i++)
		end_send_silently(p, &p->a, i, OWNER_LEN);
	doorbell();
	end = READ_ONCE(polling.qp->poll_end);
	worker_test_release(&owner->t);
	for (i = 0; i < 3; i++) {
		end_recv(p, &p->b, i, 0, OWNER_LEN);
		pair_settle(p, &p->a, i + 1);
		KUNIT_EXPECT_EQ(test, end, READ_ONCE(polling.qp->poll_end));
	}
	/* This one is new, and begins the time when it is found, not when it leaves. */
	end_send_silently(p, &p->a, i, OWNER_LEN);
	wait_found(test, end);
	last = READ_ONCE(polling.qp->poll_end);
	KUNIT_EXPECT_GT(test, last, end);
	end_recv(p, &p->b, i, 0, OWNER_LEN);
	pair_settle(p, &p->a, i + 1);
	end_polling(test);
	KUNIT_EXPECT_EQ(test, last, READ_ONCE(polling.qp->poll_end));
}

/*
 * Fails if a doorbell for receive WQEs, for which the peer asks, begins polling for a WQE that
 * was posted without one, or by a thread that may not begin.
 */
static void iso_2_poll_later(struct kunit *test)
{
	struct pair *p = test->priv;
	int i;

	setup(test, SHORT_US);
	end_send_silently(p, &p->a, 1, OWNER_LEN);
	doorbell();
	/* The worker first runs when the process wants no polling any more. */
	end_send_silently(p, &p->a, 2, OWNER_LEN);
	WRITE_ONCE(owner->t.worker->poll_us, 0);
	worker_test_release(&owner->t);
	wait_for_end(test);
	WRITE_ONCE(owner->t.worker->poll_us, SHORT_US);
	keel_qp_poll(polling.qp);
	KUNIT_EXPECT_FALSE(test, is_polled());
	kunit_activate_static_stub(test, keel_worker_may_replace, keep_stub);
	end_send_silently(p, &p->a, 3, OWNER_LEN);
	keel_qp_poll(polling.qp);
	kunit_activate_static_stub(test, keel_worker_may_replace, replace_stub);
	keel_qp_poll(polling.qp);
	KUNIT_EXPECT_FALSE(test, is_polled());
	/* Nobody rang for the last one. */
	keel_qp_schedule(polling.qp);
	for (i = 0; i < 3; i++)
		end_recv(p, &p->b, i, 0, OWNER_LEN);
	pair_settle(p, &p->a, 3);
}

/*
 * The job was announced by another thread when a doorbell began polling, and that thread then
 * found the worker dead. Fails if the flag stays.
 */
static void dev_4_poll_announced(struct kunit *test)
{
	struct keel_orphan *orphan;

	setup(test, LONG_US);
	orphan = &polling.qp->orphan;
	kunit_activate_static_stub(test, keel_job_queue, announced_stub);
	doorbell();
	kunit_deactivate_static_stub(test, keel_job_queue);
	KUNIT_EXPECT_TRUE(test, is_polled());
	KUNIT_EXPECT_EQ(test, polling.refs, qp_refs());
	orphan->run(orphan);
	KUNIT_EXPECT_TRUE(test, is_polled());
	keel_worker_close(owner->t.worker);
	orphan->run(orphan);
	KUNIT_EXPECT_FALSE(test, is_polled());
	KUNIT_EXPECT_EQ(test, 0, ring_flags());
	worker_test_release(&owner->t);
	wait_for_end(test);
}

/* Fails if a worker that is dead is to poll. */
static void poll_nobody(struct kunit *test)
{
	struct owner *o = owner;

	setup(test, LONG_US);
	keel_worker_close(o->t.worker);
	expect_none(test, "dead worker");
}

static int dead_stub(struct keel_worker *worker, struct keel_job *job)
{
	return -ESRCH;
}

/*
 * The worker dies while a doorbell begins polling. Fails if the flag stays, or if nobody
 * looks for what was posted while it was set.
 */
static void dev_4_poll_dies(struct kunit *test)
{
	struct pair *p = test->priv;

	setup(test, LONG_US);
	end_recv(p, &p->b, 7, 0, OWNER_LEN);
	end_send_silently(p, &p->a, 1, OWNER_LEN);
	kunit_activate_static_stub(test, keel_job_queue, dead_stub);
	doorbell();
	kunit_deactivate_static_stub(test, keel_job_queue);
	KUNIT_EXPECT_FALSE(test, is_polled());
	KUNIT_EXPECT_EQ(test, 0, ring_flags());
	/* The QP has no user, so the workqueue runs it. */
	pair_settle(p, &p->a, 1);
	wait_for_end(test);
}

/* Fails if messages that are posted without a doorbell are not sent, or polling ends. */
static void dev_4_poll_sends(struct kunit *test)
{
	struct pair *p = test->priv;
	int i;

	setup(test, LONG_US);
	doorbell();
	worker_test_release(&owner->t);
	for (i = 0; i < 8; i++) {
		end_recv(p, &p->b, i, 0, OWNER_LEN);
		end_send_silently(p, &p->a, i, OWNER_LEN);
		pair_settle(p, &p->a, i + 1);
		KUNIT_ASSERT_EQ(test, i + 1, p->b.wcs);
		KUNIT_EXPECT_EQ(test, IB_WC_SUCCESS, p->a.wc[i].status);
		KUNIT_EXPECT_EQ(test, i, p->b.wc[i].wr_id);
		KUNIT_EXPECT_EQ(test, -1, end_differs(&p->b, 0, &p->a, 0, OWNER_LEN));
		KUNIT_EXPECT_EQ(test, KEEL_RING_F_POLLED, ring_flags());
	}
	end_polling(test);
}

/* ISO-3: fails if a message that waits for its peer keeps the worker polling. */
static void iso_3_poll_waits(struct kunit *test)
{
	struct pair *p = test->priv;

	setup(test, SHORT_US);
	end_send_silently(p, &p->a, 1, OWNER_LEN);
	doorbell();
	worker_test_release(&owner->t);
	wait_for_end(test);
	end_collect(&p->a);
	KUNIT_EXPECT_EQ(test, 0, p->a.wcs);
	end_recv(p, &p->b, 7, 0, OWNER_LEN);
	pair_settle(p, &p->a, 1);
	KUNIT_EXPECT_EQ(test, IB_WC_SUCCESS, p->a.wc[0].status);
}

static void polling_hook(const char *name)
{
	if (!strcmp(name, "qp_may_poll") && polling.destroys) {
		polling.destroys = false;
		KUNIT_EXPECT_EQ(kunit_get_current_test(), 0,
				ib_destroy_qp(owner->p->a.qp));
		owner->p->a.qp = NULL;
	}
	if (!strcmp(name, "qp_unpolled") && polling.late) {
		polling.late = false;
		end_send_silently(owner->p, &owner->p->a, 1, OWNER_LEN);
	}
	/* In the destroy, behind all that may write to the ring. */
	if (!strcmp(name, "qp_changed"))
		polling.flag = ring_flags();
}

/*
 * A message is posted while the flag is set, and the worker clears it just then: no
 * doorbell rings. Fails if the worker does not look once more.
 */
static void order_poll_last_look(struct kunit *test)
{
	struct pair *p = test->priv;

	setup(test, SHORT_US);
	end_recv(p, &p->b, 7, 0, OWNER_LEN);
	polling.late = true;
	WRITE_ONCE(keel_point_hook.hit, polling_hook);
	doorbell();
	worker_test_release(&owner->t);
	wait_for_end(test);
	WRITE_ONCE(keel_point_hook.hit, NULL);
	KUNIT_EXPECT_FALSE(test, polling.late);
	pair_settle(p, &p->a, 1);
	KUNIT_EXPECT_EQ(test, IB_WC_SUCCESS, p->a.wc[0].status);
}

/*
 * The process is killed. Fails if the flag stays, for which others would ring no doorbell,
 * or if what was posted is left.
 */
static void dev_4_poll_killed(struct kunit *test)
{
	struct pair *p = test->priv;
	struct owner *o = owner;

	setup(test, LONG_US);
	end_recv(p, &p->b, 7, 0, OWNER_LEN);
	end_send_silently(p, &p->a, 1, OWNER_LEN);
	doorbell();
	keel_worker_close(o->t.worker);
	worker_test_release(&o->t);
	worker_test_stop(&o->t.workers);
	wait_for_end(test);
	/* The QP has no user, so the workqueue runs it. */
	pair_settle(p, &p->a, 1);
}

/* The same for a process that takes the QP over before the job of the dead worker runs. */
static void dev_4_poll_takeover(struct kunit *test)
{
	struct owner *o = owner;

	setup(test, LONG_US);
	doorbell();
	keel_worker_close(o->t.worker);
	polling.qp->context = &o->ctx.ib;
	KUNIT_EXPECT_EQ(test, 0, keel_qp_own_worker(polling.qp));
	polling.qp->context = NULL;
	KUNIT_EXPECT_FALSE(test, is_polled());
	KUNIT_EXPECT_EQ(test, 0, ring_flags());
	worker_test_release(&o->t);
	wait_for_end(test);
}

/* Until the worker polls. */
static void poll_begin(struct kunit *test)
{
	unsigned long until = jiffies + TEST_PATIENCE;

	setup(test, LONG_US);
	doorbell();
	worker_test_release(&owner->t);
	while (keel_job_is_queued(&polling.qp->job) && time_before(jiffies, until))
		usleep_range(1000, 2000);
	KUNIT_EXPECT_FALSE(test, keel_job_is_queued(&polling.qp->job));
}

/*
 * Fails if the thread goes on to poll while work waits for its return to userspace: the last
 * fput() of a file, or the limit of its cgroup.
 */
static void iso_2_poll_returns(struct kunit *test)
{
	unsigned long until = jiffies + TEST_PATIENCE;
	struct task_struct *task;

	poll_begin(test);
	task = owner->t.jobs[0].task;
	set_tsk_thread_flag(task, TIF_NOTIFY_RESUME);
	while (test_tsk_thread_flag(task, TIF_NOTIFY_RESUME) && time_before(jiffies, until))
		usleep_range(1000, 2000);
	KUNIT_EXPECT_FALSE(test, test_tsk_thread_flag(task, TIF_NOTIFY_RESUME));
	KUNIT_EXPECT_EQ(test, KEEL_RING_F_POLLED, ring_flags());
	end_polling(test);
}

/* The process moves the worker to one processor. Fails if it goes on to poll. */
static void iso_1_poll_alone(struct kunit *test)
{
	struct pair *p = test->priv;

	poll_begin(test);
	KUNIT_EXPECT_EQ(test, 0, set_cpus_allowed_ptr(owner->t.jobs[0].task,
						      cpumask_of(0)));
	end_recv(p, &p->b, 1, 0, OWNER_LEN);
	end_send_silently(p, &p->a, 1, OWNER_LEN);
	pair_settle(p, &p->a, 1);
	wait_for_end(test);
}

/* Fails if a reset leaves the QP polled, of which userspace does not know any more. */
static void dev_4_poll_reset(struct kunit *test)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_RESET };
	struct pair *p = test->priv;

	poll_begin(test);
	KUNIT_EXPECT_EQ(test, 0, ib_modify_qp(p->a.qp, &attr, IB_QP_STATE));
	KUNIT_EXPECT_FALSE(test, is_polled());
	wait_for_end(test);
}

/* Fails if the destroy waits for the end of polling, or leaves the flag. */
static void dev_3_poll_destroyed(struct kunit *test)
{
	struct pair *p = test->priv;

	poll_begin(test);
	polling.flag = ~0;
	WRITE_ONCE(keel_point_hook.hit, polling_hook);
	KUNIT_EXPECT_EQ(test, 0, ib_destroy_qp(p->a.qp));
	WRITE_ONCE(keel_point_hook.hit, NULL);
	p->a.qp = NULL;
	KUNIT_EXPECT_EQ(test, 0, polling.flag);
}

/* Another thread destroys the QP during a doorbell. Fails if that begins polling. */
static void dev_3_poll_dying(struct kunit *test)
{
	setup(test, LONG_US);
	keel_obj_get(&polling.qp->obj);
	polling.destroys = true;
	WRITE_ONCE(keel_point_hook.hit, polling_hook);
	doorbell();
	WRITE_ONCE(keel_point_hook.hit, NULL);
	KUNIT_EXPECT_FALSE(test, polling.destroys);
	KUNIT_EXPECT_FALSE(test, is_polled());
	keel_obj_put(&polling.qp->obj);
	worker_test_release(&owner->t);
}

/* Fails if the worker does nothing but poll: other jobs of the process wait. */
static void iso_1_poll_yields(struct kunit *test)
{
	struct owner *o = owner;
	int i;

	setup(test, LONG_US);
	doorbell();
	worker_test_release(&o->t);
	for (i = 0; i < 3; i++) {
		reinit_completion(&o->t.jobs[1].ended);
		KUNIT_EXPECT_EQ(test, 1, worker_test_queue(&o->t, o->t.worker, 1));
		test_waits(test, &o->t.jobs[1].ended);
		KUNIT_EXPECT_EQ(test, KEEL_RING_F_POLLED, ring_flags());
	}
	end_polling(test);
}

static struct kunit_case poll_cases[] = {
	KUNIT_CASE(iso_2_poll_begins),
	KUNIT_CASE(iso_2_poll_receives),
	KUNIT_CASE(iso_2_poll_prolongs),
	KUNIT_CASE(iso_2_poll_later),
	KUNIT_CASE(poll_nobody),
	KUNIT_CASE(dev_4_poll_announced),
	KUNIT_CASE(dev_4_poll_dies),
	KUNIT_CASE(dev_4_poll_sends),
	KUNIT_CASE(iso_3_poll_waits),
	KUNIT_CASE(order_poll_last_look),
	KUNIT_CASE(dev_4_poll_killed),
	KUNIT_CASE(dev_4_poll_takeover),
	KUNIT_CASE(iso_2_poll_returns),
	KUNIT_CASE(iso_1_poll_alone),
	KUNIT_CASE(dev_4_poll_reset),
	KUNIT_CASE(dev_3_poll_destroyed),
	KUNIT_CASE(dev_3_poll_dying),
	KUNIT_CASE(iso_1_poll_yields),
	{}
};

static struct kunit_suite poll_suite = {
	.name = "keel_poll",
	.suite_init = pair_suite_init,
	.suite_exit = pair_suite_exit,
	.init = owner_init,
	.exit = owner_exit,
	.test_cases = poll_cases,
};
kunit_test_suite(poll_suite);
