// SPDX-License-Identifier: GPL-2.0
/*
 * The frames of a stranger. See stranger.h.
 */
#include <time.h>

#include "qp.h"
#include "stranger.h"
#include "stranger_mem.h"
#include "t.h"

/* How long a buffer to send may be in use, ms. */
#define PATIENCE	5000

static char *send_slot(struct stranger *s, unsigned int i)
{
	return s->mem + (1 + i % STRANGER_SENDS) * FRAME_ROOM;
}

static char *recv_slot(struct stranger *s, unsigned int i)
{
	return s->mem + (1 + STRANGER_SENDS + i) * FRAME_ROOM;
}

static void post_one(struct stranger *s, unsigned int i)
{
	struct ibv_sge sge = { (uintptr_t)recv_slot(s, i), FRAME_ROOM, s->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 }, *bad;

	CHECK_OK(ibv_post_recv(s->qp, &wr, &bad));
}

void stranger_post_recvs(struct stranger *s)
{
	unsigned int i;

	for (i = 0; i < STRANGER_RECVS; i++)
		post_one(s, i);
}

/* Count what was sent. */
static void reap(struct stranger *s)
{
	struct ibv_wc wc;

	while (s->qp && ibv_poll_cq(s->scq, 1, &wc) > 0) {
		s->sent++;
		if (wc.status != IBV_WC_SUCCESS)
			s->up = false;
	}
}

/* Wait until no more than @most work requests are under way. */
static void settle(struct stranger *s, unsigned int most)
{
	int ms;

	reap(s);
	for (ms = 0; s->up && s->posted - s->sent > most; ms++) {
		if (ms > PATIENCE)
			s->up = false;
		usleep(1000);
		reap(s);
	}
}

bool stranger_send_raw(struct stranger *s, const void *bytes, size_t n)
{
	char *slot = send_slot(s, s->posted);
	struct ibv_sge sge = { (uintptr_t)slot, n, s->mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = n ? 1 : 0, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;

	CHECK(n <= FRAME_ROOM);
	settle(s, STRANGER_SENDS - 1);
	if (!s->up)
		return false;
	memcpy(slot, bytes, n);
	CHECK_OK(ibv_post_send(s->qp, &wr, &bad));
	s->posted++;
	return true;
}

bool stranger_write(struct stranger *s, uint32_t at, const void *data, uint32_t len)
{
	char *mem = s->mem + STRANGER_SLOTS;
	struct ibv_sge sge = { (uintptr_t)mem, len, s->mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = s->chunks_addr + at, .rkey = s->chunks_rkey },
	}, *bad;

	CHECK(len <= FRAME_CHUNK);
	settle(s, 0);
	if (!s->up)
		return false;
	memcpy(mem, data, len);
	CHECK_OK(ibv_post_send(s->qp, &wr, &bad));
	s->posted++;
	settle(s, 0);
	return s->up;
}

bool stranger_send_chunk(struct stranger *s, struct frame *frame, uint16_t chunk, uint32_t len)
{
	stranger_stamp(s, frame, len);
	frame->chunk = chunk;
	return stranger_send_raw(s, frame, FRAME_HEAD);
}

/* Note what a frame of the victim tells. */
static void note(struct stranger *s, const char *bytes, size_t n)
{
	struct frame frame;

	if (n < FRAME_HEAD)
		return;
	memcpy(&frame, bytes, FRAME_HEAD);
	s->freed |= frame.freed;
	if (frame.chunk && frame.chunk <= FRAME_CHUNKS_N)
		s->read |= 1 << (frame.chunk - 1);
	if (frame.type == FRAME_CHUNKS) {
		s->chunks_addr = frame.chunks.addr;
		s->chunks_rkey = frame.chunks.rkey;
	}
}

void stranger_stamp(struct stranger *s, struct frame *frame, uint32_t len)
{
	frame->len = len;
	frame->cookie = s->cookie;
	frame->credits = s->owed;
	frame->freed = s->read;
	s->owed = 0;
	s->read = 0;
}

bool stranger_tell_chunks(struct stranger *s)
{
	struct frame frame = {
		.type = FRAME_CHUNKS,
		.chunks = { .addr = (uintptr_t)s->chunks, .rkey = s->chunks_mr->rkey },
	};

	return stranger_send(s, &frame, NULL, 0);
}

bool stranger_send(struct stranger *s, struct frame *frame, const void *data, uint32_t len)
{
	char bytes[FRAME_ROOM];

	CHECK(len <= FRAME_ROOM - FRAME_HEAD);
	stranger_stamp(s, frame, len);
	memcpy(bytes, frame, FRAME_HEAD);
	if (len)
		memcpy(bytes + FRAME_HEAD, data, len);
	return stranger_send_raw(s, bytes, FRAME_HEAD + len);
}

/* The next frame of a batch. */
static size_t next_part(struct stranger *s, char *bytes)
{
	size_t left = s->batch_len - s->batch_at, n;
	struct frame frame;

	CHECK(left >= FRAME_HEAD);
	memcpy(&frame, s->batch + s->batch_at, FRAME_HEAD);
	CHECK(frame.len <= left - FRAME_HEAD);
	n = FRAME_HEAD + frame.len;
	memcpy(bytes, s->batch + s->batch_at, n);
	s->batch_at += (n + 7) & ~7UL;
	CHECK(s->batch_at <= s->batch_len);
	return n;
}

/* Keep the frames of a batch. */
static bool keep_batch(struct stranger *s, const char *bytes, size_t n)
{
	if (n <= FRAME_HEAD || bytes[0] != FRAME_BATCH)
		return false;
	s->batch_len = n - FRAME_HEAD;
	s->batch_at = 0;
	memcpy(s->batch, bytes + FRAME_HEAD, s->batch_len);
	return true;
}

size_t stranger_poll(struct stranger *s, void *bytes)
{
	struct ibv_wc wc;
	size_t n;

	if (s->batch_at < s->batch_len)
		return next_part(s, bytes);
	if (!s->qp || ibv_poll_cq(s->rcq, 1, &wc) != 1)
		return 0;
	if (wc.status != IBV_WC_SUCCESS) {
		s->up = false;
		return 0;
	}
	n = wc.byte_len;
	memcpy(bytes, recv_slot(s, wc.wr_id), n);
	note(s, bytes, n);
	post_one(s, wc.wr_id);
	s->owed++;
	return keep_batch(s, bytes, n) ? next_part(s, bytes) : n;
}

bool stranger_get(struct stranger *s, uint8_t type, struct frame *frame, int ms)
{
	char bytes[FRAME_ROOM];
	size_t n;
	int i;

	for (i = 0; i <= ms; i++) {
		while ((n = stranger_poll(s, bytes)) >= FRAME_HEAD) {
			memcpy(frame, bytes, FRAME_HEAD);
			if (frame->type == type)
				return true;
		}
		if (stranger_ended(s, 0))
			return false;
		usleep(1000);
	}
	return false;
}

bool stranger_asks(struct stranger *s, int ms)
{
	struct frame frame = { .type = FRAME_ASK };

	return stranger_send(s, &frame, NULL, 0) &&
	       stranger_get(s, FRAME_ALIVE, &frame, ms);
}
