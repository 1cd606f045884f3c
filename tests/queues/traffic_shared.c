// SPDX-License-Identifier: GPL-2.0
/*
 * Keys of one process in QPs of another: instances of a shared domain, the
 * death of their process, and imported objects.
 */
#include <signal.h>

#include <infiniband/shpd.h>

#include "peer.h"
#include "qp.h"
#include "t.h"

#define PAGE	4096
#define KEY	0x0123456789abcdefULL
#define RIGHTS	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |	\
		 IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

/* These arrays are different memory in each process after fork(). */
static char page[PAGE] __attribute__((aligned(PAGE)));
static char buf[PAGE] __attribute__((aligned(PAGE)));

/* The owner of an MR sends these values. */
struct told {
	struct ibv_shpd shpd;
	uint32_t pd, mr;
	uint32_t lkey, rkey, qpn;
	uint64_t addr;
};

static struct told tell_of(struct ibv_mr *mr)
{
	return (struct told){
		.lkey = mr->lkey, .rkey = mr->rkey, .mr = mr->handle,
		.pd = mr->pd->handle, .addr = (uintptr_t)mr->addr,
	};
}

/* Two QPs of this process, connected to each other. */
struct loop {
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp[2];
};

static void loop_connect(struct loop *l)
{
	int i;

	for (i = 0; i < 2; i++) {
		if (l->qp[i])
			CHECK_OK(ibv_destroy_qp(l->qp[i]));
		l->qp[i] = qp_new(l->pd, l->cq, IBV_QPT_RC, NULL);
	}
	qp_join(l->qp[0], l->qp[1]);
}

static struct loop loop_new(struct ibv_pd *pd)
{
	struct loop l = {
		.pd = pd, .cq = cq_new(pd->context),
		.mr = MUST(ibv_reg_mr(pd, buf, PAGE, RIGHTS)),
	};

	loop_connect(&l);
	return l;
}

/* Send from @src to this process's buffer. */
static void send_from(struct loop *l, struct mem src, enum ibv_wc_status want)
{
	memset(buf, 0, PAGE);
	post_recv(l->qp[1], 1, MEM(l->mr));
	post_send(l->qp[0], 2, src);
	if (want == IBV_WC_SUCCESS)
		CHECK_WC(l->cq, 1, IBV_WC_SUCCESS);
	CHECK_WC(l->cq, 2, want);
}

static void sharer(struct peer *parent)
{
	struct ibv_pd *pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	struct ibv_mr *mr = MUST(ibv_reg_mr(pd, page, PAGE, RIGHTS));
	struct told told = tell_of(mr);

	memset(page, 'p', PAGE);
	MUST(ibv_alloc_shpd(pd, KEY, &told.shpd));
	peer_put_var(parent, told);
	peer_wait(parent);
	/* The other process wrote these bytes by this process's key. */
	CHECK_ALL(page, 'w', 100);
	CHECK_ALL(page + 100, 'p', PAGE - 100);
	CHECK_OK(ibv_dereg_mr(mr));
	peer_tell(parent);
	pause();
}

TEST(shared_keys, "SPD-3", "until dereg, keys of one instance work in QPs of another process's instance, as rkeys and as lkeys")
{
	struct ibv_context *ctx;
	struct told told;
	struct peer peer;
	struct mem mem;
	struct loop l;

	peer_start(&peer, sharer);
	peer_get_var(&peer, told);
	ctx = dev_open(KEEL0);
	l = loop_new(MUST(ibv_share_pd(ctx, &told.shpd, KEY)));
	mem = (struct mem){ (void *)told.addr, PAGE, told.lkey };
	CHECK_ALL(page, 0, PAGE);
	send_from(&l, mem, IBV_WC_SUCCESS);
	CHECK_ALL(buf, 'p', PAGE);
	memset(buf, 'w', PAGE);
	post_rdma(l.qp[0], IBV_WR_RDMA_WRITE, 3,
		  (struct mem){ buf, 100, l.mr->lkey }, told.addr, told.rkey);
	CHECK_WC(l.cq, 3, IBV_WC_SUCCESS);
	post_rdma(l.qp[0], IBV_WR_RDMA_READ, 4, MEM(l.mr), told.addr,
		  told.rkey);
	CHECK_WC(l.cq, 4, IBV_WC_SUCCESS);
	CHECK_ALL(buf, 'w', 100);
	CHECK_ALL(buf + 100, 'p', PAGE - 100);
	peer_tell(&peer);
	peer_wait(&peer);
	send_from(&l, mem, IBV_WC_LOC_PROT_ERR);
	CHECK_ALL(page, 0, PAGE);
	peer_kill(&peer, SIGKILL);
}

/* Share a domain, connect a QP of the domain, and wait to be killed. */
static void victim(struct peer *parent)
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	struct ibv_mr *mr = MUST(ibv_reg_mr(pd, page, PAGE, RIGHTS));
	struct ibv_qp *qp = qp_new(pd, cq_new(ctx), IBV_QPT_RC, NULL);
	struct told told = tell_of(mr);
	uint32_t qpn;

	memset(page, 'p', PAGE);
	MUST(ibv_alloc_shpd(pd, KEY, &told.shpd));
	told.qpn = qp->qp_num;
	peer_put_var(parent, told);
	peer_get_var(parent, qpn);
	qp_connect(qp, qpn);
	peer_tell(parent);
	pause();
}

TEST(dead_keys, "SPD-7", "keys of a killed process are refused although its domain lives on, and its peer's QP runs out of retries")
{
	struct ibv_context *ctx;
	struct told told;
	struct peer peer;
	struct ibv_qp *qp;
	struct mem theirs;
	struct loop l;

	peer_start(&peer, victim);
	peer_get_var(&peer, told);
	ctx = dev_open(KEEL0);
	l = loop_new(MUST(ibv_share_pd(ctx, &told.shpd, KEY)));
	theirs = (struct mem){ (void *)told.addr, PAGE, told.lkey };
	qp = qp_new(l.pd, l.cq, IBV_QPT_RC, NULL);
	peer_put_var(&peer, qp->qp_num);
	peer_wait(&peer);
	qp_connect(qp, told.qpn);
	post_rdma(qp, IBV_WR_RDMA_READ, 5, MEM(l.mr), told.addr, told.rkey);
	CHECK_WC(l.cq, 5, IBV_WC_SUCCESS);
	CHECK_ALL(buf, 'p', PAGE);
	send_from(&l, theirs, IBV_WC_SUCCESS);
	peer_kill(&peer, SIGKILL);

	memset(buf, 0, PAGE);
	post_rdma(l.qp[0], IBV_WR_RDMA_READ, 6, MEM(l.mr), told.addr,
		  told.rkey);
	CHECK_WC(l.cq, 6, IBV_WC_REM_ACCESS_ERR);
	CHECK_EVENT(ctx, IBV_EVENT_QP_ACCESS_ERR, l.qp[1]);
	CHECK_ALL(buf, 0, PAGE);
	loop_connect(&l);
	send_from(&l, theirs, IBV_WC_LOC_PROT_ERR);
	CHECK_ALL(buf, 0, PAGE);
	post_rdma(qp, IBV_WR_RDMA_READ, 7, MEM(l.mr), told.addr, told.rkey);
	CHECK_WC(l.cq, 7, IBV_WC_RETRY_EXC_ERR);
	CHECK_STATE(qp, IBV_QPS_ERR);
	/* The domain still works. */
	loop_connect(&l);
	send_from(&l, MEM(l.mr), IBV_WC_SUCCESS);
}

static void exporter(struct peer *parent)
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	struct ibv_mr *mr = MUST(ibv_reg_mr(pd, page, PAGE, RIGHTS));
	struct told told = tell_of(mr);

	memset(page, 'p', PAGE);
	peer_put_fd(parent, ctx->cmd_fd);
	peer_put_var(parent, told);
	peer_wait(parent);
	CHECK_ALL(page, 'w', PAGE);
	peer_wait(parent);
}

TEST(imported, "SPD-9", "keys of an imported MR work in QPs that the importing process created with the imported PD")
{
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct told told;
	struct peer peer;
	struct loop l;

	peer_start(&peer, exporter);
	ctx = MUST(ibv_import_device(peer_get_fd(&peer)));
	peer_get_var(&peer, told);
	pd = MUST(ibv_import_pd(ctx, told.pd));
	mr = MUST(ibv_import_mr(pd, told.mr));
	CHECK_EQ(mr->lkey, told.lkey);
	CHECK_EQ(mr->rkey, told.rkey);
	l = loop_new(pd);
	send_from(&l, (struct mem){ (void *)told.addr, PAGE, mr->lkey },
		  IBV_WC_SUCCESS);
	CHECK_ALL(buf, 'p', PAGE);
	memset(buf, 'w', PAGE);
	post_rdma(l.qp[0], IBV_WR_RDMA_WRITE, 3, MEM(l.mr), told.addr,
		  mr->rkey);
	CHECK_WC(l.cq, 3, IBV_WC_SUCCESS);
	peer_tell(&peer);
	CHECK_OK(ibv_destroy_qp(l.qp[0]));
	CHECK_OK(ibv_destroy_qp(l.qp[1]));
	CHECK_OK(ibv_dereg_mr(l.mr));
	ibv_unimport_mr(mr);
	ibv_unimport_pd(pd);
	peer_tell(&peer);
	peer_end(&peer);
}
