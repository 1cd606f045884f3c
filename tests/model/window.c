// SPDX-License-Identifier: GPL-2.0
/*
 * Memory windows: bind and invalidate, as section 10.6.7 of the InfiniBand
 * specification and Documentation/data-path.rst define them. Windows of type 2
 * are of variant 2B: they belong to the QP that bound them.
 */
#include "model.h"

#define RIGHTS	(IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | \
		 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_FLUSH_GLOBAL)

void window_unbind(struct obj *mw)
{
	mw->mw.mr = NULL;
	mw->mw.ours = false;
	mw->mw.qp = NULL;
	mw->mw.access = 0;
	mw->mw.length = 0;
}

static int check_window(const struct obj *mw, const struct send *wr)
{
	enum ibv_mw_type type = wr->type_1 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2;

	if (mw->mw.p->type != type)
		return KEELDV_WHY_WINDOW;
	if (type == IBV_MW_TYPE_2 && mw->mw.mr)
		return KEELDV_WHY_WINDOW;
	if (type == IBV_MW_TYPE_2 && !wr->bind_len)
		return KEELDV_WHY_LENGTH;
	if (wr->access & ~(RIGHTS | IBV_ACCESS_LOCAL_WRITE |
			   IBV_ACCESS_ZERO_BASED))
		return KEELDV_WHY_ACCESS;
	return 0;
}

static int check_region(const struct obj *qp, const struct send *wr,
			struct key *key)
{
	if (!key_find(wr->lkey, key))
		return KEELDV_WHY_KEY;
	if (key->domain != qp->qp.domain)
		return KEELDV_WHY_DOMAIN;
	if (key->owner->kind == K_MW)
		return KEELDV_WHY_WINDOW;
	if (!(key->access & IBV_ACCESS_MW_BIND))
		return KEELDV_WHY_ACCESS;
	if (wr->access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) &&
	    !(key->access & IBV_ACCESS_LOCAL_WRITE))
		return KEELDV_WHY_ACCESS;
	if (wr->access & IBV_ACCESS_FLUSH_GLOBAL & ~key->access)
		return KEELDV_WHY_ACCESS;
	return key_check(wr->lkey, qp->qp.domain, 0, wr->bind_addr,
			 wr->bind_len, key);
}

int window_bind(struct obj *qp, const struct send *wr)
{
	struct key key, of;
	struct obj *mw;
	int why;

	if (!key_find(wr->mw_key, &key))
		return KEELDV_WHY_KEY;
	if (key.domain != qp->qp.domain)
		return KEELDV_WHY_DOMAIN;
	mw = key.owner;
	if (mw->kind != K_MW)
		return KEELDV_WHY_WINDOW;
	why = check_window(mw, wr);
	if (!why && wr->bind_len)
		why = check_region(qp, wr, &of);
	if (why)
		return why;
	window_unbind(mw);
	mw->mw.key = (wr->mw_key & ~0xffU) | (wr->new_key & 0xff);
	if (!wr->bind_len)
		return 0;
	mw->mw.mr = of.owner;
	mw->mw.ours = file_of(mw->ctx) == file_of(of.owner->ctx) &&
		      file_of(qp->ctx) == file_of(of.owner->ctx);
	mw->mw.access = wr->access & RIGHTS;
	mw->mw.iova = wr->access & IBV_ACCESS_ZERO_BASED ? 0 : wr->bind_addr;
	mw->mw.length = wr->bind_len;
	mw->mw.mem = of.mem;
	mw->mw.mem.off += wr->bind_addr - of.iova;
	mw->mw.qp = wr->type_1 ? NULL : qp;
	return 0;
}

int window_invalidate(struct obj *qp, const struct obj *domain, uint32_t rkey)
{
	struct key key;

	if (!key_find(rkey, &key))
		return KEELDV_WHY_KEY;
	if (key.domain != domain)
		return KEELDV_WHY_DOMAIN;
	if (key.owner->kind != K_MW ||
	    key.owner->mw.p->type != IBV_MW_TYPE_2 || !key.owner->mw.mr ||
	    key.owner->mw.qp != qp)
		return KEELDV_WHY_WINDOW;
	window_unbind(key.owner);
	return 0;
}
