/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Posting lists of work requests, and the doorbell.
 *
 * WQEs are written in place, and belong to the kernel when the user index is
 * published. A list of send WQEs then needs one doorbell. Receive WQEs need a
 * doorbell only if the kernel requests it.
 */
#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>

#include "keel.h"

/*
 * Uses a copy, because threads share the QP and the kernel may write to the
 * argument. Returns EIO after device removal.
 */
int keel_ring_doorbell(const struct keel_qp *qp)
{
	struct keel_doorbell doorbell = qp->doorbell;
	int fd = qp->vqp.qp.context->cmd_fd;

	while (ioctl(fd, RDMA_VERBS_IOCTL, &doorbell)) {
		if (errno != EINTR)
			return errno;
	}
	return 0;
}

/* After send WQEs were published. */
int keel_ring_send_doorbell(const struct keel_qp *qp)
{
	return keel_is_polled(qp) ? 0 : keel_ring_doorbell(qp);
}

void keel_put_sges(void *to, const struct ibv_sge *sges, uint32_t n)
{
	struct keel_uapi_sge *sge = to;
	uint32_t i;

	static_assert(sizeof(*sge) == sizeof(*sges), "SGEs differ");
	for (i = 0; i < n; i++) {
		sge[i].addr = sges[i].addr;
		sge[i].length = sges[i].length;
		sge[i].lkey = sges[i].lkey;
	}
}

static int put_inline(const struct keel_sq *sq, struct keel_uapi_send_wqe *wqe,
		      const struct ibv_send_wr *wr)
{
	uint8_t *data = (uint8_t *)(wqe + 1);
	uint32_t len = 0;
	int i;

	if (wr->num_sge < 0)
		return EINVAL;
	for (i = 0; i < wr->num_sge; i++) {
		const struct ibv_sge *sge = &wr->sg_list[i];

		if (sge->length > sq->max_inline - len)
			return EINVAL;
		if (sge->length)
			memcpy(data + len, (void *)(uintptr_t)sge->addr,
			       sge->length);
		len += sge->length;
	}
	wqe->flags |= IBV_SEND_INLINE;
	wqe->inline_len = len;
	return 0;
}

static int put_data(const struct keel_sq *sq, struct keel_uapi_send_wqe *wqe,
		    const struct ibv_send_wr *wr)
{
	if (wr->send_flags & IBV_SEND_INLINE)
		return KEEL_OPS_OUT >> wr->opcode & 1 ?
		       put_inline(sq, wqe, wr) : EINVAL;

	/* A negative number becomes too large. */
	if ((uint32_t)wr->num_sge > sq->max_sge)
		return EINVAL;
	wqe->num_sge = wr->num_sge;
	keel_put_sges(wqe + 1, wr->sg_list, wr->num_sge);
	return 0;
}

void keel_put_bind(struct keel_uapi_send_wqe *wqe, const struct ibv_mw *mw,
		   uint32_t new_rkey, const struct ibv_mw_bind_info *info)
{
	wqe->bind.addr = info->addr;
	wqe->bind.length = info->length;
	wqe->bind.lkey = info->mr ? info->mr->lkey : 0;
	wqe->bind.rkey = mw->rkey;
	wqe->bind.new_rkey = new_rkey;
	wqe->bind.access = info->mw_access_flags;
	wqe->bind.flags = mw->type == IBV_MW_TYPE_1 ? KEEL_BIND_F_TYPE_1 : 0;
}

/* Set the destination, for QP types with a destination in each work request. */
static int put_address(const struct keel_qp *qp,
		       struct keel_uapi_send_wqe *wqe,
		       const struct ibv_send_wr *wr)
{
	switch (qp->vqp.qp.qp_type) {
	case IBV_QPT_UD:
		if (!wr->wr.ud.ah)
			return EINVAL;
		wqe->ud.ah = to_kah(wr->wr.ud.ah)->ah;
		wqe->ud.qpn = wr->wr.ud.remote_qpn;
		wqe->ud.qkey = wr->wr.ud.remote_qkey;
		return 0;
	case IBV_QPT_XRC_SEND:
		wqe->srqn = wr->qp_type.xrc.remote_srqn;
		return 0;
	default:
		return 0;
	}
}

/* Only ibv_bind_mw() binds a type 1 window: it chooses the new rkey. */
static int put_window(struct keel_uapi_send_wqe *wqe,
		      const struct ibv_send_wr *wr)
{
	if (!wr->bind_mw.mw || wr->bind_mw.mw->type == IBV_MW_TYPE_1)
		return EINVAL;
	keel_put_bind(wqe, wr->bind_mw.mw, wr->bind_mw.rkey,
		      &wr->bind_mw.bind_info);
	return 0;
}

static int put_opcode(const struct keel_qp *qp, struct keel_uapi_send_wqe *wqe,
		      const struct ibv_send_wr *wr)
{
	int ret;

	switch (wr->opcode) {
	case IBV_WR_BIND_MW:
		return put_window(wqe, wr);
	case IBV_WR_LOCAL_INV:
		wqe->imm = wr->invalidate_rkey;
		return 0;
	case IBV_WR_FLUSH:
		/* struct ibv_send_wr has no flush type: use ibv_wr_flush(). */
		return EINVAL;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		wqe->atomic.remote_addr = wr->wr.atomic.remote_addr;
		wqe->atomic.compare_add = wr->wr.atomic.compare_add;
		wqe->atomic.swap = wr->wr.atomic.swap;
		wqe->atomic.rkey = wr->wr.atomic.rkey;
		break;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_READ:
	case IBV_WR_ATOMIC_WRITE:
		wqe->rdma.remote_addr = wr->wr.rdma.remote_addr;
		wqe->rdma.rkey = wr->wr.rdma.rkey;
		break;
	default:
		break;
	}
	/* Immediate data without conversion, or an rkey. */
	if (KEEL_OPS_IMM >> wr->opcode & 1)
		wqe->imm = wr->invalidate_rkey;
	ret = put_address(qp, wqe, wr);
	return ret ? ret : put_data(&qp->sq, wqe, wr);
}

static int put_send(struct keel_qp *qp, const struct ibv_send_wr *wr)
{
	struct keel_sq *sq = &qp->sq;
	struct keel_uapi_send_wqe *wqe;
	int ret;

	if ((unsigned int)wr->opcode > 31 || !(qp->opcodes >> wr->opcode & 1) ||
	    wr->send_flags & ~(KEEL_SEND_FLAGS | IBV_SEND_INLINE))
		return EINVAL;
	if (keel_ring_is_full(&sq->ring))
		return ENOMEM;

	wqe = keel_ring_entry(&sq->ring, sq->ring.user);
	/* Members that the opcode does not use must be 0. */
	*wqe = (struct keel_uapi_send_wqe){
		.wr_id = wr->wr_id,
		.opcode = wr->opcode,
		.flags = (wr->send_flags & KEEL_SEND_FLAGS) | sq->sig_flags,
	};
	ret = put_opcode(qp, wqe, wr);
	if (ret)
		return ret;

	sq->ring.user++;
	return 0;
}

/*
 * Post a list, without a doorbell. The work requests before a bad one are posted. @posted
 * is set if there are any.
 */
int keel_put_sends(struct ibv_qp *ibqp, struct ibv_send_wr *wr,
		   struct ibv_send_wr **bad_wr, bool *posted)
{
	struct keel_qp *qp = to_kqp(ibqp);
	struct ibv_send_wr *first = wr;
	int ret = 0;

	*posted = false;
	if (ibqp->state < IBV_QPS_RTS || !qp->opcodes) {
		*bad_wr = wr;
		return EINVAL;
	}

	keel_lock(&qp->sq.lock);
	for (; wr; wr = wr->next) {
		ret = put_send(qp, wr);
		if (ret)
			break;
	}
	keel_ring_publish(&qp->sq.ring);
	keel_unlock(&qp->sq.lock);
	/* After device removal, a full queue stays full. */
	if (ret == ENOMEM && keel_is_gone(ibqp->context))
		ret = EIO;
	if (ret)
		*bad_wr = wr;
	*posted = wr != first;
	return ret;
}

/*
 * Ring the doorbell after keel_put_sends() has returned @ret. If nothing but the doorbell
 * fails, all work requests count as not posted.
 */
int keel_ring_sends(struct ibv_qp *ibqp, int ret, struct ibv_send_wr *wr,
		    struct ibv_send_wr **bad_wr)
{
	int err = keel_ring_send_doorbell(to_kqp(ibqp));

	if (err && !ret)
		*bad_wr = wr;
	return ret ? ret : err;
}

int keel_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr,
		   struct ibv_send_wr **bad_wr)
{
	bool posted;
	int ret = keel_put_sends(ibqp, wr, bad_wr, &posted);

	return posted ? keel_ring_sends(ibqp, ret, wr, bad_wr) : ret;
}

static int put_recv(struct keel_rq *rq, const struct ibv_recv_wr *wr)
{
	struct keel_uapi_recv_wqe *wqe;

	if ((uint32_t)wr->num_sge > rq->max_sge)
		return EINVAL;
	if (keel_ring_is_full(&rq->ring))
		return ENOMEM;

	wqe = keel_ring_entry(&rq->ring, rq->ring.user);
	wqe->wr_id = wr->wr_id;
	wqe->num_sge = wr->num_sge;
	wqe->reserved = 0;
	keel_put_sges(wqe + 1, wr->sg_list, wr->num_sge);
	rq->ring.user++;
	return 0;
}

/*
 * The kernel takes receive WQEs when a message arrives. It requests a doorbell
 * if a requester waits for a receive WQE, or if receive WQEs are to be flushed.
 * The kernel sets the flag and then reads the user index. The provider
 * publishes the index and then reads the flag. So at least one side sees the
 * store of the other side.
 */
static bool wants_doorbell(const struct keel_ring *ring)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return __atomic_load_n(&ring->shared->flags, __ATOMIC_RELAXED) &
	       KEEL_RING_F_DOORBELL;
}

/* Post a list. @doorbell is set if the kernel requests a doorbell. */
static int put_recvs(struct ibv_context *ibctx, struct keel_rq *rq,
		     struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr,
		     bool *doorbell)
{
	int ret = 0;

	*doorbell = false;
	if (keel_is_gone(ibctx)) {
		*bad_wr = wr;
		return EIO;
	}

	keel_lock(&rq->lock);
	for (; wr; wr = wr->next) {
		ret = put_recv(rq, wr);
		if (ret) {
			*bad_wr = wr;
			break;
		}
	}
	keel_ring_publish(&rq->ring);
	/* Under the lock, because a resize replaces the ring. */
	*doorbell = wants_doorbell(&rq->ring);
	keel_unlock(&rq->lock);
	return ret;
}

int keel_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr,
		   struct ibv_recv_wr **bad_wr)
{
	struct keel_qp *qp = to_kqp(ibqp);
	bool doorbell;
	int ret;
	int err;

	/* A QP with an SRQ, or of an XRC type, has no receive queue. */
	if (ibqp->state == IBV_QPS_RESET || !qp->rq.ring.shared) {
		*bad_wr = wr;
		return EINVAL;
	}

	ret = put_recvs(ibqp->context, &qp->rq, wr, bad_wr, &doorbell);
	if (!doorbell)
		return ret;

	err = keel_ring_doorbell(qp);
	if (err && !ret)
		*bad_wr = wr;
	return ret ? ret : err;
}

int keel_post_srq_recv(struct ibv_srq *ibsrq, struct ibv_recv_wr *wr,
		       struct ibv_recv_wr **bad_wr)
{
	struct keel_srq *srq = to_ksrq(ibsrq);
	bool doorbell;
	int ret;
	int err;

	ret = put_recvs(ibsrq->context, &srq->rq, wr, bad_wr, &doorbell);
	if (!doorbell)
		return ret;

	err = keel_ring_srq_doorbell(ibsrq);
	if (err && !ret)
		*bad_wr = wr;
	return ret ? ret : err;
}

/* Each bind changes the window's rkey. The application reads ibmw->rkey. */
int keel_bind_mw(struct ibv_qp *ibqp, struct ibv_mw *ibmw,
		 struct ibv_mw_bind *bind)
{
	struct keel_qp *qp = to_kqp(ibqp);
	struct keel_sq *sq = &qp->sq;
	struct keel_uapi_send_wqe *wqe;
	uint32_t rkey = 0;
	int ret = 0;

	if (ibqp->state < IBV_QPS_RTS ||
	    !(qp->opcodes >> IBV_WR_BIND_MW & 1) ||
	    bind->send_flags & ~KEEL_SEND_FLAGS)
		return EINVAL;

	keel_lock(&sq->lock);
	if (keel_ring_is_full(&sq->ring)) {
		ret = keel_is_gone(ibqp->context) ? EIO : ENOMEM;
	} else {
		rkey = ibv_inc_rkey(ibmw->rkey);
		wqe = keel_ring_entry(&sq->ring, sq->ring.user++);
		*wqe = (struct keel_uapi_send_wqe){
			.wr_id = bind->wr_id,
			.opcode = IBV_WR_BIND_MW,
			.flags = bind->send_flags | sq->sig_flags,
		};
		keel_put_bind(wqe, ibmw, rkey, &bind->bind_info);
		keel_ring_publish(&sq->ring);
	}
	keel_unlock(&sq->lock);
	if (!ret)
		ret = keel_ring_send_doorbell(qp);
	if (!ret)
		ibmw->rkey = rkey;
	return ret;
}
