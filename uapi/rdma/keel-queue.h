/* SPDX-License-Identifier: ((GPL-2.0 WITH Linux-syscall-note) OR Linux-OpenIB) */
/*
 * keel: queues. Part of the contract of keel-abi.h, with the same rules.
 *
 * The ring of every queue is memory of the program, which the kernel pins:
 * struct keel_uapi_ring, then a power of two of entries, each as long as the
 * program said (its stride). Both sides count with indexes that run free
 * through all 32 bits; entry i is at i modulo the number of entries. A ring
 * starts on a 64-byte boundary.
 *
 * Each index has one writer. A side that adds an entry writes it first and then
 * moves its index with release semantics; a side that takes one loads the other's
 * index with acquire semantics. An index that claims more entries than there
 * are is an error of the queue: IBV_EVENT_QP_FATAL, IBV_EVENT_SRQ_ERR or
 * IBV_EVENT_CQ_ERR. The kernel copies an entry once, before it looks at it; an
 * entry may be used again as soon as the kernel's index has passed it. The
 * entries of a CQ between the two indexes are the program's: the kernel leaves
 * them alone until the program's index has passed them, and moves them only when
 * the CQ is resized.
 */
#ifndef KEEL_QUEUE_H
#define KEEL_QUEUE_H

#include <linux/types.h>

/**
 * struct keel_uapi_ring - what every ring starts with
 * @user: the program's index: entries it has posted to a work queue, or taken
 *	from a CQ
 * @arm: CQ: enum keel_uapi_arm. The program sets it, then looks at @kernel
 *	once more (a full barrier between the two); the kernel moves @kernel,
 *	then looks here (likewise), and clears it when it raises the event.
 * @reserved0: 0
 * @kernel: the kernel's index: entries it has taken from a work queue, or
 *	added to a CQ
 * @flags: enum keel_uapi_ring_flags, written by the kernel
 * @reserved1: 0
 *
 * All of it is zero in the ring that a queue is created with, or that replaces
 * another: EINVAL otherwise. When the kernel replaces a ring it copies @user,
 * @kernel and @arm from the old one.
 */
struct keel_uapi_ring {
	__u32 user;
	__u32 arm;
	__u32 reserved0[14];
	__u32 kernel;
	__u32 flags;
	__u32 reserved1[14];
};

/**
 * enum keel_uapi_arm - which completion raises an event
 * @KEEL_ARM_NONE: none
 * @KEEL_ARM_NEXT: the next one
 * @KEEL_ARM_SOLICITED: the next one that is solicited or has failed
 */
enum keel_uapi_arm {
	KEEL_ARM_NONE		= 0,
	KEEL_ARM_NEXT		= 1,
	KEEL_ARM_SOLICITED	= 2,
};

/**
 * enum keel_uapi_ring_flags - of &keel_uapi_ring.flags
 * @KEEL_RING_F_KICK: receive queue: KEEL_METHOD_QP_DOORBELL, or for an SRQ
 *	KEEL_METHOD_SRQ_DOORBELL, is to be called after receives are posted. A
 *	sender waits for one, or the QP is in the error state and they are to be
 *	flushed. The user library reads the flag after it moved its index, with
 *	a full barrier between the two.
 */
enum keel_uapi_ring_flags {
	KEEL_RING_F_KICK	= 1U << 0,
};

/* Limits of queues. */
#define KEEL_MAX_WR		16384	/* entries of a work queue */
#define KEEL_MAX_SGE		30
#define KEEL_MAX_INLINE		960	/* bytes */
#define KEEL_MAX_CQE		1048576
#define KEEL_MAX_STRIDE		1024

/**
 * struct keel_uapi_buf - where a ring is
 * @addr: address of struct keel_uapi_ring, in the program; multiple of 64
 * @entries: a power of two; not 0
 * @stride: bytes of an entry; a multiple of 16. A CQ's is
 *	sizeof(struct keel_uapi_cqe), a send queue's at least
 *	KEEL_SQ_STRIDE(max_send_sge, max_inline_data), a receive queue's at
 *	least KEEL_RQ_STRIDE(max_recv_sge).
 *
 * All zero where there is no such queue.
 */
struct keel_uapi_buf {
	__aligned_u64 addr;
	__u32 entries;
	__u32 stride;
};

/**
 * struct keel_uapi_sge - a piece of memory; the layout of struct ibv_sge
 * @addr: in the addresses of the key
 * @length: bytes; 0 is 0
 * @lkey: key
 */
struct keel_uapi_sge {
	__aligned_u64 addr;
	__u32 length;
	__u32 lkey;
};

/**
 * struct keel_uapi_send_wqe - an entry of a send queue
 * @wr_id: for the completion
 * @opcode: enum ib_uverbs_wr_opcode
 * @flags: enum ibv_send_flags: fence, signaled, solicited, inline
 * @num_sge: SGEs behind this structure; 0 with inline data
 * @inline_len: bytes of inline data behind this structure
 * @imm: immediate data as the program gave it, or the rkey to invalidate
 *	(send with invalidate, local invalidate)
 * @srqn: XRC: number of the peer's SRQ
 * @rdma: RDMA read and write; atomic write, whose data are 8 bytes
 * @atomic: atomics
 * @flush: flush, which has no data; @flush.type is enum ibv_placement_type, at
 *	least one of them, and @flush.level enum ibv_selectivity_level. With
 *	IBV_FLUSH_MR, address and length do not count.
 * @ud: UD; @ud.ah is what struct keel_uapi_create_ah_resp said
 * @bind: memory windows; @bind.rkey is the window's rkey before the bind. The
 *	lower 8 bits of @bind.new_rkey are those of the rkey afterwards; the
 *	upper 24 bits stay those of @bind.rkey. For a window of type 1,
 *	@bind.new_rkey must have these upper bits, too; for type 2 they are
 *	ignored. @bind.flags is enum keel_uapi_bind_flags
 * @reserved: all of the union
 *
 * Followed by @num_sge of struct keel_uapi_sge, or by @inline_len bytes.
 *
 * Members that the opcode, or the type of the QP, has no use for must be 0, in
 * the union or in front of it; so must flags that are not known. Otherwise the
 * work request fails with IBV_WC_LOC_QP_OP_ERR.
 */
struct keel_uapi_send_wqe {
	__aligned_u64 wr_id;
	__u8 opcode;
	__u8 flags;
	__u16 num_sge;
	__u32 inline_len;
	__u32 imm;
	__u32 srqn;
	union {
		struct {
			__aligned_u64 remote_addr;
			__u32 rkey;
			__u32 reserved;
		} rdma;
		struct {
			__aligned_u64 remote_addr;
			__aligned_u64 compare_add;
			__aligned_u64 swap;
			__u32 rkey;
			__u32 reserved;
		} atomic;
		struct {
			__aligned_u64 remote_addr;
			__aligned_u64 length;
			__u32 rkey;
			__u8 type;
			__u8 level;
			__u16 reserved;
		} flush;
		struct {
			__u32 ah;
			__u32 qpn;
			__u32 qkey;
		} ud;
		struct {
			__aligned_u64 addr;
			__aligned_u64 length;
			__u32 lkey;
			__u32 rkey;
			__u32 new_rkey;
			__u32 access;
			__u32 flags;
			__u32 reserved;
		} bind;
		__u8 reserved[40];
	};
};

/**
 * enum keel_uapi_bind_flags - of a bind
 * @KEEL_BIND_F_TYPE_1: ibv_bind_mw(), that is, a window of type 1
 */
enum keel_uapi_bind_flags {
	KEEL_BIND_F_TYPE_1	= 1U << 0,
};

/**
 * struct keel_uapi_recv_wqe - an entry of a receive queue
 * @wr_id: for the completion
 * @num_sge: SGEs behind this structure
 * @reserved: 0
 *
 * Followed by @num_sge of struct keel_uapi_sge. A message that gets one with
 * something else in @reserved, or with more SGEs than the queue was made for,
 * completes it with IBV_WC_LOC_QP_OP_ERR.
 */
struct keel_uapi_recv_wqe {
	__aligned_u64 wr_id;
	__u32 num_sge;
	__u32 reserved;
};

#define KEEL_SQ_STRIDE(_sges, _inline_len)				\
	((sizeof(struct keel_uapi_send_wqe) +				\
	  ((_sges) * sizeof(struct keel_uapi_sge) > (_inline_len) ?	\
	   (_sges) * sizeof(struct keel_uapi_sge) : (_inline_len)) +	\
	  63) / 64 * 64)

#define KEEL_RQ_STRIDE(_sges)						\
	(sizeof(struct keel_uapi_recv_wqe) +				\
	 (_sges) * sizeof(struct keel_uapi_sge))

/**
 * struct keel_uapi_cqe - an entry of a CQ
 * @wr_id: of the work request
 * @ts: CLOCK_MONOTONIC_RAW in ns, for a CQ with timestamps; else 0
 * @wall: CLOCK_REALTIME in ns, for a CQ with KEEL_CQ_F_WALLCLOCK; else 0
 * @byte_len: as in struct ibv_wc
 * @imm: immediate data as the peer gave it, or the rkey that was invalidated
 * @qp_num: the QP
 * @src_qp: UD: the sender
 * @vendor_err: enum keel_uapi_why
 * @pkey_index: UD: 0
 * @slid: UD: 0
 * @status: enum ibv_wc_status
 * @opcode: enum ibv_wc_opcode; of a failed one, too
 * @flags: enum keel_uapi_cqe_flags
 * @sl: UD: enum keel_uapi_packet; else 0
 * @reserved: 0
 */
struct keel_uapi_cqe {
	__aligned_u64 wr_id;
	__aligned_u64 ts;
	__aligned_u64 wall;
	__u32 byte_len;
	__u32 imm;
	__u32 qp_num;
	__u32 src_qp;
	__u32 vendor_err;
	__u16 pkey_index;
	__u16 slid;
	__u8 status;
	__u8 opcode;
	__u8 flags;
	__u8 sl;
	__u32 reserved[3];
};

/*
 * The reasons why a work request failed, X(name, number, text). All lists of them
 * are made of this one, or compared with it.
 */
#define KEEL_UAPI_WHYS(X)						\
	X(NONE, 0, "nothing is wrong")					\
	X(OPCODE, 1, "the QP's type cannot do that")			\
	X(SGES, 2, "more SGEs or inline data than the QP has")		\
	X(LENGTH, 3, "too long, not 8 bytes for an atomic, or 0 for a "	\
	  "bind")								\
	X(KEY, 4, "there is no such key")				\
	X(DOMAIN, 5, "the key is of another protection domain")		\
	X(ACCESS, 6, "the key does not give that right")		\
	X(RANGE, 7, "beyond the memory of the key")			\
	X(FAULT, 8, "the memory was unmapped, is read-only, or was not "	\
	  "provided in time")						\
	X(AH, 9, "no such address handle, or of another domain")	\
	X(PEER, 10, "no peer is connected to this QP")			\
	X(NOT_READY, 11, "the peer has posted no receive")		\
	X(QP_ACCESS, 12, "the peer's QP does not allow it")		\
	X(DEPTH, 13, "no read, atomic or flush is allowed, here or at "	\
	  "the peer")							\
	X(ALIGN, 14, "the address is not a multiple of 8")		\
	X(SRQ, 15, "no such SRQ, or of another XRC domain")		\
	X(WINDOW, 16, "the window or region cannot be used so, or now")	\
	X(FLUSH, 17, "the QP is in an error state")			\
	X(RING, 18, "the ring is not one, or the CQ is in error")	\
	X(PLACEMENT, 19, "no such type or level of a flush")		\
	X(RESERVED, 20, "what must be 0 in the work request is not")	\
	X(PSN, 21, "sq_psn is not the rq_psn that the peer was given")

/*
 * enum keel_uapi_why - why a work request failed: &keel_uapi_cqe.vendor_err. The
 * status is the one that the specification wants; this says more.
 */
enum keel_uapi_why {
#define KEEL_UAPI_WHY(_name, _number, _text)	KEEL_WHY_##_name = _number,
	KEEL_UAPI_WHYS(KEEL_UAPI_WHY)
#undef KEEL_UAPI_WHY
};

/**
 * enum keel_uapi_cqe_flags - of &keel_uapi_cqe.flags
 * @KEEL_CQE_F_GRH: the buffer starts with 40 bytes of GRH
 * @KEEL_CQE_F_IMM: @imm is immediate data
 * @KEEL_CQE_F_INV: @imm is an rkey that the peer invalidated
 * @KEEL_CQE_F_IPV4: with GRH: its last 20 bytes are an IPv4 header
 */
enum keel_uapi_cqe_flags {
	KEEL_CQE_F_GRH		= 1U << 0,
	KEEL_CQE_F_IMM		= 1U << 1,
	KEEL_CQE_F_INV		= 1U << 2,
	KEEL_CQE_F_IPV4		= 1U << 3,
};

/**
 * enum keel_uapi_packet - what a datagram came as: &keel_uapi_cqe.sl
 * @KEEL_PACKET_IPV6: RoCE v2 over IPv6: the GRH is an IPv6 header
 * @KEEL_PACKET_IPV4: RoCE v2 over IPv4: as KEEL_CQE_F_IPV4
 *
 * A RoCE packet has no service level. NICs report its type in the place of
 * that, with these numbers; libraries that use datagrams read it there. 0 is
 * RoCE v1, which the device does not have.
 */
enum keel_uapi_packet {
	KEEL_PACKET_IPV6	= 1,
	KEEL_PACKET_IPV4	= 2,
};

/**
 * enum keel_uapi_cq_flags - of &keel_uapi_create_cq_req.flags
 * @KEEL_CQ_F_WALLCLOCK: fill &keel_uapi_cqe.wall
 */
enum keel_uapi_cq_flags {
	KEEL_CQ_F_WALLCLOCK	= 1U << 0,
};

/**
 * struct keel_uapi_create_cq_req - driver part of a request for a CQ
 * @ring: its ring; as many entries as the program asked for, or more
 * @flags: enum keel_uapi_cq_flags
 * @reserved: 0
 *
 * Timestamps (&keel_uapi_cqe.ts) are IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION.
 */
struct keel_uapi_create_cq_req {
	struct keel_uapi_buf ring;
	__u32 flags;
	__u32 reserved;
};

/**
 * struct keel_uapi_resize_cq_req - driver part of a request to resize a CQ
 * @ring: a new ring; the kernel moves the entries that were not taken yet,
 *	under the same indexes, and from then on uses it. The program must not
 *	poll meanwhile.
 *
 * Errors: EINVAL when they do not fit.
 */
struct keel_uapi_resize_cq_req {
	struct keel_uapi_buf ring;
};

/**
 * struct keel_uapi_create_srq_req - driver part of a request for an SRQ
 * @ring: its ring
 */
struct keel_uapi_create_srq_req {
	struct keel_uapi_buf ring;
};

/**
 * struct keel_uapi_modify_srq_req - driver part of a request to modify an SRQ
 * @ring: with IBV_SRQ_MAX_WR: a new ring, as for a CQ; else all zero
 */
struct keel_uapi_modify_srq_req {
	struct keel_uapi_buf ring;
};

/**
 * struct keel_uapi_create_qp_req - driver part of a request for a QP
 * @sq: ring of its send queue; all zero for XRC_RECV
 * @rq: ring of its receive queue; all zero for XRC, and with an SRQ
 */
struct keel_uapi_create_qp_req {
	struct keel_uapi_buf sq;
	struct keel_uapi_buf rq;
};

/**
 * struct keel_uapi_create_ah_resp - driver part of the answer to CREATE_AH
 * @ah: for &keel_uapi_send_wqe.ud
 * @reserved: 0
 */
struct keel_uapi_create_ah_resp {
	__u32 ah;
	__u32 reserved;
};

#endif /* KEEL_QUEUE_H */
