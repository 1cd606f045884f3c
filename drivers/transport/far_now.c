// SPDX-License-Identifier: GPL-2.0
/*
 * Short packets, which the thread of the link executes itself, and short messages that an answer
 * completes. To wake the worker of the process would take far longer, and cost more, than they do.
 * So it is for one packet at a time, of at most KEEL_FRAME_DATA bytes, as long as nothing else
 * runs the queue, and all memory is there. The worker does the rest.
 */
#include <kunit/visibility.h>
#include <linux/ktime.h>

#include "keel_far.h"
#include "keel_point.h"
#include "keel_qp.h"
#include "keel_sq.h"

/* How long a send queue is run for an answer. */
#define KEEL_FAR_NOW_NS		(50 * NSEC_PER_USEC)

/*
 * Is there a process to which the QP belongs? The workqueue runs those of kernel consumers, and of
 * dead processes.
 */
VISIBLE_IF_KUNIT bool keel_far_has_owner(const struct keel_qp *qp)
{
	keel_stub(keel_far_has_owner, qp);
	return qp->user && !keel_qp_is_orphan(qp);
}
EXPORT_SYMBOL_IF_KUNIT(keel_far_has_owner);

/*
 * Is a packet a whole message that is soon executed? To invalidate a key waits for those that use
 * it. And the worker has to get memory for long messages: keel_far_grow().
 */
static bool keel_far_is_short(const struct keel_frame *frame)
{
	const u8 whole = KEEL_FRAME_F_FIRST | KEEL_FRAME_F_LAST;

	if ((frame->flags & whole) != whole)
		return false;
	switch (frame->request.opcode) {
	case IB_WR_SEND:
	case IB_WR_SEND_WITH_IMM:
	case IB_WR_RDMA_WRITE:
	case IB_WR_RDMA_WRITE_WITH_IMM:
		return le32_to_cpu(frame->len) <= KEEL_FRAME_DATA;
	case IB_WR_RDMA_READ:
		return le32_to_cpu(frame->request.bytes) <= KEEL_FRAME_DATA;
	case IB_WR_ATOMIC_CMP_AND_SWP:
	case IB_WR_ATOMIC_FETCH_AND_ADD:
	case IB_WR_ATOMIC_WRITE:
		return true;
	default:
		return false;
	}
}

/**
 * keel_far_arrived() - have a packet executed that was put into &keel_far.requests
 * @far: of a QP; the caller has a reference on it
 * @frame: its header
 *
 * Context: may sleep; thread of a link. Waits for nobody.
 */
void keel_far_arrived(struct keel_far *far, const struct keel_frame *frame)
{
	if (!keel_far_is_short(frame) || !keel_far_has_owner(far->qp) || !keel_far_run_once(far))
		keel_far_resume(far);
}

/**
 * keel_far_is_answered() - run the send queue of a QP that was given an answer
 * @qp: the QP; the caller has a reference
 * @frame: its header
 *
 * Context: may sleep; thread of a link. Waits for nobody.
 */
void keel_far_is_answered(struct keel_qp *qp, const struct keel_frame *frame)
{
	const struct keel_turn turn = {
		.brief = true,
		.until = ktime_get_ns() + KEEL_FAR_NOW_NS,
	};

	if (qp->type != IB_QPT_UC && !READ_ONCE(qp->far->lengthy) &&
	    le32_to_cpu(frame->len) <= KEEL_FRAME_DATA && keel_far_has_owner(qp))
		keel_sq_run(qp, &turn);
	else
		keel_qp_schedule_alive(qp);
}
