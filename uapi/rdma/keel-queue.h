/* SPDX-License-Identifier: ((GPL-2.0 WITH Linux-syscall-note) OR Linux-OpenIB) */
/*
 * keel: queues. Part of the contract of keel-abi.h, with the same rules.
 *
 * The ring of every queue is memory of the application, which the kernel pins. It
 * is a struct keel_uapi_ring, followed by a power of two of WQEs or CQEs. The
 * application chooses their size (the stride). A ring starts on a 64-byte
 * boundary.
 *
 * Both sides use free-running 32-bit indexes. WQE or CQE i is at i modulo the
 * number of entries.
 *
 * Each index has one writer. The producer writes a WQE or CQE first, and then
 * advances its index with release semantics. The consumer loads the producer's
 * index with acquire semantics. An index that claims more entries than the ring
 * has is an error of the queue: IBV_EVENT_QP_FATAL, IBV_EVENT_SRQ_ERR or
 * IBV_EVENT_CQ_ERR.
 *
 * The kernel copies a WQE before it validates the WQE, and does so again when it
 * retries the WQE. Userspace may reuse a WQE as soon as the kernel's index has
 * passed it.
 *
 * The CQEs between the two indexes belong to userspace. The kernel does not write
 * to them until the user index has passed them. It moves them only when the CQ is
 * resized.
 */
#ifndef KEEL_QUEUE_H
#define KEEL_QUEUE_H

#include <linux/types.h>

/**
 * struct keel_uapi_ring - header of every ring
 * @user: index of userspace: producer index of a work queue, consumer index of a
 *	CQ
 * @arm: CQ: enum keel_uapi_arm. Userspace sets it, issues a full barrier, and
 *	polls @kernel once more. The kernel advances @kernel, issues a full
 *	barrier, and reads @arm. It clears @arm when it raises the event.
 * @reserved0: 0
 * @kernel: index of the kernel: consumer index of a work queue, producer index
 *	of a CQ
 * @flags: enum keel_uapi_ring_flags, written by the kernel
 * @reserved1: 0
 *
 * The header must be all zero when a queue is created with the ring, and when the
 * ring replaces another one. The kernel returns -EINVAL otherwise. When the kernel
 * replaces a ring, it copies @user and @kernel from the old one, and @arm of a CQ.
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
 * @KEEL_ARM_SOLICITED: the next one that is solicited or has an error status
 */
enum keel_uapi_arm {
	KEEL_ARM_NONE		= 0,
	KEEL_ARM_NEXT		= 1,
	KEEL_ARM_SOLICITED	= 2,
};

/**
 * enum keel_uapi_ring_flags - of &keel_uapi_ring.flags
 * @KEEL_RING_F_DOORBELL: receive queue: userspace calls KEEL_METHOD_QP_DOORBELL,
 *	or KEEL_METHOD_SRQ_DOORBELL for an SRQ, after it has posted receive WQEs. A
 *	requester waits for one, or the QP is in the error state and they are to
 *	be flushed. The provider advances its index, issues a full barrier, and
 *	reads the flag.
 * @KEEL_RING_F_POLLED: send queue: userspace need not call KEEL_METHOD_QP_DOORBELL after
 *	it has posted send WQEs: a kernel thread of the process polls the queue, see
 *	KEEL_METHOD_DEVICE_POLL_SENDS. The provider reads the flag likewise.
 */
enum keel_uapi_ring_flags {
	KEEL_RING_F_DOORBELL	= 1U << 0,
	KEEL_RING_F_POLLED	= 1U << 1,
};

/* Limits of queues. */
#define KEEL_MAX_WR		16384	/* WQEs of a work queue */
#define KEEL_MAX_SGE		30
#define KEEL_MAX_INLINE		960	/* bytes */
#define KEEL_MAX_CQE		1048576
#define KEEL_MAX_STRIDE		1024

/**
 * struct keel_uapi_buf - location and size of a ring
 * @addr: user address of struct keel_uapi_ring; a multiple of 64
 * @entries: number of WQEs or CQEs: a power of two; not 0
 * @stride: bytes of a WQE or CQE; a multiple of 16. A CQ needs exactly
 *	sizeof(struct keel_uapi_cqe), a send queue at least
 *	KEEL_SQ_STRIDE(max_send_sge, max_inline_data), a receive queue at least
 *	KEEL_RQ_STRIDE(max_recv_sge). The maximum is KEEL_MAX_STRIDE.
 *
 * All zero if there is no such queue.
 */
struct keel_uapi_buf {
	__aligned_u64 addr;
	__u32 entries;
	__u32 stride;
};

/**
 * struct keel_uapi_sge - an SGE, with the layout of struct ibv_sge
 * @addr: first byte, in the address range of the key
 * @length: bytes; a length of 0 is 0 bytes
 * @lkey: lkey
 */
struct keel_uapi_sge {
	__aligned_u64 addr;
	__u32 length;
	__u32 lkey;
};

/**
 * struct keel_uapi_send_wqe - a send WQE
 * @wr_id: for the completion
 * @opcode: enum ib_uverbs_wr_opcode
 * @flags: enum ibv_send_flags: fence, signaled, solicited, inline
 * @num_sge: number of SGEs that follow this structure; 0 with inline data
 * @inline_len: bytes of inline data that follow this structure
 * @imm: immediate data as the application passed it, or the rkey to invalidate
 *	(send with invalidate, local invalidate)
 * @srqn: XRC: number of the peer's SRQ
 * @rdma: RDMA read and write, and atomic write, which writes 8 bytes
 * @atomic: atomic operations
 * @flush: flush, which has no local data. @flush.type is enum ibv_placement_type,
 *	with at least one bit set. @flush.level is enum ibv_selectivity_level.
 *	With IBV_FLUSH_MR, address and length are ignored.
 * @ud: UD; @ud.ah is &keel_uapi_create_ah_resp.ah
 * @bind: memory windows. @bind.rkey is the window's rkey before the bind. The
 *	new rkey has the lower 8 bits of @bind.new_rkey and the upper 24 bits of
 *	@bind.rkey. For a type 1 window, the upper 24 bits of @bind.new_rkey must
 *	be those of @bind.rkey; for type 2 they are ignored. @bind.flags is enum
 *	keel_uapi_bind_flags.
 * @reserved: the whole union
 *
 * @num_sge of struct keel_uapi_sge, or @inline_len bytes, follow.
 *
 * Members that neither the opcode nor the QP type uses must be 0, in the union
 * and in front of it. Unknown flags must be 0. Otherwise the work request
 * completes with IBV_WC_LOC_QP_OP_ERR.
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
 * enum keel_uapi_bind_flags - flags of a bind
 * @KEEL_BIND_F_TYPE_1: the window is of type 1: ibv_bind_mw()
 */
enum keel_uapi_bind_flags {
	KEEL_BIND_F_TYPE_1	= 1U << 0,
};

/**
 * struct keel_uapi_recv_wqe - a receive WQE
 * @wr_id: for the completion
 * @num_sge: number of SGEs that follow this structure
 * @reserved: 0
 *
 * @num_sge of struct keel_uapi_sge follow. If @reserved is not 0, or if there are
 * more SGEs than the queue was created for, the message that consumes the receive
 * WQE completes it with IBV_WC_LOC_QP_OP_ERR.
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
 * struct keel_uapi_cqe - a CQE
 * @wr_id: of the work request
 * @ts: CLOCK_MONOTONIC_RAW in ns, if the CQ has timestamps; else 0
 * @wall: CLOCK_REALTIME in ns, if the CQ has KEEL_CQ_F_WALLCLOCK; else 0
 * @byte_len: as in struct ibv_wc
 * @imm: immediate data as the peer passed it, or the rkey that was invalidated
 * @qp_num: number of the QP
 * @src_qp: UD: number of the requester's QP
 * @vendor_err: vendor error, enum keel_uapi_why
 * @pkey_index: UD: 0
 * @slid: UD: 0
 * @status: enum ibv_wc_status
 * @opcode: enum ibv_wc_opcode, also if @status is an error
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
 * Vendor errors, X(name, number, text): KEEL_WHY_<name>. All other lists of vendor
 * errors are generated from this list or compared with it.
 */
#define KEEL_UAPI_WHYS(X)						\
	X(NONE, 0, "no error")						\
	X(OPCODE, 1, "the QP type does not support the opcode")		\
	X(SGES, 2, "more SGEs or inline data than the QP was created "	\
	  "with")							\
	X(LENGTH, 3, "the length is too large, not 8 for an atomic, "	\
	  "or 0 for a bind")						\
	X(KEY, 4, "the key does not exist")				\
	X(DOMAIN, 5, "the key belongs to another protection domain")	\
	X(ACCESS, 6, "the key does not grant this access")		\
	X(RANGE, 7, "the range exceeds the memory of the key")		\
	X(FAULT, 8, "the memory was unmapped, is read-only, or was "	\
	  "not provided in time")					\
	X(AH, 9, "the address handle does not exist, or belongs to "	\
	  "another PD")							\
	X(PEER, 10, "no peer is connected to this QP")			\
	X(NOT_READY, 11, "the peer has posted no receive WQE")		\
	X(QP_ACCESS, 12, "the peer's QP does not allow the operation")	\
	X(DEPTH, 13, "one of the QPs allows no read, atomic or flush")	\
	X(ALIGN, 14, "the address is not a multiple of 8")		\
	X(SRQ, 15, "the SRQ does not exist, or belongs to another "	\
	  "XRC domain")							\
	X(WINDOW, 16, "the window or region does not allow this "	\
	  "operation now")						\
	X(FLUSH, 17, "the QP is in an error state")			\
	X(RING, 18, "an index in the ring is invalid, or the CQ is "	\
	  "in error")							\
	X(PLACEMENT, 19, "the type or level of the flush is invalid")	\
	X(RESERVED, 20, "a reserved member of the work request is "	\
	  "not 0")							\
	X(PSN, 21, "sq_psn differs from the rq_psn of the peer")

/*
 * enum keel_uapi_why - vendor errors, &keel_uapi_cqe.vendor_err. The IBTA
 * specification defines the status; the vendor error gives more detail.
 */
enum keel_uapi_why {
#define KEEL_UAPI_WHY(_name, _number, _text)	KEEL_WHY_##_name = _number,
	KEEL_UAPI_WHYS(KEEL_UAPI_WHY)
#undef KEEL_UAPI_WHY
};

/**
 * enum keel_uapi_cqe_flags - of &keel_uapi_cqe.flags
 * @KEEL_CQE_F_GRH: the first 40 bytes of the buffer are a GRH
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
 * enum keel_uapi_packet - packet type of a datagram: &keel_uapi_cqe.sl
 * @KEEL_PACKET_IPV6: RoCE v2 over IPv6: the GRH is an IPv6 header
 * @KEEL_PACKET_IPV4: RoCE v2 over IPv4: as KEEL_CQE_F_IPV4
 *
 * A RoCE packet has no service level. NICs report the packet type in that member,
 * with these numbers, and libraries that use datagrams read it there. 0 is RoCE
 * v1, which the device does not support.
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
 * struct keel_uapi_create_cq_req - driver part of a request to create a CQ
 * @ring: the ring; with at least as many CQEs as the application requested
 * @flags: enum keel_uapi_cq_flags
 * @reserved: 0
 *
 * IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION enables &keel_uapi_cqe.ts.
 */
struct keel_uapi_create_cq_req {
	struct keel_uapi_buf ring;
	__u32 flags;
	__u32 reserved;
};

/**
 * struct keel_uapi_resize_cq_req - driver part of a request to resize a CQ
 * @ring: the new ring. The kernel moves the CQEs that were not polled yet, under
 *	the same indexes, and then uses the new ring. The application must not
 *	poll meanwhile.
 *
 * Returns -EINVAL if these CQEs do not fit, or if the CQ is in error.
 */
struct keel_uapi_resize_cq_req {
	struct keel_uapi_buf ring;
};

/**
 * struct keel_uapi_create_srq_req - driver part of a request to create an SRQ
 * @ring: the ring
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
 * struct keel_uapi_create_qp_req - driver part of a request to create a QP
 * @sq: ring of the send queue; all zero for XRC_RECV
 * @rq: ring of the receive queue; all zero for XRC, and with an SRQ
 */
struct keel_uapi_create_qp_req {
	struct keel_uapi_buf sq;
	struct keel_uapi_buf rq;
};

/**
 * struct keel_uapi_create_ah_resp - driver part of the response to CREATE_AH
 * @ah: for &keel_uapi_send_wqe.ud
 * @reserved: 0
 */
struct keel_uapi_create_ah_resp {
	__u32 ah;
	__u32 reserved;
};

#endif /* KEEL_QUEUE_H */
