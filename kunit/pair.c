// SPDX-License-Identifier: GPL-2.0
/*
 * Two connected QPs of a kernel consumer.
 */
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/scatterlist.h>
#include <rdma/ib_cache.h>

#include "pair.h"

/* A timeout, so that a test fails instead of hanging. */
#define PAIR_PATIENCE	(60 * HZ)

static struct ib_device *pair_dev;

static int pair_add(struct ib_device *ibdev)
{
	if (pair_dev || ibdev->ops.driver_id != KEEL_RDMA_DRIVER)
		return -EOPNOTSUPP;
	pair_dev = ibdev;
	return 0;
}

static void pair_remove(struct ib_device *ibdev, void *data)
{
	pair_dev = NULL;
}

static struct ib_client pair_client = {
	.name = "keel_kunit",
	.add = pair_add,
	.remove = pair_remove,
};

int pair_suite_init(struct kunit_suite *suite)
{
	return ib_register_client(&pair_client);
}

void pair_suite_exit(struct kunit_suite *suite)
{
	if (!suite->suite_init_err)
		ib_unregister_client(&pair_client);
}

static unsigned int pair_count(const struct pair *p, enum keel_kind kind)
{
	unsigned int n = 0;
	unsigned long id;
	void *obj;

	xa_for_each(&to_kdev(p->ibdev)->reg.objs[kind].xa, id, obj)
		n++;
	return n;
}

int pair_init(struct kunit *test)
{
	struct pair *p = kunit_kzalloc(test, sizeof(*p), GFP_KERNEL);
	int kind;

	if (!p || !pair_dev)
		return -ENODEV;
	p->test = test;
	p->ibdev = pair_dev;
	for (kind = 0; kind < KEEL_KINDS; kind++)
		p->before[kind] = pair_count(p, kind);
	test->priv = p;
	return 0;
}

static void end_event(struct ib_event *event, void *context)
{
	struct end *end = context;

	guard(spinlock)(&end->lock);
	if (end->nr_events < ARRAY_SIZE(end->events))
		end->events[end->nr_events] = event->event;
	end->nr_events++;
}

static struct ib_qp_init_attr end_init_attr(struct end *end,
					    enum ib_qp_type type)
{
	bool sends = type != IB_QPT_XRC_TGT, receives = sends && type != IB_QPT_XRC_INI;

	return (struct ib_qp_init_attr){
		.event_handler = end_event,
		.qp_context = end,
		.send_cq = sends ? end->cq : NULL,
		.recv_cq = receives ? end->cq : NULL,
		.cap = {
			.max_send_wr = sends ? PAIR_WRS : 0,
			.max_recv_wr = receives ? PAIR_WRS : 0,
			.max_send_sge = sends ? 2 : 0,
			.max_recv_sge = receives ? 2 : 0,
			.max_inline_data = sends ? PAIR_INLINE : 0,
		},
		.sq_sig_type = IB_SIGNAL_REQ_WR,
		.qp_type = type,
	};
}

/* Default attributes of a QP. */
static void end_attr(struct pair *p, struct end *end)
{
	struct ib_qp_attr *attr = &end->attr;
	union ib_gid gid;

	attr->port_num = KEEL_PORT;
	attr->qkey = PAIR_QKEY;
	attr->qp_access_flags = PAIR_RIGHTS;
	attr->path_mtu = IB_MTU_1024;
	attr->max_dest_rd_atomic = 4;
	attr->max_rd_atomic = 4;
	attr->min_rnr_timer = 1;
	attr->rnr_retry = 7;
	attr->timeout = 14;
	attr->retry_cnt = 7;
	KUNIT_ASSERT_EQ(p->test, 0, rdma_query_gid(p->ibdev, KEEL_PORT, 0, &gid));
	attr->ah_attr.type = RDMA_AH_ATTR_TYPE_ROCE;
	rdma_ah_set_port_num(&attr->ah_attr, KEEL_PORT);
	rdma_ah_set_grh(&attr->ah_attr, &gid, 0, 0, 64, 0);
}

struct ib_srq *pair_srq(struct pair *p, struct ib_xrcd *xrcd)
{
	struct ib_srq_init_attr init = {
		.attr = { .max_wr = PAIR_WRS, .max_sge = 2 },
		.srq_type = xrcd ? IB_SRQT_XRC : IB_SRQT_BASIC,
	};
	struct ib_srq *srq;

	if (xrcd) {
		init.ext.cq = p->b.cq;
		init.ext.xrc.xrcd = xrcd;
	}
	srq = ib_create_srq(p->pd, &init);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(p->test, srq);
	return srq;
}

void pair_srq_recv(struct pair *p, struct ib_srq *srq, const struct end *end, u64 wr_id)
{
	struct ib_sge sge = end_sge(p, end, 0, PAIR_BYTES);
	const struct ib_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 };

	KUNIT_EXPECT_EQ(p->test, 0, ib_post_srq_recv(srq, &wr, NULL));
}

/* An XRC_RECV QP, in another domain than its SRQs: that of the SRQ counts. */
static struct ib_qp *end_make_xrc(struct pair *p, struct ib_qp_init_attr *init)
{
	p->xrcd = ib_alloc_xrcd_user(p->ibdev, NULL, NULL);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(p->test, p->xrcd);
	p->srq = pair_srq(p, p->xrcd);
	init->xrcd = p->xrcd;
	return ib_create_qp(p->other_pd, init);
}

static void end_make(struct pair *p, struct end *end, enum ib_qp_type type,
		     u8 mark)
{
	const struct ib_cq_init_attr cq_attr = {
		.cqe = p->one_cq ? PAIR_MANY : 64,
	};
	struct ib_qp_init_attr init;
	int i;

	spin_lock_init(&end->lock);
	end->mark = mark;
	end->buf = kunit_kmalloc(p->test, PAIR_BYTES, GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(p->test, end->buf);
	for (i = 0; i < PAIR_BYTES; i++)
		end->buf[i] = mark + i % 251;
	end->cq = p->one_cq && end == &p->b ? p->a.cq :
		  ib_create_cq(p->ibdev, end == &p->a ? p->on_wc : NULL, NULL,
			       p, &cq_attr);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(p->test, end->cq);
	init = end_init_attr(end, type);
	if (p->wrs && end == &p->a) {
		init.cap.max_send_wr = p->wrs;
		init.cap.max_recv_wr = p->wrs;
	}
	if (p->b_wrs && end == &p->b)
		init.cap.max_send_wr = p->b_wrs;
	if (p->with_srq && end == &p->b) {
		p->srq = pair_srq(p, NULL);
		init.srq = p->srq;
	}
	end->qp = type == IB_QPT_XRC_TGT ? end_make_xrc(p, &init) :
					   ib_create_qp(p->pd, &init);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(p->test, end->qp);
	end->state = IB_QPS_RTS;
	end_attr(p, end);
}

struct ib_mr *pair_mr(struct pair *p, struct ib_pd *pd, void *buf, size_t len)
{
	struct ib_mr *mr = ib_alloc_mr(pd, IB_MR_TYPE_MEM_REG,
				       PAIR_BYTES / PAGE_SIZE);
	struct scatterlist sg;

	KUNIT_ASSERT_NOT_ERR_OR_NULL(p->test, mr);
	sg_init_one(&sg, buf, len);
	KUNIT_EXPECT_EQ(p->test, 1, ib_dma_map_sg(p->ibdev, &sg, 1,
						  DMA_BIDIRECTIONAL));
	KUNIT_EXPECT_EQ(p->test, 1, ib_map_mr_sg(mr, &sg, 1, NULL, PAGE_SIZE));
	return mr;
}

void pair_make(struct pair *p, enum ib_qp_type type)
{
	p->pd = ib_alloc_pd(p->ibdev, 0);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(p->test, p->pd);
	p->other_pd = ib_alloc_pd(p->ibdev, 0);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(p->test, p->other_pd);
	end_make(p, &p->a, type == IB_QPT_XRC_TGT ? IB_QPT_XRC_INI : type, 0);
	end_make(p, &p->b, type, 128);
	end_make(p, &p->clerk, IB_QPT_RC, 64);
	p->a.attr.dest_qp_num = p->b.qp->qp_num;
	p->b.attr.dest_qp_num = p->a.qp->qp_num;
	p->clerk.attr.dest_qp_num = p->clerk.qp->qp_num;
	p->a.mr = pair_mr(p, p->pd, p->a.buf, PAIR_BYTES);
	p->b.mr = pair_mr(p, p->pd, p->b.buf, PAIR_BYTES);
	p->closed = pair_mr(p, p->pd, p->b.buf, PAIR_BYTES);
	p->fresh = pair_mr(p, p->pd, p->a.buf, PAIR_BYTES);
	p->foreign = pair_mr(p, p->other_pd, p->b.buf, PAIR_BYTES);
	p->ah = rdma_create_ah(p->pd, &p->a.attr.ah_attr,
			       RDMA_CREATE_AH_SLEEPABLE);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(p->test, p->ah);
	p->foreign_ah = rdma_create_ah(p->other_pd, &p->a.attr.ah_attr,
				       RDMA_CREATE_AH_SLEEPABLE);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(p->test, p->foreign_ah);
}

/* The attributes of a transition, from the table of the IBTA specification. */
static int end_mask(const struct end *end, enum ib_qp_state state)
{
	bool ud = end->qp->qp_type == IB_QPT_UD;
	bool rc = end->qp->qp_type == IB_QPT_RC;
	bool ini = end->qp->qp_type == IB_QPT_XRC_INI;
	bool tgt = end->qp->qp_type == IB_QPT_XRC_TGT;

	switch (state) {
	case IB_QPS_INIT:
		return IB_QP_PKEY_INDEX | IB_QP_PORT |
		       (ud ? IB_QP_QKEY : IB_QP_ACCESS_FLAGS);
	case IB_QPS_RTR:
		return (ud ? 0 : IB_QP_AV | IB_QP_PATH_MTU | IB_QP_DEST_QPN |
				 IB_QP_RQ_PSN) |
		       (rc || tgt ? IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_MIN_RNR_TIMER : 0);
	case IB_QPS_RTS:
		return IB_QP_SQ_PSN |
		       (rc || ini || tgt ? IB_QP_TIMEOUT : 0) |
		       (rc || ini ? IB_QP_RETRY_CNT | IB_QP_RNR_RETRY |
				    IB_QP_MAX_QP_RD_ATOMIC : 0);
	default:
		return 0;
	}
}

static int end_step(struct end *end, enum ib_qp_state state)
{
	end->attr.qp_state = state;
	return ib_modify_qp(end->qp, &end->attr,
			    IB_QP_STATE | end_mask(end, state));
}

int end_try_connect(struct end *end)
{
	enum ib_qp_state state, last = min(end->state, IB_QPS_RTS);
	int ret = 0;

	for (state = IB_QPS_INIT; state <= last && !ret; state++)
		ret = end_step(end, state);
	if (!ret && end->state == IB_QPS_ERR)
		ret = end_step(end, IB_QPS_ERR);
	return ret;
}

void end_connect(struct pair *p, struct end *end)
{
	KUNIT_ASSERT_EQ(p->test, 0, end_try_connect(end));
}

void end_move(struct pair *p, struct end *end, enum ib_qp_state state)
{
	struct ib_qp_attr attr = { .qp_state = state };

	KUNIT_EXPECT_EQ(p->test, 0, ib_modify_qp(end->qp, &attr, IB_QP_STATE));
}

void pair_connect(struct pair *p)
{
	end_connect(p, &p->a);
	end_connect(p, &p->b);
	end_connect(p, &p->clerk);
	KUNIT_ASSERT_EQ(p->test, IB_WC_SUCCESS,
			pair_register(p, p->a.mr, p->a.mr->rkey, PAIR_RIGHTS));
	KUNIT_ASSERT_EQ(p->test, IB_WC_SUCCESS,
			pair_register(p, p->b.mr, p->b.mr->rkey, PAIR_RIGHTS));
	KUNIT_ASSERT_EQ(p->test, IB_WC_SUCCESS,
			pair_register(p, p->closed, p->closed->rkey, 0));
}

enum ib_wc_status pair_register(struct pair *p, struct ib_mr *mr, u32 key,
				int access)
{
	const struct ib_reg_wr reg = {
		.wr.opcode = IB_WR_REG_MR,
		.wr.send_flags = IB_SEND_SIGNALED,
		.mr = mr,
		.key = key,
		.access = access,
	};

	p->clerk.wcs = 0;
	KUNIT_ASSERT_EQ(p->test, 0, ib_post_send(p->clerk.qp, &reg.wr, NULL));
	pair_settle(p, &p->clerk, 1);
	KUNIT_EXPECT_EQ(p->test, IB_WC_REG_MR, p->clerk.wc[0].opcode);
	return p->clerk.wc[0].status;
}

u64 pair_counter(const struct pair *p, enum keel_counter which)
{
	struct keel_counters __percpu *all = to_kdev(p->ibdev)->counters;
	u64 sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += per_cpu_ptr(all, cpu)->n[which];
	return sum;
}

void end_collect(struct end *end)
{
	int n = ib_poll_cq(end->cq, PAIR_WCS - end->wcs, end->wc + end->wcs);

	if (n > 0)
		end->wcs += n;
}

void pair_settle(struct pair *p, struct end *end, int n)
{
	unsigned long until = jiffies + PAIR_PATIENCE;
	int i;

	for (end_collect(end); end->wcs < n && time_before(jiffies, until);
	     end_collect(end))
		usleep_range(100, 1000);
	KUNIT_ASSERT_GE(p->test, end->wcs, n);
	/* An error at one end queues a flush at the other, and vice versa. */
	for (i = 0; i < 4; i++)
		flush_workqueue(to_kdev(p->ibdev)->wq);
	end_collect(&p->a);
	end_collect(&p->b);
}

enum ib_qp_state end_state(struct pair *p, struct end *end)
{
	struct ib_qp_init_attr init;
	struct ib_qp_attr attr;

	KUNIT_EXPECT_EQ(p->test, 0,
			ib_query_qp(end->qp, &attr, IB_QP_STATE, &init));
	return attr.qp_state;
}

void end_recv(struct pair *p, struct end *end, u64 wr_id, u64 off, u32 len)
{
	struct ib_sge sge = end_sge(p, end, off, len);
	const struct ib_recv_wr wr = {
		.wr_id = wr_id, .sg_list = &sge, .num_sge = 1,
	};

	KUNIT_EXPECT_EQ(p->test, 0, ib_post_recv(end->qp, &wr, NULL));
}

void end_send_silently(struct pair *p, struct end *end, u64 wr_id, u32 len)
{
	struct keel_ring *ring = &to_kqp(end->qp)->sq.ring;
	const struct ib_sge sge = end_sge(p, end, 0, len);
	struct keel_uapi_send_wqe *wqe;
	u32 user = ring->head->user;

	wqe = keel_ring_entry(ring, user);
	memset(wqe, 0, sizeof(*wqe));
	wqe->wr_id = wr_id;
	wqe->opcode = IB_WR_SEND;
	wqe->flags = IB_SEND_SIGNALED;
	wqe->num_sge = 1;
	*(struct keel_uapi_sge *)(wqe + 1) = (struct keel_uapi_sge){
		.addr = sge.addr, .length = sge.length, .lkey = sge.lkey,
	};
	/* Pairs with keel_ring_posted(). */
	smp_store_release(&ring->head->user, user + 1);
}

long end_differs(const struct end *end, u64 off, const struct end *of,
		 u64 from, u64 len)
{
	u64 i;

	for (i = 0; i < len; i++)
		if (end->buf[off + i] != (u8)(of->mark + (from + i) % 251))
			return off + i;
	return -1;
}

static void pair_destroy_srq(struct ib_srq *srq)
{
	if (!IS_ERR_OR_NULL(srq))
		ib_destroy_srq(srq);
}

static void end_destroy(struct pair *p, struct end *end)
{
	if (!IS_ERR_OR_NULL(end->qp))
		KUNIT_EXPECT_EQ(p->test, 0, ib_destroy_qp(end->qp));
	/* XRC SRQs use the CQ. */
	if (end == &p->b) {
		pair_destroy_srq(p->srq);
		pair_destroy_srq(p->extra_srq);
	}
	/* With one CQ, the other end destroys it. */
	if (!IS_ERR_OR_NULL(end->cq) && !(p->one_cq && end == &p->a))
		ib_destroy_cq(end->cq);
}

static void pair_dereg(struct pair *p, struct ib_mr *mr)
{
	if (!IS_ERR_OR_NULL(mr))
		KUNIT_EXPECT_EQ(p->test, 0, ib_dereg_mr(mr));
}

static void pair_dealloc_xrcd(struct pair *p, struct ib_xrcd *xrcd)
{
	if (!IS_ERR_OR_NULL(xrcd))
		KUNIT_EXPECT_EQ(p->test, 0, ib_dealloc_xrcd_user(xrcd, NULL));
}

static void pair_destroy_ah(struct ib_ah *ah)
{
	if (!IS_ERR_OR_NULL(ah))
		rdma_destroy_ah(ah, RDMA_DESTROY_AH_SLEEPABLE);
}

void pair_exit(struct kunit *test)
{
	struct pair *p = test->priv;
	int kind;

	if (!p)
		return;
	end_destroy(p, &p->a);
	end_destroy(p, &p->b);
	end_destroy(p, &p->clerk);
	pair_dealloc_xrcd(p, p->xrcd);
	pair_dealloc_xrcd(p, p->extra_xrcd);
	pair_dereg(p, p->a.mr);
	pair_dereg(p, p->b.mr);
	pair_dereg(p, p->closed);
	pair_dereg(p, p->fresh);
	pair_dereg(p, p->foreign);
	pair_dereg(p, p->extra);
	pair_destroy_ah(p->ah);
	pair_destroy_ah(p->foreign_ah);
	if (!IS_ERR_OR_NULL(p->pd))
		ib_dealloc_pd(p->pd);
	if (!IS_ERR_OR_NULL(p->other_pd))
		ib_dealloc_pd(p->other_pd);
	for (kind = 0; kind < KEEL_KINDS; kind++)
		KUNIT_EXPECT_EQ_MSG(test, p->before[kind], pair_count(p, kind),
				    "number of %s", keel_kind_name(kind));
}
