// SPDX-License-Identifier: GPL-2.0
/*
 * How frames get a buffer of their link: in turn, if there are not enough for all. And
 * datagrams, which wait for a link, but not in that queue.
 */
#include <kunit/visibility.h>
#include <linux/slab.h>

#include "keel_conn.h"
#include "keel_point.h"
#include "keel_quota.h"

/* Stands for a user that sends answers and refusals; only compared. */
static const struct keel_user keel_answers;

/* Does a frame that waits in no queue get a buffer, and of which? */
enum keel_admission {
	KEEL_ADMITS_NONE,
	KEEL_ADMITS_ALL,	/* nobody else needs it */
	KEEL_ADMITS_SHARE,	/* one of those for datagrams */
	KEEL_ADMITS_KERNEL,	/* a reserved one */
};

/* Is it the turn of the caller? The few buffers for datagrams do not count. */
static bool keel_link_is_next(struct keel_link *link, const struct keel_link_wait *wait,
			      u32 room)
	__must_hold(&link->lock)
{
	if (wait && wait->woken)
		return room;
	/* Those that were woken may be stopped: only a part is kept for them. */
	if (room > KEEL_LINK_OPEN)
		return true;
	return room > link->nwoken && keel_turns_empty(&link->turns);
}

/* The owner of a share of the buffers for datagrams. A user can cause answers, too. NULL: none */
static const struct keel_user *keel_sender_owner(const struct keel_sender *from)
{
	if (from->kernel)
		return NULL;
	return from->user ?: &keel_answers;
}

/*
 * Is there a buffer for a datagram, although others wait? A user has no more of them than are
 * left, and all answers have no more, either.
 */
static bool keel_conn_shares(struct keel_conn *conn, const struct keel_sender *from)
	__must_hold(&conn->lock)
{
	const struct keel_user *owner = keel_sender_owner(from);
	u32 i, held = 0;

	for (i = 0; owner && i < KEEL_LINK_DGRAMS; i++)
		held += conn->dgram_users[i] == owner;
	return owner ? !keel_quota_check(KEEL_LINK_DGRAMS, conn->dgrams, held, 1) :
		       conn->dgrams < KEEL_LINK_DGRAMS;
}

/*
 * Does a frame that waits in no queue get a buffer now? Nobody knows which users have datagrams
 * that wait for one: each of them leaves some to others, also if nothing else waits. Users cause
 * those of the kernel, too: if all datagrams have as many as they may have, it gets the reserved
 * ones, and no others.
 */
static enum keel_admission keel_link_admits(struct keel_link *link, struct keel_conn *conn,
					    const struct keel_sender *from, u32 room)
	__must_hold(&link->lock, &conn->lock)
{
	if (from->user ? room > KEEL_LINK_OPEN : keel_link_is_next(link, NULL, room))
		return KEEL_ADMITS_ALL;
	if (room && keel_conn_shares(conn, from))
		return KEEL_ADMITS_SHARE;
	if (from->kernel && conn->kernels < KEEL_LINK_RESERVED && keel_conn_has_kernel_room(conn))
		return KEEL_ADMITS_KERNEL;
	return KEEL_ADMITS_NONE;
}

/* A frame that waits in no queue has got a buffer. */
static void keel_conn_lend(struct keel_conn *conn, struct keel_buf *buf,
			   const struct keel_sender *from, enum keel_admission how)
	__must_hold(&conn->lock)
{
	const struct keel_user *owner = keel_sender_owner(from);
	u32 i;

	buf->dgram = true;
	buf->kernel = from->kernel;
	conn->kernels += from->kernel;
	buf->shared = how == KEEL_ADMITS_SHARE;
	conn->dgrams += buf->shared;
	/* There is one: the kernel has none of them. */
	for (i = 0; buf->shared && owner && i < KEEL_LINK_DGRAMS; i++)
		if (!conn->dgram_users[i]) {
			buf->dgram_user = &conn->dgram_users[i];
			*buf->dgram_user = owner;
			break;
		}
}

/* Is a chunk for the caller? Those that wait are woken for the next ones. */
static bool keel_link_has_chunk(struct keel_link *link, struct keel_conn *conn,
				const struct keel_link_wait *wait, u32 len)
	__must_hold(&link->lock, &conn->lock)
{
	u32 ready;

	if (len <= KEEL_FRAME_DATA)
		return true;
	ready = keel_chunks_ready(conn);
	if (wait && wait->woken && wait->chunk)
		return ready;
	/* As many are for everybody: see keel_link_wake(). */
	if (ready > KEEL_CHUNKS / 2)
		return true;
	return ready > link->nwoken_chunks && keel_turns_empty(&link->chunk_turns);
}

static struct keel_buf *keel_link_take(struct keel_link *link, struct keel_conn *conn,
				       struct keel_link_wait *wait, u32 len,
				       const struct keel_sender *from)
	__must_hold(&link->lock)
{
	enum keel_admission how = KEEL_ADMITS_NONE;
	struct keel_buf *buf;
	u32 room;

	guard(spinlock)(&conn->lock);
	room = keel_conn_room_locked(conn);
	if (!keel_link_has_chunk(link, conn, wait, len))
		return NULL;
	if (!wait)
		how = keel_link_admits(link, conn, from, room);
	if (wait ? !keel_link_is_next(link, wait, room) : !how)
		return NULL;
	buf = keel_conn_take(conn, len);
	if (buf && !wait)
		keel_conn_lend(conn, buf, from, how);
	return buf;
}

/* Wait behind all others of the user, unless it waits already. */
static void keel_link_enqueue(struct keel_link *link, struct keel_link_wait *wait, u32 len)
	__must_hold(&link->lock)
{
	bool first = !keel_link_is_awaited(link), chunk = len > KEEL_FRAME_DATA;

	if (first)
		link->moved = jiffies;
	/* It was woken, but somebody else was faster; or it needs something else now. */
	if (wait->woken || wait->chunk != chunk)
		keel_link_leave(link, wait);
	wait->chunk = chunk;
	if (!wait->waits)
		keel_turns_add(chunk ? &link->chunk_turns : &link->turns, wait);
	keel_link_waits(link, first);
}

/**
 * keel_link_has_chunks() - can a link carry more than KEEL_FRAME_DATA bytes in a frame?
 * @link: the link
 *
 * Context: any but interrupts.
 * Return: true if so.
 */
bool keel_link_has_chunks(struct keel_link *link)
{
	guard(spinlock)(&link->lock);
	if (!link->up)
		return false;
	guard(spinlock)(&link->up->lock);
	return keel_conn_has_chunks(link->up);
}

/**
 * keel_link_want_chunks() - let a link have chunks from now on
 * @link: the link
 *
 * Those of the other side come when that wants them, too.
 *
 * Context: any but interrupts.
 */
void keel_link_want_chunks(struct keel_link *link)
{
	guard(spinlock)(&link->lock);
	if (link->up && keel_conn_may_add_chunks(link->up))
		keel_link_event(link, KEEL_LINK_CHUNKS);
}

/* Is a connection useless for a frame? */
static bool keel_conn_is_short(struct keel_conn *conn, u32 len)
{
	if (len <= KEEL_FRAME_DATA)
		return false;
	guard(spinlock)(&conn->lock);
	return !keel_conn_has_chunks(conn);
}

/* As keel_link_tx(); @from: if @wait is NULL. */
static struct keel_buf *keel_link_get_buf(struct keel_link *link, struct keel_link_wait *wait,
					  u32 len, const struct keel_sender *from, u64 *epoch)
{
	struct keel_buf *buf = NULL;

	guard(spinlock)(&link->lock);
	*epoch = link->up ? link->epoch : 0;
	/* One of both sides has no chunks yet, or never. Both make some if one of them does. */
	if (link->up && keel_conn_is_short(link->up, len)) {
		*epoch = 0;
		if (keel_conn_may_add_chunks(link->up))
			keel_link_event(link, KEEL_LINK_CHUNKS);
	} else if (link->up) {
		buf = keel_link_take(link, link->up, wait, len, from);
	}
	if (!buf) {
		if (wait)
			keel_link_enqueue(link, wait, len);
		return NULL;
	}
	if (wait)
		keel_link_leave(link, wait);
	/* The caller may be slow, and the connection end meanwhile. */
	kref_get(&buf->conn->ref);
	WRITE_ONCE(link->used, jiffies);
	link->moved = jiffies;
	return buf;
}

/**
 * keel_link_tx() - get a buffer to send a frame
 * @link: the link
 * @wait: waits in turn if there is none now; &keel_wire_ops.wake wakes it; or NULL: do not
 *	wait
 * @len: bytes of data for it, at most KEEL_CHUNK_DATA
 * @epoch: gets &keel_link.epoch, or 0 if the link is down, or not able to carry so much
 *
 * Context: any but interrupts.
 * Return: the buffer, for keel_link_send() or keel_link_unsend(); or NULL.
 */
struct keel_buf *keel_link_tx(struct keel_link *link, struct keel_link_wait *wait, u32 len,
			      u64 *epoch)
{
	static const struct keel_sender nobody;

	return keel_link_get_buf(link, wait, len, &nobody, epoch);
}
EXPORT_SYMBOL_IF_KUNIT(keel_link_tx);

/**
 * keel_link_send() - send a frame
 * @buf: from keel_link_tx(), whose data is set
 * @frame: the header; &keel_frame.len and what belongs to the link is set here
 * @len: bytes of data, of those that keel_link_tx() was asked for
 *
 * The frame is lost if the connection ends before it arrives.
 *
 * Context: any but interrupts.
 */
void keel_link_send(struct keel_buf *buf, struct keel_frame *frame, u32 len)
{
	struct keel_conn *conn = buf->conn;
	u32 room = 0;

	scoped_guard(spinlock, &conn->lock) {
		/* keel_conn_destroy() destroys the QP after it was over. */
		if (conn->state == KEEL_CONN_UP &&
		    /* It is a buffer of this connection. */
		    context_unsafe(keel_conn_send(buf, frame, len)))
			room = keel_conn_room_locked(conn);
	}
	if (room)
		keel_link_wake(conn->link, room);
	keel_conn_put(conn);
}
EXPORT_SYMBOL_IF_KUNIT(keel_link_send);

/**
 * keel_link_unsend() - give a buffer back without sending
 * @buf: from keel_link_tx()
 *
 * Context: any but interrupts.
 */
void keel_link_unsend(struct keel_buf *buf)
{
	struct keel_conn *conn = buf->conn;

	scoped_guard(spinlock, &conn->lock) {
		/* It is a buffer of this connection. */
		context_unsafe(keel_chunk_give_back(buf));
		/* Likewise. */
		context_unsafe(keel_conn_give_back(buf));
		conn->credits++;
	}
	keel_link_wake(conn->link, keel_conn_room(conn));
	keel_conn_put(conn);
}
EXPORT_SYMBOL_IF_KUNIT(keel_link_unsend);

/* On PREEMPT_RT, spinlocks sleep. */
static void keel_link_stay(void)
{
	if (!IS_ENABLED(CONFIG_PREEMPT_RT))
		preempt_disable();
}

static void keel_link_relax(void)
{
	if (!IS_ENABLED(CONFIG_PREEMPT_RT))
		preempt_enable();
}

/* Return: false: there is no buffer for it. */
static bool keel_link_send_now(struct keel_link *link, struct keel_frame *frame,
			       const void *data, u32 len, const struct keel_sender *from)
{
	struct keel_buf *buf;
	u64 epoch;

	/* Others need the buffer: this thread is not preempted with it. */
	keel_link_stay();
	buf = keel_link_get_buf(link, NULL, len, from, &epoch);
	if (buf) {
		memcpy(buf->data, data, len);
		keel_link_send(buf, frame, len);
	}
	keel_link_relax();
	return buf;
}

/* May a datagram be kept? A user has no more places than are left to users. */
static bool keel_link_may_hold(struct keel_link *link, const struct keel_sender *from)
	__must_hold(&link->lock)
{
	struct keel_held *held;
	u32 users = 0, n = 0;

	if (link->dead || keel_link_is_open(link))
		return false;
	list_for_each_entry(held, &link->held, node) {
		users += !!held->from.user;
		n += held->from.user == from->user;
	}
	if (from->kernel)
		return n < KEEL_LINK_HELD;
	return !keel_quota_check(KEEL_LINK_HELD, users, n, 1);
}

/* Keep a datagram until the link is open. Return: as keel_link_datagram(). */
static int keel_link_hold(struct keel_link *link, const struct keel_frame *frame,
			  const void *data, u32 len, const struct keel_sender *from, gfp_t gfp)
{
	struct keel_held *held;
	int ret;

	/* It is open, and only has no buffer just now. */
	scoped_guard(spinlock, &link->lock)
		if (keel_link_is_open(link))
			return -EAGAIN;
	held = kmalloc(struct_size(held, data, len), gfp);
	if (!held)
		return -ENOMEM;
	held->frame = *frame;
	held->len = len;
	held->from = *from;
	memcpy(held->data, data, len);
	scoped_guard(spinlock, &link->lock) {
		/* It may be up by now. */
		ret = link->up ? -EAGAIN : -ENOLINK;
		if (keel_link_may_hold(link, from)) {
			list_add_tail(&held->node, &link->held);
			link->nheld++;
			keel_link_waits(link, false);
			return 0;
		}
	}
	kfree(held);
	return ret;
}

/**
 * keel_link_datagram() - send a datagram, keep it until the link has credits, or lose it
 * @link: the link
 * @frame: its header; &keel_frame.len and what belongs to the link is set here
 * @data: its data
 * @len: bytes of it
 * @user: it is one of a user, who is only compared; or NULL: of the kernel
 * @gfp: to keep a copy, if the link is not up yet, or no frame of the other host has come
 *
 * Context: as @gfp says; not in interrupts.
 * Return: 1 if it was sent, 0 if it is kept, -EAGAIN if the link is up and has no buffer now;
 * -ENOMEM or -ENOLINK if it is lost.
 */
int keel_link_datagram(struct keel_link *link, struct keel_frame *frame, const void *data,
		       u32 len, const struct keel_user *user, gfp_t gfp)
{
	const struct keel_sender from = { .kernel = !user, .user = user };
	int ret;

	if (keel_link_send_now(link, frame, data, len, &from))
		return 1;
	keel_point("link_hold");
	ret = keel_link_hold(link, frame, data, len, &from, gfp);
	/* It has become open meanwhile. Users try again themselves. */
	if (ret == -EAGAIN && !user && keel_link_send_now(link, frame, data, len, &from))
		return 1;
	return ret;
}
EXPORT_SYMBOL_IF_KUNIT(keel_link_datagram);

/* The first datagram that was kept and can be sent now; or NULL. */
static struct keel_held *keel_link_find_held(struct keel_link *link)
	__must_hold(&link->lock)
{
	struct keel_held *held;
	u32 room;

	/* Before its first frame, the other host may not use the connection yet. */
	if (!keel_link_is_open(link))
		return NULL;
	guard(spinlock)(&link->up->lock);
	room = keel_conn_room_locked(link->up);
	list_for_each_entry(held, &link->held, node)
		if (keel_link_admits(link, link->up, &held->from, room))
			return held;
	return NULL;
}

/* @all: also one that cannot be sent now. */
static struct keel_held *keel_link_take_held(struct keel_link *link, bool all)
{
	struct keel_held *held;

	guard(spinlock)(&link->lock);
	held = all ? list_first_entry_or_null(&link->held, struct keel_held, node) :
		     keel_link_find_held(link);
	if (!held)
		return NULL;
	list_del(&held->node);
	link->nheld--;
	return held;
}

static void keel_link_put_held(struct keel_link *link, struct keel_held *held)
{
	guard(spinlock)(&link->lock);
	list_add(&held->node, &link->held);
	link->nheld++;
	/* keel_link_wake() did not see it. */
	if (keel_link_find_held(link))
		keel_link_queue(link);
}

/**
 * keel_link_release_held() - send the datagrams that have waited for a link
 * @link: the link; a call of its work
 *
 * The side that has asked for the connection has only the credits of a guest at first, and others
 * may take those that follow. So some may have to wait: keel_link_wake() tells when there are more
 * credits.
 *
 * Context: may sleep.
 */
void keel_link_release_held(struct keel_link *link)
{
	struct keel_held *held;

	while ((held = keel_link_take_held(link, false))) {
		keel_point("link_taken");
		if (!keel_link_send_now(link, &held->frame, held->data, held->len, &held->from)) {
			keel_point("link_refused");
			/* Others were faster: keel_link_wake() tells when there is another one. */
			keel_link_put_held(link, held);
			break;
		}
		kfree(held);
	}
}
EXPORT_SYMBOL_IF_KUNIT(keel_link_release_held);

/**
 * keel_link_drop_held() - lose the datagrams that have waited for a link
 * @link: the link
 *
 * Context: any but interrupts.
 */
void keel_link_drop_held(struct keel_link *link)
{
	struct keel_held *held;

	while ((held = keel_link_take_held(link, true)))
		kfree(held);
}
EXPORT_SYMBOL_IF_KUNIT(keel_link_drop_held);

