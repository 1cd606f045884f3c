// SPDX-License-Identifier: GPL-2.0
/*
 * The requester: checks a work request, finds its local memory and its peer,
 * and executes it at the responder.
 */
#include <kunit/visibility.h>

#include "keel_far.h"
#include "keel_opcode.h"
#include "keel_resp_lock.h"

static enum keel_xfer_result keel_req_bad(struct keel_xfer *x,
					  enum ib_wc_status status, u32 why)
{
	x->status = status;
	x->why = why;
	return KEEL_XFER_DONE;
}

/* A flush has no local memory. */
static enum ib_wc_status keel_req_flush(struct keel_xfer *x)
{
	const struct keel_uapi_send_wqe *wqe = x->wqe;

	if (wqe->num_sge || wqe->flags & IB_SEND_INLINE)
		return IB_WC_LOC_QP_OP_ERR;
	x->why = KEEL_WHY_PLACEMENT;
	if (!wqe->flush.type || wqe->flush.level > IB_FLUSH_MR ||
	    wqe->flush.type & ~(IB_FLUSH_GLOBAL | IB_FLUSH_PERSISTENT))
		return IB_WC_LOC_QP_OP_ERR;
	return IB_WC_SUCCESS;
}

/*
 * Find the local memory of the request. The inline data or SGEs after the
 * header are copied once, before they are used.
 */
static enum ib_wc_status keel_req_local(struct keel_xfer *x, const void *tail)
	__must_hold(&x->qp->sq.from.lock)
{
	const struct keel_uapi_send_wqe *wqe = x->wqe;
	bool reads = x->op->flags & KEEL_OP_READ;
	struct keel_qp *qp = x->qp;
	const struct keel_scope scope = keel_qp_scope(qp, qp->domain);
	struct keel_sq *sq = &qp->sq;

	sq->from.segs.n = 0;
	sq->from.segs.len = 0;
	x->why = KEEL_WHY_SGES;
	if (wqe->opcode == IB_WR_FLUSH)
		return keel_req_flush(x);
	if (wqe->flags & IB_SEND_INLINE) {
		if (reads || wqe->num_sge ||
		    wqe->inline_len > qp->cap.max_inline_data)
			return IB_WC_LOC_QP_OP_ERR;
		memcpy(sq->data, tail, wqe->inline_len);
		keel_segs_one(&sq->from.segs, &sq->inline_mem, 0, wqe->inline_len);
		return IB_WC_SUCCESS;
	}
	if (wqe->num_sge > qp->cap.max_send_sge)
		return IB_WC_LOC_QP_OP_ERR;
	memcpy(sq->data, tail, wqe->num_sge * sizeof(struct keel_uapi_sge));
	return keel_segs_local(&scope, &sq->from.segs, (void *)sq->data,
			       wqe->num_sge, KEEL_MAX_SGE * (u64)U32_MAX,
			       reads ? IB_ACCESS_LOCAL_WRITE : 0, &x->why);
}

/*
 * A message, or a part of it, has arrived. From now on the two QPs are bound to
 * each other: neither accepts another QP that gets the same number. A NIC would
 * have advanced its PSNs here.
 */
static void keel_req_contact(struct keel_qp *qp, struct keel_qp *peer)
{
	atomic64_cmpxchg(&qp->remote, 0, atomic64_read(&peer->gen));
	atomic64_cmpxchg(&peer->remote, 0, atomic64_read(&qp->gen));
}

/*
 * Find the QP that this one is connected to, which becomes @x->peer. Return: false if
 * it is not ready.
 */
static bool keel_req_peer(struct keel_xfer *x)
	__must_hold(&x->qp->sq.from.lock)
{
	struct keel_qp *qp = x->qp;

	if (!qp->av.local)
		return false;
	x->peer = keel_qp_get(qp->kdev, qp->attr.dest_qp_num);
	return x->peer && keel_qp_connected(qp, x->peer);
}

static enum keel_xfer_result keel_req_no_peer(struct keel_xfer *x)
{
	x->status = IB_WC_SUCCESS;
	return x->qp->type == IB_QPT_UC ? KEEL_XFER_DONE : KEEL_XFER_NO_PEER;
}

/* Execute a work request at the responder. */
static enum keel_xfer_result keel_req_at_peer(struct keel_xfer *x)
	__must_hold(&x->qp->sq.from.lock, &x->peer->resp.lock)
{
	enum keel_xfer_result result;

	x->domain = x->peer->domain;
	if (x->qp->type == IB_QPT_XRC_INI && !keel_resp_find_srq(x, x->wqe->srqn))
		result = KEEL_XFER_DONE;
	else
		result = x->op->run(x);
	if (result == KEEL_XFER_DONE || x->qp->sq.from.fetch.ctl.done)
		keel_req_contact(x->qp, x->peer);
	x->rnr_ns = keel_rnr_ns(READ_ONCE(x->peer->attr.min_rnr_timer));
	return result;
}

/* Execute a work request at the QP that is connected to this one. */
static enum keel_xfer_result keel_req_connected_send(struct keel_xfer *x)
	__must_hold(&x->qp->sq.from.lock)
{
	enum keel_xfer_result result;

	if (x->qp->far && x->qp->far->link)
		/* @from is that of the send queue. */
		return context_unsafe(keel_far_send(x));
	/* Do not try the lock of a QP that is not connected to this one. */
	if (!keel_req_peer(x))
		return keel_req_no_peer(x);
	if (!mutex_trylock(&x->peer->resp.lock))
		return KEEL_XFER_BUSY;
	result = keel_qp_connected(x->qp, x->peer) ? keel_req_at_peer(x) :
						     keel_req_no_peer(x);
	mutex_unlock(&x->peer->resp.lock);
	return result;
}

/*
 * Check all that does not depend on the peer, and find the local memory. The caller drops
 * that, and is not preempted before: see keel_resp_lock.h. Return: KEEL_XFER_BUSY: go on.
 */
static enum keel_xfer_result keel_req_check(struct keel_xfer *x, u32 index)
	__must_hold(&x->qp->sq.from.lock)
{
	struct keel_qp *qp = x->qp;
	struct keel_sq *sq = &qp->sq;

	x->status = keel_req_local(x, keel_ring_entry(&sq->ring, index) + sizeof(*x->wqe));
	if (x->status != IB_WC_SUCCESS)
		return KEEL_XFER_DONE;
	x->why = KEEL_WHY_NONE;
	x->len = sq->from.segs.len;
	x->total = x->len;
	if (x->len > KEEL_MAX_MSG)
		return keel_req_bad(x, IB_WC_LOC_LEN_ERR, KEEL_WHY_LENGTH);
	if (x->op->flags & KEEL_OP_DEPTH && !READ_ONCE(qp->attr.max_rd_atomic))
		return keel_req_bad(x, IB_WC_LOC_QP_OP_ERR, KEEL_WHY_DEPTH);
	if (x->op->flags & KEEL_OP_ATOMIC && x->len != sizeof(u64))
		return keel_req_bad(x, IB_WC_LOC_LEN_ERR, KEEL_WHY_LENGTH);
	return KEEL_XFER_BUSY;
}

/* Only packets to another host, of memory that is there, are soon sent, and wait for nobody. */
static bool keel_req_is_brief(const struct keel_xfer *x)
	__must_hold(&x->from->lock)
{
	return !keel_qp_is_dgram(x->qp) && x->qp->far && x->qp->far->link &&
	       x->len <= KEEL_FRAME_DATA && !keel_segs_may_lack(&x->from->segs) &&
	       /* Userspace may have changed the WQE since. */
	       !keel_fetch_is_busy(&x->from->fetch);
}

/* One attempt, not preempted while it has keys: see keel_resp_lock.h. */
static enum keel_xfer_result keel_req_try(struct keel_xfer *x)
	__must_hold(&x->qp->sq.from.lock)
{
	enum keel_xfer_result result = keel_req_check(x, x->qp->sq.ring.index);

	if (result != KEEL_XFER_BUSY)
		return result;
	/* That of the send queue. */
	lockdep_assert_held(&x->from->lock);
	if (x->brief && !keel_req_is_brief(x))
		return KEEL_XFER_LATER;
	if (keel_qp_is_dgram(x->qp))
		return keel_ud_send(x);
	return keel_req_connected_send(x);
}

/* Return: false if the QP may not execute this: @x->why is set. */
static bool keel_req_is_valid(struct keel_xfer *x)
{
	const struct keel_uapi_send_wqe *wqe = x->wqe;
	struct keel_qp *qp = x->qp;

	x->op = keel_opcode_find(wqe->opcode);
	x->why = KEEL_WHY_OPCODE;
	if (!x->op || !(x->op->types & BIT(qp->type)) ||
	    (x->op->flags & KEEL_OP_KERNEL && qp->user))
		return false;
	/* Kernel consumers may leave unused members of a work request unset. */
	x->why = KEEL_WHY_RESERVED;
	if (qp->user && !keel_opcode_clean(x->op, wqe, qp->type))
		return false;
	x->why = KEEL_WHY_NONE;
	return true;
}

/**
 * keel_req_run() - execute a work request
 * @x: with @x->qp, and a copy of the WQE's header in @x->wqe
 *
 * Context: may sleep; the send queue's lock is held, and the WQE is its first.
 * Return: the result, see enum keel_xfer_result.
 */
enum keel_xfer_result keel_req_run(struct keel_xfer *x)
{
	struct keel_qp *qp = x->qp;
	enum keel_xfer_result result;
	struct keel_resp_wait wait = { .until = x->until };

	if (!keel_req_is_valid(x))
		return keel_req_bad(x, IB_WC_LOC_QP_OP_ERR, x->why);
	/* Userspace has changed a WQE of which packets were sent. */
	if (x->op->flags & KEEL_OP_LOCAL && keel_far_has_begun(qp))
		return keel_req_bad(x, IB_WC_LOC_QP_OP_ERR, KEEL_WHY_OPCODE);
	if (x->op->flags & KEEL_OP_LOCAL)
		return x->brief ? KEEL_XFER_LATER : x->op->run(x);
	do {
		keel_resp_stay();
		result = keel_req_try(x);
		keel_segs_put(&qp->sq.from.segs);
		keel_resp_relax();
		keel_xfer_put(x);
		if (result != KEEL_XFER_BUSY)
			return result;
	} while (!keel_resp_pause(qp, &wait));
	return KEEL_XFER_STOPPED;
}

/*
 * Send packets of a WQE behind the first one. Return: KEEL_XFER_DONE: all of them were sent;
 * KEEL_XFER_UNDERWAY: not all, or none; KEEL_XFER_LATER.
 */
static enum keel_xfer_result keel_req_follow(struct keel_qp *qp, u32 index,
					     const struct keel_turn *turn)
	__must_hold(&qp->sq.from.lock)
{
	struct keel_sq *sq = &qp->sq;
	struct keel_xfer x = {
		.qp = qp,
		.from = &sq->from,
		.gen = atomic64_read(&qp->gen),
		.src_qp = qp->qpn,
		.wqe = &sq->wqe,
		.brief = turn->brief,
		.until = turn->until,
	};
	enum keel_xfer_result result = KEEL_XFER_UNDERWAY;

	keel_sq_fetch_at(sq, index);
	/* Nothing passes a local operation. */
	if (!keel_req_is_valid(&x) || x.op->flags & KEEL_OP_LOCAL)
		return result;
	sq->from.fetch.ctl.arg = &x;
	keel_resp_stay();
	/* @x.qp is @qp, and @x.from that of its send queue. */
	if (context_unsafe(keel_req_check(&x, index)) != KEEL_XFER_BUSY)
		goto out;
	if (x.brief && x.len > KEEL_FRAME_DATA)
		result = KEEL_XFER_LATER;
	/* Likewise. */
	else if (context_unsafe(keel_far_follow(&x, index)))
		result = KEEL_XFER_DONE;
out:
	keel_segs_put(&sq->from.segs);
	keel_resp_relax();
	sq->from.fetch.ctl.arg = NULL;
	return result;
}

/**
 * keel_req_ahead() - send packets of the WQEs behind the first one to another host
 * @qp: the QP, after KEEL_XFER_UNDERWAY for the first one
 * @posted: number of WQEs, with the first one
 * @turn: the turn
 *
 * &keel_sq.wqe is another WQE afterwards.
 *
 * Context: may sleep; the send queue's lock is held.
 * Return: KEEL_XFER_UNDERWAY: wait for answers; KEEL_XFER_STOPPED: the first one is to be executed
 * again at once: there is another connection, and its packets are sent again; KEEL_XFER_LATER.
 */
enum keel_xfer_result keel_req_ahead(struct keel_qp *qp, int posted,
				     const struct keel_turn *turn)
{
	enum keel_xfer_result result = KEEL_XFER_DONE;
	u32 index;

	if (!keel_far_is_ahead(qp))
		return KEEL_XFER_UNDERWAY;
	while (result == KEEL_XFER_DONE && keel_far_next_wqe(qp, posted, &index))
		result = keel_req_follow(qp, index, turn);
	if (result == KEEL_XFER_LATER)
		return result;
	return keel_far_is_ahead(qp) ? KEEL_XFER_UNDERWAY : KEEL_XFER_STOPPED;
}
