// SPDX-License-Identifier: GPL-2.0
/*
 * Verbs whose allocations and copies fail. See fault_verb.h.
 */
#include <errno.h>
#include <stdlib.h>

#include <infiniband/verbs.h>

#include "dev.h"
#include "fault.h"
#include "fault_verb.h"
#include "t.h"
#include "tree.h"

/* More allocations than any verb makes. */
#define MOST	2000

struct count {
	int refused;
	int done;	/* the verb got by without it */
};

void *fault_result(int err, void *object)
{
	errno = err;
	return err ? NULL : object;
}

int fault_dealloc_pd(void *pd)
{
	return ibv_dealloc_pd(pd);
}

int fault_free_dm(void *dm)
{
	return ibv_free_dm(dm);
}

int fault_dereg_mr(void *mr)
{
	return ibv_dereg_mr(mr);
}

int fault_destroy_qp(void *qp)
{
	return ibv_destroy_qp(qp);
}

static bool is_refusal(int err)
{
	return err == ENOMEM || err == EFAULT;
}

static bool make_with_failure(const struct fault_verb *v, int n,
			      struct count *count)
{
	char *before = tree_settled(KEEL0);
	bool was_failed;
	void *object;
	int err;

	fault_start(n);
	errno = 0;
	object = v->make();
	err = errno;
	was_failed = fault_end();
	if (object) {
		count->done += was_failed;
		CHECK_OK(v->unmake(object));
	} else {
		count->refused++;
		if (!was_failed || (!is_refusal(err) && !v->any_errno))
			FAIL("%s, allocation %d fails: got %s, want ENOMEM or EFAULT",
			     v->name, n, t_errname(err));
	}
	CHECK_SAME_TREE(before);
	free(before);
	return was_failed;
}

void fault_verb_make(const struct fault_verb *v)
{
	struct count count = {};
	int n;

	fault_copies(!v->answers_late && !v->keel_only);
	fault_only_keel(v->keel_only);
	for (n = 1; make_with_failure(v, n, &count); n++)
		CHECK(n < MOST);
	t_note("%s: %d refused, %d done", v->name, count.refused, count.done);
	/* A verb is a system call at least, which copies something. */
	CHECK(count.refused > 0);
}

static bool unmake_with_failure(const struct fault_verb *v, int n,
				struct count *count)
{
	char *before = tree_settled(KEEL0);
	void *object = MUST(v->make());
	bool was_failed;
	int err;

	fault_start(n);
	err = v->unmake(object);
	was_failed = fault_end();
	if (err) {
		count->refused++;
		if (!was_failed || !is_refusal(err))
			FAIL("undo %s, allocation %d fails: got %s, want ENOMEM or EFAULT",
			     v->name, n, t_errname(err));
		CHECK_OK(v->unmake(object));
	} else {
		count->done += was_failed;
	}
	CHECK_SAME_TREE(before);
	free(before);
	return was_failed;
}

int fault_verb_unmake(const struct fault_verb *v)
{
	struct count count = {};
	int n;

	fault_copies(false);
	fault_only_keel(false);
	for (n = 1; unmake_with_failure(v, n, &count); n++)
		CHECK(n < MOST);
	t_note("undo %s: %d refused, %d done", v->name, count.refused,
	       count.done);
	return count.refused;
}
