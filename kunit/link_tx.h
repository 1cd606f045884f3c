/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A link for tests of how frames get its buffers. Its connection sends nothing.
 */
#ifndef KEEL_LINK_TX_H
#define KEEL_LINK_TX_H

#include <kunit/test.h>

#include "keel_conn.h"
#include "keel_quota.h"

#define SPARE	(KEEL_LINK_SPARE + KEEL_LINK_RESERVED)
#define WAITS	(KEEL_LINK_EXPIRE + 2)
#define TX_USERS	4

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
 * @users: users, of whom only the addresses count
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
	struct keel_user *users;
};

extern struct tx_link *tx;

/* For suites. */
int tx_init(struct kunit *test);
void tx_exit(struct kunit *test);
/* The other side can receive @n frames of QPs. */
void tx_room(struct kunit *test, u32 n);
/* Ask for a buffer. Return: whether there was one. */
bool tx_try(struct kunit *test, struct keel_link_wait *wait);
/* Send an empty datagram of a user, or of the kernel. Return: as keel_link_datagram(). */
int tx_datagram(const struct keel_user *user);

#endif /* KEEL_LINK_TX_H */
