/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Rings: the memory that a queue shares with the kernel, and its allocation.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <util/util.h>

#include "keel.h"

void keel_lock_init(struct keel_lock *lock, bool single_threaded)
{
	lock->single_threaded = single_threaded;
	pthread_spin_init(&lock->spin, PTHREAD_PROCESS_PRIVATE);
}

/*
 * Return the parent domain whose thread domain and allocators apply to queues
 * of @ibpd, or NULL. An imported parent domain has neither, and the application
 * may unimport it before it destroys the queues.
 */
struct keel_parent_domain *keel_pd_parent(struct ibv_pd *ibpd)
{
	struct keel_parent_domain *parent = to_kparent(ibpd);

	return parent && !parent->imported ? parent : NULL;
}

/* With a thread domain, the application promises to serialize its calls. */
bool keel_is_single_threaded(const struct keel_parent_domain *parent)
{
	return parent && parent->td;
}

/*
 * A child of fork() must not share the pages by copy-on-write. Otherwise the
 * first writer would get a copy that the kernel has not pinned.
 * ibv_dontfork_range() does nothing if fork() copies pinned pages.
 */
static void *own_alloc(struct keel_ring_pool *pool, size_t size)
{
	void *ptr = keel_pool_take(pool, size);

	if (!ptr)
		ptr = mmap(NULL, size, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (ptr == MAP_FAILED)
		return NULL;
	if (ibv_dontfork_range(ptr, size)) {
		munmap(ptr, size);
		return NULL;
	}
	return ptr;
}

/* A child of fork() has the memory that the pool keeps, too. */
static void own_free(struct keel_ring_pool *pool, void *ptr, size_t size)
{
	ibv_dofork_range(ptr, size);
	keel_pool_put(pool, ptr, size);
}

static uint64_t resource_type(enum keel_res_code res)
{
	return (uint64_t)KEEL_DRIVER_ID << 32 | res;
}

static void *ring_memory(struct keel_ring *ring,
			 struct keel_parent_domain *parent, size_t alignment)
{
	void *ptr;

	if (!parent || !parent->alloc)
		return own_alloc(ring->pool, ring->size);

	ptr = parent->alloc(&parent->pd.ibv_pd, parent->pd_context, ring->size,
			    alignment, resource_type(ring->res));
	if (ptr == IBV_ALLOCATOR_USE_DEFAULT)
		return own_alloc(ring->pool, ring->size);
	ring->allocator = parent;
	return ptr;
}

/*
 * Allocate at least @entries entries of @stride bytes, from @pool if it has some. @pool and
 * @parent may be NULL.
 */
int keel_ring_alloc(struct keel_ring *ring, struct keel_ring_pool *pool,
		    struct keel_parent_domain *parent, enum keel_res_code res,
		    uint32_t entries, uint32_t stride)
{
	size_t page = sysconf(_SC_PAGESIZE);
	void *ptr;

	entries = roundup_pow_of_two(entries);
	*ring = (struct keel_ring){
		.mask = entries - 1,
		.stride = stride,
		.res = res,
		.pool = pool,
		.size = align(sizeof(*ring->shared) + (size_t)entries * stride,
			      page),
	};
	ptr = ring_memory(ring, parent, page);
	if (!ptr)
		return ENOMEM;

	ring->shared = ptr;
	ring->entries = (uint8_t *)(ring->shared + 1);
	/* Neither the pool nor an allocator of the application clears the memory. */
	memset(ring->shared, 0, sizeof(*ring->shared));
	return 0;
}

/* Does nothing if the ring was never allocated. */
void keel_ring_free(struct keel_ring *ring)
{
	struct keel_parent_domain *parent = ring->allocator;

	if (!ring->shared)
		return;
	/* Inline data of the application does not outlive the queue. */
	if (!parent && ring->res == KEEL_RES_SQ &&
	    keel_pool_keeps(ring->pool, ring->size))
		memset(ring->shared, 0, ring->size);
	if (parent)
		parent->free(&parent->pd.ibv_pd, parent->pd_context,
			     ring->shared, resource_type(ring->res));
	else
		own_free(ring->pool, ring->shared, ring->size);
	ring->shared = NULL;
}

/* The kernel has reset its index already. */
void keel_ring_reset(struct keel_ring *ring)
{
	if (!ring->shared)
		return;
	ring->user = 0;
	keel_ring_publish(ring);
}

/* Returns all zero if the ring was never allocated. */
struct keel_uapi_buf keel_ring_buf(const struct keel_ring *ring)
{
	if (!ring->shared)
		return (struct keel_uapi_buf){};
	return (struct keel_uapi_buf){
		.addr = (uintptr_t)ring->shared,
		.entries = ring->mask + 1,
		.stride = ring->stride,
	};
}
