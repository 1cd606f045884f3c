// SPDX-License-Identifier: GPL-2.0
/*
 * Events of shared receive queues for a kernel consumer, and the calls that its
 * handler may make.
 */
#include <kunit/test.h>
#include <linux/netdevice.h>

#include "keel_keys.h"
#include "keel_point.h"
#include "keel_qp.h"

#define WRS	8

/**
 * struct consumer - a consumer of the device
 * @test: the test that runs
 * @pd: its PD
 * @srq: its SRQ
 * @again: limit that the handler sets; 0: none
 * @limits: events of the limit so far
 * @errors: errors of the SRQ so far
 */
struct consumer {
	struct kunit *test;
	struct ib_pd *pd;
	struct ib_srq *srq;
	u32 again;
	int limits;
	int errors;
};

/* Set the limit again, and post a receive WQE, in the handler. */
static void consumer_event(struct ib_event *event, void *context)
{
	struct consumer *c = context;
	struct ib_srq_attr attr = { .srq_limit = c->again };
	struct ib_recv_wr wr = { .wr_id = 77 };
	const struct ib_recv_wr *bad;
	spinlock_t *lock = &to_ksrq(c->srq)->rq.lock;
	bool locked = !spin_trylock(lock);

	if (!locked)
		spin_unlock(lock);
	KUNIT_EXPECT_PTR_EQ(c->test, c->srq, event->element.srq);
	if (event->event == IB_EVENT_SRQ_ERR)
		c->errors++;
	else if (event->event == IB_EVENT_SRQ_LIMIT_REACHED)
		c->limits++;
	KUNIT_EXPECT_FALSE(c->test, locked);
	/* A handler with the lock held would deadlock. */
	if (locked || !c->again)
		return;
	KUNIT_EXPECT_EQ(c->test, 0, ib_modify_srq(c->srq, &attr, IB_SRQ_LIMIT));
	KUNIT_EXPECT_EQ(c->test, 0, ib_query_srq(c->srq, &attr));
	KUNIT_EXPECT_EQ(c->test, c->again, attr.srq_limit);
	KUNIT_EXPECT_EQ(c->test, 0, ib_post_srq_recv(c->srq, &wr, &bad));
}

static void consumer_put_device(void *ibdev)
{
	ib_device_put(ibdev);
}

static void consumer_free_pd(void *pd)
{
	ib_dealloc_pd(pd);
}

/* The default device of the module. */
static struct ib_device *consumer_device(void)
{
	struct net_device *netdev = dev_get_by_name(&init_net, "keel0");
	struct ib_device *ibdev;

	if (!netdev)
		return NULL;
	ibdev = ib_device_get_by_netdev(netdev, RDMA_DRIVER_UNKNOWN);
	dev_put(netdev);
	return ibdev;
}

static struct consumer *consumer_new(struct kunit *test)
{
	struct ib_device *ibdev = consumer_device();
	struct consumer *c = kunit_kzalloc(test, sizeof(*c), GFP_KERNEL);
	struct ib_srq_init_attr init = {
		.event_handler = consumer_event,
		.srq_context = c,
		.attr = { .max_wr = WRS, .max_sge = 1 },
		.srq_type = IB_SRQT_BASIC,
	};

	KUNIT_ASSERT_NOT_NULL(test, ibdev);
	KUNIT_ASSERT_EQ(test, 0, kunit_add_action_or_reset(test,
							   consumer_put_device,
							   ibdev));
	KUNIT_ASSERT_NOT_NULL(test, c);
	c->test = test;
	c->pd = ib_alloc_pd(ibdev, 0);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, c->pd);
	KUNIT_ASSERT_EQ(test, 0, kunit_add_action_or_reset(test,
							   consumer_free_pd,
							   c->pd));
	c->srq = ib_create_srq(c->pd, &init);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, c->srq);
	return c;
}

static void consumer_post(struct consumer *c, int n)
{
	struct ib_recv_wr wr = {};
	const struct ib_recv_wr *bad;

	for (; wr.wr_id < n; wr.wr_id++)
		KUNIT_ASSERT_EQ(c->test, 0,
				ib_post_srq_recv(c->srq, &wr, &bad));
}

static void consumer_limit(struct consumer *c, u32 limit)
{
	struct ib_srq_attr attr = { .srq_limit = limit };

	KUNIT_ASSERT_EQ(c->test, 0, ib_modify_srq(c->srq, &attr,
						  IB_SRQ_LIMIT));
}

static void srq_event_rearm(struct kunit *test)
{
	struct consumer *c = consumer_new(test);
	struct keel_srq *srq = to_ksrq(c->srq);
	struct keel_recv recv;
	int i;

	consumer_post(c, 4);
	consumer_limit(c, 3);
	c->again = 3;
	/* 4 receive WQEs. Take one at a time; each event posts another one. */
	for (i = 0; i < 20; i++) {
		KUNIT_EXPECT_EQ(test, 1, keel_srq_take(srq, &recv));
		KUNIT_EXPECT_EQ(test, i < 4 ? i : 77, recv.wr_id);
		KUNIT_EXPECT_EQ(test, i, c->limits);
	}
	/* Without setting the limit again, the event is raised once. */
	c->again = 0;
	for (i = 0; i < 3; i++)
		KUNIT_EXPECT_EQ(test, 1, keel_srq_take(srq, &recv));
	KUNIT_EXPECT_EQ(test, 0, keel_srq_take(srq, &recv));
	KUNIT_EXPECT_EQ(test, 20, c->limits);
	KUNIT_EXPECT_EQ(test, 0, c->errors);
	ib_destroy_srq(c->srq);
}

static void srq_event_error(struct kunit *test)
{
	struct consumer *c = consumer_new(test);
	struct keel_srq *srq = to_ksrq(c->srq);
	struct keel_recv recv;

	WRITE_ONCE(srq->rq.ring.head->user, WRS + 1);
	KUNIT_EXPECT_EQ(test, -EINVAL, keel_srq_take(srq, &recv));
	KUNIT_EXPECT_EQ(test, -EINVAL, keel_srq_take(srq, &recv));
	KUNIT_EXPECT_EQ(test, 1, c->errors);
	KUNIT_EXPECT_EQ(test, 0, c->limits);
	/* A destroyed SRQ that a QP still holds raises no event. */
	keel_obj_get(&srq->obj);
	ib_destroy_srq(c->srq);
	KUNIT_EXPECT_EQ(test, -EINVAL, keel_srq_take(srq, &recv));
	keel_obj_put(&srq->obj);
	KUNIT_EXPECT_EQ(test, 1, c->errors);
}

/* The CQ of the SRQ is in error: one event, and no receive WQE is taken any more. */
static void srq_event_fail(struct kunit *test)
{
	struct consumer *c = consumer_new(test);
	struct keel_srq *srq = to_ksrq(c->srq);
	struct keel_recv recv;

	consumer_post(c, 4);
	keel_srq_fail(srq);
	keel_srq_fail(srq);
	KUNIT_EXPECT_EQ(test, 1, c->errors);
	KUNIT_EXPECT_EQ(test, -EINVAL, keel_srq_take(srq, &recv));
	KUNIT_EXPECT_EQ(test, 1, c->errors);
	KUNIT_EXPECT_EQ(test, 0, c->limits);
	ib_destroy_srq(c->srq);
}

/**
 * struct section - a section of the fast path that has found an SRQ
 * @kdev: the device
 * @srqn: number of the SRQ
 * @entered: it has begun, and found the SRQ
 * @waits: how often a thread waited for its end
 * @found: the SRQ could still be found then
 */
static struct section {
	struct keel_dev *kdev;
	u32 srqn;
	bool entered;
	int waits;
	bool found;
} section;

static void section_end(void)
{
	keel_keys_leave();
	preempt_enable();
}

static void section_hit(const char *name)
{
	/* The message finds the SRQ just before the owner destroys it. */
	if (!strcmp(name, "srq_destroy")) {
		preempt_disable();
		keel_keys_enter();
		section.entered = keel_number_load(&section.kdev->srqs, section.srqn);
		return;
	}
	if (strcmp(name, "section_waits") || section.waits++)
		return;
	section.found = keel_number_load(&section.kdev->srqs, section.srqn);
	section_end();
}

/*
 * ISO-1: a message of the fast path has found the SRQ, without a reference. The destroy
 * waits for the end of its section, which the point brings about, and no later message
 * finds the SRQ.
 */
static void iso_1_srq_event_section(struct kunit *test)
{
	struct consumer *c;

	if (!KEEL_KEY_SECTIONS)
		kunit_skip(test, "there are no sections on PREEMPT_RT");
	c = consumer_new(test);
	section = (struct section){
		.kdev = to_kdev(c->pd->device), .srqn = to_ksrq(c->srq)->srqn,
	};
	WRITE_ONCE(keel_point_hook.hit, section_hit);
	ib_destroy_srq(c->srq);
	WRITE_ONCE(keel_point_hook.hit, NULL);
	if (!section.waits)
		section_end();
	KUNIT_EXPECT_TRUE(test, section.entered);
	KUNIT_EXPECT_EQ(test, 1, section.waits);
	KUNIT_EXPECT_FALSE(test, section.found);
}

static struct kunit_case srq_event_cases[] = {
	KUNIT_CASE(srq_event_rearm),
	KUNIT_CASE(srq_event_error),
	KUNIT_CASE(srq_event_fail),
	KUNIT_CASE(iso_1_srq_event_section),
	{}
};

static struct kunit_suite srq_event_suite = {
	.name = "keel_srq_event",
	.test_cases = srq_event_cases,
};
kunit_test_suite(srq_event_suite);
