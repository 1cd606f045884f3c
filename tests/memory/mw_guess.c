// SPDX-License-Identifier: GPL-2.0
/*
 * A bind by key of a memory window before ibv_alloc_mw() returns.
 */
#include <pthread.h>

#include "pair.h"
#include "qp.h"
#include "t.h"
#include "tree.h"

#define PAGE	4096

static char page[PAGE] __attribute__((aligned(PAGE)));
static char local[64] __attribute__((aligned(64)));

/* One thread allocates windows, the other binds them by their keys. */
struct guess {
	struct ibv_pd *pd;
	struct pair p;
	struct ibv_mr *mine;	/* MR that reads scatter into */
	struct ibv_mr *mr;	/* MR that windows are bound to */
	pthread_barrier_t turn;
	int rounds;
	struct ibv_mw mw;	/* the binder's copy of the window */
	uint32_t seen;		/* its first key */
	enum ibv_wc_status status;
};

/* Return the key of the only window, or 0 if the window has no key yet. */
static uint32_t guess_key(void)
{
	uint32_t key = 0;
	struct tree tree;
	int i;

	tree_read(KEEL0, &tree);
	for (i = 0; i < tree.count; i++)
		if (!strcmp(tree.objs[i].kind, "mw") &&
		    strstr(tree.objs[i].text, "key "))
			key = tree_value(&tree.objs[i], "key");
	tree_free(&tree);
	return key;
}

static void *guesser(void *arg)
{
	struct guess *g = arg;
	struct ibv_mw_bind req = { .bind_info = {
		.mr = g->mr, .addr = (uintptr_t)page, .length = 8,
		.mw_access_flags = IBV_ACCESS_REMOTE_READ,
	} };
	int i;

	for (i = 0; i < g->rounds; i++) {
		pthread_barrier_wait(&g->turn);
		do
			g->seen = guess_key();
		while (!g->seen);
		g->mw = (struct ibv_mw){
			.context = g->pd->context, .pd = g->pd,
			.rkey = g->seen, .type = IBV_MW_TYPE_1,
		};
		CHECK_OK(ibv_bind_mw(g->p.qp[0], &g->mw, &req));
		g->status = pair_done(&g->p);
		pthread_barrier_wait(&g->turn);
	}
	return NULL;
}

TEST(guessed, "DEV-4", "a bind of a window during ibv_alloc_mw() succeeds, and ibv_alloc_mw() returns the window's first rkey")
{
	struct guess g = { .pd = MUST(ibv_alloc_pd(dev_open(KEEL0))),
			   .rounds = t_rounds(200) };
	struct ibv_mw *mw;
	pthread_t thread;
	int i;

	g.mine = MUST(ibv_reg_mr(g.pd, local, sizeof(local),
				 IBV_ACCESS_LOCAL_WRITE));
	g.mr = MUST(ibv_reg_mr(g.pd, page, PAGE, IBV_ACCESS_MW_BIND));
	g.p = pair_new(g.pd);
	CHECK_OK(pthread_barrier_init(&g.turn, NULL, 2));
	CHECK_OK(pthread_create(&thread, NULL, guesser, &g));
	for (i = 0; i < g.rounds; i++) {
		pthread_barrier_wait(&g.turn);
		mw = MUST(ibv_alloc_mw(g.pd, IBV_MW_TYPE_1));
		pthread_barrier_wait(&g.turn);
		CHECK_EQ(g.status, IBV_WC_SUCCESS);
		CHECK_EQ(mw->rkey, g.seen);
		CHECK_EQ(pair_rdma(&g.p, 1, IBV_WR_RDMA_READ, local,
				   g.mine->lkey, 8, (uintptr_t)page, g.mw.rkey),
			 IBV_WC_SUCCESS);
		CHECK_OK(ibv_dealloc_mw(mw));
	}
	CHECK_OK(pthread_join(thread, NULL));
}
