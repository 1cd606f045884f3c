// SPDX-License-Identifier: GPL-2.0
/*
 * QPs of processes that are dead, and XRC_RECV QPs, which no process runs. Nothing is
 * transferred for a dead process: a QP that has send WQEs fails, and its queues are
 * flushed once. This work is that of the user who created the QP: it gets a fixed part
 * of a processor, see keel_orphans.h, and does not sleep on a lock. Packets of another host
 * for an XRC_RECV QP are not transferred here either: far_xrc.c.
 */
#include "keel_far.h"
#include "keel_qp.h"

/* WQEs of each queue that are flushed in a step, while the work of all users waits. */
#define KEEL_ORPHAN_WQES	64U

/*
 * The kernel flushes the queues of a QP for a dead process, but only once, and no
 * more WQEs than they have. Other processes that share the queues could let them
 * die and post without end, and none of them would be charged for this work. Later
 * flushes are left to a process that takes the QP over.
 */
static void keel_qp_begin_flush(struct keel_qp *qp)
	__must_hold(&qp->state_lock)
{
	if (qp->ended)
		return;
	qp->ended = true;
	if (qp->sq.ring.head)
		qp->send_left = keel_ring_posted_most(&qp->sq.ring);
	/* One more: the QP may have taken one, and then the event is due. */
	qp->recv_left = 1;
	if (qp->rq.ring.head)
		qp->recv_left += keel_ring_posted_most(&qp->rq.ring);
}

/* How many WQEs may be flushed now. Return: false if no flush is left. */
static bool keel_qp_may_flush(struct keel_qp *qp, u32 *sends, u32 *recvs)
{
	guard(spinlock)(&qp->state_lock);
	/* keel_qp_reported() schedules the QP again. */
	if (qp->sq.reporting || !keel_qp_is_orphan(qp))
		return false;
	keel_qp_begin_flush(qp);
	*sends = min(qp->send_left, KEEL_ORPHAN_WQES);
	*recvs = min(qp->recv_left, KEEL_ORPHAN_WQES);
	return *sends || *recvs;
}

/* Return: true if there is more to flush. */
static bool keel_qp_flushed(struct keel_qp *qp, u32 sends, u32 recvs)
{
	guard(spinlock)(&qp->state_lock);
	/* A process that has taken the QP over meanwhile has set both to 0. */
	qp->send_left -= min(qp->send_left, sends);
	qp->recv_left -= min(qp->recv_left, recvs);
	return qp->send_left || qp->recv_left;
}

/*
 * Flush a part. If a thread has the lock of a queue, that part is left: this thread does
 * not wait for it. Return: true to go on later.
 */
static bool keel_qp_flush_some(struct keel_qp *qp)
{
	struct keel_turn turn = {
		.doorbell = true,
		.flush = true,
		.until = U64_MAX,
	};
	u32 sends = 0, recvs = 0;

	if (!keel_qp_may_flush(qp, &sends, &recvs))
		return false;
	if (recvs && !keel_rq_flush_some(qp, recvs))
		recvs = 0;
	turn.end = READ_ONCE(qp->sq.ring.index) + sends;
	if (sends && !keel_sq_run(qp, &turn))
		sends = 0;
	return keel_qp_flushed(qp, sends, recvs);
}

/*
 * Another process may take the QP over at any time, and then runs transfers itself.
 * Return: true to go on later.
 */
static bool keel_qp_run_dead(struct keel_qp *qp)
{
	enum ib_qp_state state = keel_qp_state(qp);

	/*
	 * In SQE, too: else the one flush would not be of the receive queue. And if a
	 * datagram is kept, because nobody provides the memory for it: the QP would
	 * accept no other.
	 */
	if (state == IB_QPS_SQE ||
	    ((state == IB_QPS_RTS || state == IB_QPS_SQD) &&
	     keel_ring_posted(&qp->sq.ring)) ||
	    (state >= IB_QPS_RTR && state <= IB_QPS_SQD && keel_ud_keeps(qp)))
		keel_qp_fail_orphan(qp);
	state = keel_qp_state(qp);
	return (state == IB_QPS_ERR || state == IB_QPS_SQE) && keel_qp_flush_some(qp);
}

/*
 * Requesters may wait for receive WQEs that the process has posted before its death. The
 * flag that asks for a doorbell stays set: the next process that posts takes the QP over.
 */
static void keel_qp_wake_waiting(struct keel_qp *qp)
{
	if (READ_ONCE(qp->rq.wanted) && xchg(&qp->rq.wanted, false))
		keel_qp_wake_peer(qp);
}

/*
 * A doorbell has begun polling when a thread had just announced the job, which found the
 * worker dead then: no job of the dead worker clears the flag.
 */
static void keel_qp_unpoll_dead(struct keel_qp *qp)
{
	guard(spinlock)(&qp->state_lock);
	if (!qp->dying && keel_qp_is_orphan(qp))
		keel_qp_unpoll(qp);
}

/*
 * An XRC_RECV QP: a receive WQE that it has taken from an SRQ, and packets of another host
 * that name no SRQ, or one whose process is dead: nothing is transferred for those.
 * Return: true to go on later.
 */
static bool keel_qp_run_recv(struct keel_qp *qp)
{
	/* Pairs with keel_far_give(). */
	struct keel_far *far = smp_load_acquire(&qp->far);

	if (far)
		keel_far_run(far, NULL);
	return keel_qp_state(qp) == IB_QPS_ERR && !keel_rq_flush_some(qp, 1);
}

static void keel_qp_run_orphan(struct keel_orphan *orphan)
{
	struct keel_qp *qp = container_of(orphan, struct keel_qp, orphan);

	keel_qp_wake_waiting(qp);
	keel_qp_unpoll_dead(qp);
	if (keel_qp_is_orphan(qp))
		qp->go_on = keel_qp_run_dead(qp);
	else if (qp->context)
		/* Another process has taken the QP over: its worker runs it. */
		qp->go_on = true;
	else
		qp->go_on = keel_qp_run_recv(qp);
}

static void keel_qp_end_orphan(struct keel_orphan *orphan)
{
	struct keel_qp *qp = container_of(orphan, struct keel_qp, orphan);

	if (qp->go_on)
		keel_qp_schedule_alive(qp);
	keel_obj_put(&qp->obj);
}

/**
 * keel_qp_init_orphan() - initialize &keel_qp.orphan
 * @qp: the QP
 */
void keel_qp_init_orphan(struct keel_qp *qp)
{
	keel_orphan_init(&qp->orphan, keel_qp_run_orphan, keel_qp_end_orphan);
}
