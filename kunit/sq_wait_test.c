// SPDX-License-Identifier: GPL-2.0
/*
 * The time that a send WQE may wait: what begins it, and that waits for something else in
 * between do not prolong it.
 */
#include "pair.h"

#define HOUR	(3600ULL * NSEC_PER_SEC)

/* Let the first end wait. Return: the deadline. */
static u64 wait_for(struct pair *p, enum keel_wait wait, struct keel_memreq *req)
{
	struct keel_sq *sq = &to_kqp(p->a.qp)->sq;
	u64 deadline;

	mutex_lock(&sq->from.lock);
	sq->from.fetch.req = req;
	KUNIT_EXPECT_TRUE(p->test, keel_sq_wait(to_kqp(p->a.qp), wait, HOUR));
	deadline = sq->deadline;
	sq->from.fetch.req = NULL;
	mutex_unlock(&sq->from.lock);
	return deadline;
}

/* The first WQE has ended. */
static void end_wqe(struct pair *p)
{
	struct keel_sq *sq = &to_kqp(p->a.qp)->sq;

	mutex_lock(&sq->from.lock);
	keel_sq_discard(sq);
	sq->wait = KEEL_WAIT_NONE;
	hrtimer_cancel(&sq->timer);
	mutex_unlock(&sq->from.lock);
}

/* ISO-1: a peer that is not connected for a moment does not prolong RNR waits. */
static void iso_1_sq_wait_receive(struct kunit *test)
{
	struct pair *p = test->priv;
	u64 first, peer;

	pair_make(p, IB_QPT_RC);
	first = wait_for(p, KEEL_WAIT_RNR, NULL);
	KUNIT_EXPECT_EQ(test, first, wait_for(p, KEEL_WAIT_RNR, NULL));
	peer = wait_for(p, KEEL_WAIT_PEER, NULL);
	KUNIT_EXPECT_GT(test, peer, first);
	KUNIT_EXPECT_EQ(test, first, wait_for(p, KEEL_WAIT_RNR, NULL));
	/* That for the peer begins anew: it has answered. */
	KUNIT_EXPECT_GT(test, wait_for(p, KEEL_WAIT_PEER, NULL), peer);
	end_wqe(p);
	KUNIT_EXPECT_GT(test, wait_for(p, KEEL_WAIT_RNR, NULL), first);
	end_wqe(p);
}

/* ISO-1: the same for memory that is absent. Other memory has its own time. */
static void iso_1_sq_wait_memory(struct kunit *test)
{
	struct pair *p = test->priv;
	struct keel_memreq *req = kunit_kzalloc(test, sizeof(*req), GFP_KERNEL);
	u64 first;

	KUNIT_ASSERT_NOT_NULL(test, req);
	pair_make(p, IB_QPT_RC);
	req->open.need.kind = KEEL_NEED_PAGES;
	first = wait_for(p, KEEL_WAIT_MEMORY, req);
	KUNIT_EXPECT_EQ(test, first, wait_for(p, KEEL_WAIT_MEMORY, req));
	wait_for(p, KEEL_WAIT_PEER, NULL);
	KUNIT_EXPECT_EQ(test, first, wait_for(p, KEEL_WAIT_MEMORY, req));
	wait_for(p, KEEL_WAIT_RNR, NULL);
	KUNIT_EXPECT_EQ(test, first, wait_for(p, KEEL_WAIT_MEMORY, req));
	req->open.need.addr += PAGE_SIZE;
	KUNIT_EXPECT_GT(test, wait_for(p, KEEL_WAIT_MEMORY, req), first);
	end_wqe(p);
	req->open.need.addr -= PAGE_SIZE;
	KUNIT_EXPECT_GT(test, wait_for(p, KEEL_WAIT_MEMORY, req), first);
	end_wqe(p);
}

static struct kunit_case sq_wait_cases[] = {
	KUNIT_CASE(iso_1_sq_wait_receive),
	KUNIT_CASE(iso_1_sq_wait_memory),
	{}
};

static struct kunit_suite sq_wait_suite = {
	.name = "keel_sq_wait",
	.suite_init = pair_suite_init,
	.suite_exit = pair_suite_exit,
	.init = pair_init,
	.exit = pair_exit,
	.test_cases = sq_wait_cases,
};
kunit_test_suite(sq_wait_suite);
