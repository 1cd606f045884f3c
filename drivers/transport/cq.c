// SPDX-License-Identifier: GPL-2.0
/*
 * Completion queues: ibv_create_cq(), and adding CQEs. Userspace polls and arms
 * its CQ without the kernel. cq_kernel.c does this for kernel consumers.
 */
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/timekeeping.h>
#include <rdma/restrack.h>

#include "keel_point.h"
#include "keel_qp.h"
#include "keel_restrack.h"

static void keel_cq_release(struct keel_obj *obj)
	__context_unsafe(/* no other thread has the CQ any more */)
{
	struct keel_cq *cq = container_of(obj, struct keel_cq, obj);

	keel_ring_free(&cq->ring);
	keel_events_free(&cq->events);
	mutex_destroy(&cq->clean_lock);
	kfree_rcu(cq, obj.rcu);
}

/*
 * The number of polled CQEs is left out: the consumer index is in the ring,
 * which a resize may free meanwhile.
 */
static void keel_cq_describe(const struct keel_obj *obj, struct seq_file *m)
	__context_unsafe(/* numbers of different moments are fine */)
{
	const struct keel_cq *cq = container_of(obj, struct keel_cq, obj);

	seq_printf(m, " entries %u added %u%s%s",
		   READ_ONCE(cq->ring.mask) + 1, READ_ONCE(cq->ring.index),
		   cq->ring.umem ? "" : " kernel",
		   READ_ONCE(cq->dead) ? " error" : "");
}

static const struct keel_obj_ops keel_cq_obj_ops = {
	.describe = keel_cq_describe,
	.release = keel_cq_release,
};

/* Call the handler of the consumer. The destroy waits for it. */
static void keel_cq_raise(struct keel_obj *obj, int type)
{
	struct keel_cq *cq = container_of(obj, struct keel_cq, obj);
	/* Without the lock: see keel_events_close(). */
	struct ib_cq *ib = context_unsafe(READ_ONCE(cq->ib));
	struct ib_event event = { .element.cq = ib, .event = type };

	if (!ib)
		return;
	event.device = ib->device;
	if (type == KEEL_EVENT_CQE) {
		if (ib->comp_handler)
			ib->comp_handler(ib, ib->cq_context);
	} else if (ib->event_handler) {
		ib->event_handler(&event, ib->cq_context);
	}
}

/* No CQE is added any more. */
static int keel_cq_fail(struct keel_cq *cq, bool overrun)
	__must_hold(&cq->lock)
{
	WRITE_ONCE(cq->dead, true);
	if (overrun)
		keel_count(to_kdev(cq->ib->device), cq_overruns, 1);
	return -EIO;
}

/*
 * Return: true if the CQ was armed for this CQE, which is visible before @arm is
 * read. The thread that arms the CQ polls it afterwards.
 */
static bool keel_cq_disarm(struct keel_cq *cq, bool solicited)
	__must_hold(&cq->lock)
{
	u32 *arm = &cq->ring.head->arm;

	keel_point("cqe_added");
	/* Pairs with the barrier of the thread that arms, then polls. */
	smp_mb();
	switch (READ_ONCE(*arm)) {
	case KEEL_ARM_NEXT:
		break;
	case KEEL_ARM_SOLICITED:
		if (solicited)
			break;
		fallthrough;
	default:
		return false;
	}
	xchg(arm, KEEL_ARM_NONE);
	return true;
}

/* The CQ has room. Return: true if the completion event is due. */
static __always_inline bool keel_cq_write(struct keel_cq *cq,
					  const struct keel_uapi_cqe *cqe,
					  bool solicited)
	__must_hold(&cq->lock)
{
	struct keel_ring *ring = &cq->ring;

	memcpy(keel_ring_entry(ring, ring->index), cqe, sizeof(*cqe));
	keel_ring_advance(ring);
	return keel_cq_disarm(cq, solicited || cqe->status != IB_WC_SUCCESS);
}

static __always_inline void keel_cq_stamp(const struct keel_cq *cq,
					  struct keel_uapi_cqe *cqe)
{
	if (likely(!cq->flags))
		return;
	if (cq->flags & KEEL_CQ_TS)
		cqe->ts = ktime_get_raw_ns();
	if (cq->flags & KEEL_CQ_WALL)
		cqe->wall = ktime_get_real_ns();
}

/* As keel_cq_add(). @due is set to the event to raise, if any. */
static int keel_cq_add_locked(struct keel_cq *cq, struct keel_uapi_cqe *cqe,
			      bool solicited, int *due)
	__must_hold(&cq->lock)
{
	int room;

	if (!cq->ib)
		return 0;
	if (cq->dead)
		return -EIO;
	room = keel_ring_room(&cq->ring);
	if (room <= 0) {
		*due = IB_EVENT_CQ_ERR;
		return keel_cq_fail(cq, !room);
	}
	keel_cq_stamp(cq, cqe);
	if (keel_cq_write(cq, cqe, solicited))
		*due = KEEL_EVENT_CQE;
	return 0;
}

/**
 * keel_cq_add() - add a CQE
 * @cq: the CQ; the caller keeps it from being released
 * @cqe: the CQE; its timestamps are set here
 * @solicited: the requester asked for an event. A CQE with an error always
 *	counts as solicited.
 * @own: see keel_events_raise()
 *
 * A destroyed CQ accepts any CQE and drops it: there is no consumer, and
 * userspace may have reused the ring.
 *
 * Context: process context. Handlers of kernel consumers are called from here,
 * with a lock held; they may poll and arm the CQ, and post.
 * Return: 0; -EIO if the CQ is in error, because it overran or its consumer
 * index is invalid. The CQE is lost, and the QP must fail.
 */
int keel_cq_add(struct keel_cq *cq, struct keel_uapi_cqe *cqe, bool solicited,
		bool own)
{
	int due = KEEL_EVENT_NONE;
	int ret;

	scoped_guard(spinlock, &cq->lock)
		ret = keel_cq_add_locked(cq, cqe, solicited, &due);
	/* Without the lock, for which threads of other processes may wait. */
	if (due != KEEL_EVENT_NONE)
		keel_events_raise(&cq->events, due, own);
	return ret;
}

/**
 * keel_cq_received() - add the CQE of a receive WQE, in the common case
 * @cq: the CQ
 * @cqe: the CQE, of a message that succeeds; its timestamps are set here
 * @rq: the QP's own receive queue, whose first WQE completes, and is taken here; the
 *	responder's lock protects it. NULL: the WQE was taken.
 * @solicited: the requester asked for an event
 *
 * The receive WQE is userspace's again before its CQE can be seen.
 *
 * Context: as keel_cq_add(); the responder's lock is held.
 * Return: false if nothing was done: the CQ is full, in error or destroyed.
 */
bool keel_cq_received(struct keel_cq *cq, struct keel_uapi_cqe *cqe,
		      struct keel_ring *rq, bool solicited)
{
	bool due;

	scoped_guard(spinlock, &cq->lock) {
		if (!cq->ib || cq->dead || keel_ring_room(&cq->ring) <= 0)
			return false;
		/* Before the CQE can be seen. */
		keel_count(to_kdev(cq->ib->device), rx_msgs, 1);
		keel_count(to_kdev(cq->ib->device), rx_bytes, cqe->byte_len);
		if (cqe->opcode == IB_WC_RECV_RDMA_WITH_IMM)
			keel_count(to_kdev(cq->ib->device), rdma_writes, 1);
		if (rq)
			keel_ring_advance(rq);
		keel_cq_stamp(cq, cqe);
		due = keel_cq_write(cq, cqe, solicited);
	}
	if (due)
		keel_events_raise(&cq->events, KEEL_EVENT_CQE, false);
	return true;
}

static int keel_cq_map(struct keel_ring *ring, struct ib_device *ibdev,
		       const struct keel_uapi_buf *buf, u32 cqe)
{
	if (buf->stride != sizeof(struct keel_uapi_cqe) || buf->entries < cqe)
		return -EINVAL;
	return keel_ring_map(ring, ibdev, buf);
}

static int keel_cq_ring(struct keel_cq *cq, struct ib_cq *ibcq, u32 cqe,
			struct ib_udata *udata)
	__context_unsafe(/* no other thread has the CQ yet */)
{
	struct keel_uapi_create_cq_req req;
	int ret;

	if (!udata)
		return keel_ring_alloc(&cq->ring, cqe,
				       sizeof(struct keel_uapi_cqe));
	ret = ib_copy_validate_udata_in(udata, req, reserved);
	if (!ret)
		ret = ib_respond_empty_udata(udata);
	if (ret)
		return ret;
	if (req.reserved || req.flags & ~KEEL_CQ_F_WALLCLOCK)
		return -EINVAL;
	if (req.flags & KEEL_CQ_F_WALLCLOCK)
		cq->flags |= KEEL_CQ_WALL;
	return keel_cq_map(&cq->ring, ibcq->device, &req.ring, cqe);
}

/*
 * A CQ that ignores overruns would overwrite CQEs that were not polled. A ring
 * with a producer and a consumer index cannot do that.
 */
static int keel_cq_check(const struct ib_cq *ibcq,
			 const struct ib_cq_init_attr *attr)
{
	if (attr->flags & IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN)
		return -EOPNOTSUPP;
	if (attr->flags & ~IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION)
		return -EINVAL;
	if (!attr->cqe || attr->cqe > KEEL_MAX_CQE ||
	    attr->comp_vector >= ibcq->device->num_comp_vectors)
		return -EINVAL;
	return 0;
}

static int __context_unsafe(/* no other thread has the CQ yet */)
keel_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr,
	       KEEL_CREATE_CQ_CALL *call)
{
	struct ib_udata *udata = KEEL_CREATE_CQ_UDATA(call);
	struct keel_cq *cq;
	int ret;

	ret = keel_cq_check(ibcq, attr);
	if (ret)
		return ret;
	cq = kzalloc_obj(*cq, keel_gfp_of(!udata));
	if (!cq)
		return -ENOMEM;
	spin_lock_init(&cq->lock);
	spin_lock_init(&cq->poll_lock);
	mutex_init(&cq->clean_lock);
	cq->ib = ibcq;
	cq->obj.kernel = !udata;
	keel_events_init(&cq->events, &cq->obj, to_kdev(ibcq->device)->wq,
			 keel_cq_raise);
	if (attr->flags & IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION)
		cq->flags |= KEEL_CQ_TS;
	ret = udata ? keel_events_own(&cq->events,
				      keel_udata_workers(udata)) : 0;
	if (ret)
		goto err_free;
	ret = keel_cq_ring(cq, ibcq, attr->cqe, udata);
	if (ret)
		goto err_free;
	ret = keel_obj_add(&to_kdev(ibcq->device)->reg, &cq->obj, KEEL_CQ,
			   &keel_cq_obj_ops, NULL, NULL);
	if (ret)
		goto err_ring;
	ibcq->cqe = keel_ring_size(&cq->ring);
	container_of(ibcq, struct keel_ib_cq, ib)->cq = cq;
	return 0;

err_ring:
	keel_ring_free(&cq->ring);
err_free:
	keel_events_free(&cq->events);
	mutex_destroy(&cq->clean_lock);
	kfree(cq);
	return ret;
}

/*
 * Ignores @udata. It is that of the create command if ib_uverbs undoes a create
 * command, which must not fail. A destroy command itself can carry udata by
 * UVERBS_METHOD_INVOKE_WRITE only.
 */
static int keel_destroy_cq(struct ib_cq *ibcq, struct ib_udata *udata)
{
	struct keel_cq *cq = to_kcq(ibcq);

	/* "rdma resource" may still query the CQ. */
	WRITE_ONCE(container_of(ibcq, struct keel_ib_cq, ib)->cq, NULL);
	scoped_guard(spinlock, &cq->lock)
		WRITE_ONCE(cq->ib, NULL);
	keel_events_close(&cq->events);
	keel_obj_close(&cq->obj);
	return 0;
}

/*
 * Copy the CQEs that were not polled, then use the new ring. These CQEs do not
 * change any more; new ones may be added meanwhile.
 */
static int keel_cq_move(struct keel_cq *cq, struct keel_ring *to)
{
	struct keel_ring *ring = &cq->ring;
	int ret = -EINVAL;
	u32 user;
	int room;

	spin_lock(&cq->lock);
	room = keel_ring_room(ring);
	user = ring->index - (keel_ring_size(ring) - room);
	if (room >= 0)
		ret = keel_ring_move(ring, to, user, &ring->index,
				     sizeof(struct keel_uapi_cqe), &cq->lock,
				     &cq->dead);
	if (!ret) {
		WRITE_ONCE(to->head->user, user);
		WRITE_ONCE(to->head->arm, READ_ONCE(ring->head->arm));
		to->index = ring->index;
		/* A thread that sees the index sees the CQEs. */
		smp_store_release(&to->head->kernel, to->index);
		swap(*ring, *to);
		cq->ib->cqe = keel_ring_size(ring);
	}
	spin_unlock(&cq->lock);
	return ret;
}

static int keel_resize_cq(struct ib_cq *ibcq, KEEL_RESIZE_CQE cqe,
			  struct ib_udata *udata)
{
	struct keel_uapi_resize_cq_req req;
	struct keel_cq *cq = to_kcq(ibcq);
	struct keel_ring ring = {};
	int ret;

	/* A ring of userspace is replaced by rings of userspace only. */
	if (!udata || !context_unsafe(cq->ring.umem) || !cqe ||
	    cqe > KEEL_MAX_CQE)
		return -EINVAL;
	ret = ib_copy_validate_udata_in(udata, req, ring);
	if (!ret)
		ret = ib_respond_empty_udata(udata);
	if (ret)
		return ret;
	ret = keel_cq_map(&ring, ibcq->device, &req.ring, cqe);
	if (ret)
		return ret;
	ret = keel_cq_move(cq, &ring);
	/* The old ring; after an error, the new one. */
	keel_ring_free(&ring);
	return ret;
}

/* Read the numbers of the ring at one moment, under the lock. */
static int keel_cq_fill(struct sk_buff *msg, struct keel_obj *obj)
{
	struct keel_cq *cq = container_of(obj, struct keel_cq, obj);
	u32 entries, added, arm = 0;
	int room = -EINVAL;
	bool dead;

	spin_lock(&cq->lock);
	entries = keel_ring_size(&cq->ring);
	added = cq->ring.index;
	dead = cq->dead;
	if (cq->ib) {
		room = keel_ring_room(&cq->ring);
		arm = READ_ONCE(cq->ring.head->arm);
	}
	spin_unlock(&cq->lock);
	if (rdma_nl_put_driver_u32(msg, "id", cq->obj.id) ||
	    rdma_nl_put_driver_u32(msg, "entries", entries) ||
	    rdma_nl_put_driver_u32(msg, "added", added) ||
	    (room >= 0 &&
	     rdma_nl_put_driver_u32(msg, "queued", entries - room)) ||
	    rdma_nl_put_driver_u32(msg, "armed", arm) ||
	    rdma_nl_put_driver_u32(msg, "error", dead))
		return -EMSGSIZE;
	return 0;
}

static int keel_fill_res_cq(struct sk_buff *msg, struct ib_cq *ibcq)
{
	struct keel_ib_cq *kibcq = container_of(ibcq, struct keel_ib_cq, ib);
	struct keel_cq *cq = keel_res_tryget(kibcq->cq);

	return cq ? keel_res_fill(msg, &cq->obj, keel_cq_fill) : 0;
}

const struct ib_device_ops keel_cq_ops = {
	.create_cq = keel_create_cq,
	.destroy_cq = keel_destroy_cq,
	.fill_res_cq_entry = keel_fill_res_cq,
	.poll_cq = keel_poll_cq,
	.req_notify_cq = keel_req_notify_cq,
	KEEL_RESIZE_CQ(keel_resize_cq)

	INIT_RDMA_OBJ_SIZE(ib_cq, keel_ib_cq, ib),
};
