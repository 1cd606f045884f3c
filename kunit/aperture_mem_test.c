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

/* The memory is contiguous in the kernel: one address leads to all of it. */
static u8 *mem_at(struct keel_aperture *ap, u64 off)
{
	size_t len;

	return keel_aperture_direct(ap, off, &len);
}

/* Return true if all @len bytes at @start are @want. */
static bool mem_is(struct keel_aperture *ap, u64 start, u64 len, u8 want)
{
	return !memchr_inv(mem_at(ap, start), want, len);
}

static void mem_fill(struct keel_aperture *ap, u64 start, u64 len, u8 with)
{
	memset(mem_at(ap, start), with, len);
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
	mem_fill(ap, 0, ap->size, 0xa5);
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

	mem_fill(ap, 0, ap->size, 0xff);
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
		mem_fill(ap, start[i], 2 * P, 1 + i);
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

/* Every offset has an address, up to the size. */
static void mem_direct(struct kunit *test)
{
	struct keel_aperture *ap = mem_new(test, 4);
	u8 *first = mem_at(ap, 0);
	size_t len;

	KUNIT_EXPECT_PTR_EQ(test, first + 3 * P + 7,
			    (u8 *)keel_aperture_direct(ap, 3 * P + 7, &len));
	KUNIT_EXPECT_EQ(test, P - 7, len);
	KUNIT_EXPECT_NULL(test, keel_aperture_direct(ap, 4 * P, &len));
	KUNIT_EXPECT_NULL(test, keel_aperture_direct(ap, U64_MAX, &len));
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
	unsigned long next = 0;

	for (at = start; at < end; at = seg.start + seg.len) {
		unsigned long i;

		keel_aperture_segment(ap, start, len, at - start, &seg);
		KUNIT_ASSERT_EQ(test, at, seg.start);
		KUNIT_ASSERT_GT(test, seg.len, 0);
		KUNIT_ASSERT_LE(test, seg.len, end - at);
		/* Contiguous pages are in one extent. */
		KUNIT_ASSERT_NE(test, next, seg.pfn);
		next = seg.pfn + (seg.len >> PAGE_SHIFT);
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
		*(u64 *)mem_at(ap, page * P) = page;
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
		mem_fill(s->ap, start, room, mark);
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
	KUNIT_CASE(mem_direct),
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
