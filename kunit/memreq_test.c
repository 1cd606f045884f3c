// SPDX-License-Identifier: GPL-2.0
/*
 * Requests to begin access to a dma-buf: access that was begun ends once, and only if
 * no transfer waits for it. The exporter counts.
 */
#include <linux/dma-buf.h>
#include <linux/err.h>

#include "compat.h"
#include "keel_memreq.h"
#include "pair.h"

/**
 * struct opened - a dma-buf
 * @dmabuf: the dma-buf
 * @began: number of accesses that began
 * @ended: number of accesses that ended
 * @refuse: 0, or the error of an access that begins
 * @leaves: the transfer of this request gives up while access begins, or NULL
 */
struct opened {
	struct dma_buf *dmabuf;
	int began;
	int ended;
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

static struct kunit_case memreq_cases[] = {
	KUNIT_CASE(memreq_opens),
	KUNIT_CASE(memreq_abandoned),
	KUNIT_CASE(memreq_refused),
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
