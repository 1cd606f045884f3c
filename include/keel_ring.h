/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Rings: the memory of a queue, shared with the program that owns it. A core
 * unit: it knows indexes and entries, but not what they mean.
 *
 * Nothing in the shared memory is ever believed: our own index is kept here,
 * and the other side's is checked against it.
 */
#ifndef KEEL_RING_H
#define KEEL_RING_H

#include <linux/errno.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <asm/barrier.h>
#include <rdma/keel-abi.h>

struct ib_device;
struct ib_umem;

/**
 * struct keel_ring - a ring as the kernel sees it
 * @head: its start, mapped; NULL if there is no ring
 * @mask: number of entries less one
 * @stride: bytes of an entry
 * @index: our index: entries taken (work queues) or added (CQs) so far
 * @umem: pinned memory of the program, or NULL for a ring of the kernel's own
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
		   const bool *dead);

static inline u32 keel_ring_size(const struct keel_ring *ring)
{
	return ring->mask + 1;
}

/**
 * keel_ring_entry() - where an entry is
 * @ring: the ring
 * @index: running number of the entry
 *
 * Return: its first byte. The program may write to it at any time: copy, then
 * look.
 */
static inline void *keel_ring_entry(const struct keel_ring *ring, u32 index)
{
	return (void *)(ring->head + 1) +
	       (size_t)(index & ring->mask) * ring->stride;
}

/**
 * keel_ring_posted() - entries of a work queue that wait for the kernel
 * @ring: the ring
 *
 * Return: how many, which may be 0; -EINVAL if the program's index is
 * nonsense. Entries up to there can be read afterwards.
 */
static inline int keel_ring_posted(const struct keel_ring *ring)
{
	/* Pairs with the release of whoever posts. */
	u32 n = smp_load_acquire(&ring->head->user) - ring->index;

	return n > ring->mask + 1 ? -EINVAL : (int)n;
}

/**
 * keel_ring_room() - room in a CQ
 * @ring: the ring
 *
 * Return: entries that can be added; -EINVAL if the program's index is
 * nonsense.
 */
static inline int keel_ring_room(const struct keel_ring *ring)
{
	/* Pairs with the release of whoever polls. */
	u32 n = ring->index - smp_load_acquire(&ring->head->user);

	return n > ring->mask + 1 ? -EINVAL : (int)(ring->mask + 1 - n);
}

/**
 * keel_ring_advance() - tell the program that we are done with an entry
 * @ring: the ring
 *
 * For a work queue: it was taken. For a CQ: it was filled.
 */
static inline void keel_ring_advance(struct keel_ring *ring)
{
	/* After the copy of what was taken, or of what was added. */
	smp_store_release(&ring->head->kernel, ++ring->index);
}

#endif /* KEEL_RING_H */
