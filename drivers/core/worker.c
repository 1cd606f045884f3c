// SPDX-License-Identifier: GPL-2.0
/*
 * Workers: see keel_worker.h.
 *
 * Lifetime: the context's list has a reference on each worker, and so has
 * everything that may queue a job on it. keel_workers_stop() ends the threads,
 * when the context has no object left; the structure goes with its last
 * reference.
 *
 * A process that is stopped (SIGSTOP, a debugger, the cgroup freezer) stops its
 * worker as well, which then does not end before the process goes on. Nobody
 * waits for one that is stopped: the thread asks for its end when it runs again,
 * see keel_worker_end().
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
#include "keel_worker.h"

/* How long rmmod waits for processes that are stopped before it ends them. */
#define KEEL_REAP_PATIENCE	(HZ / 4)
/* The longest pause between two tries to get an mmap_lock that is taken. */
#define KEEL_LOCK_PAUSE		max(HZ / 100L, 1L)

/**
 * struct keel_worker - a thread that works for a process
 * @ref: see above
 * @node: in &keel_workers.list
 * @mm: the memory of the process, to be compared only; mmgrab()
 * @owner: the process
 * @lock: protects the four below; taken in any context, inside anything
 * @jobs: struct keel_job, the oldest first
 * @dead: takes no more jobs
 * @ending: in keel_reaps.list: @reap is to be queued when the thread runs
 * @killed: the thread runs no more, since its process was killed
 * @running: the job that the thread runs, and the one that is run where the
 *	worker is ended; to be compared only
 * @task: the thread
 * @rcu: for those who look for the worker of a QP
 * @reap: waits until the thread has ended, which is soon when this is queued
 * @reaping: in keel_reaps.list, from @ending on
 */
struct keel_worker {
	struct kref ref;
	struct list_head node;
	struct mm_struct *mm;
	struct pid *owner;
	spinlock_t lock;
	struct list_head jobs;
	bool dead;
	bool ending;
	bool killed;
	const struct keel_job *running[2];
	struct keel_thread task;
	struct rcu_head rcu;
	struct work_struct reap;
	struct list_head reaping;
};

/* Threads that are to end, and what waits for those that run. */
static struct {
	spinlock_t lock;
	struct list_head list;
	wait_queue_head_t wait;
	struct workqueue_struct *wq;
	struct workqueue_struct *deferred;
} keel_reaps = {
	.lock = __SPIN_LOCK_UNLOCKED(keel_reaps.lock),
	.list = LIST_HEAD_INIT(keel_reaps.list),
	.wait = __WAIT_QUEUE_HEAD_INITIALIZER(keel_reaps.wait),
};

static void keel_worker_free(struct kref *ref)
{
	struct keel_worker *worker = container_of(ref, struct keel_worker, ref);

	put_pid(worker->owner);
	mmdrop(worker->mm);
	kfree_rcu(worker, rcu);
}

/**
 * keel_worker_hold() - take a reference
 * @worker: a worker that the caller has a reference on already
 *
 * Context: any.
 */
void keel_worker_hold(struct keel_worker *worker)
{
	kref_get(&worker->ref);
}

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

/**
 * keel_worker_is_dead() - does a worker take no more jobs?
 * @worker: the worker
 *
 * Context: any. A worker that is dead stays so.
 * Return: whether its process was killed or has let go of the context.
 */
bool keel_worker_is_dead(const struct keel_worker *worker)
{
	return READ_ONCE(worker->dead);
}

/**
 * keel_worker_is_busy() - does other work wait for a worker?
 * @worker: the worker
 *
 * Context: any.
 * Return: whether the job that runs now should let others have a turn.
 */
bool keel_worker_is_busy(const struct keel_worker *worker)
{
	return !list_empty_careful(&worker->jobs);
}

/**
 * keel_worker_is_ours() - does a worker belong to the calling process?
 * @worker: the worker, kept by RCU or a reference
 *
 * Context: process context.
 * Return: true if so, and if it is not dead.
 */
bool keel_worker_is_ours(const struct keel_worker *worker)
{
	return worker->owner == task_tgid(current) &&
	       worker->mm == current->mm && !keel_worker_is_dead(worker);
}

/**
 * keel_job_init() - make a job that is not queued
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
 * keel_job_queue() - have a worker do a job
 * @worker: the worker; the caller has a reference
 * @job: the job
 *
 * A job that runs may be queued again.
 *
 * Context: any.
 * Return: 1: queued; 0: it is queued already, on whichever worker; -ESRCH: the
 * worker is dead, and the job is as it was.
 */
int keel_job_queue(struct keel_worker *worker, struct keel_job *job)
{
	unsigned long flags;
	bool dead;

	/* From here on the job's node is ours. */
	if (test_and_set_bit(0, &job->state))
		return 0;
	spin_lock_irqsave(&worker->lock, flags);
	dead = worker->dead;
	if (!dead) {
		job->worker = worker;
		list_add_tail(&job->node, &worker->jobs);
		/* Under the lock: a dead worker's thread may be gone. */
		keel_thread_wake(&worker->task);
	}
	spin_unlock_irqrestore(&worker->lock, flags);
	if (!dead)
		return 1;
	clear_bit_unlock(0, &job->state);
	return -ESRCH;
}
EXPORT_SYMBOL_IF_KUNIT(keel_job_queue);

/* Context: the worker's lock is held. */
static void keel_job_take(struct keel_job *job)
{
	list_del_init(&job->node);
	job->worker = NULL;
	clear_bit_unlock(0, &job->state);
	/* A kick that still finds the bit set is one that the job sees. */
	smp_mb__after_atomic();
}

/**
 * keel_job_take_back() - take a job back that has not begun
 * @worker: the worker that it may be queued on
 * @job: the job
 *
 * Context: any.
 * Return: whether it was queued there: its references are the caller's.
 */
bool keel_job_take_back(struct keel_worker *worker, struct keel_job *job)
{
	guard(spinlock_irqsave)(&worker->lock);
	if (job->worker != worker)
		return false;
	keel_job_take(job);
	return true;
}

/**
 * keel_job_cancel() - take a job back, or wait until it has run
 * @worker: the worker that it may be queued on
 * @job: the job, which nobody queues any more, and which waits for nobody
 *
 * Context: may sleep.
 * Return: whether it was queued there and has not begun.
 */
bool keel_job_cancel(struct keel_worker *worker, struct keel_job *job)
{
	bool was_queued = keel_job_take_back(worker, job);

	wait_var_event(&worker->running,
		       READ_ONCE(worker->running[0]) != job &&
		       READ_ONCE(worker->running[1]) != job);
	/* The job's last steps come before those of the caller. */
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
		keel_job_take(job);
		WRITE_ONCE(worker->running[slot], job);
	}
	return job;
}

static void keel_worker_do(struct keel_worker *worker, struct keel_job *job,
			   bool alive, int slot)
{
	job->run(job, alive);
	/* It may be gone. Pairs with keel_job_cancel(). */
	smp_store_release(&worker->running[slot], NULL);
	/* A waiter sees that, or we see the waiter. */
	smp_mb();
	wake_up_var(&worker->running);
}

/*
 * The thread runs, or never will again: it can be waited for.
 *
 * Context: the worker's lock is held.
 */
static void keel_worker_reap_once(struct keel_worker *worker)
{
	if (!worker->ending)
		return;
	worker->ending = false;
	queue_work(keel_reaps.wq, &worker->reap);
}

/* One job, or false if there is none. The thread's function. */
static bool keel_worker_run(void *data)
{
	struct keel_worker *worker = data;
	struct keel_job *job;

	if (keel_thread_return()) {
		__set_current_state(TASK_RUNNING);
		return true;
	}
	job = keel_worker_next(worker, 0);
	/* Without a job the state stays: a job that comes now changes it. */
	if (!job) {
		guard(spinlock_irqsave)(&worker->lock);
		keel_worker_reap_once(worker);
		return false;
	}
	__set_current_state(TASK_RUNNING);
	keel_worker_do(worker, job, !worker->dead, 0);
	cond_resched();
	return true;
}

/* No more jobs. */
static void keel_worker_kill(struct keel_worker *worker)
{
	guard(spinlock_irqsave)(&worker->lock);
	WRITE_ONCE(worker->dead, true);
}

/* No more jobs; those that are left hear of it. */
static void keel_worker_drain(struct keel_worker *worker, int slot)
{
	struct keel_job *job;

	keel_worker_kill(worker);
	while ((job = keel_worker_next(worker, slot)))
		keel_worker_do(worker, job, false, slot);
}

/* The process is killed. The thread's function, again. */
static void keel_worker_die(void *data)
{
	struct keel_worker *worker = data;

	keel_worker_drain(worker, 0);
	guard(spinlock_irqsave)(&worker->lock);
	worker->killed = true;
	keel_worker_reap_once(worker);
}

/**
 * keel_worker_lock_mm() - take the mmap_lock of a process for reading
 * @worker: the worker of the process whose memory it is; runs a job
 * @mm: the memory; the caller keeps it
 *
 * This is the only wait for an mmap_lock in keel, and nothing is held meanwhile.
 * It ends when the process is killed, and when the context goes: so it cannot be
 * a wait for the lock itself.
 *
 * Context: may sleep; no lock is held and no key in use.
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

static void keel_worker_reap(struct work_struct *work)
{
	struct keel_worker *worker = container_of(work, struct keel_worker,
						  reap);

	keel_thread_stop(&worker->task);
	spin_lock(&keel_reaps.lock);
	list_del(&worker->reaping);
	/* Under the lock: nobody who sees an empty list leaves before. */
	wake_up_all(&keel_reaps.wait);
	spin_unlock(&keel_reaps.lock);
	keel_worker_put(worker);
}

/*
 * End the thread and drop the reference of the context's list. The thread runs
 * in a moment, and has itself reaped then; if its process is stopped, when that
 * goes on or is killed. Nothing sleeps for it until it has run once more.
 */
static void keel_worker_end(struct keel_worker *worker)
{
	keel_worker_drain(worker, 1);
	list_del(&worker->node);
	spin_lock(&keel_reaps.lock);
	list_add_tail(&worker->reaping, &keel_reaps.list);
	spin_unlock(&keel_reaps.lock);
	guard(spinlock_irqsave)(&worker->lock);
	worker->ending = true;
	if (worker->killed)
		keel_worker_reap_once(worker);
	else
		keel_thread_wake(&worker->task);
}

static struct keel_worker *keel_worker_new(void)
{
	struct keel_worker *worker = kzalloc_obj(*worker, GFP_KERNEL_ACCOUNT);
	int ret;

	if (!worker)
		return ERR_PTR(-ENOMEM);
	kref_init(&worker->ref);
	spin_lock_init(&worker->lock);
	INIT_LIST_HEAD(&worker->jobs);
	INIT_WORK(&worker->reap, keel_worker_reap);
	mmgrab(current->mm);
	worker->mm = current->mm;
	worker->owner = get_pid(task_tgid(current));
	ret = keel_thread_start(&worker->task, keel_worker_run,
				keel_worker_die, worker);
	if (!ret)
		return worker;
	keel_worker_put(worker);
	return ERR_PTR(ret);
}

/* Their jobs run here, so the lock of the context's list is not held. */
static void keel_workers_end(struct list_head *gone)
{
	struct keel_worker *worker, *next;

	list_for_each_entry_safe(worker, next, gone, node)
		keel_worker_end(worker);
}

/*
 * With a reference for the caller, or an error. Workers of processes that are no
 * more go to @gone.
 */
static struct keel_worker *keel_worker_find(struct keel_workers *workers,
					    struct list_head *gone)
{
	struct keel_worker *worker, *next;

	lockdep_assert_held(&workers->lock);
	list_for_each_entry_safe(worker, next, &workers->list, node) {
		if (worker->dead || !atomic_read(&worker->mm->mm_users)) {
			/* Now: the caller takes over what it ran. */
			keel_worker_kill(worker);
			list_move_tail(&worker->node, gone);
		} else if (worker->mm == current->mm) {
			keel_worker_hold(worker);
			return worker;
		}
	}
	worker = keel_worker_new();
	if (IS_ERR(worker))
		return worker;
	keel_worker_hold(worker);
	list_add_tail(&worker->node, &workers->list);
	return worker;
}

/**
 * keel_worker_get() - the worker of the calling process
 * @workers: of a context that it uses
 *
 * Context: process context of a user process.
 * Return: the worker, with a reference that the caller drops; ERR_PTR(-ENOMEM),
 * ERR_PTR(-EAGAIN) when the process can have no more threads, or
 * ERR_PTR(-ERESTARTNOINTR) for a signal, after which the call starts anew.
 */
struct keel_worker *keel_worker_get(struct keel_workers *workers)
{
	struct keel_worker *worker;
	LIST_HEAD(gone);

	if (!current->mm)
		return ERR_PTR(-EINVAL);
	scoped_guard(mutex, &workers->lock)
		worker = keel_worker_find(workers, &gone);
	keel_workers_end(&gone);
	return worker;
}

/**
 * keel_workers_setup() - make a context that has no worker
 * @workers: of the context
 */
void keel_workers_setup(struct keel_workers *workers)
{
	mutex_init(&workers->lock);
	INIT_LIST_HEAD(&workers->list);
}

/**
 * keel_workers_stop() - a context goes, and with it its workers
 * @workers: of the context, which has no object any more
 *
 * Jobs that are queued are run with @alive false, before this returns.
 *
 * Context: may sleep.
 */
void keel_workers_stop(struct keel_workers *workers)
{
	LIST_HEAD(gone);

	scoped_guard(mutex, &workers->lock)
		list_splice_init(&workers->list, &gone);
	keel_workers_end(&gone);
	mutex_destroy(&workers->lock);
}

static void keel_workers_free(void)
{
	if (keel_reaps.deferred)
		destroy_workqueue(keel_reaps.deferred);
	if (keel_reaps.wq)
		destroy_workqueue(keel_reaps.wq);
}

/**
 * keel_workers_init() - for all workers of the module
 *
 * Return: 0, or -ENOMEM.
 */
int keel_workers_init(void)
{
	/* One may have to wait for a thread that others do not let run. */
	keel_reaps.wq = alloc_workqueue("keel_reap", WQ_UNBOUND, WQ_MAX_ACTIVE);
	keel_reaps.deferred = alloc_workqueue("keel_defer", WQ_UNBOUND, 0);
	if (keel_reaps.wq && keel_reaps.deferred)
		return 0;
	keel_workers_free();
	return -ENOMEM;
}

/**
 * keel_worker_defer() - something short that must be done, and not here
 * @work: a work; done before the module goes
 *
 * Context: any.
 */
void keel_worker_defer(struct work_struct *work)
{
	queue_work(keel_reaps.deferred, work);
}

static bool keel_reaps_done(void)
{
	guard(spinlock)(&keel_reaps.lock);
	return list_empty(&keel_reaps.list);
}

/* The code that would end their threads is about to go. */
static void keel_reaps_kill(void)
{
	struct keel_worker *worker;

	guard(spinlock)(&keel_reaps.lock);
	list_for_each_entry(worker, &keel_reaps.list, reaping) {
		pr_warn("keel: process %d used a device, and does not run: killed, for the module to go\n",
			pid_nr(worker->owner));
		kill_pid(worker->owner, SIGKILL, 1);
	}
}

/**
 * keel_workers_exit() - undo keel_workers_init(), without devices
 *
 * A process that was stopped when its device went, or does not get a processor,
 * still has its thread. One that stays so for a moment is killed: nothing else
 * ends the thread, and the module must not wait for whoever may wake the process
 * one day.
 */
void keel_workers_exit(void)
{
	if (!wait_event_timeout(keel_reaps.wait, keel_reaps_done(),
				KEEL_REAP_PATIENCE))
		keel_reaps_kill();
	wait_event(keel_reaps.wait, keel_reaps_done());
	/* Waits for the functions that have reported themselves. */
	keel_workers_free();
}
