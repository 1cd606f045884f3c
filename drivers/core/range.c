// SPDX-License-Identifier: GPL-2.0
/*
 * Range allocator: first fit over a bitmap, which takes 2 KiB for 64 MiB of
 * pages. Documentation/device-memory.rst says what other allocators lack.
 */
#include <linux/bitmap.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <kunit/visibility.h>

#include "keel_range.h"

static unsigned long keel_range_units(const struct keel_range *r, u64 len)
{
	return (len >> r->shift) + !!(len & (BIT_ULL(r->shift) - 1));
}

/**
 * keel_range_init() - initialize an allocator with everything free
 * @r: the range
 * @size: bytes; a multiple of the unit, and not 0
 * @shift: log2 of the unit
 * @gfp: for the bitmap
 *
 * Context: may sleep.
 * Return: 0; -EINVAL if @size is 0, no multiple of the unit, or more than
 * INT_MAX units; -ENOMEM.
 */
int keel_range_init(struct keel_range *r, u64 size, unsigned int shift, gfp_t gfp)
	__context_unsafe(/* no other thread has it yet */)
{
	u64 units = size >> shift;

	/* Some bitmap searches count bits in an unsigned int. */
	if (!units || units > INT_MAX || units << shift != size)
		return -EINVAL;
	r->units = units;
	r->shift = shift;
	r->map = kvcalloc(BITS_TO_LONGS(r->units), sizeof(*r->map), gfp);
	if (!r->map)
		return -ENOMEM;
	spin_lock_init(&r->lock);
	return 0;
}
EXPORT_SYMBOL_IF_KUNIT(keel_range_init);

/**
 * keel_range_fini() - free an allocator without allocated ranges
 * @r: the range; may be all zero if it was never initialized
 */
void keel_range_fini(struct keel_range *r)
	__context_unsafe(/* no other thread has it any more */)
{
	if (!r->map)
		return;
	WARN_ON(!bitmap_empty(r->map, r->units));
	kvfree(r->map);
	r->map = NULL;
}
EXPORT_SYMBOL_IF_KUNIT(keel_range_fini);

/**
 * keel_range_check() - check whether an allocation could ever succeed
 * @r: the range
 * @len: bytes
 * @log_align: the start is a multiple of 2^log_align
 *
 * Context: any.
 * Return: 0; -EINVAL if @len is 0, or if the alignment exceeds the size of the
 * whole range, so that only offset 0 could have it; -ENOMEM if @len exceeds the
 * whole range.
 */
int keel_range_check(const struct keel_range *r, u64 len, u32 log_align)
{
	if (!len)
		return -EINVAL;
	if (log_align > r->shift &&
	    log_align - r->shift > (u32)ilog2(r->units))
		return -EINVAL;
	return len > (u64)r->units << r->shift ? -ENOMEM : 0;
}
EXPORT_SYMBOL_IF_KUNIT(keel_range_check);

/**
 * keel_range_alloc() - allocate the lowest free extent that fits
 * @r: the range
 * @len: bytes; rounded up to units
 * @log_align: the start is a multiple of 2^log_align
 * @start: gets the offset of the first byte
 *
 * Context: any but interrupts.
 * Return: as keel_range_check(); or -ENOMEM if no such extent is free.
 */
int keel_range_alloc(struct keel_range *r, u64 len, u32 log_align, u64 *start)
{
	int ret = keel_range_check(r, len, log_align);
	unsigned long units, mask = 0, at;

	if (ret)
		return ret;
	if (log_align > r->shift)
		mask = BIT(log_align - r->shift) - 1;
	units = keel_range_units(r, len);

	guard(spinlock)(&r->lock);
	at = bitmap_find_next_zero_area(r->map, r->units, 0, units, mask);
	if (at >= r->units)
		return -ENOMEM;
	bitmap_set(r->map, at, units);
	*start = (u64)at << r->shift;
	return 0;
}
EXPORT_SYMBOL_IF_KUNIT(keel_range_alloc);

/* Are all of the @units units from @at on inside the range, and allocated? */
VISIBLE_IF_KUNIT bool keel_range_allocated(const struct keel_range *r,
					   unsigned long at, unsigned long units)
	__must_hold(&r->lock)
{
	return at <= r->units && units <= r->units - at &&
	       find_next_zero_bit(r->map, at + units, at) >= at + units;
}
EXPORT_SYMBOL_IF_KUNIT(keel_range_allocated);

/**
 * keel_range_free() - free an allocated extent
 * @r: the range
 * @start: the offset from keel_range_alloc()
 * @len: the same @len as there
 *
 * Context: any but interrupts. Needs no memory.
 */
void keel_range_free(struct keel_range *r, u64 start, u64 len)
{
	unsigned long at = start >> r->shift;
	unsigned long units = keel_range_units(r, len);

	guard(spinlock)(&r->lock);
	/* A double free, or never allocated: do not change the map. */
	if (WARN_ON(!keel_range_allocated(r, at, units)))
		return;
	bitmap_clear(r->map, at, units);
}
EXPORT_SYMBOL_IF_KUNIT(keel_range_free);
