// SPDX-License-Identifier: GPL-2.0
/*
 * lkeys and rkeys: the memory and the domain that a key gives access to.
 */
#include <kunit/test.h>
#include <linux/bitmap.h>
#include <linux/err.h>
#include <rdma/ib_verbs.h>

#include "table.h"

struct check_case {
	const char *desc;
	u32 domain;
	u32 access;
	u64 addr;
	u64 len;
	int want;
};

static const struct check_case check_cases[] = {
	{ "PD-4: its own domain", MINE, ACCESS, IOVA, LENGTH, 0 },
	{ "PD-4: another domain", OTHERS, ACCESS, IOVA, LENGTH, -EPERM },
	{ "PD-4: another domain, no right asked", OTHERS, 0, IOVA, 0, -EPERM },
	{ "PD-4: domain 0", 0, 0, IOVA, 1, -EPERM },
	{ "PD-4: last domain", U32_MAX, 0, IOVA, 1, -EPERM },
	{ "PD-4: a domain is refused before a right is", OTHERS,
	  IB_ACCESS_REMOTE_ATOMIC, IOVA, 1, -EPERM },
	{ "PD-4: a domain is refused before a range is", OTHERS, 0, 0, 1,
	  -EPERM },
	/* Rights */
	{ "no right", MINE, 0, IOVA, LENGTH, 0 },
	{ "one right of two", MINE, IB_ACCESS_REMOTE_READ, IOVA, LENGTH, 0 },
	{ "a right it does not have", MINE, IB_ACCESS_REMOTE_WRITE, IOVA,
	  LENGTH, -EACCES },
	{ "one that it has and one that it has not", MINE,
	  IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_ATOMIC, IOVA, 8, -EACCES },
	{ "all rights", MINE, U32_MAX, IOVA, LENGTH, -EACCES },
	{ "a right is refused before a range is", MINE, IB_ACCESS_MW_BIND, 0,
	  1, -EACCES },
	/* Ranges */
	{ "first byte", MINE, 0, IOVA, 1, 0 },
	{ "last byte", MINE, 0, IOVA + LENGTH - 1, 1, 0 },
	{ "nothing, at the start", MINE, 0, IOVA, 0, 0 },
	{ "nothing, at the end", MINE, 0, IOVA + LENGTH, 0, 0 },
	{ "nothing, before the start", MINE, 0, IOVA - 1, 0, -ERANGE },
	{ "nothing, behind the end", MINE, 0, IOVA + LENGTH + 1, 0, -ERANGE },
	{ "nothing, at 0", MINE, 0, 0, 0, -ERANGE },
	{ "byte before the start", MINE, 0, IOVA - 1, 1, -ERANGE },
	{ "byte behind the end", MINE, 0, IOVA + LENGTH, 1, -ERANGE },
	{ "across the start", MINE, 0, IOVA - 1, 2, -ERANGE },
	{ "across the end", MINE, 0, IOVA + LENGTH - 1, 2, -ERANGE },
	{ "one byte too many", MINE, 0, IOVA, LENGTH + 1, -ERANGE },
	{ "around all of it", MINE, 0, IOVA - 1, LENGTH + 2, -ERANGE },
	{ "longest", MINE, 0, IOVA, U64_MAX, -ERANGE },
	{ "sum wraps to 0", MINE, 0, IOVA, 0 - IOVA, -ERANGE },
	{ "sum wraps to the start", MINE, 0, IOVA + 1, U64_MAX, -ERANGE },
	{ "sum wraps to inside", MINE, 0, IOVA + 8, U64_MAX - 3, -ERANGE },
	{ "from the last address", MINE, 0, U64_MAX, 1, -ERANGE },
	{ "from the last address to inside", MINE, 0, U64_MAX, IOVA + 2,
	  -ERANGE },
	{ "address that is the start in 32 bits", MINE, 0, IOVA + (1ULL << 32),
	  1, -ERANGE },
	{ "length that is 1 in 32 bits", MINE, 0, IOVA, (1ULL << 32) + 1,
	  -ERANGE },
};
KUNIT_ARRAY_PARAM_DESC(check, check_cases, desc);

static void key_check(struct kunit *test)
{
	const struct check_case *c = test->param_value;
	struct dummy *mr = dummy_new(test, KEEL_MR, 'm', NULL, NULL);
	struct keel_key *key = key_new(test, mr);

	KUNIT_EXPECT_EQ(test, c->want, key_ask(test, key->key, c->domain,
					       c->access, c->addr, c->len));
	/* No reference on the key is left. */
	KUNIT_EXPECT_EQ(test, 1, refcount_read(&key->users));
	KUNIT_EXPECT_EQ(test, 1, dummy_refs(mr));
	keel_key_remove(table_keys(test), key);
	dummy_close(mr);
}

struct extreme_case {
	const char *desc;
	u64 iova, length, addr, len;
	int want;
};

static const struct extreme_case extreme_cases[] = {
	{ "all addresses: all", 0, U64_MAX, 0, U64_MAX, 0 },
	{ "all addresses: the end", 0, U64_MAX, U64_MAX, 0, 0 },
	{ "all addresses: behind the end", 0, U64_MAX, U64_MAX, 1, -ERANGE },
	{ "all addresses: wraps", 0, U64_MAX, 1, U64_MAX, -ERANGE },
	{ "nothing: nothing", IOVA, 0, IOVA, 0, 0 },
	{ "nothing: a byte", IOVA, 0, IOVA, 1, -ERANGE },
	{ "nothing: elsewhere", IOVA, 0, IOVA + 1, 0, -ERANGE },
	{ "nothing: before", IOVA, 0, IOVA - 1, 0, -ERANGE },
	{ "zero based: first byte", 0, 8, 0, 1, 0 },
	{ "zero based: all", 0, 8, 0, 8, 0 },
	{ "zero based: behind", 0, 8, 8, 1, -ERANGE },
	{ "zero based: from the last address", 0, 8, U64_MAX, 1, -ERANGE },
	{ "up to the last address: last byte", U64_MAX - 7, 8, U64_MAX, 1, 0 },
	{ "up to the last address: one more", U64_MAX - 7, 8, U64_MAX, 2,
	  -ERANGE },
	{ "up to the last address: byte 0", U64_MAX - 7, 8, 0, 1, -ERANGE },
};
KUNIT_ARRAY_PARAM_DESC(extreme, extreme_cases, desc);

static void keys_extremes(struct kunit *test)
{
	const struct extreme_case *c = test->param_value;
	struct dummy *mr = dummy_new(test, KEEL_MR, 'm', NULL, NULL);
	struct keel_key *key = key_new(test, mr);

	key->iova = c->iova;
	key->length = c->length;
	KUNIT_EXPECT_EQ(test, c->want, key_ask(test, key->key, MINE, 0,
					       c->addr, c->len));
	keel_key_remove(table_keys(test), key);
	dummy_close(mr);
}

/* PD-4: each of two keys gives access to its own domain only. */
static void pd_4_two_domains(struct kunit *test)
{
	struct dummy *mr[2];
	struct keel_key *key[2], *k;
	int i, j;

	for (i = 0; i < 2; i++) {
		mr[i] = dummy_new(test, KEEL_MR, 'm', NULL, NULL);
		key[i] = key_new(test, mr[i]);
		key[i]->domain = MINE + i;
	}
	for (i = 0; i < 2; i++) {
		for (j = 0; j < 2; j++) {
			k = keel_key_get(table_keys(test), key[i]->key,
					 MINE + j, ACCESS, IOVA, LENGTH);
			if (i != j) {
				KUNIT_EXPECT_EQ(test, -EPERM,
						PTR_ERR_OR_ZERO(k));
				continue;
			}
			KUNIT_ASSERT_PTR_EQ(test, key[i], k);
			keel_key_put(k);
		}
	}
	for (i = 0; i < 2; i++) {
		keel_key_remove(table_keys(test), key[i]);
		dummy_close(mr[i]);
	}
}

/* A key with a wrong bit is not found. */
static void keys_no_near_miss(struct kunit *test)
{
	struct dummy *mr = dummy_new(test, KEEL_MR, 'm', NULL, NULL);
	struct keel_key *key = key_new(test, mr);
	int bit;

	for (bit = 0; bit < 32; bit++)
		KUNIT_EXPECT_EQ(test, -ENOENT,
				key_ask(test, key->key ^ 1U << bit, MINE, 0,
					IOVA, 1));
	KUNIT_EXPECT_EQ(test, -ENOENT, key_ask(test, 0, MINE, 0, IOVA, 1));
	KUNIT_EXPECT_EQ(test, -ENOENT,
			key_ask(test, U32_MAX, MINE, 0, IOVA, 1));
	KUNIT_EXPECT_EQ(test, 0, key_ask(test, key->key, MINE, 0, IOVA, 1));
	keel_key_remove(table_keys(test), key);
	dummy_close(mr);
}

/* SPD-7: an invalidated key is not found. */
static void spd_7_stale_key(struct kunit *test)
{
	struct dummy *mr = dummy_new(test, KEEL_MR, 'm', NULL, NULL);
	struct keel_key *key = key_new(test, mr);

	KUNIT_EXPECT_EQ(test, 0, key_ask(test, key->key, MINE, 0, IOVA, 1));
	keel_key_remove(table_keys(test), key);
	KUNIT_EXPECT_EQ(test, -ENOENT,
			key_ask(test, key->key, MINE, 0, IOVA, 1));
	KUNIT_EXPECT_EQ(test, -ENOENT,
			key_ask(test, key->key, OTHERS, 0, 0, 1));
	dummy_close(mr);
}

/* SPD-7: a stale key is not found when its index is reused, up to 255 times. */
static void spd_7_stale_key_index_reused(struct kunit *test)
{
	struct keel_keys *keys = table_keys(test);
	struct dummy *mr = dummy_new(test, KEEL_MR, 'm', NULL, NULL);
	struct keel_key *key = key_new(test, mr), *next = key_new(test, mr);
	DECLARE_BITMAP(seen, 256) = {};
	u32 index = key->key >> 8;
	int round;

	for (round = 0; round < 256; round++) {
		KUNIT_ASSERT_EQ(test, index, key->key >> 8);
		KUNIT_ASSERT_FALSE_MSG(test,
				       test_and_set_bit(key->key & 255, seen),
				       "0x%x again in round %d", key->key,
				       round);
		keel_key_remove(keys, key);
		/* All other indexes were used: go back to the first. */
		keel_key_remove(keys, next);
		keys->numbers.next = INDEX_MAX + 1;
		KUNIT_ASSERT_EQ(test, 0, keel_key_insert(keys, key));
		KUNIT_ASSERT_EQ(test, 0, keel_key_insert(keys, next));
	}
	keel_key_remove(keys, next);
	keel_key_remove(keys, key);
	dummy_close(mr);
}

/* An index is reused only after all others. Key 0 is never used. */
static void keys_go_round(struct kunit *test)
{
	struct keel_keys *keys = table_keys(test);
	struct dummy *mr = dummy_new(test, KEEL_MR, 'm', NULL, NULL);
	struct keel_key *key = key_new(test, mr);
	u32 last;
	int i;

	for (i = 0; i < 1000; i++) {
		last = key->key >> 8;
		keel_key_remove(keys, key);
		KUNIT_ASSERT_EQ(test, 0, keel_key_insert(keys, key));
		KUNIT_ASSERT_EQ(test, last + 1, key->key >> 8);
	}
	keel_key_remove(keys, key);
	keys->numbers.next = INDEX_MAX;
	KUNIT_ASSERT_EQ(test, 0, keel_key_insert(keys, key));
	KUNIT_EXPECT_EQ(test, INDEX_MAX, key->key >> 8);
	keel_key_remove(keys, key);
	KUNIT_ASSERT_EQ(test, 0, keel_key_insert(keys, key));
	KUNIT_EXPECT_EQ(test, 1, key->key >> 8);
	keel_key_remove(keys, key);
	dummy_close(mr);
}

/* The lower 8 bits of a key do not predict those of the next key. */
static void keys_low_bits_spread(struct kunit *test)
{
	struct keel_keys *keys = table_keys(test);
	struct dummy *mr = dummy_new(test, KEEL_MR, 'm', NULL, NULL);
	struct keel_key *key = key_new(test, mr);
	DECLARE_BITMAP(values, 256) = {};
	DECLARE_BITMAP(steps, 256) = {};
	u8 last = key->key;
	int i;

	for (i = 0; i < 1000; i++) {
		keel_key_remove(keys, key);
		KUNIT_ASSERT_EQ(test, 0, keel_key_insert(keys, key));
		__set_bit(key->key & 255, values);
		__set_bit((u8)(key->key - last), steps);
		last = key->key;
	}
	/* 1,000 random values cover about 251 of 256, and never below 200. */
	KUNIT_EXPECT_GT(test, bitmap_weight(values, 256), 200);
	KUNIT_EXPECT_GT(test, bitmap_weight(steps, 256), 200);
	keel_key_remove(keys, key);
	dummy_close(mr);
}

static struct kunit_case keys_test_cases[] = {
	KUNIT_CASE_PARAM(key_check, check_gen_params),
	KUNIT_CASE(pd_4_two_domains),
	KUNIT_CASE(spd_7_stale_key),
	KUNIT_CASE(spd_7_stale_key_index_reused),
	KUNIT_CASE_PARAM(keys_extremes, extreme_gen_params),
	KUNIT_CASE(keys_no_near_miss),
	KUNIT_CASE(keys_go_round),
	KUNIT_CASE(keys_low_bits_spread),
	{}
};

static struct kunit_suite keys_test_suite = {
	.name = "keel_keys",
	.init = table_init,
	.exit = table_exit,
	.test_cases = keys_test_cases,
};
kunit_test_suite(keys_test_suite);
