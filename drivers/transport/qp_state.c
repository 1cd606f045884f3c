// SPDX-License-Identifier: GPL-2.0
/*
 * Queue pairs as everything below ibv_create_qp() sees them: find one, have it
 * run by its worker, move it to an error state and tell its owner.
 */
#include <kunit/visibility.h>

#include "keel_qp.h"

/**
 * keel_qp_get() - the QP behind a number
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
	qp = xa_load(&kdev->qps, qpn);
	return qp && keel_obj_tryget(&qp->obj) ? qp : NULL;
}

static bool keel_qp_queue(struct keel_qp *qp)
{
	struct keel_worker *worker;
	int ret = -ESRCH;

	/* One that is replaced stays for a grace period. */
	scoped_guard(rcu) {
		worker = READ_ONCE(qp->worker);
		if (worker)
			ret = keel_job_queue(worker, &qp->job);
	}
	/* The kernel's own, or of a process that is dead. */
	return ret == -ESRCH ? queue_work(qp->kdev->wq, &qp->work) : ret;
}

/**
 * keel_qp_kick() - have a QP run soon
 * @qp: the QP; the caller has a reference, or keeps it from being destroyed
 *
 * Context: any.
 */
void keel_qp_kick(struct keel_qp *qp)
{
	keel_obj_get(&qp->obj);
	/* The caller's reference is left: this is not the last one. */
	if (!keel_qp_queue(qp))
		keel_obj_put(&qp->obj);
}

/**
 * keel_qp_kick_alive() - have a QP run soon, unless it is being destroyed
 * @qp: the QP, kept by RCU or a reference
 *
 * Context: process context; no lock but mutexes is held.
 */
void keel_qp_kick_alive(struct keel_qp *qp)
{
	/* Destroying it sets @dying under the lock: it has not begun to. */
	guard(spinlock)(&qp->state_lock);
	if (!qp->dying)
		keel_qp_kick(qp);
}

/**
 * keel_qp_find_peer() - the QP that may wait for one
 * @qp: the QP
 *
 * Only a peer can be waiting, and a stranger is not to be bothered.
 *
 * Context: RCU read side, which keeps the peer.
 * Return: the peer, or NULL.
 */
struct keel_qp *keel_qp_find_peer(const struct keel_qp *qp)
{
	struct keel_qp *peer;

	if (keel_qp_is_dgram(qp))
		return NULL;
	peer = xa_load(&qp->kdev->qps, qp->attr.dest_qp_num);
	if (!peer || peer == qp || peer->attr.dest_qp_num != qp->qpn)
		return NULL;
	return peer;
}

/**
 * keel_qp_wake_peer() - the peer may have waited for this
 * @qp: the QP; it can receive what it could not, or does not exist as it did
 *
 * Context: process context; no lock but mutexes is held.
 */
void keel_qp_wake_peer(struct keel_qp *qp)
{
	struct keel_qp *peer;

	guard(rcu)();
	peer = keel_qp_find_peer(qp);
	if (peer)
		keel_qp_kick_alive(peer);
}

/**
 * keel_qp_is_orphan() - has the process that runs a QP gone?
 * @qp: the QP, kept by RCU or a reference
 *
 * Context: any.
 * Return: true if so.
 */
bool keel_qp_is_orphan(const struct keel_qp *qp)
{
	const struct keel_worker *worker;

	guard(rcu)();
	worker = READ_ONCE(qp->worker);
	return worker && keel_worker_is_dead(worker);
}

/* Return: the worker that @worker is put in the place of, or @worker itself. */
static struct keel_worker *keel_qp_swap_worker(struct keel_qp *qp,
					       struct keel_worker *worker)
{
	struct keel_worker *old;

	guard(spinlock)(&qp->state_lock);
	old = qp->worker;
	/* Another thread was faster, or it is destroyed. */
	if (qp->dying || (old && !keel_worker_is_dead(old)))
		return worker;
	WRITE_ONCE(qp->worker, worker);
	WRITE_ONCE(qp->ended, false);
	return old;
}

/**
 * keel_qp_own_worker() - a QP is run by the worker of the calling process
 * @qp: the QP of a user process, in a call of its owner. If it has a worker that
 *	is not dead, nothing happens.
 *
 * Context: process context of a user process.
 * Return: 0, or as keel_worker_get().
 */
int keel_qp_own_worker(struct keel_qp *qp)
{
	struct keel_worker *worker, *old;

	if (qp->worker && !keel_qp_is_orphan(qp))
		return 0;
	worker = keel_worker_get(keel_context_workers(qp->context));
	if (IS_ERR(worker))
		return PTR_ERR(worker);
	old = keel_qp_swap_worker(qp, worker);
	/* One that was replaced has run its jobs, or does so now. */
	if (old && old != worker && keel_job_cancel(old, &qp->job))
		keel_obj_put(&qp->obj);
	keel_worker_put(old);
	return 0;
}

static void keel_qp_event_locked(struct keel_qp *qp, enum ib_event_type type)
{
	struct ib_event event = { .event = type };

	lockdep_assert_held(&qp->state_lock);
	if (!qp->ib || !qp->ib->event_handler)
		return;
	event.device = qp->ib->device;
	event.element.qp = qp->ib;
	qp->ib->event_handler(&event, qp->ib->qp_context);
}

/**
 * keel_qp_event() - tell the owner of a QP what happened to it
 * @qp: the QP
 * @type: the event
 *
 * Context: any but interrupts.
 */
void keel_qp_event(struct keel_qp *qp, enum ib_event_type type)
{
	/* Destroying the QP clears @ib under the lock. */
	spin_lock(&qp->state_lock);
	keel_qp_event_locked(qp, type);
	spin_unlock(&qp->state_lock);
}

static bool keel_qp_fail_locked(struct keel_qp *qp, enum ib_qp_state state,
				enum ib_event_type type)
{
	lockdep_assert_held(&qp->state_lock);
	if (qp->dying || qp->state == IB_QPS_ERR || qp->state == IB_QPS_RESET)
		return false;
	if (state == IB_QPS_SQE && qp->state != IB_QPS_RTS &&
	    qp->state != IB_QPS_SQD)
		return false;
	/* Pairs with the acquire of whoever runs the queue. */
	smp_store_release(&qp->state, state);
	if (type != KEEL_EVENT_NONE)
		keel_qp_event_locked(qp, type);
	if (state == IB_QPS_ERR) {
		/* Receives that come from here on want to be flushed. */
		if (qp->rq.ring.head)
			WRITE_ONCE(qp->rq.ring.head->flags, KEEL_RING_F_KICK);
		/* Pairs with the barrier of whoever posts a receive. */
		smp_mb();
	}
	/* Under the lock: once the QP is dying nobody kicks it any more. */
	keel_qp_kick(qp);
	return true;
}

/**
 * keel_qp_fail() - an error moves a QP to another state
 * @qp: the QP
 * @state: IB_QPS_ERR, or IB_QPS_SQE from IB_QPS_RTS and IB_QPS_SQD
 * @type: event to raise, or KEEL_EVENT_NONE
 *
 * The workqueue flushes what is to be flushed. A QP that is in the error state
 * already, or in none that errors happen in, stays where it is, in silence.
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
	/* A sender that waits for it would wait for ever. */
	if (state == IB_QPS_ERR)
		keel_qp_wake_peer(qp);
	return true;
}
EXPORT_SYMBOL_IF_KUNIT(keel_qp_fail);

/**
 * keel_qp_fail_orphan() - fail a QP, unless a process runs it
 * @qp: the QP
 *
 * Another process that shares the device may have taken it over just now.
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
 * keel_qp_reported() - the error that ended a QP is reported: flush
 * @qp: the QP; the caller has set &keel_sq.reporting
 *
 * Context: any but interrupts; locks of queues may be held.
 */
void keel_qp_reported(struct keel_qp *qp)
{
	guard(spinlock)(&qp->state_lock);
	/* The completion goes before; pairs with keel_rq_flush(). */
	smp_store_release(&qp->sq.reporting, false);
	if (!qp->dying)
		keel_qp_kick(qp);
}
