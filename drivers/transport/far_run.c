// SPDX-License-Identifier: GPL-2.0
/*
 * The responder of a QP that is connected to another host. It executes packets in the
 * turns of the QP (far_turn.c), so its owner does the work and is charged for it, with the same
 * functions as for a message of this host. But see far_now.c for short ones.
 */
#include <linux/ktime.h>
#include <net/ipv6.h>

#include "keel_far.h"
#include "keel_opcode.h"
#include "keel_qp.h"
#include "keel_resp_lock.h"
#include "keel_sq.h"

/* Prepare the answer to the first packet. */
static void keel_far_reply(struct keel_far *far, const struct keel_far_slot *slot, u8 result,
			   const struct keel_xfer *x)
	__must_hold(&far->from.lock)
{
	const struct keel_frame *frame = &slot->frame;

	far->answer = (struct keel_frame){
		.type = KEEL_FRAME_ANSWER,
		.flags = frame->flags & KEEL_FRAME_F_BUSY,
		.to = frame->from,
		.from = frame->to,
		.psn = frame->psn,
		.gen = frame->gen,
		.answer.result = result,
		.answer.status = x->status,
		.answer.why = cpu_to_le32(x->why),
		.answer.rnr = READ_ONCE(far->qp->attr.min_rnr_timer),
		.answer.chunks = keel_far_grant(far),
	};
	far->replies = true;
}

/* Forget all packets behind the first one: the other side sends them again. */
static void keel_far_forget(struct keel_far *far, u32 expected)
{
	guard(spinlock)(&far->lock);
	keel_far_free_rest(far, &far->requests);
	far->expected = expected;
}

/* Forget the first packet. */
static void keel_far_drop(struct keel_far *far)
	__must_hold(&far->from.lock)
{
	/* The progress of its copy is not that of the next packet. */
	far->from.stage = KEEL_STAGE_NEW;
	far->absent_until = 0;
	keel_fetch_discard(&far->from.fetch);
	guard(spinlock)(&far->lock);
	keel_far_free_first(far, &far->requests);
	far->replies = false;
}

/* The first packet was executed. */
static void keel_far_executed(struct keel_far *far, struct keel_far_slot *slot,
			      const struct keel_xfer *x)
	__must_hold(&far->from.lock)
{
	const struct keel_frame *frame = &slot->frame;
	u32 psn = le32_to_cpu(frame->psn), i = psn % KEEL_FAR_WINDOW;
	u64 bit = 0;

	BUILD_BUG_ON(BITS_PER_TYPE(far->atomics) < KEEL_FAR_WINDOW);
	far->from.stage = KEEL_STAGE_NEW;
	far->absent_until = 0;
	keel_fetch_discard(&far->from.fetch);
	keel_far_reply(far, slot, KEEL_RESULT_DONE, x);
	far->broken = x->refused;
	keel_count(far->qp->kdev, far_served, 1);
	if (x->status == IB_WC_SUCCESS && keel_far_is_data(frame->request.opcode)) {
		far->opcode = frame->request.opcode;
		far->srqn = le32_to_cpu(frame->srqn);
		far->offset = frame->flags & KEEL_FRAME_F_LAST ?
			      0 : far->offset + le32_to_cpu(frame->len);
	}
	if (x->status == IB_WC_SUCCESS && x->op->flags & KEEL_OP_READ &&
	    x->op->flags & KEEL_OP_ATOMIC) {
		memcpy(&far->words[i], slot->data, sizeof(far->words[i]));
		far->answer.answer.word = cpu_to_le64(far->words[i]);
		bit = BIT_ULL(i);
	}
	/* The number before it with the same index is none of the last KEEL_FAR_WINDOW now. */
	far->atomics = (far->atomics & ~BIT_ULL(i)) | bit;
	guard(spinlock)(&far->lock);
	/* A read that is executed again changes nothing. */
	if (psn != far->done)
		return;
	far->done = (psn + 1) & KEEL_PSN_MASK;
	far->executed = min_t(u32, far->executed + 1, KEEL_FAR_WINDOW);
}

/* Memory of the owner is absent. */
static enum keel_far_step keel_far_absent(struct keel_far *far)
	__must_hold(&far->from.lock)
{
	struct keel_fetch *fetch = &far->from.fetch;
	u64 now = ktime_get_ns();

	/* Each need has its own time. */
	if (fetch->ctl.need.kind == KEEL_NEED_CLOSE) {
		keel_fetch_close(fetch);
		far->absent_until = 0;
	}
	if (fatal_signal_pending(current))
		return KEEL_FAR_IDLE;
	if (!fetch->req) {
		far->absent_until = 0;
		return KEEL_FAR_ABSENT;
	}
	if (!far->absent_until)
		far->absent_until = now + (fetch->req->open.need.kind == KEEL_NEED_PAGES ?
					   KEEL_PAGES_NS : KEEL_FENCE_NS);
	/* The request schedules the QP, and so does the other side if it sends again. */
	if (now < far->absent_until)
		return KEEL_FAR_IDLE;
	keel_fetch_abandon(fetch);
	return KEEL_FAR_MORE;
}

/* The QP is in no state to receive: nobody waits for an answer. */
static enum keel_far_step keel_far_refused(struct keel_far *far, struct keel_far_slot *slot)
	__must_hold(&far->from.lock)
{
	keel_far_forget(far, le32_to_cpu(slot->frame.psn));
	keel_far_drop(far);
	return KEEL_FAR_MORE;
}

/* The action that follows from the result of an attempt. */
static enum keel_far_step keel_far_result(struct keel_far *far, struct keel_far_slot *slot,
					  struct keel_xfer *x, enum keel_xfer_result result)
	__must_hold(&far->from.lock)
{
	u32 psn = le32_to_cpu(slot->frame.psn);

	switch (result) {
	case KEEL_XFER_DONE:
		/* Its key may be gone meanwhile: the first answer may still arrive. */
		if (x->again && x->status != IB_WC_SUCCESS) {
			keel_far_drop(far);
			return KEEL_FAR_MORE;
		}
		keel_far_executed(far, slot, x);
		return KEEL_FAR_MORE;
	case KEEL_XFER_RNR:
		/* The other side sends again: nothing waits here. */
		keel_far_forget(far, psn);
		keel_far_reply(far, slot, KEEL_RESULT_RNR, x);
		return KEEL_FAR_MORE;
	case KEEL_XFER_ABSENT:
		return keel_far_absent(far);
	case KEEL_XFER_STOPPED:
	case KEEL_XFER_BUSY:
		return fatal_signal_pending(current) ? KEEL_FAR_IDLE : KEEL_FAR_LATER;
	default:
		return keel_far_refused(far, slot);
	}
}

/* Execute the first packet. @x gets references, which the caller drops without the lock. */
static enum keel_far_step keel_far_execute(struct keel_far *far, struct keel_far_slot *slot,
					   bool again, const struct keel_srq *srq,
					   struct keel_xfer *x)
	__must_hold(&far->from.lock)
{
	const struct keel_frame *frame = &slot->frame;
	struct keel_uapi_send_wqe wqe = {};
	enum keel_xfer_result result;

	keel_far_wqe(frame, &wqe);
	x->from = &far->from;
	x->gen = le64_to_cpu(frame->gen);
	x->src_qp = le32_to_cpu(frame->from);
	x->wqe = &wqe;
	x->op = keel_opcode_find(frame->request.opcode);
	x->peer = far->qp;
	x->domain = far->qp->domain;
	x->again = again;
	x->status = IB_WC_SUCCESS;
	keel_fetch_collect(&far->from.fetch);
	far->from.fetch.ctl.arg = x;
	far->mem.start = (uintptr_t)slot->data;
	/* keel_xfer_put() drops it. */
	keel_obj_get(&far->qp->obj);
	/* It is the lock of @far. */
	result = context_unsafe(keel_far_try(x, far, slot, srq));
	/* Only keel_far_try() uses them. */
	far->from.fetch.ctl.arg = NULL;
	x->wqe = NULL;
	return keel_far_result(far, slot, x, result);
}

/* UC: a packet behind one that was refused. */
static enum keel_far_step keel_far_pass(struct keel_far *far, struct keel_far_slot *slot)
	__must_hold(&far->from.lock)
{
	const struct keel_xfer x = { .status = IB_WC_SUCCESS };

	keel_far_reply(far, slot, KEEL_RESULT_DONE, &x);
	return KEEL_FAR_MORE;
}

/* A packet that was executed before: its answer was lost. */
static enum keel_far_step keel_far_repeat(struct keel_far *far, struct keel_far_slot *slot)
	__must_hold(&far->from.lock)
{
	const struct keel_xfer x = { .status = IB_WC_SUCCESS };
	const struct keel_frame *frame = &slot->frame;
	u32 i = le32_to_cpu(frame->psn) % KEEL_FAR_WINDOW;
	bool atomic = far->atomics & BIT_ULL(i);

	switch (frame->request.opcode) {
	case IB_WR_ATOMIC_CMP_AND_SWP:
	case IB_WR_ATOMIC_FETCH_AND_ADD:
		if (!atomic) {
			keel_far_drop(far);
			return KEEL_FAR_MORE;
		}
		break;
	default:
		break;
	}
	keel_far_reply(far, slot, KEEL_RESULT_DONE, &x);
	if (atomic)
		far->answer.answer.word = cpu_to_le64(far->words[i]);
	return KEEL_FAR_MORE;
}

/*
 * May the answer to a packet wait a moment, to go together with another frame? The requester waits
 * for data, and to send more of a long message; but a program there often waits for a message of
 * this side, which carries the answer.
 */
static bool keel_far_is_patient(struct keel_far *far, const struct keel_far_slot *slot)
	__must_hold(&far->from.lock)
{
	const struct keel_frame *frame = &slot->frame;

	return keel_far_is_data(frame->request.opcode) && frame->flags & KEEL_FRAME_F_FIRST &&
	       frame->flags & KEEL_FRAME_F_LAST &&
	       far->answer.answer.result == KEEL_RESULT_DONE &&
	       far->answer.answer.status == IB_WC_SUCCESS &&
	       le32_to_cpu(frame->len) <= KEEL_FRAME_DATA && keel_far_may_wait(far);
}

/* Does the answer to the first packet have data? UC has no reads: that is of an earlier packet. */
static bool keel_far_returns_data(struct keel_far *far, const struct keel_far_slot *slot)
	__must_hold(&far->from.lock)
{
	return slot->frame.request.opcode == IB_WR_RDMA_READ && far->qp->type != IB_QPT_UC &&
	       far->answer.answer.result == KEEL_RESULT_DONE &&
	       far->answer.answer.status == IB_WC_SUCCESS;
}

/*
 * Send the answer to the first packet, which makes room for another one. @wait: as
 * keel_link_tx()
 */
static enum keel_far_step keel_far_send_reply(struct keel_far *far,
					      struct keel_far_slot *slot,
					      struct keel_link_wait *wait)
	__must_hold(&far->from.lock)
{
	bool data = keel_far_returns_data(far, slot);
	u32 len = data ? le32_to_cpu(slot->frame.request.bytes) : 0;
	struct keel_buf *buf;
	u64 epoch;

	/* Nobody waits for it. */
	if (!far->link) {
		keel_far_drop(far);
		return KEEL_FAR_MORE;
	}
	/* Others need the buffer, but this thread is not preempted with it. */
	buf = keel_link_tx(far->link, wait, len, &epoch);
	if (buf) {
		memcpy(buf->data, slot->data, len);
		buf->patient = keel_far_is_patient(far, slot);
		/* Before the other side can send the next one. */
		keel_far_drop(far);
		keel_link_send(buf, &far->answer, len);
	} else if (!epoch && (far->qp->type == IB_QPT_UC || len > KEEL_FRAME_DATA)) {
		/*
		 * A requester of UC does not wait for it after the connection has ended. Another
		 * connection may have no chunks: a read comes again.
		 */
		if (wait)
			keel_link_unwait(far->link, wait);
		keel_far_drop(far);
	}
	return far->replies ? KEEL_FAR_IDLE : KEEL_FAR_MORE;
}

/* The same for a turn. @late: of keel_far_run_once() */
static enum keel_far_step keel_far_answer_first(struct keel_far *far,
						struct keel_far_slot *slot, bool late)
	__must_hold(&far->from.lock)
{
	enum keel_far_step step = keel_far_send_reply(far, slot, &far->tx_wait);

	/* One that has refused the packet answers it only once. */
	late = late || !keel_far_may_execute(far->qp);
	/* Those with data keep a buffer for longer: others need it. */
	if (!far->replies || !late || keel_far_returns_data(far, slot))
		return step;
	step = keel_far_send_reply(far, slot, NULL);
	if (!far->replies)
		keel_link_unwait(far->link, &far->tx_wait);
	return step;
}

/* Return: the first packet, or NULL. *@again: it was executed before. */
static struct keel_far_slot *keel_far_next(struct keel_far *far, bool *again)
	__must_hold(&far->from.lock)
{
	struct keel_far_slot *slot;

	guard(spinlock)(&far->lock);
	slot = keel_far_first(far, &far->requests);
	*again = slot && far->qp->type != IB_QPT_UC &&
		 keel_far_was_executed(far, le32_to_cpu(slot->frame.psn));
	/* Only the holder of the lock of @far->from takes it out. */
	return slot;
}

/* Deliver the first datagram. */
static enum keel_far_step keel_far_deliver(struct keel_far *far, struct keel_far_slot *slot)
	__must_hold(&far->from.lock)
{
	const struct keel_frame frame = slot->frame;
	const struct keel_ends ends = *keel_far_ends(slot);
	const struct keel_uapi_send_wqe wqe = {
		.opcode = frame.datagram.opcode,
		.flags = frame.flags & KEEL_FRAME_F_SOLICITED ? IB_SEND_SOLICITED : 0,
		.imm = le32_to_cpu(frame.datagram.imm),
	};
	const struct keel_av av = {
		.sgid = ends.dgid,
		.dgid = ends.sgid,
		.ipv4 = ipv6_addr_v4mapped((struct in6_addr *)ends.sgid.raw) &&
			ipv6_addr_v4mapped((struct in6_addr *)ends.dgid.raw),
		.tclass = frame.datagram.tclass,
		.hop_limit = frame.datagram.hop_limit,
		.flow_label = le32_to_cpu(frame.datagram.flow_label),
	};
	struct keel_xfer x = {
		.from = &far->from,
		.src_qp = le32_to_cpu(frame.from),
		.wqe = &wqe,
		.peer = far->qp,
		.domain = far->qp->domain,
	};
	enum keel_xfer_result result;

	far->mem.start = (uintptr_t)slot->data;
	keel_segs_one(&far->from.segs, &far->mem, 0, le32_to_cpu(frame.len));
	/* Only threads of the owner take the lock of @far. */
	keel_resp_relax();
	/* It is that of @x. */
	result = context_unsafe(keel_ud_arrived(&x, &av, le32_to_cpu(frame.datagram.qkey)));
	keel_resp_stay();
	if (result == KEEL_XFER_BUSY)
		return KEEL_FAR_LATER;
	/* Before the sender can send the next ones. */
	keel_far_drop(far);
	keel_far_dgram_answer(far->qp->kdev, &ends, &frame);
	return KEEL_FAR_MORE;
}

/* UC has no numbers that must follow each other. */
static bool keel_far_is_next(struct keel_far *far, const struct keel_far_slot *slot)
{
	guard(spinlock)(&far->lock);
	return far->qp->type == IB_QPT_UC || le32_to_cpu(slot->frame.psn) == far->done;
}

/*
 * UC: packets of the message before may have been lost, and packets behind one that was
 * refused are dropped.
 */
static bool keel_far_uc_continues(struct keel_far *far, const struct keel_frame *frame)
	__must_hold(&far->from.lock)
{
	if (frame->flags & KEEL_FRAME_F_FIRST) {
		far->offset = 0;
		far->broken = false;
	}
	return !far->broken;
}

/*
 * XRC: the process is dead. The other side sends again, until the SRQ is destroyed or another
 * process that shares it has taken it over.
 */
static enum keel_far_step keel_far_nobody(struct keel_far *far, struct keel_far_slot *slot,
					  bool again)
	__must_hold(&far->from.lock)
{
	/* An atomic operation would be done again. */
	if (far->from.stage == KEEL_STAGE_DONE)
		keel_qp_fail(far->qp, IB_QPS_ERR, IB_EVENT_QP_FATAL);
	/* Those behind one that was executed before are not repetitions. */
	if (!again)
		keel_far_forget(far, le32_to_cpu(slot->frame.psn));
	keel_far_drop(far);
	return KEEL_FAR_MORE;
}

/* A packet that was not executed before, or that is executed again. */
static enum keel_far_step keel_far_serve_one(struct keel_far *far, struct keel_far_slot *slot,
					     bool again, const struct keel_srq *srq,
					     struct keel_xfer *x)
	__must_hold(&far->from.lock)
{
	enum keel_far_place place;

	/* Without the lock of the responder: its owner may be preempted with it in ERR. */
	if (!keel_far_may_execute(far->qp))
		return keel_far_refused(far, slot);
	if (far->qp->type == IB_QPT_UC && !keel_far_uc_continues(far, &slot->frame))
		return keel_far_pass(far, slot);
	place = keel_far_place(far, &slot->frame, srq);
	if (place == KEEL_FAR_ELSEWHERE)
		return KEEL_FAR_AWAY;
	if (place == KEEL_FAR_NOWHERE)
		return keel_far_nobody(far, slot, again);
	return keel_far_execute(far, slot, again, srq, x);
}

/**
 * keel_far_step() - do one thing for a responder
 * @far: of the QP
 * @srq: as keel_far_run()
 * @x: gets references, which the caller drops without the lock
 *
 * Context: the lock of &keel_far.from is held, and preemption is disabled.
 * Return: what follows.
 */
enum keel_far_step keel_far_step(struct keel_far *far, const struct keel_srq *srq,
				 struct keel_xfer *x)
{
	struct keel_far_slot *slot;
	enum keel_far_step step;
	bool again;

	slot = keel_far_next(far, &again);
	if (!slot)
		return KEEL_FAR_IDLE;
	/* First: the owner may destroy the QP as soon as it sees the completion. */
	if (far->replies)
		return keel_far_answer_first(far, slot, x->late);
	if (keel_qp_is_dying(far->qp))
		return KEEL_FAR_IDLE;
	if (ktime_get_ns() > x->until)
		return KEEL_FAR_LATER;
	if (keel_qp_is_dgram(far->qp))
		return keel_far_deliver(far, slot);
	/* Kept because it was executed before, but too long ago to be known still. */
	if (!again && !keel_far_is_next(far, slot)) {
		keel_far_drop(far);
		return KEEL_FAR_MORE;
	}
	/* A read has no effect, so it is executed again. */
	if (again && slot->frame.request.opcode != IB_WR_RDMA_READ)
		step = keel_far_repeat(far, slot);
	else
		step = keel_far_serve_one(far, slot, again, srq, x);
	/* At once: the answer does not wait until this thread runs again. */
	return far->replies ? keel_far_answer_first(far, slot, x->late) : step;
}

/**
 * keel_far_finish() - send an answer that is still to be sent, if that is possible
 * @far: of a QP that is in RESET or dying
 *
 * Context: may sleep; no lock of a queue is held.
 */
void keel_far_finish(struct keel_far *far)
{
	struct keel_far_slot *slot;

	keel_far_enter(far);
	scoped_guard(spinlock, &far->lock)
		slot = keel_far_first(far, &far->requests);
	/* The buffers of datagrams are free more often than it is somebody's turn. */
	if (slot && far->replies)
		keel_far_send_reply(far, slot, NULL);
	keel_far_leave(far);
}
