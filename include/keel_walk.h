/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The segment walker: bytes from one list of segments to another, whatever
 * the segments are made of. A core unit: it knows memory and keys, but no
 * queue and no verb.
 */
#ifndef KEEL_WALK_H
#define KEEL_WALK_H

#include <linux/mm_types.h>
#include <linux/types.h>
#include <rdma/keel-abi.h>

#include "keel_keys.h"

/* Pages of a program that are looked up at once. */
#define KEEL_ODP_BATCH	16

struct dma_buf;
struct keel_aperture;

/**
 * enum keel_mem_type - what memory is made of
 * @KEEL_MEM_PAGES: pages that stay where they are (pinned user memory)
 * @KEEL_MEM_DM: a stretch of the aperture
 * @KEEL_MEM_ODP: addresses of a program, looked up when they are used
 * @KEEL_MEM_KERNEL: kernel addresses (inline data, kernel consumers)
 * @KEEL_MEM_DMABUF: a dma-buf, where its exporter mapped it for the kernel
 */
enum keel_mem_type {
	KEEL_MEM_PAGES,
	KEEL_MEM_DM,
	KEEL_MEM_ODP,
	KEEL_MEM_KERNEL,
	KEEL_MEM_DMABUF,
};

/**
 * struct keel_mem - memory that segments are stretches of
 * @type: what it is
 * @pages: PAGES: one after the other
 * @first: PAGES: offset of the first byte in @pages[0]
 * @ap: DM: the aperture
 * @start: DM: offset of the first byte in @ap; ODP, KERNEL, DMABUF: its address
 * @mm: ODP: whose address that is; the owner of the memory has a reference on
 *	the structure (mmgrab()), not on what is mapped
 * @dmabuf: DMABUF: the buffer, on which the owner has a reference
 */
struct keel_mem {
	enum keel_mem_type type;
	union {
		struct {
			struct page **pages;
			u32 first;
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
 * struct keel_copy_ctl - what makes a copy end early
 * @stop: asked every 64 KiB; true ends the copy with KEEL_COPY_STOPPED
 * @arg: for @stop
 */
struct keel_copy_ctl {
	bool (*stop)(void *arg);
	void *arg;
};

/**
 * enum keel_copy_result - how a copy ended
 * @KEEL_COPY_DONE: all bytes are there
 * @KEEL_COPY_SRC: the source could not be read: the key of one of its segments
 *	was taken back, or its owner unmapped it
 * @KEEL_COPY_DST: likewise for the destination
 * @KEEL_COPY_STOPPED: &keel_copy_ctl.stop said so
 *
 * All but DONE may have copied a part.
 */
enum keel_copy_result {
	KEEL_COPY_DONE,
	KEEL_COPY_SRC,
	KEEL_COPY_DST,
	KEEL_COPY_STOPPED,
};

enum keel_copy_result keel_copy(const struct keel_segs *dst, u64 dst_off,
				const struct keel_segs *src, u64 src_off,
				u64 len, const struct keel_copy_ctl *ctl);
int keel_atomic(const struct keel_seg *seg, bool swap, u64 compare_add,
		u64 new, u64 *old);
int keel_atomic_write(const struct keel_seg *seg, u64 value);
bool keel_segs_dead(const struct keel_seg *seg, u32 n);
void keel_segs_put(struct keel_segs *segs);

/* odp.c */
long keel_odp_pin(struct mm_struct *mm, u64 addr, unsigned long n,
		  unsigned int flags, struct page **page);
int keel_seg_prefetch(const struct keel_seg *seg, bool write, bool fault);

/* dmabuf.c */
int keel_dmabuf_check(const struct dma_buf *dmabuf, u64 offset, u64 length,
		      bool write);
int keel_dmabuf_map(struct keel_mem *mem, struct dma_buf *dmabuf, u64 offset,
		    u64 length, bool write);
void keel_dmabuf_unmap(const struct keel_mem *mem, u64 offset);
int keel_dmabuf_begin(const struct keel_seg *seg, u32 n, bool write);
int keel_dmabuf_end(const struct keel_seg *seg, u32 n, bool write);
enum keel_copy_result keel_dmabuf_enter(const struct keel_segs *dst,
					const struct keel_segs *src,
					const struct keel_copy_ctl *ctl);
enum keel_copy_result keel_dmabuf_leave(const struct keel_segs *dst,
					const struct keel_segs *src,
					enum keel_copy_result res);

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

#endif /* KEEL_WALK_H */
