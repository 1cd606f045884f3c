// SPDX-License-Identifier: GPL-2.0
/*
 * A QP tells the link whether many of its packets are under way, and whether an answer may wait
 * for the request behind it. Nothing but the time that messages take depends on it.
 */
#include <kunit/visibility.h>
#include <linux/ktime.h>

#include "keel_far.h"
#include "keel_qp.h"

/* Packets of a link that are not answered from which on it is busy, with the one to be sent. */
#define KEEL_FAR_BUSY		5
/* Answers with a request behind each until the next one waits. */
#define KEEL_FAR_PAIRS		2

static u32 keel_far_unanswered(const struct keel_far *far)
{
	return max(keel_psn_diff(far->next, far->una), 0);
}

/**
 * keel_far_tally() - tell the link how many packets are not answered
 * @far: of a QP, which has a link
 *
 * Context: the lock of the send queue is held.
 */
void keel_far_tally(struct keel_far *far)
{
	keel_load_set(&far->link->load, &far->load, keel_far_unanswered(far), far->una);
}

/**
 * keel_far_is_busy() - are several packets of the link not answered?
 * @far: of a QP, which has a link, and sends another one
 *
 * Context: the lock of the send queue is held.
 * Return: true if so, of whichever QPs.
 */
bool keel_far_is_busy(const struct keel_far *far)
{
	u32 others = keel_load_but(&far->link->load, &far->load);

	return others + keel_far_unanswered(far) + 1 >= KEEL_FAR_BUSY;
}

/**
 * keel_far_may_wait() - may the answer to a short message wait for the next request of the QP?
 * @far: of the QP
 *
 * So it is if programs answer each message by a message. A requester that sends two without a
 * message of this side in between waits for the first answer.
 *
 * Context: the lock of @far->from is held.
 * Return: true if so.
 */
bool keel_far_may_wait(struct keel_far *far)
{
	bool waits;

	/* The requester of this QP does the rest at the same time; these are only hints. */
	if (READ_ONCE(far->answered_at))
		WRITE_ONCE(far->pairs, 0);
	waits = READ_ONCE(far->pairs) >= KEEL_FAR_PAIRS;
	WRITE_ONCE(far->answered_at, ktime_get_ns());
	return waits;
}
EXPORT_SYMBOL_IF_KUNIT(keel_far_may_wait);

/**
 * keel_far_follows() - a request is sent
 * @far: of the QP
 *
 * Context: the lock of the send queue is held.
 */
void keel_far_follows(struct keel_far *far)
{
	u64 at = READ_ONCE(far->answered_at);
	u8 pairs = READ_ONCE(far->pairs);

	if (!at)
		return;
	WRITE_ONCE(far->answered_at, 0);
	if (ktime_get_ns() - at >= KEEL_PATIENT_NS)
		WRITE_ONCE(far->pairs, 0);
	else if (pairs < KEEL_FAR_PAIRS)
		WRITE_ONCE(far->pairs, pairs + 1);
}
EXPORT_SYMBOL_IF_KUNIT(keel_far_follows);
