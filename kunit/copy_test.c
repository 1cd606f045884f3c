// SPDX-License-Identifier: GPL-2.0
/*
 * The segment walker compared with a model of plain bytes, over memory of every
 * kind in any order.
 */
#include <kunit/test.h>
#include <linux/sizes.h>

#include "arena.h"
#include "whole.h"

#define COPY_ROUNDS	400
#define COPY_SEED	0x6b65656cULL
/* Bytes that the walker copies before it checks again whether to stop. */
#define STEP		SZ_64K

/**
 * struct copies - a round
 * @rnd: random numbers
 * @arenas: the memory
 * @segs: source and destination
 * @empty: number of segments without bytes
 * @one: number of segments of one byte
 * @large: number of segments of more than a page
 * @steps: number of copies with more than one step
 */
struct copies {
	struct rnd_state rnd;
	struct arena *arenas;
	struct keel_segs segs[2];
	unsigned int empty, one, large;
	unsigned int steps;
};

static struct copies *copy_new(struct kunit *test)
{
	struct copies *w = kunit_kzalloc(test, sizeof(*w), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, w);
	prandom_seed_state(&w->rnd, COPY_SEED);
	w->arenas = arenas_new(test, &w->rnd);
	return w;
}

static u32 copy_below(struct copies *w, u32 n)
{
	return prandom_u32_state(&w->rnd) % n;
}

static u32 copy_len(struct copies *w)
{
	switch (copy_below(w, 8)) {
	case 0:
		w->empty++;
		return 0;
	case 1:
		w->one++;
		return 1;
	case 2:
		w->large++;
		return PAGE_SIZE + copy_below(w, 15 * PAGE_SIZE);
	default:
		return copy_below(w, PAGE_SIZE);
	}
}

/* Sources are in one half of the memory, destinations in the other half. */
static void copy_fill(struct copies *w, int side)
{
	struct keel_segs *segs = &w->segs[side];
	u32 half = ARENA_BYTES / 2, len, i;
	struct arena *a;

	segs->n = 1 + copy_below(w, KEEL_MAX_SGE);
	segs->len = 0;
	for (i = 0; i < segs->n; i++) {
		a = &w->arenas[copy_below(w, ARENA_KINDS)];
		len = copy_len(w);
		segs->seg[i] = (struct keel_seg){
			.mem = &a->mem,
			.off = side * half + copy_below(w, half - len),
			.len = len,
		};
		segs->len += len;
	}
}

/* Return the shadow of byte @at of a list. */
static u8 *copy_shadow(struct copies *w, int side, u64 at)
{
	const struct keel_seg *seg = w->segs[side].seg;

	for (; at >= seg->len; seg++)
		at -= seg->len;
	return container_of(seg->mem, struct arena, mem)->shadow + seg->off +
	       at;
}

static void copy_check(struct kunit *test, struct copies *w, const char *when,
		       int round)
{
	long at;
	int i;

	for (i = 0; i < ARENA_KINDS; i++) {
		at = arena_differs(&w->arenas[i]);
		KUNIT_ASSERT_EQ_MSG(test, -1L, at, "%s %d: kind %d", when,
				    round, i);
	}
}

static void copy_round(struct kunit *test, struct copies *w, int round)
{
	u64 off[2], most = U64_MAX, len, at;
	int side;

	for (side = 0; side < 2; side++) {
		copy_fill(w, side);
		off[side] = copy_below(w, 2) ?
			    copy_below(w, w->segs[side].len + 1) : 0;
		most = min(most, w->segs[side].len - off[side]);
	}
	len = copy_below(w, 4) ? most : copy_below(w, most + 1);
	w->steps += len > STEP;
	for (at = 0; at < len; at++)
		*copy_shadow(w, 1, off[1] + at) =
			*copy_shadow(w, 0, off[0] + at);
	KUNIT_ASSERT_EQ(test, KEEL_COPY_DONE,
			whole_copy(&w->segs[1], off[1], &w->segs[0], off[0],
				   len, NULL, NULL));
	copy_check(test, w, "round", round);
}

static void copy_model(struct kunit *test)
{
	struct copies *w = copy_new(test);
	int round;

	for (round = 0; round < COPY_ROUNDS; round++)
		copy_round(test, w, round);
	/* Every kind of segment has occurred. */
	KUNIT_EXPECT_GT(test, w->empty, 100);
	KUNIT_EXPECT_GT(test, w->one, 100);
	KUNIT_EXPECT_GT(test, w->large, 100);
	KUNIT_EXPECT_GT(test, w->steps, 10);
}

/* Copy 0 bytes, from an empty list and from another list. */
static void copy_nothing(struct kunit *test)
{
	struct copies *w = copy_new(test);
	struct keel_mem none = { .type = KEEL_MEM_PAGES };

	KUNIT_EXPECT_EQ(test, KEEL_COPY_DONE,
			whole_copy(&w->segs[1], 0, &w->segs[0], 0, 0, NULL, NULL));
	keel_segs_one(&w->segs[0], &none, 0, 0);
	keel_segs_one(&w->segs[1], &w->arenas[0].mem, 0, ARENA_BYTES);
	KUNIT_EXPECT_EQ(test, KEEL_COPY_DONE,
			whole_copy(&w->segs[1], 0, &w->segs[0], 0, 0, NULL, NULL));
	copy_check(test, w, "nothing", 0);
}

/* Memory without a page after its last byte. */
static void copy_last_byte(struct kunit *test)
{
	struct copies *w = copy_new(test);
	u64 last = ARENA_SIZE - ARENA_FIRST - 1;
	int i;

	for (i = 0; i < ARENA_KINDS; i++) {
		keel_segs_one(&w->segs[0], &w->arenas[i].mem, last - 99, 100);
		keel_segs_one(&w->segs[1], &w->arenas[i].mem, 7, 100);
		KUNIT_EXPECT_EQ(test, KEEL_COPY_DONE,
				whole_copy(&w->segs[1], 0, &w->segs[0], 0, 100,
					   NULL, NULL));
		KUNIT_EXPECT_EQ(test, arena_get(&w->arenas[i], last),
				arena_get(&w->arenas[i], 106));
	}
}

/**
 * struct ender - stops a copy
 * @asked: how often the walker has called ender_ask()
 * @stop: number of the call that stops the copy; 0: none
 * @kill: number of the call that invalidates @key; 0: none
 * @key: a key
 */
struct ender {
	unsigned int asked;
	unsigned int stop;
	unsigned int kill;
	struct keel_key *key;
};

static bool ender_ask(void *arg)
{
	struct ender *e = arg;

	e->asked++;
	if (e->asked == e->kill)
		WRITE_ONCE(e->key->dead, true);
	return e->asked == e->stop;
}

/*
 * The segments of a long copy. After two steps, the first segment is finished,
 * the second one is in use, the third one follows; the last one is not needed.
 */
static const u32 long_segs[] = { 80 * SZ_1K, 56 * SZ_1K, 24 * SZ_1K, 8 * SZ_1K };

#define LONG		(160 * SZ_1K)
#define LONG_SEGS	ARRAY_SIZE(long_segs)

/* Copy from arena 0 to arena 1. */
static enum keel_copy_result copy_long(struct copies *w, struct ender *e,
				       struct keel_key *keys)
{
	int side, i;

	for (side = 0; side < 2; side++) {
		w->segs[side].n = LONG_SEGS;
		w->segs[side].len = 0;
		for (i = 0; i < LONG_SEGS; i++) {
			w->segs[side].seg[i] = (struct keel_seg){
				.mem = &w->arenas[side].mem,
				.key = &keys[side * LONG_SEGS + i],
				.off = w->segs[side].len,
				.len = long_segs[i],
			};
			w->segs[side].len += long_segs[i];
		}
	}
	return whole_copy(&w->segs[1], 0, &w->segs[0], 0, LONG,
			   ender_ask, e);
}

struct end_case {
	const char *desc;
	unsigned int stop, kill;
	/* 0 to 3: source; 4 to 7: destination */
	int key;
	enum keel_copy_result want;
	/* Copied steps, and calls of ender_ask() */
	unsigned int steps, asked;
};

static const struct end_case end_cases[] = {
	{ "to the end", 0, 0, 0, KEEL_COPY_DONE, 3, 2 },
	{ "stopped after the first step", 1, 0, 0, KEEL_COPY_STOPPED, 1, 1 },
	{ "stopped after the second step", 2, 0, 0, KEEL_COPY_STOPPED, 2, 2 },
	{ "SPD-7: source taken back", 0, 1, 1, KEEL_COPY_SRC, 2, 1 },
	{ "SPD-7: destination taken back", 0, 1, 5, KEEL_COPY_DST, 2, 1 },
	{ "source that is done with taken back", 0, 1, 0, KEEL_COPY_SRC, 2, 1 },
	{ "destination that is done with taken back", 0, 1, 4, KEEL_COPY_DST,
	  2, 1 },
	{ "source to come taken back", 0, 1, 2, KEEL_COPY_SRC, 2, 1 },
	{ "destination to come taken back", 0, 1, 6, KEEL_COPY_DST, 2, 1 },
	{ "source that is not needed taken back", 0, 1, 3, KEEL_COPY_SRC, 2,
	  1 },
	{ "destination that is not needed taken back", 0, 1, 7, KEEL_COPY_DST,
	  2, 1 },
	{ "taken back when the last step is on its way", 0, 2, 1,
	  KEEL_COPY_DONE, 3, 2 },
};
KUNIT_ARRAY_PARAM_DESC(end, end_cases, desc);

static void copy_ends(struct kunit *test)
{
	const struct end_case *c = test->param_value;
	struct copies *w = copy_new(test);
	struct keel_key *keys = kunit_kcalloc(test, 2 * LONG_SEGS,
					      sizeof(*keys), GFP_KERNEL);
	struct ender e = { .stop = c->stop, .kill = c->kill };
	u64 len = min(c->steps * STEP, LONG);

	KUNIT_ASSERT_NOT_NULL(test, keys);
	e.key = &keys[c->key];
	KUNIT_EXPECT_EQ(test, c->want, copy_long(w, &e, keys));
	KUNIT_EXPECT_EQ(test, c->asked, e.asked);
	/* Exactly the copied bytes have changed. */
	memcpy(w->arenas[1].shadow, w->arenas[0].shadow, len);
	copy_check(test, w, "end", 0);
}

/* A list drops the reference on each of its keys once, and is empty. */
static void copy_segs_put(struct kunit *test)
{
	struct copies *w = copy_new(test);
	struct keel_key *key = kunit_kzalloc(test, sizeof(*key), GFP_KERNEL);
	struct keel_segs *segs = &w->segs[0];
	int i;

	KUNIT_ASSERT_NOT_NULL(test, key);
	refcount_set(&key->users, 4);
	segs->n = 4;
	segs->len = 4;
	for (i = 0; i < 4; i++)
		segs->seg[i] = (struct keel_seg){
			.mem = &w->arenas[0].mem,
			.key = i == 2 ? NULL : key,
			.len = 1,
		};
	keel_segs_put(segs);
	KUNIT_EXPECT_EQ(test, 1, refcount_read(&key->users));
	KUNIT_EXPECT_EQ(test, 0, segs->n);
	KUNIT_EXPECT_EQ(test, 0, segs->len);
	keel_segs_put(segs);
	KUNIT_EXPECT_EQ(test, 1, refcount_read(&key->users));
}

/* The width of the last stores of a copy must not change the bytes. */
static void copy_last_bytes(struct kunit *test)
{
	u8 *to = kunit_kzalloc(test, 64, GFP_KERNEL);
	u8 *from = kunit_kzalloc(test, 64, GFP_KERNEL);
	struct keel_mem mem[2] = {
		{ .type = KEEL_MEM_KERNEL, .start = (uintptr_t)from },
		{ .type = KEEL_MEM_KERNEL, .start = (uintptr_t)to },
	};
	struct keel_segs *segs = kunit_kzalloc(test, 2 * sizeof(*segs),
					       GFP_KERNEL);
	u32 at, off, len;

	KUNIT_ASSERT_NOT_NULL(test, segs);
	KUNIT_ASSERT_NOT_NULL(test, to);
	KUNIT_ASSERT_NOT_NULL(test, from);
	for (at = 0; at < 64; at++)
		from[at] = 1 + at;
	for (at = 0; at < 8; at++)
		for (off = 0; off < 8; off++)
			for (len = 1; len <= 40; len++) {
				memset(to, 0, 64);
				keel_segs_one(&segs[0], &mem[0], off, len);
				keel_segs_one(&segs[1], &mem[1], at, len);
				KUNIT_ASSERT_EQ(test, KEEL_COPY_DONE,
						whole_copy(&segs[1], 0,
							   &segs[0], 0, len,
							   NULL, NULL));
				KUNIT_ASSERT_MEMEQ(test, to + at, from + off,
						   len);
				KUNIT_ASSERT_NULL(test, memchr_inv(to, 0, at));
				KUNIT_ASSERT_NULL(test,
						  memchr_inv(to + at + len, 0,
							     64 - at - len));
			}
}

/* Byte @pos, counted from the start of the first page, is in page number @page. */
static void page_is(struct kunit *test, const struct arena *a, u64 pos, int page)
{
	u64 left;

	KUNIT_EXPECT_PTR_EQ(test, page_address(a->pages[page]) + offset_in_page(pos),
			    keel_blocks_find(a->mem.blocks, a->mem.n, a->mem.first,
					     pos - ARENA_FIRST, &left));
	KUNIT_EXPECT_GE(test, left, PAGE_SIZE - offset_in_page(pos));
}

/*
 * An offset beyond the end never yields a page beyond the list, not even in
 * speculative execution.
 */
static void dev_4_page_beyond(struct kunit *test)
{
	struct copies *w = copy_new(test);
	const struct arena *pages[] = {
		&w->arenas[ARENA_SCATTERED], &w->arenas[ARENA_TOGETHER],
		&w->arenas[ARENA_MIXED],
	};
	const struct arena *small = &w->arenas[ARENA_SMALL];
	const u64 beyond[] = { ARENA_SIZE, ARENA_SIZE + 1, 1ULL << 40,
			       U64_MAX };
	u64 at;
	int i, j;

	for (at = 0; at < ARENA_SIZE; at += 100) {
		for (j = 0; j < ARRAY_SIZE(pages); j++)
			page_is(test, pages[j], at, at >> PAGE_SHIFT);
		KUNIT_EXPECT_PTR_EQ(test, (const unsigned long *)
				    &small->mem.list[at >> small->mem.shift],
				    keel_mem_listed(&small->mem, at));
	}
	for (i = 0; i < ARRAY_SIZE(beyond); i++) {
		for (j = 0; j < ARRAY_SIZE(pages); j++)
			page_is(test, pages[j], beyond[i], 0);
		KUNIT_EXPECT_PTR_EQ(test,
				    (const unsigned long *)small->mem.list,
				    keel_mem_listed(&small->mem, beyond[i]));
	}
}

static struct kunit_case copy_cases[] = {
	KUNIT_CASE(copy_model),
	KUNIT_CASE(copy_nothing),
	KUNIT_CASE(copy_last_byte),
	KUNIT_CASE_PARAM(copy_ends, end_gen_params),
	KUNIT_CASE(copy_segs_put),
	KUNIT_CASE(copy_last_bytes),
	KUNIT_CASE(dev_4_page_beyond),
	{}
};

static struct kunit_suite copy_suite = {
	.name = "keel_copy",
	.test_cases = copy_cases,
};
kunit_test_suite(copy_suite);
