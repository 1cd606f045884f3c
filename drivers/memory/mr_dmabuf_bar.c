// SPDX-License-Identifier: GPL-2.0
/*
 * Regions of dma-bufs without a kernel mapping, because they are part of a BAR:
 * ibv_reg_dmabuf_mr() of device memory that ib_uverbs exported.
 *
 * The function attaches to the dma-buf, as any device would. If the DMA
 * addresses are inside the device's memory, the region is that memory.
 *
 * Then the exporter is ib_uverbs, on behalf of this very device. When the
 * buffer is destroyed, it revokes the dma-buf and waits until it is unmapped.
 * Until then, the buffer owns the bytes. The exporter holds a lock when it
 * calls keel_own_invalidate(). An in-flight copy may need that lock to end, if
 * another thread locks both this and another dma-buf. So the callback does not
 * wait: it queues work that invalidates the key, waits for its users, and
 * unmaps.
 */
#include <linux/dma-buf.h>
#include <linux/dma-resv.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/workqueue.h>
#include <kunit/visibility.h>

#include "keel_mr.h"

/**
 * struct keel_own - attachment of a region to the device's own memory
 * @mr: the region
 * @attach: the attachment of the PCI function
 * @sgt: its mapping, or NULL after it was unmapped. The lock of the dma-buf
 *	protects it and the flags.
 * @null_key: replaces the region's key when the dma-buf is revoked
 * @work: does the revocation, on a workqueue that is not freezable, because
 *	device removal waits for it
 * @live: the region has its key and is not being deregistered: @work may run
 * @revoked: the exporter has revoked the dma-buf
 */
struct keel_own {
	struct keel_mr *mr;
	struct dma_buf_attachment *attach;
	struct sg_table *sgt;
	struct keel_key *null_key;
	struct work_struct work;
	bool live;
	bool revoked;
};

/**
 * keel_own_unmap() - unmap the dma-buf, for which an exporter may wait
 * @own: the attachment of a region whose memory no thread uses any more
 *
 * Nothing happens if it is unmapped already.
 *
 * Context: may sleep.
 */
void keel_own_unmap(struct keel_own *own)
{
	struct dma_buf *dmabuf = own->attach->dmabuf;

	dma_resv_lock(dmabuf->resv, NULL);
	if (own->sgt)
		dma_buf_unmap_attachment(own->attach, own->sgt,
					 DMA_BIDIRECTIONAL);
	own->sgt = NULL;
	dma_resv_unlock(dmabuf->resv);
}

static void keel_own_revoke(struct work_struct *work)
{
	struct keel_own *own = container_of(work, struct keel_own, work);

	/* Nothing else changes the key of such a region before keel_own_stop(). */
	context_unsafe(keel_key_swap(own->mr->keys, &own->mr->key,
				     own->null_key));
	own->null_key = NULL;
	/* Keys of windows open the same memory. No new one can be bound. */
	keel_mr_unbind(own->mr);
	keel_drain_wait(&own->mr->drain);
	keel_own_unmap(own);
}

static void keel_own_invalidate(struct dma_buf_attachment *attach)
{
	struct keel_own *own = attach->importer_priv;

	dma_resv_assert_held(attach->dmabuf->resv);
	if (own->live && !own->revoked)
		queue_work(system_dfl_wq, &own->work);
	own->revoked = true;
}

static const struct dma_buf_attach_ops keel_own_attach_ops = {
	.allow_peer2peer = true,
	.invalidate_mappings = keel_own_invalidate,
};

/* Find the offset of a dma-buf that is contiguous in the device's memory. */
VISIBLE_IF_KUNIT int keel_own_find(const struct keel_dev *kdev,
				   const struct dma_buf *dmabuf,
				   struct sg_table *sgt, u64 *start)
{
	struct keel_aperture *ap = kdev->ap;
	struct keel_aperture_seg seg;
	struct scatterlist *sg;
	u64 base, at, next = 0;
	unsigned int i;

	/* A BAR is one contiguous extent. */
	ap->ops->segment(ap, 0, &seg);
	base = PFN_PHYS(seg.pfn);
	for_each_sgtable_dma_sg(sgt, sg, i) {
		at = sg_dma_address(sg) - base;
		if (at >= seg.len || sg_dma_len(sg) > seg.len - at)
			return -EOPNOTSUPP;
		if (i && at != next)
			return -EOPNOTSUPP;
		if (!i)
			*start = at;
		next = at + sg_dma_len(sg);
	}
	/* Until here, the range was only checked against the size. */
	return i && next - *start == dmabuf->size ? 0 : -EOPNOTSUPP;
}
EXPORT_SYMBOL_IF_KUNIT(keel_own_find);

/*
 * Check this before calling another exporter.
 *
 * keel compares bus addresses, but some mappings of a BAR return physical
 * addresses. So this works only for functions where both are equal, and only
 * for the exporter that is known to return one of them.
 */
static bool keel_own_may_be(const struct keel_dev *kdev,
			    const struct dma_buf *dmabuf)
{
	return kdev->provider && !kdev->provider->bus_offset &&
	       !strcmp(dmabuf->exp_name, "ib_uverbs");
}

/* Map the dma-buf, and check that it is the device's own memory. */
static int keel_own_check(const struct keel_dev *kdev, struct keel_own *own,
			  u64 *start)
{
	struct dma_buf *dmabuf = own->attach->dmabuf;
	struct sg_table *sgt;
	long left;
	int ret;

	ret = dma_resv_lock_interruptible(dmabuf->resv, NULL);
	if (ret)
		return ret;
	left = dma_resv_wait_timeout(dmabuf->resv, DMA_RESV_USAGE_KERNEL, true,
				     MAX_SCHEDULE_TIMEOUT);
	sgt = left < 0 ? ERR_PTR(left) :
			 dma_buf_map_attachment(own->attach, DMA_BIDIRECTIONAL);
	if (!IS_ERR(sgt))
		own->sgt = sgt;
	dma_resv_unlock(dmabuf->resv);
	/* Exporters return -EINVAL if peer-to-peer DMA is impossible. */
	if (IS_ERR(sgt))
		return PTR_ERR(sgt) == -EINVAL ? -EOPNOTSUPP : PTR_ERR(sgt);
	return keel_own_find(kdev, dmabuf, sgt, start);
}

/**
 * keel_own_map() - use a dma-buf of the device's own memory as memory
 * @kdev: the device
 * @mr: the region, which gets the memory
 * @dmabuf: the dma-buf; on success, the caller's reference passes to @mr
 * @offset: offset of the first byte; the range was checked
 *
 * The caller calls keel_own_start() when the region has its key.
 * keel_own_free() undoes this.
 *
 * Context: may sleep.
 * Return: 0; -EOPNOTSUPP for other memory; -ENODEV if the buffer was destroyed;
 * -ENOMEM, -EINTR or -ERESTARTSYS; or the error of the exporter.
 */
int keel_own_map(struct keel_dev *kdev, struct keel_mr *mr,
		 struct dma_buf *dmabuf, u64 offset)
{
	struct dma_buf_attachment *attach;
	struct keel_own *own;
	u64 start;
	int ret;

	if (!keel_own_may_be(kdev, dmabuf))
		return -EOPNOTSUPP;
	own = kzalloc_obj(*own, GFP_KERNEL_ACCOUNT);
	if (!own)
		return -ENOMEM;
	own->mr = mr;
	INIT_WORK(&own->work, keel_own_revoke);
	own->null_key = kzalloc_obj(*own->null_key, GFP_KERNEL_ACCOUNT);
	ret = -ENOMEM;
	if (!own->null_key)
		goto err_own;
	attach = dma_buf_dynamic_attach(dmabuf, kdev->ib.dev.parent,
					&keel_own_attach_ops, own);
	if (IS_ERR(attach)) {
		ret = PTR_ERR(attach);
		goto err_own;
	}
	own->attach = attach;
	ret = keel_own_check(kdev, own, &start);
	if (ret)
		goto err_attach;
	mr->own = own;
	mr->mem.type = KEEL_MEM_DM;
	mr->mem.ap = kdev->ap;
	mr->mem.start = start + offset;
	return 0;

err_attach:
	keel_own_unmap(own);
	dma_buf_detach(dmabuf, attach);
err_own:
	kfree(own->null_key);
	kfree(own);
	return ret;
}

/**
 * keel_own_start() - allow revocation, after the region has got its key
 * @mr: the region
 *
 * Context: may sleep.
 */
void keel_own_start(struct keel_mr *mr)
{
	const struct keel_key *key = keel_mr_key(mr);
	struct keel_own *own = mr->own;
	struct dma_resv *resv = own->attach->dmabuf->resv;

	own->null_key->key = key->key;
	own->null_key->domain = key->domain;
	own->null_key->obj = &mr->obj;
	dma_resv_lock(resv, NULL);
	own->live = true;
	if (own->revoked)
		queue_work(system_dfl_wq, &own->work);
	dma_resv_unlock(resv);
}

/**
 * keel_own_stop() - stop revocation, before the region is deregistered
 * @mr: the region; the caller invalidates its key, and then calls keel_own_unmap()
 *
 * Context: may sleep. The caller has no reference on a key.
 */
void keel_own_stop(struct keel_mr *mr)
{
	struct keel_own *own = mr->own;
	struct dma_resv *resv = own->attach->dmabuf->resv;

	dma_resv_lock(resv, NULL);
	own->live = false;
	dma_resv_unlock(resv);
	cancel_work_sync(&own->work);
}

/**
 * keel_own_free() - undo keel_own_map()
 * @mr: the region, whose key has no users any more
 *
 * Context: may sleep.
 */
void keel_own_free(struct keel_mr *mr)
{
	struct keel_own *own = mr->own;
	struct dma_buf *dmabuf = own->attach->dmabuf;

	keel_own_unmap(own);
	dma_buf_detach(dmabuf, own->attach);
	dma_buf_put(dmabuf);
	kfree(own->null_key);
	kfree(own);
}
