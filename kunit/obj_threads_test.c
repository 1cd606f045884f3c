// SPDX-License-Identifier: GPL-2.0
/*
 * The registry of objects with several threads. The tests check that each
 * object is released exactly once and that no object is left. The checkers of a
 * debug kernel detect all other errors.
 */
#include <kunit/test.h>
#include <linux/err.h>
#include <linux/prandom.h>

#include "dummy_obj.h"
#include "threads.h"

/* Checkers are ten times slower, but detect more in each round. */
#define ROUNDS	(IS_ENABLED(CONFIG_KASAN) ? 100 : 400)
#define BIRTHS	(IS_ENABLED(CONFIG_KASAN) ? 400 : 16000)
#define LIMIT	1
/* Factor for the maximum rounds of threads that wait for other threads. */
#define PATIENCE	20000
#define NUMBERS	4

struct threads_state {
	struct dummies *dummies;
	struct dummy *shared;
	atomic_t born, refused, found, wrong, done;
};

static struct threads_state *state_new(struct kunit *test)
{
	struct threads_state *s = kunit_kzalloc(test, sizeof(*s), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, s);
	s->dummies = test->priv;
	return s;
}

static void get_and_put(void *arg, unsigned int who)
{
	struct threads_state *s = arg;
	int i;

	for (i = 0; i < ROUNDS * 5; i++) {
		if (i % 2)
			keel_obj_get(&s->shared->obj);
		else if (!keel_obj_tryget(&s->shared->obj))
			atomic_inc(&s->wrong);
		keel_obj_put(&s->shared->obj);
	}
}

/* All references that are taken are dropped. */
static void obj_threads_refs(struct kunit *test)
{
	struct threads_state *s = state_new(test);

	s->shared = dummy_new(test, KEEL_PD, 'p', NULL, NULL);
	threads_run(test, get_and_put, s);
	KUNIT_EXPECT_EQ(test, 0, atomic_read(&s->wrong));
	KUNIT_EXPECT_EQ(test, 1, dummy_refs(s->shared));
	KUNIT_EXPECT_EQ(test, 0, s->dummies->released);
	dummy_close(s->shared);
	KUNIT_EXPECT_EQ(test, 1, s->dummies->released);
}

static void make_child(struct threads_state *s)
{
	struct keel_uapi_holder list[2];
	struct dummy *mr;

	mr = dummy_try(s->dummies, KEEL_MR, 'm', s->shared, NULL);
	if (IS_ERR(mr)) {
		if (PTR_ERR(mr) != -ENOMEM)
			atomic_inc(&s->wrong);
		atomic_inc(&s->refused);
		return;
	}
	atomic_inc(&s->born);
	if (atomic64_read(&s->dummies->reg.quotas.count[KEEL_MR]) > LIMIT)
		atomic_inc(&s->wrong);
	/* @mr is among the holders, whatever other threads do. */
	if (!keel_obj_holders(&s->shared->obj, list, 2))
		atomic_inc(&s->wrong);
	dummy_close(mr);
}

static void make_children(void *arg, unsigned int who)
{
	struct threads_state *s = arg;
	int i;

	for (i = 0; i < PATIENCE * ROUNDS; i++) {
		if (atomic_read(&s->born) >= BIRTHS)
			break;
		make_child(s);
		if (i % 16 == 0)
			threads_yield();
	}
}

/*
 * PD-2, PD-5: threads create and destroy children of a PD, with a limit of one
 * child. Two processors are enough to reach this limit.
 */
static void pd_2_pd_5_threads_children(struct kunit *test)
{
	struct threads_state *s = state_new(test);

	s->dummies->reg.quotas.limit[KEEL_MR] = LIMIT;
	s->shared = dummy_new(test, KEEL_PD, 'p', NULL, NULL);
	threads_run(test, make_children, s);
	KUNIT_EXPECT_EQ(test, 0, atomic_read(&s->wrong));
	KUNIT_EXPECT_GE(test, atomic_read(&s->born), BIRTHS);
	KUNIT_EXPECT_EQ(test, atomic_read(&s->born), s->dummies->released);
	KUNIT_EXPECT_EQ(test, 0, keel_obj_holders(&s->shared->obj, NULL, 0));
	KUNIT_EXPECT_EQ(test, 1, dummy_refs(s->shared));
	kunit_info(test, "%d born, %d refused", atomic_read(&s->born),
		   atomic_read(&s->refused));
	dummy_close(s->shared);
}

static void close_parent_first(void *arg, unsigned int who)
{
	struct threads_state *s = arg;
	struct dummy *pd, *mr;
	int i;

	for (i = 0; i < ROUNDS; i++) {
		pd = dummy_try(s->dummies, KEEL_PD, 'p', s->shared, NULL);
		if (IS_ERR(pd)) {
			atomic_inc(&s->wrong);
			continue;
		}
		mr = dummy_try(s->dummies, KEEL_DM_MR, 'm', pd, s->shared);
		if (IS_ERR(mr))
			atomic_inc(&s->wrong);
		dummy_close(pd);
		if (!IS_ERR(mr))
			dummy_close(mr);
		atomic_add(2, &s->born);
		threads_yield();
	}
}

/* Several threads release chains that end at one object. */
static void obj_threads_chains(struct kunit *test)
{
	struct threads_state *s = state_new(test);

	s->shared = dummy_new(test, KEEL_DOMAIN, 'd', NULL, NULL);
	threads_run(test, close_parent_first, s);
	KUNIT_EXPECT_EQ(test, 0, atomic_read(&s->wrong));
	KUNIT_EXPECT_EQ(test, atomic_read(&s->born), s->dummies->released);
	KUNIT_EXPECT_EQ(test, 1, dummy_refs(s->shared));
	dummy_close(s->shared);
}

/*
 * Create objects, and close each after the next one. Numbers always start at 1,
 * so that lookups find the objects.
 */
static void make_some(struct threads_state *s)
{
	struct dummy *ah, *last = NULL;
	int i;

	for (i = 0; i < PATIENCE * ROUNDS; i++) {
		/* Enough rounds, and enough lookups succeeded. */
		if (i >= ROUNDS && atomic_read(&s->found) >= ROUNDS)
			break;
		WRITE_ONCE(s->dummies->reg.objs[KEEL_AH].next, 1);
		ah = dummy_try(s->dummies, KEEL_AH, 'a', NULL, NULL);
		if (IS_ERR(ah)) {
			atomic_inc(&s->wrong);
			continue;
		}
		atomic_inc(&s->born);
		if (last)
			dummy_close(last);
		last = ah;
		threads_yield();
	}
	if (last)
		dummy_close(last);
	atomic_inc(&s->done);
}

static void find_one(struct threads_state *s, unsigned long id)
{
	struct keel_obj *obj;

	rcu_read_lock();
	obj = keel_number_load(&s->dummies->reg.objs[KEEL_AH], id);
	if (obj && !keel_obj_tryget(obj))
		obj = NULL;
	rcu_read_unlock();
	threads_yield();
	if (!obj)
		return;
	atomic_inc(&s->found);
	/* The object cannot change while a reference is held. */
	if (obj->kind != KEEL_AH || obj->id != id)
		atomic_inc(&s->wrong);
	keel_obj_put(obj);
}

static void make_or_find(void *arg, unsigned int who)
{
	struct threads_state *s = arg;
	struct rnd_state rnd;

	if (who % 2) {
		make_some(s);
		return;
	}
	prandom_seed_state(&rnd, who + 1);
	while (atomic_read(&s->done) < THREADS / 2)
		find_one(s, 1 + prandom_u32_state(&rnd) % NUMBERS);
}

/* A lookup returns a live object or no object. */
static void obj_threads_lookup(struct kunit *test)
{
	struct threads_state *s = state_new(test);

	threads_run(test, make_or_find, s);
	KUNIT_EXPECT_EQ(test, 0, atomic_read(&s->wrong));
	KUNIT_EXPECT_EQ(test, atomic_read(&s->born), s->dummies->released);
	kunit_info(test, "%d born, %d found", atomic_read(&s->born),
		   atomic_read(&s->found));
	KUNIT_EXPECT_GE(test, atomic_read(&s->found), ROUNDS);
}

static struct kunit_case obj_threads_test_cases[] = {
	KUNIT_CASE(obj_threads_refs),
	KUNIT_CASE(pd_2_pd_5_threads_children),
	KUNIT_CASE(obj_threads_chains),
	KUNIT_CASE(obj_threads_lookup),
	{}
};

static struct kunit_suite obj_threads_test_suite = {
	.name = "keel_obj_threads",
	.init = dummies_init,
	.exit = dummies_exit,
	.test_cases = obj_threads_test_cases,
};
kunit_test_suite(obj_threads_test_suite);
