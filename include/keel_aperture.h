/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The aperture: the memory of a device, independent of its backend.
 *
 * The rest of keel uses offsets from 0 to @size. The backend provides the memory:
 * kernel memory, or a BAR of a PCI function. It translates an offset to physical
 * memory, defines how userspace may map it, and implements access by the kernel.
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
 * struct keel_aperture_seg - a physically contiguous extent
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
 * enum keel_atomic_op - atomic operation on 8 bytes
 * @KEEL_ATOMIC_ADD: add the operand
 * @KEEL_ATOMIC_SWAP: store the new value if the old one equals the operand
 * @KEEL_ATOMIC_STORE: store the new value; the old one is not needed
 */
enum keel_atomic_op {
	KEEL_ATOMIC_ADD,
	KEEL_ATOMIC_SWAP,
	KEEL_ATOMIC_STORE,
};

/**
 * struct keel_aperture_ops - a backend
 * @segment: find the largest physically contiguous extent around offset @off, which
 *	is below the size
 * @prot: protection of user mappings, from that of the vma
 * @direct: kernel address of offset @off, which is below the size; @len gets the
 *	number of bytes that are contiguous from there
 * @order: order accesses to the addresses of @direct. The caller calls it before it
 *	reads bytes that another thread or device has announced. It calls it
 *	after it wrote bytes, before it announces them. NULL if the locks of both
 *	sides do so.
 * @atomic: atomically change 8 aligned bytes at an address of @direct, and return
 *	their old value; orders as @order does. It is atomic against itself only.
 *	NULL if the atomic instructions of the processor work, through every
 *	mapping.
 * @destroy: free the backend and the aperture
 */
struct keel_aperture_ops {
	void (*segment)(struct keel_aperture *ap, u64 off,
			struct keel_aperture_seg *seg);
	pgprot_t (*prot)(pgprot_t prot);
	void *(*direct)(struct keel_aperture *ap, u64 off, size_t *len);
	void (*order)(struct keel_aperture *ap);
	u64 (*atomic)(struct keel_aperture *ap, u64 *word,
		      enum keel_atomic_op op, u64 operand, u64 new);
	void (*destroy)(struct keel_aperture *ap);
};

/**
 * struct keel_aperture - the memory of a device
 * @ops: its backend
 * @size: bytes; a multiple of PAGE_SIZE
 * @range: its allocated ranges
 * @encrypted: memory encryption: userspace would not see the bytes that the kernel
 *	sees
 */
struct keel_aperture {
	const struct keel_aperture_ops *ops;
	u64 size;
	struct keel_range range;
	bool encrypted;
};

/**
 * struct keel_bar_window - a part of a BAR
 * @bar: number of the BAR; in a request, negative: the largest that is usable
 * @offset: offset in the BAR where the part starts
 * @size: its bytes; in a request, 0: up to the end of the BAR, but less
 *	than 4 GiB
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
void keel_aperture_zero(struct keel_aperture *ap, u64 off, u64 len);
void keel_aperture_free(struct keel_aperture *ap, u64 start, u64 len);
void keel_aperture_segment(struct keel_aperture *ap, u64 start, u64 len,
			   u64 off, struct keel_aperture_seg *seg);
void *keel_aperture_direct(struct keel_aperture *ap, u64 off, size_t *len);

static inline void keel_aperture_order(struct keel_aperture *ap)
{
	if (ap->ops->order)
		ap->ops->order(ap);
}

#endif /* KEEL_APERTURE_H */
