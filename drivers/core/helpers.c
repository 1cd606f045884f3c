// SPDX-License-Identifier: GPL-2.0
/*
 * Helpers: see keel_helpers.h.
 *
 * The worker and its helpers take part after part of a copy, in order. A thread is not
 * preempted from when it looks for a part until it has copied it. When no part is left, or
 * the worker must stop, it takes the copy away and waits for the threads that have a part
 * now: each of them runs, and needs some microseconds. So the parts that were copied are the
 * first ones, and no helper accesses memory, or holds up who destroys or invalidates it,
 * when the worker goes on.
 *
 * Nothing waits for a helper that does not run. One that comes late finds nothing to do.
 */
#include <kunit/visibility.h>
#include <linux/cpumask.h>
#include <linux/err.h>
#include <linux/lockdep.h>
#include <linux/minmax.h>
#include <linux/module.h>
#include <linux/preempt.h>
#include <linux/sched.h>
#include <linux/sizes.h>
#include <linux/slab.h>

#include "compat.h"
#include "keel_helpers.h"
#include "keel_point.h"

/* The parts of a copy. */
#define KEEL_PART	KEEL_COPY_STEP
/* As many threads copy as there are processors, but for one, which the process needs. */
#define KEEL_AUTO	-1

VISIBLE_IF_KUNIT int keel_big_threads = KEEL_AUTO;
EXPORT_SYMBOL_IF_KUNIT(keel_big_threads);
module_param_named(big_threads, keel_big_threads, int, 0644);
MODULE_PARM_DESC(big_threads,
		 "Threads that help to copy the big messages of a process (default -1: processors that it may use less two, at most 3)");

static unsigned int keel_share_bytes = SZ_1M;
module_param_named(share_bytes, keel_share_bytes, uint, 0644);
MODULE_PARM_DESC(share_bytes,
		 "Copy messages of so many bytes or more with these threads (default 1048576; 0: none)");

/**
 * struct keel_share - a copy that is shared
 * @dst: the destination
 * @src: the source
 * @from: where the first part starts, in both
 * @n: number of parts
 * @next: the next part, or more than @n
 * @helped: a helper has copied a part
 * @failed: a part was not copied
 */
struct keel_share {
	const struct keel_segs *dst;
	const struct keel_segs *src;
	u64 from;
	unsigned int n;
	atomic_t next;
	bool helped;
	bool failed;
};

/* Is a message of so many bytes shared? It must have at least two parts, and a rest. */
static bool keel_share_fits(u64 bytes)
{
	unsigned int least = READ_ONCE(keel_share_bytes);

	return least && bytes >= least && bytes > 2 * KEEL_PART;
}

/* Copy the next part. Return: false if there is none. */
static bool keel_share_part(struct keel_share *share)
{
	unsigned int part = atomic_fetch_inc_relaxed(&share->next);
	struct keel_copy_ctl ctl;
	u64 at;

	if (part >= share->n)
		return false;
	at = share->from + (u64)part * KEEL_PART;
	/* It does not stop, or reschedule, within a part. */
	keel_copy_ctl_init(&ctl, NULL, NULL);
	if (keel_copy(share->dst, at, share->src, at, KEEL_PART, &ctl) != KEEL_COPY_DONE)
		WRITE_ONCE(share->failed, true);
	return true;
}

/* A helper copies a part, if there is one. */
static bool keel_helper_part(struct keel_helpers *helpers)
{
	struct keel_share *share;
	bool copied;

	preempt_disable();
	atomic_inc(&helpers->busy);
	/* Either this thread finds no copy, or the worker finds it busy. */
	smp_mb__after_atomic();
	share = READ_ONCE(helpers->share);
	keel_point("helper_looked");
	copied = share && keel_share_part(share);
	if (copied)
		WRITE_ONCE(share->helped, true);
	/* The worker uses what was written when it finds nobody busy. */
	smp_mb__before_atomic();
	atomic_dec(&helpers->busy);
	preempt_enable();
	return copied;
}

static void keel_helpers_free(struct kref *ref)
{
	struct keel_helpers *helpers = container_of(ref, struct keel_helpers, ref);
	unsigned int i;

	for (i = 0; i < helpers->n; i++)
		keel_worker_put(helpers->helper[i].thread);
	kfree(helpers);
}

/**
 * keel_helpers_put() - drop a reference
 * @helpers: the helpers, or NULL
 *
 * Context: process context.
 */
void keel_helpers_put(struct keel_helpers *helpers)
{
	if (helpers)
		kref_put(&helpers->ref, keel_helpers_free);
}
EXPORT_SYMBOL_IF_KUNIT(keel_helpers_put);

/* The job of a helper, with a reference on all of them. */
static void keel_helper_run(struct keel_job *job, bool alive)
{
	struct keel_helpers *helpers = container_of(job, struct keel_helper, job)->all;

	/* In between, a thread whose processor is needed may be preempted. */
	while (alive && keel_helper_part(helpers))
		cond_resched();
	keel_helpers_put(helpers);
}

/*
 * Wake the helpers that do not work already, and that may run at the same time as this
 * thread: the process may have bound them to its processor.
 */
static void keel_helpers_call(struct keel_helpers *helpers)
{
	struct keel_helper *helper = helpers->helper;

	for (; helper < helpers->helper + helpers->n; helper++) {
		if (!keel_worker_may_replace(helper->thread))
			continue;
		kref_get(&helpers->ref);
		/* Not the last reference: the worker has one. */
		if (keel_job_queue(helper->thread, &helper->job) <= 0)
			keel_helpers_put(helpers);
	}
}

/* Those that did not wake up in time need not do so. */
static void keel_helpers_recall(struct keel_helpers *helpers)
{
	struct keel_helper *helper = helpers->helper;

	for (; helper < helpers->helper + helpers->n; helper++)
		if (keel_job_take_back(helper->thread, &helper->job))
			/* As above. */
			keel_helpers_put(helpers);
}

/* Return: KEEL_COPY_DONE; or why the copy must stop. */
static enum keel_copy_result keel_share_goes_on(const struct keel_share *share,
						const struct keel_copy_ctl *ctl)
{
	if (keel_segs_dead(share->src->seg, share->src->n))
		return KEEL_COPY_SRC;
	if (keel_segs_dead(share->dst->seg, share->dst->n))
		return KEEL_COPY_DST;
	return ctl->stop && ctl->stop(ctl->arg) ? KEEL_COPY_STOPPED : KEEL_COPY_DONE;
}

/* Copy parts until none is left, or the copy must stop. */
static enum keel_copy_result keel_share_run(struct keel_helpers *helpers,
					    struct keel_share *share,
					    const struct keel_copy_ctl *ctl)
{
	enum keel_copy_result res;

	/* A helper finds all of it. */
	smp_store_release(&helpers->share, share);
	keel_helpers_call(helpers);
	do
		res = keel_share_goes_on(share, ctl);
	while (res == KEEL_COPY_DONE && keel_share_part(share));
	/* As in keel_helper_part(). */
	smp_store_mb(helpers->share, NULL);
	keel_point("share_over");
	while (atomic_read_acquire(&helpers->busy))
		cpu_relax();
	keel_helpers_recall(helpers);
	return res;
}

/**
 * keel_helpers_copy() - copy most of a message together with helpers
 * @helpers: those of the worker whose thread calls this
 * @dst: the destination
 * @src: the source, of as many bytes or fewer; see keel_segs_may_share() for both
 * @ctl: the transfer, which continues behind &keel_copy_ctl.done
 *
 * Context: preemption is disabled. Waits for threads that run, each for one part.
 * Return: KEEL_COPY_DONE: call keel_copy(), which copies the rest: at least the last bytes,
 * and all if the message is not big enough or something is wrong. Else the same result
 * as that of keel_copy(): the copy stops, after some parts.
 */
enum keel_copy_result keel_helpers_copy(struct keel_helpers *helpers,
					const struct keel_segs *dst,
					const struct keel_segs *src,
					struct keel_copy_ctl *ctl)
{
	struct keel_share share = { .dst = dst, .src = src, .from = ctl->done };
	enum keel_copy_result res;
	u32 copied;

	lockdep_assert_preemption_disabled();
	if (ctl->done >= src->len || !keel_share_fits(src->len - ctl->done) ||
	    WARN_ON_ONCE(READ_ONCE(helpers->share)))
		return KEEL_COPY_DONE;
	share.n = (src->len - ctl->done - 1) / KEEL_PART;
	res = keel_share_run(helpers, &share, ctl);
	ctl->helped |= share.helped;
	if (share.failed)
		return KEEL_COPY_DONE;
	copied = min_t(u32, atomic_read(&share.next), share.n);
	ctl->done += (u64)copied * KEEL_PART;
	/* Each attempt must get on. */
	return copied ? res : KEEL_COPY_DONE;
}
EXPORT_SYMBOL_IF_KUNIT(keel_helpers_copy);

/**
 * keel_helpers_most() - how many helpers may a worker of the calling process have?
 *
 * Context: process context.
 * Return: their number; 0: none.
 */
unsigned int keel_helpers_most(void)
{
	int n = READ_ONCE(keel_big_threads);

	/* A helper that is preempted with a part would hold up the worker. */
	if (IS_ENABLED(CONFIG_PREEMPT_RT) || !KEEL_THREAD_HAS_MM)
		return 0;
	if (n == KEEL_AUTO)
		n = min_t(int, num_online_cpus(), current->nr_cpus_allowed) - 2;
	return clamp(n, 0, KEEL_HELPERS);
}
EXPORT_SYMBOL_IF_KUNIT(keel_helpers_most);

/**
 * keel_helpers_new() - get helpers of the calling process
 * @lists: KEEL_HELPERS lists of workers of a context, for this purpose
 * @most: how many, from 1 to KEEL_HELPERS; it may get fewer
 *
 * Context: process context of a user process; may sleep.
 * Return: the helpers, with a reference; or an error, as keel_worker_of_current().
 */
struct keel_helpers *keel_helpers_new(struct keel_workers *lists, unsigned int most)
{
	struct keel_helpers *helpers = kzalloc_obj(*helpers, GFP_KERNEL_ACCOUNT);
	struct keel_worker *thread = NULL;
	struct keel_helper *helper;

	if (!helpers)
		return ERR_PTR(-ENOMEM);
	kref_init(&helpers->ref);
	for (; helpers->n < most; helpers->n++) {
		thread = keel_worker_of_current(&lists[helpers->n]);
		/* After a signal, the next attempt finds the threads in their lists. */
		if (PTR_ERR_OR_ZERO(thread) == -ERESTARTNOINTR)
			goto err;
		if (IS_ERR(thread))
			break;
		helper = &helpers->helper[helpers->n];
		helper->thread = thread;
		helper->all = helpers;
		keel_job_init(&helper->job, keel_helper_run);
	}
	if (helpers->n)
		return helpers;
err:
	keel_helpers_put(helpers);
	return ERR_CAST(thread);
}
EXPORT_SYMBOL_IF_KUNIT(keel_helpers_new);

/**
 * keel_worker_want_help() - note that a worker should have helpers
 * @worker: a worker of the calling process, kept by RCU or a reference
 * @bytes: of a message that its thread copies
 *
 * Does nothing if the message is not big enough to be shared, or if nobody has to try to
 * get helpers any more.
 *
 * Context: any.
 */
void keel_worker_want_help(struct keel_worker *worker, u64 bytes)
{
	if (keel_share_fits(bytes) && !READ_ONCE(worker->helpers) &&
	    !READ_ONCE(worker->helpless) && !READ_ONCE(worker->wants_help) &&
	    keel_helpers_most())
		WRITE_ONCE(worker->wants_help, true);
}
EXPORT_SYMBOL_IF_KUNIT(keel_worker_want_help);

/* Return: false if another thread of the process was first. */
static bool keel_worker_set_helpers(struct keel_worker *worker, struct keel_helpers *helpers)
{
	guard(spinlock_irqsave)(&worker->lock);
	if (worker->helpers)
		return false;
	worker->put_helpers = keel_helpers_put;
	/* The thread of the worker finds all of them. */
	smp_store_release(&worker->helpers, helpers);
	return true;
}

/**
 * keel_worker_find_help() - get helpers for a worker that wants them
 * @worker: the worker of the calling process; the caller has a reference
 * @lists: as in keel_helpers_new()
 *
 * Without threads, the worker copies alone.
 *
 * Context: process context of the process; may sleep; no lock is held.
 */
void keel_worker_find_help(struct keel_worker *worker, struct keel_workers *lists)
{
	unsigned int most = keel_helpers_most();
	struct keel_helpers *helpers;

	/* One thread of the process at a time, as a rule: it may have few threads left. */
	if (!READ_ONCE(worker->wants_help))
		return;
	WRITE_ONCE(worker->wants_help, false);
	if (!most || READ_ONCE(worker->helpers))
		return;
	helpers = keel_helpers_new(lists, most);
	if (IS_ERR(helpers)) {
		/* Not with each message, unless a signal was pending. */
		if (PTR_ERR(helpers) != -ERESTARTNOINTR)
			WRITE_ONCE(worker->helpless, true);
		return;
	}
	if (!keel_worker_set_helpers(worker, helpers))
		keel_helpers_put(helpers);
}
EXPORT_SYMBOL_IF_KUNIT(keel_worker_find_help);
