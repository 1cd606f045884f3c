// SPDX-License-Identifier: GPL-2.0
/*
 * Races: an error while ib_modify_qp() waits for the send queue, and a query of
 * a QP that is destroyed ("rdma resource").
 */
#include <linux/completion.h>
#include <linux/kthread.h>
#include <linux/sched.h>

#include "pair.h"

#define PATIENCE	(60 * HZ)

/**
 * struct mover - a thread that sets the address of a QP
 * @end: the end of the QP, which is in SQD
 * @ret: result of ib_modify_qp()
 * @done: completed when ib_modify_qp() has returned
 */
struct mover {
	struct end *end;
	int ret;
	struct completion done;
};

static int mover_run(void *arg)
{
	struct mover *m = arg;
	struct ib_qp_attr attr = m->end->attr;

	attr.qp_state = IB_QPS_SQD;
	m->ret = ib_modify_qp(m->end->qp, &attr, IB_QP_STATE | IB_QP_AV);
	complete(&m->done);
	return 0;
}

/* Wait until the thread waits for the lock of the send queue, held here. */
static void mover_waits(struct kunit *test, struct task_struct *task)
{
	unsigned long until = jiffies + PATIENCE;

	while (READ_ONCE(task->__state) != TASK_UNINTERRUPTIBLE &&
	       time_before(jiffies, until))
		schedule_timeout_uninterruptible(1);
	KUNIT_EXPECT_EQ(test, TASK_UNINTERRUPTIBLE, READ_ONCE(task->__state));
}

static void post_one(struct kunit *test, struct end *end, u64 wr_id)
{
	const struct ib_send_wr wr = {
		.wr_id = wr_id, .opcode = IB_WR_SEND,
	};

	KUNIT_EXPECT_EQ(test, 0, ib_post_send(end->qp, &wr, NULL));
}

/*
 * The workqueue must flush the send queue, but the lock is taken. So it leaves
 * the flush to ib_modify_qp(), which then finds another state.
 */
static void qp_flush_is_left(struct kunit *test)
{
	struct pair *p = test->priv;
	struct mover m = { .end = &p->a };
	struct task_struct *task;
	struct keel_qp *qp;

	pair_make(p, IB_QPT_RC);
	pair_connect(p);
	qp = to_kqp(p->a.qp);
	end_move(p, &p->a, IB_QPS_SQD);
	post_one(test, &p->a, 7);
	flush_workqueue(qp->kdev->wq);
	end_collect(&p->a);
	KUNIT_EXPECT_EQ(test, 0, p->a.wcs);

	init_completion(&m.done);
	mutex_lock(&qp->sq.from.lock);
	task = kthread_run(mover_run, &m, "keel-mover");
	if (IS_ERR(task))
		mutex_unlock(&qp->sq.from.lock);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, task);
	mover_waits(test, task);
	keel_qp_fail(qp, IB_QPS_ERR, KEEL_EVENT_NONE);
	flush_workqueue(qp->kdev->wq);
	mutex_unlock(&qp->sq.from.lock);
	wait_for_completion(&m.done);

	KUNIT_EXPECT_EQ(test, -EINVAL, m.ret);
	end_collect(&p->a);
	KUNIT_ASSERT_EQ(test, 1, p->a.wcs);
	KUNIT_EXPECT_EQ(test, 7, p->a.wc[0].wr_id);
	KUNIT_EXPECT_EQ(test, IB_WC_WR_FLUSH_ERR, p->a.wc[0].status);
}

/* Older versions of ib_core list a QP until after its destroy. */
static void qp_query_late(struct kunit *test)
{
	struct pair *p = test->priv;
	struct ib_qp_init_attr init;
	struct keel_ib_qp *kibqp;
	struct ib_qp_attr attr;
	struct keel_qp *qp;

	pair_make(p, IB_QPT_RC);
	kibqp = container_of(p->a.qp, struct keel_ib_qp, ib);
	qp = kibqp->qp;
	WRITE_ONCE(kibqp->qp, NULL);
	KUNIT_EXPECT_EQ(test, -EAGAIN, ib_query_qp(p->a.qp, &attr, 0, &init));
	WRITE_ONCE(kibqp->qp, qp);
	KUNIT_EXPECT_EQ(test, 0, ib_query_qp(p->a.qp, &attr, 0, &init));
	KUNIT_EXPECT_EQ(test, IB_QPS_RESET, attr.qp_state);
}

static struct kunit_case qp_race_cases[] = {
	KUNIT_CASE(qp_flush_is_left),
	KUNIT_CASE(qp_query_late),
	{}
};

static struct kunit_suite qp_race_suite = {
	.name = "keel_qp_race",
	.suite_init = pair_suite_init,
	.suite_exit = pair_suite_exit,
	.init = pair_init,
	.exit = pair_exit,
	.test_cases = qp_race_cases,
};
kunit_test_suite(qp_race_suite);
