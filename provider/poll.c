/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Completions: polling for them, one by one or many at a time, and requesting
 * an event. None of these is a system call.
 */
#include <errno.h>
#include <string.h>

#include "keel.h"

/*
 * Return the number of CQEs in @ready. An invalid producer index is an error,
 * for which the kernel raises IBV_EVENT_CQ_ERR. CQEs can still be polled after
 * device removal. An empty CQ then returns EIO, because no CQE will follow.
 */
static int entries_ready(const struct keel_cq *cq, uint32_t *ready)
{
	*ready = keel_ring_kernel(&cq->ring) - cq->ring.user;
	if (!*ready && keel_is_gone(cq->vcq.cq.context))
		return EIO;
	return *ready > cq->ring.mask + 1 ? EIO : 0;
}

static unsigned int wc_flags(const struct keel_uapi_cqe *cqe)
{
	unsigned int flags = 0;

	if (cqe->flags & KEEL_CQE_F_GRH)
		flags |= IBV_WC_GRH;
	if (cqe->flags & KEEL_CQE_F_IMM)
		flags |= IBV_WC_WITH_IMM;
	if (cqe->flags & KEEL_CQE_F_INV)
		flags |= IBV_WC_WITH_INV;
	return flags;
}

static void fill_wc(struct ibv_wc *wc, const struct keel_uapi_cqe *cqe)
{
	wc->wr_id = cqe->wr_id;
	wc->status = cqe->status;
	wc->opcode = cqe->opcode;
	wc->vendor_err = cqe->vendor_err;
	wc->byte_len = cqe->byte_len;
	/* Either member of the union: neither changes its byte order. */
	wc->invalidated_rkey = cqe->imm;
	wc->qp_num = cqe->qp_num;
	wc->src_qp = cqe->src_qp;
	wc->wc_flags = wc_flags(cqe);
	wc->pkey_index = cqe->pkey_index;
	wc->slid = cqe->slid;
	wc->sl = cqe->sl;
	wc->dlid_path_bits = 0;
}

int keel_poll_cq(struct ibv_cq *ibcq, int room, struct ibv_wc *wc)
{
	struct keel_cq *cq = to_kcq(ibcq);
	uint32_t ready;
	int n = 0;
	int ret;

	keel_lock(&cq->lock);
	ret = entries_ready(cq, &ready);
	if (!ret && ready) {
		for (; n < room && ready; n++, ready--)
			fill_wc(&wc[n], keel_ring_entry(&cq->ring,
							cq->ring.user++));
		keel_ring_publish(&cq->ring);
	}
	keel_unlock(&cq->lock);
	return ret ? -ret : n;
}

static void set_poller(struct keel_cq *cq, pthread_t poller)
{
	atomic_store_explicit(&cq->poller, poller, memory_order_relaxed);
}

/*
 * Returns false if this thread has the lock already, from ibv_start_poll().
 * Other threads may change cq->poller meanwhile, but never to this thread.
 */
bool keel_cq_lock_unless_polling(struct keel_cq *cq)
{
	if (atomic_load_explicit(&cq->poller, memory_order_relaxed) ==
	    pthread_self())
		return false;
	keel_lock(&cq->lock);
	return true;
}

/*
 * The application polls once more after arming, because CQEs that are already
 * present raise no event. The full barrier orders the store to @arm before that
 * poll loads the kernel's index.
 */
int keel_req_notify_cq(struct ibv_cq *ibcq, int solicited_only)
{
	struct keel_cq *cq = to_kcq(ibcq);
	uint32_t none = KEEL_ARM_NONE;
	uint32_t *arm;
	bool locked;

	/* Another thread may resize the ring. */
	locked = keel_cq_lock_unless_polling(cq);
	arm = &cq->ring.shared->arm;
	if (solicited_only)
		/* Keep KEEL_ARM_NEXT, which includes solicited completions. */
		__atomic_compare_exchange_n(arm, &none, KEEL_ARM_SOLICITED,
					    false, __ATOMIC_SEQ_CST,
					    __ATOMIC_SEQ_CST);
	else
		__atomic_store_n(arm, KEEL_ARM_NEXT, __ATOMIC_SEQ_CST);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (locked)
		keel_unlock(&cq->lock);
	return keel_is_gone(ibcq->context) ? EIO : 0;
}

/* Between ibv_start_poll() and ibv_end_poll(), the CQE at the index has moved. */
void keel_cq_find_current(struct keel_cq *cq)
{
	if (cq->cur)
		cq->cur = keel_ring_entry(&cq->ring, cq->ring.user);
}

/*
 * Remove the CQEs of a QP that was destroyed or reset. Move the remaining CQEs
 * towards the newest CQE, because the kernel may add more CQEs after it. Keep
 * the current CQE between ibv_start_poll() and ibv_end_poll().
 */
static void forget(struct keel_cq *cq, uint32_t qp_num)
{
	struct keel_ring *ring = &cq->ring;
	uint32_t ready, index, gone = 0;
	struct keel_uapi_cqe *cqe;

	if (entries_ready(cq, &ready))
		ready = 0;
	for (index = ring->user + ready; ready; ready--) {
		cqe = keel_ring_entry(ring, --index);
		if (cqe->qp_num == qp_num && cqe != cq->cur)
			gone++;
		else if (gone)
			memcpy(keel_ring_entry(ring, index + gone), cqe,
			       sizeof(*cqe));
	}
	ring->user += gone;
	keel_cq_find_current(cq);
	if (gone)
		keel_ring_publish(ring);
}

/* The application may destroy or reset a QP between start_poll and end_poll. */
void keel_cq_clean(struct keel_cq *cq, uint32_t qp_num)
{
	bool locked = keel_cq_lock_unless_polling(cq);

	forget(cq, qp_num);
	if (locked)
		keel_unlock(&cq->lock);
}

/* Make the CQE at the user index current. It stays valid until take(). */
static int look(struct keel_cq *cq)
{
	uint32_t ready;
	int ret;

	ret = entries_ready(cq, &ready);
	if (ret)
		return ret;
	if (!ready)
		return ENOENT;

	cq->cur = keel_ring_entry(&cq->ring, cq->ring.user);
	cq->vcq.cq_ex.wr_id = cq->cur->wr_id;
	cq->vcq.cq_ex.status = cq->cur->status;
	return 0;
}

static void take(struct keel_cq *cq)
{
	if (!cq->cur)
		return;
	cq->cur = NULL;
	cq->ring.user++;
	keel_ring_publish(&cq->ring);
}

static int keel_start_poll(struct ibv_cq_ex *ibcq,
			   struct ibv_poll_cq_attr *attr)
{
	struct keel_cq *cq = to_kcq_ex(ibcq);
	int ret;

	if (attr->comp_mask)
		return EINVAL;

	keel_lock(&cq->lock);
	ret = look(cq);
	/* The application does not call end_poll after a failed start. */
	if (ret)
		keel_unlock(&cq->lock);
	else
		set_poller(cq, pthread_self());
	return ret;
}

static int keel_next_poll(struct ibv_cq_ex *ibcq)
{
	struct keel_cq *cq = to_kcq_ex(ibcq);

	take(cq);
	return look(cq);
}

static void keel_end_poll(struct ibv_cq_ex *ibcq)
{
	struct keel_cq *cq = to_kcq_ex(ibcq);

	take(cq);
	set_poller(cq, 0);
	keel_unlock(&cq->lock);
}

static enum ibv_wc_opcode keel_read_opcode(struct ibv_cq_ex *ibcq)
{
	return to_kcq_ex(ibcq)->cur->opcode;
}

static uint32_t keel_read_vendor_err(struct ibv_cq_ex *ibcq)
{
	return to_kcq_ex(ibcq)->cur->vendor_err;
}

static uint32_t keel_read_byte_len(struct ibv_cq_ex *ibcq)
{
	return to_kcq_ex(ibcq)->cur->byte_len;
}

/* Or the invalidated rkey. Neither changes its byte order. */
static __be32 keel_read_imm_data(struct ibv_cq_ex *ibcq)
{
	return (__force __be32)to_kcq_ex(ibcq)->cur->imm;
}

static uint32_t keel_read_qp_num(struct ibv_cq_ex *ibcq)
{
	return to_kcq_ex(ibcq)->cur->qp_num;
}

static uint32_t keel_read_src_qp(struct ibv_cq_ex *ibcq)
{
	return to_kcq_ex(ibcq)->cur->src_qp;
}

static unsigned int keel_read_wc_flags(struct ibv_cq_ex *ibcq)
{
	return wc_flags(to_kcq_ex(ibcq)->cur);
}

static uint32_t keel_read_slid(struct ibv_cq_ex *ibcq)
{
	return to_kcq_ex(ibcq)->cur->slid;
}

static uint8_t keel_read_sl(struct ibv_cq_ex *ibcq)
{
	return to_kcq_ex(ibcq)->cur->sl;
}

static uint8_t keel_read_dlid_path_bits(struct ibv_cq_ex *ibcq)
{
	(void)ibcq;
	return 0;
}

static uint64_t keel_read_completion_ts(struct ibv_cq_ex *ibcq)
{
	return to_kcq_ex(ibcq)->cur->ts;
}

static uint64_t keel_read_completion_wallclock_ns(struct ibv_cq_ex *ibcq)
{
	return to_kcq_ex(ibcq)->cur->wall;
}

void keel_set_poll_ops(struct ibv_cq_ex *ibcq, uint64_t wc_flags)
{
	ibcq->start_poll = keel_start_poll;
	ibcq->next_poll = keel_next_poll;
	ibcq->end_poll = keel_end_poll;
	ibcq->read_opcode = keel_read_opcode;
	ibcq->read_vendor_err = keel_read_vendor_err;
	ibcq->read_wc_flags = keel_read_wc_flags;
	if (wc_flags & IBV_WC_EX_WITH_BYTE_LEN)
		ibcq->read_byte_len = keel_read_byte_len;
	if (wc_flags & IBV_WC_EX_WITH_IMM)
		ibcq->read_imm_data = keel_read_imm_data;
	if (wc_flags & IBV_WC_EX_WITH_QP_NUM)
		ibcq->read_qp_num = keel_read_qp_num;
	if (wc_flags & IBV_WC_EX_WITH_SRC_QP)
		ibcq->read_src_qp = keel_read_src_qp;
	if (wc_flags & IBV_WC_EX_WITH_SLID)
		ibcq->read_slid = keel_read_slid;
	if (wc_flags & IBV_WC_EX_WITH_SL)
		ibcq->read_sl = keel_read_sl;
	if (wc_flags & IBV_WC_EX_WITH_DLID_PATH_BITS)
		ibcq->read_dlid_path_bits = keel_read_dlid_path_bits;
	if (wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)
		ibcq->read_completion_ts = keel_read_completion_ts;
	if (wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)
		ibcq->read_completion_wallclock_ns =
			keel_read_completion_wallclock_ns;
}
