// SPDX-License-Identifier: GPL-2.0
/*
 * The requester of a QP that is connected to another host: its packets, and when they are sent
 * again. far_answer_test.c has the answers.
 */
#include <linux/math64.h>
#include <linux/unaligned.h>

#include "far_host.h"

#define PACKET		KEEL_FRAME_DATA
#define LONG		(2 * PACKET + 100)
#define FAA		IB_WR_ATOMIC_FETCH_AND_ADD
#define CAS		IB_WR_ATOMIC_CMP_AND_SWP

/**
 * struct request_case - a message of one packet
 * @desc: its name
 * @opcode: its operation
 * @len: bytes of its local memory
 * @data: bytes that are sent
 * @request: members that are expected in addition
 */
struct request_case {
	const char *desc;
	u8 opcode;
	u32 len, data;
	struct keel_frame request;
};

#define AT_REMOTE	.request.addr = cpu_to_le64(FAR_REMOTE),	\
			.request.rkey = cpu_to_le32(FAR_RKEY)

static const struct request_case request_cases[] = {
	{ "empty send", IB_WR_SEND, 0, 0 },
	{ "send", IB_WR_SEND, 64, 64 },
	{ "send, a whole packet", IB_WR_SEND, PACKET, PACKET },
	{ "send with immediate data", IB_WR_SEND_WITH_IMM, 64, 64,
	  { .request.imm = cpu_to_le32(FAR_IMM) } },
	{ "send with invalidate", IB_WR_SEND_WITH_INV, 64, 64,
	  { .request.imm = cpu_to_le32(FAR_IMM) } },
	{ "write", IB_WR_RDMA_WRITE, 64, 64, { AT_REMOTE } },
	{ "write with immediate data", IB_WR_RDMA_WRITE_WITH_IMM, 64, 64,
	  { AT_REMOTE, .request.imm = cpu_to_le32(FAR_IMM) } },
	{ "read", IB_WR_RDMA_READ, 64, 0, { AT_REMOTE, .request.bytes = cpu_to_le32(64) } },
	{ "fetch-and-add", FAA, 8, 0, { AT_REMOTE, .request.a = cpu_to_le64(FAR_A) } },
	{ "compare-and-swap", CAS, 8, 0,
	  { AT_REMOTE, .request.a = cpu_to_le64(FAR_A), .request.b = cpu_to_le64(FAR_B) } },
	{ "atomic write", IB_WR_ATOMIC_WRITE, 8, 8, { AT_REMOTE } },
};

KUNIT_ARRAY_PARAM_DESC(request, request_cases, desc);

/* HOST-1: the frame of a message has what the responder needs, and nothing else. */
static void host_1_request(struct kunit *test)
{
	const struct request_case *c = test->param_value;
	struct keel_frame want = c->request;
	struct far_host *h;
	u8 *buf;

	h = far_send_make(test, &buf);
	far_post(h, c->opcode, buf, c->len);
	far_sent(h, 0, 0);
	want.type = KEEL_FRAME_REQUEST;
	want.flags = ONLY | KEEL_FRAME_F_SOLICITED;
	want.len = cpu_to_le32(c->data);
	want.to = cpu_to_le32(FAR_QPN);
	want.from = cpu_to_le32(h->qp->qpn);
	want.psn = cpu_to_le32(FAR_PSN);
	want.gen = cpu_to_le64(atomic64_read(&h->qp->gen));
	want.request.opcode = c->opcode;
	want.request.left = cpu_to_le64(c->len);
	/* FAR_A fetch-and-add does not use the other operand. */
	if (c->opcode == FAA)
		want.request.b = h->sent[0]->frame->request.b;
	KUNIT_EXPECT_MEMEQ(test, &want, h->sent[0]->frame, sizeof(want));
	KUNIT_EXPECT_MEMEQ(test, buf, h->sent[0]->data, c->data);
	far_nothing_ended(h);
	far_give_done(h, 0, c->opcode == IB_WR_RDMA_READ ? 64 : 0);
	far_ended_with(h, IB_WC_SUCCESS, KEEL_WHY_NONE);
}

/* Check packet @nr of a message of LONG bytes. */
static void long_is(struct far_host *h, u32 nr)
{
	const struct keel_frame *frame = far_sent(h, nr, nr);
	struct kunit *test = h->p->test;

	KUNIT_EXPECT_EQ(test, (nr ? 0 : FIRST) |
			(nr == 2 ? LAST | KEEL_FRAME_F_SOLICITED : 0), frame->flags);
	KUNIT_EXPECT_EQ(test, LONG - nr * PACKET, le64_to_cpu(frame->request.left));
	KUNIT_EXPECT_EQ(test, FAR_REMOTE + nr * PACKET, le64_to_cpu(frame->request.addr));
}

/* HOST-1: a long write is divided into packets, and ends with the last answer. */
static void host_1_long_write(struct kunit *test)
{
	struct far_host *h;
	u32 nr, len;
	u8 *buf;

	h = far_send_make(test, &buf);
	far_post(h, IB_WR_RDMA_WRITE, buf, LONG);
	for (nr = 0; nr < 3; nr++) {
		len = min_t(u32, LONG - nr * PACKET, PACKET);
		long_is(h, nr);
		KUNIT_EXPECT_EQ(test, len, le32_to_cpu(h->sent[nr]->frame->len));
		KUNIT_EXPECT_EQ(test, 0, le32_to_cpu(h->sent[nr]->frame->request.bytes));
		KUNIT_EXPECT_MEMEQ(test, buf + nr * PACKET, h->sent[nr]->data, len);
	}
	for (nr = 0; nr < 3; nr++) {
		far_nothing_ended(h);
		far_give_done(h, nr, 0);
	}
	far_ended_with(h, IB_WC_SUCCESS, KEEL_WHY_NONE);
}

/* HOST-1: a long read puts the bytes of the answers into its memory. */
static void host_1_long_read(struct kunit *test)
{
	struct far_host *h;
	u32 nr, len;
	u8 *buf;

	h = far_send_make(test, &buf);
	memset(buf, 0, FAR_LONGEST);
	far_post(h, IB_WR_RDMA_READ, buf, LONG);
	for (nr = 0; nr < 3; nr++) {
		len = min_t(u32, LONG - nr * PACKET, PACKET);
		long_is(h, nr);
		KUNIT_EXPECT_EQ(test, 0, le32_to_cpu(h->sent[nr]->frame->len));
		KUNIT_EXPECT_EQ(test, len, le32_to_cpu(h->sent[nr]->frame->request.bytes));
		memset(h->data, 0x10 + nr, PACKET);
		far_nothing_ended(h);
		far_give_done(h, nr, len);
	}
	far_ended_with(h, IB_WC_SUCCESS, KEEL_WHY_NONE);
	KUNIT_EXPECT_EQ(test, LONG, h->p->b.wc[0].byte_len);
	for (nr = 0; nr < 3; nr++)
		KUNIT_EXPECT_NULL(test, memchr_inv(buf + nr * PACKET, 0x10 + nr,
						   min_t(u32, LONG - nr * PACKET, PACKET)));
	KUNIT_EXPECT_NULL(test, memchr_inv(buf + LONG, 0, FAR_LONGEST - LONG));
}

/* HOST-1: an atomic operation puts the original value into its memory. */
static void host_1_atomic(struct kunit *test)
{
	struct keel_frame answer;
	struct far_host *h;
	u8 *buf;

	h = far_send_make(test, &buf);
	far_post(h, FAA, buf + 8, 8);
	far_sent(h, 0, 0);
	answer = far_answer(h, 0, IB_WC_SUCCESS);
	answer.answer.word = cpu_to_le64(FAR_B);
	far_give(h, &answer);
	far_ended_with(h, IB_WC_SUCCESS, KEEL_WHY_NONE);
	KUNIT_EXPECT_EQ(test, 8, h->p->b.wc[0].byte_len);
	KUNIT_EXPECT_EQ(test, FAR_B, get_unaligned((u64 *)(buf + 8)));
	KUNIT_EXPECT_EQ(test, 7, buf[7]);
	KUNIT_EXPECT_EQ(test, 16, buf[16]);
}

/* HOST-2: no more packets than the other side keeps are sent, and with a new connection again. */
static void host_2_window(struct kunit *test)
{
	struct far_host *h;
	u32 i, n;
	u8 *buf;

	h = far_send_make(test, &buf);
	far_post(h, IB_WR_SEND, buf, FAR_LONGEST);
	for (i = 0; i < FAR_WHOLE; i++)
		far_sent(h, i, i);
	n = far_host_wait(h, 0);
	/* Only if the test took long, the first one is sent again. */
	if (n > FAR_WHOLE)
		far_sent(h, FAR_WHOLE, 0);
	far_give_done(h, 0, 0);
	far_sent(h, n, FAR_WHOLE);
	/* All that was sent over the old connection may be lost, and comes again. */
	n = far_host_wait(h, 0);
	far_host_open(h);
	far_give_done(h, 1, 0);
	for (i = 0; i < FAR_WHOLE; i++)
		far_sent(h, n + i, 2 + i);
	for (i = 2; i < FAR_LONGEST / PACKET; i++) {
		far_nothing_ended(h);
		far_give_done(h, i, 0);
	}
	far_ended_with(h, IB_WC_SUCCESS, KEEL_WHY_NONE);
}

/* HOST-1: if the other side is not ready, the packet is sent again. */
static void host_1_again(struct kunit *test)
{
	struct keel_frame answer;
	struct far_host *h;
	u8 *buf;

	h = far_send_make(test, &buf);
	far_post(h, IB_WR_SEND, buf, 64);
	far_sent(h, 0, 0);
	answer = far_answer(h, 0, IB_WC_SUCCESS);
	answer.answer.result = KEEL_RESULT_NOT_READY;
	far_give(h, &answer);
	far_sent(h, 1, 0);
	far_nothing_ended(h);
	answer.answer.result = KEEL_RESULT_RNR;
	answer.answer.rnr = 1;
	far_give(h, &answer);
	far_sent(h, 2, 0);
	KUNIT_EXPECT_MEMEQ(test, h->sent[0]->frame, h->sent[2]->frame, sizeof(struct keel_frame));
	KUNIT_EXPECT_MEMEQ(test, buf, h->sent[2]->data, 64);
	far_nothing_ended(h);
	far_give_done(h, 0, 0);
	far_ended_with(h, IB_WC_SUCCESS, KEEL_WHY_NONE);
}

/* HOST-2: a late answer counts, although the packet is to be sent again. */
static void host_2_late_answer(struct kunit *test)
{
	struct keel_frame answer;
	struct far_host *h;
	u8 *buf;
	u32 n;

	h = far_send_make(test, &buf);
	far_post(h, IB_WR_SEND, buf, LONG);
	far_sent(h, 2, 2);
	answer = far_answer(h, 0, IB_WC_SUCCESS);
	answer.answer.result = KEEL_RESULT_RNR;
	/* 655 ms: nothing is sent before. */
	answer.answer.rnr = 0;
	far_give(h, &answer);
	n = far_host_wait(h, 3);
	far_host_settle(h);
	KUNIT_EXPECT_EQ(test, n, far_host_wait(h, n));
	/* It was executed: the others need not wait. */
	far_give_done(h, 0, 0);
	far_sent(h, n, 1);
	far_sent(h, n + 1, 2);
	far_give_done(h, 1, 0);
	far_nothing_ended(h);
	KUNIT_EXPECT_EQ(test, n + 2, far_host_wait(h, n + 2));
	far_give_done(h, 2, 0);
	far_ended_with(h, IB_WC_SUCCESS, KEEL_WHY_NONE);
}

/* HOST-1: while the other side is not ready, it gets one packet at a time. */
static void host_1_probe(struct kunit *test)
{
	struct keel_frame answer;
	struct far_host *h;
	u8 *buf;
	u32 i;

	h = far_send_make(test, &buf);
	far_post(h, IB_WR_SEND, buf, LONG);
	far_sent(h, 2, 2);
	answer = far_answer(h, 0, IB_WC_SUCCESS);
	answer.answer.result = KEEL_RESULT_NOT_READY;
	for (i = 3; i < 6; i++) {
		far_give(h, &answer);
		far_sent(h, i, 0);
		KUNIT_EXPECT_EQ(test, i + 1, far_host_wait(h, i + 1));
	}
	far_give_done(h, 0, 0);
	far_sent(h, 6, 1);
	far_sent(h, 7, 2);
	far_give_done(h, 1, 0);
	far_give_done(h, 2, 0);
	far_ended_with(h, IB_WC_SUCCESS, KEEL_WHY_NONE);
}

/* HOST-1: a message without a receive WQE fails after its retries. */
static void host_1_rnr_retries(struct kunit *test)
{
	struct keel_frame answer;
	struct far_host *h;
	u8 *buf;

	h = far_send_make(test, &buf);
	WRITE_ONCE(h->qp->attr.rnr_retry, 0);
	far_post(h, IB_WR_SEND, buf, 64);
	far_sent(h, 0, 0);
	answer = far_answer(h, 0, IB_WC_SUCCESS);
	answer.answer.result = KEEL_RESULT_RNR;
	far_give(h, &answer);
	far_ended_with(h, IB_WC_RNR_RETRY_EXC_ERR, KEEL_WHY_NOT_READY);
}

/* HOST-1: a message without an answer is sent again, and fails after its retries. */
static void host_1_no_answer(struct kunit *test)
{
	struct far_host *h;
	u32 i, n;
	u8 *buf;

	h = far_send_make(test, &buf);
	/* Eight times 268 ms. */
	WRITE_ONCE(h->qp->attr.timeout, 16);
	far_post(h, IB_WR_SEND, buf, 64);
	pair_settle(h->p, &h->p->b, 1);
	far_ended_with(h, IB_WC_RETRY_EXC_ERR, KEEL_WHY_PEER);
	n = far_host_wait(h, 2);
	KUNIT_EXPECT_LE(test, n, 9);
	for (i = 0; i < n; i++)
		far_sent(h, i, 0);
}

/**
 * struct time_case - when a message without an answer is sent again
 * @desc: which one
 * @timeout: of the QP
 * @retry_cnt: of the QP
 * @resends: how often it was sent again before
 * @us: after so many microseconds
 */
struct time_case {
	const char *desc;
	u8 timeout, retry_cnt, resends;
	u32 us;
};

static const struct time_case time_cases[] = {
	{ "the timeout", 14, 7, 0, 67108 },
	{ "twice the timeout", 14, 7, 1, 134217 },
	{ "at least 50 ms", 12, 7, 0, 50000 },
	{ "at most 2 s", 20, 7, 0, 2000000 },
	{ "no timeout", 0, 7, 0, 2000000 },
	{ "half of all that it has", 10, 7, 0, 16777 },
	{ "the same again", 10, 7, 3, 16777 },
	{ "half of the timeout", 14, 0, 0, 33554 },
	{ "half of the least time", 1, 0, 0, 4000 },
};

KUNIT_ARRAY_PARAM_DESC(time, time_cases, desc);

/* HOST-2: a message is sent again before its time is over. */
static void host_2_time(struct kunit *test)
{
	const struct time_case *c = test->param_value;
	struct far_host *h;
	u8 *buf;

	h = far_send_make(test, &buf);
	WRITE_ONCE(h->qp->attr.timeout, c->timeout);
	WRITE_ONCE(h->qp->attr.retry_cnt, c->retry_cnt);
	h->qp->far->resends = c->resends;
	KUNIT_EXPECT_EQ(test, c->us, div_u64(keel_far_resend_ns(h->qp), NSEC_PER_USEC));
}

static struct kunit_case far_send_cases[] = {
	KUNIT_CASE_PARAM(host_1_request, request_gen_params),
	KUNIT_CASE(host_1_long_write),
	KUNIT_CASE(host_1_long_read),
	KUNIT_CASE(host_1_atomic),
	KUNIT_CASE(host_2_window),
	KUNIT_CASE(host_1_again),
	KUNIT_CASE(host_2_late_answer),
	KUNIT_CASE(host_1_probe),
	KUNIT_CASE(host_1_rnr_retries),
	KUNIT_CASE(host_1_no_answer),
	KUNIT_CASE_PARAM(host_2_time, time_gen_params),
	{}
};

static struct kunit_suite far_send_suite = {
	.name = "keel_far_send",
	.suite_init = pair_suite_init,
	.suite_exit = pair_suite_exit,
	.init = pair_init,
	.exit = pair_exit,
	.test_cases = far_send_cases,
};
kunit_test_suite(far_send_suite);
