// SPDX-License-Identifier: GPL-2.0
/*
 * XRC domains: ibv_open_xrcd(). ib_core ties them to inodes, with one struct
 * ib_xrcd for all opens of the same inode. It calls keel for the first open and
 * the last close.
 */
#include <linux/err.h>
#include <linux/fs.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

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

/*
 * ib_uverbs has its mutex of XRC domains, which all processes need. So do not wait for
 * the page of driver data, which a file system of the caller may provide.
 */
static int keel_xrcd_no_udata(struct ib_udata *udata)
{
	int ret;

	pagefault_disable();
	ret = ib_no_udata_io(udata);
	pagefault_enable();
	return ret;
}

static int keel_alloc_xrcd(struct ib_xrcd *ibxrcd, struct ib_udata *udata)
{
	struct keel_dev *kdev = to_kdev(ibxrcd->device);
	struct keel_xrcd *xrcd;
	int ret;

	ret = keel_xrcd_no_udata(udata);
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
		xrcd->pin = keel_xrcd_pin_new(kdev, ibxrcd->inode);
		ret = PTR_ERR_OR_ZERO(xrcd->pin);
		if (ret)
			goto err_free;
	}
	xrcd->obj.kernel = !udata;
	ret = keel_obj_add(&kdev->reg, &xrcd->obj, KEEL_XRCD,
			   &keel_xrcd_obj_ops, NULL, NULL);
	if (ret)
		goto err_pin;
	container_of(ibxrcd, struct keel_ib_xrcd, ib)->xrcd = xrcd;
	return 0;

err_pin:
	keel_xrcd_pin_put(kdev, xrcd->pin);
err_free:
	kfree(xrcd);
	return ret;
}

/* Must not fail: ib_core would lose a domain that has no inode. */
static int keel_dealloc_xrcd(struct ib_xrcd *ibxrcd, struct ib_udata *udata)
{
	struct keel_xrcd *xrcd = to_kxrcd(ibxrcd);
	struct keel_xrcd_pin *pin = xrcd->pin;

	keel_obj_close(&xrcd->obj);
	keel_xrcd_pin_put(to_kdev(ibxrcd->device), pin);
	return 0;
}

const struct ib_device_ops keel_xrcd_ops = {
	.alloc_xrcd = keel_alloc_xrcd,
	.dealloc_xrcd = keel_dealloc_xrcd,

	INIT_RDMA_OBJ_SIZE(ib_xrcd, keel_ib_xrcd, ib),
};
