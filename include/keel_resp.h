/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Responders: what a QP receives.
 */
#ifndef KEEL_RESP_H
#define KEEL_RESP_H

#include <linux/mutex.h>
#include <rdma/ib_verbs.h>
#include <rdma/keel-abi.h>

#include "keel_copy.h"
#include "keel_keys.h"
#include "keel_memreq.h"
#include "keel_rq.h"
#include "keel_xfer.h"

struct keel_qp;
struct keel_srq;

/* Bytes in front of a UD message. */
#define KEEL_GRH_BYTES	40
/* The largest datagram: the MTU. */
#define KEEL_UD_MTU	4096

/**
 * struct keel_dgram - datagrams and memory that is not present (UD)
 * @pending: @data is a datagram for the receive that was taken, whose memory is
 *	not present; under &keel_resp.lock
 * @fetch: how far it is copied
 * @len: bytes of @data
 * @cqe: the completion, but for what the receive adds
 * @solicited: the sender asked for an event
 * @data: GRH and payload
 * @source: a datagram that is sent: it goes to its receivers from here; under the
 *	lock of the send queue
 * @source_mem: @source as memory
 */
struct keel_dgram {
	bool pending;
	struct keel_fetch fetch;
	u32 len;
	struct keel_uapi_cqe cqe;
	bool solicited;
	u8 data[KEEL_GRH_BYTES + KEEL_UD_MTU] __aligned(16);
	u8 source[KEEL_UD_MTU] __aligned(16);
	struct keel_mem source_mem;
};

/**
 * struct keel_resp - the responder of a QP
 * @lock: who has it delivers to the QP
 * @have: @recv is a receive that a message began to use, and did not finish
 * @recv: the receive
 * @segs: the QP's side of the message that is delivered
 * @srq: XRC: the SRQ that @recv came from, with a reference while @have
 * @last: the last receive of an SRQ was reported
 * @from: &keel_qp.gen of the sender whose message @recv began to be used for
 * @memo: the lkey of last time
 * @dgram: UD: see there; else NULL
 */
struct keel_resp {
	struct mutex lock;
	bool have;
	bool last;
	u64 from;
	struct keel_recv recv;
	struct keel_segs segs;
	struct keel_srq *srq;
	struct keel_key_memo memo;
	struct keel_dgram *dgram;
};

/* resp.c */
enum keel_verdict keel_resp_send(struct keel_xfer *x);
enum keel_verdict keel_resp_write(struct keel_xfer *x);
enum keel_verdict keel_resp_read(struct keel_xfer *x);
enum keel_verdict keel_resp_atomic(struct keel_xfer *x);
enum keel_verdict keel_resp_atomic_write(struct keel_xfer *x);
enum keel_verdict keel_resp_flush(struct keel_xfer *x);

/* recv.c */
void keel_dgram_drop(struct keel_dgram *dgram);
void keel_rq_flush(struct keel_qp *qp);
int keel_recv_take(struct keel_xfer *x);
enum ib_wc_status keel_recv_segs(struct keel_qp *peer, u64 len, u32 *why);
struct keel_uapi_cqe keel_recv_cqe(const struct keel_xfer *x,
				   enum ib_wc_status status, u32 why,
				   u32 byte_len, u8 flags);
int keel_recv_report(struct keel_qp *peer, struct keel_uapi_cqe *cqe,
		     bool solicited);
int keel_recv_complete(struct keel_xfer *x, enum ib_wc_status status, u32 why,
		       u32 byte_len, u8 flags);
bool keel_xfer_stop(void *arg);

/* ud.c */
enum keel_verdict keel_ud_send(struct keel_xfer *x);
void keel_ud_run(struct keel_qp *qp);

#endif /* KEEL_RESP_H */
