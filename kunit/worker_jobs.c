// SPDX-License-Identifier: GPL-2.0
/*
 * See worker_jobs.h.
 */
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/kthread.h>
#include <linux/mm.h>
#include <linux/mmap_lock.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>

#include "worker_jobs.h"

static void test_job_run(struct keel_job *job, bool alive)
{
	struct test_job *j = container_of(job, struct test_job, job);
	struct worker_test *t = j->t;

	j->runs++;
	j->alive = alive;
	j->task = current;
	j->mm = current->mm;
	j->ours = same_thread_group(current, t->task);
	j->of_worker = t->worker && keel_worker_is_current(t->worker);
	j->of_other = t->other && keel_worker_is_current(t->other);
	if (t->nr < ARRAY_SIZE(t->order))
		t->order[t->nr++] = j;
	complete(&j->began);
	if (j->lock == TEST_NOT_LOCKED) {
		WRITE_ONCE(j->lock, keel_worker_lock_mm(j->worker, current->mm));
		if (!j->lock)
			mmap_read_unlock(current->mm);
	}
	if (j->hold)
		wait_for_completion(&t->release);
	complete(&j->ended);
}

void worker_test_setup(struct worker_test *t, struct kunit *test)
{
	struct test_job *j;

	t->test = test;
	t->task = current;
	keel_workers_setup(&t->workers);
	keel_workers_setup(&t->others);
	init_completion(&t->release);
	for (j = t->jobs; j < t->jobs + TEST_JOBS; j++) {
		keel_job_init(&j->job, test_job_run);
		j->t = t;
		init_completion(&j->began);
		init_completion(&j->ended);
	}
}

int worker_test_init(struct kunit *test)
{
	struct worker_test *t = kunit_kzalloc(test, sizeof(*t), GFP_KERNEL);

	if (!t)
		return -ENOMEM;
	worker_test_setup(t, test);
	test->priv = t;
	return 0;
}

void worker_test_release(struct worker_test *t)
{
	WRITE_ONCE(t->released, true);
	complete_all(&t->release);
}

static void worker_test_close(struct worker_test *t, struct keel_workers *workers,
			      struct keel_worker *worker)
{
	struct test_job *j;

	keel_workers_stop(workers);
	/* A thread may still be at the end of a job. */
	for (j = t->jobs; worker && j < t->jobs + TEST_JOBS; j++)
		keel_job_cancel(worker, &j->job);
	keel_worker_put(worker);
}

void worker_test_end(struct worker_test *t)
{
	int i;

	worker_test_release(t);
	for (i = 0; i < TEST_THREADS; i++)
		if (t->threads[i])
			kthread_stop_put(t->threads[i]);
	worker_test_close(t, &t->workers, t->worker);
	worker_test_close(t, &t->others, t->other);
}

void worker_test_exit(struct kunit *test)
{
	if (test->priv)
		worker_test_end(test->priv);
}

/* The thread of a worker outlives the test, which it would refer to as its own. */
struct keel_worker *worker_of_thread(struct keel_workers *workers)
{
	struct kunit *test = current->kunit_test;
	struct keel_worker *worker;

	current->kunit_test = NULL;
	worker = keel_worker_of_current(workers);
	current->kunit_test = test;
	return worker;
}

void worker_test_open(struct worker_test *t)
{
	struct keel_worker *worker;

	KUNIT_ASSERT_EQ(t->test, 0, kunit_attach_mm());
	worker = worker_of_thread(&t->workers);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(t->test, worker);
	t->worker = worker;
	worker = worker_of_thread(&t->others);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(t->test, worker);
	t->other = worker;
	KUNIT_ASSERT_PTR_NE(t->test, t->worker, worker);
}

void worker_test_stop(struct keel_workers *workers)
{
	keel_workers_stop(workers);
	keel_workers_setup(workers);
}

int worker_test_queue(struct worker_test *t, struct keel_worker *worker, int job)
{
	t->jobs[job].worker = worker;
	return keel_job_queue(worker, &t->jobs[job].job);
}

void worker_test_hold(struct worker_test *t, struct keel_worker *worker)
{
	t->jobs[0].hold = true;
	KUNIT_EXPECT_EQ(t->test, 1, worker_test_queue(t, worker, 0));
	test_waits(t->test, &t->jobs[0].began);
}

bool worker_test_thread(struct worker_test *t, int nr, int (*fn)(void *arg), void *arg)
{
	struct task_struct *task = kthread_create(fn, arg, "keel_test/%d", nr);

	KUNIT_EXPECT_FALSE(t->test, IS_ERR(task));
	if (IS_ERR(task))
		return false;
	t->threads[nr] = get_task_struct(task);
	wake_up_process(task);
	return true;
}

bool test_waits(struct kunit *test, struct completion *done)
{
	bool in_time = wait_for_completion_timeout(done, TEST_PATIENCE);

	KUNIT_EXPECT_TRUE_MSG(test, in_time, "nothing happens for %d s", TEST_PATIENCE / HZ);
	return in_time;
}

bool test_thread_ends(struct task_struct *task)
{
	unsigned long until = jiffies + TEST_PATIENCE;

	while (!READ_ONCE(task->exit_state) && time_before(jiffies, until))
		usleep_range(1000, 2000);
	return READ_ONCE(task->exit_state);
}
