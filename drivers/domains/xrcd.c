// SPDX-License-Identifier: GPL-2.0
/*
 * XRC domains: ibv_open_xrcd(). ib_core ties them to inodes, with one struct
 * ib_xrcd for all opens of the same inode. It calls keel for the first open and
 * the last close.
 */
#include <linux/fs.h>
#include <linux/seq_file.h>
#include <linux/slab.h>

#include "keel.h"

static void keel_xrcd_release(struct keel_obj *obj)
{
	struct keel_xrcd *xrcd = container_of(obj, struct keel_xrcd, obj);

	kfree_rcu(xrcd, obj.rcu);
}

static void keel_xrcd_describe(const struct keel_obj *obj, struct seq_file *m)
{
	const struct keel_xrcd *xrcd = container_of(obj, struct keel_xrcd, obj);

	if (!xrcd->tied) {
		seq_puts(m, " no inode");
		return;
	}
	seq_printf(m, " inode %u:%u:%llu", MAJOR(xrcd->dev), MINOR(xrcd->dev),
		   xrcd->ino);
	lockdep_assert_held(&obj->reg->lock);
	if (!obj->closing)
		seq_printf(m, " opens %d", atomic_read(&xrcd->ib->usecnt));
}

static const struct keel_obj_ops keel_xrcd_obj_ops = {
	.describe = keel_xrcd_describe,
	.release = keel_xrcd_release,
};

static int keel_alloc_xrcd(struct ib_xrcd *ibxrcd, struct ib_udata *udata)
{
	struct keel_dev *kdev = to_kdev(ibxrcd->device);
	struct keel_xrcd *xrcd;
	int ret;

	ret = ib_no_udata_io(udata);
	if (ret)
		return ret;
	xrcd = kzalloc_obj(*xrcd, keel_gfp_of(!udata));
	if (!xrcd)
		return -ENOMEM;
	xrcd->ib = ibxrcd;
	/* ib_core got the inode from an open file, and has a reference. */
	if (ibxrcd->inode) {
		xrcd->dev = ibxrcd->inode->i_sb->s_dev;
		xrcd->ino = ibxrcd->inode->i_ino;
		xrcd->tied = true;
	}
	xrcd->obj.kernel = !udata;
	ret = keel_obj_add(&kdev->reg, &xrcd->obj, KEEL_XRCD,
			   &keel_xrcd_obj_ops, NULL, NULL);
	if (ret) {
		kfree(xrcd);
		return ret;
	}
	container_of(ibxrcd, struct keel_ib_xrcd, ib)->xrcd = xrcd;
	return 0;
}

/* Must not fail: ib_core would lose a domain that has no inode. */
static int keel_dealloc_xrcd(struct ib_xrcd *ibxrcd, struct ib_udata *udata)
{
	keel_obj_close(&to_kxrcd(ibxrcd)->obj);
	return 0;
}

const struct ib_device_ops keel_xrcd_ops = {
	.alloc_xrcd = keel_alloc_xrcd,
	.dealloc_xrcd = keel_dealloc_xrcd,

	INIT_RDMA_OBJ_SIZE(ib_xrcd, keel_ib_xrcd, ib),
};
