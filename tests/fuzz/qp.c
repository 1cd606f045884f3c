// SPDX-License-Identifier: GPL-2.0
/*
 * Calls for queue pairs: creation, states, and pairs that are connected.
 */
#include <string.h>

#include <infiniband/verbs.h>

#include "world.h"

#define SGES		4
#define INLINE		64
#define QKEY		0x1234
#define ALL_ACCESS	(IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | \
			 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_FLUSH_GLOBAL)

static const uint8_t qp_types[] = {
	IB_UVERBS_QPT_RC, IB_UVERBS_QPT_UC, IB_UVERBS_QPT_UD,
	IB_UVERBS_QPT_XRC_INI, IB_UVERBS_QPT_XRC_TGT,
};

/* The arguments and results of a creation. */
struct plan {
	uint8_t type;
	struct obj *pd, *cq, *rcq, *srq, *xrcd;
	bool by_ioctl, extended, all_signaled;
	struct ring sq, rq;
	struct keel_uapi_create_qp_req req;
	uint32_t handle, qpn;
};

/* The members of all structures with the capabilities of a QP. */
#define CAPS(_p)							\
	.max_send_wr = (_p)->sq.entries, .max_recv_wr = (_p)->rq.entries, \
	.max_send_sge = (_p)->sq.entries ? SGES : 0,			\
	.max_recv_sge = (_p)->rq.entries ? 2 : 0,			\
	.max_inline_data = (_p)->sq.entries ? INLINE : 0

static int create_write(struct plan *p)
{
	struct ib_uverbs_create_qp core = {
		CAPS(p), .sq_sig_all = p->all_signaled, .qp_type = p->type,
	};
	struct ib_uverbs_create_qp_resp resp;
	struct cmd cmd = {
		CMD(CREATE_QP), CORE_IN(&core), CORE_OUT(&resp),
		DRIVER_IN(&p->req),
	};
	int ret;

	core.pd_handle = p->xrcd ? p->xrcd->handle : p->pd->handle;
	if (p->cq)
		core.send_cq_handle = p->cq->handle;
	if (p->rcq)
		core.recv_cq_handle = p->rcq->handle;
	if (p->srq) {
		core.is_srq = 1;
		core.srq_handle = p->srq->handle;
	}
	ret = cmd_run(&cmd);
	p->handle = resp.qp_handle;
	p->qpn = resp.qpn;
	return ret;
}

static int create_extended(struct plan *p)
{
	struct ib_uverbs_ex_create_qp core = {
		CAPS(p), .sq_sig_all = p->all_signaled, .qp_type = p->type,
		.pd_handle = p->xrcd ? p->xrcd->handle : p->pd->handle,
		.send_cq_handle = p->cq ? p->cq->handle : 0,
		.recv_cq_handle = p->rcq ? p->rcq->handle : 0,
		.is_srq = p->srq ? 1 : 0,
		.srq_handle = p->srq ? p->srq->handle : 0,
	};
	struct ib_uverbs_ex_create_qp_resp resp;
	struct cmd cmd = {
		CMD_EX(CREATE_QP), CORE_IN(&core), CORE_OUT(&resp),
		DRIVER_IN(&p->req),
	};
	int ret = cmd_run(&cmd);

	p->handle = resp.base.qp_handle;
	p->qpn = resp.base.qpn;
	return ret;
}

static int create_ioctl(struct plan *p)
{
	struct ib_uverbs_qp_cap cap = { CAPS(p) }, got;
	uint64_t user = 0, type = p->type;
	uint32_t flags = p->all_signaled ? IB_UVERBS_QP_CREATE_SQ_SIG_ALL : 0;
	const struct obj *pd = p->xrcd ? NULL : p->pd;

	return cmd_method(M_QP_CREATE, UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE,
			  ATTRS(NEW(UVERBS_ATTR_CREATE_QP_HANDLE, &p->handle),
				IN(UVERBS_ATTR_CREATE_QP_USER_HANDLE, &user),
				IN(UVERBS_ATTR_CREATE_QP_CAP, &cap),
				IN(UVERBS_ATTR_CREATE_QP_TYPE, &type),
				IN(UVERBS_ATTR_CREATE_QP_FLAGS, &flags),
				OUT(UVERBS_ATTR_CREATE_QP_RESP_CAP, &got),
				OUT(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, &p->qpn),
				IN(UVERBS_ATTR_UHW_IN, &p->req),
				OBJ_IF(p->xrcd, UVERBS_ATTR_CREATE_QP_XRCD_HANDLE),
				OBJ_IF(pd, UVERBS_ATTR_CREATE_QP_PD_HANDLE),
				OBJ_IF(p->cq, UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE),
				OBJ_IF(p->rcq, UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE),
				OBJ_IF(p->srq, UVERBS_ATTR_CREATE_QP_SRQ_HANDLE)));
}

/* An XRC target has no queues, an initiator and a QP with an SRQ send only. */
static struct obj *qp_new(struct plan *p, uint8_t size)
{
	uint32_t entries = 2U << size % 5;
	struct obj *qp;

	if (p->type != IB_UVERBS_QPT_XRC_TGT) {
		if (!ring_new(&p->sq, entries, KEEL_SQ_STRIDE(SGES, INLINE)))
			return NULL;
		p->req.sq = ring_buf(&p->sq);
		p->xrcd = NULL;
	} else {
		p->cq = NULL;
		p->rcq = NULL;
		p->srq = NULL;
		if (!p->xrcd)
			return NULL;
	}
	if (p->type < IB_UVERBS_QPT_XRC_INI && !p->srq) {
		if (!ring_new(&p->rq, entries, KEEL_RQ_STRIDE(2)))
			return NULL;
		p->req.rq = ring_buf(&p->rq);
	}
	if (p->type == IB_UVERBS_QPT_XRC_INI) {
		p->rcq = p->by_ioctl ? NULL : p->cq;
		p->srq = NULL;
	}
	if (p->by_ioctl ? create_ioctl(p) :
	    p->extended ? create_extended(p) : create_write(p))
		return NULL;
	qp = obj_add(K_QP, p->handle, p->pd->domain);
	qp->num = p->qpn;
	qp->type = p->type;
	qp->ring = p->sq;
	qp->rq = p->rq;
	qp->cq = p->cq;
	qp->rcq = p->rcq;
	qp->srq = p->srq;
	qp->all_signaled = p->all_signaled;
	return qp;
}

static struct obj *need_cq(uint8_t sel)
{
	struct obj *cq = obj_pick(K_CQ, sel);

	return cq ? cq : cq_new(4, 0, NULL);
}

/* qp TYPE PD CQ CQ SRQ SIZE HOW */
static void op_qp(const uint8_t *a)
{
	struct plan p = {
		.type = qp_types[a[0] % 5], .pd = obj_need(K_PD, a[1]),
		.cq = need_cq(a[2]), .rcq = need_cq(a[3]),
		.srq = a[4] % 2 ? obj_pick(K_SRQ, a[4] / 2) : NULL,
		.xrcd = obj_pick(K_XRCD, a[4]), .by_ioctl = a[6] & 1,
		.all_signaled = a[6] & 2, .extended = a[6] & 4,
	};

	if (p.pd)
		qp_new(&p, a[5]);
}

/* The attributes that a transition to a state needs. */
static uint32_t mask_of(const struct obj *qp, uint8_t state)
{
	bool requester = qp->type == IB_UVERBS_QPT_RC ||
			 qp->type == IB_UVERBS_QPT_XRC_INI;
	bool responder = qp->type == IB_UVERBS_QPT_RC ||
			 qp->type == IB_UVERBS_QPT_XRC_TGT;
	bool ud = qp->type == IB_UVERBS_QPT_UD;

	switch (state) {
	case IBV_QPS_INIT:
		return IBV_QP_PKEY_INDEX | IBV_QP_PORT |
		       (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
	case IBV_QPS_RTR:
		return ud ? 0 : IBV_QP_AV | IBV_QP_PATH_MTU |
		       IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		       (responder ? IBV_QP_MAX_DEST_RD_ATOMIC |
				    IBV_QP_MIN_RNR_TIMER : 0);
	case IBV_QPS_RTS:
		return IBV_QP_SQ_PSN |
		       (requester ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				    IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC :
			qp->type == IB_UVERBS_QPT_XRC_TGT ? IBV_QP_TIMEOUT : 0);
	default:
		return 0;
	}
}

static void reset_rings(struct obj *qp)
{
	struct ring ring;

	if (ring_read(&qp->ring, &ring))
		__atomic_store_n(&ring.head->user, 0, __ATOMIC_RELEASE);
	if (ring_read(&qp->rq, &ring))
		__atomic_store_n(&ring.head->user, 0, __ATOMIC_RELEASE);
}

static void modify(struct obj *qp, uint8_t state, uint32_t extra,
		   const uint8_t *a, bool extended)
{
	int from = (a[0] >> 4) % n_gids;
	struct ib_uverbs_ex_modify_qp core = { .base = {
		.dest = {
			.is_global = 1, .port_num = 1, .hop_limit = 64,
			.sgid_index = from,
		},
		.qp_handle = qp->handle, .qp_state = state, .qkey = QKEY,
		.attr_mask = IBV_QP_STATE | mask_of(qp, state) | extra,
		.dest_qp_num = qp->peer ? qp->peer->num : qp->num,
		.qp_access_flags = qp->type == IB_UVERBS_QPT_UC ?
				   IBV_ACCESS_REMOTE_WRITE :
				   a[0] & 0xf ? a[0] & 0xf : ALL_ACCESS,
		.path_mtu = a[1] % 5 + 1, .max_rd_atomic = a[2] ? a[2] : 16,
		.max_dest_rd_atomic = 16, .min_rnr_timer = 1, .port_num = 1,
		.timeout = 10, .retry_cnt = 1, .rnr_retry = a[3] % 8,
		.en_sqd_async_notify = 1, .cur_qp_state = a[4] % 8,
	} };
	struct ib_uverbs_ex_modify_qp_resp resp;
	struct cmd modify = { CMD(MODIFY_QP), CORE_IN(&core.base) };
	struct cmd modify_ex = {
		CMD_EX(MODIFY_QP), CORE_IN(&core), CORE_OUT(&resp),
	};

	memcpy(core.base.dest.dgid, gids[from], sizeof(gids[from]));
	if (!cmd_run(extended ? &modify_ex : &modify) && state == IBV_QPS_RESET)
		reset_rings(qp);
}

void qp_connect(struct obj *qp, const uint8_t *a)
{
	qp->failed = false;
	modify(qp, IBV_QPS_RESET, 0, a, false);
	modify(qp, IBV_QPS_INIT, 0, a, false);
	modify(qp, IBV_QPS_RTR, 0, a, false);
	modify(qp, IBV_QPS_RTS, 0, a, false);
}

/* modify QP STATE MASK ACCESS MTU READS RNR-RETRY */
static void op_modify(const uint8_t *a)
{
	static const uint32_t extras[] = {
		0, 0, 0, IBV_QP_CUR_STATE, IBV_QP_EN_SQD_ASYNC_NOTIFY,
		IBV_QP_ACCESS_FLAGS, IBV_QP_QKEY, IBV_QP_AV, IBV_QP_ALT_PATH,
		IBV_QP_MIN_RNR_TIMER, IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_TIMEOUT,
		IBV_QP_CAP, IBV_QP_PATH_MIG_STATE, IBV_QP_RNR_RETRY,
		IBV_QP_MAX_QP_RD_ATOMIC,
	};
	const uint8_t values[] = { a[3], a[4], a[5], a[6], a[2] >> 4 };
	struct obj *qp = obj_pick(K_QP, a[0]);

	if (!qp)
		return;
	modify(qp, a[1] % 7, extras[a[2] % 16], values, a[1] / 7 % 2);
	if (a[1] % 7 == IBV_QPS_ERR || a[1] % 7 < IBV_QPS_RTS)
		qp->failed = true;
}

/* connect QP QP ...: each becomes the peer of the other. */
static void op_connect(const uint8_t *a)
{
	struct obj *one = obj_pick(K_QP, a[0]), *other = obj_pick(K_QP, a[1]);

	if (!one || !other)
		return;
	one->peer = other;
	other->peer = one;
	qp_connect(one, a + 2);
	if (one != other)
		qp_connect(other, a + 2);
}

static struct obj *need_xrcd(uint8_t sel)
{
	static const uint8_t none[CALL_ARGS];
	int i;

	for (i = 0; i < object_ops_count && !obj_pick(K_XRCD, sel); i++)
		if (!strcmp(object_ops[i].name, "xrcd"))
			object_ops[i].run(none);
	return obj_pick(K_XRCD, sel);
}

static struct obj *need_srq(const uint8_t *a)
{
	int i;

	for (i = 0; i < queue_ops_count; i++)
		if (!strcmp(queue_ops[i].name, "srq"))
			queue_ops[i].run(a);
	i = (atomic_load(&w.next[K_SRQ]) - 1) % SLOTS;
	return w.objs[K_SRQ][i].live ? &w.objs[K_SRQ][i] : NULL;
}

/* pair TYPE PD SIZE SRQ HOW PD: two connected QPs, with CQs, an SRQ, a domain. */
static void op_pair(const uint8_t *a)
{
	static const uint8_t none[CALL_ARGS];
	uint8_t srq_args[CALL_ARGS] = { a[1], 0, 0, 0, 3 + a[2] };
	struct plan p = {
		.type = qp_types[a[0] % 4], .pd = obj_need(K_PD, a[1]),
		.by_ioctl = a[4] & 1, .all_signaled = a[4] & 2,
		.extended = a[4] & 8,
	}, q;
	struct obj *one, *other, *xsrq = NULL;

	if (!p.pd)
		return;
	p.cq = a[4] & 4 ? need_cq(a[5]) : cq_new(5, a[4] >> 4, NULL);
	p.rcq = p.cq;
	q = p;
	if (p.type == IB_UVERBS_QPT_XRC_INI) {
		q.type = IB_UVERBS_QPT_XRC_TGT;
		q.xrcd = need_xrcd(a[5]);
		srq_args[1] = 1;
		srq_args[2] = a[5];
		xsrq = need_srq(srq_args);
	} else if (a[3] % 4 == 1) {
		q.srq = need_srq(srq_args);
	}
	one = qp_new(&p, 2 + a[2] % 3);
	other = qp_new(&q, 2 + a[2] % 3);
	if (!one || !other)
		return;
	one->peer = other;
	other->peer = one;
	one->srq = xsrq;
	if (p.type == IB_UVERBS_QPT_UD) {
		one->ah = ah_new(p.pd, gids[a[5] % n_gids], a[5] % n_gids);
		other->ah = one->ah;
	}
	qp_connect(one, none);
	qp_connect(other, none);
}

/* open_qp XRCD QP: another handle of an XRC target. */
static void op_open_qp(const uint8_t *a)
{
	struct obj *xrcd = obj_pick(K_XRCD, a[0]), *qp = obj_pick(K_QP, a[1]);
	struct ib_uverbs_open_qp core = { .qp_type = IB_UVERBS_QPT_XRC_TGT };
	struct ib_uverbs_create_qp_resp resp;
	struct cmd cmd = {
		CMD(OPEN_QP), CORE_IN(&core), CORE_OUT(&resp),
	};
	struct obj *new;

	if (!xrcd || !qp)
		return;
	core.pd_handle = xrcd->handle;
	core.qpn = qp->num;
	if (cmd_run(&cmd))
		return;
	new = obj_add(K_QP, resp.qp_handle, 0);
	new->num = qp->num;
	new->type = IB_UVERBS_QPT_XRC_TGT;
}

/* query_qp QP */
static void op_query_qp(const uint8_t *a)
{
	struct obj *qp = obj_pick(K_QP, a[0]);
	struct ib_uverbs_query_qp core = { .attr_mask = IBV_QP_STATE };
	struct ib_uverbs_query_qp_resp resp;
	struct cmd cmd = {
		CMD(QUERY_QP), CORE_IN(&core), CORE_OUT(&resp),
	};

	if (!qp)
		return;
	core.qp_handle = qp->handle;
	cmd_run(&cmd);
}

const struct op qp_ops[] = {
	{ "qp", op_qp, 3 }, { "modify", op_modify, 4 },
	{ "connect", op_connect, 3 }, { "pair", op_pair, 8 },
	{ "open_qp", op_open_qp, 1 }, { "query_qp", op_query_qp, 1 },
};

const int qp_ops_count = sizeof(qp_ops) / sizeof(*qp_ops);
