// SPDX-License-Identifier: GPL-2.0
/*
 * Range allocator: first fit over a bitmap.
 *
 * A bitmap, because it can do three things together that the kernel's other
 * range allocators cannot: any alignment (a maple tree knows none, genalloc
 * stops at 2^30), an exact answer (whatever fits is found, the whole range
 * included), and a free that needs no memory and so cannot fail; the last
 * matters because ranges come back from munmap() and exit. 64 MiB of pages
 * take 2 KiB.
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
 * keel_range_init() - a range with nothing taken
 * @r: the range
 * @size: bytes; a multiple of the unit, and not 0
 * @shift: log2 of the unit
 *
 * Context: may sleep.
 * Return: 0, -EINVAL for a @size that does not fit the unit, -ENOMEM.
 */
int keel_range_init(struct keel_range *r, u64 size, unsigned int shift)
{
	u64 units = size >> shift;

	/* Bitmap searches count bits in an unsigned int here and there. */
	if (!units || units > INT_MAX || units << shift != size)
		return -EINVAL;
	r->units = units;
	r->shift = shift;
	r->map = kvcalloc(BITS_TO_LONGS(r->units), sizeof(*r->map), GFP_KERNEL);
	if (!r->map)
		return -ENOMEM;
	mutex_init(&r->lock);
	return 0;
}
EXPORT_SYMBOL_IF_KUNIT(keel_range_init);

/**
 * keel_range_fini() - take a range down; nothing in it may be taken
 * @r: the range; may be all zero, if it was never set up
 */
void keel_range_fini(struct keel_range *r)
{
	if (!r->map)
		return;
	WARN_ON(!bitmap_empty(r->map, r->units));
	mutex_destroy(&r->lock);
	kvfree(r->map);
	r->map = NULL;
}
EXPORT_SYMBOL_IF_KUNIT(keel_range_fini);

/**
 * keel_range_check() - could a stretch ever be taken?
 * @r: the range
 * @len: bytes
 * @log_align: the start shall be a multiple of 2^log_align
 *
 * Context: any.
 * Return: 0; -EINVAL for a @len of 0, or an alignment coarser than the whole
 * range, which no stretch but one at 0 could ever have; -ENOMEM for a @len
 * beyond the whole range.
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
 * keel_range_alloc() - take the lowest free stretch that fits
 * @r: the range
 * @len: bytes; rounded up to units
 * @log_align: the start shall be a multiple of 2^log_align
 * @start: where to store the first byte's offset
 *
 * Context: may sleep.
 * Return: 0; as keel_range_check(); or -ENOMEM when no such stretch is free.
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

	guard(mutex)(&r->lock);
	at = bitmap_find_next_zero_area(r->map, r->units, 0, units, mask);
	if (at >= r->units)
		return -ENOMEM;
	bitmap_set(r->map, at, units);
	*start = (u64)at << r->shift;
	return 0;
}
EXPORT_SYMBOL_IF_KUNIT(keel_range_alloc);

/**
 * keel_range_free() - give a stretch back
 * @r: the range
 * @start: as keel_range_alloc() said
 * @len: as it was asked for
 *
 * Context: may sleep. Needs no memory.
 */
void keel_range_free(struct keel_range *r, u64 start, u64 len)
{
	unsigned long at = start >> r->shift;
	unsigned long units = keel_range_units(r, len);

	guard(mutex)(&r->lock);
	/* Freed twice, or never taken: leave the map alone. */
	if (WARN_ON(at > r->units || units > r->units - at ||
		    find_next_zero_bit(r->map, at + units, at) < at + units))
		return;
	bitmap_clear(r->map, at, units);
}
EXPORT_SYMBOL_IF_KUNIT(keel_range_free);
