/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Thread domains. They are a driver-specific object of the kernel, which counts
 * their users.
 */
#include <errno.h>
#include <stdlib.h>

#include <infiniband/cmd_write.h>

#include "keel.h"

static int keel_cmd_alloc_td(struct ibv_context *ibctx, struct keel_td *td)
{
	DECLARE_COMMAND_BUFFER(cmdb, KEEL_OBJECT_TD, KEEL_METHOD_TD_ALLOC, 1);
	struct ib_uverbs_attr *handle;
	int ret;

	handle = fill_attr_out_obj(cmdb, KEEL_ATTR_TD_ALLOC_HANDLE);
	ret = execute_ioctl(ibctx, cmdb);
	if (ret)
		return ret;

	td->handle = read_attr_obj(KEEL_ATTR_TD_ALLOC_HANDLE, handle);
	td->ibv_td.context = ibctx;
	return 0;
}

static int keel_cmd_free_td(struct keel_td *td)
{
	DECLARE_COMMAND_BUFFER(cmdb, KEEL_OBJECT_TD, KEEL_METHOD_TD_FREE, 1);
	int ret;

	fill_attr_in_obj(cmdb, KEEL_ATTR_TD_FREE_HANDLE, td->handle);
	ret = execute_ioctl(td->ibv_td.context, cmdb);
	/* May turn EIO into 0: device removal has destroyed the TD. */
	verbs_is_destroy_err(&ret);
	return ret;
}

struct ibv_td *keel_alloc_td(struct ibv_context *ibctx,
			     struct ibv_td_init_attr *attr)
{
	struct keel_td *td;
	int ret;

	if (attr->comp_mask) {
		errno = EINVAL;
		return NULL;
	}

	td = calloc(1, sizeof(*td));
	if (!td)
		return NULL;

	ret = keel_cmd_alloc_td(ibctx, td);
	if (ret) {
		free(td);
		errno = ret;
		return NULL;
	}
	return &td->ibv_td;
}

int keel_dealloc_td(struct ibv_td *ibtd)
{
	struct keel_td *td = to_ktd(ibtd);
	int ret;

	ret = keel_cmd_free_td(td);
	if (ret == EBUSY)
		keel_report_busy(ibtd->context, &keel_holders_of_td,
				 td->handle);
	if (ret)
		return ret;

	free(td);
	return 0;
}
