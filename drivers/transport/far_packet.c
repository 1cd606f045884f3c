// SPDX-License-Identifier: GPL-2.0
/*
 * A packet of another host as a message, or as a part of one, for the functions that
 * execute those of this host. Nothing in it is trusted.
 */
#include "keel_far.h"
#include "keel_opcode.h"
#include "keel_qp.h"
#include "keel_resp_lock.h"

/**
 * keel_far_is_data() - may a message of an operation have several packets with data?
 * @opcode: the operation
 *
 * Return: true if so.
 */
bool keel_far_is_data(u8 opcode)
{
	return opcode == IB_WR_SEND || opcode == IB_WR_SEND_WITH_IMM ||
	       opcode == IB_WR_SEND_WITH_INV || opcode == IB_WR_RDMA_WRITE ||
	       opcode == IB_WR_RDMA_WRITE_WITH_IMM;
}

/**
 * keel_far_is_short() - is a packet a whole message that is soon executed?
 * @frame: its header
 *
 * To invalidate a key waits for those that use it, and the worker has to get memory for long
 * messages: keel_far_grow().
 *
 * Return: true if so.
 */
bool keel_far_is_short(const struct keel_frame *frame)
{
	const u8 whole = KEEL_FRAME_F_FIRST | KEEL_FRAME_F_LAST;

	if ((frame->flags & whole) != whole)
		return false;
	switch (frame->request.opcode) {
	case IB_WR_SEND:
	case IB_WR_SEND_WITH_IMM:
	case IB_WR_RDMA_WRITE:
	case IB_WR_RDMA_WRITE_WITH_IMM:
		return le32_to_cpu(frame->len) <= KEEL_FRAME_DATA;
	case IB_WR_RDMA_READ:
		return le32_to_cpu(frame->request.bytes) <= KEEL_FRAME_DATA;
	case IB_WR_ATOMIC_CMP_AND_SWP:
	case IB_WR_ATOMIC_FETCH_AND_ADD:
	case IB_WR_ATOMIC_WRITE:
		return true;
	default:
		return false;
	}
}

/* As keel_req_flush(). */
static bool keel_far_flush_ok(u16 kind)
{
	u8 type = kind & 0xff, level = kind >> 8;

	return type && level <= IB_FLUSH_MR &&
	       !(type & ~(IB_FLUSH_GLOBAL | IB_FLUSH_PERSISTENT));
}

/* Is a packet one of the message that has begun? */
static bool keel_far_continues(const struct keel_far *far, const struct keel_frame *frame)
	__must_hold(&far->from.lock)
{
	return far->offset && far->opcode == frame->request.opcode &&
	       far->srqn == le32_to_cpu(frame->srqn);
}

/* Are the lengths and flags of a packet those of its operation? */
static bool keel_far_lengths_ok(const struct keel_far *far, const struct keel_frame *frame,
				bool again)
	__must_hold(&far->from.lock)
{
	bool first = frame->flags & KEEL_FRAME_F_FIRST, last = frame->flags & KEEL_FRAME_F_LAST;
	u32 bytes = le32_to_cpu(frame->request.bytes), len = le32_to_cpu(frame->len);
	u64 left = le64_to_cpu(frame->request.left);
	u8 opcode = frame->request.opcode;

	/* Nothing comes in between the packets of a message, but a read that comes again. */
	if (far->offset && !keel_far_is_data(opcode) && !again)
		return false;
	if (opcode == IB_WR_RDMA_READ) {
		if (len || left > KEEL_MAX_MSG)
			return false;
		return last ? left == bytes : bytes >= KEEL_FRAME_DATA && left > bytes;
	}
	if (bytes)
		return false;
	if (opcode == IB_WR_FLUSH && !keel_far_flush_ok(le16_to_cpu(frame->request.kind)))
		return false;
	if (!keel_far_is_data(opcode))
		return first && last && len == (opcode == IB_WR_ATOMIC_WRITE ? sizeof(u64) : 0);
	if (first ? far->offset : !keel_far_continues(far, frame))
		return false;
	if (left > KEEL_MAX_MSG || far->offset + left > KEEL_MAX_MSG)
		return false;
	return last ? left == len : len >= KEEL_FRAME_DATA && left > len;
}

/**
 * keel_far_wqe() - the WQE that a packet stands for
 * @frame: its header
 * @wqe: is set; only the last packet of a message has its effects
 */
void keel_far_wqe(const struct keel_frame *frame, struct keel_uapi_send_wqe *wqe)
{
	bool last = frame->flags & KEEL_FRAME_F_LAST;
	u16 kind = le16_to_cpu(frame->request.kind);

	wqe->opcode = frame->request.opcode;
	wqe->flags = frame->flags & KEEL_FRAME_F_SOLICITED ? IB_SEND_SOLICITED : 0;
	wqe->imm = le32_to_cpu(frame->request.imm);
	switch (wqe->opcode) {
	case IB_WR_SEND_WITH_IMM:
	case IB_WR_SEND_WITH_INV:
		if (!last)
			wqe->opcode = IB_WR_SEND;
		break;
	case IB_WR_RDMA_WRITE_WITH_IMM:
		if (!last)
			wqe->opcode = IB_WR_RDMA_WRITE;
		fallthrough;
	case IB_WR_RDMA_WRITE:
	case IB_WR_RDMA_READ:
	case IB_WR_ATOMIC_WRITE:
		wqe->rdma.rkey = le32_to_cpu(frame->request.rkey);
		wqe->rdma.remote_addr = le64_to_cpu(frame->request.addr);
		break;
	case IB_WR_ATOMIC_CMP_AND_SWP:
	case IB_WR_ATOMIC_FETCH_AND_ADD:
		wqe->atomic.rkey = le32_to_cpu(frame->request.rkey);
		wqe->atomic.remote_addr = le64_to_cpu(frame->request.addr);
		wqe->atomic.compare_add = le64_to_cpu(frame->request.a);
		wqe->atomic.swap = le64_to_cpu(frame->request.b);
		break;
	case IB_WR_FLUSH:
		wqe->flush.rkey = le32_to_cpu(frame->request.rkey);
		wqe->flush.remote_addr = le64_to_cpu(frame->request.addr);
		wqe->flush.length = le64_to_cpu(frame->request.left);
		wqe->flush.type = kind & 0xff;
		wqe->flush.level = kind >> 8;
		break;
	default:
		break;
	}
}

/*
 * The first packet of a long RDMA message: its whole range is checked before a byte is
 * transferred. Return: false if it was refused.
 */
static bool keel_far_range_ok(struct keel_xfer *x, const struct keel_frame *frame,
			      enum keel_xfer_result *result)
	__must_hold(&x->from->lock, &x->peer->resp.lock)
{
	u32 access = x->wqe->opcode == IB_WR_RDMA_READ ? IB_ACCESS_REMOTE_READ :
							 IB_ACCESS_REMOTE_WRITE;

	if (!(frame->flags & KEEL_FRAME_F_FIRST) || frame->flags & KEEL_FRAME_F_LAST ||
	    (x->wqe->opcode != IB_WR_RDMA_READ && x->wqe->opcode != IB_WR_RDMA_WRITE))
		return true;
	if (!keel_resp_remote(x, access, x->wqe->rdma.rkey, x->wqe->rdma.remote_addr,
			      le64_to_cpu(frame->request.left), result))
		return false;
	keel_segs_put(&x->from->remote);
	return true;
}

/* No requester of keel sends such a packet. */
static enum keel_xfer_result keel_far_malformed(struct keel_xfer *x)
	__must_hold(&x->peer->resp.lock)
{
	/*
	 * Not keel_resp_refuse(): no receive WQE was taken for immediate data. One that comes
	 * again has no effect.
	 */
	if (x->peer->type != IB_QPT_UC && !x->again)
		keel_qp_fail(x->peer, IB_QPS_ERR, IB_EVENT_QP_REQ_ERR);
	x->refused = true;
	x->status = IB_WC_REM_INV_REQ_ERR;
	x->why = KEEL_WHY_OPCODE;
	return KEEL_XFER_DONE;
}

/* The type of the QP that sends to @peer. */
static enum ib_qp_type keel_far_sender(const struct keel_qp *peer)
{
	return peer->type == IB_QPT_XRC_TGT ? IB_QPT_XRC_INI : peer->type;
}

/* Execute a packet, with the lock of the responder. */
static enum keel_xfer_result keel_far_at_peer(struct keel_xfer *x, struct keel_far *far,
					      struct keel_far_slot *slot,
					      const struct keel_srq *srq)
	__must_hold(&x->from->lock, &x->peer->resp.lock)
{
	const struct keel_frame *frame = &slot->frame;
	u32 len = le32_to_cpu(frame->len);
	/* The lock of @x->from is that of @far. */
	const u64 before = context_unsafe(far->offset);
	const u64 offset = keel_far_is_data(frame->request.opcode) ? before : 0;
	/* Likewise. */
	const bool ok = context_unsafe(keel_far_lengths_ok(far, frame, x->again));
	enum keel_xfer_result result;

	if (!ok || !x->op || !(x->op->types & BIT(keel_far_sender(x->peer))) ||
	    x->op->flags & (KEEL_OP_LOCAL | KEEL_OP_KERNEL))
		return keel_far_malformed(x);
	if (x->peer->type == IB_QPT_XRC_TGT) {
		if (!keel_resp_find_srq(x, le32_to_cpu(frame->srqn)))
			return KEEL_XFER_DONE;
		/* It was created since keel_far_place(). */
		if (x->srq != srq)
			return KEEL_XFER_STOPPED;
	}
	if (frame->request.opcode == IB_WR_RDMA_READ)
		len = le32_to_cpu(frame->request.bytes);
	else if (x->op->flags & KEEL_OP_ATOMIC)
		len = sizeof(u64);
	/* Likewise. */
	keel_segs_one(&x->from->segs, context_unsafe(&far->mem), 0, len);
	x->len = len;
	x->total = offset + le64_to_cpu(frame->request.left);
	/* A packet of a write has its own address. */
	if (x->op->run == keel_resp_send)
		x->off = offset;
	x->part = !(frame->flags & KEEL_FRAME_F_LAST);
	if (!keel_far_range_ok(x, frame, &result))
		return result;
	/* As the table of operations says, not as the packet: it may be a part. */
	return keel_opcode_find(x->wqe->opcode)->run(x);
}

/**
 * keel_far_may_execute() - is a QP in a state to receive?
 * @qp: the QP
 *
 * Context: any; it may change at once unless the lock of the responder is held.
 * Return: true if so.
 */
bool keel_far_may_execute(const struct keel_qp *qp)
{
	enum ib_qp_state state = keel_qp_state(qp);

	return !keel_qp_is_dying(qp) && state >= IB_QPS_RTR && state != IB_QPS_ERR;
}

/**
 * keel_far_try() - try to execute a packet
 * @x: the packet, whose peer is the QP, with a reference
 * @far: of the QP
 * @slot: the packet
 * @srq: XRC: the only SRQ that it is executed for, or NULL
 *
 * Context: the lock of &keel_far.from is held, and preemption is disabled.
 * Return: KEEL_XFER_BUSY: the lock of the responder is taken; KEEL_XFER_NO_PEER: the QP
 * cannot receive; else as the functions of the operation.
 */
enum keel_xfer_result keel_far_try(struct keel_xfer *x, struct keel_far *far,
				   struct keel_far_slot *slot, const struct keel_srq *srq)
	__must_hold(&x->from->lock)
{
	enum keel_xfer_result result = KEEL_XFER_BUSY;
	struct keel_qp *qp = far->qp;

	x->from->segs.n = 0;
	if (mutex_trylock(&qp->resp.lock)) {
		/* A reset waits for the lock, and clears what there is afterwards. */
		result = KEEL_XFER_NO_PEER;
		if (keel_far_may_execute(qp))
			/* @x->peer is @qp. */
			result = context_unsafe(keel_far_at_peer(x, far, slot, srq));
		mutex_unlock(&qp->resp.lock);
	}
	keel_segs_put(&x->from->segs);
	return result;
}
