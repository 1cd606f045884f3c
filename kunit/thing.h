/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Things: objects of any kind with nothing behind them, and a registry that
 * writes down in which order they are released.
 */
#ifndef KEEL_THING_H
#define KEEL_THING_H

#include <kunit/test.h>

#include "keel_obj.h"

#define THINGS_LOG	16

/**
 * struct things - a registry and its log
 * @reg: the registry
 * @lock: protects @log and @released
 * @released: how many things were released
 * @log: the marks of the first of them
 * @at_release: called for each before it is freed, or NULL
 * @arg: for @at_release
 */
struct things {
	struct keel_registry reg;
	spinlock_t lock;
	unsigned int released;
	char log[THINGS_LOG + 1];
	void (*at_release)(struct keel_obj *obj, void *arg);
	void *arg;
};

/**
 * struct thing - an object
 * @obj: the object
 * @things: where it is listed
 * @mark: what stands in the log for it
 */
struct thing {
	struct keel_obj obj;
	struct things *things;
	char mark;
};

/* For suites: test->priv is a struct things. */
int things_init(struct kunit *test);
void things_exit(struct kunit *test);

/* The thing, or ERR_PTR() of what keel_obj_add() said. */
struct thing *thing_try(struct things *things, enum keel_kind kind, char mark,
			struct thing *first, struct thing *second);
/* The same, and the test ends here if it fails. */
struct thing *thing_new(struct kunit *test, enum keel_kind kind, char mark,
			struct thing *first, struct thing *second);
void thing_close(struct thing *thing);

static inline unsigned int thing_refs(const struct thing *thing)
{
	return kref_read(&thing->obj.ref);
}

#endif /* KEEL_THING_H */
