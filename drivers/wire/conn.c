// SPDX-License-Identifier: GPL-2.0
/*
 * The connection of a link: its QP, its buffers, and its credits. Each side sends only
 * as many messages as the other side has buffers for. chunk.c has what is too long for those.
 */
#include <kunit/visibility.h>
#include <linux/bitops.h>
#include <linux/minmax.h>
#include <linux/slab.h>

#include "keel_conn.h"

/* More credits than any host has buffers: it does not follow the protocol. */
#define KEEL_CREDITS_MAX	U16_MAX

/**
 * keel_conn_end() - end a connection
 * @conn: the connection; it carries no frame from here on
 *
 * The work of the link does the rest.
 *
 * Context: any but interrupts.
 */
void keel_conn_end(struct keel_conn *conn)
{
	/* A connection that is over has the event. */
	guard(spinlock)(&conn->lock);
	conn->state = KEEL_CONN_OVER;
	keel_conn_event(conn, KEEL_CONN_ENDED);
}

/**
 * keel_conn_give_back() - make a buffer free
 * @buf: a buffer to send
 *
 * Context: any but interrupts.
 */
void keel_conn_give_back(struct keel_buf *buf)
{
	struct keel_conn *conn = buf->conn;

	list_add(&buf->node, &conn->free);
	conn->nfree++;
	buf->dgram = false;
	conn->dgrams -= buf->shared;
	buf->shared = false;
	if (buf->dgram_user)
		*buf->dgram_user = NULL;
	buf->dgram_user = NULL;
	conn->kernels -= buf->kernel;
	buf->kernel = false;
}
EXPORT_SYMBOL_IF_KUNIT(keel_conn_give_back);

/**
 * keel_conn_take() - take a buffer to send, and a credit
 * @conn: the connection
 * @len: bytes of data for it, at most KEEL_CHUNK_DATA
 *
 * Context: any but interrupts.
 * Return: the buffer, for keel_conn_send(), or for keel_chunk_give_back() and then
 * keel_conn_give_back(); or NULL.
 */
struct keel_buf *keel_conn_take(struct keel_conn *conn, u32 len)
{
	bool chunk = len > KEEL_FRAME_DATA;
	struct keel_buf *buf;

	if (conn->state != KEEL_CONN_UP || !conn->credits || !conn->nfree ||
	    (chunk && !keel_chunks_ready(conn)))
		return NULL;
	buf = list_first_entry(&conn->free, struct keel_buf, node);
	list_del(&buf->node);
	buf->data = buf->page;
	buf->patient = false;
	if (chunk)
		/* It is a buffer of this connection. */
		context_unsafe(keel_chunk_take(buf));
	conn->nfree--;
	conn->credits--;
	return buf;
}

/**
 * keel_conn_is_up() - does a connection carry frames?
 * @conn: the connection
 *
 * Context: any but interrupts.
 * Return: true if so.
 */
bool keel_conn_is_up(struct keel_conn *conn)
{
	guard(spinlock)(&conn->lock);
	return conn->state == KEEL_CONN_UP;
}
EXPORT_SYMBOL_IF_KUNIT(keel_conn_is_up);

/**
 * keel_conn_room_locked() - how many frames for QPs could be sent now?
 * @conn: the connection
 *
 * Context: any but interrupts.
 * Return: their number.
 */
u32 keel_conn_room_locked(struct keel_conn *conn)
{
	u32 room = min(conn->credits, conn->nfree), kept = KEEL_LINK_SPARE + KEEL_LINK_RESERVED;

	return conn->state == KEEL_CONN_UP && room > kept ? room - kept : 0;
}

/**
 * keel_conn_has_kernel_room() - could a datagram of the kernel be sent now?
 * @conn: the connection
 *
 * Context: any but interrupts.
 * Return: true if so.
 */
bool keel_conn_has_kernel_room(struct keel_conn *conn)
{
	return conn->state == KEEL_CONN_UP &&
	       min(conn->credits, conn->nfree) > KEEL_LINK_SPARE;
}

/**
 * keel_conn_room() - how many frames for QPs could be sent now?
 * @conn: the connection
 *
 * Context: any but interrupts.
 * Return: their number.
 */
u32 keel_conn_room(struct keel_conn *conn)
{
	guard(spinlock)(&conn->lock);
	return keel_conn_room_locked(conn);
}
EXPORT_SYMBOL_IF_KUNIT(keel_conn_room);

/*
 * Should there be a completion for a buffer? Datagrams, and data in chunks, have few buffers: they
 * do not wait for those behind them. See also &keel_lower.signals.
 */
static bool keel_conn_signals(const struct keel_buf *buf)
	__must_hold(&buf->conn->lock)
{
	return buf->chunk || buf->dgram || buf->kernel || buf->conn->lower->signals ||
	       buf->conn->unsignaled + 1 >= KEEL_CONN_SIGNAL;
}

/* Post a message. It carries what this side owes the other one. */
static void keel_conn_post_frame(struct keel_buf *buf, const struct keel_frame *frame, u32 len)
	__must_hold(&buf->conn->lock)
{
	struct keel_conn *conn = buf->conn;
	struct ib_device *ib = conn->lower->ib;
	bool signal = keel_conn_signals(buf);

	*buf->frame = *frame;
	buf->frame->len = cpu_to_le32(len);
	buf->frame->cookie = conn->hello.cookie;
	buf->frame->credits = cpu_to_le16(conn->owed);
	buf->frame->chunk = cpu_to_le16(buf->chunk);
	buf->frame->freed = cpu_to_le16(conn->chunks_freed);
	conn->owed = 0;
	conn->chunks_freed = 0;
	ib_dma_sync_single_for_device(ib, buf->frame_dma, sizeof(*frame), DMA_TO_DEVICE);
	if (len && !buf->chunk)
		ib_dma_sync_single_for_device(ib, buf->page_dma, len, DMA_TO_DEVICE);
	if (!keel_buf_post_send(buf, len, signal)) {
		list_add_tail(&buf->node, &conn->posts);
		conn->under_way++;
		conn->unsignaled = signal ? 0 : conn->unsignaled + 1;
		return;
	}
	/* Nobody gets a buffer of this connection any more. */
	conn->state = KEEL_CONN_OVER;
	keel_conn_event(conn, KEEL_CONN_ENDED);
}

/* Send the frames that wait together. */
static void keel_conn_flush(struct keel_conn *conn)
	__must_hold(&conn->lock)
{
	const struct keel_frame frame = { .type = KEEL_FRAME_BATCH };
	struct keel_buf *buf = conn->batch;

	WRITE_ONCE(conn->batch, NULL);
	if (buf && conn->state == KEEL_CONN_UP)
		/* It is a buffer of this connection. */
		context_unsafe(keel_conn_post_frame(buf, &frame, conn->batch_len));
}

/**
 * keel_conn_flush_work() - &keel_conn.flush
 * @work: of the connection, which exists until keel_conn_destroy() has waited for it
 */
void keel_conn_flush_work(struct work_struct *work)
{
	struct keel_conn *conn = container_of(work, struct keel_conn, flush);

	guard(spinlock)(&conn->lock);
	keel_conn_flush(conn);
}
EXPORT_SYMBOL_IF_KUNIT(keel_conn_flush_work);

/**
 * keel_conn_send() - send a frame
 * @buf: from keel_conn_take(), with its data
 * @frame: the header
 * @len: bytes of data
 *
 * Context: any but interrupts.
 * Return: true if it became a part of another message, so that @buf is free again.
 */
bool keel_conn_send(struct keel_buf *buf, const struct keel_frame *frame, u32 len)
{
	struct keel_conn *conn = buf->conn;
	bool takes = keel_batch_takes(buf, frame, len), waits = takes && keel_batch_waits(buf);
	bool joins;

	/* Frames arrive in the order in which they were sent. */
	if (!takes || !keel_batch_has_room(conn, len))
		/* It is a buffer of this connection. */
		context_unsafe(keel_conn_flush(conn));
	/* The batch could not be posted: nothing may come behind it. */
	if (conn->state != KEEL_CONN_UP)
		return false;
	if (!waits && !conn->batch) {
		keel_conn_post_frame(buf, frame, len);
		return false;
	}
	keel_batch_add(buf, frame, len);
	joins = conn->batch != buf;
	if (joins) {
		keel_conn_give_back(buf);
		conn->credits++;
	}
	/* Or nothing else fits in. */
	if (!waits || !keel_batch_has_room(conn, 0))
		/* It is a buffer of this connection. */
		context_unsafe(keel_conn_flush(conn));
	return joins;
}

static bool keel_conn_tell_locked(struct keel_conn *conn, enum keel_frame_type type)
	__must_hold(&conn->lock)
{
	struct keel_buf *buf = keel_conn_take(conn, 0);
	struct keel_frame frame = { .type = type };

	if (type == KEEL_FRAME_CHUNKS) {
		frame.chunks.addr = cpu_to_le64(conn->chunks->mr->iova);
		frame.chunks.rkey = cpu_to_le32(conn->chunks->mr->rkey);
	}
	if (buf)
		/* It is a buffer of this connection. */
		context_unsafe(keel_conn_send(buf, &frame, 0));
	return buf;
}

/**
 * keel_conn_tell() - send a frame that is for no QP
 * @conn: the connection
 * @type: KEEL_FRAME_CREDIT, KEEL_FRAME_ASK or KEEL_FRAME_ALIVE
 *
 * Context: any but interrupts.
 * Return: false if the connection cannot carry it now.
 */
bool keel_conn_tell(struct keel_conn *conn, enum keel_frame_type type)
{
	guard(spinlock)(&conn->lock);
	return keel_conn_tell_locked(conn, type);
}
EXPORT_SYMBOL_IF_KUNIT(keel_conn_tell);

/**
 * keel_conn_settle() - send what this side owes the other one
 * @conn: the connection
 *
 * An answer to ASK, where the chunks are, and credits.
 *
 * Context: any but interrupts.
 */
void keel_conn_settle(struct keel_conn *conn)
{
	if (conn->owes_alive && keel_conn_tell_locked(conn, KEEL_FRAME_ALIVE))
		conn->owes_alive = false;
	if (conn->owes_chunks && keel_conn_tell_locked(conn, KEEL_FRAME_CHUNKS))
		conn->owes_chunks = false;
	/* All messages carry credits, so this comes last. */
	if (conn->owed < KEEL_LINK_RECVS / 2 &&
	    hweight_long(conn->chunks_freed) < KEEL_CHUNKS / 2)
		return;
	if (conn->batch)
		keel_conn_flush(conn);
	else
		keel_conn_tell_locked(conn, KEEL_FRAME_CREDIT);
}

/**
 * keel_conn_up() - let a connection carry frames
 * @conn: the connection, whose QP and buffers are ready
 *
 * Context: any but interrupts. The other side may send at once: a caller that lets others find
 * the connection has the lock of the link until they do.
 * Return: false if it has ended meanwhile.
 */
bool keel_conn_up(struct keel_conn *conn)
{
	guard(spinlock)(&conn->lock);
	if (conn->state == KEEL_CONN_OVER)
		return false;
	conn->state = KEEL_CONN_UP;
	/* Frames that came before have added some. */
	conn->credits += le16_to_cpu(conn->hello.credits);
	conn->owed += conn->untold;
	keel_conn_settle(conn);
	return true;
}
EXPORT_SYMBOL_IF_KUNIT(keel_conn_up);

/* The lower device has sent @last, and so all that were posted before. */
static void keel_conn_reap(struct keel_conn *conn, const struct keel_buf *last)
	__must_hold(&conn->lock)
{
	struct keel_buf *buf, *next;

	list_for_each_entry_safe(buf, next, &conn->posts, node) {
		list_del(&buf->node);
		conn->under_way--;
		/* It is a buffer of this connection. */
		context_unsafe(keel_chunk_sent(buf));
		/* Likewise. */
		context_unsafe(keel_conn_give_back(buf));
		if (buf == last)
			break;
	}
}

/**
 * keel_conn_sent() - &keel_buf.cqe of a buffer to send
 * @cq: CQ of the connection
 * @wc: the completion
 */
void keel_conn_sent(struct ib_cq *cq, struct ib_wc *wc)
{
	struct keel_buf *buf = container_of(wc->wr_cqe, struct keel_buf, cqe);
	struct keel_conn *conn = buf->conn;

	/* An unsignaled one has a completion, too, if it fails. */
	if (wc->status != IB_WC_SUCCESS) {
		keel_conn_end(conn);
		return;
	}
	scoped_guard(spinlock, &conn->lock) {
		/* Then some are in no list, and none is used any more. */
		if (conn->state == KEEL_CONN_OVER)
			return;
		keel_conn_reap(conn, buf);
		keel_conn_flush(conn);
		keel_conn_settle(conn);
	}
	keel_link_wake(conn->link, keel_conn_room(conn));
}

/* Return: false if the other side does not follow the protocol. */
static bool keel_conn_credit(struct keel_conn *conn, const struct keel_frame *frame)
{
	u32 credits = le16_to_cpu(frame->credits);

	guard(spinlock)(&conn->lock);
	if (conn->credits + credits > KEEL_CREDITS_MAX ||
	    !keel_chunks_return(conn, le16_to_cpu(frame->freed)))
		return false;
	conn->credits += credits;
	return true;
}

/* Return: false if the other side does not follow the protocol. */
static bool keel_conn_batch(struct keel_conn *conn, const struct keel_frame *frame,
			    const void *data)
{
	u32 len = le32_to_cpu(frame->len), off = 0;
	struct keel_frame part;

	while (off < len) {
		const void *bytes = keel_batch_next(data, len, &off, &part);

		if (!bytes)
			return false;
		keel_load_frame(conn, &part);
		keel_link_frame(conn->link, &part, bytes);
	}
	return true;
}

/* Return: false if the other side does not follow the protocol. */
static bool keel_conn_frame(struct keel_conn *conn, const struct keel_frame *frame,
			    const void *data)
{
	struct keel_link *link = conn->link;

	WRITE_ONCE(link->used, jiffies);
	scoped_guard(spinlock, &link->lock) {
		/* The other side is there. A guest says nothing about the connection. */
		if (link->up == conn)
			link->asked = 0;
	}
	switch (frame->type) {
	case KEEL_FRAME_REQUEST:
	case KEEL_FRAME_ANSWER:
	case KEEL_FRAME_DATAGRAM:
		keel_load_frame(conn, frame);
		keel_link_frame(link, frame, data);
		break;
	case KEEL_FRAME_BATCH:
		return keel_conn_batch(conn, frame, data);
	case KEEL_FRAME_ASK:
		scoped_guard(spinlock, &conn->lock)
			conn->owes_alive = true;
		break;
	case KEEL_FRAME_CHUNKS:
		/* It takes two. Nobody else can have this one take memory. */
		if (keel_link_is_used(link))
			keel_link_event(link, KEEL_LINK_CHUNKS);
		return keel_conn_learn(conn, frame);
	default:
		break;
	}
	return true;
}

/*
 * Receive into a buffer again, for which the other side gets @credits, and the chunk of its frame.
 * Return: true if the connection is over.
 */
static bool keel_conn_repost(struct keel_buf *buf, u32 credits, u32 chunk)
{
	struct keel_conn *conn = buf->conn;

	scoped_guard(spinlock, &conn->lock) {
		/* keel_conn_destroy() waits for what was posted before it was over. */
		if (conn->state == KEEL_CONN_OVER)
			return true;
		if (!keel_buf_post_recv(buf)) {
			conn->owed += credits;
			conn->chunks_freed |= chunk ? BIT(chunk - 1) : 0;
			keel_conn_settle(conn);
			return false;
		}
	}
	keel_conn_end(conn);
	return true;
}

/* Is a frame from the other end of the connection? It was no frame at all if it is short. */
static bool keel_conn_knows(const struct keel_conn *conn, const struct keel_frame *frame,
			    u32 bytes)
{
	return bytes >= sizeof(*frame) && frame->cookie == conn->cookie;
}

static void keel_conn_invalid(struct keel_conn *conn)
{
	pr_notice_ratelimited("keel: %pI6c sent an invalid frame: the link ends\n",
			      conn->link->ends.dgid.raw);
	keel_conn_end(conn);
}

/**
 * keel_conn_received() - &keel_buf.cqe of a buffer to receive
 * @cq: CQ of the connection
 * @wc: the completion
 */
void keel_conn_received(struct ib_cq *cq, struct ib_wc *wc)
{
	struct keel_buf *buf = container_of(wc->wr_cqe, struct keel_buf, cqe);
	struct keel_conn *conn = buf->conn;
	struct ib_device *ib = conn->lower->ib;
	struct keel_frame frame;
	const void *data = buf->page;

	/* No other message of a lower device is a frame. */
	if (wc->status != IB_WC_SUCCESS || wc->opcode != IB_WC_RECV) {
		keel_conn_end(conn);
		return;
	}
	ib_dma_sync_single_for_cpu(ib, buf->frame_dma, sizeof(frame), DMA_FROM_DEVICE);
	ib_dma_sync_single_for_cpu(ib, buf->page_dma, KEEL_FRAME_DATA, DMA_FROM_DEVICE);
	frame = *buf->frame;
	if (!keel_conn_knows(conn, &frame, wc->byte_len)) {
		keel_conn_repost(buf, 0, 0);
		return;
	}
	if (!keel_frame_is_valid(&frame, wc->byte_len) || !keel_conn_credit(conn, &frame)) {
		keel_conn_invalid(conn);
		return;
	}
	if (frame.chunk)
		data = keel_chunk_get(conn, &frame);
	/* Messages of ib_cm can be forged. A frame has the numbers of the QP. */
	if (!test_bit(KEEL_CONN_CONFIRMED, &conn->events))
		keel_conn_event(conn, KEEL_CONN_CONFIRMED);
	if (!data || !keel_conn_frame(conn, &frame, data)) {
		keel_conn_invalid(conn);
		return;
	}
	ib_dma_sync_single_for_device(ib, buf->frame_dma, sizeof(frame), DMA_FROM_DEVICE);
	ib_dma_sync_single_for_device(ib, buf->page_dma, KEEL_FRAME_DATA, DMA_FROM_DEVICE);
	if (keel_conn_repost(buf, 1, le16_to_cpu(frame.chunk)))
		return;
	keel_link_wake(conn->link, keel_conn_room(conn));
	/* A host can send many, and batches are much work. */
	cond_resched();
}
