// SPDX-License-Identifier: GPL-2.0
/*
 * Events of an object: see keel_events.h.
 *
 * Lifetime: a queued job or work has a reference on the object. keel_events_close()
 * waits until it has run, and keel_events_own() for the job of the worker it replaces.
 */
#include <linux/err.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <kunit/visibility.h>

#include "keel_events.h"
#include "keel_quota.h"

static void keel_events_job(struct keel_job *job, bool alive);
static void keel_events_work(struct work_struct *work);
static void keel_events_run_orphan(struct keel_orphan *orphan);
static void keel_events_end_orphan(struct keel_orphan *orphan);

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
	keel_orphan_init(&events->orphan, keel_events_run_orphan,
			 keel_events_end_orphan);
}
EXPORT_SYMBOL_IF_KUNIT(keel_events_init);

/* Returns false if it is queued already. */
static bool keel_events_schedule(struct keel_events *events)
	__must_hold(&events->lock)
{
	int ret;

	if (events->obj->kernel)
		return queue_work(events->wq, &events->work);
	if (events->worker) {
		ret = keel_job_queue(events->worker, &events->job);
		if (ret != -ESRCH)
			return ret;
	}
	return keel_orphan_queue(&events->obj->user->orphans, &events->orphan);
}

/* Returns the replaced worker or NULL; @worker if it was not installed. */
VISIBLE_IF_KUNIT struct keel_worker *keel_events_swap(struct keel_events *events,
						      struct keel_worker *worker)
{
	struct keel_worker *old;

	guard(spinlock_irqsave)(&events->lock);
	old = events->worker;
	/* Another thread has replaced it, or keel_events_close() uses it. */
	if (events->closed || (old && !keel_worker_is_dead(old)))
		return worker;
	/* A thread that reads it under RCU sees an initialized worker. */
	smp_store_release(&events->worker, worker);
	return old;
}
EXPORT_SYMBOL_IF_KUNIT(keel_events_swap);

static bool keel_events_have_worker(struct keel_events *events)
{
	const struct keel_worker *worker;

	/* A worker that is replaced is freed after a grace period. */
	guard(rcu)();
	/* keel_events_swap() checks again, with the lock. */
	worker = context_unsafe(READ_ONCE(events->worker));
	return worker && !keel_worker_is_dead(worker);
}

/* Types that &keel_events.wake is called for. */
static bool keel_event_wakes(int type)
{
	return type == KEEL_EVENT_WAKE || type == KEEL_EVENT_RUN;
}

/* Take an event that is due. Return: false if it is not. */
static bool keel_events_take(struct keel_events *events, int type)
{
	struct keel_event_due *due;

	guard(spinlock_irqsave)(&events->lock);
	for (due = events->due; due < events->due + events->types; due++) {
		if (due->type != type)
			continue;
		events->types--;
		memmove(due, due + 1, (events->due + events->types - due) * sizeof(*due));
		return true;
	}
	return false;
}

/* A killed process may leave requesters that wait for a WQE which it has posted. */
static void keel_events_wake(struct keel_events *events)
{
	if (keel_events_take(events, KEEL_EVENT_WAKE))
		events->wake(events->obj, KEEL_EVENT_WAKE);
	if (keel_events_take(events, KEEL_EVENT_RUN))
		events->wake(events->obj, KEEL_EVENT_RUN);
}

/* Hand the reference of a job or a work that will not run on to the next one. */
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
 *	happens if they have a worker that is not dead, or are closed.
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
	if (old && old != worker) {
		keel_events_wake(events);
		/* The replaced worker is dead: it has run its jobs, or does so now. */
		if (keel_job_cancel(old, &events->job))
			keel_events_requeue(events);
		/* There it may wait for long. */
		if (keel_orphan_cancel(&events->obj->user->orphans, &events->orphan))
			keel_events_requeue(events);
	}
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

/* Returns true if the caller now owns its reference. */
static bool keel_events_cancel_orphan(struct keel_events *events)
{
	struct keel_orphans *orphans = &events->obj->user->orphans;
	bool was_queued = keel_orphan_cancel(orphans, &events->orphan);

	keel_orphan_flush(&events->orphan);
	return was_queued;
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
			/* From here on it is not replaced: see keel_events_swap(). */
			worker = events->worker;
		}
	}
	if (worker && keel_job_cancel(worker, &events->job))
		keel_obj_put(events->obj);
	if (events->obj->kernel ? cancel_work_sync(&events->work) :
				  keel_events_cancel_orphan(events))
		keel_obj_put(events->obj);
}
EXPORT_SYMBOL_IF_KUNIT(keel_events_close);

static void keel_events_add(struct keel_events *events, int type)
	__must_hold(&events->lock)
{
	struct keel_event_due *due;

	for (due = events->due; due < events->due + events->types; due++) {
		if (due->type == type) {
			due->count += !keel_event_wakes(type) &&
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

/**
 * keel_events_are_orphaned() - is the worker dead that is to raise the events?
 * @events: the events of an object; the caller keeps the object from being released
 *
 * Context: any.
 * Return: true if keel_events_own() would replace it.
 */
bool keel_events_are_orphaned(const struct keel_events *events)
{
	const struct keel_worker *worker;

	guard(rcu)();
	/* As in keel_events_have_worker(). */
	worker = context_unsafe(READ_ONCE(events->worker));
	return worker && keel_worker_is_dead(worker);
}
EXPORT_SYMBOL_IF_KUNIT(keel_events_are_orphaned);

/**
 * keel_events_are_ours() - does the worker of the calling process raise the events?
 * @events: the events of an object; the caller keeps the object from being released
 *
 * Context: process context.
 * Return: true if it does, and is not dead.
 */
bool keel_events_are_ours(struct keel_events *events)
{
	const struct keel_worker *worker;

	guard(rcu)();
	/* That of this process is not replaced while the process lives. */
	worker = context_unsafe(READ_ONCE(events->worker));
	return worker && keel_worker_is_ours(worker);
}
EXPORT_SYMBOL_IF_KUNIT(keel_events_are_ours);

/*
 * Threads of the kernel, and the workqueues that are workers before Linux 6.10, work for
 * others. A killed process ends at once, whatever it has still to flush.
 */
static bool keel_events_may_raise(void)
{
	return current->mm && !(READ_ONCE(current->signal->flags) & SIGNAL_GROUP_EXIT);
}

/**
 * keel_events_raise() - raise an event
 * @events: the events of an object; the caller keeps the object from being released
 * @type: the event
 * @own: the caller is a thread of a process with the context of the object, and has no
 *	lock that a thread of another process may wait for
 *
 * Calls the handler of a kernel consumer at once, and that of a process only if @own.
 * Else as keel_events_queue(). If processes share the object, @own does not depend on
 * the one that created it, which may be stopped.
 *
 * Context: any but interrupts; no lock is held that a handler of a kernel consumer
 * may take.
 */
void keel_events_raise(struct keel_events *events, int type, bool own)
{
	if (!events->obj->kernel && !(own && keel_events_may_raise())) {
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

/* Return: false if there is no event, no handler is called any more, or others are next. */
static bool keel_events_step(struct keel_events *events, bool all)
{
	int type;

	scoped_guard(spinlock, &events->raising) {
		if (events->closed || !keel_events_next(events, all, &type))
			return false;
		if (!keel_event_wakes(type))
			events->raise(events->obj, type);
	}
	if (keel_event_wakes(type))
		events->wake(events->obj, type);
	/* That takes as long as all else: other objects are next. */
	return type != KEEL_EVENT_RUN;
}

static bool keel_events_are_due(struct keel_events *events)
{
	guard(spinlock_irqsave)(&events->lock);
	return events->types;
}

/* Go on later if there are more events. The reference of the caller ends here. */
static void keel_events_end(struct keel_events *events)
{
	if (keel_events_are_due(events))
		keel_events_requeue(events);
	else
		keel_obj_put(events->obj);
}

/* Not all events: each may lead to the next one, without end. */
static void keel_events_run(struct keel_events *events, bool all)
{
	int n;

	for (n = 0; n < KEEL_EVENTS_TYPES; n++) {
		if (!keel_events_step(events, all))
			break;
		cond_resched();
	}
	keel_events_end(events);
}

static void keel_events_job(struct keel_job *job, bool alive)
{
	struct keel_events *events = container_of(job, struct keel_events, job);

	/* A worker looks for signals after each job. */
	if (alive && !fatal_signal_pending(current)) {
		keel_events_run(events, false);
		return;
	}
	/* A killed process ends at once. */
	keel_events_wake(events);
	keel_events_requeue(events);
}

static void keel_events_work(struct work_struct *work)
{
	keel_events_run(container_of(work, struct keel_events, work), true);
}

static void keel_events_run_orphan(struct keel_orphan *orphan)
{
	struct keel_events *events = container_of(orphan, struct keel_events, orphan);

	keel_events_wake(events);
	/* Nobody counts equal events of a dead process: they are raised once. */
	keel_events_step(events, !keel_events_have_worker(events));
}

static void keel_events_end_orphan(struct keel_orphan *orphan)
{
	keel_events_end(container_of(orphan, struct keel_events, orphan));
}
