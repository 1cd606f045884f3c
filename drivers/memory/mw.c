// SPDX-License-Identifier: GPL-2.0
/*
 * Memory windows: ibv_alloc_mw(). A new window has a null key: the rkey is
 * valid, but has no rights and no bytes until a queue pair binds the window
 * (mw_bind.c).
 */
#include <linux/seq_file.h>
#include <linux/slab.h>

#include "keel_mr.h"

static void keel_mw_release(struct keel_obj *obj)
{
	struct keel_mw *mw = container_of(obj, struct keel_mw, obj);

	kfree(mw->null_key);
	mutex_destroy(&mw->lock);
	kfree_rcu(mw, obj.rcu);
}

static void keel_mw_describe(const struct keel_obj *obj, struct seq_file *m)
{
	const struct keel_mw *mw = container_of(obj, struct keel_mw, obj);
	const struct keel_key *key;

	guard(rcu)();
	key = rcu_dereference(mw->key);
	if (key)
		seq_printf(m, " key 0x%08x length %llu", key->key, key->length);
}

static const struct keel_obj_ops keel_mw_obj_ops = {
	.describe = keel_mw_describe,
	.release = keel_mw_release,
};

/**
 * keel_mw_link() - record that a window is bound to a region
 * @mw: the window, not bound
 * @mr: the region, whose lock the caller holds, and which is not sealed
 *
 * Context: under &keel_mw.lock.
 */
void keel_mw_link(struct keel_mw *mw, struct keel_mr *mr)
{
	lockdep_assert_held(&mw->lock);
	lockdep_assert_held(&mr->lock);
	keel_obj_get(&mr->obj);
	list_add_tail(&mw->node, &mr->windows);
	mw->mr = mr;
}

/**
 * keel_mw_unlink() - record that a window is no longer bound to its region
 * @mw: the window, bound or not
 *
 * Context: may sleep; under &keel_mw.lock.
 */
void keel_mw_unlink(struct keel_mw *mw)
{
	struct keel_mr *mr = mw->mr;

	lockdep_assert_held(&mw->lock);
	if (!mr)
		return;
	scoped_guard(mutex, &mr->lock)
		list_del_init(&mw->node);
	mw->mr = NULL;
	/* This may be the last reference on the region. */
	keel_obj_put(&mr->obj);
}

/**
 * keel_mw_unbind() - give a window a null key with the same rkey
 * @mw: the window, bound
 *
 * Context: may sleep; under &keel_mw.lock. The caller has no reference on a
 * key.
 */
void keel_mw_unbind(struct keel_mw *mw)
{
	const struct keel_key *old =
		rcu_dereference_protected(mw->key, lockdep_is_held(&mw->lock));
	struct keel_key *null_key = mw->null_key;

	mw->null_key = NULL;
	*null_key = (struct keel_key){
		.key = old->key,
		.domain = old->domain,
		.obj = &mw->obj,
	};
	keel_key_swap(mw->keys, &mw->key, null_key);
	keel_mw_unlink(mw);
}

/**
 * keel_mr_unbind() - unbind all windows of a region
 * @mr: the region, to which no more windows can be bound
 *
 * Context: may sleep. The caller has no reference on a key.
 */
void keel_mr_unbind(struct keel_mr *mr)
{
	struct keel_mw *mw;

	for (;;) {
		scoped_guard(mutex, &mr->lock) {
			mw = list_first_entry_or_null(&mr->windows,
						      struct keel_mw, node);
			/* It leaves the list before its reference drops. */
			if (mw)
				keel_obj_get(&mw->obj);
		}
		if (!mw)
			return;
		scoped_guard(mutex, &mw->lock)
			if (mw->mr == mr)
				keel_mw_unbind(mw);
		keel_obj_put(&mw->obj);
	}
}

static int keel_alloc_mw(struct ib_mw *ibmw, struct ib_udata *udata)
{
	struct keel_dev *kdev = to_kdev(ibmw->device);
	struct keel_pd *pd = to_kpd(ibmw->pd);
	struct keel_key *key;
	struct keel_mw *mw;
	int ret;

	ret = ib_no_udata_io(udata);
	if (ret)
		return ret;
	if (ibmw->type != IB_MW_TYPE_1 && ibmw->type != IB_MW_TYPE_2)
		return -EINVAL;
	mw = kzalloc_obj(*mw, keel_gfp_of(!udata));
	key = kzalloc_obj(*key, keel_gfp_of(!udata));
	ret = -ENOMEM;
	if (!mw || !key)
		goto err_free;
	mutex_init(&mw->lock);
	INIT_LIST_HEAD(&mw->node);
	mw->type = ibmw->type;
	mw->ctx = ibmw->pd->uobject ? ibmw->pd->uobject->context : NULL;
	mw->keys = &kdev->keys;
	key->domain = pd->domain->obj.id;
	key->obj = &mw->obj;
	ret = keel_obj_add(&kdev->reg, &mw->obj, KEEL_MW, &keel_mw_obj_ops,
			   &pd->obj, NULL);
	if (ret)
		goto err_lock;
	ret = keel_key_insert(mw->keys, key);
	if (ret) {
		keel_obj_close(&mw->obj);
		kfree(key);
		return ret;
	}
	container_of(ibmw, struct keel_ib_mw, ib)->mw = mw;
	/*
	 * A queue pair that guesses the key can bind the window as soon as the
	 * lock is dropped. That replaces and frees @key.
	 */
	mutex_lock(&mw->lock);
	ibmw->rkey = key->key;
	rcu_assign_pointer(mw->key, key);
	mutex_unlock(&mw->lock);
	return 0;

err_lock:
	mutex_destroy(&mw->lock);
err_free:
	kfree(key);
	kfree(mw);
	return ret;
}

static int keel_dealloc_mw(struct ib_mw *ibmw)
{
	struct keel_mw *mw = to_kmw(ibmw);
	struct keel_key *key;

	scoped_guard(mutex, &mw->lock) {
		key = rcu_replace_pointer(mw->key, NULL,
					  lockdep_is_held(&mw->lock));
		keel_key_remove(mw->keys, key);
		keel_mw_unlink(mw);
	}
	kfree_rcu(key, rcu);
	keel_obj_close(&mw->obj);
	return 0;
}

const struct ib_device_ops keel_mw_ops = {
	.alloc_mw = keel_alloc_mw,
	.dealloc_mw = keel_dealloc_mw,

	INIT_RDMA_OBJ_SIZE(ib_mw, keel_ib_mw, ib),
};
