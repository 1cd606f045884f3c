/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The segment walker: bytes from one list of segments to another, whatever
 * the segments are made of. A core unit: it knows memory and keys, but no
 * queue and no verb.
 */
#ifndef KEEL_COPY_H
#define KEEL_COPY_H

#include <linux/list.h>
#include <linux/mm_types.h>
#include <linux/nospec.h>
#include <linux/sizes.h>
#include <linux/types.h>
#include <asm/page.h>
#include <rdma/keel-abi.h>

#include "keel_keys.h"

/* Pages of a user process that are looked up at once. */
#define KEEL_ODP_BATCH	16
/* Bytes that are brought in at once. */
#define KEEL_ODP_FETCH	SZ_2M

struct dma_buf;
struct keel_aperture;
struct keel_worker;

/**
 * enum keel_mem_type - what memory is made of
 * @KEEL_MEM_PAGES: pages that stay where they are (pinned user memory)
 * @KEEL_MEM_DM: a stretch of the aperture
 * @KEEL_MEM_ODP: addresses of a program, looked up when they are used
 * @KEEL_MEM_KERNEL: kernel addresses (inline data, kernel consumers)
 * @KEEL_MEM_DMABUF: a dma-buf, where its exporter mapped it for the kernel
 * @KEEL_MEM_LIST: pages of a size of their own, by their kernel addresses (fast
 *	registration)
 */
enum keel_mem_type {
	KEEL_MEM_PAGES,
	KEEL_MEM_DM,
	KEEL_MEM_ODP,
	KEEL_MEM_KERNEL,
	KEEL_MEM_DMABUF,
	KEEL_MEM_LIST,
};

/**
 * struct keel_mem - memory that segments are stretches of
 * @type: what it is
 * @pages: PAGES: one after the other
 * @list: LIST: addresses of pages, of which only the bytes that belong to the
 *	memory need to exist
 * @n: PAGES, LIST: how many pages
 * @first: PAGES, LIST: offset of the first byte in the first page
 * @shift: LIST: log2 of the size of a page, which need not be PAGE_SIZE
 * @ap: DM: the aperture
 * @start: DM: offset of the first byte in @ap; ODP, KERNEL, DMABUF: its address
 * @mm: ODP: whose address that is; the owner of the memory has a reference on
 *	the structure (mmgrab()), not on what is mapped
 * @dmabuf: DMABUF: the buffer, on which the owner has a reference
 * @worker: ODP, DMABUF: the worker of the process that registered it, on which
 *	the owner has a reference: it does what the memory has to wait for
 */
struct keel_mem {
	enum keel_mem_type type;
	struct keel_worker *worker;
	union {
		struct {
			union {
				struct page **pages;
				unsigned long *list;
			};
			u32 n;
			u32 first;
			u8 shift;
		};
		struct {
			union {
				struct keel_aperture *ap;
				struct mm_struct *mm;
				struct dma_buf *dmabuf;
			};
			u64 start;
		};
	};
};

/**
 * struct keel_seg - one stretch
 * @mem: of which memory
 * @key: the key that keeps @mem alive; keel_segs_put() gives it back; NULL
 *	where somebody else does
 * @off: first byte in @mem
 * @len: bytes; the caller has checked that they are inside
 */
struct keel_seg {
	const struct keel_mem *mem;
	struct keel_key *key;
	u64 off;
	u64 len;
};

/**
 * struct keel_segs - a list of stretches
 * @n: how many
 * @len: bytes of all of them together
 * @seg: the stretches
 */
struct keel_segs {
	u32 n;
	u64 len;
	struct keel_seg seg[KEEL_MAX_SGE];
};

/**
 * enum keel_need_kind - what a transfer cannot go on without
 * @KEEL_NEED_NONE: nothing
 * @KEEL_NEED_PAGES: pages of a user process that are not there
 * @KEEL_NEED_OPEN: access to a dma-buf, which begins after the work of others
 * @KEEL_NEED_CLOSE: the end of such access, after the copy
 */
enum keel_need_kind {
	KEEL_NEED_NONE,
	KEEL_NEED_PAGES,
	KEEL_NEED_OPEN,
	KEEL_NEED_CLOSE,
};

/**
 * struct keel_need - something that may have to be waited for
 * @kind: what
 * @write: the memory is to be written
 * @worker: of the process whose memory it is: a reference, or NULL
 * @mm: PAGES: mmgrab()
 * @dmabuf: OPEN, CLOSE: a reference
 * @addr: PAGES: the first address
 * @len: PAGES: bytes; @addr + @len does not wrap
 */
struct keel_need {
	enum keel_need_kind kind;
	bool write;
	struct keel_worker *worker;
	struct mm_struct *mm;
	struct dma_buf *dmabuf;
	u64 addr;
	u64 len;
};

/**
 * keel_need_is() - are two needs the same?
 * @need: a need
 * @other: another one, whose references may be gone
 *
 * Context: any.
 * Return: true if what could not be provided for one cannot for the other.
 */
static inline bool keel_need_is(const struct keel_need *need,
				const struct keel_need *other)
{
	return need->kind == other->kind && need->write == other->write &&
	       need->mm == other->mm && need->dmabuf == other->dmabuf &&
	       need->addr == other->addr;
}

/**
 * struct keel_open - access to a dma-buf that has begun
 * @node: in &keel_copy_ctl.open
 * @need: which; holds its references
 */
struct keel_open {
	struct list_head node;
	struct keel_need need;
};

/**
 * struct keel_copy_ctl - one transfer, however often it is begun
 * @stop: asked every 64 KiB; true ends the copy with KEEL_COPY_STOPPED
 * @arg: for @stop
 * @done: bytes that are copied. The copy goes on behind them.
 * @need: with KEEL_COPY_ABSENT: what is missing, the caller's to
 *	keel_need_drop()
 * @lacks: what could not be provided, to be compared only: the copy fails if it
 *	needs that
 * @asked: something is being provided: @need is left alone
 * @open: struct keel_open: access to dma-bufs that has begun
 * @lost: the exporter of a destination did not make the bytes visible
 */
struct keel_copy_ctl {
	bool (*stop)(void *arg);
	void *arg;
	u64 done;
	struct keel_need need;
	struct keel_need lacks;
	bool asked;
	struct list_head open;
	bool lost;
};

/**
 * enum keel_copy_result - how a copy ended
 * @KEEL_COPY_DONE: all bytes are there
 * @KEEL_COPY_SRC: the source could not be read: the key of one of its segments
 *	was taken back, or its owner does not provide it
 * @KEEL_COPY_DST: likewise for the destination
 * @KEEL_COPY_STOPPED: &keel_copy_ctl.stop said so
 * @KEEL_COPY_ABSENT: &keel_copy_ctl.need is missing. To be provided without
 *	any lock and key; then the copy is to be called again.
 *
 * All but DONE may have copied a part.
 */
enum keel_copy_result {
	KEEL_COPY_DONE,
	KEEL_COPY_SRC,
	KEEL_COPY_DST,
	KEEL_COPY_STOPPED,
	KEEL_COPY_ABSENT,
};

void keel_copy_ctl_init(struct keel_copy_ctl *ctl, bool (*stop)(void *arg),
			void *arg);
enum keel_copy_result keel_copy(const struct keel_segs *dst, u64 dst_off,
				const struct keel_segs *src, u64 src_off,
				u64 len, struct keel_copy_ctl *ctl);
int keel_atomic(const struct keel_seg *seg, bool swap, u64 compare_add,
		u64 new, u64 *old, struct keel_copy_ctl *ctl);
int keel_atomic_write(const struct keel_seg *seg, u64 value,
		      struct keel_copy_ctl *ctl);
enum keel_copy_result keel_copy_end(struct keel_copy_ctl *ctl);

/* segs.c */
void keel_copy_last(void *to, const void *from, size_t len);
bool keel_segs_may_lack(const struct keel_segs *segs);
bool keel_segs_dead(const struct keel_seg *seg, u32 n);
void keel_segs_put(struct keel_segs *segs);

/* need.c */
void keel_need_drop(struct keel_need *need);
int keel_need_provide(const struct keel_need *need, bool wait,
		      bool (*stop)(void *arg), void *arg);

/* odp.c */
long keel_odp_pin(struct mm_struct *mm, u64 addr, unsigned long n, bool write,
		  struct page **page);
int keel_odp_fetch(const struct keel_need *need, bool wait);

/* dmabuf.c */
int keel_dmabuf_check(const struct dma_buf *dmabuf, u64 offset, u64 length,
		      bool write);
int keel_dmabuf_map(struct keel_mem *mem, struct dma_buf *dmabuf, u64 offset,
		    u64 length, bool write);
void keel_dmabuf_unmap(const struct keel_mem *mem, u64 offset);
int keel_dmabuf_open(const struct keel_need *need, bool wait,
		     bool (*stop)(void *arg), void *arg);
int keel_dmabuf_close(const struct keel_need *need);
int keel_dmabuf_ready(const struct keel_seg *seg, u32 n, bool write,
		      struct keel_copy_ctl *ctl);

/**
 * keel_mem_page() - the page of a byte: PAGES
 * @mem: memory
 * @pos: the byte, from the start of the first page on
 *
 * The address that userspace gives in an SGE was compared with the range of its
 * key. A processor that mispredicts the comparison runs this with any @pos, and
 * must not load from beyond the list either.
 *
 * Return: where it is in &keel_mem.pages.
 */
static inline struct page **keel_mem_page(const struct keel_mem *mem, u64 pos)
{
	unsigned long i = pos >> PAGE_SHIFT;

	return &mem->pages[array_index_nospec(i, (unsigned long)mem->n)];
}

/**
 * keel_mem_listed() - the page of a byte: LIST
 * @mem: memory
 * @pos: as keel_mem_page()
 *
 * Return: where its address is in &keel_mem.list.
 */
static inline const unsigned long *keel_mem_listed(const struct keel_mem *mem,
						   u64 pos)
{
	unsigned long i = pos >> mem->shift;

	return &mem->list[array_index_nospec(i, (unsigned long)mem->n)];
}

/**
 * keel_segs_one() - a list of one stretch
 * @segs: the list
 * @mem: memory
 * @off: first byte
 * @len: bytes
 */
static inline void keel_segs_one(struct keel_segs *segs,
				 const struct keel_mem *mem, u64 off, u64 len)
{
	segs->n = 1;
	segs->len = len;
	segs->seg[0] = (struct keel_seg){ .mem = mem, .off = off, .len = len };
}

#endif /* KEEL_COPY_H */
