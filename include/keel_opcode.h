/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Properties of the operations of a send queue.
 */
#ifndef KEEL_OPCODE_H
#define KEEL_OPCODE_H

#include <linux/bits.h>

#include "keel_xfer.h"

/* &keel_uapi_send_wqe.imm is used. */
#define KEEL_OP_IMM	BIT(0)
/* No SGEs and no inline data. */
#define KEEL_OP_BARE	BIT(1)
/* Executed without a peer. */
#define KEEL_OP_LOCAL	BIT(2)
/* Names a structure of the kernel: kernel consumers only. */
#define KEEL_OP_KERNEL	BIT(3)
/* Writes to the memory of the requester. */
#define KEEL_OP_READ	BIT(4)
/* Needs a nonzero initiator depth (max_rd_atomic). */
#define KEEL_OP_DEPTH	BIT(5)
/* The local data is exactly 8 bytes long. */
#define KEEL_OP_ATOMIC	BIT(6)

/**
 * enum keel_fast_kind - how the fast path executes an operation: fast_msg.c
 * @KEEL_FAST_NONE: not at all
 * @KEEL_FAST_SEND: to the memory of a receive WQE
 * @KEEL_FAST_WRITE: to the memory of an rkey; with immediate data takes a receive WQE
 * @KEEL_FAST_READ: from the memory of an rkey
 * @KEEL_FAST_ATOMIC: one word there
 */
enum keel_fast_kind {
	KEEL_FAST_NONE,
	KEEL_FAST_SEND,
	KEEL_FAST_WRITE,
	KEEL_FAST_READ,
	KEEL_FAST_ATOMIC,
};

/**
 * struct keel_opcode - an operation
 * @types: BIT() of each enum ib_qp_type that supports it: IBTA specification,
 *	table 37, and annex A19 for flush and atomic write
 * @wc: opcode of its completion, with the number that userspace uses
 * @used: number of bytes that it uses of the union in &struct keel_uapi_send_wqe
 * @flags: KEEL_OP_*
 * @fast: enum keel_fast_kind
 * @run: does it: with the peer's responder lock for a connected QP, alone if it is
 *	KEEL_OP_LOCAL. Not called for datagrams
 */
struct keel_opcode {
	u32 types;
	u8 wc;
	u8 used;
	u8 flags;
	u8 fast;
	enum keel_xfer_result (*run)(struct keel_xfer *x);
};

const struct keel_opcode *keel_opcode_find(u32 opcode);
bool keel_opcode_clean(const struct keel_opcode *op,
		       const struct keel_uapi_send_wqe *wqe,
		       enum ib_qp_type type);

#endif /* KEEL_OPCODE_H */
