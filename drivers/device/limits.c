// SPDX-License-Identifier: GPL-2.0
/*
 * How many objects of each kind a device can have: ibv_query_device(), and the module
 * parameters max_qp and so on.
 *
 * keel charges what an object takes, but ib_core does not charge its part, up to 1 KiB.
 * So a machine with little memory has lower limits, unless its administrator sets them.
 */
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/sizes.h>
#include <kunit/visibility.h>

#include "keel.h"
#include "keel_limits.h"

/*
 * Almost half of the numbers of 24 bits that IBTA gives QPs, SRQs and keys. There are keys
 * enough for all MRs and all MWs, and many for consumers in the kernel, which have no
 * limit.
 */
#define KEEL_LIMIT_MOST		8000000
/* From which memory on a machine has the whole limits, and to which they get smaller. */
#define KEEL_LIMIT_RAM		SZ_16G
#define KEEL_LIMIT_LEAST_RAM	SZ_1G

/* &ib_device_attr.max_res_rd_atom is an int. */
static_assert(INT_MAX / KEEL_MAX_RD_ATOM >= KEEL_LIMIT_MOST);

/**
 * struct keel_limit - a limit that a module parameter sets
 * @set: what the administrator has set, or 0
 * @usual: if that is 0: for keel_limit_scale()
 */
struct keel_limit {
	unsigned int set;
	unsigned int usual;
};

/**
 * keel_limit_scale() - the limit of a machine without a parameter
 * @usual: the limit of a machine with 16 GiB or more, divisible by 16
 * @ram: bytes of memory of this machine
 *
 * Machines have a bit less memory than they are sold with: @ram counts as the next power
 * of two.
 *
 * Return: the limit: with half the memory, half of it, but not below a 16th.
 */
VISIBLE_IF_KUNIT u32 keel_limit_scale(u32 usual, u64 ram)
{
	ram = clamp_t(u64, ram, KEEL_LIMIT_LEAST_RAM, KEEL_LIMIT_RAM);
	return usual >> (ilog2(KEEL_LIMIT_RAM) - ilog2(ram - 1) - 1);
}
EXPORT_SYMBOL_IF_KUNIT(keel_limit_scale);

static unsigned int keel_limit_value(const struct keel_limit *limit)
{
	unsigned int set = READ_ONCE(limit->set);

	return set ?: keel_limit_scale(limit->usual,
				       (u64)totalram_pages() << PAGE_SHIFT);
}

static int keel_limit_set(const char *val, const struct kernel_param *kp)
{
	struct keel_limit *limit = kp->arg;
	unsigned int set;
	int ret = kstrtouint(val, 0, &set);

	if (ret)
		return ret;
	if (set > KEEL_LIMIT_MOST)
		return -EINVAL;
	WRITE_ONCE(limit->set, set);
	return 0;
}

static int keel_limit_show(char *buffer, const struct kernel_param *kp)
{
	return sysfs_emit(buffer, "%u\n", keel_limit_value(kp->arg));
}

static const struct kernel_param_ops keel_limit_ops = {
	.set = keel_limit_set,
	.get = keel_limit_show,
};

#define KEEL_FEW	" of a new device, at most 8000000 (0, the default: 262144 with 16 GiB of memory, less with less)"
#define KEEL_MANY	" of a new device, at most 8000000 (0, the default: 1048576 with 16 GiB of memory, less with less)"

static struct keel_limit keel_max_pd = { .usual = 262144 };
module_param_cb(max_pd, &keel_limit_ops, &keel_max_pd, 0644);
MODULE_PARM_DESC(max_pd, "PDs, parent domains among them," KEEL_FEW);

static struct keel_limit keel_max_td = { .usual = 262144 };
module_param_cb(max_td, &keel_limit_ops, &keel_max_td, 0644);
MODULE_PARM_DESC(max_td, "Thread domains" KEEL_FEW);

static struct keel_limit keel_max_xrcd = { .usual = 262144 };
module_param_cb(max_xrcd, &keel_limit_ops, &keel_max_xrcd, 0644);
MODULE_PARM_DESC(max_xrcd, "XRC domains" KEEL_FEW);

static struct keel_limit keel_max_cq = { .usual = 262144 };
module_param_cb(max_cq, &keel_limit_ops, &keel_max_cq, 0644);
MODULE_PARM_DESC(max_cq, "CQs" KEEL_FEW);

static struct keel_limit keel_max_srq = { .usual = 262144 };
module_param_cb(max_srq, &keel_limit_ops, &keel_max_srq, 0644);
MODULE_PARM_DESC(max_srq, "SRQs" KEEL_FEW);

static struct keel_limit keel_max_qp = { .usual = 262144 };
module_param_cb(max_qp, &keel_limit_ops, &keel_max_qp, 0644);
MODULE_PARM_DESC(max_qp, "QPs" KEEL_FEW);

static struct keel_limit keel_max_mr = { .usual = 1048576 };
module_param_cb(max_mr, &keel_limit_ops, &keel_max_mr, 0644);
MODULE_PARM_DESC(max_mr, "MRs, those of device memory among them," KEEL_MANY);

static struct keel_limit keel_max_mw = { .usual = 1048576 };
module_param_cb(max_mw, &keel_limit_ops, &keel_max_mw, 0644);
MODULE_PARM_DESC(max_mw, "MWs" KEEL_MANY);

static struct keel_limit keel_max_ah = { .usual = 1048576 };
module_param_cb(max_ah, &keel_limit_ops, &keel_max_ah, 0644);
MODULE_PARM_DESC(max_ah, "AHs" KEEL_MANY);

static struct keel_limit keel_max_dm = { .usual = 1048576 };
module_param_cb(max_dm, &keel_limit_ops, &keel_max_dm, 0644);
MODULE_PARM_DESC(max_dm, "Buffers of device memory" KEEL_MANY);

/**
 * keel_limits_init() - set the limits of a new device
 * @limit: its limits, enum keel_resource. Those of device memory are not set.
 *
 * Context: any.
 */
void keel_limits_init(u64 *limit)
{
	limit[KEEL_PD] = keel_limit_value(&keel_max_pd);
	limit[KEEL_TD] = keel_limit_value(&keel_max_td);
	limit[KEEL_XRCD] = keel_limit_value(&keel_max_xrcd);
	limit[KEEL_CQ] = keel_limit_value(&keel_max_cq);
	limit[KEEL_SRQ] = keel_limit_value(&keel_max_srq);
	limit[KEEL_QP] = keel_limit_value(&keel_max_qp);
	limit[KEEL_MR] = keel_limit_value(&keel_max_mr);
	limit[KEEL_MW] = keel_limit_value(&keel_max_mw);
	limit[KEEL_AH] = keel_limit_value(&keel_max_ah);
	limit[KEEL_DM] = keel_limit_value(&keel_max_dm);
	limit[KEEL_RES_HANDLES] = KEEL_MAX_HANDLES;
	limit[KEEL_RES_GROUPS] = KEEL_MAX_MCAST_GRP;
	limit[KEEL_RES_LINKS] = KEEL_MAX_LINKS;
}

/**
 * keel_limits_query() - report the limits of a device
 * @limit: as keel_limits_init() has set them
 * @attr: gets those that ibv_query_device() has
 *
 * Context: any.
 */
void keel_limits_query(const u64 *limit, struct ib_device_attr *attr)
{
	attr->max_pd = limit[KEEL_PD];
	attr->max_cq = limit[KEEL_CQ];
	attr->max_srq = limit[KEEL_SRQ];
	attr->max_qp = limit[KEEL_QP];
	attr->max_mr = limit[KEEL_MR];
	attr->max_mw = limit[KEEL_MW];
	attr->max_ah = limit[KEEL_AH];
	attr->max_res_rd_atom = KEEL_MAX_RD_ATOM * attr->max_qp;
	attr->max_mcast_grp = limit[KEEL_RES_GROUPS];
	attr->max_mcast_qp_attach = KEEL_MAX_MCAST_QP;
	attr->max_total_mcast_qp_attach = attr->max_mcast_grp *
					  attr->max_mcast_qp_attach;
}
