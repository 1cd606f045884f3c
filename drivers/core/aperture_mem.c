// SPDX-License-Identifier: GPL-2.0
/*
 * Aperture backend: kernel memory, in blocks as large as the page allocator
 * provides them (Documentation/device-memory.rst). The kernel maps all of them
 * to one contiguous range of virtual addresses.
 */
#include <linux/cc_platform.h>
#include <linux/err.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include <kunit/visibility.h>

#include "keel_aperture.h"

/**
 * struct keel_aperture_mem - an aperture of kernel memory
 * @ap: the aperture
 * @npages: number of pages
 * @kva: its kernel address
 * @order: order of each block, at the index of its first page; other elements
 *	are not used
 * @pages: all pages
 */
struct keel_aperture_mem {
	struct keel_aperture ap;
	unsigned long npages;
	void *kva;
	u8 *order;
	struct page *pages[] __counted_by(npages);
};

static struct keel_aperture_mem *to_mem(struct keel_aperture *ap)
{
	return container_of(ap, struct keel_aperture_mem, ap);
}

static void keel_mem_segment(struct keel_aperture *ap, u64 off,
			     struct keel_aperture_seg *seg)
{
	struct keel_aperture_mem *mem = to_mem(ap);
	unsigned long first = off >> PAGE_SHIFT, end = first + 1;

	while (first && page_to_pfn(mem->pages[first - 1]) + 1 ==
			page_to_pfn(mem->pages[first]))
		first--;
	while (end < mem->npages && page_to_pfn(mem->pages[end - 1]) + 1 ==
				    page_to_pfn(mem->pages[end]))
		end++;
	seg->start = (u64)first << PAGE_SHIFT;
	seg->len = (u64)(end - first) << PAGE_SHIFT;
	seg->pfn = page_to_pfn(mem->pages[first]);
}

static pgprot_t keel_mem_prot(pgprot_t prot)
{
	/* All mappings must be cached, as the kernel's own mapping is. */
	return prot;
}

static void *keel_mem_direct(struct keel_aperture *ap, u64 off, size_t *len)
{
	*len = ap->size - off;
	return to_mem(ap)->kva + off;
}

static void keel_mem_destroy(struct keel_aperture *ap)
{
	struct keel_aperture_mem *mem = to_mem(ap);
	unsigned long i, n;

	vunmap(mem->kva);
	for (i = 0; i < mem->npages && mem->pages[i]; i += n) {
		n = 1UL << mem->order[i];
		__free_pages(mem->pages[i], mem->order[i]);
	}
	kvfree(mem->order);
	kvfree(mem);
}

static const struct keel_aperture_ops keel_aperture_mem_ops = {
	.destroy = keel_mem_destroy,
	.direct = keel_mem_direct,
	.prot = keel_mem_prot,
	.segment = keel_mem_segment,
};

/* Fill mem->pages block by block. On failure, the caller frees the blocks. */
static int keel_mem_populate(struct keel_aperture_mem *mem)
{
	unsigned int order = MAX_PAGE_ORDER;
	unsigned long i = 0, j;

	while (i < mem->npages) {
		gfp_t gfp = GFP_KERNEL | __GFP_ZERO;
		struct page *page;

		order = min_t(unsigned int, order, ilog2(mem->npages - i));
		/* If the size is too large, fail without the OOM killer. */
		gfp |= __GFP_NOWARN;
		gfp |= order ? __GFP_NORETRY : __GFP_RETRY_MAYFAIL;
		page = alloc_pages(gfp, order);
		if (!page) {
			if (!order)
				return -ENOMEM;
			order--;
			continue;
		}
		mem->order[i] = order;
		for (j = 0; j < 1UL << order; j++)
			mem->pages[i + j] = page + j;
		i += 1UL << order;
		cond_resched();
	}
	return 0;
}

/**
 * keel_aperture_mem_create() - create a cleared aperture of kernel memory
 * @size: bytes; a multiple of PAGE_SIZE, and not 0
 *
 * Context: may sleep.
 * Return: the aperture, which the caller frees with keel_aperture_destroy();
 * ERR_PTR(-EINVAL) if @size is more than INT_MAX pages; or ERR_PTR(-ENOMEM).
 */
struct keel_aperture *keel_aperture_mem_create(u64 size)
{
	u64 npages = size >> PAGE_SHIFT;
	struct keel_aperture_mem *mem;
	int ret = -ENOMEM;

	if (npages > INT_MAX || npages > totalram_pages())
		return ERR_PTR(npages > INT_MAX ? -EINVAL : -ENOMEM);
	mem = kvzalloc(struct_size(mem, pages, npages), GFP_KERNEL);
	if (!mem)
		return ERR_PTR(-ENOMEM);
	mem->npages = npages;
	mem->ap.ops = &keel_aperture_mem_ops;
	mem->ap.size = size;
	/* ib_core maps the memory to userspace in clear, like device memory. */
	mem->ap.encrypted = cc_platform_has(CC_ATTR_MEM_ENCRYPT);

	mem->order = kvcalloc(npages, sizeof(*mem->order), GFP_KERNEL);
	if (!mem->order && npages)
		goto err;
	ret = keel_range_init(&mem->ap.range, size, PAGE_SHIFT, GFP_KERNEL);
	if (ret)
		goto err;
	ret = keel_mem_populate(mem);
	if (ret)
		goto err;
	mem->kva = vmap(mem->pages, npages, VM_MAP, PAGE_KERNEL);
	if (!mem->kva) {
		ret = -ENOMEM;
		goto err;
	}
	return &mem->ap;

err:
	keel_aperture_destroy(&mem->ap);
	return ERR_PTR(ret);
}
EXPORT_SYMBOL_IF_KUNIT(keel_aperture_mem_create);
