// SPDX-License-Identifier: GPL-2.0
/*
 * Two hosts agree on how much of a QP may be under way: KEEL_FAR_WINDOW packets, and
 * KEEL_FAR_BYTES. The requester sends no more, and the responder keeps no more.
 */
#include "far_host.h"

#define PACKET	KEEL_FRAME_DATA
#define WINDOW	KEEL_FAR_WINDOW
#define FAA	IB_WR_ATOMIC_FETCH_AND_ADD

/**
 * struct keep_case - packets of one length
 * @desc: its name
 * @opcode: their operation
 * @len: bytes of each; read: those that the answer is to have
 * @most: how many are kept
 */
struct keep_case {
	const char *desc;
	u8 opcode;
	u32 len;
	u32 most;
};

static const struct keep_case keep_cases[] = {
	{ "empty writes", IB_WR_RDMA_WRITE, 0, WINDOW },
	{ "short writes", IB_WR_RDMA_WRITE, 64, WINDOW },
	{ "writes that just fit", IB_WR_RDMA_WRITE, 1024, 32 },
	{ "writes of one byte more", IB_WR_RDMA_WRITE, 1025, 30 },
	{ "writes of half a packet and one byte", IB_WR_RDMA_WRITE, 2049, 15 },
	{ "nearly whole packets", IB_WR_RDMA_WRITE, PACKET - 63, FAR_WHOLE },
	{ "whole packets", IB_WR_RDMA_WRITE, PACKET, FAR_WHOLE },
	{ "short reads", IB_WR_RDMA_READ, 1, WINDOW },
	{ "reads of one byte too many", IB_WR_RDMA_READ, 1025, 30 },
	{ "reads of whole packets", IB_WR_RDMA_READ, PACKET, FAR_WHOLE },
	{ "atomics", FAA, 8, WINDOW },
};

KUNIT_ARRAY_PARAM_DESC(keep, keep_cases, desc);

static struct keel_frame keep_packet(struct far_host *h, u32 nr, u8 opcode, u32 len)
{
	bool data = opcode == IB_WR_RDMA_WRITE || opcode == IB_WR_SEND;
	struct keel_frame frame = far_packet(h, nr, opcode, ONLY, data ? len : 0, len);

	if (opcode == IB_WR_RDMA_READ)
		frame.request.bytes = cpu_to_le32(len);
	return frame;
}

/* HOST-3: a QP keeps no more packets, and no more bytes, than it has memory for. */
static void host_3_requests(struct kunit *test)
{
	const struct keep_case *c = test->param_value;
	struct far_host *h = far_host_make(test, IB_QPS_RTS);
	struct keel_frame frame;
	u32 i;

	for (i = 0; i < c->most + 3; i++) {
		frame = keep_packet(h, i, c->opcode, c->len);
		far_request(h, &frame);
		KUNIT_EXPECT_EQ(test, min(i + 1, c->most), far_requests_n(h));
	}
	/* Those that were dropped come again. */
	far_host_open(h);
	far_host_wait(h, c->most);
	KUNIT_EXPECT_EQ(test, 0, far_requests_n(h));
	for (i = c->most; i < c->most + 3; i++) {
		frame = keep_packet(h, i, c->opcode, c->len);
		far_request(h, &frame);
	}
	KUNIT_EXPECT_EQ(test, c->most + 3, far_host_wait(h, c->most + 3));
	for (i = 0; i < c->most + 3; i++)
		far_answered(h, i, i, KEEL_RESULT_DONE, IB_WC_SUCCESS);
	KUNIT_EXPECT_EQ(test, IB_QPS_RTS, end_state(h->p, &h->p->b));
}

/* HOST-3: likewise of answers. */
static void host_3_answers(struct kunit *test)
{
	const struct keep_case *c = test->param_value;
	struct far_host *h = far_host_make(test, IB_QPS_RTS);
	struct keel_frame answer;
	u32 i;

	for (i = 0; i < c->most + 3; i++) {
		answer = far_answer(h, i, IB_WC_SUCCESS);
		answer.len = cpu_to_le32(c->len);
		far_give(h, &answer);
		KUNIT_EXPECT_EQ(test, min(i + 1, c->most), far_answers_n(h));
	}
	end_move(h->p, &h->p->b, IB_QPS_RESET);
	KUNIT_EXPECT_EQ(test, 0, far_answers_n(h));
}

/* HOST-2: answers without data take no memory from those of reads. */
static void host_2_answers(struct kunit *test)
{
	struct far_host *h = far_host_make(test, IB_QPS_RTS);
	struct keel_frame answer;
	u32 i;

	for (i = 0; i < FAR_WHOLE + 3; i++) {
		answer = far_answer(h, i, IB_WC_SUCCESS);
		answer.len = cpu_to_le32(i < 3 ? 0 : PACKET);
		far_give(h, &answer);
	}
	KUNIT_EXPECT_EQ(test, FAR_WHOLE + 3, far_answers_n(h));
	end_move(h->p, &h->p->b, IB_QPS_RESET);
	KUNIT_EXPECT_EQ(test, 0, far_answers_n(h));
}

/* HOST-3: a packet that has no room leaves it to a shorter one. */
static void host_3_mix(struct kunit *test)
{
	struct far_host *h = far_host_make(test, IB_QPS_RTS);
	struct keel_frame frame;
	u32 nr;

	for (nr = 0; nr < FAR_WHOLE - 1; nr++) {
		frame = keep_packet(h, nr, nr % 2 ? IB_WR_RDMA_READ : IB_WR_RDMA_WRITE, PACKET);
		far_request(h, &frame);
	}
	frame = keep_packet(h, nr, IB_WR_RDMA_WRITE, 64);
	far_request(h, &frame);
	KUNIT_EXPECT_EQ(test, FAR_WHOLE, far_requests_n(h));
	frame = keep_packet(h, nr + 1, IB_WR_RDMA_WRITE, PACKET);
	far_request(h, &frame);
	frame = keep_packet(h, nr + 1, IB_WR_RDMA_READ, PACKET - 64 + 1);
	far_request(h, &frame);
	KUNIT_EXPECT_EQ(test, FAR_WHOLE, far_requests_n(h));
	frame = keep_packet(h, nr + 1, IB_WR_RDMA_READ, PACKET - 64);
	far_request(h, &frame);
	KUNIT_EXPECT_EQ(test, FAR_WHOLE + 1, far_requests_n(h));
	frame = keep_packet(h, nr + 2, IB_WR_RDMA_WRITE, 0);
	far_request(h, &frame);
	KUNIT_EXPECT_EQ(test, FAR_WHOLE + 1, far_requests_n(h));
}

/* Bytes of write @nr, of any size. */
static u32 write_len(u32 nr)
{
	return nr % 3 ? 1 + nr * 1237 % PACKET : PACKET;
}

static void keep_write(struct far_host *h, u32 nr)
{
	struct keel_frame frame = keep_packet(h, nr, IB_WR_RDMA_WRITE, write_len(nr));

	memset(h->data, nr % 251, PACKET);
	far_request(h, &frame);
}

/* Let the QP send one answer. As keel_link_wake() does. */
static void keep_answer(struct far_host *h, u32 nr)
{
	scoped_guard(spinlock, &h->conn.lock)
		h->conn.credits = KEEL_LINK_SPARE + KEEL_LINK_RESERVED + 1;
	keel_link_unwait(&h->link, &h->qp->far->tx_wait);
	keel_qp_schedule(h->qp);
	far_answered(h, 0, nr, KEEL_RESULT_DONE, IB_WC_SUCCESS);
	KUNIT_EXPECT_EQ(h->p->test, 1, far_host_wait(h, 1));
	far_host_recycle(h);
	scoped_guard(spinlock, &h->conn.lock)
		h->conn.credits = 0;
}

/* HOST-2: packets that are kept have their own data, wherever it is in the memory. */
static void host_2_data(struct kunit *test)
{
	struct far_host *h = far_host_make(test, IB_QPS_RTS);
	u32 nr, next = 0, kept;

	far_host_open(h);
	scoped_guard(spinlock, &h->conn.lock)
		h->conn.credits = 0;
	for (nr = 0; nr < 5 * WINDOW; nr++) {
		/* As many as there is room for. */
		do {
			kept = far_requests_n(h);
			keep_write(h, next);
			next += far_requests_n(h) > kept;
		} while (far_requests_n(h) > kept);
		KUNIT_ASSERT_GT(test, kept, FAR_WHOLE - 1);
		/* The first one was executed. */
		KUNIT_EXPECT_NULL(test, memchr_inv(h->p->b.buf, nr % 251, write_len(nr)));
		keep_answer(h, nr);
	}
	KUNIT_EXPECT_EQ(test, IB_QPS_RTS, end_state(h->p, &h->p->b));
}

/* HOST-2: packets that are forgotten behind the first one leave their memory. */
static void host_2_forget(struct kunit *test)
{
	struct far_host *h = far_host_make(test, IB_QPS_RTS);
	struct keel_frame frame;
	struct end *b = &h->p->b;
	u32 i;

	/* They are kept before the first one is executed. */
	scoped_guard(mutex, &h->qp->far->from.lock) {
		for (i = 0; i < FAR_WHOLE; i++) {
			frame = keep_packet(h, i, IB_WR_SEND, PACKET);
			keel_far_ops.request(&h->link, &frame, h->data);
		}
		KUNIT_EXPECT_EQ(test, FAR_WHOLE, far_requests_n(h));
	}
	keel_qp_schedule(h->qp);
	far_host_settle(h);
	/* There is no receive WQE. */
	KUNIT_EXPECT_EQ(test, 1, far_requests_n(h));
	for (i = 0; i < FAR_WHOLE; i++) {
		frame = keep_packet(h, i, IB_WR_SEND, PACKET);
		memset(h->data, 0x20 + i, PACKET);
		far_request(h, &frame);
		KUNIT_EXPECT_EQ(test, min(i + 2, FAR_WHOLE), far_requests_n(h));
	}
	for (i = 0; i < FAR_WHOLE - 1; i++)
		end_recv(h->p, b, i, i % 4 * PACKET, PACKET);
	far_host_open(h);
	far_answered(h, 0, 0, KEEL_RESULT_RNR, IB_WC_SUCCESS);
	for (i = 0; i < FAR_WHOLE - 1; i++)
		far_answered(h, 1 + i, i, KEEL_RESULT_DONE, IB_WC_SUCCESS);
	pair_settle(h->p, b, FAR_WHOLE - 1);
	for (i = FAR_WHOLE - 5; i < FAR_WHOLE - 1; i++)
		KUNIT_EXPECT_NULL(test, memchr_inv(b->buf + i % 4 * PACKET, 0x20 + i, PACKET));
	KUNIT_EXPECT_EQ(test, 0, far_requests_n(h));
}

/**
 * struct send_case - messages of one packet
 * @desc: its name
 * @type: type of the QP
 * @n: number of those that come first
 * @len: bytes of each
 * @then: bytes of each of those behind them
 * @most: how many are sent
 */
struct send_case {
	const char *desc;
	enum ib_qp_type type;
	u32 n;
	u32 len;
	u32 then;
	u32 most;
};

/* There is always room for a whole packet: KEEL_FAR_BYTES - PACKET is 28672. */
static const struct send_case send_cases[] = {
	{ "empty", IB_QPT_RC, 0, 0, 0, WINDOW },
	{ "short", IB_QPT_RC, 0, 0, 64, WINDOW },
	{ "half packets", IB_QPT_RC, 0, 0, PACKET / 2, 15 },
	{ "whole packets", IB_QPT_RC, 0, 0, PACKET, FAR_WHOLE },
	{ "short behind long", IB_QPT_RC, 7, PACKET, 1, 8 },
	{ "short behind fewer long", IB_QPT_RC, 6, PACKET, 128, WINDOW },
	{ "longer ones behind fewer long", IB_QPT_RC, 6, PACKET, 129, 28 },
	{ "long behind short", IB_QPT_RC, 10, 64, PACKET, 17 },
	{ "UC, short", IB_QPT_UC, 0, 0, 64, WINDOW },
	{ "UC, half packets", IB_QPT_UC, 0, 0, PACKET / 2, 15 },
};

KUNIT_ARRAY_PARAM_DESC(send, send_cases, desc);

static u32 send_len(const struct send_case *c, u32 nr)
{
	return nr < c->n ? c->len : c->then;
}

/* HOST-2: no more packets, and no more bytes, are sent than the other side keeps. */
static void host_2_sent(struct kunit *test)
{
	const struct send_case *c = test->param_value;
	struct far_host *h;
	u32 i;
	u8 *buf;

	h = far_send_make_type(test, c->type, &buf);
	for (i = 0; i < c->most + 3; i++) {
		far_post_as(h, IB_WR_RDMA_WRITE, buf, send_len(c, i), 0, i);
		far_host_settle(h);
		/* UC does not wait without a limit, but the test may be slow. */
		scoped_guard(mutex, &h->qp->sq.from.lock)
			h->qp->far->resend_at = U64_MAX;
		KUNIT_EXPECT_EQ(test, min(i + 1, c->most), far_host_wait(h, 0));
	}
	for (i = 0; i < c->most; i++)
		KUNIT_EXPECT_EQ(test, send_len(c, i), le32_to_cpu(far_sent(h, i, i)->len));
	/* The answers make room for the others. */
	for (i = 0; i < c->most; i++)
		far_give_done(h, i, 0);
	KUNIT_EXPECT_EQ(test, c->most + 3, far_host_wait(h, c->most + 3));
	far_sent(h, c->most + 2, c->most + 2);
}

/* HOST-2: the answers to reads count as data does. */
static void host_2_reads(struct kunit *test)
{
	struct far_host *h;
	u32 i;
	u8 *buf;

	h = far_send_make(test, &buf);
	far_post_as(h, IB_WR_RDMA_READ, buf, FAR_LONGEST, 0, 0);
	for (i = 0; i < FAR_LONGEST / PACKET; i++) {
		KUNIT_EXPECT_EQ(test, min_t(u32, FAR_WHOLE + i, FAR_LONGEST / PACKET),
				far_host_wait(h, i + 1));
		memset(h->data, 0x30 + i, PACKET);
		far_give_done(h, i, PACKET);
		KUNIT_EXPECT_NULL(test, memchr_inv(buf + i * PACKET, 0x30 + i, PACKET));
	}
	pair_settle(h->p, &h->p->b, 1);
	KUNIT_EXPECT_EQ(test, IB_WC_SUCCESS, h->p->b.wc[0].status);
}

/* HOST-2: packets that are sent again count once, and those behind them as before. */
static void host_2_again(struct kunit *test)
{
	struct keel_frame answer;
	struct far_host *h;
	u32 i, n;
	u8 *buf;

	h = far_send_make(test, &buf);
	for (i = 0; i < 20; i++)
		far_post_as(h, IB_WR_RDMA_WRITE, buf, PACKET / 2, 0, i);
	KUNIT_EXPECT_EQ(test, 15, far_host_wait(h, 15));
	for (n = 15, i = 0; i < 2; i++) {
		answer = far_answer(h, i, IB_WC_SUCCESS);
		answer.answer.result = KEEL_RESULT_NOT_READY;
		far_give(h, &answer);
		far_sent(h, n++, i);
		KUNIT_EXPECT_EQ(test, n, far_host_wait(h, n));
		far_give_done(h, i, 0);
		/* All from the next one on. */
		KUNIT_EXPECT_EQ(test, n + 15, far_host_wait(h, n + 15));
		far_sent(h, n, i + 1);
		n += 15;
		far_sent(h, n - 1, i + 15);
	}
}

static struct kunit_case far_window_cases[] = {
	KUNIT_CASE_PARAM(host_3_requests, keep_gen_params),
	KUNIT_CASE_PARAM(host_3_answers, keep_gen_params),
	KUNIT_CASE(host_2_answers),
	KUNIT_CASE(host_3_mix),
	KUNIT_CASE(host_2_data),
	KUNIT_CASE(host_2_forget),
	KUNIT_CASE_PARAM(host_2_sent, send_gen_params),
	KUNIT_CASE(host_2_reads),
	KUNIT_CASE(host_2_again),
	{}
};

static struct kunit_suite far_window_suite = {
	.name = "keel_far_window",
	.suite_init = pair_suite_init,
	.suite_exit = pair_suite_exit,
	.init = pair_init,
	.exit = pair_exit,
	.test_cases = far_window_cases,
};
kunit_test_suite(far_window_suite);
