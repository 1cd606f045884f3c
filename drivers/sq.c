// SPDX-License-Identifier: GPL-2.0
/*
 * Running a send queue: whoever rings the doorbell does the work, one at a
 * time, entry by entry. A queue that has to wait leaves a timer behind and
 * nobody waiting.
 */
#include <linux/jiffies.h>
#include <linux/ktime.h>

#include "keel_qp.h"

/*
 * A look at a peer that is not ready: soon at first, then less often. Who has
 * waited long can wait a little longer: nobody is looked for 250 times a second
 * for ever.
 */
#define KEEL_PAUSE_MIN	(10 * NSEC_PER_USEC)
#define KEEL_PAUSE_MAX	(4 * NSEC_PER_MSEC)
#define KEEL_PAUSE_LONG	(64 * NSEC_PER_MSEC)

/* What a look at the first entry led to. */
enum keel_step {
	KEEL_STEP_MORE,		/* done with it: there may be another */
	KEEL_STEP_IDLE,		/* nothing can be done now */
	KEEL_STEP_LATER,	/* the workqueue shall go on */
};

static const u8 keel_wc_opcodes[] = {
	[IB_WR_RDMA_WRITE]		= IB_WC_RDMA_WRITE,
	[IB_WR_RDMA_WRITE_WITH_IMM]	= IB_WC_RDMA_WRITE,
	[IB_WR_SEND]			= IB_WC_SEND,
	[IB_WR_SEND_WITH_IMM]		= IB_WC_SEND,
	[IB_WR_RDMA_READ]		= IB_WC_RDMA_READ,
	[IB_WR_ATOMIC_CMP_AND_SWP]	= IB_WC_COMP_SWAP,
	[IB_WR_ATOMIC_FETCH_AND_ADD]	= IB_WC_FETCH_ADD,
	[IB_WR_LOCAL_INV]		= IB_WC_LOCAL_INV,
	[IB_WR_BIND_MW]			= IB_UVERBS_WC_BIND_MW,
	[IB_WR_SEND_WITH_INV]		= IB_WC_SEND,
	[IB_WR_FLUSH]			= IB_WC_FLUSH,
	[IB_WR_ATOMIC_WRITE]		= IB_WC_ATOMIC_WRITE,
	[IB_WR_REG_MR]			= IB_WC_REG_MR,
};

static u8 keel_wc_opcode(u32 opcode)
{
	return opcode < ARRAY_SIZE(keel_wc_opcodes) ? keel_wc_opcodes[opcode] :
						      0;
}

static void keel_sq_report(struct keel_qp *qp, enum ib_wc_status status,
			   u32 why, u32 byte_len)
{
	const struct keel_uapi_send_wqe *wqe = &qp->sq.wqe;
	/* As in keel_recv_complete(). */
	struct keel_uapi_cqe cqe = {
		.wr_id = wqe->wr_id,
		.ts = 0,
		.wall = 0,
		.byte_len = byte_len,
		.imm = 0,
		.qp_num = qp->qpn,
		.src_qp = 0,
		.vendor_err = why,
		.pkey_index = 0,
		.slid = 0,
		.status = status,
		.opcode = keel_wc_opcode(wqe->opcode),
		.flags = 0,
		.sl = 0,
		.reserved = { 0, 0, 0 },
	};

	if (keel_cq_add(qp->send_cq, &cqe, false) &&
	    !keel_qp_fail(qp, IB_QPS_ERR, IB_EVENT_QP_FATAL) &&
	    qp->sq.reporting)
		/* It failed just now, and this is all that tells. */
		keel_qp_event(qp, IB_EVENT_QP_FATAL);
}

/**
 * keel_sq_complete() - be done with the first entry
 * @qp: the QP; &keel_sq.wqe has the entry's wr_id, opcode and flags
 * @status: how it ended
 * @why: reason of a failure
 * @byte_len: bytes that were read
 *
 * Context: process context; the send queue's lock is held.
 */
void keel_sq_complete(struct keel_qp *qp, enum ib_wc_status status, u32 why,
		      u32 byte_len)
{
	lockdep_assert_held(&qp->sq.lock);
	keel_ring_advance(&qp->sq.ring);
	qp->sq.wait = KEEL_WAIT_NONE;
	if (status != IB_WC_SUCCESS || qp->sig_all ||
	    qp->sq.wqe.flags & IB_SEND_SIGNALED)
		keel_sq_report(qp, status, why, byte_len);
}

/*
 * An error ends the queue. UC and UD stop, and so does GSI, which is UD; the
 * others fail altogether. They have done so when the owner sees the completion:
 * it may set them going again at once. What receives are flushed for comes
 * before the flush.
 */
static void keel_sq_error(struct keel_qp *qp, enum ib_wc_status status,
			  u32 why, u32 byte_len)
{
	bool stops = qp->type == IB_QPT_UC || qp->type == IB_QPT_UD ||
		     qp->type == IB_QPT_GSI;

	keel_count(qp->kdev, wc_errors, 1);
	/* Seen by all who see the state. */
	WRITE_ONCE(qp->sq.reporting, !stops);
	keel_qp_fail(qp, stops ? IB_QPS_SQE : IB_QPS_ERR, KEEL_EVENT_NONE);
	keel_sq_complete(qp, status, why, byte_len);
	if (!stops)
		keel_qp_reported(qp);
}

/* How long a peer may be missing: (retry_cnt + 1) times the timeout. */
static u64 keel_sq_peer_ns(const struct keel_qp *qp)
{
	if (!qp->attr.timeout)
		return U64_MAX;
	return (4096ULL << qp->attr.timeout) * (qp->attr.retry_cnt + 1);
}

static u64 keel_sq_rnr_ns(const struct keel_qp *qp, u64 rnr_ns)
{
	return qp->attr.rnr_retry == 7 ? U64_MAX :
	       rnr_ns * qp->attr.rnr_retry;
}

static void keel_sq_wait_begin(struct keel_qp *qp, enum keel_wait wait,
			       u64 now, u64 ns)
{
	struct keel_sq *sq = &qp->sq;

	sq->wait = wait;
	sq->since = now;
	sq->pause = KEEL_PAUSE_MIN;
	sq->deadline = ns > U64_MAX - now ? U64_MAX : now + ns;
	if (wait == KEEL_WAIT_RNR)
		keel_count(qp->kdev, rnr_waits, 1);
	else
		keel_count(qp->kdev, peer_waits, 1);
}

static u64 keel_sq_pause_max(u64 waited)
{
	return clamp_t(u64, waited / 64, KEEL_PAUSE_MAX, KEEL_PAUSE_LONG);
}

/* Nobody to take it. Wait for the next look, or give up. */
static enum keel_step keel_sq_wait(struct keel_qp *qp, enum keel_wait wait,
				   u64 ns)
{
	struct keel_sq *sq = &qp->sq;
	u64 now = ktime_get_ns();

	if (sq->wait != wait)
		keel_sq_wait_begin(qp, wait, now, ns);
	if (now >= sq->deadline) {
		bool rnr = wait == KEEL_WAIT_RNR;

		keel_sq_error(qp, rnr ? IB_WC_RNR_RETRY_EXC_ERR :
			      IB_WC_RETRY_EXC_ERR,
			      rnr ? KEEL_WHY_NOT_READY : KEEL_WHY_PEER, 0);
		return KEEL_STEP_MORE;
	}
	/* One whose function runs is not queued: it may have kicked us here. */
	if (!hrtimer_is_queued(&sq->timer)) {
		hrtimer_start(&sq->timer,
			      ns_to_ktime(min(sq->pause, sq->deadline - now)),
			      HRTIMER_MODE_REL);
		sq->pause = min(sq->pause * 2, keel_sq_pause_max(now - sq->since));
	}
	return KEEL_STEP_IDLE;
}

static enum hrtimer_restart keel_sq_look(struct hrtimer *timer)
{
	/* Destroying the QP waits for the timer before it lets go. */
	keel_qp_kick(container_of(timer, struct keel_qp, sq.timer));
	return HRTIMER_NORESTART;
}

static void keel_sq_fetch(struct keel_sq *sq)
{
	memcpy(&sq->wqe, keel_ring_entry(&sq->ring, sq->ring.index),
	       sizeof(sq->wqe));
}

static enum keel_step keel_sq_flush_one(struct keel_qp *qp)
{
	keel_sq_fetch(&qp->sq);
	keel_count(qp->kdev, flushes, 1);
	keel_sq_complete(qp, IB_WC_WR_FLUSH_ERR, KEEL_WHY_FLUSH, 0);
	return KEEL_STEP_MORE;
}

static enum keel_step keel_sq_do_one(struct keel_qp *qp)
{
	/* All of it, so that it is written once and not cleared before. */
	struct keel_xfer x = {
		.qp = qp,
		.wqe = &qp->sq.wqe,
		.peer = NULL,
		.srq = NULL,
		.len = 0,
		.rnr_ns = 0,
		.domain = 0,
		.status = IB_WC_SUCCESS,
		.why = KEEL_WHY_NONE,
		.byte_len = 0,
	};

	keel_sq_fetch(&qp->sq);
	switch (keel_req_run(&x)) {
	case KEEL_XFER_RNR:
		return keel_sq_wait(qp, KEEL_WAIT_RNR,
				    keel_sq_rnr_ns(qp, x.rnr_ns));
	case KEEL_XFER_NO_PEER:
		return keel_sq_wait(qp, KEEL_WAIT_PEER, keel_sq_peer_ns(qp));
	case KEEL_XFER_STOPPED:
		/* Ours to end, or the peer's state: the next look tells. */
		return fatal_signal_pending(current) ? KEEL_STEP_LATER :
						       KEEL_STEP_MORE;
	default:
		break;
	}
	if (x.status != IB_WC_SUCCESS) {
		keel_sq_error(qp, x.status, x.why, x.byte_len);
		return KEEL_STEP_MORE;
	}
	keel_count(qp->kdev, tx_msgs, 1);
	keel_count(qp->kdev, tx_bytes, x.len);
	keel_sq_complete(qp, x.status, x.why, x.byte_len);
	return KEEL_STEP_MORE;
}

/* SQD: what had begun is done. */
static enum keel_step keel_sq_drained(struct keel_qp *qp)
{
	if (!qp->sq.drained) {
		qp->sq.drained = true;
		if (qp->attr.en_sqd_async_notify)
			keel_qp_event(qp, IB_EVENT_SQ_DRAINED);
	}
	return KEEL_STEP_IDLE;
}

static enum keel_step keel_sq_step(struct keel_qp *qp)
{
	struct keel_sq *sq = &qp->sq;
	int posted;

	if (READ_ONCE(qp->dying))
		return KEEL_STEP_IDLE;
	posted = keel_ring_posted(&sq->ring);
	if (posted < 0) {
		/* Nothing in there can be told from garbage. */
		keel_qp_fail(qp, IB_QPS_ERR, IB_EVENT_QP_FATAL);
		return KEEL_STEP_IDLE;
	}
	/* Attributes are at least as new as the state they came with. */
	switch (smp_load_acquire(&qp->state)) {
	case IB_QPS_RTS:
		return posted ? keel_sq_do_one(qp) : KEEL_STEP_IDLE;
	case IB_QPS_SQD:
		if (!posted || sq->wait == KEEL_WAIT_NONE)
			return keel_sq_drained(qp);
		return keel_sq_do_one(qp);
	case IB_QPS_SQE:
	case IB_QPS_ERR:
		return posted ? keel_sq_flush_one(qp) : KEEL_STEP_IDLE;
	default:
		return KEEL_STEP_IDLE;
	}
}

/*
 * Others may post without end, and whoever takes the device away waits for
 * doorbells, but not for the workqueue: not all of that is ours.
 *
 * Return: true if the workqueue shall go on.
 */
static bool keel_sq_drain(struct keel_qp *qp, u32 *budget, unsigned long end)
{
	while (*budget && !time_after(jiffies, end)) {
		(*budget)--;
		switch (keel_sq_step(qp)) {
		case KEEL_STEP_IDLE:
			return false;
		case KEEL_STEP_LATER:
			return true;
		default:
			cond_resched();
		}
	}
	return true;
}

static void keel_sq_run(struct keel_qp *qp)
{
	struct keel_sq *sq = &qp->sq;
	u32 budget = keel_ring_size(&sq->ring) * 2;
	unsigned long end = jiffies + HZ;
	bool later = false;

	atomic_set(&sq->kicked, 1);
	do {
		/*
		 * Pairs with the one behind mutex_unlock(): either we get the
		 * lock, or whoever has it sees that there is more.
		 */
		smp_mb();
		if (!mutex_trylock(&sq->lock))
			return;
		while (!later && atomic_xchg(&sq->kicked, 0))
			later = keel_sq_drain(qp, &budget, end);
		if (later && !READ_ONCE(qp->dying))
			keel_qp_kick(qp);
		mutex_unlock(&sq->lock);
		/* Pairs with the one above. */
		smp_mb();
	} while (!later && atomic_read(&sq->kicked));
}

/**
 * keel_qp_run() - do what there is to do for a QP
 * @qp: the QP
 *
 * Runs the send queue until it is empty or has to wait, and in the error state
 * flushes both queues. If somebody else does already, that one sees what is
 * new.
 *
 * Context: may sleep; no lock of a queue is held.
 */
void keel_qp_run(struct keel_qp *qp)
{
	/* Pairs with keel_qp_fail(): a report that is due is seen too. */
	if (smp_load_acquire(&qp->state) == IB_QPS_ERR)
		keel_rq_flush(qp);
	if (qp->sq.ring.head)
		keel_sq_run(qp);
}

/**
 * keel_sq_init() - what a send queue needs besides its ring
 * @qp: the QP
 */
void keel_sq_init(struct keel_qp *qp)
{
	struct keel_sq *sq = &qp->sq;

	mutex_init(&sq->lock);
	spin_lock_init(&sq->post_lock);
	hrtimer_setup(&sq->timer, keel_sq_look, CLOCK_MONOTONIC,
		      HRTIMER_MODE_REL);
	sq->inline_mem.type = KEEL_MEM_KERNEL;
	sq->inline_mem.start = (uintptr_t)sq->data;
}
