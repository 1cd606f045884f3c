// SPDX-License-Identifier: GPL-2.0
/*
 * One thread binds a window while another deregisters the MR, or takes a right from
 * it. Either the window is bound, and the MR is in use, or the bind fails.
 */
#include "duel.h"
#include "pair.h"
#include "t.h"
#include "tree.h"

#define PAGE	4096
#define RIGHTS	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND)

static char page[PAGE] __attribute__((aligned(PAGE)));
static char local[8] __attribute__((aligned(8)));
static struct ibv_pd *pd;
static struct ibv_mr *mine, *mr;
static struct ibv_mw *mw;
static struct pair p;
static enum ibv_wc_status bound;
static int err;
static uint32_t rkey;

/* The bind does not use the MR's structure, which the other thread may free. */
static uint32_t mr_lkey;
static struct ibv_mr copy;

static void begin(void)
{
	pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	mine = MUST(ibv_reg_mr(pd, local, sizeof(local),
			       IBV_ACCESS_LOCAL_WRITE));
	memset(local, 'x', sizeof(local));
}

static void new_window(void)
{
	p = pair_new(pd);
	mr = MUST(ibv_reg_mr(pd, page, PAGE, RIGHTS));
	mw = MUST(ibv_alloc_mw(pd, IBV_MW_TYPE_2));
	copy = *mr;
	mr_lkey = mr->lkey;
	memset(page, 0, PAGE);
}

static void bind(void)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_BIND_MW };

	rkey = ibv_inc_rkey(mw->rkey);
	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = rkey;
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){
		.mr = &copy, .addr = (uintptr_t)page, .length = PAGE,
		.mw_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};
	bound = pair_run(&p, 0, &wr);
}

static void dereg(void)
{
	err = ibv_dereg_mr(mr);
}

/* The key of the window opens the page, or nothing. */
static void check_opens(bool opens)
{
	struct pair q;

	if (opens) {
		CHECK_EQ(pair_rdma(&p, 1, IBV_WR_RDMA_WRITE, local, mine->lkey,
				   sizeof(local), (uintptr_t)page, rkey),
			 IBV_WC_SUCCESS);
		CHECK_ALL(page, 'x', sizeof(local));
		CHECK_ALL(page + sizeof(local), 0, PAGE - sizeof(local));
		return;
	}
	q = pair_new(pd);
	CHECK_EQ(pair_rdma(&q, 1, IBV_WR_RDMA_WRITE, local, mine->lkey,
			   sizeof(local), (uintptr_t)page, rkey),
		 IBV_WC_REM_ACCESS_ERR);
	CHECK_ALL(page, 0, PAGE);
	pair_free(&q);
}

/* @left: the MR exists although the other call came first. */
static enum duel_first judge(bool left)
{
	bool first = bound == IBV_WC_SUCCESS;

	/* The MR is in use by a bound window only. */
	CHECK_EQ(err, first ? EBUSY : 0);
	if (!first)
		CHECK_EQ(bound, IBV_WC_MW_BIND_ERR);
	check_opens(first);
	CHECK_OK(ibv_dealloc_mw(mw));
	if (first || left)
		CHECK_OK(ibv_dereg_mr(mr));
	pair_free(&p);
	return first ? DUEL_A : DUEL_B;
}

static enum duel_first judge_dereg(void)
{
	return judge(false);
}

TEST_SLOW(dereg, "PD-2,PD-4", "a bind against ibv_dereg_mr(), both orders: the window is bound and the MR in use, or neither", 120)
{
	begin();
	duel_short(new_window, bind, dereg, judge_dereg);
}

static void rereg(void)
{
	err = ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
			   IBV_ACCESS_LOCAL_WRITE) ? errno : 0;
}

/* The new region has the old key, but not the right to bind windows. */
static enum duel_first judge_rereg(void)
{
	CHECK_EQ(mr->lkey, mr_lkey);
	return judge(true);
}

TEST_SLOW(rereg, "PD-2,PD-4", "a bind against ibv_rereg_mr() that takes the right to bind, both orders: the window is bound and the MR in use, or the bind fails", 120)
{
	begin();
	duel_short(new_window, bind, rereg, judge_rereg);
}
