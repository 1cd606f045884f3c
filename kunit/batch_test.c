// SPDX-License-Identifier: GPL-2.0
/*
 * Short frames that are sent in one message, and received.
 */
#include <kunit/test.h>
#include <linux/align.h>
#include <linux/delay.h>
#include <linux/string.h>

#include "rx.h"

/* Bytes of a header, and the most frames without data that a batch has. */
#define HEADER		sizeof(struct keel_frame)
#define MOST		(KEEL_FRAME_DATA / HEADER)
/* Messages under way from which on frames wait. */
#define FEW		(KEEL_BATCH_AFTER + KEEL_CONN_SIGNAL - 1)

/* Send a request with @len bytes, each of which is @nr. */
static void batch_send(struct kunit *test, u32 nr, u32 len)
{
	rx_send(test, KEEL_FRAME_REQUEST, nr, len, false);
}

static void batch_done(u32 nr, enum ib_wc_status status)
{
	struct keel_buf *buf = rx->bufs[nr];
	struct ib_wc wc = { .status = status, .wr_cqe = &buf->cqe };

	buf->cqe.done(NULL, &wc);
}

/* Message @nr, and those before, have arrived. */
static void batch_arrived(struct kunit *test, u32 nr)
{
	KUNIT_EXPECT_TRUE(test, rx->signals & BIT(nr));
	batch_done(nr, IB_WC_SUCCESS);
}

static u32 batch_under_way(void)
{
	guard(spinlock)(&rx->conn->lock);
	return rx->conn->under_way;
}

/* Let so much be under way that short frames wait. */
static void batch_fill(struct kunit *test)
{
	u32 i;

	rx_set_credits(100);
	for (i = 0; i < FEW; i++)
		batch_send(test, 0, 0);
	KUNIT_ASSERT_EQ(test, FEW, rx->nsent);
}

/* The frame at @off of message @nr is that of batch_send(). Return: the end of it. */
static u32 batch_has(struct kunit *test, u32 nr, u32 off, u32 to, u32 len)
{
	const struct keel_frame want = {
		.type = KEEL_FRAME_REQUEST,
		.to = cpu_to_le32(to),
		.len = cpu_to_le32(len),
	};
	const u8 *data = rx->bufs[nr]->page + off;
	u32 i;

	KUNIT_EXPECT_MEMEQ(test, &want, data, HEADER);
	for (i = 0; i < len && data[HEADER + i] == to; i++)
		;
	KUNIT_EXPECT_EQ(test, len, i);
	/* No byte of the kernel. */
	for (; i < ALIGN(len, KEEL_FRAME_ALIGN); i++)
		KUNIT_EXPECT_EQ(test, 0, data[HEADER + i]);
	return off + HEADER + ALIGN(len, KEEL_FRAME_ALIGN);
}

/* Message @nr is a batch of @len bytes. */
static void batch_is(struct kunit *test, u32 nr, u32 len)
{
	const struct keel_frame *frame = &rx->sent[nr];

	KUNIT_ASSERT_EQ(test, nr + 1, rx->nsent);
	KUNIT_EXPECT_EQ(test, KEEL_FRAME_BATCH, frame->type);
	KUNIT_EXPECT_EQ(test, len, le32_to_cpu(frame->len));
	KUNIT_EXPECT_EQ(test, RX_PEER_COOKIE, le64_to_cpu(frame->cookie));
	KUNIT_EXPECT_TRUE(test, keel_frame_is_valid(frame, HEADER + len));
}

/* HOST-2: with little under way, no frame waits; else they go together, for one credit. */
static void host_2_together(struct kunit *test)
{
	u32 off, nr = FEW;

	batch_fill(test);
	KUNIT_EXPECT_EQ(test, 100 - nr, rx_credits());
	batch_send(test, 1, 0);
	batch_send(test, 2, 13);
	batch_send(test, 3, KEEL_BATCH_DATA);
	KUNIT_EXPECT_EQ(test, nr, rx->nsent);
	KUNIT_EXPECT_EQ(test, 100 - nr - 1, rx_credits());
	batch_arrived(test, KEEL_CONN_SIGNAL - 1);
	off = batch_has(test, nr, 0, 1, 0);
	off = batch_has(test, nr, off, 2, 13);
	off = batch_has(test, nr, off, 3, KEEL_BATCH_DATA);
	batch_is(test, nr, off);
	KUNIT_EXPECT_EQ(test, FEW - KEEL_CONN_SIGNAL + 1, batch_under_way());
	batch_send(test, 4, 5);
	KUNIT_EXPECT_EQ(test, nr + 2, rx->nsent);
	KUNIT_EXPECT_EQ(test, KEEL_FRAME_REQUEST, rx->sent[nr + 1].type);
}

/* HOST-2: frames that cannot wait do not overtake those that do. */
static void host_2_order(struct kunit *test)
{
	u32 nr = FEW;

	batch_fill(test);
	batch_send(test, 1, 0);
	batch_send(test, 2, KEEL_BATCH_DATA + 1);
	KUNIT_ASSERT_EQ(test, nr + 2, rx->nsent);
	KUNIT_EXPECT_EQ(test, KEEL_FRAME_BATCH, rx->sent[nr].type);
	KUNIT_EXPECT_EQ(test, KEEL_FRAME_REQUEST, rx->sent[nr + 1].type);
	KUNIT_EXPECT_EQ(test, 2, le32_to_cpu(rx->sent[nr + 1].to));
	batch_send(test, 3, 0);
	KUNIT_EXPECT_TRUE(test, keel_conn_tell(rx->conn, KEEL_FRAME_ASK));
	KUNIT_ASSERT_EQ(test, nr + 4, rx->nsent);
	KUNIT_EXPECT_EQ(test, KEEL_FRAME_BATCH, rx->sent[nr + 2].type);
	KUNIT_EXPECT_EQ(test, KEEL_FRAME_ASK, rx->sent[nr + 3].type);
	batch_has(test, nr + 2, 0, 3, 0);
}

/* HOST-2: a whole batch does not wait any more. */
static void host_2_whole(struct kunit *test)
{
	u32 i, off = 0, nr = FEW;

	batch_fill(test);
	for (i = 0; i < MOST; i++)
		batch_send(test, i, 0);
	KUNIT_EXPECT_EQ(test, nr + 1, rx->nsent);
	batch_send(test, MOST, 0);
	for (i = 0; i < MOST; i++)
		off = batch_has(test, nr, off, i, 0);
	batch_is(test, nr, off);
	KUNIT_EXPECT_EQ(test, 100 - nr - 2, rx_credits());
	batch_arrived(test, KEEL_CONN_SIGNAL - 1);
	batch_has(test, nr + 1, 0, MOST, 0);
	batch_is(test, nr + 1, HEADER);
}

static u32 batch_sent(void)
{
	guard(spinlock)(&rx->conn->lock);
	return rx->nsent;
}

/* HOST-2: no batch waits long for a completion, nor does the next one. */
static void host_2_late(struct kunit *test)
{
	u32 i, n;

	batch_fill(test);
	rx->conn->batch_ns = 2 * NSEC_PER_MSEC;
	for (n = FEW + 1; n < FEW + 4; n++) {
		batch_send(test, n, 0);
		for (i = 0; i < 1000 && batch_sent() < n; i++)
			usleep_range(1000, 2000);
		batch_has(test, n - 1, 0, n, 0);
		batch_is(test, n - 1, HEADER);
	}
}

/* HOST-3: a connection that ends while frames wait sends them no more. */
static void host_3_gone(struct kunit *test)
{
	batch_fill(test);
	rx->conn->batch_ns = 1;
	batch_send(test, 1, 0);
	/* rx_exit() destroys it. */
}

/* HOST-4: credits that this side owes go with a batch, if there is one. */
static void host_4_credits(struct kunit *test)
{
	struct keel_frame frame = rx_frame(KEEL_FRAME_ANSWER);
	u32 i, nr = FEW;

	batch_fill(test);
	batch_send(test, 1, 0);
	for (i = 0; i < KEEL_LINK_RECVS / 2; i++)
		rx_receive(&frame);
	batch_is(test, nr, HEADER);
	KUNIT_EXPECT_EQ(test, KEEL_LINK_RECVS / 2, le16_to_cpu(rx->sent[nr].credits));
	KUNIT_EXPECT_EQ(test, 0, rx_owed());
}

/* HOST-3: what waits when the connection ends is never sent. */
static void host_3_over(struct kunit *test)
{
	u32 nr = FEW;
	struct keel_frame frame = rx_frame(KEEL_FRAME_REQUEST);

	batch_fill(test);
	batch_send(test, 1, 0);
	rx_receive_n(&frame, HEADER + 1);
	KUNIT_EXPECT_FALSE(test, keel_conn_is_up(rx->conn));
	batch_done(nr - 1, IB_WC_SUCCESS);
	batch_done(nr - 1, IB_WC_WR_FLUSH_ERR);
	KUNIT_EXPECT_EQ(test, nr, rx->nsent);
}

/* HOST-4: a completion makes all buffers free that were posted before, and no others. */
static void host_4_reaped(struct kunit *test)
{
	u32 i;

	rx_set_credits(100);
	for (i = 0; i < 2 * KEEL_CONN_SIGNAL - 1; i++)
		batch_send(test, 1, KEEL_BATCH_DATA + 1);
	KUNIT_EXPECT_EQ(test, 2 * KEEL_CONN_SIGNAL - 1, batch_under_way());
	KUNIT_EXPECT_EQ(test, BIT(KEEL_CONN_SIGNAL - 1), rx->signals);
	batch_arrived(test, KEEL_CONN_SIGNAL - 1);
	KUNIT_EXPECT_EQ(test, KEEL_CONN_SIGNAL - 1, batch_under_way());
	scoped_guard(spinlock, &rx->conn->lock)
		KUNIT_EXPECT_EQ(test, KEEL_LINK_SENDS - KEEL_CONN_SIGNAL + 1, rx->conn->nfree);
	batch_send(test, 1, KEEL_BATCH_DATA + 1);
	KUNIT_EXPECT_TRUE(test, rx->signals & BIT(2 * KEEL_CONN_SIGNAL - 1));
}

/* HOST-4: a datagram, of which few are under way, has a completion of its own. */
static void host_4_datagram(struct kunit *test)
{
	struct keel_frame frame = { .type = KEEL_FRAME_DATAGRAM };

	rx_set_credits(100);
	batch_send(test, 1, 0);
	KUNIT_EXPECT_EQ(test, 1, keel_link_datagram(rx->link, &frame, "", 1, NULL, GFP_KERNEL));
	KUNIT_EXPECT_EQ(test, BIT(1), rx->signals);
	batch_arrived(test, 1);
	KUNIT_EXPECT_EQ(test, 0, batch_under_way());
}

/* HOST-2: with a device that may still read from a message without one, each has a completion. */
static void host_2_each(struct kunit *test)
{
	u32 i;

	rx->conn->lower->signals = true;
	rx_set_credits(100);
	for (i = 0; i < KEEL_CONN_SIGNAL; i++)
		batch_send(test, 0, 0);
	KUNIT_EXPECT_EQ(test, BIT(KEEL_CONN_SIGNAL) - 1, rx->signals);
	batch_arrived(test, 0);
	KUNIT_EXPECT_EQ(test, KEEL_CONN_SIGNAL - 1, batch_under_way());
}

/* HOST-4: an unsignaled message that fails ends the connection. */
static void host_4_unsignaled(struct kunit *test)
{
	rx_set_credits(100);
	batch_send(test, 1, 0);
	KUNIT_EXPECT_EQ(test, 0, rx->signals);
	batch_done(0, IB_WC_RETRY_EXC_ERR);
	KUNIT_EXPECT_FALSE(test, keel_conn_is_up(rx->conn));
	KUNIT_EXPECT_TRUE(test, rx_has(KEEL_CONN_ENDED));
}

/* Put a frame behind those of a batch of @len bytes that is received next. */
static struct keel_frame *batch_put(u32 *len, enum keel_frame_type type, u32 bytes)
{
	struct keel_frame *frame = rx_page() + *len;

	*frame = rx_frame(type);
	frame->cookie = 0;
	frame->len = cpu_to_le32(bytes);
	frame->to = cpu_to_le32(*len + 1);
	memset(frame + 1, 0, ALIGN(bytes, KEEL_FRAME_ALIGN));
	memcpy(frame + 1, "part", min_t(u32, bytes, 5));
	*len += HEADER + ALIGN(bytes, KEEL_FRAME_ALIGN);
	return frame;
}

static void batch_receive(u32 len)
{
	struct keel_frame frame = rx_frame(KEEL_FRAME_BATCH);

	frame.len = cpu_to_le32(len);
	rx_receive_as_is(&frame, HEADER + len);
}

/* HOST-2: each frame of a batch gets to its receiver, in turn; together they are one credit. */
static void host_2_parts(struct kunit *test)
{
	u32 len = 0, last;

	batch_put(&len, KEEL_FRAME_REQUEST, 0);
	batch_put(&len, KEEL_FRAME_ANSWER, 9);
	last = len;
	batch_put(&len, KEEL_FRAME_DATAGRAM, 5);
	batch_receive(len);
	KUNIT_EXPECT_EQ(test, 3, rx->ngot);
	KUNIT_EXPECT_EQ(test, KEEL_FRAME_DATAGRAM, rx->how);
	KUNIT_EXPECT_EQ(test, last + 1, le32_to_cpu(rx->got.to));
	KUNIT_EXPECT_STREQ(test, "part", rx->data);
	KUNIT_EXPECT_TRUE(test, rx_has(KEEL_CONN_CONFIRMED));
	KUNIT_EXPECT_TRUE(test, keel_conn_is_up(rx->conn));
	KUNIT_EXPECT_EQ(test, 1, rx_owed());
	KUNIT_EXPECT_EQ(test, 1, rx->posted);
}

/* Errors in a batch of two frames: a byte of the second one, or bytes behind it. */
static const struct batch_wrong {
	u32 at;
	u8 byte;
	s32 longer;
	u32 got;
} batch_wrongs[] = {
	{ offsetof(struct keel_frame, type), KEEL_FRAME_BATCH, 0, 1 },
	{ offsetof(struct keel_frame, type), KEEL_FRAME_ASK, 0, 1 },
	{ offsetof(struct keel_frame, type), KEEL_FRAME_CREDIT, 0, 1 },
	{ offsetof(struct keel_frame, type), KEEL_FRAME_CHUNKS, 0, 1 },
	{ offsetof(struct keel_frame, type), KEEL_FRAME_GROUP, 0, 1 },
	{ offsetof(struct keel_frame, type), 0, 0, 1 },
	{ offsetof(struct keel_frame, flags), 0xff, 0, 1 },
	{ offsetof(struct keel_frame, cookie), 1, 0, 1 },
	{ offsetof(struct keel_frame, credits), 1, 0, 1 },
	{ offsetof(struct keel_frame, freed), 1, 0, 1 },
	{ offsetof(struct keel_frame, chunk), 1, 0, 1 },
	{ offsetof(struct keel_frame, reserved), 1, 0, 1 },
	/* More than the 16 bytes that it has. */
	{ offsetof(struct keel_frame, len), 17, 0, 1 },
	{ offsetof(struct keel_frame, len) + 3, 0xff, 0, 1 },
	{ offsetof(struct keel_frame, len), 16, -1, 1 },
	{ offsetof(struct keel_frame, len), 16, -17, 1 },
	/* It has 15, and the padding is not 0. */
	{ offsetof(struct keel_frame, len), 15, 0, 1 },
	/* It is right, and the one behind it is not. */
	{ offsetof(struct keel_frame, len), 16, 1, 2 },
	{ offsetof(struct keel_frame, len), 16, HEADER - 1, 2 },
	{ offsetof(struct keel_frame, len), 16, HEADER, 2 },
};

/* HOST-3: a batch with a frame that no host sends ends the connection. */
static void host_3_parts(struct kunit *test)
{
	const struct batch_wrong *wrong;
	struct keel_frame *frame;
	u32 nr, len;

	for (nr = 0; nr < ARRAY_SIZE(batch_wrongs); nr++) {
		wrong = &batch_wrongs[nr];
		len = 0;
		batch_put(&len, KEEL_FRAME_REQUEST, 0);
		frame = batch_put(&len, KEEL_FRAME_REQUEST, 16);
		memset(rx_page() + len, 0, HEADER);
		((u8 *)rx_page())[len - 1] = 1;
		((u8 *)frame)[wrong->at] = wrong->byte;
		batch_receive(len + wrong->longer);
		KUNIT_EXPECT_EQ_MSG(test, wrong->got, rx->ngot, "%u", nr);
		rx->ngot = 0;
		rx_ends(test);
	}
	len = 0;
	batch_receive(len);
	rx_ends(test);
	/* The same without what is wrong. */
	batch_put(&len, KEEL_FRAME_REQUEST, 0);
	batch_put(&len, KEEL_FRAME_REQUEST, 16);
	batch_receive(len);
	KUNIT_EXPECT_EQ(test, 2, rx->ngot);
	KUNIT_EXPECT_TRUE(test, keel_conn_is_up(rx->conn));
}

static struct kunit_case batch_cases[] = {
	KUNIT_CASE(host_2_together),
	KUNIT_CASE(host_2_order),
	KUNIT_CASE(host_2_whole),
	KUNIT_CASE(host_2_late),
	KUNIT_CASE(host_3_gone),
	KUNIT_CASE(host_4_credits),
	KUNIT_CASE(host_3_over),
	KUNIT_CASE(host_4_reaped),
	KUNIT_CASE(host_4_datagram),
	KUNIT_CASE(host_2_each),
	KUNIT_CASE(host_4_unsignaled),
	KUNIT_CASE(host_2_parts),
	KUNIT_CASE(host_3_parts),
	{}
};

static struct kunit_suite batch_suite = {
	.name = "keel_link_batch",
	.init = rx_init,
	.exit = rx_exit,
	.test_cases = batch_cases,
};
kunit_test_suite(batch_suite);
