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
 * does not run. A user process that waits for it uses no key; a consumer in the
 * kernel may, of its own, while it waits for a UD QP. A sender stops waiting when
 * the peer takes nothing any more, when its turn is over (connected QPs), or after
 * 100 ms (datagrams). The owner of the QP may have the lock and be preempted, but
 * only while the QP is in no state to receive, or a UD QP is full, which it looks at
 * with the lock: see keel_resp_enter().
 */
#ifndef KEEL_RESP_LOCK_H
#define KEEL_RESP_LOCK_H

#include <linux/mutex.h>
#include <linux/preempt.h>

#include "keel_qp.h"

/**
 * struct keel_resp_wait - a sender waits for the lock of a responder
 * @tries: how often it has tried
 * @until: when it stops, ns of ktime_get_ns(); 0: not decided yet
 */
struct keel_resp_wait {
	u32 tries;
	u64 until;
};

int keel_resp_pause(const struct keel_qp *qp, struct keel_resp_wait *wait);
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
 * With a lock or a key of others only for memory on demand and dma-bufs, and for
 * the wait for users of a key. The owner of a QP that nobody can send to may keep
 * the lock of its responder.
 */
static inline void keel_resp_relax(void)
{
	if (!IS_ENABLED(CONFIG_PREEMPT_RT))
		preempt_enable();
}

#endif /* KEEL_RESP_LOCK_H */
