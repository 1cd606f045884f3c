// SPDX-License-Identifier: GPL-2.0
/*
 * The range allocator, with tables of cases. range_model_test.c tests random
 * sequences.
 */
#include <kunit/test.h>
#include <linux/bitmap.h>
#include <linux/limits.h>

#include "keel_range.h"

#define UNIT_SHIFT	12
#define UNIT		(1ULL << UNIT_SHIFT)
#define UNTOUCHED	0xdeadbeefcafef00dULL

KUNIT_DEFINE_ACTION_WRAPPER(range_fini, keel_range_fini, struct keel_range *);

/* Create a range that is freed when the test ends. */
static struct keel_range *range_new(struct kunit *test, u64 units)
{
	struct keel_range *r = kunit_kzalloc(test, sizeof(*r), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, r);
	KUNIT_ASSERT_EQ(test, 0, keel_range_init(r, units << UNIT_SHIFT,
						 UNIT_SHIFT, GFP_KERNEL));
	KUNIT_ASSERT_EQ(test, 0, kunit_add_action_or_reset(test, range_fini, r));
	return r;
}

static u64 range_take(struct kunit *test, struct keel_range *r, u64 len,
		      u32 log_align)
{
	u64 start = UNTOUCHED;

	KUNIT_ASSERT_EQ(test, 0, keel_range_alloc(r, len, log_align, &start));
	return start;
}

/* A refused call returns the expected errno and changes nothing. */
static void range_refuse(struct kunit *test, struct keel_range *r, u64 len,
			 u32 log_align, int want)
{
	unsigned long taken = bitmap_weight(r->map, r->units);
	u64 start = UNTOUCHED;

	KUNIT_EXPECT_EQ(test, want,
			keel_range_alloc(r, len, log_align, &start));
	KUNIT_EXPECT_EQ(test, UNTOUCHED, start);
	KUNIT_EXPECT_EQ(test, taken, bitmap_weight(r->map, r->units));
}

struct init_case {
	const char *desc;
	u64 size;
	unsigned int shift;
	int want;
};

static const struct init_case init_cases[] = {
	{ "one unit", UNIT, UNIT_SHIFT, 0 },
	{ "an odd number of units", 7 * UNIT, UNIT_SHIFT, 0 },
	{ "more units than a word has bits", 65 * UNIT, UNIT_SHIFT, 0 },
	{ "units of one byte", 100, 0, 0 },
	{ "one unit of half the address space", 1ULL << 63, 63, 0 },
	{ "nothing", 0, UNIT_SHIFT, -EINVAL },
	{ "less than a unit", UNIT - 1, UNIT_SHIFT, -EINVAL },
	{ "a byte more than a unit", UNIT + 1, UNIT_SHIFT, -EINVAL },
	{ "a byte less than two", 2 * UNIT - 1, UNIT_SHIFT, -EINVAL },
	{ "one unit too many", ((u64)INT_MAX + 1) << UNIT_SHIFT, UNIT_SHIFT,
	  -EINVAL },
	{ "unit count that would wrap in 32 bits", 1ULL << (32 + UNIT_SHIFT),
	  UNIT_SHIFT, -EINVAL },
	{ "all units of 64 bits", U64_MAX - UNIT + 1, UNIT_SHIFT, -EINVAL },
	{ "every byte of 64 bits", U64_MAX, UNIT_SHIFT, -EINVAL },
};
KUNIT_ARRAY_PARAM_DESC(init, init_cases, desc);

static void range_init(struct kunit *test)
{
	const struct init_case *c = test->param_value;
	struct keel_range r = {};

	KUNIT_ASSERT_EQ(test, c->want,
			keel_range_init(&r, c->size, c->shift, GFP_KERNEL));
	if (c->want) {
		KUNIT_EXPECT_NULL(test, r.map);
		keel_range_fini(&r);
		return;
	}
	KUNIT_EXPECT_EQ(test, c->size, (u64)r.units << r.shift);
	KUNIT_EXPECT_EQ(test, 0, range_take(test, &r, c->size, 0));
	keel_range_free(&r, 0, c->size);
	keel_range_fini(&r);
}

struct refuse_case {
	const char *desc;
	u64 units;
	u64 len;
	u32 log_align;
	int want;
};

/* 16 units are 2^16 bytes. */
static const struct refuse_case refuse_cases[] = {
	{ "no length", 16, 0, 0, -EINVAL },
	{ "no length, alignment of a unit", 16, 0, 12, -EINVAL },
	{ "no length, bad alignment", 16, 0, U32_MAX, -EINVAL },
	{ "alignment of twice the range", 16, 1, 17, -EINVAL },
	{ "alignment of the range is none of one unit", 1, 1, 13,
	  -EINVAL },
	{ "alignment above a range that is no power of two", 12, 1, 16,
	  -EINVAL },
	{ "alignment 2^31", 16, 1, 31, -EINVAL },
	{ "alignment 2^32", 16, 1, 32, -EINVAL },
	{ "alignment 2^43, a mask of 31 bits", 16, 1, 43, -EINVAL },
	{ "alignment 2^44, a mask of 32 bits", 16, 1, 44, -EINVAL },
	{ "alignment 2^63", 16, 1, 63, -EINVAL },
	{ "alignment 2^64", 16, 1, 64, -EINVAL },
	{ "alignment 2^76, a shift by 64", 16, 1, 76, -EINVAL },
	{ "alignment 2^(2^31)", 16, 1, 1U << 31, -EINVAL },
	{ "largest alignment", 16, 1, U32_MAX, -EINVAL },
	{ "bad alignment and bad length", 16, U64_MAX, U32_MAX, -EINVAL },
	{ "a byte too long", 16, 16 * UNIT + 1, 0, -ENOMEM },
	{ "a unit too long", 16, 17 * UNIT, 0, -ENOMEM },
	{ "unit count that is 0 in 32 bits", 16,
	  1ULL << (32 + UNIT_SHIFT), 0, -ENOMEM },
	{ "unit count that is 1 in 32 bits", 16,
	  (1ULL << (32 + UNIT_SHIFT)) + 1, 0, -ENOMEM },
	{ "half of 64 bits", 16, 1ULL << 63, 0, -ENOMEM },
	{ "last length that rounds up", 16, U64_MAX - UNIT + 1, 0,
	  -ENOMEM },
	{ "first length whose rounding wraps", 16, U64_MAX - UNIT + 2, 0,
	  -ENOMEM },
	{ "longest", 16, U64_MAX, 0, -ENOMEM },
	{ "longest, aligned to the range", 16, U64_MAX, 16, -ENOMEM },
};
KUNIT_ARRAY_PARAM_DESC(refuse, refuse_cases, desc);

static void dm_1_refused(struct kunit *test)
{
	const struct refuse_case *c = test->param_value;
	struct keel_range *r = range_new(test, c->units);

	range_refuse(test, r, c->len, c->log_align, c->want);
	/* The whole range is still free. */
	KUNIT_EXPECT_EQ(test, 0, range_take(test, r, c->units * UNIT, 0));
	/* The error does not depend on the free space. */
	range_refuse(test, r, c->len, c->log_align, c->want);
	keel_range_free(r, 0, c->units * UNIT);
}

struct align_case {
	const char *desc;
	u32 log_align;
	u64 want;
};

/* The lowest aligned start in 64 units, of which the first is allocated. */
static const struct align_case align_cases[] = {
	{ "any start will do", 0, UNIT },
	{ "2 bytes", 1, UNIT },
	{ "half a unit", 11, UNIT },
	{ "one unit", 12, UNIT },
	{ "2 units", 13, 2 * UNIT },
	{ "4 units", 14, 4 * UNIT },
	{ "8 units", 15, 8 * UNIT },
	{ "16 units", 16, 16 * UNIT },
	{ "half the range", 17, 32 * UNIT },
};
KUNIT_ARRAY_PARAM_DESC(align, align_cases, desc);

static void dm_2_alignment(struct kunit *test)
{
	const struct align_case *c = test->param_value;
	struct keel_range *r = range_new(test, 64);
	u64 first = range_take(test, r, 1, c->log_align);
	u64 at = range_take(test, r, 3, c->log_align);

	KUNIT_EXPECT_EQ(test, 0, first);
	KUNIT_EXPECT_EQ(test, c->want, at);
	KUNIT_EXPECT_EQ(test, 0, at & ((1ULL << c->log_align) - 1));
	/* The gap below is free for other allocations. */
	if (c->want > UNIT)
		KUNIT_EXPECT_EQ(test, UNIT, range_take(test, r, UNIT, 0));
	keel_range_free(r, 0, c->want > UNIT ? 2 * UNIT : UNIT);
	keel_range_free(r, at, 3);
}

/* DM-2, DM-1: the coarsest alignment has a single start. */
static void dm_2_coarsest(struct kunit *test)
{
	struct keel_range *r = range_new(test, 16);

	KUNIT_EXPECT_EQ(test, 0, range_take(test, r, 1, 16));
	range_refuse(test, r, 1, 16, -ENOMEM);
	KUNIT_EXPECT_EQ(test, 8 * UNIT, range_take(test, r, 8 * UNIT, 15));
	range_refuse(test, r, 1, 15, -ENOMEM);
	keel_range_free(r, 0, 1);
	KUNIT_EXPECT_EQ(test, 0, range_take(test, r, 8 * UNIT, 16));
	keel_range_free(r, 0, 16 * UNIT);
}

struct whole_case {
	const char *desc;
	u64 units;
	u64 len;
};

static const struct whole_case whole_cases[] = {
	{ "one unit", 1, UNIT },
	{ "one byte of one unit", 1, 1 },
	{ "a word of the bitmap", 64, 64 * UNIT },
	{ "a word less a byte", 64, 64 * UNIT - 1 },
	{ "a word and a bit", 65, 65 * UNIT },
	{ "just into the last unit", 65, 64 * UNIT + 1 },
	{ "64 MiB of pages", 16384, 16384 * UNIT },
	{ "an odd number", 12345, 12345 * UNIT },
};
KUNIT_ARRAY_PARAM_DESC(whole, whole_cases, desc);

static void dm_3_whole_range(struct kunit *test)
{
	const struct whole_case *c = test->param_value;
	struct keel_range *r = range_new(test, c->units);
	int round;

	for (round = 0; round < 2; round++) {
		KUNIT_EXPECT_EQ(test, 0, range_take(test, r, c->len, 0));
		range_refuse(test, r, 1, 0, -ENOMEM);
		keel_range_free(r, 0, c->len);
	}
}

/* DM-1, DM-3: -ENOMEM if no gap is large enough, even if the sum is. */
static void dm_1_fragmentation(struct kunit *test)
{
	const unsigned int units = 130;
	struct keel_range *r = range_new(test, units);
	unsigned int i;

	for (i = 0; i < units; i++)
		KUNIT_ASSERT_EQ(test, i * UNIT, range_take(test, r, UNIT, 0));
	for (i = 0; i < units; i += 2)
		keel_range_free(r, i * UNIT, UNIT);
	range_refuse(test, r, UNIT + 1, 0, -ENOMEM);

	/* Holes at 126, 127 and 128: in both words of the bitmap. */
	keel_range_free(r, 127 * UNIT, UNIT);
	range_refuse(test, r, 3 * UNIT + 1, 0, -ENOMEM);
	KUNIT_EXPECT_EQ(test, 126 * UNIT, range_take(test, r, 3 * UNIT, 0));

	/* The lowest hole that fits, and the lowest one aligned to 4 units. */
	KUNIT_EXPECT_EQ(test, 0, range_take(test, r, 1, 0));
	KUNIT_EXPECT_EQ(test, 2 * UNIT, range_take(test, r, 1, 0));
	KUNIT_EXPECT_EQ(test, 4 * UNIT, range_take(test, r, 1, 14));
	KUNIT_EXPECT_EQ(test, 8 * UNIT, range_take(test, r, 1, 14));
	KUNIT_EXPECT_EQ(test, 6 * UNIT, range_take(test, r, 1, 0));
	range_refuse(test, r, UNIT + 1, 14, -ENOMEM);

	for (i = 10; i < 126; i += 2)
		KUNIT_ASSERT_EQ(test, i * UNIT, range_take(test, r, 1, 0));
	range_refuse(test, r, 1, 0, -ENOMEM);
	keel_range_free(r, 0, units * UNIT);
}

/* The caller frees the requested length, not the rounded one. */
static void range_free_rounds(struct kunit *test)
{
	static const u64 lens[] = { 1, UNIT - 1, UNIT, UNIT + 1, 2 * UNIT };
	struct keel_range *r = range_new(test, 8);
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(lens); i++) {
		u64 a = range_take(test, r, lens[i], 0);
		u64 b = range_take(test, r, lens[i], 0);

		KUNIT_EXPECT_EQ(test, 0, a);
		KUNIT_EXPECT_EQ(test, DIV_ROUND_UP_ULL(lens[i], UNIT) * UNIT,
				b);
		keel_range_free(r, a, lens[i]);
		/* Only the other allocation is left. */
		KUNIT_EXPECT_EQ(test, b / UNIT, bitmap_weight(r->map, 8));
		KUNIT_EXPECT_EQ(test, b / UNIT, find_first_bit(r->map, 8));
		keel_range_free(r, b, lens[i]);
		KUNIT_EXPECT_TRUE(test, bitmap_empty(r->map, 8));
	}
}

struct allocated_case {
	const char *desc;
	unsigned long at, units;
	bool want;
};

/* Units 1 to 39 and 41 to 69 of 70 are allocated. */
static const struct allocated_case allocated_cases[] = {
	{ "an extent", 1, 39, true },
	{ "its first unit", 1, 1, true },
	{ "its last unit", 39, 1, true },
	{ "up to the end of the range", 41, 29, true },
	{ "the last unit of the range", 69, 1, true },
	{ "nothing, at the end", 70, 0, true },
	{ "a free unit", 0, 1, false },
	{ "a free unit in front", 0, 40, false },
	{ "a free unit behind", 1, 40, false },
	{ "a free unit between two extents", 1, 69, false },
	{ "a unit beyond the end", 41, 30, false },
	{ "the unit at the end", 70, 1, false },
	{ "more units than 64 bits have", 1, ULONG_MAX, false },
	{ "a start far beyond the end", ULONG_MAX, 2, false },
};
KUNIT_ARRAY_PARAM_DESC(allocated, allocated_cases, desc);

/* A free of what is not allocated changes nothing: this is how it is detected. */
static void range_allocated(struct kunit *test)
{
	const struct allocated_case *c = test->param_value;
	struct keel_range *r = range_new(test, 70);
	bool got;

	KUNIT_ASSERT_EQ(test, 0, range_take(test, r, 70 * UNIT, 0));
	keel_range_free(r, 0, UNIT);
	keel_range_free(r, 40 * UNIT, UNIT);
	spin_lock(&r->lock);
	got = keel_range_allocated(r, c->at, c->units);
	spin_unlock(&r->lock);
	KUNIT_EXPECT_EQ(test, c->want, got);
	keel_range_free(r, UNIT, 39 * UNIT);
	keel_range_free(r, 41 * UNIT, 29 * UNIT);
}

/* keel_range_fini() accepts a range without init, and a second call. */
static void range_fini_again(struct kunit *test)
{
	struct keel_range r = {};

	keel_range_fini(&r);
	KUNIT_ASSERT_EQ(test, 0, keel_range_init(&r, UNIT, UNIT_SHIFT, GFP_KERNEL));
	keel_range_fini(&r);
	KUNIT_EXPECT_NULL(test, r.map);
	keel_range_fini(&r);
}

static struct kunit_case range_test_cases[] = {
	KUNIT_CASE_PARAM(range_init, init_gen_params),
	KUNIT_CASE_PARAM(dm_1_refused, refuse_gen_params),
	KUNIT_CASE_PARAM(dm_2_alignment, align_gen_params),
	KUNIT_CASE(dm_2_coarsest),
	KUNIT_CASE_PARAM(dm_3_whole_range, whole_gen_params),
	KUNIT_CASE(dm_1_fragmentation),
	KUNIT_CASE_PARAM(range_allocated, allocated_gen_params),
	KUNIT_CASE(range_free_rounds),
	KUNIT_CASE(range_fini_again),
	{}
};

static struct kunit_suite range_test_suite = {
	.name = "keel_range",
	.test_cases = range_test_cases,
};
kunit_test_suite(range_test_suite);
