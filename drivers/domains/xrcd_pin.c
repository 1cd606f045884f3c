// SPDX-License-Identifier: GPL-2.0
/*
 * The file systems of XRC domains. ib_uverbs has a reference on the inode of a domain
 * only. If its file system were unmounted first, the last iput() would access a freed
 * super block. So keel keeps the file system mounted, with an O_PATH file. That also
 * keeps the name of the file, but needs no answer of the file system.
 *
 * The file must stay until ib_uverbs has dropped the inode, which it does right after
 * the dealloc_xrcd op, with &ib_uverbs_device.xrcd_tree_mutex. All opens and closes of
 * domains with an inode take this mutex. So fput() must not release the file at once:
 *
 * * In a process that closes a domain, it does so when the system call ends, without
 *   the mutex. The last reference on a large deleted file is dropped there, too.
 * * A thread of the kernel would have nothing but a timer to delay it. And a process
 *   that removes the device would unmount what others have detached. Both leave the
 *   file to a thread of the kernel: when the next domain is opened or closed, when the
 *   context ends that this thread is closing, or when the device is released.
 *
 * When a device moves to another network namespace, ib_uverbs creates a new mutex. It
 * has then closed all domains, and all their contexts.
 */
#include <linux/cred.h>
#include <linux/err.h>
#include <linux/fdtable.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/slab.h>
#include <kunit/visibility.h>

#include "keel.h"
#include "keel_removal.h"

/**
 * struct keel_xrcd_pin - keeps the file system of a domain
 * @file: an O_PATH file of the inode
 * @closer: the thread that closed the domain; only compared
 * @node: in &keel_xrcd_pins.late or &keel_xrcd_pins.over
 */
struct keel_xrcd_pin {
	struct file *file;
	const struct task_struct *closer;
	struct list_head node;
};

static void keel_xrcd_pin_free(struct keel_xrcd_pin *pin)
{
	fput(pin->file);
	kfree(pin);
}

/* In a thread of the kernel, fput() leaves the release to another one. */
static void keel_xrcd_pins_work(struct work_struct *work)
{
	struct keel_xrcd_pins *pins = container_of(work, struct keel_xrcd_pins, work);
	struct keel_xrcd_pin *pin, *next;
	LIST_HEAD(list);

	scoped_guard(spinlock, &pins->lock)
		list_splice_init(&pins->over, &list);
	list_for_each_entry_safe(pin, next, &list, node)
		keel_xrcd_pin_free(pin);
}

/**
 * keel_xrcd_pins_over() - drop file systems whose inodes ib_uverbs has dropped
 * @kdev: the device
 * @closer: only those of domains that this thread has closed; NULL: all, because
 *	ib_uverbs has its mutex of XRC domains or does not use the device any more
 *
 * Context: may sleep. The workqueue of the device exists.
 */
void keel_xrcd_pins_over(struct keel_dev *kdev, const struct task_struct *closer)
{
	struct keel_xrcd_pins *pins = &kdev->xrcd_pins;
	struct keel_xrcd_pin *pin, *next;

	guard(spinlock)(&pins->lock);
	list_for_each_entry_safe(pin, next, &pins->late, node)
		if (!closer || pin->closer == closer)
			list_move_tail(&pin->node, &pins->over);
	if (!list_empty(&pins->over))
		queue_work(kdev->wq, &pins->work);
}
EXPORT_SYMBOL_IF_KUNIT(keel_xrcd_pins_over);

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
	struct file *file = ERR_PTR(-EBADF);
	struct keel_xrcd_pin *pin;

	keel_xrcd_pins_over(kdev, NULL);
	pin = kzalloc_obj(*pin, GFP_KERNEL_ACCOUNT);
	if (!pin)
		return ERR_PTR(-ENOMEM);
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
 * keel_xrcd_pin_put() - drop a file system, when ib_uverbs has dropped the inode
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
	keel_xrcd_pins_over(kdev, NULL);
	if (!(current->flags & PF_KTHREAD) && !keel_state_is_gone(kdev)) {
		keel_xrcd_pin_free(pin);
		return;
	}
	pin->closer = current;
	guard(spinlock)(&kdev->xrcd_pins.lock);
	list_add_tail(&pin->node, &kdev->xrcd_pins.late);
}

/**
 * keel_xrcd_pins_init() - prepare a device
 * @kdev: the device
 */
void keel_xrcd_pins_init(struct keel_dev *kdev)
{
	struct keel_xrcd_pins *pins = &kdev->xrcd_pins;

	spin_lock_init(&pins->lock);
	/* No other thread has the device yet. */
	context_unsafe(INIT_LIST_HEAD(&pins->late));
	/* Nor this list. */
	context_unsafe(INIT_LIST_HEAD(&pins->over));
	INIT_WORK(&pins->work, keel_xrcd_pins_work);
}
