// SPDX-License-Identifier: GPL-2.0
/*
 * Memory of rings: pinned memory of a user process, mapped if it is not contiguous, or
 * kernel memory.
 */
#include <linux/kasan.h>
#include <linux/lockdep.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/sizes.h>
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

/* Bytes of WQEs or CQEs that are copied before rescheduling: others spin meanwhile. */
#define KEEL_RING_MOVE	SZ_8K

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

/* Returns contiguous kernel addresses of the pages. */
static void *keel_ring_vmap(struct ib_umem *umem)
{
	struct sg_table *sgt = &umem->sgt_append.sgt;
	size_t n = ib_umem_num_pages(umem), i = 0;
	struct sg_page_iter iter;
	struct page **pages;
	void *map;

	/* Contiguous pages, as a single one, have them. The tags of pages differ. */
	BUILD_BUG_ON(IS_ENABLED(CONFIG_HIGHMEM));
	if (sgt->orig_nents == 1)
		return kasan_reset_tag(page_address(sg_page(sgt->sgl)));
	pages = kvmalloc_array(n, sizeof(*pages), GFP_KERNEL);
	if (!pages)
		return NULL;
	for_each_sgtable_page(sgt, &iter, 0)
		if (i < n)
			pages[i++] = sg_page_iter_page(&iter);
	map = vmap(pages, i, VM_MAP, PAGE_KERNEL);
	kvfree(pages);
	return map;
}

/**
 * keel_ring_map() - use memory of a user process as a ring
 * @ring: the ring, zeroed
 * @ibdev: the device, in the context of the verb
 * @buf: the buffer, copied from userspace and not checked yet
 *
 * The caller has checked that @buf->entries and @buf->stride are enough for the
 * queue. The memory stays pinned until keel_ring_free().
 *
 * Context: may sleep.
 * Return: 0; -EINVAL if @buf is invalid, or if the header of the ring is not
 * all zero; or an error of pinning memory (-EFAULT, -ENOMEM, -EPERM).
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
	/* Check through the mapping; userspace may still write at any time. */
	if (memchr_inv(ring->head, 0, sizeof(*ring->head))) {
		keel_ring_free(ring);
		return -EINVAL;
	}
	return 0;
}

/**
 * keel_ring_alloc() - allocate a ring for a queue of a kernel consumer
 * @ring: the ring, zeroed
 * @entries: minimum number of WQEs or CQEs
 * @stride: bytes of each
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
 * keel_ring_free() - free the memory of a ring
 * @ring: the ring; may be one without memory
 *
 * Context: may sleep; the ring is no longer in use.
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
	if (is_vmalloc_addr(map))
		vunmap(PTR_ALIGN_DOWN(map, PAGE_SIZE));
	ib_umem_release(ring->umem);
	ring->umem = NULL;
}
EXPORT_SYMBOL_IF_KUNIT(keel_ring_free);

/**
 * keel_ring_move() - copy WQEs or CQEs to a ring that will replace another
 * @from: the ring to copy from
 * @to: the ring to copy to, under the same indexes
 * @first: index of the first one
 * @end: index behind the last one; read under @lock, and may grow while @lock
 *	is dropped
 * @bytes: bytes of each; no more than either stride
 * @lock: the lock of @from, which the caller holds. It is dropped now and then,
 *	because others must not wait for a million copies.
 * @dead: if true, the copy ends; read under @lock
 *
 * The copied WQEs or CQEs do not change while they are in @from.
 *
 * Context: process context; sleeps if @lock is dropped.
 * Return: 0; -EINVAL if @to has not enough room, or if @dead is true. @lock is
 * held.
 */
int keel_ring_move(const struct keel_ring *from, const struct keel_ring *to,
		   u32 first, const u32 *end, u32 bytes, spinlock_t *lock,
		   const bool *dead)
{
	u32 next = first, piece;

	lockdep_assert_held(lock);
	while (!*dead && *end - first <= keel_ring_size(to)) {
		piece = min(*end - next, max(KEEL_RING_MOVE / bytes, 1U));
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
