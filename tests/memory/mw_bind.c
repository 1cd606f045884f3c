// SPDX-License-Identifier: GPL-2.0
/*
 * Memory windows: which binds succeed, which bytes a bound window opens to
 * which QP, and how a bind ends.
 */
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include <infiniband/keeldv.h>
#include <infiniband/shpd.h>

#include "pair.h"
#include "peer.h"
#include "qp.h"
#include "t.h"
#include "tree.h"

#define PAGE	4096
#define KEY	0x0123456789abcdefULL
#define RIGHTS	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND)
#define REMOTE	(IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)

static char page[PAGE] __attribute__((aligned(PAGE)));
static char local[64] __attribute__((aligned(64)));

/* Bind a window of either type; on success the window has its new key. */
static enum ibv_wc_status bind(struct pair *p, int who, struct ibv_mw *mw,
			       struct ibv_mr *mr, const void *addr,
			       uint64_t length, unsigned int access)
{
	struct ibv_mw_bind_info info = {
		.mr = mr, .addr = (uintptr_t)addr, .length = length,
		.mw_access_flags = access,
	};
	struct ibv_mw_bind req = { .bind_info = info };
	struct ibv_send_wr wr = { .opcode = IBV_WR_BIND_MW };
	enum ibv_wc_status status;

	if (mw->type == IBV_MW_TYPE_1) {
		CHECK_OK(ibv_bind_mw(p->qp[who], mw, &req));
		return pair_done(p);
	}
	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	wr.bind_mw.bind_info = info;
	status = pair_run(p, who, &wr);
	if (status == IBV_WC_SUCCESS)
		mw->rkey = wr.bind_mw.rkey;
	return status;
}

static enum ibv_wc_status invalidate(struct pair *p, int who, uint32_t rkey)
{
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = rkey,
	};

	return pair_run(p, who, &wr);
}

struct setup {
	struct ibv_pd *pd;
	struct ibv_mr *mine;	/* MR of the requester's buffer */
	struct ibv_mr *mr;	/* MR that windows are bound to */
	struct pair p;
};

static struct setup setup(unsigned int rights)
{
	struct setup s = { .pd = MUST(ibv_alloc_pd(dev_open(KEEL0))) };

	s.mine = MUST(ibv_reg_mr(s.pd, local, sizeof(local),
				 IBV_ACCESS_LOCAL_WRITE));
	s.mr = MUST(ibv_reg_mr(s.pd, page, PAGE, rights));
	s.p = pair_new(s.pd);
	memset(local, 'x', sizeof(local));
	return s;
}

/* The first QP binds; the second QP sends requests by the window's key. */
static enum ibv_wc_status reach(struct setup *s, enum ibv_wr_opcode op,
				const void *addr, uint32_t len, uint32_t rkey)
{
	return pair_rdma(&s->p, 1, op, local, s->mine->lkey, len,
			 (uintptr_t)addr, rkey);
}

static void again(struct setup *s)
{
	pair_free(&s->p);
	s->p = pair_new(s->pd);
}

TEST(opens, "PD-4", "a bound window opens its bytes with its rights and no more, without the key of its MR")
{
	static const enum ibv_mw_type types[] = { IBV_MW_TYPE_1,
						  IBV_MW_TYPE_2 };
	struct setup s = setup(RIGHTS);
	struct ibv_mw *mw;
	int i;

	for (i = 0; i < 2; i++) {
		mw = MUST(ibv_alloc_mw(s.pd, types[i]));
		memset(page, 0, PAGE);
		CHECK_EQ(bind(&s.p, 0, mw, s.mr, page + 100, 32,
			      IBV_ACCESS_REMOTE_WRITE), IBV_WC_SUCCESS);
		CHECK_EQ(reach(&s, IBV_WR_RDMA_WRITE, page + 100, 32, mw->rkey),
			 IBV_WC_SUCCESS);
		CHECK_ALL(page, 0, 100);
		CHECK_ALL(page + 100, 'x', 32);
		CHECK_ALL(page + 132, 0, PAGE - 132);
		CHECK_EQ(reach(&s, IBV_WR_RDMA_WRITE, page + 101, 32, mw->rkey),
			 IBV_WC_REM_ACCESS_ERR);
		again(&s);
		if (types[i] == IBV_MW_TYPE_2) {
			/* The window belongs to the destroyed QP. */
			CHECK_EQ(reach(&s, IBV_WR_RDMA_WRITE, page + 100, 32,
				       mw->rkey), IBV_WC_REM_ACCESS_ERR);
			again(&s);
		} else {
			CHECK_EQ(reach(&s, IBV_WR_RDMA_READ, page + 100, 32,
				       mw->rkey), IBV_WC_REM_ACCESS_ERR);
			again(&s);
		}
		CHECK_EQ(reach(&s, IBV_WR_RDMA_WRITE, page, 1, s.mr->rkey),
			 IBV_WC_REM_ACCESS_ERR);
		again(&s);
		CHECK_OK(ibv_dealloc_mw(mw));
		CHECK_ALL(page + 132, 0, PAGE - 132);
	}
}

TEST(zero_based, "DM-7", "addresses of a zero-based window start at 0, on user memory and on device memory")
{
	struct setup s = setup(RIGHTS);
	struct ibv_mw *mw = MUST(ibv_alloc_mw(s.pd, IBV_MW_TYPE_1));
	struct ibv_alloc_dm_attr attr = { .length = PAGE };
	struct ibv_dm *dm = MUST(ibv_alloc_dm(s.pd->context, &attr));
	struct ibv_mr *dmr = MUST(ibv_reg_dm_mr(s.pd, dm, 64, 1024, RIGHTS |
						IBV_ACCESS_ZERO_BASED));
	char got[PAGE];

	memset(page, 0, PAGE);
	CHECK_EQ(bind(&s.p, 0, mw, s.mr, page + 7, 16, REMOTE |
		      IBV_ACCESS_ZERO_BASED), IBV_WC_SUCCESS);
	CHECK_EQ(reach(&s, IBV_WR_RDMA_WRITE, (void *)2, 4, mw->rkey),
		 IBV_WC_SUCCESS);
	CHECK_ALL(page, 0, 9);
	CHECK_ALL(page + 9, 'x', 4);
	CHECK_ALL(page + 13, 0, PAGE - 13);
	/* A second bind releases the first MR and opens the second. */
	CHECK_EQ(bind(&s.p, 0, mw, dmr, (void *)1000, 24, REMOTE |
		      IBV_ACCESS_ZERO_BASED), IBV_WC_SUCCESS);
	CHECK_OK(ibv_dereg_mr(s.mr));
	CHECK_EQ(reach(&s, IBV_WR_RDMA_WRITE, (void *)20, 4, mw->rkey),
		 IBV_WC_SUCCESS);
	CHECK_OK(ibv_memcpy_from_dm(got, dm, 0, PAGE));
	CHECK_ALL(got, 0, 1084);
	CHECK_ALL(got + 1084, 'x', 4);
	CHECK_ALL(got + 1088, 0, PAGE - 1088);
	CHECK_RET(ibv_dereg_mr(dmr), EBUSY);
	CHECK_EQ(reach(&s, IBV_WR_RDMA_WRITE, (void *)21, 4, mw->rkey),
		 IBV_WC_REM_ACCESS_ERR);
}

struct refused {
	const char *what;
	unsigned int rights;	/* of the MR */
	long off, length;
	unsigned int access;	/* of the window */
	bool other;		/* the MR is in another domain */
};

TEST(refused, "PD-4,DEV-4", "a bind that its MR does not permit fails with a bind error, and the window keeps its previous bind")
{
	static const struct refused cases[] = {
		{ "no right to bind", IBV_ACCESS_LOCAL_WRITE, 0, 8,
		  IBV_ACCESS_REMOTE_READ, false },
		{ "write to what is read-only", IBV_ACCESS_MW_BIND, 0, 8,
		  IBV_ACCESS_REMOTE_WRITE, false },
		{ "atomics on what is read-only", IBV_ACCESS_MW_BIND, 0, 8,
		  IBV_ACCESS_REMOTE_ATOMIC, false },
		{ "before it", RIGHTS, -1, 8, IBV_ACCESS_REMOTE_READ, false },
		{ "across its end", RIGHTS, PAGE - 7, 8,
		  IBV_ACCESS_REMOTE_READ, false },
		{ "more than it has", RIGHTS, 0, PAGE + 1,
		  IBV_ACCESS_REMOTE_READ, false },
		{ "a sum that wraps", RIGHTS, 8, -8, IBV_ACCESS_REMOTE_READ, false },
		{ "a right that no window has", RIGHTS, 0, 8,
		  IBV_ACCESS_MW_BIND, false },
		{ "flushes that the region does not allow", RIGHTS, 0, 8,
		  IBV_ACCESS_FLUSH_GLOBAL, false },
		{ "flushes that nothing allows", RIGHTS, 0, 8,
		  IBV_ACCESS_FLUSH_PERSISTENT, false },
		{ "another domain", RIGHTS, 0, 8, IBV_ACCESS_REMOTE_READ,
		  true },
		{}
	};
	struct setup s = setup(RIGHTS);
	struct ibv_mw *mw = MUST(ibv_alloc_mw(s.pd, IBV_MW_TYPE_1));
	struct ibv_pd *other = MUST(ibv_alloc_pd(s.pd->context));
	const struct refused *c;
	struct ibv_mr *mr;
	uint32_t rkey;

	CHECK_EQ(bind(&s.p, 0, mw, s.mr, page, 8, REMOTE), IBV_WC_SUCCESS);
	rkey = mw->rkey;
	for (c = cases; c->what; c++) {
		mr = MUST(ibv_reg_mr(c->other ? other : s.pd, page, PAGE,
				     c->rights));
		/* libibverbs compares the PDs itself: hide the difference. */
		mr->pd = s.pd;
		t_note("%s", c->what);
		CHECK_EQ(bind(&s.p, 0, mw, mr, page + c->off, c->length,
			      c->access), IBV_WC_MW_BIND_ERR);
		mw->rkey = rkey;
		again(&s);
		CHECK_OK(ibv_dereg_mr(mr));
		CHECK_EQ(reach(&s, IBV_WR_RDMA_READ, page, 8, rkey),
			 IBV_WC_SUCCESS);
	}
}

TEST(type_2, "PD-4", "a window of type 2 works only on the QP that bound it, only that QP invalidates it, and its old key stays dead")
{
	struct setup s = setup(RIGHTS);
	struct ibv_mw *mw = MUST(ibv_alloc_mw(s.pd, IBV_MW_TYPE_2));
	uint32_t rkey;

	CHECK_EQ(bind(&s.p, 0, mw, s.mr, page, 8, REMOTE), IBV_WC_SUCCESS);
	rkey = mw->rkey;
	/*
	 * Only requests that arrive at the QP that bound it can use the window.
	 */
	CHECK_EQ(pair_rdma(&s.p, 0, IBV_WR_RDMA_READ, local, s.mine->lkey, 8,
			   (uintptr_t)page, rkey), IBV_WC_REM_ACCESS_ERR);
	CHECK_OK(ibv_dealloc_mw(mw));
	again(&s);

	mw = MUST(ibv_alloc_mw(s.pd, IBV_MW_TYPE_2));
	CHECK_EQ(invalidate(&s.p, 0, mw->rkey), IBV_WC_MW_BIND_ERR);
	again(&s);
	CHECK_EQ(bind(&s.p, 0, mw, s.mr, page, 8, REMOTE), IBV_WC_SUCCESS);
	rkey = mw->rkey;
	CHECK_EQ(invalidate(&s.p, 1, rkey), IBV_WC_MW_BIND_ERR);
	pair_free(&s.p);
	CHECK_RET(ibv_dereg_mr(s.mr), EBUSY);
	CHECK_OK(ibv_dealloc_mw(mw));
	CHECK_OK(ibv_dereg_mr(s.mr));

	s = setup(RIGHTS);
	mw = MUST(ibv_alloc_mw(s.pd, IBV_MW_TYPE_2));
	CHECK_EQ(bind(&s.p, 0, mw, s.mr, page, 8, REMOTE), IBV_WC_SUCCESS);
	rkey = mw->rkey;
	CHECK_EQ(reach(&s, IBV_WR_RDMA_READ, page, 8, rkey), IBV_WC_SUCCESS);
	CHECK_EQ(invalidate(&s.p, 0, rkey), IBV_WC_SUCCESS);
	CHECK_OK(ibv_dereg_mr(s.mr));
	s.mr = MUST(ibv_reg_mr(s.pd, page, PAGE, RIGHTS));
	CHECK_EQ(bind(&s.p, 0, mw, s.mr, page, 8, REMOTE), IBV_WC_SUCCESS);
	CHECK_EQ(reach(&s, IBV_WR_RDMA_READ, page, 8, mw->rkey),
		 IBV_WC_SUCCESS);
	CHECK_EQ(reach(&s, IBV_WR_RDMA_READ, page, 8, rkey),
		 IBV_WC_REM_ACCESS_ERR);
}

/* Post a signaled bind of a window of type 2 in either of two ways. */
struct poster {
	struct ibv_pd *pd;
	struct ibv_mr *mr, *mine;
	struct link l;
	bool ex;
};

static struct poster poster_new(bool ex)
{
	struct poster p = { .pd = MUST(ibv_alloc_pd(dev_open(KEEL0))),
			    .ex = ex };

	p.mr = MUST(ibv_reg_mr(p.pd, page, PAGE, RIGHTS));
	p.mine = MUST(ibv_reg_mr(p.pd, local, sizeof(local),
				 IBV_ACCESS_LOCAL_WRITE));
	p.l = link_new_ex(p.pd, IBV_QP_EX_WITH_BIND_MW);
	memset(local, 'x', sizeof(local));
	return p;
}

static struct ibv_wc poster_bind(struct poster *p, struct ibv_mw *mw,
				 uint32_t rkey, uint64_t length)
{
	struct ibv_mw_bind_info info = {
		.mr = p->mr, .addr = (uintptr_t)page, .length = length,
		.mw_access_flags = REMOTE,
	};
	struct ibv_send_wr wr = {
		.wr_id = 1, .opcode = IBV_WR_BIND_MW,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_mw = { .mw = mw, .rkey = rkey, .bind_info = info },
	};
	struct ibv_qp_ex *qp;

	if (p->ex) {
		qp = MUST(ibv_qp_to_qp_ex(p->l.qp[0]));
		wr_begin(qp, 1);
		ibv_wr_bind_mw(qp, mw, rkey, &info);
		wr_end(qp);
	} else {
		post(p->l.qp[0], &wr);
	}
	return wc_get(p->l.cq[0]);
}

static enum ibv_wc_status poster_reach(struct poster *p, uint32_t rkey)
{
	struct mem mem = { .addr = local, .len = 8, .lkey = p->mine->lkey };

	memset(page, 0, PAGE);
	post_rdma(p->l.qp[1], IBV_WR_RDMA_WRITE, 2, mem, (uintptr_t)page, rkey);
	return wc_get(p->l.cq[1]).status;
}

static void poster_invalidate(struct poster *p, uint32_t rkey)
{
	struct ibv_send_wr wr = {
		.wr_id = 3, .opcode = IBV_WR_LOCAL_INV,
		.send_flags = IBV_SEND_SIGNALED, .invalidate_rkey = rkey,
	};

	post(p->l.qp[0], &wr);
	CHECK_WC(p->l.cq[0], 3, IBV_WC_SUCCESS);
}

static void check_key_bits(bool ex)
{
	struct poster p = poster_new(ex);
	const uint32_t upper[] = { 0, 0x5a5a5a00, 0xffffff00,
				   p.mr->rkey & ~0xff };
	struct ibv_mw *mw = MUST(ibv_alloc_mw(p.pd, IBV_MW_TYPE_2));
	uint32_t old, given, want = 0;
	int i;

	for (i = 0; i < 4; i++) {
		old = mw->rkey;
		given = upper[i] | ((old + 12) & 0xff);
		want = (old & ~0xff) | (given & 0xff);
		t_note("%s, 0x%08x to 0x%08x", ex ? "ibv_wr_bind_mw()" :
		       "ibv_post_send()", old, given);
		CHECK_EQ(poster_bind(&p, mw, given, 8).status, IBV_WC_SUCCESS);
		/* The application keeps track of the key of a type 2 window. */
		CHECK_EQ(mw->rkey, old);
		CHECK_EQ(poster_reach(&p, want), IBV_WC_SUCCESS);
		CHECK_ALL(page, 'x', 8);
		CHECK_ALL(page + 8, 0, PAGE - 8);
		mw->rkey = want;
		if (i < 3)
			poster_invalidate(&p, want);
	}
	/* Neither the key that was passed nor the old key opens a byte. */
	CHECK(given != want);
	CHECK_EQ(poster_reach(&p, given), IBV_WC_REM_ACCESS_ERR);
	CHECK_ALL(page, 0, PAGE);
}

TEST(key_bits, "DEV-4", "a bind of a type 2 window takes the lower 8 bits of the new rkey and ignores the upper 24, by both post functions")
{
	check_key_bits(false);
	check_key_bits(true);
}

static void check_no_bytes(bool ex)
{
	struct poster p = poster_new(ex);
	struct ibv_mw *mw = MUST(ibv_alloc_mw(p.pd, IBV_MW_TYPE_2));
	uint32_t rkey = ibv_inc_rkey(mw->rkey);
	struct ibv_wc wc = poster_bind(&p, mw, rkey, 0);

	CHECK_EQ(wc.status, IBV_WC_MW_BIND_ERR);
	CHECK_EQ(wc.vendor_err, KEELDV_WHY_LENGTH);
	link_free(&p.l);
	/* The refused bind left the window unbound, with its old key. */
	p.l = link_new_ex(p.pd, IBV_QP_EX_WITH_BIND_MW);
	CHECK_EQ(poster_bind(&p, mw, rkey, 8).status, IBV_WC_SUCCESS);
	CHECK_EQ(poster_reach(&p, rkey), IBV_WC_SUCCESS);
	/* A bind of no bytes does not unbind a bound window either. */
	mw->rkey = rkey;
	CHECK_EQ(poster_bind(&p, mw, ibv_inc_rkey(rkey), 0).status,
		 IBV_WC_MW_BIND_ERR);
	CHECK_RET(ibv_dereg_mr(p.mr), EBUSY);
}

TEST(no_bytes, "DEV-4", "a bind of no bytes of a type 2 window fails with a bind error about the length, and leaves the window unchanged")
{
	check_no_bytes(false);
	check_no_bytes(true);
}

TEST(busy, "PD-2", "deregistering or changing an MR with a bound window fails with EBUSY, and succeeds after the window is unbound")
{
	struct setup s = setup(RIGHTS);
	struct ibv_mw *mw = MUST(ibv_alloc_mw(s.pd, IBV_MW_TYPE_1));
	uint32_t rkey = s.mr->rkey;

	CHECK_EQ(bind(&s.p, 0, mw, s.mr, page, 8, REMOTE), IBV_WC_SUCCESS);
	CHECK_RET(ibv_dereg_mr(s.mr), EBUSY);
	CHECK(ibv_rereg_mr(s.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
			   RIGHTS | REMOTE));
	CHECK_EQ(errno, EBUSY);
	CHECK_EQ(s.mr->rkey, rkey);
	CHECK_EQ(reach(&s, IBV_WR_RDMA_READ, page, 8, mw->rkey),
		 IBV_WC_SUCCESS);
	/* A bind of no bytes unbinds a window of type 1. */
	CHECK_EQ(bind(&s.p, 0, mw, s.mr, page, 0, 0), IBV_WC_SUCCESS);
	CHECK_OK(ibv_rereg_mr(s.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
			      RIGHTS | REMOTE));
	CHECK_EQ(reach(&s, IBV_WR_RDMA_READ, page, 8, s.mr->rkey),
		 IBV_WC_SUCCESS);
	CHECK_OK(ibv_dereg_mr(s.mr));
}

/* The other process sends these values of its MR. */
struct lent {
	struct ibv_shpd shpd;
	uint64_t addr;
	uint32_t lkey;
};

static void lender(struct peer *parent)
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	struct ibv_mr *mr = MUST(ibv_reg_mr(pd, page, PAGE, RIGHTS));
	struct lent lent = { .addr = (uintptr_t)page, .lkey = mr->lkey };

	MUST(ibv_alloc_shpd(pd, KEY, &lent.shpd));
	peer_put_var(parent, lent);
	peer_wait(parent);
	CHECK_ALL(page + 10, 'x', 20);
	peer_tell(parent);
	pause();
}

TEST(lent, "SPD-3,SPD-7", "a window on another process's MR becomes unbound when that process dies, and does not keep the MR alive")
{
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_mr *mine, theirs = {};
	struct ibv_mw *mw;
	struct setup s = {};
	struct lent lent;
	struct peer peer;

	peer_start(&peer, lender);
	peer_get_var(&peer, lent);
	ctx = dev_open(KEEL0);
	pd = MUST(ibv_share_pd(ctx, &lent.shpd, KEY));
	mine = MUST(ibv_reg_mr(pd, local, sizeof(local),
			       IBV_ACCESS_LOCAL_WRITE));
	memset(local, 'x', sizeof(local));
	mw = MUST(ibv_alloc_mw(pd, IBV_MW_TYPE_1));
	s = (struct setup){ .pd = pd, .mine = mine, .p = pair_new(pd) };
	theirs.lkey = lent.lkey;
	theirs.pd = pd;
	theirs.context = ctx;
	theirs.addr = (void *)lent.addr;
	theirs.length = PAGE;
	CHECK_EQ(bind(&s.p, 0, mw, &theirs, (void *)lent.addr, PAGE, REMOTE),
		 IBV_WC_SUCCESS);
	CHECK_EQ(reach(&s, IBV_WR_RDMA_WRITE, (void *)(lent.addr + 10), 20,
		       mw->rkey), IBV_WC_SUCCESS);
	peer_tell(&peer);
	peer_wait(&peer);
	peer_kill(&peer, SIGKILL);
	CHECK_EQ(tree_count(KEEL0, "mr"), 1);
	CHECK_EQ(reach(&s, IBV_WR_RDMA_WRITE, (void *)lent.addr, 8, mw->rkey),
		 IBV_WC_REM_ACCESS_ERR);
	again(&s);
	/* The window can be bound again. */
	s.mr = MUST(ibv_reg_mr(pd, page, PAGE, RIGHTS));
	CHECK_EQ(bind(&s.p, 0, mw, s.mr, page, 8, REMOTE), IBV_WC_SUCCESS);
	CHECK_EQ(reach(&s, IBV_WR_RDMA_READ, page, 8, mw->rkey),
		 IBV_WC_SUCCESS);
}

/* Hold an MR with a bound window until the parent asks to destroy both. */
TEST(others_bind, "SPD-7,ISO-1", "another process of a shared PD that binds a window of the MR's owner to that MR keeps neither ibv_rereg_mr() nor ibv_dereg_mr() from success")
{
	struct setup s = setup(RIGHTS), other = {};
	struct ibv_mw *mw = MUST(ibv_alloc_mw(s.pd, IBV_MW_TYPE_1)), window = *mw;
	struct ibv_mr region = *s.mr;
	struct ibv_shpd shpd;

	MUST(ibv_alloc_shpd(s.pd, KEY, &shpd));
	other.pd = MUST(ibv_share_pd(dev_open(KEEL0), &shpd, KEY));
	other.p = pair_new(other.pd);
	/* They know its keys. */
	window.pd = region.pd = other.pd;
	window.context = region.context = other.pd->context;
	CHECK_EQ(bind(&other.p, 0, &window, &region, page, 8, REMOTE),
		 IBV_WC_SUCCESS);
	CHECK_OK(ibv_rereg_mr(s.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
			      RIGHTS | REMOTE));
	CHECK_EQ(bind(&other.p, 0, &window, &region, page, 8, REMOTE),
		 IBV_WC_SUCCESS);
	CHECK_OK(ibv_dereg_mr(s.mr));
}

static void busy_owner(struct peer *parent)
{
	struct setup s;
	struct ibv_mw *mw;

	prctl(PR_SET_NAME, "the owner");
	s = setup(RIGHTS);
	mw = MUST(ibv_alloc_mw(s.pd, IBV_MW_TYPE_1));
	CHECK_EQ(bind(&s.p, 0, mw, s.mr, page, 8, REMOTE), IBV_WC_SUCCESS);
	CHECK_OK(ibv_dereg_mr(s.mine));
	peer_put_fd(parent, s.pd->context->cmd_fd);
	peer_put_var(parent, s.pd->handle);
	peer_put_var(parent, s.mr->handle);
	peer_wait(parent);
	CHECK_OK(ibv_dealloc_mw(mw));
	CHECK_OK(ibv_dereg_mr(s.mr));
	peer_tell(parent);
	peer_wait(parent);
}

/* Return the MRs that the rdma tool lists, without their numbers. */
static char *listed_mrs(void)
{
	return t_shell("rdma resource show mr | sed 's/ mrn [0-9]*//'");
}

TEST(listed, "PD-2,PD-3", "rdma resource lists an MR and its owner after a refused ibv_dereg_mr(), and no longer after a successful call")
{
	uint32_t pd_handle, mr_handle;
	char *before, *text, who[40];
	struct ibv_pd *pd;
	struct peer peer;
	int fd, i;

	peer_start(&peer, busy_owner);
	fd = peer_get_fd(&peer);
	peer_get_var(&peer, pd_handle);
	peer_get_var(&peer, mr_handle);
	pd = MUST(ibv_import_pd(MUST(ibv_import_device(fd)), pd_handle));
	before = listed_mrs();
	snprintf(who, sizeof(who), "pid %d comm the owner", peer.pid);
	CHECK(strstr(before, who));
	for (i = 0; i < 3; i++) {
		CHECK_RET(ibv_dereg_mr(MUST(ibv_import_mr(pd, mr_handle))),
			  EBUSY);
		text = listed_mrs();
		CHECK_STR(text, before);
		free(text);
	}
	CHECK_EQ(res_count(KEEL0, "mr"), 1);
	peer_tell(&peer);
	peer_wait(&peer);
	CHECK_EQ(res_count(KEEL0, "mr"), 0);
	peer_tell(&peer);
	peer_end(&peer);
}
