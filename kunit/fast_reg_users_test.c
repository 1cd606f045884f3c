// SPDX-License-Identifier: GPL-2.0
/*
 * A fast registration whose key a thread uses, while another thread invalidates the
 * key, and the owner deregisters the region.
 */
#include <linux/slab.h>

#include "keel_domain.h"
#include "keel_mr.h"
#include "pair.h"
#include "threads.h"

/**
 * struct used - a region whose key is in use
 * @test: the test
 * @ib: the region, deregistered by one thread
 * @mr: the same
 * @key: its key, invalidated; the other thread drops the reference
 * @returned: ib_dereg_mr() has returned
 */
struct used {
	struct kunit *test;
	struct ib_mr *ib;
	struct keel_mr *mr;
	struct keel_key *key;
	bool returned;
};

static void used_thread(void *arg, unsigned int who)
{
	struct used *u = arg;
	int i;

	if (who == 0) {
		KUNIT_EXPECT_EQ(u->test, 0, ib_dereg_mr(u->ib));
		WRITE_ONCE(u->returned, true);
	}
	if (who != 1)
		return;
	/* The other thread waits for this one, so the region exists. */
	while (rcu_access_pointer(u->mr->key))
		threads_yield();
	for (i = 0; i < 1000; i++)
		threads_yield();
	KUNIT_EXPECT_FALSE(u->test, READ_ONCE(u->returned));
	keel_key_put(u->key);
}

/*
 * SPD-7: the memory is not used after ib_dereg_mr(), although the thread that has
 * invalidated the key still waits for its user.
 */
static void spd_7_dereg_waits(struct kunit *test)
{
	struct pair *p = test->priv;
	struct used u = { .test = test };
	struct keel_key *old;

	pair_make(p, IB_QPT_RC);
	pair_connect(p);
	u.ib = p->b.mr;
	u.mr = to_kmr(u.ib);
	u.key = keel_key_find(&to_kdev(p->ibdev)->keys, u.ib->rkey,
			      to_kpd(p->pd)->domain->obj.id);
	KUNIT_ASSERT_FALSE(test, IS_ERR(u.key));
	old = keel_mr_invalidate(u.mr, u.ib->rkey);
	KUNIT_EXPECT_PTR_EQ(test, u.key, old);
	p->b.mr = NULL;
	threads_run(test, used_thread, &u);
	KUNIT_EXPECT_TRUE(test, u.returned);
	keel_key_drain(old);
	kfree_rcu(old, rcu);
}

static struct kunit_case fast_reg_users_cases[] = {
	KUNIT_CASE(spd_7_dereg_waits),
	{}
};

static struct kunit_suite fast_reg_users_suite = {
	.name = "keel_fast_reg_users",
	.suite_init = pair_suite_init,
	.suite_exit = pair_suite_exit,
	.init = pair_init,
	.exit = pair_exit,
	.test_cases = fast_reg_users_cases,
};
kunit_test_suite(fast_reg_users_suite);
