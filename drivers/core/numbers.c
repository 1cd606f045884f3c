// SPDX-License-Identifier: GPL-2.0
/*
 * Numbers in a cycle: a number is given again after all others. So the nodes of the table
 * that the next number needs are seldom those of other numbers. An application that
 * creates and destroys one object after the other would make the table allocate, and
 * free, a node for each level each time. Therefore the number that was freed last stays
 * reserved until the next one is freed: the next number is near, and finds its nodes.
 */
#include <linux/bug.h>
#include <linux/minmax.h>
#include <kunit/visibility.h>

#include "compat.h"
#include "keel_numbers.h"
#include "keel_point.h"

/**
 * keel_numbers_init() - initialize a table
 * @numbers: the table
 * @least: the least number, at least 1
 * @most: the greatest number
 */
void keel_numbers_init(struct keel_numbers *numbers, u32 least, u32 most)
{
	/* Nodes are charged to the process that needs a new one. */
	xa_init_flags(&numbers->xa, XA_FLAGS_ALLOC1 | XA_FLAGS_LOCK_IRQ |
		      XA_FLAGS_ACCOUNT);
	numbers->least = least;
	numbers->most = most;
	numbers->next = least;
	numbers->round = 0;
	numbers->kept = 0;
}
EXPORT_SYMBOL_IF_KUNIT(keel_numbers_init);

/**
 * keel_numbers_are_free() - is no number in use?
 * @numbers: the table; the number that it keeps is not in use
 *
 * Context: any.
 */
bool keel_numbers_are_free(struct keel_numbers *numbers)
{
	/* XA_FLAGS_ALLOC1 has an entry for 0. */
	XA_STATE(xas, &numbers->xa, 1);
	bool used = false;
	unsigned long flags;
	void *entry;

	xas_lock_irqsave(&xas, flags);
	xas_for_each(&xas, entry, U32_MAX) {
		used = xas.xa_index != numbers->kept;
		if (used)
			break;
	}
	xas_unlock_irqrestore(&xas, flags);
	return !used;
}
EXPORT_SYMBOL_IF_KUNIT(keel_numbers_are_free);

/**
 * keel_numbers_fini() - destroy a table
 * @numbers: the table; no number is in use
 * @what: its entries, for the warning if one is
 */
void keel_numbers_fini(struct keel_numbers *numbers, const char *what)
{
	WARN(!keel_numbers_are_free(numbers), "keel: %s left behind\n", what);
	xa_destroy(&numbers->xa);
}
EXPORT_SYMBOL_IF_KUNIT(keel_numbers_fini);

/* Free the number that was kept, if there is one. Returns whether there was. */
static bool keel_numbers_forget(struct keel_numbers *numbers)
{
	u32 kept = numbers->kept;

	numbers->kept = 0;
	if (kept)
		__xa_erase(&numbers->xa, kept);
	return kept;
}

/*
 * Position @xas at the next free number, or set its error to -EBUSY. Returns whether the
 * search wrapped around. The caller has the lock.
 */
static bool keel_number_find(struct keel_numbers *numbers, struct xa_state *xas)
{
	xas_set(xas, numbers->next);
	xas_find_marked(xas, numbers->most, XA_FREE_MARK);
	if (xas->xa_node != XAS_RESTART)
		return false;
	xas_set(xas, numbers->least);
	xas_find_marked(xas, min(numbers->next - 1, numbers->most), XA_FREE_MARK);
	if (xas->xa_node == XAS_RESTART)
		xas_set_err(xas, -EBUSY);
	return true;
}

/*
 * Give @entry the next free number. Sets the error of @xas if there is none, or if memory
 * is short: then @numbers has no new entry, and the search does not go on. The caller has
 * the lock.
 */
static void keel_number_take(struct keel_numbers *numbers, struct xa_state *xas,
			     u32 *number, void *entry)
{
	bool wrapped = keel_number_find(numbers, xas);

	if (xas_error(xas) && keel_numbers_forget(numbers))
		wrapped = keel_number_find(numbers, xas);
	if (xas_error(xas))
		return;
	/* Readers that find the entry see the number. */
	*number = xas->xa_index;
	xas_store(xas, entry ?: XA_ZERO_ENTRY);
	xas_clear_mark(xas, XA_FREE_MARK);
	if (xas_error(xas))
		return;
	numbers->next = *number + 1;
	numbers->round += wrapped;
}

/**
 * keel_number_add() - give an entry a number
 * @numbers: the table
 * @number: gets the number, before lookups find @entry
 * @round: gets how often the search has wrapped around, modulo 256; or NULL
 * @entry: the entry, or NULL to reserve the number for keel_number_publish()
 * @gfp: flags for allocations
 *
 * __xa_alloc_cyclic() would not do. It goes back to the least number if memory is short.
 * While it waits for memory, which another process can make last, others get numbers and
 * free them: then it goes back to the number that it had in mind.
 *
 * Context: any; may sleep if @gfp may.
 * Return: 0; -ENOMEM if memory is short; -EBUSY if all numbers are in use.
 */
int keel_number_add(struct keel_numbers *numbers, u32 *number, u8 *round, void *entry,
		    gfp_t gfp)
{
	XA_STATE(xas, &numbers->xa, 0);
	unsigned long flags;

	do {
		xas_lock_irqsave(&xas, flags);
		keel_number_take(numbers, &xas, number, entry);
		if (round)
			*round = numbers->round;
		xas_unlock_irqrestore(&xas, flags);
		if (xas_error(&xas) == -ENOMEM)
			keel_point("number_short");
	} while (xas_nomem(&xas, gfp));
	return xas_error(&xas);
}
EXPORT_SYMBOL_IF_KUNIT(keel_number_add);

/**
 * keel_number_reserve() - reserve a certain number
 * @numbers: the table
 * @number: the number, which keel_number_add() does not give
 * @gfp: flags for allocations
 *
 * Context: may sleep.
 * Return: 0; -ENOMEM if memory is short; -EBUSY if it is in use.
 */
int keel_number_reserve(struct keel_numbers *numbers, u32 number, gfp_t gfp)
{
	unsigned long flags;
	int ret;

	xa_lock_irqsave(&numbers->xa, flags);
	if (numbers->kept == number)
		keel_numbers_forget(numbers);
	ret = __xa_insert(&numbers->xa, number, NULL, gfp);
	xa_unlock_irqrestore(&numbers->xa, flags);
	return ret;
}
EXPORT_SYMBOL_IF_KUNIT(keel_number_reserve);

/**
 * keel_number_publish() - set the entry of a number
 * @numbers: the table
 * @number: a number in use
 * @entry: its new entry, which lookups find from now on
 *
 * Context: any. The number has a slot, so this needs no memory.
 */
void keel_number_publish(struct keel_numbers *numbers, u32 number, void *entry)
{
	unsigned long flags;

	xa_lock_irqsave(&numbers->xa, flags);
	WARN_ON(xa_is_err(__xa_store(&numbers->xa, number, entry, 0)));
	xa_unlock_irqrestore(&numbers->xa, flags);
}
EXPORT_SYMBOL_IF_KUNIT(keel_number_publish);

/**
 * keel_number_remove() - free a number
 * @numbers: the table
 * @number: a number in use
 *
 * Lookups find nothing from now on.
 *
 * Context: any.
 */
void keel_number_remove(struct keel_numbers *numbers, u32 number)
{
	unsigned long flags;

	xa_lock_irqsave(&numbers->xa, flags);
	/* NULL reserves it. */
	__xa_store(&numbers->xa, number, NULL, 0);
	keel_numbers_forget(numbers);
	numbers->kept = number;
	xa_unlock_irqrestore(&numbers->xa, flags);
}
EXPORT_SYMBOL_IF_KUNIT(keel_number_remove);
