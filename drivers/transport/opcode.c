// SPDX-License-Identifier: GPL-2.0
/*
 * Members of a send work request that userspace must leave 0. None of them could
 * ever be given a meaning if it were not checked from the first day.
 */
#include <linux/nospec.h>
#include <linux/string.h>

#include "keel_qp.h"

#define KEEL_USED(_part, _last)						\
	(offsetofend(struct keel_uapi_send_wqe, _part._last) -		\
	 offsetof(struct keel_uapi_send_wqe, reserved))

/**
 * struct keel_wqe_form - what an opcode makes of an entry
 * @used: bytes of the union that have a meaning; a type of QP that is told an
 *	address each time has @ud there
 * @imm: @imm has a meaning
 * @bare: no data: no SGEs, nothing inline
 */
struct keel_wqe_form {
	u8 used;
	bool imm;
	bool bare;
};

static const struct keel_wqe_form keel_wqe_forms[] = {
	[IB_WR_RDMA_WRITE]	= { .used = KEEL_USED(rdma, rkey) },
	[IB_WR_RDMA_WRITE_WITH_IMM] = { .used = KEEL_USED(rdma, rkey),
					.imm = true },
	[IB_WR_SEND]		= { },
	[IB_WR_SEND_WITH_IMM]	= { .imm = true },
	[IB_WR_RDMA_READ]	= { .used = KEEL_USED(rdma, rkey) },
	[IB_WR_ATOMIC_CMP_AND_SWP] = { .used = KEEL_USED(atomic, rkey) },
	[IB_WR_ATOMIC_FETCH_AND_ADD] = { .used = KEEL_USED(atomic, rkey) },
	[IB_WR_LOCAL_INV]	= { .imm = true, .bare = true },
	[IB_WR_BIND_MW]		= { .used = KEEL_USED(bind, flags),
				    .bare = true },
	[IB_WR_SEND_WITH_INV]	= { .imm = true },
	[IB_WR_FLUSH]		= { .used = KEEL_USED(flush, level) },
	[IB_WR_ATOMIC_WRITE]	= { .used = KEEL_USED(rdma, rkey) },
};

/**
 * keel_wqe_clean() - is everything 0 that has no meaning?
 * @wqe: copy of an entry of a program's send queue
 * @type: type of the QP, which can do the opcode
 *
 * Context: any.
 * Return: true if so.
 */
bool keel_wqe_clean(const struct keel_uapi_send_wqe *wqe, enum ib_qp_type type)
{
	struct keel_wqe_form form = {};
	u32 flags = IB_SEND_FENCE | IB_SEND_SIGNALED | IB_SEND_SOLICITED;

	if (wqe->opcode < ARRAY_SIZE(keel_wqe_forms))
		form = keel_wqe_forms[array_index_nospec(wqe->opcode,
					ARRAY_SIZE(keel_wqe_forms))];
	if (type == IB_QPT_UD)
		form.used = KEEL_USED(ud, qkey);
	if (!form.bare)
		flags |= IB_SEND_INLINE;
	if (wqe->flags & ~flags || (form.bare && wqe->num_sge) ||
	    (wqe->inline_len && !(wqe->flags & IB_SEND_INLINE)) ||
	    (wqe->imm && !form.imm) ||
	    (wqe->srqn && type != IB_QPT_XRC_INI))
		return false;
	return !memchr_inv(wqe->reserved + form.used, 0,
			   sizeof(wqe->reserved) - form.used);
}
