// SPDX-License-Identifier: GPL-2.0
/*
 * debugfs keel/<device>/objects: the tree of live objects of userspace.
 * kernel_objects: likewise for kernel consumers, such as the GSI QP.
 *
 * Each object has one line, below the object that it holds first:
 *
 *	domain 1 refs 1 pid 812 (demo) instances 1 held by pd 1
 *	  pd 1 refs 2 pid 812 (demo) domain 1 holds domain 1 held by mr 4
 *	    mr 4 refs 1 pid 812 (demo) key 0x00000457 length 4096 holds pd 1
 *	    srq 2 refs 1 pid 812 (demo) xrc srqn 2 ... holds pd 1, xrcd 1, cq 3
 *	xrcd 1 refs 2 pid 812 (demo) inode 0:25:4 opens 2 held by srq 2
 *	cq 3 refs 2 pid 812 (demo) entries 16 added 5 held by srq 2
 *
 * "refs" counts one reference of the uobject, one for each holder, and one for
 * each mapping or operation in progress. An object that is "closing" has no
 * uobject any more, only holders.
 */
#include <linux/debugfs.h>
#include <linux/sched.h>
#include <linux/seq_file.h>

#include "keel.h"
#include "keel_device.h"
#include "keel_snapshot.h"
#include "keel_wire.h"

/* Maximum number of holders that a line names before "and N more". */
#define KEEL_SHOW_HOLDERS	8

static struct dentry *keel_debugfs_root;

static void keel_show_holds(struct seq_file *m, const struct keel_obj *obj)
	__must_hold(&obj->reg->lock)
{
	const struct keel_hold *hold;
	u32 n = 0;
	int i;

	for (i = 0; i < obj->nholds; i++)
		if (obj->holds[i].target)
			seq_printf(m, "%s %s %u", n++ ? "," : " holds",
				   keel_kind_name(obj->holds[i].target->kind),
				   obj->holds[i].target->id);
	n = 0;
	list_for_each_entry(hold, &obj->holders, node) {
		if (n == KEEL_SHOW_HOLDERS)
			break;
		seq_printf(m, "%s %s %u", n++ ? "," : " held by",
			   keel_kind_name(hold->holder->kind),
			   hold->holder->id);
	}
	if (obj->nholders > n)
		seq_printf(m, " and %u more", obj->nholders - n);
}

static void keel_show_object(struct seq_file *m, const struct keel_obj *obj,
			     u32 depth)
{
	guard(spinlock_irqsave)(&obj->reg->lock);
	seq_printf(m, "%*s%s %u refs %u pid %d (%s)%s", 2 * depth, "",
		   keel_kind_name(obj->kind), obj->id,
		   /* The snapshot has one of them. */
		   kref_read(&obj->ref) - 1, pid_vnr(obj->pid), obj->comm,
		   obj->closing ? " closing" : "");
	if (obj->ops->describe)
		obj->ops->describe(obj, m);
	keel_show_holds(m, obj);
	seq_putc(m, '\n');
}

static int keel_show_objects(struct seq_file *m, bool kernel)
{
	struct keel_snapshot *snap;
	u32 at, depth = 0;

	snap = keel_snapshot_get(m->private, kernel);
	if (!snap)
		return -ENOMEM;
	for (at = snap->root; at != KEEL_SNAPSHOT_END && !seq_has_overflowed(m);
	     at = keel_snapshot_next(snap, at, &depth)) {
		keel_show_object(m, snap->at[at].obj, depth);
		cond_resched();
	}
	keel_snapshot_put(snap);
	return 0;
}

static int keel_objects_show(struct seq_file *m, void *v)
{
	return keel_show_objects(m, false);
}
DEFINE_SHOW_ATTRIBUTE(keel_objects);

static int keel_kernel_objects_show(struct seq_file *m, void *v)
{
	return keel_show_objects(m, true);
}
DEFINE_SHOW_ATTRIBUTE(keel_kernel_objects);

static int keel_links_file_show(struct seq_file *m, void *v)
{
	struct keel_dev *kdev = m->private;

	keel_links_show(m, kdev);
	keel_cast_show(m, &kdev->cast);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(keel_links_file);

static void keel_debugfs_show(struct ib_device *ibdev)
{
	struct keel_dev *kdev = to_kdev(ibdev);

	kdev->debugfs = debugfs_create_dir(dev_name(&ibdev->dev),
					   keel_debugfs_root);
	debugfs_create_file("objects", 0400, kdev->debugfs, &kdev->reg,
			    &keel_objects_fops);
	debugfs_create_file("kernel_objects", 0400, kdev->debugfs, &kdev->reg,
			    &keel_kernel_objects_fops);
	debugfs_create_file("links", 0400, kdev->debugfs, kdev, &keel_links_file_fops);
}

/* Waits for readers: afterwards, they have no reference left. */
static void keel_debugfs_hide(struct ib_device *ibdev)
{
	debugfs_remove(to_kdev(ibdev)->debugfs);
}

static int keel_client_add(struct ib_device *ibdev)
{
	if (ibdev->ops.driver_id != KEEL_RDMA_DRIVER)
		return -EOPNOTSUPP;
	keel_debugfs_show(ibdev);
	return 0;
}

static void keel_client_remove(struct ib_device *ibdev, void *data)
{
	keel_debugfs_hide(ibdev);
}

static void keel_client_rename(struct ib_device *ibdev, void *data)
{
	keel_debugfs_hide(ibdev);
	keel_debugfs_show(ibdev);
}

/*
 * A client of keel's own devices: ib_core calls it while it holds the device,
 * and reports new names.
 */
static struct ib_client keel_debugfs_client = {
	.name = "keel_debugfs",
	.add = keel_client_add,
	.remove = keel_client_remove,
	.rename = keel_client_rename,
	.no_kverbs_req = true,
};

/**
 * keel_debugfs_init() - create debugfs files for all present and future devices
 *
 * Return: 0 or a negative errno.
 */
int keel_debugfs_init(void)
{
	int ret;

	keel_debugfs_root = debugfs_create_dir("keel", NULL);
	ret = ib_register_client(&keel_debugfs_client);
	if (ret)
		debugfs_remove(keel_debugfs_root);
	return ret;
}

/**
 * keel_debugfs_exit() - undo keel_debugfs_init()
 */
void keel_debugfs_exit(void)
{
	ib_unregister_client(&keel_debugfs_client);
	debugfs_remove(keel_debugfs_root);
}
