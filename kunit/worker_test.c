// SPDX-License-Identifier: GPL-2.0
/*
 * Jobs of a worker: their order, their end, and the end of the worker.
 */
#include <linux/delay.h>
#include <linux/kthread.h>
#include <linux/sched.h>
#include <linux/sched/task.h>

#include "threads.h"
#include "worker_jobs.h"

/* ISO-2: a thread of the process runs the jobs, in their order. */
static void iso_2_worker_runs(struct kunit *test)
{
	struct worker_test *t = test->priv;
	struct test_job *j = t->jobs;
	int i;

	worker_test_open(t);
	worker_test_hold(t, t->worker);
	KUNIT_EXPECT_FALSE(test, keel_worker_is_busy(t->worker));
	/* It runs a job, and none waits. */
	KUNIT_EXPECT_FALSE(test, keel_worker_is_idle(t->worker));
	KUNIT_EXPECT_TRUE(test, keel_worker_is_idle(t->other));
	for (i = 1; i < TEST_JOBS; i++)
		KUNIT_EXPECT_EQ(test, 1, worker_test_queue(t, t->worker, i));
	/* The job is queued already, on any worker. */
	KUNIT_EXPECT_EQ(test, 0, keel_job_queue(t->worker, &j[1].job));
	KUNIT_EXPECT_EQ(test, 0, keel_job_queue(t->other, &j[1].job));
	KUNIT_EXPECT_TRUE(test, keel_worker_is_busy(t->worker));
	KUNIT_EXPECT_FALSE(test, keel_worker_is_busy(t->other));
	worker_test_release(t);
	for (i = 0; i < TEST_JOBS; i++) {
		test_waits(test, &j[i].ended);
		KUNIT_EXPECT_EQ(test, 1, j[i].runs);
		KUNIT_EXPECT_TRUE(test, j[i].alive);
		KUNIT_EXPECT_TRUE(test, j[i].ours);
		KUNIT_EXPECT_TRUE(test, j[i].of_worker);
		KUNIT_EXPECT_FALSE(test, j[i].of_other);
		KUNIT_EXPECT_PTR_EQ(test, &j[i], t->order[i]);
		KUNIT_EXPECT_PTR_EQ(test, current->mm, j[i].mm);
		KUNIT_EXPECT_PTR_EQ(test, j[0].task, j[i].task);
	}
	KUNIT_EXPECT_PTR_NE(test, current, j[0].task);
	/* A thread of the process, and no worker. */
	KUNIT_EXPECT_TRUE(test, keel_worker_is_ours(t->worker));
	KUNIT_EXPECT_FALSE(test, keel_worker_is_current(t->worker));
	KUNIT_EXPECT_EQ(test, TEST_JOBS, t->nr);
	/* This waits until the worker has left the job. */
	KUNIT_EXPECT_FALSE(test, keel_job_cancel(t->worker, &j[TEST_JOBS - 1].job));
	KUNIT_EXPECT_TRUE(test, keel_worker_is_idle(t->worker));
}

/* A worker whose jobs wait, but which runs none: it was only just woken. */
static void worker_waits(struct kunit *test)
{
	struct keel_worker *worker = kunit_kzalloc(test, sizeof(*worker), GFP_KERNEL);
	LIST_HEAD(job);

	KUNIT_ASSERT_NOT_NULL(test, worker);
	/* No other thread has the worker. */
	context_unsafe(INIT_LIST_HEAD(&worker->jobs));
	KUNIT_EXPECT_TRUE(test, keel_worker_is_idle(worker));
	/* As above. */
	context_unsafe(list_add(&job, &worker->jobs));
	KUNIT_EXPECT_FALSE(test, keel_worker_is_idle(worker));
}

/*
 * ISO-1: a worker takes work of a thread over only if it runs at the same time, and is not
 * preferred to it.
 */
static void iso_1_worker_replaces(struct kunit *test)
{
	struct keel_worker *worker = kunit_kzalloc(test, sizeof(*worker), GFP_KERNEL);
	const bool may = KEEL_THREAD_HAS_MM && num_online_cpus() > 1;
	int by;

	KUNIT_ASSERT_NOT_NULL(test, worker);
	worker->policy = current->policy;
	worker->prio = current->normal_prio;
	/* It may use one processor only. */
	KUNIT_EXPECT_FALSE(test, keel_worker_may_replace(worker));
	worker->wide = true;
	KUNIT_EXPECT_EQ(test, may, keel_worker_may_replace(worker));
	for (by = -1; by <= 1; by += 2) {
		worker->prio = current->normal_prio + by;
		KUNIT_EXPECT_FALSE(test, keel_worker_may_replace(worker));
	}
	worker->prio = current->normal_prio;
	worker->policy = SCHED_BATCH;
	KUNIT_EXPECT_FALSE(test, keel_worker_may_replace(worker));
	/* The thread, and then both, have a real-time priority. */
	worker->policy = current->policy;
	sched_set_fifo_low(current);
	KUNIT_EXPECT_FALSE(test, keel_worker_may_replace(worker));
	worker->policy = current->policy;
	worker->prio = current->normal_prio;
	KUNIT_EXPECT_FALSE(test, keel_worker_may_replace(worker));
	sched_set_normal(current, 0);
}

/* The thread of a worker notes what it may use, and its priority. */
static void worker_notes(struct kunit *test)
{
	struct keel_worker *worker = kunit_kzalloc(test, sizeof(*worker), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, worker);
	keel_worker_note(worker);
	KUNIT_EXPECT_EQ(test, current->nr_cpus_allowed > 1, worker->wide);
	KUNIT_EXPECT_EQ(test, current->policy, worker->policy);
	KUNIT_EXPECT_EQ(test, current->normal_prio, worker->prio);
	worker->wide = !worker->wide;
	worker->policy = SCHED_BATCH;
	worker->prio = 1;
	keel_worker_note(worker);
	KUNIT_EXPECT_EQ(test, current->nr_cpus_allowed > 1, worker->wide);
	KUNIT_EXPECT_EQ(test, current->policy, worker->policy);
	KUNIT_EXPECT_EQ(test, current->normal_prio, worker->prio);
}

/* A job that runs may be queued again, and runs again. */
static void worker_again(struct kunit *test)
{
	struct worker_test *t = test->priv;
	struct test_job *j = t->jobs;

	worker_test_open(t);
	worker_test_hold(t, t->worker);
	KUNIT_EXPECT_EQ(test, 1, keel_job_queue(t->worker, &j->job));
	KUNIT_EXPECT_EQ(test, 0, keel_job_queue(t->worker, &j->job));
	worker_test_release(t);
	test_waits(test, &j->ended);
	test_waits(test, &j->ended);
	KUNIT_EXPECT_EQ(test, 2, j->runs);
}

/* A job that has not begun can be taken back, but only from its worker. */
static void worker_take_back(struct kunit *test)
{
	struct worker_test *t = test->priv;
	struct test_job *j = t->jobs;

	worker_test_open(t);
	worker_test_hold(t, t->worker);
	KUNIT_EXPECT_EQ(test, 1, worker_test_queue(t, t->worker, 1));
	KUNIT_EXPECT_EQ(test, 1, worker_test_queue(t, t->worker, 2));
	KUNIT_EXPECT_FALSE(test, keel_job_take_back(t->other, &j[1].job));
	KUNIT_EXPECT_TRUE(test, keel_job_take_back(t->worker, &j[1].job));
	KUNIT_EXPECT_FALSE(test, keel_job_take_back(t->worker, &j[1].job));
	KUNIT_EXPECT_FALSE(test, keel_job_take_back(t->worker, &j[0].job));
	/* keel_job_cancel() does not wait: the worker runs another job. */
	KUNIT_EXPECT_TRUE(test, keel_job_cancel(t->worker, &j[2].job));
	KUNIT_EXPECT_FALSE(test, keel_job_cancel(t->worker, &j[2].job));
	/* Afterwards the job can be queued on another worker. */
	KUNIT_EXPECT_EQ(test, 1, worker_test_queue(t, t->other, 1));
	test_waits(test, &j[1].ended);
	KUNIT_EXPECT_EQ(test, 1, j[1].runs);
	KUNIT_EXPECT_EQ(test, 0, j[2].runs);
	KUNIT_EXPECT_EQ(test, 1, j[0].runs);
}

/* Release the jobs when the thread of the test sleeps. */
static int releasing_thread(void *arg)
{
	struct worker_test *t = arg;

	KUNIT_EXPECT_TRUE(t->test, threads_idles(t->task));
	worker_test_release(t);
	return 0;
}

static int stopping_thread(void *arg)
{
	struct worker_test *t = arg;

	worker_test_stop(&t->workers);
	return 0;
}

/*
 * ISO-1: a job that has begun has ended when keel_job_cancel() returns. In this test the job
 * waits, but not for the caller.
 */
static void worker_cancel(struct kunit *test)
{
	struct worker_test *t = test->priv;
	struct test_job *j = t->jobs;

	worker_test_open(t);
	worker_test_hold(t, t->worker);
	if (!worker_test_thread(t, 0, releasing_thread, t))
		return;
	KUNIT_EXPECT_FALSE(test, keel_job_cancel(t->worker, &j->job));
	KUNIT_EXPECT_TRUE(test, READ_ONCE(t->released));
	KUNIT_EXPECT_TRUE(test, try_wait_for_completion(&j->ended));
}

/* ISO-2: keel_workers_stop() runs the jobs that are left, with @alive false. */
static void iso_2_worker_stops(struct kunit *test)
{
	struct worker_test *t = test->priv;
	struct test_job *j = t->jobs;
	struct task_struct *thread;
	int i;

	worker_test_open(t);
	KUNIT_EXPECT_TRUE(test, keel_worker_is_ours(t->worker));
	worker_test_hold(t, t->worker);
	KUNIT_ASSERT_NOT_NULL(test, j[0].task);
	thread = get_task_struct(j[0].task);
	for (i = 1; i < TEST_JOBS; i++)
		KUNIT_EXPECT_EQ(test, 1, worker_test_queue(t, t->worker, i));
	worker_test_stop(&t->workers);
	KUNIT_EXPECT_TRUE(test, keel_worker_is_dead(t->worker));
	KUNIT_EXPECT_FALSE(test, keel_worker_is_ours(t->worker));
	KUNIT_EXPECT_FALSE(test, keel_worker_is_dead(t->other));
	for (i = 1; i < TEST_JOBS; i++) {
		KUNIT_EXPECT_EQ(test, 1, j[i].runs);
		KUNIT_EXPECT_FALSE(test, j[i].alive);
		KUNIT_EXPECT_PTR_EQ(test, current, j[i].task);
	}
	/* A dead worker accepts no job. Another one accepts a job that was refused. */
	KUNIT_EXPECT_EQ(test, -ESRCH, keel_job_queue(t->worker, &j[1].job));
	KUNIT_EXPECT_EQ(test, -ESRCH, keel_job_queue(t->worker, &j[1].job));
	reinit_completion(&j[1].ended);
	KUNIT_EXPECT_EQ(test, 1, worker_test_queue(t, t->other, 1));
	test_waits(test, &j[1].ended);
	KUNIT_EXPECT_TRUE(test, j[1].alive);
	KUNIT_EXPECT_EQ(test, 2, j[1].runs);
	/* The thread ends after its job. */
	KUNIT_EXPECT_FALSE(test, READ_ONCE(thread->exit_state));
	worker_test_release(t);
	KUNIT_EXPECT_TRUE(test, test_thread_ends(thread));
	put_task_struct(thread);
}

/* keel_job_cancel() also waits for a job that keel_workers_stop() runs. */
static void worker_cancel_stopped(struct kunit *test)
{
	struct worker_test *t = test->priv;
	struct test_job *j = t->jobs;

	worker_test_open(t);
	worker_test_hold(t, t->worker);
	j[1].hold = true;
	KUNIT_EXPECT_EQ(test, 1, worker_test_queue(t, t->worker, 1));
	if (!worker_test_thread(t, 0, stopping_thread, t) || !test_waits(test, &j[1].began))
		return;
	KUNIT_EXPECT_FALSE(test, j[1].alive);
	if (!worker_test_thread(t, 1, releasing_thread, t))
		return;
	KUNIT_EXPECT_FALSE(test, keel_job_cancel(t->worker, &j[1].job));
	KUNIT_EXPECT_TRUE(test, READ_ONCE(t->released));
	KUNIT_EXPECT_TRUE(test, try_wait_for_completion(&j[1].ended));
}

static struct {
	struct work_struct work;
	struct task_struct *task;
} deferred;

static void deferred_run(struct work_struct *work)
{
	deferred.task = current;
}

/* keel_worker_defer() does work in another thread. */
static void worker_defer(struct kunit *test)
{
	deferred.task = NULL;
	INIT_WORK(&deferred.work, deferred_run);
	keel_worker_defer(&deferred.work);
	flush_work(&deferred.work);
	KUNIT_EXPECT_NOT_NULL(test, deferred.task);
	KUNIT_EXPECT_PTR_NE(test, current, deferred.task);
}

static struct kunit_case worker_cases[] = {
	KUNIT_CASE(iso_2_worker_runs),
	KUNIT_CASE(worker_waits),
	KUNIT_CASE(iso_1_worker_replaces),
	KUNIT_CASE(worker_notes),
	KUNIT_CASE(worker_again),
	KUNIT_CASE(worker_take_back),
	KUNIT_CASE(worker_cancel),
	KUNIT_CASE(iso_2_worker_stops),
	KUNIT_CASE(worker_cancel_stopped),
	KUNIT_CASE(worker_defer),
	{}
};

static struct kunit_suite worker_suite = {
	.name = "keel_worker",
	.init = worker_test_init,
	.exit = worker_test_exit,
	.test_cases = worker_cases,
};
kunit_test_suite(worker_suite);
