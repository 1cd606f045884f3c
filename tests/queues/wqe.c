// SPDX-License-Identifier: GPL-2.0
/*
 * WQEs that the application writes without the library: the kernel checks that
 * reserved members are 0.
 */
#include <rdma/keel-queue.h>

#include "qp.h"
#include "raw.h"
#include "t.h"

#define PAGE	4096
#define RIGHTS	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |	\
		 IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |	\
		 IBV_ACCESS_MW_BIND)
#define BYTES	8
#define RINGS	8

static char page[PAGE] __attribute__((aligned(PAGE)));

/* The rings, in memory that the test allocates. */
static struct keel_uapi_ring *rings[RINGS];
static int n_rings;

static void *ring_alloc(struct ibv_pd *pd, void *context, size_t size,
			size_t alignment, uint64_t type)
{
	void *ring = MUST(aligned_alloc(alignment, size));

	CHECK(n_rings < RINGS);
	/* Make sure that an unwritten WQE is not 0 by chance. */
	memset(ring, 0xff, size);
	return rings[n_rings++] = ring;
}

static void ring_free(struct ibv_pd *pd, void *context, void *ptr,
		      uint64_t type)
{
	free(ptr);
}

/* Indexes of rings[]: the requester's rings, then its peer's. */
enum { SQ, RQ, PEER_SQ, PEER_RQ };

struct pair {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq, *rcq;
	struct ibv_qp *a, *b;
	struct ibv_mr *mr;
	struct ibv_mw *mw;
};

static struct pair pair_new(enum ibv_qp_type type)
{
	struct ibv_parent_domain_init_attr attr = {
		.alloc = ring_alloc, .free = ring_free,
		.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS,
	};
	struct pair p = { .ctx = dev_open(KEEL0) };

	p.pd = MUST(ibv_alloc_pd(p.ctx));
	attr.pd = p.pd;
	n_rings = 0;
	p.cq = cq_new(p.ctx);
	p.rcq = cq_new(p.ctx);
	attr.pd = MUST(ibv_alloc_parent_domain(p.ctx, &attr));
	p.a = qp_new(attr.pd, p.cq, type, NULL);
	p.b = qp_new(attr.pd, p.rcq, type, NULL);
	CHECK_EQ(n_rings, 4);
	qp_join(p.a, p.b);
	p.mr = MUST(ibv_reg_mr(p.pd, page, PAGE, RIGHTS));
	p.mw = MUST(ibv_alloc_mw(p.pd, IBV_MW_TYPE_2));
	return p;
}

static void doorbell(struct ibv_qp *qp)
{
	struct raw_cmd cmd;

	raw_init(&cmd, UVERBS_OBJECT_QP, KEEL_METHOD_QP_DOORBELL);
	raw_in(&cmd, KEEL_ATTR_QP_DOORBELL_QPN, &qp->qp_num, sizeof(qp->qp_num));
	CHECK_OK(raw_run(qp->context->cmd_fd, &cmd));
}

static struct keel_uapi_sge *put_sge(void *at, const struct ibv_mr *mr)
{
	struct keel_uapi_sge *sge = at;

	*sge = (struct keel_uapi_sge){
		.addr = (uintptr_t)page, .length = BYTES, .lkey = mr->lkey,
	};
	return sge;
}

static void put_recv(struct ibv_mr *mr, uint32_t num_sge, uint32_t reserved)
{
	struct keel_uapi_recv_wqe *wqe = (void *)(rings[PEER_RQ] + 1);

	*wqe = (struct keel_uapi_recv_wqe){
		.wr_id = 2, .num_sge = num_sge, .reserved = reserved,
	};
	put_sge(wqe + 1, mr)->addr += PAGE / 2;
	__atomic_store_n(&rings[PEER_RQ]->user, 1, __ATOMIC_RELEASE);
}

/* Write a valid first send WQE. */
static struct keel_uapi_send_wqe *put_send(struct pair *p, int opcode)
{
	struct keel_uapi_send_wqe *wqe = (void *)(rings[SQ] + 1);

	*wqe = (struct keel_uapi_send_wqe){
		.wr_id = 1, .opcode = opcode, .flags = IBV_SEND_SIGNALED,
		.num_sge = 1,
	};
	put_sge(wqe + 1, p->mr);
	switch (opcode) {
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		wqe->atomic.remote_addr = (uintptr_t)page + PAGE / 2;
		wqe->atomic.rkey = p->mr->rkey;
		break;
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_RDMA_READ:
		wqe->rdma.remote_addr = (uintptr_t)page + PAGE / 2;
		wqe->rdma.rkey = p->mr->rkey;
		break;
	case IBV_WR_BIND_MW:
		wqe->num_sge = 0;
		wqe->bind.addr = (uintptr_t)page;
		wqe->bind.length = BYTES;
		wqe->bind.lkey = p->mr->lkey;
		wqe->bind.rkey = p->mw->rkey;
		wqe->bind.new_rkey = ibv_inc_rkey(p->mw->rkey);
		wqe->bind.access = IBV_ACCESS_REMOTE_READ;
		break;
	default:
		break;
	}
	return wqe;
}

/* Hand the WQE to the kernel and return its completion. */
static struct ibv_wc ring(struct pair *p)
{
	__atomic_store_n(&rings[SQ]->user, 1, __ATOMIC_RELEASE);
	doorbell(p->a);
	return wc_get(p->cq);
}

/* An opcode, and the bits to set in a byte of its WQE. */
struct spoil {
	const char *what;
	int opcode;
	size_t at;
	unsigned char bits;
};

#define AT(field)	offsetof(struct keel_uapi_send_wqe, field)
#define LAST		(sizeof(struct keel_uapi_send_wqe) - 1)

static const struct spoil spoils[] = {
	{ "checksum flag", IBV_WR_SEND, AT(flags), IBV_SEND_IP_CSUM },
	{ "flag that there is not", IBV_WR_SEND, AT(flags), 0x80 },
	{ "immediate data of a send", IBV_WR_SEND, AT(imm), 1 },
	{ "immediate data of a read", IBV_WR_RDMA_READ, AT(imm), 1 },
	{ "SRQ of an RC QP", IBV_WR_SEND, AT(srqn) + 3, 0x80 },
	{ "length of inline data that is not", IBV_WR_SEND, AT(inline_len), 8 },
	{ "address of a send", IBV_WR_SEND, AT(reserved), 1 },
	{ "end of a send", IBV_WR_SEND_WITH_IMM, LAST, 0x80 },
	{ "reserved of a write", IBV_WR_RDMA_WRITE, AT(rdma.reserved), 1 },
	{ "end of a write", IBV_WR_RDMA_WRITE_WITH_IMM, LAST, 1 },
	{ "reserved of a read", IBV_WR_RDMA_READ, AT(rdma.reserved) + 3, 1 },
	{ "reserved of an atomic", IBV_WR_ATOMIC_FETCH_AND_ADD,
	  AT(atomic.reserved), 1 },
	{ "end of an atomic", IBV_WR_ATOMIC_CMP_AND_SWP, LAST, 1 },
	{ "reserved of a bind", IBV_WR_BIND_MW, AT(bind.reserved), 1 },
	{ "SGE of a bind", IBV_WR_BIND_MW, AT(num_sge), 1 },
	{ "inline data of a bind", IBV_WR_BIND_MW, AT(flags),
	  IBV_SEND_INLINE },
	{ "immediate data of a bind", IBV_WR_BIND_MW, AT(imm), 1 },
};

TEST(send, "DEV-4", "a send WQE with a meaningless bit is a local operation error that moves no byte, and the peer goes on")
{
	struct keel_uapi_send_wqe *wqe;
	uint32_t why = 0;
	struct ibv_wc wc;
	struct pair p;
	size_t i;
	int bad;

	for (i = 0; i < sizeof(spoils) / sizeof(*spoils); i++)
		for (bad = 0; bad < 2; bad++) {
			if (!bad)
				t_note("%s", spoils[i].what);
			memset(page, 0, PAGE);
			memset(page, 's', BYTES);
			p = pair_new(IBV_QPT_RC);
			put_recv(p.mr, 1, 0);
			wqe = put_send(&p, spoils[i].opcode);
			if (bad)
				((unsigned char *)wqe)[spoils[i].at] |=
					spoils[i].bits;
			wc = ring(&p);
			CHECK_EQ(wc.wr_id, 1);
			CHECK_EQ(wc.status, bad ? IBV_WC_LOC_QP_OP_ERR :
						  IBV_WC_SUCCESS);
			if (bad) {
				/* All cases have the same vendor error. */
				why = why ?: wc.vendor_err;
				CHECK(why);
				CHECK_EQ(wc.vendor_err, why);
				CHECK_ALL(page, 's', BYTES);
				CHECK_ALL(page + BYTES, 0, PAGE - BYTES);
				CHECK_NO_WC(p.rcq);
				CHECK_STATE(p.b, IBV_QPS_RTS);
			}
			CHECK_OK(ibv_close_device(p.ctx));
		}
}

TEST(datagram, "DEV-4", "a UD send WQE with a non-zero byte behind its Q_Key is a local operation error")
{
	size_t stride = KEEL_SQ_STRIDE(QP_SGES, QP_INLINE);
	struct mem mem = { .addr = page, .len = BYTES };
	struct keel_uapi_send_wqe *wqe;
	struct ibv_send_wr *wr;
	struct pair p;
	int i;

	for (i = 0; i < 3; i++) {
		p = pair_new(IBV_QPT_UD);
		mem.lkey = p.mr->lkey;
		wr = send_wr(IBV_WR_SEND, 7, mem);
		wr_to(wr, ah_self(p.pd), p.b);
		post(p.a, wr);
		CHECK_WC(p.cq, 7, IBV_WC_SUCCESS);
		/*
		 * Post the same WQE again, with one byte behind the Q_Key set.
		 */
		wqe = (void *)((char *)(rings[SQ] + 1) + stride);
		memcpy(wqe, rings[SQ] + 1, stride);
		wqe->wr_id = 8;
		if (i)
			wqe->reserved[i == 1 ? 12 : 39] = 1;
		__atomic_store_n(&rings[SQ]->user, 2, __ATOMIC_RELEASE);
		doorbell(p.a);
		CHECK_WC(p.cq, 8, i ? IBV_WC_LOC_QP_OP_ERR : IBV_WC_SUCCESS);
		CHECK_STATE(p.a, i ? IBV_QPS_SQE : IBV_QPS_RTS);
		CHECK_OK(ibv_close_device(p.ctx));
	}
}

TEST(recv, "DEV-4", "a receive WQE with a non-zero reserved member or too many SGEs is an operation error on both sides")
{
	static const int ops[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE_WITH_IMM };
	struct pair p;
	int i, how;

	for (i = 0; i < 2; i++)
		for (how = 0; how < 3; how++) {
			memset(page, 0, PAGE);
			memset(page, 's', BYTES);
			p = pair_new(IBV_QPT_RC);
			put_recv(p.mr, how == 2 ? QP_SGES + 1 : 1, how == 1);
			put_send(&p, ops[i]);
			CHECK_EQ(ring(&p).status, how ? IBV_WC_REM_OP_ERR :
							IBV_WC_SUCCESS);
			CHECK_WC(p.rcq, 2, how ? IBV_WC_LOC_QP_OP_ERR :
						 IBV_WC_SUCCESS);
			CHECK_ALL(page + PAGE / 2, how ? 0 : 's', BYTES);
			CHECK_STATE(p.b, how ? IBV_QPS_ERR : IBV_QPS_RTS);
			CHECK_OK(ibv_close_device(p.ctx));
		}
}

TEST(create, "DEV-4", "CREATE_QP zeroes the driver response that it does not use, and fails with EFAULT if it cannot write there")
{
	struct pair p = pair_new(IBV_QPT_RC);
	struct ib_uverbs_create_qp cmd = {
		.pd_handle = p.pd->handle, .send_cq_handle = p.cq->handle,
		.recv_cq_handle = p.cq->handle, .max_send_wr = 1,
		.max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1,
		.qp_type = IBV_QPT_RC,
	};
	struct ib_uverbs_create_qp_resp resp;
	struct keel_uapi_create_qp_req req = {
		.sq = { .entries = 1, .stride = KEEL_SQ_STRIDE(1, 0) },
		.rq = { .entries = 1, .stride = KEEL_RQ_STRIDE(1) },
	};
	struct raw_invoke inv = {
		.command = IB_USER_VERBS_CMD_CREATE_QP,
		.in = &cmd, .in_len = sizeof(cmd),
		.out = &resp, .out_len = sizeof(resp),
		.drv_in = &req, .drv_in_len = sizeof(req),
	};
	char answer[24];

	req.sq.addr = (uintptr_t)MUST(aligned_alloc(PAGE, PAGE));
	req.rq.addr = (uintptr_t)MUST(aligned_alloc(PAGE, PAGE));
	memset(answer, 'a', sizeof(answer));
	inv.drv_out = answer;
	inv.drv_out_len = sizeof(answer);
	CHECK_OK(raw_invoke(p.ctx->cmd_fd, &inv));
	CHECK_ALL(answer, 0, sizeof(answer));
	inv.drv_out = (void *)8;
	CHECK_RET(raw_invoke(p.ctx->cmd_fd, &inv), EFAULT);
}

TEST(strides, "DEV-4", "CREATE_QP takes WQEs of the maximum stride, and refuses longer, unaligned and empty WQEs with EINVAL")
{
	static const struct {
		uint32_t stride;
		int want;
	} cases[] = {
		{ KEEL_MAX_STRIDE, 0 }, { KEEL_MAX_STRIDE + 16, EINVAL },
		{ KEEL_MAX_STRIDE - 8, EINVAL }, { 0, EINVAL },
	};
	struct pair p = pair_new(IBV_QPT_RC);
	struct ib_uverbs_create_qp cmd = {
		.pd_handle = p.pd->handle, .send_cq_handle = p.cq->handle,
		.recv_cq_handle = p.cq->handle, .max_send_wr = 1,
		.max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1,
		.qp_type = IBV_QPT_RC,
	};
	struct ib_uverbs_create_qp_resp resp;
	struct keel_uapi_create_qp_req req = {
		.sq = { .entries = 1 },
		.rq = { .entries = 1, .stride = KEEL_RQ_STRIDE(1) },
	};
	struct raw_invoke inv = {
		.command = IB_USER_VERBS_CMD_CREATE_QP,
		.in = &cmd, .in_len = sizeof(cmd),
		.out = &resp, .out_len = sizeof(resp),
		.drv_in = &req, .drv_in_len = sizeof(req),
	};
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		/* Each QP gets rings of its own, with a zero header. */
		req.sq.addr = (uintptr_t)MUST(aligned_alloc(PAGE, PAGE));
		req.rq.addr = (uintptr_t)MUST(aligned_alloc(PAGE, PAGE));
		memset((void *)(uintptr_t)req.sq.addr, 0, PAGE);
		memset((void *)(uintptr_t)req.rq.addr, 0, PAGE);
		req.sq.stride = cases[i].stride;
		CHECK_RET(raw_invoke(p.ctx->cmd_fd, &inv), cases[i].want);
	}
}
