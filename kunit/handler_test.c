// SPDX-License-Identifier: GPL-2.0
/*
 * For how long the threads of connections may be urgent.
 */
#include <kunit/test.h>
#include <linux/ktime.h>

#include "keel_conn.h"

#define PERIOD		KEEL_URGENT_PERIOD
#define MS		NSEC_PER_MSEC
/* The share of a thread in the tests of keel_urgent_note(), ns. */
#define MOST		(5 * MS)
/* The clock did not begin with the thread. */
#define BEGIN		(1000 * PERIOD)

/**
 * struct most_case - threads, and the time that each of them has
 * @desc: its name
 * @threads: number of threads
 * @cpus: number of processors
 * @percent: of the processors' time that the threads may have
 * @most: ns of a period that a thread has
 */
struct most_case {
	const char *desc;
	u32 threads;
	u32 cpus;
	u32 percent;
	u64 most;
};

static const struct most_case most_cases[] = {
	{ "no percent", 1, 4, 0, 0 },
	{ "no percent, many threads", 100, 4, 0, 0 },
	{ "one percent", 1, 4, 1, PERIOD / 100 },
	{ "half, no thread", 0, 4, 50, PERIOD / 2 },
	{ "half, a thread", 1, 4, 50, PERIOD / 2 },
	{ "half, a thread for each processor", 4, 4, 50, PERIOD / 2 },
	{ "half, a thread more", 5, 4, 50, PERIOD / 4 },
	{ "half, two threads for each processor", 8, 4, 50, PERIOD / 4 },
	{ "half, many threads", 100, 4, 50, PERIOD / 50 },
	{ "half, many threads, one processor", 100, 1, 50, PERIOD / 200 },
	{ "half, many processors", 100, 256, 50, PERIOD / 2 },
	{ "all, a thread", 1, 4, 100, PERIOD },
	{ "all, many threads", 100, 4, 100, PERIOD / 25 },
	{ "more than all, a thread", 1, 4, 101, PERIOD },
	{ "more than all, a thread more", 5, 4, 1000, PERIOD / 2 },
	{ "the most percent", 1, 4, U32_MAX, PERIOD },
};

KUNIT_ARRAY_PARAM_DESC(most, most_cases, desc);

/* HOST-3: the threads share the percentage of the processors' time, whatever it is. */
static void host_3_most(struct kunit *test)
{
	const struct most_case *c = test->param_value;

	KUNIT_EXPECT_EQ(test, c->most, keel_urgent_most(c->threads, c->cpus, c->percent));
}

/* A thread that is urgent, at the beginning of its first period. */
static struct keel_urgent urgent_begin(struct kunit *test)
{
	struct keel_urgent urgent = {};

	KUNIT_EXPECT_TRUE(test, keel_urgent_note(&urgent, BEGIN, BEGIN, MOST));
	urgent.is = true;
	return urgent;
}

/* The same, after it was urgent for 1 ns too long. */
static struct keel_urgent urgent_over(struct kunit *test)
{
	struct keel_urgent urgent = urgent_begin(test);

	KUNIT_EXPECT_FALSE(test, keel_urgent_note(&urgent, BEGIN, BEGIN + MOST + 1, MOST));
	urgent.is = false;
	return urgent;
}

/* HOST-3: a thread may be urgent as long as it has time of its share. */
static void host_3_share(struct kunit *test)
{
	struct keel_urgent urgent = urgent_begin(test);

	KUNIT_EXPECT_TRUE(test, keel_urgent_note(&urgent, BEGIN, BEGIN + 2 * MS, MOST));
	/* In between, it waits. */
	KUNIT_EXPECT_TRUE(test, keel_urgent_note(&urgent, BEGIN + 4 * MS, BEGIN + 7 * MS, MOST));
	KUNIT_EXPECT_FALSE(test, keel_urgent_note(&urgent, BEGIN + 8 * MS, BEGIN + 8 * MS + 1,
						  MOST));
}

/* HOST-3: after its share, a thread is not urgent until the period is over. */
static void host_3_period(struct kunit *test)
{
	struct keel_urgent urgent = urgent_over(test);
	u64 end = BEGIN + PERIOD;

	KUNIT_EXPECT_FALSE(test, keel_urgent_note(&urgent, BEGIN + 6 * MS, BEGIN + 7 * MS, MOST));
	KUNIT_EXPECT_FALSE(test, keel_urgent_note(&urgent, end - 2, end - 1, MOST));
	KUNIT_EXPECT_TRUE(test, keel_urgent_note(&urgent, end - 1, end, MOST));
	/* It has its share again, but for the time that was too long. */
	urgent.is = true;
	KUNIT_EXPECT_TRUE(test, keel_urgent_note(&urgent, end, end + MOST - 1, MOST));
	KUNIT_EXPECT_FALSE(test, keel_urgent_note(&urgent, end + MOST - 1, end + MOST, MOST));
}

/* HOST-3: one run that is longer than a period leaves nothing of the next one. */
static void host_3_long_run(struct kunit *test)
{
	struct keel_urgent urgent = urgent_begin(test);
	u64 end = BEGIN + 2 * PERIOD;

	KUNIT_EXPECT_FALSE(test, keel_urgent_note(&urgent, BEGIN, end, MOST));
	urgent.is = false;
	KUNIT_EXPECT_FALSE(test, keel_urgent_note(&urgent, end, end + PERIOD - 1, MOST));
	KUNIT_EXPECT_TRUE(test, keel_urgent_note(&urgent, end, end + PERIOD, MOST));
}

/* HOST-3: a thread that has used the shares of ten more periods is not urgent for so long. */
static void host_3_debt(struct kunit *test)
{
	struct keel_urgent urgent = urgent_begin(test);
	u64 end = BEGIN + 11 * MOST, now;

	KUNIT_EXPECT_FALSE(test, keel_urgent_note(&urgent, BEGIN, end, MOST));
	urgent.is = false;
	for (now = end; now < BEGIN + 10 * PERIOD; now += MS)
		KUNIT_EXPECT_FALSE(test, keel_urgent_note(&urgent, now, now, MOST));
	KUNIT_EXPECT_TRUE(test, keel_urgent_note(&urgent, now, now, MOST));
	KUNIT_EXPECT_EQ(test, MOST, urgent.used);
}

/* HOST-3: a thread that has waited for long has its share, and no more. */
static void host_3_rest(struct kunit *test)
{
	struct keel_urgent urgent = urgent_over(test);
	u64 now = BEGIN + 1000000 * PERIOD;

	KUNIT_EXPECT_TRUE(test, keel_urgent_note(&urgent, now, now, MOST));
	KUNIT_EXPECT_EQ(test, 0, urgent.used);
	urgent.is = true;
	KUNIT_EXPECT_TRUE(test, keel_urgent_note(&urgent, now, now + MOST, MOST));
	KUNIT_EXPECT_FALSE(test, keel_urgent_note(&urgent, now + MOST, now + MOST + 1, MOST));
}

/* HOST-3: what a thread does while it is not urgent takes nothing of its share. */
static void host_3_not_urgent(struct kunit *test)
{
	struct keel_urgent urgent = urgent_begin(test);

	urgent.is = false;
	KUNIT_EXPECT_TRUE(test, keel_urgent_note(&urgent, BEGIN, BEGIN + MOST, MOST));
	KUNIT_EXPECT_TRUE(test, keel_urgent_note(&urgent, BEGIN + MOST, BEGIN + PERIOD - 1, MOST));
	KUNIT_EXPECT_EQ(test, 0, urgent.used);
}

/* HOST-3: without a share, no thread is ever urgent. */
static void host_3_never(struct kunit *test)
{
	struct keel_urgent urgent = {};
	u32 i;

	for (i = 0; i < 4; i++)
		KUNIT_EXPECT_FALSE(test, keel_urgent_note(&urgent, BEGIN + i * PERIOD,
							  BEGIN + i * PERIOD, 0));
}

static struct kunit_case handler_cases[] = {
	KUNIT_CASE_PARAM(host_3_most, most_gen_params),
	KUNIT_CASE(host_3_share),
	KUNIT_CASE(host_3_period),
	KUNIT_CASE(host_3_long_run),
	KUNIT_CASE(host_3_debt),
	KUNIT_CASE(host_3_rest),
	KUNIT_CASE(host_3_not_urgent),
	KUNIT_CASE(host_3_never),
	{}
};

static struct kunit_suite handler_suite = {
	.name = "keel_handler",
	.test_cases = handler_cases,
};
kunit_test_suite(handler_suite);
