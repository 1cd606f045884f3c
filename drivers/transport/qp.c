// SPDX-License-Identifier: GPL-2.0
/*
 * Queue pairs: create and destroy. qp_modify.c has their states, and qp_run.c
 * runs them.
 */
#include <linux/seq_file.h>
#include <linux/slab.h>

#include "keel_far.h"
#include "keel_point.h"
#include "keel_qp.h"
#include "keel_restrack.h"

static const char * const keel_qp_types[] = {
	[IB_QPT_GSI] = "gsi", [IB_QPT_RC] = "rc", [IB_QPT_UC] = "uc",
	[IB_QPT_UD] = "ud", [IB_QPT_XRC_INI] = "xrc_send",
	[IB_QPT_XRC_TGT] = "xrc_recv",
};

static const char * const keel_qp_states[] = {
	[IB_QPS_RESET] = "reset", [IB_QPS_INIT] = "init", [IB_QPS_RTR] = "rtr",
	[IB_QPS_RTS] = "rts", [IB_QPS_SQD] = "sqd", [IB_QPS_SQE] = "sqe",
	[IB_QPS_ERR] = "err",
};

static void keel_qp_release(struct keel_obj *obj)
	__context_unsafe(/* no other thread has the QP any more */)
{
	struct keel_qp *qp = container_of(obj, struct keel_qp, obj);

	keel_ring_free(&qp->sq.ring);
	keel_ring_free(&qp->rq.ring);
	keel_worker_put(qp->worker);
	keel_events_free(&qp->events);
	kvfree(qp->resp.dgram);
	keel_far_free(qp->far);
	kfree_rcu(qp, obj.rcu);
}

static void keel_qp_put_work(struct work_struct *work)
{
	struct keel_qp *qp = container_of(work, struct keel_qp, work);

	keel_obj_put(&qp->obj);
}

/**
 * keel_qp_put_later() - drop a reference, and wait for nothing
 * @qp: the QP; may be freed afterwards
 *
 * The last one unpins the pages of rings, which waits for a file system that has locked one. A
 * thread that works for other users, too, must not do so.
 *
 * Context: may sleep.
 */
void keel_qp_put_later(struct keel_qp *qp)
{
	if (refcount_dec_not_one(&qp->obj.ref.refcount))
		return;
	/* It is destroyed, and who queues the work otherwise has a reference. */
	INIT_WORK(&qp->work, keel_qp_put_work);
	keel_worker_defer(&qp->work);
}

static void keel_qp_describe(const struct keel_obj *obj, struct seq_file *m)
{
	const struct keel_qp *qp = container_of(obj, struct keel_qp, obj);

	seq_printf(m, " qpn %u %s %s", qp->qpn, keel_qp_types[qp->type],
		   keel_qp_states[keel_qp_state(qp)]);
	if (qp->type != IB_QPT_XRC_TGT)
		seq_printf(m, " cqs %u %u", qp->send_cq->obj.id,
			   qp->recv_cq ? qp->recv_cq->obj.id : 0);
	if (qp->srq)
		seq_printf(m, " srq %u", qp->srq->obj.id);
}

static const struct keel_obj_ops keel_qp_obj_ops = {
	.describe = keel_qp_describe,
	.release = keel_qp_release,
};

static int keel_qp_check_init(const struct ib_qp_init_attr *init)
{
	const struct ib_qp_cap *cap = &init->cap;

	switch (init->qp_type) {
	case IB_QPT_RC:
	case IB_QPT_UC:
	case IB_QPT_UD:
	case IB_QPT_GSI:
	case IB_QPT_XRC_INI:
	case IB_QPT_XRC_TGT:
		break;
	default:
		return -EOPNOTSUPP;
	}
	if (init->create_flags || init->rwq_ind_tbl)
		return -EOPNOTSUPP;
	if (init->qp_type == IB_QPT_XRC_TGT && !init->xrcd)
		return -EINVAL;
	if (cap->max_send_wr > KEEL_MAX_WR || cap->max_recv_wr > KEEL_MAX_WR ||
	    cap->max_send_sge > KEEL_MAX_SGE ||
	    cap->max_recv_sge > KEEL_MAX_SGE ||
	    cap->max_inline_data > KEEL_MAX_INLINE)
		return -EINVAL;
	return 0;
}

static bool keel_qp_sends(const struct keel_qp *qp)
{
	return qp->type != IB_QPT_XRC_TGT;
}

static bool keel_qp_receives(const struct keel_qp *qp)
{
	return !qp->srq && qp->type != IB_QPT_XRC_INI &&
	       qp->type != IB_QPT_XRC_TGT;
}

/* Check and map a ring of userspace, if the QP needs it. */
static int keel_qp_map(struct keel_qp *qp, struct keel_ring *ring, bool wanted,
		       const struct keel_uapi_buf *buf, u32 wrs, size_t stride)
{
	if (!wanted)
		return buf->addr || buf->entries || buf->stride ? -EINVAL : 0;
	if (buf->entries < wrs || buf->entries > KEEL_MAX_WR ||
	    buf->stride < stride)
		return -EINVAL;
	return keel_ring_map(ring, &qp->kdev->ib, buf);
}

static int keel_qp_map_rings(struct keel_qp *qp, struct ib_udata *udata)
{
	const struct ib_qp_cap *cap = &qp->cap;
	struct keel_uapi_create_qp_req req;
	int ret;

	ret = ib_copy_validate_udata_in(udata, req, rq);
	if (!ret)
		ret = ib_respond_empty_udata(udata);
	if (ret)
		return ret;
	ret = keel_qp_map(qp, &qp->sq.ring, keel_qp_sends(qp), &req.sq,
			  cap->max_send_wr,
			  KEEL_SQ_STRIDE(cap->max_send_sge,
					 cap->max_inline_data));
	if (ret)
		return ret;
	return keel_qp_map(qp, &qp->rq.ring, keel_qp_receives(qp), &req.rq,
			   cap->max_recv_wr, KEEL_RQ_STRIDE(cap->max_recv_sge));
}

static int keel_qp_alloc_rings(struct keel_qp *qp)
{
	const struct ib_qp_cap *cap = &qp->cap;
	int ret = 0;

	if (keel_qp_sends(qp))
		ret = keel_ring_alloc(&qp->sq.ring, cap->max_send_wr,
				      KEEL_SQ_STRIDE(cap->max_send_sge,
						     cap->max_inline_data));
	if (!ret && keel_qp_receives(qp))
		ret = keel_ring_alloc(&qp->rq.ring, cap->max_recv_wr,
				      KEEL_RQ_STRIDE(cap->max_recv_sge));
	return ret;
}

/* Report the sizes of the rings, which may be larger than requested. */
static void keel_qp_caps(struct keel_qp *qp)
{
	if (qp->sq.ring.head)
		qp->cap.max_send_wr = keel_ring_size(&qp->sq.ring);
	if (qp->rq.ring.head)
		qp->cap.max_recv_wr = keel_ring_size(&qp->rq.ring);
	qp->rq.max_sge = qp->cap.max_recv_sge;
}

static void keel_qp_init(struct keel_qp *qp, struct ib_qp *ibqp,
			 const struct ib_qp_init_attr *init)
	__context_unsafe(/* no other thread has the QP yet */)
{
	qp->kdev = to_kdev(ibqp->device);
	qp->ib = ibqp;
	keel_events_init(&qp->events, &qp->obj, qp->kdev->wq, keel_qp_raise);
	qp->type = init->qp_type;
	qp->sig_all = init->sq_sig_type == IB_SIGNAL_ALL_WR;
	qp->cap = init->cap;
	if (ibqp->pd)
		qp->domain = to_kpd(ibqp->pd)->domain->obj.id;
	if (init->send_cq)
		qp->send_cq = to_kcq(init->send_cq);
	if (init->recv_cq)
		qp->recv_cq = to_kcq(init->recv_cq);
	if (init->srq)
		qp->srq = to_ksrq(init->srq);
	if (qp->type == IB_QPT_XRC_TGT)
		qp->xrcd = to_kxrcd(init->xrcd);
	mutex_init(&qp->modify_lock);
	mutex_init(&qp->resp.lock);
	spin_lock_init(&qp->state_lock);
	spin_lock_init(&qp->rq.lock);
	spin_lock_init(&qp->rq.post_lock);
	INIT_WORK(&qp->work, keel_qp_work);
	keel_job_init(&qp->job, keel_qp_job);
	keel_qp_init_orphan(qp);
	atomic64_set(&qp->gen, atomic64_inc_return(&qp->kdev->qp_gens));
	INIT_LIST_HEAD(&qp->mcast);
	keel_sq_init(qp);
}

/* The QP is stored under its number last: lookups find only complete QPs. */
static int keel_qp_publish(struct keel_qp *qp, struct ib_qp *ibqp)
{
	struct keel_dev *kdev = qp->kdev;
	struct keel_obj *const holds[ARRAY_SIZE(qp->holds)] = {
		qp->xrcd ? &qp->xrcd->obj : &to_kpd(ibqp->pd)->obj,
		qp->send_cq ? &qp->send_cq->obj : NULL,
		qp->recv_cq && qp->recv_cq != qp->send_cq ?
			&qp->recv_cq->obj : NULL,
		qp->srq ? &qp->srq->obj : NULL,
	};
	int ret;

	ret = qp->type == IB_QPT_GSI ?
	      keel_number_reserve(&kdev->qps, KEEL_QPN_GSI, GFP_KERNEL) :
	      keel_number_add(&kdev->qps, &qp->qpn, NULL, NULL, GFP_KERNEL);
	if (ret)
		return ret;
	if (qp->type == IB_QPT_GSI)
		qp->qpn = KEEL_QPN_GSI;
	keel_obj_may_hold(&qp->obj, qp->holds);
	ret = keel_obj_add_holds(&kdev->reg, &qp->obj, KEEL_QP,
				 &keel_qp_obj_ops, holds, GFP_KERNEL);
	if (ret) {
		keel_number_remove(&kdev->qps, qp->qpn);
		return ret;
	}
	keel_number_publish(&kdev->qps, qp->qpn, qp);
	return 0;
}

/*
 * Does a process create the QP? ib_core passes no udata for an XRC_RECV QP. It may outlive the
 * context, has no doorbell, and the workqueue raises its events.
 */
static bool keel_qp_is_of_user(const struct ib_qp_init_attr *init, const struct ib_udata *udata)
{
	if (init->qp_type == IB_QPT_XRC_TGT)
		return !to_kxrcd(init->xrcd)->obj.kernel;
	return udata;
}

/* Set up the parts of a user process's QP, other than its rings. */
static int keel_qp_init_user(struct keel_qp *qp, struct ib_udata *udata)
{
	int ret;

	ret = keel_qp_own_events(qp, keel_udata_workers(udata));
	if (ret)
		return ret;
	if (qp->type == IB_QPT_UD) {
		qp->resp.dgram = kvzalloc_obj(*qp->resp.dgram,
					      GFP_KERNEL_ACCOUNT);
		if (!qp->resp.dgram)
			return -ENOMEM;
		keel_fetch_init(&qp->resp.dgram->fetch, NULL);
	}
	qp->context = rdma_udata_to_uverbs_attr_bundle(udata)->context;
	return keel_qp_own_worker(qp);
}

static int keel_create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *init,
			  struct ib_udata *udata)
{
	struct keel_qp *qp;
	bool user;
	int ret;

	ret = keel_qp_check_init(init);
	if (ret)
		return ret;
	if (udata && init->qp_type == IB_QPT_GSI)
		return -EOPNOTSUPP;
	user = keel_qp_is_of_user(init, udata);
	qp = kzalloc_obj(*qp, keel_gfp_of(!user));
	if (!qp)
		return -ENOMEM;
	qp->user = user;
	keel_qp_init(qp, ibqp, init);
	ret = udata ? keel_qp_init_user(qp, udata) : 0;
	if (!ret)
		ret = udata ? keel_qp_map_rings(qp, udata) :
			      keel_qp_alloc_rings(qp);
	if (ret)
		goto err_rings;
	keel_qp_caps(qp);
	ret = keel_qp_publish(qp, ibqp);
	if (ret)
		goto err_rings;
	container_of(ibqp, struct keel_ib_qp, ib)->qp = qp;
	ibqp->qp_num = qp->qpn;
	init->cap = qp->cap;
	return 0;

err_rings:
	keel_ring_free(&qp->rq.ring);
	keel_ring_free(&qp->sq.ring);
	/* No other thread has the QP yet. */
	keel_worker_put(context_unsafe(qp->worker));
	keel_events_free(&qp->events);
	kvfree(qp->resp.dgram);
	kfree(qp);
	return ret;
}

/* The QP is dying: wait for its locks, then drop what it holds. */
static void keel_qp_drain(struct keel_qp *qp)
{
	mutex_lock(&qp->sq.from.lock);
	keel_sq_discard(&qp->sq);
	keel_srq_wait_end(&qp->sq.from);
	mutex_unlock(&qp->sq.from.lock);
	if (qp->far) {
		keel_far_finish(qp->far);
		keel_far_detach(qp->far);
		keel_far_unaim(qp->far);
	}
	mutex_lock(&qp->resp.lock);
	keel_recv_drop(qp);
	mutex_unlock(&qp->resp.lock);
}

/*
 * After this, no transfer accesses memory or CQs for the QP. New transfers do
 * not find it. In-flight transfers see within 64 KiB that it is dying, and drop
 * the locks. Ignores @udata, as keel_destroy_cq() does.
 */
static int keel_destroy_qp(struct ib_qp *ibqp, struct ib_udata *udata)
{
	struct keel_qp *qp = to_kqp(ibqp);
	struct keel_worker *worker;

	/* "rdma resource" may still query the QP. */
	WRITE_ONCE(container_of(ibqp, struct keel_ib_qp, ib)->qp, NULL);
	keel_mcast_leave(qp);
	keel_number_remove(&qp->kdev->qps, qp->qpn);
	keel_point("qp_erased");
	/*
	 * A reader that sees the new count can no longer find the QP. The grace
	 * period waits for readers that saw the old one.
	 */
	smp_mb__before_atomic();
	atomic64_inc(&qp->kdev->qps_destroyed);
	spin_lock(&qp->state_lock);
	/* After a removal, posts must fail. */
	keel_qp_unpoll(qp);
	WRITE_ONCE(qp->dying, true);
	WRITE_ONCE(qp->ib, NULL);
	/* The worker is not replaced any more. */
	worker = qp->worker;
	spin_unlock(&qp->state_lock);

	keel_events_close(&qp->events);
	keel_qp_drain(qp);
	/* Transfers start the timer and schedule the QP: none is left now. */
	hrtimer_cancel(&qp->sq.timer);
	if (cancel_work_sync(&qp->work))
		keel_obj_put(&qp->obj);
	if (keel_qp_cancel_orphan(qp))
		keel_obj_put(&qp->obj);
	keel_orphan_flush(&qp->orphan);
	if (worker && keel_job_cancel(worker, &qp->job))
		keel_obj_put(&qp->obj);
	keel_qp_wake_peer(qp);
	keel_qp_clean_cqs(qp);
	keel_obj_close(&qp->obj);
	return 0;
}

static int keel_qp_fill(struct sk_buff *msg, struct keel_obj *obj)
{
	const struct keel_qp *qp = container_of(obj, struct keel_qp, obj);
	/* It may change at once. */
	enum keel_wait wait = context_unsafe(READ_ONCE(qp->sq.wait));

	if (rdma_nl_put_driver_u32(msg, "id", qp->obj.id) ||
	    rdma_nl_put_driver_u32(msg, "domain", qp->domain) ||
	    rdma_nl_put_driver_u32(msg, "send_wrs", qp->cap.max_send_wr) ||
	    rdma_nl_put_driver_u32(msg, "recv_wrs", qp->cap.max_recv_wr) ||
	    rdma_nl_put_driver_string(msg, "waits_for",
				      wait == KEEL_WAIT_RNR ? "receive" :
				      wait == KEEL_WAIT_PEER ? "peer" :
				      wait == KEEL_WAIT_MEMORY ? "memory" :
				      "nothing"))
		return -EMSGSIZE;
	return 0;
}

static int keel_fill_res_qp(struct sk_buff *msg, struct ib_qp *ibqp)
{
	struct keel_ib_qp *kibqp = container_of(ibqp, struct keel_ib_qp, ib);
	struct keel_qp *qp = keel_res_tryget(kibqp->qp);

	return qp ? keel_res_fill(msg, &qp->obj, keel_qp_fill) : 0;
}

const struct ib_device_ops keel_qp_ops = {
	.create_qp = keel_create_qp,
	.destroy_qp = keel_destroy_qp,
	.fill_res_qp_entry = keel_fill_res_qp,
	.modify_qp = keel_modify_qp,
	.query_qp = keel_query_qp,

	INIT_RDMA_OBJ_SIZE(ib_qp, keel_ib_qp, ib),
};
