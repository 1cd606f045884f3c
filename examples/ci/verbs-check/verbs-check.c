// SPDX-License-Identifier: GPL-2.0
/*
 * An RC queue pair that is connected with itself sends a message. This is the
 * smallest program that a CI job can only run where there is an RDMA device.
 */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GID_INDEX	1
#define SIZE		4096

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void *need(void *p, const char *what)
{
	if (!p)
		die(what);
	return p;
}

static void to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1,
	};

	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX |
			  IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		die("INIT");
}

static void connect_to_itself(struct ibv_context *ctx, struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024,
		.dest_qp_num = qp->qp_num, .min_rnr_timer = 12,
		.ah_attr = {
			.is_global = 1, .port_num = 1,
			.grh = { .sgid_index = GID_INDEX, .hop_limit = 1 },
		},
	};

	if (ibv_query_gid(ctx, 1, GID_INDEX, &attr.ah_attr.grh.dgid))
		die("ibv_query_gid");
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
			  IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		die("RTR");
	attr = (struct ibv_qp_attr) {
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7,
		.rnr_retry = 7,
	};
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT |
			  IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			  IBV_QP_MAX_QP_RD_ATOMIC))
		die("RTS");
}

static void post(struct ibv_qp *qp, struct ibv_mr *mr, char *from, char *to)
{
	struct ibv_sge out = { (uintptr_t)from, SIZE / 2, mr->lkey };
	struct ibv_sge in = { (uintptr_t)to, SIZE / 2, mr->lkey };
	struct ibv_recv_wr recv = { .sg_list = &in, .num_sge = 1 }, *bad_recv;
	struct ibv_send_wr send = {
		.sg_list = &out, .num_sge = 1, .opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad_send;

	if (ibv_post_recv(qp, &recv, &bad_recv) ||
	    ibv_post_send(qp, &send, &bad_send))
		die("post");
}

static void wait_for(struct ibv_cq *cq, int count)
{
	struct ibv_wc wc;

	while (count) {
		int n = ibv_poll_cq(cq, 1, &wc);

		if (n < 0 || (n && wc.status != IBV_WC_SUCCESS)) {
			fprintf(stderr, "completion: %s\n", n < 0 ? "none" :
				ibv_wc_status_str(wc.status));
			exit(1);
		}
		count -= n;
	}
}

int main(void)
{
	struct ibv_device **list = need(ibv_get_device_list(NULL), "devices");
	struct ibv_context *ctx = need(ibv_open_device(need(*list, "device")),
				       "ibv_open_device");
	struct ibv_pd *pd = need(ibv_alloc_pd(ctx), "ibv_alloc_pd");
	struct ibv_cq *cq = need(ibv_create_cq(ctx, 4, NULL, NULL, 0), "CQ");
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { 1, 1, 1, 1, 0 },
	};
	struct ibv_qp *qp = need(ibv_create_qp(pd, &init), "ibv_create_qp");
	char *mem = need(calloc(1, SIZE), "memory");
	struct ibv_mr *mr = need(ibv_reg_mr(pd, mem, SIZE, IBV_ACCESS_LOCAL_WRITE),
				 "ibv_reg_mr");

	memset(mem, 'k', SIZE / 2);
	to_init(qp);
	connect_to_itself(ctx, qp);
	post(qp, mr, mem, mem + SIZE / 2);
	wait_for(cq, 2);
	if (memcmp(mem, mem + SIZE / 2, SIZE / 2)) {
		fprintf(stderr, "the message was changed\n");
		return 1;
	}
	printf("%s: %d bytes sent and received\n", ibv_get_device_name(*list),
	       SIZE / 2);
	return 0;
}
