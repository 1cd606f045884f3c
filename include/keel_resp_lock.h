/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The lock of a responder, for requesters.
 *
 * A requester takes the lock to deliver a message. The owner of the QP waits for
 * the lock when it destroys or resets the QP. The owner of a key waits until all
 * references on the key are dropped. A requester that is preempted, with a low
 * priority or without CPU quota left, could delay all of them without a limit. So
 * a requester is not preempted from its first reference on a key until it has
 * dropped the keys and the lock.
 *
 * A requester tries to get the lock and never sleeps on it, because a mutex could
 * be handed to a process that does not run. A user process that retries holds no
 * reference on a key. A kernel consumer may hold references on its own keys while
 * it retries for a UD QP. A requester gives up when the peer no longer accepts
 * messages, when its turn is over (connected QPs), or after 100 ms (datagrams).
 *
 * The owner of the QP may be preempted with the lock, but only while the QP is in
 * no state to receive, or while a UD QP is full. It checks this with the lock: see
 * keel_resp_enter().
 */
#ifndef KEEL_RESP_LOCK_H
#define KEEL_RESP_LOCK_H

#include <linux/lockdep.h>
#include <linux/mutex.h>
#include <linux/preempt.h>

#include "keel_qp.h"

/**
 * struct keel_resp_wait - a requester retries to get the lock of a responder
 * @tries: number of attempts
 * @until: when it gives up, ns of ktime_get_ns(); 0: not set yet
 */
struct keel_resp_wait {
	u32 tries;
	u64 until;
};

int keel_resp_pause(const struct keel_qp *qp, struct keel_resp_wait *wait);
bool keel_resp_try(struct mutex *lock) __cond_acquires(true, lock);
bool keel_resp_enter(struct keel_qp *qp,
		     bool (*wanted)(const struct keel_qp *qp))
	__cond_acquires(true, &qp->resp.lock);

/**
 * keel_resp_stay() - disable preemption
 *
 * Does nothing on PREEMPT_RT, where spinlocks sleep.
 */
static inline void keel_resp_stay(void)
{
	if (!IS_ENABLED(CONFIG_PREEMPT_RT))
		preempt_disable();
}

/**
 * keel_resp_relax() - enable preemption; the caller may sleep from here on
 *
 * With a lock or a key of others, a caller may do this only to access on-demand
 * memory or a dma-buf, or to wait for the references on a key. The owner of a QP
 * that no requester can send to may keep the lock of its responder.
 */
static inline void keel_resp_relax(void)
{
	if (!IS_ENABLED(CONFIG_PREEMPT_RT))
		preempt_enable();
}

/** keel_resp_assert_stays() - warn if preemption is enabled, with lockdep only */
static inline void keel_resp_assert_stays(void)
{
	if (!IS_ENABLED(CONFIG_PREEMPT_RT))
		lockdep_assert_preemption_disabled();
}

#endif /* KEEL_RESP_LOCK_H */
