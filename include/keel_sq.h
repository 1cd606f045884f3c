/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Send queues: the requester of a QP.
 */
#ifndef KEEL_SQ_H
#define KEEL_SQ_H

#include <linux/hrtimer.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <rdma/ib_verbs.h>
#include <rdma/keel-abi.h>

#include "keel_copy.h"
#include "keel_memreq.h"
#include "keel_ring.h"
#include "keel_xfer.h"

struct keel_qp;
struct keel_srq;

/* How long memory may be absent before that is its owner's error. */
#define KEEL_PAGES_NS	(5 * NSEC_PER_SEC)
/* Devices that work on a dma-buf may take longer. */
#define KEEL_FENCE_NS	(30 * NSEC_PER_SEC)

/* Why a send queue waits. */
enum keel_wait {
	KEEL_WAIT_NONE,
	KEEL_WAIT_RNR,		/* the peer has no receive */
	KEEL_WAIT_PEER,		/* there is no peer */
	KEEL_WAIT_MEMORY,	/* memory is not present */
};

/* How far an atomic or an atomic write is. */
enum keel_stage {
	KEEL_STAGE_NEW,
	KEEL_STAGE_FETCHED,	/* the operand is in &keel_sq.word */
	KEEL_STAGE_DONE,	/* the memory has changed */
};

/**
 * struct keel_sq - a send queue
 * @lock: who has it runs the queue
 * @kicked: there may be more to do
 * @ring: its ring
 * @wait: why the first entry waits
 * @deadline: when that is an error, ns of ktime_get_ns(); U64_MAX: never
 * @timer: kicks the QP then
 * @wqe: copy of the entry that runs
 * @data: copy of what is behind it: inline data or SGEs
 * @inline_mem: inline data in @data as memory
 * @segs: the local side of the entry that runs
 * @remote: its remote side, of RDMA; the GRH, of UD
 * @drained: SQD: the event was raised
 * @reporting: its error has ended the QP and is not reported yet: nothing is
 *	flushed before
 * @post_lock: kernel consumers: protects the producer's side
 * @peer: the peer of last time, to be looked at only while @qps_gone is what it
 *	was; or NULL
 * @qps_gone: &keel_dev.qps_gone, read before the lookup of @peer
 * @memo: the lkey of last time
 * @fetch: how far the entry is that runs, if it was begun before
 * @waited: the memory that @deadline is for, to be compared only
 * @stage: how far it is, of atomics and atomic writes
 * @word: of an atomic what the memory was, of an atomic write the operand
 * @srq: the SRQ whose receive it waits for, with a reference, or NULL
 * @waiting: in &keel_srq.waiters
 */
struct keel_sq {
	struct mutex lock;
	atomic_t kicked;
	struct keel_ring ring;
	enum keel_wait wait;
	u64 deadline;
	struct hrtimer timer;
	struct keel_uapi_send_wqe wqe;
	u8 data[KEEL_MAX_STRIDE - sizeof(struct keel_uapi_send_wqe)] __aligned(16);
	struct keel_mem inline_mem;
	struct keel_segs segs;
	struct keel_segs remote;
	bool drained;
	bool reporting;
	spinlock_t post_lock;
	struct keel_qp *peer;
	s64 qps_gone;
	struct keel_key_memo memo;
	struct keel_fetch fetch;
	struct keel_need waited;
	enum keel_stage stage;
	u64 word;
	struct keel_srq *srq;
	struct list_head waiting;
};

/**
 * struct keel_turn - how much of a queue is to be run
 * @doorbell: by a doorbell, or another call of its owner
 * @flush: nothing is transferred, only flushed: another process that has taken the
 *	QP over runs the rest
 * @end: doorbell: index of the first WQE that was posted too late for this turn
 * @until: when the turn is over, ns of ktime_get_ns()
 */
struct keel_turn {
	bool doorbell;
	bool flush;
	u32 end;
	u64 until;
};

/* sq.c */
void keel_sq_run(struct keel_qp *qp, const struct keel_turn *turn);
void keel_sq_forget(struct keel_sq *sq);
void keel_sq_complete(struct keel_qp *qp, enum ib_wc_status status, u32 why,
		      u32 byte_len);
void keel_sq_init(struct keel_qp *qp);

/* A budget that was not decided yet. */
#define KEEL_FAST_FIRST		U32_MAX
/* Messages that a doorbell does of those that are posted meanwhile. */
#define KEEL_DOORBELL_MORE	64

/**
 * enum keel_fast - the result of the fast path
 * @KEEL_FAST_DONE: the send queue is empty, and nobody wants it run
 * @KEEL_FAST_MORE: there are more: to be called again after a pause
 * @KEEL_FAST_LATER: there are more than the caller has to do
 * @KEEL_FAST_SLOW: there may be something for keel_qp_run()
 */
enum keel_fast {
	KEEL_FAST_DONE,
	KEEL_FAST_MORE,
	KEEL_FAST_LATER,
	KEEL_FAST_SLOW,
};

/* fast_path.c */
enum keel_fast keel_fast_run(struct keel_qp *qp, u32 *budget);

/* req.c */
enum keel_verdict keel_req_run(struct keel_xfer *x);

#endif /* KEEL_SQ_H */
