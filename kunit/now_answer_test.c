// SPDX-License-Identifier: GPL-2.0
/*
 * Answers, for which the thread of the link runs the send queue: far_now.c. now.h says how the
 * test sees that.
 */
#include "now.h"

#define PACKET		KEEL_FRAME_DATA
#define ACCESS		IB_WC_REM_ACCESS_ERR

/* A host whose QP has sent a send of 64 bytes. */
static struct far_host *now_sender(struct kunit *test, enum ib_qp_type type, u8 **buf)
{
	struct far_host *h = far_send_make_type(test, type, buf);

	far_post(h, IB_WR_SEND, *buf, 64);
	far_sent(h, 0, 0);
	return h;
}

/* Packet @nr was executed, and the thread has the answer. */
static void now_answer(struct far_host *h, u32 nr, u8 status)
{
	struct keel_frame answer = far_answer(h, nr, status);

	now_watch(h);
	keel_far_ops.answer(&h->link, &answer, h->data);
}

/* WQEs that have completed when the thread had the answer. */
static void now_completed(struct far_host *h, u32 n)
{
	KUNIT_EXPECT_GE(h->p->test, atomic_read(&now.sq[true]), 1);
	KUNIT_EXPECT_EQ(h->p->test, n, now.index);
}

/* The thread has not run the send queue, but the work has. */
static void now_left(struct far_host *h)
{
	KUNIT_EXPECT_EQ(h->p->test, 0, atomic_read(&now.sq[true]));
	now_worked(h, true);
}

/* HOST-1: the answer to a short message completes it at once, without the work of the QP. */
static void host_1_answered(struct kunit *test)
{
	struct far_host *h;
	u8 *buf;

	h = now_sender(test, IB_QPT_RC, &buf);
	far_nothing_ended(h);
	now_own(test);
	now_answer(h, 0, IB_WC_SUCCESS);
	now_completed(h, 1);
	end_collect(&h->p->b);
	KUNIT_EXPECT_EQ(test, 1, h->p->b.wcs);
	now_worked(h, false);
	far_ended_with(h, IB_WC_SUCCESS, KEEL_WHY_NONE);
}

/* ISO-2: others post again and again: the thread runs the queue twice, and leaves the rest. */
static void iso_2_posting(struct kunit *test)
{
	struct keel_frame answer;
	struct far_host *h;
	u8 *buf;

	h = now_sender(test, IB_QPT_RC, &buf);
	answer = far_answer(h, 0, IB_WC_SUCCESS);
	now_own(test);
	now_watch(h);
	now.posting = true;
	keel_far_ops.answer(&h->link, &answer, h->data);
	now.posting = false;
	KUNIT_EXPECT_GE(test, atomic_read(&now.sq[true]), 1);
	KUNIT_EXPECT_LE(test, atomic_read(&now.sq[true]), 2);
	far_host_settle(h);
	KUNIT_EXPECT_NE(test, 0, atomic_read(&now.sq[false]));
	far_ended_with(h, IB_WC_SUCCESS, KEEL_WHY_NONE);
}

/* ISO-2: the thread runs the send queue of no QP that no process of a user owns. */
static void iso_2_answer_no_owner(struct kunit *test)
{
	struct far_host *h;
	u8 *buf;

	h = now_sender(test, IB_QPT_RC, &buf);
	now_answer(h, 0, IB_WC_SUCCESS);
	now_left(h);
	far_ended_with(h, IB_WC_SUCCESS, KEEL_WHY_NONE);
}

/* ISO-2: nor while the link is busy. */
static void iso_2_answer_busy(struct kunit *test)
{
	struct far_host *h;
	u8 *buf;

	h = now_sender(test, IB_QPT_RC, &buf);
	now_own(test);
	h->link.busy = true;
	now_answer(h, 0, IB_WC_SUCCESS);
	now_left(h);
	far_ended_with(h, IB_WC_SUCCESS, KEEL_WHY_NONE);
}

/* ISO-2: it leaves one to the work that has begun access to a dma-buf. */
static void iso_2_open(struct kunit *test)
{
	struct keel_open open = {};
	struct keel_frame answer;
	struct far_host *h;
	u8 *buf;

	h = now_sender(test, IB_QPT_RC, &buf);
	now_own(test);
	answer = far_answer(h, 0, IB_WC_SUCCESS);
	now_watch(h);
	scoped_guard(mutex, &h->qp->sq.from.lock)
		list_add(&open.node, &h->qp->sq.from.fetch.ctl.open);
	now.open = &open.node;
	keel_far_ops.answer(&h->link, &answer, h->data);
	KUNIT_EXPECT_EQ(test, 1, atomic_read(&now.sq[true]));
	KUNIT_EXPECT_EQ(test, 0, now.index);
	KUNIT_EXPECT_EQ(test, KEEL_NEED_NONE, now.need);
	now_worked(h, true);
	far_ended_with(h, IB_WC_SUCCESS, KEEL_WHY_NONE);
}

/* ISO-1: nor does it drop a reference on an SRQ, which may be the last one. */
static void iso_1_srq(struct kunit *test)
{
	struct far_host *h;
	struct ib_srq *srq;
	u8 *buf;

	h = now_sender(test, IB_QPT_RC, &buf);
	now_own(test);
	srq = pair_srq(h->p, NULL);
	h->p->extra_srq = srq;
	/* It has waited before the QP was connected to the other host. */
	scoped_guard(mutex, &h->qp->sq.from.lock)
		KUNIT_ASSERT_FALSE(test, keel_srq_wait(to_ksrq(srq), &h->qp->sq.from));
	now_answer(h, 0, IB_WC_SUCCESS);
	KUNIT_EXPECT_EQ(test, 1, atomic_read(&now.sq[true]));
	KUNIT_EXPECT_TRUE(test, now.awaits);
	now_worked(h, true);
	far_ended_with(h, IB_WC_SUCCESS, KEEL_WHY_NONE);
	KUNIT_EXPECT_NULL(test, READ_ONCE(h->qp->sq.from.srq));
}

/* ISO-2: nor that of one that sends a long message. A short one behind it changes that. */
static void iso_2_lengthy(struct kunit *test)
{
	struct far_host *h;
	u8 *buf;

	h = now_sender(test, IB_QPT_RC, &buf);
	now_own(test);
	far_post(h, IB_WR_SEND, buf, PACKET + 1);
	far_sent(h, 2, 2);
	now_answer(h, 0, IB_WC_SUCCESS);
	now_left(h);
	far_post(h, IB_WR_SEND, buf, PACKET);
	far_sent(h, 3, 3);
	now_answer(h, 1, IB_WC_SUCCESS);
	KUNIT_EXPECT_GE(test, atomic_read(&now.sq[true]), 1);
	far_give_done(h, 2, 0);
	now_answer(h, 3, IB_WC_SUCCESS);
	now_completed(h, 3);
	now_worked(h, false);
	pair_settle(h->p, &h->p->b, 3);
}

/* ISO-2: nor for an answer with more data than a frame has. */
static void iso_2_long_answer(struct kunit *test)
{
	struct keel_frame answer;
	struct far_host *h;
	u8 *buf;

	h = now_sender(test, IB_QPT_RC, &buf);
	now_own(test);
	scoped_guard(spinlock, &h->qp->far->lock)
		keel_far_want(&h->qp->far->long_answers);
	keel_qp_schedule(h->qp);
	now_watch(h);
	answer = far_answer(h, 0, IB_WC_SUCCESS);
	answer.len = cpu_to_le32(PACKET + 1);
	answer.chunk = cpu_to_le16(1);
	keel_far_ops.answer(&h->link, &answer, h->data);
	now_left(h);
	/* No send returns data. */
	far_ended_with(h, IB_WC_BAD_RESP_ERR, KEEL_WHY_LENGTH);
}

/* ISO-2: nor that of a UC QP, which waits for no answer. */
static void iso_2_uc(struct kunit *test)
{
	struct far_host *h;
	u8 *buf;

	h = now_sender(test, IB_QPT_UC, &buf);
	now_own(test);
	now_answer(h, 0, IB_WC_SUCCESS);
	now_left(h);
	far_ended_with(h, IB_WC_SUCCESS, KEEL_WHY_NONE);
}

/* ISO-2: nor that of a QP for datagrams, which takes memory for each of them. */
static void iso_2_datagrams(struct kunit *test)
{
	struct far_host *h = far_host_make_type(test, IB_QPT_UD, IB_QPS_RTS);

	far_host_open(h);
	now_own(test);
	now_answer(h, 0, IB_WC_SUCCESS);
	now_left(h);
}

/* ISO-2: the thread completes a short message, and leaves a long one behind it to the work. */
static void iso_2_long_next(struct kunit *test)
{
	struct far_host *h;
	u8 *buf;

	h = now_sender(test, IB_QPT_RC, &buf);
	now_own(test);
	end_send_silently(h->p, &h->p->b, FAR_WR_ID, PACKET + 1);
	now_answer(h, 0, IB_WC_SUCCESS);
	now_completed(h, 1);
	KUNIT_EXPECT_EQ(test, 1, now.sent);
	now_worked(h, true);
	far_sent(h, 2, 2);
	far_give_done(h, 1, 0);
	far_give_done(h, 2, 0);
	pair_settle(h->p, &h->p->b, 2);
	KUNIT_EXPECT_EQ(test, IB_WC_SUCCESS, h->p->b.wc[1].status);
}

/* ISO-2: likewise behind two short ones, of which the second one is not answered yet. */
static void iso_2_long_behind(struct kunit *test)
{
	struct far_host *h;
	u8 *buf;

	h = now_sender(test, IB_QPT_RC, &buf);
	now_own(test);
	far_post(h, IB_WR_SEND, buf, 64);
	far_sent(h, 1, 1);
	end_send_silently(h->p, &h->p->b, FAR_WR_ID, PACKET + 1);
	now_answer(h, 0, IB_WC_SUCCESS);
	now_completed(h, 1);
	KUNIT_EXPECT_EQ(test, 2, now.sent);
	now_worked(h, true);
	far_sent(h, 3, 3);
	far_give_done(h, 1, 0);
	far_give_done(h, 2, 0);
	far_give_done(h, 3, 0);
	pair_settle(h->p, &h->p->b, 3);
	KUNIT_EXPECT_EQ(test, IB_WC_SUCCESS, h->p->b.wc[2].status);
}

/* HOST-1: short ones that nobody has told of are sent at once. */
static void host_1_short_behind(struct kunit *test)
{
	struct far_host *h;
	u8 *buf;

	h = now_sender(test, IB_QPT_RC, &buf);
	now_own(test);
	end_send_silently(h->p, &h->p->b, FAR_WR_ID, PACKET);
	end_send_silently(h->p, &h->p->b, FAR_WR_ID, 64);
	now_answer(h, 0, IB_WC_SUCCESS);
	now_completed(h, 1);
	KUNIT_EXPECT_EQ(test, 3, now.sent);
	now_worked(h, false);
	far_give_done(h, 1, 0);
	far_give_done(h, 2, 0);
	pair_settle(h->p, &h->p->b, 3);
}

/* ISO-2: the work invalidates a key, which may wait for those that use it. */
static void iso_2_local(struct kunit *test)
{
	struct ib_send_wr inv = { .opcode = IB_WR_LOCAL_INV, .send_flags = IB_SEND_SIGNALED };
	struct far_host *h;
	struct end *b;
	u8 *buf;

	h = now_sender(test, IB_QPT_RC, &buf);
	now_own(test);
	b = &h->p->b;
	inv.ex.invalidate_rkey = b->mr->rkey;
	KUNIT_ASSERT_EQ(test, 0, ib_post_send(b->qp, &inv, NULL));
	now_answer(h, 0, IB_WC_SUCCESS);
	now_completed(h, 1);
	now_worked(h, true);
	pair_settle(h->p, b, 2);
	KUNIT_EXPECT_EQ(test, IB_WC_SUCCESS, b->wc[1].status);
	KUNIT_EXPECT_EQ(test, IB_WC_LOCAL_INV, b->wc[1].opcode);
}

/* ISO-2: the work flushes the WQEs behind a message that has failed. */
static void iso_2_flush(struct kunit *test)
{
	struct far_host *h;
	struct end *b;
	u8 *buf;
	u32 i;

	h = now_sender(test, IB_QPT_RC, &buf);
	now_own(test);
	b = &h->p->b;
	for (i = 0; i < 2; i++)
		end_send_silently(h->p, b, FAR_WR_ID, 64);
	now_answer(h, 0, ACCESS);
	now_completed(h, 1);
	now_worked(h, true);
	pair_settle(h->p, b, 3);
	KUNIT_EXPECT_EQ(test, ACCESS, b->wc[0].status);
	KUNIT_EXPECT_EQ(test, IB_WC_WR_FLUSH_ERR, b->wc[1].status);
	KUNIT_EXPECT_EQ(test, IB_WC_WR_FLUSH_ERR, b->wc[2].status);
}

static struct kunit_case now_answer_cases[] = {
	KUNIT_CASE(host_1_answered),
	KUNIT_CASE(iso_2_posting),
	KUNIT_CASE(iso_2_answer_no_owner),
	KUNIT_CASE(iso_2_answer_busy),
	KUNIT_CASE(iso_2_open),
	KUNIT_CASE(iso_1_srq),
	KUNIT_CASE(iso_2_lengthy),
	KUNIT_CASE(iso_2_long_answer),
	KUNIT_CASE(iso_2_uc),
	KUNIT_CASE(iso_2_datagrams),
	KUNIT_CASE(iso_2_long_next),
	KUNIT_CASE(iso_2_long_behind),
	KUNIT_CASE(host_1_short_behind),
	KUNIT_CASE(iso_2_local),
	KUNIT_CASE(iso_2_flush),
	{}
};

static struct kunit_suite now_answer_suite = {
	.name = "keel_far_now_answer",
	.suite_init = pair_suite_init,
	.suite_exit = pair_suite_exit,
	.init = pair_init,
	.exit = now_exit,
	.test_cases = now_answer_cases,
};
kunit_test_suite(now_answer_suite);
