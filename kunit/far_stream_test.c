// SPDX-License-Identifier: GPL-2.0
/*
 * The requester of a UC QP that is connected to another host: it sends no more packets than
 * the other host keeps.
 */
#include "far_host.h"

#define PACKET	KEEL_FRAME_DATA
#define END	(LAST | KEEL_FRAME_F_SOLICITED)

static struct far_host *stream_make(struct kunit *test, u8 **buf)
{
	return far_send_make_type(test, IB_QPT_UC, buf);
}

/* Packets @nr and later, up to @end, are those of a write of @len bytes that began with @nr. */
static void stream_sent(struct far_host *h, u32 i, u32 nr, u32 end, u32 len)
{
	struct kunit *test = h->p->test;
	const struct keel_frame *frame;
	u32 at;

	for (at = 0; nr != end; i++, nr++, at += PACKET) {
		frame = far_sent(h, i, nr);
		KUNIT_EXPECT_EQ(test, len - at, le64_to_cpu(frame->request.left));
		KUNIT_EXPECT_EQ(test, FAR_REMOTE + at, le64_to_cpu(frame->request.addr));
		KUNIT_EXPECT_EQ(test, (at ? 0 : FIRST) | (len - at <= PACKET ? END : 0),
				far_flags(frame));
	}
}

/* Packets that are under way now are waited for without limit, so that no slow guest matters. */
static void stream_patient(struct far_host *h)
{
	guard(mutex)(&h->qp->sq.from.lock);
	h->qp->far->resend_at = U64_MAX;
}

static void stream_ended(struct far_host *h, int wcs)
{
	struct end *b = &h->p->b;

	pair_settle(h->p, b, wcs);
	KUNIT_EXPECT_EQ(h->p->test, wcs, b->wcs);
	KUNIT_EXPECT_EQ(h->p->test, IB_WC_SUCCESS, b->wc[wcs - 1].status);
	KUNIT_EXPECT_EQ(h->p->test, IB_QPS_RTS, end_state(h->p, b));
}

/* HOST-1: more packets than the other host keeps wait for its answers, of any kind. */
static void host_1_uc_window(struct kunit *test)
{
	struct keel_frame answer;
	struct far_host *h;
	u8 *buf;

	h = stream_make(test, &buf);
	/* A message that ends before its answer comes counts, too. */
	far_post(h, IB_WR_RDMA_WRITE, buf, PACKET);
	stream_ended(h, 1);
	stream_patient(h);
	far_post(h, IB_WR_RDMA_WRITE, buf, 10 * PACKET);
	KUNIT_EXPECT_EQ(test, FAR_WHOLE, far_host_wait(h, FAR_WHOLE));
	answer = far_answer(h, 2, IB_WC_SUCCESS);
	answer.answer.result = KEEL_RESULT_NOT_READY;
	far_give(h, &answer);
	KUNIT_EXPECT_EQ(test, 11, far_host_wait(h, 11));
	stream_sent(h, 1, 1, 11, 10 * PACKET);
	stream_ended(h, 2);
	stream_patient(h);
	far_post(h, IB_WR_RDMA_WRITE, buf, 3 * PACKET);
	KUNIT_EXPECT_EQ(test, 11, far_host_wait(h, 11));
	answer = far_answer(h, 5, IB_WC_REM_ACCESS_ERR);
	far_give(h, &answer);
	KUNIT_EXPECT_EQ(test, 14, far_host_wait(h, 14));
	stream_sent(h, 11, 11, 14, 3 * PACKET);
	stream_ended(h, 3);
	KUNIT_EXPECT_EQ(test, 0, far_answers_n(h));
}

/* HOST-3: answers to packets that were not sent, or were answered before, give no room. */
static void host_3_uc_forged(struct kunit *test)
{
	/* From the next packet on. */
	static const s32 forged[] = { 0, 90, -6, -8, KEEL_PSN_MASK / 2 };
	struct keel_frame answer;
	struct far_host *h;
	u32 i, next = 5;
	u8 *buf;

	h = stream_make(test, &buf);
	far_post(h, IB_WR_RDMA_WRITE, buf, next * PACKET);
	stream_ended(h, 1);
	far_give_done(h, 2, 0);
	stream_patient(h);
	for (i = 0; i < ARRAY_SIZE(forged); i++, next++) {
		far_post(h, IB_WR_RDMA_WRITE, buf, PACKET);
		stream_ended(h, 2 + i);
		stream_patient(h);
		scoped_guard(mutex, &h->qp->sq.from.lock) {
			KUNIT_EXPECT_EQ(test, far_psn(3), h->qp->far->una);
			KUNIT_EXPECT_EQ(test, far_psn(next + 1), h->qp->far->next);
		}
		answer = far_answer(h, next + 1 + forged[i], IB_WC_SUCCESS);
		far_give(h, &answer);
	}
}

static void stream_una(struct far_host *h, u32 nr)
{
	guard(mutex)(&h->qp->sq.from.lock);
	KUNIT_EXPECT_EQ(h->p->test, far_psn(nr), h->qp->far->una);
}

/* HOST-1: of several answers, the last one counts, also if they come in another order. */
static void host_1_uc_heard(struct kunit *test)
{
	struct far_host *h;
	u8 *buf;

	h = stream_make(test, &buf);
	far_post(h, IB_WR_RDMA_WRITE, buf, 7 * PACKET);
	stream_ended(h, 1);
	stream_patient(h);
	/* FAR_PSN wraps in between. */
	far_give_done(h, 0, 0);
	far_give_done(h, 4, 0);
	far_give_done(h, 3, 0);
	far_post(h, IB_WR_RDMA_WRITE, buf, PACKET);
	stream_ended(h, 2);
	stream_una(h, 5);
}

/* HOST-1: a message does not wait for answers that are lost since long. */
static void host_1_uc_forget(struct kunit *test)
{
	struct far_host *h;
	u8 *buf;

	h = stream_make(test, &buf);
	far_post(h, IB_WR_RDMA_WRITE, buf, 7 * PACKET);
	stream_ended(h, 1);
	stream_patient(h);
	far_post(h, IB_WR_RDMA_WRITE, buf, 0);
	stream_ended(h, 2);
	stream_una(h, 0);
	scoped_guard(mutex, &h->qp->sq.from.lock) {
		h->qp->far->una = far_psn(1);
		h->qp->far->resend_at = 1;
	}
	far_post(h, IB_WR_RDMA_WRITE, buf, PACKET);
	stream_ended(h, 3);
	stream_una(h, 8);
}

/* HOST-1: if nothing is answered, the message ends all the same, and so do those behind it. */
static void host_1_uc_silent(struct kunit *test)
{
	struct far_host *h;
	u8 *buf;

	h = stream_make(test, &buf);
	far_post(h, IB_WR_RDMA_WRITE, buf, 10 * PACKET);
	far_ended_with(h, IB_WC_SUCCESS, KEEL_WHY_NONE);
	stream_sent(h, 0, 0, 10, 10 * PACKET);
	far_post(h, IB_WR_RDMA_WRITE, buf, 9 * PACKET);
	stream_ended(h, 2);
	stream_sent(h, 10, 10, 19, 9 * PACKET);
}

/* HOST-2: on a new connection, a message of which packets may be lost begins again. */
static void host_2_uc_epoch(struct kunit *test)
{
	struct far_host *h;
	u8 *buf;

	h = stream_make(test, &buf);
	far_post(h, IB_WR_RDMA_WRITE, buf, PACKET);
	stream_ended(h, 1);
	stream_patient(h);
	far_post(h, IB_WR_RDMA_WRITE, buf, 9 * PACKET);
	KUNIT_EXPECT_EQ(test, FAR_WHOLE, far_host_wait(h, FAR_WHOLE));
	scoped_guard(spinlock, &h->link.lock)
		h->link.epoch++;
	far_give_done(h, 0, 0);
	stream_ended(h, 2);
	stream_sent(h, 8, 1, 10, 9 * PACKET);
}

static void stream_link(struct far_host *h, bool up)
{
	guard(spinlock)(&h->link.lock);
	h->link.up = up ? &h->conn : NULL;
	h->link.epoch += !up;
}

/*
 * HOST-2: likewise, if nobody waits for answers any more when the connection is new. The first
 * eight packets are given up after half a second.
 */
static void host_2_uc_epoch_late(struct kunit *test)
{
	struct far_host *h;
	u8 *buf;

	h = stream_make(test, &buf);
	far_post(h, IB_WR_RDMA_WRITE, buf, 9 * PACKET);
	KUNIT_EXPECT_EQ(test, FAR_WHOLE, far_host_wait(h, FAR_WHOLE));
	scoped_guard(mutex, &h->qp->sq.from.lock) {
		h->qp->far->una = h->qp->far->next;
		h->qp->far->resends = 1;
	}
	stream_link(h, false);
	stream_link(h, true);
	far_host_open(h);
	stream_ended(h, 1);
	stream_sent(h, 8, 0, 9, 9 * PACKET);
}

/* In SQD, the address changes, and the link is the same. */
static void stream_again(struct far_host *h)
{
	kref_get(&h->link.ref);
	h->link.users++;
	scoped_guard(mutex, &h->qp->modify_lock)
		KUNIT_EXPECT_EQ(h->p->test, 0, keel_far_give(h->qp, &h->link));
	keel_qp_schedule(h->qp);
	far_host_settle(h);
}

/* HOST-1: a WQE that SQD has stopped before its first packet has its whole time afterwards. */
static void host_1_uc_sqd(struct kunit *test)
{
	struct far_host *h;
	u8 *buf;

	h = stream_make(test, &buf);
	stream_link(h, false);
	far_post(h, IB_WR_RDMA_WRITE, buf, PACKET);
	far_host_settle(h);
	end_move(h->p, &h->p->b, IB_QPS_SQD);
	stream_again(h);
	scoped_guard(mutex, &h->qp->sq.from.lock)
		h->qp->far->deadline = 1;
	end_move(h->p, &h->p->b, IB_QPS_RTS);
	far_host_open(h);
	stream_ended(h, 1);
	stream_sent(h, 0, 0, 1, PACKET);
}

static struct kunit_case far_stream_cases[] = {
	KUNIT_CASE(host_1_uc_window),
	KUNIT_CASE(host_3_uc_forged),
	KUNIT_CASE(host_1_uc_heard),
	KUNIT_CASE(host_1_uc_forget),
	KUNIT_CASE(host_1_uc_silent),
	KUNIT_CASE(host_2_uc_epoch),
	KUNIT_CASE(host_2_uc_epoch_late),
	KUNIT_CASE(host_1_uc_sqd),
	{}
};

static struct kunit_suite far_stream_suite = {
	.name = "keel_far_stream",
	.suite_init = pair_suite_init,
	.suite_exit = pair_suite_exit,
	.init = pair_init,
	.exit = pair_exit,
	.test_cases = far_stream_cases,
};
kunit_test_suite(far_stream_suite);
