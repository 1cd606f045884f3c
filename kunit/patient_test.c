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
/* Time that is over when the test goes on, ns, and a time in which that does not happen. */
#define SHORT_NS	1
#define LONG_NS		(1000 * NSEC_PER_SEC)

/* Send a frame with @len bytes for the number @to. A buffer is not patient at first. */
static void patient_send(struct kunit *test, enum keel_frame_type type, u32 to, u32 len,
			 bool patient)
{
	struct keel_frame frame = { .type = type, .to = cpu_to_le32(to) };
	struct keel_link_wait wait;
	struct keel_buf *buf;
	u64 epoch;

	keel_wait_init(&wait, NULL, NULL);
	buf = keel_link_tx(rx->link, &wait, len, &epoch);
	KUNIT_ASSERT_NOT_NULL(test, buf);
	memset(buf->data, to, len);
	if (patient)
		buf->patient = true;
	keel_link_send(buf, &frame, len);
}

static void patient_answer(struct kunit *test, u32 to)
{
	patient_send(test, KEEL_FRAME_ANSWER, to, 0, true);
}

static void patient_request(struct kunit *test, u32 to)
{
	patient_send(test, KEEL_FRAME_REQUEST, to, 0, false);
}

static bool patient_pairs(void)
{
	guard(spinlock)(&rx->conn->lock);
	return rx->conn->pairs;
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

/* An answer and the request behind it are the first messages. */
static void patient_begin(struct kunit *test)
{
	rx_set_credits(CREDITS);
	patient_answer(test, 1);
	patient_used(test, 1, 0);
	KUNIT_EXPECT_FALSE(test, patient_pairs());
	patient_request(test, 1);
	patient_used(test, 2, 0);
	KUNIT_EXPECT_TRUE(test, patient_pairs());
	patient_single(test, 0, KEEL_FRAME_ANSWER, 1);
	patient_single(test, 1, KEEL_FRAME_REQUEST, 1);
}

/* HOST-2: an answer waits only if the last one had a request soon behind it; both go together. */
static void host_2_pair(struct kunit *test)
{
	u32 i;

	patient_begin(test);
	for (i = 2; i < 5; i++) {
		patient_answer(test, 2 * i);
		patient_used(test, i, 1);
		patient_request(test, 2 * i);
		patient_used(test, i + 1, 0);
		patient_batch(test, i, 2);
		patient_part(test, i, 0, KEEL_FRAME_ANSWER, 2 * i);
		patient_part(test, i, 1, KEEL_FRAME_REQUEST, 2 * i);
		KUNIT_EXPECT_TRUE(test, patient_pairs());
	}
}

/* HOST-2: several answers wait together, and in turn. */
static void host_2_answers(struct kunit *test)
{
	patient_begin(test);
	patient_answer(test, 3);
	patient_answer(test, 4);
	patient_answer(test, 5);
	patient_used(test, 2, 1);
	patient_request(test, 5);
	patient_used(test, 3, 0);
	patient_batch(test, 2, 4);
	patient_part(test, 2, 0, KEEL_FRAME_ANSWER, 3);
	patient_part(test, 2, 1, KEEL_FRAME_ANSWER, 4);
	patient_part(test, 2, 2, KEEL_FRAME_ANSWER, 5);
	patient_part(test, 2, 3, KEEL_FRAME_REQUEST, 5);
}

/* HOST-2: other frames do not wait, also in the buffer of one that did, and take those along. */
static void host_2_impatient(struct kunit *test)
{
	patient_begin(test);
	patient_send(test, KEEL_FRAME_ANSWER, 3, 0, false);
	patient_used(test, 3, 0);
	patient_single(test, 2, KEEL_FRAME_ANSWER, 3);
	patient_answer(test, 4);
	/* Its buffer is the next one. */
	patient_answer(test, 5);
	patient_used(test, 3, 1);
	patient_send(test, KEEL_FRAME_ANSWER, 6, 0, false);
	patient_used(test, 4, 0);
	patient_batch(test, 3, 3);
	patient_part(test, 3, 2, KEEL_FRAME_ANSWER, 6);
	/* No request has come. */
	KUNIT_EXPECT_TRUE(test, patient_pairs());
}

/* HOST-2: a frame that no batch takes does not overtake the answer that waits. */
static void host_2_not_batched(struct kunit *test)
{
	patient_begin(test);
	patient_answer(test, 3);
	patient_used(test, 2, 1);
	patient_send(test, KEEL_FRAME_REQUEST, 3, KEEL_BATCH_DATA + 1, false);
	patient_used(test, 4, 0);
	patient_batch(test, 2, 1);
	patient_part(test, 2, 0, KEEL_FRAME_ANSWER, 3);
	patient_single(test, 3, KEEL_FRAME_REQUEST, 3);
	/* It is the message that the answer has waited for. */
	KUNIT_EXPECT_TRUE(test, patient_pairs());
}

/* HOST-2: an answer that a batch does not take is sent at once. */
static void host_2_long_answer(struct kunit *test)
{
	patient_begin(test);
	patient_send(test, KEEL_FRAME_ANSWER, 3, KEEL_BATCH_DATA + 1, true);
	patient_used(test, 3, 0);
	patient_single(test, 2, KEEL_FRAME_ANSWER, 3);
}

/* HOST-2: an answer that nothing follows is sent when its time is over; the next one at once. */
static void host_2_in_vain(struct kunit *test)
{
	u32 i;

	patient_begin(test);
	rx->conn->patient_ns = 2 * NSEC_PER_MSEC;
	patient_answer(test, 3);
	for (i = 0; i < 1000 && patient_nsent() < 3; i++)
		usleep_range(1000, 2000);
	patient_used(test, 3, 0);
	/* That it is a batch shows that it has waited. */
	patient_batch(test, 2, 1);
	patient_part(test, 2, 0, KEEL_FRAME_ANSWER, 3);
	KUNIT_EXPECT_FALSE(test, patient_pairs());
	rx->conn->patient_ns = LONG_NS;
	patient_answer(test, 4);
	patient_used(test, 4, 0);
	patient_single(test, 3, KEEL_FRAME_ANSWER, 4);
	/* A request that follows after all makes the next ones wait. */
	patient_request(test, 4);
	KUNIT_EXPECT_TRUE(test, patient_pairs());
	patient_answer(test, 6);
	patient_used(test, 5, 1);
}

/* HOST-2: a request that is late is none that an answer should have waited for. */
static void host_2_late_request(struct kunit *test)
{
	rx_set_credits(CREDITS);
	rx->conn->patient_ns = SHORT_NS;
	patient_answer(test, 1);
	usleep_range(100, 200);
	patient_request(test, 1);
	KUNIT_EXPECT_FALSE(test, patient_pairs());
	patient_answer(test, 3);
	patient_used(test, 3, 0);
	patient_single(test, 2, KEEL_FRAME_ANSWER, 3);
}

/* HOST-2: likewise if the request before was in time. */
static void host_2_late_later(struct kunit *test)
{
	patient_begin(test);
	/* The frame behind it sends it. */
	patient_answer(test, 3);
	patient_send(test, KEEL_FRAME_ANSWER, 4, 0, false);
	patient_used(test, 3, 0);
	rx->conn->patient_ns = SHORT_NS;
	usleep_range(100, 200);
	patient_request(test, 3);
	KUNIT_EXPECT_FALSE(test, patient_pairs());
	patient_used(test, 4, 0);
}

/* HOST-2: only the first request behind an answer tells whether it should have waited. */
static void host_2_first_request(struct kunit *test)
{
	patient_begin(test);
	rx->conn->patient_ns = SHORT_NS;
	usleep_range(100, 200);
	patient_request(test, 1);
	KUNIT_EXPECT_TRUE(test, patient_pairs());
	rx->conn->patient_ns = LONG_NS;
	patient_answer(test, 4);
	patient_used(test, 3, 1);
}

/* HOST-2: a request of another QP says nothing about an answer. */
static void host_2_another(struct kunit *test)
{
	rx_set_credits(CREDITS);
	patient_answer(test, 1);
	patient_request(test, 2);
	KUNIT_EXPECT_FALSE(test, patient_pairs());
	patient_answer(test, 1);
	patient_used(test, 3, 0);
	patient_request(test, 1);
	KUNIT_EXPECT_TRUE(test, patient_pairs());
	/* But it takes along one that waits. */
	patient_answer(test, 1);
	patient_request(test, 2);
	patient_used(test, 5, 0);
	patient_batch(test, 4, 2);
	patient_part(test, 4, 1, KEEL_FRAME_REQUEST, 2);
}

static struct kunit_case patient_cases[] = {
	KUNIT_CASE(host_2_pair),
	KUNIT_CASE(host_2_answers),
	KUNIT_CASE(host_2_impatient),
	KUNIT_CASE(host_2_not_batched),
	KUNIT_CASE(host_2_long_answer),
	KUNIT_CASE(host_2_in_vain),
	KUNIT_CASE(host_2_late_request),
	KUNIT_CASE(host_2_late_later),
	KUNIT_CASE(host_2_first_request),
	KUNIT_CASE(host_2_another),
	{}
};

static struct kunit_suite patient_suite = {
	.name = "keel_link_patient",
	.init = rx_init,
	.exit = rx_exit,
	.test_cases = patient_cases,
};
kunit_test_suite(patient_suite);
