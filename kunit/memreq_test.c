// SPDX-License-Identifier: GPL-2.0
/*
 * Requests to begin access to a dma-buf: access that was begun ends once, and only if
 * no transfer waits for it. The exporter counts. A request whose owner is stopped
 * meanwhile is queued again.
 */
#include <kunit/static_stub.h>
#include <linux/dma-buf.h>
#include <linux/err.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>

#include "compat.h"
#include "keel_memreq.h"
#include "pair.h"

/**
 * struct opened - a dma-buf
 * @dmabuf: the dma-buf
 * @began: number of accesses that began
 * @ended: number of accesses that ended
 * @ender: the thread of the last end, only compared
 * @refuse: 0, or the error of an access that begins
 * @leaves: the transfer of this request gives up while access begins, or NULL
 */
struct opened {
	struct dma_buf *dmabuf;
	int began;
	int ended;
	const struct task_struct *ender;
	int refuse;
	struct keel_memreq *leaves;
};

static int opened_begin(struct dma_buf *dmabuf, enum dma_data_direction dir)
{
	struct opened *o = dmabuf->priv;

	if (o->refuse)
		return o->refuse;
	o->began++;
	if (o->leaves) {
		guard(spinlock)(&o->leaves->lock);
		o->leaves->qp = NULL;
	}
	return 0;
}

static int opened_end(struct dma_buf *dmabuf, enum dma_data_direction dir)
{
	struct opened *o = dmabuf->priv;

	o->ended++;
	o->ender = current;
	return 0;
}

static struct sg_table *opened_map(struct dma_buf_attachment *attach,
				   enum dma_data_direction dir)
{
	return ERR_PTR(-EOPNOTSUPP);
}

static void opened_unmap(struct dma_buf_attachment *attach,
			 struct sg_table *sgt, enum dma_data_direction dir)
{
}

static void opened_release(struct dma_buf *dmabuf)
{
}

static const struct dma_buf_ops opened_ops = {
	.begin_cpu_access = opened_begin,
	.end_cpu_access = opened_end,
	.map_dma_buf = opened_map,
	.unmap_dma_buf = opened_unmap,
	.release = opened_release,
};

KUNIT_DEFINE_ACTION_WRAPPER(opened_put, dma_buf_put, struct dma_buf *);

static struct opened *opened_new(struct kunit *test)
{
	struct opened *o = kunit_kzalloc(test, sizeof(*o), GFP_KERNEL);
	DEFINE_DMA_BUF_EXPORT_INFO(info);

	KUNIT_ASSERT_NOT_NULL(test, o);
	info.ops = &opened_ops;
	info.size = PAGE_SIZE;
	info.priv = o;
	o->dmabuf = dma_buf_export(&info);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, o->dmabuf);
	KUNIT_ASSERT_EQ(test, 0,
			kunit_add_action_or_reset(test, opened_put, o->dmabuf));
	return o;
}

/* A request of a QP that waits. It has the reference of its job only. */
static struct keel_memreq *request_new(struct kunit *test, struct opened *o)
{
	struct keel_memreq *req = kzalloc_obj(*req);
	struct pair *p = test->priv;

	KUNIT_ASSERT_NOT_NULL(test, req);
	kref_init(&req->ref);
	spin_lock_init(&req->lock);
	INIT_LIST_HEAD(&req->open.node);
	get_dma_buf(o->dmabuf);
	req->open.need = (struct keel_need){
		.kind = KEEL_NEED_OPEN, .write = true, .dmabuf = o->dmabuf,
	};
	req->qp = to_kqp(p->a.qp);
	return req;
}

/* Access goes on until the transfer ends it, and then ends once. */
static void memreq_opens(struct kunit *test)
{
	struct opened *o = opened_new(test);
	struct keel_memreq *req;

	pair_make(test->priv, IB_QPT_RC);
	req = request_new(test, o);
	/* The transfer's. */
	kref_get(&req->ref);
	keel_memreq_run(&req->job, true);
	KUNIT_EXPECT_TRUE(test, req->finished);
	KUNIT_EXPECT_EQ(test, 0, req->result);
	KUNIT_EXPECT_EQ(test, 1, o->began);
	KUNIT_EXPECT_EQ(test, 0, o->ended);
	/* The transfer does not wait for the end. This frees the request. */
	req->open.need.kind = KEEL_NEED_CLOSE;
	req->qp = NULL;
	keel_memreq_run(&req->job, true);
	KUNIT_EXPECT_EQ(test, 1, o->began);
	KUNIT_EXPECT_EQ(test, 1, o->ended);
	KUNIT_EXPECT_PTR_EQ(test, current, o->ender);
}

/*
 * ISO-1: if the owner is dead, the access ends, too, but not in the thread that runs what
 * its worker has left: that may be one of another process, and the exporter may wait.
 */
static void iso_1_memreq_orphan(struct kunit *test)
{
	struct opened *o = opened_new(test);
	struct keel_memreq *req;

	pair_make(test->priv, IB_QPT_RC);
	req = request_new(test, o);
	kref_get(&req->ref);
	keel_memreq_run(&req->job, true);
	req->open.need.kind = KEEL_NEED_CLOSE;
	req->finished = false;
	kref_get(&req->ref);
	keel_memreq_run(&req->job, false);
	flush_work(&req->work);
	KUNIT_EXPECT_TRUE(test, req->finished);
	KUNIT_EXPECT_EQ(test, 0, req->result);
	KUNIT_EXPECT_EQ(test, 1, o->ended);
	KUNIT_EXPECT_PTR_NE(test, current, o->ender);
	KUNIT_ASSERT_EQ(test, 1, kref_read(&req->ref));
	/* Drop the transfer's. */
	req->open.need.kind = KEEL_NEED_OPEN;
	req->qp = NULL;
	keel_memreq_run(&req->job, false);
	KUNIT_EXPECT_EQ(test, 1, o->ended);
}

/* Access that begins for no transfer any more ends at once. */
static void memreq_abandoned(struct kunit *test)
{
	struct opened *o = opened_new(test);

	pair_make(test->priv, IB_QPT_RC);
	o->leaves = request_new(test, o);
	keel_memreq_run(&o->leaves->job, true);
	KUNIT_EXPECT_EQ(test, 1, o->began);
	KUNIT_EXPECT_EQ(test, 1, o->ended);
}

/* Access that did not begin does not end. */
static void memreq_refused(struct kunit *test)
{
	struct opened *o = opened_new(test);
	struct keel_memreq *req;

	pair_make(test->priv, IB_QPT_RC);
	o->refuse = -ENXIO;
	keel_memreq_run(&request_new(test, o)->job, true);
	/* Neither if no transfer waits, nor if the owner of the memory is dead. */
	o->refuse = 0;
	req = request_new(test, o);
	req->qp = NULL;
	keel_memreq_run(&req->job, true);
	keel_memreq_run(&request_new(test, o)->job, false);
	KUNIT_EXPECT_EQ(test, 0, o->began);
	KUNIT_EXPECT_EQ(test, 0, o->ended);
}

/**
 * struct requeues - what a test does instead of keel_job_queue()
 * @ret: result of each call
 * @n: number of calls
 * @job: the job of the last call
 */
static struct requeues {
	int ret;
	int n;
	struct keel_job *job;
} requeues;

static int requeue(struct keel_worker *worker, struct keel_job *job)
{
	requeues.n++;
	requeues.job = job;
	return requeues.ret;
}

/* A request of a transfer that waits. A signal interrupts access that begins. */
static struct keel_memreq *interrupted(struct kunit *test, struct opened *o, int ret)
{
	struct keel_memreq *req;

	pair_make(test->priv, IB_QPT_RC);
	kunit_activate_static_stub(test, keel_job_queue, requeue);
	requeues = (struct requeues){ .ret = ret };
	req = request_new(test, o);
	/* The transfer's. */
	kref_get(&req->ref);
	return req;
}

/*
 * ISO-1: the owner was stopped while access began. The worker tries again when the
 * owner continues, and the transfer waits until then.
 */
static void iso_1_memreq_stopped(struct kunit *test)
{
	struct opened *o = opened_new(test);
	struct keel_memreq *req = interrupted(test, o, 1);
	int i;

	for (i = 1; i <= 3; i++) {
		/* As an exporter may return it, and as a wait for a fence does. */
		o->refuse = i % 2 ? -ERESTARTSYS : -EINTR;
		keel_memreq_run(&req->job, true);
		KUNIT_ASSERT_EQ(test, i, requeues.n);
		KUNIT_EXPECT_PTR_EQ(test, &req->job, requeues.job);
		KUNIT_ASSERT_FALSE(test, req->finished);
		/* The queued job has its reference again. */
		KUNIT_ASSERT_EQ(test, 2, kref_read(&req->ref));
	}
	o->refuse = 0;
	keel_memreq_run(&req->job, true);
	KUNIT_EXPECT_EQ(test, 3, requeues.n);
	KUNIT_EXPECT_TRUE(test, req->finished);
	KUNIT_EXPECT_EQ(test, 0, req->result);
	KUNIT_EXPECT_EQ(test, 1, o->began);
	KUNIT_EXPECT_EQ(test, 0, o->ended);
	/* The transfer ends the access, and does not wait. This frees the request. */
	req->open.need.kind = KEEL_NEED_CLOSE;
	req->qp = NULL;
	keel_memreq_run(&req->job, true);
	KUNIT_EXPECT_EQ(test, 1, o->ended);
}

/* The request ends with the error of the signal, and drops the reference of its job. */
static void memreq_ends(struct kunit *test, struct keel_memreq *req, int result, int n)
{
	KUNIT_EXPECT_EQ(test, n, requeues.n);
	KUNIT_EXPECT_TRUE(test, req->finished);
	KUNIT_EXPECT_EQ(test, result, req->result);
	KUNIT_ASSERT_EQ(test, 1, kref_read(&req->ref));
	/* Drop the transfer's. */
	req->qp = NULL;
	keel_memreq_run(&req->job, false);
}

/* The worker of the owner is dead meanwhile: its queue takes no job. */
static void memreq_dead(struct kunit *test)
{
	struct opened *o = opened_new(test);
	struct keel_memreq *req = interrupted(test, o, -ESRCH);

	o->refuse = -EINTR;
	keel_memreq_run(&req->job, true);
	memreq_ends(test, req, -EINTR, 1);
	KUNIT_EXPECT_EQ(test, 0, o->began);
}

/* No error but that of a signal is temporary. */
static void memreq_error(struct kunit *test)
{
	struct opened *o = opened_new(test);
	struct keel_memreq *req = interrupted(test, o, 1);

	o->refuse = -ENXIO;
	keel_memreq_run(&req->job, true);
	memreq_ends(test, req, -EFAULT, 0);
	KUNIT_EXPECT_EQ(test, 0, o->began);
}

/* ISO-2: the owner was killed while access began. */
static void iso_2_memreq_killed(struct kunit *test)
{
	struct opened *o = opened_new(test);
	struct keel_memreq *req = interrupted(test, o, 1);

	o->refuse = -EINTR;
	allow_signal(SIGKILL);
	KUNIT_EXPECT_EQ(test, 0, send_sig(SIGKILL, current, 1));
	keel_memreq_run(&req->job, true);
	flush_signals(current);
	disallow_signal(SIGKILL);
	memreq_ends(test, req, -EINTR, 0);
	KUNIT_EXPECT_EQ(test, 0, o->began);
}

static struct kunit_case memreq_cases[] = {
	KUNIT_CASE(memreq_opens),
	KUNIT_CASE(iso_1_memreq_orphan),
	KUNIT_CASE(memreq_abandoned),
	KUNIT_CASE(memreq_refused),
	KUNIT_CASE(iso_1_memreq_stopped),
	KUNIT_CASE(memreq_dead),
	KUNIT_CASE(memreq_error),
	KUNIT_CASE(iso_2_memreq_killed),
	{}
};

static struct kunit_suite memreq_suite = {
	.name = "keel_memreq",
	.suite_init = pair_suite_init,
	.suite_exit = pair_suite_exit,
	.init = pair_init,
	.exit = pair_exit,
	.test_cases = memreq_cases,
};
kunit_test_suite(memreq_suite);
