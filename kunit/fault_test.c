// SPDX-License-Identifier: GPL-2.0
/*
 * Failing allocations: each unit returns -ENOMEM and leaks nothing. The tests
 * need a kernel with fault injection, and the settings of scripts/kunit.
 */
#include <kunit/test-bug.h>
#include <kunit/test.h>
#include <linux/cred.h>
#include <linux/err.h>
#include <linux/scatterlist.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "dummy_obj.h"
#include "keel_aperture.h"
#include "keel_blocks.h"
#include "keel_dm.h"
#include "keel_keys.h"
#include "keel_point.h"
#include "keel_quota.h"

#ifdef CONFIG_FAILSLAB

#define P		((u64)PAGE_SIZE)
/* More allocations than any attempt makes. */
#define MOST		200

static void fail_all(bool on)
{
	current->make_it_fail = on;
}

/* Check that allocations do fail. */
static int fault_init(struct kunit *test)
{
	void *p;

	fail_all(true);
	p = kmalloc(64, GFP_KERNEL);
	fail_all(false);
	kfree(p);
	if (p)
		kunit_skip(test, "failslab is not set up, see scripts/kunit");
	return dummies_init(test);
}

static void fault_exit(struct kunit *test)
{
	fail_all(false);
	current->fail_nth = 0;
	dummies_exit(test);
}

/* PD-2: an object that was not created holds nothing and is not counted. */
static void pd_2_unborn_holds_nothing(struct kunit *test)
{
	struct dummies *dummies = test->priv;
	struct dummy *pd = dummy_new(test, KEEL_PD, 'p', NULL, NULL);
	struct dummy *dm = dummy_new(test, KEEL_DM, 'd', NULL, NULL);
	static const struct keel_obj_ops none = {};
	struct keel_obj *obj = kunit_kzalloc(test, sizeof(*obj), GFP_KERNEL);
	struct keel_hold holds[2];
	int ret;

	KUNIT_ASSERT_NOT_NULL(test, obj);
	keel_obj_may_hold(obj, holds);
	fail_all(true);
	ret = keel_obj_add(&dummies->reg, obj, KEEL_DM_MR, &none, &pd->obj,
			   &dm->obj);
	fail_all(false);
	KUNIT_EXPECT_EQ(test, -ENOMEM, ret);
	KUNIT_EXPECT_EQ(test, 1, dummy_refs(pd));
	KUNIT_EXPECT_EQ(test, 1, dummy_refs(dm));
	KUNIT_EXPECT_EQ(test, 0, keel_obj_holders(&pd->obj, NULL, 0));
	KUNIT_EXPECT_EQ(test, 0, keel_obj_holders(&dm->obj, NULL, 0));
	KUNIT_EXPECT_EQ(test, 0, atomic64_read(&dummies->reg.quotas.count[KEEL_MR]));
	KUNIT_EXPECT_TRUE(test, keel_numbers_are_free(&dummies->reg.objs[KEEL_DM_MR]));
	dummy_close(dm);
	dummy_close(pd);
}

static void keys_no_memory(struct kunit *test)
{
	struct keel_keys *keys = kunit_kzalloc(test, sizeof(*keys), GFP_KERNEL);
	struct dummy *mr = dummy_new(test, KEEL_MR, 'm', NULL, NULL);
	struct keel_key key = { .obj = &mr->obj, .length = 8 }, other = key;
	int ret;

	KUNIT_ASSERT_NOT_NULL(test, keys);
	keel_keys_init(keys);
	fail_all(true);
	ret = keel_key_insert(keys, &key);
	fail_all(false);
	KUNIT_EXPECT_EQ(test, -ENOMEM, ret);
	KUNIT_EXPECT_TRUE(test, keel_numbers_are_free(&keys->numbers));
	KUNIT_EXPECT_EQ(test, -ENOENT,
			PTR_ERR_OR_ZERO(keel_key_get(keys, key.key, 0, 0, 0,
						     0)));
	KUNIT_EXPECT_EQ(test, 1, dummy_refs(mr));

	/* The next attempt succeeds. */
	KUNIT_EXPECT_EQ(test, 0, keel_key_insert(keys, &key));

	/* A low index that is free, and has a node, is not given early. */
	keys->numbers.next = 1000;
	fail_all(true);
	ret = keel_key_insert(keys, &other);
	fail_all(false);
	KUNIT_EXPECT_EQ(test, -ENOMEM, ret);
	KUNIT_EXPECT_EQ(test, 0, keel_key_insert(keys, &other));
	KUNIT_EXPECT_EQ(test, 1000, other.key >> 8);
	keel_key_remove(keys, &other);
	keel_key_remove(keys, &key);
	keel_keys_fini(keys);
	dummy_close(mr);
}

/* While a thread waits for memory, others get numbers 64 to 66 and free them. */
static struct keel_numbers *passed;

static void pass(const char *name)
{
	struct kunit *test = kunit_get_current_test();
	u32 number, i;

	if (strcmp(name, "number_short"))
		return;
	WRITE_ONCE(keel_point_hook.hit, NULL);
	fail_all(false);
	for (i = 0; i < 3; i++) {
		KUNIT_EXPECT_EQ(test, 0, keel_number_add(passed, &number, NULL, passed,
							 GFP_KERNEL));
		KUNIT_EXPECT_EQ(test, 64 + i, number);
	}
	for (i = 0; i < 3; i++)
		keel_number_remove(passed, 64 + i);
}

/* A thread that had to wait for memory gets the number that is next then. */
static void numbers_wait_for_memory(struct kunit *test)
{
	u32 first = 0, number = 0;
	u8 round = 9;

	passed = kunit_kzalloc(test, sizeof(*passed), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, passed);
	keel_numbers_init(passed, 1, INT_MAX);
	KUNIT_EXPECT_EQ(test, 0, keel_number_add(passed, &first, NULL, passed, GFP_KERNEL));
	passed->next = 64;
	WRITE_ONCE(keel_point_hook.hit, pass);
	fail_all(true);
	KUNIT_EXPECT_EQ(test, 0, keel_number_add(passed, &number, &round, passed,
						 GFP_KERNEL));
	fail_all(false);
	KUNIT_EXPECT_PTR_EQ(test, NULL, READ_ONCE(keel_point_hook.hit));
	WRITE_ONCE(keel_point_hook.hit, NULL);
	KUNIT_EXPECT_EQ(test, 67, number);
	KUNIT_EXPECT_EQ(test, 0, round);
	KUNIT_EXPECT_EQ(test, 68, passed->next);
	keel_number_remove(passed, number);
	keel_number_remove(passed, first);
	keel_numbers_fini(passed, "test");
}

static int try_range(u64 pages)
{
	struct keel_range r = {};
	int ret = keel_range_init(&r, pages * P, PAGE_SHIFT, GFP_KERNEL);

	if (!ret || !r.map)
		keel_range_fini(&r);
	return ret;
}

static int try_aperture(u64 pages)
{
	struct keel_aperture *ap = keel_aperture_mem_create(pages * P);

	if (IS_ERR(ap))
		return PTR_ERR(ap);
	keel_aperture_destroy(ap);
	return 0;
}

/* Create and destroy a parent, and a child. */
static int try_objects(u64 pages)
{
	struct kunit *test = kunit_get_current_test();
	struct dummy *pd, *mr;
	int ret = 0;

	pd = dummy_try(test->priv, KEEL_PD, 'p', NULL, NULL);
	if (IS_ERR(pd))
		return PTR_ERR(pd);
	mr = dummy_try(test->priv, KEEL_DM_MR, 'm', pd, NULL);
	if (IS_ERR(mr))
		ret = PTR_ERR(mr);
	else
		dummy_close(mr);
	dummy_close(pd);
	return ret;
}

/* Memory of two runs of pages, which exist as numbers only, with a gap between them. */
static int try_blocks(u64 pages)
{
	struct page *first = pfn_to_page(PHYS_PFN(__pa(PAGE_OFFSET)) + 1000);
	struct keel_blocks *blocks;
	struct sg_table sgt;
	int ret = sg_alloc_table(&sgt, 2, GFP_KERNEL);

	if (ret)
		return ret;
	sg_set_page(sgt.sgl, first, pages * P, 0);
	sg_set_page(sg_next(sgt.sgl), first + pages + 1, pages * P, 0);
	blocks = keel_blocks_new(&sgt, 0, 2 * pages * P);
	sg_free_table(&sgt);
	if (IS_ERR(blocks))
		return PTR_ERR(blocks);
	keel_blocks_free(blocks);
	return 0;
}

/* A small buffer, the first of its context. */
static int try_small(struct keel_aperture *ap, struct keel_quotas *quotas, u64 length)
{
	struct keel_dm_pool *pool = keel_dm_pool_new(ap, quotas,
						     keel_user_id(current_cred()));
	struct keel_dm dm = { .length = length };
	int ret;

	if (!pool)
		return -ENOMEM;
	ret = keel_dm_pool_alloc(pool, &dm, 0);
	if (!ret)
		keel_dm_pool_free(&dm);
	keel_dm_pool_put(pool);
	return ret;
}

static int try_pool(u64 length)
{
	struct kunit *test = kunit_get_current_test();
	struct keel_quotas *quotas = kzalloc_obj(*quotas);
	struct keel_aperture *ap;
	int ret = -ENOMEM;

	if (!quotas)
		return ret;
	keel_quotas_init(quotas, "kunit");
	quotas->limit[KEEL_RES_DM_BYTES] = P;
	ap = keel_aperture_mem_create(P);
	if (!IS_ERR(ap)) {
		ret = try_small(ap, quotas, length);
		keel_aperture_destroy(ap);
	}
	KUNIT_EXPECT_EQ(test, 0, atomic64_read(&quotas->count[KEEL_RES_DM_BYTES]));
	keel_quotas_fini(quotas);
	kfree(quotas);
	return ret;
}

struct each_case {
	const char *desc;
	int (*attempt)(u64 size);
	u64 size;
};

static const struct each_case each_cases[] = {
	{ "range: small bitmap", try_range, 3 },
	{ "aperture: one page", try_aperture, 1 },
	{ "aperture: blocks of several sizes", try_aperture, 13 },
	{ "aperture: arrays larger than a page", try_aperture, 1500 },
	{ "objects", try_objects, 0 },
	{ "blocks without a list", try_blocks, KEEL_BLOCK_PAGES },
	{ "blocks with a list", try_blocks, 3 },
	{ "small buffer of device memory", try_pool, 64 },
};
KUNIT_ARRAY_PARAM_DESC(each, each_cases, desc);

/*
 * The first allocation fails, then the second, and so on, until none is left.
 * KASAN and kmemleak detect memory that was freed too early or never.
 */
static void fault_each(struct kunit *test)
{
	const struct each_case *c = test->param_value;
	unsigned int nth, left, refused = 0;
	int ret;

	for (nth = 1; nth < MOST; nth++) {
		current->fail_nth = nth;
		ret = c->attempt(c->size);
		left = current->fail_nth;
		current->fail_nth = 0;
		if (ret)
			KUNIT_EXPECT_EQ(test, -ENOMEM, ret);
		refused += !!ret;
		if (left)
			break;
	}
	KUNIT_EXPECT_GT(test, refused, 0);
	KUNIT_EXPECT_LT(test, nth, MOST);
	/* In the last round, no allocation failed, so the attempt succeeded. */
	KUNIT_EXPECT_EQ(test, 0, ret);
	kunit_info(test, "%u allocations, %u of them needed", nth - 1,
		   refused);
}

/* All allocations fail. */
static void fault_all(struct kunit *test)
{
	const struct each_case *c = test->param_value;
	int ret;

	fail_all(true);
	ret = c->attempt(c->size);
	fail_all(false);
	KUNIT_EXPECT_EQ(test, -ENOMEM, ret);
	KUNIT_EXPECT_EQ(test, 0, c->attempt(c->size));
}

static struct kunit_case fault_test_cases[] = {
	KUNIT_CASE(pd_2_unborn_holds_nothing),
	KUNIT_CASE(keys_no_memory),
	KUNIT_CASE(numbers_wait_for_memory),
	KUNIT_CASE_PARAM(fault_each, each_gen_params),
	KUNIT_CASE_PARAM(fault_all, each_gen_params),
	{}
};

static struct kunit_suite fault_test_suite = {
	.name = "keel_fault",
	.init = fault_init,
	.exit = fault_exit,
	.test_cases = fault_test_cases,
};
kunit_test_suite(fault_test_suite);

#endif /* CONFIG_FAILSLAB */
