// SPDX-License-Identifier: GPL-2.0
/*
 * Two RC QPs of one process that are connected to each other.
 */
#include "pair.h"
#include "t.h"

static struct ibv_qp *qp_new(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8,
			 .max_send_sge = 1, .max_recv_sge = 1 },
	};

	return MUST(ibv_create_qp(pd, &init));
}

static void qp_connect(struct ibv_qp *qp, uint32_t to)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_READ |
			IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
		.path_mtu = IBV_MTU_1024, .dest_qp_num = to,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 1,
		.ah_attr = { .is_global = 1, .port_num = 1 },
		.timeout = 10, .retry_cnt = 1, .rnr_retry = 1,
		.max_rd_atomic = 1,
	};

	CHECK_OK(ibv_query_gid(qp->context, 1, 0, &attr.ah_attr.grh.dgid));
	CHECK_OK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX |
			       IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr.qp_state = IBV_QPS_RTR;
	CHECK_OK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV |
			       IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			       IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			       IBV_QP_MIN_RNR_TIMER));
	attr.qp_state = IBV_QPS_RTS;
	CHECK_OK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT |
			       IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			       IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

struct pair pair_new(struct ibv_pd *pd)
{
	struct pair p = {
		.cq = MUST(ibv_create_cq(pd->context, 32, NULL, NULL, 0)),
	};

	p.qp[0] = qp_new(pd, p.cq);
	p.qp[1] = qp_new(pd, p.cq);
	qp_connect(p.qp[0], p.qp[1]->qp_num);
	qp_connect(p.qp[1], p.qp[0]->qp_num);
	return p;
}

void pair_free(struct pair *p)
{
	CHECK_OK(ibv_destroy_qp(p->qp[0]));
	CHECK_OK(ibv_destroy_qp(p->qp[1]));
	CHECK_OK(ibv_destroy_cq(p->cq));
}

enum ibv_wc_status pair_done(struct pair *p)
{
	struct ibv_wc wc;
	int n;

	do
		n = ibv_poll_cq(p->cq, 1, &wc);
	while (!n);
	CHECK_EQ(n, 1);
	return wc.status;
}

enum ibv_wc_status pair_run(struct pair *p, int who, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	CHECK_OK(ibv_post_send(p->qp[who], wr, &bad));
	return pair_done(p);
}

enum ibv_wc_status pair_rdma(struct pair *p, int who, enum ibv_wr_opcode op,
			     void *local, uint32_t lkey, uint32_t length,
			     uint64_t addr, uint32_t rkey)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)local, .length = length, .lkey = lkey,
	};
	struct ibv_send_wr wr = {
		.opcode = op, .sg_list = &sge, .num_sge = 1,
		.wr.rdma = { .remote_addr = addr, .rkey = rkey },
	};

	return pair_run(p, who, &wr);
}
