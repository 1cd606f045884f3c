// SPDX-License-Identifier: GPL-2.0
/*
 * The life of a link's end: open, connect, harm, close. See link.h.
 */
#include <sys/mman.h>
#include <time.h>

#include <infiniband/keeldv.h>

#include "domain.h"
#include "link.h"
#include "t.h"

#define MS		1000000ULL
#define QKEY		0x4711
/* An error that the peer has not explained by then counts as unexplained. */
#define PATIENCE	(10000 * MS)

const char * const link_types[LINK_TYPES] = { "RC", "UC", "UD", "XRC" };
const char * const link_mems[LINK_MEMS] = { "user", "on-demand", "device" };
const char * const link_ops[LINK_OPS] = {
	"send", "send_imm", "inline", "write", "write_imm", "fetch_add",
	"cmp_swap", "invalidate",
};

uint64_t link_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 * MS + t.tv_nsec;
}

static void open_memory(struct link_end *e)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
		     IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
	struct ibv_alloc_dm_attr attr = { .length = LINK_BYTES };

	e->mem = t_random(&e->random) % LINK_MEMS;
	if (e->mem == LINK_DM) {
		e->dm = MUST(ibv_alloc_dm(e->ctx, &attr));
		e->base = MUST(keeldv_dm_map(e->dm));
		e->key_base = 0;
		e->mr = MUST(ibv_reg_dm_mr(e->pd, e->dm, 0, LINK_BYTES,
					   access | IBV_ACCESS_ZERO_BASED));
		return;
	}
	e->base = mmap(NULL, LINK_BYTES, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (e->base == MAP_FAILED)
		FAIL("mmap: got %s", t_errname(errno));
	e->key_base = (uintptr_t)e->base;
	access |= e->mem == LINK_ODP ? IBV_ACCESS_ON_DEMAND :
				       IBV_ACCESS_MW_BIND;
	e->mr = MUST(ibv_reg_mr(e->pd, e->base, LINK_BYTES, access));
}

static void open_pd(struct link_end *e)
{
	e->plain = MUST(ibv_alloc_pd(e->ctx));
	e->pd = e->plain;
	if (t_random(&e->random) % 2)
		return;
	e->td = td_new(e->ctx);
	e->pd = parent_new(e->plain, e->td);
}

static void open_xrc(struct link_end *e)
{
	struct ibv_srq_init_attr_ex srq = {
		.attr = { .max_wr = LINK_RECVS, .max_sge = 2 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC, .pd = e->pd, .xrcd = e->xrcd,
		.cq = e->cq,
	};
	struct ibv_qp_init_attr_ex qp = {
		.qp_type = IBV_QPT_XRC_RECV, .xrcd = e->xrcd,
		.comp_mask = IBV_QP_INIT_ATTR_XRCD,
	};

	e->srq = MUST(ibv_create_srq_ex(e->ctx, &srq));
	CHECK_OK(ibv_get_srq_num(e->srq, &e->me->srqn));
	e->recv_qp = MUST(ibv_create_qp_ex(e->ctx, &qp));
}

static void open_qps(struct link_end *e)
{
	static const enum ibv_qp_type types[] = {
		[LINK_RC] = IBV_QPT_RC, [LINK_UC] = IBV_QPT_UC,
		[LINK_UD] = IBV_QPT_UD, [LINK_XRC] = IBV_QPT_XRC_SEND,
	};
	struct ibv_qp_init_attr init = {
		.send_cq = e->cq, .recv_cq = e->cq,
		.qp_type = types[e->type],
		.cap = { .max_send_wr = 4 * LINK_SLOTS,
			 .max_recv_wr = LINK_RECVS, .max_send_sge = 3,
			 .max_recv_sge = 2, .max_inline_data = 256 },
	};

	if (e->type == LINK_XRC) {
		open_xrc(e);
		init.cap.max_recv_wr = init.cap.max_recv_sge = 0;
		init.recv_cq = NULL;
	}
	e->qp = MUST(ibv_create_qp(e->pd, &init));
	e->me->qpn = e->qp->qp_num;
	e->me->recv_qpn = (e->recv_qp ?: e->qp)->qp_num;
}

static void modify(struct ibv_qp *qp, struct ibv_qp_attr *attr,
		   enum ibv_qp_state state, int mask)
{
	attr->qp_state = state;
	CHECK_OK(ibv_modify_qp(qp, attr, IBV_QP_STATE | mask));
}

static struct ibv_qp_attr attributes(struct link_end *e)
{
	struct ibv_qp_attr attr = {
		.port_num = 1, .qkey = QKEY, .path_mtu = IBV_MTU_4096,
		.qp_access_flags = IBV_ACCESS_REMOTE_READ |
			IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
		.max_rd_atomic = 16, .max_dest_rd_atomic = 16,
		.min_rnr_timer = 12, .timeout = 14, .retry_cnt = 3,
		.rnr_retry = 7,
		.ah_attr = { .is_global = 1, .port_num = 1 },
	};

	CHECK_OK(ibv_query_gid(e->ctx, 1, 0, &attr.ah_attr.grh.dgid));
	return attr;
}

static void init_qp(struct link_end *e, struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = attributes(e);

	modify(qp, &attr, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT |
	       (e->type == LINK_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
}

static void open_end(struct link_end *e)
{
	int i;

	open_pd(e);
	e->cq = MUST(ibv_create_cq(e->ctx, 8 * LINK_SLOTS + LINK_RECVS, NULL,
				   NULL, 0));
	open_memory(e);
	open_qps(e);
	init_qp(e, e->qp);
	if (e->recv_qp)
		init_qp(e, e->recv_qp);
	if (e->type == LINK_RC && e->mem == LINK_USER)
		e->mw = MUST(ibv_alloc_mw(e->plain, IBV_MW_TYPE_2));
	link_open_traffic(e);
	/* For RC, fewer receive WQEs than slots, so that some senders wait. */
	for (i = 0; i < (e->type == LINK_RC ? 5 : LINK_RECVS); i++)
		link_recv(e, i);
	e->me->rkey = e->mr->rkey;
	e->me->addr = e->key_base;
	for (i = 0; i < LINK_SLOTS; i++)
		atomic_store(&e->me->acked[i], 0);
	atomic_store(&e->me->mw_rkey, 0);
	atomic_store(&e->me->to, 0);
	e->gen = atomic_fetch_add(&e->stats->gen, 1) + 1;
	e->stats->opened++;
	e->broken = 0;
	e->state = LINK_WAIT;
	atomic_store(&e->me->gen, e->gen);
}

static void connect_rc(struct link_end *e, struct ibv_qp *qp, uint32_t to)
{
	int mask = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
		   IBV_QP_RQ_PSN;
	struct ibv_qp_attr attr = attributes(e);

	attr.dest_qp_num = to;
	if (e->type == LINK_RC || qp == e->recv_qp)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	modify(qp, &attr, IBV_QPS_RTR, mask);
	if (qp == e->recv_qp)
		return;
	mask = IBV_QP_SQ_PSN;
	if (e->type != LINK_UC)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	modify(qp, &attr, IBV_QPS_RTS, mask);
}

static void connect_ud(struct link_end *e)
{
	struct ibv_qp_attr attr = attributes(e);

	e->ah = MUST(ibv_create_ah(e->pd, &attr.ah_attr));
	modify(e->qp, &attr, IBV_QPS_RTR, 0);
	modify(e->qp, &attr, IBV_QPS_RTS, IBV_QP_SQ_PSN);
}

static bool connect_end(struct link_end *e)
{
	struct link_side peer;
	uint32_t gen = atomic_load(&e->peer->gen);

	if (!gen)
		return false;
	memcpy(&peer, e->peer, sizeof(peer));
	if (atomic_load(&e->peer->gen) != gen)
		return false;
	e->to = gen;
	e->qpn = peer.recv_qpn;
	e->srqn = peer.srqn;
	e->rkey = peer.rkey;
	e->addr = peer.addr;
	if (e->recv_qp)
		connect_rc(e, e->recv_qp, peer.qpn);
	if (e->type == LINK_UD)
		connect_ud(e);
	else
		connect_rc(e, e->qp, e->qpn);
	e->state = LINK_HALF;
	e->deadline = link_now() + (50 + t_random(&e->random) % 600) * MS;
	atomic_store(&e->me->to, gen);
	return true;
}

#define DESTROY(call, obj)						\
	do {								\
		if (obj)						\
			CHECK_OK(call(obj));				\
		(obj) = NULL;						\
	} while (0)

void link_close(struct link_end *e)
{
	bool unmapped = e->base && !e->dm && t_random(&e->random) % 2;

	if (e->state == LINK_IDLE)
		return;
	atomic_store(&e->me->hurt, e->gen);
	/* Unmap memory before its MR, and both before the QPs that use them. */
	if (unmapped)
		munmap(e->base, LINK_BYTES);
	if (t_random(&e->random) % 2)
		DESTROY(ibv_destroy_qp, e->qp);
	DESTROY(ibv_dealloc_mw, e->mw);
	DESTROY(ibv_dereg_mr, e->mr);
	DESTROY(ibv_destroy_qp, e->qp);
	DESTROY(ibv_destroy_qp, e->recv_qp);
	DESTROY(ibv_destroy_srq, e->srq);
	DESTROY(ibv_destroy_ah, e->ah);
	DESTROY(ibv_destroy_cq, e->cq);
	if (!unmapped && !e->dm)
		munmap(e->base, LINK_BYTES);
	DESTROY(ibv_free_dm, e->dm);
	if (e->td)
		CHECK_OK(ibv_dealloc_pd(e->pd));
	DESTROY(ibv_dealloc_td, e->td);
	DESTROY(ibv_dealloc_pd, e->plain);
	e->state = LINK_IDLE;
	atomic_store(&e->me->gen, 0);
}

/* At the end of a life, destroy an object that is in use. */
static void harm(struct link_end *e)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	e->stats->destroys++;
	atomic_store(&e->me->hurt, e->gen);
	switch (t_random(&e->random) % 3) {
	case 0:
		link_close(e);
		return;
	case 1:
		DESTROY(ibv_dealloc_mw, e->mw);
		DESTROY(ibv_dereg_mr, e->mr);
		link_send_stale(e);
		break;
	case 2:
		CHECK_OK(ibv_modify_qp(e->qp, &attr, IBV_QP_STATE));
		break;
	}
	e->state = LINK_HURT;
	e->deadline = link_now() + t_random(&e->random) % (30 * MS);
}

/* Check that an object with references cannot be destroyed. */
static void try_destroy(struct link_end *e)
{
	CHECK_RET(ibv_destroy_cq(e->cq), EBUSY);
	CHECK_RET(ibv_dealloc_pd(e->pd), EBUSY);
	e->stats->refused += 2;
}

/* Return true if the peer started anew or harmed itself. */
static bool peer_gone(struct link_end *e)
{
	return atomic_load(&e->peer->gen) != e->to ||
	       atomic_load(&e->peer->hurt) == e->to;
}

static bool step_broken(struct link_end *e)
{
	if (!peer_gone(e)) {
		if (link_now() - e->broken < PATIENCE)
			return false;
		e->stats->unexplained++;
		t_note("%s link with %s memory: %s, without a reason",
		       link_types[e->type], link_mems[e->mem],
		       ibv_wc_status_str(e->status));
	}
	link_close(e);
	return true;
}

static bool step_up(struct link_end *e)
{
	bool some;

	if (atomic_load(&e->peer->gen) != e->to) {
		link_close(e);
		return true;
	}
	some = link_poll(e);
	if (e->broken)
		return some;
	if (e->state == LINK_HALF) {
		if (atomic_load(&e->peer->to) != e->gen)
			return some;
		e->state = LINK_UP;
	}
	if (link_now() > e->deadline) {
		harm(e);
		return true;
	}
	if (t_random(&e->random) % 4096 == 0)
		try_destroy(e);
	return link_send(e) || some;
}

bool link_step(struct link_end *e)
{
	if (e->broken && e->state != LINK_IDLE && e->state != LINK_HURT)
		return step_broken(e);
	switch (e->state) {
	case LINK_IDLE:
		open_end(e);
		return true;
	case LINK_WAIT:
		return connect_end(e);
	case LINK_HALF:
	case LINK_UP:
		return step_up(e);
	case LINK_HURT:
		if (link_now() < e->deadline)
			return link_poll(e);
		link_close(e);
		return true;
	}
	return false;
}
