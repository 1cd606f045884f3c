// SPDX-License-Identifier: GPL-2.0
/*
 * Datagrams to other hosts. A QP there keeps KEEL_FAR_DGRAMS at most until its owner takes
 * them, and a link has a limited number of buffers. So that a burst is not lost, a QP of a
 * user waits for both, but not for long: it asks for an answer to each eighth datagram, and
 * waits if KEEL_FAR_DGRAM_WINDOW have had none. The answer says that it was delivered or
 * dropped, and not more than that. After a wait in vain, the QP does not wait for a while.
 * QPs of the kernel never wait: all of rdma_cm shares one of them.
 *
 * A datagram to a group waits for one of its places likewise, but for no answer: no receiver
 * can slow down a sender.
 */
#include <linux/ktime.h>

#include "keel_far.h"
#include "keel_opcode.h"
#include "keel_qp.h"

/* Datagrams under way without an answer. */
#define KEEL_FAR_DGRAM_WINDOW	(KEEL_FAR_DGRAMS / 2)
/* An answer is asked for if so many bits of the number are 1. */
#define KEEL_FAR_DGRAM_ASKS	0x7
/* How often a datagram that waits looks for a buffer. */
#define KEEL_FAR_DGRAM_PAUSE	NSEC_PER_MSEC
/* How long nothing waits after a wait in vain. */
#define KEEL_FAR_DGRAM_FREE	NSEC_PER_SEC

static void keel_far_dgram_frame(const struct keel_xfer *x, const struct keel_av *av, u32 qkey,
				 struct keel_frame *frame)
{
	const struct keel_far *far = x->qp->far;
	/* To a group, it has none. */
	u32 psn = far ? far->next : 0;

	*frame = (struct keel_frame){
		.type = KEEL_FRAME_DATAGRAM,
		.flags = x->wqe->flags & IB_SEND_SOLICITED ? KEEL_FRAME_F_SOLICITED : 0,
		.to = cpu_to_le32(x->wqe->ud.qpn & KEEL_PSN_MASK),
		.from = cpu_to_le32(x->qp->qpn),
		.psn = cpu_to_le32(psn),
		.gen = cpu_to_le64(x->gen),
		.datagram.opcode = x->wqe->opcode,
		.datagram.tclass = av->tclass,
		.datagram.hop_limit = av->hop_limit,
		/* Kernel consumers may leave it unset where it has no meaning. */
		.datagram.imm = cpu_to_le32(x->op->flags & KEEL_OP_IMM ? x->wqe->imm : 0),
		.datagram.qkey = cpu_to_le32(qkey),
		.datagram.flow_label = cpu_to_le32(av->flow_label),
	};
	if ((psn & KEEL_FAR_DGRAM_ASKS) == KEEL_FAR_DGRAM_ASKS)
		frame->flags |= KEEL_FRAME_F_ANSWER;
}

/* May the QP wait at all? */
static bool keel_far_dgram_may_wait(const struct keel_far *far, u64 now)
{
	return far->qp->user && now >= far->free_until;
}

/* A wait was in vain. Is the other side still there? A group has no link. */
static void keel_far_dgram_give_up(struct keel_far *far, struct keel_link *link, u64 now)
{
	far->free_until = now + KEEL_FAR_DGRAM_FREE;
	if (link)
		keel_link_event(link, KEEL_LINK_DOUBTED);
}

/* Are as many datagrams under way as may be? Not for ever: answers may be lost. */
static bool keel_far_dgram_is_full(struct keel_far *far, struct keel_link *link, u64 now)
{
	keel_far_heard(far, now);
	if (keel_psn_diff(far->next, far->una) < KEEL_FAR_DGRAM_WINDOW)
		return false;
	if (keel_far_dgram_may_wait(far, now)) {
		if (now < far->resend_at)
			return true;
		keel_far_dgram_give_up(far, link, now);
	}
	far->una = far->next;
	return false;
}

/* Copy the data. Return: false if a key was invalidated. */
static bool keel_far_dgram_copy(struct keel_xfer *x, void *data)
	__must_hold(&x->from->lock)
{
	const struct keel_mem mem = {
		.type = KEEL_MEM_KERNEL, .start = (uintptr_t)data,
	};
	struct keel_segs *to = &x->from->remote;
	struct keel_copy_ctl ctl;

	keel_copy_ctl_init(&ctl, NULL, NULL);
	keel_segs_one(to, &mem, 0, x->from->segs.len);
	return keel_copy(to, 0, &x->from->segs, 0, x->from->segs.len, &ctl) == KEEL_COPY_DONE;
}

/* The datagram was sent. */
static void keel_far_dgram_sent(struct keel_far *far, u64 now)
{
	if (far->next == far->una)
		far->resend_at = now + keel_far_resend_ns(far->qp);
	far->next = (far->next + 1) & KEEL_PSN_MASK;
}

/* There is no buffer now. Return: true to wait, but in all not longer than the limit. */
static bool keel_far_dgram_waits(struct keel_far *far, struct keel_link *link, u64 now)
{
	if (!keel_far_dgram_may_wait(far, now))
		return false;
	if (!far->begun)
		far->deadline = now + keel_far_resend_ns(far->qp);
	far->begun = now < far->deadline;
	far->hold_until = now + KEEL_FAR_DGRAM_PAUSE;
	if (!far->begun)
		keel_far_dgram_give_up(far, link, now);
	return far->begun;
}

static enum keel_xfer_result keel_far_dgram_link(struct keel_xfer *x, const struct keel_av *av,
						 u32 qkey, struct keel_link *link)
	__must_hold(&x->from->lock)
{
	struct keel_far *far = x->qp->far;
	u64 now = ktime_get_ns();
	struct keel_frame frame;
	const gfp_t gfp = GFP_NOWAIT | __GFP_NOWARN | (x->qp->user ? __GFP_ACCOUNT : 0);
	int ret = -EFAULT;

	/* One that waited before may have ended in another way. */
	if (context_unsafe(x->qp->sq.wait) != KEEL_WAIT_PEER)
		far->begun = false;
	if (keel_far_dgram_is_full(far, link, now)) {
		far->hold_until = 0;
		far->deadline = far->resend_at;
		return KEEL_XFER_UNDERWAY;
	}
	keel_far_dgram_frame(x, av, qkey, &frame);
	/* The lock of the send queue is held: nothing sleeps here. */
	if (keel_far_dgram_copy(x, far->stage))
		ret = keel_link_datagram(link, &frame, far->stage, x->from->segs.len,
					 x->qp->obj.user, gfp);
	if (ret == -EAGAIN && keel_far_dgram_waits(far, link, now))
		return KEEL_XFER_UNDERWAY;
	far->begun = false;
	if (ret > 0)
		keel_far_dgram_sent(far, now);
	if (ret < 0)
		keel_count(x->qp->kdev, ud_drops, 1);
	return KEEL_XFER_DONE;
}

/**
 * keel_far_dgram_send() - send a datagram to another host
 * @x: the datagram; &keel_from.segs has its local memory
 * @av: its address
 * @qkey: its Q_Key
 *
 * Context: process context; the lock of the send queue is held.
 * Return: KEEL_XFER_DONE: it was sent, or is lost; KEEL_XFER_UNDERWAY: call
 * keel_far_wait(), and try again later.
 */
enum keel_xfer_result keel_far_dgram_send(struct keel_xfer *x, const struct keel_av *av,
					  u32 qkey)
{
	struct keel_link *link = x->qp->far ? keel_link_lookup(x->qp->kdev, &av->ends) : NULL;
	enum keel_xfer_result result;

	if (!link) {
		keel_count(x->qp->kdev, ud_drops, 1);
		return KEEL_XFER_DONE;
	}
	result = keel_far_dgram_link(x, av, qkey, link);
	keel_link_put(link);
	return result;
}

static void keel_far_group_fill(struct keel_xfer *x, const struct keel_av *av, u32 qkey,
				struct keel_cast_msg *msg)
{
	keel_far_dgram_frame(x, av, qkey, &msg->frame);
	msg->frame.flags &= KEEL_FRAME_F_SOLICITED;
	msg->frame.psn = 0;
	msg->frame.gen = 0;
	msg->ends = av->ends;
	msg->sl = av->sl;
}

/**
 * keel_far_group_send() - send a datagram to the members that a group has on other hosts
 * @x: the datagram; &keel_from.segs has its local memory
 * @av: the address of the group
 * @qkey: its Q_Key
 *
 * Context: process context; the lock of the send queue is held.
 * Return: as keel_far_dgram_send()
 */
enum keel_xfer_result keel_far_group_send(struct keel_xfer *x, const struct keel_av *av,
					  u32 qkey)
{
	const gfp_t gfp = GFP_NOWAIT | __GFP_NOWARN | (x->qp->user ? __GFP_ACCOUNT : 0);
	struct keel_far *far = x->qp->far;
	struct keel_cast_msg *msg;
	int ret = -ENOLINK;

	/* One that waited before may have ended in another way. */
	if (far && context_unsafe(x->qp->sq.wait) != KEEL_WAIT_PEER)
		far->begun = false;
	/* The lock of the send queue is held: nothing sleeps here. */
	msg = keel_cast_msg_new(&x->qp->kdev->cast, x->qp->obj.user, x->from->segs.len, gfp);
	if (IS_ERR(msg))
		ret = PTR_ERR(msg);
	if (ret == -EAGAIN && far && keel_far_dgram_waits(far, NULL, ktime_get_ns()))
		return KEEL_XFER_UNDERWAY;
	if (far)
		far->begun = false;
	if (!IS_ERR(msg) && keel_far_dgram_copy(x, msg->data)) {
		keel_far_group_fill(x, av, qkey, msg);
		keel_cast_msg_send(msg);
		return KEEL_XFER_DONE;
	}
	if (IS_ERR(msg))
		keel_count(x->qp->kdev, ud_drops, 1);
	else
		keel_cast_msg_drop(msg);
	return KEEL_XFER_DONE;
}

/**
 * keel_far_dgram_answer() - answer a datagram that has left its slot
 * @kdev: the device
 * @ends: of the link that it came from
 * @frame: its header; nothing is sent unless that asks for it
 *
 * The sender does not wait for it without a limit.
 *
 * Context: any but interrupts.
 */
void keel_far_dgram_answer(struct keel_dev *kdev, const struct keel_ends *ends,
			   const struct keel_frame *frame)
{
	struct keel_link *link;

	if (!(frame->flags & KEEL_FRAME_F_ANSWER))
		return;
	link = keel_link_lookup(kdev, ends);
	if (!link)
		return;
	keel_far_tell(link, frame, KEEL_RESULT_DONE);
	keel_link_put(link);
}
