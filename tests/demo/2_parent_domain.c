/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A parent domain with a thread domain: a second handle on a PD, for the queues
 * of one thread.
 */
#include "say.h"

static char buffer[4096];

int main(void)
{
	struct ibv_parent_domain_init_attr attr = {};
	struct ibv_td_init_attr td_attr = {};
	struct ibv_context *context = open_keel();
	struct ibv_pd *pd, *parent;
	struct ibv_td *td;
	struct ibv_mr *mr;

	say("A PD, a thread domain, and a parent domain made from both.");
	pd = ibv_alloc_pd(context);
	must(pd);
	td = ibv_alloc_td(context, &td_attr);
	must(td);
	did("ibv_alloc_td() -> ok");
	attr.pd = pd;
	attr.td = td;
	parent = ibv_alloc_parent_domain(context, &attr);
	must(parent);
	did("ibv_alloc_parent_domain() -> handle %u, a PD like any other",
	    parent->handle);

	say("Verbs that take a PD take the parent domain, too.");
	mr = ibv_reg_mr(parent, buffer, sizeof(buffer), 0);
	must(mr);
	did("ibv_reg_mr(parent) -> lkey 0x%08x", mr->lkey);
	tree();

	say("The region holds the parent domain, which holds the PD and the TD.");
	must_be(ibv_dealloc_pd(parent), EBUSY);
	must_be(ibv_dealloc_pd(pd), EBUSY);
	must_be(ibv_dealloc_td(td), EBUSY);

	say("A parent domain of a parent domain is refused.");
	attr.pd = parent;
	must(!ibv_alloc_parent_domain(context, &attr) && errno == EINVAL);
	did("ibv_alloc_parent_domain() -> NULL, EINVAL");

	say("From the top down, they go.");
	must_be(ibv_dereg_mr(mr), 0);
	must_be(ibv_dealloc_pd(parent), 0);
	must_be(ibv_dealloc_td(td), 0);
	must_be(ibv_dealloc_pd(pd), 0);
	tree();
	return ibv_close_device(context);
}
