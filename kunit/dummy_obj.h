/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Dummies: objects of any kind without a resource, and a registry that logs the
 * order of their release.
 */
#ifndef KEEL_DUMMY_OBJ_H
#define KEEL_DUMMY_OBJ_H

#include <kunit/test.h>

#include "keel_obj.h"

#define DUMMIES_LOG	16

/**
 * struct dummies - a registry and its log
 * @reg: the registry
 * @lock: protects @log and @released
 * @released: number of released dummies
 * @log: marks of the dummies that were released first
 * @at_release: called before a dummy is freed, or NULL
 * @arg: for @at_release
 */
struct dummies {
	struct keel_registry reg;
	spinlock_t lock;
	unsigned int released;
	char log[DUMMIES_LOG + 1];
	void (*at_release)(struct keel_obj *obj, void *arg);
	void *arg;
};

/**
 * struct dummy - an object
 * @obj: the object
 * @holds: the objects that it holds
 * @dummies: its registry
 * @mark: its mark in the log
 */
struct dummy {
	struct keel_obj obj;
	struct keel_hold holds[2];
	struct dummies *dummies;
	char mark;
};

/* For suites: test->priv is a struct dummies. */
int dummies_init(struct kunit *test);
void dummies_exit(struct kunit *test);

/* Returns the dummy, or the error of keel_obj_add() as ERR_PTR(). */
struct dummy *dummy_try(struct dummies *dummies, enum keel_kind kind, char mark,
			struct dummy *first, struct dummy *second);
/* As dummy_try(), but a failure ends the test. */
struct dummy *dummy_new(struct kunit *test, enum keel_kind kind, char mark,
			struct dummy *first, struct dummy *second);
void dummy_close(struct dummy *dummy);

static inline unsigned int dummy_refs(const struct dummy *dummy)
{
	return kref_read(&dummy->obj.ref);
}

#endif /* KEEL_DUMMY_OBJ_H */
