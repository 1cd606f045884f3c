/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A fuzzer that plays the other host of a link: see "The fuzzer of links" in
 * Documentation/torture.rst. Inputs are those of ../fuzz/fuzz.h: a sequence of calls, of which
 * each sends frames, or lets the victim do something.
 *
 * Coverage comes from gcov. Frames are handled by a workqueue of the CQ, the work of the link,
 * and the worker of the process that owns the QP. KCOV follows the thread that asks for it,
 * and remote KCOV would need marks in each of them. gcov counts all threads, needs nothing in
 * keel, and works with all checkers at once.
 */
#ifndef WORLD_H
#define WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "../fuzz/fuzz.h"
#include "hosts.h"
#include "stranger.h"

/*
 * The QPs of the victim; the stranger claims to have PEER_QPN + their number here. The last one
 * is a member of groups.
 */
enum { W_RC, W_UC, W_UD, W_XRC_RECV, W_XRC_SEND, W_RC_SRQ, W_MEMBER, W_QPS };
/* Groups: W_MEMBER belongs to the first two, and the honest pair to the first and the third. */
enum { W_FOUR, W_SIX, W_THIRD, W_LATE, W_GROUPS };

#define PEER_QPN	0x100
#define WORLD_PSN	0x1000
#define WORLD_BYTES	0x100000
/* Regions of the victim: all rights, read only, on demand, and a window. */
enum { W_ALL, W_READ, W_ODP, W_MW, W_MRS };

/* Requests of the victim that the stranger has not answered. */
#define PENDING		16
/* Frames that the input has sent, for those that come again. */
#define KEPT		32

/**
 * struct way - where a frame goes to
 * @cast: a packet to a group, by the forger; else the connection of the stranger
 * @to: group, or address of the victim: modulo their number
 * @how: as the second argument of "cast"
 */
struct way {
	bool cast;
	uint8_t to, how;
};

struct kept {
	struct way way;
	uint32_t n;
	char bytes[FRAME_ROOM];
};

/**
 * struct world - the victim and the stranger, as the process that executes inputs has them
 * @one: the stranger
 * @other: its second connection, a rival of the first
 * @s: the one that sends
 * @ctx: device of the victim
 * @sgid: index of its address
 * @pd: a PD
 * @cq: CQ of all QPs
 * @srq: of W_RC_SRQ
 * @xrcd: domain of @xsrq
 * @xsrq: of W_XRC_RECV
 * @xsrqn: its number
 * @ah: address of the stranger
 * @group_ah: addresses of the groups
 * @mem: memory of the victim
 * @mr: regions; @mr[W_MW] is NULL
 * @mw: window, of type 2
 * @qp: QPs of enum
 * @dirty: bits of QPs that are not as they were made
 * @psn: of the next request of the stranger to a QP
 * @gen: generation of the QP that the stranger claims to have
 * @left: bytes of a message to a QP that are still to be sent
 * @begun: first packet of that message
 * @pending: requests of a QP of the victim
 * @npending: their number
 * @kept: frames that were sent
 * @nkept: their number, also of those that are no longer there
 */
struct world {
	struct stranger one, other, *s;
	struct ibv_context *ctx;
	int sgid;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_srq *srq, *xsrq;
	struct ibv_xrcd *xrcd;
	uint32_t xsrqn;
	struct ibv_ah *ah, *group_ah[W_GROUPS];
	char *mem;
	struct ibv_mr *mr[W_MRS];
	struct ibv_mw *mw;
	struct ibv_qp *qp[W_QPS];
	unsigned int dirty;
	uint32_t psn[W_QPS];
	uint64_t gen[W_QPS], left[W_QPS];
	struct frame begun[W_QPS];
	struct frame pending[W_QPS][PENDING];
	int npending[W_QPS];
	struct kept kept[KEPT];
	unsigned int nkept;
};

extern struct world w;
extern const union ibv_gid world_groups[W_GROUPS];

/* world.c */
void far_world_open(void);
void far_world_close(void);
/* Bring the QPs into their first state, before an input. */
void far_world_begin(void);
/* Let the kernel do what is under way, after an input. */
void far_world_end(void);
/* Destroy and create a QP. */
void world_qp_new(int i);
/* From RESET to RTS; return 0 or a positive errno. */
int world_qp_connect(int i);
uint32_t world_rkey(uint8_t choice);
/* Return the index of an address of a device; it may come soon. */
int world_sgid(struct ibv_context *ctx, const union ibv_gid *gid);
bool world_is_ud(int i);

/* frames.c, batch.c, cast.c, victim.c, groups.c: calls */
extern const struct op frame_ops[], batch_ops[], cast_ops[], victim_ops[], group_ops[];
extern const int frame_ops_count, batch_ops_count, cast_ops_count, victim_ops_count;
extern const int group_ops_count;

/* batch.c: forget the batch that has begun; send it; put a frame into it: true if that is wanted */
void batch_begin(void);
void batch_send(void);
bool batch_takes(const struct kept *k);

void frames_begin(void);
/* Receive all frames there are. */
void frames_collect(void);
/* Send a frame with @len bytes of data, and with the faults that were set before. */
void frames_send(struct frame *frame, uint32_t len, struct way way);
/* The next frame goes this way, or over the connection if it was for a group. */
void frames_detour(struct way way);

/* cast.c: the forger, a QP of the lower device of host 1 */
void forger_net_up(void);
void forger_open(void);
void forger_close(void);
/* Send a packet. */
void forger_send(struct way way, const void *bytes, size_t n);
/* Wait until all packets were sent. */
void forger_settle(void);

/* witness.c: a member that knows what the forger has sent */
void witness_open(void);
void witness_close(void);
/* A packet is sent to the group of the witness. */
void witness_sent(const void *bytes, size_t n);
/* Check what has arrived. */
void witness_check(void);

/* groups.c: the victim as a member of groups */
void groups_open(void);
void groups_close(void);
/* W_MEMBER has its groups, and no others. */
void groups_begin(void);
/* Until this returns, another thread may attach QPs and detach them. */
void groups_end(void);
/* A QP leaves all groups. */
void groups_leave(struct ibv_qp *qp);

/* cover.c */
void cover_open(void);
/* Has the kernel reached code that it had not reached before? */
bool cover_is_new(void);
int cover_count(void);
int cover_total(void);
void cover_print(void);

/* honest.c: QPs of the two hosts, which exchange data and datagrams meanwhile */
pid_t honest_start(void);
/* Groups of the victim's device that they are members of. */
#define HONEST_GROUPS	2
void honest_check(pid_t pid);
void honest_end(pid_t pid);
/* A receive WQE with the number of a slot of memory, which nothing else uses. */
#define MEMBER_SLOT	8192
void member_receive(struct end *e, unsigned int slot);

#endif /* WORLD_H */
