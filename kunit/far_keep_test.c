// SPDX-License-Identifier: GPL-2.0
/*
 * The responder of a QP that is connected to another host: the packets that it keeps, those
 * that come twice, and those that are not for it.
 */
#include "far_host.h"

#define WORD	1000ULL
#define ADD	3

/* HOST-3: a packet of another QP, or for another one, is refused, and changes nothing. */
static void host_3_not_connected(struct kunit *test)
{
	struct far_host *h = far_host_make(test, IB_QPS_RTS);
	struct end *b = &h->p->b;
	struct keel_frame frame = far_packet(h, 0, IB_WR_RDMA_WRITE, ONLY, 64, 64);

	far_host_open(h);
	frame.from = cpu_to_le32(FAR_QPN + 1);
	far_refused(h, 0, &frame);
	frame.from = cpu_to_le32(h->qp->qpn);
	far_refused(h, 1, &frame);
	frame.from = cpu_to_le32(FAR_QPN);
	/* This QP is connected to one of this host. */
	frame.to = cpu_to_le32(h->p->a.qp->qp_num);
	far_refused(h, 2, &frame);
	/* There is no such QP. */
	frame.to = cpu_to_le32(KEEL_PSN_MASK);
	far_refused(h, 3, &frame);
	frame.to = 0;
	far_refused(h, 4, &frame);
	KUNIT_EXPECT_EQ(test, -1, end_differs(b, 0, b, 0, PAIR_BYTES));
	KUNIT_EXPECT_EQ(test, IB_QPS_RTS, end_state(h->p, b));
	frame.to = cpu_to_le32(h->qp->qpn);
	far_request(h, &frame);
	far_answered(h, 5, 0, KEEL_RESULT_DONE, IB_WC_SUCCESS);
	KUNIT_EXPECT_NULL(test, memchr_inv(b->buf, 0, 64));
}

/* HOST-3: a packet that comes over the link to another host is not kept. */
static void host_3_other_link(struct kunit *test)
{
	struct far_host *h = far_host_make(test, IB_QPS_RTS);
	struct keel_frame frame = far_packet(h, 0, IB_WR_RDMA_WRITE, ONLY, 64, 64);
	struct keel_link *other = kunit_kzalloc(test, sizeof(*other), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, other);
	other->kdev = h->qp->kdev;
	spin_lock_init(&other->lock);
	far_host_open(h);
	keel_far_ops.request(other, &frame, h->data);
	KUNIT_EXPECT_EQ(test, 0, far_requests_n(h));
	far_host_settle(h);
	KUNIT_EXPECT_EQ(test, 0, far_host_wait(h, 0));
	KUNIT_EXPECT_EQ(test, -1, end_differs(&h->p->b, 0, &h->p->b, 0, PAIR_BYTES));
}

/* HOST-1: a QP that is in no state to receive tells the requester to try again. */
static void host_1_not_ready(struct kunit *test)
{
	struct far_host *h = far_host_make(test, IB_QPS_INIT);
	struct keel_frame frame = far_packet(h, 0, IB_WR_RDMA_WRITE, ONLY, 64, 64);

	far_host_open(h);
	/* INIT: the number of its peer is not set yet. */
	WRITE_ONCE(h->qp->attr.dest_qp_num, FAR_QPN);
	far_refused(h, 0, &frame);
	end_move(h->p, &h->p->b, IB_QPS_ERR);
	far_refused(h, 1, &frame);
	end_move(h->p, &h->p->b, IB_QPS_RESET);
	far_refused(h, 2, &frame);
}

/* HOST-3: after the first packet, those of another life of the other QP are refused. */
static void host_3_generation(struct kunit *test)
{
	struct far_host *h = far_host_make(test, IB_QPS_RTS);
	struct keel_frame frame = far_packet(h, 0, IB_WR_RDMA_WRITE, ONLY, 64, 64);

	far_host_open(h);
	far_request(h, &frame);
	far_answered(h, 0, 0, KEEL_RESULT_DONE, IB_WC_SUCCESS);
	frame = far_packet(h, 1, IB_WR_RDMA_WRITE, ONLY, 64, 64);
	frame.gen = cpu_to_le64(FAR_GEN + 1);
	far_refused(h, 1, &frame);
	frame.gen = 0;
	far_refused(h, 2, &frame);
	/* Nor is one answered that was executed. */
	frame = far_packet(h, 0, IB_WR_RDMA_WRITE, ONLY, 64, 64);
	frame.gen = cpu_to_le64(FAR_GEN + (1ULL << 32));
	far_refused(h, 3, &frame);
	frame = far_packet(h, 1, IB_WR_RDMA_WRITE, ONLY, 64, 64);
	far_request(h, &frame);
	far_answered(h, 4, 1, KEEL_RESULT_DONE, IB_WC_SUCCESS);
}

/* HOST-2: a packet that is not the next one is dropped, without an answer. */
static void host_2_order(struct kunit *test)
{
	static const u32 wrong[] = { 1, 2, KEEL_FAR_WINDOW, 0x7fffff, 0x800000, KEEL_PSN_MASK };
	struct far_host *h = far_host_make(test, IB_QPS_RTS);
	struct end *b = &h->p->b;
	struct keel_frame frame;
	int i;

	far_host_open(h);
	for (i = 0; i < ARRAY_SIZE(wrong); i++) {
		frame = far_packet(h, wrong[i], IB_WR_RDMA_WRITE, ONLY, 64, 64);
		far_request(h, &frame);
		KUNIT_EXPECT_EQ(test, 0, far_requests_n(h));
	}
	KUNIT_EXPECT_EQ(test, 0, far_host_wait(h, 0));
	KUNIT_EXPECT_EQ(test, -1, end_differs(b, 0, b, 0, PAIR_BYTES));
	KUNIT_EXPECT_EQ(test, IB_QPS_RTS, end_state(h->p, b));
	for (i = 0; i < 4; i++) {
		frame = far_packet(h, i, IB_WR_RDMA_WRITE, ONLY, 64, 64);
		far_request(h, &frame);
		far_answered(h, i, i, KEEL_RESULT_DONE, IB_WC_SUCCESS);
	}
}

/* HOST-3: a QP keeps no more packets than the window, of any kind. */
static void host_3_window(struct kunit *test)
{
	struct far_host *h = far_host_make(test, IB_QPS_RTS);
	struct keel_frame frame;
	u32 i;

	for (i = 0; i < KEEL_FAR_WINDOW + 3; i++) {
		frame = far_packet(h, i, IB_WR_RDMA_WRITE, ONLY, 64, 64);
		le64_add_cpu(&frame.request.addr, 64 * i);
		far_request(h, &frame);
		KUNIT_EXPECT_EQ(test, min(i + 1, KEEL_FAR_WINDOW), far_requests_n(h));
	}
	/* The first one was executed: it would be kept again. */
	frame = far_packet(h, 0, IB_WR_RDMA_WRITE, ONLY, 64, 64);
	far_request(h, &frame);
	KUNIT_EXPECT_EQ(test, KEEL_FAR_WINDOW, far_requests_n(h));
	far_host_open(h);
	for (i = 0; i < KEEL_FAR_WINDOW; i++)
		far_answered(h, i, i, KEEL_RESULT_DONE, IB_WC_SUCCESS);
	KUNIT_EXPECT_EQ(test, KEEL_FAR_WINDOW, far_host_wait(h, KEEL_FAR_WINDOW));
	KUNIT_EXPECT_EQ(test, 0, far_requests_n(h));
	/* Those that were dropped come again. */
	frame = far_packet(h, KEEL_FAR_WINDOW, IB_WR_RDMA_WRITE, ONLY, 64, 64);
	far_request(h, &frame);
	far_answered(h, KEEL_FAR_WINDOW, KEEL_FAR_WINDOW, KEEL_RESULT_DONE, IB_WC_SUCCESS);
}

/* HOST-1: a QP keeps as many datagrams as it has receive WQEs, and drops the others. */
static void host_1_datagrams(struct kunit *test)
{
	struct far_host *h = far_host_make_type(test, IB_QPT_UD, IB_QPS_RTS);
	const struct keel_frame frame = {
		.type = KEEL_FRAME_DATAGRAM,
		.len = cpu_to_le32(64),
		.to = cpu_to_le32(h->qp->qpn),
		.from = cpu_to_le32(FAR_QPN),
		.datagram.opcode = IB_WR_SEND,
		.datagram.qkey = cpu_to_le32(PAIR_QKEY),
	};
	u32 i, most = clamp_t(u32, h->qp->cap.max_recv_wr, 16, 64);
	u64 drops = pair_counter(h->p, KEEL_CTR_ud_drops);

	/* Its owner does not run. */
	scoped_guard(mutex, &h->qp->far->from.lock) {
		for (i = 0; i < most + 5; i++) {
			keel_far_ops.datagram(&h->link, &frame, h->data);
			KUNIT_EXPECT_EQ(test, min(i + 1, most), far_requests_n(h));
		}
		far_host_settle(h);
	}
	KUNIT_EXPECT_EQ(test, drops + 5, pair_counter(h->p, KEEL_CTR_ud_drops));
	keel_qp_schedule(h->qp);
	far_host_settle(h);
	KUNIT_EXPECT_EQ(test, 0, far_requests_n(h));
}

/* HOST-2: a packet that comes again before it is executed is kept once. */
static void host_2_pending(struct kunit *test)
{
	struct far_host *h = far_host_make(test, IB_QPS_RTS);
	struct keel_frame first = far_packet(h, 0, IB_WR_SEND, ONLY, 64, 64);
	struct keel_frame second = far_packet(h, 1, IB_WR_SEND, ONLY, 65, 65);
	struct end *b = &h->p->b;
	int i;

	for (i = 0; i < 3; i++)
		end_recv(h->p, b, 5 + i, 0, KEEL_FRAME_DATA);
	/* Its answer cannot be sent yet, so that the second one is not executed. */
	far_request(h, &first);
	for (i = 0; i < 3; i++) {
		far_request(h, &second);
		KUNIT_EXPECT_EQ(test, 2, far_requests_n(h));
	}
	far_host_open(h);
	far_answered(h, 0, 0, KEEL_RESULT_DONE, IB_WC_SUCCESS);
	far_answered(h, 1, 1, KEEL_RESULT_DONE, IB_WC_SUCCESS);
	KUNIT_EXPECT_EQ(test, 2, far_host_wait(h, 2));
	KUNIT_EXPECT_EQ(test, 0, far_requests_n(h));
	pair_settle(h->p, b, 2);
	KUNIT_EXPECT_EQ(test, 2, b->wcs);
}

/* HOST-2: a send that comes again is answered again, and takes one receive WQE. */
static void host_2_executed_send(struct kunit *test)
{
	struct far_host *h = far_host_make(test, IB_QPS_RTS);
	struct keel_frame frame = far_packet(h, 0, IB_WR_SEND, ONLY, 64, 64);
	struct end *b = &h->p->b;
	u32 i;

	for (i = 0; i < 3; i++)
		end_recv(h->p, b, 5 + i, 0, KEEL_FRAME_DATA);
	far_host_open(h);
	for (i = 0; i < 3; i++) {
		memset(h->data, 1 + i, KEEL_FRAME_DATA);
		far_request(h, &frame);
		far_answered(h, i, 0, KEEL_RESULT_DONE, IB_WC_SUCCESS);
	}
	pair_settle(h->p, b, 1);
	KUNIT_EXPECT_EQ(test, 1, b->wcs);
	KUNIT_EXPECT_NULL(test, memchr_inv(b->buf, 1, 64));
	KUNIT_EXPECT_EQ(test, -1, end_differs(b, 64, b, 64, PAIR_BYTES - 64));
}

/* HOST-2: a packet in a message that comes again does not move the bytes behind it. */
static void host_2_executed_part(struct kunit *test)
{
	struct far_host *h = far_host_make(test, IB_QPS_RTS);
	struct end *b = &h->p->b;
	struct keel_frame frame;
	u32 i;

	end_recv(h->p, b, 5, 0, PAIR_BYTES);
	far_host_open(h);
	for (i = 0; i < 4; i++) {
		/* Packets 0, 1, 0 and 1 again; then the last one. */
		memset(h->data, 1 + i, KEEL_FRAME_DATA);
		frame = far_packet(h, i % 2, IB_WR_SEND, i % 2 ? 0 : FIRST, KEEL_FRAME_DATA,
				   2 * KEEL_FRAME_DATA + 1 - i % 2 * KEEL_FRAME_DATA);
		far_request(h, &frame);
		far_answered(h, i, i % 2, KEEL_RESULT_DONE, IB_WC_SUCCESS);
	}
	frame = far_packet(h, 2, IB_WR_SEND, LAST, 1, 1);
	far_request(h, &frame);
	far_answered(h, 4, 2, KEEL_RESULT_DONE, IB_WC_SUCCESS);
	pair_settle(h->p, b, 1);
	KUNIT_EXPECT_EQ(test, 2 * KEEL_FRAME_DATA + 1, b->wc[0].byte_len);
	KUNIT_EXPECT_NULL(test, memchr_inv(b->buf, 1, KEEL_FRAME_DATA));
	KUNIT_EXPECT_NULL(test, memchr_inv(b->buf + KEEL_FRAME_DATA, 2, KEEL_FRAME_DATA));
	KUNIT_EXPECT_EQ(test, 4, b->buf[2 * KEEL_FRAME_DATA]);
}

static void add_is(struct far_host *h, u32 i, u32 nr, u64 was, u64 now)
{
	struct keel_frame frame = far_packet(h, nr, IB_WR_ATOMIC_FETCH_AND_ADD, ONLY, 0, 8);
	const struct keel_frame *answer;

	frame.request.a = cpu_to_le64(ADD);
	far_request(h, &frame);
	answer = far_answered(h, i, nr, KEEL_RESULT_DONE, IB_WC_SUCCESS);
	KUNIT_EXPECT_EQ(h->p->test, was, le64_to_cpu(answer->answer.word));
	KUNIT_EXPECT_EQ(h->p->test, now, *(u64 *)h->p->b.buf);
}

/* HOST-2: an atomic that comes again is answered with the first result. */
static void host_2_executed_atomic(struct kunit *test)
{
	struct far_host *h = far_host_make(test, IB_QPS_RTS);
	u64 *word = (u64 *)h->p->b.buf;
	struct keel_frame frame;

	*word = WORD;
	far_host_open(h);
	add_is(h, 0, 0, WORD, WORD + ADD);
	add_is(h, 1, 0, WORD, WORD + ADD);
	/* The memory may have changed meanwhile. */
	*word = 7;
	add_is(h, 2, 0, WORD, 7);
	add_is(h, 3, 1, 7, 7 + ADD);
	add_is(h, 4, 1, 7, 7 + ADD);
	/* Several may be under way: each result is kept. */
	add_is(h, 5, 0, WORD, 7 + ADD);
	/* This number was no atomic. */
	frame = far_packet(h, 2, IB_WR_RDMA_WRITE, ONLY, 0, 0);
	far_request(h, &frame);
	far_answered(h, 6, 2, KEEL_RESULT_DONE, IB_WC_SUCCESS);
	KUNIT_EXPECT_EQ(test, 0, le64_to_cpu(h->sent[6]->frame->answer.word));
	frame = far_packet(h, 2, IB_WR_ATOMIC_FETCH_AND_ADD, ONLY, 0, 8);
	far_request(h, &frame);
	KUNIT_EXPECT_EQ(test, 7, far_host_wait(h, 7));
	KUNIT_EXPECT_EQ(test, 0, far_requests_n(h));
	KUNIT_EXPECT_EQ(test, 7 + ADD, *word);
}

/* HOST-2: the result of an atomic is that of its number, and not of the one a window before. */
static void host_2_executed_window(struct kunit *test)
{
	struct far_host *h = far_host_make(test, IB_QPS_RTS);
	u64 *word = (u64 *)h->p->b.buf;
	struct keel_frame frame;
	u32 i, n = 0;

	*word = 0;
	far_host_open(h);
	for (i = 0; i < 2 * KEEL_FAR_WINDOW; i++) {
		add_is(h, 0, i, i * ADD, (i + 1) * ADD);
		far_host_recycle(h);
	}
	for (i = KEEL_FAR_WINDOW; i < 2 * KEEL_FAR_WINDOW; i++, n++)
		add_is(h, n, i, i * ADD, 2 * KEEL_FAR_WINDOW * ADD);
	/* One that is no atomic takes the place of one that was. */
	frame = far_packet(h, i, IB_WR_RDMA_WRITE, ONLY, 0, 0);
	far_request(h, &frame);
	far_answered(h, n, i, KEEL_RESULT_DONE, IB_WC_SUCCESS);
	frame = far_packet(h, i, IB_WR_ATOMIC_FETCH_AND_ADD, ONLY, 0, 8);
	far_request(h, &frame);
	far_host_settle(h);
	KUNIT_EXPECT_EQ(test, n + 1, far_host_wait(h, n + 1));
	KUNIT_EXPECT_EQ(test, 2 * KEEL_FAR_WINDOW * ADD, *word);
}

/* HOST-2: a read comes again in between the packets of a later message. */
static void host_2_read_between(struct kunit *test)
{
	struct far_host *h = far_host_make(test, IB_QPS_RTS);
	struct keel_frame read = far_packet(h, 0, IB_WR_RDMA_READ, ONLY, 0, 64), write;
	const u32 packet = KEEL_FRAME_DATA;

	read.request.bytes = cpu_to_le32(64);
	far_host_open(h);
	far_request(h, &read);
	far_answered(h, 0, 0, KEEL_RESULT_DONE, IB_WC_SUCCESS);
	write = far_packet(h, 1, IB_WR_RDMA_WRITE, FIRST, packet, packet + 8);
	far_request(h, &write);
	far_answered(h, 1, 1, KEEL_RESULT_DONE, IB_WC_SUCCESS);
	far_request(h, &read);
	far_answered(h, 2, 0, KEEL_RESULT_DONE, IB_WC_SUCCESS);
	KUNIT_EXPECT_MEMEQ(test, h->p->b.buf, h->sent[2]->data, 64);
	write = far_packet(h, 2, IB_WR_RDMA_WRITE, LAST, 8, 8);
	write.request.addr = cpu_to_le64(le64_to_cpu(write.request.addr) + packet);
	memset(h->data, 0xa5, 8);
	far_request(h, &write);
	far_answered(h, 3, 2, KEEL_RESULT_DONE, IB_WC_SUCCESS);
	KUNIT_EXPECT_EQ(test, 0xa5a5a5a5a5a5a5a5ULL, *(u64 *)(h->p->b.buf + packet));
	KUNIT_EXPECT_EQ(test, IB_QPS_RTS, end_state(h->p, &h->p->b));
}

/* HOST-2: a read that comes again is answered with the bytes again. */
static void host_2_executed_read(struct kunit *test)
{
	struct far_host *h = far_host_make(test, IB_QPS_RTS);
	struct end *b = &h->p->b;
	struct keel_frame frame = far_packet(h, 0, IB_WR_RDMA_READ, ONLY, 0, 64);
	u32 i;

	frame.request.bytes = cpu_to_le32(64);
	far_host_open(h);
	for (i = 0; i < 2; i++) {
		b->buf[0] = i;
		far_request(h, &frame);
		far_answered(h, i, 0, KEEL_RESULT_DONE, IB_WC_SUCCESS);
		KUNIT_EXPECT_EQ(test, 64, le32_to_cpu(h->sent[i]->frame->len));
		KUNIT_EXPECT_MEMEQ(test, h->sent[i]->data, b->buf, 64);
	}
	/* Its key is gone by now: the QP does not fail for a message that has ended. */
	frame.request.rkey = cpu_to_le32(h->p->foreign->rkey);
	far_request(h, &frame);
	KUNIT_EXPECT_EQ(test, 2, far_host_wait(h, 2));
	KUNIT_EXPECT_EQ(test, 0, far_requests_n(h));
	KUNIT_EXPECT_EQ(test, IB_QPS_RTS, end_state(h->p, b));
	frame = far_packet(h, 1, IB_WR_RDMA_WRITE, ONLY, 64, 64);
	far_request(h, &frame);
	far_answered(h, 2, 1, KEEL_RESULT_DONE, IB_WC_SUCCESS);
}

/* HOST-2: after a reset, nothing of the old life is kept, and nothing counts as executed. */
static void host_2_reset(struct kunit *test)
{
	struct far_host *h = far_host_make(test, IB_QPS_RTS);
	struct keel_far *far = h->qp->far;
	struct keel_frame frame;
	u32 i, executed, expected;
	bool waits;
	u64 gen;

	for (i = 0; i < 2; i++) {
		frame = far_packet(h, i, IB_WR_RDMA_WRITE, ONLY, 64, 64);
		far_request(h, &frame);
	}
	scoped_guard(spinlock, &h->link.lock)
		waits = !keel_turns_empty(&h->link.turns);
	KUNIT_EXPECT_TRUE(test, waits);
	end_move(h->p, &h->p->b, IB_QPS_RESET);
	KUNIT_EXPECT_EQ(test, 0, far_requests_n(h));
	KUNIT_EXPECT_PTR_EQ(test, NULL, far->link);
	scoped_guard(spinlock, &h->link.lock)
		waits = !keel_turns_empty(&h->link.turns);
	KUNIT_EXPECT_FALSE(test, waits);
	KUNIT_EXPECT_EQ(test, 1, h->link.users);
	KUNIT_EXPECT_EQ(test, 1, kref_read(&h->link.ref));
	end_connect(h->p, &h->p->b);
	scoped_guard(spinlock, &far->lock) {
		executed = far->executed;
		expected = far->expected;
		gen = far->peer_gen;
	}
	KUNIT_EXPECT_EQ(test, 0, executed);
	KUNIT_EXPECT_EQ(test, FAR_PSN, expected);
	KUNIT_EXPECT_EQ(test, 0, gen);
}

static struct kunit_case far_keep_cases[] = {
	KUNIT_CASE(host_3_not_connected),
	KUNIT_CASE(host_3_other_link),
	KUNIT_CASE(host_1_not_ready),
	KUNIT_CASE(host_3_generation),
	KUNIT_CASE(host_2_order),
	KUNIT_CASE(host_3_window),
	KUNIT_CASE(host_1_datagrams),
	KUNIT_CASE(host_2_pending),
	KUNIT_CASE(host_2_executed_send),
	KUNIT_CASE(host_2_executed_part),
	KUNIT_CASE(host_2_executed_atomic),
	KUNIT_CASE(host_2_executed_window),
	KUNIT_CASE(host_2_executed_read),
	KUNIT_CASE(host_2_read_between),
	KUNIT_CASE(host_2_reset),
	{}
};

static struct kunit_suite far_keep_suite = {
	.name = "keel_far_keep",
	.suite_init = pair_suite_init,
	.suite_exit = pair_suite_exit,
	.init = pair_init,
	.exit = pair_exit,
	.test_cases = far_keep_cases,
};
kunit_test_suite(far_keep_suite);
