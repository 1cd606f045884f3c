// SPDX-License-Identifier: GPL-2.0
/*
 * SGEs and rkeys to segments: looks up every key that a work request names.
 */
#include "keel.h"
#include "keel_sge.h"

/* All kernel memory, for kernel consumers. */
static const struct keel_mem keel_kernel_mem = {
	.type = KEEL_MEM_KERNEL,
};

static u32 keel_key_why(int err)
{
	switch (err) {
	case -EPERM:
		return KEEL_WHY_DOMAIN;
	case -EACCES:
		return KEEL_WHY_ACCESS;
	case -ERANGE:
		return KEEL_WHY_RANGE;
	default:
		return KEEL_WHY_KEY;
	}
}

static void keel_segs_add(struct keel_segs *segs, const struct keel_mem *mem,
			  struct keel_key *key, u64 off, u32 len)
{
	segs->seg[segs->n++] = (struct keel_seg){
		.mem = mem, .key = key, .off = off, .len = len,
	};
	segs->len += len;
}

static int keel_segs_add_key(const struct keel_scope *scope,
			     struct keel_segs *segs,
			     const struct keel_uapi_sge *sge, u32 access)
{
	struct keel_key *key = keel_key_get(&scope->kdev->keys, sge->lkey,
					    scope->domain, access, sge->addr,
					    sge->length);

	if (IS_ERR(key))
		return PTR_ERR(key);
	/* A window has an rkey only. */
	if (key->obj->kind == KEEL_MW) {
		keel_key_put(key);
		return -ENOENT;
	}
	keel_segs_add(segs, key->mem, key,
		      key->mem_off + (sge->addr - key->iova), sge->length);
	return 0;
}

/**
 * keel_segs_local() - get the segments of a list of SGEs
 * @scope: the keys that the SGEs may name
 * @segs: gets the segments, none on failure; the caller calls keel_segs_put()
 * @sge: a copy of the SGEs that userspace wrote
 * @n: number of SGEs, at most KEEL_MAX_SGE
 * @len: bytes to use of them; SGEs behind them are not checked
 * @access: IB_ACCESS_LOCAL_WRITE or 0
 * @why: gets the vendor error
 *
 * Context: any.
 * Return: IB_WC_SUCCESS, with fewer bytes if the SGEs have less than @len; or
 * IB_WC_LOC_PROT_ERR.
 */
enum ib_wc_status keel_segs_local(const struct keel_scope *scope,
				  struct keel_segs *segs,
				  const struct keel_uapi_sge *sge, u32 n,
				  u64 len, u32 access, u32 *why)
{
	struct keel_uapi_sge one;
	u32 i;
	int ret;

	segs->n = 0;
	segs->len = 0;
	for (i = 0; i < n && segs->len < len; i++) {
		one = sge[i];
		one.length = min_t(u64, one.length, len - segs->len);
		if (!one.length)
			continue;
		if (scope->kernel && one.lkey == KEEL_LOCAL_DMA_LKEY) {
			keel_segs_add(segs, &keel_kernel_mem, NULL,
				      one.addr, one.length);
			continue;
		}
		ret = keel_segs_add_key(scope, segs, &one, access);
		if (ret) {
			*why = keel_key_why(ret);
			keel_segs_put(segs);
			return IB_WC_LOC_PROT_ERR;
		}
	}
	return IB_WC_SUCCESS;
}

/* Only the QP that bound a window of type 2 may use it. */
static bool keel_key_is_others(const struct keel_key *key,
			       const struct keel_scope *scope)
{
	return key->qpn && key->qpn != scope->qpn;
}

/**
 * keel_segs_remote() - get the segment of an rkey
 * @scope: the keys that may be used
 * @segs: gets the segment; the caller calls keel_segs_put()
 * @rkey: the key
 * @access: the rights that are needed
 * @addr: first byte
 * @len: bytes; if 0, the key is not checked
 * @why: gets the vendor error
 *
 * Context: any.
 * Return: 0, or a negative errno that tells what is wrong with the key.
 */
int keel_segs_remote(const struct keel_scope *scope, struct keel_segs *segs,
		     u32 rkey, u32 access, u64 addr, u64 len, u32 *why)
{
	struct keel_key *key;

	segs->n = 0;
	segs->len = 0;
	if (!len)
		return 0;
	key = keel_key_get(&scope->kdev->keys, rkey, scope->domain, access,
			   addr, len);
	if (IS_ERR(key)) {
		*why = keel_key_why(PTR_ERR(key));
		return PTR_ERR(key);
	}
	if (keel_key_is_others(key, scope)) {
		keel_key_put(key);
		*why = KEEL_WHY_WINDOW;
		return -EACCES;
	}
	keel_segs_add(segs, key->mem, key, key->mem_off + (addr - key->iova),
		      len);
	return 0;
}

/**
 * keel_flush_check() - check that a flush may use its rkey
 * @scope: the keys that may be used
 * @wqe: the WQE of the FLUSH
 * @access: the rights that are needed
 * @why: gets the vendor error
 *
 * The key is checked even for a flush of 0 bytes.
 *
 * Context: any.
 * Return: as keel_segs_remote().
 */
int keel_flush_check(const struct keel_scope *scope,
		     const struct keel_uapi_send_wqe *wqe, u32 access, u32 *why)
{
	struct keel_keys *keys = &scope->kdev->keys;
	struct keel_key *key;
	int ret = 0;

	if (wqe->flush.level == IB_FLUSH_MR)
		key = keel_key_find(keys, wqe->flush.rkey, scope->domain);
	else
		key = keel_key_get(keys, wqe->flush.rkey, scope->domain, access,
				   wqe->flush.remote_addr, wqe->flush.length);
	if (IS_ERR(key)) {
		*why = keel_key_why(PTR_ERR(key));
		return PTR_ERR(key);
	}
	if (keel_key_is_others(key, scope)) {
		*why = KEEL_WHY_WINDOW;
		ret = -EACCES;
	} else if (access & ~key->access) {
		*why = KEEL_WHY_ACCESS;
		ret = -EACCES;
	}
	keel_key_put(key);
	return ret;
}
