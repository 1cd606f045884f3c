// SPDX-License-Identifier: GPL-2.0
/*
 * Queue pairs of any type, step by step. See qp.h.
 */
#include <fcntl.h>
#include <poll.h>

#include "qp.h"
#include "t.h"

struct ibv_cq *cq_new(struct ibv_context *ctx)
{
	return MUST(ibv_create_cq(ctx, 2 * QP_WRS, NULL, NULL, 0));
}

struct ibv_qp *qp_new(struct ibv_pd *pd, struct ibv_cq *cq,
		      enum ibv_qp_type type, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = type,
		.cap = { .max_send_wr = QP_WRS, .max_recv_wr = QP_WRS,
			 .max_send_sge = QP_SGES, .max_recv_sge = QP_SGES,
			 .max_inline_data = QP_INLINE },
	};

	return MUST(ibv_create_qp(pd, &init));
}

struct ibv_qp_ex *qp_new_ex(struct ibv_pd *pd, struct ibv_cq *cq,
			    enum ibv_qp_type type, uint64_t ops)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = type, .pd = pd,
		.cap = { .max_send_wr = QP_WRS, .max_recv_wr = QP_WRS,
			 .max_send_sge = 1, .max_recv_sge = 1 },
		.comp_mask = IBV_QP_INIT_ATTR_PD |
			     IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = ops,
	};
	struct ibv_qp *qp = MUST(ibv_create_qp_ex(pd->context, &init));

	return MUST(ibv_qp_to_qp_ex(qp));
}

struct ibv_qp *qp_new_xrc_recv(struct ibv_xrcd *xrcd)
{
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_XRC_RECV, .xrcd = xrcd,
		.comp_mask = IBV_QP_INIT_ATTR_XRCD,
	};

	return MUST(ibv_create_qp_ex(xrcd->context, &init));
}

struct ibv_srq *srq_new(struct ibv_pd *pd)
{
	struct ibv_srq_init_attr init = {
		.attr = { .max_wr = QP_WRS, .max_sge = QP_SGES },
	};

	return MUST(ibv_create_srq(pd, &init));
}

struct ibv_xrcd *xrcd_new(struct ibv_context *ctx)
{
	struct ibv_xrcd_init_attr init = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1, .oflags = O_CREAT,
	};

	return MUST(ibv_open_xrcd(ctx, &init));
}

struct ibv_srq *srq_new_xrc(struct ibv_pd *pd, struct ibv_xrcd *xrcd,
			    struct ibv_cq *cq)
{
	struct ibv_srq_init_attr_ex init = {
		.attr = { .max_wr = QP_WRS, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC, .pd = pd, .xrcd = xrcd, .cq = cq,
	};

	return MUST(ibv_create_srq_ex(pd->context, &init));
}

int qp_try_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QP_QKEY,
		.qp_access_flags = IBV_ACCESS_REMOTE_READ |
			IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
	};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;

	mask |= qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	if (qp->qp_type == IBV_QPT_UC)
		attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
	return ibv_modify_qp(qp, &attr, mask);
}

int qp_try_rtr(struct ibv_qp *qp, uint32_t dest)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024,
		.dest_qp_num = dest, .max_dest_rd_atomic = 1,
		.min_rnr_timer = 1,
		.ah_attr = { .is_global = 1, .port_num = 1 },
	};
	int mask = IBV_QP_STATE;

	if (ibv_query_gid(qp->context, 1, 0, &attr.ah_attr.grh.dgid))
		return errno;
	if (qp->qp_type != IBV_QPT_UD)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			IBV_QP_RQ_PSN;
	if (qp->qp_type == IBV_QPT_RC || qp->qp_type == IBV_QPT_XRC_RECV)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	return ibv_modify_qp(qp, &attr, mask);
}

int qp_try_rts(struct ibv_qp *qp, int rnr_retry)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS, .timeout = 10, .retry_cnt = 1,
		.rnr_retry = rnr_retry, .max_rd_atomic = 1,
	};
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (qp->qp_type == IBV_QPT_RC || qp->qp_type == IBV_QPT_XRC_SEND)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	if (qp->qp_type == IBV_QPT_XRC_RECV)
		mask |= IBV_QP_TIMEOUT;
	return ibv_modify_qp(qp, &attr, mask);
}

void qp_to_init(struct ibv_qp *qp)
{
	CHECK_OK(qp_try_init(qp));
}

void qp_to_rtr(struct ibv_qp *qp, uint32_t dest)
{
	CHECK_OK(qp_try_rtr(qp, dest));
}

void qp_to_rts(struct ibv_qp *qp, int rnr_retry)
{
	CHECK_OK(qp_try_rts(qp, rnr_retry));
}

void qp_to(struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };

	CHECK_OK(ibv_modify_qp(qp, &attr, IBV_QP_STATE));
}

void qp_connect(struct ibv_qp *qp, uint32_t dest)
{
	qp_to_init(qp);
	qp_to_rtr(qp, dest);
	qp_to_rts(qp, 7);
}

void qp_join(struct ibv_qp *a, struct ibv_qp *b)
{
	qp_connect(a, b->qp_num);
	qp_connect(b, a->qp_num);
}

struct link link_new(struct ibv_pd *a, struct ibv_pd *b, enum ibv_qp_type type)
{
	struct link l = { .ctx = a->context };

	l.cq[0] = cq_new(a->context);
	l.cq[1] = cq_new(b->context);
	l.qp[0] = qp_new(a, l.cq[0], type, NULL);
	l.qp[1] = qp_new(b, l.cq[1], type, NULL);
	qp_join(l.qp[0], l.qp[1]);
	return l;
}

struct link link_new_ex(struct ibv_pd *pd, uint64_t ops)
{
	struct link l = { .ctx = pd->context };

	l.cq[0] = cq_new(pd->context);
	l.cq[1] = cq_new(pd->context);
	l.qp[0] = &qp_new_ex(pd, l.cq[0], IBV_QPT_RC, ops)->qp_base;
	l.qp[1] = qp_new(pd, l.cq[1], IBV_QPT_RC, NULL);
	qp_join(l.qp[0], l.qp[1]);
	return l;
}

void qp_check_reliable(struct ibv_pd *pd, uint64_t op)
{
	static const struct {
		enum ibv_qp_type type;
		int err;
	} types[] = {
		{ IBV_QPT_RC, 0 }, { IBV_QPT_XRC_SEND, 0 },
		{ IBV_QPT_UC, EOPNOTSUPP }, { IBV_QPT_UD, EOPNOTSUPP },
	};
	struct ibv_cq *cq = cq_new(pd->context);
	struct ibv_qp_init_attr_ex init = {
		.send_cq = cq, .recv_cq = cq, .pd = pd,
		.cap = { .max_send_wr = 1, .max_send_sge = 1 },
		.comp_mask = IBV_QP_INIT_ATTR_PD |
			     IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = op,
	};
	int i;

	for (i = 0; i < 4; i++) {
		init.qp_type = types[i].type;
		if (types[i].err)
			CHECK_NULL(ibv_create_qp_ex(pd->context, &init),
				   types[i].err);
		else
			CHECK_OK(ibv_destroy_qp(MUST(ibv_create_qp_ex(
				pd->context, &init))));
	}
	CHECK_OK(ibv_destroy_cq(cq));
}

void link_free(struct link *l)
{
	int i;

	for (i = 0; i < 2; i++) {
		CHECK_OK(ibv_destroy_qp(l->qp[i]));
		CHECK_OK(ibv_destroy_cq(l->cq[i]));
	}
}

enum ibv_qp_state qp_state(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	CHECK_OK(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
	return attr.qp_state;
}

struct ibv_ah *ah_self(struct ibv_pd *pd)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1 };

	CHECK_OK(ibv_query_gid(pd->context, 1, 0, &attr.grh.dgid));
	return MUST(ibv_create_ah(pd, &attr));
}

void qp_allow(struct ibv_qp *qp, unsigned int access)
{
	struct ibv_qp_attr attr = { .qp_access_flags = access };

	CHECK_OK(ibv_modify_qp(qp, &attr, IBV_QP_ACCESS_FLAGS));
}

void qp_no_reads(struct ibv_qp *qp, bool from)
{
	struct ibv_qp_attr attr = {};

	qp_to(qp, IBV_QPS_SQD);
	CHECK_OK(ibv_modify_qp(qp, &attr, from ? IBV_QP_MAX_QP_RD_ATOMIC :
						 IBV_QP_MAX_DEST_RD_ATOMIC));
	qp_to(qp, IBV_QPS_RTS);
}

void wr_begin(struct ibv_qp_ex *qp, uint64_t wr_id)
{
	ibv_wr_start(qp);
	qp->wr_id = wr_id;
	qp->wr_flags = IBV_SEND_SIGNALED;
}

void wr_end(struct ibv_qp_ex *qp)
{
	CHECK_OK(ibv_wr_complete(qp));
}

/* Of one thread, until its next. */
struct ibv_send_wr *send_wr(enum ibv_wr_opcode op, uint64_t wr_id,
			    struct mem mem)
{
	static __thread struct ibv_send_wr wr;
	static __thread struct ibv_sge sge;

	sge = (struct ibv_sge){
		.addr = (uintptr_t)mem.addr, .length = mem.len,
		.lkey = mem.lkey,
	};
	wr = (struct ibv_send_wr){
		.wr_id = wr_id, .opcode = op, .sg_list = &sge, .num_sge = 1,
		.send_flags = IBV_SEND_SIGNALED,
	};
	return &wr;
}

void wr_to(struct ibv_send_wr *wr, struct ibv_ah *ah, const struct ibv_qp *dest)
{
	wr->wr.ud.ah = ah;
	wr->wr.ud.remote_qpn = dest->qp_num;
	wr->wr.ud.remote_qkey = QP_QKEY;
}

void post(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	CHECK_OK(ibv_post_send(qp, wr, &bad));
}

void post_send(struct ibv_qp *qp, uint64_t wr_id, struct mem mem)
{
	post(qp, send_wr(IBV_WR_SEND, wr_id, mem));
}

void post_rdma(struct ibv_qp *qp, enum ibv_wr_opcode op, uint64_t wr_id,
	       struct mem mem, uint64_t addr, uint32_t rkey)
{
	struct ibv_send_wr *wr = send_wr(op, wr_id, mem);

	wr->wr.rdma.remote_addr = addr;
	wr->wr.rdma.rkey = rkey;
	post(qp, wr);
}

void post_add(struct ibv_qp *qp, uint64_t wr_id, struct mem mem,
	      uint64_t addr, uint32_t rkey, uint64_t add)
{
	struct ibv_send_wr *wr = send_wr(IBV_WR_ATOMIC_FETCH_AND_ADD, wr_id,
					 mem);

	wr->wr.atomic.remote_addr = addr;
	wr->wr.atomic.rkey = rkey;
	wr->wr.atomic.compare_add = add;
	post(qp, wr);
}

void post_recv(struct ibv_qp *qp, uint64_t wr_id, struct mem mem)
{
	struct ibv_sge sge = { (uintptr_t)mem.addr, mem.len, mem.lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge,
				  .num_sge = 1 }, *bad;

	CHECK_OK(ibv_post_recv(qp, &wr, &bad));
}

void post_srq_recv(struct ibv_srq *srq, uint64_t wr_id, struct mem mem)
{
	struct ibv_sge sge = { (uintptr_t)mem.addr, mem.len, mem.lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge,
				  .num_sge = 1 }, *bad;

	CHECK_OK(ibv_post_srq_recv(srq, &wr, &bad));
}

struct ibv_wc wc_get(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int n;

	do
		n = ibv_poll_cq(cq, 1, &wc);
	while (!n);
	CHECK_EQ(n, 1);
	return wc;
}

void wc_start_poll(struct ibv_cq_ex *cq)
{
	struct ibv_poll_cq_attr attr = {};
	int ret;

	do
		ret = ibv_start_poll(cq, &attr);
	while (ret == ENOENT);
	CHECK_EQ(ret, 0);
}

struct ibv_wc wc_check(const char *file, int line, struct ibv_cq *cq,
		       uint64_t wr_id, enum ibv_wc_status status)
{
	struct ibv_wc wc = wc_get(cq);

	if (wc.wr_id != wr_id || wc.status != status)
		t_fail(file, line,
		       "completion: got \"%s\" of request %lld, want \"%s\" of %lld",
		       ibv_wc_status_str(wc.status), (long long)wc.wr_id,
		       ibv_wc_status_str(status), (long long)wr_id);
	return wc;
}

void event_check(const char *file, int line, struct ibv_context *ctx,
		 enum ibv_event_type type, const void *element)
{
	struct ibv_async_event event;

	CHECK_OK(ibv_get_async_event(ctx, &event));
	ibv_ack_async_event(&event);
	if (event.event_type != type)
		t_fail(file, line, "event: got %s, want %s",
		       ibv_event_type_str(event.event_type),
		       ibv_event_type_str(type));
	/* One pointer, whatever it is. */
	if ((const void *)event.element.qp != element)
		t_fail(file, line, "%s: got one of another object",
		       ibv_event_type_str(type));
}

void event_check_none(const char *file, int line, struct ibv_context *ctx)
{
	struct pollfd fd = { .fd = ctx->async_fd, .events = POLLIN };
	struct ibv_async_event event;

	if (poll(&fd, 1, EVENT_MS) != 1)
		return;
	CHECK_OK(ibv_get_async_event(ctx, &event));
	t_fail(file, line, "event: got %s, want none",
	       ibv_event_type_str(event.event_type));
}

void qp_ud_ready(struct ibv_qp *qp, uint32_t qkey)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = qkey };

	CHECK_OK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					  IBV_QP_QKEY));
	attr.qp_state = IBV_QPS_RTR;
	CHECK_OK(ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	CHECK_OK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
}
