// SPDX-License-Identifier: GPL-2.0
/*
 * Memory windows: ibv_alloc_mw(). A new window opens nothing: its rkey is
 * valid, with no right and no byte behind it, until a queue pair binds it.
 */
#include <linux/seq_file.h>
#include <linux/slab.h>

#include "keel.h"

/**
 * struct keel_mw - a memory window
 * @obj: the object; holds the PD
 * @key: its rkey
 * @keys: the table that @key is in
 */
struct keel_mw {
	struct keel_obj obj;
	struct keel_key key;
	struct keel_keys *keys;
};

struct keel_ib_mw {
	struct ib_mw ib;
	struct keel_mw *mw;
};

static void keel_mw_release(struct keel_obj *obj)
{
	struct keel_mw *mw = container_of(obj, struct keel_mw, obj);

	kfree_rcu(mw, obj.rcu);
}

static void keel_mw_describe(const struct keel_obj *obj, struct seq_file *m)
{
	const struct keel_mw *mw = container_of(obj, struct keel_mw, obj);

	seq_printf(m, " key 0x%08x", mw->key.key);
}

static const struct keel_obj_ops keel_mw_obj_ops = {
	.describe = keel_mw_describe,
	.release = keel_mw_release,
};

static int keel_alloc_mw(struct ib_mw *ibmw, struct ib_udata *udata)
{
	struct keel_dev *kdev = to_kdev(ibmw->device);
	struct keel_pd *pd = to_kpd(ibmw->pd);
	struct keel_mw *mw;
	int ret;

	ret = ib_no_udata_io(udata);
	if (ret)
		return ret;
	mw = kzalloc_obj(*mw);
	if (!mw)
		return -ENOMEM;
	mw->keys = &kdev->keys;
	mw->key.domain = pd->domain->obj.id;
	mw->key.obj = &mw->obj;
	ret = keel_obj_add(&kdev->reg, &mw->obj, KEEL_MW, &keel_mw_obj_ops,
			   &pd->obj, NULL);
	if (ret) {
		kfree(mw);
		return ret;
	}
	ret = keel_key_insert(mw->keys, &mw->key);
	if (ret) {
		keel_obj_close(&mw->obj);
		return ret;
	}
	container_of(ibmw, struct keel_ib_mw, ib)->mw = mw;
	ibmw->rkey = mw->key.key;
	return 0;
}

static int keel_dealloc_mw(struct ib_mw *ibmw)
{
	struct keel_mw *mw = container_of(ibmw, struct keel_ib_mw, ib)->mw;

	keel_key_remove(mw->keys, &mw->key);
	keel_obj_close(&mw->obj);
	return 0;
}

const struct ib_device_ops keel_mw_ops = {
	.alloc_mw = keel_alloc_mw,
	.dealloc_mw = keel_dealloc_mw,

	INIT_RDMA_OBJ_SIZE(ib_mw, keel_ib_mw, ib),
};
