/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Two RC QPs of one program that are connected to each other.
 */
#ifndef PAIR_H
#define PAIR_H

#include <infiniband/verbs.h>

/**
 * struct pair - two QPs and the CQ of both
 * @cq: every work request of either completes here
 * @qp: the QPs; each allows RDMA and atomics to the other
 */
struct pair {
	struct ibv_cq *cq;
	struct ibv_qp *qp[2];
};

struct pair pair_new(struct ibv_pd *pd);
void pair_free(struct pair *p);
/* Wait for a completion: its status. */
enum ibv_wc_status pair_done(struct pair *p);
/* Post a work request to one of them and wait for its end. */
enum ibv_wc_status pair_run(struct pair *p, int who, struct ibv_send_wr *wr);
/* RDMA of one of them, at the other: IBV_WR_RDMA_WRITE or _READ. */
enum ibv_wc_status pair_rdma(struct pair *p, int who, enum ibv_wr_opcode op,
			     void *local, uint32_t lkey, uint32_t length,
			     uint64_t addr, uint32_t rkey);

#endif /* PAIR_H */
