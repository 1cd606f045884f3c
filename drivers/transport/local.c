// SPDX-License-Identifier: GPL-2.0
/*
 * Operations that involve no peer: bind, local invalidate and fast
 * registration.
 */
#include "keel_mr.h"
#include "keel_qp.h"

/**
 * keel_local_bind() - IB_WR_BIND_MW
 * @x: the work request
 *
 * Context: may sleep; the send queue's lock is held, and no reference on a key.
 * Return: KEEL_XFER_DONE.
 */
enum keel_xfer_result keel_local_bind(struct keel_xfer *x)
{
	const struct keel_scope scope = keel_qp_scope(x->qp, x->qp->domain);

	x->status = keel_wqe_bind(&scope, x->wqe, &x->why);
	return KEEL_XFER_DONE;
}

/**
 * keel_local_invalidate() - IB_WR_LOCAL_INV
 * @x: the work request
 *
 * Context: as keel_local_bind().
 * Return: KEEL_XFER_DONE.
 */
enum keel_xfer_result keel_local_invalidate(struct keel_xfer *x)
{
	const struct keel_scope scope = keel_qp_scope(x->qp, x->qp->domain);

	x->status = keel_wqe_invalidate(&scope, x->wqe->imm, &x->why);
	return KEEL_XFER_DONE;
}

/**
 * keel_local_reg_mr() - IB_WR_REG_MR
 * @x: the work request, of a kernel consumer: it names a region by its address
 *
 * Context: as keel_local_bind().
 * Return: KEEL_XFER_DONE.
 */
enum keel_xfer_result keel_local_reg_mr(struct keel_xfer *x)
{
	const struct keel_uapi_send_wqe *wqe = x->wqe;

	x->status = keel_mr_fast_reg(x->qp->kdev, x->qp->domain,
				     (void *)(uintptr_t)wqe->bind.addr,
				     wqe->bind.new_rkey, wqe->bind.access,
				     &x->why);
	return KEEL_XFER_DONE;
}
