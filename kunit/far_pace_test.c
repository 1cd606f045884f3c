// SPDX-License-Identifier: GPL-2.0
/*
 * Answers that wait for the request behind them, and packets that are under way.
 */
#include <kunit/test.h>
#include <linux/ktime.h>

#include "far_host.h"

static struct keel_far *pace_new(struct kunit *test)
{
	struct keel_far *far = kunit_kzalloc(test, sizeof(*far), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, far);
	return far;
}

/* The QP answers a message of the other side, and sends one soon after it. */
static void pace_pair(struct kunit *test, struct keel_far *far, bool waits)
{
	KUNIT_EXPECT_EQ(test, waits, keel_far_may_wait(far));
	keel_far_follows(far);
}

/* The QP sends its message too late. */
static void pace_late(struct keel_far *far)
{
	far->answered_at = ktime_get_ns() - KEEL_PATIENT_NS;
	keel_far_follows(far);
}

/* HOST-2: an answer waits if the last two had a request soon behind them. */
static void host_2_pairs(struct kunit *test)
{
	struct keel_far *far = pace_new(test);
	u32 i;

	pace_pair(test, far, false);
	pace_pair(test, far, false);
	for (i = 0; i < 300; i++)
		pace_pair(test, far, true);
}

/* HOST-2: it does not if the other side sends two messages without one of this side in between. */
static void host_2_two(struct kunit *test)
{
	struct keel_far *far = pace_new(test);
	u32 i;

	for (i = 0; i < 4; i++) {
		KUNIT_EXPECT_FALSE(test, keel_far_may_wait(far));
		pace_pair(test, far, false);
	}
	pace_pair(test, far, false);
	pace_pair(test, far, true);
	/* This one waits in vain, and no other one does. */
	KUNIT_EXPECT_TRUE(test, keel_far_may_wait(far));
	for (i = 0; i < 4; i++)
		KUNIT_EXPECT_FALSE(test, keel_far_may_wait(far));
}

/* HOST-2: nor if the message of this side came too late. */
static void host_2_too_late(struct kunit *test)
{
	struct keel_far *far = pace_new(test);

	pace_pair(test, far, false);
	pace_pair(test, far, false);
	KUNIT_EXPECT_TRUE(test, keel_far_may_wait(far));
	pace_late(far);
	pace_pair(test, far, false);
	pace_pair(test, far, false);
	pace_pair(test, far, true);
}

/* HOST-2: only the first request behind an answer tells. */
static void host_2_more(struct kunit *test)
{
	struct keel_far *far = pace_new(test);
	u32 i;

	pace_pair(test, far, false);
	for (i = 0; i < 4; i++)
		keel_far_follows(far);
	pace_pair(test, far, false);
	pace_pair(test, far, true);
}

/* HOST-3: the fifth packet that is not answered tells so, and those behind it. */
static void host_3_busy(struct kunit *test)
{
	struct far_host *h;
	u32 i;
	u8 *buf;

	h = far_send_make(test, &buf);
	for (i = 0; i < 6; i++)
		far_post(h, IB_WR_RDMA_WRITE, buf, 8);
	for (i = 0; i < 6; i++)
		KUNIT_EXPECT_EQ(test, i >= 4,
				!!(far_sent(h, i, i)->flags & KEEL_FRAME_F_BUSY));
	for (i = 0; i < 6; i++)
		far_give_done(h, i, 0);
	KUNIT_EXPECT_EQ(test, 0, h->qp->far->load.n);
	far_post(h, IB_WR_RDMA_WRITE, buf, 8);
	KUNIT_EXPECT_FALSE(test, far_sent(h, 6, 6)->flags & KEEL_FRAME_F_BUSY);
	far_give_done(h, 6, 0);
}

/* HOST-3: those of other QPs count. */
static void host_3_others(struct kunit *test)
{
	struct keel_load_part other = {};
	struct far_host *h;
	u8 *buf;

	h = far_send_make(test, &buf);
	keel_load_set(&h->link.load, &other, 3);
	far_post(h, IB_WR_RDMA_WRITE, buf, 8);
	KUNIT_EXPECT_FALSE(test, far_sent(h, 0, 0)->flags & KEEL_FRAME_F_BUSY);
	far_give_done(h, 0, 0);
	keel_load_set(&h->link.load, &other, 4);
	far_post(h, IB_WR_RDMA_WRITE, buf, 8);
	KUNIT_EXPECT_TRUE(test, far_sent(h, 1, 1)->flags & KEEL_FRAME_F_BUSY);
	far_give_done(h, 1, 0);
	keel_load_set(&h->link.load, &other, 0);
}

static struct kunit_case far_pace_cases[] = {
	KUNIT_CASE(host_2_pairs),
	KUNIT_CASE(host_2_two),
	KUNIT_CASE(host_2_too_late),
	KUNIT_CASE(host_2_more),
	KUNIT_CASE(host_3_busy),
	KUNIT_CASE(host_3_others),
	{}
};

static struct kunit_suite far_pace_suite = {
	.name = "keel_far_pace",
	.suite_init = pair_suite_init,
	.suite_exit = pair_suite_exit,
	.init = pair_init,
	.exit = pair_exit,
	.test_cases = far_pace_cases,
};
kunit_test_suite(far_pace_suite);
