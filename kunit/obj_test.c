// SPDX-License-Identifier: GPL-2.0
/*
 * The registry of objects: creation, holds, release. obj_limit_test.c tests
 * limits, and obj_threads_test.c several threads.
 */
#include <kunit/test.h>

#include "dummy_obj.h"

/* PD-1: each live object of a kind has a unique number. */
static void pd_1_birth(struct kunit *test)
{
	struct dummies *dummies = test->priv;
	struct dummy *a = dummy_new(test, KEEL_PD, 'a', NULL, NULL);
	struct dummy *b = dummy_new(test, KEEL_PD, 'b', NULL, NULL);
	struct dummy *c = dummy_new(test, KEEL_MR, 'c', a, NULL);

	KUNIT_EXPECT_EQ(test, KEEL_PD, a->obj.kind);
	KUNIT_EXPECT_EQ(test, KEEL_MR, c->obj.kind);
	KUNIT_EXPECT_GT(test, a->obj.id, 0);
	KUNIT_EXPECT_GT(test, c->obj.id, 0);
	KUNIT_EXPECT_NE(test, a->obj.id, b->obj.id);
	KUNIT_EXPECT_PTR_EQ(test, &a->obj,
			    keel_number_load(&dummies->reg.objs[KEEL_PD], a->obj.id));
	KUNIT_EXPECT_PTR_EQ(test, &b->obj,
			    keel_number_load(&dummies->reg.objs[KEEL_PD], b->obj.id));
	KUNIT_EXPECT_PTR_EQ(test, &c->obj,
			    keel_number_load(&dummies->reg.objs[KEEL_MR], c->obj.id));
	KUNIT_EXPECT_EQ(test, task_tgid_nr(current), pid_nr(a->obj.pid));
	KUNIT_EXPECT_STREQ(test, current->group_leader->comm, a->obj.comm);
	KUNIT_EXPECT_FALSE(test, a->obj.closing);
	KUNIT_EXPECT_EQ(test, 2, dummy_refs(a));
	KUNIT_EXPECT_EQ(test, 1, dummy_refs(b));
	KUNIT_EXPECT_EQ(test, 2, atomic64_read(&dummies->reg.quotas.count[KEEL_PD]));
	dummy_close(c);
	dummy_close(b);
	dummy_close(a);
	KUNIT_EXPECT_STREQ(test, "cba", dummies->log);
}

/* The number of a released object is not reused soon. */
static void obj_id_not_reused_soon(struct kunit *test)
{
	struct dummy *dummy = dummy_new(test, KEEL_MR, 'a', NULL, NULL);
	u32 last = dummy->obj.id;
	int i;

	dummy_close(dummy);
	for (i = 0; i < 1000; i++) {
		dummy = dummy_new(test, KEEL_MR, 'b', NULL, NULL);
		KUNIT_EXPECT_GT(test, dummy->obj.id, last);
		last = dummy->obj.id;
		dummy_close(dummy);
	}
}

/* After the last number, the first free number is used, and never 0. */
static void obj_id_wraps(struct kunit *test)
{
	struct dummies *dummies = test->priv;
	struct dummy *first = dummy_new(test, KEEL_MR, 'a', NULL, NULL);
	struct dummy *last, *next;

	KUNIT_EXPECT_EQ(test, 1, first->obj.id);
	dummies->reg.objs[KEEL_MR].next = INT_MAX;
	last = dummy_new(test, KEEL_MR, 'b', NULL, NULL);
	KUNIT_EXPECT_EQ(test, INT_MAX, last->obj.id);
	next = dummy_new(test, KEEL_MR, 'c', NULL, NULL);
	KUNIT_EXPECT_EQ(test, 2, next->obj.id);
	dummy_close(first);
	dummy_close(last);
	dummy_close(next);
}

struct order_case {
	const char *desc;
	const char *close;
	unsigned int alive[3];
};

/* Domain, PD and MR, and the number of live objects after each step. */
static const struct order_case order_cases[] = {
	{ "MR, PD, domain", "mpd", { 2, 1, 0 } },
	{ "MR, domain, PD", "mdp", { 2, 2, 0 } },
	{ "PD, MR, domain", "pmd", { 3, 1, 0 } },
	{ "PD, domain, MR", "pdm", { 3, 3, 0 } },
	{ "domain, MR, PD", "dmp", { 3, 2, 0 } },
	{ "domain, PD, MR", "dpm", { 3, 3, 0 } },
};
KUNIT_ARRAY_PARAM_DESC(order, order_cases, desc);

/* SPD-6: an object is released after its holders, in any order of closing. */
static void spd_6_release_order(struct kunit *test)
{
	const struct order_case *c = test->param_value;
	struct dummies *dummies = test->priv;
	struct dummy *d = dummy_new(test, KEEL_DOMAIN, 'd', NULL, NULL);
	struct dummy *p = dummy_new(test, KEEL_PD, 'p', d, NULL);
	struct dummy *m = dummy_new(test, KEEL_MR, 'm', p, NULL);
	int i;

	for (i = 0; i < 3; i++) {
		struct dummy *t = c->close[i] == 'd' ? d :
				  c->close[i] == 'p' ? p : m;

		dummy_close(t);
		KUNIT_EXPECT_EQ(test, 3 - c->alive[i], dummies->released);
	}
	KUNIT_EXPECT_STREQ(test, "mpd", dummies->log);
}

/* PD-2: a hold keeps its target alive after its uobject is destroyed. */
static void pd_2_hold_keeps_alive(struct kunit *test)
{
	struct dummies *dummies = test->priv;
	struct dummy *p = dummy_new(test, KEEL_PD, 'p', NULL, NULL);
	struct dummy *m = dummy_new(test, KEEL_MR, 'm', p, NULL);
	u32 id = p->obj.id;

	KUNIT_EXPECT_EQ(test, 2, dummy_refs(p));
	dummy_close(p);
	KUNIT_EXPECT_EQ(test, 0, dummies->released);
	KUNIT_EXPECT_TRUE(test, p->obj.closing);
	KUNIT_EXPECT_EQ(test, 1, dummy_refs(p));
	KUNIT_EXPECT_EQ(test, 1, keel_obj_holders(&p->obj, NULL, 0));
	KUNIT_EXPECT_PTR_EQ(test, &p->obj,
			    keel_number_load(&dummies->reg.objs[KEEL_PD], id));
	dummy_close(m);
	KUNIT_EXPECT_STREQ(test, "mp", dummies->log);
	KUNIT_EXPECT_NULL(test, keel_number_load(&dummies->reg.objs[KEEL_PD], id));
}

/* DM-8: an MR of device memory holds the PD and the buffer. */
static void dm_8_two_holds(struct kunit *test)
{
	struct dummies *dummies = test->priv;
	struct dummy *p = dummy_new(test, KEEL_PD, 'p', NULL, NULL);
	struct dummy *b = dummy_new(test, KEEL_DM, 'b', NULL, NULL);
	struct dummy *m = dummy_new(test, KEEL_DM_MR, 'm', p, b);

	KUNIT_EXPECT_EQ(test, 1, keel_obj_holders(&p->obj, NULL, 0));
	KUNIT_EXPECT_EQ(test, 1, keel_obj_holders(&b->obj, NULL, 0));
	dummy_close(b);
	dummy_close(p);
	KUNIT_EXPECT_EQ(test, 0, dummies->released);
	dummy_close(m);
	KUNIT_EXPECT_EQ(test, 3, dummies->released);
	KUNIT_EXPECT_EQ(test, 'm', dummies->log[0]);
}

/* An object may hold only its second target, or the same target twice. */
static void obj_odd_holds(struct kunit *test)
{
	struct dummies *dummies = test->priv;
	struct dummy *p = dummy_new(test, KEEL_PD, 'p', NULL, NULL);
	struct dummy *m = dummy_new(test, KEEL_MR, 'm', NULL, p);
	struct dummy *n = dummy_new(test, KEEL_MR, 'n', p, p);

	KUNIT_EXPECT_EQ(test, 4, dummy_refs(p));
	KUNIT_EXPECT_EQ(test, 3, keel_obj_holders(&p->obj, NULL, 0));
	dummy_close(n);
	KUNIT_EXPECT_EQ(test, 1, keel_obj_holders(&p->obj, NULL, 0));
	dummy_close(m);
	KUNIT_EXPECT_EQ(test, 0, keel_obj_holders(&p->obj, NULL, 0));
	KUNIT_EXPECT_EQ(test, 1, dummy_refs(p));
	dummy_close(p);
	KUNIT_EXPECT_STREQ(test, "nmp", dummies->log);
}

/* A reference keeps an object alive, too. */
static void obj_get_keeps_alive(struct kunit *test)
{
	struct dummies *dummies = test->priv;
	struct dummy *a = dummy_new(test, KEEL_AH, 'a', NULL, NULL);

	keel_obj_get(&a->obj);
	KUNIT_EXPECT_TRUE(test, keel_obj_tryget(&a->obj));
	KUNIT_EXPECT_EQ(test, 3, dummy_refs(a));
	dummy_close(a);
	keel_obj_put(&a->obj);
	KUNIT_EXPECT_EQ(test, 0, dummies->released);
	keel_obj_put(&a->obj);
	KUNIT_EXPECT_EQ(test, 1, dummies->released);
}

static void at_release_look(struct keel_obj *obj, void *arg)
{
	struct kunit *test = arg;
	struct dummies *dummies = test->priv;

	KUNIT_EXPECT_FALSE(test, keel_obj_tryget(obj));
	KUNIT_EXPECT_NULL(test, keel_number_load(&dummies->reg.objs[obj->kind],
						 obj->id));
	/* Release may use the objects that it holds. */
	if (obj->holds[0].target) {
		KUNIT_EXPECT_GE(test,
				kref_read(&obj->holds[0].target->ref), 1);
		KUNIT_EXPECT_EQ(test, 0,
				keel_obj_holders(obj->holds[0].target, NULL,
						 0));
	}
}

/* An object that is being released cannot be found or referenced. */
static void obj_dying_is_dead(struct kunit *test)
{
	struct dummies *dummies = test->priv;
	struct dummy *p, *m;

	dummies->at_release = at_release_look;
	dummies->arg = test;
	p = dummy_new(test, KEEL_PD, 'p', NULL, NULL);
	m = dummy_new(test, KEEL_MR, 'm', p, NULL);
	dummy_close(p);
	dummy_close(m);
	KUNIT_EXPECT_EQ(test, 2, dummies->released);
}

static void obj_kind_names(struct kunit *test)
{
	int kind, other;

	for (kind = KEEL_DOMAIN; kind < KEEL_KINDS; kind++) {
		KUNIT_EXPECT_STRNEQ(test, "?", keel_kind_name(kind));
		for (other = KEEL_DOMAIN; other < kind; other++)
			KUNIT_EXPECT_STRNEQ(test, keel_kind_name(other),
					    keel_kind_name(kind));
	}
	KUNIT_EXPECT_STREQ(test, "?", keel_kind_name(0));
	KUNIT_EXPECT_STREQ(test, "?", keel_kind_name(KEEL_KINDS));
	KUNIT_EXPECT_STREQ(test, "?", keel_kind_name(U32_MAX));
}

/* ISO-5: the trace event of a refusal names each resource, and a kind as elsewhere. */
static void iso_5_resource_names(struct kunit *test)
{
	unsigned int what;

	for (what = 0; what < KEEL_KINDS; what++)
		KUNIT_EXPECT_STREQ(test, keel_kind_name(what), keel_resource_name(what));
	KUNIT_EXPECT_STREQ(test, "dm_bytes", keel_resource_name(KEEL_RES_DM_BYTES));
	KUNIT_EXPECT_STREQ(test, "shpd_handle", keel_resource_name(KEEL_RES_HANDLES));
	KUNIT_EXPECT_STREQ(test, "mcast_group", keel_resource_name(KEEL_RES_GROUPS));
	KUNIT_EXPECT_STREQ(test, "?", keel_resource_name(KEEL_RESOURCES));
	KUNIT_EXPECT_STREQ(test, "?", keel_resource_name(U32_MAX));
}

static struct kunit_case obj_test_cases[] = {
	KUNIT_CASE(pd_1_birth),
	KUNIT_CASE(obj_id_not_reused_soon),
	KUNIT_CASE(obj_id_wraps),
	KUNIT_CASE_PARAM(spd_6_release_order, order_gen_params),
	KUNIT_CASE(pd_2_hold_keeps_alive),
	KUNIT_CASE(dm_8_two_holds),
	KUNIT_CASE(obj_odd_holds),
	KUNIT_CASE(obj_get_keeps_alive),
	KUNIT_CASE(obj_dying_is_dead),
	KUNIT_CASE(obj_kind_names),
	KUNIT_CASE(iso_5_resource_names),
	{}
};

static struct kunit_suite obj_test_suite = {
	.name = "keel_obj",
	.init = dummies_init,
	.exit = dummies_exit,
	.test_cases = obj_test_cases,
};
kunit_test_suite(obj_test_suite);
