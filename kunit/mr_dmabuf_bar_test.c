// SPDX-License-Identifier: GPL-2.0
/*
 * A dma-buf may be a part of the device's own memory: the DMA addresses of the exporter
 * are compared with those of the BAR.
 */
#include <kunit/test.h>
#include <linux/dma-buf.h>
#include <linux/mm.h>
#include <linux/scatterlist.h>

#include "keel_mr.h"

#if KEEL_DMABUF_EXPORT

#define P	((u64)PAGE_SIZE)
/* First page frame of the BAR, and its pages. */
#define PFN	0x1000
#define PAGES	8

static void bar_segment(struct keel_aperture *ap, u64 off,
			struct keel_aperture_seg *seg)
{
	*seg = (struct keel_aperture_seg){ .len = PAGES * P, .pfn = PFN };
}

static const struct keel_aperture_ops bar_ops = {
	.segment = bar_segment,
};

/**
 * struct find_case - a dma-buf, as its exporter maps it
 * @desc: description
 * @n: number of parts
 * @part: its parts: pages from the start of the BAR, and number of pages
 * @pages: its size
 * @ret: result of keel_own_find()
 * @start: its first page in the BAR
 */
struct find_case {
	const char *desc;
	unsigned int n;
	struct {
		s64 at;
		u32 len;
	} part[2];
	u64 pages;
	int ret;
	u64 start;
};

static const struct find_case find_cases[] = {
	{ "DM-6: all of the BAR", 1, { { 0, 8 } }, 8, 0, 0 },
	{ "DM-6: a part", 1, { { 2, 3 } }, 3, 0, 2 },
	{ "DM-6: the last page", 1, { { 7, 1 } }, 1, 0, 7 },
	{ "DM-6: two adjacent parts", 2, { { 3, 1 }, { 4, 2 } }, 3, 0, 3 },
	{ "DM-6: adjacent parts up to the end", 2, { { 4, 3 }, { 7, 1 } }, 4, 0, 4 },
	{ "DM-6: a part that leaves the BAR", 1, { { 6, 3 } }, 3, -EOPNOTSUPP, 0 },
	{ "DM-6: the page after the BAR", 1, { { 8, 1 } }, 1, -EOPNOTSUPP, 0 },
	{ "DM-6: memory far after it", 1, { { 100, 1 } }, 1, -EOPNOTSUPP, 0 },
	{ "DM-6: the page before the BAR", 1, { { -1, 1 } }, 1, -EOPNOTSUPP, 0 },
	{ "DM-6: a part that begins before it", 1, { { -1, 2 } }, 2, -EOPNOTSUPP, 0 },
	{ "DM-6: a second part that leaves it", 2, { { 6, 1 }, { 7, 2 } }, 3,
	  -EOPNOTSUPP, 0 },
	{ "DM-6: a gap", 2, { { 0, 1 }, { 2, 1 } }, 2, -EOPNOTSUPP, 0 },
	{ "DM-6: a gap that the size includes", 2, { { 0, 1 }, { 2, 1 } }, 3,
	  -EOPNOTSUPP, 0 },
	{ "DM-6: backwards", 2, { { 3, 1 }, { 2, 1 } }, 2, -EOPNOTSUPP, 0 },
	{ "DM-6: the same page twice", 2, { { 3, 1 }, { 3, 1 } }, 2, -EOPNOTSUPP, 0 },
	{ "DM-6: a mapping of one page of two", 1, { { 3, 1 } }, 2, -EOPNOTSUPP, 0 },
	{ "DM-6: a mapping of more than the size", 1, { { 3, 2 } }, 1,
	  -EOPNOTSUPP, 0 },
	{ "DM-6: two parts of three pages", 2, { { 3, 1 }, { 4, 1 } }, 3,
	  -EOPNOTSUPP, 0 },
	{ "DM-6: no part", 0, {}, 0, -EOPNOTSUPP, 0 },
};
KUNIT_ARRAY_PARAM_DESC(find, find_cases, desc);

static void own_find(struct kunit *test)
{
	const struct find_case *c = test->param_value;
	struct keel_dev *kdev = kunit_kzalloc(test, sizeof(*kdev), GFP_KERNEL);
	struct keel_aperture *ap = kunit_kzalloc(test, sizeof(*ap), GFP_KERNEL);
	struct dma_buf *dmabuf = kunit_kzalloc(test, sizeof(*dmabuf), GFP_KERNEL);
	struct scatterlist sg[2];
	struct sg_table sgt = { .sgl = sg, .nents = c->n, .orig_nents = c->n };
	u64 start = 0;
	int i;

	KUNIT_ASSERT_NOT_NULL(test, kdev);
	KUNIT_ASSERT_NOT_NULL(test, ap);
	KUNIT_ASSERT_NOT_NULL(test, dmabuf);
	ap->ops = &bar_ops;
	ap->size = PAGES * P;
	kdev->ap = ap;
	dmabuf->size = c->pages * P;
	sg_init_table(sg, 2);
	for (i = 0; i < 2; i++) {
		sg_dma_address(&sg[i]) = PFN_PHYS(PFN) + c->part[i].at * (s64)P;
		sg_dma_len(&sg[i]) = c->part[i].len * P;
	}
	KUNIT_EXPECT_EQ(test, c->ret, keel_own_find(kdev, dmabuf, &sgt, &start));
	if (!c->ret)
		KUNIT_EXPECT_EQ(test, c->start * P, start);
}

static struct kunit_case own_cases[] = {
	KUNIT_CASE_PARAM(own_find, find_gen_params),
	{}
};

static struct kunit_suite own_suite = {
	.name = "keel_mr_dmabuf_bar",
	.test_cases = own_cases,
};
kunit_test_suite(own_suite);

#endif /* KEEL_DMABUF_EXPORT */
