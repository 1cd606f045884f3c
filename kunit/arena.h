/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Arenas: memory of every kind, with a shadow of its expected content.
 */
#ifndef KEEL_ARENA_H
#define KEEL_ARENA_H

#include <kunit/test.h>
#include <linux/prandom.h>

#include "keel_blocks.h"
#include "keel_copy.h"

#define ARENA_PAGES	48
#define ARENA_SIZE	(ARENA_PAGES * PAGE_SIZE)
/* The memory does not start at a page boundary. */
#define ARENA_FIRST	1237
#define ARENA_BYTES	(ARENA_SIZE - PAGE_SIZE)
/* Pages in the first block. */
#define ARENA_IN_BLOCK	20

enum arena_kind {
	ARENA_SCATTERED,	/* pages that are not adjacent */
	ARENA_TOGETHER,		/* adjacent pages */
	ARENA_MIXED,		/* adjacent pages in the first block only */
	ARENA_DM,
	ARENA_BAR,		/* device memory, too */
	ARENA_KERNEL,
	ARENA_SMALL,		/* a list of pages smaller than the kernel's */
	ARENA_LARGE,		/* a list of larger pages */
	ARENA_KINDS,
};

/**
 * struct arena - memory
 * @kind: kind of memory
 * @mem: the memory for the walker, of ARENA_BYTES
 * @pages: its pages, if it has any
 * @blocks: where they are
 * @buf: kernel mapping of its bytes, if any; a list has them in another order
 * @shadow: expected content
 */
struct arena {
	enum arena_kind kind;
	struct keel_mem mem;
	struct page **pages;
	struct keel_blocks *blocks;
	u8 *buf;
	u8 *shadow;
};

/* Create all arenas with random bytes. They are freed when the test ends. */
struct arena *arenas_new(struct kunit *test, struct rnd_state *rnd);
/* Read and write a byte without the walker. */
u8 arena_get(const struct arena *a, u64 at);
void arena_set(struct arena *a, u64 at, u8 byte);
/* Return the first byte that differs from its shadow, or -1. */
long arena_differs(const struct arena *a);

#endif /* KEEL_ARENA_H */
