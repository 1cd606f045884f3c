/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Dummies: objects of any kind with nothing behind them, and a registry that
 * writes down in which order they are released.
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
 * @released: how many dummies were released
 * @log: the marks of the first of them
 * @at_release: called for each before it is freed, or NULL
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
 * @dummies: where it is listed
 * @mark: what stands in the log for it
 */
struct dummy {
	struct keel_obj obj;
	struct dummies *dummies;
	char mark;
};

/* For suites: test->priv is a struct dummies. */
int dummies_init(struct kunit *test);
void dummies_exit(struct kunit *test);

/* The dummy, or ERR_PTR() of what keel_obj_add() said. */
struct dummy *dummy_try(struct dummies *dummies, enum keel_kind kind, char mark,
			struct dummy *first, struct dummy *second);
/* The same, and the test ends here if it fails. */
struct dummy *dummy_new(struct kunit *test, enum keel_kind kind, char mark,
			struct dummy *first, struct dummy *second);
void dummy_close(struct dummy *dummy);

static inline unsigned int dummy_refs(const struct dummy *dummy)
{
	return kref_read(&dummy->obj.ref);
}

#endif /* KEEL_DUMMY_OBJ_H */
