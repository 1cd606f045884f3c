// SPDX-License-Identifier: GPL-2.0
/*
 * Memory windows and address handles: what does not need a queue pair.
 */
#include <arpa/inet.h>

#include "t.h"
#include "tree.h"

TEST(mw_types, "PD-2", "windows of both types have different keys, and ibv_alloc_mw() refuses an unknown type with EINVAL")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	struct ibv_mw *a = MUST(ibv_alloc_mw(pd, IBV_MW_TYPE_1));
	struct ibv_mw *b = MUST(ibv_alloc_mw(pd, IBV_MW_TYPE_2));
	struct tree tree;

	CHECK(a->pd == pd && a->context == ctx);
	CHECK_EQ(a->type, IBV_MW_TYPE_1);
	CHECK_EQ(b->type, IBV_MW_TYPE_2);
	CHECK(a->rkey && b->rkey && a->rkey != b->rkey);
	tree_read(KEEL0, &tree);
	CHECK_EQ(tree_count(KEEL0, "mw"), 2);
	CHECK(strstr(tree_text(KEEL0), "mw "));
	CHECK_NULL(ibv_alloc_mw(pd, 0), EINVAL);
	CHECK_NULL(ibv_alloc_mw(pd, 3), EINVAL);
	CHECK_EQ(tree_count(KEEL0, "mw"), 2);
	CHECK_OK(ibv_dealloc_mw(a));
	tree_read(KEEL0, &tree);
	CHECK_EQ(tree_value(tree_only(&tree, "mw"), "key"), b->rkey);
	CHECK_OK(ibv_dealloc_mw(b));
	CHECK_OK(ibv_dealloc_pd(pd));
}

TEST(mw_and_mr_keys, "PD-4", "windows and MRs never have the same key")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	static char page[4096];
	uint32_t key[200];
	int i, j;

	for (i = 0; i < 200; i++) {
		key[i] = i % 2 ? MUST(ibv_alloc_mw(pd, IBV_MW_TYPE_1))->rkey :
				 MUST(ibv_reg_mr(pd, page, 1, 0))->rkey;
		for (j = 0; j < i; j++)
			CHECK(key[j] != key[i]);
	}
}

static struct ibv_ah_attr to_self(struct ibv_context *ctx)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1 };

	CHECK_OK(ibv_query_gid(ctx, 1, 0, &attr.grh.dgid));
	return attr;
}

TEST(ah, "PD-2", "debugfs shows an AH with its destination address until ibv_destroy_ah()")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	struct ibv_ah_attr attr = to_self(ctx);
	struct ibv_ah *ah = MUST(ibv_create_ah(pd, &attr));
	char text[64] = "to ";
	struct in6_addr to;
	struct tree tree;

	CHECK(ah->pd == pd && ah->context == ctx);
	tree_read(KEEL0, &tree);
	CHECK(!strncmp(tree_only(&tree, "ah")->text, text, 3));
	/* debugfs may print the address in another notation. */
	CHECK_EQ(inet_pton(AF_INET6, tree_only(&tree, "ah")->text + 3, &to), 1);
	CHECK_MEM(&to, attr.grh.dgid.raw, 16);
	CHECK_OK(ibv_destroy_ah(ah));
	CHECK_EQ(tree_count(KEEL0, "ah"), 0);
	CHECK_OK(ibv_dealloc_pd(pd));
}

TEST(bad_ah, "DEV-4", "ibv_create_ah() refuses a missing GRH or a wrong port with EINVAL; ib_core refuses an empty source GID with ENODATA")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	struct ibv_ah_attr good = to_self(ctx), bad;

	bad = good;
	bad.is_global = 0;
	CHECK_NULL(ibv_create_ah(pd, &bad), EINVAL);
	bad = good;
	bad.port_num = 0;
	CHECK_NULL(ibv_create_ah(pd, &bad), EINVAL);
	bad.port_num = 2;
	CHECK_NULL(ibv_create_ah(pd, &bad), EINVAL);
	bad = good;
	/* The GID table has 256 entries; the last entry has no GID. */
	bad.grh.sgid_index = 255;
	CHECK_NULL(ibv_create_ah(pd, &bad), ENODATA);
	CHECK_EQ(tree_count(KEEL0, "ah"), 0);
	CHECK_OK(ibv_destroy_ah(MUST(ibv_create_ah(pd, &good))));
}
