// SPDX-License-Identifier: GPL-2.0
/*
 * Memory of rings: a program's, pinned and mapped, or the kernel's own.
 */
#include <linux/lockdep.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/string.h>
#include <linux/vmalloc.h>
#include <kunit/visibility.h>
#include <rdma/ib_umem.h>

#include "compat.h"
#include "keel_ring.h"

static_assert(sizeof(struct keel_uapi_ring) == 128);
static_assert(sizeof(struct keel_uapi_cqe) == 64);
static_assert(sizeof(struct keel_uapi_send_wqe) == 64);
static_assert(sizeof(struct keel_uapi_recv_wqe) == 16);
static_assert(sizeof(struct keel_uapi_sge) == 16);

/* Entries that are copied without a pause. */
#define KEEL_RING_MOVE	1024U

static size_t keel_ring_bytes(u32 entries, u32 stride)
{
	return sizeof(struct keel_uapi_ring) + (size_t)entries * stride;
}

static void keel_ring_set(struct keel_ring *ring, void *start, u32 entries,
			  u32 stride)
{
	ring->head = start;
	ring->mask = entries - 1;
	ring->stride = stride;
	ring->index = 0;
}

/* One address for pages that are anywhere. */
static void *keel_ring_vmap(struct ib_umem *umem)
{
	size_t n = ib_umem_num_pages(umem), i = 0;
	struct sg_page_iter iter;
	struct page **pages;
	void *map;

	pages = kvmalloc_array(n, sizeof(*pages), GFP_KERNEL);
	if (!pages)
		return NULL;
	for_each_sgtable_page(&umem->sgt_append.sgt, &iter, 0)
		if (i < n)
			pages[i++] = sg_page_iter_page(&iter);
	map = vmap(pages, i, VM_MAP, PAGE_KERNEL);
	kvfree(pages);
	return map;
}

/**
 * keel_ring_map() - use the memory of a program as a ring
 * @ring: the ring, zeroed
 * @ibdev: the device, in the context of the verb
 * @buf: what the program said, copied and not looked at yet
 *
 * The caller has compared @buf->entries and @buf->stride with what the queue
 * needs at least. The memory stays pinned until keel_ring_free().
 *
 * Context: may sleep.
 * Return: 0; -EINVAL for a @buf that no ring looks like, or if the header of
 * the ring is not all zero; else what pinning memory says (-EFAULT, -ENOMEM,
 * -EPERM).
 */
int keel_ring_map(struct keel_ring *ring, struct ib_device *ibdev,
		  const struct keel_uapi_buf *buf)
{
	struct ib_umem *umem;
	void *map;

	if (!is_power_of_2(buf->entries) || !buf->stride || buf->addr % 64 ||
	    buf->stride % 16 || buf->stride > KEEL_MAX_STRIDE ||
	    buf->entries > KEEL_MAX_CQE)
		return -EINVAL;
	umem = ib_umem_get_va(ibdev, buf->addr,
			      keel_ring_bytes(buf->entries, buf->stride),
			      IB_ACCESS_LOCAL_WRITE);
	if (IS_ERR(umem))
		return PTR_ERR(umem);
	map = keel_ring_vmap(umem);
	if (!map) {
		ib_umem_release(umem);
		return -ENOMEM;
	}
	keel_ring_set(ring, map + offset_in_page(buf->addr), buf->entries,
		      buf->stride);
	ring->umem = umem;
	/* Once, through the mapping: userspace may write to it at any time. */
	if (memchr_inv(ring->head, 0, sizeof(*ring->head))) {
		keel_ring_free(ring);
		return -EINVAL;
	}
	return 0;
}

/**
 * keel_ring_alloc() - a ring for a queue of the kernel's own
 * @ring: the ring, zeroed
 * @entries: at least so many
 * @stride: bytes of an entry
 *
 * Context: may sleep.
 * Return: 0, or -ENOMEM.
 */
int keel_ring_alloc(struct keel_ring *ring, u32 entries, u32 stride)
{
	void *map;

	entries = roundup_pow_of_two(max(entries, 1U));
	map = vzalloc(keel_ring_bytes(entries, stride));
	if (!map)
		return -ENOMEM;
	keel_ring_set(ring, map, entries, stride);
	return 0;
}
EXPORT_SYMBOL_IF_KUNIT(keel_ring_alloc);

/**
 * keel_ring_free() - let go of a ring's memory
 * @ring: the ring; may be one that never got any
 *
 * Context: may sleep; nobody uses the ring any more.
 */
void keel_ring_free(struct keel_ring *ring)
{
	void *map = ring->head;

	if (!map)
		return;
	ring->head = NULL;
	if (!ring->umem) {
		vfree(map);
		return;
	}
	vunmap(PTR_ALIGN_DOWN(map, PAGE_SIZE));
	ib_umem_release(ring->umem);
	ring->umem = NULL;
}
EXPORT_SYMBOL_IF_KUNIT(keel_ring_free);

/**
 * keel_ring_move() - copy entries to the ring that shall replace another one
 * @from: the ring that has them
 * @to: the ring that gets them, under the same indexes
 * @first: the first one
 * @end: behind the last one; read under @lock, and may grow while @lock is dropped
 * @bytes: of an entry; no more than either stride
 * @lock: the lock of @from, which the caller has; dropped now and then, for others
 *	must not wait for a million entries
 * @dead: nothing is moved any more; under @lock
 *
 * The entries do not change while they are there.
 *
 * Context: process context; sleeps if @lock is dropped.
 * Return: 0; -EINVAL if they are more than @to has room for, or @dead. @lock is held.
 */
int keel_ring_move(const struct keel_ring *from, const struct keel_ring *to,
		   u32 first, const u32 *end, u32 bytes, spinlock_t *lock,
		   const bool *dead)
{
	u32 next = first, piece;

	lockdep_assert_held(lock);
	while (!*dead && *end - first <= keel_ring_size(to)) {
		piece = min(*end - next, KEEL_RING_MOVE);
		for (; piece; piece--, next++)
			memcpy(keel_ring_entry(to, next),
			       keel_ring_entry(from, next), bytes);
		if (next == *end)
			return 0;
		spin_unlock(lock);
		cond_resched();
		spin_lock(lock);
	}
	return -EINVAL;
}
EXPORT_SYMBOL_IF_KUNIT(keel_ring_move);
