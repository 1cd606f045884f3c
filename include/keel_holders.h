/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Attributes and response of the KEEL_METHOD_*_HOLDERS.
 */
#ifndef KEEL_HOLDERS_H
#define KEEL_HOLDERS_H

#include <rdma/uverbs_ioctl.h>
#include <rdma/keel-abi.h>

struct keel_obj;

/* holders.c */
int keel_holders_respond(struct uverbs_attr_bundle *attrs,
			 struct keel_obj *obj, bool core);

/* Attributes of every KEEL_METHOD_*_HOLDERS, except the handle. */
#define KEEL_HOLDERS_ATTRS						\
	UVERBS_ATTR_PTR_OUT(KEEL_ATTR_HOLDERS_RESP_LIST,		\
			    UVERBS_ATTR_MIN_SIZE(0), UA_OPTIONAL),	\
	UVERBS_ATTR_PTR_OUT(KEEL_ATTR_HOLDERS_RESP_COUNT,		\
			    UVERBS_ATTR_TYPE(u32), UA_MANDATORY),	\
	UVERBS_ATTR_FLAGS_IN(KEEL_ATTR_HOLDERS_FLAGS,			\
			     enum keel_uapi_holders_flags, UA_OPTIONAL)

#endif /* KEEL_HOLDERS_H */
