/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Verbs whose allocations and copies fail, one after another.
 */
#ifndef FAULT_VERB_H
#define FAULT_VERB_H

#include <stdbool.h>

/**
 * struct fault_verb - a verb that creates something, and the verb that undoes it
 * @name: for messages
 * @make: returns NULL and sets errno if it failed
 * @unmake: returns a positive errno if it failed, which changes nothing
 * @any_errno: libibverbs goes on after a failure, and sets another errno
 * @answers_late: ib_uverbs copies its answer to userspace after the change
 * @keel_only: only allocations of keel fail. create_xrc_qp_user() of ib_core
 *	keeps a reference of the XRC domain for ever if an allocation of its own
 *	fails.
 */
struct fault_verb {
	const char *name;
	void *(*make)(void);
	int (*unmake)(void *object);
	bool any_errno;
	bool answers_late;
	bool keel_only;
};

/* A row of a table of verbs; members after @its_unmake as in the structure. */
#define FAULT_VERB(its_name, its_make, its_unmake, ...)			\
	{ .name = its_name, .make = its_make, .unmake = its_unmake,	\
	  __VA_ARGS__ }

/* For @make: return NULL with @err as errno, and without an error @object. */
void *fault_result(int err, void *object);

/* For @unmake. */
int fault_dealloc_pd(void *pd);
int fault_free_dm(void *dm);
int fault_dereg_mr(void *mr);
int fault_destroy_qp(void *qp);

/*
 * Call @v->make() with its first allocation or copy failing, then its second, and
 * so on until none is left. Each refusal must be ENOMEM or EFAULT and must leave
 * the object tree as it was, and some call must be refused. fault_init() comes
 * first.
 */
void fault_verb_make(const struct fault_verb *v);

/*
 * The same with the allocations of @v->unmake(), which works after each refusal.
 * No copy fails: ib_uverbs copies its answer to userspace after the object is
 * gone, so a copy that fails then is no refusal. Returns the number of refusals.
 */
int fault_verb_unmake(const struct fault_verb *v);

#endif /* FAULT_VERB_H */
