/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Completion queues.
 */
#ifndef KEEL_CQ_H
#define KEEL_CQ_H

#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <rdma/ib_verbs.h>

#include "keel_events.h"
#include "keel_obj.h"
#include "keel_ring.h"

struct keel_qp;

/**
 * struct keel_cq - a completion queue
 * @obj: the object
 * @ib: ib_core's structure, or NULL after destroy; under @lock. In a handler it
 *	stays until keel_events_close() returns.
 * @events: KEEL_EVENT_CQE, and IB_EVENT_CQ_ERR
 * @lock: protects @dead and the producer side of @ring
 * @ring: its ring
 * @flags: KEEL_CQ_TS, KEEL_CQ_WALL
 * @dead: the CQ is in error: it overran, or its consumer index is invalid. No CQE
 *	is added any more.
 * @poll_lock: kernel CQs: serializes polling
 * @clean_lock: kernel CQs: serializes keel_cq_clean(); taken before @poll_lock
 */
struct keel_cq {
	struct keel_obj obj;
	struct ib_cq *ib __guarded_by(&lock);
	struct keel_events events;
	spinlock_t lock;
	struct keel_ring ring __guarded_by(&lock);
	u32 flags;
	bool dead __guarded_by(&lock);
	spinlock_t poll_lock;
	struct mutex clean_lock;
};

/* The completion event; no enum ib_event_type. */
#define KEEL_EVENT_CQE	(-2)

#define KEEL_CQ_TS	BIT(0)
#define KEEL_CQ_WALL	BIT(1)

struct keel_ib_cq {
	struct ib_cq ib;
	struct keel_cq *cq;
};

static inline struct keel_cq *to_kcq(struct ib_cq *ib)
{
	return container_of(ib, struct keel_ib_cq, ib)->cq;
}

/* cq.c */
int keel_cq_add(struct keel_cq *cq, struct keel_uapi_cqe *cqe, bool solicited,
		bool own);
bool keel_cq_received(struct keel_cq *cq, struct keel_uapi_cqe *cqe,
		      struct keel_ring *rq, bool solicited);

/* cq_kernel.c */
int keel_poll_cq(struct ib_cq *ibcq, int n, struct ib_wc *wc);
void keel_qp_clean_cqs(const struct keel_qp *qp);
int keel_req_notify_cq(struct ib_cq *ibcq, enum ib_cq_notify_flags flags);

#endif /* KEEL_CQ_H */
