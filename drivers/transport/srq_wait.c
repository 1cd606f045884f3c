// SPDX-License-Identifier: GPL-2.0
/*
 * Senders that wait for a receive of a shared receive queue.
 */
#include "keel_qp.h"

/* Senders that are woken under one hold of the lock. */
#define KEEL_SRQ_WAKE	32

/**
 * keel_srq_wait() - a sender waits for a receive of an SRQ
 * @srq: the SRQ; the caller has a reference
 * @qp: the sender, which does not wait for any SRQ yet; its send queue's lock is
 *	held
 *
 * Context: process context.
 * Return: true if a receive came in between; else whoever posts one kicks @qp,
 * as does the end of the SRQ.
 */
bool keel_srq_wait(struct keel_srq *srq, struct keel_qp *qp)
{
	struct keel_sq *sq = &qp->sq;

	guard(spinlock)(&srq->rq.lock);
	if (srq->dead || !srq->ib)
		return true;
	if (keel_rq_want(&srq->rq))
		return true;
	keel_obj_get(&srq->obj);
	WRITE_ONCE(sq->srq, srq);
	list_add_tail(&sq->waiting, &srq->waiters);
	return false;
}

/**
 * keel_srq_wait_end() - undo keel_srq_wait()
 * @qp: the sender, whether it waits or not; its send queue's lock is held
 *
 * Context: process context.
 */
void keel_srq_wait_end(struct keel_qp *qp)
{
	struct keel_srq *srq, *mine = NULL;

	/* Until it is woken, it has a reference: then RCU keeps the SRQ. */
	scoped_guard(rcu) {
		/* Pairs with keel_srq_wake(), which has kicked the QP then. */
		srq = smp_load_acquire(&qp->sq.srq);
		if (!srq)
			return;
		scoped_guard(spinlock, &srq->rq.lock) {
			mine = qp->sq.srq;
			list_del_init(&qp->sq.waiting);
			WRITE_ONCE(qp->sq.srq, NULL);
		}
	}
	if (mine)
		keel_obj_put(&mine->obj);
}

/**
 * keel_srq_wake() - all senders that wait for an SRQ look for a receive again
 * @srq: the SRQ; the caller has a reference
 *
 * All of them: one may be stopped, and must not keep it from the others. Those
 * that still find none wait again.
 *
 * Context: may sleep; no spinlock is held.
 */
void keel_srq_wake(struct keel_srq *srq)
{
	LIST_HEAD(woken);
	struct keel_sq *sq;
	int n = 0;

	spin_lock(&srq->rq.lock);
	list_splice_init(&srq->waiters, &woken);
	while (!list_empty(&woken)) {
		sq = list_first_entry(&woken, struct keel_sq, waiting);
		/* It leaves the list under the lock before it is destroyed. */
		list_del_init(&sq->waiting);
		keel_qp_kick(container_of(sq, struct keel_qp, sq));
		/* From here on it may go: keel_srq_wait_end() does not wait. */
		smp_store_release(&sq->srq, NULL);
		/* The caller has one: this is not the last. */
		keel_obj_put(&srq->obj);
		if (++n % KEEL_SRQ_WAKE)
			continue;
		spin_unlock(&srq->rq.lock);
		cond_resched();
		spin_lock(&srq->rq.lock);
	}
	spin_unlock(&srq->rq.lock);
}

/**
 * keel_srq_posted() - receives were posted, and somebody may wait for them
 * @srq: the SRQ; the caller has a reference
 *
 * Context: as keel_srq_wake().
 */
void keel_srq_posted(struct keel_srq *srq)
{
	bool wanted;

	/* A resize may change the ring. */
	scoped_guard(spinlock, &srq->rq.lock)
		wanted = srq->ib && keel_rq_was_wanted(&srq->rq);
	if (wanted)
		keel_srq_wake(srq);
}

/**
 * keel_srq_wake_later() - receives were posted, or the SRQ is in error
 * @srq: the SRQ; the caller has a reference
 *
 * Context: any.
 */
void keel_srq_wake_later(struct keel_srq *srq)
{
	keel_obj_get(&srq->obj);
	/* The caller has one: this is not the last. */
	if (!queue_work(srq->wq, &srq->work))
		keel_obj_put(&srq->obj);
}

/**
 * keel_srq_work() - what keel_srq_wake_later() left to be done
 * @work: &keel_srq.work, queued with a reference on the SRQ
 */
void keel_srq_work(struct work_struct *work)
{
	struct keel_srq *srq = container_of(work, struct keel_srq, work);

	if (READ_ONCE(srq->dead))
		keel_srq_wake(srq);
	else
		keel_srq_posted(srq);
	keel_obj_put(&srq->obj);
}
