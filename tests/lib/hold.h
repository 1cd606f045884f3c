/* SPDX-License-Identifier: GPL-2.0 */
/*
 * One object of every kind in one context, and every call on these objects
 * after device removal.
 */
#ifndef HOLD_H
#define HOLD_H

#include <infiniband/verbs.h>

#include "pair.h"

#define HOLD_BYTES	16384
/* The value of all bytes. */
#define HOLD_BYTE	0xd7

struct hold {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_pd *joined;		/* instance of the domain of @pd */
	struct ibv_td *td;
	struct ibv_pd *parent;
	struct ibv_xrcd *xrcd;
	struct ibv_dm *dm;
	volatile unsigned char *map;	/* of @dm */
	struct ibv_mr *dm_mr;
	struct ibv_mr *mr;
	struct ibv_mr *odp;
	struct ibv_mr *all;		/* the whole address space, on demand */
	struct ibv_mw *mw[2];		/* of both types */
	struct ibv_ah *ah;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;		/* armed, with @channel */
	struct ibv_cq_ex *cq_ex;
	struct ibv_srq *srq;
	struct ibv_srq *xrc_srq;
	struct ibv_qp *wait[2];		/* a send without a receive WQE */
	struct ibv_qp *uc, *ud, *on_srq, *xrc_send, *xrc_recv;
	struct pair rc;			/* connected; has sent a message */
	union ibv_gid group;		/* @ud is a member */
};

/* Create all objects on a device, with its first GID. */
void hold_all(struct hold *h, const char *dev);
/*
 * Check that every call fails with EIO after device removal. If the removal is
 * not @over, the mapping may still exist for a moment.
 */
void hold_check_gone(struct hold *h, bool over);
/* Destroy all objects. */
void hold_free(struct hold *h);

#endif /* HOLD_H */
