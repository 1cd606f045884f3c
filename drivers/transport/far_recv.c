// SPDX-License-Identifier: GPL-2.0
/*
 * Frames that a link has received, for their QP. The thread of the link puts them into a list
 * of the QP. It executes short ones (far_now.c), and the owner of the QP does the rest.
 */
#include <kunit/visibility.h>
#include <linux/slab.h>

#include "keel_far.h"
#include "keel_point.h"
#include "keel_qp.h"

/*
 * Is the QP connected to the one that has sent a frame? A reset takes @far->lock after it
 * has changed the state, and forgets what was kept before.
 */
static bool keel_far_accepts(const struct keel_far *far, const struct keel_frame *frame)
	__must_hold(&far->lock)
{
	const struct keel_qp *qp = far->qp;
	/* Pairs with the release that set the state after the attributes. */
	enum ib_qp_state state = context_unsafe(smp_load_acquire(&qp->state));

	return !keel_qp_is_dgram(qp) && !keel_qp_is_dying(qp) && state >= IB_QPS_RTR &&
	       state != IB_QPS_ERR &&
	       READ_ONCE(qp->attr.dest_qp_num) == le32_to_cpu(frame->from);
}

/* Give a slot memory for @bytes. Return: false if there is none. @longs: for long ones, or NULL. */
static bool keel_far_find_room(struct keel_far *far, struct keel_far_slot *slot,
			       struct keel_far_list *list, u32 bytes,
			       struct keel_far_longs *longs)
	__must_hold(&far->lock)
{
	u32 room = bytes ? keel_far_bytes(bytes) : 0;

	slot->bytes = 0;
	if (bytes > KEEL_FRAME_DATA)
		return longs && keel_far_use_long(slot, longs);
	/* Each slot has its own. */
	if (keel_qp_is_dgram(far->qp))
		return true;
	if (!keel_far_ring_add(&list->ring, room, &slot->at))
		return false;
	slot->bytes = room;
	slot->data = list->data + slot->at;
	return true;
}

/* Does a list have as many packets as it may? */
static bool keel_far_has_all(const struct keel_far *far, const struct keel_far_list *list)
{
	return list->n >= (keel_qp_is_dgram(far->qp) ? far->nslots : KEEL_FAR_WINDOW);
}

/*
 * Return: an empty slot for @bytes, for keel_far_add_slot() or keel_far_cancel_slot(); or NULL.
 * @longs: as above.
 */
static struct keel_far_slot *keel_far_new_slot(struct keel_far *far, struct keel_far_list *list,
					       u32 bytes, struct keel_far_longs *longs)
	__must_hold(&far->lock)
{
	struct keel_far_slot *slot;

	slot = list_first_entry_or_null(&far->free, struct keel_far_slot, node);
	if (keel_far_has_all(far, list) || !slot ||
	    !keel_far_find_room(far, slot, list, bytes, longs))
		return NULL;
	list_del_init(&slot->node);
	return slot;
}

static void keel_far_add_slot(struct keel_far_list *list, struct keel_far_slot *slot)
{
	list_add_tail(&slot->node, &list->slots);
	list->n++;
}

/* Forget a long packet. */
static void keel_far_cancel_slot(struct keel_far *far, struct keel_far_slot *slot)
	__must_hold(&far->lock)
{
	keel_far_unuse_long(slot);
	list_add(&slot->node, &far->free);
}

/*
 * Put a packet into its slot. Return: true if the lock was dropped, because others would wait
 * too long for it: only the caller knows the slot, and the reference on the QP keeps it.
 */
static bool keel_far_fill(struct keel_far *far, struct keel_far_slot *slot,
			  const struct keel_frame *frame, const void *data)
	__must_hold(&far->lock)
{
	u32 len = le32_to_cpu(frame->len);

	slot->frame = *frame;
	if (len <= KEEL_FRAME_DATA) {
		memcpy(slot->data, data, len);
		return false;
	}
	spin_unlock(&far->lock);
	memcpy(slot->data, data, len);
	keel_point("far_copied");
	spin_lock(&far->lock);
	return true;
}

/* Bytes that a slot for a request has to have. An atomic operation returns a word. */
static u32 keel_far_request_bytes(const struct keel_frame *frame)
{
	u32 bytes = max_t(u32, le32_to_cpu(frame->len), sizeof(u64));

	if (frame->request.opcode == IB_WR_RDMA_READ)
		return max(le32_to_cpu(frame->request.bytes), bytes);
	return bytes;
}

/* There is a message for which the QP should be able to keep long packets. */
static void keel_far_is_worth(struct keel_far *far, const struct keel_frame *frame)
	__must_hold(&far->lock)
{
	if (far->qp->type == IB_QPT_RC && le64_to_cpu(frame->request.left) > KEEL_FAR_WORTH)
		keel_far_want(&far->long_requests);
}

/**
 * enum keel_far_verdict - what becomes of a packet
 * @KEEL_FAR_REFUSE: the QP is not ready for it, or does not want it
 * @KEEL_FAR_DROP: it came before, or one before it was lost
 * @KEEL_FAR_KEEP: the QP keeps it, if it has room
 * @KEEL_FAR_REPEAT: so it does, but only to answer again: it was executed before
 */
enum keel_far_verdict {
	KEEL_FAR_REFUSE,
	KEEL_FAR_DROP,
	KEEL_FAR_KEEP,
	KEEL_FAR_REPEAT,
};

static enum keel_far_verdict keel_far_judge_request(struct keel_far *far,
						    const struct keel_link *link,
						    const struct keel_frame *frame)
	__must_hold(&far->lock)
{
	u32 psn = le32_to_cpu(frame->psn);

	if (!keel_far_accepts(far, frame) || far->link != link ||
	    far->qp->type == IB_QPT_XRC_INI ||
	    frame->request.transport != keel_far_transport(far->qp) ||
	    (far->peer_gen && far->peer_gen != le64_to_cpu(frame->gen)))
		return KEEL_FAR_REFUSE;
	/* UC: a message may begin with any number. Nothing that was lost comes again. */
	if (far->qp->type == IB_QPT_UC && frame->flags & KEEL_FRAME_F_FIRST)
		far->expected = psn;
	if (psn == far->expected)
		return KEEL_FAR_KEEP;
	/* Nothing keeps it: there is room for the next one. */
	if (far->qp->type == IB_QPT_UC)
		return KEEL_FAR_REFUSE;
	/* One that was executed is answered again. One that was lost comes again. */
	return keel_far_was_executed(far, psn) ? KEEL_FAR_REPEAT : KEEL_FAR_DROP;
}

static bool keel_far_keeps(enum keel_far_verdict verdict)
{
	return verdict == KEEL_FAR_KEEP || verdict == KEEL_FAR_REPEAT;
}

static enum keel_far_verdict keel_far_keep_request(struct keel_far *far,
						   const struct keel_link *link,
						   const struct keel_frame *frame,
						   const void *data)
{
	enum keel_far_verdict verdict;
	struct keel_far_slot *slot;
	u64 life;

	guard(spinlock)(&far->lock);
	life = atomic64_read(&far->qp->gen);
	verdict = keel_far_judge_request(far, link, frame);
	if (!keel_far_keeps(verdict))
		return verdict;
	slot = keel_far_new_slot(far, &far->requests, keel_far_request_bytes(frame),
				 &far->long_requests);
	if (!slot)
		return KEEL_FAR_DROP;
	if (keel_far_fill(far, slot, frame, data)) {
		/* A packet of the life before would be one of this life. */
		verdict = atomic64_read(&far->qp->gen) == life ?
			  keel_far_judge_request(far, link, frame) : KEEL_FAR_REFUSE;
		if (keel_far_keeps(verdict) && keel_far_has_all(far, &far->requests))
			verdict = KEEL_FAR_DROP;
		if (!keel_far_keeps(verdict)) {
			keel_far_cancel_slot(far, slot);
			return verdict;
		}
	}
	keel_far_add_slot(&far->requests, slot);
	keel_far_is_worth(far, frame);
	if (le32_to_cpu(frame->psn) == far->expected) {
		far->expected = (far->expected + 1) & KEEL_PSN_MASK;
		far->peer_gen = le64_to_cpu(frame->gen);
	}
	return verdict;
}

static void keel_far_request(struct keel_link *link, const struct keel_frame *frame,
			     const void *data)
{
	struct keel_qp *qp = keel_qp_get(link->kdev, le32_to_cpu(frame->to));
	enum keel_far_verdict verdict = KEEL_FAR_REFUSE;
	struct keel_far *far;

	if (qp) {
		/* Pairs with keel_far_give(). The reference on the QP keeps it. */
		far = smp_load_acquire(&qp->far);
		if (far)
			verdict = keel_far_keep_request(far, link, frame, data);
		if (verdict != KEEL_FAR_REFUSE)
			keel_far_arrived(far, link, frame, verdict != KEEL_FAR_KEEP);
		keel_qp_put_later(qp);
	}
	/* The requester tries again later, also if this cannot be sent now. */
	if (verdict == KEEL_FAR_REFUSE)
		keel_far_tell(link, frame, KEEL_RESULT_NOT_READY);
}

/* UC: only the last one matters. */
static void keel_far_hear(struct keel_far *far, u32 psn)
	__must_hold(&far->lock)
{
	if (!far->heard || keel_psn_diff(psn, far->heard_psn) > 0)
		far->heard_psn = psn;
	far->heard = true;
}

static bool keel_far_wants_answer(const struct keel_far *far, const struct keel_link *link,
				  const struct keel_frame *frame)
	__must_hold(&far->lock)
{
	return atomic64_read(&far->qp->gen) == le64_to_cpu(frame->gen) &&
	       keel_far_accepts(far, frame) && far->link == link &&
	       far->qp->type != IB_QPT_XRC_TGT;
}

/* An answer to a datagram. The QP has many peers, of which one may send any number. */
static bool keel_far_keep_heard(struct keel_far *far, const struct keel_frame *frame)
	__must_hold(&far->lock)
{
	if (atomic64_read(&far->qp->gen) != le64_to_cpu(frame->gen) ||
	    frame->answer.result == KEEL_RESULT_RNR)
		return false;
	/* The last one counts. */
	far->heard = true;
	far->heard_psn = le32_to_cpu(frame->psn);
	return true;
}

static bool keel_far_keep_answer(struct keel_far *far, const struct keel_link *link,
				 const struct keel_frame *frame, const void *data)
{
	struct keel_far_slot *slot;

	guard(spinlock)(&far->lock);
	if (keel_qp_is_dgram(far->qp))
		return keel_far_keep_heard(far, frame);
	if (!keel_far_wants_answer(far, link, frame))
		return false;
	if (far->qp->type == IB_QPT_UC) {
		keel_far_hear(far, le32_to_cpu(frame->psn));
		return true;
	}
	slot = keel_far_new_slot(far, &far->answers, le32_to_cpu(frame->len),
				 &far->long_answers);
	if (!slot)
		return false;
	if (keel_far_fill(far, slot, frame, data) &&
	    (!keel_far_wants_answer(far, link, frame) || keel_far_has_all(far, &far->answers))) {
		keel_far_cancel_slot(far, slot);
		return false;
	}
	keel_far_add_slot(&far->answers, slot);
	return true;
}

static void keel_far_answered(struct keel_link *link, const struct keel_frame *frame,
			      const void *data)
{
	struct keel_qp *qp = keel_qp_get(link->kdev, le32_to_cpu(frame->to));
	struct keel_far *far;

	if (!qp)
		return;
	/* Likewise. */
	far = smp_load_acquire(&qp->far);
	if (far && keel_far_keep_answer(far, link, frame, data))
		keel_far_is_answered(qp, link, frame);
	keel_qp_put_later(qp);
}

/* Return: KEEL_RESULT_DONE: it is kept; else what the sender is told, if it asks. */
static u8 keel_far_keep_datagram(struct keel_far *far, const struct keel_ends *ends,
				 const struct keel_frame *frame, const void *data)
{
	struct keel_far_slot *slot;

	guard(spinlock)(&far->lock);
	/* With the lock, as keel_far_accepts(). */
	if (!keel_ud_takes(far->qp, le32_to_cpu(frame->datagram.qkey)))
		return KEEL_RESULT_NOT_READY;
	slot = keel_far_new_slot(far, &far->requests, le32_to_cpu(frame->len), NULL);
	if (!slot)
		return KEEL_RESULT_RNR;
	keel_far_fill(far, slot, frame, data);
	*keel_far_ends(slot) = *ends;
	keel_far_add_slot(&far->requests, slot);
	return KEEL_RESULT_DONE;
}

/* Likewise, for any QP. It runs if it is kept. */
static u8 keel_far_take(struct keel_qp *qp, const struct keel_ends *ends,
			const struct keel_frame *frame, const void *data)
{
	/* Pairs with keel_far_listen(). The reference on the QP keeps it. */
	struct keel_far *far = smp_load_acquire(&qp->far);
	u8 result = KEEL_RESULT_NOT_READY;

	if (far)
		result = keel_far_keep_datagram(far, ends, frame, data);
	if (result == KEEL_RESULT_DONE)
		keel_qp_schedule_alive(qp);
	return result;
}

static void keel_far_datagram(struct keel_link *link, const struct keel_frame *frame,
			      const void *data)
{
	struct keel_qp *qp = keel_qp_get(link->kdev, le32_to_cpu(frame->to));
	u8 result = KEEL_RESULT_NOT_READY;

	if (qp) {
		result = keel_far_take(qp, &link->ends, frame, data);
		keel_qp_put_later(qp);
	}
	if (result == KEEL_RESULT_DONE)
		return;
	keel_count(link->kdev, ud_drops, 1);
	if (frame->flags & KEEL_FRAME_F_ANSWER)
		keel_far_tell(link, frame, result);
}

/* Nobody is told that a member does not take it: it is lost. */
static void keel_far_group(struct keel_dev *kdev, const struct keel_ends *ends,
			   const struct keel_frame *frame, const void *data)
{
	struct keel_qp **members;
	int i, n = keel_mcast_members(kdev, &ends->sgid, &members);

	if (n <= 0)
		keel_count(kdev, ud_drops, 1);
	for (i = 0; i < n; i++) {
		if (keel_far_take(members[i], ends, frame, data) != KEEL_RESULT_DONE)
			keel_count(kdev, ud_drops, 1);
		keel_qp_put_later(members[i]);
	}
	kfree(members);
	/* Anybody on the network can send many, and members may be many. */
	cond_resched();
}

static void keel_far_wake(struct keel_link_wait *wait)
{
	/* keel_link_unwait() is called before the QP is destroyed. */
	keel_qp_schedule(wait->qp);
}

const struct keel_wire_ops keel_far_ops = {
	.request = keel_far_request,
	.answer = keel_far_answered,
	.datagram = keel_far_datagram,
	.group = keel_far_group,
	.wake = keel_far_wake,
};
EXPORT_SYMBOL_IF_KUNIT(keel_far_ops);
