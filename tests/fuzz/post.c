// SPDX-License-Identifier: GPL-2.0
/*
 * Calls that use the rings: send and receive WQEs, doorbells, polling, and
 * writing over rings in use.
 */
#include <string.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#include "post.h"

static const uint8_t rc_ops[] = {
	IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
	IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_SEND_WITH_IMM,
	IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_BIND_MW,
	IBV_WR_SEND_WITH_INV, IBV_WR_LOCAL_INV, WR_FLUSH, WR_ATOMIC_WRITE,
};

static const uint8_t uc_ops[] = {
	IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_SEND_WITH_IMM,
	IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_BIND_MW, IBV_WR_LOCAL_INV,
};

static const uint8_t ud_ops[] = { IBV_WR_SEND, IBV_WR_SEND_WITH_IMM };

static uint8_t opcode_of(const struct obj *qp, uint8_t sel)
{
	switch (qp->type) {
	case IB_UVERBS_QPT_UC:
		return uc_ops[sel % sizeof(uc_ops)];
	case IB_UVERBS_QPT_UD:
		return ud_ops[sel % sizeof(ud_ops)];
	default:
		return rc_ops[sel % sizeof(rc_ops)];
	}
}

/* The kind of work request that has a number. */
enum posted { POSTED_NONE, POSTED_SEND, POSTED_RECV };

/*
 * Each number counts once. Threads and children poll the same CQ without a lock,
 * and a scribbled index makes old CQEs appear again.
 */
static uint64_t wr_id_new(enum posted as)
{
	uint32_t id = atomic_fetch_add(&sh->wr_ids, 1) % POSTED;

	atomic_store(&sh->posted_as[id], as);
	return WR_ID + id;
}

static enum posted wr_id_take(uint64_t wr_id)
{
	if (wr_id - WR_ID >= POSTED)
		return POSTED_NONE;
	return atomic_exchange(&sh->posted_as[wr_id - WR_ID], POSTED_NONE);
}

/* Return the WQE for the next index, or NULL if the ring is full. */
static void *ring_next(const struct ring *ring, uint32_t *index)
{
	struct keel_uapi_ring *head = ring->head;

	*index = __atomic_load_n(&head->user, __ATOMIC_RELAXED);
	if (*index - __atomic_load_n(&head->kernel, __ATOMIC_ACQUIRE) >=
	    ring->entries)
		return NULL;
	return (char *)(head + 1) +
	       (size_t)(*index % ring->entries) * ring->stride;
}

static void ring_publish(const struct ring *ring, uint32_t index)
{
	__atomic_store_n(&ring->head->user, index + 1, __ATOMIC_SEQ_CST);
}

static void qp_doorbell(struct obj *qp)
{
	cmd_method(M_QP_DOORBELL, UVERBS_OBJECT_QP, KEEL_METHOD_QP_DOORBELL,
		   ATTRS(IN(KEEL_ATTR_QP_DOORBELL_QPN, &qp->num)));
}

/* Up to three QPs at once, and a number that may be none. */
static void qp_doorbells(struct obj *qp, uint8_t sel)
{
	struct obj *other = obj_pick(K_QP, sel >> 2);
	uint32_t qpns[4] = { qp->num, other ? other->num : sel, sel, qp->num };

	cmd_method(M_QP_DOORBELLS, UVERBS_OBJECT_QP, KEEL_METHOD_QP_DOORBELLS,
		   ATTRS(IN_LEN(KEEL_ATTR_QP_DOORBELLS_QPNS, qpns, 4 * (sel % 4 + 1))));
}

static void srq_doorbell(struct obj *srq)
{
	cmd_method(M_SRQ_DOORBELL, UVERBS_OBJECT_SRQ, KEEL_METHOD_SRQ_DOORBELL,
		   ATTRS(OBJ(KEEL_ATTR_SRQ_DOORBELL_SRQ, srq->handle)));
}

static bool wants_doorbell(const struct ring *of)
{
	struct ring ring;

	return ring_read(of, &ring) &&
	       __atomic_load_n(&ring.head->flags, __ATOMIC_RELAXED) &
	       KEEL_RING_F_DOORBELL;
}

/* Post a receive WQE of all memory of an MR. */
static void post_recv(const struct ring *to, uint32_t domain, uint8_t sel,
		      int sges)
{
	struct obj *mr = mr_need(domain, IBV_ACCESS_LOCAL_WRITE, sel);
	struct keel_uapi_recv_wqe *wqe;
	struct keel_uapi_sge *sge;
	struct ring ring;
	uint32_t index;
	int i;

	if (!mr || !ring_read(to, &ring))
		return;
	wqe = ring_next(&ring, &index);
	if (!wqe)
		return;
	*wqe = (struct keel_uapi_recv_wqe){
		.wr_id = wr_id_new(POSTED_RECV), .num_sge = sges,
	};
	sge = (void *)(wqe + 1);
	for (i = 0; i < sges && i < 2; i++)
		sge[i] = (struct keel_uapi_sge){
			.addr = mr->addr + i * (mr->len / sges),
			.length = mr->len / sges, .lkey = mr->num,
		};
	cmd_spoil_wqe(wqe, ring.stride);
	ring_publish(&ring, index);
}

/* The message needs a receive WQE at the peer. */
static void feed_peer(struct obj *qp, uint8_t sel)
{
	struct obj *peer = qp->peer;
	struct obj *srq = qp->type == IB_UVERBS_QPT_XRC_INI ? qp->srq :
			  peer ? peer->srq : NULL;

	if (!peer)
		return;
	if (srq) {
		post_recv(&srq->ring, srq->domain, sel, 1);
		if (wants_doorbell(&srq->ring))
			srq_doorbell(srq);
	} else if (peer->rq.head) {
		post_recv(&peer->rq, peer->domain, sel, 1);
		if (wants_doorbell(&peer->rq))
			qp_doorbell(peer);
	}
}

static struct obj *sender_pick(uint8_t sel)
{
	struct obj *qps[SLOTS];
	int i, n = 0;

	for (i = 0; i < SLOTS; i++)
		if (w.objs[K_QP][i].live && w.objs[K_QP][i].ring.head)
			qps[n++] = &w.objs[K_QP][i];
	return n ? qps[sel % n] : NULL;
}

/* send QP OPCODE MR MR LENGTH OFFSET FLAGS */
static void op_send(const uint8_t *a)
{
	static const uint8_t none[CALL_ARGS];
	struct obj *qp = sender_pick(a[0]);
	struct keel_uapi_send_wqe *wqe;
	struct wr wr = {};
	struct ring ring;
	uint32_t index;

	if (!qp || !ring_read(&qp->ring, &ring))
		return;
	if (qp->failed && qp->peer && !(a[6] & SEND_BROKEN)) {
		qp_connect(qp->peer, none);
		qp_connect(qp, none);
	}
	wr.qp = qp;
	wr.op = opcode_of(qp, a[1]);
	if (!wr_memory(&wr, a))
		return;
	if (wr_has_message(&wr) && !(a[6] & SEND_UNFED))
		feed_peer(qp, a[3]);
	wqe = ring_next(&ring, &index);
	if (!wqe)
		return;
	wr_fill(&wr, wqe, a);
	if (wqe->flags & IBV_SEND_SIGNALED || qp->all_signaled) {
		wqe->wr_id = wr_id_new(POSTED_SEND);
		atomic_fetch_add(&sh->posted, 1);
		atomic_fetch_add(&w.waiting, 1);
	}
	cmd_spoil_wqe(wqe, ring.stride);
	ring_publish(&ring, index);
	if (!(a[6] & SEND_QUIET))
		qp_doorbell(qp);
	/* Some leave their CQEs in the CQ. */
	if (a[1] < 0xc0)
		cq_drain();
}

/* recv QP MR SGES */
static void op_recv(const uint8_t *a)
{
	struct obj *qp = obj_pick(K_QP, a[0]);

	if (!qp)
		return;
	post_recv(&qp->rq, qp->domain, a[1], a[2] % 3);
	if (wants_doorbell(&qp->rq) || a[3] % 4 == 3)
		qp_doorbell(qp);
}

/* srq_recv SRQ MR SGES */
static void op_srq_recv(const uint8_t *a)
{
	struct obj *srq = obj_pick(K_SRQ, a[0]);

	if (!srq)
		return;
	post_recv(&srq->ring, srq->domain, a[1], a[2] % 3);
	if (wants_doorbell(&srq->ring) || a[3] % 4 == 3)
		srq_doorbell(srq);
}

/* The worker polls after the doorbells that follow. */
static void device_poll(uint8_t sel)
{
	static const uint32_t times[] = { 0, 1, 50, 2000, KEEL_UAPI_POLL_SENDS_US + 1 };
	const uint32_t *us = &times[sel % 5];

	cmd_method(M_DEVICE_POLL, UVERBS_OBJECT_DEVICE, KEEL_METHOD_DEVICE_POLL_SENDS,
		   ATTRS(IN(KEEL_ATTR_DEVICE_POLL_SENDS_US, us)));
}

/*
 * doorbell QP OTHERS POLL: that of one QP, or, from 0x80 on, of several ones; with POLL from
 * 0xf0 on, after a request to poll
 */
static void op_doorbell(const uint8_t *a)
{
	struct obj *qp = obj_pick(K_QP, a[0]);

	if (!qp)
		return;
	if (a[2] >= 0xf0)
		device_poll(a[2]);
	if (a[1] & 0x80)
		qp_doorbells(qp, a[1]);
	else
		qp_doorbell(qp);
}

static void qp_has_failed(uint32_t qpn)
{
	int i;

	for (i = 0; i < SLOTS; i++)
		if (w.objs[K_QP][i].num == qpn)
			w.objs[K_QP][i].failed = true;
}

static void cq_poll(struct obj *cq)
{
	const struct keel_uapi_cqe *cqes, *cqe;
	uint32_t user, kernel, status;
	struct ring ring;

	if (!ring_read(&cq->ring, &ring))
		return;
	cqes = (void *)(ring.head + 1);
	user = __atomic_load_n(&ring.head->user, __ATOMIC_RELAXED);
	kernel = __atomic_load_n(&ring.head->kernel, __ATOMIC_ACQUIRE);
	if (kernel - user > ring.entries)
		return;
	for (; user != kernel; user++) {
		cqe = &cqes[user % ring.entries];
		status = cqe->status;
		if (status)
			qp_has_failed(cqe->qp_num);
		switch (wr_id_take(cqe->wr_id)) {
		case POSTED_SEND:
			atomic_fetch_add(&sh->sent[status % WC_STATUSES], 1);
			atomic_fetch_sub(&w.waiting, 1);
			break;
		case POSTED_RECV:
			atomic_fetch_add(&sh->received[status % WC_STATUSES], 1);
			break;
		default:
			break;
		}
	}
	__atomic_store_n(&ring.head->user, user, __ATOMIC_RELEASE);
}

void cq_drain(void)
{
	int i;

	for (i = 0; i < SLOTS; i++)
		if (w.objs[K_CQ][i].live)
			cq_poll(&w.objs[K_CQ][i]);
}

/* poll TIME: poll all CQs, after some time. */
static void op_poll(const uint8_t *a)
{
	if (a[0] % 16)
		usleep(a[0] % 16 * 50);
	cq_drain();
}

static bool ring_pick(uint8_t what, uint8_t sel, struct ring *ring)
{
	static const enum kind kinds[] = { K_QP, K_QP, K_CQ, K_SRQ };
	struct obj *obj = obj_pick(kinds[what % 4], sel);

	return obj && ring_read(what % 4 == 1 ? &obj->rq : &obj->ring, ring);
}

/*
 * scribble RING OBJECT WHERE ROUNDS SEED: write over a ring; in a thread of its
 * own while the kernel reads the ring.
 */
static void op_scribble(const uint8_t *a)
{
	uint64_t seed = a[4] * 0x9e3779b97f4a7c15ULL + 1;
	volatile uint32_t *head, *wqe;
	int i, rounds = a[3] * 4;
	struct ring ring;
	uint64_t r;
	uint32_t old;

	if (!ring_pick(a[0], a[1], &ring))
		return;
	atomic_store(&sh->fault, true);
	head = (volatile uint32_t *)ring.head;
	for (i = 0; i <= rounds; i++) {
		r = random_next(&seed);
		/* Or a CQE. */
		wqe = (volatile uint32_t *)((char *)(ring.head + 1) +
			(r >> 8) % ring.entries * ring.stride) +
			(r >> 16) % (ring.stride / 4);
		switch (a[2] % 5) {
		case 0:
			*head += r % 8 - 3;
			break;
		case 1:
			head[r % 32] = r >> 32;
			break;
		case 2:
			*wqe = r >> 32;
			break;
		case 3:
			/* Change a field, and change it back. */
			old = *wqe;
			*wqe = old ^ 1 << (r >> 32) % 32;
			*wqe = old;
			break;
		default:
			head[16] = r >> 32;
			break;
		}
	}
}

const struct op post_ops[] = {
	{ "send", op_send, 30 }, { "recv", op_recv, 4 },
	{ "srq_recv", op_srq_recv, 3 }, { "doorbell", op_doorbell, 2 },
	{ "poll", op_poll, 2 }, { "scribble", op_scribble, 2 },
};

const int post_ops_count = sizeof(post_ops) / sizeof(*post_ops);
