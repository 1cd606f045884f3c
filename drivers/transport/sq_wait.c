// SPDX-License-Identifier: GPL-2.0
/*
 * Waits of a send queue, each with a deadline: for a receive WQE of the peer, for the peer
 * itself, for memory.
 */
#include <kunit/visibility.h>
#include <linux/ktime.h>

#include "keel_point.h"
#include "keel_qp.h"

/* How long a requester waits for its peer: (retry_cnt + 1) timeouts. */
static u64 keel_sq_peer_ns(const struct keel_qp *qp)
{
	u8 timeout = READ_ONCE(qp->attr.timeout);

	if (!timeout)
		return U64_MAX;
	return (4096ULL << timeout) * (READ_ONCE(qp->attr.retry_cnt) + 1);
}

/*
 * The end of a wait that begins now. If the WQE has already waited for a receive WQE, or
 * for the same memory, it is the end of that wait: else a peer that is not connected for a
 * moment, again and again, would prolong it without end. The time to wait for the peer
 * itself begins anew after each answer, as on a NIC.
 */
static u64 keel_sq_until(struct keel_sq *sq, enum keel_wait wait, u64 fresh)
	__must_hold(&sq->from.lock)
{
	const struct keel_need *need;

	switch (wait) {
	case KEEL_WAIT_RNR:
		sq->rnr_until = sq->rnr_until ?: fresh;
		return sq->rnr_until;
	case KEEL_WAIT_MEMORY:
		need = &sq->from.fetch.req->open.need;
		if (!sq->waited_until || !keel_need_is(&sq->waited, need)) {
			/* Only compared, without references. */
			sq->waited = *need;
			sq->waited_until = fresh;
		}
		return sq->waited_until;
	default:
		return fresh;
	}
}

static void keel_sq_wait_begin(struct keel_qp *qp, enum keel_wait wait,
			       u64 now, u64 ns)
	__must_hold(&qp->sq.from.lock)
{
	struct keel_sq *sq = &qp->sq;

	WRITE_ONCE(sq->wait, wait);
	sq->deadline = keel_sq_until(sq, wait, ns > U64_MAX - now ? U64_MAX : now + ns);
	if (sq->deadline != U64_MAX)
		hrtimer_start(&sq->timer, ns_to_ktime(sq->deadline),
			      HRTIMER_MODE_ABS);
	else
		hrtimer_try_to_cancel(&sq->timer);
	if (wait == KEEL_WAIT_RNR)
		keel_count(qp->kdev, rnr_waits, 1);
	else if (wait == KEEL_WAIT_PEER)
		keel_count(qp->kdev, peer_waits, 1);
}

/**
 * keel_sq_wait() - let a send queue wait for an event
 * @qp: the QP
 * @wait: the event, which reschedules it
 * @ns: how long it waits, in nanoseconds; U64_MAX: without a limit
 *
 * The time begins with the first call of the WQE for this event, or for this memory. That
 * for the peer begins with the first call after a wait for something else.
 *
 * Context: process context; the send queue's lock is held.
 * Return: true to wait; false if the deadline has passed.
 */
bool keel_sq_wait(struct keel_qp *qp, enum keel_wait wait, u64 ns)
{
	struct keel_sq *sq = &qp->sq;
	u64 now = ktime_get_ns();

	/*
	 * No memory stays in use for a peer that may never be ready. Another
	 * thread may have requested it since the wait began.
	 */
	if (wait != KEEL_WAIT_MEMORY)
		keel_fetch_forgo(&sq->from.fetch);
	/* Each request for memory has its own deadline. */
	if (sq->wait != wait ||
	    (wait == KEEL_WAIT_MEMORY &&
	     !keel_need_is(&sq->waited, &sq->from.fetch.req->open.need)))
		keel_sq_wait_begin(qp, wait, now, ns);
	return now < sq->deadline;
}
EXPORT_SYMBOL_IF_KUNIT(keel_sq_wait);

/* The vendor error if there is no peer. */
static u32 keel_sq_peer_why(const struct keel_qp *qp)
{
	const struct keel_qp *peer;

	guard(rcu)();
	peer = keel_qp_load(qp->kdev, qp->attr.dest_qp_num);
	if (!READ_ONCE(qp->local) || !peer || !keel_qp_is_to(peer, qp) ||
	    keel_qp_state(peer) < IB_QPS_RTR)
		return KEEL_WHY_PEER;
	return keel_qp_psns_match(qp, peer) ? KEEL_WHY_PEER : KEEL_WHY_PSN;
}

/**
 * keel_sq_wait_receive() - let a send queue wait for a receive WQE
 * @qp: the QP
 * @rnr_ns: the delay that the peer asks for
 *
 * Context: as keel_sq_wait().
 * Return: true to wait; false if the WQE has completed with an error instead.
 */
bool keel_sq_wait_receive(struct keel_qp *qp, u64 rnr_ns)
{
	u8 retries = READ_ONCE(qp->attr.rnr_retry);
	u64 ns = retries == 7 ? U64_MAX : rnr_ns * retries;

	if (keel_sq_wait(qp, KEEL_WAIT_RNR, ns))
		return true;
	keel_sq_error(qp, IB_WC_RNR_RETRY_EXC_ERR, KEEL_WHY_NOT_READY, 0);
	return false;
}

/**
 * keel_sq_wait_peer() - let a send queue wait for a peer that is connected and ready
 * @qp: the QP
 *
 * Context: as keel_sq_wait().
 * Return: as keel_sq_wait_receive().
 */
bool keel_sq_wait_peer(struct keel_qp *qp)
{
	keel_point("no_peer");
	if (keel_sq_wait(qp, KEEL_WAIT_PEER, keel_sq_peer_ns(qp)))
		return true;
	keel_sq_error(qp, IB_WC_RETRY_EXC_ERR, keel_sq_peer_why(qp), 0);
	return false;
}

/**
 * keel_rnr_ns() - how long a requester waits for a receive WQE
 * @timer: min_rnr_timer of the responder
 *
 * Context: any.
 * Return: ns.
 */
u64 keel_rnr_ns(u8 timer)
{
	static const u64 rnr_us[32] = {
		655360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640,
		960, 1280, 1920, 2560, 3840, 5120, 7680, 10240, 15360, 20480,
		30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680,
		491520,
	};

	return rnr_us[timer & 31] * NSEC_PER_USEC;
}
EXPORT_SYMBOL_IF_KUNIT(keel_rnr_ns);

/**
 * keel_sq_expired() - reschedule a send queue whose deadline has passed
 * @timer: &keel_sq.timer
 *
 * Context: interrupt, or softirq with PREEMPT_RT.
 * Return: HRTIMER_NORESTART.
 */
enum hrtimer_restart keel_sq_expired(struct hrtimer *timer)
{
	/* The destroy cancels the timer before it drops its reference. */
	keel_qp_schedule(container_of(timer, struct keel_qp, sq.timer));
	return HRTIMER_NORESTART;
}
