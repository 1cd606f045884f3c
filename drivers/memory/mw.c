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

	/* No other thread has the window any more. */
	kfree(context_unsafe(mw->spare));
	kfree_rcu(mw, obj.rcu);
}

static const struct keel_binding *keel_mw_bound_rcu(const struct keel_mw *mw)
	__must_hold_shared(RCU)
{
	/* RCU keeps the binding. */
	return context_unsafe(rcu_dereference(mw->bound));
}

static void keel_mw_describe(const struct keel_obj *obj, struct seq_file *m)
{
	const struct keel_mw *mw = container_of(obj, struct keel_mw, obj);
	const struct keel_binding *b;

	guard(rcu)();
	b = keel_mw_bound_rcu(mw);
	if (b)
		seq_printf(m, " key 0x%08x length %llu", b->key.key,
			   b->key.length);
}

static const struct keel_obj_ops keel_mw_obj_ops = {
	.describe = keel_mw_describe,
	.release = keel_mw_release,
};

/**
 * keel_binding_free() - free a binding that is not the window's any more
 * @b: the binding, after keel_key_exchange() or keel_key_erase()
 *
 * Context: may sleep: waits until no thread uses the key. The caller has no reference
 * on a key. The window may be freed already.
 */
void keel_binding_free(struct keel_binding *b)
{
	keel_key_drain(&b->key);
	kfree_rcu(b, key.rcu);
}

static void keel_mr_unlist(struct keel_mr *mr, struct keel_binding *b)
	__must_hold(&mr->lock)
{
	list_del(&b->node);
	mr->ours -= b->ours;
}

/**
 * keel_binding_unlist() - let the region of a binding forget it
 * @mw: the window
 * @b: its current binding, which is about to be replaced, or was just now
 *
 * Threads may still use its key. &keel_key.region keeps the region for them.
 *
 * Context: under &keel_mw.lock.
 */
void keel_binding_unlist(struct keel_mw *mw, struct keel_binding *b)
{
	struct keel_mr *mr = b->mr;

	lockdep_assert_held(&mw->lock);
	if (!mr)
		return;
	b->mr = NULL;
	guard(spinlock)(&mr->lock);
	keel_mr_unlist(mr, b);
}

/**
 * keel_mw_unbind_locked() - give a window a null key with the same rkey
 * @mw: the window, bound
 *
 * Context: under &keel_mw.lock.
 * Return: the old binding, for keel_binding_free() without the lock.
 */
struct keel_binding *keel_mw_unbind_locked(struct keel_mw *mw)
{
	struct keel_binding *old, *spare = mw->spare;

	old = rcu_dereference_protected(mw->bound, lockdep_is_held(&mw->lock));
	mw->spare = NULL;
	spare->key.key = old->key.key;
	spare->key.domain = old->key.domain;
	spare->key.obj = &mw->obj;
	rcu_assign_pointer(mw->bound, spare);
	/* First, while the region cannot be closed: the key is still valid. */
	keel_binding_unlist(mw, old);
	keel_key_exchange(mw->keys, &old->key, &spare->key);
	return old;
}

/*
 * Unbind a window, unless another thread has unbound it from @mr already. @unbound gets
 * the binding.
 */
static void keel_mw_unbind(struct keel_mw *mw, const struct keel_mr *mr,
			   struct list_head *unbound)
{
	struct keel_binding *b;

	guard(spinlock)(&mw->lock);
	b = rcu_dereference_protected(mw->bound, lockdep_is_held(&mw->lock));
	if (b && b->mr == mr)
		list_add(&keel_mw_unbind_locked(mw)->node, unbound);
}

/* Returns a window that is bound to a region, with a reference, or NULL. */
static struct keel_mw *keel_mr_window(struct keel_mr *mr)
{
	struct keel_binding *b;
	struct keel_mw *mw;

	guard(spinlock)(&mr->lock);
	b = list_first_entry_or_null(&mr->windows, struct keel_binding, node);
	if (!b)
		return NULL;
	/* The binding leaves the list before its window is closed. */
	mw = keel_binding_mw(b);
	keel_obj_get(&mw->obj);
	return mw;
}

/**
 * keel_mr_unbind() - unbind all windows of a region
 * @mr: the region, to which no more windows can be bound
 *
 * Threads may still use keys of windows that other threads unbind at the same time:
 * see keel_drain_wait().
 *
 * Context: may sleep. The caller has no reference on a key.
 */
void keel_mr_unbind(struct keel_mr *mr)
{
	struct keel_binding *b, *next;
	struct keel_mw *mw;
	LIST_HEAD(unbound);

	while ((mw = keel_mr_window(mr))) {
		keel_mw_unbind(mw, mr, &unbound);
		keel_obj_put(&mw->obj);
		cond_resched();
	}
	/* All keys are invalid before the first wait for a user. */
	list_for_each_entry_safe(b, next, &unbound, node)
		keel_binding_free(b);
}

/* The first binding. */
static void keel_mw_set_bound(struct keel_mw *mw, struct keel_binding *b)
	__must_hold(&mw->lock)
{
	rcu_assign_pointer(mw->bound, b);
}

static int keel_alloc_mw(struct ib_mw *ibmw, struct ib_udata *udata)
{
	struct keel_dev *kdev = to_kdev(ibmw->device);
	struct keel_pd *pd = to_kpd(ibmw->pd);
	struct keel_binding *b;
	struct keel_mw *mw;
	int ret;

	ret = ib_no_udata_io(udata);
	if (ret)
		return ret;
	if (ibmw->type != IB_MW_TYPE_1 && ibmw->type != IB_MW_TYPE_2)
		return -EINVAL;
	mw = kzalloc_obj(*mw, keel_gfp_of(!udata));
	b = kzalloc_obj(*b, keel_gfp_of(!udata));
	ret = -ENOMEM;
	if (!mw || !b)
		goto err_free;
	spin_lock_init(&mw->lock);
	mw->type = ibmw->type;
	mw->ctx = ibmw->pd->uobject ? ibmw->pd->uobject->context : NULL;
	mw->keys = &kdev->keys;
	b->key.domain = pd->domain->obj.id;
	b->key.obj = &mw->obj;
	keel_obj_may_hold(&mw->obj, mw->holds);
	ret = keel_obj_add(&kdev->reg, &mw->obj, KEEL_MW, &keel_mw_obj_ops,
			   &pd->obj, NULL);
	if (ret)
		goto err_free;
	ret = keel_key_insert(mw->keys, &b->key);
	if (ret) {
		keel_obj_close(&mw->obj);
		kfree(b);
		return ret;
	}
	container_of(ibmw, struct keel_ib_mw, ib)->mw = mw;
	/*
	 * A queue pair that guesses the key can bind the window as soon as the
	 * lock is dropped. That replaces and frees @b.
	 */
	scoped_guard(spinlock, &mw->lock) {
		ibmw->rkey = b->key.key;
		keel_mw_set_bound(mw, b);
	}
	return 0;

err_free:
	kfree(b);
	kfree(mw);
	return ret;
}

static int keel_dealloc_mw(struct ib_mw *ibmw)
{
	struct keel_mw *mw = to_kmw(ibmw);
	struct keel_binding *b;

	scoped_guard(spinlock, &mw->lock) {
		b = rcu_replace_pointer(mw->bound, NULL,
					lockdep_is_held(&mw->lock));
		keel_binding_unlist(mw, b);
		keel_key_erase(mw->keys, &b->key);
	}
	keel_binding_free(b);
	/* Other threads may have replaced earlier keys just now. */
	keel_drain_wait(&mw->drain);
	keel_obj_close(&mw->obj);
	return 0;
}

const struct ib_device_ops keel_mw_ops = {
	.alloc_mw = keel_alloc_mw,
	.dealloc_mw = keel_dealloc_mw,

	INIT_RDMA_OBJ_SIZE(ib_mw, keel_ib_mw, ib),
};
