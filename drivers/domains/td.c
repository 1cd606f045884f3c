// SPDX-License-Identifier: GPL-2.0
/*
 * Thread domains: ibv_alloc_td(). The common verbs have no such object, so keel
 * defines its own. It has no ib_core structure: the uobject points directly to
 * it.
 */
#include <linux/slab.h>
#include <rdma/uverbs_std_types.h>

#include "keel.h"
#include "keel_holders.h"

static void keel_td_release(struct keel_obj *obj)
{
	struct keel_td *td = container_of(obj, struct keel_td, obj);

	kfree_rcu(td, obj.rcu);
}

static const struct keel_obj_ops keel_td_obj_ops = {
	.release = keel_td_release,
};

static int keel_free_td(struct ib_uobject *uobj, enum rdma_remove_reason why,
			struct uverbs_attr_bundle *attrs)
{
	struct keel_td *td = uobj->object;

	if (atomic_read(&td->users)) {
		keel_obj_refused(&td->obj);
		return -EBUSY;
	}
	keel_obj_close(&td->obj);
	return 0;
}

static int UVERBS_HANDLER(KEEL_METHOD_TD_ALLOC)(
	struct uverbs_attr_bundle *attrs)
{
	struct ib_uobject *uobj =
		uverbs_attr_get_uobject(attrs, KEEL_ATTR_TD_ALLOC_HANDLE);
	struct keel_dev *kdev = to_kdev(attrs->context->device);
	struct keel_td *td;
	int ret;

	td = kzalloc_obj(*td, GFP_KERNEL_ACCOUNT);
	if (!td)
		return -ENOMEM;
	ret = keel_obj_add(&kdev->reg, &td->obj, KEEL_TD, &keel_td_obj_ops,
			   NULL, NULL);
	if (ret) {
		kfree(td);
		return ret;
	}
	uobj->object = td;
	return 0;
}

static int UVERBS_HANDLER(KEEL_METHOD_TD_HOLDERS)(
	struct uverbs_attr_bundle *attrs)
{
	struct keel_td *td = uverbs_attr_get_obj(attrs,
						 KEEL_ATTR_HOLDERS_HANDLE);

	return keel_holders_respond(attrs, &td->obj, false);
}

DECLARE_UVERBS_NAMED_METHOD(
	KEEL_METHOD_TD_ALLOC,
	UVERBS_ATTR_IDR(KEEL_ATTR_TD_ALLOC_HANDLE, KEEL_OBJECT_TD,
			UVERBS_ACCESS_NEW, UA_MANDATORY));

DECLARE_UVERBS_NAMED_METHOD_DESTROY(
	KEEL_METHOD_TD_FREE,
	UVERBS_ATTR_IDR(KEEL_ATTR_TD_FREE_HANDLE, KEEL_OBJECT_TD,
			UVERBS_ACCESS_DESTROY, UA_MANDATORY));

DECLARE_UVERBS_NAMED_METHOD(
	KEEL_METHOD_TD_HOLDERS,
	UVERBS_ATTR_IDR(KEEL_ATTR_HOLDERS_HANDLE, KEEL_OBJECT_TD,
			UVERBS_ACCESS_READ, UA_MANDATORY),
	KEEL_HOLDERS_ATTRS);

DECLARE_UVERBS_NAMED_OBJECT(KEEL_OBJECT_TD,
			    UVERBS_TYPE_ALLOC_IDR(keel_free_td),
			    &UVERBS_METHOD(KEEL_METHOD_TD_ALLOC),
			    &UVERBS_METHOD(KEEL_METHOD_TD_FREE),
			    &UVERBS_METHOD(KEEL_METHOD_TD_HOLDERS));

const struct uapi_definition keel_td_defs[] = {
	UAPI_DEF_CHAIN_OBJ_TREE_NAMED(KEEL_OBJECT_TD),
	{},
};
