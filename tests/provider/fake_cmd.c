// SPDX-License-Identifier: GPL-2.0
/*
 * The common commands of uverbs, at the functions of libibverbs that issue
 * them: each checks that its objects exist. A command with a ring checks it as
 * the kernel does. The others record their arguments for the test. See fake.h.
 */
#include "fake.h"

/* The part of a command that only keel has, behind the common part. */
#define DRIVER_PART(cmd, cmd_size, type)				\
	({								\
		CHECK_EQ(cmd_size, sizeof(*(cmd)) + sizeof(type));	\
		(type *)((cmd) + 1);					\
	})

int ibv_cmd_get_context(struct verbs_context *context,
			struct ibv_get_context *cmd, size_t cmd_size,
			struct ib_uverbs_get_context_resp *resp,
			size_t resp_size)
{
	struct keel_uapi_context_resp *drv =
		DRIVER_PART(resp, resp_size, struct keel_uapi_context_resp);
	int ret = fake_enter(FAKE_GET_CONTEXT);

	if (ret)
		return ret;
	drv->comp_mask = KEEL_CONTEXT_STATE | KEEL_CONTEXT_RING_END;
	drv->dm_access_align = 1;
	return 0;
}

int ibv_cmd_alloc_pd(struct ibv_context *context, struct ibv_pd *pd,
		     struct ibv_alloc_pd *cmd, size_t cmd_size,
		     struct ib_uverbs_alloc_pd_resp *resp, size_t resp_size)
{
	struct keel_uapi_alloc_pd_req *req =
		DRIVER_PART(cmd, cmd_size, struct keel_uapi_alloc_pd_req);
	struct keel_uapi_pd_info *info =
		DRIVER_PART(resp, resp_size, struct keel_uapi_pd_info);
	int ret = fake_enter(FAKE_ALLOC_PD);

	if (ret)
		return ret;
	pd->context = context;
	pd->handle = FAKE_PD;
	fake_add_object(FAKE_PDS, pd->handle);
	info->kind = req->kind;
	info->domain = 5;
	return 0;
}

int ibv_cmd_dealloc_pd(struct ibv_pd *pd)
{
	int ret = fake_enter(FAKE_DEALLOC_PD);

	fake_has_object(FAKE_PDS, pd->handle);
	if (!ret)
		fake_drop_object(FAKE_PDS, pd->handle);
	return ret;
}

static uint32_t free_cq(void)
{
	uint32_t i = 0;

	while (fake.cq[i].live)
		i++;
	CHECK(i < FAKE_OBJECTS);
	return i;
}

int ibv_cmd_create_cq_ex(struct ibv_context *context,
			 const struct ibv_cq_init_attr_ex *attr,
			 struct verbs_cq *vcq, struct ibv_create_cq_ex *cmd,
			 size_t cmd_size,
			 struct ib_uverbs_ex_create_cq_resp *resp,
			 size_t resp_size, uint32_t cmd_flags)
{
	struct keel_uapi_create_cq_req *req =
		DRIVER_PART(cmd, cmd_size, struct keel_uapi_create_cq_req);
	uint32_t handle = free_cq();
	struct fake_cq *cq = &fake.cq[handle];
	int ret = fake_enter(FAKE_CREATE_CQ);

	if (ret)
		return ret;
	*cq = (struct fake_cq){
		.flags = req->flags, .wc_flags = attr->wc_flags,
		.channel_fd = attr->channel ? attr->channel->fd : -1,
		.vector = attr->comp_vector,
	};
	pthread_mutex_init(&cq->lock, NULL);
	ret = fake_ring_map(&cq->ring, &req->ring, attr->cqe,
			    sizeof(struct keel_uapi_cqe), true);
	if (ret || req->reserved)
		return EINVAL;
	cq->live = true;
	fake_count(1);
	vcq->cq.context = context;
	vcq->cq.handle = handle;
	vcq->cq.cqe = cq->ring.mask + 1;
	return fake_leave(FAKE_CREATE_CQ, handle);
}

/* Move @n WQEs or CQEs from @first on. */
static int move(struct fake_ring *from, struct fake_ring *to, uint32_t first,
		uint32_t n)
{
	uint32_t i;

	if (n > from->mask + 1 || n > to->mask + 1)
		return EINVAL;
	for (i = first; i != first + n; i++)
		memcpy(fake_slot(to, i), fake_slot(from, i),
		       from->stride < to->stride ? from->stride : to->stride);
	to->index = from->index;
	to->head->user = from->head->user;
	to->head->arm = from->head->arm;
	__atomic_store_n(&to->head->kernel, to->index, __ATOMIC_RELEASE);
	/* The old ring must not be used any more. */
	memset(from->head, 0xff,
	       sizeof(*from->head) + (size_t)(from->mask + 1) * from->stride);
	*from = *to;
	return 0;
}

int ibv_cmd_resize_cq(struct ibv_cq *ibcq, int cqe, struct ibv_resize_cq *cmd,
		      size_t cmd_size, struct ib_uverbs_resize_cq_resp *resp,
		      size_t resp_size)
{
	struct keel_uapi_resize_cq_req *req =
		DRIVER_PART(cmd, cmd_size, struct keel_uapi_resize_cq_req);
	struct fake_cq *cq = fake_live_cq(ibcq);
	struct fake_ring to;
	int ret = fake_enter(FAKE_RESIZE_CQ);

	if (!ret)
		ret = fake_ring_map(&to, &req->ring, cqe,
				    sizeof(struct keel_uapi_cqe), true);
	if (ret)
		return ret;
	pthread_mutex_lock(&cq->lock);
	ret = cq->dead ? EINVAL :
	      move(&cq->ring, &to, cq->ring.head->user, fake_queued(&cq->ring));
	if (!ret)
		ibcq->cqe = cq->ring.mask + 1;
	pthread_mutex_unlock(&cq->lock);
	return ret ? ret : fake_leave(FAKE_RESIZE_CQ, ibcq->handle);
}

int ibv_cmd_destroy_cq(struct ibv_cq *ibcq)
{
	struct fake_cq *cq = fake_live_cq(ibcq);
	int ret = fake_enter(FAKE_DESTROY_CQ);

	if (ret)
		return ret;
	cq->live = false;
	fake_count(-1);
	return 0;
}

static uint32_t free_srq(void)
{
	uint32_t i = 0;

	while (fake.srq[i].live)
		i++;
	CHECK(i < FAKE_OBJECTS);
	return i;
}

int ibv_cmd_create_srq_ex(struct ibv_context *context, struct verbs_srq *vsrq,
			  struct ibv_srq_init_attr_ex *attr,
			  struct ibv_create_xsrq *cmd, size_t cmd_size,
			  struct ib_uverbs_create_srq_resp *resp,
			  size_t resp_size)
{
	struct keel_uapi_create_srq_req *req =
		DRIVER_PART(cmd, cmd_size, struct keel_uapi_create_srq_req);
	uint32_t handle = free_srq();
	struct fake_rq *rq = &fake.srq[handle];
	int ret = fake_enter(FAKE_CREATE_SRQ);

	if (ret)
		return ret;
	*rq = (struct fake_rq){ .max_sge = attr->attr.max_sge };
	ret = fake_ring_map(&rq->ring, &req->ring, attr->attr.max_wr,
			    KEEL_RQ_STRIDE(attr->attr.max_sge), false);
	if (ret)
		return ret;
	rq->live = true;
	fake_count(1);
	vsrq->srq.context = context;
	vsrq->srq.handle = handle;
	pthread_mutex_init(&vsrq->srq.mutex, NULL);
	pthread_cond_init(&vsrq->srq.cond, NULL);
	vsrq->srq_type = attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE ?
			 attr->srq_type : IBV_SRQT_BASIC;
	vsrq->srq_num = FAKE_SRQN + handle;
	return 0;
}

int ibv_cmd_modify_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr,
		       int mask, struct ibv_modify_srq *cmd, size_t cmd_size)
{
	struct keel_uapi_modify_srq_req *req =
		DRIVER_PART(cmd, cmd_size, struct keel_uapi_modify_srq_req);
	struct fake_rq *rq = fake_live_srq(ibsrq);
	struct fake_ring to;
	int ret = fake_enter(FAKE_MODIFY_SRQ);

	if (ret)
		return ret;
	if (!(mask & IBV_SRQ_MAX_WR) && req->ring.addr)
		return EINVAL;
	if (mask & IBV_SRQ_MAX_WR) {
		ret = fake_ring_map(&to, &req->ring, attr->max_wr,
				    KEEL_RQ_STRIDE(rq->max_sge), false);
		if (!ret)
			ret = move(&rq->ring, &to, rq->ring.index,
				   fake_posted(&rq->ring));
		if (ret)
			return ret;
		rq->max_wr = attr->max_wr;
		rq->ring.head->flags = rq->wanted ? KEEL_RING_F_DOORBELL : 0;
	}
	if (mask & IBV_SRQ_LIMIT)
		rq->limit = attr->srq_limit;
	return fake_leave(FAKE_MODIFY_SRQ, ibsrq->handle);
}

int ibv_cmd_query_srq(struct ibv_srq *ibsrq, struct ibv_srq_attr *attr,
		      struct ibv_query_srq *cmd, size_t cmd_size)
{
	struct fake_rq *rq = fake_live_srq(ibsrq);
	int ret = fake_enter(FAKE_QUERY_SRQ);

	if (ret)
		return ret;
	attr->max_wr = rq->ring.mask + 1;
	attr->max_sge = rq->max_sge;
	attr->srq_limit = rq->limit;
	return 0;
}

int ibv_cmd_destroy_srq(struct ibv_srq *ibsrq)
{
	struct fake_rq *rq = fake_live_srq(ibsrq);
	int ret = fake_enter(FAKE_DESTROY_SRQ);

	if (ret)
		return ret;
	rq->live = false;
	fake_count(-1);
	return 0;
}

static int map_queues(struct fake_qp *qp, struct keel_uapi_create_qp_req *req,
		      const struct ibv_qp_init_attr_ex *attr)
{
	bool sq = attr->qp_type != IBV_QPT_XRC_RECV;
	bool rq = sq && attr->qp_type != IBV_QPT_XRC_SEND && !attr->srq;
	int ret;

	if ((!sq && req->sq.addr) || (!rq && req->rq.addr))
		return EINVAL;
	if (sq) {
		ret = fake_ring_map(&qp->sq, &req->sq, attr->cap.max_send_wr,
				    KEEL_SQ_STRIDE(attr->cap.max_send_sge,
						   attr->cap.max_inline_data),
				    false);
		if (ret)
			return ret;
	}
	return rq ? fake_ring_map(&qp->rq, &req->rq, attr->cap.max_recv_wr,
				  KEEL_RQ_STRIDE(attr->cap.max_recv_sge),
				  false) : 0;
}

static void fill_qp(struct ibv_qp *qp, const struct ibv_qp_init_attr_ex *attr)
{
	qp->qp_context = attr->qp_context;
	qp->pd = attr->pd;
	qp->send_cq = attr->send_cq;
	qp->recv_cq = attr->recv_cq;
	qp->srq = attr->srq;
	qp->qp_type = attr->qp_type;
	qp->state = IBV_QPS_RESET;
	pthread_mutex_init(&qp->mutex, NULL);
	pthread_cond_init(&qp->cond, NULL);
}

int ibv_cmd_create_qp_ex(struct ibv_context *context, struct verbs_qp *vqp,
			 struct ibv_qp_init_attr_ex *attr,
			 struct ibv_create_qp *cmd, size_t cmd_size,
			 struct ib_uverbs_create_qp_resp *resp,
			 size_t resp_size)
{
	struct keel_uapi_create_qp_req *req =
		DRIVER_PART(cmd, cmd_size, struct keel_uapi_create_qp_req);
	struct fake_qp *qp = fake.qp;
	int ret = fake_enter(FAKE_CREATE_QP);

	if (ret)
		return ret;
	while (qp->live)
		qp++;
	CHECK(qp < fake.qp + FAKE_OBJECTS);
	*qp = (struct fake_qp){ .type = attr->qp_type, .cap = attr->cap };
	ret = map_queues(qp, req, attr);
	if (ret)
		return ret;
	qp->live = true;
	fake_count(1);
	fill_qp(&vqp->qp, attr);
	vqp->comp_mask = 0;
	vqp->qp.context = context;
	vqp->qp.handle = qp - fake.qp;
	vqp->qp.qp_num = FAKE_QPN + vqp->qp.handle;
	return fake_leave(FAKE_CREATE_QP, vqp->qp.handle);
}

static void reset(struct fake_ring *ring)
{
	if (!ring->head)
		return;
	ring->index = 0;
	ring->head->flags = 0;
	ring->head->kernel = 0;
}

int ibv_cmd_modify_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask,
		      struct ibv_modify_qp *cmd, size_t cmd_size)
{
	struct fake_qp *qp = fake_live_qp(ibqp);
	int ret = fake_enter(FAKE_MODIFY_QP);

	if (ret)
		return ret;
	qp->attr = *attr;
	qp->mask = mask;
	if (mask & IBV_QP_STATE && attr->qp_state == IBV_QPS_RESET) {
		reset(&qp->sq);
		reset(&qp->rq);
	}
	return fake_leave(FAKE_MODIFY_QP, ibqp->handle);
}

int ibv_cmd_query_qp(struct ibv_qp *ibqp, struct ibv_qp_attr *attr, int mask,
		     struct ibv_qp_init_attr *init_attr,
		     struct ibv_query_qp *cmd, size_t cmd_size)
{
	struct fake_qp *qp = fake_live_qp(ibqp);
	int ret = fake_enter(FAKE_QUERY_QP);

	if (ret)
		return ret;
	qp->mask = mask;
	init_attr->cap = qp->cap;
	attr->cap = init_attr->cap;
	return 0;
}

int ibv_cmd_destroy_qp(struct ibv_qp *ibqp)
{
	struct fake_qp *qp = fake_live_qp(ibqp);
	int ret = fake_enter(FAKE_DESTROY_QP);

	if (ret)
		return ret;
	qp->live = false;
	fake_count(-1);
	return fake_leave(FAKE_DESTROY_QP, ibqp->handle);
}

int ibv_cmd_create_ah(struct ibv_pd *pd, struct ibv_ah *ah,
		      struct ibv_ah_attr *attr,
		      struct ib_uverbs_create_ah_resp *resp, size_t resp_size)
{
	struct keel_uapi_create_ah_resp *drv =
		DRIVER_PART(resp, resp_size, struct keel_uapi_create_ah_resp);
	int ret = fake_enter(FAKE_CREATE_AH);

	fake_has_object(FAKE_PDS, pd->handle);
	if (ret)
		return ret;
	fake.ah = *attr;
	ah->context = pd->context;
	ah->pd = pd;
	/* Its number differs from its handle. */
	ah->handle = 3;
	fake_add_object(FAKE_AHS, ah->handle);
	drv->ah = 0xa4;
	return 0;
}

int ibv_cmd_destroy_ah(struct ibv_ah *ah)
{
	int ret = fake_enter(FAKE_DESTROY_AH);

	fake_has_object(FAKE_AHS, ah->handle);
	if (!ret)
		fake_drop_object(FAKE_AHS, ah->handle);
	return ret;
}

int ibv_cmd_reg_mr(struct ibv_pd *pd, void *addr, size_t length,
		   uint64_t hca_va, int access, struct verbs_mr *vmr,
		   struct ibv_reg_mr *cmd, size_t cmd_size,
		   struct ib_uverbs_reg_mr_resp *resp, size_t resp_size)
{
	int ret = fake_enter(FAKE_REG_MR);

	fake_has_object(FAKE_PDS, pd->handle);
	if (ret)
		return ret;
	fake.mr = (struct fake_mr_request){
		.pd = pd->handle, .addr = addr, .length = length,
		.iova = hca_va, .access = access,
	};
	vmr->ibv_mr.context = pd->context;
	vmr->ibv_mr.handle = FAKE_MR;
	fake_add_object(FAKE_MRS, FAKE_MR);
	vmr->ibv_mr.lkey = 0x1100;
	vmr->ibv_mr.rkey = 0x1100;
	vmr->mr_type = IBV_MR_TYPE_MR;
	return 0;
}

int ibv_cmd_rereg_mr(struct verbs_mr *vmr, uint32_t flags, void *addr,
		     size_t length, uint64_t hca_va, int access,
		     struct ibv_pd *pd, struct ibv_rereg_mr *cmd,
		     size_t cmd_sz, struct ib_uverbs_rereg_mr_resp *resp,
		     size_t resp_sz)
{
	int ret = fake_enter(FAKE_REREG_MR);

	fake_has_object(FAKE_MRS, vmr->ibv_mr.handle);
	if (flags & IBV_REREG_MR_CHANGE_PD)
		fake_has_object(FAKE_PDS, pd->handle);
	if (ret)
		return ret;
	fake.mr = (struct fake_mr_request){
		.flags = flags, .addr = addr, .length = length, .iova = hca_va,
		.access = access, .pd = pd ? pd->handle : 0,
	};
	return 0;
}

int ibv_cmd_reg_dm_mr(struct ibv_pd *pd, struct verbs_dm *dm, uint64_t offset,
		      size_t length, unsigned int access, struct verbs_mr *vmr,
		      struct ibv_command_buffer *link)
{
	int ret = fake_enter(FAKE_REG_DM_MR);

	fake_has_object(FAKE_PDS, pd->handle);
	CHECK(dm->handle < FAKE_OBJECTS && fake.dm[dm->handle].live);
	if (ret)
		return ret;
	fake.mr = (struct fake_mr_request){
		.pd = pd->handle, .dm = dm->handle, .iova = offset,
		.length = length, .access = access,
	};
	vmr->ibv_mr.context = pd->context;
	vmr->ibv_mr.handle = FAKE_MR + 1;
	fake_add_object(FAKE_MRS, FAKE_MR + 1);
	vmr->ibv_mr.lkey = 0x2200;
	vmr->mr_type = IBV_MR_TYPE_MR;
	return 0;
}

int ibv_cmd_dereg_mr(struct verbs_mr *vmr)
{
	int ret = fake_enter(FAKE_DEREG_MR);

	fake_has_object(FAKE_MRS, vmr->ibv_mr.handle);
	if (!ret)
		fake_drop_object(FAKE_MRS, vmr->ibv_mr.handle);
	return ret;
}

int ibv_cmd_query_mr(struct ibv_pd *pd, struct verbs_mr *vmr,
		     uint32_t mr_handle)
{
	int ret = fake_enter(FAKE_QUERY_MR);

	fake_has_object(FAKE_PDS, pd->handle);
	if (ret)
		return ret;
	vmr->ibv_mr.context = pd->context;
	vmr->ibv_mr.pd = pd;
	vmr->ibv_mr.handle = mr_handle;
	vmr->ibv_mr.length = 77;
	vmr->ibv_mr.lkey = 0x4400;
	vmr->ibv_mr.rkey = 0x5500;
	vmr->mr_type = IBV_MR_TYPE_IMPORTED_MR;
	return 0;
}

int ibv_cmd_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type,
		     struct ibv_mw *mw, struct ibv_alloc_mw *cmd,
		     size_t cmd_size, struct ib_uverbs_alloc_mw_resp *resp,
		     size_t resp_size)
{
	int ret = fake_enter(FAKE_ALLOC_MW);

	fake_has_object(FAKE_PDS, pd->handle);
	if (ret)
		return ret;
	mw->handle = FAKE_MW + type;
	fake_add_object(FAKE_MWS, mw->handle);
	mw->context = pd->context;
	mw->pd = pd;
	mw->rkey = 0x3300;
	mw->type = type;
	return 0;
}

int ibv_cmd_dealloc_mw(struct ibv_mw *mw)
{
	int ret = fake_enter(FAKE_DEALLOC_MW);

	fake_has_object(FAKE_MWS, mw->handle);
	if (!ret)
		fake_drop_object(FAKE_MWS, mw->handle);
	return ret;
}

int ibv_cmd_open_xrcd(struct ibv_context *context, struct verbs_xrcd *xrcd,
		      int vxrcd_size, struct ibv_xrcd_init_attr *attr,
		      struct ibv_open_xrcd *cmd, size_t cmd_size,
		      struct ib_uverbs_open_xrcd_resp *resp, size_t resp_size)
{
	int ret = fake_enter(FAKE_OPEN_XRCD);

	if (ret)
		return ret;
	fake.xrcd = *attr;
	xrcd->xrcd.context = context;
	xrcd->handle = FAKE_XRCD;
	fake_add_object(FAKE_XRCDS, FAKE_XRCD);
	return 0;
}

int ibv_cmd_close_xrcd(struct verbs_xrcd *xrcd)
{
	int ret = fake_enter(FAKE_CLOSE_XRCD);

	fake_has_object(FAKE_XRCDS, xrcd->handle);
	if (!ret)
		fake_drop_object(FAKE_XRCDS, xrcd->handle);
	return ret;
}
