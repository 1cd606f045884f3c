/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Arenas: memory of every kind, with a shadow of what should be in it.
 */
#ifndef KEEL_ARENA_H
#define KEEL_ARENA_H

#include <kunit/test.h>
#include <linux/prandom.h>

#include "keel_copy.h"

#define ARENA_PAGES	48
#define ARENA_SIZE	(ARENA_PAGES * PAGE_SIZE)
/* Its memory does not start at the start of a page. */
#define ARENA_FIRST	1237
#define ARENA_BYTES	(ARENA_SIZE - PAGE_SIZE)

enum arena_kind {
	ARENA_SCATTERED,	/* pages that are nowhere near each other */
	ARENA_TOGETHER,		/* pages that follow each other */
	ARENA_DM,
	ARENA_BAR,		/* device memory, too */
	ARENA_KERNEL,
	ARENA_SMALL,		/* a list of pages smaller than the kernel's */
	ARENA_LARGE,		/* a list of larger ones */
	ARENA_KINDS,
};

/**
 * struct arena - memory
 * @kind: what it is made of
 * @mem: for the walker; ARENA_BYTES of it
 * @pages: its pages, where it has some
 * @buf: its bytes, where the kernel sees them as one; a list's are in another
 *	order
 * @shadow: what should be in it
 */
struct arena {
	enum arena_kind kind;
	struct keel_mem mem;
	struct page **pages;
	u8 *buf;
	u8 *shadow;
};

/* All arenas, of random bytes; gone when the test ends. */
struct arena *arenas_new(struct kunit *test, struct rnd_state *rnd);
/* One byte, read and written without the walker. */
u8 arena_get(const struct arena *a, u64 at);
void arena_set(struct arena *a, u64 at, u8 byte);
/* First byte that is not as its shadow, or -1. */
long arena_differs(const struct arena *a);

#endif /* KEEL_ARENA_H */
