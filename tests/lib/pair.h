/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Two RC QPs of one process that are connected to each other.
 */
#ifndef PAIR_H
#define PAIR_H

#include <infiniband/verbs.h>

/**
 * struct pair - two QPs and the CQ of both
 * @cq: CQ of all work requests of both QPs
 * @qp: the QPs; each allows RDMA and atomics to the other
 */
struct pair {
	struct ibv_cq *cq;
	struct ibv_qp *qp[2];
};

struct pair pair_new(struct ibv_pd *pd);
void pair_free(struct pair *p);
/* Wait for a completion and return its status. */
enum ibv_wc_status pair_done(struct pair *p);
/* Post a work request to QP @who and wait for its completion. */
enum ibv_wc_status pair_run(struct pair *p, int who, struct ibv_send_wr *wr);
/* Post IBV_WR_RDMA_WRITE or IBV_WR_RDMA_READ to QP @who and wait. */
enum ibv_wc_status pair_rdma(struct pair *p, int who, enum ibv_wr_opcode op,
			     void *local, uint32_t lkey, uint32_t length,
			     uint64_t addr, uint32_t rkey);

#endif /* PAIR_H */
