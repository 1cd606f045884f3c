// SPDX-License-Identifier: GPL-2.0
/*
 * Small buffers of device memory that share pages, in real memory.
 */
#include <kunit/test-bug.h>
#include <kunit/test.h>
#include <linux/cred.h>
#include <linux/err.h>
#include <linux/mm.h>
#include <linux/string.h>

#include "keel_dm.h"
#include "keel_point.h"
#include "keel_quota.h"
#include "threads.h"

#define P		((u64)PAGE_SIZE)
#define PAGES		80
/* KEEL_POOL_TRIES: pages that are looked at before a new one is taken. */
#define TRIES		8
/* KEEL_POOL_LAST_TRIES: if there is no new one. */
#define LAST_TRIES	64
#define CELL		64
#define CELLS		(PAGE_SIZE / CELL)
#define ROUNDS		300

struct dms {
	struct keel_quotas quotas;
	struct keel_aperture *ap;
	struct keel_dm_pool *pool;
	atomic_t wrong;
};

static u8 *at(const struct dms *d, u64 off)
{
	size_t len;

	return keel_aperture_direct(d->ap, off, &len);
}

static u64 charged(const struct dms *d)
{
	return atomic64_read(&d->quotas.count[KEEL_RES_DM_BYTES]);
}

static int dm_pool_init(struct kunit *test)
{
	struct dms *d = kunit_kzalloc(test, sizeof(*d), GFP_KERNEL);

	if (!d)
		return -ENOMEM;
	keel_quotas_init(&d->quotas, "kunit");
	d->quotas.limit[KEEL_RES_DM_BYTES] = PAGES * P;
	d->ap = keel_aperture_mem_create(PAGES * P);
	if (IS_ERR(d->ap))
		return PTR_ERR(d->ap);
	d->pool = keel_dm_pool_new(d->ap, &d->quotas,
				   keel_user_id(current_cred()));
	test->priv = d;
	return d->pool ? 0 : -ENOMEM;
}

/* No page is left when a test ends; keel_aperture_destroy() checks that. */
static void dm_pool_exit(struct kunit *test)
{
	struct dms *d = test->priv;

	if (!d)
		return;
	if (d->pool)
		keel_dm_pool_put(d->pool);
	KUNIT_EXPECT_EQ(test, 0, charged(d));
	keel_aperture_destroy(d->ap);
	keel_quotas_fini(&d->quotas);
}

static void take(struct kunit *test, struct keel_dm *dm, u64 length, u32 log_align)
{
	struct dms *d = test->priv;

	*dm = (struct keel_dm){ .length = length };
	KUNIT_ASSERT_EQ(test, 0, keel_dm_pool_alloc(d->pool, dm, log_align));
	KUNIT_EXPECT_NOT_NULL(test, dm->page);
	KUNIT_EXPECT_EQ(test, 0, dm->start % CELL);
	KUNIT_EXPECT_EQ(test, 0, dm->start & (BIT_ULL(log_align) - 1));
	KUNIT_EXPECT_EQ(test, dm->start / P, (dm->start + length - 1) / P);
	KUNIT_EXPECT_NULL(test, memchr_inv(at(d, dm->start), 0, length));
}

/* DM-2, DM-6: a page of 4 KiB has 64 buffers of 64 bytes. */
static void dm_6_pool_full(struct kunit *test)
{
	struct keel_dm *dms = kunit_kcalloc(test, CELLS + 1, sizeof(*dms), GFP_KERNEL);
	struct dms *d = test->priv;
	unsigned int i;

	KUNIT_ASSERT_NOT_NULL(test, dms);
	for (i = 0; i < CELLS; i++) {
		take(test, &dms[i], CELL, 0);
		KUNIT_EXPECT_EQ(test, P, charged(d));
		KUNIT_EXPECT_EQ(test, dms[0].start / P, dms[i].start / P);
		/* None of it is given twice. */
		KUNIT_EXPECT_EQ(test, 0, *at(d, dms[i].start));
		memset(at(d, dms[i].start), i + 1, CELL);
	}
	for (i = 0; i < CELLS; i++)
		KUNIT_EXPECT_NULL(test, memchr_inv(at(d, dms[i].start), (u8)(i + 1), CELL));
	take(test, &dms[CELLS], CELL, 0);
	KUNIT_EXPECT_EQ(test, 2 * P, charged(d));
	KUNIT_EXPECT_NE(test, dms[0].start / P, dms[CELLS].start / P);
	/* A page that was full takes buffers again, and before the others. */
	keel_dm_pool_free(&dms[5]);
	take(test, &dms[5], 1, 0);
	KUNIT_EXPECT_EQ(test, dms[0].start / P, dms[5].start / P);
	KUNIT_EXPECT_EQ(test, 2 * P, charged(d));
	for (i = 0; i <= CELLS; i++)
		keel_dm_pool_free(&dms[i]);
	KUNIT_EXPECT_EQ(test, 0, charged(d));
}

struct fit_case {
	const char *desc;
	u64 length;
	u32 log_align;
	bool fits;
};

static const struct fit_case fit_cases[] = {
	{ "one byte", 1, 0, true },
	{ "a cell and a byte", CELL + 1, 0, true },
	{ "half a page", PAGE_SIZE / 2, 0, true },
	{ "more than half a page", PAGE_SIZE / 2 + 1, 0, false },
	{ "a page", PAGE_SIZE, 0, false },
	{ "much", 1ULL << 40, 0, false },
	{ "one byte at half a page", 1, PAGE_SHIFT - 1, true },
	{ "one byte at a page", 1, PAGE_SHIFT, false },
	{ "one byte at more", 1, 40, false },
};
KUNIT_ARRAY_PARAM_DESC(fit, fit_cases, desc);

/* DM-2: the start of a small buffer has its alignment, inside a page. */
static void dm_2_pool_fits(struct kunit *test)
{
	const struct fit_case *c = test->param_value;
	const struct dms *d = test->priv;
	struct keel_dm dm[3];
	unsigned int i;

	KUNIT_EXPECT_EQ(test, c->fits, keel_dm_pool_fits(d->pool, c->length, c->log_align));
	if (!c->fits)
		return;
	for (i = 0; i < 3; i++) {
		take(test, &dm[i], c->length, c->log_align);
		memset(at(d, dm[i].start), 0xee, c->length);
	}
	for (i = 0; i < 3; i++)
		keel_dm_pool_free(&dm[i]);
}

/* DM-4: a part that had another owner, in a page that stayed allocated. */
static void dm_4_pool_zero(struct kunit *test)
{
	struct dms *d = test->priv;
	struct keel_dm stays, dm;
	u64 start;

	take(test, &stays, 1, 0);
	*at(d, stays.start) = 0x55;
	take(test, &dm, 200, 0);
	start = dm.start;
	memset(at(d, start), 0xff, 200);
	keel_dm_pool_free(&dm);
	/* A mapping may still write there. */
	memset(at(d, start), 0xaa, 200);
	take(test, &dm, 130, 0);
	KUNIT_EXPECT_EQ(test, start, dm.start);
	KUNIT_EXPECT_EQ(test, 0x55, *at(d, stays.start));
	keel_dm_pool_free(&dm);
	keel_dm_pool_free(&stays);
}

/* A process that got the context, or a child. */
static void dm_stranger(void *arg, unsigned int who)
{
	struct dms *d = arg;

	/* Each thread of the kernel is a process of its own. */
	if (keel_dm_pool_fits(d->pool, 1, 0))
		atomic_inc(&d->wrong);
}

/*
 * DM-6, ISO-5: only buffers of the process that opened the context share pages, and the user
 * that it was then does not pay for others.
 */
static void dm_6_pool_users(struct kunit *test)
{
	struct cred *other = prepare_creds();
	const struct dms *d = test->priv;
	const struct cred *old;

	KUNIT_ASSERT_NOT_NULL(test, other);
	other->uid = KUIDT_INIT(4711);
	KUNIT_EXPECT_TRUE(test, keel_dm_pool_fits(d->pool, 1, 0));
	old = override_creds(other);
	KUNIT_EXPECT_FALSE(test, keel_dm_pool_fits(d->pool, 1, 0));
	revert_creds(old);
	put_cred(other);
	KUNIT_EXPECT_TRUE(test, keel_dm_pool_fits(d->pool, 1, 0));
	threads_run(test, dm_stranger, test->priv);
	KUNIT_EXPECT_EQ(test, 0, atomic_read(&d->wrong));
}

/* DM-1: without room for another page, the buffer is refused, and nothing is charged. */
static void dm_1_pool_short(struct kunit *test)
{
	struct dms *d = test->priv;
	struct keel_dm dm[3], more;
	u64 rest;

	KUNIT_ASSERT_EQ(test, 0, keel_aperture_alloc(d->ap, (PAGES - 1) * P, 0, &rest));
	take(test, &dm[0], PAGE_SIZE / 2, 0);
	take(test, &dm[1], PAGE_SIZE / 2, 0);
	more = (struct keel_dm){ .length = 1 };
	KUNIT_EXPECT_EQ(test, -ENOMEM, keel_dm_pool_alloc(d->pool, &more, 0));
	KUNIT_EXPECT_NULL(test, more.page);
	KUNIT_EXPECT_EQ(test, P, charged(d));
	keel_dm_pool_free(&dm[0]);
	take(test, &dm[2], PAGE_SIZE / 2 - CELL, 0);
	/* The room is there, but not with this alignment. */
	KUNIT_EXPECT_EQ(test, -ENOMEM, keel_dm_pool_alloc(d->pool, &more, PAGE_SHIFT - 1));
	KUNIT_EXPECT_EQ(test, 0, keel_dm_pool_alloc(d->pool, &more, 0));
	keel_dm_pool_free(&more);
	keel_dm_pool_free(&dm[2]);
	keel_dm_pool_free(&dm[1]);
	KUNIT_EXPECT_EQ(test, 0, charged(d));
	keel_aperture_free(d->ap, rest, (PAGES - 1) * P);
}

/* DM-1: the share of the user is short, and not the device memory. */
static void dm_1_pool_quota(struct kunit *test)
{
	struct dms *d = test->priv;
	struct keel_dm dm = { .length = 1 };

	d->quotas.limit[KEEL_RES_DM_BYTES] = P - 1;
	KUNIT_EXPECT_EQ(test, -ENOMEM, keel_dm_pool_alloc(d->pool, &dm, 0));
	KUNIT_EXPECT_NULL(test, dm.page);
	KUNIT_EXPECT_EQ(test, 0, charged(d));
}

/* A page with room for a byte only. It is the first one. */
static void crowd(struct kunit *test, struct keel_dm *half, struct keel_dm *most)
{
	take(test, half, PAGE_SIZE / 2, 0);
	take(test, most, PAGE_SIZE / 2 - CELL, 0);
	KUNIT_EXPECT_EQ(test, half->start / P, most->start / P);
}

/*
 * DM-1: behind eight pages without room, a page with room is not found if there can be a new
 * one, and is found if not.
 */
static void dm_1_pool_crowded(struct kunit *test)
{
	struct keel_dm *first = kunit_kcalloc(test, 2 * TRIES + 5, sizeof(*first), GFP_KERNEL);
	struct keel_dm *half = first + 2, *most = half + TRIES, *more = most + TRIES;
	struct dms *d = test->priv;
	unsigned int i;

	KUNIT_ASSERT_NOT_NULL(test, first);
	take(test, &first[0], PAGE_SIZE / 2, 0);
	take(test, &first[1], PAGE_SIZE / 2, 0);
	for (i = 0; i < TRIES; i++)
		crowd(test, &half[i], &most[i]);
	keel_dm_pool_free(&first[1]);
	/* The first page has room now, and then is behind the others. */
	for (i = 0; i < TRIES; i++) {
		keel_dm_pool_free(&most[i]);
		take(test, &most[i], PAGE_SIZE / 2 - CELL, 0);
		KUNIT_EXPECT_EQ(test, half[i].start / P, most[i].start / P);
	}
	KUNIT_EXPECT_EQ(test, (TRIES + 1) * P, charged(d));
	take(test, &more[0], PAGE_SIZE / 2, 0);
	KUNIT_EXPECT_EQ(test, (TRIES + 2) * P, charged(d));
	take(test, &more[1], PAGE_SIZE / 2, 0);
	KUNIT_EXPECT_EQ(test, more[0].start / P, more[1].start / P);
	d->quotas.limit[KEEL_RES_DM_BYTES] = (TRIES + 2) * P;
	take(test, &more[2], PAGE_SIZE / 2, 0);
	KUNIT_EXPECT_EQ(test, first[0].start / P, more[2].start / P);
	KUNIT_EXPECT_EQ(test, (TRIES + 2) * P, charged(d));
	keel_dm_pool_free(&first[0]);
	for (i = 0; i < 3; i++)
		keel_dm_pool_free(&more[i]);
	for (i = 0; i < TRIES; i++) {
		keel_dm_pool_free(&half[i]);
		keel_dm_pool_free(&most[i]);
	}
	KUNIT_EXPECT_EQ(test, 0, charged(d));
}

/* ISO-1: a user with many pages holds up no other one: not all of them are looked at. */
static void iso_1_pool_bounded(struct kunit *test)
{
	struct keel_dm *dms = kunit_kcalloc(test, 2 * LAST_TRIES + 4, sizeof(*dms), GFP_KERNEL);
	struct keel_dm *most = dms + LAST_TRIES, *first = most + LAST_TRIES;
	struct keel_dm *more = first + 2;
	struct dms *d = test->priv;
	unsigned int i;

	KUNIT_ASSERT_NOT_NULL(test, dms);
	take(test, &first[0], PAGE_SIZE / 2, 0);
	take(test, &first[1], PAGE_SIZE / 2, 0);
	for (i = 0; i < LAST_TRIES; i++)
		crowd(test, &dms[i], &most[i]);
	keel_dm_pool_free(&first[1]);
	/* As many pages as are tried, and one more. */
	for (i = 0; i < LAST_TRIES; i++) {
		keel_dm_pool_free(&most[i]);
		take(test, &most[i], PAGE_SIZE / 2 - CELL, 0);
	}
	d->quotas.limit[KEEL_RES_DM_BYTES] = charged(d);
	more->length = PAGE_SIZE / 2;
	KUNIT_EXPECT_EQ(test, -ENOMEM, keel_dm_pool_alloc(d->pool, more, 0));
	/* One page less. */
	keel_dm_pool_free(&dms[0]);
	keel_dm_pool_free(&most[0]);
	d->quotas.limit[KEEL_RES_DM_BYTES] = charged(d);
	take(test, more, PAGE_SIZE / 2, 0);
	KUNIT_EXPECT_EQ(test, first[0].start / P, more->start / P);
	keel_dm_pool_free(more);
	keel_dm_pool_free(&first[0]);
	for (i = 1; i < LAST_TRIES; i++) {
		keel_dm_pool_free(&dms[i]);
		keel_dm_pool_free(&most[i]);
	}
	KUNIT_EXPECT_EQ(test, 0, charged(d));
}

/* Another thread, which gets the last page. */
static struct keel_dm other_dm;

static void take_last(const char *name)
{
	struct kunit *test = kunit_get_current_test();

	if (strcmp(name, "dm_pool_full"))
		return;
	WRITE_ONCE(keel_point_hook.hit, NULL);
	take(test, &other_dm, CELL, 0);
}

/* DM-1: two threads need a page, and one is left: both get room in it. */
static void dm_1_pool_last_page(struct kunit *test)
{
	struct dms *d = test->priv;
	struct keel_dm dm;

	d->quotas.limit[KEEL_RES_DM_BYTES] = P;
	WRITE_ONCE(keel_point_hook.hit, take_last);
	take(test, &dm, CELL, 0);
	KUNIT_EXPECT_PTR_EQ(test, NULL, READ_ONCE(keel_point_hook.hit));
	KUNIT_EXPECT_EQ(test, dm.start / P, other_dm.start / P);
	KUNIT_EXPECT_NE(test, dm.start, other_dm.start);
	KUNIT_EXPECT_EQ(test, P, charged(d));
	keel_dm_pool_free(&dm);
	keel_dm_pool_free(&other_dm);
}

/* DM-6: a buffer whose mapping lives keeps its page when the context has ended. */
static void dm_6_pool_outlived(struct kunit *test)
{
	struct dms *d = test->priv;
	struct keel_dm dm[2];

	take(test, &dm[0], CELL, 0);
	take(test, &dm[1], CELL, 0);
	keel_dm_pool_put(d->pool);
	d->pool = NULL;
	keel_dm_pool_free(&dm[0]);
	KUNIT_EXPECT_EQ(test, P, charged(d));
	keel_dm_pool_free(&dm[1]);
}

static void dm_threads_member(void *arg, unsigned int who)
{
	struct dms *d = arg;
	struct keel_dm dm;
	int i;

	for (i = 0; i < ROUNDS; i++) {
		dm = (struct keel_dm){ .length = 1 + i * 37 % (PAGE_SIZE / 2) };
		if (keel_dm_pool_alloc(d->pool, &dm, i % 8)) {
			atomic_inc(&d->wrong);
			continue;
		}
		memset(at(d, dm.start), who + 1, dm.length);
		threads_yield();
		if (memchr_inv(at(d, dm.start), who + 1, dm.length))
			atomic_inc(&d->wrong);
		keel_dm_pool_free(&dm);
	}
}

/* DM-6: no two buffers share a byte. */
static void dm_6_pool_threads(struct kunit *test)
{
	struct dms *d = test->priv;

	threads_run(test, dm_threads_member, d);
	KUNIT_EXPECT_EQ(test, 0, atomic_read(&d->wrong));
	KUNIT_EXPECT_EQ(test, 0, charged(d));
}

static struct kunit_case dm_pool_cases[] = {
	KUNIT_CASE(dm_6_pool_full),
	KUNIT_CASE_PARAM(dm_2_pool_fits, fit_gen_params),
	KUNIT_CASE(dm_4_pool_zero),
	KUNIT_CASE(dm_6_pool_users),
	KUNIT_CASE(dm_1_pool_short),
	KUNIT_CASE(dm_1_pool_quota),
	KUNIT_CASE(dm_1_pool_crowded),
	KUNIT_CASE(iso_1_pool_bounded),
	KUNIT_CASE(dm_1_pool_last_page),
	KUNIT_CASE(dm_6_pool_outlived),
	KUNIT_CASE(dm_6_pool_threads),
	{}
};

static struct kunit_suite dm_pool_suite = {
	.name = "keel_dm_pool",
	.init = dm_pool_init,
	.exit = dm_pool_exit,
	.test_cases = dm_pool_cases,
};
kunit_test_suite(dm_pool_suite);
