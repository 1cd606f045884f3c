// SPDX-License-Identifier: GPL-2.0
/*
 * Queue pairs for the rest of the transport: look up a QP, schedule it, move it
 * to an error state, and raise its events.
 */
#include <kunit/visibility.h>

#include "keel_point.h"
#include "keel_qp.h"

/**
 * keel_qp_get() - look up a QP by number
 * @kdev: the device
 * @qpn: the number
 *
 * Context: any.
 * Return: the QP, with a reference that the caller drops with keel_obj_put();
 * or NULL.
 */
struct keel_qp *keel_qp_get(struct keel_dev *kdev, u32 qpn)
{
	struct keel_qp *qp;

	guard(rcu)();
	qp = keel_qp_load(kdev, qpn);
	return qp && keel_obj_tryget(&qp->obj) ? qp : NULL;
}

/* Returns -ESRCH if there is no worker (kernel consumers, XRC_RECV), or a dead one. */
static int keel_qp_queue_job(struct keel_qp *qp)
{
	struct keel_worker *worker;

	guard(rcu)();
	worker = keel_qp_worker(qp);
	return worker ? keel_job_queue(worker, &qp->job) : -ESRCH;
}

static bool keel_qp_queue(struct keel_qp *qp)
{
	int ret = keel_qp_queue_job(qp);

	if (ret != -ESRCH)
		return ret;
	if (!qp->obj.user)
		return queue_work(qp->kdev->wq, &qp->work);
	if (!keel_qp_queue_orphan(qp))
		return false;
	/*
	 * Pairs with keel_qp_own_worker(): either that finds the work of the orphan, or
	 * this thread finds the new worker, for which the job may have looked queued.
	 * The work of the orphan may wait for long.
	 */
	smp_mb();
	if (!qp->context || keel_qp_is_orphan(qp) || !keel_qp_cancel_orphan(qp))
		return true;
	ret = keel_qp_queue_job(qp);
	return ret == -ESRCH ? keel_qp_queue_orphan(qp) : ret;
}

/**
 * keel_qp_schedule() - schedule a QP
 * @qp: the QP; the caller holds a reference, or keeps it from being destroyed
 *
 * Context: any.
 */
void keel_qp_schedule(struct keel_qp *qp)
{
	keel_obj_get(&qp->obj);
	/* Not the last reference: the QP exists for the caller. */
	if (!keel_qp_queue(qp))
		keel_obj_put(&qp->obj);
}
EXPORT_SYMBOL_IF_KUNIT(keel_qp_schedule);

/**
 * keel_qp_schedule_alive() - schedule a QP, unless it is being destroyed
 * @qp: the QP, kept by RCU or a reference
 *
 * Context: process context; no lock but mutexes is held.
 */
void keel_qp_schedule_alive(struct keel_qp *qp)
{
	/* Destroy sets @dying under the lock before it drops its reference. */
	guard(spinlock)(&qp->state_lock);
	if (!qp->dying)
		keel_qp_schedule(qp);
}

/**
 * keel_qp_find_peer() - find the QP that may wait for a QP
 * @qp: the QP
 *
 * Only a peer that is connected to @qp can wait for it. Other QPs are not
 * woken.
 *
 * Context: RCU read side, which keeps the peer.
 * Return: the peer, or NULL.
 */
struct keel_qp *keel_qp_find_peer(const struct keel_qp *qp)
{
	struct keel_qp *peer;

	if (keel_qp_is_dgram(qp))
		return NULL;
	peer = keel_qp_load(qp->kdev, READ_ONCE(qp->attr.dest_qp_num));
	return peer && peer != qp && keel_qp_is_to(peer, qp) ? peer : NULL;
}

/**
 * keel_qp_wake_peer() - reschedule the peer, which may wait for a QP
 * @qp: the QP; it can receive now, or it failed, is reset or destroyed
 *
 * Context: process context; no lock but mutexes is held.
 */
void keel_qp_wake_peer(struct keel_qp *qp)
{
	struct keel_qp *peer;

	keel_point("qp_changed");
	/*
	 * Pairs with the first barrier in keel_sq_run(): either this thread
	 * sees that the peer is connected to @qp, or the peer sees the state of
	 * @qp.
	 */
	smp_mb();
	guard(rcu)();
	peer = keel_qp_find_peer(qp);
	if (peer)
		keel_qp_schedule_alive(peer);
}

/**
 * keel_qp_is_orphan() - is the worker of a QP dead?
 * @qp: the QP, kept by RCU or a reference
 *
 * Context: any.
 * Return: true if the QP has a worker, and that worker is dead.
 */
bool keel_qp_is_orphan(const struct keel_qp *qp)
{
	const struct keel_worker *worker;

	guard(rcu)();
	worker = keel_qp_worker(qp);
	return worker && keel_worker_is_dead(worker);
}
EXPORT_SYMBOL_IF_KUNIT(keel_qp_is_orphan);

/**
 * keel_qp_has_orphans() - is the worker of a QP dead, or that of its events?
 * @qp: the QP, kept by RCU or a reference
 *
 * Context: any.
 * Return: true if keel_qp_own_worker() would replace one, of the QP, its CQs or its SRQ.
 */
bool keel_qp_has_orphans(const struct keel_qp *qp)
{
	return keel_qp_is_orphan(qp) ||
	       keel_events_are_orphaned(&qp->events) ||
	       (qp->send_cq && keel_events_are_orphaned(&qp->send_cq->events)) ||
	       (qp->recv_cq && keel_events_are_orphaned(&qp->recv_cq->events)) ||
	       (qp->srq && keel_events_are_orphaned(&qp->srq->events));
}

/**
 * keel_qp_unpoll() - let userspace ring doorbells again
 * @qp: the QP, which is not dying: userspace reuses the ring of a destroyed QP
 *
 * The caller looks at the send queue afterwards, or schedules the QP, or destroys it.
 *
 * Context: any but interrupts.
 */
void keel_qp_unpoll(struct keel_qp *qp)
{
	lockdep_assert_held(&qp->state_lock);
	if (!qp->polled)
		return;
	WRITE_ONCE(qp->polled, false);
	/* Pairs with the fence after a post: one sees the other. */
	smp_store_mb(qp->sq.ring.head->flags, 0);
	/* A later doorbell begins polling for later WQEs only: keel_qp_poll_extend(). */
	WRITE_ONCE(qp->poll_user, READ_ONCE(qp->sq.ring.head->user));
	keel_point("qp_unpolled");
}
EXPORT_SYMBOL_IF_KUNIT(keel_qp_unpoll);

/* Returns the replaced worker or NULL; @worker if it was not installed. */
static struct keel_worker *keel_qp_swap_worker(struct keel_qp *qp,
					       struct keel_worker *worker)
{
	struct keel_worker *old;

	guard(spinlock)(&qp->state_lock);
	old = qp->worker;
	/* Another thread has replaced it, or the QP is being destroyed. */
	if (qp->dying || (old && !keel_worker_is_dead(old)))
		return worker;
	/* The next death flushes nothing: also not what was left of the first flush. */
	qp->send_left = 0;
	qp->recv_left = 0;
	/* The dead worker polls no more. The caller runs the QP. */
	keel_qp_unpoll(qp);
	/* A thread that reads it under RCU sees an initialized worker. */
	smp_store_release(&qp->worker, worker);
	return old;
}

/**
 * keel_qp_own_worker() - let the worker of the calling process run a QP
 * @qp: the QP of a user process, in a call of its owner. Nothing happens if it
 *	has a worker that is not dead.
 *
 * Context: process context of a user process.
 * Return: 0, or the error of keel_worker_of_current().
 */
int keel_qp_own_worker(struct keel_qp *qp)
{
	struct keel_workers *workers = keel_context_workers(qp->context);
	struct keel_worker *worker, *old;

	/* Other threads do not clear it. Others may have created its queues. */
	if (context_unsafe(READ_ONCE(qp->worker)) && !keel_qp_is_orphan(qp)) {
		keel_qp_own_events(qp, workers);
		return 0;
	}
	worker = keel_worker_of_current(workers);
	if (IS_ERR(worker))
		return PTR_ERR(worker);
	old = keel_qp_swap_worker(qp, worker);
	/* The replaced worker is dead: it has run its jobs, or does so now. */
	if (old && old != worker && keel_job_cancel(old, &qp->job))
		keel_obj_put(&qp->obj);
	/* The work of orphans may wait for long, or have left the flush to this process. */
	if (old && old != worker) {
		/* Pairs with keel_qp_queue(). */
		smp_mb();
		if (keel_qp_cancel_orphan(qp))
			keel_obj_put(&qp->obj);
		keel_qp_schedule_alive(qp);
	}
	keel_worker_put(old);
	/* After an error, the workqueue goes on to raise the events. */
	keel_qp_own_events(qp, workers);
	return 0;
}
EXPORT_SYMBOL_IF_KUNIT(keel_qp_own_worker);

/**
 * keel_qp_own_events() - let the worker of the calling process raise the events of a
 *	QP, and of its queues
 * @qp: the QP of a user process, in a call of its owner. Nothing happens to events that
 *	have a worker that is not dead.
 * @workers: the workers of the context of the QP, and so of its CQs and its SRQ
 *
 * Context: process context of a user process.
 * Return: 0, or the error of keel_worker_of_current().
 */
int keel_qp_own_events(struct keel_qp *qp, struct keel_workers *workers)
{
	int ret = keel_events_own(&qp->events, workers);

	if (!ret && qp->send_cq)
		ret = keel_events_own(&qp->send_cq->events, workers);
	if (!ret && qp->recv_cq)
		ret = keel_events_own(&qp->recv_cq->events, workers);
	if (!ret && qp->srq)
		ret = keel_events_own(&qp->srq->events, workers);
	return ret;
}

/**
 * keel_qp_raise() - &keel_events.raise of a QP
 * @obj: &keel_qp.obj
 * @type: the event
 */
void keel_qp_raise(struct keel_obj *obj, int type)
{
	struct keel_qp *qp = container_of(obj, struct keel_qp, obj);
	/* Without the lock: see keel_events_close(). */
	struct ib_qp *ib = context_unsafe(READ_ONCE(qp->ib));
	struct ib_event event = { .element.qp = ib, .event = type };

	if (!ib || !ib->event_handler)
		return;
	event.device = ib->device;
	ib->event_handler(&event, ib->qp_context);
}

/**
 * keel_qp_event() - have an event of a QP raised
 * @qp: the QP
 * @type: the event
 *
 * The worker of its owner raises it; for kernel consumers, the workqueue.
 *
 * Context: any but interrupts.
 */
void keel_qp_event(struct keel_qp *qp, enum ib_event_type type)
{
	keel_events_queue(&qp->events, type);
}

static bool keel_qp_fail_locked(struct keel_qp *qp, enum ib_qp_state state,
				enum ib_event_type type)
	__must_hold(&qp->state_lock)
{
	lockdep_assert_held(&qp->state_lock);
	if (qp->dying || qp->state == IB_QPS_ERR || qp->state == IB_QPS_RESET)
		return false;
	if (state == IB_QPS_SQE && qp->state != IB_QPS_RTS &&
	    qp->state != IB_QPS_SQD)
		return false;
	/* Pairs with the acquire of the thread that runs the queue. */
	smp_store_release(&qp->state, state);
	if (type != KEEL_EVENT_NONE)
		keel_qp_event(qp, type);
	if (state == IB_QPS_ERR) {
		/* Receive WQEs are flushed from here on: ask for a doorbell. */
		if (qp->rq.ring.head)
			WRITE_ONCE(qp->rq.ring.head->flags,
				   KEEL_RING_F_DOORBELL);
		/*
		 * Pairs with keel_rq_unwant(), which clears the request: its caller
		 * sees the state, or the turn that is scheduled below requests
		 * the doorbell again.
		 */
		smp_mb();
	}
	/* Under the lock: a dying QP is not scheduled any more. */
	keel_qp_schedule(qp);
	return true;
}

/**
 * keel_qp_fail() - move a QP to an error state
 * @qp: the QP
 * @state: IB_QPS_ERR, or IB_QPS_SQE from IB_QPS_RTS and IB_QPS_SQD
 * @type: event to raise, or KEEL_EVENT_NONE
 *
 * The worker of the QP, or the workqueue, flushes the queues afterwards.
 * Nothing happens if the QP is in the error state, in RESET or being destroyed.
 *
 * Context: process context; mutexes of queues may be held.
 * Return: whether the state changed.
 */
bool keel_qp_fail(struct keel_qp *qp, enum ib_qp_state state,
		  enum ib_event_type type)
{
	scoped_guard(spinlock, &qp->state_lock)
		if (!keel_qp_fail_locked(qp, state, type))
			return false;
	/* The peer may wait for this QP, perhaps without a timeout. */
	if (state == IB_QPS_ERR)
		keel_qp_wake_peer(qp);
	return true;
}
EXPORT_SYMBOL_IF_KUNIT(keel_qp_fail);

/**
 * keel_qp_fail_orphan() - fail a QP whose worker is dead
 * @qp: the QP
 *
 * Nothing happens if another process that shares the device has taken the QP
 * over.
 *
 * Context: as keel_qp_fail().
 */
void keel_qp_fail_orphan(struct keel_qp *qp)
{
	scoped_guard(spinlock, &qp->state_lock)
		if (!keel_qp_is_orphan(qp) ||
		    !keel_qp_fail_locked(qp, IB_QPS_ERR, IB_EVENT_QP_FATAL))
			return;
	keel_qp_wake_peer(qp);
}

/**
 * keel_qp_report() - let the CQE of an error precede those of the flush
 * @qp: the QP, which the caller fails after this call; it writes the CQE after
 *	that, and calls keel_qp_reported()
 *
 * Nothing is delayed if the last flush for a dead worker has begun.
 *
 * Context: process context; mutexes of queues may be held.
 */
void keel_qp_report(struct keel_qp *qp)
{
	guard(spinlock)(&qp->state_lock);
	/* Visible to each thread that sees the new state. */
	WRITE_ONCE(qp->sq.reporting, !qp->ended || !keel_qp_is_orphan(qp));
}

/**
 * keel_qp_reported() - flush a QP after the CQE of its error was written
 * @qp: the QP, after keel_qp_report()
 *
 * Context: any but interrupts; locks of queues may be held.
 */
void keel_qp_reported(struct keel_qp *qp)
{
	guard(spinlock)(&qp->state_lock);
	/* After the CQE was written; pairs with keel_rq_flush(). */
	smp_store_release(&qp->sq.reporting, false);
	if (!qp->dying)
		keel_qp_schedule(qp);
}
