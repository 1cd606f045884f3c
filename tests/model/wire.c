// SPDX-License-Identifier: GPL-2.0
/*
 * Queue pairs, as section 9.9 of the InfiniBand specification and
 * Documentation/data-path.rst define them: states, waits, and the requester.
 * answer.c is the responder.
 */
#include "answer.h"
#include "draft.h"
#include "model.h"

#define UD_MTU		4096

void wire_init(void)
{
	world.gens = 1;
}

struct obj *qp_by_num(uint32_t qpn)
{
	int i;

	for (i = 0; i < world.n[K_QP]; i++)
		if (world.live[K_QP][i]->qp.qpn == qpn)
			return world.live[K_QP][i];
	return NULL;
}

struct obj *srq_by_num(uint32_t num)
{
	int i;

	for (i = 0; num && i < world.n[K_SRQ]; i++)
		if (world.live[K_SRQ][i]->srq.num == num)
			return world.live[K_SRQ][i];
	return NULL;
}

static bool receives(const struct obj *qp)
{
	return qp->qp.state >= IBV_QPS_RTR && qp->qp.state != IBV_QPS_ERR;
}

static bool psns_match(const struct obj *qp, const struct obj *peer)
{
	return qp->qp.type == IBV_QPT_UC || qp->qp.sq_psn == peer->qp.rq_psn;
}

/* Return the QP that accepts messages of a QP, or NULL. */
struct obj *wire_peer(const struct obj *qp)
{
	enum ibv_qp_type type = qp->qp.type == IBV_QPT_XRC_SEND ?
				IBV_QPT_XRC_RECV : qp->qp.type;
	struct obj *peer = qp_by_num(qp->qp.dest);

	if (!peer || peer->qp.type != type || !receives(peer) ||
	    peer->qp.dest != qp->qp.qpn || !psns_match(qp, peer))
		return NULL;
	/* A connection is made to a QP, not to a number. */
	if ((qp->qp.remote && qp->qp.remote != peer->qp.gen) ||
	    (peer->qp.remote && peer->qp.remote != qp->qp.gen))
		return NULL;
	return peer;
}

/* The vendor error if there is no peer. */
static int peer_why(const struct obj *qp)
{
	struct obj *peer = qp_by_num(qp->qp.dest);

	if (!peer || peer->qp.dest != qp->qp.qpn ||
	    peer->qp.state < IBV_QPS_RTR || psns_match(qp, peer))
		return KEELDV_WHY_PEER;
	return KEELDV_WHY_PSN;
}

int wire_waiters(const struct obj *srq)
{
	const struct obj *qp, *peer;
	int i, n = 0;

	for (i = 0; i < world.n[K_QP]; i++) {
		qp = world.live[K_QP][i];
		if (qp->qp.wait != WAIT_RECV)
			continue;
		peer = wire_peer(qp);
		if (qp->qp.type == IBV_QPT_XRC_SEND)
			n += srq_by_num(qp->qp.sq[0].srqn) == srq;
		else
			n += peer && peer->qp.srq == srq;
	}
	return n;
}

bool wire_is_contended(const struct obj *qp, uint32_t srqn)
{
	const struct obj *peer = wire_peer(qp), *srq;

	if (!peer)
		return false;
	srq = qp->qp.type == IBV_QPT_XRC_SEND ? srq_by_num(srqn) :
						peer->qp.srq;
	return srq && qp->qp.wait == WAIT_NONE && wire_waiters(srq);
}

static bool send_uses(const struct send *wr, uint32_t key)
{
	int i;

	for (i = 0; i < wr->num_sge && !wr->is_inline; i++)
		if (wr->sge[i].lkey == key)
			return true;
	return wr->rkey == key || wr->lkey == key || wr->mw_key == key;
}

bool wire_uses(uint32_t key)
{
	const struct qp_part *q;
	int i, j;

	for (i = 0; i < world.n[K_QP]; i++) {
		q = &world.live[K_QP][i]->qp;
		for (j = 0; j < q->n; j++)
			if (send_uses(&q->sq[j], key))
				return true;
	}
	return false;
}

void wire_kick(struct obj *qp)
{
	qp->qp.kicked = true;
}

/* The peer may wait for this QP. */
void wire_wake_peer(struct obj *qp)
{
	struct obj *peer = qp_by_num(qp->qp.dest);

	if (qp->qp.type != IBV_QPT_UD && peer && peer != qp &&
	    peer->qp.dest == qp->qp.qpn)
		wire_kick(peer);
}

void wire_fail(struct obj *qp, enum ibv_qp_state state)
{
	if (qp->qp.state == IBV_QPS_ERR || qp->qp.state == IBV_QPS_RESET)
		return;
	if (state == IBV_QPS_SQE && qp->qp.state != IBV_QPS_RTS &&
	    qp->qp.state != IBV_QPS_SQD)
		return;
	qp->qp.state = state;
	wire_kick(qp);
	if (state == IBV_QPS_ERR)
		wire_wake_peer(qp);
}

/* --- completions of the send queue ---------------------------------------- */

static enum ibv_wc_opcode wc_opcode(enum ibv_wr_opcode op)
{
	switch (op) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return IBV_WC_RDMA_WRITE;
	case IBV_WR_RDMA_READ:
		return IBV_WC_RDMA_READ;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		return IBV_WC_COMP_SWAP;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return IBV_WC_FETCH_ADD;
	case IBV_WR_ATOMIC_WRITE:
		return IBV_WC_ATOMIC_WRITE;
	case IBV_WR_BIND_MW:
		return IBV_WC_BIND_MW;
	case IBV_WR_LOCAL_INV:
		return IBV_WC_LOCAL_INV;
	default:
		return IBV_WC_SEND;
	}
}

static void complete(struct obj *qp, const struct outcome *out)
{
	struct send wr = qp->qp.sq[0];
	int i;

	for (i = 1; i < qp->qp.n; i++)
		qp->qp.sq[i - 1] = qp->qp.sq[i];
	qp->qp.n--;
	qp->qp.wait = WAIT_NONE;
	result->sends++;
	result->sends_good += !out->status;
	if (!out->status && !wr.signaled && !qp->qp.sig_all)
		return;
	cq_add(qp->qp.send_cq, &(struct wc){
		.wr_id = wr.wr_id, .status = out->status, .why = out->why,
		.opcode = wc_opcode(wr.opcode), .qpn = qp->qp.qpn,
		.len = out->read, .check_len = out->read,
	});
}

static void fail_first(struct obj *qp, const struct outcome *out)
{
	bool stops = qp->qp.type == IBV_QPT_UC || qp->qp.type == IBV_QPT_UD;

	wire_fail(qp, stops ? IBV_QPS_SQE : IBV_QPS_ERR);
	complete(qp, out);
}

static void flush_sq(struct obj *qp)
{
	const struct outcome out = { IBV_WC_WR_FLUSH_ERR, KEELDV_WHY_FLUSH, 0 };

	while (qp->qp.n)
		complete(qp, &out);
}

/* --- the requester -------------------------------------------------------- */

static struct outcome error(enum ibv_wc_status status, int why)
{
	return (struct outcome){ status, why, 0 };
}

/* Local errors, before the peer is known. */
static bool local_error(struct obj *qp, struct send *wr, struct spans *local,
			struct outcome *out)
{
	int why = 0;

	if (wr->is_inline)
		spans_of_data(local, wr->data, wr->len);
	else
		why = spans_of_sges(local, wr->sge, wr->num_sge, UINT64_MAX,
				    qp->qp.domain, op_reads(wr->opcode) ?
				    IBV_ACCESS_LOCAL_WRITE : 0);
	if (why)
		*out = error(IBV_WC_LOC_PROT_ERR, why);
	else if ((wr->opcode == IBV_WR_RDMA_READ || op_is_atomic(wr->opcode)) &&
		 !qp->qp.rd)
		*out = error(IBV_WC_LOC_QP_OP_ERR, KEELDV_WHY_DEPTH);
	else if (op_is_atomic(wr->opcode) && local->len != 8)
		*out = error(IBV_WC_LOC_LEN_ERR, KEELDV_WHY_LENGTH);
	else if (qp->qp.type == IBV_QPT_UD && local->len > UD_MTU)
		*out = error(IBV_WC_LOC_LEN_ERR, KEELDV_WHY_LENGTH);
	else
		return false;
	return true;
}

static struct outcome run_datagram(struct obj *qp, struct send *wr,
				   struct spans *local)
{
	struct obj *peer;
	uint32_t qkey = wr->qkey & 1U << 31 ? qp->qp.qkey : wr->qkey;

	if (wr->ah->dead || wr->ah->ah.domain != qp->qp.domain)
		return error(IBV_WC_LOC_QP_OP_ERR, KEELDV_WHY_AH);
	peer = qp_by_num(wr->qpn);
	if (peer && peer->qp.type == IBV_QPT_UD && receives(peer) &&
	    peer->qp.qkey == qkey)
		answer_datagram(qp, peer, wr, local);
	return error(IBV_WC_SUCCESS, 0);
}

/* Two QPs that have exchanged a message accept no other QP. */
static void contact(struct obj *qp, struct obj *peer)
{
	if (!qp->qp.remote)
		qp->qp.remote = peer->qp.gen;
	if (!peer->qp.remote)
		peer->qp.remote = qp->qp.gen;
}

static enum wait run_connected(struct obj *qp, struct send *wr,
			       struct spans *local, struct outcome *out)
{
	struct obj *peer = wire_peer(qp), *srq = NULL;
	const struct obj *domain;
	bool ready = true;

	*out = error(IBV_WC_SUCCESS, 0);
	if (!peer)
		return qp->qp.type == IBV_QPT_UC ? WAIT_NONE : WAIT_PEER;
	domain = peer->qp.domain;
	if (qp->qp.type == IBV_QPT_XRC_SEND) {
		srq = srq_by_num(wr->srqn);
		if (!srq || srq->srq.xdom != peer->qp.xdom) {
			*out = error(IBV_WC_REM_INV_REQ_ERR, KEELDV_WHY_SRQ);
			wire_fail(peer, IBV_QPS_ERR);
			contact(qp, peer);
			return WAIT_NONE;
		}
		domain = srq->srq.domain;
	}
	ready = answer(&(struct request){
		.qp = qp, .peer = peer, .srq = srq ? srq : peer->qp.srq,
		.xrc = srq, .domain = domain, .wr = wr, .local = local,
		.out = out,
	});
	if (ready)
		contact(qp, peer);
	return ready ? WAIT_NONE : WAIT_RECV;
}

static struct outcome run_local(struct obj *qp, struct send *wr)
{
	int why = wr->opcode == IBV_WR_BIND_MW ? window_bind(qp, wr) :
		  window_invalidate(qp, qp->qp.domain, wr->imm);

	return error(why ? IBV_WC_MW_BIND_ERR : IBV_WC_SUCCESS, why);
}

/* A wait with a deadline: some microseconds, which no other step sees. */
static bool wait_ends(struct obj *qp, enum wait kind, struct outcome *out)
{
	if (qp->qp.wait == kind)
		return false;
	qp->qp.wait = kind;
	say("qp %u waits for %s: rnr_retry %d, timeout %d", qp->qp.qpn,
	    kind == WAIT_RECV ? "a receive WQE" : "a peer", qp->qp.rnr_retry,
	    qp->qp.timeout);
	if (kind == WAIT_RECV && qp->qp.rnr_retry != 7) {
		if (qp->qp.rnr_retry)
			world.loose = true;
		*out = error(IBV_WC_RNR_RETRY_EXC_ERR, KEELDV_WHY_NOT_READY);
		return true;
	}
	if (kind == WAIT_PEER && qp->qp.timeout) {
		world.loose = true;
		*out = error(IBV_WC_RETRY_EXC_ERR, peer_why(qp));
		return true;
	}
	return false;
}

/* Execute the first work request. Return false if it waits. */
static bool run_first(struct obj *qp)
{
	struct send *wr = &qp->qp.sq[0];
	struct outcome out = { 0 };
	enum wait kind = WAIT_NONE;
	struct spans local;

	if (wr->opcode == IBV_WR_BIND_MW || wr->opcode == IBV_WR_LOCAL_INV)
		out = run_local(qp, wr);
	else if (local_error(qp, wr, &local, &out))
		;
	else if (qp->qp.type == IBV_QPT_UD)
		out = run_datagram(qp, wr, &local);
	else
		kind = run_connected(qp, wr, &local, &out);
	if (kind != WAIT_NONE && !wait_ends(qp, kind, &out))
		return false;
	if (out.status)
		fail_first(qp, &out);
	else
		complete(qp, &out);
	return true;
}

void wire_run(struct obj *qp)
{
	while (qp->qp.n) {
		switch (qp->qp.state) {
		case IBV_QPS_RTS:
			if (!run_first(qp))
				return;
			break;
		case IBV_QPS_SQD:
			/* Only a work request that was begun continues. */
			if (qp->qp.wait == WAIT_NONE || !run_first(qp))
				return;
			break;
		case IBV_QPS_SQE:
		case IBV_QPS_ERR:
			flush_sq(qp);
			return;
		default:
			return;
		}
	}
}

/* --- events --------------------------------------------------------------- */

static void turn(struct obj *qp)
{
	if (qp->qp.n || qp->qp.have || qp->qp.rq.n)
		world.loose = true;
	if (qp->qp.state == IBV_QPS_ERR)
		answer_flush(qp);
	wire_run(qp);
}

void wire_drain(void)
{
	bool more;
	int i;

	do {
		more = false;
		for (i = 0; i < world.n[K_QP]; i++) {
			if (!world.live[K_QP][i]->qp.kicked)
				continue;
			world.live[K_QP][i]->qp.kicked = false;
			turn(world.live[K_QP][i]);
			more = true;
		}
	} while (more);
}

void wire_recv_posted(struct obj *qp)
{
	struct obj *peer = qp_by_num(qp->qp.dest);

	if (qp->qp.state == IBV_QPS_ERR) {
		answer_flush(qp);
		return;
	}
	if (!qp->qp.rq.wanted)
		return;
	/* The doorbell runs the requester that waits, and then the QP itself. */
	qp->qp.rq.wanted = false;
	world.loose = true;
	if (peer && peer->qp.wait == WAIT_RECV)
		wire_run(peer);
	wire_run(qp);
}

void wire_srq_posted(struct obj *srq)
{
	struct obj *qp, *peer;
	int i;

	for (i = 0; i < world.n[K_QP]; i++) {
		qp = world.live[K_QP][i];
		peer = qp_by_num(qp->qp.dest);
		if (qp->qp.wait != WAIT_RECV)
			continue;
		if (qp->qp.type == IBV_QPT_XRC_SEND ?
		    srq_by_num(qp->qp.sq[0].srqn) == srq :
		    peer && peer->qp.srq == srq)
			wire_kick(qp);
	}
}

void wire_reset(struct obj *qp)
{
	struct qp_part *q = &qp->qp;

	q->state = IBV_QPS_RESET;
	wire_wake_peer(qp);
	q->n = 0;
	q->rq.n = 0;
	q->rq.wanted = false;
	q->have = false;
	q->wait = WAIT_NONE;
	q->kicked = false;
	q->gen = ++world.gens;
	q->remote = 0;
	q->access = 0;
	q->dest = 0;
	q->sq_psn = 0;
	q->rq_psn = 0;
	q->qkey = 0;
	q->rd = 0;
	q->dest_rd = 0;
	q->rnr_retry = 0;
	q->timeout = 0;
	/* Completions that an XRC_RECV QP has delivered belong to the SRQs. */
	if (q->send_cq)
		cq_forget(q->send_cq, q->qpn);
	if (q->recv_cq && q->recv_cq != q->send_cq)
		cq_forget(q->recv_cq, q->qpn);
}
