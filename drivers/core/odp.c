// SPDX-License-Identifier: GPL-2.0
/*
 * Pages of user processes that are looked up when they are used: on-demand
 * paging. A core unit, as the walker that it is for.
 *
 * A transfer never waits here, for it has keys and locks that others want: it
 * uses pages that are present, if the mmap_lock is free. Otherwise the page is
 * brought in by the process that owns it, while the transfer holds nothing.
 */
#include <linux/fs.h>
#include <linux/hugetlb_inline.h>
#include <linux/magic.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <kunit/visibility.h>

#include "compat.h"
#include "keel_copy.h"
#include "keel_worker.h"

/*
 * Memory whose faults end without anybody else's help: anonymous, shared
 * memory (tmpfs, memfd), huge pages. A file system can be a user process that
 * does not answer, and not even a signal ends that wait: of other files only
 * pages that are present are used.
 */
static bool keel_odp_may_fault(struct vm_area_struct *vma)
{
	const struct inode *inode;

	if (vma->vm_flags & (VM_IO | VM_PFNMAP))
		return false;
	if (vma_is_anonymous(vma) || is_vm_hugetlb_page(vma))
		return true;
	if (!vma->vm_file)
		return false;
	inode = file_inode(vma->vm_file);
	/* /dev is tmpfs as well, and its devices are anything. */
	return S_ISREG(inode->i_mode) && inode->i_sb->s_magic == TMPFS_MAGIC;
}

/*
 * To mark a page as written may wait for its file system, so pages that belong
 * to another file are only read. Bytes that are written in a private mapping are
 * not the file's.
 */
static bool keel_odp_may_use(struct vm_area_struct *vma, bool write)
{
	if (!(vma->vm_flags & (write ? VM_WRITE : VM_READ)))
		return false;
	return !write || !(vma->vm_flags & VM_SHARED) ||
	       keel_odp_may_fault(vma);
}

/*
 * The pages from the one with @addr on, @n at most. There is no way to let go
 * of the mmap_lock in between, which makes userfaultfd fail and not wait.
 *
 * Context: the mmap_lock is held.
 * Return: how many, 1 at least; -EAGAIN: not present, and a fault may help;
 * -EFAULT: not to be had; -EINTR for a fatal signal.
 */
static long keel_odp_lookup(struct mm_struct *mm, u64 addr, unsigned long n,
			    unsigned int flags, struct page **page)
{
	struct vm_area_struct *vma;
	bool may_fault;
	long got;

	addr = untagged_addr_remote(mm, addr) & PAGE_MASK;
	vma = vma_lookup(mm, addr);
	if (!vma || !keel_odp_may_use(vma, flags & FOLL_WRITE))
		return -EFAULT;
	may_fault = keel_odp_may_fault(vma);
	if (!may_fault)
		flags |= FOLL_NOFAULT;
	n = min(n, (vma->vm_end - addr) >> PAGE_SHIFT);
	got = pin_user_pages_remote(mm, addr, n, flags, page, NULL);
	if (got > 0 || got == -EINTR)
		return got;
	return flags & FOLL_NOFAULT && may_fault ? -EAGAIN : -EFAULT;
}

/**
 * keel_odp_pin() - pages of a user process that are present, for a while
 * @mm: its address space; the caller keeps the structure
 * @addr: an address; the pages are from the one that has it on
 * @n: how many are wanted
 * @write: they are to be written
 * @page: gets them; the caller unpins them
 *
 * Waits for nobody.
 *
 * Context: process context, with any mutex.
 * Return: how many there are, 1 at least; -EAGAIN when the first is not present
 * or the mmap_lock is taken, -EFAULT when it is not to be had.
 */
long keel_odp_pin(struct mm_struct *mm, u64 addr, unsigned long n, bool write,
		  struct page **page)
{
	unsigned int flags = FOLL_NOFAULT | (write ? FOLL_WRITE : 0);
	long got = -EAGAIN;

	if (!mmget_not_zero(mm))
		return -EFAULT;
	if (mmap_read_trylock(mm)) {
		got = keel_odp_lookup(mm, addr, n, flags, page);
		mmap_read_unlock(mm);
	}
	/* The last one takes the whole address space down; not in here. */
	mmput_async(mm);
	/* Only the copy knows what else a signal ends. */
	return got == -EINTR ? -EAGAIN : got;
}
EXPORT_SYMBOL_IF_KUNIT(keel_odp_pin);

static int keel_odp_lock(const struct keel_need *need, bool wait)
{
	if (mmap_read_trylock(need->mm))
		return 0;
	return wait ? keel_worker_lock_mm(need->worker, need->mm) : -EAGAIN;
}

/* A few pages from @addr on; they are let go at once. */
static long keel_odp_fetch_some(const struct keel_need *need, u64 addr,
				unsigned long n, bool wait)
{
	struct page *page[KEEL_ODP_BATCH];
	long got;

	if (!mmget_not_zero(need->mm))
		return -EFAULT;
	got = keel_odp_lock(need, wait);
	if (!got) {
		got = keel_odp_lookup(need->mm, addr, n,
				      need->write ? FOLL_WRITE : 0, page);
		mmap_read_unlock(need->mm);
	}
	mmput_async(need->mm);
	/* Nothing was written: the pages are as clean as they were. */
	if (got > 0)
		unpin_user_pages(page, got);
	return got;
}

/**
 * keel_odp_fetch() - bring pages of a user process in
 * @need: which; KEEL_NEED_PAGES
 * @wait: the caller is the worker of that process: wait for the mmap_lock
 *
 * Context: may sleep; no lock is held and no key in use.
 * Return: 0; -EFAULT when one cannot be used so, -EINTR when the process is
 * killed, -EAGAIN without @wait when the mmap_lock is taken.
 */
int keel_odp_fetch(const struct keel_need *need, bool wait)
{
	u64 addr = need->addr;
	u64 pages = ((addr + need->len - 1) >> PAGE_SHIFT) -
		    (addr >> PAGE_SHIFT) + 1;
	long got;

	while (pages) {
		if (fatal_signal_pending(current))
			return -EINTR;
		got = keel_odp_fetch_some(need, addr,
					  min_t(u64, pages, KEEL_ODP_BATCH),
					  wait);
		if (got < 0)
			return got;
		addr += (u64)got << PAGE_SHIFT;
		pages -= got;
		cond_resched();
	}
	return 0;
}
EXPORT_SYMBOL_IF_KUNIT(keel_odp_fetch);
