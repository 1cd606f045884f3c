// SPDX-License-Identifier: GPL-2.0
/*
 * The segment walker. It gets the next virtually contiguous piece of the source
 * and of the destination, whatever their types, and copies between the two.
 *
 * Every page has a kernel address: a device without a DMA device
 * (INFINIBAND_VIRT_DMA) needs a kernel without high memory.
 */
#include <linux/atomic.h>
#include <linux/bits.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/sched.h>
#include <linux/sched/mm.h>
#include <linux/sizes.h>
#include <linux/string.h>
#include <kunit/visibility.h>

#include "compat.h"
#include "keel_aperture.h"
#include "keel_blocks.h"
#include "keel_copy.h"
#include "keel_worker.h"

/**
 * struct keel_pinned - pages of a user process, pinned for the current piece
 * @n: number of pages
 * @at: offset in @page of the first byte that is in no piece yet
 * @end: offset in @page behind the last byte to use
 * @page: the pages
 */
struct keel_pinned {
	u32 n;
	size_t at;
	size_t end;
	struct page *page[KEEL_ODP_BATCH];
};

/**
 * struct keel_cursor - position of a copy in its source or destination
 * @list: all segments
 * @n: number of segments
 * @seg: current segment
 * @left: number of segments from @seg on
 * @write: this is the destination
 * @wrote: device memory that was written, and whose bytes are not ordered yet
 * @off: offset in @seg of the first byte that is in no piece yet
 * @addr: kernel address of the rest of the current piece
 * @len: bytes at @addr
 * @pinned: room for pinned pages; may be NULL without ODP memory. It is not in
 *	this structure: kernels that clear their stack take longer to clear it
 *	than to copy a short message.
 * @ctl: the transfer; its @need gets the absent memory
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
	struct keel_copy_ctl *ctl;
};

static void keel_cursor_init(struct keel_cursor *c, const struct keel_seg *seg,
			     u32 n, u64 off, bool write,
			     struct keel_copy_ctl *ctl)
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
	c->ctl = ctl;
}

static void keel_cursor_odp(struct keel_cursor *c, struct keel_pinned *pinned)
{
	pinned->n = 0;
	pinned->at = 0;
	pinned->end = 0;
	c->pinned = pinned;
}

/* Advance to a segment that has bytes left. Returns false if there is none. */
static bool keel_cursor_settle(struct keel_cursor *c)
{
	for (; c->left && c->off >= c->seg->len; c->seg++, c->left--)
		c->off = 0;
	return c->left;
}

/*
 * Mark written pages as dirty. They were marked when they were pinned, but may
 * have been cleaned since. All of them belong to swap or shared memory, which
 * need nothing but the mark. Another thread may hold the lock of a page for
 * long, so this does not wait for it.
 */
static void keel_pages_dirty(struct page **page, u32 n)
{
	struct folio *folio;

	for (; n; n--, page++) {
		folio = page_folio(*page);
		if (folio_test_dirty(folio) || !folio_trylock(folio))
			continue;
		folio_mark_dirty(folio);
		folio_unlock(folio);
	}
}

static void keel_cursor_unpin(struct keel_cursor *c)
{
	struct keel_pinned *p = c->pinned;

	if (!p || !p->n)
		return;
	if (c->write)
		keel_pages_dirty(p->page, p->n);
	unpin_user_pages(p->page, p->n);
	p->n = 0;
}

/*
 * Get the virtually contiguous bytes from offset @in of @page[0] on. All pages
 * of @page have @max bytes from there.
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

/* As keel_pages_run(), for PAGES: from byte @off of the memory on. */
static void *keel_blocks_run(const struct keel_mem *mem, u64 off, size_t max,
			     size_t *len)
{
	u64 n;
	void *start = keel_blocks_find(mem->blocks, mem->n, mem->first, off, &n);
	u64 more;

	while (n < max && keel_blocks_find(mem->blocks, mem->n, mem->first, off + n,
					   &more) == start + n)
		n += more;
	*len = min_t(u64, n, max);
	return start;
}

/* As keel_pages_run(), for LIST: from offset @pos of the first page. */
static void *keel_list_run(const struct keel_mem *mem, u64 pos, size_t max,
			   size_t *len)
{
	const size_t size = (size_t)1 << mem->shift;
	const unsigned long *page = keel_mem_listed(mem, pos);
	size_t in = pos & (size - 1), n = size - in;
	unsigned long start = *page + in;

	while (n < max && *++page == start + n)
		n += size;
	*len = min(n, max);
	return (void *)start;
}

/* Other threads must see the written bytes before they see the CQE. */
static void keel_cursor_done(struct keel_cursor *c)
{
	keel_cursor_unpin(c);
	if (c->wrote) {
		keel_aperture_order(c->wrote);
		c->wrote = NULL;
	}
}

/* Set &keel_copy_ctl.need: pages are not present. */
static int keel_piece_absent(struct keel_cursor *c, u64 addr)
{
	const struct keel_mem *mem = c->seg->mem;
	struct keel_need need = {
		.kind = KEEL_NEED_PAGES, .write = c->write,
		.worker = mem->worker, .mm = mem->mm, .addr = addr,
		.len = min_t(u64, c->seg->len - c->off, KEEL_ODP_FETCH),
	};

	if (keel_need_is(&need, &c->ctl->lacks))
		return -EFAULT;
	if (c->ctl->asked)
		return -EAGAIN;
	/* The key that is in use keeps both until here. */
	mmgrab(need.mm);
	if (need.worker)
		keel_worker_get(need.worker);
	c->ctl->need = need;
	return -EAGAIN;
}

static int keel_piece_odp(struct keel_cursor *c, u64 addr, size_t max)
{
	struct keel_pinned *p = c->pinned;
	size_t in = offset_in_page(addr);
	long got;

	if (p->at == p->end) {
		keel_cursor_unpin(c);
		/* keel_odp_pin() does not wait, but may reschedule. */
		non_block_end();
		got = keel_odp_pin(c->seg->mem, addr,
				   min_t(size_t, KEEL_ODP_BATCH,
					 DIV_ROUND_UP(in + max, PAGE_SIZE)),
				   c->write, p->page);
		non_block_start();
		if (got == -EAGAIN)
			return keel_piece_absent(c, addr);
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
 * Get the next piece of @c, of at most @max bytes. The caller uses all of it
 * before it gets another one. Returns -EFAULT if no bytes are left.
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
		c->addr = keel_blocks_run(mem, pos, max, &c->len);
		break;
	case KEEL_MEM_LIST:
		c->addr = keel_list_run(mem, mem->first + pos, max, &c->len);
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

static enum keel_copy_result keel_piece_result(int err,
					       enum keel_copy_result side)
{
	return err == -EAGAIN ? KEEL_COPY_ABSENT : side;
}

/* Must not wait for another thread; debug kernels check that. */
static enum keel_copy_result keel_copy_step(struct keel_cursor *to,
					    struct keel_cursor *from, size_t *n)
{
	enum keel_copy_result res = KEEL_COPY_DONE;
	size_t len;
	int ret;

	non_block_start();
	while (*n) {
		ret = from->len ? 0 : keel_piece(from, *n);
		if (ret) {
			res = keel_piece_result(ret, KEEL_COPY_SRC);
			break;
		}
		ret = to->len ? 0 : keel_piece(to, *n);
		if (ret) {
			res = keel_piece_result(ret, KEEL_COPY_DST);
			break;
		}
		len = min(from->len, to->len);
		if (len == *n)
			keel_copy_last(to->addr, from->addr, len);
		else
			memcpy(to->addr, from->addr, len);
		from->addr += len;
		from->len -= len;
		to->addr += len;
		to->len -= len;
		*n -= len;
	}
	non_block_end();
	keel_cursor_done(to);
	keel_cursor_done(from);
	return res;
}

static enum keel_copy_result keel_copy_all(struct keel_cursor *to,
					   struct keel_cursor *from, u64 len,
					   struct keel_copy_ctl *ctl)
{
	enum keel_copy_result res = KEEL_COPY_DONE;

	while (len) {
		size_t n = min_t(u64, len, KEEL_COPY_STEP), left = n;

		res = keel_copy_step(to, from, &left);
		len -= n - left;
		ctl->done += n - left;
		if (res != KEEL_COPY_DONE || !len)
			break;
		if (!ctl->stop)
			cond_resched();
		if (keel_segs_dead(from->list, from->n))
			return KEEL_COPY_SRC;
		if (keel_segs_dead(to->list, to->n))
			return KEEL_COPY_DST;
		if (ctl->stop && ctl->stop(ctl->arg))
			return KEEL_COPY_STOPPED;
	}
	return res;
}

/* noinline: only transfers of ODP memory need this much stack. */
static noinline enum keel_copy_result
keel_copy_odp(struct keel_cursor *to, struct keel_cursor *from, u64 len,
	      struct keel_copy_ctl *ctl)
{
	struct keel_pinned dst, src;

	keel_cursor_odp(to, &dst);
	keel_cursor_odp(from, &src);
	return keel_copy_all(to, from, len, ctl);
}

/* Returns a mask of BIT(enum keel_mem_type). */
static u32 keel_segs_types(const struct keel_segs *segs)
{
	u32 i, types = 0;

	for (i = 0; i < segs->n; i++)
		types |= BIT(segs->seg[i].mem->type);
	return types;
}

/* Check that access to the dma-bufs of both sides has begun. */
static enum keel_copy_result keel_copy_opened(const struct keel_segs *dst,
					      const struct keel_segs *src,
					      struct keel_copy_ctl *ctl)
{
	int ret;

	ret = keel_dmabuf_ready(src->seg, src->n, false, ctl);
	if (ret)
		return keel_piece_result(ret, KEEL_COPY_SRC);
	ret = keel_dmabuf_ready(dst->seg, dst->n, true, ctl);
	return ret ? keel_piece_result(ret, KEEL_COPY_DST) : KEEL_COPY_DONE;
}

/**
 * keel_copy_ctl_init() - initialize a transfer
 * @ctl: the transfer
 * @stop: &keel_copy_ctl.stop, or NULL
 * @arg: for @stop
 */
void keel_copy_ctl_init(struct keel_copy_ctl *ctl, bool (*stop)(void *arg),
			void *arg)
{
	*ctl = (struct keel_copy_ctl){ .stop = stop, .arg = arg };
	INIT_LIST_HEAD(&ctl->open);
}
EXPORT_SYMBOL_IF_KUNIT(keel_copy_ctl_init);

/**
 * keel_copy_end() - end access to dma-bufs after all bytes were copied
 * @ctl: the transfer
 *
 * Context: any.
 * Return: KEEL_COPY_DONE; KEEL_COPY_ABSENT with KEEL_NEED_CLOSE if access to a
 * dma-buf has not ended, or if a request is pending; KEEL_COPY_DST if the
 * exporter of a destination has failed.
 */
enum keel_copy_result keel_copy_end(struct keel_copy_ctl *ctl)
{
	if (ctl->asked)
		return KEEL_COPY_ABSENT;
	if (!list_empty(&ctl->open)) {
		ctl->need.kind = KEEL_NEED_CLOSE;
		return KEEL_COPY_ABSENT;
	}
	return ctl->lost ? KEEL_COPY_DST : KEEL_COPY_DONE;
}
EXPORT_SYMBOL_IF_KUNIT(keel_copy_end);

/**
 * keel_copy() - copy between two lists of segments
 * @dst: the destination
 * @dst_off: bytes to skip at the start of @dst
 * @src: the source
 * @src_off: bytes to skip at the start of @src
 * @len: bytes; both lists have at least as many behind their offsets
 * @ctl: the transfer, which continues behind &keel_copy_ctl.done
 *
 * The result is undefined if source and destination overlap. The call never
 * waits for another process: see KEEL_COPY_ABSENT.
 *
 * Context: process context; may sleep if &keel_copy_ctl.stop is NULL, or if
 * keel_segs_may_lack() is true for one of the lists.
 * Return: how it ended.
 */
enum keel_copy_result keel_copy(const struct keel_segs *dst, u64 dst_off,
				const struct keel_segs *src, u64 src_off,
				u64 len, struct keel_copy_ctl *ctl)
{
	u32 types = keel_segs_types(dst) | keel_segs_types(src);
	enum keel_copy_result res;
	struct keel_cursor to, from;

	/* Userspace may have changed the WQE since the last attempt. */
	if (ctl->done > len)
		ctl->done = 0;
	if (types & BIT(KEEL_MEM_DMABUF) && ctl->done < len) {
		res = keel_copy_opened(dst, src, ctl);
		if (res != KEEL_COPY_DONE)
			return res;
	}
	keel_cursor_init(&to, dst->seg, dst->n, dst_off + ctl->done, true, ctl);
	keel_cursor_init(&from, src->seg, src->n, src_off + ctl->done, false,
			 ctl);
	len -= ctl->done;
	if (types & BIT(KEEL_MEM_ODP))
		res = keel_copy_odp(&to, &from, len, ctl);
	else
		res = keel_copy_all(&to, &from, len, ctl);
	return res == KEEL_COPY_DONE ? keel_copy_end(ctl) : res;
}
EXPORT_SYMBOL_IF_KUNIT(keel_copy);

/* Get the address of an atomic operand. keel_cursor_unpin() must follow. */
static int keel_word(struct keel_cursor *c, struct keel_pinned *pinned,
		     const struct keel_seg *seg, struct keel_copy_ctl *ctl)
{
	int ret;

	if (seg->len < sizeof(u64))
		return -EINVAL;
	ret = keel_dmabuf_ready(seg, 1, true, ctl);
	if (ret)
		return ret;
	keel_cursor_init(c, seg, 1, 0, true, ctl);
	keel_cursor_odp(c, pinned);
	non_block_start();
	ret = keel_piece(c, sizeof(u64));
	non_block_end();
	/* An aligned operand is in one page, and so in one piece. */
	if (!ret && !IS_ALIGNED((uintptr_t)c->addr, sizeof(u64)))
		ret = -EINVAL;
	if (ret)
		keel_cursor_unpin(c);
	return ret;
}

/* Do @op with an atomic instruction, or as the backend of the aperture does. */
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
 * keel_atomic() - do an atomic operation on 8 bytes
 * @seg: the atomic operand
 * @swap: store @new if the operand equals @compare_add; else add @compare_add
 * @compare_add: see @swap
 * @new: see @swap
 * @old: gets the old value
 * @ctl: the transfer
 *
 * The operation is atomic against all other atomic operations on these bytes,
 * by queue pairs and by processors, through any mapping. If the backend of
 * device memory has an atomic(), it is atomic against operations of queue pairs
 * only. Numbers are in host order.
 *
 * Context: process context; does not wait for another thread.
 * Return: 0; -EINVAL if @seg is shorter than 8 bytes or not aligned; -EFAULT if
 * the memory cannot be used; -EAGAIN if it is absent, with &keel_copy_ctl.need
 * as for keel_copy(). On failure, the operand does not change.
 */
int keel_atomic(const struct keel_seg *seg, bool swap, u64 compare_add,
		u64 new, u64 *old, struct keel_copy_ctl *ctl)
{
	struct keel_pinned pinned;
	struct keel_cursor c;
	int ret;

	ret = keel_word(&c, &pinned, seg, ctl);
	if (ret)
		return ret;
	*old = keel_word_change(seg, c.addr, swap ? KEEL_ATOMIC_SWAP :
						    KEEL_ATOMIC_ADD,
				compare_add, new);
	keel_cursor_unpin(&c);
	return 0;
}
EXPORT_SYMBOL_IF_KUNIT(keel_atomic);

/**
 * keel_atomic_write() - atomically store 8 bytes
 * @seg: the destination
 * @value: the bytes, in the order in which memory gets them
 * @ctl: the transfer
 *
 * No reader sees a part of the value. A reader that sees it also sees all that
 * the caller wrote before. The store is atomic against keel_atomic(), too.
 *
 * Context: process context; does not wait for another thread.
 * Return: as keel_atomic().
 */
int keel_atomic_write(const struct keel_seg *seg, u64 value,
		      struct keel_copy_ctl *ctl)
{
	struct keel_pinned pinned;
	struct keel_cursor c;
	int ret;

	ret = keel_word(&c, &pinned, seg, ctl);
	if (ret)
		return ret;
	keel_word_change(seg, c.addr, KEEL_ATOMIC_STORE, 0, value);
	keel_cursor_unpin(&c);
	return 0;
}
EXPORT_SYMBOL_IF_KUNIT(keel_atomic_write);
