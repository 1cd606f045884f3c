// SPDX-License-Identifier: GPL-2.0
/*
 * Work requests that steps post: mostly good ones, with keys, ranges and rights
 * that fit.
 */
#include <errno.h>
#include <string.h>

#include "draft.h"

/* --- keys ----------------------------------------------------------------- */

/* Collect the keys of a domain with these rights. */
static int usable(const struct obj *domain, unsigned int access, bool windows,
		  bool odp, uint32_t *keys)
{
	static const enum kind kinds[] = { K_MR, K_DM_MR, K_MW };
	struct key key;
	int i, k, n = 0;
	uint32_t num;

	for (k = 0; k < (windows ? 3 : 2); k++)
		for (i = 0; i < world.n[kinds[k]]; i++) {
			num = kinds[k] == K_MW ?
			      world.live[kinds[k]][i]->mw.key :
			      world.live[kinds[k]][i]->mr.key;
			if (key_find(num, &key) && key.domain == domain &&
			    !(access & ~key.access) && key.length > 16 &&
			    (odp || !key.odp))
				keys[n++] = num;
		}
	return n;
}

/* Any key, of objects that exist or existed. */
static uint32_t any_key(struct dice *d, bool odp)
{
	uint32_t n = dice_roll(d, 1 << 16);
	struct obj *mr = obj_pick(K_MR, n), *mw = obj_pick(K_MW, n);
	uint32_t base = mr && (odp || !mr->mr.odp) ? mr->mr.key : 0x10100;

	switch (dice_roll(d, 4)) {
	case 0:
		return base;
	case 1:
		return base ^ 1U << dice_roll(d, 8);
	case 2:
		/* The key of a region that may be gone. */
		return base - (dice_roll(d, 8) << 8);
	default:
		return mw ? mw->mw.key : n;
	}
}

/* Choose a key and a range of it: mostly a good one. */
void roll_range(struct dice *d, const struct obj *domain, unsigned int access,
		bool windows, bool odp, uint32_t want, uint64_t *addr,
		uint32_t *len, uint32_t *key)
{
	uint32_t keys[3 * MAX_LIVE];
	struct key k;
	int i, n = domain ? usable(domain, access, windows, odp, keys) : 0;
	uint64_t off;

	*len = want;
	*addr = (uintptr_t)arena + dice_roll(d, ARENA);
	if (!n || dice_chance(d, 1, 80)) {
		*key = any_key(d, odp);
		if (key_find(*key, &k) && k.length)
			*addr = k.iova + dice_roll(d, k.length);
		/* A message without bytes needs no key. */
		if (!n && !dice_chance(d, 1, 40))
			*len = 0;
		return;
	}
	for (i = 0; i < 4; i++) {
		*key = keys[dice_roll(d, n)];
		key_find(*key, &k);
		if (k.length >= *len)
			break;
	}
	if (*len > k.length && !dice_chance(d, 1, 100))
		*len = k.length;
	off = *len < k.length ? dice_roll(d, k.length - *len + 1) : 0;
	if (dice_chance(d, 1, 150))
		off = k.length - dice_roll(d, 16);
	if (dice_chance(d, 1, 150))
		off = -(uint64_t)dice_roll(d, 16);
	*addr = k.iova + off;
}

uint32_t roll_bytes(struct dice *d)
{
	switch (dice_roll(d, 12)) {
	case 0:
		return 0;
	case 1:
		return 1 + dice_roll(d, 6000);
	default:
		return 1 + dice_roll(d, 200);
	}
}

/* --- send work requests ---------------------------------------------------- */

static enum ibv_wr_opcode roll_opcode(enum ibv_qp_type type, struct dice *d)
{
	static const enum ibv_wr_opcode rc[] = {
		IBV_WR_SEND, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM,
		IBV_WR_SEND_WITH_INV, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE,
		IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ, IBV_WR_RDMA_READ,
		IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD,
		IBV_WR_ATOMIC_WRITE, IBV_WR_BIND_MW, IBV_WR_LOCAL_INV,
	}, uc[] = {
		IBV_WR_SEND, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM,
		IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE,
		IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_BIND_MW, IBV_WR_LOCAL_INV,
	}, ud[] = { IBV_WR_SEND, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM };

	if (type == IBV_QPT_UC && !dice_chance(d, 1, 40))
		return uc[dice_roll(d, COUNT(uc))];
	if (type == IBV_QPT_UD && !dice_chance(d, 1, 40))
		return ud[dice_roll(d, COUNT(ud))];
	return rc[dice_roll(d, COUNT(rc))];
}

bool supports(enum ibv_qp_type type, enum ibv_wr_opcode op)
{
	switch (op) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
		return type != IBV_QPT_XRC_RECV;
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_BIND_MW:
	case IBV_WR_LOCAL_INV:
		return type != IBV_QPT_UD && type != IBV_QPT_XRC_RECV;
	default:
		return type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND;
	}
}

bool op_is_atomic(enum ibv_wr_opcode op)
{
	return op == IBV_WR_ATOMIC_CMP_AND_SWP ||
	       op == IBV_WR_ATOMIC_FETCH_AND_ADD || op == IBV_WR_ATOMIC_WRITE;
}

bool op_reads(enum ibv_wr_opcode op)
{
	return op == IBV_WR_RDMA_READ || op == IBV_WR_ATOMIC_CMP_AND_SWP ||
	       op == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

static void draft_sges(struct draft *f, struct obj *qp, struct dice *d)
{
	enum ibv_wr_opcode op = f->wr.opcode;
	unsigned int access = op_reads(op) ? IBV_ACCESS_LOCAL_WRITE : 0;
	uint32_t len = op_is_atomic(op) && !dice_chance(d, 1, 80) ? 8 :
		       roll_bytes(d);
	int i, n = op_is_atomic(op) ? 1 : 1 + dice_roll(d, 3);

	if (n > (int)qp->qp.max_sge)
		n = qp->qp.max_sge;
	if (dice_chance(d, 1, 120))
		n = qp->qp.max_sge + 1;
	for (i = 0; i < n && i < SGES_TOO_MANY; i++)
		roll_range(d, qp->qp.domain, access, false, true, len / n,
			   &f->sge[i].addr, &f->sge[i].length,
			   &f->sge[i].lkey);
	f->wr.num_sge = n;
	f->wr.sg_list = f->sge;
	if (n > (int)qp->qp.max_sge)
		f->want = EINVAL;
	else if (n > SGES_MAX)
		f->wr.num_sge = SGES_MAX;
	f->model.num_sge = f->wr.num_sge;
	if (!f->want)
		memcpy(f->model.sge, f->sge, sizeof(f->model.sge));
}

static void draft_inline(struct draft *f, struct obj *qp, struct dice *d)
{
	uint32_t i, max = qp->qp.max_inline, len;

	if (max > INLINE_MAX)
		max = INLINE_MAX;
	len = f->wr.opcode == IBV_WR_ATOMIC_WRITE ? 8 : dice_roll(d, max + 1);
	if (dice_chance(d, 1, 20))
		len = qp->qp.max_inline + 1;
	for (i = 0; i < len; i++)
		f->data[i] = dice_roll(d, 256);
	f->sge[0].addr = (uintptr_t)f->data;
	f->sge[0].length = len;
	f->wr.sg_list = f->sge;
	f->wr.num_sge = 1;
	f->wr.send_flags |= IBV_SEND_INLINE;
	if (op_reads(f->wr.opcode) || len > qp->qp.max_inline) {
		f->want = EINVAL;
		return;
	}
	f->model.is_inline = true;
	f->model.len = len;
	memcpy(f->model.data, f->data, len < INLINE_MAX ? len : INLINE_MAX);
}

uint64_t draft_len(const struct draft *f)
{
	uint64_t len = f->model.is_inline ? f->model.len : 0;
	int i;

	for (i = 0; i < f->model.num_sge && i < SGES_MAX; i++)
		len += f->model.sge[i].length;
	return len;
}

/* The SRQ of a message: mostly one of the peer's XRC domain. */
static struct obj *roll_srq(const struct obj *peer, struct dice *d)
{
	struct obj *of[MAX_LIVE], *o;
	int i, n = 0;

	for (i = 0; i < world.n[K_SRQ]; i++) {
		o = world.live[K_SRQ][i];
		if (o->srq.num && (!peer || o->srq.xdom == peer->qp.xdom ||
				   dice_chance(d, 1, 30)))
			of[n++] = o;
	}
	return n ? of[dice_roll(d, n)] : NULL;
}

static void draft_remote(struct draft *f, const struct obj *domain,
			 struct dice *d)
{
	enum ibv_wr_opcode op = f->wr.opcode;
	unsigned int access = op == IBV_WR_RDMA_READ ? IBV_ACCESS_REMOTE_READ :
			      op_is_atomic(op) && op != IBV_WR_ATOMIC_WRITE ?
			      IBV_ACCESS_REMOTE_ATOMIC :
			      IBV_ACCESS_REMOTE_WRITE;
	uint32_t len, key;
	uint64_t addr;

	roll_range(d, domain, access, true, true,
		   op_is_atomic(op) ? 8 : draft_len(f), &addr, &len, &key);
	if (op_is_atomic(op) && !dice_chance(d, 1, 40))
		addr = (addr + 7) & ~7ULL;
	f->model.addr = addr;
	f->model.rkey = key;
	if (op_is_atomic(op) && op != IBV_WR_ATOMIC_WRITE) {
		f->model.compare = dice_roll(d, 5);
		f->model.swap = dice_roll(d, 1 << 30);
		f->wr.wr.atomic.remote_addr = addr;
		f->wr.wr.atomic.rkey = key;
		f->wr.wr.atomic.compare_add = f->model.compare;
		f->wr.wr.atomic.swap = f->model.swap;
	} else {
		f->wr.wr.rdma.remote_addr = addr;
		f->wr.wr.rdma.rkey = key;
	}
}

/* Compare with the value that is there, so that the swap happens. */
static void guess_operand(struct draft *f)
{
	struct key key;

	if (f->wr.opcode != IBV_WR_ATOMIC_CMP_AND_SWP ||
	    !key_find(f->model.rkey, &key) || f->model.addr < key.iova ||
	    f->model.addr - key.iova + 8 > key.length || f->model.swap % 3 == 0)
		return;
	key.mem.off += f->model.addr - key.iova;
	memcpy(&f->model.compare, bytes_at(&key.mem), 8);
	f->wr.wr.atomic.compare_add = f->model.compare;
}

static void draft_ud(struct draft *f, struct obj *qp, struct dice *d)
{
	struct obj *of[MAX_LIVE], *ah, *peer;
	int i, n = 0;

	for (i = 0; i < world.n[K_AH]; i++)
		if (world.live[K_AH][i]->ah.domain == qp->qp.domain ||
		    dice_chance(d, 1, 20))
			of[n++] = world.live[K_AH][i];
	ah = n ? of[dice_roll(d, n)] : NULL;
	for (i = n = 0; i < world.n[K_QP]; i++)
		if (world.live[K_QP][i]->qp.type == IBV_QPT_UD ||
		    dice_chance(d, 1, 60))
			of[n++] = world.live[K_QP][i];
	peer = of[dice_roll(d, n)];
	f->model.ah = ah;
	f->model.qpn = dice_chance(d, 1, 40) ? dice_roll(d, 2000) :
					       peer->qp.qpn;
	f->model.qkey = dice_chance(d, 1, 20) ? 1U << 31 :
			dice_chance(d, 1, 20) ? 0x777 : 0x1234;
	f->wr.wr.ud.ah = ah ? ah->ah.p : NULL;
	f->wr.wr.ud.remote_qpn = f->model.qpn;
	f->wr.wr.ud.remote_qkey = f->model.qkey;
	if (!ah)
		f->want = EINVAL;
}

/* The rights of a region that windows with remote rights need. */
#define GOOD	(IBV_ACCESS_MW_BIND | IBV_ACCESS_LOCAL_WRITE)

/* A range of a region for a window, mostly a good one. */
void roll_bind(struct ibv_mw_bind_info *info, struct send *model,
	       const struct obj *domain, struct dice *d)
{
	struct obj *of[2 * MAX_LIVE], *mr;
	int i, n = 0;

	for (i = 0; i < world.n[K_MR]; i++) {
		mr = world.live[K_MR][i];
		if ((mr->holds[0]->pd.domain == domain && mr->mr.length &&
		     (mr->mr.access & GOOD) == GOOD) || dice_chance(d, 1, 100))
			of[n++] = mr;
	}
	for (i = 0; i < world.n[K_DM_MR]; i++)
		if (world.live[K_DM_MR][i]->holds[0]->pd.domain == domain &&
		    (world.live[K_DM_MR][i]->mr.access & GOOD) == GOOD)
			of[n++] = world.live[K_DM_MR][i];
	mr = n ? of[dice_roll(d, n)] : NULL;
	*info = (struct ibv_mw_bind_info){
		.mr = mr ? mr->mr.p : NULL,
		.mw_access_flags = IBV_ACCESS_REMOTE_READ |
			IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
	};
	if (dice_chance(d, 1, 5))
		info->mw_access_flags &= dice_roll(d, 16);
	if (dice_chance(d, 1, 4))
		info->mw_access_flags |= IBV_ACCESS_ZERO_BASED;
	if (dice_chance(d, 1, 40))
		info->mw_access_flags |= IBV_ACCESS_MW_BIND;
	if (mr && mr->mr.length && !dice_chance(d, 1, 20)) {
		info->addr = mr->mr.iova + dice_roll(d, mr->mr.length);
		info->length = 1 + dice_roll(d, mr->mr.iova + mr->mr.length -
					     info->addr +
					     dice_chance(d, 1, 40) * 64);
	}
	model->lkey = mr ? mr->mr.key : 0;
	model->bind_addr = info->addr;
	model->bind_len = info->length;
	model->access = info->mw_access_flags;
}

static bool may_bind(const struct obj *mw, const struct obj *qp)
{
	return mw->mw.p->type == IBV_MW_TYPE_2 && !mw->mw.mr &&
	       mw->holds[0]->pd.domain == qp->qp.domain;
}

static void draft_bind(struct draft *f, struct obj *qp, struct dice *d)
{
	struct obj *mw = NULL;
	int i;

	/* Mostly a window of type 2 that is not bound. */
	for (i = 0; i < 12; i++) {
		mw = obj_pick(K_MW, dice_roll(d, 1 << 16));
		if (mw && may_bind(mw, qp))
			break;
	}
	f->wr.bind_mw.mw = mw ? mw->mw.p : NULL;
	if (!mw || mw->mw.p->type == IBV_MW_TYPE_1) {
		f->want = EINVAL;
		return;
	}
	mw->mw.p->rkey = mw->mw.key;
	f->wr.bind_mw.rkey = ibv_inc_rkey(mw->mw.key);
	f->model.mw_key = mw->mw.key;
	f->model.new_key = f->wr.bind_mw.rkey;
	roll_bind(&f->wr.bind_mw.bind_info, &f->model, qp->qp.domain, d);
}

/* Mostly the rkey of a window that the QP may invalidate. */
static uint32_t roll_invalid(const struct obj *qp, struct dice *d)
{
	uint32_t keys[MAX_LIVE];
	int i, n = 0;

	for (i = 0; qp && i < world.n[K_MW]; i++)
		if (world.live[K_MW][i]->mw.qp == qp)
			keys[n++] = world.live[K_MW][i]->mw.key;
	return n && !dice_chance(d, 1, 20) ? keys[dice_roll(d, n)] :
					     any_key(d, true);
}

/* Is there a window for this? */
static bool has_window(enum ibv_wr_opcode op, const struct obj *qp,
		       const struct obj *peer)
{
	const struct obj *by = op == IBV_WR_SEND_WITH_INV ? peer : qp, *mw;
	int i;

	for (i = 0; i < world.n[K_MW]; i++) {
		mw = world.live[K_MW][i];
		if (op == IBV_WR_BIND_MW ? may_bind(mw, qp) :
		    by && mw->mw.qp == by)
			return true;
	}
	return false;
}

/* A bind or an invalidation that fails ends a connection: mostly avoid it. */
static enum ibv_wr_opcode roll_fitting(const struct obj *qp,
				       const struct obj *peer, struct dice *d)
{
	enum ibv_wr_opcode op = roll_opcode(qp->qp.type, d);

	if (op != IBV_WR_LOCAL_INV && op != IBV_WR_SEND_WITH_INV &&
	    op != IBV_WR_BIND_MW)
		return op;
	return has_window(op, qp, peer) || dice_chance(d, 1, 40) ? op :
								   IBV_WR_SEND;
}

void draft_send(struct draft *f, struct obj *qp, struct dice *d)
{
	struct obj *peer = qp_by_num(qp->qp.dest), *srq = NULL;
	const struct obj *domain = peer ? peer->qp.domain : NULL;
	enum ibv_wr_opcode op = roll_fitting(qp, peer, d);

	memset(f, 0, sizeof(*f));
	f->model.opcode = op;
	f->model.wr_id = ++world.wr_ids;
	f->wr.opcode = op;
	f->wr.wr_id = f->model.wr_id;
	if (qp->qp.type == IBV_QPT_XRC_SEND && op != IBV_WR_BIND_MW &&
	    op != IBV_WR_LOCAL_INV) {
		srq = roll_srq(peer, d);
		f->model.srqn = srq ? srq->srq.num : dice_roll(d, 100);
		f->wr.qp_type.xrc.remote_srqn = f->model.srqn;
		domain = srq ? srq->srq.domain : NULL;
	}
	if (op == IBV_WR_BIND_MW) {
		draft_bind(f, qp, d);
	} else if (op != IBV_WR_LOCAL_INV) {
		if (dice_chance(d, 1, 5) && !op_reads(op))
			draft_inline(f, qp, d);
		else
			draft_sges(f, qp, d);
	}
	if (op == IBV_WR_LOCAL_INV || op == IBV_WR_SEND_WITH_INV)
		f->model.imm = roll_invalid(op == IBV_WR_LOCAL_INV ? qp : peer,
					    d);
	else if (op == IBV_WR_SEND_WITH_IMM || op == IBV_WR_RDMA_WRITE_WITH_IMM)
		f->model.imm = dice_roll(d, 1U << 31);
	f->wr.invalidate_rkey = f->model.imm;
	if (qp->qp.type == IBV_QPT_UD)
		draft_ud(f, qp, d);
	else if (op == IBV_WR_RDMA_READ || op == IBV_WR_RDMA_WRITE ||
		 op == IBV_WR_RDMA_WRITE_WITH_IMM || op_is_atomic(op))
		draft_remote(f, domain, d);
	guess_operand(f);
	if (!supports(qp->qp.type, op))
		f->want = EINVAL;
}

/* Flags, and errors of the whole work request. */
void draft_flags(struct draft *f, struct obj *qp, bool last, struct dice *d)
{
	static const unsigned int flags[] = {
		0, 0, 0, IBV_SEND_FENCE, IBV_SEND_SOLICITED,
	};

	/* Kernel threads report the end of what they do. */
	f->model.signaled = (last && (qp->qp.n || qp->qp.state != IBV_QPS_RTS)) ||
			    !dice_chance(d, 1, 6);
	f->wr.send_flags |= flags[dice_roll(d, COUNT(flags))];
	if (f->model.signaled)
		f->wr.send_flags |= IBV_SEND_SIGNALED;
	if (dice_chance(d, 1, 100)) {
		f->wr.send_flags |= 1U << 20;
		f->want = EINVAL;
	}
}

