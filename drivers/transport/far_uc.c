// SPDX-License-Identifier: GPL-2.0
/*
 * The requester of a UC QP that is connected to another host: no packet is answered.
 */
#include "keel_far.h"
#include "keel_qp.h"

/**
 * keel_far_stream() - send a message of UC, or continue to do so
 * @x: the message
 * @now: ns
 *
 * The message has ended when all packets were sent, or are dropped. If the connection ended
 * meanwhile, all are sent again.
 *
 * Context: as keel_far_send().
 * Return: likewise.
 */
enum keel_xfer_result keel_far_stream(struct keel_xfer *x, u64 now)
	__must_hold(&x->from->lock)
{
	struct keel_far *far = x->qp->far;
	enum keel_copy_result copied;
	bool more = true;
	int n;

	for (n = 0; n < KEEL_FAR_WINDOW && more && !far->whole; n++) {
		copied = keel_far_one(x, &more);
		if (copied != KEEL_COPY_DONE)
			return keel_far_uncopied(x, copied);
	}
	if (!far->whole && now < far->deadline)
		/* Preemption is disabled here: go on with it enabled in between. */
		return more ? KEEL_XFER_STOPPED : KEEL_XFER_UNDERWAY;
	return keel_far_end(x, IB_WC_SUCCESS, KEEL_WHY_NONE);
}
