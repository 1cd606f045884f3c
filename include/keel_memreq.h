/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Memory requests: what a transfer of a queue pair cannot go on without, and has
 * asked the owner of the memory for.
 */
#ifndef KEEL_MEMREQ_H
#define KEEL_MEMREQ_H

#include <linux/kref.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>

#include "keel_copy.h"
#include "keel_worker.h"

struct keel_qp;

/**
 * struct keel_memreq - a request for memory that is not present
 * @ref: of the job, and of whoever waits for it
 * @job: for the worker of the process whose memory it is
 * @work: where there is no such worker any more
 * @open: which memory; access to a dma-buf that has begun is in
 *	&keel_copy_ctl.open
 * @lock: protects @qp, @result and @finished
 * @qp: the QP that runs again when it is finished; NULL: nobody waits
 * @result: 0 or a negative errno, once @finished
 * @finished: it was provided, or cannot be
 */
struct keel_memreq {
	struct kref ref;
	struct keel_job job;
	struct work_struct work;
	struct keel_open open;
	spinlock_t lock;
	struct keel_qp *qp;
	int result;
	bool finished;
};

/**
 * struct keel_fetch - a transfer and the memory that it asked for
 * @ctl: the transfer
 * @req: memory that was asked for, or NULL
 */
struct keel_fetch {
	struct keel_copy_ctl ctl;
	struct keel_memreq *req;
};

void keel_fetch_init(struct keel_fetch *fetch, bool (*stop)(void *arg));
bool keel_fetch_collect(struct keel_fetch *fetch);
void keel_fetch_close(struct keel_fetch *fetch);
void keel_fetch_give_up(struct keel_fetch *fetch);
void keel_fetch_provide(struct keel_fetch *fetch, struct mutex *lock,
			struct keel_qp *qp, struct keel_need *need);
void keel_fetch_drop(struct keel_fetch *fetch);

#endif /* KEEL_MEMREQ_H */
