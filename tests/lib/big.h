/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Long messages for guests that have little memory: a message repeats one body
 * between a first and a last page. An observer sees in these two pages whether
 * a message has begun and has not completed.
 *
 * User Mode Linux limits the length: each page of a process may need a mapping
 * of the host, and a process can have 65530 mappings.
 */
#ifndef BIG_H
#define BIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#define BIG_PAGE	4096UL
#define BIG_BODY	(6UL << 20)
/* Copies of the body in the longest message. */
#define BIG_MOST	28
#define BIG_FLAT	(BIG_BODY + 2 * BIG_PAGE)
#define BIG_LEN(copies)	((copies) * BIG_BODY + 2 * BIG_PAGE)

/* Memory that processes share: first page, body, last page. */
struct big {
	int fd;
	unsigned char *flat;
};

struct big big_new(void);
/* Map the memory again, with the body once or @copies times. */
unsigned char *big_map_flat(const struct big *b);
unsigned char *big_map_long(const struct big *b, int copies);
/* Clear the first and the last page before the next message. */
void big_clear(struct big *b);
bool big_began(const struct big *b);
bool big_ended(const struct big *b);

/* Create a QP with enough SGEs for such a message. */
struct ibv_qp *big_qp(struct ibv_pd *pd, struct ibv_cq *cq,
		      enum ibv_qp_type type);
/* The local side is a flat mapping, the remote side a long mapping. */
void big_post(struct ibv_qp *qp, enum ibv_wr_opcode op, uint64_t wr_id,
	      const void *flat, uint32_t lkey, int copies, uint64_t addr,
	      uint32_t rkey);
/*
 * Check that an RC or UC QP can be reset from any state and then sends a
 * message to a new QP. @cq is the CQ of both and must be empty.
 */
void big_prove(struct ibv_qp *qp, struct ibv_cq *cq);

#endif /* BIG_H */
