// SPDX-License-Identifier: GPL-2.0
/*
 * QPs that are connected to another host: what they have in addition, and the link that
 * they use. far_send.c is the requester, far_run.c the responder, and far_recv.c gives
 * both what the link has received.
 */
#include <kunit/visibility.h>
#include <linux/minmax.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "keel_far.h"
#include "keel_qp.h"
#include "keel_resp_lock.h"

static bool keel_far_stop(void *arg)
{
	const struct keel_xfer *x = arg;
	enum ib_qp_state state = keel_qp_state(x->peer);

	return fatal_signal_pending(current) || keel_qp_is_dying(x->peer) ||
	       state < IB_QPS_RTR || state == IB_QPS_ERR || need_resched() ||
	       ktime_get_ns() > x->until;
}

static u32 keel_far_nslots(const struct keel_qp *qp)
{
	if (!keel_qp_is_dgram(qp))
		return KEEL_FAR_SLOTS;
	/* The depth of an SRQ is not that of this QP. */
	return qp->srq ? KEEL_FAR_DGRAMS :
			 clamp_t(u32, qp->cap.max_recv_wr, KEEL_FAR_DGRAMS_MIN, KEEL_FAR_DGRAMS);
}

/* Offset of the data of packets, which follows the slots. */
static size_t keel_far_data_at(u32 nslots)
{
	return ALIGN(struct_size((struct keel_far *)NULL, slots, nslots), KEEL_FAR_UNIT);
}

/* Bytes of it. */
static size_t keel_far_data_bytes(const struct keel_qp *qp, u32 nslots)
{
	return keel_qp_is_dgram(qp) ? nslots * sizeof(struct keel_far_dgram) : 2 * KEEL_FAR_RING;
}

/* Distribute it. */
static void keel_far_init_data(struct keel_far *far)
	__context_unsafe(/* no other thread has it yet */)
{
	u8 *data = (u8 *)far + keel_far_data_at(far->nslots);
	u32 i;

	INIT_LIST_HEAD(&far->free);
	INIT_LIST_HEAD(&far->requests.slots);
	INIT_LIST_HEAD(&far->answers.slots);
	for (i = 0; i < far->nslots; i++)
		list_add(&far->slots[i].node, &far->free);
	if (keel_qp_is_dgram(far->qp)) {
		for (i = 0; i < far->nslots; i++)
			far->slots[i].data = data + i * sizeof(struct keel_far_dgram);
		return;
	}
	far->requests.data = data;
	far->answers.data = data + KEEL_FAR_RING;
}

static struct keel_far *keel_far_new(struct keel_qp *qp)
	__context_unsafe(/* no other thread has it yet */)
{
	u32 nslots = keel_far_nslots(qp);
	gfp_t gfp = qp->user ? GFP_KERNEL_ACCOUNT : GFP_KERNEL;
	struct keel_far *far;

	/* kmalloc() would round this up to a power of two. */
	far = __vmalloc(keel_far_data_at(nslots) + keel_far_data_bytes(qp, nslots),
			gfp | __GFP_ZERO);
	if (!far)
		return NULL;
	far->nslots = nslots;
	far->qp = qp;
	spin_lock_init(&far->lock);
	keel_far_init_data(far);
	/* The QP has a reference on its user. */
	keel_wait_init(&far->tx_wait, qp, qp->obj.user);
	keel_wait_init(&far->rx_wait, qp, qp->obj.user);
	mutex_init(&far->from.lock);
	far->from.qp = qp;
	INIT_LIST_HEAD(&far->from.waiting);
	keel_fetch_init(&far->from.fetch, keel_far_stop);
	far->mem.type = KEEL_MEM_KERNEL;
	return far;
}

/**
 * keel_far_first() - the first packet of a list
 * @far: of a QP
 * @list: the list
 *
 * Return: the packet, or NULL.
 */
struct keel_far_slot *keel_far_first(struct keel_far *far, struct keel_far_list *list)
{
	return list_first_entry_or_null(&list->slots, struct keel_far_slot, node);
}

/* @slot is in @list, whose ring the caller changes. */
static void keel_far_free_slot(struct keel_far *far, struct keel_far_list *list,
			       struct keel_far_slot *slot)
	__must_hold(&far->lock)
{
	keel_far_unuse_long(slot);
	list_move(&slot->node, &far->free);
	list->n--;
}

/**
 * keel_far_free_first() - forget the first packet of a list
 * @far: of a QP
 * @list: the list, which has one
 */
void keel_far_free_first(struct keel_far *far, struct keel_far_list *list)
{
	struct keel_far_slot *slot = keel_far_first(far, list);

	keel_far_ring_drop(&list->ring, slot->bytes);
	keel_far_free_slot(far, list, slot);
}

/**
 * keel_far_free_rest() - forget all packets of a list behind the first one
 * @far: of a QP
 * @list: the list
 */
void keel_far_free_rest(struct keel_far *far, struct keel_far_list *list)
{
	struct keel_far_slot *first = keel_far_first(far, list), *slot = first, *next;

	if (!first)
		return;
	list_for_each_entry_safe_continue(slot, next, &list->slots, node)
		keel_far_free_slot(far, list, slot);
	keel_far_ring_keep(&list->ring, first->at, first->bytes);
}

/**
 * keel_far_transport() - the transport of a QP
 * @qp: the QP, of a connected type
 *
 * Return: enum keel_frame_transport.
 */
u8 keel_far_transport(const struct keel_qp *qp)
{
	switch (qp->type) {
	case IB_QPT_UC:
		return KEEL_TRANSPORT_UC;
	case IB_QPT_XRC_INI:
	case IB_QPT_XRC_TGT:
		return KEEL_TRANSPORT_XRC;
	default:
		return KEEL_TRANSPORT_RC;
	}
}
EXPORT_SYMBOL_IF_KUNIT(keel_far_transport);

/**
 * keel_far_enter() - take the lock of a responder, for a thread of the owner of the QP
 * @far: of the QP
 *
 * Context: may sleep before it gets the lock.
 */
void keel_far_enter(struct keel_far *far)
{
	/* Do not sleep on the lock, as in keel_resp_enter(). */
	while (!keel_resp_try(&far->from.lock))
		;
}

/**
 * keel_far_leave() - undo keel_far_enter()
 * @far: of the QP
 */
void keel_far_leave(struct keel_far *far)
{
	mutex_unlock(&far->from.lock);
	keel_resp_relax();
}

/* Forget all packets. */
static void keel_far_clear(struct keel_far *far)
{
	guard(spinlock)(&far->lock);
	while (far->requests.n)
		keel_far_free_first(far, &far->requests);
	while (far->answers.n)
		keel_far_free_first(far, &far->answers);
	far->heard = false;
	far->peer_gen = 0;
}

/* Return: the old link, which the caller drops. */
static struct keel_link *keel_far_swap(struct keel_far *far, struct keel_link *link)
	__must_hold(&far->qp->sq.from.lock, &far->from.lock)
{
	struct keel_link *old = far->link;

	if (old) {
		keel_load_set(&old->load, &far->load, 0, 0);
		keel_link_unwait(old, &far->rx_wait);
		keel_link_unwait(old, &far->tx_wait);
	}
	/* Packets that were sent before are sent again. */
	far->epoch = 0;
	/* To a peer of this host, in another way. */
	if (!link)
		far->begun = false;
	/* The time of a wait is that of the other peer. */
	if (far->qp->sq.wait == KEEL_WAIT_PEER)
		WRITE_ONCE(far->qp->sq.wait, KEEL_WAIT_NONE);
	guard(spinlock)(&far->lock);
	WRITE_ONCE(far->link, link);
	return old;
}

static void keel_far_set(struct keel_far *far, struct keel_link *link)
{
	struct keel_link *old;

	/* The threads of the owner and of the link have this lock for a turn at most. */
	mutex_lock(&far->qp->sq.from.lock);
	keel_far_enter(far);
	/* They are the locks of this QP. */
	old = context_unsafe(keel_far_swap(far, link));
	keel_far_leave(far);
	mutex_unlock(&far->qp->sq.from.lock);
	keel_link_unuse(old);
}

/**
 * keel_far_expect() - begin to receive
 * @far: of a QP in INIT
 * @psn: number of the first packet
 *
 * Context: &keel_qp.modify_lock is held.
 */
void keel_far_expect(struct keel_far *far, u32 psn)
{
	guard(spinlock)(&far->lock);
	far->expected = psn & KEEL_PSN_MASK;
	far->done = psn & KEEL_PSN_MASK;
	far->executed = 0;
}
EXPORT_SYMBOL_IF_KUNIT(keel_far_expect);

/**
 * keel_far_give() - let a QP use a link, or none
 * @qp: the QP
 * @link: the link, of keel_link_use(), which is passed on; or NULL
 *
 * Context: may sleep; &keel_qp.modify_lock is held.
 * Return: 0 or -ENOMEM: the link was dropped.
 */
VISIBLE_IF_KUNIT int keel_far_give(struct keel_qp *qp, struct keel_link *link)
{
	struct keel_far *far = qp->far;

	if (!far && link) {
		far = keel_far_new(qp);
		if (!far) {
			keel_link_unuse(link);
			return -ENOMEM;
		}
		keel_far_expect(far, qp->attr.rq_psn);
		/* Threads of links see it whole. */
		smp_store_release(&qp->far, far);
	}
	if (!far)
		return 0;
	keel_far_set(far, link);
	/* A thread may have found the lock taken, and left a packet. */
	keel_qp_schedule_alive(qp);
	return 0;
}
EXPORT_SYMBOL_IF_KUNIT(keel_far_give);

/* Types of QPs that can reach another host. */
static bool keel_far_may(const struct keel_qp *qp)
{
	return qp->type == IB_QPT_RC || qp->type == IB_QPT_UC ||
	       qp->type == IB_QPT_XRC_INI || qp->type == IB_QPT_XRC_TGT;
}

/**
 * keel_far_attach() - find the link for the address of a QP
 * @qp: the QP
 * @av: its new address
 *
 * Context: may sleep; &keel_qp.modify_lock is held.
 * Return: 0; -ENOMEM: no memory, or too many links. The QP has no link if the address is
 * one of this device, or if keel uses no lower device.
 */
int keel_far_attach(struct keel_qp *qp, const struct keel_av *av)
{
	struct keel_link *link = NULL;

	if (av->far && keel_far_may(qp)) {
		link = keel_home_use(qp->kdev, &av->ends,
				     qp->user ? KEEL_LINK_USER : KEEL_LINK_KERNEL,
				     qp->user ? GFP_KERNEL_ACCOUNT : GFP_KERNEL);
		if (!link)
			return -ENOMEM;
	}
	return keel_far_give(qp, link);
}

/**
 * keel_far_listen() - let a QP receive datagrams of other hosts
 * @qp: the QP, of any type
 *
 * Context: may sleep; &keel_qp.modify_lock is held.
 * Return: 0 or -ENOMEM.
 */
int keel_far_listen(struct keel_qp *qp)
{
	struct keel_far *far;

	if (qp->far || !keel_qp_is_dgram(qp) || !keel_wire_is_on())
		return 0;
	far = keel_far_new(qp);
	if (!far)
		return -ENOMEM;
	/* As in keel_far_give(). */
	smp_store_release(&qp->far, far);
	return 0;
}

/**
 * keel_far_detach() - let a QP use no link
 * @far: of a QP that is in RESET or dying, so that nothing is executed for it
 *
 * Context: may sleep.
 */
void keel_far_detach(struct keel_far *far)
{
	keel_far_set(far, NULL);
	keel_far_enter(far);
	keel_fetch_discard(&far->from.fetch);
	far->from.stage = KEEL_STAGE_NEW;
	far->replies = false;
	far->offset = 0;
	far->broken = false;
	far->atomics = 0;
	far->absent_until = 0;
	keel_far_clear(far);
	keel_far_leave(far);
	/* No thread runs the send queue in this state. */
	far->primed = false;
	far->begun = false;
	far->una = far->next;
	far->granted = 0;
	far->staged = false;
}
