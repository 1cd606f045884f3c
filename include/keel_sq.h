/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Send queues: the requester of a QP.
 */
#ifndef KEEL_SQ_H
#define KEEL_SQ_H

#include <linux/hrtimer.h>
#include <linux/spinlock.h>
#include <rdma/ib_verbs.h>
#include <rdma/keel-abi.h>

#include "keel_from.h"
#include "keel_ring.h"
#include "keel_runs.h"
#include "keel_xfer.h"

struct keel_qp;

/* How long memory may be absent before the work request fails. */
#define KEEL_PAGES_NS	(5 * NSEC_PER_SEC)
/* The limit for dma-bufs: other devices may still be working on them. */
#define KEEL_FENCE_NS	(30 * NSEC_PER_SEC)

/* Maximum number of bytes behind the header of a send WQE. */
#define KEEL_WQE_TAIL	(KEEL_MAX_STRIDE - sizeof(struct keel_uapi_send_wqe))

/* The event that a send queue waits for. */
enum keel_wait {
	KEEL_WAIT_NONE,
	KEEL_WAIT_RNR,		/* the peer has no receive WQE */
	KEEL_WAIT_PEER,		/* the peer is not connected yet */
	KEEL_WAIT_MEMORY,	/* memory is not present */
};

/**
 * struct keel_sq - a send queue
 * @again: there may be more to run
 * @ring: its ring
 * @wait: the event that the first WQE waits for
 * @deadline: end of the wait, ns of ktime_get_ns(): the work request fails then;
 *	U64_MAX: never
 * @timer: reschedules the QP at @deadline
 * @wqe: copy of the WQE that is executed
 * @data: copy of the inline data or SGEs that follow it
 * @inline_mem: describes the inline data in @data as memory
 * @drained: SQD: the queue is drained, and the event was raised if requested
 * @reporting: an error has moved the QP to the error state, and its CQE is not
 *	written yet: nothing is flushed before that
 * @post_lock: kernel consumers: protects the producer index
 * @peer: last-lookup cache of the peer, or NULL; valid only while
 *	&keel_dev.qps_destroyed equals @qps_destroyed
 * @qps_destroyed: &keel_dev.qps_destroyed, read before the lookup of @peer
 * @caches: last-lookup caches of the lkeys of the first SGEs: fast path
 * @remote_cache: the same for the rkey
 * @local: memory of the requester: fast path
 * @remote_runs: memory of the responder: fast path
 * @grh: UD: header of the datagram: fast path
 * @rnr_until: end of the time in which the first WQE waits for receive WQEs, ns; 0: it has
 *	waited for none
 * @waited: the memory that it has waited for last; only compared, without references
 * @waited_until: the same for @waited
 * @from: memory and progress of the WQE, for responders; the holder of its lock runs the
 *	queue
 */
struct keel_sq {
	atomic_t again;
	struct keel_ring ring;
	enum keel_wait wait __guarded_by(&from.lock);
	u64 deadline __guarded_by(&from.lock);
	struct hrtimer timer;
	struct keel_uapi_send_wqe wqe __guarded_by(&from.lock);
	u8 data[KEEL_WQE_TAIL] __aligned(16) __guarded_by(&from.lock);
	struct keel_mem inline_mem;
	bool drained;
	bool reporting;
	spinlock_t post_lock;
	struct keel_qp *peer __guarded_by(&from.lock);
	s64 qps_destroyed __guarded_by(&from.lock);
	struct keel_key_cache caches[KEEL_RUNS_SGES] __guarded_by(&from.lock);
	struct keel_key_cache remote_cache __guarded_by(&from.lock);
	struct keel_runs local __guarded_by(&from.lock);
	struct keel_runs remote_runs __guarded_by(&from.lock);
	u8 grh[KEEL_GRH_BYTES] __aligned(8) __guarded_by(&from.lock);
	u64 rnr_until __guarded_by(&from.lock);
	struct keel_need waited __guarded_by(&from.lock);
	u64 waited_until __guarded_by(&from.lock);
	struct keel_from from;
};

/**
 * struct keel_turn - limits of one run of a queue
 * @doorbell: the turn ends at @end: a doorbell, another call of the owner, or a
 *	step of the flush for a dead process
 * @caller: a call of the process runs it, and not a worker or a workqueue
 * @flush: only flush, transfer nothing: if another process has taken the QP over,
 *	that process runs the rest
 * @brief: the thread of a link runs it: only short messages, which it has no other work with than
 *	to send or to complete them; the worker executes the rest
 * @end: @doorbell: index of the first WQE that is not part of this turn
 * @until: end of the turn, ns of ktime_get_ns()
 */
struct keel_turn {
	bool doorbell;
	bool caller;
	bool flush;
	bool brief;
	u32 end;
	u64 until;
};

/**
 * keel_sq_begun() - check whether an attempt has begun the first WQE
 * @sq: the send queue
 *
 * Context: the lock of the queue is held.
 * Return: true if so: another attempt finishes it, on the slow path and in SQD.
 */
static inline bool keel_sq_begun(const struct keel_sq *sq)
	__must_hold(&sq->from.lock)
{
	return sq->wait != KEEL_WAIT_NONE || sq->from.fetch.ctl.done ||
	       sq->from.stage != KEEL_STAGE_NEW || keel_fetch_is_busy(&sq->from.fetch);
}

/* sq.c */
bool keel_sq_run(struct keel_qp *qp, const struct keel_turn *turn);
void keel_sq_init(struct keel_qp *qp);

/* sq_complete.c */
void keel_sq_discard(struct keel_sq *sq) __must_hold(&sq->from.lock);

/* Number of WQEs that a doorbell executes of those that are posted meanwhile. */
#define KEEL_DOORBELL_MORE	64

/**
 * keel_sq_fetch_at() - copy the header of a WQE to &keel_sq.wqe
 * @sq: the send queue
 * @index: index of the WQE
 *
 * Context: any; the lock of the queue is held.
 */
static __always_inline void keel_sq_fetch_at(struct keel_sq *sq, u32 index)
	__must_hold(&sq->from.lock)
{
	const u64 *from = keel_ring_entry(&sq->ring, index);
	u64 *to = (u64 *)&sq->wqe;
	size_t i;

	static_assert(sizeof(sq->wqe) % sizeof(*to) == 0);
	/* Once: userspace may write to it. */
	for (i = 0; i < sizeof(sq->wqe) / sizeof(*to); i++)
		to[i] = READ_ONCE(from[i]);
}

/**
 * keel_sq_fetch() - copy the header of the first WQE to &keel_sq.wqe
 * @sq: the send queue
 *
 * Context: any; the lock of the queue is held.
 */
static __always_inline void keel_sq_fetch(struct keel_sq *sq)
	__must_hold(&sq->from.lock)
{
	keel_sq_fetch_at(sq, sq->ring.index);
}

#endif /* KEEL_SQ_H */
