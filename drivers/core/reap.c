// SPDX-License-Identifier: GPL-2.0
/*
 * The ends of worker threads: see keel_reap.h.
 *
 * Lifetime: whatever has a struct keel_reap keeps it, with its thread and its process,
 * from keel_reap_add() until &keel_reap.ended is called.
 */
#include <linux/cred.h>
#include <linux/err.h>
#include <linux/hrtimer.h>
#include <linux/pid.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/wait.h>
#include <linux/xarray.h>
#include <kunit/visibility.h>

#include "keel_quota.h"
#include "keel_reap.h"

/* How long rmmod waits for threads before it does something about them. */
#define KEEL_REAP_PATIENCE	(HZ / 4)
/* The shortest time after which the kernel reports threads as hung is 1 s. */
#define KEEL_REAP_BLINK_MS	400

/*
 * The users are those of all devices: a thread may outlive the device. @unload: the
 * module is removed, all threads are to end at once.
 */
static struct {
	spinlock_t lock;
	struct list_head list __guarded_by(&lock);
	bool unload __guarded_by(&lock);
	wait_queue_head_t wait;
	struct workqueue_struct *wq;
	struct keel_quotas users;
} keel_reaps = {
	.lock = __SPIN_LOCK_UNLOCKED(keel_reaps.lock),
	.list = LIST_HEAD_INIT(keel_reaps.list),
	.wait = __WAIT_QUEUE_HEAD_INITIALIZER(keel_reaps.wait),
};

static struct keel_reaps_line *keel_reap_line(const struct keel_reap *reap)
{
	return &reap->user->reaps.line[reap->killed];
}

static void keel_reap_begin(struct keel_reap *reap)
	__must_hold(&keel_reaps.lock)
{
	list_del_init(&reap->turn);
	reap->queued = true;
	keel_reap_line(reap)->begun++;
	queue_work(keel_reaps.wq, &reap->work);
}

/* Begin now, or at the turn in its line. */
static void keel_reap_line_up(struct keel_reap *reap, bool killed)
	__must_hold(&keel_reaps.lock)
{
	struct keel_reaps_line *line;

	reap->killed = killed;
	line = keel_reap_line(reap);
	if (keel_reaps.unload || line->begun < KEEL_REAPS_OF_USER)
		keel_reap_begin(reap);
	else
		list_add_tail(&reap->turn, &line->waiting);
}

/*
 * The thread has waited for some time, and waits again. The kernel must not report it as
 * hung, and perhaps panic: a user can stop processes for as long as they want to.
 */
static enum hrtimer_restart keel_reap_blink(struct hrtimer *timer)
{
	struct keel_reap *reap = container_of(timer, struct keel_reap, blink);

	/* It stays in keel_reap_work() until the timer is cancelled. */
	wake_up_process(READ_ONCE(reap->waits));
	hrtimer_forward_now(timer, ms_to_ktime(KEEL_REAP_BLINK_MS));
	return HRTIMER_RESTART;
}

static void keel_reap_work(struct work_struct *work)
{
	struct keel_reap *reap = container_of(work, struct keel_reap, work);
	struct keel_reaps_line *line = keel_reap_line(reap);

	scoped_guard(spinlock, &keel_reaps.lock)
		WRITE_ONCE(reap->waits, current);
	hrtimer_start(&reap->blink, ms_to_ktime(KEEL_REAP_BLINK_MS), HRTIMER_MODE_REL);
	keel_thread_stop(reap->thread);
	hrtimer_cancel(&reap->blink);
	scoped_guard(spinlock, &keel_reaps.lock) {
		list_del(&reap->node);
		line->begun--;
		if (!list_empty(&line->waiting))
			keel_reap_begin(list_first_entry(&line->waiting,
							 struct keel_reap, turn));
		/* Locked: rmmod must not see an empty list before this ends. */
		wake_up_all(&keel_reaps.wait);
	}
	reap->ended(reap);
}

/**
 * keel_reap_init() - prepare the end of a thread of the calling process
 * @reap: its public members are set
 *
 * Context: may sleep.
 * Return: 0, or -ENOMEM; else undo it with keel_reap_fini().
 */
int keel_reap_init(struct keel_reap *reap)
{
	reap->user = keel_user_get(&keel_reaps.users, keel_user_id(current_cred()),
				   GFP_KERNEL_ACCOUNT);
	INIT_LIST_HEAD(&reap->turn);
	INIT_WORK(&reap->work, keel_reap_work);
	hrtimer_setup(&reap->blink, keel_reap_blink, CLOCK_MONOTONIC, HRTIMER_MODE_REL);
	return reap->user ? 0 : -ENOMEM;
}
EXPORT_SYMBOL_IF_KUNIT(keel_reap_init);

/**
 * keel_reap_fini() - undo a keel_reap_init()
 * @reap: the end of a thread, not between keel_reap_add() and &keel_reap.ended; or one
 *	that keel_reap_init() has refused
 *
 * Context: any.
 */
void keel_reap_fini(struct keel_reap *reap)
{
	keel_user_put(reap->user);
}
EXPORT_SYMBOL_IF_KUNIT(keel_reap_fini);

/**
 * keel_reap_add() - announce that a thread is to end
 * @reap: the end of the thread
 *
 * From here on the module is not unloaded before the thread has ended, and unloading it
 * kills the process, if that takes long.
 *
 * Context: process context.
 */
void keel_reap_add(struct keel_reap *reap)
{
	guard(spinlock)(&keel_reaps.lock);
	list_add_tail(&reap->node, &keel_reaps.list);
}
EXPORT_SYMBOL_IF_KUNIT(keel_reap_add);

/**
 * keel_reap_ready() - end a thread when it is its turn
 * @reap: the end of the thread, after keel_reap_add(); it may be freed before this
 *	returns, unless the thread is the caller
 * @killed: the process was killed: the thread ends by itself
 *
 * Nothing may use the thread from here on, so it is best if it has just run.
 *
 * Context: process context.
 */
void keel_reap_ready(struct keel_reap *reap, bool killed)
{
	guard(spinlock)(&keel_reaps.lock);
	keel_reap_line_up(reap, killed);
}
EXPORT_SYMBOL_IF_KUNIT(keel_reap_ready);

/**
 * keel_reap_killed() - the process of a thread was killed: do not wait for other threads
 * @reap: the end of the thread, at any time before &keel_reap.ended
 *
 * Context: process context.
 */
void keel_reap_killed(struct keel_reap *reap)
{
	guard(spinlock)(&keel_reaps.lock);
	if (list_empty(&reap->turn))
		return;
	list_del_init(&reap->turn);
	keel_reap_line_up(reap, true);
}
EXPORT_SYMBOL_IF_KUNIT(keel_reap_killed);

/**
 * keel_reaps_init() - allocate what all threads share
 *
 * Return: 0, or -ENOMEM.
 */
int keel_reaps_init(void)
{
	keel_quotas_init(&keel_reaps.users, "keel");
	keel_reaps.wq = alloc_workqueue("keel_reap", WQ_UNBOUND, WQ_MAX_ACTIVE);
	return keel_reaps.wq ? 0 : -ENOMEM;
}

static bool keel_reaps_done(void)
{
	guard(spinlock)(&keel_reaps.lock);
	return list_empty(&keel_reaps.list);
}

static bool keel_reaps_wait(void)
{
	return wait_event_timeout(keel_reaps.wait, keel_reaps_done(), KEEL_REAP_PATIENCE);
}

/* Let all threads end that wait for their turn. */
static void keel_reaps_begin_all(void)
{
	struct keel_reap *reap;

	guard(spinlock)(&keel_reaps.lock);
	keel_reaps.unload = true;
	list_for_each_entry(reap, &keel_reaps.list, node)
		if (!list_empty(&reap->turn))
			keel_reap_begin(reap);
}

/*
 * Collect the processes whose threads do not run: they have not called keel_reap_ready(),
 * or do not end. Any other thread waits for a thread of the workqueue. If memory is short,
 * a process is left for the next time.
 */
static void keel_reaps_find(struct xarray *owners)
{
	struct keel_reap *reap;

	guard(spinlock)(&keel_reaps.lock);
	list_for_each_entry(reap, &keel_reaps.list, node)
		if ((reap->waits || !reap->queued) &&
		    !xa_insert(owners, pid_nr(reap->owner), reap->owner, GFP_ATOMIC))
			get_pid(reap->owner);
}

/*
 * Returns a thread of keel of a process that nothing ends, or NULL: the process exits, or
 * one of its threads has called execve(), which ends all others.
 */
VISIBLE_IF_KUNIT struct task_struct *keel_reaps_live(struct task_struct *process)
	__must_hold_shared(RCU)
{
	const struct signal_struct *signal = process->signal;
	struct task_struct *task;

	/* Not the signal of each thread: a thread takes it before it begins to exit. */
	if (READ_ONCE(signal->flags) & SIGNAL_GROUP_EXIT ||
	    READ_ONCE(signal->group_exec_task))
		return NULL;
	for_each_thread(process, task)
		if (keel_thread_is_one(task) && !(READ_ONCE(task->flags) & PF_EXITING))
			return task;
	return NULL;
}
EXPORT_SYMBOL_IF_KUNIT(keel_reaps_live);

/* Kill a process; if its threads are about to exit, collect them. */
static void keel_reaps_kill(struct pid *owner, struct xarray *tasks)
{
	struct task_struct *process, *task;

	guard(rcu)();
	process = pid_task(owner, PIDTYPE_TGID);
	if (!process)
		return;
	task = keel_reaps_live(process);
	if (task) {
		pr_warn("keel: killing process %d: it does not run, and the module cannot be unloaded before its thread ends\n",
			pid_nr(owner));
		/* Not to @owner: after an execve() just now, that would be the new program. */
		send_sig(SIGKILL, task, 1);
		return;
	}
	for_each_thread(process, task)
		if (keel_thread_is_one(task) &&
		    !xa_insert(tasks, task_pid_nr(task), task, GFP_ATOMIC))
			get_task_struct(task);
}

/*
 * Kill processes whose threads do not end. If they were killed before, they get no
 * processor, because of their priority or cgroup: let their threads run before others.
 * Not for long, because the last one frees the memory of the process: the caller looks
 * again. All this is done for threads of other drivers, too, but only dying ones.
 * Returns true if all threads have ended.
 */
static bool keel_reaps_hurry(void)
{
	struct xarray owners, tasks;
	struct task_struct *task;
	struct pid *owner;
	unsigned long nr;
	bool done;

	xa_init(&owners);
	xa_init(&tasks);
	keel_reaps_find(&owners);
	xa_for_each(&owners, nr, owner) {
		keel_reaps_kill(owner, &tasks);
		put_pid(owner);
	}
	xa_for_each(&tasks, nr, task)
		keel_thread_hurry(task);
	done = keel_reaps_wait();
	xa_for_each(&tasks, nr, task) {
		sched_set_normal(task, 0);
		put_task_struct(task);
	}
	xa_destroy(&owners);
	xa_destroy(&tasks);
	return done;
}

/**
 * keel_reaps_end() - wait until all threads have ended, when no device is left
 *
 * A process that was stopped at device removal, or that gets no processor, still has
 * its thread. keel kills it after a short wait: nothing else ends the thread, and the
 * module must not wait until another process continues the stopped one.
 */
void keel_reaps_end(void)
{
	keel_reaps_begin_all();
	if (!keel_reaps_wait())
		while (!keel_reaps_hurry())
			;
	/* Waits for work that has left the list but not returned yet. */
	destroy_workqueue(keel_reaps.wq);
}

/**
 * keel_reaps_exit() - undo keel_reaps_init(), after keel_reaps_end()
 *
 * No &struct keel_reap is left.
 */
void keel_reaps_exit(void)
{
	keel_quotas_fini(&keel_reaps.users);
}
