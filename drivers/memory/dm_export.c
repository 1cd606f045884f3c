// SPDX-License-Identifier: GPL-2.0
/*
 * Device memory behind a BAR as a dma-buf: the driver's part of the export by
 * ib_uverbs. A process may export the buffers that it may map.
 *
 * The dma-buf has a reference on the mmap entry. That keeps the bytes from
 * being allocated again until the last file of the dma-buf is closed, or the
 * context that exported it has ended. Destroying the buffer revokes the
 * dma-buf; so do the exit of its owner and device removal. The revocation
 * returns when every importer has unmapped the dma-buf, so no importer accesses
 * a BAR that keel no longer owns.
 */
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/types.h>

#include "keel.h"
#include "keel_dm.h"

static bool dmabuf_export;
module_param(dmabuf_export, bool, 0644);
MODULE_PARM_DESC(dmabuf_export,
		 "Userspace may export device memory behind a BAR as a dma-buf; applies to functions bound later (default N: ib_uverbs of Linux 7.2 has use-after-free bugs)");

static int keel_mmap_get_pfns(struct rdma_user_mmap_entry *entry,
			      struct phys_vec *phys_vec,
			      struct p2pdma_provider **provider)
{
	const struct keel_aperture_seg *seg = keel_dm_map_seg(entry);

	phys_vec->paddr = PFN_PHYS(seg->pfn);
	phys_vec->len = seg->len;
	*provider = to_kdev(entry->ucontext->device)->provider;
	return 0;
}

static struct rdma_user_mmap_entry *
keel_pgoff_to_mmap_entry(struct ib_ucontext *context, off_t pgoff)
{
	/* The state page of removal.c has no mmap entry: no export. */
	return rdma_user_mmap_entry_get_pgoff(context, pgoff);
}

static const struct ib_device_ops keel_dm_export_ops = {
	.mmap_get_pfns = keel_mmap_get_pfns,
	.pgoff_to_mmap_entry = keel_pgoff_to_mmap_entry,
};

/**
 * keel_dm_export_offered() - may userspace export device memory?
 * @kdev: the device
 *
 * A dma-buf is for whole pages, and for anybody.
 *
 * Context: any.
 */
bool keel_dm_export_offered(const struct keel_dev *kdev)
{
	return kdev->ib.ops.mmap_get_pfns;
}

/**
 * keel_dm_export_offer() - let userspace export device memory, if supported
 * @kdev: a device that is not registered yet
 *
 * Without these ops, ib_core offers no such method for the device. They are off
 * unless the administrator enables them, because ib_core may use a dma-buf
 * after it was freed (Documentation/device-memory.rst).
 */
void keel_dm_export_offer(struct keel_dev *kdev)
{
	if (kdev->provider && READ_ONCE(dmabuf_export))
		ib_set_device_ops(&kdev->ib, &keel_dm_export_ops);
}
