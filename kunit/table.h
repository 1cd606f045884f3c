/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A table of keys, and the objects that they open.
 */
#ifndef KEEL_TABLE_H
#define KEEL_TABLE_H

#include <kunit/test.h>

#include "dummy_obj.h"
#include "keel_keys.h"

/* Of the keys that key_new() makes. */
#define MINE		7
#define OTHERS		8
#define IOVA		0x10000ULL
#define LENGTH		0x2000ULL
#define ACCESS		(IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_READ)
#define INDEX_MAX	(U32_MAX >> 8)

/* For suites: test->priv is a struct dummies with a table behind it. */
int table_init(struct kunit *test);
void table_exit(struct kunit *test);
struct keel_keys *table_keys(struct kunit *test);

/* A key of @dummy, in the domain MINE. */
struct keel_key *key_new(struct kunit *test, struct dummy *dummy);
/* The result of asking; the use that a success gives is given back. */
int key_ask(struct kunit *test, u32 key, u32 domain, u32 access, u64 addr,
	    u64 len);

#endif /* KEEL_TABLE_H */
