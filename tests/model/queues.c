// SPDX-License-Identifier: GPL-2.0
/*
 * Steps for completion queues, shared receive queues and queue pairs: creation,
 * resize, destruction.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

/* A ring has a power of two of entries. */
static uint32_t ring_size(uint32_t n)
{
	uint32_t size = 1;

	while (size < n)
		size *= 2;
	return size;
}

/* --- completion queues ---------------------------------------------------- */

static struct obj *new_cq(struct ibv_cq *p, int ctx, uint32_t cqe)
{
	struct obj *o = obj_new_handle(K_CQ, ctx, p->handle);

	o->cq.p = p;
	o->cq.size = ring_size(cqe);
	o->cq.wc = calloc(CQ_MAX, sizeof(*o->cq.wc));
	if (!o->cq.wc)
		diverge("the model has no memory");
	if (p->cqe != (int)o->cq.size)
		diverge("ibv_create_cq(): got %d CQEs, want %u", p->cqe,
			o->cq.size);
	return o;
}

/* With a PD, which must be a parent domain. */
static void create_cq_ex(const uint32_t *a, uint32_t cqe)
{
	struct obj *pd = obj_pick(a[1] % 5 ? K_PARENT : K_PD, a[2]), *o;
	struct ibv_cq_init_attr_ex attr = {
		.cqe = cqe, .wc_flags = IBV_WC_STANDARD_FLAGS,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD,
	};
	int ctx = a[0] % CONTEXTS;
	struct ibv_cq_ex *p;

	if (!pd) {
		idle();
		return;
	}
	if (a[1] % 9)
		ctx = pd->ctx;
	attr.parent_domain = pd->pd.p;
	errno = 0;
	p = ibv_create_cq_ex(world.ctx[ctx], &attr);
	if (!expect_ptr("ibv_create_cq_ex()", p, pd->kind == K_PARENT &&
			pd->ctx == ctx && cqe ? 0 : EINVAL))
		return;
	o = new_cq(ibv_cq_ex_to_cq(p), ctx, cqe);
	o->cq.parent = pd;
}

/* CONTEXT HOW PARENT SIZE */
void op_create_cq(const uint32_t *a)
{
	uint32_t cqe = a[3] % 25 ? 32 + a[3] % 200 : 0;
	int ctx = a[0] % CONTEXTS;
	int vector = a[1] % 20 == 19 ? 5000 : 0;
	struct ibv_cq *p;

	if (!obj_has_room(K_CQ)) {
		idle();
		return;
	}
	if (a[1] % 4 == 0) {
		create_cq_ex(a, cqe);
		return;
	}
	errno = 0;
	p = ibv_create_cq(world.ctx[ctx], cqe, NULL, NULL, vector);
	if (expect_ptr("ibv_create_cq()", p, !cqe || vector ? EINVAL : 0))
		new_cq(p, ctx, cqe);
}

/* CQ SIZE */
void op_resize_cq(const uint32_t *a)
{
	struct obj *cq = obj_pick(K_CQ, a[0]);
	uint32_t cqe = a[1] % 12 ? 1 + a[1] % 256 : 0;
	int want;

	if (!cq) {
		idle();
		return;
	}
	/* CQEs that were not polled must fit. */
	want = !cqe || ring_size(cqe) < (uint32_t)cq->cq.n ? EINVAL : 0;
	/* A CQ that overruns later is not part of the model. */
	if (!want && ring_size(cqe) < (uint32_t)cq_need(cq)) {
		idle();
		return;
	}
	say("cq %lu with %d of %u CQEs to %u", (unsigned long)cq->born,
	    cq->cq.n, cq->cq.size, cqe);
	if (!expect("ibv_resize_cq()", ibv_resize_cq(cq->cq.p, cqe), want))
		return;
	cq->cq.size = ring_size(cqe);
	if (cq->cq.p->cqe != (int)cq->cq.size)
		diverge("ibv_resize_cq(): got %d CQEs, want %u",
			cq->cq.p->cqe, cq->cq.size);
}

/* CQ */
void op_destroy_cq(const uint32_t *a)
{
	struct obj *cq = obj_pick(K_CQ, a[0]);

	if (!cq) {
		idle();
		return;
	}
	if (!expect("ibv_destroy_cq()", ibv_destroy_cq(cq->cq.p),
		    obj_holders(cq) ? EBUSY : 0))
		return;
	free(cq->cq.wc);
	cq->cq.wc = NULL;
	obj_end(cq);
}

/* --- shared receive queues ------------------------------------------------ */

/* PD HOW XRCD CQ */
void op_create_srq(const uint32_t *a)
{
	bool xrc = a[1] % 2;
	struct ibv_srq_init_attr_ex attr = {
		.attr = { .max_wr = a[1] % 23 ? 4 + a[1] % 28 : 0,
			  .max_sge = a[1] % 19 ? 1 + a[1] % SGES_MAX : 31 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = xrc ? IBV_SRQT_XRC : IBV_SRQT_BASIC,
	};
	uint32_t max_wr = attr.attr.max_wr, sges = attr.attr.max_sge;
	struct obj *xrcd = NULL, *cq = NULL, *o;
	struct pd_ref ref;
	struct ibv_srq *p;
	int want;

	if (!obj_has_room(K_SRQ) || !pd_pick(a[0], &ref)) {
		idle();
		return;
	}
	want = ref.err;
	if (!max_wr || sges > 30)
		want = EINVAL;
	attr.pd = ref.p;
	if (xrc) {
		xrcd = a[2] % 7 ? obj_pick_in(K_XRCD, ref.ctx, a[2]) :
				  obj_pick(K_XRCD, a[2]);
		cq = a[3] % 7 ? obj_pick_in(K_CQ, ref.ctx, a[3]) :
				obj_pick(K_CQ, a[3]);
		attr.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD |
				  IBV_SRQ_INIT_ATTR_CQ;
		attr.xrcd = xrcd ? xrcd->xrcd.p : NULL;
		attr.cq = cq ? cq->cq.p : NULL;
		if (!xrcd || !cq || xrcd->ctx != ref.ctx || cq->ctx != ref.ctx)
			want = EINVAL;
	}
	errno = 0;
	p = ibv_create_srq_ex(world.ctx[ref.ctx], &attr);
	if (!expect_ptr("ibv_create_srq_ex()", p, want))
		return;
	o = obj_new_handle(K_SRQ, ref.ctx, p->handle);
	o->srq.p = p;
	o->srq.domain = ref.pd->pd.domain;
	o->srq.rq.size = attr.attr.max_wr;
	o->srq.rq.max_sge = sges;
	if (attr.attr.max_wr != ring_size(max_wr))
		diverge("ibv_create_srq_ex(): got %u receive WQEs, want %u",
			attr.attr.max_wr, ring_size(max_wr));
	obj_hold(o, ref.pd);
	if (!xrc)
		return;
	o->via = xrcd;
	o->srq.xdom = xrcd->xrcd.dom;
	o->srq.cq = cq;
	obj_hold(o, xrcd->xrcd.dom);
	obj_hold(o, cq);
	if (ibv_get_srq_num(p, &o->srq.num) || !o->srq.num)
		diverge("ibv_get_srq_num(): got no number");
}

/* SRQ WHAT LIMIT SIZE */
void op_modify_srq(const uint32_t *a)
{
	struct obj *srq = obj_pick(K_SRQ, a[0]);
	struct ibv_srq_attr attr = {
		.srq_limit = a[2] % 48, .max_wr = a[3] % 48,
	};
	int mask = a[1] % 4, want = 0;
	uint32_t size;

	if (!srq) {
		idle();
		return;
	}
	size = srq->srq.rq.size;
	if (mask & IBV_SRQ_MAX_WR) {
		size = ring_size(attr.max_wr);
		if (!attr.max_wr || size < (uint32_t)srq->srq.rq.n)
			want = EINVAL;
	}
	if (mask & IBV_SRQ_LIMIT && attr.srq_limit > size)
		want = EINVAL;
	say("srq %lu with %d of %u receive WQEs, mask %d",
	    (unsigned long)srq->born, srq->srq.rq.n, srq->srq.rq.size, mask);
	if (!expect("ibv_modify_srq()", ibv_modify_srq(srq->srq.p, &attr, mask),
		    want))
		return;
	srq->srq.rq.size = size;
	if (ibv_query_srq(srq->srq.p, &attr))
		diverge("ibv_query_srq() fails");
	if (attr.max_wr != size)
		diverge("ibv_query_srq(): got %u receive WQEs, want %u",
			attr.max_wr, size);
}

/* SRQ */
void op_destroy_srq(const uint32_t *a)
{
	struct obj *srq = obj_pick(K_SRQ, a[0]);

	if (!srq) {
		idle();
		return;
	}
	/* XRC requesters that wait for it notice that it is gone. */
	if (srq->srq.num && !obj_holders(srq))
		wire_srq_posted(srq);
	if (!expect("ibv_destroy_srq()", ibv_destroy_srq(srq->srq.p),
		    obj_holders(srq) ? EBUSY : 0))
		return;
	obj_end(srq);
	wire_drain();
	settle();
}

/* --- queue pairs ---------------------------------------------------------- */

static const enum ibv_qp_type types[] = {
	IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD,
	IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV,
};

/* The objects and attributes for a new QP. */
struct plan {
	struct ibv_qp_init_attr_ex attr;
	struct pd_ref pd;
	struct obj *send_cq, *recv_cq, *srq, *xrcd;
	int ctx, want;
};

/* Mostly objects of the same context. */
static struct obj *pick(enum kind kind, int ctx, struct dice *d)
{
	uint32_t n = dice_roll(d, 1 << 20);

	return dice_chance(d, 1, 30) ? obj_pick(kind, n) :
				       obj_pick_in(kind, ctx, n);
}

static bool is_foreign(const struct obj *o, int ctx)
{
	return o && o->ctx != ctx;
}

static void plan_queues(struct plan *p, struct dice *d)
{
	struct ibv_qp_init_attr_ex *attr = &p->attr;
	bool receives = attr->qp_type != IBV_QPT_XRC_SEND;

	attr->cap = (struct ibv_qp_cap){
		.max_send_wr = 4 + dice_roll(d, 12),
		.max_recv_wr = 4 + dice_roll(d, 28),
		.max_send_sge = 1 + dice_roll(d, SGES_MAX),
		.max_recv_sge = 1 + dice_roll(d, SGES_MAX),
		.max_inline_data = dice_roll(d, INLINE_MAX),
	};
	attr->comp_mask = IBV_QP_INIT_ATTR_PD;
	attr->pd = p->pd.p;
	attr->sq_sig_all = dice_chance(d, 1, 4);
	p->want = p->pd.err;
	p->send_cq = pick(K_CQ, p->ctx, d);
	p->recv_cq = dice_chance(d, 1, 2) ? p->send_cq : pick(K_CQ, p->ctx, d);
	p->srq = receives && dice_chance(d, 1, 3) ? pick(K_SRQ, p->ctx, d) :
						    NULL;
	/* An XRC SRQ belongs to no QP. */
	if (p->srq && p->srq->srq.num)
		p->srq = NULL;
	if (!receives)
		p->recv_cq = NULL;
	if (dice_chance(d, 1, 40)) {
		attr->cap.max_send_wr = 1 << 20;
		p->want = EINVAL;
	}
	attr->send_cq = p->send_cq ? p->send_cq->cq.p : NULL;
	attr->recv_cq = p->recv_cq ? p->recv_cq->cq.p : NULL;
	attr->srq = p->srq ? p->srq->srq.p : NULL;
	if (!p->send_cq || (receives && !p->recv_cq) ||
	    is_foreign(p->send_cq, p->ctx) || is_foreign(p->recv_cq, p->ctx) ||
	    is_foreign(p->srq, p->ctx))
		p->want = EINVAL;
}

static void plan_xrc_recv(struct plan *p, struct dice *d)
{
	p->xrcd = pick(K_XRCD, p->ctx, d);
	p->attr.comp_mask = IBV_QP_INIT_ATTR_XRCD;
	p->attr.xrcd = p->xrcd ? p->xrcd->xrcd.p : NULL;
	if (!p->xrcd || is_foreign(p->xrcd, p->ctx))
		p->want = EINVAL;
}

static void add_qp(const struct plan *p, struct ibv_qp *qp)
{
	const struct ibv_qp_cap *cap = &p->attr.cap;
	struct obj *o = obj_new_handle(K_QP, p->ctx, qp->handle);
	struct qp_part *q = &o->qp;

	q->p = qp;
	q->qpn = qp->qp_num;
	q->type = p->attr.qp_type;
	q->gen = ++world.gens;
	if (q->type == IBV_QPT_XRC_RECV) {
		o->via = p->xrcd;
		q->xdom = p->xrcd->xrcd.dom;
		obj_hold(o, q->xdom);
		return;
	}
	q->domain = p->pd.pd->pd.domain;
	q->send_cq = p->send_cq;
	q->recv_cq = p->recv_cq;
	q->srq = p->srq;
	q->sig_all = p->attr.sq_sig_all;
	q->sq_size = cap->max_send_wr;
	q->max_sge = cap->max_send_sge;
	q->max_inline = cap->max_inline_data;
	if (!p->srq && q->type != IBV_QPT_XRC_SEND) {
		q->rq.size = cap->max_recv_wr;
		q->rq.max_sge = cap->max_recv_sge;
	}
	obj_hold(o, p->pd.pd);
	obj_hold(o, p->send_cq);
	obj_hold(o, p->recv_cq);
	obj_hold(o, p->srq);
	say("qp %u of type %d", qp->qp_num, q->type);
}

/* PD TYPE DETAILS */
void op_create_qp(const uint32_t *a)
{
	struct dice d = dice_of(a[2], a[3]);
	struct plan p = { 0 };
	struct ibv_qp *qp;

	if (!obj_has_room(K_QP) || !pd_pick(a[0], &p.pd)) {
		idle();
		return;
	}
	p.ctx = p.pd.ctx;
	p.attr.qp_type = a[1] % 40 == 39 ? IBV_QPT_RAW_PACKET :
					   types[a[1] % COUNT(types)];
	if (p.attr.qp_type == IBV_QPT_XRC_RECV)
		plan_xrc_recv(&p, &d);
	else
		plan_queues(&p, &d);
	if (p.attr.qp_type == IBV_QPT_RAW_PACKET)
		p.want = EOPNOTSUPP;
	if (p.srq && p.recv_cq && !cq_room(p.recv_cq, p.srq->srq.rq.n)) {
		idle();
		return;
	}
	errno = 0;
	qp = ibv_create_qp_ex(world.ctx[p.ctx], &p.attr);
	if (expect_ptr("ibv_create_qp_ex()", qp, p.want))
		add_qp(&p, qp);
}

/* QP */
void op_destroy_qp(const uint32_t *a)
{
	struct obj *qp = obj_pick(K_QP, a[0]);

	/* QPs that work stay longer. */
	if (!qp || (qp->qp.state == IBV_QPS_RTS && a[1] % 4)) {
		idle();
		return;
	}
	if (!expect("ibv_destroy_qp()", ibv_destroy_qp(qp->qp.p), 0))
		return;
	/* The peer does not find it any more. */
	wire_wake_peer(qp);
	wire_reset(qp);
	obj_end(qp);
	wire_drain();
	settle();
}
