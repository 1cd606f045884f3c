// SPDX-License-Identifier: GPL-2.0
/*
 * The victim: QPs of each type, and memory with different rights. See world.h.
 */
#include <sys/mman.h>

#include "hosts.h"
#include "qp.h"
#include "t.h"
#include "world.h"

#define DEVICE		"keel_a"
/* Bytes of each region. */
#define REGION		(WORLD_BYTES / 4)
/* Receive WQEs at the beginning of an input. */
#define RECVS		4
#define RECV_BYTES	2000
/* Those of all queues. */
#define CQ_CQES		2000

struct world w;

static const unsigned int rights[] = {
	[W_ALL] = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		  IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND,
	[W_READ] = IBV_ACCESS_REMOTE_READ,
	[W_ODP] = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		  IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ON_DEMAND,
};

int world_sgid(struct ibv_context *ctx, const union ibv_gid *want)
{
	union ibv_gid gid;
	int i, ms;

	for (ms = 0; ms < 5000; ms += 20) {
		for (i = 0; i < 16; i++)
			if (!ibv_query_gid(ctx, 1, i, &gid) && !memcmp(&gid, want, sizeof(gid)))
				return i;
		usleep(20000);
	}
	FAIL("a device has not the address that it should have");
}

bool world_is_ud(int i)
{
	return i == W_UD || i == W_MEMBER;
}

uint32_t world_rkey(uint8_t choice)
{
	if (choice % 8 == W_MW)
		return w.mw->rkey;
	return choice % 8 < W_MRS ? w.mr[choice % 8]->rkey : choice * 0x01010101u;
}

static struct ibv_ah_attr to_stranger(void)
{
	return (struct ibv_ah_attr){
		.is_global = 1, .port_num = 1,
		.grh = { .dgid = gid_of_ipv4(STRANGER_IPV4), .sgid_index = w.sgid,
			 .hop_limit = 64 },
	};
}

/* ib_uverbs keeps a QP that is attached to a group. */
static void qp_free(int i)
{
	if (world_is_ud(i))
		groups_leave(w.qp[i]);
	CHECK_OK(ibv_destroy_qp(w.qp[i]));
}

void world_qp_new(int i)
{
	static const enum ibv_qp_type types[] = {
		[W_RC] = IBV_QPT_RC, [W_UC] = IBV_QPT_UC, [W_UD] = IBV_QPT_UD,
		[W_XRC_SEND] = IBV_QPT_XRC_SEND, [W_RC_SRQ] = IBV_QPT_RC,
		[W_MEMBER] = IBV_QPT_UD,
	};

	if (w.qp[i])
		qp_free(i);
	if (i == W_XRC_RECV)
		w.qp[i] = qp_new_xrc_recv(w.xrcd);
	else
		w.qp[i] = qp_new(w.pd, w.cq, types[i], i == W_RC_SRQ ? w.srq : NULL);
	CHECK_OK(world_qp_connect(i));
}

/* The attributes that a QP of the type has in RTR, and in RTS. */
static void masks(int i, int *rtr, int *rts)
{
	*rtr = IBV_QP_STATE;
	*rts = IBV_QP_STATE | IBV_QP_SQ_PSN;
	if (!world_is_ud(i))
		*rtr |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (i == W_RC || i == W_RC_SRQ || i == W_XRC_RECV)
		*rtr |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	if (i == W_RC || i == W_RC_SRQ || i == W_XRC_SEND)
		*rts |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	if (i == W_XRC_RECV)
		*rts |= IBV_QP_TIMEOUT;
}

int world_qp_connect(int i)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096, .dest_qp_num = PEER_QPN + i,
		.rq_psn = WORLD_PSN, .sq_psn = WORLD_PSN, .max_dest_rd_atomic = 4,
		.max_rd_atomic = 4, .min_rnr_timer = 1, .timeout = 14, .retry_cnt = 2,
		.rnr_retry = 2, .ah_attr = to_stranger(),
	};
	int rtr, rts, ret;

	masks(i, &rtr, &rts);
	w.psn[i] = WORLD_PSN;
	w.gen[i]++;
	w.left[i] = 0;
	w.npending[i] = 0;
	ret = qp_try_init(w.qp[i]);
	ret = ret ?: ibv_modify_qp(w.qp[i], &attr, rtr);
	attr.qp_state = IBV_QPS_RTS;
	return ret ?: ibv_modify_qp(w.qp[i], &attr, rts);
}

static void open_memory(void)
{
	int i;

	w.mem = mmap(NULL, WORLD_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		     0);
	CHECK(w.mem != MAP_FAILED);
	for (i = 0; i < W_MW; i++)
		w.mr[i] = MUST(ibv_reg_mr(w.pd, w.mem + i * REGION, REGION, rights[i]));
	w.mw = MUST(ibv_alloc_mw(w.pd, IBV_MW_TYPE_2));
}

void far_world_open(void)
{
	union ibv_gid own = gid_of_ipv4(VICTIM_IPV4);
	struct ibv_ah_attr to;
	int i;

	w.ctx = dev_open(DEVICE);
	w.sgid = world_sgid(w.ctx, &own);
	w.pd = MUST(ibv_alloc_pd(w.ctx));
	w.cq = MUST(ibv_create_cq(w.ctx, CQ_CQES, NULL, NULL, 0));
	w.srq = srq_new(w.pd);
	w.xrcd = xrcd_new(w.ctx);
	w.xsrq = srq_new_xrc(w.pd, w.xrcd, w.cq);
	CHECK_OK(ibv_get_srq_num(w.xsrq, &w.xsrqn));
	to = to_stranger();
	w.ah = MUST(ibv_create_ah(w.pd, &to));
	open_memory();
	for (i = 0; i < W_QPS; i++)
		world_qp_new(i);
	groups_open();
	witness_open();
	forger_open();
	w.one = stranger_new();
	w.other = stranger_new();
	w.s = &w.one;
	w.dirty = (1 << W_QPS) - 1;
}

void far_world_close(void)
{
	int i;

	stranger_free(&w.one);
	stranger_free(&w.other);
	forger_close();
	witness_close();
	for (i = 0; i < W_QPS; i++)
		qp_free(i);
	groups_close();
	CHECK_OK(ibv_destroy_ah(w.ah));
	CHECK_OK(ibv_dealloc_mw(w.mw));
	for (i = 0; i < W_MW; i++)
		CHECK_OK(ibv_dereg_mr(w.mr[i]));
	CHECK_OK(ibv_destroy_srq(w.xsrq));
	CHECK_OK(ibv_close_xrcd(w.xrcd));
	CHECK_OK(ibv_destroy_srq(w.srq));
	CHECK_OK(ibv_destroy_cq(w.cq));
	CHECK_OK(ibv_dealloc_pd(w.pd));
	CHECK_OK(ibv_close_device(w.ctx));
}

static void drain(void)
{
	struct ibv_wc wc[16];

	while (ibv_poll_cq(w.cq, 16, wc) > 0)
		;
}

static void post_receives(int i)
{
	struct ibv_sge sge = { (uintptr_t)w.mem, RECV_BYTES, w.mr[W_ALL]->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	int n;

	for (n = 0; n < RECVS; n++)
		if (i == W_RC_SRQ)
			ibv_post_srq_recv(w.srq, &wr, &bad);
		else if (i == W_XRC_RECV)
			ibv_post_srq_recv(w.xsrq, &wr, &bad);
		else if (i != W_XRC_SEND)
			ibv_post_recv(w.qp[i], &wr, &bad);
}

void far_world_begin(void)
{
	int i;

	for (i = 0; i < W_QPS; i++) {
		if (!(w.dirty & 1 << i))
			continue;
		qp_to(w.qp[i], IBV_QPS_RESET);
		CHECK_OK(world_qp_connect(i));
		post_receives(i);
	}
	w.dirty = 0;
	groups_begin();
	drain();
	frames_begin();
	if (!w.s->up || stranger_ended(w.s, 0))
		stranger_connect(w.s);
}

/* The answer to ASK comes behind all frames before. The workers may still have some. */
void far_world_end(void)
{
	groups_end();
	forger_settle();
	frames_collect();
	if (w.s->up && !stranger_asks(w.s, 300))
		stranger_drop(w.s);
	usleep(500);
	witness_check();
	drain();
}
