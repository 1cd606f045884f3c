// SPDX-License-Identifier: GPL-2.0
/*
 * Workers: see keel_worker.h.
 *
 * Lifetime: the context's list has a reference on each worker, and so does
 * everything that may queue a job on it. keel_workers_stop() ends the threads
 * when the context has no object left; the last reference frees the structure.
 *
 * A process that is stopped (SIGSTOP, a debugger, the cgroup freezer) stops its
 * worker as well, which cannot end before the process continues. keel does not
 * wait for a stopped thread: the thread itself requests its end when it runs
 * again, see keel_worker_stop().
 */
#include <linux/atomic.h>
#include <linux/err.h>
#include <linux/mmap_lock.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/wait.h>
#include <linux/wait_bit.h>
#include <kunit/visibility.h>

#include "compat.h"
#include "keel_point.h"
#include "keel_reap.h"
#include "keel_wait.h"
#include "keel_worker.h"

/* The longest pause between two attempts to take an mmap_lock. */
#define KEEL_LOCK_PAUSE		max(HZ / 100L, 1L)

static void keel_worker_free(struct kref *ref)
{
	struct keel_worker *worker = container_of(ref, struct keel_worker, ref);

	if (worker->helpers)
		worker->put_helpers(worker->helpers);
	keel_reap_fini(&worker->reap);
	put_pid(worker->owner);
	mmdrop(worker->mm);
	kfree_rcu(worker, rcu);
}

/**
 * keel_worker_get() - take a reference
 * @worker: a worker that the caller has a reference on already
 *
 * Context: any.
 */
void keel_worker_get(struct keel_worker *worker)
{
	kref_get(&worker->ref);
}
EXPORT_SYMBOL_IF_KUNIT(keel_worker_get);

/**
 * keel_worker_put() - drop a reference
 * @worker: the worker, or NULL
 *
 * Context: process context.
 */
void keel_worker_put(struct keel_worker *worker)
{
	if (worker)
		kref_put(&worker->ref, keel_worker_free);
}
EXPORT_SYMBOL_IF_KUNIT(keel_worker_put);

/**
 * keel_job_init() - initialize a job that is not queued
 * @job: the job
 * @run: &keel_job.run
 */
void keel_job_init(struct keel_job *job,
		   void (*run)(struct keel_job *job, bool alive))
{
	INIT_LIST_HEAD(&job->node);
	job->state = 0;
	job->worker = NULL;
	job->run = run;
}
EXPORT_SYMBOL_IF_KUNIT(keel_job_init);

/**
 * keel_job_queue() - queue a job on a worker
 * @worker: the worker; the caller has a reference
 * @job: the job
 *
 * A running job may be queued again.
 *
 * Context: any.
 * Return: 1 if it was queued; 0 if it is queued already, on any worker; -ESRCH
 * if the worker is dead: the job is unchanged.
 */
int keel_job_queue(struct keel_worker *worker, struct keel_job *job)
{
	keel_stub(keel_job_queue, worker, job);
	/* From here on, this thread owns the job's node. */
	if (test_and_set_bit(0, &job->state))
		return 0;
	guard(spinlock_irqsave)(&worker->lock);
	if (worker->dead) {
		clear_bit_unlock(0, &job->state);
		return -ESRCH;
	}
	job->worker = worker;
	list_add_tail(&job->node, &worker->jobs);
	/* Under the lock: a dead worker's thread may have ended. */
	keel_thread_wake(&worker->task);
	return 1;
}
EXPORT_SYMBOL_IF_KUNIT(keel_job_queue);

/**
 * keel_job_is_queued() - check whether a job is queued
 * @job: the job
 *
 * Context: any.
 * Return: true if it is queued on any worker, and has not begun.
 */
bool keel_job_is_queued(const struct keel_job *job)
{
	return test_bit(0, &job->state);
}
EXPORT_SYMBOL_IF_KUNIT(keel_job_is_queued);

static void keel_job_dequeue(struct keel_worker *worker, struct keel_job *job)
	__must_hold(&worker->lock)
{
	list_del_init(&job->node);
	job->worker = NULL;
	clear_bit_unlock(0, &job->state);
	/* The job sees what a thread wrote that still found the bit set. */
	smp_mb__after_atomic();
}

/**
 * keel_job_take_back() - dequeue a job that has not begun
 * @worker: the worker that it may be queued on
 * @job: the job
 *
 * Context: any.
 * Return: true if it was queued there: the caller now owns its references.
 */
bool keel_job_take_back(struct keel_worker *worker, struct keel_job *job)
{
	guard(spinlock_irqsave)(&worker->lock);
	if (job->worker != worker)
		return false;
	keel_job_dequeue(worker, job);
	return true;
}
EXPORT_SYMBOL_IF_KUNIT(keel_job_take_back);

/**
 * keel_job_cancel() - dequeue a job, or wait until it has run
 * @worker: the worker that it may be queued on
 * @job: the job, which is not queued on @worker again and does not wait for anything
 *
 * Context: may sleep.
 * Return: true if it was queued there and had not begun.
 */
bool keel_job_cancel(struct keel_worker *worker, struct keel_job *job)
{
	bool was_queued;

	keel_stub(keel_job_cancel, worker, job);
	was_queued = keel_job_take_back(worker, job);
	keel_wait_var(&worker->running,
		      READ_ONCE(worker->running[0]) != job &&
		      READ_ONCE(worker->running[1]) != job);
	/* Order the accesses of the job before those of the caller. */
	smp_acquire__after_ctrl_dep();
	return was_queued;
}
EXPORT_SYMBOL_IF_KUNIT(keel_job_cancel);

static struct keel_job *keel_worker_next(struct keel_worker *worker, int slot)
{
	struct keel_job *job;

	guard(spinlock_irqsave)(&worker->lock);
	job = list_first_entry_or_null(&worker->jobs, struct keel_job, node);
	if (job) {
		keel_job_dequeue(worker, job);
		WRITE_ONCE(worker->running[slot], job);
	}
	return job;
}

static void keel_worker_do(struct keel_worker *worker, struct keel_job *job,
			   bool alive, int slot)
{
	job->run(job, alive);
	/* The job may be freed by now. Pairs with keel_job_cancel(). */
	smp_store_release(&worker->running[slot], NULL);
	/* Either the waiter sees NULL, or wake_up_var() sees the waiter. */
	smp_mb();
	wake_up_var(&worker->running);
}

/*
 * The thread runs, so its end is near. Returns true once: it calls keel_reap_ready(),
 * without the lock.
 */
static bool keel_worker_is_ready(struct keel_worker *worker)
{
	bool ending;

	guard(spinlock_irqsave)(&worker->lock);
	ending = worker->ending;
	worker->ending = false;
	return ending;
}

/* The thread's function: run one job. Returns false if none is queued. */
static bool keel_worker_run(void *data)
{
	struct keel_worker *worker = data;
	struct keel_job *job;

	if (keel_thread_return()) {
		__set_current_state(TASK_RUNNING);
		return true;
	}
	keel_worker_note(worker);
	job = keel_worker_next(worker, 0);
	/* Without a job, keep the task state: a new job changes it. */
	if (!job) {
		if (keel_worker_is_ready(worker))
			keel_reap_ready(&worker->reap, false);
		return false;
	}
	__set_current_state(TASK_RUNNING);
	keel_worker_do(worker, job, !keel_worker_is_dead(worker), 0);
	/* There may be a new job each time. */
	cond_resched_tasks_rcu_qs();
	return true;
}

/**
 * keel_worker_close() - accept no more jobs
 * @worker: the worker
 *
 * Context: any.
 */
void keel_worker_close(struct keel_worker *worker)
{
	guard(spinlock_irqsave)(&worker->lock);
	WRITE_ONCE(worker->dead, true);
}
EXPORT_SYMBOL_IF_KUNIT(keel_worker_close);

/* Accept no more jobs, and run those that are left with @alive false. */
static void keel_worker_drain(struct keel_worker *worker, int slot)
{
	struct keel_job *job;

	keel_worker_close(worker);
	while ((job = keel_worker_next(worker, slot)))
		keel_worker_do(worker, job, false, slot);
}

/**
 * keel_worker_hold_mm() - keep the memory of a process for a moment
 * @worker: the worker of the process; the caller has a reference
 *
 * The thread that drops the last reference on the memory of a process frees it all. That
 * takes long, and may wait for I/O of the process without a limit. So only the process
 * itself must do so: its worker has a reference, and does not exit before
 * keel_worker_release_mm() is called. Where that is so, the caller does not wait for
 * another thread until then.
 *
 * Context: process context.
 * Return: false if the process is about to exit.
 */
bool keel_worker_hold_mm(struct keel_worker *worker)
{
	/* Else users that take turns could delay the exit without a limit. */
	if (keel_worker_is_dead(worker))
		return false;
	return KEEL_THREAD_HAS_MM ? atomic_inc_not_zero(&worker->users) :
				    mmget_not_zero(worker->mm);
}
EXPORT_SYMBOL_IF_KUNIT(keel_worker_hold_mm);

/**
 * keel_worker_release_mm() - undo a keel_worker_hold_mm() that returned true
 * @worker: the worker
 *
 * Context: process context.
 */
void keel_worker_release_mm(struct keel_worker *worker)
{
	if (!KEEL_THREAD_HAS_MM)
		mmput_async(worker->mm);
	else if (atomic_dec_and_test(&worker->users))
		wake_up_var(&worker->users);
}
EXPORT_SYMBOL_IF_KUNIT(keel_worker_release_mm);

static bool keel_worker_has_users(const struct keel_worker *worker)
{
	if (atomic_read(&worker->users))
		return true;
	/* Order the accesses of all users before the exit of the thread. */
	smp_acquire__after_ctrl_dep();
	return false;
}

/*
 * The thread exits, and has perhaps the last reference on the memory. If the context has
 * no objects, the thread does not call this: no key is left that opens the memory. A user
 * may get no processor for long.
 */
static void keel_worker_wait_mm(struct keel_worker *worker)
{
	keel_worker_release_mm(worker);
	keel_wait_var(&worker->users, !keel_worker_has_users(worker));
}

/* The thread's function if the process is killed. */
static void keel_worker_killed(void *data)
{
	struct keel_worker *worker = data;
	bool ready;

	keel_worker_drain(worker, 0);
	keel_worker_wait_mm(worker);
	scoped_guard(spinlock_irqsave, &worker->lock) {
		worker->killed = true;
		ready = worker->ending;
		worker->ending = false;
	}
	/* The worker exists at least until this returns: the reap waits for the thread. */
	if (ready)
		keel_reap_ready(&worker->reap, true);
	else
		keel_reap_killed(&worker->reap);
}

/**
 * keel_worker_lock_mm() - take the mmap_lock of a process for reading
 * @worker: the worker of the process that owns the memory; it runs a job
 * @mm: the memory; the caller has a reference
 *
 * This is the only place where keel waits for an mmap_lock, and it holds
 * nothing meanwhile. The wait ends when the process is killed or the context is
 * destroyed, so it cannot be a wait for the lock itself.
 *
 * Context: may sleep; the caller holds no lock and no reference on a key.
 * Return: 0, or -EINTR.
 */
int keel_worker_lock_mm(const struct keel_worker *worker, struct mm_struct *mm)
{
	long pause = 1;

	while (!mmap_read_trylock(mm)) {
		if (keel_worker_is_dead(worker) ||
		    fatal_signal_pending(current))
			return -EINTR;
		schedule_timeout_killable(pause);
		pause = min(pause * 2, KEEL_LOCK_PAUSE);
	}
	return 0;
}
EXPORT_SYMBOL_IF_KUNIT(keel_worker_lock_mm);

static void keel_worker_ended(struct keel_reap *reap)
{
	keel_worker_put(container_of(reap, struct keel_worker, reap));
}

/**
 * keel_worker_stop() - end the thread, and drop the reference of the context's list
 * @worker: the worker, in a list that only the caller uses
 *
 * Runs all queued jobs with @alive false. The thread soon runs and is ready to end. If
 * its process is stopped, it does so when the process continues or is killed. Nothing
 * waits for the thread before that.
 *
 * Context: may sleep.
 */
void keel_worker_stop(struct keel_worker *worker)
{
	bool killed;

	keel_worker_drain(worker, 1);
	list_del(&worker->node);
	keel_reap_add(&worker->reap);
	scoped_guard(spinlock_irqsave, &worker->lock) {
		killed = worker->killed;
		/* After this section, a thread that was not killed may free the worker. */
		worker->ending = !killed;
		if (!killed)
			keel_thread_wake(&worker->task);
	}
	keel_point("worker_stopped");
	if (killed)
		keel_reap_ready(&worker->reap, true);
}

/**
 * keel_worker_new() - create a worker of the calling process, in no list
 *
 * Context: process context of a user process.
 * Return: the worker, with the reference of the list; or as keel_worker_of_current().
 */
struct keel_worker *keel_worker_new(void)
{
	struct keel_worker *worker = kzalloc_obj(*worker, GFP_KERNEL_ACCOUNT);
	int ret;

	if (!worker)
		return ERR_PTR(-ENOMEM);
	kref_init(&worker->ref);
	atomic_set(&worker->users, 1);
	spin_lock_init(&worker->lock);
	/* No other thread has the worker yet. */
	context_unsafe(INIT_LIST_HEAD(&worker->jobs));
	mmgrab(current->mm);
	worker->mm = current->mm;
	worker->owner = get_pid(task_tgid(current));
	worker->reap.thread = &worker->task;
	worker->reap.owner = worker->owner;
	worker->reap.ended = keel_worker_ended;
	ret = keel_reap_init(&worker->reap);
	if (ret)
		goto err;
	ret = keel_thread_start(&worker->task, keel_worker_run,
				keel_worker_killed, worker);
	if (!ret)
		return worker;
err:
	keel_worker_put(worker);
	return ERR_PTR(ret);
}
