/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A host that user space plays: a third network namespace behind host 1, which routes, with a
 * device of rxe and without keel. It asks host 0 for a link as keel does, and then sends any
 * bytes as frames. The answer of ib_cm is read from a raw socket: in the kernel, ib_cm of the
 * stranger drops it.
 */
#ifndef STRANGER_H
#define STRANGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include "cm.h"

#define STRANGER_IPV4	0x0a090102
#define VICTIM_IPV4	0x0a090001
/* Bytes of a frame without data, with the most data, and those that a message may have. */
#define FRAME_HEAD	96
#define FRAME_DATA	4096
#define FRAME_CHUNK	(256 << 10)
#define FRAME_CHUNKS_N	4
#define FRAME_ROOM	8192

/* enum keel_frame_type and the other numbers of keel_frame.h */
enum {
	FRAME_REQUEST = 1, FRAME_ANSWER, FRAME_CREDIT, FRAME_ASK, FRAME_ALIVE, FRAME_DATAGRAM,
	FRAME_CHUNKS, FRAME_GROUP, FRAME_BATCH, FRAME_TYPES,
};

enum { FRAME_RC, FRAME_UC, FRAME_XRC };
enum { FRAME_FIRST = 1, FRAME_LAST = 2, FRAME_SOLICITED = 4, FRAME_WANTS_ANSWER = 8 };
enum { FRAME_DONE = 1, FRAME_RNR, FRAME_NOT_READY };

/* struct keel_frame, little-endian as the machines that run the tests. */
struct frame {
	uint8_t type, flags;
	uint16_t credits;
	uint32_t len, to, from, psn, srqn;
	uint64_t cookie, gen;
	uint16_t chunk, freed;
	uint32_t reserved;
	union {
		struct {
			uint8_t opcode, transport;
			uint16_t kind;
			uint32_t imm, rkey, bytes;
			uint64_t addr, left, a, b;
		} request;
		struct {
			uint8_t result, status, rnr, chunks;
			uint32_t why;
			uint64_t word;
			uint8_t unused[32];
		} answer;
		struct {
			uint8_t opcode, tclass, hop_limit, reserved;
			uint32_t imm, qkey, flow_label;
			uint8_t unused[32];
		} datagram;
		struct {
			uint64_t addr;
			uint32_t rkey;
			uint8_t unused[36];
		} chunks;
	};
};

_Static_assert(sizeof(struct frame) == FRAME_HEAD, "the size of struct keel_frame");

/**
 * struct stranger - the host, with at most one connection
 * @ctx: its device of rxe
 * @pd: a PD
 * @gsi: sends messages of ib_cm
 * @gsi_cq: its CQ
 * @ah: address of the victim
 * @sgid: index of the address of the stranger
 * @udp: raw socket
 * @mem: memory of all messages
 * @mr: likewise
 * @qp: the connection, or NULL
 * @scq: CQ of what it sends
 * @rcq: CQ of what it receives
 * @req: the last request
 * @id: number of the connection for ib_cm
 * @peer_id: that of the victim
 * @qpn: number of the QP of the victim
 * @psn: number of the first packet to it
 * @cookie: of frames to the victim
 * @granted: credits that the victim has given with the reply
 * @posted: frames that were sent since the connection exists
 * @sent: those of them that have a completion
 * @owed: frames that were received, and not given credits for
 * @chunks_addr: where the chunks of the victim are, if it has told so
 * @chunks_rkey: their rkey, or 0
 * @freed: bits: chunks that the victim has read since this was cleared
 * @chunks: memory of the stranger's own chunks
 * @chunks_mr: likewise
 * @read: bits: those that the victim has written, and may write again with the next frame
 * @batch: the last batch that was received
 * @batch_len: bytes of it
 * @batch_at: those of them that stranger_poll() has returned
 * @up: the connection was accepted, and has not ended as far as known
 */
struct stranger {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_qp *gsi;
	struct ibv_cq *gsi_cq;
	struct ibv_ah *ah;
	int sgid;
	int udp;
	char *mem;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	struct ibv_cq *scq, *rcq;
	struct cm_req req;
	uint32_t id, peer_id, qpn, psn;
	uint64_t cookie;
	uint16_t granted;
	unsigned int posted, sent, owed;
	uint64_t chunks_addr;
	uint32_t chunks_rkey;
	uint16_t freed;
	char *chunks;
	struct ibv_mr *chunks_mr;
	uint16_t read;
	char batch[FRAME_ROOM];
	size_t batch_len, batch_at;
	bool up;
};

/* Make the namespace, with two hosts: hosts_up() was called. And undo it. */
void stranger_net_up(void);
void stranger_net_down(void);

struct stranger stranger_new(void);
void stranger_free(struct stranger *s);

/* Make a new QP, and &stranger.req, an honest request for it. */
void stranger_prepare(struct stranger *s);
/* Send the request, and return true if it was accepted within @ms. */
bool stranger_ask(struct stranger *s, int ms);
/* Both, often enough that an honest request is accepted: fail the test else. */
void stranger_connect(struct stranger *s);
/* Send another message of ib_cm about the connection. */
void stranger_cm(struct stranger *s, uint16_t attr_id);
/* Destroy the QP, without a word to the victim. */
void stranger_drop(struct stranger *s);

/* Send a message as it is. False: the connection has ended. */
bool stranger_send_raw(struct stranger *s, const void *bytes, size_t n);
/* Give a frame its length, cookie and credits. */
void stranger_stamp(struct stranger *s, struct frame *frame, uint32_t len);
/* Send a frame with @len bytes of data, which were stamped. */
bool stranger_send(struct stranger *s, struct frame *frame, const void *data, uint32_t len);
/*
 * Write into chunks of the victim, from a byte of the first one on, at most FRAME_CHUNK bytes.
 * False: the connection has ended.
 */
bool stranger_write(struct stranger *s, uint32_t at, const void *data, uint32_t len);
/* Tell the victim where the stranger's own chunks are. */
bool stranger_tell_chunks(struct stranger *s);
/* Send a frame whose data was written into a chunk, counted from 1. */
bool stranger_send_chunk(struct stranger *s, struct frame *frame, uint16_t chunk, uint32_t len);
/*
 * Receive a message, or a frame of a batch, without waiting: its bytes, of FRAME_ROOM at most,
 * or 0.
 */
size_t stranger_poll(struct stranger *s, void *bytes);
/* Receive the next frame of a type; those of other types are dropped. False: none came. */
bool stranger_get(struct stranger *s, uint8_t type, struct frame *frame, int ms);
/* Has the victim ended the connection within @ms? */
bool stranger_ended(struct stranger *s, int ms);
/* Is the connection up, so that ASK is answered? All frames before were received then. */
bool stranger_asks(struct stranger *s, int ms);

#endif /* STRANGER_H */
