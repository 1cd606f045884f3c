/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Keys: from an lkey or rkey to the memory it opens, and the checks in
 * between. A core unit: it knows objects, but no verbs.
 */
#ifndef KEEL_KEYS_H
#define KEEL_KEYS_H

#include <linux/atomic.h>
#include <linux/errno.h>
#include <linux/rcupdate.h>
#include <linux/refcount.h>
#include <linux/siphash.h>
#include <linux/types.h>
#include <linux/xarray.h>

#include "keel_obj.h"

struct keel_mem;

#define KEEL_KEY_INDEX_SHIFT	8

/**
 * struct keel_keys - all keys of a device
 * @xa: by the upper 24 bits of the key
 * @next: where to look for a free index
 * @round: how often indexes went round
 * @secret: makes the lower 8 bits of keys
 * @retired: how many keys were taken back: who remembers one looks here
 */
struct keel_keys {
	struct xarray xa;
	u32 next;
	u8 round;
	siphash_key_t secret;
	atomic64_t retired;
};

/**
 * struct keel_key - what a key opens
 * @key: lkey and rkey; its lower 8 bits change from use to use of an index,
 *	so that a key that was given back does not soon open something else:
 *	only after indexes went round 256 times. Those of a window's key and of
 *	a fast-registration key are the owner's to choose.
 * @domain: number of the domain it belongs to
 * @access: enum ib_access_flags
 * @qpn: only this QP may use it (windows of type 2); 0: any
 * @iova: the address that programs call the first byte
 * @length: bytes
 * @mem: the memory behind it; valid as long as there are users. NULL for a key
 *	that opens nothing (yet): it has no right and no byte.
 * @mem_off: where in @mem the first byte is
 * @obj: the object behind it
 * @users: one until keel_key_remove(), one for each keel_key_get(). When
 *	keel_key_remove() returns, nobody uses the memory any more.
 * @dead: it was taken back: those who still use it hurry up
 * @rcu: for whoever frees it; a lookup may still read it
 */
struct keel_key {
	u32 key;
	u32 domain;
	u32 access;
	u32 qpn;
	u64 iova;
	u64 length;
	const struct keel_mem *mem;
	u64 mem_off;
	struct keel_obj *obj;
	refcount_t users;
	bool dead;
	struct rcu_head rcu;
};

/**
 * struct keel_key_memo - the key that was looked up last
 * @key: the key, to be looked at only while @retired is what it was; or NULL
 * @retired: &keel_keys.retired, read before the lookup
 */
struct keel_key_memo {
	struct keel_key *key;
	s64 retired;
};

void keel_keys_init(struct keel_keys *keys);
void keel_keys_fini(struct keel_keys *keys);
int keel_key_insert(struct keel_keys *keys, struct keel_key *key);
void keel_key_replace(struct keel_keys *keys, struct keel_key *old,
		      struct keel_key *new);
void keel_key_remove(struct keel_keys *keys, struct keel_key *key);
struct keel_key *keel_key_get(struct keel_keys *keys, u32 key, u32 domain,
			      u32 access, u64 addr, u64 len);
struct keel_key *keel_key_find(struct keel_keys *keys, u32 key, u32 domain);
void keel_key_swap(struct keel_keys *keys, struct keel_key __rcu **slot,
		   struct keel_key *new);
void keel_key_put(struct keel_key *key);

/**
 * keel_key_check() - may a key be used so?
 * @k: the key, kept by RCU or a use of it
 * @domain: domain of the queue pair that wants it
 * @access: rights it needs, enum ib_access_flags
 * @addr: first byte, in the addresses of the key
 * @len: bytes
 *
 * Context: any.
 * Return: 0, or as keel_key_get(): -EPERM, -EACCES, -ERANGE.
 */
static inline int keel_key_check(const struct keel_key *k, u32 domain,
				 u32 access, u64 addr, u64 len)
{
	u64 off = addr - k->iova;

	if (k->domain != domain)
		return -EPERM;
	if (access & ~k->access)
		return -EACCES;
	/* Below iova, off is huge: one comparison refuses both sides. */
	if (off > k->length || len > k->length - off)
		return -ERANGE;
	return 0;
}

/**
 * keel_key_recall() - a key that may be the one of last time
 * @keys: the table
 * @memo: what was looked up last, by whoever has the lock that protects it
 * @key: what the program gave
 *
 * A key that is taken back leaves the table, then it is counted, and then its
 * grace period begins. A reader that observes the new count can no longer find the
 * key. A reader that observed the old one is in an RCU read-side section that the
 * grace period waits for.
 *
 * Context: RCU read side, and so is what the caller does with the key before it
 * has a use of it.
 * Return: the key, without a use of it; or NULL.
 */
static __always_inline struct keel_key *
keel_key_recall(struct keel_keys *keys, struct keel_key_memo *memo, u32 key)
{
	/* Pairs with the barrier in keel_key_retire(). */
	s64 retired = atomic64_read_acquire(&keys->retired);
	struct keel_key *k = memo->key;

	if (k && memo->retired == retired && k->key == key)
		return k;
	k = xa_load(&keys->xa, key >> KEEL_KEY_INDEX_SHIFT);
	if (!k || k->key != key)
		return NULL;
	memo->key = k;
	memo->retired = retired;
	return k;
}

#endif /* KEEL_KEYS_H */
