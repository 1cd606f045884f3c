// SPDX-License-Identifier: GPL-2.0
/*
 * Completion queues: creation, refusals, and the parent domain that a CQ holds.
 */
#include "fake.h"

static const struct ibv_cq_init_attr_ex good = { .cqe = 5 };

static struct ibv_cq *new_ex(struct ibv_cq_init_attr_ex attr)
{
	return ibv_cq_ex_to_cq(MUST(ibv_create_cq_ex(fake.ctx, &attr)));
}

static void refused(int err, struct ibv_cq_init_attr_ex attr)
{
	unsigned int calls = fake.calls[FAKE_CREATE_CQ];
	int live = fake.live;

	CHECK_NULL(ibv_create_cq_ex(fake.ctx, &attr), err);
	CHECK_EQ(fake.calls[FAKE_CREATE_CQ], calls);
	CHECK_EQ(fake.live, live);
	CHECK_EQ(fake.dontfork, 0);
}

TEST(create, "DEV-2", "a CQ has at least the requested capacity, by either call")
{
	static const struct {
		int cqe;
		uint32_t real;
	} sizes[] = { { 1, 1 }, { 2, 2 }, { 3, 4 }, { 100, 128 },
		      { KEEL_MAX_CQE, KEEL_MAX_CQE } };
	struct ibv_cq_init_attr_ex attr = good;
	struct ibv_cq *cq;
	size_t i;

	fake_open();
	for (i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		cq = fake_new_cq(sizes[i].cqe);
		CHECK_EQ(cq->cqe, sizes[i].real);
		CHECK_EQ(fake_cq(cq)->ring.mask, sizes[i].real - 1);
		CHECK_EQ(fake_cq(cq)->flags, 0);
		CHECK_OK(ibv_destroy_cq(cq));
		attr.cqe = sizes[i].cqe;
		cq = new_ex(attr);
		CHECK_EQ(cq->cqe, sizes[i].real);
		CHECK_OK(ibv_destroy_cq(cq));
	}
	fake_close();
}

TEST(refused, "DEV-4", "invalid sizes, unknown flags and members, and a PD that is not a parent domain of this context are refused")
{
	struct ibv_context other = {};
	struct keel_parent_domain far = {
		.pd = { .kind = KEEL_UAPI_PD_PARENT, .ibv_pd.context = &other },
	};
	struct ibv_cq_init_attr_ex attr = good;
	struct ibv_pd *pd;

	fake_open();
	attr.cqe = 0;
	refused(EINVAL, attr);
	attr.cqe = KEEL_MAX_CQE + 1;
	refused(EINVAL, attr);
	attr.cqe = -1;
	refused(EINVAL, attr);
	CHECK_NULL(ibv_create_cq(fake.ctx, 0, NULL, NULL, 0), EINVAL);
	CHECK_NULL(ibv_create_cq(fake.ctx, -1, NULL, NULL, 0), EINVAL);
	CHECK_NULL(ibv_create_cq(fake.ctx, KEEL_MAX_CQE + 1, NULL, NULL, 0),
		   EINVAL);
	attr = good;
	attr.wc_flags = IBV_WC_EX_WITH_CVLAN;
	refused(EOPNOTSUPP, attr);
	attr = good;
	attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
	attr.flags = 1 << 2;
	refused(EOPNOTSUPP, attr);
	/* Without its bit in comp_mask, a member may be uninitialised. */
	attr.comp_mask = 0;
	attr.parent_domain = (void *)16;
	CHECK_OK(ibv_destroy_cq(new_ex(attr)));

	attr = good;
	attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
	refused(EINVAL, attr);
	pd = MUST(ibv_alloc_pd(fake.ctx));
	attr.parent_domain = pd;
	refused(EINVAL, attr);
	attr.parent_domain = &far.pd.ibv_pd;
	refused(EINVAL, attr);
	CHECK_OK(ibv_dealloc_pd(pd));
	fake_close();
}

TEST(fails, "DEV-4", "a creation that fails leaves nothing, and no CQ in the parent domain")
{
	struct ibv_cq_init_attr_ex attr = good;
	struct ibv_pd *pd, *parent;

	fake_open();
	pd = MUST(ibv_alloc_pd(fake.ctx));
	parent = fake_parent(pd, NULL);
	attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
	attr.parent_domain = parent;
	fake.fail[FAKE_CREATE_CQ] = EPERM;
	CHECK_NULL(ibv_create_cq_ex(fake.ctx, &attr), EPERM);
	fake.fail[FAKE_CREATE_CQ] = EAGAIN;
	CHECK_NULL(ibv_create_cq(fake.ctx, 5, NULL, NULL, 0), EAGAIN);
	fake_map_fails(ENOMEM);
	CHECK_NULL(ibv_create_cq_ex(fake.ctx, &attr), ENOMEM);
	fake.fail[FAKE_DONTFORK] = ENOMEM;
	CHECK_NULL(ibv_create_cq_ex(fake.ctx, &attr), ENOMEM);
	fake.fail[FAKE_CALLOC] = ENOMEM;
	CHECK_NULL(ibv_create_cq_ex(fake.ctx, &attr), ENOMEM);
	CHECK_EQ(fake.dontfork, 0);
	CHECK_OK(ibv_dealloc_pd(parent));
	CHECK_OK(ibv_dealloc_pd(pd));
	fake_close();
}

TEST(holds, "PDM-9", "a CQ keeps its parent domain busy until it is destroyed, and not if the destroy fails")
{
	struct ibv_cq_init_attr_ex attr = good;
	struct ibv_pd *pd, *parent;
	struct ibv_cq *a, *b;

	fake_open();
	pd = MUST(ibv_alloc_pd(fake.ctx));
	parent = fake_parent(pd, NULL);
	attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
	attr.parent_domain = parent;
	a = new_ex(attr);
	b = new_ex(attr);
	CHECK_RET(ibv_dealloc_pd(parent), EBUSY);
	CHECK_OK(ibv_destroy_cq(a));
	CHECK_RET(ibv_dealloc_pd(parent), EBUSY);
	fake.fail[FAKE_DESTROY_CQ] = EBUSY;
	CHECK_RET(ibv_destroy_cq(b), EBUSY);
	CHECK_RET(ibv_dealloc_pd(parent), EBUSY);
	CHECK_EQ(fake.calls[FAKE_DEALLOC_PD], 0);
	/* The CQ can be used still. */
	fake_wc(b, 1, 1);
	CHECK_EQ(fake_queued(&fake_cq(b)->ring), 1);
	CHECK_OK(ibv_destroy_cq(b));
	CHECK_OK(ibv_dealloc_pd(parent));
	CHECK_OK(ibv_dealloc_pd(pd));
	fake_close();
}

TEST(locks, "PDM-4", "a CQ takes no lock with a thread domain or the flag, and a lock with a parent domain alone")
{
	struct ibv_td_init_attr td_attr = {};
	struct ibv_cq_init_attr_ex attr;
	struct ibv_pd *pd, *parent;
	struct ibv_td *td;
	struct ibv_wc wc;
	struct ibv_cq *cq;
	int i;

	fake_open();
	pd = MUST(ibv_alloc_pd(fake.ctx));
	td = MUST(ibv_alloc_td(fake.ctx, &td_attr));
	for (i = 0; i < 4; i++) {
		parent = fake_parent(pd, i == 0 ? td : NULL);
		attr = good;
		attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD |
				 IBV_CQ_INIT_ATTR_MASK_FLAGS;
		attr.parent_domain = parent;
		attr.flags = i == 1 ? IBV_CREATE_CQ_ATTR_SINGLE_THREADED : 0;
		if (i == 3) {
			/* The flag does not count without its bit. */
			attr.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
			attr.comp_mask = 0;
		}
		cq = new_ex(attr);
		fake_locks = 0;
		CHECK_EQ(ibv_poll_cq(cq, 1, &wc), 0);
		CHECK_OK(ibv_resize_cq(cq, 9));
		CHECK_OK(ibv_req_notify_cq(cq, 0));
		CHECK_EQ(fake_locks, i < 2 ? 0 : 3);
		CHECK_OK(ibv_destroy_cq(cq));
		CHECK_OK(ibv_dealloc_pd(parent));
	}
	CHECK_OK(ibv_dealloc_td(td));
	CHECK_OK(ibv_dealloc_pd(pd));
	fake_close();
}
