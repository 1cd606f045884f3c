/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The memory of a short message: runs of bytes that the kernel's mapping has in one
 * piece. For messages of the fast path, which are at most 4 KiB long. The segment
 * walker (keel_copy.h) does the same for any memory and any length.
 */
#ifndef KEEL_RUNS_H
#define KEEL_RUNS_H

#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/sizes.h>

#include "keel_blocks.h"
#include "keel_copy.h"
#include "keel_keys.h"

/*
 * Maximum number of bytes that a key is looked up for. No page is smaller, nor is a page
 * of a fast registration.
 */
#define KEEL_RUNS_BYTES	SZ_4K
/* Maximum number of SGEs. */
#define KEEL_RUNS_SGES	4
/* One SGE may be longer than that, by a GRH: two keys, of two pages each. */
#define KEEL_RUNS_KEYS	(KEEL_RUNS_SGES + 1)
/* A datagram has its GRH in front. */
#define KEEL_RUNS_MAX	(2 * KEEL_RUNS_KEYS + 1)

/**
 * struct keel_run - bytes in one piece
 * @addr: kernel address of the first one
 * @len: their number
 */
struct keel_run {
	void *addr;
	u32 len;
};

/**
 * struct keel_runs - memory on one side of a message
 * @n: number of runs
 * @keys: number of keys that need a reference: on PREEMPT_RT
 * @run: the bytes, in the order of the message
 * @key: these keys, with a reference each, which keel_runs_put() drops
 */
struct keel_runs {
	u32 n;
	u32 keys;
	struct keel_run run[KEEL_RUNS_MAX];
	struct keel_key *key[KEEL_RUNS_KEYS];
};

/**
 * struct keel_runs_scope - the keys that a side of a message may name
 * @keys: the table
 * @domain: the domain they belong to
 * @qpn: rkeys: number of the QP that uses them; 0: lkeys, which name no window
 */
struct keel_runs_scope {
	struct keel_keys *keys;
	u32 domain;
	u32 qpn;
};

static __always_inline void keel_runs_init(struct keel_runs *runs)
{
	runs->n = 0;
	runs->keys = 0;
}

/**
 * keel_runs_add() - add bytes that the caller keeps
 * @runs: the list, which has room
 * @addr: kernel address
 * @len: bytes
 */
static __always_inline void keel_runs_add(struct keel_runs *runs, void *addr, u32 len)
{
	runs->run[runs->n++] = (struct keel_run){ .addr = addr, .len = len };
}

/**
 * keel_runs_put() - drop the references on the keys
 * @runs: the list; empty afterwards
 *
 * Context: any.
 */
static __always_inline void keel_runs_put(struct keel_runs *runs)
{
	while (runs->keys)
		keel_key_put(runs->key[--runs->keys]);
	runs->n = 0;
}

/* Keep the memory of a key, until keel_runs_put() and the end of the section. */
static __always_inline bool keel_runs_use(struct keel_runs *runs, struct keel_key *key)
{
	if (KEEL_KEY_SECTIONS)
		return keel_key_usable(key);
	if (!refcount_inc_not_zero(&key->users))
		return false;
	runs->key[runs->keys++] = key;
	return true;
}

/* Returns the kernel address of a byte, and how many bytes its page or block has there. */
static __always_inline void *keel_runs_page(const struct keel_mem *mem, u64 off,
					    u32 *left)
{
	u64 bytes;
	void *addr;
	u32 in;

	if (likely(mem->type == KEEL_MEM_PAGES)) {
		addr = keel_blocks_find(mem->blocks, mem->n, mem->first, off, &bytes);
		*left = bytes;
		return addr;
	}
	off += mem->first;
	in = off & (BIT_ULL(mem->shift) - 1);
	*left = min_t(u64, BIT_ULL(mem->shift) - in, KEEL_RUNS_BYTES);
	return (void *)*keel_mem_listed(mem, off) + in;
}

/**
 * keel_runs_add_key() - add the bytes that a key and an address name
 * @runs: the list; has room for two runs and a key
 * @scope: the keys that are allowed
 * @cache: last-lookup cache, under a lock that the caller holds
 * @number: the key, as userspace wrote it
 * @access: the rights that are needed
 * @addr: first byte, in the addresses of the key
 * @len: bytes, at least 1 and at most KEEL_RUNS_BYTES
 *
 * The caller calls keel_runs_put() in any case.
 *
 * Context: RCU read side, and a section of keel_keys_enter(), both until keel_runs_put().
 * Return: false if the key does not allow this, or its memory is not in pages that stay
 * in place: the slow path finds out.
 */
static __always_inline bool keel_runs_add_key(struct keel_runs *runs,
					      const struct keel_runs_scope *scope,
					      struct keel_key_cache *cache, u32 number,
					      u32 access, u64 addr, u32 len)
	__must_hold_shared(RCU)
{
	struct keel_key *key = keel_key_cached(scope->keys, cache, number);
	const struct keel_mem *mem;
	struct keel_run *run;
	u32 left;
	u64 off;

	if (!key || keel_key_check(key, scope->domain, access, addr, len) ||
	    !keel_runs_use(runs, key))
		return false;
	/* The section, or the reference on the key, keeps the memory and the object. */
	if (scope->qpn ? key->qpn && key->qpn != scope->qpn :
			 key->obj->kind == KEEL_MW)
		return false;
	mem = key->mem;
	if (mem->type != KEEL_MEM_PAGES && mem->type != KEEL_MEM_LIST)
		return false;
	off = key->mem_off + (addr - key->iova);
	run = &runs->run[runs->n++];
	run->addr = keel_runs_page(mem, off, &left);
	run->len = len;
	if (likely(len <= left))
		return true;
	/* The rest is in the next page or block. */
	run->len = left;
	run[1].addr = keel_runs_page(mem, off + left, &left);
	run[1].len = len - run->len;
	if (run[1].addr == run->addr + run->len)
		run->len = len;
	else
		runs->n++;
	return true;
}

#endif /* KEEL_RUNS_H */
