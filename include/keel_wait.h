/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Waits for a thread that waits for no other process, but that may get no processor for long:
 * its process has a low priority, or little time in its cgroup.
 */
#ifndef KEEL_WAIT_H
#define KEEL_WAIT_H

#include <linux/sched.h>
#include <linux/wait_bit.h>

/**
 * keel_wait_var() - wait_var_event(), but the thread does not seem to be hung
 * @var: address that wake_up_var() is called with
 * @condition: the condition to wait for
 *
 * The kernel reports threads as hung that sleep for long, and may panic. A thread in
 * TASK_IDLE it does not report. No signal ends the wait.
 *
 * Context: may sleep.
 */
#define keel_wait_var(var, condition)						\
do {										\
	might_sleep();								\
	if (condition)								\
		break;								\
	___wait_var_event(var, condition, TASK_IDLE, 0, 0, schedule());		\
} while (0)

#endif /* KEEL_WAIT_H */
