/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A protection domain, and the objects that keep it from being deallocated.
 */
#include <infiniband/keeldv.h>

#include "say.h"

static char buffer[4096];

static void who(struct ibv_pd *pd)
{
	struct keeldv_holder list[8];
	uint32_t i, count = 8;
	int ret = keeldv_pd_holders(pd, list, &count);

	must(ret == 0);
	did("keeldv_pd_holders() returns %u:", count);
	for (i = 0; i < count; i++)
		did("  %s %u, created by process %u (%.16s)",
		    keeldv_kind_str(list[i].kind), list[i].id, list[i].pid,
		    list[i].comm);
}

int main(void)
{
	struct ibv_context *context = open_keel();
	struct ibv_pd *pd;
	struct ibv_mr *mr;

	say("A protection domain, and a memory region in it.");
	pd = ibv_alloc_pd(context);
	must(pd);
	did("ibv_alloc_pd() -> handle %u", pd->handle);
	mr = ibv_reg_mr(pd, buffer, sizeof(buffer),
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	must(mr);
	did("ibv_reg_mr(4096 bytes) -> lkey 0x%08x, rkey 0x%08x", mr->lkey,
	    mr->rkey);
	tree();

	say("While the region lives, the PD is busy. These are its holders.");
	must_be(ibv_dealloc_pd(pd), EBUSY);
	who(pd);

	say("Without the region the PD can be deallocated.");
	must_be(ibv_dereg_mr(mr), 0);
	must_be(ibv_dealloc_pd(pd), 0);
	tree();
	return ibv_close_device(context);
}
