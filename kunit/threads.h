/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Several threads that run the same function on one object at the same time.
 */
#ifndef KEEL_THREADS_H
#define KEEL_THREADS_H

#include <kunit/test.h>
#include <linux/sched.h>

#define THREADS	4

/**
 * threads_run() - call a function in THREADS threads at once
 * @test: fails if a thread cannot be created
 * @fn: the function; gets the number of the thread
 * @arg: passed to @fn
 *
 * Returns when all threads have ended.
 */
void threads_run(struct kunit *test, void (*fn)(void *arg, unsigned int who),
		 void *arg);

/**
 * threads_idles() - wait until a thread sleeps as one that has nothing to do
 * @task: the thread; does not end before the caller lets it
 *
 * The kernel does not report such a thread as hung.
 *
 * Return: false if that has taken too long.
 */
bool threads_idles(const struct task_struct *task);

/* Let other threads run: User Mode Linux does not preempt kernel threads. */
static inline void threads_yield(void)
{
	schedule();
}

#endif /* KEEL_THREADS_H */
