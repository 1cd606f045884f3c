// SPDX-License-Identifier: GPL-2.0
/*
 * Blocks of pinned memory, over pages that exist as numbers only.
 */
#include <kunit/test.h>
#include <linux/err.h>
#include <linux/scatterlist.h>

#include "keel_blocks.h"

#define IN_BLOCK	KEEL_BLOCK_PAGES
#define MOST_RUNS	8

/**
 * struct shape - memory, and what its description is like
 * @name: of the case
 * @start: its first page, counted from the start of a block
 * @runs: numbers of adjacent pages; between two runs is a gap
 * @listed: number of pages in lists
 * @joined: bits of runs without a gap before them
 */
struct shape {
	const char *name;
	unsigned long start;
	unsigned long runs[MOST_RUNS];
	unsigned long listed;
	unsigned int joined;
};

static const struct shape shapes[] = {
	{ "a page", 3, { 1 }, 0 },
	{ "the last page of a block", IN_BLOCK - 1, { 1 }, 0 },
	{ "two adjacent pages in two blocks", IN_BLOCK - 1, { 2 }, 0 },
	{ "two pages in two blocks", IN_BLOCK - 1, { 1, 1 }, 0 },
	{ "two pages in one block", 5, { 1, 1 }, 2 },
	{ "a block", 0, { IN_BLOCK }, 0 },
	{ "a block in two runs", 0, { 1, IN_BLOCK - 1 }, IN_BLOCK },
	{ "a block in two runs without a gap", 0, { 1, IN_BLOCK - 1 }, 0, BIT(1) },
	{ "three runs, the last two without a gap", 2, { 3, 4, 5 }, 12, BIT(2) },
	{ "four blocks", 0, { 4 * IN_BLOCK }, 0 },
	{ "four blocks from the second page on", 1, { 4 * IN_BLOCK }, 0 },
	{ "huge pages", 0, { IN_BLOCK, IN_BLOCK, IN_BLOCK }, 0 },
	{ "huge pages between others", IN_BLOCK - 2,
	  { 1, 1, IN_BLOCK, IN_BLOCK, 1, 3 }, 2 + 4 },
	{ "huge pages that the process has elsewhere in its blocks", 7,
	  { IN_BLOCK, IN_BLOCK }, IN_BLOCK },
	{ "a gap in the last block", IN_BLOCK / 2, { IN_BLOCK, 1 }, IN_BLOCK / 2 + 1 },
	{ "a gap in the first block", 9, { 2, IN_BLOCK }, IN_BLOCK - 9 },
};

static void shape_desc(const struct shape *shape, char *desc)
{
	strscpy(desc, shape->name, KUNIT_PARAM_DESC_SIZE);
}

KUNIT_ARRAY_PARAM(shape, shapes, shape_desc);

/* The page frames of run @i start here. */
static struct page *run_start(const struct shape *s, int i)
{
	unsigned long pfn = PHYS_PFN(__pa(PAGE_OFFSET)) + 1000;

	for (; i; i--)
		pfn += s->runs[i - 1] + !(s->joined & BIT(i));
	return pfn_to_page(pfn);
}

static void fill(struct kunit *test, const struct shape *s, struct sg_table *sgt)
{
	struct scatterlist *sg;
	int n = 0, i;

	while (n < MOST_RUNS && s->runs[n])
		n++;
	KUNIT_ASSERT_EQ(test, 0, sg_alloc_table(sgt, n, GFP_KERNEL));
	for_each_sgtable_sg(sgt, sg, i)
		sg_set_page(sg, run_start(s, i), s->runs[i] * PAGE_SIZE, 0);
}

static unsigned long count_listed(const struct keel_blocks *blocks)
{
	unsigned long end = blocks->skip + blocks->n, sum = 0, i;

	for (i = blocks->skip; i < end; i++)
		sum += blocks->entry[i / IN_BLOCK] & KEEL_BLOCK_LISTED;
	return sum;
}

/* Each page is where it is, and as many bytes are contiguous as the block allows. */
static void check_all(struct kunit *test, const struct shape *s,
		      const struct keel_blocks *blocks)
{
	u32 first = s->start * PAGE_SIZE + 100;
	unsigned long page = 0, j;
	unsigned long in;
	bool listed;
	u64 left;
	void *at;
	int i;

	for (i = 0; i < MOST_RUNS && s->runs[i]; i++)
		for (j = 0; j < s->runs[i]; j++, page++) {
			at = keel_blocks_find(blocks->entry, blocks->n, first,
					      page * PAGE_SIZE, &left);
			KUNIT_ASSERT_PTR_EQ(test, page_address(run_start(s, i) + j) + 100,
					    at);
			in = (s->start + page) % IN_BLOCK * PAGE_SIZE + 100;
			listed = blocks->entry[(s->start + page) / IN_BLOCK] &
				 KEEL_BLOCK_LISTED;
			KUNIT_ASSERT_EQ(test, left, listed ? PAGE_SIZE - 100 :
							     KEEL_BLOCK_BYTES - in);
		}
	KUNIT_EXPECT_EQ(test, blocks->n, page);
}

/* DEV-4 */
static void dev_4_blocks(struct kunit *test)
{
	const struct shape *s = test->param_value;
	u64 start = 7 * KEEL_BLOCK_BYTES + s->start * PAGE_SIZE + 100, pages = 0;
	struct keel_blocks *blocks;
	struct sg_table sgt;
	int i;

	for (i = 0; i < MOST_RUNS; i++)
		pages += s->runs[i];
	fill(test, s, &sgt);
	blocks = keel_blocks_new(&sgt, start, pages * PAGE_SIZE - 200);
	KUNIT_EXPECT_PTR_EQ(test, ERR_PTR(-EFAULT),
			    keel_blocks_new(&sgt, start, pages * PAGE_SIZE));
	sg_free_table(&sgt);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, blocks);
	check_all(test, s, blocks);
	KUNIT_EXPECT_EQ(test, s->listed, count_listed(blocks));
	KUNIT_EXPECT_EQ(test, !s->listed, !blocks->pages);
	keel_blocks_free(blocks);
}

static struct kunit_case blocks_cases[] = {
	KUNIT_CASE_PARAM(dev_4_blocks, shape_gen_params),
	{}
};

static struct kunit_suite blocks_suite = {
	.name = "keel_blocks",
	.test_cases = blocks_cases,
};
kunit_test_suite(blocks_suite);
