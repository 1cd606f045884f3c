// SPDX-License-Identifier: GPL-2.0
/*
 * States of QPs: ibv_modify_qp(), ibv_query_qp(). ib_modify_qp_is_ok() has the
 * table of the InfiniBand specification: the legal transitions of each type of
 * QP, with their required and optional attributes. This file checks the ranges
 * of the attributes, and carries out the transitions that the owner requests.
 * keel_qp_fail() carries out those of errors.
 */
#include <kunit/visibility.h>

#include "keel_far.h"
#include "keel_qp.h"
#include "keel_restrack.h"

#define KEEL_QPN_MASK	0xffffff

static bool keel_qp_ranges_ok(const struct ib_qp_attr *attr, int mask)
{
	if (mask & IB_QP_PORT && attr->port_num != KEEL_PORT)
		return false;
	if (mask & IB_QP_PKEY_INDEX && attr->pkey_index >= KEEL_PKEYS)
		return false;
	if (mask & IB_QP_PATH_MTU &&
	    (attr->path_mtu < IB_MTU_256 || attr->path_mtu > IB_MTU_4096))
		return false;
	if (mask & IB_QP_MAX_QP_RD_ATOMIC &&
	    attr->max_rd_atomic > KEEL_MAX_RD_ATOM)
		return false;
	if (mask & IB_QP_MAX_DEST_RD_ATOMIC &&
	    attr->max_dest_rd_atomic > KEEL_MAX_RD_ATOM)
		return false;
	if (mask & IB_QP_MIN_RNR_TIMER && attr->min_rnr_timer > 31)
		return false;
	if (mask & IB_QP_TIMEOUT && attr->timeout > 31)
		return false;
	if (mask & IB_QP_RETRY_CNT && attr->retry_cnt > 7)
		return false;
	if (mask & IB_QP_RNR_RETRY && attr->rnr_retry > 7)
		return false;
	return !(mask & IB_QP_DEST_QPN && attr->dest_qp_num > KEEL_QPN_MASK);
}

/**
 * keel_qp_check() - check a request to modify a QP
 * @qp: the QP
 * @attr: new attributes
 * @mask: which of them are set, enum ib_qp_attr_mask
 *
 * Context: any; &keel_qp.modify_lock is held, or no other thread has the QP.
 * Return: 0; -EINVAL if the transition is illegal, the QP is not in the given
 * current state, or an attribute is missing, not allowed or out of range;
 * -EOPNOTSUPP if an attribute is not a standard one, or is for an alternate
 * path, which a device without a wire does not have.
 */
int keel_qp_check(const struct keel_qp *qp, const struct ib_qp_attr *attr,
		  int mask)
{
	enum ib_qp_state cur = keel_qp_state(qp), next;

	if (mask & ~IB_QP_ATTR_STANDARD_BITS)
		return -EOPNOTSUPP;
	/* The caller may not have seen yet that the QP moved to SQE. */
	if (mask & IB_QP_CUR_STATE && attr->cur_qp_state != cur)
		return -EINVAL;
	next = mask & IB_QP_STATE ? attr->qp_state : cur;
	if (!ib_modify_qp_is_ok(cur, next, qp->type, mask))
		return -EINVAL;
	if (mask & IB_QP_ALT_PATH)
		return -EOPNOTSUPP;
	if (mask & IB_QP_PATH_MIG_STATE &&
	    attr->path_mig_state != IB_MIG_MIGRATED)
		return -EOPNOTSUPP;
	return keel_qp_ranges_ok(attr, mask) ? 0 : -EINVAL;
}
EXPORT_SYMBOL_IF_KUNIT(keel_qp_check);

static void keel_qp_set_path(struct keel_qp *qp, const struct ib_qp_attr *attr,
			     int mask, const struct keel_av *av)
	__must_hold(&qp->modify_lock, &qp->state_lock)
{
	struct ib_qp_attr *to = &qp->attr;

	if (mask & IB_QP_PKEY_INDEX)
		to->pkey_index = attr->pkey_index;
	if (mask & IB_QP_PORT)
		to->port_num = attr->port_num;
	if (mask & IB_QP_PATH_MTU)
		to->path_mtu = attr->path_mtu;
	if (mask & IB_QP_DEST_QPN)
		/* Peers read it without a lock. */
		WRITE_ONCE(to->dest_qp_num, attr->dest_qp_num);
	if (mask & IB_QP_AV) {
		to->ah_attr = attr->ah_attr;
		/* The caller and ib_core own the reference. */
		to->ah_attr.grh.sgid_attr = NULL;
		/*
		 * keel_qp_commit_av() has the lock of the send queue. A reset needs
		 * none: no transfer runs in that state.
		 */
		context_unsafe(qp->av = *av);
		/* Peers read it without a lock. */
		WRITE_ONCE(qp->local, av->local);
	}
}

/* Transfers may read these attributes meanwhile, one by one. */
static void keel_qp_set(struct keel_qp *qp, const struct ib_qp_attr *attr,
			int mask, const struct keel_av *av)
	__must_hold(&qp->modify_lock, &qp->state_lock)
{
	struct ib_qp_attr *to = &qp->attr;

	keel_qp_set_path(qp, attr, mask, av);
	if (mask & IB_QP_EN_SQD_ASYNC_NOTIFY)
		WRITE_ONCE(to->en_sqd_async_notify, attr->en_sqd_async_notify);
	if (mask & IB_QP_ACCESS_FLAGS)
		WRITE_ONCE(to->qp_access_flags, attr->qp_access_flags);
	if (mask & IB_QP_QKEY)
		WRITE_ONCE(to->qkey, attr->qkey);
	if (mask & IB_QP_TIMEOUT)
		WRITE_ONCE(to->timeout, attr->timeout);
	if (mask & IB_QP_RETRY_CNT)
		WRITE_ONCE(to->retry_cnt, attr->retry_cnt);
	if (mask & IB_QP_RNR_RETRY)
		WRITE_ONCE(to->rnr_retry, attr->rnr_retry);
	if (mask & IB_QP_RQ_PSN)
		WRITE_ONCE(to->rq_psn, attr->rq_psn & KEEL_QPN_MASK);
	if (mask & IB_QP_SQ_PSN)
		to->sq_psn = attr->sq_psn & KEEL_QPN_MASK;
	if (mask & IB_QP_MAX_QP_RD_ATOMIC)
		WRITE_ONCE(to->max_rd_atomic, attr->max_rd_atomic);
	if (mask & IB_QP_MAX_DEST_RD_ATOMIC)
		WRITE_ONCE(to->max_dest_rd_atomic, attr->max_dest_rd_atomic);
	if (mask & IB_QP_MIN_RNR_TIMER)
		WRITE_ONCE(to->min_rnr_timer, attr->min_rnr_timer);
}

static void keel_ring_reset(struct keel_ring *ring, bool user)
{
	if (!ring->head)
		return;
	WRITE_ONCE(ring->index, 0);
	WRITE_ONCE(ring->head->flags, 0);
	WRITE_ONCE(ring->head->kernel, 0);
	/* Userspace resets its own index. */
	if (!user)
		WRITE_ONCE(ring->head->user, 0);
}

/* The QP keeps its number. Transfers see the state and drop the locks. */
static void keel_qp_reset(struct keel_qp *qp)
	__must_hold(&qp->modify_lock)
{
	static const struct ib_qp_attr none;
	static const struct keel_av nowhere;

	scoped_guard(spinlock, &qp->state_lock)
		/* As in keel_qp_commit(). */
		smp_store_release(&qp->state, IB_QPS_RESET);

	mutex_lock(&qp->sq.from.lock);
	hrtimer_cancel(&qp->sq.timer);
	WRITE_ONCE(qp->sq.wait, KEEL_WAIT_NONE);
	keel_sq_discard(&qp->sq);
	keel_srq_wait_end(&qp->sq.from);
	WRITE_ONCE(qp->sq.drained, false);
	/* A doorbell may begin polling just now: one section for both. */
	scoped_guard(spinlock, &qp->state_lock) {
		keel_qp_unpoll(qp);
		WRITE_ONCE(qp->poll_user, 0);
		keel_ring_reset(&qp->sq.ring, qp->user);
	}
	mutex_unlock(&qp->sq.from.lock);
	if (qp->far) {
		keel_far_finish(qp->far);
		keel_far_detach(qp->far);
		keel_far_unaim(qp->far);
	}

	mutex_lock(&qp->resp.lock);
	keel_recv_drop(qp);
	qp->resp.last = false;
	qp->est = false;
	WRITE_ONCE(qp->rq.wanted, false);
	keel_ring_reset(&qp->rq.ring, qp->user);
	mutex_unlock(&qp->resp.lock);
	keel_qp_wake_peer(qp);
	/* A new generation: the old peer is no longer its peer. */
	atomic64_set(&qp->gen, atomic64_inc_return(&qp->kdev->qp_gens));
	atomic64_set(&qp->remote, 0);
	keel_qp_clean_cqs(qp);
	/* Other QPs may read some of them now: keel_qp_find_peer(). */
	scoped_guard(spinlock, &qp->state_lock)
		keel_qp_set(qp, &none, ~0, &nowhere);
}

/**
 * keel_qp_commit() - set both the attributes and the state of a QP, or neither
 * @qp: the QP
 * @cur: the state that the transition was checked for; an error may have moved
 *	the QP to another one since then
 * @next: the new state
 * @attr: new attributes
 * @mask: which of them are set
 * @av: with IB_QP_AV: the address vector for @attr; else not used
 *
 * Context: any but interrupts; &keel_qp.modify_lock is held. With IB_QP_AV the
 * send queue's lock is held too: its first WQE may wait for this address.
 * Return: 0; -EINVAL if the state is not @cur any more: nothing has changed.
 */
VISIBLE_IF_KUNIT int keel_qp_commit(struct keel_qp *qp, enum ib_qp_state cur,
				    enum ib_qp_state next,
				    const struct ib_qp_attr *attr, int mask,
				    const struct keel_av *av)
	__must_hold(&qp->modify_lock)
{
	guard(spinlock)(&qp->state_lock);
	if (qp->state != cur)
		return -EINVAL;
	keel_qp_set(qp, attr, mask, av);
	if (next == IB_QPS_SQD && cur != IB_QPS_SQD) {
		WRITE_ONCE(qp->sq.drained, false);
		/* Each transition to SQD requests its event anew. */
		if (!(mask & IB_QP_EN_SQD_ASYNC_NOTIFY))
			WRITE_ONCE(qp->attr.en_sqd_async_notify, 0);
	}
	/* A thread that sees the state also sees the attributes set with it. */
	smp_store_release(&qp->state, next);
	return 0;
}
EXPORT_SYMBOL_IF_KUNIT(keel_qp_commit);

static int keel_qp_commit_av(struct keel_qp *qp, enum ib_qp_state cur,
			     enum ib_qp_state next,
			     const struct ib_qp_attr *attr, int mask,
			     const struct keel_av *av)
	__must_hold(&qp->modify_lock, &qp->sq.from.lock)
{
	return keel_qp_commit(qp, cur, next, attr, mask, av);
}

static int keel_qp_change(struct keel_qp *qp, enum ib_qp_state cur,
			  enum ib_qp_state next, const struct ib_qp_attr *attr,
			  int mask)
	__must_hold(&qp->modify_lock)
{
	struct keel_av av;
	int ret;

	if (!(mask & IB_QP_AV))
		return keel_qp_commit(qp, cur, next, attr, mask, NULL);
	keel_av_init(qp->kdev, &av, &attr->ah_attr);
	/* If the rest fails, the QP is in the error state, and sends nothing. */
	ret = keel_far_attach(qp, &av);
	if (ret)
		return ret;
	if (qp->far && mask & IB_QP_RQ_PSN)
		keel_far_expect(qp->far, attr->rq_psn);
	/* A thread holds the lock for a turn at most. */
	guard(mutex)(&qp->sq.from.lock);
	return keel_qp_commit_av(qp, cur, next, attr, mask, &av);
}

/**
 * keel_modify_qp() - ibv_modify_qp()
 * @ibqp: the QP
 * @attr: new attributes
 * @mask: which of them are set
 * @udata: empty
 *
 * After a move to the error state, both queues are flushed when this returns,
 * unless another thread is still flushing them.
 *
 * Context: may sleep.
 * Return: 0, or an error as of keel_qp_check(): nothing has changed then.
 */
int keel_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		   struct ib_udata *udata)
{
	struct keel_qp *qp = to_kqp(ibqp);
	enum ib_qp_state cur, next;
	int ret = ib_no_udata_io(udata);

	if (ret)
		return ret;
	guard(mutex)(&qp->modify_lock);
	cur = keel_qp_state(qp);
	ret = keel_qp_check(qp, attr, mask);
	if (ret)
		return ret;
	next = mask & IB_QP_STATE ? attr->qp_state : cur;
	if (next == IB_QPS_RESET) {
		keel_qp_reset(qp);
		return 0;
	}
	if (next == IB_QPS_ERR) {
		keel_qp_fail(qp, IB_QPS_ERR, KEEL_EVENT_NONE);
		keel_qp_run(qp);
		return 0;
	}
	ret = next == IB_QPS_RTR ? keel_far_listen(qp) : 0;
	ret = ret ?: keel_qp_change(qp, cur, next, attr, mask);
	/*
	 * The peer may have been ready first, and wait for this QP, or for its address. Or
	 * it is this QP's peer no longer.
	 */
	if (!ret && (next == IB_QPS_RTR || mask & IB_QP_AV))
		keel_qp_wake_peer(qp);
	/*
	 * A thread that found the send queue's lock taken has set
	 * &keel_sq.again and returned. It may have come to flush after the
	 * error that made this call fail.
	 */
	if (ret || next != cur || next == IB_QPS_SQD)
		keel_qp_run(qp);
	return ret;
}

/**
 * keel_query_qp() - ibv_query_qp()
 * @ibqp: the QP
 * @attr: attributes to fill, all of them
 * @mask: the attributes that the caller requests
 * @init: set to the attributes of its creation
 *
 * Context: may sleep.
 * Return: 0; -EAGAIN if the QP is destroyed: older cores still call this then,
 * and "rdma resource" leaves out the QP.
 */
int keel_query_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		  struct ib_qp_init_attr *init)
{
	struct keel_ib_qp *kibqp = container_of(ibqp, struct keel_ib_qp, ib);
	struct keel_qp *qp = keel_res_tryget(kibqp->qp);

	if (!qp)
		return -EAGAIN;
	/* Any process may call this: it waits for no modify operation. */
	scoped_guard(spinlock, &qp->state_lock) {
		*attr = qp->attr;
		attr->qp_state = qp->state;
	}
	attr->cur_qp_state = attr->qp_state;
	attr->path_mig_state = IB_MIG_MIGRATED;
	attr->sq_draining = attr->qp_state == IB_QPS_SQD && !READ_ONCE(qp->sq.drained);
	attr->cap = qp->cap;
	init->cap = qp->cap;
	init->qp_type = qp->type;
	init->sq_sig_type = qp->sig_all ? IB_SIGNAL_ALL_WR : IB_SIGNAL_REQ_WR;
	init->event_handler = ibqp->event_handler;
	init->qp_context = ibqp->qp_context;
	init->send_cq = ibqp->send_cq;
	init->recv_cq = ibqp->recv_cq;
	init->srq = ibqp->srq;
	keel_obj_put(&qp->obj);
	return 0;
}
