/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A work request between the requester and the responder.
 */
#ifndef KEEL_XFER_H
#define KEEL_XFER_H

#include <linux/types.h>
#include <rdma/ib_verbs.h>
#include <rdma/keel-abi.h>

struct keel_opcode;
struct keel_qp;
struct keel_srq;

/**
 * struct keel_xfer - a work request on its way
 * @qp: who sends; its send queue's lock is held
 * @wqe: what, in &keel_sq.wqe
 * @op: its operation, once it is known to be one
 * @peer: to whom, with a reference, or NULL; in functions of the responder, with
 *	its lock
 * @srq: XRC: the SRQ that was named, with a reference; else NULL
 * @old_srq: the one that an earlier try named, with a reference; or NULL
 * @len: bytes of the message
 * @rnr_ns: how long the peer wants us to wait before we try again
 * @domain: number of the domain that rkeys are checked against
 * @status: how it ended
 * @why: reason of a failure
 * @byte_len: for the completion
 * @until: when others are to have a turn, ns of ktime_get_ns()
 */
struct keel_xfer {
	struct keel_qp *qp;
	const struct keel_uapi_send_wqe *wqe;
	const struct keel_opcode *op;
	struct keel_qp *peer;
	struct keel_srq *srq;
	struct keel_srq *old_srq;
	u64 len;
	u64 rnr_ns;
	u32 domain;
	enum ib_wc_status status;
	u32 why;
	u32 byte_len;
	u64 until;
};

/**
 * enum keel_verdict - what became of a work request
 * @KEEL_XFER_DONE: it completes with &keel_xfer.status
 * @KEEL_XFER_RNR: the peer has no receive: wait
 * @KEEL_XFER_NO_PEER: there is no peer that is ready: wait
 * @KEEL_XFER_STOPPED: a signal, somebody's state or the end of its turn came in
 *	between: look again
 * @KEEL_XFER_BUSY: somebody has the lock of the peer's responder: try again
 * @KEEL_XFER_ABSENT: memory is not present, see &keel_copy_ctl.need
 */
enum keel_verdict {
	KEEL_XFER_DONE,
	KEEL_XFER_RNR,
	KEEL_XFER_NO_PEER,
	KEEL_XFER_STOPPED,
	KEEL_XFER_BUSY,
	KEEL_XFER_ABSENT,
};

#endif /* KEEL_XFER_H */
