// SPDX-License-Identifier: GPL-2.0
/*
 * XRC QPs that are connected to another host: the SRQ that a packet names, and the transport.
 * far_xrc_owner_test.c has the process that executes a packet.
 */
#include "far_host.h"

#define PACKET	KEEL_FRAME_DATA
#define LONG	(2 * PACKET + 100)
#define SRQN	0x321
#define DONE	KEEL_RESULT_DONE
#define SUCCESS	IB_WC_SUCCESS
#define REQ	IB_WC_REM_INV_REQ_ERR

/* Create another SRQ with a receive WQE for the buffer of the end a. */
static u32 xrc_another(struct pair *p, struct ib_xrcd *xrcd)
{
	p->extra_srq = pair_srq(p, xrcd);
	pair_srq_recv(p, p->extra_srq, &p->a, 6);
	return to_ksrq(p->extra_srq)->srqn;
}

/* Packet @nr of a message of LONG bytes, which begins with packet @first. */
static struct keel_frame xrc_packet(struct far_host *h, u32 first, u32 nr, u8 opcode)
{
	u32 n = nr - first, left = LONG - n * PACKET, len = min(left, PACKET);
	bool read = opcode == IB_WR_RDMA_READ;
	struct keel_frame frame;

	frame = far_packet(h, nr, opcode, (n ? 0 : FIRST) | (n == 2 ? LAST : 0), read ? 0 : len,
			   left);
	frame.request.bytes = cpu_to_le32(read ? len : 0);
	le64_add_cpu(&frame.request.addr, n * PACKET);
	memset(h->data, 0x10 + nr, PACKET);
	return frame;
}

/* The packets of a message from @first on are executed. */
static void xrc_whole(struct far_host *h, u32 first, u8 opcode)
{
	struct keel_frame frame;
	u32 nr;

	for (nr = first; nr < first + 3; nr++) {
		frame = xrc_packet(h, first, nr, opcode);
		far_request(h, &frame);
		far_answered(h, nr, nr, DONE, SUCCESS);
	}
}

static void xrc_bytes(struct far_host *h, u32 first)
{
	const u8 *buf = h->p->b.buf;
	struct kunit *test = h->p->test;

	KUNIT_EXPECT_NULL(test, memchr_inv(buf, 0x10 + first, PACKET));
	KUNIT_EXPECT_NULL(test, memchr_inv(buf + PACKET, 0x11 + first, PACKET));
	KUNIT_EXPECT_NULL(test, memchr_inv(buf + 2 * PACKET, 0x12 + first, LONG - 2 * PACKET));
}

/* HOST-1, XRC-9: a message completes a receive WQE of the SRQ that it names, in its CQ. */
static void host_1_xrc_9_xrc_send(struct kunit *test)
{
	struct far_host *h = far_xrc_make(test);
	struct end *b = &h->p->b;

	xrc_another(h->p, h->p->xrcd);
	pair_srq_recv(h->p, h->p->srq, b, 5);
	xrc_whole(h, 0, IB_WR_SEND);
	pair_settle(h->p, b, 1);
	KUNIT_EXPECT_EQ(test, 1, b->wcs);
	KUNIT_EXPECT_EQ(test, 5, b->wc[0].wr_id);
	KUNIT_EXPECT_EQ(test, SUCCESS, b->wc[0].status);
	KUNIT_EXPECT_EQ(test, IB_WC_RECV, b->wc[0].opcode);
	KUNIT_EXPECT_EQ(test, LONG, b->wc[0].byte_len);
	KUNIT_EXPECT_PTR_EQ(test, b->qp, b->wc[0].qp);
	xrc_bytes(h, 0);
	KUNIT_EXPECT_EQ(test, 0, pair_srq_posted(h->p->srq));
	KUNIT_EXPECT_EQ(test, 1, pair_srq_posted(h->p->extra_srq));
}

/* HOST-1, XRC-9: rkeys are those of the domain of the SRQ. The QP has another one. */
static void host_1_xrc_9_xrc_rdma(struct kunit *test)
{
	struct far_host *h = far_xrc_make(test);
	struct end *b = &h->p->b;
	u32 nr;

	xrc_whole(h, 0, IB_WR_RDMA_WRITE);
	xrc_bytes(h, 0);
	xrc_whole(h, 3, IB_WR_RDMA_READ);
	for (nr = 0; nr < 3; nr++) {
		u32 len = min(LONG - nr * PACKET, PACKET);

		KUNIT_EXPECT_EQ(test, len, le32_to_cpu(h->sent[3 + nr]->frame->len));
		KUNIT_EXPECT_MEMEQ(test, h->sent[3 + nr]->data, b->buf + nr * PACKET, len);
	}
	KUNIT_EXPECT_EQ(test, IB_QPS_RTS, end_state(h->p, b));
}

/* Packet @nr was refused, the QP has failed, and other memory has not changed. */
static void xrc_failed(struct far_host *h, u32 nr, u32 why)
{
	const struct keel_frame *answer = far_answered(h, nr, nr, DONE, REQ);
	struct kunit *test = h->p->test;
	struct end *a = &h->p->a, *b = &h->p->b;

	KUNIT_EXPECT_EQ(test, why, le32_to_cpu(answer->answer.why));
	pair_settle(h->p, b, 0);
	KUNIT_EXPECT_EQ(test, IB_QPS_ERR, end_state(h->p, b));
	KUNIT_EXPECT_EQ(test, 2, b->nr_events);
	KUNIT_EXPECT_EQ(test, IB_EVENT_QP_REQ_ERR, b->events[0]);
	KUNIT_EXPECT_EQ(test, IB_EVENT_QP_LAST_WQE_REACHED, b->events[1]);
	KUNIT_EXPECT_EQ(test, -1, end_differs(a, 0, a, 0, PAIR_BYTES));
	if (h->p->extra_srq)
		KUNIT_EXPECT_EQ(test, 1, pair_srq_posted(h->p->extra_srq));
}

/**
 * struct srq_case - a number that a packet may not name
 * @desc: what it is the number of
 * @opcode: operation of the packet
 * @what: the same as @desc
 */
struct srq_case {
	const char *desc;
	u8 opcode;
	enum { NO_SRQ, UNKNOWN, OTHER_DOMAIN, BASIC } what;
};

static const struct srq_case srq_cases[] = {
	{ "none", IB_WR_SEND, NO_SRQ },
	{ "none, write", IB_WR_RDMA_WRITE, NO_SRQ },
	{ "no SRQ", IB_WR_SEND, UNKNOWN },
	{ "no SRQ, read", IB_WR_RDMA_READ, UNKNOWN },
	{ "an SRQ of another XRC domain", IB_WR_SEND, OTHER_DOMAIN },
	{ "an SRQ of another XRC domain, write", IB_WR_RDMA_WRITE, OTHER_DOMAIN },
	{ "a basic SRQ", IB_WR_SEND, BASIC },
	{ "a basic SRQ, write", IB_WR_RDMA_WRITE, BASIC },
};

KUNIT_ARRAY_PARAM_DESC(srq, srq_cases, desc);

static u32 srqn_of(const struct srq_case *c, struct pair *p)
{
	switch (c->what) {
	case NO_SRQ:
		return 0;
	case UNKNOWN:
		return U32_MAX;
	case OTHER_DOMAIN:
		p->extra_xrcd = ib_alloc_xrcd_user(p->ibdev, NULL, NULL);
		KUNIT_ASSERT_NOT_ERR_OR_NULL(p->test, p->extra_xrcd);
		return xrc_another(p, p->extra_xrcd);
	default:
		return xrc_another(p, NULL);
	}
}

/* HOST-3: a packet that names no SRQ of the XRC domain is refused. */
static void host_3_xrc_srq(struct kunit *test)
{
	const struct srq_case *c = test->param_value;
	bool read = c->opcode == IB_WR_RDMA_READ;
	struct far_host *h = far_xrc_make(test);
	struct keel_frame frame;
	struct end *b = &h->p->b;

	pair_srq_recv(h->p, h->p->srq, b, 5);
	frame = far_packet(h, 0, c->opcode, ONLY, read ? 0 : 64, 64);
	frame.request.bytes = cpu_to_le32(read ? 64 : 0);
	frame.srqn = cpu_to_le32(srqn_of(c, h->p));
	far_request(h, &frame);
	xrc_failed(h, 0, KEEL_WHY_SRQ);
	KUNIT_EXPECT_EQ(test, 0, le32_to_cpu(h->sent[0]->frame->len));
	KUNIT_EXPECT_EQ(test, 0, b->wcs);
	KUNIT_EXPECT_EQ(test, 1, pair_srq_posted(h->p->srq));
	KUNIT_EXPECT_EQ(test, -1, end_differs(b, 0, b, 0, PAIR_BYTES));
}

/* The first packet of a message was executed. Then its receive WQE is flushed at most once. */
static struct far_host *xrc_begin(struct kunit *test, u8 opcode)
{
	struct far_host *h = far_xrc_make(test);
	struct keel_frame frame = xrc_packet(h, 0, 0, opcode);

	xrc_another(h->p, h->p->xrcd);
	pair_srq_recv(h->p, h->p->srq, &h->p->b, 5);
	far_request(h, &frame);
	far_answered(h, 0, 0, DONE, SUCCESS);
	return h;
}

static void xrc_flushed(struct far_host *h, bool taken)
{
	struct kunit *test = h->p->test;
	struct end *b = &h->p->b;

	KUNIT_EXPECT_EQ(test, taken, b->wcs);
	KUNIT_EXPECT_EQ(test, !taken, pair_srq_posted(h->p->srq));
	if (taken) {
		KUNIT_EXPECT_EQ(test, 5, b->wc[0].wr_id);
		KUNIT_EXPECT_EQ(test, IB_WC_WR_FLUSH_ERR, b->wc[0].status);
	}
	KUNIT_EXPECT_NULL(test, memchr_inv(b->buf, 0x10, PACKET));
	KUNIT_EXPECT_EQ(test, -1, end_differs(b, PACKET, b, PACKET, PAIR_BYTES - PACKET));
}

static const struct srq_case part_cases[] = {
	{ "send", IB_WR_SEND },
	{ "write", IB_WR_RDMA_WRITE },
};

KUNIT_ARRAY_PARAM_DESC(part, part_cases, desc);

/* HOST-3: all packets of a message name the same SRQ. */
static void host_3_xrc_part(struct kunit *test)
{
	const struct srq_case *c = test->param_value;
	struct far_host *h = xrc_begin(test, c->opcode);
	struct keel_frame frame = xrc_packet(h, 0, 1, c->opcode);

	frame.srqn = cpu_to_le32(to_ksrq(h->p->extra_srq)->srqn);
	far_request(h, &frame);
	xrc_failed(h, 1, KEEL_WHY_OPCODE);
	xrc_flushed(h, c->opcode == IB_WR_SEND);
}

/* HOST-3: the number is that of another SRQ meanwhile, which has no part of the message. */
static void host_3_xrc_number(struct kunit *test)
{
	struct far_host *h = xrc_begin(test, IB_WR_SEND);
	struct keel_srq *srq = to_ksrq(h->p->srq), *other = to_ksrq(h->p->extra_srq);
	struct keel_frame frame = xrc_packet(h, 0, 1, IB_WR_SEND);

	keel_number_publish(&h->qp->kdev->srqs, srq->srqn, other);
	far_request(h, &frame);
	keel_number_publish(&h->qp->kdev->srqs, srq->srqn, srq);
	xrc_failed(h, 1, KEEL_WHY_LENGTH);
	xrc_flushed(h, true);
}

/**
 * struct transport_case - a QP, and a transport
 * @desc: both
 * @type: type of the QP
 * @transport: of a request
 */
struct transport_case {
	const char *desc;
	enum ib_qp_type type;
	u8 transport;
};

static const struct transport_case refused_cases[] = {
	{ "XRC_RECV, RC", IB_QPT_XRC_TGT, KEEL_TRANSPORT_RC },
	{ "XRC_RECV, UC", IB_QPT_XRC_TGT, KEEL_TRANSPORT_UC },
	{ "XRC_SEND, RC", IB_QPT_XRC_INI, KEEL_TRANSPORT_RC },
	{ "XRC_SEND, XRC", IB_QPT_XRC_INI, KEEL_TRANSPORT_XRC },
	{ "RC, UC", IB_QPT_RC, KEEL_TRANSPORT_UC },
	{ "RC, XRC", IB_QPT_RC, KEEL_TRANSPORT_XRC },
	{ "UC, RC", IB_QPT_UC, KEEL_TRANSPORT_RC },
	{ "UC, XRC", IB_QPT_UC, KEEL_TRANSPORT_XRC },
};

KUNIT_ARRAY_PARAM_DESC(refused, refused_cases, desc);

/* HOST-3: a QP takes no request of another transport, and an XRC_SEND QP takes none. */
static void host_3_transport(struct kunit *test)
{
	const struct transport_case *c = test->param_value;
	struct far_host *h = far_host_make_type(test, c->type, IB_QPS_RTS);
	struct keel_frame frame = far_packet(h, 0, IB_WR_RDMA_WRITE, ONLY, 64, 64);

	far_host_open(h);
	frame.request.transport = c->transport;
	if (c->transport != KEEL_TRANSPORT_XRC)
		frame.srqn = 0;
	far_refused(h, 0, &frame);
	KUNIT_EXPECT_EQ(test, IB_QPS_RTS, end_state(h->p, &h->p->b));
	KUNIT_EXPECT_EQ(test, -1, end_differs(&h->p->b, 0, &h->p->b, 0, PAIR_BYTES));
}

/* HOST-3: an XRC_RECV QP has sent nothing that an answer could be for. */
static void host_3_xrc_answer(struct kunit *test)
{
	struct far_host *h = far_xrc_make(test);
	int i;

	for (i = 0; i < KEEL_FAR_WINDOW; i++) {
		far_give_done(h, i, 0);
		KUNIT_EXPECT_EQ(test, 0, far_answers_n(h));
	}
	pair_srq_recv(h->p, h->p->srq, &h->p->b, 5);
	xrc_whole(h, 0, IB_WR_SEND);
}

static const struct transport_case sent_cases[] = {
	{ "RC", IB_QPT_RC, KEEL_TRANSPORT_RC },
	{ "UC", IB_QPT_UC, KEEL_TRANSPORT_UC },
	{ "XRC-9: XRC", IB_QPT_XRC_INI, KEEL_TRANSPORT_XRC },
};

KUNIT_ARRAY_PARAM_DESC(sent, sent_cases, desc);

/* HOST-1: a request says its transport, and that of XRC the SRQ. */
static void host_1_transport(struct kunit *test)
{
	const struct transport_case *c = test->param_value;
	bool xrc = c->transport == KEEL_TRANSPORT_XRC;
	const struct keel_frame *frame;
	struct keel_uapi_send_wqe *wqe;
	struct keel_ring *ring;
	struct far_host *h;
	u8 *buf;

	h = far_send_make_type(test, c->type, &buf);
	ring = &h->qp->sq.ring;
	end_send_silently(h->p, &h->p->b, FAR_WR_ID, 64);
	wqe = keel_ring_entry(ring, ring->head->user - 1);
	wqe->srqn = SRQN;
	keel_qp_schedule(h->qp);
	frame = far_sent(h, 0, 0);
	KUNIT_EXPECT_EQ(test, c->transport, frame->request.transport);
	KUNIT_EXPECT_EQ(test, xrc ? SRQN : 0, le32_to_cpu(frame->srqn));
	KUNIT_EXPECT_TRUE(test, keel_frame_is_valid(frame, sizeof(*frame) + 64));
	far_give_done(h, 0, 0);
	far_ended_with(h, SUCCESS, KEEL_WHY_NONE);
}

/* HOST-2: a read that comes again may name an SRQ that is gone. The QP does not fail for it. */
static void host_2_xrc_read_again(struct kunit *test)
{
	struct far_host *h = far_xrc_make(test);
	struct keel_frame frame = far_packet(h, 0, IB_WR_RDMA_READ, ONLY, 0, 64);
	struct end *b = &h->p->b;
	u32 i;

	frame.request.bytes = cpu_to_le32(64);
	for (i = 0; i < 2; i++) {
		far_request(h, &frame);
		far_answered(h, i, 0, DONE, SUCCESS);
		KUNIT_EXPECT_EQ(test, 64, le32_to_cpu(h->sent[i]->frame->len));
	}
	ib_destroy_srq(h->p->srq);
	h->p->srq = NULL;
	far_request(h, &frame);
	KUNIT_EXPECT_EQ(test, 2, far_host_wait(h, 2));
	KUNIT_EXPECT_EQ(test, 0, far_requests_n(h));
	KUNIT_EXPECT_EQ(test, IB_QPS_RTS, end_state(h->p, b));
	KUNIT_EXPECT_EQ(test, 0, b->nr_events);
	h->p->srq = pair_srq(h->p, h->p->xrcd);
	pair_srq_recv(h->p, h->p->srq, b, 5);
	far_xrc_send(h, 1, to_ksrq(h->p->srq)->srqn);
	far_answered(h, 2, 1, DONE, SUCCESS);
}

/* HOST-1: without a receive WQE, the requester sends again, and nothing waits for the SRQ. */
static void host_1_xrc_rnr(struct kunit *test)
{
	struct far_host *h = far_xrc_make(test);
	struct keel_srq *srq = to_ksrq(h->p->srq);
	struct end *b = &h->p->b;
	u32 i;

	for (i = 0; i < 2; i++) {
		far_xrc_send(h, 0, srq->srqn);
		far_answered(h, i, 0, KEEL_RESULT_RNR, SUCCESS);
		KUNIT_EXPECT_TRUE(test, list_empty(&srq->waiters));
		/* The next post rings the doorbell, which takes over an SRQ of a dead process. */
		KUNIT_EXPECT_TRUE(test, srq->rq.wanted);
	}
	pair_srq_recv(h->p, h->p->srq, b, 5);
	far_host_settle(h);
	KUNIT_EXPECT_EQ(test, 2, far_host_wait(h, 2));
	far_xrc_send(h, 0, srq->srqn);
	far_answered(h, 2, 0, DONE, SUCCESS);
	pair_settle(h->p, b, 1);
	KUNIT_EXPECT_EQ(test, 1, b->wcs);
	KUNIT_EXPECT_EQ(test, SUCCESS, b->wc[0].status);
}

static struct kunit_case far_xrc_cases[] = {
	KUNIT_CASE(host_1_xrc_9_xrc_send),
	KUNIT_CASE(host_1_xrc_9_xrc_rdma),
	KUNIT_CASE_PARAM(host_3_xrc_srq, srq_gen_params),
	KUNIT_CASE_PARAM(host_3_xrc_part, part_gen_params),
	KUNIT_CASE(host_3_xrc_number),
	KUNIT_CASE_PARAM(host_3_transport, refused_gen_params),
	KUNIT_CASE(host_3_xrc_answer),
	KUNIT_CASE_PARAM(host_1_transport, sent_gen_params),
	KUNIT_CASE(host_2_xrc_read_again),
	KUNIT_CASE(host_1_xrc_rnr),
	{}
};

static struct kunit_suite far_xrc_suite = {
	.name = "keel_far_xrc",
	.suite_init = pair_suite_init,
	.suite_exit = pair_suite_exit,
	.init = pair_init,
	.exit = pair_exit,
	.test_cases = far_xrc_cases,
};
kunit_test_suite(far_xrc_suite);
