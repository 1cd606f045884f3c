// SPDX-License-Identifier: GPL-2.0
/*
 * Aperture backend: a BAR of a PCI function, and the choice of that BAR. Only
 * pci.c uses PCI interfaces.
 *
 * The kernel and userspace map the BAR write-combining. So one processor may
 * hold back stores that others do not see yet, and may execute loads early.
 * keel_bar_order() orders the bytes against whatever announces them. A second
 * guest may change any byte of the BAR at any time.
 */
#include <linux/err.h>
#include <linux/io.h>
#include <linux/ioport.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <kunit/visibility.h>

#include "compat.h"
#include "keel_aperture.h"

/* Maximum size: ib_core keeps the length of a buffer in 32 bits. */
#define KEEL_BAR_MAX	(U32_MAX & PAGE_MASK)

/**
 * struct keel_aperture_bar - an aperture behind a BAR
 * @ap: the aperture
 * @addr: its physical address
 * @kva: its kernel address
 * @lock: serializes atomic operations
 */
struct keel_aperture_bar {
	struct keel_aperture ap;
	u64 addr;
	void *kva;
	spinlock_t lock;
};

static struct keel_aperture_bar *to_bar(struct keel_aperture *ap)
{
	return container_of(ap, struct keel_aperture_bar, ap);
}

static void keel_bar_segment(struct keel_aperture *ap, u64 off,
			     struct keel_aperture_seg *seg)
{
	seg->start = 0;
	seg->len = ap->size;
	seg->pfn = to_bar(ap)->addr >> PAGE_SHIFT;
}

static pgprot_t keel_bar_prot(pgprot_t prot)
{
	return pgprot_writecombine(prot);
}

static void keel_bar_order(struct keel_aperture *ap)
{
	/* Pairs with the barrier of the thread that announces the bytes. */
	mb();
}

static void *keel_bar_direct(struct keel_aperture *ap, u64 off, size_t *len)
{
	*len = ap->size - off;
	return to_bar(ap)->kva + off;
}

/* The lock makes the load and the store one operation. */
static u64 keel_bar_change(struct keel_aperture_bar *bar, u64 *word,
			   enum keel_atomic_op op, u64 operand, u64 new)
	__must_hold(&bar->lock)
{
	u64 old = READ_ONCE(*word);

	if (op == KEEL_ATOMIC_ADD)
		WRITE_ONCE(*word, old + operand);
	else if (op == KEEL_ATOMIC_STORE || old == operand)
		WRITE_ONCE(*word, new);
	return old;
}

/*
 * Atomic instructions of the processor cannot be used: on uncached memory, some
 * processors stop the whole machine for them, and others fault. keel's own lock
 * makes the operation atomic among all queue pairs, but not against others;
 * ibv_query_device() reports that.
 */
static u64 keel_bar_atomic(struct keel_aperture *ap, u64 *word,
			   enum keel_atomic_op op, u64 operand, u64 new)
{
	struct keel_aperture_bar *bar = to_bar(ap);
	u64 old;

	guard(spinlock)(&bar->lock);
	keel_bar_order(ap);
	old = keel_bar_change(bar, word, op, operand, new);
	/* Before the next operation takes the lock. */
	keel_bar_order(ap);
	return old;
}

static void keel_bar_destroy(struct keel_aperture *ap)
{
	struct keel_aperture_bar *bar = to_bar(ap);

	memunmap(bar->kva);
	kfree(bar);
}

static const struct keel_aperture_ops keel_aperture_bar_ops = {
	.atomic = keel_bar_atomic,
	.destroy = keel_bar_destroy,
	.direct = keel_bar_direct,
	.order = keel_bar_order,
	.prot = keel_bar_prot,
	.segment = keel_bar_segment,
};

/* For memory that is mapped already. On failure, the caller still owns it. */
VISIBLE_IF_KUNIT struct keel_aperture *keel_aperture_bar_over(u64 addr,
							      void *kva,
							      u64 size)
{
	struct keel_aperture_bar *bar = kzalloc_obj(*bar);

	if (!bar)
		return ERR_PTR(-ENOMEM);
	spin_lock_init(&bar->lock);
	bar->addr = addr;
	bar->kva = kva;
	bar->ap.ops = &keel_aperture_bar_ops;
	bar->ap.size = size;
	if (keel_range_init(&bar->ap.range, size, PAGE_SHIFT, GFP_KERNEL)) {
		kfree(bar);
		return ERR_PTR(-ENOMEM);
	}
	return &bar->ap;
}
EXPORT_SYMBOL_IF_KUNIT(keel_aperture_bar_over);

/**
 * keel_aperture_bar_create() - create an aperture of memory behind a BAR
 * @addr: its physical address; the caller has requested the region
 * @size: bytes; both are multiples of PAGE_SIZE, and @size is not 0
 *
 * Context: may sleep.
 * Return: the aperture, which the caller frees with keel_aperture_destroy(); or
 * ERR_PTR(-ENOMEM).
 */
struct keel_aperture *keel_aperture_bar_create(u64 addr, u64 size)
{
	void *kva = memremap(addr, size, MEMREMAP_WC);
	struct keel_aperture *ap;

	if (!kva)
		return ERR_PTR(-ENOMEM);
	ap = keel_aperture_bar_over(addr, kva, size);
	if (IS_ERR(ap))
		memunmap(kva);
	return ap;
}

/* Returns why a BAR cannot be device memory, or NULL if it can. */
static const char *keel_bar_unfit(const struct resource *bar)
{
	if (!resource_size(bar) || !bar->flags)
		return "is not there";
	if (!(bar->flags & IORESOURCE_MEM))
		return "is no memory";
	if (!(bar->flags & IORESOURCE_PREFETCH))
		return "is not prefetchable: a read may do something there";
	if (bar->flags & (IORESOURCE_UNSET | IORESOURCE_DISABLED) ||
	    !bar->start)
		return "has no address";
	if (resource_size(bar) < PAGE_SIZE)
		return "is smaller than a page";
	/* Its first page would contain bytes of another resource. */
	if (!PAGE_ALIGNED(bar->start))
		return "does not start with a page";
	if (bar->end >> PAGE_SHIFT > ULONG_MAX)
		return "is beyond what this kernel can map";
	return NULL;
}

static int keel_bar_largest(const struct resource *bars, int n)
{
	int i, best = -1;

	for (i = 0; i < n; i++)
		if (!keel_bar_unfit(&bars[i]) &&
		    (best < 0 ||
		     resource_size(&bars[i]) > resource_size(&bars[best])))
			best = i;
	return best;
}

/**
 * keel_bar_choose() - choose the part of a BAR that becomes device memory
 * @bars: the BARs of a function
 * @n: number of BARs; a BAR that does not exist has size 0
 * @wish: the request of the administrator
 * @window: gets the chosen part
 * @why: gets the cause of an error: it applies to BAR &window->bar, or to all
 *	BARs if that is negative
 *
 * Return: 0; -ENODEV if no such BAR is usable; -EINVAL if the part does not fit
 * the BAR, is not made of whole pages, or has 4 GiB or more.
 */
int keel_bar_choose(const struct resource *bars, int n,
		    const struct keel_bar_window *wish,
		    struct keel_bar_window *window, const char **why)
{
	u64 len;

	*window = *wish;
	if (wish->bar < 0) {
		window->bar = keel_bar_largest(bars, n);
		*why = "is prefetchable memory of a page or more";
		if (window->bar < 0)
			return -ENODEV;
	}
	*why = window->bar < n ? keel_bar_unfit(&bars[window->bar]) :
				 "is not there";
	if (*why)
		return -ENODEV;
	len = resource_size(&bars[window->bar]) & PAGE_MASK;
	if (!PAGE_ALIGNED(wish->offset | wish->size)) {
		*why = "can be divided between pages only (bar_offset, bar_size)";
		return -EINVAL;
	}
	if (wish->offset >= len || wish->size > len - wish->offset) {
		*why = "is smaller than that (bar_offset, bar_size)";
		return -EINVAL;
	}
	if (wish->size > KEEL_BAR_MAX) {
		*why = "can be used for less than 4 GiB only (bar_size)";
		return -EINVAL;
	}
	if (!wish->size)
		window->size = min_t(u64, len - wish->offset, KEEL_BAR_MAX);
	return 0;
}
EXPORT_SYMBOL_IF_KUNIT(keel_bar_choose);
