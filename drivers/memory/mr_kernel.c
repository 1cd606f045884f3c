// SPDX-License-Identifier: GPL-2.0
/*
 * Regions of kernel consumers: one for all kernel memory, and fast
 * registration. For the latter, the consumer sets the pages first, and work
 * requests make the key valid and invalid. DMA addresses are kernel addresses
 * here.
 */
#include <linux/log2.h>
#include <linux/slab.h>
#include <kunit/visibility.h>

#include "keel_mr.h"

static struct ib_mr *keel_get_dma_mr(struct ib_pd *ibpd, int access)
{
	struct keel_mr *mr = keel_mr_new(access, 0, U64_MAX, GFP_KERNEL);

	if (!mr)
		return ERR_PTR(-ENOMEM);
	mr->mem.type = KEEL_MEM_KERNEL;
	return keel_mr_publish(ibpd, mr);
}

static struct ib_mr *keel_alloc_mr(struct ib_pd *ibpd, enum ib_mr_type type,
				   u32 max_num_sg)
{
	struct keel_key *key;
	struct keel_mr *mr;

	if (type != IB_MR_TYPE_MEM_REG)
		return ERR_PTR(-EOPNOTSUPP);
	if (!max_num_sg || max_num_sg > KEEL_MAX_FAST_REG)
		return ERR_PTR(-EINVAL);
	mr = keel_mr_new(0, 0, 0, GFP_KERNEL);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	key = keel_mr_key(mr);
	/* It is a null key until it is registered. */
	key->mem = NULL;
	mr->list = max_num_sg;
	mr->mem.type = KEEL_MEM_LIST;
	mr->mem.list = kvcalloc(max_num_sg, sizeof(*mr->mem.list), GFP_KERNEL);
	if (!mr->mem.list) {
		keel_mr_free(mr);
		return ERR_PTR(-ENOMEM);
	}
	return keel_mr_publish(ibpd, mr);
}

static int keel_mr_set_page(struct ib_mr *ibmr, u64 addr)
{
	struct keel_mr *mr = to_kmr(ibmr);

	if (mr->mem.n == mr->list)
		return -ENOMEM;
	mr->mem.list[mr->mem.n++] = addr;
	return 0;
}

static int keel_map_mr_sg(struct ib_mr *ibmr, struct scatterlist *sg,
			  int sg_nents, unsigned int *sg_offset)
{
	struct keel_mr *mr = to_kmr(ibmr);
	int n;

	if (!mr->list || !is_power_of_2(ibmr->page_size) ||
	    !(ibmr->page_size & KEEL_PAGE_SIZES))
		return -EINVAL;
	mr->mem.n = 0;
	n = ib_sg_to_pages(ibmr, sg, sg_nents, sg_offset, keel_mr_set_page);
	mr->mem.shift = ilog2(ibmr->page_size);
	mr->mem.first = ibmr->iova & (ibmr->page_size - 1);
	return n;
}

/* Returns true if the list has all pages of @length bytes. */
static bool keel_mr_listed(const struct keel_mr *mr, u64 length)
{
	u64 bytes = (u64)mr->mem.n << mr->mem.shift;

	return mr->mem.first <= bytes && length <= bytes - mr->mem.first;
}

/* @old is the current key of the region. */
static enum keel_uapi_why keel_fast_reg_check(const struct keel_mr *mr,
					      const struct keel_key *old,
					      u32 domain, u32 rkey, u64 length)
{
	/* It may have been deregistered meanwhile. */
	if (!old || (old->key ^ rkey) >> 8)
		return KEEL_WHY_KEY;
	if (old->domain != domain)
		return KEEL_WHY_DOMAIN;
	if (old->mem)
		return KEEL_WHY_WINDOW;
	if (!keel_mr_listed(mr, length))
		return KEEL_WHY_RANGE;
	return KEEL_WHY_NONE;
}

/**
 * keel_mr_fast_reg() - make the key of a region valid: IB_WR_REG_MR
 * @kdev: the device
 * @domain: number of the QP's domain
 * @ibmr: the region, after ib_map_mr_sg()
 * @rkey: its new key: &ib_reg_wr.key
 * @access: rights of the key
 * @why: gets the vendor error
 *
 * A registered region must be invalidated first.
 *
 * Context: may sleep. The caller has no reference on a key.
 * Return: IB_WC_SUCCESS; or IB_WC_MW_BIND_ERR, the name here of the
 * specification's "memory management operation error".
 */
enum ib_wc_status keel_mr_fast_reg(struct keel_dev *kdev, u32 domain,
				   struct ib_mr *ibmr, u32 rkey, u32 access,
				   u32 *why)
{
	struct keel_mr *mr = to_kmr(ibmr);
	struct keel_key *key __free(kfree) = kzalloc_obj(*key);
	struct keel_key *null_key __free(kfree) = kzalloc_obj(*null_key);
	struct keel_key *old;

	*why = KEEL_WHY_WINDOW;
	if (!key || !null_key || !mr->list || mr->keys != &kdev->keys)
		return IB_WC_MW_BIND_ERR;
	*key = (struct keel_key){
		.key = rkey,
		.domain = domain,
		.access = access,
		.iova = ibmr->iova,
		.length = ibmr->length,
		.mem = &mr->mem,
		.obj = &mr->obj,
		.drain = &mr->drain,
	};
	*null_key = (struct keel_key){
		.key = rkey,
		.domain = domain,
		.obj = &mr->obj,
	};
	scoped_guard(spinlock, &mr->lock) {
		old = rcu_dereference_protected(mr->key,
						lockdep_is_held(&mr->lock));
		*why = keel_fast_reg_check(mr, old, domain, rkey, ibmr->length);
		if (*why)
			return IB_WC_MW_BIND_ERR;
		rcu_assign_pointer(mr->key, key);
		keel_key_exchange(mr->keys, old, no_free_ptr(key));
		mr->null_key = no_free_ptr(null_key);
	}
	keel_key_drain(old);
	kfree_rcu(old, rcu);
	return IB_WC_SUCCESS;
}

/**
 * keel_mr_invalidate() - invalidate the key of a fast registration
 * @mr: a region; the caller has a reference on it
 * @rkey: the key to invalidate
 *
 * Context: any but interrupts.
 * Return: the old key, which the caller frees after keel_key_drain(); or
 * ERR_PTR(-EACCES) if the region is not a fast registration, or @rkey is not its
 * valid key.
 */
struct keel_key *keel_mr_invalidate(struct keel_mr *mr, u32 rkey)
{
	struct keel_key *old;

	if (!mr->list)
		return ERR_PTR(-EACCES);
	guard(spinlock)(&mr->lock);
	old = rcu_dereference_protected(mr->key, lockdep_is_held(&mr->lock));
	/* It may have been deregistered meanwhile. */
	if (!old || !old->mem || old->key != rkey)
		return ERR_PTR(-EACCES);
	rcu_assign_pointer(mr->key, mr->null_key);
	keel_key_exchange(mr->keys, old, mr->null_key);
	mr->null_key = NULL;
	return old;
}
EXPORT_SYMBOL_IF_KUNIT(keel_mr_invalidate);

const struct ib_device_ops keel_mr_kernel_ops = {
	.alloc_mr = keel_alloc_mr,
	.get_dma_mr = keel_get_dma_mr,
	.map_mr_sg = keel_map_mr_sg,
};
