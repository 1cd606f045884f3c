// SPDX-License-Identifier: GPL-2.0
/*
 * Frames that another host has sent: each type, with one member wrong at a time. And numbers
 * of packets.
 */
#include <kunit/test.h>
#include <linux/slab.h>
#include <rdma/ib_verbs.h>

#include "keel_far.h"

#define HEAD		((u32)sizeof(struct keel_frame))
/* Byte @_n of a member. All members are little-endian. */
#define AT(_member, _n)	(offsetof(struct keel_frame, _member) + (_n))
#define TYPE		AT(type, 0)

/**
 * struct frame_case - a frame, of which one byte may differ from those of a valid frame
 * @desc: its name
 * @type: enum keel_frame_type
 * @valid: the frame is valid
 * @at: offset of the byte
 * @value: its value; with 0 for both, no byte differs
 */
struct frame_case {
	const char *desc;
	u8 type;
	bool valid;
	u32 at;
	u8 value;
};

#define REQUEST		KEEL_FRAME_REQUEST
#define ANSWER		KEEL_FRAME_ANSWER
#define CREDIT		KEEL_FRAME_CREDIT
#define DATAGRAM	KEEL_FRAME_DATAGRAM
#define CHUNKS		KEEL_FRAME_CHUNKS

static const struct frame_case frame_cases[] = {
	{ "request", REQUEST, true },
	{ "request, no flags", REQUEST, true, AT(flags, 0), 0 },
	{ "HOST-3: request, unknown flag", REQUEST, false, AT(flags, 0), 0x8 },
	{ "request, others are not answered", REQUEST, true, AT(flags, 0), KEEL_FRAME_F_BUSY },
	{ "HOST-3: request, next flag", REQUEST, false, AT(flags, 0), 0x20 },
	{ "HOST-3: request, last flag", REQUEST, false, AT(flags, 0), 0x80 },
	{ "HOST-3: request, to", REQUEST, false, AT(to, 3), 1 },
	{ "HOST-3: request, highest bit of to", REQUEST, false, AT(to, 3), 0x80 },
	{ "HOST-3: request, from", REQUEST, false, AT(from, 3), 1 },
	{ "HOST-3: request, highest bit of from", REQUEST, false, AT(from, 3), 0x80 },
	{ "HOST-3: request, psn", REQUEST, false, AT(psn, 3), 1 },
	{ "HOST-3: request, highest bit of psn", REQUEST, false, AT(psn, 3), 0x80 },
	{ "request, another SRQ", REQUEST, true, AT(srqn, 0), 1 },
	{ "HOST-3: request, RC with an SRQ", REQUEST, false, AT(request.transport, 0),
	  KEEL_TRANSPORT_RC },
	{ "HOST-3: request, UC with an SRQ", REQUEST, false, AT(request.transport, 0),
	  KEEL_TRANSPORT_UC },
	{ "HOST-3: request, transport 3", REQUEST, false, AT(request.transport, 0), 3 },
	{ "HOST-3: request, transport 255", REQUEST, false, AT(request.transport, 0), 255 },
	{ "request, fewer bytes", REQUEST, true, AT(request.bytes, 2), 1 },
	{ "HOST-3: request, one byte too many", REQUEST, false, AT(request.bytes, 0), 1 },
	{ "HOST-3: request, 256 KiB and 256 bytes", REQUEST, false, AT(request.bytes, 1), 1 },
	{ "HOST-3: request, chunk without data", REQUEST, false, AT(chunk, 0), 1 },
	{ "HOST-3: request, reserved", REQUEST, false, AT(reserved, 0), 1 },
	{ "HOST-3: request, last byte of reserved", REQUEST, false, AT(reserved, 3), 0x80 },
	{ "request, other chunks that were read", REQUEST, true, AT(freed, 0), 0x55 },
	{ "HOST-3: request, 2^31 bytes", REQUEST, false, AT(request.bytes, 3), 0x80 },
	{ "request, opcode", REQUEST, true, AT(request.opcode, 0), 0 },
	{ "answer", ANSWER, true },
	{ "answer, RNR", ANSWER, true, AT(answer.result, 0), KEEL_RESULT_RNR },
	{ "answer, not ready", ANSWER, true, AT(answer.result, 0), KEEL_RESULT_NOT_READY },
	{ "HOST-3: answer, result 4", ANSWER, false, AT(answer.result, 0), 4 },
	{ "HOST-3: answer, result 0", ANSWER, false, AT(answer.result, 0), 0 },
	{ "HOST-3: answer, result 255", ANSWER, false, AT(answer.result, 0), 255 },
	{ "answer, others are not answered", ANSWER, true, AT(flags, 0), KEEL_FRAME_F_BUSY },
	{ "HOST-3: answer, flags", ANSWER, false, AT(flags, 0), KEEL_FRAME_F_FIRST },
	{ "HOST-3: answer, to", ANSWER, false, AT(to, 3), 1 },
	{ "HOST-3: answer, from", ANSWER, false, AT(from, 3), 1 },
	{ "HOST-3: answer, psn", ANSWER, false, AT(psn, 3), 1 },
	{ "HOST-3: answer, SRQ", ANSWER, false, AT(srqn, 2), 1 },
	{ "HOST-3: answer, reserved", ANSWER, false, AT(reserved, 2), 1 },
	{ "answer, no long packets", ANSWER, true, AT(answer.chunks, 0), 0 },
	{ "HOST-3: answer, more long packets than chunks", ANSWER, false, AT(answer.chunks, 0),
	  KEEL_CHUNKS + 1 },
	{ "HOST-3: answer, 255 long packets", ANSWER, false, AT(answer.chunks, 0), 255 },
	{ "HOST-3: answer, first unused byte", ANSWER, false, AT(answer.unused, 0), 1 },
	{ "HOST-3: answer, last unused byte", ANSWER, false, AT(answer.unused, 31), 1 },
	{ "answer, any status", ANSWER, true, AT(answer.status, 0), 0 },
	{ "datagram", DATAGRAM, true },
	{ "datagram, no flags", DATAGRAM, true, AT(flags, 0), 0 },
	{ "datagram, with immediate data", DATAGRAM, true, AT(datagram.opcode, 0),
	  IB_WR_SEND_WITH_IMM },
	{ "HOST-3: datagram, RDMA write", DATAGRAM, false, AT(datagram.opcode, 0),
	  IB_WR_RDMA_WRITE },
	{ "HOST-3: datagram, opcode 255", DATAGRAM, false, AT(datagram.opcode, 0), 255 },
	{ "HOST-3: datagram, flag of a packet", DATAGRAM, false, AT(flags, 0),
	  KEEL_FRAME_F_FIRST },
	{ "HOST-3: datagram, other flag of a packet", DATAGRAM, false, AT(flags, 0),
	  KEEL_FRAME_F_LAST },
	{ "HOST-3: datagram, unknown flag", DATAGRAM, false, AT(flags, 0), 0x10 },
	{ "HOST-3: datagram, to", DATAGRAM, false, AT(to, 3), 1 },
	{ "HOST-3: datagram, from", DATAGRAM, false, AT(from, 3), 1 },
	{ "HOST-3: datagram, psn", DATAGRAM, false, AT(psn, 3), 1 },
	{ "HOST-3: datagram, SRQ", DATAGRAM, false, AT(srqn, 0), 1 },
	{ "HOST-3: datagram, reserved", DATAGRAM, false, AT(datagram.reserved, 0), 1 },
	{ "HOST-3: datagram, first unused byte", DATAGRAM, false, AT(datagram.unused, 0), 1 },
	{ "HOST-3: datagram, last unused byte", DATAGRAM, false, AT(datagram.unused, 31), 1 },
	{ "HOST-3: datagram of type 8", DATAGRAM, false, TYPE, KEEL_FRAME_CHUNKS + 1 },
	{ "HOST-3: datagram, chunk", DATAGRAM, false, AT(chunk, 0), 1 },
	{ "credit", CREDIT, true },
	{ "credit, other credits", CREDIT, true, AT(credits, 0), 7 },
	{ "ask", KEEL_FRAME_ASK, true },
	{ "alive", KEEL_FRAME_ALIVE, true },
	{ "chunks", CHUNKS, true },
	{ "HOST-3: chunks, flags", CHUNKS, false, AT(flags, 0), 1 },
	{ "HOST-3: chunks, to", CHUNKS, false, AT(to, 0), 1 },
	{ "HOST-3: chunks, from", CHUNKS, false, AT(from, 0), 1 },
	{ "HOST-3: chunks, psn", CHUNKS, false, AT(psn, 0), 1 },
	{ "HOST-3: chunks, gen", CHUNKS, false, AT(gen, 7), 1 },
	{ "HOST-3: chunks, SRQ", CHUNKS, false, AT(srqn, 0), 1 },
	{ "HOST-3: chunks, chunk", CHUNKS, false, AT(chunk, 0), 1 },
	{ "HOST-3: chunks, reserved", CHUNKS, false, AT(reserved, 0), 1 },
	{ "HOST-3: chunks, first unused byte", CHUNKS, false, AT(chunks.unused, 0), 1 },
	{ "HOST-3: chunks, last unused byte", CHUNKS, false, AT(chunks.unused, 35), 1 },
	{ "HOST-3: type 0", 0, false },
	{ "HOST-3: request of type 8", REQUEST, false, TYPE, KEEL_FRAME_CHUNKS + 1 },
	{ "HOST-3: answer of type 255", ANSWER, false, TYPE, 255 },
	{ "HOST-3: credit of type 8", CREDIT, false, TYPE, KEEL_FRAME_CHUNKS + 1 },
	{ "HOST-3: credit of type 6", CREDIT, false, TYPE, DATAGRAM },
	{ "HOST-3: credit of type 0x43", CREDIT, false, TYPE, 0x43 },
	{ "HOST-3: request that is an answer", REQUEST, false, TYPE, ANSWER },
	{ "HOST-3: answer that is a credit", ANSWER, false, TYPE, CREDIT },
};

KUNIT_ARRAY_PARAM_DESC(frame, frame_cases, desc);

/* All bits that a frame may have are set. */
static struct keel_frame frame_of(u8 type, u32 len)
{
	struct keel_frame frame = {
		.type = type,
		.credits = cpu_to_le16(U16_MAX),
		.len = cpu_to_le32(len),
		.freed = cpu_to_le16(U16_MAX),
	};

	if (type == CHUNKS) {
		frame.chunks.addr = cpu_to_le64(U64_MAX);
		frame.chunks.rkey = cpu_to_le32(U32_MAX);
	}
	if (type != REQUEST && type != ANSWER && type != DATAGRAM)
		return frame;
	frame.to = cpu_to_le32(KEEL_PSN_MASK);
	frame.from = cpu_to_le32(KEEL_PSN_MASK);
	frame.psn = cpu_to_le32(KEEL_PSN_MASK);
	frame.gen = cpu_to_le64(U64_MAX);
	memset(frame.rest, 0xff, sizeof(frame.rest));
	if (type == REQUEST) {
		frame.flags = KEEL_FRAME_F_REQUEST;
		frame.srqn = cpu_to_le32(U32_MAX);
		frame.request.transport = KEEL_TRANSPORT_XRC;
		frame.request.bytes = cpu_to_le32(KEEL_CHUNK_DATA);
	} else if (type == DATAGRAM) {
		frame.flags = KEEL_FRAME_F_DATAGRAM;
		frame.datagram.opcode = IB_WR_SEND;
		frame.datagram.reserved = 0;
		memset(frame.datagram.unused, 0, sizeof(frame.datagram.unused));
	} else {
		frame.answer.result = KEEL_RESULT_DONE;
		frame.answer.chunks = KEEL_CHUNKS;
		memset(frame.answer.unused, 0, sizeof(frame.answer.unused));
	}
	return frame;
}

static void frame_members(struct kunit *test)
{
	const struct frame_case *c = test->param_value;
	struct keel_frame frame = frame_of(c->type, 0);

	if (c->at || c->value)
		((u8 *)&frame)[c->at] = c->value;
	KUNIT_EXPECT_EQ(test, c->valid, keel_frame_is_valid(&frame, HEAD));
}

/* HOST-3: nothing but type, credits, cookie and freed is set in a frame that is for no QP. */
static void host_3_frame_control(struct kunit *test)
{
	struct keel_frame frame;
	u32 type, at, bit;

	for (type = CREDIT; type <= KEEL_FRAME_ALIVE; type++) {
		for (at = AT(len, 0); at < HEAD; at++) {
			/* The connection has compared it. */
			if (at == AT(cookie, 0))
				at = AT(gen, 0);
			if (at == AT(freed, 0))
				at = AT(reserved, 0);
			for (bit = 1; bit < 0x100; bit <<= 1) {
				frame = frame_of(type, 0);
				((u8 *)&frame)[at] = bit;
				KUNIT_EXPECT_FALSE_MSG(test, keel_frame_is_valid(&frame, HEAD),
						       "type %u, byte %u", type, at);
			}
		}
		frame = frame_of(type, 0);
		frame.flags = KEEL_FRAME_F_FIRST;
		KUNIT_EXPECT_FALSE(test, keel_frame_is_valid(&frame, HEAD));
		/* Its length is that of the data, and it has data. */
		frame = frame_of(type, 8);
		KUNIT_EXPECT_FALSE(test, keel_frame_is_valid(&frame, HEAD + 8));
	}
}

struct len_case {
	const char *desc;
	u32 len, bytes;
	bool valid;
};

static const struct len_case len_cases[] = {
	{ "no data", 0, HEAD, true },
	{ "one byte", 1, HEAD + 1, true },
	{ "most data", KEEL_FRAME_DATA, HEAD + KEEL_FRAME_DATA, true },
	{ "one byte more than there may be", KEEL_FRAME_DATA + 1, HEAD + KEEL_FRAME_DATA + 1 },
	{ "nothing", 0, 0 },
	{ "one byte of the header is missing", 0, HEAD - 1 },
	{ "length that wraps to no data", U32_MAX, HEAD - 1 },
	{ "length that wraps to nothing", 0 - HEAD, 0 },
	{ "one byte is missing", 100, HEAD + 99 },
	{ "one byte is too much", 100, HEAD + 101 },
	{ "no length", 0, HEAD + 100 },
	{ "no data for the length", 100, HEAD },
	{ "longest length", U32_MAX, HEAD + KEEL_FRAME_DATA },
	{ "length that is right in 16 bits", 0x10000 + 100, HEAD + 100 },
};

KUNIT_ARRAY_PARAM_DESC(len, len_cases, desc);

/* HOST-3: the length is that of what was received. */
static void host_3_frame_len(struct kunit *test)
{
	const struct len_case *c = test->param_value;
	struct keel_frame frame = frame_of(REQUEST, c->len);

	KUNIT_EXPECT_EQ(test, c->valid, keel_frame_is_valid(&frame, c->bytes));
	frame = frame_of(ANSWER, c->len);
	KUNIT_EXPECT_EQ(test, c->valid, keel_frame_is_valid(&frame, c->bytes));
}

struct chunk_case {
	const char *desc;
	u8 type;
	u16 chunk;
	u32 len, behind;
	bool valid;
};

static const struct chunk_case chunk_cases[] = {
	{ "request in the first chunk", REQUEST, 1, KEEL_CHUNK_DATA, 0, true },
	{ "request in the last one", REQUEST, KEEL_CHUNKS, KEEL_FRAME_DATA + 1, 0, true },
	{ "answer in a chunk", ANSWER, 3, 5000, 0, true },
	{ "HOST-3: a chunk that does not exist", REQUEST, KEEL_CHUNKS + 1, 5000, 0 },
	{ "HOST-3: chunk of 16 bits", ANSWER, 0x101, 5000, 0 },
	{ "HOST-3: more than a chunk", REQUEST, 1, KEEL_CHUNK_DATA + 1, 0 },
	{ "HOST-3: as much as a frame has", REQUEST, 1, KEEL_FRAME_DATA, 0 },
	{ "HOST-3: nothing in a chunk", ANSWER, 1, 0, 0 },
	{ "HOST-3: longest length", REQUEST, 1, U32_MAX, 0 },
	{ "HOST-3: long, without a chunk", REQUEST, 0, 5000, 0 },
	{ "HOST-3: data in both places", REQUEST, 1, 5000, 5000 },
	{ "HOST-3: one byte behind the header", ANSWER, 1, 5000, 1 },
	{ "HOST-3: datagram in a chunk", DATAGRAM, 1, 5000, 0 },
	{ "HOST-3: credit in a chunk", CREDIT, 1, 5000, 0 },
};

KUNIT_ARRAY_PARAM_DESC(chunk, chunk_cases, desc);

/* HOST-3: data is in a chunk if it is too long for a frame, and only then. */
static void host_3_frame_chunk(struct kunit *test)
{
	const struct chunk_case *c = test->param_value;
	struct keel_frame frame = frame_of(c->type, c->len);

	frame.chunk = cpu_to_le16(c->chunk);
	KUNIT_EXPECT_EQ(test, c->valid, keel_frame_is_valid(&frame, HEAD + c->behind));
}

/* HOST-2: numbers of packets wrap after 2^24. */
static void host_2_psn_diff(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, 0, keel_psn_diff(0, 0));
	KUNIT_EXPECT_EQ(test, 0, keel_psn_diff(KEEL_PSN_MASK, KEEL_PSN_MASK));
	KUNIT_EXPECT_EQ(test, 1, keel_psn_diff(1, 0));
	KUNIT_EXPECT_EQ(test, -1, keel_psn_diff(0, 1));
	KUNIT_EXPECT_EQ(test, 1, keel_psn_diff(0, KEEL_PSN_MASK));
	KUNIT_EXPECT_EQ(test, -1, keel_psn_diff(KEEL_PSN_MASK, 0));
	KUNIT_EXPECT_EQ(test, 8, keel_psn_diff(3, KEEL_PSN_MASK - 4));
	KUNIT_EXPECT_EQ(test, -8, keel_psn_diff(KEEL_PSN_MASK - 4, 3));
	KUNIT_EXPECT_EQ(test, 0x7fffff, keel_psn_diff(0x7fffff, 0));
	KUNIT_EXPECT_EQ(test, 0x7fffff, keel_psn_diff(0x7ffffe, KEEL_PSN_MASK));
	KUNIT_EXPECT_EQ(test, -0x800000, keel_psn_diff(0x800000, 0));
}

struct executed_case {
	const char *desc;
	u32 done, executed, psn;
	bool was;
};

static const struct executed_case executed_cases[] = {
	{ "nothing was", 100, 0, 99, false },
	{ "nothing was, the next one", 100, 0, 100, false },
	{ "the next one", 100, 3, 100, false },
	{ "a later one", 100, 3, 101, false },
	{ "the last one", 100, 3, 99, true },
	{ "the first one", 100, 3, 97, true },
	{ "one before the first one", 100, 3, 96, false },
	{ "oldest of the window", 100, KEEL_FAR_WINDOW, 100 - KEEL_FAR_WINDOW, true },
	{ "older than the window", 100, KEEL_FAR_WINDOW, 99 - KEEL_FAR_WINDOW, false },
	{ "the last one, wrapped", 0, 1, KEEL_PSN_MASK, true },
	{ "one before the first one, wrapped", 0, 1, KEEL_PSN_MASK - 1, false },
	{ "the first one, wrapped", 2, 4, KEEL_PSN_MASK - 1, true },
	{ "a later one, wrapped", KEEL_PSN_MASK, 4, 0, false },
	{ "half of the numbers before", 0, KEEL_FAR_WINDOW, 0x800000, false },
	{ "nearly half of them", 0, KEEL_FAR_WINDOW, 0x800001, false },
};

KUNIT_ARRAY_PARAM_DESC(executed, executed_cases, desc);

/* HOST-2: a packet counts as executed only if this life of the QP has executed it. */
static void host_2_was_executed(struct kunit *test)
{
	const struct executed_case *c = test->param_value;
	struct keel_far *far = kunit_kzalloc(test, sizeof(*far), GFP_KERNEL);
	bool was;

	KUNIT_ASSERT_NOT_NULL(test, far);
	spin_lock_init(&far->lock);
	scoped_guard(spinlock, &far->lock) {
		far->done = c->done;
		far->executed = c->executed;
		was = keel_far_was_executed(far, c->psn);
	}
	KUNIT_EXPECT_EQ(test, c->was, was);
}

static struct kunit_case frame_test_cases[] = {
	KUNIT_CASE_PARAM(frame_members, frame_gen_params),
	KUNIT_CASE(host_3_frame_control),
	KUNIT_CASE_PARAM(host_3_frame_len, len_gen_params),
	KUNIT_CASE_PARAM(host_3_frame_chunk, chunk_gen_params),
	KUNIT_CASE(host_2_psn_diff),
	KUNIT_CASE_PARAM(host_2_was_executed, executed_gen_params),
	{}
};

static struct kunit_suite frame_suite = {
	.name = "keel_frame",
	.test_cases = frame_test_cases,
};
kunit_test_suite(frame_suite);
