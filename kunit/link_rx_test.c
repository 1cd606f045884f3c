// SPDX-License-Identifier: GPL-2.0
/*
 * Frames that a connection receives: from the other end, and from those who only know the
 * numbers of its QP.
 */
#include <kunit/test.h>

#include "rx.h"

#define CREDITS_MAX	U16_MAX

static unsigned long rx_asked(void)
{
	guard(spinlock)(&rx->link->lock);
	return rx->link->asked;
}

static void rx_set_asked(struct keel_conn *up)
{
	guard(spinlock)(&rx->link->lock);
	rx->link->asked = 1;
	rx->link->up = up;
}

/* The last frame did nothing but to use a buffer, which receives again. */
static void rx_ignores(struct kunit *test)
{
	KUNIT_EXPECT_FALSE(test, rx_has(KEEL_CONN_CONFIRMED));
	KUNIT_EXPECT_FALSE(test, rx_has(KEEL_CONN_ENDED));
	KUNIT_EXPECT_TRUE(test, keel_conn_is_up(rx->conn));
	KUNIT_EXPECT_EQ(test, 0, rx->ngot);
	KUNIT_EXPECT_EQ(test, rx->next, rx->posted);
	KUNIT_EXPECT_EQ(test, 0, rx_owed());
	KUNIT_EXPECT_EQ(test, RX_CREDITS, rx_credits());
	KUNIT_EXPECT_EQ(test, 0, rx->nsent);
	KUNIT_EXPECT_EQ(test, 1, rx_asked());
}

/* A frame with a wrong cookie is from somebody else: it does nothing. */
static void host_3_cookie(struct kunit *test)
{
	struct keel_frame frame = rx_frame(KEEL_FRAME_REQUEST);

	rx_set_asked(rx->conn);
	frame.credits = cpu_to_le16(5);
	frame.cookie = cpu_to_le64(RX_COOKIE ^ 1);
	rx_receive(&frame);
	rx_ignores(test);
	frame.cookie = 0;
	rx_receive(&frame);
	rx_ignores(test);
	/* Nor does the one that this side sends. */
	frame = rx_frame(KEEL_FRAME_ASK);
	frame.cookie = cpu_to_le64(RX_PEER_COOKIE);
	rx_receive(&frame);
	rx_ignores(test);
	/* It need not be valid: anybody could end the connection otherwise. */
	frame.type = 0xff;
	rx_receive(&frame);
	rx_ignores(test);
}

/* A message that is too short for a frame does nothing, whatever the buffer held before. */
static void host_3_short(struct kunit *test)
{
	struct keel_frame frame = rx_frame(KEEL_FRAME_REQUEST);

	rx_set_asked(rx->conn);
	rx_receive_n(&frame, sizeof(frame) - 1);
	rx_ignores(test);
	rx_receive_n(&frame, 0);
	rx_ignores(test);
}

/* A frame with the right cookie confirms the connection, and gets to its receiver. */
static void host_4_delivered(struct kunit *test)
{
	static const enum keel_frame_type types[] = {
		KEEL_FRAME_REQUEST, KEEL_FRAME_ANSWER, KEEL_FRAME_DATAGRAM,
	};
	struct keel_frame frame;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(types); i++) {
		frame = rx_frame(types[i]);
		frame.len = cpu_to_le32(5);
		frame.to = cpu_to_le32(17 + i);
		rx_receive(&frame);
		KUNIT_EXPECT_TRUE(test, rx_has(KEEL_CONN_CONFIRMED));
		KUNIT_EXPECT_EQ(test, i + 1, rx->ngot);
		KUNIT_EXPECT_EQ(test, types[i], rx->how);
		KUNIT_EXPECT_MEMEQ(test, &frame, &rx->got, sizeof(frame));
		KUNIT_EXPECT_STREQ(test, "data", rx->data);
		KUNIT_EXPECT_EQ(test, i + 1, rx->posted);
		KUNIT_EXPECT_EQ(test, i + 1, rx_owed());
	}
	KUNIT_EXPECT_TRUE(test, keel_conn_is_up(rx->conn));
	KUNIT_EXPECT_FALSE(test, rx_has(KEEL_CONN_ENDED));
	KUNIT_EXPECT_EQ(test, 0, rx->nsent);
}

/* An invalid frame from the other end ends the connection. */
static void host_3_invalid(struct kunit *test)
{
	struct keel_frame frame = rx_frame(KEEL_FRAME_REQUEST);

	frame.srqn = cpu_to_le32(1);
	rx_receive(&frame);
	KUNIT_EXPECT_FALSE(test, rx_has(KEEL_CONN_CONFIRMED));
	rx_ends(test);
	frame = rx_frame(KEEL_FRAME_REQUEST);
	rx_receive_n(&frame, sizeof(frame) + 1);
	rx_ends(test);
	/* The one after it is good. */
	rx_receive(&frame);
	KUNIT_EXPECT_EQ(test, 1, rx->ngot);
}

/* A completion with an error, or of another message than a send, ends the connection. */
static void host_3_completion(struct kunit *test)
{
	const struct keel_frame frame = rx_frame(KEEL_FRAME_REQUEST);
	struct ib_wc wc = { .opcode = IB_WC_RECV, .byte_len = sizeof(frame) };

	wc.status = IB_WC_WR_FLUSH_ERR;
	rx_complete(&frame, wc);
	rx_ends(test);
	wc.status = IB_WC_LOC_LEN_ERR;
	rx_complete(&frame, wc);
	rx_ends(test);
	wc.status = IB_WC_SUCCESS;
	wc.opcode = IB_WC_RECV_RDMA_WITH_IMM;
	rx_complete(&frame, wc);
	rx_ends(test);
}

/* Credits add up. More than any host has buffers end the connection. */
static void host_3_credits(struct kunit *test)
{
	struct keel_frame frame = rx_frame(KEEL_FRAME_CREDIT);

	frame.credits = cpu_to_le16(5);
	rx_receive(&frame);
	KUNIT_EXPECT_EQ(test, RX_CREDITS + 5, rx_credits());
	frame.credits = cpu_to_le16(CREDITS_MAX - RX_CREDITS - 5);
	rx_receive(&frame);
	KUNIT_EXPECT_EQ(test, CREDITS_MAX, rx_credits());
	KUNIT_EXPECT_TRUE(test, keel_conn_is_up(rx->conn));
	KUNIT_EXPECT_EQ(test, 2, rx->posted);
	KUNIT_EXPECT_EQ(test, 2, rx_owed());
	rx->posted = 0;
	scoped_guard(spinlock, &rx->conn->lock)
		rx->conn->owed = 0;
	frame.credits = cpu_to_le16(1);
	rx_receive(&frame);
	rx_ends(test);
	KUNIT_EXPECT_EQ(test, CREDITS_MAX, rx_credits());
	frame.credits = cpu_to_le16(CREDITS_MAX);
	rx_receive(&frame);
	rx_ends(test);
}

static void rx_sent_is(struct kunit *test, u32 nr, enum keel_frame_type type, u32 credits)
{
	const struct keel_frame *frame = &rx->sent[nr];

	KUNIT_ASSERT_GT(test, rx->nsent, nr);
	KUNIT_EXPECT_EQ(test, type, frame->type);
	KUNIT_EXPECT_EQ(test, credits, le16_to_cpu(frame->credits));
	KUNIT_EXPECT_EQ(test, 0, le32_to_cpu(frame->len));
	KUNIT_EXPECT_EQ(test, RX_PEER_COOKIE, le64_to_cpu(frame->cookie));
}

/* The other side asks whether this one is there: the answer comes as soon as it can. */
static void host_4_alive(struct kunit *test)
{
	struct keel_frame frame = rx_frame(KEEL_FRAME_ASK);

	rx_receive(&frame);
	KUNIT_EXPECT_EQ(test, 1, rx->nsent);
	rx_sent_is(test, 0, KEEL_FRAME_ALIVE, 1);
	KUNIT_EXPECT_EQ(test, 0, rx_owed());
	KUNIT_EXPECT_EQ(test, 0, rx->ngot);
	KUNIT_EXPECT_TRUE(test, rx_has(KEEL_CONN_CONFIRMED));
	/* Without a credit, it waits for one. */
	rx_set_credits(0);
	rx_receive(&frame);
	KUNIT_EXPECT_EQ(test, 1, rx->nsent);
	frame = rx_frame(KEEL_FRAME_CREDIT);
	frame.credits = cpu_to_le16(2);
	rx_receive(&frame);
	KUNIT_EXPECT_EQ(test, 2, rx->nsent);
	rx_sent_is(test, 1, KEEL_FRAME_ALIVE, 2);
	KUNIT_EXPECT_EQ(test, 1, rx_credits());
}

/* The connection has chunks of the test. */
static struct keel_chunks *rx_chunks(struct kunit *test)
{
	struct keel_chunks *chunks = kunit_kzalloc(test, sizeof(*chunks), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, chunks);
	chunks->recv.data = kunit_kzalloc(test, KEEL_CHUNKS * KEEL_CHUNK_DATA, GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, chunks->recv.data);
	guard(spinlock)(&rx->conn->lock);
	rx->conn->chunks = chunks;
	return chunks;
}

static void rx_receive_chunk(u32 chunk, u32 len)
{
	struct keel_frame frame = rx_frame(KEEL_FRAME_REQUEST);

	frame.chunk = cpu_to_le16(chunk);
	frame.len = cpu_to_le32(len);
	rx_receive_n(&frame, sizeof(frame));
}

/* The data of a long packet is in its chunk. Half of the chunks go back without being asked. */
static void host_2_chunks(struct kunit *test)
{
	struct keel_chunks *chunks = rx_chunks(test);

	strscpy(chunks->recv.data + KEEL_CHUNK_DATA, "chunk 2", sizeof(rx->data));
	strscpy(chunks->recv.data + 3 * KEEL_CHUNK_DATA, "chunk 4", sizeof(rx->data));
	rx_receive_chunk(2, KEEL_CHUNK_DATA);
	KUNIT_EXPECT_STREQ(test, "chunk 2", rx->data);
	KUNIT_EXPECT_EQ(test, 0, rx->nsent);
	rx_receive_chunk(4, KEEL_FRAME_DATA + 1);
	KUNIT_EXPECT_STREQ(test, "chunk 4", rx->data);
	KUNIT_EXPECT_EQ(test, KEEL_CHUNKS / 2, rx->ngot);
	rx_sent_is(test, 0, KEEL_FRAME_CREDIT, KEEL_CHUNKS / 2);
	KUNIT_EXPECT_EQ(test, BIT(1) | BIT(3), le16_to_cpu(rx->sent[0].freed));
	guard(spinlock)(&rx->conn->lock);
	KUNIT_EXPECT_EQ(test, 0, rx->conn->chunks_freed);
	rx->conn->chunks = NULL;
}

/* Chunks that are not there or not written, or that are told of twice, end the connection. */
static void host_3_chunks(struct kunit *test)
{
	struct keel_frame frame = rx_frame(KEEL_FRAME_CREDIT);

	rx_receive_chunk(1, KEEL_CHUNK_DATA);
	rx_ends(test);
	frame.freed = cpu_to_le16(1);
	rx_receive(&frame);
	rx_ends(test);
	frame = rx_frame(KEEL_FRAME_CHUNKS);
	frame.chunks.rkey = cpu_to_le32(7);
	rx_receive(&frame);
	KUNIT_EXPECT_TRUE(test, keel_conn_is_up(rx->conn));
	rx->posted = 0;
	scoped_guard(spinlock, &rx->conn->lock)
		rx->conn->owed = 0;
	rx_receive(&frame);
	rx_ends(test);
}

/* After half of its buffers, this side gives credits without being asked. */
static void host_4_gives_credits(struct kunit *test)
{
	struct keel_frame frame = rx_frame(KEEL_FRAME_ANSWER);
	u32 i;

	for (i = 1; i < KEEL_LINK_RECVS / 2; i++)
		rx_receive(&frame);
	KUNIT_EXPECT_EQ(test, 0, rx->nsent);
	rx_receive(&frame);
	KUNIT_EXPECT_EQ(test, 1, rx->nsent);
	rx_sent_is(test, 0, KEEL_FRAME_CREDIT, KEEL_LINK_RECVS / 2);
	KUNIT_EXPECT_EQ(test, 0, rx_owed());
	KUNIT_EXPECT_EQ(test, RX_CREDITS - 1, rx_credits());
	/* Without a credit of its own, it keeps them for the next frame. */
	rx_set_credits(0);
	for (i = 0; i < KEEL_LINK_RECVS / 2 + 1; i++)
		rx_receive(&frame);
	KUNIT_EXPECT_EQ(test, 1, rx->nsent);
	KUNIT_EXPECT_EQ(test, KEEL_LINK_RECVS / 2 + 1, rx_owed());
	frame.credits = cpu_to_le16(1);
	rx_receive(&frame);
	KUNIT_EXPECT_EQ(test, 2, rx->nsent);
	rx_sent_is(test, 1, KEEL_FRAME_CREDIT, KEEL_LINK_RECVS / 2 + 2);
	KUNIT_EXPECT_EQ(test, KEEL_LINK_RECVS + 2, rx->ngot);
	KUNIT_EXPECT_EQ(test, rx->next, rx->posted);
}

/* Any frame answers a question about the connection, but not that of a guest. */
static void host_4_asked(struct kunit *test)
{
	struct keel_frame frame = rx_frame(KEEL_FRAME_ALIVE);

	rx_set_asked(NULL);
	rx_receive(&frame);
	KUNIT_EXPECT_EQ(test, 1, rx_asked());
	rx_set_asked(rx->conn);
	rx_receive(&frame);
	KUNIT_EXPECT_EQ(test, 0, rx_asked());
	KUNIT_EXPECT_EQ(test, 2, rx->posted);
}

/* A buffer that cannot be posted again ends the connection: nothing could be received. */
static void host_4_not_posted(struct kunit *test)
{
	struct keel_frame frame = rx_frame(KEEL_FRAME_ALIVE);

	rx->refuse = true;
	rx_receive(&frame);
	rx_ends(test);
	/* The same for a frame of somebody else. */
	frame.cookie = 0;
	rx_receive(&frame);
	rx_ends(test);
}

/* A connection that is over posts no buffer. */
static void host_4_over(struct kunit *test)
{
	struct keel_frame frame = rx_frame(KEEL_FRAME_ALIVE);

	rx_complete(&frame, (struct ib_wc){ .status = IB_WC_WR_FLUSH_ERR });
	rx_receive(&frame);
	KUNIT_EXPECT_EQ(test, 0, rx->posted);
	frame.cookie = 0;
	rx_receive(&frame);
	rx_ends(test);
}

static struct kunit_case rx_cases[] = {
	KUNIT_CASE(host_3_cookie),
	KUNIT_CASE(host_3_short),
	KUNIT_CASE(host_4_delivered),
	KUNIT_CASE(host_3_invalid),
	KUNIT_CASE(host_3_completion),
	KUNIT_CASE(host_3_credits),
	KUNIT_CASE(host_4_alive),
	KUNIT_CASE(host_2_chunks),
	KUNIT_CASE(host_3_chunks),
	KUNIT_CASE(host_4_gives_credits),
	KUNIT_CASE(host_4_asked),
	KUNIT_CASE(host_4_not_posted),
	KUNIT_CASE(host_4_over),
	{}
};

static struct kunit_suite rx_suite = {
	.name = "keel_link_rx",
	.init = rx_init,
	.exit = rx_exit,
	.test_cases = rx_cases,
};
kunit_test_suite(rx_suite);
