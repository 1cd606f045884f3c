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

bool stranger_send_raw(struct stranger *s, const void *bytes, size_t n)
{
	char *slot = send_slot(s, s->posted);
	struct ibv_sge sge = { (uintptr_t)slot, n, s->mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = n ? 1 : 0, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;
	int ms;

	CHECK(n <= FRAME_ROOM);
	reap(s);
	for (ms = 0; s->up && s->posted - s->sent >= STRANGER_SENDS; ms++) {
		if (ms > PATIENCE)
			s->up = false;
		usleep(1000);
		reap(s);
	}
	if (!s->up)
		return false;
	memcpy(slot, bytes, n);
	CHECK_OK(ibv_post_send(s->qp, &wr, &bad));
	s->posted++;
	return true;
}

void stranger_stamp(struct stranger *s, struct frame *frame, uint32_t len)
{
	frame->len = len;
	frame->cookie = s->cookie;
	frame->credits = s->owed;
	s->owed = 0;
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

size_t stranger_poll(struct stranger *s, void *bytes)
{
	struct ibv_wc wc;
	size_t n;

	if (!s->qp || ibv_poll_cq(s->rcq, 1, &wc) != 1)
		return 0;
	if (wc.status != IBV_WC_SUCCESS) {
		s->up = false;
		return 0;
	}
	n = wc.byte_len;
	memcpy(bytes, recv_slot(s, wc.wr_id), n);
	post_one(s, wc.wr_id);
	s->owed++;
	return n;
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
