/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Queue pairs.
 *
 * Locks, outermost first (see Documentation/data-path.rst):
 *	keel_qp.modify_lock	mutex
 *	keel_qp.sq.from.lock	mutex; its holder runs the send queue
 *	keel_far.from.lock	mutex; its holder executes what another host has sent
 *	keel_qp.resp.lock	mutex of the peer; its holder delivers to that QP
 *	keel_events.raising	spinlock; event handlers run under it
 *	keel_rq.lock		spinlock; taking a receive WQE of an SRQ. A QP's own
 *				receive queue needs only its resp.lock
 *	keel_cq.lock		spinlock; adding a CQE
 *	keel_qp.state_lock	spinlock
 *	keel_events.lock	spinlock; events that are to be raised
 *	keel_worker.lock	spinlock, innermost
 *	the lock of orphans.c	spinlock, innermost
 * A responder never takes the lock of a send queue, so two QPs that send to each
 * other cannot deadlock.
 */
#ifndef KEEL_QP_H
#define KEEL_QP_H

#include <linux/ktime.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>

#include "keel.h"
#include "keel_ah.h"
#include "keel_cq.h"
#include "keel_events.h"
#include "keel_resp.h"
#include "keel_rq.h"
#include "keel_sge.h"
#include "keel_sq.h"
#include "keel_srq.h"
#include "keel_worker.h"

/* Numbers of QPs. The GSI has a number of its own. */
#define KEEL_QPN_GSI	1
#define KEEL_QPN_MIN	2
#define KEEL_QPN_MAX	(BIT(24) - 2)

/* Longest message. */
#define KEEL_MAX_MSG	SZ_1G

/**
 * struct keel_qp - a queue pair
 * @obj: the object; holds PD or XRC domain, CQs and SRQ
 * @holds: of @obj
 * @kdev: its device
 * @qpn: its number
 * @type: its type
 * @user: a user process created it
 * @context: the user context that created it: only calls on this context may ring
 *	the doorbell. The QP is destroyed before the context. NULL: no doorbell
 *	(XRC_RECV, kernel consumers)
 * @sig_all: every send WQE generates a CQE
 * @domain: number of its domain; XRC_RECV has none
 * @xrcd: XRC_RECV: its XRC domain
 * @send_cq: CQ of the send queue, held
 * @recv_cq: CQ of the receive queue, held
 * @srq: its SRQ, held, or NULL
 * @cap: its capabilities, as ibv_create_qp() returned them
 * @local: as @av.local, for peers, which read it without a lock; changes with @av
 * @modify_lock: serializes modify operations. Only calls of the owner take it: the
 *	owner may be preempted with it
 * @attr: current attributes; change under @modify_lock and @state_lock
 * @av: address vector for @attr.ah_attr; under @sq.from.lock
 * @state_lock: protects @ib, @state, @dying and @polled against writers
 * @events: its asynchronous events
 * @ib: ib_core's structure, or NULL after destroy. In a handler it stays until
 *	keel_events_close() returns.
 * @state: its state; transfers also read it without the lock: keel_qp_state()
 * @dying: destroy has begun: transfers end; read likewise: keel_qp_is_dying()
 * @est: IB_EVENT_COMM_EST was raised; under @resp.lock
 * @sq: its send queue
 * @rq: its receive queue, if it has one of its own
 * @resp: its responder
 * @gen: generation, unique among the QPs of the device. RESET assigns a new one.
 * @remote: @gen of the QP that it has exchanged a message with; 0: none yet
 * @far: what it needs for a peer on another host; NULL until it has had one. Set once,
 *	with release semantics, and freed with the QP.
 * @worker: runs the send queue when no doorbell does, and flushes; a reference.
 *	Changes under @state_lock. NULL: kernel consumers, XRC_RECV
 * @job: for @worker
 * @polled: @worker polls the send queue: @job is queued or runs; under @state_lock
 * @poll_end: when it stops, ns of ktime_get_ns(), unless it finds new WQEs before
 * @poll_user: producer index of the send queue when that time last began, or @polled was
 *	cleared
 * @work: used instead of @job for the QP of a kernel consumer
 * @orphan: used instead of @job if there is no worker, or a dead one
 * @ended: the queues are flushed for a dead @worker, or were, and this is not done again;
 *	under @state_lock
 * @send_left: if @ended: number of send WQEs that are left to be flushed for a dead
 *	@worker
 * @recv_left: the same for receive WQEs
 * @go_on: @orphan is to be queued again; only the thread that runs it uses this
 * @mcast: groups it is attached to, under &keel_mcasts.lock
 */
struct keel_qp {
	struct keel_obj obj;
	struct keel_hold holds[4];
	struct keel_dev *kdev;
	u32 qpn;
	enum ib_qp_type type;
	bool user;
	const struct ib_ucontext *context;
	bool sig_all;
	u32 domain;
	struct keel_xrcd *xrcd;
	struct keel_cq *send_cq;
	struct keel_cq *recv_cq;
	struct keel_srq *srq;
	struct ib_qp_cap cap;
	bool local;
	struct mutex modify_lock;
	struct ib_qp_attr attr;
	struct keel_av av __guarded_by(&sq.from.lock);
	spinlock_t state_lock;
	struct keel_events events;
	struct ib_qp *ib __guarded_by(&state_lock);
	enum ib_qp_state state __guarded_by(&state_lock);
	bool dying __guarded_by(&state_lock);
	bool est __guarded_by(&resp.lock);
	struct keel_sq sq;
	struct keel_rq rq;
	struct keel_resp resp;
	atomic64_t gen;
	atomic64_t remote;
	struct keel_far *far;
	struct keel_worker *worker __guarded_by(&state_lock);
	struct keel_job job;
	bool polled __guarded_by(&state_lock);
	u64 poll_end;
	u32 poll_user;
	struct work_struct work;
	struct keel_orphan orphan;
	bool ended __guarded_by(&state_lock);
	u32 send_left __guarded_by(&state_lock);
	u32 recv_left __guarded_by(&state_lock);
	bool go_on;
	struct list_head mcast __guarded_by(&kdev->mcasts.lock);
};

struct keel_ib_qp {
	struct ib_qp ib;
	struct keel_qp *qp;
};

static inline struct keel_qp *to_kqp(struct ib_qp *ib)
{
	return container_of(ib, struct keel_ib_qp, ib)->qp;
}

/**
 * keel_qp_state() - the state of a QP, for callers without &keel_qp.state_lock
 * @qp: the QP
 *
 * Context: any. The state may change at once. A reset, and the flush after an
 * error, take the lock of a queue before they change the queue. So a thread with
 * that lock may finish its step.
 * Return: the state.
 */
static inline enum ib_qp_state keel_qp_state(const struct keel_qp *qp)
{
	/* The caller expects that it changes at once. */
	return context_unsafe(READ_ONCE(qp->state));
}

/**
 * keel_qp_is_dying() - has the destroy of a QP begun?
 * @qp: the QP
 *
 * Context: any. The destroy sets this before it takes and drops the locks of the
 * queues, so a caller with such a lock finishes before the queue is destroyed.
 * Return: true if so.
 */
static inline bool keel_qp_is_dying(const struct keel_qp *qp)
{
	/* See above: the destroy waits for the locks of the queues. */
	return context_unsafe(READ_ONCE(qp->dying));
}

/**
 * keel_qp_worker() - the worker of a QP, for callers without &keel_qp.state_lock
 * @qp: the QP
 *
 * Context: RCU read side, which keeps a worker that is replaced meanwhile.
 * Return: the worker, or NULL.
 */
static inline struct keel_worker *keel_qp_worker(const struct keel_qp *qp)
	__must_hold_shared(RCU)
{
	/* RCU keeps it. */
	return context_unsafe(READ_ONCE(qp->worker));
}

static inline bool keel_qp_is_dgram(const struct keel_qp *qp)
{
	return qp->type == IB_QPT_UD || qp->type == IB_QPT_GSI;
}

/*
 * Keys that a work request of @qp may name. @domain is that of the QP. For receive
 * WQEs of an SRQ, and for rkeys of XRC, it is that of the SRQ.
 */
static inline struct keel_scope keel_qp_scope(const struct keel_qp *qp,
					      u32 domain)
{
	return (struct keel_scope){
		.kdev = qp->kdev,
		.domain = domain,
		.qpn = qp->qpn,
		.ctx = qp->context,
		.kernel = !qp->user,
	};
}

/**
 * keel_qp_load() - look up a QP by number
 * @kdev: the device
 * @qpn: the number
 *
 * Context: RCU read side, which keeps the QP.
 * Return: the QP, without a reference; or NULL.
 */
static __always_inline struct keel_qp *keel_qp_load(struct keel_dev *kdev,
						    u32 qpn)
	__must_hold_shared(RCU)
{
	return keel_number_load(&kdev->qps, qpn);
}

/**
 * keel_qp_queue_orphan() - queue the work of a QP that no process runs
 * @qp: the QP of a user; its reference for the work is passed on
 *
 * Context: any.
 * Return: false if the work is queued already.
 */
static inline bool keel_qp_queue_orphan(struct keel_qp *qp)
{
	return keel_orphan_queue(&qp->obj.user->orphans, &qp->orphan);
}

/**
 * keel_qp_cancel_orphan() - dequeue the work of a QP
 * @qp: the QP
 *
 * Context: any.
 * Return: true if it was queued: the caller now owns its reference.
 */
static inline bool keel_qp_cancel_orphan(struct keel_qp *qp)
{
	return qp->obj.user &&
	       keel_orphan_cancel(&qp->obj.user->orphans, &qp->orphan);
}

/**
 * keel_ud_keeps() - does a QP keep a datagram whose memory is not present?
 * @qp: the QP
 *
 * Context: any. It may change at once.
 * Return: true if so.
 */
static inline bool keel_ud_keeps(const struct keel_qp *qp)
{
	return qp->resp.dgram && READ_ONCE(qp->resp.dgram->pending);
}

/* qp.c */
void keel_qp_put_later(struct keel_qp *qp);

/* qp_state.c */
struct keel_qp *keel_qp_get(struct keel_dev *kdev, u32 qpn);
void keel_qp_schedule(struct keel_qp *qp);
void keel_qp_schedule_alive(struct keel_qp *qp);
struct keel_qp *keel_qp_find_peer(const struct keel_qp *qp)
	__must_hold_shared(RCU);
void keel_qp_wake_peer(struct keel_qp *qp);
int keel_qp_own_worker(struct keel_qp *qp);
int keel_qp_own_events(struct keel_qp *qp, struct keel_workers *workers);
void keel_qp_raise(struct keel_obj *obj, int type);
bool keel_qp_is_orphan(const struct keel_qp *qp);
bool keel_qp_has_orphans(const struct keel_qp *qp);
void keel_qp_event(struct keel_qp *qp, enum ib_event_type type);
bool keel_qp_fail(struct keel_qp *qp, enum ib_qp_state state,
		  enum ib_event_type type);
void keel_qp_fail_orphan(struct keel_qp *qp);
void keel_qp_report(struct keel_qp *qp);
void keel_qp_reported(struct keel_qp *qp);
void keel_qp_unpoll(struct keel_qp *qp) __must_hold(&qp->state_lock);

/* qp_modify.c */
int keel_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		   struct ib_udata *udata);
int keel_query_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		  struct ib_qp_init_attr *init);
int keel_qp_check(const struct keel_qp *qp, const struct ib_qp_attr *attr,
		  int mask)
	__must_hold(&qp->modify_lock);
#if IS_ENABLED(CONFIG_KUNIT)
int keel_qp_commit(struct keel_qp *qp, enum ib_qp_state cur,
		   enum ib_qp_state next, const struct ib_qp_attr *attr,
		   int mask, const struct keel_av *av);
#endif

/* qp_run.c */
int keel_qp_run_until(struct keel_qp *qp, u64 until);
void keel_qp_run_job(struct keel_qp *qp);
void keel_qp_work(struct work_struct *work);

/* poll.c */
void keel_qp_poll(struct keel_qp *qp);
void keel_qp_job(struct keel_job *job, bool alive);

/* qp_orphan.c */
void keel_qp_init_orphan(struct keel_qp *qp);

/* sq_complete.c */
void keel_sq_complete(struct keel_qp *qp, enum ib_wc_status status, u32 why,
		      u32 byte_len)
	__must_hold(&qp->sq.from.lock);
void keel_sq_error(struct keel_qp *qp, enum ib_wc_status status, u32 why,
		   u32 byte_len)
	__must_hold(&qp->sq.from.lock);

/* sq_wait.c */
bool keel_sq_wait(struct keel_qp *qp, enum keel_wait wait, u64 ns)
	__must_hold(&qp->sq.from.lock);
bool keel_sq_wait_receive(struct keel_qp *qp, u64 rnr_ns)
	__must_hold(&qp->sq.from.lock);
bool keel_sq_wait_peer(struct keel_qp *qp) __must_hold(&qp->sq.from.lock);
u64 keel_rnr_ns(u8 timer);
enum hrtimer_restart keel_sq_expired(struct hrtimer *timer);

/* req.c */
enum keel_xfer_result keel_req_run(struct keel_xfer *x)
	__must_hold(&x->qp->sq.from.lock);
enum keel_xfer_result keel_req_ahead(struct keel_qp *qp, int posted,
				     const struct keel_turn *turn)
	__must_hold(&qp->sq.from.lock);

/* local.c */
enum keel_xfer_result keel_local_bind(struct keel_xfer *x);
enum keel_xfer_result keel_local_invalidate(struct keel_xfer *x);
enum keel_xfer_result keel_local_reg_mr(struct keel_xfer *x);

/* srq_wait.c */
bool keel_srq_wait(struct keel_srq *srq, struct keel_from *from)
	__must_hold(&from->lock);
void keel_srq_wait_end(struct keel_from *from) __must_hold(&from->lock);

/* A datagram's CQE has the packet type in this member: see enum keel_uapi_packet. */
static inline u8 keel_recv_sl(u8 flags)
{
	if (!(flags & KEEL_CQE_F_GRH))
		return 0;
	return flags & KEEL_CQE_F_IPV4 ? KEEL_PACKET_IPV4 : KEEL_PACKET_IPV6;
}

/* resp.c */
enum keel_xfer_result keel_resp_send(struct keel_xfer *x)
	__must_hold(&x->from->lock, &x->peer->resp.lock);
enum keel_xfer_result keel_resp_write(struct keel_xfer *x)
	__must_hold(&x->from->lock, &x->peer->resp.lock);
enum keel_xfer_result keel_resp_read(struct keel_xfer *x)
	__must_hold(&x->from->lock, &x->peer->resp.lock);
enum keel_xfer_result keel_resp_flush(struct keel_xfer *x)
	__must_hold(&x->from->lock, &x->peer->resp.lock);
bool keel_resp_find_srq(struct keel_xfer *x, u32 srqn) __must_hold(&x->peer->resp.lock);
enum keel_xfer_result keel_resp_refuse(struct keel_xfer *x,
				       enum ib_wc_status status, u32 why)
	__must_hold(&x->peer->resp.lock);
enum keel_copy_result keel_resp_copy(struct keel_xfer *x,
				     const struct keel_segs *dst,
				     const struct keel_segs *src)
	__must_hold(&x->from->lock, &x->peer->resp.lock);
enum keel_xfer_result keel_resp_copied(struct keel_xfer *x,
				       enum keel_copy_result copied,
				       enum keel_copy_result local)
	__must_hold(&x->from->lock, &x->peer->resp.lock);
bool keel_resp_remote(struct keel_xfer *x, u32 access, u32 rkey,
		      u64 addr, u64 len, enum keel_xfer_result *result)
	__must_hold(&x->from->lock, &x->peer->resp.lock);

/* resp_atomic.c */
enum keel_xfer_result keel_resp_atomic(struct keel_xfer *x)
	__must_hold(&x->from->lock, &x->peer->resp.lock);
enum keel_xfer_result keel_resp_atomic_write(struct keel_xfer *x)
	__must_hold(&x->from->lock, &x->peer->resp.lock);

/* recv.c */
void keel_recv_drop(struct keel_qp *qp) __must_hold(&qp->resp.lock);
void keel_rq_flush(struct keel_qp *qp);
bool keel_rq_flush_some(struct keel_qp *qp, u32 most);
bool keel_recv_is_of(const struct keel_resp *resp, const struct keel_srq *srq)
	__must_hold(&resp->lock);
int keel_recv_take(struct keel_xfer *x)
	__must_hold(&x->from->lock, &x->peer->resp.lock);
enum ib_wc_status keel_recv_segs(struct keel_qp *peer, u64 len, u32 *why)
	__must_hold(&peer->resp.lock);
struct keel_uapi_cqe keel_recv_cqe(const struct keel_xfer *x,
				   enum ib_wc_status status, u32 why,
				   u32 byte_len, u8 flags);
int keel_recv_report(struct keel_qp *peer, struct keel_uapi_cqe *cqe,
		     bool solicited)
	__must_hold(&peer->resp.lock);
int keel_recv_complete(struct keel_xfer *x, enum ib_wc_status status, u32 why,
		       u32 byte_len, u8 flags)
	__must_hold(&x->peer->resp.lock);
bool keel_xfer_stop(void *arg);

/* ud.c */
enum keel_xfer_result keel_ud_send(struct keel_xfer *x)
	__must_hold(&x->from->lock);
enum keel_xfer_result keel_ud_arrived(struct keel_xfer *x, const struct keel_av *av, u32 qkey)
	__must_hold(&x->from->lock);
void keel_ud_run(struct keel_qp *qp);
void keel_ud_grh(const struct keel_av *av, u32 len, u8 grh[KEEL_GRH_BYTES]);
bool keel_ud_takes(const struct keel_qp *peer, u32 qkey);
u32 keel_ud_qkey(const struct keel_qp *qp, u32 qkey);

/*
 * Return true if @qp has had contact with no QP yet, or with @peer. By now the
 * number of the peer can belong to another QP, or to the same QP after a RESET.
 */
static inline bool keel_qp_knows(const struct keel_qp *qp,
				 const struct keel_qp *peer)
{
	u64 remote = atomic64_read(&qp->remote);

	return !remote || remote == atomic64_read(&peer->gen);
}

/*
 * A UC responder accepts any PSN at the start of a message. The other types count
 * from the PSNs that both sides were given.
 */
static inline bool keel_qp_psns_match(const struct keel_qp *qp,
				      const struct keel_qp *peer)
{
	return qp->type == IB_QPT_UC ||
	       qp->attr.sq_psn == READ_ONCE(peer->attr.rq_psn);
}

/*
 * Is @peer connected to the number of @qp on this device? If its address is that of another
 * host, the number is that of a QP there.
 */
static inline bool keel_qp_is_to(const struct keel_qp *peer, const struct keel_qp *qp)
{
	return READ_ONCE(peer->attr.dest_qp_num) == qp->qpn && READ_ONCE(peer->local);
}

/**
 * keel_qp_connected() - does the peer accept messages of a QP?
 * @qp: the requester's QP, of a connected type
 * @peer: the QP that it is connected to
 *
 * Context: any; RCU or a reference keeps @peer. If the caller holds the lock of
 * the peer's responder, the peer may still fail, or its reset or destroy may
 * begin. But until the lock is dropped, a reset does not clear the attributes of
 * the peer, and its ring and its CQ stay.
 * Return: true if so.
 */
static inline bool keel_qp_connected(const struct keel_qp *qp,
				     const struct keel_qp *peer)
{
	enum ib_qp_type wanted = qp->type == IB_QPT_XRC_INI ? IB_QPT_XRC_TGT :
				 qp->type;
	/* Pairs with the release that set the state after the attributes. */
	enum ib_qp_state state = context_unsafe(smp_load_acquire(&peer->state));

	return peer->type == wanted && !keel_qp_is_dying(peer) &&
	       state >= IB_QPS_RTR && state != IB_QPS_ERR &&
	       keel_qp_is_to(peer, qp) &&
	       keel_qp_psns_match(qp, peer) && keel_qp_knows(qp, peer) &&
	       keel_qp_knows(peer, qp);
}

/* How long a doorbell copies before it leaves the rest to the worker. */
#define KEEL_DOORBELL_NS	(100 * NSEC_PER_MSEC)

/**
 * keel_qp_run() - run a QP for the usual time of a doorbell
 * @qp: the QP
 *
 * Context: as keel_qp_run_until().
 * Return: likewise.
 */
static inline int keel_qp_run(struct keel_qp *qp)
{
	return keel_qp_run_until(qp, ktime_get_ns() + KEEL_DOORBELL_NS);
}

#endif /* KEEL_QP_H */
