// SPDX-License-Identifier: GPL-2.0
/*
 * Regions of dma-bufs that no processor reaches, because they are somebody's
 * BAR: ibv_reg_dmabuf_mr() of device memory that ib_uverbs exported.
 *
 * One BAR keel does reach: the device's own. So the function attaches to the
 * dma-buf as any device would, for transfers from device to device, and looks
 * at the addresses it is told to use. If they are inside the device's memory,
 * it is that memory. There is no DMA, and no bus is involved.
 *
 * Then the exporter is ib_uverbs, on behalf of this very device, which revokes
 * the dma-buf when the buffer goes and waits until it is unmapped. Until then
 * the bytes are the buffer's. It holds a lock when it tells us, which a copy
 * under way may need in order to end (of another dma-buf, through whoever
 * locks both), so nothing is waited for there: work takes the key back, waits
 * for its users, and unmaps.
 */
#include <linux/dma-buf.h>
#include <linux/dma-resv.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/workqueue.h>

#include "keel_mr.h"

/**
 * struct keel_own - a region's part in a dma-buf of the device's own memory
 * @mr: the region
 * @attach: the function's attachment
 * @sgt: what it is mapped to; NULL: not any more. Protected, as are the flags,
 *	by the lock of the dma-buf
 * @spare: opens nothing, and takes the place of the region's key when the
 *	dma-buf is revoked
 * @work: does that, where nothing freezes it: removal waits for it
 * @live: the region has its key, and is not going: @work may run
 * @revoked: the exporter wants it back
 */
struct keel_own {
	struct keel_mr *mr;
	struct dma_buf_attachment *attach;
	struct sg_table *sgt;
	struct keel_key *spare;
	struct work_struct work;
	bool live;
	bool revoked;
};

static void keel_own_unmap(struct keel_own *own)
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

	keel_key_swap(own->mr->keys, &own->mr->key, own->spare);
	own->spare = NULL;
	/* Their keys open the same memory, and no new one can be bound. */
	keel_mr_unbind(own->mr);
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

/* Where in the device's memory all of it is, one after the other. */
static int keel_own_find(const struct keel_dev *kdev,
			 const struct dma_buf *dmabuf, struct sg_table *sgt,
			 u64 *start)
{
	struct keel_aperture *ap = kdev->ap;
	struct keel_aperture_seg seg;
	struct scatterlist *sg;
	u64 base, at, next = 0;
	unsigned int i;

	/* A BAR is one stretch. */
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
	/* The range of the region was compared with the size only. */
	return i && next - *start == dmabuf->size ? 0 : -EOPNOTSUPP;
}

/*
 * Known before anything of another exporter's is touched.
 *
 * Addresses are compared as a bus has them, and some ways to map a BAR give
 * them as processors do. So this is for functions where both are the same, and
 * for the exporter that is known to give either.
 */
static bool keel_own_may_be(const struct keel_dev *kdev,
			    const struct dma_buf *dmabuf)
{
	return kdev->provider && !kdev->provider->bus_offset &&
	       !strcmp(dmabuf->exp_name, "ib_uverbs");
}

/* Map it, and see what it is. */
static int keel_own_look(const struct keel_dev *kdev, struct keel_own *own,
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
	/* That is what they say of devices with no way to each other. */
	if (IS_ERR(sgt))
		return PTR_ERR(sgt) == -EINVAL ? -EOPNOTSUPP : PTR_ERR(sgt);
	return keel_own_find(kdev, dmabuf, sgt, start);
}

/**
 * keel_own_map() - a dma-buf that is the device's own memory, as memory
 * @kdev: the device
 * @mr: the region, whose memory it becomes
 * @dmabuf: the dma-buf, on which the caller has a reference; the region's on
 *	success
 * @offset: first byte in it; the range was checked
 *
 * keel_own_start() is to follow when the region has its key; keel_own_free()
 * undoes it.
 *
 * Context: may sleep.
 * Return: 0; -EOPNOTSUPP for other memory; -ENODEV when the buffer is gone;
 * -ENOMEM, -EINTR or -ERESTARTSYS, or what the exporter says.
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
	own->spare = kzalloc_obj(*own->spare, GFP_KERNEL_ACCOUNT);
	ret = -ENOMEM;
	if (!own->spare)
		goto err_own;
	attach = dma_buf_dynamic_attach(dmabuf, kdev->ib.dev.parent,
					&keel_own_attach_ops, own);
	if (IS_ERR(attach)) {
		ret = PTR_ERR(attach);
		goto err_own;
	}
	own->attach = attach;
	ret = keel_own_look(kdev, own, &start);
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
	kfree(own->spare);
	kfree(own);
	return ret;
}

/**
 * keel_own_start() - the region has its key, which can be revoked from now on
 * @mr: the region
 *
 * Context: may sleep.
 */
void keel_own_start(struct keel_mr *mr)
{
	const struct keel_key *key = keel_mr_key(mr);
	struct keel_own *own = mr->own;
	struct dma_resv *resv = own->attach->dmabuf->resv;

	own->spare->key = key->key;
	own->spare->domain = key->domain;
	own->spare->obj = &mr->obj;
	dma_resv_lock(resv, NULL);
	own->live = true;
	if (own->revoked)
		queue_work(system_dfl_wq, &own->work);
	dma_resv_unlock(resv);
}

/**
 * keel_own_stop() - the region is going: its key is the caller's again
 * @mr: the region; it unmaps the dma-buf soon, which an exporter may wait for
 *
 * Context: may sleep. The caller uses no key.
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
 * @mr: the region, whose key nobody uses any more
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
	kfree(own->spare);
	kfree(own);
}
