// SPDX-License-Identifier: GPL-2.0
/*
 * Regions of dma-bufs: ibv_reg_dmabuf_mr().
 */
#include <linux/dma-buf.h>
#include <linux/module.h>

#include "compat.h"
#include "keel_mr.h"

KEEL_IMPORT_NS(DMA_BUF);

/*
 * Memory of an exporter may be mapped uncached. Only some processors have
 * atomic instructions that work on it.
 */
static bool keel_dmabuf_atomics(void)
{
	return IS_ENABLED(CONFIG_X86) || IS_ENABLED(CONFIG_UML);
}

/*
 * Use memory that processors can access, or the device's own memory. For the
 * latter, keel attaches as a device, and the mode of the file does not restrict
 * devices: files of ib_uverbs are always opened read-only.
 */
static int keel_mr_dmabuf_mem(struct keel_dev *kdev, struct keel_mr *mr,
			      struct dma_buf *dmabuf, u64 offset, bool write)
{
	u64 length = keel_mr_key(mr)->length;
	int ret;

	if (dmabuf->ops->vmap)
		return keel_dmabuf_map(&mr->mem, dmabuf, offset, length, write);
	ret = keel_dmabuf_check(dmabuf, offset, length, false);
	return ret ? ret : keel_own_map(kdev, mr, dmabuf, offset);
}

/* Consumes the reference on @dmabuf. */
static struct keel_mr *keel_mr_of_dmabuf(struct keel_dev *kdev,
					 struct dma_buf *dmabuf, u64 offset,
					 u64 length, u64 iova, u32 access)
{
	struct keel_mr *mr;
	int ret;

	if (IS_ERR(dmabuf))
		return ERR_CAST(dmabuf);
	mr = keel_mr_new(access, iova, length, GFP_KERNEL_ACCOUNT);
	ret = mr ? keel_mr_dmabuf_mem(kdev, mr, dmabuf, offset,
				      ib_access_writable(access)) : -ENOMEM;
	if (!ret) {
		mr->start = offset;
		return mr;
	}
	dma_buf_put(dmabuf);
	if (mr)
		keel_mr_free(mr);
	return ERR_PTR(ret);
}

static struct ib_mr *
keel_reg_user_mr_dmabuf(struct ib_pd *ibpd, u64 offset, u64 length, u64 iova,
			int fd, int access,
			KEEL_DMAH_PARAM KEEL_DMABUF_ATTRS attrs)
{
	struct keel_mr *mr;
	struct ib_mr *ibmr;

	if (KEEL_DMAH_SET ||
	    (access & IB_ACCESS_REMOTE_ATOMIC && !keel_dmabuf_atomics()))
		return ERR_PTR(-EOPNOTSUPP);
	/* Work requests use addresses from iova on: they must not wrap. */
	if (!length || iova + (length - 1) < iova)
		return ERR_PTR(-EINVAL);
	mr = keel_mr_of_dmabuf(to_kdev(ibpd->device), dma_buf_get(fd), offset,
			       length, iova, access);
	ibmr = keel_mr_publish(ibpd, mr);
	if (!IS_ERR(ibmr) && mr->own)
		keel_own_start(mr);
	return ibmr;
}

const struct ib_device_ops keel_mr_dmabuf_ops = {
	.reg_user_mr_dmabuf = keel_reg_user_mr_dmabuf,
};
