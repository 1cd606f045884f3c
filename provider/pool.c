/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Memory of rings that were freed, for the next rings of the context. Mapping memory, its
 * first page faults and unmapping it take longer than the rest of a CQ's life.
 */
#include <string.h>
#include <sys/mman.h>

#include "keel.h"

void keel_pool_init(struct keel_ring_pool *pool)
{
	pthread_mutex_init(&pool->lock, NULL);
	pool->n = 0;
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

	if (!pool || size > KEEL_POOL_MOST)
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
 * Keep mapped memory, or unmap it. Sizes that nobody needs any more leave by and by: the
 * oldest is unmapped if the pool is full. @pool may be NULL.
 */
void keel_pool_give(struct keel_ring_pool *pool, void *ptr, size_t size)
{
	if (pool && size <= KEEL_POOL_MOST) {
		struct keel_pool_ring new = { ptr, size };

		ptr = NULL;
		pthread_mutex_lock(&pool->lock);
		if (pool->n == KEEL_POOL_RINGS) {
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
void keel_pool_free(struct keel_ring_pool *pool)
{
	while (pool->n) {
		pool->n--;
		munmap(pool->rings[pool->n].ptr, pool->rings[pool->n].size);
	}
	pthread_mutex_destroy(&pool->lock);
}
