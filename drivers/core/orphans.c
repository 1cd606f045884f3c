// SPDX-License-Identifier: GPL-2.0
/*
 * Work for objects whose processes cannot do it: see keel_orphans.h.
 *
 * Lifetime: the user is kept by what is queued, and by what runs until its &end is called.
 * A thread that takes the last one from the queue also takes the delayed work back. So it
 * never runs after the user is freed.
 */
#include <linux/errno.h>
#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <kunit/visibility.h>

#include "keel_orphans.h"

/* Runs one work at a time, so that many users do not get many processors. */
static struct workqueue_struct *keel_orphans_wq;

/**
 * keel_orphans_load() - allocate what all users need
 *
 * Return: 0, or -ENOMEM.
 */
int keel_orphans_load(void)
{
	keel_orphans_wq = alloc_ordered_workqueue("keel_orphans", 0);
	return keel_orphans_wq ? 0 : -ENOMEM;
}

/**
 * keel_orphans_unload() - undo keel_orphans_load(), when no device is left
 */
void keel_orphans_unload(void)
{
	destroy_workqueue(keel_orphans_wq);
}

/* In jiffies, until this user may have time again. */
static unsigned long keel_orphans_pause(const struct keel_orphans *orphans)
	__must_hold(&orphans->lock)
{
	u64 now = ktime_get_ns();

	return orphans->rest > now ? nsecs_to_jiffies(orphans->rest - now) + 1 : 0;
}

/* Nothing happens if the work is pending already. */
static void keel_orphans_go_on(struct keel_orphans *orphans)
	__must_hold(&orphans->lock)
{
	if (!list_empty(&orphans->queue))
		queue_delayed_work(keel_orphans_wq, &orphans->work,
				   keel_orphans_pause(orphans));
}

/* Returns what is to run now, or NULL. */
static struct keel_orphan *keel_orphans_begin(struct keel_orphans *orphans)
{
	struct keel_orphan *orphan;

	guard(spinlock_irqsave)(&orphans->lock);
	/* It may have been queued before the last one has ended. */
	if (keel_orphans_pause(orphans)) {
		keel_orphans_go_on(orphans);
		return NULL;
	}
	orphan = list_first_entry_or_null(&orphans->queue, struct keel_orphan, node);
	if (orphan)
		list_del_init(&orphan->node);
	orphans->running = orphan;
	return orphan;
}

static void keel_orphans_end(struct keel_orphans *orphans, u64 start)
{
	u64 now = ktime_get_ns();

	guard(spinlock_irqsave)(&orphans->lock);
	orphans->running = NULL;
	orphans->rest = now + (now - start) * (KEEL_ORPHANS_PARTS - 1);
	keel_orphans_go_on(orphans);
}

static void keel_orphans_work(struct work_struct *work)
{
	struct keel_orphans *orphans = container_of(to_delayed_work(work),
						    struct keel_orphans, work);
	struct keel_orphan *orphan = keel_orphans_begin(orphans);
	u64 start = ktime_get_ns();

	if (!orphan)
		return;
	orphan->run(orphan);
	keel_orphans_end(orphans, start);
	/* From here on the user may be freed. */
	orphan->end(orphan);
}

/**
 * keel_orphans_init() - initialize a user without work
 * @orphans: the work of the user
 */
void keel_orphans_init(struct keel_orphans *orphans)
	__context_unsafe(/* no other thread has the user yet */)
{
	spin_lock_init(&orphans->lock);
	INIT_LIST_HEAD(&orphans->queue);
	orphans->running = NULL;
	orphans->rest = 0;
	INIT_DELAYED_WORK(&orphans->work, keel_orphans_work);
}
EXPORT_SYMBOL_IF_KUNIT(keel_orphans_init);

/**
 * keel_orphan_init() - initialize work that is not queued
 * @orphan: the work
 * @run: &keel_orphan.run
 * @end: &keel_orphan.end
 */
void keel_orphan_init(struct keel_orphan *orphan,
		      void (*run)(struct keel_orphan *orphan),
		      void (*end)(struct keel_orphan *orphan))
{
	INIT_LIST_HEAD(&orphan->node);
	orphan->run = run;
	orphan->end = end;
}
EXPORT_SYMBOL_IF_KUNIT(keel_orphan_init);

/**
 * keel_orphan_queue() - queue work behind all other work of the user
 * @orphans: the work of the user
 * @orphan: the work, always of this user
 *
 * Queued work must keep the user, until it has run or was cancelled.
 *
 * Context: any.
 * Return: false if it was queued already.
 */
bool keel_orphan_queue(struct keel_orphans *orphans, struct keel_orphan *orphan)
{
	guard(spinlock_irqsave)(&orphans->lock);
	if (!list_empty(&orphan->node))
		return false;
	list_add_tail(&orphan->node, &orphans->queue);
	keel_orphans_go_on(orphans);
	return true;
}
EXPORT_SYMBOL_IF_KUNIT(keel_orphan_queue);

/* Nothing was queued for a moment: the work must neither be pending nor begin. */
static void keel_orphans_stop(struct keel_orphans *orphans)
{
	cancel_delayed_work_sync(&orphans->work);
	/* More may have been queued meanwhile. */
	guard(spinlock_irqsave)(&orphans->lock);
	keel_orphans_go_on(orphans);
}

/**
 * keel_orphan_cancel() - dequeue work
 * @orphans: the work of the user; the caller keeps the user
 * @orphan: the work
 *
 * Context: may sleep. If nothing else is queued, it waits for other work of the user that
 * runs now.
 * Return: true if it was queued.
 */
bool keel_orphan_cancel(struct keel_orphans *orphans, struct keel_orphan *orphan)
{
	bool last;

	scoped_guard(spinlock_irqsave, &orphans->lock) {
		if (list_empty(&orphan->node))
			return false;
		list_del_init(&orphan->node);
		last = list_empty(&orphans->queue);
	}
	if (last)
		keel_orphans_stop(orphans);
	return true;
}
EXPORT_SYMBOL_IF_KUNIT(keel_orphan_cancel);

/**
 * keel_orphan_flush() - wait until work does not run
 * @orphans: the work of the user; the caller keeps the user
 * @orphan: the work, which is not queued and is not queued again
 *
 * Context: may sleep.
 */
void keel_orphan_flush(struct keel_orphans *orphans,
		       const struct keel_orphan *orphan)
{
	bool running;

	scoped_guard(spinlock_irqsave, &orphans->lock)
		running = orphans->running == orphan;
	if (running)
		flush_work(&orphans->work.work);
}
EXPORT_SYMBOL_IF_KUNIT(keel_orphan_flush);
