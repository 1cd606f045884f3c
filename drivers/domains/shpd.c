// SPDX-License-Identifier: GPL-2.0
/*
 * Shared protection domains: ibv_alloc_shpd() gives a domain a handle, with
 * which other processes can join it by ibv_share_pd() (see pd.c).
 *
 * A handle is a secret permutation of a counter: handles never repeat, and one
 * does not reveal the next. The key protects a domain. It is compared in
 * constant time, and a wrong key returns the same error as a wrong handle.
 */
#include <linux/random.h>
#include <linux/slab.h>
#include <kunit/visibility.h>
#include <rdma/uverbs_std_types.h>

#include "keel.h"
#include "keel_point.h"

/**
 * struct keel_shpd - the shared-PD handle of a domain
 * @obj: the object; holds the domain
 * @holds: of @obj
 * @node: in the device's table, under its lock
 * @domain: the domain
 * @handle: the number that userspace uses for it
 * @key: the secret that a process must know to join
 *
 * It has no uobject: it is destroyed with the last instance of the domain.
 */
struct keel_shpd {
	struct keel_obj obj;
	struct keel_hold holds[1];
	struct hlist_node node;
	struct keel_domain *domain;
	u32 handle;
	u64 key;
};

static void keel_shpd_release(struct keel_obj *obj)
{
	struct keel_shpd *shpd = container_of(obj, struct keel_shpd, obj);

	kfree_rcu(shpd, obj.rcu);
}

static const struct keel_obj_ops keel_shpd_obj_ops = {
	.release = keel_shpd_release,
};

/**
 * keel_shpds_init() - initialize an empty table of handles
 * @shpds: the table
 */
void keel_shpds_init(struct keel_shpds *shpds)
{
	spin_lock_init(&shpds->lock);
	/* No other thread has it yet. */
	context_unsafe(hash_init(shpds->table));
	get_random_bytes(&shpds->secret, sizeof(shpds->secret));
}

/* Four rounds of a Feistel network: a permutation of 32 bits. */
VISIBLE_IF_KUNIT u32 keel_shpd_permute(const struct keel_shpds *shpds, u32 n)
{
	u16 left = n >> 16, right = n;
	int round;

	for (round = 0; round < 4; round++) {
		u16 next = left ^ (u16)siphash_2u32(right, round,
						    &shpds->secret);

		left = right;
		right = next;
	}
	return (u32)left << 16 | right;
}
EXPORT_SYMBOL_IF_KUNIT(keel_shpd_permute);

static struct keel_shpd *keel_shpd_find(struct keel_shpds *shpds, u32 handle)
	__must_hold(&shpds->lock)
{
	struct keel_shpd *shpd;

	lockdep_assert_held(&shpds->lock);
	hash_for_each_possible(shpds->table, shpd, node, handle)
		if (shpd->handle == handle)
			return shpd;
	return NULL;
}

/* Compare two keys in constant time. */
VISIBLE_IF_KUNIT bool keel_shpd_key_equal(u64 a, u64 b)
{
	u64 diff = a ^ b;

	/* Fold, so that a 32-bit machine does not stop at the first half. */
	diff |= diff >> 32;
	OPTIMIZER_HIDE_VAR(diff);
	return !(u32)diff;
}
EXPORT_SYMBOL_IF_KUNIT(keel_shpd_key_equal);

/**
 * keel_shpd_join() - join a shared domain
 * @kdev: the device
 * @handle: its handle
 * @key: its key
 *
 * Return: the domain; the caller owns a reference (keel_obj_put()) and an
 * instance (keel_domain_leave()). ERR_PTR(-EACCES) if the handle does not exist
 * on this device, or the key is wrong.
 */
struct keel_domain *keel_shpd_join(struct keel_dev *kdev, u32 handle, u64 key)
{
	struct keel_shpd *shpd;

	guard(spinlock)(&kdev->shpds.lock);
	shpd = keel_shpd_find(&kdev->shpds, handle);
	/* Compare even without a handle, to take the same time. */
	if (!keel_shpd_key_equal(shpd ? shpd->key : ~key, key) || !shpd)
		return ERR_PTR(-EACCES);
	/* The last instance removes it from the table under this lock. */
	keel_domain_join(shpd->domain);
	keel_obj_get(&shpd->domain->obj);
	return shpd->domain;
}

/**
 * keel_shpd_remove() - remove the handle of a domain from the table
 * @shpds: the table of the device
 * @domain: the domain, shared or not; the caller has a reference
 *
 * Context: &keel_shpds.lock is held.
 * Return: the handle or NULL, for keel_shpd_close() without the lock.
 */
struct keel_shpd *keel_shpd_remove(struct keel_shpds *shpds,
				   struct keel_domain *domain)
{
	struct keel_shpd *shpd = domain->shpd;

	lockdep_assert_held(&shpds->lock);
	if (shpd)
		hash_del(&shpd->node);
	WRITE_ONCE(domain->shpd, NULL);
	return shpd;
}

/**
 * keel_shpd_close() - drop a handle that is not in the table
 * @shpd: the handle, or NULL
 *
 * Context: may sleep.
 */
void keel_shpd_close(struct keel_shpd *shpd)
{
	if (shpd)
		keel_obj_close(&shpd->obj);
}

/* Allocate a handle without a number, not in the table. */
static struct keel_shpd *keel_shpd_new(struct keel_dev *kdev,
				       struct keel_domain *domain, u64 key)
{
	struct keel_shpd *shpd = kzalloc_obj(*shpd, GFP_KERNEL_ACCOUNT);
	int ret;

	if (!shpd)
		return ERR_PTR(-ENOMEM);
	shpd->domain = domain;
	shpd->key = key;
	keel_obj_may_hold(&shpd->obj, shpd->holds);
	ret = keel_obj_add(&kdev->reg, &shpd->obj, KEEL_SHPD,
			   &keel_shpd_obj_ops, &domain->obj, NULL);
	if (!ret)
		return shpd;
	kfree(shpd);
	return ERR_PTR(ret);
}

/* Give the domain of a handle that handle. -EINVAL: it has one already. */
static int keel_shpd_publish(struct keel_shpds *shpds, struct keel_shpd *shpd)
{
	guard(spinlock)(&shpds->lock);
	if (shpd->domain->shpd)
		return -EINVAL;
	shpd->handle = keel_shpd_permute(shpds, shpds->given++);
	hash_add(shpds->table, &shpd->node, shpd->handle);
	WRITE_ONCE(shpd->domain->shpd, shpd);
	return 0;
}

/*
 * Create the handle of a domain that has none. All processes need the lock of the
 * table, so nothing is allocated under it.
 */
VISIBLE_IF_KUNIT struct keel_shpd *
keel_shpd_create(struct keel_dev *kdev, struct keel_domain *domain, u64 key)
{
	struct keel_shpd *shpd;
	struct keel_user *user;
	int ret;

	/* Report a domain that is shared before a quota. */
	if (READ_ONCE(domain->shpd))
		return ERR_PTR(-EINVAL);
	keel_point("shpd_checked");
	user = keel_quota_charge(&kdev->reg.quotas, KEEL_RES_HANDLES, 1,
				 GFP_KERNEL_ACCOUNT);
	if (IS_ERR(user))
		return ERR_PTR(PTR_ERR(user) == -EDQUOT ? -ENOSPC : -ENOMEM);
	shpd = keel_shpd_new(kdev, domain, key);
	ret = PTR_ERR_OR_ZERO(shpd);
	if (!ret) {
		ret = keel_shpd_publish(&kdev->shpds, shpd);
		if (ret)
			keel_shpd_close(shpd);
	}
	if (ret) {
		keel_quota_uncharge(user, KEEL_RES_HANDLES, 1);
		return ERR_PTR(ret);
	}
	/* Handles are never reused, so this charge is never undone. */
	keel_user_keep(user);
	return shpd;
}
EXPORT_SYMBOL_IF_KUNIT(keel_shpd_create);

static int UVERBS_HANDLER(KEEL_METHOD_PD_SHARE)(
	struct uverbs_attr_bundle *attrs)
{
	struct ib_pd *ibpd = uverbs_attr_get_obj(attrs,
						 KEEL_ATTR_PD_SHARE_HANDLE);
	struct keel_dev *kdev = to_kdev(ibpd->device);
	struct keel_pd *pd = to_kpd(ibpd);
	struct keel_shpd *shpd;
	u32 handle;
	u64 key;
	int ret;

	ret = uverbs_copy_from(&key, attrs, KEEL_ATTR_PD_SHARE_KEY);
	if (ret)
		return ret;
	if (pd->base || pd->joined)
		return -EINVAL;

	shpd = keel_shpd_create(kdev, pd->domain, key);
	if (IS_ERR(shpd))
		return PTR_ERR(shpd);
	/* This call's lock on the PD keeps it until here. */
	handle = shpd->handle;
	/*
	 * Not under the lock: userspace decides how long a copy to its memory
	 * takes. The call's lock on the PD keeps an instance, and with it the
	 * handle, which no other process knows yet.
	 */
	ret = uverbs_copy_to(attrs, KEEL_ATTR_PD_SHARE_RESP_SHPD, &handle,
			     sizeof(handle));
	if (ret) {
		scoped_guard(spinlock, &kdev->shpds.lock)
			shpd = keel_shpd_remove(&kdev->shpds, pd->domain);
		keel_shpd_close(shpd);
	}
	return ret;
}

DECLARE_UVERBS_NAMED_METHOD(
	KEEL_METHOD_PD_SHARE,
	UVERBS_ATTR_IDR(KEEL_ATTR_PD_SHARE_HANDLE, UVERBS_OBJECT_PD,
			UVERBS_ACCESS_READ, UA_MANDATORY),
	UVERBS_ATTR_PTR_IN(KEEL_ATTR_PD_SHARE_KEY, UVERBS_ATTR_TYPE(u64),
			   UA_MANDATORY),
	UVERBS_ATTR_PTR_OUT(KEEL_ATTR_PD_SHARE_RESP_SHPD,
			    UVERBS_ATTR_TYPE(u32), UA_MANDATORY));

ADD_UVERBS_METHODS(keel_shpd_methods, UVERBS_OBJECT_PD,
		   &UVERBS_METHOD(KEEL_METHOD_PD_SHARE));

const struct uapi_definition keel_shpd_defs[] = {
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_PD, &keel_shpd_methods),
	{},
};
