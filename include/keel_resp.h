/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The lock of a responder, for those who send to it.
 *
 * The owner of the QP waits for the lock when it destroys or resets the QP, and
 * others when they send to it; and the owners of keys wait for those who use them.
 * So a sender is not preempted from the first use of a key on, until it has
 * dropped the keys and the lock: a process of low priority, or with a limit that
 * it has used up, would keep them for as long as others let it wait.
 *
 * The lock is tried for, and not slept for: it could be handed to a process that
 * does not run. A sender that waits for it uses no key, and stops waiting when the
 * peer takes nothing any more, or after some 100 ms. The owner of the QP may have
 * the lock and be preempted, but only while the QP is in no state to receive, or a
 * UD QP is full, which it looks at with the lock: see keel_resp_enter().
 */
#ifndef KEEL_RESP_H
#define KEEL_RESP_H

#include <linux/mutex.h>
#include <linux/preempt.h>

#include "keel_qp.h"

int keel_resp_pause(const struct keel_qp *qp, u32 *tries);
bool keel_resp_try(struct mutex *lock);
bool keel_resp_enter(struct keel_qp *qp,
		     bool (*wanted)(const struct keel_qp *qp));

/**
 * keel_resp_stay() - from here on the caller is not preempted
 *
 * A PREEMPT_RT kernel does not allow it, for spinlocks sleep there.
 */
static inline void keel_resp_stay(void)
{
	if (!IS_ENABLED(CONFIG_PREEMPT_RT))
		preempt_disable();
}

/**
 * keel_resp_relax() - from here on the caller may be preempted, and sleep
 *
 * With a lock or a key only for memory on demand and dma-bufs, and for the wait
 * for users of a key.
 */
static inline void keel_resp_relax(void)
{
	if (!IS_ENABLED(CONFIG_PREEMPT_RT))
		preempt_enable();
}

#endif /* KEEL_RESP_H */
