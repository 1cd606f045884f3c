// SPDX-License-Identifier: GPL-2.0
/*
 * The aperture: code that all backends share. A core unit.
 */
#include <linux/err.h>
#include <linux/mm.h>
#include <kunit/visibility.h>

#include "keel_aperture.h"

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
	ap->ops->zero(ap, *start, PAGE_ALIGN(len));
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
 * @start: where the buffer starts
 * @len: its length; the last page counts as a whole
 * @off: offset in the buffer, below @len
 * @seg: gets the largest physically contiguous extent around @off that is
 *	inside the buffer's own pages; its offsets are those of the aperture
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

static bool keel_aperture_inside(const struct keel_aperture *ap, u64 off,
				 size_t len)
{
	return off <= ap->size && len <= ap->size - off;
}

/**
 * keel_aperture_read() - copy bytes out of an aperture
 * @ap: the aperture
 * @off: first offset
 * @to: destination
 * @len: bytes, any number
 *
 * Return: 0, or -EINVAL for a range that leaves the aperture; then nothing is
 * copied.
 */
int keel_aperture_read(struct keel_aperture *ap, u64 off, void *to, size_t len)
{
	if (!keel_aperture_inside(ap, off, len))
		return -EINVAL;
	ap->ops->read(ap, off, to, len);
	return 0;
}
EXPORT_SYMBOL_IF_KUNIT(keel_aperture_read);

/**
 * keel_aperture_write() - copy bytes into an aperture
 * @ap: the aperture
 * @off: first offset
 * @from: source
 * @len: bytes, any number
 *
 * Return: 0, or -EINVAL for a range that leaves the aperture; then nothing is
 * copied.
 */
int keel_aperture_write(struct keel_aperture *ap, u64 off, const void *from,
			size_t len)
{
	if (!keel_aperture_inside(ap, off, len))
		return -EINVAL;
	ap->ops->write(ap, off, from, len);
	return 0;
}
EXPORT_SYMBOL_IF_KUNIT(keel_aperture_write);

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
