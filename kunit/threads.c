// SPDX-License-Identifier: GPL-2.0
/*
 * Several threads that run the same function on one object at the same time.
 */
#include <linux/completion.h>
#include <linux/cpumask.h>
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/jiffies.h>
#include <linux/kthread.h>
#include <linux/sched/task.h>

#include "threads.h"

#define THREADS_PATIENCE	(10 * HZ)

struct threads_member {
	struct task_struct *task;
	struct completion here, *go;
	void (*fn)(void *arg, unsigned int who);
	void *arg;
	unsigned int who;
};

static int threads_thread(void *data)
{
	struct threads_member *me = data;

	complete(&me->here);
	wait_for_completion(me->go);
	me->fn(me->arg, me->who);
	return 0;
}

bool threads_idles(const struct task_struct *task)
{
	unsigned long end = jiffies + THREADS_PATIENCE;

	while (READ_ONCE(task->__state) != TASK_IDLE) {
		if (time_after(jiffies, end))
			return false;
		usleep_range(1000, 2000);
	}
	return true;
}

/*
 * Spread the threads over the processors, because the scheduler would run all
 * of them on one processor at first. A thread that is stopped before it has
 * started never runs, so wait until it runs.
 */
static void threads_add(struct kunit *test, struct threads_member *m)
{
	unsigned int cpu = cpumask_nth(m->who % num_online_cpus(),
				       cpu_online_mask);

	init_completion(&m->here);
	m->task = kthread_create(threads_thread, m, "keel_threads/%u", m->who);
	KUNIT_EXPECT_FALSE(test, IS_ERR(m->task));
	if (IS_ERR(m->task))
		return;
	kthread_bind(m->task, cpu);
	get_task_struct(m->task);
	wake_up_process(m->task);
	wait_for_completion(&m->here);
}

void threads_run(struct kunit *test, void (*fn)(void *arg, unsigned int who),
		 void *arg)
{
	struct threads_member *members;
	struct completion go;
	unsigned int i;

	members = kunit_kcalloc(test, THREADS, sizeof(*members), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, members);
	init_completion(&go);
	for (i = 0; i < THREADS; i++) {
		members[i].go = &go;
		members[i].fn = fn;
		members[i].arg = arg;
		members[i].who = i;
		threads_add(test, &members[i]);
	}
	complete_all(&go);
	for (i = 0; i < THREADS; i++)
		if (!IS_ERR(members[i].task))
			kthread_stop_put(members[i].task);
}
