// SPDX-License-Identifier: GPL-2.0
/*
 * Datagrams of a link: they wait for it to come up, and for the buffers that are theirs.
 */
#include "keel_point.h"
#include "link_tx.h"

#define OPEN	KEEL_LINK_OPEN

/* HOST-4: datagrams of the kernel get a buffer although those of users have all others. */
static void host_4_kernel(struct kunit *test)
{
	int i;

	tx_room(test, 0);
	KUNIT_EXPECT_FALSE(test, tx_try(test, &tx->wait[0]));
	for (i = 0; i < KEEL_LINK_RESERVED; i++) {
		KUNIT_EXPECT_EQ(test, -EAGAIN, tx_datagram(tx->users));
		KUNIT_EXPECT_EQ(test, 1, tx_datagram(NULL));
	}
	KUNIT_EXPECT_EQ(test, -EAGAIN, tx_datagram(NULL));
	KUNIT_EXPECT_EQ(test, KEEL_LINK_RESERVED, tx->sent);
	KUNIT_EXPECT_TRUE(test, keel_conn_tell(&tx->conn, KEEL_FRAME_ASK));
}

/* Datagrams of the kernel, or users, are kept: no frame of the other side has come. */
static void tx_keep(struct kunit *test, const struct keel_user *user)
{
	scoped_guard(spinlock, &tx->conn.lock)
		tx->conn.credits = 0;
	scoped_guard(spinlock, &tx->link.lock)
		tx->link.dead = false;
	tx->conn.events = 0;
	KUNIT_EXPECT_EQ(test, 0, tx_datagram(user));
	scoped_guard(spinlock, &tx->link.lock)
		tx->link.dead = true;
}

static void tx_keep_end(struct kunit *test, u32 held)
{
	scoped_guard(spinlock, &tx->link.lock)
		KUNIT_EXPECT_EQ(test, held, tx->link.nheld);
	keel_link_drop_held(&tx->link);
}

/* HOST-1: a datagram waits for the first frame of the other side, which has credits. */
static void host_1_unconfirmed(struct kunit *test)
{
	tx_keep(test, NULL);
	tx->conn.events = BIT(KEEL_CONN_CONFIRMED);
	KUNIT_EXPECT_EQ(test, -EAGAIN, tx_datagram(NULL));
	KUNIT_EXPECT_EQ(test, 0, tx->sent);
	tx_room(test, 1);
	keel_link_release_held(&tx->link);
	KUNIT_EXPECT_EQ(test, 1, tx->sent);
	tx_keep_end(test, 0);
}

/* ISO-1: a datagram that gets no buffer before the first frame is not kept again and again. */
static void iso_1_unconfirmed(struct kunit *test)
{
	tx_keep(test, NULL);
	/* The other host gave more credits than a guest. */
	tx_room(test, 1);
	keel_link_release_held(&tx->link);
	KUNIT_EXPECT_EQ(test, 0, tx->sent);
	/* And others have the datagrams' buffers. */
	scoped_guard(spinlock, &tx->conn.lock) {
		tx->conn.dgrams = KEEL_LINK_DGRAMS;
		tx->conn.kernels = KEEL_LINK_RESERVED;
	}
	scoped_guard(spinlock, &tx->link.lock)
		tx->link.nwoken = 1;
	keel_link_release_held(&tx->link);
	KUNIT_EXPECT_EQ(test, 0, tx->sent);
	tx_keep_end(test, 1);
}

/* HOST-1: one of the kernel that was kept has the reserved buffers, and passes those of users. */
static void host_1_kept(struct kunit *test)
{
	tx_keep(test, tx->users);
	tx_keep(test, NULL);
	tx->conn.events = BIT(KEEL_CONN_CONFIRMED);
	tx_room(test, 0);
	keel_link_release_held(&tx->link);
	KUNIT_EXPECT_EQ(test, 1, tx->sent);
	tx_keep_end(test, 1);
}

/* ISO-1: the work of a link does not run again and again for a datagram that cannot be sent. */
static void iso_1_works(struct kunit *test)
{
	tx_keep(test, NULL);
	tx_room(test, 1);
	keel_link_wake(&tx->link, 1);
	flush_work(&tx->link.work);
	KUNIT_EXPECT_EQ(test, 0, tx->works);
	tx->conn.events = BIT(KEEL_CONN_CONFIRMED);
	/* The work itself. */
	keel_link_wake_waiters(&tx->link, 1);
	flush_work(&tx->link.work);
	KUNIT_EXPECT_EQ(test, 0, tx->works);
	keel_link_wake(&tx->link, 0);
	flush_work(&tx->link.work);
	KUNIT_EXPECT_EQ(test, 1, tx->works);
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
	tx_keep(test, tx->users);
	WRITE_ONCE(keel_point_hook.hit, tx_opens);
	KUNIT_EXPECT_EQ(test, 1, tx_datagram(NULL));
	KUNIT_EXPECT_EQ(test, 1, tx->sent);
	KUNIT_EXPECT_EQ(test, -EAGAIN, tx_datagram(tx->users));
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
		KUNIT_EXPECT_EQ(test, 1, tx_datagram(NULL));
	KUNIT_EXPECT_EQ(test, -EAGAIN, tx_datagram(NULL));
	KUNIT_EXPECT_EQ(test, KEEL_LINK_DGRAMS, tx->sent);
	KUNIT_EXPECT_EQ(test, 2, keel_conn_room(&tx->conn));
}

/* One user after the other sends as many datagrams as it can: 4, 2, 1 and none. */
static void tx_fill(struct kunit *test)
{
	int user, n;

	for (user = 0; user < TX_USERS; user++) {
		for (n = KEEL_LINK_DGRAMS >> (user + 1); n; n--)
			KUNIT_EXPECT_EQ(test, 1, tx_datagram(&tx->users[user]));
		KUNIT_EXPECT_EQ(test, -EAGAIN, tx_datagram(&tx->users[user]));
	}
}

/* HOST-4: nor do those of users keep it from the reserved ones. */
static void host_4_flood(struct kunit *test)
{
	int i;

	tx_room(test, 0);
	KUNIT_EXPECT_FALSE(test, tx_try(test, &tx->wait[0]));
	tx_room(test, KEEL_LINK_DGRAMS + 2);
	tx_fill(test);
	for (i = 0; i < KEEL_LINK_RESERVED; i++)
		KUNIT_EXPECT_EQ(test, 1, tx_datagram(NULL));
	KUNIT_EXPECT_EQ(test, -EAGAIN, tx_datagram(NULL));
	/* One that is sent makes room for the next one. */
	scoped_guard(spinlock, &tx->conn.lock) {
		list_del(&tx->conn.sends[KEEL_LINK_DGRAMS].node);
		/* It is a buffer of this connection. */
		context_unsafe(keel_conn_give_back(&tx->conn.sends[KEEL_LINK_DGRAMS]));
	}
	KUNIT_EXPECT_EQ(test, 1, tx_datagram(NULL));
	KUNIT_EXPECT_EQ(test, -EAGAIN, tx_datagram(NULL));
}

/* Another one has the buffer, and gives it back before the datagram is kept again. */
static void tx_takes(const char *name)
{
	if (strcmp(name, "link_taken") && strcmp(name, "link_refused"))
		return;
	guard(spinlock)(&tx->conn.lock);
	tx->conn.credits = strcmp(name, "link_taken") ? SPARE + 1 : 0;
}

/* HOST-1: a datagram is sent although its link has room just when it was taken out of the list. */
static void host_1_taken(struct kunit *test)
{
	tx_keep(test, tx->users);
	tx->conn.events = BIT(KEEL_CONN_CONFIRMED);
	tx_room(test, 1);
	WRITE_ONCE(keel_point_hook.hit, tx_takes);
	keel_link_release_held(&tx->link);
	flush_work(&tx->link.work);
	KUNIT_EXPECT_EQ(test, 0, tx->sent);
	KUNIT_EXPECT_EQ(test, 1, tx->works);
	tx_keep_end(test, 1);
}

/* ISO-1: a user has no more buffers for datagrams than are left, also if nothing waits. */
static void iso_1_share(struct kunit *test)
{
	int i;

	tx_room(test, OPEN + 2);
	for (i = 0; i < 2; i++)
		KUNIT_EXPECT_EQ(test, 1, tx_datagram(tx->users));
	tx_fill(test);
	KUNIT_EXPECT_EQ(test, OPEN - KEEL_LINK_DGRAMS + 1, keel_conn_room(&tx->conn));
	/* The one that is sent makes room for the next user. */
	scoped_guard(spinlock, &tx->conn.lock) {
		list_del(&tx->conn.sends[2].node);
		/* It is a buffer of this connection. */
		context_unsafe(keel_conn_give_back(&tx->conn.sends[2]));
	}
	KUNIT_EXPECT_EQ(test, -EAGAIN, tx_datagram(tx->users));
	KUNIT_EXPECT_EQ(test, 1, tx_datagram(&tx->users[TX_USERS - 1]));
	KUNIT_EXPECT_EQ(test, -EAGAIN, tx_datagram(&tx->users[TX_USERS - 1]));
	/* Answers are of no user. */
	KUNIT_EXPECT_TRUE(test, tx_try(test, NULL));
}

/* ISO-1: answers, which a user can cause without end, have no more of them, either. */
static void iso_1_answers(struct kunit *test)
{
	int i;

	tx_room(test, 0);
	KUNIT_EXPECT_FALSE(test, tx_try(test, &tx->wait[0]));
	tx_room(test, KEEL_LINK_DGRAMS + 2);
	for (i = 0; i < KEEL_LINK_DGRAMS / 2; i++)
		KUNIT_EXPECT_TRUE(test, tx_try(test, NULL));
	KUNIT_EXPECT_FALSE(test, tx_try(test, NULL));
	KUNIT_EXPECT_EQ(test, 1, tx_datagram(tx->users));
	/* The one that is sent makes room for the next one. */
	scoped_guard(spinlock, &tx->conn.lock) {
		list_del(&tx->conn.sends[0].node);
		/* It is a buffer of this connection. */
		context_unsafe(keel_conn_give_back(&tx->conn.sends[0]));
	}
	KUNIT_EXPECT_FALSE(test, tx_try(test, NULL));
	KUNIT_EXPECT_EQ(test, 1, tx_datagram(tx->users));
}

/* ISO-1: nor more places for those that wait until the link is open. */
static void iso_1_kept(struct kunit *test)
{
	int i;

	for (i = 0; i < KEEL_LINK_HELD / 2; i++)
		tx_keep(test, tx->users);
	for (i = 0; i < KEEL_LINK_HELD; i++)
		tx_keep(test, NULL);
	scoped_guard(spinlock, &tx->link.lock)
		tx->link.dead = false;
	KUNIT_EXPECT_EQ(test, -EAGAIN, tx_datagram(tx->users));
	/* Users cause those of the kernel. */
	KUNIT_EXPECT_EQ(test, -EAGAIN, tx_datagram(NULL));
	KUNIT_EXPECT_EQ(test, 0, tx_datagram(tx->users + 1));
	scoped_guard(spinlock, &tx->link.lock)
		tx->link.dead = true;
	tx_keep_end(test, KEEL_LINK_HELD + KEEL_LINK_HELD / 2 + 1);
}

static struct kunit_case datagram_cases[] = {
	KUNIT_CASE(host_4_kernel),
	KUNIT_CASE(host_1_unconfirmed),
	KUNIT_CASE(iso_1_unconfirmed),
	KUNIT_CASE(host_1_kept),
	KUNIT_CASE(iso_1_works),
	KUNIT_CASE(host_1_opens),
	KUNIT_CASE(host_1_taken),
	KUNIT_CASE(iso_1_kernel),
	KUNIT_CASE(host_4_flood),
	KUNIT_CASE(iso_1_share),
	KUNIT_CASE(iso_1_answers),
	KUNIT_CASE(iso_1_kept),
	{}
};

static struct kunit_suite datagram_suite = {
	.name = "keel_link_datagram",
	.init = tx_init,
	.exit = tx_exit,
	.test_cases = datagram_cases,
};
kunit_test_suite(datagram_suite);
