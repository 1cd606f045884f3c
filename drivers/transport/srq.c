// SPDX-License-Identifier: GPL-2.0
/*
 * Shared receive queues, basic and XRC: ibv_create_srq(),
 * ibv_create_srq_ex().
 */
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <kunit/visibility.h>
#include <rdma/restrack.h>

#include "keel_keys.h"
#include "keel_point.h"
#include "keel_qp.h"
#include "keel_restrack.h"

static void keel_srq_release(struct keel_obj *obj)
{
	struct keel_srq *srq = container_of(obj, struct keel_srq, obj);

	keel_ring_free(&srq->rq.ring);
	keel_events_free(&srq->events);
	kfree_rcu(srq, obj.rcu);
}

/*
 * The number of posted receive WQEs is left out: the producer index is in the
 * ring, which a resize may replace.
 */
static void keel_srq_describe(const struct keel_obj *obj, struct seq_file *m)
	__context_unsafe(/* numbers of different moments are fine */)
{
	const struct keel_srq *srq = container_of(obj, struct keel_srq, obj);

	seq_printf(m, "%s srqn %u domain %u entries %u sges %u taken %u limit %u%s",
		   srq->xrcd ? " xrc" : "", srq->srqn, srq->domain,
		   READ_ONCE(srq->rq.ring.mask) + 1, srq->rq.max_sge,
		   READ_ONCE(srq->rq.ring.index), READ_ONCE(srq->limit),
		   READ_ONCE(srq->dead) ? " error" : "");
}

static const struct keel_obj_ops keel_srq_obj_ops = {
	.describe = keel_srq_describe,
	.release = keel_srq_release,
};

/* Call the handler of the consumer. The destroy waits for it. */
static void keel_srq_raise(struct keel_obj *obj, int type)
{
	struct keel_srq *srq = container_of(obj, struct keel_srq, obj);
	/* Without the lock: see keel_events_close(). */
	struct ib_srq *ib = context_unsafe(READ_ONCE(srq->ib));
	struct ib_event event = { .element.srq = ib, .event = type };

	if (!ib || !ib->event_handler)
		return;
	event.device = ib->device;
	ib->event_handler(&event, ib->srq_context);
}

/*
 * Called without @rq.lock: the handler of a kernel consumer may set the limit
 * again, and post.
 */
static void keel_srq_event(struct keel_srq *srq, enum ib_event_type type)
{
	keel_events_raise(&srq->events, type, false);
}

/* As keel_srq_take(). @due is set to the event to raise, if any. */
static int keel_srq_take_one(struct keel_srq *srq, struct keel_recv *recv,
			     enum ib_event_type *due)
{
	int posted;

	guard(spinlock)(&srq->rq.lock);
	/* Userspace may have reused the ring of a destroyed SRQ. */
	if (srq->dead || !srq->ib)
		return -EINVAL;
	posted = keel_rq_take_locked(&srq->rq, recv);
	if (posted < 0) {
		WRITE_ONCE(srq->dead, true);
		*due = IB_EVENT_SRQ_ERR;
		return posted;
	}
	if (!posted)
		return 0;
	if (posted - 1 < srq->limit) {
		WRITE_ONCE(srq->limit, 0);
		*due = IB_EVENT_SRQ_LIMIT_REACHED;
	}
	if (posted > 1)
		keel_srq_taken(srq);
	return 1;
}

/**
 * keel_srq_take() - take the oldest receive WQE
 * @srq: the SRQ; the caller holds a reference, or is in a section of keel_keys_enter()
 * @recv: set to a copy of it, as keel_rq_take()
 *
 * Context: any but interrupts; no spinlock is held: event handlers are called
 * from here.
 * Return: 1: taken; 0: none; -EINVAL if the SRQ is destroyed or in error: its
 * producer index is invalid, or its CQ failed.
 */
int keel_srq_take(struct keel_srq *srq, struct keel_recv *recv)
{
	enum ib_event_type due = KEEL_EVENT_NONE;
	int ret = keel_srq_take_one(srq, recv, &due);

	if (due != KEEL_EVENT_NONE)
		keel_srq_event(srq, due);
	/* Wake the requesters that wait: no receive WQE will come. */
	if (due == IB_EVENT_SRQ_ERR)
		keel_srq_wake_later(srq);
	return ret;
}
EXPORT_SYMBOL_IF_KUNIT(keel_srq_take);

/**
 * keel_srq_fail() - fail an SRQ whose CQ is in error
 * @srq: the SRQ; the caller holds a reference
 *
 * The owner gets one event. No receive WQE is taken any more: its CQE would be
 * lost.
 *
 * Context: as keel_srq_take().
 */
void keel_srq_fail(struct keel_srq *srq)
{
	bool was;

	scoped_guard(spinlock, &srq->rq.lock) {
		was = srq->dead;
		WRITE_ONCE(srq->dead, true);
	}
	if (!was)
		keel_srq_event(srq, IB_EVENT_SRQ_ERR);
	keel_srq_wake_later(srq);
}
EXPORT_SYMBOL_IF_KUNIT(keel_srq_fail);

/**
 * keel_srq_get() - look up an SRQ by number
 * @kdev: the device
 * @srqn: its number
 *
 * Return: the SRQ, with a reference that the caller drops; or NULL.
 */
struct keel_srq *keel_srq_get(struct keel_dev *kdev, u32 srqn)
{
	struct keel_srq *srq;

	guard(rcu)();
	srq = keel_number_load(&kdev->srqs, srqn);
	return srq && keel_obj_tryget(&srq->obj) ? srq : NULL;
}

static int keel_srq_map(struct keel_ring *ring, struct ib_device *ibdev,
			const struct keel_uapi_buf *buf, u32 max_wr,
			u32 max_sge)
{
	if (buf->stride < KEEL_RQ_STRIDE(max_sge) || buf->entries < max_wr ||
	    buf->entries > KEEL_MAX_WR)
		return -EINVAL;
	return keel_ring_map(ring, ibdev, buf);
}

static int keel_srq_ring(struct keel_srq *srq, struct ib_srq *ibsrq,
			 const struct ib_srq_attr *attr,
			 struct ib_udata *udata)
{
	struct keel_uapi_create_srq_req req;
	int ret;

	if (!udata)
		return keel_ring_alloc(&srq->rq.ring, attr->max_wr,
				       KEEL_RQ_STRIDE(attr->max_sge));
	ret = ib_copy_validate_udata_in(udata, req, ring);
	if (!ret)
		ret = ib_respond_empty_udata(udata);
	if (ret)
		return ret;
	return keel_srq_map(&srq->rq.ring, ibsrq->device, &req.ring,
			    attr->max_wr, attr->max_sge);
}

static int keel_srq_check(const struct ib_srq_init_attr *init)
{
	if (init->srq_type != IB_SRQT_BASIC && init->srq_type != IB_SRQT_XRC)
		return -EOPNOTSUPP;
	if (!init->attr.max_wr || init->attr.max_wr > KEEL_MAX_WR ||
	    init->attr.max_sge > KEEL_MAX_SGE)
		return -EINVAL;
	/* ib_core lets a kernel consumer leave out the XRC domain. */
	if (init->srq_type == IB_SRQT_XRC && !init->ext.xrc.xrcd)
		return -EINVAL;
	return 0;
}

static void keel_srq_woken(struct keel_obj *obj, int type)
{
	struct keel_srq *srq = container_of(obj, struct keel_srq, obj);

	if (type == KEEL_EVENT_RUN)
		container_of(obj->reg, struct keel_dev, reg)->serve(srq);
	else
		keel_srq_wake_now(srq);
}

static struct keel_srq *keel_srq_alloc(struct ib_srq *ibsrq,
				       const struct ib_srq_init_attr *init,
				       gfp_t gfp)
	__context_unsafe(/* no other thread has the SRQ yet */)
{
	struct keel_srq *srq = kzalloc_obj(*srq, gfp);

	if (!srq)
		return NULL;
	spin_lock_init(&srq->rq.lock);
	spin_lock_init(&srq->rq.post_lock);
	keel_events_init(&srq->events, &srq->obj, to_kdev(ibsrq->device)->wq,
			 keel_srq_raise);
	srq->events.wake = keel_srq_woken;
	INIT_WORK(&srq->wake, keel_srq_wake_work);
	INIT_LIST_HEAD(&srq->waiters);
	INIT_LIST_HEAD(&srq->packets);
	srq->ib = ibsrq;
	srq->rq.max_sge = init->attr.max_sge;
	srq->domain = to_kpd(ibsrq->pd)->domain->obj.id;
	if (init->srq_type == IB_SRQT_XRC) {
		srq->xrcd = to_kxrcd(init->ext.xrc.xrcd);
		srq->cq = to_kcq(init->ext.cq);
	}
	return srq;
}

/* Its number is reserved: debugfs can show it from here on. */
static int keel_srq_add(struct keel_dev *kdev, struct keel_srq *srq,
			struct keel_pd *pd)
{
	struct keel_obj *const holds[ARRAY_SIZE(srq->holds)] = {
		&pd->obj,
		srq->xrcd ? &srq->xrcd->obj : NULL,
		srq->cq ? &srq->cq->obj : NULL,
	};

	keel_obj_may_hold(&srq->obj, srq->holds);
	return keel_obj_add_holds(&kdev->reg, &srq->obj, KEEL_SRQ,
				  &keel_srq_obj_ops, holds, GFP_KERNEL);
}

static int keel_create_srq(struct ib_srq *ibsrq, struct ib_srq_init_attr *init,
			   struct ib_udata *udata)
{
	struct keel_dev *kdev = to_kdev(ibsrq->device);
	struct keel_srq *srq;
	int ret;

	ret = keel_srq_check(init);
	if (ret)
		return ret;
	srq = keel_srq_alloc(ibsrq, init, keel_gfp_of(!udata));
	if (!srq)
		return -ENOMEM;
	ret = udata ? keel_events_own(&srq->events,
				      keel_udata_workers(udata)) : 0;
	if (ret)
		goto err_free;
	ret = keel_srq_ring(srq, ibsrq, &init->attr, udata);
	if (ret)
		goto err_free;
	/* Requesters must not find it before it is complete. */
	ret = keel_number_add(&kdev->srqs, &srq->srqn, NULL, NULL, GFP_KERNEL);
	if (ret) {
		ret = -ENOMEM;
		goto err_ring;
	}
	ret = keel_srq_add(kdev, srq, to_kpd(ibsrq->pd));
	if (ret)
		goto err_number;
	if (srq->xrcd)
		ibsrq->ext.xrc.srq_num = srq->srqn;
	init->attr.max_wr = keel_ring_size(&srq->rq.ring);
	container_of(ibsrq, struct keel_ib_srq, ib)->srq = srq;
	keel_number_publish(&kdev->srqs, srq->srqn, srq);
	return 0;

err_number:
	keel_number_remove(&kdev->srqs, srq->srqn);
err_ring:
	keel_ring_free(&srq->rq.ring);
err_free:
	keel_events_free(&srq->events);
	kfree(srq);
	return ret;
}

/* Ignores @udata, as keel_destroy_cq() does. */
static int keel_destroy_srq(struct ib_srq *ibsrq, struct ib_udata *udata)
{
	struct keel_srq *srq = to_ksrq(ibsrq);

	/* "rdma resource" may still query the SRQ. */
	WRITE_ONCE(container_of(ibsrq, struct keel_ib_srq, ib)->srq, NULL);
	keel_point("srq_destroy");
	keel_number_remove(&to_kdev(ibsrq->device)->srqs, srq->srqn);
	/* The fast path finds it by its number, and takes no reference. */
	keel_keys_settle();
	scoped_guard(spinlock, &srq->rq.lock)
		WRITE_ONCE(srq->ib, NULL);
	keel_events_close(&srq->events);
	/* If a requester queues it later, it finds nobody to wake. */
	if (cancel_work_sync(&srq->wake))
		keel_obj_put(&srq->obj);
	keel_srq_wake(srq);
	/* The list gets no more QPs, and no thread works for the owner any more. */
	to_kdev(ibsrq->device)->serve(srq);
	keel_obj_close(&srq->obj);
	return 0;
}

/*
 * Copy the receive WQEs that were not taken, then use the new ring. Posted WQEs
 * do not change. WQEs that requesters take meanwhile are copied needlessly.
 */
static int keel_srq_move(struct keel_srq *srq, struct keel_ring *to)
{
	struct keel_ring *ring = &srq->rq.ring;
	int ret = -EINVAL;
	int posted;
	u32 user;

	spin_lock(&srq->rq.lock);
	posted = keel_ring_posted(ring);
	user = ring->index + posted;
	if (posted >= 0)
		ret = keel_ring_move(ring, to, ring->index, &user,
				     KEEL_RQ_STRIDE(srq->rq.max_sge),
				     &srq->rq.lock, &srq->dead);
	if (!ret) {
		to->index = ring->index;
		WRITE_ONCE(to->head->kernel, to->index);
		WRITE_ONCE(to->head->user, user);
		/* Requesters that wait are woken for the new ring, too. */
		WRITE_ONCE(to->head->flags,
			   srq->rq.wanted ? KEEL_RING_F_DOORBELL : 0);
		swap(*ring, *to);
	}
	spin_unlock(&srq->rq.lock);
	return ret;
}

static int keel_srq_resize(struct keel_srq *srq, struct ib_device *ibdev,
			   const struct keel_uapi_buf *buf, u32 max_wr)
{
	struct keel_ring ring = {};
	int ret;

	if (!max_wr)
		return -EINVAL;
	ret = keel_srq_map(&ring, ibdev, buf, max_wr, srq->rq.max_sge);
	if (ret)
		return ret;
	ret = keel_srq_move(srq, &ring);
	/* The old ring; after an error, the new one. */
	keel_ring_free(&ring);
	return ret;
}

static int keel_modify_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr,
			   enum ib_srq_attr_mask mask, struct ib_udata *udata)
{
	struct keel_uapi_modify_srq_req req = {};
	struct keel_srq *srq = to_ksrq(ibsrq);
	u32 max_wr;
	int ret;

	if (mask & ~(IB_SRQ_MAX_WR | IB_SRQ_LIMIT))
		return -EINVAL;
	if (mask & IB_SRQ_MAX_WR && !srq->rq.ring.umem)
		return -EOPNOTSUPP;
	if (udata && udata->inlen) {
		ret = ib_copy_validate_udata_in(udata, req, ring);
		if (ret)
			return ret;
	}
	ret = ib_respond_empty_udata(udata);
	if (ret)
		return ret;
	if (!(mask & IB_SRQ_MAX_WR) &&
	    (req.ring.addr || req.ring.entries || req.ring.stride))
		return -EINVAL;
	max_wr = mask & IB_SRQ_MAX_WR ? req.ring.entries :
					READ_ONCE(srq->rq.ring.mask) + 1;
	if (mask & IB_SRQ_LIMIT && attr->srq_limit > max_wr)
		return -EINVAL;
	if (mask & IB_SRQ_MAX_WR) {
		ret = keel_srq_resize(srq, ibsrq->device, &req.ring,
				      attr->max_wr);
		if (ret)
			return ret;
	}
	if (mask & IB_SRQ_LIMIT) {
		guard(spinlock)(&srq->rq.lock);
		WRITE_ONCE(srq->limit, attr->srq_limit);
	}
	return 0;
}

static int keel_query_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr)
{
	struct keel_srq *srq = to_ksrq(ibsrq);

	guard(spinlock)(&srq->rq.lock);
	attr->max_wr = keel_ring_size(&srq->rq.ring);
	attr->max_sge = srq->rq.max_sge;
	attr->srq_limit = srq->limit;
	return 0;
}

static int keel_post_srq_recv(struct ib_srq *ibsrq,
			      const struct ib_recv_wr *wr,
			      const struct ib_recv_wr **bad)
{
	struct keel_srq *srq = to_ksrq(ibsrq);
	int ret = 0;

	for (; wr && !ret; wr = wr->next) {
		ret = keel_rq_post(&srq->rq, wr);
		if (ret)
			*bad = wr;
	}
	/* Pairs with the barrier in keel_rq_want(). */
	smp_mb();
	if (READ_ONCE(srq->rq.wanted))
		keel_srq_wake_later(srq);
	return ret;
}

/* Userspace has posted receive WQEs, and KEEL_RING_F_DOORBELL was set. */
static int UVERBS_HANDLER(KEEL_METHOD_SRQ_DOORBELL)(
	struct uverbs_attr_bundle *attrs)
{
	struct ib_srq *ibsrq = uverbs_attr_get_obj(attrs,
						   KEEL_ATTR_SRQ_DOORBELL_SRQ);

	struct keel_workers *workers;
	struct keel_srq *srq;

	if (IS_ERR(ibsrq))
		return PTR_ERR(ibsrq);
	workers = keel_context_workers(attrs->context);
	srq = to_ksrq(ibsrq);
	/*
	 * The process that created them may be dead. No QP has the CQ of an XRC SRQ.
	 * After an error, the workqueue goes on to raise the events.
	 */
	keel_events_own(&srq->events, workers);
	if (srq->cq)
		keel_events_own(&srq->cq->events, workers);
	keel_srq_posted(srq);
	return 0;
}

DECLARE_UVERBS_NAMED_METHOD(
	KEEL_METHOD_SRQ_DOORBELL,
	UVERBS_ATTR_IDR(KEEL_ATTR_SRQ_DOORBELL_SRQ, UVERBS_OBJECT_SRQ,
			UVERBS_ACCESS_READ, UA_MANDATORY));

ADD_UVERBS_METHODS(keel_srq_methods, UVERBS_OBJECT_SRQ,
		   &UVERBS_METHOD(KEEL_METHOD_SRQ_DOORBELL));

const struct uapi_definition keel_srq_defs[] = {
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_SRQ, &keel_srq_methods),
	{},
};

/* Read the numbers of the ring at one moment, under the lock. */
static int __maybe_unused keel_srq_fill(struct sk_buff *msg,
					struct keel_obj *obj)
{
	struct keel_srq *srq = container_of(obj, struct keel_srq, obj);
	u32 entries, taken, limit;
	int queued = -EINVAL;
	bool dead;

	spin_lock(&srq->rq.lock);
	entries = keel_ring_size(&srq->rq.ring);
	taken = srq->rq.ring.index;
	limit = srq->limit;
	dead = srq->dead;
	if (srq->ib)
		queued = keel_ring_posted(&srq->rq.ring);
	spin_unlock(&srq->rq.lock);
	if (rdma_nl_put_driver_u32(msg, "srq_number", srq->srqn) ||
	    rdma_nl_put_driver_u32(msg, "entries", entries) ||
	    rdma_nl_put_driver_u32(msg, "taken", taken) ||
	    (queued >= 0 &&
	     rdma_nl_put_driver_u32(msg, "queued", queued)) ||
	    rdma_nl_put_driver_u32(msg, "limit", limit) ||
	    rdma_nl_put_driver_u32(msg, "error", dead))
		return -EMSGSIZE;
	return 0;
}

static int __maybe_unused keel_fill_res_srq(struct sk_buff *msg,
					    struct ib_srq *ibsrq)
{
	struct keel_ib_srq *kibsrq =
		container_of(ibsrq, struct keel_ib_srq, ib);
	struct keel_srq *srq = keel_res_tryget(kibsrq->srq);

	return srq ? keel_res_fill(msg, &srq->obj, keel_srq_fill) : 0;
}

const struct ib_device_ops keel_srq_ops = {
	.create_srq = keel_create_srq,
	.destroy_srq = keel_destroy_srq,
	KEEL_FILL_RES_SRQ(keel_fill_res_srq)
	.modify_srq = keel_modify_srq,
	.post_srq_recv = keel_post_srq_recv,
	.query_srq = keel_query_srq,

	INIT_RDMA_OBJ_SIZE(ib_srq, keel_ib_srq, ib),
};
