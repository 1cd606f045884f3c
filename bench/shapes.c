// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * shapes DEVICE GID-INDEX SECONDS: millions of messages a second of each shape, one JSON
 * object; without the shapes that the device does not have. One thread sends from one
 * queue pair to another one, one message a call, each with a completion, and polls.
 */
#include <fcntl.h>
#include <stdbool.h>

#include "rc.h"

#define DEPTH		64
#define PAGE		4096
#define GRH		40
#define QKEY		0x1234
#define MOST_SGES	4

struct shape {
	const char *name;
	enum ibv_qp_type type;
	enum ibv_wr_opcode opcode;
	uint32_t len;
	int sges, recv_sges;
	bool srq, stamps, inlined;
};

#define RC	IBV_QPT_RC

static const struct shape shapes[] = {
	{ "send", RC, IBV_WR_SEND, 64, 1, 1 },
	{ "send_inline", RC, IBV_WR_SEND, 64, 1, 1, .inlined = true },
	{ "send_imm", RC, IBV_WR_SEND_WITH_IMM, 64, 1, 1 },
	{ "send_2_sges", RC, IBV_WR_SEND, 64, 2, 1 },
	{ "send_4_sges", RC, IBV_WR_SEND, 64, 4, 1 },
	{ "recv_2_sges", RC, IBV_WR_SEND, 64, 1, 2 },
	{ "send_page", RC, IBV_WR_SEND, PAGE, 1, 1 },
	{ "srq", RC, IBV_WR_SEND, 64, 1, 1, .srq = true },
	{ "timestamps", RC, IBV_WR_SEND, 64, 1, 1, .stamps = true },
	{ "write", RC, IBV_WR_RDMA_WRITE, 64, 1, 0 },
	{ "write_imm", RC, IBV_WR_RDMA_WRITE_WITH_IMM, 64, 1, 1 },
	{ "write_page", RC, IBV_WR_RDMA_WRITE, PAGE, 1, 0 },
	{ "read", RC, IBV_WR_RDMA_READ, 64, 1, 0 },
	{ "read_page", RC, IBV_WR_RDMA_READ, PAGE, 1, 0 },
	{ "fetch_add", RC, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 1, 0 },
	{ "cmp_swap", RC, IBV_WR_ATOMIC_CMP_AND_SWP, 8, 1, 0 },
	{ "uc", IBV_QPT_UC, IBV_WR_SEND, 64, 1, 1 },
	{ "ud", IBV_QPT_UD, IBV_WR_SEND, 64, 1, 1 },
	{ "xrc", IBV_QPT_XRC_SEND, IBV_WR_SEND, 64, 1, 1, .srq = true },
};

static struct ibv_context *context;
static union ibv_gid gid;
static int gid_index;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
/* The requester's memory, and from FAR on that of the responder, across pages. */
static char *memory;
#define FAR	(2 * PAGE)

/* Two QPs and their objects. */
struct wire {
	const struct shape *shape;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_xrcd *xrcd;
	struct ibv_qp *from, *to;
	struct ibv_ah *ah;
	int sends, receives;
	long sent, arrived, done;
};

static struct ibv_cq *make_cq(bool stamps)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 4 * DEPTH,
		.wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
	};
	struct ibv_cq_ex *cq;

	if (!stamps)
		return ibv_create_cq(context, 4 * DEPTH, NULL, NULL, 0);
	cq = ibv_create_cq_ex(context, &attr);
	return cq ? ibv_cq_ex_to_cq(cq) : NULL;
}

static struct ibv_srq *make_srq(struct wire *w)
{
	struct ibv_srq_init_attr_ex attr = {
		.attr = { .max_wr = DEPTH, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = IBV_SRQT_BASIC,
		.pd = pd,
	};
	struct ibv_xrcd_init_attr xrcd = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};

	if (w->shape->type == IBV_QPT_XRC_SEND) {
		w->xrcd = ibv_open_xrcd(context, &xrcd);
		if (!w->xrcd)
			return NULL;
		attr.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
		attr.srq_type = IBV_SRQT_XRC;
		attr.xrcd = w->xrcd;
		attr.cq = w->cq;
	}
	return ibv_create_srq_ex(context, &attr);
}

static struct ibv_qp *make_qp(struct wire *w, bool receiver)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = w->cq,
		.recv_cq = w->cq,
		.srq = receiver ? w->srq : NULL,
		.qp_type = w->shape->type,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
		.cap = {
			.max_send_wr = DEPTH,
			.max_recv_wr = DEPTH,
			.max_send_sge = MOST_SGES,
			.max_recv_sge = MOST_SGES,
			.max_inline_data = 64,
		},
	};

	if (w->xrcd && receiver)
		attr = (struct ibv_qp_init_attr_ex){
			.qp_type = IBV_QPT_XRC_RECV,
			.comp_mask = IBV_QP_INIT_ATTR_XRCD,
			.xrcd = w->xrcd,
		};
	else if (w->xrcd)
		attr.cap.max_recv_wr = attr.cap.max_recv_sge = 0;
	return ibv_create_qp_ex(context, &attr);
}

/* From RESET to RTS, with the attributes of its type. */
static void connect_qp(struct ibv_qp *qp, uint32_t peer)
{
	bool ud = qp->qp_type == IBV_QPT_UD, uc = qp->qp_type == IBV_QPT_UC;
	bool responds = qp->qp_type == RC || qp->qp_type == IBV_QPT_XRC_RECV;
	bool requests = qp->qp_type == RC || qp->qp_type == IBV_QPT_XRC_SEND;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = PORT,
		.qkey = QKEY,
		.qp_access_flags = uc ? IBV_ACCESS_REMOTE_WRITE :
				   IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_ATOMIC,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = peer,
		.max_dest_rd_atomic = 1,
		.max_rd_atomic = 1,
		.min_rnr_timer = 12,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.ah_attr = {
			.is_global = 1,
			.port_num = PORT,
			.grh = { .dgid = gid, .sgid_index = gid_index, .hop_limit = 1 },
		},
	};

	errno = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			      (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
	if (errno)
		die("INIT");
	attr.qp_state = IBV_QPS_RTR;
	errno = ibv_modify_qp(qp, &attr, ud ? IBV_QP_STATE : IBV_QP_STATE | IBV_QP_AV |
			      IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			      (responds ? IBV_QP_MAX_DEST_RD_ATOMIC |
					  IBV_QP_MIN_RNR_TIMER : 0));
	if (errno)
		die("RTR");
	attr.qp_state = IBV_QPS_RTS;
	errno = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN |
			      (requests ? IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					  IBV_QP_MAX_QP_RD_ATOMIC : 0) |
			      (requests || responds ? IBV_QP_TIMEOUT : 0));
	if (errno)
		die("RTS");
}

/* Returns false if the device does not have the shape. */
static bool wire_make(struct wire *w, const struct shape *shape)
{
	struct ibv_ah_attr ah = {
		.is_global = 1,
		.port_num = PORT,
		.grh = { .dgid = gid, .sgid_index = gid_index, .hop_limit = 1 },
	};

	*w = (struct wire){ .shape = shape };
	w->cq = make_cq(shape->stamps);
	if (!w->cq)
		return false;
	if (shape->srq) {
		w->srq = make_srq(w);
		if (!w->srq)
			return false;
	}
	w->from = make_qp(w, false);
	w->to = make_qp(w, true);
	if (!w->from || !w->to)
		return false;
	connect_qp(w->from, w->to->qp_num);
	connect_qp(w->to, w->from->qp_num);
	if (shape->type == IBV_QPT_UD) {
		w->ah = ibv_create_ah(pd, &ah);
		if (!w->ah)
			die("AH");
	}
	return true;
}

static int divide(struct ibv_sge *sge, char *at, uint32_t len, int n)
{
	int i;

	for (i = 0; i < n; i++)
		sge[i] = (struct ibv_sge){
			(uintptr_t)at + i * (len / n), len / n, mr->lkey
		};
	return n;
}

static void post_receives(struct wire *w)
{
	uint32_t head = w->shape->type == IBV_QPT_UD ? GRH : 0;
	struct ibv_sge sge[MOST_SGES];
	struct ibv_recv_wr wr = { .sg_list = sge }, *bad;

	if (!w->shape->recv_sges)
		return;
	wr.num_sge = divide(sge, memory + FAR, w->shape->len + head,
			    w->shape->recv_sges);
	for (; w->receives < DEPTH; w->receives++) {
		errno = w->srq ? ibv_post_srq_recv(w->srq, &wr, &bad) :
				 ibv_post_recv(w->to, &wr, &bad);
		if (errno)
			die("receive");
	}
}

static void post_send(struct wire *w)
{
	const struct shape *s = w->shape;
	struct ibv_sge sge[MOST_SGES];
	struct ibv_send_wr wr = {
		.sg_list = sge,
		.opcode = s->opcode,
		.send_flags = IBV_SEND_SIGNALED | (s->inlined ? IBV_SEND_INLINE : 0),
	}, *bad;

	wr.num_sge = divide(sge, memory, s->len, s->sges);
	if (s->type == IBV_QPT_UD) {
		wr.wr.ud.ah = w->ah;
		wr.wr.ud.remote_qpn = w->to->qp_num;
		wr.wr.ud.remote_qkey = QKEY;
	} else if (s->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ||
		   s->opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = (uintptr_t)memory + FAR;
		wr.wr.atomic.rkey = mr->rkey;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)memory + FAR;
		wr.wr.rdma.rkey = mr->rkey;
	}
	if (w->xrcd)
		ibv_get_srq_num(w->srq, &wr.qp_type.xrc.remote_srqn);
	errno = ibv_post_send(w->from, &wr, &bad);
	if (errno)
		die("%s", s->name);
	w->sends++;
	w->sent++;
}

static void reap(struct wire *w)
{
	struct ibv_wc wc[32];
	int i, n = ibv_poll_cq(w->cq, 32, wc);

	errno = 0;
	for (i = 0; i < n; i++) {
		if (wc[i].status != IBV_WC_SUCCESS)
			die("%s: a completion says %s", w->shape->name,
			    ibv_wc_status_str(wc[i].status));
		if (wc[i].opcode & IBV_WC_RECV) {
			w->receives--;
			w->arrived++;
		} else {
			w->sends--;
			w->done++;
		}
	}
}

static double rate(struct wire *w, double seconds)
{
	double start = now(), end = start + seconds;

	do {
		post_receives(w);
		while (w->sends < DEPTH / 2 && (!w->shape->recv_sges ||
						w->sent - w->arrived < w->receives))
			post_send(w);
		reap(w);
	} while (now() < end);
	return w->done / (now() - start) / 1e6;
}

/* Objects that were not created are NULL. */
static void wire_free(struct wire *w)
{
	if (w->ah)
		ibv_destroy_ah(w->ah);
	if (w->to)
		ibv_destroy_qp(w->to);
	if (w->from)
		ibv_destroy_qp(w->from);
	if (w->srq)
		ibv_destroy_srq(w->srq);
	if (w->xrcd)
		ibv_close_xrcd(w->xrcd);
	if (w->cq)
		ibv_destroy_cq(w->cq);
}

int main(int argc, char **argv)
{
	const char *comma = "";
	struct wire w;
	size_t i;

	if (argc != 4)
		die("usage: shapes DEVICE GID-INDEX SECONDS");
	context = open_device(argv[1]);
	gid_index = atoi(argv[2]);
	if (ibv_query_gid(context, PORT, gid_index, &gid))
		die("GID %d", gid_index);
	pd = ibv_alloc_pd(context);
	memory = aligned_alloc(PAGE, 2 * FAR);
	if (!pd || !memory)
		die("PD");
	memset(memory, 0, 2 * FAR);
	mr = ibv_reg_mr(pd, memory, 2 * FAR, IBV_ACCESS_LOCAL_WRITE |
			IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			IBV_ACCESS_REMOTE_ATOMIC);
	if (!mr)
		die("MR");
	putchar('{');
	for (i = 0; i < sizeof(shapes) / sizeof(*shapes); i++) {
		if (wire_make(&w, &shapes[i])) {
			printf("%s\"%s\": %.6f", comma, shapes[i].name,
			       rate(&w, atof(argv[3])));
			comma = ", ";
		}
		wire_free(&w);
	}
	puts("}");
	return 0;
}
