// SPDX-License-Identifier: GPL-2.0
/*
 * While the machine goes to sleep, threads of links leave all messages to processes, which are
 * frozen then: what they execute would change memory of those. The threads themselves are not
 * frozen. A lower device may be removed meanwhile, and its connections end only if somebody takes
 * the last completions.
 */
#include <kunit/visibility.h>
#include <linux/bitops.h>
#include <linux/notifier.h>
#include <linux/suspend.h>

#include "keel_conn.h"

/* Bits of keel_asleep: a program may hibernate (/dev/snapshot) and suspend in between. */
#define KEEL_ASLEEP_MEM		0
#define KEEL_ASLEEP_DISK	1

static unsigned long keel_asleep;

/**
 * keel_wire_is_asleep() - does the machine sleep, or go to sleep?
 *
 * Context: any.
 * Return: true if so.
 */
bool keel_wire_is_asleep(void)
{
	return READ_ONCE(keel_asleep);
}

/**
 * keel_wire_sleep() - the machine goes to sleep, or is awake again
 * @nb: the notifier
 * @event: PM_SUSPEND_PREPARE and so on
 * @unused: nothing
 *
 * A message that a thread executes just now ends before processes are frozen: that takes longer.
 *
 * Return: NOTIFY_OK.
 */
VISIBLE_IF_KUNIT int keel_wire_sleep(struct notifier_block *nb, unsigned long event, void *unused)
{
	switch (event) {
	case PM_SUSPEND_PREPARE:
		set_bit(KEEL_ASLEEP_MEM, &keel_asleep);
		break;
	case PM_POST_SUSPEND:
		clear_bit(KEEL_ASLEEP_MEM, &keel_asleep);
		break;
	case PM_HIBERNATION_PREPARE:
	case PM_RESTORE_PREPARE:
		set_bit(KEEL_ASLEEP_DISK, &keel_asleep);
		break;
	case PM_POST_HIBERNATION:
	case PM_POST_RESTORE:
		clear_bit(KEEL_ASLEEP_DISK, &keel_asleep);
		break;
	}
	return NOTIFY_OK;
}
EXPORT_SYMBOL_IF_KUNIT(keel_wire_sleep);

static struct notifier_block keel_asleep_nb = { .notifier_call = keel_wire_sleep };

/**
 * keel_asleep_start() - begin to notice that the machine goes to sleep
 *
 * Return: 0 or a negative errno.
 */
int keel_asleep_start(void)
{
	return register_pm_notifier(&keel_asleep_nb);
}

/**
 * keel_asleep_stop() - undo keel_asleep_start()
 */
void keel_asleep_stop(void)
{
	unregister_pm_notifier(&keel_asleep_nb);
}
