/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Two connected QPs of a kernel consumer, on the default device of the module.
 */
#ifndef KEEL_PAIR_H
#define KEEL_PAIR_H

#include <kunit/test.h>
#include <rdma/ib_verbs.h>

#include "keel_qp.h"

#define PAIR_BYTES	(4 * PAGE_SIZE)
#define PAIR_WRS	16
#define PAIR_WCS	48
#define PAIR_MANY	1024
#define PAIR_INLINE	64
#define PAIR_QKEY	0x1234
#define PAIR_RIGHTS	(IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_READ |	\
			 IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_ATOMIC)

/**
 * struct end - a QP, and the other objects at its end of the connection
 * @qp: the QP
 * @cq: CQ of its work requests
 * @attr: attributes for pair_connect()
 * @state: final state of pair_connect()
 * @buf: memory, page-aligned
 * @mark: value of the first byte of @buf, which the other bytes count from
 * @mr: a region over @buf with all rights
 * @wc: completions so far
 * @wcs: number of completions
 * @lock: protects @events and @nr_events
 * @events: events so far
 * @nr_events: number of events
 */
struct end {
	struct ib_qp *qp;
	struct ib_cq *cq;
	struct ib_qp_attr attr;
	enum ib_qp_state state;
	u8 *buf;
	u8 mark;
	struct ib_mr *mr;
	struct ib_wc wc[PAIR_WCS];
	int wcs;
	spinlock_t lock;
	enum ib_event_type events[4];
	unsigned int nr_events;
};

/**
 * struct pair - two ends
 * @test: the test
 * @ibdev: the device
 * @pd: domain of both
 * @other_pd: another domain
 * @a: requester
 * @b: responder
 * @clerk: a separate RC QP, which registers regions
 * @closed: a region over the buffer of @b without any right
 * @fresh: a region over the buffer of @a that is not registered
 * @foreign: a region of @other_pd over the buffer of @b, not registered
 * @extra: a region of the test, or NULL
 * @ah: address of @b for UD
 * @foreign_ah: the same address, in @other_pd
 * @on_wc: handler of the CQ of @a, set before pair_make(), or NULL; gets the
 *	pair as context
 * @with_srq: @b takes receive WQEs from @srq; set before pair_make()
 * @srq: SRQ of @b, or NULL. If @b is an XRC_RECV QP: an XRC SRQ of @pd
 * @xrcd: XRC domain of @b and of that SRQ, or NULL
 * @extra_srq: an SRQ of the test, or NULL
 * @extra_xrcd: an XRC domain of the test, or NULL
 * @one_cq: both ends complete in the CQ of @a, which has room for PAIR_MANY
 *	CQEs; set before pair_make()
 * @wrs: work requests of each queue of @a, if not 0; set before pair_make()
 * @b_wrs: likewise of the send queue of @b
 * @before: number of objects of the device before the pair was created
 */
struct pair {
	struct kunit *test;
	struct ib_device *ibdev;
	struct ib_pd *pd, *other_pd;
	struct end a, b, clerk;
	struct ib_mr *closed, *fresh, *foreign, *extra;
	struct ib_ah *ah, *foreign_ah;
	ib_comp_handler on_wc;
	bool with_srq;
	struct ib_srq *srq;
	struct ib_xrcd *xrcd;
	struct ib_srq *extra_srq;
	struct ib_xrcd *extra_xrcd;
	bool one_cq;
	unsigned int wrs, b_wrs;
	unsigned int before[KEEL_KINDS];
};

/* For suites: finds the device; test->priv is a struct pair. */
int pair_suite_init(struct kunit_suite *suite);
void pair_suite_exit(struct kunit_suite *suite);
int pair_init(struct kunit *test);
/* Destroys all objects, and checks that the device has as many as before. */
void pair_exit(struct kunit *test);

/*
 * Creates objects and attributes. Nothing is connected or registered yet. With
 * IB_QPT_XRC_TGT, @p->a is an XRC_SEND QP.
 */
void pair_make(struct pair *p, enum ib_qp_type type);
void pair_connect(struct pair *p);

/* Create a basic SRQ, or one of an XRC domain, which uses the CQ of @p->b. */
struct ib_srq *pair_srq(struct pair *p, struct ib_xrcd *xrcd);
/* Post a receive WQE for all of @end's buffer to an SRQ. */
void pair_srq_recv(struct pair *p, struct ib_srq *srq, const struct end *end, u64 wr_id);
/* Create a region over @len contiguous bytes of kernel memory. */
struct ib_mr *pair_mr(struct pair *p, struct ib_pd *pd, void *buf, size_t len);
/* Post IB_WR_REG_MR to @p->clerk. */
enum ib_wc_status pair_register(struct pair *p, struct ib_mr *mr, u32 key,
				int access);

/* The counter of the device, of all processors. */
u64 pair_counter(const struct pair *p, enum keel_counter which);

/* Poll all available CQEs. */
void end_collect(struct end *end);
/* Wait until @end has @n completions, and until all work has ended. */
void pair_settle(struct pair *p, struct end *end, int n);
enum ib_qp_state end_state(struct pair *p, struct end *end);
/*
 * Move @end from RESET or INIT to its final state, with its attributes.
 * end_try_connect() may run in any thread, and returns the error of
 * ib_modify_qp().
 */
void end_connect(struct pair *p, struct end *end);
int end_try_connect(struct end *end);
/* Move @end to @state, without other attributes. */
void end_move(struct pair *p, struct end *end, enum ib_qp_state state);

/* Post a receive WQE for a part of @end's buffer, with the local DMA lkey. */
void end_recv(struct pair *p, struct end *end, u64 wr_id, u64 off, u32 len);

/* Post a message of @len bytes from the start of the buffer, and tell no thread. */
void end_send_silently(struct pair *p, struct end *end, u64 wr_id, u32 len);

/* Return the first of @len bytes at @off that differs from @of, or -1. */
long end_differs(const struct end *end, u64 off, const struct end *of,
		 u64 from, u64 len);

/* Number of receive WQEs of an SRQ that are posted, and were not taken. */
static inline int pair_srq_posted(struct ib_srq *srq)
{
	return keel_ring_posted(&to_ksrq(srq)->rq.ring);
}

static inline struct ib_sge end_sge(const struct pair *p,
				    const struct end *end, u64 off, u32 len)
{
	return (struct ib_sge){
		.addr = (uintptr_t)end->buf + off,
		.length = len,
		.lkey = p->pd->local_dma_lkey,
	};
}

#endif /* KEEL_PAIR_H */
