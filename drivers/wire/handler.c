// SPDX-License-Identifier: GPL-2.0
/*
 * The thread of a connection. It handles completions of the lower device, and executes short
 * packets (far_now.c).
 *
 * A message waits for it. If it had the priority of other threads, programs that poll would keep
 * it waiting for a time slice, which is longer than all the rest takes. So it is as urgent as a
 * threaded interrupt handler, but only for a part of the time: what a busy network costs beyond
 * that has the priority of other works of the kernel.
 */
#include <kunit/visibility.h>
#include <linux/cpumask.h>
#include <linux/err.h>
#include <linux/jiffies.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/minmax.h>
#include <linux/module.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/sched/task.h>

#include "keel_conn.h"

/* Completions that are taken from a CQ together. */
#define KEEL_HANDLER_POLL	16
/* After so many periods, nothing is left of what a thread has used too much. */
#define KEEL_URGENT_DEBT	1000ULL
/* A thread that had nothing to do for so long has no part of the time, jiffies. */
#define KEEL_URGENT_IDLE	HZ
/* Priority when it is not urgent: that of the works of ib_core. */
#define KEEL_HANDLER_NICE	(-20)

/* Threads that may be urgent. */
static atomic_t keel_urgent_threads;

static unsigned int keel_urgent_percent = 50;
module_param_named(urgent_percent, keel_urgent_percent, uint, 0644);
MODULE_PARM_DESC(urgent_percent,
		 "Percent of the processors' time that threads of links may have before others (default 50; 0: none)");

/**
 * keel_urgent_most() - how long a thread may be urgent
 * @threads: number of threads that may be so
 * @cpus: number of processors
 * @percent: of the processors' time that all of them may have together
 *
 * Return: ns of each KEEL_URGENT_PERIOD.
 */
VISIBLE_IF_KUNIT u64 keel_urgent_most(u32 threads, u32 cpus, u32 percent)
{
	return KEEL_URGENT_PERIOD / 100 * min(percent, 100U) /
	       max(DIV_ROUND_UP(threads, cpus), 1U);
}
EXPORT_SYMBOL_IF_KUNIT(keel_urgent_most);

/**
 * keel_urgent_note() - note what an urgent thread has done
 * @urgent: of the thread; zeroed at first
 * @start: when it began, ns
 * @end: when it ended, ns; not before the last one
 * @most: keel_urgent_most()
 *
 * A thread that has used more than its share pays in the next periods.
 *
 * Return: false if the thread may not be urgent now.
 */
VISIBLE_IF_KUNIT bool keel_urgent_note(struct keel_urgent *urgent, u64 start, u64 end, u64 most)
{
	u64 periods = div_u64(end - urgent->since, KEEL_URGENT_PERIOD);

	if (urgent->is)
		urgent->used += end - start;
	if (periods) {
		urgent->since += periods * KEEL_URGENT_PERIOD;
		urgent->used -= min(urgent->used, most * min(periods, KEEL_URGENT_DEBT));
	}
	urgent->over = most && urgent->used > most;
	return most && !urgent->over;
}
EXPORT_SYMBOL_IF_KUNIT(keel_urgent_note);

static void keel_handler_set_urgent(struct keel_urgent *urgent, bool is)
{
	if (urgent->is == is)
		return;
	urgent->is = is;
	if (is)
		keel_thread_hurry(current);
	else
		sched_set_normal(current, KEEL_HANDLER_NICE);
}

/* Its part of the time is for those that have something to do, or not any more. */
static void keel_handler_count(struct keel_urgent *urgent, bool counts)
{
	if (counts && !urgent->counts)
		atomic_inc(&keel_urgent_threads);
	if (!counts && urgent->counts)
		atomic_dec(&keel_urgent_threads);
	urgent->counts = counts;
}

/* The thread did something from &keel_urgent.at until now. */
static void keel_handler_account(struct keel_conn *conn)
{
	struct keel_urgent *urgent = &conn->urgent;
	u64 start = urgent->at, most;
	bool may;

	urgent->at = ktime_get_ns();
	/* Any host can have many connections. */
	may = test_bit(KEEL_CONN_CONFIRMED, &conn->events) && keel_link_is_used(conn->link);
	keel_handler_count(urgent, may);
	if (!may) {
		urgent->over = false;
		keel_handler_set_urgent(urgent, false);
		return;
	}
	/* Some processors may not be for threads of the kernel. */
	most = keel_urgent_most(atomic_read(&keel_urgent_threads),
				min_t(u32, num_online_cpus(), current->nr_cpus_allowed),
				READ_ONCE(keel_urgent_percent));
	may = keel_urgent_note(urgent, start, urgent->at, most);
	keel_handler_set_urgent(urgent, may && !conn->busy);
}

/* Return: the number of completions, or a negative errno. */
static int keel_handler_poll(struct keel_conn *conn)
{
	struct ib_wc wcs[KEEL_HANDLER_POLL];
	int i, n;

	n = ib_poll_cq(conn->cq, KEEL_HANDLER_POLL, wcs);
	for (i = 0; i < n; i++) {
		wcs[i].wr_cqe->done(conn->cq, &wcs[i]);
		keel_handler_account(conn);
	}
	return n;
}

/* How long the thread waits for a completion, in jiffies. */
static long keel_handler_patience(const struct keel_conn *conn)
{
	/* Then it may be urgent again when one comes. */
	if (conn->urgent.over || conn->busy)
		return nsecs_to_jiffies(KEEL_URGENT_PERIOD) + 1;
	return conn->urgent.counts ? KEEL_URGENT_IDLE : MAX_SCHEDULE_TIMEOUT;
}

/* Wait for a completion; @broken: the last poll has failed, so that none may ever come. */
static void keel_handler_wait(struct keel_conn *conn, bool broken)
{
	long time, left = 1;

	keel_load_rest(conn);
	if (conn->urgent.counts)
		keel_handler_account(conn);
	time = keel_handler_patience(conn);
	set_current_state(TASK_INTERRUPTIBLE);
	/* Some may have come since the last poll. */
	if (!kthread_should_stop() &&
	    (ib_req_notify_cq(conn->cq, IB_CQ_NEXT_COMP | IB_CQ_REPORT_MISSED_EVENTS) <= 0 ||
	     broken))
		left = schedule_timeout(broken ? HZ : time);
	__set_current_state(TASK_RUNNING);
	if (!left && time == KEEL_URGENT_IDLE)
		keel_handler_count(&conn->urgent, false);
	conn->urgent.at = ktime_get_ns();
}

static int keel_handler_run(void *arg)
{
	struct keel_conn *conn = arg;
	int n;

	sched_set_normal(current, KEEL_HANDLER_NICE);
	conn->urgent.at = ktime_get_ns();
	while (!kthread_should_stop()) {
		n = keel_handler_poll(conn);
		if (n <= 0)
			keel_handler_wait(conn, n < 0);
		/* The other host may keep it from ever waiting. */
		cond_resched_tasks_rcu_qs();
	}
	keel_handler_count(&conn->urgent, false);
	return 0;
}

/* &ib_cq.comp_handler; in any context */
static void keel_handler_wake(struct ib_cq *cq, void *arg)
{
	struct keel_conn *conn = cq->cq_context;

	wake_up_process(conn->thread);
}

static void keel_handler_cq_event(struct ib_event *event, void *context)
{
	/* After an error of the CQ, nothing arrives, and the link ends in time. */
}

/**
 * keel_handler_start() - give a connection its CQ, and the thread that handles completions
 * @conn: the connection
 *
 * Context: may sleep.
 * Return: 0 or a negative errno. The caller calls keel_handler_stop() in both cases.
 */
int keel_handler_start(struct keel_conn *conn)
{
	static atomic_t vector = ATOMIC_INIT(-1);
	struct ib_device *ib = conn->lower->ib;
	const struct ib_cq_init_attr attr = {
		.cqe = KEEL_CONN_SENDS + KEEL_CONN_RECVS,
		/* As ib_alloc_cq_any() does: not all connections interrupt one processor. */
		.comp_vector = (u32)atomic_inc_return_relaxed(&vector) %
			       min_t(u32, max(ib->num_comp_vectors, 1), num_online_cpus()),
	};
	struct task_struct *thread;
	struct ib_cq *cq;

	/* A CQ of ib_alloc_cq() would be polled by ib_core. ib_drain_qp() only needs handlers. */
	cq = ib_create_cq(ib, keel_handler_wake, keel_handler_cq_event, conn, &attr);
	if (IS_ERR(cq))
		return PTR_ERR(cq);
	conn->cq = cq;
	thread = kthread_create_on_node(keel_handler_run, conn, ibdev_to_node(ib), "keel_link/%s",
					ib->name);
	if (IS_ERR(thread))
		return PTR_ERR(thread);
	/* A lower device may call keel_handler_wake() until its CQ is destroyed. */
	get_task_struct(thread);
	conn->thread = thread;
	/* It asks for events only now. */
	wake_up_process(thread);
	return 0;
}

/**
 * keel_handler_stop() - undo keel_handler_start(), as far as it came
 * @conn: the connection, which has no QP
 *
 * Context: may sleep; not the thread.
 */
void keel_handler_stop(struct keel_conn *conn)
{
	if (conn->thread)
		kthread_stop(conn->thread);
	if (conn->cq)
		ib_destroy_cq(conn->cq);
	if (conn->thread)
		put_task_struct(conn->thread);
}
