// SPDX-License-Identifier: GPL-2.0
/*
 * The requester of a QP that is connected to another host. The first WQE is divided into
 * packets, of which up to KEEL_FAR_WINDOW are under way. If one is not answered in time,
 * it and all after it are sent again ("go back").
 */
#include <linux/ktime.h>
#include <linux/minmax.h>

#include "keel_far.h"
#include "keel_opcode.h"
#include "keel_qp.h"
#include "keel_resp_lock.h"

/* When a packet is sent again that the other side was not ready for: then twice as long. */
#define KEEL_FAR_HOLD_MIN	NSEC_PER_MSEC
#define KEEL_FAR_HOLD_MAX	(64 * NSEC_PER_MSEC)
/* Limits of &keel_far.probes and &keel_far.resends: more only made numbers overflow. */
#define KEEL_FAR_DOUBLINGS	6
/* Shortest and longest time until packets without an answer are sent again. */
#define KEEL_FAR_RESEND_MIN	(50 * NSEC_PER_MSEC)
#define KEEL_FAR_RESEND_MAX	(2 * NSEC_PER_SEC)

/* How long a message of UC waits for the link before it is dropped. */
#define KEEL_FAR_UC_NS		(2 * NSEC_PER_SEC)

static u64 keel_far_after(u64 now, u64 ns)
{
	return ns > U64_MAX - now ? U64_MAX : now + ns;
}

/* How long the message waits for an answer: as keel_sq_wait_peer(). */
static u64 keel_far_peer_ns(const struct keel_qp *qp)
{
	u8 timeout = READ_ONCE(qp->attr.timeout);

	if (qp->type == IB_QPT_UC)
		return KEEL_FAR_UC_NS;
	if (!timeout)
		return U64_MAX;
	return (4096ULL << timeout) * (READ_ONCE(qp->attr.retry_cnt) + 1);
}

static u64 keel_far_resend_ns(const struct keel_qp *qp)
{
	u8 timeout = READ_ONCE(qp->attr.timeout);
	u64 ns = timeout ? 4096ULL << timeout : KEEL_FAR_RESEND_MAX;

	ns = clamp_t(u64, ns, KEEL_FAR_RESEND_MIN, KEEL_FAR_RESEND_MAX);
	return min_t(u64, ns << qp->far->resends, KEEL_FAR_RESEND_MAX);
}

/* Is nothing under way that could be answered? */
static bool keel_far_is_untried(const struct keel_far *far)
{
	return far->tip == far->una;
}

/* Something has moved: the message has its whole time again. */
static void keel_far_renew(struct keel_far *far)
{
	far->deadline = keel_far_after(ktime_get_ns(), keel_far_peer_ns(far->qp));
}

static enum keel_xfer_result keel_far_end(struct keel_xfer *x, enum ib_wc_status status,
					  u32 why)
{
	x->status = status;
	x->why = why;
	return KEEL_XFER_DONE;
}

/* The first packet of the first WQE is to be sent. */
static void keel_far_begin(struct keel_xfer *x, struct keel_far *far, u64 now)
	__must_hold(&x->from->lock)
{
	if (!far->primed)
		far->next = x->qp->attr.sq_psn & KEEL_PSN_MASK;
	far->primed = true;
	far->tip = far->next;
	far->probes = 0;
	far->resends = 0;
	far->begun = true;
	far->index = x->qp->sq.ring.index;
	far->len = x->len;
	far->una = far->next;
	far->acked = 0;
	far->sent = 0;
	far->whole = false;
	far->staged = false;
	far->hold_until = 0;
	far->rnr_until = 0;
	far->deadline = keel_far_after(now, keel_far_peer_ns(x->qp));
	/* An earlier message may have left its progress. */
	x->from->fetch.ctl.done = 0;
}

/* Send all packets again that are not answered. */
static void keel_far_back(struct keel_xfer *x, struct keel_far *far)
	__must_hold(&x->from->lock)
{
	/* That of another packet. */
	x->from->fetch.ctl.done = 0;
	far->next = far->una;
	far->sent = far->acked;
	far->whole = false;
	far->staged = false;
}

/* Copy between local memory and that of a packet; see keel_resp_copy(). */
static enum keel_copy_result keel_far_copy(struct keel_xfer *x, const struct keel_segs *dst,
					   u64 dst_off, const struct keel_segs *src,
					   u64 src_off, u64 len)
	__must_hold(&x->from->lock)
{
	struct keel_fetch *fetch = &x->from->fetch;
	bool relax = keel_segs_may_lack(&x->from->segs);
	enum keel_copy_result copied;

	if (relax)
		keel_resp_relax();
	copied = keel_copy(dst, dst_off, src, src_off, len, &fetch->ctl);
	if (relax)
		keel_resp_stay();
	if (copied == KEEL_COPY_DONE) {
		/* The next packet begins anew. */
		keel_fetch_discard(fetch);
		fetch->ctl.arg = x;
	}
	return copied;
}

/* The result of such a copy, if it is not KEEL_COPY_DONE. */
static enum keel_xfer_result keel_far_uncopied(struct keel_xfer *x,
					       enum keel_copy_result copied)
{
	if (copied == KEEL_COPY_ABSENT)
		return KEEL_XFER_ABSENT;
	if (copied == KEEL_COPY_STOPPED)
		return KEEL_XFER_STOPPED;
	return keel_far_end(x, IB_WC_LOC_PROT_ERR, KEEL_WHY_FAULT);
}

/* Bytes of the first packet that is not answered. */
static u32 keel_far_una_bytes(const struct keel_xfer *x, const struct keel_far *far)
{
	return min_t(u64, x->len - far->acked, KEEL_FRAME_DATA);
}

/* Copy what a read or an atomic operation has returned. */
static enum keel_copy_result keel_far_take(struct keel_xfer *x, struct keel_far_slot *slot)
	__must_hold(&x->from->lock)
{
	struct keel_from *from = x->from;
	u32 n = keel_far_una_bytes(x, x->qp->far);

	u64 word = le64_to_cpu(slot->frame.answer.word);

	if (x->op->flags & KEEL_OP_ATOMIC)
		memcpy(slot->data, &word, sizeof(word));
	keel_segs_one(&from->remote, &slot->mem, 0, n);
	return keel_far_copy(x, &from->segs, x->qp->far->acked, &from->remote, 0, n);
}

/* The other side may send any number. */
static enum keel_xfer_result keel_far_failed(struct keel_xfer *x,
					     const struct keel_frame *frame)
{
	u32 why = le32_to_cpu(frame->answer.why);

	switch (frame->answer.status) {
	case IB_WC_REM_INV_REQ_ERR:
	case IB_WC_REM_ACCESS_ERR:
	case IB_WC_REM_OP_ERR:
		return keel_far_end(x, frame->answer.status,
				    why > KEEL_WHY_PSN ? KEEL_WHY_NONE : why);
	default:
		return keel_far_end(x, IB_WC_BAD_RESP_ERR, KEEL_WHY_NONE);
	}
}

/* A packet was executed. */
static enum keel_xfer_result keel_far_done(struct keel_xfer *x, struct keel_far_slot *slot)
	__must_hold(&x->from->lock)
{
	bool data = x->op->flags & KEEL_OP_READ && !(x->op->flags & KEEL_OP_ATOMIC);
	const struct keel_frame *frame = &slot->frame;
	struct keel_far *far = x->qp->far;
	u32 n = keel_far_una_bytes(x, far);
	enum keel_copy_result copied;

	if (frame->answer.status != IB_WC_SUCCESS)
		return keel_far_failed(x, frame);
	if (le32_to_cpu(frame->len) != (data ? n : 0))
		return keel_far_end(x, IB_WC_BAD_RESP_ERR, KEEL_WHY_LENGTH);
	if (x->op->flags & KEEL_OP_READ) {
		copied = keel_far_take(x, slot);
		if (copied != KEEL_COPY_DONE)
			return keel_far_uncopied(x, copied);
	}
	far->acked += n;
	far->una = (far->una + 1) & KEEL_PSN_MASK;
	/* It was to be sent again, but the answer to the first one has come after all. */
	if (keel_psn_diff(far->next, far->una) < 0)
		keel_far_back(x, far);
	far->probes = 0;
	far->resends = 0;
	far->resend_at = ktime_get_ns() + keel_far_resend_ns(x->qp);
	far->rnr_until = 0;
	keel_far_renew(far);
	if (far->acked != x->len)
		return KEEL_XFER_UNDERWAY;
	if (x->op->flags & KEEL_OP_READ)
		x->byte_len = x->len;
	return keel_far_end(x, IB_WC_SUCCESS, KEEL_WHY_NONE);
}

static u64 keel_far_hold_ns(const struct keel_far *far)
{
	return min_t(u64, KEEL_FAR_HOLD_MIN << far->probes, KEEL_FAR_HOLD_MAX);
}

/* The other side is not ready: try one packet from now on, less and less often. */
static void keel_far_probe(struct keel_xfer *x, struct keel_far *far)
	__must_hold(&x->from->lock)
{
	keel_far_back(x, far);
	far->probes = min(far->probes + 1, KEEL_FAR_DOUBLINGS);
}

/* There is no receive WQE: wait as the other side asks, and not for ever. */
static enum keel_xfer_result keel_far_rnr(struct keel_xfer *x, const struct keel_frame *frame)
	__must_hold(&x->from->lock)
{
	u64 ns = keel_rnr_ns(frame->answer.rnr), now = ktime_get_ns();
	u8 retries = READ_ONCE(x->qp->attr.rnr_retry);
	struct keel_far *far = x->qp->far;

	if (!far->rnr_until)
		far->rnr_until = retries == 7 ? U64_MAX : now + ns * retries;
	if (now >= far->rnr_until)
		return keel_far_end(x, IB_WC_RNR_RETRY_EXC_ERR, KEEL_WHY_NOT_READY);
	keel_count(x->qp->kdev, rnr_waits, 1);
	far->hold_until = min(now + max(ns, keel_far_hold_ns(far)), far->rnr_until);
	keel_far_probe(x, far);
	far->deadline = keel_far_after(far->hold_until, keel_far_peer_ns(x->qp));
	return KEEL_XFER_UNDERWAY;
}

static enum keel_xfer_result keel_far_answer(struct keel_xfer *x, struct keel_far_slot *slot)
	__must_hold(&x->from->lock)
{
	struct keel_far *far = x->qp->far;

	/* One that came twice, or is for a message that has ended. */
	if (le32_to_cpu(slot->frame.psn) != far->una || far->una == far->tip)
		return KEEL_XFER_UNDERWAY;
	switch (slot->frame.answer.result) {
	case KEEL_RESULT_DONE:
		return keel_far_done(x, slot);
	case KEEL_RESULT_RNR:
		return keel_far_rnr(x, &slot->frame);
	default:
		far->hold_until = ktime_get_ns() + keel_far_hold_ns(far);
		keel_far_probe(x, far);
		return KEEL_XFER_UNDERWAY;
	}
}

/* Process all answers. Return: KEEL_XFER_UNDERWAY: the message has not ended. */
static enum keel_xfer_result keel_far_collect(struct keel_xfer *x)
	__must_hold(&x->from->lock)
{
	struct keel_far *far = x->qp->far;
	enum keel_xfer_result result;
	struct keel_far_slot *slot;

	for (;;) {
		scoped_guard(spinlock, &far->lock)
			slot = keel_far_first(far, &far->answers);
		if (!slot)
			return KEEL_XFER_UNDERWAY;
		/* Only the holder of the lock of the send queue takes it out. */
		result = keel_far_answer(x, slot);
		if (result == KEEL_XFER_ABSENT || result == KEEL_XFER_STOPPED)
			return result;
		scoped_guard(spinlock, &far->lock) {
			keel_far_free_slot(far, slot);
			far->answers_n--;
		}
		if (result != KEEL_XFER_UNDERWAY)
			return result;
	}
}

/* The members of a request that depend on its operation. */
static void keel_far_request(struct keel_frame *frame, const struct keel_xfer *x, u32 n)
{
	const struct keel_uapi_send_wqe *wqe = x->wqe;
	const struct keel_far *far = x->qp->far;

	frame->request.left = cpu_to_le64(x->len - far->sent);
	switch (wqe->opcode) {
	case IB_WR_RDMA_READ:
		frame->request.bytes = cpu_to_le32(n);
		fallthrough;
	case IB_WR_RDMA_WRITE:
	case IB_WR_RDMA_WRITE_WITH_IMM:
	case IB_WR_ATOMIC_WRITE:
		frame->request.rkey = cpu_to_le32(wqe->rdma.rkey);
		frame->request.addr = cpu_to_le64(wqe->rdma.remote_addr + far->sent);
		break;
	case IB_WR_ATOMIC_CMP_AND_SWP:
	case IB_WR_ATOMIC_FETCH_AND_ADD:
		frame->request.rkey = cpu_to_le32(wqe->atomic.rkey);
		frame->request.addr = cpu_to_le64(wqe->atomic.remote_addr);
		frame->request.a = cpu_to_le64(wqe->atomic.compare_add);
		if (wqe->opcode == IB_WR_ATOMIC_CMP_AND_SWP)
			frame->request.b = cpu_to_le64(wqe->atomic.swap);
		break;
	case IB_WR_FLUSH:
		frame->request.rkey = cpu_to_le32(wqe->flush.rkey);
		frame->request.addr = cpu_to_le64(wqe->flush.remote_addr);
		frame->request.left = cpu_to_le64(wqe->flush.length);
		frame->request.kind = cpu_to_le16(wqe->flush.type | wqe->flush.level << 8);
		break;
	default:
		break;
	}
}

static void keel_far_frame(struct keel_frame *frame, const struct keel_xfer *x, u32 n)
{
	const struct keel_far *far = x->qp->far;
	bool last = far->sent + n == x->len;

	*frame = (struct keel_frame){
		.type = KEEL_FRAME_REQUEST,
		.flags = (far->sent ? 0 : KEEL_FRAME_F_FIRST) | (last ? KEEL_FRAME_F_LAST : 0),
		.to = cpu_to_le32(x->qp->attr.dest_qp_num),
		.from = cpu_to_le32(x->qp->qpn),
		.psn = cpu_to_le32(far->next),
		.gen = cpu_to_le64(x->gen),
		.request.opcode = x->wqe->opcode,
		/* Kernel consumers may leave it unset where it has no meaning. */
		.request.imm = cpu_to_le32(x->op->flags & KEEL_OP_IMM ? x->wqe->imm : 0),
	};
	if (last && x->wqe->flags & IB_SEND_SOLICITED)
		frame->flags |= KEEL_FRAME_F_SOLICITED;
	keel_far_request(frame, x, n);
}

/* Copy the data of the next packet, for which memory may be absent. */
static enum keel_copy_result keel_far_load(struct keel_xfer *x, void *to, u32 n)
	__must_hold(&x->from->lock)
{
	const struct keel_mem mem = { .type = KEEL_MEM_KERNEL, .start = (uintptr_t)to };
	struct keel_from *from = x->from;

	keel_segs_one(&from->remote, &mem, 0, n);
	return keel_far_copy(x, &from->remote, 0, &from->segs, x->qp->far->sent, n);
}

/*
 * If memory may be absent, the data is copied before there is a buffer to send it: that
 * may take several attempts.
 */
static enum keel_copy_result keel_far_stage(struct keel_xfer *x, u32 n)
	__must_hold(&x->from->lock)
{
	struct keel_far *far = x->qp->far;
	enum keel_copy_result copied;

	if (far->staged || !n || !keel_segs_may_lack(&x->from->segs))
		return KEEL_COPY_DONE;
	copied = keel_far_load(x, far->stage, n);
	far->staged = copied == KEEL_COPY_DONE;
	/* The time to wait for absent memory is not that for the other side. */
	if (far->staged && keel_far_is_untried(far))
		keel_far_renew(far);
	return copied;
}

/* Send the next packet in @buf, which is passed on. */
static enum keel_copy_result keel_far_packet(struct keel_xfer *x, struct keel_buf *buf, u32 n)
	__must_hold(&x->from->lock)
{
	u32 bytes = x->op->flags & KEEL_OP_READ ? 0 : n;
	enum keel_copy_result copied = KEEL_COPY_DONE;
	struct keel_far *far = x->qp->far;
	struct keel_frame frame;

	if (far->staged) {
		memcpy(buf->data, far->stage, bytes);
	} else if (bytes) {
		/* Userspace may have changed the SGEs since something was staged. */
		x->from->fetch.ctl.done = 0;
		copied = keel_far_load(x, buf->data, bytes);
	}
	if (copied != KEEL_COPY_DONE) {
		keel_link_unsend(buf);
		return copied;
	}
	keel_far_frame(&frame, x, n);
	keel_link_send(buf, &frame, bytes);
	keel_count(x->qp->kdev, far_packets, 1);
	far->staged = false;
	far->sent += n;
	far->whole = far->sent == x->len;
	far->next = (far->next + 1) & KEEL_PSN_MASK;
	if (keel_psn_diff(far->next, far->tip) > 0)
		far->tip = far->next;
	/* Nothing answers these. */
	if (x->qp->type == IB_QPT_UC)
		keel_far_renew(far);
	return KEEL_COPY_DONE;
}

/* Send the next packet. *@more is cleared if none can be sent now. */
static enum keel_copy_result keel_far_one(struct keel_xfer *x, bool *more)
	__must_hold(&x->from->lock)
{
	struct keel_far *far = x->qp->far;
	u32 n = min_t(u64, x->len - far->sent, KEEL_FRAME_DATA);
	enum keel_copy_result copied = KEEL_COPY_DONE;
	struct keel_buf *buf;
	u64 epoch;

	if (!(x->op->flags & KEEL_OP_READ))
		copied = keel_far_stage(x, n);
	if (copied != KEEL_COPY_DONE)
		return copied;
	buf = keel_link_tx(far->link, &far->rx_wait, &epoch);
	if (!buf) {
		*more = false;
		/* The link works: this message only waits for its turn. */
		if (epoch && (x->qp->type == IB_QPT_UC || keel_far_is_untried(far)))
			keel_far_renew(far);
		return KEEL_COPY_DONE;
	}
	/* Packets of an earlier connection may be lost: these are useless without them. */
	if (epoch != far->epoch && far->next != far->una) {
		keel_link_unsend(buf);
		far->epoch = epoch;
		keel_far_back(x, far);
		return KEEL_COPY_DONE;
	}
	far->epoch = epoch;
	if (far->next == far->una)
		far->resend_at = ktime_get_ns() + keel_far_resend_ns(x->qp);
	return keel_far_packet(x, buf, n);
}

static enum keel_xfer_result keel_far_transmit(struct keel_xfer *x)
	__must_hold(&x->from->lock)
{
	struct keel_far *far = x->qp->far;
	enum keel_copy_result copied;
	bool more = ktime_get_ns() >= far->hold_until;
	s32 window = far->probes ? 1 : KEEL_FAR_WINDOW;

	if (more)
		far->hold_until = 0;
	while (more && !far->whole && keel_psn_diff(far->next, far->una) < window) {
		copied = keel_far_one(x, &more);
		if (copied != KEEL_COPY_DONE)
			return keel_far_uncopied(x, copied);
	}
	return KEEL_XFER_UNDERWAY;
}

/*
 * UC: no packet is answered. The message has ended when all were sent, or are dropped. If
 * the connection ended meanwhile, all are sent again.
 */
static enum keel_xfer_result keel_far_stream(struct keel_xfer *x, u64 now)
	__must_hold(&x->from->lock)
{
	struct keel_far *far = x->qp->far;
	enum keel_copy_result copied;
	bool more = true;
	int n;

	for (n = 0; n < KEEL_FAR_WINDOW && more && !far->whole; n++) {
		copied = keel_far_one(x, &more);
		if (copied != KEEL_COPY_DONE)
			return keel_far_uncopied(x, copied);
	}
	if (!far->whole && now < far->deadline)
		/* Preemption is disabled here: go on with it enabled in between. */
		return more ? KEEL_XFER_STOPPED : KEEL_XFER_UNDERWAY;
	return keel_far_end(x, IB_WC_SUCCESS, KEEL_WHY_NONE);
}

static bool keel_far_needed_memory(const struct keel_xfer *x)
	__must_hold(&x->from->lock)
{
	/* It is the lock of the send queue. */
	return context_unsafe(x->qp->sq.wait) == KEEL_WAIT_MEMORY;
}

/**
 * keel_far_send() - send a message to another host, or continue to do so
 * @x: the message; &keel_from.segs has its local memory
 *
 * Context: preemption is disabled; the lock of the send queue is held.
 * Return: KEEL_XFER_DONE: it has ended; KEEL_XFER_UNDERWAY: call keel_far_wait();
 * KEEL_XFER_ABSENT and KEEL_XFER_STOPPED as keel_req_run().
 */
enum keel_xfer_result keel_far_send(struct keel_xfer *x)
{
	struct keel_far *far = x->qp->far;
	enum keel_xfer_result result;
	u64 now = ktime_get_ns();

	if (!far->begun || far->index != x->qp->sq.ring.index)
		keel_far_begin(x, far, now);
	/* Userspace has changed the WQE, which was copied again. */
	if (x->len != far->len)
		return keel_far_end(x, IB_WC_LOC_QP_OP_ERR, KEEL_WHY_LENGTH);
	if (x->qp->type == IB_QPT_UC)
		return keel_far_stream(x, now);
	/* The time that its own memory takes, see keel_sq_absent(), is not that of the peer. */
	if (keel_far_needed_memory(x))
		keel_far_renew(far);
	result = keel_far_collect(x);
	if (result != KEEL_XFER_UNDERWAY)
		return result;
	if (far->next != far->una && now >= far->resend_at) {
		keel_far_back(x, far);
		far->resends = min(far->resends + 1, KEEL_FAR_DOUBLINGS);
		keel_count(x->qp->kdev, far_resends, 1);
		keel_link_event(far->link, KEEL_LINK_DOUBTED);
	}
	result = keel_far_transmit(x);
	/* If it has waited for its turn, it has its whole time again. */
	if (result == KEEL_XFER_UNDERWAY && now >= far->deadline)
		return keel_far_end(x, IB_WC_RETRY_EXC_ERR, KEEL_WHY_PEER);
	return result;
}

/**
 * keel_far_has_begun() - have packets of the first WQE been sent to another host?
 * @qp: the QP
 *
 * Context: the lock of the send queue is held.
 * Return: true if so: it is finished first, also in SQD.
 */
bool keel_far_has_begun(const struct keel_qp *qp)
{
	const struct keel_far *far = qp->far;

	return far && far->link && far->begun && far->index == qp->sq.ring.index &&
	       (!keel_far_is_untried(far) || far->acked || far->sent);
}

/**
 * keel_far_wait() - let a send queue wait for the other host
 * @qp: the QP, after KEEL_XFER_UNDERWAY
 *
 * Context: process context; the lock of the send queue is held.
 */
void keel_far_wait(struct keel_qp *qp)
	__must_hold(&qp->sq.from.lock)
{
	struct keel_far *far = qp->far;
	u64 until = far->deadline;

	/* Also if it has passed meanwhile: the packet was not sent before. */
	if (far->hold_until)
		until = min(until, far->hold_until);
	if (far->next != far->una && qp->type != IB_QPT_UC)
		until = min(until, far->resend_at);
	keel_fetch_forgo(&qp->sq.from.fetch);
	WRITE_ONCE(qp->sq.wait, KEEL_WAIT_PEER);
	qp->sq.deadline = far->deadline;
	if (until != U64_MAX)
		hrtimer_start(&qp->sq.timer, ns_to_ktime(until), HRTIMER_MODE_ABS);
	else
		hrtimer_try_to_cancel(&qp->sq.timer);
}
