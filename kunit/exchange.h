/* SPDX-License-Identifier: GPL-2.0 */
/*
 * An exchange: a work request that one end of a pair posts, and the expected
 * result at both ends.
 */
#ifndef KEEL_EXCHANGE_H
#define KEEL_EXCHANGE_H

#include "pair.h"

#define EXCHANGE_LEN	1000
/* Offset of RDMA operations in the peer's buffer. */
#define EXCHANGE_AT		512
#define EXCHANGE_IMM	0x12345678
#define EXCHANGE_ADD	0x0123456789abcdefULL

/**
 * struct exchange - a work request and the receive WQEs for it
 * @wr: the work request, common part
 * @rdma: RDMA read and write
 * @atomic: atomics
 * @ud: UD
 * @reg: IB_WR_REG_MR
 * @sge: its memory: the first bytes of @pair.a.buf
 * @recv_sge: memory of the first receive: the first bytes of @pair.b.buf
 * @recvs: number of posted receive WQEs: 2 unless the case needs none
 */
struct exchange {
	union {
		struct ib_send_wr wr;
		struct ib_rdma_wr rdma;
		struct ib_atomic_wr atomic;
		struct ib_ud_wr ud;
		struct ib_reg_wr reg;
	};
	struct ib_sge sge;
	struct ib_sge recv_sge;
	int recvs;
};

#define EXCHANGE_NOTHING	-1

/**
 * struct outcome - result of an exchange at one end
 * @status: status of the completion, or EXCHANGE_NOTHING if there is none
 * @why: vendor error
 * @state: final state of the QP
 */
struct outcome {
	int status;
	enum keel_uapi_why why;
	enum ib_qp_state state;
};

/**
 * struct exchange_case - an exchange and its expected results
 * @desc: its name
 * @type: type of both QPs
 * @op: the operation
 * @arrange: changes a successful exchange, or NULL
 * @a: result at the requester
 * @b: result at the responder
 * @event: event at the responder, or KEEL_EVENT_NONE
 * @lost: the requester reports success, but nothing was done
 */
struct exchange_case {
	const char *desc;
	enum ib_qp_type type;
	enum ib_wr_opcode op;
	void (*arrange)(struct pair *p, struct exchange *s);
	struct outcome a, b;
	enum ib_event_type event;
	bool lost;
};

/* Post it, wait, and compare all results. */
void exchange_run(struct kunit *test, const struct exchange_case *c);

#endif /* KEEL_EXCHANGE_H */
