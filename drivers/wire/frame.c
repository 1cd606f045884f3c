// SPDX-License-Identifier: GPL-2.0
/*
 * Checks of frames that another host has sent. Numbers of QPs, packets and keys are
 * checked where they are used.
 */
#include <kunit/visibility.h>
#include <linux/string.h>
#include <rdma/ib_verbs.h>

#include "keel_cast.h"
#include "keel_frame.h"
#include "keel_conn.h"

/* The members that a request does not use; which those are depends on its opcode. */
static bool keel_request_is_valid(const struct keel_frame *frame)
{
	return !(frame->flags & ~KEEL_FRAME_F_REQUEST) &&
	       frame->request.transport <= KEEL_TRANSPORT_XRC &&
	       (!frame->srqn || frame->request.transport == KEEL_TRANSPORT_XRC) &&
	       le32_to_cpu(frame->request.bytes) <= KEEL_CHUNK_DATA;
}

static bool keel_answer_is_valid(const struct keel_frame *frame)
{
	return !(frame->flags & ~KEEL_FRAME_F_BUSY) && frame->answer.chunks <= KEEL_CHUNKS &&
	       frame->answer.result >= KEEL_RESULT_DONE &&
	       frame->answer.result <= KEEL_RESULT_NOT_READY &&
	       !memchr_inv(frame->answer.unused, 0, sizeof(frame->answer.unused));
}

static bool keel_datagram_is_valid(const struct keel_frame *frame)
{
	return !(frame->flags & ~KEEL_FRAME_F_DATAGRAM) && !frame->datagram.reserved &&
	       (frame->datagram.opcode == IB_WR_SEND ||
		frame->datagram.opcode == IB_WR_SEND_WITH_IMM) &&
	       !memchr_inv(frame->datagram.unused, 0, sizeof(frame->datagram.unused));
}

/**
 * keel_frame_is_group() - check a datagram to a group
 * @frame: copy of its header
 * @bytes: bytes that were received, with the header
 *
 * Context: any.
 * Return: true if a host of this version may have sent it; else it is ignored.
 */
bool keel_frame_is_group(const struct keel_frame *frame, u32 bytes)
{
	return bytes >= sizeof(*frame) && bytes - sizeof(*frame) <= KEEL_CAST_DATA &&
	       le32_to_cpu(frame->len) == bytes - sizeof(*frame) &&
	       frame->type == KEEL_FRAME_GROUP &&
	       !(frame->flags & ~KEEL_FRAME_F_SOLICITED) &&
	       le16_to_cpu(frame->credits) == KEEL_FRAME_VERSION &&
	       le32_to_cpu(frame->to) == IB_MULTICAST_QPN &&
	       !(le32_to_cpu(frame->from) & ~KEEL_PSN_MASK) &&
	       !frame->psn && !frame->srqn && !frame->gen && !frame->chunk && !frame->freed &&
	       !frame->reserved && keel_datagram_is_valid(frame);
}
EXPORT_SYMBOL_IF_KUNIT(keel_frame_is_group);

/* Frames without data, which are for no QP. */
static bool keel_control_is_valid(const struct keel_frame *frame)
{
	return !frame->flags && !frame->len && !frame->to && !frame->from && !frame->psn &&
	       !frame->gen;
}

/* Likewise, without members of their own. */
static bool keel_plain_is_valid(const struct keel_frame *frame)
{
	return keel_control_is_valid(frame) && !memchr_inv(frame->rest, 0, sizeof(frame->rest));
}

static bool keel_chunks_are_valid(const struct keel_frame *frame)
{
	return keel_control_is_valid(frame) &&
	       !memchr_inv(frame->chunks.unused, 0, sizeof(frame->chunks.unused));
}

static bool keel_batch_is_valid(const struct keel_frame *frame)
{
	return frame->len && !frame->flags && !frame->to && !frame->from && !frame->psn &&
	       !frame->gen && !memchr_inv(frame->rest, 0, sizeof(frame->rest));
}

/* Is the data where the header says? */
static bool keel_place_is_valid(const struct keel_frame *frame, u32 behind)
{
	u32 len = le32_to_cpu(frame->len), chunk = le16_to_cpu(frame->chunk);

	if (!chunk)
		return len == behind && behind <= KEEL_FRAME_DATA;
	return !behind && chunk <= KEEL_CHUNKS &&
	       (frame->type == KEEL_FRAME_REQUEST || frame->type == KEEL_FRAME_ANSWER) &&
	       len > KEEL_FRAME_DATA && len <= KEEL_CHUNK_DATA;
}

/**
 * keel_frame_is_valid() - check a frame
 * @frame: copy of its header
 * @bytes: bytes that were received, with the header
 *
 * Context: any.
 * Return: true if a host of this version may have sent it; else the link ends.
 */
bool keel_frame_is_valid(const struct keel_frame *frame, u32 bytes)
{
	if (bytes < sizeof(*frame) || !keel_place_is_valid(frame, bytes - sizeof(*frame)) ||
	    frame->reserved)
		return false;
	if ((le32_to_cpu(frame->to) | le32_to_cpu(frame->from) | le32_to_cpu(frame->psn)) &
	    ~KEEL_PSN_MASK)
		return false;
	if (frame->srqn && frame->type != KEEL_FRAME_REQUEST)
		return false;
	switch (frame->type) {
	case KEEL_FRAME_REQUEST:
		return keel_request_is_valid(frame);
	case KEEL_FRAME_ANSWER:
		return keel_answer_is_valid(frame);
	case KEEL_FRAME_DATAGRAM:
		return keel_datagram_is_valid(frame);
	case KEEL_FRAME_CREDIT:
	case KEEL_FRAME_ASK:
	case KEEL_FRAME_ALIVE:
		return keel_plain_is_valid(frame);
	case KEEL_FRAME_CHUNKS:
		return keel_chunks_are_valid(frame);
	case KEEL_FRAME_BATCH:
		return keel_batch_is_valid(frame);
	default:
		return false;
	}
}
EXPORT_SYMBOL_IF_KUNIT(keel_frame_is_valid);
