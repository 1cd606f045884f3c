/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Several threads that do the same to one thing at the same time.
 */
#ifndef KEEL_CROWD_H
#define KEEL_CROWD_H

#include <kunit/test.h>
#include <linux/sched.h>

#define CROWD	4

/**
 * crowd_run() - call a function in CROWD threads at once
 * @test: fails if a thread cannot be made
 * @fn: the function; gets the number of the thread
 * @arg: handed on
 *
 * Returns when all have returned and their threads are gone.
 */
void crowd_run(struct kunit *test, void (*fn)(void *arg, unsigned int who),
	       void *arg);

/* Let the others run: User Mode Linux preempts no kernel thread. */
static inline void crowd_yield(void)
{
	schedule();
}

#endif /* KEEL_CROWD_H */
