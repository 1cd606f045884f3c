// SPDX-License-Identifier: GPL-2.0
/*
 * Workers and memory requests of processes that are stopped or killed while
 * other processes go on: nothing of them works, sleeps or takes memory in the
 * kernel afterwards. isolation_orphans.c has their queues.
 */
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "dev.h"
#include "iso.h"
#include "qp.h"
#include "t.h"
#include "tree.h"

static char page[ISO_PAGE] __attribute__((aligned(ISO_PAGE)));

/* Count threads that sleep uninterruptibly, kernel threads included. */
static int in_state_d(void)
{
	char *out = t_shell("grep -l '^State:.D' /proc/[0-9]*/status 2>/dev/null | wc -l");
	int n = atoi(out);

	free(out);
	return n;
}

static int threads(pid_t pid)
{
	char path[40];
	DIR *dir;
	int n = 0;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	dir = MUST(opendir(path));
	while (readdir(dir))
		n++;
	closedir(dir);
	/* Subtract "." and "..". */
	return n - 2;
}

#define CONTEXTS	50

static struct ibv_mr *everything(struct ibv_pd *pd)
{
	return ibv_reg_mr(pd, NULL, SIZE_MAX, IBV_ACCESS_LOCAL_WRITE |
			  IBV_ACCESS_ON_DEMAND);
}

/*
 * This process closes its contexts, each of which has a worker; its child keeps
 * the files open until later.
 */
static void contexts(struct peer *parent)
{
	struct ibv_context *ctx[CONTEXTS];
	int i;

	for (i = 0; i < CONTEXTS; i++) {
		ctx[i] = dev_open(KEEL0);
		/*
		 * The implicit MR gives the context a worker that faults memory
		 * in.
		 */
		MUST(everything(MUST(ibv_alloc_pd(ctx[i]))));
	}
	if (!SYS(fork())) {
		peer_wait(parent);
		_exit(0);
	}
	for (i = 0; i < CONTEXTS; i++)
		CHECK_OK(ibv_close_device(ctx[i]));
	peer_tell(parent);
	pause();
}

TEST(stopped, "ISO-1,PD-3", "contexts closed while their creator is stopped leave no kernel thread waiting, and the creator's workers end after SIGCONT")
{
	int before = in_state_d(), own, ms;
	struct peer p;

	peer_start(&p, contexts);
	peer_wait(&p);
	own = threads(p.pid);
	SYS(kill(p.pid, SIGSTOP));
	SYS(waitpid(p.pid, NULL, WUNTRACED));
	peer_tell(&p);
	iso_check_empty(KEEL0);
	t_note("%d threads; in state D: %d, and %d now", own, before,
	       in_state_d());
	/* A worker is a thread of the process, but not on 6.1. */
	if (!t_kernel("6.1."))
		CHECK(own > CONTEXTS);
	/* Others may be in state D for a moment. */
	for (ms = 0; in_state_d() > before + 1; ms += 10) {
		if (ms > ISO_MS)
			FAIL("got %d threads in state D, want %d", in_state_d(), before + 1);
		usleep(10000);
	}
	SYS(kill(p.pid, SIGCONT));
	for (ms = 0; threads(p.pid) > 1; ms += 10) {
		if (ms > ISO_MS)
			FAIL("got %d threads, want 1", threads(p.pid));
		usleep(10000);
	}
	peer_kill(&p, SIGKILL);
}

#define QUEUES		16

static void stopped_owner(struct peer *parent)
{
	struct iso_end e;

	iso_open(&e, KEEL0, NULL, ISO_RC);
	e.mr = iso_mr(&e, mmap(NULL, ISO_PAGE, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
		      IBV_ACCESS_ON_DEMAND);
	iso_meet(&e, parent);
	peer_tell(parent);
	pause();
}

/* An emulated processor would take too long. */
#define READS	(t_uml() ? 20000 : 5000)

/* Post reads, and reset the QP after each. */
static void reader(struct peer *parent)
{
	struct iso_end e;
	int i;

	iso_open(&e, KEEL0, NULL, ISO_RC);
	e.mr = iso_mr(&e, page, 0);
	iso_meet(&e, parent);
	peer_wait(parent);
	for (i = 0; i < t_rounds(READS); i++) {
		CHECK_OK(iso_rdma(&e, IBV_WR_RDMA_READ, 3, e.mr));
		qp_to(e.qp, IBV_QPS_RESET);
		iso_connect(&e, &e.peer);
	}
	peer_tell(parent);
	pause();
}

TEST_SLOW(requests, "ISO-1,ISO-5", "RDMA reads of a stopped process's memory, whose requester resets its QP, leave no memory behind", 120)
{
	struct peer o, r;
	long before, bytes;

	peer_start(&o, stopped_owner);
	peer_start(&r, reader);
	iso_introduce(&o, &r);
	peer_wait(&o);
	SYS(kill(o.pid, SIGSTOP));
	SYS(waitpid(o.pid, NULL, WUNTRACED));
	before = t_kmalloc();
	peer_tell(&r);
	peer_wait(&r);
	bytes = t_kmalloc() - before;
	t_note("%d reads: %ld bytes", t_rounds(READS), bytes);
	/* A memory request takes at least 200 bytes. */
	CHECK(bytes < t_rounds(READS) * 50L);
	peer_kill(&r, SIGKILL);
	SYS(kill(o.pid, SIGCONT));
	peer_kill(&o, SIGKILL);
	iso_check_empty(KEEL0);
}

static struct {
	struct ibv_qp *qp[QUEUES];
	struct ibv_pd *pd;
	atomic_bool over;
} ours;

static void *ring_without_end(void *arg)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad;
	int i;

	/*
	 * The rings are not shared and may be full: what counts is the
	 * doorbell.
	 */
	while (!atomic_load(&ours.over))
		for (i = 0; i < QUEUES; i++)
			ibv_post_send(ours.qp[i], &wr, &bad);
	return NULL;
}

/* A child that shares the device file continues the work and starts workers. */
static void heir(bool destroys)
{
	struct ibv_mr *mr;
	pthread_t thread;
	int i;

	CHECK_OK(pthread_create(&thread, NULL, ring_without_end, NULL));
	usleep(1000 + getpid() % 7 * 1000);
	for (i = 0; i < 20; i++) {
		mr = everything(ours.pd);
		if (mr)
			ibv_dereg_mr(mr);
	}
	if (destroys) {
		atomic_store(&ours.over, true);
		pthread_join(thread, NULL);
		for (i = 0; i < QUEUES; i++)
			ibv_destroy_qp(ours.qp[i]);
	}
	usleep(3000);
	_exit(0);
}

static void founder(struct peer *parent)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad;
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_cq *cq = cq_new(ctx);
	pthread_t thread;
	int i, j;

	ours.pd = MUST(ibv_alloc_pd(ctx));
	for (i = 0; i < QUEUES; i++)
		ours.qp[i] = qp_new(ours.pd, cq, IBV_QPT_RC, NULL);
	for (i = 0; i < QUEUES; i += 2)
		qp_join(ours.qp[i], ours.qp[i + 1]);
	for (i = 0; i < QUEUES; i++)
		for (j = 0; j < QP_WRS; j++)
			ibv_post_send(ours.qp[i], &wr, &bad);
	if (!SYS(fork()))
		heir(true);
	if (!SYS(fork()))
		heir(false);
	CHECK_OK(pthread_create(&thread, NULL, ring_without_end, NULL));
	usleep(getpid() % 13 * 300);
	SYS(kill(getpid(), SIGKILL));
}

TEST_SLOW(inherited, "ISO-1,PD-3", "processes that share queues can use and destroy them while their creator is killed, and nothing is left behind", 120)
{
	struct peer p;
	int i;

	for (i = 0; i < t_rounds(100); i++) {
		peer_start(&p, founder);
		SYS(waitpid(p.pid, NULL, 0));
		close(p.fd);
	}
	/* Nobody waits for the children, whose threads keep the processors busy. */
	for (i = 0; i < 2000 && tree_count(KEEL0, NULL); i++)
		usleep(10000);
	iso_check_empty(KEEL0);
}

#define CHILDREN	2000
/* A worker is a workqueue before Linux 6.10; only there this can fail. Bytes, at least. */
#define WORKER		512
#define STACK		(64 << 10)

static int child(void *ctx)
{
	CHECK_OK(ibv_destroy_cq(cq_new(ctx)));
	_exit(0);
}

TEST_CASE(children, "ISO-5", "processes that share memory and files of another one leave no worker when they exit", .limit = 60)
{
	struct ibv_context *ctx = dev_open(KEEL0);
	char *stack = (char *)SYS(mmap(NULL, STACK, PROT_READ | PROT_WRITE,
				       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	long before = 0, after;
	int i;

	for (i = 0; i < CHILDREN; i++) {
		SYS(waitpid(SYS(clone(child, stack + STACK, CLONE_VM | CLONE_FILES | SIGCHLD,
				      ctx)), NULL, 0));
		/* The first ones fill caches. */
		if (i == CHILDREN / 10)
			before = t_kmalloc();
	}
	/* RCU frees some of it seconds later. */
	for (i = 0; i < 100; i++) {
		after = t_kmalloc();
		if (after < before + CHILDREN * WORKER / 2)
			break;
		usleep(100000);
	}
	t_note("%ld bytes, then %ld", before, after);
	CHECK(before > 0);
	CHECK(after < before + CHILDREN * WORKER / 2);
	CHECK_EQ(threads(getpid()), 1);
}
