/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Creating, resizing and destroying completion queues. poll.c polls CQEs.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "keel.h"

/* See keel.c. */
#define _STRUCT_keel_uapi_create_cq_req struct {}
#define _STRUCT_keel_uapi_resize_cq_req struct {}

DECLARE_DRV_CMD(keel_create_cq_cmd, IB_USER_VERBS_EX_CMD_CREATE_CQ,
		keel_uapi_create_cq_req, empty);
DECLARE_DRV_CMD(keel_resize_cq_cmd, IB_USER_VERBS_CMD_RESIZE_CQ,
		keel_uapi_resize_cq_req, empty);

#define KEEL_WC_FLAGS							\
	(IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |	\
	 IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)

#define KEEL_CQ_ATTR_MASK						\
	(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD)

#define KEEL_CQ_ATTR_FLAGS						\
	(IBV_CREATE_CQ_ATTR_SINGLE_THREADED |				\
	 IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN)

static uint32_t attr_flags(const struct ibv_cq_init_attr_ex *attr)
{
	return attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS ? attr->flags : 0;
}

static struct ibv_pd *attr_pd(const struct ibv_cq_init_attr_ex *attr)
{
	return attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD ?
	       attr->parent_domain : NULL;
}

static int check_attr(struct ibv_context *ibctx,
		      const struct ibv_cq_init_attr_ex *attr)
{
	struct ibv_pd *ibpd = attr_pd(attr);

	if (!check_comp_mask(attr->comp_mask, KEEL_CQ_ATTR_MASK) ||
	    !check_comp_mask(attr->wc_flags, KEEL_WC_FLAGS) ||
	    !check_comp_mask(attr_flags(attr), KEEL_CQ_ATTR_FLAGS))
		return EOPNOTSUPP;
	if (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD &&
	    (!ibpd || ibpd->context != ibctx || !to_kparent(ibpd)))
		return EINVAL;
	/* The kernel never sees this number: a ring cannot have this size. */
	if (!attr->cqe || attr->cqe > KEEL_MAX_CQE)
		return EINVAL;
	return 0;
}

static int keel_cmd_create_cq(struct ibv_context *ibctx, struct keel_cq *cq,
			      struct ibv_cq_init_attr_ex *attr)
{
	struct keel_create_cq_cmd cmd = {
		.drv_payload.ring = keel_ring_buf(&cq->ring),
	};
	struct keel_create_cq_cmd_resp resp = {};

	if (attr->wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)
		cmd.drv_payload.flags |= KEEL_CQ_F_WALLCLOCK;
	return ibv_cmd_create_cq_ex(ibctx, attr, &cq->vcq, &cmd.ibv_cmd,
				    sizeof(cmd), &resp.ibv_resp, sizeof(resp),
				    0);
}

static void hold_parent(struct keel_cq *cq, struct ibv_pd *ibpd)
{
	cq->parent = keel_pd_parent(ibpd);
	if (cq->parent)
		atomic_fetch_add(&cq->parent->cqs, 1);
}

static void free_cq(struct keel_cq *cq)
{
	keel_ring_free(&cq->ring);
	if (cq->parent)
		atomic_fetch_sub(&cq->parent->cqs, 1);
	free(cq);
}

static struct keel_cq *new_cq(struct ibv_context *ibctx,
			      struct ibv_cq_init_attr_ex *attr)
{
	struct keel_cq *cq;
	int ret;

	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return NULL;

	hold_parent(cq, attr_pd(attr));
	keel_lock_init(&cq->lock, keel_is_single_threaded(cq->parent) ||
		       attr_flags(attr) & IBV_CREATE_CQ_ATTR_SINGLE_THREADED);
	ret = keel_ring_alloc(&cq->ring, &to_kctx(ibctx)->pool, cq->parent,
			      KEEL_RES_CQ, attr->cqe, sizeof(struct keel_uapi_cqe));
	if (!ret)
		ret = keel_cmd_create_cq(ibctx, cq, attr);
	if (ret) {
		free_cq(cq);
		errno = ret;
		return NULL;
	}
	return cq;
}

struct ibv_cq *keel_create_cq(struct ibv_context *ibctx, int cqe,
			      struct ibv_comp_channel *channel, int comp_vector)
{
	struct ibv_cq_init_attr_ex attr = {
		/* A negative number becomes too large. */
		.cqe = cqe,
		.channel = channel,
		.comp_vector = comp_vector,
	};
	struct keel_cq *cq;
	int ret;

	ret = check_attr(ibctx, &attr);
	if (ret) {
		errno = ret;
		return NULL;
	}
	cq = new_cq(ibctx, &attr);
	return cq ? &cq->vcq.cq : NULL;
}

struct ibv_cq_ex *keel_create_cq_ex(struct ibv_context *ibctx,
				    struct ibv_cq_init_attr_ex *attr)
{
	struct keel_cq *cq;
	int ret;

	ret = check_attr(ibctx, attr);
	if (ret) {
		errno = ret;
		return NULL;
	}
	cq = new_cq(ibctx, attr);
	if (!cq)
		return NULL;

	keel_set_poll_ops(&cq->vcq.cq_ex, attr->wc_flags);
	return &cq->vcq.cq_ex;
}

/*
 * The caller holds the lock, so no thread polls or arms meanwhile. The kernel
 * copies the indexes and @arm to the new ring.
 */
static int replace_ring(struct keel_cq *cq, struct keel_ring *ring, int cqe)
{
	struct keel_resize_cq_cmd_resp resp = {};
	struct keel_resize_cq_cmd cmd = {};
	struct keel_ring old = cq->ring;
	int ret;

	/* The kernel publishes the index: the new header must be all zero. */
	ring->user = old.user;
	cmd.drv_payload.ring = keel_ring_buf(ring);
	ret = ibv_cmd_resize_cq(&cq->vcq.cq, cqe, &cmd.ibv_cmd, sizeof(cmd),
				&resp.ibv_resp, sizeof(resp));
	if (ret)
		return ret;

	cq->ring = *ring;
	*ring = old;
	keel_cq_find_current(cq);
	return 0;
}

/* The application may resize a CQ between start_poll and end_poll. */
int keel_resize_cq(struct ibv_cq *ibcq, int cqe)
{
	struct keel_cq *cq = to_kcq(ibcq);
	struct keel_ring ring;
	bool locked;
	int ret;

	if (cqe <= 0 || (uint32_t)cqe > KEEL_MAX_CQE)
		return EINVAL;
	ret = keel_ring_alloc(&ring, &to_kctx(ibcq->context)->pool, cq->parent,
			      KEEL_RES_CQ, cqe, sizeof(struct keel_uapi_cqe));
	if (ret)
		return ret;

	locked = keel_cq_lock_unless_polling(cq);
	ret = replace_ring(cq, &ring, cqe);
	if (locked)
		keel_unlock(&cq->lock);
	/* The old ring on success, the new ring on failure. */
	keel_ring_free(&ring);
	return ret;
}

int keel_destroy_cq(struct ibv_cq *ibcq)
{
	int ret;

	ret = ibv_cmd_destroy_cq(ibcq);
	if (ret)
		return ret;

	free_cq(to_kcq(ibcq));
	return 0;
}
