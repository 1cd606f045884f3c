// SPDX-License-Identifier: GPL-2.0
/*
 * Thread domains.
 */
#include <infiniband/keeldv.h>

#include "domain.h"
#include "t.h"
#include "tree.h"

TEST(alloc_dealloc, "TD-1", "the kernel lists a TD as an object of its own from ibv_alloc_td() to ibv_dealloc_td()")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_td *a = td_new(ctx), *b = td_new(ctx);
	struct tree tree;

	CHECK(a->context == ctx);
	tree_read(KEEL0, &tree);
	CHECK_EQ(tree.count, 2);
	CHECK_STR(tree.objs[0].kind, "td");
	CHECK_STR(tree.objs[1].kind, "td");
	CHECK(tree.objs[0].id != tree.objs[1].id);
	CHECK_EQ(tree.objs[0].pid, getpid());
	CHECK_EQ(tree.objs[0].refs, 1);
	CHECK_OK(ibv_dealloc_td(a));
	CHECK_EQ(tree_count(KEEL0, "td"), 1);
	CHECK_OK(ibv_dealloc_td(b));
	CHECK_EQ(tree_count(KEEL0, NULL), 0);
}

TEST(comp_mask, "TD-1", "ibv_alloc_td() refuses each comp_mask bit with EINVAL")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	int bit;

	for (bit = 0; bit < 32; bit++) {
		struct ibv_td_init_attr attr = { .comp_mask = 1U << bit };

		CHECK_NULL(ibv_alloc_td(ctx, &attr), EINVAL);
	}
	CHECK_EQ(tree_count(KEEL0, NULL), 0);
}

TEST(left_behind, "TD-1", "ibv_close_device() destroys the TDs of its context and no TD of another context")
{
	struct ibv_context *ctx = dev_open(KEEL0), *other = dev_open(KEEL0);
	struct ibv_td *td = td_new(other);

	td_new(ctx);
	td_new(ctx);
	CHECK_EQ(tree_count(KEEL0, "td"), 3);
	CHECK_OK(ibv_close_device(ctx));
	CHECK_EQ(tree_count(KEEL0, "td"), 1);
	CHECK_OK(ibv_dealloc_td(td));
}

TEST(busy, "TD-2,PDM-9", "ibv_dealloc_td() returns EBUSY while a parent domain uses the TD, and changes nothing")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	struct ibv_td *td = td_new(ctx);
	struct ibv_pd *a = parent_new(pd, td), *b = parent_new(pd, td);
	char *before = tree_text(KEEL0);

	CHECK_RET(ibv_dealloc_td(td), EBUSY);
	CHECK_SAME_TREE(before);
	CHECK_OK(ibv_dealloc_pd(a));
	CHECK_RET(ibv_dealloc_td(td), EBUSY);
	CHECK_OK(ibv_dealloc_pd(b));
	CHECK_OK(ibv_dealloc_td(td));
	CHECK_OK(ibv_dealloc_pd(pd));
}

TEST(not_busy, "TD-2", "a parent domain without a TD and a refused parent domain keep no TD busy")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	struct ibv_td *td = td_new(ctx);
	struct ibv_pd *parent = parent_new(pd, NULL);
	struct ibv_parent_domain_init_attr attr = { .pd = parent, .td = td };

	CHECK_NULL(ibv_alloc_parent_domain(ctx, &attr), EINVAL);
	CHECK_OK(ibv_dealloc_td(td));
	CHECK_OK(ibv_dealloc_pd(parent));
	CHECK_OK(ibv_dealloc_pd(pd));
}

TEST(holders, "TD-2", "keeldv_td_holders() names every parent domain that keeps a TD busy, and no other object")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	struct ibv_td *td = td_new(ctx), *other = td_new(ctx);
	struct keeldv_holder list[4];
	struct tree tree;
	uint32_t count = 4;
	int i;

	CHECK_OK(keeldv_td_holders(td, list, &count));
	CHECK_EQ(count, 0);
	parent_new(pd, other);
	parent_new(pd, td);
	parent_new(pd, td);
	tree_read(KEEL0, &tree);
	count = 4;
	CHECK_OK(keeldv_td_holders(td, list, &count));
	CHECK_EQ(count, 2);
	for (i = 0; i < 2; i++) {
		CHECK_EQ(list[i].kind, KEELDV_KIND_PARENT);
		CHECK_EQ(list[i].pid, getpid());
		CHECK(strstr(MUST(tree_find(&tree, "parent", list[i].id))->holds,
			     "td "));
	}
	CHECK(list[0].id != list[1].id);
	CHECK_EQ(list[2].kind, 0);
}
