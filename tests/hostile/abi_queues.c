// SPDX-License-Identifier: GPL-2.0
/*
 * The commands that create queues, with rings and answers that a program chooses.
 */
#include <infiniband/verbs.h>
#include <rdma/keel-queue.h>

#include "dev.h"
#include "raw.h"
#include "t.h"
#include "tree.h"

#define PAGE	4096

/*
 * An address that cannot be accessed. It is volatile, so that the compiler does
 * not see the address.
 */
static void *volatile nowhere = (void *)8;
#define NOWHERE	nowhere

/* Create objects whose rings are here. Return 0 or errno. */
static unsigned char ring_memory[2][16 * PAGE] __attribute__((aligned(PAGE)));

/* Entries of the next rings, and the WQEs or CQEs that the commands ask for. */
#define ENTRIES	16
static uint32_t sq_entries = ENTRIES, rq_entries = ENTRIES, wanted = 10;

static struct keel_uapi_buf ring_at(int i, uint32_t entries, uint32_t stride)
{
	return (struct keel_uapi_buf){
		.addr = (uintptr_t)ring_memory[i], .entries = entries,
		.stride = stride,
	};
}

#define CREATE(fd, cmd_number, cmd, req, answer_at, resp)		\
	raw_invoke(fd, &(struct raw_invoke){				\
		.command = cmd_number, .in = &(cmd), .in_len = sizeof(cmd),	\
		.out = answer_at, .out_len = sizeof(struct resp),		\
		.drv_in = &(req), .drv_in_len = sizeof(req) })

static int create_cq(int fd, void *answer)
{
	struct keel_uapi_create_cq_req req = {
		.ring = ring_at(0, sq_entries, sizeof(struct keel_uapi_cqe)),
	};
	struct ib_uverbs_create_cq cmd = { .cqe = wanted, .comp_channel = -1 };

	return CREATE(fd, IB_USER_VERBS_CMD_CREATE_CQ, cmd, req, answer,
		      ib_uverbs_create_cq_resp);
}

static int create_srq(int fd, void *answer, uint32_t pd)
{
	struct keel_uapi_create_srq_req req = {
		.ring = ring_at(0, sq_entries, 64),
	};
	struct ib_uverbs_create_srq cmd = {
		.pd_handle = pd, .max_wr = wanted, .max_sge = 1,
	};

	return CREATE(fd, IB_USER_VERBS_CMD_CREATE_SRQ, cmd, req, answer,
		      ib_uverbs_create_srq_resp);
}

static int create_qp(int fd, void *answer, uint32_t pd, uint32_t cq)
{
	struct keel_uapi_create_qp_req req = {
		.sq = ring_at(0, sq_entries, 256),
		.rq = ring_at(1, rq_entries, 64),
	};
	struct ib_uverbs_create_qp cmd = {
		.pd_handle = pd, .send_cq_handle = cq, .recv_cq_handle = cq,
		.max_send_wr = wanted, .max_recv_wr = wanted, .max_send_sge = 1,
		.max_recv_sge = 1, .qp_type = IBV_QPT_RC,
	};

	return CREATE(fd, IB_USER_VERBS_CMD_CREATE_QP, cmd, req, answer,
		      ib_uverbs_create_qp_resp);
}

/*
 * ib_uverbs destroys the object again, with the driver data of the create
 * command, and warns if the driver refuses that.
 */
TEST(unanswered, "DEV-4,PD-2", "CREATE_CQ, CREATE_SRQ and CREATE_QP whose response cannot be written fail with EFAULT, and leave no object")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	struct ibv_cq *cq = MUST(ibv_create_cq(ctx, 10, NULL, NULL, 0));
	char *before = tree_settled(KEEL0);
	unsigned char answer[256];
	int fd = ctx->cmd_fd;

	CHECK_RET(create_cq(fd, NOWHERE), EFAULT);
	CHECK_RET(create_srq(fd, NOWHERE, pd->handle), EFAULT);
	CHECK_RET(create_qp(fd, NOWHERE, pd->handle, cq->handle), EFAULT);
	CHECK_SAME_TREE(before);
	/* The commands were good. */
	CHECK_OK(create_cq(fd, answer));
	CHECK_OK(create_srq(fd, answer, pd->handle));
	CHECK_OK(create_qp(fd, answer, pd->handle, cq->handle));
	CHECK_EQ(tree_count(KEEL0, "cq"), 2);
	CHECK_EQ(tree_count(KEEL0, "srq"), 1);
	CHECK_EQ(tree_count(KEEL0, "qp"), 1);
}

TEST(small_rings, "DEV-4,PD-2", "CREATE_CQ, CREATE_SRQ and CREATE_QP refuse a ring with fewer entries than WQEs or CQEs, or with no power of 2")
{
	static const uint32_t bad[] = { 0, 1, ENTRIES / 2, ENTRIES - 1,
					ENTRIES + 1, 1U << 31, UINT32_MAX };
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	struct ibv_cq *cq = MUST(ibv_create_cq(ctx, 10, NULL, NULL, 0));
	char *before = tree_settled(KEEL0);
	unsigned char answer[256];
	int fd = ctx->cmd_fd;
	size_t i;

	wanted = ENTRIES;
	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		t_note("%u entries", bad[i]);
		sq_entries = bad[i];
		CHECK_RET(create_cq(fd, answer), EINVAL);
		CHECK_RET(create_srq(fd, answer, pd->handle), EINVAL);
		CHECK_RET(create_qp(fd, answer, pd->handle, cq->handle), EINVAL);
		sq_entries = ENTRIES;
		rq_entries = bad[i];
		CHECK_RET(create_qp(fd, answer, pd->handle, cq->handle), EINVAL);
		rq_entries = ENTRIES;
		CHECK_SAME_TREE(before);
	}
	/* As many as they ask for are enough. */
	CHECK_OK(create_cq(fd, answer));
	CHECK_OK(create_srq(fd, answer, pd->handle));
	CHECK_OK(create_qp(fd, answer, pd->handle, cq->handle));
}

/* Create a QP with the SRQ of the handle. */
static int create_qp_with_srq(int fd, void *answer, uint32_t pd, uint32_t cq, uint32_t srq,
			      struct keel_uapi_buf rq)
{
	struct keel_uapi_create_qp_req req = {
		.sq = ring_at(0, sq_entries, 256), .rq = rq,
	};
	struct ib_uverbs_create_qp cmd = {
		.pd_handle = pd, .send_cq_handle = cq, .recv_cq_handle = cq,
		.srq_handle = srq, .is_srq = 1, .max_send_wr = wanted,
		.max_send_sge = 1, .qp_type = IBV_QPT_RC,
	};

	return CREATE(fd, IB_USER_VERBS_CMD_CREATE_QP, cmd, req, answer,
		      ib_uverbs_create_qp_resp);
}

TEST(no_ring, "DEV-4,PD-2", "CREATE_QP with an SRQ refuses a receive ring that has an address, entries or a stride")
{
	static const struct keel_uapi_buf bad[] = {
		{ .addr = 1 }, { .entries = 1 }, { .stride = 1 },
		{ .entries = ENTRIES, .stride = 64 },
	};
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	struct ibv_cq *cq = MUST(ibv_create_cq(ctx, 10, NULL, NULL, 0));
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 1, .max_sge = 1 } };
	struct ibv_srq *srq = MUST(ibv_create_srq(pd, &init));
	char *before = tree_settled(KEEL0);
	unsigned char answer[256];
	int fd = ctx->cmd_fd;
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		t_note("address %llu, %u entries, stride %u", bad[i].addr, bad[i].entries,
		       bad[i].stride);
		CHECK_RET(create_qp_with_srq(fd, answer, pd->handle, cq->handle, srq->handle,
					     bad[i]), EINVAL);
		CHECK_SAME_TREE(before);
	}
	CHECK_OK(create_qp_with_srq(fd, answer, pd->handle, cq->handle, srq->handle,
				    (struct keel_uapi_buf){}));
}
