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

#define LOG	64
#define SLOW_USERS	3
#define SLOW_ROUNDS	3
#define SLOW_MS		40
#define QUICK_ROUNDS	30
#define NEW_USERS	25
#define NEW_ROUNDS	10

/**
 * struct child - work
 * @orphan: the work
 * @orphans: its user
 * @mark: its mark in the log
 * @rounds: how often it queues itself again
 * @ms: milliseconds that it takes, or somewhat more
 * @begun: completed when it runs
 * @leave: it waits for this
 * @waits: it waits
 * @ends: logs its end
 * @next: queued as soon as this runs; or NULL
 * @late: another user, or NULL
 * @late_turn: in how many nanoseconds the turn of that user comes, when it runs
 */
struct child {
	struct keel_orphan orphan;
	struct keel_orphans *orphans;
	char mark;
	unsigned int rounds;
	unsigned int ms;
	struct completion begun, leave;
	bool waits;
	bool ends;
	struct child *next;
	const struct keel_orphans *late;
	s64 late_turn;
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

	if (child->next)
		KUNIT_EXPECT_TRUE(home->test,
				  keel_orphan_queue(child->next->orphans, &child->next->orphan));
	if (child->ms)
		/* Not less: the loop of mdelay() may be measured on a busy machine. */
		usleep_range(child->ms * 1000, child->ms * 1000 + 10000);
	if (child->late)
		child->late_turn = keel_orphans_turn(child->late) - ktime_get_ns();
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
				  keel_orphan_queue(child->orphans, orphan));
	}
}

static void child_init(struct child *child, struct keel_orphans *orphans, char mark)
{
	child->orphans = orphans;
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
	child_init(&home->a, &home->orphans, 'a');
	child_init(&home->b, &home->orphans, 'b');
	child_init(&home->c, &home->orphans, 'c');
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
	keel_orphans_set(&home->orphans, KEEL_ORPHANS_HOUR);
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

	home->a.ms = 10;
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
	KUNIT_EXPECT_GE(test, keel_orphans_turn(&home->orphans),
			start + 80 * NSEC_PER_MSEC);
}

/* ISO-2: short work runs without a pause, until all of it has taken its part. */
static void iso_2_orphans_saved(struct kunit *test)
{
	const u64 ms = NSEC_PER_MSEC, us = NSEC_PER_USEC, now = 1000 * ms;

	/* A user who had no work for long has saved 10 ms, and no more. */
	KUNIT_EXPECT_EQ(test, 990 * ms, keel_orphans_least(now));
	/* Soon after the boot. */
	KUNIT_EXPECT_EQ(test, 0, keel_orphans_least(9 * ms));
	/* A step costs more than it takes. */
	KUNIT_EXPECT_EQ(test, 10 * us, keel_orphans_took(now, now));
	KUNIT_EXPECT_EQ(test, 20 * ms + 10 * us, keel_orphans_took(now, now + 20 * ms));
	KUNIT_EXPECT_EQ(test, 1000 * ms + 10 * us, keel_orphans_took(now, now + 1001 * ms));
	/* The turn of the next user has not come, comes now, has come. */
	KUNIT_EXPECT_EQ(test, now, keel_orphans_clock(now - 5, 5, 2000 * ms, 40 * ms));
	KUNIT_EXPECT_EQ(test, now, keel_orphans_clock(now - 5, 5, now, 40 * ms));
	KUNIT_EXPECT_EQ(test, now, keel_orphans_clock(now - 5, 5, 960 * ms, 40 * ms));
	/* It has come so long ago that the clock stops, or has stopped already. */
	KUNIT_EXPECT_EQ(test, now - 1, keel_orphans_clock(now - 5, 5, 960 * ms - 1, 40 * ms));
	KUNIT_EXPECT_EQ(test, now - 5, keel_orphans_clock(now - 5, 5, 500 * ms, 40 * ms));
	KUNIT_EXPECT_EQ(test, now - 5, keel_orphans_clock(now - 5, 5, 500 * ms, 0));
}

/* ISO-2: the user with the earliest turn comes first, and no other user waits for it. */
static void iso_2_orphans_users(struct kunit *test)
{
	struct keel_orphans others;

	keel_orphans_init(&others);
	keel_orphans_set(&others, KEEL_ORPHANS_HOUR);
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
	keel_orphans_set(&early, -100 * NSEC_PER_MSEC);
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

/* How many others have begun in the log before the last one of @mark. */
static unsigned int home_before(char mark)
{
	unsigned int i, n = 0, last = 0;

	for (i = 0; i < home->nr; i++) {
		if (home->log[i] == mark)
			last = n;
		else
			n++;
	}
	return last;
}

/*
 * ISO-2: users get equal parts of the time, not of the turns: one with many short turns does
 * not wait in each for a long one of every other user.
 */
static void iso_2_orphans_even(struct kunit *test)
{
	struct keel_orphans orphans[SLOW_USERS + 1];
	struct child child[SLOW_USERS + 1] = {};
	int i;

	home->a.waits = true;
	home_queue(&home->a);
	wait_for_completion(&home->a.begun);
	for (i = 0; i <= SLOW_USERS; i++) {
		keel_orphans_init(&orphans[i]);
		child_init(&child[i], &orphans[i], i < SLOW_USERS ? 's' : 'q');
		child[i].ms = i < SLOW_USERS ? SLOW_MS : 0;
		child[i].rounds = i < SLOW_USERS ? SLOW_ROUNDS : QUICK_ROUNDS;
		KUNIT_EXPECT_TRUE(test, keel_orphan_queue(&orphans[i], &child[i].orphan));
	}
	complete(&home->a.leave);
	for (i = 0; i <= SLOW_USERS; i++)
		while (keel_orphans_look(&orphans[i]))
			msleep(20);
	KUNIT_EXPECT_EQ(test, 1 + SLOW_USERS * (SLOW_ROUNDS + 1) + QUICK_ROUNDS + 1, home->nr);
	/* It has less time than one turn of the others takes. So each has one, perhaps two. */
	KUNIT_EXPECT_LE(test, home_before('q'), 1 + 2 * SLOW_USERS);
}

/*
 * Two steps of a user who waits, of one object or of two, and one of a user who came later.
 * Returns true if the two come first.
 */
static bool goes_on(struct kunit *test, bool two)
{
	struct keel_orphans early, late;
	struct child other = {};

	keel_orphans_init(&early);
	keel_orphans_init(&late);
	child_init(&home->a, &home->orphans, 'a');
	child_init(&home->b, &early, 'b');
	child_init(&home->c, &late, 'c');
	child_init(&other, &early, 'b');
	home->b.rounds = !two;
	home->b.next = two ? &other : NULL;
	home->a.waits = true;
	home->nr = 0;
	memset(home->log, 0, sizeof(home->log));
	home_queue(&home->a);
	wait_for_completion(&home->a.begun);
	KUNIT_EXPECT_TRUE(test, keel_orphan_queue(&early, &home->b.orphan));
	msleep(40);
	KUNIT_EXPECT_TRUE(test, keel_orphan_queue(&late, &home->c.orphan));
	msleep(40);
	complete(&home->a.leave);
	while (keel_orphans_look(&early) || keel_orphans_look(&late))
		msleep(20);
	return !strcmp(home->log, "abbc");
}

/* Several tries: a step of 3 ms, on a busy machine, costs as much as the other came later. */
static void check_goes_on(struct kunit *test, bool two)
{
	int tries = 5;

	while (!goes_on(test, two) && --tries)
		;
	KUNIT_EXPECT_STREQ(test, "abbc", home->log);
}

/* ISO-2: a user who goes on keeps its turn, although no other work of it is queued. */
static void iso_2_orphans_goes_on(struct kunit *test)
{
	check_goes_on(test, false);
}

/* ISO-2: so does one that gets other work during a step. */
static void iso_2_orphans_gets_more(struct kunit *test)
{
	check_goes_on(test, true);
}

/*
 * ISO-2: a user who waits is not delayed by each of many users who come one after the
 * other, when the one before has just begun.
 */
static void iso_2_orphans_chain(struct kunit *test)
{
	struct keel_orphans *orphans;
	struct child *child;
	int i;

	orphans = kunit_kcalloc(test, NEW_USERS + 1, sizeof(*orphans), GFP_KERNEL);
	child = kunit_kcalloc(test, NEW_USERS + 1, sizeof(*child), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, orphans);
	KUNIT_ASSERT_NOT_NULL(test, child);
	for (i = 0; i <= NEW_USERS; i++) {
		keel_orphans_init(&orphans[i]);
		child_init(&child[i], &orphans[i], i < NEW_USERS ? 's' : 'q');
		child[i].ms = i < NEW_USERS ? 10 : 0;
		child[i].next = i < NEW_USERS - 1 ? &child[i + 1] : NULL;
	}
	child[NEW_USERS].rounds = NEW_ROUNDS;
	home->a.waits = true;
	home_queue(&home->a);
	wait_for_completion(&home->a.begun);
	keel_orphan_queue(&orphans[0], &child[0].orphan);
	keel_orphan_queue(&orphans[NEW_USERS], &child[NEW_USERS].orphan);
	complete(&home->a.leave);
	for (i = 0; i <= NEW_USERS; i++)
		while (keel_orphans_look(&orphans[i]))
			msleep(20);
	KUNIT_EXPECT_EQ(test, 1 + NEW_USERS + NEW_ROUNDS + 1, home->nr);
	KUNIT_EXPECT_LE(test, home_before('q'), NEW_USERS / 2);
}

/* How much later than a user who has waited for @ms does a new one come? In nanoseconds. */
static s64 comes_later(struct kunit *test, unsigned int ms)
{
	struct keel_orphans gate, early, late;
	s64 later;

	keel_orphans_init(&gate);
	keel_orphans_init(&early);
	keel_orphans_init(&late);
	child_init(&home->a, &gate, 'a');
	child_init(&home->b, &early, 'b');
	child_init(&home->c, &late, 'c');
	home->a.waits = true;
	keel_orphan_queue(&gate, &home->a.orphan);
	wait_for_completion(&home->a.begun);
	KUNIT_EXPECT_TRUE(test, keel_orphan_queue(&early, &home->b.orphan));
	msleep(ms);
	KUNIT_EXPECT_TRUE(test, keel_orphan_queue(&late, &home->c.orphan));
	later = late.turn.expires - early.turn.expires;
	complete(&home->a.leave);
	while (keel_orphans_look(&early) || keel_orphans_look(&late))
		msleep(20);
	return later;
}

/*
 * ISO-2: a new user comes as much later as it costs to wait for a step like the longest one
 * of the last second, or 30 ms.
 */
static void iso_2_orphans_later(struct kunit *test)
{
	u64 start, end;

	/* It took 10 ms or more. */
	home_slow();
	KUNIT_EXPECT_GE(test, comes_later(test, 150), 100 * NSEC_PER_MSEC);
	keel_orphans_set(&home->orphans, 0);
	KUNIT_EXPECT_EQ(test, comes_later(test, 60), KEEL_ORPHANS_LATER);
	/* Now the longest step is that of 60 ms. It is forgotten after some time. */
	start = ktime_get_ns();
	KUNIT_EXPECT_GE(test, comes_later(test, 90), 90 * NSEC_PER_MSEC);
	end = ktime_get_ns();
	end += NSEC_PER_SEC + min(KEEL_ORPHANS_PARTS * (end - start), KEEL_ORPHANS_LATER_MAX);
	while (ktime_get_ns() < end)
		msleep(20);
	KUNIT_EXPECT_EQ(test, comes_later(test, 60), KEEL_ORPHANS_LATER);
}

/* ISO-2: a step that took very long, because the machine was stopped, is not paid for ever. */
static void iso_2_orphans_longest(struct kunit *test)
{
	keel_orphans_set(&home->orphans, 0);
	home->a.waits = true;
	home_queue(&home->a);
	wait_for_completion(&home->a.begun);
	msleep(1500);
	complete(&home->a.leave);
	keel_orphan_flush(&home->a.orphan);
	KUNIT_EXPECT_LT(test, keel_orphans_turn(&home->orphans),
			ktime_get_ns() + KEEL_ORPHANS_PARTS * KEEL_ORPHANS_LONGEST);
	keel_orphans_set(&home->orphans, 0);
	/* Steps of 150 ms, and then of 400 ms. */
	comes_later(test, 150);
	KUNIT_EXPECT_LE(test, comes_later(test, 400), KEEL_ORPHANS_LATER_MAX);
}

/* ISO-2: time in which others waited does not delay users who come later. */
static void iso_2_orphans_lost(struct kunit *test)
{
	struct keel_orphans early, late;

	keel_orphans_init(&early);
	keel_orphans_init(&late);
	home->a.waits = true;
	home_queue(&home->a);
	wait_for_completion(&home->a.begun);
	KUNIT_EXPECT_TRUE(test, keel_orphan_queue(&early, &home->b.orphan));
	msleep(60);
	KUNIT_EXPECT_TRUE(test, keel_orphan_queue(&late, &home->c.orphan));
	home->b.late = &late;
	complete(&home->a.leave);
	wait_for_completion(&home->b.begun);
	wait_for_completion(&home->c.begun);
	keel_orphan_flush(&home->c.orphan);
	KUNIT_EXPECT_STREQ(test, "abc", home->log);
	KUNIT_EXPECT_LE(test, home->b.late_turn, 0);
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
	KUNIT_CASE_SLOW(iso_2_orphans_even),
	KUNIT_CASE(iso_2_orphans_goes_on),
	KUNIT_CASE(iso_2_orphans_gets_more),
	KUNIT_CASE_SLOW(iso_2_orphans_chain),
	KUNIT_CASE_SLOW(iso_2_orphans_later),
	KUNIT_CASE_SLOW(iso_2_orphans_longest),
	KUNIT_CASE(iso_2_orphans_lost),
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
