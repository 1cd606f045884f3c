/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The extended post API: ibv_wr_start(), one call for each work request and for
 * each of its parts, ibv_wr_complete().
 *
 * WQEs are written in place, under the lock of the send queue, and belong to
 * the kernel when ibv_wr_complete() publishes them. After the first error of a
 * batch, further calls are ignored. ibv_wr_complete() returns the error, and no
 * work request of the batch is sent.
 */
#include <errno.h>
#include <string.h>

#include "keel.h"

static void wr_fail(struct keel_sq *sq, int err)
{
	if (!sq->wr_err)
		sq->wr_err = err;
	sq->wqe = NULL;
}

static void keel_wr_start(struct ibv_qp_ex *ibqp)
{
	struct keel_qp *qp = to_kqp_ex(ibqp);
	struct keel_sq *sq = &qp->sq;

	keel_lock(&sq->lock);
	sq->wr_start = sq->ring.user;
	sq->wr_err = 0;
	sq->wqe = NULL;
	if (ibqp->qp_base.state < IBV_QPS_RTS)
		wr_fail(sq, EINVAL);
}

static int keel_wr_complete(struct ibv_qp_ex *ibqp)
{
	struct keel_qp *qp = to_kqp_ex(ibqp);
	struct keel_sq *sq = &qp->sq;
	bool posted = sq->ring.user != sq->wr_start;
	int ret = sq->wr_err;

	if (ret)
		sq->ring.user = sq->wr_start;
	else if (posted)
		keel_ring_publish(&sq->ring);
	keel_unlock(&sq->lock);
	if (ret == ENOMEM && keel_is_gone(ibqp->qp_base.context))
		return EIO;
	if (ret || !posted)
		return ret;
	return keel_ring_send_doorbell(qp);
}

static void keel_wr_abort(struct ibv_qp_ex *ibqp)
{
	struct keel_sq *sq = &to_kqp_ex(ibqp)->sq;

	sq->ring.user = sq->wr_start;
	keel_unlock(&sq->lock);
}

/* Returns the next WQE, without data and address, or NULL after an error. */
static struct keel_uapi_send_wqe *new_wr(struct ibv_qp_ex *ibqp,
					 enum ibv_wr_opcode opcode)
{
	struct keel_qp *qp = to_kqp_ex(ibqp);
	struct keel_sq *sq = &qp->sq;
	struct keel_uapi_send_wqe *wqe;

	if (sq->wr_err)
		return NULL;
	if (!(qp->opcodes >> opcode & 1) ||
	    ibqp->wr_flags & ~(KEEL_SEND_FLAGS | IBV_SEND_INLINE)) {
		wr_fail(sq, EINVAL);
		return NULL;
	}
	if (keel_ring_is_full(&sq->ring)) {
		wr_fail(sq, ENOMEM);
		return NULL;
	}

	wqe = keel_ring_entry(&sq->ring, sq->ring.user++);
	*wqe = (struct keel_uapi_send_wqe){
		.wr_id = ibqp->wr_id,
		.opcode = opcode,
		.flags = (ibqp->wr_flags & KEEL_SEND_FLAGS) | sq->sig_flags,
	};
	sq->wqe = wqe;
	return wqe;
}

static void keel_wr_send(struct ibv_qp_ex *ibqp)
{
	new_wr(ibqp, IBV_WR_SEND);
}

static void keel_wr_send_imm(struct ibv_qp_ex *ibqp, __be32 imm_data)
{
	struct keel_uapi_send_wqe *wqe = new_wr(ibqp, IBV_WR_SEND_WITH_IMM);

	if (wqe)
		wqe->imm = (__force uint32_t)imm_data;
}

static void keel_wr_send_inv(struct ibv_qp_ex *ibqp, uint32_t invalidate_rkey)
{
	struct keel_uapi_send_wqe *wqe = new_wr(ibqp, IBV_WR_SEND_WITH_INV);

	if (wqe)
		wqe->imm = invalidate_rkey;
}

static void keel_wr_local_inv(struct ibv_qp_ex *ibqp, uint32_t invalidate_rkey)
{
	struct keel_uapi_send_wqe *wqe = new_wr(ibqp, IBV_WR_LOCAL_INV);

	if (wqe)
		wqe->imm = invalidate_rkey;
}

static struct keel_uapi_send_wqe *new_rdma(struct ibv_qp_ex *ibqp,
					   enum ibv_wr_opcode opcode,
					   uint32_t rkey, uint64_t remote_addr)
{
	struct keel_uapi_send_wqe *wqe = new_wr(ibqp, opcode);

	if (wqe) {
		wqe->rdma.remote_addr = remote_addr;
		wqe->rdma.rkey = rkey;
	}
	return wqe;
}

static void keel_wr_rdma_write(struct ibv_qp_ex *ibqp, uint32_t rkey,
			       uint64_t remote_addr)
{
	new_rdma(ibqp, IBV_WR_RDMA_WRITE, rkey, remote_addr);
}

static void keel_wr_rdma_write_imm(struct ibv_qp_ex *ibqp, uint32_t rkey,
				   uint64_t remote_addr, __be32 imm_data)
{
	struct keel_uapi_send_wqe *wqe =
		new_rdma(ibqp, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, remote_addr);

	if (wqe)
		wqe->imm = (__force uint32_t)imm_data;
}

static void keel_wr_rdma_read(struct ibv_qp_ex *ibqp, uint32_t rkey,
			      uint64_t remote_addr)
{
	new_rdma(ibqp, IBV_WR_RDMA_READ, rkey, remote_addr);
}

static void new_atomic(struct ibv_qp_ex *ibqp, enum ibv_wr_opcode opcode,
		       uint32_t rkey, uint64_t remote_addr,
		       uint64_t compare_add, uint64_t swap)
{
	struct keel_uapi_send_wqe *wqe = new_wr(ibqp, opcode);

	if (!wqe)
		return;
	wqe->atomic.remote_addr = remote_addr;
	wqe->atomic.compare_add = compare_add;
	wqe->atomic.swap = swap;
	wqe->atomic.rkey = rkey;
}

static void keel_wr_atomic_cmp_swp(struct ibv_qp_ex *ibqp, uint32_t rkey,
				   uint64_t remote_addr, uint64_t compare,
				   uint64_t swap)
{
	new_atomic(ibqp, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, remote_addr, compare,
		   swap);
}

static void keel_wr_atomic_fetch_add(struct ibv_qp_ex *ibqp, uint32_t rkey,
				     uint64_t remote_addr, uint64_t add)
{
	new_atomic(ibqp, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, remote_addr, add,
		   0);
}

static void keel_wr_atomic_write(struct ibv_qp_ex *ibqp, uint32_t rkey,
				 uint64_t remote_addr, const void *atomic_wr)
{
	struct keel_uapi_send_wqe *wqe =
		new_rdma(ibqp, IBV_WR_ATOMIC_WRITE, rkey, remote_addr);

	if (!wqe)
		return;
	/* Every WQE has room for at least one SGE, which is larger. */
	memcpy(wqe + 1, atomic_wr, sizeof(uint64_t));
	wqe->flags |= IBV_SEND_INLINE;
	wqe->inline_len = sizeof(uint64_t);
}

static void keel_wr_flush(struct ibv_qp_ex *ibqp, uint32_t rkey,
			  uint64_t remote_addr, size_t len, uint8_t type,
			  uint8_t level)
{
	struct keel_uapi_send_wqe *wqe = new_wr(ibqp, IBV_WR_FLUSH);

	if (!wqe)
		return;
	wqe->flush.remote_addr = remote_addr;
	wqe->flush.length = len;
	wqe->flush.rkey = rkey;
	wqe->flush.type = type;
	wqe->flush.level = level;
}

static void keel_wr_bind_mw(struct ibv_qp_ex *ibqp, struct ibv_mw *ibmw,
			    uint32_t rkey,
			    const struct ibv_mw_bind_info *bind_info)
{
	struct keel_uapi_send_wqe *wqe = new_wr(ibqp, IBV_WR_BIND_MW);

	if (!wqe)
		return;
	/* Only ibv_bind_mw() binds a type 1 window. */
	if (ibmw->type == IBV_MW_TYPE_1) {
		wr_fail(&to_kqp_ex(ibqp)->sq, EINVAL);
		return;
	}
	keel_put_bind(wqe, ibmw, rkey, bind_info);
}

/*
 * Returns the current WQE, if it can take data, or NULL after an error. An
 * atomic write already has its data.
 */
static struct keel_uapi_send_wqe *wr_with_data(struct keel_sq *sq,
					       uint32_t opcodes)
{
	opcodes &= ~(1U << IBV_WR_ATOMIC_WRITE);
	if (sq->wqe && !(opcodes >> sq->wqe->opcode & 1))
		wr_fail(sq, EINVAL);
	return sq->wqe;
}

static void keel_wr_set_sge_list(struct ibv_qp_ex *ibqp, size_t num_sge,
				 const struct ibv_sge *sg_list)
{
	struct keel_sq *sq = &to_kqp_ex(ibqp)->sq;
	struct keel_uapi_send_wqe *wqe = wr_with_data(sq, KEEL_OPS_DATA);

	if (!wqe)
		return;
	if (num_sge > sq->max_sge) {
		wr_fail(sq, EINVAL);
		return;
	}
	wqe->flags &= ~IBV_SEND_INLINE;
	wqe->inline_len = 0;
	wqe->num_sge = num_sge;
	keel_put_sges(wqe + 1, sg_list, num_sge);
}

static void keel_wr_set_sge(struct ibv_qp_ex *ibqp, uint32_t lkey,
			    uint64_t addr, uint32_t length)
{
	struct ibv_sge sge = { .addr = addr, .length = length, .lkey = lkey };

	keel_wr_set_sge_list(ibqp, 1, &sge);
}

static void keel_wr_set_inline_data_list(struct ibv_qp_ex *ibqp,
					 size_t num_buf,
					 const struct ibv_data_buf *buf_list)
{
	struct keel_sq *sq = &to_kqp_ex(ibqp)->sq;
	struct keel_uapi_send_wqe *wqe = wr_with_data(sq, KEEL_OPS_OUT);
	uint8_t *data = (uint8_t *)(wqe + 1);
	size_t len = 0;
	size_t i;

	if (!wqe)
		return;
	for (i = 0; i < num_buf; i++) {
		if (buf_list[i].length > sq->max_inline - len) {
			wr_fail(sq, EINVAL);
			return;
		}
		if (buf_list[i].length)
			memcpy(data + len, buf_list[i].addr,
			       buf_list[i].length);
		len += buf_list[i].length;
	}
	wqe->flags |= IBV_SEND_INLINE;
	wqe->num_sge = 0;
	wqe->inline_len = len;
}

static void keel_wr_set_inline_data(struct ibv_qp_ex *ibqp, void *addr,
				    size_t length)
{
	struct ibv_data_buf buf = { .addr = addr, .length = length };

	keel_wr_set_inline_data_list(ibqp, 1, &buf);
}

static void keel_wr_set_ud_addr(struct ibv_qp_ex *ibqp, struct ibv_ah *ibah,
				uint32_t remote_qpn, uint32_t remote_qkey)
{
	struct keel_sq *sq = &to_kqp_ex(ibqp)->sq;
	struct keel_uapi_send_wqe *wqe = sq->wqe;

	if (!wqe)
		return;
	if (ibqp->qp_base.qp_type != IBV_QPT_UD || !ibah) {
		wr_fail(sq, EINVAL);
		return;
	}
	wqe->ud.ah = to_kah(ibah)->ah;
	wqe->ud.qpn = remote_qpn;
	wqe->ud.qkey = remote_qkey;
}

static void keel_wr_set_xrc_srqn(struct ibv_qp_ex *ibqp, uint32_t remote_srqn)
{
	struct keel_sq *sq = &to_kqp_ex(ibqp)->sq;

	if (!sq->wqe)
		return;
	if (ibqp->qp_base.qp_type == IBV_QPT_XRC_SEND)
		sq->wqe->srqn = remote_srqn;
	else
		wr_fail(sq, EINVAL);
}

/*
 * Set all functions. An opcode that the QP type does not support fails in
 * ibv_wr_complete(), instead of calling a NULL pointer.
 */
void keel_set_wr_ops(struct ibv_qp_ex *ibqp)
{
	ibqp->wr_abort = keel_wr_abort;
	ibqp->wr_atomic_cmp_swp = keel_wr_atomic_cmp_swp;
	ibqp->wr_atomic_fetch_add = keel_wr_atomic_fetch_add;
	ibqp->wr_atomic_write = keel_wr_atomic_write;
	ibqp->wr_bind_mw = keel_wr_bind_mw;
	ibqp->wr_complete = keel_wr_complete;
	ibqp->wr_flush = keel_wr_flush;
	ibqp->wr_local_inv = keel_wr_local_inv;
	ibqp->wr_rdma_read = keel_wr_rdma_read;
	ibqp->wr_rdma_write = keel_wr_rdma_write;
	ibqp->wr_rdma_write_imm = keel_wr_rdma_write_imm;
	ibqp->wr_send = keel_wr_send;
	ibqp->wr_send_imm = keel_wr_send_imm;
	ibqp->wr_send_inv = keel_wr_send_inv;
	ibqp->wr_set_inline_data = keel_wr_set_inline_data;
	ibqp->wr_set_inline_data_list = keel_wr_set_inline_data_list;
	ibqp->wr_set_sge = keel_wr_set_sge;
	ibqp->wr_set_sge_list = keel_wr_set_sge_list;
	ibqp->wr_set_ud_addr = keel_wr_set_ud_addr;
	ibqp->wr_set_xrc_srqn = keel_wr_set_xrc_srqn;
	ibqp->wr_start = keel_wr_start;
}
