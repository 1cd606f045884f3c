/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Memory requests: a transfer of a queue pair asks the owner of memory to provide
 * memory that is not present.
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
 * @ref: one for the job, and one for the transfer that waits for it
 * @job: for the worker of the process that owns the memory
 * @work: ends access to a dma-buf if that worker is dead; frees the request
 * @open: the memory; in &keel_copy_ctl.open after access to a dma-buf has begun
 * @lock: protects @qp, @result and @finished
 * @qp: the QP to run again when the request is finished; NULL: none waits
 * @result: 0 or a negative errno, valid if @finished
 * @finished: the memory was provided, or cannot be
 */
struct keel_memreq {
	struct kref ref;
	struct keel_job job;
	struct work_struct work;
	struct keel_open open;
	spinlock_t lock;
	struct keel_qp *qp __guarded_by(&lock);
	int result __guarded_by(&lock);
	bool finished __guarded_by(&lock);
};

/**
 * struct keel_fetch - a transfer and its request for memory
 * @ctl: the transfer
 * @req: the pending request, or NULL
 * @round: changes when a request is made, is collected or given up, and when the
 *	transfer ends; written under the lock of @ctl
 */
struct keel_fetch {
	struct keel_copy_ctl ctl;
	struct keel_memreq *req;
	unsigned long round;
};

/**
 * struct keel_lack - memory that a transfer was missing
 * @need: the memory
 * @round: &keel_fetch.round at that time
 */
struct keel_lack {
	struct keel_need need;
	unsigned long round;
};

/**
 * keel_fetch_is_busy() - check whether a transfer uses or requests memory
 * @fetch: the transfer
 *
 * Context: the lock that protects @fetch is held.
 * Return: true if a request is pending, or if access to a dma-buf has begun.
 */
static inline bool keel_fetch_is_busy(const struct keel_fetch *fetch)
{
	return fetch->req || !list_empty(&fetch->ctl.open);
}

void keel_fetch_init(struct keel_fetch *fetch, bool (*stop)(void *arg));
bool keel_fetch_collect(struct keel_fetch *fetch);
void keel_fetch_close(struct keel_fetch *fetch);
void keel_fetch_abandon(struct keel_fetch *fetch);
void keel_fetch_forgo(struct keel_fetch *fetch);
void keel_fetch_take(struct keel_fetch *fetch, struct keel_lack *lack);
void keel_fetch_provide(struct keel_fetch *fetch, struct mutex *lock,
			struct keel_qp *qp, struct keel_lack *lack);
void keel_fetch_discard(struct keel_fetch *fetch);
#if IS_ENABLED(CONFIG_KUNIT)
void keel_memreq_run(struct keel_job *job, bool alive);
#endif

#endif /* KEEL_MEMREQ_H */
