// SPDX-License-Identifier: GPL-2.0
/*
 * The operations of send queues, in one table: the types of QPs that support an
 * operation, the members of a WQE that it uses, and its function. A new
 * operation needs a row here, and a function of the responder (resp.c,
 * resp_atomic.c) or a local one (local.c). It also needs a case in the provider, and one in
 * post_kernel.c if kernel consumers may post it.
 */
#include <linux/nospec.h>
#include <linux/string.h>

#include "keel_opcode.h"
#include "keel_qp.h"

#define KEEL_T(_type)	BIT(IB_QPT_##_type)
#define KEEL_T_RC	(KEEL_T(RC) | KEEL_T(XRC_INI))
#define KEEL_T_CONN	(KEEL_T_RC | KEEL_T(UC))
#define KEEL_T_ALL	(KEEL_T_CONN | KEEL_T(UD) | KEEL_T(GSI))

#define KEEL_USED(_part, _last)						\
	(offsetofend(struct keel_uapi_send_wqe, _part._last) -		\
	 offsetof(struct keel_uapi_send_wqe, reserved))

static const struct keel_opcode keel_opcodes[] = {
	[IB_WR_RDMA_WRITE] = {
		.types = KEEL_T_CONN,
		.wc = IB_WC_RDMA_WRITE,
		.used = KEEL_USED(rdma, rkey),
		.fast = KEEL_FAST_WRITE,
		.run = keel_resp_write,
	},
	[IB_WR_RDMA_WRITE_WITH_IMM] = {
		.types = KEEL_T_CONN,
		.wc = IB_WC_RDMA_WRITE,
		.used = KEEL_USED(rdma, rkey),
		.flags = KEEL_OP_IMM,
		.fast = KEEL_FAST_WRITE,
		.run = keel_resp_write,
	},
	[IB_WR_SEND] = {
		.types = KEEL_T_ALL,
		.wc = IB_WC_SEND,
		.fast = KEEL_FAST_SEND,
		.run = keel_resp_send,
	},
	[IB_WR_SEND_WITH_IMM] = {
		.types = KEEL_T_ALL,
		.wc = IB_WC_SEND,
		.flags = KEEL_OP_IMM,
		.fast = KEEL_FAST_SEND,
		.run = keel_resp_send,
	},
	[IB_WR_SEND_WITH_INV] = {
		.types = KEEL_T_RC,
		.wc = IB_WC_SEND,
		.flags = KEEL_OP_IMM,
		.run = keel_resp_send,
	},
	[IB_WR_RDMA_READ] = {
		.types = KEEL_T_RC,
		.wc = IB_WC_RDMA_READ,
		.used = KEEL_USED(rdma, rkey),
		.flags = KEEL_OP_READ | KEEL_OP_DEPTH,
		.fast = KEEL_FAST_READ,
		.run = keel_resp_read,
	},
	[IB_WR_ATOMIC_CMP_AND_SWP] = {
		.types = KEEL_T_RC,
		.wc = IB_WC_COMP_SWAP,
		.used = KEEL_USED(atomic, rkey),
		.flags = KEEL_OP_READ | KEEL_OP_DEPTH | KEEL_OP_ATOMIC,
		.fast = KEEL_FAST_ATOMIC,
		.run = keel_resp_atomic,
	},
	[IB_WR_ATOMIC_FETCH_AND_ADD] = {
		.types = KEEL_T_RC,
		.wc = IB_WC_FETCH_ADD,
		.used = KEEL_USED(atomic, rkey),
		.flags = KEEL_OP_READ | KEEL_OP_DEPTH | KEEL_OP_ATOMIC,
		.fast = KEEL_FAST_ATOMIC,
		.run = keel_resp_atomic,
	},
	[IB_WR_ATOMIC_WRITE] = {
		.types = KEEL_T_RC,
		.wc = IB_WC_ATOMIC_WRITE,
		.used = KEEL_USED(rdma, rkey),
		.flags = KEEL_OP_DEPTH | KEEL_OP_ATOMIC,
		.run = keel_resp_atomic_write,
	},
	[IB_WR_FLUSH] = {
		.types = KEEL_T_RC,
		.wc = IB_WC_FLUSH,
		.used = KEEL_USED(flush, level),
		.flags = KEEL_OP_DEPTH,
		.run = keel_resp_flush,
	},
	[IB_WR_BIND_MW] = {
		.types = KEEL_T_CONN,
		.wc = IB_UVERBS_WC_BIND_MW,
		.used = KEEL_USED(bind, flags),
		.flags = KEEL_OP_BARE | KEEL_OP_LOCAL,
		.run = keel_local_bind,
	},
	[IB_WR_LOCAL_INV] = {
		.types = KEEL_T_CONN,
		.wc = IB_WC_LOCAL_INV,
		.flags = KEEL_OP_IMM | KEEL_OP_BARE | KEEL_OP_LOCAL,
		.run = keel_local_invalidate,
	},
	[IB_WR_REG_MR] = {
		.types = KEEL_T_RC,
		.wc = IB_WC_REG_MR,
		.flags = KEEL_OP_LOCAL | KEEL_OP_KERNEL,
		.run = keel_local_reg_mr,
	},
};

/**
 * keel_opcode_find() - look up an operation
 * @opcode: enum ib_wr_opcode, or any other number
 *
 * Context: any.
 * Return: the operation, or NULL if there is none.
 */
const struct keel_opcode *keel_opcode_find(u32 opcode)
{
	if (opcode >= ARRAY_SIZE(keel_opcodes))
		return NULL;
	opcode = array_index_nospec(opcode, ARRAY_SIZE(keel_opcodes));
	return keel_opcodes[opcode].types ? &keel_opcodes[opcode] : NULL;
}

/* Are bytes of the union, up to its end, all 0? Faster than memchr_inv(), if it can be. */
static __always_inline bool keel_opcode_zero(const u8 *at, u32 len)
{
	u64 bits = 0;

	if (len % sizeof(u32))
		return !memchr_inv(at, 0, len);
	if (len % sizeof(u64)) {
		bits = *(const u32 *)at;
		at += sizeof(u32);
		len -= sizeof(u32);
	}
	for (; len; len -= sizeof(u64), at += sizeof(u64))
		bits |= *(const u64 *)at;
	return !bits;
}

/**
 * keel_opcode_clean() - are all unused members of a WQE 0?
 * @op: the operation
 * @wqe: copy of a WQE of a user process that requests it
 * @type: type of the QP, which supports it
 *
 * Only members that were always checked can be given a meaning later.
 *
 * Context: any.
 * Return: true if so.
 */
bool keel_opcode_clean(const struct keel_opcode *op,
		       const struct keel_uapi_send_wqe *wqe,
		       enum ib_qp_type type)
{
	u32 flags = IB_SEND_FENCE | IB_SEND_SIGNALED | IB_SEND_SOLICITED;
	bool bare = op->flags & KEEL_OP_BARE;
	/* UD has the address of each message there. */
	u32 used = type == IB_QPT_UD ? KEEL_USED(ud, qkey) : op->used;

	if (!bare)
		flags |= IB_SEND_INLINE;
	if (wqe->flags & ~flags || (bare && wqe->num_sge) ||
	    (wqe->inline_len && !(wqe->flags & IB_SEND_INLINE)) ||
	    (wqe->imm && !(op->flags & KEEL_OP_IMM)) ||
	    (wqe->srqn && type != IB_QPT_XRC_INI))
		return false;
	return keel_opcode_zero(wqe->reserved + used, sizeof(wqe->reserved) - used);
}
