// SPDX-License-Identifier: GPL-2.0
/*
 * The queue of those that wait for a link. One of each user is woken in turn, so that a user
 * with many QPs does not hold up the others. Those of one user are woken in the order
 * in which they came. All functions are O(log n) in the number of users that wait.
 *
 * The first of each user is in &keel_turns.users and in &keel_turns.order. The others are in
 * a ring with it.
 */
#include <kunit/visibility.h>

#include "keel_wire.h"

/**
 * keel_turns_init() - nothing waits
 * @turns: not yet initialized
 */
void keel_turns_init(struct keel_turns *turns)
{
	turns->users = RB_ROOT;
	INIT_LIST_HEAD(&turns->order);
}
EXPORT_SYMBOL_IF_KUNIT(keel_turns_init);

/**
 * keel_wait_init() - initialize something that may wait for a link
 * @wait: not yet initialized
 * @qp: for &keel_wire_ops.wake
 * @user: in whose turn it is woken, or NULL: the kernel; exists as long as it waits
 */
void keel_wait_init(struct keel_link_wait *wait, void *qp, const struct keel_user *user)
{
	wait->qp = qp;
	wait->user = user;
	wait->chunk = false;
	wait->woken = false;
	wait->waits = false;
	INIT_LIST_HEAD(&wait->node);
	INIT_LIST_HEAD(&wait->turn);
}
EXPORT_SYMBOL_IF_KUNIT(keel_wait_init);

static int keel_turns_compare(struct rb_node *a, const struct rb_node *b)
{
	const struct keel_user *left = rb_entry(a, struct keel_link_wait, rb)->user;
	const struct keel_user *right = rb_entry(b, struct keel_link_wait, rb)->user;

	return left < right ? -1 : left > right;
}

/**
 * keel_turns_add() - put something behind all others of its user
 * @turns: what waits
 * @wait: does not wait yet
 *
 * A user of which nothing waits is the last one in turn.
 *
 * Context: any but interrupts; the lock of the link is held.
 */
void keel_turns_add(struct keel_turns *turns, struct keel_link_wait *wait)
{
	struct rb_node *first = rb_find_add(&wait->rb, &turns->users, keel_turns_compare);

	wait->waits = true;
	if (first)
		/* In a ring, the place before the first is the last. */
		list_add_tail(&wait->node, &rb_entry(first, struct keel_link_wait, rb)->node);
	else
		list_add_tail(&wait->turn, &turns->order);
}
EXPORT_SYMBOL_IF_KUNIT(keel_turns_add);

/**
 * keel_turns_del() - take something out
 * @turns: what waits
 * @wait: waits or not
 *
 * The next one of its user keeps the turn.
 *
 * Context: as keel_turns_add().
 */
void keel_turns_del(struct keel_turns *turns, struct keel_link_wait *wait)
{
	struct keel_link_wait *next;

	if (!wait->waits)
		return;
	wait->waits = false;
	if (!list_empty(&wait->turn)) {
		if (list_empty(&wait->node)) {
			list_del_init(&wait->turn);
			rb_erase(&wait->rb, &turns->users);
		} else {
			next = list_next_entry(wait, node);
			list_replace_init(&wait->turn, &next->turn);
			rb_replace_node(&wait->rb, &next->rb, &turns->users);
		}
	}
	list_del_init(&wait->node);
}
EXPORT_SYMBOL_IF_KUNIT(keel_turns_del);

/**
 * keel_turns_next() - take out the one whose turn it is
 * @turns: what waits
 *
 * Context: as keel_turns_add().
 * Return: it; or NULL if nothing waits. It is the turn of the next user then.
 */
struct keel_link_wait *keel_turns_next(struct keel_turns *turns)
{
	struct keel_link_wait *wait;

	wait = list_first_entry_or_null(&turns->order, struct keel_link_wait, turn);
	if (!wait)
		return NULL;
	/* The next one of the same user gets the last turn. */
	list_move_tail(&wait->turn, &turns->order);
	keel_turns_del(turns, wait);
	return wait;
}
EXPORT_SYMBOL_IF_KUNIT(keel_turns_next);
