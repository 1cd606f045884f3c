// SPDX-License-Identifier: GPL-2.0
/*
 * Datagrams to a multicast group reach the QPs that are attached to it. Each QP that
 * cannot take one counts as a drop, and so does a destination without any QP.
 */
#include <linux/err.h>
#include <rdma/ib_cache.h>

#include "pair.h"

#define LEN	100
#define GRH	sizeof(struct ib_grh)

/* An address of a group that no other user of the device has. */
static union ib_gid group = {
	.raw = { 0xff, 0x0e, [14] = 0x4b, [15] = 0x75 },
};

/**
 * struct group_test - the group, and what the test does with it
 * @ah: address of the group
 * @nobody: address that is neither of the group nor of the device
 * @wr_id: number of the last datagram
 */
static struct group_test {
	struct ib_ah *ah;
	struct ib_ah *nobody;
	u64 wr_id;
} g;

static struct ib_ah *address(struct pair *p, const union ib_gid *gid)
{
	struct rdma_ah_attr attr = p->a.attr.ah_attr;
	struct ib_ah *ah;

	rdma_ah_set_dgid_raw(&attr, (void *)gid->raw);
	ah = rdma_create_ah(p->pd, &attr, RDMA_CREATE_AH_SLEEPABLE);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(p->test, ah);
	return ah;
}

static void start(struct kunit *test)
{
	const union ib_gid other = { .raw = { 0xfe, 0x80, [15] = 0x75 } };
	struct pair *p = test->priv;

	pair_make(p, IB_QPT_UD);
	pair_connect(p);
	g.ah = address(p, &group);
	g.nobody = address(p, &other);
}

static void address_free(struct ib_ah **ah)
{
	if (*ah)
		rdma_destroy_ah(*ah, RDMA_DESTROY_AH_SLEEPABLE);
	*ah = NULL;
}

static int mcast_init(struct kunit *test)
{
	g = (struct group_test){};
	return pair_init(test);
}

/* ib_core destroys no QP that is attached: a test that failed may have left some. */
static void mcast_exit(struct kunit *test)
{
	struct pair *p = test->priv;

	if (p && !IS_ERR_OR_NULL(p->a.qp))
		while (!ib_detach_mcast(p->a.qp, &group, 0))
			;
	if (p && !IS_ERR_OR_NULL(p->b.qp))
		while (!ib_detach_mcast(p->b.qp, &group, 0))
			;
	address_free(&g.ah);
	address_free(&g.nobody);
	pair_exit(test);
}

/*
 * The first end sends a datagram, which succeeds in any case. Check that so many are
 * dropped, and that each end gets so many completions of receive WQEs.
 */
static void send(struct pair *p, struct ib_ah *ah, u32 qpn, u64 dropped, int a, int b)
{
	struct ib_sge sge = end_sge(p, &p->a, 0, LEN);
	struct ib_ud_wr wr = {
		.wr = { .wr_id = ++g.wr_id, .opcode = IB_WR_SEND, .num_sge = 1,
			.send_flags = IB_SEND_SIGNALED, .sg_list = &sge },
		.ah = ah, .remote_qpn = qpn, .remote_qkey = PAIR_QKEY,
	};
	u64 before = pair_counter(p, KEEL_CTR_ud_drops);

	p->a.wcs = 0;
	p->b.wcs = 0;
	KUNIT_ASSERT_EQ(p->test, 0, ib_post_send(p->a.qp, &wr.wr, NULL));
	pair_settle(p, &p->a, 1);
	KUNIT_EXPECT_EQ(p->test, before + dropped, pair_counter(p, KEEL_CTR_ud_drops));
	KUNIT_EXPECT_EQ(p->test, a + 1, p->a.wcs);
	KUNIT_EXPECT_EQ(p->test, b, p->b.wcs);
	/* The CQE of the receive WQE comes first, if there is one. */
	KUNIT_EXPECT_EQ(p->test, g.wr_id, p->a.wc[a].wr_id);
	KUNIT_EXPECT_EQ(p->test, IB_WC_SUCCESS, p->a.wc[a].status);
	KUNIT_EXPECT_EQ(p->test, IB_QPS_RTS, end_state(p, &p->a));
}

static void to_group(struct pair *p, u64 dropped, int a, int b)
{
	send(p, g.ah, IB_MULTICAST_QPN, dropped, a, b);
}

/* The datagram in the buffer of @end is the one that the first end sent. */
static void arrived(struct pair *p, const struct end *end, u64 wr_id)
{
	KUNIT_EXPECT_EQ(p->test, wr_id, end->wc[0].wr_id);
	KUNIT_EXPECT_EQ(p->test, IB_WC_SUCCESS, end->wc[0].status);
	KUNIT_EXPECT_EQ(p->test, IB_WC_RECV, end->wc[0].opcode);
	KUNIT_EXPECT_EQ(p->test, GRH + LEN, end->wc[0].byte_len);
	KUNIT_EXPECT_EQ(p->test, p->a.qp->qp_num, end->wc[0].src_qp);
	KUNIT_EXPECT_EQ(p->test, 0, memcmp(end->buf + PAGE_SIZE + GRH, p->a.buf, LEN));
}

/* Not at the start of the buffer, from which the first end sends. */
static void recv(struct pair *p, struct end *end, u64 wr_id)
{
	memset(end->buf + PAGE_SIZE, 0, GRH + LEN);
	end_recv(p, end, wr_id, PAGE_SIZE, GRH + LEN);
}

static void attach(struct pair *p, struct end *end)
{
	KUNIT_ASSERT_EQ(p->test, 0, ib_attach_mcast(end->qp, &group, 0));
}

static void detach(struct pair *p, struct end *end)
{
	KUNIT_EXPECT_EQ(p->test, 0, ib_detach_mcast(end->qp, &group, 0));
}

/* Each member with a receive WQE gets the datagram, the sender included. */
static void mcast_members(struct kunit *test)
{
	struct pair *p = test->priv;

	start(test);
	attach(p, &p->a);
	attach(p, &p->b);
	recv(p, &p->a, 100);
	recv(p, &p->b, 101);
	to_group(p, 0, 1, 1);
	arrived(p, &p->a, 100);
	arrived(p, &p->b, 101);
	/* A member without a receive WQE keeps it from no other member. */
	recv(p, &p->b, 102);
	to_group(p, 1, 0, 1);
	arrived(p, &p->b, 102);
	recv(p, &p->a, 103);
	to_group(p, 1, 1, 0);
	arrived(p, &p->a, 103);
	to_group(p, 2, 0, 0);
	/* Only members get it. */
	detach(p, &p->a);
	recv(p, &p->a, 104);
	recv(p, &p->b, 105);
	to_group(p, 0, 0, 1);
	arrived(p, &p->b, 105);
	detach(p, &p->b);
}

/* A QP that was attached twice is a member, once, until it is detached twice. */
static void mcast_twice(struct kunit *test)
{
	struct pair *p = test->priv;

	start(test);
	attach(p, &p->b);
	attach(p, &p->b);
	recv(p, &p->b, 100);
	recv(p, &p->b, 101);
	to_group(p, 0, 0, 1);
	arrived(p, &p->b, 100);
	detach(p, &p->b);
	to_group(p, 0, 0, 1);
	arrived(p, &p->b, 101);
	detach(p, &p->b);
	KUNIT_EXPECT_EQ(test, -EINVAL, ib_detach_mcast(p->b.qp, &group, 0));
	KUNIT_EXPECT_EQ(test, -EINVAL, ib_detach_mcast(p->a.qp, &group, 0));
	recv(p, &p->b, 102);
	to_group(p, 1, 0, 0);
}

/* A datagram that reaches no QP at all is one drop. */
static void mcast_nobody(struct kunit *test)
{
	struct pair *p = test->priv;

	start(test);
	recv(p, &p->b, 100);
	/* The group does not exist. */
	to_group(p, 1, 0, 0);
	/* There is no such QP, and no such address. */
	send(p, p->ah, 0xfffff0, 1, 0, 0);
	send(p, g.nobody, p->b.qp->qp_num, 1, 0, 0);
	/* The group has existed. */
	attach(p, &p->b);
	detach(p, &p->b);
	to_group(p, 1, 0, 0);
	send(p, p->ah, p->b.qp->qp_num, 0, 0, 1);
	arrived(p, &p->b, 100);
}

static struct kunit_case mcast_cases[] = {
	KUNIT_CASE(mcast_members),
	KUNIT_CASE(mcast_twice),
	KUNIT_CASE(mcast_nobody),
	{}
};

static struct kunit_suite mcast_suite = {
	.name = "keel_mcast",
	.suite_init = pair_suite_init,
	.suite_exit = pair_suite_exit,
	.init = mcast_init,
	.exit = mcast_exit,
	.test_cases = mcast_cases,
};
kunit_test_suite(mcast_suite);
