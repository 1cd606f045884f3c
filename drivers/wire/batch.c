// SPDX-License-Identifier: GPL-2.0
/*
 * Several short frames in one message of a connection. A message of a lower device costs far
 * more than another frame in it. As long as few messages are under way, each frame is sent at
 * once. Else short ones wait together, until there is a completion, or no room for another
 * frame, or something is sent that does not wait, but not long: on a slow network, a completion
 * takes a round trip, and if a message is lost, the ones behind it tell the lower device. Their
 * order stays.
 *
 * An answer that the other side hardly waits for (&keel_buf.patient) waits as well if few
 * messages are under way, for the next request of its QP.
 */
#include <kunit/visibility.h>
#include <linux/align.h>
#include <linux/ktime.h>
#include <linux/string.h>
#include <linux/workqueue.h>

#include "keel_conn.h"

static_assert(sizeof(struct keel_frame) + KEEL_BATCH_DATA <= KEEL_FRAME_DATA);
/* If many messages are under way, a batch waits for a completion: one of them has one. */
static_assert(KEEL_BATCH_AFTER >= 1 && KEEL_CONN_SIGNAL >= 1);

static enum hrtimer_restart keel_batch_expired(struct hrtimer *timer)
{
	struct keel_conn *conn = container_of(timer, struct keel_conn, batch_timer);

	/* Not under the lock: if it was sent just now, the next one has another time. */
	if (context_unsafe(READ_ONCE(conn->batch)))
		/* keel_conn_destroy() waits for both. */
		queue_work(system_highpri_wq, &conn->flush);
	return HRTIMER_NORESTART;
}

/**
 * keel_batch_init() - a connection has no batch
 * @conn: not yet used
 */
void keel_batch_init(struct keel_conn *conn)
{
	conn->batch_ns = KEEL_BATCH_NS;
	conn->patient_ns = KEEL_PATIENT_NS;
	hrtimer_setup(&conn->batch_timer, keel_batch_expired, CLOCK_MONOTONIC, HRTIMER_MODE_REL);
}
EXPORT_SYMBOL_IF_KUNIT(keel_batch_init);

/**
 * keel_batch_takes() - may a frame be in a message with others?
 * @buf: its buffer
 * @frame: its header
 * @len: bytes of data
 *
 * Context: any but interrupts.
 * Return: true if so.
 */
bool keel_batch_takes(const struct keel_buf *buf, const struct keel_frame *frame, u32 len)
{
	return !buf->chunk && len <= KEEL_BATCH_DATA && keel_frame_is_batched(frame->type);
}

/* Are so many messages under way that short frames wait for one of them to complete? */
static bool keel_batch_is_full(const struct keel_conn *conn)
	__must_hold(&conn->lock)
{
	/* Some may have arrived that have no completion. */
	return conn->under_way >= KEEL_BATCH_AFTER + KEEL_CONN_SIGNAL - 1;
}

/**
 * keel_batch_waits() - should a frame wait for others?
 * @buf: its buffer; keel_batch_takes() it
 *
 * Context: any but interrupts.
 * Return: true if so.
 */
bool keel_batch_waits(const struct keel_buf *buf)
{
	return keel_batch_is_full(buf->conn) || buf->patient;
}

/**
 * keel_batch_has_room() - is there a batch with room for a frame?
 * @conn: the connection
 * @len: bytes of data
 *
 * Context: any but interrupts.
 * Return: true if so.
 */
bool keel_batch_has_room(const struct keel_conn *conn, u32 len)
{
	return conn->batch &&
	       sizeof(struct keel_frame) + len <= KEEL_FRAME_DATA - conn->batch_len;
}

/**
 * keel_batch_add() - put a frame into the batch, which it may begin
 * @buf: the buffer of the frame; it becomes the batch if there is none
 * @frame: its header
 * @len: bytes of data; there is room for them
 *
 * Context: any but interrupts.
 */
void keel_batch_add(struct keel_buf *buf, const struct keel_frame *frame, u32 len)
{
	bool begins = !buf->conn->batch, slow = !keel_batch_is_full(buf->conn);
	struct keel_conn *conn = buf->conn;
	u8 *to;

	if (begins) {
		WRITE_ONCE(conn->batch, buf);
		conn->batch_len = 0;
	}
	/* If few messages are under way, a frame that does not wait has the batch sent at once. */
	if (begins || (conn->batch_slow && !slow))
		hrtimer_start(&conn->batch_timer,
			      ns_to_ktime(slow ? conn->patient_ns : conn->batch_ns),
			      HRTIMER_MODE_REL);
	conn->batch_slow = slow;
	to = conn->batch->page + conn->batch_len;
	/* It may be in the same page. */
	memmove(to + sizeof(*frame), buf->data, len);
	memset(to + sizeof(*frame) + len, 0, ALIGN(len, KEEL_FRAME_ALIGN) - len);
	memcpy(to, frame, sizeof(*frame));
	((struct keel_frame *)to)->len = cpu_to_le32(len);
	conn->batch_len += sizeof(*frame) + ALIGN(len, KEEL_FRAME_ALIGN);
}

/**
 * keel_batch_next() - the next frame of a message that has several
 * @data: data of the message
 * @len: bytes of it
 * @off: where the frame begins; is set to the end of it
 * @frame: gets its header
 *
 * Context: any.
 * Return: its data, or NULL: no host of this version has sent it.
 */
const void *keel_batch_next(const void *data, u32 len, u32 *off, struct keel_frame *frame)
{
	u32 left = len - *off, bytes;

	if (left < sizeof(*frame))
		return NULL;
	memcpy(frame, data + *off, sizeof(*frame));
	left -= sizeof(*frame);
	bytes = le32_to_cpu(frame->len);
	if (bytes > left || ALIGN(bytes, KEEL_FRAME_ALIGN) > left ||
	    memchr_inv(data + *off + sizeof(*frame) + bytes, 0,
		       ALIGN(bytes, KEEL_FRAME_ALIGN) - bytes) ||
	    !keel_frame_is_batched(frame->type) || frame->credits || frame->cookie ||
	    frame->chunk || frame->freed ||
	    !keel_frame_is_valid(frame, sizeof(*frame) + bytes))
		return NULL;
	data += *off + sizeof(*frame);
	*off += sizeof(*frame) + ALIGN(bytes, KEEL_FRAME_ALIGN);
	return data;
}
EXPORT_SYMBOL_IF_KUNIT(keel_batch_next);
