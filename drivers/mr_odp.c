// SPDX-License-Identifier: GPL-2.0
/*
 * On-demand regions: addresses of a program that are looked up when they are
 * used. Nothing is pinned meanwhile, and nothing has to be there.
 */
#include <linux/mm.h>
#include <linux/sched/mm.h>

#include "keel_mr.h"

/**
 * keel_mr_odp() - a region that pins nothing
 * @mm: the program's memory
 * @start: first address; with @length U64_MAX and 0 it is all that the program
 *	ever has ("implicit")
 * @length: bytes, not 0
 * @iova: what it calls @start
 * @access: rights
 *
 * Context: may sleep.
 * Return: the region; ERR_PTR(-EINVAL) for addresses that wrap,
 * ERR_PTR(-ENOMEM).
 */
struct keel_mr *keel_mr_odp(struct mm_struct *mm, u64 start, u64 length,
			    u64 iova, u32 access)
{
	struct keel_mr *mr;

	if (!mm || start + (length - 1) < start)
		return ERR_PTR(-EINVAL);
	mr = keel_mr_new(access, iova, length);
	if (!mr)
		return ERR_PTR(-ENOMEM);
	/* Not what is mapped: that goes with the program. */
	mmgrab(mm);
	mr->start = start;
	mr->mem.type = KEEL_MEM_ODP;
	mr->mem.mm = mm;
	mr->mem.start = start;
	return mr;
}

static int keel_key_errno(int err)
{
	switch (err) {
	case -ERANGE:
		return -EFAULT;
	case -EACCES:
		return -EPERM;
	default:
		return err;
	}
}

static int keel_advise_sge(struct keel_dev *kdev, u32 domain,
			   const struct ib_sge *sge, bool write, bool fault)
{
	struct keel_key *key = keel_key_get(&kdev->keys, sge->lkey, domain,
					    write ? IB_ACCESS_LOCAL_WRITE : 0,
					    sge->addr, sge->length);
	struct keel_seg seg = { .key = key, .len = sge->length };
	int ret = -EINVAL;

	if (IS_ERR(key))
		return keel_key_errno(PTR_ERR(key));
	seg.mem = key->mem;
	seg.off = key->mem_off + (sge->addr - key->iova);
	/* A window is not a region, whatever region it is bound to. */
	if (key->obj->kind == KEEL_MR && key->mem &&
	    key->mem->type == KEEL_MEM_ODP)
		ret = keel_seg_prefetch(&seg, write, fault);
	keel_key_put(key);
	/* Without faults, a page that is not there is none to prefetch. */
	return ret == -EFAULT && !fault ? 0 : ret;
}

/*
 * The errors are those of ibv_advise_mr(3): ENOENT for no such lkey, also when
 * the region is deregistered before its last page is there; EPERM for
 * one of another domain or without the right to write, EINVAL for one that is
 * not an on-demand region's, EFAULT for bytes outside of it or not mapped.
 * With or without IBV_ADVISE_MR_FLAG_FLUSH the pages are there afterwards.
 */
static int keel_advise_mr(struct ib_pd *ibpd,
			  enum ib_uverbs_advise_mr_advice advice, u32 flags,
			  struct ib_sge *sg_list, u32 num_sge,
			  struct uverbs_attr_bundle *attrs)
{
	u32 domain = to_kpd(ibpd)->domain->obj.id;
	bool write = false, fault = true;
	int ret = 0;
	u32 i;

	switch (advice) {
	case IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH:
		break;
	case IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE:
		write = true;
		break;
	case IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT:
		fault = false;
		break;
	default:
		return -EOPNOTSUPP;
	}
	if (flags & ~IB_UVERBS_ADVISE_MR_FLAG_FLUSH)
		return -EINVAL;
	for (i = 0; i < num_sge && !ret; i++)
		ret = keel_advise_sge(to_kdev(ibpd->device), domain,
				      &sg_list[i], write, fault);
	return ret;
}

const struct ib_device_ops keel_mr_odp_ops = {
	.advise_mr = keel_advise_mr,
};
