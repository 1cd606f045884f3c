// SPDX-License-Identifier: GPL-2.0
/*
 * Calls: what the victim does meanwhile. The first argument is the QP.
 */
#include <sys/mman.h>

#include "qp.h"
#include "t.h"
#include "world.h"

static const uint32_t lengths[] = { 8, 0, 1, 64, 4096, 4097, 20000, 100000 };

static int pick(uint8_t arg)
{
	w.dirty |= 1 << arg % W_QPS;
	return arg % W_QPS;
}

/* post QP OPCODE LENGTH REGION FLAGS: a send WQE. */
static void op_post(const uint8_t *a)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD,
		IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM,
		IBV_WR_SEND_WITH_INV,
	};
	int i = pick(a[0]), region = a[3] % W_MW;
	struct ibv_sge sge = {
		(uintptr_t)w.mem + region * (WORLD_BYTES / 4), lengths[a[2] % 8],
		w.mr[region]->lkey,
	};
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = opcodes[a[1] % 8],
		.send_flags = IBV_SEND_SIGNALED | (a[4] & 1 ? IBV_SEND_SOLICITED : 0) |
			      (a[4] & 2 ? IBV_SEND_FENCE : 0),
		.imm_data = a[5],
	}, *bad;

	if (i == W_XRC_RECV)
		return;
	if (world_is_ud(i)) {
		wr.wr.ud.ah = w.ah;
		wr.wr.ud.remote_qpn = PEER_QPN + i;
		wr.wr.ud.remote_qkey = QP_QKEY;
	} else if (a[1] % 8 == 3 || a[1] % 8 == 4) {
		sge.length = 8;
		wr.wr.atomic.remote_addr = 64;
		wr.wr.atomic.rkey = 1;
	} else {
		wr.wr.rdma.remote_addr = 64;
		wr.wr.rdma.rkey = 1;
	}
	if (i == W_XRC_SEND)
		wr.qp_type.xrc.remote_srqn = 5;
	ibv_post_send(w.qp[i], &wr, &bad);
}

/* recv QP NUMBER LENGTH */
static void op_recv(const uint8_t *a)
{
	struct ibv_sge sge = { (uintptr_t)w.mem, lengths[a[2] % 8], w.mr[W_ALL]->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	int i = pick(a[0]), n;

	for (n = 0; n <= a[1] % 64; n++)
		if (i == W_RC_SRQ)
			ibv_post_srq_recv(w.srq, &wr, &bad);
		else if (i == W_XRC_RECV)
			ibv_post_srq_recv(w.xsrq, &wr, &bad);
		else if (i != W_XRC_SEND)
			ibv_post_recv(w.qp[i], &wr, &bad);
}

/* state QP STATE: RESET, and connected again unless the third argument is odd; ERR; SQD. */
static void op_state(const uint8_t *a)
{
	static const enum ibv_qp_state states[] = { IBV_QPS_RESET, IBV_QPS_ERR, IBV_QPS_SQD };
	struct ibv_qp_attr attr = { .qp_state = states[a[1] % 3] };
	int i = pick(a[0]);

	ibv_modify_qp(w.qp[i], &attr, IBV_QP_STATE);
	if (attr.qp_state == IBV_QPS_RESET && !(a[2] & 1))
		world_qp_connect(i);
}

/* destroy QP: and make a new one */
static void op_destroy(const uint8_t *a)
{
	world_qp_new(pick(a[0]));
}

/* key REGION: it gets another key; with the fourth, only the window does */
static void op_key(const uint8_t *a)
{
	unsigned int access = a[0] % W_MRS == W_READ ? IBV_ACCESS_REMOTE_READ :
			      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			      IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
			      IBV_ACCESS_MW_BIND;

	/* A region that has a window keeps its key. */
	CHECK_OK(ibv_dealloc_mw(w.mw));
	w.mw = MUST(ibv_alloc_mw(w.pd, IBV_MW_TYPE_2));
	if (a[0] % W_MRS != W_MW)
		ibv_rereg_mr(w.mr[a[0] % W_MRS], IBV_REREG_MR_CHANGE_ACCESS, w.pd, NULL, 0,
			     access);
}

/* bind QP RIGHTS: the window, to the region with all rights */
static void op_bind(const uint8_t *a)
{
	int i = pick(a[0]);
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED,
		.bind_mw = {
			.mw = w.mw, .rkey = ibv_inc_rkey(w.mw->rkey),
			.bind_info = {
				.mr = w.mr[W_ALL], .addr = (uintptr_t)w.mem, .length = 8192,
				.mw_access_flags = a[1] & 1 ? IBV_ACCESS_REMOTE_READ :
					IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
					IBV_ACCESS_REMOTE_ATOMIC,
			},
		},
	}, *bad;

	if ((i == W_RC || i == W_RC_SRQ || i == W_UC) && !ibv_post_send(w.qp[i], &wr, &bad))
		w.mw->rkey = wr.bind_mw.rkey;
}

/* unmap HOW: the memory on demand has no pages any more, or is read-only for a while */
static void op_unmap(const uint8_t *a)
{
	char *at = w.mem + W_ODP * (WORLD_BYTES / 4);

	if (a[0] & 1) {
		mprotect(at, 4096, PROT_READ);
		mprotect(at, 4096, PROT_READ | PROT_WRITE);
	} else {
		madvise(at, WORLD_BYTES / 4, MADV_DONTNEED);
	}
}

const struct op victim_ops[] = {
	{ "post", op_post, 14 },
	{ "recv", op_recv, 6 },
	{ "state", op_state, 3 },
	{ "destroy", op_destroy, 2 },
	{ "key", op_key, 1 },
	{ "bind", op_bind, 3 },
	{ "unmap", op_unmap, 3 },
};

const int victim_ops_count = sizeof(victim_ops) / sizeof(*victim_ops);
