// SPDX-License-Identifier: GPL-2.0
/*
 * Forced orders of the table of keys: an owner removes a key while another thread
 * looks it up, or drops the last reference. See keel_point.h and orders_test.c.
 */
#include <linux/completion.h>
#include <linux/err.h>
#include <linux/kthread.h>
#include <linux/sched/task.h>

#include "keel_keys.h"
#include "keel_point.h"
#include "table.h"
#include "threads.h"

/**
 * struct key_order - a point, and what is called there
 * @name: name of the point
 * @act: called once, in the first thread that comes there
 * @test: the test
 * @keys: the table
 * @key: the key
 * @cache: a last-lookup cache of @keys
 * @mr: the object of @key
 * @owner: the thread that removes and frees @key, or NULL
 * @freed: completed when it has
 * @hits: how often a thread came to the point
 */
static struct key_order {
	const char *name;
	void (*act)(void);
	struct kunit *test;
	struct keel_keys *keys;
	struct keel_key *key;
	struct keel_key_cache cache;
	struct dummy *mr;
	struct task_struct *owner;
	struct completion freed;
	int hits;
} order;

static void order_hook(const char *name)
{
	if (!strcmp(name, order.name) && ++order.hits == 1)
		order.act();
}

static void order_begin(struct kunit *test, const char *name,
			void (*act)(void))
{
	order = (struct key_order){
		.name = name,
		.act = act,
		.test = test,
		.keys = table_keys(test),
		.mr = dummy_new(test, KEEL_MR, 'm', NULL, NULL),
	};
	order.key = key_new(test, order.mr);
	init_completion(&order.freed);
	WRITE_ONCE(keel_point_hook.hit, order_hook);
}

static void order_end(struct kunit *test)
{
	WRITE_ONCE(keel_point_hook.hit, NULL);
	KUNIT_EXPECT_EQ(test, 1, order.hits);
	dummy_close(order.mr);
}

static void order_exit(struct kunit *test)
{
	WRITE_ONCE(keel_point_hook.hit, NULL);
	table_exit(test);
}

/* All of keel_key_remove() but its wait, for a thread that may not sleep. */
static void act_remove(void)
{
	keel_number_remove(&order.keys->numbers, order.key->key >> 8);
	keel_key_put(order.key);
}

/* Fails if a lookup takes a reference on a key that nobody uses any more. */
static void order_key_get(struct kunit *test)
{
	order_begin(test, "key_found", act_remove);
	KUNIT_EXPECT_EQ(test, -ENOENT,
			key_ask(test, order.key->key, MINE, ACCESS, IOVA, 1));
	KUNIT_EXPECT_EQ(test, 0, refcount_read(&order.key->users));
	order_end(test);
}

/* The same. */
static void order_key_find(struct kunit *test)
{
	struct keel_key *key;

	order_begin(test, "key_found", act_remove);
	key = keel_key_find(order.keys, order.key->key, MINE);
	KUNIT_EXPECT_EQ(test, -ENOENT, PTR_ERR_OR_ZERO(key));
	KUNIT_EXPECT_EQ(test, 0, refcount_read(&order.key->users));
	order_end(test);
}

static struct keel_key *look_up(void)
{
	guard(rcu)();
	return keel_key_cached(order.keys, &order.cache, order.key->key);
}

static void act_look_up(void)
{
	look_up();
}

/*
 * A thread fills its cache while a key is removed. Fails if the count of
 * invalidated keys changes at the other side of the point, before the key is erased.
 */
static void order_key_erased(struct kunit *test)
{
	order_begin(test, "key_erased", act_look_up);
	KUNIT_EXPECT_PTR_EQ(test, order.key, look_up());
	order.cache = (struct keel_key_cache){};
	keel_key_remove(order.keys, order.key);
	KUNIT_EXPECT_PTR_EQ(test, NULL, look_up());
	order_end(test);
}

static int owner_run(void *arg)
{
	keel_key_remove(order.keys, order.key);
	synchronize_rcu();
	kunit_kfree(order.test, order.key);
	complete(&order.freed);
	return 0;
}

/* The owner finds that nobody uses the key, without being woken for it. */
static void act_free(void)
{
	wake_up_process(order.owner);
	wait_for_completion(&order.freed);
}

/*
 * The key is freed before its last user has woken the owner. Fails, with KASAN, if
 * keel_key_put() uses it after that.
 */
static void order_key_unused(struct kunit *test)
{
	struct keel_key *key;

	order_begin(test, "key_unused", act_free);
	key = keel_key_find(order.keys, order.key->key, MINE);
	KUNIT_ASSERT_PTR_EQ(test, order.key, key);
	order.owner = kthread_create(owner_run, NULL, "keel-owner");
	KUNIT_ASSERT_FALSE(test, IS_ERR(order.owner));
	get_task_struct(order.owner);
	wake_up_process(order.owner);
	/* The owner waits, and this thread has the last reference. */
	while (refcount_read(&key->users) != 1)
		threads_yield();
	keel_key_put(key);
	put_task_struct(order.owner);
	order_end(test);
}

static void act_leave(void)
{
	keel_keys_leave();
}

/*
 * A thread uses a key in a section while the key is removed. Fails if the owner does not
 * wait for the end of the section, which the action brings about.
 */
static void order_key_section(struct kunit *test)
{
	bool usable, dead, drained;

	if (!KEEL_KEY_SECTIONS)
		kunit_skip(test, "threads may be preempted in sections");
	order_begin(test, "section_waits", act_leave);
	scoped_guard(preempt) {
		keel_keys_enter();
		usable = keel_key_usable(order.key);
		keel_key_erase(order.keys, order.key);
		dead = !keel_key_usable(order.key);
		drained = keel_key_try_drain(order.key);
	}
	KUNIT_EXPECT_TRUE(test, usable);
	KUNIT_EXPECT_TRUE(test, dead);
	KUNIT_EXPECT_TRUE(test, drained);
	order_end(test);
}

static struct kunit_case order_key_cases[] = {
	KUNIT_CASE(order_key_get),
	KUNIT_CASE(order_key_find),
	KUNIT_CASE(order_key_erased),
	KUNIT_CASE(order_key_unused),
	KUNIT_CASE(order_key_section),
	{}
};

static struct kunit_suite order_key_suite = {
	.name = "keel_orders_key",
	.init = table_init,
	.exit = order_exit,
	.test_cases = order_key_cases,
};
kunit_test_suite(order_key_suite);
