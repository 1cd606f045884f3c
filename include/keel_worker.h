/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Workers: threads that work for a user process when none of its own threads is in
 * the kernel to do so. They continue what the process has requested, and provide
 * memory that only the process can provide. A core unit: it depends on processes
 * and jobs, but on no queue and no verb.
 *
 * A worker is a thread of the process that it works for. So its time is charged to
 * the cgroup of that process, and it has the nice value and the memory of the
 * process. It stops when the process is stopped, and ends when the process is
 * killed. Kernels that do not let a driver have such a thread give each worker a
 * workqueue of its own, which runs one job at a time.
 */
#ifndef KEEL_WORKER_H
#define KEEL_WORKER_H

#include <linux/atomic.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/workqueue.h>

#include "compat.h"
#include "keel_reap.h"

struct keel_helpers;
struct keel_worker;
struct mm_struct;
struct pid;
struct task_struct;

/**
 * struct keel_job - something for a worker to do
 * @node: in &keel_worker.jobs
 * @state: bit 0: the job is queued; only the thread that set it may access @node
 * @worker: the worker that it is queued on, under that worker's lock
 * @run: does the job. If @alive is false, the process is dead or has closed the
 *	device: @run starts no new work for it, and only ends what is pending. May
 *	sleep. From here on the job may be queued again, or freed.
 */
struct keel_job {
	struct list_head node;
	unsigned long state;
	struct keel_worker *worker;
	void (*run)(struct keel_job *job, bool alive);
};

/**
 * struct keel_worker - a thread that works for a process
 * @ref: references, see worker.c
 * @node: in &keel_workers.list
 * @mm: the memory of the process; mmgrab()
 * @users: those who use the content of @mm, see keel_worker_hold_mm(), and the thread. Not
 *	used by kernels whose threads have no reference on @mm.
 * @owner: the process
 * @lock: protects the four members below; taken in any context, inside all other
 *	locks
 * @jobs: struct keel_job, the oldest first
 * @dead: accepts no more jobs
 * @ending: the thread is to call keel_reap_ready() when it runs
 * @killed: the thread no longer runs, because its process was killed
 * @running: the job that the thread runs, and the job that runs where the
 *	worker is ended; only compared
 * @task: the thread
 * @self: the thread, when it last ran; only compared
 * @wide: the thread may run on several processors, when it last ran; false before. Likewise
 *	@policy and @prio
 * @policy: its scheduling policy
 * @prio: its priority, &task_struct.normal_prio
 * @poll_us: how long it polls a queue in which nothing happens, us; 0: it does not poll
 * @helpers: threads that copy with it, a reference; NULL: none. Set once, under @lock, after
 *	@put_helpers
 * @put_helpers: drops the reference
 * @wants_help: a call of the process is to get them
 * @helpless: there are none, and nobody tries to get them
 * @rcu: for readers that look for the worker of a QP
 * @reap: the end of @task, from @ending on
 */
struct keel_worker {
	struct kref ref;
	struct list_head node;
	struct mm_struct *mm;
	atomic_t users;
	struct pid *owner;
	spinlock_t lock;
	struct list_head jobs __guarded_by(&lock);
	bool dead __guarded_by(&lock);
	bool ending __guarded_by(&lock);
	bool killed __guarded_by(&lock);
	const struct keel_job *running[2];
	struct keel_thread task;
	const struct task_struct *self;
	bool wide;
	unsigned int policy;
	int prio;
	unsigned int poll_us;
	struct keel_helpers *helpers;
	void (*put_helpers)(struct keel_helpers *helpers);
	bool wants_help;
	bool helpless;
	struct rcu_head rcu;
	struct keel_reap reap;
};

/**
 * struct keel_workers - workers of a context, one for each process that uses it. A
 *	context has several such lists: see &struct keel_ib_ctx
 * @lock: protects @list
 * @list: struct keel_worker
 */
struct keel_workers {
	spinlock_t lock;
	struct list_head list __guarded_by(&lock);
};

int keel_workers_init(void);
void keel_workers_exit(void);

void keel_workers_setup(struct keel_workers *workers);
void keel_workers_stop(struct keel_workers *workers);

struct keel_worker *keel_worker_of_current(struct keel_workers *workers);
int keel_workers_poll(struct keel_workers *workers, unsigned int us);
struct keel_worker *keel_worker_new(void);
void keel_worker_close(struct keel_worker *worker);
void keel_worker_stop(struct keel_worker *worker);
void keel_worker_get(struct keel_worker *worker);
void keel_worker_put(struct keel_worker *worker);
bool keel_worker_is_dead(const struct keel_worker *worker);
bool keel_worker_is_ours(const struct keel_worker *worker);
bool keel_worker_is_current(const struct keel_worker *worker);
bool keel_worker_is_busy(const struct keel_worker *worker);
bool keel_worker_is_idle(const struct keel_worker *worker);
bool keel_worker_may_replace(const struct keel_worker *worker);
void keel_worker_note(struct keel_worker *worker);

/**
 * keel_worker_poll_ns() - how long a worker polls a queue in which nothing happens
 * @worker: the worker, kept by RCU or a reference
 *
 * Context: any.
 * Return: ns; 0: its process wants no polling.
 */
static inline u64 keel_worker_poll_ns(const struct keel_worker *worker)
{
	return READ_ONCE(worker->poll_us) * 1000ULL;
}

void keel_job_init(struct keel_job *job,
		   void (*run)(struct keel_job *job, bool alive));
int keel_job_queue(struct keel_worker *worker, struct keel_job *job);
bool keel_job_is_queued(const struct keel_job *job);
bool keel_job_take_back(struct keel_worker *worker, struct keel_job *job);
bool keel_job_cancel(struct keel_worker *worker, struct keel_job *job);

void keel_worker_defer(struct work_struct *work);
void keel_worker_settle(void);
int keel_worker_lock_mm(const struct keel_worker *worker, struct mm_struct *mm);
bool keel_worker_hold_mm(struct keel_worker *worker);
void keel_worker_release_mm(struct keel_worker *worker);

#endif /* KEEL_WORKER_H */
