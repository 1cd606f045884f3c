// SPDX-License-Identifier: GPL-2.0
/*
 * Execution of a send queue, WQE by WQE. The thread that rings the doorbell
 * executes the WQEs that were posted when it rang, up to the first big message; the
 * worker of its process executes the rest. An answer of another host has the thread of the link
 * complete short messages (&keel_turn.brief). The event that a queue waits for
 * reschedules it (sq_wait.c). Its timer enforces the deadline.
 *
 * No thread waits for another process with the lock of a queue. If memory is
 * not present, the thread drops the lock, requests the memory (memreq.c), and a
 * later attempt continues the WQE where it stopped.
 */
#include <kunit/visibility.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/sched/signal.h>
#include <linux/sizes.h>

#include "keel_far.h"
#include "keel_fast.h"
#include "keel_helpers.h"
#include "keel_opcode.h"
#include "keel_point.h"

/*
 * From so many bytes on, the worker copies a message. Waking a thread costs as much as the
 * copy of some 64 KiB.
 */
static unsigned int keel_big_bytes = SZ_256K;
module_param_named(big_bytes, keel_big_bytes, uint, 0644);
MODULE_PARM_DESC(big_bytes,
		 "Leave messages of so many bytes or more to a thread of the process (default 262144; 0: none)");

/* How often the thread of a link runs a send queue for one answer. */
#define KEEL_SQ_BRIEF_RUNS	2

/* The next action of the thread that runs a send queue. */
enum keel_action {
	KEEL_ACTION_MORE,	/* continue: there may be another WQE */
	KEEL_ACTION_IDLE,	/* nothing can be done now */
	KEEL_ACTION_LATER,	/* the worker continues */
	KEEL_ACTION_ABSENT,	/* request memory, without the lock */
	KEEL_ACTION_OVER,	/* the process is killed: its QP failed */
};

/* A killed process does not continue, and no other thread continues its QP. */
static enum keel_action keel_sq_stopped(struct keel_qp *qp)
{
	if (fatal_signal_pending(current)) {
		keel_qp_fail(qp, IB_QPS_ERR, IB_EVENT_QP_FATAL);
		return KEEL_ACTION_OVER;
	}
	/* The next iteration checks the state and the end of the turn. */
	return KEEL_ACTION_MORE;
}

/*
 * Memory is not present. Request it, or wait for a pending request. The owner
 * of the memory has a limited time to provide it.
 */
static enum keel_action keel_sq_absent(struct keel_qp *qp)
	__must_hold(&qp->sq.from.lock)
{
	struct keel_fetch *fetch = &qp->sq.from.fetch;
	u64 ns = KEEL_PAGES_NS;

	if (fetch->ctl.need.kind == KEEL_NEED_CLOSE)
		keel_fetch_close(fetch);
	if (fatal_signal_pending(current))
		return keel_sq_stopped(qp);
	if (!fetch->req)
		return KEEL_ACTION_ABSENT;
	if (fetch->req->open.need.kind != KEEL_NEED_PAGES)
		ns = KEEL_FENCE_NS;
	if (keel_sq_wait(qp, KEEL_WAIT_MEMORY, ns))
		return KEEL_ACTION_IDLE;
	keel_fetch_abandon(fetch);
	return KEEL_ACTION_MORE;
}

static enum keel_action keel_sq_flush_one(struct keel_qp *qp)
	__must_hold(&qp->sq.from.lock)
{
	keel_sq_fetch(&qp->sq);
	keel_count(qp->kdev, flushes, 1);
	keel_sq_complete(qp, IB_WC_WR_FLUSH_ERR, KEEL_WHY_FLUSH, 0);
	return KEEL_ACTION_MORE;
}

static void keel_sq_done(struct keel_qp *qp, const struct keel_xfer *x)
	__must_hold(&qp->sq.from.lock)
{
	if (x->status != IB_WC_SUCCESS) {
		keel_sq_error(qp, x->status, x->why, x->byte_len);
		return;
	}
	keel_count(qp->kdev, tx_msgs, 1);
	keel_count(qp->kdev, tx_bytes, x->len);
	keel_sq_complete(qp, x->status, x->why, x->byte_len);
}

static bool keel_is_big(u64 bytes)
{
	unsigned int least = READ_ONCE(keel_big_bytes);

	return least && bytes >= least;
}

static enum keel_action keel_sq_underway(struct keel_qp *qp, int posted,
					 const struct keel_turn *turn)
	__must_hold(&qp->sq.from.lock)
{
	switch (keel_req_ahead(qp, posted, turn)) {
	case KEEL_XFER_STOPPED:
		return KEEL_ACTION_MORE;
	case KEEL_XFER_LATER:
		return KEEL_ACTION_LATER;
	default:
		keel_far_wait(qp);
		return KEEL_ACTION_IDLE;
	}
}

static enum keel_action keel_sq_do_one(struct keel_qp *qp, int posted,
				       const struct keel_turn *turn)
	__must_hold(&qp->sq.from.lock)
{
	/* All members are set, so that the compiler does not clear it first. */
	struct keel_xfer x = {
		.qp = qp,
		.from = &qp->sq.from,
		.gen = atomic64_read(&qp->gen),
		.src_qp = qp->qpn,
		.wqe = &qp->sq.wqe,
		.op = NULL,
		.peer = NULL,
		.srq = NULL,
		.old_srq = NULL,
		.invalidated = NULL,
		.named = NULL,
		.len = 0,
		.off = 0,
		.total = 0,
		.part = false,
		.refused = false,
		.again = false,
		.brief = turn->brief,
		.rnr_ns = 0,
		.domain = 0,
		.status = IB_WC_SUCCESS,
		.why = KEEL_WHY_NONE,
		.byte_len = 0,
		.until = turn->until,
	};

	/* The last reference on the SRQ may end: pages of its ring may be locked for long. */
	if (turn->brief && READ_ONCE(qp->sq.from.srq))
		return KEEL_ACTION_LATER;
	keel_sq_fetch(&qp->sq);
	keel_fetch_collect(&qp->sq.from.fetch);
	keel_srq_wait_end(&qp->sq.from);
	qp->sq.from.fetch.ctl.arg = &x;
	lockdep_assert_held(&x.qp->sq.from.lock);
	switch (keel_req_run(&x)) {
	case KEEL_XFER_RNR:
		return keel_sq_wait_receive(qp, x.rnr_ns) ?
		       KEEL_ACTION_IDLE : KEEL_ACTION_MORE;
	case KEEL_XFER_NO_PEER:
		return keel_sq_wait_peer(qp) ? KEEL_ACTION_IDLE :
					       KEEL_ACTION_MORE;
	case KEEL_XFER_UNDERWAY:
		return keel_sq_underway(qp, posted, turn);
	case KEEL_XFER_LATER:
		return KEEL_ACTION_LATER;
	case KEEL_XFER_STOPPED:
		return keel_sq_stopped(qp);
	case KEEL_XFER_ABSENT:
		return turn->brief ? KEEL_ACTION_LATER : keel_sq_absent(qp);
	default:
		if (qp->user && !turn->caller && keel_is_big(x.len) &&
		    x.status == IB_WC_SUCCESS)
			keel_count(qp->kdev, big_msgs, 1);
		if (qp->sq.from.fetch.ctl.helped && x.status == IB_WC_SUCCESS)
			keel_count(qp->kdev, shared_msgs, 1);
		keel_sq_done(qp, &x);
		return KEEL_ACTION_MORE;
	}
}

/*
 * Bytes of the first WQE, as userspace wrote them just now. Nothing depends on them but
 * which thread executes the WQE.
 */
static u64 keel_sq_bytes(const struct keel_qp *qp)
	__must_hold(&qp->sq.from.lock)
{
	const struct keel_ring *ring = &qp->sq.ring;
	const struct keel_uapi_send_wqe *wqe = keel_ring_entry(ring, ring->index);
	const struct keel_uapi_sge *sge = (const void *)(wqe + 1);
	u32 n = min_t(u32, READ_ONCE(wqe->num_sge), qp->cap.max_send_sge);
	u64 bytes = 0;

	for (; n; n--, sge++)
		bytes += READ_ONCE(sge->length);
	return bytes;
}

/*
 * Is the first WQE better executed by the worker than by the caller? The worker is a thread
 * of the same process. Its copy of a big message overlaps with what the caller does
 * meanwhile. If the worker has other work, the caller copies: both do so at once.
 */
static bool keel_sq_is_big(const struct keel_qp *qp)
	__must_hold(&qp->sq.from.lock)
{
	u64 bytes = keel_sq_bytes(qp);
	struct keel_worker *worker;

	if (!keel_is_big(bytes))
		return false;
	guard(rcu)();
	worker = keel_qp_worker(qp);
	if (!worker || !keel_worker_is_ours(worker) || !keel_worker_may_replace(worker) ||
	    (!keel_job_is_queued(&qp->job) && !keel_worker_is_idle(worker)))
		return false;
	keel_worker_want_help(worker, bytes);
	return true;
}

/* SQD: the WQE that was begun has completed. */
static enum keel_action keel_sq_drained(struct keel_qp *qp)
	__must_hold(&qp->sq.from.lock)
{
	if (!READ_ONCE(qp->sq.drained)) {
		WRITE_ONCE(qp->sq.drained, true);
		/* Also for a thread that found memory absent before SQD. */
		keel_sq_discard(&qp->sq);
		keel_far_drained(qp);
		if (READ_ONCE(qp->attr.en_sqd_async_notify))
			keel_qp_event(qp, IB_EVENT_SQ_DRAINED);
	}
	return KEEL_ACTION_IDLE;
}

static enum keel_action keel_sq_send(struct keel_qp *qp, int posted,
				     const struct keel_turn *turn)
	__must_hold(&qp->sq.from.lock)
{
	if (turn->flush || (turn->caller && keel_sq_is_big(qp)))
		return KEEL_ACTION_LATER;
	return keel_sq_do_one(qp, posted, turn);
}

static enum keel_action keel_sq_step(struct keel_qp *qp, int posted,
				     const struct keel_turn *turn, bool fast)
	__must_hold(&qp->sq.from.lock)
{
	/* Attributes are at least as new as the state they came with. */
	switch (context_unsafe(smp_load_acquire(&qp->state))) {
	case IB_QPS_RTS:
		if (!posted)
			return KEEL_ACTION_IDLE;
		if (fast && keel_fast_one(qp))
			return KEEL_ACTION_MORE;
		return keel_sq_send(qp, posted, turn);
	case IB_QPS_SQD:
		if (!posted || (!keel_sq_begun(&qp->sq) && !keel_far_has_begun(qp)))
			return keel_sq_drained(qp);
		return keel_sq_send(qp, posted, turn);
	case IB_QPS_SQE:
	case IB_QPS_ERR:
		if (posted && turn->brief)
			return KEEL_ACTION_LATER;
		return posted ? keel_sq_flush_one(qp) : KEEL_ACTION_IDLE;
	default:
		return KEEL_ACTION_IDLE;
	}
}

/*
 * Userspace may post without end: a doorbell ends at @turn->end, and a worker
 * gives its other queues a turn. May be called without the lock.
 */
static bool keel_sq_turn_over(const struct keel_qp *qp,
			      const struct keel_turn *turn)
{
	u32 index = READ_ONCE(qp->sq.ring.index);

	if (turn->doorbell && (s32)(index - turn->end) >= 0)
		return true;
	return ktime_get_ns() > turn->until;
}

/*
 * Other threads may set @again without end, and this thread may be a doorbell of
 * another process. A step of a flush for a dead process ends after its WQEs, and
 * has no limit of time: it never runs the queue again for others.
 */
static bool keel_sq_must_leave(const struct keel_qp *qp,
			       const struct keel_turn *turn)
{
	return turn->flush || keel_sq_turn_over(qp, turn);
}

/*
 * The thread of a link works for all users, and leaves what they post meanwhile to them.
 * A program that answers each message posts once.
 */
static bool keel_sq_has_enough(const struct keel_qp *qp, const struct keel_turn *turn, u32 runs)
{
	return (turn->brief && runs >= KEEL_SQ_BRIEF_RUNS) || keel_sq_must_leave(qp, turn);
}

/*
 * The turn is over, and WQEs are left. In other states, nothing executes them before
 * a transition, and that runs the queue.
 */
static enum keel_action keel_sq_leave(const struct keel_qp *qp)
{
	switch (keel_qp_state(qp)) {
	case IB_QPS_RTS:
	case IB_QPS_SQD:
	case IB_QPS_SQE:
	case IB_QPS_ERR:
		return KEEL_ACTION_LATER;
	default:
		return KEEL_ACTION_IDLE;
	}
}

static enum keel_action keel_sq_drain(struct keel_qp *qp,
				      const struct keel_turn *turn)
	__must_hold(&qp->sq.from.lock)
{
	/* Most doorbells have tried it already, for the first WQE. */
	bool fast = !turn->doorbell && !turn->flush && !turn->brief;
	enum keel_action action;
	int posted;

	for (;;) {
		if (keel_qp_is_dying(qp))
			return KEEL_ACTION_IDLE;
		posted = keel_ring_posted(&qp->sq.ring);
		if (posted < 0) {
			/* Invalid producer index: no WQE can be trusted. */
			keel_qp_fail(qp, IB_QPS_ERR, IB_EVENT_QP_FATAL);
			return KEEL_ACTION_IDLE;
		}
		if (posted && keel_sq_turn_over(qp, turn))
			return keel_sq_leave(qp);
		action = keel_sq_step(qp, posted, turn, fast);
		if (action != KEEL_ACTION_MORE)
			return action;
		fast = !turn->flush && !turn->brief;
		cond_resched();
	}
}

/**
 * keel_sq_run() - run a send queue
 * @qp: the QP, which has one
 * @turn: limits of this run
 *
 * If another thread runs the queue already, that thread executes the new WQEs, or
 * schedules the QP if its own turn is over.
 *
 * Context: as keel_qp_run(). The caller holds a reference on the QP.
 * Return: whether this thread has run it.
 */
bool keel_sq_run(struct keel_qp *qp, const struct keel_turn *turn)
{
	struct keel_lack lack = {};
	struct keel_sq *sq = &qp->sq;
	enum keel_action action;
	bool ran = false;
	u32 runs = 0;

	/*
	 * Pairs with atomic_xchg(): a thread that clears @again sees the work
	 * that it was set for.
	 */
	atomic_set_release(&sq->again, 1);
	do {
		/*
		 * Pairs with the barrier after mutex_unlock(): either this
		 * thread gets the lock, or its holder sees @again.
		 */
		smp_mb();
		if (!mutex_trylock(&sq->from.lock))
			return ran;
		ran = true;
		action = KEEL_ACTION_IDLE;
		while (action == KEEL_ACTION_IDLE && atomic_xchg(&sq->again, 0)) {
			action = keel_sq_drain(qp, turn);
			runs++;
			cond_resched();
			if (atomic_read(&sq->again) &&
			    keel_sq_has_enough(qp, turn, runs))
				break;
		}
		keel_point("sq_drained");
		/* Under the lock: a dying QP is not scheduled any more. */
		if (action == KEEL_ACTION_LATER && !keel_qp_is_dying(qp))
			keel_qp_schedule(qp);
		/* Its references are dropped without the lock. */
		keel_fetch_take(&sq->from.fetch, &lack);
		mutex_unlock(&sq->from.lock);
		if (action == KEEL_ACTION_ABSENT) {
			/* This takes the lock. */
			context_unsafe(keel_fetch_provide(&sq->from.fetch, &sq->from.lock,
							  qp, &lack));
			atomic_set(&sq->again, 1);
		}
		keel_need_put(&lack.need);
		/*
		 * Pairs with the barrier above. A thread that found the lock
		 * taken has set @again: run the queue again for it.
		 */
		smp_mb();
		if (!atomic_read(&sq->again))
			return true;
		/* The worker continues: running the queue again would only delay it. */
	} while (action != KEEL_ACTION_LATER && !keel_sq_has_enough(qp, turn, runs));
	/* Without the lock, because the worker must get it. */
	keel_qp_schedule_alive(qp);
	return true;
}
EXPORT_SYMBOL_IF_KUNIT(keel_sq_run);

/**
 * keel_sq_init() - initialize a send queue, except its ring
 * @qp: the QP
 */
void keel_sq_init(struct keel_qp *qp)
	__context_unsafe(/* no other thread has the QP yet */)
{
	struct keel_sq *sq = &qp->sq;

	mutex_init(&sq->from.lock);
	sq->from.qp = qp;
	spin_lock_init(&sq->post_lock);
	hrtimer_setup(&sq->timer, keel_sq_expired, CLOCK_MONOTONIC,
		      HRTIMER_MODE_ABS);
	keel_fetch_init(&sq->from.fetch, keel_xfer_stop);
	INIT_LIST_HEAD(&sq->from.waiting);
	sq->inline_mem.type = KEEL_MEM_KERNEL;
	sq->inline_mem.start = (uintptr_t)sq->data;
}
