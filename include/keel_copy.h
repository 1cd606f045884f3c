/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The segment walker copies bytes from one list of segments to another. The
 * segments can be of any type of memory. A core unit: it depends on memory and
 * keys, but on no queue and no verb.
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

/* Maximum number of pages of a user process that one lookup pins. */
#define KEEL_ODP_BATCH	16
/* Bytes that are copied between two checks whether to stop or reschedule. */
#define KEEL_COPY_STEP	SZ_64K
/* Maximum number of bytes that one request faults in. */
#define KEEL_ODP_FETCH	SZ_2M

struct dma_buf;
struct keel_aperture;
struct keel_worker;

/**
 * enum keel_mem_type - type of memory
 * @KEEL_MEM_PAGES: pages that stay in place (pinned user memory)
 * @KEEL_MEM_DM: a range of the aperture
 * @KEEL_MEM_ODP: user addresses, looked up at each access
 * @KEEL_MEM_KERNEL: kernel addresses (inline data, kernel consumers)
 * @KEEL_MEM_DMABUF: a dma-buf, through its exporter's kernel mapping
 * @KEEL_MEM_LIST: kernel addresses of pages, with a page size of their own (fast
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
 * struct keel_mem - memory that segments refer to
 * @type: its type
 * @blocks: PAGES: &keel_blocks.entry
 * @list: LIST: addresses of pages, of which only the bytes that belong to the
 *	memory need to exist
 * @n: PAGES: &keel_blocks.n; LIST: number of pages
 * @first: PAGES, LIST: offset of the first byte in the first block, or page
 * @shift: LIST: log2 of the page size, which need not be PAGE_SIZE
 * @ap: DM: the aperture
 * @start: DM: offset of the first byte in @ap; ODP, KERNEL, DMABUF: its address
 * @mm: ODP: the address space of @start. The owner of the memory has a reference
 *	on the structure (mmgrab()), not on the mappings.
 * @dmabuf: DMABUF: the dma-buf, on which the owner has a reference
 * @worker: ODP, DMABUF: the worker of the process that registered the memory, on
 *	which the owner has a reference. It provides absent pages and waits for
 *	dma-bufs.
 */
struct keel_mem {
	enum keel_mem_type type;
	struct keel_worker *worker;
	union {
		struct {
			union {
				const unsigned long *blocks;
				unsigned long *list;
			};
			unsigned long n;
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
 * struct keel_seg - a segment: one contiguous range of a struct keel_mem
 * @mem: the memory
 * @key: the key that keeps @mem, with a reference that keel_segs_put() drops; NULL
 *	if the caller keeps @mem in another way
 * @off: offset of the first byte in @mem
 * @len: bytes; the caller has checked that they are inside @mem
 */
struct keel_seg {
	const struct keel_mem *mem;
	struct keel_key *key;
	u64 off;
	u64 len;
};

/**
 * struct keel_segs - a list of segments
 * @n: number of segments
 * @len: their total length in bytes
 * @seg: the segments
 */
struct keel_segs {
	u32 n;
	u64 len;
	struct keel_seg seg[KEEL_MAX_SGE];
};

/**
 * enum keel_need_kind - what a transfer needs before it can continue
 * @KEEL_NEED_NONE: nothing
 * @KEEL_NEED_PAGES: pages of a user process that are not present
 * @KEEL_NEED_OPEN: begin access to a dma-buf, after others have finished with it
 * @KEEL_NEED_CLOSE: end that access, after the copy
 */
enum keel_need_kind {
	KEEL_NEED_NONE,
	KEEL_NEED_PAGES,
	KEEL_NEED_OPEN,
	KEEL_NEED_CLOSE,
};

/**
 * struct keel_need - something that a transfer may have to wait for
 * @kind: what it is
 * @write: the memory is the destination
 * @worker: worker of the process that owns the memory: a reference, or NULL
 * @mm: PAGES: the address space, with a reference (mmgrab())
 * @dmabuf: OPEN, CLOSE: the dma-buf, with a reference
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
 * @other: another need, whose references may have been dropped
 *
 * Context: any.
 * Return: true if a failure to provide one of them applies to the other.
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
 * @need: the dma-buf; has its references
 */
struct keel_open {
	struct list_head node;
	struct keel_need need;
};

/**
 * struct keel_copy_ctl - one transfer, over all its attempts
 * @stop: called every 64 KiB; true ends the copy with KEEL_COPY_STOPPED
 * @arg: for @stop
 * @done: bytes that were copied. The next attempt continues behind them.
 * @need: with KEEL_COPY_ABSENT: what is missing. The caller drops its references
 *	with keel_need_put(); KEEL_NEED_CLOSE comes without references.
 * @lacks: what could not be provided; only compared: the copy fails if it needs
 *	that
 * @asked: a request is pending: @need is not set
 * @open: struct keel_open: access to dma-bufs that has begun
 * @lost: the exporter of a destination did not make the bytes visible
 * @helped: helpers have copied a part of it
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
	bool helped;
};

/**
 * enum keel_copy_result - how a copy ended
 * @KEEL_COPY_DONE: all bytes were copied
 * @KEEL_COPY_SRC: the source could not be read: the key of one of its segments was
 *	invalidated, or its owner does not provide the memory
 * @KEEL_COPY_DST: likewise for the destination
 * @KEEL_COPY_STOPPED: &keel_copy_ctl.stop returned true
 * @KEEL_COPY_ABSENT: &keel_copy_ctl.need is missing. The caller drops all locks and
 *	keys, has it provided, and calls the copy again.
 *
 * With every result except DONE, a part may have been copied.
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
bool keel_segs_may_share(const struct keel_segs *segs);
bool keel_segs_dead(const struct keel_seg *seg, u32 n);
void keel_segs_put(struct keel_segs *segs);

/* need.c */
void keel_need_put(struct keel_need *need);
int keel_need_provide(const struct keel_need *need, bool wait,
		      bool (*stop)(void *arg), void *arg);

/* odp.c */
long keel_odp_pin(const struct keel_mem *mem, u64 addr, unsigned long n, bool write,
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
 * keel_mem_listed() - the page of a byte: LIST
 * @mem: memory
 * @pos: the byte, counted from the start of the first page; as keel_blocks_find()
 *
 * Return: the slot of its address in &keel_mem.list.
 */
static inline const unsigned long *keel_mem_listed(const struct keel_mem *mem,
						   u64 pos)
{
	unsigned long i = pos >> mem->shift;

	return &mem->list[array_index_nospec(i, mem->n)];
}

/**
 * keel_segs_one() - make a list of one segment
 * @segs: the list
 * @mem: memory
 * @off: offset of the first byte
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
