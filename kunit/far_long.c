// SPDX-License-Identifier: GPL-2.0
/*
 * A QP and another host, with long packets: far_long.h.
 */
#include "far_long.h"

u32 far_long_requests(const struct far_host *h)
{
	guard(spinlock)(&h->qp->far->lock);
	return hweight_long(h->qp->far->long_requests.used);
}

u32 far_long_answers(const struct far_host *h)
{
	guard(spinlock)(&h->qp->far->lock);
	return hweight_long(h->qp->far->long_answers.used);
}

/* A host whose link has chunks, and *@buf with BYTES bytes, which count. */
struct far_host *far_long_make(struct kunit *test, u8 **buf)
{
	struct far_host *h = far_host_make(test, IB_QPS_RTS);
	u32 i;

	far_host_add_chunks(h);
	far_host_open(h);
	*buf = kunit_kmalloc(test, BYTES, GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, *buf);
	for (i = 0; i < BYTES; i++)
		(*buf)[i] = i % 251;
	return h;
}

/* Packet @nr was executed, and @chunks long ones may be under way. */
void far_long_done(struct far_host *h, u32 nr, u32 len, u8 chunks)
{
	struct keel_frame answer = far_answer(h, nr, IB_WC_SUCCESS);

	answer.answer.chunks = chunks;
	answer.len = cpu_to_le32(len);
	if (len > PACKET)
		answer.chunk = cpu_to_le16(1);
	far_give(h, &answer);
}

/* A packet of a long write, whose data is in @h->data. */
struct keel_frame far_long_packet(struct far_host *h, u32 nr, u8 flags, u32 len, u64 left)
{
	struct keel_frame frame = far_packet(h, nr, IB_WR_RDMA_WRITE, flags, len, left);

	if (len > PACKET)
		frame.chunk = cpu_to_le16(1);
	return frame;
}

/* The QP has memory for long packets, as if there had been a message that it is worth for. */
void far_long_grow(struct far_host *h)
{
	struct keel_frame frame = far_long_packet(h, 0, ONLY, 64, 64);

	scoped_guard(spinlock, &h->qp->far->lock)
		keel_far_want(&h->qp->far->long_requests);
	far_request(h, &frame);
	keel_qp_schedule(h->qp);
	far_host_settle(h);
	KUNIT_EXPECT_EQ(h->p->test, LONGS, keel_far_grant(h->qp->far));
}
