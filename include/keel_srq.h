/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Shared receive queues.
 */
#ifndef KEEL_SRQ_H
#define KEEL_SRQ_H

#include <linux/list.h>
#include <rdma/ib_verbs.h>

#include "keel_events.h"
#include "keel_obj.h"
#include "keel_rq.h"

/* An SRQ number has as many bits as a QP number. */
#define KEEL_SRQN_MAX	0xffffff

struct keel_cq;
struct keel_dev;
struct keel_qp;
struct keel_xrcd;

/**
 * struct keel_srq - a shared receive queue
 * @obj: the object; holds the PD, and of an XRC SRQ the XRC domain and the CQ
 * @holds: of @obj
 * @ib: ib_core's structure, or NULL after destroy; under @rq.lock. In a handler it
 *	stays until keel_events_close() returns.
 * @events: IB_EVENT_SRQ_LIMIT_REACHED and IB_EVENT_SRQ_ERR; wakes @waiters
 * @wake: wakes @waiters if the process of @events may be stopped; with a reference
 * @rq: its queue
 * @srqn: its number
 * @limit: raise an event, once, if fewer receive WQEs than this are left; 0:
 *	none; under @rq.lock
 * @dead: the SRQ is in error: its producer index is invalid, or its CQ is in
 *	error; under @rq.lock
 * @domain: number of the domain that its lkeys belong to
 * @xrcd: XRC: the domain
 * @cq: XRC: CQ of its receive WQEs
 * @waiters: struct keel_from of requesters that wait for a receive WQE, the oldest first;
 *	under @rq.lock
 * @waits: counts the waits; under @rq.lock
 * @packets: XRC: struct keel_from of QPs with packets of another host for it, each with a
 *	reference; under @rq.lock. &keel_dev.serve executes them.
 */
struct keel_srq {
	struct keel_obj obj;
	struct keel_hold holds[3];
	struct ib_srq *ib __guarded_by(&rq.lock);
	struct keel_events events;
	struct work_struct wake;
	struct keel_rq rq;
	u32 srqn;
	u32 limit __guarded_by(&rq.lock);
	bool dead __guarded_by(&rq.lock);
	u32 domain;
	struct keel_xrcd *xrcd;
	struct keel_cq *cq;
	struct list_head waiters __guarded_by(&rq.lock);
	u64 waits __guarded_by(&rq.lock);
	struct list_head packets __guarded_by(&rq.lock);
};

struct keel_ib_srq {
	struct ib_srq ib;
	struct keel_srq *srq;
};

static inline struct keel_srq *to_ksrq(struct ib_srq *ib)
{
	return container_of(ib, struct keel_ib_srq, ib)->srq;
}

/* srq.c */
struct keel_srq *keel_srq_get(struct keel_dev *kdev, u32 srqn);
int keel_srq_take(struct keel_srq *srq, struct keel_recv *recv);
void keel_srq_fail(struct keel_srq *srq);

/* srq_wait.c */
void keel_srq_taken(struct keel_srq *srq)
	__must_hold(&srq->rq.lock);
void keel_srq_wake(struct keel_srq *srq);
bool keel_srq_want(struct keel_srq *srq);
void keel_srq_posted(struct keel_srq *srq);
void keel_srq_wake_later(struct keel_srq *srq);
void keel_srq_wake_now(struct keel_srq *srq);
void keel_srq_wake_work(struct work_struct *work);

#endif /* KEEL_SRQ_H */
