// SPDX-License-Identifier: GPL-2.0
/*
 * Address handles: ibv_create_ah(). The core resolves and checks the address
 * and keeps the source GID alive.
 */
#include <linux/seq_file.h>
#include <linux/slab.h>

#include "keel.h"

/**
 * struct keel_ah - an address handle
 * @obj: the object; holds the PD
 * @attr: the address; without the core's pointer at the source GID, whose
 *	reference belongs to struct ib_ah
 */
struct keel_ah {
	struct keel_obj obj;
	struct rdma_ah_attr attr;
};

struct keel_ib_ah {
	struct ib_ah ib;
	struct keel_ah *ah;
};

static struct keel_ah *to_kah(struct ib_ah *ib)
{
	return container_of(ib, struct keel_ib_ah, ib)->ah;
}

static void keel_ah_release(struct keel_obj *obj)
{
	struct keel_ah *ah = container_of(obj, struct keel_ah, obj);

	kfree_rcu(ah, obj.rcu);
}

static void keel_ah_describe(const struct keel_obj *obj, struct seq_file *m)
{
	const struct keel_ah *ah = container_of(obj, struct keel_ah, obj);

	seq_printf(m, " to %pI6c", ah->attr.grh.dgid.raw);
}

static const struct keel_obj_ops keel_ah_obj_ops = {
	.describe = keel_ah_describe,
	.release = keel_ah_release,
};

static int keel_create_user_ah(struct ib_ah *ibah,
			       struct rdma_ah_init_attr *init,
			       struct ib_udata *udata)
{
	struct keel_dev *kdev = to_kdev(ibah->device);
	struct keel_ah *ah;
	int ret;

	ret = ib_no_udata_io(udata);
	if (ret)
		return ret;
	ah = kzalloc_obj(*ah);
	if (!ah)
		return -ENOMEM;
	ah->attr = *init->ah_attr;
	ah->attr.grh.sgid_attr = NULL;
	ret = keel_obj_add(&kdev->reg, &ah->obj, KEEL_AH, &keel_ah_obj_ops,
			   &to_kpd(ibah->pd)->obj, NULL);
	if (ret) {
		kfree(ah);
		return ret;
	}
	container_of(ibah, struct keel_ib_ah, ib)->ah = ah;
	return 0;
}

static int keel_destroy_ah(struct ib_ah *ibah, u32 flags)
{
	keel_obj_close(&to_kah(ibah)->obj);
	return 0;
}

const struct ib_device_ops keel_ah_ops = {
	.create_user_ah = keel_create_user_ah,
	.destroy_ah = keel_destroy_ah,

	INIT_RDMA_OBJ_SIZE(ib_ah, keel_ib_ah, ib),
};
