/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Events of an object that belongs to a process: raised by the worker of that process,
 * not by the thread that caused them. An event wakes whoever waits for it, and the
 * owner decides how many that are: this is not the time of a stranger.
 *
 * A core unit: it depends on objects and workers, but on no queue and no verb.
 */
#ifndef KEEL_EVENTS_H
#define KEEL_EVENTS_H

#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/workqueue.h>

#include "keel_obj.h"
#include "keel_orphans.h"
#include "keel_worker.h"

/* Types of events that an object can have. */
#define KEEL_EVENTS_TYPES	8
/* No events: for &keel_events.wake of an object. */
#define KEEL_EVENT_WAKE		(-3)
#define KEEL_EVENT_RUN		(-4)

/**
 * struct keel_event_due - events of a type that were not raised yet
 * @type: the type
 * @count: their number
 */
struct keel_event_due {
	int type;
	u32 count;
};

/**
 * struct keel_events - the events of an object
 * @obj: the object
 * @raise: calls the handler of the consumer for an event of @type. Called under
 *	@raising, before keel_events_close() returns.
 * @wake: called for KEEL_EVENT_WAKE and KEEL_EVENT_RUN, without a lock; may sleep; or
 *	NULL. If the worker is dead, also after keel_events_close(), by a thread that keeps
 *	the object.
 * @raising: serializes the handlers; taken before the locks of queues. For an object with
 *	a worker that is not dead, only threads of its process take it, those of
 *	processes that share the object, and device removal
 * @closed: the object is destroyed: no handler is called any more; changes under both
 *	locks
 * @lock: protects @due, @types and @worker, and all calls that queue @job, @work or
 *	@orphan; taken in any context, inside all other locks but those of workers and
 *	of orphans
 * @due: the oldest type first
 * @types: number of elements in @due
 * @worker: of the process, a reference; NULL: none
 * @wq: raises the events of kernel consumers
 * @work: for @wq
 * @job: for @worker
 * @orphan: raises the events of a process, one at a time, if @worker is NULL or dead
 */
struct keel_events {
	struct keel_obj *obj;
	void (*raise)(struct keel_obj *obj, int type);
	void (*wake)(struct keel_obj *obj, int type);
	spinlock_t raising;
	bool closed __guarded_by(&raising, &lock);
	spinlock_t lock;
	struct keel_event_due due[KEEL_EVENTS_TYPES] __guarded_by(&lock);
	unsigned int types __guarded_by(&lock);
	struct keel_worker *worker __guarded_by(&lock);
	struct workqueue_struct *wq;
	struct work_struct work;
	struct keel_job job;
	struct keel_orphan orphan;
};

void keel_events_init(struct keel_events *events, struct keel_obj *obj,
		      struct workqueue_struct *wq,
		      void (*raise)(struct keel_obj *obj, int type));
int keel_events_own(struct keel_events *events, struct keel_workers *workers);
void keel_events_free(struct keel_events *events);
void keel_events_close(struct keel_events *events);
bool keel_events_are_orphaned(const struct keel_events *events);
bool keel_events_are_ours(struct keel_events *events);
void keel_events_queue(struct keel_events *events, int type);
void keel_events_raise(struct keel_events *events, int type, bool own);
#if IS_ENABLED(CONFIG_KUNIT)
struct keel_worker *keel_events_swap(struct keel_events *events,
				     struct keel_worker *worker);
#endif

#endif /* KEEL_EVENTS_H */
