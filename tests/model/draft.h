/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Between the work requests of a step (draft.c) and the step (post.c).
 */
#ifndef DRAFT_H
#define DRAFT_H

#include "model.h"

/* More SGEs than a queue has. */
#define SGES_TOO_MANY	33

/* A work request, and what is expected of the call. */
struct draft {
	struct ibv_send_wr wr;
	struct ibv_sge sge[SGES_TOO_MANY];
	uint8_t data[2048];	/* inline */
	struct send model;
	int want;
};

/* Does the type of QP support the opcode? */
bool supports(enum ibv_qp_type type, enum ibv_wr_opcode op);
bool op_is_atomic(enum ibv_wr_opcode op);
/* Does data come back to the requester? */
bool op_reads(enum ibv_wr_opcode op);
uint32_t roll_bytes(struct dice *d);
/* Choose a key and a range of it: mostly a good one. */
void roll_range(struct dice *d, const struct obj *domain, unsigned int access,
		bool windows, bool odp, uint32_t want, uint64_t *addr,
		uint32_t *len, uint32_t *key);
/* Choose a range of a region for a window. */
void roll_bind(struct ibv_mw_bind_info *info, struct send *model,
	       const struct obj *domain, struct dice *d);
void draft_send(struct draft *f, struct obj *qp, struct dice *d);
/* Choose flags; the whole work request may become an error. */
void draft_flags(struct draft *f, struct obj *qp, bool last, struct dice *d);
/* Bytes of the local memory. */
uint64_t draft_len(const struct draft *f);

#endif /* DRAFT_H */
