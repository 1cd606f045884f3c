/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Long messages for guests that have little memory: one body over and over,
 * between a first and a last page of their own, which tell who watches that a
 * message has begun, and that it has not ended.
 *
 * How long is bounded by User Mode Linux, where each page of a process may
 * cost a mapping of the host's, of which it has 65530.
 */
#ifndef BIG_H
#define BIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#define BIG_PAGE	4096UL
#define BIG_BODY	(6UL << 20)
#define BIG_COPIES	28
#define BIG_FLAT	(BIG_BODY + 2 * BIG_PAGE)
#define BIG_LEN(copies)	((copies) * BIG_BODY + 2 * BIG_PAGE)
#define BIG_LONG	BIG_LEN(BIG_COPIES)

/* Memory that processes share: first page, body, last page. */
struct big {
	int fd;
	unsigned char *flat;
};

struct big big_new(void);
/* Another mapping: as it lies, or as long as a message of so many bodies. */
unsigned char *big_map_flat(const struct big *b);
unsigned char *big_map_long(const struct big *b, int copies);
/* To be written to anew. */
void big_clear(struct big *b);
bool big_began(const struct big *b);
bool big_ended(const struct big *b);

/* A QP with as many SGEs as such a message needs. */
struct ibv_qp *big_qp(struct ibv_pd *pd, struct ibv_cq *cq,
		      enum ibv_qp_type type);
/* From or to a flat mapping, to or from a long one. */
void big_post(struct ibv_qp *qp, enum ibv_wr_opcode op, uint64_t wr_id,
	      const void *flat, uint32_t lkey, int copies, uint64_t addr,
	      uint32_t rkey);
/*
 * In any state, a QP of RC or UC can be reset and used: by a new
 * one, which it is joined with. Its CQ, which is that of both, is empty.
 */
void big_prove(struct ibv_qp *qp, struct ibv_cq *cq);

#endif /* BIG_H */
