// SPDX-License-Identifier: GPL-2.0
/*
 * Threads: several that post, poll, arm and resize at once, with the kernel in
 * threads of its own on the other side of each ring. ThreadSanitizer reports
 * each access that is not ordered.
 */
#include <sched.h>

#include "fake.h"
#include "keeldv.h"

#define THREADS	2
#define WRS	16
/* Work requests of one list. */
#define CHAIN	4

static struct ibv_pd *pd, *parent;
static struct ibv_td *td;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_srq *srq;
static struct ibv_sge sge = { 0x1000, 16, 0x22 };
/* Messages of each thread. */
static int rounds;
static atomic_bool stop;

static void setup(bool single)
{
	struct ibv_td_init_attr td_attr = {};
	struct ibv_cq_init_attr_ex cq_attr = {
		.cqe = 1, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD,
	};
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_RC, .send_ops_flags = IBV_QP_EX_WITH_SEND,
		.comp_mask = IBV_QP_INIT_ATTR_PD |
			     IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.cap = { .max_send_wr = WRS, .max_recv_wr = WRS,
			 .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_srq_init_attr srq_attr = {
		.attr = { .max_wr = WRS, .max_sge = 1 },
	};

	rounds = fake_rounds(20000);
	fake_open();
	pd = MUST(ibv_alloc_pd(fake.ctx));
	td = single ? MUST(ibv_alloc_td(fake.ctx, &td_attr)) : NULL;
	parent = fake_parent(pd, td);
	cq_attr.parent_domain = parent;
	cq = ibv_cq_ex_to_cq(MUST(ibv_create_cq_ex(fake.ctx, &cq_attr)));
	attr.pd = parent;
	attr.send_cq = cq;
	attr.recv_cq = cq;
	qp = MUST(ibv_create_qp_ex(fake.ctx, &attr));
	fake_to(qp, IBV_QPS_RTS);
	srq = MUST(ibv_create_srq(parent, &srq_attr));
}

static void finish(void)
{
	CHECK_OK(ibv_destroy_srq(srq));
	CHECK_OK(ibv_destroy_qp(qp));
	CHECK_OK(ibv_destroy_cq(cq));
	CHECK_OK(ibv_dealloc_pd(parent));
	if (td)
		CHECK_OK(ibv_dealloc_td(td));
	CHECK_OK(ibv_dealloc_pd(pd));
	fake_close();
}

static void start(pthread_t *thread, void *(*fn)(void *), intptr_t arg)
{
	CHECK_OK(pthread_create(thread, NULL, fn, (void *)arg));
}

static void *join(pthread_t thread)
{
	void *result;

	CHECK_OK(pthread_join(thread, &result));
	return result;
}

/* The wr_id of message @i of a thread. */
static uint64_t wr_id(intptr_t thread, int i)
{
	return (uint64_t)thread << 32 | i;
}

/* A consumer gets the messages of each thread in order, without a gap. */
static void check_next(uint64_t id, int *next)
{
	intptr_t thread = id >> 32;

	CHECK(thread < THREADS);
	CHECK_EQ((uint32_t)id, next[thread]);
	next[thread]++;
}

/* Post lists of sends, in turns with batches of ibv_wr_send(). */
static void *post_sends(void *arg)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
	struct ibv_send_wr wr[CHAIN], *bad;
	intptr_t me = (intptr_t)arg;
	int i = 0, j, ret;

	while (i < rounds) {
		ibv_wr_start(ex);
		ex->wr_id = wr_id(me, i);
		ex->wr_flags = 0;
		ibv_wr_send(ex);
		ibv_wr_set_sge(ex, sge.lkey, sge.addr, sge.length);
		ret = ibv_wr_complete(ex);
		if (!ret)
			i++;
		else
			CHECK_RET(ret, ENOMEM);
		for (j = 0; j < CHAIN; j++)
			wr[j] = (struct ibv_send_wr){
				.wr_id = wr_id(me, i + j), .sg_list = &sge,
				.num_sge = 1, .opcode = IBV_WR_SEND,
				.next = j < CHAIN - 1 ? &wr[j + 1] : NULL,
			};
		ret = ibv_post_send(qp, wr, &bad);
		if (ret)
			CHECK_RET(ret, ENOMEM);
		i += ret ? bad - wr : CHAIN;
		sched_yield();
	}
	return (void *)(intptr_t)i;
}

/* The kernel takes send WQEs until it has those of all threads. */
static void *take_sends(void *arg)
{
	struct fake_ring *ring = &fake_qp(qp)->sq;
	struct keel_uapi_send_wqe wqe;
	int *next = arg;

	for (;;) {
		bool last = atomic_load(&stop);

		while (fake_posted(ring)) {
			CHECK(fake_posted(ring) <= WRS);
			memcpy(&wqe, fake_slot(ring, ring->index),
			       sizeof(wqe));
			CHECK_MEM((uint8_t *)fake_slot(ring, ring->index) +
				  sizeof(wqe), &sge, sizeof(sge));
			fake_advance(ring);
			CHECK_EQ(wqe.num_sge, 1);
			check_next(wqe.wr_id, next);
		}
		if (last)
			return NULL;
		sched_yield();
	}
}

TEST(send, "DEV-4", "threads that post to one send queue by both interfaces lose nothing, and the kernel sees whole WQEs")
{
	pthread_t thread[THREADS], kernel;
	int next[THREADS] = {};
	intptr_t sent[THREADS];
	int i;

	setup(false);
	start(&kernel, take_sends, (intptr_t)next);
	for (i = 0; i < THREADS; i++)
		start(&thread[i], post_sends, i);
	for (i = 0; i < THREADS; i++) {
		sent[i] = (intptr_t)join(thread[i]);
		CHECK(sent[i] >= rounds);
	}
	atomic_store(&stop, true);
	join(kernel);
	for (i = 0; i < THREADS; i++)
		CHECK_EQ(next[i], sent[i]);
	finish();
}

TEST(send_single, "PDM-4", "one thread posts with a thread domain, without locks, while the kernel takes its WQEs")
{
	int next[THREADS] = {};
	pthread_t kernel;
	intptr_t sent;

	setup(true);
	start(&kernel, take_sends, (intptr_t)next);
	fake_locks = 0;
	sent = (intptr_t)post_sends(NULL);
	CHECK_EQ(fake_locks, 0);
	atomic_store(&stop, true);
	join(kernel);
	CHECK_EQ(next[0], sent);
	finish();
}

/* Post receive WQEs, to the QP or the SRQ. */
static void *post_recvs(void *arg)
{
	struct ibv_recv_wr wr[CHAIN], *bad;
	bool to_srq = (intptr_t)arg & 2;
	intptr_t me = (intptr_t)arg & 1;
	int i = 0, j, ret;

	while (i < rounds) {
		for (j = 0; j < CHAIN; j++)
			wr[j] = (struct ibv_recv_wr){
				.wr_id = wr_id(me, i + j), .sg_list = &sge,
				.num_sge = 1,
				.next = j < CHAIN - 1 ? &wr[j + 1] : NULL,
			};
		ret = to_srq ? ibv_post_srq_recv(srq, wr, &bad) :
			       ibv_post_recv(qp, wr, &bad);
		if (ret)
			CHECK_RET(ret, ENOMEM);
		i += ret ? bad - wr : CHAIN;
		sched_yield();
	}
	return (void *)(intptr_t)i;
}

/*
 * The kernel waits for receive WQEs like a requester: it requests a doorbell,
 * checks the queue once more, and then trusts the doorbell.
 */
struct wait {
	struct fake_ring *ring;
	unsigned int *doorbells;
	int next[THREADS];
	/* It waits for a doorbell that was not rung. */
	unsigned int lost;
};

static void *take_recvs(void *arg)
{
	struct wait *w = arg;
	struct keel_uapi_recv_wqe wqe;
	const uint8_t *slot;
	unsigned int seen;

	for (;;) {
		seen = __atomic_load_n(w->doorbells, __ATOMIC_SEQ_CST);
		while (fake_posted(w->ring)) {
			slot = fake_slot(w->ring, w->ring->index);
			memcpy(&wqe, slot, sizeof(wqe));
			CHECK_MEM(slot + sizeof(wqe), &sge, sizeof(sge));
			fake_advance(w->ring);
			check_next(wqe.wr_id, w->next);
		}
		__atomic_store_n(&w->ring->head->flags, KEEL_RING_F_DOORBELL,
				 __ATOMIC_RELAXED);
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		if (fake_posted(w->ring))
			continue;
		while (__atomic_load_n(w->doorbells, __ATOMIC_SEQ_CST) ==
		       seen) {
			/* All threads have ended, and rang no doorbell. */
			if (atomic_load(&stop)) {
				w->lost = fake_posted(w->ring);
				return NULL;
			}
			sched_yield();
		}
		__atomic_store_n(&w->ring->head->flags, 0, __ATOMIC_RELAXED);
	}
}

static void check_recvs(bool to_srq)
{
	pthread_t thread[THREADS], kernel;
	struct wait w = {};
	intptr_t sent[THREADS];
	int i;

	setup(false);
	w.ring = to_srq ? &fake_srq(srq)->ring : &fake_qp(qp)->rq;
	w.doorbells = to_srq ? &fake_srq(srq)->doorbells :
			       &fake_qp(qp)->doorbells;
	start(&kernel, take_recvs, (intptr_t)&w);
	for (i = 0; i < THREADS; i++)
		start(&thread[i], post_recvs, i | (to_srq ? 2 : 0));
	for (i = 0; i < THREADS; i++)
		sent[i] = (intptr_t)join(thread[i]);
	atomic_store(&stop, true);
	join(kernel);
	CHECK_EQ(w.lost, 0);
	for (i = 0; i < THREADS; i++)
		CHECK_EQ(w.next[i], sent[i]);
	finish();
}

TEST(recv, "DEV-4", "threads that post to one receive queue lose nothing, and no doorbell that the kernel waits for")
{
	check_recvs(false);
}

TEST(srq, "DEV-4", "the same for an SRQ")
{
	check_recvs(true);
}

/*
 * Both sides of one race begin each round together. They wait without yielding,
 * as a rule: both must be on a processor.
 */
static atomic_int turn_user, turn_kernel;

static void meet(atomic_int *mine, atomic_int *other, int round)
{
	int spins = 0;

	atomic_store(mine, round);
	while (atomic_load(other) < round)
		if (++spins > 100000)
			sched_yield();
}

struct race {
	struct fake_ring *ring;
	/* The flags by which the kernel requests a doorbell. */
	uint32_t flags;
	/* WQEs that the kernel saw after it requested the doorbell. */
	uint32_t posted;
};

/* One request for a doorbell in each round. */
static void *want(void *arg)
{
	struct race *race = arg;
	struct fake_ring *ring = race->ring;
	int round;

	for (round = 1; round <= rounds; round++) {
		meet(&turn_kernel, &turn_user, 2 * round - 1);
		__atomic_store_n(&ring->head->flags, race->flags, __ATOMIC_RELAXED);
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		race->posted = fake_posted(ring);
		meet(&turn_kernel, &turn_user, 2 * round);
	}
	return NULL;
}

TEST(doorbell, "DEV-4", "if a receive WQE is posted while the kernel requests a doorbell, the kernel sees it or the doorbell rings")
{
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	struct race race = { .flags = KEEL_RING_F_DOORBELL };
	unsigned int rung;
	pthread_t kernel;
	int round;

	setup(false);
	race.ring = &fake_srq(srq)->ring;
	start(&kernel, want, (intptr_t)&race);
	for (round = 1; round <= rounds; round++) {
		rung = fake_srq(srq)->doorbells;
		meet(&turn_user, &turn_kernel, 2 * round - 1);
		CHECK_OK(ibv_post_srq_recv(srq, &wr, &bad));
		meet(&turn_user, &turn_kernel, 2 * round);
		if (!race.posted)
			CHECK_EQ(fake_srq(srq)->doorbells, rung + 1);
		/* The kernel takes it, and requests no doorbell now. */
		race.ring->head->flags = 0;
		fake_take_recv(race.ring, 0);
	}
	join(kernel);
	finish();
}

TEST(polled, "DEV-4", "if a send WQE is posted while the kernel stops polling, the kernel sees it or the doorbell rings")
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1 };
	struct ibv_send_wr *bad;
	struct race race = {};
	unsigned int rung;
	pthread_t kernel;
	int round;

	setup(false);
	CHECK_OK(keeldv_poll_sends(fake.ctx, 1000));
	race.ring = &fake_qp(qp)->sq;
	race.ring->head->flags = KEEL_RING_F_POLLED;
	start(&kernel, want, (intptr_t)&race);
	for (round = 1; round <= rounds; round++) {
		rung = fake_qp(qp)->doorbells;
		meet(&turn_user, &turn_kernel, 2 * round - 1);
		CHECK_OK(ibv_post_send(qp, &wr, &bad));
		meet(&turn_user, &turn_kernel, 2 * round);
		if (!race.posted)
			CHECK_EQ(fake_qp(qp)->doorbells, rung + 1);
		/* The kernel takes it, and polls again. */
		race.ring->head->flags = KEEL_RING_F_POLLED;
		fake_take(race.ring, 0);
	}
	join(kernel);
	finish();
}

static atomic_bool changed;

/* Only the locks of the queues order this before what the test does afterwards. */
static void *reset_and_resize(void *arg)
{
	struct ibv_srq_attr attr = { .max_wr = 2 * WRS };

	fake_to(qp, IBV_QPS_RESET);
	CHECK_OK(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR));
	atomic_store_explicit(&changed, true, memory_order_relaxed);
	return NULL;
}

/* Check the index and the size of a ring with its lock. */
static void check_ring(struct keel_lock *lock, const struct keel_ring *ring,
		       uint32_t index, uint32_t mask)
{
	keel_lock(lock);
	CHECK_EQ(ring->user, index);
	CHECK_EQ(ring->mask, mask);
	keel_unlock(lock);
}

TEST(reset, "DEV-4", "a reset empties each queue, and a resize replaces the ring of an SRQ, under the lock of the queue")
{
	struct ibv_send_wr send = { .opcode = IBV_WR_SEND, .sg_list = &sge };
	struct ibv_recv_wr recv = { .sg_list = &sge };
	struct ibv_send_wr *bad_send;
	struct ibv_recv_wr *bad_recv;
	pthread_t thread;

	setup(false);
	CHECK_OK(ibv_post_send(qp, &send, &bad_send));
	CHECK_OK(ibv_post_recv(qp, &recv, &bad_recv));
	CHECK_OK(ibv_post_srq_recv(srq, &recv, &bad_recv));
	start(&thread, reset_and_resize, 0);
	while (!atomic_load_explicit(&changed, memory_order_relaxed))
		sched_yield();
	/* In the order of the other thread: each lock also orders what came before. */
	check_ring(&to_kqp(qp)->sq.lock, &to_kqp(qp)->sq.ring, 0, WRS - 1);
	check_ring(&to_kqp(qp)->rq.lock, &to_kqp(qp)->rq.ring, 0, WRS - 1);
	check_ring(&to_ksrq(srq)->rq.lock, &to_ksrq(srq)->rq.ring, 1, 2 * WRS - 1);
	join(thread);
	finish();
}
