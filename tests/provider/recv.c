// SPDX-License-Identifier: GPL-2.0
/*
 * Receive WQEs, of a QP and of an SRQ: lists with a bad one, full queues, indexes
 * that wrap, and the doorbell that the kernel requests. Each test runs for both
 * kinds of queues.
 */
#include "fake.h"

#define WRS	8

static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
/* The SRQ, or NULL to test the receive queue of the QP. */
static struct ibv_srq *srq;
static struct fake_ring *ring;
static struct keel_rq *rq;
static struct ibv_sge sges[4];
static struct ibv_recv_wr no_wr;

static void setup(bool with_srq)
{
	struct ibv_srq_init_attr attr = {
		.attr = { .max_wr = WRS, .max_sge = 2 },
	};
	int i;

	fake_open();
	pd = MUST(ibv_alloc_pd(fake.ctx));
	cq = fake_new_cq(16);
	qp = fake_new_qp(pd, cq, IBV_QPT_RC, WRS);
	fake_to(qp, IBV_QPS_INIT);
	srq = with_srq ? MUST(ibv_create_srq(pd, &attr)) : NULL;
	rq = srq ? &to_ksrq(srq)->rq : &to_kqp(qp)->rq;
	ring = srq ? &fake_srq(srq)->ring : &fake_qp(qp)->rq;
	for (i = 0; i < 4; i++)
		sges[i] = (struct ibv_sge){ 0x1000 + i, 10 + i, 0x20 + i };
}

static void finish(void)
{
	if (srq)
		CHECK_OK(ibv_destroy_srq(srq));
	CHECK_OK(ibv_destroy_qp(qp));
	CHECK_OK(ibv_destroy_cq(cq));
	CHECK_OK(ibv_dealloc_pd(pd));
	fake_close();
}

static struct ibv_recv_wr *recvs(uint64_t first, int n)
{
	static struct ibv_recv_wr wr[WRS + 4];
	int i;

	for (i = 0; i < n; i++)
		wr[i] = (struct ibv_recv_wr){
			.wr_id = first + i, .sg_list = sges, .num_sge = 1,
			.next = i < n - 1 ? &wr[i + 1] : NULL,
		};
	return wr;
}

static void post(struct ibv_recv_wr *wr, int err, struct ibv_recv_wr *want)
{
	struct ibv_recv_wr *bad = &no_wr;

	CHECK_RET(srq ? ibv_post_srq_recv(srq, wr, &bad) :
			ibv_post_recv(qp, wr, &bad), err);
	CHECK(bad == (want ? want : &no_wr));
	/* The lock was dropped in any case. */
	CHECK_OK(pthread_spin_trylock(&rq->lock.spin));
	pthread_spin_unlock(&rq->lock.spin);
}

static unsigned int doorbells(void)
{
	return srq ? fake_srq(srq)->doorbells : fake_qp(qp)->doorbells;
}

static void check_queue(uint64_t first, uint32_t n)
{
	uint32_t i;

	CHECK_EQ(fake_posted(ring), n);
	for (i = 0; i < n; i++)
		fake_take_recv(ring, first + i);
}

TEST(sges, "DEV-4", "a receive WQE has its SGEs, as many as the queue was created with, and a reserved member of 0")
{
	struct keel_uapi_recv_wqe *wqe;
	struct ibv_recv_wr *wr;
	int kind, n;

	for (kind = 0; kind < 2; kind++) {
		setup(kind);
		memset(fake_slot(ring, 0), 0xff, WRS * ring->stride);
		wr = recvs(0, 1);
		for (n = 0; n <= 2; n++) {
			wr->num_sge = n;
			wr->sg_list = n ? sges : NULL;
			post(wr, 0, NULL);
			wqe = fake_take_recv(ring, 0);
			CHECK_EQ(wqe->num_sge, n);
			CHECK_EQ(wqe->reserved, 0);
			CHECK_MEM(fake_data(wqe), sges, n * sizeof(*sges));
		}
		wr->sg_list = sges;
		wr->num_sge = 3;
		post(wr, EINVAL, wr);
		wr->num_sge = -1;
		post(wr, EINVAL, wr);
		wr->num_sge = 0x10001;
		post(wr, EINVAL, wr);
		/* Zeros are passed to the kernel as they are. */
		memset(sges, 0, sizeof(sges));
		wr->num_sge = 2;
		post(wr, 0, NULL);
		CHECK_ALL(fake_data(fake_take_recv(ring, 0)), 0,
			  2 * sizeof(*sges));
		check_queue(0, 0);
		finish();
	}
}

TEST(bad_wr, "DEV-4", "of a list with a bad receive, those before it are posted, and none after it")
{
	struct ibv_recv_wr *wr;
	int kind, bad;

	for (kind = 0; kind < 2; kind++) {
		setup(kind);
		for (bad = 0; bad < 5; bad++) {
			wr = recvs(10 * bad, 5);
			wr[bad].num_sge = 3;
			post(wr, EINVAL, &wr[bad]);
			check_queue(10 * bad, bad);
		}
		post(NULL, 0, NULL);
		post(recvs(90, 3), 0, NULL);
		check_queue(90, 3);
		CHECK_EQ(doorbells(), 0);
		finish();
	}
}

TEST(full, "DEV-4", "a full receive queue refuses the first receive that does not fit, until the kernel takes one, at any index")
{
	static const uint32_t starts[] = { 0, 3, 0x7ffffffe, 0xfffffff8,
					   0xfffffffd, 0xffffffff };
	struct ibv_recv_wr *wr;
	uint64_t id;
	size_t i;
	int kind;

	for (kind = 0; kind < 2; kind++) {
		setup(kind);
		for (i = 0; i < sizeof(starts) / sizeof(*starts); i++) {
			fake_at(&rq->ring, ring, starts[i]);
			wr = recvs(0, WRS + 2);
			post(wr, ENOMEM, &wr[WRS]);
			wr = recvs(WRS, 2);
			post(wr, ENOMEM, &wr[0]);
			for (id = 0; id < 3 * WRS; id++) {
				fake_take_recv(ring, id);
				wr = recvs(WRS + id, 2);
				post(wr, ENOMEM, &wr[1]);
			}
			check_queue(3 * WRS, WRS);
			/* The bad one is reported, and not that it is full. */
			post(recvs(0, WRS), 0, NULL);
			wr = recvs(0, 1);
			wr->num_sge = 9;
			post(wr, EINVAL, wr);
			check_queue(0, WRS);
		}
		finish();
	}
}

TEST(kernel_index, "DEV-4", "a receive queue whose kernel index is invalid takes nothing")
{
	struct ibv_recv_wr *wr = recvs(0, 1);
	int kind;

	for (kind = 0; kind < 2; kind++) {
		setup(kind);
		ring->head->kernel = 1;
		post(wr, ENOMEM, wr);
		ring->head->kernel = -(uint32_t)WRS - 1;
		post(wr, ENOMEM, wr);
		ring->head->kernel = 0;
		post(wr, 0, NULL);
		finish();
	}
}

TEST(doorbell, "DEV-4", "the doorbell rings if the kernel requests it, once for a list, also if the list has a bad receive")
{
	enum fake_call call;
	struct ibv_recv_wr *wr;
	int kind;

	for (kind = 0; kind < 2; kind++) {
		setup(kind);
		call = kind ? FAKE_SRQ_DOORBELL : FAKE_QP_DOORBELL;
		post(recvs(0, 2), 0, NULL);
		ring->head->flags = ~KEEL_RING_F_DOORBELL;
		post(recvs(2, 1), 0, NULL);
		CHECK_EQ(doorbells(), 0);
		ring->head->flags = KEEL_RING_F_DOORBELL;
		post(recvs(3, 2), 0, NULL);
		CHECK_EQ(doorbells(), 1);
		check_queue(0, 5);
		wr = recvs(0, 3);
		wr[1].num_sge = 3;
		post(wr, EINVAL, &wr[1]);
		CHECK_EQ(doorbells(), 2);
		check_queue(0, 1);
		/* Its error names the first of the list. */
		fake.fail[call] = EAGAIN;
		wr = recvs(0, 2);
		post(wr, EAGAIN, wr);
		/* An error of the list has priority. */
		fake.fail[call] = EAGAIN;
		wr = recvs(2, 3);
		wr[1].num_sge = 3;
		post(wr, EINVAL, &wr[1]);
		check_queue(0, 3);
		CHECK_EQ(doorbells(), 2);
		finish();
	}
}

/* The kernel takes all receive WQEs inside of the doorbell. */
static void run(enum fake_call call, uint32_t handle)
{
	if (call != FAKE_QP_DOORBELL && call != FAKE_SRQ_DOORBELL)
		return;
	CHECK_OK(pthread_spin_trylock(&rq->lock.spin));
	pthread_spin_unlock(&rq->lock.spin);
	CHECK_EQ(fake_posted(ring), 3);
	while (fake_posted(ring))
		fake_advance(ring);
}

TEST(published, "DEV-4", "the doorbell finds all receive WQEs of the list in the queue")
{
	int kind, i;

	for (kind = 0; kind < 2; kind++) {
		setup(kind);
		fake.hook = run;
		fake_at(&rq->ring, ring, -10U);
		ring->head->flags = KEEL_RING_F_DOORBELL;
		for (i = 0; i < 20; i++)
			post(recvs(0, 3), 0, NULL);
		CHECK_EQ(doorbells(), 20);
		fake.hook = NULL;
		finish();
	}
}

TEST(gone, "DEV-3", "after device removal, no receive is posted: EIO")
{
	struct ibv_recv_wr *wr;
	int kind;

	for (kind = 0; kind < 2; kind++) {
		setup(kind);
		fake_gone();
		wr = recvs(0, 2);
		post(wr, EIO, wr);
		check_queue(0, 0);
		CHECK_EQ(doorbells(), 0);
		finish();
	}
}

TEST(states, "DEV-4", "a QP in RESET, and a QP without a receive queue, refuse the whole list")
{
	struct ibv_recv_wr *wr = recvs(0, 2);
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC, .cap = { .max_send_wr = 1 },
	};
	struct ibv_qp *own;
	enum ibv_qp_state state;

	setup(false);
	for (state = IBV_QPS_RESET; state <= IBV_QPS_ERR; state++) {
		qp->state = state;
		post(wr, state == IBV_QPS_RESET ? EINVAL : 0,
		     state == IBV_QPS_RESET ? wr : NULL);
		check_queue(0, state == IBV_QPS_RESET ? 0 : 2);
	}
	finish();
	setup(true);
	own = qp;
	attr.send_cq = cq;
	attr.recv_cq = cq;
	attr.srq = srq;
	qp = MUST(ibv_create_qp(pd, &attr));
	CHECK_EQ(attr.cap.max_recv_wr, 0);
	CHECK_EQ(attr.cap.max_recv_sge, 0);
	fake_to(qp, IBV_QPS_RTS);
	srq = NULL;
	rq = &to_kqp(qp)->rq;
	post(wr, EINVAL, wr);
	srq = qp->srq;
	CHECK_OK(ibv_destroy_qp(qp));
	qp = own;
	finish();
}
