// SPDX-License-Identifier: GPL-2.0
/*
 * The part of the establishment of connections that is the same for each kind of lower device:
 * the hello that two hosts send each other, and the way of a request to its link.
 */
#include <kunit/visibility.h>
#include <linux/err.h>

#include "keel_conn.h"

/**
 * keel_hello_set() - what this host tells the other one
 * @hello: is set
 * @conn: the connection
 * @credits: number of messages that the other host may send at first, KEEL_LINK_RECVS at most
 *
 * Context: may sleep.
 */
void keel_hello_set(struct keel_hello *hello, struct keel_conn *conn, u32 credits)
{
	*hello = (struct keel_hello){
		.magic = cpu_to_le32(KEEL_HELLO_MAGIC),
		.version = cpu_to_le16(KEEL_FRAME_VERSION),
		.credits = cpu_to_le16(credits),
		.cookie = conn->cookie,
	};
	conn->untold = KEEL_LINK_RECVS - credits;
}
EXPORT_SYMBOL_IF_KUNIT(keel_hello_set);

/**
 * keel_hello_is_known() - does the other host speak this version?
 * @hello: what it has sent
 *
 * Context: any.
 * Return: true if so.
 */
bool keel_hello_is_known(const struct keel_hello *hello)
{
	return hello->magic == cpu_to_le32(KEEL_HELLO_MAGIC) &&
	       hello->version == cpu_to_le16(KEEL_FRAME_VERSION);
}
EXPORT_SYMBOL_IF_KUNIT(keel_hello_is_known);

/**
 * keel_request_new() - make the connection that another host asks for
 * @lower: the device that carries it
 * @ends: the ends of its link
 * @netdev: the netdev of @lower
 * @hello: what the other host has sent
 *
 * Context: may sleep; between keel_request_begin() and keel_request_end().
 * Return: the connection, for keel_request_offer(); or an error pointer.
 */
struct keel_conn *keel_request_new(struct keel_lower *lower, const struct keel_ends *ends,
				   struct net_device *netdev, const struct keel_hello *hello)
{
	struct keel_conn *conn;
	struct keel_link *link;

	if (!keel_hello_is_known(hello))
		return ERR_PTR(-EINVAL);
	link = keel_home_link(ends, netdev);
	if (!link)
		return ERR_PTR(-ENODEV);
	conn = keel_conn_new(link, lower);
	if (conn)
		conn->hello = *hello;
	else
		/* If nobody uses the link, its work takes it away. */
		keel_link_queue(link);
	keel_link_put(link);
	return conn ?: ERR_PTR(-ENOMEM);
}

/* Return: false if the link cannot have the connection. */
static bool keel_request_pass(struct keel_link *link, struct keel_conn *conn)
{
	guard(spinlock)(&link->lock);
	if (link->dead || link->noffers == KEEL_LINK_GUESTS)
		return false;
	list_add_tail(&conn->node, &link->offers);
	link->noffers++;
	/* The work has the connection from here on, but not before the lock is free. */
	keel_link_queue(link);
	return true;
}

/**
 * keel_request_offer() - pass a connection on to the work of its link
 * @conn: the connection, with its ID of the CM
 *
 * Context: may sleep.
 * Return: 0, and the work of the link calls keel_request_end(); or -EBUSY: the connection is
 * destroyed, but not its ID, and the caller does it.
 */
int keel_request_offer(struct keel_conn *conn)
{
	conn->request = true;
	if (keel_request_pass(conn->link, conn))
		return 0;
	/* The caller ends these. */
	conn->request = false;
	conn->id = NULL;
	conn->iw = NULL;
	/* Also without a connection: if nobody uses the link, its work takes it away. */
	keel_link_queue(conn->link);
	keel_conn_destroy(conn);
	return -EBUSY;
}
