// SPDX-License-Identifier: GPL-2.0
/*
 * The common part of all apertures, over a backend with known contiguous
 * extents, so that the expected segments are known.
 */
#include <kunit/test.h>
#include <linux/mm.h>
#include <linux/string.h>

#include "keel_aperture.h"

#define FAKE_PAGES	16
#define P		((u64)PAGE_SIZE)

/* Extents: pages 0-3, 4, 5-11, 12-15. No two of them are adjacent. */
static const struct fake_stretch {
	unsigned int first;
	unsigned int pages;
	unsigned long pfn;
} fake_stretches[] = {
	{ 0, 4, 1000 },
	{ 4, 1, 500 },
	{ 5, 7, 2000 },
	{ 12, 4, 100 },
};

struct fake {
	struct keel_aperture ap;
	u8 *bytes;
	u64 ordered;	/* zero bytes at the last keel_aperture_order() */
	bool *destroyed;
};

static struct fake *to_fake(struct keel_aperture *ap)
{
	return container_of(ap, struct fake, ap);
}

static void fake_segment(struct keel_aperture *ap, u64 off,
			 struct keel_aperture_seg *seg)
{
	const struct fake_stretch *s = fake_stretches;

	while (off >= (s->first + s->pages) * P)
		s++;
	seg->start = s->first * P;
	seg->len = s->pages * P;
	seg->pfn = s->pfn;
}

static void *fake_direct(struct keel_aperture *ap, u64 off, size_t *len)
{
	struct keel_aperture_seg seg;

	fake_segment(ap, off, &seg);
	*len = seg.start + seg.len - off;
	return to_fake(ap)->bytes + off;
}

static void fake_order(struct keel_aperture *ap)
{
	struct fake *fake = to_fake(ap);
	u64 i;

	fake->ordered = 0;
	for (i = 0; i < ap->size; i++)
		fake->ordered += !fake->bytes[i];
}

static void fake_destroy(struct keel_aperture *ap)
{
	*to_fake(ap)->destroyed = true;
}

static const struct keel_aperture_ops fake_ops = {
	.destroy = fake_destroy,
	.direct = fake_direct,
	.order = fake_order,
	.segment = fake_segment,
};

KUNIT_DEFINE_ACTION_WRAPPER(fake_done, keel_aperture_destroy,
			    struct keel_aperture *);

static struct fake *fake_new(struct kunit *test)
{
	struct fake *fake = kunit_kzalloc(test, sizeof(*fake), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, fake);
	fake->destroyed = kunit_kzalloc(test, sizeof(bool), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, fake->destroyed);
	fake->bytes = kunit_kmalloc(test, FAKE_PAGES * P, GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, fake->bytes);
	fake->ap.ops = &fake_ops;
	fake->ap.size = FAKE_PAGES * P;
	KUNIT_ASSERT_EQ(test, 0, keel_range_init(&fake->ap.range,
						 fake->ap.size, PAGE_SHIFT,
						 GFP_KERNEL));
	KUNIT_ASSERT_EQ(test, 0, kunit_add_action_or_reset(test, fake_done,
							   &fake->ap));
	return fake;
}

struct cut_case {
	const char *desc;
	u64 start, len, off;
	struct keel_aperture_seg want;
};

static const struct cut_case cut_cases[] = {
	{ "first byte of everything", 0, 16 * P, 0, { 0, 4 * P, 1000 } },
	{ "last byte of a stretch", 0, 16 * P, 4 * P - 1, { 0, 4 * P, 1000 } },
	{ "first byte of the next", 0, 16 * P, 4 * P, { 4 * P, P, 500 } },
	{ "last byte of everything", 0, 16 * P, 16 * P - 1,
	  { 12 * P, 4 * P, 100 } },
	{ "buffer inside a stretch", 6 * P, 2 * P, P, { 6 * P, 2 * P, 2001 } },
	{ "buffer that is a stretch", 4 * P, P, 0, { 4 * P, P, 500 } },
	{ "buffer that starts with a stretch", 5 * P, 2 * P, 0,
	  { 5 * P, 2 * P, 2000 } },
	{ "buffer that ends with a stretch", 10 * P, 2 * P, 2 * P - 1,
	  { 10 * P, 2 * P, 2005 } },
	{ "cut in front", 2 * P, 3 * P, 0, { 2 * P, 2 * P, 1002 } },
	{ "cut at the end", 4 * P, 4 * P, P, { 5 * P, 3 * P, 2000 } },
	{ "whole between two cuts", 3 * P, 4 * P, P, { 4 * P, P, 500 } },
	{ "one byte counts as its page", 7 * P, 1, 0, { 7 * P, P, 2002 } },
	{ "a byte into the next page", 10 * P, P + 1, P,
	  { 10 * P, 2 * P, 2005 } },
	{ "last page of the aperture", 15 * P, P, P - 1, { 15 * P, P, 103 } },
};
KUNIT_ARRAY_PARAM_DESC(cut, cut_cases, desc);

/* DM-6: a segment begins and ends with pages of the buffer. */
static void dm_6_segment_cut(struct kunit *test)
{
	const struct cut_case *c = test->param_value;
	struct fake *fake = fake_new(test);
	struct keel_aperture_seg seg;

	keel_aperture_segment(&fake->ap, c->start, c->len, c->off, &seg);
	KUNIT_EXPECT_EQ(test, c->want.start, seg.start);
	KUNIT_EXPECT_EQ(test, c->want.len, seg.len);
	KUNIT_EXPECT_EQ(test, c->want.pfn, seg.pfn);
}

/* Walk over [start, start + len). Each page must appear exactly once. */
static void cover(struct kunit *test, struct keel_aperture *ap, u64 start,
		  u64 len)
{
	u64 end = start + PAGE_ALIGN(len), at = start, off;
	struct keel_aperture_seg seg, again;

	while (at < end) {
		keel_aperture_segment(ap, start, len, at - start, &seg);
		KUNIT_ASSERT_EQ(test, at, seg.start);
		KUNIT_ASSERT_GT(test, seg.len, 0);
		KUNIT_ASSERT_EQ(test, 0, seg.len % P);
		KUNIT_ASSERT_LE(test, seg.len, end - at);
		for (off = at - start; off < at - start + seg.len && off < len;
		     off += P / 2) {
			keel_aperture_segment(ap, start, len, off, &again);
			KUNIT_ASSERT_EQ(test, seg.start, again.start);
			KUNIT_ASSERT_EQ(test, seg.len, again.len);
			KUNIT_ASSERT_EQ(test, seg.pfn, again.pfn);
		}
		at += seg.len;
	}
	KUNIT_EXPECT_EQ(test, end, at);
}

/* DM-6: every possible buffer, with a granularity of bytes at page borders. */
static void dm_6_segments_cover(struct kunit *test)
{
	struct fake *fake = fake_new(test);
	unsigned int first, pages;

	for (first = 0; first < FAKE_PAGES; first++) {
		for (pages = 1; first + pages <= FAKE_PAGES; pages++) {
			cover(test, &fake->ap, first * P, pages * P);
			cover(test, &fake->ap, first * P, pages * P - 1);
			cover(test, &fake->ap, first * P, pages * P - P + 1);
		}
	}
}

/* Return true if keel has cleared the bytes [start, end), and no others. */
static bool cleared(const struct fake *fake, u64 start, u64 end)
{
	return !memchr_inv(fake->bytes, 0xee, start) &&
	       !memchr_inv(fake->bytes + start, 0, end - start) &&
	       !memchr_inv(fake->bytes + end, 0xee, FAKE_PAGES * P - end);
}

/* DM-4, DM-6: all bytes of all pages are cleared at allocation. */
static void dm_4_dm_6_zero_whole_pages(struct kunit *test)
{
	static const u64 lens[] = { 1, P - 1, P, P + 1, 5 * P - 1, 16 * P };
	struct fake *fake = fake_new(test);
	unsigned int i;
	u64 hole, start;

	for (i = 0; i < ARRAY_SIZE(lens); i++) {
		memset(fake->bytes, 0xee, FAKE_PAGES * P);
		KUNIT_ASSERT_EQ(test, 0, keel_aperture_alloc(&fake->ap, lens[i],
							     0, &start));
		KUNIT_EXPECT_EQ(test, 0, start);
		KUNIT_EXPECT_TRUE(test, cleared(fake, 0, PAGE_ALIGN(lens[i])));
		memset(fake->bytes, 0xee, FAKE_PAGES * P);
		keel_aperture_free(&fake->ap, start, lens[i]);
		KUNIT_EXPECT_TRUE(test, cleared(fake, 0, 0));
	}
	/* A buffer that does not start at 0. */
	KUNIT_ASSERT_EQ(test, 0, keel_aperture_alloc(&fake->ap, 1, 0, &hole));
	memset(fake->bytes, 0xee, FAKE_PAGES * P);
	KUNIT_ASSERT_EQ(test, 0, keel_aperture_alloc(&fake->ap, P + 1,
						     PAGE_SHIFT + 2, &start));
	KUNIT_EXPECT_EQ(test, 4 * P, start);
	KUNIT_EXPECT_TRUE(test, cleared(fake, 4 * P, 6 * P));
	keel_aperture_free(&fake->ap, start, P + 1);
	keel_aperture_free(&fake->ap, hole, 1);
}

/* DM-4: a barrier of the backend follows the last byte that is cleared. */
static void dm_4_zero_then_order(struct kunit *test)
{
	static const u64 lens[] = { 1, 4 * P, 5 * P, 16 * P };
	struct fake *fake = fake_new(test);
	unsigned int i;
	u64 start;

	for (i = 0; i < ARRAY_SIZE(lens); i++) {
		memset(fake->bytes, 0xee, FAKE_PAGES * P);
		KUNIT_ASSERT_EQ(test, 0, keel_aperture_alloc(&fake->ap, lens[i],
							     0, &start));
		KUNIT_EXPECT_EQ(test, PAGE_ALIGN(lens[i]), fake->ordered);
		keel_aperture_free(&fake->ap, start, lens[i]);
	}
}

/* DM-1: a refused allocation clears nothing, and returns the range's errno. */
static void dm_1_refused_clears_nothing(struct kunit *test)
{
	struct fake *fake = fake_new(test);
	u64 start, other;

	KUNIT_ASSERT_EQ(test, 0, keel_aperture_alloc(&fake->ap, 1, 0, &start));
	memset(fake->bytes, 0xee, FAKE_PAGES * P);
	KUNIT_EXPECT_EQ(test, -EINVAL,
			keel_aperture_alloc(&fake->ap, 0, 0, &other));
	KUNIT_EXPECT_EQ(test, -EINVAL,
			keel_aperture_alloc(&fake->ap, 1, PAGE_SHIFT + 5,
					    &other));
	KUNIT_EXPECT_EQ(test, -ENOMEM,
			keel_aperture_alloc(&fake->ap, 15 * P + 1, 0, &other));
	KUNIT_EXPECT_EQ(test, -ENOMEM,
			keel_aperture_alloc(&fake->ap, U64_MAX, 0, &other));
	KUNIT_EXPECT_TRUE(test, cleared(fake, 0, 0));
	keel_aperture_free(&fake->ap, start, 1);
}

static void aperture_destroy(struct kunit *test)
{
	struct fake *fake = fake_new(test);

	keel_aperture_destroy(NULL);
	keel_aperture_destroy(ERR_PTR(-ENOMEM));
	KUNIT_EXPECT_FALSE(test, *fake->destroyed);
	kunit_release_action(test, fake_done, &fake->ap);
	KUNIT_EXPECT_TRUE(test, *fake->destroyed);
	KUNIT_EXPECT_NULL(test, fake->ap.range.map);
}

static struct kunit_case aperture_test_cases[] = {
	KUNIT_CASE(dm_1_refused_clears_nothing),
	KUNIT_CASE(dm_4_dm_6_zero_whole_pages),
	KUNIT_CASE(dm_4_zero_then_order),
	KUNIT_CASE_PARAM(dm_6_segment_cut, cut_gen_params),
	KUNIT_CASE(dm_6_segments_cover),
	KUNIT_CASE(aperture_destroy),
	{}
};

static struct kunit_suite aperture_test_suite = {
	.name = "keel_aperture",
	.test_cases = aperture_test_cases,
};
kunit_test_suite(aperture_test_suite);
