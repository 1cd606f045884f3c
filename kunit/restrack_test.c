// SPDX-License-Identifier: GPL-2.0
/*
 * "rdma resource": the table of an object is added to a netlink message as a whole, or
 * not at all. ib_core then starts another message with this object.
 */
#include <linux/skbuff.h>
#include <linux/string.h>

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
	/* Those of each object of the kind, also of a kernel consumer. */
	const char *names[8];
} fill_cases[] = {
	{ "QP", fill_qp, { "id", "domain", "send_wrs", "recv_wrs", "waits_for" } },
	{ "CQ", fill_cq, { "id", "entries", "added", "queued", "armed", "error" } },
	{ "MR", fill_mr, { "id", "domain", "memory" } },
#ifdef KEEL_HAVE_FILL_RES_SRQ
	{ "SRQ", fill_srq, { "srq_number", "entries", "taken", "queued", "limit",
			     "error" } },
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

/* Is a name in a message, with its end? */
static bool has_name(const struct sk_buff *msg, const char *name)
{
	unsigned int len = strlen(name) + 1, i;

	for (i = 0; i + len <= msg->len; i++)
		if (!memcmp(msg->data + i, name, len))
			return true;
	return false;
}

/* DEV-2: the table has all values that keel has of an object. */
static void dev_2_restrack_names(struct kunit *test)
{
	const struct fill_case *c = test->param_value;
	struct pair *p = test->priv;
	struct sk_buff *msg;
	int i;

	p->with_srq = true;
	pair_make(p, IB_QPT_RC);
	msg = alloc_skb(ROOM, GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, msg);
	KUNIT_EXPECT_EQ(test, 0, c->fill(p, msg));
	for (i = 0; i < ARRAY_SIZE(c->names) && c->names[i]; i++)
		KUNIT_EXPECT_TRUE_MSG(test, has_name(msg, c->names[i]), "%s", c->names[i]);
	KUNIT_EXPECT_FALSE(test, has_name(msg, "absent"));
	kfree_skb(msg);
}

static struct kunit_case restrack_cases[] = {
	KUNIT_CASE_PARAM(restrack_room, fill_gen_params),
	KUNIT_CASE_PARAM(dev_2_restrack_names, fill_gen_params),
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
