// SPDX-License-Identifier: GPL-2.0
/*
 * A fast registration whose key a thread uses, while another thread or a peer
 * invalidates the key, and the owner deregisters the region.
 */
#include <linux/delay.h>
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

/*
 * SPD-7: an IB_WR_LOCAL_INV completes when no thread uses the key any more. The
 * consumer may free the memory then.
 */
static void spd_7_inv_waits(struct kunit *test)
{
	struct ib_send_wr wr = {
		.opcode = IB_WR_LOCAL_INV,
		.send_flags = IB_SEND_SIGNALED,
	};
	struct pair *p = test->priv;
	struct keel_key *key;
	struct keel_mr *mr;
	int i;

	pair_make(p, IB_QPT_RC);
	pair_connect(p);
	mr = to_kmr(p->b.mr);
	wr.ex.invalidate_rkey = p->b.mr->rkey;
	key = keel_key_find(&to_kdev(p->ibdev)->keys, p->b.mr->rkey,
			    to_kpd(p->pd)->domain->obj.id);
	KUNIT_ASSERT_FALSE(test, IS_ERR(key));
	p->clerk.wcs = 0;
	KUNIT_EXPECT_EQ(test, 0, ib_post_send(p->clerk.qp, &wr, NULL));
	for (i = 0; i < 60000 && rcu_access_pointer(mr->key) == key; i++)
		usleep_range(500, 1000);
	KUNIT_EXPECT_PTR_NE(test, key, rcu_access_pointer(mr->key));
	/* A completion that comes too early has time to arrive. */
	for (i = 0; i < 50; i++) {
		usleep_range(500, 1000);
		end_collect(&p->clerk);
	}
	KUNIT_EXPECT_EQ(test, 0, p->clerk.wcs);
	keel_key_put(key);
	pair_settle(p, &p->clerk, 1);
	KUNIT_EXPECT_EQ(test, IB_WC_SUCCESS, p->clerk.wc[0].status);
}

/*
 * SPD-7: a peer invalidates a key that a thread uses. The CQE of the receive WQE comes
 * after the last use, and the thread gets the processor meanwhile.
 */
static void spd_7_peer_waits(struct kunit *test)
{
	struct ib_send_wr wr = {
		.wr_id = 8,
		.opcode = IB_WR_SEND_WITH_INV,
		.send_flags = IB_SEND_SIGNALED,
	};
	unsigned long until = jiffies + 60 * HZ;
	struct pair *p = test->priv;
	struct keel_key *key;

	pair_make(p, IB_QPT_RC);
	pair_connect(p);
	wr.ex.invalidate_rkey = p->b.mr->rkey;
	key = keel_key_find(&to_kdev(p->ibdev)->keys, p->b.mr->rkey,
			    to_kpd(p->pd)->domain->obj.id);
	KUNIT_ASSERT_FALSE(test, IS_ERR(key));
	end_recv(p, &p->b, 7, 0, 8);
	KUNIT_EXPECT_EQ(test, 0, ib_post_send(p->a.qp, &wr, NULL));
	while (!READ_ONCE(key->dead) && time_before(jiffies, until))
		schedule_timeout_uninterruptible(1);
	KUNIT_EXPECT_TRUE(test, key->dead);
	/* The work of the requester could go on now, if it did not wait. */
	schedule_timeout_uninterruptible(HZ / 10);
	end_collect(&p->a);
	end_collect(&p->b);
	KUNIT_EXPECT_EQ(test, 0, p->a.wcs);
	KUNIT_EXPECT_EQ(test, 0, p->b.wcs);
	keel_key_put(key);
	pair_settle(p, &p->a, 1);
	KUNIT_EXPECT_EQ(test, 8, p->a.wc[0].wr_id);
	KUNIT_EXPECT_EQ(test, IB_WC_SUCCESS, p->a.wc[0].status);
	KUNIT_ASSERT_EQ(test, 1, p->b.wcs);
	KUNIT_EXPECT_EQ(test, 7, p->b.wc[0].wr_id);
	KUNIT_EXPECT_EQ(test, IB_WC_SUCCESS, p->b.wc[0].status);
	KUNIT_EXPECT_EQ(test, IB_WC_WITH_INVALIDATE, p->b.wc[0].wc_flags);
	KUNIT_EXPECT_EQ(test, p->b.mr->rkey, p->b.wc[0].ex.invalidate_rkey);
}

static struct kunit_case fast_reg_users_cases[] = {
	KUNIT_CASE(spd_7_dereg_waits),
	KUNIT_CASE(spd_7_inv_waits),
	KUNIT_CASE(spd_7_peer_waits),
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
