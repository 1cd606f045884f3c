// SPDX-License-Identifier: GPL-2.0
/*
 * Pages that small buffers of a process share. They are for the process that opened the
 * context. Buffers of others that have the context own whole pages, and so do those of a
 * process that has changed its user, who pays for the pages.
 *
 * All buffers of a page are of one context, and a process that has the context may map each
 * of them. A process that has only a mapping, inherited with fork(), sees the page.
 */
#include <kunit/visibility.h>
#include <linux/cache.h>
#include <linux/cred.h>
#include <linux/mm.h>
#include <linux/pid.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "keel_dm.h"
#include "keel_point.h"
#include "keel_quota.h"

/* Buffers share no cache line, and not these 64 bytes. */
#define KEEL_CELL_SHIFT		max(6, L1_CACHE_SHIFT)
/* As many pages are tried, before a buffer gets a new one; and if there is none. */
#define KEEL_POOL_TRIES		8
#define KEEL_POOL_LAST_TRIES	64

/**
 * struct keel_dm_page - a page of device memory that small buffers share
 * @node: in &keel_dm_pool.pages, or empty if the page is full
 * @pool: its pool, with a reference
 * @cells: the parts of the page, each allocated or free
 * @start: its offset in the aperture
 * @used: allocated bytes; under &keel_dm_pool.lock. The last buffer frees the page
 * @user: the user whose quota counts it
 */
struct keel_dm_page {
	struct list_head node;
	struct keel_dm_pool *pool;
	struct keel_range cells;
	u64 start;
	unsigned int used;
	struct keel_user *user;
};

/**
 * keel_dm_pool_new() - create a pool without pages
 * @ap: the aperture
 * @quotas: the quotas of the device, which count the pages
 * @user: the user that opens the context, as keel_user_id()
 *
 * Context: process context of the process that opens the context; may sleep.
 * Return: the pool, for keel_dm_pool_put(); or NULL if memory is short.
 */
struct keel_dm_pool *keel_dm_pool_new(struct keel_aperture *ap,
				      struct keel_quotas *quotas, u64 user)
{
	struct keel_dm_pool *pool = kzalloc_obj(*pool, GFP_KERNEL_ACCOUNT);

	if (!pool)
		return NULL;
	refcount_set(&pool->ref, 1);
	pool->ap = ap;
	pool->quotas = quotas;
	pool->user = user;
	pool->owner = get_pid(task_tgid(current));
	spin_lock_init(&pool->lock);
	/* No other thread has the pool yet. */
	context_unsafe(INIT_LIST_HEAD(&pool->pages));
	return pool;
}
EXPORT_SYMBOL_IF_KUNIT(keel_dm_pool_new);

/**
 * keel_dm_pool_put() - drop a reference on a pool
 * @pool: the pool, freed with the last one: each page has a reference, so buffers may live
 *	longer than the context
 *
 * Context: any but interrupts.
 */
void keel_dm_pool_put(struct keel_dm_pool *pool)
{
	if (!refcount_dec_and_test(&pool->ref))
		return;
	/* This was the last reference. */
	context_unsafe(WARN_ON(!list_empty(&pool->pages)));
	put_pid(pool->owner);
	kfree(pool);
}
EXPORT_SYMBOL_IF_KUNIT(keel_dm_pool_put);

/**
 * keel_dm_pool_fits() - may a buffer of the calling process share a page?
 * @pool: the pool of its context
 * @length: its bytes, not 0
 * @log_align: its start is a multiple of 2^log_align
 *
 * Context: process context.
 */
bool keel_dm_pool_fits(const struct keel_dm_pool *pool, u64 length, u32 log_align)
{
	return length <= PAGE_SIZE / 2 && log_align < PAGE_SHIFT &&
	       task_tgid(current) == pool->owner &&
	       keel_user_id(current_cred()) == pool->user;
}
EXPORT_SYMBOL_IF_KUNIT(keel_dm_pool_fits);

static unsigned int keel_dm_cells(u64 length)
{
	return ALIGN(length, BIT(KEEL_CELL_SHIFT));
}

static void keel_dm_page_free(struct keel_dm_page *page)
{
	struct keel_dm_pool *pool = page->pool;

	keel_range_fini(&page->cells);
	keel_aperture_free(pool->ap, page->start, PAGE_SIZE);
	keel_quota_uncharge(page->user, KEEL_RES_DM_BYTES, PAGE_SIZE);
	kfree(page);
	keel_dm_pool_put(pool);
}

/* Create a page that is on no list yet. Return: the page, or ERR_PTR(-ENOMEM). */
static struct keel_dm_page *keel_dm_page_new(struct keel_dm_pool *pool)
{
	struct keel_dm_page *page = kzalloc_obj(*page, GFP_KERNEL_ACCOUNT);

	if (!page)
		return ERR_PTR(-ENOMEM);
	if (keel_range_init(&page->cells, PAGE_SIZE, KEEL_CELL_SHIFT, GFP_KERNEL_ACCOUNT))
		goto err_free;
	page->user = keel_quota_charge(pool->quotas, KEEL_RES_DM_BYTES, PAGE_SIZE,
				       GFP_KERNEL_ACCOUNT);
	if (IS_ERR(page->user))
		goto err_fini;
	if (keel_aperture_alloc(pool->ap, PAGE_SIZE, 0, &page->start))
		goto err_uncharge;
	INIT_LIST_HEAD(&page->node);
	refcount_inc(&pool->ref);
	page->pool = pool;
	return page;

err_uncharge:
	keel_quota_uncharge(page->user, KEEL_RES_DM_BYTES, PAGE_SIZE);
err_fini:
	keel_range_fini(&page->cells);
err_free:
	kfree(page);
	return ERR_PTR(-ENOMEM);
}

/* Give a buffer a part of a page, if there is room. The page may become full. */
static bool keel_dm_page_take(struct keel_dm_page *page, struct keel_dm *dm,
			      u32 log_align)
	__must_hold(&page->pool->lock)
{
	u64 at;

	lockdep_assert_held(&page->pool->lock);
	if (keel_range_alloc(&page->cells, dm->length, log_align, &at))
		return false;
	page->used += keel_dm_cells(dm->length);
	if (page->used == PAGE_SIZE)
		list_del_init(&page->node);
	dm->page = page;
	dm->start = page->start + at;
	return true;
}

/*
 * Take room in one of the first @tries pages: those where a buffer was freed last, or the
 * newest.
 */
static bool keel_dm_pool_take(struct keel_dm_pool *pool, struct keel_dm *dm,
			      u32 log_align, unsigned int tries)
{
	struct keel_dm_page *page;

	guard(spinlock)(&pool->lock);
	list_for_each_entry(page, &pool->pages, node) {
		/* It is the lock of this pool. */
		if (context_unsafe(keel_dm_page_take(page, dm, log_align)))
			return true;
		if (!--tries)
			break;
	}
	return false;
}

/*
 * Take room in a new page. If there is none, more of the others are tried; not all of them,
 * because there may be many, and their lock is a spinlock.
 */
static int keel_dm_pool_grow(struct keel_dm_pool *pool, struct keel_dm *dm, u32 log_align)
{
	struct keel_dm_page *page;

	keel_point("dm_pool_full");
	/* Without the lock, which a free needs, of any process that shares the context. */
	page = keel_dm_page_new(pool);
	/* Another thread may have got the last one just now. */
	if (IS_ERR(page))
		return keel_dm_pool_take(pool, dm, log_align, KEEL_POOL_LAST_TRIES) ?
		       0 : PTR_ERR(page);
	guard(spinlock)(&pool->lock);
	list_add(&page->node, &pool->pages);
	/* An empty page has room. */
	context_unsafe(WARN_ON(!keel_dm_page_take(page, dm, log_align)));
	return 0;
}

/**
 * keel_dm_pool_alloc() - allocate a small buffer
 * @pool: the pool of its context
 * @dm: the buffer, of which &keel_dm.length is set; gets &keel_dm.start and &keel_dm.page
 * @log_align: its start is a multiple of 2^log_align; see keel_dm_pool_fits()
 *
 * All bytes of the buffer are zero.
 *
 * Context: process context; may sleep.
 * Return: 0; -ENOMEM if memory, device memory or the share of the user is short. Then other
 * pages of the pool may still have room.
 */
int keel_dm_pool_alloc(struct keel_dm_pool *pool, struct keel_dm *dm, u32 log_align)
{
	if (!keel_dm_pool_take(pool, dm, log_align, KEEL_POOL_TRIES)) {
		int ret = keel_dm_pool_grow(pool, dm, log_align);

		if (ret)
			return ret;
	}
	/* Processes that have mapped the page may have written there. */
	keel_aperture_zero(pool->ap, dm->start, dm->length);
	return 0;
}
EXPORT_SYMBOL_IF_KUNIT(keel_dm_pool_alloc);

/**
 * keel_dm_pool_free() - free a small buffer
 * @dm: the buffer, from keel_dm_pool_alloc(); its page may be freed, and the pool
 *
 * Context: any but interrupts.
 */
void keel_dm_pool_free(struct keel_dm *dm)
{
	struct keel_dm_page *page = dm->page;
	bool gone;

	/*
	 * The buffer keeps the page, and the page the pool. Another thread may free both
	 * when the lock is dropped.
	 */
	scoped_guard(spinlock, &page->pool->lock) {
		keel_range_free(&page->cells, dm->start - page->start, dm->length);
		page->used -= keel_dm_cells(dm->length);
		gone = !page->used;
		if (gone)
			list_del_init(&page->node);
		else
			list_move(&page->node, &page->pool->pages);
	}
	/* On no list, and without buffers: nobody else finds it. */
	if (gone)
		keel_dm_page_free(page);
}
EXPORT_SYMBOL_IF_KUNIT(keel_dm_pool_free);
