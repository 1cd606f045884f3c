// SPDX-License-Identifier: GPL-2.0
/*
 * Threads that are to end: how many threads of the kernel wait for those of a user.
 */
#include <kunit/test.h>
#include <linux/completion.h>
#include <linux/cred.h>
#include <linux/delay.h>
#include <linux/mm.h>
#include <linux/pid.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>

#include "keel_quota.h"
#include "keel_reap.h"
#include "worker_jobs.h"

#define MORE	3
#define THREADS	(KEEL_REAPS_OF_USER + MORE)
/* The user of the last thread. */
#define ANOTHER	12345

/**
 * struct thread - a thread that does not end before the test lets it
 * @reap: its end
 * @thread: the thread
 * @began: it has begun to run; else it could end before
 * @leave: lets it end
 * @ended: it has ended
 * @runs: it was started
 * @ready: it is to end
 */
struct thread {
	struct keel_reap reap;
	struct keel_thread thread;
	struct completion began, leave, ended;
	bool runs, ready;
};

struct reap_test {
	struct thread all[THREADS], other;
};

static bool thread_run(void *data)
{
	struct thread *t = data;

	__set_current_state(TASK_RUNNING);
	complete(&t->began);
	wait_for_completion(&t->leave);
	/* Without a sleep: the thread may have been woken already. */
	cond_resched();
	return true;
}

static void thread_die(void *data)
{
}

static void thread_ended(struct keel_reap *reap)
{
	complete_all(&container_of(reap, struct thread, reap)->ended);
}

/* The thread outlives the test, which it would refer to as its own. */
static int thread_start(struct thread *t)
{
	struct kunit *test = current->kunit_test;
	int ret;

	current->kunit_test = NULL;
	ret = keel_thread_start(&t->thread, thread_run, thread_die, t);
	current->kunit_test = test;
	return ret;
}

static void thread_begin(struct kunit *test, struct thread *t)
{
	init_completion(&t->began);
	init_completion(&t->leave);
	init_completion(&t->ended);
	t->reap.thread = &t->thread;
	t->reap.owner = task_tgid(current);
	t->reap.ended = thread_ended;
	KUNIT_ASSERT_EQ(test, 0, keel_reap_init(&t->reap));
	KUNIT_ASSERT_EQ(test, 0, thread_start(t));
	t->runs = true;
	wait_for_completion(&t->began);
	keel_reap_add(&t->reap);
}

/* As thread_begin(), but for a thread of another user. */
static void thread_begin_other(struct kunit *test, struct thread *t)
{
	struct cred *cred = prepare_creds();
	const struct cred *old;

	KUNIT_ASSERT_NOT_NULL(test, cred);
	cred->uid = KUIDT_INIT(ANOTHER);
	old = override_creds(cred);
	thread_begin(test, t);
	revert_creds(old);
	put_cred(cred);
}

static void thread_ready(struct thread *t)
{
	t->ready = true;
	keel_reap_ready(&t->reap, false);
}

static int reap_init(struct kunit *test)
{
	test->priv = kunit_kzalloc(test, sizeof(struct reap_test), GFP_KERNEL);
	return test->priv ? 0 : -ENOMEM;
}

static void thread_end(struct kunit *test, struct thread *t)
{
	if (!t->runs)
		return;
	complete_all(&t->leave);
	/* Only if the test has failed. */
	if (!t->ready)
		keel_reap_ready(&t->reap, false);
	test_waits(test, &t->ended);
	keel_reap_fini(&t->reap);
}

static void reap_exit(struct kunit *test)
{
	struct reap_test *r = test->priv;
	int i;

	if (!r)
		return;
	for (i = 0; i < THREADS; i++)
		thread_end(test, &r->all[i]);
	thread_end(test, &r->other);
}

/* Returns how many of the threads wait for their turn. */
static unsigned int waiting(struct reap_test *r)
{
	unsigned int i, n = 0;

	for (i = 0; i < THREADS; i++)
		n += !list_empty_careful(&r->all[i].reap.turn);
	return n;
}

/*
 * ISO-1: only a few threads of the kernel wait for threads of a user that do not end,
 * and threads of another user, or of a killed process, end meanwhile.
 */
static void iso_1_reap_turns(struct kunit *test)
{
	struct reap_test *r = test->priv;
	struct keel_reaps_line *line;
	unsigned int i;

	KUNIT_ASSERT_EQ(test, 0, kunit_attach_mm());
	for (i = 0; i < THREADS; i++)
		thread_begin(test, &r->all[i]);
	thread_begin_other(test, &r->other);
	line = &r->all[0].reap.user->reaps.line[0];
	KUNIT_EXPECT_PTR_EQ(test, r->all[0].reap.user, r->all[1].reap.user);
	KUNIT_EXPECT_PTR_NE(test, r->all[0].reap.user, r->other.reap.user);
	for (i = 0; i < THREADS; i++) {
		KUNIT_EXPECT_EQ(test, min(i, KEEL_REAPS_OF_USER), READ_ONCE(line->begun));
		thread_ready(&r->all[i]);
	}
	KUNIT_EXPECT_EQ(test, KEEL_REAPS_OF_USER, READ_ONCE(line->begun));
	KUNIT_EXPECT_EQ(test, MORE, waiting(r));
	complete_all(&r->other.leave);
	thread_ready(&r->other);
	test_waits(test, &r->other.ended);
	/* One ends, and the oldest of the others has its turn. */
	complete_all(&r->all[1].leave);
	test_waits(test, &r->all[1].ended);
	KUNIT_EXPECT_EQ(test, KEEL_REAPS_OF_USER, READ_ONCE(line->begun));
	KUNIT_EXPECT_EQ(test, MORE - 1, waiting(r));
	KUNIT_EXPECT_TRUE(test, list_empty_careful(&r->all[KEEL_REAPS_OF_USER].reap.turn));
	/* One is killed, and does not wait for the others. Nothing happens the second time. */
	complete_all(&r->all[THREADS - 1].leave);
	keel_reap_killed(&r->all[THREADS - 1].reap);
	keel_reap_killed(&r->all[THREADS - 1].reap);
	test_waits(test, &r->all[THREADS - 1].ended);
	KUNIT_EXPECT_EQ(test, KEEL_REAPS_OF_USER, READ_ONCE(line->begun));
	KUNIT_EXPECT_EQ(test, 0, READ_ONCE(r->all[0].reap.user->reaps.line[1].begun));
	KUNIT_EXPECT_EQ(test, MORE - 2, waiting(r));
	/* All can end. If the turns were not passed on, the end of the test would wait. */
	for (i = 0; i < THREADS; i++)
		complete_all(&r->all[i].leave);
	for (i = 0; i < THREADS; i++)
		test_waits(test, &r->all[i].ended);
	KUNIT_EXPECT_EQ(test, 0, READ_ONCE(line->begun));
}

static bool has_slept(struct task_struct *task, unsigned long times)
{
	return READ_ONCE(task->nvcsw) > times;
}

/*
 * ISO-1: a thread of the kernel that waits for long does not seem to be hung: it is woken
 * from time to time, and waits again.
 */
static void iso_1_reap_blinks(struct kunit *test)
{
	struct reap_test *r = test->priv;
	struct thread *t = &r->all[0];
	struct task_struct *task;
	unsigned long end = jiffies + TEST_PATIENCE, times;
	int i;

	KUNIT_ASSERT_EQ(test, 0, kunit_attach_mm());
	thread_begin(test, t);
	KUNIT_EXPECT_NULL(test, READ_ONCE(t->reap.waits));
	thread_ready(t);
	do {
		msleep(TEST_PAUSE_MS);
		task = READ_ONCE(t->reap.waits);
	} while (!task && time_before(jiffies, end));
	KUNIT_ASSERT_NOT_NULL(test, task);
	for (i = 0; i < 3; i++) {
		times = READ_ONCE(task->nvcsw);
		while (!has_slept(task, times) && time_before(jiffies, end))
			msleep(TEST_PAUSE_MS);
		KUNIT_EXPECT_TRUE(test, has_slept(task, times));
	}
	KUNIT_EXPECT_FALSE(test, try_wait_for_completion(&t->ended));
}

static bool lives(void)
{
	guard(rcu)();
	return !!keel_reaps_live(current);
}

/* As the kernel does before the threads of a process exit. */
static void dies(unsigned int flags, struct task_struct *execs)
{
	/* It does not change while this thread exists. */
	struct sighand_struct *sighand = rcu_dereference_protected(current->sighand, true);

	guard(spinlock_irq)(&sighand->siglock);
	current->signal->flags ^= flags;
	current->signal->group_exec_task = execs;
}

/*
 * ISO-1: rmmod kills no process whose threads are about to exit, although they may have
 * taken their signal: the process may be another program by then.
 */
static void iso_1_reap_exec(struct kunit *test)
{
	struct reap_test *r = test->priv;

	KUNIT_EXPECT_FALSE(test, lives());
	KUNIT_ASSERT_EQ(test, 0, kunit_attach_mm());
	thread_begin(test, &r->all[0]);
	KUNIT_EXPECT_TRUE(test, lives());
	dies(0, current);
	KUNIT_EXPECT_FALSE(test, lives());
	dies(SIGNAL_GROUP_EXIT, NULL);
	KUNIT_EXPECT_FALSE(test, lives());
	dies(SIGNAL_GROUP_EXIT, NULL);
	KUNIT_EXPECT_TRUE(test, lives());
}

static struct kunit_case reap_cases[] = {
	KUNIT_CASE(iso_1_reap_turns),
	KUNIT_CASE(iso_1_reap_blinks),
	KUNIT_CASE(iso_1_reap_exec),
	{}
};

static struct kunit_suite reap_suite = {
	.name = "keel_reap",
	.init = reap_init,
	.exit = reap_exit,
	.test_cases = reap_cases,
};
kunit_test_suite(reap_suite);
