// SPDX-License-Identifier: GPL-2.0
/*
 * The chunks of a connection: which of the other side have data, and which of this side were
 * read. A chunk of the other side is written with the data of a frame, before that frame is
 * sent. The other side copies it when it handles the frame, and says with its next frame that it
 * is free again: that waits for nobody.
 */
#include <kunit/visibility.h>
#include <linux/bitops.h>

#include "keel_conn.h"

#define KEEL_CHUNKS_ALL		GENMASK(KEEL_CHUNKS - 1, 0)

/**
 * keel_conn_may_add_chunks() - is there no attempt yet to make chunks?
 * @conn: the connection
 *
 * Context: any but interrupts.
 * Return: true if so.
 */
bool keel_conn_may_add_chunks(struct keel_conn *conn)
{
	guard(spinlock)(&conn->lock);
	return conn->state == KEEL_CONN_UP && !conn->tried_chunks;
}

/**
 * keel_conn_is_told() - has the other side told where its chunks are?
 * @conn: the connection
 *
 * Context: any but interrupts.
 * Return: true if so.
 */
bool keel_conn_is_told(struct keel_conn *conn)
{
	guard(spinlock)(&conn->lock);
	return conn->told_chunks;
}

/**
 * keel_conn_chunks_stuck() - does the other side keep all chunks?
 * @conn: the connection
 * @time: for so long, jiffies
 *
 * Context: any but interrupts.
 * Return: true if so.
 */
bool keel_conn_chunks_stuck(struct keel_conn *conn, unsigned long time)
{
	guard(spinlock)(&conn->lock);
	/* Those that threads of this side have do not count: they may be slow. */
	return conn->chunks_out == KEEL_CHUNKS_ALL &&
	       time_after_eq(jiffies, conn->chunks_moved + time);
}

/**
 * keel_conn_learn() - the other side has told where its chunks are
 * @conn: the connection
 * @frame: KEEL_FRAME_CHUNKS
 *
 * Context: any but interrupts.
 * Return: false if it has done so before.
 */
bool keel_conn_learn(struct keel_conn *conn, const struct keel_frame *frame)
{
	guard(spinlock)(&conn->lock);
	if (conn->told_chunks)
		return false;
	conn->told_chunks = true;
	conn->chunks_addr = le64_to_cpu(frame->chunks.addr);
	conn->chunks_rkey = le32_to_cpu(frame->chunks.rkey);
	conn->chunks_free = KEEL_CHUNKS_ALL;
	return true;
}
EXPORT_SYMBOL_IF_KUNIT(keel_conn_learn);

/**
 * keel_chunk_take() - give a chunk to a buffer
 * @buf: a buffer to send; keel_chunks_ready()
 *
 * Context: any but interrupts.
 */
void keel_chunk_take(struct keel_buf *buf)
{
	struct keel_conn *conn = buf->conn;
	u32 i = __ffs(keel_chunks_now(conn));

	conn->chunks_free &= ~BIT(i);
	conn->chunks_moved = jiffies;
	buf->chunk = i + 1;
	buf->data = keel_chunk_data(&conn->chunks->send, buf->chunk);
}

/**
 * keel_chunk_give_back() - take the chunk away from a buffer that is not sent
 * @buf: the buffer, which may have none
 *
 * Context: any but interrupts.
 */
void keel_chunk_give_back(struct keel_buf *buf)
{
	if (buf->chunk)
		buf->conn->chunks_free |= BIT(buf->chunk - 1);
	buf->chunk = 0;
}

/**
 * keel_chunk_sent() - a buffer was sent, so that the lower device reads its chunk no more
 * @buf: the buffer, which may have none
 *
 * Context: any but interrupts.
 */
void keel_chunk_sent(struct keel_buf *buf)
{
	if (buf->chunk)
		buf->conn->chunks_writing &= ~BIT(buf->chunk - 1);
	buf->chunk = 0;
}

/**
 * keel_chunks_return() - the other side has read chunks
 * @conn: the connection
 * @freed: &keel_frame.freed of the other side
 *
 * Context: any but interrupts.
 * Return: false if it had no such chunk.
 */
bool keel_chunks_return(struct keel_conn *conn, unsigned long freed)
{
	if (freed & ~conn->chunks_out)
		return false;
	conn->chunks_out &= ~freed;
	conn->chunks_free |= freed;
	return true;
}
EXPORT_SYMBOL_IF_KUNIT(keel_chunks_return);

/**
 * keel_chunk_wr() - make the work request that writes to a chunk of the other side
 * @buf: the buffer that has it
 * @len: bytes of data
 * @wr: is set
 * @sge: KEEL_CHUNK_PARTS of them, for @wr
 *
 * Context: any but interrupts.
 */
void keel_chunk_wr(struct keel_buf *buf, u32 len, struct ib_rdma_wr *wr, struct ib_sge *sge)
{
	struct keel_conn *conn = buf->conn;
	const struct keel_area *area = &conn->chunks->send;
	u32 i, n, first = (buf->chunk - 1) * KEEL_CHUNK_PARTS;

	for (i = 0, n = len; n; i++, n -= sge[i - 1].length)
		sge[i] = (struct ib_sge){ area->dma[first + i], min_t(u32, n, KEEL_PART),
					  conn->pd->local_dma_lkey };
	/*
	 * No completion is needed, not even for &keel_lower.signals: nobody writes to the memory
	 * before the other side has read the chunk.
	 */
	*wr = (struct ib_rdma_wr){
		.wr.wr_cqe = &conn->chunks->cqe,
		.wr.opcode = IB_WR_RDMA_WRITE,
		.wr.sg_list = sge,
		.wr.num_sge = i,
		.remote_addr = conn->chunks_addr + (buf->chunk - 1) * KEEL_CHUNK_DATA,
		.rkey = conn->chunks_rkey,
	};
	keel_chunk_to_device(conn->lower, area, buf->chunk, len);
	conn->chunks_out |= BIT(buf->chunk - 1);
	conn->chunks_writing |= BIT(buf->chunk - 1);
}

/**
 * keel_chunk_get() - the data of a frame that is in a chunk
 * @conn: the connection that has received it
 * @frame: copy of the header, which is valid
 *
 * The other side can change it at any time: it is read once.
 *
 * Context: any but interrupts.
 * Return: the data, until the connection is destroyed; or NULL if there are no chunks.
 */
const void *keel_chunk_get(struct keel_conn *conn, const struct keel_frame *frame)
{
	u32 chunk = le16_to_cpu(frame->chunk);
	struct keel_chunks *chunks;

	scoped_guard(spinlock, &conn->lock)
		chunks = conn->chunks;
	if (!chunks)
		return NULL;
	keel_chunk_to_cpu(conn->lower, &chunks->recv, chunk, le32_to_cpu(frame->len));
	return keel_chunk_data(&chunks->recv, chunk);
}
