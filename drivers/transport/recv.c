// SPDX-License-Identifier: GPL-2.0
/*
 * The receive side of a responder: take a receive WQE, find its memory,
 * complete it, and flush the rest. The thread that runs the requester delivers
 * with the responder's lock held. keel_rq_flush() is part of a turn of the
 * responder's QP.
 */
#include <kunit/visibility.h>
#include <linux/ktime.h>
#include <linux/sched/signal.h>

#include "keel_point.h"
#include "keel_resp_lock.h"

/* Attempts to take a receive WQE, if other QPs take the new ones first. */
#define KEEL_RECV_TRIES		10

static void keel_dgram_drop(struct keel_dgram *dgram)
{
	if (!dgram)
		return;
	WRITE_ONCE(dgram->pending, false);
	keel_fetch_discard(&dgram->fetch);
}

/*
 * The SRQ that the QP takes receive WQEs from now; NULL: its own queue. For XRC,
 * the message has a reference.
 */
static struct keel_srq *keel_recv_srq(const struct keel_qp *qp)
	__must_hold(&qp->resp.lock)
{
	return qp->resp.srq ?: qp->srq;
}

/**
 * keel_recv_is_of() - is the receive WQE that was taken one of an SRQ?
 * @resp: the responder; its lock is held
 * @srq: the SRQ that a message names: the pointer may be reused
 *
 * Context: any.
 * Return: true if so.
 */
bool keel_recv_is_of(const struct keel_resp *resp, const struct keel_srq *srq)
	__must_hold(&resp->lock)
{
	return resp->srq == srq && resp->srq_id == srq->obj.id;
}

/*
 * XRC: the SRQ of the receive WQE that was taken, with a reference; NULL if it
 * does not exist any more. The SRQ may belong to another process, so a receive
 * WQE that is kept for long keeps no reference.
 */
static struct keel_srq *keel_recv_srq_get(const struct keel_qp *qp)
	__must_hold(&qp->resp.lock)
{
	const struct keel_resp *resp = &qp->resp;
	struct keel_obj *obj;

	guard(rcu)();
	obj = keel_number_load(&qp->kdev->reg.objs[KEEL_SRQ], resp->srq_id);
	/*
	 * Numbers of objects may wrap: an SRQ without a CQ, or of another domain,
	 * is another SRQ.
	 */
	if (!obj || obj != &resp->srq->obj || resp->srq->xrcd != qp->xrcd ||
	    !keel_obj_tryget(obj))
		return NULL;
	return resp->srq;
}

static void keel_recv_done(struct keel_resp *resp)
	__must_hold(&resp->lock)
{
	resp->have = false;
	resp->from_gen = 0;
	resp->srq = NULL;
}

/**
 * keel_recv_drop() - drop the receive WQE and the datagram kept for a QP
 * @qp: the QP
 *
 * Context: process context; the responder's lock is held.
 */
void keel_recv_drop(struct keel_qp *qp)
{
	keel_recv_done(&qp->resp);
	keel_dgram_drop(qp->resp.dgram);
}

/*
 * If the CQ is in error, the queue that reports to it fails. For XRC, the CQ
 * belongs to the SRQ, so the SRQ fails: the QP may belong to another process.
 */
static int keel_recv_add(struct keel_qp *qp, struct keel_uapi_cqe *cqe,
			 bool solicited)
	__must_hold(&qp->resp.lock)
{
	bool failed = cqe->status != IB_WC_SUCCESS &&
		      cqe->status != IB_WC_WR_FLUSH_ERR;
	struct keel_resp *resp = &qp->resp;
	int ret;

	cqe->wr_id = resp->recv.wr_id;
	cqe->qp_num = qp->qpn;
	ret = keel_cq_add(resp->srq ? resp->srq->cq : qp->recv_cq, cqe,
			  solicited, false);
	if (ret && resp->srq)
		keel_srq_fail(resp->srq);
	else if (ret && !keel_qp_fail(qp, IB_QPS_ERR, IB_EVENT_QP_FATAL) &&
		 failed)
		/* The QP failed without an event, and its CQE is lost. */
		keel_qp_event(qp, IB_EVENT_QP_FATAL);
	keel_recv_done(resp);
	return ret;
}

/*
 * Flush the receive WQE that was taken. It is gone with an SRQ that was destroyed.
 * Return: XRC: its SRQ, with a reference that the caller drops; or NULL.
 */
static struct keel_srq *keel_recv_flush_one(struct keel_qp *qp)
	__must_hold(&qp->resp.lock)
{
	struct keel_uapi_cqe cqe = {
		.status = IB_WC_WR_FLUSH_ERR,
		.opcode = IB_WC_RECV,
		.vendor_err = KEEL_WHY_FLUSH,
	};
	struct keel_srq *srq = NULL;

	if (qp->resp.srq) {
		srq = keel_recv_srq_get(qp);
		if (!srq) {
			keel_recv_done(&qp->resp);
			return NULL;
		}
	}
	keel_count(qp->kdev, flushes, 1);
	keel_dgram_drop(qp->resp.dgram);
	keel_recv_add(qp, &cqe, false);
	return srq;
}

/* Raise the event if the QP has no receive WQE of an SRQ, and takes no more. */
static void keel_rq_last(struct keel_qp *qp)
	__must_hold(&qp->resp.lock)
{
	struct keel_resp *resp = &qp->resp;

	if (keel_qp_state(qp) != IB_QPS_ERR || resp->have || resp->last ||
	    (!qp->srq && qp->type != IB_QPT_XRC_TGT))
		return;
	resp->last = true;
	keel_qp_event(qp, IB_EVENT_QP_LAST_WQE_REACHED);
}

static bool keel_rq_is_flushed(const struct keel_qp *qp)
{
	return keel_qp_state(qp) == IB_QPS_ERR && !keel_qp_is_dying(qp);
}

/* Flush no more receive WQEs than @budget. Return: true if there may be more. */
static bool keel_rq_flush_locked(struct keel_qp *qp, u32 budget)
	__must_hold(&qp->resp.lock)
{
	struct keel_resp *resp = &qp->resp;
	struct keel_ring *ring = &qp->rq.ring;
	struct keel_srq *srq;
	bool more = false;

	/* Again: keel_rq_unwant() may have cleared it. */
	if (ring->head && keel_qp_state(qp) == IB_QPS_ERR)
		WRITE_ONCE(ring->head->flags, KEEL_RING_F_DOORBELL);
	/* Pairs with the barrier of the thread that posts a receive WQE. */
	smp_mb();
	/* The state may have changed: only the error state flushes. */
	while (keel_rq_is_flushed(qp)) {
		if (!resp->have) {
			if (!ring->head ||
			    keel_rq_take(&qp->rq, &resp->recv) <= 0)
				break;
			resp->have = true;
		}
		srq = keel_recv_flush_one(qp);
		if (srq)
			keel_obj_put(&srq->obj);
		more = !--budget;
		if (more)
			break;
		cond_resched();
	}
	keel_point("rq_flushed");
	keel_rq_last(qp);
	return more;
}

/**
 * keel_rq_flush() - flush the receive queue of a QP in the error state
 * @qp: the QP
 *
 * Receive WQEs of an SRQ stay there, except one that the QP has taken. Then the
 * QP raises IB_EVENT_QP_LAST_WQE_REACHED. An error of the send queue is
 * reported before any receive WQE is flushed for it.
 *
 * Context: may sleep; takes the responder's lock.
 */
void keel_rq_flush(struct keel_qp *qp)
{
	struct keel_ring *ring = &qp->rq.ring;
	/* The owner may post without end, and other threads need the lock. */
	u32 budget = ring->head ? keel_ring_size(ring) + 1 : 1;

	/* keel_qp_reported() reschedules the QP afterwards. */
	if (smp_load_acquire(&qp->sq.reporting))
		return;
	if (!keel_resp_enter(qp, keel_rq_is_flushed))
		return;
	/* No requester sends to it before a reset, which waits for the lock. */
	keel_resp_relax();
	if (keel_rq_flush_locked(qp, budget))
		keel_qp_schedule(qp);
	mutex_unlock(&qp->resp.lock);
}
EXPORT_SYMBOL_IF_KUNIT(keel_rq_flush);

/**
 * keel_rq_flush_some() - flush receive WQEs of a QP that no process runs
 * @qp: the QP
 * @most: no more receive WQEs than this
 *
 * As keel_rq_flush(), but does not wait for another thread.
 *
 * Context: may sleep; takes the responder's lock.
 * Return: false if that lock is taken: nothing was done.
 */
bool keel_rq_flush_some(struct keel_qp *qp, u32 most)
{
	bool flushes;

	keel_resp_stay();
	if (!mutex_trylock(&qp->resp.lock)) {
		keel_resp_relax();
		return false;
	}
	/* Another process may have taken it over. Pairs with keel_qp_fail(). */
	flushes = context_unsafe(smp_load_acquire(&qp->state)) == IB_QPS_ERR &&
		  !keel_qp_is_dying(qp);
	/* Set before that state. Then keel_qp_reported() reschedules the QP. */
	if (flushes && smp_load_acquire(&qp->sq.reporting))
		flushes = false;
	if (flushes) {
		/* No requester sends to it before a reset, which waits for the lock. */
		keel_resp_relax();
		keel_rq_flush_locked(qp, most);
	}
	mutex_unlock(&qp->resp.lock);
	if (!flushes)
		keel_resp_relax();
	return true;
}

/* Take a receive WQE from the QP's own queue or from its SRQ. */
static int keel_recv_next(struct keel_qp *qp)
	__must_hold(&qp->resp.lock)
{
	struct keel_srq *srq = keel_recv_srq(qp);

	return srq ? keel_srq_take(srq, &qp->resp.recv) :
		     keel_rq_take(&qp->rq, &qp->resp.recv);
}

/*
 * There is no receive WQE: the next post wakes the requester, if it waits.
 * Return: true if one was posted meanwhile, or the SRQ is in error: retry.
 */
static bool keel_recv_want(struct keel_xfer *x)
	__must_hold(&x->from->lock, &x->peer->resp.lock)
{
	struct keel_srq *srq = keel_recv_srq(x->peer);

	/* A requester waits only for a peer of type RC or XRC_RECV. */
	if (x->peer->type != IB_QPT_RC && x->peer->type != IB_QPT_XRC_TGT)
		return false;
	/* Another host waits itself, and sends again. */
	if (srq)
		return x->qp ? keel_srq_wait(srq, x->from) : keel_srq_want(srq);
	guard(spinlock)(&x->peer->rq.lock);
	return keel_rq_want(&x->peer->rq);
}

/**
 * keel_recv_take() - get a receive WQE for a message
 * @x: the message
 *
 * A receive WQE that an earlier attempt took and did not complete comes first.
 *
 * Context: the peer's responder lock is held, maybe without preemption.
 * Return: 1: &keel_resp.recv is the receive WQE; 0: there is none; -EAGAIN:
 * retry without the lock; -EIO: the receive queue is in error. The peer has
 * failed then, unless the message names the SRQ (XRC).
 */
int keel_recv_take(struct keel_xfer *x)
{
	struct keel_qp *peer = x->peer;
	struct keel_resp *resp = &peer->resp;
	u32 tries = KEEL_RECV_TRIES;
	int ret;

	if (resp->have) {
		if (!resp->srq || keel_recv_is_of(resp, x->srq))
			return 1;
		/*
		 * This message names another SRQ. Dropping the last reference
		 * on the old one may sleep: not here.
		 */
		x->old_srq = keel_recv_flush_one(peer);
	}
	if (x->srq) {
		resp->srq = x->srq;
		resp->srq_id = x->srq->obj.id;
	}
	/* Another QP of the SRQ may take the new receive WQE first. */
	do
		ret = keel_recv_next(peer);
	while (!ret && keel_recv_want(x) && --tries);
	if (ret > 0) {
		resp->have = true;
		if (keel_qp_state(peer) == IB_QPS_RTR && !peer->est) {
			peer->est = true;
			keel_qp_event(peer, IB_EVENT_COMM_EST);
		}
		return 1;
	}
	keel_recv_done(resp);
	if (!ret)
		return tries ? 0 : -EAGAIN;
	/* XRC: the SRQ may belong to another process: the QP does not fail. */
	if (!x->srq)
		keel_qp_fail(peer, IB_QPS_ERR, IB_EVENT_QP_FATAL);
	return -EIO;
}

/**
 * keel_recv_segs() - find the memory of the receive WQE that was taken
 * @peer: the responder's QP
 * @len: bytes of the message; memory beyond them is not checked
 * @why: vendor error
 *
 * Context: any; the peer's responder lock is held.
 * Return: IB_WC_SUCCESS: the caller calls keel_segs_put() on &keel_resp.segs;
 * else the status that the receive WQE completes with.
 */
enum ib_wc_status keel_recv_segs(struct keel_qp *peer, u64 len, u32 *why)
{
	struct keel_recv *recv = &peer->resp.recv;
	struct keel_srq *srq = keel_recv_srq(peer);
	u32 max = srq ? srq->rq.max_sge : peer->rq.max_sge;
	const struct keel_scope scope =
		keel_qp_scope(peer, srq ? srq->domain : peer->domain);

	if (recv->reserved) {
		*why = KEEL_WHY_RESERVED;
		return IB_WC_LOC_QP_OP_ERR;
	}
	if (recv->num_sge > max) {
		*why = KEEL_WHY_SGES;
		return IB_WC_LOC_QP_OP_ERR;
	}
	return keel_segs_local(&scope, &peer->resp.segs, recv->sge,
			       recv->num_sge, len, IB_ACCESS_LOCAL_WRITE, why);
}

/**
 * keel_recv_cqe() - build the CQE of a receive WQE
 * @x: the message, which gives immediate data and the source QP
 * @status: status of the completion
 * @why: vendor error
 * @byte_len: bytes of the message
 * @flags: enum keel_uapi_cqe_flags
 *
 * keel_recv_report() sets the members that come from the receive WQE and its
 * QP.
 *
 * Context: any.
 * Return: the CQE, for keel_recv_report().
 */
struct keel_uapi_cqe keel_recv_cqe(const struct keel_xfer *x,
				   enum ib_wc_status status, u32 why,
				   u32 byte_len, u8 flags)
{
	const struct keel_uapi_send_wqe *wqe = x->wqe;
	bool imm = flags & (KEEL_CQE_F_IMM | KEEL_CQE_F_INV);

	/* All members are set, so that the compiler does not clear it first. */
	return (struct keel_uapi_cqe){
		.wr_id = 0,
		.ts = 0,
		.wall = 0,
		.byte_len = byte_len,
		.imm = imm ? wqe->imm : 0,
		.qp_num = 0,
		.src_qp = flags & KEEL_CQE_F_GRH ? x->src_qp : 0,
		.vendor_err = why,
		.pkey_index = 0,
		.slid = 0,
		.status = status,
		.opcode = wqe->opcode == IB_WR_RDMA_WRITE_WITH_IMM ?
			  IB_WC_RECV_RDMA_WITH_IMM : IB_WC_RECV,
		.flags = flags,
		.sl = keel_recv_sl(flags),
		.reserved = { 0, 0, 0 },
	};
}

/**
 * keel_recv_report() - complete the receive WQE that was taken
 * @peer: the responder's QP; fails unless the status is success
 * @cqe: the CQE, see keel_recv_cqe()
 * @solicited: the requester asked for an event
 *
 * Context: the responder's lock is held, maybe without preemption.
 * Return: 0; -EIO if its CQ is in error: the CQE is lost.
 */
int keel_recv_report(struct keel_qp *peer, struct keel_uapi_cqe *cqe,
		     bool solicited)
{
	keel_count(peer->kdev, rx_msgs, 1);
	keel_count(peer->kdev, rx_bytes, cqe->byte_len);
	if (cqe->status != IB_WC_SUCCESS) {
		keel_count(peer->kdev, wc_errors, 1);
		/* The flush needs this lock: it comes after the CQE. */
		keel_qp_fail(peer, IB_QPS_ERR, KEEL_EVENT_NONE);
	}
	return keel_recv_add(peer, cqe, solicited);
}

/**
 * keel_recv_complete() - complete the receive WQE that was taken for a message
 * @x: the message
 * @status: status of the completion; the peer fails unless it is success
 * @why: vendor error
 * @byte_len: bytes of the message
 * @flags: enum keel_uapi_cqe_flags
 *
 * Context: the peer's responder lock is held, maybe without preemption.
 * Return: as keel_recv_report().
 */
int keel_recv_complete(struct keel_xfer *x, enum ib_wc_status status, u32 why,
		       u32 byte_len, u8 flags)
{
	struct keel_uapi_cqe cqe = keel_recv_cqe(x, status, why, byte_len,
						 flags);

	return keel_recv_report(x->peer, &cqe,
				x->wqe->flags & IB_SEND_SOLICITED);
}

/**
 * keel_xfer_stop() - must an in-flight transfer stop early?
 * @arg: the struct keel_xfer
 *
 * A killed process must not wait for a long copy. A transfer also stops if one
 * of its QPs fails or is destroyed, or if its turn is over. It stops if the
 * processor is needed: a thread that is scheduled out must not hold the locks.
 *
 * Context: any.
 * Return: true if so.
 */
bool keel_xfer_stop(void *arg)
{
	const struct keel_xfer *x = arg;
	enum ib_qp_state state = keel_qp_state(x->qp);

	if (fatal_signal_pending(current) || keel_qp_is_dying(x->qp) ||
	    (state != IB_QPS_RTS && state != IB_QPS_SQD) ||
	    need_resched() || ktime_get_ns() > x->until)
		return true;
	if (!x->peer)
		return false;
	state = keel_qp_state(x->peer);
	return keel_qp_is_dying(x->peer) || state < IB_QPS_RTR ||
	       state == IB_QPS_ERR;
}
