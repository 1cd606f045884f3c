/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Queues whose rings a test can scribble over: their memory comes from it.
 */
#ifndef RINGS_H
#define RINGS_H

#include <stddef.h>

#include <rdma/keel-queue.h>

#include <infiniband/verbs.h>

#define RINGS		16

/* In the order in which the queues were made; of a QP first the send queue. */
extern struct keel_uapi_ring *rings[RINGS];
extern size_t ring_sizes[RINGS];
extern int n_rings;

/* A parent domain for queues like that; rings[] is empty afterwards. */
struct ibv_pd *rings_pd(struct ibv_context *ctx);
struct ibv_cq *rings_cq(struct ibv_pd *parent);
/* The entry that was posted last, of a send queue that lib/qp.h made. */
struct keel_uapi_send_wqe *rings_send_wqe(int ring);
/* ... and of a receive queue. */
struct keel_uapi_recv_wqe *rings_recv_wqe(int ring);

#endif /* RINGS_H */
