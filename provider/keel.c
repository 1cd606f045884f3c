/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The device and its context: match table and verbs of the provider.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "keel.h"

#define KEEL_NSEC_PER_SEC 1000000000ULL

/*
 * rdma-core generates this macro for its own headers. With it, members of the
 * driver part can be used without .drv_payload, which keel does not need.
 */
#define _STRUCT_keel_uapi_context_resp struct {}

DECLARE_DRV_CMD(keel_get_context, IB_USER_VERBS_CMD_GET_CONTEXT,
		empty, keel_uapi_context_resp);

static const struct verbs_match_ent keel_match_table[] = {
	VERBS_DRIVER_ID(KEEL_DRIVER_ID),
	{}
};

static int keel_query_device_ex(struct ibv_context *ibctx,
				const struct ibv_query_device_ex_input *input,
				struct ibv_device_attr_ex *attr,
				size_t attr_size)
{
	struct ib_uverbs_ex_query_device_resp resp;
	size_t resp_size = sizeof(resp);
	uint64_t fw;
	int ret;

	ret = ibv_cmd_query_device_any(ibctx, input, attr, attr_size, &resp,
				       &resp_size);
	if (ret)
		return ret;

	fw = resp.base.fw_ver;
	snprintf(attr->orig_attr.fw_ver, sizeof(attr->orig_attr.fw_ver),
		 "%u.%u.%u", (unsigned int)(fw >> 32) & 0xffff,
		 (unsigned int)(fw >> 16) & 0xffff, (unsigned int)fw & 0xffff);
	return 0;
}

static int keel_query_port(struct ibv_context *ibctx, uint8_t port,
			   struct ibv_port_attr *attr)
{
	struct ibv_query_port cmd;

	return ibv_cmd_query_port(ibctx, port, attr, &cmd, sizeof(cmd));
}

/* For modules without KEEL_CONTEXT_STATE: the next system call returns EIO. */
static const struct keel_uapi_state never_gone;

static int map_state(struct keel_context *ctx,
		     const struct keel_uapi_context_resp *resp)
{
	void *map;

	ctx->state = &never_gone;
	if (!(resp->comp_mask & KEEL_CONTEXT_STATE))
		return 0;
	map = mmap(NULL, sysconf(_SC_PAGESIZE), PROT_READ, MAP_SHARED,
		   ctx->ibvctx.context.cmd_fd, KEEL_STATE_OFFSET);
	if (map == MAP_FAILED)
		return errno;
	ctx->state = map;
	return 0;
}

/* A mapping keeps the uverbs file open, and all objects of the file alive. */
static void unmap_state(struct keel_context *ctx)
{
	if (ctx->state && ctx->state != &never_gone)
		munmap((void *)ctx->state, sysconf(_SC_PAGESIZE));
}

static void keel_free_context(struct ibv_context *ibctx)
{
	struct keel_context *ctx = to_kctx(ibctx);

	keel_pool_fini(&ctx->pool);
	unmap_state(ctx);
	verbs_uninit_context(&ctx->ibvctx);
	free(ctx);
}

/*
 * The clock of completion timestamps, in ticks of hca_core_clock (1 GHz). As in
 * other providers, tv_nsec holds all ticks.
 */
static int keel_query_rt_values(struct ibv_context *ibctx,
				struct ibv_values_ex *values)
{
	uint32_t asked = values->comp_mask;
	struct timespec now;

	(void)ibctx;
	values->comp_mask = 0;
	if (asked & IBV_VALUES_MASK_RAW_CLOCK) {
		if (clock_gettime(CLOCK_MONOTONIC_RAW, &now))
			return errno;
		values->raw_clock.tv_sec = 0;
		values->raw_clock.tv_nsec = now.tv_sec * KEEL_NSEC_PER_SEC +
					    now.tv_nsec;
		values->comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
	}
	return 0;
}

static const struct verbs_context_ops keel_ctx_ops = {
	.advise_mr = ibv_cmd_advise_mr,
	.alloc_dm = keel_alloc_dm,
	.alloc_mw = keel_alloc_mw,
	.alloc_parent_domain = keel_alloc_parent_domain,
	.alloc_pd = keel_alloc_pd,
	.alloc_td = keel_alloc_td,
	.attach_mcast = ibv_cmd_attach_mcast,
	.bind_mw = keel_bind_mw,
	.close_xrcd = keel_close_xrcd,
	.create_ah = keel_create_ah,
	.create_cq = keel_create_cq,
	.create_cq_ex = keel_create_cq_ex,
	.create_qp = keel_create_qp,
	.create_qp_ex = keel_create_qp_ex,
	.create_srq = keel_create_srq,
	.create_srq_ex = keel_create_srq_ex,
	.dealloc_mw = keel_dealloc_mw,
	.dealloc_pd = keel_dealloc_pd,
	.dealloc_td = keel_dealloc_td,
	.dereg_mr = keel_dereg_mr,
	.destroy_ah = keel_destroy_ah,
	.destroy_cq = keel_destroy_cq,
	.destroy_qp = keel_destroy_qp,
	.destroy_srq = keel_destroy_srq,
	.detach_mcast = ibv_cmd_detach_mcast,
	.free_context = keel_free_context,
	.free_dm = keel_free_dm,
	.get_srq_num = keel_get_srq_num,
	.import_dm = keel_import_dm,
	.import_mr = keel_import_mr,
	.import_pd = keel_import_pd,
	.modify_qp = keel_modify_qp,
	.modify_srq = keel_modify_srq,
	.open_qp = keel_open_qp,
	.open_xrcd = keel_open_xrcd,
	.poll_cq = keel_poll_cq,
	.post_recv = keel_post_recv,
	.post_send = keel_post_send,
	.post_srq_recv = keel_post_srq_recv,
	.query_device_ex = keel_query_device_ex,
	.query_port = keel_query_port,
	.query_qp = keel_query_qp,
	.query_rt_values = keel_query_rt_values,
	.query_srq = keel_query_srq,
	.reg_dm_mr = keel_reg_dm_mr,
	.reg_dmabuf_mr = keel_reg_dmabuf_mr,
	.reg_mr = keel_reg_mr,
	.req_notify_cq = keel_req_notify_cq,
	.rereg_mr = keel_rereg_mr,
	.resize_cq = keel_resize_cq,
	.unimport_dm = keel_unimport_dm,
	.unimport_mr = keel_unimport_mr,
	.unimport_pd = keel_unimport_pd,
};

static int keel_setup_context(struct keel_context *ctx,
			      const struct keel_uapi_context_resp *resp)
{
	ctx->dm_access_align = resp->dm_access_align;
	verbs_set_ops(&ctx->ibvctx, &keel_ctx_ops);
	return map_state(ctx, resp);
}

static int keel_cmd_get_context(struct verbs_context *ctx,
				struct keel_uapi_context_resp *resp)
{
	struct keel_get_context_resp drv_resp = {};
	struct keel_get_context cmd = {};
	int ret;

	ret = ibv_cmd_get_context(ctx, &cmd.ibv_cmd, sizeof(cmd),
				  &drv_resp.ibv_resp, sizeof(drv_resp));
	*resp = drv_resp.drv_payload;
	return ret;
}

static int keel_cmd_query_context(struct verbs_context *ctx,
				  struct keel_uapi_context_resp *resp)
{
	DECLARE_COMMAND_BUFFER(cmdb, UVERBS_OBJECT_DEVICE,
			       UVERBS_METHOD_QUERY_CONTEXT, 1);

	fill_attr_out_ptr(cmdb, KEEL_ATTR_QUERY_CONTEXT_RESP, resp);
	return ibv_cmd_query_context(&ctx->context, cmdb);
}

/* Takes over cmd_fd, and closes it on failure or with the context. */
static struct verbs_context *
keel_open(struct ibv_device *ibdev, int cmd_fd,
	  int (*ask)(struct verbs_context *ctx,
		     struct keel_uapi_context_resp *resp))
{
	struct keel_uapi_context_resp resp = {};
	struct keel_context *ctx;
	int ret;

	ctx = verbs_init_and_alloc_context(ibdev, cmd_fd, ctx, ibvctx,
					   KEEL_DRIVER_ID);
	if (!ctx)
		return NULL;

	ret = ask(&ctx->ibvctx, &resp);
	keel_pool_init(&ctx->pool, resp.comp_mask & KEEL_CONTEXT_RING_END ?
		       KEEL_POOL_RINGS : 0);
	if (!ret)
		ret = keel_setup_context(ctx, &resp);
	if (ret) {
		keel_free_context(&ctx->ibvctx.context);
		errno = ret;
		return NULL;
	}
	keel_poll_by_env(&ctx->ibvctx.context);
	return &ctx->ibvctx;
}

static struct verbs_context *keel_alloc_context(struct ibv_device *ibdev,
						int cmd_fd, void *private_data)
{
	return keel_open(ibdev, cmd_fd, keel_cmd_get_context);
}

/* The kernel context exists already. Another process may have created it. */
static struct verbs_context *keel_import_context(struct ibv_device *ibdev,
						 int cmd_fd)
{
	return keel_open(ibdev, cmd_fd, keel_cmd_query_context);
}

static struct verbs_device *keel_alloc_device(struct verbs_sysfs_dev *sysfs_dev)
{
	return calloc(1, sizeof(struct verbs_device));
}

static void keel_uninit_device(struct verbs_device *vdev)
{
	free(vdev);
}

static const struct verbs_device_ops keel_dev_ops = {
	.name = "keel",
	.match_min_abi_version = KEEL_ABI_VERSION,
	.match_max_abi_version = KEEL_ABI_VERSION,
	.match_table = keel_match_table,
	.alloc_context = keel_alloc_context,
	.import_context = keel_import_context,
	.alloc_device = keel_alloc_device,
	.uninit_device = keel_uninit_device,
};

bool keel_is_ours(struct ibv_device *device)
{
	return verbs_get_device(device)->ops == &keel_dev_ops;
}

PROVIDER_DRIVER(keel, keel_dev_ops);
