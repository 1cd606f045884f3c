// SPDX-License-Identifier: GPL-2.0
/*
 * Memory regions: ibv_reg_mr(), ibv_rereg_mr(), ibv_reg_dm_mr() and
 * ibv_dereg_mr(). A region pins its memory as long as its key is valid or has
 * references: pages of the process, or a buffer of device memory. ib_core has
 * checked the access flags, and keys enforce them (sge.c, resp.c). Other types
 * of regions: mr_odp.c creates on-demand regions, which pin nothing;
 * mr_dmabuf.c and mr_dmabuf_bar.c those of dma-bufs; mr_kernel.c those of
 * kernel consumers. All are objects, see mr_object.c.
 */
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/sched/task.h>
#include <linux/slab.h>

#include "keel_blocks.h"
#include "keel_dm.h"
#include "keel_mr.h"
#include "keel_restrack.h"

/* Pin memory of the calling process. A length of 0 pins nothing. */
static int keel_pages_fill(struct keel_pages *pages, struct keel_dev *kdev, u64 start,
			   u64 length, u32 access)
{
	struct keel_blocks *blocks;
	struct ib_umem *umem;

	if (!length)
		return 0;
	umem = ib_umem_get_va(&kdev->ib, start, length, access);
	if (IS_ERR(umem))
		return PTR_ERR(umem);
	blocks = keel_blocks_new(&umem->sgt_append.sgt, start, length);
	if (IS_ERR(blocks)) {
		ib_umem_release(umem);
		return PTR_ERR(blocks);
	}
	pages->umem = umem;
	pages->blocks = blocks;
	return 0;
}

static struct keel_pages *keel_pages_pin(struct keel_dev *kdev, u64 start,
					 u64 length, u32 access)
{
	struct keel_pages *pages = kzalloc_obj(*pages, GFP_KERNEL_ACCOUNT);
	int ret;

	if (!pages)
		return ERR_PTR(-ENOMEM);
	ret = keel_pages_fill(pages, kdev, start, length, access);
	if (ret) {
		kfree(pages);
		return ERR_PTR(ret);
	}
	refcount_set(&pages->ref, 1);
	pages->mm = current->mm;
	mmgrab(pages->mm);
	return pages;
}

/* Returns true if the pages are pinned in a way that allows @access. */
static bool keel_pages_allow(const struct keel_pages *pages, u32 access)
{
	return !pages->umem || pages->umem->writable ||
	       !ib_access_writable(access);
}

/* Consumes the reference on @pages. */
static struct keel_mr *keel_mr_of_pages(struct keel_pages *pages, u64 start,
					u64 length, u64 iova, u32 access)
{
	struct keel_mr *mr;

	if (IS_ERR(pages))
		return ERR_CAST(pages);
	mr = keel_mr_new(access, iova, length, GFP_KERNEL_ACCOUNT);
	if (!mr) {
		keel_pages_put(pages);
		return ERR_PTR(-ENOMEM);
	}
	mr->pages = pages;
	mr->start = start;
	mr->mem.type = KEEL_MEM_PAGES;
	if (!pages->blocks)
		return mr;
	mr->mem.blocks = pages->blocks->entry;
	mr->mem.n = pages->blocks->n;
	mr->mem.first = start & (KEEL_BLOCK_BYTES - 1);
	return mr;
}

/* Create a region of memory of the calling process. */
static struct keel_mr *keel_mr_user(struct keel_dev *kdev, u64 start,
				    u64 length, u64 iova, u32 access)
{
	if (access & IB_ZERO_BASED)
		iova = 0;
	/* Work requests use addresses from iova on: they must not wrap. */
	if (length && iova + (length - 1) < iova)
		return ERR_PTR(-EINVAL);
	if (access & IB_ACCESS_ON_DEMAND)
		return keel_mr_odp(current->mm, start, length, iova, access);
	if (length > kdev->ib.attrs.max_mr_size)
		return ERR_PTR(-EINVAL);
	return keel_mr_of_pages(keel_pages_pin(kdev, start, length, access),
				start, length, iova, access);
}

static struct ib_mr *keel_reg_user_mr(struct ib_pd *ibpd, u64 start,
				      u64 length, u64 iova, int access,
				      KEEL_DMAH_PARAM struct ib_udata *udata)
{
	int ret;

	if (KEEL_DMAH_SET)
		return ERR_PTR(-EOPNOTSUPP);
	ret = ib_no_udata_io(udata);
	if (ret)
		return ERR_PTR(ret);
	return keel_mr_publish(ibpd, keel_mr_user(to_kdev(ibpd->device), start,
						  length, iova, access));
}

static struct ib_mr *keel_reg_dm_mr(struct ib_pd *ibpd, struct ib_dm *ibdm,
				    struct ib_dm_mr_attr *attr,
				    struct uverbs_attr_bundle *attrs)
{
	struct keel_dm *dm = to_kdm(ibdm);
	struct keel_mr *mr;

	/* ib_core has checked this against its own copy of the length. */
	if (attr->offset > dm->length || attr->length > dm->length - attr->offset)
		return ERR_PTR(-EINVAL);
	mr = keel_mr_new(attr->access_flags, 0, attr->length,
			 GFP_KERNEL_ACCOUNT);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	mr->dm = dm;
	mr->mem.type = KEEL_MEM_DM;
	mr->mem.ap = dm->ap;
	mr->mem.start = dm->start + attr->offset;
	return keel_mr_publish(ibpd, mr);
}

/* Flags of a region that are not rights to its memory. All others are. */
#define KEEL_MR_NO_RIGHT	(IB_ZERO_BASED | IB_ACCESS_ON_DEMAND |	\
				 IB_ACCESS_HUGETLB | IB_ACCESS_OPTIONAL)

/*
 * Create a region with the same memory and other rights.
 *
 * A process that imports a region (ibv_import_mr()), or inherits its device
 * file, has the same uobject as the process that registered it. It may remove
 * rights and change the PD. Only the process that owns the memory can add a
 * right. keel never pins memory again, or turns it into on-demand memory, for
 * another process.
 */
static struct keel_mr *keel_mr_rereg_new(struct keel_dev *kdev,
					 const struct keel_mr *old,
					 const struct keel_key *key, u32 access)
{
	bool owner = current->mm ==
		     (old->pages ? old->pages->mm : old->mem.mm);
	bool demand = access & IB_ACCESS_ON_DEMAND;
	struct keel_mr *mr;

	if (!owner && access & ~key->access & ~KEEL_MR_NO_RIGHT)
		return ERR_PTR(-EPERM);
	if (old->mem.type == KEEL_MEM_ODP && demand) {
		mr = keel_mr_odp(old->mem.mm, old->start, key->length,
				 key->iova, access);
		/* Else the region gets the worker of the caller. */
		if (!IS_ERR(mr) &&
		    (!owner || keel_worker_is_ours(old->mem.worker))) {
			keel_worker_get(old->mem.worker);
			mr->mem.worker = old->mem.worker;
		}
		return mr;
	}
	if (old->pages && !demand && keel_pages_allow(old->pages, access)) {
		refcount_inc(&old->pages->ref);
		return keel_mr_of_pages(old->pages, old->start, key->length,
					key->iova, access);
	}
	if (!owner)
		return ERR_PTR(-EINVAL);
	return keel_mr_user(kdev, old->start, key->length, key->iova, access);
}

/*
 * Prevent new bindings of windows to the region. If the owner's own windows are
 * bound, return -EBUSY, as ibv_dereg_mr(3) documents. Windows that another
 * context owns or bound, in a shared domain, are unbound: they must not keep the
 * region of this context alive.
 */
static int keel_mr_seal(struct keel_mr *mr)
{
	scoped_guard(spinlock, &mr->lock) {
		if (mr->ours)
			return -EBUSY;
		mr->going = true;
	}
	keel_mr_unbind(mr);
	return 0;
}

/* Deregister a region, and unbind its windows if it is not sealed. */
static void keel_mr_close(struct keel_ib_mr *wrap)
{
	struct keel_mr *mr = wrap->mr;
	struct keel_key *key;

	if (mr->own)
		keel_own_stop(mr);
	scoped_guard(spinlock, &mr->lock) {
		mr->going = true;
		key = rcu_replace_pointer(mr->key, NULL,
					  lockdep_is_held(&mr->lock));
	}
	keel_key_remove(mr->keys, key);
	kfree_rcu(key, rcu);
	/* Anyone in the domain could guess the key, and bind to a new region. */
	keel_mr_unbind(mr);
	/*
	 * Other threads may have unbound windows just now, or invalidated the key of
	 * a fast registration. Their consumers may free the memory when this returns.
	 */
	keel_drain_wait(&mr->drain);
	if (mr->own)
		keel_own_unmap(mr->own);
	keel_obj_close(&mr->obj);
	kfree(wrap);
}

/*
 * ib_core removes a region from its list ("rdma resource show") before it calls
 * the driver, and does not add it again if the driver refuses. Add it again,
 * for the task that registered it; its number in the list (mrn) is new.
 */
static void keel_mr_relist(struct ib_mr *ibmr)
{
	struct rdma_restrack_entry *res = &ibmr->res;
	struct keel_mr *mr = to_kmr(ibmr);

	/* ib_core itself adds an entry again that is still valid. */
	if (res->valid || !mr->task)
		return;
	rdma_restrack_new(res, RDMA_RESTRACK_MR);
	res->task = get_task_struct(mr->task);
	rdma_restrack_add(res);
}

static int keel_dereg_mr(struct ib_mr *ibmr, struct ib_udata *udata)
{
	int ret = keel_mr_seal(to_kmr(ibmr));

	if (ret) {
		keel_mr_relist(ibmr);
		return ret;
	}
	keel_mr_close(container_of(ibmr, struct keel_ib_mr, ib));
	return 0;
}

/*
 * Peers know the number of the key, so it must not change: @key gets the old
 * number and opens the new region. The old region gets the number that was
 * allocated for the new one, which no peer knows. Its deregistration frees it.
 */
static void keel_mr_keep_key(struct ib_mr *new, struct keel_mr *old,
			     struct keel_key *key)
{
	struct keel_mr *mr = to_kmr(new);
	struct keel_key *came = keel_mr_key(mr);
	struct keel_key *was = keel_mr_key(old);

	key->key = was->key;
	key->domain = came->domain;
	key->access = came->access;
	key->iova = came->iova;
	key->length = came->length;
	key->mem = came->mem;
	key->obj = came->obj;
	key->drain = came->drain;
	rcu_assign_pointer(mr->key, key);
	rcu_assign_pointer(old->key, came);
	keel_key_replace(mr->keys, was, key);
	kfree_rcu(was, rcu);
	new->lkey = key->key;
	new->rkey = key->key;
}

/*
 * The new region replaces the old one in ib_core, which then deregisters the
 * old one. The old one does not change until nothing can fail any more.
 */
static struct ib_mr *keel_rereg_user_mr(struct ib_mr *ibmr, int flags,
					u64 start, u64 length, u64 iova,
					int access, struct ib_pd *ibpd,
					struct ib_udata *udata)
{
	struct keel_dev *kdev = to_kdev(ibmr->device);
	struct keel_mr *mr, *old = to_kmr(ibmr);
	const struct keel_key *key = keel_mr_key(old);
	struct keel_key *kept;
	struct ib_mr *new;
	int ret;

	if (flags & ~IB_MR_REREG_SUPPORTED)
		return ERR_PTR(-EOPNOTSUPP);
	ret = ib_no_udata_io(udata);
	if (ret)
		return ERR_PTR(ret);
	if (!old->pages && old->mem.type != KEEL_MEM_ODP)
		return ERR_PTR(-EINVAL);
	if (!(flags & IB_MR_REREG_ACCESS))
		access = key->access;
	kept = kzalloc_obj(*kept, GFP_KERNEL_ACCOUNT);
	if (!kept)
		return ERR_PTR(-ENOMEM);
	if (flags & IB_MR_REREG_TRANS)
		mr = keel_mr_user(kdev, start, length, iova, access);
	else
		mr = keel_mr_rereg_new(kdev, old, key, access);
	new = keel_mr_publish(ibpd, mr);
	if (IS_ERR(new)) {
		kfree(kept);
		return new;
	}
	ret = keel_mr_seal(old);
	if (ret) {
		keel_mr_close(container_of(new, struct keel_ib_mr, ib));
		kfree(kept);
		return ERR_PTR(ret);
	}
	keel_mr_keep_key(new, old, kept);
	return new;
}

static const char *keel_mr_memory(const struct keel_mr *mr)
{
	switch (mr->mem.type) {
	case KEEL_MEM_DM:
		return mr->own ? "dmabuf" : "dm";
	case KEEL_MEM_ODP:
		return "odp";
	case KEEL_MEM_DMABUF:
		return "dmabuf";
	case KEEL_MEM_PAGES:
		return mr->pages ? "user" : "kernel";
	default:
		return "kernel";
	}
}

static int keel_mr_fill(struct sk_buff *msg, struct keel_obj *obj)
{
	const struct keel_mr *mr = container_of(obj, struct keel_mr, obj);
	u32 domain;

	scoped_guard(rcu)
		domain = keel_mr_key_rcu(mr)->domain;
	if (rdma_nl_put_driver_u32(msg, "id", mr->obj.id) ||
	    rdma_nl_put_driver_u32(msg, "domain", domain) ||
	    rdma_nl_put_driver_string(msg, "memory", keel_mr_memory(mr)))
		return -EMSGSIZE;
	return 0;
}

static int keel_fill_res_mr(struct sk_buff *msg, struct ib_mr *ibmr)
{
	struct keel_mr *mr = to_kmr(ibmr);

	keel_obj_get(&mr->obj);
	return keel_res_fill(msg, &mr->obj, keel_mr_fill);
}

const struct ib_device_ops keel_mr_ops = {
	.dereg_mr = keel_dereg_mr,
	.fill_res_mr_entry = keel_fill_res_mr,
	.reg_dm_mr = keel_reg_dm_mr,
	.reg_user_mr = keel_reg_user_mr,
	.rereg_user_mr = keel_rereg_user_mr,
};
