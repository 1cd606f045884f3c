// SPDX-License-Identifier: GPL-2.0
/*
 * From SGEs and rkeys to segments: every key that a work request names is
 * looked up here.
 */
#include "keel.h"
#include "keel_sge.h"

/* All of the kernel's memory, for consumers in the kernel. */
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
 * keel_segs_local() - segments of a list of SGEs
 * @scope: which keys it may name
 * @segs: the list to fill, empty on failure; keel_segs_put() it
 * @sge: a copy of what the program wrote
 * @n: how many, KEEL_MAX_SGE at most
 * @len: bytes that are used of them; what is behind is not looked at
 * @access: IB_ACCESS_LOCAL_WRITE or 0
 * @why: reason of a failure
 *
 * Context: any.
 * Return: IB_WC_SUCCESS, with less than @len if that is all there is; or
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

/* A window of type 2 is for the QP that bound it. */
static bool keel_key_is_others(const struct keel_key *key,
			       const struct keel_scope *scope)
{
	return key->qpn && key->qpn != scope->qpn;
}

/**
 * keel_segs_remote() - the segment behind an rkey
 * @scope: which keys it may be
 * @segs: the list to fill; keel_segs_put() it
 * @rkey: key
 * @access: rights it needs
 * @addr: first byte
 * @len: bytes; of none, no key is looked at
 * @why: reason of a failure
 *
 * Context: any.
 * Return: 0, or a negative errno for whatever is wrong with the key.
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
 * keel_flush_check() - may what is behind an rkey be flushed?
 * @scope: which keys it may be
 * @wqe: the flush
 * @access: rights it needs
 * @why: reason of a failure
 *
 * Of a flush of no bytes the key is looked at, too.
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
