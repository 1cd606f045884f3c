// SPDX-License-Identifier: GPL-2.0
/*
 * XRC QPs that are connected to another host: the process of the SRQ executes the packets for
 * it, or nobody does. The process is that of the test: see qp_owner.h. The work of the QP runs
 * in a workqueue, which is no process.
 */
#include <linux/delay.h>

#include "far_host.h"
#include "keel_point.h"
#include "qp_owner.h"

/* Let a worker of the test execute the packets for an SRQ. Its destroy drops the reference. */
static void xrc_own(struct ib_srq *ib, struct keel_worker *worker)
{
	struct keel_srq *srq = to_ksrq(ib);

	keel_worker_get(worker);
	if (!srq->obj.user)
		owner_charge(owner, &srq->obj);
	srq->obj.kernel = false;
	keel_worker_put(keel_events_swap(&srq->events, worker));
}

/* A QP whose SRQ has a receive WQE, and a worker that is kept. */
static struct far_host *xrc_held(struct kunit *test, bool open)
{
	struct owner *o = owner;
	struct far_host *h;

	owner_open(o);
	h = far_host_make_type(test, IB_QPT_XRC_TGT, IB_QPS_RTS);
	pair_srq_recv(h->p, h->p->srq, &h->p->b, 5);
	xrc_own(h->p->srq, o->t.worker);
	if (open)
		far_host_open(h);
	worker_test_hold(&o->t, o->t.worker);
	return h;
}

static u32 xrc_srqn(const struct far_host *h)
{
	return to_ksrq(h->p->srq)->srqn;
}

static unsigned int xrc_refs(const struct far_host *h)
{
	return kref_read(&h->qp->obj.ref);
}

static void xrc_refs_become(struct far_host *h, unsigned int refs)
{
	unsigned long until = jiffies + TEST_PATIENCE;

	while (xrc_refs(h) != refs && time_before(jiffies, until))
		usleep_range(1000, 2000);
	KUNIT_EXPECT_EQ(h->p->test, refs, xrc_refs(h));
}

/* Let the workqueue run the QP, whoever is to do so. */
static void xrc_elsewhere(struct far_host *h)
{
	keel_obj_get(&h->qp->obj);
	if (!queue_work(h->qp->kdev->wq, &h->qp->work))
		keel_obj_put(&h->qp->obj);
	far_host_settle(h);
}

/* The QP keeps a packet for its worker, and has sent @sent answers. */
static void xrc_waits(struct far_host *h, u32 sent)
{
	struct kunit *test = h->p->test;

	KUNIT_EXPECT_EQ(test, sent, far_host_wait(h, 0));
	KUNIT_EXPECT_EQ(test, 1, far_requests_n(h));
	KUNIT_EXPECT_EQ(test, 1, pair_srq_posted(h->p->srq));
	KUNIT_EXPECT_TRUE(test, keel_job_is_queued(&to_ksrq(h->p->srq)->events.job));
}

/* How often other threads than the worker have run the QP. */
static int strays;

static void xrc_hook(const char *name)
{
	if (strcmp(name, "far_drained"))
		return;
	if (keel_worker_is_current(owner->t.worker))
		owner->visits++;
	else
		strays++;
}

/* Release the worker. It executes the packet, which answer @i is for. */
static void xrc_released(struct far_host *h, u32 i, u32 nr)
{
	unsigned long until = jiffies + TEST_PATIENCE;
	struct kunit *test = h->p->test;
	struct end *b = &h->p->b;

	KUNIT_EXPECT_EQ(test, 0, owner->visits);
	WRITE_ONCE(keel_point_hook.hit, xrc_hook);
	worker_test_release(&owner->t);
	far_answered(h, i, nr, KEEL_RESULT_DONE, IB_WC_SUCCESS);
	/* It sends the answer before it comes to the hook. */
	while (!READ_ONCE(owner->visits) && time_before(jiffies, until))
		usleep_range(1000, 2000);
	KUNIT_EXPECT_GT(test, owner->visits, 0);
	pair_settle(h->p, b, i + 1);
	KUNIT_EXPECT_EQ(test, 5, b->wc[i].wr_id);
	KUNIT_EXPECT_EQ(test, IB_WC_SUCCESS, b->wc[i].status);
}

/* ISO-1: nobody executes a packet but the process of the SRQ. */
static void iso_1_xrc_held(struct kunit *test)
{
	struct far_host *h = xrc_held(test, true);
	unsigned int refs = xrc_refs(h);

	strays = 0;
	WRITE_ONCE(keel_point_hook.hit, xrc_hook);
	far_xrc_send(h, 0, xrc_srqn(h));
	xrc_waits(h, 0);
	KUNIT_EXPECT_EQ(test, 0, strays);
	xrc_elsewhere(h);
	xrc_waits(h, 0);
	KUNIT_EXPECT_EQ(test, 1, strays);
	KUNIT_EXPECT_EQ(test, refs + 1, xrc_refs(h));
	xrc_released(h, 0, 0);
	xrc_refs_become(h, refs);
}

/* ISO-1: the next packet may be for another process. */
static void iso_1_xrc_next(struct kunit *test)
{
	struct far_host *h = xrc_held(test, false);
	struct pair *p = h->p;

	/* The workqueue executes those for the SRQ of a kernel consumer. */
	p->extra_srq = pair_srq(p, p->xrcd);
	pair_srq_recv(p, p->extra_srq, &p->a, 6);
	far_xrc_send(h, 0, to_ksrq(p->extra_srq)->srqn);
	KUNIT_EXPECT_EQ(test, 0, pair_srq_posted(p->extra_srq));
	/* It waits until the first one is answered. */
	far_xrc_send(h, 1, xrc_srqn(h));
	KUNIT_EXPECT_EQ(test, 2, far_requests_n(h));
	far_host_open(h);
	far_answered(h, 0, 0, KEEL_RESULT_DONE, IB_WC_SUCCESS);
	xrc_waits(h, 1);
	xrc_released(h, 1, 1);
	KUNIT_EXPECT_EQ(test, 6, p->b.wc[0].wr_id);
}

/* ISO-1: a packet that may not name an SRQ does not wait for its process. */
static void iso_1_xrc_stranger(struct kunit *test)
{
	struct far_host *h = xrc_held(test, true);
	const struct keel_frame *answer;
	struct pair *p = h->p;

	p->extra_xrcd = ib_alloc_xrcd_user(p->ibdev, NULL, NULL);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, p->extra_xrcd);
	p->extra_srq = pair_srq(p, p->extra_xrcd);
	far_xrc_send(h, 0, to_ksrq(p->extra_srq)->srqn);
	answer = far_answered(h, 0, 0, KEEL_RESULT_DONE, IB_WC_REM_INV_REQ_ERR);
	KUNIT_EXPECT_EQ(test, KEEL_WHY_SRQ, le32_to_cpu(answer->answer.why));
}

/* ISO-1: the owner of a QP resets it, although the process of the SRQ does not run. */
static void iso_1_xrc_reset(struct kunit *test)
{
	struct far_host *h = xrc_held(test, true);
	unsigned int refs = xrc_refs(h);

	far_xrc_send(h, 0, xrc_srqn(h));
	xrc_waits(h, 0);
	KUNIT_EXPECT_EQ(test, refs + 1, xrc_refs(h));
	end_move(h->p, &h->p->b, IB_QPS_RESET);
	KUNIT_EXPECT_EQ(test, refs, xrc_refs(h));
	KUNIT_EXPECT_EQ(test, 0, far_requests_n(h));
	worker_test_release(&owner->t);
	KUNIT_EXPECT_EQ(test, 0, far_host_wait(h, 0));
	KUNIT_EXPECT_EQ(test, 1, pair_srq_posted(h->p->srq));
}

/* ISO-1: the owner destroys a QP, although the process of the SRQ does not run. */
static void iso_1_xrc_destroy(struct kunit *test)
{
	struct far_host *h = xrc_held(test, true);

	far_xrc_send(h, 0, xrc_srqn(h));
	xrc_waits(h, 0);
	keel_obj_get(&h->qp->obj);
	KUNIT_EXPECT_EQ(test, 0, ib_destroy_qp(h->p->b.qp));
	h->p->b.qp = NULL;
	KUNIT_EXPECT_EQ(test, 1, xrc_refs(h));
	KUNIT_EXPECT_EQ(test, 1, pair_srq_posted(h->p->srq));
	keel_obj_put(&h->qp->obj);
}

/* ISO-1: the packets of a QP that has failed wait for nobody. */
static void iso_1_xrc_failed(struct kunit *test)
{
	struct far_host *h = xrc_held(test, true);

	far_xrc_send(h, 0, xrc_srqn(h));
	xrc_waits(h, 0);
	keel_qp_fail(h->qp, IB_QPS_ERR, KEEL_EVENT_NONE);
	xrc_elsewhere(h);
	KUNIT_EXPECT_EQ(test, 0, far_requests_n(h));
	KUNIT_EXPECT_EQ(test, 0, far_host_wait(h, 0));
	KUNIT_EXPECT_EQ(test, 1, pair_srq_posted(h->p->srq));
}

/* A packet is dropped: it may come again. */
static void xrc_dropped(struct far_host *h, unsigned int refs)
{
	struct kunit *test = h->p->test;

	far_host_settle(h);
	KUNIT_EXPECT_EQ(test, 0, far_host_wait(h, 0));
	KUNIT_EXPECT_EQ(test, 0, far_requests_n(h));
	KUNIT_EXPECT_EQ(test, 1, pair_srq_posted(h->p->srq));
	KUNIT_EXPECT_EQ(test, IB_QPS_RTS, end_state(h->p, &h->p->b));
	xrc_refs_become(h, refs);
}

/* ISO-1: packets for a dead process are dropped, until another one takes the SRQ over. */
static void iso_1_xrc_dead(struct kunit *test)
{
	struct far_host *h = xrc_held(test, true);
	unsigned int refs = xrc_refs(h);

	far_xrc_send(h, 0, xrc_srqn(h));
	xrc_waits(h, 0);
	/* Also the one behind it. */
	far_xrc_send(h, 1, xrc_srqn(h));
	worker_test_stop(&owner->t.workers);
	xrc_dropped(h, refs);
	far_xrc_send(h, 0, xrc_srqn(h));
	xrc_dropped(h, refs);
	xrc_own(h->p->srq, owner->t.other);
	far_xrc_send(h, 0, xrc_srqn(h));
	far_answered(h, 0, 0, KEEL_RESULT_DONE, IB_WC_SUCCESS);
	xrc_refs_become(h, refs);
}

/*
 * ISO-1: no process runs an XRC_RECV QP. The work of its user refuses a packet that names no
 * SRQ. The test keeps the lock of the responder, so that the workqueue does not.
 */
static void iso_1_xrc_orphan(struct kunit *test)
{
	struct far_host *h = far_xrc_make(test);
	struct keel_far *far = h->qp->far;
	const struct keel_frame *answer;

	mutex_lock(&far->from.lock);
	far_xrc_send(h, 0, 0);
	mutex_unlock(&far->from.lock);
	KUNIT_EXPECT_EQ(test, 1, far_requests_n(h));
	h->qp->orphan.run(&h->qp->orphan);
	answer = far_answered(h, 0, 0, KEEL_RESULT_DONE, IB_WC_REM_INV_REQ_ERR);
	KUNIT_EXPECT_EQ(test, KEEL_WHY_SRQ, le32_to_cpu(answer->answer.why));
}

static struct kunit_case xrc_owner_cases[] = {
	KUNIT_CASE(iso_1_xrc_held),
	KUNIT_CASE(iso_1_xrc_next),
	KUNIT_CASE(iso_1_xrc_stranger),
	KUNIT_CASE(iso_1_xrc_reset),
	KUNIT_CASE(iso_1_xrc_destroy),
	KUNIT_CASE(iso_1_xrc_failed),
	KUNIT_CASE(iso_1_xrc_dead),
	KUNIT_CASE(iso_1_xrc_orphan),
	{}
};

static struct kunit_suite xrc_owner_suite = {
	.name = "keel_far_xrc_owner",
	.suite_init = pair_suite_init,
	.suite_exit = pair_suite_exit,
	.init = owner_init,
	.exit = owner_exit,
	.test_cases = xrc_owner_cases,
};
kunit_test_suite(xrc_owner_suite);
