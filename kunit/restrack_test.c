// SPDX-License-Identifier: GPL-2.0
/*
 * "rdma resource": the table of an object is added to a netlink message as a whole, or
 * not at all. ib_core then starts another message with this object.
 */
#include <linux/skbuff.h>

#include "pair.h"

/* More than the table of any object. */
#define ROOM	1024

static int fill_qp(struct pair *p, struct sk_buff *msg)
{
	return p->ibdev->ops.fill_res_qp_entry(msg, p->a.qp);
}

static int fill_cq(struct pair *p, struct sk_buff *msg)
{
	return p->ibdev->ops.fill_res_cq_entry(msg, p->a.cq);
}

static int fill_mr(struct pair *p, struct sk_buff *msg)
{
	return p->ibdev->ops.fill_res_mr_entry(msg, p->a.mr);
}

#ifdef KEEL_HAVE_FILL_RES_SRQ
static int fill_srq(struct pair *p, struct sk_buff *msg)
{
	return p->ibdev->ops.fill_res_srq_entry(msg, p->srq);
}
#endif

static const struct fill_case {
	const char *desc;
	int (*fill)(struct pair *p, struct sk_buff *msg);
} fill_cases[] = {
	{ "QP", fill_qp },
	{ "CQ", fill_cq },
	{ "MR", fill_mr },
#ifdef KEEL_HAVE_FILL_RES_SRQ
	{ "SRQ", fill_srq },
#endif
};
KUNIT_ARRAY_PARAM_DESC(fill, fill_cases, desc);

/* Fill a message with @room free bytes. Return the bytes of the table, or an error. */
static int fill(struct kunit *test, const struct fill_case *c, u32 room)
{
	struct sk_buff *msg = alloc_skb(ROOM, GFP_KERNEL);
	u32 before, added;
	int ret;

	KUNIT_ASSERT_NOT_NULL(test, msg);
	skb_put(msg, skb_tailroom(msg) - room);
	before = msg->len;
	ret = c->fill(test->priv, msg);
	added = msg->len - before;
	kfree_skb(msg);
	if (!ret)
		return added;
	KUNIT_EXPECT_EQ_MSG(test, 0, added, "%u bytes of room", room);
	return ret;
}

static void restrack_room(struct kunit *test)
{
	const struct fill_case *c = test->param_value;
	struct pair *p = test->priv;
	int whole, room;

	p->with_srq = true;
	pair_make(p, IB_QPT_RC);
	whole = fill(test, c, ROOM);
	KUNIT_ASSERT_GT(test, whole, 0);
	for (room = 0; room < whole; room++)
		KUNIT_EXPECT_EQ_MSG(test, -EMSGSIZE, fill(test, c, room),
				    "%d bytes of room", room);
	KUNIT_EXPECT_EQ(test, whole, fill(test, c, whole));
}

static struct kunit_case restrack_cases[] = {
	KUNIT_CASE_PARAM(restrack_room, fill_gen_params),
	{}
};

static struct kunit_suite restrack_suite = {
	.name = "keel_restrack",
	.suite_init = pair_suite_init,
	.suite_exit = pair_suite_exit,
	.init = pair_init,
	.exit = pair_exit,
	.test_cases = restrack_cases,
};
kunit_test_suite(restrack_suite);
