// SPDX-License-Identifier: GPL-2.0
/*
 * The segment walker. Whatever memory is made of, the walker asks for the next
 * piece of it that the kernel sees as one, and copies between two pieces.
 *
 * Pages have addresses here at all times: a device without a DMA device
 * (INFINIBAND_VIRT_DMA) needs a kernel without high memory.
 */
#include <linux/atomic.h>
#include <linux/bits.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/sizes.h>
#include <linux/string.h>
#include <kunit/visibility.h>

#include "keel_aperture.h"
#include "keel_walk.h"

/* Between two looks at what else there is to do. */
#define KEEL_COPY_STEP	SZ_64K

/**
 * struct keel_pinned - pages of a program that are pinned for a piece
 * @n: how many
 * @at: first byte of @page that no piece was made of
 * @end: end of what may be used of @page
 * @page: the pages
 */
struct keel_pinned {
	u32 n;
	size_t at;
	size_t end;
	struct page *page[KEEL_ODP_BATCH];
};

/**
 * struct keel_cursor - where a copy is on one of its sides
 * @list: all segments
 * @n: how many
 * @seg: current segment
 * @left: how many there are from @seg on
 * @write: it is the destination
 * @wrote: device memory that was written, and whose bytes were not ordered yet
 * @off: first byte in @seg that no piece was made of
 * @addr: what is left of the current piece
 * @len: bytes of it
 * @pinned: room for what ODP needs; may be NULL where there is none. Kernels
 *	that clear their stack take longer for it than for a short message.
 */
struct keel_cursor {
	const struct keel_seg *list;
	u32 n;
	const struct keel_seg *seg;
	u32 left;
	u32 write;
	struct keel_aperture *wrote;
	u64 off;
	void *addr;
	size_t len;
	struct keel_pinned *pinned;
};

static void keel_cursor_init(struct keel_cursor *c, const struct keel_seg *seg,
			     u32 n, u64 off, bool write)
{
	c->list = seg;
	c->n = n;
	for (; n && off >= seg->len; seg++, n--)
		off -= seg->len;
	c->seg = seg;
	c->left = n;
	c->write = write;
	c->wrote = NULL;
	c->off = off;
	c->addr = NULL;
	c->len = 0;
	c->pinned = NULL;
}

static void keel_cursor_odp(struct keel_cursor *c, struct keel_pinned *pinned)
{
	pinned->n = 0;
	pinned->at = 0;
	pinned->end = 0;
	c->pinned = pinned;
}

/* To a segment that has bytes left; false if there is none. */
static bool keel_cursor_settle(struct keel_cursor *c)
{
	for (; c->left && c->off >= c->seg->len; c->seg++, c->left--)
		c->off = 0;
	return c->left;
}

static void keel_cursor_unpin(struct keel_cursor *c)
{
	struct keel_pinned *p = c->pinned;

	if (!p || !p->n)
		return;
	if (c->write)
		unpin_user_pages_dirty_lock(p->page, p->n, true);
	else
		unpin_user_pages(p->page, p->n);
	p->n = 0;
}

/*
 * The bytes from offset @in of @page[0] that the kernel sees as one, of @max
 * that are in @page all together.
 */
static void *keel_pages_run(struct page *const *page, size_t in, size_t max,
			    size_t *len)
{
	void *start = page_address(*page) + in;
	size_t n = PAGE_SIZE - in;

	while (n < max && page_address(*++page) == start + n)
		n += PAGE_SIZE;
	*len = min(n, max);
	return start;
}

/* What was written is to be seen before the completion is. */
static void keel_cursor_done(struct keel_cursor *c)
{
	keel_cursor_unpin(c);
	if (c->wrote) {
		keel_aperture_order(c->wrote);
		c->wrote = NULL;
	}
}

static int keel_piece_odp(struct keel_cursor *c, u64 addr, size_t max)
{
	struct keel_pinned *p = c->pinned;
	size_t in = offset_in_page(addr);
	long got;

	if (p->at == p->end) {
		keel_cursor_unpin(c);
		got = keel_odp_pin(c->seg->mem->mm, addr,
				   min_t(size_t, KEEL_ODP_BATCH,
					 DIV_ROUND_UP(in + max, PAGE_SIZE)),
				   c->write ? FOLL_WRITE : 0, p->page);
		if (got < 0)
			return got;
		p->n = got;
		p->at = in;
		p->end = min_t(size_t, in + max, got << PAGE_SHIFT);
	}
	c->addr = keel_pages_run(&p->page[p->at >> PAGE_SHIFT],
				 offset_in_page(p->at), p->end - p->at,
				 &c->len);
	p->at += c->len;
	return 0;
}

/*
 * The next piece of what @c goes through, of @max bytes at most. The caller
 * uses all of it before it asks for another. -EFAULT when there is none.
 */
static int keel_piece(struct keel_cursor *c, size_t max)
{
	const struct keel_mem *mem;
	size_t len;
	int ret = 0;
	u64 pos;

	if (WARN_ON_ONCE(!keel_cursor_settle(c)))
		return -EFAULT;
	mem = c->seg->mem;
	pos = c->seg->off + c->off;
	max = min_t(u64, max, c->seg->len - c->off);
	switch (mem->type) {
	case KEEL_MEM_PAGES:
		pos += mem->first;
		c->addr = keel_pages_run(&mem->pages[pos >> PAGE_SHIFT],
					 offset_in_page(pos), max, &c->len);
		break;
	case KEEL_MEM_DM:
		c->addr = keel_aperture_direct(mem->ap, mem->start + pos, &len);
		if (WARN_ON_ONCE(!c->addr))
			return -EFAULT;
		c->len = min(len, max);
		if (c->write)
			c->wrote = mem->ap;
		else
			keel_aperture_order(mem->ap);
		break;
	case KEEL_MEM_ODP:
		ret = keel_piece_odp(c, mem->start + pos, max);
		break;
	case KEEL_MEM_KERNEL:
	case KEEL_MEM_DMABUF:
		c->addr = (void *)(uintptr_t)(mem->start + pos);
		c->len = max;
		break;
	}
	if (!ret)
		c->off += c->len;
	return ret;
}

static enum keel_copy_result keel_copy_step(struct keel_cursor *to,
					    struct keel_cursor *from, size_t n)
{
	size_t len;
	int ret;

	while (n) {
		ret = from->len ? 0 : keel_piece(from, n);
		if (ret)
			return ret == -EINTR ? KEEL_COPY_STOPPED : KEEL_COPY_SRC;
		ret = to->len ? 0 : keel_piece(to, n);
		if (ret)
			return ret == -EINTR ? KEEL_COPY_STOPPED : KEEL_COPY_DST;
		len = min(from->len, to->len);
		memcpy(to->addr, from->addr, len);
		from->addr += len;
		from->len -= len;
		to->addr += len;
		to->len -= len;
		n -= len;
	}
	return KEEL_COPY_DONE;
}

static enum keel_copy_result keel_copy_all(struct keel_cursor *to,
					   struct keel_cursor *from, u64 len,
					   const struct keel_copy_ctl *ctl)
{
	enum keel_copy_result res = KEEL_COPY_DONE;

	while (len) {
		size_t n = min_t(u64, len, KEEL_COPY_STEP);

		res = keel_copy_step(to, from, n);
		keel_cursor_done(to);
		keel_cursor_done(from);
		len -= n;
		if (res != KEEL_COPY_DONE || !len)
			break;
		cond_resched();
		if (keel_segs_dead(from->list, from->n))
			return KEEL_COPY_SRC;
		if (keel_segs_dead(to->list, to->n))
			return KEEL_COPY_DST;
		if (ctl && ctl->stop(ctl->arg))
			return KEEL_COPY_STOPPED;
	}
	return res;
}

/* On its own, for the stack that others need not have. */
static noinline enum keel_copy_result
keel_copy_odp(struct keel_cursor *to, struct keel_cursor *from, u64 len,
	      const struct keel_copy_ctl *ctl)
{
	struct keel_pinned dst, src;

	keel_cursor_odp(to, &dst);
	keel_cursor_odp(from, &src);
	return keel_copy_all(to, from, len, ctl);
}

/* BIT() of enum keel_mem_type. */
static u32 keel_segs_types(const struct keel_segs *segs)
{
	u32 i, types = 0;

	for (i = 0; i < segs->n; i++)
		types |= BIT(segs->seg[i].mem->type);
	return types;
}

/**
 * keel_copy() - copy between two lists of segments
 * @dst: where to
 * @dst_off: bytes of @dst to leave out at its start
 * @src: where from
 * @src_off: likewise
 * @len: bytes; either list has as many behind its offset
 * @ctl: what may end it early, or NULL
 *
 * What is copied where memory of both sides overlaps is anybody's guess.
 *
 * Context: may sleep, and gives way to others now and then.
 * Return: how it ended. A fatal signal counts as &keel_copy_ctl.stop where
 * the pages of a program, or other users of a dma-buf, have to be waited for.
 */
enum keel_copy_result keel_copy(const struct keel_segs *dst, u64 dst_off,
				const struct keel_segs *src, u64 src_off,
				u64 len, const struct keel_copy_ctl *ctl)
{
	u32 types = keel_segs_types(dst) | keel_segs_types(src);
	enum keel_copy_result res;
	struct keel_cursor to, from;

	if (types & BIT(KEEL_MEM_DMABUF)) {
		res = keel_dmabuf_enter(dst, src, ctl);
		if (res != KEEL_COPY_DONE)
			return res;
	}
	keel_cursor_init(&to, dst->seg, dst->n, dst_off, true);
	keel_cursor_init(&from, src->seg, src->n, src_off, false);
	if (types & BIT(KEEL_MEM_ODP))
		res = keel_copy_odp(&to, &from, len, ctl);
	else
		res = keel_copy_all(&to, &from, len, ctl);
	if (types & BIT(KEEL_MEM_DMABUF))
		res = keel_dmabuf_leave(dst, src, res);
	return res;
}
EXPORT_SYMBOL_IF_KUNIT(keel_copy);

/* After the change of @seg. */
static int keel_word_done(struct keel_cursor *c, const struct keel_seg *seg)
{
	keel_cursor_unpin(c);
	return keel_dmabuf_end(seg, 1, true);
}

/* All 8 bytes of @seg as one; on success keel_word_done() is to follow. */
static int keel_word(struct keel_cursor *c, struct keel_pinned *pinned,
		     const struct keel_seg *seg)
{
	int ret;

	if (seg->len < sizeof(u64))
		return -EINVAL;
	ret = keel_dmabuf_begin(seg, 1, true);
	if (ret)
		return ret;
	keel_cursor_init(c, seg, 1, 0, true);
	keel_cursor_odp(c, pinned);
	ret = keel_piece(c, sizeof(u64));
	/* Aligned, they are in one page, and all of them in one piece. */
	if (!ret && !IS_ALIGNED((uintptr_t)c->addr, sizeof(u64)))
		ret = -EINVAL;
	if (ret)
		keel_word_done(c, seg);
	return ret;
}

/* @op by the processor, unless that is no way to change device memory. */
static u64 keel_word_change(const struct keel_seg *seg, u64 *word,
			    enum keel_atomic_op op, u64 operand, u64 new)
{
	const struct keel_mem *mem = seg->mem;

	if (mem->type == KEEL_MEM_DM && mem->ap->ops->atomic)
		return mem->ap->ops->atomic(mem->ap, word, op, operand, new);
	switch (op) {
	case KEEL_ATOMIC_SWAP:
		return cmpxchg64(word, operand, new);
	case KEEL_ATOMIC_ADD:
		return atomic64_fetch_add(operand, (atomic64_t *)word);
	default:
		atomic64_set_release((atomic64_t *)word, new);
		return 0;
	}
}

/**
 * keel_atomic() - change 8 bytes in one go
 * @seg: the bytes
 * @swap: store @new if they are @compare_add; else add @compare_add
 * @compare_add: see @swap
 * @new: see @swap
 * @old: gets what they were
 *
 * Atomic against every other atomic operation on them, of other queue pairs
 * and of processors, whoever maps them where; but of device
 * memory whose backend has an atomic() against those of queue pairs only.
 * Numbers are in host order.
 *
 * Context: may sleep.
 * Return: 0; -EINVAL for bytes that are not aligned, -EFAULT for a program
 * that unmapped them, -EINTR for a fatal signal. On failure nothing changes,
 * but where the exporter of a dma-buf fails afterwards: -EFAULT.
 */
int keel_atomic(const struct keel_seg *seg, bool swap, u64 compare_add,
		u64 new, u64 *old)
{
	struct keel_pinned pinned;
	struct keel_cursor c;
	int ret;

	ret = keel_word(&c, &pinned, seg);
	if (ret)
		return ret;
	*old = keel_word_change(seg, c.addr, swap ? KEEL_ATOMIC_SWAP :
						    KEEL_ATOMIC_ADD,
				compare_add, new);
	return keel_word_done(&c, seg);
}
EXPORT_SYMBOL_IF_KUNIT(keel_atomic);

/**
 * keel_atomic_write() - store 8 bytes in one go
 * @seg: where
 * @value: what, as it is to be in memory
 *
 * Nobody sees a part of it; and who sees it sees all that the caller wrote
 * before. Atomic against keel_atomic(), too.
 *
 * Context: may sleep.
 * Return: as keel_atomic().
 */
int keel_atomic_write(const struct keel_seg *seg, u64 value)
{
	struct keel_pinned pinned;
	struct keel_cursor c;
	int ret;

	ret = keel_word(&c, &pinned, seg);
	if (ret)
		return ret;
	keel_word_change(seg, c.addr, KEEL_ATOMIC_STORE, 0, value);
	return keel_word_done(&c, seg);
}
EXPORT_SYMBOL_IF_KUNIT(keel_atomic_write);

/**
 * keel_segs_dead() - was a key taken back meanwhile?
 * @seg: segments, whose keys the caller has
 * @n: how many
 *
 * Any of them counts, be it done with or not needed at all: whoever took it
 * back waits until the whole list is let go of.
 *
 * Context: any.
 * Return: whether one was.
 */
bool keel_segs_dead(const struct keel_seg *seg, u32 n)
{
	u32 i;

	for (i = 0; i < n; i++)
		if (seg[i].key && READ_ONCE(seg[i].key->dead))
			return true;
	return false;
}

/**
 * keel_segs_put() - let go of what a list uses
 * @segs: the list; empty afterwards
 *
 * Context: any.
 */
void keel_segs_put(struct keel_segs *segs)
{
	u32 i;

	for (i = 0; i < segs->n; i++)
		if (segs->seg[i].key)
			keel_key_put(segs->seg[i].key);
	segs->n = 0;
	segs->len = 0;
}
EXPORT_SYMBOL_IF_KUNIT(keel_segs_put);
