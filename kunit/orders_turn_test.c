// SPDX-License-Identifier: GPL-2.0
/*
 * Forced orders of a send queue whose turn is over, while other threads ring its
 * doorbell without end: the thread leaves, and the worker runs the queue. See
 * keel_point.h and orders_test.c.
 */
#include <linux/atomic.h>
#include <linux/sched.h>
#include <linux/workqueue.h>

#include "keel_point.h"
#include "pair.h"

#define LEN	100
/* A thread that does not leave has this many tries, so that the test ends. */
#define TRIES	100

/**
 * struct ringing - other threads, which ring the doorbell of a QP
 * @p: its pair; the QP is that of the first end
 * @name: the point at which they ring
 * @late: post a message at the first visit of @name, which the worker is to execute
 * @visits: how often the thread of the test was behind its last WQE
 * @again: &keel_sq.again at its first visit there
 */
static struct ringing {
	struct pair *p;
	const char *name;
	bool late;
	int visits;
	int again;
} ringing;

static void ringing_hook(const char *name)
{
	struct keel_sq *sq = &to_kqp(ringing.p->a.qp)->sq;

	/* The worker is not to be kept. */
	if (current->flags & PF_WQ_WORKER)
		return;
	if (!strcmp(name, "sq_drained") && !ringing.visits++)
		ringing.again = atomic_read(&sq->again);
	if (strcmp(name, ringing.name) || ringing.visits >= TRIES)
		return;
	if (ringing.late)
		end_send_silently(ringing.p, &ringing.p->a, 1, LEN);
	ringing.late = false;
	atomic_set(&sq->again, 1);
}

static void turn_exit(struct kunit *test)
{
	struct pair *p = test->priv;

	WRITE_ONCE(keel_point_hook.hit, NULL);
	if (p)
		flush_workqueue(to_kdev(p->ibdev)->wq);
	pair_exit(test);
}

static void connected(struct pair *p)
{
	pair_make(p, IB_QPT_RC);
	pair_connect(p);
	end_recv(p, &p->b, 7, 0, LEN);
}

/* Run the queue while others ring at a point: one visit, and one message arrives. */
static void ring_at(struct pair *p, const char *name, bool late,
		    const struct keel_turn *turn)
{
	ringing = (struct ringing){ .p = p, .name = name, .late = late };
	WRITE_ONCE(keel_point_hook.hit, ringing_hook);
	keel_sq_run(to_kqp(p->a.qp), turn);
	KUNIT_EXPECT_EQ(p->test, 1, ringing.visits);
	pair_settle(p, &p->a, 1);
	WRITE_ONCE(keel_point_hook.hit, NULL);
	end_collect(&p->b);
	KUNIT_ASSERT_EQ(p->test, 1, p->a.wcs);
	KUNIT_ASSERT_EQ(p->test, 1, p->b.wcs);
	KUNIT_EXPECT_EQ(p->test, IB_WC_SUCCESS, p->a.wc[0].status);
	KUNIT_EXPECT_EQ(p->test, IB_WC_SUCCESS, p->b.wc[0].status);
	KUNIT_EXPECT_EQ(p->test, -1, end_differs(&p->b, 0, &p->a, 0, LEN));
	KUNIT_EXPECT_EQ(p->test, 0, atomic_read(&to_kqp(p->a.qp)->sq.again));
}

/*
 * Fails if @again keeps a thread whose time is over, or if that thread leaves the
 * queue without scheduling the QP.
 */
static void turn_late(struct kunit *test)
{
	struct pair *p = test->priv;

	connected(p);
	ring_at(p, "sq_drained", true, &(const struct keel_turn){ .until = 0 });
}

/* The same for a doorbell that has executed all WQEs that were posted before it. */
static void turn_end(struct kunit *test)
{
	struct pair *p = test->priv;

	connected(p);
	ring_at(p, "sq_drained", true, &(const struct keel_turn){
		.doorbell = true,
		.end = to_kqp(p->a.qp)->sq.ring.index,
		.until = U64_MAX,
	});
}

/*
 * Others ring while the last WQE of the doorbell is executed. Fails if the thread
 * clears @again and runs the queue once more, with the lock held.
 */
static void turn_end_locked(struct kunit *test)
{
	struct pair *p = test->priv;

	connected(p);
	end_send_silently(p, &p->a, 1, LEN);
	ring_at(p, "cqe_added", false, &(const struct keel_turn){
		.doorbell = true,
		.end = to_kqp(p->a.qp)->sq.ring.index + 1,
		.until = U64_MAX,
	});
	KUNIT_EXPECT_EQ(test, 1, ringing.again);
}

/*
 * The last turn for a dead process transfers nothing, and has no limit of time.
 * Fails if it stays because another process, which has taken the QP over, rings.
 */
static void turn_flush(struct kunit *test)
{
	struct pair *p = test->priv;

	connected(p);
	end_send_silently(p, &p->a, 1, LEN);
	ring_at(p, "sq_drained", false, &(const struct keel_turn){
		.doorbell = true,
		.flush = true,
		.end = to_kqp(p->a.qp)->sq.ring.index + 1,
		.until = U64_MAX,
	});
}

static struct kunit_case turn_cases[] = {
	KUNIT_CASE(turn_late),
	KUNIT_CASE(turn_end),
	KUNIT_CASE(turn_end_locked),
	KUNIT_CASE(turn_flush),
	{}
};

static struct kunit_suite turn_suite = {
	.name = "keel_orders_turn",
	.suite_init = pair_suite_init,
	.suite_exit = pair_suite_exit,
	.init = pair_init,
	.exit = turn_exit,
	.test_cases = turn_cases,
};
kunit_test_suite(turn_suite);
