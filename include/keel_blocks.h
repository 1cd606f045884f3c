/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Where pinned memory is, in blocks of 2 MiB. Memory that is contiguous in a block, such
 * as a huge page, takes one number; else each page of the block takes one. A core unit: it
 * depends on no verb.
 */
#ifndef KEEL_BLOCKS_H
#define KEEL_BLOCKS_H

#include <linux/bits.h>
#include <linux/kernel.h>
#include <linux/mm.h>
#include <linux/nospec.h>
#include <linux/types.h>

struct sg_table;

#define KEEL_BLOCK_SHIFT	21
#define KEEL_BLOCK_BYTES	BIT_ULL(KEEL_BLOCK_SHIFT)
#define KEEL_BLOCK_PAGES	BIT(KEEL_BLOCK_SHIFT - PAGE_SHIFT)

/* In &keel_blocks.entry: the rest is the address of a list. */
#define KEEL_BLOCK_LISTED	1UL

/**
 * struct keel_blocks - where memory is
 * @n: number of its pages
 * @skip: number of pages of the first block that come before it
 * @pages: addresses of the pages of blocks that are not contiguous; or NULL
 * @entry: for each block its kernel address, of which only the pages that belong to the
 *	memory exist; or, with KEEL_BLOCK_LISTED, the address of the elements of @pages for
 *	it, likewise
 */
struct keel_blocks {
	unsigned long n;
	unsigned long skip;
	unsigned long *pages;
	unsigned long entry[];
};

struct keel_blocks *keel_blocks_new(struct sg_table *sgt, u64 start, u64 bytes);
void keel_blocks_free(struct keel_blocks *blocks);

/**
 * keel_blocks_find() - find a byte
 * @entry: &keel_blocks.entry
 * @n: &keel_blocks.n
 * @first: offset of the first byte of the memory in the first block
 * @off: the byte, counted from that one
 * @left: gets the number of bytes that are contiguous from there, to the end of the block
 *	or of the page
 *
 * The caller has checked the address of an SGE against the range of its key. A
 * processor that mispredicts the check runs this with any @off, and must not load
 * from beyond the entries and pages either.
 *
 * Context: any.
 * Return: its kernel address.
 */
static __always_inline void *keel_blocks_find(const unsigned long *entry, unsigned long n,
					      u32 first, u64 off, u64 *left)
{
	unsigned long skip = first >> PAGE_SHIFT;
	u64 pos = first + off;
	unsigned long page = skip + array_index_nospec((unsigned long)(pos >> PAGE_SHIFT) -
						       skip, n);
	unsigned long block = entry[page / KEEL_BLOCK_PAGES];
	unsigned long in;

	if (likely(!(block & KEEL_BLOCK_LISTED))) {
		in = page % KEEL_BLOCK_PAGES * PAGE_SIZE + offset_in_page(pos);
		*left = KEEL_BLOCK_BYTES - in;
		return (void *)(block + in);
	}
	in = offset_in_page(pos);
	*left = PAGE_SIZE - in;
	block &= ~KEEL_BLOCK_LISTED;
	return (void *)(((unsigned long *)block)[page % KEEL_BLOCK_PAGES] + in);
}

#endif /* KEEL_BLOCKS_H */
