// SPDX-License-Identifier: GPL-2.0
/*
 * Long packets: a message of RC with much data is divided into few of them. The QP that receives
 * such a packet needs memory for its data. It has some as soon as it has seen a message that it is
 * worth for, and then tells the other side in its answers. So QPs without such messages take
 * no more memory, and the owner of the QP is charged.
 */
#include <kunit/visibility.h>
#include <linux/bitops.h>
#include <linux/jiffies.h>
#include <linux/minmax.h>
#include <linux/sched/mm.h>
#include <linux/vmalloc.h>

#include "keel_far.h"
#include "keel_opcode.h"
#include "keel_qp.h"
#include "keel_quota.h"

/* How long all packets stay short if there was no memory. */
#define KEEL_FAR_RETRY	(10 * HZ)

/**
 * keel_far_want() - there is a message that long packets are worth for
 * @longs: where the QP would keep them; &keel_far.lock is held
 */
void keel_far_want(struct keel_far_longs *longs)
{
	if (!longs->data && (!longs->retry || time_after_eq(jiffies, longs->retry)))
		WRITE_ONCE(longs->wanted, true);
}
EXPORT_SYMBOL_IF_KUNIT(keel_far_want);

static bool keel_far_count(struct keel_user *user)
{
	/* It orders nothing: it is a number. */
	if (!user || atomic_inc_return_relaxed(&user->longs) <= KEEL_FAR_USER_LONGS)
		return true;
	atomic_dec(&user->longs);
	return false;
}

static void keel_far_drop_longs(const struct keel_qp *qp, u8 *data)
{
	if (!data)
		return;
	vfree(data);
	/* The QP counts for its user as long as it is there. */
	if (qp->obj.user)
		atomic_dec(&qp->obj.user->longs);
}

/* Messages of kernel consumers may be those that write to a disk what memory is freed for. */
static u8 *keel_far_alloc(const struct keel_qp *qp)
{
	gfp_t gfp = (qp->user ? GFP_KERNEL_ACCOUNT : GFP_NOIO) | __GFP_NORETRY | __GFP_NOWARN;
	unsigned int flags = qp->user ? 0 : memalloc_noio_save();
	u8 *data = NULL;

	if (keel_far_count(qp->obj.user)) {
		data = __vmalloc(KEEL_FAR_LONGS * KEEL_CHUNK_DATA, gfp);
		if (!data && qp->obj.user)
			atomic_dec(&qp->obj.user->longs);
	}
	if (!qp->user)
		memalloc_noio_restore(flags);
	return data;
}

/* @longs is one of @far, for which there may be no memory: then all packets stay short. */
static void keel_far_grow_one(struct keel_far *far, struct keel_far_longs *longs)
{
	u8 *data;

	if (!READ_ONCE(longs->wanted))
		return;
	data = keel_far_alloc(far->qp);
	scoped_guard(spinlock, &far->lock) {
		WRITE_ONCE(longs->wanted, false);
		longs->retry = data ? 0 : (jiffies + KEEL_FAR_RETRY) ?: 1;
		/* Several threads may do this at once. */
		if (!longs->data) {
			longs->data = data;
			data = NULL;
		}
	}
	keel_far_drop_longs(far->qp, data);
}

/**
 * keel_far_grow() - get memory for long packets, if they are worth it
 * @far: of a QP
 *
 * Context: may sleep; a thread that is charged for the QP, or there is none.
 */
void keel_far_grow(struct keel_far *far)
{
	/* Without such threads, nobody could be charged. */
	if (far->qp->user && !KEEL_THREAD_HAS_MM)
		return;
	/* It takes the lock. */
	context_unsafe(keel_far_grow_one(far, &far->long_requests));
	/* Likewise. */
	context_unsafe(keel_far_grow_one(far, &far->long_answers));
}

/**
 * keel_far_free() - free what a QP has for another host
 * @far: of a QP that is being freed, or NULL
 *
 * Context: any but interrupts.
 */
void keel_far_free(struct keel_far *far)
	__context_unsafe(/* no other thread has it any more */)
{
	if (!far)
		return;
	keel_far_drop_longs(far->qp, far->long_requests.data);
	keel_far_drop_longs(far->qp, far->long_answers.data);
	vfree(far);
}

/**
 * keel_far_use_long() - let a packet have the memory of a long one
 * @slot: the packet
 * @longs: where to take it from; &keel_far.lock is held
 *
 * Return: false if there is none.
 */
bool keel_far_use_long(struct keel_far_slot *slot, struct keel_far_longs *longs)
{
	u32 nr = ffz(longs->used);

	if (!longs->data || nr >= KEEL_FAR_LONGS)
		return false;
	longs->used |= BIT(nr);
	slot->longs = longs;
	slot->nr = nr;
	slot->data = longs->data + nr * KEEL_CHUNK_DATA;
	return true;
}

/**
 * keel_far_unuse_long() - take that memory back
 * @slot: the packet, which may have none; &keel_far.lock is held
 */
void keel_far_unuse_long(struct keel_far_slot *slot)
{
	if (!slot->longs)
		return;
	slot->longs->used &= ~BIT(slot->nr);
	slot->longs = NULL;
}

/**
 * keel_far_grant() - how many long packets may the other side have under way?
 * @far: of a QP
 *
 * Context: any but interrupts.
 * Return: their number.
 */
u32 keel_far_grant(struct keel_far *far)
{
	guard(spinlock)(&far->lock);
	return far->long_requests.data ? KEEL_FAR_LONGS : 0;
}
EXPORT_SYMBOL_IF_KUNIT(keel_far_grant);

/*
 * Is the memory of a message such that much of it can be copied at once? What may be absent is
 * staged (keel_far_stage()), and a BAR may be slow.
 */
static bool keel_far_is_quick(const struct keel_xfer *x)
	__must_hold(&x->from->lock)
{
	return !x->qp->far->staged && keel_segs_may_share(&x->from->segs);
}

/* May the next packet of a message be a long one? */
static bool keel_far_may_be_long(const struct keel_xfer *x)
	__must_hold(&x->from->lock)
{
	struct keel_far *far = x->qp->far;

	if (!far->granted || x->qp->type != IB_QPT_RC || !keel_far_is_quick(x))
		return false;
	if (!keel_link_has_chunks(far->link)) {
		if (x->len > KEEL_FAR_WORTH)
			keel_link_want_chunks(far->link);
		return false;
	}
	if (!(x->op->flags & KEEL_OP_READ))
		return true;
	guard(spinlock)(&far->lock);
	if (x->len > KEEL_FAR_WORTH)
		keel_far_want(&far->long_answers);
	return far->long_answers.data;
}

/**
 * keel_far_size() - bytes of the next packet
 * @x: the message
 *
 * Context: the lock of the send queue is held.
 * Return: at most KEEL_CHUNK_DATA, and at most KEEL_FRAME_DATA if memory may be absent, or if
 * the packet is staged.
 */
u32 keel_far_size(const struct keel_xfer *x)
{
	const struct keel_far *far = x->qp->far;
	u64 left = x->len - far->sent;
	u32 most = KEEL_FRAME_DATA, size;

	if (left <= KEEL_FRAME_DATA)
		return left;
	if (keel_psn_diff(far->next, far->tip) < 0) {
		/* Userspace may have changed the WQE since then. */
		size = far->sizes[far->next % KEEL_FAR_WINDOW];
		if (size > KEEL_FRAME_DATA && keel_far_is_quick(x))
			most = size;
	} else if (keel_far_may_be_long(x)) {
		most = KEEL_CHUNK_DATA;
	}
	return min_t(u64, left, most);
}

/* How many of the packets under way are long? */
static u32 keel_far_nlong(const struct keel_far *far)
{
	u32 psn, n = 0;

	for (psn = far->una; psn != far->next; psn = (psn + 1) & KEEL_PSN_MASK)
		n += far->sizes[psn % KEEL_FAR_WINDOW] > KEEL_FRAME_DATA;
	return n;
}

/**
 * keel_far_is_full() - are as many packets under way as may be?
 * @far: of a QP
 *
 * The other side keeps KEEL_FAR_WINDOW packets, and KEEL_FAR_BYTES of those that are not long. It
 * keeps the data that a read returns in the place of the request, and so does this side for the
 * answers.
 *
 * Context: the lock of the send queue is held.
 * Return: true if so: there may be no room for a packet of KEEL_FRAME_DATA bytes.
 */
bool keel_far_is_full(const struct keel_far *far)
{
	s32 n = keel_psn_diff(far->next, far->una);
	u32 bytes = n > 0 ? far->total - far->before[far->una % KEEL_FAR_WINDOW] : 0;

	return n >= KEEL_FAR_WINDOW || bytes > KEEL_FAR_BYTES - KEEL_FRAME_DATA;
}

/**
 * keel_far_note_packet() - the next packet is sent
 * @far: of a QP
 * @n: bytes of its data, or those that its answer is to have
 *
 * Context: the lock of the send queue is held.
 */
void keel_far_note_packet(struct keel_far *far, u32 n)
{
	far->sizes[far->next % KEEL_FAR_WINDOW] = n;
	far->before[far->next % KEEL_FAR_WINDOW] = far->total;
	if (n <= KEEL_FRAME_DATA)
		far->total += keel_far_bytes(n);
}

/**
 * keel_far_has_room() - may the next packet be sent before others are answered?
 * @far: of the QP
 * @size: keel_far_size() of the packet
 * @window: most packets that may be under way
 *
 * Context: the lock of the send queue is held.
 * Return: true if so.
 */
bool keel_far_has_room(const struct keel_far *far, u32 size, s32 window)
{
	if (keel_psn_diff(far->next, far->una) >= window || keel_far_is_full(far))
		return false;
	/* If it is sent again, it was under way with the others before. */
	return size <= KEEL_FRAME_DATA || keel_psn_diff(far->next, far->tip) < 0 ||
	       keel_far_nlong(far) < far->granted;
}

/**
 * keel_far_una_size() - bytes of the first packet that is not answered
 * @x: its message
 *
 * Context: the lock of the send queue is held.
 * Return: likewise.
 */
u32 keel_far_una_size(const struct keel_xfer *x)
{
	const struct keel_far *far = x->qp->far;

	return min_t(u64, x->len - far->acked, far->sizes[far->una % KEEL_FAR_WINDOW]);
}
