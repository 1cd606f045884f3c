// SPDX-License-Identifier: GPL-2.0
/*
 * The end of a send WQE, on the fast path and on the slow path: its CQE, and the next
 * one; and an error that stops the queue.
 */
#include <kunit/visibility.h>

#include "keel_opcode.h"
#include "keel_point.h"
#include "keel_qp.h"

static void keel_sq_report(struct keel_qp *qp, enum ib_wc_status status,
			   u32 why, u32 byte_len)
	__must_hold(&qp->sq.from.lock)
{
	const struct keel_uapi_send_wqe *wqe = &qp->sq.wqe;
	const struct keel_opcode *op = keel_opcode_find(wqe->opcode);
	/* All members are set, as in keel_recv_cqe(). */
	struct keel_uapi_cqe cqe = {
		.wr_id = wqe->wr_id,
		.ts = 0,
		.wall = 0,
		.byte_len = byte_len,
		.imm = 0,
		.qp_num = qp->qpn,
		.src_qp = 0,
		.vendor_err = why,
		.pkey_index = 0,
		.slid = 0,
		.status = status,
		.opcode = op ? op->wc : 0,
		.flags = 0,
		.sl = 0,
		.reserved = { 0, 0, 0 },
	};

	if (keel_cq_add(qp->send_cq, &cqe, false, true) &&
	    !keel_qp_fail(qp, IB_QPS_ERR, IB_EVENT_QP_FATAL) &&
	    qp->sq.reporting)
		/* The QP failed without an event, and its CQE is lost. */
		keel_qp_event(qp, IB_EVENT_QP_FATAL);
}

/**
 * keel_sq_discard() - drop the progress of the first WQE
 * @sq: the send queue, whose WQE ends, or which has drained, or is reset or
 *	destroyed
 *
 * Context: process context; the lock of the queue is held.
 */
void keel_sq_discard(struct keel_sq *sq)
{
	keel_fetch_discard(&sq->from.fetch);
	sq->from.stage = KEEL_STAGE_NEW;
	sq->rnr_until = 0;
	sq->waited_until = 0;
}
EXPORT_SYMBOL_IF_KUNIT(keel_sq_discard);

/**
 * keel_sq_complete() - complete the first WQE
 * @qp: the QP; &keel_sq.wqe has the WQE's wr_id, opcode and flags
 * @status: status of the completion
 * @why: vendor error
 * @byte_len: bytes that were read
 *
 * Context: process context; the send queue's lock is held.
 */
void keel_sq_complete(struct keel_qp *qp, enum ib_wc_status status, u32 why,
		      u32 byte_len)
{
	lockdep_assert_held(&qp->sq.from.lock);
	/* However the WQE ended: nothing waits for its memory any more. */
	keel_sq_discard(&qp->sq);
	keel_ring_advance(&qp->sq.ring);
	if (qp->sq.wait != KEEL_WAIT_NONE) {
		keel_srq_wait_end(&qp->sq.from);
		hrtimer_try_to_cancel(&qp->sq.timer);
		WRITE_ONCE(qp->sq.wait, KEEL_WAIT_NONE);
	}
	if (status != IB_WC_SUCCESS || qp->sig_all ||
	    qp->sq.wqe.flags & IB_SEND_SIGNALED)
		keel_sq_report(qp, status, why, byte_len);
}

/**
 * keel_sq_error() - complete the first WQE with an error, which stops the queue
 * @qp: the QP, as for keel_sq_complete()
 * @status: status of the completion, not IB_WC_SUCCESS
 * @why: vendor error
 * @byte_len: bytes that were read
 *
 * UC and UD move to SQE, and so does GSI, which is UD; the other types move to the
 * error state. The state changes before the owner sees the CQE, because the owner may
 * restart the QP at once. The CQE of the error comes before the receive WQEs are
 * flushed.
 *
 * Context: as keel_sq_complete().
 */
void keel_sq_error(struct keel_qp *qp, enum ib_wc_status status, u32 why,
		   u32 byte_len)
{
	bool stops = qp->type == IB_QPT_UC || keel_qp_is_dgram(qp);

	keel_count(qp->kdev, wc_errors, 1);
	keel_qp_report(qp);
	keel_qp_fail(qp, stops ? IB_QPS_SQE : IB_QPS_ERR, KEEL_EVENT_NONE);
	keel_point("sq_failed");
	keel_sq_complete(qp, status, why, byte_len);
	keel_qp_reported(qp);
}
