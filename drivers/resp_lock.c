// SPDX-License-Identifier: GPL-2.0
/*
 * The lock of a responder: how a sender and the owner of the QP get it without
 * sleeping for it. See keel_resp.h.
 */
#include <linux/delay.h>
#include <linux/sched/signal.h>

#include "keel_resp.h"

/* Tries to get the lock of a responder before the processor is left to others. */
#define KEEL_RESP_SPINS		200
/* Tries, most of which sleep, until the peer is not waited for any more. */
#define KEEL_RESP_TRIES		(KEEL_RESP_SPINS + 1000)

/**
 * keel_resp_pause() - before the next try to get the lock of a peer's responder
 * @qp: who sends; its send queue's lock is held
 * @tries: how often it was called, 0 at first
 *
 * Context: may sleep; no key is in use.
 * Return: 0; -EINTR: the process is killed, or @qp is not to send any more; -EBUSY:
 * it has taken too long, some 100 ms.
 */
int keel_resp_pause(const struct keel_qp *qp, u32 *tries)
{
	enum ib_qp_state state = READ_ONCE(qp->state);

	if (fatal_signal_pending(current) || READ_ONCE(qp->dying) ||
	    (state != IB_QPS_RTS && state != IB_QPS_SQD))
		return -EINTR;
	if (++*tries > KEEL_RESP_TRIES)
		return -EBUSY;
	if (*tries > KEEL_RESP_SPINS)
		usleep_range(20, 100);
	else
		cpu_relax();
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
