// SPDX-License-Identifier: GPL-2.0
/*
 * Guests: connections that another host has asked for. Anybody can forge such a request.
 * So a guest holds up nothing until a frame came over it, which confirms it: only its
 * other end can send one. An honest host does so at once, so that old guests may give way.
 */
#include <kunit/visibility.h>

#include "keel_conn.h"

/* How long a connection may be a guest without a frame, and after the first one. */
#define KEEL_GUEST_TIME		(2 * HZ)
#define KEEL_CONFIRMED_TIME	(3 * HZ)

/* The guests of all links that are not confirmed, the oldest first. */
static LIST_HEAD(keel_guests);
static DEFINE_SPINLOCK(keel_guests_lock);
static u32 keel_guests_n __guarded_by(&keel_guests_lock);

static void keel_guest_uncount(struct keel_conn *conn)
	__must_hold(&keel_guests_lock)
{
	if (list_empty(&conn->guest))
		return;
	list_del_init(&conn->guest);
	keel_guests_n--;
}

/* Requests in the name of many hosts must not keep out others: the oldest guest goes. */
static void keel_guest_count(struct keel_conn *conn)
{
	struct keel_conn *old;

	guard(spinlock)(&keel_guests_lock);
	list_add_tail(&conn->guest, &keel_guests);
	if (++keel_guests_n <= KEEL_GUESTS_MAX)
		return;
	list_for_each_entry(old, &keel_guests, guest) {
		/* The work of its link has not seen this yet. */
		if (test_bit(KEEL_CONN_CONFIRMED, &old->events))
			continue;
		keel_guest_uncount(old);
		/* It exists: keel_guest_dismiss() takes the lock first. Its link does the rest. */
		keel_conn_event(old, KEEL_CONN_EVICTED);
		return;
	}
}

/**
 * keel_guest_dismiss() - let a connection be a guest no more
 * @link: the link
 * @conn: the connection
 *
 * Context: work of the link.
 */
void keel_guest_dismiss(struct keel_link *link, struct keel_conn *conn)
{
	list_del_init(&conn->node);
	link->nguests--;
	guard(spinlock)(&keel_guests_lock);
	keel_guest_uncount(conn);
}

/**
 * keel_guest_send_away() - end a guest
 * @link: the link
 * @conn: the guest
 *
 * Context: may sleep; work of the link.
 */
void keel_guest_send_away(struct keel_link *link, struct keel_conn *conn)
{
	keel_guest_dismiss(link, conn);
	keel_conn_destroy(conn);
}
EXPORT_SYMBOL_IF_KUNIT(keel_guest_send_away);

/* The first connection that the other side has asked for, or NULL. */
static struct keel_conn *keel_guest_next(struct keel_link *link)
{
	struct keel_conn *conn;

	guard(spinlock)(&link->lock);
	conn = list_first_entry_or_null(&link->offers, struct keel_conn, node);
	if (conn) {
		list_del_init(&conn->node);
		link->noffers--;
	}
	return conn;
}

/*
 * A connection of the other side cannot be had: connect to it, if this side needs it. Else
 * forged requests could keep both from being connected.
 */
static void keel_guest_turn_round(struct keel_link *link)
{
	if (!link->conn && keel_link_is_used(link))
		set_bit(KEEL_LINK_WANTED, &link->events);
}

/* Make room for a guest. Return: false if all are confirmed. */
static bool keel_guest_room(struct keel_link *link)
{
	struct keel_conn *conn;

	if (link->nguests < KEEL_LINK_GUESTS)
		return true;
	list_for_each_entry(conn, &link->guests, node) {
		if (test_bit(KEEL_CONN_CONFIRMED, &conn->events))
			continue;
		keel_guest_send_away(link, conn);
		keel_guest_turn_round(link);
		return true;
	}
	return false;
}

static void keel_guest_accept(struct keel_link *link, struct keel_conn *conn)
{
	if (keel_link_is_dead(link) || READ_ONCE(conn->lower->lost) || !keel_guest_room(link)) {
		/* This rejects it. */
		keel_conn_destroy(conn);
		keel_guest_turn_round(link);
		return;
	}
	conn->since = jiffies;
	list_add_tail(&conn->node, &link->guests);
	link->nguests++;
	keel_guest_count(conn);
	if (keel_conn_begin(conn) || conn->lower->cm->accept(conn))
		keel_guest_send_away(link, conn);
}

/**
 * keel_guests_accept() - accept connections that the other side has asked for
 * @link: the link
 *
 * Some at a time: others may ask without end, and the link has other work.
 *
 * Context: may sleep; work of the link.
 */
void keel_guests_accept(struct keel_link *link)
{
	struct keel_conn *conn;
	int i;

	for (i = 0; i < KEEL_LINK_GUESTS; i++) {
		conn = keel_guest_next(link);
		if (!conn)
			return;
		keel_guest_accept(link, conn);
	}
	/* There may be more. */
	keel_link_queue(link);
}
EXPORT_SYMBOL_IF_KUNIT(keel_guests_accept);

static unsigned long keel_guest_end(const struct keel_conn *conn)
{
	return conn->since + (test_bit(KEEL_CONN_CONFIRMED, &conn->events) ?
			      KEEL_CONFIRMED_TIME : KEEL_GUEST_TIME);
}

static bool keel_guest_is_over(struct keel_link *link, const struct keel_conn *conn)
{
	if (test_bit(KEEL_CONN_EVICTED, &conn->events) &&
	    !test_bit(KEEL_CONN_CONFIRMED, &conn->events))
		return true;
	return test_bit(KEEL_CONN_ENDED, &conn->events) || READ_ONCE(conn->lower->lost) ||
	       keel_link_is_dead(link) || time_after_eq(jiffies, keel_guest_end(conn));
}

/**
 * keel_guests_confirmed() - find a guest that is confirmed, and send others away in time
 * @link: the link
 *
 * Context: may sleep; work of the link.
 * Return: the guest, or NULL.
 */
struct keel_conn *keel_guests_confirmed(struct keel_link *link)
{
	struct keel_conn *conn, *next, *found = NULL;

	list_for_each_entry_safe(conn, next, &link->guests, node) {
		if (keel_guest_is_over(link, conn)) {
			keel_guest_send_away(link, conn);
			keel_guest_turn_round(link);
			continue;
		}
		if (!test_bit(KEEL_CONN_CONFIRMED, &conn->events))
			continue;
		/* It needs not give way any more, and has some time to be adopted. */
		if (!conn->confirmed)
			conn->since = jiffies;
		conn->confirmed = true;
		scoped_guard(spinlock, &keel_guests_lock)
			keel_guest_uncount(conn);
		found = conn;
	}
	return found;
}
EXPORT_SYMBOL_IF_KUNIT(keel_guests_confirmed);

/**
 * keel_guests_send_older() - end the guests that were accepted before one
 * @link: the link
 * @conn: the guest
 *
 * Context: may sleep; work of the link.
 */
void keel_guests_send_older(struct keel_link *link, const struct keel_conn *conn)
{
	struct keel_conn *old, *next;

	list_for_each_entry_safe(old, next, &link->guests, node) {
		if (old == conn)
			return;
		keel_guest_send_away(link, old);
	}
}
EXPORT_SYMBOL_IF_KUNIT(keel_guests_send_older);

/**
 * keel_guests_next() - when a guest ends if nothing happens
 * @link: the link
 * @next: when the link has something to do, in jiffies from now
 *
 * Context: work of the link.
 * Return: the earlier one, in jiffies from now.
 */
unsigned long keel_guests_next(struct keel_link *link, unsigned long next)
{
	struct keel_conn *conn;

	list_for_each_entry(conn, &link->guests, node)
		next = keel_link_sooner(next, keel_guest_end(conn));
	return next;
}
EXPORT_SYMBOL_IF_KUNIT(keel_guests_next);
