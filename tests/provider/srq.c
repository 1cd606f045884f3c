// SPDX-License-Identifier: GPL-2.0
/*
 * SRQs: creation, numbers, resize while receive WQEs lie in them, limits.
 */
#include "fake.h"

static struct ibv_pd *pd;
static struct ibv_srq *srq;
static struct fake_rq *rq;
static struct ibv_sge sge = { 0x1000, 16, 0x22 };

static void setup(uint32_t wrs)
{
	struct ibv_srq_init_attr attr = {
		.attr = { .max_wr = wrs, .max_sge = 1 },
	};

	fake_open();
	pd = MUST(ibv_alloc_pd(fake.ctx));
	srq = MUST(ibv_create_srq(pd, &attr));
	rq = fake_srq(srq);
}

static void finish(void)
{
	CHECK_OK(ibv_destroy_srq(srq));
	CHECK_OK(ibv_dealloc_pd(pd));
	fake_close();
}

static int post(uint64_t first, int n)
{
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 };
	struct ibv_recv_wr *bad;
	int ret = 0, i;

	for (i = 0; i < n && !ret; i++) {
		wr.wr_id = first + i;
		ret = ibv_post_srq_recv(srq, &wr, &bad);
	}
	return ret;
}

static int resize(uint32_t wrs)
{
	struct ibv_srq_attr attr = { .max_wr = wrs };

	return ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR);
}

static void take(uint64_t first, uint32_t n)
{
	struct keel_uapi_recv_wqe *wqe;
	uint32_t i;

	for (i = 0; i < n; i++) {
		wqe = fake_take_recv(&rq->ring, first + i);
		CHECK_EQ(wqe->num_sge, 1);
		CHECK_MEM(fake_data(wqe), &sge, sizeof(sge));
	}
}

TEST(create, "DEV-2", "an SRQ has at least the requested capacity, which the application learns on success only")
{
	struct ibv_srq_init_attr attr = {
		.srq_context = &sge, .attr = { .max_wr = 5, .max_sge = 0 },
	};
	uint32_t num;

	fake_open();
	pd = MUST(ibv_alloc_pd(fake.ctx));
	fake.fail[FAKE_CREATE_SRQ] = EPERM;
	CHECK_NULL(ibv_create_srq(pd, &attr), EPERM);
	CHECK_EQ(attr.attr.max_wr, 5);
	CHECK_EQ(attr.attr.max_sge, 0);
	fake_map_fails(ENOMEM);
	CHECK_NULL(ibv_create_srq(pd, &attr), ENOMEM);
	CHECK_EQ(attr.attr.max_wr, 5);
	fake.fail[FAKE_CALLOC] = ENOMEM;
	CHECK_NULL(ibv_create_srq(pd, &attr), ENOMEM);
	srq = MUST(ibv_create_srq(pd, &attr));
	CHECK_EQ(attr.attr.max_wr, 8);
	CHECK_EQ(attr.attr.max_sge, 1);
	CHECK(srq->srq_context == &sge);
	CHECK(srq->pd == pd);
	rq = fake_srq(srq);
	CHECK_EQ(rq->ring.mask, 7);
	CHECK_EQ(rq->ring.stride, KEEL_RQ_STRIDE(1));
	/* Only SRQs of XRC domains have a number. */
	CHECK_RET(ibv_get_srq_num(srq, &num), EOPNOTSUPP);
	CHECK_OK(post(0, 8));
	CHECK_RET(post(8, 1), ENOMEM);
	fake.fail[FAKE_DESTROY_SRQ] = EBUSY;
	CHECK_RET(ibv_destroy_srq(srq), EBUSY);
	take(0, 8);
	CHECK_OK(post(0, 1));
	finish();
}

TEST(refused, "DEV-4", "invalid capacities and types, and objects of another context, are refused")
{
	struct ibv_context other = {};
	struct ibv_pd far = { .context = &other };
	struct ibv_xrcd xrcd = {}, far_xrcd = { .context = &other };
	struct ibv_cq cq = {}, far_cq = { .context = &other };
	struct ibv_srq_init_attr_ex good = {
		.attr = { .max_wr = KEEL_MAX_WR, .max_sge = KEEL_MAX_SGE },
		.srq_type = IBV_SRQT_XRC, .xrcd = &xrcd, .cq = &cq,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
	};
	struct ibv_srq_init_attr_ex attr;
	uint32_t num;

#define REFUSED(err, member, value)					\
	do {								\
		attr = good;						\
		attr.member = value;					\
		CHECK_NULL(ibv_create_srq_ex(fake.ctx, &attr), err);	\
	} while (0)
	fake_open();
	pd = MUST(ibv_alloc_pd(fake.ctx));
	xrcd.context = fake.ctx;
	cq.context = fake.ctx;
	good.pd = pd;
	REFUSED(EINVAL, attr.max_wr, 0);
	REFUSED(EINVAL, attr.max_wr, KEEL_MAX_WR + 1);
	REFUSED(EINVAL, attr.max_sge, KEEL_MAX_SGE + 1);
	REFUSED(EINVAL, pd, NULL);
	REFUSED(EINVAL, pd, &far);
	REFUSED(EINVAL, xrcd, NULL);
	REFUSED(EINVAL, xrcd, &far_xrcd);
	REFUSED(EINVAL, cq, NULL);
	REFUSED(EINVAL, cq, &far_cq);
	REFUSED(EINVAL, comp_mask, good.comp_mask & ~IBV_SRQ_INIT_ATTR_PD);
	REFUSED(EINVAL, comp_mask, good.comp_mask & ~IBV_SRQ_INIT_ATTR_XRCD);
	REFUSED(EINVAL, comp_mask, good.comp_mask & ~IBV_SRQ_INIT_ATTR_CQ);
	REFUSED(EOPNOTSUPP, comp_mask, good.comp_mask | IBV_SRQ_INIT_ATTR_TM);
	REFUSED(EOPNOTSUPP, srq_type, IBV_SRQT_TM);
	CHECK_EQ(fake.calls[FAKE_CREATE_SRQ], 0);
	/* The same without an error. */
	srq = MUST(ibv_create_srq_ex(fake.ctx, &good));
	CHECK_OK(ibv_get_srq_num(srq, &num));
	CHECK_EQ(num, FAKE_SRQN + srq->handle);
	CHECK(srq->pd == pd);
	CHECK_EQ(fake_srq(srq)->ring.mask, KEEL_MAX_WR - 1);
	/* Without a type, it is an ordinary SRQ, which needs only a PD. */
	CHECK_OK(ibv_destroy_srq(srq));
	good.comp_mask = IBV_SRQ_INIT_ATTR_PD;
	srq = MUST(ibv_create_srq_ex(fake.ctx, &good));
	CHECK_RET(ibv_get_srq_num(srq, &num), EOPNOTSUPP);
	finish();
}

TEST(resize, "DEV-4", "a resize keeps the receive WQEs in the SRQ, under their indexes, and changes how many more fit")
{
	static const uint32_t starts[] = { 0, 5, 0xfffffffa, 0xffffffff };
	size_t i;

	setup(8);
	for (i = 0; i < 4; i++) {
		fake_at(&to_ksrq(srq)->rq.ring, &rq->ring, starts[i]);
		CHECK_OK(post(0, 6));
		take(0, 2);
		CHECK_OK(resize(13));
		CHECK_EQ(rq->ring.mask, 15);
		CHECK_EQ(rq->max_wr, 16);
		CHECK_EQ(fake_posted(&rq->ring), 4);
		CHECK(to_ksrq(srq)->rq.ring.shared == rq->ring.head);
		CHECK_OK(post(6, 12));
		CHECK_RET(post(18, 1), ENOMEM);
		take(2, 12);
		CHECK_OK(resize(4));
		CHECK_EQ(rq->ring.mask, 3);
		CHECK_RET(post(18, 1), ENOMEM);
		take(14, 1);
		CHECK_OK(post(18, 1));
		take(15, 4);
		CHECK_EQ(fake_posted(&rq->ring), 0);
		CHECK_OK(resize(8));
	}
	finish();
}

/* The kernel takes a receive WQE from the new ring before the call returns. */
static void advance(enum fake_call call, uint32_t handle)
{
	if (call == FAKE_MODIFY_SRQ)
		fake_take_recv(&rq->ring, 0);
}

TEST(during, "DEV-4", "the kernel may take receive WQEs from the new ring before the resize returns, and a requested doorbell stays requested")
{
	setup(8);
	CHECK_OK(post(0, 8));
	fake.hook = advance;
	CHECK_OK(resize(8));
	fake.hook = NULL;
	CHECK_EQ(fake_posted(&rq->ring), 7);
	CHECK_OK(post(8, 1));
	CHECK_RET(post(9, 1), ENOMEM);
	take(1, 8);
	rq->wanted = true;
	rq->ring.head->flags = KEEL_RING_F_DOORBELL;
	CHECK_OK(resize(16));
	CHECK_EQ(rq->doorbells, 0);
	CHECK_OK(post(9, 1));
	CHECK_EQ(rq->doorbells, 1);
	finish();
}

TEST(resize_fails, "DEV-4", "a resize that fails changes nothing, and frees the new ring")
{
	struct keel_uapi_ring *head;
	struct ibv_srq_attr attr;
	long dontfork;

	setup(8);
	head = rq->ring.head;
	dontfork = fake.dontfork;
	CHECK_OK(post(0, 6));
	/* These receive WQEs do not fit. */
	CHECK_RET(resize(4), EINVAL);
	CHECK_RET(resize(0), EINVAL);
	CHECK_RET(resize(KEEL_MAX_WR + 1), EINVAL);
	fake_map_fails(ENOMEM);
	CHECK_RET(resize(16), ENOMEM);
	fake.fail[FAKE_MODIFY_SRQ] = EAGAIN;
	CHECK_RET(resize(16), EAGAIN);
	CHECK(rq->ring.head == head);
	CHECK(to_ksrq(srq)->rq.ring.shared == head);
	CHECK_EQ(fake.dontfork, dontfork);
	CHECK_OK(pthread_spin_trylock(&to_ksrq(srq)->rq.lock.spin));
	pthread_spin_unlock(&to_ksrq(srq)->rq.lock.spin);
	CHECK_OK(post(6, 2));
	CHECK_RET(post(8, 1), ENOMEM);
	take(0, 8);
	CHECK_OK(ibv_query_srq(srq, &attr));
	CHECK_EQ(attr.max_wr, 8);
	finish();
}

TEST(limit, "DEV-4", "the limit is set without a ring, and together with a resize")
{
	struct ibv_srq_attr attr = { .max_wr = 30, .srq_limit = 3 };
	struct keel_uapi_ring *head;

	setup(8);
	head = rq->ring.head;
	CHECK_OK(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT));
	CHECK_EQ(rq->limit, 3);
	CHECK(rq->ring.head == head);
	attr.srq_limit = 20;
	CHECK_OK(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT | IBV_SRQ_MAX_WR));
	CHECK_EQ(rq->limit, 20);
	/* The application's attributes are not changed. */
	CHECK_EQ(attr.max_wr, 30);
	CHECK_OK(ibv_query_srq(srq, &attr));
	CHECK_EQ(attr.max_wr, 32);
	CHECK_EQ(attr.max_sge, 1);
	CHECK_EQ(attr.srq_limit, 20);
	finish();
}

TEST(locks, "PDM-4", "with a thread domain, the SRQ takes no lock, even to resize it")
{
	struct ibv_td_init_attr td_attr = {};
	struct ibv_srq_init_attr attr = {
		.attr = { .max_wr = 8, .max_sge = 1 },
	};
	struct ibv_pd *plain;
	struct ibv_td *td;
	int kind;

	for (kind = 0; kind < 2; kind++) {
		fake_open();
		plain = MUST(ibv_alloc_pd(fake.ctx));
		td = kind ? MUST(ibv_alloc_td(fake.ctx, &td_attr)) : NULL;
		pd = fake_parent(plain, td);
		srq = MUST(ibv_create_srq(pd, &attr));
		rq = fake_srq(srq);
		fake_locks = 0;
		CHECK_OK(post(0, 3));
		CHECK_OK(resize(16));
		CHECK_EQ(fake_locks, kind ? 0 : 4);
		take(0, 3);
		CHECK_OK(ibv_destroy_srq(srq));
		CHECK_OK(ibv_dealloc_pd(pd));
		if (td)
			CHECK_OK(ibv_dealloc_td(td));
		CHECK_OK(ibv_dealloc_pd(plain));
		fake_close();
	}
}
