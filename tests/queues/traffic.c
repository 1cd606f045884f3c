// SPDX-License-Identifier: GPL-2.0
/*
 * Keys that QPs accept: those of their domain, its parent domains and its
 * instances in other processes, and no others.
 */
#include "qp.h"
#include "t.h"

#define PAGE	4096
#define RIGHTS	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |	\
		 IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

static char from[PAGE] __attribute__((aligned(PAGE)));
static char to[PAGE] __attribute__((aligned(PAGE)));

static struct ibv_pd *parent_of(struct ibv_pd *pd)
{
	struct ibv_parent_domain_init_attr attr = { .pd = pd };

	return MUST(ibv_alloc_parent_domain(pd->context, &attr));
}

static struct ibv_mr *reg(struct ibv_pd *pd, void *page)
{
	return MUST(ibv_reg_mr(pd, page, PAGE, RIGHTS));
}

static void fill(void)
{
	memset(from, 'f', PAGE);
	memset(to, 't', PAGE);
}

/* The first QP writes 64 bytes from one key to the other. */
static void write_with(struct link *l, uint32_t lkey, uint32_t rkey,
		       enum ibv_wc_status want)
{
	fill();
	post_rdma(l->qp[0], IBV_WR_RDMA_WRITE, 1,
		  (struct mem){ from, 64, lkey }, (uintptr_t)to, rkey);
	CHECK_WC(l->cq[0], 1, want);
	CHECK_ALL(to, want ? 't' : 'f', 64);
	CHECK_ALL(to + 64, 't', PAGE - 64);
}

TEST(local, "PD-4", "an lkey of another domain ends a send, a write and a read with a local protection error, and the peer sees nothing")
{
	static const enum ibv_wr_opcode ops[] = {
		IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
		IBV_WR_ATOMIC_FETCH_AND_ADD,
	};
	struct ibv_pd *pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	struct ibv_pd *other = MUST(ibv_alloc_pd(pd->context));
	struct ibv_mr *mine = reg(pd, to), *alien = reg(other, from);
	struct ibv_send_wr *wr;
	struct link l;
	int i;

	for (i = 0; i < 4; i++) {
		l = link_new(pd, pd, IBV_QPT_RC);
		fill();
		post_recv(l.qp[1], 7, MEM(mine));
		wr = send_wr(ops[i], i, (struct mem){ from, 8, alien->lkey });
		if (ops[i] == IBV_WR_ATOMIC_FETCH_AND_ADD) {
			wr->wr.atomic.remote_addr = (uintptr_t)to;
			wr->wr.atomic.rkey = mine->rkey;
			wr->wr.atomic.compare_add = 1;
		} else {
			wr->wr.rdma.remote_addr = (uintptr_t)to;
			wr->wr.rdma.rkey = mine->rkey;
		}
		post(l.qp[0], wr);
		CHECK_WC(l.cq[0], i, IBV_WC_LOC_PROT_ERR);
		CHECK_ALL(from, 'f', PAGE);
		CHECK_ALL(to, 't', PAGE);
		CHECK_STATE(l.qp[0], IBV_QPS_ERR);
		CHECK_STATE(l.qp[1], IBV_QPS_RTS);
		CHECK_NO_WC(l.cq[1]);
		CHECK_NO_EVENT(l.ctx);
		link_free(&l);
	}
}

TEST(receive, "PD-4", "a receive WQE with an lkey of another domain is a local protection error, and a remote operation error for the sender")
{
	struct ibv_pd *pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	struct ibv_pd *other = MUST(ibv_alloc_pd(pd->context));
	struct ibv_mr *mine = reg(pd, from), *alien = reg(other, to);
	struct link l = link_new(pd, pd, IBV_QPT_RC);

	fill();
	post_recv(l.qp[1], 5, MEM(alien));
	post_send(l.qp[0], 6, MEM(mine));
	CHECK_WC(l.cq[1], 5, IBV_WC_LOC_PROT_ERR);
	CHECK_WC(l.cq[0], 6, IBV_WC_REM_OP_ERR);
	CHECK_ALL(to, 't', PAGE);
	CHECK_STATE(l.qp[0], IBV_QPS_ERR);
	CHECK_STATE(l.qp[1], IBV_QPS_ERR);
}

TEST(remote, "PD-4", "an rkey of another domain than the responder's is a remote access error, and the responder fails with an event")
{
	static const enum ibv_wr_opcode ops[] = {
		IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
		IBV_WR_ATOMIC_FETCH_AND_ADD,
	};
	struct ibv_pd *a = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	struct ibv_pd *b = MUST(ibv_alloc_pd(a->context));
	struct ibv_pd *third = MUST(ibv_alloc_pd(a->context));
	struct ibv_mr *mine = reg(a, from);
	struct ibv_mr *wrong[] = { reg(a, to), reg(third, to) };
	struct link l = link_new(a, b, IBV_QPT_RC);
	struct mem mem = { from, 8, mine->lkey };
	int i, j;

	/*
	 * QPs of two domains can exchange data, each with keys of its own
	 * domain.
	 */
	write_with(&l, mine->lkey, reg(b, to)->rkey, IBV_WC_SUCCESS);
	for (i = 0; i < 3; i++)
		for (j = 0; j < 2; j++) {
			fill();
			if (ops[i] == IBV_WR_ATOMIC_FETCH_AND_ADD)
				post_add(l.qp[0], i, mem, (uintptr_t)to,
					 wrong[j]->rkey, 1);
			else
				post_rdma(l.qp[0], ops[i], i, mem,
					  (uintptr_t)to, wrong[j]->rkey);
			CHECK_WC(l.cq[0], i, IBV_WC_REM_ACCESS_ERR);
			CHECK_EVENT(l.ctx, IBV_EVENT_QP_ACCESS_ERR, l.qp[1]);
			CHECK_NO_EVENT(l.ctx);
			CHECK_ALL(from, 'f', PAGE);
			CHECK_ALL(to, 't', PAGE);
			CHECK_STATE(l.qp[0], IBV_QPS_ERR);
			CHECK_STATE(l.qp[1], IBV_QPS_ERR);
			link_free(&l);
			l = link_new(a, b, IBV_QPT_RC);
		}
}

TEST(parent_keys, "PDM-3", "keys made through a PD or its parent domains work in QPs of any of them, as lkeys and as rkeys")
{
	struct ibv_pd *pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	struct ibv_pd *any[] = { pd, parent_of(pd), parent_of(pd) };
	struct ibv_mr *local[3], *remote[3];
	struct link l;
	int i, j;

	for (i = 0; i < 3; i++) {
		local[i] = reg(any[i], from);
		remote[i] = reg(any[i], to);
	}
	for (i = 0; i < 3; i++)
		for (j = 0; j < 9; j++) {
			l = link_new(any[i], any[j % 3], IBV_QPT_RC);
			write_with(&l, local[j / 3]->lkey,
				   remote[(i + j) % 3]->rkey, IBV_WC_SUCCESS);
			link_free(&l);
		}
	/*
	 * Parent domains share the domain of their PD, not that of another PD.
	 */
	l = link_new(parent_of(MUST(ibv_alloc_pd(pd->context))), any[1],
		     IBV_QPT_RC);
	write_with(&l, local[1]->lkey, remote[1]->rkey, IBV_WC_LOC_PROT_ERR);
}

TEST(parent_rereg, "PDM-3,PD-4", "an MR re-registered into a parent domain works in that domain and no longer in its old domain")
{
	struct ibv_pd *old = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	struct ibv_pd *pd = MUST(ibv_alloc_pd(old->context));
	struct ibv_pd *parent = parent_of(pd);
	struct ibv_mr *mr = reg(old, from), *dst = reg(pd, to);
	struct link l = link_new(pd, parent, IBV_QPT_RC);

	write_with(&l, mr->lkey, dst->rkey, IBV_WC_LOC_PROT_ERR);
	link_free(&l);
	CHECK_OK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, parent, NULL, 0, 0));
	CHECK_OK(ibv_rereg_mr(dst, IBV_REREG_MR_CHANGE_PD, parent, NULL, 0, 0));
	CHECK(mr->pd == parent);
	l = link_new(pd, parent, IBV_QPT_RC);
	write_with(&l, mr->lkey, dst->rkey, IBV_WC_SUCCESS);
	link_free(&l);
	l = link_new(old, pd, IBV_QPT_RC);
	write_with(&l, mr->lkey, dst->rkey, IBV_WC_LOC_PROT_ERR);
	link_free(&l);
	CHECK_OK(ibv_dealloc_pd(old));
	CHECK_RET(ibv_dealloc_pd(parent), EBUSY);
	CHECK_OK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, pd, NULL, 0, 0));
	CHECK_OK(ibv_dereg_mr(dst));
	CHECK_OK(ibv_dealloc_pd(parent));
}

/* Create extended QPs, SRQs and CQs with @pd; the keys belong to @base. */
static void check_ex(struct ibv_pd *pd, struct ibv_pd *cq_pd,
		     struct ibv_pd *base)
{
	struct ibv_context *ctx = pd->context;
	struct ibv_cq_init_attr_ex cq_attr = {
		.cqe = QP_WRS, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD,
		.parent_domain = cq_pd,
	};
	struct ibv_cq_ex *cq = MUST(ibv_create_cq_ex(ctx, &cq_attr));
	struct ibv_srq_init_attr_ex srq_attr = {
		.attr = { .max_wr = 4, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE,
		.srq_type = IBV_SRQT_BASIC, .pd = pd,
	};
	struct ibv_srq *srq = MUST(ibv_create_srq_ex(ctx, &srq_attr));
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = ibv_cq_ex_to_cq(cq), .recv_cq = ibv_cq_ex_to_cq(cq),
		.cap = { .max_send_wr = 4, .max_send_sge = 1 },
		.srq = srq, .qp_type = IBV_QPT_RC, .pd = pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD |
			     IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
	};
	struct ibv_qp *a = MUST(ibv_create_qp_ex(ctx, &attr));
	struct ibv_qp *b = MUST(ibv_create_qp_ex(ctx, &attr));
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(a);
	struct ibv_mr *src = reg(base, from), *dst = reg(base, to);

	qp_join(a, b);
	fill();
	post_srq_recv(srq, 3, MEM(dst));
	ibv_wr_start(ex);
	ex->wr_id = 4;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(ex);
	ibv_wr_set_sge(ex, src->lkey, (uintptr_t)from, PAGE);
	CHECK_OK(ibv_wr_complete(ex));
	CHECK_WC(ibv_cq_ex_to_cq(cq), 3, IBV_WC_SUCCESS);
	CHECK_WC(ibv_cq_ex_to_cq(cq), 4, IBV_WC_SUCCESS);
	CHECK_ALL(to, 'f', PAGE);
	CHECK_RET(ibv_dealloc_pd(pd), EBUSY);
	CHECK_OK(ibv_destroy_qp(a));
	CHECK_OK(ibv_destroy_qp(b));
	CHECK_OK(ibv_destroy_srq(srq));
	CHECK_RET(ibv_dealloc_pd(cq_pd), EBUSY);
	CHECK_OK(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
	CHECK_OK(ibv_dereg_mr(src));
	CHECK_OK(ibv_dereg_mr(dst));
}

TEST(parent_ex, "PDM-3,PDM-9,PD-2", "extended QPs, SRQs and CQs of a parent domain take keys of the PD and its siblings, and keep the parent domain busy")
{
	struct ibv_pd *pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	struct ibv_pd *parent = parent_of(pd), *sibling = parent_of(pd);

	check_ex(parent, parent, pd);
	check_ex(parent, sibling, sibling);
	check_ex(pd, parent, parent);
	CHECK_OK(ibv_dealloc_pd(parent));
	CHECK_OK(ibv_dealloc_pd(sibling));
	CHECK_OK(ibv_dealloc_pd(pd));
}

TEST(parent_ah, "PDM-3,PD-4", "AHs of a PD and its parent domain serve datagrams of either, and an AH of another domain does not")
{
	struct ibv_pd *pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	struct ibv_pd *pds[] = { pd, parent_of(pd),
				 MUST(ibv_alloc_pd(pd->context)) };
	struct ibv_cq *cq = cq_new(pd->context), *rcq = cq_new(pd->context);
	struct ibv_qp *dst = qp_new(pd, rcq, IBV_QPT_UD, NULL), *src;
	struct ibv_mr *in = reg(pd, to), *out = reg(pds[1], from);
	struct ibv_send_wr *wr;
	int i, j;

	qp_connect(dst, 0);
	for (i = 0; i < 2; i++)
		for (j = 0; j < 3; j++) {
			src = qp_new(pds[i], cq, IBV_QPT_UD, NULL);
			qp_connect(src, 0);
			fill();
			post_recv(dst, 1, MEM(in));
			wr = send_wr(IBV_WR_SEND, 2,
				     (struct mem){ from, 100, out->lkey });
			wr_to(wr, ah_self(pds[j]), dst);
			post(src, wr);
			CHECK_WC(cq, 2, j < 2 ? IBV_WC_SUCCESS :
						IBV_WC_LOC_QP_OP_ERR);
			if (j < 2)
				CHECK_EQ(CHECK_WC(rcq, 1, IBV_WC_SUCCESS)
					 .byte_len, 140);
			CHECK_ALL(to + 40, j < 2 ? 'f' : 't', 100);
			CHECK_OK(ibv_destroy_ah(wr->wr.ud.ah));
			CHECK_OK(ibv_destroy_qp(src));
		}
}
