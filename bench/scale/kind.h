/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* Kinds of objects that the program scale creates and destroys. */
#ifndef KIND_H
#define KIND_H

#include "bench.h"

#define PAGE		4096UL
#define MIB		(1UL << 20)
#define GIB		(1UL << 30)
/* Of memory that small MRs use in turn. */
#define PAGES		4096

/**
 * struct kind - a kind of object
 * @name: as the program's argument
 * @prepare: creates what the objects need. Optional. Returns 0, or -1 and sets errno
 * @make: returns an object, or NULL and sets errno
 * @unmake: destroys the object; returns 0 or the value of errno
 */
struct kind {
	const char *name;
	int (*prepare)(void);
	void *(*make)(void);
	int (*unmake)(void *obj);
};

/* Each ends with a kind without a name. */
extern const struct kind domain_kinds[], memory_kinds[], queue_kinds[], floor_kinds[];

/**
 * struct world - what most kinds need
 * @name: name of the device
 * @ctx: NULL for kinds of floor_kinds[], whose device libibverbs does not know
 */
struct world {
	const char *name;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	int gid_index;
};

extern struct world world;

/* Return a function of the user library of keel. The device has no such call: EOPNOTSUPP. */
void *keel_call(const char *name);
/*
 * Return @length bytes of memory that is there, in pages or huge pages, or NULL and set
 * errno. It is never freed.
 */
void *memory_new(size_t length);
void *memory_huge(size_t length);

#endif
