// SPDX-License-Identifier: GPL-2.0
/*
 * The requester of a UC QP that is connected to another host. A message ends when its packets
 * were sent. The answers only tell that the other side has executed them, or has dropped
 * them: it keeps no more than keel_far_is_full() says, and so the requester waits before it
 * sends more.
 */
#include <linux/ktime.h>

#include "keel_far.h"
#include "keel_qp.h"

/**
 * keel_far_heard() - process the answers to packets that only tell that there is room
 * @far: of a QP of type UC, or for datagrams
 * @now: ns
 *
 * Context: the lock of the send queue is held.
 */
void keel_far_heard(struct keel_far *far, u64 now)
{
	u32 una;

	scoped_guard(spinlock, &far->lock) {
		if (!far->heard)
			return;
		far->heard = false;
		una = (far->heard_psn + 1) & KEEL_PSN_MASK;
	}
	far->resends = 0;
	/* The other side may send any number. */
	if (keel_psn_diff(una, far->una) > 0 && keel_psn_diff(far->next, una) >= 0) {
		far->una = una;
		far->resend_at = now + keel_far_resend_ns(far->qp);
	}
}

/* May another packet be sent? */
static bool keel_far_stream_may(struct keel_far *far, u64 now)
{
	if (!keel_far_is_full(far))
		return true;
	if (!far->resends && now < far->resend_at)
		return false;
	/* Until there is an answer, nothing waits for one. */
	if (!far->resends)
		keel_link_event(far->link, KEEL_LINK_DOUBTED);
	far->resends = 1;
	far->una = far->next;
	return true;
}

/* Nobody has waited for answers to these, or not for this long. */
static void keel_far_stream_forget(struct keel_far *far, u64 now)
{
	if (!keel_far_is_full(far) && far->next != far->una && now >= far->resend_at)
		far->una = far->next;
}

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
{
	struct keel_far *far = x->qp->far;
	enum keel_copy_result copied;
	bool more = true;
	int n;

	keel_far_heard(far, now);
	keel_far_stream_forget(far, now);
	for (n = 0; n < KEEL_FAR_BYTES / KEEL_FRAME_DATA && more && !far->whole; n++) {
		if (!keel_far_stream_may(far, now)) {
			/* It is there, but slow. */
			keel_far_renew(far);
			return KEEL_XFER_UNDERWAY;
		}
		copied = keel_far_one(x, KEEL_FAR_WINDOW, &more);
		if (copied != KEEL_COPY_DONE)
			return keel_far_uncopied(x, copied);
	}
	if (!far->whole && now < far->deadline)
		/* Preemption is disabled here: go on with it enabled in between. */
		return more ? KEEL_XFER_STOPPED : KEEL_XFER_UNDERWAY;
	return keel_far_end(x, IB_WC_SUCCESS, KEEL_WHY_NONE);
}
