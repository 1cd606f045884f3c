// SPDX-License-Identifier: GPL-2.0
/*
 * Commands of ib_uverbs that call the verbs of kernel consumers. ib_uverbs allows
 * them for devices that ask for it. keel does not: userspace posts and polls in its
 * rings.
 */
#include <infiniband/verbs.h>

#include "watch.h"
#include "world.h"

/* A command with one work request of one SGE. */
struct post_send {
	struct ib_uverbs_post_send head;
	struct ib_uverbs_send_wr wr;
	struct ib_uverbs_sge sge;
};

struct post_recv {
	union {
		struct ib_uverbs_post_recv head;
		struct ib_uverbs_post_srq_recv srq_head;
	};
	struct ib_uverbs_recv_wr wr;
	struct ib_uverbs_sge sge;
};

static const struct ib_uverbs_sge sge = { .addr = 0x1000, .length = 16 };

/* A command with a fault may ask for nothing, and succeed. */
static void must_fail(const struct cmd *cmd)
{
	bool fault = cmd_has_fault();

	if (!cmd_run(cmd) && !fault)
		watch_finding(method_names[cmd->m]);
}

static void post_send(const struct obj *qp, uint8_t opcode)
{
	struct post_send core = {
		.head = {
			.qp_handle = qp->handle, .wr_count = 1, .sge_count = 1,
			.wqe_size = sizeof(core.wr),
		},
		.wr = { .num_sge = 1, .opcode = opcode % 9 }, .sge = sge,
	};
	struct ib_uverbs_post_send_resp resp;
	struct cmd cmd = { CMD(POST_SEND), CORE_IN(&core), CORE_OUT(&resp) };

	must_fail(&cmd);
}

static void post_recv(const struct obj *qp)
{
	struct post_recv core = {
		.head = {
			.qp_handle = qp->handle, .wr_count = 1, .sge_count = 1,
			.wqe_size = sizeof(core.wr),
		},
		.wr = { .num_sge = 1 }, .sge = sge,
	};
	struct ib_uverbs_post_recv_resp resp;
	struct cmd cmd = { CMD(POST_RECV), CORE_IN(&core), CORE_OUT(&resp) };

	must_fail(&cmd);
}

static void post_srq_recv(const struct obj *srq)
{
	struct post_recv core = {
		.srq_head = {
			.srq_handle = srq->handle, .wr_count = 1,
			.sge_count = 1, .wqe_size = sizeof(core.wr),
		},
		.wr = { .num_sge = 1 }, .sge = sge,
	};
	struct ib_uverbs_post_srq_recv_resp resp;
	struct cmd cmd = {
		CMD(POST_SRQ_RECV), CORE_IN(&core), CORE_OUT(&resp),
	};

	must_fail(&cmd);
}

static void poll_cq(const struct obj *cq)
{
	struct ib_uverbs_poll_cq core = { .cq_handle = cq->handle, .ne = 1 };
	struct {
		struct ib_uverbs_poll_cq_resp head;
		struct ib_uverbs_wc wc;
	} resp;
	struct cmd cmd = { CMD(POLL_CQ), CORE_IN(&core), CORE_OUT(&resp) };

	must_fail(&cmd);
}

static void req_notify_cq(const struct obj *cq, bool solicited)
{
	struct ib_uverbs_req_notify_cq core = {
		.cq_handle = cq->handle, .solicited_only = solicited,
	};
	struct cmd cmd = { CMD(REQ_NOTIFY_CQ), CORE_IN(&core) };

	must_fail(&cmd);
}

/* kernel_verbs WHICH OBJECT HOW */
static void op_kernel_verbs(const uint8_t *a)
{
	static const enum kind kinds[] = { K_QP, K_QP, K_SRQ, K_CQ, K_CQ };
	struct obj *obj = obj_pick(kinds[a[0] % 5], a[1]);

	if (!obj)
		return;
	switch (a[0] % 5) {
	case 0:
		post_send(obj, a[2]);
		break;
	case 1:
		post_recv(obj);
		break;
	case 2:
		post_srq_recv(obj);
		break;
	case 3:
		poll_cq(obj);
		break;
	default:
		req_notify_cq(obj, a[2] % 2);
		break;
	}
}

/* context HOW: another context, by ioctl() or write(); the next calls may use it. */
static void op_context(const uint8_t *a)
{
	world_reopen(a[0] % 2, a[0] % 8 >= 6);
}

const struct op kernel_ops[] = {
	{ "kernel_verbs", op_kernel_verbs, 2 }, { "context", op_context, 1 },
};

const int kernel_ops_count = sizeof(kernel_ops) / sizeof(*kernel_ops);
