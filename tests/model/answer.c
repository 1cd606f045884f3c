// SPDX-License-Identifier: GPL-2.0
/*
 * The responder: sends, RDMA operations and atomics at the peer, as section 9.9 of
 * the InfiniBand specification and Documentation/data-path.rst define them.
 */
#include <string.h>

#include "answer.h"

#define GRH		40

static bool is_uc(const struct request *r)
{
	return r->qp->qp.type == IBV_QPT_UC;
}

/* UC has no acknowledgements: the requester reports success. */
static bool done(const struct request *r, enum ibv_wc_status status, int why)
{
	if (!is_uc(r))
		*r->out = (struct outcome){ status, why, 0 };
	return true;
}

/* --- receive WQEs --------------------------------------------------------- */

/* Take the next receive WQE to @peer->qp.held. Return false if there is none. */
static bool take(struct obj *peer, struct obj *srq)
{
	struct rq *rq = srq ? &srq->srq.rq : &peer->qp.rq;

	if (peer->qp.have)
		return true;
	if (!rq->n) {
		rq->wanted = true;
		return false;
	}
	peer->qp.held = rq->wr[0];
	peer->qp.have = true;
	memmove(&rq->wr[0], &rq->wr[1], --rq->n * sizeof(rq->wr[0]));
	return true;
}

static void received(struct obj *peer, struct obj *cq, const struct wc *with)
{
	struct wc wc = *with;

	wc.wr_id = peer->qp.held.wr_id;
	wc.qpn = peer->qp.qpn;
	wc.recv = true;
	wc.check_len = true;
	peer->qp.have = false;
	cq_add(cq, &wc);
	if (wc.status && wc.status != IBV_WC_WR_FLUSH_ERR)
		wire_fail(peer, IBV_QPS_ERR);
}

static struct obj *recv_cq(const struct request *r)
{
	return r->xrc ? r->xrc->srq.cq : r->peer->qp.recv_cq;
}

static void complete(const struct request *r, enum ibv_wc_status status,
		     int why)
{
	enum ibv_wr_opcode op = r->wr->opcode;
	bool write = op == IBV_WR_RDMA_WRITE_WITH_IMM;
	unsigned int flags = 0;

	if (write || op == IBV_WR_SEND_WITH_IMM)
		flags = IBV_WC_WITH_IMM;
	else if (op == IBV_WR_SEND_WITH_INV)
		flags = IBV_WC_WITH_INV;
	received(r->peer, recv_cq(r), &(struct wc){
		.status = status, .why = why, .len = r->local->len,
		.flags = flags, .imm = r->wr->imm,
		.opcode = write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV,
	});
}

void answer_flush(struct obj *qp)
{
	const struct wc wc = {
		.status = IBV_WC_WR_FLUSH_ERR, .why = KEELDV_WHY_FLUSH,
		.opcode = IBV_WC_RECV,
	};

	/* Receive WQEs of an SRQ stay there, except one that was taken. */
	while (qp->qp.have || (!qp->qp.srq && qp->qp.rq.n)) {
		take(qp, NULL);
		received(qp, qp->qp.recv_cq, &wc);
	}
}

/* The domain of the lkeys of receive WQEs. */
static const struct obj *recv_domain(const struct obj *peer,
				     const struct obj *srq)
{
	return srq ? srq->srq.domain : peer->qp.domain;
}

/* --- refusals ------------------------------------------------------------- */

/* The request is not valid: responder class C. */
static bool refuse(const struct request *r, enum ibv_wc_status status, int why)
{
	/* UC drops the message. */
	if (is_uc(r))
		return true;
	if (r->wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		complete(r, status, why);
	else
		wire_fail(r->peer, IBV_QPS_ERR);
	return done(r, status, why);
}

/* Find the remote memory. Return true, or refuse the request. */
static bool remote(const struct request *r, unsigned int access, uint64_t len,
		   struct spans *to)
{
	struct key key;
	int why;

	*to = (struct spans){ 0 };
	if (!(r->peer->qp.access & access)) {
		refuse(r, IBV_WC_REM_INV_REQ_ERR, KEELDV_WHY_QP_ACCESS);
		return false;
	}
	/* The key of a message without bytes is not checked. */
	if (!len)
		return true;
	why = key_check(r->wr->rkey, r->domain, access, r->wr->addr, len,
			&key);
	if (!why && key.qp && key.qp != r->peer)
		why = KEELDV_WHY_WINDOW;
	if (why) {
		refuse(r, IBV_WC_REM_ACCESS_ERR, why);
		return false;
	}
	spans_of_key(to, &key, r->wr->addr, len);
	return true;
}

/* --- operations ----------------------------------------------------------- */

static bool answer_send(const struct request *r)
{
	struct spans to;
	int why;

	if (!take(r->peer, r->srq))
		return is_uc(r);
	why = spans_of_sges(&to, r->peer->qp.held.sge, r->peer->qp.held.num_sge,
			    r->local->len, recv_domain(r->peer, r->srq),
			    IBV_ACCESS_LOCAL_WRITE);
	if (why) {
		complete(r, IBV_WC_LOC_PROT_ERR, why);
		return done(r, IBV_WC_REM_OP_ERR, why);
	}
	if (to.len < r->local->len) {
		complete(r, IBV_WC_LOC_LEN_ERR, KEELDV_WHY_LENGTH);
		return done(r, IBV_WC_REM_INV_REQ_ERR, KEELDV_WHY_LENGTH);
	}
	bytes_copy(&to, 0, r->local);
	/* Class J: the requester reports success. */
	if (r->wr->opcode == IBV_WR_SEND_WITH_INV &&
	    window_invalidate(r->peer, r->domain, r->wr->imm))
		complete(r, IBV_WC_REM_INV_REQ_ERR, KEELDV_WHY_KEY);
	else
		complete(r, IBV_WC_SUCCESS, 0);
	return done(r, IBV_WC_SUCCESS, 0);
}

static bool answer_write(const struct request *r)
{
	bool imm = r->wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	struct spans to;

	if (imm && !take(r->peer, r->srq))
		return is_uc(r);
	if (!remote(r, IBV_ACCESS_REMOTE_WRITE, r->local->len, &to))
		return true;
	bytes_copy(&to, 0, r->local);
	if (imm)
		complete(r, IBV_WC_SUCCESS, 0);
	return done(r, IBV_WC_SUCCESS, 0);
}

static bool answer_read(const struct request *r)
{
	struct spans from;

	if (!r->peer->qp.dest_rd)
		return refuse(r, IBV_WC_REM_INV_REQ_ERR, KEELDV_WHY_DEPTH);
	if (!remote(r, IBV_ACCESS_REMOTE_READ, r->local->len, &from))
		return true;
	bytes_copy(r->local, 0, &from);
	done(r, IBV_WC_SUCCESS, 0);
	r->out->read = r->local->len;
	return true;
}

/* Find the operand of an atomic. Return NULL if the request was refused. */
static uint8_t *operand(const struct request *r, unsigned int access,
			struct spans *at)
{
	if (!r->peer->qp.dest_rd) {
		refuse(r, IBV_WC_REM_INV_REQ_ERR, KEELDV_WHY_DEPTH);
		return NULL;
	}
	if (r->wr->addr % 8) {
		refuse(r, IBV_WC_REM_INV_REQ_ERR, KEELDV_WHY_ALIGN);
		return NULL;
	}
	if (!remote(r, access, 8, at))
		return NULL;
	if (bytes_align(&at->at[0].mem)) {
		refuse(r, IBV_WC_REM_INV_REQ_ERR, KEELDV_WHY_ALIGN);
		return NULL;
	}
	if (at->odp)
		world.loose = true;
	return bytes_at(&at->at[0].mem);
}

static bool answer_atomic(const struct request *r)
{
	bool swap = r->wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
	uint64_t old, new;
	struct spans at, from;
	uint8_t *p = operand(r, IBV_ACCESS_REMOTE_ATOMIC, &at);

	if (!p)
		return true;
	memcpy(&old, p, 8);
	new = swap ? old == r->wr->compare ? r->wr->swap : old :
		     old + r->wr->compare;
	memcpy(p, &new, 8);
	spans_of_data(&from, (uint8_t *)&old, 8);
	if (bytes_are_unknown(&at))
		bytes_unknown(r->local, 0, 8);
	else
		bytes_copy(r->local, 0, &from);
	done(r, IBV_WC_SUCCESS, 0);
	r->out->read = 8;
	return true;
}

static bool answer_atomic_write(const struct request *r)
{
	struct spans at;

	if (!operand(r, IBV_ACCESS_REMOTE_WRITE, &at))
		return true;
	bytes_copy(&at, 0, r->local);
	return done(r, IBV_WC_SUCCESS, 0);
}

bool answer(const struct request *r)
{
	switch (r->wr->opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return answer_write(r);
	case IBV_WR_RDMA_READ:
		return answer_read(r);
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return answer_atomic(r);
	case IBV_WR_ATOMIC_WRITE:
		return answer_atomic_write(r);
	default:
		return answer_send(r);
	}
}

void answer_datagram(struct obj *qp, struct obj *peer, struct send *wr,
		     struct spans *local)
{
	struct obj *srq = peer->qp.srq;
	uint32_t len = GRH + local->len;
	struct wc wc = {
		.opcode = IBV_WC_RECV, .len = len, .flags = IBV_WC_GRH,
		.src_qp = qp->qp.qpn, .imm = wr->imm,
	};
	struct spans to;
	int why;

	if (!take(peer, srq))
		return;
	why = spans_of_sges(&to, peer->qp.held.sge, peer->qp.held.num_sge, len,
			    recv_domain(peer, srq), IBV_ACCESS_LOCAL_WRITE);
	if (why) {
		wc = (struct wc){
			.opcode = IBV_WC_RECV, .why = why,
			.status = IBV_WC_LOC_PROT_ERR,
		};
		received(peer, peer->qp.recv_cq, &wc);
		return;
	}
	/* A receive WQE that is too small stays for a shorter datagram. */
	if (to.len < len)
		return;
	bytes_copy(&to, GRH, local);
	bytes_unknown(&to, 0, GRH);
	if (wr->opcode == IBV_WR_SEND_WITH_IMM)
		wc.flags |= IBV_WC_WITH_IMM;
	received(peer, peer->qp.recv_cq, &wc);
}
