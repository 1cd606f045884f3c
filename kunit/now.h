/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tests of far_now.c. The test is the thread of the link: it passes a frame to the QP, and sees
 * what this thread does with it, and what the work of the QP does.
 */
#ifndef KEEL_NOW_H
#define KEEL_NOW_H

#include "far_host.h"

/**
 * struct now_runs - what has run the QP
 * @thread: the thread of the test
 * @h: the host
 * @far: calls that have executed packets: of others, and of @thread
 * @sq: calls that have run the send queue: of others, and of @thread
 * @index: first WQE of the send queue after the first call of @thread
 * @sent: frames that the QP had sent then
 * @answers: frames that it had sent when @thread had executed packets for the first time
 * @need: what that call was missing, enum keel_need_kind
 * @awaits: the send queue waited for an SRQ then
 * @open: what ends after that call, or NULL
 * @posting: others post whenever @thread has run the send queue
 */
struct now_runs {
	struct task_struct *thread;
	struct far_host *h;
	atomic_t far[2];
	atomic_t sq[2];
	u32 index;
	u32 sent;
	u32 answers;
	u32 need;
	bool awaits;
	struct list_head *open;
	bool posting;
};

extern struct now_runs now;

/* The QPs of kernel consumers have owners for the thread of the test, as those of processes. */
void now_own(struct kunit *test);
/* Count from now on. */
void now_watch(struct far_host *h);
/* The work of the QP has run, or not. */
void now_worked(struct far_host *h, bool worked);
/* Number of frames that the QP has sent. */
u32 now_sent(struct far_host *h);
/* For suites: nothing is counted any more; pair_exit(). */
void now_exit(struct kunit *test);

#endif /* KEEL_NOW_H */
