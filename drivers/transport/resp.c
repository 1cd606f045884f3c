// SPDX-License-Identifier: GPL-2.0
/*
 * The responder: executes sends, RDMA operations and flushes at the peer, and
 * decides the status of the requester's CQE; resp_atomic.c does so for atomics.
 * Statuses and states are those of section 9.9 of the InfiniBand specification. An
 * error of the responder itself (a bad receive WQE) completes that receive WQE in
 * error and fails the QP. An error that the requester caused (a bad rkey) fails the
 * QP with an event. In both cases the requester's CQE has an error status, except on
 * UC.
 */
#include <linux/ktime.h>

#include "keel_helpers.h"
#include "keel_resp_lock.h"

/* How long a send with invalidate waits for the users of a key with a lock. */
#define KEEL_INVALIDATE_NS	(500 * NSEC_PER_USEC)

static bool keel_is_uc(const struct keel_xfer *x)
{
	return x->peer->type == IB_QPT_UC;
}

/* UC has no acknowledgements: the requester always reports success. */
static enum keel_xfer_result keel_resp_done(struct keel_xfer *x,
					    enum ib_wc_status status, u32 why)
{
	x->refused = status != IB_WC_SUCCESS;
	x->status = keel_is_uc(x) ? IB_WC_SUCCESS : status;
	x->why = keel_is_uc(x) ? KEEL_WHY_NONE : why;
	return KEEL_XFER_DONE;
}

/**
 * keel_resp_refuse() - end a message that is invalid
 * @x: the message
 * @status: status of the requester's CQE
 * @why: vendor error
 *
 * The responder's QP fails. The receive WQE of a write with immediate data completes in
 * error. Without one, the QP raises an event. UC only drops the message.
 *
 * Context: the peer's responder lock is held, maybe without preemption.
 * Return: KEEL_XFER_DONE.
 */
enum keel_xfer_result keel_resp_refuse(struct keel_xfer *x,
				       enum ib_wc_status status, u32 why)
	__must_hold(&x->peer->resp.lock)
{
	enum ib_event_type event = status == IB_WC_REM_ACCESS_ERR ?
				   IB_EVENT_QP_ACCESS_ERR :
				   IB_EVENT_QP_REQ_ERR;

	/* UC drops the message silently. */
	if (keel_is_uc(x) || x->again)
		return keel_resp_done(x, status, why);
	if (x->wqe->opcode == IB_WR_RDMA_WRITE_WITH_IMM)
		keel_recv_complete(x, status, why, 0, 0);
	else
		keel_qp_fail(x->peer, IB_QPS_ERR, event);
	return keel_resp_done(x, status, why);
}

/**
 * keel_resp_find_srq() - find the SRQ that a message of XRC is for
 * @x: the message, with a peer; it is refused if there is no such SRQ
 * @srqn: number of the SRQ, which determines the domain that rkeys are checked against
 *
 * Context: as keel_resp_refuse().
 * Return: true: @x->srq is the SRQ, with a reference that keel_xfer_put() drops without
 * the lock; false: the message has ended.
 */
bool keel_resp_find_srq(struct keel_xfer *x, u32 srqn)
{
	struct keel_srq *srq = keel_srq_get(x->peer->kdev, srqn);

	x->srq = srq;
	if (srq && srq->xrcd && srq->xrcd == x->peer->xrcd) {
		x->domain = srq->domain;
		return true;
	}
	x->status = IB_WC_REM_INV_REQ_ERR;
	x->why = KEEL_WHY_SRQ;
	x->refused = true;
	/* A read that comes again may name an SRQ that is gone. */
	if (!x->again)
		keel_qp_fail(x->peer, IB_QPS_ERR, IB_EVENT_QP_REQ_ERR);
	return false;
}

/* The receive WQE is invalid or too small: complete it in error. */
static enum keel_xfer_result keel_resp_bad_recv(struct keel_xfer *x,
						enum ib_wc_status status, u32 why)
	__must_hold(&x->peer->resp.lock)
{
	keel_recv_complete(x, status, why, 0, 0);
	return keel_resp_done(x, status == IB_WC_LOC_LEN_ERR ?
			      IB_WC_REM_INV_REQ_ERR : IB_WC_REM_OP_ERR, why);
}

/* There is no receive WQE: RC waits, UC drops the message. */
static enum keel_xfer_result keel_resp_no_recv(struct keel_xfer *x, int ret)
{
	if (ret == -EAGAIN)
		return KEEL_XFER_STOPPED;
	if (ret < 0)
		return keel_resp_done(x, IB_WC_REM_OP_ERR, KEEL_WHY_RING);
	if (keel_is_uc(x))
		return keel_resp_done(x, IB_WC_SUCCESS, KEEL_WHY_NONE);
	return KEEL_XFER_RNR;
}

/*
 * If the worker of the requester runs this, its helpers. The worker wants some for the next
 * message if it has none.
 */
static struct keel_helpers *keel_resp_helpers(const struct keel_qp *qp, u64 bytes)
{
	struct keel_worker *worker;

	guard(rcu)();
	worker = keel_qp_worker(qp);
	if (!worker || !keel_worker_is_current(worker))
		return NULL;
	keel_worker_want_help(worker, bytes);
	/* This thread keeps them. Pairs with keel_worker_find_help(). */
	return READ_ONCE(worker->helpers);
}

/* Copy with helpers, if there are any, and then the rest. */
static enum keel_copy_result keel_resp_copy_present(struct keel_xfer *x,
						    const struct keel_segs *dst,
						    const struct keel_segs *src)
	__must_hold(&x->from->lock, &x->peer->resp.lock)
{
	struct keel_copy_ctl *ctl = &x->from->fetch.ctl;
	enum keel_copy_result res = KEEL_COPY_DONE;
	struct keel_helpers *helpers;

	if (!x->off && keel_segs_may_share(dst) && keel_segs_may_share(src)) {
		helpers = keel_resp_helpers(x->from->qp, src->len);
		if (helpers)
			res = keel_helpers_copy(helpers, dst, src, ctl);
	}
	return res == KEEL_COPY_DONE ? keel_copy(dst, x->off, src, 0, src->len, ctl) : res;
}

/**
 * keel_resp_copy() - copy between the memory of the requester and of the responder
 * @x: the message, whose &keel_from.fetch has the progress of the copy
 * @dst: to where, from &keel_xfer.off on
 * @src: from where, all bytes
 *
 * Context: the locks of the requester and of the peer's responder are held, without
 * preemption, which is enabled meanwhile if memory may be absent.
 * Return: the result, see enum keel_copy_result.
 */
enum keel_copy_result keel_resp_copy(struct keel_xfer *x,
				     const struct keel_segs *dst,
				     const struct keel_segs *src)
	__must_hold(&x->from->lock, &x->peer->resp.lock)
{
	enum keel_copy_result res;

	if (!keel_segs_may_lack(dst) && !keel_segs_may_lack(src))
		return keel_resp_copy_present(x, dst, src);
	/* To look up pages takes locks of their mapping. */
	if (x->brief)
		return KEEL_COPY_STOPPED;
	keel_resp_relax();
	res = keel_copy(dst, x->off, src, 0, src->len, &x->from->fetch.ctl);
	keel_resp_stay();
	return res;
}

/**
 * keel_resp_copied() - the result of a message from that of its copy
 * @x: the message, which ends unless it must be tried again
 * @copied: the result of the copy
 * @local: KEEL_COPY_SRC or KEEL_COPY_DST: which memory is the requester's
 *
 * Context: the locks of the requester and of the peer's responder are held, maybe
 * without preemption.
 * Return: the result, see enum keel_xfer_result.
 */
enum keel_xfer_result keel_resp_copied(struct keel_xfer *x,
				       enum keel_copy_result copied,
				       enum keel_copy_result local)
	__must_hold(&x->from->lock, &x->peer->resp.lock)
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

/* The CQE flags for immediate data or an invalidated key. */
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

/* The requester reports success, if the responder's CQE could be written. */
static enum keel_xfer_result keel_resp_received(struct keel_xfer *x, u32 len)
	__must_hold(&x->peer->resp.lock)
{
	if (keel_recv_complete(x, IB_WC_SUCCESS, KEEL_WHY_NONE, len,
			       keel_resp_flags(x->wqe)))
		return keel_resp_done(x, IB_WC_REM_OP_ERR, KEEL_WHY_RING);
	return keel_resp_done(x, IB_WC_SUCCESS, KEEL_WHY_NONE);
}

/*
 * When this returns, no thread uses the key any more: the responder's CQE says so.
 * Threads with a reference are not preempted, unless the memory at one of the two
 * ends of their copy may sleep. keel_xfer_put() drops what this takes.
 */
static int keel_resp_invalidate(struct keel_xfer *x)
	__must_hold(&x->from->lock, &x->peer->resp.lock)
{
	const struct keel_scope scope = keel_qp_scope(x->peer, x->domain);
	struct keel_key *key = keel_invalidate(&scope, x->wqe->imm, &x->named);
	u64 until = ktime_get_ns() + KEEL_INVALIDATE_NS;

	if (IS_ERR(key))
		return PTR_ERR(key);
	x->invalidated = key;
	/* The requester itself may have a reference on the key. */
	keel_segs_put(&x->from->segs);
	while (!keel_key_try_drain(key) && ktime_get_ns() < until)
		cpu_relax();
	if (!keel_key_try_drain(key)) {
		keel_resp_relax();
		keel_key_drain(key);
		keel_resp_stay();
	}
	return 0;
}

static enum keel_xfer_result keel_resp_sent(struct keel_xfer *x)
	__must_hold(&x->from->lock, &x->peer->resp.lock)
{
	u64 len = x->total;

	/* The receive WQE stays for the next part. */
	if (x->part)
		return keel_resp_done(x, IB_WC_SUCCESS, KEEL_WHY_NONE);
	if (x->wqe->opcode == IB_WR_SEND_WITH_INV && keel_resp_invalidate(x)) {
		/* Class J: the data is there; the requester reports success. */
		keel_recv_complete(x, IB_WC_REM_INV_REQ_ERR, KEEL_WHY_KEY, 0, 0);
		return keel_resp_done(x, IB_WC_SUCCESS, KEEL_WHY_NONE);
	}
	return keel_resp_received(x, len);
}

/* Continue the receive WQE only if this requester has begun to fill it. */
static void keel_resp_begin(struct keel_xfer *x)
	__must_hold(&x->from->lock, &x->peer->resp.lock)
{
	struct keel_resp *resp = &x->peer->resp;

	if (resp->from_gen != x->gen)
		x->from->fetch.ctl.done = 0;
	resp->from_gen = x->gen;
}

/**
 * keel_resp_send() - execute a send at the responder
 * @x: the message, with a peer
 *
 * Context: the peer's responder lock is held, see keel_resp_lock.h.
 * Return: the result, see enum keel_xfer_result.
 */
enum keel_xfer_result keel_resp_send(struct keel_xfer *x)
{
	struct keel_segs *dst = &x->peer->resp.segs;
	const struct keel_segs *src = &x->from->segs;
	enum keel_copy_result copied;
	enum ib_wc_status status;
	u32 why = KEEL_WHY_NONE;
	int ret;

	/* A later part belongs to the receive WQE that the first one has taken. */
	if (x->off && (!x->peer->resp.have || x->peer->resp.from_gen != x->gen ||
		       (x->srq && !keel_recv_is_of(&x->peer->resp, x->srq))))
		return keel_resp_refuse(x, IB_WC_REM_INV_REQ_ERR, KEEL_WHY_LENGTH);
	ret = keel_recv_take(x);
	if (ret <= 0)
		return keel_resp_no_recv(x, ret);
	keel_resp_begin(x);
	status = keel_recv_segs(x->peer, x->total, &why);
	if (status != IB_WC_SUCCESS)
		return keel_resp_bad_recv(x, status, why);
	if (x->total > dst->len) {
		keel_segs_put(dst);
		return keel_resp_bad_recv(x, IB_WC_LOC_LEN_ERR,
					  KEEL_WHY_LENGTH);
	}
	copied = keel_resp_copy(x, dst, src);
	keel_segs_put(dst);
	if (copied == KEEL_COPY_DONE)
		return keel_resp_sent(x);
	if (copied == KEEL_COPY_DST)
		return keel_resp_bad_recv(x, IB_WC_LOC_PROT_ERR,
					  KEEL_WHY_FAULT);
	/* The receive WQE stays for the next message, or the flush. */
	return keel_resp_copied(x, copied, KEEL_COPY_SRC);
}

/**
 * keel_resp_remote() - check the rights of the QP and of the rkey, and find the memory
 * @x: the message
 * @access: the rights that are needed, enum ib_access_flags
 * @rkey: the rkey
 * @addr: first byte, in the addresses of the rkey
 * @len: bytes
 * @result: gets the result if the message was refused
 *
 * Context: as keel_resp_copied().
 * Return: true: &keel_from.remote is the memory, and the caller calls keel_segs_put();
 * false: the message has ended.
 */
bool keel_resp_remote(struct keel_xfer *x, u32 access, u32 rkey,
		      u64 addr, u64 len, enum keel_xfer_result *result)
	__must_hold(&x->from->lock, &x->peer->resp.lock)
{
	const struct keel_scope scope = keel_qp_scope(x->peer, x->domain);
	struct keel_segs *remote = &x->from->remote;
	u32 why = KEEL_WHY_QP_ACCESS;

	if (!(READ_ONCE(x->peer->attr.qp_access_flags) & access)) {
		*result = keel_resp_refuse(x, IB_WC_REM_INV_REQ_ERR, why);
		return false;
	}
	if (keel_segs_remote(&scope, remote, rkey, access, addr, len, &why)) {
		*result = keel_resp_refuse(x, IB_WC_REM_ACCESS_ERR, why);
		return false;
	}
	return true;
}

/* Immediate data consumes a receive WQE, whose memory is not used. */
static bool keel_resp_take_imm(struct keel_xfer *x,
			       enum keel_xfer_result *result)
	__must_hold(&x->from->lock, &x->peer->resp.lock)
{
	enum ib_wc_status status;
	u32 why = KEEL_WHY_NONE;
	int ret = keel_recv_take(x);

	if (ret <= 0) {
		*result = keel_resp_no_recv(x, ret);
		return false;
	}
	status = keel_recv_segs(x->peer, 0, &why);
	if (status != IB_WC_SUCCESS) {
		*result = keel_resp_bad_recv(x, status, why);
		return false;
	}
	return true;
}

/**
 * keel_resp_write() - execute an RDMA write at the responder
 * @x: the message, with a peer
 *
 * The receive WQE for immediate data is taken first. It reports an invalid
 * rkey. If there is none, the requester waits before it copies anything.
 *
 * Context: the peer's responder lock is held, see keel_resp_lock.h.
 * Return: the result, see enum keel_xfer_result.
 */
enum keel_xfer_result keel_resp_write(struct keel_xfer *x)
{
	bool imm = x->wqe->opcode == IB_WR_RDMA_WRITE_WITH_IMM;
	struct keel_from *from = x->from;
	u64 len = from->segs.len;
	enum keel_copy_result copied;
	enum keel_xfer_result result;

	if (imm && !keel_resp_take_imm(x, &result))
		return result;
	if (!keel_resp_remote(x, IB_ACCESS_REMOTE_WRITE, x->wqe->rdma.rkey,
			      x->wqe->rdma.remote_addr, len, &result))
		return result;
	copied = keel_resp_copy(x, &from->remote, &from->segs);
	keel_segs_put(&from->remote);
	if (copied != KEEL_COPY_DONE)
		return keel_resp_copied(x, copied, KEEL_COPY_SRC);
	keel_count(x->peer->kdev, rdma_writes, 1);
	if (imm)
		return keel_resp_received(x, x->total);
	return keel_resp_done(x, IB_WC_SUCCESS, KEEL_WHY_NONE);
}

/**
 * keel_resp_read() - execute an RDMA read at the responder
 * @x: the message, with a peer
 *
 * Context: the peer's responder lock is held, see keel_resp_lock.h.
 * Return: the result, see enum keel_xfer_result.
 */
enum keel_xfer_result keel_resp_read(struct keel_xfer *x)
{
	struct keel_from *from = x->from;
	enum keel_copy_result copied;
	enum keel_xfer_result result;

	if (!READ_ONCE(x->peer->attr.max_dest_rd_atomic))
		return keel_resp_refuse(x, IB_WC_REM_INV_REQ_ERR,
					KEEL_WHY_DEPTH);
	if (!keel_resp_remote(x, IB_ACCESS_REMOTE_READ, x->wqe->rdma.rkey,
			      x->wqe->rdma.remote_addr, from->segs.len,
			      &result))
		return result;
	copied = keel_resp_copy(x, &from->segs, &from->remote);
	keel_segs_put(&from->remote);
	if (copied == KEEL_COPY_DONE)
		keel_count(x->peer->kdev, rdma_reads, 1);
	x->byte_len = from->segs.len;
	return keel_resp_copied(x, copied, KEEL_COPY_DST);
}

/**
 * keel_resp_flush() - execute a flush at the responder
 * @x: the message, with a peer
 *
 * The data of a write is in coherent memory when the write completes. So a
 * flush moves no data, and only orders it against later operations. No memory
 * region survives a power failure. So none has the access right for
 * persistence, and a flush that asks for persistence is refused.
 *
 * Context: the peer's responder lock is held, see keel_resp_lock.h.
 * Return: the result, see enum keel_xfer_result.
 */
enum keel_xfer_result keel_resp_flush(struct keel_xfer *x)
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
	if (!READ_ONCE(x->peer->attr.max_dest_rd_atomic))
		return keel_resp_refuse(x, IB_WC_REM_INV_REQ_ERR,
					KEEL_WHY_DEPTH);
	if (access & ~READ_ONCE(x->peer->attr.qp_access_flags))
		return keel_resp_refuse(x, IB_WC_REM_INV_REQ_ERR,
					KEEL_WHY_QP_ACCESS);
	if (persistent || keel_flush_check(&scope, wqe, access, &why))
		return keel_resp_refuse(x, IB_WC_REM_ACCESS_ERR, why);
	/* Before the CQE, for processors and devices alike. */
	wmb();
	keel_count(x->peer->kdev, rdma_flushes, 1);
	return keel_resp_done(x, IB_WC_SUCCESS, KEEL_WHY_NONE);
}
