// SPDX-License-Identifier: GPL-2.0
/*
 * Work requests with memory of live MRs and windows. See post.h.
 */
#include <string.h>

#include <infiniband/verbs.h>

#include "post.h"

bool wr_has_message(const struct wr *wr)
{
	switch (wr->op) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_SEND_WITH_INV:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return true;
	default:
		return false;
	}
}

/* The right that the peer's memory must grant; 0 if there is none. */
static uint32_t remote_right(uint8_t op)
{
	switch (op) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case WR_ATOMIC_WRITE:
		return IBV_ACCESS_REMOTE_WRITE;
	case IBV_WR_RDMA_READ:
		return IBV_ACCESS_REMOTE_READ;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return IBV_ACCESS_REMOTE_ATOMIC;
	case WR_FLUSH:
		return IBV_ACCESS_FLUSH_GLOBAL;
	default:
		return 0;
	}
}

static uint32_t local_right(uint8_t op)
{
	switch (op) {
	case IBV_WR_RDMA_READ:
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return IBV_ACCESS_LOCAL_WRITE;
	case IBV_WR_BIND_MW:
		return IBV_ACCESS_MW_BIND | IBV_ACCESS_LOCAL_WRITE;
	default:
		return 0;
	}
}

/*
 * Return a window that can be bound, or that is bound by @binder with these
 * rights.
 */
static struct obj *window_pick(uint32_t domain, const struct obj *binder,
			       uint32_t access, uint8_t sel)
{
	struct obj *mws[SLOTS], *mw;
	int i, n = 0;

	for (i = 0; i < SLOTS; i++) {
		mw = &w.objs[K_MW][i];
		if (!mw->live || mw->domain != domain)
			continue;
		if (binder ? mw->peer == binder && !(access & ~mw->access) :
		    !mw->peer || mw->type == IBV_MW_TYPE_1)
			mws[n++] = mw;
	}
	return n ? mws[sel % n] : NULL;
}

static bool is_atomic_operand(uint8_t op)
{
	return op == IBV_WR_ATOMIC_CMP_AND_SWP || op == WR_ATOMIC_WRITE ||
	       op == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/* Memory of the peer: of a window that the peer has bound, or of an MR. */
static bool remote_memory(struct wr *wr, const uint8_t *a, uint64_t *room)
{
	struct obj *peer = wr->qp->peer, *mem = NULL;
	uint32_t right = remote_right(wr->op);

	if (!right)
		return true;
	if (!peer)
		return false;
	if (a[3] & 0x40)
		mem = window_pick(peer->domain, peer, right, a[3]);
	if (!mem)
		mem = mr_need(peer->domain, right, a[3] & 0x3f);
	if (!mem)
		return false;
	wr->remote = (mem->addr + 7) & ~7ULL;
	wr->rkey = mem->num;
	*room = mem->addr + mem->len > wr->remote ?
		mem->addr + mem->len - wr->remote : 0;
	/* A flush has no local memory, and may be empty. */
	return *room >= 8 || wr->op == WR_FLUSH;
}

static bool local_op(struct wr *wr, const uint8_t *a)
{
	switch (wr->op) {
	case IBV_WR_BIND_MW:
		wr->mw = window_pick(wr->qp->domain, NULL, 0, a[3]);
		break;
	case IBV_WR_LOCAL_INV:
		wr->mw = window_pick(wr->qp->domain, wr->qp, 0, a[3]);
		break;
	case IBV_WR_SEND_WITH_INV:
		if (wr->qp->peer)
			wr->mw = window_pick(wr->qp->peer->domain,
					     wr->qp->peer, 0, a[3]);
		break;
	default:
		return true;
	}
	if (wr->op != IBV_WR_BIND_MW && wr->mw &&
	    wr->mw->type == IBV_MW_TYPE_1)
		wr->mw = NULL;
	if (!wr->mw)
		wr->op = IBV_WR_SEND;
	return true;
}

bool wr_memory(struct wr *wr, const uint8_t *a)
{
	uint64_t room = ~0ULL, max;
	struct obj *mr;

	local_op(wr, a);
	mr = mr_need(wr->qp->domain, local_right(wr->op), a[2]);
	if (!mr)
		return false;
	wr->mr = *mr;
	if (!wr->mr.len || !remote_memory(wr, a, &room))
		return false;
	wr->addr = wr->mr.addr + a[5] * 8 % wr->mr.len;
	max = wr->mr.addr + wr->mr.len - wr->addr;
	if (max > room && room)
		max = room;
	/* A receive WQE takes no more than this from one page. */
	if (max > PAGE && a[4] < 0xf0)
		max = PAGE;
	wr->len = a[4] * 16 % max + (a[4] & 7 ? 1 : 0);
	if (is_atomic_operand(wr->op)) {
		wr->len = 8;
		if (max < 8)
			return false;
	}
	if (wr->len > 256 && wr_has_message(wr) && a[4] < 0x80)
		wr->len = 256;
	/* To the last byte, one byte less, or too much. */
	if (a[4] >= 0xf8 && !is_atomic_operand(wr->op))
		wr->len = max + a[4] - 0xfb;
	return true;
}

static void fill_bind(struct wr *wr, struct keel_uapi_send_wqe *wqe,
		      const uint8_t *a)
{
	struct obj *mw = wr->mw;
	const struct obj *mr = &wr->mr;
	uint32_t rkey = (mw->num & ~0xffU) | ((mw->num + 1) & 0xff);

	wqe->bind.addr = mr->addr;
	wqe->bind.length = a[4] & 1 ? mr->len : mr->len / 2 + 1;
	wqe->bind.lkey = mr->num;
	wqe->bind.rkey = mw->num;
	wqe->bind.new_rkey = rkey;
	wqe->bind.access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
			   IBV_ACCESS_REMOTE_ATOMIC;
	switch (a[5] % 8) {
	case 4:
		wqe->bind.access |= IBV_ACCESS_ZERO_BASED;
		break;
	case 5:
		wqe->bind.length = 0;
		break;
	case 6:
		wqe->bind.access = IBV_ACCESS_FLUSH_GLOBAL;
		break;
	case 7:
		wqe->bind.access |= mr->access & IBV_ACCESS_FLUSH_GLOBAL;
		break;
	}
	wqe->bind.flags = mw->type == IBV_MW_TYPE_1 ? KEEL_BIND_F_TYPE_1 : 0;
	mw->num = rkey;
	mw->addr = wqe->bind.access & IBV_ACCESS_ZERO_BASED ? 0 : mr->addr;
	mw->len = wqe->bind.length;
	mw->access = wqe->bind.access;
	/* A bind of no length ends the binding of a window of type 1. */
	mw->peer = mw->len || mw->type != IBV_MW_TYPE_1 ? wr->qp : NULL;
}

static void fill_remote(struct wr *wr, struct keel_uapi_send_wqe *wqe,
			const uint8_t *a)
{
	switch (wr->op) {
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		wqe->atomic.remote_addr = wr->remote;
		wqe->atomic.rkey = wr->rkey;
		wqe->atomic.compare_add = a[4];
		wqe->atomic.swap = a[5];
		break;
	case WR_FLUSH:
		wqe->flush.remote_addr = wr->remote;
		wqe->flush.rkey = wr->rkey;
		wqe->flush.type = 1;
		wqe->flush.level = a[5] % 2;
		wqe->flush.length = a[4] % 8;
		break;
	default:
		wqe->rdma.remote_addr = wr->remote;
		wqe->rdma.rkey = wr->rkey;
		break;
	}
}

static void fill_data(struct wr *wr, struct keel_uapi_send_wqe *wqe,
		      const uint8_t *a)
{
	struct keel_uapi_sge *sge = (void *)(wqe + 1);
	uint32_t part = wr->len / 3;
	int i, n = a[6] & SEND_SGES && !is_atomic_operand(wr->op) ? 3 : 1;

	if (a[6] & SEND_INLINE && wr->op != IBV_WR_RDMA_READ &&
	    !(is_atomic_operand(wr->op) && wr->op != WR_ATOMIC_WRITE)) {
		wqe->flags |= IBV_SEND_INLINE;
		wqe->inline_len = wr->len > 64 ? 64 : wr->len;
		memset(wqe + 1, a[5], 64);
		return;
	}
	wqe->num_sge = n;
	for (i = 0; i < n; i++)
		sge[i] = (struct keel_uapi_sge){
			.addr = wr->addr + i * part, .lkey = wr->mr.num,
			.length = i < n - 1 ? part : wr->len - i * part,
		};
}

static void fill_ud(struct obj *qp, struct keel_uapi_send_wqe *wqe,
		    const uint8_t *a)
{
	struct obj *ah = a[3] & 0x80 ? obj_pick(K_AH, a[3] & 0x7f) : qp->ah;

	wqe->ud.ah = ah ? ah->num : 0;
	wqe->ud.qpn = qp->peer ? qp->peer->num : 0xffffff;
	wqe->ud.qkey = 0x1234;
}

void wr_fill(struct wr *wr, struct keel_uapi_send_wqe *wqe, const uint8_t *a)
{
	*wqe = (struct keel_uapi_send_wqe){
		.opcode = wr->op,
		.flags = (a[6] & SEND_FENCE ? IBV_SEND_FENCE : 0) |
			 (a[6] & SEND_SOLICITED ? IBV_SEND_SOLICITED : 0) |
			 (a[6] & SEND_SILENT ? 0 : IBV_SEND_SIGNALED),
	};
	if (wr->op == IBV_WR_SEND_WITH_IMM ||
	    wr->op == IBV_WR_RDMA_WRITE_WITH_IMM)
		wqe->imm = 0x1000 + a[4];
	if (wr->op == IBV_WR_SEND_WITH_INV || wr->op == IBV_WR_LOCAL_INV) {
		wqe->imm = wr->mw->num;
		wr->mw->len = 0;
		wr->mw->peer = NULL;
	}
	if (wr->op == IBV_WR_BIND_MW) {
		fill_bind(wr, wqe, a);
		return;
	}
	if (wr->op == IBV_WR_LOCAL_INV)
		return;
	if (wr->qp->type == IB_UVERBS_QPT_UD)
		fill_ud(wr->qp, wqe, a);
	else if (remote_right(wr->op))
		fill_remote(wr, wqe, a);
	if (wr->qp->type == IB_UVERBS_QPT_XRC_INI && wr->qp->srq)
		wqe->srqn = wr->qp->srq->num;
	if (wr->op != WR_FLUSH)
		fill_data(wr, wqe, a);
}
