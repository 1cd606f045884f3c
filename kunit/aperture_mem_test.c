// SPDX-License-Identifier: GPL-2.0
/*
 * The aperture of kernel memory: real bytes in real pages.
 */
#include <kunit/test.h>
#include <linux/err.h>
#include <linux/mm.h>
#include <linux/prandom.h>
#include <linux/string.h>

#include "keel_aperture.h"
#include "threads.h"

#define P		((u64)PAGE_SIZE)
#define MEM_PAGES	64
#define MEM_SEED	0x6b65656cULL

KUNIT_DEFINE_ACTION_WRAPPER(mem_done, keel_aperture_destroy,
			    struct keel_aperture *);

static struct keel_aperture *mem_new(struct kunit *test, u64 pages)
{
	struct keel_aperture *ap = keel_aperture_mem_create(pages * P);

	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, ap);
	KUNIT_ASSERT_EQ(test, 0, kunit_add_action_or_reset(test, mem_done, ap));
	return ap;
}

static u8 *buffer_new(struct kunit *test, size_t len)
{
	u8 *buf = kunit_kmalloc(test, len, GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, buf);
	return buf;
}

/* Return true if all @len bytes at @start are @want. */
static bool mem_is(struct keel_aperture *ap, u64 start, u64 len, u8 want)
{
	u8 byte[64];
	u64 at, n;

	for (at = start; at < start + len; at += n) {
		n = min_t(u64, sizeof(byte), start + len - at);
		if (keel_aperture_read(ap, at, byte, n) ||
		    memchr_inv(byte, want, n))
			return false;
	}
	return true;
}

static int mem_fill(struct keel_aperture *ap, u64 start, u64 len, u8 with)
{
	u8 byte[64];
	u64 at, n;
	int ret = 0;

	memset(byte, with, sizeof(byte));
	for (at = start; at < start + len && !ret; at += n) {
		n = min_t(u64, sizeof(byte), start + len - at);
		ret = keel_aperture_write(ap, at, byte, n);
	}
	return ret;
}

struct create_case {
	const char *desc;
	u64 size;
	int want;
};

static const struct create_case create_cases[] = {
	{ "one page", P, 0 },
	{ "an odd number of pages", 77 * P, 0 },
	{ "more than the page allocator has in one piece", SZ_8M + P, 0 },
	{ "nothing", 0, -EINVAL },
	{ "one byte", 1, -EINVAL },
	{ "less than a page", P - 1, -EINVAL },
	{ "a byte more than a page", P + 1, -EINVAL },
	{ "a byte less than two", 2 * P - 1, -EINVAL },
	{ "as much as 64 bits can say", U64_MAX, -EINVAL },
	{ "as much as 64 bits can say, in pages", U64_MAX - P + 1, -EINVAL },
	{ "more pages than can be counted", ((u64)INT_MAX + 1) * P, -EINVAL },
	{ "more than any machine's memory", (u64)INT_MAX * P, -ENOMEM },
};
KUNIT_ARRAY_PARAM_DESC(create, create_cases, desc);

static void mem_create(struct kunit *test)
{
	const struct create_case *c = test->param_value;
	struct keel_aperture *ap = keel_aperture_mem_create(c->size);

	if (c->want) {
		KUNIT_ASSERT_TRUE(test, IS_ERR(ap));
		KUNIT_EXPECT_EQ(test, c->want, PTR_ERR(ap));
		return;
	}
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, ap);
	KUNIT_EXPECT_EQ(test, c->size, ap->size);
	KUNIT_EXPECT_TRUE(test, mem_is(ap, 0, ap->size, 0));
	keel_aperture_destroy(ap);
}

/* One page more than the machine has. */
static void mem_create_too_large(struct kunit *test)
{
	struct keel_aperture *ap;

	ap = keel_aperture_mem_create((u64)(totalram_pages() + 1) * P);
	KUNIT_ASSERT_TRUE(test, IS_ERR(ap));
	KUNIT_EXPECT_EQ(test, -ENOMEM, PTR_ERR(ap));
}

/* DM-3: one buffer takes the whole aperture, and nothing is left. */
static void dm_3_whole_aperture(struct kunit *test)
{
	struct keel_aperture *ap = mem_new(test, MEM_PAGES);
	u64 start, other;
	int round;

	for (round = 0; round < 2; round++) {
		KUNIT_ASSERT_EQ(test, 0, keel_aperture_alloc(ap, ap->size, 0,
							     &start));
		KUNIT_EXPECT_EQ(test, 0, start);
		KUNIT_EXPECT_EQ(test, -ENOMEM,
				keel_aperture_alloc(ap, 1, 0, &other));
		keel_aperture_free(ap, start, ap->size);
	}
}

/* DM-4: old content is cleared, up to the end of the last page. */
static void dm_4_zeroed(struct kunit *test)
{
	static const u64 lens[] = { 1, 100, P - 1, P, P + 1, 7 * P + 13 };
	struct keel_aperture *ap = mem_new(test, MEM_PAGES);
	u64 start[ARRAY_SIZE(lens)];
	unsigned int i;

	KUNIT_ASSERT_EQ(test, 0, keel_aperture_alloc(ap, ap->size, 0, start));
	KUNIT_ASSERT_EQ(test, 0, mem_fill(ap, 0, ap->size, 0xa5));
	keel_aperture_free(ap, 0, ap->size);
	for (i = 0; i < ARRAY_SIZE(lens); i++) {
		KUNIT_ASSERT_EQ(test, 0, keel_aperture_alloc(ap, lens[i], 0,
							     &start[i]));
		KUNIT_EXPECT_TRUE(test, mem_is(ap, start[i],
					       PAGE_ALIGN(lens[i]), 0));
	}
	/* The rest of the aperture is unchanged. */
	KUNIT_EXPECT_TRUE(test, mem_is(ap, 14 * P, ap->size - 14 * P, 0xa5));
	for (i = 0; i < ARRAY_SIZE(lens); i++)
		keel_aperture_free(ap, start[i], lens[i]);
}

/* DM-4: clear more bytes than between two calls of cond_resched(). */
static void dm_4_zeroed_large(struct kunit *test)
{
	struct keel_aperture *ap = mem_new(test, 3 * SZ_1M / P + 1);
	u64 start;

	KUNIT_ASSERT_EQ(test, 0, mem_fill(ap, 0, ap->size, 0xff));
	KUNIT_ASSERT_EQ(test, 0, keel_aperture_alloc(ap, ap->size - 1, 0,
						     &start));
	KUNIT_EXPECT_TRUE(test, mem_is(ap, 0, ap->size, 0));
	keel_aperture_free(ap, start, ap->size - 1);
}

/* DM-4, DM-6: clearing a buffer does not change its neighbours. */
static void dm_4_dm_6_neighbours_untouched(struct kunit *test)
{
	struct keel_aperture *ap = mem_new(test, MEM_PAGES);
	u64 start[3], again;
	unsigned int i;

	for (i = 0; i < 3; i++) {
		KUNIT_ASSERT_EQ(test, 0, keel_aperture_alloc(ap, P + 1, 0,
							     &start[i]));
		KUNIT_ASSERT_EQ(test, 0, mem_fill(ap, start[i], 2 * P, 1 + i));
	}
	keel_aperture_free(ap, start[1], P + 1);
	KUNIT_ASSERT_EQ(test, 0, keel_aperture_alloc(ap, 2 * P, 0, &again));
	KUNIT_EXPECT_EQ(test, start[1], again);
	KUNIT_EXPECT_TRUE(test, mem_is(ap, start[0], 2 * P, 1));
	KUNIT_EXPECT_TRUE(test, mem_is(ap, again, 2 * P, 0));
	KUNIT_EXPECT_TRUE(test, mem_is(ap, start[2], 2 * P, 3));
	keel_aperture_free(ap, start[0], P + 1);
	keel_aperture_free(ap, again, 2 * P);
	keel_aperture_free(ap, start[2], P + 1);
}

/* DM-5: any offset, length and alignment, and no other byte changes. */
static void dm_5_copies_exactly(struct kunit *test)
{
	static const size_t offs[] = { 0, 1, 7, 8, 63, P - 1, P, P + 1 };
	static const size_t lens[] = { 0, 1, 3, 8, 65, P - 1, P, 2 * P + 5 };
	struct keel_aperture *ap = mem_new(test, MEM_PAGES);
	u8 *out = buffer_new(test, 4 * P), *in = buffer_new(test, 4 * P);
	unsigned int o, l;
	size_t i;

	for (i = 0; i < 4 * P; i++)
		out[i] = 1 + i % 251;
	for (o = 0; o < ARRAY_SIZE(offs); o++) {
		for (l = 0; l < ARRAY_SIZE(lens); l++) {
			u64 off = P + offs[o], len = lens[l], end = off + len;

			KUNIT_ASSERT_EQ(test, 0, mem_fill(ap, 0, 8 * P, 0xee));
			KUNIT_ASSERT_EQ(test, 0, keel_aperture_write(ap, off,
								     out + o,
								     len));
			KUNIT_EXPECT_TRUE(test, mem_is(ap, 0, off, 0xee));
			KUNIT_EXPECT_TRUE(test, mem_is(ap, end, 8 * P - end,
						       0xee));
			memset(in, 0xcc, 4 * P);
			KUNIT_ASSERT_EQ(test, 0, keel_aperture_read(ap, off,
								    in + l,
								    len));
			KUNIT_EXPECT_EQ(test, 0, memcmp(in + l, out + o, len));
			KUNIT_EXPECT_NULL(test, memchr_inv(in, 0xcc, l));
			KUNIT_EXPECT_NULL(test, memchr_inv(in + l + len, 0xcc,
							   4 * P - l - len));
		}
	}
}

/* DM-5: a refused copy copies nothing, not even the part inside. */
static void dm_5_refused_copies_nothing(struct kunit *test)
{
	struct keel_aperture *ap = mem_new(test, 4);
	u8 *buf = buffer_new(test, 2 * P);

	KUNIT_ASSERT_EQ(test, 0, mem_fill(ap, 0, ap->size, 0x11));
	memset(buf, 0x22, 2 * P);
	KUNIT_EXPECT_EQ(test, -EINVAL,
			keel_aperture_read(ap, 3 * P, buf, P + 1));
	KUNIT_EXPECT_EQ(test, -EINVAL,
			keel_aperture_read(ap, U64_MAX - P + 1, buf, 2 * P));
	KUNIT_EXPECT_NULL(test, memchr_inv(buf, 0x22, 2 * P));
	KUNIT_EXPECT_EQ(test, -EINVAL,
			keel_aperture_write(ap, 3 * P, buf, P + 1));
	KUNIT_EXPECT_EQ(test, -EINVAL,
			keel_aperture_write(ap, U64_MAX - P + 1, buf, 2 * P));
	KUNIT_EXPECT_TRUE(test, mem_is(ap, 0, ap->size, 0x11));
}

/*
 * DM-6: the page frames of a mapping contain the bytes of the buffer. Each page
 * starts with its number; read it through the page frame.
 */
static void check_frames(struct kunit *test, struct keel_aperture *ap,
			 u64 start, u64 len)
{
	u64 end = start + PAGE_ALIGN(len), at;
	struct keel_aperture_seg seg;

	for (at = start; at < end; at = seg.start + seg.len) {
		unsigned long i;

		keel_aperture_segment(ap, start, len, at - start, &seg);
		KUNIT_ASSERT_EQ(test, at, seg.start);
		KUNIT_ASSERT_GT(test, seg.len, 0);
		KUNIT_ASSERT_LE(test, seg.len, end - at);
		for (i = 0; i < seg.len >> PAGE_SHIFT; i++) {
			u64 *page = page_address(pfn_to_page(seg.pfn + i));

			KUNIT_ASSERT_EQ(test, (at >> PAGE_SHIFT) + i, *page);
		}
	}
}

static void dm_6_segments_are_the_buffer(struct kunit *test)
{
	/* Several blocks: of the largest order, and smaller ones. */
	const u64 pages = 3 * (1UL << MAX_PAGE_ORDER) / 2 + 11;
	struct keel_aperture *ap = mem_new(test, pages);
	struct rnd_state rnd;
	u64 page, first, n;
	int i;

	for (page = 0; page < pages; page++)
		KUNIT_ASSERT_EQ(test, 0,
				keel_aperture_write(ap, page * P, &page,
						    sizeof(page)));
	check_frames(test, ap, 0, ap->size);
	prandom_seed_state(&rnd, MEM_SEED);
	kunit_info(test, "seed 0x%llx", MEM_SEED);
	for (i = 0; i < 200; i++) {
		first = prandom_u32_state(&rnd) % pages;
		n = 1 + prandom_u32_state(&rnd) % min(pages - first, 40ULL);
		check_frames(test, ap, first * P,
			     n * P - prandom_u32_state(&rnd) % P);
	}
}

/* The kernel maps the memory cached, so all other mappings must be cached. */
static void mem_prot(struct kunit *test)
{
	struct keel_aperture *ap = mem_new(test, 1);
	pgprot_t prot = PAGE_SHARED;

	KUNIT_EXPECT_EQ(test, pgprot_val(prot),
			pgprot_val(ap->ops->prot(prot)));
}

#define THREADS_ROUNDS	200
/* Maximum retries: other threads must run before there is room again. */
#define THREADS_TRIES	5000000

struct sharers {
	struct keel_aperture *ap;
	int wrong[THREADS];
	int given[THREADS];
};

/* Allocate a buffer, check that it is zero, write a mark, check it, free it. */
static void share_aperture(void *arg, unsigned int who)
{
	struct sharers *s = arg;
	u8 mark = 0x80 + who;
	struct rnd_state rnd;
	u64 start, len, room;
	int i;

	prandom_seed_state(&rnd, MEM_SEED + who);
	for (i = 0; i < THREADS_TRIES && s->given[who] < THREADS_ROUNDS; i++) {
		len = 1 + prandom_u32_state(&rnd) % (6 * P);
		room = PAGE_ALIGN(len);
		if (keel_aperture_alloc(s->ap, len, 0, &start)) {
			threads_yield();
			continue;
		}
		s->given[who]++;
		s->wrong[who] += !mem_is(s->ap, start, room, 0);
		s->wrong[who] += !!mem_fill(s->ap, start, room, mark);
		threads_yield();
		s->wrong[who] += !mem_is(s->ap, start, room, mark);
		keel_aperture_free(s->ap, start, len);
	}
}

/* DM-4, DM-6: several threads at once, in a small aperture. */
static void dm_4_dm_6_threads(struct kunit *test)
{
	struct sharers *s = kunit_kzalloc(test, sizeof(*s), GFP_KERNEL);
	int i;

	KUNIT_ASSERT_NOT_NULL(test, s);
	s->ap = mem_new(test, 16);
	threads_run(test, share_aperture, s);
	for (i = 0; i < THREADS; i++) {
		KUNIT_EXPECT_EQ(test, 0, s->wrong[i]);
		KUNIT_EXPECT_EQ(test, THREADS_ROUNDS, s->given[i]);
	}
}

static struct kunit_case aperture_mem_test_cases[] = {
	KUNIT_CASE_PARAM(mem_create, create_gen_params),
	KUNIT_CASE(mem_create_too_large),
	KUNIT_CASE(dm_3_whole_aperture),
	KUNIT_CASE(dm_4_zeroed),
	KUNIT_CASE(dm_4_zeroed_large),
	KUNIT_CASE(dm_4_dm_6_neighbours_untouched),
	KUNIT_CASE(dm_5_copies_exactly),
	KUNIT_CASE(dm_5_refused_copies_nothing),
	KUNIT_CASE(dm_6_segments_are_the_buffer),
	KUNIT_CASE(mem_prot),
	KUNIT_CASE(dm_4_dm_6_threads),
	{}
};

static struct kunit_suite aperture_mem_test_suite = {
	.name = "keel_aperture_mem",
	.test_cases = aperture_mem_test_cases,
};
kunit_test_suite(aperture_mem_test_suite);
