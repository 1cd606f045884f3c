// SPDX-License-Identifier: GPL-2.0
/*
 * The lock of a responder: how a sender and the owner of the QP get it without
 * sleeping for it. See keel_resp_lock.h.
 */
#include <linux/delay.h>
#include <linux/ktime.h>
#include <linux/sched/signal.h>

#include "keel_resp_lock.h"

/* Tries to get the lock of a responder before the processor is left to others. */
#define KEEL_RESP_SPINS		200
/* How long it is waited for, ns. */
#define KEEL_RESP_NS		(100 * NSEC_PER_MSEC)

/**
 * keel_resp_pause() - before the next try to get the lock of a peer's responder
 * @qp: the sender; its send queue's lock is held
 * @wait: zeroed by the caller before the first try, but for an end that it may set
 *
 * Context: may sleep; no key of a user process is in use.
 * Return: 0; -EINTR: the process is killed, or @qp is not to send any more; -EBUSY:
 * it has taken too long.
 */
int keel_resp_pause(const struct keel_qp *qp, struct keel_resp_wait *wait)
{
	enum ib_qp_state state = READ_ONCE(qp->state);
	u64 now;

	if (fatal_signal_pending(current) || READ_ONCE(qp->dying) ||
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

/**
 * keel_resp_try() - try to get the lock of a queue, and sleep if somebody has it
 * @lock: of a responder or a send queue
 *
 * The sleep is one of 20 to 100 us, and not for the lock.
 *
 * Context: may sleep; no key is in use.
 * Return: true: with the lock, and without preemption; keel_resp_relax() is to
 * follow. False: without either.
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
 * @qp: the QP; the caller has a reference
 * @wanted: whether there is something to do; looked at with the lock, too
 *
 * The owner does not sleep for the lock either: another of its threads may do the
 * work meanwhile, and then others send to the QP while this one sleeps.
 *
 * Context: may sleep before.
 * Return: true: with the lock, and without preemption: keel_resp_relax() is to
 * follow. False: there is nothing to do.
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
