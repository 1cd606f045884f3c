/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Rings: the memory of a queue, shared with the user process that owns it. A core
 * unit: it depends on indexes and the size of WQEs and CQEs, not on their contents.
 *
 * The kernel never trusts the shared memory. It keeps its own index in struct
 * keel_ring, and checks the user index against it.
 */
#ifndef KEEL_RING_H
#define KEEL_RING_H

#include <linux/errno.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <asm/barrier.h>
#include <rdma/keel-abi.h>

#include "compat.h"

struct ib_device;
struct ib_umem;

/**
 * struct keel_ring - a ring as the kernel sees it
 * @head: its start, an address of the kernel; NULL if there is no ring
 * @mask: number of WQEs or CQEs, less one
 * @stride: bytes of a WQE or CQE
 * @index: the kernel's index: WQEs taken (work queues) or CQEs added (CQs) so far
 * @umem: pinned memory of the user process, or NULL for a ring in kernel memory
 */
struct keel_ring {
	struct keel_uapi_ring *head;
	u32 mask;
	u32 stride;
	u32 index;
	struct ib_umem *umem;
};

int keel_ring_map(struct keel_ring *ring, struct ib_device *ibdev,
		  const struct keel_uapi_buf *buf);
int keel_ring_alloc(struct keel_ring *ring, u32 entries, u32 stride);
void keel_ring_free(struct keel_ring *ring);
int keel_ring_move(const struct keel_ring *from, const struct keel_ring *to,
		   u32 first, const u32 *end, u32 bytes, spinlock_t *lock,
		   const bool *dead)
	__must_hold(lock);

static inline u32 keel_ring_size(const struct keel_ring *ring)
{
	return ring->mask + 1;
}

/**
 * keel_ring_entry() - the address of a WQE or CQE
 * @ring: the ring
 * @index: its free-running index
 *
 * Return: its first byte. Userspace may write to it at any time: copy it before
 * checking it.
 */
static inline void *keel_ring_entry(const struct keel_ring *ring, u32 index)
{
	return (void *)(ring->head + 1) +
	       (size_t)(index & ring->mask) * ring->stride;
}

/**
 * keel_ring_posted() - number of posted WQEs that the kernel has not taken yet
 * @ring: the ring
 *
 * Return: the number, which may be 0; -EINVAL if the producer index is invalid. The
 * caller can read these WQEs afterwards.
 */
static inline int keel_ring_posted(const struct keel_ring *ring)
{
	/* Pairs with the release of the thread that posts. */
	u32 n = smp_load_acquire(&ring->head->user) -
		READ_ONCE(ring->index);

	return n > ring->mask + 1 ? -EINVAL : (int)n;
}

/**
 * keel_ring_posted_most() - how many WQEs may be posted now?
 * @ring: the ring
 *
 * The producer index of userspace may be invalid now and valid later: this counts no
 * more than the ring has.
 *
 * Return: the number.
 */
static inline u32 keel_ring_posted_most(const struct keel_ring *ring)
{
	return min(READ_ONCE(ring->head->user) - READ_ONCE(ring->index),
		   ring->mask + 1);
}

/**
 * keel_ring_room() - free room in a CQ
 * @ring: the ring
 *
 * Return: number of CQEs that can be added; -EINVAL if the consumer index is
 * invalid.
 */
static inline int keel_ring_room(const struct keel_ring *ring)
{
	/* Pairs with the release of the thread that polls. */
	u32 n = ring->index - smp_load_acquire(&ring->head->user);

	return n > ring->mask + 1 ? -EINVAL : (int)(ring->mask + 1 - n);
}

/**
 * keel_ring_advance() - advance the kernel's index by one
 * @ring: the ring
 *
 * Work queue: the WQE was taken. CQ: the CQE was written.
 */
static inline void keel_ring_advance(struct keel_ring *ring)
{
	WRITE_ONCE(ring->index, ring->index + 1);
	/* After the copy of the WQE or CQE. */
	smp_store_release(&ring->head->kernel, ring->index);
}

#endif /* KEEL_RING_H */
