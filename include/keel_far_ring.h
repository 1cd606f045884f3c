/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Memory for the data of packets that are kept until they are executed, in their order.
 */
#ifndef KEEL_FAR_RING_H
#define KEEL_FAR_RING_H

#include <linux/align.h>
#include <linux/minmax.h>
#include <linux/sizes.h>
#include <linux/types.h>

#include "keel_frame.h"

/* Most bytes of all packets, each rounded up to units. */
#define KEEL_FAR_BYTES	SZ_32K
#define KEEL_FAR_UNIT	64
/* Bytes of memory: the last packet begins before KEEL_FAR_BYTES, and may end behind it. */
#define KEEL_FAR_RING	(KEEL_FAR_BYTES - KEEL_FAR_UNIT + KEEL_FRAME_DATA)

/**
 * struct keel_far_ring - which memory is in use
 * @next: offset of the next packet, less than KEEL_FAR_BYTES
 * @used: bytes of all packets
 */
struct keel_far_ring {
	u32 next;
	u32 used;
};

/**
 * keel_far_bytes() - bytes that a packet takes in a ring
 * @n: bytes of its data, at most KEEL_FRAME_DATA
 *
 * Return: whole units; at least one, so that there is room for the value of an atomic operation.
 */
static inline u32 keel_far_bytes(u32 n)
{
	return ALIGN(max_t(u32, n, 1), KEEL_FAR_UNIT);
}

/* far_ring.c */
bool keel_far_ring_add(struct keel_far_ring *ring, u32 bytes, u32 *at);
void keel_far_ring_drop(struct keel_far_ring *ring, u32 bytes);
void keel_far_ring_keep(struct keel_far_ring *ring, u32 at, u32 bytes);

#endif /* KEEL_FAR_RING_H */
