// SPDX-License-Identifier: GPL-2.0
/*
 * Queue pairs: capacities, refusals, failures, and the locks of their queues.
 */
#include "fake.h"

static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_xrcd xrcd;
static struct ibv_qp_init_attr_ex good;

static void setup(void)
{
	fake_open();
	pd = MUST(ibv_alloc_pd(fake.ctx));
	cq = fake_new_cq(4);
	xrcd.context = fake.ctx;
	good = (struct ibv_qp_init_attr_ex){
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .pd = pd,
		.cap = { .max_send_wr = 5, .max_recv_wr = 9,
			 .max_send_sge = 1, .max_recv_sge = 3 },
		.comp_mask = IBV_QP_INIT_ATTR_PD, .xrcd = &xrcd,
	};
}

static void finish(void)
{
	CHECK_OK(ibv_destroy_cq(cq));
	CHECK_OK(ibv_dealloc_pd(pd));
	fake_close();
}

static void check_caps(uint32_t sges, uint32_t inline_data, uint32_t want_sges,
		       uint32_t want_inline)
{
	struct ibv_qp_init_attr_ex attr = good;
	struct fake_qp *fqp;
	struct ibv_qp *qp;
	uint32_t room;

	attr.cap.max_send_sge = sges;
	attr.cap.max_inline_data = inline_data;
	qp = MUST(ibv_create_qp_ex(fake.ctx, &attr));
	fqp = fake_qp(qp);
	CHECK_EQ(attr.cap.max_send_wr, 8);
	CHECK_EQ(attr.cap.max_recv_wr, 16);
	CHECK_EQ(attr.cap.max_send_sge, want_sges);
	CHECK_EQ(attr.cap.max_inline_data, want_inline);
	CHECK_EQ(attr.cap.max_recv_sge, 3);
	CHECK_EQ(fqp->sq.mask, 7);
	CHECK_EQ(fqp->rq.mask, 15);
	CHECK_EQ(fqp->rq.stride, KEEL_RQ_STRIDE(3));
	/* All that was promised is inside of the WQE. */
	room = fqp->sq.stride - sizeof(struct keel_uapi_send_wqe);
	CHECK(room >= want_sges * sizeof(struct keel_uapi_sge));
	CHECK(room >= want_inline);
	CHECK_OK(ibv_destroy_qp(qp));
}

TEST(capacities, "DEV-2", "the application gets the whole capacity of its WQEs, within the limits")
{
	setup();
	check_caps(0, 0, 4, 64);
	check_caps(1, 0, 4, 64);
	check_caps(4, 64, 4, 64);
	check_caps(5, 0, 8, 128);
	check_caps(1, 65, 8, 128);
	check_caps(KEEL_MAX_SGE, 0, KEEL_MAX_SGE, 512);
	check_caps(0, KEEL_MAX_INLINE, KEEL_MAX_SGE, KEEL_MAX_INLINE);
	check_caps(KEEL_MAX_SGE, KEEL_MAX_INLINE, KEEL_MAX_SGE,
		   KEEL_MAX_INLINE);
	finish();
}

TEST(minimum, "DEV-2", "a QP that requests nothing gets a queue of one WQE with one SGE, and the largest queues exist")
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC };
	struct ibv_qp *qp;

	setup();
	attr.send_cq = cq;
	attr.recv_cq = cq;
	fake.fail[FAKE_CREATE_QP] = EPERM;
	CHECK_NULL(ibv_create_qp(pd, &attr), EPERM);
	CHECK_EQ(attr.cap.max_send_wr | attr.cap.max_recv_wr, 0);
	qp = MUST(ibv_create_qp(pd, &attr));
	CHECK_EQ(attr.cap.max_send_wr, 1);
	CHECK_EQ(attr.cap.max_recv_wr, 1);
	CHECK_EQ(attr.cap.max_send_sge, 4);
	CHECK_EQ(attr.cap.max_recv_sge, 1);
	CHECK_OK(ibv_destroy_qp(qp));
	attr.cap.max_send_wr = KEEL_MAX_WR;
	attr.cap.max_recv_wr = KEEL_MAX_WR;
	attr.cap.max_recv_sge = KEEL_MAX_SGE;
	qp = MUST(ibv_create_qp(pd, &attr));
	CHECK_EQ(fake_qp(qp)->sq.mask, KEEL_MAX_WR - 1);
	CHECK_EQ(fake_qp(qp)->rq.mask, KEEL_MAX_WR - 1);
	CHECK_OK(ibv_destroy_qp(qp));
	finish();
}

static void refused(int err, struct ibv_qp_init_attr_ex attr)
{
	struct ibv_qp_init_attr_ex before = attr;

	/* ibv_create_qp_ex() itself uses the context of the PD. */
	CHECK_NULL(keel_create_qp_ex(fake.ctx, &attr), err);
	CHECK_EQ(fake.calls[FAKE_CREATE_QP], 0);
	CHECK_MEM(&attr.cap, &before.cap, sizeof(attr.cap));
}

/* Refused with this value of this member. */
#define REFUSED(err, member, value)					\
	do {								\
		struct ibv_qp_init_attr_ex attr_ = good;		\
									\
		attr_.member = value;					\
		refused(err, attr_);					\
	} while (0)

TEST(limits, "DEV-4", "capacities beyond the limits, other types and unknown members are refused")
{
	setup();
	REFUSED(EINVAL, cap.max_send_wr, KEEL_MAX_WR + 1);
	REFUSED(EINVAL, cap.max_recv_wr, KEEL_MAX_WR + 1);
	REFUSED(EINVAL, cap.max_send_sge, KEEL_MAX_SGE + 1);
	REFUSED(EINVAL, cap.max_recv_sge, KEEL_MAX_SGE + 1);
	REFUSED(EINVAL, cap.max_inline_data, KEEL_MAX_INLINE + 1);
	REFUSED(EOPNOTSUPP, qp_type, IBV_QPT_RAW_PACKET);
	REFUSED(EOPNOTSUPP, qp_type, IBV_QPT_DRIVER);
	REFUSED(EOPNOTSUPP, qp_type, 0);
	REFUSED(EOPNOTSUPP, qp_type, 1);
	REFUSED(EOPNOTSUPP, qp_type, 5);
	REFUSED(EOPNOTSUPP, qp_type, -1);
	REFUSED(EOPNOTSUPP, comp_mask, good.comp_mask |
		IBV_QP_INIT_ATTR_MAX_TSO_HEADER);
	good.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
	REFUSED(EOPNOTSUPP, create_flags, IBV_QP_CREATE_SCATTER_FCS);
	good.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	REFUSED(EOPNOTSUPP, send_ops_flags, IBV_QP_EX_WITH_TSO);
	REFUSED(EOPNOTSUPP, send_ops_flags,
		IBV_QP_EX_WITH_SEND | 1ULL << 40);
	good.qp_type = IBV_QPT_UD;
	REFUSED(EOPNOTSUPP, send_ops_flags, IBV_QP_EX_WITH_RDMA_READ);
	good.qp_type = IBV_QPT_UC;
	REFUSED(EOPNOTSUPP, send_ops_flags,
		IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_FLUSH);
	finish();
}

TEST(objects, "DEV-4", "missing objects, and those of another context, are refused, if the type uses them")
{
	struct ibv_context other = {};
	struct ibv_pd far_pd = { .context = &other };
	struct ibv_cq far_cq = { .context = &other };
	struct ibv_srq far_srq = { .context = &other };
	struct ibv_xrcd far_xrcd = { .context = &other };
	struct ibv_qp_init_attr_ex attr;
	struct ibv_qp *qp;

	setup();
	REFUSED(EINVAL, comp_mask, 0);
	REFUSED(EINVAL, pd, NULL);
	REFUSED(EINVAL, pd, &far_pd);
	REFUSED(EINVAL, send_cq, NULL);
	REFUSED(EINVAL, send_cq, &far_cq);
	REFUSED(EINVAL, recv_cq, NULL);
	REFUSED(EINVAL, recv_cq, &far_cq);
	REFUSED(EINVAL, srq, &far_srq);
	good.qp_type = IBV_QPT_XRC_RECV;
	good.comp_mask = IBV_QP_INIT_ATTR_XRCD;
	REFUSED(EINVAL, comp_mask, IBV_QP_INIT_ATTR_PD);
	REFUSED(EINVAL, xrcd, NULL);
	REFUSED(EINVAL, xrcd, &far_xrcd);
	/* It has no queues, whatever it requests. */
	attr = good;
	attr.pd = NULL;
	attr.send_cq = NULL;
	attr.recv_cq = &far_cq;
	attr.cap.max_send_wr = KEEL_MAX_WR + 1;
	qp = MUST(ibv_create_qp_ex(fake.ctx, &attr));
	CHECK_EQ(attr.cap.max_send_wr | attr.cap.max_recv_wr, 0);
	CHECK_EQ(attr.cap.max_send_sge | attr.cap.max_recv_sge, 0);
	CHECK_EQ(attr.cap.max_inline_data, 0);
	CHECK_EQ(fake.dontfork, to_kcq(cq)->ring.size);
	fake_to(qp, IBV_QPS_RTS);
	fake_to(qp, IBV_QPS_RESET);
	CHECK_OK(ibv_destroy_qp(qp));
	/* An XRC QP that sends needs no CQ for receive WQEs. */
	attr = good;
	attr.qp_type = IBV_QPT_XRC_SEND;
	attr.comp_mask = IBV_QP_INIT_ATTR_PD;
	attr.recv_cq = &far_cq;
	attr.srq = &far_srq;
	qp = MUST(keel_create_qp_ex(fake.ctx, &attr));
	CHECK_EQ(attr.cap.max_send_wr, 8);
	CHECK_EQ(attr.cap.max_recv_wr, 0);
	CHECK(!qp->srq);
	CHECK_OK(ibv_destroy_qp(qp));
	finish();
}

TEST(posts_nothing, "DEV-4", "a QP without a send queue posts nothing, even in a state that sends")
{
	struct ibv_send_wr send = { .opcode = IBV_WR_SEND }, *bad_send = NULL;
	struct ibv_recv_wr recv = {}, *bad_recv = NULL;
	struct ibv_qp *qp;

	setup();
	good.qp_type = IBV_QPT_XRC_RECV;
	good.comp_mask = IBV_QP_INIT_ATTR_XRCD;
	qp = MUST(ibv_create_qp_ex(fake.ctx, &good));
	fake_to(qp, IBV_QPS_RTS);
	CHECK_RET(ibv_post_send(qp, &send, &bad_send), EINVAL);
	CHECK(bad_send == &send);
	CHECK_RET(ibv_post_recv(qp, &recv, &bad_recv), EINVAL);
	CHECK(bad_recv == &recv);
	CHECK_EQ(fake.calls[FAKE_QP_DOORBELL], 0);
	CHECK_OK(ibv_destroy_qp(qp));
	finish();
}

TEST(fails, "DEV-4", "a creation that fails at any allocation leaves nothing, and does not change the attributes")
{
	static const enum fake_call calls[] = {
		FAKE_CALLOC, FAKE_MMAP, FAKE_DONTFORK, FAKE_CREATE_QP
	};
	struct ibv_qp_cap cap;
	long dontfork;
	size_t i, nth;

	setup();
	cap = good.cap;
	dontfork = fake.dontfork;
	for (i = 0; i < 4; i++) {
		for (nth = 0; nth < (calls[i] == FAKE_MMAP ||
				     calls[i] == FAKE_DONTFORK ? 2 : 1); nth++) {
			fake.fail[calls[i]] = ENOMEM;
			fake.pass[calls[i]] = nth;
			CHECK_NULL(ibv_create_qp_ex(fake.ctx, &good), ENOMEM);
			CHECK_EQ(fake.fail[calls[i]], 0);
			CHECK_MEM(&good.cap, &cap, sizeof(cap));
			CHECK_EQ(fake.dontfork, dontfork);
		}
	}
	finish();
}

TEST(locks, "PDM-4", "both queues take no lock with a thread domain, and one lock a call without it")
{
	struct ibv_td_init_attr td_attr = {};
	struct ibv_sge sge = {};
	struct ibv_send_wr send = { .opcode = IBV_WR_SEND, .sg_list = &sge };
	struct ibv_recv_wr recv = { .sg_list = &sge }, *bad_recv;
	struct ibv_send_wr *bad_send;
	struct ibv_pd *parent;
	struct ibv_td *td;
	struct ibv_qp *qp;
	int i;

	for (i = 0; i < 2; i++) {
		setup();
		td = i ? MUST(ibv_alloc_td(fake.ctx, &td_attr)) : NULL;
		parent = fake_parent(pd, td);
		good.pd = parent;
		good.send_ops_flags = IBV_QP_EX_WITH_SEND;
		good.comp_mask = IBV_QP_INIT_ATTR_PD |
				 IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		qp = MUST(ibv_create_qp_ex(fake.ctx, &good));
		fake_to(qp, IBV_QPS_RTS);
		fake_locks = 0;
		CHECK_OK(ibv_post_send(qp, &send, &bad_send));
		CHECK_OK(ibv_post_recv(qp, &recv, &bad_recv));
		ibv_wr_start(ibv_qp_to_qp_ex(qp));
		ibv_wr_send(ibv_qp_to_qp_ex(qp));
		CHECK_OK(ibv_wr_complete(ibv_qp_to_qp_ex(qp)));
		CHECK_EQ(fake_locks, i ? 0 : 3);
		CHECK_EQ(fake_posted(&fake_qp(qp)->sq), 2);
		fake_to(qp, IBV_QPS_RESET);
		/* The CQ has a lock of its own. */
		CHECK_EQ(fake_locks, i ? 1 : 6);
		CHECK_OK(ibv_destroy_qp(qp));
		CHECK_OK(ibv_dealloc_pd(parent));
		if (td)
			CHECK_OK(ibv_dealloc_td(td));
		finish();
	}
}

TEST(modify, "DEV-2", "a modify passes all attributes and the mask, and the state changes if it succeeds")
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .pkey_index = 1, .port_num = 2,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE, .dest_qp_num = 3,
	};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
		   IBV_QP_ACCESS_FLAGS;
	struct ibv_qp *first, *qp;

	setup();
	first = MUST(ibv_create_qp_ex(fake.ctx, &good));
	qp = MUST(ibv_create_qp_ex(fake.ctx, &good));
	fake.fail[FAKE_MODIFY_QP] = EINVAL;
	CHECK_RET(ibv_modify_qp(qp, &attr, mask), EINVAL);
	CHECK_EQ(qp->state, IBV_QPS_RESET);
	CHECK_OK(ibv_modify_qp(qp, &attr, mask));
	CHECK_EQ(qp->state, IBV_QPS_INIT);
	CHECK_EQ(fake_qp(qp)->mask, mask);
	CHECK_EQ(fake_qp(qp)->attr.qp_state, IBV_QPS_INIT);
	CHECK_EQ(fake_qp(qp)->attr.pkey_index, 1);
	CHECK_EQ(fake_qp(qp)->attr.port_num, 2);
	CHECK_EQ(fake_qp(qp)->attr.qp_access_flags, IBV_ACCESS_REMOTE_WRITE);
	CHECK_EQ(fake_qp(qp)->attr.dest_qp_num, 3);
	/* The other QP got no request. */
	CHECK_EQ(fake_qp(first)->mask, 0);
	CHECK_OK(ibv_destroy_qp(qp));
	CHECK_OK(ibv_destroy_qp(first));
	finish();
}

TEST(query, "DEV-2", "a query returns the capacities that the kernel has")
{
	struct ibv_qp_init_attr init_attr;
	struct ibv_qp_attr attr;
	struct ibv_qp *qp;

	setup();
	qp = MUST(ibv_create_qp_ex(fake.ctx, &good));
	CHECK_OK(ibv_query_qp(qp, &attr, IBV_QP_CAP, &init_attr));
	CHECK_EQ(init_attr.cap.max_send_wr, 8);
	CHECK_EQ(attr.cap.max_recv_wr, 16);
	CHECK_EQ(fake_qp(qp)->mask, IBV_QP_CAP);
	fake.fail[FAKE_QUERY_QP] = EIO;
	CHECK_RET(ibv_query_qp(qp, &attr, IBV_QP_CAP, &init_attr), EIO);
	CHECK_OK(ibv_destroy_qp(qp));
	finish();
}
