// SPDX-License-Identifier: GPL-2.0
/*
 * The page that tells programs that their device has gone.
 *
 * Operations without a system call (copies through a mapping, posting receives,
 * polling) cannot fail by themselves when the device goes. So every program can
 * map one page of the device, for reading, and look there. It says
 * so before ib_uverbs begins to take anything away: who has copied, and then
 * still finds the device there, has copied through a mapping that was whole.
 *
 * The page is ordinary memory with a count, which a mapping keeps: unlike
 * mappings of device memory it needs nothing from anybody when the device goes.
 *
 * A device that is moved to another network namespace goes for the programs
 * that have it open, and comes again, with a new page.
 */
#include <linux/mm.h>

#include "keel.h"
#include "keel_removal.h"

static struct keel_uapi_state *keel_state_of(struct page *page)
{
	return page_address(page);
}

/* The core is about to let clients, and through them programs, use the device. */
static int keel_enable(struct ib_device *ibdev)
{
	struct keel_dev *kdev = to_kdev(ibdev);

	/* Nobody told us of the port while the device was not to be had. */
	WRITE_ONCE(kdev->port_event, KEEL_EVENT_NONE);
	if (kdev->state && !keel_state_of(kdev->state)->gone)
		return 0;
	/* Contexts of before have ended: nobody looks at the old pointer. */
	keel_state_free(kdev);
	kdev->state = alloc_page(GFP_KERNEL | __GFP_ZERO);
	return kdev->state ? 0 : -ENOMEM;
}

/**
 * keel_state_free() - drop the page of a device
 * @kdev: the device, without contexts
 */
void keel_state_free(struct keel_dev *kdev)
{
	if (kdev->state)
		put_page(kdev->state);
	kdev->state = NULL;
}

/**
 * keel_state_mmap() - a program maps the page
 * @kdev: its device
 * @vma: a mapping at KEEL_STATE_OFFSET
 *
 * Context: from mmap(), while the core keeps the device.
 * Return: 0; -EINVAL for a mapping that is private or has another length,
 * -EPERM for one that could be written to: the page is everybody's.
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
 * Clients that came last are removed first. So ib_uverbs must have come before
 * us, and must not be unloaded and loaded again meanwhile: for that it is enough
 * to name a symbol of its.
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
 * keel_removal_init() - hear of devices that go, before programs lose anything
 *
 * Return: 0 or a negative errno.
 */
int keel_removal_init(void)
{
	return ib_register_client(&keel_client);
}

/**
 * keel_removal_exit() - undo keel_removal_init(), without devices
 */
void keel_removal_exit(void)
{
	ib_unregister_client(&keel_client);
}

const struct ib_device_ops keel_removal_ops = {
	.enable_driver = keel_enable,
};
