// SPDX-License-Identifier: GPL-2.0
/*
 * Parent domains: what does not need a queue pair.
 */
#include <infiniband/keeldv.h>

#include "domain.h"
#include "qp.h"
#include "t.h"
#include "tree.h"

#define PAGE	4096

static char page[PAGE] __attribute__((aligned(PAGE)));

static uint32_t domain_of(struct ibv_pd *pd)
{
	struct keeldv_pd_attr attr;

	CHECK_OK(keeldv_query_pd(pd, &attr));
	return attr.domain;
}

/*
 * ibv_alloc_parent_domain() must fail with EINVAL and leave the object tree
 * unchanged.
 */
static void check_refused(struct ibv_context *ctx,
			  struct ibv_parent_domain_init_attr attr)
{
	char *before = tree_text(KEEL0);

	CHECK_NULL(ibv_alloc_parent_domain(ctx, &attr), EINVAL);
	CHECK_SAME_TREE(before);
	free(before);
}

TEST(known, "PDM-1", "the kernel lists a parent domain and counts it with the PDs until dealloc")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	struct ibv_pd *parent = parent_new(pd, NULL);
	struct keeldv_pd_attr attr;
	struct tree tree;

	CHECK(parent->context == ctx);
	CHECK(parent->handle != pd->handle);
	CHECK_OK(keeldv_query_pd(parent, &attr));
	CHECK_EQ(attr.kind, KEELDV_PD_PARENT);
	tree_read(KEEL0, &tree);
	CHECK_EQ(tree.count, 3);
	CHECK_EQ(tree_only(&tree, "parent")->pid, getpid());
	CHECK_EQ(tree_only(&tree, "parent")->depth, 2);
	CHECK_EQ(res_count(KEEL0, "pd"), 2);
	CHECK_OK(ibv_dealloc_pd(parent));
	CHECK_EQ(res_count(KEEL0, "pd"), 1);
	CHECK_EQ(tree_count(KEEL0, "parent"), 0);
	CHECK_OK(ibv_dealloc_pd(pd));
}

TEST(cleaned_up, "PDM-1", "the kernel destroys a parent domain that a process leaves behind, with the objects below and above it")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *parent = parent_new(MUST(ibv_alloc_pd(ctx)),
					    td_new(ctx));

	MUST(ibv_reg_mr(parent, page, PAGE, 0));
	CHECK_EQ(tree_count(KEEL0, NULL), 5);
	CHECK_OK(ibv_close_device(ctx));
	CHECK_EQ(tree_count(KEEL0, NULL), 0);
	CHECK_EQ(res_count(KEEL0, "pd"), 0);
}

TEST(td, "PDM-2", "ibv_alloc_parent_domain() takes no TD or a TD of the same context, and the parent domain holds that TD")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	struct ibv_td *td = td_new(ctx);
	struct ibv_pd *parent = parent_new(pd, NULL);
	struct tree tree;

	tree_read(KEEL0, &tree);
	CHECK(!strstr(tree_only(&tree, "parent")->holds, "td"));
	CHECK_OK(ibv_dealloc_pd(parent));
	parent = parent_new(pd, td);
	tree_read(KEEL0, &tree);
	CHECK(strstr(tree_only(&tree, "parent")->holds, ", td "));
	CHECK_OK(ibv_dealloc_pd(parent));
	CHECK_OK(ibv_dealloc_td(td));
	CHECK_OK(ibv_dealloc_pd(pd));
}

TEST(td_foreign, "PDM-2", "ibv_alloc_parent_domain() refuses a TD of another context with EINVAL, even if its handle exists in both")
{
	struct ibv_context *ctx = dev_open(KEEL0), *other = dev_open(KEEL0);
	struct ibv_parent_domain_init_attr attr = {
		.pd = MUST(ibv_alloc_pd(ctx)),
	};
	struct ibv_td *mine = td_new(ctx);

	/*
	 * Both contexts create objects in the same order, so both TDs have the
	 * same handle.
	 */
	MUST(ibv_alloc_pd(other));
	attr.td = td_new(other);
	check_refused(ctx, attr);
	CHECK_OK(ibv_dealloc_td(mine));
	CHECK_OK(ibv_dealloc_td(attr.td));
}

TEST(pd_wrong, "PDM-5", "ibv_alloc_parent_domain() refuses a NULL PD, a PD of another context and a parent domain with EINVAL")
{
	struct ibv_context *ctx = dev_open(KEEL0), *other = dev_open(KEEL0);
	struct ibv_parent_domain_init_attr attr = {};
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));

	attr.td = td_new(ctx);
	check_refused(ctx, attr);
	/* A PD of ctx has the same handle. */
	attr.pd = MUST(ibv_alloc_pd(other));
	CHECK_EQ(attr.pd->handle, pd->handle);
	check_refused(ctx, attr);
	attr.td = NULL;
	check_refused(ctx, attr);
	attr.pd = parent_new(pd, NULL);
	check_refused(ctx, attr);
	attr.pd = parent_new(pd, td_new(ctx));
	check_refused(ctx, attr);
}

static void *never_alloc(struct ibv_pd *pd, void *pd_context, size_t size,
			 size_t alignment, uint64_t resource_type)
{
	FAIL("got a call of alloc, want none without a queue");
}

static void never_free(struct ibv_pd *pd, void *pd_context, void *ptr,
		       uint64_t resource_type)
{
	FAIL("got a call of free, want none without a queue");
}

TEST(comp_mask, "PDM-8", "ibv_alloc_parent_domain() refuses each unknown comp_mask bit with EINVAL")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_parent_domain_init_attr attr = {
		.pd = MUST(ibv_alloc_pd(ctx)),
		.alloc = never_alloc, .free = never_free,
	};
	int bit;

	for (bit = 2; bit < 32; bit++) {
		attr.comp_mask = 1U << bit;
		check_refused(ctx, attr);
		attr.comp_mask |= IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
				  IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
		check_refused(ctx, attr);
	}
}

TEST(one_allocator, "PDM-8", "ibv_alloc_parent_domain() refuses ALLOCATORS without both callbacks with EINVAL")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_parent_domain_init_attr attr = {
		.pd = MUST(ibv_alloc_pd(ctx)),
		.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS,
	};

	check_refused(ctx, attr);
	attr.alloc = never_alloc;
	check_refused(ctx, attr);
	attr.alloc = NULL;
	attr.free = never_free;
	check_refused(ctx, attr);
	attr.comp_mask |= IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
	check_refused(ctx, attr);
}

TEST(allocators, "PDM-8", "ibv_alloc_parent_domain() takes both callbacks with or without PD_CONTEXT, and ignores members without their bit")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_parent_domain_init_attr attr = {
		.pd = MUST(ibv_alloc_pd(ctx)),
		.alloc = never_alloc, .free = never_free, .pd_context = page,
	};
	struct ibv_pd *parent;

	for (attr.comp_mask = 0; attr.comp_mask < 4; attr.comp_mask++) {
		parent = MUST(ibv_alloc_parent_domain(ctx, &attr));
		/*
		 * No queue is created, so the provider calls neither callback.
		 */
		CHECK_OK(ibv_dereg_mr(MUST(ibv_reg_mr(parent, page, PAGE, 0))));
		CHECK_OK(ibv_dealloc_pd(parent));
	}
	attr.comp_mask = 0;
	attr.free = NULL;
	CHECK_OK(ibv_dealloc_pd(MUST(ibv_alloc_parent_domain(ctx, &attr))));
}

TEST(busy, "PDM-9", "ibv_dealloc_pd() of a parent domain returns EBUSY while an MR, MW, AH or DM MR created with it lives")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_alloc_dm_attr dm_attr = { .length = PAGE };
	struct ibv_dm *dm = MUST(ibv_alloc_dm(ctx, &dm_attr));
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	struct ibv_pd *parent = parent_new(pd, NULL);
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	struct ibv_ah *ah;
	char *before;

	mr = MUST(ibv_reg_mr(parent, page, PAGE, 0));
	before = tree_text(KEEL0);
	CHECK_RET(ibv_dealloc_pd(parent), EBUSY);
	CHECK_SAME_TREE(before);
	CHECK_OK(ibv_dereg_mr(mr));
	mw = MUST(ibv_alloc_mw(parent, IBV_MW_TYPE_1));
	CHECK_RET(ibv_dealloc_pd(parent), EBUSY);
	CHECK_OK(ibv_dealloc_mw(mw));
	ah = ah_self(parent);
	CHECK_RET(ibv_dealloc_pd(parent), EBUSY);
	CHECK_OK(ibv_destroy_ah(ah));
	mr = MUST(ibv_reg_dm_mr(parent, dm, 0, 1, IBV_ACCESS_ZERO_BASED));
	CHECK_RET(ibv_dealloc_pd(parent), EBUSY);
	CHECK_OK(ibv_dereg_mr(mr));
	CHECK_OK(ibv_dealloc_pd(parent));
	CHECK_OK(ibv_dealloc_pd(pd));
}

TEST(busy_below, "PDM-9", "deallocating the PD and the TD of a parent domain returns EBUSY until the parent domain is deallocated")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	struct ibv_td *td = td_new(ctx);
	struct ibv_pd *parent = parent_new(pd, td);
	struct ibv_mr *mr = MUST(ibv_reg_mr(parent, page, PAGE, 0));

	CHECK_RET(ibv_dealloc_pd(pd), EBUSY);
	CHECK_RET(ibv_dealloc_td(td), EBUSY);
	CHECK_RET(ibv_dealloc_pd(parent), EBUSY);
	CHECK_OK(ibv_dereg_mr(mr));
	CHECK_RET(ibv_dealloc_pd(pd), EBUSY);
	CHECK_RET(ibv_dealloc_td(td), EBUSY);
	CHECK_OK(ibv_dealloc_pd(parent));
	CHECK_OK(ibv_dealloc_td(td));
	CHECK_OK(ibv_dealloc_pd(pd));
}

TEST(own_objects, "PDM-9", "an MR registered with the PD itself does not keep a parent domain of that PD busy")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	struct ibv_pd *parent = parent_new(pd, NULL);
	struct ibv_mr *mr = MUST(ibv_reg_mr(pd, page, PAGE, 0));

	CHECK_OK(ibv_dealloc_pd(parent));
	CHECK_RET(ibv_dealloc_pd(pd), EBUSY);
	CHECK_OK(ibv_dereg_mr(mr));
	CHECK_OK(ibv_dealloc_pd(pd));
}

/* Return the domain of an MR, against which keel checks its key. */
static unsigned int mr_domain(const struct ibv_mr *mr)
{
	char *text = t_shell("rdma -dd resource show mr | "
			     "grep -A 1 'dev " KEEL0 " .*lkey 0x%x ' | "
			     "sed -n 's/.* drv_domain \\([0-9]*\\).*/\\1/p'",
			     mr->lkey);
	unsigned int domain = strtoul(text, NULL, 0);

	free(text);
	return domain;
}

TEST(same_scope, "PDM-3", "keys of MRs and DM MRs registered through a parent domain belong to the domain of its PD")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_alloc_dm_attr dm_attr = { .length = PAGE };
	struct ibv_dm *dm = MUST(ibv_alloc_dm(ctx, &dm_attr));
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	struct ibv_pd *other = MUST(ibv_alloc_pd(ctx));
	struct ibv_pd *a = parent_new(pd, NULL);
	struct ibv_pd *b = parent_new(pd, td_new(ctx));
	uint32_t domain = domain_of(pd);

	CHECK_EQ(domain_of(a), domain);
	CHECK_EQ(domain_of(b), domain);
	CHECK(domain_of(other) != domain);
	CHECK_EQ(mr_domain(MUST(ibv_reg_mr(pd, page, PAGE, 0))), domain);
	CHECK_EQ(mr_domain(MUST(ibv_reg_mr(a, page, PAGE, 0))), domain);
	CHECK_EQ(mr_domain(MUST(ibv_reg_mr(b, page, PAGE, 0))), domain);
	CHECK_EQ(mr_domain(MUST(ibv_reg_dm_mr(b, dm, 0, PAGE,
					      IBV_ACCESS_ZERO_BASED))), domain);
	CHECK_EQ(mr_domain(MUST(ibv_reg_mr(other, page, PAGE, 0))),
		 domain_of(other));
}

TEST(every_verb, "PDM-3", "reg_mr, reg_mr_iova, reg_dm_mr, alloc_mw and create_ah work alike through a PD and its parent domains")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_alloc_dm_attr dm_attr = { .length = PAGE };
	struct ibv_dm *dm = MUST(ibv_alloc_dm(ctx, &dm_attr));
	struct ibv_pd *pd[3];
	int i;

	pd[0] = MUST(ibv_alloc_pd(ctx));
	pd[1] = parent_new(pd[0], NULL);
	pd[2] = parent_new(pd[0], td_new(ctx));
	for (i = 0; i < 3; i++) {
		struct ibv_mr *mr = MUST(ibv_reg_mr(pd[i], page, PAGE,
					IBV_ACCESS_LOCAL_WRITE |
					IBV_ACCESS_REMOTE_WRITE));
		struct ibv_mr *iova = MUST(ibv_reg_mr_iova(pd[i], page, PAGE,
							   PAGE * 7, 0));
		struct ibv_mr *dm_mr = MUST(ibv_reg_dm_mr(pd[i], dm, 8, 16,
						IBV_ACCESS_ZERO_BASED));
		struct ibv_mw *mw = MUST(ibv_alloc_mw(pd[i], IBV_MW_TYPE_2));
		struct ibv_ah *ah = ah_self(pd[i]);

		CHECK(mr->pd == pd[i] && iova->pd == pd[i]);
		CHECK(dm_mr->pd == pd[i] && mw->pd == pd[i] && ah->pd == pd[i]);
		CHECK_OK(ibv_destroy_ah(ah));
		CHECK_OK(ibv_dealloc_mw(mw));
		CHECK_OK(ibv_dereg_mr(dm_mr));
		CHECK_OK(ibv_dereg_mr(iova));
		CHECK_OK(ibv_dereg_mr(mr));
	}
	CHECK_OK(ibv_dealloc_pd(pd[2]));
	CHECK_OK(ibv_dealloc_pd(pd[1]));
	CHECK_OK(ibv_dealloc_pd(pd[0]));
}
