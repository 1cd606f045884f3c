/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The lock of a responder, for those who send to it.
 *
 * The owner of the QP waits for the lock when it destroys or resets the QP, and
 * others when they send to it. So whoever has it by one of these functions is
 * not preempted until it drops it: a process of low priority, or with a limit
 * that it has used up, would keep the lock, and the keys that it uses with it,
 * for as long as others let it wait.
 *
 * The owner itself takes &keel_resp.lock as it is: nobody sends to a QP then.
 */
#ifndef KEEL_RESP_H
#define KEEL_RESP_H

#include <linux/mutex.h>
#include <linux/preempt.h>

#include "keel_qp.h"

int keel_resp_lock(struct keel_qp *peer);

/* Where spinlocks sleep, nothing may be done without preemption. */
static inline void keel_resp_stay(void)
{
	if (!IS_ENABLED(CONFIG_PREEMPT_RT))
		preempt_disable();
}

/**
 * keel_resp_relax() - from here on the caller may sleep, with the lock
 *
 * For memory on demand and dma-bufs, and for the wait for users of a key.
 * keel_resp_stay() is to follow.
 */
static inline void keel_resp_relax(void)
{
	if (!IS_ENABLED(CONFIG_PREEMPT_RT))
		preempt_enable();
}

/**
 * keel_resp_trylock() - as keel_resp_lock(), or not at all
 * @peer: the QP
 *
 * Context: process context.
 * Return: whether the lock is the caller's.
 */
static inline bool keel_resp_trylock(struct keel_qp *peer)
{
	keel_resp_stay();
	if (mutex_trylock(&peer->resp.lock))
		return true;
	keel_resp_relax();
	return false;
}

/**
 * keel_resp_unlock() - undo keel_resp_lock()
 * @peer: the QP; may be gone afterwards, unless the caller has a reference
 */
static inline void keel_resp_unlock(struct keel_qp *peer)
{
	mutex_unlock(&peer->resp.lock);
	keel_resp_relax();
}

#endif /* KEEL_RESP_H */
