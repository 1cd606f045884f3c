/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Creating, modifying and destroying queue pairs. Posting: post.c and wr.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <ccan/array_size.h>
#include <ccan/minmax.h>

#include "keel.h"

/* See keel.c. */
#define _STRUCT_keel_uapi_create_qp_req struct {}

DECLARE_DRV_CMD(keel_create_qp_cmd, IB_USER_VERBS_CMD_CREATE_QP,
		keel_uapi_create_qp_req, empty);

#define KEEL_QP_ATTR_MASK						\
	(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD |			\
	 IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)

/* The queues and opcodes of a QP type. */
struct keel_qp_type {
	bool has_sq;
	bool has_rq;
	/* Bits 1 << enum ibv_wr_opcode. */
	uint32_t opcodes;
};

#define OP(name) (1U << IBV_WR_##name)
#define OPS_UD (OP(SEND) | OP(SEND_WITH_IMM))
#define OPS_UC (OPS_UD | OP(RDMA_WRITE) | OP(RDMA_WRITE_WITH_IMM) |	\
		OP(LOCAL_INV) | OP(BIND_MW))
#define OPS_RC (OPS_UC | OP(SEND_WITH_INV) | OP(RDMA_READ) |		\
		OP(ATOMIC_CMP_AND_SWP) | OP(ATOMIC_FETCH_AND_ADD) |	\
		OP(FLUSH) | OP(ATOMIC_WRITE))

static const struct keel_qp_type *type_of(enum ibv_qp_type qp_type)
{
	static const struct keel_qp_type types[] = {
		[IBV_QPT_RC] = { true, true, OPS_RC },
		[IBV_QPT_UC] = { true, true, OPS_UC },
		[IBV_QPT_UD] = { true, true, OPS_UD },
		[IBV_QPT_XRC_SEND] = { true, false, OPS_RC },
		[IBV_QPT_XRC_RECV] = { false, false, 0 },
	};

	if ((size_t)qp_type >= ARRAY_SIZE(types))
		return NULL;
	if (!types[qp_type].has_sq && qp_type != IBV_QPT_XRC_RECV)
		return NULL;
	return &types[qp_type];
}

/* Opcodes of enum ibv_qp_create_send_ops_flags; 0 if a flag is unsupported. */
static uint32_t opcodes_of(uint64_t send_ops_flags)
{
	static const struct {
		uint64_t flag;
		uint32_t opcode;
	} ops[] = {
		{ IBV_QP_EX_WITH_RDMA_WRITE, OP(RDMA_WRITE) },
		{ IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, OP(RDMA_WRITE_WITH_IMM) },
		{ IBV_QP_EX_WITH_SEND, OP(SEND) },
		{ IBV_QP_EX_WITH_SEND_WITH_IMM, OP(SEND_WITH_IMM) },
		{ IBV_QP_EX_WITH_RDMA_READ, OP(RDMA_READ) },
		{ IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, OP(ATOMIC_CMP_AND_SWP) },
		{ IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
		  OP(ATOMIC_FETCH_AND_ADD) },
		{ IBV_QP_EX_WITH_LOCAL_INV, OP(LOCAL_INV) },
		{ IBV_QP_EX_WITH_BIND_MW, OP(BIND_MW) },
		{ IBV_QP_EX_WITH_SEND_WITH_INV, OP(SEND_WITH_INV) },
		{ IBV_QP_EX_WITH_FLUSH, OP(FLUSH) },
		{ IBV_QP_EX_WITH_ATOMIC_WRITE, OP(ATOMIC_WRITE) },
	};
	uint32_t opcodes = 0;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(ops); i++) {
		if (send_ops_flags & ops[i].flag)
			opcodes |= ops[i].opcode;
		send_ops_flags &= ~ops[i].flag;
	}
	return send_ops_flags ? 0 : opcodes;
}

static int check_ops(const struct keel_qp_type *type, uint64_t send_ops_flags)
{
	uint32_t opcodes = opcodes_of(send_ops_flags);

	if (send_ops_flags && !opcodes)
		return EOPNOTSUPP;
	return opcodes & ~type->opcodes ? EOPNOTSUPP : 0;
}

static int check_cap(const struct keel_qp_type *type,
		     const struct ibv_qp_cap *cap)
{
	if (type->has_sq && (cap->max_send_wr > KEEL_MAX_WR ||
			     cap->max_send_sge > KEEL_MAX_SGE ||
			     cap->max_inline_data > KEEL_MAX_INLINE))
		return EINVAL;
	if (type->has_rq && (cap->max_recv_wr > KEEL_MAX_WR ||
			     cap->max_recv_sge > KEEL_MAX_SGE))
		return EINVAL;
	return 0;
}

/* The kernel gets handles, which are valid in one context only. */
static int check_objects(struct ibv_context *ibctx, bool has_rq,
			 const struct ibv_qp_init_attr_ex *attr)
{
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->pd ||
	    attr->pd->context != ibctx)
		return EINVAL;
	if (!attr->send_cq || attr->send_cq->context != ibctx)
		return EINVAL;
	if (has_rq && (!attr->recv_cq || attr->recv_cq->context != ibctx))
		return EINVAL;
	if (has_rq && attr->srq && attr->srq->context != ibctx)
		return EINVAL;
	return 0;
}

static int check_attr(struct ibv_context *ibctx,
		      const struct keel_qp_type *type,
		      const struct ibv_qp_init_attr_ex *attr)
{
	int ret;

	if (!type || !check_comp_mask(attr->comp_mask, KEEL_QP_ATTR_MASK))
		return EOPNOTSUPP;
	if (attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS &&
	    attr->create_flags)
		return EOPNOTSUPP;
	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) {
		ret = check_ops(type, attr->send_ops_flags);
		if (ret)
			return ret;
	}
	ret = check_cap(type, &attr->cap);
	if (ret)
		return ret;
	if (type->has_sq)
		return check_objects(ibctx, type->has_rq, attr);
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_XRCD) || !attr->xrcd ||
	    attr->xrcd->context != ibctx)
		return EINVAL;
	return 0;
}

/* A ring has 2^n WQEs, at least 1. The application gets the whole capacity. */
static int alloc_sq(struct keel_sq *sq, struct keel_ring_pool *pool,
		    struct keel_parent_domain *parent, struct ibv_qp_cap *cap,
		    bool sig_all)
{
	uint32_t sges = max_t(uint32_t, cap->max_send_sge, 1);
	uint32_t stride = KEEL_SQ_STRIDE(sges, cap->max_inline_data);
	uint32_t room = stride - sizeof(struct keel_uapi_send_wqe);
	int ret;

	ret = keel_ring_alloc(&sq->ring, pool, parent, KEEL_RES_SQ,
			      max_t(uint32_t, cap->max_send_wr, 1), stride);
	if (ret)
		return ret;

	sq->max_sge = min_t(uint32_t, room / sizeof(struct keel_uapi_sge),
			    KEEL_MAX_SGE);
	sq->max_inline = min_t(uint32_t, room, KEEL_MAX_INLINE);
	sq->sig_flags = sig_all ? IBV_SEND_SIGNALED : 0;
	cap->max_send_wr = sq->ring.mask + 1;
	cap->max_send_sge = sq->max_sge;
	cap->max_inline_data = sq->max_inline;
	return 0;
}

static int alloc_rq(struct keel_rq *rq, struct keel_ring_pool *pool,
		    struct keel_parent_domain *parent, struct ibv_qp_cap *cap)
{
	int ret;

	rq->max_sge = max_t(uint32_t, cap->max_recv_sge, 1);
	ret = keel_ring_alloc(&rq->ring, pool, parent, KEEL_RES_RQ,
			      max_t(uint32_t, cap->max_recv_wr, 1),
			      KEEL_RQ_STRIDE(rq->max_sge));
	if (ret)
		return ret;

	cap->max_recv_wr = rq->ring.mask + 1;
	cap->max_recv_sge = rq->max_sge;
	return 0;
}

static int init_queues(struct keel_qp *qp, struct keel_ring_pool *pool,
		       const struct keel_qp_type *type,
		       struct ibv_qp_init_attr_ex *attr)
{
	struct keel_parent_domain *parent =
		keel_pd_parent(type->has_sq ? attr->pd : NULL);
	int ret;

	keel_lock_init(&qp->sq.lock, keel_is_single_threaded(parent));
	keel_lock_init(&qp->rq.lock, keel_is_single_threaded(parent));
	if (type->has_sq) {
		ret = alloc_sq(&qp->sq, pool, parent, &attr->cap,
			       attr->sq_sig_all);
		if (ret)
			return ret;
	} else {
		attr->cap.max_send_wr = 0;
		attr->cap.max_send_sge = 0;
		attr->cap.max_inline_data = 0;
	}
	if (type->has_rq && !attr->srq)
		return alloc_rq(&qp->rq, pool, parent, &attr->cap);
	attr->cap.max_recv_wr = 0;
	attr->cap.max_recv_sge = 0;
	return 0;
}

static void free_qp(struct keel_qp *qp)
{
	keel_ring_free(&qp->sq.ring);
	keel_ring_free(&qp->rq.ring);
	free(qp);
}

static int keel_cmd_create_qp(struct ibv_context *ibctx, struct keel_qp *qp,
			      struct ibv_qp_init_attr_ex *attr)
{
	struct keel_create_qp_cmd cmd = {
		.drv_payload.sq = keel_ring_buf(&qp->sq.ring),
		.drv_payload.rq = keel_ring_buf(&qp->rq.ring),
	};
	struct keel_create_qp_cmd_resp resp = {};

	return ibv_cmd_create_qp_ex(ibctx, &qp->vqp, attr, &cmd.ibv_cmd,
				    sizeof(cmd), &resp.ibv_resp, sizeof(resp));
}

/* Fill in the argument, which is the same for every doorbell. */
static void init_doorbell(struct keel_doorbell *doorbell, uint32_t qpn)
{
	static_assert(offsetof(struct keel_doorbell, qp) ==
			      offsetof(struct keel_doorbell, hdr.attrs),
		      "the attribute follows the header");

	doorbell->hdr.length = sizeof(*doorbell);
	doorbell->hdr.object_id = UVERBS_OBJECT_QP;
	doorbell->hdr.method_id = KEEL_METHOD_QP_DOORBELL;
	doorbell->hdr.num_attrs = 1;
	doorbell->hdr.driver_id = KEEL_DRIVER_ID;
	doorbell->qp.attr_id = KEEL_ATTR_QP_DOORBELL_QPN;
	doorbell->qp.len = sizeof(qpn);
	doorbell->qp.flags = UVERBS_ATTR_F_MANDATORY;
	/* The kernel takes the first bytes, whatever the byte order. */
	memcpy(&doorbell->qp.data, &qpn, sizeof(qpn));
}

static void finish_qp(struct keel_qp *qp, const struct keel_qp_type *type,
		      const struct ibv_qp_init_attr_ex *attr)
{
	init_doorbell(&qp->doorbell, qp->vqp.qp.qp_num);
	qp->opcodes = type->opcodes;
	qp->process = keel_process_number();
	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) {
		keel_set_wr_ops(&qp->vqp.qp_ex);
		qp->vqp.comp_mask |= VERBS_QP_EX;
	}
}

/* @attr is changed only on success. */
struct ibv_qp *keel_create_qp_ex(struct ibv_context *ibctx,
				 struct ibv_qp_init_attr_ex *attr)
{
	const struct keel_qp_type *type = type_of(attr->qp_type);
	struct ibv_qp_init_attr_ex real = *attr;
	struct keel_qp *qp;
	int ret;

	ret = check_attr(ibctx, type, attr);
	if (ret) {
		errno = ret;
		return NULL;
	}

	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return NULL;

	if (!type->has_rq)
		real.srq = NULL;
	real.comp_mask &= ~IBV_QP_INIT_ATTR_CREATE_FLAGS;
	ret = init_queues(qp, &to_kctx(ibctx)->pool, type, &real);
	if (!ret)
		ret = keel_cmd_create_qp(ibctx, qp, &real);
	if (ret) {
		free_qp(qp);
		errno = ret;
		return NULL;
	}
	finish_qp(qp, type, attr);
	attr->cap = real.cap;
	return &qp->vqp.qp;
}

struct ibv_qp *keel_create_qp(struct ibv_pd *ibpd,
			      struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex attr_ex = {
		.qp_context = attr->qp_context,
		.send_cq = attr->send_cq,
		.recv_cq = attr->recv_cq,
		.srq = attr->srq,
		.cap = attr->cap,
		.qp_type = attr->qp_type,
		.sq_sig_all = attr->sq_sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = ibpd,
	};
	struct ibv_qp *ibqp;

	ibqp = keel_create_qp_ex(ibpd->context, &attr_ex);
	if (ibqp)
		attr->cap = attr_ex.cap;
	return ibqp;
}

/* Open an XRC_RECV QP of another process. It has no queue to post to. */
struct ibv_qp *keel_open_qp(struct ibv_context *ibctx,
			    struct ibv_qp_open_attr *attr)
{
	struct ib_uverbs_create_qp_resp resp = {};
	struct ibv_open_qp cmd = {};
	struct keel_qp *qp;
	int ret;

	/* ibv_cmd_open_qp() refuses missing members. */
	if (attr->comp_mask & IBV_QP_OPEN_ATTR_XRCD &&
	    (!attr->xrcd || attr->xrcd->context != ibctx)) {
		errno = EINVAL;
		return NULL;
	}

	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return NULL;

	ret = ibv_cmd_open_qp(ibctx, &qp->vqp, sizeof(qp->vqp), attr, &cmd,
			      sizeof(cmd), &resp, sizeof(resp));
	if (ret) {
		free(qp);
		errno = ret;
		return NULL;
	}
	return &qp->vqp.qp;
}

/*
 * The kernel adds no more CQEs for the QP. Remove the CQEs that were not
 * polled, because the application frees the objects that their wr_ids identify.
 * Keep CQEs of an XRC_RECV QP: their CQs belong to SRQs, whose owners do not
 * know the QP.
 */
static void forget_qp(const struct ibv_qp *ibqp)
{
	/* An XRC_RECV QP uses no CQ. Its CQ pointers may be stale. */
	if (ibqp->qp_type == IBV_QPT_XRC_RECV)
		return;
	keel_cq_clean(to_kcq(ibqp->send_cq), ibqp->qp_num);
	if (ibqp->qp_type != IBV_QPT_XRC_SEND &&
	    ibqp->recv_cq != ibqp->send_cq)
		keel_cq_clean(to_kcq(ibqp->recv_cq), ibqp->qp_num);
}

/* Reset the queues. The kernel has reset its side already. */
static void reset_qp(struct keel_qp *qp)
{
	forget_qp(&qp->vqp.qp);
	if (qp->sq.ring.shared) {
		keel_lock(&qp->sq.lock);
		keel_ring_reset(&qp->sq.ring);
		keel_unlock(&qp->sq.lock);
	}
	if (qp->rq.ring.shared) {
		keel_lock(&qp->rq.lock);
		keel_ring_reset(&qp->rq.ring);
		keel_unlock(&qp->rq.lock);
	}
}

int keel_modify_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr,
		   int attr_mask)
{
	struct ibv_modify_qp cmd = {};
	int ret;

	ret = ibv_cmd_modify_qp(ibqp, attr, attr_mask, &cmd, sizeof(cmd));
	if (ret)
		return ret;

	if (attr_mask & IBV_QP_STATE && attr->qp_state == IBV_QPS_RESET)
		reset_qp(to_kqp(ibqp));
	return 0;
}

/* The kernel knows the actual capacities, so its response is complete. */
int keel_query_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int attr_mask,
		  struct ibv_qp_init_attr *init_attr)
{
	struct ibv_query_qp cmd = {};

	return ibv_cmd_query_qp(ibqp, attr, attr_mask, init_attr, &cmd,
				sizeof(cmd));
}

int keel_destroy_qp(struct ibv_qp *ibqp)
{
	int ret;

	ret = ibv_cmd_destroy_qp(ibqp);
	if (ret)
		return ret;

	forget_qp(ibqp);
	free_qp(to_kqp(ibqp));
	return 0;
}
