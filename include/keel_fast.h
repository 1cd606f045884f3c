/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The fast path: whole messages of the common shapes. See fast_path.c.
 */
#ifndef KEEL_FAST_H
#define KEEL_FAST_H

#include "keel_qp.h"

/**
 * enum keel_fast - the result of a run of the fast path
 * @KEEL_FAST_DONE: the send queue is empty, and no thread has rescheduled it
 * @KEEL_FAST_MORE: WQEs are left: call again after a chance to reschedule
 * @KEEL_FAST_LATER: the budget is used up, and WQEs are left
 * @KEEL_FAST_SLOW: there may be work for the slow path, keel_qp_run()
 */
enum keel_fast {
	KEEL_FAST_DONE,
	KEEL_FAST_MORE,
	KEEL_FAST_LATER,
	KEEL_FAST_SLOW,
};

/* The budget is not set yet. */
#define KEEL_FAST_FIRST		U32_MAX

/* Types of QPs that have a send queue which the fast path supports. */
#define KEEL_FAST_TYPES		(BIT(IB_QPT_RC) | BIT(IB_QPT_UC) |		\
				 BIT(IB_QPT_XRC_INI) | BIT(IB_QPT_UD))

/**
 * struct keel_fast_msg - a message that is being delivered
 * @qp: the requester
 * @op: its operation
 * @peer: the responder
 * @srq: the SRQ of the responder, or the one that the message names (XRC); or NULL
 * @cq: gets the responder's CQE
 * @av: UD: the address; else NULL
 * @qkey: UD: its Q_Key
 * @domain: number of the domain of the responder's rkeys
 * @len: bytes
 * @ring: the responder's receive queue, whose first WQE @recv is; NULL: the WQE was
 *	taken, and is &keel_resp.recv
 * @recv: the SGEs of the receive WQE
 * @recv_sges: their number
 * @recv_id: wr_id of the receive WQE
 */
struct keel_fast_msg {
	struct keel_qp *qp;
	const struct keel_opcode *op;
	struct keel_qp *peer;
	struct keel_srq *srq;
	struct keel_cq *cq;
	const struct keel_av *av;
	u32 qkey;
	u32 domain;
	u32 len;
	struct keel_ring *ring;
	const struct keel_uapi_sge *recv;
	u32 recv_sges;
	u64 recv_id;
};

/* fast_path.c */
enum keel_fast keel_fast_run(struct keel_qp *qp, u32 *budget) __must_hold_shared(RCU);
bool keel_fast_one(struct keel_qp *qp) __must_hold(&qp->sq.from.lock);

/* fast_msg.c */
bool keel_fast_deliver(struct keel_fast_msg *m)
	__must_hold_shared(RCU) __must_hold(&m->qp->sq.from.lock);

#endif /* KEEL_FAST_H */
