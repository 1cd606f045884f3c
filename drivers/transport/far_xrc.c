// SPDX-License-Identifier: GPL-2.0
/*
 * XRC: packets of another host name the SRQ that they are for. The SRQ, the memory, and the
 * time that it takes to fill it belong to the owner of the SRQ, not to the one of the QP. So
 * the worker of that owner executes the packets. If its process is stopped, the packets of
 * this QP wait, until the requester gives up. If it is dead, they are dropped.
 *
 * The QP waits in a list of the SRQ, which keeps a reference on it. Everything else, such as
 * the flush of a QP that has failed, is left to the work of orphans, see qp_orphan.c. The
 * owner of the QP waits for a worker of others no longer than for a requester of this host:
 * see keel_resp_lock.h. The owner of the SRQ waits for its own worker when it destroys the
 * SRQ. After that, no thread works for it.
 */
#include "keel_far.h"
#include "keel_qp.h"

/* The SRQ that a packet names, or NULL. RCU keeps it. */
static struct keel_srq *keel_far_find_srq(const struct keel_far *far,
					  const struct keel_frame *frame)
	__must_hold_shared(RCU)
{
	struct keel_srq *srq = keel_number_load(&far->qp->kdev->srqs,
						le32_to_cpu(frame->srqn));

	return srq && srq->xrcd && srq->xrcd == far->qp->xrcd ? srq : NULL;
}

/* Let the QP wait for no SRQ. The caller has another reference on it. */
static void keel_far_quit(struct keel_far *far)
	__must_hold(&far->lock)
{
	/* It is in the list, which is empty before the SRQ is released. */
	struct keel_srq *srq = far->srq;

	if (!srq)
		return;
	scoped_guard(spinlock, &srq->rq.lock)
		list_del_init(&far->from.waiting);
	far->srq = NULL;
	keel_obj_put(&far->qp->obj);
}

/* Return: false if nobody is to execute packets for the SRQ, which RCU keeps. */
static bool keel_far_join(struct keel_far *far, struct keel_srq *srq)
	__must_hold(&far->lock) __must_hold_shared(RCU)
{
	guard(spinlock)(&srq->rq.lock);
	/* Until it is NULL, the SRQ has a reference. Then its list gets no new QP. */
	if (!srq->ib || keel_events_are_orphaned(&srq->events))
		return false;
	if (!far->srq) {
		keel_obj_get(&far->qp->obj);
		far->srq = srq;
		list_add_tail(&far->from.waiting, &srq->packets);
	}
	keel_events_queue(&srq->events, KEEL_EVENT_RUN);
	return true;
}

/*
 * If there is a packet, let the worker of the SRQ that it names run the QP. Return: false if
 * the work of orphans is to do so.
 */
static bool keel_far_aim(struct keel_far *far)
{
	const struct keel_far_slot *slot;
	struct keel_srq *srq;

	guard(spinlock)(&far->lock);
	guard(rcu)();
	slot = keel_far_first(far, &far->requests);
	srq = slot ? keel_far_find_srq(far, &slot->frame) : NULL;
	if (far->srq != srq)
		keel_far_quit(far);
	if (!slot)
		return true;
	/* In another state it is only dropped. */
	return srq && keel_far_may_execute(far->qp) && keel_far_join(far, srq);
}

/**
 * keel_far_resume() - have the first packet of a QP executed
 * @far: of the QP; the caller has a reference on it
 *
 * Context: any but interrupts; no lock but mutexes is held.
 */
void keel_far_resume(struct keel_far *far)
{
	if (far->qp->type != IB_QPT_XRC_TGT || !keel_far_aim(far))
		keel_qp_schedule_alive(far->qp);
}

/**
 * keel_far_unaim() - let no worker of an SRQ run a QP
 * @far: of a QP that is in RESET or dying, and keeps no packet; the caller has a reference
 *	on it
 *
 * A worker that runs it already finds nothing to execute. This does not wait for that.
 *
 * Context: any but interrupts.
 */
void keel_far_unaim(struct keel_far *far)
{
	guard(spinlock)(&far->lock);
	keel_far_quit(far);
}

/**
 * keel_far_pop() - take a QP out of the list of an SRQ
 * @srq: the SRQ; the caller has a reference
 *
 * Context: any but interrupts.
 * Return: &keel_qp.far, with a reference on the QP; or NULL: the list is empty.
 */
struct keel_far *keel_far_pop(struct keel_srq *srq)
{
	struct keel_from *from;
	struct keel_far *far;

	scoped_guard(spinlock, &srq->rq.lock) {
		from = list_first_entry_or_null(&srq->packets, struct keel_from, waiting);
		if (!from)
			return NULL;
		far = container_of(from, struct keel_far, from);
		keel_obj_get(&far->qp->obj);
	}
	guard(spinlock)(&far->lock);
	/* Unless it waits for another one meanwhile. */
	if (far->srq == srq)
		keel_far_quit(far);
	return far;
}

/**
 * keel_far_place() - where is a packet executed?
 * @far: of the QP
 * @frame: its header
 * @srq: the calling thread works for its owner, or NULL
 *
 * Context: any.
 * Return: enum keel_far_place. If it names no SRQ, any thread refuses it.
 */
enum keel_far_place keel_far_place(const struct keel_far *far, const struct keel_frame *frame,
				   const struct keel_srq *srq)
{
	struct keel_srq *named;

	if (far->qp->type != IB_QPT_XRC_TGT)
		return KEEL_FAR_HERE;
	guard(rcu)();
	named = keel_far_find_srq(far, frame);
	if (!named || named == srq)
		return KEEL_FAR_HERE;
	if (!keel_events_are_orphaned(&named->events))
		return KEEL_FAR_ELSEWHERE;
	/* The doorbell of another process that shares it takes it over. */
	keel_srq_want(named);
	return KEEL_FAR_NOWHERE;
}
