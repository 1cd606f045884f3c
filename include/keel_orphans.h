/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Work for objects of a user whose processes cannot do it, above all because they are
 * dead. Nobody can be charged for it. So all of it together, of a user of a device, gets at
 * most a fixed part of the time of one processor, in turn. All users share one thread, and
 * together they get a larger part. If they need more, they get equal parts of the time, not
 * as many turns: the turns of one may take much longer than those of others.
 *
 * A core unit: it depends on no object and no user.
 */
#ifndef KEEL_ORPHANS_H
#define KEEL_ORPHANS_H

#include <linux/kconfig.h>
#include <linux/list.h>
#include <linux/time64.h>
#include <linux/timerqueue.h>
#include <linux/types.h>

/* A user gets one part of so many; all users together get one of so many. */
#define KEEL_ORPHANS_PARTS	10
#define KEEL_ORPHANS_PARTS_ALL	4
/* Of the time that a user did not need, so much is left: nanoseconds. */
#define KEEL_ORPHANS_SAVED	10000000
/*
 * So much later a user with such time may come than one that waits: nanoseconds. If steps
 * take long, it is what the longest one of the last second or so costs, up to a limit: many
 * users who each have one such step do not delay the many short ones of another user more
 * than once. But after one long step, users who come wait for more of the short ones.
 */
#define KEEL_ORPHANS_LATER	30000000
#define KEEL_ORPHANS_LATER_MAX	300000000
/* A step takes no longer, unless the machine did something else: nanoseconds. */
#define KEEL_ORPHANS_LONGEST	NSEC_PER_SEC
/* Each step takes some time that is not measured: nanoseconds. */
#define KEEL_ORPHANS_STEP	10000

/**
 * struct keel_orphan - the work of an object
 * @node: in &keel_orphans.queue
 * @run: does a part of it, while all others wait; called in process context, may be
 *	preempted, but waits for nothing
 * @end: called after @run, when the time of the user has been measured. May queue the
 *	rest, and may drop the last reference on the user. The object is not freed before it
 *	returns: its destroy waits, see keel_orphan_flush().
 */
struct keel_orphan {
	struct list_head node;
	void (*run)(struct keel_orphan *orphan);
	void (*end)(struct keel_orphan *orphan);
};

/**
 * struct keel_orphans - the work of a user; a lock of orphans.c protects it
 * @queue: struct keel_orphan, the oldest first. Each keeps the user until its
 *	&keel_orphan.end is called, or it is cancelled.
 * @turn: listed while @queue is not empty. Nothing runs before its time, in nanoseconds by
 *	a clock of orphans.c.
 * @last: the number of its last turn
 */
struct keel_orphans {
	struct list_head queue;
	struct timerqueue_node turn;
	u64 last;
};

int keel_orphans_load(void);
void keel_orphans_unload(void);
void keel_orphans_init(struct keel_orphans *orphans);
bool keel_orphans_owe(const struct keel_orphans *orphans);
void keel_orphan_init(struct keel_orphan *orphan,
		      void (*run)(struct keel_orphan *orphan),
		      void (*end)(struct keel_orphan *orphan));
bool keel_orphan_queue(struct keel_orphans *orphans, struct keel_orphan *orphan);
bool keel_orphan_cancel(struct keel_orphans *orphans, struct keel_orphan *orphan);
void keel_orphan_flush(const struct keel_orphan *orphan);
#if IS_ENABLED(CONFIG_KUNIT)
#define KEEL_ORPHANS_HOUR	(3600LL * NSEC_PER_SEC)

void keel_orphans_set(struct keel_orphans *orphans, s64 ns);
u64 keel_orphans_turn(const struct keel_orphans *orphans);
bool keel_orphans_look(const struct keel_orphans *orphans);
#endif

/**
 * keel_orphans_least() - when might a user have had time who has saved as much as possible?
 * @now: now, in nanoseconds by any clock
 *
 * Return: by that clock.
 */
static inline u64 keel_orphans_least(u64 now)
{
	return now > KEEL_ORPHANS_SAVED ? now - KEEL_ORPHANS_SAVED : 0;
}

/**
 * keel_orphans_took() - how long did a step take?
 * @start: its begin, in nanoseconds by any clock
 * @end: its end
 *
 * Return: nanoseconds that the user pays for.
 */
static inline u64 keel_orphans_took(u64 start, u64 end)
{
	return min(end - start, KEEL_ORPHANS_LONGEST) + KEEL_ORPHANS_STEP;
}

/**
 * keel_orphans_clock() - what is the time by the clock of the turns?
 * @clock: what it was before
 * @passed: nanoseconds since then
 * @turn: the turn of the user who is next
 * @ahead: nanoseconds that the clock may be ahead of that
 *
 * The clock stops where users have to wait. So what each has had is not forgotten. A user
 * who comes meanwhile, and has saved time, comes later than the one that is next, not at the
 * same time: else users who come later, and have had nothing, would delay for ever those
 * who wait and have had something. The clock never goes back, so the turn of a user who
 * has saved time has always come.
 *
 * Return: nanoseconds.
 */
static inline u64 keel_orphans_clock(u64 clock, u64 passed, u64 turn, u64 ahead)
{
	return max(clock, min(clock + passed, turn + ahead));
}

#endif /* KEEL_ORPHANS_H */
