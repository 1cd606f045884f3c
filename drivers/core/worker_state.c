// SPDX-License-Identifier: GPL-2.0
/*
 * Questions about a worker, without its lock: does it belong to this process, or is this its
 * thread? Has it work, and may it take over what the caller does?
 */
#include <linux/cpumask.h>
#include <linux/list.h>
#include <linux/sched.h>
#include <linux/sched/prio.h>
#include <linux/sched/signal.h>
#include <kunit/visibility.h>

#include "compat.h"
#include "keel_point.h"
#include "keel_worker.h"

/**
 * keel_worker_is_dead() - check whether a worker accepts no more jobs
 * @worker: the worker
 *
 * Context: any. A dead worker stays dead.
 * Return: true if its process was killed or has closed the context.
 */
bool keel_worker_is_dead(const struct keel_worker *worker)
{
	/* It changes once, and a caller that must not miss that has the lock. */
	return context_unsafe(READ_ONCE(worker->dead));
}
EXPORT_SYMBOL_IF_KUNIT(keel_worker_is_dead);

/**
 * keel_worker_is_busy() - check whether other jobs wait for a worker
 * @worker: the worker
 *
 * Context: any.
 * Return: true if the current job should let other jobs run.
 */
bool keel_worker_is_busy(const struct keel_worker *worker)
{
	/* A hint: a job may be queued just now. */
	return context_unsafe(!list_empty_careful(&worker->jobs));
}
EXPORT_SYMBOL_IF_KUNIT(keel_worker_is_busy);

/**
 * keel_worker_is_idle() - check whether a worker would run a job at once
 * @worker: the worker, kept by RCU or a reference
 *
 * Context: any.
 * Return: true if it runs no job, and none waits. This may change at once.
 */
bool keel_worker_is_idle(const struct keel_worker *worker)
{
	return !READ_ONCE(worker->running[0]) && !keel_worker_is_busy(worker);
}
EXPORT_SYMBOL_IF_KUNIT(keel_worker_is_idle);

/**
 * keel_worker_may_replace() - may a worker do at the same time what the caller could do?
 * @worker: the worker of the calling process, kept by RCU or a reference
 *
 * Context: process context.
 * Return: true if it is a thread of the process, with the priority of the calling thread,
 * that may use another processor. A thread of real-time priority may keep all processors
 * from others.
 */
bool keel_worker_may_replace(const struct keel_worker *worker)
{
	keel_stub(keel_worker_may_replace, worker);
	return KEEL_THREAD_HAS_MM && num_online_cpus() > 1 && READ_ONCE(worker->wide) &&
	       current->normal_prio >= MAX_RT_PRIO &&
	       READ_ONCE(worker->policy) == current->policy &&
	       READ_ONCE(worker->prio) == current->normal_prio;
}
EXPORT_SYMBOL_IF_KUNIT(keel_worker_may_replace);

/**
 * keel_worker_note() - note what keel_worker_may_replace() needs, and the thread
 * @worker: the worker of the calling thread
 *
 * The process may change it at any time, as taskset does.
 *
 * Context: the thread of the worker.
 */
void keel_worker_note(struct keel_worker *worker)
{
	bool wide = current->nr_cpus_allowed > 1;

	if (worker->self != current)
		WRITE_ONCE(worker->self, current);
	/* Doorbells of other threads read them: do not write what is there. */
	if (worker->wide != wide)
		WRITE_ONCE(worker->wide, wide);
	if (worker->policy != current->policy)
		WRITE_ONCE(worker->policy, current->policy);
	if (worker->prio != current->normal_prio)
		WRITE_ONCE(worker->prio, current->normal_prio);
}
EXPORT_SYMBOL_IF_KUNIT(keel_worker_note);

/**
 * keel_worker_is_current() - is this the thread of a worker?
 * @worker: the worker, kept by RCU or a reference
 *
 * Context: process context.
 * Return: true if the calling thread runs its jobs. Then the thread keeps the worker, and
 * what that has references on: the list of workers has a reference until the thread ends.
 */
bool keel_worker_is_current(const struct keel_worker *worker)
{
	/* Another thread at the same address comes after the end: the worker is dead. */
	return READ_ONCE(worker->self) == current && keel_worker_is_ours(worker);
}
EXPORT_SYMBOL_IF_KUNIT(keel_worker_is_current);

/**
 * keel_worker_is_ours() - check whether a worker belongs to the calling process
 * @worker: the worker, kept by RCU or a reference
 *
 * Context: process context.
 * Return: true if it does and is not dead.
 */
bool keel_worker_is_ours(const struct keel_worker *worker)
{
	return worker->owner == task_tgid(current) &&
	       worker->mm == current->mm && !keel_worker_is_dead(worker);
}
EXPORT_SYMBOL_IF_KUNIT(keel_worker_is_ours);
