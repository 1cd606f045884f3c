// SPDX-License-Identifier: GPL-2.0
/* The turns of a responder: see far_run.c. */
#include <kunit/visibility.h>
#include <linux/ktime.h>
#include <linux/sched/signal.h>

#include "keel_far.h"
#include "keel_point.h"
#include "keel_qp.h"
#include "keel_resp_lock.h"

/* How long packets are executed before another QP gets a turn. */
#define KEEL_FAR_TURN_NS	(2 * NSEC_PER_MSEC)

/* Tests set it: their thread may lose the processor for longer. */
VISIBLE_IF_KUNIT u64 keel_far_turn_ns = KEEL_FAR_TURN_NS;
EXPORT_SYMBOL_IF_KUNIT(keel_far_turn_ns);

/* Is the next packet one for another worker? It is told before this thread is preempted. */
static bool keel_far_is_away(struct keel_far *far, const struct keel_srq *srq)
	__must_hold(&far->from.lock)
{
	const struct keel_far_slot *slot;

	if (far->replies)
		return false;
	guard(spinlock)(&far->lock);
	slot = keel_far_first(far, &far->requests);
	return slot && keel_far_place(far, &slot->frame, srq) == KEEL_FAR_ELSEWHERE;
}

/* Is the first packet, or its answer, soon done with? Else *@step: what follows. */
static bool keel_far_is_brief(struct keel_far *far, enum keel_far_step *step)
{
	const struct keel_far_slot *slot;

	guard(spinlock)(&far->lock);
	slot = keel_far_first(far, &far->requests);
	/* Another packet may arrive at once, and be long. */
	*step = slot ? KEEL_FAR_LATER : KEEL_FAR_IDLE;
	return slot && keel_far_is_short(&slot->frame);
}

/*
 * Do one thing with the lock, and the rest of it without; @once: only what is brief, with memory
 * that is never absent; @late: as keel_far_run_once(). Not preempted with the lock: see
 * &keel_far.from.
 */
static enum keel_far_step keel_far_locked_step(struct keel_far *far, const struct keel_srq *srq,
					       u64 until, bool once, bool late)
{
	struct keel_xfer x = { .until = until, .brief = once, .late = late };
	struct keel_lack lack = {};
	enum keel_far_step step;

	keel_resp_stay();
	if (!mutex_trylock(&far->from.lock)) {
		keel_resp_relax();
		return KEEL_FAR_TAKEN;
	}
	atomic_xchg(&far->again, 0);
	if (!once || keel_far_is_brief(far, &step))
		step = keel_far_step(far, srq, &x);
	if (step == KEEL_FAR_MORE && keel_far_is_away(far, srq))
		step = KEEL_FAR_AWAY;
	if (step == KEEL_FAR_AWAY)
		keel_far_resume(far);
	keel_fetch_take(&far->from.fetch, &lack);
	keel_far_leave(far);
	keel_point("far_drained");
	/* References are dropped without the lock. */
	keel_xfer_put(&x);
	if (step == KEEL_FAR_ABSENT && !once)
		/* This takes the lock. */
		context_unsafe(keel_fetch_provide(&far->from.fetch, &far->from.lock, far->qp,
						  &lack));
	keel_need_put(&lack.need);
	return step;
}

/* The same, after &keel_far.again was set. */
static enum keel_far_step keel_far_attempt(struct keel_far *far, const struct keel_srq *srq,
					   u64 until, bool once, bool late)
{
	enum keel_far_step step;

	/* As in keel_sq_run(): this thread gets the lock, or its holder sees @again. */
	smp_mb();
	step = keel_far_locked_step(far, srq, until, once, late);
	/* Pairs with the barrier above, as in keel_sq_run(). */
	smp_mb();
	return step;
}

/**
 * keel_far_run() - execute packets that a QP has received
 * @far: of the QP
 * @srq: XRC: the caller works for the owner of this SRQ, and executes packets for no other
 *	one; or NULL
 *
 * If another thread does so, that thread executes the new ones. After KEEL_FAR_TURN_NS, it leaves
 * them to its next turn.
 *
 * Context: may sleep; no lock of a queue is held. Waits for no other process.
 */
void keel_far_run(struct keel_far *far, const struct keel_srq *srq)
{
	u64 until = ktime_get_ns() + keel_far_turn_ns;
	enum keel_far_step step;
	bool left;

	/*
	 * Pairs with atomic_xchg(): a thread that clears @again sees the packet that it was
	 * set for.
	 */
	atomic_set_release(&far->again, 1);
	do {
		step = keel_far_attempt(far, srq, until, false, false);
		cond_resched();
		/* The other host may send without end, also while an answer waits for a buffer. */
		left = (step == KEEL_FAR_IDLE || step == KEEL_FAR_AWAY) &&
		       atomic_read(&far->again);
	} while (step == KEEL_FAR_MORE || step == KEEL_FAR_ABSENT ||
		 (left && ktime_get_ns() <= until));
	/* A killed process does no more, and its QP lives on if it is one of XRC. */
	if (step == KEEL_FAR_LATER || left || (srq && fatal_signal_pending(current)))
		keel_far_resume(far);
}
EXPORT_SYMBOL_IF_KUNIT(keel_far_run);

/* Is there nothing to execute? */
static bool keel_far_is_done(struct keel_far *far)
{
	guard(spinlock)(&far->lock);
	return !far->requests.n;
}

/**
 * keel_far_run_once() - execute the first packet that a QP has received
 * @far: of the QP
 * @late: an answer without data does not wait in turn for a buffer, as the process may have no
 *	turn
 *
 * Context: may sleep; no lock of a queue is held. Waits for no other process.
 * Return: false if more is left to do, and no other thread does it: the caller has it done.
 */
bool keel_far_run_once(struct keel_far *far, bool late)
{
	u64 until = ktime_get_ns() + keel_far_turn_ns;
	enum keel_far_step step;

	keel_stub(keel_far_run_once, far, late);
	/* As in keel_far_run(). */
	atomic_set_release(&far->again, 1);
	step = keel_far_attempt(far, NULL, until, true, late);
	/* The holder of the lock goes on. */
	if (step == KEEL_FAR_TAKEN)
		return true;
	if (atomic_read(&far->again))
		return false;
	/* The link or another worker wakes the QP. */
	if (step == KEEL_FAR_IDLE || step == KEEL_FAR_AWAY)
		return true;
	return step == KEEL_FAR_MORE && keel_far_is_done(far);
}
EXPORT_SYMBOL_IF_KUNIT(keel_far_run_once);
