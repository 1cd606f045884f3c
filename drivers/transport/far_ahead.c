// SPDX-License-Identifier: GPL-2.0
/*
 * The requester of a QP that is connected to another host sends packets of WQEs behind the
 * first one, while the first one waits for answers. Each WQE is executed again when it has
 * become the first one, and completes then: far_send.c. Until then nothing fails here.
 */
#include <linux/bitops.h>

#include "keel_far.h"
#include "keel_opcode.h"
#include "keel_qp.h"

/**
 * keel_far_is_ahead() - may packets of WQEs behind the first one be sent?
 * @qp: the QP, after KEEL_XFER_UNDERWAY for the first one
 *
 * Context: the lock of the send queue is held.
 * Return: true if so: all packets of the first one were sent.
 */
bool keel_far_is_ahead(const struct keel_qp *qp)
{
	const struct keel_far *far = qp->far;

	/* UC and datagrams wait for nothing. */
	return qp->type != IB_QPT_UC && !keel_qp_is_dgram(qp) &&
	       (far->at != far->index || far->whole);
}

/**
 * keel_far_next_wqe() - find the WQE behind the first one whose packets are to be sent
 * @qp: the QP; keel_far_is_ahead()
 * @posted: number of WQEs, with the first one
 * @index: gets its index
 *
 * Context: the lock of the send queue is held.
 * Return: false if there is none, or no packet may be sent now.
 */
bool keel_far_next_wqe(const struct keel_qp *qp, int posted, u32 *index)
{
	const struct keel_far *far = qp->far;

	/* The other side is not ready for the first one. */
	if (far->probes || far->hold_until || keel_far_is_full(far))
		return false;
	*index = far->whole ? far->at + 1 : far->at;
	return *index != far->index && *index - far->index < (u32)posted;
}

/* May a WQE be begun now, of which no packet was ever sent? */
static bool keel_far_may_follow(const struct keel_xfer *x, const struct keel_far *far,
				u32 index)
{
	bool reads = x->op->flags & KEEL_OP_DEPTH;

	if (index - far->index >= KEEL_FAR_WINDOW || keel_qp_state(x->qp) != IB_QPS_RTS)
		return false;
	if (x->wqe->flags & IB_SEND_FENCE && far->reads)
		return false;
	return !reads || hweight64(far->reads) < READ_ONCE(x->qp->attr.max_rd_atomic);
}

/* As keel_far_follow(), with @far->at == @index. */
static bool keel_far_push(struct keel_xfer *x, u32 index)
	__must_hold(&x->from->lock)
{
	struct keel_far *far = x->qp->far;
	bool more = true;

	while (more && far->at == index && !far->whole) {
		if (keel_far_one(x, KEEL_FAR_WINDOW, &more) != KEEL_COPY_DONE) {
			/* If it fails, it does so when it is the first one. */
			keel_fetch_discard(&x->from->fetch);
			return false;
		}
		/* Now, because the next attempt may go back. */
		if (far->at == index && (far->sent || far->whole) &&
		    !keel_far_knows(far, index))
			keel_far_note(x, index);
	}
	return far->at == index && far->whole;
}

/**
 * keel_far_follow() - send packets of a message behind the first one
 * @x: the message, as for keel_far_send()
 * @index: index of its WQE: &keel_far.at, or the one behind that
 *
 * Context: as keel_far_send().
 * Return: true if all its packets were sent.
 */
bool keel_far_follow(struct keel_xfer *x, u32 index)
{
	struct keel_far *far = x->qp->far;
	bool known = keel_far_knows(far, index), aims = far->at != index;
	u64 sent = far->sent;
	bool whole;

	/* Absent memory is requested for the first WQE. */
	if (keel_segs_may_lack(&x->from->segs) ||
	    (known ? !keel_far_has_len(x, index) : !keel_far_may_follow(x, far, index)))
		return false;
	if (aims)
		keel_far_start_wqe(far, index);
	whole = keel_far_push(x, index);
	keel_far_tally(far);
	/* Nothing was sent, and it did not go back. */
	if (aims && far->at == index && !far->sent && !far->whole) {
		far->at = index - 1;
		far->sent = sent;
		far->whole = true;
	}
	return whole;
}
