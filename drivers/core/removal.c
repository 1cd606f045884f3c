// SPDX-License-Identifier: GPL-2.0
/*
 * The state page, which tells userspace that the device was removed: see
 * Documentation/device.rst. keel sets it before ib_uverbs disassociates
 * anything. If an application finds the device present after a copy, the
 * mapping was intact during the copy.
 *
 * The page is ordinary memory, and a mapping has a reference on it. Unlike
 * mappings of device memory, it needs no work at device removal.
 *
 * If a device is moved to another network namespace, applications that have it
 * open see a device removal. The device then returns with a new page.
 */
#include <linux/mm.h>

#include "keel.h"
#include "keel_removal.h"

static struct keel_uapi_state *keel_state_of(struct page *page)
{
	return page_address(page);
}

/* ib_core calls this before clients, and through them userspace, may use it. */
static int keel_enable(struct ib_device *ibdev)
{
	struct keel_dev *kdev = to_kdev(ibdev);

	/* keel received no port events while the device was disabled. */
	WRITE_ONCE(kdev->port_event, KEEL_EVENT_NONE);
	if (kdev->state && !keel_state_of(kdev->state)->gone)
		return 0;
	/* All earlier contexts have ended: the old pointer is not in use. */
	keel_state_put(kdev);
	kdev->state = alloc_page(GFP_KERNEL | __GFP_ZERO);
	return kdev->state ? 0 : -ENOMEM;
}

/**
 * keel_state_is_gone() - is the device being removed, or was it?
 * @kdev: the device, with a context
 *
 * Context: any.
 * Return: true before ib_uverbs disassociates anything.
 */
bool keel_state_is_gone(const struct keel_dev *kdev)
{
	return READ_ONCE(keel_state_of(kdev->state)->gone);
}

/**
 * keel_state_put() - drop the reference on the state page of a device
 * @kdev: the device, without contexts
 */
void keel_state_put(struct keel_dev *kdev)
{
	if (kdev->state)
		put_page(kdev->state);
	kdev->state = NULL;
}

/**
 * keel_state_mmap() - map the state page to userspace
 * @kdev: the device
 * @vma: a mapping at KEEL_STATE_OFFSET
 *
 * Context: called by mmap(), while ib_core keeps the device.
 * Return: 0; -EINVAL if the mapping is private or not one page long; -EPERM if
 * it is writable or executable, because all applications share the page.
 */
int keel_state_mmap(struct keel_dev *kdev, struct vm_area_struct *vma)
{
	if (!(vma->vm_flags & VM_SHARED) ||
	    vma->vm_end - vma->vm_start != PAGE_SIZE)
		return -EINVAL;
	if (vma->vm_flags & (VM_WRITE | VM_EXEC))
		return -EPERM;
	vm_flags_clear(vma, VM_MAYWRITE | VM_MAYEXEC);
	return vm_insert_page(vma, vma->vm_start, kdev->state);
}

/*
 * ib_core removes clients in reverse order of registration. So ib_uverbs must
 * be registered before keel, and must not be reloaded meanwhile. A reference to
 * one of its symbols ensures both.
 */
static const void *const keel_needs_uverbs __used = &KEEL_OF_UVERBS;

static void keel_client_remove(struct ib_device *ibdev, void *data)
{
	if (ibdev->ops.driver_id == KEEL_RDMA_DRIVER)
		WRITE_ONCE(keel_state_of(to_kdev(ibdev)->state)->gone, 1);
}

static struct ib_client keel_client = {
	.name = "keel",
	.remove = keel_client_remove,
	.no_kverbs_req = true,
};

/**
 * keel_removal_init() - register for device removal, ahead of ib_uverbs
 *
 * Return: 0 or a negative errno.
 */
int keel_removal_init(void)
{
	return ib_register_client(&keel_client);
}

/**
 * keel_removal_exit() - undo keel_removal_init(), when no device is left
 */
void keel_removal_exit(void)
{
	ib_unregister_client(&keel_client);
}

const struct ib_device_ops keel_removal_ops = {
	.enable_driver = keel_enable,
};
