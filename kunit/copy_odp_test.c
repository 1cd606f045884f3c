// SPDX-License-Identifier: GPL-2.0
/*
 * The segment walker in the memory of a user process: mapped and unmapped
 * memory, and no page stays pinned.
 */
#include <kunit/test.h>
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/prandom.h>
#include <linux/uaccess.h>

#include "keel_copy.h"
#include "whole.h"

/* More pages than the walker looks up at once, and more than a step. */
#define PAGES		40
#define BYTES		(PAGES * PAGE_SIZE)
#define ODP_SEED	0x6b65656cULL

/**
 * struct odp - memory of a user process, and kernel memory to compare it with
 * @addr: user address
 * @mem: user memory for the walker
 * @buf: the same number of random bytes in kernel memory
 * @kmem: kernel memory for the walker
 * @back: room for the same number of bytes
 * @user: @addr as a list; the same bytes as @kernel
 * @kernel: @buf as a list
 */
struct odp {
	unsigned long addr;
	struct keel_mem mem;
	u8 *buf;
	struct keel_mem kmem;
	u8 *back;
	struct keel_segs user, kernel;
};

/* Fault pages in. */
static int odp_fetch(struct odp *o, u64 off, u64 len, bool write)
{
	const struct keel_need need = {
		.kind = KEEL_NEED_PAGES, .mm = o->mem.mm, .write = write,
		.addr = o->mem.start + off, .len = len,
	};

	return keel_need_provide(&need, false, NULL, NULL);
}

/* Return how many pages from @off on are present for a transfer. */
static int odp_present(struct odp *o, u64 off, int pages, bool write)
{
	struct page *page;
	int n;

	for (n = 0; n < pages; n++) {
		if (keel_odp_pin(&o->mem, o->mem.start + off + n * PAGE_SIZE,
				 1, write, &page) != 1)
			break;
		unpin_user_page(page);
	}
	return n;
}

static struct odp *odp_new(struct kunit *test, unsigned long prot)
{
	struct odp *o = kunit_kzalloc(test, sizeof(*o), GFP_KERNEL);
	struct rnd_state rnd;

	KUNIT_ASSERT_NOT_NULL(test, o);
	o->addr = kunit_vm_mmap(test, NULL, 0, BYTES, prot,
				MAP_ANONYMOUS | MAP_PRIVATE, 0);
	KUNIT_ASSERT_NE(test, 0, o->addr);
	KUNIT_ASSERT_LT(test, o->addr, (unsigned long)TASK_SIZE);
	o->buf = kunit_kmalloc(test, BYTES, GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, o->buf);
	o->back = kunit_kzalloc(test, BYTES, GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, o->back);
	prandom_seed_state(&rnd, ODP_SEED);
	prandom_bytes_state(&rnd, o->buf, BYTES);
	o->mem.type = KEEL_MEM_ODP;
	o->mem.mm = current->mm;
	o->mem.start = o->addr;
	o->kmem.type = KEEL_MEM_KERNEL;
	o->kmem.start = (uintptr_t)o->buf;
	keel_segs_one(&o->user, &o->mem, 0, BYTES);
	keel_segs_one(&o->kernel, &o->kmem, 0, BYTES);
	return o;
}

/* PD-3: memory of a process that has ended, so that no worker keeps it, cannot be used. */
static void pd_3_odp_ended(struct kunit *test)
{
	struct mm_struct *mm = kunit_kzalloc(test, sizeof(*mm), GFP_KERNEL);
	struct keel_need need = {
		.kind = KEEL_NEED_PAGES, .mm = mm, .addr = PAGE_SIZE, .len = 8,
	};

	struct keel_mem mem = { .type = KEEL_MEM_ODP, .mm = mm };
	struct page *page;

	KUNIT_ASSERT_NOT_NULL(test, mm);
	/* Nothing else of it is used. */
	KUNIT_EXPECT_EQ(test, -EFAULT, keel_odp_pin(&mem, PAGE_SIZE, 1, false, &page));
	KUNIT_EXPECT_EQ(test, -EFAULT, keel_odp_fetch(&need, false));
	KUNIT_EXPECT_EQ(test, -EFAULT, keel_odp_fetch(&need, true));
}

/* No page is pinned. */
static void odp_no_pins(struct kunit *test, const struct odp *o)
{
	struct page *page;
	int i;

	for (i = 0; i < PAGES; i++) {
		if (get_user_pages_unlocked(o->addr + i * PAGE_SIZE, 1, &page,
					    FOLL_NOFAULT) != 1)
			continue;
		KUNIT_EXPECT_FALSE_MSG(test,
				       folio_maybe_dma_pinned(page_folio(page)),
				       "page %d", i);
		put_page(page);
	}
}

/* Copy in both directions, at odd offsets. */
static void odp_copy(struct kunit *test)
{
	static const u64 lens[] = { 1, 100, PAGE_SIZE, 17 * PAGE_SIZE + 5,
				    BYTES - 4321 };
	struct odp *o = odp_new(test, PROT_READ | PROT_WRITE);
	int i;

	for (i = 0; i < ARRAY_SIZE(lens); i++) {
		KUNIT_ASSERT_EQ(test, 0, clear_user((void __user *)o->addr,
						    BYTES));
		KUNIT_ASSERT_EQ(test, KEEL_COPY_DONE,
				whole_copy(&o->user, 4321, &o->kernel, 77,
					   lens[i], NULL, NULL));
		KUNIT_ASSERT_EQ(test, 0, copy_from_user(o->back,
							(void __user *)o->addr,
							BYTES));
		KUNIT_EXPECT_NULL(test, memchr_inv(o->back, 0, 4321));
		KUNIT_EXPECT_MEMEQ(test, o->back + 4321, o->buf + 77, lens[i]);
		KUNIT_EXPECT_NULL(test, memchr_inv(o->back + 4321 + lens[i], 0,
						   BYTES - 4321 - lens[i]));
		/* Copy back, to another offset. */
		memset(o->buf, 0, 100);
		KUNIT_ASSERT_EQ(test, KEEL_COPY_DONE,
				whole_copy(&o->kernel, 99, &o->user, 4321,
					   lens[i], NULL, NULL));
		KUNIT_EXPECT_MEMEQ(test, o->back + 4321, o->buf + 99, lens[i]);
	}
	odp_no_pins(test, o);
}

/* Copy inside the memory of a process. */
static void odp_to_itself(struct kunit *test)
{
	struct odp *o = odp_new(test, PROT_READ | PROT_WRITE);
	u64 half = BYTES / 2;

	KUNIT_ASSERT_EQ(test, 0, copy_to_user((void __user *)o->addr, o->buf,
					      BYTES));
	KUNIT_EXPECT_EQ(test, KEEL_COPY_DONE,
			whole_copy(&o->user, half + 13, &o->user, 1000,
				   half - 1000, NULL, NULL));
	memcpy(o->buf + half + 13, o->buf + 1000, half - 1000);
	KUNIT_ASSERT_EQ(test, 0, copy_from_user(o->back,
						(void __user *)o->addr, BYTES));
	KUNIT_EXPECT_MEMEQ(test, o->back, o->buf, BYTES);
	odp_no_pins(test, o);
}

struct hole_case {
	const char *desc;
	/* First page and pages of the hole */
	int first, n;
	bool write;
	enum keel_copy_result want;
};

static const struct hole_case hole_cases[] = {
	{ "read, at the start", 0, 1, false, KEEL_COPY_SRC },
	{ "read, in the first lot", 3, 1, false, KEEL_COPY_SRC },
	{ "read, at the end", PAGES - 1, 1, false, KEEL_COPY_SRC },
	{ "read, all", 0, PAGES, false, KEEL_COPY_SRC },
	{ "write, at the start", 0, 1, true, KEEL_COPY_DST },
	{ "write, in the first lot", 3, 1, true, KEEL_COPY_DST },
	{ "write, at the end", PAGES - 1, 1, true, KEEL_COPY_DST },
	{ "write, all", 0, PAGES, true, KEEL_COPY_DST },
};
KUNIT_ARRAY_PARAM_DESC(hole, hole_cases, desc);

static void odp_unmapped(struct kunit *test)
{
	const struct hole_case *c = test->param_value;
	struct odp *o = odp_new(test, PROT_READ | PROT_WRITE);
	const struct keel_segs *dst = c->write ? &o->user : &o->kernel;
	const struct keel_segs *src = c->write ? &o->kernel : &o->user;

	KUNIT_ASSERT_EQ(test, 0, vm_munmap(o->addr + c->first * PAGE_SIZE,
					   c->n * PAGE_SIZE));
	KUNIT_EXPECT_EQ(test, c->want, whole_copy(dst, 0, src, 0, BYTES, NULL, NULL));
	/* The memory before the hole can still be copied. */
	if (c->first)
		KUNIT_EXPECT_EQ(test, KEEL_COPY_DONE,
				whole_copy(dst, 0, src, 0,
					   c->first * PAGE_SIZE, NULL, NULL));
	KUNIT_EXPECT_EQ(test, -EFAULT,
			odp_fetch(o, 0, BYTES, c->write));
	odp_no_pins(test, o);
}

/* The walker does not write to memory that is read-only for the process. */
static void odp_read_only(struct kunit *test)
{
	struct odp *o = odp_new(test, PROT_READ);
	struct keel_seg seg = { .mem = &o->mem, .len = 8 };
	u64 old;

	KUNIT_EXPECT_EQ(test, KEEL_COPY_DST,
			whole_copy(&o->user, 0, &o->kernel, 0, 1, NULL, NULL));
	KUNIT_EXPECT_EQ(test, -EFAULT, whole_atomic(&seg, false, 1, 0, &old));
	KUNIT_EXPECT_EQ(test, -EFAULT,
			odp_fetch(o, 0, 1, true));
	KUNIT_EXPECT_EQ(test, KEEL_COPY_DONE,
			whole_copy(&o->kernel, 0, &o->user, 0, BYTES, NULL, NULL));
	KUNIT_EXPECT_NULL(test, memchr_inv(o->buf, 0, BYTES));
	odp_no_pins(test, o);
}

/* Addresses that are not user addresses. */
static void odp_kernel_addresses(struct kunit *test)
{
	struct odp *o = odp_new(test, PROT_READ | PROT_WRITE);

	o->mem.start = (uintptr_t)o->back;
	KUNIT_EXPECT_EQ(test, KEEL_COPY_SRC,
			whole_copy(&o->kernel, 0, &o->user, 0, 1, NULL, NULL));
	KUNIT_EXPECT_EQ(test, KEEL_COPY_DST,
			whole_copy(&o->user, 0, &o->kernel, 0, 1, NULL, NULL));
	o->mem.start = 0;
	keel_segs_one(&o->user, &o->mem, U64_MAX - 16, 16);
	KUNIT_EXPECT_EQ(test, KEEL_COPY_SRC,
			whole_copy(&o->kernel, 0, &o->user, 0, 16, NULL, NULL));
	KUNIT_EXPECT_NULL(test, memchr_inv(o->back, 0, BYTES));
}

static void odp_atomic(struct kunit *test)
{
	struct odp *o = odp_new(test, PROT_READ | PROT_WRITE);
	struct keel_seg seg = { .mem = &o->mem, .off = 4096 - 8, .len = 8 };
	u64 __user *place = (u64 __user *)(o->addr + seg.off);
	u64 old, now;

	KUNIT_ASSERT_EQ(test, 0, put_user(U32_MAX, place));
	KUNIT_EXPECT_EQ(test, 0, whole_atomic(&seg, false, 1, 0, &old));
	KUNIT_EXPECT_EQ(test, U32_MAX, old);
	KUNIT_ASSERT_EQ(test, 0, get_user(now, place));
	KUNIT_EXPECT_EQ(test, 1ULL << 32, now);
	seg.off++;
	KUNIT_EXPECT_EQ(test, -EINVAL, whole_atomic(&seg, false, 1, 0, &old));
	KUNIT_ASSERT_EQ(test, 0, vm_munmap(o->addr, PAGE_SIZE));
	seg.off--;
	KUNIT_EXPECT_EQ(test, -EFAULT, whole_atomic(&seg, false, 1, 0, &old));
	odp_no_pins(test, o);
}

/* Pages become present when they are requested, and not before. */
static void odp_fetched(struct kunit *test)
{
	struct odp *o = odp_new(test, PROT_READ | PROT_WRITE);

	KUNIT_EXPECT_EQ(test, 0, odp_present(o, 0, PAGES, false));
	KUNIT_EXPECT_EQ(test, 0, odp_fetch(o, 0, BYTES - PAGE_SIZE - 1, true));
	KUNIT_EXPECT_EQ(test, PAGES - 1, odp_present(o, 0, PAGES, true));
	KUNIT_EXPECT_EQ(test, 0, odp_fetch(o, 0, BYTES, true));
	KUNIT_EXPECT_EQ(test, PAGES, odp_present(o, 0, PAGES, true));
	/* A byte of the page after the range. */
	KUNIT_ASSERT_EQ(test, 0, vm_munmap(o->addr + BYTES - PAGE_SIZE,
					   PAGE_SIZE));
	KUNIT_EXPECT_EQ(test, 0, odp_fetch(o, 5, BYTES - PAGE_SIZE - 5, true));
	KUNIT_EXPECT_EQ(test, -EFAULT,
			odp_fetch(o, 5, BYTES - PAGE_SIZE - 4, true));
	odp_no_pins(test, o);
}

/*
 * A transfer does not fault. It reports the missing memory, and continues after
 * the bytes that it has copied. It fails if the memory could not be provided.
 */
static void odp_absent(struct kunit *test)
{
	struct odp *o = odp_new(test, PROT_READ | PROT_WRITE);
	struct keel_copy_ctl ctl;

	keel_copy_ctl_init(&ctl, NULL, NULL);
	KUNIT_EXPECT_EQ(test, 0, odp_fetch(o, 0, 3 * PAGE_SIZE, true));
	KUNIT_EXPECT_EQ(test, KEEL_COPY_ABSENT,
			keel_copy(&o->user, 0, &o->kernel, 0, BYTES, &ctl));
	KUNIT_EXPECT_EQ(test, 3 * PAGE_SIZE, ctl.done);
	KUNIT_EXPECT_EQ(test, 3, odp_present(o, 0, PAGES, true));
	KUNIT_EXPECT_EQ(test, KEEL_NEED_PAGES, ctl.need.kind);
	KUNIT_EXPECT_PTR_EQ(test, o->mem.mm, ctl.need.mm);
	KUNIT_EXPECT_EQ(test, o->addr + 3 * PAGE_SIZE, ctl.need.addr);
	KUNIT_EXPECT_EQ(test, BYTES - 3 * PAGE_SIZE, ctl.need.len);
	KUNIT_EXPECT_TRUE(test, ctl.need.write);
	/* The memory was requested already. */
	keel_need_put(&ctl.need);
	ctl.asked = true;
	KUNIT_EXPECT_EQ(test, KEEL_COPY_ABSENT,
			keel_copy(&o->user, 0, &o->kernel, 0, BYTES, &ctl));
	KUNIT_EXPECT_EQ(test, KEEL_NEED_NONE, ctl.need.kind);
	/* If nothing is missing, nothing is provided. */
	KUNIT_EXPECT_EQ(test, 0, keel_need_provide(&ctl.need, true, NULL, NULL));
	ctl.asked = false;
	/* One page is present now. */
	KUNIT_EXPECT_EQ(test, 0, odp_fetch(o, 3 * PAGE_SIZE, PAGE_SIZE, true));
	KUNIT_EXPECT_EQ(test, KEEL_COPY_ABSENT,
			keel_copy(&o->user, 0, &o->kernel, 0, BYTES, &ctl));
	KUNIT_EXPECT_EQ(test, 4 * PAGE_SIZE, ctl.done);
	/* The memory cannot be provided. */
	ctl.lacks = ctl.need;
	keel_need_put(&ctl.need);
	KUNIT_EXPECT_EQ(test, KEEL_COPY_DST,
			keel_copy(&o->user, 0, &o->kernel, 0, BYTES, &ctl));
	KUNIT_EXPECT_EQ(test, KEEL_NEED_NONE, ctl.need.kind);
	/* The memory is present now. */
	KUNIT_EXPECT_EQ(test, 0, odp_fetch(o, 0, BYTES, true));
	KUNIT_EXPECT_EQ(test, KEEL_COPY_DONE,
			keel_copy(&o->user, 0, &o->kernel, 0, BYTES, &ctl));
	KUNIT_ASSERT_EQ(test, 0, copy_from_user(o->back,
						(void __user *)o->addr, BYTES));
	KUNIT_EXPECT_MEMEQ(test, o->back, o->buf, BYTES);
	odp_no_pins(test, o);
}

/* Memory counts as absent if the mmap_lock is held: the walker never waits. */
static void odp_locked(struct kunit *test)
{
	struct odp *o = odp_new(test, PROT_READ | PROT_WRITE);
	struct keel_seg seg = { .mem = &o->mem, .len = 8 };
	struct keel_copy_ctl ctl;
	u64 old;

	KUNIT_EXPECT_EQ(test, 0, odp_fetch(o, 0, BYTES, true));
	keel_copy_ctl_init(&ctl, NULL, NULL);
	mmap_write_lock(current->mm);
	KUNIT_EXPECT_EQ(test, KEEL_COPY_ABSENT,
			keel_copy(&o->user, 0, &o->kernel, 0, 100, &ctl));
	keel_need_put(&ctl.need);
	KUNIT_EXPECT_EQ(test, -EAGAIN,
			keel_atomic(&seg, false, 1, 0, &old, &ctl));
	keel_need_put(&ctl.need);
	KUNIT_EXPECT_EQ(test, -EAGAIN, odp_fetch(o, 0, 1, false));
	mmap_write_unlock(current->mm);
	KUNIT_EXPECT_EQ(test, 0, ctl.done);
	KUNIT_EXPECT_EQ(test, KEEL_COPY_DONE,
			keel_copy(&o->user, 0, &o->kernel, 0, 100, &ctl));
}

static struct kunit_case odp_cases[] = {
	KUNIT_CASE(odp_copy),
	KUNIT_CASE(pd_3_odp_ended),
	KUNIT_CASE(odp_to_itself),
	KUNIT_CASE_PARAM(odp_unmapped, hole_gen_params),
	KUNIT_CASE(odp_read_only),
	KUNIT_CASE(odp_kernel_addresses),
	KUNIT_CASE(odp_atomic),
	KUNIT_CASE(odp_fetched),
	KUNIT_CASE(odp_absent),
	KUNIT_CASE(odp_locked),
	{}
};

static struct kunit_suite odp_suite = {
	.name = "keel_copy_odp",
	.test_cases = odp_cases,
};
kunit_test_suite(odp_suite);
