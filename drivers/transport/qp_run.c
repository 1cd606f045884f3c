// SPDX-License-Identifier: GPL-2.0
/*
 * Turns of a queue pair. A doorbell or the worker of the process runs them, and a
 * workqueue those of a kernel consumer. The job for the worker: poll.c. If the worker is
 * dead: qp_orphan.c. A short message of another host, or to it: far_now.c.
 */
#include <kunit/visibility.h>
#include <linux/ktime.h>

#include "keel_far.h"
#include "keel_helpers.h"
#include "keel_qp.h"

/* How long a QP with new receive WQEs runs its peer in the same process. */
#define KEEL_SERVE_NS		(100 * NSEC_PER_USEC)
/* Length of a turn in a worker or the workqueue, which run other QPs, too. */
#define KEEL_TURN_NS		(2 * NSEC_PER_MSEC)

/*
 * Run a send queue of this process that waited for receive WQEs. The worker
 * executes the rest, if that takes longer.
 */
static void keel_sq_serve(struct keel_qp *qp, bool caller)
{
	const struct keel_turn turn = {
		.caller = caller,
		.until = ktime_get_ns() + KEEL_SERVE_NS,
	};

	if (qp->sq.ring.head)
		keel_sq_run(qp, &turn);
}

/*
 * Receive WQEs were posted, and the peer may have waited for them. If this
 * process also runs the peer, this thread runs it, and wakes no other thread.
 */
static void keel_qp_serve_peer(struct keel_qp *qp, bool caller)
{
	const struct keel_worker *worker;
	struct keel_qp *peer;

	scoped_guard(rcu) {
		peer = keel_qp_find_peer(qp);
		if (!peer)
			return;
		worker = keel_qp_worker(peer);
		if (!worker || !keel_worker_is_ours(worker)) {
			keel_qp_schedule_alive(peer);
			return;
		}
		if (!keel_obj_tryget(&peer->obj))
			return;
	}
	keel_sq_serve(peer, caller);
	keel_obj_put(&peer->obj);
}

/* As keel_rq_was_wanted(). A doorbell of another thread does not keep the QP. */
static bool keel_qp_was_wanted(struct keel_qp *qp)
{
	if (!keel_rq_was_wanted(&qp->rq))
		return false;
	guard(spinlock)(&qp->state_lock);
	if (!qp->dying)
		keel_rq_unwant(&qp->rq);
	return true;
}

static void keel_qp_run_turn(struct keel_qp *qp, const struct keel_turn *turn)
{
	struct keel_far *far;

	if (keel_qp_was_wanted(qp))
		keel_qp_serve_peer(qp, turn->caller);
	/* Pairs with keel_qp_fail(): &keel_sq.reporting was set before. */
	if (context_unsafe(smp_load_acquire(&qp->state)) == IB_QPS_ERR)
		keel_rq_flush(qp);
	/* Pairs with keel_far_give(). */
	far = smp_load_acquire(&qp->far);
	if (far) {
		keel_far_grow(far);
		keel_far_run(far, NULL);
	}
	if (qp->resp.dgram)
		keel_ud_run(qp);
	if (qp->sq.ring.head)
		keel_sq_run(qp, turn);
}

/*
 * This thread cannot run the QP. Another thread may have found the lock of the send
 * queue taken by this thread, and left the queue to it: schedule the QP.
 */
static void keel_qp_pass_on(struct keel_qp *qp)
{
	/* Pairs with the first barrier in keel_sq_run(). */
	smp_mb();
	if (atomic_read(&qp->sq.again))
		keel_qp_schedule_alive(qp);
}

/* The worker should have helpers. It cannot create threads; this process can. */
static void keel_qp_find_help(struct keel_qp *qp)
{
	struct keel_worker *worker;

	scoped_guard(rcu) {
		worker = keel_qp_worker(qp);
		if (!worker || !READ_ONCE(worker->wants_help))
			return;
	}
	scoped_guard(spinlock, &qp->state_lock) {
		worker = qp->worker;
		/* The new threads get the priority and the processors of this thread. */
		if (!worker || !keel_worker_is_ours(worker) ||
		    !keel_worker_may_replace(worker))
			return;
		keel_worker_get(worker);
	}
	keel_worker_find_help(worker, keel_context_helpers(qp->context));
	keel_worker_put(worker);
}

/**
 * keel_qp_run_until() - run a QP, in a call of its owner
 * @qp: the QP
 * @until: end of the turn, ns of ktime_get_ns()
 *
 * Executes the send WQEs that were posted before the call, and at most
 * KEEL_DOORBELL_MORE later ones, until one has to wait. In the error state,
 * flushes both queues. If another thread runs a queue already, that thread does
 * this, or schedules the QP. The worker continues if this call ends early.
 *
 * Context: may sleep; no lock of a queue is held. Waits for no other process.
 * Return: 0; the error of keel_worker_of_current() if the worker of the QP is
 * dead, and this process cannot take the QP over: nothing was done.
 */
int keel_qp_run_until(struct keel_qp *qp, u64 until)
{
	struct keel_turn turn = {
		.doorbell = true,
		.caller = true,
		.until = until,
	};
	int ret;

	/* If the worker's process is dead, this process takes the QP over. */
	if (qp->context) {
		ret = keel_qp_own_worker(qp);
		if (ret) {
			keel_qp_pass_on(qp);
			return ret;
		}
	}
	if (qp->sq.ring.head)
		turn.end = READ_ONCE(qp->sq.ring.index) +
			   keel_ring_posted_most(&qp->sq.ring) + KEEL_DOORBELL_MORE;
	keel_qp_run_turn(qp, &turn);
	if (qp->context)
		keel_qp_find_help(qp);
	return 0;
}
EXPORT_SYMBOL_IF_KUNIT(keel_qp_run_until);

/**
 * keel_qp_run_job() - run a turn of a QP in a worker, or in the workqueue
 * @qp: the QP
 *
 * Context: as keel_qp_run_until().
 */
void keel_qp_run_job(struct keel_qp *qp)
{
	const struct keel_turn turn = {
		.until = ktime_get_ns() + KEEL_TURN_NS,
	};

	keel_qp_run_turn(qp, &turn);
}

/**
 * keel_qp_work() - the work of a QP of a kernel consumer
 * @work: &keel_qp.work, queued with a reference on the QP
 */
void keel_qp_work(struct work_struct *work)
{
	struct keel_qp *qp = container_of(work, struct keel_qp, work);

	keel_qp_run_job(qp);
	keel_obj_put(&qp->obj);
}
