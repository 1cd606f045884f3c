/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Processes that are connected to each other by any type of queue pair, and
 * calls that must return in time, whatever the process at the other end does.
 *
 * A victim makes each call that a test is about in a process of its own, and
 * tells the test when it is through. The test watches the clock.
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
/* Of a datagram, in front of the data. */
#define ISO_GRH		40

enum iso_type { ISO_RC, ISO_UC, ISO_UD, ISO_XRC, ISO_TYPES };

extern const char * const iso_types[ISO_TYPES];

/* The facts that the other side must know of an end; plain data. */
struct iso_addr {
	uint32_t qpn;
	uint32_t recv_qpn;	/* another one only of XRC */
	uint32_t srqn;		/* of XRC */
	uint32_t rkey;
	uint64_t addr;
};

/**
 * struct iso_end - one end of a connection, of this process
 * @type: of the queue pair
 * @ctx: its context; may be that of other ends
 * @pd: protection domain of everything
 * @cq: of all work requests
 * @qp: sends; of all types but XRC, also receives
 * @recv_qp: of XRC, receives
 * @srq: of XRC
 * @ah: of UD, leads to any QP of the device
 * @mr: what the peer gets the rkey of, or NULL; set before iso_meet()
 * @split: what the second half of a message is in, or NULL; see iso_send()
 * @patient: a peer that cannot answer is waited for without end; set before
 *	iso_meet(), of RC and XRC
 * @peer: the end that it is connected with
 */
struct iso_end {
	enum iso_type type;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp, *recv_qp;
	struct ibv_srq *srq;
	struct ibv_ah *ah;
	struct ibv_mr *mr, *split;
	bool patient;
	struct iso_addr peer;
};

/* @ctx NULL: a new context of @dev. */
void iso_open(struct iso_end *e, const char *dev, struct ibv_context *ctx,
	      enum iso_type type);
struct iso_addr iso_addr(const struct iso_end *e);
/* To RTS, with a peer that is waited for without end, as receive WQEs are. */
void iso_to_rts_patient(struct ibv_qp *qp);
/* To RTS; receive WQEs are waited for without end. */
void iso_connect(struct iso_end *e, const struct iso_addr *peer);
/* The same in two steps with the test's process, which connects two by turns. */
void iso_meet(struct iso_end *e, struct peer *parent);
/* ... in the test's process: introduces two processes that call iso_meet(). */
void iso_introduce(struct peer *a, struct peer *b);

/* A page with ISO_RIGHTS and @access, which may be IBV_ACCESS_ON_DEMAND. */
struct ibv_mr *iso_mr(struct iso_end *e, void *page, int access);
void iso_post_recv(struct iso_end *e, uint64_t wr_id, struct ibv_mr *mr);
/*
 * To the peer, 64 bytes from the beginning of @mr, or 32 of @mr and then 32 of
 * @split, as in receive WQEs: 0 or the errno.
 */
int iso_send(struct iso_end *e, uint64_t wr_id, struct ibv_mr *mr);
/* RDMA of 64 bytes, an atomic or an atomic write of 8, a flush: as ..._send(). */
int iso_rdma(struct iso_end *e, enum ibv_wr_opcode op, uint64_t wr_id,
	     struct ibv_mr *mr);
/* The test's process lets another process take its next step. */
void iso_step(const char *file, int line, struct peer *p, const char *what);
#define CHECK_STEP(p, what)	iso_step(__FILE__, __LINE__, p, what)

/* A peer has said that it is through: false if it has not in time. */
bool iso_told(struct peer *p, int ms);
void iso_within(const char *file, int line, struct peer *p, int ms,
		const char *what);
#define CHECK_WITHIN(p, what)						\
	iso_within(__FILE__, __LINE__, p, ISO_MS, what)
/* Send a signal to a process, which must be gone in time. */
void iso_kill(const char *file, int line, struct peer *p, int sig,
	      const char *what);
#define CHECK_KILL(p, what)	iso_kill(__FILE__, __LINE__, p, SIGKILL, what)
#define CHECK_TERM(p, what)	iso_kill(__FILE__, __LINE__, p, SIGTERM, what)
/*
 * Processor time of all kernel threads so far, in us, and that of a process.
 * User Mode Linux counts in steps of 10 ms a thread.
 */
uint64_t iso_kernel_us(void);
uint64_t iso_process_us(pid_t pid);
/* No object of a device is left, in time for a process that has just died. */
void iso_check_empty(const char *dev);

#endif /* ISO_H */
