/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Helpers: further threads of a process, which copy parts of a big message for its worker.
 * A core unit: it depends on memory, processes and jobs, but on no queue and no verb.
 */
#ifndef KEEL_HELPERS_H
#define KEEL_HELPERS_H

#include <linux/atomic.h>
#include <linux/kconfig.h>
#include <linux/kref.h>

#include "keel_copy.h"
#include "keel_worker.h"

/* The most helpers of a worker. More threads copy no faster: memory is the limit. */
#define KEEL_HELPERS	3

struct keel_helpers;
struct keel_share;

/**
 * struct keel_helper - a thread that helps
 * @job: its work: parts of the copy that is shared now
 * @thread: the thread, a worker of its own; a reference
 * @all: the helpers that this is one of
 */
struct keel_helper {
	struct keel_job job;
	struct keel_worker *thread;
	struct keel_helpers *all;
};

/**
 * struct keel_helpers - the helpers of a worker
 * @ref: one for the worker, and one for each job that is queued or runs
 * @share: the copy that the worker shares now, on its stack; or NULL
 * @busy: number of threads that may access @share
 * @n: number of helpers, at least 1
 * @helper: the helpers
 */
struct keel_helpers {
	struct kref ref;
	struct keel_share *share;
	atomic_t busy;
	unsigned int n;
	struct keel_helper helper[KEEL_HELPERS];
};

unsigned int keel_helpers_most(void);
struct keel_helpers *keel_helpers_new(struct keel_workers *lists, unsigned int most);
void keel_helpers_put(struct keel_helpers *helpers);
enum keel_copy_result keel_helpers_copy(struct keel_helpers *helpers,
					const struct keel_segs *dst,
					const struct keel_segs *src,
					struct keel_copy_ctl *ctl);
void keel_worker_want_help(struct keel_worker *worker, u64 bytes);
void keel_worker_find_help(struct keel_worker *worker, struct keel_workers *lists);

#if IS_ENABLED(CONFIG_KUNIT)
extern int keel_big_threads;
#endif

#endif /* KEEL_HELPERS_H */
