// SPDX-License-Identifier: GPL-2.0
/*
 * How a connection knows that many messages are under way.
 */
#include <kunit/test.h>
#include <linux/jiffies.h>

#include "keel_conn.h"

/* Requests that are not answered when the next one tells so. */
#define BUSY		4
/* Frames that tell so until no thread is urgent, and the most that count. */
#define HIGH		8
#define MOST		16

static struct keel_conn *load_new(struct kunit *test)
{
	struct keel_conn *conn = kunit_kzalloc(test, sizeof(*conn), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, conn);
	spin_lock_init(&conn->lock);
	return conn;
}

/* Send a frame. Return: does it tell that others are not answered? */
static bool load_send(struct keel_conn *conn, u8 type)
{
	struct keel_frame frame = { .type = type };

	guard(spinlock)(&conn->lock);
	keel_load_request(conn, &frame);
	return frame.flags & KEEL_FRAME_F_BUSY;
}

/* @n frames have come. */
static void load_come(struct keel_conn *conn, u8 type, u8 flags, u32 n)
{
	const struct keel_frame frame = { .type = type, .flags = flags };

	while (n--)
		keel_load_frame(conn, &frame);
}

/* Send @n requests, none of which tells so. */
static void load_few(struct kunit *test, struct keel_conn *conn, u32 n)
{
	while (n--)
		KUNIT_EXPECT_FALSE(test, load_send(conn, KEEL_FRAME_REQUEST));
}

/* HOST-3: a request tells whether four others are not answered. */
static void host_3_requests(struct kunit *test)
{
	struct keel_conn *conn = load_new(test);

	load_few(test, conn, BUSY);
	KUNIT_EXPECT_TRUE(test, load_send(conn, KEEL_FRAME_REQUEST));
	KUNIT_EXPECT_TRUE(test, load_send(conn, KEEL_FRAME_REQUEST));
	KUNIT_EXPECT_FALSE(test, load_send(conn, KEEL_FRAME_ANSWER));
	KUNIT_EXPECT_FALSE(test, load_send(conn, KEEL_FRAME_CREDIT));
	load_come(conn, KEEL_FRAME_ANSWER, 0, 2);
	KUNIT_EXPECT_TRUE(test, load_send(conn, KEEL_FRAME_REQUEST));
	load_come(conn, KEEL_FRAME_ANSWER, 0, 2);
	load_few(test, conn, 1);
	KUNIT_EXPECT_TRUE(test, load_send(conn, KEEL_FRAME_REQUEST));
}

/* HOST-3: more answers than requests count as none. */
static void host_3_too_many(struct kunit *test)
{
	struct keel_conn *conn = load_new(test);

	load_few(test, conn, 1);
	load_come(conn, KEEL_FRAME_ANSWER, 0, 100);
	load_few(test, conn, BUSY);
	KUNIT_EXPECT_TRUE(test, load_send(conn, KEEL_FRAME_REQUEST));
}

/* HOST-3: answers that have not come for long are not waited for. */
static void host_3_lost(struct kunit *test)
{
	struct keel_conn *conn = load_new(test);

	load_few(test, conn, BUSY);
	KUNIT_EXPECT_TRUE(test, load_send(conn, KEEL_FRAME_REQUEST));
	scoped_guard(spinlock, &conn->lock)
		conn->answered = jiffies - HZ;
	load_few(test, conn, 1);
	scoped_guard(spinlock, &conn->lock)
		KUNIT_EXPECT_EQ(test, 1, conn->requests);
}

/* HOST-3: if most requests and answers tell so, no thread is urgent, until others come. */
static void host_3_high(struct kunit *test)
{
	struct keel_conn *conn = load_new(test);

	load_come(conn, KEEL_FRAME_REQUEST, KEEL_FRAME_F_BUSY, HIGH - 1);
	load_come(conn, KEEL_FRAME_DATAGRAM, KEEL_FRAME_F_SOLICITED, 1);
	KUNIT_EXPECT_FALSE(test, keel_load_is_high(conn));
	load_come(conn, KEEL_FRAME_ANSWER, KEEL_FRAME_F_BUSY, 1);
	KUNIT_EXPECT_TRUE(test, keel_load_is_high(conn));
	load_come(conn, KEEL_FRAME_REQUEST, KEEL_FRAME_F_BUSY, 1000);
	load_come(conn, KEEL_FRAME_REQUEST, 0, MOST - HIGH);
	KUNIT_EXPECT_TRUE(test, keel_load_is_high(conn));
	load_come(conn, KEEL_FRAME_ANSWER, 0, 1);
	KUNIT_EXPECT_FALSE(test, keel_load_is_high(conn));
	load_come(conn, KEEL_FRAME_ANSWER, 0, 1000);
	load_come(conn, KEEL_FRAME_REQUEST, KEEL_FRAME_F_BUSY, HIGH);
	KUNIT_EXPECT_TRUE(test, keel_load_is_high(conn));
}

static struct kunit_case load_cases[] = {
	KUNIT_CASE(host_3_requests),
	KUNIT_CASE(host_3_too_many),
	KUNIT_CASE(host_3_lost),
	KUNIT_CASE(host_3_high),
	{}
};

static struct kunit_suite load_suite = {
	.name = "keel_link_load",
	.test_cases = load_cases,
};
kunit_test_suite(load_suite);
