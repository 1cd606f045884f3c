// SPDX-License-Identifier: GPL-2.0
/*
 * keel_carrier: messages between two devices of RoCE, from kernel QPs. A program posts each by
 * an ioctl, and polls counters in a mapped page, which the handlers of completions increment.
 * A driver that has another RDMA device carry its messages cannot do less for one, so that its
 * figures cannot be better while it posts one at a time. scripts/bench-across measures them, see
 * bench/relay.c.
 *
 * Nobody looks at the data: all messages of a side share a buffer. Any peer of the devices could
 * write to all memory of the kernel, if it guessed a key and the number of a QP: only for a
 * guest without other hosts.
 */
#include <linux/cleanup.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "compat.h"
#include "side.h"

static_assert(sizeof(struct carrier_page) <= PAGE_SIZE);

/**
 * struct carrier_dev - a device that messages may use
 * @node: in carrier_devs
 * @ib: the device
 */
struct carrier_dev {
	struct list_head node;
	struct ib_device *ib;
};

/**
 * struct carrier - an open file
 * @node: in carriers
 * @sides: its two sides
 */
struct carrier {
	struct list_head node;
	struct carrier_side sides[2];
};

/* For both lists, and to connect and disconnect. */
static DEFINE_MUTEX(carrier_lock);
static LIST_HEAD(carriers);
static LIST_HEAD(carrier_devs);

static void carrier_set_up(struct carrier *carrier, bool up)
{
	int i;

	for (i = 0; i < 2; i++)
		scoped_guard(mutex, &carrier->sides[i].lock)
			carrier->sides[i].up = up;
}

static void carrier_disconnect(struct carrier *carrier)
{
	lockdep_assert_held(&carrier_lock);
	carrier_set_up(carrier, false);
	carrier_end(&carrier->sides[0]);
	carrier_end(&carrier->sides[1]);
}

/* Find the device of a side. */
static int carrier_find(struct carrier_side *side, const struct carrier_device *want)
{
	struct carrier_dev *dev;

	/* &ib_global_route.sgid_index has 8 bits. */
	if (strnlen(want->name, sizeof(want->name)) == sizeof(want->name) ||
	    want->gid_index > U8_MAX)
		return -EINVAL;
	list_for_each_entry(dev, &carrier_devs, node) {
		if (strcmp(dev->ib->name, want->name))
			continue;
		if (!rdma_protocol_roce(dev->ib, CARRIER_PORT))
			return -EOPNOTSUPP;
		side->ib = dev->ib;
		side->gid_index = want->gid_index;
		return 0;
	}
	return -ENODEV;
}

static int carrier_connect(struct carrier *carrier, const struct carrier_connect *how)
{
	struct carrier_side *a = &carrier->sides[0], *b = &carrier->sides[1];
	int ret;

	if (how->context >= CARRIER_CONTEXTS)
		return -EINVAL;
	guard(mutex)(&carrier_lock);
	if (a->ib)
		return -EISCONN;
	a->context = how->context;
	b->context = how->context;
	ret = carrier_find(a, &how->devices[0]);
	ret = ret ?: carrier_find(b, &how->devices[1]);
	ret = ret ?: carrier_begin(a);
	ret = ret ?: carrier_begin(b);
	ret = ret ?: carrier_join(a, b);
	ret = ret ?: carrier_join(b, a);
	if (ret)
		carrier_disconnect(carrier);
	else
		carrier_set_up(carrier, true);
	return ret;
}

static long carrier_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	const void __user *from = (const void __user *)arg;
	struct carrier *carrier = file->private_data;
	struct carrier_connect how;
	struct carrier_post what;

	switch (cmd) {
	case CARRIER_IOC_POST:
		if (copy_from_user(&what, from, sizeof(what)))
			return -EFAULT;
		if (what.side >= ARRAY_SIZE(carrier->sides))
			return -EINVAL;
		return carrier_post(&carrier->sides[what.side], &what);
	case CARRIER_IOC_CONNECT:
		if (copy_from_user(&how, from, sizeof(how)))
			return -EFAULT;
		return carrier_connect(carrier, &how);
	default:
		return -ENOTTY;
	}
}

static int carrier_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct carrier *carrier = file->private_data;

	if (vma->vm_pgoff >= ARRAY_SIZE(carrier->sides) || vma_pages(vma) != 1)
		return -EINVAL;
	if (vma->vm_flags & (VM_WRITE | VM_EXEC))
		return -EPERM;
	vm_flags_clear(vma, VM_MAYWRITE | VM_MAYEXEC);
	return vm_insert_page(vma, vma->vm_start,
			      virt_to_page(carrier->sides[vma->vm_pgoff].page));
}

static void carrier_free(struct carrier *carrier)
{
	int i;

	for (i = 0; i < 2; i++) {
		mutex_destroy(&carrier->sides[i].lock);
		free_page((unsigned long)carrier->sides[i].page);
	}
	kfree(carrier);
}

static int carrier_open(struct inode *inode, struct file *file)
{
	struct carrier *carrier = kzalloc_obj(*carrier, GFP_KERNEL);
	struct carrier_side *side;
	int i;

	if (!carrier)
		return -ENOMEM;
	for (i = 0; i < 2; i++) {
		side = &carrier->sides[i];
		mutex_init(&side->lock);
		side->page = (struct carrier_page *)get_zeroed_page(GFP_KERNEL);
	}
	if (!carrier->sides[0].page || !carrier->sides[1].page) {
		carrier_free(carrier);
		return -ENOMEM;
	}
	file->private_data = carrier;
	guard(mutex)(&carrier_lock);
	list_add(&carrier->node, &carriers);
	return 0;
}

static int carrier_release(struct inode *inode, struct file *file)
{
	struct carrier *carrier = file->private_data;

	scoped_guard(mutex, &carrier_lock) {
		carrier_disconnect(carrier);
		list_del(&carrier->node);
	}
	carrier_free(carrier);
	return 0;
}

static const struct file_operations carrier_fops = {
	.owner = THIS_MODULE,
	.open = carrier_open,
	.release = carrier_release,
	.mmap = carrier_mmap,
	.unlocked_ioctl = carrier_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

static struct miscdevice carrier_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "keel_carrier",
	.fops = &carrier_fops,
	.mode = 0600,
};

static struct ib_client carrier_client;

static int carrier_add(struct ib_device *ib)
{
	struct carrier_dev *dev = kzalloc_obj(*dev, GFP_KERNEL);

	if (!dev)
		return -ENOMEM;
	dev->ib = ib;
	ib_set_client_data(ib, &carrier_client, dev);
	guard(mutex)(&carrier_lock);
	list_add(&dev->node, &carrier_devs);
	return 0;
}

static void carrier_remove(struct ib_device *ib, void *data)
{
	struct carrier_dev *dev = data;
	struct carrier *carrier;

	scoped_guard(mutex, &carrier_lock) {
		list_for_each_entry(carrier, &carriers, node)
			if (carrier->sides[0].ib == ib || carrier->sides[1].ib == ib)
				carrier_disconnect(carrier);
		list_del(&dev->node);
	}
	kfree(dev);
}

static struct ib_client carrier_client = {
	.name = "keel_carrier",
	.add = carrier_add,
	.remove = carrier_remove,
};

static int __init carrier_init(void)
{
	int ret = ib_register_client(&carrier_client);

	if (ret)
		return ret;
	ret = misc_register(&carrier_misc);
	if (ret)
		ib_unregister_client(&carrier_client);
	return ret;
}

static void __exit carrier_exit(void)
{
	misc_deregister(&carrier_misc);
	ib_unregister_client(&carrier_client);
}

module_init(carrier_init);
module_exit(carrier_exit);

MODULE_AUTHOR("the keel authors");
MODULE_DESCRIPTION("Kernel consumer of RDMA that does nothing else, for measurements");
MODULE_LICENSE("GPL");
