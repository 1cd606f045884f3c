/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Links: a link has two ends, each in a thread of any process. The ends find
 * each other in shared memory, connect, send, and start anew whenever one end
 * is closed.
 *
 * An end verifies received messages. The shared side tells an end what the
 * other end does to itself, and when it dies. So the test detects errors that
 * neither end has caused.
 */
#ifndef LINK_H
#define LINK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

enum link_type { LINK_RC, LINK_UC, LINK_UD, LINK_XRC, LINK_TYPES };
enum link_mem { LINK_USER, LINK_ODP, LINK_DM, LINK_MEMS };

enum link_op {
	LINK_SEND,
	LINK_SEND_IMM,
	LINK_INLINE,
	LINK_WRITE,	/* read back where the type can read */
	LINK_WRITE_IMM,
	LINK_FETCH_ADD,
	LINK_CMP_SWAP,
	LINK_INVALIDATE, /* write through a window, then send with invalidate */
	LINK_OPS,
};

extern const char * const link_types[LINK_TYPES];
extern const char * const link_mems[LINK_MEMS];
extern const char * const link_ops[LINK_OPS];
/* Return true if links of this type support the operation. */
bool link_can(enum link_type type, enum link_op op);

#define LINK_SLOTS	8	/* in-flight messages */
#define LINK_RECVS	16	/* receive WQEs of an end */
#define LINK_MSG	8192	/* longest message */

/* Counts of all processes of a soak, in shared memory. */
struct link_stats {
	atomic_ullong done[LINK_TYPES][LINK_OPS];
	atomic_ullong mem[LINK_MEMS];
	atomic_ullong messages;
	atomic_ullong bytes;
	atomic_ullong opened;
	atomic_ullong destroys;		/* of objects in use */
	atomic_ullong refused;		/* EBUSY, as expected */
	atomic_ullong errors;		/* completions with an error */
	atomic_ullong lost;		/* on types that may lose messages */
	atomic_ullong mismatches;
	atomic_ullong unexplained;	/* errors without a cause */
	atomic_uint gen;		/* of the end opened last */
};

/* The values of an end that the other end reads, in shared memory. */
struct link_side {
	atomic_uint gen;	/* number of this life, or 0 */
	atomic_uint to;		/* life of the connected peer */
	atomic_uint hurt;	/* life in which it harmed itself */
	atomic_uint mw_rkey;	/* rkey of a window to write to, or 0 */
	atomic_uint acked[LINK_SLOTS];
	uint32_t qpn, recv_qpn, srqn, rkey;
	uint64_t addr;
};

/* An in-flight message. */
struct link_slot {
	bool busy, completed;
	enum link_op op;
	uint32_t seed, len;
	uint64_t since;
};

enum link_state { LINK_IDLE, LINK_WAIT, LINK_HALF, LINK_UP, LINK_HURT };

struct link_end {
	/* Set by the owner. */
	struct ibv_context *ctx;
	struct ibv_xrcd *xrcd;
	struct link_stats *stats;
	struct link_side *me, *peer;
	enum link_type type;
	uint64_t random;

	enum link_state state;
	uint64_t deadline;	/* ns: when its life or LINK_HURT ends */
	enum link_mem mem;
	uint32_t gen, to;
	struct ibv_td *td;
	struct ibv_pd *plain, *pd;
	struct ibv_cq *cq;
	struct ibv_dm *dm;
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	struct ibv_srq *srq;
	struct ibv_qp *qp, *recv_qp;
	struct ibv_ah *ah;
	unsigned char *base;	/* its memory */
	uint64_t key_base;	/* the address of @base for keys */
	uint32_t qpn, srqn, rkey, mw_bound;	/* the peer's; last: own */
	uint64_t addr;
	struct link_slot slots[LINK_SLOTS];
	uint64_t word;		/* the peer's, for atomics */
	bool atomic_busy;
	uint64_t broken;	/* ns: time of the first error, or 0 */
	enum ibv_wc_status status;
};

/* Layout of an end's memory. */
#define LINK_TX		0
#define LINK_RX		(LINK_TX + LINK_SLOTS * LINK_MSG)
#define LINK_WINDOW	(LINK_RX + LINK_RECVS * LINK_MSG)
#define LINK_BACK	(LINK_WINDOW + LINK_SLOTS * LINK_MSG)
#define LINK_WORD	(LINK_BACK + LINK_SLOTS * LINK_MSG)
#define LINK_BYTES	(LINK_WORD + 4096)

uint64_t link_now(void);
/* Do the next action without waiting; return true if anything happened. */
bool link_step(struct link_end *e);
/* Close an end in any state. */
void link_close(struct link_end *e);

/* Functions of link_traffic.c, which link.c calls. */
void link_recv(struct link_end *e, int slot);
void link_open_traffic(struct link_end *e);
/* Process completions; return true if there were any. */
bool link_poll(struct link_end *e);
/* Post new messages. */
bool link_send(struct link_end *e);
/* Send with a deregistered key. */
void link_send_stale(struct link_end *e);
void link_mismatch(struct link_end *e, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

#endif /* LINK_H */
