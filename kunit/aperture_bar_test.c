// SPDX-License-Identifier: GPL-2.0
/*
 * The aperture behind a BAR: which part of which BAR it uses, and whether its
 * bytes are those of the BAR. The bytes here are kernel memory.
 * scripts/bar-test checks the bytes of an emulated BAR from outside a guest.
 */
#include <kunit/test.h>
#include <linux/err.h>
#include <linux/ioport.h>
#include <linux/mm.h>
#include <linux/sizes.h>

#include "keel_aperture.h"

#define P		((u64)PAGE_SIZE)
#define BARS		6
#define GOOD		(IORESOURCE_MEM | IORESOURCE_PREFETCH)
#define MOST		((u64)(U32_MAX & PAGE_MASK))
#define AT		0xf0000000ULL

/* A BAR of @_len bytes, at an aligned address. */
#define BAR(_flags, _len)	{ .start = AT, .end = AT + (_len) - 1,	\
				  .flags = _flags }

struct choose_case {
	const char *desc;
	struct resource bars[BARS];
	struct keel_bar_window wish;
	int ret;
	struct keel_bar_window want;	/* only @bar, if refused */
	const char *why;		/* part of the error text */
};

static const struct choose_case choose_cases[] = {
	{ "ivshmem", { BAR(IORESOURCE_MEM, 256), {},
		       BAR(GOOD | IORESOURCE_MEM_64, SZ_64M) },
	  { -1, 0, 0 }, 0, { 2, 0, SZ_64M } },
	{ "the largest of several", { BAR(GOOD, SZ_1M), BAR(GOOD, SZ_4M),
				      BAR(GOOD, SZ_2M) },
	  { -1, 0, 0 }, 0, { 1, 0, SZ_4M } },
	{ "the first of the largest", { {}, BAR(GOOD, SZ_1M), BAR(GOOD, SZ_1M) },
	  { -1, 0, 0 }, 0, { 1, 0, SZ_1M } },
	{ "the last one", { [5] = BAR(GOOD, SZ_1M) },
	  { -1, 0, 0 }, 0, { 5, 0, SZ_1M } },
	{ "a larger one that will not do", { BAR(IORESOURCE_MEM, SZ_4M),
					     BAR(GOOD, SZ_1M) },
	  { -1, 0, 0 }, 0, { 1, 0, SZ_1M } },
	{ "a larger one without an address",
	  { BAR(GOOD | IORESOURCE_UNSET, SZ_4M), BAR(GOOD, SZ_1M) },
	  { -1, 0, 0 }, 0, { 1, 0, SZ_1M } },
	{ "the one that was named", { BAR(GOOD, SZ_4M), BAR(GOOD, SZ_1M) },
	  { 1, 0, 0 }, 0, { 1, 0, SZ_1M } },
	{ "a single page", { BAR(GOOD, PAGE_SIZE) },
	  { -1, 0, 0 }, 0, { 0, 0, PAGE_SIZE } },
	{ "more than the core counts", { BAR(GOOD, SZ_8G) },
	  { -1, 0, 0 }, 0, { 0, 0, MOST } },
	{ "its end", { BAR(GOOD, SZ_8G) },
	  { -1, SZ_8G - PAGE_SIZE, 0 }, 0, { 0, SZ_8G - PAGE_SIZE, PAGE_SIZE } },
	{ "a part", { BAR(GOOD, SZ_64M) },
	  { -1, SZ_16M, 3 * PAGE_SIZE }, 0, { 0, SZ_16M, 3 * PAGE_SIZE } },
	{ "a part up to the end", { BAR(GOOD, SZ_64M) },
	  { 0, SZ_32M, SZ_32M }, 0, { 0, SZ_32M, SZ_32M } },

	{ "none at all", {}, { -1, 0, 0 }, -ENODEV, { -1 }, "prefetchable" },
	{ "none that will do", { BAR(IORESOURCE_MEM, SZ_1M),
				 BAR(IORESOURCE_IO, 32),
				 BAR(GOOD, PAGE_SIZE / 2) },
	  { -1, 0, 0 }, -ENODEV, { -1 }, "prefetchable" },
	{ "one that is not there", { BAR(GOOD, SZ_1M) },
	  { 1, 0, 0 }, -ENODEV, { 1 }, "not there" },
	{ "one beyond the last", { BAR(GOOD, SZ_1M) },
	  { BARS, 0, 0 }, -ENODEV, { BARS }, "not there" },
	{ "ports", { BAR(IORESOURCE_IO, SZ_1M) },
	  { 0, 0, 0 }, -ENODEV, { 0 }, "no memory" },
	{ "registers", { BAR(IORESOURCE_MEM, SZ_1M) },
	  { 0, 0, 0 }, -ENODEV, { 0 }, "not prefetchable" },
	{ "no address", { BAR(GOOD | IORESOURCE_UNSET, SZ_1M) },
	  { 0, 0, 0 }, -ENODEV, { 0 }, "no address" },
	{ "an address of 0", { { .end = SZ_1M - 1, .flags = GOOD } },
	  { 0, 0, 0 }, -ENODEV, { 0 }, "no address" },
	{ "too small", { BAR(GOOD, PAGE_SIZE / 2) },
	  { 0, 0, 0 }, -ENODEV, { 0 }, "smaller than a page" },
	{ "in the middle of a page",
	  { { .start = AT + 16, .end = AT + SZ_1M, .flags = GOOD } },
	  { 0, 0, 0 }, -ENODEV, { 0 }, "start with a page" },

	{ "a part in the middle of a page", { BAR(GOOD, SZ_1M) },
	  { 0, 16, 0 }, -EINVAL, { 0 }, "between pages" },
	{ "a part of half a page", { BAR(GOOD, SZ_1M) },
	  { 0, 0, PAGE_SIZE / 2 }, -EINVAL, { 0 }, "between pages" },
	{ "a part that starts at the end", { BAR(GOOD, SZ_1M) },
	  { 0, SZ_1M, 0 }, -EINVAL, { 0 }, "smaller than that" },
	{ "a part that ends behind the end", { BAR(GOOD, SZ_1M) },
	  { 0, PAGE_SIZE, SZ_1M }, -EINVAL, { 0 }, "smaller than that" },
	{ "a part that wraps", { BAR(GOOD, SZ_1M) },
	  { 0, PAGE_SIZE, -P }, -EINVAL, { 0 }, "smaller than that" },
	{ "a part the core cannot count", { BAR(GOOD, SZ_8G) },
	  { 0, 0, SZ_4G }, -EINVAL, { 0 }, "less than 4 GiB" },
};
KUNIT_ARRAY_PARAM_DESC(choose, choose_cases, desc);

static void bar_choose(struct kunit *test)
{
	const struct choose_case *c = test->param_value;
	struct keel_bar_window got = {};
	const char *why = NULL;

	KUNIT_EXPECT_EQ(test, c->ret, keel_bar_choose(c->bars, BARS, &c->wish,
						      &got, &why));
	KUNIT_EXPECT_EQ(test, c->want.bar, got.bar);
	if (c->ret) {
		KUNIT_ASSERT_NOT_NULL(test, why);
		KUNIT_EXPECT_NOT_NULL(test, strstr(why, c->why));
		return;
	}
	KUNIT_EXPECT_EQ(test, c->want.offset, got.offset);
	KUNIT_EXPECT_EQ(test, c->want.size, got.size);
}

#define WINDOW_PAGES	8
#define WINDOW		(WINDOW_PAGES * P)
#define AROUND		64

/* An aperture, with guard bytes before and after it. */
struct framed {
	u8 *all;
	u8 *bytes;
	struct keel_aperture *ap;
};

KUNIT_DEFINE_ACTION_WRAPPER(bar_done, keel_aperture_destroy,
			    struct keel_aperture *);

static struct framed framed_new(struct kunit *test)
{
	struct framed f;

	f.all = kunit_kmalloc(test, WINDOW + 2 * AROUND, GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, f.all);
	memset(f.all, 0xee, WINDOW + 2 * AROUND);
	f.bytes = f.all + AROUND;
	f.ap = keel_aperture_bar_over(AT, f.bytes, WINDOW);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, f.ap);
	KUNIT_ASSERT_EQ(test, 0, kunit_add_action_or_reset(test, bar_done,
							   f.ap));
	return f;
}

static bool all_are(const u8 *bytes, size_t len, u8 what)
{
	return !memchr_inv(bytes, what, len);
}

static void bar_dm_4_zero(struct kunit *test)
{
	struct framed f = framed_new(test);
	u64 start[2];

	KUNIT_ASSERT_EQ(test, 0, keel_aperture_alloc(f.ap, 2 * P, 0,
						     &start[0]));
	KUNIT_ASSERT_EQ(test, 0, keel_aperture_alloc(f.ap, P + 1, 0,
						     &start[1]));
	KUNIT_EXPECT_EQ(test, 0, start[0]);
	KUNIT_EXPECT_EQ(test, 2 * P, start[1]);
	KUNIT_EXPECT_TRUE(test, all_are(f.bytes, 4 * P, 0));
	/* Only the requested bytes are zeroed; the BAR has no metadata. */
	KUNIT_EXPECT_TRUE(test, all_are(f.bytes + 4 * P, 4 * P + AROUND, 0xee));
	KUNIT_EXPECT_TRUE(test, all_are(f.all, AROUND, 0xee));
	memset(f.bytes, 0xaa, WINDOW);
	keel_aperture_free(f.ap, start[0], 2 * P);
	KUNIT_EXPECT_TRUE(test, all_are(f.bytes, WINDOW, 0xaa));
	KUNIT_ASSERT_EQ(test, 0, keel_aperture_alloc(f.ap, P, 0, &start[0]));
	KUNIT_EXPECT_EQ(test, 0, start[0]);
	KUNIT_EXPECT_TRUE(test, all_are(f.bytes, P, 0));
	KUNIT_EXPECT_TRUE(test, all_are(f.bytes + P, WINDOW - P, 0xaa));
	keel_aperture_free(f.ap, start[0], P);
	keel_aperture_free(f.ap, start[1], P + 1);
}

static void bar_direct(struct kunit *test)
{
	struct framed f = framed_new(test);
	size_t len;
	u8 *at;

	at = keel_aperture_direct(f.ap, 5 * P + 7, &len);
	KUNIT_EXPECT_PTR_EQ(test, f.bytes + 5 * P + 7, at);
	KUNIT_EXPECT_EQ(test, 3 * P - 7, len);
	KUNIT_EXPECT_NULL(test, keel_aperture_direct(f.ap, WINDOW, &len));
}

/* The aperture is one contiguous extent, and so is every buffer. */
static void bar_dm_6_segment(struct kunit *test)
{
	struct framed f = framed_new(test);
	struct keel_aperture_seg seg;

	keel_aperture_segment(f.ap, 0, WINDOW, WINDOW - 1, &seg);
	KUNIT_EXPECT_EQ(test, 0, seg.start);
	KUNIT_EXPECT_EQ(test, WINDOW, seg.len);
	KUNIT_EXPECT_EQ(test, AT >> PAGE_SHIFT, seg.pfn);
	keel_aperture_segment(f.ap, 3 * P, P + 1, P, &seg);
	KUNIT_EXPECT_EQ(test, 3 * P, seg.start);
	KUNIT_EXPECT_EQ(test, 2 * P, seg.len);
	KUNIT_EXPECT_EQ(test, (AT >> PAGE_SHIFT) + 3, seg.pfn);
}

/* Userspace maps the BAR write-combining, not cached. */
static void bar_prot(struct kunit *test)
{
	struct framed f = framed_new(test);
	pgprot_t prot = f.ap->ops->prot(PAGE_SHARED);

	KUNIT_EXPECT_EQ(test, pgprot_val(pgprot_writecombine(PAGE_SHARED)),
			pgprot_val(prot));
}

static struct kunit_case bar_test_cases[] = {
	KUNIT_CASE_PARAM(bar_choose, choose_gen_params),
	KUNIT_CASE(bar_direct),
	KUNIT_CASE(bar_dm_4_zero),
	KUNIT_CASE(bar_dm_6_segment),
	KUNIT_CASE(bar_prot),
	{}
};

static struct kunit_suite bar_suite = {
	.name = "keel_aperture_bar",
	.test_cases = bar_test_cases,
};
kunit_test_suite(bar_suite);
