// SPDX-License-Identifier: GPL-2.0
/*
 * On-demand MRs, prefetch advice and ibv_rereg_mr().
 */
#include <signal.h>
#include <sys/mman.h>

#include <infiniband/shpd.h>

#include "domain.h"
#include "pair.h"
#include "peer.h"
#include "t.h"
#include "tree.h"

#define PAGE	4096UL
#define PAGES	64
#define BYTES	(PAGES * PAGE)
#define KEY	0x0123456789abcdefULL
#define ALL	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | \
		 IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)
#define DEMAND	(ALL | IBV_ACCESS_ON_DEMAND)

static char local[BYTES] __attribute__((aligned(4096)));

static char *map(int prot)
{
	return (char *)SYS(mmap(NULL, BYTES, prot,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

struct setup {
	struct ibv_pd *pd;
	struct ibv_mr *mine;
	struct pair p;
};

static struct setup setup(void)
{
	struct setup s = { .pd = MUST(ibv_alloc_pd(dev_open(KEEL0))) };

	s.mine = MUST(ibv_reg_mr(s.pd, local, BYTES, ALL));
	s.p = pair_new(s.pd);
	memset(local, 'x', BYTES);
	return s;
}

static enum ibv_wc_status rdma(struct setup *s, enum ibv_wr_opcode op,
			       const void *addr, uint32_t len, uint32_t rkey)
{
	return pair_rdma(&s->p, 0, op, local, s->mine->lkey, len,
			 (uintptr_t)addr, rkey);
}

static void again(struct setup *s)
{
	pair_free(&s->p);
	s->p = pair_new(s->pd);
}

/* Return how many pages of a mapping are resident. */
static int resident(char *p)
{
	unsigned char vec[PAGES];
	int i, n = 0;

	CHECK_SYS(mincore(p, BYTES, vec), 0);
	for (i = 0; i < PAGES; i++)
		n += vec[i] & 1;
	return n;
}

TEST(on_demand, "DEV-2", "an on-demand MR faults pages in at first use, sees the current mapping, and fails where nothing is mapped")
{
	struct setup s = setup();
	char *p = map(PROT_READ | PROT_WRITE);
	struct ibv_mr *mr = MUST(ibv_reg_mr(s.pd, p, BYTES, DEMAND));

	CHECK_EQ(resident(p), 0);
	CHECK_EQ(rdma(&s, IBV_WR_RDMA_WRITE, p + 5 * PAGE - 3, 6, mr->rkey),
		 IBV_WC_SUCCESS);
	CHECK_EQ(resident(p), 2);
	CHECK_ALL(p, 0, 5 * PAGE - 3);
	CHECK_ALL(p + 5 * PAGE - 3, 'x', 6);
	CHECK_ALL(p + 5 * PAGE + 3, 0, BYTES - 5 * PAGE - 3);
	/* Map other pages at the same addresses. */
	CHECK(mmap(p, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED |
		   MAP_ANONYMOUS, -1, 0) == p);
	memset(p, 'n', BYTES);
	CHECK_EQ(rdma(&s, IBV_WR_RDMA_READ, p, BYTES, mr->rkey),
		 IBV_WC_SUCCESS);
	CHECK_ALL(local, 'n', BYTES);
	/* RDMA can read a read-only mapping but cannot write it. */
	CHECK_SYS(mprotect(p, BYTES, PROT_READ), 0);
	CHECK_EQ(rdma(&s, IBV_WR_RDMA_READ, p, 8, mr->rkey), IBV_WC_SUCCESS);
	CHECK_EQ(rdma(&s, IBV_WR_RDMA_WRITE, p, 8, mr->rkey),
		 IBV_WC_REM_ACCESS_ERR);
	CHECK_ALL(p, 'n', BYTES);
	again(&s);
	CHECK_SYS(munmap(p + 9 * PAGE, PAGE), 0);
	CHECK_EQ(rdma(&s, IBV_WR_RDMA_READ, p, 9 * PAGE, mr->rkey),
		 IBV_WC_SUCCESS);
	CHECK_EQ(rdma(&s, IBV_WR_RDMA_READ, p, 9 * PAGE + 1, mr->rkey),
		 IBV_WC_REM_ACCESS_ERR);
	again(&s);
	/* On the requester's own side this is a protection error. */
	CHECK_EQ(pair_rdma(&s.p, 0, IBV_WR_RDMA_WRITE, p + 9 * PAGE, mr->lkey,
			   1, (uintptr_t)local, s.mine->rkey),
		 IBV_WC_LOC_PROT_ERR);
	CHECK_OK(ibv_dereg_mr(mr));
}

TEST(implicit, "DEV-2", "an implicit MR covers what the user process maps, before and after registration")
{
	struct setup s = setup();
	struct ibv_mr *mr = MUST(ibv_reg_mr(s.pd, NULL, SIZE_MAX, DEMAND));
	char *p = map(PROT_READ | PROT_WRITE);

	CHECK_EQ(rdma(&s, IBV_WR_RDMA_WRITE, p, BYTES, mr->rkey),
		 IBV_WC_SUCCESS);
	CHECK_ALL(p, 'x', BYTES);
	CHECK_SYS(munmap(p, BYTES), 0);
	CHECK_EQ(rdma(&s, IBV_WR_RDMA_WRITE, p, 1, mr->rkey),
		 IBV_WC_REM_ACCESS_ERR);
	again(&s);
	/* No process can register kernel addresses. */
	CHECK_EQ(rdma(&s, IBV_WR_RDMA_READ, (void *)(UINT64_MAX << 40), 1,
		      mr->rkey), IBV_WC_REM_ACCESS_ERR);
}

TEST(bad_demand, "DEV-4", "ibv_reg_mr() refuses an on-demand MR whose addresses wrap with EINVAL")
{
	struct ibv_pd *pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));

	CHECK_NULL(ibv_reg_mr(pd, local, SIZE_MAX, DEMAND), EINVAL);
	CHECK_NULL(ibv_reg_mr_iova(pd, NULL, SIZE_MAX, PAGE, DEMAND), EINVAL);
	CHECK_NULL(ibv_reg_mr_iova(pd, local, SIZE_MAX - PAGE, 0, DEMAND),
		   EINVAL);
	CHECK_EQ(tree_count(KEEL0, "mr"), 0);
}

static int advise(struct ibv_pd *pd, int advice, uint32_t flags, char *addr,
		  uint32_t len, uint32_t lkey)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)addr, .length = len, .lkey = lkey,
	};

	return ibv_advise_mr(pd, advice, flags, &sge, 1);
}

TEST(prefetch, "DEV-4", "ibv_advise_mr() faults pages in, and refuses invalid requests with the errno of its manual page")
{
	const int read = IBV_ADVISE_MR_ADVICE_PREFETCH;
	const int write = IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
	const int look = IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT;
	const uint32_t flush = IBV_ADVISE_MR_FLAG_FLUSH;
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	struct ibv_pd *other = MUST(ibv_alloc_pd(ctx));
	char *p = map(PROT_READ | PROT_WRITE);
	struct ibv_mr *mr = MUST(ibv_reg_mr(pd, p, BYTES - PAGE, DEMAND));
	struct ibv_mr *ro = MUST(ibv_reg_mr(pd, p, BYTES,
					    IBV_ACCESS_ON_DEMAND));
	struct ibv_mr *pinned = MUST(ibv_reg_mr(pd, local, BYTES, ALL));
	struct ibv_mw *mw = MUST(ibv_alloc_mw(pd, IBV_MW_TYPE_1));
	uint32_t lkey = mr->lkey;

	CHECK_OK(advise(pd, look, flush, p, PAGE, lkey));
	CHECK_EQ(resident(p), 0);
	CHECK_OK(advise(pd, write, flush, p + PAGE - 1, 2, lkey));
	CHECK_EQ(resident(p), 2);
	CHECK_OK(advise(pd, write, 0, p + 10 * PAGE, 20 * PAGE, lkey));
	CHECK_EQ(resident(p), 22);
	CHECK_OK(advise(pd, read, flush, p, 0, lkey));

	CHECK_RET(advise(pd, read, flush, p + BYTES - PAGE, 1, lkey), EFAULT);
	CHECK_RET(advise(pd, read, flush, p - 1, 1, lkey), EFAULT);
	CHECK_RET(advise(pd, read, flush, p, 1, lkey ^ 1), ENOENT);
	CHECK_RET(advise(other, read, flush, p, 1, lkey), EPERM);
	CHECK_RET(advise(pd, write, flush, p, 1, ro->lkey), EPERM);
	CHECK_OK(advise(pd, read, flush, p, 1, ro->lkey));
	CHECK_RET(advise(pd, read, flush, local, 1, pinned->lkey), EINVAL);
	CHECK_RET(advise(pd, read, flush, NULL, 0, mw->rkey), EINVAL);
	CHECK_RET(advise(pd, read, 2, p, 1, lkey), EINVAL);
	CHECK_RET(advise(pd, 77, flush, p, 1, lkey), EOPNOTSUPP);
	CHECK_SYS(munmap(p + 3 * PAGE, PAGE), 0);
	CHECK_RET(advise(pd, read, flush, p, 4 * PAGE, lkey), EFAULT);
	CHECK_OK(advise(pd, look, flush, p, 4 * PAGE, lkey));
}

struct lent {
	uint64_t addr;
	uint32_t rkey;
	struct ibv_shpd shpd;
};

static void lender(struct peer *parent)
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	char *p = map(PROT_READ | PROT_WRITE);
	struct ibv_mr *mr = MUST(ibv_reg_mr(pd, p, BYTES, DEMAND));
	struct lent lent = { .addr = (uintptr_t)p, .rkey = mr->rkey };

	MUST(ibv_alloc_shpd(pd, KEY, &lent.shpd));
	peer_put_var(parent, lent);
	peer_wait(parent);
	CHECK_ALL(p, 'x', BYTES);
	peer_tell(parent);
	pause();
}

TEST(of_another, "SPD-3,SPD-7", "RDMA writes by an on-demand key of another process reach that process's memory, and fail after its death")
{
	struct setup s = {};
	struct lent lent;
	struct peer peer;

	peer_start(&peer, lender);
	peer_get_var(&peer, lent);
	s.pd = MUST(ibv_share_pd(dev_open(KEEL0), &lent.shpd, KEY));
	s.mine = MUST(ibv_reg_mr(s.pd, local, BYTES, ALL));
	s.p = pair_new(s.pd);
	memset(local, 'x', BYTES);
	CHECK_EQ(rdma(&s, IBV_WR_RDMA_WRITE, (void *)lent.addr, BYTES,
		      lent.rkey), IBV_WC_SUCCESS);
	peer_tell(&peer);
	peer_wait(&peer);
	peer_kill(&peer, SIGKILL);
	CHECK_EQ(rdma(&s, IBV_WR_RDMA_WRITE, (void *)lent.addr, 1, lent.rkey),
		 IBV_WC_REM_ACCESS_ERR);
}

TEST(rereg, "PDM-3", "ibv_rereg_mr() changes rights, memory and PD, alone or together, and a refused call changes nothing")
{
	struct setup s = setup();
	struct ibv_pd *parent = parent_new(s.pd, NULL);
	struct ibv_pd *other = MUST(ibv_alloc_pd(s.pd->context));
	char *p = map(PROT_READ | PROT_WRITE), *q = map(PROT_READ | PROT_WRITE);
	struct ibv_mr *mr = MUST(ibv_reg_mr(s.pd, p, PAGE, 0));
	const int access = IBV_REREG_MR_CHANGE_ACCESS;
	const int pd = IBV_REREG_MR_CHANGE_PD;
	const int trans = IBV_REREG_MR_CHANGE_TRANSLATION;

	/*
	 * The MR is pinned for reading: ibv_rereg_mr() pins its pages again for
	 * writing.
	 */
	CHECK_OK(ibv_rereg_mr(mr, access, NULL, NULL, 0, ALL));
	CHECK_EQ(rdma(&s, IBV_WR_RDMA_WRITE, p, PAGE, mr->rkey),
		 IBV_WC_SUCCESS);
	CHECK_ALL(p, 'x', PAGE);
	CHECK_OK(ibv_rereg_mr(mr, trans, NULL, q + 3, 100, 0));
	CHECK_EQ(rdma(&s, IBV_WR_RDMA_WRITE, q + 3, 100, mr->rkey),
		 IBV_WC_SUCCESS);
	CHECK_ALL(q, 0, 3);
	CHECK_ALL(q + 3, 'x', 100);
	CHECK_ALL(q + 103, 0, PAGE - 103);
	CHECK_EQ(rdma(&s, IBV_WR_RDMA_WRITE, p, 1, mr->rkey),
		 IBV_WC_REM_ACCESS_ERR);
	again(&s);
	/* A refused ibv_rereg_mr() changes nothing. */
	CHECK(ibv_rereg_mr(mr, trans | pd | access, other,
			   (char *)(BYTES * 4096), 8, ALL));
	CHECK(ibv_rereg_mr(mr, access, NULL, NULL, 0, IBV_ACCESS_REMOTE_WRITE));
	CHECK_EQ(rdma(&s, IBV_WR_RDMA_WRITE, q + 3, 100, mr->rkey),
		 IBV_WC_SUCCESS);
	/*
	 * An MR cannot get a right that the process itself lacks on its
	 * mapping.
	 */
	CHECK_SYS(mprotect(q, BYTES, PROT_READ), 0);
	CHECK_OK(ibv_rereg_mr(mr, access, NULL, NULL, 0,
			      IBV_ACCESS_REMOTE_READ));
	CHECK_OK(ibv_rereg_mr(mr, trans, NULL, q, PAGE, 0));
	CHECK(ibv_rereg_mr(mr, access, NULL, NULL, 0, ALL));
	CHECK_EQ(rdma(&s, IBV_WR_RDMA_READ, q + 3, 100, mr->rkey),
		 IBV_WC_SUCCESS);
	CHECK_SYS(mprotect(q, BYTES, PROT_READ | PROT_WRITE), 0);
	CHECK_OK(ibv_rereg_mr(mr, access, NULL, NULL, 0, ALL));
	/* Move the MR to another domain and back, through a parent domain. */
	CHECK_OK(ibv_rereg_mr(mr, pd, other, NULL, 0, 0));
	CHECK_EQ(rdma(&s, IBV_WR_RDMA_WRITE, q + 3, 1, mr->rkey),
		 IBV_WC_REM_ACCESS_ERR);
	again(&s);
	CHECK_OK(ibv_rereg_mr(mr, pd, parent, NULL, 0, 0));
	CHECK_OK(ibv_dealloc_pd(other));
	CHECK_EQ(rdma(&s, IBV_WR_RDMA_WRITE, q + 3, 1, mr->rkey),
		 IBV_WC_SUCCESS);
	CHECK_RET(ibv_dealloc_pd(parent), EBUSY);
	/*
	 * Change PD, memory and access at once, to pages that are not resident
	 * yet.
	 */
	p = map(PROT_READ | PROT_WRITE);
	CHECK_OK(ibv_rereg_mr(mr, pd | trans | access, s.pd, p, BYTES, DEMAND));
	CHECK_OK(ibv_dealloc_pd(parent));
	CHECK_EQ(resident(p), 0);
	CHECK_EQ(rdma(&s, IBV_WR_RDMA_WRITE, p, BYTES, mr->rkey),
		 IBV_WC_SUCCESS);
	CHECK_ALL(p, 'x', BYTES);
	CHECK_EQ(tree_count(KEEL0, "mr"), 2);
	CHECK_OK(ibv_dereg_mr(mr));
}
