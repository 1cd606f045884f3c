// SPDX-License-Identifier: GPL-2.0
/*
 * Things: objects of any kind with nothing behind them.
 */
#include <linux/err.h>
#include <linux/slab.h>

#include "compat.h"
#include "thing.h"

static void thing_release(struct keel_obj *obj)
{
	struct thing *thing = container_of(obj, struct thing, obj);
	struct things *things = thing->things;

	if (things->at_release)
		things->at_release(obj, things->arg);
	spin_lock(&things->lock);
	if (things->released < THINGS_LOG)
		things->log[things->released] = thing->mark;
	things->released++;
	spin_unlock(&things->lock);
	kfree_rcu(thing, obj.rcu);
}

static const struct keel_obj_ops thing_ops = {
	.release = thing_release,
};

int things_init(struct kunit *test)
{
	struct things *things = kunit_kzalloc(test, sizeof(*things),
					      GFP_KERNEL);

	if (!things)
		return -ENOMEM;
	spin_lock_init(&things->lock);
	keel_registry_init(&things->reg, "kunit");
	test->priv = things;
	return 0;
}

/* Nothing is left when a test ends. */
void things_exit(struct kunit *test)
{
	struct things *things = test->priv;
	int kind;

	if (!things)
		return;
	for (kind = 0; kind < KEEL_KINDS; kind++) {
		KUNIT_EXPECT_TRUE_MSG(test, xa_empty(&things->reg.objs[kind]),
				      "%s left behind", keel_kind_name(kind));
		KUNIT_EXPECT_EQ_MSG(test, 0,
				    atomic64_read(&things->reg.quotas.count[kind]),
				    "number of %s", keel_kind_name(kind));
	}
	keel_registry_fini(&things->reg);
}

struct thing *thing_try(struct things *things, enum keel_kind kind, char mark,
			struct thing *first, struct thing *second)
{
	struct thing *thing = kzalloc_obj(*thing);
	int ret;

	if (!thing)
		return ERR_PTR(-ENOMEM);
	thing->things = things;
	thing->mark = mark;
	ret = keel_obj_add(&things->reg, &thing->obj, kind, &thing_ops,
			   first ? &first->obj : NULL,
			   second ? &second->obj : NULL);
	if (ret) {
		kfree(thing);
		return ERR_PTR(ret);
	}
	return thing;
}

struct thing *thing_new(struct kunit *test, enum keel_kind kind, char mark,
			struct thing *first, struct thing *second)
{
	struct thing *thing = thing_try(test->priv, kind, mark, first, second);

	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, thing);
	return thing;
}

void thing_close(struct thing *thing)
{
	keel_obj_close(&thing->obj);
}
