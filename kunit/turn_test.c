// SPDX-License-Identifier: GPL-2.0
/*
 * The order in which those that wait for a link are woken.
 */
#include <kunit/test.h>
#include <linux/prandom.h>

#include "keel_quota.h"
#include "keel_wire.h"

#define USERS	3
#define WAITS	24
#define STEPS	4000

/**
 * struct turn_test - what waits, and a model of it
 * @turns: what waits
 * @users: users; the first one is the kernel
 * @wait: what may wait
 * @came: model: number of its arrival, or 0
 * @turn: model: of each user of which something waits, its place in turn
 * @count: numbers given so far
 */
struct turn_test {
	struct keel_turns turns;
	const struct keel_user *users[USERS];
	struct keel_link_wait wait[WAITS];
	u64 came[WAITS];
	u64 turn[USERS];
	u64 count;
};

static struct turn_test *turn_make(struct kunit *test)
{
	struct turn_test *t = kunit_kzalloc(test, sizeof(*t), GFP_KERNEL);
	int i;

	KUNIT_ASSERT_NOT_NULL(test, t);
	keel_turns_init(&t->turns);
	for (i = 1; i < USERS; i++) {
		t->users[i] = kunit_kzalloc(test, sizeof(*t->users[i]), GFP_KERNEL);
		KUNIT_ASSERT_NOT_NULL(test, t->users[i]);
	}
	for (i = 0; i < WAITS; i++)
		keel_wait_init(&t->wait[i], NULL, t->users[i % USERS]);
	return t;
}

/* The next ones are those with these numbers, and then nothing waits. */
static void next_are(struct kunit *test, struct turn_test *t, const int *nr, int n)
{
	int i;

	for (i = 0; i < n; i++)
		KUNIT_EXPECT_PTR_EQ(test, &t->wait[nr[i]], keel_turns_next(&t->turns));
	KUNIT_EXPECT_TRUE(test, keel_turns_empty(&t->turns));
	KUNIT_EXPECT_NULL(test, keel_turns_next(&t->turns));
}

/* ISO-1: one of each user in turn, and those of a user in the order in which they came. */
static void iso_1_order(struct kunit *test)
{
	static const int nr[] = { 0, 1, 2, 3, 5, 6, 9 };
	struct turn_test *t = turn_make(test);

	keel_turns_add(&t->turns, &t->wait[0]);
	keel_turns_add(&t->turns, &t->wait[3]);
	keel_turns_add(&t->turns, &t->wait[6]);
	keel_turns_add(&t->turns, &t->wait[9]);
	keel_turns_add(&t->turns, &t->wait[1]);
	keel_turns_add(&t->turns, &t->wait[2]);
	keel_turns_add(&t->turns, &t->wait[5]);
	next_are(test, t, nr, ARRAY_SIZE(nr));
}

/* ISO-1: one that waits no more leaves its turn to the next one of its user. */
static void iso_1_leave(struct kunit *test)
{
	static const int nr[] = { 6, 1, 9 };
	struct turn_test *t = turn_make(test);

	keel_turns_add(&t->turns, &t->wait[0]);
	keel_turns_add(&t->turns, &t->wait[3]);
	keel_turns_add(&t->turns, &t->wait[1]);
	keel_turns_add(&t->turns, &t->wait[6]);
	keel_turns_add(&t->turns, &t->wait[9]);
	keel_turns_add(&t->turns, &t->wait[2]);
	keel_turns_del(&t->turns, &t->wait[0]);
	keel_turns_del(&t->turns, &t->wait[3]);
	keel_turns_del(&t->turns, &t->wait[2]);
	/* Twice, and one that has not waited. */
	keel_turns_del(&t->turns, &t->wait[2]);
	keel_turns_del(&t->turns, &t->wait[8]);
	next_are(test, t, nr, ARRAY_SIZE(nr));
}

/* Model: the number of the one whose turn it is, or -1. */
static int model_next(const struct turn_test *t)
{
	int user = -1, i, nr = -1;

	for (i = 0; i < WAITS; i++)
		if (t->came[i] && (user < 0 || t->turn[i % USERS] < t->turn[user]))
			user = i % USERS;
	for (i = 0; i < WAITS; i++)
		if (t->came[i] && i % USERS == user && (nr < 0 || t->came[i] < t->came[nr]))
			nr = i;
	return nr;
}

static bool model_waits(const struct turn_test *t, int user)
{
	int i;

	for (i = user; i < WAITS; i += USERS)
		if (t->came[i])
			return true;
	return false;
}

static void model_step(struct kunit *test, struct turn_test *t, u32 random)
{
	int nr = random / 4 % WAITS, user = nr % USERS, next;

	switch (random % 4) {
	case 0:
	case 1:
		if (t->came[nr])
			break;
		if (!model_waits(t, user))
			t->turn[user] = ++t->count;
		t->came[nr] = ++t->count;
		keel_turns_add(&t->turns, &t->wait[nr]);
		break;
	case 2:
		t->came[nr] = 0;
		keel_turns_del(&t->turns, &t->wait[nr]);
		break;
	default:
		next = model_next(t);
		KUNIT_EXPECT_PTR_EQ(test, next < 0 ? NULL : &t->wait[next],
				    keel_turns_next(&t->turns));
		if (next < 0)
			break;
		t->came[next] = 0;
		t->turn[next % USERS] = ++t->count;
	}
}

/* ISO-1: the order is that of a simple model, whatever comes and goes. */
static void iso_1_model(struct kunit *test)
{
	struct turn_test *t = turn_make(test);
	struct rnd_state random;
	int i;

	prandom_seed_state(&random, 1);
	for (i = 0; i < STEPS && !test->status; i++)
		model_step(test, t, prandom_u32_state(&random));
	for (i = 0; i < WAITS; i++)
		keel_turns_del(&t->turns, &t->wait[i]);
	KUNIT_EXPECT_TRUE(test, keel_turns_empty(&t->turns));
	KUNIT_EXPECT_TRUE(test, RB_EMPTY_ROOT(&t->turns.users));
}

static struct kunit_case turn_cases[] = {
	KUNIT_CASE(iso_1_order),
	KUNIT_CASE(iso_1_leave),
	KUNIT_CASE(iso_1_model),
	{}
};

static struct kunit_suite turn_suite = {
	.name = "keel_turn",
	.test_cases = turn_cases,
};

kunit_test_suite(turn_suite);
