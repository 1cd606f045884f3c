// SPDX-License-Identifier: GPL-2.0
/*
 * Numbers: which is given next, and that the table keeps its nodes.
 */
#include <kunit/test.h>

#include "keel_numbers.h"

static char entry[8];

static int numbers_init(struct kunit *test)
{
	test->priv = kunit_kzalloc(test, sizeof(struct keel_numbers), GFP_KERNEL);
	return test->priv ? 0 : -ENOMEM;
}

/* Add an entry, which must get number @want, in round @round. */
static void add(struct kunit *test, u32 want, u8 round)
{
	struct keel_numbers *numbers = test->priv;
	u8 got_round = 77;
	u32 got = 0;

	KUNIT_ASSERT_EQ(test, 0, keel_number_add(numbers, &got, &got_round,
						 &entry[want % 8], GFP_KERNEL));
	KUNIT_ASSERT_EQ(test, want, got);
	KUNIT_EXPECT_EQ(test, round, got_round);
	KUNIT_EXPECT_PTR_EQ(test, (char *)keel_number_load(numbers, want),
			    &entry[want % 8]);
}

static void drop(struct kunit *test, u32 number)
{
	struct keel_numbers *numbers = test->priv;

	keel_number_remove(numbers, number);
	KUNIT_EXPECT_NULL(test, keel_number_load(numbers, number));
}

/* A free number is given after all others, and rounds are counted. */
static void numbers_go_round(struct kunit *test)
{
	struct keel_numbers *numbers = test->priv;

	keel_numbers_init(numbers, 3, 7);
	KUNIT_EXPECT_TRUE(test, keel_numbers_are_free(numbers));
	add(test, 3, 0);
	add(test, 4, 0);
	drop(test, 3);
	add(test, 5, 0);
	drop(test, 5);
	add(test, 6, 0);
	add(test, 7, 0);
	add(test, 3, 1);
	drop(test, 7);
	add(test, 5, 1);
	KUNIT_EXPECT_FALSE(test, keel_numbers_are_free(numbers));
	drop(test, 3);
	drop(test, 4);
	drop(test, 5);
	drop(test, 6);
	KUNIT_EXPECT_TRUE(test, keel_numbers_are_free(numbers));
	keel_numbers_fini(numbers, "test");
}

/* The number that was freed last is given, too, if there is no other. */
static void numbers_all_used(struct kunit *test)
{
	struct keel_numbers *numbers = test->priv;
	u32 got = 0, i;

	keel_numbers_init(numbers, 1, 4);
	for (i = 1; i <= 4; i++)
		add(test, i, 0);
	KUNIT_EXPECT_EQ(test, -EBUSY, keel_number_add(numbers, &got, NULL, entry, GFP_KERNEL));
	drop(test, 2);
	add(test, 2, 1);
	drop(test, 4);
	drop(test, 1);
	/* 1 is kept, 4 is free. */
	add(test, 4, 1);
	add(test, 1, 2);
	KUNIT_EXPECT_EQ(test, -EBUSY, keel_number_add(numbers, &got, NULL, entry, GFP_KERNEL));
	for (i = 1; i <= 4; i++)
		drop(test, i);
	KUNIT_EXPECT_TRUE(test, keel_numbers_are_free(numbers));
	keel_numbers_fini(numbers, "test");
}

/* A reserved number has no entry before it is published. */
static void numbers_reserve(struct kunit *test)
{
	struct keel_numbers *numbers = test->priv;
	u32 got = 0;

	keel_numbers_init(numbers, 2, 9);
	KUNIT_EXPECT_EQ(test, 0, keel_number_reserve(numbers, 1, GFP_KERNEL));
	KUNIT_EXPECT_FALSE(test, keel_numbers_are_free(numbers));
	KUNIT_EXPECT_EQ(test, -EBUSY, keel_number_reserve(numbers, 1, GFP_KERNEL));
	KUNIT_EXPECT_EQ(test, 0, keel_number_add(numbers, &got, NULL, NULL, GFP_KERNEL));
	KUNIT_EXPECT_EQ(test, 2, got);
	KUNIT_EXPECT_NULL(test, keel_number_load(numbers, 1));
	KUNIT_EXPECT_NULL(test, keel_number_load(numbers, 2));
	keel_number_publish(numbers, 1, &entry[1]);
	keel_number_publish(numbers, 2, &entry[2]);
	KUNIT_EXPECT_PTR_EQ(test, (char *)keel_number_load(numbers, 1), &entry[1]);
	KUNIT_EXPECT_PTR_EQ(test, (char *)keel_number_load(numbers, 2), &entry[2]);
	/* The number that was freed last is free. */
	drop(test, 1);
	KUNIT_EXPECT_EQ(test, 0, keel_number_reserve(numbers, 1, GFP_KERNEL));
	KUNIT_EXPECT_EQ(test, -EBUSY, keel_number_reserve(numbers, 1, GFP_KERNEL));
	drop(test, 2);
	drop(test, 1);
	KUNIT_EXPECT_TRUE(test, keel_numbers_are_free(numbers));
	keel_numbers_fini(numbers, "test");
}

/* Objects that come and go one after the other use the same nodes. */
static void numbers_nodes_stay(struct kunit *test)
{
	struct keel_numbers *numbers = test->priv;
	void *root;
	u32 i;

	keel_numbers_init(numbers, 1, INT_MAX);
	numbers->next = 100000;
	add(test, 100000, 0);
	root = rcu_access_pointer(numbers->xa.xa_head);
	KUNIT_ASSERT_NOT_NULL(test, root);
	for (i = 100000; i < 100200; i++) {
		drop(test, i);
		KUNIT_ASSERT_PTR_EQ(test, root, rcu_access_pointer(numbers->xa.xa_head));
		KUNIT_ASSERT_TRUE(test, keel_numbers_are_free(numbers));
		add(test, i + 1, 0);
	}
	drop(test, i);
	keel_numbers_fini(numbers, "test");
}

static struct kunit_case numbers_cases[] = {
	KUNIT_CASE(numbers_go_round),
	KUNIT_CASE(numbers_all_used),
	KUNIT_CASE(numbers_reserve),
	KUNIT_CASE(numbers_nodes_stay),
	{}
};

static struct kunit_suite numbers_suite = {
	.name = "keel_numbers",
	.init = numbers_init,
	.test_cases = numbers_cases,
};
kunit_test_suite(numbers_suite);
