// SPDX-License-Identifier: GPL-2.0
/*
 * keeldv_poll_sends(), and posts to send queues that the kernel polls.
 */
#include <sys/wait.h>

#include "fake.h"
#include "keeldv.h"

#define WRS	8

static struct ibv_sge sge = { 0x1000, 64, 0x11 };
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mw *mw;
static struct fake_qp *fqp;

static void setup(void)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_RC, .send_ops_flags = IBV_QP_EX_WITH_SEND,
		.cap = { .max_send_wr = WRS, .max_recv_wr = WRS,
			 .max_send_sge = 1, .max_recv_sge = 1 },
	};

	fake_open();
	pd = MUST(ibv_alloc_pd(fake.ctx));
	cq = fake_new_cq(16);
	mw = MUST(ibv_alloc_mw(pd, IBV_MW_TYPE_1));
	qp = fake_new_qp_ex(pd, cq, &attr);
	fqp = fake_qp(qp);
}

static void finish(void)
{
	CHECK_OK(ibv_destroy_qp(qp));
	CHECK_OK(ibv_dealloc_mw(mw));
	CHECK_OK(ibv_destroy_cq(cq));
	CHECK_OK(ibv_dealloc_pd(pd));
	fake_close();
}

static int send(void)
{
	struct ibv_send_wr wr = {
		.wr_id = 1, .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1,
	};
	struct ibv_send_wr *bad = NULL;
	int ret = ibv_post_send(qp, &wr, &bad);

	CHECK(bad == (ret ? &wr : NULL));
	return ret;
}

static int batch(void)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);

	ibv_wr_start(ex);
	ex->wr_id = 1;
	ex->wr_flags = 0;
	ibv_wr_send(ex);
	ibv_wr_set_sge(ex, 0x11, 0x1000, 64);
	return ibv_wr_complete(ex);
}

static int bind(void)
{
	struct ibv_mw_bind bind = { .wr_id = 1 };

	return ibv_bind_mw(qp, mw, &bind);
}

static int sends(void)
{
	struct ibv_send_wr wr = {
		.wr_id = 1, .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1,
	};
	struct keeldv_post post = { .qp = qp, .wr = &wr };

	return keeldv_post_sends(&post, 1);
}

static int (*const posts[])(void) = { send, batch, bind, sends };

/* Post in each way: each WQE is in the ring, and there are so many doorbells for each. */
static void check_posts(uint32_t flags, unsigned int doorbells)
{
	unsigned int i;

	for (i = 0; i < sizeof(posts) / sizeof(*posts); i++) {
		fqp->sq.head->flags = flags;
		fqp->doorbells = 0;
		CHECK_RET(posts[i](), 0);
		CHECK_EQ(fqp->doorbells, doorbells);
		fake_take(&fqp->sq, 1);
	}
}

TEST(doorbells, "DEV-4", "posts to a polled queue ring no doorbell, in whatever way they are posted; others do")
{
	setup();
	check_posts(0, 1);
	/* Of other processes, which this one has not asked for. */
	check_posts(KEEL_RING_F_POLLED, 1);
	CHECK_RET(keeldv_poll_sends(fake.ctx, 50), 0);
	check_posts(KEEL_RING_F_POLLED, 0);
	check_posts(~0U, 0);
	check_posts(0, 1);
	check_posts(~KEEL_RING_F_POLLED, 1);
	CHECK_RET(keeldv_poll_sends(fake.ctx, 0), 0);
	check_posts(KEEL_RING_F_POLLED, 1);
	finish();
}

TEST(gone, "DEV-3", "after device removal, posts to a queue that was polled return the error of the doorbell")
{
	unsigned int i;

	setup();
	CHECK_RET(keeldv_poll_sends(fake.ctx, 50), 0);
	fake_gone();
	for (i = 0; i < sizeof(posts) / sizeof(*posts); i++) {
		fqp->sq.head->flags = KEEL_RING_F_POLLED;
		fake.fail[FAKE_QP_DOORBELL] = EIO;
		fake.fail[FAKE_QP_DOORBELLS] = EIO;
		CHECK_RET(posts[i](), EIO);
		fake.fail[FAKE_QP_DOORBELLS] = 0;
	}
	finish();
}

TEST(receives, "DEV-4", "a receive WQE of a queue pair that is polled rings the doorbell that the kernel requests")
{
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	setup();
	CHECK_RET(keeldv_poll_sends(fake.ctx, 50), 0);
	fqp->sq.head->flags = KEEL_RING_F_POLLED;
	fqp->rq.head->flags = KEEL_RING_F_DOORBELL;
	CHECK_OK(ibv_post_recv(qp, &wr, &bad));
	CHECK_EQ(fqp->doorbells, 1);
	finish();
}

TEST(call, "DEV-4", "keeldv_poll_sends() passes the time on, repeats an interrupted call, and returns each error")
{
	struct verbs_device other = {};
	struct ibv_context alien = { .device = &other.device };

	setup();
	CHECK_RET(keeldv_poll_sends(fake.ctx, KEELDV_POLL_SENDS_MAX), 0);
	CHECK_EQ(fake.poll_us, KEELDV_POLL_SENDS_MAX);
	fake.fail[FAKE_POLL] = EINTR;
	CHECK_RET(keeldv_poll_sends(fake.ctx, 7), 0);
	CHECK_EQ(fake.calls[FAKE_POLL], 3);
	CHECK_EQ(fake.poll_us, 7);
	CHECK_RET(keeldv_poll_sends(fake.ctx, 0), 0);
	CHECK_EQ(fake.poll_us, 0);
	/* A call that fails does not begin polling. */
	fake.fail[FAKE_POLL] = EAGAIN;
	CHECK_RET(keeldv_poll_sends(fake.ctx, 50), EAGAIN);
	check_posts(KEEL_RING_F_POLLED, 1);
	fake.fail[FAKE_POLL] = EPROTONOSUPPORT;
	CHECK_RET(keeldv_poll_sends(fake.ctx, 50), EOPNOTSUPP);
	CHECK_RET(keeldv_poll_sends(NULL, 50), EINVAL);
	CHECK_RET(keeldv_poll_sends(&alien, 50), EOPNOTSUPP);
	CHECK_EQ(fake.calls[FAKE_POLL], 6);
	finish();
}

/* A queue pair with the number of the process. */
static void again(void)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_RC, .send_ops_flags = IBV_QP_EX_WITH_SEND,
		.cap = { .max_send_wr = WRS, .max_recv_wr = WRS,
			 .max_send_sge = 1, .max_recv_sge = 1 },
	};

	CHECK_OK(ibv_destroy_qp(qp));
	qp = fake_new_qp_ex(pd, cq, &attr);
	fqp = fake_qp(qp);
}

TEST(forked, "ISO-1", "a child of fork() rings doorbells for the queue pairs of its parent, even if it has asked for polling, which is for its own")
{
	int status;
	pid_t pid;

	setup();
	CHECK_RET(keeldv_poll_sends(fake.ctx, 50), 0);
	pid = SYS(fork());
	if (!pid) {
		check_posts(KEEL_RING_F_POLLED, 1);
		CHECK_RET(keeldv_poll_sends(fake.ctx, 50), 0);
		check_posts(KEEL_RING_F_POLLED, 1);
		again();
		check_posts(KEEL_RING_F_POLLED, 0);
		_exit(0);
	}
	SYS(waitpid(pid, &status, 0));
	CHECK_EQ(status, 0);
	check_posts(KEEL_RING_F_POLLED, 0);
	finish();
}

/* It is missing each time. */
static void stay_short(enum fake_call call, uint32_t handle)
{
	fake.fail[FAKE_WIPEONFORK] = ENOMEM;
}

TEST(no_page, "DEV-4", "posts to a queue pair that was created while memory was short ring doorbells; later ones do not")
{
	/* The first queue pair of the process: the page for its number is missing. */
	fake.fail[FAKE_WIPEONFORK] = ENOMEM;
	fake.hook = stay_short;
	setup();
	CHECK_RET(keeldv_poll_sends(fake.ctx, 50), 0);
	check_posts(KEEL_RING_F_POLLED, 1);
	fake.hook = NULL;
	fake.fail[FAKE_WIPEONFORK] = 0;
	again();
	check_posts(KEEL_RING_F_POLLED, 0);
	finish();
}

/* Open with KEEL_POLL_SENDS_US, and return the time that the kernel was asked for, or -1. */
static long asked(const char *text)
{
	unsigned int calls = fake.calls[FAKE_POLL];
	long us;

	CHECK_OK(setenv("KEEL_POLL_SENDS_US", text, 1));
	setup();
	us = fake.calls[FAKE_POLL] == calls ? -1 : (long)fake.poll_us;
	check_posts(KEEL_RING_F_POLLED, us > 0 ? 0 : 1);
	finish();
	return us;
}

TEST(variable, "DEV-4", "KEEL_POLL_SENDS_US asks for polling when a device is opened; a wrong value asks for none, and the device opens")
{
	CHECK_EQ(asked("50"), 50);
	CHECK_EQ(asked("1000000"), 1000000);
	CHECK_EQ(asked("0"), 0);
	CHECK_EQ(asked(""), -1);
	CHECK_EQ(asked("1000001"), -1);
	CHECK_EQ(asked("99999999999999999999999"), -1);
	CHECK_EQ(asked("-1"), -1);
	CHECK_EQ(asked("+1"), -1);
	CHECK_EQ(asked(" 1"), -1);
	CHECK_EQ(asked("50us"), -1);
	CHECK_EQ(asked("x"), -1);
	fake.fail[FAKE_POLL] = EOPNOTSUPP;
	setenv("KEEL_POLL_SENDS_US", "50", 1);
	setup();
	check_posts(KEEL_RING_F_POLLED, 1);
	finish();
}
