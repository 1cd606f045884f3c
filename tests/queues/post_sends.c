// SPDX-License-Identifier: GPL-2.0
/*
 * keeldv_post_sends(), and the method behind it: the doorbells of several queue pairs in
 * one call.
 */
#include <infiniband/keeldv.h>

#include "dev.h"
#include "qp.h"
#include "raw.h"
#include "rings.h"
#include "t.h"

#define LINKS	70
#define LEN	64

static unsigned char from[LINKS][LEN], to[LINKS][LEN];
static struct ibv_pd *pd;
static struct ibv_mr *from_mr, *to_mr;
static struct link links[LINKS];
static struct ibv_sge sge[LINKS];
static struct ibv_send_wr wr[LINKS];
static struct keeldv_post posts[LINKS];

static void setup_in(struct ibv_pd *domain, int n)
{
	int i;

	pd = domain;
	from_mr = MUST(ibv_reg_mr(pd, from, sizeof(from), 0));
	to_mr = MUST(ibv_reg_mr(pd, to, sizeof(to), IBV_ACCESS_LOCAL_WRITE));
	for (i = 0; i < n; i++) {
		links[i] = link_new(pd, pd, IBV_QPT_RC);
		memset(from[i], i + 1, LEN);
		sge[i] = (struct ibv_sge){ (uintptr_t)from[i], LEN, from_mr->lkey };
		wr[i] = (struct ibv_send_wr){
			.wr_id = i, .sg_list = &sge[i], .num_sge = 1,
			.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
		};
		posts[i] = (struct keeldv_post){
			.qp = links[i].qp[0], .wr = &wr[i], .ret = -1,
		};
	}
}

static void setup(int n)
{
	setup_in(MUST(ibv_alloc_pd(dev_open(KEEL0))), n);
}

static void receive(int i)
{
	post_recv(links[i].qp[1], i, (struct mem){ to[i], LEN, to_mr->lkey });
}

static void check_arrived(int i)
{
	CHECK_WC(links[i].cq[0], i, IBV_WC_SUCCESS);
	CHECK_EQ(CHECK_WC(links[i].cq[1], i, IBV_WC_SUCCESS).byte_len, LEN);
	CHECK_ALL(to[i], i + 1, LEN);
	memset(to[i], 0, LEN);
}

TEST_SLOW(all, "DEV-4", "lists of 70 queue pairs arrive, each at its peer, the first time and on the fast path", 60)
{
	int round, i;
	long fast;

	setup(LINKS);
	for (round = 0; round < 3; round++) {
		fast = dev_counter("fast_msgs");
		for (i = 0; i < LINKS; i++)
			receive(i);
		CHECK_RET(keeldv_post_sends(posts, LINKS), 0);
		for (i = 0; i < LINKS; i++) {
			CHECK_EQ(posts[i].ret, 0);
			check_arrived(i);
		}
		/* While a worker has a lock, as after the first round, messages are slow. */
		if (round != 1)
			CHECK_EQ(dev_counter("fast_msgs") - fast, round ? LINKS : 0);
	}
}

TEST(waits, "DEV-4", "a peer without a receive WQE delays its own queue pair, and no other one")
{
	int i;

	setup(3);
	receive(0);
	receive(2);
	CHECK_RET(keeldv_post_sends(posts, 3), 0);
	check_arrived(0);
	check_arrived(2);
	CHECK_NO_WC(links[1].cq[0]);
	receive(1);
	check_arrived(1);
	for (i = 0; i < 3; i++)
		CHECK_NO_WC(links[i].cq[0]);
}

TEST(contexts, "DEV-4", "queue pairs of two contexts in one call, and one that is in the error state")
{
	struct ibv_pd *other = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	struct link alien;

	setup(3);
	alien = link_new(other, pd, IBV_QPT_RC);
	posts[1].qp = alien.qp[0];
	wr[1].num_sge = 0;
	qp_to(links[2].qp[0], IBV_QPS_ERR);
	receive(0);
	post_recv(alien.qp[1], 1, (struct mem){ to[1], LEN, to_mr->lkey });
	CHECK_RET(keeldv_post_sends(posts, 3), 0);
	check_arrived(0);
	CHECK_WC(alien.cq[0], 1, IBV_WC_SUCCESS);
	CHECK_EQ(CHECK_WC(alien.cq[1], 1, IBV_WC_SUCCESS).byte_len, 0);
	CHECK_WC(links[2].cq[0], 2, IBV_WC_WR_FLUSH_ERR);
}

/* The method with so many bytes of numbers. */
static int ring(const uint32_t *qpns, size_t len)
{
	struct raw_cmd cmd;

	raw_init(&cmd, UVERBS_OBJECT_QP, KEEL_METHOD_QP_DOORBELLS);
	raw_in(&cmd, KEEL_ATTR_QP_DOORBELLS_QPNS, qpns, len);
	return raw_run(pd->context->cmd_fd, &cmd);
}

/*
 * Wait until the worker has run the QPs that were scheduled until now, as a connected one is.
 * It flushes a QP that failed because of its peer after them.
 */
static void worker_rests(void)
{
	struct link l = link_new(pd, pd, IBV_QPT_RC);

	post_recv(l.qp[1], 1, (struct mem){ to[0], LEN, to_mr->lkey });
	post_rdma(l.qp[0], IBV_WR_RDMA_WRITE, 2, (struct mem){ from[0], LEN, from_mr->lkey },
		  0, 0);
	CHECK_WC(l.cq[0], 2, IBV_WC_REM_ACCESS_ERR);
	CHECK_WC(l.cq[1], 1, IBV_WC_WR_FLUSH_ERR);
}

/*
 * Post the first WQE of a QP that can be executed, and ring no doorbell: in SQD the doorbell
 * executes nothing, and while the QP moves to RTS the WQE is not there.
 */
static void post_silently(int i)
{
	struct keel_uapi_ring *ring = rings[4 * i];
	struct ibv_qp *qp = links[i].qp[0];

	receive(i);
	qp_to(qp, IBV_QPS_SQD);
	CHECK_RET(keeldv_post_sends(&posts[i], 1), 0);
	CHECK_EQ(ring->user, 1);
	__atomic_store_n(&ring->user, 0, __ATOMIC_SEQ_CST);
	qp_to(qp, IBV_QPS_RTS);
	worker_rests();
	__atomic_store_n(&ring->user, 1, __ATOMIC_SEQ_CST);
	CHECK_NO_WC(links[i].cq[0]);
}

TEST(numbers, "DEV-4", "a list of a wrong length is EINVAL and rings nothing; a number of no queue pair, or of another context, is ENOENT, and the others are rung")
{
	struct ibv_pd *other = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	uint32_t qpns[KEEL_UAPI_DOORBELLS + 1];
	struct link alien = link_new(other, other, IBV_QPT_RC);
	size_t len;
	int i;

	setup_in(rings_pd(dev_open(KEEL0)), 2);
	for (i = 0; i <= KEEL_UAPI_DOORBELLS; i++)
		qpns[i] = links[0].qp[0]->qp_num;
	post_silently(0);
	for (len = 0; len < 12; len++)
		if (!len || len % 4)
			CHECK_RET(ring(qpns, len), EINVAL);
	CHECK_RET(ring(qpns, 4 * KEEL_UAPI_DOORBELLS + 4), EINVAL);
	CHECK_RET(ring((void *)8, 16), EFAULT);
	CHECK_NO_WC(links[0].cq[0]);
	CHECK_RET(ring(qpns, 4 * KEEL_UAPI_DOORBELLS), 0);
	check_arrived(0);
	CHECK_RET(ring(qpns, 4), 0);
	CHECK_RET(ring(qpns, 8), 0);

	post_silently(1);
	qpns[0] = 0xffffff;
	qpns[1] = alien.qp[0]->qp_num;
	qpns[2] = links[1].qp[0]->qp_num;
	CHECK_RET(ring(qpns, 4), ENOENT);
	CHECK_RET(ring(qpns + 1, 4), ENOENT);
	CHECK_NO_WC(links[1].cq[0]);
	CHECK_RET(ring(qpns, 12), ENOENT);
	check_arrived(1);
}
