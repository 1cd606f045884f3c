// SPDX-License-Identifier: GPL-2.0
/*
 * The workers of a context, one for each process that uses it, and what all workers
 * share: see keel_worker.h.
 */
#include <linux/atomic.h>
#include <linux/err.h>
#include <linux/pid.h>
#include <linux/sched/mm.h>
#include <linux/workqueue.h>
#include <kunit/visibility.h>

#include "compat.h"
#include "keel_point.h"
#include "keel_reap.h"
#include "keel_worker.h"

static struct workqueue_struct *keel_worker_wq;

/* Runs jobs, so the caller must not hold the lock of the context's list. */
static void keel_workers_stop_all(struct list_head *gone)
{
	struct keel_worker *worker, *next;

	list_for_each_entry_safe(worker, next, gone, node)
		keel_worker_stop(worker);
}

/* Its process has exited (before Linux 6.10: and was reaped), or has closed the context. */
static bool keel_worker_is_gone(const struct keel_worker *worker)
{
	if (keel_worker_is_dead(worker) || !atomic_read(&worker->mm->mm_users))
		return true;
	/* Where its thread does not end with the process, others may share the memory. */
	return !KEEL_THREAD_HAS_MM && !pid_has_task(worker->owner, PIDTYPE_TGID);
}

/*
 * Returns the worker of the calling process with a reference, or NULL. A process that
 * shares the memory of another one has a worker of its own. Workers of processes that
 * have exited move to @gone.
 */
static struct keel_worker *keel_worker_find(struct keel_workers *workers,
					    struct list_head *gone)
	__must_hold(&workers->lock)
{
	struct keel_worker *worker, *next;

	lockdep_assert_held(&workers->lock);
	list_for_each_entry_safe(worker, next, &workers->list, node) {
		if (keel_worker_is_gone(worker)) {
			/* Now, because the caller takes over its work. */
			keel_worker_close(worker);
			list_move_tail(&worker->node, gone);
		} else if (keel_worker_is_ours(worker)) {
			keel_worker_get(worker);
			return worker;
		}
	}
	return NULL;
}

/*
 * List @new, unless another thread of the process was first: then @new moves to @gone.
 * @new may be an error.
 */
static struct keel_worker *keel_worker_add(struct keel_workers *workers,
					   struct keel_worker *new,
					   struct list_head *gone)
{
	struct keel_worker *worker;

	guard(spinlock)(&workers->lock);
	worker = keel_worker_find(workers, gone);
	if (worker) {
		if (!IS_ERR(new))
			list_add_tail(&new->node, gone);
		return worker;
	}
	if (IS_ERR(new))
		return new;
	keel_worker_get(new);
	list_add_tail(&new->node, &workers->list);
	return new;
}

/* Returns the worker of the calling process, with a reference, or NULL. */
static struct keel_worker *keel_worker_get_current(struct keel_workers *workers)
{
	struct keel_worker *worker;
	LIST_HEAD(gone);

	scoped_guard(spinlock, &workers->lock)
		worker = keel_worker_find(workers, &gone);
	keel_workers_stop_all(&gone);
	return worker;
}

/**
 * keel_worker_of_current() - get or create the worker of the calling process
 * @workers: the workers of a context that the process uses
 *
 * Context: process context of a user process.
 * Return: the worker, with a reference that the caller drops; ERR_PTR(-EINVAL)
 * if the caller has no user memory; ERR_PTR(-ENOMEM); ERR_PTR(-EAGAIN) if the
 * process cannot have more threads; or ERR_PTR(-ERESTARTNOINTR) for a signal,
 * after which the call restarts.
 */
struct keel_worker *keel_worker_of_current(struct keel_workers *workers)
{
	struct keel_worker *worker;
	LIST_HEAD(gone);

	if (!current->mm)
		return ERR_PTR(-EINVAL);
	worker = keel_worker_get_current(workers);
	if (worker)
		return worker;
	/* Without the lock, which other processes need that share the context. */
	worker = keel_worker_new();
	keel_point("worker_made");
	worker = keel_worker_add(workers, worker, &gone);
	keel_workers_stop_all(&gone);
	return worker;
}
EXPORT_SYMBOL_IF_KUNIT(keel_worker_of_current);

/**
 * keel_workers_poll() - let the worker of the calling process poll send queues, or not
 * @workers: the workers of a context that the process uses
 * @us: how long it polls a queue in which nothing happens, us; 0: it does not poll
 *
 * Context: process context of a user process.
 * Return: 0; if @us is not 0, or the errors of keel_worker_of_current().
 */
int keel_workers_poll(struct keel_workers *workers, unsigned int us)
{
	/* Without a worker, the process has nobody who polls. */
	struct keel_worker *worker = us ? keel_worker_of_current(workers) :
					  keel_worker_get_current(workers);

	if (IS_ERR_OR_NULL(worker))
		return PTR_ERR_OR_ZERO(worker);
	WRITE_ONCE(worker->poll_us, us);
	keel_worker_put(worker);
	return 0;
}

/**
 * keel_workers_setup() - initialize the workers of a context
 * @workers: the workers of the context
 */
void keel_workers_setup(struct keel_workers *workers)
{
	spin_lock_init(&workers->lock);
	/* No other thread has them yet. */
	context_unsafe(INIT_LIST_HEAD(&workers->list));
}
EXPORT_SYMBOL_IF_KUNIT(keel_workers_setup);

/**
 * keel_workers_stop() - end the workers of a context
 * @workers: the workers of the context, which has no object any more
 *
 * Runs all queued jobs with @alive false before it returns.
 *
 * Context: may sleep.
 */
void keel_workers_stop(struct keel_workers *workers)
{
	LIST_HEAD(gone);

	scoped_guard(spinlock, &workers->lock)
		list_splice_init(&workers->list, &gone);
	keel_workers_stop_all(&gone);
}
EXPORT_SYMBOL_IF_KUNIT(keel_workers_stop);

/**
 * keel_workers_init() - allocate what all workers share
 *
 * Return: 0, or -ENOMEM.
 */
int keel_workers_init(void)
{
	int ret;

	keel_worker_wq = alloc_workqueue("keel_defer", WQ_UNBOUND, 0);
	if (!keel_worker_wq)
		return -ENOMEM;
	ret = keel_reaps_init();
	if (ret)
		destroy_workqueue(keel_worker_wq);
	return ret;
}

/**
 * keel_workers_exit() - undo keel_workers_init(), when no device is left
 *
 * Kills processes whose workers do not end: see keel_reaps_end().
 */
void keel_workers_exit(void)
{
	/* Deferred work has references on workers, and so on their users. */
	keel_reaps_end();
	destroy_workqueue(keel_worker_wq);
	keel_reaps_exit();
}

/**
 * keel_worker_defer() - do work in another context
 * @work: the work; done before the module is unloaded
 *
 * Context: any.
 */
void keel_worker_defer(struct work_struct *work)
{
	queue_work(keel_worker_wq, work);
}
EXPORT_SYMBOL_IF_KUNIT(keel_worker_defer);

/**
 * keel_worker_settle() - wait for all work of keel_worker_defer()
 *
 * Context: may sleep.
 */
void keel_worker_settle(void)
{
	flush_workqueue(keel_worker_wq);
}
EXPORT_SYMBOL_IF_KUNIT(keel_worker_settle);
