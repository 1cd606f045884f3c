/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Shared receive queues: basic SRQs and SRQs of XRC domains. Posting: post.c.
 */
#include <errno.h>
#include <stdlib.h>

#include <ccan/minmax.h>

#include <infiniband/cmd_write.h>

#include "keel.h"

/* See keel.c. */
#define _STRUCT_keel_uapi_create_srq_req struct {}
#define _STRUCT_keel_uapi_modify_srq_req struct {}

DECLARE_DRV_CMD(keel_create_srq_cmd, IB_USER_VERBS_CMD_CREATE_XSRQ,
		keel_uapi_create_srq_req, empty);
DECLARE_DRV_CMD(keel_modify_srq_cmd, IB_USER_VERBS_CMD_MODIFY_SRQ,
		keel_uapi_modify_srq_req, empty);

#define KEEL_SRQ_ATTR_MASK						\
	(IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |		\
	 IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ)

/* The kernel gets handles, which are valid in one context only. */
static int check_attr(struct ibv_context *ibctx,
		      const struct ibv_srq_init_attr_ex *attr)
{
	enum ibv_srq_type type = attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE ?
				 attr->srq_type : IBV_SRQT_BASIC;

	if (!check_comp_mask(attr->comp_mask, KEEL_SRQ_ATTR_MASK) ||
	    (type != IBV_SRQT_BASIC && type != IBV_SRQT_XRC))
		return EOPNOTSUPP;
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !attr->pd ||
	    attr->pd->context != ibctx)
		return EINVAL;
	if (!attr->attr.max_wr || attr->attr.max_wr > KEEL_MAX_WR ||
	    attr->attr.max_sge > KEEL_MAX_SGE)
		return EINVAL;
	if (type == IBV_SRQT_BASIC)
		return 0;
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_XRCD) || !attr->xrcd ||
	    attr->xrcd->context != ibctx)
		return EINVAL;
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_CQ) || !attr->cq ||
	    attr->cq->context != ibctx)
		return EINVAL;
	return 0;
}

static int alloc_ring(struct ibv_context *ibctx, struct keel_ring *ring,
		      const struct keel_srq *srq, uint32_t max_wr)
{
	return keel_ring_alloc(ring, &to_kctx(ibctx)->pool, srq->parent,
			       KEEL_RES_SRQ, max_wr,
			       KEEL_RQ_STRIDE(srq->rq.max_sge));
}

static int keel_cmd_create_srq(struct ibv_context *ibctx, struct keel_srq *srq,
			       struct ibv_srq_init_attr_ex *attr)
{
	struct keel_create_srq_cmd cmd = {
		.drv_payload.ring = keel_ring_buf(&srq->rq.ring),
	};
	struct keel_create_srq_cmd_resp resp = {};

	attr->attr.max_wr = srq->rq.ring.mask + 1;
	attr->attr.max_sge = srq->rq.max_sge;
	return ibv_cmd_create_srq_ex(ibctx, &srq->vsrq, attr, &cmd.ibv_cmd,
				     sizeof(cmd), &resp.ibv_resp, sizeof(resp));
}

static void free_srq(struct keel_srq *srq)
{
	keel_ring_free(&srq->rq.ring);
	free(srq);
}

/* @attr is changed only on success. */
struct ibv_srq *keel_create_srq_ex(struct ibv_context *ibctx,
				   struct ibv_srq_init_attr_ex *attr)
{
	struct ibv_srq_init_attr_ex real = *attr;
	struct keel_srq *srq;
	int ret;

	ret = check_attr(ibctx, attr);
	if (ret) {
		errno = ret;
		return NULL;
	}

	srq = calloc(1, sizeof(*srq));
	if (!srq)
		return NULL;

	srq->parent = keel_pd_parent(attr->pd);
	keel_lock_init(&srq->rq.lock, keel_is_single_threaded(srq->parent));
	srq->rq.max_sge = max_t(uint32_t, attr->attr.max_sge, 1);
	ret = alloc_ring(ibctx, &srq->rq.ring, srq, attr->attr.max_wr);
	if (!ret)
		ret = keel_cmd_create_srq(ibctx, srq, &real);
	if (ret) {
		free_srq(srq);
		errno = ret;
		return NULL;
	}
	/* libibverbs does not set these for an XRC SRQ. */
	srq->vsrq.srq.srq_context = attr->srq_context;
	srq->vsrq.srq.pd = attr->pd;
	attr->attr = real.attr;
	return &srq->vsrq.srq;
}

struct ibv_srq *keel_create_srq(struct ibv_pd *ibpd,
				struct ibv_srq_init_attr *attr)
{
	struct ibv_srq_init_attr_ex attr_ex = {
		.srq_context = attr->srq_context,
		.attr = attr->attr,
		.comp_mask = IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE,
		.srq_type = IBV_SRQT_BASIC,
		.pd = ibpd,
	};
	struct ibv_srq *ibsrq;

	ibsrq = keel_create_srq_ex(ibpd->context, &attr_ex);
	if (ibsrq)
		attr->attr = attr_ex.attr;
	return ibsrq;
}

int keel_get_srq_num(struct ibv_srq *ibsrq, uint32_t *srq_num)
{
	struct keel_srq *srq = to_ksrq(ibsrq);

	if (srq->vsrq.srq_type != IBV_SRQT_XRC)
		return EOPNOTSUPP;

	*srq_num = srq->vsrq.srq_num;
	return 0;
}

static int keel_cmd_modify_srq(struct keel_srq *srq,
			       struct ibv_srq_attr *attr, int attr_mask,
			       const struct keel_ring *ring)
{
	struct keel_modify_srq_cmd cmd = {};

	if (ring)
		cmd.drv_payload.ring = keel_ring_buf(ring);
	return ibv_cmd_modify_srq(&srq->vsrq.srq, attr, attr_mask,
				  &cmd.ibv_cmd, sizeof(cmd));
}

/* The caller holds the lock. The kernel copies the indexes to the new ring. */
static int replace_ring(struct keel_srq *srq, struct keel_ring *ring,
			struct ibv_srq_attr *attr, int attr_mask)
{
	struct keel_ring old = srq->rq.ring;
	int ret;

	/* The kernel publishes the index: the new header must be all zero. */
	ring->user = old.user;
	ret = keel_cmd_modify_srq(srq, attr, attr_mask, ring);
	if (ret)
		return ret;

	srq->rq.ring = *ring;
	*ring = old;
	return 0;
}

static int resize_srq(struct keel_srq *srq, const struct ibv_srq_attr *attr,
		      int attr_mask)
{
	struct ibv_srq_attr real = *attr;
	struct keel_ring ring;
	int ret;

	if (!attr->max_wr || attr->max_wr > KEEL_MAX_WR)
		return EINVAL;
	ret = alloc_ring(srq->vsrq.srq.context, &ring, srq, attr->max_wr);
	if (ret)
		return ret;

	real.max_wr = ring.mask + 1;
	keel_lock(&srq->rq.lock);
	ret = replace_ring(srq, &ring, &real, attr_mask);
	keel_unlock(&srq->rq.lock);
	/* The old ring on success, the new ring on failure. */
	keel_ring_free(&ring);
	return ret;
}

int keel_modify_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr,
		    int attr_mask)
{
	struct keel_srq *srq = to_ksrq(ibsrq);

	if (attr_mask & IBV_SRQ_MAX_WR)
		return resize_srq(srq, attr, attr_mask);
	return keel_cmd_modify_srq(srq, attr, attr_mask, NULL);
}

/* Wake the requesters that wait for a receive WQE. */
int keel_ring_srq_doorbell(const struct ibv_srq *ibsrq)
{
	DECLARE_COMMAND_BUFFER(cmdb, UVERBS_OBJECT_SRQ,
			       KEEL_METHOD_SRQ_DOORBELL, 1);

	fill_attr_in_obj(cmdb, KEEL_ATTR_SRQ_DOORBELL_SRQ, ibsrq->handle);
	return execute_ioctl(ibsrq->context, cmdb);
}

int keel_query_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr)
{
	struct ibv_query_srq cmd = {};

	return ibv_cmd_query_srq(ibsrq, attr, &cmd, sizeof(cmd));
}

int keel_destroy_srq(struct ibv_srq *ibsrq)
{
	int ret;

	ret = ibv_cmd_destroy_srq(ibsrq);
	if (ret)
		return ret;

	free_srq(to_ksrq(ibsrq));
	return 0;
}
