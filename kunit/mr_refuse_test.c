// SPDX-License-Identifier: GPL-2.0
/*
 * Requests that keel itself refuses: ib_core checks them for user processes, or
 * offers no user process a way to make them.
 */
#include <linux/err.h>

#include "keel_mr.h"
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

static void refuses_fast_reg(struct pair *p, struct ib_mr *mr)
{
	KUNIT_EXPECT_EQ(p->test, IB_WC_MW_BIND_ERR,
			pair_register(p, mr, mr->rkey, PAIR_RIGHTS));
	KUNIT_EXPECT_EQ(p->test, KEEL_WHY_WINDOW, p->clerk.wc[0].vendor_err);
}

/* DEV-4: a work request cannot register a region without a page list. */
static void dev_4_fast_reg_listless(struct kunit *test)
{
	struct pair *p = test->priv;
	struct ib_mr *mr;

	pair_make(p, IB_QPT_RC);
	pair_connect(p);
	mr = p->ibdev->ops.get_dma_mr(p->pd, PAIR_RIGHTS);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, mr);
	mr->device = p->ibdev;
	mr->pd = p->pd;
	refuses_fast_reg(p, mr);
	KUNIT_EXPECT_EQ(test, 0, p->ibdev->ops.dereg_mr(mr, NULL));
}

/* DEV-4: nor one of another device. */
static void dev_4_fast_reg_foreign(struct kunit *test)
{
	struct pair *p = test->priv;
	struct keel_keys *keys;

	pair_make(p, IB_QPT_RC);
	pair_connect(p);
	p->extra = ib_alloc_mr(p->pd, IB_MR_TYPE_MEM_REG, 1);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, p->extra);
	keys = to_kmr(p->extra)->keys;
	to_kmr(p->extra)->keys = NULL;
	refuses_fast_reg(p, p->extra);
	to_kmr(p->extra)->keys = keys;
}

/* Create a queue pair. Returns 0 or the error. */
static int try_qp(struct pair *p, const struct ib_qp_cap *cap)
{
	struct ib_qp_init_attr init = {
		.qp_type = IB_QPT_RC, .send_cq = p->a.cq, .recv_cq = p->a.cq, .cap = *cap,
	};
	struct ib_qp *qp = ib_create_qp(p->pd, &init);

	if (IS_ERR(qp))
		return PTR_ERR(qp);
	ib_destroy_qp(qp);
	return 0;
}

/* DEV-2, DEV-4: each limit of a queue pair is that of the device. */
static void dev_4_qp_caps(struct kunit *test)
{
	const struct ib_qp_cap most = {
		.max_send_wr = KEEL_MAX_WR, .max_recv_wr = KEEL_MAX_WR,
		.max_send_sge = KEEL_MAX_SGE, .max_recv_sge = KEEL_MAX_SGE,
	};
	struct pair *p = test->priv;
	struct ib_qp_cap cap[] = { most, most, most, most, most };
	int i;

	pair_make(p, IB_QPT_RC);
	KUNIT_EXPECT_EQ(test, 0, try_qp(p, &most));
	cap[0].max_send_wr++;
	cap[1].max_recv_wr++;
	cap[2].max_send_sge++;
	cap[3].max_recv_sge++;
	cap[4].max_inline_data = KEEL_MAX_INLINE + 1;
	for (i = 0; i < ARRAY_SIZE(cap); i++)
		KUNIT_EXPECT_EQ_MSG(test, -EINVAL, try_qp(p, &cap[i]), "%d", i);
}

static struct kunit_case refuse_cases[] = {
	KUNIT_CASE(dev_4_advise),
	KUNIT_CASE(dev_4_fast_reg_listless),
	KUNIT_CASE(dev_4_fast_reg_foreign),
	KUNIT_CASE(dev_4_qp_caps),
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
