// SPDX-License-Identifier: GPL-2.0
/*
 * Long packets of a host that is not keel, in chunks, which it writes to: right, and wrong.
 * across_rc.c has those of keel.
 */
#include "t.h"
#include "wrong.h"

/* Long packets that may be under way. */
#define LONGS		3
/* Bytes of a write of the victim: all its memory. */
#define WRITTEN		(4 * FRAME_CHUNK)
/* More than the window of short packets has. */
#define WORTH		(16 * FRAME_DATA)

void t_end(void)
{
	stranger_net_down();
	hosts_down();
}

static char *long_data(uint64_t seed)
{
	static char data[FRAME_CHUNK];
	size_t i;

	for (i = 0; i < sizeof(data); i += sizeof(uint64_t)) {
		uint64_t value = t_random(&seed);

		memcpy(data + i, &value, sizeof(value));
	}
	return data;
}

static struct mem part(const struct end *e, size_t at, size_t len)
{
	return (struct mem){ e->mem + at, len, e->mr->lkey };
}

/* Both sides have told where their chunks are: the victim does it because the stranger has. */
static void learn(void)
{
	int i;

	wrong_link();
	if (!wrong_stranger.chunks_rkey)
		CHECK(stranger_tell_chunks(&wrong_stranger));
	/* It has to get memory for them first. */
	for (i = 0; i < LONG_MS / 10 && !wrong_stranger.chunks_rkey; i++) {
		CHECK(stranger_asks(&wrong_stranger, LONG_MS));
		usleep(10000);
	}
	if (!wrong_stranger.chunks_rkey)
		FAIL("the victim does not tell where its chunks are");
}

/* A packet of a long write, with @len bytes of those that are left. */
static struct frame long_write(uint32_t nr, uint8_t flags, uint64_t sent, uint64_t left)
{
	struct frame frame = wrong_request(IBV_WR_RDMA_WRITE, FRAME_RC);

	frame.flags = flags;
	frame.psn = PSN + nr;
	frame.request.left = left;
	frame.request.addr += sent;
	return frame;
}

/* The answer to packet @nr, or a failure. */
static struct frame answer_to(uint32_t nr)
{
	struct frame answer;

	if (!stranger_get(&wrong_stranger, FRAME_ANSWER, &answer, LONG_MS))
		FAIL("no answer to packet %u", nr);
	CHECK_EQ(answer.psn, PSN + nr);
	CHECK_EQ(answer.answer.result, FRAME_DONE);
	CHECK_EQ(answer.answer.status, IBV_WC_SUCCESS);
	return answer;
}

/* The first packets of a long message, until the victim takes long ones. Return: their number. */
static uint32_t until_granted(uint64_t total)
{
	uint64_t sent = 0;
	struct frame frame;
	uint32_t nr;

	for (nr = 0; nr < 8; nr++, sent += FRAME_DATA) {
		frame = long_write(nr, nr ? 0 : FRAME_FIRST, sent, total - sent);
		stranger_send(&wrong_stranger, &frame, wrong_data, FRAME_DATA);
		if (answer_to(nr).answer.chunks == LONGS)
			return nr + 1;
	}
	FAIL("the victim takes no long packets");
}

TEST_SLOW(chunk, "HOST-3", "a host writes a chunk, sends its packet, and gets the chunk back", 60)
{
	uint64_t total = WORTH + FRAME_CHUNK, sent;
	struct frame frame;
	uint32_t nr;
	char *data;

	wrong_begin(end_new);
	wrong_reset();
	learn();
	nr = until_granted(total);
	sent = nr * FRAME_DATA;
	data = long_data(1);
	CHECK(stranger_write(&wrong_stranger, 2 * FRAME_CHUNK, data, FRAME_CHUNK));
	frame = long_write(nr, 0, sent, total - sent);
	wrong_stranger.freed = 0;
	CHECK(stranger_send_chunk(&wrong_stranger, &frame, 3, FRAME_CHUNK));
	answer_to(nr);
	CHECK_MEM(wrong_victim.mem + sent, data, FRAME_CHUNK);
	CHECK_ALL(wrong_victim.mem + sent + FRAME_CHUNK, 0, 100);
	CHECK(stranger_asks(&wrong_stranger, LONG_MS));
	CHECK_EQ(wrong_stranger.freed, 1 << 2);
	wrong_end();
}

/* A packet that is executed, although one before was dropped. */
static void still_works(uint32_t nr)
{
	struct frame frame = wrong_request(IBV_WR_RDMA_WRITE, FRAME_RC);

	frame.psn = PSN + nr;
	CHECK(stranger_send(&wrong_stranger, &frame, wrong_data, BYTES));
	answer_to(nr);
	CHECK_MEM(wrong_victim.mem, wrong_data, BYTES);
}

/* The next packet of a write, of which @at bytes have come. */
static struct frame next_packet(uint32_t nr, uint32_t at)
{
	struct frame sent;

	do {
		if (!stranger_get(&wrong_stranger, FRAME_REQUEST, &sent, LONG_MS))
			FAIL("no packet %u", nr);
		/* It was sent again on a slow guest. */
	} while (sent.psn != PSN + nr);
	CHECK_EQ(sent.request.left, WRITTEN - at);
	CHECK(sent.len > FRAME_DATA ? sent.chunk : !sent.chunk);
	if (sent.chunk)
		CHECK_MEM(wrong_stranger.chunks + (sent.chunk - 1) * FRAME_CHUNK,
			  wrong_victim.mem + at, sent.len);
	return sent;
}

/* Answer it, and keep its chunk. Return: bit of the chunk, or 0. */
static unsigned int keep(const struct frame *sent)
{
	struct frame answer = {
		.type = FRAME_ANSWER, .to = sent->from, .from = sent->to, .psn = sent->psn,
		.gen = sent->gen, .answer = { .result = FRAME_DONE, .chunks = LONGS },
	};

	wrong_stranger.read = 0;
	CHECK(stranger_send(&wrong_stranger, &answer, NULL, 0));
	return sent->chunk ? 1 << (sent->chunk - 1) : 0;
}

/* All chunks are kept: there is no long packet before they are given back. */
static void give_back(void)
{
	struct frame frame = { .type = FRAME_CREDIT }, sent;

	if (stranger_get(&wrong_stranger, FRAME_REQUEST, &sent, 200))
		FAIL("a packet in chunk %u, which is not free", sent.chunk);
	wrong_stranger.read = (1 << FRAME_CHUNKS_N) - 1;
	CHECK(stranger_send(&wrong_stranger, &frame, NULL, 0));
}

TEST_SLOW(written, "HOST-3", "keel writes long packets into chunks of the other side, and not again before they are free", 60)
{
	unsigned int kept = 0, bit, nlong = 0;
	uint32_t i, at, nr = 0;
	struct frame sent;

	wrong_begin(end_new);
	wrong_reset();
	learn();
	for (i = 0; i < WRITTEN; i++)
		wrong_victim.mem[i] = (i * 7 + i / 251) & 0xff;
	for (i = 0; i < 2; i++)
		post_rdma(wrong_victim.qp, IBV_WR_RDMA_WRITE, i, part(&wrong_victim, 0, WRITTEN),
			  0, 1);
	for (i = 0; i < 2; i++) {
		for (at = 0; at < WRITTEN; at += sent.len, nr++) {
			sent = next_packet(nr, at);
			bit = keep(&sent);
			CHECK(!(kept & bit));
			kept |= bit;
			nlong += !!bit;
			if (kept != (1 << FRAME_CHUNKS_N) - 1)
				continue;
			give_back();
			kept = 0;
		}
		CHECK_WC(wrong_victim.cq, i, IBV_WC_SUCCESS);
	}
	/* Eight short ones before the first answer, and one at an end. */
	CHECK(nr <= nlong + 8 + 2);
	CHECK(nlong >= FRAME_CHUNKS_N + 2);
	wrong_end();
}

TEST_SLOW(early, "HOST-3", "a long packet that nobody has allowed is dropped, and its chunk is free again", 60)
{
	struct frame frame;

	wrong_begin(end_new);
	wrong_reset();
	learn();
	CHECK(stranger_write(&wrong_stranger, 0, long_data(2), FRAME_CHUNK));
	frame = long_write(0, FRAME_FIRST | FRAME_LAST, 0, FRAME_CHUNK);
	wrong_stranger.freed = 0;
	CHECK(stranger_send_chunk(&wrong_stranger, &frame, 1, FRAME_CHUNK));
	CHECK(!stranger_get(&wrong_stranger, FRAME_ANSWER, &frame, SHORT_MS));
	CHECK(stranger_asks(&wrong_stranger, LONG_MS));
	CHECK_EQ(wrong_stranger.freed, 1);
	CHECK_ALL(wrong_victim.mem, 0, FRAME_CHUNK);
	still_works(0);
	wrong_end();
}

/* A frame that ends the link, and another connection works. */
static void ends(const char *what)
{
	const struct wrong w = { .what = what };

	wrong_ends(&w);
	wrong_reset();
	wrong_link();
	still_works(0);
}

TEST_SLOW(told, "HOST-3", "chunks that are told of twice end the link", 60)
{
	wrong_begin(end_new);
	wrong_reset();
	learn();
	CHECK(stranger_asks(&wrong_stranger, LONG_MS));
	stranger_tell_chunks(&wrong_stranger);
	ends("told twice");
	wrong_end();
}

/* The victim asks for the other side's chunks, whose rkey is none. */
TEST_SLOW(no_key, "HOST-3", "a write to chunks that are not there ends the link, and the message goes on over the next one", 60)
{
	struct frame frame = { .type = FRAME_CHUNKS }, sent, answer;
	int i;

	wrong_begin(end_new);
	wrong_reset();
	wrong_link();
	frame.chunks.addr = 0x1000;
	frame.chunks.rkey = 0x1234;
	CHECK(stranger_send(&wrong_stranger, &frame, NULL, 0));
	post_rdma(wrong_victim.qp, IBV_WR_RDMA_WRITE, 1,
		  part(&wrong_victim, 0, WORTH + FRAME_CHUNK), 0, 1);
	/* It is told that long packets may come, and sends one. */
	for (i = 0; i < 8; i++) {
		if (!stranger_get(&wrong_stranger, FRAME_REQUEST, &sent, LONG_MS))
			break;
		CHECK_EQ(sent.len, FRAME_DATA);
		answer = (struct frame){
			.type = FRAME_ANSWER, .to = sent.from, .from = sent.to, .psn = sent.psn,
			.gen = sent.gen, .answer = { .result = FRAME_DONE, .chunks = LONGS },
		};
		stranger_send(&wrong_stranger, &answer, NULL, 0);
	}
	ends("a write without a key");
	wrong_end();
}

TEST_SLOW(beyond, "HOST-3", "a host that writes behind the chunks, or with another key, loses its link, and changes nothing", 60)
{
	static const struct {
		const char *what;
		uint32_t at;
		uint32_t key;
	} cases[] = {
		{ "behind the last byte", FRAME_CHUNKS_N * FRAME_CHUNK - FRAME_CHUNK + 1, 0 },
		{ "another chunk", FRAME_CHUNKS_N * FRAME_CHUNK, 0 },
		{ "another key", 0, 1 },
	};
	size_t i;

	wrong_begin(end_new);
	wrong_reset();
	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		learn();
		wrong_stranger.chunks_rkey ^= cases[i].key;
		if (stranger_write(&wrong_stranger, cases[i].at, long_data(3), FRAME_CHUNK))
			FAIL("%s: it was written", cases[i].what);
		wrong_reset();
		wrong_link();
		still_works(0);
		CHECK_ALL(wrong_victim.mem + BYTES, 0, FRAME_DATA);
	}
	wrong_end();
}
