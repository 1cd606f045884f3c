// SPDX-License-Identifier: GPL-2.0
/*
 * Snapshots of a registry: which objects they have, and the tree.
 */
#include <kunit/test.h>

#include "dummy_obj.h"
#include "keel_point.h"
#include "keel_snapshot.h"

#define MANY	200

static struct keel_snapshot *snapshot(struct kunit *test, bool kernel)
{
	struct dummies *dummies = test->priv;
	struct keel_snapshot *snap = keel_snapshot_get(&dummies->reg, kernel);

	KUNIT_ASSERT_NOT_NULL(test, snap);
	return snap;
}

/* Check the tree: one word for each object, its mark and its depth. */
static void expect_tree(struct kunit *test, const struct keel_snapshot *snap,
			const char *want)
{
	u32 at, depth = 0;
	char got[64] = "";
	size_t n = 0;

	for (at = snap->root; at != KEEL_SNAPSHOT_END;
	     at = keel_snapshot_next(snap, at, &depth)) {
		const struct dummy *dummy =
			container_of(snap->at[at].obj, struct dummy, obj);

		n += scnprintf(got + n, sizeof(got) - n, "%s%c%u", n ? " " : "",
			       dummy->mark, depth);
	}
	KUNIT_EXPECT_STREQ(test, want, got);
}

/* PDM-1: each object is listed once, below the one that it holds first. */
static void pdm_1_snapshot_tree(struct kunit *test)
{
	struct dummy *d = dummy_new(test, KEEL_DOMAIN, 'd', NULL, NULL);
	struct dummy *q = dummy_new(test, KEEL_PD, 'q', NULL, NULL);
	struct dummy *p = dummy_new(test, KEEL_PD, 'p', d, NULL);
	struct dummy *c = dummy_new(test, KEEL_CQ, 'c', NULL, NULL);
	struct dummy *n = dummy_new(test, KEEL_MR, 'n', p, NULL);
	struct dummy *s = dummy_new(test, KEEL_SRQ, 's', q, c);
	struct dummy *m = dummy_new(test, KEEL_MR, 'm', p, c);
	struct dummy *a = dummy_new(test, KEEL_PARENT, 'a', p, NULL);
	struct dummy *all[] = { m, s, n, c, a, p, q, d };
	struct keel_snapshot *snap = snapshot(test, false);
	int i;

	expect_tree(test, snap, "d0 p1 a2 n2 m2 q0 s1 c0");
	KUNIT_EXPECT_EQ(test, 8, snap->count);
	KUNIT_EXPECT_EQ(test, 5, dummy_refs(p));
	KUNIT_EXPECT_EQ(test, 2, dummy_refs(m));
	keel_snapshot_put(snap);
	KUNIT_EXPECT_EQ(test, 4, dummy_refs(p));
	KUNIT_EXPECT_EQ(test, 1, dummy_refs(m));
	for (i = 0; i < ARRAY_SIZE(all); i++)
		dummy_close(all[i]);
	snap = snapshot(test, false);
	expect_tree(test, snap, "");
	keel_snapshot_put(snap);
}

/* Objects of kernel consumers, and those of userspace. */
static void snapshot_kernel(struct kunit *test)
{
	struct dummies *dummies = test->priv;
	struct dummy *u = dummy_new(test, KEEL_PD, 'u', NULL, NULL);
	struct dummy *k = dummy_new(test, KEEL_PD, 'k', NULL, NULL);
	struct keel_snapshot *snap;
	struct dummy *m;

	k->obj.kernel = true;
	m = dummy_new(test, KEEL_MR, 'm', k, NULL);
	snap = snapshot(test, false);
	expect_tree(test, snap, "u0");
	keel_snapshot_put(snap);
	snap = snapshot(test, true);
	expect_tree(test, snap, "k0 m1");
	keel_snapshot_put(snap);
	dummy_close(m);
	k->obj.kernel = false;
	dummy_close(k);
	dummy_close(u);
	KUNIT_EXPECT_EQ(test, 3, dummies->released);
}

/* An object that is being released is not shown. */
static void snapshot_dying(struct kunit *test)
{
	struct dummy *a = dummy_new(test, KEEL_PD, 'a', NULL, NULL);
	struct dummy *b = dummy_new(test, KEEL_PD, 'b', NULL, NULL);
	struct keel_snapshot *snap;

	refcount_set(&a->obj.ref.refcount, 0);
	snap = snapshot(test, false);
	expect_tree(test, snap, "b0");
	keel_snapshot_put(snap);
	KUNIT_EXPECT_EQ(test, 0, dummy_refs(a));
	refcount_set(&a->obj.ref.refcount, 1);
	dummy_close(a);
	dummy_close(b);
}

static struct {
	struct kunit *test;
	int kinds;
	struct dummy *pd, *mr, *mw;
} late;

/* Create a PD after the PDs were found, with an MR and a window below. */
static void create_late(const char *name)
{
	if (strcmp(name, "snapshot_kind") || late.kinds++ != KEEL_PD)
		return;
	late.pd = dummy_new(late.test, KEEL_PD, 'l', NULL, NULL);
	late.mr = dummy_new(late.test, KEEL_MR, 'm', late.pd, NULL);
	late.mw = dummy_new(late.test, KEEL_MW, 'w', late.mr, NULL);
}

/* No object is shown without the one that it holds, whenever it was created. */
static void snapshot_late(struct kunit *test)
{
	struct dummy *a = dummy_new(test, KEEL_PD, 'a', NULL, NULL);
	struct dummy *b = dummy_new(test, KEEL_MR, 'b', a, NULL);
	struct keel_snapshot *snap;

	memset(&late, 0, sizeof(late));
	late.test = test;
	WRITE_ONCE(keel_point_hook.hit, create_late);
	snap = snapshot(test, false);
	WRITE_ONCE(keel_point_hook.hit, NULL);
	KUNIT_ASSERT_NOT_NULL(test, late.pd);
	KUNIT_EXPECT_EQ(test, 4, snap->count);
	expect_tree(test, snap, "a0 b1");
	keel_snapshot_put(snap);
	snap = snapshot(test, false);
	expect_tree(test, snap, "a0 b1 l0 m1 w2");
	keel_snapshot_put(snap);
	dummy_close(late.mw);
	dummy_close(late.mr);
	dummy_close(late.pd);
	dummy_close(b);
	dummy_close(a);
}

/* PDM-1: as many objects as there are, of one kind and of the next ones. */
static void pdm_1_snapshot_many(struct kunit *test)
{
	struct dummy **all = kunit_kcalloc(test, MANY, sizeof(*all), GFP_KERNEL);
	struct keel_snapshot *snap;
	u32 at, depth = 0, n = 0;
	int i;

	KUNIT_ASSERT_NOT_NULL(test, all);
	for (i = 0; i < MANY; i++)
		all[i] = dummy_new(test, i % 4 ? KEEL_MR : KEEL_PD, 'm',
				   i % 4 ? all[i / 4 * 4] : NULL, NULL);
	snap = snapshot(test, false);
	KUNIT_EXPECT_EQ(test, MANY, snap->count);
	for (at = snap->root; at != KEEL_SNAPSHOT_END && n < MANY;
	     at = keel_snapshot_next(snap, at, &depth)) {
		KUNIT_EXPECT_PTR_EQ(test, &all[n]->obj, snap->at[at].obj);
		KUNIT_EXPECT_EQ(test, n % 4 ? 1 : 0, depth);
		KUNIT_EXPECT_EQ(test, (n % 4 ? 2 : 5), dummy_refs(all[n]));
		n++;
	}
	KUNIT_EXPECT_EQ(test, MANY, n);
	KUNIT_EXPECT_EQ(test, KEEL_SNAPSHOT_END, at);
	keel_snapshot_put(snap);
	for (i = MANY; i--;)
		dummy_close(all[i]);
}

static struct kunit_case snapshot_cases[] = {
	KUNIT_CASE(pdm_1_snapshot_tree),
	KUNIT_CASE(snapshot_kernel),
	KUNIT_CASE(snapshot_dying),
	KUNIT_CASE(snapshot_late),
	KUNIT_CASE(pdm_1_snapshot_many),
	{}
};

static struct kunit_suite snapshot_suite = {
	.name = "keel_snapshot",
	.init = dummies_init,
	.exit = dummies_exit,
	.test_cases = snapshot_cases,
};
kunit_test_suite(snapshot_suite);
