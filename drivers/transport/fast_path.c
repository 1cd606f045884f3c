// SPDX-License-Identifier: GPL-2.0
/*
 * The fast path: an RC send of a user process, inline or from one SGE, to a
 * receive WQE with one SGE of the peer's own receive queue. The memory on each
 * side is pinned and within one page.
 *
 * Most messages of many applications are like this, and each function of the
 * slow path (sq.c, req.c, resp.c, recv.c) costs as much as the copy. So this
 * file handles the whole message, without lists of segments, and with
 * last-lookup caches.
 *
 * The slow path defines the semantics and reports errors. The fast path
 * executes only messages that the responder receives without an error. In all
 * other cases (an error, a lock that is taken, a CQ with timestamps), it has
 * taken and reported nothing, and the slow path starts from the beginning.
 * Bytes may have been copied: the slow path copies them again.
 *
 * Both paths keep these rules; a change to a rule is made in both places:
 *
 *	rule					fast path, slow path
 *	a WQE that was begun is finished first	keel_sq_begun()
 *	attributes are at least as new as	keel_fast_drain(),
 *	the state they came with		keel_sq_step()
 *	a WQE is read once, then validated	keel_fast_fetch(),
 *						keel_sq_fetch(),
 *						keel_req_local()
 *	members without a meaning are 0		keel_fast_fetch(),
 *						keel_opcode_clean()
 *	a responder's lock is tried for, and	keel_fast_send(),
 *	only if the peer is connected; this	keel_req_connected_send()
 *	is checked again with the lock
 *	no preemption from the first key to	keel_fast_send(),
 *	the last, see keel_resp_lock.h		keel_req_run()
 *	keys have references during a copy	keel_fast_mem(),
 *						keel_segs_local()
 *	a message is counted before its CQE	keel_cq_received(),
 *	can be seen				keel_recv_report()
 *	a receive WQE is userspace's again	keel_cq_received(),
 *	before its CQE can be seen		keel_rq_take()
 *	the responder's CQE comes before	keel_fast_send(),
 *	the requester's				keel_sq_done()
 *	a doorbell ends with the WQEs that	keel_fast_budget(),
 *	were posted when it rang		keel_sq_turn_over()
 *	CQEs are written in one place		keel_cq_write()
 *	the send queue moves on in one place	keel_sq_complete()
 *
 * tests/queues/fast_slow.c sends each message on both paths, and compares all
 * results that userspace can see.
 *
 * All of the fast path runs under RCU, which keeps objects that are looked up
 * by number. The lock of a queue keeps its ring and its CQ: the destroy of a QP
 * marks it as dying, waits for both locks, and only then drops them.
 */
#include <kunit/visibility.h>
#include <linux/mm.h>
#include <linux/string.h>

#include "keel_point.h"
#include "keel_resp_lock.h"

/* Messages of one call, during which the thread may not be rescheduled. */
#define KEEL_FAST_BUDGET	64

/**
 * struct keel_fast_wqe - the members of a send WQE that the fast path uses
 * @wr_id: for the CQE
 * @flags: enum ibv_send_flags
 * @len: bytes of the message
 * @sge: the SGE, if the data is not inline
 * @data: the inline data, or NULL
 */
struct keel_fast_wqe {
	u64 wr_id;
	u8 flags;
	u32 len;
	struct keel_uapi_sge sge;
	const void *data;
};

static __always_inline void keel_fast_sge(struct keel_uapi_sge *to,
					  const struct keel_uapi_sge *from)
{
	to->addr = READ_ONCE(from->addr);
	to->length = READ_ONCE(from->length);
	to->lkey = READ_ONCE(from->lkey);
}

/* Read each member of the WQE once. Return: false if it needs the slow path. */
static __always_inline bool keel_fast_fetch(const struct keel_qp *qp,
					    struct keel_fast_wqe *to)
{
	const struct keel_ring *ring = &qp->sq.ring;
	const struct keel_uapi_send_wqe *wqe;
	const u64 *rest;
	u32 inline_len;
	u16 num_sge;

	wqe = keel_ring_entry(ring, ring->index);
	rest = (const u64 *)wqe->reserved;
	BUILD_BUG_ON(sizeof(wqe->reserved) != 5 * sizeof(*rest));
	num_sge = READ_ONCE(wqe->num_sge);
	inline_len = READ_ONCE(wqe->inline_len);
	to->wr_id = READ_ONCE(wqe->wr_id);
	to->flags = READ_ONCE(wqe->flags);
	/* As keel_opcode_clean(), for sends. */
	if (READ_ONCE(wqe->opcode) != IB_WR_SEND || READ_ONCE(wqe->imm) ||
	    READ_ONCE(wqe->srqn))
		return false;
	if (READ_ONCE(rest[0]) | READ_ONCE(rest[1]) | READ_ONCE(rest[2]) |
	    READ_ONCE(rest[3]) | READ_ONCE(rest[4]))
		return false;
	switch (to->flags & ~(IB_SEND_FENCE | IB_SEND_SIGNALED |
			      IB_SEND_SOLICITED)) {
	case 0:
		if (num_sge != 1 || inline_len || !qp->cap.max_send_sge)
			return false;
		keel_fast_sge(&to->sge, (const void *)(wqe + 1));
		to->len = to->sge.length;
		to->data = NULL;
		return to->len && to->len <= PAGE_SIZE;
	case IB_SEND_INLINE:
		to->len = inline_len;
		to->data = wqe + 1;
		return inline_len && !num_sge &&
		       inline_len <= qp->cap.max_inline_data;
	default:
		return false;
	}
}

/*
 * Find the memory of an SGE. The caller drops the reference on @used.
 * Return: NULL if there is none, or if it needs the slow path.
 */
static __always_inline void *keel_fast_mem(struct keel_keys *keys,
					   struct keel_key_cache *cache,
					   const struct keel_uapi_sge *sge,
					   u32 len, u32 domain, u32 access,
					   struct keel_key **used)
	__must_hold_shared(RCU)
{
	struct keel_key *key = keel_key_cached(keys, cache, sge->lkey);
	const struct keel_mem *mem;
	u64 pos;

	*used = key;
	if (!key || keel_key_check(key, domain, access, sge->addr, len) ||
	    !refcount_inc_not_zero(&key->users))
		return NULL;
	/* The reference on the key keeps the memory and the object. */
	mem = key->mem;
	if (mem->type == KEEL_MEM_PAGES && key->obj->kind != KEEL_MW) {
		pos = key->mem_off + (sge->addr - key->iova) + mem->first;
		if (offset_in_page(pos) + len <= PAGE_SIZE)
			return page_address(*keel_mem_page(mem, pos)) +
			       offset_in_page(pos);
	}
	keel_key_put(key);
	return NULL;
}

static __always_inline struct keel_qp *keel_fast_peer(struct keel_qp *qp)
	__must_hold_shared(RCU) __must_hold(&qp->sq.lock)
{
	struct keel_dev *kdev = qp->kdev;
	/* Pairs with the barrier in keel_destroy_qp(). */
	s64 gone = atomic64_read_acquire(&kdev->qps_destroyed);
	u32 qpn = qp->attr.dest_qp_num;
	struct keel_sq *sq = &qp->sq;

	/* As keel_key_cached(). */
	if (sq->peer && sq->qps_destroyed == gone && sq->peer->qpn == qpn)
		return sq->peer;
	sq->peer = keel_qp_load(kdev, qpn);
	sq->qps_destroyed = gone;
	return sq->peer;
}

/* Find the memory of the peer's next receive WQE, as keel_fast_mem(). */
static __always_inline void *keel_fast_recv(struct keel_qp *peer, u32 len,
					    u64 *wr_id, struct keel_key **used)
	__must_hold_shared(RCU) __must_hold(&peer->resp.lock)
{
	const struct keel_uapi_recv_wqe *recv;
	struct keel_uapi_sge sge;

	/* A taken receive WQE comes first. A first message raises an event. */
	if (peer->srq || peer->resp.have || !peer->rq.max_sge ||
	    peer->recv_cq->flags ||
	    (keel_qp_state(peer) == IB_QPS_RTR && !peer->est) ||
	    keel_ring_posted(&peer->rq.ring) <= 0)
		return NULL;
	recv = keel_ring_entry(&peer->rq.ring, peer->rq.ring.index);
	*wr_id = READ_ONCE(recv->wr_id);
	if (READ_ONCE(recv->num_sge) != 1 || READ_ONCE(recv->reserved))
		return NULL;
	keel_fast_sge(&sge, (const void *)(recv + 1));
	if (sge.length < len)
		return NULL;
	return keel_fast_mem(&peer->kdev->keys, &peer->resp.cache, &sge, len,
			     peer->domain, IB_ACCESS_LOCAL_WRITE, used);
}

/* Deliver to a peer whose responder is locked. */
static __always_inline bool keel_fast_deliver(struct keel_qp *qp,
					      struct keel_qp *peer,
					      const struct keel_fast_wqe *wqe)
	__must_hold_shared(RCU) __must_hold(&qp->sq.lock, &peer->resp.lock)
{
	struct keel_key *to_key, *from_key = NULL;
	const void *from = wqe->data;
	bool done = false;
	u64 wr_id;
	void *to;

	to = keel_fast_recv(peer, wqe->len, &wr_id, &to_key);
	if (!to)
		return false;
	if (!from)
		from = keel_fast_mem(&qp->kdev->keys, &qp->sq.cache, &wqe->sge,
				     wqe->len, qp->domain, 0, &from_key);
	if (from) {
		memcpy(to, from, wqe->len);
		done = keel_cq_received(peer->recv_cq, &peer->rq.ring, wr_id,
					wqe->len, peer->qpn,
					wqe->flags & IB_SEND_SOLICITED);
		if (from_key)
			keel_key_put(from_key);
	}
	keel_key_put(to_key);
	return done;
}

/* Execute the first WQE. Return: false if it is left for the slow path. */
static __always_inline bool keel_fast_send(struct keel_qp *qp)
	__must_hold_shared(RCU) __must_hold(&qp->sq.lock)
{
	struct keel_uapi_send_wqe *done = &qp->sq.wqe;
	struct keel_fast_wqe wqe;
	struct keel_qp *peer;
	bool delivered;

	/* The slow path binds the QPs to each other on their first message. */
	if (!qp->av.local || !atomic64_read(&qp->remote) ||
	    !keel_fast_fetch(qp, &wqe))
		return false;
	peer = keel_fast_peer(qp);
	/* Do not try the lock of a QP that is not connected to this one. */
	if (!peer || !keel_qp_connected(qp, peer))
		return false;
	keel_resp_stay();
	delivered = false;
	if (mutex_trylock(&peer->resp.lock)) {
		delivered = keel_qp_connected(qp, peer) &&
			    keel_fast_deliver(qp, peer, &wqe);
		mutex_unlock(&peer->resp.lock);
	}
	keel_resp_relax();
	if (!delivered)
		return false;
	keel_count(qp->kdev, tx_msgs, 1);
	keel_count(qp->kdev, tx_bytes, wqe.len);
	done->wr_id = wqe.wr_id;
	done->opcode = IB_WR_SEND;
	done->flags = wqe.flags;
	keel_sq_complete(qp, IB_WC_SUCCESS, KEEL_WHY_NONE, 0);
	return true;
}

static enum keel_fast keel_fast_drain(struct keel_qp *qp, u32 *budget)
	__must_hold_shared(RCU) __must_hold(&qp->sq.lock)
{
	u32 left = KEEL_FAST_BUDGET;
	int posted;

	for (;;) {
		/* Attributes are at least as new as the state. */
		if (context_unsafe(smp_load_acquire(&qp->state)) != IB_QPS_RTS)
			return KEEL_FAST_SLOW;
		posted = keel_ring_posted(&qp->sq.ring);
		if (posted < 0)
			return KEEL_FAST_SLOW;
		if (!posted)
			return KEEL_FAST_DONE;
		if (!*budget)
			return KEEL_FAST_LATER;
		if (!left)
			return KEEL_FAST_MORE;
		if (!keel_fast_send(qp))
			return KEEL_FAST_SLOW;
		left--;
		(*budget)--;
	}
}

/*
 * Number of WQEs that a doorbell executes: those that were posted when it rang,
 * and a few more. Other threads leave their WQEs to the thread that runs the
 * queue.
 */
static u32 keel_fast_budget(const struct keel_qp *qp)
{
	const struct keel_ring *ring = &qp->sq.ring;

	return min(READ_ONCE(ring->head->user) - READ_ONCE(ring->index),
		   keel_ring_size(ring)) + KEEL_DOORBELL_MORE;
}

/**
 * keel_fast_run() - execute the WQEs of a QP that the fast path supports
 * @qp: the QP of a user process
 * @budget: KEEL_FAST_FIRST in the first call of a doorbell; then the remaining
 *	budget
 *
 * Context: process context, RCU read side.
 * Return: the result, see enum keel_fast.
 */
enum keel_fast keel_fast_run(struct keel_qp *qp, u32 *budget)
{
	struct keel_sq *sq = &qp->sq;
	enum keel_fast res = KEEL_FAST_SLOW;

	/* RC has a send queue; a user process's always has memory. */
	if (qp->type != IB_QPT_RC || !mutex_trylock(&sq->lock))
		return KEEL_FAST_SLOW;
	if (!keel_qp_is_dying(qp) && !keel_sq_begun(sq)) {
		/* The lock keeps the ring. */
		if (*budget == KEEL_FAST_FIRST)
			*budget = keel_fast_budget(qp);
		res = keel_fast_drain(qp, budget);
	}
	keel_point("fast_drained");
	/* RCU keeps the mutex until this function returns. */
	mutex_unlock(&sq->lock);
	/* Pairs with keel_sq_run(): if the lock was taken, it set @again. */
	smp_mb();
	if (res == KEEL_FAST_DONE && atomic_read(&sq->again))
		return KEEL_FAST_SLOW;
	return res;
}
EXPORT_SYMBOL_IF_KUNIT(keel_fast_run);
