// SPDX-License-Identifier: GPL-2.0
/*
 * The buffers of a connection: memory of frames, and the work requests that send and receive
 * them.
 */
#include <linux/cache.h>
#include <linux/gfp.h>
#include <linux/slab.h>

#include "keel_conn.h"

/* Headers have cache lines of their own, if the lower device does not see them. */
#define KEEL_HEADER_STRIDE	ALIGN(sizeof(struct keel_frame), ARCH_DMA_MINALIGN)

/**
 * keel_buf_headers() - make the headers of all buffers
 * @conn: the connection
 *
 * Context: may sleep.
 * Return: false if there is no memory.
 */
bool keel_buf_headers(struct keel_conn *conn)
{
	conn->headers = kcalloc(KEEL_LINK_SENDS + KEEL_LINK_RECVS, KEEL_HEADER_STRIDE,
				GFP_KERNEL);
	return conn->headers;
}

/**
 * keel_buf_map() - make a buffer, for the lower device, too
 * @conn: its connection
 * @buf: the buffer
 * @i: its number among the headers
 * @dir: whether it is one to send
 *
 * Context: may sleep.
 * Return: 0 or a negative errno; keel_buf_unmap() also after that.
 */
int keel_buf_map(struct keel_conn *conn, struct keel_buf *buf, int i,
		 enum dma_data_direction dir)
{
	struct ib_device *ib = conn->lower->ib;

	buf->conn = conn;
	buf->frame = (void *)conn->headers + i * KEEL_HEADER_STRIDE;
	buf->page = (void *)get_zeroed_page(GFP_KERNEL);
	if (!buf->page)
		return -ENOMEM;
	buf->frame_dma = ib_dma_map_single(ib, buf->frame, sizeof(*buf->frame), dir);
	if (ib_dma_mapping_error(ib, buf->frame_dma)) {
		buf->frame_dma = 0;
		return -EIO;
	}
	buf->page_dma = ib_dma_map_single(ib, buf->page, KEEL_FRAME_DATA, dir);
	if (ib_dma_mapping_error(ib, buf->page_dma)) {
		buf->page_dma = 0;
		return -EIO;
	}
	return 0;
}

/**
 * keel_buf_unmap() - take a buffer away from the lower device
 * @conn: its connection
 * @buf: the buffer
 * @dir: likewise
 *
 * Its memory stays: threads with a lent buffer may still write to it.
 *
 * Context: may sleep.
 */
void keel_buf_unmap(struct keel_conn *conn, struct keel_buf *buf, enum dma_data_direction dir)
{
	if (buf->frame_dma)
		ib_dma_unmap_single(conn->lower->ib, buf->frame_dma, sizeof(*buf->frame), dir);
	if (buf->page_dma)
		ib_dma_unmap_single(conn->lower->ib, buf->page_dma, KEEL_FRAME_DATA, dir);
}

/* The header, and the data if there is any. */
static int keel_buf_sges(const struct keel_buf *buf, struct ib_sge *sge, u32 len)
{
	u32 lkey = buf->conn->pd->local_dma_lkey;

	sge[0] = (struct ib_sge){ buf->frame_dma, sizeof(*buf->frame), lkey };
	sge[1] = (struct ib_sge){ buf->page_dma, len, lkey };
	return len ? 2 : 1;
}

/**
 * keel_buf_post_recv() - receive a frame
 * @buf: a buffer to receive
 *
 * Context: any but interrupts.
 * Return: 0 or a negative errno.
 */
int keel_buf_post_recv(struct keel_buf *buf)
{
	struct keel_conn *conn = buf->conn;
	struct ib_sge sge[2];
	struct ib_recv_wr wr = { .wr_cqe = &buf->cqe, .sg_list = sge };

	wr.num_sge = keel_buf_sges(buf, sge, KEEL_FRAME_DATA);
	return ib_post_recv(conn->qp, &wr, NULL);
}

/**
 * keel_buf_post_send() - send the frame of a buffer, behind the data of its chunk
 * @buf: the buffer, with its header
 * @len: bytes of data
 * @signal: there is a completion also if nothing fails
 *
 * Context: any but interrupts.
 * Return: 0 or a negative errno.
 */
int keel_buf_post_send(struct keel_buf *buf, u32 len, bool signal)
{
	struct ib_sge sge[2], parts[KEEL_CHUNK_PARTS];
	struct ib_send_wr wr = {
		.wr_cqe = &buf->cqe,
		.sg_list = sge,
		.opcode = IB_WR_SEND,
		.send_flags = signal ? IB_SEND_SIGNALED : 0,
	};
	struct ib_rdma_wr write;

	wr.num_sge = keel_buf_sges(buf, sge, buf->chunk ? 0 : len);
	if (!buf->chunk)
		return ib_post_send(buf->conn->qp, &wr, NULL);
	keel_chunk_wr(buf, len, &write, parts);
	write.wr.next = &wr;
	return ib_post_send(buf->conn->qp, &write.wr, NULL);
}
