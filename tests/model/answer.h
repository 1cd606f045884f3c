/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Between the requester (wire.c) and the responder (answer.c).
 */
#ifndef ANSWER_H
#define ANSWER_H

#include "model.h"

/* The completion of a send work request. */
struct outcome {
	enum ibv_wc_status status;
	uint32_t why;
	uint32_t read;		/* bytes, for reads and atomics */
};

struct request {
	struct obj *qp, *peer;
	struct obj *srq;	/* that receive WQEs come from, or NULL */
	struct obj *xrc;	/* the SRQ that the message names, or NULL */
	const struct obj *domain;	/* of rkeys */
	struct send *wr;
	struct spans *local;
	struct outcome *out;
};

/* Execute a request. Return false if there is no receive WQE: the requester waits. */
bool answer(const struct request *r);
/* Deliver or drop a datagram. */
void answer_datagram(struct obj *qp, struct obj *peer, struct send *wr,
		     struct spans *local);
/* Flush the receive queue of a QP in the error state. */
void answer_flush(struct obj *qp);

#endif /* ANSWER_H */
