// SPDX-License-Identifier: GPL-2.0
/*
 * Is a connection busy? A message that is alone waits for the threads of both hosts, so they are
 * urgent (handler.c). If many are under way, it does not matter when one of them is handled, and
 * threads that are woken for each one would cost the throughput of all. The requester knows how
 * many are under way, and tells the other host.
 */
#include <kunit/visibility.h>
#include <linux/jiffies.h>
#include <linux/minmax.h>

#include "keel_conn.h"

/* Requests that are not answered from which on a connection is busy. */
#define KEEL_LOAD_BUSY		4
/* Without an answer for so long, those are lost that are missing. */
#define KEEL_LOAD_LOST		(HZ / 10)
/* Frames that tell so until the threads are not urgent, and the most that are remembered. */
#define KEEL_LOAD_HIGH		8
#define KEEL_LOAD_MOST		16U

/**
 * keel_load_request() - a request is sent
 * @conn: the connection
 * @frame: its header, which gets KEEL_FRAME_F_BUSY
 *
 * Context: any but interrupts.
 */
void keel_load_request(struct keel_conn *conn, struct keel_frame *frame)
{
	if (frame->type != KEEL_FRAME_REQUEST)
		return;
	if (!conn->requests)
		conn->answered = jiffies;
	else if (time_after(jiffies, conn->answered + KEEL_LOAD_LOST))
		conn->requests = 0;
	if (conn->requests >= KEEL_LOAD_BUSY)
		frame->flags |= KEEL_FRAME_F_BUSY;
	conn->requests++;
}
EXPORT_SYMBOL_IF_KUNIT(keel_load_request);

/**
 * keel_load_frame() - a request or an answer has come
 * @conn: the connection
 * @frame: its header
 *
 * Context: any but interrupts; only one thread calls this.
 */
void keel_load_frame(struct keel_conn *conn, const struct keel_frame *frame)
{
	if (frame->type == KEEL_FRAME_ANSWER) {
		guard(spinlock)(&conn->lock);
		conn->answered = jiffies;
		/* The other host may send any number. */
		if (conn->requests)
			conn->requests--;
	} else if (frame->type != KEEL_FRAME_REQUEST) {
		return;
	}
	if (frame->flags & KEEL_FRAME_F_BUSY)
		conn->load = min(conn->load + 1, KEEL_LOAD_MOST);
	else if (conn->load)
		conn->load--;
}
EXPORT_SYMBOL_IF_KUNIT(keel_load_frame);

/**
 * keel_load_is_high() - are so many messages under way that none is urgent?
 * @conn: the connection
 *
 * Context: as keel_load_frame().
 * Return: true if so.
 */
bool keel_load_is_high(const struct keel_conn *conn)
{
	return conn->load >= KEEL_LOAD_HIGH;
}
EXPORT_SYMBOL_IF_KUNIT(keel_load_is_high);
