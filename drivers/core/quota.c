// SPDX-License-Identifier: GPL-2.0
/*
 * Quotas: limits of the resources that users of a device share. The rule is
 * keel_quota_check(); Documentation/isolation.rst has its effects. A process
 * with CAP_SYS_RESOURCE may take everything that is left.
 */
#include <linux/bitops.h>
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/err.h>
#include <linux/slab.h>
#include <linux/user_namespace.h>
#include <kunit/visibility.h>

#include "keel_quota.h"
#include "keel_trace.h"

/**
 * keel_quotas_init() - initialize quotas without limits and users
 * @quotas: the quotas
 * @name: name of the device; must stay valid as long as @quotas
 */
void keel_quotas_init(struct keel_quotas *quotas, const char *name)
{
	int i;

	quotas->name = name;
	spin_lock_init(&quotas->lock);
	/* No other thread has them yet. */
	context_unsafe(hash_init(quotas->users));
	for (i = 0; i < KEEL_QUOTAS; i++) {
		quotas->limit[i] = S64_MAX / 2;
		atomic64_set(&quotas->count[i], 0);
	}
}
EXPORT_SYMBOL_IF_KUNIT(keel_quotas_init);

/**
 * keel_quotas_fini() - free the users that were kept
 * @quotas: the quotas, no longer in use; all references were dropped
 */
void keel_quotas_fini(struct keel_quotas *quotas)
	__context_unsafe(/* no other thread has them any more */)
{
	struct keel_user *user;
	struct hlist_node *next;
	int bucket;

	hash_for_each_safe(quotas->users, bucket, next, user, node) {
		/* Any other user still has references: do not free it. */
		if (WARN_ON(!user->kept ||
			    refcount_read(&user->ref) != hweight_long(user->kept)))
			continue;
		hash_del_rcu(&user->node);
		kfree_rcu(user, rcu);
	}
}
EXPORT_SYMBOL_IF_KUNIT(keel_quotas_fini);

/**
 * keel_user_id() - get the user that a process counts as
 * @cred: credentials of the process
 *
 * In the initial user namespace it is the real user. A user can create user
 * namespaces with many user IDs, so a process in one counts as the owner of the
 * outermost namespace around it. Containers of root are an exception: a
 * namespace that root owns, but in which root itself has no ID, is a user of
 * its own. Creating one needs CAP_SETUID, with which a process can be any user
 * anyway.
 *
 * Return: the user ID, or the number of the namespace in the upper half.
 */
u64 keel_user_id(const struct cred *cred)
{
	struct user_namespace *ns = cred->user_ns;

	if (ns == &init_user_ns)
		return __kuid_val(cred->uid);
	while (ns->parent != &init_user_ns)
		ns = ns->parent;
	if (uid_eq(ns->owner, GLOBAL_ROOT_UID) && ns->uid_map.nr_extents &&
	    !kuid_has_mapping(ns, GLOBAL_ROOT_UID))
		return (u64)ns->ns.inum << 32;
	return __kuid_val(ns->owner);
}
EXPORT_SYMBOL_IF_KUNIT(keel_user_id);

static struct keel_user *keel_user_find(struct keel_quotas *quotas, u64 id)
	__must_hold_shared(RCU)
	__context_unsafe(/* RCU keeps the users that it finds */)
{
	struct keel_user *user;

	hash_for_each_possible_rcu(quotas->users, user, node, id,
				   lockdep_is_held(&quotas->lock))
		if (user->id == id && refcount_inc_not_zero(&user->ref))
			return user;
	return NULL;
}

/*
 * A user with a similar ID that was kept for a debt and owes nothing any more, or NULL:
 * the reference that kept the user is passed on.
 */
static struct keel_user *keel_user_forget(struct keel_quotas *quotas, u64 id)
	__context_unsafe(/* the lock keeps the users that it finds */)
{
	struct keel_user *user;

	guard(spinlock_irqsave)(&quotas->lock);
	hash_for_each_possible(quotas->users, user, node, id)
		if (test_bit(KEEL_KEPT_DEBT, &user->kept) &&
		    !keel_orphans_owe(&user->orphans)) {
			clear_bit(KEEL_KEPT_DEBT, &user->kept);
			return user;
		}
	return NULL;
}

/* List @new, unless another thread has listed that user meanwhile. */
static struct keel_user *keel_user_add(struct keel_user *new)
{
	struct keel_quotas *quotas = new->quotas;
	struct keel_user *user;

	guard(spinlock_irqsave)(&quotas->lock);
	/* The lock keeps the users, too. */
	user = context_unsafe(keel_user_find(quotas, new->id));
	if (user)
		return user;
	hash_add_rcu(quotas->users, &new->node, new->id);
	return new;
}

/**
 * keel_user_get() - take a reference on a user
 * @quotas: quotas of the device
 * @id: the user, as keel_user_id()
 * @gfp: flags for allocations
 *
 * Context: may sleep if @gfp may.
 * Return: the user, or NULL if memory is short.
 */
struct keel_user *keel_user_get(struct keel_quotas *quotas, u64 id, gfp_t gfp)
{
	struct keel_user *user, *new;

	scoped_guard(rcu)
		user = keel_user_find(quotas, id);
	if (user)
		return user;
	new = kzalloc_obj(*new, gfp);
	if (!new)
		return NULL;
	spin_lock_init(&new->lock);
	keel_orphans_init(&new->orphans);
	keel_reaps_of_user_init(&new->reaps);
	refcount_set(&new->ref, 1);
	new->quotas = quotas;
	new->id = id;
	keel_user_put(keel_user_forget(quotas, id));
	user = keel_user_add(new);
	if (user != new)
		kfree(new);
	return user;
}
EXPORT_SYMBOL_IF_KUNIT(keel_user_get);

/**
 * keel_user_put() - drop a reference
 * @user: the user; may be freed afterwards. NULL is no user.
 *
 * A user that has to wait for the work of dead processes is remembered.
 *
 * Context: any.
 */
void keel_user_put(struct keel_user *user)
{
	unsigned long flags;
	bool kept;

	if (!user || !refcount_dec_and_lock_irqsave(&user->ref,
						    &user->quotas->lock,
						    &flags))
		return;
	/*
	 * Else the same user, created again, would owe nothing. A lookup finds no reference
	 * before, and looks again with the lock.
	 */
	kept = keel_orphans_owe(&user->orphans);
	if (kept) {
		set_bit(KEEL_KEPT_DEBT, &user->kept);
		refcount_set(&user->ref, 1);
	} else {
		hash_del_rcu(&user->node);
	}
	spin_unlock_irqrestore(&user->quotas->lock, flags);
	if (!kept)
		kfree_rcu(user, rcu);
}
EXPORT_SYMBOL_IF_KUNIT(keel_user_put);

/**
 * keel_user_keep() - remember a user until the device is freed
 * @user: the user; the caller's reference is passed on
 *
 * For a resource that is used up and never freed.
 *
 * Context: any.
 */
void keel_user_keep(struct keel_user *user)
{
	if (test_and_set_bit(KEEL_KEPT_ALWAYS, &user->kept))
		keel_user_put(user);
}
EXPORT_SYMBOL_IF_KUNIT(keel_user_keep);

static int keel_user_charge_locked(struct keel_user *user, unsigned int what,
				   u64 n, bool all)
	__must_hold(&user->lock)
{
	struct keel_quotas *quotas = user->quotas;
	s64 count = atomic64_read(&quotas->count[what]);
	int ret;

	do {
		ret = keel_quota_check(quotas->limit[what], count,
				       atomic64_read(&user->held[what]), n);
		if (ret == -EDQUOT && all)
			ret = 0;
		if (ret)
			return ret;
	} while (!atomic64_try_cmpxchg(&quotas->count[what], &count,
				       count + n));
	atomic64_add(n, &user->held[what]);
	return 0;
}

/**
 * keel_user_charge() - charge a resource to a user, if the quota allows it
 * @user: the user; the caller has a reference
 * @what: number of the resource
 * @n: amount
 * @all: the user may have everything that is left
 *
 * Charges of one user are serialized, so two of its processes never get more
 * together than one process would.
 *
 * Context: process context.
 * Return: as keel_quota_check().
 */
int keel_user_charge(struct keel_user *user, unsigned int what, u64 n,
		     bool all)
{
	guard(spinlock)(&user->lock);
	return keel_user_charge_locked(user, what, n, all);
}
EXPORT_SYMBOL_IF_KUNIT(keel_user_charge);

/**
 * keel_user_uncharge() - undo a keel_user_charge() that returned 0
 * @user: the user; the caller has a reference
 * @what: number of the resource
 * @n: amount
 *
 * Context: any.
 */
void keel_user_uncharge(struct keel_user *user, unsigned int what, u64 n)
{
	/* Between the two, the user seems to hold too much, not too little. */
	atomic64_sub(n, &user->quotas->count[what]);
	atomic64_sub(n, &user->held[what]);
}
EXPORT_SYMBOL_IF_KUNIT(keel_user_uncharge);

/**
 * keel_quota_charge() - charge a resource to the user of the calling process
 * @quotas: quotas of the device
 * @what: number of the resource
 * @n: amount
 * @gfp: flags for allocations
 *
 * Context: process context; may sleep if @gfp may.
 * Return: the user, with a reference, for keel_quota_uncharge(); or
 * ERR_PTR(-EDQUOT) if the device has no more, or the user has its share, or
 * ERR_PTR(-ENOMEM) if memory is short.
 */
struct keel_user *keel_quota_charge(struct keel_quotas *quotas,
				    unsigned int what, u64 n, gfp_t gfp)
{
	u64 id = keel_user_id(current_cred());
	struct keel_user *user = keel_user_get(quotas, id, gfp);
	int ret;

	if (!user)
		return ERR_PTR(-ENOMEM);
	ret = keel_user_charge(user, what, n, false);
	/* Check the capability last, because the check is audited. */
	if (ret == -EDQUOT && capable(CAP_SYS_RESOURCE))
		ret = keel_user_charge(user, what, n, true);
	if (!ret)
		return user;
	trace_keel_quota_refused(user, what, n);
	keel_user_put(user);
	return ERR_PTR(-EDQUOT);
}
EXPORT_SYMBOL_IF_KUNIT(keel_quota_charge);

/**
 * keel_quota_uncharge() - undo a keel_quota_charge()
 * @user: the user that it returned; may be freed afterwards. NULL: nothing was
 *	charged
 * @what: number of the resource
 * @n: amount
 *
 * Context: any.
 */
void keel_quota_uncharge(struct keel_user *user, unsigned int what, u64 n)
{
	if (!user)
		return;
	keel_user_uncharge(user, what, n);
	keel_user_put(user);
}
EXPORT_SYMBOL_IF_KUNIT(keel_quota_uncharge);
