/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A QP and another host, with long packets.
 */
#ifndef KEEL_FAR_LONG_H
#define KEEL_FAR_LONG_H

#include "far_host.h"

#define PACKET	KEEL_FRAME_DATA
#define CHUNK	KEEL_CHUNK_DATA
#define LONGS	KEEL_FAR_LONGS
/* A message that is worth it, and more than all long packets have. */
#define BYTES	((LONGS + 1) * CHUNK + 100)

/* Long packets whose memory is in use: those that the QP has received, and answers. */
u32 far_long_requests(const struct far_host *h);
u32 far_long_answers(const struct far_host *h);
/* A host whose link has chunks, and *@buf with BYTES bytes, which count. */
struct far_host *far_long_make(struct kunit *test, u8 **buf);
/* Packet @nr was executed, and @chunks long ones may be under way. */
void far_long_done(struct far_host *h, u32 nr, u32 len, u8 chunks);
/* A packet of a long write, whose data is in @h->data. */
struct keel_frame far_long_packet(struct far_host *h, u32 nr, u8 flags, u32 len, u64 left);
/* The QP has memory for long packets, as if there had been a message that it is worth for. */
void far_long_grow(struct far_host *h);

#endif /* KEEL_FAR_LONG_H */
