// SPDX-License-Identifier: GPL-2.0
/*
 * Answers that wait a moment for the message behind them: batch.c. batch_test.c has the batches
 * of a busy connection.
 */
#include <kunit/test.h>
#include <linux/delay.h>

#include "rx.h"

#define HEADER		sizeof(struct keel_frame)
#define CREDITS		100
static void patient_answer(struct kunit *test, u32 to)
{
	rx_send(test, KEEL_FRAME_ANSWER, to, 0, true);
}

static void patient_request(struct kunit *test, u32 to)
{
	rx_send(test, KEEL_FRAME_REQUEST, to, 0, false);
}

static u32 patient_nsent(void)
{
	guard(spinlock)(&rx->conn->lock);
	return rx->nsent;
}

/* So many messages were sent, and @more buffers are in use. */
static void patient_used(struct kunit *test, u32 sent, u32 more)
{
	KUNIT_ASSERT_EQ(test, sent, patient_nsent());
	KUNIT_EXPECT_EQ(test, CREDITS - sent - more, rx_credits());
	guard(spinlock)(&rx->conn->lock);
	KUNIT_EXPECT_EQ(test, KEEL_LINK_SENDS - sent - more, rx->conn->nfree);
}

/* Message @nr is one frame. */
static void patient_single(struct kunit *test, u32 nr, enum keel_frame_type type, u32 to)
{
	KUNIT_EXPECT_EQ(test, type, rx->sent[nr].type);
	KUNIT_EXPECT_EQ(test, to, le32_to_cpu(rx->sent[nr].to));
}

/* Part @i of message @nr, which has no data. */
static void patient_part(struct kunit *test, u32 nr, u32 i, enum keel_frame_type type, u32 to)
{
	const struct keel_frame want = { .type = type, .to = cpu_to_le32(to) };

	KUNIT_EXPECT_MEMEQ(test, &want, rx->bufs[nr]->page + i * HEADER, HEADER);
}

/* Message @nr has @n frames without data. */
static void patient_batch(struct kunit *test, u32 nr, u32 n)
{
	KUNIT_EXPECT_EQ(test, KEEL_FRAME_BATCH, rx->sent[nr].type);
	KUNIT_EXPECT_EQ(test, n * HEADER, le32_to_cpu(rx->sent[nr].len));
}

/* A request is the first message. */
static void patient_begin(struct kunit *test)
{
	rx_set_credits(CREDITS);
	patient_request(test, 1);
	patient_used(test, 1, 0);
	patient_single(test, 0, KEEL_FRAME_REQUEST, 1);
}

/* HOST-2: an answer that may wait goes together with the next frame, in their order. */
static void host_2_pair(struct kunit *test)
{
	u32 i;

	patient_begin(test);
	for (i = 1; i < 4; i++) {
		patient_answer(test, 2 * i);
		patient_used(test, i, 1);
		patient_request(test, 2 * i + 1);
		patient_used(test, i + 1, 0);
		patient_batch(test, i, 2);
		patient_part(test, i, 0, KEEL_FRAME_ANSWER, 2 * i);
		patient_part(test, i, 1, KEEL_FRAME_REQUEST, 2 * i + 1);
	}
}

/* HOST-2: several answers wait together, and in turn. */
static void host_2_answers(struct kunit *test)
{
	patient_begin(test);
	patient_answer(test, 3);
	patient_answer(test, 4);
	patient_answer(test, 5);
	patient_used(test, 1, 1);
	patient_request(test, 6);
	patient_used(test, 2, 0);
	patient_batch(test, 1, 4);
	patient_part(test, 1, 0, KEEL_FRAME_ANSWER, 3);
	patient_part(test, 1, 1, KEEL_FRAME_ANSWER, 4);
	patient_part(test, 1, 2, KEEL_FRAME_ANSWER, 5);
	patient_part(test, 1, 3, KEEL_FRAME_REQUEST, 6);
}

/* HOST-2: other frames do not wait, also in the buffer of one that did, and take those along. */
static void host_2_impatient(struct kunit *test)
{
	patient_begin(test);
	rx_send(test, KEEL_FRAME_ANSWER, 3, 0, false);
	patient_used(test, 2, 0);
	patient_single(test, 1, KEEL_FRAME_ANSWER, 3);
	patient_answer(test, 4);
	/* Its buffer is the next one. */
	patient_answer(test, 5);
	patient_used(test, 2, 1);
	rx_send(test, KEEL_FRAME_ANSWER, 6, 0, false);
	patient_used(test, 3, 0);
	patient_batch(test, 2, 3);
	patient_part(test, 2, 2, KEEL_FRAME_ANSWER, 6);
}

/* HOST-2: a frame that no batch takes does not overtake the answer that waits. */
static void host_2_not_batched(struct kunit *test)
{
	patient_begin(test);
	patient_answer(test, 3);
	patient_used(test, 1, 1);
	rx_send(test, KEEL_FRAME_REQUEST, 4, KEEL_BATCH_DATA + 1, false);
	patient_used(test, 3, 0);
	patient_batch(test, 1, 1);
	patient_part(test, 1, 0, KEEL_FRAME_ANSWER, 3);
	patient_single(test, 2, KEEL_FRAME_REQUEST, 4);
}

/* HOST-2: an answer that a batch does not take is sent at once. */
static void host_2_long_answer(struct kunit *test)
{
	patient_begin(test);
	rx_send(test, KEEL_FRAME_ANSWER, 3, KEEL_BATCH_DATA + 1, true);
	patient_used(test, 2, 0);
	patient_single(test, 1, KEEL_FRAME_ANSWER, 3);
}

/* HOST-2: an answer that nothing follows is sent when its time is over. */
static void host_2_in_vain(struct kunit *test)
{
	u32 i;

	patient_begin(test);
	rx->conn->patient_ns = 2 * NSEC_PER_MSEC;
	patient_answer(test, 3);
	for (i = 0; i < 1000 && patient_nsent() < 2; i++)
		usleep_range(1000, 2000);
	patient_used(test, 2, 0);
	/* That it is a batch shows that it has waited. */
	patient_batch(test, 1, 1);
	patient_part(test, 1, 0, KEEL_FRAME_ANSWER, 3);
}

static struct kunit_case patient_cases[] = {
	KUNIT_CASE(host_2_pair),
	KUNIT_CASE(host_2_answers),
	KUNIT_CASE(host_2_impatient),
	KUNIT_CASE(host_2_not_batched),
	KUNIT_CASE(host_2_long_answer),
	KUNIT_CASE(host_2_in_vain),
	{}
};

static struct kunit_suite patient_suite = {
	.name = "keel_link_patient",
	.init = rx_init,
	.exit = rx_exit,
	.test_cases = patient_cases,
};
kunit_test_suite(patient_suite);
