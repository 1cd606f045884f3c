/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What one operation of a send queue has that others have not.
 */
#ifndef KEEL_OPCODE_H
#define KEEL_OPCODE_H

#include <linux/bits.h>

#include "keel_xfer.h"

/* &keel_uapi_send_wqe.imm has a meaning. */
#define KEEL_OP_IMM	BIT(0)
/* Neither SGEs nor inline data. */
#define KEEL_OP_BARE	BIT(1)
/* No peer hears of it. */
#define KEEL_OP_LOCAL	BIT(2)
/* Names a structure of the kernel: consumers in the kernel only. */
#define KEEL_OP_KERNEL	BIT(3)
/* Writes to the memory of the requester. */
#define KEEL_OP_READ	BIT(4)
/* Both sides agree on a number of them: initiator depth. */
#define KEEL_OP_DEPTH	BIT(5)
/* Of 8 bytes. */
#define KEEL_OP_ATOMIC	BIT(6)

/**
 * struct keel_opcode - an operation
 * @types: BIT() of each enum ib_qp_type that can do it: InfiniBand specification,
 *	table 37, and annex A19 for flush and atomic write
 * @wc: opcode of its completion, as userspace numbers them
 * @used: bytes of the union in &struct keel_uapi_send_wqe that have a meaning
 * @flags: KEEL_OP_*
 * @deliver: what the responder does, but for datagrams; NULL: KEEL_OP_LOCAL
 */
struct keel_opcode {
	u32 types;
	u8 wc;
	u8 used;
	u8 flags;
	enum keel_verdict (*deliver)(struct keel_xfer *x);
};

const struct keel_opcode *keel_opcode_find(u32 opcode);
bool keel_opcode_clean(const struct keel_opcode *op,
		       const struct keel_uapi_send_wqe *wqe,
		       enum ib_qp_type type);

#endif /* KEEL_OPCODE_H */
