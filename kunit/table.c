// SPDX-License-Identifier: GPL-2.0
/*
 * A table of keys, and the objects that the keys give access to.
 */
#include <linux/err.h>
#include <rdma/ib_verbs.h>

#include "table.h"

struct table {
	struct dummies dummies;
	struct keel_keys keys;
};

struct keel_keys *table_keys(struct kunit *test)
{
	return &container_of(test->priv, struct table, dummies)->keys;
}

int table_init(struct kunit *test)
{
	struct table *table = kunit_kzalloc(test, sizeof(*table), GFP_KERNEL);

	if (!table)
		return -ENOMEM;
	spin_lock_init(&table->dummies.lock);
	keel_registry_init(&table->dummies.reg, "kunit");
	keel_keys_init(&table->keys);
	test->priv = &table->dummies;
	return 0;
}

void table_exit(struct kunit *test)
{
	dummies_exit(test);
	KUNIT_EXPECT_TRUE(test, keel_numbers_are_free(&table_keys(test)->numbers));
	keel_keys_fini(table_keys(test));
}

struct keel_key *key_new(struct kunit *test, struct dummy *dummy)
{
	struct keel_key *key = kunit_kzalloc(test, sizeof(*key), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, key);
	key->domain = MINE;
	key->access = ACCESS;
	key->iova = IOVA;
	key->length = LENGTH;
	key->obj = &dummy->obj;
	KUNIT_ASSERT_EQ(test, 0, keel_key_insert(table_keys(test), key));
	return key;
}

int key_ask(struct kunit *test, u32 key, u32 domain, u32 access, u64 addr,
	    u64 len)
{
	struct keel_key *k = keel_key_get(table_keys(test), key, domain,
					  access, addr, len);

	if (IS_ERR(k))
		return PTR_ERR(k);
	KUNIT_EXPECT_EQ(test, key, k->key);
	keel_key_put(k);
	return 0;
}
