// SPDX-License-Identifier: GPL-2.0
/*
 * The file systems of XRC domains. ib_uverbs has a reference on the inode of a domain
 * only. If its file system were unmounted first, the last iput() would access a freed
 * super block. So keel keeps the file system mounted, with an O_PATH file, which keeps
 * nothing else and needs no answer of the file system.
 *
 * The file must stay until ib_uverbs has dropped the inode, which it does right after
 * the dealloc_xrcd op, with &ib_uverbs_device.xrcd_tree_mutex. All opens and closes of
 * domains with an inode take this mutex. So fput() must not release the file at once:
 *
 * * In a process, it does so when the system call ends, without the mutex. The last
 *   reference on a large deleted file is dropped there, too: nobody waits for it.
 * * In a thread of the kernel, a timer would be all that delays it. There the file is
 *   kept until the next open or close, or until the device is released.
 */
#include <linux/cred.h>
#include <linux/err.h>
#include <linux/fdtable.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/slab.h>
#include <kunit/visibility.h>

#include "keel.h"

/**
 * struct keel_xrcd_pin - keeps the file system of a domain
 * @file: an O_PATH file of the inode
 * @node: in &keel_xrcd_pins.late or &keel_xrcd_pins.over
 */
struct keel_xrcd_pin {
	struct file *file;
	struct llist_node node;
};

static void keel_xrcd_pin_free(struct keel_xrcd_pin *pin)
{
	fput(pin->file);
	kfree(pin);
}

/* A thread of the kernel, so that no process runs the unmount of another one. */
static void keel_xrcd_pins_work(struct work_struct *work)
{
	struct keel_xrcd_pins *pins = container_of(work, struct keel_xrcd_pins, work);
	struct llist_node *list = llist_del_all(&pins->over);
	struct keel_xrcd_pin *pin, *next;

	llist_for_each_entry_safe(pin, next, list, node)
		keel_xrcd_pin_free(pin);
}

/* ib_uverbs has the mutex: it has dropped the inodes of all files in @late. */
static void keel_xrcd_pins_over(struct keel_dev *kdev)
{
	struct keel_xrcd_pins *pins = &kdev->xrcd_pins;
	struct llist_node *first = llist_del_all(&pins->late), *last = first;

	if (!first)
		return;
	while (last->next)
		last = last->next;
	llist_add_batch(first, last, &pins->over);
	queue_work(kdev->wq, &pins->work);
}

/**
 * struct keel_xrcd_find - finds a file of an inode
 * @inode: the inode
 * @file: the file, with a reference; or NULL
 */
struct keel_xrcd_find {
	const struct inode *inode;
	struct file *file;
};

static int keel_xrcd_is_of(const void *arg, struct file *file, unsigned int fd)
{
	struct keel_xrcd_find *find = (struct keel_xrcd_find *)arg;

	if (file_inode(file) != find->inode)
		return 0;
	find->file = get_file(file);
	return 1;
}

/**
 * keel_xrcd_pin_new() - keep the file system of an inode
 * @kdev: the device
 * @inode: the inode. This process has a file of it, whose descriptor ib_uverbs found
 *
 * Context: may sleep. ib_uverbs has its mutex of XRC domains.
 * Return: for keel_xrcd_pin_put(); -EBADF if another thread has closed the descriptor
 * meanwhile; -ENOMEM or another error if no file can be opened.
 */
struct keel_xrcd_pin *keel_xrcd_pin_new(struct keel_dev *kdev,
					const struct inode *inode)
{
	struct keel_xrcd_find find = { .inode = inode };
	struct keel_xrcd_pin *pin;
	struct file *file;

	keel_xrcd_pins_over(kdev);
	pin = kzalloc_obj(*pin, GFP_KERNEL_ACCOUNT);
	if (!pin)
		return ERR_PTR(-ENOMEM);
	file = ERR_PTR(-EBADF);
	if (iterate_fd(current->files, 0, keel_xrcd_is_of, &find)) {
		file = dentry_open(&find.file->f_path, O_PATH, current_cred());
		fput(find.file);
	}
	if (IS_ERR(file)) {
		kfree(pin);
		return ERR_CAST(file);
	}
	pin->file = file;
	return pin;
}

/**
 * keel_xrcd_pin_put() - let go of a file system, when ib_uverbs has dropped the inode
 * @kdev: the device
 * @pin: of keel_xrcd_pin_new(), or NULL
 *
 * Context: may sleep. ib_uverbs has its mutex of XRC domains, and drops the inode before
 * it drops the mutex.
 */
void keel_xrcd_pin_put(struct keel_dev *kdev, struct keel_xrcd_pin *pin)
{
	if (!pin)
		return;
	keel_xrcd_pins_over(kdev);
	if (current->flags & PF_KTHREAD)
		llist_add(&pin->node, &kdev->xrcd_pins.late);
	else
		keel_xrcd_pin_free(pin);
}

/**
 * keel_xrcd_pins_init() - prepare a device
 * @kdev: the device
 */
void keel_xrcd_pins_init(struct keel_dev *kdev)
{
	init_llist_head(&kdev->xrcd_pins.late);
	init_llist_head(&kdev->xrcd_pins.over);
	INIT_WORK(&kdev->xrcd_pins.work, keel_xrcd_pins_work);
}

/**
 * keel_xrcd_pins_fini() - let go of all file systems
 * @kdev: the device; no domain of it is left, and ib_uverbs does not use it any more
 *
 * Context: may sleep. The workqueue of the device exists.
 */
void keel_xrcd_pins_fini(struct keel_dev *kdev)
{
	keel_xrcd_pins_over(kdev);
}
EXPORT_SYMBOL_IF_KUNIT(keel_xrcd_pins_fini);
