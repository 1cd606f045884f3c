/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Work for objects of a user whose processes cannot do it, above all because they are
 * dead. Nobody can be charged for it. So all of it together, of a user of a device, gets a
 * fixed part of the time of one processor, in turn.
 *
 * A core unit: it depends on no object and no user.
 */
#ifndef KEEL_ORPHANS_H
#define KEEL_ORPHANS_H

#include <linux/list.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/workqueue.h>

#include "compat.h"

/* A user gets one part of so many. */
#define KEEL_ORPHANS_PARTS	10

/**
 * struct keel_orphan - the work of an object
 * @node: in &keel_orphans.queue
 * @run: does a short part of it; called in process context, may sleep
 * @end: called after @run, when the user's time has been measured. May queue the rest,
 *	and may drop the last reference on the user.
 */
struct keel_orphan {
	struct list_head node;
	void (*run)(struct keel_orphan *orphan);
	void (*end)(struct keel_orphan *orphan);
};

/**
 * struct keel_orphans - the work of a user
 * @lock: protects the members below; taken in any context, inside all other locks
 * @queue: struct keel_orphan, the oldest first. Each keeps the user.
 * @running: what @work is doing
 * @rest: until then, @work does nothing; as ktime_get_ns()
 * @work: pending while @queue is not empty
 */
struct keel_orphans {
	spinlock_t lock;
	struct list_head queue __guarded_by(&lock);
	const struct keel_orphan *running __guarded_by(&lock);
	u64 rest __guarded_by(&lock);
	struct delayed_work work;
};

int keel_orphans_load(void);
void keel_orphans_unload(void);
void keel_orphans_init(struct keel_orphans *orphans);
void keel_orphan_init(struct keel_orphan *orphan,
		      void (*run)(struct keel_orphan *orphan),
		      void (*end)(struct keel_orphan *orphan));
bool keel_orphan_queue(struct keel_orphans *orphans, struct keel_orphan *orphan);
bool keel_orphan_cancel(struct keel_orphans *orphans, struct keel_orphan *orphan);
void keel_orphan_flush(struct keel_orphans *orphans,
		       const struct keel_orphan *orphan);

#endif /* KEEL_ORPHANS_H */
