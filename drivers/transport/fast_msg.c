// SPDX-License-Identifier: GPL-2.0
/*
 * A message on the fast path, at its responder: sends, RDMA writes and reads, and atomic
 * operations, of RC, UC, XRC and UD. Each has at most 4 KiB and four SGEs on either side,
 * in memory that stays in place. All shapes are one function, keel_fast_deliver(). The
 * rules that it keeps are in fast_path.c.
 */
#include <linux/atomic.h>
#include <linux/nospec.h>
#include <linux/string.h>

#include "keel_fast.h"
#include "keel_opcode.h"
#include "keel_resp_lock.h"

/* --- the two sides' memory --------------------------------------------------- */

/*
 * Add the first @len bytes of a list of SGEs, at most 4 KiB and a GRH. Each member is
 * read once: userspace may write to it. Return: the bytes, fewer if the SGEs have fewer;
 * or U32_MAX.
 */
static __always_inline u32 keel_fast_sges(struct keel_runs *runs,
					  const struct keel_runs_scope *scope,
					  bool kernel, struct keel_key_cache *caches,
					  const struct keel_uapi_sge *sge, u32 n,
					  u32 access, u32 len)
	__must_hold_shared(RCU)
{
	u32 got = 0, bytes, part, lkey, i;
	struct keel_key_cache *cache;
	u64 addr;

	for (i = 0; i < n && got < len; i++, sge++) {
		addr = READ_ONCE(sge->addr);
		lkey = READ_ONCE(sge->lkey);
		bytes = min(READ_ONCE(sge->length), len - got);
		if (!bytes)
			continue;
		if (i >= KEEL_RUNS_SGES)
			return U32_MAX;
		cache = &caches[array_index_nospec(i, KEEL_RUNS_SGES)];
		got += bytes;
		if (kernel && lkey == KEEL_LOCAL_DMA_LKEY) {
			keel_runs_add(runs, (void *)(uintptr_t)addr, bytes);
			continue;
		}
		/* Only one is longer than 4 KiB: the caller limits the sum. */
		for (; bytes; bytes -= part, addr += part) {
			part = min_t(u32, bytes, KEEL_RUNS_BYTES);
			if (!keel_runs_add_key(runs, scope, cache, lkey, access, addr,
					       part))
				return U32_MAX;
		}
	}
	return got;
}

/* The requester's memory, and the length of the message. */
static __always_inline bool keel_fast_local(struct keel_fast_msg *m)
	__must_hold_shared(RCU) __must_hold(&m->qp->sq.from.lock)
{
	struct keel_sq *sq = &m->qp->sq;
	const struct keel_uapi_send_wqe *wqe = &sq->wqe;
	const struct keel_runs_scope scope = {
		.keys = &m->qp->kdev->keys, .domain = m->qp->domain,
	};
	bool reads = m->op->flags & KEEL_OP_READ;
	void *tail = keel_ring_entry(&sq->ring, sq->ring.index) + sizeof(*wqe);

	if (wqe->flags & IB_SEND_INLINE) {
		if (reads || wqe->num_sge ||
		    wqe->inline_len > m->qp->cap.max_inline_data)
			return false;
		m->len = wqe->inline_len;
		keel_runs_add(&sq->local, tail, m->len);
		return true;
	}
	if (wqe->num_sge > m->qp->cap.max_send_sge)
		return false;
	m->len = keel_fast_sges(&sq->local, &scope, !m->qp->user, sq->caches, tail,
				wqe->num_sge, reads ? IB_ACCESS_LOCAL_WRITE : 0,
				KEEL_RUNS_BYTES + 1);
	return m->len <= KEEL_RUNS_BYTES;
}

/* The responder's memory that the rkey and the address name. */
static __always_inline bool keel_fast_remote(struct keel_fast_msg *m, u32 rkey,
					     u64 addr, u32 len, u32 access)
	__must_hold_shared(RCU) __must_hold(&m->qp->sq.from.lock)
{
	const struct keel_runs_scope scope = {
		.keys = &m->qp->kdev->keys, .domain = m->domain,
		.qpn = m->peer->qpn,
	};
	struct keel_sq *sq = &m->qp->sq;

	if (!(READ_ONCE(m->peer->attr.qp_access_flags) & access))
		return false;
	return !len || keel_runs_add_key(&sq->remote_runs, &scope, &sq->remote_cache,
					 rkey, access, addr, len);
}

/*
 * The memory of the receive WQE, for as many bytes. The lkeys of an SRQ are those of its
 * own PD.
 */
static __always_inline bool keel_fast_room(struct keel_fast_msg *m, u32 len)
	__must_hold_shared(RCU) __must_hold(&m->qp->sq.from.lock, &m->peer->resp.lock)
{
	const struct keel_runs_scope scope = {
		.keys = &m->qp->kdev->keys,
		.domain = m->srq ? m->srq->domain : m->peer->domain,
	};

	return keel_fast_sges(&m->qp->sq.remote_runs, &scope, !m->peer->user,
			      m->peer->resp.caches, m->recv, m->recv_sges,
			      IB_ACCESS_LOCAL_WRITE, len) == len;
}

/* --- copies ------------------------------------------------------------------ */

/*
 * Copy a message. Both lists have the same number of bytes. @last: the last bytes are
 * stored last, see keel_copy_last().
 */
static noinline void keel_fast_copy_runs(const struct keel_run *to,
					 const struct keel_run *from, u32 len, bool last)
{
	struct keel_run dst = { .len = 0 }, src = { .len = 0 };
	u32 n;

	for (; len; len -= n) {
		while (!dst.len)
			dst = *to++;
		while (!src.len)
			src = *from++;
		n = min(dst.len, src.len);
		if (last && n == len)
			keel_copy_last(dst.addr, src.addr, n);
		else
			memcpy(dst.addr, src.addr, n);
		dst.addr += n;
		dst.len -= n;
		src.addr += n;
		src.len -= n;
	}
}

static __always_inline void keel_fast_copy(const struct keel_runs *to,
					   const struct keel_runs *from, u32 len,
					   bool last)
{
	if (to->n != 1 || from->n != 1)
		keel_fast_copy_runs(to->run, from->run, len, last);
	else if (last)
		keel_copy_last(to->run[0].addr, from->run[0].addr, len);
	else
		memcpy(to->run[0].addr, from->run[0].addr, len);
}

/* --- the receive WQE --------------------------------------------------------- */

/*
 * Take a receive WQE of an SRQ. If the message turns out to be one for the slow path,
 * that continues with it.
 */
static bool keel_fast_take_shared(struct keel_fast_msg *m)
	__must_hold(&m->peer->resp.lock)
{
	struct keel_resp *resp = &m->peer->resp;

	if (keel_srq_take(m->srq, &resp->recv) <= 0)
		return false;
	/* XRC: it names the SRQ, for a flush. */
	if (m->srq != m->peer->srq) {
		resp->srq = m->srq;
		resp->srq_id = m->srq->obj.id;
	}
	resp->have = true;
	return true;
}

/* Find a receive WQE. One that was taken comes first. */
static __always_inline bool keel_fast_recv(struct keel_fast_msg *m)
	__must_hold(&m->peer->resp.lock)
{
	struct keel_rq *rq = m->srq ? &m->srq->rq : &m->peer->rq;
	const struct keel_uapi_recv_wqe *wqe;
	struct keel_qp *peer = m->peer;
	struct keel_resp *resp = &peer->resp;

	/* A first message raises an event. */
	if (keel_qp_state(peer) == IB_QPS_RTR && !peer->est)
		return false;
	if (!resp->have && !m->srq) {
		if (keel_ring_posted(&rq->ring) <= 0)
			return false;
		wqe = keel_ring_entry(&rq->ring, rq->ring.index);
		m->ring = &rq->ring;
		m->recv_id = READ_ONCE(wqe->wr_id);
		m->recv_sges = READ_ONCE(wqe->num_sge);
		m->recv = (const void *)(wqe + 1);
		return m->recv_sges <= rq->max_sge && !READ_ONCE(wqe->reserved);
	}
	if (!resp->have) {
		if (!keel_fast_take_shared(m))
			return false;
	} else if (resp->srq &&
		   (resp->srq != m->srq || resp->srq_id != m->srq->obj.id)) {
		return false;
	}
	m->ring = NULL;
	m->recv_id = resp->recv.wr_id;
	m->recv_sges = resp->recv.num_sge;
	m->recv = resp->recv.sge;
	return m->recv_sges <= rq->max_sge && !resp->recv.reserved;
}

/* Complete it. Return: false if nothing was done. */
static __always_inline bool keel_fast_received(struct keel_fast_msg *m)
	__must_hold(&m->qp->sq.from.lock, &m->peer->resp.lock)
{
	const struct keel_uapi_send_wqe *wqe = &m->qp->sq.wqe;
	bool imm = m->op->flags & KEEL_OP_IMM;
	struct keel_resp *resp = &m->peer->resp;
	u8 ud = !m->av ? 0 : m->av->ipv4 ? KEEL_CQE_F_GRH | KEEL_CQE_F_IPV4 :
					  KEEL_CQE_F_GRH;
	/* All members are set, so that the compiler does not clear it first. */
	struct keel_uapi_cqe cqe = {
		.wr_id = m->recv_id,
		.ts = 0,
		.wall = 0,
		.byte_len = m->len + (ud ? KEEL_GRH_BYTES : 0),
		.imm = imm ? wqe->imm : 0,
		.qp_num = m->peer->qpn,
		.src_qp = ud ? m->qp->qpn : 0,
		.vendor_err = KEEL_WHY_NONE,
		.pkey_index = 0,
		.slid = 0,
		.status = IB_WC_SUCCESS,
		.opcode = m->op->fast == KEEL_FAST_WRITE ? IB_WC_RECV_RDMA_WITH_IMM :
							    IB_WC_RECV,
		.flags = ud | (imm ? KEEL_CQE_F_IMM : 0),
		.sl = keel_recv_sl(ud),
		.reserved = { 0, 0, 0 },
	};

	if (!keel_cq_received(m->cq, &cqe, m->ring, wqe->flags & IB_SEND_SOLICITED))
		return false;
	if (!m->ring) {
		resp->have = false;
		resp->from_gen = 0;
		resp->srq = NULL;
	}
	return true;
}

/* --- operations -------------------------------------------------------------- */

/* The first part of a datagram. */
static void keel_fast_grh(struct keel_fast_msg *m)
	__must_hold(&m->qp->sq.from.lock)
{
	struct keel_sq *sq = &m->qp->sq;

	keel_ud_grh(m->av, m->len, sq->grh);
	sq->local.run[0] = (struct keel_run){ .addr = sq->grh, .len = KEEL_GRH_BYTES };
}

static __always_inline bool keel_fast_do_send(struct keel_fast_msg *m)
	__must_hold_shared(RCU) __must_hold(&m->qp->sq.from.lock, &m->peer->resp.lock)
{
	struct keel_sq *sq = &m->qp->sq;
	u32 len = m->len;

	if (m->av) {
		if (len > KEEL_UD_MTU)
			return false;
		keel_fast_grh(m);
		len += KEEL_GRH_BYTES;
	}
	if (!keel_fast_recv(m) || !keel_fast_room(m, len))
		return false;
	keel_fast_copy(&sq->remote_runs, &sq->local, len, false);
	return keel_fast_received(m);
}

static __always_inline bool keel_fast_do_write(struct keel_fast_msg *m)
	__must_hold_shared(RCU) __must_hold(&m->qp->sq.from.lock, &m->peer->resp.lock)
{
	const struct keel_uapi_send_wqe *wqe = &m->qp->sq.wqe;
	bool imm = m->op->flags & KEEL_OP_IMM;
	struct keel_sq *sq = &m->qp->sq;

	if (imm && !keel_fast_recv(m))
		return false;
	if (!keel_fast_remote(m, wqe->rdma.rkey, wqe->rdma.remote_addr, m->len,
			      IB_ACCESS_REMOTE_WRITE))
		return false;
	keel_fast_copy(&sq->remote_runs, &sq->local, m->len, true);
	if (imm)
		return keel_fast_received(m);
	keel_count(m->qp->kdev, rdma_writes, 1);
	return true;
}

static __always_inline bool keel_fast_do_read(struct keel_fast_msg *m)
	__must_hold_shared(RCU) __must_hold(&m->qp->sq.from.lock, &m->peer->resp.lock)
{
	const struct keel_uapi_send_wqe *wqe = &m->qp->sq.wqe;
	struct keel_sq *sq = &m->qp->sq;

	if (!keel_fast_remote(m, wqe->rdma.rkey, wqe->rdma.remote_addr, m->len,
			      IB_ACCESS_REMOTE_READ))
		return false;
	keel_fast_copy(&sq->local, &sq->remote_runs, m->len, true);
	keel_count(m->qp->kdev, rdma_reads, 1);
	return true;
}

/* As keel_word_change(): pages have no atomic operations of their own. */
static __always_inline bool keel_fast_do_atomic(struct keel_fast_msg *m)
	__must_hold_shared(RCU) __must_hold(&m->qp->sq.from.lock, &m->peer->resp.lock)
{
	const struct keel_uapi_send_wqe *wqe = &m->qp->sq.wqe;
	struct keel_run from = { .len = sizeof(u64) };
	struct keel_sq *sq = &m->qp->sq;
	u64 *word;

	if (m->len != sizeof(u64) || wqe->atomic.remote_addr % sizeof(u64) ||
	    !keel_fast_remote(m, wqe->atomic.rkey, wqe->atomic.remote_addr,
			      sizeof(u64), IB_ACCESS_REMOTE_ATOMIC))
		return false;
	word = sq->remote_runs.run[0].addr;
	if (!IS_ALIGNED((uintptr_t)word, sizeof(u64)))
		return false;
	if (wqe->opcode == IB_WR_ATOMIC_CMP_AND_SWP)
		sq->from.word = cmpxchg64(word, wqe->atomic.compare_add, wqe->atomic.swap);
	else
		sq->from.word = atomic64_fetch_add(wqe->atomic.compare_add,
						   (atomic64_t *)word);
	keel_count(m->qp->kdev, atomics, 1);
	from.addr = &sq->from.word;
	keel_fast_copy_runs(sq->local.run, &from, sizeof(u64), true);
	return true;
}

/* Checked with the responder's lock: does it accept the message? */
static __always_inline bool keel_fast_accepts(const struct keel_fast_msg *m)
{
	if (m->av)
		return keel_ud_takes(m->peer, m->qkey) && !keel_ud_keeps(m->peer);
	if (m->op->flags & KEEL_OP_DEPTH &&
	    (!READ_ONCE(m->qp->attr.max_rd_atomic) ||
	     !READ_ONCE(m->peer->attr.max_dest_rd_atomic)))
		return false;
	return keel_qp_connected(m->qp, m->peer);
}

static __always_inline bool keel_fast_do(struct keel_fast_msg *m)
	__must_hold_shared(RCU) __must_hold(&m->qp->sq.from.lock, &m->peer->resp.lock)
{
	switch (m->op->fast) {
	case KEEL_FAST_SEND:
		return keel_fast_do_send(m);
	case KEEL_FAST_WRITE:
		return keel_fast_do_write(m);
	case KEEL_FAST_READ:
		return keel_fast_do_read(m);
	case KEEL_FAST_ATOMIC:
		return keel_fast_do_atomic(m);
	default:
		return false;
	}
}

/*
 * XRC: the SRQ that the message names determines the domain and the CQ. No lock of the
 * responder keeps the SRQ. The section does: keel_destroy_srq() waits for its end. On
 * PREEMPT_RT there are none, and XRC messages take the slow path.
 */
static noinline bool keel_fast_xrc(struct keel_fast_msg *m)
	__must_hold_shared(RCU) __must_hold(&m->qp->sq.from.lock)
{
	struct keel_srq *srq;

	if (!KEEL_KEY_SECTIONS)
		return false;
	srq = keel_number_load(&m->qp->kdev->srqs, m->qp->sq.wqe.srqn);
	if (!srq || !srq->xrcd || srq->xrcd != m->peer->xrcd)
		return false;
	m->srq = srq;
	m->cq = srq->cq;
	m->domain = srq->domain;
	return true;
}

/* Find the SRQ, CQ and domain of the responder. Its lock keeps those that are its own. */
static __always_inline bool keel_fast_receiver(struct keel_fast_msg *m)
	__must_hold_shared(RCU) __must_hold(&m->qp->sq.from.lock)
{
	if (m->qp->type == IB_QPT_XRC_INI)
		return keel_fast_xrc(m);
	m->srq = m->peer->srq;
	m->cq = m->peer->recv_cq;
	m->domain = m->peer->domain;
	return true;
}

/**
 * keel_fast_deliver() - execute a message at the responder
 * @m: the message, with a peer that accepted it when it was found
 *
 * The requester's memory is looked up before the peer's lock is tried: a message for the
 * slow path takes the lock once.
 *
 * Context: as keel_fast_run(); the lock of the send queue is held.
 * Return: false if the message is left for the slow path: nothing was completed.
 */
bool keel_fast_deliver(struct keel_fast_msg *m)
{
	struct keel_sq *sq = &m->qp->sq;
	bool done = false;

	keel_runs_init(&sq->local);
	keel_runs_init(&sq->remote_runs);
	/* Room for the GRH. */
	if (m->av)
		sq->local.n = 1;
	keel_resp_stay();
	if (KEEL_KEY_SECTIONS)
		keel_keys_enter();
	if (keel_fast_receiver(m) && keel_fast_local(m) &&
	    mutex_trylock(&m->peer->resp.lock)) {
		done = keel_fast_accepts(m) && keel_fast_do(m);
		keel_runs_put(&sq->remote_runs);
		mutex_unlock(&m->peer->resp.lock);
	}
	keel_runs_put(&sq->local);
	if (KEEL_KEY_SECTIONS)
		keel_keys_leave();
	keel_resp_relax();
	return done;
}
