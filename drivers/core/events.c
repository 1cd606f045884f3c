// SPDX-License-Identifier: GPL-2.0
/*
 * Events of an object: see keel_events.h.
 *
 * Lifetime: a queued job or work has a reference on the object. keel_events_close()
 * waits until it is dropped.
 */
#include <linux/err.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <kunit/visibility.h>

#include "keel_events.h"

static void keel_events_job(struct keel_job *job, bool alive);
static void keel_events_work(struct work_struct *work);

/**
 * keel_events_init() - initialize the events of an object
 * @events: the events
 * @obj: the object that they are part of; &keel_obj.kernel is set before the first
 *	event
 * @wq: see &keel_events.wq
 * @raise: see &keel_events.raise
 */
void keel_events_init(struct keel_events *events, struct keel_obj *obj,
		      struct workqueue_struct *wq,
		      void (*raise)(struct keel_obj *obj, int type))
	__context_unsafe(/* no other thread has the object yet */)
{
	events->obj = obj;
	events->wq = wq;
	events->raise = raise;
	spin_lock_init(&events->raising);
	spin_lock_init(&events->lock);
	keel_job_init(&events->job, keel_events_job);
	INIT_WORK(&events->work, keel_events_work);
}
EXPORT_SYMBOL_IF_KUNIT(keel_events_init);

/* Returns false if the job or work is queued already. */
static bool keel_events_schedule(struct keel_events *events)
	__must_hold(&events->lock)
{
	int ret = -ESRCH;

	if (events->worker)
		ret = keel_job_queue(events->worker, &events->job);
	return ret == -ESRCH ? queue_work(events->wq, &events->work) : ret;
}

/* Returns the replaced worker or NULL; @worker if it was not installed. */
static struct keel_worker *keel_events_swap(struct keel_events *events,
					    struct keel_worker *worker)
{
	struct keel_worker *old;

	guard(spinlock_irqsave)(&events->lock);
	old = events->worker;
	/* Another thread has replaced it. */
	if (old && !keel_worker_is_dead(old))
		return worker;
	events->worker = worker;
	return old;
}

static bool keel_events_have_worker(struct keel_events *events)
{
	guard(spinlock_irqsave)(&events->lock);
	return events->worker && !keel_worker_is_dead(events->worker);
}

/* A job was taken back from a dead worker: queue it on the new one. */
static void keel_events_requeue(struct keel_events *events)
{
	bool queued;

	scoped_guard(spinlock_irqsave, &events->lock)
		queued = !events->closed && keel_events_schedule(events);
	if (!queued)
		keel_obj_put(events->obj);
}

/**
 * keel_events_own() - let the worker of the calling process raise the events
 * @events: the events of an object of a user process, in a call of its owner. Nothing
 *	happens if they have a worker that is not dead.
 * @workers: the workers of the context of the object
 *
 * Context: process context of a user process; no spinlock is held.
 * Return: 0, or the error of keel_worker_of_current().
 */
int keel_events_own(struct keel_events *events, struct keel_workers *workers)
{
	struct keel_worker *worker, *old;

	if (keel_events_have_worker(events))
		return 0;
	worker = keel_worker_of_current(workers);
	if (IS_ERR(worker))
		return PTR_ERR(worker);
	old = keel_events_swap(events, worker);
	/* The replaced worker is dead: it has run its jobs, or does so now. */
	if (old && old != worker && keel_job_cancel(old, &events->job))
		keel_events_requeue(events);
	keel_worker_put(old);
	return 0;
}

/**
 * keel_events_free() - undo keel_events_own()
 * @events: the events of an object that no other thread has any more
 *
 * Context: process context.
 */
void keel_events_free(struct keel_events *events)
{
	/* See above. */
	keel_worker_put(context_unsafe(events->worker));
}

/**
 * keel_events_close() - call no handler any more
 * @events: the events of an object that is being destroyed; the caller has a
 *	reference on the object
 *
 * Waits for a handler that runs. Drops the events that were not raised.
 *
 * Context: may sleep; no spinlock is held.
 */
void keel_events_close(struct keel_events *events)
{
	struct keel_worker *worker;

	scoped_guard(spinlock, &events->raising) {
		scoped_guard(spinlock_irqsave, &events->lock) {
			events->closed = true;
			/* The owner destroys the object, and does not replace it. */
			worker = events->worker;
		}
	}
	if (worker && keel_job_cancel(worker, &events->job))
		keel_obj_put(events->obj);
	if (cancel_work_sync(&events->work))
		keel_obj_put(events->obj);
}
EXPORT_SYMBOL_IF_KUNIT(keel_events_close);

static void keel_events_add(struct keel_events *events, int type)
	__must_hold(&events->lock)
{
	struct keel_event_due *due;

	for (due = events->due; due < events->due + events->types; due++) {
		if (due->type == type) {
			due->count += type != KEEL_EVENT_WAKE &&
				      due->count < U32_MAX;
			return;
		}
	}
	if (WARN_ON_ONCE(events->types == KEEL_EVENTS_TYPES))
		return;
	due->type = type;
	due->count = 1;
	events->types++;
}

/**
 * keel_events_queue() - have an event raised by the worker
 * @events: the events of an object; the caller keeps the object from being released
 * @type: the event
 *
 * Events of different types are raised in the order in which the first of each type
 * was queued. Without a worker, or if it is dead, the workqueue raises the event.
 *
 * Context: any.
 */
void keel_events_queue(struct keel_events *events, int type)
{
	guard(spinlock_irqsave)(&events->lock);
	if (events->closed)
		return;
	keel_events_add(events, type);
	keel_obj_get(events->obj);
	/* Not the last reference: the object exists for the caller. */
	if (!keel_events_schedule(events))
		keel_obj_put(events->obj);
}
EXPORT_SYMBOL_IF_KUNIT(keel_events_queue);

static bool keel_events_are_ours(struct keel_events *events)
{
	guard(spinlock_irqsave)(&events->lock);
	return events->worker && keel_worker_is_ours(events->worker);
}

/**
 * keel_events_raise() - raise an event
 * @events: the events of an object; the caller keeps the object from being released
 * @type: the event
 * @own: the caller has no lock that a thread of another process may wait for
 *
 * Calls the handler of a kernel consumer at once. That of a process only if @own, and
 * the process is the caller's; else as keel_events_queue().
 *
 * Context: any but interrupts; no lock is held that a handler of a kernel consumer
 * may take.
 */
void keel_events_raise(struct keel_events *events, int type, bool own)
{
	if (!events->obj->kernel && !(own && keel_events_are_ours(events))) {
		keel_events_queue(events, type);
		return;
	}
	guard(spinlock)(&events->raising);
	if (!events->closed)
		events->raise(events->obj, type);
}
EXPORT_SYMBOL_IF_KUNIT(keel_events_raise);

/* Take the oldest event. @all: and those that are like it. Return: false if none. */
static bool keel_events_next(struct keel_events *events, bool all, int *type)
{
	struct keel_event_due *due = events->due;

	guard(spinlock_irqsave)(&events->lock);
	if (!events->types)
		return false;
	*type = due->type;
	if (all || !--due->count)
		memmove(due, due + 1, --events->types * sizeof(*due));
	return true;
}

/* Return: false if there is no event, or no handler is called any more. */
static bool keel_events_step(struct keel_events *events, bool all)
{
	int type;

	scoped_guard(spinlock, &events->raising) {
		if (events->closed || !keel_events_next(events, all, &type))
			return false;
		if (type != KEEL_EVENT_WAKE)
			events->raise(events->obj, type);
	}
	if (type == KEEL_EVENT_WAKE)
		events->wake(events->obj);
	return true;
}

/* If the process is dead, nobody counts equal events: they are raised once. */
static void keel_events_run(struct keel_events *events, bool alive)
{
	while (keel_events_step(events, !alive || fatal_signal_pending(current)))
		cond_resched();
	keel_obj_put(events->obj);
}

static void keel_events_job(struct keel_job *job, bool alive)
{
	keel_events_run(container_of(job, struct keel_events, job), alive);
}

static void keel_events_work(struct work_struct *work)
{
	keel_events_run(container_of(work, struct keel_events, work), false);
}
