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

/*
 * The QP answers a message of the other side, and sends one soon after it: again, if the test
 * has lost its processor in between.
 */
static void pace_pair(struct kunit *test, struct keel_far *far, bool waits)
{
	u64 answered_at = far->answered_at, start;
	u8 pairs = far->pairs;
	bool did;

	do {
		far->answered_at = answered_at;
		far->pairs = pairs;
		start = ktime_get_ns();
		did = keel_far_may_wait(far);
		keel_far_follows(far);
	} while (ktime_get_ns() - start >= KEEL_PATIENT_NS);
	KUNIT_EXPECT_EQ(test, waits, did);
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

/* The program of @h has answered each message by another one. A message arrives. */
static struct far_host *pace_answered(struct kunit *test, u8 **buf, u64 patient_ns)
{
	struct far_host *h = far_send_make(test, buf);
	struct keel_frame frame;

	h->conn.patient_ns = patient_ns;
	h->qp->far->pairs = U8_MAX;
	memset(h->data, 0xab, 8);
	frame = far_packet(h, 0, IB_WR_RDMA_WRITE, ONLY, 8, 8);
	far_request(h, &frame);
	return h;
}

/* The frame at @off of the batch that was sent. */
static void pace_batched(struct far_host *h, u32 *off, struct keel_frame *frame)
{
	const struct keel_buf *batch = h->sent[0];

	KUNIT_ASSERT_EQ(h->p->test, KEEL_FRAME_BATCH, batch->frame->type);
	KUNIT_ASSERT_NOT_NULL(h->p->test,
			      keel_batch_next(batch->page, le32_to_cpu(batch->frame->len), off,
					      frame));
}

/* HOST-2: the answer waits for a message of this side, and goes before it, together with it. */
static void host_2_together(struct kunit *test)
{
	struct keel_frame frame;
	struct far_host *h;
	u32 off = 0;
	u8 *buf;

	h = pace_answered(test, &buf, 1000 * NSEC_PER_SEC);
	KUNIT_EXPECT_EQ(test, 0, far_host_wait(h, 0));
	/* It was executed. */
	KUNIT_EXPECT_MEMEQ(test, h->p->b.buf, h->data, 8);
	far_post(h, IB_WR_RDMA_WRITE, buf + 100, 16);
	KUNIT_EXPECT_EQ(test, 1, far_host_wait(h, 1));
	pace_batched(h, &off, &frame);
	KUNIT_EXPECT_EQ(test, KEEL_FRAME_ANSWER, frame.type);
	KUNIT_EXPECT_EQ(test, far_psn(0), le32_to_cpu(frame.psn));
	KUNIT_EXPECT_EQ(test, KEEL_RESULT_DONE, frame.answer.result);
	pace_batched(h, &off, &frame);
	KUNIT_EXPECT_EQ(test, KEEL_FRAME_REQUEST, frame.type);
	KUNIT_EXPECT_EQ(test, 16, le32_to_cpu(frame.len));
	KUNIT_EXPECT_MEMEQ(test, (u8 *)h->sent[0]->page + off - 16, buf + 100, 16);
	KUNIT_EXPECT_EQ(test, off, le32_to_cpu(h->sent[0]->frame->len));
	far_give_done(h, 0, 0);
	far_ended_with(h, IB_WC_SUCCESS, 0);
}

/* HOST-2: no message follows, and the answer is sent nevertheless. */
static void host_2_alone(struct kunit *test)
{
	struct keel_frame frame;
	struct far_host *h;
	u32 off = 0;
	u8 *buf;

	h = pace_answered(test, &buf, NSEC_PER_MSEC);
	KUNIT_EXPECT_EQ(test, 1, far_host_wait(h, 1));
	pace_batched(h, &off, &frame);
	KUNIT_EXPECT_EQ(test, KEEL_FRAME_ANSWER, frame.type);
	KUNIT_EXPECT_EQ(test, far_psn(0), le32_to_cpu(frame.psn));
	KUNIT_EXPECT_EQ(test, off, le32_to_cpu(h->sent[0]->frame->len));
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
	bool busy = false;
	u32 i;
	u8 *buf;

	h = far_send_make(test, &buf);
	keel_load_set(&h->link.load, &other, 3, 0);
	far_post(h, IB_WR_RDMA_WRITE, buf, 8);
	KUNIT_EXPECT_FALSE(test, far_sent(h, 0, 0)->flags & KEEL_FRAME_F_BUSY);
	far_give_done(h, 0, 0);
	/* They are old if the thread that sends comes too late. */
	for (i = 1; i < 6 && !busy; i++) {
		keel_load_set(&h->link.load, &other, 4, i);
		far_post(h, IB_WR_RDMA_WRITE, buf, 8);
		busy = far_sent(h, i, i)->flags & KEEL_FRAME_F_BUSY;
		far_give_done(h, i, 0);
	}
	KUNIT_EXPECT_TRUE(test, busy);
	keel_load_set(&h->link.load, &other, 0, 0);
}

static struct kunit_case far_pace_cases[] = {
	KUNIT_CASE(host_2_pairs),
	KUNIT_CASE(host_2_two),
	KUNIT_CASE(host_2_too_late),
	KUNIT_CASE(host_2_more),
	KUNIT_CASE(host_2_together),
	KUNIT_CASE(host_2_alone),
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
