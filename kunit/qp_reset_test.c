// SPDX-License-Identifier: GPL-2.0
/*
 * RESET: a QP that is connected again has nothing of its earlier life.
 */
#include "pair.h"

#define OLD	77
#define LEN	64

/* Both ends begin a new life. */
static void live_again(struct pair *p)
{
	end_move(p, &p->a, IB_QPS_RESET);
	end_move(p, &p->b, IB_QPS_RESET);
	end_connect(p, &p->a);
	end_connect(p, &p->b);
}

static void send_one(struct pair *p)
{
	struct ib_sge sge = end_sge(p, &p->a, 0, LEN);
	const struct ib_send_wr wr = {
		.wr_id = 1,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IB_WR_SEND,
		.send_flags = IB_SEND_SIGNALED,
	};

	KUNIT_ASSERT_EQ(p->test, 0, ib_post_send(p->a.qp, &wr, NULL));
}

/* A message that was interrupted has taken a receive WQE. */
static void interrupt(struct pair *p)
{
	struct keel_resp *resp = &to_kqp(p->b.qp)->resp;

	mutex_lock(&resp->lock);
	resp->have = true;
	resp->recv.wr_id = OLD;
	resp->recv.num_sge = 0;
	mutex_unlock(&resp->lock);
}

/* The next message is received by a receive WQE of its own life. */
static void dev_2_reset_recv(struct kunit *test)
{
	struct pair *p = test->priv;

	pair_make(p, IB_QPT_RC);
	pair_connect(p);
	interrupt(p);
	live_again(p);
	end_recv(p, &p->b, 5, 0, LEN);
	send_one(p);
	pair_settle(p, &p->a, 1);
	pair_settle(p, &p->b, 1);
	KUNIT_EXPECT_EQ(test, IB_WC_SUCCESS, p->a.wc[0].status);
	KUNIT_EXPECT_EQ(test, 1, p->b.wcs);
	KUNIT_EXPECT_EQ(test, 5, p->b.wc[0].wr_id);
	KUNIT_EXPECT_EQ(test, IB_WC_SUCCESS, p->b.wc[0].status);
	KUNIT_EXPECT_EQ(test, LEN, p->b.wc[0].byte_len);
}

/* Receive WQEs that were posted before do not come back. */
static void dev_2_reset_posted(struct kunit *test)
{
	struct pair *p = test->priv;
	int i;

	pair_make(p, IB_QPT_RC);
	pair_connect(p);
	for (i = 0; i < 3; i++)
		end_recv(p, &p->b, OLD, 0, LEN);
	live_again(p);
	end_recv(p, &p->b, 5, 0, LEN);
	send_one(p);
	pair_settle(p, &p->b, 1);
	KUNIT_EXPECT_EQ(test, 5, p->b.wc[0].wr_id);
	end_move(p, &p->b, IB_QPS_ERR);
	pair_settle(p, &p->b, 1);
	KUNIT_EXPECT_EQ(test, 1, p->b.wcs);
}

/* LAST_WQE_REACHED comes once in each life. */
static void dev_2_reset_last(struct kunit *test)
{
	struct pair *p = test->priv;
	int i;

	p->with_srq = true;
	pair_make(p, IB_QPT_RC);
	pair_connect(p);
	for (i = 1; i <= 3; i++) {
		end_move(p, &p->b, IB_QPS_ERR);
		pair_settle(p, &p->b, 0);
		KUNIT_EXPECT_EQ(test, i, p->b.nr_events);
		KUNIT_EXPECT_EQ(test, IB_EVENT_QP_LAST_WQE_REACHED, p->b.events[i - 1]);
		live_again(p);
	}
}

static struct kunit_case qp_reset_cases[] = {
	KUNIT_CASE(dev_2_reset_recv),
	KUNIT_CASE(dev_2_reset_posted),
	KUNIT_CASE(dev_2_reset_last),
	{}
};

static struct kunit_suite qp_reset_suite = {
	.name = "keel_qp_modify_reset",
	.suite_init = pair_suite_init,
	.suite_exit = pair_suite_exit,
	.init = pair_init,
	.exit = pair_exit,
	.test_cases = qp_reset_cases,
};
kunit_test_suite(qp_reset_suite);
