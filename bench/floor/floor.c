// SPDX-License-Identifier: GPL-2.0
/*
 * keel_floor: a device that does nothing. Its one object type has a method that makes a
 * uobject and one that drops it. Its PD has no state, and its MR pins memory and cannot be
 * used. Such objects cost what ib_core costs, and no driver can be below it.
 * scripts/bench-objects measures them.
 */
#include <linux/module.h>
#include <rdma/ib_umem.h>
#include <rdma/ib_verbs.h>
#include <rdma/uverbs_ioctl.h>

#include "compat.h"
#include "floor.h"

#define UVERBS_MODULE_NAME	keel_floor
#include <rdma/uverbs_named_ioctl.h>

struct floor_dev {
	struct ib_device ibdev;
};

struct floor_pd {
	struct ib_pd ibpd;
};

struct floor_mr {
	struct ib_mr ibmr;
	struct ib_umem *umem;
};

struct floor_context {
	struct ib_ucontext ibuc;
};

static int floor_drop(struct ib_uobject *uobj, enum rdma_remove_reason why,
		      struct uverbs_attr_bundle *attrs)
{
	return 0;
}

static int UVERBS_HANDLER(KEEL_FLOOR_METHOD_MAKE)(struct uverbs_attr_bundle *attrs)
{
	struct ib_uobject *uobj = uverbs_attr_get_uobject(attrs,
							  KEEL_FLOOR_ATTR_HANDLE);

	/* Not NULL, as with any object. */
	uobj->object = uobj;
	return 0;
}

DECLARE_UVERBS_NAMED_METHOD(
	KEEL_FLOOR_METHOD_MAKE,
	UVERBS_ATTR_IDR(KEEL_FLOOR_ATTR_HANDLE, KEEL_FLOOR_OBJECT,
			UVERBS_ACCESS_NEW, UA_MANDATORY));

DECLARE_UVERBS_NAMED_METHOD_DESTROY(
	KEEL_FLOOR_METHOD_DROP,
	UVERBS_ATTR_IDR(KEEL_FLOOR_ATTR_HANDLE, KEEL_FLOOR_OBJECT,
			UVERBS_ACCESS_DESTROY, UA_MANDATORY));

DECLARE_UVERBS_NAMED_OBJECT(KEEL_FLOOR_OBJECT,
			    UVERBS_TYPE_ALLOC_IDR(floor_drop),
			    &UVERBS_METHOD(KEEL_FLOOR_METHOD_MAKE),
			    &UVERBS_METHOD(KEEL_FLOOR_METHOD_DROP));

static const struct uapi_definition floor_defs[] = {
	UAPI_DEF_CHAIN_OBJ_TREE_NAMED(KEEL_FLOOR_OBJECT),
	{},
};

static int floor_query_device(struct ib_device *ibdev, struct ib_device_attr *attr,
			      struct ib_udata *udata)
{
	attr->max_pd = INT_MAX;
	attr->max_mr = INT_MAX;
	attr->max_mr_size = U64_MAX;
	return 0;
}

static int floor_query_port(struct ib_device *ibdev, u32 port, struct ib_port_attr *attr)
{
	attr->state = IB_PORT_DOWN;
	attr->phys_state = IB_PORT_PHYS_STATE_DISABLED;
	attr->gid_tbl_len = 1;
	attr->pkey_tbl_len = 1;
	attr->active_width = IB_WIDTH_1X;
	attr->active_speed = IB_SPEED_SDR;
	attr->max_mtu = IB_MTU_1024;
	attr->active_mtu = IB_MTU_1024;
	return 0;
}

static int floor_query_pkey(struct ib_device *ibdev, u32 port, u16 index, u16 *pkey)
{
	*pkey = 0xffff;
	return 0;
}

static int floor_immutable(struct ib_device *ibdev, u32 port,
			   struct ib_port_immutable *immutable)
{
	immutable->gid_tbl_len = 1;
	immutable->pkey_tbl_len = 1;
	immutable->core_cap_flags = RDMA_CORE_CAP_PROT_USNIC;
	return 0;
}

static enum rdma_link_layer floor_link_layer(struct ib_device *ibdev, u32 port)
{
	return IB_LINK_LAYER_ETHERNET;
}

static int floor_alloc_context(struct ib_ucontext *ibuc, struct ib_udata *udata)
{
	return 0;
}

static void floor_dealloc_context(struct ib_ucontext *ibuc)
{
}

static int floor_alloc_pd(struct ib_pd *ibpd, struct ib_udata *udata)
{
	return 0;
}

static int floor_dealloc_pd(struct ib_pd *ibpd, struct ib_udata *udata)
{
	return 0;
}

static struct ib_mr *floor_reg_user_mr(struct ib_pd *ibpd, u64 start, u64 length, u64 iova,
				       int access, KEEL_DMAH_PARAM struct ib_udata *udata)
{
	struct floor_mr *mr = kzalloc_obj(*mr, GFP_KERNEL);
	int ret;

	if (!mr)
		return ERR_PTR(-ENOMEM);
	mr->umem = ib_umem_get_va(ibpd->device, start, length, access);
	if (!IS_ERR(mr->umem))
		return &mr->ibmr;
	ret = PTR_ERR(mr->umem);
	kfree(mr);
	return ERR_PTR(ret);
}

static int floor_dereg_mr(struct ib_mr *ibmr, struct ib_udata *udata)
{
	struct floor_mr *mr = container_of(ibmr, struct floor_mr, ibmr);

	ib_umem_release(mr->umem);
	kfree(mr);
	return 0;
}

static const struct ib_device_ops floor_ops = {
	.owner = THIS_MODULE,
	.driver_id = RDMA_DRIVER_UNKNOWN,
	.uverbs_abi_ver = 1,
	.query_device = floor_query_device,
	.query_port = floor_query_port,
	.query_pkey = floor_query_pkey,
	.get_port_immutable = floor_immutable,
	.get_link_layer = floor_link_layer,
	.alloc_ucontext = floor_alloc_context,
	.dealloc_ucontext = floor_dealloc_context,
	.alloc_pd = floor_alloc_pd,
	.dealloc_pd = floor_dealloc_pd,
	.reg_user_mr = floor_reg_user_mr,
	.dereg_mr = floor_dereg_mr,

	INIT_RDMA_OBJ_SIZE(ib_pd, floor_pd, ibpd),
	INIT_RDMA_OBJ_SIZE(ib_ucontext, floor_context, ibuc),
};

static struct floor_dev *floor;

static int __init floor_init(void)
{
	struct ib_device *ibdev;
	int ret;

	floor = ib_alloc_device(floor_dev, ibdev);
	if (!floor)
		return -ENOMEM;
	ibdev = &floor->ibdev;
	ibdev->node_type = RDMA_NODE_UNSPECIFIED;
	ibdev->phys_port_cnt = 1;
	ibdev->num_comp_vectors = 1;
	ibdev->driver_def = floor_defs;
	ib_set_device_ops(ibdev, &floor_ops);
	ret = ib_register_device(ibdev, "keel_floor", NULL);
	if (ret)
		ib_dealloc_device(ibdev);
	return ret;
}

static void __exit floor_exit(void)
{
	ib_unregister_device(&floor->ibdev);
	ib_dealloc_device(&floor->ibdev);
}

module_init(floor_init);
module_exit(floor_exit);

MODULE_AUTHOR("the keel authors");
MODULE_DESCRIPTION("RDMA device that does nothing, for measurements");
MODULE_LICENSE("GPL");
