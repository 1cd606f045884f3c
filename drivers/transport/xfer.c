// SPDX-License-Identifier: GPL-2.0
/*
 * The references of a message.
 */
#include "keel_qp.h"

/**
 * keel_xfer_put() - drop what an attempt to execute a message has taken
 * @x: the message
 *
 * Context: may sleep; no lock of a responder is held.
 */
void keel_xfer_put(struct keel_xfer *x)
{
	if (x->invalidated)
		keel_invalidate_wait(x->invalidated);
	x->invalidated = NULL;
	if (x->named)
		keel_obj_put(x->named);
	x->named = NULL;
	if (x->srq)
		keel_obj_put(&x->srq->obj);
	x->srq = NULL;
	if (x->old_srq)
		keel_obj_put(&x->old_srq->obj);
	x->old_srq = NULL;
	if (x->peer)
		keel_obj_put(&x->peer->obj);
	x->peer = NULL;
}
