// SPDX-License-Identifier: GPL-2.0
/*
 * Posting for kernel consumers: ib_post_send(), ib_post_recv(). They may post
 * in atomic context, so the workqueue executes the WQEs. The rings have the
 * same layout as those of userspace, but are in kernel memory.
 */
#include "keel_point.h"
#include "keel_qp.h"

static void keel_post_sges(struct keel_uapi_sge *to, const struct ib_sge *from,
			   u32 n)
{
	for (; n; n--, to++, from++)
		*to = (struct keel_uapi_sge){
			.addr = from->addr, .length = from->length,
			.lkey = from->lkey,
		};
}

/* Write the part after the header: the SGEs, or the inline data. */
static int keel_post_data(const struct keel_qp *qp,
			  struct keel_uapi_send_wqe *wqe, void *data,
			  const struct ib_send_wr *wr)
{
	int i;

	if (wr->num_sge < 0 || wr->num_sge > qp->cap.max_send_sge)
		return -EINVAL;
	if (!(wr->send_flags & IB_SEND_INLINE)) {
		wqe->num_sge = wr->num_sge;
		keel_post_sges(data, wr->sg_list, wr->num_sge);
		return 0;
	}
	for (i = 0; i < wr->num_sge; i++) {
		const struct ib_sge *sge = &wr->sg_list[i];

		if (sge->length > qp->cap.max_inline_data - wqe->inline_len)
			return -EINVAL;
		memcpy(data + wqe->inline_len,
		       (void *)(uintptr_t)sge->addr, sge->length);
		wqe->inline_len += sge->length;
	}
	return 0;
}

static int keel_post_op(const struct keel_qp *qp,
			struct keel_uapi_send_wqe *wqe,
			const struct ib_send_wr *wr)
{
	/* Cast to a number: some kernels lack some of the enumerators. */
	switch ((u32)wr->opcode) {
	case IB_WR_SEND_WITH_INV:
	case IB_WR_LOCAL_INV:
		wqe->imm = wr->ex.invalidate_rkey;
		break;
	case IB_WR_SEND:
	case IB_WR_SEND_WITH_IMM:
		wqe->imm = (__force u32)wr->ex.imm_data;
		if (keel_qp_is_dgram(qp)) {
			wqe->ud.ah = to_kah(ud_wr(wr)->ah)->obj.id;
			wqe->ud.qpn = ud_wr(wr)->remote_qpn;
			wqe->ud.qkey = ud_wr(wr)->remote_qkey;
		}
		break;
	case IB_WR_RDMA_WRITE:
	case IB_WR_RDMA_WRITE_WITH_IMM:
	case IB_WR_RDMA_READ:
	case IB_WR_ATOMIC_WRITE:
		wqe->imm = (__force u32)wr->ex.imm_data;
		wqe->rdma.remote_addr = rdma_wr(wr)->remote_addr;
		wqe->rdma.rkey = rdma_wr(wr)->rkey;
		break;
	case IB_WR_ATOMIC_CMP_AND_SWP:
	case IB_WR_ATOMIC_FETCH_AND_ADD:
		wqe->atomic.remote_addr = atomic_wr(wr)->remote_addr;
		wqe->atomic.compare_add = atomic_wr(wr)->compare_add;
		wqe->atomic.swap = atomic_wr(wr)->swap;
		wqe->atomic.rkey = atomic_wr(wr)->rkey;
		break;
	case IB_WR_REG_MR:
		/* The consumer keeps the memory region until this completes. */
		wqe->bind.addr = (uintptr_t)reg_wr(wr)->mr;
		wqe->bind.new_rkey = reg_wr(wr)->key;
		wqe->bind.access = reg_wr(wr)->access;
		break;
	default:
		return -EINVAL;
	}
	return 0;
}

static int keel_post_one(struct keel_qp *qp, const struct ib_send_wr *wr)
	__must_hold(&qp->sq.post_lock)
{
	struct keel_ring *ring = &qp->sq.ring;
	u32 user = ring->head->user;
	struct keel_uapi_send_wqe *wqe = keel_ring_entry(ring, user);
	int ret;

	/* Pairs with keel_ring_advance(): the old WQE was copied. */
	if (user - smp_load_acquire(&ring->head->kernel) > ring->mask)
		return -ENOMEM;
	memset(wqe, 0, sizeof(*wqe));
	wqe->wr_id = wr->wr_id;
	wqe->opcode = wr->opcode;
	wqe->flags = wr->send_flags & (IB_SEND_FENCE | IB_SEND_SIGNALED |
				       IB_SEND_SOLICITED | IB_SEND_INLINE);
	ret = keel_post_op(qp, wqe, wr);
	if (!ret)
		ret = keel_post_data(qp, wqe, wqe + 1, wr);
	if (ret)
		return ret;
	/* Pairs with keel_ring_posted(). */
	smp_store_release(&ring->head->user, user + 1);
	return 0;
}

/* Return: 0 if work requests can be posted; else the error for all of them. */
static int keel_post_check(const struct keel_qp *qp,
			   const struct keel_ring *ring, enum ib_qp_state first)
{
	/* Userspace posts to its own ring. */
	if (qp->user || !ring->head)
		return -EOPNOTSUPP;
	return keel_qp_state(qp) < first ? -EINVAL : 0;
}

/*
 * Consumers may read @bad_wr after a success, too. So it is written on failure
 * only, and names the first work request that was not posted.
 */
static int keel_post_send(struct ib_qp *ibqp, const struct ib_send_wr *wr,
			  const struct ib_send_wr **bad_wr)
{
	struct keel_qp *qp = to_kqp(ibqp);
	int ret;

	ret = keel_post_check(qp, &qp->sq.ring, IB_QPS_RTS);
	if (ret) {
		*bad_wr = wr;
		return ret;
	}
	scoped_guard(spinlock_irqsave, &qp->sq.post_lock)
		for (; wr && !ret; wr = wr->next) {
			ret = keel_post_one(qp, wr);
			if (ret)
				*bad_wr = wr;
		}
	keel_qp_schedule(qp);
	return ret;
}

static int keel_post_recv(struct ib_qp *ibqp, const struct ib_recv_wr *wr,
			  const struct ib_recv_wr **bad_wr)
{
	struct keel_qp *qp = to_kqp(ibqp);
	int ret;

	ret = keel_post_check(qp, &qp->rq.ring, IB_QPS_INIT);
	if (ret) {
		*bad_wr = wr;
		return ret;
	}
	for (; wr && !ret; wr = wr->next) {
		ret = keel_rq_post(&qp->rq, wr);
		if (ret)
			*bad_wr = wr;
	}
	keel_point("recv_posted");
	/* Pairs with the barriers in keel_rq_flush() and keel_rq_want(). */
	smp_mb();
	if (keel_qp_state(qp) == IB_QPS_ERR || READ_ONCE(qp->rq.wanted))
		keel_qp_schedule(qp);
	return ret;
}

const struct ib_device_ops keel_post_ops = {
	.post_recv = keel_post_recv,
	.post_send = keel_post_send,
};
