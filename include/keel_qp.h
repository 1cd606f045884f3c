/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Queue pairs.
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

#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>

#include "keel.h"
#include "keel_ah.h"
#include "keel_cq.h"
#include "keel_resp.h"
#include "keel_rq.h"
#include "keel_sge.h"
#include "keel_sq.h"
#include "keel_srq.h"
#include "keel_worker.h"

/* Longest message. */
#define KEEL_MAX_MSG	SZ_1G

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

static inline struct keel_qp *to_kqp(struct ib_qp *ib)
{
	return container_of(ib, struct keel_ib_qp, ib)->qp;
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

/* qp_state.c */
struct keel_qp *keel_qp_get(struct keel_dev *kdev, u32 qpn);
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
