// SPDX-License-Identifier: GPL-2.0
/*
 * The responder of a UC QP that is connected to another host: a message whose packets do not
 * all arrive is dropped. An answer tells that there is room for another packet.
 */
#include "far_host.h"

#define PACKET	KEEL_FRAME_DATA
#define LONG	(2 * PACKET + 100)

/* Packet @nr of a message of LONG bytes that begins with number @psn. */
static struct keel_frame uc_packet(struct far_host *h, u32 psn, u32 nr, u8 opcode)
{
	u8 flags = (nr ? 0 : FIRST) | (nr == 2 ? LAST : 0);
	struct keel_frame frame;

	frame = far_packet(h, psn + nr, opcode, flags, nr == 2 ? LONG - 2 * PACKET : PACKET,
			   LONG - nr * PACKET);
	le64_add_cpu(&frame.request.addr, nr * PACKET);
	memset(h->data, 0x10 + psn + nr, PACKET);
	return frame;
}

static void uc_answered(struct far_host *h, u32 psn, u32 nr, u8 opcode, u8 result)
{
	struct keel_frame frame = uc_packet(h, psn, nr, opcode);
	u32 n = far_host_wait(h, 0);

	far_request(h, &frame);
	far_answered(h, n, psn + nr, result, IB_WC_SUCCESS);
	KUNIT_EXPECT_EQ(h->p->test, n + 1, far_host_wait(h, n + 1));
	KUNIT_EXPECT_EQ(h->p->test, 0, far_requests_n(h));
	/* The next one may come as soon as the answer is sent. */
	KUNIT_EXPECT_EQ(h->p->test, 0, h->kept);
}

/* The packet is answered, whatever becomes of it. */
static void uc_send(struct far_host *h, u32 psn, u32 nr, u8 opcode)
{
	uc_answered(h, psn, nr, opcode, KEEL_RESULT_DONE);
}

/* The packet does not follow the one before. */
static void uc_stray(struct far_host *h, u32 psn, u32 nr, u8 opcode)
{
	uc_answered(h, psn, nr, opcode, KEEL_RESULT_NOT_READY);
}

static struct far_host *uc_make(struct kunit *test)
{
	struct far_host *h = far_host_make_type(test, IB_QPT_UC, IB_QPS_RTS);

	far_host_open(h);
	return h;
}

/* @wcs receive WQEs have completed, the last one with a whole message from number @psn on. */
static void uc_received(struct far_host *h, int wcs, u32 psn)
{
	struct end *b = &h->p->b;
	struct kunit *test = h->p->test;

	pair_settle(h->p, b, wcs);
	KUNIT_EXPECT_EQ(test, wcs, b->wcs);
	KUNIT_EXPECT_EQ(test, IB_WC_SUCCESS, b->wc[wcs - 1].status);
	KUNIT_EXPECT_EQ(test, LONG, b->wc[wcs - 1].byte_len);
	KUNIT_EXPECT_NULL(test, memchr_inv(b->buf, 0x10 + psn, PACKET));
	KUNIT_EXPECT_NULL(test, memchr_inv(b->buf + PACKET, 0x11 + psn, PACKET));
	KUNIT_EXPECT_NULL(test, memchr_inv(b->buf + 2 * PACKET, 0x12 + psn, LONG - 2 * PACKET));
	KUNIT_EXPECT_EQ(test, IB_QPS_RTS, end_state(h->p, b));
}

static void uc_whole(struct far_host *h, u32 psn)
{
	u32 nr;

	for (nr = 0; nr < 3; nr++)
		uc_send(h, psn, nr, IB_WR_SEND);
}

/* HOST-1: the packets of a message make one message, and each is answered. */
static void host_1_uc_message(struct kunit *test)
{
	struct far_host *h = uc_make(test);

	end_recv(h->p, &h->p->b, 5, 0, PAIR_BYTES);
	uc_whole(h, 0);
	uc_received(h, 1, 0);
}

/* HOST-1: if one packet is lost, the message is dropped, and the next one arrives. */
static void host_1_uc_lost(struct kunit *test)
{
	struct far_host *h = uc_make(test);
	u32 lost;

	end_recv(h->p, &h->p->b, 5, 0, PAIR_BYTES);
	for (lost = 0; lost < 3; lost++) {
		if (lost == 0) {
			uc_stray(h, 0, 1, IB_WR_SEND);
			uc_stray(h, 0, 2, IB_WR_SEND);
		} else if (lost == 1) {
			uc_send(h, 10, 0, IB_WR_SEND);
			uc_stray(h, 10, 2, IB_WR_SEND);
		} else {
			uc_send(h, 20, 0, IB_WR_SEND);
			uc_send(h, 20, 1, IB_WR_SEND);
		}
		end_collect(&h->p->b);
		KUNIT_EXPECT_EQ(test, 0, h->p->b.wcs);
	}
	uc_whole(h, 100);
	uc_received(h, 1, 100);
}

/* HOST-1: without a receive WQE for its first packet, a message is dropped as a whole. */
static void host_1_uc_no_recv(struct kunit *test)
{
	struct far_host *h = uc_make(test);

	uc_send(h, 0, 0, IB_WR_SEND);
	end_recv(h->p, &h->p->b, 5, 0, PAIR_BYTES);
	uc_send(h, 0, 1, IB_WR_SEND);
	uc_send(h, 0, 2, IB_WR_SEND);
	end_collect(&h->p->b);
	KUNIT_EXPECT_EQ(test, 0, h->p->b.wcs);
	uc_whole(h, 3);
	uc_received(h, 1, 3);
}

/* HOST-3: behind a refused packet, the rest of its message changes nothing. */
static void host_3_uc_refused(struct kunit *test)
{
	struct far_host *h = uc_make(test);
	struct end *b = &h->p->b;
	struct keel_frame frame;

	end_recv(h->p, b, 5, 0, PAIR_BYTES);
	frame = uc_packet(h, 0, 0, IB_WR_RDMA_WRITE);
	frame.request.rkey = cpu_to_le32(h->p->closed->rkey);
	far_request(h, &frame);
	uc_send(h, 0, 1, IB_WR_RDMA_WRITE);
	uc_send(h, 0, 2, IB_WR_RDMA_WRITE);
	KUNIT_EXPECT_EQ(test, -1, end_differs(b, 0, b, 0, PAIR_BYTES));
	KUNIT_EXPECT_EQ(test, IB_QPS_RTS, end_state(h->p, b));
	/* Malformed ones, too. */
	frame = uc_packet(h, 3, 0, IB_WR_RDMA_WRITE);
	frame.request.left = cpu_to_le64(PACKET);
	far_request(h, &frame);
	uc_send(h, 3, 1, IB_WR_RDMA_WRITE);
	uc_send(h, 3, 2, IB_WR_RDMA_WRITE);
	KUNIT_EXPECT_EQ(test, -1, end_differs(b, 0, b, 0, PAIR_BYTES));
	uc_whole(h, 6);
	uc_received(h, 1, 6);
}

/* HOST-1: reads and atomics are no operations of UC. */
static void host_3_uc_operations(struct kunit *test)
{
	static const u8 opcodes[] = {
		IB_WR_RDMA_READ, IB_WR_ATOMIC_FETCH_AND_ADD, IB_WR_SEND_WITH_INV,
	};
	struct far_host *h = uc_make(test);
	struct end *b = &h->p->b;
	struct keel_frame frame;
	u32 i, len;

	end_recv(h->p, b, 5, 0, PAIR_BYTES);
	for (i = 0; i < ARRAY_SIZE(opcodes); i++) {
		len = opcodes[i] == IB_WR_SEND_WITH_INV ? 8 : 0;
		frame = far_packet(h, i, opcodes[i], ONLY, len, 8);
		if (opcodes[i] == IB_WR_RDMA_READ)
			frame.request.bytes = cpu_to_le32(8);
		far_request(h, &frame);
	}
	end_collect(b);
	KUNIT_EXPECT_EQ(test, 0, b->wcs);
	KUNIT_EXPECT_EQ(test, -1, end_differs(b, 0, b, 0, PAIR_BYTES));
	uc_whole(h, 10);
	uc_received(h, 1, 10);
}

/* HOST-2: packets that came before the connection ended are executed without an answer. */
static void host_2_uc_down(struct kunit *test)
{
	struct far_host *h = far_host_make_type(test, IB_QPT_UC, IB_QPS_RTS);
	struct keel_frame frame;
	u32 nr;

	end_recv(h->p, &h->p->b, 5, 0, PAIR_BYTES);
	for (nr = 0; nr < 3; nr++) {
		frame = uc_packet(h, 0, nr, IB_WR_SEND);
		far_request(h, &frame);
	}
	uc_received(h, 1, 0);
	KUNIT_EXPECT_EQ(test, 0, far_requests_n(h));
	scoped_guard(spinlock, &h->link.lock)
		KUNIT_EXPECT_TRUE(test, keel_turns_empty(&h->link.turns));
	KUNIT_EXPECT_EQ(test, 0, far_host_wait(h, 0));
}

/* HOST-3: the answer to a read behind a refused packet has no data of earlier packets. */
static void host_3_uc_read(struct kunit *test)
{
	struct far_host *h = uc_make(test);
	struct keel_frame frame;
	u32 n;

	/* It fills the slots. */
	end_recv(h->p, &h->p->b, 5, 0, PAIR_BYTES);
	uc_whole(h, 0);
	uc_received(h, 1, 0);
	frame = uc_packet(h, 3, 0, IB_WR_RDMA_WRITE);
	frame.request.rkey = cpu_to_le32(h->p->closed->rkey);
	far_request(h, &frame);
	frame = far_packet(h, 4, IB_WR_RDMA_READ, LAST, 0, PACKET);
	frame.request.bytes = cpu_to_le32(PACKET);
	n = far_host_wait(h, 0);
	far_request(h, &frame);
	KUNIT_EXPECT_EQ(test, n + 1, far_host_wait(h, n + 1));
	KUNIT_EXPECT_EQ(test, 0, le32_to_cpu(h->sent[n]->frame->len));
}

static struct kunit_case far_uc_cases[] = {
	KUNIT_CASE(host_1_uc_message),
	KUNIT_CASE(host_1_uc_lost),
	KUNIT_CASE(host_1_uc_no_recv),
	KUNIT_CASE(host_3_uc_refused),
	KUNIT_CASE(host_3_uc_operations),
	KUNIT_CASE(host_2_uc_down),
	KUNIT_CASE(host_3_uc_read),
	{}
};

static struct kunit_suite far_uc_suite = {
	.name = "keel_far_uc",
	.suite_init = pair_suite_init,
	.suite_exit = pair_suite_exit,
	.init = pair_init,
	.exit = pair_exit,
	.test_cases = far_uc_cases,
};
kunit_test_suite(far_uc_suite);
