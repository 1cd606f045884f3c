/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Protection domains of every kind: plain PDs, and the deallocation and import
 * of parent domains and of instances of shared domains.
 */
#include <errno.h>
#include <stdlib.h>

#include "keel.h"

/* See keel.c. */
#define _STRUCT_keel_uapi_alloc_pd_req struct {}
#define _STRUCT_keel_uapi_pd_info struct {}

DECLARE_DRV_CMD(keel_alloc_pd_cmd, IB_USER_VERBS_CMD_ALLOC_PD,
		keel_uapi_alloc_pd_req, keel_uapi_pd_info);

static int keel_cmd_alloc_pd(struct ibv_context *ibctx, struct keel_pd *pd,
			     const struct keel_uapi_alloc_pd_req *req)
{
	struct keel_alloc_pd_cmd cmd = { .drv_payload = *req };
	struct keel_alloc_pd_cmd_resp resp = {};
	int ret;

	ret = ibv_cmd_alloc_pd(ibctx, &pd->ibv_pd, &cmd.ibv_cmd, sizeof(cmd),
			       &resp.ibv_resp, sizeof(resp));
	if (ret)
		return ret;

	pd->kind = resp.drv_payload.kind;
	pd->domain = resp.drv_payload.domain;
	return 0;
}

struct ibv_pd *keel_new_pd(struct ibv_context *ibctx,
			   const struct keel_uapi_alloc_pd_req *req)
{
	struct keel_pd *pd;
	int ret;

	pd = calloc(1, sizeof(*pd));
	if (!pd)
		return NULL;

	ret = keel_cmd_alloc_pd(ibctx, pd, req);
	if (ret) {
		free(pd);
		errno = ret;
		return NULL;
	}
	return &pd->ibv_pd;
}

struct ibv_pd *keel_alloc_pd(struct ibv_context *ibctx)
{
	static const struct keel_uapi_alloc_pd_req req = {
		.kind = KEEL_UAPI_PD_PLAIN,
	};

	return keel_new_pd(ibctx, &req);
}

static void keel_free_pd(struct keel_pd *pd)
{
	/* free() works for parent domains, too. */
	static_assert(offsetof(struct keel_parent_domain, pd) == 0,
		      "a parent domain starts with its PD");

	free(pd);
}

/* The kernel counts all other holders. A CQ has no PD in the kernel. */
static bool has_cqs(struct ibv_pd *ibpd)
{
	struct keel_parent_domain *parent = to_kparent(ibpd);
	unsigned int cqs = parent ? atomic_load(&parent->cqs) : 0;

	if (cqs)
		verbs_info(verbs_get_ctx(ibpd->context),
			   "PD %u is held by %u cq of this process\n",
			   ibpd->handle, cqs);
	return cqs;
}

int keel_dealloc_pd(struct ibv_pd *ibpd)
{
	int ret;

	if (has_cqs(ibpd))
		return EBUSY;

	ret = ibv_cmd_dealloc_pd(ibpd);
	if (ret == EBUSY)
		keel_report_busy(ibpd->context, &keel_holders_of_pd,
				 ibpd->handle);
	if (ret)
		return ret;

	keel_free_pd(to_kpd(ibpd));
	return 0;
}

static int keel_cmd_query_pd(struct ibv_context *ibctx, uint32_t handle,
			     struct keel_uapi_pd_info *info)
{
	DECLARE_COMMAND_BUFFER(cmdb, UVERBS_OBJECT_PD, KEEL_METHOD_PD_QUERY, 2);

	fill_attr_in_obj(cmdb, KEEL_ATTR_PD_QUERY_HANDLE, handle);
	fill_attr_out_ptr(cmdb, KEEL_ATTR_PD_QUERY_RESP, info);

	return execute_ioctl(ibctx, cmdb);
}

/*
 * The query refuses a handle that the context does not have at import, not at
 * its first use. An imported parent domain has no TD and no allocators, because
 * they belong to the exporter. Its queues have locks and default memory.
 */
struct ibv_pd *keel_import_pd(struct ibv_context *ibctx, uint32_t handle)
{
	struct keel_uapi_pd_info info;
	struct keel_pd *pd;
	int ret;

	ret = keel_cmd_query_pd(ibctx, handle, &info);
	if (ret) {
		errno = ret;
		return NULL;
	}

	pd = calloc(1, info.kind == KEEL_UAPI_PD_PARENT ?
		       sizeof(struct keel_parent_domain) : sizeof(*pd));
	if (!pd)
		return NULL;

	pd->ibv_pd.context = ibctx;
	pd->ibv_pd.handle = handle;
	pd->kind = info.kind;
	pd->domain = info.domain;
	if (to_kparent(&pd->ibv_pd))
		to_kparent(&pd->ibv_pd)->imported = true;
	return &pd->ibv_pd;
}

void keel_unimport_pd(struct ibv_pd *ibpd)
{
	keel_free_pd(to_kpd(ibpd));
}
