/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Processes that are connected by any type of QP, and calls that must return in
 * time, whatever the process at the other end does.
 *
 * A victim makes each call under test in a process of its own, and tells the
 * test when the call has returned. The test measures the time.
 */
#ifndef ISO_H
#define ISO_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include "peer.h"

/* No call may take longer because of another process. */
#define ISO_MS		1000

#define ISO_RIGHTS	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | \
			 IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)
#define ISO_PAGE	4096
#define ISO_EPOLLS	200
/* For TEST_CASE(): the test is of kernels since 6.10 (isolation.rst, "Work"). */
#define ISO_NEEDS_THREADS	.not_kernel = "6.1.", \
	.not_kernel_why = "which gives a module no threads in a process"
/* Bytes in front of a datagram's data. */
#define ISO_GRH		40

enum iso_type { ISO_RC, ISO_UC, ISO_UD, ISO_XRC, ISO_TYPES };

extern const char * const iso_types[ISO_TYPES];

/* The values of an end that the other end needs. */
struct iso_addr {
	uint32_t qpn;
	uint32_t recv_qpn;	/* differs from qpn only for XRC */
	uint32_t srqn;		/* XRC only */
	uint32_t rkey;
	uint64_t addr;
};

/**
 * struct iso_end - one end of a connection, of this process
 * @type: type of the QP
 * @ctx: context; several ends may share a context
 * @pd: protection domain of all objects
 * @channel: completion channel of @cq
 * @cq: CQ of all work requests
 * @qp: QP that sends; except for XRC it also receives
 * @recv_qp: QP that receives
 * @srq: SRQ of XRC, or NULL
 * @ah: address handle of UD for any QP of the device, or NULL
 * @mr: MR whose rkey the peer gets, or NULL; set before iso_meet()
 * @split: MR of the second half of a message, or NULL; see iso_send()
 * @patient: RC and XRC wait without limit for a peer that cannot answer; set
 *	before iso_meet()
 * @peer: address of the connected end
 */
struct iso_end {
	enum iso_type type;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp, *recv_qp;
	struct ibv_srq *srq;
	struct ibv_ah *ah;
	struct ibv_mr *mr, *split;
	bool patient;
	struct iso_addr peer;
};

/* If @ctx is NULL, open a new context of @dev. */
void iso_open(struct iso_end *e, const char *dev, struct ibv_context *ctx,
	      enum iso_type type);
struct iso_addr iso_addr(const struct iso_end *e);
/* Move to RTS; the QP waits without limit for its peer and for receive WQEs. */
void iso_to_rts_patient(struct ibv_qp *qp);
/* Connect and move to RTS; the QP waits without limit for receive WQEs. */
void iso_connect(struct iso_end *e, const struct iso_addr *peer);
/* Connect in two steps through the test's process, which connects two ends. */
void iso_meet(struct iso_end *e, struct peer *parent);
/* Called by the test's process for two processes that call iso_meet(). */
void iso_introduce(struct peer *a, struct peer *b);

/* Register a page with ISO_RIGHTS and @access, e.g. IBV_ACCESS_ON_DEMAND. */
struct ibv_mr *iso_mr(struct iso_end *e, void *page, int access);
/* IBV_ACCESS_FLUSH_GLOBAL, or 0 on kernels that do not have it. */
int iso_flush_right(void);
void iso_post_recv(struct iso_end *e, uint64_t wr_id, struct ibv_mr *mr);
/*
 * Send the first 64 bytes of @mr to the peer, or 32 of @mr and 32 of @split.
 * Receive WQEs are split alike. Return 0 or the errno.
 */
int iso_send(struct iso_end *e, uint64_t wr_id, struct ibv_mr *mr);
/* Post RDMA of 64 bytes, an atomic or atomic write of 8, or a flush. */
int iso_rdma(struct iso_end *e, enum ibv_wr_opcode op, uint64_t wr_id,
	     struct ibv_mr *mr);
/* Let another process do its next step, and wait for it. */
void iso_step(const char *file, int line, struct peer *p, const char *what);
#define CHECK_STEP(p, what)	iso_step(__FILE__, __LINE__, p, what)

/* Wait until a process has reported; return false on timeout. */
bool iso_told(struct peer *p, int ms);
void iso_within(const char *file, int line, struct peer *p, int ms,
		const char *what);
#define CHECK_WITHIN(p, what)						\
	iso_within(__FILE__, __LINE__, p, ISO_MS, what)
/* Send a signal to a process, which must die within ISO_MS. */
void iso_kill(const char *file, int line, struct peer *p, int sig,
	      const char *what);
#define CHECK_KILL(p, what)	iso_kill(__FILE__, __LINE__, p, SIGKILL, what)
#define CHECK_TERM(p, what)	iso_kill(__FILE__, __LINE__, p, SIGTERM, what)
/* Let each event of a file wake @waiters waiters of ISO_EPOLLS epolls: it takes long. */
void iso_watch(int fd, int waiters);
/*
 * Return the processor time in us that all kernel threads, or a process, have
 * used. That of kernel threads never decreases; only differences count. User Mode
 * Linux counts in steps of 10 ms for each thread.
 */
uint64_t iso_kernel_us(void);
uint64_t iso_process_us(pid_t pid);
/* Wait up to ISO_MS for the device to have no object left. */
void iso_check_empty(const char *dev);

#endif /* ISO_H */
