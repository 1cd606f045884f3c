/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Memory of rings that were freed, for the next rings of the context. Mapping memory, its
 * first page faults and unmapping it take longer than the rest of a CQ's life.
 */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <ccan/minmax.h>

#include "keel.h"

/* @room: how many rings it keeps, KEEL_POOL_RINGS at most */
void keel_pool_init(struct keel_ring_pool *pool, unsigned int room)
{
	pthread_mutex_init(&pool->lock, NULL);
	pool->room = room;
	pool->n = 0;
}

/* Whether memory of a ring is kept. @pool may be NULL. */
bool keel_pool_keeps(const struct keel_ring_pool *pool, size_t size)
{
	return pool && pool->room &&
	       size <= max_t(size_t, KEEL_POOL_MOST, sysconf(_SC_PAGESIZE));
}

/* Remove element @i, which the caller uses or unmaps. */
static void *pool_remove(struct keel_ring_pool *pool, unsigned int i)
{
	void *ptr = pool->rings[i].ptr;

	pool->n--;
	memmove(&pool->rings[i], &pool->rings[i + 1],
		(pool->n - i) * sizeof(*pool->rings));
	return ptr;
}

/* Return memory of @size bytes, not cleared, or NULL. @pool may be NULL. */
void *keel_pool_take(struct keel_ring_pool *pool, size_t size)
{
	void *ptr = NULL;
	unsigned int i;

	if (!keel_pool_keeps(pool, size))
		return NULL;
	pthread_mutex_lock(&pool->lock);
	/* The memory that was used last. */
	for (i = pool->n; i-- && !ptr;)
		if (pool->rings[i].size == size)
			ptr = pool_remove(pool, i);
	pthread_mutex_unlock(&pool->lock);
	return ptr;
}

/*
 * Keep mapped memory, or unmap it. If the pool is full, the oldest memory is unmapped: sizes
 * that are not needed any more do not stay. @pool may be NULL.
 */
void keel_pool_put(struct keel_ring_pool *pool, void *ptr, size_t size)
{
	if (keel_pool_keeps(pool, size)) {
		struct keel_pool_ring new = { ptr, size };

		ptr = NULL;
		pthread_mutex_lock(&pool->lock);
		if (pool->n == pool->room) {
			size = pool->rings[0].size;
			ptr = pool_remove(pool, 0);
		}
		pool->rings[pool->n++] = new;
		pthread_mutex_unlock(&pool->lock);
	}
	if (ptr)
		munmap(ptr, size);
}

/* Unmap all. No thread uses the pool any more. */
void keel_pool_fini(struct keel_ring_pool *pool)
{
	while (pool->n) {
		pool->n--;
		munmap(pool->rings[pool->n].ptr, pool->rings[pool->n].size);
	}
	pthread_mutex_destroy(&pool->lock);
}
