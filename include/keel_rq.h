/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Receive queues, of a QP or of an SRQ.
 */
#ifndef KEEL_RQ_H
#define KEEL_RQ_H

#include <linux/spinlock.h>
#include <rdma/ib_verbs.h>
#include <rdma/keel-abi.h>

#include "compat.h"
#include "keel_ring.h"

/**
 * struct keel_recv - copy of a receive WQE that was taken from its queue
 * @wr_id: for the completion
 * @num_sge: number of SGEs, as userspace wrote it: not checked
 * @reserved: likewise
 * @sge: SGEs, as userspace wrote them; not set if @num_sge is too large
 */
struct keel_recv {
	u64 wr_id;
	u32 num_sge;
	u32 reserved;
	struct keel_uapi_sge sge[KEEL_MAX_SGE];
};

/**
 * struct keel_rq - a receive queue, of a QP or shared
 * @lock: protects @ring of an SRQ; &keel_resp.lock protects a QP's own queue
 * @ring: its ring
 * @max_sge: maximum number of SGEs in a WQE
 * @post_lock: kernel consumers: serializes posting
 * @wanted: a requester waits for a receive WQE: the next post wakes it
 */
struct keel_rq {
	spinlock_t lock;
	struct keel_ring ring;
	u32 max_sge;
	spinlock_t post_lock;
	bool wanted;
};

/* rq.c */
int keel_rq_take(struct keel_rq *rq, struct keel_recv *recv);
int keel_rq_take_locked(struct keel_rq *rq, struct keel_recv *recv)
	__must_hold(&rq->lock);
int keel_rq_post(struct keel_rq *rq, const struct ib_recv_wr *wr);
bool keel_rq_want(struct keel_rq *rq)
	__must_hold(&rq->lock);
bool keel_rq_was_wanted(struct keel_rq *rq);
void keel_rq_unwant(struct keel_rq *rq);

#endif /* KEEL_RQ_H */
