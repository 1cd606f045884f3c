/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A connection that is up, on a lower device that counts what is posted.
 */
#ifndef KEEL_RX_H
#define KEEL_RX_H

#include <kunit/test.h>

#include "keel_conn.h"

/* Frames that the test keeps. */
#define RX_SENT		16
#define RX_CREDITS	32
#define RX_COOKIE	0x1122334455667788ULL
#define RX_PEER_COOKIE	0x8877665544332211ULL

/**
 * struct rx - a connection that is up, and what it has done
 * @ib: its lower device
 * @pd: likewise
 * @qp: likewise
 * @lower: likewise
 * @link: its link, in no table
 * @conn: the connection
 * @next: number of the buffer that receives the next frame
 * @posted: number of receive WQEs that were posted
 * @refuse: no more can be posted
 * @sent: frames that were sent
 * @bufs: their buffers
 * @signals: bits: those that have a completion
 * @nsent: their number
 * @got: the last frame that was delivered
 * @data: the start of its data
 * @how: the type that the function is for that got it
 * @ngot: number of frames that were delivered
 */
struct rx {
	struct ib_device ib;
	struct ib_pd pd;
	struct ib_qp qp;
	struct keel_lower lower;
	struct keel_link *link;
	struct keel_conn *conn;
	u32 next;
	u32 posted;
	bool refuse;
	struct keel_frame sent[RX_SENT];
	struct keel_buf *bufs[RX_SENT];
	unsigned long signals;
	u32 nsent;
	struct keel_frame got;
	char data[8];
	enum keel_frame_type how;
	u32 ngot;
};

extern struct rx *rx;

int rx_init(struct kunit *test);
void rx_exit(struct kunit *test);
struct keel_frame rx_frame(enum keel_frame_type type);
void *rx_page(void);
void rx_receive_as_is(const struct keel_frame *frame, u32 bytes);
void rx_complete(const struct keel_frame *frame, struct ib_wc wc);
void rx_receive_n(const struct keel_frame *frame, u32 bytes);
void rx_receive(const struct keel_frame *frame);
bool rx_has(enum keel_conn_event event);
void rx_ends(struct kunit *test);
u32 rx_owed(void);
u32 rx_credits(void);
void rx_set_credits(u32 credits);
/* Send a frame to QP @to, with @len bytes, each of which is @to. @patient: &keel_buf.patient. */
void rx_send(struct kunit *test, enum keel_frame_type type, u32 to, u32 len, bool patient);

#endif /* KEEL_RX_H */
