/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Keys: from an lkey or rkey to the memory it opens, and the checks in
 * between. A core unit: it knows objects, but no verbs.
 */
#ifndef KEEL_KEYS_H
#define KEEL_KEYS_H

#include <linux/rcupdate.h>
#include <linux/refcount.h>
#include <linux/siphash.h>
#include <linux/types.h>
#include <linux/xarray.h>

#include "keel_obj.h"

struct keel_mem;

/**
 * struct keel_keys - all keys of a device
 * @xa: by the upper 24 bits of the key
 * @next: where to look for a free index
 * @round: how often indexes went round
 * @secret: makes the lower 8 bits of keys
 */
struct keel_keys {
	struct xarray xa;
	u32 next;
	u8 round;
	siphash_key_t secret;
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

#endif /* KEEL_KEYS_H */
