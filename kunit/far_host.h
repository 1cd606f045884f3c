/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Another host, without a network: the end b of a pair is connected to a QP of this host.
 * The test passes frames to the QP, as a link does, and gets those that the QP sends.
 */
#ifndef KEEL_FAR_HOST_H
#define KEEL_FAR_HOST_H

#include "keel_conn.h"
#include "keel_far.h"
#include "pair.h"

/* The number of the QP on the other host, and its generation. */
#define FAR_QPN		0x4321
#define FAR_GEN		77
/* Numbers of the first packets, which wrap. */
#define FAR_PSN		(KEEL_PSN_MASK - 1)
/* Most frames that a test can get, before far_host_recycle(). */
#define FAR_SENDS	KEEL_LINK_SENDS
/* Whole packets that may be under way. */
#define FAR_WHOLE	(KEEL_FAR_BYTES / KEEL_FRAME_DATA)

/* Operands of far_post(): the remote memory, immediate data, and so on. */
#define FAR_WR_ID	9
#define FAR_REMOTE	0x123456789000ULL
#define FAR_RKEY	0x4711
#define FAR_IMM		0x1234
#define FAR_A		0x1122334455667788ULL
#define FAR_B		0x99aabbccddeeff00ULL
/* The chunks of the host. */
#define FAR_CHUNKS	0x555500000000ULL
#define FAR_CHUNKS_RKEY	0x5555
/* Its most bytes: more packets than may be under way. */
#define FAR_LONGEST	((FAR_WHOLE + 2) * KEEL_FRAME_DATA)

#define FIRST		KEEL_FRAME_F_FIRST
#define LAST		KEEL_FRAME_F_LAST
#define ONLY		(FIRST | LAST)

/**
 * struct far_host - the other host
 * @p: has the QP at its end b
 * @qp: that QP
 * @link: its link, in no table
 * @conn: the connection of @link, if it is open
 * @lower: the device that carries it
 * @ib: likewise
 * @pd: of @lower
 * @lower_qp: QP of @conn, which puts all frames into @sent
 * @headers: memory of frames
 * @sent: frames that the QP has sent
 * @nr_sent: number of them, under the lock of @conn
 * @kept: packets that the QP kept when it sent the last one, likewise
 * @conn_chunks: chunks of @conn, or NULL
 * @data: data of the next frame for the QP, which may be in a chunk
 */
struct far_host {
	struct pair *p;
	struct keel_qp *qp;
	struct keel_link link;
	struct keel_conn conn;
	struct keel_lower lower;
	struct ib_device ib;
	struct ib_pd pd;
	struct ib_qp lower_qp;
	struct keel_frame headers[FAR_SENDS];
	const struct keel_buf *sent[FAR_SENDS];
	u32 nr_sent;
	u32 kept;
	struct keel_chunks *conn_chunks;
	u8 data[KEEL_CHUNK_DATA];
};

/* Create a pair whose end b is in @state, and connected to the host. The link is closed. */
struct far_host *far_host_make(struct kunit *test, enum ib_qp_state state);
struct far_host *far_host_make_type(struct kunit *test, enum ib_qp_type type,
				    enum ib_qp_state state);
/* Create a pair whose end b is an XRC_RECV QP, connected to the host. The link is open. */
struct far_host *far_xrc_make(struct kunit *test);
/* The connection has chunks, and the host has told where its own are. */
void far_host_add_chunks(struct far_host *h);
/* The data of the frame @i that the QP has sent, in a chunk. */
const u8 *far_long_data(const struct far_host *h, u32 i);
/* Let the QP use the link, again after a reset. */
void far_host_join(struct far_host *h);
/* The link gets a connection, and wakes the QP. */
void far_host_open(struct far_host *h);
/* Wait for the work of the QP. */
void far_host_settle(struct far_host *h);
/* Wait until the QP has sent @n frames at least. Return: their number. */
u32 far_host_wait(struct far_host *h, u32 n);
/* The frames that the QP has sent are gone: the next one is the first one. */
void far_host_recycle(struct far_host *h);

/* A packet that the host sends to the QP, with number FAR_PSN + @nr. XRC: it names @p->srq. */
struct keel_frame far_packet(const struct far_host *h, u32 nr, u8 opcode, u8 flags, u32 len,
			     u64 left);
/* Pass a packet to the QP, and wait for its work. */
void far_request(struct far_host *h, const struct keel_frame *frame);
/* XRC: pass a send of 64 bytes to the QP that names an SRQ. */
void far_xrc_send(struct far_host *h, u32 nr, u32 srqn);
/* The frame @i of those that the QP has sent answers packet @nr. Return: it. */
const struct keel_frame *far_answered(struct far_host *h, u32 i, u32 nr, u8 result, u8 status);
/* No QP keeps a packet, and frame @i says so. */
void far_refused(struct far_host *h, u32 i, const struct keel_frame *frame);
/* Number of packets that the QP keeps. */
u32 far_requests_n(const struct far_host *h);

/*
 * A host with an open link, and FAR_LONGEST bytes for messages to it, which count. There may be
 * some more of them than KEEL_FAR_WINDOW.
 */
struct far_host *far_send_make(struct kunit *test, u8 **buf);
struct far_host *far_send_make_type(struct kunit *test, enum ib_qp_type type, u8 **buf);
/* Post a work request of the QP, with more flags and its own wr_id. */
void far_post_as(struct far_host *h, u8 opcode, void *buf, u32 len, int flags, u64 wr_id);
/* Post a work request of the QP with FAR_WR_ID. */
void far_post(struct far_host *h, u8 opcode, void *buf, u32 len);
/* The frame @i of those that the QP has sent is packet @nr. Return: it. */
const struct keel_frame *far_sent(struct far_host *h, u32 i, u32 nr);
/* An answer to packet @nr. */
struct keel_frame far_answer(struct far_host *h, u32 nr, u8 status);
/* Pass an answer to the QP, and wait for its work. */
void far_give(struct far_host *h, const struct keel_frame *answer);
/* Packet @nr was executed; @len: bytes that a read returns, which are in @h->data. */
void far_give_done(struct far_host *h, u32 nr, u32 len);
/* Number of answers that the QP keeps. */
u32 far_answers_n(const struct far_host *h);
/* The work request has not completed, or with @status and the vendor error @why. */
void far_nothing_ended(struct far_host *h);
void far_ended_with(struct far_host *h, enum ib_wc_status status, u32 why);

/* Flags of a packet, whether others are under way or not. */
static inline u8 far_flags(const struct keel_frame *frame)
{
	return frame->flags & ~KEEL_FRAME_F_BUSY;
}

static inline u32 far_psn(u32 nr)
{
	return (FAR_PSN + nr) & KEEL_PSN_MASK;
}

#endif /* KEEL_FAR_HOST_H */
