// SPDX-License-Identifier: GPL-2.0
/*
 * Device memory: ibv_alloc_dm(). dm_map.c maps it to userspace.
 */
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <rdma/uverbs_std_types.h>

#include "keel.h"
#include "keel_dm.h"
#include "keel_holders.h"

static void keel_dm_free_mem(struct keel_dm *dm)
{
	if (dm->page) {
		keel_dm_pool_free(dm);
		return;
	}
	keel_aperture_free(dm->ap, dm->start, dm->length);
	keel_quota_uncharge(dm->user, KEEL_RES_DM_BYTES,
			    PAGE_ALIGN(dm->length));
}

static void keel_dm_release(struct keel_obj *obj)
{
	struct keel_dm *dm = container_of(obj, struct keel_dm, obj);

	/*
	 * Every MR of the buffer holds this object. Every mmap entry has a
	 * reference until its last mapping and dma-buf are freed, and a dma-buf
	 * is freed after its MRs. So no thread can access the bytes.
	 */
	context_unsafe(WARN_ON(!list_empty(&dm->maps)));
	keel_dm_free_mem(dm);
	mutex_destroy(&dm->lock);
	kfree_rcu(dm, obj.rcu);
}

static void keel_dm_describe(const struct keel_obj *obj, struct seq_file *m)
{
	const struct keel_dm *dm = container_of(obj, struct keel_dm, obj);

	seq_printf(m, " start 0x%llx length %llu", dm->start, dm->length);
}

static const struct keel_obj_ops keel_dm_obj_ops = {
	.describe = keel_dm_describe,
	.release = keel_dm_release,
};

/* Allocate pages for one buffer, after charging them to the user. */
static int keel_dm_alloc_pages(struct keel_dev *kdev, struct keel_dm *dm,
			       u32 log_align)
{
	u64 bytes = PAGE_ALIGN(dm->length);
	int ret;

	dm->user = keel_quota_charge(&kdev->reg.quotas, KEEL_RES_DM_BYTES,
				     bytes, GFP_KERNEL_ACCOUNT);
	if (IS_ERR(dm->user))
		return -ENOMEM;
	ret = keel_aperture_alloc(dm->ap, dm->length, log_align, &dm->start);
	if (ret)
		keel_quota_uncharge(dm->user, KEEL_RES_DM_BYTES, bytes);
	return ret;
}

/* With @pool, a small buffer may share a page with others of its context. */
static int keel_dm_alloc_mem(struct keel_dev *kdev, struct keel_dm *dm,
			     u32 log_align, struct keel_dm_pool *pool)
{
	/* Report an invalid length or alignment before a quota. */
	int ret = keel_range_check(&dm->ap->range, dm->length, log_align);

	if (ret)
		return ret;
	if (pool && keel_dm_pool_fits(pool, dm->length, log_align))
		return keel_dm_pool_alloc(pool, dm, log_align);
	return keel_dm_alloc_pages(kdev, dm, log_align);
}

static struct ib_dm *keel_alloc_dm(struct ib_device *ibdev,
				   struct ib_ucontext *context,
				   struct ib_dm_alloc_attr *attr,
				   struct uverbs_attr_bundle *attrs)
{
	struct keel_dev *kdev = to_kdev(ibdev);
	struct keel_ib_dm *wrap __free(kfree) =
		kzalloc_obj(*wrap, GFP_KERNEL_ACCOUNT);
	struct keel_dm *dm __free(kfree) = kzalloc_obj(*dm, GFP_KERNEL_ACCOUNT);
	struct keel_dm_pool *pool = NULL;
	u32 flags;
	int ret;

	if (kdev->ap->encrypted)
		return ERR_PTR(-EOPNOTSUPP);
	ret = uverbs_get_flags32(&flags, attrs, KEEL_ATTR_DM_ALLOC_FLAGS,
				 KEEL_DM_ALLOC_SHARES_PAGE);
	if (ret)
		return ERR_PTR(ret);
	if (flags && !keel_dm_export_offered(kdev))
		pool = to_kctx(context)->dm_pool;
	if (!wrap || !dm)
		return ERR_PTR(-ENOMEM);
	dm->ap = kdev->ap;
	dm->length = attr->length;
	mutex_init(&dm->lock);
	/* No other thread has the buffer yet. */
	context_unsafe(INIT_LIST_HEAD(&dm->maps));
	ret = keel_dm_alloc_mem(kdev, dm, attr->alignment, pool);
	if (ret)
		return ERR_PTR(ret);
	ret = keel_obj_add(&kdev->reg, &dm->obj, KEEL_DM, &keel_dm_obj_ops,
			   NULL, NULL);
	if (ret) {
		keel_dm_free_mem(dm);
		return ERR_PTR(ret);
	}
	wrap->dm = no_free_ptr(dm);
	return &no_free_ptr(wrap)->ib;
}

static int keel_dealloc_dm(struct ib_dm *ibdm, struct uverbs_attr_bundle *attrs)
{
	struct keel_ib_dm *wrap = container_of(ibdm, struct keel_ib_dm, ib);

	/* ib_core has ensured that no MR is left. */
	keel_dm_unmap(wrap->dm);
	keel_obj_close(&wrap->dm->obj);
	kfree(wrap);
	return 0;
}

static_assert(sizeof(struct keel_uapi_dm_info) == 16);

static int UVERBS_HANDLER(KEEL_METHOD_DM_QUERY)(
	struct uverbs_attr_bundle *attrs)
{
	struct ib_dm *ibdm = uverbs_attr_get_obj(attrs,
						 KEEL_ATTR_DM_QUERY_HANDLE);
	struct keel_uapi_dm_info info = {
		.start = to_kdm(ibdm)->start,
		.length = to_kdm(ibdm)->length,
	};

	return uverbs_copy_to_struct_or_zero(attrs, KEEL_ATTR_DM_QUERY_RESP,
					     &info, sizeof(info));
}

static int UVERBS_HANDLER(KEEL_METHOD_DM_HOLDERS)(
	struct uverbs_attr_bundle *attrs)
{
	struct ib_dm *ibdm = uverbs_attr_get_obj(attrs,
						 KEEL_ATTR_HOLDERS_HANDLE);

	return keel_holders_respond(attrs, &to_kdm(ibdm)->obj, true);
}

ADD_UVERBS_ATTRIBUTES_SIMPLE(
	keel_dm_alloc, UVERBS_OBJECT_DM, UVERBS_METHOD_DM_ALLOC,
	UVERBS_ATTR_FLAGS_IN(KEEL_ATTR_DM_ALLOC_FLAGS, enum keel_dm_alloc_flags));

DECLARE_UVERBS_NAMED_METHOD(
	KEEL_METHOD_DM_QUERY,
	UVERBS_ATTR_IDR(KEEL_ATTR_DM_QUERY_HANDLE, UVERBS_OBJECT_DM,
			UVERBS_ACCESS_READ, UA_MANDATORY),
	UVERBS_ATTR_PTR_OUT(KEEL_ATTR_DM_QUERY_RESP,
			    UVERBS_ATTR_STRUCT(struct keel_uapi_dm_info,
					       length),
			    UA_MANDATORY));

DECLARE_UVERBS_NAMED_METHOD(
	KEEL_METHOD_DM_HOLDERS,
	UVERBS_ATTR_IDR(KEEL_ATTR_HOLDERS_HANDLE, UVERBS_OBJECT_DM,
			UVERBS_ACCESS_READ, UA_MANDATORY),
	KEEL_HOLDERS_ATTRS);

ADD_UVERBS_METHODS(keel_dm_methods, UVERBS_OBJECT_DM,
		   &UVERBS_METHOD(KEEL_METHOD_DM_QUERY),
		   &UVERBS_METHOD(KEEL_METHOD_DM_HOLDERS));

const struct uapi_definition keel_dm_defs[] = {
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_DM, &keel_dm_methods),
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_DM, &keel_dm_alloc),
	{},
};

const struct ib_device_ops keel_dm_ops = {
	.alloc_dm = keel_alloc_dm,
	.dealloc_dm = keel_dealloc_dm,
};
