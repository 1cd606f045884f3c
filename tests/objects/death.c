// SPDX-License-Identifier: GPL-2.0
/*
 * Processes that die at a random moment, in the middle of any call.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <infiniband/keeldv.h>
#include <infiniband/shpd.h>

#include "peer.h"
#include "t.h"
#include "tree.h"

#define PAGE	4096

static char page[16 * PAGE] __attribute__((aligned(PAGE)));

/* Create an object of each kind and destroy some of them. */
static void churn(struct ibv_context *ctx, uint64_t *seed)
{
	struct ibv_alloc_dm_attr dm_attr = {
		.length = 1 + t_random(seed) % 100000,
	};
	struct ibv_xrcd_init_attr xrcd = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1, .oflags = O_CREAT,
	};
	struct ibv_td_init_attr td = {};
	struct ibv_parent_domain_init_attr attr = {
		.pd = MUST(ibv_alloc_pd(ctx)),
		.td = MUST(ibv_alloc_td(ctx, &td)),
	};
	struct ibv_dm *dm = MUST(ibv_alloc_dm(ctx, &dm_attr));
	struct ibv_pd *parent = MUST(ibv_alloc_parent_domain(ctx, &attr));
	struct ibv_mr *mr, *dm_mr;
	struct ibv_shpd shpd;

	if (ibv_alloc_shpd(attr.pd, *seed, &shpd))
		ibv_share_pd(ctx, &shpd, *seed);
	memset(MUST(keeldv_dm_map(dm)), 1, dm_attr.length);
	dm_mr = MUST(ibv_reg_dm_mr(parent, dm, 0, 1, IBV_ACCESS_ZERO_BASED));
	mr = MUST(ibv_reg_mr(parent, page, sizeof(page), 0));
	MUST(ibv_alloc_mw(attr.pd, IBV_MW_TYPE_1));
	MUST(ibv_open_xrcd(ctx, &xrcd));
	ibv_dereg_mr(dm_mr);
	/*
	 * ibv_free_dm() also unmaps the buffer: a mapping would keep the device
	 * file open.
	 */
	ibv_free_dm(dm);
	if (t_random(seed) % 2) {
		ibv_dereg_mr(mr);
		ibv_dealloc_pd(parent);
	}
}

/* Create and destroy objects until the test kills the process. */
static void busy(uint64_t seed)
{
	struct ibv_context *ctx = dev_open(KEEL0);

	seed |= 1;
	for (;;) {
		churn(ctx, &seed);
		if (t_random(&seed) % 8)
			continue;
		CHECK_OK(ibv_close_device(ctx));
		ctx = dev_open(KEEL0);
	}
}

static void *busy_thread(void *arg)
{
	busy((uintptr_t)arg);
	return NULL;
}

static void busy_process(struct peer *parent)
{
	uint64_t seed;
	pthread_t thread;

	peer_get_var(parent, seed);
	pthread_create(&thread, NULL, busy_thread, (void *)(uintptr_t)~seed);
	busy(seed);
}

static void nap(uint64_t ns)
{
	struct timespec t = { .tv_nsec = ns };

	nanosleep(&t, NULL);
}

TEST_SLOW(killed_anywhere, "PD-3", "a process of two threads that a signal kills at a random moment leaves nothing behind", 200)
{
	static const int sigs[] = { SIGKILL, SIGTERM, SIGSEGV, SIGABRT };
	uint64_t seed = 4711;
	struct peer p;
	int i;

	for (i = 0; i < t_rounds(120); i++) {
		peer_start(&p, busy_process);
		t_random(&seed);
		peer_put_var(&p, seed);
		nap(t_random(&seed) % 30000000);
		peer_kill(&p, sigs[i % 4]);
		CHECK_EQ(tree_count(KEEL0, NULL), 0);
	}
	CHECK_EQ(res_count(KEEL0, "pd") + res_count(KEEL0, "mr") +
		 res_count(KEEL0, "ctx"), 0);
}

static void exit_in_call(struct peer *parent)
{
	uint64_t seed;
	pthread_t thread;
	int i;

	peer_get_var(parent, seed);
	for (i = 0; i < 2; i++)
		pthread_create(&thread, NULL, busy_thread,
			       (void *)(uintptr_t)(seed + i));
	nap(t_random(&seed) % 20000000);
	/* The other threads are in the middle of a call. */
	_exit(0);
}

TEST_SLOW(exit_anywhere, "PD-3", "a process that exits while its threads are in the middle of calls leaves nothing behind", 200)
{
	uint64_t seed = 815;
	struct peer p;
	int i;

	for (i = 0; i < t_rounds(60); i++) {
		peer_start(&p, exit_in_call);
		t_random(&seed);
		peer_put_var(&p, seed);
		peer_end(&p);
		CHECK_EQ(tree_count(KEEL0, NULL), 0);
	}
}

static void fork_and_die(struct peer *parent)
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_alloc_dm_attr attr = { .length = PAGE };
	pid_t child;

	MUST(ibv_reg_mr(MUST(ibv_alloc_pd(ctx)), page, PAGE, 0));
	memset(MUST(keeldv_dm_map(MUST(ibv_alloc_dm(ctx, &attr)))), 1, PAGE);
	child = SYS(fork());
	if (!child) {
		/*
		 * The child shares the device file, and both processes die at
		 * about the same time.
		 */
		for (;;)
			MUST(ibv_alloc_pd(ctx));
	}
	nap(3000000);
	kill(child, SIGKILL);
	exit(0);
}

TEST(forked, "PD-3", "objects of a device file that fork() shared are freed when both processes are dead, in either order")
{
	struct peer p;
	int i, n;

	for (i = 0; i < t_rounds(40); i++) {
		peer_start(&p, fork_and_die);
		peer_end(&p);
		/* The child is an orphan now and may need a moment to die. */
		for (n = 0; n < 1000 && tree_count(KEEL0, NULL); n++)
			usleep(1000);
		CHECK_EQ(tree_count(KEEL0, NULL), 0);
	}
}

TEST(watched, "PD-3,DEV-4", "debugfs and rdma resource show whole objects while another process creates and destroys objects")
{
	uint64_t seed = 1;
	struct tree tree;
	struct peer p;
	int i;

	peer_start(&p, busy_process);
	peer_put_var(&p, seed);
	for (i = 0; i < t_rounds(200); i++) {
		/* tree_read() fails the test if it cannot parse a line. */
		tree_read(KEEL0, &tree);
		tree_free(&tree);
		if (i % 50 == 0)
			res_count(KEEL0, "mr");
	}
	peer_kill(&p, SIGKILL);
	CHECK_EQ(tree_count(KEEL0, NULL), 0);
}
