// SPDX-License-Identifier: GPL-2.0
/*
 * Resize of a CQ while CQEs lie in it, while the kernel adds CQEs, and by the
 * thread that polls it.
 */
#include "fake.h"

static struct ibv_cq *cq;
static struct ibv_cq_ex *ex;
static struct fake_cq *fcq;

static void setup(uint32_t cqes, uint32_t flags)
{
	fake_open();
	ex = fake_new_cq_ex(cqes, 0, flags);
	cq = ibv_cq_ex_to_cq(ex);
	fcq = fake_cq(cq);
}

static void finish(void)
{
	CHECK_OK(ibv_destroy_cq(cq));
	fake_close();
}

static void poll(uint64_t first, int n)
{
	struct ibv_wc wc[64];
	int i;

	CHECK_EQ(ibv_poll_cq(cq, n, wc), n);
	for (i = 0; i < n; i++)
		CHECK_EQ(wc[i].wr_id, first + i);
}

static void poll_all(uint64_t first, int n)
{
	struct ibv_wc wc;

	poll(first, n);
	CHECK_EQ(ibv_poll_cq(cq, 1, &wc), 0);
}

TEST(moved, "DEV-4", "CQEs in the CQ arrive after a resize, in order, each once, with any sizes and indexes")
{
	static const uint32_t starts[] = { 0, 5, 0x7ffffffd, 0xfffffffa,
					   0xffffffff };
	uint32_t size, n;
	size_t i;

	setup(8, 0);
	for (i = 0; i < sizeof(starts) / sizeof(*starts); i++) {
		for (size = 1; size <= 32; size *= 2) {
			for (n = 0; n <= 8 && n <= size; n++) {
				fake_at(&to_kcq(cq)->ring, &fcq->ring,
					starts[i]);
				fake_wcs(cq, 0, n);
				CHECK_OK(ibv_resize_cq(cq, size));
				CHECK_EQ(cq->cqe, size);
				CHECK(to_kcq(cq)->ring.shared ==
				      fcq->ring.head);
				CHECK_EQ(fcq->ring.head->user, starts[i]);
				poll_all(0, n);
				/* All of the new size can be used. */
				fake_wcs(cq, 100, size);
				poll_all(100, size);
				CHECK_OK(ibv_resize_cq(cq, 8));
			}
		}
	}
	finish();
}

TEST(partly, "DEV-4", "CQEs that were polled before a resize do not come back")
{
	setup(8, 0);
	fake_at(&to_kcq(cq)->ring, &fcq->ring, -4U);
	fake_wcs(cq, 0, 8);
	poll(0, 5);
	CHECK_OK(ibv_resize_cq(cq, 4));
	poll(5, 1);
	fake_wcs(cq, 8, 2);
	CHECK_OK(ibv_resize_cq(cq, 100));
	CHECK_EQ(cq->cqe, 128);
	fake_wcs(cq, 10, 60);
	poll_all(6, 64);
	finish();
}

/* The kernel adds CQEs to the new ring before the call returns. */
static void advance(enum fake_call call, uint32_t handle)
{
	if (call == FAKE_RESIZE_CQ)
		fake_wcs(cq, 3, 4);
}

TEST(during, "DEV-4", "CQEs that the kernel adds to the new ring before the resize returns are polled after the others")
{
	setup(4, 0);
	fake_at(&to_kcq(cq)->ring, &fcq->ring, -2U);
	fake_wcs(cq, 0, 3);
	fake.hook = advance;
	CHECK_OK(ibv_resize_cq(cq, 8));
	fake.hook = NULL;
	poll_all(0, 7);
	finish();
}

TEST(fails, "DEV-4", "a resize that fails changes nothing, frees the new ring and drops the lock")
{
	struct keel_uapi_ring *head;
	long dontfork;

	setup(8, 0);
	head = fcq->ring.head;
	dontfork = fake.dontfork;
	fake_wcs(cq, 0, 6);
	CHECK_OK(ibv_req_notify_cq(cq, 1));
	/* The CQEs do not fit. */
	CHECK_RET(ibv_resize_cq(cq, 4), EINVAL);
	CHECK_RET(ibv_resize_cq(cq, 0), EINVAL);
	CHECK_RET(ibv_resize_cq(cq, -1), EINVAL);
	CHECK_RET(ibv_resize_cq(cq, KEEL_MAX_CQE + 1), EINVAL);
	CHECK_EQ(fake.calls[FAKE_RESIZE_CQ], 1);
	fake_map_fails(ENOMEM);
	CHECK_RET(ibv_resize_cq(cq, 16), ENOMEM);
	fake.fail[FAKE_RESIZE_CQ] = EAGAIN;
	CHECK_RET(ibv_resize_cq(cq, 16), EAGAIN);
	CHECK(fcq->ring.head == head);
	CHECK(to_kcq(cq)->ring.shared == head);
	CHECK_EQ(cq->cqe, 8);
	CHECK_EQ(fake.dontfork, dontfork);
	CHECK_EQ(head->arm, KEEL_ARM_SOLICITED);
	CHECK_OK(pthread_spin_trylock(&to_kcq(cq)->lock.spin));
	pthread_spin_unlock(&to_kcq(cq)->lock.spin);
	poll_all(0, 6);
	/* The largest CQ. */
	CHECK_OK(ibv_resize_cq(cq, KEEL_MAX_CQE));
	CHECK_EQ(cq->cqe, KEEL_MAX_CQE);
	finish();
}

TEST(overrun, "DEV-4", "a CQ that overran cannot be resized, and keeps its CQEs")
{
	struct keel_uapi_cqe cqe = {};

	setup(4, 0);
	fake_wcs(cq, 0, 4);
	CHECK_RET(fake_add(cq, &cqe, false), EIO);
	CHECK_RET(ibv_resize_cq(cq, 8), EINVAL);
	poll_all(0, 4);
	finish();
}

static void check_poller(uint32_t flags)
{
	struct ibv_poll_cq_attr attr = {};
	uint32_t locks;

	setup(8, flags);
	fake_at(&to_kcq(cq)->ring, &fcq->ring, -3U);
	fake_wcs(cq, 0, 6);
	CHECK_OK(ibv_start_poll(ex, &attr));
	CHECK_OK(ibv_next_poll(ex));
	locks = fake_locks;
	CHECK_OK(ibv_resize_cq(cq, 32));
	CHECK_RET(ibv_resize_cq(cq, 1), EINVAL);
	CHECK_EQ(fake_locks, locks);
	/* The current CQE is the same, in the new ring. */
	CHECK_EQ(ex->wr_id, 1);
	CHECK(to_kcq(cq)->cur->wr_id == 1);
	CHECK(to_kcq(cq)->cur == fake_slot(&fcq->ring, -2U));
	CHECK_EQ(ibv_wc_read_opcode(ex), IBV_WC_SEND);
	CHECK_OK(ibv_next_poll(ex));
	CHECK_EQ(ex->wr_id, 2);
	ibv_end_poll(ex);
	poll_all(3, 3);
	/* Without a current CQE. */
	fake_wcs(cq, 0, 1);
	CHECK_OK(ibv_start_poll(ex, &attr));
	CHECK_RET(ibv_next_poll(ex), ENOENT);
	CHECK_OK(ibv_resize_cq(cq, 4));
	CHECK(!to_kcq(cq)->cur);
	fake_wcs(cq, 1, 1);
	CHECK_OK(ibv_next_poll(ex));
	CHECK_EQ(ex->wr_id, 1);
	ibv_end_poll(ex);
	poll_all(0, 0);
	finish();
}

TEST_SLOW(poller, "DEV-4", "the thread that polls a CQ can resize it between start and end poll, and keeps its CQE", 5)
{
	check_poller(0);
}

TEST(poller_single, "PDM-4", "the same in a single-threaded CQ")
{
	check_poller(IBV_CREATE_CQ_ATTR_SINGLE_THREADED);
}
