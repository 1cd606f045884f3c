// SPDX-License-Identifier: GPL-2.0
/*
 * Handles of shared protection domains, and the comparison of their keys.
 */
#include <kunit/test.h>
#include <linux/bitops.h>
#include <linux/mm.h>
#include <linux/sort.h>

#include "keel.h"
#include "keel_device.h"
#include "keel_point.h"

#define HANDLES	200000

/* Only the secret is initialised. */
static struct keel_shpds *shpds_new(struct kunit *test, u64 a, u64 b)
{
	struct keel_shpds *shpds = kunit_kzalloc(test, sizeof(*shpds),
						 GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, shpds);
	shpds->secret.key[0] = a;
	shpds->secret.key[1] = b;
	return shpds;
}

KUNIT_DEFINE_ACTION_WRAPPER(list_free, kvfree, const void *);

/* Return the handles from counter @first on, in their order of allocation. */
static u32 *handles_new(struct kunit *test, const struct keel_shpds *shpds,
			u32 first)
{
	u32 *list = kvmalloc_array(HANDLES, sizeof(*list), GFP_KERNEL);
	u32 i;

	KUNIT_ASSERT_NOT_NULL(test, list);
	KUNIT_ASSERT_EQ(test, 0,
			kunit_add_action_or_reset(test, list_free, list));
	for (i = 0; i < HANDLES; i++) {
		list[i] = keel_shpd_permute(shpds, first + i);
		if (i % 4096 == 0)
			cond_resched();
	}
	return list;
}

static int by_value(const void *a, const void *b)
{
	u32 x = *(const u32 *)a, y = *(const u32 *)b;

	return x < y ? -1 : x > y;
}

struct unique_case {
	const char *desc;
	u64 secret[2];
	u32 first;
};

static const struct unique_case unique_cases[] = {
	{ "the first ones", { 0x0123456789abcdefULL, 0xfedcba9876543210ULL },
	  0 },
	{ "a poor secret", { 0, 0 }, 0 },
	{ "where the lower half of the counter wraps", { 1, 2 }, 0x7fff0000 },
	{ "the last ones", { 0xffffffffffffffffULL, 1 }, 0U - HANDLES },
};
KUNIT_ARRAY_PARAM_DESC(unique, unique_cases, desc);

/* SPD-6: handles never repeat, so a dead handle stays invalid. */
static void spd_6_handles_unique(struct kunit *test)
{
	const struct unique_case *c = test->param_value;
	struct keel_shpds *shpds = shpds_new(test, c->secret[0], c->secret[1]);
	u32 *list = handles_new(test, shpds, c->first);
	unsigned int i, same = 0;

	sort(list, HANDLES, sizeof(*list), by_value, NULL);
	for (i = 1; i < HANDLES; i++)
		same += list[i] == list[i - 1];
	KUNIT_EXPECT_EQ(test, 0, same);
}

/*
 * SPD-4: a handle does not reveal the next one. Handles do not increase, do not
 * have equal steps, and successive handles do not share more bits than others.
 */
static void spd_4_handles_not_guessable(struct kunit *test)
{
	const struct keel_shpds *shpds = shpds_new(test, 0x6b65656c, 42);
	u32 *list = handles_new(test, shpds, 0);
	unsigned int i, up = 0, bits = 0, near = 0;

	for (i = 1; i < HANDLES; i++) {
		up += list[i] > list[i - 1];
		bits += hweight32(list[i] ^ list[i - 1]);
		near += list[i] - list[i - 1] + 0x8000 < 0x10000;
	}
	/* Half of the steps go up, half of the bits change, within 2%. */
	KUNIT_EXPECT_GT(test, up, HANDLES / 100 * 48);
	KUNIT_EXPECT_LT(test, up, HANDLES / 100 * 52);
	KUNIT_EXPECT_GT(test, bits, HANDLES / 100 * 16 * 98);
	KUNIT_EXPECT_LT(test, bits, HANDLES / 100 * 16 * 102);
	/* One of 65,536 pairs is near by chance: about 3 are expected. */
	KUNIT_EXPECT_LT(test, near, 20);

	/* The steps differ. */
	for (i = 2; i < HANDLES; i++)
		if (list[i] - list[i - 1] != list[1] - list[0])
			break;
	KUNIT_EXPECT_LT(test, i, 4);

	/* Handles are spread over all 32 bits. */
	sort(list, HANDLES, sizeof(*list), by_value, NULL);
	KUNIT_EXPECT_LT(test, list[0], U32_MAX / 1000);
	KUNIT_EXPECT_GT(test, list[HANDLES - 1], U32_MAX - U32_MAX / 1000);
}

struct secret_case {
	const char *desc;
	u64 secret[2];
};

static const struct secret_case secret_cases[] = {
	{ "all of it", { 0x1111111111111111ULL, 0x2222222222222222ULL } },
	{ "its first bit", { 43, 99 } },
	{ "its last bit", { 42, 99 | 1ULL << 63 } },
	{ "the halves exchanged", { 99, 42 } },
};
KUNIT_ARRAY_PARAM_DESC(secret, secret_cases, desc);

/* SPD-4: handles of one device do not reveal those of another device. */
static void spd_4_secret_matters(struct kunit *test)
{
	const struct secret_case *c = test->param_value;
	struct keel_shpds *a = shpds_new(test, 42, 99);
	struct keel_shpds *b = shpds_new(test, c->secret[0], c->secret[1]);
	unsigned int i, same = 0, bits = 0;

	for (i = 0; i < 10000; i++) {
		u32 diff = keel_shpd_permute(a, i) ^ keel_shpd_permute(b, i);

		same += !diff;
		bits += hweight32(diff);
	}
	KUNIT_EXPECT_LT(test, same, 3);
	KUNIT_EXPECT_GT(test, bits, 10000 / 100 * 16 * 97);
	KUNIT_EXPECT_LT(test, bits, 10000 / 100 * 16 * 103);
}

/* SPD-4: the comparison uses every bit of the key. */
static void spd_4_key_compare(struct kunit *test)
{
	static const u64 keys[] = {
		0, 1, U64_MAX, 1ULL << 32, 1ULL << 63, U32_MAX,
		0x0123456789abcdefULL,
	};
	unsigned int i, bit;

	for (i = 0; i < ARRAY_SIZE(keys); i++) {
		u64 key = keys[i];

		KUNIT_EXPECT_TRUE(test, keel_shpd_key_equal(key, key));
		KUNIT_EXPECT_FALSE(test, keel_shpd_key_equal(key, ~key));
		/* Swapped halves differ, unless both halves are equal. */
		KUNIT_EXPECT_EQ(test, key == ror64(key, 32),
				keel_shpd_key_equal(key, ror64(key, 32)));
		for (bit = 0; bit < 64; bit++)
			KUNIT_EXPECT_FALSE(test,
					   keel_shpd_key_equal(key, key ^
							       1ULL << bit));
	}
}

/**
 * struct sharing - a domain that two threads share at the same time
 * @kdev: its device
 * @domain: the domain
 * @other: result of the other thread
 * @visits: how often a thread has found that the domain is not shared
 */
static struct sharing {
	struct keel_dev *kdev;
	struct keel_domain *domain;
	struct keel_shpd *other;
	int visits;
} sharing;

static void sharing_hook(const char *name)
{
	if (!strcmp(name, "shpd_checked") && !sharing.visits++)
		sharing.other = keel_shpd_create(sharing.kdev, sharing.domain, 2);
}

KUNIT_DEFINE_ACTION_WRAPPER(sharing_put, put_device, struct device *);
KUNIT_DEFINE_ACTION_WRAPPER(sharing_unregister, ib_unregister_device,
			    struct ib_device *);
KUNIT_DEFINE_ACTION_WRAPPER(sharing_dealloc, ib_dealloc_pd, struct ib_pd *);

static void sharing_init(struct kunit *test)
{
	struct keel_dev_spec spec = { .name = "keel%d" };
	struct ib_device *ibdev;
	struct ib_pd *pd;

	spec.ap = keel_aperture_mem_create(PAGE_SIZE);
	KUNIT_ASSERT_FALSE(test, IS_ERR(spec.ap));
	ibdev = keel_dev_create_own(&spec);
	if (IS_ERR(ibdev)) {
		keel_aperture_destroy(spec.ap);
		KUNIT_FAIL_AND_ABORT(test, "no device: %ld", PTR_ERR(ibdev));
	}
	KUNIT_ASSERT_EQ(test, 0, kunit_add_action_or_reset(test, sharing_put,
							   &ibdev->dev));
	KUNIT_ASSERT_EQ(test, 0, kunit_add_action_or_reset(test, sharing_unregister,
							   ibdev));
	pd = ib_alloc_pd(ibdev, 0);
	KUNIT_ASSERT_FALSE(test, IS_ERR(pd));
	KUNIT_ASSERT_EQ(test, 0, kunit_add_action_or_reset(test, sharing_dealloc,
							   pd));
	sharing = (struct sharing){
		.kdev = to_kdev(ibdev), .domain = to_kpd(pd)->domain,
	};
}

/* SPD-1: of two threads that share a domain at the same time, one gets a handle. */
static void spd_1_shared_twice(struct kunit *test)
{
	unsigned int n = 0;
	struct keel_shpd *shpd;
	unsigned long id;
	void *obj;

	sharing_init(test);
	WRITE_ONCE(keel_point_hook.hit, sharing_hook);
	shpd = keel_shpd_create(sharing.kdev, sharing.domain, 1);
	WRITE_ONCE(keel_point_hook.hit, NULL);
	KUNIT_EXPECT_EQ(test, 2, sharing.visits);
	KUNIT_EXPECT_PTR_EQ(test, ERR_PTR(-EINVAL), shpd);
	KUNIT_ASSERT_FALSE(test, IS_ERR(sharing.other));
	KUNIT_EXPECT_PTR_EQ(test, sharing.other, sharing.domain->shpd);
	xa_for_each(&sharing.kdev->reg.objs[KEEL_SHPD].xa, id, obj)
		n++;
	KUNIT_EXPECT_EQ(test, 1, n);
	KUNIT_EXPECT_PTR_EQ(test, ERR_PTR(-EINVAL),
			    keel_shpd_create(sharing.kdev, sharing.domain, 3));
}

static struct kunit_case shpd_test_cases[] = {
	KUNIT_CASE_PARAM(spd_6_handles_unique, unique_gen_params),
	KUNIT_CASE(spd_4_handles_not_guessable),
	KUNIT_CASE_PARAM(spd_4_secret_matters, secret_gen_params),
	KUNIT_CASE(spd_4_key_compare),
	KUNIT_CASE(spd_1_shared_twice),
	{}
};

static struct kunit_suite shpd_test_suite = {
	.name = "keel_shpd",
	.test_cases = shpd_test_cases,
};
kunit_test_suite(shpd_test_suite);
