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
#include "threads.h"

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
 * @ends: logs its end
 */
struct child {
	struct keel_orphan orphan;
	char mark;
	unsigned int rounds;
	bool slow;
	struct completion begun, leave;
	bool waits;
	bool ends;
};

static struct home {
	struct kunit *test;
	struct task_struct *task;
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

	if (child->slow)
		/* Not less: the loop of mdelay() may be measured on a busy machine. */
		usleep_range(10000, 20000);
	complete(&child->begun);
	if (child->waits)
		wait_for_completion(&child->leave);
	note(child->mark);
}

static void child_end(struct keel_orphan *orphan)
{
	struct child *child = container_of(orphan, struct child, orphan);

	if (child->ends) {
		/* A flush that does not wait for this ends before it. */
		msleep(20);
		note('.');
	}
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
	home->task = current;
	child_init(&home->a, 'a');
	child_init(&home->b, 'b');
	child_init(&home->c, 'c');
	return 0;
}

/* Nothing is left of a test. */
static void home_exit(struct kunit *test)
{
	if (!home)
		return;
	KUNIT_EXPECT_FALSE(test, keel_orphans_look(&home->orphans));
	KUNIT_EXPECT_TRUE(test, RB_EMPTY_NODE(&home->orphans.turn.node));
}

static void home_rest_long(void)
{
	keel_orphans_set(&home->orphans, ktime_get_ns() + 3600ULL * NSEC_PER_SEC);
}

/* Let all work run. */
static void home_go(void)
{
	do {
		keel_orphans_set(&home->orphans, 0);
	} while (keel_orphans_look(&home->orphans));
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
	/* The work looks, and finds that it is not their turn. */
	home_rest_long();
	KUNIT_EXPECT_STREQ(test, "", home->log);
	home_go();
	KUNIT_EXPECT_STREQ(test, "bacbb", home->log);
}

/* Let work run that takes 10 ms or more. Returns a time before it began. */
static u64 home_slow(void)
{
	u64 start;

	home->a.slow = true;
	keel_orphans_set(&home->orphans, 0);
	start = ktime_get_ns();
	KUNIT_EXPECT_TRUE(home->test, home_queue(&home->a));
	wait_for_completion(&home->a.begun);
	keel_orphan_flush(&home->a.orphan);
	return start;
}

/* ISO-2: nine tenths of the time are others'. */
static void iso_2_orphans_rest(struct kunit *test)
{
	u64 start = home_slow();

	KUNIT_EXPECT_STREQ(test, "a", home->log);
	/* It took 10 ms or more, and began with 10 ms that were saved. */
	KUNIT_EXPECT_GE(test, (u64)home->orphans.turn.expires,
			start + 80 * NSEC_PER_MSEC);
}

static u64 user_rests(u64 rest, u64 start, u64 end)
{
	return keel_orphans_rest(rest, start, end, KEEL_ORPHANS_PARTS);
}

/* ISO-2: short work runs without a pause, until all of it has taken its part. */
static void iso_2_orphans_saved(struct kunit *test)
{
	const u64 ms = NSEC_PER_MSEC, us = NSEC_PER_USEC, now = 1000 * ms;

	/* A user who had no work for long has saved 10 ms, and no more. */
	KUNIT_EXPECT_EQ(test, 990 * ms + 100 * us, user_rests(0, now, now));
	KUNIT_EXPECT_EQ(test, 1000 * ms + 100 * us, user_rests(0, now, now + ms));
	KUNIT_EXPECT_EQ(test, 996 * ms + 100 * us,
			user_rests(995 * ms, now, now + ms / 10));
	KUNIT_EXPECT_EQ(test, 1190 * ms + 100 * us,
			user_rests(0, now, now + 20 * ms));
	/* Soon after the boot. */
	KUNIT_EXPECT_EQ(test, 10 * ms + 100 * us, user_rests(0, ms, 2 * ms));
	KUNIT_EXPECT_EQ(test, 21 * ms + 100 * us,
			user_rests(ms, 11 * ms, 13 * ms));
}

/* ISO-2: the user with the earliest turn comes first, and no other user waits for it. */
static void iso_2_orphans_users(struct kunit *test)
{
	struct keel_orphans others;
	u64 now = ktime_get_ns();

	keel_orphans_init(&others);
	keel_orphans_set(&others, now + 3600ULL * NSEC_PER_SEC);
	home_rest_long();
	KUNIT_EXPECT_TRUE(test, keel_orphan_queue(&others, &home->b.orphan));
	KUNIT_EXPECT_TRUE(test, home_queue(&home->a));
	home_go();
	KUNIT_EXPECT_STREQ(test, "a", home->log);
	KUNIT_EXPECT_TRUE(test, keel_orphans_look(&others));
	home_rest_long();
	KUNIT_EXPECT_TRUE(test, home_queue(&home->c));
	keel_orphans_set(&others, 0);
	KUNIT_EXPECT_STREQ(test, "ab", home->log);
	KUNIT_EXPECT_FALSE(test, keel_orphans_look(&others));
	home_go();
	KUNIT_EXPECT_STREQ(test, "abc", home->log);
}

/*
 * ISO-2: three quarters of the time are left, however many users there are. Work of a user
 * who has no debt waits for that time, too.
 */
static void iso_2_orphans_all(struct kunit *test)
{
	struct keel_orphans others;
	u64 start = home_slow();

	keel_orphans_init(&others);
	KUNIT_EXPECT_TRUE(test, keel_orphan_queue(&others, &home->b.orphan));
	wait_for_completion(&home->b.begun);
	/* It took 10 ms or more, and began with 10 ms that were saved. */
	KUNIT_EXPECT_GE(test, ktime_get_ns(), start + 30 * NSEC_PER_MSEC);
	keel_orphan_flush(&home->b.orphan);
	KUNIT_EXPECT_STREQ(test, "ab", home->log);
	KUNIT_EXPECT_FALSE(test, keel_orphans_look(&others));
}

/* ISO-2: users who come later do not come first, although they have saved more time. */
static void iso_2_orphans_fifo(struct kunit *test)
{
	struct keel_orphans early, late;

	keel_orphans_init(&early);
	keel_orphans_init(&late);
	keel_orphans_set(&early, ktime_get_ns() - NSEC_PER_MSEC * 100);
	home->a.waits = true;
	home_queue(&home->a);
	wait_for_completion(&home->a.begun);
	KUNIT_EXPECT_TRUE(test, keel_orphan_queue(&early, &home->b.orphan));
	msleep(20);
	KUNIT_EXPECT_TRUE(test, keel_orphan_queue(&late, &home->c.orphan));
	complete(&home->a.leave);
	wait_for_completion(&home->b.begun);
	wait_for_completion(&home->c.begun);
	keel_orphan_flush(&home->c.orphan);
	KUNIT_EXPECT_STREQ(test, "abc", home->log);
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
	KUNIT_EXPECT_FALSE(test, RB_EMPTY_NODE(&home->orphans.turn.node));
	home_go();
	KUNIT_EXPECT_STREQ(test, "b", home->log);
	home_rest_long();
	home_queue(&home->c);
	KUNIT_EXPECT_TRUE(test, home_cancel(&home->c));
	/* The user may be freed now. */
	KUNIT_EXPECT_TRUE(test, RB_EMPTY_NODE(&home->orphans.turn.node));
	home_go();
	KUNIT_EXPECT_STREQ(test, "b", home->log);
	KUNIT_EXPECT_TRUE(test, home_queue(&home->c));
	home_go();
	KUNIT_EXPECT_STREQ(test, "bc", home->log);
}

static void leave_work(struct work_struct *work)
{
	KUNIT_EXPECT_TRUE(home->test, threads_idles(home->task));
	note('<');
	complete(&home->a.leave);
}

/* DEV-3, ISO-1: the flush waits for the end of what runs, and for nothing that is queued. */
static void dev_3_orphans_flushed(struct kunit *test)
{
	struct work_struct leave;

	home->a.waits = true;
	home->a.ends = true;
	home_queue(&home->a);
	wait_for_completion(&home->a.begun);
	KUNIT_EXPECT_FALSE(test, home_cancel(&home->a));
	/* It waits for ever if the flush of another one waits for it. */
	home->b.waits = true;
	home_queue(&home->b);
	home_queue(&home->c);
	KUNIT_EXPECT_TRUE(test, home_cancel(&home->c));
	keel_orphan_flush(&home->c.orphan);
	INIT_WORK_ONSTACK(&leave, leave_work);
	schedule_work(&leave);
	keel_orphan_flush(&home->a.orphan);
	note('>');
	flush_work(&leave);
	destroy_work_on_stack(&leave);
	complete(&home->b.leave);
	home_go();
	KUNIT_EXPECT_STREQ(test, "<a.>b", home->log);
}

static struct kunit_case orphans_cases[] = {
	KUNIT_CASE(iso_2_orphans_turns),
	KUNIT_CASE(iso_2_orphans_rest),
	KUNIT_CASE(iso_2_orphans_saved),
	KUNIT_CASE(iso_2_orphans_users),
	KUNIT_CASE(iso_2_orphans_all),
	KUNIT_CASE(iso_2_orphans_fifo),
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
