/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The frames that two hosts send each other: Documentation/across-hosts.rst.
 *
 * A link is a connection of a lower device. Each of its messages is a frame: a header of
 * 96 bytes, and up to 4096 bytes of data. More data is in a chunk: memory of the receiver,
 * which the sender has written by an RDMA write before. The data of a batch are short frames, one
 * behind the other. All members are little-endian. A sender
 * sets members that have no meaning to 0, and a receiver ends the link if they are not; but it
 * ignores those that a request has for other operations than its own.
 */
#ifndef KEEL_FRAME_H
#define KEEL_FRAME_H

#include <linux/build_bug.h>
#include <linux/sizes.h>
#include <linux/stddef.h>
#include <linux/types.h>

/*
 * Changes with every incompatible change of this file, and of what a responder has to keep: 7,
 * because those before have no KEEL_FRAME_F_BUSY.
 */
#define KEEL_FRAME_VERSION	7
/* Most bytes of data in a frame. */
#define KEEL_FRAME_DATA		SZ_4K
/* Most bytes of data in a chunk, and how many chunks each side of a link has. */
#define KEEL_CHUNK_DATA		SZ_256K
#define KEEL_CHUNKS		4
/* Frames in a batch begin at multiples of it. */
#define KEEL_FRAME_ALIGN	8
/* Numbers of packets have as many bits as a PSN. */
#define KEEL_PSN_MASK		0xffffff

/**
 * enum keel_frame_type - meaning of a frame
 * @KEEL_FRAME_REQUEST: a packet of a message
 * @KEEL_FRAME_ANSWER: the result of such a packet
 * @KEEL_FRAME_CREDIT: nothing but credits
 * @KEEL_FRAME_ASK: the receiver sends KEEL_FRAME_ALIVE, so that the sender sees that the
 *	link works
 * @KEEL_FRAME_ALIVE: answers KEEL_FRAME_ASK
 * @KEEL_FRAME_DATAGRAM: a datagram
 * @KEEL_FRAME_CHUNKS: tells where the chunks of the sender are; at most once in a connection
 * @KEEL_FRAME_GROUP: a datagram to a multicast group. It comes over no link, but in one packet
 *	to the group.
 * @KEEL_FRAME_BATCH: its data is other frames: requests, answers and datagrams
 */
enum keel_frame_type {
	KEEL_FRAME_REQUEST	= 1,
	KEEL_FRAME_ANSWER	= 2,
	KEEL_FRAME_CREDIT	= 3,
	KEEL_FRAME_ASK		= 4,
	KEEL_FRAME_ALIVE	= 5,
	KEEL_FRAME_DATAGRAM	= 6,
	KEEL_FRAME_CHUNKS	= 7,
	KEEL_FRAME_GROUP	= 8,
	KEEL_FRAME_BATCH	= 9,
};

/**
 * enum keel_frame_transport - of a request: a QP of another transport does not take it
 * @KEEL_TRANSPORT_RC: RC
 * @KEEL_TRANSPORT_UC: UC
 * @KEEL_TRANSPORT_XRC: XRC: the message is for an SRQ
 */
enum keel_frame_transport {
	KEEL_TRANSPORT_RC	= 0,
	KEEL_TRANSPORT_UC	= 1,
	KEEL_TRANSPORT_XRC	= 2,
};

/* Flags of a request: the first and the last packet of a message; IB_SEND_SOLICITED. */
#define KEEL_FRAME_F_FIRST	0x1
#define KEEL_FRAME_F_LAST	0x2
#define KEEL_FRAME_F_SOLICITED	0x4
#define KEEL_FRAME_F_REQUEST	0x17
/* Of a request, which its answer repeats: four others of the link are not answered yet. */
#define KEEL_FRAME_F_BUSY	0x10
/* Flags of a datagram: KEEL_FRAME_F_SOLICITED; the sender asks for an answer, not of a group. */
#define KEEL_FRAME_F_ANSWER	0x8
#define KEEL_FRAME_F_DATAGRAM	0xc

/**
 * enum keel_frame_result - of an answer
 * @KEEL_RESULT_DONE: the packet was executed, with &keel_frame.answer.status
 * @KEEL_RESULT_RNR: there is no receive WQE: send it again after the delay; datagram: the QP
 *	keeps as many as it may
 * @KEEL_RESULT_NOT_READY: the QP is not connected yet: send it again later; UC: or the packet
 *	does not follow the one before; datagram: nobody takes it
 */
enum keel_frame_result {
	KEEL_RESULT_DONE	= 1,
	KEEL_RESULT_RNR		= 2,
	KEEL_RESULT_NOT_READY	= 3,
};

/**
 * struct keel_frame - header of a frame
 * @type: enum keel_frame_type
 * @flags: request, datagram, answer: KEEL_FRAME_F_*; else 0
 * @credits: number of messages that the receiver of this frame may send in addition; to a group:
 *	KEEL_FRAME_VERSION; in a batch: 0
 * @len: bytes of data behind the header, or in the chunk
 * @to: number of the QP that the frame is for, or IB_MULTICAST_QPN; from here on: requests,
 *	datagrams, answers
 * @from: number of the QP that sends it
 * @psn: number of the packet; an answer has that of its request
 * @srqn: request of XRC: number of the SRQ; else 0
 * @cookie: &keel_hello.cookie of the receiver of the frame. Local users can learn the other
 *	numbers of the connection, and send a message to its QP. To a group: a random number
 *	of the device that has sent it, which drops it if it comes back. In a batch: 0.
 * @gen: generation of the requester; an answer has that of its request
 * @chunk: request, answer: the chunk of the receiver that has the data, counted from 1;
 *	0: it is behind the header
 * @freed: bits: chunks of the sender of this frame that the receiver may write again; in a
 *	batch: 0
 * @reserved: 0
 * @request: request
 * @request.opcode: enum ib_uverbs_wr_opcode
 * @request.transport: enum keel_frame_transport
 * @request.imm: immediate data as the application passed it, or the rkey to invalidate
 * @request.rkey: RDMA, atomics and flush: the rkey
 * @request.addr: the same: address of the first byte of this packet
 * @request.left: bytes of the message from this packet on; RDMA read: @request.bytes of
 *	them are for this packet. A flush has its length here.
 * @request.a: atomics: compare or add. The value of an atomic write is data.
 * @request.b: compare-and-swap: the value to swap in
 * @request.bytes: RDMA read: bytes that the answer is to have
 * @request.kind: flush: type and, shifted by 8, level
 * @answer: answer
 * @answer.result: enum keel_frame_result
 * @answer.status: enum ib_wc_status of the requester's completion
 * @answer.why: its vendor error
 * @answer.rnr: min_rnr_timer of the responder
 * @answer.chunks: number of packets with more than KEEL_FRAME_DATA bytes, or reads that return
 *	more, that may be under way from now on
 * @answer.word: atomics: the original value
 * @datagram: datagram
 * @datagram.opcode: IB_WR_SEND or IB_WR_SEND_WITH_IMM
 * @datagram.tclass: traffic class
 * @datagram.hop_limit: hop limit
 * @datagram.imm: immediate data as the application passed it
 * @datagram.qkey: its Q_Key
 * @datagram.flow_label: flow label
 * @chunks: KEEL_FRAME_CHUNKS
 * @chunks.addr: address of the first one. The others follow.
 * @chunks.rkey: the rkey of all
 * @rest: the union
 */
struct keel_frame {
	__u8 type;
	__u8 flags;
	__le16 credits;
	__le32 len;
	__le32 to;
	__le32 from;
	__le32 psn;
	__le32 srqn;
	__le64 cookie;
	__le64 gen;
	__le16 chunk;
	__le16 freed;
	__le32 reserved;
	union {
		struct {
			__u8 opcode;
			__u8 transport;
			__le16 kind;
			__le32 imm;
			__le32 rkey;
			__le32 bytes;
			__le64 addr;
			__le64 left;
			__le64 a;
			__le64 b;
		} request;
		struct {
			__u8 result;
			__u8 status;
			__u8 rnr;
			__u8 chunks;
			__le32 why;
			__le64 word;
			__u8 unused[32];
		} answer;
		struct {
			__u8 opcode;
			__u8 tclass;
			__u8 hop_limit;
			__u8 reserved;
			__le32 imm;
			__le32 qkey;
			__le32 flow_label;
			__u8 unused[32];
		} datagram;
		struct {
			__le64 addr;
			__le32 rkey;
			__u8 unused[36];
		} chunks;
		__u8 rest[48];
	};
};

static_assert(sizeof(struct keel_frame) == 96);
/* So all frames in a batch are aligned, and there is room for the padding of the last one. */
static_assert(sizeof(struct keel_frame) % KEEL_FRAME_ALIGN == 0);
static_assert(KEEL_FRAME_DATA % KEEL_FRAME_ALIGN == 0);
static_assert(__alignof__(struct keel_frame) <= KEEL_FRAME_ALIGN);
static_assert(offsetof(struct keel_frame, cookie) == 24);
static_assert(offsetof(struct keel_frame, gen) == 32);
static_assert(offsetof(struct keel_frame, chunk) == 40);
static_assert(offsetof(struct keel_frame, request.addr) == 64);
static_assert(offsetof(struct keel_frame, answer.word) == 56);

/**
 * keel_frame_is_batched() - can a frame be part of a batch?
 * @type: enum keel_frame_type
 *
 * Return: true if so.
 */
static inline bool keel_frame_is_batched(__u8 type)
{
	return type == KEEL_FRAME_REQUEST || type == KEEL_FRAME_ANSWER ||
	       type == KEEL_FRAME_DATAGRAM;
}

#define KEEL_HELLO_MAGIC	0x6b65656c

/**
 * struct keel_hello - private data of both messages that establish a link
 * @magic: KEEL_HELLO_MAGIC
 * @version: KEEL_FRAME_VERSION
 * @credits: number of messages that the receiver may send at first
 * @cookie: a random number, for each message that the receiver sends
 */
struct keel_hello {
	__le32 magic;
	__le16 version;
	__le16 credits;
	__le64 cookie;
};

static_assert(sizeof(struct keel_hello) == 16);

#endif /* KEEL_FRAME_H */
