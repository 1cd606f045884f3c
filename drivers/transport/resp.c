// SPDX-License-Identifier: GPL-2.0
/*
 * The responder: what a send, an RDMA operation or an atomic does to the QP
 * at the other end, and what the sender is told. Statuses and states are those
 * of the InfiniBand specification, section 9.9: a responder's error that is
 * its own affair (a bad receive) completes that receive and fails the QP; one
 * that the requester caused (a bad rkey) fails the QP with an event, and the
 * requester hears of both.
 */
#include "keel_resp_lock.h"

static bool keel_is_uc(const struct keel_xfer *x)
{
	return x->qp->type == IB_QPT_UC;
}

/* Nobody acknowledges anything on UC: for the sender all is well. */
static enum keel_verdict keel_resp_done(struct keel_xfer *x,
					enum ib_wc_status status, u32 why)
{
	x->status = keel_is_uc(x) ? IB_WC_SUCCESS : status;
	x->why = keel_is_uc(x) ? KEEL_WHY_NONE : why;
	return KEEL_XFER_DONE;
}

/*
 * The request was wrong: the responder fails. The error is reported by the
 * receive that the request would have used, or by an event where it uses none.
 */
static enum keel_verdict keel_resp_refuse(struct keel_xfer *x,
					  enum ib_wc_status status, u32 why)
{
	enum ib_event_type event = status == IB_WC_REM_ACCESS_ERR ?
				   IB_EVENT_QP_ACCESS_ERR :
				   IB_EVENT_QP_REQ_ERR;

	/* UC drops it without a word. */
	if (keel_is_uc(x))
		return keel_resp_done(x, status, why);
	if (x->wqe->opcode == IB_WR_RDMA_WRITE_WITH_IMM)
		keel_recv_complete(x, status, why, 0, 0);
	else
		keel_qp_fail(x->peer, IB_QPS_ERR, event);
	return keel_resp_done(x, status, why);
}

/* The receive was wrong, or too small: it completes in error. */
static enum keel_verdict keel_resp_bad_recv(struct keel_xfer *x,
					    enum ib_wc_status status, u32 why)
{
	keel_recv_complete(x, status, why, 0, 0);
	return keel_resp_done(x, status == IB_WC_LOC_LEN_ERR ?
			      IB_WC_REM_INV_REQ_ERR : IB_WC_REM_OP_ERR, why);
}

/* No receive there: RC waits, UC loses the message. */
static enum keel_verdict keel_resp_no_recv(struct keel_xfer *x, int ret)
{
	if (ret == -EAGAIN)
		return KEEL_XFER_STOPPED;
	if (ret < 0)
		return keel_resp_done(x, IB_WC_REM_OP_ERR, KEEL_WHY_RING);
	if (keel_is_uc(x))
		return keel_resp_done(x, IB_WC_SUCCESS, KEEL_WHY_NONE);
	return KEEL_XFER_RNR;
}

static enum keel_copy_result keel_resp_copy(struct keel_xfer *x,
					    const struct keel_segs *dst,
					    const struct keel_segs *src)
{
	bool relax = keel_segs_may_lack(dst) || keel_segs_may_lack(src);
	enum keel_copy_result res;

	if (relax)
		keel_resp_relax();
	res = keel_copy(dst, 0, src, 0, src->len, &x->qp->sq.fetch.ctl);
	if (relax)
		keel_resp_stay();
	return res;
}

/* Flags that immediate data or an invalidation add to the completion. */
static u8 keel_resp_flags(const struct keel_uapi_send_wqe *wqe)
{
	switch (wqe->opcode) {
	case IB_WR_SEND_WITH_IMM:
	case IB_WR_RDMA_WRITE_WITH_IMM:
		return KEEL_CQE_F_IMM;
	case IB_WR_SEND_WITH_INV:
		return KEEL_CQE_F_INV;
	default:
		return 0;
	}
}

/* All is well, if the peer hears of it. */
static enum keel_verdict keel_resp_received(struct keel_xfer *x, u32 len)
{
	if (keel_recv_complete(x, IB_WC_SUCCESS, KEEL_WHY_NONE, len,
			       keel_resp_flags(x->wqe)))
		return keel_resp_done(x, IB_WC_REM_OP_ERR, KEEL_WHY_RING);
	return keel_resp_done(x, IB_WC_SUCCESS, KEEL_WHY_NONE);
}

static int keel_resp_invalidate(struct keel_xfer *x)
{
	const struct keel_scope scope = keel_qp_scope(x->peer, x->domain);
	int ret;

	/* It waits for all users of a key, and we may be one. */
	keel_segs_put(&x->qp->sq.segs);
	keel_resp_relax();
	ret = keel_invalidate(&scope, x->wqe->imm);
	keel_resp_stay();
	return ret;
}

static enum keel_verdict keel_resp_sent(struct keel_xfer *x)
{
	u64 len = x->qp->sq.segs.len;

	if (x->wqe->opcode == IB_WR_SEND_WITH_INV && keel_resp_invalidate(x)) {
		/* Class J: the bytes are there, and the requester has done well. */
		keel_recv_complete(x, IB_WC_REM_INV_REQ_ERR, KEEL_WHY_KEY, 0, 0);
		return keel_resp_done(x, IB_WC_SUCCESS, KEEL_WHY_NONE);
	}
	return keel_resp_received(x, len);
}

/* A receive that no message has begun to use is filled from its start. */
static void keel_resp_begin(struct keel_xfer *x)
{
	struct keel_resp *resp = &x->peer->resp;
	u64 gen = atomic64_read(&x->qp->gen);

	if (resp->from != gen)
		x->qp->sq.fetch.ctl.done = 0;
	resp->from = gen;
}

/**
 * keel_resp_send() - a send arrives
 * @x: the message, with a peer
 *
 * Context: the peer's responder lock is held, see keel_resp_lock.h.
 * Return: what became of it.
 */
enum keel_verdict keel_resp_send(struct keel_xfer *x)
{
	struct keel_segs *dst = &x->peer->resp.segs;
	const struct keel_segs *src = &x->qp->sq.segs;
	enum keel_copy_result copied;
	enum ib_wc_status status;
	u32 why = KEEL_WHY_NONE;
	int ret = keel_recv_take(x);

	if (ret <= 0)
		return keel_resp_no_recv(x, ret);
	keel_resp_begin(x);
	status = keel_recv_segs(x->peer, src->len, &why);
	if (status != IB_WC_SUCCESS)
		return keel_resp_bad_recv(x, status, why);
	if (src->len > dst->len) {
		keel_segs_put(dst);
		return keel_resp_bad_recv(x, IB_WC_LOC_LEN_ERR,
					  KEEL_WHY_LENGTH);
	}
	copied = keel_resp_copy(x, dst, src);
	keel_segs_put(dst);
	switch (copied) {
	case KEEL_COPY_DONE:
		return keel_resp_sent(x);
	case KEEL_COPY_DST:
		return keel_resp_bad_recv(x, IB_WC_LOC_PROT_ERR,
					  KEEL_WHY_FAULT);
	case KEEL_COPY_SRC:
		/* The receive waits for the next message, or the flush. */
		x->status = IB_WC_LOC_PROT_ERR;
		x->why = KEEL_WHY_FAULT;
		return KEEL_XFER_DONE;
	case KEEL_COPY_ABSENT:
		return KEEL_XFER_ABSENT;
	default:
		return KEEL_XFER_STOPPED;
	}
}

/* Does the responder allow it, and what memory is it about? */
static bool keel_resp_remote(struct keel_xfer *x, u32 access, u32 rkey,
			     u64 addr, u64 len, enum keel_verdict *verdict)
{
	const struct keel_scope scope = keel_qp_scope(x->peer, x->domain);
	struct keel_segs *remote = &x->qp->sq.remote;
	u32 why = KEEL_WHY_QP_ACCESS;

	if (!(x->peer->attr.qp_access_flags & access)) {
		*verdict = keel_resp_refuse(x, IB_WC_REM_INV_REQ_ERR, why);
		return false;
	}
	if (keel_segs_remote(&scope, remote, rkey, access, addr, len, &why)) {
		*verdict = keel_resp_refuse(x, IB_WC_REM_ACCESS_ERR, why);
		return false;
	}
	return true;
}

/* After a copy between local (of the requester) and remote memory. */
static enum keel_verdict keel_resp_copied(struct keel_xfer *x,
					  enum keel_copy_result copied,
					  enum keel_copy_result local)
{
	if (copied == KEEL_COPY_STOPPED)
		return KEEL_XFER_STOPPED;
	if (copied == KEEL_COPY_ABSENT)
		return KEEL_XFER_ABSENT;
	if (copied == KEEL_COPY_DONE)
		return keel_resp_done(x, IB_WC_SUCCESS, KEEL_WHY_NONE);
	if (copied != local)
		return keel_resp_refuse(x, IB_WC_REM_ACCESS_ERR,
					KEEL_WHY_FAULT);
	x->status = IB_WC_LOC_PROT_ERR;
	x->why = KEEL_WHY_FAULT;
	return KEEL_XFER_DONE;
}

/* Immediate data take a receive, whose memory is not used. */
static bool keel_resp_take_imm(struct keel_xfer *x, enum keel_verdict *verdict)
{
	enum ib_wc_status status;
	u32 why = KEEL_WHY_NONE;
	int ret = keel_recv_take(x);

	if (ret <= 0) {
		*verdict = keel_resp_no_recv(x, ret);
		return false;
	}
	status = keel_recv_segs(x->peer, 0, &why);
	if (status != IB_WC_SUCCESS) {
		*verdict = keel_resp_bad_recv(x, status, why);
		return false;
	}
	return true;
}

/**
 * keel_resp_write() - an RDMA write arrives
 * @x: the message, with a peer
 *
 * The receive for immediate data is taken first: it reports what is wrong with
 * the key, and where there is none, nothing need be copied twice.
 *
 * Context: the peer's responder lock is held, see keel_resp_lock.h.
 * Return: the verdict on the work request.
 */
enum keel_verdict keel_resp_write(struct keel_xfer *x)
{
	bool imm = x->wqe->opcode == IB_WR_RDMA_WRITE_WITH_IMM;
	struct keel_sq *sq = &x->qp->sq;
	u64 len = sq->segs.len;
	enum keel_copy_result copied;
	enum keel_verdict verdict;

	if (imm && !keel_resp_take_imm(x, &verdict))
		return verdict;
	if (!keel_resp_remote(x, IB_ACCESS_REMOTE_WRITE, x->wqe->rdma.rkey,
			      x->wqe->rdma.remote_addr, len, &verdict))
		return verdict;
	copied = keel_resp_copy(x, &sq->remote, &sq->segs);
	keel_segs_put(&sq->remote);
	if (copied != KEEL_COPY_DONE)
		return keel_resp_copied(x, copied, KEEL_COPY_SRC);
	keel_count(x->qp->kdev, rdma_writes, 1);
	if (imm)
		return keel_resp_received(x, len);
	return keel_resp_done(x, IB_WC_SUCCESS, KEEL_WHY_NONE);
}

/**
 * keel_resp_read() - an RDMA read arrives
 * @x: the message, with a peer
 *
 * Context: the peer's responder lock is held, see keel_resp_lock.h.
 * Return: what became of it.
 */
enum keel_verdict keel_resp_read(struct keel_xfer *x)
{
	struct keel_sq *sq = &x->qp->sq;
	enum keel_copy_result copied;
	enum keel_verdict verdict;

	if (!x->peer->attr.max_dest_rd_atomic)
		return keel_resp_refuse(x, IB_WC_REM_INV_REQ_ERR,
					KEEL_WHY_DEPTH);
	if (!keel_resp_remote(x, IB_ACCESS_REMOTE_READ, x->wqe->rdma.rkey,
			      x->wqe->rdma.remote_addr, sq->segs.len,
			      &verdict))
		return verdict;
	copied = keel_resp_copy(x, &sq->segs, &sq->remote);
	keel_segs_put(&sq->remote);
	if (copied == KEEL_COPY_DONE)
		keel_count(x->qp->kdev, rdma_reads, 1);
	x->byte_len = sq->segs.len;
	return keel_resp_copied(x, copied, KEEL_COPY_DST);
}

/* 8 bytes that are to change in one go: as keel_resp_remote(). */
static bool keel_resp_word(struct keel_xfer *x, u32 access, u32 rkey, u64 addr,
			   enum keel_verdict *verdict)
{
	u32 why = !x->peer->attr.max_dest_rd_atomic ? KEEL_WHY_DEPTH :
		  addr % sizeof(u64) ? KEEL_WHY_ALIGN : KEEL_WHY_NONE;

	if (why) {
		*verdict = keel_resp_refuse(x, IB_WC_REM_INV_REQ_ERR, why);
		return false;
	}
	return keel_resp_remote(x, access, rkey, addr, sizeof(u64), verdict);
}

/* A change of a word at the peer's: as keel_resp_copy(). */
static int keel_resp_change_word(struct keel_xfer *x)
{
	const struct keel_uapi_send_wqe *wqe = x->wqe;
	struct keel_sq *sq = &x->qp->sq;
	bool relax = keel_segs_may_lack(&sq->remote);
	int ret;

	if (relax)
		keel_resp_relax();
	if (wqe->opcode == IB_WR_ATOMIC_WRITE)
		ret = keel_atomic_write(&sq->remote.seg[0], sq->word,
					&sq->fetch.ctl);
	else
		ret = keel_atomic(&sq->remote.seg[0],
				  wqe->opcode == IB_WR_ATOMIC_CMP_AND_SWP,
				  wqe->atomic.compare_add, wqe->atomic.swap,
				  &sq->word, &sq->fetch.ctl);
	if (relax)
		keel_resp_stay();
	keel_segs_put(&sq->remote);
	return ret;
}

/* Nothing has changed. */
static enum keel_verdict keel_resp_word_failed(struct keel_xfer *x, int ret)
{
	if (ret == -EAGAIN)
		return KEEL_XFER_ABSENT;
	if (ret == -EINVAL)
		return keel_resp_refuse(x, IB_WC_REM_INV_REQ_ERR,
					KEEL_WHY_ALIGN);
	return keel_resp_refuse(x, IB_WC_REM_ACCESS_ERR, KEEL_WHY_FAULT);
}

/* Change the memory, once: a message that is begun anew does not again. */
static bool keel_resp_change(struct keel_xfer *x, enum keel_verdict *verdict)
{
	const struct keel_uapi_send_wqe *wqe = x->wqe;
	struct keel_sq *sq = &x->qp->sq;
	int ret;

	if (sq->stage == KEEL_STAGE_DONE)
		return true;
	if (!keel_resp_word(x, IB_ACCESS_REMOTE_ATOMIC, wqe->atomic.rkey,
			    wqe->atomic.remote_addr, verdict))
		return false;
	ret = keel_resp_change_word(x);
	if (ret) {
		*verdict = keel_resp_word_failed(x, ret);
		return false;
	}
	sq->stage = KEEL_STAGE_DONE;
	keel_count(x->qp->kdev, atomics, 1);
	return true;
}

/**
 * keel_resp_atomic() - a compare-and-swap or fetch-and-add arrives
 * @x: the message, with a peer
 *
 * Context: the peer's responder lock is held, see keel_resp_lock.h.
 * Return: the verdict on the work request.
 */
enum keel_verdict keel_resp_atomic(struct keel_xfer *x)
{
	struct keel_sq *sq = &x->qp->sq;
	const struct keel_mem mem = { .type = KEEL_MEM_KERNEL,
				      .start = (uintptr_t)&sq->word };
	enum keel_copy_result copied;
	enum keel_verdict verdict;

	if (!keel_resp_change(x, &verdict))
		return verdict;
	keel_segs_one(&sq->remote, &mem, 0, sizeof(sq->word));
	x->byte_len = sizeof(sq->word);
	copied = keel_resp_copy(x, &sq->segs, &sq->remote);
	return keel_resp_copied(x, copied, KEEL_COPY_DST);
}

/* The operand of an atomic write, before anything of the peer is looked at. */
static enum keel_copy_result keel_resp_operand(struct keel_xfer *x)
{
	struct keel_sq *sq = &x->qp->sq;
	const struct keel_mem mem = { .type = KEEL_MEM_KERNEL,
				      .start = (uintptr_t)&sq->word };
	enum keel_copy_result copied;

	if (sq->stage != KEEL_STAGE_NEW)
		return KEEL_COPY_DONE;
	keel_segs_one(&sq->remote, &mem, 0, sizeof(sq->word));
	copied = keel_resp_copy(x, &sq->remote, &sq->segs);
	if (copied == KEEL_COPY_DONE)
		sq->stage = KEEL_STAGE_FETCHED;
	return copied;
}

/**
 * keel_resp_atomic_write() - an atomic write arrives
 * @x: the message, with a peer
 *
 * Context: the peer's responder lock is held, see keel_resp_lock.h.
 * Return: the verdict on the work request.
 */
enum keel_verdict keel_resp_atomic_write(struct keel_xfer *x)
{
	struct keel_sq *sq = &x->qp->sq;
	enum keel_copy_result copied;
	enum keel_verdict verdict;
	int ret;

	copied = keel_resp_operand(x);
	if (copied != KEEL_COPY_DONE)
		return keel_resp_copied(x, copied, KEEL_COPY_SRC);
	if (sq->stage != KEEL_STAGE_DONE) {
		if (!keel_resp_word(x, IB_ACCESS_REMOTE_WRITE,
				    x->wqe->rdma.rkey,
				    x->wqe->rdma.remote_addr, &verdict))
			return verdict;
		ret = keel_resp_change_word(x);
		if (ret)
			return keel_resp_word_failed(x, ret);
		sq->stage = KEEL_STAGE_DONE;
		keel_count(x->qp->kdev, atomic_writes, 1);
	}
	return keel_resp_copied(x, keel_copy_end(&sq->fetch.ctl),
				KEEL_COPY_SRC);
}

/**
 * keel_resp_flush() - a flush arrives
 * @x: the message, with a peer
 *
 * The bytes that the queue wrote are in coherent memory when the write completes,
 * so nothing is left to be moved: only its order against what follows. No region
 * is of memory that outlives a power failure, so none has the right to
 * persistence, and a flush that wants it is refused.
 *
 * Context: the peer's responder lock is held, see keel_resp_lock.h.
 * Return: what became of it.
 */
enum keel_verdict keel_resp_flush(struct keel_xfer *x)
{
	const struct keel_scope scope = keel_qp_scope(x->peer, x->domain);
	const struct keel_uapi_send_wqe *wqe = x->wqe;
	bool persistent = wqe->flush.type & IB_FLUSH_PERSISTENT;
	u32 why = KEEL_WHY_ACCESS;
	u32 access = 0;

	if (wqe->flush.type & IB_FLUSH_GLOBAL)
		access |= IB_ACCESS_FLUSH_GLOBAL;
	if (persistent)
		access |= IB_ACCESS_FLUSH_PERSISTENT;
	if (!x->peer->attr.max_dest_rd_atomic)
		return keel_resp_refuse(x, IB_WC_REM_INV_REQ_ERR,
					KEEL_WHY_DEPTH);
	if (access & ~x->peer->attr.qp_access_flags)
		return keel_resp_refuse(x, IB_WC_REM_INV_REQ_ERR,
					KEEL_WHY_QP_ACCESS);
	if (persistent || keel_flush_check(&scope, wqe, access, &why))
		return keel_resp_refuse(x, IB_WC_REM_ACCESS_ERR, why);
	/* Before the completion, for processors and devices alike. */
	wmb();
	keel_count(x->qp->kdev, rdma_flushes, 1);
	return keel_resp_done(x, IB_WC_SUCCESS, KEEL_WHY_NONE);
}
