// SPDX-License-Identifier: GPL-2.0
/*
 * Forced orders: at a point between two steps of one thread, the hook calls what
 * another thread could call meanwhile. See keel_point.h. All orders must have the
 * same result: nothing waits for ever, and nothing completes twice. The comment of
 * each case names the mistake that makes it fail.
 */
#include <linux/atomic.h>
#include <linux/completion.h>
#include <linux/kthread.h>
#include <linux/sched/task.h>
#include <linux/workqueue.h>

#include "keel_fast.h"
#include "keel_point.h"
#include "pair.h"

#define LEN	100

/**
 * struct order - a point, and what is called there
 * @name: name of the point
 * @act: called once, in the first thread that comes there
 * @p: passed to @act
 * @hits: how often a thread came there
 * @events: completion events of the CQ of the first end
 * @missed: whether ib_req_notify_cq() reported that CQEs were missed
 */
static struct order {
	const char *name;
	void (*act)(struct pair *p);
	struct pair *p;
	atomic_t hits;
	atomic_t events;
	bool missed;
} order;

static void order_hook(const char *name)
{
	if (!strcmp(name, order.name) && atomic_inc_return(&order.hits) == 1)
		order.act(order.p);
}

static void order_begin(struct pair *p, const char *name,
			void (*act)(struct pair *p))
{
	order = (struct order){ .name = name, .act = act, .p = p };
	/* Read by this thread, and by work that is queued from here on. */
	WRITE_ONCE(keel_point_hook.hit, order_hook);
}

/* Check that the point was met, and the number of completions of each end. */
static void order_end(struct pair *p, int a, int b)
{
	WRITE_ONCE(keel_point_hook.hit, NULL);
	KUNIT_EXPECT_GT(p->test, atomic_read(&order.hits), 0);
	KUNIT_ASSERT_EQ(p->test, a, p->a.wcs);
	KUNIT_ASSERT_EQ(p->test, b, p->b.wcs);
}

static void orders_exit(struct kunit *test)
{
	struct pair *p = test->priv;

	WRITE_ONCE(keel_point_hook.hit, NULL);
	if (p)
		flush_workqueue(to_kdev(p->ibdev)->wq);
	pair_exit(test);
}

static void count_event(struct ib_cq *cq, void *context)
{
	atomic_inc(&order.events);
}

static void connected(struct pair *p)
{
	p->on_wc = count_event;
	pair_make(p, IB_QPT_RC);
	pair_connect(p);
}

/* Post a message from the start of the buffer. */
static void send(struct pair *p, struct end *end, u64 wr_id)
{
	struct ib_sge sge = end_sge(p, end, 0, LEN);
	const struct ib_send_wr wr = {
		.wr_id = wr_id, .opcode = IB_WR_SEND,
		.send_flags = IB_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1,
	};

	KUNIT_EXPECT_EQ(p->test, 0, ib_post_send(end->qp, &wr, NULL));
}

/* Run the send queue, as a doorbell does. */
static void run(struct end *end)
{
	const struct keel_turn turn = { .until = U64_MAX };

	keel_sq_run(to_kqp(end->qp), &turn);
}

static void check_wc(struct pair *p, const struct end *end, int i, u64 wr_id,
		     enum ib_wc_status status)
{
	KUNIT_EXPECT_EQ(p->test, wr_id, end->wc[i].wr_id);
	KUNIT_EXPECT_EQ(p->test, status, end->wc[i].status);
}

/* The message of @a arrives, once. */
static void one_message(struct pair *p)
{
	pair_settle(p, &p->a, 1);
	order_end(p, 1, 1);
	check_wc(p, &p->a, 0, 1, IB_WC_SUCCESS);
	check_wc(p, &p->b, 0, 7, IB_WC_SUCCESS);
	KUNIT_EXPECT_EQ(p->test, -1, end_differs(&p->b, 0, &p->a, 0,
						 p->b.wc[0].byte_len));
}

/* --- a requester that finds no receive WQE, and a post --------------------- */

static void act_recv(struct pair *p)
{
	end_recv(p, &p->b, 7, 0, LEN);
}

/* keel_rq_want() holds the lock of the queue at this point. */
static void want_recv(struct pair *p, void (*act)(struct pair *p))
{
	connected(p);
	order_begin(p, "rq_want", act);
	send(p, &p->a, 1);
	one_message(p);
	KUNIT_EXPECT_EQ(p->test, LEN, p->b.wc[0].byte_len);
}

/* Fails if the requester polls the queue before it requests a wakeup. */
static void order_rq_want(struct kunit *test)
{
	want_recv(test->priv, act_recv);
}

static void act_srq_recv(struct pair *p)
{
	struct ib_sge sge = end_sge(p, &p->b, 0, LEN);
	const struct ib_recv_wr wr = {
		.wr_id = 7, .sg_list = &sge, .num_sge = 1,
	};

	KUNIT_EXPECT_EQ(p->test, 0, ib_post_srq_recv(p->srq, &wr, NULL));
}

/* The same with an SRQ. */
static void order_srq_want(struct kunit *test)
{
	struct pair *p = test->priv;

	p->with_srq = true;
	want_recv(p, act_srq_recv);
}

static void act_send(struct pair *p)
{
	send(p, &p->a, 1);
	flush_workqueue(to_kdev(p->ibdev)->wq);
}

/*
 * The requester takes the receive WQE before the post is over. Fails if the post
 * checks for requesters that wait before the WQE is visible.
 */
static void order_recv_posted(struct kunit *test)
{
	struct pair *p = test->priv;

	connected(p);
	order_begin(p, "recv_posted", act_send);
	end_recv(p, &p->b, 7, 0, LEN);
	one_message(p);
}

/* Returns whether userspace is told to ring the doorbell after a post. */
static bool doorbell_wanted(const struct end *end)
{
	const struct keel_ring *ring = &to_kqp(end->qp)->rq.ring;

	return READ_ONCE(ring->head->flags) & KEEL_RING_F_DOORBELL;
}

static void act_want_again(struct pair *p)
{
	run(&p->a);
	end_send_silently(p, &p->a, 2, LEN);
	run(&p->a);
}

/*
 * The requester takes the receive WQE, and waits for the next one, before the
 * thread that posted clears the request. Fails if that thread wakes the requester
 * first.
 */
static void order_rq_unwanted(struct kunit *test)
{
	struct pair *p = test->priv;

	pair_make(p, IB_QPT_RC);
	/* 655 ms: the requester shall not retry meanwhile. */
	p->b.attr.min_rnr_timer = 0;
	pair_connect(p);
	send(p, &p->a, 1);
	flush_workqueue(to_kdev(p->ibdev)->wq);
	KUNIT_EXPECT_TRUE(test, doorbell_wanted(&p->b));
	order_begin(p, "rq_unwanted", act_want_again);
	end_recv(p, &p->b, 7, 0, LEN);
	one_message(p);
	KUNIT_EXPECT_TRUE(test, doorbell_wanted(&p->b));
	end_recv(p, &p->b, 8, 0, LEN);
	pair_settle(p, &p->a, 2);
	check_wc(p, &p->a, 1, 2, IB_WC_SUCCESS);
	check_wc(p, &p->b, 1, 8, IB_WC_SUCCESS);
}

/* In a work of the device, which may not wait for a modify operation. */
static void act_error_only(struct pair *p)
{
	KUNIT_EXPECT_TRUE(p->test, keel_qp_fail(to_kqp(p->b.qp), IB_QPS_ERR,
						KEEL_EVENT_NONE));
}

/*
 * The queue asks for a doorbell for its error, before the thread that posted clears
 * the request of a requester. Fails if the flush does not ask again.
 */
static void order_rq_unwanted_error(struct kunit *test)
{
	struct pair *p = test->priv;

	connected(p);
	send(p, &p->a, 1);
	flush_workqueue(to_kdev(p->ibdev)->wq);
	order_begin(p, "rq_unwanted", act_error_only);
	end_recv(p, &p->b, 7, 0, LEN);
	pair_settle(p, &p->b, 1);
	order_end(p, 0, 1);
	check_wc(p, &p->b, 0, 7, IB_WC_WR_FLUSH_ERR);
	KUNIT_EXPECT_TRUE(test, doorbell_wanted(&p->b));
}

/* --- a flush of receive WQEs, and a post ------------------------------------ */

/*
 * No other flush is scheduled that would find the receive WQE. Fails if the post
 * does not check the state.
 */
static void order_rq_flushed(struct kunit *test)
{
	struct pair *p = test->priv;

	connected(p);
	end_move(p, &p->b, IB_QPS_ERR);
	pair_settle(p, &p->b, 0);
	order_begin(p, "rq_flushed", act_recv);
	keel_rq_flush(to_kqp(p->b.qp));
	pair_settle(p, &p->b, 1);
	order_end(p, 0, 1);
	check_wc(p, &p->b, 0, 7, IB_WC_WR_FLUSH_ERR);
}

static void act_error(struct pair *p)
{
	end_move(p, &p->b, IB_QPS_ERR);
	flush_workqueue(to_kdev(p->ibdev)->wq);
}

/* Fails if the post checks the state before the WQE is visible. */
static void order_recv_posted_error(struct kunit *test)
{
	struct pair *p = test->priv;

	connected(p);
	order_begin(p, "recv_posted", act_error);
	end_recv(p, &p->b, 7, 0, LEN);
	pair_settle(p, &p->b, 1);
	order_end(p, 0, 1);
	check_wc(p, &p->b, 0, 7, IB_WC_WR_FLUSH_ERR);
}

/* --- a CQE, and the consumer that arms the CQ ------------------------------- */

static void act_arm(struct pair *p)
{
	order.missed = ib_req_notify_cq(p->a.cq, IB_CQ_NEXT_COMP |
					IB_CQ_REPORT_MISSED_EVENTS) > 0;
}

/*
 * The only CQE of the CQ is that of the receive WQE. Fails if @arm is read before
 * the CQE is visible.
 */
static void order_cqe_added(struct kunit *test)
{
	struct pair *p = test->priv;

	connected(p);
	end_recv(p, &p->a, 7, 0, LEN);
	order_begin(p, "cqe_added", act_arm);
	send(p, &p->b, 1);
	pair_settle(p, &p->b, 1);
	order_end(p, 1, 1);
	check_wc(p, &p->a, 0, 7, IB_WC_SUCCESS);
	KUNIT_EXPECT_GT(test, atomic_read(&order.events) + order.missed, 0);
}

static void act_message(struct pair *p)
{
	send(p, &p->b, 1);
	flush_workqueue(to_kdev(p->ibdev)->wq);
}

/* Fails if missed CQEs are counted before the CQ is armed. */
static void order_cq_armed(struct kunit *test)
{
	struct pair *p = test->priv;

	connected(p);
	end_recv(p, &p->a, 7, 0, LEN);
	order_begin(p, "cq_armed", act_message);
	act_arm(p);
	KUNIT_EXPECT_GT(test, atomic_read(&order.events) + order.missed, 0);
	pair_settle(p, &p->a, 1);
	order_end(p, 1, 1);
	check_wc(p, &p->a, 0, 7, IB_WC_SUCCESS);
}

/* --- two threads that run a send queue --------------------------------------- */

static void act_run_second(struct pair *p)
{
	end_send_silently(p, &p->a, 2, LEN);
	run(&p->a);
}

/*
 * The second thread finds the lock taken, by a thread that found no more WQE.
 * Fails if that thread does not check @again after it has dropped the lock.
 */
static void order_sq_drained(struct kunit *test)
{
	struct pair *p = test->priv;

	connected(p);
	end_recv(p, &p->b, 7, 0, LEN);
	end_recv(p, &p->b, 8, 0, LEN);
	end_send_silently(p, &p->a, 1, LEN);
	order_begin(p, "sq_drained", act_run_second);
	run(&p->a);
	end_collect(&p->a);
	end_collect(&p->b);
	order_end(p, 2, 2);
	check_wc(p, &p->a, 0, 1, IB_WC_SUCCESS);
	check_wc(p, &p->a, 1, 2, IB_WC_SUCCESS);
	KUNIT_EXPECT_EQ(test, 0, atomic_read(&to_kqp(p->a.qp)->sq.again));
}

static enum keel_fast fast_run(struct end *end)
{
	u32 budget = KEEL_FAST_FIRST;

	guard(preempt)();
	guard(rcu)();
	return keel_fast_run(to_kqp(end->qp), &budget);
}

/*
 * The same while the fast path has the lock, and found no WQE: its caller must
 * take the slow path. Fails if the fast path does not check @again.
 */
static void order_fast_drained(struct kunit *test)
{
	struct pair *p = test->priv;

	connected(p);
	end_recv(p, &p->b, 7, 0, LEN);
	KUNIT_ASSERT_EQ(test, KEEL_FAST_DONE, fast_run(&p->a));
	order_begin(p, "fast_drained", act_run_second);
	KUNIT_EXPECT_EQ(test, KEEL_FAST_SLOW, fast_run(&p->a));
	run(&p->a);
	end_collect(&p->a);
	end_collect(&p->b);
	order_end(p, 1, 1);
	check_wc(p, &p->a, 0, 2, IB_WC_SUCCESS);
}

/* --- a requester whose peer is not ready ------------------------------------- */

/**
 * struct helper - a thread that gets the second end ready
 * @p: both ends
 * @here: completed when the thread runs
 */
struct helper {
	struct pair *p;
	struct completion here;
};

static int helper_run(void *arg)
{
	struct helper *h = arg;
	struct end *end = &h->p->b;

	complete(&h->here);
	return end_try_connect(end);
}

/* In another thread, because this one holds the lock of a send queue. */
static void act_connect(struct pair *p)
{
	struct helper h = { .p = p };
	struct task_struct *task;

	init_completion(&h.here);
	task = kthread_create(helper_run, &h, "keel-helper");
	KUNIT_EXPECT_FALSE(p->test, IS_ERR(task));
	if (IS_ERR(task))
		return;
	get_task_struct(task);
	wake_up_process(task);
	/* A thread that is stopped before it has started never runs. */
	wait_for_completion(&h.here);
	/* Waits until the thread has ended. */
	KUNIT_EXPECT_EQ(p->test, 0, kthread_stop_put(task));
}

/* A requester that waits for its peer, perhaps for ever. */
static void half_connected(struct pair *p)
{
	pair_make(p, IB_QPT_RC);
	p->a.attr.timeout = 0;
	end_connect(p, &p->a);
}

/* Fails if a QP that becomes ready does not wake its peer. */
static void order_no_peer(struct kunit *test)
{
	struct pair *p = test->priv;

	half_connected(p);
	order_begin(p, "no_peer", act_connect);
	send(p, &p->a, 1);
	flush_workqueue(to_kdev(p->ibdev)->wq);
	end_recv(p, &p->b, 7, 0, LEN);
	one_message(p);
}

static void act_run(struct pair *p)
{
	run(&p->a);
}

/*
 * The requester runs after its peer is ready, and before it is woken. Fails if the
 * peer wakes it before the state is set.
 */
static void order_qp_changed(struct kunit *test)
{
	struct pair *p = test->priv;

	half_connected(p);
	p->b.state = IB_QPS_INIT;
	end_connect(p, &p->b);
	end_recv(p, &p->b, 7, 0, LEN);
	end_send_silently(p, &p->a, 1, LEN);
	order_begin(p, "qp_changed", act_run);
	p->b.state = IB_QPS_RTS;
	end_connect(p, &p->b);
	one_message(p);
}

/* --- an error, and the flush after it ---------------------------------------- */

static void act_flush(struct pair *p)
{
	keel_rq_flush(to_kqp(p->a.qp));
}

/* Fails if a receive WQE can be flushed before the CQE of the error. */
static void order_sq_failed(struct kunit *test)
{
	struct pair *p = test->priv;
	struct ib_sge sge = { .length = LEN, .lkey = 0x12345600 };
	const struct ib_send_wr wr = {
		.wr_id = 1, .opcode = IB_WR_SEND, .sg_list = &sge, .num_sge = 1,
	};

	connected(p);
	end_recv(p, &p->a, 5, 0, LEN);
	end_recv(p, &p->b, 7, 0, LEN);
	order_begin(p, "sq_failed", act_flush);
	KUNIT_EXPECT_EQ(test, 0, ib_post_send(p->a.qp, &wr, NULL));
	pair_settle(p, &p->a, 2);
	order_end(p, 2, 0);
	check_wc(p, &p->a, 0, 1, IB_WC_LOC_PROT_ERR);
	check_wc(p, &p->a, 1, 5, IB_WC_WR_FLUSH_ERR);
}

/* --- a QP that is destroyed, and the fast path of its peer -------------------- */

static void act_fast(struct pair *p)
{
	end_send_silently(p, &p->a, 2, LEN);
	fast_run(&p->a);
}

/*
 * The requester looks its peer up while that is being destroyed, and must not keep
 * it. Fails if the count of destroyed QPs changes at the other side of the point,
 * before the peer is erased.
 */
static void order_qp_erased(struct kunit *test)
{
	struct pair *p = test->priv;
	struct keel_sq *sq;

	connected(p);
	end_recv(p, &p->b, 7, 0, LEN);
	send(p, &p->a, 1);
	pair_settle(p, &p->a, 1);
	sq = &to_kqp(p->a.qp)->sq;
	KUNIT_EXPECT_EQ(test, KEEL_FAST_DONE, fast_run(&p->a));
	sq->qps_destroyed = -1;
	order_begin(p, "qp_erased", act_fast);
	KUNIT_EXPECT_EQ(test, 0, ib_destroy_qp(p->b.qp));
	p->b.qp = NULL;
	WRITE_ONCE(keel_point_hook.hit, NULL);
	KUNIT_EXPECT_EQ(test, 1, atomic_read(&order.hits));
	/* The fast path has looked for it. */
	KUNIT_EXPECT_NE(test, -1, sq->qps_destroyed);
	KUNIT_EXPECT_PTR_EQ(test, NULL, sq->peer);
}

/* --- a QP that is destroyed, and a doorbell of another thread ------------------ */

static void act_destroy(struct pair *p)
{
	KUNIT_EXPECT_EQ(p->test, 0, ib_destroy_qp(p->b.qp));
	p->b.qp = NULL;
}

/*
 * The doorbell clears the request of a requester after the destroy. Fails if it writes
 * to the ring then: userspace may have reused it.
 */
static void order_rq_unwanted_destroyed(struct kunit *test)
{
	struct pair *p = test->priv;
	struct keel_qp *qp;

	connected(p);
	send(p, &p->a, 1);
	flush_workqueue(to_kdev(p->ibdev)->wq);
	KUNIT_EXPECT_TRUE(test, doorbell_wanted(&p->b));
	qp = to_kqp(p->b.qp);
	keel_obj_get(&qp->obj);
	order_begin(p, "rq_unwanted", act_destroy);
	KUNIT_EXPECT_EQ(test, 0, keel_qp_run_until(qp, 0));
	order_end(p, 0, 0);
	KUNIT_EXPECT_EQ(test, KEEL_RING_F_DOORBELL, READ_ONCE(qp->rq.ring.head->flags));
	keel_obj_put(&qp->obj);
}

static struct kunit_case orders_cases[] = {
	KUNIT_CASE(order_rq_want),
	KUNIT_CASE(order_srq_want),
	KUNIT_CASE(order_recv_posted),
	KUNIT_CASE(order_rq_unwanted),
	KUNIT_CASE(order_rq_unwanted_error),
	KUNIT_CASE(order_rq_flushed),
	KUNIT_CASE(order_recv_posted_error),
	KUNIT_CASE(order_cqe_added),
	KUNIT_CASE(order_cq_armed),
	KUNIT_CASE(order_sq_drained),
	KUNIT_CASE(order_fast_drained),
	KUNIT_CASE(order_no_peer),
	KUNIT_CASE(order_qp_changed),
	KUNIT_CASE(order_sq_failed),
	KUNIT_CASE(order_qp_erased),
	KUNIT_CASE(order_rq_unwanted_destroyed),
	{}
};

static struct kunit_suite orders_suite = {
	.name = "keel_orders",
	.suite_init = pair_suite_init,
	.suite_exit = pair_suite_exit,
	.init = pair_init,
	.exit = orders_exit,
	.test_cases = orders_cases,
};
kunit_test_suite(orders_suite);
