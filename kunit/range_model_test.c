// SPDX-License-Identifier: GPL-2.0
/*
 * The range allocator compared with a simple model: an array with the owner of
 * each unit. With one thread and with several threads.
 */
#include <kunit/test.h>
#include <linux/bitmap.h>
#include <linux/prandom.h>

#include "keel_range.h"
#include "threads.h"

#define MODEL_SHIFT	12
#define MODEL_UNIT	(1ULL << MODEL_SHIFT)
#define MODEL_UNITS	150
#define MODEL_STEPS	20000
#define MODEL_LIVE	64
#define MODEL_SEED	0x6b65656cULL

struct model_alloc {
	u64 start;
	u64 len;
};

struct model {
	struct keel_range range;
	struct rnd_state rnd;
	/* 0 is free, else 1 + index in @live */
	u8 owner[MODEL_UNITS];
	struct model_alloc live[MODEL_LIVE];
	unsigned int allocs, full, frees;
};

static u32 model_below(struct model *m, u32 n)
{
	return prandom_u32_state(&m->rnd) % n;
}

/* First fit: try each candidate. Returns a unit, or -1. */
static int model_first_fit(const struct model *m, u64 units, u64 align)
{
	u64 at, i;

	for (at = 0; at + units <= MODEL_UNITS; at++) {
		if (at % align)
			continue;
		for (i = 0; i < units && !m->owner[at + i]; i++)
			;
		if (i == units)
			return at;
	}
	return -1;
}

static void model_set(struct model *m, const struct model_alloc *a, u8 owner)
{
	u64 byte;

	for (byte = a->start; byte < a->start + a->len; byte += MODEL_UNIT)
		m->owner[byte / MODEL_UNIT] = owner;
}

static void model_alloc(struct kunit *test, struct model *m, unsigned int slot)
{
	/* Mostly small, sometimes any size; any remainder of a unit. */
	u32 most = model_below(m, 8) ? 12 : MODEL_UNITS + 2;
	u64 units = 1 + model_below(m, most);
	struct model_alloc *a = &m->live[slot];
	u64 len = units * MODEL_UNIT - model_below(m, MODEL_UNIT);
	u32 extra = model_below(m, 3) ? 0 : model_below(m, 8);
	u64 start = 1;
	int want = model_first_fit(m, units, 1ULL << extra);
	int ret = keel_range_alloc(&m->range, len, MODEL_SHIFT + extra, &start);

	if (want < 0) {
		KUNIT_ASSERT_EQ(test, -ENOMEM, ret);
		m->full++;
		return;
	}
	KUNIT_ASSERT_EQ(test, 0, ret);
	KUNIT_ASSERT_EQ(test, want * MODEL_UNIT, start);
	a->start = start;
	a->len = len;
	model_set(m, a, slot + 1);
	m->allocs++;
}

static void model_free(struct model *m, unsigned int slot)
{
	struct model_alloc *a = &m->live[slot];

	keel_range_free(&m->range, a->start, a->len);
	model_set(m, a, 0);
	a->len = 0;
	m->frees++;
}

static void model_compare(struct kunit *test, const struct model *m)
{
	unsigned int i;

	for (i = 0; i < MODEL_UNITS; i++)
		KUNIT_ASSERT_EQ_MSG(test, !!m->owner[i],
				    test_bit(i, m->range.map), "unit %u", i);
}

/* DM-1, DM-2, DM-6: the results are those of the model at each step. */
static void dm_1_dm_2_dm_6_random_steps(struct kunit *test)
{
	struct model *m = kunit_kzalloc(test, sizeof(*m), GFP_KERNEL);
	unsigned int step, slot;

	KUNIT_ASSERT_NOT_NULL(test, m);
	prandom_seed_state(&m->rnd, MODEL_SEED);
	kunit_info(test, "%u steps, seed 0x%llx", MODEL_STEPS, MODEL_SEED);
	KUNIT_ASSERT_EQ(test, 0, keel_range_init(&m->range,
						 MODEL_UNITS * MODEL_UNIT,
						 MODEL_SHIFT, GFP_KERNEL));
	for (step = 0; step < MODEL_STEPS; step++) {
		slot = model_below(m, MODEL_LIVE);
		if (m->live[slot].len)
			model_free(m, slot);
		else
			model_alloc(test, m, slot);
		if (step % 64 == 0)
			model_compare(test, m);
	}
	for (slot = 0; slot < MODEL_LIVE; slot++)
		if (m->live[slot].len)
			model_free(m, slot);
	model_compare(test, m);
	keel_range_fini(&m->range);
	kunit_info(test, "%u taken, %u given back, %u times no room",
		   m->allocs, m->frees, m->full);
	/* The range must have been full often enough. */
	KUNIT_EXPECT_GT(test, m->full, MODEL_STEPS / 50);
	KUNIT_EXPECT_GT(test, m->allocs, MODEL_STEPS / 4);
	KUNIT_EXPECT_EQ(test, m->allocs, m->frees);
}

#define THREADS_STEPS	(IS_ENABLED(CONFIG_KASAN) ? 1000 : 5000)
#define THREADS_UNITS	3

struct range_shared {
	struct keel_range range;
	atomic_t owner[THREADS_UNITS];
	atomic_t taken, wrong;
};

static void take_and_give(void *arg, unsigned int who)
{
	struct range_shared *c = arg;
	unsigned int i;
	u64 start;

	for (i = 0; i < THREADS_STEPS; i++) {
		if (!keel_range_alloc(&c->range, 1, 0, &start)) {
			atomic_t *owner = &c->owner[start / MODEL_UNIT];

			atomic_inc(&c->taken);
			if (atomic_xchg(owner, who + 1))
				atomic_inc(&c->wrong);
			if (atomic_xchg(owner, 0) != who + 1)
				atomic_inc(&c->wrong);
			keel_range_free(&c->range, start, 1);
		}
		if (i % 16 == 0)
			threads_yield();
	}
}

/* DM-6: a unit has one owner, even if several threads allocate at once. */
static void dm_6_one_owner(struct kunit *test)
{
	struct range_shared *c = kunit_kzalloc(test, sizeof(*c), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, c);
	KUNIT_ASSERT_EQ(test, 0, keel_range_init(&c->range,
						 THREADS_UNITS * MODEL_UNIT,
						 MODEL_SHIFT, GFP_KERNEL));
	threads_run(test, take_and_give, c);
	KUNIT_EXPECT_EQ(test, 0, atomic_read(&c->wrong));
	KUNIT_EXPECT_GT(test, atomic_read(&c->taken), THREADS_STEPS);
	keel_range_fini(&c->range);
}

static struct kunit_case range_model_test_cases[] = {
	KUNIT_CASE(dm_1_dm_2_dm_6_random_steps),
	KUNIT_CASE(dm_6_one_owner),
	{}
};

static struct kunit_suite range_model_test_suite = {
	.name = "keel_range_model",
	.test_cases = range_model_test_cases,
};
kunit_test_suite(range_model_test_suite);
