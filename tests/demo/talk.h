/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Queue pairs for the stations of the tour: how to connect them on one host,
 * and how to wait for a completion.
 */
#ifndef TALK_H
#define TALK_H

#include "say.h"

static inline struct ibv_cq *new_cq(struct ibv_context *context)
{
	struct ibv_cq *cq = ibv_create_cq(context, 256, NULL, NULL, 0);

	must(cq);
	return cq;
}

/*
 * Create an RC or XRC_SEND queue pair; all its work requests complete in @cq.
 */
static inline struct ibv_qp *new_qp(struct ibv_pd *pd, struct ibv_cq *cq,
				    enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = type,
		.sq_sig_all = 1,
		.cap = { .max_send_wr = 64, .max_recv_wr = 64,
			 .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	must(qp);
	return qp;
}

/*
 * Connect to the queue pair number @to of the device that has the address @gid, through all
 * states up to RTS. @sgid is the index of an address of this device.
 */
static inline void connect_at(struct ibv_qp *qp, uint32_t to, const union ibv_gid *gid, int sgid)
{
	int receives = qp->qp_type != IBV_QPT_XRC_SEND;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
		.path_mtu = IBV_MTU_4096, .dest_qp_num = to,
		.min_rnr_timer = 12, .max_dest_rd_atomic = 1,
		.timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
		.max_rd_atomic = 1,
		.ah_attr = {
			.is_global = 1, .port_num = 1,
			.grh = { .dgid = *gid, .sgid_index = sgid, .hop_limit = 64 },
		},
	};

	must(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX |
			    IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr.qp_state = IBV_QPS_RTR;
	must(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV |
			    IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			    (receives ? IBV_QP_MIN_RNR_TIMER |
					IBV_QP_MAX_DEST_RD_ATOMIC : 0)));
	if (qp->qp_type == IBV_QPT_XRC_RECV)
		return;
	attr.qp_state = IBV_QPS_RTS;
	must(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT |
			    IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

/* The same on one host. */
static inline void connect_to(struct ibv_qp *qp, uint32_t to)
{
	union ibv_gid gid;

	must(!ibv_query_gid(qp->context, 1, 0, &gid));
	connect_at(qp, to, &gid, 0);
}

/* Wait for the next completion. */
static inline struct ibv_wc next_wc(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int n;

	do {
		n = ibv_poll_cq(cq, 1, &wc);
	} while (!n);
	must(n == 1);
	return wc;
}

/* Write @length bytes to the other side and print the status. */
static inline enum ibv_wc_status rdma_write(struct ibv_qp *qp, struct ibv_mr *mr,
					    uint32_t length, uint64_t addr,
					    uint32_t rkey)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)mr->addr, .length = length, .lkey = mr->lkey,
	};
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.wr.rdma = { .remote_addr = addr, .rkey = rkey },
	};
	struct ibv_wc wc;

	must(!ibv_post_send(qp, &wr, &bad));
	wc = next_wc(qp->send_cq);
	did("RDMA write to %#llx with rkey 0x%08x -> %s",
	    (unsigned long long)addr, rkey, ibv_wc_status_str(wc.status));
	return wc.status;
}

#endif
