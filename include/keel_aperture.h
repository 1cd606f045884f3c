/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The aperture: a device's memory, whatever it is made of.
 *
 * Users (dm, and the data path) see offsets from 0 to @size. The memory behind
 * them is the backend's affair: the kernel's, or a BAR of a PCI function. A
 * backend says where an offset is in physical memory, how user space may map
 * it, and how the kernel reads and writes it.
 */
#ifndef KEEL_APERTURE_H
#define KEEL_APERTURE_H

#include <linux/mm_types.h>
#include <linux/types.h>

#include "compat.h"
#include "keel_range.h"

struct keel_aperture;
struct resource;

/**
 * struct keel_aperture_seg - a stretch that is one in physical memory
 * @start: its first offset
 * @len: its bytes; both are multiples of PAGE_SIZE
 * @pfn: first page frame
 */
struct keel_aperture_seg {
	u64 start;
	u64 len;
	unsigned long pfn;
};

/**
 * enum keel_atomic_op - how to change 8 bytes
 * @KEEL_ATOMIC_ADD: add the operand
 * @KEEL_ATOMIC_SWAP: store the new value if they are the operand
 * @KEEL_ATOMIC_STORE: store the new value; it is of no interest what they were
 */
enum keel_atomic_op {
	KEEL_ATOMIC_ADD,
	KEEL_ATOMIC_SWAP,
	KEEL_ATOMIC_STORE,
};

/**
 * struct keel_aperture_ops - a backend
 * @segment: the largest stretch around offset @off that is one in physical
 *	memory; @off is below the size
 * @prot: what user mappings of it need, given the protection of the vma
 * @zero: clear bytes
 * @read: copy bytes out
 * @write: copy bytes in
 * @direct: where the kernel sees offset @off, which is below the size; @len
 *	gets the bytes that follow each other from there
 * @order: called after what tells the kernel of bytes at @direct's addresses
 *	and before it reads them, and after it wrote some and before it tells
 *	others; NULL where the locks of the one and the other do
 * @atomic: change 8 aligned bytes at one of @direct's addresses in one go, and
 *	say what they were; orders as @order does. Atomic against itself. NULL
 *	where the processor's own atomics work, through whichever mapping
 * @destroy: free the backend and the aperture
 *
 * @zero, @read and @write get ranges that were checked; they may sleep.
 */
struct keel_aperture_ops {
	void (*segment)(struct keel_aperture *ap, u64 off,
			struct keel_aperture_seg *seg);
	pgprot_t (*prot)(pgprot_t prot);
	void (*zero)(struct keel_aperture *ap, u64 off, u64 len);
	void (*read)(struct keel_aperture *ap, u64 off, void *to, size_t len);
	void (*write)(struct keel_aperture *ap, u64 off, const void *from,
		      size_t len);
	void *(*direct)(struct keel_aperture *ap, u64 off, size_t *len);
	void (*order)(struct keel_aperture *ap);
	u64 (*atomic)(struct keel_aperture *ap, u64 *word,
		      enum keel_atomic_op op, u64 operand, u64 new);
	void (*destroy)(struct keel_aperture *ap);
};

/**
 * struct keel_aperture - a device's memory
 * @ops: its backend
 * @size: bytes; a multiple of PAGE_SIZE
 * @range: what of it is taken
 * @encrypted: programs would see it otherwise than the kernel does
 */
struct keel_aperture {
	const struct keel_aperture_ops *ops;
	u64 size;
	struct keel_range range;
	bool encrypted;
};

/**
 * struct keel_bar_window - which part of which BAR
 * @bar: its number; as a wish, negative: the largest that will do
 * @offset: where in the BAR it starts
 * @size: its bytes; as a wish, 0: all there are from @offset on
 */
struct keel_bar_window {
	int bar;
	u64 offset;
	u64 size;
};

struct keel_aperture *keel_aperture_mem_create(u64 size);
struct keel_aperture *keel_aperture_bar_create(u64 addr, u64 size);
int keel_bar_choose(const struct resource *bars, int n,
		    const struct keel_bar_window *wish,
		    struct keel_bar_window *window, const char **why);
#if IS_ENABLED(CONFIG_KUNIT)
struct keel_aperture *keel_aperture_bar_over(u64 addr, void *kva, u64 size);
#endif

void keel_aperture_destroy(struct keel_aperture *ap);
int keel_aperture_alloc(struct keel_aperture *ap, u64 len, u32 log_align,
			u64 *start);
void keel_aperture_free(struct keel_aperture *ap, u64 start, u64 len);
void keel_aperture_segment(struct keel_aperture *ap, u64 start, u64 len,
			   u64 off, struct keel_aperture_seg *seg);
int keel_aperture_read(struct keel_aperture *ap, u64 off, void *to,
		       size_t len);
int keel_aperture_write(struct keel_aperture *ap, u64 off, const void *from,
			size_t len);
void *keel_aperture_direct(struct keel_aperture *ap, u64 off, size_t *len);

static inline void keel_aperture_order(struct keel_aperture *ap)
{
	if (ap->ops->order)
		ap->ops->order(ap);
}

#endif /* KEEL_APERTURE_H */
