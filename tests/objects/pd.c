// SPDX-License-Identifier: GPL-2.0
/*
 * Protection domains.
 */
#include <fcntl.h>
#include <signal.h>

#include <infiniband/keeldv.h>

#include "domain.h"
#include "peer.h"
#include "qp.h"
#include "t.h"
#include "tree.h"

#define PAGE	4096

static char page[PAGE] __attribute__((aligned(PAGE)));

TEST(alloc_dealloc, "PD-1", "the kernel lists a PD from ibv_alloc_pd() to ibv_dealloc_pd()")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	struct tree tree;

	CHECK(pd->context == ctx);
	tree_read(KEEL0, &tree);
	CHECK_EQ(tree.count, 2);
	CHECK_EQ(tree_only(&tree, "pd")->pid, getpid());
	CHECK_EQ(tree_value(tree_only(&tree, "pd"), "domain"),
		 tree_only(&tree, "domain")->id);
	CHECK_EQ(res_count(KEEL0, "pd"), 1);
	CHECK_OK(ibv_dealloc_pd(pd));
	CHECK_EQ(tree_count(KEEL0, NULL), 0);
	CHECK_EQ(res_count(KEEL0, "pd"), 0);
}

TEST(own_number, "PD-1", "live domains of two contexts all have different numbers")
{
	struct ibv_context *ctx[2] = { dev_open(KEEL0), dev_open(KEEL0) };
	struct keeldv_pd_attr attr[64];
	struct ibv_pd *pd[64];
	int i, j;

	for (i = 0; i < 64; i++) {
		pd[i] = MUST(ibv_alloc_pd(ctx[i % 2]));
		CHECK_OK(keeldv_query_pd(pd[i], &attr[i]));
		CHECK_EQ(attr[i].kind, KEELDV_PD_PLAIN);
		for (j = 0; j < i; j++)
			CHECK(attr[j].domain != attr[i].domain);
		/* Replace every third PD by a new PD. */
		if (i % 3)
			continue;
		CHECK_OK(ibv_dealloc_pd(pd[i]));
		pd[i] = MUST(ibv_alloc_pd(ctx[i % 2]));
		CHECK_OK(keeldv_query_pd(pd[i], &attr[i]));
		for (j = 0; j < i; j++)
			CHECK(attr[j].domain != attr[i].domain);
	}
	for (i = 0; i < 64; i++)
		CHECK_OK(ibv_dealloc_pd(pd[i]));
}

/* A refused ibv_dealloc_pd() must leave the object tree unchanged. */
static void check_busy(struct ibv_pd *pd)
{
	char *before = tree_text(KEEL0);

	CHECK_RET(ibv_dealloc_pd(pd), EBUSY);
	CHECK_SAME_TREE(before);
	free(before);
}

static void check_holder(struct ibv_pd *pd, enum keeldv_kind kind)
{
	struct keeldv_holder holder;
	uint32_t count = 1;

	CHECK_OK(keeldv_pd_holders(pd, &holder, &count));
	CHECK_EQ(count, 1);
	CHECK_EQ(holder.kind, kind);
	CHECK_EQ(holder.pid, getpid());
}

TEST(busy_mr, "PD-2", "ibv_dealloc_pd() returns EBUSY while the PD has an MR, and succeeds after ibv_dereg_mr()")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	struct ibv_mr *a = MUST(ibv_reg_mr(pd, page, PAGE, 0));
	struct ibv_mr *b = MUST(ibv_reg_mr(pd, page, 1, 0));

	check_busy(pd);
	CHECK_OK(ibv_dereg_mr(a));
	check_busy(pd);
	check_holder(pd, KEELDV_KIND_MR);
	CHECK_OK(ibv_dereg_mr(b));
	CHECK_OK(ibv_dealloc_pd(pd));
}

TEST(busy_mw, "PD-2", "ibv_dealloc_pd() returns EBUSY while the PD has an MW, and succeeds after ibv_dealloc_mw()")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	struct ibv_mw *mw = MUST(ibv_alloc_mw(pd, IBV_MW_TYPE_1));

	check_busy(pd);
	check_holder(pd, KEELDV_KIND_MW);
	CHECK_OK(ibv_dealloc_mw(mw));
	CHECK_OK(ibv_dealloc_pd(pd));
}

TEST(busy_ah, "PD-2", "ibv_dealloc_pd() returns EBUSY while the PD has an AH, and succeeds after ibv_destroy_ah()")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	struct ibv_ah *ah = ah_self(pd);

	check_busy(pd);
	check_holder(pd, KEELDV_KIND_AH);
	CHECK_OK(ibv_destroy_ah(ah));
	CHECK_OK(ibv_dealloc_pd(pd));
}

TEST(busy_parent, "PD-2,PDM-9", "ibv_dealloc_pd() returns EBUSY while the PD has a parent domain, and succeeds after the last is deallocated")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	struct ibv_pd *a = parent_new(pd, NULL), *b = parent_new(pd, NULL);

	check_busy(pd);
	CHECK_OK(ibv_dealloc_pd(a));
	check_busy(pd);
	check_holder(pd, KEELDV_KIND_PARENT);
	CHECK_OK(ibv_dealloc_pd(b));
	CHECK_OK(ibv_dealloc_pd(pd));
}

TEST(busy_dm_mr, "PD-2", "ibv_dealloc_pd() returns EBUSY while the PD has an MR of device memory, and succeeds after ibv_dereg_mr()")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_alloc_dm_attr attr = { .length = PAGE };
	struct ibv_dm *dm = MUST(ibv_alloc_dm(ctx, &attr));
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	struct ibv_mr *mr = MUST(ibv_reg_dm_mr(pd, dm, 0, PAGE,
					       IBV_ACCESS_ZERO_BASED));

	check_busy(pd);
	check_holder(pd, KEELDV_KIND_DM_MR);
	CHECK_OK(ibv_dereg_mr(mr));
	CHECK_OK(ibv_dealloc_pd(pd));
	CHECK_OK(ibv_free_dm(dm));
}

TEST(busy_many, "PD-2", "the last of an MR, an MW, an AH, a DM MR and a parent domain keeps the PD busy, in any order of destruction")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_alloc_dm_attr dm_attr = { .length = PAGE };
	struct ibv_dm *dm = MUST(ibv_alloc_dm(ctx, &dm_attr));
	int last, i;

	for (last = 0; last < 5; last++) {
		struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
		struct ibv_pd *parent = parent_new(pd, NULL);
		struct ibv_mr *mr = MUST(ibv_reg_mr(pd, page, PAGE, 0));
		struct ibv_mw *mw = MUST(ibv_alloc_mw(pd, IBV_MW_TYPE_1));
		struct ibv_ah *ah = ah_self(pd);
		struct ibv_mr *dm_mr = MUST(ibv_reg_dm_mr(pd, dm, 0, 8,
						IBV_ACCESS_ZERO_BASED));

		for (i = 0; i < 5; i++) {
			CHECK_RET(ibv_dealloc_pd(pd), EBUSY);
			switch ((last + 1 + i) % 5) {
			case 0:
				CHECK_OK(ibv_dereg_mr(mr));
				break;
			case 1:
				CHECK_OK(ibv_dealloc_mw(mw));
				break;
			case 2:
				CHECK_OK(ibv_destroy_ah(ah));
				break;
			case 3:
				CHECK_OK(ibv_dereg_mr(dm_mr));
				break;
			case 4:
				CHECK_OK(ibv_dealloc_pd(parent));
				break;
			}
		}
		CHECK_OK(ibv_dealloc_pd(pd));
	}
	CHECK_OK(ibv_free_dm(dm));
	CHECK_EQ(tree_count(KEEL0, NULL), 0);
}

/* Create one object of each kind, and the objects that these need. */
static void make_everything(struct ibv_context *ctx, bool mapped)
{
	struct ibv_xrcd_init_attr xrcd = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1, .oflags = O_CREAT,
	};
	struct ibv_td_init_attr td = {};
	struct ibv_parent_domain_init_attr parent = {
		.pd = MUST(ibv_alloc_pd(ctx)),
		.td = MUST(ibv_alloc_td(ctx, &td)),
	};
	struct ibv_pd *pd = MUST(ibv_alloc_parent_domain(ctx, &parent));
	struct ibv_alloc_dm_attr dm_attr = { .length = 3 * PAGE };
	struct ibv_dm *dm = MUST(ibv_alloc_dm(ctx, &dm_attr));

	MUST(ibv_reg_mr(pd, page, PAGE, 0));
	MUST(ibv_reg_mr(parent.pd, page, PAGE, 0));
	MUST(ibv_alloc_mw(pd, IBV_MW_TYPE_1));
	ah_self(pd);
	MUST(ibv_reg_dm_mr(pd, dm, PAGE, PAGE, IBV_ACCESS_ZERO_BASED));
	if (mapped)
		memset(MUST(keeldv_dm_map(dm)), 1, 3 * PAGE);
	MUST(ibv_open_xrcd(ctx, &xrcd));
}

static void hold_everything(struct peer *parent)
{
	make_everything(dev_open(KEEL0), true);
	make_everything(dev_open(KEEL0), true);
	peer_tell(parent);
	pause();
}

TEST(die_by_signal, "PD-3", "a process that any signal kills leaves no object behind")
{
	static const int sigs[] = {
		SIGKILL, SIGTERM, SIGINT, SIGSEGV, SIGABRT, SIGBUS, SIGUSR1,
	};
	struct peer p;
	size_t i;

	for (i = 0; i < sizeof(sigs) / sizeof(*sigs); i++) {
		peer_start(&p, hold_everything);
		peer_wait(&p);
		CHECK_EQ(tree_count(KEEL0, NULL), 2 * 11);
		peer_kill(&p, sigs[i]);
		CHECK_EQ(tree_count(KEEL0, NULL), 0);
	}
}

static void exit_with_everything(struct peer *parent)
{
	make_everything(dev_open(KEEL0), true);
	exit(0);
}

TEST(die_by_exit, "PD-3", "a process that exits without destroying its objects leaves no object behind")
{
	struct peer p;

	peer_start(&p, exit_with_everything);
	peer_end(&p);
	CHECK_EQ(tree_count(KEEL0, NULL), 0);
	CHECK_EQ(res_count(KEEL0, "pd") + res_count(KEEL0, "mr"), 0);
}

static void exec_with_everything(struct peer *parent)
{
	make_everything(dev_open(KEEL0), true);
	execl("/bin/true", "true", NULL);
}

TEST(die_by_exec, "PD-3", "a process that calls execl() leaves no object behind")
{
	struct peer p;

	peer_start(&p, exec_with_everything);
	peer_end(&p);
	CHECK_EQ(tree_count(KEEL0, NULL), 0);
}

TEST(close_device, "PD-3", "ibv_close_device() destroys the objects of its context and no object of another context")
{
	struct ibv_context *ctx = dev_open(KEEL0), *other = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(other));

	/* A mapping of device memory would keep the device file open. */
	make_everything(ctx, false);
	CHECK_EQ(tree_count(KEEL0, NULL), 11 + 2);
	CHECK_OK(ibv_close_device(ctx));
	CHECK_EQ(tree_count(KEEL0, "pd"), 1);
	CHECK_EQ(tree_count(KEEL0, "mr") + tree_count(KEEL0, "xrcd"), 0);
	CHECK_OK(ibv_dealloc_pd(pd));
}
