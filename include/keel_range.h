/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Range allocator of the aperture, and of a page of it that small buffers share: equal
 * units, any power-of-two alignment.
 * A core unit: it accesses no memory except its own bitmap.
 */
#ifndef KEEL_RANGE_H
#define KEEL_RANGE_H

#include <linux/gfp_types.h>
#include <linux/kconfig.h>
#include <linux/spinlock.h>
#include <linux/types.h>

#include "compat.h"

/**
 * struct keel_range - allocated ranges of an aperture, or of a page
 * @lock: protects @map. A spinlock: its holder is not preempted, because all
 *	processes need that of an aperture.
 * @map: one bit for each unit, set if it is allocated
 * @units: number of units
 * @shift: log2 of the bytes in a unit
 */
struct keel_range {
	spinlock_t lock;
	unsigned long *map __guarded_by(&lock) __pt_guarded_by(&lock);
	unsigned long units;
	unsigned int shift;
};

int keel_range_init(struct keel_range *r, u64 size, unsigned int shift, gfp_t gfp);
void keel_range_fini(struct keel_range *r);
int keel_range_check(const struct keel_range *r, u64 len, u32 log_align);
int keel_range_alloc(struct keel_range *r, u64 len, u32 log_align, u64 *start);
void keel_range_free(struct keel_range *r, u64 start, u64 len);
#if IS_ENABLED(CONFIG_KUNIT)
bool keel_range_allocated(const struct keel_range *r, unsigned long at,
			  unsigned long units)
	__must_hold(&r->lock);
#endif

#endif /* KEEL_RANGE_H */
