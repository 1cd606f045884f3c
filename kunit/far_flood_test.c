// SPDX-License-Identifier: GPL-2.0
/*
 * A host that sends without end to a QP: whoever runs the QP meanwhile is not kept by that.
 */
#include <linux/ktime.h>

#include "far_host.h"
#include "keel_point.h"

/* More than one turn of keel_far_run(). */
#define TURN	(3 * NSEC_PER_MSEC)
/* Without the limit that is tested, the flood ends after so many. */
#define MOST	1000

/**
 * struct flood - what the other host sends while the QP is run
 * @h: the host
 * @answer: one for no packet of the QP
 * @thread: the test
 * @n: how often
 */
struct flood {
	struct far_host *h;
	struct keel_frame answer;
	struct task_struct *thread;
	u32 n;
};

static struct flood flood;

static void flood_answers(const char *name)
{
	if (strcmp(name, "far_collected") || flood.n >= MOST)
		return;
	flood.n++;
	/* The caller has the lock of the send queue. */
	context_unsafe(flood.h->qp->far->deadline = 1);
	keel_far_ops.answer(&flood.h->link, &flood.answer, flood.h->data);
}

/* ISO-1, HOST-3: the time of a message ends although answers come faster than they are read. */
static void iso_1_answers(struct kunit *test)
{
	struct far_host *h;
	u8 *buf;

	h = far_send_make(test, &buf);
	far_post(h, IB_WR_SEND, buf, 8);
	far_sent(h, 0, 0);
	flood = (struct flood){ .h = h, .answer = far_answer(h, 0, IB_WC_SUCCESS) };
	flood.answer.psn = cpu_to_le32(FAR_PSN - 1);
	WRITE_ONCE(keel_point_hook.hit, flood_answers);
	far_give(h, &flood.answer);
	far_ended_with(h, IB_WC_RETRY_EXC_ERR, KEEL_WHY_PEER);
	KUNIT_EXPECT_EQ(test, KEEL_FAR_WINDOW, flood.n);
}

static void flood_packets(const char *name)
{
	u64 end;

	if (strcmp(name, "far_drained") || current != flood.thread || flood.n >= MOST)
		return;
	flood.n++;
	/* Another packet has come, and the turn is over. */
	for (end = ktime_get_ns() + TURN; ktime_get_ns() < end;)
		cpu_relax();
	atomic_set(&flood.h->qp->far->again, 1);
}

/* ISO-1: a turn ends although packets come while an answer waits for a buffer. */
static void iso_1_packets(struct kunit *test)
{
	struct far_host *h = far_host_make(test, IB_QPS_RTS);
	struct keel_frame frame = far_packet(h, 0, IB_WR_SEND, ONLY, 64, 64);

	far_host_open(h);
	end_recv(h->p, &h->p->b, 5, 0, 64);
	scoped_guard(spinlock, &h->conn.lock)
		h->conn.credits = 0;
	far_request(h, &frame);
	KUNIT_EXPECT_EQ(test, 1, far_requests_n(h));
	flood = (struct flood){ .h = h, .thread = current };
	WRITE_ONCE(keel_point_hook.hit, flood_packets);
	keel_far_run(h->qp->far, NULL);
	KUNIT_EXPECT_EQ(test, 1, flood.n);
	far_host_settle(h);
	KUNIT_EXPECT_EQ(test, 0, atomic_read(&h->qp->far->again));
	WRITE_ONCE(keel_point_hook.hit, NULL);
	scoped_guard(spinlock, &h->conn.lock)
		h->conn.credits = FAR_SENDS;
	/* As keel_link_wake() does. */
	keel_link_unwait(&h->link, &h->qp->far->tx_wait);
	keel_qp_schedule(h->qp);
	far_answered(h, 0, 0, KEEL_RESULT_DONE, IB_WC_SUCCESS);
}

static void flood_exit(struct kunit *test)
{
	WRITE_ONCE(keel_point_hook.hit, NULL);
	pair_exit(test);
}

static struct kunit_case far_flood_cases[] = {
	KUNIT_CASE(iso_1_answers),
	KUNIT_CASE(iso_1_packets),
	{}
};

static struct kunit_suite far_flood_suite = {
	.name = "keel_far_flood",
	.suite_init = pair_suite_init,
	.suite_exit = pair_suite_exit,
	.init = pair_init,
	.exit = flood_exit,
	.test_cases = far_flood_cases,
};
kunit_test_suite(far_flood_suite);
