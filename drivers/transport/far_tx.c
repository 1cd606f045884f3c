// SPDX-License-Identifier: GPL-2.0
/*
 * The packets that the requester of a QP sends to another host: far_send.c sends those of RC,
 * and far_uc.c those of UC.
 */
#include <kunit/visibility.h>
#include <linux/ktime.h>
#include <linux/minmax.h>

#include "keel_far.h"
#include "keel_opcode.h"
#include "keel_qp.h"
#include "keel_resp_lock.h"

/*
 * Shortest and longest time until packets without an answer are sent again, unless the message
 * fails before: keel_far_resend_ns().
 */
#define KEEL_FAR_RESEND_MIN	(50 * NSEC_PER_MSEC)
#define KEEL_FAR_RESEND_MAX	(2 * NSEC_PER_SEC)

/*
 * The least time that a message waits for its answer, whatever its QP says: the other host may keep
 * the answer back for KEEL_PATIENT_NS, and its threads wait for processors.
 */
#define KEEL_FAR_LEAST_NS	(8ULL * KEEL_PATIENT_NS)
/* How long a message of UC waits for the link before it is dropped. */
#define KEEL_FAR_UC_NS		(2 * NSEC_PER_SEC)
/* UC: packets that are not answered for this long are lost, or their answers are. */
#define KEEL_FAR_LOST_NS	(500 * NSEC_PER_MSEC)
/* The same of datagrams, and how long one waits for a buffer. */
#define KEEL_FAR_DGRAM_NS	(100 * NSEC_PER_MSEC)

/**
 * keel_far_tell() - answer a packet for which nothing is done
 * @link: the link that it came from
 * @request: its header
 * @result: enum keel_frame_result
 *
 * The answer is lost if the link has no buffer now.
 *
 * Context: any but interrupts.
 */
void keel_far_tell(struct keel_link *link, const struct keel_frame *request, u8 result)
{
	struct keel_frame frame = {
		.type = KEEL_FRAME_ANSWER,
		/* A datagram has no such flag. */
		.flags = request->flags & KEEL_FRAME_F_BUSY,
		.to = request->from,
		.from = request->to,
		.psn = request->psn,
		.gen = request->gen,
		.answer.result = result,
	};
	struct keel_buf *buf;
	u64 epoch;

	/* Others need the buffer: this thread is not preempted with it. */
	keel_resp_stay();
	buf = keel_link_tx(link, NULL, 0, &epoch);
	if (buf)
		keel_link_send(buf, &frame, 0);
	keel_resp_relax();
}

/**
 * keel_far_after() - a time after another one
 * @now: ns
 * @ns: how long after it; U64_MAX: never
 *
 * Return: ns, at most U64_MAX.
 */
u64 keel_far_after(u64 now, u64 ns)
{
	return ns > U64_MAX - now ? U64_MAX : now + ns;
}

/**
 * keel_far_peer_ns() - how long a message waits for an answer
 * @qp: the QP
 *
 * Return: ns, as keel_sq_wait_peer(); U64_MAX: for ever.
 */
u64 keel_far_peer_ns(const struct keel_qp *qp)
{
	u8 timeout = READ_ONCE(qp->attr.timeout);

	if (qp->type == IB_QPT_UC)
		return KEEL_FAR_UC_NS;
	if (!timeout)
		return U64_MAX;
	return max((4096ULL << timeout) * (READ_ONCE(qp->attr.retry_cnt) + 1), KEEL_FAR_LEAST_NS);
}

/**
 * keel_far_resend_ns() - when packets are sent again that nobody answers
 * @qp: the QP; UC, datagrams: when they are no longer waited for
 *
 * Return: ns after the last answer, or after the first of them.
 */
u64 keel_far_resend_ns(const struct keel_qp *qp)
{
	u8 timeout = READ_ONCE(qp->attr.timeout);
	u64 ns = timeout ? 4096ULL << timeout : KEEL_FAR_RESEND_MAX;

	if (keel_qp_is_dgram(qp))
		return KEEL_FAR_DGRAM_NS;
	if (qp->type == IB_QPT_UC)
		return KEEL_FAR_LOST_NS;
	ns = clamp_t(u64, ns, KEEL_FAR_RESEND_MIN, KEEL_FAR_RESEND_MAX);
	ns = min_t(u64, ns << qp->far->resends, KEEL_FAR_RESEND_MAX);
	/*
	 * Once before it fails, if there is a buffer: the thread of the other host's link executes
	 * it then.
	 */
	return min(ns, keel_far_peer_ns(qp) / 2);
}
EXPORT_SYMBOL_IF_KUNIT(keel_far_resend_ns);

/**
 * keel_far_is_untried() - is nothing under way that the message waits for?
 * @far: of a QP
 *
 * Return: true if so. A message of UC waits for no answer.
 */
bool keel_far_is_untried(const struct keel_far *far)
{
	return far->qp->type == IB_QPT_UC || far->tip == far->una;
}

/**
 * keel_far_renew() - something has moved: the message has its whole time again
 * @far: of the QP
 */
void keel_far_renew(struct keel_far *far)
{
	far->deadline = keel_far_after(ktime_get_ns(), keel_far_peer_ns(far->qp));
}

/**
 * keel_far_end() - end a message
 * @x: the message
 * @status: status of its completion
 * @why: vendor error
 *
 * Return: KEEL_XFER_DONE.
 */
enum keel_xfer_result keel_far_end(struct keel_xfer *x, enum ib_wc_status status, u32 why)
{
	x->status = status;
	x->why = why;
	return KEEL_XFER_DONE;
}

/**
 * keel_far_back() - send all packets again that are not answered
 * @x: the message
 * @far: of its QP; UC: the message begins again, and no answer is waited for
 *
 * RC: the next packet is one of the first WQE.
 */
void keel_far_back(struct keel_xfer *x, struct keel_far *far)
	__must_hold(&x->from->lock)
{
	/* That of another packet. */
	x->from->fetch.ctl.done = 0;
	if (x->qp->type == IB_QPT_UC)
		far->una = (far->next - (u32)(far->sent / KEEL_FRAME_DATA)) & KEEL_PSN_MASK;
	far->next = far->una;
	far->at = far->index;
	far->sent = far->acked;
	far->whole = false;
	far->staged = false;
}

/**
 * keel_far_copy() - copy between local memory and that of a packet
 * @x: the message
 * @dst: memory that is written
 * @dst_off: offset in it, bytes
 * @src: memory that is read
 * @src_off: likewise
 * @len: bytes
 *
 * Context: as keel_resp_copy().
 * Return: as keel_copy().
 */
enum keel_copy_result keel_far_copy(struct keel_xfer *x, const struct keel_segs *dst,
				    u64 dst_off, const struct keel_segs *src, u64 src_off,
				    u64 len)
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

/**
 * keel_far_uncopied() - the result of a copy that was not done
 * @x: the message
 * @copied: of keel_far_copy() or keel_far_one(), but not KEEL_COPY_DONE
 *
 * Return: KEEL_XFER_ABSENT, KEEL_XFER_STOPPED, or KEEL_XFER_DONE: the message has failed.
 */
enum keel_xfer_result keel_far_uncopied(struct keel_xfer *x, enum keel_copy_result copied)
{
	if (copied == KEEL_COPY_ABSENT)
		return KEEL_XFER_ABSENT;
	if (copied == KEEL_COPY_STOPPED)
		return KEEL_XFER_STOPPED;
	return keel_far_end(x, IB_WC_LOC_PROT_ERR, KEEL_WHY_FAULT);
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
		.srqn = cpu_to_le32(x->qp->type == IB_QPT_XRC_INI ? x->wqe->srqn : 0),
		.request.opcode = x->wqe->opcode,
		.request.transport = keel_far_transport(x->qp),
		/* Kernel consumers may leave it unset where it has no meaning. */
		.request.imm = cpu_to_le32(x->op->flags & KEEL_OP_IMM ? x->wqe->imm : 0),
	};
	if (keel_far_is_busy(far))
		frame->flags |= KEEL_FRAME_F_BUSY;
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

	/* Userspace may have changed the SGEs since it was staged: it is as good as then. */
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
		/* keel_far_size() has said no more. */
		memcpy(buf->data, far->stage, min_t(u32, bytes, sizeof(far->stage)));
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
	keel_far_follows(far);
	keel_link_send(buf, &frame, bytes);
	keel_count(x->qp->kdev, far_packets, 1);
	far->staged = false;
	keel_far_note_packet(far, n);
	far->sent += n;
	far->whole = far->sent == x->len;
	far->next = (far->next + 1) & KEEL_PSN_MASK;
	if (keel_psn_diff(far->next, far->tip) > 0)
		far->tip = far->next;
	/* No answer does this. */
	if (x->qp->type == IB_QPT_UC)
		keel_far_renew(far);
	return KEEL_COPY_DONE;
}

/* Have packets of the message been sent that are not known to have arrived? */
static bool keel_far_is_under_way(const struct keel_xfer *x, const struct keel_far *far)
{
	return far->next != far->una || (x->qp->type == IB_QPT_UC && far->sent);
}

/**
 * keel_far_one() - send the next packet
 * @x: the message
 * @window: most packets that may be under way
 * @more: is cleared if no packet can be sent now: the link, or an answer, wakes the QP later
 *
 * Context: preemption is disabled; the lock of the send queue is held.
 * Return: KEEL_COPY_DONE, also if none was sent; else as keel_far_copy().
 */
enum keel_copy_result keel_far_one(struct keel_xfer *x, s32 window, bool *more)
	__must_hold(&x->from->lock)
{
	struct keel_far *far = x->qp->far;
	bool read = x->op->flags & KEEL_OP_READ;
	enum keel_copy_result copied = KEEL_COPY_DONE;
	u32 n = keel_far_size(x);
	struct keel_buf *buf;
	u64 epoch;

	if (!keel_far_has_room(far, n, window)) {
		*more = false;
		return KEEL_COPY_DONE;
	}
	if (!read)
		copied = keel_far_stage(x, n);
	if (copied != KEEL_COPY_DONE)
		return copied;
	buf = keel_link_tx(far->link, &far->rx_wait, read ? 0 : n, &epoch);
	if (!buf) {
		*more = false;
		/* The link works: this message only waits for its turn. */
		if (epoch && keel_far_is_untried(far))
			keel_far_renew(far);
		return KEEL_COPY_DONE;
	}
	/* Packets of an earlier connection may be lost: these are useless without them. */
	if (epoch != far->epoch && keel_far_is_under_way(x, far)) {
		keel_link_unsend(buf);
		far->epoch = epoch;
		keel_far_back(x, far);
		return KEEL_COPY_DONE;
	}
	far->epoch = epoch;
	if (far->next == far->una)
		far->resend_at = ktime_get_ns() + keel_far_resend_ns(x->qp);
	/* Its time begins now: it may have waited for the buffer. */
	if (keel_far_is_untried(far))
		keel_far_renew(far);
	return keel_far_packet(x, buf, n);
}
