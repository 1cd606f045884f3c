/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Address handles. The kernel returns the number of an AH for send WQEs.
 */
#include <errno.h>
#include <stdlib.h>

#include "keel.h"

/* See keel.c. */
#define _STRUCT_keel_uapi_create_ah_resp struct {}

DECLARE_DRV_CMD(keel_create_ah_cmd, IB_USER_VERBS_CMD_CREATE_AH,
		empty, keel_uapi_create_ah_resp);

struct ibv_ah *keel_create_ah(struct ibv_pd *ibpd, struct ibv_ah_attr *attr)
{
	struct keel_create_ah_cmd_resp resp = {};
	struct keel_ah *ah;
	int ret;

	ah = calloc(1, sizeof(*ah));
	if (!ah)
		return NULL;

	ret = ibv_cmd_create_ah(ibpd, &ah->ibv_ah, attr, &resp.ibv_resp,
				sizeof(resp));
	if (ret) {
		free(ah);
		errno = ret;
		return NULL;
	}
	ah->ah = resp.drv_payload.ah;
	return &ah->ibv_ah;
}

int keel_destroy_ah(struct ibv_ah *ibah)
{
	int ret;

	ret = ibv_cmd_destroy_ah(ibah);
	if (ret)
		return ret;

	free(to_kah(ibah));
	return 0;
}
