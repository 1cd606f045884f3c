// SPDX-License-Identifier: GPL-2.0
/*
 * Long packets, between a QP and another host: how many the QP keeps and sends, and where their
 * data is.
 */
#include "far_long.h"

/* Frame @i is packet @nr, with @len bytes from @off on: in a chunk, if they are many. */
static void sends(struct far_host *h, u32 i, u32 nr, const u8 *buf, u32 off, u32 len)
{
	const struct keel_frame *frame = far_sent(h, i, nr);
	struct kunit *test = h->p->test;

	KUNIT_EXPECT_EQ(test, len, le32_to_cpu(frame->len));
	KUNIT_EXPECT_EQ(test, len > PACKET, frame->chunk != 0);
	KUNIT_EXPECT_EQ(test, BYTES - off, le64_to_cpu(frame->request.left));
	KUNIT_EXPECT_EQ(test, FAR_REMOTE + off, le64_to_cpu(frame->request.addr));
	if (len > PACKET)
		/* Too much to print. */
		KUNIT_EXPECT_EQ(test, 0, memcmp(buf + off, far_long_data(h, i), len));
	else
		KUNIT_EXPECT_MEMEQ(test, buf + off, h->sent[i]->data, len);
}

/* Post a long write, and let the first short packets be answered. The next one is a long one. */
static void begin_write(struct far_host *h, u8 *buf, u8 chunks)
{
	u32 i;

	far_post(h, IB_WR_RDMA_WRITE, buf, BYTES);
	for (i = 0; i < FAR_WHOLE; i++)
		sends(h, i, i, buf, i * PACKET, PACKET);
	far_long_done(h, 0, 0, chunks);
}

/* HOST-1: packets get long when the other side says so, and no more than it says are under way. */
static void host_1_write(struct kunit *test)
{
	u32 off = FAR_WHOLE * PACKET, i, n;
	struct far_host *h;
	u8 *buf;

	h = far_long_make(test, &buf);
	begin_write(h, buf, LONGS);
	for (i = 1; i < FAR_WHOLE; i++)
		far_long_done(h, i, 0, LONGS);
	for (n = FAR_WHOLE; n < FAR_WHOLE + LONGS; n++, off += CHUNK)
		sends(h, n, n, buf, off, CHUNK);
	/* The window has room for more, but not for a long one. */
	KUNIT_EXPECT_EQ(test, n, far_host_wait(h, n));
	far_long_done(h, FAR_WHOLE, 0, LONGS);
	sends(h, n, n, buf, off, BYTES - off);
	far_nothing_ended(h);
	for (i = FAR_WHOLE + 1; i <= n; i++)
		far_long_done(h, i, 0, LONGS);
	far_ended_with(h, IB_WC_SUCCESS, KEEL_WHY_NONE);
}

/* HOST-1: without a word of the other side, all packets stay short. */
static void host_1_not_granted(struct kunit *test)
{
	struct far_host *h;
	u8 *buf;

	h = far_long_make(test, &buf);
	begin_write(h, buf, 0);
	sends(h, FAR_WHOLE, FAR_WHOLE, buf, FAR_WHOLE * PACKET, PACKET);
}

/* HOST-1: likewise without chunks. */
static void host_1_no_chunks(struct kunit *test)
{
	struct far_host *h;
	u8 *buf;

	h = far_long_make(test, &buf);
	scoped_guard(spinlock, &h->conn.lock)
		h->conn.told_chunks = false;
	begin_write(h, buf, LONGS);
	sends(h, FAR_WHOLE, FAR_WHOLE, buf, FAR_WHOLE * PACKET, PACKET);
}

/* HOST-3: more than this host can keep are not believed. */
static void host_3_granted_all(struct kunit *test)
{
	u32 n = FAR_WHOLE + LONGS, i;
	struct far_host *h;
	u8 *buf;

	h = far_long_make(test, &buf);
	begin_write(h, buf, KEEL_CHUNKS);
	for (i = 1; i < FAR_WHOLE; i++)
		far_long_done(h, i, 0, KEEL_CHUNKS);
	KUNIT_EXPECT_EQ(test, n, far_host_wait(h, n));
}

/* HOST-2: a packet that is sent again has the same bytes, although it could not be long now. */
static void host_2_same_size(struct kunit *test)
{
	u32 n = FAR_WHOLE, off = n * PACKET, again, i;
	struct keel_frame answer;
	struct far_host *h;
	u8 *buf;

	h = far_long_make(test, &buf);
	begin_write(h, buf, LONGS);
	for (i = 0; i < LONGS; i++)
		sends(h, n + i, n + i, buf, off + i * CHUNK, CHUNK);
	/* It has looked at those, and is not ready for the second packet: they are sent again. */
	scoped_guard(spinlock, &h->conn.lock) {
		h->conn.chunks_writing = 0;
		KUNIT_EXPECT_TRUE(test, keel_chunks_return(&h->conn, h->conn.chunks_out));
	}
	answer = far_answer(h, 1, IB_WC_SUCCESS);
	answer.answer.result = KEEL_RESULT_NOT_READY;
	far_give(h, &answer);
	/* One packet as a trial, until it is answered. */
	again = n + LONGS - 1;
	sends(h, again + 1, 1, buf, PACKET, PACKET);
	far_long_done(h, 1, 0, 0);
	for (i = 2; i < n; i++)
		sends(h, again + i, i, buf, i * PACKET, PACKET);
	for (i = 0; i < LONGS; i++)
		sends(h, again + n + i, n + i, buf, off + i * CHUNK, CHUNK);
	/* The next new one is short: there may be no long ones any more. */
	sends(h, again + n + i, n + i, buf, off + i * CHUNK, PACKET);
}

/* HOST-3: a packet of memory that was absent stays short, whatever userspace does to its SGEs. */
static void host_3_staged(struct kunit *test)
{
	struct far_host *h;
	u8 *buf;

	h = far_long_make(test, &buf);
	scoped_guard(spinlock, &h->conn.lock)
		h->conn.credits = 0;
	h->qp->far->granted = LONGS;
	far_post(h, IB_WR_RDMA_WRITE, buf, BYTES);
	far_host_settle(h);
	KUNIT_EXPECT_EQ(test, 0, far_host_wait(h, 0));
	/* As if its memory had been absent, and is some other one now. */
	mutex_lock(&h->qp->sq.from.lock);
	memset(h->qp->far->stage, 0x77, PACKET);
	h->qp->far->staged = true;
	mutex_unlock(&h->qp->sq.from.lock);
	scoped_guard(spinlock, &h->conn.lock)
		h->conn.credits = FAR_SENDS;
	keel_qp_schedule(h->qp);
	KUNIT_EXPECT_EQ(test, PACKET, le32_to_cpu(far_sent(h, 0, 0)->len));
	KUNIT_EXPECT_NULL(test, memchr_inv(h->sent[0]->data, 0x77, PACKET));
	/* The next one is as long as it may be. */
	sends(h, 1, 1, buf, PACKET, CHUNK);
}

/* HOST-1: no chunk is free: the message waits for one, and for nothing else. */
static void host_1_wait(struct kunit *test)
{
	u32 n = FAR_WHOLE, i;
	struct far_host *h;
	u8 *buf;

	h = far_long_make(test, &buf);
	scoped_guard(spinlock, &h->conn.lock) {
		h->conn.chunks_free = 0;
		h->conn.chunks_out = GENMASK(KEEL_CHUNKS - 1, 0);
	}
	begin_write(h, buf, LONGS);
	for (i = 1; i < n; i++)
		far_long_done(h, i, 0, LONGS);
	KUNIT_EXPECT_EQ(test, n, far_host_wait(h, n));
	scoped_guard(spinlock, &h->conn.lock) {
		/* One that is not out. */
		KUNIT_EXPECT_FALSE(test, keel_chunks_return(&h->conn, BIT(KEEL_CHUNKS)));
		KUNIT_EXPECT_TRUE(test, keel_chunks_return(&h->conn, BIT(KEEL_CHUNKS - 1)));
		KUNIT_EXPECT_FALSE(test, keel_chunks_return(&h->conn, BIT(KEEL_CHUNKS - 1)));
	}
	/* As keel_link_wake() does. */
	keel_link_unwait(&h->link, &h->qp->far->rx_wait);
	keel_qp_schedule(h->qp);
	sends(h, n, n, buf, n * PACKET, CHUNK);
	KUNIT_EXPECT_EQ(test, KEEL_CHUNKS, le16_to_cpu(h->sent[n]->frame->chunk));
	KUNIT_EXPECT_EQ(test, n + 1, far_host_wait(h, n + 1));
}

/* HOST-1: a read gets long answers, when this side has memory for them. */
static void host_1_read(struct kunit *test)
{
	u32 n = FAR_WHOLE, off, i, len;
	const struct keel_frame *frame;
	struct far_host *h;
	u8 *buf;

	h = far_long_make(test, &buf);
	memset(buf, 0, BYTES);
	far_post(h, IB_WR_RDMA_READ, buf, BYTES);
	for (i = 0; i < n; i++) {
		far_sent(h, i, i);
		memset(h->data, i + 1, PACKET);
		far_long_done(h, i, PACKET, LONGS);
		KUNIT_EXPECT_NULL(test, memchr_inv(buf + i * PACKET, i + 1, PACKET));
	}
	for (off = i * PACKET; off < BYTES; off += len, i++) {
		frame = far_sent(h, i, i);
		len = le32_to_cpu(frame->request.bytes);
		KUNIT_EXPECT_EQ(test, 0, le32_to_cpu(frame->len));
		KUNIT_EXPECT_EQ(test, BYTES - off, le64_to_cpu(frame->request.left));
		memset(h->data, i + 1, len);
		far_long_done(h, i, len, LONGS);
		KUNIT_EXPECT_NULL(test, memchr_inv(buf + off, i + 1, len));
		KUNIT_EXPECT_EQ(test, 0, far_long_answers(h));
	}
	/* Those that were sent before the first answers are short. */
	KUNIT_EXPECT_LE(test, i, 2 * n + LONGS + 2);
	far_ended_with(h, IB_WC_SUCCESS, KEEL_WHY_NONE);
}

/* HOST-3: a long answer that this side has not asked for counts for nothing. */
static void host_3_long_answer(struct kunit *test)
{
	struct far_host *h;
	u8 *buf;

	h = far_long_make(test, &buf);
	far_post(h, IB_WR_RDMA_READ, buf, 100);
	far_sent(h, 0, 0);
	far_long_done(h, 0, CHUNK, LONGS);
	KUNIT_EXPECT_EQ(test, 0, far_answers_n(h));
	far_nothing_ended(h);
	far_long_done(h, 0, 100, LONGS);
	far_ended_with(h, IB_WC_SUCCESS, KEEL_WHY_NONE);
}

/* HOST-2: long packets are executed in order, and leave the memory free. */
static void host_2_keep(struct kunit *test)
{
	u32 len = PAIR_BYTES / 2;
	struct keel_frame frame;
	struct far_host *h;
	u8 *buf;

	h = far_long_make(test, &buf);
	far_long_grow(h);
	memset(h->data, 7, len);
	frame = far_long_packet(h, 1, FIRST, len, PAIR_BYTES);
	far_request(h, &frame);
	KUNIT_EXPECT_EQ(test, LONGS, far_answered(h, 1, 1, KEEL_RESULT_DONE,
						  IB_WC_SUCCESS)->answer.chunks);
	memset(h->data, 8, len);
	frame = far_long_packet(h, 2, LAST, len, len);
	frame.request.addr = cpu_to_le64((uintptr_t)h->p->b.buf + len);
	far_request(h, &frame);
	far_answered(h, 2, 2, KEEL_RESULT_DONE, IB_WC_SUCCESS);
	KUNIT_EXPECT_NULL(test, memchr_inv(h->p->b.buf, 7, len));
	KUNIT_EXPECT_NULL(test, memchr_inv(h->p->b.buf + len, 8, len));
	KUNIT_EXPECT_EQ(test, 0, far_long_requests(h));
}

/* HOST-3: a long packet without memory for it is dropped, and so is one more than there may be. */
static void host_3_too_many(struct kunit *test)
{
	struct far_host *h;
	struct keel_frame frame;
	u32 len = PACKET + 1, i;
	u8 *buf;

	h = far_long_make(test, &buf);
	frame = far_long_packet(h, 0, ONLY, len, len);
	keel_far_ops.request(&h->link, &frame, h->data);
	KUNIT_EXPECT_EQ(test, 0, far_requests_n(h));
	far_long_grow(h);
	/* No answer can be sent, so that all are kept. */
	scoped_guard(spinlock, &h->conn.lock)
		h->conn.credits = 0;
	for (i = 1; i <= LONGS + 1; i++) {
		frame = far_long_packet(h, i, ONLY, len, len);
		far_request(h, &frame);
		KUNIT_EXPECT_EQ(test, min(i, LONGS), far_requests_n(h));
		KUNIT_EXPECT_EQ(test, min(i, LONGS), far_long_requests(h));
	}
	/* A short one that is next is kept. */
	frame = far_long_packet(h, LONGS + 1, ONLY, 64, 64);
	far_request(h, &frame);
	KUNIT_EXPECT_EQ(test, LONGS + 1, far_requests_n(h));
	/* After a reset, all is free. */
	end_move(h->p, &h->p->b, IB_QPS_RESET);
	KUNIT_EXPECT_EQ(test, 0, far_requests_n(h));
	KUNIT_EXPECT_EQ(test, 0, far_long_requests(h));
}

/* HOST-1: the answer to a long read is in a chunk. */
static void host_1_serve_read(struct kunit *test)
{
	const struct keel_frame *answer;
	struct keel_frame frame;
	struct far_host *h;
	u8 *buf;

	h = far_long_make(test, &buf);
	far_long_grow(h);
	memset(h->p->b.buf, 9, PAIR_BYTES);
	frame = far_packet(h, 1, IB_WR_RDMA_READ, ONLY, 0, PAIR_BYTES);
	frame.request.bytes = cpu_to_le32(PAIR_BYTES);
	far_request(h, &frame);
	answer = far_answered(h, 1, 1, KEEL_RESULT_DONE, IB_WC_SUCCESS);
	KUNIT_EXPECT_EQ(test, PAIR_BYTES, le32_to_cpu(answer->len));
	KUNIT_EXPECT_NE(test, 0, le16_to_cpu(answer->chunk));
	KUNIT_EXPECT_NULL(test, memchr_inv(far_long_data(h, 1), 9, PAIR_BYTES));
	KUNIT_EXPECT_EQ(test, 0, far_long_requests(h));
}

static struct kunit_case far_long_cases[] = {
	KUNIT_CASE(host_1_write),
	KUNIT_CASE(host_1_not_granted),
	KUNIT_CASE(host_1_no_chunks),
	KUNIT_CASE(host_3_granted_all),
	KUNIT_CASE(host_2_same_size),
	KUNIT_CASE(host_3_staged),
	KUNIT_CASE(host_1_wait),
	KUNIT_CASE(host_1_read),
	KUNIT_CASE(host_3_long_answer),
	KUNIT_CASE(host_2_keep),
	KUNIT_CASE(host_3_too_many),
	KUNIT_CASE(host_1_serve_read),
	{}
};

static struct kunit_suite far_long_suite = {
	.name = "keel_far_long",
	.suite_init = pair_suite_init,
	.suite_exit = pair_suite_exit,
	.init = pair_init,
	.exit = pair_exit,
	.test_cases = far_long_cases,
};
kunit_test_suite(far_long_suite);
