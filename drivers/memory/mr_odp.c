// SPDX-License-Identifier: GPL-2.0
/*
 * On-demand regions: user addresses that are looked up at each access. Nothing
 * is pinned in between, and nothing needs to be mapped.
 */
#include <linux/completion.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>

#include "keel_mr.h"
#include "keel_resp_lock.h"

/* How long ibv_advise_mr() with IBV_ADVISE_MR_FLAG_FLUSH waits for an owner. */
#define KEEL_ADVISE_PATIENCE	(HZ / 2)

/**
 * keel_mr_odp() - create an on-demand region
 * @mm: the memory of the process
 * @start: first address; 0 with @length U64_MAX: the whole address space, also
 *	future mappings ("implicit")
 * @length: bytes
 * @iova: address of @start, as work requests name it
 * @access: rights
 *
 * Context: may sleep.
 * Return: the region; ERR_PTR(-EINVAL) if the addresses wrap or @mm is NULL; or
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
	/* Only the structure: the mappings end with the process. */
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
 * struct keel_prefetch - pages that the worker of their owner faults in
 * @ref: references of the job and of the caller
 * @job: the job for the worker of the owner
 * @need: the pages
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

	keel_need_put(&p->need);
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
 * Let the worker of the owner fault in the pages. It gets only one request at a
 * time, so a process that does not answer collects no requests.
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

static int keel_advise_get(struct keel_dev *kdev, u32 domain,
			   const struct ib_sge *sge, u64 done, bool write,
			   struct keel_need *need)
{
	struct keel_key *key = keel_key_get(&kdev->keys, sge->lkey, domain,
					    write ? IB_ACCESS_LOCAL_WRITE : 0,
					    sge->addr, sge->length);
	int ret = -EINVAL;

	keel_resp_assert_stays();
	if (IS_ERR(key))
		return keel_key_errno(PTR_ERR(key));
	/* A window is not a region, even if it is bound to one. */
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
		keel_worker_get(need->worker);
		ret = 0;
	}
	keel_key_put(key);
	return ret;
}

/*
 * Get a piece of an on-demand region, without a reference on its key: so
 * deregistration does not wait for pages. Nor does it wait until this thread gets a
 * processor again: any process of a shared PD may name the key. Returns -ENOENT if
 * the key was invalidated meanwhile.
 */
static int keel_advise_need(struct keel_dev *kdev, u32 domain,
			    const struct ib_sge *sge, u64 done, bool write,
			    struct keel_need *need)
{
	int ret;

	keel_resp_stay();
	ret = keel_advise_get(kdev, domain, sge, done, write, need);
	keel_resp_relax();
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
		/* NO_FAULT: there is nothing to do for absent pages. */
		ret = need.len && fault ? -EAGAIN : 0;
		if (ret && need.mm == current->mm)
			ret = keel_odp_fetch(&need, false);
		if (ret == -EAGAIN)
			ret = keel_prefetch_ask(&need, flush);
		keel_need_put(&need);
	} while (!ret && fault && done < sge->length);
	return ret;
}

/*
 * Returns the errors of ibv_advise_mr(3):
 * - -ENOENT if the lkey is invalid, also if the region is deregistered before
 *   its last page is present
 * - -EPERM if the key belongs to another domain, or lacks the right to write
 * - -EINVAL if the key does not belong to an on-demand region
 * - -EFAULT if bytes are outside of it or not mapped
 * - -EAGAIN if IBV_ADVISE_MR_FLAG_FLUSH is set and a short wait for the owner
 *   was not enough
 *
 * Pages of the calling process are present afterwards, with or without that
 * flag. If the pages belong to another process, or this one cannot take its
 * mmap_lock now, the worker of the owner faults them in.
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
