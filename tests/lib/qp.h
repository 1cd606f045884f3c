/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Queue pairs of any type, step by step: states, work requests, completions
 * and asynchronous events, each checked on arrival.
 */
#ifndef QP_H
#define QP_H

#include <stdbool.h>

#include <infiniband/verbs.h>

#define QP_QKEY		0x1234
/* Room of each queue, and of the CQs that cq_new() makes. */
#define QP_WRS		64
#define QP_SGES		4
#define QP_INLINE	64

struct ibv_cq *cq_new(struct ibv_context *ctx);
/* @srq may be NULL. Only RC, UC, UD and XRC_SEND. Nothing is signaled unasked. */
struct ibv_qp *qp_new(struct ibv_pd *pd, struct ibv_cq *cq,
		      enum ibv_qp_type type, struct ibv_srq *srq);
/* For ibv_wr_*(): @ops is enum ibv_qp_create_send_ops_flags. */
struct ibv_qp_ex *qp_new_ex(struct ibv_pd *pd, struct ibv_cq *cq,
			    enum ibv_qp_type type, uint64_t ops);
struct ibv_qp *qp_new_xrc_recv(struct ibv_xrcd *xrcd);
struct ibv_srq *srq_new(struct ibv_pd *pd);
/* Without a file: for this process and its children. */
struct ibv_xrcd *xrcd_new(struct ibv_context *ctx);
struct ibv_srq *srq_new_xrc(struct ibv_pd *pd, struct ibv_xrcd *xrcd,
			    struct ibv_cq *cq);

/* Return 0 or a positive errno; qp_to_*() fail the test instead. */
int qp_try_init(struct ibv_qp *qp);
int qp_try_rtr(struct ibv_qp *qp, uint32_t dest);
int qp_try_rts(struct ibv_qp *qp, int rnr_retry);
void qp_to_init(struct ibv_qp *qp);
/* @dest is the peer's QP number; UD ignores it. */
void qp_to_rtr(struct ibv_qp *qp, uint32_t dest);
/* @rnr_retry: 7 waits for ever. A missing peer is retried for 8 ms. */
void qp_to_rts(struct ibv_qp *qp, int rnr_retry);
void qp_to(struct ibv_qp *qp, enum ibv_qp_state state);
/* From RESET to RTS, waiting for receives for ever. */
void qp_connect(struct ibv_qp *qp, uint32_t dest);
/* Move a UD QP of any device from RESET to RTS, with a Q_Key of its own. */
void qp_ud_ready(struct ibv_qp *qp, uint32_t qkey);
/* Two QPs of one process. */
void qp_join(struct ibv_qp *a, struct ibv_qp *b);
/* Two connected QPs of one process, each in a PD and with a CQ of its own. */
struct link {
	struct ibv_context *ctx;
	struct ibv_cq *cq[2];
	struct ibv_qp *qp[2];
};

struct link link_new(struct ibv_pd *a, struct ibv_pd *b, enum ibv_qp_type type);
/* RC in one domain; the first QP has ibv_wr_*(), see qp_new_ex(). */
struct link link_new_ex(struct ibv_pd *pd, uint64_t ops);
void link_free(struct link *l);
/* RC and XRC QPs can be created with this operation, UC and UD QPs cannot. */
void qp_check_reliable(struct ibv_pd *pd, uint64_t op);

/* An address handle of the device itself. */
struct ibv_ah *ah_self(struct ibv_pd *pd);

/* Set the access rights that an RC, XRC or UC QP gives its peer. */
void qp_allow(struct ibv_qp *qp, unsigned int access);

/* Allow no more RDMA reads and atomics from (RC) or to the QP. */
void qp_no_reads(struct ibv_qp *qp, bool from);

enum ibv_qp_state qp_state(struct ibv_qp *qp);
#define CHECK_STATE(qp, want)	CHECK_EQ(qp_state(qp), want)

/* ibv_wr_start() and ibv_wr_complete() of one signaled work request. */
void wr_begin(struct ibv_qp_ex *qp, uint64_t wr_id);
void wr_end(struct ibv_qp_ex *qp);

/* Local memory of a message or an RDMA operation. */
struct mem {
	const void *addr;
	uint32_t len;
	uint32_t lkey;
};

#define MEM(mr)		((struct mem){ (mr)->addr, (mr)->length, (mr)->lkey })

struct ibv_send_wr *send_wr(enum ibv_wr_opcode op, uint64_t wr_id,
			    struct mem mem);
/* Address a datagram to @dest. */
void wr_to(struct ibv_send_wr *wr, struct ibv_ah *ah, const struct ibv_qp *dest);
void post(struct ibv_qp *qp, struct ibv_send_wr *wr);
void post_send(struct ibv_qp *qp, uint64_t wr_id, struct mem mem);
void post_rdma(struct ibv_qp *qp, enum ibv_wr_opcode op, uint64_t wr_id,
	       struct mem mem, uint64_t addr, uint32_t rkey);
void post_add(struct ibv_qp *qp, uint64_t wr_id, struct mem mem,
	      uint64_t addr, uint32_t rkey, uint64_t add);
void post_recv(struct ibv_qp *qp, uint64_t wr_id, struct mem mem);
void post_srq_recv(struct ibv_srq *srq, uint64_t wr_id, struct mem mem);

/* Wait for a completion. */
struct ibv_wc wc_get(struct ibv_cq *cq);
struct ibv_wc wc_check(const char *file, int line, struct ibv_cq *cq,
		       uint64_t wr_id, enum ibv_wc_status status);
#define CHECK_WC(cq, wr_id, status)	\
	wc_check(__FILE__, __LINE__, cq, wr_id, status)
/* ibv_start_poll() until the CQ has a CQE. */
void wc_start_poll(struct ibv_cq_ex *cq);
#define CHECK_NO_WC(cq)						\
	do {							\
		struct ibv_wc wc_;				\
								\
		CHECK_EQ(ibv_poll_cq(cq, 1, &wc_), 0);		\
	} while (0)

/* Wait for an event, which must have this type and object. */
void event_check(const char *file, int line, struct ibv_context *ctx,
		 enum ibv_event_type type, const void *element);
#define CHECK_EVENT(ctx, type, element)	\
	event_check(__FILE__, __LINE__, ctx, type, element)
/* Meanwhile the worker of the process runs, which raises events. */
#define EVENT_MS	10
/* No event is pending. */
void event_check_none(const char *file, int line, struct ibv_context *ctx);
#define CHECK_NO_EVENT(ctx)	event_check_none(__FILE__, __LINE__, ctx)

#endif /* QP_H */
