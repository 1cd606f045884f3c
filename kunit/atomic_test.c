// SPDX-License-Identifier: GPL-2.0
/*
 * Atomic operations on memory of every kind.
 */
#include <kunit/test.h>
#include <linux/atomic.h>
#include <linux/hrtimer.h>
#include <linux/preempt.h>
#include <linux/sched.h>
#include <linux/unaligned.h>

#include "arena.h"
#include "keel_aperture.h"
#include "threads.h"
#include "whole.h"

#define ATOMIC_SEED	0x6b65656cULL
#define ROUNDS		20000
#define INTERRUPTS	10000
#define PERIOD		(20 * NSEC_PER_USEC)

/* Offset in an arena with an address that is a multiple of 8. */
#define PLACE		(3 * PAGE_SIZE - ARENA_FIRST % PAGE_SIZE - 8)

static struct arena *atomic_new(struct kunit *test)
{
	struct rnd_state rnd;

	prandom_seed_state(&rnd, ATOMIC_SEED);
	return arenas_new(test, &rnd);
}

static u64 atomic_read_at(const struct arena *a, u64 at)
{
	u8 byte[8];
	int i;

	for (i = 0; i < 8; i++)
		byte[i] = arena_get(a, at + i);
	return get_unaligned((u64 *)byte);
}

static void atomic_write_at(struct arena *a, u64 at, u64 value)
{
	u8 byte[8];
	int i;

	put_unaligned(value, (u64 *)byte);
	for (i = 0; i < 8; i++) {
		a->shadow[at + i] = byte[i];
		arena_set(a, at + i, byte[i]);
	}
}

struct atomic_case {
	const char *desc;
	u64 before;
	bool swap;
	u64 compare_add, new;
	u64 after;
};

static const struct atomic_case atomic_cases[] = {
	{ "DM-10: swap", 5, true, 5, 9, 9 },
	{ "DM-10: no swap, too small", 4, true, 5, 9, 4 },
	{ "DM-10: no swap, other half", 5 | 1ULL << 32, true, 5, 9,
	  5 | 1ULL << 32 },
	{ "DM-10: swap of all bits", U64_MAX, true, U64_MAX, 0, 0 },
	{ "DM-10: swap for itself", 7, true, 7, 7, 7 },
	{ "DM-10: add", 5, false, 3, 99, 8 },
	{ "DM-10: add nothing", 5, false, 0, 99, 5 },
	{ "DM-10: add with carry", U32_MAX, false, 1, 0, 1ULL << 32 },
	{ "DM-10: add beyond the end", U64_MAX, false, 2, 0, 1 },
	{ "DM-10: subtract", 5, false, U64_MAX, 0, 4 },
};
KUNIT_ARRAY_PARAM_DESC(atomic, atomic_cases, desc);

static void atomic_values(struct kunit *test)
{
	const struct atomic_case *c = test->param_value;
	struct arena *all = atomic_new(test);
	struct keel_seg seg = { .off = PLACE, .len = 8 };
	u64 old;
	int i;

	for (i = 0; i < ARENA_KINDS; i++) {
		seg.mem = &all[i].mem;
		atomic_write_at(&all[i], PLACE, c->before);
		old = ~c->before;
		KUNIT_EXPECT_EQ(test, 0, whole_atomic(&seg, c->swap,
						      c->compare_add, c->new,
						      &old));
		KUNIT_EXPECT_EQ(test, c->before, old);
		KUNIT_EXPECT_EQ(test, c->after, atomic_read_at(&all[i], PLACE));
		/* No other byte has changed. */
		atomic_write_at(&all[i], PLACE, c->before);
		KUNIT_EXPECT_EQ(test, -1L, arena_differs(&all[i]));
	}
}

static const u64 stores[] = { 0, 1, U64_MAX, 0x0123456789abcdefULL, 1ULL << 32 };

static void atomic_write_values(struct kunit *test)
{
	struct arena *all = atomic_new(test);
	struct keel_seg seg = { .off = PLACE, .len = 8 };
	int i, n;

	for (i = 0; i < ARENA_KINDS; i++)
		for (n = 0; n < ARRAY_SIZE(stores); n++) {
			seg.mem = &all[i].mem;
			atomic_write_at(&all[i], PLACE, ~stores[n]);
			KUNIT_EXPECT_EQ(test, 0,
					whole_atomic_write(&seg, stores[n]));
			KUNIT_EXPECT_EQ(test, stores[n],
					atomic_read_at(&all[i], PLACE));
			/* No other byte has changed. */
			atomic_write_at(&all[i], PLACE, ~stores[n]);
			KUNIT_EXPECT_EQ(test, -1L, arena_differs(&all[i]));
		}
}

/* The address must be aligned, not the offset. Nothing is written. */
static void atomic_not_aligned(struct kunit *test)
{
	struct arena *all = atomic_new(test);
	struct keel_seg seg = { .len = 8 };
	u64 old = 1234;
	int i, by;

	for (i = 0; i < ARENA_KINDS; i++) {
		seg.mem = &all[i].mem;
		for (by = 1; by < 8; by++) {
			seg.off = PLACE + by;
			KUNIT_EXPECT_EQ(test, -EINVAL,
					whole_atomic(&seg, false, 1, 0, &old));
			KUNIT_EXPECT_EQ(test, -EINVAL,
					whole_atomic(&seg, true,
						     atomic_read_at(&all[i],
								    seg.off),
						     0, &old));
			KUNIT_EXPECT_EQ(test, -EINVAL,
					whole_atomic_write(&seg, 1234));
		}
		seg.off = PLACE;
		seg.len = 7;
		KUNIT_EXPECT_EQ(test, -EINVAL, whole_atomic_write(&seg, 1234));
		KUNIT_EXPECT_EQ(test, -EINVAL,
				whole_atomic(&seg, false, 1, 0, &old));
		seg.len = 8;
		KUNIT_EXPECT_EQ(test, -1L, arena_differs(&all[i]));
	}
	KUNIT_EXPECT_EQ(test, 1234, old);
}

struct together {
	struct kunit *test;
	struct keel_seg seg;
	atomic64_t *cpu;	/* address for the CPU, or NULL */
};

static void together_thread(void *arg, unsigned int who)
{
	struct together *t = arg;
	u64 old = 0, was;
	int i, ret = 0;

	for (i = 0; i < ROUNDS && !ret; i++) {
		if (who == 0 && t->cpu) {
			atomic64_inc(t->cpu);
			continue;
		}
		if (who < 2) {
			ret = whole_atomic(&t->seg, false, 1, 0, &old);
			continue;
		}
		do {
			was = old;
			ret = whole_atomic(&t->seg, true, was, was + 1, &old);
		} while (!ret && old != was);
	}
	KUNIT_EXPECT_EQ(t->test, 0, ret);
}

/* DM-10: atomic operations race with each other, and with the CPU. */
static void dm_10_atomic_threads(struct kunit *test)
{
	struct arena *all = atomic_new(test);
	struct arena *dm = &all[ARENA_DM];
	struct together t = {
		.test = test,
		.seg = { .mem = &dm->mem, .off = PLACE, .len = 8 },
	};
	size_t len;

	atomic_write_at(dm, PLACE, 0);
	t.cpu = keel_aperture_direct(dm->mem.ap, ARENA_FIRST + PLACE, &len);
	KUNIT_ASSERT_NOT_NULL(test, t.cpu);
	threads_run(test, together_thread, &t);
	KUNIT_EXPECT_EQ(test, (u64)THREADS * ROUNDS, atomic_read_at(dm, PLACE));
}

/* DM-10: atomic operations in a BAR race with each other. */
static void dm_10_atomic_threads_bar(struct kunit *test)
{
	struct arena *all = atomic_new(test);
	struct arena *bar = &all[ARENA_BAR];
	struct together t = {
		.test = test,
		.seg = { .mem = &bar->mem, .off = PLACE, .len = 8 },
	};

	atomic_write_at(bar, PLACE, 0);
	threads_run(test, together_thread, &t);
	KUNIT_EXPECT_EQ(test, (u64)THREADS * ROUNDS, atomic_read_at(bar, PLACE));
}

/**
 * struct between - a timer that increments the operand when it interrupts a
 * task
 * @timer: the timer
 * @task: the task
 * @word: the operand
 * @met: number of increments
 */
struct between {
	struct hrtimer timer;
	struct task_struct *task;
	atomic64_t *word;
	u64 met;
};

static enum hrtimer_restart between_tick(struct hrtimer *timer)
{
	struct between *b = container_of(timer, struct between, timer);

	if (current == b->task) {
		atomic64_inc(b->word);
		WRITE_ONCE(b->met, b->met + 1);
	}
	if (b->met == INTERRUPTS)
		return HRTIMER_NORESTART;
	hrtimer_forward_now(timer, PERIOD);
	return HRTIMER_RESTART;
}

/* Add until the task was interrupted often enough. Returns the additions. */
static u64 between_run(struct kunit *test, struct between *b,
		       const struct keel_seg *seg, bool swap)
{
	u64 n = 0, old = 0, was;

	b->met = 0;
	b->task = current;
	hrtimer_start(&b->timer, PERIOD, HRTIMER_MODE_REL_PINNED_HARD);
	while (READ_ONCE(b->met) < INTERRUPTS) {
		was = old;
		if (whole_atomic(seg, swap, swap ? was : 1, was + 1, &old))
			break;
		n += !swap || old == was;
	}
	hrtimer_cancel(&b->timer);
	KUNIT_EXPECT_EQ(test, INTERRUPTS, b->met);
	return n;
}

/*
 * DM-10: race with an interrupt, which may come between any two instructions.
 * Threads need processors that run at the same time, and a guest on a busy host
 * may have to wait for that.
 */
static void dm_10_atomic_interrupted(struct kunit *test)
{
	struct arena *dm = &atomic_new(test)[ARENA_DM];
	struct keel_seg seg = { .mem = &dm->mem, .off = PLACE, .len = 8 };
	struct between b;
	size_t len;
	int swap;
	u64 n;

	b.word = keel_aperture_direct(dm->mem.ap, ARENA_FIRST + PLACE, &len);
	KUNIT_ASSERT_NOT_NULL(test, b.word);
	hrtimer_setup_on_stack(&b.timer, between_tick, CLOCK_MONOTONIC,
			       HRTIMER_MODE_REL_PINNED_HARD);
	migrate_disable();
	for (swap = 0; swap < 2; swap++) {
		atomic_write_at(dm, PLACE, 0);
		n = between_run(test, &b, &seg, swap);
		KUNIT_EXPECT_EQ(test, n + INTERRUPTS,
				atomic_read_at(dm, PLACE));
	}
	migrate_enable();
	destroy_hrtimer_on_stack(&b.timer);
}

static struct kunit_case atomic_test_cases[] = {
	KUNIT_CASE_PARAM(atomic_values, atomic_gen_params),
	KUNIT_CASE(atomic_write_values),
	KUNIT_CASE(atomic_not_aligned),
	KUNIT_CASE(dm_10_atomic_threads),
	KUNIT_CASE(dm_10_atomic_threads_bar),
	KUNIT_CASE(dm_10_atomic_interrupted),
	{}
};

static struct kunit_suite atomic_suite = {
	.name = "keel_atomic",
	.test_cases = atomic_test_cases,
};
kunit_test_suite(atomic_suite);
