// SPDX-License-Identifier: GPL-2.0
/*
 * Requesters that wait for a receive WQE of a shared receive queue.
 */
#include <kunit/visibility.h>

#include "keel_qp.h"

/* Requesters that are woken at a time, with the lock and by a call of the owner. */
#define KEEL_SRQ_WAKE	32

/**
 * keel_srq_want() - ask for a doorbell with the next receive WQE of an SRQ
 * @srq: the SRQ, kept by RCU or a reference
 *
 * Context: process context.
 * Return: true if a receive WQE was posted meanwhile, or the SRQ is destroyed or in error:
 * retry.
 */
bool keel_srq_want(struct keel_srq *srq)
{
	guard(spinlock)(&srq->rq.lock);
	return srq->dead || !srq->ib || keel_rq_want(&srq->rq);
}

/**
 * keel_srq_wait() - let a requester wait for a receive WQE of an SRQ
 * @srq: the SRQ; the caller holds a reference
 * @from: the requester, which waits for no SRQ yet; its lock is held
 *
 * Context: process context.
 * Return: true if a receive WQE was posted meanwhile, or the SRQ is destroyed
 * or in error: retry; else the next post, an error or the destroy of the SRQ
 * reschedules the QP of @from.
 */
bool keel_srq_wait(struct keel_srq *srq, struct keel_from *from)
{
	guard(spinlock)(&srq->rq.lock);
	if (srq->dead || !srq->ib)
		return true;
	if (keel_rq_want(&srq->rq))
		return true;
	keel_obj_get(&srq->obj);
	WRITE_ONCE(from->srq, srq);
	from->wait_nr = srq->waits++;
	list_add_tail(&from->waiting, &srq->waiters);
	return false;
}
EXPORT_SYMBOL_IF_KUNIT(keel_srq_wait);

/* Return: the SRQ, if the caller now owns the requester's reference; else NULL. */
static struct keel_srq *keel_srq_unlist(struct keel_srq *srq, struct keel_from *from)
	__must_hold(&srq->rq.lock) __must_hold_shared(RCU)
{
	struct keel_srq *mine = from->srq;

	list_del_init(&from->waiting);
	WRITE_ONCE(from->srq, NULL);
	return mine;
}

/**
 * keel_srq_wait_end() - undo keel_srq_wait()
 * @from: the requester, whether it waits or not; its lock is held
 *
 * Context: process context.
 */
void keel_srq_wait_end(struct keel_from *from)
{
	struct keel_srq *srq, *mine = NULL;

	/* The QP has a reference until it is woken. Then RCU keeps the SRQ. */
	scoped_guard(rcu) {
		/* Pairs with keel_srq_wake(), which has rescheduled the QP. */
		srq = smp_load_acquire(&from->srq);
		if (!srq)
			return;
		scoped_guard(spinlock, &srq->rq.lock)
			mine = keel_srq_unlist(srq, from);
	}
	if (mine)
		keel_obj_put(&mine->obj);
}

/* The requester that has waited longest, or NULL. */
static struct keel_from *keel_srq_first(struct keel_srq *srq)
	__must_hold(&srq->rq.lock)
{
	return list_first_entry_or_null(&srq->waiters, struct keel_from, waiting);
}

/* Reschedule a requester that waits. */
static void keel_srq_wake_one(struct keel_srq *srq, struct keel_from *from)
	__must_hold(&srq->rq.lock)
{
	/* A QP leaves the list, locked, before it is destroyed. */
	list_del_init(&from->waiting);
	keel_qp_schedule(from->qp);
	/* From here on the QP may be destroyed without the lock. */
	smp_store_release(&from->srq, NULL);
	/*
	 * This is not the last reference: the caller holds one, or is in a section, for
	 * whose end the owner of the SRQ waits.
	 */
	keel_obj_put(&srq->obj);
}

/**
 * keel_srq_taken() - wake a requester after a take, if receive WQEs are left
 * @srq: the SRQ
 *
 * If the worker of the owner is stopped, a post wakes only some of those that wait. Each
 * of them wakes another one for the next receive WQE. (One that is itself stopped or
 * destroyed meanwhile does not.)
 *
 * Context: process context; @srq->rq.lock is held.
 */
void keel_srq_taken(struct keel_srq *srq)
{
	struct keel_from *from = keel_srq_first(srq);

	if (from)
		keel_srq_wake_one(srq, from);
}
EXPORT_SYMBOL_IF_KUNIT(keel_srq_taken);

/**
 * keel_srq_wake() - reschedule all requesters that wait for an SRQ
 * @srq: the SRQ; the caller holds a reference
 *
 * All of them: a single one may be stopped, and would keep the receive WQE from
 * the others. A requester that finds none waits again, but is not woken again.
 *
 * Context: may sleep; no spinlock is held.
 */
void keel_srq_wake(struct keel_srq *srq)
{
	struct keel_from *from;
	u64 end;
	int n = 0;

	spin_lock(&srq->rq.lock);
	end = srq->waits;
	while ((from = keel_srq_first(srq)) && from->wait_nr < end) {
		keel_srq_wake_one(srq, from);
		if (++n % KEEL_SRQ_WAKE)
			continue;
		/* Others may wake the rest meanwhile, if this thread is stopped. */
		spin_unlock(&srq->rq.lock);
		cond_resched();
		spin_lock(&srq->rq.lock);
	}
	spin_unlock(&srq->rq.lock);
}
EXPORT_SYMBOL_IF_KUNIT(keel_srq_wake);

/*
 * Return: true if there are more than a call of the owner reschedules. The caller has the
 * lock of the uobject, so the SRQ is not destroyed meanwhile, and may ask for a doorbell.
 */
static bool keel_srq_wake_some(struct keel_srq *srq)
{
	struct keel_from *from;
	int n;

	guard(spinlock)(&srq->rq.lock);
	for (n = 0; n < KEEL_SRQ_WAKE && (from = keel_srq_first(srq)); n++)
		keel_srq_wake_one(srq, from);
	if (!keel_srq_first(srq))
		return false;
	/* The next post does the same, until the worker has woken them. */
	keel_rq_want(&srq->rq);
	return true;
}

static bool keel_srq_was_wanted(struct keel_srq *srq)
{
	/* A resize may change the ring. */
	guard(spinlock)(&srq->rq.lock);
	if (!srq->ib || !keel_rq_was_wanted(&srq->rq))
		return false;
	keel_rq_unwant(&srq->rq);
	return true;
}

/**
 * keel_srq_posted() - wake the requesters that wait, after a post of the owner
 * @srq: the SRQ; the caller holds a reference
 *
 * Strangers decide how many they are: the worker of the owner wakes the rest. If
 * another process has posted that shares the SRQ, that worker may be stopped: then the
 * workqueue does it.
 *
 * Context: process context; no spinlock is held.
 */
void keel_srq_posted(struct keel_srq *srq)
{
	if (!keel_srq_was_wanted(srq) || !keel_srq_wake_some(srq))
		return;
	if (keel_events_are_ours(&srq->events))
		keel_events_queue(&srq->events, KEEL_EVENT_WAKE);
	/* Also if the process has just been killed. */
	if (!keel_events_are_ours(&srq->events))
		keel_srq_wake_later(srq);
}

/**
 * keel_srq_wake_later() - let the workqueue wake the requesters that wait
 * @srq: the SRQ of a kernel consumer to which a WQE was posted, or an SRQ that is in
 *	error, or that several processes share; the caller holds a reference, or is in a
 *	section of keel_keys_enter()
 *
 * The process of the SRQ may be stopped.
 *
 * Context: any.
 */
void keel_srq_wake_later(struct keel_srq *srq)
{
	keel_obj_get(&srq->obj);
	/* Not the last reference: likewise. */
	if (!queue_work(srq->events.wq, &srq->wake))
		keel_obj_put(&srq->obj);
}

/**
 * keel_srq_wake_work() - &keel_srq.wake
 * @work: of the SRQ; it has a reference, which ends here
 */
void keel_srq_wake_work(struct work_struct *work)
{
	struct keel_srq *srq = container_of(work, struct keel_srq, wake);

	keel_srq_wake_now(srq);
	keel_obj_put(&srq->obj);
}

/**
 * keel_srq_wake_now() - wake the requesters that wait, after an event
 * @srq: the SRQ; the caller holds a reference
 *
 * Context: may sleep; no spinlock is held.
 */
void keel_srq_wake_now(struct keel_srq *srq)
{
	/* Before they are woken: they may want the next WQE. */
	keel_srq_was_wanted(srq);
	keel_srq_wake(srq);
}
