/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Keys: lookup of the memory behind an lkey or rkey, with its checks. A core unit:
 * it depends on objects, but on no verb.
 */
#ifndef KEEL_KEYS_H
#define KEEL_KEYS_H

#include <linux/atomic.h>
#include <linux/errno.h>
#include <linux/rcupdate.h>
#include <linux/refcount.h>
#include <linux/siphash.h>
#include <linux/types.h>

#include "compat.h"
#include "keel_numbers.h"
#include "keel_obj.h"

struct keel_mem;

#define KEEL_KEY_INDEX_SHIFT	8

/**
 * struct keel_keys - all keys of a device
 * @numbers: by index, the upper 24 bits of the key
 * @secret: generates the lower 8 bits of keys
 * @invalidated: number of keys that were invalidated; validates last-lookup caches
 */
struct keel_keys {
	struct keel_numbers numbers;
	siphash_key_t secret;
	atomic64_t invalidated;
};

/**
 * struct keel_drain - the keys that open some memory
 * @keys: number of keys that are valid, or that threads still use
 */
struct keel_drain {
	atomic_t keys;
};

/**
 * struct keel_key - the memory and rights of a key
 * @key: lkey and rkey. Each time an index is reused, the lower 8 bits change. So a
 *	stale key opens nothing until the indexes have wrapped around 256 times.
 *	The owner of a window or of a fast registration chooses these bits itself.
 * @domain: number of the domain it belongs to
 * @access: enum ib_access_flags
 * @qpn: only this QP may use it (windows of type 2); 0: any
 * @iova: address of the first byte, as work requests name it
 * @length: bytes
 * @mem: the memory behind it; valid as long as there are references. NULL for a
 *	null key: it has no rights and no bytes.
 * @mem_off: offset of the first byte in @mem
 * @obj: the object behind it
 * @drain: counts the key, or NULL for a null key. The owner of the object waits for
 *	it with keel_drain_wait() before it frees the object.
 * @region: the same for the region that a window is bound to, or NULL
 * @users: references: one for each keel_key_get(), and one until keel_key_erase()
 *	or keel_key_exchange(). When keel_key_drain() returns, no thread uses the
 *	memory by this key any more.
 * @dead: it was invalidated: threads with a reference stop soon, and no section begins
 *	to use it
 * @rcu: to free it; a lookup may still read it
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
	struct keel_drain *drain;
	struct keel_drain *region;
	refcount_t users;
	bool dead;
	struct rcu_head rcu;
};

/**
 * struct keel_key_cache - last-lookup cache of a key
 * @key: the key, or NULL; valid only while &keel_keys.invalidated equals @invalidated
 * @invalidated: &keel_keys.invalidated, read before the lookup
 */
struct keel_key_cache {
	struct keel_key *key;
	s64 invalidated;
};

/*
 * Whether threads can use keys in a section: they are not preempted there. On
 * PREEMPT_RT they need references.
 */
#define KEEL_KEY_SECTIONS	(!IS_ENABLED(CONFIG_PREEMPT_RT))

void keel_keys_init(struct keel_keys *keys);
void keel_keys_fini(struct keel_keys *keys);
void keel_keys_enter(void);
void keel_keys_leave(void);
void keel_keys_settle(void);
int keel_key_insert(struct keel_keys *keys, struct keel_key *key);
void keel_key_exchange(struct keel_keys *keys, struct keel_key *old,
		       struct keel_key *new);
void keel_key_erase(struct keel_keys *keys, struct keel_key *key);
bool keel_key_try_drain(const struct keel_key *key);
void keel_key_drain(struct keel_key *key);
void keel_drain_wait(struct keel_drain *drain);
void keel_key_replace(struct keel_keys *keys, struct keel_key *old,
		      struct keel_key *new);
void keel_key_remove(struct keel_keys *keys, struct keel_key *key);
struct keel_key *keel_key_get(struct keel_keys *keys, u32 key, u32 domain,
			      u32 access, u64 addr, u64 len);
struct keel_key *keel_key_peek(struct keel_keys *keys, u32 key, u32 domain)
	__must_hold_shared(RCU);
struct keel_key *keel_key_find(struct keel_keys *keys, u32 key, u32 domain);
void keel_key_swap(struct keel_keys *keys, struct keel_key __rcu **slot,
		   struct keel_key *new);
void keel_key_put(struct keel_key *key);

/**
 * keel_key_check() - check the rights and the range of a key
 * @k: the key, kept by RCU or a reference
 * @domain: domain of the queue pair that uses it
 * @access: the rights that are needed, enum ib_access_flags
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
	/* Below iova, off is huge: one comparison covers both ends. */
	if (off > k->length || len > k->length - off)
		return -ERANGE;
	return 0;
}

/**
 * keel_key_load() - look up a key without any check
 * @keys: the table
 * @key: the key, as userspace wrote it
 *
 * Context: RCU read side, which keeps the key.
 * Return: the key, without a reference; or NULL.
 */
static __always_inline struct keel_key *keel_key_load(struct keel_keys *keys,
						      u32 key)
	__must_hold_shared(RCU)
{
	struct keel_key *k = keel_number_load(&keys->numbers,
					      key >> KEEL_KEY_INDEX_SHIFT);

	return k && k->key == key ? k : NULL;
}

/**
 * keel_key_cached() - look up a key, first in a last-lookup cache
 * @keys: the table
 * @cache: the cache; the caller holds the lock that protects it
 * @key: the key, as userspace wrote it
 *
 * To invalidate a key, keel removes it from the table and increments the count. Its
 * grace period begins then. A reader that observes the new count can no longer
 * find the key. A reader that observed the old one is in an RCU read-side section
 * that the grace period waits for.
 *
 * Context: RCU read side. The caller stays in it until it has taken a reference, or
 * does not use the key any more.
 * Return: the key, without a reference; or NULL.
 */
static __always_inline struct keel_key *
keel_key_cached(struct keel_keys *keys, struct keel_key_cache *cache, u32 key)
	__must_hold_shared(RCU)
{
	/* Pairs with the barrier in keel_key_invalidate(). */
	s64 invalidated = atomic64_read_acquire(&keys->invalidated);
	struct keel_key *k = cache->key;

	if (k && cache->invalidated == invalidated && k->key == key)
		return k;
	k = keel_key_load(keys, key);
	if (!k)
		return NULL;
	cache->key = k;
	cache->invalidated = invalidated;
	return k;
}

/**
 * keel_key_usable() - may the thread use the memory of a key in its section?
 * @key: a key that was looked up in the section, under RCU
 *
 * Context: in a section.
 * Return: false if the key was invalidated.
 */
static __always_inline bool keel_key_usable(const struct keel_key *key)
{
	return !READ_ONCE(key->dead);
}

#endif /* KEEL_KEYS_H */
