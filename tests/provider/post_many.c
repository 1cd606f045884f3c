// SPDX-License-Identifier: GPL-2.0
/*
 * keeldv_post_sends(): one call for the doorbells of several queue pairs, lists that fail
 * beside others, and calls that fail.
 */
#include "fake.h"
#include "keeldv.h"

#define WRS	8
#define QPS	40

static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp[QPS];
static struct ibv_sge sge = { 0x1000, 64, 0x11 };
static struct ibv_send_wr wr[QPS][2];
static struct keeldv_post posts[2 * QPS];

/* One work request for each QP, with the number of the QP. */
static void setup(int n)
{
	int i;

	fake_open();
	pd = MUST(ibv_alloc_pd(fake.ctx));
	cq = fake_new_cq(16);
	for (i = 0; i < n; i++) {
		qp[i] = fake_new_qp(pd, cq, IBV_QPT_RC, WRS);
		fake_to(qp[i], IBV_QPS_RTS);
		wr[i][0] = (struct ibv_send_wr){
			.wr_id = i, .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1,
		};
		posts[i] = (struct keeldv_post){ .qp = qp[i], .wr = wr[i], .ret = -1 };
	}
}

static void finish(int n)
{
	int i;

	for (i = 0; i < n; i++)
		CHECK_OK(ibv_destroy_qp(qp[i]));
	CHECK_OK(ibv_destroy_cq(cq));
	CHECK_OK(ibv_dealloc_pd(pd));
	fake_close();
}

static void check_posted(int i, int doorbells)
{
	CHECK_EQ(fake_qp(qp[i])->doorbells, doorbells);
	fake_take(&fake_qp(qp[i])->sq, i);
}

TEST(one_call, "DEV-4", "the lists of up to 64 queue pairs of a context need one call, and each is in the queue of its queue pair")
{
	int i;

	setup(QPS);
	CHECK_RET(keeldv_post_sends(posts, QPS), 0);
	CHECK_EQ(fake.calls[FAKE_QP_DOORBELLS], 1);
	CHECK_EQ(fake.calls[FAKE_QP_DOORBELL], 0);
	for (i = 0; i < QPS; i++) {
		CHECK_EQ(posts[i].ret, 0);
		check_posted(i, 1);
	}
	finish(QPS);
}

TEST(more, "DEV-4", "a queue pair may occur several times, and 65 posts need two calls")
{
	int i;

	setup(QPS);
	for (i = QPS; i < 65; i++)
		posts[i] = (struct keeldv_post){ .qp = qp[i - QPS], .wr = wr[i - QPS] };
	CHECK_RET(keeldv_post_sends(posts, 65), 0);
	CHECK_EQ(fake.calls[FAKE_QP_DOORBELLS], 2);
	for (i = 0; i < QPS; i++)
		check_posted(i, i < 65 - QPS ? 2 : 1);
	for (i = 0; i < 65 - QPS; i++)
		fake_take(&fake_qp(qp[i])->sq, i);
	finish(QPS);
}

TEST(bad_list, "DEV-4", "a list that fails gets its error and bad_wr, the others are posted, and the first error is returned")
{
	setup(4);
	wr[1][0].opcode = IBV_WR_TSO;
	wr[2][0].next = &wr[2][1];
	wr[2][1] = (struct ibv_send_wr){ .wr_id = 9, .opcode = IBV_WR_DRIVER1 };
	fake_to(qp[3], IBV_QPS_RESET);
	CHECK_RET(keeldv_post_sends(posts, 4), EINVAL);
	CHECK_EQ(posts[0].ret, 0);
	CHECK_EQ(posts[1].ret, EINVAL);
	CHECK(posts[1].bad_wr == &wr[1][0]);
	CHECK_EQ(posts[2].ret, EINVAL);
	CHECK(posts[2].bad_wr == &wr[2][1]);
	CHECK_EQ(posts[3].ret, EINVAL);
	CHECK(posts[3].bad_wr == &wr[3][0]);
	CHECK_EQ(fake.calls[FAKE_QP_DOORBELLS], 1);
	check_posted(0, 1);
	check_posted(2, 1);
	CHECK_EQ(fake_qp(qp[1])->doorbells, 0);
	CHECK_EQ(fake_qp(qp[3])->doorbells, 0);
	finish(4);
}

TEST(no_list, "DEV-4", "no post at all is no call; a missing queue pair, list or array is EINVAL")
{
	setup(3);
	CHECK_RET(keeldv_post_sends(NULL, 0), 0);
	CHECK_RET(keeldv_post_sends(posts, 0), 0);
	CHECK_RET(keeldv_post_sends(NULL, 1), EINVAL);
	CHECK_EQ(fake.calls[FAKE_QP_DOORBELLS], 0);
	posts[0].qp = NULL;
	posts[2].wr = NULL;
	CHECK_RET(keeldv_post_sends(posts, 3), EINVAL);
	CHECK_EQ(posts[0].ret, EINVAL);
	CHECK(posts[0].bad_wr == wr[0]);
	CHECK_EQ(posts[1].ret, 0);
	CHECK_EQ(posts[2].ret, EINVAL);
	CHECK(!posts[2].bad_wr);
	check_posted(1, 1);
	finish(3);
}

TEST(call_fails, "DEV-3,DEV-4", "a call that a signal interrupts is repeated; after any other error, each queue pair gets the error of its own doorbell")
{
	setup(3);
	fake.fail[FAKE_QP_DOORBELLS] = EINTR;
	CHECK_RET(keeldv_post_sends(posts, 3), 0);
	CHECK_EQ(fake.calls[FAKE_QP_DOORBELLS], 2);
	check_posted(0, 2);
	fake.fail[FAKE_QP_DOORBELLS] = ENOENT;
	fake.fail[FAKE_QP_DOORBELL] = EIO;
	CHECK_RET(keeldv_post_sends(posts, 3), EIO);
	CHECK_EQ(posts[0].ret, EIO);
	CHECK(posts[0].bad_wr == wr[0]);
	CHECK_EQ(posts[1].ret, 0);
	CHECK_EQ(posts[2].ret, 0);
	CHECK_EQ(fake.calls[FAKE_QP_DOORBELL], 3);
	finish(3);
}

TEST(foreign, "DEV-4", "a queue pair of another provider is EOPNOTSUPP, and the others are posted")
{
	struct verbs_device other = {};
	struct ibv_context context = { .device = &other.device };
	struct ibv_qp alien = { .context = &context };

	setup(2);
	posts[1].qp = &alien;
	CHECK_RET(keeldv_post_sends(posts, 2), EOPNOTSUPP);
	CHECK_EQ(posts[0].ret, 0);
	CHECK_EQ(posts[1].ret, EOPNOTSUPP);
	CHECK(posts[1].bad_wr == wr[1]);
	check_posted(0, 1);
	finish(2);
}
