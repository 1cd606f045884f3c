// SPDX-License-Identifier: GPL-2.0
/*
 * Packets that the thread of the link executes itself: far_now.c. now.h says how the test sees
 * that. now_answer_test.c has the answers.
 */
#include <kunit/static_stub.h>
#include <linux/suspend.h>

#include "far_long.h"
#include "now.h"

#define FAA		IB_WR_ATOMIC_FETCH_AND_ADD
#define CAS		IB_WR_ATOMIC_CMP_AND_SWP
#define INVALID		IB_WC_REM_INV_REQ_ERR
/* Packets that the thread executes for one that comes again, and more than these. */
#define LATE		4
#define BEHIND		(LATE + 2)

/* Number of calls of keel_far_run_once() that were replaced. */
static u32 now_tries;

static bool now_try(struct keel_far *far, bool late)
{
	now_tries++;
	return false;
}

/* Count the packets that the thread would execute, and leave them to the work. */
static void now_count(struct kunit *test)
{
	now_tries = 0;
	kunit_activate_static_stub(test, keel_far_run_once, now_try);
}

/**
 * struct now_case - a packet that is a whole message
 * @desc: its name
 * @opcode: its operation
 * @len: bytes of its data
 * @left: bytes of the message
 * @bytes: bytes that it asks for
 * @tries: does the thread of the link try to execute it?
 * @patient: could the answer wait?
 * @status: status of the answer
 */
struct now_case {
	const char *desc;
	u8 opcode;
	u32 len, left, bytes;
	bool tries, patient;
	u8 status;
};

static const struct now_case now_cases[] = {
	{ "empty send", IB_WR_SEND, 0, 0, 0, true, true },
	{ "send", IB_WR_SEND, 64, 64, 0, true, true },
	{ "send, a whole frame", IB_WR_SEND, PACKET, PACKET, 0, true, true },
	{ "send with immediate data", IB_WR_SEND_WITH_IMM, 64, 64, 0, true, true },
	{ "send with invalidate", IB_WR_SEND_WITH_INV, 64, 64, 0, false, true },
	{ "long send", IB_WR_SEND, PACKET + 1, PACKET + 1, 0, false, false },
	{ "write", IB_WR_RDMA_WRITE, 64, 64, 0, true, true },
	{ "write, a whole frame", IB_WR_RDMA_WRITE, PACKET, PACKET, 0, true, true },
	{ "write with immediate data", IB_WR_RDMA_WRITE_WITH_IMM, 64, 64, 0, true, true },
	{ "long write", IB_WR_RDMA_WRITE, PACKET + 1, PACKET + 1, 0, false, false },
	{ "read", IB_WR_RDMA_READ, 0, 64, 64, true, false },
	{ "read, a whole frame", IB_WR_RDMA_READ, 0, PACKET, PACKET, true, false },
	{ "long read", IB_WR_RDMA_READ, 0, PACKET + 1, PACKET + 1, false, false },
	{ "fetch-and-add", FAA, 0, 8, 0, true, false },
	{ "compare-and-swap", CAS, 0, 8, 0, true, false },
	{ "atomic write", IB_WR_ATOMIC_WRITE, 8, 8, 0, true, false },
	{ "flush without the right", IB_WR_FLUSH, 0, 64, 0, false, false, INVALID },
	{ "local invalidate", IB_WR_LOCAL_INV, 0, 0, 0, false, false, INVALID },
};

KUNIT_ARRAY_PARAM_DESC(now, now_cases, desc);

static struct keel_frame now_packet(struct far_host *h, u32 nr, const struct now_case *c)
{
	struct keel_frame frame = far_packet(h, nr, c->opcode, ONLY, c->len, c->left);

	frame.request.bytes = cpu_to_le32(c->bytes);
	if (c->opcode == IB_WR_SEND_WITH_INV)
		frame.request.imm = cpu_to_le32(h->p->closed->rkey);
	if (c->opcode == IB_WR_FLUSH)
		frame.request.kind = cpu_to_le16(IB_FLUSH_GLOBAL);
	if (c->len > PACKET)
		frame.chunk = cpu_to_le16(1);
	return frame;
}

/* A host that may send a long packet. The next one is number 1, and has a receive WQE. */
static struct far_host *now_make(struct kunit *test)
{
	struct far_host *h;
	u8 *buf;

	h = far_long_make(test, &buf);
	far_long_grow(h);
	far_host_recycle(h);
	h->qp->far->answered_at = 0;
	end_recv(h->p, &h->p->b, 5, 0, PAIR_BYTES);
	return h;
}

/* HOST-1: the thread of the link tries short packets only; all are executed, and answered. */
static void host_1_tries(struct kunit *test)
{
	const struct now_case *c = test->param_value;
	struct far_host *h = now_make(test);
	struct keel_frame frame = now_packet(h, 1, c);

	now_own(test);
	now_count(test);
	far_request(h, &frame);
	KUNIT_EXPECT_EQ(test, c->tries, now_tries);
	far_answered(h, 0, 1, KEEL_RESULT_DONE, c->status);
	KUNIT_EXPECT_EQ(test, c->patient, h->qp->far->answered_at != 0);
	KUNIT_EXPECT_EQ(test, 1, far_host_wait(h, 1));
	KUNIT_EXPECT_EQ(test, 0, far_requests_n(h));
}

/* The thread does not try a short packet, and the work executes it. */
static void now_leaves(struct kunit *test, struct far_host *h)
{
	struct keel_frame frame = far_packet(h, 1, IB_WR_SEND, ONLY, 64, 64);

	now_count(test);
	far_request(h, &frame);
	KUNIT_EXPECT_EQ(test, 0, now_tries);
	far_answered(h, 0, 1, KEEL_RESULT_DONE, IB_WC_SUCCESS);
}

/* ISO-2: nor does it try a packet for a QP that no process of a user owns. */
static void iso_2_no_owner(struct kunit *test)
{
	now_leaves(test, now_make(test));
}

/* ISO-2: nor while the link is busy. */
static void iso_2_busy(struct kunit *test)
{
	struct far_host *h = now_make(test);

	now_own(test);
	h->link.busy = true;
	now_leaves(test, h);
}

/* ISO-2: nor while the machine goes to sleep. */
static void iso_2_asleep(struct kunit *test)
{
	struct far_host *h = now_make(test);
	struct keel_frame frame = far_packet(h, 2, IB_WR_SEND, ONLY, 64, 64);

	now_own(test);
	keel_wire_sleep(NULL, PM_SUSPEND_PREPARE, NULL);
	/* A program that hibernates it may do so in between. */
	keel_wire_sleep(NULL, PM_HIBERNATION_PREPARE, NULL);
	keel_wire_sleep(NULL, PM_POST_SUSPEND, NULL);
	now_leaves(test, h);
	keel_wire_sleep(NULL, PM_POST_HIBERNATION, NULL);
	end_recv(h->p, &h->p->b, 5, 0, PAIR_BYTES);
	far_request(h, &frame);
	KUNIT_EXPECT_EQ(test, 1, now_tries);
}

/* HOST-2: but it does so if a packet that the process has not executed comes again. */
static void host_2_again(struct kunit *test)
{
	struct far_host *h = now_make(test);
	struct keel_frame frame = far_packet(h, 1, IB_WR_SEND, ONLY, 64, 64);

	now_own(test);
	now_count(test);
	h->link.busy = true;
	/* Nobody else executes it. */
	scoped_guard(mutex, &h->qp->far->from.lock) {
		far_request(h, &frame);
		KUNIT_EXPECT_EQ(test, 0, now_tries);
		far_request(h, &frame);
		KUNIT_EXPECT_GE(test, now_tries, 1);
	}
	keel_qp_schedule(h->qp);
	far_answered(h, 0, 1, KEEL_RESULT_DONE, IB_WC_SUCCESS);
}

/* HOST-1: nor a part of a message. */
static void host_1_parts(struct kunit *test)
{
	const u8 flags[] = { FIRST, 0, LAST };
	struct far_host *h = now_make(test);
	struct keel_frame frame;
	u32 i;

	now_own(test);
	now_count(test);
	for (i = 0; i < ARRAY_SIZE(flags); i++) {
		frame = far_packet(h, 1 + i, IB_WR_SEND, flags[i], PACKET, (3 - i) * PACKET);
		far_request(h, &frame);
		far_answered(h, i, 1 + i, KEEL_RESULT_DONE, IB_WC_SUCCESS);
		KUNIT_EXPECT_EQ(test, 0, h->qp->far->answered_at);
	}
	KUNIT_EXPECT_EQ(test, 0, now_tries);
	pair_settle(h->p, &h->p->b, 1);
	KUNIT_EXPECT_EQ(test, 3 * PACKET, h->p->b.wc[0].byte_len);
}

/* A host with an open link. */
static struct far_host *now_open(struct kunit *test)
{
	struct far_host *h = far_host_make(test, IB_QPS_RTS);

	far_host_open(h);
	now_own(test);
	return h;
}

/* The thread executes a send of 64 bytes. Return: number of frames that the QP has sent then. */
static u32 now_send(struct far_host *h, u32 nr)
{
	struct keel_frame frame = far_packet(h, nr, IB_WR_SEND, ONLY, 64, 64);

	memset(h->data, 0x10 + nr, 64);
	now_watch(h);
	keel_far_ops.request(&h->link, &frame, h->data);
	KUNIT_EXPECT_GE(h->p->test, atomic_read(&now.far[true]), 1);
	return now_sent(h);
}

/* HOST-1: a short message is executed and answered at once, without the work of the QP. */
static void host_1_executed(struct kunit *test)
{
	struct far_host *h = now_open(test);
	struct end *b = &h->p->b;
	u32 i;

	for (i = 0; i < 3; i++)
		end_recv(h->p, b, 5 + i, i * 64, 64);
	for (i = 0; i < 3; i++) {
		KUNIT_EXPECT_EQ(test, i + 1, now_send(h, i));
		KUNIT_EXPECT_EQ(test, 1, atomic_read(&now.far[true]));
		KUNIT_EXPECT_EQ(test, 0, far_requests_n(h));
		end_collect(b);
		KUNIT_ASSERT_EQ(test, i + 1, b->wcs);
		KUNIT_EXPECT_EQ(test, 5 + i, b->wc[i].wr_id);
		KUNIT_EXPECT_EQ(test, IB_WC_SUCCESS, b->wc[i].status);
		KUNIT_EXPECT_EQ(test, 64, b->wc[i].byte_len);
		KUNIT_EXPECT_NULL(test, memchr_inv(b->buf + i * 64, 0x10 + i, 64));
		now_worked(h, false);
		far_answered(h, i, i, KEEL_RESULT_DONE, IB_WC_SUCCESS);
		KUNIT_EXPECT_EQ(test, i + 1, now_sent(h));
	}
}

/* HOST-1: without a receive WQE, the answer is the same as that of the worker. */
static void host_1_rnr(struct kunit *test)
{
	struct far_host *h = now_open(test);

	KUNIT_EXPECT_EQ(test, 1, now_send(h, 0));
	now_worked(h, false);
	far_answered(h, 0, 0, KEEL_RESULT_RNR, IB_WC_SUCCESS);
	KUNIT_EXPECT_EQ(test, 1, h->sent[0]->frame->answer.rnr);
	KUNIT_EXPECT_EQ(test, 0, h->qp->far->answered_at);
	far_nothing_ended(h);
	/* It comes again. */
	end_recv(h->p, &h->p->b, 5, 0, 64);
	KUNIT_EXPECT_EQ(test, 2, now_send(h, 0));
	now_worked(h, false);
	far_answered(h, 1, 0, KEEL_RESULT_DONE, IB_WC_SUCCESS);
	end_collect(&h->p->b);
	KUNIT_EXPECT_EQ(test, 1, h->p->b.wcs);
}

/* HOST-2: without a buffer for the answer, the packet is executed; the link has it answered. */
static void host_2_no_buffer(struct kunit *test)
{
	struct far_host *h = far_host_make(test, IB_QPS_RTS);

	now_own(test);
	end_recv(h->p, &h->p->b, 5, 0, 64);
	KUNIT_EXPECT_EQ(test, 0, now_send(h, 0));
	now_worked(h, false);
	end_collect(&h->p->b);
	KUNIT_EXPECT_EQ(test, 1, h->p->b.wcs);
	KUNIT_EXPECT_EQ(test, 1, far_requests_n(h));
	far_host_open(h);
	far_answered(h, 0, 0, KEEL_RESULT_DONE, IB_WC_SUCCESS);
	KUNIT_EXPECT_EQ(test, 0, far_requests_n(h));
}

/* HOST-2: a packet that comes again after it was executed is answered, also on a busy link. */
static void host_2_repeated(struct kunit *test)
{
	struct far_host *h = now_open(test);

	end_recv(h->p, &h->p->b, 5, 0, 64);
	KUNIT_EXPECT_EQ(test, 1, now_send(h, 0));
	WRITE_ONCE(h->link.busy, true);
	/* At once, without the work of the QP: the process may be stopped. */
	KUNIT_EXPECT_EQ(test, 2, now_send(h, 0));
	now_worked(h, false);
	far_answered(h, 1, 0, KEEL_RESULT_DONE, IB_WC_SUCCESS);
	KUNIT_EXPECT_EQ(test, 0, far_requests_n(h));
	end_collect(&h->p->b);
	KUNIT_EXPECT_EQ(test, 1, h->p->b.wcs);
}

/* HOST-2: so it is if there was no buffer for the first answer. */
static void host_2_no_answer(struct kunit *test)
{
	struct far_host *h = far_host_make(test, IB_QPS_RTS);

	now_own(test);
	end_recv(h->p, &h->p->b, 5, 0, 64);
	KUNIT_EXPECT_EQ(test, 0, now_send(h, 0));
	scoped_guard(spinlock, &h->link.lock) {
		h->link.up = &h->conn;
		h->link.epoch++;
		WRITE_ONCE(h->link.busy, true);
	}
	KUNIT_EXPECT_LE(test, 1, now_send(h, 0));
	KUNIT_EXPECT_EQ(test, 1, now.answers);
	far_answered(h, 0, 0, KEEL_RESULT_DONE, IB_WC_SUCCESS);
	end_collect(&h->p->b);
	KUNIT_EXPECT_EQ(test, 1, h->p->b.wcs);
}

/* A packet has come to a busy link, where the QP does not run, and comes again. */
static void now_late(struct far_host *h, const struct keel_frame *frame)
{
	WRITE_ONCE(h->link.busy, true);
	scoped_guard(mutex, &h->qp->far->from.lock)
		far_request(h, frame);
	now_watch(h);
	keel_far_ops.request(&h->link, frame, h->data);
}

/* The only buffer is for others that were woken, or not. */
static void now_line(struct far_host *h, bool line)
{
	scoped_guard(spinlock, &h->link.lock)
		h->link.nwoken = line;
	guard(spinlock)(&h->conn.lock);
	h->conn.credits = line ? KEEL_LINK_SPARE + KEEL_LINK_RESERVED + 1 : FAR_SENDS;
}

/* HOST-2: a late answer does not wait in turn for a buffer: the process may have no turn. */
static void host_2_line(struct kunit *test)
{
	struct far_host *h = now_open(test);
	struct keel_frame frame = far_packet(h, 0, IB_WR_SEND, ONLY, 64, 64);

	end_recv(h->p, &h->p->b, 5, 0, 64);
	now_line(h, true);
	now_late(h, &frame);
	KUNIT_EXPECT_EQ(test, 1, now_sent(h));
	now_worked(h, false);
	KUNIT_EXPECT_FALSE(test, READ_ONCE(h->qp->far->tx_wait.waits));
	now_line(h, false);
	far_answered(h, 0, 0, KEEL_RESULT_DONE, IB_WC_SUCCESS);
}

/* HOST-4: that of a read does, and so does one that is not late. */
static void host_4_line(struct kunit *test)
{
	struct far_host *h = now_open(test);
	struct keel_frame frame = far_packet(h, 1, IB_WR_RDMA_READ, ONLY, 0, 64);
	u32 n;

	frame.request.bytes = cpu_to_le32(64);
	end_recv(h->p, &h->p->b, 5, 0, 64);
	now_line(h, true);
	KUNIT_EXPECT_EQ(test, 0, now_send(h, 0));
	now_line(h, false);
	far_host_settle(h);
	KUNIT_EXPECT_EQ(test, 0, now_sent(h));
	n = now_send(h, 0);
	KUNIT_EXPECT_GE(test, n, 1);
	now_line(h, true);
	now_late(h, &frame);
	KUNIT_EXPECT_EQ(test, n, now_sent(h));
	KUNIT_EXPECT_NE(test, 0, atomic_read(&now.far[true]));
	now_line(h, false);
}

/* HOST-1: nor does a refusal, after which the QP answers nothing. */
static void host_1_refused(struct kunit *test)
{
	struct far_host *h = now_open(test);
	struct keel_frame frame = far_packet(h, 0, IB_WR_RDMA_READ, ONLY, 0, 64);

	frame.request.bytes = cpu_to_le32(64);
	frame.request.rkey = 0;
	now_line(h, true);
	now_watch(h);
	keel_far_ops.request(&h->link, &frame, h->data);
	KUNIT_EXPECT_EQ(test, 1, now_sent(h));
	far_answered(h, 0, 0, KEEL_RESULT_DONE, IB_WC_REM_ACCESS_ERR);
	KUNIT_EXPECT_FALSE(test, READ_ONCE(h->qp->far->tx_wait.waits));
	now_line(h, false);
}

/* HOST-2: a packet that was executed before does not have the turn of a late one behind it. */
static void host_2_late_behind(struct kunit *test)
{
	struct far_host *h = now_open(test);
	struct keel_frame frame = far_packet(h, 0, IB_WR_SEND, ONLY, 64, 64);
	u32 i;

	for (i = 0; i < 2; i++)
		end_recv(h->p, &h->p->b, 5 + i, i * 64, 64);
	KUNIT_EXPECT_EQ(test, 1, now_send(h, 0));
	WRITE_ONCE(h->link.busy, true);
	scoped_guard(mutex, &h->qp->far->from.lock)
		far_request(h, &frame);
	KUNIT_EXPECT_EQ(test, 1, far_requests_n(h));
	frame = far_packet(h, 1, IB_WR_SEND, ONLY, 64, 64);
	now_late(h, &frame);
	KUNIT_EXPECT_EQ(test, 3, now_sent(h));
	now_worked(h, false);
	far_answered(h, 1, 0, KEEL_RESULT_DONE, IB_WC_SUCCESS);
	far_answered(h, 2, 1, KEEL_RESULT_DONE, IB_WC_SUCCESS);
	KUNIT_EXPECT_EQ(test, 0, far_requests_n(h));
}

/* ISO-2: packets of UC that the QP cannot keep do not come again. */
static void iso_2_uc_busy(struct kunit *test)
{
	struct far_host *h = far_host_make_type(test, IB_QPT_UC, IB_QPS_RTS);
	struct keel_frame frame;
	u32 i;

	far_host_open(h);
	now_own(test);
	now_count(test);
	WRITE_ONCE(h->link.busy, true);
	/* Nobody else executes them. */
	scoped_guard(mutex, &h->qp->far->from.lock)
		for (i = 0; i < KEEL_FAR_WINDOW + 2; i++) {
			frame = far_packet(h, i, IB_WR_SEND, ONLY, 64, 64);
			far_request(h, &frame);
		}
	KUNIT_EXPECT_EQ(test, 0, now_tries);
}

/* HOST-2: the work executes the packets behind the first one, which had no buffer. */
static void host_2_behind(struct kunit *test)
{
	struct far_host *h = far_host_make(test, IB_QPS_RTS);
	u32 i;

	now_own(test);
	for (i = 0; i < BEHIND; i++)
		end_recv(h->p, &h->p->b, 5 + i, i * 64, 64);
	for (i = 0; i < BEHIND; i++)
		KUNIT_EXPECT_EQ(test, 0, now_send(h, i));
	KUNIT_EXPECT_EQ(test, BEHIND, far_requests_n(h));
	scoped_guard(spinlock, &h->link.lock) {
		h->link.up = &h->conn;
		h->link.epoch++;
	}
	/* A repetition of the last one: the thread sends some answers, and leaves the rest. */
	KUNIT_EXPECT_LE(test, 1, now_send(h, BEHIND - 1));
	KUNIT_EXPECT_EQ(test, 1, now.answers);
	KUNIT_EXPECT_EQ(test, LATE, atomic_read(&now.far[true]));
	now_worked(h, true);
	for (i = 0; i < BEHIND; i++)
		far_answered(h, i, i, KEEL_RESULT_DONE, IB_WC_SUCCESS);
	end_collect(&h->p->b);
	KUNIT_EXPECT_EQ(test, BEHIND, h->p->b.wcs);
	KUNIT_EXPECT_EQ(test, 0, far_requests_n(h));
}

/* HOST-2: the thread leaves it to the work if the first packet is not short. */
static void host_2_not_first(struct kunit *test)
{
	struct far_host *h = far_host_make(test, IB_QPS_RTS);
	struct keel_frame frame = far_packet(h, 0, IB_WR_SEND_WITH_INV, ONLY, 64, 64);
	u32 i;

	now_own(test);
	for (i = 0; i < 2; i++)
		end_recv(h->p, &h->p->b, 5 + i, i * 64, 64);
	frame.request.imm = cpu_to_le32(h->p->closed->rkey);
	far_request(h, &frame);
	scoped_guard(spinlock, &h->link.lock) {
		h->link.up = &h->conn;
		h->link.epoch++;
	}
	/* The answer to the first one is still to be sent. */
	KUNIT_EXPECT_EQ(test, 1, far_requests_n(h));
	now_send(h, 1);
	KUNIT_EXPECT_EQ(test, 0, now.answers);
	now_worked(h, true);
	for (i = 0; i < 2; i++)
		far_answered(h, i, i, KEEL_RESULT_DONE, IB_WC_SUCCESS);
	end_collect(&h->p->b);
	KUNIT_EXPECT_EQ(test, 2, h->p->b.wcs);
}

/* The thread that has freed the QP of now_last(). */
static struct task_struct *now_freed_by;
static const struct keel_obj_ops *now_ops;

static void now_freed(struct keel_obj *obj)
{
	WRITE_ONCE(now_freed_by, current);
	now_ops->release(obj);
}

/* The QP is destroyed meanwhile. */
static bool now_destroy(struct keel_far *far, bool late)
{
	struct pair *p = current->kunit_test->priv;

	KUNIT_EXPECT_EQ(p->test, 0, ib_destroy_qp(p->b.qp));
	p->b.qp = NULL;
	return true;
}

/* ISO-1: the thread frees no QP: pages of its rings may be locked for long. */
static void iso_1_last(struct kunit *test)
{
	struct far_host *h = far_host_make(test, IB_QPS_RTS);
	struct keel_frame frame = far_packet(h, 0, IB_WR_SEND, ONLY, 64, 64);
	struct keel_obj_ops ops = *h->qp->obj.ops;

	now_freed_by = NULL;
	now_ops = h->qp->obj.ops;
	ops.release = now_freed;
	h->qp->obj.ops = &ops;
	now_own(test);
	kunit_activate_static_stub(test, keel_far_run_once, now_destroy);
	/* Not far_request(), which uses the QP afterwards. */
	keel_far_ops.request(&h->link, &frame, h->data);
	keel_worker_settle();
	KUNIT_EXPECT_NOT_NULL(test, READ_ONCE(now_freed_by));
	KUNIT_EXPECT_PTR_NE(test, current, READ_ONCE(now_freed_by));
}

static struct kunit_case far_now_cases[] = {
	KUNIT_CASE_PARAM(host_1_tries, now_gen_params),
	KUNIT_CASE(iso_2_no_owner),
	KUNIT_CASE(iso_2_busy),
	KUNIT_CASE(iso_2_asleep),
	KUNIT_CASE(host_2_again),
	KUNIT_CASE(host_1_parts),
	KUNIT_CASE(host_1_executed),
	KUNIT_CASE(host_1_rnr),
	KUNIT_CASE(host_2_no_buffer),
	KUNIT_CASE(host_2_repeated),
	KUNIT_CASE(host_2_no_answer),
	KUNIT_CASE(host_2_line),
	KUNIT_CASE(host_4_line),
	KUNIT_CASE(host_1_refused),
	KUNIT_CASE(host_2_late_behind),
	KUNIT_CASE(iso_2_uc_busy),
	KUNIT_CASE(host_2_behind),
	KUNIT_CASE(host_2_not_first),
	KUNIT_CASE(iso_1_last),
	{}
};

static struct kunit_suite far_now_suite = {
	.name = "keel_far_now",
	.suite_init = pair_suite_init,
	.suite_exit = pair_suite_exit,
	.init = pair_init,
	.exit = now_exit,
	.test_cases = far_now_cases,
};
kunit_test_suite(far_now_suite);
