// SPDX-License-Identifier: GPL-2.0
/*
 * Rings: wrapping indexes, and moves to another ring.
 */
#include <kunit/test.h>
#include <linux/limits.h>
#include <linux/sizes.h>

#include "keel_ring.h"

#define STRIDE	16

KUNIT_DEFINE_ACTION_WRAPPER(ring_free, keel_ring_free, struct keel_ring *);

static struct keel_ring *ring_new(struct kunit *test, u32 entries, u32 stride)
{
	struct keel_ring *r = kunit_kzalloc(test, sizeof(*r), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, r);
	KUNIT_ASSERT_EQ(test, 0, keel_ring_alloc(r, entries, stride));
	KUNIT_ASSERT_EQ(test, 0, kunit_add_action_or_reset(test, ring_free, r));
	return r;
}

/**
 * struct move_case - a move from one ring to another one
 * @name: of the case
 * @from: entries of the old ring
 * @to: entries of the new ring
 * @first: index of the first entry
 * @n: number of entries
 * @dead: the queue is in error
 * @ret: the result
 */
struct move_case {
	const char *name;
	u32 from;
	u32 to;
	u32 first;
	u32 n;
	bool dead;
	int ret;
};

static const struct move_case move_cases[] = {
	{ "none", 8, 8, 0, 0, false, 0 },
	{ "one", 8, 1, 5, 1, false, 0 },
	{ "all", 8, 8, 3, 8, false, 0 },
	{ "to a smaller ring", 64, 16, 60, 16, false, 0 },
	{ "one too many", 64, 16, 60, 17, false, -EINVAL },
	{ "at the wrap of the index", 16, 32, U32_MAX - 4, 10, false, 0 },
	{ "with pauses", SZ_4K, SZ_8K, U32_MAX - 2000, 4000, false, 0 },
	{ "of a dead queue", 8, 8, 0, 3, true, -EINVAL },
};

KUNIT_ARRAY_PARAM_DESC(move, move_cases, name);

/* The content of entry @index before the move. */
static u64 mark(u32 index)
{
	return 0x1234567800000000ULL | index;
}

static void ring_move(struct kunit *test)
{
	const struct move_case *c = test->param_value;
	struct keel_ring *from = ring_new(test, c->from, STRIDE);
	struct keel_ring *to = ring_new(test, c->to, 2 * STRIDE);
	u32 end = c->first + c->n, i, copied = c->ret ? 0 : c->n;
	bool dead = c->dead;
	spinlock_t lock;
	int ret;

	spin_lock_init(&lock);
	for (i = 0; i < c->n; i++)
		*(u64 *)keel_ring_entry(from, c->first + i) = mark(c->first + i);
	spin_lock(&lock);
	ret = keel_ring_move(from, to, c->first, &end, STRIDE, &lock, &dead);
	spin_unlock(&lock);
	KUNIT_EXPECT_EQ(test, c->ret, ret);
	for (i = 0; i < c->to; i++)
		KUNIT_EXPECT_EQ(test, i < copied ? mark(c->first + i) : 0,
				*(u64 *)keel_ring_entry(to, c->first + i));
}

/**
 * struct index_case - indexes of a ring with 8 entries
 * @name: of the case
 * @kernel: the kernel's index
 * @user: the user index
 * @posted: result of keel_ring_posted() for a work queue
 * @room: result of keel_ring_room() for a CQ
 */
struct index_case {
	const char *name;
	u32 kernel;
	u32 user;
	int posted;
	int room;
};

static const struct index_case index_cases[] = {
	{ "equal", 7, 7, 0, 8 },
	{ "user ahead by 1", 7, 8, 1, -EINVAL },
	{ "user ahead by 8", 7, 15, 8, -EINVAL },
	{ "user ahead by 9", 7, 16, -EINVAL, -EINVAL },
	{ "user behind by 1", 7, 6, -EINVAL, 7 },
	{ "user behind by 8", 9, 1, -EINVAL, 0 },
	{ "user behind by 9", 10, 1, -EINVAL, -EINVAL },
	{ "user ahead at the wrap", U32_MAX, 2, 3, -EINVAL },
	{ "user behind at the wrap", 2, U32_MAX, -EINVAL, 5 },
	{ "half of all numbers apart", 0, 0x80000000, -EINVAL, -EINVAL },
};

KUNIT_ARRAY_PARAM_DESC(index, index_cases, name);

/* DEV-4: every invalid producer or consumer index is detected. */
static void dev_4_index(struct kunit *test)
{
	const struct index_case *c = test->param_value;
	struct keel_ring *r = ring_new(test, 8, STRIDE);

	r->index = c->kernel;
	r->head->user = c->user;
	KUNIT_EXPECT_EQ(test, c->posted, keel_ring_posted(r));
	KUNIT_EXPECT_EQ(test, c->room, keel_ring_room(r));
}

static struct kunit_case ring_test_cases[] = {
	KUNIT_CASE_PARAM(ring_move, move_gen_params),
	KUNIT_CASE_PARAM(dev_4_index, index_gen_params),
	{}
};

static struct kunit_suite ring_test_suite = {
	.name = "keel_ring",
	.test_cases = ring_test_cases,
};
kunit_test_suite(ring_test_suite);
