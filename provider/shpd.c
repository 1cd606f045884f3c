/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Shared protection domains: see <infiniband/shpd.h>.
 *
 * The application may pass objects of other providers. So each call checks the
 * provider of an object first.
 */
#include <errno.h>
#include <stdlib.h>

#include "keel.h"
#include "shpd.h"

static int keel_cmd_share_pd(struct ibv_pd *ibpd, uint64_t share_key,
			     uint32_t *handle)
{
	DECLARE_COMMAND_BUFFER(cmdb, UVERBS_OBJECT_PD, KEEL_METHOD_PD_SHARE, 3);

	fill_attr_in_obj(cmdb, KEEL_ATTR_PD_SHARE_HANDLE, ibpd->handle);
	fill_attr_in_uint64(cmdb, KEEL_ATTR_PD_SHARE_KEY, share_key);
	fill_attr_out_ptr(cmdb, KEEL_ATTR_PD_SHARE_RESP_SHPD, handle);

	return execute_ioctl(ibpd->context, cmdb);
}

struct ibv_shpd *ibv_alloc_shpd(struct ibv_pd *pd, uint64_t share_key,
				struct ibv_shpd *shpd)
{
	uint32_t handle;
	int ret;

	if (!pd || !shpd) {
		errno = EINVAL;
		return NULL;
	}
	if (!keel_is_ours(pd->context->device)) {
		errno = EOPNOTSUPP;
		return NULL;
	}

	ret = keel_cmd_share_pd(pd, share_key, &handle);
	if (ret) {
		errno = ret;
		return NULL;
	}

	/* The application may send it as bytes, so initialise the padding. */
	memset(shpd, 0, sizeof(*shpd));
	shpd->context = pd->context;
	shpd->handle = handle;
	return shpd;
}

/* @shpd may come from another process, so its context pointer is ignored. */
struct ibv_pd *ibv_share_pd(struct ibv_context *context, struct ibv_shpd *shpd,
			    uint64_t share_key)
{
	struct keel_uapi_alloc_pd_req req = { .kind = KEEL_UAPI_PD_SHARED };

	if (!context || !shpd) {
		errno = EINVAL;
		return NULL;
	}
	if (!keel_is_ours(context->device)) {
		errno = EOPNOTSUPP;
		return NULL;
	}

	req.shpd_handle = shpd->handle;
	req.share_key = share_key;
	return keel_new_pd(context, &req);
}
