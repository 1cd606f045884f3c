// SPDX-License-Identifier: GPL-2.0
/*
 * The fast path: messages of the shapes that most applications use, of at most 4 KiB
 * and four SGEs on either side, in memory that stays in place.
 *
 * Each function of the slow path (sq.c, req.c, resp.c, resp_atomic.c, recv.c) costs as
 * much as the copy of such a message. So fast_msg.c handles a whole message, without lists of
 * segments, and with last-lookup caches, and this file runs a queue of them.
 *
 * The slow path defines the semantics and reports errors. The fast path executes only
 * messages that succeed. In all other cases (an error, a lock that is taken, memory that
 * may be absent), it has completed nothing, and the slow path starts from the beginning.
 * Bytes may have been copied: the slow path copies them again. A receive WQE of an SRQ
 * may have been taken, and the event of its limit raised: the slow path continues with
 * it, as after an attempt of its own.
 *
 * Both paths keep these rules; a change to a rule is made in both places:
 *
 *	rule					fast path, slow path
 *	a WQE that was begun is finished first	keel_sq_begun()
 *	attributes are at least as new as	keel_fast_drain(),
 *	the state they came with		keel_sq_step()
 *	a WQE is read once, then validated	keel_fast_send(), keel_fast_sges(),
 *						keel_sq_fetch(), keel_req_local()
 *	members without a meaning are 0		keel_opcode_clean()
 *	a responder's lock is tried for, and	keel_fast_connected(),
 *	only if the peer is connected; this	keel_req_connected_send()
 *	is checked again with the lock		keel_fast_accepts()
 *	no preemption from the first key to	keel_fast_deliver(),
 *	the last, see keel_resp_lock.h		keel_req_run()
 *	keys are kept during a copy		keel_runs_use(),
 *						keel_segs_local()
 *	the last bytes of an RDMA write or	keel_fast_copy(),
 *	read are stored last			keel_copy()
 *	a message is counted before its CQE	keel_cq_received(),
 *	can be seen				keel_recv_report()
 *	a receive WQE is userspace's again	keel_cq_received(),
 *	before its CQE can be seen		keel_rq_take()
 *	a receive WQE that was taken is used	keel_fast_recv(),
 *	before the next one			keel_recv_take()
 *	a write with immediate data takes its	keel_fast_do_write(),
 *	receive WQE first			keel_resp_write()
 *	a datagram goes to no QP that keeps	keel_fast_datagram(),
 *	another one				keel_ud_receive()
 *	the responder's CQE comes before	keel_fast_send(),
 *	the requester's				keel_sq_done()
 *	a doorbell ends with the WQEs that	keel_fast_budget(),
 *	were posted when it rang		keel_sq_turn_over()
 *	CQEs are written in one place		keel_cq_write()
 *	the send queue moves on in one place	keel_sq_complete()
 *
 * tests/queues/fast_slow.c sends each message on both paths, and compares all
 * results that userspace can see.
 *
 * All of the fast path runs under RCU, which keeps objects that are looked up
 * by number. The lock of a queue keeps its ring and its CQ: the destroy of a QP
 * marks it as dying, waits for both locks, and only then drops them. No lock keeps the
 * SRQ of an XRC message: see keel_fast_xrc().
 */
#include <kunit/visibility.h>

#include "keel_fast.h"
#include "keel_opcode.h"
#include "keel_point.h"
#include "keel_resp_lock.h"

/* Messages of one call, during which the thread may not be rescheduled. */
#define KEEL_FAST_BUDGET	64

static __always_inline struct keel_qp *keel_fast_peer(struct keel_qp *qp, u32 qpn)
	__must_hold_shared(RCU) __must_hold(&qp->sq.from.lock)
{
	struct keel_dev *kdev = qp->kdev;
	/* Pairs with the barrier in keel_destroy_qp(). */
	s64 gone = atomic64_read_acquire(&kdev->qps_destroyed);
	struct keel_sq *sq = &qp->sq;

	/* As keel_key_cached(). */
	if (sq->peer && sq->qps_destroyed == gone && sq->peer->qpn == qpn)
		return sq->peer;
	sq->peer = keel_qp_load(kdev, qpn);
	sq->qps_destroyed = gone;
	return sq->peer;
}

/* To the QP that this one is connected to. */
static __always_inline bool keel_fast_connected(struct keel_fast_msg *m)
	__must_hold_shared(RCU) __must_hold(&m->qp->sq.from.lock)
{
	struct keel_qp *qp = m->qp;

	/* The slow path binds the QPs to each other on their first message. */
	if (!qp->av.local || !atomic64_read(&qp->remote))
		return false;
	m->peer = keel_fast_peer(qp, qp->attr.dest_qp_num);
	/* Do not try the lock of a QP that is not connected to this one. */
	if (!m->peer || !keel_qp_connected(qp, m->peer))
		return false;
	return keel_fast_deliver(m);
}

/* To one QP that is named. RCU keeps the AH, which does not change. */
static bool keel_fast_datagram(struct keel_fast_msg *m)
	__must_hold_shared(RCU) __must_hold(&m->qp->sq.from.lock)
{
	const struct keel_uapi_send_wqe *wqe = &m->qp->sq.wqe;
	struct keel_qp *qp = m->qp;
	const struct keel_ah *ah = keel_ah_load(qp->kdev, wqe->ud.ah);

	if (!ah || ah->domain != qp->domain || !ah->av.local)
		return false;
	m->av = &ah->av;
	m->qkey = keel_ud_qkey(qp, wqe->ud.qkey);
	m->peer = keel_fast_peer(qp, wqe->ud.qpn);
	if (!m->peer || !keel_ud_takes(m->peer, m->qkey))
		return false;
	return keel_fast_deliver(m);
}

/*
 * Execute the first WQE, which no attempt has begun. Without preemption: else a thread
 * with almost no processor time would hold up RCU. Return: false if it is left for the
 * slow path: nothing was completed.
 */
static __always_inline bool keel_fast_send(struct keel_qp *qp)
	__must_hold_shared(RCU) __must_hold(&qp->sq.from.lock)
{
	struct keel_sq *sq = &qp->sq;
	struct keel_fast_msg m;

	keel_sq_fetch(sq);
	m.op = keel_opcode_find(sq->wqe.opcode);
	if (!m.op || m.op->fast == KEEL_FAST_NONE || !(m.op->types & BIT(qp->type)) ||
	    (qp->user && !keel_opcode_clean(m.op, &sq->wqe, qp->type)))
		return false;
	m.qp = qp;
	m.av = NULL;
	/* For the context analysis: it is the same lock. */
	lockdep_assert_held(&m.qp->sq.from.lock);
	if (qp->type == IB_QPT_UD ? !keel_fast_datagram(&m) : !keel_fast_connected(&m))
		return false;
	keel_count(qp->kdev, fast_msgs, 1);
	keel_count(qp->kdev, tx_msgs, 1);
	keel_count(qp->kdev, tx_bytes, m.len);
	keel_sq_complete(qp, IB_WC_SUCCESS, KEEL_WHY_NONE,
			 m.op->flags & KEEL_OP_READ ? m.len : 0);
	return true;
}

static enum keel_fast keel_fast_drain(struct keel_qp *qp, u32 *budget)
	__must_hold_shared(RCU) __must_hold(&qp->sq.from.lock)
{
	u32 left = KEEL_FAST_BUDGET;
	int posted;

	for (;;) {
		/* The caller has disabled preemption. */
		if (need_resched())
			return KEEL_FAST_MORE;
		/* Attributes are at least as new as the state. */
		if (context_unsafe(smp_load_acquire(&qp->state)) != IB_QPS_RTS)
			return KEEL_FAST_SLOW;
		posted = keel_ring_posted(&qp->sq.ring);
		if (posted < 0)
			return KEEL_FAST_SLOW;
		if (!posted)
			return KEEL_FAST_DONE;
		if (!*budget)
			return KEEL_FAST_LATER;
		if (!left)
			return KEEL_FAST_MORE;
		if (!keel_fast_send(qp))
			return KEEL_FAST_SLOW;
		left--;
		(*budget)--;
	}
}

/*
 * Number of WQEs that a doorbell executes: those that were posted when it rang,
 * and a few more. Other threads leave their WQEs to the thread that runs the
 * queue.
 */
static u32 keel_fast_budget(const struct keel_qp *qp)
{
	const struct keel_ring *ring = &qp->sq.ring;

	return min(READ_ONCE(ring->head->user) - READ_ONCE(ring->index),
		   keel_ring_size(ring)) + KEEL_DOORBELL_MORE;
}

/**
 * keel_fast_run() - execute the WQEs of a QP that the fast path supports
 * @qp: the QP of a user process
 * @budget: number of WQEs that a doorbell still executes; KEEL_FAST_FIRST in its first
 *	call
 *
 * Context: process context, RCU read side, without preemption: see keel_fast_send().
 * Return: the result, see enum keel_fast.
 */
enum keel_fast keel_fast_run(struct keel_qp *qp, u32 *budget)
{
	struct keel_sq *sq = &qp->sq;
	enum keel_fast res = KEEL_FAST_SLOW;

	/* These have a send queue; a user process's always has memory. */
	if (!(BIT(qp->type) & KEEL_FAST_TYPES) || !mutex_trylock(&sq->from.lock))
		return KEEL_FAST_SLOW;
	if (!keel_qp_is_dying(qp) && !keel_sq_begun(sq)) {
		/* The lock keeps the ring. */
		if (*budget == KEEL_FAST_FIRST)
			*budget = keel_fast_budget(qp);
		res = keel_fast_drain(qp, budget);
	}
	keel_point("fast_drained");
	/* RCU keeps the mutex until this function returns. */
	mutex_unlock(&sq->from.lock);
	/* Pairs with keel_sq_run(): if the lock was taken, it set @again. */
	smp_mb();
	if (res == KEEL_FAST_DONE && atomic_read(&sq->again))
		return KEEL_FAST_SLOW;
	return res;
}
EXPORT_SYMBOL_IF_KUNIT(keel_fast_run);

/**
 * keel_fast_one() - try the fast path for the first WQE
 * @qp: the QP
 *
 * For threads that run the queue, such as a worker.
 *
 * Context: may sleep; the lock of the send queue is held, and a WQE is posted.
 * Return: false if it is left for the slow path: nothing was done.
 */
bool keel_fast_one(struct keel_qp *qp)
{
	bool sent;

	if (!(BIT(qp->type) & KEEL_FAST_TYPES) || keel_sq_begun(&qp->sq))
		return false;
	keel_resp_stay();
	scoped_guard(rcu)
		sent = keel_fast_send(qp);
	keel_resp_relax();
	return sent;
}
