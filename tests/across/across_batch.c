// SPDX-License-Identifier: GPL-2.0
/*
 * Batches of a host that is not keel: several frames in one message, right, and wrong.
 * kunit/batch_test.c has those that keel sends.
 */
#include "t.h"
#include "wrong.h"

/* The window of a QP. */
#define PARTS	20
#define ALIGNED(n)	(((n) + 7) & ~7UL)

static char batch[FRAME_ROOM];
static size_t batch_len;

void t_end(void)
{
	stranger_net_down();
	hosts_down();
}

/* Begin with no frame. */
static void begin(void)
{
	batch_len = 0;
	memset(batch, 0, sizeof(batch));
}

/* Put a frame behind the others. */
static void put(struct frame frame, const void *data, uint32_t len)
{
	frame.len = len;
	CHECK(batch_len + FRAME_HEAD + ALIGNED(len) <= FRAME_DATA);
	memcpy(batch + batch_len, &frame, FRAME_HEAD);
	memcpy(batch + batch_len + FRAME_HEAD, data, len);
	batch_len += FRAME_HEAD + ALIGNED(len);
}

/* A write of @len bytes, the packet @nr. */
static struct frame write_of(uint32_t nr, uint32_t len)
{
	struct frame frame = wrong_request(IBV_WR_RDMA_WRITE, FRAME_RC);

	frame.psn = PSN + nr;
	frame.request.left = len;
	frame.request.addr += 64 * nr;
	return frame;
}

static void send(void)
{
	struct frame frame = { .type = FRAME_BATCH };

	CHECK(stranger_send(&wrong_stranger, &frame, batch, batch_len));
}

/* Lengths that are no multiples of that of the alignment among them. */
static uint32_t len_of(uint32_t nr)
{
	return nr % 3 ? 13 + nr : 8;
}

TEST_SLOW(parts, "HOST-2", "each frame of a batch is executed, in their order, and answered", 60)
{
	struct frame answer;
	char data[64];
	uint32_t i;

	wrong_begin(end_new);
	wrong_reset();
	wrong_link();
	begin();
	for (i = 0; i < PARTS; i++) {
		memset(data, 'a' + i, sizeof(data));
		put(write_of(i, len_of(i)), data, len_of(i));
	}
	send();
	for (i = 0; i < PARTS; i++) {
		if (!stranger_get(&wrong_stranger, FRAME_ANSWER, &answer, LONG_MS))
			FAIL("no answer to frame %u", i);
		CHECK_EQ(answer.psn, PSN + i);
		CHECK_EQ(answer.answer.result, FRAME_DONE);
		CHECK_EQ(answer.answer.status, IBV_WC_SUCCESS);
		memset(data, 'a' + i, sizeof(data));
		CHECK_MEM(wrong_victim.mem + 64 * i, data, len_of(i));
		CHECK_EQ(wrong_victim.mem[64 * i + len_of(i)], 0);
	}
	wrong_end();
}

/* Members of the header of a batch. */
static const struct wrong batch_cases[] = {
	{ "nothing", MEMBER(type), FRAME_BATCH, SUCCESS },
	{ "flags", MEMBER(flags), 1, ENDS },
	{ "a byte less", MEMBER(len), 2 * FRAME_HEAD + 16 - 1, ENDS },
	{ "no frame", MEMBER(len), 0, ENDS },
	{ "to", MEMBER(to), 1, ENDS },
	{ "from", MEMBER(from), 1, ENDS },
	{ "psn", MEMBER(psn), 1, ENDS },
	{ "srqn", MEMBER(srqn), 1, ENDS },
	{ "cookie", MEMBER(cookie), 1, DROPPED },
	{ "gen", MEMBER(gen), 1, ENDS },
	{ "chunk", MEMBER(chunk), 1, ENDS },
	{ "freed", MEMBER(freed), 1, ENDS },
	{ "reserved", MEMBER(reserved), 1, ENDS },
	{ "the first other byte", BYTE(request, 0), 1, ENDS },
	{ "the last other byte", BYTE(request, 47), 1, ENDS },
};

/* Members of the second frame of two in a batch. */
static const struct wrong part_cases[] = {
	{ "nothing", MEMBER(type), FRAME_REQUEST, SUCCESS },
	{ "a batch", MEMBER(type), FRAME_BATCH, ENDS },
	{ "a question", MEMBER(type), FRAME_ASK, ENDS },
	{ "credits only", MEMBER(type), FRAME_CREDIT, ENDS },
	{ "chunks", MEMBER(type), FRAME_CHUNKS, ENDS },
	{ "a datagram to a group", MEMBER(type), FRAME_GROUP, ENDS },
	{ "unknown flags", MEMBER(flags), 0x80, ENDS },
	{ "credits", MEMBER(credits), 1, ENDS },
	{ "more bytes than there are", MEMBER(len), 9, ENDS },
	{ "all bytes that there can be", MEMBER(len), UINT32_MAX, ENDS },
	{ "a cookie", MEMBER(cookie), 1, ENDS },
	{ "a chunk", MEMBER(chunk), 1, ENDS },
	{ "freed chunks", MEMBER(freed), 1, ENDS },
	{ "reserved", MEMBER(reserved), 1, ENDS },
	{ "to more than 24 bits", BYTE(to, 3), 1, ENDS },
};

/* Two writes in a batch, of which the second is @frame when it has been sent. */
static void batch_of_two(struct frame *frame, const struct wrong *part)
{
	struct frame answer, first = write_of(0, BYTES);

	wrong_reset();
	wrong_link();
	begin();
	put(first, wrong_data, BYTES);
	*frame = write_of(1, BYTES);
	put(*frame, wrong_data, BYTES);
	if (part)
		memcpy(batch + FRAME_HEAD + BYTES + part->at, &part->value, part->width);
	memcpy(frame, batch + FRAME_HEAD + BYTES, FRAME_HEAD);
	if (!part)
		return;
	send();
	if (!stranger_get(&wrong_stranger, FRAME_ANSWER, &answer, LONG_MS) &&
	    part->effect != ENDS)
		FAIL("%s: no answer to the first frame", part->what);
}

static void check_batch(const struct wrong *w)
{
	struct frame frame, header = { .type = FRAME_BATCH };
	char bytes[FRAME_HEAD + FRAME_DATA];

	batch_of_two(&frame, NULL);
	stranger_stamp(&wrong_stranger, &header, batch_len);
	memcpy(bytes, &header, FRAME_HEAD);
	memcpy(bytes + w->at, &w->value, w->width);
	memcpy(bytes + FRAME_HEAD, batch, batch_len);
	stranger_send_raw(&wrong_stranger, bytes, FRAME_HEAD + batch_len);
	if (w->effect == SUCCESS)
		CHECK(stranger_get(&wrong_stranger, FRAME_ANSWER, &header, LONG_MS));
	wrong_effect(w, &frame);
}

TEST_SLOW(wrong, "HOST-3", "a batch with each member wrong, or with such a frame, ends the link or is dropped", 120)
{
	struct frame frame;
	size_t i;

	wrong_begin(end_new);
	for (i = 0; i < sizeof(batch_cases) / sizeof(*batch_cases); i++)
		check_batch(&batch_cases[i]);
	for (i = 0; i < sizeof(part_cases) / sizeof(*part_cases); i++) {
		batch_of_two(&frame, &part_cases[i]);
		wrong_effect(&part_cases[i], &frame);
	}
	wrong_end();
}
