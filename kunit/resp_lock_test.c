// SPDX-License-Identifier: GPL-2.0
/*
 * A thread that wants the lock of a responder retries, and gives up when there is
 * nothing to do any more. That it does not sleep on the lock is not checked here.
 */
#include <linux/sched.h>
#include <linux/sched/signal.h>

#include "keel_resp_lock.h"
#include "pair.h"

#define LEN		100
#define PATIENCE	(60 * HZ)

static struct keel_resp *resp_of(const struct end *end)
{
	return &to_kqp(end->qp)->resp;
}

static void connected(struct kunit *test, enum ib_qp_type type)
{
	pair_make(test->priv, type);
	pair_connect(test->priv);
}

/* Post a send WQE at the first end, and return while a thread executes it. */
static void send_and_wait(struct kunit *test, u64 wr_id)
{
	struct pair *p = test->priv;
	struct ib_sge sge = end_sge(p, &p->a, 0, LEN);
	struct ib_ud_wr wr = {
		.wr = { .wr_id = wr_id, .opcode = IB_WR_SEND, .num_sge = 1,
			.send_flags = IB_SEND_SIGNALED, .sg_list = &sge },
		.ah = p->ah, .remote_qpn = p->b.qp->qp_num,
		.remote_qkey = PAIR_QKEY,
	};
	unsigned long until = jiffies + PATIENCE;
	struct mutex *lock = &to_kqp(p->a.qp)->sq.from.lock;
	bool runs;

	KUNIT_EXPECT_EQ(test, 0, ib_post_send(p->a.qp, &wr.wr, NULL));
	do {
		schedule_timeout_uninterruptible(1);
		runs = mutex_is_locked(lock);
		end_collect(&p->a);
	} while (!runs && !p->a.wcs && time_before(jiffies, until));
	KUNIT_EXPECT_TRUE(test, runs || p->a.wcs);
}

/* The lock must be dropped before anything may end the test. */
static void collect_and_unlock(struct pair *p)
{
	unsigned long until = jiffies + PATIENCE;

	for (; !p->a.wcs && time_before(jiffies, until); end_collect(&p->a))
		schedule_timeout_uninterruptible(1);
	mutex_unlock(&resp_of(&p->b)->lock);
	pair_settle(p, &p->a, 1);
}

static void check_sent(struct kunit *test, enum ib_wc_status status)
{
	struct pair *p = test->priv;

	KUNIT_ASSERT_EQ(test, 1, p->a.wcs);
	KUNIT_EXPECT_EQ(test, 8, p->a.wc[0].wr_id);
	KUNIT_EXPECT_EQ(test, status, p->a.wc[0].status);
}

/* A message waits as long as the responder is locked, over several turns. */
static void resp_lock_message(struct kunit *test)
{
	struct pair *p = test->priv;

	connected(test, IB_QPT_RC);
	end_recv(p, &p->b, 7, 0, LEN);
	mutex_lock(&resp_of(&p->b)->lock);
	send_and_wait(test, 8);
	/* Longer than one thread retries. */
	schedule_timeout_uninterruptible(HZ / 2);
	end_collect(&p->a);
	KUNIT_EXPECT_EQ(test, 0, p->a.wcs);
	mutex_unlock(&resp_of(&p->b)->lock);
	pair_settle(p, &p->a, 1);
	check_sent(test, IB_WC_SUCCESS);
	KUNIT_ASSERT_EQ(test, 1, p->b.wcs);
	KUNIT_EXPECT_EQ(test, 7, p->b.wc[0].wr_id);
	KUNIT_EXPECT_EQ(test, -1, end_differs(&p->b, 0, &p->a, 0, LEN));
}

/* A requester that fails completes, although the responder stays locked. */
static void resp_lock_requester_fails(struct kunit *test)
{
	struct pair *p = test->priv;

	connected(test, IB_QPT_RC);
	end_recv(p, &p->b, 7, 0, LEN);
	mutex_lock(&resp_of(&p->b)->lock);
	send_and_wait(test, 8);
	keel_qp_fail(to_kqp(p->a.qp), IB_QPS_ERR, KEEL_EVENT_NONE);
	collect_and_unlock(p);
	check_sent(test, IB_WC_WR_FLUSH_ERR);
	KUNIT_EXPECT_EQ(test, 0, p->b.wcs);
}

/* A datagram does not wait until the lock is free: it is lost, and counted. */
static void resp_lock_datagram(struct kunit *test)
{
	struct pair *p = test->priv;
	u64 before;

	connected(test, IB_QPT_UD);
	end_recv(p, &p->b, 7, 0, sizeof(struct ib_grh) + LEN);
	before = pair_counter(p, KEEL_CTR_ud_drops);
	mutex_lock(&resp_of(&p->b)->lock);
	send_and_wait(test, 8);
	collect_and_unlock(p);
	check_sent(test, IB_WC_SUCCESS);
	KUNIT_EXPECT_EQ(test, 0, p->b.wcs);
	KUNIT_EXPECT_EQ(test, before + 1, pair_counter(p, KEEL_CTR_ud_drops));
}

/* The thread that flushes a receive queue retries, too. */
static void resp_lock_flush(struct kunit *test)
{
	struct pair *p = test->priv;

	connected(test, IB_QPT_RC);
	end_recv(p, &p->b, 7, 0, LEN);
	mutex_lock(&resp_of(&p->b)->lock);
	keel_qp_fail(to_kqp(p->b.qp), IB_QPS_ERR, KEEL_EVENT_NONE);
	schedule_timeout_uninterruptible(HZ / 10);
	end_collect(&p->b);
	KUNIT_EXPECT_EQ(test, 0, p->b.wcs);
	mutex_unlock(&resp_of(&p->b)->lock);
	pair_settle(p, &p->b, 1);
	KUNIT_ASSERT_EQ(test, 1, p->b.wcs);
	KUNIT_EXPECT_EQ(test, 7, p->b.wc[0].wr_id);
	KUNIT_EXPECT_EQ(test, IB_WC_WR_FLUSH_ERR, p->b.wc[0].status);
}

/* How often resp_wanted() says that there is work to do. */
static int wanted;

static bool resp_wanted(const struct keel_qp *qp)
{
	return wanted-- > 0;
}

/* Call keel_resp_enter(), and unlock: returns whether it was locked. */
static bool enter(struct kunit *test, struct keel_qp *qp, int times)
{
	int depth = preempt_count(), inside = depth;
	bool entered, locked = false;

	wanted = times;
	entered = keel_resp_enter(qp, resp_wanted);
	if (entered) {
		locked = mutex_is_locked(&qp->resp.lock);
		inside = preempt_count() - 1;
		if (locked)
			mutex_unlock(&qp->resp.lock);
		keel_resp_relax();
	}
	KUNIT_EXPECT_EQ(test, entered, locked);
	KUNIT_EXPECT_FALSE(test, mutex_is_locked(&qp->resp.lock));
	KUNIT_EXPECT_EQ(test, depth, preempt_count());
	if (IS_ENABLED(CONFIG_PREEMPT_COUNT) && !IS_ENABLED(CONFIG_PREEMPT_RT))
		KUNIT_EXPECT_EQ(test, depth, inside);
	return entered;
}

/* Another thread does the work before this one gets the lock. */
static void resp_lock_not_wanted(struct kunit *test)
{
	struct pair *p = test->priv;
	struct keel_qp *qp;

	pair_make(p, IB_QPT_RC);
	qp = to_kqp(p->b.qp);
	KUNIT_EXPECT_FALSE(test, enter(test, qp, 0));
	KUNIT_EXPECT_FALSE(test, enter(test, qp, 1));
	KUNIT_EXPECT_TRUE(test, enter(test, qp, 2));
}

static int pause_until(const struct end *end, u64 until)
{
	struct keel_resp_wait wait = { .until = until };
	int i, ret = 0;

	/* It looks at the time only after many attempts. */
	for (i = 0; i < 1000 && !ret; i++)
		ret = keel_resp_pause(to_kqp(end->qp), &wait);
	return ret;
}

/* Retries end with the time, and when the requester must not send any more. */
static void resp_lock_pause(struct kunit *test)
{
	struct pair *p = test->priv;
	struct keel_qp *qp;

	connected(test, IB_QPT_RC);
	qp = to_kqp(p->a.qp);
	KUNIT_EXPECT_EQ(test, 0, pause_until(&p->a, U64_MAX));
	KUNIT_EXPECT_EQ(test, -EBUSY, pause_until(&p->a, 1));
	/* As in the destroy of the QP. */
	WRITE_ONCE(qp->dying, true);
	KUNIT_EXPECT_EQ(test, -EINTR, pause_until(&p->a, U64_MAX));
	WRITE_ONCE(qp->dying, false);
	end_move(p, &p->a, IB_QPS_SQD);
	KUNIT_EXPECT_EQ(test, 0, pause_until(&p->a, U64_MAX));
	keel_qp_fail(qp, IB_QPS_ERR, KEEL_EVENT_NONE);
	KUNIT_EXPECT_EQ(test, -EINTR, pause_until(&p->a, U64_MAX));
}

/* ISO-2: retries end when the process is killed. */
static void iso_2_pause_killed(struct kunit *test)
{
	struct pair *p = test->priv;

	connected(test, IB_QPT_RC);
	allow_signal(SIGKILL);
	KUNIT_EXPECT_EQ(test, 0, send_sig(SIGKILL, current, 1));
	KUNIT_EXPECT_EQ(test, -EINTR, pause_until(&p->a, U64_MAX));
	flush_signals(current);
	disallow_signal(SIGKILL);
	KUNIT_EXPECT_EQ(test, 0, pause_until(&p->a, U64_MAX));
}

static struct kunit_case resp_lock_cases[] = {
	KUNIT_CASE(resp_lock_message),
	KUNIT_CASE(resp_lock_requester_fails),
	KUNIT_CASE(resp_lock_datagram),
	KUNIT_CASE(resp_lock_flush),
	KUNIT_CASE(resp_lock_not_wanted),
	KUNIT_CASE(resp_lock_pause),
	KUNIT_CASE(iso_2_pause_killed),
	{}
};

static struct kunit_suite resp_lock_suite = {
	.name = "keel_resp_lock",
	.suite_init = pair_suite_init,
	.suite_exit = pair_suite_exit,
	.init = pair_init,
	.exit = pair_exit,
	.test_cases = resp_lock_cases,
};
kunit_test_suite(resp_lock_suite);
