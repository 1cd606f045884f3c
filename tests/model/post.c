// SPDX-License-Identifier: GPL-2.0
/*
 * Steps that post work requests: lists of them, of which a later one may be
 * refused.
 */
#include <errno.h>
#include <string.h>

#include "draft.h"

#define LIST		3

static struct draft drafts[LIST];

/* Put the work requests into the queue, up to the first that is refused. */
static int enqueue(struct obj *qp, int count, int *posted)
{
	int i;

	*posted = 0;
	if (qp->qp.seen < IBV_QPS_RTS || qp->qp.type == IBV_QPT_XRC_RECV)
		return EINVAL;
	for (i = 0; i < count; i++) {
		/* An opcode or a flag is checked before the room. */
		if (drafts[i].want && (!supports(qp->qp.type,
						 drafts[i].wr.opcode) ||
				       drafts[i].wr.send_flags & 1U << 20))
			return EINVAL;
		if (qp->qp.n == (int)qp->qp.sq_size)
			return ENOMEM;
		if (drafts[i].want)
			return drafts[i].want;
		qp->qp.sq[qp->qp.n++] = drafts[i].model;
		(*posted)++;
	}
	return 0;
}

static bool contended(struct obj *qp, int count)
{
	int i;

	for (i = 0; i < count; i++)
		if (wire_is_contended(qp, drafts[i].model.srqn))
			return true;
	return false;
}

/* QP DETAILS COUNT */
void op_post_send(const uint32_t *a)
{
	struct obj *qp = obj_pick(K_QP, a[0]);
	int i, want, posted, count = a[3] % 4 ? 1 : 1 + a[2] % LIST;
	struct ibv_send_wr *bad = NULL;
	struct dice d = dice_of(a[1], a[2]);

	/* Prefer a QP that can send. */
	for (i = 1; qp && i < 8 && (qp->qp.state != IBV_QPS_RTS ||
				    qp->qp.type == IBV_QPT_XRC_RECV); i++)
		qp = obj_pick(K_QP, a[0] + i);
	if (!qp || !qp_room(qp, count, 0)) {
		idle();
		return;
	}
	for (i = 0; i < count; i++) {
		draft_send(&drafts[i], qp, &d);
		draft_flags(&drafts[i], qp, i == count - 1, &d);
		drafts[i].wr.next = i < count - 1 ? &drafts[i + 1].wr : NULL;
	}
	/* The order of several requesters is not defined. */
	if (contended(qp, count)) {
		idle();
		return;
	}
	want = enqueue(qp, count, &posted);
	for (i = 0; i < count; i++)
		say("qp %u: opcode %d, wr_id %lu, %d SGEs, %lu bytes, rkey 0x%x, address 0x%lx",
		    qp->qp.qpn, drafts[i].wr.opcode,
		    (unsigned long)drafts[i].wr.wr_id, drafts[i].model.num_sge,
		    (unsigned long)draft_len(&drafts[i]), drafts[i].model.rkey,
		    (unsigned long)drafts[i].model.addr);
	expect("ibv_post_send()", ibv_post_send(qp->qp.p, &drafts[0].wr, &bad),
	       want);
	if (want && bad != &drafts[posted].wr)
		diverge("ibv_post_send(): bad_wr is not work request %d",
			posted);
	if (posted)
		wire_run(qp);
	wire_drain();
	settle();
}

/* QP WINDOW DETAILS: ibv_bind_mw() */
void op_bind_mw(const uint32_t *a)
{
	struct obj *qp = obj_pick(K_QP, a[0]), *mw = obj_pick(K_MW, a[1]);
	struct ibv_mw_bind bind = { .wr_id = ++world.wr_ids };
	struct dice d = dice_of(a[2], a[3]);
	struct send wr = {
		.wr_id = bind.wr_id, .opcode = IBV_WR_BIND_MW, .type_1 = true,
		.signaled = true,
	};
	int i, want = 0;

	for (i = 1; qp && i < 8 && (qp->qp.state != IBV_QPS_RTS ||
				    !supports(qp->qp.type, IBV_WR_BIND_MW)); i++)
		qp = obj_pick(K_QP, a[0] + i);
	for (i = 1; qp && mw && i < 8 &&
	     (mw->mw.p->type != IBV_MW_TYPE_1 ||
	      mw->holds[0]->pd.domain != qp->qp.domain); i++)
		mw = obj_pick(K_MW, a[1] + i);
	if (!qp || !mw || mw->mw.p->type != IBV_MW_TYPE_1 ||
	    !qp_room(qp, 1, 0)) {
		idle();
		return;
	}
	/* After a bind that failed, the application restores the rkey. */
	mw->mw.p->rkey = mw->mw.key;
	roll_bind(&bind.bind_info, &wr, qp->qp.domain, &d);
	bind.send_flags = IBV_SEND_SIGNALED;
	wr.mw_key = mw->mw.key;
	wr.new_key = ibv_inc_rkey(mw->mw.key);
	/* libibverbs compares the PDs as the application named them. */
	if (bind.bind_info.mr && bind.bind_info.mr->pd != mw->mw.p->pd)
		want = EPERM;
	else if (qp->qp.seen < IBV_QPS_RTS ||
		 !supports(qp->qp.type, IBV_WR_BIND_MW))
		want = EINVAL;
	else if (qp->qp.n == (int)qp->qp.sq_size)
		want = ENOMEM;
	if (!expect("ibv_bind_mw()",
		    ibv_bind_mw(qp->qp.p, mw->mw.p, &bind), want))
		return;
	if (mw->mw.p->rkey != wr.new_key)
		diverge("ibv_bind_mw(): got rkey 0x%x, want 0x%x",
			mw->mw.p->rkey, wr.new_key);
	qp->qp.sq[qp->qp.n++] = wr;
	wire_run(qp);
	wire_drain();
	settle();
}

/* --- receive work requests ------------------------------------------------- */

static void draft_recv(struct ibv_recv_wr *wr, struct ibv_sge *sge,
		       const struct obj *domain, uint32_t max_sge, bool odp,
		       struct dice *d)
{
	int i, n = 1 + (max_sge ? dice_roll(d, max_sge) : 0);

	if (dice_chance(d, 1, 100))
		n = max_sge + 1;
	for (i = 0; i < n && i < SGES_TOO_MANY; i++)
		roll_range(d, domain, IBV_ACCESS_LOCAL_WRITE, false, odp,
			   dice_chance(d, 1, 30) ? roll_bytes(d) :
			   240 + dice_roll(d, 4000), &sge[i].addr,
			   &sge[i].length, &sge[i].lkey);
	*wr = (struct ibv_recv_wr){
		.wr_id = ++world.wr_ids, .sg_list = sge, .num_sge = n,
	};
}

static int enqueue_recvs(struct rq *rq, struct ibv_recv_wr *wr, int count,
			 int *posted)
{
	struct recv *to;

	for (*posted = 0; *posted < count; (*posted)++, wr++) {
		if (wr->num_sge > (int)rq->max_sge)
			return EINVAL;
		if (rq->n == (int)rq->size)
			return ENOMEM;
		to = &rq->wr[rq->n++];
		to->wr_id = wr->wr_id;
		to->num_sge = wr->num_sge;
		memcpy(to->sge, wr->sg_list, wr->num_sge * sizeof(*to->sge));
	}
	return 0;
}

static struct ibv_recv_wr recvs[4];
static struct ibv_sge recv_sges[4][SGES_TOO_MANY];

static void draft_recvs(const struct obj *domain, struct rq *rq, int count,
			bool odp, struct dice *d)
{
	int i;

	for (i = 0; i < count; i++) {
		draft_recv(&recvs[i], recv_sges[i], domain, rq->max_sge, odp,
			   d);
		if (i)
			recvs[i - 1].next = &recvs[i];
	}
}

/* QP DETAILS COUNT */
void op_post_recv(const uint32_t *a)
{
	struct obj *qp = obj_pick(K_QP, a[0]);
	int i, want = EINVAL, posted = 0, count = 1 + a[2] % COUNT(recvs);
	struct dice d = dice_of(a[1], a[2]);
	struct ibv_recv_wr *bad = NULL;

	/* Prefer a QP that can receive. */
	for (i = 1; qp && i < 8 && (!qp->qp.rq.size ||
				    qp->qp.state == IBV_QPS_RESET ||
				    qp->qp.state == IBV_QPS_ERR); i++)
		qp = obj_pick(K_QP, a[0] + i);
	if (!qp || !qp_room(qp, 0, count)) {
		idle();
		return;
	}
	draft_recvs(qp->qp.domain, &qp->qp.rq, count,
		    qp->qp.type != IBV_QPT_UD, &d);
	if (qp->qp.seen != IBV_QPS_RESET && qp->qp.rq.size)
		want = enqueue_recvs(&qp->qp.rq, recvs, count, &posted);
	say("qp %u: %d of %d receive WQEs, the first is %lu", qp->qp.qpn,
	    posted, count, (unsigned long)recvs[0].wr_id);
	expect("ibv_post_recv()", ibv_post_recv(qp->qp.p, recvs, &bad), want);
	if (want && bad != &recvs[posted])
		diverge("ibv_post_recv(): bad_wr is not work request %d",
			posted);
	if (posted)
		wire_recv_posted(qp);
	wire_drain();
	settle();
}

/* SRQ DETAILS COUNT */
void op_post_srq_recv(const uint32_t *a)
{
	struct obj *srq = obj_pick(K_SRQ, a[0]);
	int i, want, posted, count = 1 + a[2] % COUNT(recvs);
	struct dice d = dice_of(a[1], a[2]);
	struct ibv_recv_wr *bad = NULL;

	/* The order of several requesters is not defined. */
	if (!srq || wire_waiters(srq) > 1 || !cq_room(srq->srq.cq, count)) {
		idle();
		return;
	}
	for (i = 0; i < world.n[K_QP]; i++)
		if (world.live[K_QP][i]->qp.srq == srq &&
		    !cq_room(world.live[K_QP][i]->qp.recv_cq, count)) {
			idle();
			return;
		}
	draft_recvs(srq->srq.domain, &srq->srq.rq, count, false, &d);
	want = enqueue_recvs(&srq->srq.rq, recvs, count, &posted);
	say("srq %lu: %d of %d receive WQEs, the first is %lu",
	    (unsigned long)srq->born, posted, count,
	    (unsigned long)recvs[0].wr_id);
	expect("ibv_post_srq_recv()",
	       ibv_post_srq_recv(srq->srq.p, recvs, &bad), want);
	if (want && bad != &recvs[posted])
		diverge("ibv_post_srq_recv(): bad_wr is not work request %d",
			posted);
	if (posted)
		wire_srq_posted(srq);
	wire_drain();
	settle();
}

/* CQ COUNT */
void op_poll(const uint32_t *a)
{
	struct obj *cq = obj_pick(K_CQ, a[0]);

	if (!cq) {
		idle();
		return;
	}
	cq_poll(cq, a[1] % 3 ? cq->cq.n + 1 : 1 + (int)(a[1] % 5));
	result->good++;
}
