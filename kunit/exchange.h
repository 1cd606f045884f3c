/* SPDX-License-Identifier: GPL-2.0 */
/*
 * An exchange: one work request that one end of a pair posts, and what both ends
 * must make of it.
 */
#ifndef KEEL_EXCHANGE_H
#define KEEL_EXCHANGE_H

#include "pair.h"

#define EXCHANGE_LEN	1000
/* Where in the peer's buffer RDMA operations go. */
#define EXCHANGE_AT		512
#define EXCHANGE_IMM	0x12345678
#define EXCHANGE_ADD	0x0123456789abcdefULL

/**
 * struct exchange - a work request and the receives that wait for it
 * @wr: the work request, as any operation sees it
 * @rdma: RDMA read and write
 * @atomic: atomics
 * @ud: UD
 * @reg: IB_WR_REG_MR
 * @sge: its memory: the first bytes of @pair.a.buf
 * @recv_sge: memory of the first receive: the first bytes of @pair.b.buf
 * @recvs: receives that are posted: 2 unless the case wants none
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
 * struct outcome - what an end says of an exchange
 * @status: of its completion; EXCHANGE_NOTHING: there is none
 * @why: its vendor_err
 * @state: state of the QP in the end
 */
struct outcome {
	int status;
	enum keel_uapi_why why;
	enum ib_qp_state state;
};

/**
 * struct exchange_case - an exchange and what comes of it
 * @desc: its name
 * @type: type of both QPs
 * @op: the operation
 * @arrange: makes it differ from one where all is well, or NULL
 * @a: what the sender says
 * @b: what the receiver says
 * @event: event at the receiver, or KEEL_EVENT_NONE
 * @lost: the sender is told that all is well, and nothing was done
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

/* Post it, wait, and compare everything there is to see. */
void exchange_run(struct kunit *test, const struct exchange_case *c);

#endif /* KEEL_EXCHANGE_H */
