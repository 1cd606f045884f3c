// SPDX-License-Identifier: GPL-2.0
/*
 * The device: what it says of itself, and how it comes and goes.
 */
#include <linux/module.h>
#include <net/addrconf.h>

#include "keel.h"

static unsigned long dm_size = SZ_64M;
module_param(dm_size, ulong, 0444);
MODULE_PARM_DESC(dm_size,
		 "Bytes of device memory of a new device (default 64 MiB, below 4 GiB)");

unsigned int keel_dm_access_align = 1;

static int keel_set_access_align(const char *val, const struct kernel_param *kp)
{
	unsigned int align;
	int ret = kstrtouint(val, 0, &align);

	if (ret)
		return ret;
	if (!is_power_of_2(align) || align > PAGE_SIZE)
		return -EINVAL;
	WRITE_ONCE(keel_dm_access_align, align);
	return 0;
}

static const struct kernel_param_ops keel_access_align_ops = {
	.set = keel_set_access_align,
	.get = param_get_uint,
};
module_param_cb(dm_access_align, &keel_access_align_ops, &keel_dm_access_align,
		0644);
MODULE_PARM_DESC(dm_access_align,
		 "Refuse copies to and from device memory that are not aligned so (default 1; NICs are known to want 4)");

static int keel_query_device(struct ib_device *ibdev,
			     struct ib_device_attr *attr,
			     struct ib_udata *udata)
{
	struct keel_dev *kdev = to_kdev(ibdev);
	int ret = ib_no_udata_io(udata);

	if (ret)
		return ret;
	/*
	 * The core has cleared *attr, and zero is the truth about everything
	 * that is not said here: there are no queues to have limits.
	 */
	attr->fw_ver = KEEL_FW_VER;
	attr->sys_image_guid = ibdev->node_guid;
	attr->vendor_id = KEEL_VENDOR_ID;
	/* No region is larger than the memory there is to pin. */
	attr->max_mr_size = (u64)totalram_pages() << PAGE_SHIFT;
	attr->page_size_cap = PAGE_SIZE;
	attr->max_pd = KEEL_MAX_PD;
	attr->max_mr = KEEL_MAX_MR;
	attr->max_mw = KEEL_MAX_MW;
	attr->max_ah = KEEL_MAX_AH;
	attr->max_pkeys = KEEL_PKEYS;
	attr->atomic_cap = IB_ATOMIC_NONE;
	attr->max_dm_size = kdev->ap->size;
	/* "rdma link delete" may take any keel device, keel0 too. */
	attr->kernel_cap_flags = IBK_ALLOW_USER_UNREG;
	return 0;
}

static void keel_fw_version(struct ib_device *ibdev, char *str)
{
	snprintf(str, IB_FW_VERSION_NAME_MAX, "%s", KEEL_VERSION);
}

/*
 * Everything a device has goes here and nowhere else, whether it was ever
 * registered or not. After ib_core's unregistration nobody is left to use it:
 * uobjects are destroyed, mappings zapped, the netdev let go.
 */
static void keel_dev_release(struct ib_device *ibdev)
{
	struct keel_dev *kdev = to_kdev(ibdev);

	keel_registry_fini(&kdev->reg);
	keel_keys_fini(&kdev->keys);
	keel_aperture_destroy(kdev->ap);
	keel_netdev_destroy(kdev->own_netdev);
}

static const struct uapi_definition keel_uapi_defs[] = {
	UAPI_DEF_CHAIN(keel_context_defs),
	UAPI_DEF_CHAIN(keel_dm_defs),
	UAPI_DEF_CHAIN(keel_dm_map_defs),
	UAPI_DEF_CHAIN(keel_pd_defs),
	UAPI_DEF_CHAIN(keel_shpd_defs),
	UAPI_DEF_CHAIN(keel_td_defs),
	{},
};

static const struct ib_device_ops keel_dev_ops = {
	.owner = THIS_MODULE,
	.driver_id = KEEL_RDMA_DRIVER,
	.uverbs_abi_ver = KEEL_ABI_VERSION,
	KEEL_ROBUST_UDATA

	.dealloc_driver = keel_dev_release,
	.get_dev_fw_str = keel_fw_version,
	.query_device = keel_query_device,
};

static void keel_dev_set_ops(struct ib_device *ibdev)
{
	ib_set_device_ops(ibdev, &keel_dev_ops);
	ib_set_device_ops(ibdev, &keel_ah_ops);
	ib_set_device_ops(ibdev, &keel_context_ops);
	ib_set_device_ops(ibdev, &keel_dm_map_ops);
	ib_set_device_ops(ibdev, &keel_dm_ops);
	ib_set_device_ops(ibdev, &keel_mr_ops);
	ib_set_device_ops(ibdev, &keel_mw_ops);
	ib_set_device_ops(ibdev, &keel_pd_ops);
	ib_set_device_ops(ibdev, &keel_port_ops);
	ib_set_device_ops(ibdev, &keel_xrcd_ops);
	ibdev->driver_def = keel_uapi_defs;
}

static void keel_dev_init(struct keel_dev *kdev)
{
	struct ib_device *ibdev = &kdev->ib;

	ibdev->node_type = RDMA_NODE_IB_CA;
	ibdev->phys_port_cnt = 1;
	ibdev->num_comp_vectors = num_possible_cpus();
	strscpy(ibdev->node_desc, "keel software RDMA device");

	keel_registry_init(&kdev->reg, ibdev->name);
	kdev->reg.limit[KEEL_PD] = KEEL_MAX_PD;
	kdev->reg.limit[KEEL_MR] = KEEL_MAX_MR;
	kdev->reg.limit[KEEL_MW] = KEEL_MAX_MW;
	kdev->reg.limit[KEEL_AH] = KEEL_MAX_AH;
	kdev->reg.limit[KEEL_TD] = KEEL_MAX_TD;
	kdev->reg.limit[KEEL_XRCD] = KEEL_MAX_XRCD;
	kdev->reg.limit[KEEL_DM] = KEEL_MAX_DM;
	keel_keys_init(&kdev->keys);
	keel_shpds_init(&kdev->shpds);
}

/**
 * keel_dev_create() - bring up a device
 * @name: its name, or a pattern such as "keel%d"
 * @netdev: the netdev its port is on
 * @own: the device takes @netdev over when it is registered, and
 *	keel_netdev_destroy()s it when it goes
 *
 * Context: may sleep; not under RTNL.
 * Return: 0; ib_core owns the device then. A negative errno, with @netdev
 * still the caller's.
 */
int keel_dev_create(const char *name, struct net_device *netdev, bool own)
{
	struct keel_dev *kdev = ib_alloc_device(keel_dev, ib);
	int ret;

	if (!kdev)
		return -ENOMEM;
	keel_dev_set_ops(&kdev->ib);
	keel_dev_init(kdev);
	addrconf_addr_eui48((u8 *)&kdev->ib.node_guid, netdev->dev_addr);

	/* The core keeps the length of a buffer in 32 bits. */
	kdev->ap = dm_size > (U32_MAX & PAGE_MASK) ? ERR_PTR(-EINVAL) :
		   keel_aperture_mem_create(PAGE_ALIGN(dm_size));
	if (IS_ERR(kdev->ap)) {
		ret = PTR_ERR(kdev->ap);
		pr_err("keel: no %lu bytes of device memory (parameter dm_size): %d\n",
		       dm_size, ret);
		goto err_dev;
	}
	ret = ib_device_set_netdev(&kdev->ib, netdev, KEEL_PORT);
	if (ret)
		goto err_dev;
	if (own)
		kdev->own_netdev = netdev;
	else
		ib_mark_name_assigned_by_user(&kdev->ib);
	ret = ib_register_device(&kdev->ib, name, NULL);
	/* On success the device may be gone already. */
	if (!ret)
		return 0;
	kdev->own_netdev = NULL;
err_dev:
	/* Ends in keel_dev_release(). */
	ib_dealloc_device(&kdev->ib);
	return ret;
}
