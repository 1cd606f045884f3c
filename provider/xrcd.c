/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * XRC domains. The kernel associates them with inodes and counts their users.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "keel.h"

#define KEEL_XRCD_REQUIRED \
	(IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS)

static bool attr_is_valid(const struct ibv_xrcd_init_attr *attr)
{
	if (attr->comp_mask != KEEL_XRCD_REQUIRED)
		return false;
	/*
	 * Without a file, an XRC domain cannot be opened, only created.
	 * ib_uverbs would create it even without O_CREAT.
	 */
	return attr->fd != -1 || (attr->oflags & O_CREAT);
}

struct ibv_xrcd *keel_open_xrcd(struct ibv_context *ibctx,
				struct ibv_xrcd_init_attr *attr)
{
	struct ib_uverbs_open_xrcd_resp resp = {};
	struct ibv_open_xrcd cmd = {};
	struct verbs_xrcd *xrcd;
	int ret;

	if (!attr_is_valid(attr)) {
		errno = EINVAL;
		return NULL;
	}

	xrcd = calloc(1, sizeof(*xrcd));
	if (!xrcd)
		return NULL;

	ret = ibv_cmd_open_xrcd(ibctx, xrcd, sizeof(*xrcd), attr, &cmd,
				sizeof(cmd), &resp, sizeof(resp));
	if (ret) {
		free(xrcd);
		errno = ret;
		return NULL;
	}
	return &xrcd->xrcd;
}

int keel_close_xrcd(struct ibv_xrcd *ibxrcd)
{
	struct verbs_xrcd *xrcd = container_of(ibxrcd, struct verbs_xrcd, xrcd);
	int ret;

	ret = ibv_cmd_close_xrcd(xrcd);
	if (ret)
		return ret;

	free(xrcd);
	return 0;
}
