// SPDX-License-Identifier: GPL-2.0
/*
 * Threads that poll, arm and resize one CQ, while the kernel adds CQEs, and
 * while a QP is reset.
 */
#include <sched.h>

#include "fake.h"

#define THREADS	2
#define CQES	16
/* The QP whose CQEs are removed. */
#define VICTIM	(FAKE_QPN + 40)

static struct ibv_cq_ex *ex;
static struct ibv_cq *cq;
static int rounds;
static atomic_int polled;
static atomic_bool stop;
/* How often each CQE was polled. */
static _Atomic uint8_t *seen;
/* CQEs of VICTIM: whether there are any, and how many were added and polled. */
static bool victims;
static int victims_added;
static atomic_int victims_polled;
/* The threads that poll wait, and how many do. */
static atomic_bool hold;
static atomic_int held;

static void setup(uint32_t flags)
{
	rounds = fake_rounds(40000);
	seen = MUST(calloc(rounds, sizeof(*seen)));
	fake_open();
	ex = fake_new_cq_ex(CQES, IBV_WC_EX_WITH_BYTE_LEN, flags);
	cq = ibv_cq_ex_to_cq(ex);
	fake_at(&to_kcq(cq)->ring, &fake_cq(cq)->ring, -100U);
}

static void finish(void)
{
	int i;

	for (i = 0; i < rounds; i++)
		CHECK_EQ(seen[i], 1);
	free(seen);
	CHECK_OK(ibv_destroy_cq(cq));
	fake_close();
}

static void start(pthread_t *thread, void *(*fn)(void *))
{
	CHECK_OK(pthread_create(thread, NULL, fn, NULL));
}

static void take(uint64_t id, uint32_t byte_len)
{
	if (victims && id == UINT64_MAX) {
		victims_polled++;
		return;
	}
	CHECK(id < rounds);
	CHECK_EQ(byte_len, (uint32_t)id * 3);
	seen[id]++;
	polled++;
}

/* Number of CQEs in the CQ, and whether it is full. */
static uint32_t queued(bool *full)
{
	struct fake_cq *fcq = fake_cq(cq);
	uint32_t n;

	pthread_mutex_lock(&fcq->lock);
	n = fake_queued(&fcq->ring);
	*full = n > fcq->ring.mask;
	pthread_mutex_unlock(&fcq->lock);
	return n;
}

/*
 * Until the CQ has room, or is larger. Only the thread that calls this adds CQEs, so it
 * can get full once more by a resize only, which the next resize undoes.
 */
static void wait_for_room(void)
{
	bool full;

	for (queued(&full); full; queued(&full))
		sched_yield();
}

/* Add a CQE, as soon as there is room. */
static void add(const struct keel_uapi_cqe *cqe, bool solicited)
{
	while (!fake_try_add(cq, cqe, solicited))
		sched_yield();
}

static void add_victim(void)
{
	struct keel_uapi_cqe cqe = { .wr_id = UINT64_MAX, .qp_num = VICTIM };

	add(&cqe, false);
	victims_added++;
}

/* The kernel adds CQEs, as room permits. */
static void *produce(void *arg)
{
	struct keel_uapi_cqe cqe = {};
	uint32_t left;
	bool full;
	int i;

	for (i = 0; i < rounds; i++) {
		cqe.wr_id = i;
		cqe.byte_len = i * 3;
		/* One that no thread polls must be removed. */
		if (victims && i == rounds - 1) {
			wait_for_room();
			hold = true;
			while (held < THREADS)
				sched_yield();
			/* CQEs that they have left are not removed. */
			left = queued(&full);
			add_victim();
			while (queued(&full) > left)
				sched_yield();
			hold = false;
		}
		add(&cqe, i % 3 == 0);
		if (victims && i % 4 == 0)
			add_victim();
	}
	return NULL;
}

static void *poll(void *arg)
{
	struct ibv_poll_cq_attr attr = {};
	struct ibv_wc wc[5];
	int n, i, ret;

	while (polled < rounds) {
		if (hold) {
			held++;
			while (hold)
				sched_yield();
			held--;
		}
		n = ibv_poll_cq(cq, 5, wc);
		CHECK(n >= 0);
		for (i = 0; i < n; i++)
			take(wc[i].wr_id, wc[i].byte_len);
		if (ibv_start_poll(ex, &attr))
			continue;
		for (i = 0, ret = 0; i < 3 && !ret; i++) {
			take(ex->wr_id, ibv_wc_read_byte_len(ex));
			ret = ibv_next_poll(ex);
		}
		/* The last one is the current one, and is consumed. */
		if (!ret)
			take(ex->wr_id, ibv_wc_read_byte_len(ex));
		ibv_end_poll(ex);
		sched_yield();
	}
	return NULL;
}

static void *arm(void *arg)
{
	while (!stop) {
		CHECK_OK(ibv_req_notify_cq(cq, 0));
		CHECK_OK(ibv_req_notify_cq(cq, 1));
		sched_yield();
	}
	return NULL;
}

static void *resize(void *arg)
{
	uint32_t size = CQES;
	int ret;

	while (!stop) {
		size = size == CQES ? 4 * CQES : CQES;
		ret = ibv_resize_cq(cq, size);
		/* The CQEs may not fit. */
		if (ret)
			CHECK_RET(ret, EINVAL);
		keel_cq_clean(to_kcq(cq), VICTIM);
		sched_yield();
	}
	return NULL;
}

/* Poll all CQEs in threads, while others arm the CQ and run @more, if not NULL. */
static void run_threads(void *(*more)(void *))
{
	pthread_t thread[THREADS], kernel, armer, other;
	int i;

	start(&kernel, produce);
	start(&armer, arm);
	if (more)
		start(&other, more);
	for (i = 0; i < THREADS; i++)
		start(&thread[i], poll);
	for (i = 0; i < THREADS; i++)
		CHECK_OK(pthread_join(thread[i], NULL));
	CHECK_OK(pthread_join(kernel, NULL));
	stop = true;
	CHECK_OK(pthread_join(armer, NULL));
	if (more)
		CHECK_OK(pthread_join(other, NULL));
}

TEST(poll, "DEV-4", "threads that poll one CQ by both interfaces get each CQE once, while another arms it")
{
	setup(0);
	run_threads(NULL);
	finish();
}

TEST(resize, "DEV-4", "the same while a thread resizes the CQ and resets QPs")
{
	setup(0);
	rounds /= 4;
	victims = true;
	run_threads(resize);
	/* At least the one that the kernel has waited for. */
	CHECK(victims_polled < victims_added);
	finish();
}

TEST(single, "PDM-4", "one thread polls and arms a single-threaded CQ without locks, while the kernel adds CQEs")
{
	pthread_t kernel;

	setup(IBV_CREATE_CQ_ATTR_SINGLE_THREADED);
	start(&kernel, produce);
	fake_locks = 0;
	while (polled < rounds / 2) {
		struct ibv_wc wc;

		CHECK_OK(ibv_req_notify_cq(cq, polled & 1));
		if (ibv_poll_cq(cq, 1, &wc) == 1)
			take(wc.wr_id, wc.byte_len);
		else
			sched_yield();
	}
	poll(NULL);
	CHECK_EQ(fake_locks, 0);
	CHECK_OK(pthread_join(kernel, NULL));
	finish();
}

/*
 * The kernel adds a CQE and raises its event under the lock. So no CQE can be in
 * the armed CQ now.
 */
static void check_event(struct fake_cq *fcq, unsigned int events)
{
	pthread_mutex_lock(&fcq->lock);
	if (fcq->events == events)
		CHECK_EQ(fake_queued(&fcq->ring), 0);
	pthread_mutex_unlock(&fcq->lock);
}

/*
 * The application arms the CQ, polls once more, and then waits for the event:
 * it must get one for each CQE that this poll did not find. A lock would order
 * the two, so the CQ has none.
 */
TEST(no_event_lost, "DEV-4", "after arming a CQ, a CQE is found by the next poll or raises an event")
{
	struct fake_cq *fcq;
	struct ibv_wc wc;
	pthread_t kernel;
	unsigned int events;
	int n;

	setup(IBV_CREATE_CQ_ATTR_SINGLE_THREADED);
	fcq = fake_cq(cq);
	start(&kernel, produce);
	while (polled < rounds) {
		events = __atomic_load_n(&fcq->events, __ATOMIC_SEQ_CST);
		CHECK_OK(ibv_req_notify_cq(cq, 0));
		n = ibv_poll_cq(cq, 1, &wc);
		CHECK(n >= 0);
		if (n)
			take(wc.wr_id, wc.byte_len);
		while (!n && __atomic_load_n(&fcq->events,
					     __ATOMIC_SEQ_CST) == events) {
			check_event(fcq, events);
			sched_yield();
		}
	}
	CHECK_OK(pthread_join(kernel, NULL));
	finish();
}
