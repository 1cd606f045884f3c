// SPDX-License-Identifier: GPL-2.0
/*
 * A memory region as an object, with any type of memory: it is created, gets a
 * key, is listed, and is released when its key has no users.
 */
#include <linux/sched/mm.h>
#include <linux/sched/task.h>
#include <linux/seq_file.h>
#include <linux/slab.h>

#include "keel_blocks.h"
#include "keel_dm.h"
#include "keel_mr.h"

/**
 * keel_pages_put() - drop a reference on pages that regions may share
 * @pages: the pages, or NULL
 *
 * Context: may sleep.
 */
void keel_pages_put(struct keel_pages *pages)
{
	if (!pages || !refcount_dec_and_test(&pages->ref))
		return;
	ib_umem_release(pages->umem);
	mmdrop(pages->mm);
	keel_blocks_free(pages->blocks);
	kfree(pages);
}

/* Free the memory of a region, whose key has no users any more. */
static void keel_mr_free_mem(struct keel_mr *mr)
{
	keel_pages_put(mr->pages);
	if (mr->mem.type == KEEL_MEM_ODP)
		mmdrop(mr->mem.mm);
	if (mr->mem.type == KEEL_MEM_DMABUF)
		keel_dmabuf_unmap(&mr->mem, mr->start);
	keel_worker_put(mr->mem.worker);
	if (mr->own)
		keel_own_free(mr);
	if (mr->list)
		kvfree(mr->mem.list);
	if (mr->task)
		put_task_struct(mr->task);
	/* No other thread has the region yet, or any more. */
	kfree(context_unsafe(mr->null_key));
}

static void keel_mr_release(struct keel_obj *obj)
{
	struct keel_mr *mr = container_of(obj, struct keel_mr, obj);

	/* No other thread has the region any more. */
	context_unsafe(WARN_ON(!list_empty(&mr->windows)));
	keel_mr_free_mem(mr);
	kfree_rcu(mr, obj.rcu);
}

static void keel_mr_describe(const struct keel_obj *obj, struct seq_file *m)
{
	const struct keel_mr *mr = container_of(obj, struct keel_mr, obj);
	const struct keel_key *key;

	guard(rcu)();
	key = keel_mr_key_rcu(mr);
	if (!key)
		return;
	seq_printf(m, " key 0x%08x length %llu", key->key, key->length);
	if (mr->own && !key->mem)
		seq_puts(m, " revoked");
}

static const struct keel_obj_ops keel_mr_obj_ops = {
	.describe = keel_mr_describe,
	.release = keel_mr_release,
};

/**
 * keel_mr_new() - allocate a region without memory
 * @access: rights of its key
 * @iova: address of the first byte, as work requests name it
 * @length: bytes
 * @gfp: keel_gfp_of()
 *
 * Context: may sleep.
 * Return: the region, which the caller completes and passes to
 * keel_mr_publish(), or to keel_mr_free(); or NULL.
 */
struct keel_mr *keel_mr_new(u32 access, u64 iova, u64 length, gfp_t gfp)
{
	struct keel_mr *mr = kzalloc_obj(*mr, gfp);
	struct keel_key *key = kzalloc_obj(*key, gfp);

	if (!mr || !key) {
		kfree(key);
		kfree(mr);
		return NULL;
	}
	key->access = access;
	key->iova = iova;
	key->length = length;
	key->mem = &mr->mem;
	key->obj = &mr->obj;
	RCU_INIT_POINTER(mr->key, key);
	spin_lock_init(&mr->lock);
	/* No other thread has the region yet. */
	context_unsafe(INIT_LIST_HEAD(&mr->windows));
	return mr;
}

/**
 * keel_mr_free() - free a region that was not published
 * @mr: the region, with the memory that it has so far
 */
void keel_mr_free(struct keel_mr *mr)
{
	keel_mr_free_mem(mr);
	kfree(keel_mr_key(mr));
	kfree(mr);
}

/* Find the worker that provides this memory if a transfer has to wait. */
static int keel_mr_find_worker(struct keel_mr *mr)
{
	struct keel_worker *worker;

	if ((mr->mem.type != KEEL_MEM_ODP && mr->mem.type != KEEL_MEM_DMABUF) ||
	    mr->mem.worker)
		return 0;
	worker = keel_worker_of_current(keel_context_mem_workers(mr->ctx));
	if (IS_ERR(worker))
		return PTR_ERR(worker);
	mr->mem.worker = worker;
	return 0;
}

/**
 * keel_mr_publish() - add a complete region, with a key and a struct ib_mr
 * @ibpd: its PD
 * @mr: the region, or ERR_PTR(), which is returned. On failure, the region and
 *	its memory are freed.
 *
 * Context: may sleep.
 * Return: the &struct ib_mr, or ERR_PTR().
 */
struct ib_mr *keel_mr_publish(struct ib_pd *ibpd, struct keel_mr *mr)
{
	struct keel_dev *kdev = to_kdev(ibpd->device);
	struct keel_pd *pd = to_kpd(ibpd);
	struct keel_ib_mr *wrap;
	struct keel_key *key;
	int ret = -ENOMEM;

	if (IS_ERR(mr))
		return ERR_CAST(mr);
	wrap = kzalloc_obj(*wrap, keel_gfp_of(!ibpd->uobject));
	if (!wrap)
		goto err_mr;
	key = keel_mr_key(mr);
	key->domain = pd->domain->obj.id;
	key->drain = key->mem ? &mr->drain : NULL;
	mr->keys = &kdev->keys;
	if (ibpd->uobject) {
		mr->ctx = ibpd->uobject->context;
		mr->task = get_task_struct(current);
	}
	ret = keel_mr_find_worker(mr);
	if (ret)
		goto err_wrap;
	keel_obj_may_hold(&mr->obj, mr->holds);
	ret = keel_obj_add(&kdev->reg, &mr->obj, mr->dm ? KEEL_DM_MR : KEEL_MR,
			   &keel_mr_obj_ops, &pd->obj,
			   mr->dm ? &mr->dm->obj : NULL);
	if (ret)
		goto err_wrap;
	ret = keel_key_insert(mr->keys, key);
	if (ret)
		goto err_obj;
	wrap->mr = mr;
	wrap->ib.lkey = key->key;
	wrap->ib.rkey = key->key;
	wrap->ib.iova = key->iova;
	wrap->ib.length = key->length;
	return &wrap->ib;

err_obj:
	/* debugfs may be reading the key. */
	RCU_INIT_POINTER(mr->key, NULL);
	kfree_rcu(key, rcu);
	keel_obj_close(&mr->obj);
	kfree(wrap);
	return ERR_PTR(ret);
err_wrap:
	kfree(wrap);
err_mr:
	keel_mr_free(mr);
	return ERR_PTR(ret);
}
