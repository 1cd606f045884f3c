// SPDX-License-Identifier: GPL-2.0
/*
 * ibv_req_notify_cq(): which completions raise an event; and the statuses and
 * vendor errors of CQEs.
 */
#include <sched.h>

#include "fake.h"
#include "keeldv.h"

static struct ibv_cq *cq;

static const char *const whys[] = {
#define WHY(name, number, text)						\
	[number] = (text),
	KEEL_UAPI_WHYS(WHY)
};

static void setup(void)
{
	fake_open();
	cq = fake_new_cq(1024);
}

static void finish(void)
{
	CHECK_OK(ibv_destroy_cq(cq));
	fake_close();
}

static void add(uint8_t status, bool solicited)
{
	struct keel_uapi_cqe cqe = { .status = status };

	CHECK_OK(fake_add(cq, &cqe, solicited));
}

static unsigned int events(void)
{
	return fake_cq(cq)->events;
}

TEST(next, "DEV-4", "an armed CQ raises one event for the next CQE, of any kind")
{
	setup();
	add(IBV_WC_SUCCESS, true);
	CHECK_EQ(events(), 0);
	CHECK_OK(ibv_req_notify_cq(cq, 0));
	CHECK_EQ(fake_cq(cq)->ring.head->arm, KEEL_ARM_NEXT);
	CHECK_EQ(events(), 0);
	add(IBV_WC_SUCCESS, false);
	CHECK_EQ(events(), 1);
	CHECK_EQ(fake_cq(cq)->ring.head->arm, KEEL_ARM_NONE);
	add(IBV_WC_SUCCESS, true);
	add(IBV_WC_WR_FLUSH_ERR, true);
	CHECK_EQ(events(), 1);
	finish();
}

TEST(solicited, "DEV-4", "armed for solicited completions, only these and errors raise an event")
{
	setup();
	CHECK_OK(ibv_req_notify_cq(cq, 1));
	CHECK_EQ(fake_cq(cq)->ring.head->arm, KEEL_ARM_SOLICITED);
	add(IBV_WC_SUCCESS, false);
	CHECK_EQ(events(), 0);
	add(IBV_WC_SUCCESS, true);
	CHECK_EQ(events(), 1);
	add(IBV_WC_SUCCESS, true);
	CHECK_EQ(events(), 1);
	CHECK_OK(ibv_req_notify_cq(cq, 1));
	add(IBV_WC_LOC_PROT_ERR, false);
	CHECK_EQ(events(), 2);
	finish();
}

TEST(both, "DEV-4", "arming for any completion includes arming for solicited ones, in either order")
{
	int i;

	setup();
	for (i = 0; i < 2; i++) {
		CHECK_OK(ibv_req_notify_cq(cq, i));
		CHECK_OK(ibv_req_notify_cq(cq, !i));
		CHECK_EQ(fake_cq(cq)->ring.head->arm, KEEL_ARM_NEXT);
		add(IBV_WC_SUCCESS, false);
		CHECK_EQ(events(), i + 1);
	}
	/* Twice the same is once. */
	CHECK_OK(ibv_req_notify_cq(cq, 1));
	CHECK_OK(ibv_req_notify_cq(cq, 2));
	CHECK_EQ(fake_cq(cq)->ring.head->arm, KEEL_ARM_SOLICITED);
	add(IBV_WC_SUCCESS, true);
	add(IBV_WC_SUCCESS, true);
	CHECK_EQ(events(), 3);
	finish();
}

TEST(resize, "DEV-4", "a CQ that is resized stays armed as it was")
{
	static const struct {
		int solicited;	/* -1: not armed */
		uint32_t arm;
	} cases[] = {
		{ -1, KEEL_ARM_NONE }, { 0, KEEL_ARM_NEXT },
		{ 1, KEEL_ARM_SOLICITED },
	};
	int i;

	setup();
	for (i = 0; i < 3; i++) {
		if (cases[i].solicited >= 0)
			CHECK_OK(ibv_req_notify_cq(cq, cases[i].solicited));
		CHECK_OK(ibv_resize_cq(cq, 64 << i));
		CHECK_EQ(to_kcq(cq)->ring.shared->arm, cases[i].arm);
		add(IBV_WC_SUCCESS, false);
		CHECK_EQ(events(), i == 1 || i == 2);
		/* Arm it afterwards: the provider uses the new ring. */
		CHECK_OK(ibv_req_notify_cq(cq, 0));
		CHECK_EQ(fake_cq(cq)->ring.head->arm, KEEL_ARM_NEXT);
		fake_cq(cq)->ring.head->arm = KEEL_ARM_NONE;
	}
	finish();
}

TEST(polling, "DEV-4", "the thread that polls a CQ can arm it between start and end poll")
{
	struct ibv_cq_init_attr_ex attr = { .cqe = 4 };
	struct ibv_poll_cq_attr poll = {};
	struct ibv_cq_ex *ex;

	fake_open();
	ex = MUST(ibv_create_cq_ex(fake.ctx, &attr));
	cq = ibv_cq_ex_to_cq(ex);
	add(IBV_WC_SUCCESS, false);
	CHECK_OK(ibv_start_poll(ex, &poll));
	CHECK_OK(ibv_req_notify_cq(cq, 0));
	CHECK_EQ(fake_cq(cq)->ring.head->arm, KEEL_ARM_NEXT);
	ibv_end_poll(ex);
	/* Outside, it takes the lock and drops it. */
	fake_locks = 0;
	CHECK_OK(ibv_req_notify_cq(cq, 0));
	CHECK_EQ(fake_locks, 1);
	CHECK_RET(ibv_start_poll(ex, &poll), ENOENT);
	finish();
}

static void *arm_other(void *done)
{
	CHECK_OK(ibv_req_notify_cq(cq, 0));
	atomic_store((atomic_bool *)done, true);
	return (void *)(uintptr_t)fake_locks;
}

TEST(other_thread, "DEV-4", "a thread that arms a CQ waits for another one that polls it")
{
	struct ibv_cq_init_attr_ex attr = { .cqe = 4 };
	struct ibv_poll_cq_attr poll = {};
	atomic_bool done = false;
	struct ibv_cq_ex *ex;
	pthread_t thread;
	unsigned int locks;
	void *result;

	fake_open();
	ex = MUST(ibv_create_cq_ex(fake.ctx, &attr));
	cq = ibv_cq_ex_to_cq(ex);
	add(IBV_WC_SUCCESS, false);
	CHECK_OK(ibv_start_poll(ex, &poll));
	locks = fake_all_locks;
	CHECK_OK(pthread_create(&thread, NULL, arm_other, &done));
	while (fake_all_locks == locks && !done)
		sched_yield();
	CHECK(!done);
	CHECK_EQ(fake_cq(cq)->ring.head->arm, KEEL_ARM_NONE);
	ibv_end_poll(ex);
	CHECK_OK(pthread_join(thread, &result));
	CHECK_EQ((uintptr_t)result, 1);
	CHECK_EQ(fake_cq(cq)->ring.head->arm, KEEL_ARM_NEXT);
	finish();
}

TEST(statuses, "DEV-4", "every status and vendor error arrives as the kernel wrote it, and has a text")
{
	struct keel_uapi_cqe cqe = {};
	struct ibv_wc wc;
	uint32_t why;
	int status;

	setup();
	for (status = 0; status <= IBV_WC_TM_RNDV_INCOMPLETE; status++) {
		for (why = 0; why <= KEEL_WHY_PSN; why++) {
			cqe.status = status;
			cqe.vendor_err = why;
			CHECK_OK(fake_add(cq, &cqe, false));
			CHECK_EQ(ibv_poll_cq(cq, 1, &wc), 1);
			CHECK_EQ(wc.status, status);
			CHECK_EQ(wc.vendor_err, why);
		}
	}
	for (why = 0; why <= KEEL_WHY_PSN; why++)
		CHECK_STR(keeldv_why_str(why), whys[why]);
	CHECK_STR(keeldv_why_str(KEEL_WHY_PSN + 1), "unknown");
	CHECK_STR(keeldv_why_str(UINT32_MAX), "unknown");
	finish();
}

TEST(channels, "DEV-4", "a CQ is created with its completion channel and vector")
{
	struct ibv_comp_channel channel = { .fd = 77 };
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 1, .channel = &channel, .comp_vector = 3,
	};
	struct ibv_cq_ex *ex;

	fake_open();
	channel.context = fake.ctx;
	ex = MUST(ibv_create_cq_ex(fake.ctx, &attr));
	CHECK_EQ(fake_cq(ibv_cq_ex_to_cq(ex))->channel_fd, 77);
	CHECK_EQ(fake_cq(ibv_cq_ex_to_cq(ex))->vector, 3);
	cq = MUST(ibv_create_cq(fake.ctx, 1, NULL, &channel, 2));
	CHECK_EQ(fake_cq(cq)->channel_fd, 77);
	CHECK_EQ(fake_cq(cq)->vector, 2);
	CHECK_EQ(channel.refcnt, 2);
	CHECK_OK(ibv_destroy_cq(ibv_cq_ex_to_cq(ex)));
	CHECK_OK(ibv_destroy_cq(cq));
	cq = fake_new_cq(1);
	CHECK_EQ(fake_cq(cq)->channel_fd, -1);
	finish();
}
