// SPDX-License-Identifier: GPL-2.0
/*
 * How frames get the buffers of a link: in turn, and nobody waits for ever for those that
 * do not take theirs.
 */
#include <kunit/test.h>

#include "keel_quota.h"
#include "keel_conn.h"
#include "keel_point.h"

#define SPARE	(KEEL_LINK_SPARE + KEEL_LINK_RESERVED)
#define OPEN	KEEL_LINK_OPEN
#define WAITS	(KEEL_LINK_EXPIRE + 2)

/**
 * struct tx_link - a link with a connection that sends nothing
 * @link: the link, in no table
 * @conn: its connection
 * @lower: the device that carries it
 * @ib: likewise
 * @pd: of @lower
 * @lower_qp: QP of @conn
 * @headers: memory of frames
 * @chunks: those of @conn, or NULL
 * @sent: number of frames
 * @wait: what waits for the link
 * @woken: the numbers in @wait of those that were woken, in turn
 * @nr_woken: number of them
 * @works: how often the work of the link has run
 */
struct tx_link {
	struct keel_link link;
	struct keel_conn conn;
	struct keel_lower lower;
	struct ib_device ib;
	struct ib_pd pd;
	struct ib_qp lower_qp;
	struct keel_frame headers[KEEL_LINK_SENDS];
	struct keel_chunks *chunks;
	int sent;
	struct keel_link_wait wait[WAITS];
	long woken[WAITS];
	int nr_woken;
	int works;
};

static struct tx_link *tx;

static void tx_wake(struct keel_link_wait *wait)
{
	tx->woken[tx->nr_woken++] = wait - tx->wait;
}

static const struct keel_wire_ops tx_ops = { .wake = tx_wake };

static void tx_work(struct work_struct *work)
{
	tx->works++;
	keel_link_put(&tx->link);
}

static int tx_post_send(struct ib_qp *qp, const struct ib_send_wr *wr,
			const struct ib_send_wr **bad)
{
	tx->sent++;
	/* It arrives at once: no frame waits. The caller has the lock. */
	context_unsafe(tx->conn.under_way--);
	return 0;
}

static void tx_make(struct kunit *test)
	__context_unsafe(/* no other thread has the link yet */)
{
	struct keel_link *link = &tx->link;
	struct keel_conn *conn = &tx->conn;
	int i;

	tx->ib.ops.post_send = tx_post_send;
	tx->pd.device = &tx->ib;
	tx->lower_qp.device = &tx->ib;
	tx->lower.ib = &tx->ib;
	kref_init(&conn->ref);
	conn->link = link;
	conn->lower = &tx->lower;
	conn->qp = &tx->lower_qp;
	conn->pd = &tx->pd;
	conn->state = KEEL_CONN_UP;
	spin_lock_init(&conn->lock);
	INIT_LIST_HEAD(&conn->free);
	INIT_LIST_HEAD(&conn->posts);
	for (i = 0; i < KEEL_LINK_SENDS; i++) {
		conn->sends[i].conn = conn;
		conn->sends[i].frame = &tx->headers[i];
		list_add_tail(&conn->sends[i].node, &conn->free);
	}
	conn->nfree = KEEL_LINK_SENDS;
	kref_init(&link->ref);
	spin_lock_init(&link->lock);
	spin_lock_init(&link->load.lock);
	keel_turns_init(&link->turns);
	keel_turns_init(&link->chunk_turns);
	INIT_LIST_HEAD(&link->woken);
	INIT_LIST_HEAD(&link->held);
	conn->events = BIT(KEEL_CONN_CONFIRMED);
	for (i = 0; i < WAITS; i++)
		keel_wait_init(&tx->wait[i], NULL, NULL);
	INIT_WORK(&link->work, tx_work);
	/* No event of it queues the work. */
	link->dead = true;
	link->up = conn;
	link->epoch = 3;
}

static int tx_init(struct kunit *test)
{
	tx = kunit_kzalloc(test, sizeof(*tx), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, tx);
	tx_make(test);
	return keel_links_start(&tx_ops);
}

static void tx_exit(struct kunit *test)
{
	WRITE_ONCE(keel_point_hook.hit, NULL);
	keel_links_stop();
}

/* The other side can receive @n frames of QPs. */
static void tx_room(struct kunit *test, u32 n)
{
	scoped_guard(spinlock, &tx->conn.lock)
		tx->conn.credits = n + SPARE;
	KUNIT_EXPECT_EQ(test, n, keel_conn_room(&tx->conn));
}

/* Ask for a buffer. Return: whether there was one. */
static bool tx_try(struct kunit *test, struct keel_link_wait *wait)
{
	struct keel_frame frame = { .type = KEEL_FRAME_REQUEST };
	u64 epoch = 0;
	struct keel_buf *buf = keel_link_tx(&tx->link, wait, 0, &epoch);
	int sent = tx->sent;

	KUNIT_EXPECT_EQ(test, 3, epoch);
	if (!buf)
		return false;
	keel_link_send(buf, &frame, 0);
	KUNIT_EXPECT_EQ(test, sent + 1, tx->sent);
	return true;
}

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
	/* Not yet. */
	keel_link_expire(&tx->link);
	keel_link_wake(&tx->link, 1);
	tx_woken_is(test, 0, 0);
	tx->wait[0].since -= KEEL_WAKE_TIME;
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

/* HOST-4: datagrams wait for no buffer, and while others wait they get a few at a time. */
static void host_4_datagrams(struct kunit *test)
{
	struct keel_buf *bufs[KEEL_LINK_DGRAMS];
	u64 epoch;
	int i;

	tx_room(test, 0);
	KUNIT_EXPECT_FALSE(test, tx_try(test, &tx->wait[0]));
	KUNIT_EXPECT_FALSE(test, tx_try(test, NULL));
	tx_room(test, KEEL_LINK_DGRAMS + 2);
	for (i = 0; i < KEEL_LINK_DGRAMS; i++) {
		bufs[i] = keel_link_tx(&tx->link, NULL, 0, &epoch);
		KUNIT_ASSERT_NOT_NULL(test, bufs[i]);
	}
	KUNIT_EXPECT_FALSE(test, tx_try(test, NULL));
	keel_link_wake(&tx->link, 2);
	tx_woken_is(test, 0, 1);
	KUNIT_EXPECT_TRUE(test, tx_try(test, &tx->wait[0]));
	/* Nobody waits now. */
	KUNIT_EXPECT_TRUE(test, tx_try(test, NULL));
	for (i = 0; i < KEEL_LINK_DGRAMS; i++)
		keel_link_unsend(bufs[i]);
	tx_room(test, 0);
	KUNIT_EXPECT_FALSE(test, tx_try(test, &tx->wait[0]));
	tx_room(test, 1);
	KUNIT_EXPECT_TRUE(test, tx_try(test, NULL));
}

static int tx_datagram(gfp_t account)
{
	struct keel_frame frame = { .type = KEEL_FRAME_DATAGRAM };

	return keel_link_datagram(&tx->link, &frame, NULL, 0, GFP_NOWAIT | account);
}

/* HOST-4: datagrams of the kernel get a buffer although those of users have all others. */
static void host_4_kernel(struct kunit *test)
{
	int i;

	tx_room(test, 0);
	KUNIT_EXPECT_FALSE(test, tx_try(test, &tx->wait[0]));
	for (i = 0; i < KEEL_LINK_RESERVED; i++) {
		KUNIT_EXPECT_EQ(test, -EAGAIN, tx_datagram(__GFP_ACCOUNT));
		KUNIT_EXPECT_EQ(test, 1, tx_datagram(0));
	}
	KUNIT_EXPECT_EQ(test, -EAGAIN, tx_datagram(0));
	KUNIT_EXPECT_EQ(test, KEEL_LINK_RESERVED, tx->sent);
	KUNIT_EXPECT_TRUE(test, keel_conn_tell(&tx->conn, KEEL_FRAME_ASK));
}

/* HOST-1: a datagram waits for the first frame of the other side, which has credits. */
static void host_1_unconfirmed(struct kunit *test)
{
	tx_room(test, 0);
	scoped_guard(spinlock, &tx->conn.lock)
		tx->conn.credits = 0;
	scoped_guard(spinlock, &tx->link.lock)
		tx->link.dead = false;
	tx->conn.events = 0;
	KUNIT_EXPECT_EQ(test, 0, tx_datagram(0));
	tx->conn.events = BIT(KEEL_CONN_CONFIRMED);
	KUNIT_EXPECT_EQ(test, -EAGAIN, tx_datagram(0));
	KUNIT_EXPECT_EQ(test, 0, tx->sent);
	tx_room(test, 1);
	keel_link_release_held(&tx->link);
	KUNIT_EXPECT_EQ(test, 1, tx->sent);
	scoped_guard(spinlock, &tx->link.lock) {
		KUNIT_EXPECT_EQ(test, 0, tx->link.nheld);
		tx->link.dead = true;
	}
}

/* ISO-1: a datagram that gets no buffer before the first frame is not kept again and again. */
static void iso_1_unconfirmed(struct kunit *test)
{
	scoped_guard(spinlock, &tx->conn.lock)
		tx->conn.credits = 0;
	scoped_guard(spinlock, &tx->link.lock)
		tx->link.dead = false;
	tx->conn.events = 0;
	KUNIT_EXPECT_EQ(test, 0, tx_datagram(0));
	/* The other host gave more credits than a guest, and others have the datagrams' buffers. */
	tx_room(test, 1);
	scoped_guard(spinlock, &tx->conn.lock) {
		tx->conn.dgrams = KEEL_LINK_DGRAMS;
		tx->conn.kernels = KEEL_LINK_RESERVED;
	}
	scoped_guard(spinlock, &tx->link.lock)
		tx->link.nwoken = 1;
	keel_link_release_held(&tx->link);
	KUNIT_EXPECT_EQ(test, 0, tx->sent);
	scoped_guard(spinlock, &tx->link.lock) {
		KUNIT_EXPECT_EQ(test, 1, tx->link.nheld);
		tx->link.dead = true;
	}
	keel_link_drop_held(&tx->link);
}

/* Datagrams of the kernel, or users, are kept: no frame of the other side has come. */
static void tx_keep(struct kunit *test, gfp_t account)
{
	scoped_guard(spinlock, &tx->conn.lock)
		tx->conn.credits = 0;
	scoped_guard(spinlock, &tx->link.lock)
		tx->link.dead = false;
	tx->conn.events = 0;
	KUNIT_EXPECT_EQ(test, 0, tx_datagram(account));
	scoped_guard(spinlock, &tx->link.lock)
		tx->link.dead = true;
}

static void tx_keep_end(struct kunit *test, u32 held)
{
	scoped_guard(spinlock, &tx->link.lock)
		KUNIT_EXPECT_EQ(test, held, tx->link.nheld);
	keel_link_drop_held(&tx->link);
}

/* HOST-1: one of the kernel that was kept has the reserved buffers, and passes those of users. */
static void host_1_kept(struct kunit *test)
{
	tx_keep(test, __GFP_ACCOUNT);
	tx_keep(test, 0);
	tx->conn.events = BIT(KEEL_CONN_CONFIRMED);
	tx_room(test, 0);
	keel_link_release_held(&tx->link);
	KUNIT_EXPECT_EQ(test, 1, tx->sent);
	tx_keep_end(test, 1);
}

/* The work of the link runs after a wake, or not. */
static void tx_works(struct kunit *test, int works)
{
	tx->works = 0;
	keel_link_wake(&tx->link, 1);
	flush_work(&tx->link.work);
	KUNIT_EXPECT_EQ(test, works, tx->works);
}

/* ISO-1: the work of a link does not run again and again for a datagram that cannot be sent. */
static void iso_1_works(struct kunit *test)
{
	tx_keep(test, 0);
	tx_room(test, 1);
	KUNIT_EXPECT_FALSE(test, tx_try(test, &tx->wait[0]) && tx_try(test, &tx->wait[1]));
	tx_works(test, 0);
	tx->conn.events = BIT(KEEL_CONN_CONFIRMED);
	scoped_guard(spinlock, &tx->conn.lock) {
		tx->conn.dgrams = KEEL_LINK_DGRAMS;
		tx->conn.kernels = KEEL_LINK_RESERVED;
	}
	tx_works(test, 0);
	scoped_guard(spinlock, &tx->conn.lock)
		tx->conn.kernels = 0;
	tx_works(test, 1);
	scoped_guard(spinlock, &tx->conn.lock)
		tx->conn.dgrams = 0;
	tx_works(test, 1);
	tx_keep_end(test, 1);
}

static void tx_opens(const char *name)
{
	if (strcmp(name, "link_hold"))
		return;
	tx->conn.events = BIT(KEEL_CONN_CONFIRMED);
	guard(spinlock)(&tx->conn.lock);
	tx->conn.credits = SPARE;
}

/* HOST-1: the first frame comes just before a datagram of the kernel would be kept. */
static void host_1_opens(struct kunit *test)
{
	tx_keep(test, __GFP_ACCOUNT);
	WRITE_ONCE(keel_point_hook.hit, tx_opens);
	KUNIT_EXPECT_EQ(test, 1, tx_datagram(0));
	KUNIT_EXPECT_EQ(test, 1, tx->sent);
	KUNIT_EXPECT_EQ(test, -EAGAIN, tx_datagram(__GFP_ACCOUNT));
	tx_keep_end(test, 1);
}

/* ISO-1: users cause datagrams of the kernel: they do not get all buffers before others. */
static void iso_1_kernel(struct kunit *test)
{
	int i;

	tx_room(test, 0);
	KUNIT_EXPECT_FALSE(test, tx_try(test, &tx->wait[0]));
	tx_room(test, KEEL_LINK_DGRAMS + 2);
	for (i = 0; i < KEEL_LINK_DGRAMS; i++)
		KUNIT_EXPECT_EQ(test, 1, tx_datagram(0));
	KUNIT_EXPECT_EQ(test, -EAGAIN, tx_datagram(0));
	KUNIT_EXPECT_EQ(test, KEEL_LINK_DGRAMS, tx->sent);
	KUNIT_EXPECT_EQ(test, 2, keel_conn_room(&tx->conn));
}

/* HOST-4: nor do those of users keep it from the reserved ones. */
static void host_4_flood(struct kunit *test)
{
	int i;

	tx_room(test, 0);
	KUNIT_EXPECT_FALSE(test, tx_try(test, &tx->wait[0]));
	tx_room(test, KEEL_LINK_DGRAMS + 2);
	for (i = 0; i < KEEL_LINK_DGRAMS; i++)
		KUNIT_EXPECT_EQ(test, 1, tx_datagram(__GFP_ACCOUNT));
	KUNIT_EXPECT_EQ(test, -EAGAIN, tx_datagram(__GFP_ACCOUNT));
	for (i = 0; i < KEEL_LINK_RESERVED; i++)
		KUNIT_EXPECT_EQ(test, 1, tx_datagram(0));
	KUNIT_EXPECT_EQ(test, -EAGAIN, tx_datagram(0));
	/* One that is sent makes room for the next one. */
	scoped_guard(spinlock, &tx->conn.lock) {
		list_del(&tx->conn.sends[KEEL_LINK_DGRAMS].node);
		/* It is a buffer of this connection. */
		context_unsafe(keel_conn_give_back(&tx->conn.sends[KEEL_LINK_DGRAMS]));
	}
	KUNIT_EXPECT_EQ(test, 1, tx_datagram(0));
	KUNIT_EXPECT_EQ(test, -EAGAIN, tx_datagram(0));
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
	KUNIT_CASE(host_4_datagrams),
	KUNIT_CASE(host_4_kernel),
	KUNIT_CASE(host_1_unconfirmed),
	KUNIT_CASE(iso_1_unconfirmed),
	KUNIT_CASE(host_1_kept),
	KUNIT_CASE(iso_1_works),
	KUNIT_CASE(host_1_opens),
	KUNIT_CASE(iso_1_kernel),
	KUNIT_CASE(host_4_flood),
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
