// SPDX-License-Identifier: GPL-2.0
/*
 * The upstream way of sharing: one file descriptor of the device, and handles.
 */
#include <signal.h>

#include <infiniband/keeldv.h>

#include "domain.h"
#include "pair.h"
#include "peer.h"
#include "raw.h"
#include "t.h"
#include "tree.h"

#define PAGE	4096

static char page[PAGE] __attribute__((aligned(PAGE)));

/* The owner tells the importer these handles and values. */
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
	struct ibv_pd *par = parent_new(pd, NULL);
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
	/*
	 * The importer may use the objects now. Then the owner tries to destroy
	 * them.
	 */
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

TEST(import, "SPD-9", "an imported device, PD and MR have the owner's domain and keys, and unimport destroys nothing")
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
	/* An object created with an imported PD keeps the owner's PD busy. */
	mine = MUST(ibv_reg_mr(pd, page, PAGE, 0));
	peer_tell(&p);
	peer_wait(&p);
	CHECK_OK(ibv_dereg_mr(mine));
	ibv_unimport_pd(pd);
	peer_tell(&p);
	peer_end(&p);
	CHECK_EQ(tree_count(KEEL0, NULL), 0);
}

TEST(outlive, "SPD-9", "the owner's objects live until the last process that has the device file closes it")
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

TEST(bad_handle, "SPD-9,DEV-4", "importing a handle of another type fails with EINVAL, an unknown handle with ENOENT")
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

TEST(import_dm, "DM-9", "a process that imported a DM reads and writes the owner's bytes, and sees the owner's length")
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
	/* The imported buffer has the owner's length. */
	CHECK_RET(ibv_memcpy_from_dm(said, dm, 2 * PAGE, 1), EINVAL);
	CHECK_RET(ibv_memcpy_from_dm(said, dm, PAGE, PAGE + 1), EINVAL);
	CHECK_OK(ibv_memcpy_to_dm(dm, 0, "and by the other", 17));
	ibv_unimport_dm(dm);
	/*
	 * ibv_unimport_dm() destroyed nothing: a second import sees all bytes.
	 */
	dm = MUST(ibv_import_dm(ctx, told.dm));
	CHECK_OK(ibv_memcpy_from_dm(said, dm, 0, 17));
	CHECK_STR(said, "and by the other");
	CHECK_OK(ibv_memcpy_from_dm(said, dm, PAGE, sizeof(said)));
	CHECK_STR(said, "said by the owner");
	peer_kill(&p, SIGKILL);
	CHECK_OK(ibv_memcpy_from_dm(said, dm, PAGE, sizeof(said)));
	CHECK_STR(said, "said by the owner");
}

/* Both processes map the buffer and store values for each other. */
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

TEST(import_dm_map, "DM-9", "two processes that map one DM see each other's stores")
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

#define REMOTE	(IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | \
		 IBV_ACCESS_REMOTE_ATOMIC)
#define ALL	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND | REMOTE)

/*
 * Two ways to register memory, and the access rights that an importer cannot
 * add to either.
 */
static const struct lending {
	unsigned int mode;	/* present in all access flags */
	unsigned int given;	/* by the owner */
	unsigned int added[5];	/* by the importer: each is refused */
} lendings[] = {
	{ IBV_ACCESS_ON_DEMAND, IBV_ACCESS_REMOTE_READ,
	  { IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_MW_BIND,
	    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
	    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC, ALL } },
	/*
	 * With LOCAL_WRITE the pages are pinned for writing: no further right
	 * would pin them again.
	 */
	{ 0, IBV_ACCESS_LOCAL_WRITE,
	  { IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_READ,
	    IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_MW_BIND, ALL } },
};

static int set_rights(struct ibv_mr *mr, unsigned int access)
{
	struct ib_uverbs_rereg_mr req = {
		.mr_handle = mr->handle, .flags = IBV_REREG_MR_CHANGE_ACCESS,
		.access_flags = access,
	};

	return raw_rereg_mr(mr->context->cmd_fd, &req);
}

struct lent {
	uint32_t pd, mr, rkey;
	uint64_t addr;
};

static void lender(struct peer *parent)
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	struct lent lent = { .pd = pd->handle, .addr = (uintptr_t)page };
	const struct lending *l;
	struct ibv_mr *mr;
	int which;

	memset(page, 'o', PAGE);
	peer_get_var(parent, which);
	l = &lendings[which];
	mr = MUST(ibv_reg_mr(pd, page, PAGE, l->mode | l->given));
	lent.mr = mr->handle;
	lent.rkey = mr->rkey;
	peer_put_fd(parent, ctx->cmd_fd);
	peer_put_var(parent, lent);
	/* The importer has tried to add each set of rights. */
	peer_wait(parent);
	CHECK_ALL(page, 'o', PAGE);
	/* The owner can grant any right. */
	CHECK_OK(set_rights(mr, l->mode | ALL));
	peer_tell(parent);
	peer_wait(parent);
	CHECK_ALL(page, 'x', 8);
	CHECK_ALL(page + 8, 'o', PAGE - 8);
	peer_tell(parent);
	/* The region now covers the importer's memory. */
	peer_wait(parent);
	CHECK_RET(set_rights(mr, l->mode | ALL), EPERM);
	peer_tell(parent);
	pause();
}

struct importer {
	struct peer peer;
	struct lent lent;
	struct ibv_pd *pd;
	struct ibv_mr *mr, *mine;
	struct pair p;
};

static char local[PAGE] __attribute__((aligned(PAGE)));

static void import_lent(struct importer *i, int which)
{
	int fd;

	peer_start(&i->peer, lender);
	peer_put_var(&i->peer, which);
	fd = peer_get_fd(&i->peer);
	peer_get_var(&i->peer, i->lent);
	i->pd = MUST(ibv_import_pd(MUST(ibv_import_device(fd)), i->lent.pd));
	i->mr = MUST(ibv_import_mr(i->pd, i->lent.mr));
	i->mine = MUST(ibv_reg_mr(i->pd, local, PAGE, IBV_ACCESS_LOCAL_WRITE));
	memset(local, 'x', PAGE);
}

static enum ibv_wc_status reach(struct importer *i, enum ibv_wr_opcode op,
				uint32_t rkey, uint64_t addr)
{
	enum ibv_wc_status status;

	i->p = pair_new(i->pd);
	status = pair_rdma(&i->p, 0, op, local, i->mine->lkey, 8, addr, rkey);
	pair_free(&i->p);
	return status;
}

/* Move the region to the importer's memory, then revoke all access rights. */
static void replace_memory(struct importer *i)
{
	static char mine[PAGE] __attribute__((aligned(PAGE)));
	struct ib_uverbs_rereg_mr req = {
		.mr_handle = i->mr->handle,
		.flags = IBV_REREG_MR_CHANGE_TRANSLATION |
			 IBV_REREG_MR_CHANGE_ACCESS,
		.start = (uintptr_t)mine, .hca_va = (uintptr_t)mine,
		.length = PAGE, .access_flags = ALL,
	};

	memset(local, 'x', PAGE);
	CHECK_OK(raw_rereg_mr(i->mr->context->cmd_fd, &req));
	CHECK_EQ(reach(i, IBV_WR_RDMA_WRITE, i->lent.rkey, (uintptr_t)mine),
		 IBV_WC_SUCCESS);
	CHECK_ALL(mine, 'x', 8);
	CHECK_ALL(mine + 8, 0, PAGE - 8);
	CHECK_OK(set_rights(i->mr, 0));
}

static void check_lending(int which)
{
	const struct lending *l = &lendings[which];
	bool readable = l->given & IBV_ACCESS_REMOTE_READ;
	struct importer i = {};
	size_t n;

	import_lent(&i, which);
	for (n = 0; n < sizeof(l->added) / sizeof(*l->added); n++) {
		t_note("given %#x, %#x added", l->given, l->added[n]);
		CHECK_RET(set_rights(i.mr, l->mode | l->given | l->added[n]),
			  EPERM);
		CHECK_EQ(reach(&i, IBV_WR_RDMA_WRITE, i.lent.rkey,
			       i.lent.addr), IBV_WC_REM_ACCESS_ERR);
	}
	/* The refused calls left the region unchanged. */
	CHECK_EQ(reach(&i, IBV_WR_RDMA_READ, i.lent.rkey, i.lent.addr),
		 readable ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR);
	CHECK_ALL(local, readable ? 'o' : 'x', 8);
	/* An importer can revoke a right but cannot grant that right again. */
	CHECK_OK(set_rights(i.mr, l->mode | l->given));
	CHECK_OK(set_rights(i.mr, l->mode));
	CHECK_RET(set_rights(i.mr, l->mode | l->given), EPERM);
	CHECK_EQ(reach(&i, IBV_WR_RDMA_READ, i.lent.rkey, i.lent.addr),
		 IBV_WC_REM_ACCESS_ERR);
	peer_tell(&i.peer);
	peer_wait(&i.peer);
	memset(local, 'x', PAGE);
	CHECK_EQ(reach(&i, IBV_WR_RDMA_WRITE, i.lent.rkey, i.lent.addr),
		 IBV_WC_SUCCESS);
	peer_tell(&i.peer);
	peer_wait(&i.peer);
	replace_memory(&i);
	peer_tell(&i.peer);
	peer_wait(&i.peer);
	CHECK_EQ(reach(&i, IBV_WR_RDMA_READ, i.lent.rkey, i.lent.addr),
		 IBV_WC_REM_ACCESS_ERR);
	peer_kill(&i.peer, SIGKILL);
}

TEST(rights_demand, "ISO-6,SPD-9", "ibv_rereg_mr() by an importer of an on-demand MR adds no access right (EPERM); its owner can add rights")
{
	check_lending(0);
}

TEST(rights_pinned, "ISO-6,SPD-9", "ibv_rereg_mr() by an importer of an MR pinned for writing adds no access right (EPERM); its owner can add rights")
{
	check_lending(1);
}

TEST(pins_nothing, "ISO-6,SPD-9", "ibv_rereg_mr() by an importer neither pins the owner's on-demand memory, nor makes pinned memory on-demand (EINVAL)")
{
	const struct lending *l;
	struct importer i;
	bool readable;
	int which;

	for (which = 0; which < 2; which++) {
		l = &lendings[which];
		readable = l->given & IBV_ACCESS_REMOTE_READ;
		i = (struct importer){};
		import_lent(&i, which);
		CHECK_RET(set_rights(i.mr, (l->mode ^ IBV_ACCESS_ON_DEMAND) |
				     l->given), EINVAL);
		CHECK_RET(set_rights(i.mr, l->mode ^ IBV_ACCESS_ON_DEMAND),
			  EINVAL);
		/* The refused calls left the region unchanged. */
		CHECK_EQ(reach(&i, IBV_WR_RDMA_READ, i.lent.rkey, i.lent.addr),
			 readable ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR);
		CHECK_ALL(local, readable ? 'o' : 'x', 8);
		CHECK_OK(set_rights(i.mr, l->mode | l->given));
		peer_kill(&i.peer, SIGKILL);
	}
}
