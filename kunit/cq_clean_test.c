// SPDX-License-Identifier: GPL-2.0
/*
 * CQEs of a QP that is destroyed or reset before they were polled. A kernel
 * consumer gets none of them, and all other CQEs in order.
 */
#include <linux/delay.h>
#include <linux/kthread.h>

#include "pair.h"

#define LEN	16
/* Messages: enough CQEs (two per message) to take the lock several times. */
#define MANY	300
#define SENT	1000
#define PATIENCE	(60 * HZ)

static const struct keel_ring *ring_of(struct pair *p)
{
	return &to_kcq(p->a.cq)->ring;
}

static void send_one(struct pair *p, u64 i)
{
	struct ib_sge sge = end_sge(p, &p->a, 0, LEN);
	const struct ib_send_wr wr = {
		.wr_id = SENT + i, .opcode = IB_WR_SEND,
		.send_flags = IB_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1,
	};

	KUNIT_ASSERT_EQ(p->test, 0, ib_post_send(p->a.qp, &wr, NULL));
}

/* Send from @a to @b, one after the other, without polling. */
static void send_many(struct pair *p, int n)
{
	unsigned long until = jiffies + PATIENCE;
	u32 want;
	int i;

	for (i = 0; i < n; i++) {
		want = READ_ONCE(ring_of(p)->index) + 2;
		end_recv(p, &p->b, i, 0, LEN);
		send_one(p, i);
		while (READ_ONCE(ring_of(p)->index) != want &&
		       time_before(jiffies, until))
			usleep_range(5, 20);
		KUNIT_ASSERT_EQ(p->test, want, READ_ONCE(ring_of(p)->index));
	}
}

static void made(struct kunit *test)
{
	struct pair *p = test->priv;

	p->one_cq = true;
	pair_make(p, IB_QPT_RC);
	pair_connect(p);
}

/* Poll everything: @n CQEs of @end, from @first on, and no other. */
static void expect_of(struct pair *p, const struct end *end, u64 first, int n)
{
	struct ib_wc wc;
	int i;

	KUNIT_EXPECT_EQ(p->test, PAIR_MANY - n, keel_ring_room(ring_of(p)));
	for (i = 0; i < n; i++) {
		KUNIT_ASSERT_EQ(p->test, 1, ib_poll_cq(p->a.cq, 1, &wc));
		KUNIT_EXPECT_PTR_EQ(p->test, end->qp, wc.qp);
		KUNIT_EXPECT_EQ(p->test, first + i, wc.wr_id);
		KUNIT_EXPECT_EQ(p->test, IB_WC_SUCCESS, wc.status);
	}
	KUNIT_EXPECT_EQ(p->test, 0, ib_poll_cq(p->a.cq, 1, &wc));
}

static void destroy_end(struct pair *p, struct end *end)
{
	KUNIT_EXPECT_EQ(p->test, 0, ib_destroy_qp(end->qp));
	end->qp = NULL;
}

static void dev_2_clean_destroyed(struct kunit *test)
{
	struct pair *p = test->priv;

	made(test);
	send_many(p, 5);
	destroy_end(p, &p->a);
	expect_of(p, &p->b, 0, 5);
}

static void dev_2_clean_destroyed_receiver(struct kunit *test)
{
	struct pair *p = test->priv;

	made(test);
	send_many(p, MANY);
	destroy_end(p, &p->b);
	expect_of(p, &p->a, SENT, MANY);
}

static void dev_2_clean_both(struct kunit *test)
{
	struct pair *p = test->priv;

	made(test);
	send_many(p, MANY);
	destroy_end(p, &p->a);
	destroy_end(p, &p->b);
	KUNIT_EXPECT_EQ(test, PAIR_MANY, keel_ring_room(ring_of(p)));
}

/* Connect both QPs again. @a has been reset already. */
static void connect_again(struct pair *p)
{
	end_move(p, &p->b, IB_QPS_RESET);
	end_connect(p, &p->a);
	end_connect(p, &p->b);
}

/* Old CQEs do not come back when the QP is connected again. */
static void dev_2_clean_reset(struct kunit *test)
{
	struct pair *p = test->priv;
	struct ib_wc wc;

	made(test);
	send_many(p, MANY);
	end_move(p, &p->a, IB_QPS_RESET);
	KUNIT_EXPECT_EQ(test, PAIR_MANY - MANY, keel_ring_room(ring_of(p)));
	expect_of(p, &p->b, 0, MANY);
	connect_again(p);
	send_many(p, 1);
	KUNIT_EXPECT_EQ(test, 1, ib_poll_cq(p->a.cq, 1, &wc));
	KUNIT_EXPECT_EQ(test, 0, wc.wr_id);
	KUNIT_EXPECT_EQ(test, 1, ib_poll_cq(p->a.cq, 1, &wc));
	KUNIT_EXPECT_EQ(test, SENT, wc.wr_id);
	KUNIT_EXPECT_PTR_EQ(test, p->a.qp, wc.qp);
}

/* A QP in the error state with a CQ of its own for its receive WQEs, of which two are flushed. */
static struct ib_qp *two_cqs_make(struct pair *p)
{
	struct ib_qp_init_attr init = {
		.send_cq = p->a.cq, .recv_cq = p->b.cq, .qp_type = IB_QPT_RC,
		.sq_sig_type = IB_SIGNAL_ALL_WR,
		.cap = { .max_send_wr = 1, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ib_qp_attr attr = { .qp_state = IB_QPS_INIT, .port_num = 1 };
	struct ib_recv_wr wr = { .wr_id = SENT };
	struct ib_qp *qp = ib_create_qp(p->pd, &init);
	struct ib_wc wc;
	int i;

	KUNIT_ASSERT_FALSE(p->test, IS_ERR(qp));
	KUNIT_EXPECT_EQ(p->test, 0, ib_modify_qp(qp, &attr, IB_QP_STATE | IB_QP_PORT |
						 IB_QP_PKEY_INDEX | IB_QP_ACCESS_FLAGS));
	for (i = 0; i < 2; i++)
		KUNIT_EXPECT_EQ(p->test, 0, ib_post_recv(qp, &wr, NULL));
	attr.qp_state = IB_QPS_ERR;
	KUNIT_EXPECT_EQ(p->test, 0, ib_modify_qp(qp, &attr, IB_QP_STATE));
	KUNIT_EXPECT_EQ(p->test, 1, ib_poll_cq(p->b.cq, 1, &wc));
	KUNIT_EXPECT_PTR_EQ(p->test, qp, wc.qp);
	return qp;
}

/* The CQ of the receive WQEs is cleaned, too, if the QP has two. */
static void dev_2_clean_two_cqs(struct kunit *test)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_RESET };
	struct pair *p = test->priv;
	struct ib_qp *qp;
	struct ib_wc wc;

	pair_make(p, IB_QPT_RC);
	qp = two_cqs_make(p);
	KUNIT_EXPECT_EQ(test, 0, ib_modify_qp(qp, &attr, IB_QP_STATE));
	KUNIT_EXPECT_EQ(test, 0, ib_poll_cq(p->b.cq, 1, &wc));
	KUNIT_EXPECT_EQ(test, 0, ib_destroy_qp(qp));
	qp = two_cqs_make(p);
	KUNIT_EXPECT_EQ(test, 0, ib_destroy_qp(qp));
	KUNIT_EXPECT_EQ(test, 0, ib_poll_cq(p->b.cq, 1, &wc));
}

/**
 * struct poller - a thread that polls when @a was reset
 * @p: the pair
 * @wc: its CQEs
 * @n: number of CQEs
 */
struct poller {
	struct pair *p;
	struct ib_wc *wc;
	int n;
};

static int poll_all(void *arg)
{
	struct poller *poller = arg;
	struct pair *p = poller->p;

	while (READ_ONCE(to_kqp(p->a.qp)->state) != IB_QPS_RESET &&
	       !kthread_should_stop())
		cpu_relax();
	/* Poll once. This may overtake the removal of CQEs. */
	poller->n = ib_poll_cq(p->a.cq, PAIR_MANY, poller->wc);
	while (!kthread_should_stop())
		usleep_range(100, 200);
	return 0;
}

/* All CQEs of @b, and the CQEs of @a that were not removed yet, in order. */
static void expect_polled(struct pair *p, const struct poller *poller)
{
	int n = poller->n;
	struct ib_wc *wc;
	u64 a = SENT, b = 0;

	n += ib_poll_cq(p->a.cq, PAIR_MANY - n, poller->wc + n);
	for (wc = poller->wc; wc < poller->wc + n; wc++) {
		if (wc->wr_id < SENT) {
			KUNIT_ASSERT_EQ(p->test, b, wc->wr_id);
			b++;
		} else {
			KUNIT_ASSERT_GE(p->test, wc->wr_id, a);
			a = wc->wr_id + 1;
		}
	}
	KUNIT_EXPECT_EQ(p->test, MANY, b);
}

/* The QP is reset while another thread polls. */
static void dev_2_clean_polled(struct kunit *test)
{
	struct poller poller = { .p = test->priv };
	struct pair *p = test->priv;
	struct task_struct *task;
	int round;

	made(test);
	poller.wc = kunit_kcalloc(test, PAIR_MANY, sizeof(*poller.wc),
				  GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, poller.wc);
	for (round = 0; round < 30; round++) {
		send_many(p, MANY);
		/* On a busy machine, the thread may never run. */
		poller.n = 0;
		task = kthread_run(poll_all, &poller, "keel_poll");
		KUNIT_ASSERT_FALSE(test, IS_ERR(task));
		/* Let the thread start. */
		usleep_range(100, 200);
		end_move(p, &p->a, IB_QPS_RESET);
		kthread_stop(task);
		expect_polled(p, &poller);
		KUNIT_EXPECT_EQ(test, PAIR_MANY, keel_ring_room(ring_of(p)));
		connect_again(p);
	}
}

static struct kunit_case cq_clean_cases[] = {
	KUNIT_CASE(dev_2_clean_destroyed),
	KUNIT_CASE(dev_2_clean_destroyed_receiver),
	KUNIT_CASE(dev_2_clean_both),
	KUNIT_CASE(dev_2_clean_reset),
	KUNIT_CASE(dev_2_clean_two_cqs),
	KUNIT_CASE(dev_2_clean_polled),
	{}
};

static struct kunit_suite cq_clean_suite = {
	.name = "keel_cq_clean",
	.suite_init = pair_suite_init,
	.suite_exit = pair_suite_exit,
	.init = pair_init,
	.exit = pair_exit,
	.test_cases = cq_clean_cases,
};
kunit_test_suite(cq_clean_suite);
