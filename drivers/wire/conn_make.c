// SPDX-License-Identifier: GPL-2.0
/*
 * Makes and destroys connections: their QP, their buffers, and their chunks. conn.c uses them.
 */
#include <kunit/visibility.h>
#include <linux/minmax.h>
#include <linux/random.h>
#include <linux/slab.h>

#include "keel_conn.h"
#include "keel_point.h"

static void keel_conn_release(struct kref *ref)
{
	struct keel_conn *conn = container_of(ref, struct keel_conn, ref);
	int i;

	/* Only now: threads with a lent buffer may have written to it. */
	for (i = 0; i < KEEL_LINK_SENDS; i++)
		free_page((unsigned long)conn->sends[i].page);
	for (i = 0; i < KEEL_LINK_RECVS; i++)
		free_page((unsigned long)conn->recvs[i].page);
	/* Likewise. No other thread has the connection any more. */
	context_unsafe(keel_chunks_free(conn->chunks));
	kfree(conn->headers);
	keel_link_put(conn->link);
	kfree(conn);
}

/**
 * keel_conn_put() - drop a reference on a connection
 * @conn: the connection
 *
 * Context: any but interrupts.
 */
void keel_conn_put(struct keel_conn *conn)
{
	kref_put(&conn->ref, keel_conn_release);
}
EXPORT_SYMBOL_IF_KUNIT(keel_conn_put);

/**
 * keel_conn_new() - make a connection without a QP
 * @link: the link
 * @lower: the device that is to carry it
 *
 * Context: may sleep.
 * Return: the connection, which keel_conn_destroy() destroys; or NULL.
 */
struct keel_conn *keel_conn_new(struct keel_link *link, struct keel_lower *lower)
	__context_unsafe(/* no other thread has the connection yet */)
{
	struct keel_conn *conn = kzalloc_obj(*conn, GFP_KERNEL);

	if (!conn)
		return NULL;
	kref_init(&conn->ref);
	kref_get(&link->ref);
	conn->link = link;
	keel_lower_get(lower);
	conn->lower = lower;
	conn->psn = get_random_u32() & KEEL_PSN_MASK;
	conn->cookie = cpu_to_le64(get_random_u64());
	spin_lock_init(&conn->lock);
	INIT_LIST_HEAD(&conn->node);
	INIT_LIST_HEAD(&conn->guest);
	INIT_LIST_HEAD(&conn->free);
	INIT_LIST_HEAD(&conn->posts);
	keel_batch_init(conn);
	INIT_WORK(&conn->flush, keel_conn_flush_work);
	conn->since = jiffies;
	return conn;
}
EXPORT_SYMBOL_IF_KUNIT(keel_conn_new);

/* &keel_chunks.cqe: the completion of the frame behind the write does the rest. */
static void keel_conn_written(struct ib_cq *cq, struct ib_wc *wc)
{
	if (wc->status != IB_WC_SUCCESS)
		keel_conn_end(cq->cq_context);
}

/* &keel_chunks.reg_cqe: if the device does not want this, the next connection does without. */
static void keel_conn_registered(struct ib_cq *cq, struct ib_wc *wc)
{
	struct keel_conn *conn = cq->cq_context;

	if (wc->status == IB_WC_SUCCESS)
		return;
	if (wc->status != IB_WC_WR_FLUSH_ERR)
		WRITE_ONCE(conn->lower->no_chunks, true);
	keel_conn_end(conn);
}

static void keel_conn_fault(struct ib_event *event, void *context)
{
	/* An error of the QP ends in completions with an error status. */
}

/**
 * keel_conn_begin() - give a connection its QP
 * @conn: the connection
 *
 * Context: may sleep.
 * Return: 0 or a negative errno: the caller destroys the connection then.
 */
int keel_conn_begin(struct keel_conn *conn)
{
	struct ib_qp_init_attr init = {
		.event_handler = keel_conn_fault,
		.cap = {
			.max_send_wr = KEEL_CONN_SENDS,
			.max_recv_wr = KEEL_CONN_RECVS,
			.max_send_sge = 2,
			.max_recv_sge = 2,
		},
		.sq_sig_type = IB_SIGNAL_REQ_WR,
		.qp_type = IB_QPT_RC,
	};
	int ret;

	keel_stub(keel_conn_begin, conn);
	/* For chunks, if there can be any: keel_chunks_new(). */
	if (conn->lower->ib->attrs.max_send_sge >= (int)KEEL_CHUNK_PARTS)
		init.cap.max_send_sge = max_t(u32, KEEL_CHUNK_PARTS, 2);
	if (!keel_buf_headers(conn))
		return -ENOMEM;
	ret = keel_handler_start(conn);
	if (ret)
		return ret;
	init.send_cq = conn->cq;
	init.recv_cq = conn->cq;
	conn->pd = ib_alloc_pd(conn->lower->ib, 0);
	if (IS_ERR(conn->pd)) {
		ret = PTR_ERR(conn->pd);
		conn->pd = NULL;
		return ret;
	}
	conn->qp = ib_create_qp(conn->pd, &init);
	if (!IS_ERR(conn->qp))
		return 0;
	ret = PTR_ERR(conn->qp);
	conn->qp = NULL;
	return ret;
}
EXPORT_SYMBOL_IF_KUNIT(keel_conn_begin);

/**
 * keel_conn_post() - make buffers to receive, and post them
 * @conn: the connection, whose QP is ready for them
 * @n: until so many are posted
 *
 * Context: may sleep.
 * Return: 0 or a negative errno.
 */
int keel_conn_post(struct keel_conn *conn, int n)
{
	struct keel_buf *buf;
	int ret;

	for (; conn->posted < n; conn->posted++) {
		buf = &conn->recvs[conn->posted];
		buf->cqe.done = keel_conn_received;
		ret = keel_buf_map(conn, buf, KEEL_LINK_SENDS + conn->posted, DMA_FROM_DEVICE);
		ret = ret ?: keel_buf_post_recv(buf);
		if (ret)
			return ret;
	}
	return 0;
}

/**
 * keel_conn_add_chunks() - give a connection its chunks
 * @conn: the connection, which is up
 *
 * It works without them, too, but long messages are slower. There is one attempt.
 *
 * Context: may sleep; work of the link.
 */
void keel_conn_add_chunks(struct keel_conn *conn)
{
	struct keel_chunks *chunks;

	if (!keel_conn_may_add_chunks(conn))
		return;
	scoped_guard(spinlock, &conn->lock)
		conn->tried_chunks = true;
	chunks = keel_chunks_new(conn);
	if (!chunks)
		return;
	chunks->cqe.done = keel_conn_written;
	chunks->reg_cqe.done = keel_conn_registered;
	if (keel_chunks_post(chunks, conn->qp)) {
		keel_chunks_unmap(conn->lower, chunks);
		keel_chunks_free(chunks);
		return;
	}
	guard(spinlock)(&conn->lock);
	conn->chunks = chunks;
	conn->owes_chunks = true;
	if (conn->state == KEEL_CONN_UP)
		keel_conn_settle(conn);
}

/**
 * keel_conn_fill() - give a connection all its buffers
 * @conn: the connection, whose QP is ready for them, and to send
 *
 * Not before the other side has answered, so that requests alone take little memory.
 *
 * Context: may sleep.
 * Return: 0 or a negative errno: the caller destroys the connection then.
 */
int keel_conn_fill(struct keel_conn *conn)
{
	struct keel_buf *buf;
	int i, ret;

	for (i = 0; i < KEEL_LINK_SENDS; i++) {
		buf = &conn->sends[i];
		buf->cqe.done = keel_conn_sent;
		ret = keel_buf_map(conn, buf, i, DMA_TO_DEVICE);
		if (ret)
			return ret;
		scoped_guard(spinlock, &conn->lock)
			/* It is a buffer of this connection. */
			context_unsafe(keel_conn_give_back(buf));
	}
	return keel_conn_post(conn, KEEL_LINK_RECVS);
}
EXPORT_SYMBOL_IF_KUNIT(keel_conn_fill);

/**
 * keel_conn_destroy() - destroy a connection
 * @conn: the connection; &keel_link.up is another one. The caller's reference is dropped.
 *
 * Context: may sleep; not a handler of the connection.
 */
void keel_conn_destroy(struct keel_conn *conn)
{
	int i;

	scoped_guard(spinlock, &conn->lock)
		conn->state = KEEL_CONN_OVER;
	/* No frame begins to wait any more. */
	hrtimer_cancel(&conn->batch_timer);
	cancel_work_sync(&conn->flush);
	/* First, because its handlers use the QP. Waits for them. */
	if (conn->id || conn->iw)
		conn->lower->cm->end(conn);
	if (conn->qp) {
		/* Nothing is posted any more. After this, no completion comes any more. */
		if (conn->posted)
			ib_drain_qp(conn->qp);
		ib_destroy_qp(conn->qp);
	}
	keel_handler_stop(conn);
	/* Only the work of the link sets it, and calls this. */
	context_unsafe(keel_chunks_unmap(conn->lower, conn->chunks));
	if (conn->pd)
		ib_dealloc_pd(conn->pd);
	for (i = 0; i < KEEL_LINK_SENDS; i++)
		keel_buf_unmap(conn, &conn->sends[i], DMA_TO_DEVICE);
	for (i = 0; i < KEEL_LINK_RECVS; i++)
		keel_buf_unmap(conn, &conn->recvs[i], DMA_FROM_DEVICE);
	/* It may have taken long: see &keel_cm_ops.end. */
	if (conn->request)
		keel_request_end(conn->lower);
	keel_lower_put(conn->lower);
	keel_conn_put(conn);
}
EXPORT_SYMBOL_IF_KUNIT(keel_conn_destroy);
