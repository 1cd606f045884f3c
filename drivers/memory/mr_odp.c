// SPDX-License-Identifier: GPL-2.0
/*
 * On-demand regions: addresses of a program that are looked up when they are
 * used. Nothing is pinned meanwhile, and nothing has to be there.
 */
#include <linux/completion.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "keel_mr.h"

/* How long ibv_advise_mr() with IBV_ADVISE_MR_FLAG_FLUSH waits for the owner. */
#define KEEL_ADVISE_PATIENCE	(HZ / 2)

/**
 * keel_mr_odp() - a region that pins nothing
 * @mm: the program's memory
 * @start: first address; with @length U64_MAX and 0 it is all that the program
 *	ever has ("implicit")
 * @length: bytes
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

	if (!mm || (length && start + (length - 1) < start))
		return ERR_PTR(-EINVAL);
	mr = keel_mr_new(access, iova, length, GFP_KERNEL_ACCOUNT);
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

/**
 * struct keel_prefetch - pages that their owner is to bring in
 * @ref: of the job, and of the caller
 * @job: for the worker of the owner
 * @need: which pages
 * @done: the worker has tried
 * @result: 0 or a negative errno, once @done
 */
struct keel_prefetch {
	struct kref ref;
	struct keel_job job;
	struct keel_need need;
	struct completion done;
	int result;
};

static void keel_prefetch_free(struct kref *ref)
{
	struct keel_prefetch *p = container_of(ref, struct keel_prefetch, ref);

	keel_need_drop(&p->need);
	kfree(p);
}

static void keel_prefetch_run(struct keel_job *job, bool alive)
{
	struct keel_prefetch *p = container_of(job, struct keel_prefetch, job);

	p->result = alive ? keel_odp_fetch(&p->need, true) : -EFAULT;
	complete(&p->done);
	kref_put(&p->ref, keel_prefetch_free);
}

/*
 * Have the owner bring the pages in. One request at a time: a process that does
 * not answer collects none.
 */
static int keel_prefetch_ask(struct keel_need *need, bool flush)
{
	struct keel_prefetch *p;
	int ret = 0;

	if (keel_worker_is_busy(need->worker))
		return flush ? -EAGAIN : 0;
	p = kzalloc_obj(*p, GFP_KERNEL_ACCOUNT);
	if (!p)
		return -ENOMEM;
	kref_init(&p->ref);
	init_completion(&p->done);
	keel_job_init(&p->job, keel_prefetch_run);
	swap(p->need, *need);
	kref_get(&p->ref);
	if (keel_job_queue(p->need.worker, &p->job) < 0) {
		kref_put(&p->ref, keel_prefetch_free);
		ret = -EFAULT;
	} else if (flush) {
		ret = wait_for_completion_killable_timeout(&p->done,
							   KEEL_ADVISE_PATIENCE);
		ret = ret > 0 ? p->result : ret ? -EINTR : -EAGAIN;
	}
	kref_put(&p->ref, keel_prefetch_free);
	return ret;
}

/*
 * A piece of an on-demand region, without a use of its key: whoever takes the
 * key back does not wait for pages. -ENOENT when it was taken back meanwhile.
 */
static int keel_advise_need(struct keel_dev *kdev, u32 domain,
			    const struct ib_sge *sge, u64 done, bool write,
			    struct keel_need *need)
{
	struct keel_key *key = keel_key_get(&kdev->keys, sge->lkey, domain,
					    write ? IB_ACCESS_LOCAL_WRITE : 0,
					    sge->addr, sge->length);
	int ret = -EINVAL;

	if (IS_ERR(key))
		return keel_key_errno(PTR_ERR(key));
	/* A window is not a region, whatever region it is bound to. */
	if (key->obj->kind == KEEL_MR && key->mem &&
	    key->mem->type == KEEL_MEM_ODP) {
		*need = (struct keel_need){
			.kind = KEEL_NEED_PAGES, .write = write,
			.mm = key->mem->mm, .worker = key->mem->worker,
			.addr = key->mem->start + key->mem_off +
				(sge->addr - key->iova) + done,
			.len = min_t(u64, sge->length - done, KEEL_ODP_FETCH),
		};
		mmgrab(need->mm);
		keel_worker_hold(need->worker);
		ret = 0;
	}
	keel_key_put(key);
	return ret;
}

static int keel_advise_sge(struct keel_dev *kdev, u32 domain,
			   const struct ib_sge *sge, bool write, bool fault,
			   bool flush)
{
	struct keel_need need = {};
	u64 done = 0;
	int ret;

	do {
		ret = keel_advise_need(kdev, domain, sge, done, write, &need);
		if (ret)
			return ret;
		done += need.len;
		/* Without faults, a page that is not there is none to prefetch. */
		ret = need.len && fault ? -EAGAIN : 0;
		if (ret && need.mm == current->mm)
			ret = keel_odp_fetch(&need, false);
		if (ret == -EAGAIN)
			ret = keel_prefetch_ask(&need, flush);
		keel_need_drop(&need);
	} while (!ret && fault && done < sge->length);
	return ret;
}

/*
 * The errors are those of ibv_advise_mr(3): ENOENT for no such lkey, also when
 * the region is deregistered before its last page is there; EPERM for
 * one of another domain or without the right to write, EINVAL for one that is
 * not an on-demand region's, EFAULT for bytes outside of it or not mapped.
 * In the calling process the pages are present afterwards, with or without
 * IBV_ADVISE_MR_FLAG_FLUSH. If they are another process's, or this one cannot
 * lock its memory now, the owner is asked: IBV_ADVISE_MR_FLAG_FLUSH waits for it
 * a moment, and EAGAIN says that this was not enough.
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
				      &sg_list[i], write, fault,
				      flags & IB_UVERBS_ADVISE_MR_FLAG_FLUSH);
	return ret;
}

const struct ib_device_ops keel_mr_odp_ops = {
	.advise_mr = keel_advise_mr,
};
