/* SPDX-License-Identifier: GPL-2.0 */
/*
 * QPs and receive queues, and what the two sides of a transfer know of each
 * other.
 *
 * Locks, outermost first (see Documentation/data-path.rst):
 *	keel_qp.modify_lock	mutex
 *	keel_qp.sq.lock		mutex; who has it runs the send queue
 *	keel_qp.resp.lock	mutex of the peer; who has it delivers to that QP
 *	keel_srq.event_lock	spinlock; handlers of an SRQ's events run under it
 *	keel_rq.lock		spinlock around taking one receive of an SRQ; of a
 *				QP's own queue its resp.lock is enough
 *	keel_cq.lock		spinlock around adding one completion
 *	keel_qp.state_lock	spinlock, innermost
 * A responder never takes a send queue's lock, so two QPs that send to each
 * other cannot wait for each other in a circle.
 */
#ifndef KEEL_QP_H
#define KEEL_QP_H

#include <linux/hrtimer.h>
#include <linux/workqueue.h>

#include "keel.h"
#include "keel_ah.h"
#include "keel_cq.h"
#include "keel_memreq.h"
#include "keel_mr.h"
#include "keel_ring.h"
#include "keel_segs.h"
#include "keel_walk.h"
#include "keel_worker.h"
#include "keel_xfer.h"

/* Longest message. */
#define KEEL_MAX_MSG	SZ_1G
/* Bytes in front of a UD message. */
#define KEEL_GRH_BYTES	40
/* The largest datagram: the MTU. */
#define KEEL_UD_MTU	4096
/* How long memory may be absent before that is its owner's error. */
#define KEEL_PAGES_NS	(5 * NSEC_PER_SEC)
/* Devices that work on a dma-buf may take longer. */
#define KEEL_FENCE_NS	(30 * NSEC_PER_SEC)

/**
 * struct keel_recv - a receive that was taken from its queue
 * @wr_id: for the completion
 * @num_sge: SGEs, as the program wrote it: not checked
 * @reserved: likewise
 * @sge: what the program wrote
 */
struct keel_recv {
	u64 wr_id;
	u32 num_sge;
	u32 reserved;
	struct keel_uapi_sge sge[KEEL_MAX_SGE];
};

/**
 * struct keel_rq - a receive queue, of a QP or shared
 * @lock: protects @ring of an SRQ; of a QP's own queue &keel_resp.lock does
 * @ring: its ring
 * @max_sge: SGEs of an entry
 * @post_lock: kernel consumers: one post at a time
 * @wanted: a sender waits for a receive: whoever posts one wakes it
 */
struct keel_rq {
	spinlock_t lock;
	struct keel_ring ring;
	u32 max_sge;
	spinlock_t post_lock;
	bool wanted;
};

/**
 * struct keel_srq - a shared receive queue
 * @obj: the object; holds the PD, and of an XRC SRQ the XRC domain and the CQ
 * @ib: the core's part, or NULL once it is destroyed; changes under both
 *	@event_lock and @rq.lock
 * @event_lock: one handler at a time; outside of @rq.lock
 * @rq: its queue
 * @srqn: its number
 * @limit: fewer receives than that raise an event, once; 0: none; under
 *	@rq.lock
 * @dead: its owner wrote nonsense, or its CQ is in error; under @rq.lock
 * @domain: number of the domain that its lkeys belong to
 * @xrcd: XRC: the domain
 * @cq: XRC: where receives complete
 * @waiters: struct keel_sq of senders that wait for a receive, under @rq.lock
 * @wq: of the device
 * @work: wakes them, for those who may not sleep
 */
struct keel_srq {
	struct keel_obj obj;
	struct ib_srq *ib;
	spinlock_t event_lock;
	struct keel_rq rq;
	u32 srqn;
	u32 limit;
	bool dead;
	u32 domain;
	struct keel_xrcd *xrcd;
	struct keel_cq *cq;
	struct list_head waiters;
	struct workqueue_struct *wq;
	struct work_struct work;
};

/* Why a send queue waits. */
enum keel_wait {
	KEEL_WAIT_NONE,
	KEEL_WAIT_RNR,		/* the peer has no receive */
	KEEL_WAIT_PEER,		/* there is no peer */
	KEEL_WAIT_MEMORY,	/* memory is not present */
};

/* How far an atomic or an atomic write is. */
enum keel_stage {
	KEEL_STAGE_NEW,
	KEEL_STAGE_FETCHED,	/* the operand is in &keel_sq.word */
	KEEL_STAGE_DONE,	/* the memory has changed */
};

/**
 * struct keel_sq - a send queue
 * @lock: who has it runs the queue
 * @kicked: there may be more to do
 * @ring: its ring
 * @wait: why the first entry waits
 * @deadline: when that is an error, ns of ktime_get_ns(); U64_MAX: never
 * @timer: kicks the QP then
 * @wqe: copy of the entry that runs
 * @data: copy of what is behind it: inline data or SGEs
 * @inline_mem: inline data in @data as memory
 * @segs: the local side of the entry that runs
 * @remote: its remote side, of RDMA; the GRH, of UD
 * @drained: SQD: the event was raised
 * @reporting: its error has ended the QP and is not reported yet: nothing is
 *	flushed before
 * @post_lock: kernel consumers: protects the producer's side
 * @peer: the peer of last time, to be looked at only while @qps_gone is what it
 *	was; or NULL
 * @qps_gone: &keel_dev.qps_gone, read before the lookup of @peer
 * @memo: the lkey of last time
 * @fetch: how far the entry is that runs, if it was begun before
 * @waited: the memory that @deadline is for, to be compared only
 * @stage: how far it is, of atomics and atomic writes
 * @word: of an atomic what the memory was, of an atomic write the operand
 * @srq: the SRQ whose receive it waits for, with a reference, or NULL
 * @waiting: in &keel_srq.waiters
 */
struct keel_sq {
	struct mutex lock;
	atomic_t kicked;
	struct keel_ring ring;
	enum keel_wait wait;
	u64 deadline;
	struct hrtimer timer;
	struct keel_uapi_send_wqe wqe;
	u8 data[KEEL_MAX_STRIDE - sizeof(struct keel_uapi_send_wqe)] __aligned(16);
	struct keel_mem inline_mem;
	struct keel_segs segs;
	struct keel_segs remote;
	bool drained;
	bool reporting;
	spinlock_t post_lock;
	struct keel_qp *peer;
	s64 qps_gone;
	struct keel_key_memo memo;
	struct keel_fetch fetch;
	struct keel_need waited;
	enum keel_stage stage;
	u64 word;
	struct keel_srq *srq;
	struct list_head waiting;
};

/**
 * struct keel_dgram - datagrams and memory that is not present (UD)
 * @pending: @data is a datagram for the receive that was taken, whose memory is
 *	not present; under &keel_resp.lock
 * @fetch: how far it is copied
 * @len: bytes of @data
 * @cqe: the completion, but for what the receive adds
 * @solicited: the sender asked for an event
 * @data: GRH and payload
 * @source: a datagram that is sent: it goes to its receivers from here; under the
 *	lock of the send queue
 * @source_mem: @source as memory
 */
struct keel_dgram {
	bool pending;
	struct keel_fetch fetch;
	u32 len;
	struct keel_uapi_cqe cqe;
	bool solicited;
	u8 data[KEEL_GRH_BYTES + KEEL_UD_MTU] __aligned(16);
	u8 source[KEEL_UD_MTU] __aligned(16);
	struct keel_mem source_mem;
};

/**
 * struct keel_resp - the responder of a QP
 * @lock: who has it delivers to the QP
 * @have: @recv is a receive that a message began to use, and did not finish
 * @recv: the receive
 * @segs: the QP's side of the message that is delivered
 * @srq: XRC: the SRQ that @recv came from, with a reference while @have
 * @last: the last receive of an SRQ was reported
 * @from: &keel_qp.gen of the sender whose message @recv began to be used for
 * @memo: the lkey of last time
 * @dgram: UD: see there; else NULL
 */
struct keel_resp {
	struct mutex lock;
	bool have;
	bool last;
	u64 from;
	struct keel_recv recv;
	struct keel_segs segs;
	struct keel_srq *srq;
	struct keel_key_memo memo;
	struct keel_dgram *dgram;
};

/**
 * struct keel_qp - a queue pair
 * @obj: the object; holds PD or XRC domain, CQs and SRQ
 * @kdev: its device
 * @qpn: its number
 * @type: its type
 * @user: its queues are a program's
 * @context: that program's, to be compared only: who may ring the doorbell. The
 *	QP goes before it does. NULL: nobody may (XRC_RECV, the kernel's own)
 * @sig_all: every send completes
 * @domain: number of its domain; XRC_RECV has none
 * @xrcd: XRC_RECV: its XRC domain
 * @send_cq: where sends complete, held
 * @recv_cq: where receives complete, held
 * @srq: its SRQ, held, or NULL
 * @cap: what it was made with
 * @modify_lock: one modify at a time; protects @attr against others who write
 * @attr: as modified so far
 * @av: of @attr.ah_attr
 * @state_lock: protects @ib, @state and @dying against others who write
 * @ib: the core's part, or NULL once it is destroyed
 * @state: its state; transfers look at it now and then without the lock
 * @dying: it is being destroyed: transfers end
 * @est: communication established was reported
 * @sq: its send queue
 * @rq: its receive queue, if it has one of its own
 * @resp: its responder
 * @gen: which QP this is, in which of its lives: RESET begins another one. No
 *	two are the same.
 * @remote: @gen of the QP that it has had contact with; 0: none yet
 * @worker: runs the send queue when no doorbell does, and flushes; a reference.
 *	Changes under @state_lock. NULL: of a consumer in the kernel, or XRC_RECV
 * @job: for @worker
 * @work: where there is no worker, or it is dead
 * @ended: @worker is dead and the queues were flushed: no more of that before a
 *	process rings
 * @mcast: groups it is attached to, under &keel_mcasts.lock
 */
struct keel_qp {
	struct keel_obj obj;
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
	struct mutex modify_lock;
	struct ib_qp_attr attr;
	struct keel_av av;
	spinlock_t state_lock;
	struct ib_qp *ib;
	enum ib_qp_state state;
	bool dying;
	bool est;
	struct keel_sq sq;
	struct keel_rq rq;
	struct keel_resp resp;
	atomic64_t gen;
	atomic64_t remote;
	struct keel_worker *worker;
	struct keel_job job;
	struct work_struct work;
	bool ended;
	struct list_head mcast;
};

struct keel_ib_qp {
	struct ib_qp ib;
	struct keel_qp *qp;
};

struct keel_ib_srq {
	struct ib_srq ib;
	struct keel_srq *srq;
};

static inline struct keel_qp *to_kqp(struct ib_qp *ib)
{
	return container_of(ib, struct keel_ib_qp, ib)->qp;
}

static inline struct keel_srq *to_ksrq(struct ib_srq *ib)
{
	return container_of(ib, struct keel_ib_srq, ib)->srq;
}

static inline bool keel_qp_is_dgram(const struct keel_qp *qp)
{
	return qp->type == IB_QPT_UD || qp->type == IB_QPT_GSI;
}

/* Keys that @qp may name. They are of its domain, but of receives of XRC. */
static inline struct keel_scope keel_qp_scope(const struct keel_qp *qp,
					      u32 domain)
{
	return (struct keel_scope){
		.kdev = qp->kdev,
		.domain = domain,
		.qpn = qp->qpn,
		.kernel = !qp->user,
	};
}

/* rq.c */
int keel_rq_take(struct keel_rq *rq, struct keel_recv *recv);
int keel_rq_take_locked(struct keel_rq *rq, struct keel_recv *recv);
int keel_rq_post(struct keel_rq *rq, const struct ib_recv_wr *wr);
bool keel_rq_want(struct keel_rq *rq);
bool keel_rq_was_wanted(struct keel_rq *rq);

/* srq.c */
struct keel_srq *keel_srq_get(struct keel_dev *kdev, u32 srqn);
int keel_srq_take(struct keel_srq *srq, struct keel_recv *recv);
void keel_srq_fail(struct keel_srq *srq);

/* srq_wait.c */
bool keel_srq_wait(struct keel_srq *srq, struct keel_qp *qp);
void keel_srq_wait_end(struct keel_qp *qp);
void keel_srq_wake(struct keel_srq *srq);
void keel_srq_posted(struct keel_srq *srq);
void keel_srq_wake_later(struct keel_srq *srq);
void keel_srq_work(struct work_struct *work);

/* mcast.c */
int keel_mcast_members(struct keel_dev *kdev, const union ib_gid *gid,
		       struct keel_qp ***list);
void keel_mcast_leave(struct keel_qp *qp);

/* qp_state.c */
struct keel_qp *keel_qp_get(struct keel_dev *kdev, u32 qpn);
struct keel_qp *keel_qp_hold(struct ib_qp *ibqp);
void keel_qp_kick(struct keel_qp *qp);
void keel_qp_kick_alive(struct keel_qp *qp);
struct keel_qp *keel_qp_find_peer(const struct keel_qp *qp);
void keel_qp_wake_peer(struct keel_qp *qp);
int keel_qp_own_worker(struct keel_qp *qp);
bool keel_qp_is_orphan(const struct keel_qp *qp);
void keel_qp_event(struct keel_qp *qp, enum ib_event_type type);
bool keel_qp_fail(struct keel_qp *qp, enum ib_qp_state state,
		  enum ib_event_type type);
void keel_qp_fail_orphan(struct keel_qp *qp);
void keel_qp_reported(struct keel_qp *qp);

/* qp_modify.c */
int keel_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		   struct ib_udata *udata);
int keel_query_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		  struct ib_qp_init_attr *init);
int keel_qp_check(const struct keel_qp *qp, const struct ib_qp_attr *attr,
		  int mask);
#if IS_ENABLED(CONFIG_KUNIT)
int keel_qp_commit(struct keel_qp *qp, enum ib_qp_state cur,
		   enum ib_qp_state next, const struct ib_qp_attr *attr,
		   int mask, const struct keel_av *av);
#endif

/* qp_run.c */
int keel_qp_run(struct keel_qp *qp);
void keel_qp_job(struct keel_job *job, bool alive);
void keel_qp_work(struct work_struct *work);

/**
 * struct keel_turn - how much of a queue is to be run
 * @doorbell: by a doorbell, or another call of its owner
 * @flush: nothing is transferred, only flushed: another process that has taken the
 *	QP over runs the rest
 * @end: doorbell: index of the first WQE that was posted too late for this turn
 * @until: when the turn is over, ns of ktime_get_ns()
 */
struct keel_turn {
	bool doorbell;
	bool flush;
	u32 end;
	u64 until;
};

/* sq.c */
void keel_sq_run(struct keel_qp *qp, const struct keel_turn *turn);
void keel_sq_forget(struct keel_sq *sq);
void keel_sq_complete(struct keel_qp *qp, enum ib_wc_status status, u32 why,
		      u32 byte_len);
void keel_sq_init(struct keel_qp *qp);

/* A budget that was not decided yet. */
#define KEEL_FAST_FIRST		U32_MAX
/* Messages that a doorbell does of those that are posted meanwhile. */
#define KEEL_DOORBELL_MORE	64

/**
 * enum keel_fast - the result of the fast path
 * @KEEL_FAST_DONE: the send queue is empty, and nobody wants it run
 * @KEEL_FAST_MORE: there are more: to be called again after a pause
 * @KEEL_FAST_LATER: there are more than the caller has to do
 * @KEEL_FAST_SLOW: there may be something for keel_qp_run()
 */
enum keel_fast {
	KEEL_FAST_DONE,
	KEEL_FAST_MORE,
	KEEL_FAST_LATER,
	KEEL_FAST_SLOW,
};

/* fast.c */
enum keel_fast keel_fast_run(struct keel_qp *qp, u32 *budget);

/* req.c */
enum keel_verdict keel_req_run(struct keel_xfer *x);

/* resp.c */
enum keel_verdict keel_resp_send(struct keel_xfer *x);
enum keel_verdict keel_resp_write(struct keel_xfer *x);
enum keel_verdict keel_resp_read(struct keel_xfer *x);
enum keel_verdict keel_resp_atomic(struct keel_xfer *x);
enum keel_verdict keel_resp_atomic_write(struct keel_xfer *x);
enum keel_verdict keel_resp_flush(struct keel_xfer *x);

/* recv.c */
void keel_dgram_drop(struct keel_dgram *dgram);
void keel_rq_flush(struct keel_qp *qp);
int keel_recv_take(struct keel_xfer *x);
enum ib_wc_status keel_recv_segs(struct keel_qp *peer, u64 len, u32 *why);
struct keel_uapi_cqe keel_recv_cqe(const struct keel_xfer *x,
				   enum ib_wc_status status, u32 why,
				   u32 byte_len, u8 flags);
int keel_recv_report(struct keel_qp *peer, struct keel_uapi_cqe *cqe,
		     bool solicited);
int keel_recv_complete(struct keel_xfer *x, enum ib_wc_status status, u32 why,
		       u32 byte_len, u8 flags);
bool keel_xfer_stop(void *arg);

/* ud.c */
enum keel_verdict keel_ud_send(struct keel_xfer *x);
void keel_ud_run(struct keel_qp *qp);

/*
 * Is @peer the QP that @qp has had contact with, if any? A number can belong to
 * another QP by now, or to the same in another life.
 */
static inline bool keel_qp_knows(const struct keel_qp *qp,
				 const struct keel_qp *peer)
{
	u64 remote = atomic64_read(&qp->remote);

	return !remote || remote == atomic64_read(&peer->gen);
}

/*
 * The packets of a UC queue pair start anew with each message; those of others
 * are counted from what both sides were given.
 */
static inline bool keel_qp_psns_match(const struct keel_qp *qp,
				      const struct keel_qp *peer)
{
	return qp->type == IB_QPT_UC || qp->attr.sq_psn == peer->attr.rq_psn;
}

/**
 * keel_qp_connected() - does a QP take messages of another one?
 * @qp: the sender, a connected one
 * @peer: the QP that it is connected to
 *
 * Context: any; RCU or a reference keeps @peer. With the lock of its responder, it
 * may still fail or be about to be reset or destroyed when the answer comes, but
 * its attributes, its ring and its CQ stay until the lock is dropped.
 * Return: true if so.
 */
static inline bool keel_qp_connected(const struct keel_qp *qp,
				     const struct keel_qp *peer)
{
	enum ib_qp_type wanted = qp->type == IB_QPT_XRC_INI ? IB_QPT_XRC_TGT :
				 qp->type;
	/* Its attributes were set before its state. */
	enum ib_qp_state state = smp_load_acquire(&peer->state);

	return peer->type == wanted && !READ_ONCE(peer->dying) &&
	       state >= IB_QPS_RTR && state != IB_QPS_ERR &&
	       peer->attr.dest_qp_num == qp->qpn &&
	       keel_qp_psns_match(qp, peer) && keel_qp_knows(qp, peer) &&
	       keel_qp_knows(peer, qp);
}

#endif /* KEEL_QP_H */
