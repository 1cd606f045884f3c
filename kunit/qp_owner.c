// SPDX-License-Identifier: GPL-2.0
/*
 * See qp_owner.h.
 */
#include <linux/err.h>

#include "keel_point.h"
#include "qp_owner.h"

/* Of a user that the device does not have yet. */
#define USER_ID	4000000000ULL

struct owner *owner;

int owner_init(struct kunit *test)
{
	struct owner *o;
	int ret = pair_init(test);

	if (ret)
		return ret;
	o = kunit_kzalloc(test, sizeof(*o), GFP_KERNEL);
	if (!o)
		return -ENOMEM;
	o->p = test->priv;
	worker_test_setup(&o->t, test);
	keel_workers_setup(&o->ctx.workers);
	owner = o;
	return 0;
}

void owner_charge(struct owner *o, struct keel_obj *obj)
{
	o->user = keel_user_get(&obj->reg->quotas, USER_ID, GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(o->t.test, o->user);
	KUNIT_ASSERT_EQ(o->t.test, 0, keel_user_charge(o->user, obj->kind, 1, true));
	/* The destroy undoes the charge, and drops a reference. */
	obj->user = keel_user_get(&obj->reg->quotas, USER_ID, GFP_KERNEL);
}

void owner_exit(struct kunit *test)
{
	struct owner *o = owner;

	WRITE_ONCE(keel_point_hook.hit, NULL);
	owner = NULL;
	if (o)
		worker_test_release(&o->t);
	pair_exit(test);
	if (!o)
		return;
	worker_test_end(&o->t);
	keel_workers_stop(&o->ctx.workers);
	keel_worker_put(o->mine);
	if (!o->user)
		return;
	KUNIT_EXPECT_EQ(test, 0, atomic64_read(&o->user->held[KEEL_QP]));
	KUNIT_EXPECT_EQ(test, 0, atomic64_read(&o->user->held[KEEL_SRQ]));
	KUNIT_EXPECT_EQ(test, 1, refcount_read(&o->user->ref));
	/* So that the device does not keep the user, who may have to wait for a turn. */
	keel_orphans_set(&o->user->orphans, -KEEL_ORPHANS_SAVED);
	keel_user_put(o->user);
}

void owner_open(struct owner *o)
{
	struct keel_worker *worker;

	worker_test_open(&o->t);
	worker = worker_of_thread(&o->ctx.workers);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(o->t.test, worker);
	o->mine = worker;
}

void owner_give(const struct end *end, struct keel_worker *worker)
{
	struct keel_qp *qp = to_kqp(end->qp);

	keel_worker_get(worker);
	guard(spinlock)(&qp->state_lock);
	qp->worker = worker;
}

struct keel_qp *owner_dies(struct owner *o, enum ib_qp_type type)
{
	owner_open(o);
	pair_make(o->p, type);
	pair_connect(o->p);
	owner_charge(o, &to_kqp(o->p->a.qp)->obj);
	owner_give(&o->p->a, o->t.worker);
	worker_test_stop(&o->t.workers);
	return to_kqp(o->p->a.qp);
}

bool owner_steps(struct owner *o, int steps)
{
	struct keel_orphans *orphans = &o->user->orphans;

	while (steps-- && keel_orphans_look(orphans))
		keel_orphans_set(orphans, 0);
	return !keel_orphans_look(orphans);
}
