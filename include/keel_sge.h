/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Lookup of the keys that a work request names.
 */
#ifndef KEEL_SGE_H
#define KEEL_SGE_H

#include <rdma/ib_verbs.h>
#include <rdma/keel-abi.h>

#include "keel_copy.h"

struct keel_dev;

/**
 * struct keel_scope - which keys a work request may name
 * @kdev: the device
 * @domain: number of the domain that the keys must belong to
 * @qpn: the QP that windows of type 2 must be bound to
 * @ctx: user context of the QP, only compared; NULL: a kernel consumer
 * @kernel: kernel consumer: KEEL_LOCAL_DMA_LKEY is valid, for all memory
 */
struct keel_scope {
	struct keel_dev *kdev;
	u32 domain;
	u32 qpn;
	const struct ib_ucontext *ctx;
	bool kernel;
};

/* sge.c */
enum ib_wc_status keel_segs_local(const struct keel_scope *scope,
				  struct keel_segs *segs,
				  const struct keel_uapi_sge *sge, u32 n,
				  u64 len, u32 access, u32 *why);
int keel_segs_remote(const struct keel_scope *scope, struct keel_segs *segs,
		     u32 rkey, u32 access, u64 addr, u64 len, u32 *why);
int keel_flush_check(const struct keel_scope *scope,
		     const struct keel_uapi_send_wqe *wqe, u32 access,
		     u32 *why);

/* mw_bind.c */
enum ib_wc_status keel_wqe_bind(const struct keel_scope *scope,
				const struct keel_uapi_send_wqe *wqe, u32 *why);
enum ib_wc_status keel_wqe_invalidate(const struct keel_scope *scope, u32 rkey,
				      u32 *why);
struct keel_key *keel_invalidate(const struct keel_scope *scope, u32 rkey,
				 struct keel_obj **obj);
void keel_invalidate_wait(struct keel_key *key);

#endif /* KEEL_SGE_H */
