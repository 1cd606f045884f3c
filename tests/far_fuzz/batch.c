// SPDX-License-Identifier: GPL-2.0
/*
 * Frames of the stranger that are sent together in one message.
 */
#include "t.h"
#include "world.h"

#define ALIGNED(n)	(((n) + 7) & ~7UL)

/* Frames in a batch have other headers than those that are messages; each bit leaves it out. */
enum { KEEP_HEADER = 1, NO_LIMIT = 2, NO_PADDING = 4 };

static char batch[FRAME_ROOM];
static size_t batch_bytes;
/* How many frames are still to be put into it, and how. */
static int batch_left;
static uint8_t batch_how;

void batch_begin(void)
{
	batch_left = 0;
	batch_bytes = 0;
}

void batch_send(void)
{
	struct frame frame = { .type = FRAME_BATCH };

	if (batch_bytes)
		stranger_send(w.s, &frame, batch, batch_bytes);
	batch_bytes = 0;
}

bool batch_takes(const struct kept *k)
{
	size_t most = batch_how & NO_LIMIT ? FRAME_ROOM - FRAME_HEAD : FRAME_DATA;
	size_t n = batch_how & NO_PADDING ? k->n : ALIGNED(k->n);
	struct frame frame;

	if (!batch_left || k->way.cast || k->n < FRAME_HEAD || n > most)
		return false;
	if (batch_bytes + n > most)
		batch_send();
	memcpy(&frame, k->bytes, FRAME_HEAD);
	if (!(batch_how & KEEP_HEADER)) {
		frame.cookie = 0;
		frame.credits = 0;
		frame.freed = 0;
	}
	memset(batch + batch_bytes, 0, n);
	memcpy(batch + batch_bytes, k->bytes, k->n);
	memcpy(batch + batch_bytes, &frame, FRAME_HEAD);
	batch_bytes += n;
	if (!--batch_left)
		batch_send();
	return true;
}

/* batch N HOW: the next frames are sent together */
static void op_batch(const uint8_t *a)
{
	batch_send();
	batch_left = 1 + a[0] % 64;
	batch_how = a[1];
}

const struct op batch_ops[] = {
	{ "batch", op_batch, 8 },
};

const int batch_ops_count = sizeof(batch_ops) / sizeof(*batch_ops);
