// SPDX-License-Identifier: GPL-2.0
/*
 * The threads that have run a QP: now.h.
 */
#include <kunit/static_stub.h>
#include <linux/string.h>
#include <linux/time64.h>

#include "keel_point.h"
#include "now.h"

struct now_runs now;

/* Those of the module, while now_own() has replaced them. */
static u64 now_ns, turn_ns;

u32 now_sent(struct far_host *h)
{
	guard(spinlock)(&h->conn.lock);
	return h->nr_sent;
}

static void now_hook(const char *name)
{
	bool mine = current == now.thread;

	if (!strcmp(name, "far_drained") && atomic_inc_return(&now.far[mine]) == 1 && mine)
		now.answers = now_sent(now.h);
	if (strcmp(name, "sq_drained"))
		return;
	if (mine && now.posting)
		atomic_set(&now.h->qp->sq.again, 1);
	if (atomic_inc_return(&now.sq[mine]) > 1 || !mine)
		return;
	now.index = READ_ONCE(now.h->qp->sq.ring.index);
	now.sent = now_sent(now.h);
	/* With the lock of the send queue. */
	now.need = context_unsafe(now.h->qp->sq.from.fetch.ctl.need.kind);
	now.awaits = READ_ONCE(now.h->qp->sq.from.srq);
	if (now.open)
		list_del_init(now.open);
}

void now_watch(struct far_host *h)
{
	far_host_settle(h);
	WRITE_ONCE(keel_point_hook.hit, NULL);
	now = (struct now_runs){ .thread = current, .h = h };
	WRITE_ONCE(keel_point_hook.hit, now_hook);
}

void now_worked(struct far_host *h, bool worked)
{
	far_host_settle(h);
	KUNIT_EXPECT_EQ(h->p->test, worked, atomic_read(&now.far[false]) != 0);
	KUNIT_EXPECT_EQ(h->p->test, worked, atomic_read(&now.sq[false]) != 0);
}

static bool now_has_owner(const struct keel_qp *qp)
{
	return true;
}

void now_own(struct kunit *test)
{
	kunit_activate_static_stub(test, keel_far_has_owner, now_has_owner);
	if (!now_ns) {
		now_ns = keel_far_now_ns;
		turn_ns = keel_far_turn_ns;
	}
	/* Longer than a test. */
	WRITE_ONCE(keel_far_now_ns, 600 * NSEC_PER_SEC);
	WRITE_ONCE(keel_far_turn_ns, 600 * NSEC_PER_SEC);
}

void now_exit(struct kunit *test)
{
	WRITE_ONCE(keel_point_hook.hit, NULL);
	if (now_ns) {
		WRITE_ONCE(keel_far_now_ns, now_ns);
		WRITE_ONCE(keel_far_turn_ns, turn_ns);
		now_ns = 0;
	}
	pair_exit(test);
}
