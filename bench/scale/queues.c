// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* CQs, SRQs, address handles, and queue pairs that can send. */
#include <fcntl.h>

#include "kind.h"

#define PORT	1
#define QKEY	0x11111111

static union ibv_gid gid;
static struct ibv_cq *cq;
static struct ibv_xrcd *xrcd;

static int prepare_gid(void)
{
	return ibv_query_gid(world.ctx, PORT, world.gid_index, &gid);
}

static int prepare_qp(void)
{
	if (prepare_gid())
		return -1;
	cq = ibv_create_cq(world.ctx, 1, NULL, NULL, 0);
	return cq ? 0 : -1;
}

static int prepare_xrc(void)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};

	if (prepare_qp())
		return -1;
	xrcd = ibv_open_xrcd(world.ctx, &attr);
	return xrcd ? 0 : -1;
}

static void *make_ah(void)
{
	struct ibv_ah_attr attr = {
		.is_global = 1,
		.port_num = PORT,
		.grh = { .dgid = gid, .sgid_index = world.gid_index, .hop_limit = 1 },
	};

	return ibv_create_ah(world.pd, &attr);
}

static int unmake_ah(void *ah)
{
	return ibv_destroy_ah(ah);
}

static void *make_cq(void)
{
	return ibv_create_cq(world.ctx, 1, NULL, NULL, 0);
}

static int unmake_cq(void *obj)
{
	return ibv_destroy_cq(obj);
}

static void *make_srq(void)
{
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 1, .max_sge = 1 } };

	return ibv_create_srq(world.pd, &attr);
}

static int unmake_srq(void *srq)
{
	return ibv_destroy_srq(srq);
}

static int to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = PORT, .qkey = QKEY,
	};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;

	mask |= qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	return ibv_modify_qp(qp, &attr, mask);
}

/* Connected to itself. */
static int to_rtr(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = qp->qp_num,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {
			.is_global = 1,
			.port_num = PORT,
			.grh = { .dgid = gid, .sgid_index = world.gid_index, .hop_limit = 1 },
		},
	};
	int mask = IBV_QP_STATE;

	if (qp->qp_type != IBV_QPT_UD)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (qp->qp_type == IBV_QPT_RC || qp->qp_type == IBV_QPT_XRC_RECV)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	return ibv_modify_qp(qp, &attr, mask);
}

static int to_rts(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
		.max_rd_atomic = 1,
	};
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (qp->qp_type == IBV_QPT_RC || qp->qp_type == IBV_QPT_XRC_SEND)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	return ibv_modify_qp(qp, &attr, mask);
}

static void *ready(struct ibv_qp *qp)
{
	if (!qp)
		return NULL;
	errno = to_init(qp);
	if (!errno)
		errno = to_rtr(qp);
	/* The receiving side of XRC does not send. */
	if (!errno && qp->qp_type != IBV_QPT_XRC_RECV)
		errno = to_rts(qp);
	if (errno)
		die("a queue pair of type %d does not get ready", qp->qp_type);
	return qp;
}

static void *make_qp(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = type,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = world.pd,
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1,
			 .max_recv_sge = 1 },
	};

	if (type == IBV_QPT_XRC_SEND)
		attr.cap.max_recv_wr = attr.cap.max_recv_sge = 0;
	if (type == IBV_QPT_XRC_RECV) {
		attr.comp_mask = IBV_QP_INIT_ATTR_XRCD;
		attr.xrcd = xrcd;
		memset(&attr.cap, 0, sizeof(attr.cap));
	}
	return ready(ibv_create_qp_ex(world.ctx, &attr));
}

static void *make_rc(void)
{
	return make_qp(IBV_QPT_RC);
}

static void *make_uc(void)
{
	return make_qp(IBV_QPT_UC);
}

static void *make_ud(void)
{
	return make_qp(IBV_QPT_UD);
}

static void *make_xrc_send(void)
{
	return make_qp(IBV_QPT_XRC_SEND);
}

static void *make_xrc_recv(void)
{
	return make_qp(IBV_QPT_XRC_RECV);
}

static int unmake_qp(void *qp)
{
	return ibv_destroy_qp(qp);
}

const struct kind queue_kinds[] = {
	{ "ah", prepare_gid, make_ah, unmake_ah },
	{ "cq", NULL, make_cq, unmake_cq },
	{ "srq", NULL, make_srq, unmake_srq },
	{ "rc", prepare_qp, make_rc, unmake_qp },
	{ "uc", prepare_qp, make_uc, unmake_qp },
	{ "ud", prepare_qp, make_ud, unmake_qp },
	{ "xrc_send", prepare_xrc, make_xrc_send, unmake_qp },
	{ "xrc_recv", prepare_xrc, make_xrc_recv, unmake_qp },
	{}
};
