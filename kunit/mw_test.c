// SPDX-License-Identifier: GPL-2.0
/*
 * Memory windows that are destroyed while a work request has found their key.
 */
#include <linux/err.h>
#include <linux/string.h>

#include "keel.h"
#include "keel_mr.h"
#include "keel_point.h"
#include "keel_sge.h"
#include "pair.h"

static struct {
	struct pair *p;
	struct ib_mw *mw;
	int hits;
	int ret;
} window;

static int window_free(void)
{
	return window.p->ibdev->ops.dealloc_mw(window.mw);
}

static void window_hook(const char *name)
{
	if (!strcmp(name, "window_found") && !window.hits++)
		window.ret = window_free();
}

/* A kernel consumer cannot create a window: call the driver. */
static void window_new(struct pair *p)
{
	const struct ib_device_ops *ops = &p->ibdev->ops;
	struct ib_udata udata = {};
	struct ib_mw *mw = kunit_kzalloc(p->test, ops->size_ib_mw, GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(p->test, mw);
	mw->device = p->ibdev;
	mw->pd = p->pd;
	mw->type = IB_MW_TYPE_2;
	KUNIT_ASSERT_EQ(p->test, 0, ops->alloc_mw(mw, &udata));
	window.p = p;
	window.mw = mw;
	window.hits = 0;
	window.ret = -1;
}

static struct keel_key *window_invalidate(struct pair *p, u32 rkey, struct keel_obj **obj)
{
	const struct keel_scope scope = {
		.kdev = to_kdev(p->ibdev), .domain = to_kqp(p->a.qp)->domain,
		.qpn = p->a.qp->qp_num,
	};

	return keel_invalidate(&scope, rkey, obj);
}

/*
 * The window is destroyed after a work request has found it. Fails if the request does not
 * find the key invalid then, or uses the window without a reference.
 */
static void mw_destroyed(struct kunit *test)
{
	struct pair *p = test->priv;
	struct keel_key *key;
	struct keel_obj *obj;

	pair_make(p, IB_QPT_RC);
	window_new(p);
	WRITE_ONCE(keel_point_hook.hit, window_hook);
	key = window_invalidate(p, window.mw->rkey, &obj);
	WRITE_ONCE(keel_point_hook.hit, NULL);
	KUNIT_EXPECT_EQ(test, 1, window.hits);
	KUNIT_EXPECT_EQ(test, 0, window.ret);
	KUNIT_EXPECT_EQ(test, -ENOENT, PTR_ERR_OR_ZERO(key));
	KUNIT_EXPECT_NOT_NULL(test, key);
	KUNIT_ASSERT_NOT_NULL(test, obj);
	KUNIT_EXPECT_EQ(test, KEEL_MW, obj->kind);
	KUNIT_EXPECT_EQ(test, 1, kref_read(&obj->ref));
	keel_obj_put(obj);
}

/* A window that is not bound has no key to invalidate, and an unknown key has no object. */
static void mw_unbound(struct kunit *test)
{
	struct pair *p = test->priv;
	struct keel_obj *obj;
	u32 rkey;

	pair_make(p, IB_QPT_RC);
	window_new(p);
	rkey = window.mw->rkey;
	KUNIT_EXPECT_EQ(test, -EACCES, PTR_ERR_OR_ZERO(window_invalidate(p, rkey, &obj)));
	KUNIT_EXPECT_NOT_NULL(test, obj);
	if (obj)
		keel_obj_put(obj);
	KUNIT_EXPECT_EQ(test, 0, window_free());
	KUNIT_EXPECT_EQ(test, -ENOENT, PTR_ERR_OR_ZERO(window_invalidate(p, rkey, &obj)));
	KUNIT_EXPECT_NULL(test, obj);
}

static struct kunit_case mw_cases[] = {
	KUNIT_CASE(mw_destroyed),
	KUNIT_CASE(mw_unbound),
	{}
};

static struct kunit_suite mw_suite = {
	.name = "keel_mw",
	.suite_init = pair_suite_init,
	.suite_exit = pair_suite_exit,
	.init = pair_init,
	.exit = pair_exit,
	.test_cases = mw_cases,
};
kunit_test_suite(mw_suite);
