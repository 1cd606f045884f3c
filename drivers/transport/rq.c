// SPDX-License-Identifier: GPL-2.0
/*
 * Receive queues: taking a receive that a program or a kernel consumer posted.
 * A QP's own and a shared one are the same here.
 */
#include "keel_qp.h"

/**
 * keel_rq_take_locked() - keel_rq_take() for who has &keel_rq.lock
 * @rq: the queue
 * @recv: where to copy the receive
 *
 * Return: how many receives there were, @recv being one of them; 0: none;
 * -EINVAL: the owner's index is nonsense.
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
	/* Once: its owner may write to it even now. */
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
 * keel_rq_take() - take the oldest receive
 * @rq: the queue, which has a ring
 * @recv: where to copy it. With more SGEs than the queue was made for its
 *	@sge is left alone: the caller completes it in error.
 *
 * Context: process context.
 * Return: 1: taken; 0: there is none; -EINVAL: the owner's index is nonsense.
 */
int keel_rq_take(struct keel_rq *rq, struct keel_recv *recv)
{
	int ret;

	spin_lock(&rq->lock);
	ret = keel_rq_take_locked(rq, recv);
	spin_unlock(&rq->lock);
	return ret > 0 ? 1 : ret;
}

/**
 * keel_rq_want() - ask to be told of the next receive
 * @rq: a queue without receives
 *
 * Context: process context; &keel_rq.lock is held, or of a QP's own queue the
 * responder's.
 * Return: true if one came in between; else whoever posts one will tell.
 */
bool keel_rq_want(struct keel_rq *rq)
{
	WRITE_ONCE(rq->wanted, true);
	WRITE_ONCE(rq->ring.head->flags, KEEL_RING_F_KICK);
	/* Pairs with the barrier of whoever posts: one sees the other. */
	smp_mb();
	return keel_ring_posted(&rq->ring) > 0;
}

/**
 * keel_rq_was_wanted() - a receive may have been posted
 * @rq: the queue
 *
 * Context: any.
 * Return: whether somebody is to be told. Nobody is told twice.
 */
bool keel_rq_was_wanted(struct keel_rq *rq)
{
	if (!READ_ONCE(rq->wanted) || !xchg(&rq->wanted, false))
		return false;
	/* The next one that waits asks again. */
	WRITE_ONCE(rq->ring.head->flags, 0);
	/* Before those who are told look for receives. */
	smp_mb();
	return true;
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
 * keel_rq_post() - post a receive of a kernel consumer
 * @rq: the queue
 * @wr: the receive, this one only
 *
 * Context: any.
 * Return: 0; -ENOMEM: the queue is full; -EINVAL: more SGEs than the queue
 * was made for, or no queue (a QP that has an SRQ); -EOPNOTSUPP: the queue of
 * a program, which posts to it without us.
 */
int keel_rq_post(struct keel_rq *rq, const struct ib_recv_wr *wr)
{
	struct keel_ring *ring = &rq->ring;
	unsigned long flags;
	int ret = -ENOMEM;
	u32 user;

	if (!ring->head || wr->num_sge < 0 || wr->num_sge > rq->max_sge)
		return -EINVAL;
	if (ring->umem)
		return -EOPNOTSUPP;
	spin_lock_irqsave(&rq->post_lock, flags);
	/* Ours, as the consumer; the other index is the taker's. */
	user = ring->head->user;
	/* Pairs with keel_ring_advance(): entries that it passed are free. */
	if (user - smp_load_acquire(&ring->head->kernel) <= ring->mask) {
		keel_rq_fill(keel_ring_entry(ring, user), wr);
		/* Pairs with keel_ring_posted(). */
		smp_store_release(&ring->head->user, user + 1);
		ret = 0;
	}
	spin_unlock_irqrestore(&rq->post_lock, flags);
	return ret;
}
