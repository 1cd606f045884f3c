// SPDX-License-Identifier: GPL-2.0
/*
 * Memory windows that are destroyed while a work request has found their key.
 */
#include <linux/err.h>
#include <linux/string.h>

#include "keel.h"
#include "keel_domain.h"
#include "keel_mr.h"
#include "keel_point.h"
#include "keel_sge.h"
#include "pair.h"
#include "threads.h"

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
static void window_new(struct pair *p, enum ib_mw_type type)
{
	const struct ib_device_ops *ops = &p->ibdev->ops;
	struct ib_udata udata = {};
	struct ib_mw *mw = kunit_kzalloc(p->test, ops->size_ib_mw, GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(p->test, mw);
	mw->device = p->ibdev;
	mw->pd = p->pd;
	mw->type = type;
	KUNIT_ASSERT_EQ(p->test, 0, ops->alloc_mw(mw, &udata));
	window.p = p;
	window.mw = mw;
	window.hits = 0;
	window.ret = -1;
}

static struct keel_scope window_scope(struct pair *p)
{
	return (struct keel_scope){
		.kdev = to_kdev(p->ibdev), .domain = to_kqp(p->a.qp)->domain,
		.qpn = p->a.qp->qp_num,
	};
}

static struct keel_key *window_invalidate(struct pair *p, u32 rkey, struct keel_obj **obj)
{
	const struct keel_scope scope = window_scope(p);

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
	window_new(p, IB_MW_TYPE_2);
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
	window_new(p, IB_MW_TYPE_2);
	rkey = window.mw->rkey;
	KUNIT_EXPECT_EQ(test, -EACCES, PTR_ERR_OR_ZERO(window_invalidate(p, rkey, &obj)));
	KUNIT_EXPECT_NOT_NULL(test, obj);
	if (obj)
		keel_obj_put(obj);
	KUNIT_EXPECT_EQ(test, 0, window_free());
	KUNIT_EXPECT_EQ(test, -ENOENT, PTR_ERR_OR_ZERO(window_invalidate(p, rkey, &obj)));
	KUNIT_EXPECT_NULL(test, obj);
}

/**
 * struct bound - a bound window whose key is in use
 * @p: the pair
 * @mw: the window, with a reference of the test
 * @mr: the region that it is bound to
 * @key: its key; thread 1 drops the reference
 * @returned: the window was destroyed
 */
struct bound {
	struct pair *p;
	struct keel_mw *mw;
	struct ib_mr *mr;
	struct keel_key *key;
	bool returned;
};

static u32 bound_rkey(const struct bound *b)
{
	const struct keel_binding *binding;

	guard(rcu)();
	/* Read under RCU, changed under the lock. */
	binding = context_unsafe(rcu_dereference(b->mw->bound));
	return binding ? binding->key.key : 0;
}

/* Bind the window to all memory, with the next rkey. */
static void bound_bind(const struct bound *b)
{
	const struct keel_scope scope = window_scope(b->p);
	struct keel_uapi_send_wqe wqe = {};
	u32 rkey = bound_rkey(b), why;

	wqe.bind.rkey = rkey;
	wqe.bind.new_rkey = ib_inc_rkey(rkey);
	wqe.bind.lkey = b->mr->lkey;
	wqe.bind.length = PAGE_SIZE;
	wqe.bind.access = IB_ACCESS_REMOTE_WRITE;
	wqe.bind.flags = KEEL_BIND_F_TYPE_1;
	KUNIT_EXPECT_EQ(b->p->test, IB_WC_SUCCESS, keel_wqe_bind(&scope, &wqe, &why));
}

static void bound_thread(void *arg, unsigned int who)
{
	struct bound *b = arg;
	int i;

	switch (who) {
	case 0:
		/* Replaces the key, and waits for its user. */
		bound_bind(b);
		break;
	case 1:
		while (bound_rkey(b))
			threads_yield();
		for (i = 0; i < 1000; i++)
			threads_yield();
		KUNIT_EXPECT_FALSE(b->p->test, READ_ONCE(b->returned));
		keel_key_put(b->key);
		break;
	case 2:
		/* The key that is in use is not the window's any more. */
		while (bound_rkey(b) == b->key->key)
			threads_yield();
		window.ret = window_free();
		WRITE_ONCE(b->returned, true);
		break;
	}
}

/*
 * PD-2: the destroy of a window waits for users of an earlier key, although another thread
 * has replaced it and waits for them, too.
 */
static void pd_2_mw_waits(struct kunit *test)
{
	struct pair *p = test->priv;
	const struct ib_device_ops *ops = &p->ibdev->ops;
	struct bound b = { .p = p };

	pair_make(p, IB_QPT_RC);
	window_new(p, IB_MW_TYPE_1);
	b.mw = to_kmw(window.mw);
	b.mr = ops->get_dma_mr(p->pd, IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE |
			       IB_ACCESS_MW_BIND);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, b.mr);
	b.mr->device = p->ibdev;
	b.mr->pd = p->pd;
	bound_bind(&b);
	b.key = keel_key_find(&to_kdev(p->ibdev)->keys, bound_rkey(&b),
			      to_kpd(p->pd)->domain->obj.id);
	if (IS_ERR(b.key)) {
		KUNIT_FAIL(test, "the window is not bound: %ld", PTR_ERR(b.key));
		window_free();
	} else {
		keel_obj_get(&b.mw->obj);
		threads_run(test, bound_thread, &b);
		keel_obj_put(&b.mw->obj);
		KUNIT_EXPECT_EQ(test, 0, window.ret);
	}
	KUNIT_EXPECT_EQ(test, 0, ops->dereg_mr(b.mr, NULL));
}

static struct kunit_case mw_cases[] = {
	KUNIT_CASE(pd_2_mw_waits),
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
