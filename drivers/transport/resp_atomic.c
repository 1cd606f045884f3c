// SPDX-License-Identifier: GPL-2.0
/*
 * The responder: atomic operations and atomic writes. Each has a stage, so that an attempt
 * that finds memory absent is continued, and the peer's memory changes once.
 */
#include "keel_resp_lock.h"

/* As keel_resp_remote(), for an atomic operand, which must be aligned. */
static bool keel_resp_word(struct keel_xfer *x, u32 access, u32 rkey, u64 addr,
			   enum keel_xfer_result *result)
	__must_hold(&x->from->lock, &x->peer->resp.lock)
{
	u32 why = !READ_ONCE(x->peer->attr.max_dest_rd_atomic) ? KEEL_WHY_DEPTH :
		  addr % sizeof(u64) ? KEEL_WHY_ALIGN : KEEL_WHY_NONE;

	if (why) {
		*result = keel_resp_refuse(x, IB_WC_REM_INV_REQ_ERR, why);
		return false;
	}
	return keel_resp_remote(x, access, rkey, addr, sizeof(u64), result);
}

/* Change the atomic operand in the peer's memory: as keel_resp_copy(). */
static int keel_resp_change_word(struct keel_xfer *x)
	__must_hold(&x->from->lock, &x->peer->resp.lock)
{
	const struct keel_uapi_send_wqe *wqe = x->wqe;
	struct keel_from *from = x->from;
	bool relax = keel_segs_may_lack(&from->remote);
	int ret;

	/* As in keel_resp_copy(). */
	if (relax && x->brief) {
		keel_segs_put(&from->remote);
		return -EBUSY;
	}
	if (relax)
		keel_resp_relax();
	if (wqe->opcode == IB_WR_ATOMIC_WRITE)
		ret = keel_atomic_write(&from->remote.seg[0], from->word,
					&from->fetch.ctl);
	else
		ret = keel_atomic(&from->remote.seg[0],
				  wqe->opcode == IB_WR_ATOMIC_CMP_AND_SWP,
				  wqe->atomic.compare_add, wqe->atomic.swap,
				  &from->word, &from->fetch.ctl);
	if (relax)
		keel_resp_stay();
	keel_segs_put(&from->remote);
	return ret;
}

/* The result if the atomic operand could not be changed. */
static enum keel_xfer_result keel_resp_word_failed(struct keel_xfer *x, int ret)
	__must_hold(&x->from->lock, &x->peer->resp.lock)
{
	if (ret == -EBUSY)
		return KEEL_XFER_STOPPED;
	if (ret == -EAGAIN)
		return KEEL_XFER_ABSENT;
	if (ret == -EINVAL)
		return keel_resp_refuse(x, IB_WC_REM_INV_REQ_ERR,
					KEEL_WHY_ALIGN);
	return keel_resp_refuse(x, IB_WC_REM_ACCESS_ERR, KEEL_WHY_FAULT);
}

/* Change the memory once: a later attempt does not change it again. */
static bool keel_resp_change(struct keel_xfer *x, enum keel_xfer_result *result)
	__must_hold(&x->from->lock, &x->peer->resp.lock)
{
	const struct keel_uapi_send_wqe *wqe = x->wqe;
	struct keel_from *from = x->from;
	int ret;

	if (from->stage == KEEL_STAGE_DONE)
		return true;
	if (!keel_resp_word(x, IB_ACCESS_REMOTE_ATOMIC, wqe->atomic.rkey,
			    wqe->atomic.remote_addr, result))
		return false;
	ret = keel_resp_change_word(x);
	if (ret) {
		*result = keel_resp_word_failed(x, ret);
		return false;
	}
	from->stage = KEEL_STAGE_DONE;
	keel_count(x->peer->kdev, atomics, 1);
	return true;
}

/**
 * keel_resp_atomic() - execute an atomic operation at the responder
 * @x: the message, a compare-and-swap or a fetch-and-add, with a peer
 *
 * Context: the peer's responder lock is held, see keel_resp_lock.h.
 * Return: the result, see enum keel_xfer_result.
 */
enum keel_xfer_result keel_resp_atomic(struct keel_xfer *x)
{
	struct keel_from *from = x->from;
	const struct keel_mem mem = { .type = KEEL_MEM_KERNEL,
				      .start = (uintptr_t)&from->word };
	enum keel_copy_result copied;
	enum keel_xfer_result result;

	if (!keel_resp_change(x, &result))
		return result;
	keel_segs_one(&from->remote, &mem, 0, sizeof(from->word));
	x->byte_len = sizeof(from->word);
	copied = keel_resp_copy(x, &from->segs, &from->remote);
	return keel_resp_copied(x, copied, KEEL_COPY_DST);
}

/* Read the operand of an atomic write, before the peer's memory is checked. */
static enum keel_copy_result keel_resp_operand(struct keel_xfer *x)
	__must_hold(&x->from->lock, &x->peer->resp.lock)
{
	struct keel_from *from = x->from;
	const struct keel_mem mem = { .type = KEEL_MEM_KERNEL,
				      .start = (uintptr_t)&from->word };
	enum keel_copy_result copied;

	if (from->stage != KEEL_STAGE_NEW)
		return KEEL_COPY_DONE;
	keel_segs_one(&from->remote, &mem, 0, sizeof(from->word));
	copied = keel_resp_copy(x, &from->remote, &from->segs);
	if (copied == KEEL_COPY_DONE)
		from->stage = KEEL_STAGE_FETCHED;
	return copied;
}

/**
 * keel_resp_atomic_write() - execute an atomic write at the responder
 * @x: the message, with a peer
 *
 * Context: the peer's responder lock is held, see keel_resp_lock.h.
 * Return: the result, see enum keel_xfer_result.
 */
enum keel_xfer_result keel_resp_atomic_write(struct keel_xfer *x)
{
	struct keel_from *from = x->from;
	enum keel_copy_result copied;
	enum keel_xfer_result result;
	int ret;

	copied = keel_resp_operand(x);
	if (copied != KEEL_COPY_DONE)
		return keel_resp_copied(x, copied, KEEL_COPY_SRC);
	if (from->stage != KEEL_STAGE_DONE) {
		if (!keel_resp_word(x, IB_ACCESS_REMOTE_WRITE,
				    x->wqe->rdma.rkey,
				    x->wqe->rdma.remote_addr, &result))
			return result;
		ret = keel_resp_change_word(x);
		if (ret)
			return keel_resp_word_failed(x, ret);
		from->stage = KEEL_STAGE_DONE;
		keel_count(x->peer->kdev, atomic_writes, 1);
	}
	return keel_resp_copied(x, keel_copy_end(&from->fetch.ctl),
				KEEL_COPY_SRC);
}
