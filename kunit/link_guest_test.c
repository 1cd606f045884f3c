// SPDX-License-Identifier: GPL-2.0
/*
 * Guests of links: which one has to go when there are many, and when. The connections have
 * no QP. The test calls the work of a link itself, because workqueues call no stubs.
 */
#include <kunit/static_stub.h>
#include <kunit/test.h>

#include "keel.h"
#include "keel_conn.h"

#define GUESTS		(KEEL_GUESTS_MAX + 8)
/* Those that have all guests that there may be, and two more. */
#define FULL_LINKS	(KEEL_GUESTS_MAX / KEEL_LINK_GUESTS)
#define LINKS		(FULL_LINKS + 2)
/* How long a guest stays, without and with a frame. */
#define GUEST_TIME	(2 * HZ)
#define CONFIRMED_TIME	(3 * HZ)
/* A link rests for half a minute at most. */
#define IDLE_TIME	(30 * HZ)
/* No guest goes because the test is slow. */
#define LATE		(600 * HZ)

/**
 * struct guests - what a test has
 * @kdev: stands for a device, which no link uses
 * @lower: the lower device of all connections
 * @link: the links, with a reference
 * @conn: connections that others have asked for, with a reference, in turn
 * @n: number of them
 * @begin: result of keel_conn_begin()
 * @accept: result of &keel_cm_ops.accept
 * @accepted: number of calls
 * @runs: number of calls of the work of links
 */
struct guests {
	struct keel_dev *kdev;
	struct keel_lower lower;
	struct keel_link *link[LINKS];
	struct keel_conn *conn[GUESTS];
	u32 n;
	int begin;
	int accept;
	u32 accepted;
	atomic_t runs;
};

static struct guests *guests;

static const struct keel_wire_ops guests_ops;

static int begin_stub(struct keel_conn *conn)
{
	return guests->begin;
}

static int accept_stub(struct keel_conn *conn)
{
	guests->accepted++;
	return guests->accept;
}

static const struct keel_cm_ops guests_cm = {
	.accept = accept_stub,
};

static void guests_work(struct work_struct *work)
{
	atomic_inc(&guests->runs);
	keel_link_put(container_of(work, struct keel_link, work));
}

static void guests_make_links(struct kunit *test)
{
	struct keel_ends ends = {};
	u32 i;

	for (i = 0; i < LINKS; i++) {
		ends.dgid.global.interface_id = cpu_to_be64(i);
		guests->link[i] = keel_link_alloc(guests->kdev, &ends, GFP_KERNEL);
		KUNIT_ASSERT_NOT_NULL(test, guests->link[i]);
	}
}

static struct keel_conn *guests_conn(struct kunit *test, struct keel_link *link)
{
	struct keel_conn *conn = keel_conn_new(link, &guests->lower);

	KUNIT_ASSERT_NOT_NULL(test, conn);
	kref_get(&conn->ref);
	guests->conn[guests->n++] = conn;
	return conn;
}

/* Another host asks for a connection. */
static struct keel_conn *guests_offer(struct kunit *test, struct keel_link *link)
{
	struct keel_conn *conn = guests_conn(test, link);

	guard(spinlock)(&link->lock);
	list_add_tail(&conn->node, &link->offers);
	link->noffers++;
	return conn;
}

/* Another host asks, and its connection is accepted or rejected. */
static struct keel_conn *guests_come(struct kunit *test, struct keel_link *link)
{
	struct keel_conn *conn = guests_offer(test, link);

	keel_guests_accept(link);
	conn->since += LATE;
	return conn;
}

/* Was the connection destroyed? */
static bool guest_is_gone(const struct keel_conn *conn)
{
	return kref_read(&conn->ref) == 1;
}

static bool guest_ends(const struct keel_conn *conn)
{
	return test_bit(KEEL_CONN_ENDED, &conn->events) ||
	       test_bit(KEEL_CONN_EVICTED, &conn->events);
}

/* The links have all guests that there may be, the oldest on the first link. */
static void guests_fill(struct kunit *test)
{
	u32 i;

	for (i = 0; i < KEEL_GUESTS_MAX; i++)
		guests_come(test, guests->link[i % FULL_LINKS]);
	for (i = 0; i < KEEL_GUESTS_MAX; i++)
		KUNIT_EXPECT_FALSE_MSG(test, guest_ends(guests->conn[i]), "guest %u", i);
}

/* Of the guests from @from on, those below @n were told to end, and no others. */
static void guests_end_up_to(struct kunit *test, u32 from, u32 n)
{
	u32 i;

	for (i = from; i < guests->n; i++)
		KUNIT_EXPECT_EQ_MSG(test, i < n, guest_ends(guests->conn[i]), "guest %u", i);
}

/* The device is removed: all guests go. */
static void guests_drop(struct kunit *test)
{
	struct keel_link *link;
	u32 i;

	keel_links_remove(guests->kdev);
	for (i = 0; i < LINKS; i++) {
		link = guests->link[i];
		keel_link_stop(link);
		while (!list_empty(&link->offers))
			keel_guests_accept(link);
		KUNIT_EXPECT_NULL(test, keel_guests_confirmed(link));
		KUNIT_EXPECT_EQ(test, 0, link->nguests);
	}
	for (i = 0; i < guests->n; i++) {
		KUNIT_EXPECT_TRUE_MSG(test, guest_is_gone(guests->conn[i]), "guest %u", i);
		keel_conn_put(guests->conn[i]);
	}
	guests->n = 0;
	for (i = 0; i < LINKS; i++) {
		flush_work(&guests->link[i]->work);
		KUNIT_EXPECT_EQ(test, 1, kref_read(&guests->link[i]->ref));
		keel_link_put(guests->link[i]);
	}
	KUNIT_EXPECT_EQ(test, 1, kref_read(&guests->lower.ref));
}

static int guests_init(struct kunit *test)
{
	guests = kunit_kzalloc(test, sizeof(*guests), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, guests);
	guests->kdev = kunit_kzalloc(test, sizeof(*guests->kdev), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, guests->kdev);
	kref_init(&guests->lower.ref);
	init_completion(&guests->lower.gone);
	guests->lower.cm = &guests_cm;
	keel_links_init(guests_work);
	guests_make_links(test);
	kunit_activate_static_stub(test, keel_conn_begin, begin_stub);
	return keel_links_start(&guests_ops);
}

/* Fails if guests that are gone still count. */
static void guests_exit(struct kunit *test)
{
	guests_drop(test);
	guests->lower.lost = false;
	guests->begin = 0;
	guests->accept = 0;
	guests_make_links(test);
	guests_fill(test);
	guests_drop(test);
	keel_links_stop();
}

/* One guest more than there may be makes the oldest one end, and no other. */
static void host_4_oldest(struct kunit *test)
{
	struct keel_link *more = guests->link[FULL_LINKS];

	guests_fill(test);
	KUNIT_EXPECT_EQ(test, KEEL_GUESTS_MAX, guests->accepted);
	guests_come(test, more);
	guests_end_up_to(test, 0, 1);
	KUNIT_EXPECT_FALSE(test, guest_is_gone(guests->conn[0]));
	KUNIT_EXPECT_NULL(test, keel_guests_confirmed(guests->link[0]));
	KUNIT_EXPECT_TRUE(test, guest_is_gone(guests->conn[0]));
	KUNIT_EXPECT_EQ(test, KEEL_LINK_GUESTS - 1, guests->link[0]->nguests);
	/* It counts no more since it was told to end: not twice. */
	guests_come(test, more);
	guests_end_up_to(test, 1, 2);
}

/* A guest that is confirmed does not give way, and does not count any more. */
static void host_4_confirmed_stays(struct kunit *test)
{
	struct keel_link *more = guests->link[FULL_LINKS];
	struct keel_conn *conn;

	guests_fill(test);
	conn = guests->conn[0];
	set_bit(KEEL_CONN_CONFIRMED, &conn->events);
	KUNIT_EXPECT_PTR_EQ(test, conn, keel_guests_confirmed(guests->link[0]));
	guests_come(test, more);
	guests_end_up_to(test, 0, 0);
	guests_come(test, more);
	KUNIT_EXPECT_FALSE(test, guest_ends(conn));
	guests_end_up_to(test, 1, 2);
	KUNIT_EXPECT_PTR_EQ(test, conn, keel_guests_confirmed(guests->link[0]));
}

/* A guest that is confirmed just before, or just after it had to give way, stays. */
static void host_4_confirmed_late(struct kunit *test)
{
	struct keel_link *more = guests->link[FULL_LINKS];
	struct keel_conn **conn = guests->conn;

	guests_fill(test);
	set_bit(KEEL_CONN_CONFIRMED, &conn[0]->events);
	guests_come(test, more);
	KUNIT_EXPECT_FALSE(test, guest_ends(conn[0]));
	KUNIT_EXPECT_TRUE(test, guest_ends(conn[1]));
	set_bit(KEEL_CONN_CONFIRMED, &conn[1]->events);
	KUNIT_EXPECT_PTR_EQ(test, conn[0], keel_guests_confirmed(guests->link[0]));
	KUNIT_EXPECT_PTR_EQ(test, conn[1], keel_guests_confirmed(guests->link[1]));
	KUNIT_EXPECT_FALSE(test, guest_is_gone(conn[0]));
	KUNIT_EXPECT_FALSE(test, guest_is_gone(conn[1]));
}

/* If this side needs the link of a guest that had to give way, it connects itself. */
static void host_4_evicted(struct kunit *test)
{
	struct keel_link *link = guests->link[0];

	guests_fill(test);
	guests_come(test, guests->link[FULL_LINKS]);
	link->users = 1;
	KUNIT_EXPECT_FALSE(test, test_bit(KEEL_LINK_WANTED, &link->events));
	KUNIT_EXPECT_NULL(test, keel_guests_confirmed(link));
	KUNIT_EXPECT_TRUE(test, guest_is_gone(guests->conn[0]));
	KUNIT_EXPECT_TRUE(test, test_bit(KEEL_LINK_WANTED, &link->events));
}

/* Older guests of a host end with the one that is used, and newer ones do not. */
static void host_4_older(struct kunit *test)
{
	struct keel_link *link = guests->link[0];
	struct keel_conn **conn = guests->conn;
	u32 i;

	for (i = 0; i < 4; i++)
		guests_come(test, link);
	keel_guests_send_older(link, conn[2]);
	KUNIT_EXPECT_TRUE(test, guest_is_gone(conn[0]));
	KUNIT_EXPECT_TRUE(test, guest_is_gone(conn[1]));
	KUNIT_EXPECT_FALSE(test, guest_is_gone(conn[2]));
	KUNIT_EXPECT_FALSE(test, guest_is_gone(conn[3]));
	KUNIT_EXPECT_EQ(test, 2, link->nguests);
}

/* Guests that were sent away count no more. */
static void host_4_sent_away(struct kunit *test)
{
	struct keel_link *more = guests->link[FULL_LINKS];
	u32 i;

	guests_fill(test);
	for (i = 0; i < KEEL_LINK_GUESTS; i++)
		keel_guest_send_away(guests->link[i], guests->conn[i]);
	for (i = 0; i < KEEL_LINK_GUESTS; i++) {
		KUNIT_EXPECT_TRUE(test, guest_is_gone(guests->conn[i]));
		guests_come(test, more);
	}
	guests_end_up_to(test, KEEL_LINK_GUESTS, 0);
	KUNIT_EXPECT_EQ(test, KEEL_LINK_GUESTS, more->nguests);
}

/* The fifth guest of a link sends the oldest one away that is not confirmed. */
static void host_4_fifth(struct kunit *test)
{
	struct keel_link *link = guests->link[0];
	struct keel_conn **conn = guests->conn;
	u32 i;

	for (i = 0; i < KEEL_LINK_GUESTS; i++)
		guests_come(test, link);
	KUNIT_EXPECT_EQ(test, KEEL_LINK_GUESTS, link->nguests);
	guests_come(test, link);
	KUNIT_EXPECT_TRUE(test, guest_is_gone(conn[0]));
	for (i = 1; i <= KEEL_LINK_GUESTS; i++)
		KUNIT_EXPECT_FALSE_MSG(test, guest_is_gone(conn[i]), "guest %u", i);
	KUNIT_EXPECT_EQ(test, KEEL_LINK_GUESTS, link->nguests);
	set_bit(KEEL_CONN_CONFIRMED, &conn[1]->events);
	guests_come(test, link);
	KUNIT_EXPECT_FALSE(test, guest_is_gone(conn[1]));
	KUNIT_EXPECT_TRUE(test, guest_is_gone(conn[2]));
	KUNIT_EXPECT_FALSE(test, guest_is_gone(conn[3]));
	KUNIT_EXPECT_FALSE(test, guest_is_gone(conn[5]));
}

/* If this side needs a link whose guests have to go, it connects itself. */
static void host_4_turns_round(struct kunit *test)
{
	struct keel_link *link = guests->link[0];
	u32 i;

	for (i = 0; i <= KEEL_LINK_GUESTS; i++)
		guests_come(test, link);
	/* Nobody uses the link. */
	KUNIT_EXPECT_FALSE(test, test_bit(KEEL_LINK_WANTED, &link->events));
	link->users = 1;
	/* It is connected. */
	link->conn = guests->conn[1];
	guests_come(test, link);
	KUNIT_EXPECT_FALSE(test, test_bit(KEEL_LINK_WANTED, &link->events));
	link->conn = NULL;
	guests_come(test, link);
	KUNIT_EXPECT_TRUE(test, test_bit(KEEL_LINK_WANTED, &link->events));
}

/* If all guests of a link are confirmed, a fifth one is rejected. */
static void host_4_all_confirmed(struct kunit *test)
{
	struct keel_link *link = guests->link[0];
	u32 i;

	link->users = 1;
	for (i = 0; i < KEEL_LINK_GUESTS; i++)
		set_bit(KEEL_CONN_CONFIRMED, &guests_come(test, link)->events);
	KUNIT_EXPECT_FALSE(test, test_bit(KEEL_LINK_WANTED, &link->events));
	KUNIT_EXPECT_TRUE(test, guest_is_gone(guests_come(test, link)));
	KUNIT_EXPECT_TRUE(test, test_bit(KEEL_LINK_WANTED, &link->events));
	for (i = 0; i < KEEL_LINK_GUESTS; i++)
		KUNIT_EXPECT_FALSE_MSG(test, guest_is_gone(guests->conn[i]), "guest %u", i);
	KUNIT_EXPECT_EQ(test, KEEL_LINK_GUESTS, guests->accepted);
}

/* When the only guest of a link ends, in jiffies. */
static unsigned long guest_end(struct keel_link *link)
{
	unsigned long now, next;

	do {
		now = jiffies;
		next = keel_guests_next(link, ULONG_MAX);
	} while (time_before(now, jiffies));
	return now + next;
}

/* A guest whose time is over is sent away. One that is confirmed has more time. */
static void host_4_time(struct kunit *test)
{
	struct keel_link *link = guests->link[0];
	struct keel_conn *conn = guests_come(test, link), *next;

	KUNIT_EXPECT_NULL(test, keel_guests_confirmed(link));
	KUNIT_EXPECT_EQ(test, conn->since + GUEST_TIME, guest_end(link));
	set_bit(KEEL_CONN_CONFIRMED, &conn->events);
	KUNIT_EXPECT_EQ(test, conn->since + CONFIRMED_TIME, guest_end(link));
	KUNIT_EXPECT_PTR_EQ(test, conn, keel_guests_confirmed(link));
	next = guests_come(test, link);
	next->since = jiffies - GUEST_TIME;
	KUNIT_EXPECT_PTR_EQ(test, conn, keel_guests_confirmed(link));
	KUNIT_EXPECT_TRUE(test, guest_is_gone(next));
	KUNIT_EXPECT_FALSE(test, guest_is_gone(conn));
	conn->since = jiffies - CONFIRMED_TIME;
	KUNIT_EXPECT_NULL(test, keel_guests_confirmed(link));
	KUNIT_EXPECT_TRUE(test, guest_is_gone(conn));
	KUNIT_EXPECT_EQ(test, ULONG_MAX, keel_guests_next(link, ULONG_MAX));
}

/* A link whose device is removed rejects all, and sends its guests away. */
static void host_4_dead(struct kunit *test)
{
	struct keel_link *link = guests->link[0];
	struct keel_conn *conn = guests_come(test, link);

	KUNIT_EXPECT_FALSE(test, guest_is_gone(conn));
	keel_link_stop(link);
	KUNIT_EXPECT_TRUE(test, guest_is_gone(guests_come(test, link)));
	KUNIT_EXPECT_EQ(test, 1, guests->accepted);
	KUNIT_EXPECT_FALSE(test, guest_is_gone(conn));
	KUNIT_EXPECT_NULL(test, keel_guests_confirmed(link));
	KUNIT_EXPECT_TRUE(test, guest_is_gone(conn));
	KUNIT_EXPECT_EQ(test, 0, link->nguests);
}

/* As host_4_dead(), for a lower device that is removed. */
static void host_4_lower_lost(struct kunit *test)
{
	struct keel_link *link = guests->link[0];
	struct keel_conn *conn = guests_come(test, link);

	guests->lower.lost = true;
	KUNIT_EXPECT_TRUE(test, guest_is_gone(guests_come(test, link)));
	KUNIT_EXPECT_EQ(test, 1, guests->accepted);
	KUNIT_EXPECT_NULL(test, keel_guests_confirmed(link));
	KUNIT_EXPECT_TRUE(test, guest_is_gone(conn));
}

/* A guest that gets no QP, or cannot be accepted, is none. */
static void host_4_not_accepted(struct kunit *test)
{
	struct keel_link *link = guests->link[0];

	guests->begin = -ENOMEM;
	KUNIT_EXPECT_TRUE(test, guest_is_gone(guests_come(test, link)));
	KUNIT_EXPECT_EQ(test, 0, guests->accepted);
	KUNIT_EXPECT_EQ(test, 0, link->nguests);
	guests->begin = 0;
	guests->accept = -EINVAL;
	KUNIT_EXPECT_TRUE(test, guest_is_gone(guests_come(test, link)));
	KUNIT_EXPECT_EQ(test, 1, guests->accepted);
	KUNIT_EXPECT_EQ(test, 0, link->nguests);
}

/* A link accepts some at a time, and has its other work done between them. */
static void host_4_at_a_time(struct kunit *test)
{
	struct keel_link *link = guests->link[0];
	u32 i;

	for (i = 0; i < KEEL_LINK_GUESTS + 2; i++)
		guests_offer(test, link);
	keel_guests_accept(link);
	flush_work(&link->work);
	KUNIT_EXPECT_EQ(test, KEEL_LINK_GUESTS, guests->accepted);
	KUNIT_EXPECT_EQ(test, 1, atomic_read(&guests->runs));
	keel_guests_accept(link);
	flush_work(&link->work);
	KUNIT_EXPECT_EQ(test, KEEL_LINK_GUESTS + 2, guests->accepted);
	KUNIT_EXPECT_EQ(test, 1, atomic_read(&guests->runs));
}

/* Call the work of a link. */
static void guests_run(struct keel_link *link)
{
	kref_get(&link->ref);
	keel_link_work(&link->work);
}

static bool guests_has(struct keel_link *link)
{
	struct keel_link *found = keel_link_lookup(guests->kdev, &link->ends);

	if (found)
		keel_link_put(found);
	return found == link;
}

/* A link in the table with a connection, which is up. */
static struct keel_conn *guests_connect(struct kunit *test, struct keel_link *link)
{
	struct keel_conn *conn = guests_conn(test, link);

	KUNIT_ASSERT_PTR_EQ(test, link, keel_link_get(link));
	keel_link_put(link);
	KUNIT_EXPECT_TRUE(test, keel_conn_up(conn));
	link->conn = conn;
	guard(spinlock)(&link->lock);
	link->up = conn;
	return conn;
}

/* A guest keeps neither a connection that nobody uses, nor, once it is gone, the link. */
static void host_4_idle(struct kunit *test)
{
	struct keel_link *link = guests->link[0];
	struct keel_conn *conn = guests_connect(test, link), *guest;

	guest = guests_come(test, link);
	/* It was used, or somebody may use it. */
	link->used = jiffies + LATE;
	guests_run(link);
	KUNIT_EXPECT_PTR_EQ(test, conn, link->conn);
	link->used = jiffies - IDLE_TIME;
	link->users = 1;
	guests_run(link);
	KUNIT_EXPECT_PTR_EQ(test, conn, link->conn);
	link->users = 0;
	guests_run(link);
	KUNIT_EXPECT_NULL(test, link->conn);
	KUNIT_EXPECT_TRUE(test, guest_is_gone(conn));
	/* The guest may be confirmed yet. */
	KUNIT_EXPECT_FALSE(test, guest_is_gone(guest));
	KUNIT_EXPECT_TRUE(test, guests_has(link));
	guest->since = jiffies - GUEST_TIME;
	guests_run(link);
	KUNIT_EXPECT_TRUE(test, guest_is_gone(guest));
	KUNIT_EXPECT_FALSE(test, guests_has(link));
}

static struct kunit_case guest_cases[] = {
	KUNIT_CASE(host_4_oldest),
	KUNIT_CASE(host_4_confirmed_stays),
	KUNIT_CASE(host_4_confirmed_late),
	KUNIT_CASE(host_4_evicted),
	KUNIT_CASE(host_4_older),
	KUNIT_CASE(host_4_sent_away),
	KUNIT_CASE(host_4_fifth),
	KUNIT_CASE(host_4_turns_round),
	KUNIT_CASE(host_4_all_confirmed),
	KUNIT_CASE(host_4_time),
	KUNIT_CASE(host_4_dead),
	KUNIT_CASE(host_4_lower_lost),
	KUNIT_CASE(host_4_not_accepted),
	KUNIT_CASE(host_4_at_a_time),
	KUNIT_CASE(host_4_idle),
	{}
};

static struct kunit_suite guest_suite = {
	.name = "keel_link_guest",
	.init = guests_init,
	.exit = guests_exit,
	.test_cases = guest_cases,
};
kunit_test_suite(guest_suite);
