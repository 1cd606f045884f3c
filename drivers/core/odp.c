// SPDX-License-Identifier: GPL-2.0
/*
 * On-demand paging: pages of user processes that are looked up at each access.
 * A core unit, like the segment walker, which uses it.
 *
 * A transfer never waits here, because it has references and locks that others
 * need. It uses pages that are present, if the mmap_lock is free. Otherwise the
 * process that owns the page faults it in, while the transfer holds nothing.
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
 * Returns true if faults never depend on another process: for anonymous memory,
 * shared memory (tmpfs, memfd) and huge pages. A file system can be implemented
 * by a user process that does not answer, and even a signal may not end that
 * wait. Of other files, keel only uses pages that are present.
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
	/* /dev is tmpfs, too; its device files have other memory. */
	return S_ISREG(inode->i_mode) && inode->i_sb->s_magic == TMPFS_MAGIC;
}

/*
 * Marking a page as dirty may wait for its file system, so keel only reads
 * pages of other files. Writes to a private mapping do not reach the file.
 */
static bool keel_odp_may_use(struct vm_area_struct *vma, bool write)
{
	if (!(vma->vm_flags & (write ? VM_WRITE : VM_READ)))
		return false;
	return !write || !(vma->vm_flags & VM_SHARED) ||
	       keel_odp_may_fault(vma);
}

/*
 * Pin at most @n pages from that of @addr on. The lookup cannot drop the
 * mmap_lock, so userfaultfd fails instead of waiting.
 *
 * Context: the mmap_lock is held.
 * Return: the number of pages, at least 1; -EAGAIN if the page is not present
 * and a fault may help; -EFAULT if it cannot be used; -EINTR for a fatal
 * signal.
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

/*
 * Keep the content of the memory, without a reference on it, which could become the last
 * one. Returns false if the process is about to exit.
 */
static bool keel_odp_enter(struct keel_worker *worker, struct mm_struct *mm)
{
	/* The process itself has a reference. */
	return mm == current->mm || (worker && keel_worker_hold_mm(worker));
}

static void keel_odp_leave(struct keel_worker *worker, struct mm_struct *mm)
{
	if (mm != current->mm)
		keel_worker_release_mm(worker);
}

/**
 * keel_odp_pin() - pin pages of a user process that are present
 * @mem: its memory; ODP
 * @addr: an address in the first page
 * @n: maximum number of pages
 * @write: they will be written
 * @page: gets the pages; the caller unpins them
 *
 * Waits for no fault, and not for the mmap_lock. Of hugetlbfs, the kernel takes a lock that
 * other threads have while they fault a page in, zero it, or unmap it.
 *
 * Context: process context; the caller may hold any mutex.
 * Return: the number of pages, at least 1; -EAGAIN if the first is not present
 * or the mmap_lock is taken; -EFAULT if it cannot be used.
 */
long keel_odp_pin(const struct keel_mem *mem, u64 addr, unsigned long n, bool write,
		  struct page **page)
{
	unsigned int flags = FOLL_NOFAULT | (write ? FOLL_WRITE : 0);
	struct mm_struct *mm = mem->mm;
	long got = -EAGAIN;

	if (!keel_odp_enter(mem->worker, mm))
		return -EFAULT;
	if (mmap_read_trylock(mm)) {
		got = keel_odp_lookup(mm, addr, n, flags, page);
		mmap_read_unlock(mm);
	}
	keel_odp_leave(mem->worker, mm);
	/* The caller decides whether a signal ends the transfer. */
	return got == -EINTR ? -EAGAIN : got;
}
EXPORT_SYMBOL_IF_KUNIT(keel_odp_pin);

static int keel_odp_lock(const struct keel_need *need, bool wait)
{
	if (mmap_read_trylock(need->mm))
		return 0;
	return wait ? keel_worker_lock_mm(need->worker, need->mm) : -EAGAIN;
}

/* Fault in a few pages from @addr on, and unpin them at once. */
static long keel_odp_fetch_some(const struct keel_need *need, u64 addr,
				unsigned long n, bool wait)
{
	struct page *page[KEEL_ODP_BATCH];
	long got;

	if (!keel_odp_enter(need->worker, need->mm))
		return -EFAULT;
	got = keel_odp_lock(need, wait);
	if (!got) {
		got = keel_odp_lookup(need->mm, addr, n,
				      need->write ? FOLL_WRITE : 0, page);
		mmap_read_unlock(need->mm);
	}
	keel_odp_leave(need->worker, need->mm);
	/* Nothing was written, so the pages need not be marked dirty. */
	if (got > 0)
		unpin_user_pages(page, got);
	return got;
}

/**
 * keel_odp_fetch() - fault in pages of a user process
 * @need: the pages; KEEL_NEED_PAGES
 * @wait: the caller is the worker of that process: wait for the mmap_lock
 *
 * Context: may sleep; the caller holds no lock and no reference on a key.
 * Return: 0; -EFAULT if a page cannot be used; -EINTR if the process is killed;
 * -EAGAIN without @wait if the mmap_lock is taken.
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
