// SPDX-License-Identifier: GPL-2.0
/*
 * Arenas: memory of every kind, with a shadow of its expected content.
 */
#include <linux/err.h>
#include <linux/gfp.h>
#include <linux/mm.h>
#include <linux/scatterlist.h>

#include "arena.h"
#include "keel_aperture.h"

KUNIT_DEFINE_ACTION_WRAPPER(aperture_done, keel_aperture_destroy,
			    struct keel_aperture *);

static void page_done(void *page)
{
	__free_page(page);
}

static void block_done(void *ptr)
{
	__free_pages(ptr, get_order(ARENA_SIZE));
}

static void blocks_done(void *blocks)
{
	keel_blocks_free(blocks);
}

/* Describe the pages, as a region does that starts near the end of a block. */
static void arena_blocks(struct kunit *test, struct arena *a)
{
	u64 start = KEEL_BLOCK_BYTES - ARENA_IN_BLOCK * PAGE_SIZE + ARENA_FIRST;
	struct sg_table sgt;

	KUNIT_ASSERT_EQ(test, 0, sg_alloc_table_from_pages(&sgt, a->pages, ARENA_PAGES, 0,
							   ARENA_SIZE, GFP_KERNEL));
	a->blocks = keel_blocks_new(&sgt, start, ARENA_SIZE - ARENA_FIRST);
	sg_free_table(&sgt);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, a->blocks);
	KUNIT_ASSERT_EQ(test, 0, kunit_add_action_or_reset(test, blocks_done, a->blocks));
	a->mem.type = KEEL_MEM_PAGES;
	a->mem.blocks = a->blocks->entry;
	a->mem.n = a->blocks->n;
	a->mem.first = start;
}

static void arena_adjacent(struct kunit *test, struct arena *a, int from, int n)
{
	struct page *block = alloc_pages(GFP_KERNEL, get_order(ARENA_SIZE));
	int i;

	KUNIT_ASSERT_NOT_NULL(test, block);
	KUNIT_ASSERT_EQ(test, 0, kunit_add_action_or_reset(test, block_done, block));
	for (i = 0; i < n; i++)
		a->pages[from + i] = block + i;
}

static void arena_scattered(struct kunit *test, struct arena *a, int from,
			    struct rnd_state *rnd)
{
	int i, j;

	for (i = from; i < ARENA_PAGES; i++) {
		a->pages[i] = alloc_page(GFP_KERNEL);
		KUNIT_ASSERT_NOT_NULL(test, a->pages[i]);
		KUNIT_ASSERT_EQ(test, 0,
				kunit_add_action_or_reset(test, page_done,
							  a->pages[i]));
	}
	for (i = ARENA_PAGES - 1; i > from; i--) {
		j = from + prandom_u32_state(rnd) % (i - from);
		swap(a->pages[i], a->pages[j]);
	}
}

static void arena_pages(struct kunit *test, struct arena *a,
			struct rnd_state *rnd)
{
	a->pages = kunit_kcalloc(test, ARENA_PAGES, sizeof(*a->pages),
				 GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, a->pages);
	if (a->kind == ARENA_TOGETHER) {
		arena_adjacent(test, a, 0, ARENA_PAGES);
	} else if (a->kind == ARENA_MIXED) {
		arena_adjacent(test, a, 0, ARENA_IN_BLOCK);
		arena_scattered(test, a, ARENA_IN_BLOCK, rnd);
	} else {
		arena_scattered(test, a, 0, rnd);
	}
	arena_blocks(test, a);
}

static void arena_dm(struct kunit *test, struct arena *a)
{
	struct keel_aperture *ap;
	void *buf;

	if (a->kind == ARENA_BAR) {
		buf = kunit_kmalloc(test, ARENA_SIZE, GFP_KERNEL);
		KUNIT_ASSERT_NOT_NULL(test, buf);
		ap = keel_aperture_bar_over(0, buf, ARENA_SIZE);
	} else {
		ap = keel_aperture_mem_create(ARENA_SIZE);
	}
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, ap);
	KUNIT_ASSERT_EQ(test, 0, kunit_add_action_or_reset(test, aperture_done,
							   ap));
	a->mem.type = KEEL_MEM_DM;
	a->mem.ap = ap;
	a->mem.start = ARENA_FIRST;
}

static void arena_kernel(struct kunit *test, struct arena *a)
{
	a->buf = kunit_kmalloc(test, ARENA_SIZE, GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, a->buf);
	a->mem.type = KEEL_MEM_KERNEL;
	a->mem.start = (uintptr_t)a->buf + ARENA_FIRST;
}

/* Pages of 1 << @shift bytes in any order: only some are adjacent. */
static void arena_list(struct kunit *test, struct arena *a, u8 shift,
		       struct rnd_state *rnd)
{
	u32 n = ARENA_SIZE >> shift, i, j;

	a->buf = kunit_kmalloc(test, ARENA_SIZE, GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, a->buf);
	a->mem.type = KEEL_MEM_LIST;
	a->mem.shift = shift;
	a->mem.n = n;
	a->mem.first = ARENA_FIRST;
	a->mem.list = kunit_kcalloc(test, n, sizeof(*a->mem.list), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, a->mem.list);
	for (i = 0; i < n; i++)
		a->mem.list[i] = (unsigned long)a->buf + (i << shift);
	for (i = 0; i < n / 4; i++) {
		j = prandom_u32_state(rnd) % n;
		swap(a->mem.list[i], a->mem.list[j]);
	}
}

static void arena_init(struct kunit *test, struct arena *a,
		       struct rnd_state *rnd)
{
	u64 at;

	switch (a->kind) {
	case ARENA_DM:
	case ARENA_BAR:
		arena_dm(test, a);
		break;
	case ARENA_KERNEL:
		arena_kernel(test, a);
		break;
	case ARENA_SMALL:
		arena_list(test, a, PAGE_SHIFT - 3, rnd);
		break;
	case ARENA_LARGE:
		arena_list(test, a, PAGE_SHIFT + 2, rnd);
		break;
	default:
		arena_pages(test, a, rnd);
		break;
	}
	a->shadow = kunit_kmalloc(test, ARENA_BYTES, GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, a->shadow);
	prandom_bytes_state(rnd, a->shadow, ARENA_BYTES);
	for (at = 0; at < ARENA_BYTES; at++)
		arena_set(a, at, a->shadow[at]);
}

struct arena *arenas_new(struct kunit *test, struct rnd_state *rnd)
{
	struct arena *all = kunit_kcalloc(test, ARENA_KINDS, sizeof(*all),
					  GFP_KERNEL);
	int i;

	KUNIT_ASSERT_NOT_NULL(test, all);
	for (i = 0; i < ARENA_KINDS; i++) {
		all[i].kind = i;
		arena_init(test, &all[i], rnd);
	}
	return all;
}

static u8 *arena_byte(const struct arena *a, u64 at)
{
	size_t len;

	at += ARENA_FIRST;
	if (a->mem.type == KEEL_MEM_LIST)
		return (u8 *)a->mem.list[at >> a->mem.shift] +
		       (at & ((1 << a->mem.shift) - 1));
	if (a->buf)
		return a->buf + at;
	if (a->mem.type == KEEL_MEM_DM)
		return keel_aperture_direct(a->mem.ap, at, &len);
	return page_address(a->pages[at / PAGE_SIZE]) + at % PAGE_SIZE;
}

u8 arena_get(const struct arena *a, u64 at)
{
	return *arena_byte(a, at);
}

void arena_set(struct arena *a, u64 at, u8 byte)
{
	*arena_byte(a, at) = byte;
}

long arena_differs(const struct arena *a)
{
	u64 at;

	for (at = 0; at < ARENA_BYTES; at++)
		if (arena_get(a, at) != a->shadow[at])
			return at;
	return -1;
}
