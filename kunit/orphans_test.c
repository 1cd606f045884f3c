// SPDX-License-Identifier: GPL-2.0
/*
 * Work of a user whose processes cannot do it: its order, its part of the time, and its
 * end.
 */
#include <kunit/test.h>
#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/ktime.h>

#include "keel_orphans.h"

#define LOG	8

/**
 * struct child - work
 * @orphan: the work
 * @mark: its mark in the log
 * @rounds: how often it queues itself again
 * @slow: takes 10 ms
 * @begun: completed when it runs
 * @leave: it waits for this
 * @waits: it waits
 */
struct child {
	struct keel_orphan orphan;
	char mark;
	unsigned int rounds;
	bool slow;
	struct completion begun, leave;
	bool waits;
};

static struct home {
	struct kunit *test;
	struct keel_orphans orphans;
	struct child a, b, c;
	char log[LOG + 1];
	unsigned int nr;
} *home;

static void note(char c)
{
	KUNIT_EXPECT_LT(home->test, home->nr, LOG);
	if (home->nr < LOG)
		home->log[home->nr++] = c;
}

static void child_run(struct keel_orphan *orphan)
{
	struct child *child = container_of(orphan, struct child, orphan);

	note(child->mark);
	if (child->slow)
		mdelay(10);
	complete(&child->begun);
	if (child->waits)
		wait_for_completion(&child->leave);
}

static void child_end(struct keel_orphan *orphan)
{
	struct child *child = container_of(orphan, struct child, orphan);

	if (child->rounds) {
		child->rounds--;
		KUNIT_EXPECT_TRUE(home->test,
				  keel_orphan_queue(&home->orphans, orphan));
	}
}

static void child_init(struct child *child, char mark)
{
	child->mark = mark;
	init_completion(&child->begun);
	init_completion(&child->leave);
	keel_orphan_init(&child->orphan, child_run, child_end);
}

static int home_init(struct kunit *test)
{
	home = kunit_kzalloc(test, sizeof(*home), GFP_KERNEL);
	if (!home)
		return -ENOMEM;
	home->test = test;
	keel_orphans_init(&home->orphans);
	child_init(&home->a, 'a');
	child_init(&home->b, 'b');
	child_init(&home->c, 'c');
	return 0;
}

/* Nothing is left of a test. */
static void home_exit(struct kunit *test)
{
	if (home)
		KUNIT_EXPECT_FALSE(test, delayed_work_pending(&home->orphans.work));
}

static u64 home_rest(u64 *set)
{
	guard(spinlock_irqsave)(&home->orphans.lock);
	if (set)
		home->orphans.rest = *set;
	return home->orphans.rest;
}

static void home_rest_long(void)
{
	u64 rest = ktime_get_ns() + 3600 * NSEC_PER_SEC;

	home_rest(&rest);
}

/* Let the work have time @n times. */
static void home_go(unsigned int n)
{
	u64 rest = 0;

	while (n--) {
		home_rest(&rest);
		flush_delayed_work(&home->orphans.work);
	}
}

static bool home_queue(struct child *child)
{
	return keel_orphan_queue(&home->orphans, &child->orphan);
}

static bool home_cancel(struct child *child)
{
	return keel_orphan_cancel(&home->orphans, &child->orphan);
}

/* ISO-2: one after the other, each once until it is queued again. */
static void iso_2_orphans_turns(struct kunit *test)
{
	home_rest_long();
	KUNIT_EXPECT_TRUE(test, home_queue(&home->b));
	KUNIT_EXPECT_TRUE(test, home_queue(&home->a));
	KUNIT_EXPECT_FALSE(test, home_queue(&home->b));
	KUNIT_EXPECT_TRUE(test, home_queue(&home->c));
	home->b.rounds = 2;
	KUNIT_EXPECT_STREQ(test, "", home->log);
	home_go(1);
	KUNIT_EXPECT_STREQ(test, "b", home->log);
	home_go(6);
	KUNIT_EXPECT_STREQ(test, "bacbb", home->log);
}

/* ISO-2: nine tenths of the time are others'. */
static void iso_2_orphans_rest(struct kunit *test)
{
	u64 start = ktime_get_ns();

	home->a.slow = true;
	KUNIT_EXPECT_TRUE(test, home_queue(&home->a));
	flush_delayed_work(&home->orphans.work);
	KUNIT_EXPECT_STREQ(test, "a", home->log);
	KUNIT_EXPECT_GE(test, home_rest(NULL), start + 95 * NSEC_PER_MSEC);
	home_rest_long();
	KUNIT_EXPECT_TRUE(test, home_queue(&home->b));
	/* As if it had been queued before the rest began. */
	flush_delayed_work(&home->orphans.work);
	KUNIT_EXPECT_STREQ(test, "a", home->log);
	KUNIT_EXPECT_TRUE(test, delayed_work_pending(&home->orphans.work));
	home_go(1);
	KUNIT_EXPECT_STREQ(test, "ab", home->log);
}

/* DEV-3: what is cancelled does not run, and others do. */
static void dev_3_orphans_cancelled(struct kunit *test)
{
	home_rest_long();
	KUNIT_EXPECT_FALSE(test, home_cancel(&home->a));
	home_queue(&home->a);
	home_queue(&home->b);
	KUNIT_EXPECT_TRUE(test, home_cancel(&home->a));
	KUNIT_EXPECT_FALSE(test, home_cancel(&home->a));
	KUNIT_EXPECT_TRUE(test, delayed_work_pending(&home->orphans.work));
	home_go(2);
	KUNIT_EXPECT_STREQ(test, "b", home->log);
	home_rest_long();
	home_queue(&home->c);
	KUNIT_EXPECT_TRUE(test, home_cancel(&home->c));
	/* The user may be freed now. */
	KUNIT_EXPECT_FALSE(test, delayed_work_pending(&home->orphans.work));
	home_go(1);
	KUNIT_EXPECT_STREQ(test, "b", home->log);
	KUNIT_EXPECT_TRUE(test, home_queue(&home->c));
	home_go(1);
	KUNIT_EXPECT_STREQ(test, "bc", home->log);
}

static void leave_work(struct work_struct *work)
{
	/* The test waits by now, or will not wait at all. */
	msleep(50);
	note('<');
	complete(&home->a.leave);
}

/* DEV-3: the flush waits for what runs, and for nothing else. */
static void dev_3_orphans_flushed(struct kunit *test)
{
	struct work_struct leave;

	home->a.waits = true;
	home_queue(&home->a);
	wait_for_completion(&home->a.begun);
	KUNIT_EXPECT_FALSE(test, home_cancel(&home->a));
	/* Neither waits for the other. */
	home_queue(&home->b);
	home_queue(&home->c);
	KUNIT_EXPECT_TRUE(test, home_cancel(&home->b));
	keel_orphan_flush(&home->orphans, &home->b.orphan);
	INIT_WORK_ONSTACK(&leave, leave_work);
	schedule_work(&leave);
	keel_orphan_flush(&home->orphans, &home->a.orphan);
	note('>');
	flush_work(&leave);
	destroy_work_on_stack(&leave);
	home_go(1);
	KUNIT_EXPECT_STREQ(test, "a<>c", home->log);
}

static struct kunit_case orphans_cases[] = {
	KUNIT_CASE(iso_2_orphans_turns),
	KUNIT_CASE(iso_2_orphans_rest),
	KUNIT_CASE(dev_3_orphans_cancelled),
	KUNIT_CASE(dev_3_orphans_flushed),
	{}
};

static struct kunit_suite orphans_suite = {
	.name = "keel_orphans",
	.init = home_init,
	.exit = home_exit,
	.test_cases = orphans_cases,
};
kunit_test_suite(orphans_suite);
