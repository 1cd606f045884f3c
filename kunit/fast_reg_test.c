// SPDX-License-Identifier: GPL-2.0
/*
 * Fast registration: regions of kernel consumers. ib_map_mr_sg() sets their
 * pages, and work requests make their keys valid and invalid.
 */
#include <linux/gfp.h>
#include <linux/scatterlist.h>
#include <linux/sizes.h>

#include "keel_mr.h"
#include "pair.h"

#define PAGES		4
#define BLANK		0xee

/* Pages that are not adjacent, with one scatterlist entry each. */
struct scattered {
	u8 *page[PAGES];
	struct scatterlist sg[PAGES];
};

static void free_one(void *page)
{
	free_page((unsigned long)page);
}

static u8 *page_new(struct kunit *test)
{
	u8 *page = (u8 *)__get_free_page(GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, page);
	KUNIT_ASSERT_EQ(test, 0,
			kunit_add_action_or_reset(test, free_one, page));
	memset(page, BLANK, PAGE_SIZE);
	return page;
}

/* Create a list of @len bytes, which starts at @first of the first page. */
static struct scattered *scattered_new(struct kunit *test, u32 first, u32 len)
{
	struct scattered *s = kunit_kzalloc(test, sizeof(*s), GFP_KERNEL);
	u32 n;
	int i;

	KUNIT_ASSERT_NOT_NULL(test, s);
	for (i = 0; i < PAGES; i++)
		s->page[i] = page_new(test);
	/* Swap adjacent pages. */
	swap(s->page[0], s->page[2]);
	sg_init_table(s->sg, PAGES);
	for (i = 0; len; i++) {
		n = min_t(u32, len, PAGE_SIZE - first);
		sg_set_buf(&s->sg[i], s->page[i] + first, n);
		len -= n;
		first = 0;
	}
	if (i)
		sg_mark_end(&s->sg[i - 1]);
	return s;
}

/* Create the extra region of the test, with room for @pages pages. */
static struct ib_mr *mr_new(struct kunit *test, u32 pages)
{
	struct pair *p = test->priv;

	p->extra = ib_alloc_mr(p->pd, IB_MR_TYPE_MEM_REG, pages);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, p->extra);
	return p->extra;
}

static int mr_map(struct pair *p, struct ib_mr *mr, struct scatterlist *sg,
		  unsigned int *sg_offset)
{
	int nents = sg_nents(sg);

	KUNIT_EXPECT_EQ(p->test, nents,
			ib_dma_map_sg(p->ibdev, sg, nents, DMA_BIDIRECTIONAL));
	return ib_map_mr_sg(mr, sg, nents, sg_offset, PAGE_SIZE);
}

/* Run one RDMA operation between the start of A's buffer and a region. */
static const struct ib_wc *rdma(struct pair *p, enum ib_wr_opcode op, u32 rkey,
				u64 addr, u32 len)
{
	struct ib_sge sge = end_sge(p, &p->a, 0, len);
	const struct ib_rdma_wr wr = {
		.wr.opcode = op,
		.wr.send_flags = IB_SEND_SIGNALED,
		.wr.sg_list = &sge,
		.wr.num_sge = 1,
		.remote_addr = addr,
		.rkey = rkey,
	};

	p->a.wcs = 0;
	KUNIT_ASSERT_EQ(p->test, 0, ib_post_send(p->a.qp, &wr.wr, NULL));
	pair_settle(p, &p->a, 1);
	return &p->a.wc[0];
}

static void write_works(struct pair *p, u32 rkey, u64 addr, u32 len)
{
	KUNIT_EXPECT_EQ(p->test, IB_WC_SUCCESS,
			rdma(p, IB_WR_RDMA_WRITE, rkey, addr, len)->status);
}

static void write_refused(struct pair *p, u32 rkey, u64 addr, u32 len,
			  enum keel_uapi_why why)
{
	const struct ib_wc *wc = rdma(p, IB_WR_RDMA_WRITE, rkey, addr, len);

	KUNIT_EXPECT_EQ(p->test, IB_WC_REM_ACCESS_ERR, wc->status);
	KUNIT_EXPECT_EQ(p->test, why, wc->vendor_err);
}

static const struct ib_wc *invalidate(struct pair *p, u32 rkey)
{
	const struct ib_send_wr wr = {
		.opcode = IB_WR_LOCAL_INV,
		.send_flags = IB_SEND_SIGNALED,
		.ex.invalidate_rkey = rkey,
	};

	p->clerk.wcs = 0;
	KUNIT_ASSERT_EQ(p->test, 0, ib_post_send(p->clerk.qp, &wr, NULL));
	pair_settle(p, &p->clerk, 1);
	return &p->clerk.wc[0];
}

static void invalidates(struct pair *p, u32 rkey)
{
	KUNIT_EXPECT_EQ(p->test, IB_WC_SUCCESS, invalidate(p, rkey)->status);
}

/* Return the first byte that is neither the byte of A nor blank, or -1. */
static long scattered_differs(const struct pair *p, const struct scattered *s,
			      u32 first, u32 len)
{
	u32 i;

	for (i = 0; i < PAGES * PAGE_SIZE; i++) {
		u8 want = i >= first && i < first + len ?
			  p->a.buf[i - first] : BLANK;

		if (s->page[i / PAGE_SIZE][i % PAGE_SIZE] != want)
			return i;
	}
	return -1;
}

struct list_case {
	const char *desc;
	u32 first, len;
	unsigned int sg_offset;
};

static const struct list_case list_cases[] = {
	{ "a page", 0, PAGE_SIZE, 0 },
	{ "four pages", 0, PAGES * PAGE_SIZE, 0 },
	{ "a byte", 1234, 1, 0 },
	{ "the last byte", PAGE_SIZE - 1, 1, 0 },
	{ "a byte of each of two", PAGE_SIZE - 1, 2, 0 },
	{ "an odd part of four", 1237, 3 * PAGE_SIZE, 0 },
	{ "all but the ends", 1, PAGES * PAGE_SIZE - 2, 0 },
	{ "from an offset", 0, 2 * PAGE_SIZE, 300 },
	{ "from an offset of an offset", 200, 2 * PAGE_SIZE, 300 },
};
KUNIT_ARRAY_PARAM_DESC(list, list_cases, desc);

/* Operations access exactly the bytes of the list. */
static void fast_reg_list(struct kunit *test)
{
	const struct list_case *c = test->param_value;
	struct scattered *s = scattered_new(test, c->first, c->len);
	unsigned int off = c->sg_offset;
	u32 first = c->first + off, len = c->len - off;
	struct pair *p = test->priv;
	struct ib_mr *mr;

	pair_make(p, IB_QPT_RC);
	pair_connect(p);
	mr = mr_new(test, PAGES);
	KUNIT_EXPECT_EQ(test, sg_nents(s->sg),
			mr_map(p, mr, s->sg, off ? &off : NULL));
	KUNIT_EXPECT_EQ(test, 0, off);
	KUNIT_EXPECT_EQ(test, len, mr->length);
	KUNIT_EXPECT_EQ(test, (uintptr_t)s->page[0] + first, mr->iova);
	KUNIT_EXPECT_EQ(test, IB_WC_SUCCESS,
			pair_register(p, mr, mr->rkey, PAIR_RIGHTS));
	write_works(p, mr->rkey, mr->iova, len);
	KUNIT_EXPECT_EQ(test, -1, scattered_differs(p, s, first, len));
	memset(p->a.buf, BLANK, PAIR_BYTES);
	KUNIT_EXPECT_EQ(test, IB_WC_SUCCESS,
			rdma(p, IB_WR_RDMA_READ, mr->rkey, mr->iova, len)->status);
	KUNIT_EXPECT_EQ(test, -1, end_differs(&p->a, 0, &p->a, 0, len));
	write_refused(p, mr->rkey, mr->iova, len + 1, KEEL_WHY_RANGE);
	KUNIT_EXPECT_EQ(test, -1, scattered_differs(p, s, first, len));
}

/* The region ends where its page list is full or has a gap. */
static void fast_reg_too_much(struct kunit *test)
{
	struct scattered *s = scattered_new(test, 0, PAGES * PAGE_SIZE);
	struct pair *p = test->priv;
	unsigned int off = 0;
	struct ib_mr *mr;

	pair_make(p, IB_QPT_RC);
	mr = mr_new(test, PAGES - 1);
	KUNIT_EXPECT_EQ(test, PAGES - 1, mr_map(p, mr, s->sg, NULL));
	KUNIT_EXPECT_EQ(test, (PAGES - 1) * PAGE_SIZE, mr->length);
	/* The second entry starts in the middle of its page. */
	sg_set_buf(&s->sg[1], s->page[1] + 8, 8);
	KUNIT_EXPECT_EQ(test, 1, mr_map(p, mr, s->sg, NULL));
	KUNIT_EXPECT_EQ(test, PAGE_SIZE, mr->length);
	/* One entry with more pages than the region has room for. */
	sg_init_one(s->sg, p->a.buf, PAIR_BYTES);
	KUNIT_EXPECT_EQ(test, 0, mr_map(p, mr, s->sg, &off));
	KUNIT_EXPECT_GT(test, off, 0);
	KUNIT_EXPECT_LE(test, off, (PAGES - 1) * PAGE_SIZE);
}

/* Blocks that are not adjacent, with an entry for the used part of each. */
struct blocks {
	u32 size;
	u32 first;	/* first used byte of the first block */
	u8 *block[3];
	struct scatterlist sg[3];
};

static void free_block(void *block)
{
	__free_pages(virt_to_page(block), compound_order(virt_to_page(block)));
}

static u8 *block_new(struct kunit *test, u32 size)
{
	struct page *page = alloc_pages(GFP_KERNEL | __GFP_COMP,
					get_order(size));

	KUNIT_ASSERT_NOT_NULL(test, page);
	KUNIT_ASSERT_EQ(test, 0,
			kunit_add_action_or_reset(test, free_block,
						  page_address(page)));
	/* Pages of a consumer must be aligned. */
	KUNIT_ASSERT_TRUE(test, IS_ALIGNED((uintptr_t)page_address(page), size));
	memset(page_address(page), BLANK, size);
	return page_address(page);
}

/* Use byte @first of the first block to byte @last of the last block. */
static struct blocks *blocks_new(struct kunit *test, u32 size, u32 first,
				 u32 last)
{
	struct blocks *b = kunit_kzalloc(test, sizeof(*b), GFP_KERNEL);
	int i;

	KUNIT_ASSERT_NOT_NULL(test, b);
	b->size = size;
	b->first = first;
	for (i = 0; i < 3; i++)
		b->block[i] = block_new(test, size);
	/* Swap adjacent blocks. */
	swap(b->block[0], b->block[2]);
	sg_init_table(b->sg, 3);
	sg_set_buf(&b->sg[0], b->block[0] + first, size - first);
	sg_set_buf(&b->sg[1], b->block[1], size);
	sg_set_buf(&b->sg[2], b->block[2], last + 1);
	return b;
}

/* Write @len bytes at @off of a region; no other byte of its blocks changes. */
static void blocks_write(struct pair *p, struct blocks *b,
			 const struct ib_mr *mr, u32 off, u32 len)
{
	u32 i, at, wrong = 0;
	u8 *byte;

	write_works(p, mr->rkey, mr->iova + off, len);
	for (i = 0; i < len; i++) {
		at = b->first + off + i;
		byte = &b->block[at / b->size][at % b->size];
		wrong += *byte != p->a.buf[i];
		*byte = BLANK;
	}
	KUNIT_EXPECT_EQ(p->test, 0, wrong);
	for (i = 0; i < 3; i++)
		KUNIT_EXPECT_NULL(p->test,
				  memchr_inv(b->block[i], BLANK, b->size));
}

struct size_case {
	const char *desc;
	u32 size, first, last;
};

static const struct size_case size_cases[] = {
	{ "DEV-2: 4 KiB", SZ_4K, 0, SZ_4K - 1 },
	{ "DEV-2: 4 KiB, unaligned", SZ_4K, 1237, 99 },
	{ "DEV-2: 128 KiB", SZ_128K, 0, SZ_128K - 1 },
	{ "DEV-2: 128 KiB, unaligned", SZ_128K, SZ_64K + 1237, 99 },
	{ "DEV-2: 128 KiB, a page of the last", SZ_128K, 0, PAGE_SIZE - 1 },
	{ "DEV-2: 2 MiB", SZ_2M, 0, SZ_2M - 1 },
	{ "DEV-2: 2 MiB, unaligned", SZ_2M, SZ_2M - 101, 101 },
};
KUNIT_ARRAY_PARAM_DESC(size, size_cases, desc);

/* Every page size that the device supports: bytes arrive in the right place. */
static void fast_reg_sizes(struct kunit *test)
{
	const struct size_case *c = test->param_value;
	struct blocks *b = blocks_new(test, c->size, c->first, c->last);
	u32 one = c->size - c->first, len = one + c->size + c->last + 1;
	struct pair *p = test->priv;
	struct ib_mr *mr;

	pair_make(p, IB_QPT_RC);
	pair_connect(p);
	mr = mr_new(test, 3);
	KUNIT_EXPECT_TRUE(test, p->ibdev->attrs.page_size_cap & c->size);
	KUNIT_EXPECT_EQ(test, 3, ib_dma_map_sg(p->ibdev, b->sg, 3,
					       DMA_BIDIRECTIONAL));
	KUNIT_EXPECT_EQ(test, 3, ib_map_mr_sg(mr, b->sg, 3, NULL, c->size));
	KUNIT_EXPECT_EQ(test, len, mr->length);
	KUNIT_EXPECT_EQ(test, (uintptr_t)b->block[0] + c->first, mr->iova);
	KUNIT_EXPECT_EQ(test, IB_WC_SUCCESS,
			pair_register(p, mr, mr->rkey, PAIR_RIGHTS));
	blocks_write(p, b, mr, 0, min(one, 100U));
	/* Writes across both borders of blocks, and of the last bytes. */
	blocks_write(p, b, mr, one - 50, 100);
	blocks_write(p, b, mr, one + c->size - PAGE_SIZE, PAGE_SIZE + 100);
	blocks_write(p, b, mr, len - 99, 99);
	write_refused(p, mr->rkey, mr->iova + len - 99, 100, KEEL_WHY_RANGE);
	KUNIT_EXPECT_NULL(test, memchr_inv(b->block[2], BLANK, b->size));
}

/* Lists of larger pages are full, or have a gap, like lists of small pages. */
static void fast_reg_large_gap(struct kunit *test)
{
	struct blocks *b = blocks_new(test, SZ_128K, 8, SZ_64K - 1);
	struct pair *p = test->priv;
	struct ib_mr *mr;

	pair_make(p, IB_QPT_RC);
	mr = mr_new(test, 2);
	ib_dma_map_sg(p->ibdev, b->sg, 3, DMA_BIDIRECTIONAL);
	KUNIT_EXPECT_EQ(test, 2, ib_map_mr_sg(mr, b->sg, 3, NULL, SZ_128K));
	KUNIT_EXPECT_EQ(test, 2 * SZ_128K - 8, mr->length);
	/* A border of 4 KiB pages that is no border of 128 KiB pages. */
	sg_set_buf(&b->sg[1], b->block[1], SZ_64K);
	ib_dma_map_sg(p->ibdev, b->sg, 3, DMA_BIDIRECTIONAL);
	KUNIT_EXPECT_EQ(test, 2, ib_map_mr_sg(mr, b->sg, 3, NULL, SZ_128K));
	KUNIT_EXPECT_EQ(test, SZ_128K - 8 + SZ_64K, mr->length);
	sg_set_buf(&b->sg[1], b->block[1] + PAGE_SIZE, SZ_64K);
	ib_dma_map_sg(p->ibdev, b->sg, 3, DMA_BIDIRECTIONAL);
	KUNIT_EXPECT_EQ(test, 1, ib_map_mr_sg(mr, b->sg, 3, NULL, SZ_128K));
	KUNIT_EXPECT_EQ(test, SZ_128K - 8, mr->length);
}

/* A page of the largest size contains the whole buffer, at any address. */
static void fast_reg_largest(struct kunit *test)
{
	struct pair *p = test->priv;
	struct scatterlist sg;
	struct ib_mr *mr;

	pair_make(p, IB_QPT_RC);
	pair_connect(p);
	mr = mr_new(test, 2);
	sg_init_one(&sg, p->b.buf, PAIR_BYTES);
	ib_dma_map_sg(p->ibdev, &sg, 1, DMA_BIDIRECTIONAL);
	KUNIT_EXPECT_EQ(test, 1, ib_map_mr_sg(mr, &sg, 1, NULL, SZ_2G));
	KUNIT_EXPECT_EQ(test, PAIR_BYTES, mr->length);
	KUNIT_EXPECT_EQ(test, IB_WC_SUCCESS,
			pair_register(p, mr, mr->rkey, PAIR_RIGHTS));
	write_works(p, mr->rkey, mr->iova + 100, PAIR_BYTES - 100);
	KUNIT_EXPECT_EQ(test, -1, end_differs(&p->b, 100, &p->a, 0,
					      PAIR_BYTES - 100));
	KUNIT_EXPECT_EQ(test, -1, end_differs(&p->b, 0, &p->b, 0, 100));
	write_refused(p, mr->rkey, mr->iova, PAIR_BYTES + 1, KEEL_WHY_RANGE);
}

/* DEV-2: page sizes outside of page_size_cap are refused. */
static void dev_2_other_sizes(struct kunit *test)
{
	static const u32 none[] = { 0, 1, SZ_2K, SZ_4K + 1, 3 * SZ_4K, ~0U };
	struct scattered *s = scattered_new(test, 0, PAGE_SIZE);
	struct pair *p = test->priv;
	struct ib_mr *mr;
	u64 size;
	int i;

	pair_make(p, IB_QPT_RC);
	mr = mr_new(test, 1);
	ib_dma_map_sg(p->ibdev, s->sg, 1, DMA_BIDIRECTIONAL);
	KUNIT_EXPECT_EQ(test, 0xfffff000, p->ibdev->attrs.page_size_cap);
	for (i = 0; i < ARRAY_SIZE(none); i++)
		KUNIT_EXPECT_EQ_MSG(test, -EINVAL,
				    ib_map_mr_sg(mr, s->sg, 1, NULL, none[i]),
				    "%u", none[i]);
	for (size = PAGE_SIZE; size <= SZ_2G; size *= 2) {
		KUNIT_EXPECT_EQ(test, 1, ib_map_mr_sg(mr, s->sg, 1, NULL, size));
		KUNIT_EXPECT_EQ(test, PAGE_SIZE, mr->length);
	}
}

/* A page list of the maximum length, and of one page more. */
static void fast_reg_longest(struct kunit *test)
{
	struct scatterlist *sg = kunit_kcalloc(test, KEEL_MAX_FAST_REG,
					       sizeof(*sg), GFP_KERNEL);
	struct pair *p = test->priv;
	u8 *page = page_new(test);
	struct ib_mr *mr;
	int i;

	KUNIT_ASSERT_NOT_NULL(test, sg);
	pair_make(p, IB_QPT_RC);
	pair_connect(p);
	KUNIT_EXPECT_EQ(test, KEEL_MAX_FAST_REG,
			p->ibdev->attrs.max_fast_reg_page_list_len);
	mr = ib_alloc_mr(p->pd, IB_MR_TYPE_MEM_REG, KEEL_MAX_FAST_REG + 1);
	KUNIT_EXPECT_EQ(test, -EINVAL, PTR_ERR_OR_ZERO(mr));
	mr = ib_alloc_mr(p->pd, IB_MR_TYPE_MEM_REG, 0);
	KUNIT_EXPECT_EQ(test, -EINVAL, PTR_ERR_OR_ZERO(mr));
	mr = ib_alloc_mr(p->pd, IB_MR_TYPE_SG_GAPS, 1);
	KUNIT_EXPECT_EQ(test, -EOPNOTSUPP, PTR_ERR_OR_ZERO(mr));

	mr = mr_new(test, KEEL_MAX_FAST_REG);
	sg_init_table(sg, KEEL_MAX_FAST_REG);
	for (i = 0; i < KEEL_MAX_FAST_REG; i++)
		sg_set_buf(&sg[i], page, PAGE_SIZE);
	KUNIT_EXPECT_EQ(test, KEEL_MAX_FAST_REG, mr_map(p, mr, sg, NULL));
	KUNIT_EXPECT_EQ(test, IB_WC_SUCCESS,
			pair_register(p, mr, mr->rkey, PAIR_RIGHTS));
	write_works(p, mr->rkey, mr->iova + (KEEL_MAX_FAST_REG - 1) * PAGE_SIZE,
		    100);
	KUNIT_EXPECT_EQ(test, 0, memcmp(page, p->a.buf, 100));
	KUNIT_EXPECT_EQ(test, BLANK, page[100]);
	write_refused(p, mr->rkey, mr->iova + KEEL_MAX_FAST_REG * PAGE_SIZE, 1,
		      KEEL_WHY_RANGE);
}

/* Ways to make a key stale. */

static u32 stale_local(struct pair *p)
{
	invalidates(p, p->b.mr->rkey);
	return p->b.mr->rkey;
}

static u32 stale_peer(struct pair *p)
{
	const struct ib_send_wr wr = {
		.opcode = IB_WR_SEND_WITH_INV,
		.send_flags = IB_SEND_SIGNALED,
		.ex.invalidate_rkey = p->b.mr->rkey,
	};

	end_recv(p, &p->b, 1, 0, 8);
	KUNIT_ASSERT_EQ(p->test, 0, ib_post_send(p->a.qp, &wr, NULL));
	pair_settle(p, &p->a, 1);
	KUNIT_EXPECT_EQ(p->test, IB_WC_SUCCESS, p->a.wc[0].status);
	KUNIT_ASSERT_EQ(p->test, 1, p->b.wcs);
	KUNIT_EXPECT_EQ(p->test, IB_WC_WITH_INVALIDATE, p->b.wc[0].wc_flags);
	KUNIT_EXPECT_EQ(p->test, p->b.mr->rkey, p->b.wc[0].ex.invalidate_rkey);
	return p->b.mr->rkey;
}

static u32 stale_dereg(struct pair *p)
{
	u32 rkey = p->b.mr->rkey;

	KUNIT_EXPECT_EQ(p->test, 0, ib_dereg_mr(p->b.mr));
	p->b.mr = NULL;
	return rkey;
}

static void next_key(struct pair *p, int access)
{
	ib_update_fast_reg_key(p->b.mr, p->b.mr->rkey + 1);
	KUNIT_EXPECT_EQ(p->test, IB_WC_SUCCESS,
			pair_register(p, p->b.mr, p->b.mr->rkey, access));
}

static u32 stale_next(struct pair *p)
{
	u32 rkey = stale_local(p);

	next_key(p, PAIR_RIGHTS);
	write_works(p, p->b.mr->rkey, (uintptr_t)p->b.buf, 100);
	return rkey;
}

static u32 stale_rights(struct pair *p)
{
	stale_local(p);
	next_key(p, IB_ACCESS_REMOTE_READ);
	KUNIT_EXPECT_EQ(p->test, IB_WC_SUCCESS,
			rdma(p, IB_WR_RDMA_READ, p->b.mr->rkey,
			     (uintptr_t)p->b.buf, 8)->status);
	return p->b.mr->rkey;
}

static const struct stale_case {
	const char *desc;
	u32 (*make)(struct pair *p);
	enum keel_uapi_why why;
} stale_cases[] = {
	{ "invalidated by its owner", stale_local, KEEL_WHY_ACCESS },
	{ "invalidated by the peer", stale_peer, KEEL_WHY_ACCESS },
	{ "deregistered", stale_dereg, KEEL_WHY_KEY },
	{ "registered with the next key", stale_next, KEEL_WHY_KEY },
	{ "registered with fewer rights", stale_rights, KEEL_WHY_ACCESS },
};
KUNIT_ARRAY_PARAM_DESC(stale, stale_cases, desc);

/* A key works until it becomes stale. */
static void fast_reg_stale(struct kunit *test)
{
	const struct stale_case *c = test->param_value;
	struct pair *p = test->priv;
	u32 rkey;

	pair_make(p, IB_QPT_RC);
	pair_connect(p);
	write_works(p, p->b.mr->rkey, (uintptr_t)p->b.buf, 8);
	p->a.wcs = 0;
	rkey = c->make(p);
	write_refused(p, rkey, (uintptr_t)p->b.buf + 200, 100, c->why);
	KUNIT_EXPECT_EQ(test, -1, end_differs(&p->b, 200, &p->b, 200, 100));
	KUNIT_EXPECT_EQ(test, IB_QPS_ERR, end_state(p, &p->b));
	KUNIT_EXPECT_EQ(test, 1, p->b.nr_events);
	KUNIT_EXPECT_EQ(test, IB_EVENT_QP_ACCESS_ERR, p->b.events[0]);
}

/* An invalid region can be registered again, with other pages and its key. */
static void fast_reg_again(struct kunit *test)
{
	struct scattered *s = scattered_new(test, 100, 2 * PAGE_SIZE);
	struct pair *p = test->priv;

	pair_make(p, IB_QPT_RC);
	pair_connect(p);
	invalidates(p, p->b.mr->rkey);
	KUNIT_EXPECT_EQ(test, 3, mr_map(p, p->b.mr, s->sg, NULL));
	KUNIT_EXPECT_EQ(test, IB_WC_SUCCESS,
			pair_register(p, p->b.mr, p->b.mr->rkey, PAIR_RIGHTS));
	write_works(p, p->b.mr->rkey, p->b.mr->iova, 2 * PAGE_SIZE);
	KUNIT_EXPECT_EQ(test, -1, scattered_differs(p, s, 100, 2 * PAGE_SIZE));
	KUNIT_EXPECT_EQ(test, -1, end_differs(&p->b, 0, &p->b, 0, PAIR_BYTES));
	/* A second invalidation does nothing. */
	invalidates(p, p->b.mr->rkey);
	KUNIT_EXPECT_EQ(test, IB_WC_MW_BIND_ERR,
			invalidate(p, p->b.mr->rkey)->status);
	KUNIT_EXPECT_EQ(test, IB_QPS_ERR, end_state(p, &p->clerk));
}

static struct kunit_case fast_reg_cases[] = {
	KUNIT_CASE_PARAM(fast_reg_list, list_gen_params),
	KUNIT_CASE(fast_reg_too_much),
	KUNIT_CASE_PARAM(fast_reg_sizes, size_gen_params),
	KUNIT_CASE(fast_reg_large_gap),
	KUNIT_CASE(fast_reg_largest),
	KUNIT_CASE(dev_2_other_sizes),
	KUNIT_CASE(fast_reg_longest),
	KUNIT_CASE_PARAM(fast_reg_stale, stale_gen_params),
	KUNIT_CASE(fast_reg_again),
	{}
};

static struct kunit_suite fast_reg_suite = {
	.name = "keel_fast_reg",
	.suite_init = pair_suite_init,
	.suite_exit = pair_suite_exit,
	.init = pair_init,
	.exit = pair_exit,
	.test_cases = fast_reg_cases,
};
kunit_test_suite(fast_reg_suite);
