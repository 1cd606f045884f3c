/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The ends of worker threads. The kernel ends such a thread only for another thread that
 * waits until it has ended, and if the process of the thread is stopped, that takes until
 * somebody continues it. So threads of the kernel wait, at most a few for each user: the
 * other threads of that user, which have nothing to do any more, sleep until it is their
 * turn. A core unit.
 */
#ifndef KEEL_REAP_H
#define KEEL_REAP_H

#include <linux/hrtimer.h>
#include <linux/kernel.h>
#include <linux/list.h>
#include <linux/workqueue.h>

#include "compat.h"

struct keel_user;
struct pid;
struct task_struct;

/* Threads of the kernel that wait for threads of one user, and so many for killed ones. */
#define KEEL_REAPS_OF_USER	8U

/**
 * struct keel_reap - the end of a thread
 * @thread: the thread
 * @owner: the process that it belongs to; the caller keeps both until @ended
 * @ended: called when the thread has ended; may free the structure
 * @user: the user of the process
 * @node: in the list of all threads that are to end, from keel_reap_add() on
 * @turn: in &keel_reaps_line.waiting
 * @killed: the process was killed: the line that it is in
 * @queued: @work is queued
 * @waits: the thread in which @work waits, or NULL
 * @blink: wakes that thread from time to time
 * @work: waits for the end
 */
struct keel_reap {
	struct keel_thread *thread;
	struct pid *owner;
	void (*ended)(struct keel_reap *reap);
	struct keel_user *user;
	struct list_head node;
	struct list_head turn;
	bool killed;
	bool queued;
	struct task_struct *waits;
	struct hrtimer blink;
	struct work_struct work;
};

/**
 * struct keel_reaps_line - threads that are to end; a lock of reap.c protects it
 * @waiting: struct keel_reap: threads that have nothing to do, the oldest first
 * @begun: number of threads of the kernel that wait
 */
struct keel_reaps_line {
	struct list_head waiting;
	unsigned int begun;
};

/**
 * struct keel_reaps_of_user - the threads of a user that are to end
 * @line: those of processes that live, and of killed processes. The latter take more
 *	memory than the user is charged for, but nothing stops them: they do not wait
 *	for the former.
 */
struct keel_reaps_of_user {
	struct keel_reaps_line line[2];
};

/**
 * keel_reaps_of_user_init() - initialize a user without threads
 * @reaps: part of the user
 */
static inline void keel_reaps_of_user_init(struct keel_reaps_of_user *reaps)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(reaps->line); i++) {
		INIT_LIST_HEAD(&reaps->line[i].waiting);
		reaps->line[i].begun = 0;
	}
}

int keel_reaps_init(void);
void keel_reaps_end(void);
void keel_reaps_exit(void);

int keel_reap_init(struct keel_reap *reap);
void keel_reap_fini(struct keel_reap *reap);
void keel_reap_add(struct keel_reap *reap);
void keel_reap_ready(struct keel_reap *reap, bool killed);
void keel_reap_killed(struct keel_reap *reap);
#if IS_ENABLED(CONFIG_KUNIT)
struct task_struct *keel_reaps_live(struct task_struct *process) __must_hold_shared(RCU);
#endif

#endif /* KEEL_REAP_H */
