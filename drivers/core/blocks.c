// SPDX-License-Identifier: GPL-2.0
/*
 * Blocks of pinned memory: see keel_blocks.h. Each run of contiguous pages is looked at
 * once for every block that it is in. Only blocks that are not contiguous are looked at
 * again, page by page.
 */
#include <linux/err.h>
#include <linux/kasan.h>
#include <linux/minmax.h>
#include <linux/scatterlist.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <kunit/visibility.h>

#include "compat.h"
#include "keel_blocks.h"

/* A part of a run of pages that is in one block. */
struct keel_block_part {
	unsigned long first;	/* page, counted from the start of the first block */
	unsigned long n;
	unsigned long addr;
};

/* Call @use for each part, until all pages were seen. Returns the number of pages left. */
static unsigned long keel_blocks_walk(struct keel_blocks *blocks,
				      struct sg_table *sgt,
				      void (*use)(struct keel_blocks *blocks,
						  const struct keel_block_part *part))
{
	struct keel_block_part part = { .first = blocks->skip };
	unsigned long left = blocks->n, run;
	struct scatterlist *sg;
	unsigned int i;

	for_each_sgtable_sg(sgt, sg, i) {
		/* The tag of the first page is not that of the others. */
		part.addr = (unsigned long)kasan_reset_tag(page_address(sg_page(sg)));
		run = min(PAGE_ALIGN(sg->offset + sg->length) / PAGE_SIZE, left);
		for (left -= run; run; run -= part.n) {
			part.n = min(run, KEEL_BLOCK_PAGES -
					  part.first % KEEL_BLOCK_PAGES);
			use(blocks, &part);
			part.first += part.n;
			part.addr += part.n * PAGE_SIZE;
		}
		cond_resched();
	}
	return left;
}

/* First walk: the address of each block, or KEEL_BLOCK_LISTED. */
static void keel_block_see(struct keel_blocks *blocks, const struct keel_block_part *part)
{
	unsigned long *entry = &blocks->entry[part->first / KEEL_BLOCK_PAGES];
	unsigned long block = part->addr - part->first % KEEL_BLOCK_PAGES * PAGE_SIZE;

	if (part->first == blocks->skip || !(part->first % KEEL_BLOCK_PAGES))
		*entry = block;
	else if (*entry != block)
		*entry = KEEL_BLOCK_LISTED;
}

/* Second walk: the pages of the others. */
static void keel_block_list(struct keel_blocks *blocks, const struct keel_block_part *part)
{
	unsigned long block = blocks->entry[part->first / KEEL_BLOCK_PAGES], i;
	unsigned long *page;

	if (!(block & KEEL_BLOCK_LISTED))
		return;
	page = (unsigned long *)(block & ~KEEL_BLOCK_LISTED) +
	       part->first % KEEL_BLOCK_PAGES;
	for (i = 0; i < part->n; i++)
		page[i] = part->addr + i * PAGE_SIZE;
}

/* The pages of a block that belong to the memory. */
static unsigned long keel_block_pages(const struct keel_blocks *blocks, unsigned long i)
{
	unsigned long end = blocks->skip + blocks->n - i * KEEL_BLOCK_PAGES;

	return min(end, KEEL_BLOCK_PAGES) - (i ? 0 : blocks->skip);
}

static unsigned long keel_blocks_count(const struct keel_blocks *blocks)
{
	return DIV_ROUND_UP(blocks->skip + blocks->n, KEEL_BLOCK_PAGES);
}

/* Let the entries of blocks that are not contiguous refer to lists. */
static int keel_blocks_divide(struct keel_blocks *blocks)
{
	unsigned long n = keel_blocks_count(blocks), sum = 0, i;
	unsigned long *next;

	for (i = 0; i < n; i++) {
		if (blocks->entry[i] == KEEL_BLOCK_LISTED)
			sum += keel_block_pages(blocks, i);
		cond_resched();
	}
	if (!sum)
		return 0;
	/* More than kvmalloc() can allocate is an error of the caller, and no bug. */
	blocks->pages = kvmalloc_array(sum, sizeof(*next),
				       GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!blocks->pages)
		return -ENOMEM;
	next = blocks->pages;
	for (i = 0; i < n; i++) {
		cond_resched();
		if (blocks->entry[i] != KEEL_BLOCK_LISTED)
			continue;
		/* The pages before the first one have no elements. */
		blocks->entry[i] |= (unsigned long)(next - (i ? 0 : blocks->skip));
		next += keel_block_pages(blocks, i);
	}
	return 0;
}

/**
 * keel_blocks_new() - describe where pinned memory is
 * @sgt: its pages, in order, which have addresses in the kernel's linear mapping
 * @start: the address of the first byte, for the process that owns it: huge pages of the
 *	process become whole blocks
 * @bytes: their number, at least 1
 *
 * Context: may sleep. The memory is charged to the calling process.
 * Return: the blocks, which the caller frees; ERR_PTR(-ENOMEM); or ERR_PTR(-EFAULT) if
 * @sgt has fewer pages.
 */
struct keel_blocks *keel_blocks_new(struct sg_table *sgt, u64 start, u64 bytes)
{
	const struct keel_blocks size = {
		.n = ((offset_in_page(start) + bytes - 1) >> PAGE_SHIFT) + 1,
		.skip = (start >> PAGE_SHIFT) % KEEL_BLOCK_PAGES,
	};
	struct keel_blocks *blocks;
	int ret;

	blocks = kvzalloc(struct_size(blocks, entry, keel_blocks_count(&size)),
			  GFP_KERNEL_ACCOUNT);
	if (!blocks)
		return ERR_PTR(-ENOMEM);
	blocks->n = size.n;
	blocks->skip = size.skip;
	ret = keel_blocks_walk(blocks, sgt, keel_block_see) ? -EFAULT :
	      keel_blocks_divide(blocks);
	if (ret) {
		kvfree(blocks);
		return ERR_PTR(ret);
	}
	if (blocks->pages)
		keel_blocks_walk(blocks, sgt, keel_block_list);
	return blocks;
}
EXPORT_SYMBOL_IF_KUNIT(keel_blocks_new);

/**
 * keel_blocks_free() - free a description
 * @blocks: the blocks, or NULL; no thread uses them
 *
 * Context: may sleep.
 */
void keel_blocks_free(struct keel_blocks *blocks)
{
	if (!blocks)
		return;
	kvfree(blocks->pages);
	kvfree(blocks);
}
EXPORT_SYMBOL_IF_KUNIT(keel_blocks_free);
