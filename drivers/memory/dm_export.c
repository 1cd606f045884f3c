// SPDX-License-Identifier: GPL-2.0
/*
 * Device memory behind a BAR as a dma-buf: what ib_uverbs asks a driver for.
 * A process may export the buffers that it may map.
 *
 * The dma-buf has a reference on the mmap entry, which keeps the bytes from
 * getting another owner until its last file is closed or the context that
 * exported it has ended. Destroying the buffer, and so the end of its owner or
 * of the device, revokes it: that returns when every importer has unmapped it,
 * so nobody reaches a BAR that is ours no more.
 */
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/types.h>

#include "keel.h"
#include "keel_dm.h"

static bool dmabuf_export;
module_param(dmabuf_export, bool, 0644);
MODULE_PARM_DESC(dmabuf_export,
		 "Programs may export device memory behind BARs as dma-bufs, of functions bound from now on (default N: ib_uverbs of Linux 7.2 can free one too early)");

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
	/* The page of removal.c has no entry: it is not for export. */
	return rdma_user_mmap_entry_get_pgoff(context, pgoff);
}

static const struct ib_device_ops keel_dm_export_ops = {
	.mmap_get_pfns = keel_mmap_get_pfns,
	.pgoff_to_mmap_entry = keel_pgoff_to_mmap_entry,
};

/**
 * keel_dm_export_offer() - let programs export device memory, if they can
 * @kdev: a device that is not registered yet
 *
 * Without the ops, the core has no such method for the device. They are for who
 * asks for them: what the core does to the dma-buf is beyond us, and when its
 * last file is closed while its owner's context ends, that is to use it after
 * it was freed (Documentation/device-memory.rst).
 */
void keel_dm_export_offer(struct keel_dev *kdev)
{
	if (kdev->provider && READ_ONCE(dmabuf_export))
		ib_set_device_ops(&kdev->ib, &keel_dm_export_ops);
}
