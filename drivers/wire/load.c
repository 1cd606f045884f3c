// SPDX-License-Identifier: GPL-2.0
/*
 * Is a link busy? A message that is alone waits for the threads of both hosts, so they are urgent
 * (handler.c), and execute it (far_now.c). If many are under way, threads that are woken for each
 * one would cost the throughput of all, and what they execute is charged to nobody: the workers of
 * the processes do it then. The requester knows how many are under way, and tells the other host
 * in the frame.
 *
 * Users have a part in that number, and may leave packets unanswered as long as they want: their
 * part counts for two slots of time at most after it has changed.
 */
#include <kunit/visibility.h>
#include <linux/jiffies.h>
#include <linux/minmax.h>

#include "keel_conn.h"
#include "keel_point.h"

#define KEEL_LOAD_SLOT		max(HZ / 16, 1)
/* Busy frames until a connection is so, unless others come in between, and the most that count. */
#define KEEL_LOAD_HIGH		8U
/* After so long without one, a connection is not busy. */
#define KEEL_LOAD_IDLE		max(HZ / 50, 1)

/* The slot of now. */
VISIBLE_IF_KUNIT u64 keel_load_slot(void)
{
	keel_stub(keel_load_slot);
	return jiffies / KEEL_LOAD_SLOT;
}
EXPORT_SYMBOL_IF_KUNIT(keel_load_slot);

/* Forget what is old. */
static void keel_load_turn(struct keel_load *load)
	__must_hold(&load->lock)
{
	unsigned long slot = keel_load_slot(), passed = slot - load->slot;

	if (!passed)
		return;
	load->n[slot % 2] = 0;
	if (passed > 1)
		load->n[(slot - 1) % 2] = 0;
	load->slot = slot;
}

/* Packets of a part that still count. */
static u32 keel_load_of(const struct keel_load *load, const struct keel_load_part *part)
	__must_hold(&load->lock)
{
	return load->slot - part->slot < 2 ? part->n : 0;
}

/**
 * keel_load_set() - set how many packets are under way
 * @load: of the link
 * @part: of a QP; zeroed at first
 * @n: packets of the QP
 * @una: the first of them; they count as new ones only if this or @n has changed
 *
 * Context: any but interrupts; one thread at a time has @part.
 */
void keel_load_set(struct keel_load *load, struct keel_load_part *part, u32 n, u32 una)
{
	guard(spinlock)(&load->lock);
	if (n == part->n && una == part->una)
		return;
	keel_load_turn(load);
	load->n[part->slot % 2] -= keel_load_of(load, part);
	part->slot = load->slot;
	part->n = n;
	part->una = una;
	load->n[part->slot % 2] += n;
}
EXPORT_SYMBOL_IF_KUNIT(keel_load_set);

/**
 * keel_load_but() - how many packets of other QPs are under way?
 * @load: of the link
 * @part: of a QP
 *
 * Context: as keel_load_set().
 * Return: their number.
 */
u32 keel_load_but(struct keel_load *load, const struct keel_load_part *part)
{
	guard(spinlock)(&load->lock);
	keel_load_turn(load);
	return load->n[0] + load->n[1] - keel_load_of(load, part);
}
EXPORT_SYMBOL_IF_KUNIT(keel_load_but);

static void keel_load_set_busy(struct keel_conn *conn, bool busy)
{
	struct keel_link *link = conn->link;

	if (conn->busy == busy)
		return;
	/* keel_link_up() reads it under the lock, and writes the other one. */
	guard(spinlock)(&link->lock);
	conn->busy = busy;
	/* Another connection may carry the messages of the link. */
	if (link->up == conn)
		WRITE_ONCE(link->busy, busy);
}

/**
 * keel_load_rest() - a connection is not busy if no request and no answer has come for long
 * @conn: the connection
 *
 * Context: as keel_load_frame().
 */
void keel_load_rest(struct keel_conn *conn)
{
	if (time_before_eq(jiffies, conn->load_at + KEEL_LOAD_IDLE))
		return;
	conn->load = 0;
	keel_load_set_busy(conn, false);
}
EXPORT_SYMBOL_IF_KUNIT(keel_load_rest);

/**
 * keel_load_frame() - a request or an answer has come
 * @conn: the connection
 * @frame: its header
 *
 * Context: any but interrupts; only one thread calls this.
 */
void keel_load_frame(struct keel_conn *conn, const struct keel_frame *frame)
{
	if (frame->type != KEEL_FRAME_REQUEST && frame->type != KEEL_FRAME_ANSWER)
		return;
	keel_load_rest(conn);
	conn->load_at = jiffies;
	if (frame->flags & KEEL_FRAME_F_BUSY)
		conn->load = min(conn->load + 1, KEEL_LOAD_HIGH);
	else if (conn->load)
		conn->load--;
	/* Not one thing and then the other all the time. */
	if (conn->load == KEEL_LOAD_HIGH)
		keel_load_set_busy(conn, true);
	else if (!conn->load)
		keel_load_set_busy(conn, false);
}
EXPORT_SYMBOL_IF_KUNIT(keel_load_frame);
