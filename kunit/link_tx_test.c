// SPDX-License-Identifier: GPL-2.0
/*
 * How frames get the buffers of a link: in turn, and nobody waits for ever for those that
 * do not take theirs.
 */
#include "link_tx.h"

#define OPEN	KEEL_LINK_OPEN

/* Those with the numbers @from to @to - 1 are woken, in turn. */
static void tx_woken_is(struct kunit *test, int from, int to)
{
	int i;

	KUNIT_EXPECT_EQ(test, to - from, tx->nr_woken);
	for (i = from; i < to; i++)
		KUNIT_EXPECT_EQ(test, i, tx->woken[i - from]);
	tx->nr_woken = 0;
}

/* HOST-4: frames of QPs leave buffers and credits for those of the link. */
static void host_4_spare(struct kunit *test)
{
	tx_room(test, 1);
	KUNIT_EXPECT_TRUE(test, tx_try(test, NULL));
	KUNIT_EXPECT_EQ(test, 0, keel_conn_room(&tx->conn));
	KUNIT_EXPECT_FALSE(test, tx_try(test, NULL));
	KUNIT_EXPECT_TRUE(test, keel_conn_tell(&tx->conn, KEEL_FRAME_ASK));
	KUNIT_EXPECT_EQ(test, 2, tx->sent);
}

/* HOST-4: those that wait are served first, in turn. */
static void host_4_turns(struct kunit *test)
{
	int i;

	tx_room(test, 0);
	for (i = 0; i < 3; i++)
		KUNIT_EXPECT_FALSE(test, tx_try(test, &tx->wait[i]));
	tx_room(test, 2);
	/* Nobody passes them. */
	KUNIT_EXPECT_FALSE(test, tx_try(test, &tx->wait[3]));
	keel_link_wake(&tx->link, 2);
	tx_woken_is(test, 0, 2);
	/* Nor while those that were woken do not run yet. */
	KUNIT_EXPECT_FALSE(test, tx_try(test, &tx->wait[4]));
	keel_link_unwait(&tx->link, &tx->wait[4]);
	keel_link_wake(&tx->link, 2);
	tx_woken_is(test, 2, 2);
	KUNIT_EXPECT_TRUE(test, tx_try(test, &tx->wait[1]));
	KUNIT_EXPECT_TRUE(test, tx_try(test, &tx->wait[0]));
	KUNIT_EXPECT_FALSE(test, tx_try(test, &tx->wait[2]));
	tx_room(test, 4);
	keel_link_wake(&tx->link, 4);
	tx_woken_is(test, 2, 4);
	/* Two are left for others. */
	KUNIT_EXPECT_TRUE(test, tx_try(test, &tx->wait[5]));
	KUNIT_EXPECT_TRUE(test, tx_try(test, &tx->wait[4]));
	KUNIT_EXPECT_FALSE(test, tx_try(test, &tx->wait[6]));
	keel_link_unwait(&tx->link, &tx->wait[6]);
	KUNIT_EXPECT_TRUE(test, tx_try(test, &tx->wait[2]));
	KUNIT_EXPECT_TRUE(test, tx_try(test, &tx->wait[3]));
	KUNIT_EXPECT_FALSE(test, keel_link_has_waiters(&tx->link));
}

/* HOST-4: so it is with many. */
static void host_4_stopped_many(struct kunit *test)
{
	u32 i;

	tx_room(test, 0);
	for (i = 0; i < WAITS; i++)
		KUNIT_EXPECT_FALSE(test, tx_try(test, &tx->wait[i]));
	tx_room(test, WAITS);
	for (i = 0; i < WAITS; i++)
		keel_link_wake(&tx->link, WAITS);
	KUNIT_EXPECT_EQ(test, WAITS, tx->nr_woken);
	for (i = 0; i < WAITS; i++)
		tx->wait[i].since -= KEEL_WAKE_TIME;
	keel_link_expire(&tx->link);
	for (i = 0; i < WAITS; i++)
		KUNIT_EXPECT_FALSE(test, tx->wait[i].woken);
	KUNIT_EXPECT_FALSE(test, keel_link_has_waiters(&tx->link));
}

/* HOST-4: one that was woken and does not run keeps its buffer for a while, not for ever. */
static void host_4_stopped(struct kunit *test)
{
	tx_room(test, 0);
	KUNIT_EXPECT_FALSE(test, tx_try(test, &tx->wait[0]));
	KUNIT_EXPECT_FALSE(test, tx_try(test, &tx->wait[1]));
	tx_room(test, 1);
	keel_link_wake(&tx->link, 1);
	tx_woken_is(test, 0, 1);
	KUNIT_EXPECT_FALSE(test, tx_try(test, &tx->wait[1]));
	/* Not yet, as long as it is not. */
	tx->wait[0].since = jiffies + HZ;
	keel_link_expire(&tx->link);
	keel_link_wake(&tx->link, 1);
	tx_woken_is(test, 0, 0);
	tx->wait[0].since = jiffies - KEEL_WAKE_TIME;
	keel_link_expire(&tx->link);
	keel_link_wake(&tx->link, 1);
	tx_woken_is(test, 1, 2);
	KUNIT_EXPECT_TRUE(test, tx_try(test, &tx->wait[1]));
	/* It runs after all, and waits in turn again. */
	KUNIT_EXPECT_FALSE(test, tx_try(test, &tx->wait[0]));
	KUNIT_EXPECT_TRUE(test, keel_link_has_waiters(&tx->link));
	tx_room(test, 1);
	keel_link_wake(&tx->link, 1);
	tx_woken_is(test, 0, 1);
	KUNIT_EXPECT_TRUE(test, tx_try(test, &tx->wait[0]));
}

/* HOST-4: with more than half of the buffers free, nobody waits for anybody. */
static void host_4_open(struct kunit *test)
{
	tx_room(test, 0);
	KUNIT_EXPECT_FALSE(test, tx_try(test, &tx->wait[0]));
	tx_room(test, OPEN);
	KUNIT_EXPECT_FALSE(test, tx_try(test, &tx->wait[1]));
	tx_room(test, OPEN + 1);
	KUNIT_EXPECT_TRUE(test, tx_try(test, &tx->wait[1]));
	KUNIT_EXPECT_FALSE(test, tx_try(test, &tx->wait[2]));
	keel_link_unwait(&tx->link, &tx->wait[0]);
	keel_link_unwait(&tx->link, &tx->wait[2]);
	KUNIT_EXPECT_FALSE(test, keel_link_has_waiters(&tx->link));
	KUNIT_EXPECT_TRUE(test, tx_try(test, &tx->wait[3]));
}

/* HOST-4: answers wait for no buffer, and while others wait they get a few at a time. */
static void host_4_answers(struct kunit *test)
{
	struct keel_buf *bufs[KEEL_LINK_DGRAMS / 2];
	u64 epoch;
	int i;

	tx_room(test, 0);
	KUNIT_EXPECT_FALSE(test, tx_try(test, &tx->wait[0]));
	KUNIT_EXPECT_FALSE(test, tx_try(test, NULL));
	tx_room(test, KEEL_LINK_DGRAMS + 2);
	for (i = 0; i < ARRAY_SIZE(bufs); i++) {
		bufs[i] = keel_link_tx(&tx->link, NULL, 0, &epoch);
		KUNIT_ASSERT_NOT_NULL(test, bufs[i]);
	}
	KUNIT_EXPECT_FALSE(test, tx_try(test, NULL));
	keel_link_wake(&tx->link, 2);
	tx_woken_is(test, 0, 1);
	KUNIT_EXPECT_TRUE(test, tx_try(test, &tx->wait[0]));
	/* Nobody waits now. */
	KUNIT_EXPECT_TRUE(test, tx_try(test, NULL));
	for (i = 0; i < ARRAY_SIZE(bufs); i++)
		keel_link_unsend(bufs[i]);
	tx_room(test, 0);
	KUNIT_EXPECT_FALSE(test, tx_try(test, &tx->wait[0]));
	tx_room(test, 1);
	KUNIT_EXPECT_TRUE(test, tx_try(test, NULL));
}

/* ISO-1: a user with many QPs does not hold up the one of another user. */
static void iso_1_users(struct kunit *test)
{
	struct keel_user *one = kunit_kzalloc(test, sizeof(*one), GFP_KERNEL);
	int i;

	KUNIT_ASSERT_NOT_NULL(test, one);
	tx_room(test, 0);
	tx->wait[5].user = one;
	for (i = 0; i < 6; i++)
		KUNIT_EXPECT_FALSE(test, tx_try(test, &tx->wait[i]));
	tx_room(test, 3);
	keel_link_wake(&tx->link, 3);
	KUNIT_EXPECT_EQ(test, 3, tx->nr_woken);
	KUNIT_EXPECT_EQ(test, 0, tx->woken[0]);
	KUNIT_EXPECT_EQ(test, 5, tx->woken[1]);
	KUNIT_EXPECT_EQ(test, 1, tx->woken[2]);
	for (i = 0; i < 6; i++)
		keel_link_unwait(&tx->link, &tx->wait[i]);
	KUNIT_EXPECT_FALSE(test, keel_link_has_waiters(&tx->link));
}

/* HOST-4: one that ends leaves no buffer kept for it. */
static void host_4_unwait(struct kunit *test)
{
	tx_room(test, 0);
	KUNIT_EXPECT_FALSE(test, tx_try(test, &tx->wait[0]));
	tx_room(test, 1);
	keel_link_wake(&tx->link, 1);
	tx_woken_is(test, 0, 1);
	KUNIT_EXPECT_FALSE(test, tx_try(test, &tx->wait[1]));
	keel_link_unwait(&tx->link, &tx->wait[1]);
	keel_link_unwait(&tx->link, &tx->wait[0]);
	KUNIT_EXPECT_TRUE(test, tx_try(test, &tx->wait[1]));
	/* Twice does no harm. */
	keel_link_unwait(&tx->link, &tx->wait[0]);
	tx_room(test, 1);
	KUNIT_EXPECT_TRUE(test, tx_try(test, &tx->wait[1]));
}

/* HOST-4: a buffer that is given back counts again, and wakes the next one. */
static void host_4_unsend(struct kunit *test)
{
	struct keel_buf *buf;
	u64 epoch;

	tx_room(test, 1);
	buf = keel_link_tx(&tx->link, NULL, 0, &epoch);
	KUNIT_ASSERT_NOT_NULL(test, buf);
	KUNIT_EXPECT_FALSE(test, tx_try(test, &tx->wait[0]));
	keel_link_unsend(buf);
	tx_woken_is(test, 0, 1);
	KUNIT_EXPECT_EQ(test, 1, keel_conn_room(&tx->conn));
	KUNIT_EXPECT_TRUE(test, tx_try(test, &tx->wait[0]));
	KUNIT_EXPECT_EQ(test, 1, kref_read(&tx->conn.ref));
}

/* @n chunks of the other side are free. */
static void tx_chunks(struct kunit *test, u32 n)
{
	if (!tx->chunks)
		tx->chunks = kunit_kzalloc(test, sizeof(*tx->chunks), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, tx->chunks);
	guard(spinlock)(&tx->conn.lock);
	tx->conn.chunks = tx->chunks;
	tx->conn.told_chunks = true;
	tx->conn.chunks_free = n ? GENMASK(n - 1, 0) : 0;
	tx->conn.chunks_out = 0;
}

/* Ask for a chunk, and keep it. Return: whether there was one. */
static bool tx_try_chunk(struct kunit *test, struct keel_link_wait *wait)
{
	struct keel_buf *buf;
	u64 epoch;

	buf = keel_link_tx(&tx->link, wait, KEEL_FRAME_DATA + 1, &epoch);
	KUNIT_EXPECT_EQ(test, 3, epoch);
	if (!buf)
		return false;
	/* As if the lower device had it. */
	buf->chunk = 0;
	keel_link_unsend(buf);
	return true;
}

/* HOST-4: those that wait for a chunk get the next ones in turn, and hold up nothing else. */
static void host_4_chunks(struct kunit *test)
{
	tx_room(test, OPEN + 5);
	tx_chunks(test, 1);
	KUNIT_EXPECT_TRUE(test, tx_try_chunk(test, &tx->wait[0]));
	KUNIT_EXPECT_FALSE(test, tx_try_chunk(test, &tx->wait[0]));
	KUNIT_EXPECT_FALSE(test, tx_try_chunk(test, &tx->wait[1]));
	keel_link_wake(&tx->link, OPEN + 5);
	tx_woken_is(test, 0, 0);
	KUNIT_EXPECT_TRUE(test, tx_try(test, &tx->wait[2]));
	tx_chunks(test, 1);
	/* Nobody passes them, also after the first one was woken. */
	KUNIT_EXPECT_FALSE(test, tx_try_chunk(test, &tx->wait[3]));
	keel_link_wake(&tx->link, OPEN + 4);
	tx_woken_is(test, 0, 1);
	keel_link_wake(&tx->link, OPEN + 4);
	tx_woken_is(test, 0, 0);
	KUNIT_EXPECT_FALSE(test, tx_try_chunk(test, &tx->wait[4]));
	KUNIT_EXPECT_TRUE(test, tx_try_chunk(test, &tx->wait[0]));
	tx_chunks(test, 2);
	keel_link_wake(&tx->link, OPEN + 4);
	KUNIT_EXPECT_EQ(test, 2, tx->nr_woken);
	KUNIT_EXPECT_EQ(test, 1, tx->woken[0]);
	KUNIT_EXPECT_EQ(test, 3, tx->woken[1]);
	KUNIT_EXPECT_TRUE(test, tx_try_chunk(test, &tx->wait[3]));
	/* The chunk that is left is kept for the one that was woken. */
	KUNIT_EXPECT_FALSE(test, tx_try_chunk(test, &tx->wait[5]));
	keel_link_unwait(&tx->link, &tx->wait[1]);
	keel_link_unwait(&tx->link, &tx->wait[4]);
	keel_link_unwait(&tx->link, &tx->wait[5]);
	KUNIT_EXPECT_TRUE(test, tx_try_chunk(test, &tx->wait[6]));
	KUNIT_EXPECT_FALSE(test, keel_link_has_waiters(&tx->link));
}

/* HOST-4: one that waits for a chunk, and then needs only a buffer, waits no more. */
static void host_4_no_chunk(struct kunit *test)
{
	tx_room(test, OPEN + 5);
	tx_chunks(test, 0);
	KUNIT_EXPECT_FALSE(test, tx_try_chunk(test, &tx->wait[0]));
	KUNIT_EXPECT_TRUE(test, tx_try(test, &tx->wait[0]));
	KUNIT_EXPECT_FALSE(test, keel_link_has_waiters(&tx->link));
	tx_room(test, 0);
	KUNIT_EXPECT_FALSE(test, tx_try(test, &tx->wait[0]));
	KUNIT_EXPECT_FALSE(test, tx_try_chunk(test, &tx->wait[0]));
	tx_chunks(test, 1);
	tx_room(test, 1);
	keel_link_wake(&tx->link, 1);
	tx_woken_is(test, 0, 1);
	KUNIT_EXPECT_TRUE(test, tx_try_chunk(test, &tx->wait[0]));
	KUNIT_EXPECT_FALSE(test, keel_link_has_waiters(&tx->link));
}

/* HOST-4: a new connection has no chunks: those that have waited for one are woken. */
static void host_4_unchunk(struct kunit *test)
{
	tx_room(test, OPEN + 5);
	tx_chunks(test, 0);
	KUNIT_EXPECT_FALSE(test, tx_try_chunk(test, &tx->wait[0]));
	KUNIT_EXPECT_FALSE(test, tx_try_chunk(test, &tx->wait[1]));
	scoped_guard(spinlock, &tx->conn.lock)
		tx->conn.told_chunks = false;
	keel_link_wake(&tx->link, OPEN + 5);
	tx_woken_is(test, 0, 0);
	scoped_guard(spinlock, &tx->link.lock)
		keel_link_unchunk(&tx->link);
	keel_link_wake(&tx->link, OPEN + 5);
	tx_woken_is(test, 0, 2);
	KUNIT_EXPECT_TRUE(test, tx_try(test, &tx->wait[1]));
	KUNIT_EXPECT_TRUE(test, tx_try(test, &tx->wait[0]));
	KUNIT_EXPECT_FALSE(test, keel_link_has_waiters(&tx->link));
}

static struct kunit_case tx_cases[] = {
	KUNIT_CASE(host_4_spare),
	KUNIT_CASE(host_4_turns),
	KUNIT_CASE(host_4_stopped),
	KUNIT_CASE(host_4_stopped_many),
	KUNIT_CASE(host_4_open),
	KUNIT_CASE(host_4_answers),
	KUNIT_CASE(iso_1_users),
	KUNIT_CASE(host_4_unwait),
	KUNIT_CASE(host_4_unsend),
	KUNIT_CASE(host_4_chunks),
	KUNIT_CASE(host_4_no_chunk),
	KUNIT_CASE(host_4_unchunk),
	{}
};

static struct kunit_suite tx_suite = {
	.name = "keel_link_tx",
	.init = tx_init,
	.exit = tx_exit,
	.test_cases = tx_cases,
};
kunit_test_suite(tx_suite);
