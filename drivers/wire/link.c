// SPDX-License-Identifier: GPL-2.0
/*
 * The work of a link: connects, accepts, and ends connections. One step after the other,
 * so that nothing here needs a lock against itself.
 *
 *	        wanted             resolved          replied
 *	down ----------> resolving --------> asking ----------> up --+
 *	  ^                                                    ^     |
 *	  |  guest: requested --> accepted --- confirmed ------+     |
 *	  |                                                          |
 *	  +----- any failure, no answer to ASK, nobody uses it ------+
 */
#include <kunit/visibility.h>
#include <linux/string.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_addr.h>

#include "keel.h"
#include "keel_trace.h"
#include "keel_conn.h"
#include "keel_point.h"

/* How long the resolution of an address, and an answer to ASK, may take. */
#define KEEL_RESOLVE_MS		2000
#define KEEL_ASK_TIME		(2 * HZ)
/* When, and how often, the first ASK is repeated over iWARP. */
#define KEEL_ASK_REPEAT		(HZ / 10 ?: 1)
#define KEEL_ASK_REPEATS	(KEEL_LINK_SPARE - 1)
/* How long it may take until a connection is up. */
#define KEEL_CONNECT_TIME	(5 * HZ)
/* How long those that wait for a link that is up get no credit. */
#define KEEL_STUCK_TIME		(5 * HZ)
/* How many attempts that fail soon follow each other without a pause. */
#define KEEL_CONNECT_TRIES	3
/* Longest time between two attempts to connect; the first is twice KEEL_BACKOFF_MIN. */
#define KEEL_BACKOFF_MAX	(8 * HZ)

/* End the connection. */
static void keel_link_disconnect(struct keel_link *link)
{
	struct keel_conn *conn = link->conn;

	link->conn = NULL;
	scoped_guard(spinlock, &link->lock) {
		if (link->up == conn) {
			WRITE_ONCE(link->up, NULL);
			WRITE_ONCE(link->busy, false);
		}
		link->asked = 0;
	}
	keel_conn_destroy(conn);
}

/* While a link has a connection, its device exists. */
static void keel_link_trace(const struct keel_link *link, const char *what)
{
	trace_keel_link(link->kdev->reg.name, &link->ends.sgid, &link->ends.dgid, what);
}

/* The connection is over, or failed. */
static void keel_link_drop(struct keel_link *link, const char *why)
{
	keel_link_trace(link, why);
	keel_link_disconnect(link);
	if (!link->hurry)
		keel_link_drop_held(link);
	/* It may be an hour until the next message: only those that wait need it now. */
	if (link->hurry || keel_link_has_waiters(link))
		keel_link_event(link, KEEL_LINK_WANTED);
}

static void keel_link_up(struct keel_link *link)
{
	struct keel_conn *conn = link->conn;

	scoped_guard(spinlock, &link->lock) {
		/* The other side may send at once, and an answer to a datagram does not wait. */
		if (!keel_conn_up(conn))
			return;
		WRITE_ONCE(link->up, conn);
		WRITE_ONCE(link->busy, conn->busy);
		/* Those that wait are woken. keel_link_waits() sets it under the lock. */
		clear_bit(KEEL_LINK_WANTED, &link->events);
		keel_link_unchunk(link);
		link->epoch++;
		link->asked = 0;
		WRITE_ONCE(link->used, jiffies);
		link->moved = jiffies;
	}
	/* The other side told of its chunks when it was a guest. */
	if (keel_conn_is_told(conn))
		set_bit(KEEL_LINK_CHUNKS, &link->events);
	keel_link_trace(link, "connected");
	link->backoff = KEEL_BACKOFF_MIN;
	link->tries = 0;
	/* The first frame confirms the connection. */
	if (conn->active)
		set_bit(KEEL_LINK_DOUBTED, &link->events);
}

static bool keel_link_is_up(struct keel_link *link)
{
	guard(spinlock)(&link->lock);
	return link->up;
}

/* A guest is confirmed: is it used, rather than the connection that there is? */
static bool keel_link_yields(struct keel_link *link)
{
	if (!link->conn)
		return true;
	/* Both sides have asked: that of the lower GID is used. */
	if (!link->conn->active ||
	    memcmp(&link->ends.sgid, &link->ends.dgid, sizeof(link->ends.sgid)) > 0)
		return true;
	/* Unless the other side has lost it. */
	if (keel_link_is_up(link))
		set_bit(KEEL_LINK_DOUBTED, &link->events);
	return false;
}

/* A guest becomes the connection. */
static void keel_link_adopt(struct keel_link *link, struct keel_conn *conn)
{
	/* The other host has given up those that it asked for before. */
	keel_guests_send_older(link, conn);
	keel_guest_dismiss(link, conn);
	if (link->conn)
		keel_link_disconnect(link);
	link->conn = conn;
	conn->since = jiffies;
	if (conn->request)
		keel_request_end(conn->lower);
	conn->request = false;
	if (keel_conn_fill(conn))
		keel_link_drop(link, "no memory");
	else
		keel_link_up(link);
}

static void keel_link_see_guests(struct keel_link *link)
{
	struct keel_conn *conn = keel_guests_confirmed(link);

	if (conn && keel_link_yields(link))
		keel_link_adopt(link, conn);
}

static bool keel_link_is_stuck(struct keel_link *link)
	__must_hold(&link->lock)
{
	if (!link->up)
		return false;
	if (!keel_turns_empty(&link->chunk_turns) &&
	    keel_conn_chunks_stuck(link->up, KEEL_STUCK_TIME))
		return true;
	if (keel_turns_empty(&link->turns) && keel_turns_empty(&link->chunk_turns))
		return false;
	return !keel_conn_room(link->up) &&
	       time_after_eq(jiffies, link->moved + KEEL_STUCK_TIME);
}

/* Has the connection of a link to end? Return: why, or NULL. */
static const char *keel_link_over(struct keel_link *link)
{
	if (keel_link_is_dead(link))
		return "the link is removed";
	if (READ_ONCE(link->conn->lower->lost))
		return "the lower device is removed";
	if (test_bit(KEEL_CONN_ENDED, &link->conn->events))
		return "it failed, or was refused";
	guard(spinlock)(&link->lock);
	/* ib_cm waits as long as the other side wants, and siw for two minutes. */
	if (!link->up && time_after_eq(jiffies, link->conn->since + KEEL_CONNECT_TIME))
		return "nobody has accepted it";
	if (keel_link_is_stuck(link))
		return "the other host gives no credits";
	if (link->asked && time_after_eq(jiffies, link->asked + KEEL_ASK_TIME))
		return "the other host does not answer";
	return NULL;
}

/*
 * A rejection may be forged: if an attempt has failed soon, another one is made at once, a
 * few times.
 */
static void keel_link_hurry(struct keel_link *link)
{
	if (keel_link_is_up(link) || !link->conn->active || link->tries == KEEL_CONNECT_TRIES ||
	    !test_bit(KEEL_CONN_ENDED, &link->conn->events))
		return;
	link->tries++;
	link->hurry = true;
	link->retry = jiffies;
}

/* Proceed with the connection. */
static void keel_link_proceed(struct keel_link *link)
{
	struct keel_conn *conn = link->conn;
	const char *why;

	if (!conn)
		return;
	why = keel_link_over(link);
	if (why) {
		keel_link_hurry(link);
		keel_link_drop(link, why);
		return;
	}
	if (keel_link_is_up(link))
		return;
	/* Pairs with keel_conn_event(): &keel_conn.hello was set before. */
	if (!test_bit_acquire(KEEL_CONN_REPLIED, &conn->events))
		return;
	if (conn->lower->cm->replied(conn)) {
		keel_link_drop(link, "the other host speaks another version, or no memory");
		return;
	}
	keel_link_up(link);
}

/* A QP has, or expects, long packets. Connections that need no chunks have none. */
static void keel_link_add_chunks(struct keel_link *link)
{
	if (!test_bit(KEEL_LINK_CHUNKS, &link->events) || !keel_link_is_up(link))
		return;
	clear_bit(KEEL_LINK_CHUNKS, &link->events);
	keel_conn_add_chunks(link->conn);
}

/* Ask the other side whether it is still there. keel_link_over() sees if it is not. */
static void keel_link_ask(struct keel_link *link)
{
	if (!test_bit(KEEL_LINK_DOUBTED, &link->events))
		return;
	clear_bit(KEEL_LINK_DOUBTED, &link->events);
	scoped_guard(spinlock, &link->lock) {
		if (!link->up || link->asked)
			return;
		link->asked = jiffies ?: 1;
	}
	/* If it cannot be sent now, frames of the other side are on their way, or lost. */
	keel_conn_tell(link->conn, KEEL_FRAME_ASK);
}

/*
 * siw may leave the first frame of a connection unread until another one comes:
 * siw_accept() answers before it lets the QP read. So the side that has asked for the
 * connection repeats its first KEEL_FRAME_ASK. The guest has a buffer for each.
 */
static bool keel_link_repeats(struct keel_link *link)
	__must_hold(&link->lock)
{
	const struct keel_conn *conn = link->up;

	return conn && link->asked && conn->active && conn->lower->cm->by_netdev &&
	       conn->repeats < KEEL_ASK_REPEATS;
}

static void keel_link_repeat(struct keel_link *link)
{
	scoped_guard(spinlock, &link->lock) {
		if (!keel_link_repeats(link) ||
		    time_before(jiffies, link->asked +
					 (link->up->repeats + 1) * KEEL_ASK_REPEAT))
			return;
		link->up->repeats++;
	}
	keel_conn_tell(link->conn, KEEL_FRAME_ASK);
}

/* Callback of rdma_resolve_ip(); keel_link_unresolve() waits for it. */
static void keel_link_resolved(int status, struct sockaddr *src, struct rdma_dev_addr *addr,
			       void *context)
{
	struct keel_link *link = context;

	link->resolved = status;
	keel_link_event(link, KEEL_LINK_RESOLVED);
}

static void keel_link_unresolve(struct keel_link *link)
{
	rdma_addr_cancel(&link->addr);
	clear_bit(KEEL_LINK_RESOLVED, &link->events);
	if (link->attr)
		rdma_put_gid_attr(link->attr);
	link->attr = NULL;
	keel_lower_put(link->lower);
	link->lower = NULL;
}

/* The address is known: ask for a connection. */
static int keel_link_call(struct keel_link *link)
{
	int ret;

	link->conn = keel_conn_new(link, link->lower);
	if (!link->conn)
		return -ENOMEM;
	ret = keel_conn_begin(link->conn);
	ret = ret ?: link->lower->cm->connect(link->conn, link->attr, &link->addr);
	if (ret)
		keel_link_drop(link, "the lower device refuses to connect");
	return ret;
}

static void keel_link_resolve_end(struct keel_link *link)
{
	if (!link->lower)
		return;
	if (!keel_link_is_dead(link) && !READ_ONCE(link->lower->lost)) {
		/* Pairs with keel_link_event(): &keel_link.resolved was set before. */
		if (!test_bit_acquire(KEEL_LINK_RESOLVED, &link->events))
			return;
		/* The other side may have connected meanwhile. */
		if (!link->resolved && !link->conn)
			keel_link_call(link);
	}
	keel_link_unresolve(link);
	if (!link->conn)
		keel_link_drop_held(link);
	if (!link->conn && keel_link_has_waiters(link))
		keel_link_event(link, KEEL_LINK_WANTED);
}

static void keel_link_resolve(struct keel_link *link)
{
	union {
		struct sockaddr addr;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
	} src, dst;

	link->lower = keel_lower_find(&link->ends, &link->attr);
	if (!link->lower)
		return;
	rdma_gid2ip(&src.addr, &link->ends.sgid);
	rdma_gid2ip(&dst.addr, &link->ends.dgid);
	memset(&link->addr, 0, sizeof(link->addr));
	/* The netdev of a GID replaces these. Without one, there are no other namespaces. */
	link->addr.net = &init_net;
	link->addr.bound_dev_if = link->ends.netdev;
	link->addr.sgid_attr = link->attr;
	if (rdma_resolve_ip(&src.addr, &dst.addr, &link->addr, KEEL_RESOLVE_MS,
			    keel_link_resolved, link->attr, link))
		keel_link_unresolve(link);
}

static void keel_link_connect(struct keel_link *link)
{
	if (link->conn || link->lower || keel_link_is_dead(link) ||
	    !test_bit(KEEL_LINK_WANTED, &link->events))
		return;
	if (time_before(jiffies, link->retry))
		return;
	clear_bit(KEEL_LINK_WANTED, &link->events);
	if (!link->hurry) {
		/* Those that follow a pause may hurry again, and the next pause is longer. */
		link->tries = 0;
		link->backoff = min(2 * link->backoff, (unsigned long)KEEL_BACKOFF_MAX);
	}
	link->hurry = false;
	link->retry = jiffies + link->backoff;
	keel_link_resolve(link);
	if (!link->lower)
		keel_link_drop_held(link);
	/* If nothing is under way now, those that wait ask again. */
	if (!link->lower && keel_link_has_waiters(link))
		set_bit(KEEL_LINK_WANTED, &link->events);
}

/* It had to give way to another link. */
static void keel_link_leaves(struct keel_link *link)
{
	if (!test_bit(KEEL_LINK_OUSTED, &link->events))
		return;
	/* It is set once. */
	clear_bit(KEEL_LINK_OUSTED, &link->events);
	keel_link_stop(link);
}

/* End a connection that nobody uses. Guests do not keep it. */
static void keel_link_rest(struct keel_link *link)
{
	if (link->lower || (keel_link_rests(link, link->conn) && !keel_link_is_dead(link)))
		return;
	if (link->conn)
		keel_link_drop(link, "nobody uses it");
	if (!link->nguests)
		keel_link_forget(link);
}

/* Some that were woken may have ended, or may be stopped: then the next ones are woken here. */
static bool keel_link_wakes(struct keel_link *link)
{
	if (!keel_link_is_up(link) || !keel_link_has_waiters(link))
		return false;
	if (time_after_eq(jiffies, link->expire)) {
		keel_link_expire(link);
		link->expire = jiffies + KEEL_WAKE_TIME;
	}
	keel_link_wake_waiters(link, keel_conn_room(link->conn));
	return true;
}

/* When is there something to do next? */
static void keel_link_plan(struct keel_link *link)
{
	unsigned long next = keel_link_rests(link, link->conn);

	/* It is over only now, unless something is under way that runs the work when it ends. */
	if (!next)
		next = link->lower || link->nguests ? ULONG_MAX : 1;
	if (link->conn && !keel_link_is_up(link))
		next = keel_link_sooner(next, link->conn->since + KEEL_CONNECT_TIME);
	next = keel_guests_next(link, next);
	if (keel_link_wakes(link))
		next = min(next, (unsigned long)KEEL_WAKE_TIME);
	if (test_bit(KEEL_LINK_WANTED, &link->events) && !link->conn && !link->lower)
		next = keel_link_sooner(next, link->retry);
	scoped_guard(spinlock, &link->lock)
		if (link->asked) {
			next = keel_link_sooner(next, link->asked + KEEL_ASK_TIME);
			if (keel_link_repeats(link))
				next = min(next, (unsigned long)KEEL_ASK_REPEAT);
		}
	if (next != ULONG_MAX)
		keel_link_later(link, max(next, 1UL));
}

/**
 * keel_link_work() - &keel_link.work
 * @work: of the link; it has a reference, which ends here
 */
void keel_link_work(struct work_struct *work)
{
	struct keel_link *link = container_of(work, struct keel_link, work);

	keel_link_leaves(link);
	keel_link_proceed(link);
	/* Before there are others, for which one of them might have to go. */
	keel_link_see_guests(link);
	keel_link_release_held(link);
	keel_link_add_chunks(link);
	keel_link_ask(link);
	keel_link_repeat(link);
	keel_guests_accept(link);
	keel_link_resolve_end(link);
	keel_link_connect(link);
	if (keel_link_is_dead(link))
		keel_link_drop_held(link);
	keel_link_rest(link);
	keel_point("link_rested");
	keel_link_plan(link);
	keel_link_put(link);
}
EXPORT_SYMBOL_IF_KUNIT(keel_link_work);
