// SPDX-License-Identifier: GPL-2.0
/*
 * The requester of a QP that is connected to another host. WQEs are divided into packets, of
 * which up to KEEL_FAR_WINDOW are under way: those of the first WQE, and then those of the WQEs
 * behind it (far_ahead.c). If one is not answered in time, it and all after it are sent
 * again ("go back"). A WQE gets its answers when it is the first one: its memory is looked up
 * again for them.
 */
#include <linux/bitops.h>
#include <linux/ktime.h>
#include <linux/minmax.h>

#include "keel_far.h"
#include "keel_opcode.h"
#include "keel_point.h"
#include "keel_qp.h"
#include "keel_resp_lock.h"

/* When a packet is sent again that the other side was not ready for: then twice as long. */
#define KEEL_FAR_HOLD_MIN	NSEC_PER_MSEC
#define KEEL_FAR_HOLD_MAX	(64 * NSEC_PER_MSEC)
/* A message that waits for less time has its link doubted only if it fails. */
#define KEEL_FAR_DOUBT_NS	(100 * NSEC_PER_MSEC)
/* Limits of &keel_far.probes and &keel_far.resends: more only made numbers overflow. */
#define KEEL_FAR_DOUBLINGS	6

static u32 *keel_far_len(struct keel_far *far, u32 index)
{
	/* keel_req_check() has refused longer ones. */
	BUILD_BUG_ON(KEEL_MAX_MSG > U32_MAX);
	BUILD_BUG_ON_NOT_POWER_OF_2(KEEL_FAR_WINDOW);
	return &far->lens[index % KEEL_FAR_WINDOW];
}

/**
 * keel_far_knows() - was a packet of a WQE sent that has not ended?
 * @far: of the QP
 * @index: index of the WQE
 *
 * Return: true if so, or if the WQE is the first one that is being sent.
 */
bool keel_far_knows(const struct keel_far *far, u32 index)
{
	return far->begun && index - far->index <= far->most - far->index;
}

/**
 * keel_far_has_len() - has a WQE still the length that it had when it was begun?
 * @x: its message
 * @index: its index; keel_far_knows() it
 *
 * Return: false if userspace has changed it.
 */
bool keel_far_has_len(const struct keel_xfer *x, u32 index)
{
	return x->len == *keel_far_len(x->qp->far, index);
}

/**
 * keel_far_note() - a WQE is the last one that was begun
 * @x: its message
 * @index: its index
 */
void keel_far_note(const struct keel_xfer *x, u32 index)
{
	struct keel_far *far = x->qp->far;

	BUILD_BUG_ON(BITS_PER_TYPE(far->reads) < KEEL_FAR_WINDOW);
	far->most = index;
	WRITE_ONCE(far->lengthy, x->len > KEEL_FRAME_DATA);
	*keel_far_len(far, index) = x->len;
	if (x->op->flags & KEEL_OP_DEPTH)
		far->reads |= BIT_ULL(index % KEEL_FAR_WINDOW);
}

/**
 * keel_far_start_wqe() - the next packet is the first one of a WQE
 * @far: of the QP
 * @index: index of the WQE
 */
void keel_far_start_wqe(struct keel_far *far, u32 index)
{
	far->at = index;
	far->sent = 0;
	far->whole = false;
	far->staged = false;
}

/*
 * A WQE behind the one that was the first is the first one now. Return: false if userspace has
 * changed WQEs, so that the one before did not end by its answers.
 */
static bool keel_far_advance(struct keel_far *far, u32 index)
{
	if (index != far->index + 1 || far->acked != *keel_far_len(far, far->index))
		return false;
	far->reads &= ~BIT_ULL(far->index % KEEL_FAR_WINDOW);
	far->index = index;
	far->acked = 0;
	/* Its packets are to be sent again. */
	if ((s32)(far->at - index) < 0)
		keel_far_start_wqe(far, index);
	return true;
}

/* The first packet of the first WQE is to be sent. */
static void keel_far_begin(struct keel_xfer *x, struct keel_far *far, u64 now)
	__must_hold(&x->from->lock)
{
	if (!far->primed)
		far->next = x->qp->attr.sq_psn & KEEL_PSN_MASK;
	/* Those of earlier messages of UC may not be answered yet. */
	if (!far->primed || x->qp->type != IB_QPT_UC) {
		far->una = far->next;
		far->resends = 0;
	}
	far->primed = true;
	far->tip = far->next;
	far->probes = 0;
	far->begun = true;
	far->index = x->qp->sq.ring.index;
	far->reads = 0;
	keel_far_note(x, far->index);
	far->acked = 0;
	keel_far_start_wqe(far, far->index);
	far->hold_until = 0;
	far->rnr_until = 0;
	far->deadline = keel_far_after(now, keel_far_peer_ns(x->qp));
	/* An earlier message may have left its progress. */
	x->from->fetch.ctl.done = 0;
}

/* Copy what a read or an atomic operation has returned. */
static enum keel_copy_result keel_far_take(struct keel_xfer *x, struct keel_far_slot *slot)
	__must_hold(&x->from->lock)
{
	const u64 word = le64_to_cpu(slot->frame.answer.word);
	const void *data = x->op->flags & KEEL_OP_ATOMIC ? (void *)&word : slot->data;
	const struct keel_mem mem = { .type = KEEL_MEM_KERNEL, .start = (uintptr_t)data };
	struct keel_from *from = x->from;
	u32 n = keel_far_una_size(x);

	if (x->op->flags & KEEL_OP_ATOMIC)
		n = min_t(u32, n, sizeof(word));
	keel_segs_one(&from->remote, &mem, 0, n);
	return keel_far_copy(x, &from->segs, x->qp->far->acked, &from->remote, 0, n);
}

/* The other side may send any number. */
static enum keel_xfer_result keel_far_failed(struct keel_xfer *x,
					     const struct keel_frame *frame)
{
	u32 why = le32_to_cpu(frame->answer.why);

	switch (frame->answer.status) {
	case IB_WC_REM_INV_REQ_ERR:
	case IB_WC_REM_ACCESS_ERR:
	case IB_WC_REM_OP_ERR:
		return keel_far_end(x, frame->answer.status,
				    why > KEEL_WHY_PSN ? KEEL_WHY_NONE : why);
	default:
		return keel_far_end(x, IB_WC_BAD_RESP_ERR, KEEL_WHY_NONE);
	}
}

/* A packet was executed. */
static enum keel_xfer_result keel_far_done(struct keel_xfer *x, struct keel_far_slot *slot)
	__must_hold(&x->from->lock)
{
	bool data = x->op->flags & KEEL_OP_READ && !(x->op->flags & KEEL_OP_ATOMIC);
	const struct keel_frame *frame = &slot->frame;
	struct keel_far *far = x->qp->far;
	u32 n = keel_far_una_size(x);
	enum keel_copy_result copied;

	if (frame->answer.status != IB_WC_SUCCESS)
		return keel_far_failed(x, frame);
	if (le32_to_cpu(frame->len) != (data ? n : 0))
		return keel_far_end(x, IB_WC_BAD_RESP_ERR, KEEL_WHY_LENGTH);
	if (x->op->flags & KEEL_OP_READ) {
		copied = keel_far_take(x, slot);
		if (copied != KEEL_COPY_DONE)
			return keel_far_uncopied(x, copied);
	}
	far->acked += n;
	far->una = (far->una + 1) & KEEL_PSN_MASK;
	/* It was to be sent again, but the answer to the first one has come after all. */
	if (keel_psn_diff(far->next, far->una) < 0)
		keel_far_back(x, far);
	far->probes = 0;
	far->resends = 0;
	far->resend_at = ktime_get_ns() + keel_far_resend_ns(x->qp);
	far->rnr_until = 0;
	/* The other side has accepted this one after all. */
	far->hold_until = 0;
	keel_far_renew(far);
	if (far->acked != x->len)
		return KEEL_XFER_UNDERWAY;
	if (x->op->flags & KEEL_OP_READ)
		x->byte_len = x->len;
	return keel_far_end(x, IB_WC_SUCCESS, KEEL_WHY_NONE);
}

static u64 keel_far_hold_ns(const struct keel_far *far)
{
	return min_t(u64, KEEL_FAR_HOLD_MIN << far->probes, KEEL_FAR_HOLD_MAX);
}

/* The other side is not ready: try one packet from now on, less and less often. */
static void keel_far_probe(struct keel_xfer *x, struct keel_far *far)
	__must_hold(&x->from->lock)
{
	keel_far_back(x, far);
	far->probes = min(far->probes + 1, KEEL_FAR_DOUBLINGS);
}

/* There is no receive WQE: wait as the other side asks, and not for ever. */
static enum keel_xfer_result keel_far_rnr(struct keel_xfer *x, const struct keel_frame *frame)
	__must_hold(&x->from->lock)
{
	u64 ns = keel_rnr_ns(frame->answer.rnr), now = ktime_get_ns();
	u8 retries = READ_ONCE(x->qp->attr.rnr_retry);
	struct keel_far *far = x->qp->far;

	if (!far->rnr_until)
		far->rnr_until = retries == 7 ? U64_MAX : now + ns * retries;
	if (now >= far->rnr_until)
		return keel_far_end(x, IB_WC_RNR_RETRY_EXC_ERR, KEEL_WHY_NOT_READY);
	keel_count(x->qp->kdev, rnr_waits, 1);
	far->hold_until = min(now + max(ns, keel_far_hold_ns(far)), far->rnr_until);
	keel_far_probe(x, far);
	far->deadline = keel_far_after(far->hold_until, keel_far_peer_ns(x->qp));
	return KEEL_XFER_UNDERWAY;
}

static enum keel_xfer_result keel_far_answer(struct keel_xfer *x, struct keel_far_slot *slot)
	__must_hold(&x->from->lock)
{
	struct keel_far *far = x->qp->far;

	/* One that came twice, or is for a message that has ended. */
	if (le32_to_cpu(slot->frame.psn) != far->una || far->una == far->tip)
		return KEEL_XFER_UNDERWAY;
	switch (slot->frame.answer.result) {
	case KEEL_RESULT_DONE:
		far->granted = min_t(u32, slot->frame.answer.chunks, KEEL_FAR_LONGS);
		return keel_far_done(x, slot);
	case KEEL_RESULT_RNR:
		return keel_far_rnr(x, &slot->frame);
	default:
		far->hold_until = ktime_get_ns() + keel_far_hold_ns(far);
		keel_far_probe(x, far);
		return KEEL_XFER_UNDERWAY;
	}
}

/*
 * Process all answers, but no more than there can be at once: the other host may send some that
 * are for nothing without end, and this thread is not preempted. Return: KEEL_XFER_UNDERWAY: the
 * message has not ended.
 */
static enum keel_xfer_result keel_far_collect(struct keel_xfer *x)
	__must_hold(&x->from->lock)
{
	struct keel_far *far = x->qp->far;
	enum keel_xfer_result result;
	struct keel_far_slot *slot;
	u32 left = KEEL_FAR_WINDOW;

	while (left--) {
		scoped_guard(spinlock, &far->lock)
			slot = keel_far_first(far, &far->answers);
		if (!slot)
			return KEEL_XFER_UNDERWAY;
		/* Only the holder of the lock of the send queue takes it out. */
		result = keel_far_answer(x, slot);
		if (result == KEEL_XFER_ABSENT || result == KEEL_XFER_STOPPED)
			return result;
		scoped_guard(spinlock, &far->lock)
			keel_far_free_first(far, &far->answers);
		if (result != KEEL_XFER_UNDERWAY)
			return result;
		keel_point("far_collected");
	}
	/* There may be more: the queue runs again, as far as its turn allows that. */
	atomic_set(&x->qp->sq.again, 1);
	return KEEL_XFER_UNDERWAY;
}

static enum keel_xfer_result keel_far_transmit(struct keel_xfer *x)
	__must_hold(&x->from->lock)
{
	struct keel_far *far = x->qp->far;
	enum keel_copy_result copied;
	bool more = ktime_get_ns() >= far->hold_until;
	s32 window = far->probes ? 1 : KEEL_FAR_WINDOW;

	if (more)
		far->hold_until = 0;
	while (more && far->at == far->index && !far->whole) {
		copied = keel_far_one(x, window, &more);
		if (copied != KEEL_COPY_DONE)
			return keel_far_uncopied(x, copied);
	}
	return KEEL_XFER_UNDERWAY;
}

static bool keel_far_needed_memory(const struct keel_xfer *x)
	__must_hold(&x->from->lock)
{
	/* It is the lock of the send queue. */
	return context_unsafe(x->qp->sq.wait) == KEEL_WAIT_MEMORY;
}

/* As keel_far_send(). */
static enum keel_xfer_result keel_far_attend(struct keel_xfer *x)
	__must_hold(&x->from->lock)
{
	struct keel_far *far = x->qp->far;
	enum keel_xfer_result result;
	u64 now = ktime_get_ns();

	if (!keel_far_knows(far, x->qp->sq.ring.index))
		keel_far_begin(x, far, now);
	else if (far->index != x->qp->sq.ring.index &&
		 !keel_far_advance(far, x->qp->sq.ring.index))
		return keel_far_end(x, IB_WC_LOC_QP_OP_ERR, KEEL_WHY_OPCODE);
	/* Userspace has changed the WQE, which was copied again. */
	if (!keel_far_has_len(x, far->index))
		return keel_far_end(x, IB_WC_LOC_QP_OP_ERR, KEEL_WHY_LENGTH);
	if (x->qp->type == IB_QPT_UC)
		return keel_far_stream(x, now);
	/* The time that its own memory takes, see keel_sq_absent(), is not that of the peer. */
	if (keel_far_needed_memory(x))
		keel_far_renew(far);
	result = keel_far_collect(x);
	if (result != KEEL_XFER_UNDERWAY)
		return result;
	if (far->next != far->una && now >= far->resend_at) {
		keel_far_back(x, far);
		far->resends = min(far->resends + 1, KEEL_FAR_DOUBLINGS);
		keel_count(x->qp->kdev, far_resends, 1);
		/* Those that wait for less see a process that has no turn, rather than a link. */
		if (keel_far_peer_ns(x->qp) >= KEEL_FAR_DOUBT_NS)
			keel_link_event(far->link, KEEL_LINK_DOUBTED);
	}
	result = keel_far_transmit(x);
	/* If it has waited for its turn, it has its whole time again. */
	if (result == KEEL_XFER_UNDERWAY && now >= far->deadline) {
		keel_link_event(far->link, KEEL_LINK_DOUBTED);
		return keel_far_end(x, IB_WC_RETRY_EXC_ERR, KEEL_WHY_PEER);
	}
	return result;
}

/**
 * keel_far_send() - send a message to another host, or continue to do so
 * @x: the message; &keel_from.segs has its local memory
 *
 * Context: preemption is disabled; the lock of the send queue is held.
 * Return: KEEL_XFER_DONE: it has ended; KEEL_XFER_UNDERWAY: call keel_far_wait();
 * KEEL_XFER_ABSENT and KEEL_XFER_STOPPED as keel_req_run().
 */
enum keel_xfer_result keel_far_send(struct keel_xfer *x)
{
	enum keel_xfer_result result = keel_far_attend(x);

	keel_far_tally(x->qp->far);
	return result;
}

/**
 * keel_far_has_begun() - have packets of the first WQE been sent to another host?
 * @qp: the QP
 *
 * Context: the lock of the send queue is held.
 * Return: true if so: it is finished first, also in SQD, and so are those behind it that were
 * begun.
 */
bool keel_far_has_begun(const struct keel_qp *qp)
{
	const struct keel_far *far = qp->far;

	if (!far || !far->link || !keel_far_knows(far, qp->sq.ring.index))
		return false;
	return !keel_far_is_untried(far) || far->acked || far->sent ||
	       far->most != far->index;
}

/**
 * keel_far_drained() - the send queue stops, of which no WQE was begun
 * @qp: the QP, in SQD
 *
 * Context: the lock of the send queue is held.
 */
void keel_far_drained(struct keel_qp *qp)
{
	/* The next WQE has its whole time, although it has waited for the link before. */
	if (qp->far)
		qp->far->begun = false;
}

/* Does a send queue wait for answers to what was sent? Datagrams have a time of their own. */
static bool keel_far_expects(const struct keel_qp *qp)
{
	if (keel_qp_is_dgram(qp))
		return false;
	return qp->type == IB_QPT_UC ? keel_far_is_full(qp->far) : qp->far->next != qp->far->una;
}

/**
 * keel_far_wait() - let a send queue wait for the other host
 * @qp: the QP, after KEEL_XFER_UNDERWAY
 *
 * Context: process context; the lock of the send queue is held.
 */
void keel_far_wait(struct keel_qp *qp)
	__must_hold(&qp->sq.from.lock)
{
	struct keel_far *far = qp->far;
	u64 until = far->deadline;

	/* Also if it has passed meanwhile: the packet was not sent before. */
	if (far->hold_until)
		until = min(until, far->hold_until);
	if (keel_far_expects(qp))
		until = min(until, far->resend_at);
	keel_fetch_forgo(&qp->sq.from.fetch);
	WRITE_ONCE(qp->sq.wait, KEEL_WAIT_PEER);
	qp->sq.deadline = far->deadline;
	if (until != U64_MAX)
		hrtimer_start(&qp->sq.timer, ns_to_ktime(until), HRTIMER_MODE_ABS);
	else
		hrtimer_try_to_cancel(&qp->sq.timer);
}
