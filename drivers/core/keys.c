// SPDX-License-Identifier: GPL-2.0
/*
 * Table of lkeys and rkeys. Lookups take no lock.
 */
#include <linux/err.h>
#include <linux/random.h>
#include <linux/wait_bit.h>
#include <kunit/visibility.h>

#include "keel_keys.h"

#define KEEL_KEY_INDEX_MAX	(U32_MAX >> KEEL_KEY_INDEX_SHIFT)

/**
 * keel_keys_init() - an empty table
 * @keys: the table
 */
void keel_keys_init(struct keel_keys *keys)
{
	xa_init_flags(&keys->xa, XA_FLAGS_ALLOC1 | XA_FLAGS_ACCOUNT);
	keys->next = 1;
	keys->round = 0;
	get_random_bytes(&keys->secret, sizeof(keys->secret));
	atomic64_set(&keys->retired, 0);
}
EXPORT_SYMBOL_IF_KUNIT(keel_keys_init);

/**
 * keel_keys_fini() - take an empty table down
 * @keys: the table
 */
void keel_keys_fini(struct keel_keys *keys)
{
	WARN_ON(!xa_empty(&keys->xa));
	xa_destroy(&keys->xa);
}
EXPORT_SYMBOL_IF_KUNIT(keel_keys_fini);

/*
 * The lower 8 bits of a key. One index has a start and a step that only the
 * secret tells, and an odd step comes back to the same value after 256 rounds.
 */
static u8 keel_key_salt(const struct keel_keys *keys, u32 index)
{
	u64 hash = siphash_1u32(index, &keys->secret);
	u8 step = (u8)(hash >> 8) | 1;

	return (u8)hash + step * keys->round;
}

/* The slot of its index is there: this cannot need memory. */
static void keel_key_publish(struct keel_keys *keys, struct keel_key *key)
{
	key->dead = false;
	refcount_set(&key->users, 1);
	xa_store(&keys->xa, key->key >> KEEL_KEY_INDEX_SHIFT, key, GFP_KERNEL);
}

/**
 * keel_key_insert() - issue a key
 * @keys: the table
 * @key: complete but for @key->key, which is set; must stay valid for an RCU
 *	grace period after keel_key_remove()
 *
 * The key works from here on. Indexes go round before one is used again, and
 * it then has other lower 8 bits: a stale key opens nothing, and the next one
 * is not worth guessing. Key 0 is never given out.
 *
 * Context: may sleep.
 * Return: 0, or -ENOMEM.
 */
int keel_key_insert(struct keel_keys *keys, struct keel_key *key)
{
	u32 index;
	int ret;

	xa_lock(&keys->xa);
	ret = __xa_alloc_cyclic(&keys->xa, &index, NULL,
				XA_LIMIT(1, KEEL_KEY_INDEX_MAX), &keys->next,
				GFP_KERNEL);
	/* 1 says that this one started from the lowest index again. */
	if (ret > 0)
		keys->round++;
	if (ret >= 0)
		key->key = index << KEEL_KEY_INDEX_SHIFT |
			   keel_key_salt(keys, index);
	xa_unlock(&keys->xa);
	if (ret < 0)
		return -ENOMEM;
	keel_key_publish(keys, key);
	return 0;
}
EXPORT_SYMBOL_IF_KUNIT(keel_key_insert);

/* Nobody finds @key any more: wait for those who did. */
static void keel_key_retire(struct keel_keys *keys, struct keel_key *key)
{
	/* A reader that sees the count finds the key no more: keel_key_recall(). */
	smp_mb__before_atomic();
	atomic64_inc(&keys->retired);
	WRITE_ONCE(key->dead, true);
	keel_key_put(key);
	wait_var_event(&key->users, !refcount_read(&key->users));
	/* The accesses of its users come before what its owner does now. */
	smp_acquire__after_ctrl_dep();
}

/**
 * keel_key_replace() - let a key open something else
 * @keys: the table
 * @old: the key until now
 * @new: the key from now on, complete; its number differs from that of @old in
 *	the lower 8 bits at most
 *
 * A lookup at that moment finds either, or none. Afterwards nobody uses @old any
 * more; it is the caller's, to free after an RCU grace period.
 *
 * Context: may sleep. Waits for the users of @old, so the caller must not be
 * one, nor have a lock that one of them may want.
 */
void keel_key_replace(struct keel_keys *keys, struct keel_key *old,
		      struct keel_key *new)
{
	WARN_ON((old->key ^ new->key) >> KEEL_KEY_INDEX_SHIFT);
	keel_key_publish(keys, new);
	keel_key_retire(keys, old);
}
EXPORT_SYMBOL_IF_KUNIT(keel_key_replace);

/**
 * keel_key_swap() - keel_key_replace() for keys that are on their own
 * @keys: the table
 * @slot: where the owner has the key until now, and gets the new one; others
 *	may look there under RCU. The caller is the only one who changes it.
 * @new: as keel_key_replace(); allocated with kmalloc(), as is the old one
 *
 * Context: as keel_key_replace().
 */
void keel_key_swap(struct keel_keys *keys, struct keel_key __rcu **slot,
		   struct keel_key *new)
{
	struct keel_key *old = rcu_replace_pointer(*slot, new, true);

	keel_key_replace(keys, old, new);
	kfree_rcu(old, rcu);
}
EXPORT_SYMBOL_IF_KUNIT(keel_key_swap);

/**
 * keel_key_remove() - take a key back
 * @keys: the table
 * @key: the key
 *
 * Afterwards nobody uses it any more; it is the caller's, to free after an RCU
 * grace period.
 *
 * Context: may sleep. Waits for the users of @key, so the caller must not be
 * one, nor have a lock that one of them may want.
 */
void keel_key_remove(struct keel_keys *keys, struct keel_key *key)
{
	xa_erase(&keys->xa, key->key >> KEEL_KEY_INDEX_SHIFT);
	keel_key_retire(keys, key);
}
EXPORT_SYMBOL_IF_KUNIT(keel_key_remove);

/**
 * keel_key_get() - the memory behind a key, if it may be used so
 * @keys: the table
 * @key: what the program gave
 * @domain: domain of the queue pair that wants it
 * @access: rights it needs, enum ib_access_flags
 * @addr: first byte, in the addresses of the key
 * @len: bytes
 *
 * &keel_key.qpn is for the caller to look at.
 *
 * Context: any.
 * Return: the key, with a use of it that the caller gives back with
 * keel_key_put(), soon: dereg waits for it; or ERR_PTR(): -ENOENT for a key
 * that is none (any more), -EPERM for one of another domain, -EACCES for want
 * of a right, -ERANGE for a range that leaves the memory.
 */
struct keel_key *keel_key_get(struct keel_keys *keys, u32 key, u32 domain,
			      u32 access, u64 addr, u64 len)
{
	struct keel_key *k;
	int ret;

	guard(rcu)();
	k = xa_load(&keys->xa, key >> KEEL_KEY_INDEX_SHIFT);
	if (!k || k->key != key)
		return ERR_PTR(-ENOENT);
	ret = keel_key_check(k, domain, access, addr, len);
	if (ret)
		return ERR_PTR(ret);
	/* RCU keeps k until here; what is behind it, only a use does. */
	if (!refcount_inc_not_zero(&k->users))
		return ERR_PTR(-ENOENT);
	return k;
}
EXPORT_SYMBOL_IF_KUNIT(keel_key_get);

/**
 * keel_key_find() - the object behind a key
 * @keys: the table
 * @key: what the program gave
 * @domain: domain of the queue pair that wants it
 *
 * As keel_key_get(), for those who do not want bytes: no right is asked for,
 * and the key may open nothing at all.
 *
 * Context: any.
 * Return: as keel_key_get(): -ENOENT and -EPERM.
 */
struct keel_key *keel_key_find(struct keel_keys *keys, u32 key, u32 domain)
{
	struct keel_key *k;

	guard(rcu)();
	k = xa_load(&keys->xa, key >> KEEL_KEY_INDEX_SHIFT);
	if (!k || k->key != key)
		return ERR_PTR(-ENOENT);
	if (k->domain != domain)
		return ERR_PTR(-EPERM);
	if (!refcount_inc_not_zero(&k->users))
		return ERR_PTR(-ENOENT);
	return k;
}
EXPORT_SYMBOL_IF_KUNIT(keel_key_find);

/**
 * keel_key_put() - end a use of a key
 * @key: the key; may be gone afterwards
 *
 * Context: any.
 */
void keel_key_put(struct keel_key *key)
{
	if (!refcount_dec_and_test(&key->users))
		return;
	/*
	 * From here on the key may be gone: only its address counts. The
	 * barrier is for whoever begins to wait now: it sees that there are no
	 * users, or we see it.
	 */
	smp_mb();
	wake_up_var(&key->users);
}
EXPORT_SYMBOL_IF_KUNIT(keel_key_put);
