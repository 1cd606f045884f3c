// SPDX-License-Identifier: GPL-2.0
/*
 * Short packets, which the thread of the link executes itself, and short messages that an answer
 * completes. To wake the worker of the process would take far longer, and cost more, than they do.
 * So it is for one packet at a time, of at most KEEL_FRAME_DATA bytes, as long as the link is not
 * busy (load.c) or the packet comes again, nothing else runs the queue, and all memory is always
 * there. The worker does the rest. The thread works for all processes, so it waits for none.
 */
#include <kunit/visibility.h>
#include <linux/ktime.h>

#include "keel_far.h"
#include "keel_point.h"
#include "keel_qp.h"
#include "keel_sq.h"

/* How long a send queue is run for an answer. */
#define KEEL_FAR_NOW_NS		(50 * NSEC_PER_USEC)

/* Tests set it: their thread may lose the processor for longer. */
VISIBLE_IF_KUNIT u64 keel_far_now_ns = KEEL_FAR_NOW_NS;
EXPORT_SYMBOL_IF_KUNIT(keel_far_now_ns);

/* How many packets are executed for one that comes again. */
#define KEEL_FAR_NOW_LATE	4

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

/* May the thread run the QP? Not if memory is behind a BAR, or of a frozen process. */
static bool keel_far_is_ours(const struct keel_qp *qp)
{
	return !qp->kdev->bar && !keel_wire_is_asleep() && keel_far_has_owner(qp);
}

/*
 * Execute the first packet, or some, because a late one may be behind others that were executed
 * before. Return: as keel_far_run_once().
 */
static bool keel_far_try_now(struct keel_far *far, bool late)
{
	u32 n = late ? KEEL_FAR_NOW_LATE : 1;

	while (n--)
		if (keel_far_run_once(far, late))
			return true;
	return false;
}

/**
 * keel_far_arrived() - have a packet executed that was put into &keel_far.requests
 * @far: of a QP; the caller has a reference on it
 * @link: the link of the thread
 * @frame: its header
 * @late: it is dropped, as one is that has come before, or was executed before: the process may
 *	be stopped, or have no processor, and those that send to it are not to fail because the
 *	link is busy
 *
 * Context: may sleep; thread of a link. Waits for nobody.
 */
void keel_far_arrived(struct keel_far *far, const struct keel_link *link,
		      const struct keel_frame *frame, bool late)
{
	bool type = far->qp->type == IB_QPT_RC || far->qp->type == IB_QPT_UC;
	/* Packets of UC do not come again, whatever is dropped. */
	bool left = READ_ONCE(link->busy) && (!late || far->qp->type == IB_QPT_UC);

	/* The packet may not be the first one, which keel_far_run_once() looks at again. */
	if (left || !type || !keel_far_is_short(frame) || !keel_far_is_ours(far->qp) ||
	    !keel_far_try_now(far, late))
		keel_far_resume(far);
}

/**
 * keel_far_is_answered() - run the send queue of a QP that was given an answer
 * @qp: the QP; the caller has a reference
 * @link: the link of the thread
 * @frame: its header
 *
 * Context: may sleep; thread of a link. Waits for nobody.
 */
void keel_far_is_answered(struct keel_qp *qp, const struct keel_link *link,
			  const struct keel_frame *frame)
{
	const struct keel_turn turn = {
		.brief = true,
		.until = ktime_get_ns() + keel_far_now_ns,
	};

	if (!READ_ONCE(link->busy) && qp->type == IB_QPT_RC && !READ_ONCE(qp->far->lengthy) &&
	    le32_to_cpu(frame->len) <= KEEL_FRAME_DATA && keel_far_is_ours(qp))
		keel_sq_run(qp, &turn);
	else
		keel_qp_schedule_alive(qp);
}
