/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Work requests: which memory they use, and their WQEs.
 */
#ifndef POST_H
#define POST_H

#include "world.h"

/* The headers of Debian 13 have these two in infiniband/verbs.h only. */
#define WR_FLUSH	14
#define WR_ATOMIC_WRITE	15

/* wr_id of a work request whose completion is counted, plus its number. */
#define WR_ID		0x10000

/* Flags of the call "send". */
#define SEND_FENCE	0x01
#define SEND_SOLICITED	0x02
#define SEND_INLINE	0x04
#define SEND_SILENT	0x08	/* not signaled, unless the QP signals all */
#define SEND_QUIET	0x10	/* no doorbell */
#define SEND_UNFED	0x20	/* no receive WQE for it */
#define SEND_BROKEN	0x40	/* also on a QP that has failed */
#define SEND_SGES	0x80	/* three SGEs */

struct wr {
	struct obj *qp;
	uint8_t op;
	struct obj mr;		/* local memory: another thread may replace it */
	struct obj *mw;
	uint64_t addr, remote;
	uint32_t len, rkey;
};

/* Choose the memory of a work request; return false if there is none. */
bool wr_memory(struct wr *wr, const uint8_t *a);
/* Does the work request use a receive WQE of the peer? */
bool wr_has_message(const struct wr *wr);
void wr_fill(struct wr *wr, struct keel_uapi_send_wqe *wqe, const uint8_t *a);

#endif /* POST_H */
