// SPDX-License-Identifier: GPL-2.0
/*
 * QPs access device memory, and run atomics on it.
 */
#include <pthread.h>

#include <infiniband/keeldv.h>

#include "dev.h"
#include "qp.h"
#include "t.h"

#define PAGE	4096
#define LEN	(3 * PAGE)
#define RIGHTS	(IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE |	\
		 IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |	\
		 IBV_ACCESS_REMOTE_ATOMIC)

static char host[LEN] __attribute__((aligned(PAGE)));

/* A buffer, its mapping, and an MR that starts at the buffer's second page. */
struct dev {
	struct ibv_pd *pd;
	struct ibv_dm *dm;
	unsigned char *map;
	struct ibv_mr *mr;
	struct ibv_mr *host;
};

static struct dev dev_new(void)
{
	struct ibv_alloc_dm_attr attr = { .length = LEN };
	struct dev d = { .pd = MUST(ibv_alloc_pd(dev_open(KEEL0))) };

	d.dm = MUST(ibv_alloc_dm(d.pd->context, &attr));
	d.map = MUST(keeldv_dm_map(d.dm));
	d.mr = MUST(ibv_reg_dm_mr(d.pd, d.dm, PAGE, 2 * PAGE, RIGHTS));
	d.host = MUST(ibv_reg_mr(d.pd, host, LEN, IBV_ACCESS_LOCAL_WRITE |
				 IBV_ACCESS_REMOTE_READ |
				 IBV_ACCESS_REMOTE_WRITE));
	return d;
}

/* Addresses of the MR start at 0. */
static struct mem at(const struct dev *d, uint64_t off, uint32_t len)
{
	return (struct mem){ (void *)off, len, d->mr->lkey };
}

static struct mem in_host(const struct dev *d, size_t off, uint32_t len)
{
	return (struct mem){ host + off, len, d->host->lkey };
}

TEST(sges, "DM-7", "QPs send, receive, write and read a device memory MR, whose addresses start at 0")
{
	struct dev d = dev_new();
	struct link l = link_new(d.pd, d.pd, IBV_QPT_RC);

	memset(host, 'h', LEN);
	post_recv(l.qp[1], 1, at(&d, 10, 100));
	post_send(l.qp[0], 2, in_host(&d, 0, 100));
	CHECK_WC(l.cq[1], 1, IBV_WC_SUCCESS);
	CHECK_WC(l.cq[0], 2, IBV_WC_SUCCESS);
	CHECK_ALL(d.map, 0, PAGE + 10);
	CHECK_ALL(d.map + PAGE + 10, 'h', 100);
	CHECK_ALL(d.map + PAGE + 110, 0, LEN - PAGE - 110);

	memset(d.map + PAGE, 'd', PAGE);
	post_recv(l.qp[1], 3, in_host(&d, 50, 60));
	post_send(l.qp[0], 4, at(&d, PAGE - 30, 60));
	CHECK_WC(l.cq[1], 3, IBV_WC_SUCCESS);
	CHECK_WC(l.cq[0], 4, IBV_WC_SUCCESS);
	CHECK_ALL(host + 50, 'd', 30);
	CHECK_ALL(host + 80, 0, 30);
	CHECK_ALL(host + 110, 'h', 100);

	/* RDMA between the two MRs, in both directions, and within one MR. */
	memset(host, 'w', LEN);
	post_rdma(l.qp[0], IBV_WR_RDMA_WRITE, 5, in_host(&d, 0, 64), PAGE,
		  d.mr->rkey);
	CHECK_WC(l.cq[0], 5, IBV_WC_SUCCESS);
	CHECK_ALL(d.map + 2 * PAGE, 'w', 64);
	CHECK_ALL(d.map + 2 * PAGE + 64, 0, PAGE - 64);
	post_rdma(l.qp[0], IBV_WR_RDMA_READ, 6, at(&d, 2 * PAGE - 8, 8),
		  (uintptr_t)host, d.host->rkey);
	CHECK_WC(l.cq[0], 6, IBV_WC_SUCCESS);
	CHECK_ALL(d.map + LEN - 8, 'w', 8);
	post_rdma(l.qp[0], IBV_WR_RDMA_WRITE, 7, at(&d, 0, 64), PAGE,
		  d.mr->rkey);
	CHECK_WC(l.cq[0], 7, IBV_WC_SUCCESS);
	CHECK_ALL(d.map + 2 * PAGE, 'd', 64);
	CHECK_ALL(d.map, 0, PAGE);
	link_free(&l);
}

TEST(windows, "DM-7", "a window of an MR at an offset in device memory opens its own bytes and no other bytes")
{
	struct dev d = dev_new();
	struct link l = link_new(d.pd, d.pd, IBV_QPT_RC);
	struct ibv_mw *mw = MUST(ibv_alloc_mw(d.pd, IBV_MW_TYPE_2));
	struct ibv_mr *mr = MUST(ibv_reg_dm_mr(d.pd, d.dm, PAGE, 2 * PAGE,
					       RIGHTS | IBV_ACCESS_MW_BIND));
	struct ibv_send_wr wr = {
		.wr_id = 1, .opcode = IBV_WR_BIND_MW,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_mw = { .mw = mw, .rkey = ibv_inc_rkey(mw->rkey),
			     .bind_info = { .mr = mr, .addr = PAGE + 256,
					    .length = 64, .mw_access_flags =
					    IBV_ACCESS_REMOTE_WRITE |
					    IBV_ACCESS_REMOTE_READ } },
	};
	unsigned char *at = d.map + 2 * PAGE + 256;

	/* The responder binds the window. */
	post(l.qp[1], &wr);
	CHECK_WC(l.cq[1], 1, IBV_WC_SUCCESS);
	memset(host, 'w', LEN);
	post_rdma(l.qp[0], IBV_WR_RDMA_WRITE, 2, in_host(&d, 0, 56),
		  PAGE + 264, wr.bind_mw.rkey);
	CHECK_WC(l.cq[0], 2, IBV_WC_SUCCESS);
	CHECK_ALL(d.map, 0, 2 * PAGE + 264);
	CHECK_ALL(at + 8, 'w', 56);
	CHECK_ALL(at + 64, 0, PAGE - 320);
	at[0] = 'r';
	post_rdma(l.qp[0], IBV_WR_RDMA_READ, 3, in_host(&d, 0, 8), PAGE + 256,
		  wr.bind_mw.rkey);
	CHECK_WC(l.cq[0], 3, IBV_WC_SUCCESS);
	CHECK_ALL(host, 'r', 1);
	CHECK_ALL(host + 1, 0, 7);
	post_rdma(l.qp[0], IBV_WR_RDMA_WRITE, 4, in_host(&d, 0, 8), PAGE + 313,
		  wr.bind_mw.rkey);
	CHECK_WC(l.cq[0], 4, IBV_WC_REM_ACCESS_ERR);
	CHECK_ALL(at + 64, 0, PAGE - 320);
	CHECK_OK(ibv_dealloc_mw(mw));
	link_free(&l);
}

TEST(atomics, "DM-7,DM-10", "atomics change device memory and return old values into it, and refuse addresses outside the MR")
{
	static const uint64_t behind[] = { 2 * PAGE, -8ULL, -(uint64_t)PAGE };
	struct dev d = dev_new();
	struct link l = link_new(d.pd, d.pd, IBV_QPT_RC);
	uint64_t *word = (uint64_t *)(d.map + PAGE + 64);
	struct ibv_send_wr *wr;
	int i;

	*word = 1000;
	post_add(l.qp[0], 1, at(&d, 128, 8), 64, d.mr->rkey, -1ULL);
	CHECK_WC(l.cq[0], 1, IBV_WC_SUCCESS);
	CHECK_EQ(*word, 999);
	CHECK_EQ(word[8], 1000);
	for (i = 0; i < 2; i++) {
		wr = send_wr(IBV_WR_ATOMIC_CMP_AND_SWP, 2, at(&d, 128, 8));
		wr->wr.atomic.remote_addr = 64;
		wr->wr.atomic.rkey = d.mr->rkey;
		wr->wr.atomic.compare_add = 999;
		wr->wr.atomic.swap = 5;
		post(l.qp[0], wr);
		CHECK_WC(l.cq[0], 2, IBV_WC_SUCCESS);
		CHECK_EQ(*word, 5);
		CHECK_EQ(word[8], i ? 5 : 999);
	}
	for (i = 0; i < 3; i++) {
		post_rdma(l.qp[0], IBV_WR_RDMA_WRITE, 3, in_host(&d, 0, 8),
			  behind[i], d.mr->rkey);
		CHECK_WC(l.cq[0], 3, IBV_WC_REM_ACCESS_ERR);
		CHECK_EVENT(l.ctx, IBV_EVENT_QP_ACCESS_ERR, l.qp[1]);
		link_free(&l);
		l = link_new(d.pd, d.pd, IBV_QPT_RC);
	}
	CHECK_ALL(d.map, 0, PAGE);
	link_free(&l);
}

static int rounds;
static uint64_t *word;
static struct dev dev;

/* Add 2 in each round. The returned old values must increase. */
static void *adder(void *arg)
{
	struct link *l = arg;
	struct ibv_mr *mr;
	uint64_t old, last;
	int i;

	mr = MUST(ibv_reg_mr(dev.pd, &old, 8, IBV_ACCESS_LOCAL_WRITE));
	for (i = 0; i < rounds; i++) {
		post_add(l->qp[0], i, MEM(mr), 0, dev.mr->rkey, 2);
		CHECK_WC(l->cq[0], i, IBV_WC_SUCCESS);
		CHECK(!i || (uint32_t)old > (uint32_t)last);
		last = old;
	}
	CHECK_OK(ibv_dereg_mr(mr));
	return NULL;
}

TEST_SLOW(against, "DM-10", "two QPs that add to the same 8 bytes of device memory lose no addition", 60)
{
	struct link l[2];
	pthread_t thread[2];
	int i;

	dev = dev_new();
	rounds = t_rounds(5000);
	for (i = 0; i < 2; i++)
		l[i] = link_new(dev.pd, dev.pd, IBV_QPT_RC);
	for (i = 0; i < 2; i++)
		CHECK_OK(pthread_create(&thread[i], NULL, adder, &l[i]));
	for (i = 0; i < 2; i++)
		CHECK_OK(pthread_join(thread[i], NULL));
	word = (uint64_t *)(dev.map + PAGE);
	CHECK_EQ(*word, 2LL * 2 * rounds);
}

/*
 * A device whose memory is a BAR reports IBV_ATOMIC_HCA: its atomics are atomic
 * only among QPs. On such a device the test does not add with the processor.
 */
TEST_SLOW(cpu, "DM-10", "atomics of a QP and of the processor lose no addition where the device reports IBV_ATOMIC_GLOB", 60)
{
	bool bar = dev_bar();
	struct ibv_device_attr attr;
	uint64_t adds = 0;
	pthread_t thread;
	struct link l;

	dev = dev_new();
	rounds = t_rounds(5000);
	CHECK_OK(ibv_query_device(dev.pd->context, &attr));
	CHECK_EQ(attr.atomic_cap, bar ? IBV_ATOMIC_HCA : IBV_ATOMIC_GLOB);
	word = (uint64_t *)(dev.map + PAGE);
	l = link_new(dev.pd, dev.pd, IBV_QPT_RC);
	CHECK_OK(pthread_create(&thread, NULL, adder, &l));
	while (pthread_tryjoin_np(thread, NULL)) {
		if (bar)
			continue;
		__atomic_fetch_add(word, 1ULL << 32, __ATOMIC_SEQ_CST);
		adds++;
	}
	CHECK(adds > 0 || bar);
	CHECK_EQ(*word, (adds << 32) + 2LL * rounds);
}
