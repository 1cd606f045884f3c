// SPDX-License-Identifier: GPL-2.0
/*
 * Protection domains: ibv_alloc_pd(), ibv_alloc_parent_domain() and
 * ibv_share_pd().
 *
 * All three create PD uobjects and struct ib_pd's. So the kernel lists, counts,
 * charges and cleans up each of them like any PD (rdma resource show, the rdma
 * cgroup), and every verb that takes a PD takes any of them.
 */
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <rdma/uverbs_std_types.h>

#include "keel.h"
#include "keel_holders.h"

static void keel_pd_release(struct keel_obj *obj)
{
	struct keel_pd *pd = container_of(obj, struct keel_pd, obj);

	kfree_rcu(pd, obj.rcu);
}

static void keel_pd_describe(const struct keel_obj *obj, struct seq_file *m)
{
	const struct keel_pd *pd = container_of(obj, struct keel_pd, obj);

	seq_printf(m, " domain %u%s", pd->domain->obj.id,
		   pd->joined ? " joined" : "");
}

static const struct keel_obj_ops keel_pd_obj_ops = {
	.describe = keel_pd_describe,
	.release = keel_pd_release,
};

/*
 * Create a PD of a domain. Consumes the caller's instance of the domain, and its
 * reference: the PD takes its own.
 */
static struct keel_pd *keel_pd_create(struct keel_dev *kdev,
				      struct keel_domain *domain, bool joined)
{
	struct keel_pd *pd;
	int ret = -ENOMEM;

	if (IS_ERR(domain))
		return ERR_CAST(domain);
	pd = kzalloc_obj(*pd, keel_gfp_of(domain->obj.kernel));
	if (!pd)
		goto err_leave;
	pd->domain = domain;
	pd->joined = joined;
	keel_obj_may_hold(&pd->obj, pd->holds);
	ret = keel_obj_add(&kdev->reg, &pd->obj, KEEL_PD, &keel_pd_obj_ops,
			   &domain->obj, NULL);
	if (ret)
		goto err_free;
	keel_obj_put(&domain->obj);
	return pd;

err_free:
	kfree(pd);
err_leave:
	keel_domain_leave(kdev, domain);
	keel_obj_put(&domain->obj);
	return ERR_PTR(ret);
}

/*
 * The caller holds the read locks of both uobjects: neither can be destroyed
 * between the check and the increment of its users, which makes destroy fail.
 */
static struct keel_pd *keel_pd_parent(struct keel_dev *kdev,
				      struct keel_pd *base, struct keel_td *td)
{
	struct keel_pd *pd;
	int ret;

	if (base->base)
		return ERR_PTR(-EINVAL);
	pd = kzalloc_obj(*pd, GFP_KERNEL_ACCOUNT);
	if (!pd)
		return ERR_PTR(-ENOMEM);
	pd->domain = base->domain;
	pd->base = base;
	pd->td = td;
	keel_obj_may_hold(&pd->obj, pd->holds);
	ret = keel_obj_add(&kdev->reg, &pd->obj, KEEL_PARENT, &keel_pd_obj_ops,
			   &base->obj, td ? &td->obj : NULL);
	if (ret) {
		kfree(pd);
		return ERR_PTR(ret);
	}
	atomic_inc(&base->users);
	if (td)
		atomic_inc(&td->users);
	return pd;
}

static void keel_pd_close(struct keel_dev *kdev, struct keel_pd *pd)
{
	if (pd->base) {
		atomic_dec(&pd->base->users);
		if (pd->td)
			atomic_dec(&pd->td->users);
	} else {
		keel_domain_leave(kdev, pd->domain);
	}
	keel_obj_close(&pd->obj);
}

static_assert(sizeof(struct keel_uapi_alloc_pd_req) == 16);
static_assert(sizeof(struct keel_uapi_pd_info) == 8);

static struct keel_uapi_pd_info keel_pd_info(const struct keel_pd *pd)
{
	return (struct keel_uapi_pd_info){
		.domain = pd->domain->obj.id,
		.kind = pd->base ? KEEL_UAPI_PD_PARENT :
			pd->joined ? KEEL_UAPI_PD_SHARED : KEEL_UAPI_PD_PLAIN,
	};
}

static int keel_alloc_pd(struct ib_pd *ibpd, struct ib_udata *udata)
{
	struct keel_dev *kdev = to_kdev(ibpd->device);
	struct keel_uapi_alloc_pd_req req = {};
	struct keel_uapi_pd_info info;
	struct keel_domain *domain;
	struct keel_pd *pd;
	int ret;

	if (udata && udata->inlen) {
		ret = ib_copy_validate_udata_in(udata, req, share_key);
		if (ret)
			return ret;
	}
	if (req.kind == KEEL_UAPI_PD_SHARED)
		domain = keel_shpd_join(kdev, req.shpd_handle, req.share_key);
	else if (req.kind == KEEL_UAPI_PD_PLAIN && !req.shpd_handle &&
		 !req.share_key)
		domain = keel_domain_create(kdev, !udata);
	else
		return -EINVAL;
	pd = keel_pd_create(kdev, domain, req.kind == KEEL_UAPI_PD_SHARED);
	if (IS_ERR(pd))
		return PTR_ERR(pd);

	info = keel_pd_info(pd);
	if (udata) {
		ret = ib_respond_udata(udata, info);
		if (ret) {
			keel_pd_close(kdev, pd);
			return ret;
		}
	}
	to_kibpd(ibpd)->pd = pd;
	return 0;
}

static int keel_dealloc_pd(struct ib_pd *ibpd, struct ib_udata *udata)
{
	struct keel_pd *pd = to_kpd(ibpd);

	/* ib_core has checked its own count. keel counts parent domains. */
	if (atomic_read(&pd->users)) {
		keel_obj_refused(&pd->obj);
		return -EBUSY;
	}
	keel_pd_close(to_kdev(ibpd->device), pd);
	return 0;
}

static int UVERBS_HANDLER(KEEL_METHOD_PD_ALLOC_PARENT)(
	struct uverbs_attr_bundle *attrs)
{
	struct ib_uobject *uobj =
		uverbs_attr_get_uobject(attrs, KEEL_ATTR_PD_ALLOC_PARENT_HANDLE);
	struct ib_pd *base =
		uverbs_attr_get_obj(attrs, KEEL_ATTR_PD_ALLOC_PARENT_PD);
	struct ib_device *ibdev = attrs->context->device;
	struct keel_uapi_pd_info info;
	struct keel_td *td = NULL;
	struct keel_pd *pd;
	struct ib_pd *ibpd;

	if (uverbs_attr_is_valid(attrs, KEEL_ATTR_PD_ALLOC_PARENT_TD))
		td = uverbs_attr_get_obj(attrs, KEEL_ATTR_PD_ALLOC_PARENT_TD);

	ibpd = rdma_zalloc_drv_obj_gfp(ibdev, ib_pd, GFP_KERNEL_ACCOUNT);
	if (!ibpd)
		return -ENOMEM;
	pd = keel_pd_parent(to_kdev(ibdev), to_kpd(base), td);
	if (IS_ERR(pd)) {
		kfree(ibpd);
		return PTR_ERR(pd);
	}
	to_kibpd(ibpd)->pd = pd;
	ibpd->device = ibdev;
	ibpd->uobject = uobj;
	atomic_set(&ibpd->usecnt, 0);
	/* As ALLOC_PD of ib_core does, to list it. */
	rdma_restrack_new(&ibpd->res, RDMA_RESTRACK_PD);
	rdma_restrack_set_name(&ibpd->res, NULL);
	rdma_restrack_add(&ibpd->res);

	/* From here on, ib_core destroys it if the response fails. */
	uobj->object = ibpd;
	uverbs_finalize_uobj_create(attrs, KEEL_ATTR_PD_ALLOC_PARENT_HANDLE);
	info = keel_pd_info(pd);
	return uverbs_copy_to_struct_or_zero(attrs,
					     KEEL_ATTR_PD_ALLOC_PARENT_RESP,
					     &info, sizeof(info));
}

static int UVERBS_HANDLER(KEEL_METHOD_PD_QUERY)(
	struct uverbs_attr_bundle *attrs)
{
	struct ib_pd *ibpd = uverbs_attr_get_obj(attrs,
						 KEEL_ATTR_PD_QUERY_HANDLE);
	struct keel_uapi_pd_info info = keel_pd_info(to_kpd(ibpd));

	return uverbs_copy_to_struct_or_zero(attrs, KEEL_ATTR_PD_QUERY_RESP,
					     &info, sizeof(info));
}

static int UVERBS_HANDLER(KEEL_METHOD_PD_HOLDERS)(
	struct uverbs_attr_bundle *attrs)
{
	struct ib_pd *ibpd = uverbs_attr_get_obj(attrs,
						 KEEL_ATTR_HOLDERS_HANDLE);

	return keel_holders_respond(attrs, &to_kpd(ibpd)->obj,
				    atomic_read(&ibpd->usecnt));
}

DECLARE_UVERBS_NAMED_METHOD(
	KEEL_METHOD_PD_ALLOC_PARENT,
	UVERBS_ATTR_IDR(KEEL_ATTR_PD_ALLOC_PARENT_HANDLE, UVERBS_OBJECT_PD,
			UVERBS_ACCESS_NEW, UA_MANDATORY),
	UVERBS_ATTR_IDR(KEEL_ATTR_PD_ALLOC_PARENT_PD, UVERBS_OBJECT_PD,
			UVERBS_ACCESS_READ, UA_MANDATORY),
	UVERBS_ATTR_IDR(KEEL_ATTR_PD_ALLOC_PARENT_TD, KEEL_OBJECT_TD,
			UVERBS_ACCESS_READ, UA_OPTIONAL),
	UVERBS_ATTR_PTR_OUT(KEEL_ATTR_PD_ALLOC_PARENT_RESP,
			    UVERBS_ATTR_STRUCT(struct keel_uapi_pd_info, kind),
			    UA_MANDATORY));

DECLARE_UVERBS_NAMED_METHOD(
	KEEL_METHOD_PD_QUERY,
	UVERBS_ATTR_IDR(KEEL_ATTR_PD_QUERY_HANDLE, UVERBS_OBJECT_PD,
			UVERBS_ACCESS_READ, UA_MANDATORY),
	UVERBS_ATTR_PTR_OUT(KEEL_ATTR_PD_QUERY_RESP,
			    UVERBS_ATTR_STRUCT(struct keel_uapi_pd_info, kind),
			    UA_MANDATORY));

DECLARE_UVERBS_NAMED_METHOD(
	KEEL_METHOD_PD_HOLDERS,
	UVERBS_ATTR_IDR(KEEL_ATTR_HOLDERS_HANDLE, UVERBS_OBJECT_PD,
			UVERBS_ACCESS_READ, UA_MANDATORY),
	KEEL_HOLDERS_ATTRS);

ADD_UVERBS_METHODS(keel_pd_methods, UVERBS_OBJECT_PD,
		   &UVERBS_METHOD(KEEL_METHOD_PD_ALLOC_PARENT),
		   &UVERBS_METHOD(KEEL_METHOD_PD_QUERY),
		   &UVERBS_METHOD(KEEL_METHOD_PD_HOLDERS));

const struct uapi_definition keel_pd_defs[] = {
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_PD, &keel_pd_methods),
	{},
};

const struct ib_device_ops keel_pd_ops = {
	.alloc_pd = keel_alloc_pd,
	.dealloc_pd = keel_dealloc_pd,

	INIT_RDMA_OBJ_SIZE(ib_pd, keel_ib_pd, ib),
};
