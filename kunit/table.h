/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A table of keys, and the objects that the keys give access to.
 */
#ifndef KEEL_TABLE_H
#define KEEL_TABLE_H

#include <kunit/test.h>

#include "dummy_obj.h"
#include "keel_keys.h"

/* Attributes of the keys that key_new() creates. */
#define MINE		7
#define OTHERS		8
#define IOVA		0x10000ULL
#define LENGTH		0x2000ULL
#define ACCESS		(IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_READ)
#define INDEX_MAX	(U32_MAX >> 8)

/* For suites: test->priv is a struct dummies, followed by a table. */
int table_init(struct kunit *test);
void table_exit(struct kunit *test);
struct keel_keys *table_keys(struct kunit *test);

/* Create a key of @dummy in the domain MINE. */
struct keel_key *key_new(struct kunit *test, struct dummy *dummy);
/* Look a key up and return the result. Drops the reference on success. */
int key_ask(struct kunit *test, u32 key, u32 domain, u32 access, u64 addr,
	    u64 len);

#endif /* KEEL_TABLE_H */
