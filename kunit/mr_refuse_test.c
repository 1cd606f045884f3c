// SPDX-License-Identifier: GPL-2.0
/*
 * Requests that keel itself refuses: ib_core checks them for user processes, or
 * offers no user process a way to make them.
 */
#include <linux/err.h>

#include "pair.h"

/* DEV-4: ib_uverbs checks the flags of ibv_advise_mr(), ib_advise_mr() does not. */
static void dev_4_advise(struct kunit *test)
{
	const u32 flush = IB_UVERBS_ADVISE_MR_FLAG_FLUSH;
	static const enum ib_uverbs_advise_mr_advice advice[] = {
		IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH,
		IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE,
		IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT,
	};
	struct pair *p = test->priv;
	struct ib_sge sge = {};
	int i;

	p->pd = ib_alloc_pd(p->ibdev, 0);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, p->pd);
	for (i = 0; i < ARRAY_SIZE(advice); i++) {
		KUNIT_EXPECT_EQ(test, -EINVAL,
				ib_advise_mr(p->pd, advice[i], flush << 1, &sge, 1));
		KUNIT_EXPECT_EQ(test, -EINVAL,
				ib_advise_mr(p->pd, advice[i], flush | BIT(31), &sge,
					     1));
	}
	/* An advice that keel does not know. */
	KUNIT_EXPECT_EQ(test, -EOPNOTSUPP,
			ib_advise_mr(p->pd, 77, flush, &sge, 1));
}

#ifdef KEEL_HAVE_DMAH
/* DEV-4: keel has no DMA handles, so it refuses a region that requests one. */
static void dev_4_dma_handle(struct kunit *test)
{
	struct ib_dmah *dmah = kunit_kzalloc(test, sizeof(*dmah), GFP_KERNEL);
	struct pair *p = test->priv;
	const struct ib_device_ops *ops = &p->ibdev->ops;
	struct ib_mr *mr;

	KUNIT_ASSERT_NOT_NULL(test, dmah);
	p->pd = ib_alloc_pd(p->ibdev, 0);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, p->pd);
	mr = ops->reg_user_mr(p->pd, 0, PAGE_SIZE, 0, 0, dmah, NULL);
	KUNIT_EXPECT_EQ(test, -EOPNOTSUPP, PTR_ERR_OR_ZERO(mr));
	mr = ops->reg_user_mr_dmabuf(p->pd, 0, PAGE_SIZE, 0, -1, 0, dmah, NULL);
	KUNIT_EXPECT_EQ(test, -EOPNOTSUPP, PTR_ERR_OR_ZERO(mr));
	/* Without one, the descriptor is the first error. */
	mr = ops->reg_user_mr_dmabuf(p->pd, 0, PAGE_SIZE, 0, -1, 0, NULL, NULL);
	KUNIT_EXPECT_EQ(test, -EBADF, PTR_ERR_OR_ZERO(mr));
}
#endif

static struct kunit_case refuse_cases[] = {
	KUNIT_CASE(dev_4_advise),
#ifdef KEEL_HAVE_DMAH
	KUNIT_CASE(dev_4_dma_handle),
#endif
	{}
};

static struct kunit_suite refuse_suite = {
	.name = "keel_mr_refuse",
	.suite_init = pair_suite_init,
	.suite_exit = pair_suite_exit,
	.init = pair_init,
	.exit = pair_exit,
	.test_cases = refuse_cases,
};
kunit_test_suite(refuse_suite);
