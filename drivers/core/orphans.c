// SPDX-License-Identifier: GPL-2.0
/*
 * Work for objects whose processes cannot do it: see keel_orphans.h.
 *
 * Lifetime: what is queued keeps its user, and so does what runs until its &end is called.
 * A user whose queue is empty is in no list.
 */
#include <linux/atomic.h>
#include <linux/errno.h>
#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/spinlock.h>
#include <linux/wait_bit.h>
#include <linux/workqueue.h>
#include <kunit/visibility.h>

#include "compat.h"
#include "keel_orphans.h"
#include "keel_wait.h"

static void keel_orphans_work(struct work_struct *work);

/*
 * @lock is taken in any context, inside all other locks. @users is sorted by their next
 * turn. One work runs for one user at a time, so that many users do not get many
 * processors: @running, only compared. Nothing runs before @rest, as ktime_get_ns(): they
 * do not get all of one processor either, because one person can be many users. If that is
 * not enough for all, the clock of their turns stops meanwhile: it was @clock at @seen.
 * Until @until, @cost is what the longest step has cost its user. @turns counts turns.
 */
static struct {
	spinlock_t lock;
	struct timerqueue_head users __guarded_by(&lock);
	u64 rest __guarded_by(&lock);
	u64 clock __guarded_by(&lock);
	u64 seen __guarded_by(&lock);
	u64 cost __guarded_by(&lock);
	u64 until __guarded_by(&lock);
	u64 turns __guarded_by(&lock);
	const struct keel_orphan *running;
	struct workqueue_struct *wq;
	struct delayed_work work;
} keel_orphans = {
	.lock = __SPIN_LOCK_UNLOCKED(keel_orphans.lock),
	.users = { .rb_root = RB_ROOT_CACHED },
	.work = __DELAYED_WORK_INITIALIZER(keel_orphans.work, keel_orphans_work, 0),
};

/**
 * keel_orphans_load() - allocate what all users need
 *
 * Return: 0, or -ENOMEM.
 */
int keel_orphans_load(void)
{
	keel_orphans.wq = alloc_ordered_workqueue("keel_orphans", 0);
	return keel_orphans.wq ? 0 : -ENOMEM;
}

/**
 * keel_orphans_unload() - undo keel_orphans_load(), when no device is left
 */
void keel_orphans_unload(void)
{
	/* It may still be pending, although all of its work was cancelled. */
	cancel_delayed_work_sync(&keel_orphans.work);
	destroy_workqueue(keel_orphans.wq);
}

/* The time, by the clock of the turns. */
static u64 keel_orphans_now(void)
	__must_hold(&keel_orphans.lock)
{
	const struct timerqueue_node *next = timerqueue_getnext(&keel_orphans.users);
	u64 now = ktime_get_ns(), passed = now - keel_orphans.seen;
	u64 turn = next ? next->expires : keel_orphans.clock + passed;
	u64 later = KEEL_ORPHANS_LATER;

	if (now < keel_orphans.until)
		later = max(later, keel_orphans.cost);
	keel_orphans.clock = keel_orphans_clock(keel_orphans.clock, passed, turn,
						later + KEEL_ORPHANS_SAVED);
	keel_orphans.seen = now;
	return keel_orphans.clock;
}

/* Run the work at the next turn of a user. */
static void keel_orphans_arm(void)
	__must_hold(&keel_orphans.lock)
{
	struct timerqueue_node *next = timerqueue_getnext(&keel_orphans.users);
	u64 now;
	s64 ns;

	if (!next)
		return;
	now = keel_orphans_now();
	ns = max_t(s64, next->expires - now, keel_orphans.rest - keel_orphans.seen);
	mod_delayed_work(keel_orphans.wq, &keel_orphans.work,
			 ns > 0 ? nsecs_to_jiffies(ns) + 1 : 0);
}

/* Its queue or its time has changed. */
static void keel_orphans_sort(struct keel_orphans *orphans, u64 rest)
	__must_hold(&keel_orphans.lock)
{
	if (!RB_EMPTY_NODE(&orphans->turn.node))
		timerqueue_del(&keel_orphans.users, &orphans->turn);
	orphans->turn.expires = rest;
	if (!list_empty(&orphans->queue))
		timerqueue_add(&keel_orphans.users, &orphans->turn);
}

/* Returns the user whose turn it is, or NULL; sets what runs for it. */
static struct keel_orphans *keel_orphans_begin(struct keel_orphan **orphan)
{
	struct timerqueue_node *next;
	struct keel_orphans *orphans;
	u64 now;

	guard(spinlock_irqsave)(&keel_orphans.lock);
	now = keel_orphans_now();
	next = timerqueue_getnext(&keel_orphans.users);
	if (!next || (u64)next->expires > now || keel_orphans.rest > keel_orphans.seen) {
		keel_orphans_arm();
		return NULL;
	}
	orphans = container_of(next, struct keel_orphans, turn);
	*orphan = list_first_entry(&orphans->queue, struct keel_orphan, node);
	list_del_init(&(*orphan)->node);
	keel_orphans_sort(orphans, next->expires);
	WRITE_ONCE(keel_orphans.running, *orphan);
	orphans->last = ++keel_orphans.turns;
	return orphans;
}

static void keel_orphans_end(struct keel_orphans *orphans, u64 start)
{
	u64 now = ktime_get_ns(), took = keel_orphans_took(start, now);
	u64 cost = KEEL_ORPHANS_PARTS * took;

	guard(spinlock_irqsave)(&keel_orphans.lock);
	if (cost >= keel_orphans.cost || now >= keel_orphans.until) {
		keel_orphans.cost = min(cost, KEEL_ORPHANS_LATER_MAX);
		keel_orphans.until = now + NSEC_PER_SEC + keel_orphans.cost;
	}
	keel_orphans_sort(orphans, orphans->turn.expires + cost);
	keel_orphans.rest = max(keel_orphans.rest, keel_orphans_least(start)) +
			    KEEL_ORPHANS_PARTS_ALL * took;
	keel_orphans_arm();
}

static void keel_orphans_work(struct work_struct *work)
{
	u64 start = ktime_get_ns();
	struct keel_orphan *orphan;
	struct keel_orphans *orphans = keel_orphans_begin(&orphan);

	if (!orphans)
		return;
	orphan->run(orphan);
	keel_orphans_end(orphans, start);
	/* From here on the user may be freed. */
	orphan->end(orphan);
	/* Pairs with keel_orphan_flush(). */
	smp_store_release(&keel_orphans.running, NULL);
	/* Either the waiter sees NULL, or wake_up_var() sees the waiter. */
	smp_mb();
	wake_up_var(&keel_orphans.running);
}

/**
 * keel_orphans_init() - initialize a user without work
 * @orphans: the work of the user
 */
void keel_orphans_init(struct keel_orphans *orphans)
{
	INIT_LIST_HEAD(&orphans->queue);
	timerqueue_init(&orphans->turn);
	orphans->turn.expires = 0;
	orphans->last = 0;
}
EXPORT_SYMBOL_IF_KUNIT(keel_orphans_init);

/**
 * keel_orphans_owe() - has a user less time than a new one?
 * @orphans: the work of the user
 *
 * Context: any.
 * Return: true if so: the last work was not long ago, although none may be queued.
 */
bool keel_orphans_owe(const struct keel_orphans *orphans)
{
	guard(spinlock_irqsave)(&keel_orphans.lock);
	return (u64)orphans->turn.expires + KEEL_ORPHANS_SAVED > keel_orphans_now();
}

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

/* Does it have its turn now? Then it has waited as the others, even if its queue is empty. */
static bool keel_orphans_go_on(const struct keel_orphans *orphans)
	__must_hold(&keel_orphans.lock)
{
	return READ_ONCE(keel_orphans.running) && orphans->last == keel_orphans.turns;
}

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
	u64 rest;

	guard(spinlock_irqsave)(&keel_orphans.lock);
	if (!list_empty(&orphan->node))
		return false;
	rest = orphans->turn.expires;
	/*
	 * A user who has saved time waits behind others who have waited for longer: see
	 * keel_orphans_clock().
	 */
	if (list_empty(&orphans->queue) && !keel_orphans_go_on(orphans))
		rest = max(rest, keel_orphans_least(keel_orphans_now()));
	list_add_tail(&orphan->node, &orphans->queue);
	keel_orphans_sort(orphans, rest);
	keel_orphans_arm();
	return true;
}
EXPORT_SYMBOL_IF_KUNIT(keel_orphan_queue);

/**
 * keel_orphan_cancel() - dequeue work
 * @orphans: the work of the user; the caller keeps the user
 * @orphan: the work
 *
 * Context: any.
 * Return: true if it was queued.
 */
bool keel_orphan_cancel(struct keel_orphans *orphans, struct keel_orphan *orphan)
{
	guard(spinlock_irqsave)(&keel_orphans.lock);
	if (list_empty(&orphan->node))
		return false;
	list_del_init(&orphan->node);
	keel_orphans_sort(orphans, orphans->turn.expires);
	return true;
}
EXPORT_SYMBOL_IF_KUNIT(keel_orphan_cancel);

/**
 * keel_orphan_flush() - wait until work has ended
 * @orphan: the work, which is not queued and is not queued again
 *
 * Waits for no other work.
 *
 * Context: may sleep.
 */
void keel_orphan_flush(const struct keel_orphan *orphan)
{
	keel_wait_var(&keel_orphans.running,
		      READ_ONCE(keel_orphans.running) != orphan);
	/* Order the accesses of the work before those of the caller. */
	smp_acquire__after_ctrl_dep();
}
EXPORT_SYMBOL_IF_KUNIT(keel_orphan_flush);

#if IS_ENABLED(CONFIG_KUNIT)
/*
 * Let the next turn of a user come in some time, or in the past; let work run at once if it
 * is its turn, and wait until the work has looked at it.
 */
void keel_orphans_set(struct keel_orphans *orphans, s64 ns)
{
	u64 now;

	scoped_guard(spinlock_irqsave, &keel_orphans.lock) {
		now = keel_orphans_now();
		keel_orphans_sort(orphans, ns < 0 && now < -ns ? 0 : now + ns);
		keel_orphans.rest = 0;
		keel_orphans.until = 0;
		keel_orphans_arm();
	}
	flush_delayed_work(&keel_orphans.work);
}
EXPORT_SYMBOL_IF_KUNIT(keel_orphans_set);

/* Returns when the next turn of a user comes if no other user delays it: ktime_get_ns(). */
u64 keel_orphans_turn(const struct keel_orphans *orphans)
{
	guard(spinlock_irqsave)(&keel_orphans.lock);
	return orphans->turn.expires - keel_orphans_now() + keel_orphans.seen;
}
EXPORT_SYMBOL_IF_KUNIT(keel_orphans_turn);

/* Returns true if work of the user is queued, or any work runs. */
bool keel_orphans_look(const struct keel_orphans *orphans)
{
	guard(spinlock_irqsave)(&keel_orphans.lock);
	return !list_empty(&orphans->queue) || READ_ONCE(keel_orphans.running);
}
EXPORT_SYMBOL_IF_KUNIT(keel_orphans_look);
#endif
