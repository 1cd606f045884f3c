// SPDX-License-Identifier: GPL-2.0
/*
 * Dummies: objects of any kind without a resource.
 */
#include <linux/err.h>
#include <linux/slab.h>

#include "compat.h"
#include "dummy_obj.h"

static void dummy_release(struct keel_obj *obj)
{
	struct dummy *dummy = container_of(obj, struct dummy, obj);
	struct dummies *dummies = dummy->dummies;

	if (dummies->at_release)
		dummies->at_release(obj, dummies->arg);
	spin_lock(&dummies->lock);
	if (dummies->released < DUMMIES_LOG)
		dummies->log[dummies->released] = dummy->mark;
	dummies->released++;
	spin_unlock(&dummies->lock);
	kfree_rcu(dummy, obj.rcu);
}

static const struct keel_obj_ops dummy_ops = {
	.release = dummy_release,
};

int dummies_init(struct kunit *test)
{
	struct dummies *dummies = kunit_kzalloc(test, sizeof(*dummies),
						GFP_KERNEL);

	if (!dummies)
		return -ENOMEM;
	spin_lock_init(&dummies->lock);
	keel_registry_init(&dummies->reg, "kunit");
	test->priv = dummies;
	return 0;
}

/* No object is left when a test ends. */
void dummies_exit(struct kunit *test)
{
	struct dummies *dummies = test->priv;
	int kind;

	if (!dummies)
		return;
	for (kind = 0; kind < KEEL_KINDS; kind++) {
		KUNIT_EXPECT_TRUE_MSG(test, keel_numbers_are_free(&dummies->reg.objs[kind]),
				      "%s left behind", keel_kind_name(kind));
		KUNIT_EXPECT_EQ_MSG(test, 0,
				    atomic64_read(&dummies->reg.quotas.count[kind]),
				    "number of %s", keel_kind_name(kind));
	}
	keel_registry_fini(&dummies->reg);
}

struct dummy *dummy_try(struct dummies *dummies, enum keel_kind kind, char mark,
			struct dummy *first, struct dummy *second)
{
	struct dummy *dummy = kzalloc_obj(*dummy);
	int ret;

	if (!dummy)
		return ERR_PTR(-ENOMEM);
	dummy->dummies = dummies;
	dummy->mark = mark;
	keel_obj_may_hold(&dummy->obj, dummy->holds);
	ret = keel_obj_add(&dummies->reg, &dummy->obj, kind, &dummy_ops,
			   first ? &first->obj : NULL,
			   second ? &second->obj : NULL);
	if (ret) {
		kfree(dummy);
		return ERR_PTR(ret);
	}
	return dummy;
}

struct dummy *dummy_new(struct kunit *test, enum keel_kind kind, char mark,
			struct dummy *first, struct dummy *second)
{
	struct dummy *dummy = dummy_try(test->priv, kind, mark, first, second);

	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, dummy);
	return dummy;
}

void dummy_close(struct dummy *dummy)
{
	keel_obj_close(&dummy->obj);
}
