// SPDX-License-Identifier: GPL-2.0
/*
 * Processes that create queue pairs with full queues, and die, again and again: the
 * flushes of a user's dead processes take a part of a processor, however many they are.
 * Each user gets an equal part of the time, although the events of one may take very long.
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
/* Much longer than the time that a user may save up. */
#define RUN_US		8000000ULL
#define USERS		12
#define FIRST_UID	1000
/* The kernel has other work, and counts in steps. */
#define PERCENT		20
/* Without a limit it is 34. */
#define PERCENT_OF_ALL	30
#define RUNS		3
#define EVENT_USERS	4
/* With checkers, an event takes some 25 ms, and to flush so many WQEs 70 ms, in 32 steps. */
#define WAITERS		(150 * ISO_EPOLLS)
#define FEW_WRS		2048
#define PATIENCE_MS	60000

static struct keel_uapi_ring *rings[2];
static int n_rings;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp[QPS], *peer;
static int qps = QPS;
static unsigned int wrs = WRS;
static int next_uid;

/* Of a process that has an event again and again. */
static char page[ISO_PAGE] __attribute__((aligned(ISO_PAGE)));
static struct ibv_comp_channel *channel;
static struct ibv_mr *mr;
/* The events of each of these processes, and during the last flush of another one. */
static long *events;
static int next_user;
static long during;

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
		.cap = { .max_send_wr = 1, .max_recv_wr = wrs,
			 .max_send_sge = 1, .max_recv_sge = 1 },
	};
	int i;

	if (!cq)
		cq = cq_new(pd->context);
	init.send_cq = cq;
	init.recv_cq = cq;
	for (i = 0; i < qps; i++) {
		qp[i] = MUST(ibv_create_qp(pd, &init));
		qp_connect(qp[i], peer->qp_num);
	}
	_exit(0);
}

static void in_child(int (*fn)(void *arg), char *stack)
{
	SYS(waitpid(SYS(clone(fn, stack + STACK, CLONE_VM | CLONE_FILES | SIGCHLD, NULL)),
		    NULL, 0));
}

static char *stack_new(void)
{
	return (char *)SYS(mmap(NULL, STACK, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

static long all_events(void)
{
	long sum = 0;
	int i;

	for (i = 0; events && i < EVENT_USERS; i++)
		sum += __atomic_load_n(&events[i], __ATOMIC_RELAXED);
	return sum;
}

static bool is_flushed(void)
{
	return __atomic_load_n(&rings[1]->kernel, __ATOMIC_RELAXED) == wrs;
}

/*
 * Let a process create QPs and die, fill their queues, and let the kernel flush them.
 * Returns false if one is not flushed soon.
 */
static bool one_life(char *stack, int ms)
{
	bool flushed;
	long before;
	int i;

	in_child(creator, stack);
	before = all_events();
	rings[0]->user = 1;
	rings[1]->user = wrs;
	/* A requester becomes ready to receive from each of them, which wakes it. */
	for (i = 0; i < qps; i++) {
		qp_to(peer, IBV_QPS_RESET);
		qp_to_init(peer);
		qp_to_rtr(peer, qp[i]->qp_num);
	}
	for (i = 0; !is_flushed() && i < ms; i++)
		usleep(1000);
	flushed = is_flushed();
	during = all_events() - before;
	for (i = 0; i < qps; i++)
		CHECK_OK(ibv_destroy_qp(qp[i]));
	return flushed;
}

static void lives_begin(void)
{
	struct ibv_parent_domain_init_attr attr = {
		.alloc = ring_alloc, .free = ring_free,
		.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS,
	};
	struct ibv_context *ctx = dev_open(KEEL0), *ctx2 = dev_open(KEEL0);

	rings[0] = peer_shared(RING);
	rings[1] = peer_shared(RING);
	attr.pd = MUST(ibv_alloc_pd(ctx));
	pd = MUST(ibv_alloc_parent_domain(ctx, &attr));
	peer = qp_new(MUST(ibv_alloc_pd(ctx2)), cq_new(ctx2), IBV_QPT_RC, NULL);
}

static void lives_for(uint64_t run_us)
{
	uint64_t start = now_us();
	char *stack = stack_new();

	lives_begin();
	while (now_us() - start < run_us)
		one_life(stack, 100);
}

static void one_user(struct peer *parent)
{
	user_become(next_uid);
	peer_tell(parent);
	peer_wait(parent);
	lives_for(RUN_US);
	peer_tell(parent);
}

/* Let some users do this at the same time. Returns whether kernel threads get @percent. */
static bool part_is_small(int users, unsigned int percent)
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
	return kernel < us * percent / 100;
}

/*
 * The clock of a guest also runs while its host does something else, and the time is then
 * counted for the thread that it interrupted. So one of a few runs must stay below.
 */
static void check_part(int users, unsigned int percent)
{
	int i;

	for (i = 0; i < RUNS; i++)
		if (part_is_small(users, percent))
			return;
	FAIL("kernel threads got more than %u percent in %d runs", percent, RUNS);
}

TEST_CASE(part, "ISO-2", "the flushes for a user whose processes die with full queues, again and again, take a tenth of a processor",
	  .limit = 120, ISO_NEEDS_THREADS)
{
	check_part(1, PERCENT);
}

TEST_CASE(parts, "ISO-2", "the flushes for many such users take a quarter of a processor",
	  .limit = 120, ISO_NEEDS_THREADS)
{
	check_part(USERS, PERCENT_OF_ALL);
}

/* A process that creates a QP and dies, so a workqueue raises the event of its channel. */
static int event_creator(void *arg)
{
	struct ibv_sge sge = { (uintptr_t)page, ISO_GRH + 64, mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	cq = MUST(ibv_create_cq(pd->context, 64, NULL, channel, 0));
	qp[0] = qp_new(pd, cq, IBV_QPT_UD, NULL);
	qp_connect(qp[0], 0);
	CHECK_OK(ibv_post_recv(qp[0], &wr, &bad));
	CHECK_OK(ibv_req_notify_cq(cq, 0));
	_exit(0);
}

static void one_event(struct iso_end *e, char *stack)
{
	struct ibv_send_wr *wr;
	struct ibv_cq *event_cq;
	void *context;

	in_child(event_creator, stack);
	wr = send_wr(IBV_WR_SEND, 2, MEM(e->mr));
	wr->sg_list->length = 64;
	wr_to(wr, e->ah, qp[0]);
	post(e->qp, wr);
	CHECK_EQ(wc_get(e->cq).status, IBV_WC_SUCCESS);
	CHECK_OK(ibv_get_cq_event(channel, &event_cq, &context));
	CHECK(event_cq == cq);
	ibv_ack_cq_events(event_cq, 1);
	__atomic_fetch_add(&events[next_user], 1, __ATOMIC_RELAXED);
	CHECK_OK(ibv_destroy_qp(qp[0]));
	CHECK_OK(ibv_destroy_cq(cq));
}

static void event_user(struct peer *parent)
{
	char *stack = stack_new();
	struct ibv_context *ctx;
	struct iso_end e;

	user_become(next_uid);
	ctx = dev_open(KEEL0);
	pd = MUST(ibv_alloc_pd(ctx));
	mr = MUST(ibv_reg_mr(pd, page, ISO_PAGE, IBV_ACCESS_LOCAL_WRITE));
	channel = MUST(ibv_create_comp_channel(ctx));
	iso_watch(channel->fd, WAITERS);
	iso_open(&e, KEEL0, NULL, ISO_UD);
	e.mr = iso_mr(&e, page, 0);
	qp_connect(e.qp, 0);
	peer_tell(parent);
	peer_wait(parent);
	for (;;)
		one_event(&e, stack);
}

/* Tell the events of the others during the flush of one queue of this user, or -1. */
static void flush_user(struct peer *parent)
{
	user_become(next_uid);
	qps = 1;
	wrs = FEW_WRS;
	lives_begin();
	peer_tell(parent);
	peer_wait(parent);
	if (!one_life(stack_new(), PATIENCE_MS))
		during = -1;
	peer_put_var(parent, during);
}

TEST_CASE(even, "ISO-1, ISO-2", "the flush of a user's dead process takes many steps, and does not wait in each for an event of all others",
	  .limit = 120, ISO_NEEDS_THREADS)
{
	struct peer p[EVENT_USERS], flusher;
	int i;

	events = peer_shared(EVENT_USERS * sizeof(*events));
	for (i = 0; i < EVENT_USERS; i++) {
		next_user = i;
		next_uid = FIRST_UID + i;
		peer_start(&p[i], event_user);
		peer_wait(&p[i]);
	}
	next_uid = FIRST_UID + i;
	peer_start(&flusher, flush_user);
	peer_wait(&flusher);
	for (i = 0; i < EVENT_USERS; i++)
		peer_tell(&p[i]);
	for (i = 0; i < EVENT_USERS; i++)
		while (!__atomic_load_n(&events[i], __ATOMIC_RELAXED))
			usleep(1000);
	peer_tell(&flusher);
	peer_get_var(&flusher, during);
	peer_end(&flusher);
	for (i = 0; i < EVENT_USERS; i++)
		peer_kill(&p[i], SIGKILL);
	t_note("%ld events of %d others while %d WQEs were flushed", during, EVENT_USERS, FEW_WRS);
	CHECK(during >= 0);
	/* With turns of equal number, each of 32 steps waits for an event. */
	CHECK(during <= 5 * EVENT_USERS);
}
