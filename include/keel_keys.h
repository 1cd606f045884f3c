/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Keys: from an lkey or rkey to the memory it opens, and the checks in
 * between. A core unit: it knows objects, but no verbs.
 */
#ifndef KEEL_KEYS_H
#define KEEL_KEYS_H

#include <linux/siphash.h>
#include <linux/types.h>
#include <linux/xarray.h>

#include "keel_obj.h"

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
 *	only after indexes went round 256 times
 * @domain: number of the domain it belongs to
 * @access: enum ib_access_flags
 * @iova: the address that programs call the first byte
 * @length: bytes
 * @obj: the object behind it; whoever finds the key takes a reference on it
 */
struct keel_key {
	u32 key;
	u32 domain;
	u32 access;
	u64 iova;
	u64 length;
	struct keel_obj *obj;
};

void keel_keys_init(struct keel_keys *keys);
void keel_keys_fini(struct keel_keys *keys);
int keel_key_insert(struct keel_keys *keys, struct keel_key *key);
void keel_key_remove(struct keel_keys *keys, struct keel_key *key);
struct keel_key *keel_key_get(struct keel_keys *keys, u32 key, u32 domain,
			      u32 access, u64 addr, u64 len);

#endif /* KEEL_KEYS_H */
