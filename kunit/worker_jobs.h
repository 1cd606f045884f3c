/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Workers of a test, whose thread gets memory of its own, and jobs for them.
 */
#ifndef KEEL_WORKER_JOBS_H
#define KEEL_WORKER_JOBS_H

#include <kunit/test.h>
#include <linux/completion.h>

#include "keel_worker.h"

#define TEST_PATIENCE	(60 * HZ)
/* How long a test waits to see that something does not happen. */
#define TEST_PAUSE_MS	20
#define TEST_JOBS	3
#define TEST_THREADS	2
/* &test_job.lock: the job is to take the mmap_lock. */
#define TEST_NOT_LOCKED	1

struct worker_test;

/**
 * struct test_job - a job
 * @job: the job
 * @t: the test
 * @worker: the worker that the test queues it on
 * @hold: the job waits for &worker_test.release
 * @lock: if it is TEST_NOT_LOCKED, the job takes the mmap_lock of its process, and
 *	writes the result here
 * @began: the job has begun
 * @ended: the job has ended
 * @runs: how often the job has begun
 * @alive: the argument of its last call
 * @task: the thread of its last call
 * @mm: the memory of that thread
 * @ours: that thread belongs to the process of the test
 * @of_worker: it is that of &worker_test.worker
 * @of_other: it is that of &worker_test.other
 */
struct test_job {
	struct keel_job job;
	struct worker_test *t;
	struct keel_worker *worker;
	bool hold;
	int lock;
	struct completion began, ended;
	int runs;
	bool alive;
	struct task_struct *task;
	struct mm_struct *mm;
	bool ours;
	bool of_worker;
	bool of_other;
};

/**
 * struct worker_test - what a test of workers has
 * @test: the test
 * @task: its thread
 * @workers: the workers of a context
 * @others: the workers of a second context
 * @worker: the worker of the test in @workers, or NULL
 * @other: the worker of the test in @others, or NULL
 * @jobs: jobs
 * @order: the jobs in the order in which they have begun
 * @nr: number of @order
 * @release: lets the jobs end that wait
 * @released: @release was completed
 * @threads: threads that end before the test does
 */
struct worker_test {
	struct kunit *test;
	struct task_struct *task;
	struct keel_workers workers, others;
	struct keel_worker *worker, *other;
	struct test_job jobs[TEST_JOBS];
	struct test_job *order[8];
	unsigned int nr;
	struct completion release;
	bool released;
	struct task_struct *threads[TEST_THREADS];
};

void worker_test_setup(struct worker_test *t, struct kunit *test);
/* Ends all that the test has left: its jobs, threads and workers. */
void worker_test_end(struct worker_test *t);

/* For suites: test->priv is a struct worker_test. */
int worker_test_init(struct kunit *test);
void worker_test_exit(struct kunit *test);

/* Give the thread of the test memory, and a worker in @workers and in @others. */
void worker_test_open(struct worker_test *t);
/* The worker of the calling thread, with a reference, or an error as ERR_PTR(). */
struct keel_worker *worker_of_thread(struct keel_workers *workers);
/* Stop the workers of a list, which is usable afterwards. */
void worker_test_stop(struct keel_workers *workers);

/* Queue a job on a worker, and return the result. */
int worker_test_queue(struct worker_test *t, struct keel_worker *worker, int job);
/* Let a worker wait in the first job. */
void worker_test_hold(struct worker_test *t, struct keel_worker *worker);
/* Release the jobs that wait. */
void worker_test_release(struct worker_test *t);

/* Start a thread; false, and the test fails, if that is not possible. */
bool worker_test_thread(struct worker_test *t, int nr, int (*fn)(void *arg), void *arg);

/* Wait for long, or let the test fail. Never asserts. */
bool test_waits(struct kunit *test, struct completion *done);
/* Wait until a thread has ended; the caller has a reference. */
bool test_thread_ends(struct task_struct *task);

#endif /* KEEL_WORKER_JOBS_H */
