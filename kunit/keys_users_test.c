// SPDX-License-Identifier: GPL-2.0
/*
 * References on a key, and the owner that invalidates the key meanwhile.
 */
#include <kunit/test.h>
#include <linux/err.h>
#include <linux/slab.h>
#include <rdma/ib_verbs.h>

#include "keel_copy.h"
#include "table.h"
#include "threads.h"

/* One thread invalidates a key that another thread uses, and waits for the user. */
struct back {
	struct kunit *test;
	struct keel_keys *keys;
	struct keel_key *key;
	struct keel_key *by;
	struct keel_drain *drain;
	const struct task_struct *owner;
	bool returned;
};

static void back_thread(void *arg, unsigned int who)
{
	const struct task_struct *owner;
	struct back *b = arg;

	if (who == 0) {
		WRITE_ONCE(b->owner, current);
		if (b->drain) {
			keel_key_erase(b->keys, b->key);
			keel_drain_wait(b->drain);
		} else if (b->by) {
			keel_key_replace(b->keys, b->key, b->by);
		} else {
			keel_key_remove(b->keys, b->key);
		}
		WRITE_ONCE(b->returned, true);
	}
	if (who != 1)
		return;
	while (!(owner = READ_ONCE(b->owner)) || !READ_ONCE(b->key->dead))
		threads_yield();
	/* The owner waits for the user, and no thread finds the key. */
	KUNIT_EXPECT_TRUE(b->test, threads_idles(owner));
	KUNIT_EXPECT_FALSE(b->test, READ_ONCE(b->returned));
	KUNIT_EXPECT_EQ(b->test, -ENOENT,
			key_ask(b->test, b->key->key, MINE, 0, IOVA, 1));
	KUNIT_EXPECT_EQ(b->test, 1, refcount_read(&b->key->users));
	keel_key_put(b->key);
}

/* SPD-7, ISO-1: after keel_key_remove(), no thread uses the memory of the key. */
static void spd_7_remove_waits(struct kunit *test)
{
	struct dummy *mr = dummy_new(test, KEEL_MR, 'm', NULL, NULL);
	struct back b = {
		.test = test,
		.keys = table_keys(test),
		.key = key_new(test, mr),
	};

	KUNIT_ASSERT_PTR_EQ(test, b.key,
			    keel_key_get(b.keys, b.key->key, MINE, ACCESS,
					 IOVA, 1));
	KUNIT_EXPECT_FALSE(test, b.key->dead);
	KUNIT_EXPECT_EQ(test, 2, refcount_read(&b.key->users));
	threads_run(test, back_thread, &b);
	KUNIT_EXPECT_TRUE(test, b.returned);
	KUNIT_EXPECT_EQ(test, 0, refcount_read(&b.key->users));
	dummy_close(mr);
}

/* Likewise for keel_key_replace(). The new key works immediately. */
static void keys_replace_waits(struct kunit *test)
{
	struct dummy *mw = dummy_new(test, KEEL_MW, 'w', NULL, NULL);
	struct keel_key new = {
		.domain = MINE, .iova = IOVA, .length = 4, .obj = &mw->obj,
	};
	struct back b = {
		.test = test,
		.keys = table_keys(test),
		.key = key_new(test, mw),
		.by = &new,
	};

	new.key = b.key->key ^ 5;
	KUNIT_ASSERT_PTR_EQ(test, b.key,
			    keel_key_get(b.keys, b.key->key, MINE, ACCESS,
					 IOVA, 1));
	threads_run(test, back_thread, &b);
	KUNIT_EXPECT_TRUE(test, b.returned);
	KUNIT_EXPECT_EQ(test, 0, key_ask(test, new.key, MINE, 0, IOVA, 4));
	KUNIT_EXPECT_EQ(test, -ERANGE,
			key_ask(test, new.key, MINE, 0, IOVA, 5));
	KUNIT_EXPECT_EQ(test, -EACCES,
			key_ask(test, new.key, MINE, ACCESS, IOVA, 4));
	KUNIT_EXPECT_EQ(test, -ENOENT,
			key_ask(test, b.key->key, MINE, 0, IOVA, 1));
	keel_key_remove(b.keys, &new);
	dummy_close(mw);
}

/* As key_ask(), with keel_key_find(). */
static int key_ask_find(struct kunit *test, u32 key, u32 domain)
{
	struct keel_key *k = keel_key_find(table_keys(test), key, domain);

	if (IS_ERR(k))
		return PTR_ERR(k);
	KUNIT_EXPECT_EQ(test, key, k->key);
	keel_key_put(k);
	return 0;
}

/* SPD-7: likewise for an owner that waits for all its keys. */
static void check_drain_waits(struct kunit *test, bool of_region)
{
	struct dummy *mw = dummy_new(test, KEEL_MW, 'w', NULL, NULL);
	struct keel_drain own = {}, region = {};
	struct keel_keys *keys = table_keys(test);
	struct keel_key *null_key = key_new(test, mw);
	struct keel_key key = {
		.key = null_key->key ^ 5, .domain = MINE, .access = ACCESS,
		.iova = IOVA, .length = 4, .obj = &mw->obj,
		.drain = &own, .region = &region,
	};
	struct back b = {
		.test = test, .keys = keys, .key = &key,
		.drain = of_region ? &region : &own,
	};

	KUNIT_EXPECT_EQ(test, 0, atomic_read(&own.keys));
	keel_key_replace(keys, null_key, &key);
	KUNIT_EXPECT_EQ(test, 1, atomic_read(&own.keys));
	KUNIT_EXPECT_EQ(test, 1, atomic_read(&region.keys));
	KUNIT_ASSERT_PTR_EQ(test, &key,
			    keel_key_get(keys, key.key, MINE, ACCESS, IOVA, 1));
	threads_run(test, back_thread, &b);
	KUNIT_EXPECT_TRUE(test, b.returned);
	KUNIT_EXPECT_EQ(test, 0, atomic_read(&own.keys));
	KUNIT_EXPECT_EQ(test, 0, atomic_read(&region.keys));
	/* A lookup may still read the key on this stack. */
	synchronize_rcu();
	dummy_close(mw);
}

static void spd_7_drain_waits(struct kunit *test)
{
	check_drain_waits(test, false);
}

static void spd_7_region_drain_waits(struct kunit *test)
{
	check_drain_waits(test, true);
}

/* A key without references is not found, although it is still listed. */
static void keys_last_use_is_over(struct kunit *test)
{
	struct dummy *mr = dummy_new(test, KEEL_MR, 'm', NULL, NULL);
	struct keel_key *key = key_new(test, mr);

	refcount_set(&key->users, 0);
	KUNIT_EXPECT_EQ(test, -ENOENT,
			key_ask(test, key->key, MINE, 0, IOVA, 1));
	KUNIT_EXPECT_EQ(test, -ENOENT,
			key_ask_find(test, key->key, MINE));
	KUNIT_EXPECT_EQ(test, 0, refcount_read(&key->users));
	refcount_set(&key->users, 1);
	keel_key_remove(table_keys(test), key);
	dummy_close(mr);
}

/* PD-4: finds a key without rights and bytes, but not of another domain. */
static void pd_4_find(struct kunit *test)
{
	struct dummy *mw = dummy_new(test, KEEL_MW, 'w', NULL, NULL);
	struct keel_key *key = key_new(test, mw);
	struct keel_keys *keys = table_keys(test);

	key->access = 0;
	key->length = 0;
	KUNIT_ASSERT_PTR_EQ(test, key, keel_key_find(keys, key->key, MINE));
	KUNIT_EXPECT_EQ(test, 2, refcount_read(&key->users));
	keel_key_put(key);
	KUNIT_EXPECT_EQ(test, -EPERM,
			key_ask_find(test, key->key, OTHERS));
	KUNIT_EXPECT_EQ(test, -ENOENT,
			key_ask_find(test, key->key ^ 1, MINE));
	KUNIT_EXPECT_EQ(test, 1, refcount_read(&key->users));
	keel_key_remove(keys, key);
	KUNIT_EXPECT_EQ(test, -ENOENT,
			key_ask_find(test, key->key, MINE));
	dummy_close(mw);
}

/* As key_ask(), with keel_key_peek(). */
static int key_ask_peek(struct kunit *test, u32 key, u32 domain)
{
	struct keel_key *k;

	guard(rcu)();
	k = keel_key_peek(table_keys(test), key, domain);
	if (IS_ERR(k))
		return PTR_ERR(k);
	KUNIT_EXPECT_EQ(test, key, k->key);
	return 0;
}

/* PD-4: likewise without a reference, even if the last one is dropped. */
static void pd_4_peek(struct kunit *test)
{
	struct dummy *mw = dummy_new(test, KEEL_MW, 'w', NULL, NULL);
	struct keel_key *key = key_new(test, mw);
	u32 num = key->key;

	KUNIT_EXPECT_EQ(test, 0, key_ask_peek(test, num, MINE));
	KUNIT_EXPECT_EQ(test, -EPERM, key_ask_peek(test, num, OTHERS));
	KUNIT_EXPECT_EQ(test, -ENOENT, key_ask_peek(test, num ^ 1, MINE));
	KUNIT_EXPECT_EQ(test, 1, refcount_read(&key->users));
	keel_key_erase(table_keys(test), key);
	KUNIT_EXPECT_EQ(test, -ENOENT, key_ask_peek(test, num, MINE));
	KUNIT_EXPECT_TRUE(test, keel_key_try_drain(key));
	dummy_close(mw);
}

/* ISO-1: a key is replaced, and then erased, without a wait for its user. */
static void iso_1_exchange(struct kunit *test)
{
	struct dummy *mw = dummy_new(test, KEEL_MW, 'w', NULL, NULL);
	struct keel_keys *keys = table_keys(test);
	struct keel_key *old = key_new(test, mw);
	struct keel_key new = {
		.key = old->key ^ 5, .domain = MINE, .obj = &mw->obj,
	};

	KUNIT_ASSERT_PTR_EQ(test, old, keel_key_find(keys, old->key, MINE));
	keel_key_exchange(keys, old, &new);
	KUNIT_EXPECT_TRUE(test, old->dead);
	KUNIT_EXPECT_FALSE(test, keel_key_try_drain(old));
	KUNIT_EXPECT_EQ(test, -ENOENT, key_ask_find(test, old->key, MINE));
	KUNIT_ASSERT_PTR_EQ(test, &new, keel_key_find(keys, new.key, MINE));
	keel_key_erase(keys, &new);
	KUNIT_EXPECT_TRUE(test, new.dead);
	KUNIT_EXPECT_FALSE(test, keel_key_try_drain(&new));
	KUNIT_EXPECT_EQ(test, -ENOENT, key_ask_find(test, new.key, MINE));
	keel_key_put(&new);
	KUNIT_EXPECT_TRUE(test, keel_key_try_drain(&new));
	KUNIT_EXPECT_FALSE(test, keel_key_try_drain(old));
	keel_key_put(old);
	/* None waits; several threads may drain a key. */
	keel_key_drain(old);
	keel_key_drain(old);
	keel_key_drain(&new);
	/* A lookup may still read the key on this stack. */
	synchronize_rcu();
	dummy_close(mw);
}

#define SWAPS		2000
#define SWAPS_ALONE	64	/* until another thread must find a key */
#define ALIVE		0x600dULL

struct swaps {
	struct keel_keys *keys;
	struct keel_key __rcu *slot;
	struct keel_obj *obj;
	struct keel_mem mem[2];
	u32 index;
	bool done;
	atomic_t found;
	atomic_t wrong;
};

static struct keel_key *swap_key(struct swaps *s, unsigned int i)
{
	struct keel_key *key = kzalloc(sizeof(*key), GFP_KERNEL);

	if (!key)
		return NULL;
	key->key = s->index | (u8)i;
	key->domain = MINE;
	key->length = 8;
	key->mem = &s->mem[i % 2];
	key->obj = s->obj;
	s->mem[i % 2].start = ALIVE + i;
	return key;
}

/* Wait until another thread finds a key: the others may not run for a while. */
static void swap_wait(struct swaps *s)
{
	int before = atomic_read(&s->found);

	while (atomic_read(&s->found) == before)
		threads_yield();
}

static void swap_owner(struct swaps *s)
{
	struct keel_key *key;
	unsigned int i;

	for (i = 1; i <= SWAPS; i++) {
		key = swap_key(s, i);
		if (!key)
			break;
		keel_key_swap(s->keys, &s->slot, key);
		/* No thread uses the memory of the old key. */
		WRITE_ONCE(s->mem[!(i % 2)].start, 0);
		if (!(i % SWAPS_ALONE))
			swap_wait(s);
	}
	WRITE_ONCE(s->done, true);
}

static void swap_thread(void *arg, unsigned int who)
{
	struct swaps *s = arg;
	struct keel_key *k;
	u64 start;
	u8 low = 0;

	if (!who) {
		swap_owner(s);
		return;
	}
	while (!READ_ONCE(s->done)) {
		k = keel_key_get(s->keys, s->index | low++, MINE, 0, 0, 8);
		if (IS_ERR(k)) {
			if (!low)
				threads_yield();
			continue;
		}
		start = READ_ONCE(k->mem->start);
		atomic_inc(&s->found);
		threads_yield();
		if (start < ALIVE || READ_ONCE(k->mem->start) != start)
			atomic_inc(&s->wrong);
		keel_key_put(k);
	}
}

/* Swap keys while other threads use them: a found key does not change. */
static void keys_swap_threads(struct kunit *test)
{
	struct dummy *mw = dummy_new(test, KEEL_MW, 'w', NULL, NULL);
	struct swaps *s = kunit_kzalloc(test, sizeof(*s), GFP_KERNEL);
	struct keel_key *key;

	KUNIT_ASSERT_NOT_NULL(test, s);
	s->keys = table_keys(test);
	s->obj = &mw->obj;
	key = swap_key(s, 0);
	KUNIT_ASSERT_NOT_NULL(test, key);
	KUNIT_ASSERT_EQ(test, 0, keel_key_insert(s->keys, key));
	s->index = key->key & ~255U;
	rcu_assign_pointer(s->slot, key);
	threads_run(test, swap_thread, s);
	KUNIT_EXPECT_EQ(test, 0, atomic_read(&s->wrong));
	KUNIT_EXPECT_GE(test, atomic_read(&s->found), SWAPS / SWAPS_ALONE);
	key = rcu_dereference_protected(s->slot, true);
	KUNIT_EXPECT_EQ(test, s->index | SWAPS % 256, key->key);
	keel_key_remove(s->keys, key);
	kfree_rcu(key, rcu);
	dummy_close(mw);
}

static struct kunit_case keys_users_cases[] = {
	KUNIT_CASE(spd_7_remove_waits),
	KUNIT_CASE(spd_7_drain_waits),
	KUNIT_CASE(spd_7_region_drain_waits),
	KUNIT_CASE(keys_replace_waits),
	KUNIT_CASE(keys_last_use_is_over),
	KUNIT_CASE(pd_4_find),
	KUNIT_CASE(pd_4_peek),
	KUNIT_CASE(iso_1_exchange),
	KUNIT_CASE(keys_swap_threads),
	{}
};

static struct kunit_suite keys_users_suite = {
	.name = "keel_keys_users",
	.init = table_init,
	.exit = table_exit,
	.test_cases = keys_users_cases,
};
kunit_test_suite(keys_users_suite);
