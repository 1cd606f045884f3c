// SPDX-License-Identifier: GPL-2.0
/*
 * XRC between processes: messages to SRQ numbers, and what keeps a domain busy.
 */
#include <fcntl.h>
#include <signal.h>

#include "peer.h"
#include "qp.h"
#include "t.h"
#include "tree.h"

#define PAGE	4096
#define FILE_A	"/tmp/xrc-a"
#define FILE_B	"/tmp/xrc-b"
#define RIGHTS	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)

static char page[PAGE] __attribute__((aligned(PAGE)));

void t_after(void)
{
	unlink(FILE_A);
	unlink(FILE_B);
}

static struct ibv_xrcd *open_xrcd(struct ibv_context *ctx, const char *path)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.oflags = O_CREAT,
	};
	struct ibv_xrcd *xrcd;

	attr.fd = SYS(open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
	xrcd = MUST(ibv_open_xrcd(ctx, &attr));
	close(attr.fd);
	return xrcd;
}

/* One process's objects in a domain. */
struct side {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_xrcd *xrcd;
	struct ibv_srq *srq;
	struct ibv_mr *mr;
	uint32_t srqn;
};

static struct ibv_srq *xsrq_new(struct side *s)
{
	struct ibv_srq_init_attr_ex attr = {
		.attr = { .max_wr = 16, .max_sge = 1 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
			     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC, .pd = s->pd, .xrcd = s->xrcd,
		.cq = s->cq,
	};

	return MUST(ibv_create_srq_ex(s->ctx, &attr));
}

static struct side side_new(const char *path)
{
	struct side s = { .ctx = dev_open(KEEL0) };

	s.pd = MUST(ibv_alloc_pd(s.ctx));
	s.cq = cq_new(s.ctx);
	s.xrcd = open_xrcd(s.ctx, path);
	s.srq = xsrq_new(&s);
	s.mr = MUST(ibv_reg_mr(s.pd, page, PAGE, RIGHTS));
	CHECK_OK(ibv_get_srq_num(s.srq, &s.srqn));
	return s;
}

/* Post 100 bytes to an SRQ. */
static void post_to(struct side *s, struct ibv_qp *qp, uint32_t srqn, char byte)
{
	struct ibv_send_wr *wr;

	memset(page, byte, 100);
	wr = send_wr(IBV_WR_SEND_WITH_IMM, 1,
		     (struct mem){ page, 100, s->mr->lkey });
	wr->imm_data = htobe32(srqn);
	wr->qp_type.xrc.remote_srqn = srqn;
	post(qp, wr);
}

/* Send them, and return the status. */
static enum ibv_wc_status send_to(struct side *s, struct ibv_qp *qp,
				  uint32_t srqn, char byte)
{
	struct ibv_wc wc;

	post_to(s, qp, srqn, byte);
	wc = wc_get(s->cq);
	CHECK_EQ(wc.wr_id, 1);
	return wc.status;
}

/* A process sends the numbers of its SRQ and, if it has one, its QP. */
struct told {
	uint32_t srqn, qpn, rkey;
	uint64_t addr;
};

static void wait_message(struct side *s, uint32_t qpn, char byte)
{
	struct ibv_wc wc = CHECK_WC(s->cq, 42, IBV_WC_SUCCESS);

	CHECK_EQ(wc.opcode, IBV_WC_RECV);
	CHECK_EQ(wc.byte_len, 100);
	CHECK_EQ(wc.qp_num, qpn);
	CHECK_EQ(wc.wc_flags, IBV_WC_WITH_IMM);
	CHECK_EQ(be32toh(wc.imm_data), s->srqn);
	CHECK_ALL(page, byte, 100);
	CHECK_ALL(page + 100, 0, PAGE - 100);
}

/*
 * Create the receiving QP and an SRQ. The requester's QP number comes through
 * the socket.
 */
static void owner(struct peer *parent)
{
	struct side s = side_new(FILE_A);
	struct ibv_qp *qp = qp_new_xrc_recv(s.xrcd);
	struct told told = { s.srqn, qp->qp_num, s.mr->rkey, (uintptr_t)page };
	uint32_t qpn;

	peer_put_var(parent, told);
	peer_get_var(parent, qpn);
	qp_to_init(qp);
	qp_to_rtr(qp, qpn);
	qp_to_rts(qp, 7);
	post_srq_recv(s.srq, 42, MEM(s.mr));
	peer_tell(parent);
	wait_message(&s, qp->qp_num, 'a');
	peer_tell(parent);
	peer_wait(parent);
	/* Later messages went to other SRQs. */
	CHECK_NO_WC(s.cq);
	CHECK_ALL(page, 'a', 100);
	post_srq_recv(s.srq, 42, MEM(s.mr));
	peer_tell(parent);
	pause();
}

/* Another process of the same domain, with an SRQ only: it opens the QP. */
static void member(struct peer *parent)
{
	struct side s = side_new(FILE_A);
	struct told told = { .srqn = s.srqn };
	struct ibv_qp_open_attr attr = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
			     IBV_QP_OPEN_ATTR_TYPE,
		.xrcd = s.xrcd, .qp_type = IBV_QPT_XRC_RECV,
	};
	struct ibv_qp *qp;

	post_srq_recv(s.srq, 42, MEM(s.mr));
	peer_put_var(parent, told);
	peer_get_var(parent, attr.qp_num);
	qp = MUST(ibv_open_qp(s.ctx, &attr));
	CHECK_EQ(qp->qp_num, attr.qp_num);
	CHECK_STATE(qp, IBV_QPS_RTS);
	peer_tell(parent);
	wait_message(&s, qp->qp_num, 'b');
	peer_tell(parent);
	/* The test kills the QP's creator; this process keeps the QP. */
	peer_wait(parent);
	memset(page, 0, PAGE);
	post_srq_recv(s.srq, 42, MEM(s.mr));
	CHECK_STATE(qp, IBV_QPS_RTS);
	peer_tell(parent);
	wait_message(&s, qp->qp_num, 'd');
	peer_tell(parent);
	/*
	 * The requester named an SRQ of another domain, so the QP failed. A
	 * process that opened the QP gets no event of it, because
	 * ib_uverbs_open_qp() sets no event file.
	 */
	peer_wait(parent);
	CHECK_STATE(qp, IBV_QPS_ERR);
	CHECK_NO_WC(s.cq);
	CHECK_OK(ibv_destroy_qp(qp));
}

/* A process of another domain. */
static void stranger(struct peer *parent)
{
	struct side s = side_new(FILE_B);
	struct told told = { .srqn = s.srqn };

	post_srq_recv(s.srq, 42, MEM(s.mr));
	peer_put_var(parent, told);
	peer_wait(parent);
	CHECK_NO_WC(s.cq);
	CHECK_ALL(page, 0, PAGE);
}

TEST(processes, "XRC-9", "a message reaches the SRQ that it names, of any process of the domain, by a QP that another process opened")
{
	struct peer own, mem, alien;
	struct told o, m, a;
	struct ibv_qp *qp;
	struct side s;

	peer_start(&own, owner);
	peer_start(&mem, member);
	peer_start(&alien, stranger);
	peer_get_var(&own, o);
	peer_get_var(&mem, m);
	peer_get_var(&alien, a);
	CHECK(o.srqn != m.srqn && m.srqn != a.srqn && a.srqn != o.srqn);
	s = side_new(FILE_A);
	qp = qp_new(s.pd, s.cq, IBV_QPT_XRC_SEND, NULL);
	peer_put_var(&own, qp->qp_num);
	qp_connect(qp, o.qpn);
	peer_wait(&own);
	peer_put_var(&mem, o.qpn);
	peer_wait(&mem);

	CHECK_EQ(send_to(&s, qp, o.srqn, 'a'), IBV_WC_SUCCESS);
	peer_wait(&own);
	CHECK_EQ(send_to(&s, qp, m.srqn, 'b'), IBV_WC_SUCCESS);
	peer_wait(&mem);
	/* The requester's own SRQ belongs to the domain, too. */
	memset(page, 0, PAGE);
	post_srq_recv(s.srq, 7, (struct mem){ page + 200, 100, s.mr->lkey });
	memset(page, 'c', 100);
	post(qp, ({
		struct ibv_send_wr *wr = send_wr(IBV_WR_SEND, 8,
			(struct mem){ page, 100, s.mr->lkey });

		wr->qp_type.xrc.remote_srqn = s.srqn;
		wr;
	}));
	CHECK_WC(s.cq, 7, IBV_WC_SUCCESS);
	CHECK_WC(s.cq, 8, IBV_WC_SUCCESS);
	CHECK_ALL(page + 200, 'c', 100);
	peer_tell(&own);
	peer_wait(&own);
	peer_kill(&own, SIGKILL);
	peer_tell(&mem);
	peer_wait(&mem);
	CHECK_EQ(send_to(&s, qp, m.srqn, 'd'), IBV_WC_SUCCESS);
	peer_wait(&mem);
	CHECK_EQ(send_to(&s, qp, a.srqn, 'x'), IBV_WC_REM_INV_REQ_ERR);
	CHECK_STATE(qp, IBV_QPS_ERR);
	peer_tell(&mem);
	peer_tell(&alien);
	peer_end(&alien);
	peer_end(&mem);
}

/* Both sides in one process and one domain. */
struct ends {
	struct side s;
	struct ibv_qp *tx, *rx;
};

static struct ends ends_new(void)
{
	struct ends e = { .s = side_new(FILE_A) };

	e.tx = qp_new(e.s.pd, e.s.cq, IBV_QPT_XRC_SEND, NULL);
	e.rx = qp_new_xrc_recv(e.s.xrcd);
	qp_join(e.tx, e.rx);
	return e;
}

TEST(srqns, "XRC-9,DEV-4", "an unknown SRQ number, that of a destroyed SRQ, and 0 are invalid requests that fail both QPs with an event")
{
	uint32_t srqn;
	struct ends e;
	int i;

	for (i = 0; i < 3; i++) {
		e = ends_new();
		srqn = i ? 0xffffffU * (i - 1) : e.s.srqn;
		if (!i)
			CHECK_OK(ibv_destroy_srq(e.s.srq));
		CHECK_EQ(send_to(&e.s, e.tx, srqn, 'x'),
			 IBV_WC_REM_INV_REQ_ERR);
		CHECK_EVENT(e.s.ctx, IBV_EVENT_QP_REQ_ERR, e.rx);
		CHECK_EVENT(e.s.ctx, IBV_EVENT_QP_LAST_WQE_REACHED, e.rx);
		CHECK_STATE(e.tx, IBV_QPS_ERR);
		CHECK_STATE(e.rx, IBV_QPS_ERR);
	}
}

/*
 * For kernel consumers, lkey 0 stands for all memory of the kernel. ib_core does not tell that
 * an XRC_RECV QP belongs to a process.
 */
TEST(lkey_0, "XRC-9,PD-4", "a receive WQE of an SRQ with lkey 0 has no memory: it fails with a protection error, and nothing is written")
{
	struct ends e = ends_new();

	post_srq_recv(e.s.srq, 42, (struct mem){ page + 200, 100, 0 });
	post_to(&e.s, e.tx, e.s.srqn, 'x');
	CHECK_WC(e.s.cq, 42, IBV_WC_LOC_PROT_ERR);
	CHECK_WC(e.s.cq, 1, IBV_WC_REM_OP_ERR);
	CHECK_ALL(page + 200, 0, 100);
}

/* The CQ has room for fewer CQEs than the SRQ has receive WQEs. */
#define ROOM	4

static void hoarder(struct peer *parent)
{
	struct side s = side_new(FILE_A);
	struct told told;
	int i;

	s.cq = MUST(ibv_create_cq(s.ctx, ROOM, NULL, NULL, 0));
	CHECK_EQ(s.cq->cqe, ROOM);
	s.srq = xsrq_new(&s);
	CHECK_OK(ibv_get_srq_num(s.srq, &told.srqn));
	for (i = 0; i < 2 * ROOM; i++)
		post_srq_recv(s.srq, i, MEM(s.mr));
	peer_put_var(parent, told);
	peer_wait(parent);
	CHECK_EVENT(s.ctx, IBV_EVENT_CQ_ERR, s.cq);
	CHECK_EVENT(s.ctx, IBV_EVENT_SRQ_ERR, s.srq);
	CHECK_NO_EVENT(s.ctx);
	for (i = 0; i < ROOM; i++)
		CHECK_WC(s.cq, i, IBV_WC_SUCCESS);
	CHECK_NO_WC(s.cq);
	CHECK_ALL(page, 'x', 100);
	peer_tell(parent);
	/* The CQ has room again, but an SRQ in error takes no messages. */
	peer_wait(parent);
	CHECK_NO_WC(s.cq);
	CHECK_NO_EVENT(s.ctx);
	CHECK_ALL(page, 'x', 100);
}

/* Send to the SRQ of the QP's own process. */
static void send_own(struct ends *e, char byte)
{
	struct mem mem = { page + 200, 100, e->s.mr->lkey };
	struct ibv_send_wr *wr;

	post_srq_recv(e->s.srq, 7, mem);
	mem.addr = page;
	memset(page, byte, 100);
	wr = send_wr(IBV_WR_SEND, 8, mem);
	wr->qp_type.xrc.remote_srqn = e->s.srqn;
	post(e->tx, wr);
	CHECK_WC(e->s.cq, 7, IBV_WC_SUCCESS);
	CHECK_WC(e->s.cq, 8, IBV_WC_SUCCESS);
	CHECK_ALL(page + 200, byte, 100);
}

TEST(overrun, "XRC-9,DEV-4", "a CQ overrun fails the CQ's SRQ with an event, the requester gets a remote operation error, and the receiving QP goes on")
{
	struct peer peer;
	struct told told;
	struct ends e;
	int i;

	peer_start(&peer, hoarder);
	peer_get_var(&peer, told);
	e = ends_new();
	for (i = 0; i < ROOM; i++)
		CHECK_EQ(send_to(&e.s, e.tx, told.srqn, 'x'), IBV_WC_SUCCESS);
	for (i = 0; i < 2; i++) {
		CHECK_EQ(send_to(&e.s, e.tx, told.srqn, i ? 'y' : 'x'),
			 IBV_WC_REM_OP_ERR);
		CHECK_STATE(e.tx, IBV_QPS_ERR);
		CHECK_STATE(e.rx, IBV_QPS_RTS);
		CHECK_NO_EVENT(e.s.ctx);
		/* Both QPs begin a new connection. */
		qp_to(e.tx, IBV_QPS_RESET);
		qp_to(e.rx, IBV_QPS_RESET);
		qp_join(e.tx, e.rx);
		send_own(&e, 'a' + i);
		peer_tell(&peer);
		if (!i)
			peer_wait(&peer);
	}
	peer_end(&peer);
}

TEST(domain_of_srq, "XRC-9,PD-4", "the rkey of an XRC write must belong to the PD of the named SRQ; another PD's key is a remote access error")
{
	struct ends e = ends_new();
	struct ibv_pd *other = MUST(ibv_alloc_pd(e.s.ctx));
	struct ibv_mr *alien = MUST(ibv_reg_mr(other, page, PAGE, RIGHTS));
	struct ibv_send_wr *wr;
	int i;

	memset(page, 'p', 8);
	for (i = 0; i < 2; i++) {
		wr = send_wr(IBV_WR_RDMA_WRITE, i,
			     (struct mem){ page, 8, e.s.mr->lkey });
		wr->wr.rdma.remote_addr = (uintptr_t)page + 100;
		wr->wr.rdma.rkey = i ? alien->rkey : e.s.mr->rkey;
		wr->qp_type.xrc.remote_srqn = e.s.srqn;
		post(e.tx, wr);
		CHECK_WC(e.s.cq, i, i ? IBV_WC_REM_ACCESS_ERR :
					IBV_WC_SUCCESS);
		CHECK_ALL(page + 100, i ? 0 : 'p', 8);
		memset(page + 100, 0, 8);
	}
	CHECK_EVENT(e.s.ctx, IBV_EVENT_QP_ACCESS_ERR, e.rx);
}

/* The only SRQ has so many references, one of them of its handle. */
static void check_srq_refs(unsigned int want)
{
	struct tree tree;

	free(tree_settled(KEEL0));
	tree_read(KEEL0, &tree);
	CHECK_EQ(tree_only(&tree, "srq")->refs, want);
	tree_free(&tree);
}

TEST(not_ready, "XRC-9,PD-3", "a send that waited for a receive WQE of an SRQ holds the SRQ no more after it runs out of RNR retries, and after a flush")
{
	struct ends e = ends_new();
	int retry;

	for (retry = 0; retry < 3; retry++) {
		qp_to(e.tx, IBV_QPS_RESET);
		qp_to_init(e.tx);
		qp_to_rtr(e.tx, e.rx->qp_num);
		qp_to_rts(e.tx, retry == 2 ? 7 : retry);
		if (retry < 2) {
			CHECK_EQ(send_to(&e.s, e.tx, e.s.srqn, 'a'),
				 IBV_WC_RNR_RETRY_EXC_ERR);
		} else {
			post_to(&e.s, e.tx, e.s.srqn, 'b');
			check_srq_refs(2);
			qp_to(e.tx, IBV_QPS_ERR);
			CHECK_WC(e.s.cq, 1, IBV_WC_WR_FLUSH_ERR);
		}
		check_srq_refs(1);
	}
}

TEST(busy, "XRC-7,PD-2", "ibv_close_xrcd() returns EBUSY while the handle has an SRQ or a QP, and an SRQ keeps its PD and CQ busy")
{
	struct ends e = ends_new();
	struct ibv_xrcd *again = open_xrcd(e.s.ctx, FILE_A);

	CHECK_RET(ibv_close_xrcd(e.s.xrcd), EBUSY);
	/* A second handle of the domain has no objects. */
	CHECK_OK(ibv_close_xrcd(again));
	CHECK_OK(ibv_destroy_qp(e.rx));
	CHECK_OK(ibv_destroy_qp(e.tx));
	CHECK_RET(ibv_close_xrcd(e.s.xrcd), EBUSY);
	CHECK_OK(ibv_dereg_mr(e.s.mr));
	CHECK_RET(ibv_dealloc_pd(e.s.pd), EBUSY);
	CHECK_RET(ibv_destroy_cq(e.s.cq), EBUSY);
	CHECK_OK(ibv_destroy_srq(e.s.srq));
	CHECK_OK(ibv_close_xrcd(e.s.xrcd));
	CHECK_OK(ibv_dealloc_pd(e.s.pd));
	CHECK_OK(ibv_destroy_cq(e.s.cq));
	CHECK_EQ(tree_count(KEEL0, "xrcd"), 0);
	/* The inode gets a new domain. */
	e.s.xrcd = open_xrcd(e.s.ctx, FILE_A);
	e.rx = qp_new_xrc_recv(e.s.xrcd);
	CHECK_RET(ibv_close_xrcd(e.s.xrcd), EBUSY);
	CHECK_OK(ibv_destroy_qp(e.rx));
	CHECK_OK(ibv_close_xrcd(e.s.xrcd));
}
