// SPDX-License-Identifier: GPL-2.0
/*
 * Workers of several processes in a list, and a worker that waits for the memory of its
 * process.
 */
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/kthread.h>
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/mmap_lock.h>
#include <linux/mmu_context.h>
#include <linux/rcupdate.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>

#include "keel_copy.h"
#include "keel_point.h"
#include "threads.h"
#include "worker_jobs.h"

/**
 * struct other_process - another process, which has a worker in the list of the test
 * @t: the test
 * @shared: the memory of the test, which the process shares; NULL: it has its own
 * @mm: its memory
 * @addr: of a page that is mapped there, and not present
 * @worker: its worker, with a reference, or an error
 * @without: what keel_worker_of_current() returns as long as it has no memory
 * @ours: keel_worker_is_ours() for @worker, in this process
 * @ready: the members above are set
 * @end: lets the process end
 */
struct other_process {
	struct worker_test *t;
	struct mm_struct *shared;
	struct mm_struct *mm;
	unsigned long addr;
	struct keel_worker *worker, *without;
	bool ours;
	struct completion ready, end;
};

static int other_run(void *arg)
{
	struct other_process *o = arg;

	/* Kernel threads ignore all signals, and so would the worker. */
	kernel_sigaction(SIGKILL, SIG_DFL);
	o->without = keel_worker_of_current(&o->t->workers);
	if (o->shared)
		kthread_use_mm(o->shared);
	if (o->shared || !kunit_attach_mm())
		o->worker = worker_of_thread(&o->t->workers);
	o->mm = current->mm;
	if (o->mm && !o->shared)
		o->addr = vm_mmap(NULL, 0, PAGE_SIZE, PROT_READ | PROT_WRITE,
				  MAP_ANONYMOUS | MAP_PRIVATE, 0);
	if (!IS_ERR_OR_NULL(o->worker))
		o->ours = keel_worker_is_ours(o->worker);
	complete(&o->ready);
	wait_for_completion(&o->end);
	if (o->shared)
		kthread_unuse_mm(o->shared);
	return 0;
}

/* Returns false, and the test fails, if the process has no worker. */
static bool other_begins(struct other_process *o, struct worker_test *t)
{
	o->t = t;
	init_completion(&o->ready);
	init_completion(&o->end);
	if (!worker_test_thread(t, 0, other_run, o))
		return false;
	wait_for_completion(&o->ready);
	KUNIT_EXPECT_FALSE(t->test, IS_ERR_OR_NULL(o->worker));
	return !IS_ERR_OR_NULL(o->worker);
}

/* After this, the thread does not use @o any more. */
static void other_ends(struct other_process *o)
{
	struct worker_test *t = o->t;
	struct test_job *j;

	worker_test_release(t);
	if (!IS_ERR_OR_NULL(o->worker)) {
		for (j = t->jobs; j < t->jobs + TEST_JOBS; j++)
			keel_job_cancel(o->worker, &j->job);
		keel_worker_put(o->worker);
	}
	complete(&o->end);
	if (t->threads[0])
		kthread_stop_put(t->threads[0]);
	t->threads[0] = NULL;
}

static bool has_one_worker(struct keel_workers *workers)
{
	guard(spinlock)(&workers->lock);
	return list_is_singular(&workers->list);
}

/* keel_worker_of_current() for the test returns its worker once more. */
static void expect_same_worker(struct worker_test *t)
{
	struct keel_worker *worker = worker_of_thread(&t->workers);

	KUNIT_EXPECT_PTR_EQ(t->test, t->worker, worker);
	if (!IS_ERR(worker))
		keel_worker_put(worker);
}

/* ISO-2: each process has one worker in a list, and none as long as it has no memory. */
static void iso_2_worker_of(struct kunit *test)
{
	struct worker_test *t = test->priv;
	struct other_process o = {};

	if (other_begins(&o, t)) {
		worker_test_open(t);
		KUNIT_EXPECT_EQ(test, -EINVAL, PTR_ERR_OR_ZERO(o.without));
		KUNIT_EXPECT_PTR_NE(test, t->worker, o.worker);
		KUNIT_EXPECT_TRUE(test, o.ours);
		KUNIT_EXPECT_FALSE(test, keel_worker_is_ours(o.worker));
		KUNIT_EXPECT_TRUE(test, keel_worker_is_ours(t->worker));
		expect_same_worker(t);
		KUNIT_EXPECT_FALSE(test, keel_worker_is_dead(o.worker));
		KUNIT_EXPECT_FALSE(test, has_one_worker(&t->workers));
	}
	other_ends(&o);
}

static struct {
	struct worker_test *t;
	struct keel_worker *worker;
} first;

/* Another thread of the process of the test gets the worker. */
static void first_hook(const char *name)
{
	if (current != first.t->task || first.worker || strcmp(name, "worker_made"))
		return;
	/* Until the call returns. */
	first.worker = ERR_PTR(-EBUSY);
	first.worker = worker_of_thread(&first.t->workers);
}

/*
 * ISO-1: a worker is created without the lock that others need. If two threads of a
 * process create it, both get the one that is listed first, and the other one ends.
 */
static void iso_1_worker_made(struct kunit *test)
{
	unsigned long until = jiffies + TEST_PATIENCE;
	struct worker_test *t = test->priv;
	int threads = get_nr_threads(current);

	first.t = t;
	first.worker = NULL;
	KUNIT_ASSERT_EQ(test, 0, kunit_attach_mm());
	WRITE_ONCE(keel_point_hook.hit, first_hook);
	t->worker = worker_of_thread(&t->workers);
	WRITE_ONCE(keel_point_hook.hit, NULL);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, t->worker);
	KUNIT_EXPECT_PTR_EQ(test, t->worker, first.worker);
	KUNIT_EXPECT_TRUE(test, has_one_worker(&t->workers));
	KUNIT_EXPECT_FALSE(test, keel_worker_is_dead(t->worker));
	if (!IS_ERR_OR_NULL(first.worker))
		keel_worker_put(first.worker);
	while (get_nr_threads(current) != threads + 1 && time_before(jiffies, until))
		usleep_range(1000, 2000);
	KUNIT_EXPECT_EQ(test, threads + 1, get_nr_threads(current));
}

static struct {
	struct worker_test *t;
	struct task_struct *thread;
} stopping;

/* The worker ends, and is freed. */
static void stopped_hook(const char *name)
{
	if (current != stopping.t->task || strcmp(name, "worker_stopped"))
		return;
	KUNIT_EXPECT_TRUE(stopping.t->test, test_thread_ends(stopping.thread));
	msleep(TEST_PAUSE_MS);
	rcu_barrier();
}

/*
 * ISO-2: the list has the last reference on a worker. Fails, with KASAN, if the thread
 * that stops the worker uses it after the worker was told to end.
 */
static void iso_2_worker_last(struct kunit *test)
{
	struct worker_test *t = test->priv;
	struct keel_worker *worker;

	worker_test_open(t);
	worker_test_hold(t, t->worker);
	KUNIT_ASSERT_NOT_NULL(test, t->jobs[0].task);
	stopping.t = t;
	stopping.thread = get_task_struct(t->jobs[0].task);
	worker_test_release(t);
	test_waits(test, &t->jobs[0].ended);
	worker = t->worker;
	t->worker = NULL;
	KUNIT_EXPECT_FALSE(test, keel_job_cancel(worker, &t->jobs[0].job));
	keel_worker_put(worker);
	WRITE_ONCE(keel_point_hook.hit, stopped_hook);
	worker_test_stop(&t->workers);
	WRITE_ONCE(keel_point_hook.hit, NULL);
	put_task_struct(stopping.thread);
}

/*
 * ISO-2: processes that share their memory have a worker each: the work of one of them is
 * charged to it, and its worker does not end with the other one.
 */
static void iso_2_worker_shared(struct kunit *test)
{
	struct worker_test *t = test->priv;
	struct other_process o = {};

	worker_test_open(t);
	o.shared = current->mm;
	if (other_begins(&o, t)) {
		KUNIT_EXPECT_PTR_NE(test, t->worker, o.worker);
		KUNIT_EXPECT_TRUE(test, o.ours);
		KUNIT_EXPECT_FALSE(test, keel_worker_is_ours(o.worker));
		KUNIT_EXPECT_TRUE(test, keel_worker_is_ours(t->worker));
		KUNIT_EXPECT_PTR_EQ(test, o.mm, current->mm);
	}
	other_ends(&o);
}

/*
 * ISO-2: the worker of a killed process runs the jobs that are left, with @alive false,
 * and the next call of another process removes the worker.
 */
static void iso_2_worker_killed(struct kunit *test)
{
	struct worker_test *t = test->priv;
	struct test_job *j = t->jobs;
	struct other_process o = {};

	if (!other_begins(&o, t))
		goto out;
	worker_test_hold(t, o.worker);
	if (!j[0].task)
		goto out;
	KUNIT_EXPECT_EQ(test, 1, worker_test_queue(t, o.worker, 1));
	/* The worker waits in the job, so its task exists. */
	KUNIT_EXPECT_EQ(test, 0, send_sig(SIGKILL, j[0].task, 1));
	worker_test_release(t);
	test_waits(test, &j[1].ended);
	KUNIT_EXPECT_TRUE(test, j[0].alive);
	KUNIT_EXPECT_EQ(test, 1, j[1].runs);
	KUNIT_EXPECT_FALSE(test, j[1].alive);
	KUNIT_EXPECT_PTR_EQ(test, j[0].task, j[1].task);
	KUNIT_EXPECT_TRUE(test, keel_worker_is_dead(o.worker));
	KUNIT_EXPECT_EQ(test, -ESRCH, worker_test_queue(t, o.worker, 2));
	worker_test_open(t);
	KUNIT_EXPECT_TRUE(test, has_one_worker(&t->workers));
	KUNIT_EXPECT_FALSE(test, keel_worker_is_dead(t->worker));
out:
	other_ends(&o);
}

/* Pin a page of another process. Returns 1 or an error. */
static long pin_other(const struct other_process *o)
{
	const struct keel_mem mem = {
		.type = KEEL_MEM_ODP, .mm = o->mm, .worker = o->worker, .start = o->addr,
	};
	struct page *page;
	long got = keel_odp_pin(&mem, o->addr, 1, true, &page);

	if (got == 1)
		unpin_user_page(page);
	return got;
}

/*
 * ISO-1, PD-3: a thread that uses the memory of a process that is killed does not drop
 * the last reference on that memory: the worker of the process waits, and no other thread
 * begins to use the memory.
 */
static void iso_1_worker_hold_mm(struct kunit *test)
{
	struct worker_test *t = test->priv;
	struct test_job *j = t->jobs;
	unsigned long end = jiffies + TEST_PATIENCE;
	struct task_struct *thread;
	struct other_process o = {};

	if (!other_begins(&o, t))
		goto out;
	worker_test_hold(t, o.worker);
	if (!j[0].task)
		goto out;
	thread = get_task_struct(j[0].task);
	/* The page is mapped, but not present. */
	KUNIT_EXPECT_FALSE(test, IS_ERR_VALUE(o.addr));
	KUNIT_EXPECT_EQ(test, -EAGAIN, pin_other(&o));
	KUNIT_EXPECT_TRUE(test, keel_worker_hold_mm(o.worker));
	KUNIT_EXPECT_EQ(test, 0, send_sig(SIGKILL, thread, 1));
	worker_test_release(t);
	test_waits(test, &j[0].ended);
	while (!keel_worker_is_dead(o.worker) && time_before(jiffies, end))
		msleep(TEST_PAUSE_MS);
	KUNIT_EXPECT_TRUE(test, keel_worker_is_dead(o.worker));
	KUNIT_EXPECT_TRUE(test, threads_idles(thread));
	KUNIT_EXPECT_EQ(test, 0, READ_ONCE(thread->flags) & PF_EXITING);
	KUNIT_EXPECT_FALSE(test, keel_worker_hold_mm(o.worker));
	KUNIT_EXPECT_EQ(test, -EFAULT, pin_other(&o));
	keel_worker_release_mm(o.worker);
	KUNIT_EXPECT_TRUE(test, test_thread_ends(thread));
	put_task_struct(thread);
out:
	other_ends(&o);
}

/*
 * Let the job of a worker wait for the mmap_lock of its process, which the test holds.
 * Then end the wait, and return the result of the job. No assertion ends the test here.
 */
static int lock_mm(struct worker_test *t, struct mm_struct *mm, struct keel_worker *worker,
		   void (*end_wait)(struct worker_test *t))
{
	struct test_job *j = &t->jobs[1];

	mmap_write_lock(mm);
	j->lock = TEST_NOT_LOCKED;
	KUNIT_EXPECT_EQ(t->test, 1, worker_test_queue(t, worker, 1));
	test_waits(t->test, &j->began);
	msleep(TEST_PAUSE_MS);
	KUNIT_EXPECT_EQ(t->test, TEST_NOT_LOCKED, READ_ONCE(j->lock));
	if (end_wait) {
		end_wait(t);
		test_waits(t->test, &j->ended);
		mmap_write_unlock(mm);
	} else {
		mmap_write_unlock(mm);
		test_waits(t->test, &j->ended);
	}
	return READ_ONCE(j->lock);
}

static void stop_workers(struct worker_test *t)
{
	worker_test_stop(&t->workers);
}

static void kill_worker(struct worker_test *t)
{
	/* The job waits, so its task exists. */
	if (t->jobs[1].task)
		send_sig(SIGKILL, t->jobs[1].task, 1);
}

/*
 * ISO-1: a worker waits for the mmap_lock only as long as its process and the context
 * exist.
 */
static void iso_1_worker_lock_mm(struct kunit *test)
{
	struct worker_test *t = test->priv;
	struct other_process o = {};

	if (other_begins(&o, t))
		KUNIT_EXPECT_EQ(test, -EINTR, lock_mm(t, o.mm, o.worker, kill_worker));
	other_ends(&o);
	worker_test_open(t);
	KUNIT_EXPECT_EQ(test, 0, lock_mm(t, current->mm, t->worker, NULL));
	KUNIT_EXPECT_EQ(test, -EINTR, lock_mm(t, current->mm, t->worker, stop_workers));
}

static struct kunit_case users_cases[] = {
	KUNIT_CASE(iso_2_worker_of),
	KUNIT_CASE(iso_1_worker_made),
	KUNIT_CASE(iso_2_worker_last),
	KUNIT_CASE(iso_2_worker_shared),
	KUNIT_CASE(iso_2_worker_killed),
	KUNIT_CASE(iso_1_worker_hold_mm),
	KUNIT_CASE(iso_1_worker_lock_mm),
	{}
};

static struct kunit_suite users_suite = {
	.name = "keel_worker_users",
	.init = worker_test_init,
	.exit = worker_test_exit,
	.test_cases = users_cases,
};
kunit_test_suite(users_suite);
