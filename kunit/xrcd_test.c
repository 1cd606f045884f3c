// SPDX-License-Identifier: GPL-2.0
/*
 * An XRC domain of a kernel consumer.
 */
#include "keel_domain.h"
#include "pair.h"

/* The domain of the kernel counts for no user. */
static void xrc_1_of_kernel(struct kunit *test)
{
	struct pair *p = test->priv;
	atomic64_t *count = &to_kdev(p->ibdev)->reg.quotas.count[KEEL_XRCD];
	s64 before = atomic64_read(count);
	struct ib_xrcd *xrcd = ib_alloc_xrcd_user(p->ibdev, NULL, NULL);

	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, xrcd);
	KUNIT_EXPECT_TRUE(test, to_kxrcd(xrcd)->obj.kernel);
	KUNIT_EXPECT_NULL(test, to_kxrcd(xrcd)->obj.user);
	KUNIT_EXPECT_FALSE(test, to_kxrcd(xrcd)->tied);
	KUNIT_EXPECT_EQ(test, before, atomic64_read(count));
	KUNIT_EXPECT_EQ(test, 0, ib_dealloc_xrcd_user(xrcd, NULL));
}

static struct kunit_case xrcd_cases[] = {
	KUNIT_CASE(xrc_1_of_kernel),
	{}
};

static struct kunit_suite xrcd_suite = {
	.name = "keel_xrcd",
	.suite_init = pair_suite_init,
	.suite_exit = pair_suite_exit,
	.init = pair_init,
	.exit = pair_exit,
	.test_cases = xrcd_cases,
};
kunit_test_suite(xrcd_suite);
