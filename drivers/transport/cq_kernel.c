// SPDX-License-Identifier: GPL-2.0
/*
 * CQs of kernel consumers: ib_poll_cq() and ib_req_notify_cq(). The ring has
 * the same layout as a ring of userspace, but the kernel also is its consumer.
 */
#include "keel_point.h"
#include "keel_qp.h"

/* CQEs that are checked before &keel_cq.poll_lock is dropped for a moment. */
#define KEEL_CQ_CLEAN	64
/* No QP has this number: polling skips a CQE that names it. */
#define KEEL_QPN_NONE	0

/*
 * A kernel consumer gets a pointer to the QP. It must not destroy the QP while
 * it uses CQEs of the QP that it has polled. So the pointer is valid without a
 * reference.
 */
static struct ib_qp *keel_wc_qp(struct keel_dev *kdev, u32 qpn)
{
	struct keel_qp *qp;

	guard(rcu)();
	/* No reference: dropping the last may sleep, but callers may not. */
	qp = keel_qp_load(kdev, qpn);
	/* The consumer uses no CQE of a QP whose destroy clears it meanwhile. */
	return qp ? context_unsafe(READ_ONCE(qp->ib)) : NULL;
}

static const struct keel_ring *keel_cq_kernel_ring(const struct keel_cq *cq)
{
	/* The CQ of a kernel consumer is never resized. */
	return context_unsafe(&cq->ring);
}

/* The consumer index of a kernel consumer's CQ, which @poll_lock protects. */
static u32 *keel_cq_consumer(struct keel_cq *cq)
	__must_hold(&cq->poll_lock)
{
	return &keel_cq_kernel_ring(cq)->head->user;
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
	/* Not @cqe->sl: consumers reply with it, and a RoCE packet has none. */
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
 * @wc: set to the completions
 *
 * The CQEs of a QP that was destroyed or reset were removed from the CQ. Those
 * of an XRC_RECV QP that was destroyed are still there, and are dropped here.
 * They name no QP that exists, because QP numbers are allocated cyclically.
 *
 * Context: any.
 * Return: number of completions; -EOPNOTSUPP if the CQ belongs to userspace,
 * which polls it directly.
 */
int keel_poll_cq(struct ib_cq *ibcq, int n, struct ib_wc *wc)
{
	struct keel_cq *cq = to_kcq(ibcq);
	const struct keel_ring *ring = keel_cq_kernel_ring(cq);
	const struct keel_uapi_cqe *cqe;
	struct ib_qp *ibqp;
	u32 user, kernel;
	int done = 0;

	if (ring->umem)
		return -EOPNOTSUPP;
	guard(spinlock_irqsave)(&cq->poll_lock);
	user = *keel_cq_consumer(cq);
	/* The CQEs up to there are complete. */
	kernel = smp_load_acquire(&ring->head->kernel);
	while (done < n && user != kernel) {
		cqe = keel_ring_entry(ring, user++);
		ibqp = keel_wc_qp(to_kdev(ibcq->device), cqe->qp_num);
		if (ibqp)
			keel_wc_fill(&wc[done++], cqe, ibqp);
	}
	/* These CQEs may be overwritten now. */
	smp_store_release(keel_cq_consumer(cq), user);
	return done;
}

/*
 * Move @cqe to the place before @to, or mark it so that polling skips it. The
 * old place of a moved CQE is marked, too: at any moment the CQEs that polling
 * does not skip are in order.
 */
static u32 keel_cqe_clean(struct keel_cq *cq, struct keel_uapi_cqe *cqe, u32 to,
			  u32 qpn)
	__must_hold(&cq->clean_lock, &cq->poll_lock)
{
	struct keel_uapi_cqe *place;

	if (cqe->qp_num != qpn) {
		place = keel_ring_entry(keel_cq_kernel_ring(cq), --to);
		if (place == cqe)
			return to;
		*place = *cqe;
	}
	cqe->qp_num = KEEL_QPN_NONE;
	return to;
}

/*
 * Go from the newest CQE to the oldest that was not polled. CQEs that stay move
 * towards the newest. The room of the other CQEs is free afterwards. Interrupts
 * are off under @poll_lock, so it is dropped now and then. @clean_lock keeps
 * other threads from moving CQEs meanwhile.
 */
static void keel_cq_clean(struct keel_cq *cq, u32 qpn)
{
	const struct keel_ring *ring = keel_cq_kernel_ring(cq);
	unsigned long flags;
	bool more = true;
	u32 from, to;
	int n;

	guard(mutex)(&cq->clean_lock);
	/* As in keel_poll_cq(): the CQEs up to there are complete. */
	from = smp_load_acquire(&ring->head->kernel);
	to = from;
	while (more) {
		spin_lock_irqsave(&cq->poll_lock, flags);
		/* The consumer may have polled meanwhile. */
		for (n = KEEL_CQ_CLEAN;
		     n && (s32)(from - *keel_cq_consumer(cq)) > 0; n--)
			to = keel_cqe_clean(cq, keel_ring_entry(ring, --from),
					    to, qpn);
		more = !n;
		if (!more && (s32)(to - *keel_cq_consumer(cq)) > 0)
			/* These CQEs may be overwritten now. */
			smp_store_release(keel_cq_consumer(cq), to);
		spin_unlock_irqrestore(&cq->poll_lock, flags);
		cond_resched();
	}
}

/**
 * keel_qp_clean_cqs() - remove the CQEs of a QP that were not polled
 * @qp: the QP; no CQE is added for it any more
 *
 * For kernel consumers only. In the CQs of userspace, the provider removes
 * them, because userspace owns the consumer index.
 *
 * Context: may sleep.
 */
void keel_qp_clean_cqs(const struct keel_qp *qp)
{
	if (qp->user)
		return;
	if (qp->send_cq)
		keel_cq_clean(qp->send_cq, qp->qpn);
	if (qp->recv_cq && qp->recv_cq != qp->send_cq)
		keel_cq_clean(qp->recv_cq, qp->qpn);
}

static void keel_cq_arm(struct keel_uapi_ring *head,
			enum ib_cq_notify_flags flags)
{
	/* Solicited events do not replace a request for all events. */
	if ((flags & IB_CQ_SOLICITED_MASK) == IB_CQ_SOLICITED)
		cmpxchg(&head->arm, KEEL_ARM_NONE, KEEL_ARM_SOLICITED);
	else
		xchg(&head->arm, KEEL_ARM_NEXT);
	/* A failed cmpxchg() is no barrier. */
	smp_mb();
}

/**
 * keel_req_notify_cq() - &ib_device_ops.req_notify_cq
 * @ibcq: the CQ
 * @flags: CQEs to raise an event for, and whether to report missed ones
 *
 * Context: any for CQs of kernel consumers. Userspace arms its CQ in the ring.
 * A request of userspace through uverbs has the same effect.
 * Return: 1 if CQEs are left to poll and @flags asks to report them; else 0.
 * Always 0 for CQs of userspace.
 */
int keel_req_notify_cq(struct ib_cq *ibcq, enum ib_cq_notify_flags flags)
{
	struct keel_cq *cq = to_kcq(ibcq);
	struct keel_uapi_ring *head;

	/* A ring of userspace is replaced by rings of userspace only. */
	if (context_unsafe(cq->ring.umem)) {
		/* A resize may change the ring. */
		guard(spinlock)(&cq->lock);
		keel_cq_arm(cq->ring.head, flags);
		return 0;
	}
	head = keel_cq_kernel_ring(cq)->head;
	keel_cq_arm(head, flags);
	keel_point("cq_armed");
	return flags & IB_CQ_REPORT_MISSED_EVENTS &&
	       READ_ONCE(head->kernel) != READ_ONCE(head->user);
}
