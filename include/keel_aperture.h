/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The aperture: a device's memory, whatever it is made of.
 *
 * Users (dm, and the data path) see offsets from 0 to @size. What is behind
 * them is the backend's affair: kernel memory today. A backend says where an
 * offset is in physical memory, how user space may map it, and how the kernel
 * reads and writes it.
 */
#ifndef KEEL_APERTURE_H
#define KEEL_APERTURE_H

#include <linux/mm_types.h>
#include <linux/types.h>

#include "keel_range.h"

struct keel_aperture;

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
 * struct keel_aperture_ops - a backend
 * @segment: the largest stretch around offset @off that is one in physical
 *	memory; @off is below the size
 * @prot: what user mappings of it need, given the protection of the vma
 * @zero: clear bytes
 * @read: copy bytes out
 * @write: copy bytes in
 * @direct: where the kernel sees offset @off, which is below the size; @len
 *	gets the bytes that follow each other from there
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
	void (*destroy)(struct keel_aperture *ap);
};

/**
 * struct keel_aperture - a device's memory
 * @ops: its backend
 * @size: bytes; a multiple of PAGE_SIZE
 * @range: what of it is taken
 */
struct keel_aperture {
	const struct keel_aperture_ops *ops;
	u64 size;
	struct keel_range range;
};

struct keel_aperture *keel_aperture_mem_create(u64 size);

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

#endif /* KEEL_APERTURE_H */
