// SPDX-License-Identifier: GPL-2.0
/*
 * Create thread domains and parent domains. See domain.h.
 */
#include "domain.h"
#include "t.h"

struct ibv_td *td_new(struct ibv_context *ctx)
{
	struct ibv_td_init_attr attr = {};

	return MUST(ibv_alloc_td(ctx, &attr));
}

struct ibv_pd *parent_new(struct ibv_pd *pd, struct ibv_td *td)
{
	struct ibv_parent_domain_init_attr attr = { .pd = pd, .td = td };

	return MUST(ibv_alloc_parent_domain(pd->context, &attr));
}
