// SPDX-License-Identifier: GPL-2.0
/*
 * The responder of a QP that is connected to another host: the packets that it executes and
 * those that it refuses. far_keep_test.c has those that it keeps, far_send_test.c the requester.
 */
#include "far_host.h"

#define WORD		1000ULL
#define ADD		3
#define IMM		0x1234
/* Bytes of a message of three packets. */
#define LONG		(2 * KEEL_FRAME_DATA + 100)
#define PACKET		KEEL_FRAME_DATA
#define LOC_LEN		IB_WC_LOC_LEN_ERR
#define REQ		IB_WC_REM_INV_REQ_ERR
#define ACCESS		IB_WC_REM_ACCESS_ERR
#define FLUSHED		IB_WC_WR_FLUSH_ERR
#define FAA		IB_WR_ATOMIC_FETCH_AND_ADD
#define CAS		IB_WR_ATOMIC_CMP_AND_SWP

/**
 * struct bad_case - a packet that no requester of keel sends
 * @desc: its name
 * @opcode: its operation
 * @flags: its flags
 * @len: bytes of data
 * @left: &keel_frame.request.left
 * @bytes: &keel_frame.request.bytes
 * @before: operation of a message whose first packet comes before; or NOTHING
 */
struct bad_case {
	const char *desc;
	u8 opcode;
	u8 flags;
	u32 len;
	u64 left;
	u32 bytes;
	int before;
};

#define NOTHING		-1
#define ALONE		.before = NOTHING
#define AFTER(_op)	.before = IB_WR_##_op

static const struct bad_case bad_cases[] = {
	{ "an atomic without LAST", FAA, FIRST, 0, 8, ALONE },
	{ "an atomic without FIRST", CAS, LAST, 0, 8, ALONE },
	{ "an atomic without both", FAA, 0, 0, 8, ALONE },
	{ "an atomic with data", FAA, ONLY, 8, 8, ALONE },
	{ "an atomic that asks for bytes", CAS, ONLY, 0, 8, 8, ALONE },
	{ "an atomic write without data", IB_WR_ATOMIC_WRITE, ONLY, 0, 8, ALONE },
	{ "an atomic write of 7 bytes", IB_WR_ATOMIC_WRITE, ONLY, 7, 8, ALONE },
	{ "an atomic write without LAST", IB_WR_ATOMIC_WRITE, FIRST, 8, 8, ALONE },
	{ "a flush with data", IB_WR_FLUSH, ONLY, 8, 8, ALONE },
	{ "a flush without FIRST", IB_WR_FLUSH, LAST, 0, 8, ALONE },
	{ "a last packet, more is left", IB_WR_SEND, ONLY, 64, 65, ALONE },
	{ "a last packet, less is left", IB_WR_SEND, ONLY, 64, 63, ALONE },
	{ "a last packet of a write, more is left", IB_WR_RDMA_WRITE, ONLY, 64, 65, ALONE },
	{ "a short first packet", IB_WR_SEND, FIRST, 64, 100, ALONE },
	{ "a first packet with all that is left", IB_WR_RDMA_WRITE, FIRST, PACKET, PACKET, ALONE },
	{ "a middle packet without a first one", IB_WR_SEND, 0, PACKET, LONG, ALONE },
	{ "a last packet without a first one", IB_WR_RDMA_WRITE, LAST, 64, 64, ALONE },
	{ "a last packet with immediate data without a first one", IB_WR_RDMA_WRITE_WITH_IMM,
	  LAST, 64, 64, ALONE },
	{ "a send above 1 GiB", IB_WR_SEND, FIRST, PACKET, KEEL_MAX_MSG + 1ULL, ALONE },
	{ "a write above 1 GiB", IB_WR_RDMA_WRITE, FIRST, PACKET, KEEL_MAX_MSG + 1ULL, ALONE },
	{ "a write whose length wraps", IB_WR_RDMA_WRITE, FIRST, PACKET, U64_MAX, ALONE },
	{ "a send that asks for bytes", IB_WR_SEND, ONLY, 64, 64, 64, ALONE },
	{ "a read with data", IB_WR_RDMA_READ, ONLY, 64, 64, 64, ALONE },
	{ "a read of less than is left", IB_WR_RDMA_READ, ONLY, 0, 64, 63, ALONE },
	{ "a read of more than is left", IB_WR_RDMA_READ, ONLY, 0, 64, 65, ALONE },
	{ "a short first read", IB_WR_RDMA_READ, FIRST, 0, LONG, 64, ALONE },
	{ "a first read with all that is left", IB_WR_RDMA_READ, FIRST, 0, PACKET, PACKET, ALONE },
	{ "a read above 1 GiB", IB_WR_RDMA_READ, FIRST, 0, KEEL_MAX_MSG + 1ULL, PACKET, ALONE },
	{ "a local invalidate", IB_WR_LOCAL_INV, ONLY, ALONE },
	{ "a bind", IB_WR_BIND_MW, ONLY, ALONE },
	{ "a registration", IB_WR_REG_MR, ONLY, ALONE },
	{ "an operation without a row", IB_WR_LSO, ONLY, ALONE },
	{ "the last number of an operation", 0xff, ONLY, ALONE },
	{ "a first packet in a send", IB_WR_SEND, FIRST, PACKET, LONG, AFTER(SEND) },
	{ "another message in a send", IB_WR_SEND, ONLY, 64, 64, AFTER(SEND) },
	{ "another message in a write", IB_WR_RDMA_WRITE, ONLY, 64, 64, AFTER(RDMA_WRITE) },
	{ "a packet of another operation", IB_WR_RDMA_WRITE, LAST, 64, 64, AFTER(SEND) },
	{ "a last packet that adds immediate data", IB_WR_SEND_WITH_IMM, LAST, 64, 64,
	  AFTER(SEND) },
	{ "a short middle packet of a send", IB_WR_SEND, 0, 64, 4196, AFTER(SEND) },
	{ "a short middle packet of a write", IB_WR_RDMA_WRITE, 0, PACKET - 1, 4196,
	  AFTER(RDMA_WRITE) },
	{ "a middle packet with all that is left", IB_WR_SEND, 0, PACKET, PACKET, AFTER(SEND) },
	{ "a read in a send", IB_WR_RDMA_READ, ONLY, 0, 64, 64, AFTER(SEND) },
	{ "an atomic in a send", FAA, ONLY, 0, 8, AFTER(SEND) },
	{ "an atomic in a write", CAS, ONLY, 0, 8, AFTER(RDMA_WRITE) },
	{ "an atomic write in a send", IB_WR_ATOMIC_WRITE, ONLY, 8, 8, AFTER(SEND) },
	{ "a flush in a write", IB_WR_FLUSH, ONLY, 0, 8, AFTER(RDMA_WRITE) },
	{ "a message that grows above 1 GiB", IB_WR_SEND, 0, PACKET, KEEL_MAX_MSG - 4095ULL,
	  AFTER(SEND) },
};

KUNIT_ARRAY_PARAM_DESC(bad, bad_cases, desc);

/* The QP has failed, and its @n receive WQEs have completed, the first with @status. */
static void failed_is(struct far_host *h, int n, enum ib_event_type event, int status)
{
	struct kunit *test = h->p->test;
	struct end *b = &h->p->b;
	int i;

	pair_settle(h->p, b, n);
	KUNIT_EXPECT_EQ(test, IB_QPS_ERR, end_state(h->p, b));
	KUNIT_EXPECT_EQ(test, n, b->wcs);
	for (i = 0; i < n; i++)
		KUNIT_EXPECT_EQ(test, i ? FLUSHED : status, b->wc[i].status);
	if (event == KEEL_EVENT_NONE) {
		KUNIT_EXPECT_EQ(test, 0, b->nr_events);
		return;
	}
	KUNIT_EXPECT_EQ(test, 1, b->nr_events);
	KUNIT_EXPECT_EQ(test, event, b->events[0]);
}

/* HOST-3: a malformed packet fails the QP, and completes no receive WQE but by the flush. */
static void host_3_malformed(struct kunit *test)
{
	const struct bad_case *c = test->param_value;
	struct far_host *h = far_host_make(test, IB_QPS_RTS);
	const struct keel_frame *answer;
	struct keel_frame frame;
	u32 nr = 0;

	end_recv(h->p, &h->p->b, 5, 0, PAIR_BYTES);
	end_recv(h->p, &h->p->b, 6, 0, PAIR_BYTES);
	far_host_open(h);
	/* It does not change the memory. */
	memcpy(h->data, h->p->b.buf, PACKET);
	if (c->before != NOTHING) {
		frame = far_packet(h, 0, c->before, FIRST, PACKET, LONG);
		far_request(h, &frame);
		far_answered(h, nr++, 0, KEEL_RESULT_DONE, IB_WC_SUCCESS);
	}
	memset(h->data, 0xaa, PACKET);
	frame = far_packet(h, nr, c->opcode, c->flags, c->len, c->left);
	frame.request.bytes = cpu_to_le32(c->bytes);
	frame.request.a = cpu_to_le64(ADD);
	if (c->opcode == IB_WR_FLUSH)
		frame.request.kind = cpu_to_le16(IB_FLUSH_GLOBAL);
	far_request(h, &frame);
	answer = far_answered(h, nr, nr, KEEL_RESULT_DONE, REQ);
	KUNIT_EXPECT_EQ(test, KEEL_WHY_OPCODE, le32_to_cpu(answer->answer.why));
	KUNIT_EXPECT_EQ(test, 0, le64_to_cpu(answer->answer.word));
	failed_is(h, 2, IB_EVENT_QP_REQ_ERR, FLUSHED);
	KUNIT_EXPECT_EQ(test, -1, end_differs(&h->p->b, 0, &h->p->b, 0, PAIR_BYTES));
	/* Nothing is executed any more, and nothing kept. */
	frame = far_packet(h, nr + 1, IB_WR_RDMA_WRITE, ONLY, 64, 64);
	far_request(h, &frame);
	far_answered(h, nr + 1, nr + 1, KEEL_RESULT_NOT_READY, IB_WC_SUCCESS);
	KUNIT_EXPECT_EQ(test, nr + 2, far_host_wait(h, 0));
	KUNIT_EXPECT_EQ(test, -1, end_differs(&h->p->b, 0, &h->p->b, 0, PAIR_BYTES));
}

/* Region of a refused packet. */
enum region { ALL, CLOSED, FOREIGN };

/**
 * struct right_case - a packet that is well-formed, and refused
 * @desc: its name
 * @opcode: its operation
 * @flags: its flags
 * @len: bytes of data
 * @left: &keel_frame.request.left
 * @bytes: &keel_frame.request.bytes
 * @region: whose rkey it has
 * @off: offset of its address in the buffer
 * @status: of the answer
 * @wc: status of the receive WQE
 * @event: of the QP
 */
struct right_case {
	const char *desc;
	u8 opcode;
	u8 flags;
	u32 len;
	u64 left;
	u32 bytes;
	enum region region;
	u64 off;
	enum ib_wc_status status, wc;
	enum ib_event_type event;
};

#define REFUSED		ACCESS, FLUSHED, IB_EVENT_QP_ACCESS_ERR
#define INVALID		REQ, FLUSHED, IB_EVENT_QP_REQ_ERR

static const struct right_case right_cases[] = {
	{ "write, no right", IB_WR_RDMA_WRITE, ONLY, 64, 64, 0, CLOSED, 0, REFUSED },
	{ "read, no right", IB_WR_RDMA_READ, ONLY, 0, 64, 64, CLOSED, 0, REFUSED },
	{ "atomic, no right", FAA, ONLY, 0, 8, 0, CLOSED, 0, REFUSED },
	{ "atomic write, no right", IB_WR_ATOMIC_WRITE, ONLY, 8, 8, 0, CLOSED, 0, REFUSED },
	{ "write, no key", IB_WR_RDMA_WRITE, ONLY, 64, 64, 0, FOREIGN, 0, REFUSED },
	{ "write with immediate data, no right", IB_WR_RDMA_WRITE_WITH_IMM, ONLY, 64, 64, 0,
	  CLOSED, 0, ACCESS, ACCESS, KEEL_EVENT_NONE },
	{ "write, one byte too far", IB_WR_RDMA_WRITE, ONLY, 64, 64, 0, ALL, PAIR_BYTES - 63,
	  REFUSED },
	{ "read, one byte too far", IB_WR_RDMA_READ, ONLY, 0, 64, 64, ALL, PAIR_BYTES - 63,
	  REFUSED },
	{ "long write, one byte too long", IB_WR_RDMA_WRITE, FIRST, PACKET, PAIR_BYTES + 1, 0,
	  ALL, 0, REFUSED },
	{ "long write with immediate data, too long", IB_WR_RDMA_WRITE_WITH_IMM, FIRST, PACKET,
	  PAIR_BYTES + 1, 0, ALL, 0, REFUSED },
	{ "long read, one byte too long", IB_WR_RDMA_READ, FIRST, 0, PAIR_BYTES + 1, PACKET,
	  ALL, 0, REFUSED },
	{ "write of 1 GiB", IB_WR_RDMA_WRITE, FIRST, PACKET, KEEL_MAX_MSG, 0, ALL, 0, REFUSED },
	{ "read of 1 GiB", IB_WR_RDMA_READ, FIRST, 0, KEEL_MAX_MSG, PACKET, ALL, 0, REFUSED },
	{ "atomic, not aligned", CAS, ONLY, 0, 8, 0, ALL, 4, INVALID },
	{ "send, too long", IB_WR_SEND, FIRST, PACKET, PAIR_BYTES + 1, 0, ALL, 0, REQ, LOC_LEN,
	  KEEL_EVENT_NONE },
	{ "send of 1 GiB", IB_WR_SEND, FIRST, PACKET, KEEL_MAX_MSG, 0, ALL, 0, REQ, LOC_LEN,
	  KEEL_EVENT_NONE },
};

KUNIT_ARRAY_PARAM_DESC(right, right_cases, desc);

/* HOST-1: a request is refused as on one host, and changes no byte. */
static void host_1_refused(struct kunit *test)
{
	const struct right_case *c = test->param_value;
	struct far_host *h = far_host_make(test, IB_QPS_RTS);
	struct end *b = &h->p->b;
	struct keel_frame frame = far_packet(h, 0, c->opcode, c->flags, c->len, c->left);

	end_recv(h->p, b, 5, 0, PAIR_BYTES);
	frame.request.bytes = cpu_to_le32(c->bytes);
	frame.request.a = cpu_to_le64(ADD);
	frame.request.addr = cpu_to_le64((uintptr_t)b->buf + c->off);
	if (c->region != ALL)
		frame.request.rkey = cpu_to_le32(c->region == CLOSED ? h->p->closed->rkey :
								       h->p->foreign->rkey);
	far_host_open(h);
	far_request(h, &frame);
	far_answered(h, 0, 0, KEEL_RESULT_DONE, c->status);
	/* No byte that the packet had room for comes back. */
	KUNIT_EXPECT_EQ(test, 0, le64_to_cpu(h->sent[0]->frame->answer.word));
	failed_is(h, 1, c->event, c->wc);
	KUNIT_EXPECT_EQ(test, -1, end_differs(b, 0, b, 0, PAIR_BYTES));
}

/* Send packet @nr of a message of LONG bytes, with the bytes 0x10 + @nr. */
static void long_packet(struct far_host *h, u32 nr, u8 opcode, u8 flags)
{
	u32 len = nr == 2 ? LONG - 2 * PACKET : PACKET;
	struct keel_frame frame;

	frame = far_packet(h, nr, opcode, flags, len, LONG - nr * PACKET);
	le64_add_cpu(&frame.request.addr, nr * PACKET);
	frame.request.imm = cpu_to_le32(opcode == IB_WR_SEND_WITH_INV ? h->p->closed->rkey : IMM);
	memset(h->data, 0x10 + nr, PACKET);
	far_request(h, &frame);
	far_answered(h, nr, nr, KEEL_RESULT_DONE, IB_WC_SUCCESS);
}

/**
 * struct message_case - a message of three packets
 * @desc: its name
 * @opcode: its operation
 * @recvs: number of receive WQEs that it takes
 * @flags: flags of their completion
 */
struct message_case {
	const char *desc;
	u8 opcode;
	int recvs;
	int flags;
};

static const struct message_case message_cases[] = {
	{ "send", IB_WR_SEND, 1 },
	{ "send with immediate data", IB_WR_SEND_WITH_IMM, 1, IB_WC_WITH_IMM },
	{ "send with invalidate", IB_WR_SEND_WITH_INV, 1, IB_WC_WITH_INVALIDATE },
	{ "write", IB_WR_RDMA_WRITE, 0 },
	{ "write with immediate data", IB_WR_RDMA_WRITE_WITH_IMM, 1, IB_WC_WITH_IMM },
};

KUNIT_ARRAY_PARAM_DESC(message, message_cases, desc);

/* HOST-1: the packets of a message make one message: the last one has all effects. */
static void host_1_message(struct kunit *test)
{
	const struct message_case *c = test->param_value;
	struct far_host *h = far_host_make(test, IB_QPS_RTS);
	struct end *b = &h->p->b;

	end_recv(h->p, b, 5, 0, PAIR_BYTES);
	end_recv(h->p, b, 6, 0, PAIR_BYTES);
	far_host_open(h);
	long_packet(h, 0, c->opcode, FIRST);
	long_packet(h, 1, c->opcode, 0);
	end_collect(b);
	KUNIT_EXPECT_EQ(test, 0, b->wcs);
	long_packet(h, 2, c->opcode, LAST);
	pair_settle(h->p, b, c->recvs);
	KUNIT_EXPECT_EQ(test, c->recvs, b->wcs);
	KUNIT_EXPECT_EQ(test, IB_QPS_RTS, end_state(h->p, b));
	KUNIT_EXPECT_NULL(test, memchr_inv(b->buf, 0x10, PACKET));
	KUNIT_EXPECT_NULL(test, memchr_inv(b->buf + PACKET, 0x11, PACKET));
	KUNIT_EXPECT_NULL(test, memchr_inv(b->buf + 2 * PACKET, 0x12, LONG - 2 * PACKET));
	KUNIT_EXPECT_EQ(test, -1, end_differs(b, LONG, b, LONG, PAIR_BYTES - LONG));
	if (!c->recvs)
		return;
	KUNIT_EXPECT_EQ(test, 5, b->wc[0].wr_id);
	KUNIT_EXPECT_EQ(test, IB_WC_SUCCESS, b->wc[0].status);
	KUNIT_EXPECT_EQ(test, LONG, b->wc[0].byte_len);
	KUNIT_EXPECT_EQ(test, c->flags, b->wc[0].wc_flags);
	if (c->flags & IB_WC_WITH_IMM)
		KUNIT_EXPECT_EQ(test, IMM, (__force u32)b->wc[0].ex.imm_data);
}

/* HOST-1: the answers to a long read have its bytes. */
static void host_1_read(struct kunit *test)
{
	struct far_host *h = far_host_make(test, IB_QPS_RTS);
	struct end *b = &h->p->b;
	struct keel_frame frame;
	u32 nr, len;

	far_host_open(h);
	for (nr = 0; nr < 3; nr++) {
		len = min_t(u32, LONG - nr * PACKET, PACKET);
		frame = far_packet(h, nr, IB_WR_RDMA_READ,
				   (nr ? 0 : FIRST) | (nr == 2 ? LAST : 0), 0, LONG - nr * PACKET);
		frame.request.bytes = cpu_to_le32(len);
		le64_add_cpu(&frame.request.addr, 1 + nr * PACKET);
		far_request(h, &frame);
		far_answered(h, nr, nr, KEEL_RESULT_DONE, IB_WC_SUCCESS);
		KUNIT_EXPECT_EQ(test, len, le32_to_cpu(h->sent[nr]->frame->len));
		KUNIT_EXPECT_MEMEQ(test, h->sent[nr]->data, b->buf + 1 + nr * PACKET, len);
	}
	KUNIT_EXPECT_EQ(test, -1, end_differs(b, 0, b, 0, PAIR_BYTES));
}

/* HOST-1: atomics change the memory, and the answer has the original value. */
static void host_1_atomics(struct kunit *test)
{
	struct far_host *h = far_host_make(test, IB_QPS_RTS);
	u64 *word = (u64 *)h->p->b.buf, value = WORD * 2;
	struct keel_frame frame;

	*word = WORD;
	far_host_open(h);
	frame = far_packet(h, 0, FAA, ONLY, 0, 8);
	frame.request.a = cpu_to_le64(ADD);
	far_request(h, &frame);
	far_answered(h, 0, 0, KEEL_RESULT_DONE, IB_WC_SUCCESS);
	KUNIT_EXPECT_EQ(test, WORD, le64_to_cpu(h->sent[0]->frame->answer.word));
	KUNIT_EXPECT_EQ(test, WORD + ADD, *word);
	frame = far_packet(h, 1, CAS, ONLY, 0, 8);
	frame.request.a = cpu_to_le64(WORD + ADD);
	frame.request.b = cpu_to_le64(WORD);
	far_request(h, &frame);
	far_answered(h, 1, 1, KEEL_RESULT_DONE, IB_WC_SUCCESS);
	KUNIT_EXPECT_EQ(test, WORD + ADD, le64_to_cpu(h->sent[1]->frame->answer.word));
	KUNIT_EXPECT_EQ(test, WORD, *word);
	memcpy(h->data, &value, sizeof(value));
	frame = far_packet(h, 2, IB_WR_ATOMIC_WRITE, ONLY, 8, 8);
	far_request(h, &frame);
	far_answered(h, 2, 2, KEEL_RESULT_DONE, IB_WC_SUCCESS);
	KUNIT_EXPECT_EQ(test, 0, le64_to_cpu(h->sent[2]->frame->answer.word));
	KUNIT_EXPECT_EQ(test, value, *word);
}

/* HOST-1: without a receive WQE, the packet comes again, and all that follow it. */
static void host_1_rnr(struct kunit *test)
{
	struct far_host *h = far_host_make(test, IB_QPS_RTS);
	struct keel_frame first = far_packet(h, 0, IB_WR_SEND, ONLY, 64, 64);
	struct keel_frame second = far_packet(h, 1, IB_WR_SEND, ONLY, 65, 65);

	far_request(h, &first);
	KUNIT_EXPECT_EQ(test, 1, far_requests_n(h));
	far_host_open(h);
	far_answered(h, 0, 0, KEEL_RESULT_RNR, IB_WC_SUCCESS);
	KUNIT_EXPECT_EQ(test, 1, h->sent[0]->frame->answer.rnr);
	far_request(h, &second);
	KUNIT_EXPECT_EQ(test, 1, far_host_wait(h, 1));
	end_recv(h->p, &h->p->b, 5, 0, PACKET);
	end_recv(h->p, &h->p->b, 6, 0, PACKET);
	far_request(h, &first);
	far_request(h, &second);
	far_answered(h, 1, 0, KEEL_RESULT_DONE, IB_WC_SUCCESS);
	far_answered(h, 2, 1, KEEL_RESULT_DONE, IB_WC_SUCCESS);
	pair_settle(h->p, &h->p->b, 2);
	KUNIT_EXPECT_EQ(test, 64, h->p->b.wc[0].byte_len);
	KUNIT_EXPECT_EQ(test, 65, h->p->b.wc[1].byte_len);
}

static struct kunit_case far_cases[] = {
	KUNIT_CASE_PARAM(host_3_malformed, bad_gen_params),
	KUNIT_CASE_PARAM(host_1_refused, right_gen_params),
	KUNIT_CASE_PARAM(host_1_message, message_gen_params),
	KUNIT_CASE(host_1_read),
	KUNIT_CASE(host_1_atomics),
	KUNIT_CASE(host_1_rnr),
	{}
};

static struct kunit_suite far_suite = {
	.name = "keel_far",
	.suite_init = pair_suite_init,
	.suite_exit = pair_suite_exit,
	.init = pair_init,
	.exit = pair_exit,
	.test_cases = far_cases,
};
kunit_test_suite(far_suite);
