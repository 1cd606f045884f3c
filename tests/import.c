// SPDX-License-Identifier: GPL-2.0
/*
 * Upstream's way of sharing: one file descriptor of the device, and handles.
 */
#include <signal.h>

#include <infiniband/keeldv.h>

#include "peer.h"
#include "t.h"
#include "tree.h"

#define PAGE	4096

static char page[PAGE] __attribute__((aligned(PAGE)));

/* What the owner tells those who import. */
struct told {
	uint32_t pd, parent, mr, lkey, rkey, dm, domain;
	uint64_t length;
};

static void owner(struct peer *parent)
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_alloc_dm_attr dm_attr = { .length = 2 * PAGE };
	struct ibv_dm *dm = MUST(ibv_alloc_dm(ctx, &dm_attr));
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	struct ibv_parent_domain_init_attr attr = { .pd = pd };
	struct ibv_pd *par = MUST(ibv_alloc_parent_domain(ctx, &attr));
	struct ibv_mr *mr = MUST(ibv_reg_mr(pd, page, 100, 0));
	struct keeldv_pd_attr pd_attr;
	struct told told = {
		.pd = pd->handle, .parent = par->handle, .mr = mr->handle,
		.lkey = mr->lkey, .rkey = mr->rkey, .length = mr->length,
		.dm = dm->handle,
	};

	CHECK_OK(keeldv_query_pd(pd, &pd_attr));
	told.domain = pd_attr.domain;
	CHECK_OK(ibv_memcpy_to_dm(dm, PAGE, "said by the owner", 18));
	peer_put_fd(parent, ctx->cmd_fd);
	peer_put_var(parent, told);
	/* They may now use it; then it is tried to free what they use. */
	peer_wait(parent);
	CHECK_OK(ibv_dealloc_pd(par));
	CHECK_OK(ibv_dereg_mr(mr));
	CHECK_RET(ibv_dealloc_pd(pd), EBUSY);
	peer_tell(parent);
	peer_wait(parent);
	CHECK_OK(ibv_dealloc_pd(pd));
	CHECK_OK(ibv_free_dm(dm));
}

static struct ibv_context *get_context(struct peer *p, struct told *told)
{
	int fd = peer_get_fd(p);

	peer_get_var(p, *told);
	return MUST(ibv_import_device(fd));
}

TEST(import, "SPD-9", "an imported device, PD and MR are the owner's: same domain, same keys; unimport destroys nothing")
{
	struct keeldv_pd_attr attr;
	struct ibv_context *ctx;
	struct ibv_pd *pd, *par;
	struct ibv_mr *mr, *mine;
	struct told told;
	struct peer p;
	char *before;

	peer_start(&p, owner);
	ctx = get_context(&p, &told);
	before = tree_text(KEEL0);
	pd = MUST(ibv_import_pd(ctx, told.pd));
	CHECK(pd->context == ctx);
	CHECK_EQ(pd->handle, told.pd);
	CHECK_OK(keeldv_query_pd(pd, &attr));
	CHECK_EQ(attr.domain, told.domain);
	CHECK_EQ(attr.kind, KEELDV_PD_PLAIN);
	par = MUST(ibv_import_pd(ctx, told.parent));
	CHECK_OK(keeldv_query_pd(par, &attr));
	CHECK_EQ(attr.domain, told.domain);
	CHECK_EQ(attr.kind, KEELDV_PD_PARENT);
	mr = MUST(ibv_import_mr(pd, told.mr));
	CHECK_EQ(mr->lkey, told.lkey);
	CHECK_EQ(mr->rkey, told.rkey);
	CHECK_EQ(mr->length, told.length);
	CHECK_EQ(mr->handle, told.mr);
	ibv_unimport_mr(mr);
	ibv_unimport_pd(par);
	CHECK_SAME_TREE(before);
	/* What is made with an imported PD keeps the owner's busy. */
	mine = MUST(ibv_reg_mr(pd, page, PAGE, 0));
	peer_tell(&p);
	peer_wait(&p);
	CHECK_OK(ibv_dereg_mr(mine));
	ibv_unimport_pd(pd);
	peer_tell(&p);
	peer_end(&p);
	CHECK_EQ(tree_count(KEEL0, NULL), 0);
}

TEST(outlive, "SPD-9", "what the owner made lives on while an importer has the device, and goes with the last of them")
{
	struct ibv_context *ctx;
	struct told told;
	struct ibv_pd *pd;
	struct peer p;

	peer_start(&p, owner);
	ctx = get_context(&p, &told);
	pd = MUST(ibv_import_pd(ctx, told.pd));
	peer_kill(&p, SIGKILL);
	CHECK_EQ(tree_count(KEEL0, "mr"), 1);
	CHECK_OK(ibv_dereg_mr(MUST(ibv_import_mr(pd, told.mr))));
	CHECK_OK(ibv_dealloc_pd(MUST(ibv_import_pd(ctx, told.parent))));
	CHECK_OK(ibv_dealloc_pd(pd));
	CHECK_EQ(tree_count(KEEL0, NULL), 1);
	CHECK_OK(ibv_close_device(ctx));
	CHECK_EQ(tree_count(KEEL0, NULL), 0);
}

TEST(bad_handle, "SPD-9,DEV-4", "a handle that the device file does not have, or of another type, cannot be imported")
{
	struct ibv_context *ctx;
	struct told told;
	struct ibv_pd *pd;
	struct peer p;

	peer_start(&p, owner);
	ctx = get_context(&p, &told);
	CHECK_NULL(ibv_import_pd(ctx, told.mr), EINVAL);
	CHECK_NULL(ibv_import_pd(ctx, told.dm), EINVAL);
	CHECK_NULL(ibv_import_pd(ctx, 12345), ENOENT);
	CHECK_NULL(ibv_import_pd(ctx, ~0U), ENOENT);
	pd = MUST(ibv_import_pd(ctx, told.pd));
	CHECK_NULL(ibv_import_mr(pd, told.pd), EINVAL);
	CHECK_NULL(ibv_import_mr(pd, 12345), ENOENT);
	CHECK_NULL(ibv_import_dm(ctx, told.pd), EINVAL);
	CHECK_NULL(ibv_import_dm(ctx, 12345), ENOENT);
	peer_kill(&p, SIGKILL);
}

TEST(import_dm, "DM-9", "ibv_import_dm in a process that imported the device reaches the same bytes, both ways")
{
	char said[18], *map;
	struct ibv_context *ctx;
	struct told told;
	struct ibv_dm *dm;
	struct peer p;

	peer_start(&p, owner);
	ctx = get_context(&p, &told);
	dm = MUST(ibv_import_dm(ctx, told.dm));
	CHECK_OK(ibv_memcpy_from_dm(said, dm, PAGE, sizeof(said)));
	CHECK_STR(said, "said by the owner");
	map = MUST(keeldv_dm_map(dm));
	CHECK_STR(map + PAGE, "said by the owner");
	/* The length is the owner's, too. */
	CHECK_RET(ibv_memcpy_from_dm(said, dm, 2 * PAGE, 1), EINVAL);
	CHECK_RET(ibv_memcpy_from_dm(said, dm, PAGE, PAGE + 1), EINVAL);
	CHECK_OK(ibv_memcpy_to_dm(dm, 0, "and by the other", 17));
	ibv_unimport_dm(dm);
	/* Unimport destroyed nothing, and another import sees it all. */
	dm = MUST(ibv_import_dm(ctx, told.dm));
	CHECK_OK(ibv_memcpy_from_dm(said, dm, 0, 17));
	CHECK_STR(said, "and by the other");
	CHECK_OK(ibv_memcpy_from_dm(said, dm, PAGE, sizeof(said)));
	CHECK_STR(said, "said by the owner");
	peer_kill(&p, SIGKILL);
	CHECK_OK(ibv_memcpy_from_dm(said, dm, PAGE, sizeof(said)));
	CHECK_STR(said, "said by the owner");
}

/* Both map it, and talk through it. */
static void dm_talk(struct peer *parent)
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_alloc_dm_attr attr = { .length = 3 * PAGE };
	struct ibv_dm *dm = MUST(ibv_alloc_dm(ctx, &attr));
	volatile uint64_t *map = MUST(keeldv_dm_map(dm));
	struct told told = { .dm = dm->handle };
	int i;

	peer_put_fd(parent, ctx->cmd_fd);
	peer_put_var(parent, told);
	for (i = 0; i < 100; i++) {
		peer_wait(parent);
		map[i * 15 + 1] = map[i * 15] + 1;
		peer_tell(parent);
	}
}

TEST(import_dm_map, "DM-9", "two processes that map one buffer see each other's stores")
{
	volatile uint64_t *map;
	struct ibv_context *ctx;
	struct told told;
	struct peer p;
	int i;

	peer_start(&p, dm_talk);
	ctx = get_context(&p, &told);
	map = MUST(keeldv_dm_map(MUST(ibv_import_dm(ctx, told.dm))));
	for (i = 0; i < 100; i++) {
		map[i * 15] = 1000000ULL * i;
		peer_tell(&p);
		peer_wait(&p);
		CHECK_EQ(map[i * 15 + 1], 1000000ULL * i + 1);
	}
	peer_end(&p);
}
