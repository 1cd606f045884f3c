// SPDX-License-Identifier: GPL-2.0
/*
 * The requester of a QP that is connected to another host: what the answers of the other side
 * lead to, which may be wrong.
 */
#include "far_host.h"

#define PACKET		KEEL_FRAME_DATA
#define LONG		(2 * PACKET + 100)
#define FAA		IB_WR_ATOMIC_FETCH_AND_ADD

/**
 * struct status_case - an answer, and the completion of the message
 * @desc: its name
 * @opcode: operation of the message
 * @answer: status of the answer
 * @why: its vendor error
 * @len: bytes of its data
 * @status: status of the completion
 * @wc_why: its vendor error
 */
struct status_case {
	const char *desc;
	u8 opcode;
	u8 answer;
	u32 why;
	u32 len;
	enum ib_wc_status status;
	u32 wc_why;
};

#define SAME(_status, _why)	IB_WC_##_status, _why, 0, IB_WC_##_status, _why
#define BAD_LEN(_len)		IB_WC_SUCCESS, 0, _len, IB_WC_BAD_RESP_ERR, KEEL_WHY_LENGTH
#define BAD_STATUS(_status)	_status, 0, 0, IB_WC_BAD_RESP_ERR, KEEL_WHY_NONE

static const struct status_case status_cases[] = {
	{ "HOST-1: invalid request", IB_WR_SEND, SAME(REM_INV_REQ_ERR, KEEL_WHY_OPCODE) },
	{ "HOST-1: access", IB_WR_RDMA_WRITE, SAME(REM_ACCESS_ERR, KEEL_WHY_ACCESS) },
	{ "HOST-1: access, of a read", IB_WR_RDMA_READ, SAME(REM_ACCESS_ERR, KEEL_WHY_ACCESS) },
	{ "HOST-1: operation", IB_WR_SEND, SAME(REM_OP_ERR, KEEL_WHY_FAULT) },
	{ "HOST-1: last vendor error", IB_WR_SEND, SAME(REM_OP_ERR, KEEL_WHY_PSN) },
	{ "HOST-3: unknown vendor error", IB_WR_SEND, IB_WC_REM_OP_ERR, KEEL_WHY_PSN + 1, 0,
	  IB_WC_REM_OP_ERR, KEEL_WHY_NONE },
	{ "HOST-3: a status of this side", IB_WR_SEND, BAD_STATUS(IB_WC_LOC_PROT_ERR) },
	{ "HOST-3: flushed", IB_WR_SEND, BAD_STATUS(IB_WC_WR_FLUSH_ERR) },
	{ "HOST-3: retries", IB_WR_RDMA_READ, BAD_STATUS(IB_WC_RETRY_EXC_ERR) },
	{ "HOST-3: an unknown status", IB_WR_SEND, BAD_STATUS(255) },
	{ "HOST-3: data for a send", IB_WR_SEND, BAD_LEN(1) },
	{ "HOST-3: data for an atomic", FAA, BAD_LEN(8) },
	{ "HOST-3: no data for a read", IB_WR_RDMA_READ, BAD_LEN(0) },
	{ "HOST-3: too little data for a read", IB_WR_RDMA_READ, BAD_LEN(7) },
	{ "HOST-3: too much data for a read", IB_WR_RDMA_READ, BAD_LEN(9) },
	{ "HOST-3: most data for a read", IB_WR_RDMA_READ, BAD_LEN(PACKET) },
};

KUNIT_ARRAY_PARAM_DESC(status, status_cases, desc);

/* The answer decides the status; its memory is unchanged if it is not a success. */
static void far_status(struct kunit *test)
{
	const struct status_case *c = test->param_value;
	struct keel_frame answer;
	struct far_host *h;
	u8 *buf;
	u32 i;

	h = far_send_make(test, &buf);
	memset(h->data, 0xaa, PACKET);
	far_post(h, c->opcode, buf, 8);
	far_sent(h, 0, 0);
	answer = far_answer(h, 0, c->answer);
	answer.answer.why = cpu_to_le32(c->why);
	answer.len = cpu_to_le32(c->len);
	far_give(h, &answer);
	far_ended_with(h, c->status, c->wc_why);
	for (i = 0; i < PACKET && buf[i] == i % 251; i++)
		;
	KUNIT_EXPECT_EQ(test, PACKET, i);
}

/* HOST-3: only the answer to the first packet of this life of the QP counts. */
static void host_3_stray_answers(struct kunit *test)
{
	struct keel_frame answer;
	struct far_host *h;
	u8 *buf;
	u64 gen;

	h = far_send_make(test, &buf);
	gen = atomic64_read(&h->qp->gen);
	/* There is no message: the answers are dropped when there is one. */
	answer = far_answer(h, 0, IB_WC_REM_OP_ERR);
	far_give(h, &answer);
	far_post(h, IB_WR_RDMA_WRITE, buf, LONG);
	far_sent(h, 2, 2);
	far_nothing_ended(h);
	KUNIT_EXPECT_EQ(test, 0, far_answers_n(h));
	answer.gen = cpu_to_le64(gen + 1);
	far_give(h, &answer);
	answer.gen = cpu_to_le64(gen | 1ULL << 32);
	far_give(h, &answer);
	answer.gen = 0;
	far_give(h, &answer);
	answer.gen = cpu_to_le64(gen);
	answer.from = cpu_to_le32(FAR_QPN + 1);
	far_give(h, &answer);
	answer.from = cpu_to_le32(FAR_QPN);
	answer.to = cpu_to_le32(h->p->a.qp->qp_num);
	far_give(h, &answer);
	answer.to = cpu_to_le32(KEEL_PSN_MASK);
	far_give(h, &answer);
	/* These are for the QP, but not for its first packet. */
	answer.to = cpu_to_le32(h->qp->qpn);
	answer.psn = cpu_to_le32(far_psn(1));
	far_give(h, &answer);
	answer.psn = cpu_to_le32(FAR_PSN - 1);
	far_give(h, &answer);
	answer.psn = cpu_to_le32(far_psn(3));
	far_give(h, &answer);
	far_nothing_ended(h);
	KUNIT_EXPECT_EQ(test, 0, far_answers_n(h));
	KUNIT_EXPECT_EQ(test, IB_QPS_RTS, end_state(h->p, &h->p->b));
	far_give_done(h, 0, 0);
	/* It comes twice. */
	far_give_done(h, 0, 0);
	far_give_done(h, 1, 0);
	far_nothing_ended(h);
	far_give_done(h, 2, 0);
	far_ended_with(h, IB_WC_SUCCESS, KEEL_WHY_NONE);
}

/* HOST-3: an answer that comes over the link to another host is dropped. */
static void host_3_answer_other_link(struct kunit *test)
{
	struct keel_link *other = kunit_kzalloc(test, sizeof(*other), GFP_KERNEL);
	struct keel_frame answer;
	struct far_host *h;
	u8 *buf;

	KUNIT_ASSERT_NOT_NULL(test, other);
	h = far_send_make(test, &buf);
	other->kdev = h->qp->kdev;
	far_post(h, IB_WR_SEND, buf, 64);
	far_sent(h, 0, 0);
	answer = far_answer(h, 0, IB_WC_SUCCESS);
	keel_far_ops.answer(other, &answer, h->data);
	KUNIT_EXPECT_EQ(test, 0, far_answers_n(h));
	far_host_settle(h);
	far_nothing_ended(h);
	far_give(h, &answer);
	far_ended_with(h, IB_WC_SUCCESS, KEEL_WHY_NONE);
}

/* HOST-3: a QP keeps no more answers than the window. */
static void host_3_answers_window(struct kunit *test)
{
	struct far_host *h = far_host_make(test, IB_QPS_RTS);
	struct keel_frame answer;
	u32 i;

	for (i = 0; i < KEEL_FAR_WINDOW + 3; i++) {
		answer = far_answer(h, i, IB_WC_REM_OP_ERR);
		far_give(h, &answer);
		KUNIT_EXPECT_EQ(test, min(i + 1, KEEL_FAR_WINDOW), far_answers_n(h));
	}
	KUNIT_EXPECT_EQ(test, IB_QPS_RTS, end_state(h->p, &h->p->b));
}

static struct kunit_case far_answer_cases[] = {
	KUNIT_CASE_PARAM(far_status, status_gen_params),
	KUNIT_CASE(host_3_stray_answers),
	KUNIT_CASE(host_3_answer_other_link),
	KUNIT_CASE(host_3_answers_window),
	{}
};

static struct kunit_suite far_answer_suite = {
	.name = "keel_far_answer",
	.suite_init = pair_suite_init,
	.suite_exit = pair_suite_exit,
	.init = pair_init,
	.exit = pair_exit,
	.test_cases = far_answer_cases,
};
kunit_test_suite(far_answer_suite);
