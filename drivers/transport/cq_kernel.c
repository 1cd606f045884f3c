// SPDX-License-Identifier: GPL-2.0
/*
 * CQs of kernel consumers: ib_poll_cq() and ib_req_notify_cq(). The ring is
 * the same as a program's; here the kernel is on its other side, too.
 */
#include "keel_qp.h"

/* CQEs that are looked at under one hold of &keel_cq.poll_lock. */
#define KEEL_CQ_FORGET	64
/* Number of no QP: what a CQE says that polling skips. */
#define KEEL_QPN_NONE	0

/*
 * Kernel consumers want the QP itself. They must not destroy one and still
 * use what they polled; so the pointer is good as long as they keep to that.
 */
static struct ib_qp *keel_wc_qp(struct keel_dev *kdev, u32 qpn)
{
	struct keel_qp *qp;

	guard(rcu)();
	/* No reference: putting the last one may sleep, which we must not. */
	qp = xa_load(&kdev->qps, qpn);
	return qp ? READ_ONCE(qp->ib) : NULL;
}

static void keel_wc_fill(struct ib_wc *wc, const struct keel_uapi_cqe *cqe,
			 struct ib_qp *ibqp)
{
	memset(wc, 0, sizeof(*wc));
	wc->wr_id = cqe->wr_id;
	wc->status = cqe->status;
	wc->opcode = cqe->opcode;
	wc->vendor_err = cqe->vendor_err;
	wc->byte_len = cqe->byte_len;
	wc->qp = ibqp;
	wc->src_qp = cqe->src_qp;
	wc->slid = cqe->slid;
	/* Not @cqe->sl: consumers answer with it, and a RoCE packet has none. */
	wc->sl = 0;
	wc->pkey_index = cqe->pkey_index;
	wc->port_num = KEEL_PORT;
	if (cqe->flags & KEEL_CQE_F_IMM) {
		wc->wc_flags |= IB_WC_WITH_IMM;
		wc->ex.imm_data = (__force __be32)cqe->imm;
	} else if (cqe->flags & KEEL_CQE_F_INV) {
		wc->wc_flags |= IB_WC_WITH_INVALIDATE;
		wc->ex.invalidate_rkey = cqe->imm;
	}
	if (cqe->flags & KEEL_CQE_F_GRH) {
		wc->wc_flags |= IB_WC_GRH | IB_WC_WITH_NETWORK_HDR_TYPE;
		wc->network_hdr_type = cqe->flags & KEEL_CQE_F_IPV4 ?
				       RDMA_NETWORK_IPV4 : RDMA_NETWORK_IPV6;
	}
}

/**
 * keel_poll_cq() - &ib_device_ops.poll_cq
 * @ibcq: the CQ
 * @n: room in @wc
 * @wc: where to write completions
 *
 * Completions of a QP that was destroyed or reset are not in the CQ any more.
 * Those of an XRC_RECV QP that was destroyed are: they name no QP that exists,
 * since numbers are given out in turn, and are dropped here.
 *
 * Context: any.
 * Return: how many were written; -EOPNOTSUPP for a program's CQ, which it
 * polls itself.
 */
int keel_poll_cq(struct ib_cq *ibcq, int n, struct ib_wc *wc)
{
	struct keel_cq *cq = to_kcq(ibcq);
	struct keel_uapi_ring *head;
	const struct keel_uapi_cqe *cqe;
	unsigned long flags;
	struct ib_qp *ibqp;
	u32 user, kernel;
	int done = 0;

	if (cq->ring.umem)
		return -EOPNOTSUPP;
	head = cq->ring.head;
	spin_lock_irqsave(&cq->poll_lock, flags);
	user = head->user;
	/* The entries up to there are complete. */
	kernel = smp_load_acquire(&head->kernel);
	while (done < n && user != kernel) {
		cqe = keel_ring_entry(&cq->ring, user++);
		ibqp = keel_wc_qp(to_kdev(ibcq->device), cqe->qp_num);
		if (ibqp)
			keel_wc_fill(&wc[done++], cqe, ibqp);
	}
	/* They may be used again. */
	smp_store_release(&head->user, user);
	spin_unlock_irqrestore(&cq->poll_lock, flags);
	return done;
}

/*
 * Keep @cqe for a poll, at @to, or mark it for polling to skip. Its old place is
 * marked, too: at any moment the CQEs that polling does not skip are in order.
 */
static u32 keel_cqe_forget(const struct keel_ring *ring,
			   struct keel_uapi_cqe *cqe, u32 to, u32 qpn)
{
	struct keel_uapi_cqe *place;

	if (cqe->qp_num != qpn && cqe->qp_num != KEEL_QPN_NONE) {
		place = keel_ring_entry(ring, --to);
		if (place == cqe)
			return to;
		*place = *cqe;
	}
	cqe->qp_num = KEEL_QPN_NONE;
	return to;
}

/*
 * From the newest CQE to the oldest that was not polled: those that stay move
 * towards the newest, and the room of the others is free afterwards. Interrupts
 * are off under @poll_lock, so it is dropped now and then; @forget_lock keeps
 * others from moving CQEs meanwhile.
 */
static void keel_cq_forget(struct keel_cq *cq, u32 qpn)
{
	struct keel_uapi_ring *head = cq->ring.head;
	unsigned long flags;
	bool more = true;
	u32 from, to;
	int n;

	guard(mutex)(&cq->forget_lock);
	/* As in keel_poll_cq(): the CQEs up to there are complete. */
	from = smp_load_acquire(&head->kernel);
	to = from;
	while (more) {
		spin_lock_irqsave(&cq->poll_lock, flags);
		/* Somebody may have polled meanwhile. */
		for (n = KEEL_CQ_FORGET; n && (s32)(from - head->user) > 0; n--)
			to = keel_cqe_forget(&cq->ring,
					     keel_ring_entry(&cq->ring, --from),
					     to, qpn);
		more = !n;
		if (!more && (s32)(to - head->user) > 0)
			/* They may be used again. */
			smp_store_release(&head->user, to);
		spin_unlock_irqrestore(&cq->poll_lock, flags);
		cond_resched();
	}
}

/**
 * keel_qp_forget() - remove the completions of a QP that were not polled
 * @qp: the QP; nothing is added for it any more
 *
 * For consumers in the kernel. In the CQs of userspace the provider does it:
 * the consumer's index is not ours there.
 *
 * Context: may sleep.
 */
void keel_qp_forget(const struct keel_qp *qp)
{
	if (qp->user)
		return;
	if (qp->send_cq)
		keel_cq_forget(qp->send_cq, qp->qpn);
	if (qp->recv_cq && qp->recv_cq != qp->send_cq)
		keel_cq_forget(qp->recv_cq, qp->qpn);
}

static void keel_cq_arm(struct keel_uapi_ring *head,
			enum ib_cq_notify_flags flags)
{
	/* Asking for less does not take back that more was asked for. */
	if ((flags & IB_CQ_SOLICITED_MASK) == IB_CQ_SOLICITED)
		cmpxchg(&head->arm, KEEL_ARM_NONE, KEEL_ARM_SOLICITED);
	else
		xchg(&head->arm, KEEL_ARM_NEXT);
	/* A cmpxchg() that changes nothing is no barrier. */
	smp_mb();
}

/**
 * keel_req_notify_cq() - &ib_device_ops.req_notify_cq
 * @ibcq: the CQ
 * @flags: what to raise an event for, and whether to tell what was missed
 *
 * Context: any for the kernel's own CQs. Programs arm theirs in its ring; one
 * that asks by way of uverbs gets the same.
 * Return: 1 if there is something to poll and @flags asked to be told; else 0.
 */
int keel_req_notify_cq(struct ib_cq *ibcq, enum ib_cq_notify_flags flags)
{
	struct keel_cq *cq = to_kcq(ibcq);
	struct keel_uapi_ring *head = cq->ring.head;

	if (cq->ring.umem) {
		/* A resize may change the ring. */
		spin_lock(&cq->lock);
		keel_cq_arm(cq->ring.head, flags);
		spin_unlock(&cq->lock);
		return 0;
	}
	keel_cq_arm(head, flags);
	return flags & IB_CQ_REPORT_MISSED_EVENTS &&
	       READ_ONCE(head->kernel) != READ_ONCE(head->user);
}
