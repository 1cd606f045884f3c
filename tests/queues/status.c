// SPDX-License-Identifier: GPL-2.0
/*
 * Every completion status that an application can cause: the status on either
 * side, the resulting states of both QPs, and the events.
 */
#include <sys/mman.h>

#include <infiniband/keeldv.h>

#include "qp.h"
#include "t.h"

#define PAGE	4096
#define RIGHTS	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |	\
		 IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

static char from[2 * PAGE] __attribute__((aligned(PAGE)));
static char to[2 * PAGE] __attribute__((aligned(PAGE)));

static struct ibv_pd *pd;
static struct ibv_mr *src, *dst;

static struct link setup(enum ibv_qp_type type)
{
	if (!pd) {
		pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
		src = MUST(ibv_reg_mr(pd, from, sizeof(from), RIGHTS));
		dst = MUST(ibv_reg_mr(pd, to, sizeof(to), RIGHTS));
	}
	memset(from, 'f', sizeof(from));
	memset(to, 't', sizeof(to));
	return link_new(pd, pd, type);
}

static struct mem part(struct ibv_mr *mr, size_t off, uint32_t len)
{
	return (struct mem){ (char *)mr->addr + off, len, mr->lkey };
}

static void check_states(struct link *l, enum ibv_qp_state a,
			 enum ibv_qp_state b)
{
	CHECK_STATE(l->qp[0], a);
	CHECK_STATE(l->qp[1], b);
}

TEST(too_small, "DEV-4", "a too small receive WQE is a length error, the sender gets an invalid request, both QPs fail and flush, no byte is written")
{
	struct link l = setup(IBV_QPT_RC);

	post_recv(l.qp[1], 1, part(dst, 0, 99));
	post_recv(l.qp[1], 2, part(dst, 0, 200));
	post_recv(l.qp[0], 3, part(dst, 0, 200));
	post_send(l.qp[0], 4, part(src, 0, 100));
	CHECK_WC(l.cq[1], 1, IBV_WC_LOC_LEN_ERR);
	CHECK_WC(l.cq[1], 2, IBV_WC_WR_FLUSH_ERR);
	CHECK_WC(l.cq[0], 4, IBV_WC_REM_INV_REQ_ERR);
	CHECK_WC(l.cq[0], 3, IBV_WC_WR_FLUSH_ERR);
	CHECK_ALL(to, 't', sizeof(to));
	check_states(&l, IBV_QPS_ERR, IBV_QPS_ERR);
	CHECK_NO_EVENT(l.ctx);
	link_free(&l);
}

TEST(too_small_uc, "DEV-4", "a too small receive WQE for a UC message is a length error that fails the responder only")
{
	struct link l = setup(IBV_QPT_UC);

	post_recv(l.qp[1], 1, part(dst, 0, 99));
	post_send(l.qp[0], 2, part(src, 0, 100));
	CHECK_WC(l.cq[0], 2, IBV_WC_SUCCESS);
	CHECK_WC(l.cq[1], 1, IBV_WC_LOC_LEN_ERR);
	check_states(&l, IBV_QPS_RTS, IBV_QPS_ERR);
	CHECK_ALL(to, 't', sizeof(to));
	/* UC loses a message to a QP in the error state. */
	post_send(l.qp[0], 3, part(src, 0, 100));
	CHECK_WC(l.cq[0], 3, IBV_WC_SUCCESS);
	link_free(&l);
}

TEST(atomic_length, "DEV-4", "an atomic with other than 8 local bytes is a local length error, and the peer goes on")
{
	struct link l = setup(IBV_QPT_RC);

	post_add(l.qp[0], 1, part(src, 0, 4), (uintptr_t)to, dst->rkey, 1);
	CHECK_WC(l.cq[0], 1, IBV_WC_LOC_LEN_ERR);
	CHECK_ALL(to, 't', sizeof(to));
	check_states(&l, IBV_QPS_ERR, IBV_QPS_RTS);
	link_free(&l);
}

TEST(too_long, "DEV-4", "a message above max_msg_sz is a local length error, before the kernel accesses its memory")
{
	struct link l = setup(IBV_QPT_RC);
	struct ibv_port_attr port;
	struct ibv_send_wr *wr;
	struct ibv_sge sge[2];
	struct ibv_mr *mr;
	size_t len;
	char *map;

	CHECK_OK(ibv_query_port(l.ctx, 1, &port));
	len = port.max_msg_sz;
	CHECK_EQ(len, 1 << 30);
	map = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS |
		   MAP_NORESERVE, -1, 0);
	CHECK(map != MAP_FAILED);
	mr = MUST(ibv_reg_mr(pd, map, len, IBV_ACCESS_ON_DEMAND));
	wr = send_wr(IBV_WR_RDMA_WRITE, 1, part(src, 0, 1));
	sge[0] = (struct ibv_sge){ (uintptr_t)map, len, mr->lkey };
	sge[1] = *wr->sg_list;
	wr->sg_list = sge;
	wr->num_sge = 2;
	wr->wr.rdma.remote_addr = (uintptr_t)to;
	wr->wr.rdma.rkey = dst->rkey;
	post(l.qp[0], wr);
	CHECK_WC(l.cq[0], 1, IBV_WC_LOC_LEN_ERR);
	check_states(&l, IBV_QPS_ERR, IBV_QPS_RTS);
	CHECK_ALL(to, 't', sizeof(to));
	link_free(&l);
}

static void post_ud(struct link *l, uint64_t wr_id, struct mem mem,
		    struct ibv_ah *ah, uint32_t qkey)
{
	struct ibv_send_wr *wr = send_wr(IBV_WR_SEND, wr_id, mem);

	wr_to(wr, ah, l->qp[1]);
	wr->wr.ud.remote_qkey = qkey;
	post(l->qp[0], wr);
}

TEST(datagrams, "DEV-4", "a datagram above the MTU is a length error; a datagram with another Q_Key or for a too small receive WQE is lost")
{
	struct link l = setup(IBV_QPT_UD);
	struct ibv_ah *ah = ah_self(pd);
	struct ibv_wc wc;

	post_recv(l.qp[1], 1, part(dst, 0, 139));
	post_ud(&l, 2, part(src, 0, 100), ah, QP_QKEY);
	CHECK_WC(l.cq[0], 2, IBV_WC_SUCCESS);
	post_ud(&l, 3, part(src, 0, 99), ah, QP_QKEY + 1);
	CHECK_WC(l.cq[0], 3, IBV_WC_SUCCESS);
	CHECK_NO_WC(l.cq[1]);
	CHECK_ALL(to, 't', sizeof(to));
	/* The receive WQE is still posted. */
	post_ud(&l, 4, part(src, 0, 99), ah, QP_QKEY);
	CHECK_WC(l.cq[0], 4, IBV_WC_SUCCESS);
	wc = CHECK_WC(l.cq[1], 1, IBV_WC_SUCCESS);
	CHECK_EQ(wc.byte_len, 139);
	CHECK_EQ(wc.src_qp, l.qp[0]->qp_num);
	CHECK_EQ(wc.wc_flags, IBV_WC_GRH);
	CHECK_ALL(to + 40, 'f', 99);
	CHECK_ALL(to + 139, 't', 100);
	post_recv(l.qp[1], 5, part(dst, 0, 40 + PAGE));
	post_ud(&l, 6, part(src, 0, PAGE), ah, QP_QKEY);
	CHECK_WC(l.cq[0], 6, IBV_WC_SUCCESS);
	CHECK_WC(l.cq[1], 5, IBV_WC_SUCCESS);
	post_ud(&l, 7, part(src, 0, PAGE + 1), ah, QP_QKEY);
	CHECK_WC(l.cq[0], 7, IBV_WC_LOC_LEN_ERR);
	check_states(&l, IBV_QPS_SQE, IBV_QPS_RTS);
	CHECK_OK(ibv_destroy_ah(ah));
	link_free(&l);
}

TEST(dead_ah, "DEV-4", "a datagram by a destroyed AH is a local operation error")
{
	struct link l = setup(IBV_QPT_UD);
	struct ibv_ah *ah = ah_self(pd);
	struct ibv_send_wr *bad, *wr;

	/* SQD holds the send back until the AH is destroyed. */
	qp_to(l.qp[0], IBV_QPS_SQD);
	wr = send_wr(IBV_WR_SEND, 1, part(src, 0, 8));
	wr->wr.ud.ah = ah;
	wr->wr.ud.remote_qpn = l.qp[1]->qp_num;
	CHECK_OK(ibv_post_send(l.qp[0], wr, &bad));
	CHECK_OK(ibv_destroy_ah(ah));
	CHECK_NO_WC(l.cq[0]);
	qp_to(l.qp[0], IBV_QPS_RTS);
	CHECK_WC(l.cq[0], 1, IBV_WC_LOC_QP_OP_ERR);
	check_states(&l, IBV_QPS_SQE, IBV_QPS_RTS);
	link_free(&l);
}

struct local_case {
	const char *what;
	long off;
	uint32_t len;
	uint32_t xor;		/* flips bits of the key */
	enum keeldv_why why;
};

TEST(local, "PD-4,DEV-4", "an lkey that is unknown or does not cover the memory is a local protection error of the requester only")
{
	static const struct local_case cases[] = {
		{ "before it", -1, 8, 0, KEELDV_WHY_RANGE },
		{ "across its end", 2 * PAGE - 7, 8, 0, KEELDV_WHY_RANGE },
		{ "behind it", 2 * PAGE, 1, 0, KEELDV_WHY_RANGE },
		{ "a sum that wraps", 8, -8, 0, KEELDV_WHY_RANGE },
		{ "another tag of the key", 0, 8, 1, KEELDV_WHY_KEY },
		{ "another key", 0, 8, 0x80000000, KEELDV_WHY_KEY },
		{ "far away", 1L << 62, 8, 0, KEELDV_WHY_RANGE },
		{}
	};
	const struct local_case *c;
	struct ibv_wc wc;
	struct mem mem;
	struct link l;

	for (c = cases; c->what; c++) {
		l = setup(IBV_QPT_RC);
		mem = part(src, c->off, c->len);
		mem.lkey ^= c->xor;
		t_note("%s", c->what);
		post_recv(l.qp[1], 1, part(dst, 0, PAGE));
		post_send(l.qp[0], 2, mem);
		wc = CHECK_WC(l.cq[0], 2, IBV_WC_LOC_PROT_ERR);
		CHECK_EQ(wc.vendor_err, c->why);
		check_states(&l, IBV_QPS_ERR, IBV_QPS_RTS);
		CHECK_NO_WC(l.cq[1]);
		CHECK_ALL(to, 't', sizeof(to));
		link_free(&l);
	}
}

TEST(read_only, "DEV-4", "writing to an MR without LOCAL_WRITE is a local protection error, and a remote operation error for the sender")
{
	struct link l = setup(IBV_QPT_RC);
	struct ibv_mr *ro = MUST(ibv_reg_mr(pd, to, PAGE, 0));

	post_recv(l.qp[1], 1, part(ro, 0, PAGE));
	post_send(l.qp[0], 2, part(src, 0, 8));
	CHECK_WC(l.cq[1], 1, IBV_WC_LOC_PROT_ERR);
	CHECK_WC(l.cq[0], 2, IBV_WC_REM_OP_ERR);
	check_states(&l, IBV_QPS_ERR, IBV_QPS_ERR);
	CHECK_NO_EVENT(l.ctx);
	link_free(&l);
	l = setup(IBV_QPT_RC);
	post_rdma(l.qp[0], IBV_WR_RDMA_READ, 3, part(ro, 0, 8),
		  (uintptr_t)from, src->rkey);
	CHECK_WC(l.cq[0], 3, IBV_WC_LOC_PROT_ERR);
	check_states(&l, IBV_QPS_ERR, IBV_QPS_RTS);
	CHECK_ALL(to, 't', sizeof(to));
	/* An RDMA write may read from the MR. */
	link_free(&l);
	l = setup(IBV_QPT_RC);
	post_rdma(l.qp[0], IBV_WR_RDMA_WRITE, 4, part(ro, 0, 8),
		  (uintptr_t)from, src->rkey);
	CHECK_WC(l.cq[0], 4, IBV_WC_SUCCESS);
	CHECK_ALL(from, 't', 8);
	link_free(&l);
	CHECK_OK(ibv_dereg_mr(ro));
}

struct remote_case {
	const char *what;
	enum ibv_wr_opcode op;
	unsigned int rights;	/* of the MR */
	unsigned int qp;	/* of the responder */
	long off;
	uint32_t xor;		/* flips bits of the key */
	enum ibv_wc_status status;
	enum keeldv_why why;
};

#define LW	IBV_ACCESS_LOCAL_WRITE
#define RR	IBV_ACCESS_REMOTE_READ
#define RW	IBV_ACCESS_REMOTE_WRITE
#define RA	IBV_ACCESS_REMOTE_ATOMIC
#define ALL	(RR | RW | RA)
#define WRITE	IBV_WR_RDMA_WRITE
#define READ	IBV_WR_RDMA_READ
#define ADD	IBV_WR_ATOMIC_FETCH_AND_ADD
#define ACC	IBV_WC_REM_ACCESS_ERR
#define INV	IBV_WC_REM_INV_REQ_ERR

static void remote_one(const struct remote_case *c)
{
	struct link l = setup(IBV_QPT_RC);
	struct ibv_mr *mr = MUST(ibv_reg_mr(pd, to, PAGE, c->rights));
	struct ibv_qp_attr attr = { .qp_access_flags = c->qp };
	uint64_t at = (uintptr_t)to + c->off;
	struct ibv_wc wc;

	CHECK_OK(ibv_modify_qp(l.qp[1], &attr, IBV_QP_ACCESS_FLAGS));
	post_recv(l.qp[1], 1, part(dst, 0, PAGE));
	if (c->op == ADD)
		post_add(l.qp[0], 2, part(src, 0, 8), at, mr->rkey ^ c->xor, 1);
	else
		post_rdma(l.qp[0], c->op, 2, part(src, 0, 8), at,
			  mr->rkey ^ c->xor);
	wc = CHECK_WC(l.cq[0], 2, c->status);
	CHECK_EQ(wc.vendor_err, c->why);
	CHECK_EVENT(l.ctx, c->status == ACC ? IBV_EVENT_QP_ACCESS_ERR :
					      IBV_EVENT_QP_REQ_ERR, l.qp[1]);
	CHECK_WC(l.cq[1], 1, IBV_WC_WR_FLUSH_ERR);
	CHECK_NO_EVENT(l.ctx);
	check_states(&l, IBV_QPS_ERR, IBV_QPS_ERR);
	CHECK_ALL(to, 't', sizeof(to));
	CHECK_ALL(from, 'f', sizeof(from));
	link_free(&l);
	CHECK_OK(ibv_dereg_mr(mr));
}

TEST(remote, "PD-4,DEV-4", "a request that the responder's MR or QP forbids is an access error or an invalid request with an event, and moves no byte")
{
	static const struct remote_case cases[] = {
		{ "write, key may be read", WRITE, LW | RR, ALL, 0, 0, ACC,
		  KEELDV_WHY_ACCESS },
		{ "read, key may be written", READ, LW | RW, ALL, 0, 0, ACC,
		  KEELDV_WHY_ACCESS },
		{ "add, key may be both", ADD, LW | RR | RW, ALL, 0, 0, ACC,
		  KEELDV_WHY_ACCESS },
		{ "write before it", WRITE, LW | ALL, ALL, -1, 0, ACC,
		  KEELDV_WHY_RANGE },
		{ "read across its end", READ, LW | ALL, ALL, PAGE - 7, 0, ACC,
		  KEELDV_WHY_RANGE },
		{ "add behind it", ADD, LW | ALL, ALL, PAGE, 0, ACC,
		  KEELDV_WHY_RANGE },
		{ "write, other tag", WRITE, LW | ALL, ALL, 0, 1, ACC,
		  KEELDV_WHY_KEY },
		{ "read, other key", READ, LW | ALL, ALL, 0, 1U << 31, ACC,
		  KEELDV_WHY_KEY },
		{ "write, QP may not", WRITE, LW | ALL, RR | RA, 0, 0, INV,
		  KEELDV_WHY_QP_ACCESS },
		{ "read, QP may not", READ, LW | ALL, RW | RA, 0, 0, INV,
		  KEELDV_WHY_QP_ACCESS },
		{ "add, QP may not", ADD, LW | ALL, RR | RW, 0, 0, INV,
		  KEELDV_WHY_QP_ACCESS },
		{ "add, not aligned", ADD, LW | ALL, ALL, 4, 0, INV,
		  KEELDV_WHY_ALIGN },
		{}
	};
	const struct remote_case *c;

	for (c = cases; c->what; c++) {
		t_note("%s", c->what);
		remote_one(c);
	}
}

TEST(words, "DEV-4", "keeldv_why_str() has a text of its own for each vendor error code, and unknown for other numbers")
{
	uint32_t i, j;

	CHECK_STR(keeldv_why_str(KEELDV_WHY_KEY), "the key does not exist");
	CHECK_STR(keeldv_why_str(KEELDV_WHY_QP_ACCESS),
		  "the peer's QP does not allow the operation");
	for (i = 0; i <= KEELDV_WHY_PSN; i++) {
		CHECK(strcmp(keeldv_why_str(i), "unknown"));
		for (j = 0; j < i; j++)
			CHECK(strcmp(keeldv_why_str(i), keeldv_why_str(j)));
	}
	CHECK_STR(keeldv_why_str(i), "unknown");
	CHECK_STR(keeldv_why_str(UINT32_MAX), "unknown");
}

TEST(nothing, "DEV-4", "a write and a read of no bytes succeed with any rkey")
{
	struct link l = setup(IBV_QPT_RC);

	post_rdma(l.qp[0], IBV_WR_RDMA_WRITE, 1, (struct mem){}, 12345, 1);
	CHECK_WC(l.cq[0], 1, IBV_WC_SUCCESS);
	post_rdma(l.qp[0], IBV_WR_RDMA_READ, 2, (struct mem){}, 12345, 1);
	CHECK_WC(l.cq[0], 2, IBV_WC_SUCCESS);
	check_states(&l, IBV_QPS_RTS, IBV_QPS_RTS);
	link_free(&l);
}

TEST(not_ready, "DEV-4", "without a receive WQE a message runs out of RNR retries and the peer goes on; with endless retries it waits")
{
	static const enum ibv_wr_opcode ops[] = {
		IBV_WR_SEND, IBV_WR_RDMA_WRITE_WITH_IMM,
	};
	struct ibv_send_wr *wr;
	struct link l;
	int i, retry;

	for (i = 0; i < 2; i++)
		for (retry = 0; retry < 3; retry++) {
			l = setup(IBV_QPT_RC);
			qp_to(l.qp[0], IBV_QPS_RESET);
			qp_to_init(l.qp[0]);
			qp_to_rtr(l.qp[0], l.qp[1]->qp_num);
			qp_to_rts(l.qp[0], retry == 2 ? 7 : retry);
			wr = send_wr(ops[i], 1, part(src, 0, 8));
			wr->wr.rdma.remote_addr = (uintptr_t)to;
			wr->wr.rdma.rkey = dst->rkey;
			wr->imm_data = htobe32(77);
			post(l.qp[0], wr);
			if (retry < 2) {
				CHECK_WC(l.cq[0], 1, IBV_WC_RNR_RETRY_EXC_ERR);
				check_states(&l, IBV_QPS_ERR, IBV_QPS_RTS);
				CHECK_ALL(to, 't', sizeof(to));
			} else {
				usleep(20000);
				CHECK_NO_WC(l.cq[0]);
				post_recv(l.qp[1], 2, part(dst, 0, 8));
				CHECK_WC(l.cq[0], 1, IBV_WC_SUCCESS);
				CHECK_WC(l.cq[1], 2, IBV_WC_SUCCESS);
				CHECK_ALL(to, 'f', 8);
			}
			CHECK_NO_EVENT(l.ctx);
			link_free(&l);
		}
}

TEST(no_peer, "DEV-4", "a peer that is reset, failed, destroyed or connected to another QP lets the requester's retries run out")
{
	struct link l;
	int i;

	for (i = 0; i < 4; i++) {
		l = setup(IBV_QPT_RC);
		if (i == 2)
			CHECK_OK(ibv_destroy_qp(l.qp[1]));
		else
			qp_to(l.qp[1], i == 1 ? IBV_QPS_ERR : IBV_QPS_RESET);
		if (i == 3)
			qp_connect(l.qp[1], 0xfffffe);
		post_rdma(l.qp[0], IBV_WR_RDMA_WRITE, 1, part(src, 0, 8),
			  (uintptr_t)to, dst->rkey);
		post_send(l.qp[0], 2, part(src, 0, 8));
		CHECK_WC(l.cq[0], 1, IBV_WC_RETRY_EXC_ERR);
		CHECK_WC(l.cq[0], 2, IBV_WC_WR_FLUSH_ERR);
		CHECK_STATE(l.qp[0], IBV_QPS_ERR);
		CHECK_ALL(to, 't', sizeof(to));
		CHECK_NO_EVENT(l.ctx);
		if (i == 2)
			l.qp[1] = qp_new(pd, l.cq[1], IBV_QPT_RC, NULL);
		link_free(&l);
	}
}

TEST(bind, "DEV-4", "a failed bind is a bind error that fails its QP, and later WQEs are flushed")
{
	struct link l = setup(IBV_QPT_RC);
	struct ibv_mw *mw = MUST(ibv_alloc_mw(pd, IBV_MW_TYPE_2));
	struct ibv_send_wr wr = {
		.wr_id = 1, .opcode = IBV_WR_BIND_MW,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_mw = { .mw = mw, .rkey = ibv_inc_rkey(mw->rkey),
			     .bind_info = { .mr = dst, .length = 8,
					    .addr = (uintptr_t)to } },
	};

	/* The MR does not permit binds. */
	post(l.qp[0], &wr);
	post_send(l.qp[0], 2, part(src, 0, 8));
	CHECK_WC(l.cq[0], 1, IBV_WC_MW_BIND_ERR);
	CHECK_WC(l.cq[0], 2, IBV_WC_WR_FLUSH_ERR);
	check_states(&l, IBV_QPS_ERR, IBV_QPS_RTS);
	CHECK_OK(ibv_dealloc_mw(mw));
	link_free(&l);
}

TEST(no_atomics, "DEV-4", "read depth 0 makes a read a local operation error at the requester, and an invalid request at the responder")
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };
	struct link l = setup(IBV_QPT_RC);

	qp_to(l.qp[0], IBV_QPS_SQD);
	CHECK_OK(ibv_modify_qp(l.qp[0], &attr, IBV_QP_MAX_QP_RD_ATOMIC));
	qp_to(l.qp[0], IBV_QPS_RTS);
	post_rdma(l.qp[0], IBV_WR_RDMA_READ, 1, part(src, 0, 8),
		  (uintptr_t)to, dst->rkey);
	CHECK_WC(l.cq[0], 1, IBV_WC_LOC_QP_OP_ERR);
	check_states(&l, IBV_QPS_ERR, IBV_QPS_RTS);
	link_free(&l);
	l = setup(IBV_QPT_RC);
	qp_to(l.qp[1], IBV_QPS_SQD);
	CHECK_OK(ibv_modify_qp(l.qp[1], &attr, IBV_QP_MAX_DEST_RD_ATOMIC));
	qp_to(l.qp[1], IBV_QPS_RTS);
	post_rdma(l.qp[0], IBV_WR_RDMA_READ, 2, part(src, 0, 8),
		  (uintptr_t)to, dst->rkey);
	CHECK_WC(l.cq[0], 2, IBV_WC_REM_INV_REQ_ERR);
	CHECK_EVENT(l.ctx, IBV_EVENT_QP_REQ_ERR, l.qp[1]);
	check_states(&l, IBV_QPS_ERR, IBV_QPS_ERR);
	CHECK_ALL(from, 'f', sizeof(from));
	link_free(&l);
}
