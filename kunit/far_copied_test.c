// SPDX-License-Identifier: GPL-2.0
/*
 * Long packets, between a QP and another host: events while one is copied, without the lock.
 */
#include "far_long.h"
#include "keel_point.h"

/* To be called while a long packet is copied, without the lock. */
static struct far_host *meanwhile_host;
static void (*meanwhile)(struct far_host *h);

static void long_hook(const char *name)
{
	void (*act)(struct far_host *h) = meanwhile;

	if (strcmp(name, "far_copied") || !act)
		return;
	meanwhile = NULL;
	act(meanwhile_host);
}

static void long_while(struct far_host *h, void (*act)(struct far_host *h))
{
	meanwhile_host = h;
	meanwhile = act;
	WRITE_ONCE(keel_point_hook.hit, long_hook);
}

static void long_reset(struct far_host *h)
{
	end_move(h->p, &h->p->b, IB_QPS_RESET);
}

static void long_again(struct far_host *h)
{
	struct keel_frame frame = far_long_packet(h, 1, ONLY, PACKET + 1, PACKET + 1);

	keel_far_ops.request(&h->link, &frame, h->data);
}

/* As if the QP had been reset, and was connected again with the same numbers. */
static void long_reborn(struct far_host *h)
{
	atomic64_inc(&h->qp->gen);
}

/* As many short answers as there may be. */
static void long_fill(struct far_host *h)
{
	struct keel_frame answer = far_answer(h, 0, IB_WC_SUCCESS);
	u32 i;

	for (i = 0; i < KEEL_FAR_WINDOW; i++)
		keel_far_ops.answer(&h->link, &answer, h->data);
}

/* Let the QP read. Return: a long answer for it. */
static struct keel_frame long_answer(struct far_host *h, u8 *buf)
{
	struct keel_frame answer;
	u32 i;

	far_post(h, IB_WR_RDMA_READ, buf, BYTES);
	/* Those that were sent before the first answers are short. */
	for (i = 0; le32_to_cpu(far_sent(h, i, i)->request.bytes) == PACKET; i++)
		far_long_done(h, i, PACKET, LONGS);
	answer = far_answer(h, i, IB_WC_SUCCESS);
	answer.len = far_sent(h, i, i)->request.bytes;
	answer.chunk = cpu_to_le16(1);
	return answer;
}

/* All packets of the QP are free, but @n. */
static void long_free_but(struct far_host *h, u32 n)
{
	struct keel_far *far = h->qp->far;

	guard(spinlock)(&far->lock);
	KUNIT_EXPECT_EQ(h->p->test, far->nslots - n, list_count_nodes(&far->free));
}

/* It happened, and the QP has not kept the request. */
static void long_is_gone(struct far_host *h)
{
	struct kunit *test = h->p->test;

	KUNIT_EXPECT_NULL(test, meanwhile);
	KUNIT_EXPECT_EQ(test, 0, far_requests_n(h));
	KUNIT_EXPECT_EQ(test, 0, far_long_requests(h));
	long_free_but(h, 0);
}

/* HOST-2: a packet that is copied during a reset is of the life before it: it is forgotten. */
static void host_2_reset(struct kunit *test)
{
	struct far_host *h;
	u8 *buf;

	h = far_long_make(test, &buf);
	far_long_grow(h);
	far_host_recycle(h);
	long_while(h, long_reset);
	long_again(h);
	long_is_gone(h);
	/* The other side may try again. */
	KUNIT_EXPECT_EQ(test, KEEL_RESULT_NOT_READY, far_answered(h, 0, 1, KEEL_RESULT_NOT_READY,
								  0)->answer.result);
}

/* HOST-2: and so is one that would be the first of the life behind it. */
static void host_2_reborn(struct kunit *test)
{
	struct far_host *h;
	u8 *buf;

	h = far_long_make(test, &buf);
	far_long_grow(h);
	long_while(h, long_reborn);
	long_again(h);
	long_is_gone(h);
}

/* HOST-2: a packet that comes twice, as by two connections at once, is kept once. */
static void host_2_twice(struct kunit *test)
{
	struct far_host *h;
	u8 *buf;

	h = far_long_make(test, &buf);
	far_long_grow(h);
	/* Nobody executes it. */
	mutex_lock(&h->qp->far->from.lock);
	long_while(h, long_again);
	long_again(h);
	KUNIT_EXPECT_NULL(test, meanwhile);
	KUNIT_EXPECT_EQ(test, 1, far_requests_n(h));
	KUNIT_EXPECT_EQ(test, 1, far_long_requests(h));
	long_free_but(h, 1);
	mutex_unlock(&h->qp->far->from.lock);
}

/* HOST-3: answers that come meanwhile leave no room for a long one. */
static void host_3_answers_full(struct kunit *test)
{
	struct keel_frame answer;
	struct far_host *h;
	u8 *buf;

	h = far_long_make(test, &buf);
	answer = long_answer(h, buf);
	far_host_settle(h);
	/* Nobody looks at them. */
	mutex_lock(&h->qp->sq.from.lock);
	long_while(h, long_fill);
	keel_far_ops.answer(&h->link, &answer, h->data);
	KUNIT_EXPECT_NULL(test, meanwhile);
	KUNIT_EXPECT_EQ(test, KEEL_FAR_WINDOW, far_answers_n(h));
	KUNIT_EXPECT_EQ(test, 0, far_long_answers(h));
	mutex_unlock(&h->qp->sq.from.lock);
	keel_qp_schedule(h->qp);
	far_host_settle(h);
	KUNIT_EXPECT_EQ(test, 0, far_answers_n(h));
	long_free_but(h, 0);
}

/* HOST-2: an answer that is copied during a reset is forgotten, too. */
static void host_2_answer_reset(struct kunit *test)
{
	struct keel_frame answer;
	struct far_host *h;
	u8 *buf;

	h = far_long_make(test, &buf);
	answer = long_answer(h, buf);
	long_while(h, long_reset);
	far_give(h, &answer);
	KUNIT_EXPECT_NULL(test, meanwhile);
	KUNIT_EXPECT_EQ(test, 0, far_answers_n(h));
	KUNIT_EXPECT_EQ(test, 0, far_long_answers(h));
	long_free_but(h, 0);
}

static void far_copied_exit(struct kunit *test)
{
	WRITE_ONCE(keel_point_hook.hit, NULL);
	pair_exit(test);
}

static struct kunit_case far_copied_cases[] = {
	KUNIT_CASE(host_2_reset),
	KUNIT_CASE(host_2_reborn),
	KUNIT_CASE(host_2_twice),
	KUNIT_CASE(host_3_answers_full),
	KUNIT_CASE(host_2_answer_reset),
	{}
};

static struct kunit_suite far_copied_suite = {
	.name = "keel_far_copied",
	.suite_init = pair_suite_init,
	.suite_exit = pair_suite_exit,
	.init = pair_init,
	.exit = far_copied_exit,
	.test_cases = far_copied_cases,
};
kunit_test_suite(far_copied_suite);
