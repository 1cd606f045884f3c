// SPDX-License-Identifier: GPL-2.0
/*
 * An application writes garbage into the rings that it shares with the kernel:
 * only its own queues fail, with the matching event.
 */
#include "peer.h"
#include "qp.h"
#include "raw.h"
#include "rings.h"
#include "t.h"

#define PAGE	4096

static char page[PAGE] __attribute__((aligned(PAGE)));

/*
 * Ring numbers of a requester and its peer, which has an SRQ or a receive
 * queue.
 */
enum { CQ, RCQ, SRQ, SQ, RQ };
enum { PLAIN_RQ = 5 };

struct victim {
	struct ibv_context *ctx;
	struct ibv_cq *cq, *rcq;
	struct ibv_srq *srq;
	struct ibv_qp *a, *b;
	struct mem mem;
};

static struct victim victim_new(bool with_srq)
{
	struct victim v = { .ctx = dev_open(KEEL0) };
	struct ibv_pd *pd = rings_pd(v.ctx);

	v.cq = rings_cq(pd);
	v.rcq = rings_cq(pd);
	if (with_srq)
		v.srq = srq_new(pd);
	v.a = qp_new(pd, v.cq, IBV_QPT_RC, NULL);
	v.b = qp_new(pd, v.rcq, IBV_QPT_RC, v.srq);
	CHECK_EQ(n_rings, 6);
	/* Join in this order: the second QP that connects wakes the first. */
	qp_join(v.b, v.a);
	v.mem = MEM(MUST(ibv_reg_mr(pd, page, PAGE, IBV_ACCESS_LOCAL_WRITE)));
	return v;
}

static int doorbell(struct ibv_context *ctx, uint32_t qpn)
{
	struct raw_cmd cmd;

	raw_init(&cmd, UVERBS_OBJECT_QP, KEEL_METHOD_QP_DOORBELL);
	raw_in(&cmd, KEEL_ATTR_QP_DOORBELL_QPN, &qpn, sizeof(qpn));
	return raw_run(ctx->cmd_fd, &cmd);
}

/*
 * The ring's index announces a WQE, but the application has not called the
 * doorbell.
 */
TEST(doorbell, "DEV-4", "a doorbell for a QP of another context, or an unknown QP, fails with ENOENT and runs nothing")
{
	struct ibv_context *stranger = dev_open(KEEL0);
	struct victim v = victim_new(true);
	struct keel_uapi_send_wqe *wqe = (void *)(rings[SQ] + 1);
	uint32_t gone = v.b->qp_num;

	wqe->opcode = IBV_WR_SEND;
	wqe->flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
	wqe->wr_id = 7;
	post_srq_recv(v.srq, 1, v.mem);
	__atomic_store_n(&rings[SQ]->user, 1, __ATOMIC_RELEASE);

	CHECK_EQ(doorbell(stranger, v.a->qp_num), ENOENT);
	CHECK_EQ(doorbell(v.ctx, 0), ENOENT);
	/* QP 1 belongs to the kernel, for management datagrams. */
	CHECK_EQ(doorbell(v.ctx, 1), ENOENT);
	CHECK_EQ(doorbell(v.ctx, 0xffffffff), ENOENT);
	CHECK_NO_WC(v.cq);
	CHECK_EQ(rings[SQ]->kernel, 0);

	CHECK_EQ(doorbell(v.ctx, v.a->qp_num), 0);
	CHECK_WC(v.cq, 7, IBV_WC_SUCCESS);
	CHECK_EQ(rings[SQ]->kernel, 1);
	CHECK_OK(ibv_destroy_qp(v.b));
	CHECK_EQ(doorbell(v.ctx, gone), ENOENT);
}

/*
 * Invalid producer indexes: more WQEs than the ring has, or a negative number.
 */
static const uint32_t lies[] = { 1000, 0x7fffffff, 0x80000000, -1U };

TEST(send_queue, "DEV-4", "an invalid producer index of a send queue fails its QP with a fatal event, and not the peer")
{
	struct victim v;
	int i;

	for (i = 0; i < 4; i++) {
		v = victim_new(true);
		/* The following move to SQD makes the kernel read the index. */
		post_srq_recv(v.srq, 1, v.mem);
		rings[SQ]->user = lies[i];
		qp_to(v.a, IBV_QPS_SQD);
		CHECK_STATE(v.a, IBV_QPS_ERR);
		CHECK_EVENT(v.ctx, IBV_EVENT_QP_FATAL, v.a);
		CHECK_STATE(v.b, IBV_QPS_RTS);
		CHECK_NO_WC(v.rcq);
		CHECK_NO_EVENT(v.ctx);
	}
}

TEST(receive_queue, "DEV-4", "an invalid producer index of a receive queue fails its QP with a fatal event, the sender with a remote operation error")
{
	uint64_t seed = 99;
	struct victim v;
	uint32_t lie;
	int i;

	for (i = 0; i < 12; i++) {
		/*
		 * An index within the ring is valid, even if the WQEs are
		 * garbage.
		 */
		do
			lie = i < 4 ? lies[i] : t_random(&seed);
		while (lie <= QP_WRS);
		v = victim_new(false);
		/* The same with a valid receive WQE in the ring. */
		if (i >= 8)
			post_recv(v.b, 1, v.mem);
		rings[PLAIN_RQ]->user += lie;
		post_send(v.a, 2, v.mem);
		CHECK_WC(v.cq, 2, IBV_WC_REM_OP_ERR);
		CHECK_EVENT(v.ctx, IBV_EVENT_QP_FATAL, v.b);
		CHECK_STATE(v.a, IBV_QPS_ERR);
		CHECK_STATE(v.b, IBV_QPS_ERR);
		CHECK_NO_WC(v.rcq);
		CHECK_NO_EVENT(v.ctx);
		CHECK_OK(ibv_close_device(v.ctx));
	}
	/* A producer index that moves back behind a consumed WQE. */
	v = victim_new(false);
	post_recv(v.b, 3, v.mem);
	post_send(v.a, 4, v.mem);
	CHECK_WC(v.rcq, 3, IBV_WC_SUCCESS);
	CHECK_WC(v.cq, 4, IBV_WC_SUCCESS);
	rings[PLAIN_RQ]->user--;
	post_send(v.a, 5, v.mem);
	CHECK_WC(v.cq, 5, IBV_WC_REM_OP_ERR);
	CHECK_EVENT(v.ctx, IBV_EVENT_QP_FATAL, v.b);
}

TEST(srq, "DEV-4", "an invalid producer index of an SRQ raises an error event for the SRQ and for the QP that receives")
{
	struct ibv_async_event event;
	struct victim v;
	int i, srqs, qps;

	for (i = 0; i < 4; i++) {
		v = victim_new(true);
		rings[SRQ]->user = lies[i];
		post_send(v.a, 2, v.mem);
		CHECK_WC(v.cq, 2, IBV_WC_REM_OP_ERR);
		CHECK_STATE(v.b, IBV_QPS_ERR);
		for (srqs = qps = 0; !srqs || !qps;) {
			CHECK_OK(ibv_get_async_event(v.ctx, &event));
			srqs += event.event_type == IBV_EVENT_SRQ_ERR &&
				event.element.srq == v.srq;
			qps += event.event_type == IBV_EVENT_QP_FATAL &&
			       event.element.qp == v.b;
			ibv_ack_async_event(&event);
		}
	}
}

TEST(cq, "DEV-4", "an invalid consumer index of a CQ raises an error event for the CQ, and for each QP that completes later")
{
	struct ibv_async_event event;
	struct ibv_qp *late, *peer;
	struct victim v;
	int i, cqs, qps;

	/* -1 is valid here: it means that one CQE has not been consumed. */
	for (i = 0; i < 3; i++) {
		v = victim_new(true);
		rings[CQ]->user = lies[i];
		post_srq_recv(v.srq, 1, v.mem);
		post_send(v.a, 2, v.mem);
		CHECK_WC(v.rcq, 1, IBV_WC_SUCCESS);
		for (cqs = qps = 0; !cqs || !qps;) {
			CHECK_OK(ibv_get_async_event(v.ctx, &event));
			cqs += event.event_type == IBV_EVENT_CQ_ERR &&
			       event.element.cq == v.cq;
			qps += event.event_type == IBV_EVENT_QP_FATAL &&
			       event.element.qp == v.a;
			ibv_ack_async_event(&event);
		}
		CHECK_STATE(v.a, IBV_QPS_ERR);
		CHECK_STATE(v.b, IBV_QPS_RTS);
		/* A CQ that is in error takes no CQE of another QP. */
		late = qp_new(v.a->pd, v.cq, IBV_QPT_RC, NULL);
		peer = qp_new(v.a->pd, v.rcq, IBV_QPT_RC, v.srq);
		qp_join(late, peer);
		post_srq_recv(v.srq, 3, v.mem);
		post_send(late, 4, v.mem);
		CHECK_WC(v.rcq, 3, IBV_WC_SUCCESS);
		CHECK_EVENT(v.ctx, IBV_EVENT_QP_FATAL, late);
		CHECK_STATE(late, IBV_QPS_ERR);
		CHECK_STATE(peer, IBV_QPS_RTS);
		CHECK_NO_EVENT(v.ctx);
	}
}

/* Write random bytes into all rings, and make the kernel read them. */
static void vandal(struct peer *parent)
{
	struct ibv_send_wr *bad;
	uint64_t seed = 7;
	struct victim v;
	int i, j;
	size_t k;

	for (i = 0; i < t_rounds(200); i++) {
		v = victim_new(true);
		for (j = 0; j < n_rings; j++)
			for (k = sizeof(*rings[j]); k + 8 <= ring_sizes[j]; k += 8)
				*(uint64_t *)((char *)rings[j] + k) =
					t_random(&seed) >> t_random(&seed) % 64;
		rings[SRQ]->user = i % 3 ? QP_WRS : t_random(&seed);
		rings[SQ]->user = i % 2 ? QP_WRS : t_random(&seed);
		rings[RQ]->user = QP_WRS;
		ibv_post_send(v.a, send_wr(IBV_WR_SEND, 1, v.mem), &bad);
		qp_to(v.a, IBV_QPS_ERR);
		qp_to(v.b, IBV_QPS_ERR);
		CHECK_OK(ibv_close_device(v.ctx));
	}
	peer_tell(parent);
}

TEST_SLOW(random_bytes, "DEV-4", "while a process fills its rings with random bytes, another process's messages arrive whole", 60)
{
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct peer peer;
	struct link l;
	int i;

	peer_start(&peer, vandal);
	pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	mr = MUST(ibv_reg_mr(pd, page, PAGE, IBV_ACCESS_LOCAL_WRITE));
	l = link_new(pd, pd, IBV_QPT_RC);
	for (i = 0; i < t_rounds(2000); i++) {
		memset(page, i, 64);
		post_recv(l.qp[1], i, (struct mem){ page + 64, 64, mr->lkey });
		post_send(l.qp[0], i, (struct mem){ page, 64, mr->lkey });
		CHECK_WC(l.cq[1], i, IBV_WC_SUCCESS);
		CHECK_WC(l.cq[0], i, IBV_WC_SUCCESS);
		CHECK_ALL(page + 64, (unsigned char)i, 64);
	}
	CHECK_NO_EVENT(l.ctx);
	peer_wait(&peer);
	peer_end(&peer);
}
