// SPDX-License-Identifier: GPL-2.0
/*
 * The holders of an object: they tell why it is busy. For every object that has
 * a KEEL_METHOD_*_HOLDERS.
 */
#include <linux/slab.h>

#include "keel.h"
#include "keel_holders.h"

static_assert(sizeof(struct keel_uapi_holder) == 32);

/**
 * keel_holders_respond() - implement a KEEL_METHOD_*_HOLDERS
 * @attrs: the call
 * @obj: the object, kept by the lock that the call has on its uobject
 * @core: ib_core refuses to destroy the object itself, without calling keel
 *
 * Return: 0 or a negative errno.
 */
int keel_holders_respond(struct uverbs_attr_bundle *attrs,
			 struct keel_obj *obj, bool core)
{
	struct keel_uapi_holder *list __free(kvfree) = NULL;
	u32 room = 0, flags, count;
	int ret;

	ret = uverbs_get_flags32(&flags, attrs, KEEL_ATTR_HOLDERS_FLAGS,
				 KEEL_UAPI_HOLDERS_F_REFUSED);
	if (ret)
		return ret;

	if (uverbs_attr_is_valid(attrs, KEEL_ATTR_HOLDERS_RESP_LIST)) {
		ret = uverbs_attr_ptr_get_array_size(attrs,
						     KEEL_ATTR_HOLDERS_RESP_LIST,
						     sizeof(*list));
		if (ret < 0)
			return ret;
		room = min(ret, KEEL_UAPI_HOLDERS_MAX);
		list = kvcalloc(room, sizeof(*list), GFP_KERNEL);
		if (!list)
			return -ENOMEM;
	}
	if (core && flags & KEEL_UAPI_HOLDERS_F_REFUSED)
		keel_obj_refused(obj);
	count = keel_obj_holders(obj, list, room);
	if (room && count) {
		ret = uverbs_copy_to(attrs, KEEL_ATTR_HOLDERS_RESP_LIST, list,
				     min(room, count) * sizeof(*list));
		if (ret)
			return ret;
	}
	return uverbs_copy_to(attrs, KEEL_ATTR_HOLDERS_RESP_COUNT, &count,
			      sizeof(count));
}
