// SPDX-License-Identifier: GPL-2.0
/*
 * XRC: the worker of the owner of an SRQ executes packets of other hosts that name it. See
 * far_xrc.c.
 */
#include <linux/ktime.h>
#include <linux/sched/signal.h>

#include "keel_far.h"
#include "keel_qp.h"

/* How long a worker runs QPs before the other objects of its process get a turn. */
#define KEEL_FAR_SERVE_NS	(2 * NSEC_PER_MSEC)

/* Does the list of an SRQ get no new QP? See keel_far_join(). */
static bool keel_far_is_last(struct keel_srq *srq)
{
	/* If it is NULL, it does not change back. */
	return !context_unsafe(READ_ONCE(srq->ib)) || keel_events_are_orphaned(&srq->events);
}

/*
 * Does the calling thread work for the owner of the SRQ? The work of orphans may come when
 * another process has just taken the SRQ over.
 */
static bool keel_far_may_serve(struct keel_srq *srq)
{
	if (keel_far_is_last(srq) || fatal_signal_pending(current))
		return false;
	return srq->obj.kernel || !KEEL_THREAD_HAS_MM || keel_events_are_ours(&srq->events);
}

/**
 * keel_far_serve() - execute packets of other hosts for an SRQ
 * @srq: the SRQ; the caller has a reference, and is the worker of its owner, unless that
 *	is dead, or the owner destroys it
 *
 * Context: may sleep; no lock is held.
 */
void keel_far_serve(struct keel_srq *srq)
{
	u64 until = ktime_get_ns() + KEEL_FAR_SERVE_NS;
	struct keel_far *far;

	do {
		far = keel_far_pop(srq);
		if (!far)
			return;
		if (keel_far_may_serve(srq))
			keel_far_run(far, srq);
		else
			keel_qp_schedule_alive(far->qp);
		keel_obj_put(&far->qp->obj);
		cond_resched();
		/*
		 * If there are no new ones, all are scheduled, which takes no time. Else other
		 * hosts may add some faster than that, also if this process was killed.
		 */
	} while (keel_far_is_last(srq) || ktime_get_ns() < until);
	keel_events_queue(&srq->events, KEEL_EVENT_RUN);
}
