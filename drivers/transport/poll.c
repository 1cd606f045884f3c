// SPDX-License-Identifier: GPL-2.0
/*
 * The job of a QP, and polling of its send queue. If a process asks for it, its worker polls
 * a send queue for a while after a doorbell, and userspace rings no other doorbell meanwhile.
 * The flag KEEL_RING_F_POLLED in the ring says so.
 *
 * While the flag is set, the job is queued or runs. It runs a turn, then waits for new WQEs
 * until other jobs wait, and queues itself again. So the QPs of a process take turns, and
 * all that wakes or destroys a QP works as without polling. If nothing was posted for as
 * long as the process asked for, the job clears the flag, runs a last turn, and ends.
 */
#include <kunit/visibility.h>
#include <linux/ktime.h>
#include <linux/rcupdate.h>
#include <linux/sched/signal.h>

#include "keel_point.h"
#include "keel_qp.h"

/* Queue the job of a polled QP. If the worker is dead, nobody polls. */
static void keel_qp_queue_poll(struct keel_qp *qp)
	__must_hold(&qp->state_lock)
{
	int ret;

	keel_obj_get(&qp->obj);
	ret = keel_job_queue(qp->worker, &qp->job);
	/* Not the last reference: the QP exists for the caller. */
	if (ret <= 0)
		keel_obj_put(&qp->obj);
	if (ret == -ESRCH) {
		keel_qp_unpoll(qp);
		keel_qp_schedule(qp);
	}
}

/*
 * Most processes do not ask for polling, and need no lock for it. Without the lock, the QP
 * may be kept, but not its ring.
 */
static bool keel_qp_may_poll(const struct keel_qp *qp)
{
	const struct keel_worker *worker;

	guard(rcu)();
	worker = keel_qp_worker(qp);
	if (!worker || !keel_worker_poll_ns(worker))
		return false;
	/* It is looked at again with the lock. */
	return !context_unsafe(READ_ONCE(qp->polled));
}

/*
 * The time begins, or starts again, only for WQEs that were posted after it last did, up to
 * @user: the process pays for it, so the peer must not cause it with receive WQEs, or with
 * messages for which the process posts them. It starts when a WQE is found, not when it is
 * executed: that may be the decision of the peer.
 */
static bool keel_qp_poll_extend(struct keel_qp *qp, const struct keel_worker *worker,
				u32 user)
{
	u64 ns = keel_worker_poll_ns(worker);

	if (!ns || user == READ_ONCE(qp->poll_user))
		return false;
	/* A job that still runs after a reset may do so, too: either is good. */
	WRITE_ONCE(qp->poll_user, user);
	WRITE_ONCE(qp->poll_end, ktime_get_ns() + ns);
	return true;
}

/**
 * keel_qp_poll() - after a doorbell: let the worker poll the send queue
 * @qp: the QP, kept by RCU or a reference
 *
 * Does nothing if the process has not asked for it; if the worker is not a thread of the
 * calling process, or cannot replace the calling thread; if no send WQE was posted since
 * polling last began; or if the QP is polled already.
 *
 * Context: process context; no lock is held. Does not sleep.
 */
void keel_qp_poll(struct keel_qp *qp)
{
	const struct keel_worker *worker;
	u32 user;

	if (!keel_qp_may_poll(qp))
		return;
	keel_point("qp_may_poll");
	/* The ring is there as long as the QP is not dying. A QP with a worker has one. */
	guard(spinlock)(&qp->state_lock);
	worker = qp->worker;
	if (qp->dying || qp->polled || !worker)
		return;
	user = READ_ONCE(qp->sq.ring.head->user);
	if (!keel_worker_is_ours(worker) || !keel_worker_may_replace(worker)) {
		/* The next doorbell, which the peer may cause, is not for these. */
		WRITE_ONCE(qp->poll_user, user);
		return;
	}
	if (!keel_qp_poll_extend(qp, worker, user))
		return;
	keel_count(qp->kdev, sq_polls, 1);
	WRITE_ONCE(qp->polled, true);
	WRITE_ONCE(qp->sq.ring.head->flags, KEEL_RING_F_POLLED);
	keel_qp_queue_poll(qp);
}
EXPORT_SYMBOL_IF_KUNIT(keel_qp_poll);

/*
 * The job must let others run: other jobs, the destroy, a signal that stops the thread, or
 * what the thread does when it returns to userspace.
 */
static bool keel_qp_poll_yields(const struct keel_qp *qp,
				const struct keel_worker *worker)
{
	return keel_worker_is_busy(worker) || keel_worker_is_dead(worker) ||
	       keel_qp_is_dying(qp) || signal_pending(current) ||
	       keel_thread_must_return();
}

/* In the thread of the worker. */
static bool keel_qp_poll_is_over(const struct keel_qp *qp,
				 const struct keel_worker *worker)
{
	/* Another thread clears the flag at a reset, and begins again with another job. */
	return !context_unsafe(READ_ONCE(qp->polled)) ||
	       !keel_worker_poll_ns(worker) || !keel_worker_may_replace(worker) ||
	       ktime_get_ns() >= READ_ONCE(qp->poll_end);
}

/*
 * Wait for new WQEs, whose producer index is not @user; after a reset, both indexes count from
 * 0. Return: false if polling is over, or others are to run.
 */
static bool keel_qp_poll_wait(const struct keel_qp *qp,
			      const struct keel_worker *worker, u32 user)
{
	const struct keel_ring *ring = &qp->sq.ring;
	u32 index = READ_ONCE(ring->index);

	for (;;) {
		if (keel_qp_poll_yields(qp, worker) || keel_qp_poll_is_over(qp, worker))
			return false;
		if (READ_ONCE(ring->head->user) != user ||
		    READ_ONCE(ring->index) != index)
			return true;
		cond_resched_tasks_rcu_qs();
		/* UML does not preempt the kernel when an interrupt ends, but here. */
		preempt_disable();
		preempt_enable();
		cpu_relax();
	}
}

/* The next doorbell takes over the events of a dead process, so there must be one. */
static void keel_qp_poll_turn(struct keel_qp *qp, struct keel_worker *worker, u32 user)
{
	keel_worker_note(worker);
	keel_qp_poll_extend(qp, worker, user);
	keel_qp_run_job(qp);
	if (keel_qp_has_orphans(qp))
		WRITE_ONCE(qp->poll_end, 0);
}

/*
 * Run turns, and wait for WQEs after each. The last reference on the QP is not dropped
 * meanwhile, and keeps its ring: the job has one.
 */
static void keel_qp_poll_turns(struct keel_qp *qp, struct keel_worker *worker)
{
	u32 user;

	do {
		/* Before the turn: a WQE that is posted during the turn is new after it. */
		user = READ_ONCE(qp->sq.ring.head->user);
		keel_qp_poll_turn(qp, worker, user);
		/* There may be new WQEs each time. */
		cond_resched_tasks_rcu_qs();
	} while (keel_qp_poll_wait(qp, worker, user));
}

/* Return: the worker that polls the QP, if this is its thread, with a reference; or NULL. */
static struct keel_worker *keel_qp_poller(struct keel_qp *qp)
{
	/* A thread that queues the job has set it before. */
	if (!context_unsafe(READ_ONCE(qp->polled)))
		return NULL;
	guard(spinlock)(&qp->state_lock);
	if (!qp->polled || qp->dying)
		return NULL;
	/* It was closed just now, or replaced, and then there is another job. */
	if (!keel_worker_is_ours(qp->worker)) {
		keel_qp_unpoll(qp);
		return NULL;
	}
	keel_worker_get(qp->worker);
	return qp->worker;
}

/* Return: true if the job is queued again, or the QP is being destroyed. */
static bool keel_qp_poll_again(struct keel_qp *qp)
{
	guard(spinlock)(&qp->state_lock);
	if (qp->dying)
		return true;
	if (qp->polled && !keel_qp_poll_is_over(qp, qp->worker)) {
		keel_qp_queue_poll(qp);
		return true;
	}
	keel_qp_unpoll(qp);
	return false;
}

/* Return: true if the job has polled, and there is no turn to be run. */
static bool keel_qp_poll_job(struct keel_qp *qp)
{
	struct keel_worker *worker = keel_qp_poller(qp);

	if (!worker)
		return false;
	keel_qp_poll_turns(qp, worker);
	keel_worker_put(worker);
	/* Else the last turn executes what was posted before the flag was cleared. */
	return keel_qp_poll_again(qp);
}

/* The thread may be that of another user: it does nothing else. */
static void keel_qp_job_dead(struct keel_qp *qp)
{
	guard(spinlock)(&qp->state_lock);
	if (qp->dying)
		return;
	keel_qp_unpoll(qp);
	keel_qp_schedule(qp);
}

/**
 * keel_qp_job() - the job of a QP, for the worker of its process
 * @job: &keel_qp.job, queued with a reference on the QP
 * @alive: false: the worker is dead
 */
void keel_qp_job(struct keel_job *job, bool alive)
{
	struct keel_qp *qp = container_of(job, struct keel_qp, job);

	if (!alive)
		keel_qp_job_dead(qp);
	else if (!keel_qp_poll_job(qp))
		keel_qp_run_job(qp);
	keel_obj_put(&qp->obj);
}
EXPORT_SYMBOL_IF_KUNIT(keel_qp_job);
