// SPDX-License-Identifier: GPL-2.0
/*
 * Queues of processes that are killed, while other processes share the device file and
 * the memory of the rings: the kernel does only bounded work for them.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <rdma/keel-queue.h>

#include "dev.h"
#include "iso.h"
#include "qp.h"
#include "t.h"

#define WRS		2048
#define QUEUES		4

static struct keel_uapi_ring *rings[2];
static int n_rings;

static void *ring_alloc(struct ibv_pd *pd, void *context, size_t size,
			size_t alignment, uint64_t type)
{
	/* A send queue and a receive queue. */
	return rings[n_rings++ % 2] = peer_shared(size);
}

static void ring_free(struct ibv_pd *pd, void *context, void *p, uint64_t type)
{
}

/* A child shares the rings: it keeps every send queue full of posted WQEs. */
static void post_without_end(struct keel_uapi_ring *const *ring)
{
	uint32_t flushed;
	int i;

	for (;;) {
		for (i = 0; i < QUEUES; i++) {
			flushed = __atomic_load_n(&ring[i]->kernel,
						  __ATOMIC_RELAXED);
			__atomic_store_n(&ring[i]->user, flushed + WRS,
					 __ATOMIC_RELEASE);
		}
	}
}

/* Create a QP with rings in shared memory: @rings. */
static struct ibv_qp *new_of_type(struct ibv_pd *base, struct ibv_cq *cq,
				  uint32_t recv_wrs, enum ibv_qp_type type)
{
	struct ibv_parent_domain_init_attr attr = {
		.pd = base,
		.alloc = ring_alloc, .free = ring_free,
		.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS,
	};
	struct ibv_pd *pd = MUST(ibv_alloc_parent_domain(base->context, &attr));
	struct ibv_qp_init_attr init = {
		.qp_type = type, .send_cq = cq, .recv_cq = cq,
		.cap = { .max_send_wr = WRS, .max_recv_wr = recv_wrs,
			 .max_send_sge = 1, .max_recv_sge = 1 },
	};

	return MUST(ibv_create_qp(pd, &init));
}

static struct ibv_qp *new_with_rings(struct ibv_pd *base, struct ibv_cq *cq,
				     uint32_t recv_wrs)
{
	return new_of_type(base, cq, recv_wrs, IBV_QPT_RC);
}

static void flusher(struct peer *parent)
{
	struct ibv_pd *pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	struct ibv_cq *cq = cq_new(pd->context);
	struct keel_uapi_ring *sends[QUEUES];
	struct ibv_qp *qp[QUEUES];
	int i;

	for (i = 0; i < QUEUES; i++) {
		qp[i] = new_with_rings(pd, cq, 1);
		sends[i] = rings[0];
		qp_connect(qp[i], qp[i]->qp_num);
	}
	if (!SYS(fork()))
		post_without_end(sends);
	for (i = 0; i < QUEUES; i++) {
		while (!__atomic_load_n(&sends[i]->user, __ATOMIC_ACQUIRE))
			usleep(1000);
		qp_to(qp[i], IBV_QPS_ERR);
	}
	peer_tell(parent);
	pause();
}

/*
 * A step of the kernel is charged with the time that passes, also while it has no processor.
 * Then nothing is flushed for ten times as long.
 */
#define PATIENCE_MS	20000

/*
 * Check that the kernel flushes the WQEs posted before the death and no later WQE: no fewer
 * and no more than so many since then. This may take long, because users get a part of a
 * processor for it.
 */
static void check_flushed(long since, long least, long most)
{
	long now, before = -1;
	int ms;

	for (ms = 0; dev_counter("flushes") - since < least; ms += 10) {
		if (ms > PATIENCE_MS)
			FAIL("got %ld WQEs flushed, want %ld at least",
			     (long)dev_counter("flushes") - since, least);
		usleep(10000);
	}
	while ((now = dev_counter("flushes")) != before) {
		if (now - since > most)
			FAIL("got %ld WQEs flushed, want %ld at most", now - since, most);
		before = now;
		usleep(500000);
	}
	t_note("%ld WQEs were flushed after the death", now - since);
}

TEST_CASE(flushed, "ISO-2", "after the death of a process, the kernel stops flushing its queues although another process keeps filling them",
	  .limit = 60, ISO_NEEDS_THREADS)
{
	long start = dev_counter("flushes");
	struct peer p;

	peer_start(&p, flusher);
	peer_wait(&p);
	usleep(100000);
	peer_kill(&p, SIGKILL);
	check_flushed(dev_counter("flushes"), 0, QUEUES * (WRS + 1));
	CHECK(dev_counter("flushes") - start >= QUEUES);
}

/*
 * A queue is not flushed until its peer is destroyed. Its producer index is invalid
 * when the last flush begins, and valid from the first flushed receive WQE on.
 */
static struct {
	struct keel_uapi_ring *send[QUEUES], *recv[QUEUES];
	struct ibv_qp *peer[QUEUES];
	atomic_bool *dead;
} lies;

static void *post_after_lie(void *arg)
{
	int i;

	for (;;)
		for (i = 0; i < QUEUES; i++)
			if (__atomic_load_n(&lies.recv[i]->kernel,
					    __ATOMIC_ACQUIRE))
				__atomic_store_n(&lies.send[i]->user,
						 lies.send[i]->kernel + WRS,
						 __ATOMIC_RELEASE);
	return NULL;
}

static void liar(void)
{
	pthread_t thread;
	int i;

	CHECK_OK(pthread_create(&thread, NULL, post_after_lie, NULL));
	while (!atomic_load(lies.dead))
		usleep(1000);
	/* This wakes the other QP, whose worker is dead. */
	for (i = 0; i < QUEUES; i++)
		CHECK_OK(ibv_destroy_qp(lies.peer[i]));
	while (atomic_load(lies.dead))
		usleep(1000);
	_exit(0);
}

static void lying_flusher(struct peer *parent)
{
	struct ibv_pd *pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	struct ibv_cq *cq = cq_new(pd->context);
	int i;

	for (i = 0; i < QUEUES; i++) {
		lies.peer[i] = qp_new(pd, cq, IBV_QPT_RC, NULL);
		qp_join(new_with_rings(pd, cq, WRS), lies.peer[i]);
		lies.send[i] = rings[0];
		lies.recv[i] = rings[1];
	}
	/* The worker has done what the connections asked for. */
	usleep(200000);
	for (i = 0; i < QUEUES; i++) {
		lies.recv[i]->user = WRS;
		lies.send[i]->user = 0x7fffffff;
	}
	if (!SYS(fork()))
		liar();
	peer_tell(parent);
	pause();
}

/* Returns the number of WQEs that were flushed. */
static long flush_after_lie(void)
{
	long start = dev_counter("flushes"), flushed;
	struct peer p;

	atomic_store(lies.dead, false);
	peer_start(&p, lying_flusher);
	peer_wait(&p);
	peer_kill(&p, SIGKILL);
	atomic_store(lies.dead, true);
	usleep(1000000);
	/* Every receive WQE is flushed, and no more send WQEs than there are. */
	check_flushed(start, QUEUES * WRS, QUEUES * 2 * WRS);
	flushed = dev_counter("flushes") - start;
	/* The process that lies ends. */
	atomic_store(lies.dead, false);
	return flushed;
}

TEST_CASE(flushed_lie, "ISO-2", "after the death of a process, the kernel flushes no more WQEs than its queues have, although their producer indexes were invalid before",
	  .limit = 120, ISO_NEEDS_THREADS)
{
	int tries = 10;

	lies.dead = peer_shared(sizeof(*lies.dead));
	/* The other process may be late for all of the queues. */
	while (flush_after_lie() == QUEUES * WRS)
		CHECK(--tries > 0);
}

/*
 * Processes take a QP over and die, again and again. Another one fills its queues
 * each time, and resets a QP that names it as its peer: that schedules the QP.
 */
#define DEATHS		5

static struct {
	struct ibv_qp *qp, *peer;
	struct keel_uapi_ring *send, *recv;
} heirloom;

static void take_over(void)
{
	pid_t pid = SYS(fork());

	if (!pid) {
		qp_to(heirloom.qp, IBV_QPS_ERR);
		_exit(0);
	}
	SYS(waitpid(pid, NULL, 0));
}

static void fill(struct keel_uapi_ring *ring, uint32_t wrs)
{
	__atomic_store_n(&ring->user, ring->kernel + wrs, __ATOMIC_RELEASE);
}

static void schedule_orphan(void)
{
	qp_to_init(heirloom.peer);
	qp_to_rtr(heirloom.peer, heirloom.qp->qp_num);
	qp_to(heirloom.peer, IBV_QPS_RESET);
}

/* The counter when the case began. */
static long flushed_before;

static void keeper(struct peer *parent)
{
	int i;

	peer_wait(parent);
	for (i = 0; i < DEATHS; i++) {
		/* A process that takes it over flushes nothing. */
		fill(heirloom.send, 0);
		fill(heirloom.recv, 0);
		if (i)
			take_over();
		fill(heirloom.send, WRS);
		fill(heirloom.recv, WRS);
		schedule_orphan();
		check_flushed(flushed_before, 2 * WRS, 2 * WRS);
	}
	peer_tell(parent);
	_exit(0);
}

static void bequeather(struct peer *parent)
{
	struct ibv_pd *pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	struct ibv_cq *cq = cq_new(pd->context);

	heirloom.peer = qp_new(pd, cq, IBV_QPT_RC, NULL);
	heirloom.qp = new_with_rings(pd, cq, WRS);
	heirloom.send = rings[0];
	heirloom.recv = rings[1];
	qp_connect(heirloom.qp, heirloom.peer->qp_num);
	if (!SYS(fork()))
		keeper(parent);
	peer_tell(parent);
	pause();
}

/* Kill a process, and wait until its child, which uses the same socket, is done. */
static void inherit(struct peer *p, void (*run)(struct peer *parent))
{
	peer_start(p, run);
	peer_wait(p);
	SYS(kill(p->pid, SIGKILL));
	SYS(waitpid(p->pid, NULL, 0));
	peer_tell(p);
	peer_wait(p);
}

TEST_CASE(flushed_once, "ISO-2", "the kernel flushes no more WQEs of a queue pair than its queues have, although five processes in a row take it over and die",
	  .limit = 60, ISO_NEEDS_THREADS)
{
	struct peer p;

	flushed_before = dev_counter("flushes");
	inherit(&p, bequeather);
	close(p.fd);
	CHECK_EQ(dev_counter("flushes") - flushed_before, 2 * WRS);
}

/*
 * The QP of a process that is killed is in SQE: its send queue was flushed before, and
 * its receive WQEs are still there.
 */
static void keeper_of_sqe(struct peer *parent)
{
	peer_wait(parent);
	fill(heirloom.recv, QUEUES);
	schedule_orphan();
	check_flushed(flushed_before, QUEUES, QUEUES);
	CHECK_STATE(heirloom.qp, IBV_QPS_ERR);
	peer_tell(parent);
	_exit(0);
}

static void owner_in_sqe(struct peer *parent)
{
	static char page[ISO_PAGE] __attribute__((aligned(ISO_PAGE)));
	struct ibv_pd *pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	struct ibv_cq *cq = cq_new(pd->context);

	heirloom.peer = qp_new(pd, cq, IBV_QPT_UC, NULL);
	heirloom.qp = new_of_type(pd, cq, QUEUES, IBV_QPT_UC);
	heirloom.recv = rings[1];
	qp_connect(heirloom.qp, heirloom.peer->qp_num);
	/* There is no such lkey. */
	post_send(heirloom.qp, 1, (struct mem){ page, 64, 0xfffff0 });
	CHECK_WC(cq, 1, IBV_WC_LOC_PROT_ERR);
	CHECK_STATE(heirloom.qp, IBV_QPS_SQE);
	if (!SYS(fork()))
		keeper_of_sqe(parent);
	peer_tell(parent);
	pause();
}

TEST_CASE(orphan_in_sqe, "ISO-2", "after the death of a process whose queue pair is in SQE, the queue pair fails, and its receive WQEs are flushed",
	  .limit = 60, ISO_NEEDS_THREADS)
{
	struct peer p;

	flushed_before = dev_counter("flushes");
	inherit(&p, owner_in_sqe);
	CHECK_EQ(dev_counter("flushes") - flushed_before, QUEUES);
	close(p.fd);
}

/*
 * A process is killed whose QPs are in RTR, with posted send WQEs. Another process
 * shares the device, and resets their peers: that schedules each QP.
 */
#define ORPHANS		4

static void heir_of_rtr(struct ibv_qp *const *peer, struct peer *parent)
{
	int i;

	peer_wait(parent);
	for (i = 0; i < ORPHANS; i++)
		qp_to(peer[i], IBV_QPS_RESET);
	peer_tell(parent);
	peer_wait(parent);
	_exit(0);
}

static void owner_of_rtr(struct peer *parent)
{
	struct ibv_pd *pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	struct ibv_cq *cq = cq_new(pd->context);
	struct ibv_qp *qp, *peer[ORPHANS];
	int i;

	for (i = 0; i < ORPHANS; i++) {
		peer[i] = qp_new(pd, cq, IBV_QPT_RC, NULL);
		qp = new_with_rings(pd, cq, 1);
		qp_to_init(qp);
		qp_to_rtr(qp, peer[i]->qp_num);
		qp_to_init(peer[i]);
		qp_to_rtr(peer[i], qp->qp_num);
		fill(rings[0], 1);
	}
	if (!SYS(fork()))
		heir_of_rtr(peer, parent);
	peer_tell(parent);
	pause();
}

TEST_CASE(orphans_in_rtr, "ISO-2,ISO-3", "after the death of a process whose queue pairs are in RTR with posted WQEs, no kernel thread runs them without end",
	  .limit = 60, ISO_NEEDS_THREADS)
{
	uint64_t took;
	struct peer p;
	int tries = 10;

	inherit(&p, owner_of_rtr);
	/* Kernel threads do other work, too, but not all the time. */
	do {
		CHECK(tries-- > 0);
		took = iso_kernel_us();
		usleep(500000);
		took = iso_kernel_us() - took;
		t_note("kernel threads took %llu us in half a second",
		       (unsigned long long)took);
	} while (took > 100000);
	peer_tell(&p);
	close(p.fd);
}

/*
 * A process that may have no more threads cannot take the QP of a dead process over.
 * The QP does not change until it can.
 */
#define HEIR_UID	1000

static void limit_threads(rlim_t n)
{
	struct rlimit limit;

	SYS(getrlimit(RLIMIT_NPROC, &limit));
	limit.rlim_cur = n ?: limit.rlim_max;
	SYS(setrlimit(RLIMIT_NPROC, &limit));
}

static void poor_heir(struct ibv_qp *qp, struct mem mem, struct peer *parent)
{
	long sent = dev_counter("tx_msgs");
	struct ibv_send_wr *bad;

	peer_wait(parent);
	SYS(setresuid(HEIR_UID, HEIR_UID, HEIR_UID));
	limit_threads(1);
	CHECK_RET(ibv_post_send(qp, send_wr(IBV_WR_SEND, 1, mem), &bad), EAGAIN);
	usleep(200000);
	CHECK_STATE(qp, IBV_QPS_RTS);
	limit_threads(0);
	CHECK_OK(ibv_post_send(qp, send_wr(IBV_WR_SEND, 2, mem), &bad));
	/* The CQ is in memory of the dead process. */
	while (dev_counter("tx_msgs") != sent + 2)
		CHECK_STATE(qp, IBV_QPS_RTS);
	peer_tell(parent);
	_exit(0);
}

static void owner_of_rts(struct peer *parent)
{
	static char page[ISO_PAGE] __attribute__((aligned(ISO_PAGE)));
	struct ibv_pd *pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	struct ibv_qp *qp = new_with_rings(pd, cq_new(pd->context), 2);
	struct ibv_mr *mr = MUST(ibv_reg_mr(pd, page, ISO_PAGE, ISO_RIGHTS));
	struct mem mem = { page, 64, mr->lkey };

	qp_connect(qp, qp->qp_num);
	post_recv(qp, 1, mem);
	post_recv(qp, 2, mem);
	if (!SYS(fork()))
		poor_heir(qp, mem, parent);
	peer_tell(parent);
	pause();
}

TEST_CASE(poor, "ISO-2", "ibv_post_send() on the queue pair of a dead process returns EAGAIN to a process that cannot have another thread, and a later call delivers both messages",
	  ISO_NEEDS_THREADS)
{
	struct peer p;

	inherit(&p, owner_of_rts);
	close(p.fd);
	iso_check_empty(KEEL0);
}
