// SPDX-License-Identifier: GPL-2.0
/*
 * Pages of programs that are looked up when they are used: on-demand paging.
 * A core unit, as the walker that it is for.
 */
#include <linux/fs.h>
#include <linux/magic.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <kunit/visibility.h>

#include "keel_walk.h"

/*
 * A file system that is a program answers when it likes to, and not even a
 * signal ends the wait: of its files only pages that are there are used.
 * Return: how many of @n pages from @addr on the flags are good for.
 */
static unsigned long keel_odp_flags(struct mm_struct *mm, u64 addr,
				    unsigned long n, unsigned int *flags)
{
	struct vm_area_struct *vma = vma_lookup(mm, addr);

	if (!vma)
		return n;
	if (vma->vm_file &&
	    file_inode(vma->vm_file)->i_sb->s_magic == FUSE_SUPER_MAGIC)
		*flags |= FOLL_NOFAULT;
	return min(n, (vma->vm_end - addr) >> PAGE_SHIFT);
}

/**
 * keel_odp_pin() - pages of a program, for a while
 * @mm: its address space; the caller keeps the structure
 * @addr: an address; the pages are from the one that has it on
 * @n: how many are wanted
 * @flags: FOLL_WRITE or 0, FOLL_NOFAULT or 0
 * @page: gets them; the caller unpins them
 *
 * They are looked up without a way to let go of the mmap lock, which makes
 * userfaultfd fail, not wait: a peer must not be able to hold up who sends to
 * it.
 *
 * Context: may sleep.
 * Return: how many there are, 1 at least; -EFAULT when the first is not there
 * or cannot be used so, -EINTR for a fatal signal.
 */
long keel_odp_pin(struct mm_struct *mm, u64 addr, unsigned long n,
		  unsigned int flags, struct page **page)
{
	long got;

	if (!mmget_not_zero(mm))
		return -EFAULT;
	got = mmap_read_lock_killable(mm);
	if (!got) {
		addr &= PAGE_MASK;
		n = keel_odp_flags(mm, addr, n, &flags);
		got = pin_user_pages_remote(mm, addr, n, flags, page, NULL);
		mmap_read_unlock(mm);
	}
	/* The last one takes the whole address space down; not in here. */
	mmput_async(mm);
	if (got > 0)
		return got;
	return got == -EINTR ? got : -EFAULT;
}

/**
 * keel_seg_prefetch() - have the pages of a program at hand
 * @seg: what of which memory; all but ODP always is. Whoever takes its key back
 *	is not kept waiting.
 * @write: as if to be written
 * @fault: bring in what is not there; else only see whether it is
 *
 * Context: may sleep.
 * Return: 0; -EFAULT when a page is not there or cannot be used so, -ENOENT
 * when the key is taken back meanwhile, -EINTR for a fatal signal.
 */
int keel_seg_prefetch(const struct keel_seg *seg, bool write, bool fault)
{
	unsigned int flags = (write ? FOLL_WRITE : 0) |
			     (fault ? 0 : FOLL_NOFAULT);
	const struct keel_mem *mem = seg->mem;
	struct page *page[KEEL_ODP_BATCH];
	u64 addr, pages;
	long got;

	if (mem->type != KEEL_MEM_ODP || !seg->len)
		return 0;
	addr = mem->start + seg->off;
	pages = ((addr + seg->len - 1) >> PAGE_SHIFT) -
		(addr >> PAGE_SHIFT) + 1;
	while (pages) {
		if (seg->key && READ_ONCE(seg->key->dead))
			return -ENOENT;
		if (fatal_signal_pending(current))
			return -EINTR;
		got = keel_odp_pin(mem->mm, addr,
				   min_t(u64, pages, KEEL_ODP_BATCH), flags,
				   page);
		if (got < 0)
			return got;
		/* Nothing was written: the pages are as clean as they were. */
		unpin_user_pages(page, got);
		addr += (u64)got << PAGE_SHIFT;
		pages -= got;
		cond_resched();
	}
	return 0;
}
EXPORT_SYMBOL_IF_KUNIT(keel_seg_prefetch);
