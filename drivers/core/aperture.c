// SPDX-License-Identifier: GPL-2.0
/*
 * The aperture: what all backends have in common. A core unit.
 */
#include <linux/err.h>
#include <linux/mm.h>
#include <kunit/visibility.h>

#include "keel_aperture.h"

/**
 * keel_aperture_destroy() - free an aperture with its backend
 * @ap: the aperture, with nothing taken; NULL and ERR_PTR() are fine
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
 * keel_aperture_alloc() - take part of an aperture, cleared
 * @ap: the aperture
 * @len: bytes; what is taken is rounded up to pages, so that nobody else's
 *	bytes are ever in the same page
 * @log_align: @start shall be a multiple of 2^log_align
 * @start: where to store the offset
 *
 * Every byte of the pages taken is zero, whoever had them before.
 *
 * Context: may sleep, and takes as long as clearing @len takes.
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
 * keel_aperture_free() - give part of an aperture back
 * @ap: the aperture
 * @start: as keel_aperture_alloc() said
 * @len: as it was asked for
 *
 * The caller proves that no mapping and no access is left: the next owner may
 * get it at once.
 */
void keel_aperture_free(struct keel_aperture *ap, u64 start, u64 len)
{
	keel_range_free(&ap->range, start, len);
}
EXPORT_SYMBOL_IF_KUNIT(keel_aperture_free);

/**
 * keel_aperture_segment() - the stretch of a buffer that can be mapped at once
 * @ap: the aperture
 * @start: where the buffer starts
 * @len: its length; the last page counts as a whole
 * @off: offset in the buffer, below @len
 * @seg: gets the largest stretch around @off that is one in physical memory
 *	and inside the buffer's own pages; offsets are those of the aperture
 *
 * For one buffer, stretches are the same whichever offset in them is asked
 * for, and they do not overlap.
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
 * keel_aperture_read() - copy out of an aperture
 * @ap: the aperture
 * @off: first offset
 * @to: where to
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
 * keel_aperture_write() - copy into an aperture
 * @ap: the aperture
 * @off: first offset
 * @from: where from
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
 * keel_aperture_direct() - the kernel's address of a place in an aperture
 * @ap: the aperture
 * @off: the place, below the size
 * @len: gets how many bytes follow each other from there, at least one
 *
 * For those who move many bytes, and call keel_aperture_order() before they
 * read and after they wrote. The address is good for loads and stores, and as
 * long as the aperture.
 *
 * Context: any.
 * Return: the address, or NULL for an offset outside.
 */
void *keel_aperture_direct(struct keel_aperture *ap, u64 off, size_t *len)
{
	if (off >= ap->size)
		return NULL;
	return ap->ops->direct(ap, off, len);
}
EXPORT_SYMBOL_IF_KUNIT(keel_aperture_direct);
