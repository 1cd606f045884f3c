// SPDX-License-Identifier: GPL-2.0
/*
 * Regions of dma-bufs: ibv_reg_dmabuf_mr().
 */
#include <linux/module.h>

#include "compat.h"
#include "keel_mr.h"

KEEL_IMPORT_NS(DMA_BUF);

/*
 * Memory of an exporter may be mapped uncached, and only some processors have
 * atomics that work there as well.
 */
static bool keel_dmabuf_atomics(void)
{
	return IS_ENABLED(CONFIG_X86) || IS_ENABLED(CONFIG_UML);
}

static struct ib_mr *
keel_reg_user_mr_dmabuf(struct ib_pd *ibpd, u64 offset, u64 length, u64 iova,
			int fd, int access,
			KEEL_DMAH_PARAM KEEL_DMABUF_ATTRS attrs)
{
	struct keel_mr *mr;
	int ret;

	if (KEEL_DMAH_SET ||
	    (access & IB_ACCESS_REMOTE_ATOMIC && !keel_dmabuf_atomics()))
		return ERR_PTR(-EOPNOTSUPP);
	/* Programs count from iova: the last byte must have an address too. */
	if (!length || iova + (length - 1) < iova)
		return ERR_PTR(-EINVAL);
	mr = keel_mr_new(access, iova, length);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	ret = keel_dmabuf_map(&mr->mem, fd, offset, length,
			      ib_access_writable(access));
	if (ret) {
		keel_mr_free(mr);
		return ERR_PTR(ret);
	}
	mr->start = offset;
	return keel_mr_publish(ibpd, mr);
}

const struct ib_device_ops keel_mr_dmabuf_ops = {
	.reg_user_mr_dmabuf = keel_reg_user_mr_dmabuf,
};
