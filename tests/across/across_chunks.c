// SPDX-License-Identifier: GPL-2.0
/*
 * Long messages between two hosts: packets in chunks, which the other side writes to. And a host
 * that is not keel, which does so wrong.
 */
#include "t.h"
#include "wrong.h"

#define CHUNKS		8
/* Long packets that may be under way. */
#define LONGS		3
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

/* Packets that host 0 has sent. */
static long packets(void)
{
	char *text;
	long n;

	/* ib_core caches counters for 10 ms, and a tick. */
	usleep(30000);
	text = t_read_file("/sys/class/infiniband/keel_a/ports/1/hw_counters/far_packets");
	n = atol(text);
	free(text);
	return n;
}

/* Move @len bytes at the ends of the memory, and check both directions. */
static void move(struct end *a, struct end *b, uint32_t len, uint64_t seed)
{
	uint32_t i;

	for (i = 0; i < len; i += sizeof(uint64_t)) {
		uint64_t value = t_random(&seed);

		memcpy(a->mem + i, &value, sizeof(value));
	}
	memset(b->mem, 0xee, END_BYTES);
	post_rdma(a->qp, IBV_WR_RDMA_WRITE, 1, part(a, 0, len), (uintptr_t)b->mem + 3, b->mr->rkey);
	CHECK_WC(a->cq, 1, IBV_WC_SUCCESS);
	CHECK_MEM(b->mem + 3, a->mem, len);
	CHECK_ALL(b->mem, 0xee, 3);
	CHECK_ALL(b->mem + 3 + len, 0xee, 100);
	memset(a->mem + END_HALF, 0xdd, END_HALF);
	post_rdma(a->qp, IBV_WR_RDMA_READ, 2, part(a, END_HALF, len), (uintptr_t)b->mem + 3,
		  b->mr->rkey);
	CHECK_EQ(CHECK_WC(a->cq, 2, IBV_WC_SUCCESS).byte_len, len);
	CHECK_MEM(a->mem + END_HALF, b->mem + 3, len);
	CHECK_ALL(a->mem + END_HALF + len, 0xdd, 100);
	memset(b->mem, 0xee, END_BYTES);
	post_recv(b->qp, 3, part(b, 5, END_HALF));
	post(a->qp, send_wr(IBV_WR_SEND, 3, part(a, 0, len)));
	CHECK_WC(a->cq, 3, IBV_WC_SUCCESS);
	CHECK_EQ(CHECK_WC(b->cq, 3, IBV_WC_SUCCESS).byte_len, len);
	CHECK_MEM(b->mem + 5, a->mem, len);
	CHECK_ALL(b->mem + 5 + len, 0xee, 100);
}

TEST(long, "HOST-1", "long messages have the same bytes as short ones, with few packets once both sides have seen one")
{
	static const uint32_t lens[] = {
		END_HALF - 200, FRAME_CHUNK, FRAME_CHUNK + 1, FRAME_CHUNK - 1, 300000, 5000,
		4097, 4096, 3 * FRAME_CHUNK + 4096, 3 * FRAME_CHUNK + 4097,
	};
	struct end a, b;
	long before, n;
	size_t i;

	hosts_up();
	a = end_new(0);
	b = end_new(1);
	ends_join(&a, &b, &joint_patient);
	/* Two messages, because each side gets its memory after it has seen the first one. */
	move(&a, &b, END_HALF - 200, 1);
	for (i = 0; i < sizeof(lens) / sizeof(*lens); i++) {
		before = packets();
		move(&a, &b, lens[i], i + 2);
		n = packets() - before;
		/* Each of three messages; some may be sent twice on a slow guest. */
		if (n < 3 || n > 6 * ((long)lens[i] / FRAME_CHUNK + 1))
			FAIL("%u bytes: %ld packets", lens[i], n);
	}
	end_free(&b);
	end_free(&a);
}

/* The victim has told where its chunks are. */
static void learn(void)
{
	int i;

	wrong_link();
	/* It tells after it has answered the first question. */
	for (i = 0; i < 3 && !wrong_stranger.chunks_rkey; i++)
		CHECK(stranger_asks(&wrong_stranger, LONG_MS));
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
	CHECK(stranger_write(&wrong_stranger, 6 * FRAME_CHUNK, data, FRAME_CHUNK));
	frame = long_write(nr, 0, sent, total - sent);
	wrong_stranger.freed = 0;
	CHECK(stranger_send_chunk(&wrong_stranger, &frame, 7, FRAME_CHUNK));
	answer_to(nr);
	CHECK_MEM(wrong_victim.mem + sent, data, FRAME_CHUNK);
	CHECK_ALL(wrong_victim.mem + sent + FRAME_CHUNK, 0, 100);
	CHECK(stranger_asks(&wrong_stranger, LONG_MS));
	CHECK_EQ(wrong_stranger.freed, 1 << 6);
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
	struct frame frame = { .type = FRAME_CHUNKS };

	wrong_begin(end_new);
	wrong_reset();
	learn();
	frame.chunks.rkey = 0x1234;
	CHECK(stranger_send(&wrong_stranger, &frame, NULL, 0));
	CHECK(stranger_asks(&wrong_stranger, LONG_MS));
	stranger_send(&wrong_stranger, &frame, NULL, 0);
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
	learn();
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
		{ "behind the last byte", CHUNKS * FRAME_CHUNK - FRAME_CHUNK + 1, 0 },
		{ "another chunk", CHUNKS * FRAME_CHUNK, 0 },
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
