// SPDX-License-Identifier: GPL-2.0
/*
 * CQEs of a QP that is reset or destroyed: the provider removes them from the
 * CQs, and keeps those of all other QPs, in order.
 */
#include "fake.h"

#define CQES	16
#define WRS	4

static struct ibv_pd *pd;
static struct ibv_cq_ex *ex;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct fake_cq *fcq;

static void setup(void)
{
	fake_open();
	pd = MUST(ibv_alloc_pd(fake.ctx));
	ex = fake_new_cq_ex(CQES, 0, 0);
	cq = ibv_cq_ex_to_cq(ex);
	fcq = fake_cq(cq);
	qp = fake_new_qp(pd, cq, IBV_QPT_RC, WRS);
}

static void finish(void)
{
	if (qp)
		CHECK_OK(ibv_destroy_qp(qp));
	CHECK_OK(ibv_destroy_cq(cq));
	CHECK_OK(ibv_dealloc_pd(pd));
	fake_close();
}

/* Add CQEs with the numbers of their places: of the QP for x, else of others. */
static void add(const char *places)
{
	int i;

	for (i = 0; places[i]; i++)
		fake_wc(cq, i, places[i] == 'x' ? qp->qp_num :
				FAKE_QPN + places[i]);
}

/* Poll those of the other QPs, and nothing else. */
static void poll_others(const char *places)
{
	struct ibv_wc wc;
	int i;

	for (i = 0; places[i]; i++) {
		if (places[i] == 'x')
			continue;
		CHECK_EQ(ibv_poll_cq(cq, 1, &wc), 1);
		CHECK_EQ(wc.wr_id, i);
		CHECK_EQ(wc.qp_num, FAKE_QPN + places[i]);
	}
	CHECK_EQ(ibv_poll_cq(cq, 1, &wc), 0);
}

TEST(patterns, "DEV-4", "a reset removes the CQEs of the QP from any places, and no other, at any index")
{
	static const char *const places[] = {
		"", "x", "a", "xx", "ax", "xa", "xaxbxcxd", "aabbccdd",
		"xxxxabcd", "abcdxxxx", "axxxxxxb", "xxxxxxxxxxxxxxxx",
		"abcdefghijklmnop", "xabcdefghijklmnx", "abcdefgxhijklmno",
	};
	static const uint32_t starts[] = { 0, 9, 0xfffffffb, 0xffffffff };
	unsigned int others;
	const char *p;
	size_t i, j;

	setup();
	for (i = 0; i < sizeof(starts) / sizeof(*starts); i++) {
		for (j = 0; j < sizeof(places) / sizeof(*places); j++) {
			fake_at(&to_kcq(cq)->ring, &fcq->ring, starts[i]);
			add(places[j]);
			fake_to(qp, IBV_QPS_RESET);
			for (others = 0, p = places[j]; *p; p++)
				others += *p != 'x';
			/* The kernel sees the room at once. */
			CHECK_EQ(fake_queued(&fcq->ring), others);
			poll_others(places[j]);
		}
	}
	finish();
}

TEST(current, "DEV-4", "between start and end poll, the current CQE stays, whatever QP it is of, and those after it are removed")
{
	static const char *const places[] = { "axbxc", "xaxbx", "xxxxx" };
	static const char *const left[] = { "axbxc", "cacbx", "cxxxx" };
	struct ibv_poll_cq_attr attr = {};
	uint32_t locks;
	int i, n;

	setup();
	for (i = 0; i < 3; i++) {
		fake_at(&to_kcq(cq)->ring, &fcq->ring, -2U);
		add(places[i]);
		CHECK_OK(ibv_start_poll(ex, &attr));
		locks = fake_locks;
		keel_cq_clean(to_kcq(cq), qp->qp_num);
		CHECK_EQ(fake_locks, locks);
		CHECK_EQ(ex->wr_id, 0);
		/* The kernel may write to its old place. */
		CHECK(to_kcq(cq)->cur ==
		      fake_slot(&fcq->ring, fcq->ring.head->user));
		CHECK_EQ(to_kcq(cq)->cur->wr_id, 0);
		CHECK_EQ(to_kcq(cq)->cur->qp_num,
			 places[i][0] == 'x' ? qp->qp_num :
					       FAKE_QPN + places[i][0]);
		for (n = 1; left[i][n]; n++) {
			if (places[i][n] == 'x')
				continue;
			CHECK_OK(ibv_next_poll(ex));
			CHECK_EQ(ex->wr_id, n);
		}
		CHECK_RET(ibv_next_poll(ex), ENOENT);
		ibv_end_poll(ex);
		poll_others("");
	}
	finish();
}

TEST(after_end, "DEV-4", "after the last CQE of a batch there is no current one, and a reset removes what came meanwhile")
{
	struct ibv_poll_cq_attr attr = {};

	setup();
	add("x");
	CHECK_OK(ibv_start_poll(ex, &attr));
	CHECK_RET(ibv_next_poll(ex), ENOENT);
	add("xa");
	fake_to(qp, IBV_QPS_RESET);
	CHECK(!to_kcq(cq)->cur);
	CHECK_OK(ibv_next_poll(ex));
	CHECK_EQ(ex->wr_id, 1);
	CHECK_RET(ibv_next_poll(ex), ENOENT);
	ibv_end_poll(ex);
	poll_others("");
	finish();
}

TEST(destroyed, "DEV-4", "a destroyed QP leaves no CQE, and one that cannot be destroyed keeps all")
{
	setup();
	add("xaxb");
	fake.fail[FAKE_DESTROY_QP] = EBUSY;
	CHECK_RET(ibv_destroy_qp(qp), EBUSY);
	CHECK_EQ(fake_queued(&fcq->ring), 4);
	CHECK_OK(ibv_destroy_qp(qp));
	qp = NULL;
	CHECK_EQ(fake_queued(&fcq->ring), 2);
	poll_others("xaxb");
	finish();
}

/* The last CQEs of the QP are added before the kernel's call returns. */
static void late(enum fake_call call, uint32_t handle)
{
	if (call != FAKE_MODIFY_QP && call != FAKE_DESTROY_QP)
		return;
	fake_wc(cq, 50, FAKE_QPN + handle);
	fake_wc(cq, 2, FAKE_QPN + 'a');
}

TEST(late, "DEV-4", "CQEs that the kernel adds before the reset or destroy returns are removed, too")
{
	setup();
	fake.hook = late;
	add("xx");
	fake_to(qp, IBV_QPS_RESET);
	CHECK_EQ(fake_queued(&fcq->ring), 1);
	poll_others("xxa");
	add("xx");
	CHECK_OK(ibv_destroy_qp(qp));
	qp = NULL;
	poll_others("xxa");
	fake.hook = NULL;
	finish();
}

TEST(invalid_index, "DEV-4", "with an invalid producer index, a reset leaves the CQ alone")
{
	struct ibv_wc wc;
	int i;

	setup();
	add("xax");
	fcq->ring.head->kernel = CQES + 1;
	fake_to(qp, IBV_QPS_RESET);
	CHECK_EQ(fcq->ring.head->user, 0);
	fcq->ring.head->kernel = 3;
	for (i = 0; i < 3; i++) {
		CHECK_EQ(ibv_poll_cq(cq, 1, &wc), 1);
		CHECK_EQ(wc.wr_id, i);
	}
	finish();
}

TEST(two_cqs, "DEV-4", "a reset cleans both CQs of the QP, and only the CQ of its sends if it has no receive queue")
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_RC, .cap = { .max_send_wr = 1 },
		.comp_mask = IBV_QP_INIT_ATTR_PD,
	};
	struct ibv_cq *other;
	struct ibv_qp *both;
	struct ibv_wc wc;
	int i;

	for (i = 0; i < 2; i++) {
		setup();
		other = fake_new_cq(CQES);
		attr.qp_type = i ? IBV_QPT_XRC_SEND : IBV_QPT_RC;
		attr.pd = pd;
		attr.send_cq = other;
		attr.recv_cq = cq;
		both = MUST(ibv_create_qp_ex(fake.ctx, &attr));
		fake_wc(cq, 1, both->qp_num);
		fake_wc(other, 2, both->qp_num);
		fake_wc(other, 3, qp->qp_num);
		fake_to(both, IBV_QPS_RESET);
		CHECK_EQ(fake_queued(&fcq->ring), i);
		CHECK_EQ(ibv_poll_cq(other, 1, &wc), 1);
		CHECK_EQ(wc.wr_id, 3);
		CHECK_EQ(ibv_poll_cq(other, 1, &wc), 0);
		CHECK_OK(ibv_destroy_qp(both));
		CHECK_OK(ibv_destroy_cq(other));
		finish();
	}
}

TEST(queues, "DEV-4", "a reset empties both queues of the QP, and a transition to another state does not")
{
	struct ibv_sge sge = {};
	struct ibv_send_wr send = { .opcode = IBV_WR_SEND, .sg_list = &sge };
	struct ibv_recv_wr recv = { .sg_list = &sge }, *bad_recv;
	struct ibv_send_wr *bad_send;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
	int i;

	setup();
	fake_to(qp, IBV_QPS_RTS);
	for (i = 0; i < WRS; i++) {
		CHECK_OK(ibv_post_send(qp, &send, &bad_send));
		CHECK_OK(ibv_post_recv(qp, &recv, &bad_recv));
	}
	add("x");
	fake_to(qp, IBV_QPS_ERR);
	/* A refused reset, and a modify of something else. */
	fake.fail[FAKE_MODIFY_QP] = EINVAL;
	CHECK_RET(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
	CHECK_EQ(qp->state, IBV_QPS_ERR);
	CHECK_OK(ibv_modify_qp(qp, &attr, IBV_QP_ACCESS_FLAGS));
	CHECK_EQ(fake_queued(&fcq->ring), 1);
	CHECK_RET(ibv_post_send(qp, &send, &bad_send), ENOMEM);
	CHECK_RET(ibv_post_recv(qp, &recv, &bad_recv), ENOMEM);
	fake_to(qp, IBV_QPS_RESET);
	CHECK_EQ(fake_queued(&fcq->ring), 0);
	CHECK_EQ(fake_posted(&fake_qp(qp)->sq), 0);
	CHECK_EQ(fake_posted(&fake_qp(qp)->rq), 0);
	CHECK_EQ(fake_qp(qp)->sq.head->user, 0);
	CHECK_EQ(fake_qp(qp)->rq.head->user, 0);
	fake_to(qp, IBV_QPS_RTS);
	send.wr_id = 5;
	recv.wr_id = 6;
	CHECK_OK(ibv_post_send(qp, &send, &bad_send));
	CHECK_OK(ibv_post_recv(qp, &recv, &bad_recv));
	fake_take(&fake_qp(qp)->sq, 5);
	fake_take_recv(&fake_qp(qp)->rq, 6);
	finish();
}
