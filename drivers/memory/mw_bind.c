// SPDX-License-Identifier: GPL-2.0
/*
 * Work requests that change keys: bind a window, and invalidate a window or a
 * fast registration.
 *
 * The rules are those of the specification (10.6.7, memory windows), and for
 * type 2 those of variant 2B: such a window belongs to the QP that bound it,
 * and must be invalidated before it is bound again. A window of type 1 may be
 * bound again at any time; a bind with length 0 gives it a null key.
 *
 * A refused bind or local invalidate completes with IB_WC_MW_BIND_ERR, the
 * specification's "memory management operation error". That error covers all of
 * these work requests. It was called "memory window bind error" when only
 * windows existed.
 */
#include <linux/bits.h>
#include <linux/slab.h>
#include <kunit/visibility.h>

#include "keel_mr.h"
#include "keel_point.h"
#include "keel_sge.h"

/*
 * Rights that a window can have. Applications may also request local rights,
 * which have no effect. IB_ZERO_BASED is not a right.
 */
#define KEEL_MW_OTHER	(IB_ACCESS_LOCAL_WRITE | IB_ZERO_BASED)
#define KEEL_MW_ACCESS	(IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_WRITE | \
			 IB_ACCESS_REMOTE_ATOMIC | IB_ACCESS_FLUSH_GLOBAL)

/* Is it a region whose key work requests change? */
static bool keel_is_fast_reg(const struct keel_obj *obj)
{
	return obj->kind == KEEL_MR &&
	       container_of(obj, struct keel_mr, obj)->list;
}

/*
 * Get the window or fast registration of a key, with a reference on the object only:
 * the owner of a region waits for those on its key. Other regions get none, because
 * it would keep their memory pinned after they are deregistered.
 */
static struct keel_obj *keel_obj_find(struct keel_dev *kdev, u32 key,
				      u32 domain)
{
	struct keel_key *k;

	guard(rcu)();
	k = keel_key_peek(&kdev->keys, key, domain);
	if (IS_ERR(k))
		return ERR_CAST(k);
	if (k->obj->kind != KEEL_MW && !keel_is_fast_reg(k->obj))
		return ERR_PTR(-EACCES);
	return keel_obj_tryget(k->obj) ? k->obj : ERR_PTR(-ENOENT);
}

static enum keel_uapi_why keel_find_why(int err)
{
	switch (err) {
	case -EPERM:
		return KEEL_WHY_DOMAIN;
	case -EACCES:
		return KEEL_WHY_WINDOW;
	default:
		return KEEL_WHY_KEY;
	}
}

/* The consumer owns the lower 8 bits of a key; it cannot change the others. */
static u32 keel_bind_new_key(const struct keel_uapi_send_wqe *wqe)
{
	const u32 own = BIT(KEEL_KEY_INDEX_SHIFT) - 1;

	return (wqe->bind.rkey & ~own) | (wqe->bind.new_rkey & own);
}

/* Check the part of a bind that does not depend on the region. */
static enum keel_uapi_why keel_bind_check(const struct keel_mw *mw,
					  const struct keel_binding *old,
					  const struct keel_uapi_send_wqe *wqe)
{
	enum ib_mw_type type = wqe->bind.flags & KEEL_BIND_F_TYPE_1 ?
			       IB_MW_TYPE_1 : IB_MW_TYPE_2;

	/* Another thread has changed the key since the lookup. */
	if (!old || old->key.key != wqe->bind.rkey)
		return KEEL_WHY_KEY;
	if (mw->type != type || wqe->bind.flags & ~KEEL_BIND_F_TYPE_1)
		return KEEL_WHY_WINDOW;
	/* For type 1, rdma-core chooses the next key of this window. */
	if (type == IB_MW_TYPE_1 && wqe->bind.new_rkey != keel_bind_new_key(wqe))
		return KEEL_WHY_WINDOW;
	if (type == IB_MW_TYPE_2 && old->mr)
		return KEEL_WHY_WINDOW;
	/* Length 0 unbinds a window of type 1 only: IBTA o10-37.2.40. */
	if (type == IB_MW_TYPE_2 && !wqe->bind.length)
		return KEEL_WHY_LENGTH;
	if (wqe->bind.access & ~(KEEL_MW_ACCESS | KEEL_MW_OTHER))
		return KEEL_WHY_ACCESS;
	return KEEL_WHY_NONE;
}

/* Check that a region allows such a window; @key is the region's. */
static enum keel_uapi_why
keel_bind_check_mr(const struct keel_key *key,
		   const struct keel_uapi_send_wqe *wqe)
{
	u64 off = wqe->bind.addr - key->iova;

	if ((key->obj->kind != KEEL_MR && key->obj->kind != KEEL_DM_MR) ||
	    container_of(key->obj, struct keel_mr, obj)->list)
		return KEEL_WHY_WINDOW;
	if (!(key->access & IB_ACCESS_MW_BIND))
		return KEEL_WHY_ACCESS;
	if (wqe->bind.access & (IB_ACCESS_REMOTE_WRITE |
				IB_ACCESS_REMOTE_ATOMIC) &&
	    !(key->access & IB_ACCESS_LOCAL_WRITE))
		return KEEL_WHY_ACCESS;
	/* A window must not allow a flush that its region does not allow. */
	if (wqe->bind.access & ~key->access & IB_ACCESS_FLUSH_GLOBAL)
		return KEEL_WHY_ACCESS;
	if (off > key->length || wqe->bind.length > key->length - off)
		return KEEL_WHY_RANGE;
	return KEEL_WHY_NONE;
}

/* Let @key open a part of the memory of @of. */
static void keel_bind_key_to(struct keel_key *key, struct keel_mw *mw,
			     const struct keel_scope *scope,
			     const struct keel_uapi_send_wqe *wqe,
			     const struct keel_key *of)
{
	key->access = wqe->bind.access & KEEL_MW_ACCESS;
	key->iova = wqe->bind.access & IB_ZERO_BASED ? 0 : wqe->bind.addr;
	key->length = wqe->bind.length;
	key->qpn = mw->type == IB_MW_TYPE_2 ? scope->qpn : 0;
	key->mem = of->mem;
	key->mem_off = of->mem_off + (wqe->bind.addr - of->iova);
	key->drain = &mw->drain;
}

/* Bind to a region: complete @new, and let the region list it. */
static enum keel_uapi_why keel_bind_to_mr(const struct keel_scope *scope,
					  struct keel_mw *mw,
					  const struct keel_uapi_send_wqe *wqe,
					  struct keel_binding *new)
	__must_hold(&mw->lock)
{
	const struct keel_key *of;
	enum keel_uapi_why why;
	struct keel_mr *mr;

	lockdep_assert_held(&mw->lock);
	guard(rcu)();
	of = keel_key_peek(&scope->kdev->keys, wqe->bind.lkey, scope->domain);
	if (IS_ERR(of))
		return keel_find_why(PTR_ERR(of));
	why = keel_bind_check_mr(of, wqe);
	if (why)
		return why;
	keel_bind_key_to(&new->key, mw, scope, wqe, of);
	/* RCU keeps the region until the check; the list keeps it afterwards. */
	mr = container_of(of->obj, struct keel_mr, obj);
	guard(spinlock)(&mr->lock);
	/* It is being deregistered, or its key has changed since the lookup. */
	if (mr->going || rcu_access_pointer(mr->key) != of)
		return KEEL_WHY_KEY;
	list_add_tail(&new->node, &mr->windows);
	/* Others may bind its window. That must not keep the region. */
	new->ours = mw->ctx == mr->ctx && scope->ctx == mr->ctx;
	mr->ours += new->ours;
	new->mr = mr;
	new->key.region = &mr->drain;
	return KEEL_WHY_NONE;
}

/*
 * Replace the binding of @mw by @new, which is zeroed. Then @old gets the previous
 * one, for keel_binding_free(). @spare gets what remains to be freed.
 */
static enum keel_uapi_why keel_mw_rebind(const struct keel_scope *scope,
					 struct keel_mw *mw,
					 const struct keel_uapi_send_wqe *wqe,
					 struct keel_binding *new,
					 struct keel_binding **spare,
					 struct keel_binding **old)
{
	struct keel_binding *was;
	enum keel_uapi_why why;

	guard(spinlock)(&mw->lock);
	was = rcu_dereference_protected(mw->bound, lockdep_is_held(&mw->lock));
	why = keel_bind_check(mw, was, wqe);
	if (why)
		return why;
	new->key.key = keel_bind_new_key(wqe);
	new->key.domain = scope->domain;
	new->key.obj = &mw->obj;
	if (wqe->bind.length) {
		why = keel_bind_to_mr(scope, mw, wqe, new);
		if (why)
			return why;
		swap(mw->spare, *spare);
	}
	rcu_assign_pointer(mw->bound, new);
	keel_binding_unlist(mw, was);
	keel_key_exchange(mw->keys, &was->key, &new->key);
	*old = was;
	return KEEL_WHY_NONE;
}

static enum keel_uapi_why keel_mw_bind(const struct keel_scope *scope,
				       struct keel_mw *mw,
				       const struct keel_uapi_send_wqe *wqe)
{
	struct keel_binding *new = kzalloc_obj(*new,
					       keel_gfp_of(scope->kernel));
	struct keel_binding *spare = kzalloc_obj(*spare,
						 keel_gfp_of(scope->kernel));
	enum keel_uapi_why why = KEEL_WHY_WINDOW;
	struct keel_binding *old;

	if (new && spare)
		why = keel_mw_rebind(scope, mw, wqe, new, &spare, &old);
	kfree(spare);
	if (why)
		kfree(new);
	else
		keel_binding_free(old);
	return why;
}

/**
 * keel_wqe_bind() - bind a window: IB_WR_BIND_MW, and ibv_bind_mw()
 * @scope: the keys that the QP with this send queue may name
 * @wqe: the WQE
 * @why: gets the vendor error
 *
 * On failure, the window does not change.
 *
 * Context: may sleep, with the lock of the send queue. The caller has no
 * reference on a key.
 * Return: IB_WC_SUCCESS or IB_WC_MW_BIND_ERR.
 */
enum ib_wc_status keel_wqe_bind(const struct keel_scope *scope,
				const struct keel_uapi_send_wqe *wqe, u32 *why)
{
	struct keel_obj *obj = keel_obj_find(scope->kdev, wqe->bind.rkey,
					     scope->domain);

	if (IS_ERR(obj)) {
		*why = keel_find_why(PTR_ERR(obj));
		return IB_WC_MW_BIND_ERR;
	}
	*why = KEEL_WHY_WINDOW;
	if (obj->kind == KEEL_MW)
		*why = keel_mw_bind(scope,
				    container_of(obj, struct keel_mw, obj), wqe);
	keel_obj_put(obj);
	return *why ? IB_WC_MW_BIND_ERR : IB_WC_SUCCESS;
}
EXPORT_SYMBOL_IF_KUNIT(keel_wqe_bind);

/* Return: the key, which the caller passes to keel_invalidate_wait(). */
static struct keel_key *keel_mw_invalidate(struct keel_mw *mw, u32 qpn,
					   u32 rkey)
{
	const struct keel_binding *b;

	keel_point("window_found");
	guard(spinlock)(&mw->lock);
	b = rcu_dereference_protected(mw->bound, lockdep_is_held(&mw->lock));
	if (!b || b->key.key != rkey)
		return ERR_PTR(-ENOENT);
	if (mw->type != IB_MW_TYPE_2 || !b->mr || b->key.qpn != qpn)
		return ERR_PTR(-EACCES);
	return &keel_mw_unbind_locked(mw)->key;
}

/**
 * keel_invalidate() - invalidate a key, for a local or remote request
 * @scope: the keys that may be used: for a local invalidate those of the QP
 *	with the WQE, for a send with invalidate those of the QP that receives
 *	it
 * @rkey: the key
 * @obj: gets the object of the key, with a reference, or NULL. The caller drops the
 *	reference where it may sleep, after keel_invalidate_wait().
 *
 * Threads that found the key before may still use it.
 *
 * Context: any but interrupts.
 * Return: the key, for keel_invalidate_wait(); or ERR_PTR(): -ENOENT if the key is
 * invalid; -EPERM if it belongs to another domain; -EACCES if it cannot be
 * invalidated, or not by this QP.
 */
struct keel_key *keel_invalidate(const struct keel_scope *scope, u32 rkey,
				 struct keel_obj **obj)
{
	*obj = keel_obj_find(scope->kdev, rkey, scope->domain);
	if (IS_ERR(*obj)) {
		struct keel_key *err = ERR_CAST(*obj);

		*obj = NULL;
		return err;
	}
	if ((*obj)->kind == KEEL_MW)
		return keel_mw_invalidate(container_of(*obj, struct keel_mw, obj),
					  scope->qpn, rkey);
	return keel_mr_invalidate(container_of(*obj, struct keel_mr, obj), rkey);
}
EXPORT_SYMBOL_IF_KUNIT(keel_invalidate);

/**
 * keel_invalidate_wait() - wait until no thread uses an invalidated key
 * @key: what keel_invalidate() returned; freed
 *
 * Context: may sleep, with the locks of queues. The caller has no reference on
 * another key.
 */
void keel_invalidate_wait(struct keel_key *key)
{
	if (key->obj->kind == KEEL_MW) {
		keel_binding_free(container_of(key, struct keel_binding, key));
		return;
	}
	keel_key_drain(key);
	kfree_rcu(key, rcu);
}

/**
 * keel_wqe_invalidate() - invalidate a key: IB_WR_LOCAL_INV
 * @scope: the keys that the QP with this send queue may name
 * @rkey: the key
 * @why: gets the vendor error
 *
 * Context: may sleep, with the lock of the send queue. The caller has no
 * reference on a key.
 * Return: IB_WC_SUCCESS or IB_WC_MW_BIND_ERR.
 */
enum ib_wc_status keel_wqe_invalidate(const struct keel_scope *scope, u32 rkey,
				      u32 *why)
{
	struct keel_obj *obj;
	struct keel_key *key = keel_invalidate(scope, rkey, &obj);

	if (!IS_ERR(key))
		keel_invalidate_wait(key);
	if (obj)
		keel_obj_put(obj);
	if (!IS_ERR(key))
		return IB_WC_SUCCESS;
	*why = keel_find_why(PTR_ERR(key));
	return IB_WC_MW_BIND_ERR;
}
