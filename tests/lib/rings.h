/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Queues whose rings a test can overwrite, because the test allocates them.
 */
#ifndef RINGS_H
#define RINGS_H

#include <stddef.h>

#include <rdma/keel-queue.h>

#include <infiniband/verbs.h>

#define RINGS		16

/* Rings in the order of creation; a QP's send queue comes first. */
extern struct keel_uapi_ring *rings[RINGS];
extern size_t ring_sizes[RINGS];
extern int n_rings;

/* Return a parent domain for such queues, and empty rings[]. */
struct ibv_pd *rings_pd(struct ibv_context *ctx);
/* The same, with rings that a child of the process shares. */
struct ibv_pd *rings_pd_shared(struct ibv_context *ctx);
struct ibv_cq *rings_cq(struct ibv_pd *parent);
/* Return the WQE posted last to a send queue of a QP from lib/qp.h. */
struct keel_uapi_send_wqe *rings_send_wqe(int ring);
/* Return the WQE posted last to a receive queue. */
struct keel_uapi_recv_wqe *rings_recv_wqe(int ring);

#endif /* RINGS_H */
