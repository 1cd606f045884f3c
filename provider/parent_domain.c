/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Parent domains: a second handle of a PD, with an optional thread domain and
 * optional allocators for queue buffers.
 */
#include <errno.h>
#include <stdlib.h>

#include "keel.h"

#define KEEL_PARENT_DOMAIN_SUPPORTED				\
	(IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |		\
	 IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT)

/*
 * The kernel gets handles. A handle of another context may exist in this
 * context for a different object. So the provider compares the contexts.
 */
static bool attr_is_valid(struct ibv_context *ibctx,
			  const struct ibv_parent_domain_init_attr *attr)
{
	if (!attr->pd || attr->pd->context != ibctx)
		return false;
	if (to_kpd(attr->pd)->kind == KEEL_UAPI_PD_PARENT)
		return false;
	if (attr->td && attr->td->context != ibctx)
		return false;
	if (!check_comp_mask(attr->comp_mask, KEEL_PARENT_DOMAIN_SUPPORTED))
		return false;
	if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS)
		return attr->alloc && attr->free;
	return true;
}

/* Members whose comp_mask bit is clear may be uninitialised. */
static void take_attr(struct keel_parent_domain *parent,
		      const struct ibv_parent_domain_init_attr *attr)
{
	if (attr->td)
		parent->td = to_ktd(attr->td);
	if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) {
		parent->alloc = attr->alloc;
		parent->free = attr->free;
	}
	if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT)
		parent->pd_context = attr->pd_context;
}

static int keel_cmd_alloc_parent(struct keel_parent_domain *parent,
				 struct ibv_pd *ibpd)
{
	DECLARE_COMMAND_BUFFER(cmdb, UVERBS_OBJECT_PD,
			       KEEL_METHOD_PD_ALLOC_PARENT, 4);
	struct keel_uapi_pd_info info;
	struct ib_uverbs_attr *handle;
	int ret;

	handle = fill_attr_out_obj(cmdb, KEEL_ATTR_PD_ALLOC_PARENT_HANDLE);
	fill_attr_in_obj(cmdb, KEEL_ATTR_PD_ALLOC_PARENT_PD, ibpd->handle);
	if (parent->td)
		fill_attr_in_obj(cmdb, KEEL_ATTR_PD_ALLOC_PARENT_TD,
				 parent->td->handle);
	fill_attr_out_ptr(cmdb, KEEL_ATTR_PD_ALLOC_PARENT_RESP, &info);
	ret = execute_ioctl(ibpd->context, cmdb);
	if (ret)
		return ret;

	parent->pd.ibv_pd.context = ibpd->context;
	parent->pd.ibv_pd.handle =
		read_attr_obj(KEEL_ATTR_PD_ALLOC_PARENT_HANDLE, handle);
	parent->pd.kind = info.kind;
	parent->pd.domain = info.domain;
	return 0;
}

struct ibv_pd *keel_alloc_parent_domain(struct ibv_context *ibctx,
					struct ibv_parent_domain_init_attr *attr)
{
	struct keel_parent_domain *parent;
	int ret;

	if (!attr_is_valid(ibctx, attr)) {
		errno = EINVAL;
		return NULL;
	}

	parent = calloc(1, sizeof(*parent));
	if (!parent)
		return NULL;
	take_attr(parent, attr);

	ret = keel_cmd_alloc_parent(parent, attr->pd);
	if (ret) {
		free(parent);
		errno = ret;
		return NULL;
	}
	return &parent->pd.ibv_pd;
}
