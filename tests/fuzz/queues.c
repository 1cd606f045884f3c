// SPDX-License-Identifier: GPL-2.0
/*
 * Calls for CQs and SRQs, and completion channels.
 */
#include <fcntl.h>
#include <string.h>

#include <infiniband/verbs.h>

#include "world.h"

#define CQE_BYTES	sizeof(struct keel_uapi_cqe)

/* chan: a completion channel. */
static void op_chan(const uint8_t *a)
{
	struct ib_uverbs_create_comp_channel core = {};
	struct ib_uverbs_create_comp_channel_resp resp;
	struct cmd cmd = {
		CMD(CREATE_COMP_CHANNEL), CORE_IN(&core), CORE_OUT(&resp),
	};

	if (cmd_run(&cmd) || !resp.fd)
		return;
	fcntl(resp.fd, F_SETFL, O_NONBLOCK);
	obj_add(K_CHAN, resp.fd, 0);
}

static int create_cq(struct keel_uapi_create_cq_req *req, struct obj *chan,
		     uint32_t *handle)
{
	struct ib_uverbs_create_cq core = {
		.cqe = req->ring.entries - 1,
		.comp_channel = chan ? (int)chan->handle : -1,
	};
	struct ib_uverbs_create_cq_resp resp;
	struct cmd cmd = {
		CMD(CREATE_CQ), CORE_IN(&core), CORE_OUT(&resp), DRIVER_IN(req),
	};
	int ret = cmd_run(&cmd);

	*handle = resp.cq_handle;
	return ret;
}

static int create_cq_ex(struct keel_uapi_create_cq_req *req, struct obj *chan,
			uint32_t flags, uint32_t *handle)
{
	struct ib_uverbs_ex_create_cq core = {
		.cqe = req->ring.entries - 1, .flags = flags,
		.comp_channel = chan ? (int)chan->handle : -1,
	};
	struct ib_uverbs_ex_create_cq_resp resp;
	struct cmd cmd = {
		CMD_EX(CREATE_CQ), CORE_IN(&core), CORE_OUT(&resp),
		DRIVER_IN(req),
	};
	int ret = cmd_run(&cmd);

	*handle = resp.base.cq_handle;
	return ret;
}

static int create_cq_ioctl(struct keel_uapi_create_cq_req *req,
			   struct obj *chan, uint32_t *handle)
{
	uint32_t cqe = req->ring.entries, vector = 0, got;
	uint64_t user = 0;

	return cmd_method(M_CQ_CREATE, UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE,
			  ATTRS(NEW(UVERBS_ATTR_CREATE_CQ_HANDLE, handle),
				IN(UVERBS_ATTR_CREATE_CQ_CQE, &cqe),
				IN(UVERBS_ATTR_CREATE_CQ_USER_HANDLE, &user),
				IN(UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, &vector),
				OUT(UVERBS_ATTR_CREATE_CQ_RESP_CQE, &got),
				IN(UVERBS_ATTR_UHW_IN, req),
				OBJ_IF(chan, UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL)));
}

struct obj *cq_new(uint8_t size, uint8_t how, struct obj *chan)
{
	struct keel_uapi_create_cq_req req = {};
	struct ring ring;
	uint32_t handle;
	struct obj *cq;
	int ret;

	if (!ring_new(&ring, 4U << size % 6, CQE_BYTES))
		return NULL;
	req.ring = ring_buf(&ring);
	req.flags = how / 6 % 2 ? KEEL_CQ_F_WALLCLOCK : 0;
	if (how % 3 == 0)
		ret = create_cq(&req, chan, &handle);
	else if (how % 3 == 1)
		ret = create_cq_ex(&req, chan, how / 3 % 2, &handle);
	else
		ret = create_cq_ioctl(&req, chan, &handle);
	if (ret)
		return NULL;
	cq = obj_add(K_CQ, handle, 0);
	cq->ring = ring;
	return cq;
}

/* cq SIZE HOW CHANNEL */
static void op_cq(const uint8_t *a)
{
	cq_new(a[0], a[1], a[2] % 2 ? obj_pick(K_CHAN, a[2]) : NULL);
}

/* resize_cq CQ SIZE */
static void op_resize_cq(const uint8_t *a)
{
	struct obj *cq = obj_pick(K_CQ, a[0]);
	struct ib_uverbs_resize_cq core = {};
	struct ib_uverbs_resize_cq_resp resp;
	struct keel_uapi_resize_cq_req req;
	struct cmd cmd = {
		CMD(RESIZE_CQ), CORE_IN(&core), CORE_OUT(&resp), DRIVER_IN(&req),
	};
	struct ring ring;

	if (!cq || !ring_new(&ring, 4U << a[1] % 6, CQE_BYTES))
		return;
	core.cq_handle = cq->handle;
	core.cqe = ring.entries - 1;
	req.ring = ring_buf(&ring);
	if (!cmd_run(&cmd))
		cq->ring = ring;
}

/* arm CQ HOW: ask for an event in the ring. */
static void op_arm(const uint8_t *a)
{
	struct obj *cq = obj_pick(K_CQ, a[0]);

	struct ring ring;

	if (cq && ring_read(&cq->ring, &ring))
		__atomic_store_n(&ring.head->arm, a[1] % 8 == 7 ? a[2] :
				 a[1] % 2 + 1, __ATOMIC_SEQ_CST);
}

static void srq_add(uint32_t handle, uint32_t num, struct obj *pd, uint8_t type,
		    const struct ring *ring)
{
	struct obj *srq = obj_add(K_SRQ, handle, pd->domain);

	srq->num = num;
	srq->type = type;
	srq->ring = *ring;
}

static void create_srq(struct obj *pd, const struct ring *ring, uint8_t limit)
{
	struct ib_uverbs_create_srq core = {
		.pd_handle = pd->handle, .max_wr = ring->entries, .max_sge = 2,
		.srq_limit = limit,
	};
	struct keel_uapi_create_srq_req req = { .ring = ring_buf(ring) };
	struct ib_uverbs_create_srq_resp resp;
	struct cmd cmd = {
		CMD(CREATE_SRQ), CORE_IN(&core), CORE_OUT(&resp),
		DRIVER_IN(&req),
	};

	if (!cmd_run(&cmd))
		srq_add(resp.srq_handle, resp.srqn, pd, IBV_SRQT_BASIC, ring);
}

static void create_xsrq(struct obj *pd, struct obj *xrcd, struct obj *cq,
			const struct ring *ring)
{
	struct ib_uverbs_create_xsrq core = {
		.srq_type = IBV_SRQT_XRC, .pd_handle = pd->handle,
		.max_wr = ring->entries, .max_sge = 2,
		.xrcd_handle = xrcd->handle, .cq_handle = cq->handle,
	};
	struct keel_uapi_create_srq_req req = { .ring = ring_buf(ring) };
	struct ib_uverbs_create_srq_resp resp;
	struct cmd cmd = {
		CMD(CREATE_XSRQ), CORE_IN(&core), CORE_OUT(&resp),
		DRIVER_IN(&req),
	};

	if (!cmd_run(&cmd))
		srq_add(resp.srq_handle, resp.srqn, pd, IBV_SRQT_XRC, ring);
}

/* @xrcd and @cq: NULL for a plain SRQ. */
static void create_srq_ioctl(struct obj *pd, struct obj *xrcd, struct obj *cq,
			     const struct ring *ring, uint32_t limit)
{
	struct keel_uapi_create_srq_req req = { .ring = ring_buf(ring) };
	uint64_t user = 0, type = xrcd ? IBV_SRQT_XRC : IBV_SRQT_BASIC;
	uint32_t max_wr = ring->entries, max_sge = 2, handle, got, got_sge;
	uint32_t num = 0;
	uint32_t num_len = xrcd ? sizeof(num) : 0;

	if (!cmd_method(M_SRQ_CREATE, UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_CREATE,
			ATTRS(NEW(UVERBS_ATTR_CREATE_SRQ_HANDLE, &handle),
			      OBJ(UVERBS_ATTR_CREATE_SRQ_PD_HANDLE, pd->handle),
			      OBJ_IF(xrcd, UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE),
			      OBJ_IF(cq, UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE),
			      IN(UVERBS_ATTR_CREATE_SRQ_USER_HANDLE, &user),
			      IN(UVERBS_ATTR_CREATE_SRQ_TYPE, &type),
			      IN(UVERBS_ATTR_CREATE_SRQ_MAX_WR, &max_wr),
			      IN(UVERBS_ATTR_CREATE_SRQ_MAX_SGE, &max_sge),
			      IN(UVERBS_ATTR_CREATE_SRQ_LIMIT, &limit),
			      OUT(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, &got),
			      OUT(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, &got_sge),
			      OUT_LEN(UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM, &num,
				      num_len),
			      IN(UVERBS_ATTR_UHW_IN, &req))))
		srq_add(handle, num, pd, type, ring);
}

/* srq PD TYPE XRCD CQ SIZE LIMIT */
static void op_srq(const uint8_t *a)
{
	bool has_cq = a[1] % 2, by_ioctl = a[1] / 2 % 2;
	struct obj *xrcd = has_cq ? obj_pick(K_XRCD, a[2]) : NULL;
	struct obj *cq = has_cq ? obj_pick(K_CQ, a[3]) : NULL;
	struct obj *pd = obj_need(K_PD, a[0]);
	struct ring ring;

	if (!pd || (has_cq && (!xrcd || !cq)) ||
	    !ring_new(&ring, 1U << a[4] % 6, KEEL_RQ_STRIDE(2)))
		return;
	if (by_ioctl)
		create_srq_ioctl(pd, xrcd, cq, &ring, a[5]);
	else if (has_cq)
		create_xsrq(pd, xrcd, cq, &ring);
	else
		create_srq(pd, &ring, a[5]);
}

/* modify_srq SRQ MASK SIZE LIMIT */
static void op_modify_srq(const uint8_t *a)
{
	struct obj *srq = obj_pick(K_SRQ, a[0]);
	struct ib_uverbs_modify_srq core = {
		.attr_mask = a[1] % 3 + 1, .srq_limit = a[3] % 40,
	};
	struct keel_uapi_modify_srq_req req = {};
	struct cmd cmd = {
		CMD(MODIFY_SRQ), CORE_IN(&core), DRIVER_IN(&req),
	};
	struct ring ring;

	if (!srq)
		return;
	core.srq_handle = srq->handle;
	if (core.attr_mask & IBV_SRQ_MAX_WR) {
		if (!ring_new(&ring, 1U << a[2] % 6, KEEL_RQ_STRIDE(2)))
			return;
		core.max_wr = ring.entries;
		req.ring = ring_buf(&ring);
	}
	if (!cmd_run(&cmd) && core.attr_mask & IBV_SRQ_MAX_WR)
		srq->ring = ring;
}

/* query_srq SRQ */
static void op_query_srq(const uint8_t *a)
{
	struct obj *srq = obj_pick(K_SRQ, a[0]);
	struct ib_uverbs_query_srq core = {};
	struct ib_uverbs_query_srq_resp resp;
	struct cmd cmd = {
		CMD(QUERY_SRQ), CORE_IN(&core), CORE_OUT(&resp),
	};

	if (!srq)
		return;
	core.srq_handle = srq->handle;
	cmd_run(&cmd);
}

const struct op queue_ops[] = {
	{ "chan", op_chan, 1 }, { "cq", op_cq, 3 },
	{ "resize_cq", op_resize_cq, 3 }, { "arm", op_arm, 3 },
	{ "srq", op_srq, 3 }, { "modify_srq", op_modify_srq, 3 },
	{ "query_srq", op_query_srq, 1 },
};

const int queue_ops_count = sizeof(queue_ops) / sizeof(*queue_ops);
