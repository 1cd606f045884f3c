// SPDX-License-Identifier: GPL-2.0
/*
 * A connection that is up, on a lower device that counts what is posted: rx.h.
 */
#include <linux/cache.h>
#include <linux/slab.h>

#include "keel.h"
#include "rx.h"

struct rx *rx;

static void rx_got(const struct keel_frame *frame, const void *data,
		   enum keel_frame_type how)
{
	rx->got = *frame;
	memcpy(rx->data, data, sizeof(rx->data));
	rx->how = how;
	rx->ngot++;
}

static void rx_request(struct keel_link *link, const struct keel_frame *frame,
		       const void *data)
{
	rx_got(frame, data, KEEL_FRAME_REQUEST);
}

static void rx_answer(struct keel_link *link, const struct keel_frame *frame,
		      const void *data)
{
	rx_got(frame, data, KEEL_FRAME_ANSWER);
}

static void rx_datagram(struct keel_link *link, const struct keel_frame *frame,
			const void *data)
{
	rx_got(frame, data, KEEL_FRAME_DATAGRAM);
}

static const struct keel_wire_ops rx_ops = {
	.request = rx_request,
	.answer = rx_answer,
	.datagram = rx_datagram,
};

static int rx_post_recv(struct ib_qp *qp, const struct ib_recv_wr *wr,
			const struct ib_recv_wr **bad)
{
	if (rx->refuse)
		return -ENOMEM;
	rx->posted++;
	return 0;
}

static int rx_post_send(struct ib_qp *qp, const struct ib_send_wr *wr,
			const struct ib_send_wr **bad)
{
	if (rx->nsent < RX_SENT) {
		rx->bufs[rx->nsent] = container_of(wr->wr_cqe, struct keel_buf, cqe);
		rx->sent[rx->nsent] = *rx->bufs[rx->nsent]->frame;
		if (wr->send_flags & IB_SEND_SIGNALED)
			rx->signals |= BIT(rx->nsent);
	}
	rx->nsent++;
	return 0;
}

/* The test does all that the work would do. */
static void rx_work(struct work_struct *work)
{
	keel_link_put(container_of(work, struct keel_link, work));
}

static void rx_make_lower(void)
{
	rx->ib.ops.post_recv = rx_post_recv;
	rx->ib.ops.post_send = rx_post_send;
	rx->pd.device = &rx->ib;
	rx->qp.device = &rx->ib;
	rx->lower.ib = &rx->ib;
	kref_init(&rx->lower.ref);
	init_completion(&rx->lower.gone);
}

static void rx_make_conn(struct kunit *test)
{
	struct keel_conn *conn = keel_conn_new(rx->link, &rx->lower);

	KUNIT_ASSERT_NOT_NULL(test, conn);
	rx->conn = conn;
	/* Tests do not hurry. */
	conn->batch_ns = 1000 * NSEC_PER_SEC;
	conn->patient_ns = conn->batch_ns;
	conn->headers = kcalloc(KEEL_LINK_SENDS + KEEL_LINK_RECVS,
				ALIGN(sizeof(struct keel_frame), ARCH_DMA_MINALIGN),
				GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, conn->headers);
	conn->qp = &rx->qp;
	conn->pd = &rx->pd;
	conn->cookie = cpu_to_le64(RX_COOKIE);
	conn->hello.cookie = cpu_to_le64(RX_PEER_COOKIE);
	conn->hello.credits = cpu_to_le16(RX_CREDITS);
	KUNIT_ASSERT_EQ(test, 0, keel_conn_fill(conn));
	KUNIT_EXPECT_EQ(test, KEEL_LINK_RECVS, rx->posted);
	rx->posted = 0;
	KUNIT_ASSERT_TRUE(test, keel_conn_up(conn));
	guard(spinlock)(&rx->link->lock);
	rx->link->up = conn;
}

int rx_init(struct kunit *test)
{
	struct keel_ends ends = {};
	int ret;

	rx = kunit_kzalloc(test, sizeof(*rx), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, rx);
	rx_make_lower();
	keel_links_init(rx_work);
	ret = keel_links_start(&rx_ops);
	if (ret)
		return ret;
	rx->link = keel_link_alloc(NULL, &ends, GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, rx->link);
	rx_make_conn(test);
	return 0;
}

void rx_exit(struct kunit *test)
{
	scoped_guard(spinlock, &rx->link->lock)
		rx->link->up = NULL;
	/* It is no QP that could be destroyed. */
	rx->conn->qp = NULL;
	rx->conn->pd = NULL;
	keel_conn_destroy(rx->conn);
	KUNIT_EXPECT_EQ(test, 1, kref_read(&rx->lower.ref));
	keel_link_stop(rx->link);
	flush_work(&rx->link->work);
	KUNIT_EXPECT_EQ(test, 1, kref_read(&rx->link->ref));
	keel_link_put(rx->link);
	keel_links_stop();
}

/* A frame without data, as the other end sends it. */
struct keel_frame rx_frame(enum keel_frame_type type)
{
	struct keel_frame frame = { .type = type, .cookie = cpu_to_le64(RX_COOKIE) };

	if (type == KEEL_FRAME_ANSWER)
		frame.answer.result = KEEL_RESULT_DONE;
	if (type == KEEL_FRAME_DATAGRAM)
		frame.datagram.opcode = IB_WR_SEND;
	return frame;
}

static struct keel_buf *rx_buf(void)
{
	return &rx->conn->recvs[rx->next % KEEL_LINK_RECVS];
}

/* The data of the next frame that is received. */
void *rx_page(void)
{
	return rx_buf()->page;
}

static void rx_done(const struct keel_frame *frame, struct ib_wc wc)
{
	struct keel_buf *buf = rx_buf();

	rx->next++;
	*buf->frame = *frame;
	wc.wr_cqe = &buf->cqe;
	buf->cqe.done(NULL, &wc);
}

void rx_complete(const struct keel_frame *frame, struct ib_wc wc)
{
	strscpy(rx_page(), "data", sizeof(rx->data));
	rx_done(frame, wc);
}

/* With the data that rx_page() has. */
void rx_receive_as_is(const struct keel_frame *frame, u32 bytes)
{
	rx_done(frame, (struct ib_wc){
		.status = IB_WC_SUCCESS,
		.opcode = IB_WC_RECV,
		.byte_len = bytes,
	});
}

void rx_receive_n(const struct keel_frame *frame, u32 bytes)
{
	rx_complete(frame, (struct ib_wc){
		.status = IB_WC_SUCCESS,
		.opcode = IB_WC_RECV,
		.byte_len = bytes,
	});
}

void rx_receive(const struct keel_frame *frame)
{
	rx_receive_n(frame, sizeof(*frame) + le32_to_cpu(frame->len));
}

u32 rx_owed(void)
{
	guard(spinlock)(&rx->conn->lock);
	return rx->conn->owed;
}

u32 rx_credits(void)
{
	guard(spinlock)(&rx->conn->lock);
	return rx->conn->credits;
}

void rx_set_credits(u32 credits)
{
	guard(spinlock)(&rx->conn->lock);
	rx->conn->credits = credits;
}

bool rx_has(enum keel_conn_event event)
{
	return test_bit(event, &rx->conn->events);
}

/* The last frame has ended the connection, and no frame was delivered. It begins anew. */
void rx_ends(struct kunit *test)
{
	struct keel_conn *conn = rx->conn;

	KUNIT_EXPECT_TRUE(test, rx_has(KEEL_CONN_ENDED));
	KUNIT_EXPECT_FALSE(test, keel_conn_is_up(conn));
	KUNIT_EXPECT_EQ(test, 0, rx->ngot);
	KUNIT_EXPECT_EQ(test, 0, rx->posted);
	KUNIT_EXPECT_EQ(test, 0, rx_owed());
	KUNIT_EXPECT_EQ(test, 0, rx->nsent);
	conn->events = 0;
	guard(spinlock)(&conn->lock);
	conn->state = KEEL_CONN_UP;
}

void rx_send(struct kunit *test, enum keel_frame_type type, u32 to, u32 len, bool patient)
{
	struct keel_frame frame = { .type = type, .to = cpu_to_le32(to) };
	struct keel_link_wait wait;
	struct keel_buf *buf;
	u64 epoch;

	keel_wait_init(&wait, NULL, NULL);
	buf = keel_link_tx(rx->link, &wait, len, &epoch);
	KUNIT_ASSERT_NOT_NULL(test, buf);
	memset(buf->data, to, len);
	/* A buffer is not so at first. */
	if (patient)
		buf->patient = true;
	keel_link_send(buf, &frame, len);
}
