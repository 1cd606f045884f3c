// SPDX-License-Identifier: GPL-2.0
/*
 * The lock of a responder: a requester and the owner of the QP retry to get it,
 * and do not sleep on it. See keel_resp_lock.h.
 */
#include <kunit/visibility.h>
#include <linux/delay.h>
#include <linux/ktime.h>
#include <linux/sched/signal.h>

#include "keel_resp_lock.h"

/* Attempts to get the lock of a responder before the requester sleeps. */
#define KEEL_RESP_SPINS		200
/* How long a requester retries, ns, if the caller sets no other limit. */
#define KEEL_RESP_NS		(100 * NSEC_PER_MSEC)

/**
 * keel_resp_pause() - wait before the next attempt to lock the responder
 * @qp: the requester; its send queue's lock is held
 * @wait: zeroed by the caller before the first attempt, except for @until,
 *	which the caller may set
 *
 * Context: may sleep; no reference on a key of a user process is held.
 * Return: 0 to retry; -EINTR if the process is killed, or @qp must not send any
 * more; -EBUSY if the time is over.
 */
int keel_resp_pause(const struct keel_qp *qp, struct keel_resp_wait *wait)
{
	enum ib_qp_state state = keel_qp_state(qp);
	u64 now;

	if (fatal_signal_pending(current) || keel_qp_is_dying(qp) ||
	    (state != IB_QPS_RTS && state != IB_QPS_SQD))
		return -EINTR;
	if (++wait->tries <= KEEL_RESP_SPINS) {
		cpu_relax();
		return 0;
	}
	now = ktime_get_ns();
	if (!wait->until)
		wait->until = now + KEEL_RESP_NS;
	if (now > wait->until)
		return -EBUSY;
	usleep_range(20, 100);
	return 0;
}
EXPORT_SYMBOL_IF_KUNIT(keel_resp_pause);

/**
 * keel_resp_try() - try to lock a queue; sleep if the lock is taken
 * @lock: of a responder or a send queue
 *
 * The thread sleeps for 20 to 100 us, and not on the lock.
 *
 * Context: may sleep; no reference on a key is held.
 * Return: true: the lock is held, and preemption is disabled; the caller calls
 * keel_resp_relax() later. False: neither.
 */
bool keel_resp_try(struct mutex *lock)
{
	keel_resp_stay();
	if (mutex_trylock(lock))
		return true;
	keel_resp_relax();
	usleep_range(20, 100);
	return false;
}

/**
 * keel_resp_enter() - lock the responder of a QP, for a thread of its owner
 * @qp: the QP; the caller holds a reference
 * @wanted: whether there is work to do; also called with the lock
 *
 * The owner does not sleep on the lock either. Another of its threads may do
 * the work meanwhile. Then requesters need the lock again, which could be
 * handed to this thread while it sleeps.
 *
 * Context: may sleep before it gets the lock.
 * Return: true: the lock is held, and preemption is disabled; the caller calls
 * keel_resp_relax() later. False: there is no work to do.
 */
bool keel_resp_enter(struct keel_qp *qp,
		     bool (*wanted)(const struct keel_qp *qp))
{
	while (wanted(qp)) {
		if (!keel_resp_try(&qp->resp.lock))
			continue;
		if (wanted(qp))
			return true;
		mutex_unlock(&qp->resp.lock);
		keel_resp_relax();
	}
	return false;
}
EXPORT_SYMBOL_IF_KUNIT(keel_resp_enter);
