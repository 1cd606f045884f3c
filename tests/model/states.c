// SPDX-License-Identifier: GPL-2.0
/*
 * States of queue pairs: the transitions of the InfiniBand specification (section
 * 11.2.5.2) with their attributes, for each type of QP.
 */
#include <errno.h>

#include "model.h"

#define PKEY		IBV_QP_PKEY_INDEX
#define PORT		IBV_QP_PORT
#define QKEY		IBV_QP_QKEY
#define ACCESS		IBV_QP_ACCESS_FLAGS
#define PATH		(IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | \
			 IBV_QP_RQ_PSN)
#define RESPONDER	(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define REQUESTER	(IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | \
			 IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC)
#define PSN		IBV_QP_SQ_PSN
#define CUR		IBV_QP_CUR_STATE
#define RNR		IBV_QP_MIN_RNR_TIMER

/* The types in the order of the columns below. */
enum column { RC, UC, UD, XS, XR, COLUMNS };

static enum column column_of(enum ibv_qp_type type)
{
	switch (type) {
	case IBV_QPT_RC:
		return RC;
	case IBV_QPT_UC:
		return UC;
	case IBV_QPT_UD:
		return UD;
	case IBV_QPT_XRC_SEND:
		return XS;
	default:
		return XR;
	}
}

#define TO(state)	IBV_QPS_##state

/* Required and optional attributes; alternate paths are not among them. */
static const struct row {
	enum ibv_qp_state cur, next;
	int need[COLUMNS], may[COLUMNS];
} rows[] = {
	{ .cur = TO(RESET), .next = TO(RESET) },
	{ .cur = TO(RESET), .next = TO(INIT),
	  .need = { PKEY | PORT | ACCESS, PKEY | PORT | ACCESS,
		    PKEY | PORT | QKEY, PKEY | PORT | ACCESS,
		    PKEY | PORT | ACCESS } },
	{ .cur = TO(INIT), .next = TO(RESET) },
	{ .cur = TO(INIT), .next = TO(ERR) },
	{ TO(INIT), TO(INIT), { 0 },
	  { PKEY | PORT | ACCESS, PKEY | PORT | ACCESS, PKEY | PORT | QKEY,
	    PKEY | PORT | ACCESS, PKEY | PORT | ACCESS } },
	{ TO(INIT), TO(RTR),
	  { PATH | RESPONDER, PATH, 0, PATH, PATH | RESPONDER },
	  { ACCESS | PKEY, ACCESS | PKEY, PKEY | QKEY, ACCESS | PKEY,
	    ACCESS | PKEY } },
	{ .cur = TO(RTR), .next = TO(RESET) },
	{ .cur = TO(RTR), .next = TO(ERR) },
	{ TO(RTR), TO(RTS),
	  { REQUESTER | PSN, PSN, PSN, REQUESTER | PSN,
	    IBV_QP_TIMEOUT | PSN },
	  { CUR | ACCESS | RNR, CUR | ACCESS, CUR | QKEY, CUR | ACCESS,
	    CUR | ACCESS | RNR } },
	{ .cur = TO(RTS), .next = TO(RESET) },
	{ .cur = TO(RTS), .next = TO(ERR) },
	{ TO(RTS), TO(RTS), { 0 },
	  { CUR | ACCESS | RNR, CUR | ACCESS, CUR | QKEY, CUR | ACCESS,
	    CUR | ACCESS | RNR } },
	{ TO(RTS), TO(SQD), { 0 },
	  { IBV_QP_EN_SQD_ASYNC_NOTIFY, IBV_QP_EN_SQD_ASYNC_NOTIFY,
	    IBV_QP_EN_SQD_ASYNC_NOTIFY, IBV_QP_EN_SQD_ASYNC_NOTIFY,
	    IBV_QP_EN_SQD_ASYNC_NOTIFY } },
	{ .cur = TO(SQD), .next = TO(RESET) },
	{ .cur = TO(SQD), .next = TO(ERR) },
	{ TO(SQD), TO(RTS), { 0 },
	  { CUR | ACCESS | RNR, CUR | ACCESS, CUR | QKEY, CUR | ACCESS,
	    CUR | ACCESS | RNR } },
	{ TO(SQD), TO(SQD), { 0 },
	  { PORT | IBV_QP_AV | REQUESTER | RESPONDER | ACCESS | PKEY,
	    IBV_QP_AV | ACCESS | PKEY, PKEY | QKEY,
	    PORT | IBV_QP_AV | REQUESTER | ACCESS | PKEY,
	    PORT | IBV_QP_AV | IBV_QP_TIMEOUT | RESPONDER | ACCESS | PKEY } },
	{ .cur = TO(SQE), .next = TO(RESET) },
	{ .cur = TO(SQE), .next = TO(ERR) },
	{ TO(SQE), TO(RTS), { 0 },
	  { 0, CUR | ACCESS, CUR | QKEY, 0, 0 } },
	{ .cur = TO(ERR), .next = TO(RESET) },
	{ .cur = TO(ERR), .next = TO(ERR) },
};

static const struct row *row_of(enum ibv_qp_state cur, enum ibv_qp_state next)
{
	int i;

	for (i = 0; i < COUNT(rows); i++)
		if (rows[i].cur == cur && rows[i].next == next)
			return &rows[i];
	return NULL;
}

bool state_table_allows(enum ibv_qp_type type, enum ibv_qp_state cur,
			enum ibv_qp_state next, int mask)
{
	const struct row *row = row_of(cur, next);
	enum column c = column_of(type);

	mask &= ~IBV_QP_STATE;
	return row && (mask & row->need[c]) == row->need[c] &&
	       !(mask & ~(row->need[c] | row->may[c]));
}

int state_required(enum ibv_qp_type type, enum ibv_qp_state cur,
		   enum ibv_qp_state next)
{
	const struct row *row = row_of(cur, next);

	return row ? row->need[column_of(type)] : 0;
}

/* --- ibv_modify_qp() ------------------------------------------------------ */

static bool ranges_ok(const struct ibv_qp_attr *attr, int mask)
{
	return !(mask & PORT && attr->port_num != 1) &&
	       !(mask & IBV_QP_PATH_MTU && (attr->path_mtu < IBV_MTU_256 ||
					    attr->path_mtu > IBV_MTU_4096)) &&
	       !(mask & RNR && attr->min_rnr_timer > 31) &&
	       !(mask & IBV_QP_TIMEOUT && attr->timeout > 31) &&
	       !(mask & IBV_QP_RETRY_CNT && attr->retry_cnt > 7) &&
	       !(mask & IBV_QP_RNR_RETRY && attr->rnr_retry > 7);
}

/* ib_uverbs ignores attributes of the direction that XRC QPs do not have. */
static int known_mask(enum ibv_qp_type type, int mask)
{
	if (type == IBV_QPT_XRC_SEND)
		return mask & ~RESPONDER;
	if (type == IBV_QPT_XRC_RECV)
		return mask & ~(IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT |
				IBV_QP_RNR_RETRY);
	return mask;
}

static int predict(const struct obj *qp, const struct ibv_qp_attr *attr,
		   int mask)
{
	enum ibv_qp_state cur = qp->qp.state;
	enum ibv_qp_state next = mask & IBV_QP_STATE ? attr->qp_state : cur;

	if (mask & CUR && attr->cur_qp_state != cur)
		return EINVAL;
	if (!state_table_allows(qp->qp.type, cur, next, mask) ||
	    !ranges_ok(attr, mask))
		return EINVAL;
	return 0;
}

static void set_attr(struct qp_part *q, const struct ibv_qp_attr *attr,
		     int mask)
{
	if (mask & ACCESS)
		q->access = attr->qp_access_flags;
	if (mask & QKEY)
		q->qkey = attr->qkey;
	if (mask & IBV_QP_DEST_QPN)
		q->dest = attr->dest_qp_num;
	if (mask & IBV_QP_RQ_PSN)
		q->rq_psn = attr->rq_psn;
	if (mask & PSN)
		q->sq_psn = attr->sq_psn;
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
		q->rd = attr->max_rd_atomic;
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC)
		q->dest_rd = attr->max_dest_rd_atomic;
	if (mask & IBV_QP_RNR_RETRY)
		q->rnr_retry = attr->rnr_retry;
	if (mask & IBV_QP_TIMEOUT)
		q->timeout = attr->timeout;
}

static void apply(struct obj *qp, const struct ibv_qp_attr *attr, int mask)
{
	enum ibv_qp_state cur = qp->qp.state;
	enum ibv_qp_state next = mask & IBV_QP_STATE ? attr->qp_state : cur;

	if (mask & IBV_QP_STATE)
		qp->qp.seen = next;
	if (next == IBV_QPS_RESET) {
		wire_reset(qp);
		return;
	}
	if (next == IBV_QPS_ERR) {
		wire_fail(qp, IBV_QPS_ERR);
		return;
	}
	set_attr(&qp->qp, attr, mask);
	qp->qp.state = next;
	if (next == IBV_QPS_RTR)
		wire_wake_peer(qp);
	if (next != cur || next == IBV_QPS_SQD)
		wire_run(qp);
}

static bool modify(struct obj *qp, struct ibv_qp_attr *attr, int mask)
{
	int known = known_mask(qp->qp.type, mask);
	int want = predict(qp, attr, known);

	attr->ah_attr.is_global = 1;
	attr->ah_attr.port_num = 1;
	attr->ah_attr.grh.dgid = world.gid;
	say("qp %u in state %d to state %d, mask 0x%x", qp->qp.qpn,
	    qp->qp.state, mask & IBV_QP_STATE ? (int)attr->qp_state : -1, mask);
	if (!expect("ibv_modify_qp()", ibv_modify_qp(qp->qp.p, attr, mask),
		    want))
		return false;
	apply(qp, attr, known);
	wire_drain();
	settle();
	return true;
}

/* --- steps ---------------------------------------------------------------- */

static bool fits(enum ibv_qp_type a, enum ibv_qp_type b)
{
	if (a == IBV_QPT_XRC_SEND)
		return b == IBV_QPT_XRC_RECV;
	if (a == IBV_QPT_XRC_RECV)
		return b == IBV_QPT_XRC_SEND;
	return a == b;
}

static struct obj *partner(const struct obj *qp, uint32_t n)
{
	struct obj *of[MAX_LIVE];
	int i, count = 0;

	for (i = 0; i < world.n[K_QP]; i++)
		if (fits(qp->qp.type, world.live[K_QP][i]->qp.type))
			of[count++] = world.live[K_QP][i];
	return count ? of[n % count] : NULL;
}

#define ALL_ACCESS	(IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | \
			 IBV_ACCESS_REMOTE_ATOMIC)

/* Mostly those of a connection that works. */
static void roll_attr(struct ibv_qp_attr *attr, struct dice *d)
{
	*attr = (struct ibv_qp_attr){
		.port_num = 1, .path_mtu = IBV_MTU_1024,
		.qkey = dice_chance(d, 1, 20) ? 0x9999 : 0x1234,
		.qp_access_flags = dice_chance(d, 1, 25) ?
				   dice_roll(d, 16) & ALL_ACCESS : ALL_ACCESS,
		.max_rd_atomic = !dice_chance(d, 1, 40),
		.max_dest_rd_atomic = !dice_chance(d, 1, 40),
		.min_rnr_timer = 1,
		.rnr_retry = dice_chance(d, 4, 5) ? 7 : dice_roll(d, 2),
		.timeout = dice_chance(d, 1, 6) ? 0 : 1 + dice_roll(d, 3),
		.retry_cnt = dice_roll(d, 3),
		.sq_psn = dice_chance(d, 1, 80) ? 77 : 5,
		.rq_psn = 5,
	};
}

/* One attribute out of range. */
static void spoil(struct ibv_qp_attr *attr, struct dice *d)
{
	switch (dice_roll(d, 6)) {
	case 0:
		attr->port_num = 2;
		break;
	case 1:
		attr->path_mtu = 0;
		break;
	case 2:
		attr->min_rnr_timer = 32;
		break;
	case 3:
		attr->timeout = 32;
		break;
	case 4:
		attr->retry_cnt = 8;
		break;
	default:
		attr->rnr_retry = 8;
		break;
	}
}

static bool move(struct obj *qp, enum ibv_qp_state state,
		 struct ibv_qp_attr *attr)
{
	attr->qp_state = state;
	return modify(qp, attr, IBV_QP_STATE |
		      state_required(qp->qp.type, qp->qp.state, state));
}

/* Move a QP from any state to RTS, or only to RTR. */
static void connect(struct obj *qp, uint32_t dest, bool rts, struct dice *d)
{
	struct ibv_qp_attr attr;

	roll_attr(&attr, d);
	attr.dest_qp_num = dest;
	if (qp->qp.state != IBV_QPS_RESET && !move(qp, IBV_QPS_RESET, &attr))
		return;
	if (move(qp, IBV_QPS_INIT, &attr) && move(qp, IBV_QPS_RTR, &attr) &&
	    rts)
		move(qp, IBV_QPS_RTS, &attr);
}

static bool works(const struct obj *qp)
{
	return qp->qp.state == IBV_QPS_RTS &&
	       (qp->qp.type == IBV_QPT_UD || wire_peer(qp) || qp->qp.n);
}

/* QP PEER DETAILS HOW */
void op_connect(const uint32_t *a)
{
	struct dice d = dice_of(a[2], a[3]);
	struct obj *qp = obj_pick(K_QP, a[0]), *peer;
	bool rts = a[3] % 16 != 0;

	peer = qp ? partner(qp, a[1]) : NULL;
	/* Connections that work stay, as a rule. */
	if (!peer || ((works(qp) || works(peer)) && a[3] % 25)) {
		idle();
		return;
	}
	if (qp->qp.type == IBV_QPT_UD) {
		connect(qp, 0, rts, &d);
		return;
	}
	connect(qp, dice_chance(&d, 1, 60) ? a[1] : peer->qp.qpn, rts,
		&d);
	if (peer != qp)
		connect(peer, qp->qp.qpn, true, &d);
}

static int roll_mask(struct obj *qp, enum ibv_qp_state next, struct dice *d)
{
	static const int bits[] = {
		PKEY, PORT, QKEY, ACCESS, IBV_QP_AV, IBV_QP_PATH_MTU,
		IBV_QP_DEST_QPN, IBV_QP_RQ_PSN, IBV_QP_MAX_DEST_RD_ATOMIC, RNR,
		PSN, IBV_QP_MAX_QP_RD_ATOMIC, CUR, IBV_QP_EN_SQD_ASYNC_NOTIFY,
		IBV_QP_TIMEOUT, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY,
	};
	int mask = state_required(qp->qp.type, qp->qp.state, next);

	if (dice_chance(d, 1, 4))
		mask ^= bits[dice_roll(d, COUNT(bits))];
	if (dice_chance(d, 1, 6))
		mask |= CUR;
	/* A wait that has begun keeps its deadline. */
	if (qp->qp.wait != WAIT_NONE && qp->qp.state == IBV_QPS_SQD)
		mask &= ~(IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY);
	return mask;
}

/* QP STATE DETAILS MASK */
void op_modify_qp(const uint32_t *a)
{
	/* Errors and resets are rarer than states of a connection. */
	static const enum ibv_qp_state states[] = {
		IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTR, IBV_QPS_RTS,
		IBV_QPS_RTS, IBV_QPS_RTS, IBV_QPS_RTS, IBV_QPS_RTS,
		IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_SQD, IBV_QPS_SQD,
		IBV_QPS_SQE, IBV_QPS_ERR, IBV_QPS_RESET,
	};
	struct obj *qp = obj_pick(K_QP, a[0]), *peer;
	struct dice d = dice_of(a[2], a[3]);
	struct ibv_qp_attr attr;
	int mask;

	if (!qp) {
		idle();
		return;
	}
	peer = partner(qp, a[3]);
	roll_attr(&attr, &d);
	attr.dest_qp_num = peer ? peer->qp.qpn : 0;
	attr.qp_state = states[a[1] % COUNT(states)];
	attr.cur_qp_state = dice_chance(&d, 1, 5) ? IBV_QPS_RTS : qp->qp.state;
	mask = IBV_QP_STATE | roll_mask(qp, attr.qp_state, &d);
	if (dice_chance(&d, 1, 12))
		spoil(&attr, &d);
	/* The state stays, and other attributes change. */
	if (dice_chance(&d, 1, 8))
		mask &= ~IBV_QP_STATE;
	modify(qp, &attr, mask);
}
