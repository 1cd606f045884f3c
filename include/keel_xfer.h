/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A work request between the requester and the responder.
 */
#ifndef KEEL_XFER_H
#define KEEL_XFER_H

#include <linux/types.h>
#include <rdma/ib_verbs.h>
#include <rdma/keel-abi.h>

struct keel_from;
struct keel_key;
struct keel_obj;
struct keel_opcode;
struct keel_qp;
struct keel_srq;

/* Bytes of the GRH in front of a UD message. */
#define KEEL_GRH_BYTES	40

/**
 * struct keel_xfer - an in-flight work request
 * @qp: the requester's QP; its send queue's lock is held. Functions of the responder use
 *	@from instead, but for keel_xfer_stop(), and for the requester's half of ud.c.
 * @from: memory and progress of the message; its lock is that of the send queue
 * @gen: generation of the requester, &keel_qp.gen
 * @src_qp: number of the requester
 * @wqe: the WQE, in &keel_sq.wqe
 * @op: its operation; NULL before the lookup, or if there is none
 * @peer: the responder's QP, with a reference, or NULL. In functions of the
 *	responder, its responder lock is held.
 * @srq: XRC: the SRQ that the WQE names, with a reference; else NULL
 * @old_srq: the SRQ that an earlier attempt named, with a reference; or NULL
 * @invalidated: the key that a send with invalidate has invalidated, for
 *	keel_invalidate_wait() without locks; or NULL
 * @named: the object of the key that such a send names, with a reference; or NULL
 * @len: bytes of the message, or of the part of it that is executed
 * @off: send: bytes of the message before that part
 * @total: bytes of the whole message
 * @part: more parts follow
 * @refused: the responder has refused it, also if @status does not say so (UC)
 * @again: it was executed before: if it is refused now, nothing happens to the QP
 * @brief: as &keel_turn.brief; responder: only with memory that is never absent
 * @late: as keel_far_run_once()
 * @rnr_ns: the RNR delay that the peer asks for
 * @domain: number of the domain that rkeys are checked against
 * @status: status of the completion
 * @why: vendor error
 * @byte_len: for the completion
 * @until: end of the turn, ns of ktime_get_ns()
 */
struct keel_xfer {
	struct keel_qp *qp;
	struct keel_from *from;
	u64 gen;
	u32 src_qp;
	const struct keel_uapi_send_wqe *wqe;
	const struct keel_opcode *op;
	struct keel_qp *peer;
	struct keel_srq *srq;
	struct keel_srq *old_srq;
	struct keel_key *invalidated;
	struct keel_obj *named;
	u64 len;
	u64 off;
	u64 total;
	bool part;
	bool refused;
	bool again;
	bool brief;
	bool late;
	u64 rnr_ns;
	u32 domain;
	enum ib_wc_status status;
	u32 why;
	u32 byte_len;
	u64 until;
};

/**
 * enum keel_xfer_result - result of an attempt to execute a work request
 * @KEEL_XFER_DONE: it completes with &keel_xfer.status
 * @KEEL_XFER_RNR: the peer has no receive WQE: wait
 * @KEEL_XFER_NO_PEER: no peer is connected and ready: wait
 * @KEEL_XFER_STOPPED: a signal, the state of a QP, the end of the turn, or another
 *	thread interrupted it, or it is not brief: check them, and retry
 * @KEEL_XFER_BUSY: the lock of the peer's responder is taken: retry
 * @KEEL_XFER_ABSENT: memory is not present, see &keel_copy_ctl.need
 * @KEEL_XFER_UNDERWAY: packets are under way to another host: wait for its answers
 * @KEEL_XFER_LATER: nothing was done, because it is too much for &keel_xfer.brief
 */
enum keel_xfer_result {
	KEEL_XFER_DONE,
	KEEL_XFER_RNR,
	KEEL_XFER_NO_PEER,
	KEEL_XFER_STOPPED,
	KEEL_XFER_BUSY,
	KEEL_XFER_ABSENT,
	KEEL_XFER_UNDERWAY,
	KEEL_XFER_LATER,
};

/* xfer.c */
void keel_xfer_put(struct keel_xfer *x);

#endif /* KEEL_XFER_H */
