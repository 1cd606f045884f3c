/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Several threads that do the same to one object at the same time.
 */
#ifndef KEEL_THREADS_H
#define KEEL_THREADS_H

#include <kunit/test.h>
#include <linux/sched.h>

#define THREADS	4

/**
 * threads_run() - call a function in THREADS threads at once
 * @test: fails if a thread cannot be made
 * @fn: the function; gets the number of the thread
 * @arg: handed on
 *
 * Returns when all have returned and their threads are gone.
 */
void threads_run(struct kunit *test, void (*fn)(void *arg, unsigned int who),
		 void *arg);

/* Let the others run: User Mode Linux preempts no kernel thread. */
static inline void threads_yield(void)
{
	schedule();
}

#endif /* KEEL_THREADS_H */
