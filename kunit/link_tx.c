// SPDX-License-Identifier: GPL-2.0
/*
 * A link whose connection sends nothing: link_tx.h.
 */
#include "keel_point.h"
#include "link_tx.h"

struct tx_link *tx;

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

int tx_init(struct kunit *test)
{
	tx = kunit_kzalloc(test, sizeof(*tx), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, tx);
	tx->users = kunit_kcalloc(test, TX_USERS, sizeof(*tx->users), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, tx->users);
	tx_make(test);
	return keel_links_start(&tx_ops);
}

void tx_exit(struct kunit *test)
{
	WRITE_ONCE(keel_point_hook.hit, NULL);
	keel_links_stop();
}

void tx_room(struct kunit *test, u32 n)
{
	scoped_guard(spinlock, &tx->conn.lock)
		tx->conn.credits = n + SPARE;
	KUNIT_EXPECT_EQ(test, n, keel_conn_room(&tx->conn));
}

bool tx_try(struct kunit *test, struct keel_link_wait *wait)
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

int tx_datagram(const struct keel_user *user)
{
	struct keel_frame frame = { .type = KEEL_FRAME_DATAGRAM };

	return keel_link_datagram(&tx->link, &frame, NULL, 0, user, GFP_NOWAIT);
}
