/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Quotas: how much of a device's resources each user may hold. A core unit: it
 * depends on users and amounts, but on no verb and no object.
 */
#ifndef KEEL_QUOTA_H
#define KEEL_QUOTA_H

#include <linux/atomic.h>
#include <linux/errno.h>
#include <linux/gfp.h>
#include <linux/hashtable.h>
#include <linux/rcupdate.h>
#include <linux/refcount.h>
#include <linux/spinlock.h>
#include <linux/types.h>

#include "compat.h"
#include "keel_orphans.h"
#include "keel_reap.h"

struct cred;

/* Number of resources with a quota. The caller numbers them. */
#define KEEL_QUOTAS	20

/**
 * struct keel_quotas - the resources of a device and the users that share them
 * @name: of the device, for trace events
 * @limit: total amount of each resource
 * @count: amount that all users hold together
 * @lock: protects changes of @users; may be taken in any context
 * @users: struct keel_user by &keel_user.id; read under RCU
 */
struct keel_quotas {
	const char *name;
	u64 limit[KEEL_QUOTAS];
	atomic64_t count[KEEL_QUOTAS];
	spinlock_t lock;
	DECLARE_HASHTABLE(users, 6) __guarded_by(&lock);
};

/* Bits of &keel_user.kept. */
#define KEEL_KEPT_ALWAYS	0
#define KEEL_KEPT_DEBT		1

/**
 * struct keel_user - a user of a device
 * @node: in &keel_quotas.users
 * @quotas: the device's
 * @id: as keel_user_id()
 * @ref: one for each keel_user_get(); the last keel_user_put() frees the user
 * @kept: bit 0: stays until keel_quotas_fini(), see keel_user_keep(); bit 1: stays
 *	until a lookup finds that it owes no time any more, see keel_user_put(). Each has a
 *	reference.
 * @lock: serializes keel_user_charge()
 * @held: amount of each resource that the user holds
 * @longs: areas for long packets of other hosts that its QPs have
 * @orphans: work for objects of its dead processes
 * @reaps: threads of its processes that are to end
 * @rcu: a lookup may still read it
 */
struct keel_user {
	struct hlist_node node __guarded_by(&quotas->lock);
	struct keel_quotas *quotas;
	u64 id;
	refcount_t ref;
	unsigned long kept;
	spinlock_t lock;
	atomic64_t held[KEEL_QUOTAS];
	atomic_t longs;
	struct keel_orphans orphans;
	struct keel_reaps_of_user reaps;
	struct rcu_head rcu;
};

void keel_quotas_init(struct keel_quotas *quotas, const char *name);
void keel_quotas_fini(struct keel_quotas *quotas);

u64 keel_user_id(const struct cred *cred);
struct keel_user *keel_user_get(struct keel_quotas *quotas, u64 id, gfp_t gfp);
void keel_user_put(struct keel_user *user);
void keel_user_keep(struct keel_user *user);
int keel_user_charge(struct keel_user *user, unsigned int what, u64 n,
		     bool all);
void keel_user_uncharge(struct keel_user *user, unsigned int what, u64 n);

struct keel_user *keel_quota_charge(struct keel_quotas *quotas,
				    unsigned int what, u64 n, gfp_t gfp);
void keel_quota_uncharge(struct keel_user *user, unsigned int what, u64 n);

/**
 * keel_quota_check() - may a user have more of a resource?
 * @limit: total amount
 * @count: amount that all users hold
 * @held: amount that this user holds, part of @count
 * @n: additional amount that this user requests
 *
 * The rule: a user must not hold more than is still free after the request. One
 * user therefore gets at most half, and two users that take turns get a third each.
 * Something is always left for the next user.
 *
 * Context: any.
 * Return: 0; -ENOMEM if less than @n is free; -EDQUOT if enough is free, but this
 * user may not have it.
 */
static inline int keel_quota_check(u64 limit, u64 count, u64 held, u64 n)
{
	if (count > limit || n > limit - count)
		return -ENOMEM;
	/* None of them is above the limit, which is below 2^62. */
	return held + n > limit - count - n ? -EDQUOT : 0;
}

#endif /* KEEL_QUOTA_H */
