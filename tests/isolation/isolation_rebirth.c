// SPDX-License-Identifier: GPL-2.0
/*
 * Processes that create queue pairs with full queues, and die, again and again: the
 * flushes of a user's dead processes take a part of a processor, however many they are.
 */
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include <rdma/keel-queue.h>

#include "dev.h"
#include "iso.h"
#include "qp.h"
#include "t.h"
#include "user.h"

#define WRS		16384
#define QPS		14
#define STACK		(256 << 10)
#define RING		(1024 << 10)
#define RUN_US		3000000ULL
#define USERS		12
#define FIRST_UID	1000
/* The kernel has other work, and counts in steps. */
#define PERCENT		20
/* Without a limit it is 34. */
#define PERCENT_OF_ALL	30

static struct keel_uapi_ring *rings[2];
static int n_rings;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp[QPS], *peer;
static int next_uid;

static uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000ULL + t.tv_nsec / 1000;
}

/* All queue pairs use the same memory: a send queue and a receive queue. */
static void *ring_alloc(struct ibv_pd *of, void *context, size_t size,
			size_t alignment, uint64_t type)
{
	return rings[n_rings++ % 2];
}

static void ring_free(struct ibv_pd *of, void *context, void *p, uint64_t type)
{
}

/* A process with the memory and the files of its parent, but with its own worker. */
static int creator(void *arg)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = WRS,
			 .max_send_sge = 1, .max_recv_sge = 1 },
	};
	int i;

	if (!cq)
		cq = cq_new(pd->context);
	init.send_cq = cq;
	init.recv_cq = cq;
	for (i = 0; i < QPS; i++) {
		qp[i] = MUST(ibv_create_qp(pd, &init));
		qp_connect(qp[i], peer->qp_num);
	}
	_exit(0);
}

/* Let a process create QPs and die, fill their queues, and let the kernel flush them. */
static void one_life(char *stack)
{
	int i;

	SYS(waitpid(SYS(clone(creator, stack + STACK, CLONE_VM | CLONE_FILES | SIGCHLD,
			      NULL)), NULL, 0));
	rings[0]->user = 1;
	rings[1]->user = WRS;
	/* A requester becomes ready to receive from each of them, which wakes it. */
	for (i = 0; i < QPS; i++) {
		qp_to(peer, IBV_QPS_RESET);
		qp_to_init(peer);
		qp_to_rtr(peer, qp[i]->qp_num);
	}
	for (i = 0; i < 100 && __atomic_load_n(&rings[1]->kernel, __ATOMIC_RELAXED) != WRS;
	     i++)
		usleep(1000);
	for (i = 0; i < QPS; i++)
		CHECK_OK(ibv_destroy_qp(qp[i]));
}

static int lives_for(uint64_t run_us)
{
	struct ibv_parent_domain_init_attr attr = {
		.alloc = ring_alloc, .free = ring_free,
		.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS,
	};
	char *stack = (char *)SYS(mmap(NULL, STACK, PROT_READ | PROT_WRITE,
				       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	struct ibv_context *ctx = dev_open(KEEL0), *ctx2 = dev_open(KEEL0);
	uint64_t start = now_us();
	int lives;

	rings[0] = peer_shared(RING);
	rings[1] = peer_shared(RING);
	attr.pd = MUST(ibv_alloc_pd(ctx));
	pd = MUST(ibv_alloc_parent_domain(ctx, &attr));
	peer = qp_new(MUST(ibv_alloc_pd(ctx2)), cq_new(ctx2), IBV_QPT_RC, NULL);
	for (lives = 0; now_us() - start < run_us; lives++)
		one_life(stack);
	return lives;
}

static void one_user(struct peer *parent)
{
	user_become(next_uid);
	peer_tell(parent);
	peer_wait(parent);
	lives_for(RUN_US);
	peer_tell(parent);
}

/* Let some users do this at the same time; kernel threads get @percent. */
static void check_part(int users, unsigned int percent)
{
	long flushed = dev_counter("flushes");
	struct peer p[USERS];
	uint64_t kernel, us;
	int i;

	for (i = 0; i < users; i++) {
		next_uid = FIRST_UID + i;
		peer_start(&p[i], one_user);
		peer_wait(&p[i]);
	}
	kernel = iso_kernel_us();
	us = now_us();
	for (i = 0; i < users; i++)
		peer_tell(&p[i]);
	for (i = 0; i < users; i++)
		peer_wait(&p[i]);
	us = now_us() - us;
	kernel = iso_kernel_us() - kernel;
	for (i = 0; i < users; i++)
		peer_end(&p[i]);
	flushed = dev_counter("flushes") - flushed;
	t_note("%ld flushes, kernel threads took %llu of %llu ms", flushed,
	       (unsigned long long)kernel / 1000, (unsigned long long)us / 1000);
	CHECK(flushed >= QPS * 64);
	CHECK(kernel < us * percent / 100);
}

TEST_CASE(part, "ISO-2", "the flushes for a user whose processes die with full queues, again and again, take a tenth of a processor",
	  .limit = 60, ISO_NEEDS_THREADS)
{
	check_part(1, PERCENT);
}

TEST_CASE(parts, "ISO-2", "the flushes for many such users take a quarter of a processor",
	  .limit = 60, ISO_NEEDS_THREADS)
{
	check_part(USERS, PERCENT_OF_ALL);
}
