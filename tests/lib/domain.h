/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Thread domains and parent domains.
 */
#ifndef DOMAIN_H
#define DOMAIN_H

#include <infiniband/verbs.h>

struct ibv_td *td_new(struct ibv_context *ctx);
/* @td may be NULL. */
struct ibv_pd *parent_new(struct ibv_pd *pd, struct ibv_td *td);

#endif /* DOMAIN_H */
