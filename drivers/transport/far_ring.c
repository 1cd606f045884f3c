// SPDX-License-Identifier: GPL-2.0
/*
 * Memory for the data of packets, which leave in the order in which they came, or the last ones
 * together: then the ring is as before they came. A packet begins where the one before it ends.
 * If that is not below KEEL_FAR_BYTES, it begins at 0. So the data of a packet is contiguous, and
 * may end behind KEEL_FAR_BYTES, but not behind KEEL_FAR_RING.
 *
 * Packets never overlap, because all together have at most KEEL_FAR_BYTES:
 *
 * At most one of them begins at 0. If there were two, the packets from the first of these up to
 * the other one would reach from 0 to KEEL_FAR_BYTES at least, and the other one would be too
 * much.
 *
 * The packets before the one at 0 follow each other up to an end that is not below
 * KEEL_FAR_BYTES. So they begin at KEEL_FAR_BYTES minus their sum, or behind that. The others
 * follow each other from 0 on, and end at their sum. Both sums together are at most
 * KEEL_FAR_BYTES, so that the others end where the former begin, or before.
 */
#include <kunit/visibility.h>
#include <linux/export.h>

#include "keel_far_ring.h"

static u32 keel_far_ring_end(u32 at, u32 bytes)
{
	return at + bytes < KEEL_FAR_BYTES ? at + bytes : 0;
}

/**
 * keel_far_ring_add() - find memory for the last packet
 * @ring: the memory
 * @bytes: keel_far_bytes() of it
 * @at: gets its offset
 *
 * Return: false if there is no room for it.
 */
bool keel_far_ring_add(struct keel_far_ring *ring, u32 bytes, u32 *at)
{
	if (bytes > KEEL_FAR_BYTES - ring->used)
		return false;
	*at = ring->next;
	ring->used += bytes;
	ring->next = keel_far_ring_end(*at, bytes);
	return true;
}
EXPORT_SYMBOL_IF_KUNIT(keel_far_ring_add);

/**
 * keel_far_ring_drop() - the first packet leaves
 * @ring: the memory
 * @bytes: as for keel_far_ring_add()
 */
void keel_far_ring_drop(struct keel_far_ring *ring, u32 bytes)
{
	ring->used -= bytes;
	/* Memory that was used just now is in the cache. */
	if (!ring->used)
		ring->next = 0;
}
EXPORT_SYMBOL_IF_KUNIT(keel_far_ring_drop);

/**
 * keel_far_ring_keep() - all packets leave but the first one
 * @ring: the memory
 * @at: offset of the first one
 * @bytes: its bytes, as for keel_far_ring_add(); 0: it has no memory of the ring
 */
void keel_far_ring_keep(struct keel_far_ring *ring, u32 at, u32 bytes)
{
	ring->used = bytes;
	ring->next = bytes ? keel_far_ring_end(at, bytes) : 0;
}
EXPORT_SYMBOL_IF_KUNIT(keel_far_ring_keep);
