// SPDX-License-Identifier: GPL-2.0
/*
 * The device: its attributes, and how it is created and released.
 */
#include <linux/idr.h>
#include <linux/module.h>
#include <linux/sysfs.h>
#include <net/addrconf.h>

#include "keel_device.h"
#include "keel_dm.h"
#include "keel_far.h"
#include "keel_limits.h"
#include "keel_mr.h"
#include "keel_qp.h"
#include "keel_removal.h"

static unsigned long dm_size = SZ_64M;
module_param(dm_size, ulong, 0444);
MODULE_PARM_DESC(dm_size,
		 "Bytes of device memory of a new device (default 64 MiB, below 4 GiB)");

/* Numbers of devices, in their GUIDs. */
static DEFINE_IDA(keel_dev_numbers);

static void keel_query_queues(struct ib_device_attr *attr)
{
	attr->device_cap_flags = IB_DEVICE_CURR_QP_STATE_MOD |
				 IB_DEVICE_SYS_IMAGE_GUID |
				 IB_DEVICE_RC_RNR_NAK_GEN |
				 IB_DEVICE_SRQ_RESIZE |
				 IB_DEVICE_MEM_WINDOW |
				 IB_DEVICE_MEM_WINDOW_TYPE_2B |
				 IB_DEVICE_MEM_MGT_EXTENSIONS |
				 IB_DEVICE_XRC |
				 IB_DEVICE_FLUSH_GLOBAL |
				 IB_DEVICE_ATOMIC_WRITE;
	attr->max_qp_wr = KEEL_MAX_WR;
	attr->max_send_sge = KEEL_MAX_SGE;
	attr->max_recv_sge = KEEL_MAX_SGE;
	attr->max_sge_rd = KEEL_MAX_SGE;
	attr->max_cqe = KEEL_MAX_CQE;
	attr->max_srq_wr = KEEL_MAX_WR;
	attr->max_srq_sge = KEEL_MAX_SGE;
	attr->max_qp_rd_atom = KEEL_MAX_RD_ATOM;
	attr->max_qp_init_rd_atom = KEEL_MAX_RD_ATOM;
	attr->masked_atomic_cap = IB_ATOMIC_NONE;
	attr->max_fast_reg_page_list_len = KEEL_MAX_FAST_REG;
	/* ktime_get_raw_ns(): a clock of 10^6 kHz with 64 valid bits. */
	attr->timestamp_mask = U64_MAX;
	attr->hca_core_clock = 1000000;
}

/* All operations look up on-demand pages in the same way. */
static void keel_query_odp(struct ib_device_attr *attr)
{
	const u32 rc = IB_ODP_SUPPORT_SEND | IB_ODP_SUPPORT_RECV |
		       IB_ODP_SUPPORT_WRITE | IB_ODP_SUPPORT_READ |
		       IB_ODP_SUPPORT_ATOMIC | IB_ODP_SUPPORT_SRQ_RECV |
		       KEEL_ODP_SUPPORT_A19;

	attr->odp_caps.general_caps = IB_ODP_SUPPORT | IB_ODP_SUPPORT_IMPLICIT;
	attr->odp_caps.per_transport_caps.rc_odp_caps = rc;
	attr->odp_caps.per_transport_caps.xrc_odp_caps = rc;
	attr->odp_caps.per_transport_caps.uc_odp_caps =
		IB_ODP_SUPPORT_SEND | IB_ODP_SUPPORT_RECV |
		IB_ODP_SUPPORT_WRITE | IB_ODP_SUPPORT_SRQ_RECV;
	attr->odp_caps.per_transport_caps.ud_odp_caps =
		IB_ODP_SUPPORT_SEND | IB_ODP_SUPPORT_RECV |
		IB_ODP_SUPPORT_SRQ_RECV;
}

static int keel_query_device(struct ib_device *ibdev,
			     struct ib_device_attr *attr,
			     struct ib_udata *udata)
{
	struct keel_dev *kdev = to_kdev(ibdev);
	int ret = ib_no_udata_io(udata);

	if (ret)
		return ret;
	/* ib_core has cleared *attr. */
	attr->fw_ver = KEEL_FW_VER;
	attr->sys_image_guid = ibdev->node_guid;
	attr->vendor_id = KEEL_VENDOR_ID;
	/* A region cannot be larger than the memory that can be pinned. */
	attr->max_mr_size = (u64)totalram_pages() << PAGE_SHIFT;
	attr->page_size_cap = KEEL_PAGE_SIZES;
	attr->max_pkeys = KEEL_PKEYS;
	attr->max_dm_size = kdev->ap->encrypted ? 0 : kdev->ap->size;
	/*
	 * Atomic instructions of the processor, on shared memory, unless device
	 * memory needs its own atomic operations.
	 */
	attr->atomic_cap = kdev->ap->ops->atomic ? IB_ATOMIC_HCA :
						   IB_ATOMIC_GLOB;
	attr->kernel_cap_flags = IBK_LOCAL_DMA_LKEY | IBK_ON_DEMAND_PAGING;
	/*
	 * "rdma link delete" may delete any keel device, even keel0. Exception:
	 * the device of a PCI function exists as long as the function is bound.
	 */
	if (!ibdev->dev.parent)
		attr->kernel_cap_flags |= IBK_ALLOW_USER_UNREG;
	keel_limits_query(kdev->reg.quotas.limit, attr);
	keel_query_queues(attr);
	keel_query_odp(attr);
	return 0;
}

static void keel_fw_version(struct ib_device *ibdev, char *str)
{
	snprintf(str, IB_FW_VERSION_NAME_MAX, "%s", KEEL_VERSION);
}

/* ibstat prints the attributes of the group below. They need no open device. */
static ssize_t hca_type_show(struct device *dev, struct device_attribute *attr,
			     char *buf)
{
	return sysfs_emit(buf, "keel\n");
}
static DEVICE_ATTR_RO(hca_type);

/* The hw_ver of ibv_query_device(). */
static ssize_t hw_rev_show(struct device *dev, struct device_attribute *attr,
			   char *buf)
{
	return sysfs_emit(buf, "%x\n",
			  rdma_device_to_ibdev(dev)->attrs.hw_ver);
}
static DEVICE_ATTR_RO(hw_rev);

static struct attribute *keel_dev_attrs[] = {
	&dev_attr_hca_type.attr,
	&dev_attr_hw_rev.attr,
	NULL,
};

static const struct attribute_group keel_dev_group = {
	.attrs = keel_dev_attrs,
};

/*
 * Frees everything that a device has, whether or not it was ever registered.
 * After ib_unregister_device(), nothing uses the device any more: uobjects are
 * destroyed, mappings zapped, and the netdev reference dropped.
 */
static void keel_dev_release(struct ib_device *ibdev)
{
	struct keel_dev *kdev = to_kdev(ibdev);

	/* Links have left the last reference on some QPs to it. */
	keel_worker_settle();
	/* It frees the groups that the last QPs have left. */
	keel_cast_flush(&kdev->cast);
	/* First, because queued work has references on objects. */
	if (kdev->wq) {
		keel_xrcd_pins_over(kdev, NULL);
		destroy_workqueue(kdev->wq);
	}
	keel_numbers_fini(&kdev->qps, "QP number");
	keel_numbers_fini(&kdev->srqs, "SRQ number");
	keel_registry_fini(&kdev->reg);
	keel_keys_fini(&kdev->keys);
	keel_aperture_destroy(kdev->ap);
	free_percpu(kdev->counters);
	keel_state_put(kdev);
	if (kdev->number >= 0)
		ida_free(&keel_dev_numbers, kdev->number);
	keel_netdev_destroy(kdev->own_netdev);
}

static const struct uapi_definition keel_uapi_defs[] = {
	UAPI_DEF_CHAIN(keel_context_defs),
	UAPI_DEF_CHAIN(keel_dm_defs),
	UAPI_DEF_CHAIN(keel_dm_map_defs),
	UAPI_DEF_CHAIN(keel_pd_defs),
	UAPI_DEF_CHAIN(keel_qp_defs),
	UAPI_DEF_CHAIN(keel_shpd_defs),
	UAPI_DEF_CHAIN(keel_srq_defs),
	UAPI_DEF_CHAIN(keel_td_defs),
	{},
};

static const struct ib_device_ops keel_dev_ops = {
	.owner = THIS_MODULE,
	.driver_id = KEEL_RDMA_DRIVER,
	.uverbs_abi_ver = KEEL_ABI_VERSION,
	KEEL_ROBUST_UDATA

	.dealloc_driver = keel_dev_release,
	.device_group = &keel_dev_group,
	.get_dev_fw_str = keel_fw_version,
	.query_device = keel_query_device,
};

static void keel_dev_set_ops(struct ib_device *ibdev)
{
	ib_set_device_ops(ibdev, &keel_dev_ops);
	ib_set_device_ops(ibdev, &keel_ah_ops);
	ib_set_device_ops(ibdev, &keel_context_ops);
	ib_set_device_ops(ibdev, &keel_counters_ops);
	ib_set_device_ops(ibdev, &keel_cq_ops);
	ib_set_device_ops(ibdev, &keel_dm_map_ops);
	ib_set_device_ops(ibdev, &keel_dm_ops);
	ib_set_device_ops(ibdev, &keel_removal_ops);
	ib_set_device_ops(ibdev, &keel_mcast_ops);
	ib_set_device_ops(ibdev, &keel_mr_kernel_ops);
	ib_set_device_ops(ibdev, &keel_mr_dmabuf_ops);
	ib_set_device_ops(ibdev, &keel_mr_odp_ops);
	ib_set_device_ops(ibdev, &keel_mr_ops);
	ib_set_device_ops(ibdev, &keel_mw_ops);
	ib_set_device_ops(ibdev, &keel_pd_ops);
	ib_set_device_ops(ibdev, &keel_port_ops);
	ib_set_device_ops(ibdev, &keel_post_ops);
	ib_set_device_ops(ibdev, &keel_qp_ops);
	ib_set_device_ops(ibdev, &keel_srq_ops);
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
	/* The size of device memory is not known yet: keel_dev_create() sets it. */
	keel_limits_init(kdev->reg.quotas.limit);
	keel_keys_init(&kdev->keys);
	keel_shpds_init(&kdev->shpds);
	keel_xrcd_pins_init(kdev);
	ibdev->local_dma_lkey = KEEL_LOCAL_DMA_LKEY;
	keel_numbers_init(&kdev->qps, KEEL_QPN_MIN, KEEL_QPN_MAX);
	atomic64_set(&kdev->qps_destroyed, 0);
	atomic64_set(&kdev->qp_gens, 0);
	keel_numbers_init(&kdev->srqs, 1, KEEL_SRQN_MAX);
	kdev->serve = keel_far_serve;
	keel_mcasts_init(&kdev->mcasts);
	keel_cast_init(&kdev->cast, keel_cast_work);
	kdev->number = -1;
}

/*
 * rxe, siw and irdma make an EUI-64 of the netdev's MAC address, which has 0xfffe in its
 * middle. All loopback netdevs have the same address, and each may have a device.
 * Consumers in the kernel and the CM take devices with the same GUID for the same device,
 * so keel has a number there. It is not 0: a MAC address of 02:00:00:00:00:00 would give
 * the GUID 0.
 */
static int keel_dev_set_guid(struct keel_dev *kdev, const struct net_device *netdev)
{
	u8 *guid = (u8 *)&kdev->ib.node_guid;

	kdev->number = ida_alloc_range(&keel_dev_numbers, 1, 0xfffd, GFP_KERNEL);
	if (kdev->number < 0)
		return kdev->number;
	addrconf_addr_eui48(guid, netdev->dev_addr);
	guid[3] = kdev->number >> 8;
	guid[4] = kdev->number;
	return 0;
}

/*
 * Allocate the parts of a device other than device memory and the netdev. If
 * device memory is a BAR, the workqueue is freezable: it stops before the
 * machine sleeps, as userspace does. A sleeping BAR silently loses writes.
 */
static int keel_dev_alloc(struct keel_dev *kdev, bool bar)
{
	kdev->bar = bar;
	kdev->counters = alloc_percpu(struct keel_counters);
	kdev->wq = alloc_workqueue("keel", WQ_UNBOUND | WQ_MEM_RECLAIM |
				   (bar ? WQ_FREEZABLE : 0), 0);
	return kdev->counters && kdev->wq ? 0 : -ENOMEM;
}

/* Create device memory of kernel memory, for a device without a BAR. */
static struct keel_aperture *keel_dev_memory(void)
{
	struct keel_aperture *ap = ERR_PTR(-EINVAL);

	/* ib_core keeps the length of a buffer in 32 bits. */
	if (dm_size <= (U32_MAX & PAGE_MASK))
		ap = keel_aperture_mem_create(PAGE_ALIGN(dm_size));
	if (IS_ERR(ap))
		pr_err("keel: no %lu bytes of device memory (parameter dm_size): %pe\n",
		       dm_size, ap);
	else if (ap->encrypted)
		pr_info("keel: no device memory: this machine encrypts its memory\n");
	return ap;
}

/**
 * keel_dev_create() - create and register a device
 * @spec: its properties
 *
 * Context: may sleep; not under RTNL.
 * Return: the device, which ib_core owns and may have unregistered already. The
 * caller has a reference on the memory of its structure, which put_device()
 * drops. Or ERR_PTR(): then the caller still owns the resources of @spec.
 */
struct ib_device *keel_dev_create(const struct keel_dev_spec *spec)
{
	struct keel_dev *kdev = ib_alloc_device(keel_dev, ib);
	int ret;

	if (!kdev)
		return ERR_PTR(-ENOMEM);
	keel_dev_set_ops(&kdev->ib);
	keel_dev_init(kdev);
	kdev->ib.dev.parent = spec->parent;
	kdev->provider = spec->provider;
	keel_dm_export_offer(kdev);

	kdev->ap = spec->ap ? spec->ap : keel_dev_memory();
	if (IS_ERR(kdev->ap)) {
		ret = PTR_ERR(kdev->ap);
		goto err_dev;
	}
	kdev->reg.quotas.limit[KEEL_RES_DM_BYTES] = kdev->ap->size;
	ret = keel_dev_set_guid(kdev, spec->netdev);
	if (ret)
		goto err_dev;
	ret = keel_dev_alloc(kdev, spec->ap);
	if (ret)
		goto err_dev;
	ret = ib_device_set_netdev(&kdev->ib, spec->netdev, KEEL_PORT);
	if (ret)
		goto err_dev;
	if (spec->own_netdev)
		kdev->own_netdev = spec->netdev;
	else
		ib_mark_name_assigned_by_user(&kdev->ib);
	get_device(&kdev->ib.dev);
	ret = ib_register_device(&kdev->ib, spec->name, NULL);
	/* On success, the device may have been unregistered already. */
	if (!ret)
		return &kdev->ib;
	put_device(&kdev->ib.dev);
	kdev->own_netdev = NULL;
err_dev:
	if (spec->ap)
		kdev->ap = NULL;
	/* Calls keel_dev_release(). */
	ib_dealloc_device(&kdev->ib);
	return ERR_PTR(ret);
}
