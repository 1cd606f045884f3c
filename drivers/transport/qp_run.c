// SPDX-License-Identifier: GPL-2.0
/*
 * A turn of a queue pair: in a doorbell, in the worker of its process, in the
 * workqueue where there is none, and the last one when its process is dead.
 */
#include <linux/ktime.h>

#include "keel_qp.h"

/* How long a doorbell copies before the worker goes on. */
#define KEEL_DOORBELL_NS	(100 * NSEC_PER_MSEC)
/* How long whoever posts a receive sends for another QP of the same process. */
#define KEEL_SERVE_NS		(100 * NSEC_PER_USEC)
/* A turn of one queue, when others of the same process have work as well. */
#define KEEL_TURN_NS		(2 * NSEC_PER_MSEC)

/*
 * Run a send queue of this process that waited for receives. The worker does the
 * rest of what takes longer.
 */
static void keel_sq_serve(struct keel_qp *qp)
{
	const struct keel_turn turn = {
		.until = ktime_get_ns() + KEEL_SERVE_NS,
	};

	if (qp->sq.ring.head)
		keel_sq_run(qp, &turn);
}

/*
 * Receives were posted, and the peer may have waited for them. If this process
 * runs the peer, too, this thread does its work, and no other one need be woken.
 */
static void keel_qp_serve_peer(struct keel_qp *qp)
{
	const struct keel_worker *worker;
	struct keel_qp *peer;

	scoped_guard(rcu) {
		peer = keel_qp_find_peer(qp);
		if (!peer)
			return;
		worker = READ_ONCE(peer->worker);
		if (!worker || !keel_worker_is_ours(worker)) {
			keel_qp_kick_alive(peer);
			return;
		}
		if (!keel_obj_tryget(&peer->obj))
			return;
	}
	keel_sq_serve(peer);
	keel_obj_put(&peer->obj);
}

static void keel_qp_run_turn(struct keel_qp *qp, const struct keel_turn *turn)
{
	if (keel_rq_was_wanted(&qp->rq))
		keel_qp_serve_peer(qp);
	/* Pairs with keel_qp_fail(): a report that is due is seen too. */
	if (smp_load_acquire(&qp->state) == IB_QPS_ERR)
		keel_rq_flush(qp);
	if (qp->resp.dgram)
		keel_ud_run(qp);
	if (qp->sq.ring.head)
		keel_sq_run(qp, turn);
}

/**
 * keel_qp_run() - do what there is to do for a QP, in a call of its owner
 * @qp: the QP
 *
 * Runs what was posted to the send queue before the call, until it has to wait,
 * and in the error state flushes both queues. If another thread does so
 * already, that thread sees what is new. The worker goes on where this ends
 * early.
 *
 * Context: may sleep; no lock of a queue is held. Waits for no other process.
 * Return: 0; as keel_worker_get() if the process that ran the QP is dead, and this
 * one cannot: nothing was done.
 */
int keel_qp_run(struct keel_qp *qp)
{
	struct keel_turn turn = {
		.doorbell = true,
		.until = ktime_get_ns() + KEEL_DOORBELL_NS,
	};
	int ret;

	/* The process whose worker it was may be gone, and the device shared. */
	if (qp->context) {
		ret = keel_qp_own_worker(qp);
		if (ret)
			return ret;
	}
	if (qp->sq.ring.head)
		turn.end = READ_ONCE(qp->sq.ring.head->user) +
			   KEEL_DOORBELL_MORE;
	keel_qp_run_turn(qp, &turn);
	return 0;
}

/* A turn of a QP that a worker or the workqueue runs. */
static void keel_qp_run_job(struct keel_qp *qp)
{
	const struct keel_turn turn = {
		.until = ktime_get_ns() + KEEL_TURN_NS,
	};

	keel_qp_run_turn(qp, &turn);
}

/*
 * The queues of a QP are flushed for a dead process once: a process that shares
 * them may post without end, and does not pay for what is done here. If another
 * process has taken the QP over, nothing has ended.
 */
static void keel_qp_set_ended(struct keel_qp *qp)
{
	guard(spinlock)(&qp->state_lock);
	if (keel_qp_is_orphan(qp))
		WRITE_ONCE(qp->ended, true);
}

/*
 * The process of a QP is dead, or has let go of the device, and no other one has
 * taken the QP over. Nothing is transferred for it any more: a QP that has WQEs to
 * send fails. They are flushed, which is bounded by the size of the queues. Another
 * process may take it over at any moment of this, and transfers by itself.
 */
static void keel_qp_end(struct keel_qp *qp)
{
	enum ib_qp_state state = READ_ONCE(qp->state);
	struct keel_turn turn = {
		.doorbell = true,
		.flush = true,
		.until = U64_MAX,
	};
	bool reporting;

	if (READ_ONCE(qp->ended))
		return;
	if ((state == IB_QPS_RTS || state == IB_QPS_SQD) &&
	    keel_ring_posted(&qp->sq.ring))
		keel_qp_fail_orphan(qp);
	state = READ_ONCE(qp->state);
	/* Pairs with keel_qp_reported(), which kicks the QP once more. */
	reporting = smp_load_acquire(&qp->sq.reporting);
	if ((state == IB_QPS_ERR || state == IB_QPS_SQE) && !reporting)
		keel_qp_set_ended(qp);
	if (qp->sq.ring.head)
		turn.end = READ_ONCE(qp->sq.ring.head->user);
	keel_qp_run_turn(qp, &turn);
}

/**
 * keel_qp_job() - the job of a QP, for the worker of its process
 * @job: &keel_qp.job, queued with a reference on the QP
 * @alive: false: the process does not go on
 */
void keel_qp_job(struct keel_job *job, bool alive)
{
	struct keel_qp *qp = container_of(job, struct keel_qp, job);

	if (alive)
		keel_qp_run_job(qp);
	else if (keel_qp_is_orphan(qp))
		keel_qp_end(qp);
	else
		/* Another process has taken it over meanwhile. */
		keel_qp_kick_alive(qp);
	keel_obj_put(&qp->obj);
}

/**
 * keel_qp_work() - where a QP has no worker, or a dead one
 * @work: &keel_qp.work, queued with a reference on the QP
 */
void keel_qp_work(struct work_struct *work)
{
	struct keel_qp *qp = container_of(work, struct keel_qp, work);

	if (keel_qp_is_orphan(qp))
		keel_qp_end(qp);
	else if (qp->user && qp->context)
		/* As above. */
		keel_qp_kick_alive(qp);
	else
		keel_qp_run_job(qp);
	keel_obj_put(&qp->obj);
}
