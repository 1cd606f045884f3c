// SPDX-License-Identifier: GPL-2.0
/*
 * Failing allocations, as in fail_nth.c: a context that starts the worker of its
 * process. The contexts of the other programs have one already.
 */
#include "fault.h"
#include "fault_verb.h"
#include "dev.h"
#include "t.h"
#include "tree.h"

static char memory[64 * 4096] __attribute__((aligned(4096)));

/* Keeps the module in use. */
static struct ibv_context *ctx_used;

/* The first on-demand MR of a context starts a worker of the process. */
static void *reg_first_odp(void)
{
	struct ibv_context *ctx = ibv_open_device(ctx_used->device);
	struct ibv_pd *pd = ctx ? ibv_alloc_pd(ctx) : NULL;
	struct ibv_mr *mr = NULL;
	int err;

	if (pd)
		mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
	if (mr)
		return mr;
	err = errno;
	if (pd)
		CHECK_OK(ibv_dealloc_pd(pd));
	if (ctx)
		CHECK_OK(ibv_close_device(ctx));
	return fault_result(err, NULL);
}

static int dereg_first_odp(void *object)
{
	struct ibv_mr *mr = object;
	struct ibv_context *ctx = mr->context;
	struct ibv_pd *pd = mr->pd;

	CHECK_OK(ibv_dereg_mr(mr));
	CHECK_OK(ibv_dealloc_pd(pd));
	return ibv_close_device(ctx);
}

static const struct fault_verb first_odp =
	FAULT_VERB("the first on-demand ibv_reg_mr of a context", reg_first_odp,
		   dereg_first_odp, .any_errno = true);

TEST_ONLY_DEBUG(worker, "DEV-4,PD-2", "the first on-demand MR of a context with each allocation of it and of its worker failing once: an error, and nothing changes",
		"its kernel cannot let allocations fail", 120)
{
	fault_init();
	ctx_used = dev_open(KEEL0);
	fault_verb_make(&first_odp);
	CHECK_OK(ibv_close_device(ctx_used));
	CHECK_EQ(tree_count(KEEL0, NULL), 0);
}
