// SPDX-License-Identifier: GPL-2.0
/*
 * How a link, and a connection, knows that many packets are under way.
 */
#include <kunit/static_stub.h>
#include <kunit/test.h>
#include <linux/jiffies.h>

#include "keel_conn.h"

/* Frames that tell so until the connection is busy. */
#define HIGH		8

/* No time passes but by load_age(). */
static u64 slot_stub(void)
{
	return 10000;
}

static struct keel_load *load_new(struct kunit *test)
{
	struct keel_load *load = kunit_kzalloc(test, sizeof(*load), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, load);
	spin_lock_init(&load->lock);
	kunit_activate_static_stub(test, keel_load_slot, slot_stub);
	return load;
}

/* The load, and what was told of it, is so many slots older. */
static void load_age(struct keel_load *load, struct keel_load_part *parts, u32 n, u32 slots)
{
	scoped_guard(spinlock, &load->lock) {
		if (slots % 2)
			swap(load->n[0], load->n[1]);
		load->slot -= slots;
	}
	while (n--)
		parts[n].slot -= slots;
}

/* HOST-3: the packets of QPs add up, and each QP sees those of the others. */
static void host_3_parts(struct kunit *test)
{
	struct keel_load *load = load_new(test);
	struct keel_load_part parts[3] = {};

	keel_load_set(load, &parts[0], 3, 0);
	keel_load_set(load, &parts[1], 32, 0);
	KUNIT_EXPECT_EQ(test, 32, keel_load_but(load, &parts[0]));
	KUNIT_EXPECT_EQ(test, 3, keel_load_but(load, &parts[1]));
	KUNIT_EXPECT_EQ(test, 35, keel_load_but(load, &parts[2]));
	keel_load_set(load, &parts[1], 5, 0);
	keel_load_set(load, &parts[0], 4, 0);
	KUNIT_EXPECT_EQ(test, 9, keel_load_but(load, &parts[2]));
	keel_load_set(load, &parts[0], 0, 0);
	keel_load_set(load, &parts[1], 0, 0);
	KUNIT_EXPECT_EQ(test, 0, keel_load_but(load, &parts[2]));
}

/* HOST-3: packets count in the next slot of time, and then no more. */
static void host_3_old(struct kunit *test)
{
	struct keel_load *load = load_new(test);
	struct keel_load_part parts[2] = {}, none = {};

	keel_load_set(load, &parts[0], 7, 0);
	load_age(load, parts, 2, 1);
	keel_load_set(load, &parts[1], 2, 0);
	KUNIT_EXPECT_EQ(test, 9, keel_load_but(load, &none));
	load_age(load, parts, 2, 1);
	KUNIT_EXPECT_EQ(test, 2, keel_load_but(load, &none));
	/* Nothing is left to take back. */
	keel_load_set(load, &parts[0], 0, 0);
	KUNIT_EXPECT_EQ(test, 2, keel_load_but(load, &none));
	load_age(load, parts, 2, 2);
	KUNIT_EXPECT_EQ(test, 0, keel_load_but(load, &none));
	keel_load_set(load, &parts[1], 1, 0);
	keel_load_set(load, &parts[0], 1, 0);
	KUNIT_EXPECT_EQ(test, 1, keel_load_but(load, &parts[0]));
	load_age(load, parts, 2, 1001);
	KUNIT_EXPECT_EQ(test, 0, keel_load_but(load, &parts[0]));
}

/* HOST-3: to tell of the same packets again does not make them new ones. */
static void host_3_same(struct kunit *test)
{
	struct keel_load *load = load_new(test);
	struct keel_load_part part = {}, none = {};

	keel_load_set(load, &part, 7, 1);
	load_age(load, &part, 1, 1);
	keel_load_set(load, &part, 7, 1);
	KUNIT_EXPECT_EQ(test, 7, keel_load_but(load, &none));
	load_age(load, &part, 1, 1);
	keel_load_set(load, &part, 7, 1);
	KUNIT_EXPECT_EQ(test, 0, keel_load_but(load, &none));
	/* One was answered, and another one sent. */
	keel_load_set(load, &part, 7, 2);
	KUNIT_EXPECT_EQ(test, 7, keel_load_but(load, &none));
	load_age(load, &part, 1, 1);
	keel_load_set(load, &part, 8, 2);
	load_age(load, &part, 1, 1);
	KUNIT_EXPECT_EQ(test, 8, keel_load_but(load, &none));
}

static void load_up(struct keel_link *link, struct keel_conn *conn)
{
	guard(spinlock)(&link->lock);
	link->up = conn;
}

static struct keel_conn *load_conn(struct kunit *test)
{
	struct keel_conn *conn = kunit_kzalloc(test, sizeof(*conn), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, conn);
	conn->link = kunit_kzalloc(test, sizeof(*conn->link), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, conn->link);
	spin_lock_init(&conn->link->lock);
	load_up(conn->link, conn);
	return conn;
}

/* @n frames have come. The time between them does not matter. */
static void load_come(struct keel_conn *conn, u8 type, u8 flags, u32 n)
{
	const struct keel_frame frame = { .type = type, .flags = flags };

	while (n--) {
		/* In the future: a test may lose its processor for longer than a pause. */
		conn->load_at = jiffies + HZ;
		keel_load_frame(conn, &frame);
	}
}

static void load_is(struct kunit *test, const struct keel_conn *conn, bool busy)
{
	KUNIT_EXPECT_EQ(test, busy, conn->busy);
	KUNIT_EXPECT_EQ(test, busy, conn->link->busy);
}

/* HOST-3: if most requests and answers tell so, the connection is busy, until none does. */
static void host_3_busy(struct kunit *test)
{
	struct keel_conn *conn = load_conn(test);

	load_come(conn, KEEL_FRAME_REQUEST, KEEL_FRAME_F_BUSY, HIGH - 1);
	load_come(conn, KEEL_FRAME_DATAGRAM, 0, 100);
	load_is(test, conn, false);
	load_come(conn, KEEL_FRAME_ANSWER, KEEL_FRAME_F_BUSY, 1);
	load_is(test, conn, true);
	load_come(conn, KEEL_FRAME_REQUEST, KEEL_FRAME_F_BUSY, 1000);
	load_come(conn, KEEL_FRAME_REQUEST, 0, HIGH - 1);
	load_is(test, conn, true);
	load_come(conn, KEEL_FRAME_ANSWER, 0, 1);
	load_is(test, conn, false);
	load_come(conn, KEEL_FRAME_ANSWER, 0, 1000);
	load_come(conn, KEEL_FRAME_ANSWER, KEEL_FRAME_F_BUSY, HIGH - 1);
	load_is(test, conn, false);
	load_come(conn, KEEL_FRAME_REQUEST, KEEL_FRAME_F_BUSY, 1);
	load_is(test, conn, true);
}

/* HOST-3: after a pause it is not busy. */
static void host_3_pause(struct kunit *test)
{
	const struct keel_frame frame = { .type = KEEL_FRAME_REQUEST, .flags = KEEL_FRAME_F_BUSY };
	struct keel_conn *conn = load_conn(test);

	load_come(conn, KEEL_FRAME_REQUEST, KEEL_FRAME_F_BUSY, HIGH);
	load_is(test, conn, true);
	conn->load_at = jiffies + HZ;
	keel_load_rest(conn);
	load_is(test, conn, true);
	conn->load_at = jiffies - HZ;
	keel_load_frame(conn, &frame);
	load_is(test, conn, false);
	load_come(conn, KEEL_FRAME_REQUEST, KEEL_FRAME_F_BUSY, HIGH - 1);
	load_is(test, conn, true);
	/* Without another frame, too. */
	conn->load_at = jiffies - HZ;
	keel_load_rest(conn);
	load_is(test, conn, false);
	load_come(conn, KEEL_FRAME_REQUEST, KEEL_FRAME_F_BUSY, HIGH - 1);
	load_is(test, conn, false);
}

/* HOST-3: a connection that does not carry the messages of the link does not make that busy. */
static void host_3_guest(struct kunit *test)
{
	struct keel_conn *conn = load_conn(test);

	load_up(conn->link, NULL);
	load_come(conn, KEEL_FRAME_REQUEST, KEEL_FRAME_F_BUSY, HIGH);
	KUNIT_EXPECT_TRUE(test, conn->busy);
	KUNIT_EXPECT_FALSE(test, conn->link->busy);
	/* Nor the contrary. */
	WRITE_ONCE(conn->link->busy, true);
	load_come(conn, KEEL_FRAME_REQUEST, 0, HIGH);
	KUNIT_EXPECT_FALSE(test, conn->busy);
	KUNIT_EXPECT_TRUE(test, conn->link->busy);
}

static struct kunit_case load_cases[] = {
	KUNIT_CASE(host_3_parts),
	KUNIT_CASE(host_3_old),
	KUNIT_CASE(host_3_same),
	KUNIT_CASE(host_3_busy),
	KUNIT_CASE(host_3_pause),
	KUNIT_CASE(host_3_guest),
	{}
};

static struct kunit_suite load_suite = {
	.name = "keel_link_load",
	.test_cases = load_cases,
};
kunit_test_suite(load_suite);
