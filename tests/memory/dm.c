// SPDX-License-Identifier: GPL-2.0
/*
 * Device memory: buffers, copies and MRs of buffers. dm_map.c tests mappings.
 */
#include <signal.h>

#include <infiniband/keeldv.h>

#include "peer.h"
#include "t.h"
#include "tree.h"

#define PAGE	4096

static struct ibv_dm *alloc_dm(struct ibv_context *ctx, size_t length,
			       uint32_t log_align)
{
	struct ibv_alloc_dm_attr attr = {
		.length = length, .log_align_req = log_align,
	};

	return ibv_alloc_dm(ctx, &attr);
}

static uint64_t max_dm_size(struct ibv_context *ctx)
{
	struct ibv_device_attr_ex attr = {};

	CHECK_OK(ibv_query_device_ex(ctx, NULL, &attr));
	CHECK(attr.max_dm_size > 0);
	return attr.max_dm_size;
}

static struct keeldv_dm_attr query(struct ibv_dm *dm)
{
	struct keeldv_dm_attr attr;

	CHECK_OK(keeldv_query_dm(dm, &attr));
	return attr;
}

TEST(alloc, "DM-1", "a buffer has the requested length and lies inside the device's memory")
{
	static const size_t lengths[] = { 1, 7, 8, 4095, 4096, 4097, 1 << 20 };
	struct ibv_context *ctx = dev_open(KEEL0);
	uint64_t max = max_dm_size(ctx);
	struct ibv_dm *dm;
	struct tree tree;
	size_t i;

	for (i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		dm = MUST(alloc_dm(ctx, lengths[i], 0));
		CHECK(dm->context == ctx);
		CHECK_EQ(query(dm).length, lengths[i]);
		CHECK(query(dm).start <= max - lengths[i]);
		tree_read(KEEL0, &tree);
		CHECK_EQ(tree_value(tree_only(&tree, "dm"), "length"),
			 lengths[i]);
		CHECK_EQ(tree_value(tree_only(&tree, "dm"), "start"),
			 query(dm).start);
		CHECK_OK(ibv_free_dm(dm));
		CHECK_EQ(tree_count(KEEL0, NULL), 0);
	}
}

TEST(bad_attr, "DM-1", "ibv_alloc_dm() refuses length 0 and each comp_mask bit with EINVAL")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_alloc_dm_attr attr = { .length = PAGE };
	int bit;

	CHECK_NULL(alloc_dm(ctx, 0, 0), EINVAL);
	CHECK_NULL(alloc_dm(ctx, 0, 12), EINVAL);
	for (bit = 0; bit < 32; bit++) {
		attr.comp_mask = 1U << bit;
		CHECK_NULL(ibv_alloc_dm(ctx, &attr), EINVAL);
	}
	CHECK_EQ(tree_count(KEEL0, NULL), 0);
}

TEST(bad_align, "DM-1", "ibv_alloc_dm() refuses an alignment that exceeds the device's memory with EINVAL, also if no memory is free")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	uint64_t max = max_dm_size(ctx);
	uint32_t most = 63 - __builtin_clzll(max), i;

	for (i = most + 1; i < 70; i++)
		CHECK_NULL(alloc_dm(ctx, 1, i), EINVAL);
	CHECK_NULL(alloc_dm(ctx, 1, 255), EINVAL);
	CHECK_NULL(alloc_dm(ctx, 1, 256), EINVAL);
	CHECK_NULL(alloc_dm(ctx, 1, 1U << 31), EINVAL);
	CHECK_NULL(alloc_dm(ctx, 1, ~0U), EINVAL);
	CHECK_OK(ibv_free_dm(MUST(alloc_dm(ctx, 1, most))));
	MUST(alloc_dm(ctx, max, 0));
	CHECK_NULL(alloc_dm(ctx, 1, most + 1), EINVAL);
	CHECK_NULL(alloc_dm(ctx, 1, most), ENOMEM);
}

TEST(no_room, "DM-1", "ibv_alloc_dm() refuses a length above max_dm_size, or above the free memory, with ENOMEM")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	uint64_t max = max_dm_size(ctx);
	struct ibv_dm *dm;

	CHECK_NULL(alloc_dm(ctx, max + 1, 0), ENOMEM);
	CHECK_NULL(alloc_dm(ctx, max * 2, 0), ENOMEM);
	CHECK_NULL(alloc_dm(ctx, 1ULL << 63, 0), ENOMEM);
	CHECK_NULL(alloc_dm(ctx, SIZE_MAX - 4094, 0), ENOMEM);
	CHECK_NULL(alloc_dm(ctx, SIZE_MAX, 0), ENOMEM);
	dm = MUST(alloc_dm(ctx, 1, 0));
	CHECK_NULL(alloc_dm(ctx, max, 0), ENOMEM);
	CHECK_NULL(alloc_dm(ctx, max - PAGE + 1, 0), ENOMEM);
	CHECK_OK(ibv_free_dm(MUST(alloc_dm(ctx, max - PAGE, 0))));
	CHECK_OK(ibv_free_dm(dm));
	CHECK_OK(ibv_free_dm(MUST(alloc_dm(ctx, max, 0))));
}

TEST(no_place, "DM-1,DM-2", "a buffer for which no free place is aligned is refused with ENOMEM, and what is free stays available")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	uint64_t max = max_dm_size(ctx);
	uint32_t most = 63 - __builtin_clzll(max), i;

	/* The last page is free, and not aligned. */
	CHECK_EQ(query(MUST(alloc_dm(ctx, max - PAGE, most))).start, 0);
	for (i = 0; i < 8; i++)
		CHECK_NULL(alloc_dm(ctx, 1, most), ENOMEM);
	CHECK_EQ(tree_count(KEEL0, "dm"), 1);
	CHECK_EQ(query(MUST(alloc_dm(ctx, PAGE, 0))).start, max - PAGE);
	CHECK_NULL(alloc_dm(ctx, 1, 0), ENOMEM);
}

TEST(align, "DM-2", "a buffer starts at a multiple of 2^log_align_req for each value, also beside other buffers")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	uint32_t most = 63 - __builtin_clzll(max_dm_size(ctx)), i;
	struct ibv_dm *dm;

	for (i = 0; i <= most; i++) {
		dm = MUST(alloc_dm(ctx, 3, i));
		CHECK_EQ(query(dm).start & ((1ULL << i) - 1), 0);
		CHECK_OK(ibv_free_dm(dm));
	}
	/* From here on a small buffer occupies part of the memory. */
	MUST(alloc_dm(ctx, 1, 0));
	for (i = 0; i < most; i++) {
		dm = MUST(alloc_dm(ctx, 5000, i));
		CHECK_EQ(query(dm).start & ((1ULL << i) - 1), 0);
		if (i > 14)
			CHECK_OK(ibv_free_dm(dm));
	}
}

TEST(honest, "DM-3", "a process can allocate one buffer of max_dm_size on an idle device and use its last byte")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	uint64_t max = max_dm_size(ctx);
	struct ibv_dm *dm = MUST(alloc_dm(ctx, max, 0));
	char c = 'x';

	CHECK_EQ(query(dm).start, 0);
	CHECK_OK(ibv_memcpy_to_dm(dm, max - 1, &c, 1));
	c = 0;
	CHECK_OK(ibv_memcpy_from_dm(&c, dm, max - 1, 1));
	CHECK_EQ(c, 'x');
	CHECK_NULL(alloc_dm(ctx, 1, 0), ENOMEM);
	CHECK_OK(ibv_free_dm(dm));
}

TEST(all_of_it, "DM-3", "buffers of different sizes can fill all device memory, and no two of them overlap")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	uint64_t max = max_dm_size(ctx), left = max;
	struct keeldv_dm_attr got[64];
	int n, i;

	for (n = 0; left; n++) {
		uint64_t len = left > max / 32 ? max / 64 * (1 + n % 3) : left;

		CHECK(n < 64);
		got[n] = query(MUST(alloc_dm(ctx, len, 0)));
		CHECK_EQ(got[n].start % PAGE, 0);
		for (i = 0; i < n; i++)
			CHECK(got[i].start + got[i].length <= got[n].start ||
			      got[n].start + got[n].length <= got[i].start);
		left -= len;
	}
	CHECK_NULL(alloc_dm(ctx, 1, 0), ENOMEM);
}

/*
 * Allocate all device memory, write every byte of each page, then wait to be
 * killed.
 */
static void soil(struct peer *parent)
{
	struct ibv_context *ctx = dev_open(KEEL0);
	uint64_t max = max_dm_size(ctx);

	/*
	 * The buffer does not fill the last page: the kernel must clear the
	 * rest too.
	 */
	memset(MUST(keeldv_dm_map(MUST(alloc_dm(ctx, max - 100, 0)))), 0xa5,
	       max);
	peer_tell(parent);
	peer_wait(parent);
}

static void check_zero(struct ibv_context *ctx)
{
	uint64_t max = max_dm_size(ctx);
	struct ibv_dm *dm = MUST(alloc_dm(ctx, max, 0));

	CHECK_ALL(MUST(keeldv_dm_map(dm)), 0, max);
	CHECK_OK(ibv_free_dm(dm));
}

TEST(zeroed, "DM-4", "all device memory is zero at allocation after another process wrote it and was killed")
{
	struct peer p;

	peer_start(&p, soil);
	peer_wait(&p);
	peer_kill(&p, SIGKILL);
	check_zero(dev_open(KEEL0));
}

TEST(zeroed_free, "DM-4", "a buffer is zero at allocation after the same process wrote those bytes and called ibv_free_dm()")
{
	static char in[3 * PAGE], out[3 * PAGE];
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_dm *dm;
	uint64_t start;
	int i;

	memset(in, 0x5a, sizeof(in));
	for (i = 0; i < 8; i++) {
		dm = MUST(alloc_dm(ctx, sizeof(in) - i, 0));
		start = query(dm).start;
		CHECK_OK(ibv_memcpy_to_dm(dm, 0, in, sizeof(in) - i));
		CHECK_OK(ibv_free_dm(dm));
		dm = MUST(alloc_dm(ctx, sizeof(in), 0));
		CHECK_EQ(query(dm).start, start);
		memset(out, 1, sizeof(out));
		CHECK_OK(ibv_memcpy_from_dm(out, dm, 0, sizeof(out)));
		CHECK_ALL(out, 0, sizeof(out));
		CHECK_OK(ibv_free_dm(dm));
	}
}

TEST(zero_based, "DM-7", "ibv_reg_dm_mr() without IBV_ACCESS_ZERO_BASED fails with EINVAL")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	struct ibv_dm *dm = MUST(alloc_dm(ctx, PAGE, 0));
	struct ibv_mr *mr;

	CHECK_NULL(ibv_reg_dm_mr(pd, dm, 0, PAGE, 0), EINVAL);
	CHECK_NULL(ibv_reg_dm_mr(pd, dm, 0, PAGE, IBV_ACCESS_LOCAL_WRITE),
		   EINVAL);
	CHECK_EQ(tree_count(KEEL0, "dm_mr"), 0);
	mr = MUST(ibv_reg_dm_mr(pd, dm, 0, PAGE, IBV_ACCESS_ZERO_BASED));
	CHECK(mr->lkey && mr->rkey);
	CHECK(mr->pd == pd);
	CHECK_OK(ibv_dereg_mr(mr));
	CHECK_OK(ibv_free_dm(dm));
	CHECK_OK(ibv_dealloc_pd(pd));
}

TEST(mr_range, "DM-7", "ibv_reg_dm_mr() refuses a range outside the buffer, wrapped sums included, with EINVAL")
{
	static const uint64_t bad[][2] = {
		{ 0, 5001 }, { 1, 5000 }, { 4999, 2 }, { 5000, 1 }, { 5001, 0 },
		{ 0, 8192 }, { 4096, 4096 }, { 0, ~0ULL }, { ~0ULL, 1 },
		{ ~0ULL, 2 }, { 1, ~0ULL }, { 1ULL << 63, 1ULL << 63 },
		{ 4096, ~0ULL - 4095 }, { ~0ULL - 4095, 4096 + 5000 },
	};
	static const uint64_t good[][2] = {
		{ 0, 5000 }, { 0, 1 }, { 4999, 1 }, { 1, 4999 }, { 4095, 2 },
	};
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	struct ibv_dm *dm = MUST(alloc_dm(ctx, 5000, 0));
	struct tree tree;
	struct ibv_mr *mr;
	size_t i;

	MUST(alloc_dm(ctx, PAGE, 0));
	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		CHECK_NULL(ibv_reg_dm_mr(pd, dm, bad[i][0], bad[i][1],
					 IBV_ACCESS_ZERO_BASED), EINVAL);
	CHECK_EQ(tree_count(KEEL0, "dm_mr"), 0);
	for (i = 0; i < sizeof(good) / sizeof(*good); i++) {
		mr = MUST(ibv_reg_dm_mr(pd, dm, good[i][0], good[i][1],
					IBV_ACCESS_ZERO_BASED |
					IBV_ACCESS_LOCAL_WRITE |
					IBV_ACCESS_REMOTE_ATOMIC));
		tree_read(KEEL0, &tree);
		CHECK_EQ(tree_value(tree_only(&tree, "dm_mr"), "length"),
			 good[i][1]);
		CHECK_EQ(tree_value(tree_only(&tree, "dm_mr"), "key"), mr->rkey);
		CHECK_OK(ibv_dereg_mr(mr));
	}
}

TEST(mr_access, "DM-7", "ibv_reg_dm_mr() refuses invalid access flags and a buffer of another context with EINVAL")
{
	struct ibv_context *ctx = dev_open(KEEL0), *other = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	struct ibv_dm *dm = MUST(alloc_dm(ctx, PAGE, 0));
	struct ibv_dm *foreign;

	/* Remote writes and atomics need IBV_ACCESS_LOCAL_WRITE. */
	CHECK_NULL(ibv_reg_dm_mr(pd, dm, 0, 8, IBV_ACCESS_ZERO_BASED |
				 IBV_ACCESS_REMOTE_WRITE), EINVAL);
	CHECK_NULL(ibv_reg_dm_mr(pd, dm, 0, 8, IBV_ACCESS_ZERO_BASED |
				 IBV_ACCESS_REMOTE_ATOMIC), EINVAL);
	CHECK_NULL(ibv_reg_dm_mr(pd, dm, 0, 8, IBV_ACCESS_ZERO_BASED | 1 << 19),
		   EINVAL);
	/* A buffer in the PD's context has the same handle. */
	MUST(ibv_alloc_pd(other));
	foreign = MUST(alloc_dm(other, PAGE, 0));
	CHECK_EQ(foreign->handle, dm->handle);
	CHECK_NULL(ibv_reg_dm_mr(pd, foreign, 0, 8, IBV_ACCESS_ZERO_BASED),
		   EINVAL);
	CHECK_EQ(tree_count(KEEL0, "dm_mr"), 0);
}

TEST(busy, "DM-8", "ibv_free_dm() returns EBUSY while an MR lives, keeps every byte, and succeeds after the last ibv_dereg_mr()")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_dm *dm = MUST(alloc_dm(ctx, PAGE, 0));
	struct ibv_mr *a, *b;
	struct keeldv_holder holder[2];
	uint32_t count = 2;
	char *map, *before;

	map = MUST(keeldv_dm_map(dm));
	memset(map, 0x77, PAGE);
	a = MUST(ibv_reg_dm_mr(MUST(ibv_alloc_pd(ctx)), dm, 0, 8,
			       IBV_ACCESS_ZERO_BASED));
	b = MUST(ibv_reg_dm_mr(MUST(ibv_alloc_pd(ctx)), dm, PAGE - 1, 1,
			       IBV_ACCESS_ZERO_BASED));
	before = tree_text(KEEL0);
	CHECK_RET(ibv_free_dm(dm), EBUSY);
	CHECK_SAME_TREE(before);
	/* The refused call left the mapping in place. */
	CHECK_ALL(map, 0x77, PAGE);
	CHECK(keeldv_dm_map(dm) == map);
	CHECK_OK(keeldv_dm_holders(dm, holder, &count));
	CHECK_EQ(count, 2);
	CHECK_EQ(holder[0].kind, KEELDV_KIND_DM_MR);
	CHECK_EQ(holder[1].kind, KEELDV_KIND_DM_MR);
	CHECK_OK(ibv_dereg_mr(a));
	CHECK_RET(ibv_free_dm(dm), EBUSY);
	CHECK_OK(ibv_dereg_mr(b));
	CHECK_OK(ibv_free_dm(dm));
	CHECK_EQ(tree_count(KEEL0, "dm"), 0);
}
