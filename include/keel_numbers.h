/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Numbers of objects, QPs, SRQs and keys. A core unit: it knows none of them.
 */
#ifndef KEEL_NUMBERS_H
#define KEEL_NUMBERS_H

#include <linux/gfp.h>
#include <linux/types.h>
#include <linux/xarray.h>

/**
 * struct keel_numbers - a table of entries by number
 * @xa: the entries; a number that is reserved has none. Its lock protects the rest.
 * @least: the least number, at least 1
 * @most: the greatest number
 * @next: start of the search for the next number
 * @round: how often the search wrapped around
 * @kept: the number that was freed last: its nodes stay; or 0
 */
struct keel_numbers {
	struct xarray xa;
	u32 least;
	u32 most;
	u32 next;
	u8 round;
	u32 kept;
};

void keel_numbers_init(struct keel_numbers *numbers, u32 least, u32 most);
void keel_numbers_fini(struct keel_numbers *numbers, const char *what);
bool keel_numbers_are_free(struct keel_numbers *numbers);
int keel_number_add(struct keel_numbers *numbers, u32 *number, u8 *round, void *entry,
		    gfp_t gfp);
int keel_number_reserve(struct keel_numbers *numbers, u32 number, gfp_t gfp);
void keel_number_publish(struct keel_numbers *numbers, u32 number, void *entry);
void keel_number_remove(struct keel_numbers *numbers, u32 number);

/**
 * keel_number_load() - look up the entry of a number
 * @numbers: the table
 * @number: any number
 *
 * Context: RCU read side, or the caller keeps the entry.
 * Return: the entry; or NULL if the number is free or reserved.
 */
static __always_inline void *keel_number_load(struct keel_numbers *numbers, u32 number)
{
	return xa_load(&numbers->xa, number);
}

#endif /* KEEL_NUMBERS_H */
