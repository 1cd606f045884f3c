// SPDX-License-Identifier: GPL-2.0
/*
 * The requester of a QP that is connected to another host sends messages behind the first one,
 * which waits for answers.
 */
#include "far_host.h"

#define PACKET		KEEL_FRAME_DATA
#define WINDOW		KEEL_FAR_WINDOW
/* Bytes of a short message, and distance of their memory. */
#define SHORT		64
#define FAA		IB_WR_ATOMIC_FETCH_AND_ADD

/* Post a short message with number @nr and memory of its own. */
static void post_as(struct far_host *h, u8 *buf, u64 nr, u8 opcode, int flags)
{
	bool atomic = opcode == FAA;

	far_post_as(h, opcode, buf + nr * SHORT, atomic ? 8 : SHORT, flags, nr);
}

static void post(struct far_host *h, u8 *buf, u64 nr, u8 opcode)
{
	post_as(h, buf, nr, opcode, 0);
}

/* Frame @i is packet @nr, and the whole of the short message @message. */
static void is_short(struct far_host *h, u8 *buf, u32 i, u32 nr, u32 message)
{
	const struct keel_frame *frame = far_sent(h, i, nr);

	KUNIT_EXPECT_EQ(h->p->test, ONLY, far_flags(frame));
	KUNIT_EXPECT_EQ(h->p->test, SHORT, le64_to_cpu(frame->request.left));
	KUNIT_EXPECT_MEMEQ(h->p->test, buf + message * SHORT, h->sent[i]->data,
			   le32_to_cpu(frame->len));
}

/* No more than @n frames were sent. */
static void sent_only(struct far_host *h, u32 n)
{
	far_host_settle(h);
	KUNIT_EXPECT_EQ(h->p->test, n, far_host_wait(h, n));
}

/* The messages up to @nr have completed, each with success but the last one. */
static void ended(struct far_host *h, u32 nr, enum ib_wc_status status, u32 why)
{
	struct end *b = &h->p->b;
	u32 i;

	pair_settle(h->p, b, nr + 1);
	KUNIT_ASSERT_EQ(h->p->test, nr + 1, b->wcs);
	for (i = 0; i <= nr; i++) {
		KUNIT_EXPECT_EQ(h->p->test, i, b->wc[i].wr_id);
		KUNIT_EXPECT_EQ(h->p->test, i == nr ? status : IB_WC_SUCCESS, b->wc[i].status);
	}
	KUNIT_EXPECT_EQ(h->p->test, why, b->wc[nr].vendor_err);
}

static void ended_well(struct far_host *h, u32 nr)
{
	ended(h, nr, IB_WC_SUCCESS, KEEL_WHY_NONE);
}

static void give_result(struct far_host *h, u32 nr, u8 result, u8 rnr)
{
	struct keel_frame answer = far_answer(h, nr, IB_WC_SUCCESS);

	answer.answer.result = result;
	answer.answer.rnr = rnr;
	far_give(h, &answer);
}

/* HOST-1: messages are sent one after the other, and end in their order. */
static void host_1_order(struct kunit *test)
{
	struct far_host *h;
	u32 i;
	u8 *buf;

	h = far_send_make(test, &buf);
	for (i = 0; i < 3; i++)
		post(h, buf, i, IB_WR_SEND);
	for (i = 0; i < 3; i++)
		is_short(h, buf, i, i, i);
	far_nothing_ended(h);
	for (i = 0; i < 3; i++) {
		far_give_done(h, i, 0);
		ended_well(h, i);
	}
	sent_only(h, 3);
}

/* HOST-2: no more packets than the window are under way, of all messages. */
static void host_2_window(struct kunit *test)
{
	struct far_host *h;
	u32 i;
	u8 *buf;

	h = far_send_make(test, &buf);
	for (i = 0; i < WINDOW + 4; i++)
		post(h, buf, i, IB_WR_SEND);
	for (i = 0; i < WINDOW + 4; i++) {
		sent_only(h, min(WINDOW + i, WINDOW + 4));
		is_short(h, buf, i, i, i);
		far_give_done(h, i, 0);
		ended_well(h, i);
	}
}

/* HOST-1: the first packets of a long message are sent behind those of another one. */
static void host_1_long(struct kunit *test)
{
	const struct keel_frame *frame;
	struct far_host *h;
	u8 *buf;
	u32 i;

	h = far_send_make(test, &buf);
	far_post_as(h, IB_WR_RDMA_WRITE, buf, 5 * PACKET, 0, 0);
	far_post_as(h, IB_WR_RDMA_WRITE, buf + 100, 5 * PACKET, 0, 1);
	sent_only(h, FAR_WHOLE);
	for (i = 0; i < 10; i++) {
		frame = far_sent(h, i, i);
		KUNIT_EXPECT_EQ(test, (i % 5 ? 0 : FIRST) | (i % 5 == 4 ? LAST : 0),
				far_flags(frame));
		KUNIT_EXPECT_EQ(test, FAR_REMOTE + i % 5 * PACKET,
				le64_to_cpu(frame->request.addr));
		KUNIT_EXPECT_MEMEQ(test, buf + i / 5 * 100 + i % 5 * PACKET, h->sent[i]->data,
				   PACKET);
		far_give_done(h, i, 0);
		end_collect(&h->p->b);
		KUNIT_EXPECT_EQ(test, (i + 1) / 5, h->p->b.wcs);
	}
	ended_well(h, 1);
	sent_only(h, 10);
}

/* HOST-2: after a new connection, all messages that are not answered are sent again. */
static void host_2_back(struct kunit *test)
{
	struct far_host *h;
	u32 i;
	u8 *buf;

	h = far_send_make(test, &buf);
	for (i = 0; i < 4; i++)
		post(h, buf, i, IB_WR_SEND);
	sent_only(h, 4);
	far_give_done(h, 0, 0);
	ended_well(h, 0);
	far_host_open(h);
	/* The attempt to send this one finds out. */
	post(h, buf, 4, IB_WR_SEND);
	for (i = 1; i < 5; i++)
		is_short(h, buf, 3 + i, i, i);
	for (i = 1; i < 5; i++) {
		far_give_done(h, i, 0);
		ended_well(h, i);
	}
	sent_only(h, 8);
}

/* HOST-2: late answers count, although all messages are to be sent again. */
static void host_2_late(struct kunit *test)
{
	struct far_host *h;
	u32 i;
	u8 *buf;

	h = far_send_make(test, &buf);
	for (i = 0; i < 4; i++)
		post(h, buf, i, IB_WR_SEND);
	sent_only(h, 4);
	/* 655 ms: nothing is sent before, but for a late answer. */
	give_result(h, 0, KEEL_RESULT_RNR, 0);
	sent_only(h, 4);
	far_give_done(h, 0, 0);
	for (i = 1; i < 4; i++)
		is_short(h, buf, 3 + i, i, i);
	for (i = 1; i < 4; i++) {
		far_give_done(h, i, 0);
		ended_well(h, i);
	}
	sent_only(h, 7);
	post(h, buf, 4, IB_WR_SEND);
	is_short(h, buf, 7, 4, 4);
	far_give_done(h, 4, 0);
	ended_well(h, 4);
}

/* HOST-2: all messages without an answer are sent again in time. */
static void host_2_timer(struct kunit *test)
{
	struct far_host *h;
	u32 i;
	u8 *buf;

	h = far_send_make(test, &buf);
	WRITE_ONCE(h->qp->attr.timeout, 16);
	for (i = 0; i < 3; i++)
		post(h, buf, i, IB_WR_SEND);
	for (i = 0; i < 6; i++)
		is_short(h, buf, i, i % 3, i % 3);
	for (i = 0; i < 3; i++)
		far_give_done(h, i, 0);
	ended_well(h, 2);
}

/* HOST-1: a reset forgets what was in-flight: the next message has the first number. */
static void host_1_reset(struct kunit *test)
{
	struct far_host *h;
	u32 i;
	u8 *buf;

	h = far_send_make(test, &buf);
	for (i = 0; i < 3; i++)
		post(h, buf, i, IB_WR_RDMA_READ);
	sent_only(h, 3);
	end_move(h->p, &h->p->b, IB_QPS_RESET);
	far_nothing_ended(h);
	end_connect(h->p, &h->p->b);
	far_host_join(h);
	/* No read is in-flight any more. */
	post_as(h, buf, 3, IB_WR_SEND, IB_SEND_FENCE);
	post_as(h, buf, 4, IB_WR_SEND, IB_SEND_FENCE);
	is_short(h, buf, 3, 0, 3);
	is_short(h, buf, 4, 1, 4);
	far_give_done(h, 0, 0);
	far_give_done(h, 1, 0);
	pair_settle(h->p, &h->p->b, 2);
	KUNIT_EXPECT_EQ(test, 3, h->p->b.wc[0].wr_id);
	KUNIT_EXPECT_EQ(test, IB_WC_SUCCESS, h->p->b.wc[0].status);
	KUNIT_EXPECT_EQ(test, 4, h->p->b.wc[1].wr_id);
	KUNIT_EXPECT_EQ(test, IB_WC_SUCCESS, h->p->b.wc[1].status);
	sent_only(h, 5);
}

/* HOST-1: while the other side is not ready, only the first message is sent. */
static void host_1_probe(struct kunit *test)
{
	struct far_host *h;
	u32 i;
	u8 *buf;

	h = far_send_make(test, &buf);
	for (i = 0; i < 3; i++)
		post(h, buf, i, IB_WR_SEND);
	sent_only(h, 3);
	give_result(h, 0, KEEL_RESULT_NOT_READY, 0);
	is_short(h, buf, 3, 0, 0);
	sent_only(h, 4);
	far_give_done(h, 0, 0);
	ended_well(h, 0);
	is_short(h, buf, 4, 1, 1);
	is_short(h, buf, 5, 2, 2);
	far_give_done(h, 1, 0);
	far_give_done(h, 2, 0);
	ended_well(h, 2);
	sent_only(h, 6);
}

/* HOST-1: no more reads and atomic operations are under way than the QP may have. */
static void host_1_depth(struct kunit *test)
{
	struct far_host *h;
	u32 i, most;
	u8 *buf;

	h = far_send_make(test, &buf);
	most = h->qp->attr.max_rd_atomic;
	KUNIT_ASSERT_LT(test, most, WINDOW - 2);
	for (i = 0; i < most; i++)
		post(h, buf, i, i ? FAA : IB_WR_RDMA_READ);
	post(h, buf, most, IB_WR_SEND);
	post(h, buf, most + 1, IB_WR_RDMA_READ);
	post(h, buf, most + 2, IB_WR_SEND);
	sent_only(h, most + 1);
	far_give_done(h, 0, SHORT);
	ended_well(h, 0);
	sent_only(h, most + 3);
	for (i = 1; i < most; i++)
		far_give_done(h, i, 0);
	far_give_done(h, most, 0);
	far_give_done(h, most + 1, SHORT);
	far_give_done(h, most + 2, 0);
	ended_well(h, most + 2);
}

/* HOST-1: a message with IB_SEND_FENCE waits for reads and atomic operations before it. */
static void host_1_fence(struct kunit *test)
{
	struct far_host *h;
	u8 *buf;

	h = far_send_make(test, &buf);
	post(h, buf, 0, IB_WR_SEND);
	post_as(h, buf, 1, IB_WR_SEND, IB_SEND_FENCE);
	post(h, buf, 2, IB_WR_RDMA_READ);
	post(h, buf, 3, IB_WR_SEND);
	post_as(h, buf, 4, IB_WR_SEND, IB_SEND_FENCE);
	post(h, buf, 5, IB_WR_SEND);
	sent_only(h, 4);
	far_give_done(h, 0, 0);
	far_give_done(h, 1, 0);
	sent_only(h, 4);
	far_give_done(h, 2, SHORT);
	ended_well(h, 2);
	is_short(h, buf, 4, 4, 4);
	is_short(h, buf, 5, 5, 5);
	far_give_done(h, 3, 0);
	far_give_done(h, 4, 0);
	far_give_done(h, 5, 0);
	ended_well(h, 5);
}

/* HOST-1: the answers of several reads and atomics reach the memory of each. */
static void host_1_reads(struct kunit *test)
{
	struct keel_frame answer;
	struct far_host *h;
	u8 *buf;

	h = far_send_make(test, &buf);
	memset(buf, 0, 4 * SHORT);
	post(h, buf, 0, IB_WR_RDMA_READ);
	post(h, buf, 1, FAA);
	post(h, buf, 2, IB_WR_RDMA_READ);
	sent_only(h, 3);
	memset(h->data, 0x10, SHORT);
	far_give_done(h, 0, SHORT);
	answer = far_answer(h, 1, IB_WC_SUCCESS);
	answer.answer.word = cpu_to_le64(FAR_B);
	far_give(h, &answer);
	memset(h->data, 0x12, SHORT);
	far_give_done(h, 2, SHORT);
	ended_well(h, 2);
	KUNIT_EXPECT_NULL(test, memchr_inv(buf, 0x10, SHORT));
	KUNIT_EXPECT_EQ(test, FAR_B, *(u64 *)(buf + SHORT));
	KUNIT_EXPECT_NULL(test, memchr_inv(buf + SHORT + 8, 0, SHORT - 8));
	KUNIT_EXPECT_NULL(test, memchr_inv(buf + 2 * SHORT, 0x12, SHORT));
	KUNIT_EXPECT_NULL(test, memchr_inv(buf + 3 * SHORT, 0, SHORT));
}

/* Of three messages, the second one fails with @status, and the third one is flushed. */
static void second_fails(struct far_host *h, enum ib_wc_status status)
{
	struct end *b = &h->p->b;

	far_give_done(h, 0, 0);
	pair_settle(h->p, b, 3);
	KUNIT_EXPECT_EQ(h->p->test, IB_WC_SUCCESS, b->wc[0].status);
	KUNIT_EXPECT_EQ(h->p->test, status, b->wc[1].status);
	KUNIT_EXPECT_EQ(h->p->test, IB_WC_WR_FLUSH_ERR, b->wc[2].status);
}

/* Nothing passes @wr, which fails with @status, but not before the message ahead of it ends. */
static void is_barrier(struct kunit *test, const struct ib_send_wr *wr, enum ib_wc_status status)
{
	struct far_host *h;
	u8 *buf;

	h = far_send_make(test, &buf);
	post(h, buf, 0, IB_WR_SEND);
	KUNIT_ASSERT_EQ(test, 0, ib_post_send(h->p->b.qp, wr, NULL));
	post(h, buf, 2, IB_WR_SEND);
	sent_only(h, 1);
	far_nothing_ended(h);
	second_fails(h, status);
	sent_only(h, 1);
}

/* HOST-1: nothing passes a local operation, and what fails does so in its turn. */
static void host_1_local(struct kunit *test)
{
	const struct ib_send_wr wr = {
		.wr_id = 1, .opcode = IB_WR_LOCAL_INV, .ex.invalidate_rkey = FAR_RKEY,
		.send_flags = IB_SEND_SIGNALED,
	};

	is_barrier(test, &wr, IB_WC_MW_BIND_ERR);
}

/* HOST-1: a message without a right to its memory fails when those before it have ended. */
static void host_1_bad(struct kunit *test)
{
	struct ib_sge sge = { .length = SHORT, .lkey = FAR_RKEY };
	const struct ib_send_wr wr = {
		.wr_id = 1, .opcode = IB_WR_SEND, .sg_list = &sge, .num_sge = 1,
		.send_flags = IB_SEND_SIGNALED,
	};

	is_barrier(test, &wr, IB_WC_LOC_PROT_ERR);
}

/* HOST-1: a message whose WQE has become a local operation since it was sent fails. */
static void host_1_changed_local(struct kunit *test)
{
	struct keel_uapi_send_wqe *wqe;
	struct far_host *h;
	u32 i;
	u8 *buf;

	h = far_send_make(test, &buf);
	for (i = 0; i < 3; i++)
		post(h, buf, i, IB_WR_SEND);
	sent_only(h, 3);
	wqe = keel_ring_entry(&h->qp->sq.ring, 1);
	wqe->num_sge = 0;
	wqe->imm = h->p->b.mr->rkey;
	wqe->opcode = IB_WR_LOCAL_INV;
	second_fails(h, IB_WC_LOC_QP_OP_ERR);
	KUNIT_EXPECT_EQ(test, KEEL_WHY_OPCODE, h->p->b.wc[1].vendor_err);
}

/* HOST-1: an error of the first message flushes those behind it. */
static void host_1_error(struct kunit *test)
{
	struct keel_frame answer;
	struct far_host *h;
	u32 i;
	u8 *buf;

	h = far_send_make(test, &buf);
	for (i = 0; i < 3; i++)
		post(h, buf, i, IB_WR_RDMA_WRITE);
	sent_only(h, 3);
	answer = far_answer(h, 0, IB_WC_REM_ACCESS_ERR);
	far_give(h, &answer);
	pair_settle(h->p, &h->p->b, 3);
	KUNIT_EXPECT_EQ(test, IB_WC_REM_ACCESS_ERR, h->p->b.wc[0].status);
	KUNIT_EXPECT_EQ(test, IB_WC_WR_FLUSH_ERR, h->p->b.wc[1].status);
	KUNIT_EXPECT_EQ(test, IB_WC_WR_FLUSH_ERR, h->p->b.wc[2].status);
	KUNIT_EXPECT_EQ(test, IB_QPS_ERR, end_state(h->p, &h->p->b));
	sent_only(h, 3);
}

/* HOST-1: SQD: what was begun is finished, and sent again if need be, and nothing else. */
static void host_1_sqd(struct kunit *test)
{
	struct far_host *h;
	u32 i;
	u8 *buf;

	h = far_send_make(test, &buf);
	for (i = 0; i < WINDOW + 2; i++)
		post(h, buf, i, IB_WR_SEND);
	sent_only(h, WINDOW);
	end_move(h->p, &h->p->b, IB_QPS_SQD);
	far_give_done(h, 0, 0);
	ended_well(h, 0);
	sent_only(h, WINDOW);
	far_host_recycle(h);
	give_result(h, 1, KEEL_RESULT_NOT_READY, 0);
	is_short(h, buf, 0, 1, 1);
	far_give_done(h, 1, 0);
	for (i = 2; i < WINDOW; i++)
		is_short(h, buf, i - 1, i, i);
	for (i = 2; i < WINDOW; i++) {
		KUNIT_EXPECT_FALSE(test, READ_ONCE(h->qp->sq.drained));
		far_give_done(h, i, 0);
		ended_well(h, i);
	}
	KUNIT_EXPECT_TRUE(test, READ_ONCE(h->qp->sq.drained));
	sent_only(h, WINDOW - 1);
	end_move(h->p, &h->p->b, IB_QPS_RTS);
	is_short(h, buf, WINDOW - 1, WINDOW, WINDOW);
	is_short(h, buf, WINDOW, WINDOW + 1, WINDOW + 1);
	far_give_done(h, WINDOW, 0);
	far_give_done(h, WINDOW + 1, 0);
	ended_well(h, WINDOW + 1);
}

static void set_credits(struct far_host *h, u32 n)
{
	guard(spinlock)(&h->conn.lock);
	h->conn.credits = n;
}

/* HOST-1: a message that got no buffer was not begun. */
static void host_1_no_buffer(struct kunit *test)
{
	struct far_host *h;
	u8 *buf;

	h = far_send_make(test, &buf);
	post(h, buf, 0, IB_WR_SEND);
	sent_only(h, 1);
	set_credits(h, KEEL_LINK_SPARE);
	post(h, buf, 1, IB_WR_SEND);
	sent_only(h, 1);
	end_move(h->p, &h->p->b, IB_QPS_SQD);
	far_give_done(h, 0, 0);
	ended_well(h, 0);
	KUNIT_EXPECT_TRUE(test, READ_ONCE(h->qp->sq.drained));
	set_credits(h, FAR_SENDS);
	sent_only(h, 1);
	end_move(h->p, &h->p->b, IB_QPS_RTS);
	is_short(h, buf, 1, 1, 1);
	far_give_done(h, 1, 0);
	ended_well(h, 1);
}

/* HOST-2: the time of a message begins when it has its buffer. */
static void host_2_waited(struct kunit *test)
{
	struct far_host *h;
	u8 *buf;

	h = far_send_make(test, &buf);
	set_credits(h, KEEL_LINK_SPARE);
	post(h, buf, 0, IB_WR_SEND);
	sent_only(h, 0);
	/* As if it had waited for long when there is one. */
	scoped_guard(mutex, &h->qp->sq.from.lock)
		h->qp->far->deadline = 1;
	set_credits(h, FAR_SENDS);
	keel_qp_schedule(h->qp);
	sent_only(h, 1);
	far_nothing_ended(h);
	far_give_done(h, 0, 0);
	ended_well(h, 0);
}

/* HOST-1: a message whose WQE has changed since it was sent fails in its turn. */
static void host_1_changed(struct kunit *test)
{
	struct keel_uapi_send_wqe *wqe;
	struct keel_uapi_sge *sge;
	struct far_host *h;
	u8 *buf;

	h = far_send_make(test, &buf);
	post(h, buf, 0, IB_WR_SEND);
	post(h, buf, 1, IB_WR_SEND);
	post(h, buf, 2, IB_WR_SEND);
	sent_only(h, 3);
	wqe = keel_ring_entry(&h->qp->sq.ring, 1);
	sge = (void *)(wqe + 1);
	WRITE_ONCE(sge->length, 2 * PACKET);
	/* It is not sent again either. */
	give_result(h, 0, KEEL_RESULT_NOT_READY, 0);
	is_short(h, buf, 3, 0, 0);
	second_fails(h, IB_WC_LOC_QP_OP_ERR);
	KUNIT_EXPECT_EQ(test, KEEL_WHY_LENGTH, h->p->b.wc[1].vendor_err);
	sent_only(h, 4);
}

static struct kunit_case far_ahead_cases[] = {
	KUNIT_CASE(host_1_order),
	KUNIT_CASE(host_2_window),
	KUNIT_CASE(host_1_long),
	KUNIT_CASE(host_2_back),
	KUNIT_CASE(host_2_late),
	KUNIT_CASE(host_2_timer),
	KUNIT_CASE(host_1_reset),
	KUNIT_CASE(host_1_probe),
	KUNIT_CASE(host_1_depth),
	KUNIT_CASE(host_1_fence),
	KUNIT_CASE(host_1_reads),
	KUNIT_CASE(host_1_local),
	KUNIT_CASE(host_1_bad),
	KUNIT_CASE(host_1_error),
	KUNIT_CASE(host_1_sqd),
	KUNIT_CASE(host_1_no_buffer),
	KUNIT_CASE(host_2_waited),
	KUNIT_CASE(host_1_changed),
	KUNIT_CASE(host_1_changed_local),
	{}
};

static struct kunit_suite far_ahead_suite = {
	.name = "keel_far_ahead",
	.suite_init = pair_suite_init,
	.suite_exit = pair_suite_exit,
	.init = pair_init,
	.exit = pair_exit,
	.test_cases = far_ahead_cases,
};

kunit_test_suite(far_ahead_suite);
