// SPDX-License-Identifier: GPL-2.0
/*
 * Receive queues: take and post receive WQEs. A QP's own receive queue and an
 * SRQ are the same here.
 */
#include <kunit/visibility.h>

#include "keel_point.h"
#include "keel_qp.h"

/**
 * keel_rq_take_locked() - keel_rq_take() for callers that hold &keel_rq.lock
 * @rq: the queue
 * @recv: set to a copy of the receive WQE
 *
 * Return: number of posted receive WQEs, including the one in @recv; 0: none;
 * -EINVAL if the producer index is invalid.
 */
int keel_rq_take_locked(struct keel_rq *rq, struct keel_recv *recv)
{
	const struct keel_uapi_recv_wqe *entry;
	u32 num_sge;
	int posted;

	lockdep_assert_held(&rq->lock);
	posted = keel_ring_posted(&rq->ring);
	if (posted <= 0)
		return posted;
	entry = keel_ring_entry(&rq->ring, rq->ring.index);
	/* Read once: userspace may write to it at any time. */
	num_sge = READ_ONCE(entry->num_sge);
	recv->wr_id = READ_ONCE(entry->wr_id);
	recv->num_sge = num_sge;
	recv->reserved = READ_ONCE(entry->reserved);
	if (num_sge <= rq->max_sge)
		memcpy(recv->sge, entry + 1, num_sge * sizeof(recv->sge[0]));
	keel_ring_advance(&rq->ring);
	return posted;
}

/**
 * keel_rq_take() - take the oldest receive WQE
 * @rq: the queue, which has a ring
 * @recv: set to a copy of it. If it has more SGEs than the queue allows, @sge
 *	is not set: the caller completes it in error.
 *
 * Context: process context.
 * Return: 1: taken; 0: none; -EINVAL if the producer index is invalid.
 */
int keel_rq_take(struct keel_rq *rq, struct keel_recv *recv)
{
	guard(spinlock)(&rq->lock);
	return min(keel_rq_take_locked(rq, recv), 1);
}

/**
 * keel_rq_want() - request a wakeup for the next receive WQE
 * @rq: a queue without receive WQEs
 *
 * Context: process context; &keel_rq.lock is held.
 * Return: true if one was posted meanwhile; else the thread that posts the next
 * one wakes the requesters that wait.
 */
bool keel_rq_want(struct keel_rq *rq)
{
	WRITE_ONCE(rq->wanted, true);
	WRITE_ONCE(rq->ring.head->flags, KEEL_RING_F_DOORBELL);
	keel_point("rq_want");
	/* Pairs with the barrier after a post: one sees the other. */
	smp_mb();
	return keel_ring_posted(&rq->ring) > 0;
}
EXPORT_SYMBOL_IF_KUNIT(keel_rq_want);

/**
 * keel_rq_was_wanted() - does a requester wait for a receive WQE?
 * @rq: the queue
 *
 * Context: any.
 * Return: true if the caller must call keel_rq_unwant(), unless the queue is destroyed,
 * and then wake the requesters that wait. Each request for a wakeup is returned once.
 */
bool keel_rq_was_wanted(struct keel_rq *rq)
{
	if (!READ_ONCE(rq->wanted) || !xchg(&rq->wanted, false))
		return false;
	keel_point("rq_unwanted");
	return true;
}
EXPORT_SYMBOL_IF_KUNIT(keel_rq_was_wanted);

/**
 * keel_rq_unwant() - do not ask for a doorbell any more
 * @rq: the queue; the caller has a lock that its destroy takes, and the destroy has not
 *	begun: userspace reuses the ring of a destroyed queue
 *
 * Context: any.
 */
void keel_rq_unwant(struct keel_rq *rq)
{
	/*
	 * The next requester that waits sets it again. Ordered before the requesters
	 * check for receive WQEs.
	 */
	smp_store_mb(rq->ring.head->flags, 0);
}
EXPORT_SYMBOL_IF_KUNIT(keel_rq_unwant);

/* The producer index of a kernel consumer's queue, which @post_lock protects. */
static u32 *keel_rq_producer(struct keel_rq *rq)
	__must_hold(&rq->post_lock)
{
	return &rq->ring.head->user;
}

static void keel_rq_fill(struct keel_uapi_recv_wqe *entry,
			 const struct ib_recv_wr *wr)
{
	struct keel_uapi_sge *sge = (struct keel_uapi_sge *)(entry + 1);
	int i;

	entry->wr_id = wr->wr_id;
	entry->num_sge = wr->num_sge;
	entry->reserved = 0;
	for (i = 0; i < wr->num_sge; i++) {
		sge[i].addr = wr->sg_list[i].addr;
		sge[i].length = wr->sg_list[i].length;
		sge[i].lkey = wr->sg_list[i].lkey;
	}
}

/**
 * keel_rq_post() - post a receive WQE for a kernel consumer
 * @rq: the queue
 * @wr: the work request; the next ones in its list are ignored
 *
 * Context: any.
 * Return: 0; -ENOMEM if the queue is full; -EINVAL if @wr has more SGEs than
 * the queue allows, or there is no queue (a QP that has an SRQ); -EOPNOTSUPP if
 * the queue belongs to userspace, which posts to it directly.
 */
int keel_rq_post(struct keel_rq *rq, const struct ib_recv_wr *wr)
{
	struct keel_ring *ring = &rq->ring;
	u32 user;

	if (!ring->head || wr->num_sge < 0 || wr->num_sge > rq->max_sge)
		return -EINVAL;
	if (ring->umem)
		return -EOPNOTSUPP;
	guard(spinlock_irqsave)(&rq->post_lock);
	user = *keel_rq_producer(rq);
	/* Pairs with keel_ring_advance(): WQEs that were taken are free. */
	if (user - smp_load_acquire(&ring->head->kernel) > ring->mask)
		return -ENOMEM;
	keel_rq_fill(keel_ring_entry(ring, user), wr);
	/* Pairs with keel_ring_posted(). */
	smp_store_release(keel_rq_producer(rq), user + 1);
	return 0;
}
