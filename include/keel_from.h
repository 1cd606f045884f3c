/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A requester, as responders see it: the memory of a message, and its progress.
 */
#ifndef KEEL_FROM_H
#define KEEL_FROM_H

#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/types.h>

#include "keel_copy.h"
#include "keel_memreq.h"

struct keel_qp;
struct keel_srq;

/* Progress of an atomic operation or an atomic write. */
enum keel_stage {
	KEEL_STAGE_NEW,
	KEEL_STAGE_FETCHED,	/* the value to store is in &keel_from.word */
	KEEL_STAGE_DONE,	/* the memory has changed */
};

/**
 * struct keel_from - a requester, as responders see it
 * @lock: its holder executes the messages
 * @qp: the QP whose turns execute them, and which is rescheduled to continue one. The
 *	QP exists as long as this structure, which is a part of it.
 * @stage: progress of an atomic operation or an atomic write
 * @word: atomic operand: the original value for an atomic operation, the value to
 *	store for an atomic write
 * @fetch: progress of the message, if an earlier attempt has begun it
 * @srq: the SRQ whose receive WQE it waits for, with a reference, or NULL. Set under
 *	@lock and &keel_rq.lock of the SRQ, cleared under the latter.
 * @waiting: in &keel_srq.waiters, or in &keel_srq.packets; under &keel_rq.lock of the SRQ
 * @wait_nr: number of the wait, from &keel_srq.waits; likewise
 * @segs: memory of the requester
 * @remote: RDMA: the segment of the responder; else scratch, such as for the GRH of UD
 */
struct keel_from {
	struct mutex lock;
	struct keel_qp *qp;
	enum keel_stage stage __guarded_by(&lock);
	u64 word __guarded_by(&lock);
	struct keel_fetch fetch __guarded_by(&lock);
	struct keel_srq *srq;
	struct list_head waiting;
	u64 wait_nr;
	struct keel_segs segs __guarded_by(&lock);
	struct keel_segs remote __guarded_by(&lock);
};

#endif /* KEEL_FROM_H */
