// SPDX-License-Identifier: GPL-2.0
/*
 * The aperture: code that all backends share. A core unit.
 */
#include <linux/err.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/sizes.h>
#include <linux/string.h>
#include <kunit/visibility.h>

#include "keel_aperture.h"

/* Bytes that are cleared between two calls of cond_resched(). */
#define KEEL_APERTURE_STEP	SZ_64K

/**
 * keel_aperture_destroy() - free an aperture with its backend
 * @ap: the aperture, without allocated ranges; NULL and ERR_PTR() are ignored
 */
void keel_aperture_destroy(struct keel_aperture *ap)
{
	if (IS_ERR_OR_NULL(ap))
		return;
	keel_range_fini(&ap->range);
	ap->ops->destroy(ap);
}
EXPORT_SYMBOL_IF_KUNIT(keel_aperture_destroy);

/**
 * keel_aperture_zero() - clear bytes of an aperture
 * @ap: the aperture
 * @off: offset of the first one
 * @len: their number; all are below the size
 *
 * Context: may sleep.
 */
void keel_aperture_zero(struct keel_aperture *ap, u64 off, u64 len)
{
	size_t n;
	void *p;

	for (; len; off += n, len -= n) {
		p = ap->ops->direct(ap, off, &n);
		n = min3((u64)n, len, (u64)KEEL_APERTURE_STEP);
		memset(p, 0, n);
		keel_aperture_order(ap);
		cond_resched();
	}
}

/**
 * keel_aperture_alloc() - allocate a cleared range of an aperture
 * @ap: the aperture
 * @len: bytes; rounded up to pages, so that two ranges never share a page
 * @log_align: @start is a multiple of 2^log_align
 * @start: gets the offset
 *
 * Every byte of the allocated pages is zero.
 *
 * Context: may sleep. Clearing takes time in proportion to @len.
 * Return: as keel_range_alloc().
 */
int keel_aperture_alloc(struct keel_aperture *ap, u64 len, u32 log_align,
			u64 *start)
{
	int ret = keel_range_alloc(&ap->range, len, log_align, start);

	if (ret)
		return ret;
	keel_aperture_zero(ap, *start, PAGE_ALIGN(len));
	return 0;
}
EXPORT_SYMBOL_IF_KUNIT(keel_aperture_alloc);

/**
 * keel_aperture_free() - free a range of an aperture
 * @ap: the aperture
 * @start: the offset from keel_aperture_alloc()
 * @len: the same @len as there
 *
 * The caller ensures that no mapping and no access is left: the next owner may
 * allocate the range at once.
 */
void keel_aperture_free(struct keel_aperture *ap, u64 start, u64 len)
{
	keel_range_free(&ap->range, start, len);
}
EXPORT_SYMBOL_IF_KUNIT(keel_aperture_free);

/**
 * keel_aperture_segment() - find the contiguous extent around an offset
 * @ap: the aperture
 * @start: where the first page of the buffer starts
 * @len: from there to the end of the buffer; the last page counts as a whole
 * @off: offset from @start, below @len
 * @seg: gets the largest physically contiguous extent around @off that is
 *	inside the buffer's pages; its offsets are those of the aperture
 *
 * Extents of one buffer do not overlap. Every offset in an extent yields that
 * same extent.
 */
void keel_aperture_segment(struct keel_aperture *ap, u64 start, u64 len,
			   u64 off, struct keel_aperture_seg *seg)
{
	u64 end = start + PAGE_ALIGN(len);

	ap->ops->segment(ap, start + off, seg);
	if (seg->start < start) {
		seg->pfn += (start - seg->start) >> PAGE_SHIFT;
		seg->len -= start - seg->start;
		seg->start = start;
	}
	if (seg->len > end - seg->start)
		seg->len = end - seg->start;
}
EXPORT_SYMBOL_IF_KUNIT(keel_aperture_segment);

/**
 * keel_aperture_direct() - get the kernel address of an offset in an aperture
 * @ap: the aperture
 * @off: the offset
 * @len: gets the number of bytes that are contiguous from there, at least one
 *
 * For callers that move many bytes. They call keel_aperture_order() before they
 * read and after they write. The address is valid for loads and stores as long
 * as the aperture exists.
 *
 * Context: any.
 * Return: the address, or NULL if @off is not below the size.
 */
void *keel_aperture_direct(struct keel_aperture *ap, u64 off, size_t *len)
{
	if (off >= ap->size)
		return NULL;
	return ap->ops->direct(ap, off, len);
}
EXPORT_SYMBOL_IF_KUNIT(keel_aperture_direct);
