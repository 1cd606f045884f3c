// SPDX-License-Identifier: GPL-2.0
/*
 * The registry of objects: limits, and lists of holders.
 */
#include <kunit/test.h>
#include <linux/err.h>
#include <linux/string.h>

#include "dummy_obj.h"

#define LIMIT	5

struct limit_case {
	const char *desc;
	enum keel_kind kind;
	enum keel_kind quota;
};

static const struct limit_case limit_cases[] = {
	{ "PD-5: PDs", KEEL_PD, KEEL_PD },
	{ "PD-5: parent domains are PDs", KEEL_PARENT, KEEL_PD },
	{ "thread domains", KEEL_TD, KEEL_TD },
	{ "XRC domains", KEEL_XRCD, KEEL_XRCD },
	{ "shared-PD handles", KEEL_SHPD, KEEL_SHPD },
	{ "buffers of device memory", KEEL_DM, KEEL_DM },
	{ "MRs", KEEL_MR, KEEL_MR },
	{ "MRs of device memory are MRs", KEEL_DM_MR, KEEL_MR },
	{ "MWs", KEEL_MW, KEEL_MW },
	{ "AHs", KEEL_AH, KEEL_AH },
	{ "CQs", KEEL_CQ, KEEL_CQ },
	{ "SRQs", KEEL_SRQ, KEEL_SRQ },
	{ "QPs", KEEL_QP, KEEL_QP },
	{ "domains", KEEL_DOMAIN, KEEL_DOMAIN },
};
KUNIT_ARRAY_PARAM_DESC(limit, limit_cases, desc);

/* PD-5: no more objects than the limit; a release makes room for one. */
static void obj_limit(struct kunit *test)
{
	const struct limit_case *c = test->param_value;
	struct dummies *dummies = test->priv;
	struct dummy *dummy[LIMIT], *over;
	int i, round;

	dummies->reg.quotas.limit[c->quota] = LIMIT;
	for (i = 0; i < LIMIT; i++)
		dummy[i] = dummy_new(test, c->kind, 'a', NULL, NULL);
	for (round = 0; round < 3; round++) {
		over = dummy_try(dummies, c->kind, 'b', NULL, NULL);
		KUNIT_ASSERT_TRUE(test, IS_ERR(over));
		KUNIT_EXPECT_EQ(test, -ENOMEM, PTR_ERR(over));
		KUNIT_EXPECT_EQ(test, LIMIT,
				atomic64_read(&dummies->reg.quotas.count[c->quota]));
		dummy_close(dummy[round]);
		dummy[round] = dummy_new(test, c->kind, 'a', NULL, NULL);
	}
	for (i = 0; i < LIMIT; i++)
		dummy_close(dummy[i]);
}

/* Limits of different kinds are independent. */
static void obj_limits_are_apart(struct kunit *test)
{
	const struct limit_case *c = test->param_value;
	struct dummies *dummies = test->priv;
	enum keel_kind other;

	dummies->reg.quotas.limit[c->quota] = 0;
	for (other = KEEL_DOMAIN; other < KEEL_KINDS; other++) {
		struct dummy *t = dummy_try(dummies, other, 'a', NULL, NULL);
		bool same = false;
		size_t i;

		for (i = 0; i < ARRAY_SIZE(limit_cases); i++)
			if (limit_cases[i].kind == other)
				same = limit_cases[i].quota == c->quota;
		KUNIT_EXPECT_EQ_MSG(test, same, IS_ERR(t), "%s",
				    keel_kind_name(other));
		if (!IS_ERR(t))
			dummy_close(t);
	}
}

/* PD-5: PDs and parent domains share a limit, and so do both kinds of MRs. */
static void pd_5_shared_limit(struct kunit *test)
{
	struct dummies *dummies = test->priv;
	struct dummy *pd, *parent, *over;

	dummies->reg.quotas.limit[KEEL_PD] = 2;
	pd = dummy_new(test, KEEL_PD, 'a', NULL, NULL);
	parent = dummy_new(test, KEEL_PARENT, 'b', pd, NULL);
	over = dummy_try(dummies, KEEL_PD, 'c', NULL, NULL);
	KUNIT_EXPECT_EQ(test, -ENOMEM, PTR_ERR_OR_ZERO(over));
	over = dummy_try(dummies, KEEL_PARENT, 'c', pd, NULL);
	KUNIT_EXPECT_EQ(test, -ENOMEM, PTR_ERR_OR_ZERO(over));
	dummy_close(parent);
	over = dummy_new(test, KEEL_PD, 'd', NULL, NULL);
	dummy_close(over);
	dummy_close(pd);

	dummies->reg.quotas.limit[KEEL_MR] = 1;
	pd = dummy_new(test, KEEL_DM_MR, 'a', NULL, NULL);
	over = dummy_try(dummies, KEEL_MR, 'b', NULL, NULL);
	KUNIT_EXPECT_EQ(test, -ENOMEM, PTR_ERR_OR_ZERO(over));
	dummy_close(pd);
}

/* The limit counts objects in memory, even if their uobject is destroyed. */
static void pd_5_held_counts(struct kunit *test)
{
	struct dummies *dummies = test->priv;
	struct dummy *pd, *mr, *over;

	dummies->reg.quotas.limit[KEEL_PD] = 1;
	pd = dummy_new(test, KEEL_PD, 'p', NULL, NULL);
	mr = dummy_new(test, KEEL_MR, 'm', pd, NULL);
	dummy_close(pd);
	over = dummy_try(dummies, KEEL_PD, 'q', NULL, NULL);
	KUNIT_EXPECT_EQ(test, -ENOMEM, PTR_ERR_OR_ZERO(over));
	dummy_close(mr);
	pd = dummy_new(test, KEEL_PD, 'q', NULL, NULL);
	dummy_close(pd);
}

/* PD-2, DM-8: a refused object holds nothing. */
static void pd_2_dm_8_refused_holds_nothing(struct kunit *test)
{
	struct dummies *dummies = test->priv;
	struct dummy *pd = dummy_new(test, KEEL_PD, 'p', NULL, NULL);
	struct dummy *dm = dummy_new(test, KEEL_DM, 'd', NULL, NULL);
	struct dummy *mr;

	dummies->reg.quotas.limit[KEEL_MR] = 0;
	mr = dummy_try(dummies, KEEL_DM_MR, 'm', pd, dm);
	KUNIT_EXPECT_EQ(test, -ENOMEM, PTR_ERR_OR_ZERO(mr));
	KUNIT_EXPECT_EQ(test, 1, dummy_refs(pd));
	KUNIT_EXPECT_EQ(test, 1, dummy_refs(dm));
	KUNIT_EXPECT_EQ(test, 0, keel_obj_holders(&pd->obj, NULL, 0));
	KUNIT_EXPECT_EQ(test, 0, keel_obj_holders(&dm->obj, NULL, 0));
	KUNIT_EXPECT_TRUE(test, keel_numbers_are_free(&dummies->reg.objs[KEEL_DM_MR]));
	KUNIT_EXPECT_EQ(test, 0, atomic64_read(&dummies->reg.quotas.count[KEEL_MR]));
	KUNIT_EXPECT_EQ(test, 0, dummies->released);
	dummy_close(dm);
	dummy_close(pd);
}

/* PD-2: holders are listed in the order of their creation. */
static void pd_2_holders(struct kunit *test)
{
	static const enum keel_kind kinds[] = {
		KEEL_MR, KEEL_PARENT, KEEL_MW, KEEL_AH, KEEL_DM_MR,
	};
	struct dummy *pd = dummy_new(test, KEEL_PD, 'p', NULL, NULL);
	struct dummy *holder[ARRAY_SIZE(kinds)];
	struct keel_uapi_holder list[ARRAY_SIZE(kinds)] = {};
	unsigned int i;

	KUNIT_EXPECT_EQ(test, 0, keel_obj_holders(&pd->obj, list, 1));
	for (i = 0; i < ARRAY_SIZE(kinds); i++)
		holder[i] = dummy_new(test, kinds[i], 'h', pd, NULL);
	KUNIT_ASSERT_EQ(test, ARRAY_SIZE(kinds),
			keel_obj_holders(&pd->obj, list, ARRAY_SIZE(list)));
	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		KUNIT_EXPECT_EQ(test, kinds[i], list[i].kind);
		KUNIT_EXPECT_EQ(test, holder[i]->obj.id, list[i].id);
		KUNIT_EXPECT_EQ(test, task_tgid_vnr(current), list[i].pid);
		KUNIT_EXPECT_STREQ(test, current->group_leader->comm,
				   list[i].comm);
	}
	/* Release the holder in the middle. */
	dummy_close(holder[2]);
	memset(list, 0, sizeof(list));
	KUNIT_EXPECT_EQ(test, ARRAY_SIZE(kinds) - 1,
			keel_obj_holders(&pd->obj, list, ARRAY_SIZE(list)));
	KUNIT_EXPECT_EQ(test, KEEL_PARENT, list[1].kind);
	KUNIT_EXPECT_EQ(test, KEEL_AH, list[2].kind);
	for (i = 0; i < ARRAY_SIZE(kinds); i++)
		if (i != 2)
			dummy_close(holder[i]);
	KUNIT_EXPECT_EQ(test, 0, keel_obj_holders(&pd->obj, NULL, 0));
	dummy_close(pd);
}

/* A short list gets the holders that fit, and the number of all holders. */
static void pd_2_holders_room(struct kunit *test)
{
	struct dummy *pd = dummy_new(test, KEEL_PD, 'p', NULL, NULL);
	struct keel_uapi_holder list[4], blank;
	struct dummy *mr[3];
	u32 i, room;

	for (i = 0; i < 3; i++)
		mr[i] = dummy_new(test, KEEL_MR, 'm', pd, NULL);
	memset(&blank, 0x5a, sizeof(blank));
	for (room = 0; room <= 4; room++) {
		memset(list, 0x5a, sizeof(list));
		KUNIT_EXPECT_EQ(test, 3,
				keel_obj_holders(&pd->obj, list, room));
		for (i = 0; i < min(room, 3); i++)
			KUNIT_EXPECT_EQ(test, mr[i]->obj.id, list[i].id);
		for (; i < 4; i++)
			KUNIT_EXPECT_MEMEQ(test, &list[i], &blank,
					   sizeof(blank));
	}
	for (i = 0; i < 3; i++)
		dummy_close(mr[i]);
	dummy_close(pd);
}

static struct kunit_case obj_limit_test_cases[] = {
	KUNIT_CASE_PARAM(obj_limit, limit_gen_params),
	KUNIT_CASE_PARAM(obj_limits_are_apart, limit_gen_params),
	KUNIT_CASE(pd_5_shared_limit),
	KUNIT_CASE(pd_5_held_counts),
	KUNIT_CASE(pd_2_dm_8_refused_holds_nothing),
	KUNIT_CASE(pd_2_holders),
	KUNIT_CASE(pd_2_holders_room),
	{}
};

static struct kunit_suite obj_limit_test_suite = {
	.name = "keel_obj_limit",
	.init = dummies_init,
	.exit = dummies_exit,
	.test_cases = obj_limit_test_cases,
};
kunit_test_suite(obj_limit_test_suite);
