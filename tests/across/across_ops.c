// SPDX-License-Identifier: GPL-2.0
/*
 * Between two hosts: the operations of RC that across_rc.c lacks. Host 0 requests them.
 */
#include <endian.h>

#include "hosts.h"
#include "qp.h"
#include "t.h"

#define LW	IBV_ACCESS_LOCAL_WRITE
#define RR	IBV_ACCESS_REMOTE_READ
#define RW	IBV_ACCESS_REMOTE_WRITE
#define FG	IBV_ACCESS_FLUSH_GLOBAL
#define OPS	(IBV_QP_EX_WITH_FLUSH | IBV_QP_EX_WITH_RDMA_WRITE |	\
		 IBV_QP_EX_WITH_ATOMIC_WRITE | IBV_QP_EX_WITH_SEND_WITH_INV | \
		 IBV_QP_EX_WITH_BIND_MW)
/* Three packets. */
#define LONG	10000
/* The bytes of a window, in the middle of the memory of host 1. */
#define WINDOW	0x1234
#define WINDOW_BYTES	LONG

static struct end a, b;

void t_end(void)
{
	hosts_down();
}

/* An end whose QP has ibv_wr_*(). */
static struct end end_new_ops(int host)
{
	struct end e = end_new(host);

	CHECK_OK(ibv_destroy_qp(e.qp));
	e.qp = &qp_new_ex(e.pd, e.cq, IBV_QPT_RC, OPS)->qp_base;
	return e;
}

static void begin(void)
{
	hosts_up();
	a = end_new_ops(0);
	b = end_new_ops(1);
	ends_join(&a, &b, &joint_usual);
	memset(a.mem, 'a', END_BYTES);
	memset(b.mem, 'b', END_BYTES);
}

static void end(void)
{
	end_free(&a);
	end_free(&b);
}

static struct mem part(const struct end *e, size_t off, uint32_t len)
{
	return (struct mem){ e->mem + off, len, e->mr->lkey };
}

/* Bytes of host 1 that were written, and none beside them. */
static void check_written(size_t off, size_t len)
{
	CHECK_ALL(b.mem, 'b', off);
	CHECK_ALL(b.mem + off, 'a', len);
	CHECK_ALL(b.mem + off + len, 'b', END_BYTES - off - len);
}

/* A window that host 1 opens in @mr. */
static struct ibv_mw *window(enum ibv_mw_type type, struct ibv_mr *mr)
{
	struct ibv_mw_bind_info info = {
		.mr = mr, .addr = (uintptr_t)b.mem + WINDOW, .length = WINDOW_BYTES,
		.mw_access_flags = RR | RW,
	};
	struct ibv_mw *mw = MUST(ibv_alloc_mw(b.pd, type));
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(b.qp);
	struct ibv_mw_bind bind = { .bind_info = info, .send_flags = IBV_SEND_SIGNALED };

	if (type == IBV_MW_TYPE_1) {
		CHECK_OK(ibv_bind_mw(b.qp, mw, &bind));
	} else {
		wr_begin(qp, 0);
		ibv_wr_bind_mw(qp, mw, ibv_inc_rkey(mw->rkey), &info);
		wr_end(qp);
		mw->rkey = ibv_inc_rkey(mw->rkey);
	}
	CHECK_WC(b.cq, 0, IBV_WC_SUCCESS);
	return mw;
}

/* All of the window can be written and read, and no byte more. */
static void check_window(enum ibv_mw_type type)
{
	struct ibv_mr *mr;
	struct ibv_mw *mw;

	begin();
	mr = MUST(ibv_reg_mr(b.pd, b.mem, END_BYTES, LW | IBV_ACCESS_MW_BIND));
	mw = window(type, mr);
	post_rdma(a.qp, IBV_WR_RDMA_WRITE, 1, part(&a, 0, WINDOW_BYTES),
		  (uintptr_t)b.mem + WINDOW, mw->rkey);
	CHECK_WC(a.cq, 1, IBV_WC_SUCCESS);
	check_written(WINDOW, WINDOW_BYTES);
	memset(b.mem + WINDOW, 'w', WINDOW_BYTES);
	post_rdma(a.qp, IBV_WR_RDMA_READ, 2, part(&a, 0, WINDOW_BYTES),
		  (uintptr_t)b.mem + WINDOW, mw->rkey);
	CHECK_WC(a.cq, 2, IBV_WC_SUCCESS);
	CHECK_ALL(a.mem, 'w', WINDOW_BYTES);
	CHECK_ALL(a.mem + WINDOW_BYTES, 'a', END_BYTES - WINDOW_BYTES);
	post_rdma(a.qp, IBV_WR_RDMA_WRITE, 3, part(&a, 0, WINDOW_BYTES),
		  (uintptr_t)b.mem + WINDOW + 1, mw->rkey);
	CHECK_WC(a.cq, 3, IBV_WC_REM_ACCESS_ERR);
	CHECK_EQ(b.mem[WINDOW + WINDOW_BYTES], 'b');
	CHECK_OK(ibv_dealloc_mw(mw));
	CHECK_OK(ibv_dereg_mr(mr));
	end();
}

TEST(window_1, "HOST-1", "a window of type 1 opens its bytes to the other host, and no more")
{
	check_window(IBV_MW_TYPE_1);
}

TEST(window_2, "HOST-1", "a window of type 2 opens its bytes to the other host, and no more")
{
	check_window(IBV_MW_TYPE_2);
}

TEST(invalidate, "HOST-1", "a send with invalidate ends a window of the other host, which is told its key")
{
	struct ibv_qp_ex *qp;
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	struct ibv_wc wc;

	begin();
	mr = MUST(ibv_reg_mr(b.pd, b.mem, END_BYTES, LW | IBV_ACCESS_MW_BIND));
	mw = window(IBV_MW_TYPE_2, mr);
	post_recv(b.qp, 2, part(&b, 0, LONG));
	qp = ibv_qp_to_qp_ex(a.qp);
	wr_begin(qp, 1);
	ibv_wr_send_inv(qp, mw->rkey);
	ibv_wr_set_sge(qp, a.mr->lkey, (uintptr_t)a.mem, LONG);
	wr_end(qp);
	CHECK_WC(a.cq, 1, IBV_WC_SUCCESS);
	wc = CHECK_WC(b.cq, 2, IBV_WC_SUCCESS);
	CHECK_EQ(wc.byte_len, LONG);
	CHECK_EQ(wc.wc_flags & IBV_WC_WITH_INV, IBV_WC_WITH_INV);
	CHECK_EQ(wc.invalidated_rkey, mw->rkey);
	check_written(0, LONG);
	post_rdma(a.qp, IBV_WR_RDMA_WRITE, 3, part(&a, 0, 8), (uintptr_t)b.mem + WINDOW,
		  mw->rkey);
	CHECK_WC(a.cq, 3, IBV_WC_REM_ACCESS_ERR);
	CHECK_OK(ibv_dealloc_mw(mw));
	CHECK_OK(ibv_dereg_mr(mr));
	end();
}

TEST(invalidate_other, "HOST-1", "a send with invalidate whose key is not one of a window is an error of the other host, as it is of this one")
{
	struct ibv_qp_ex *qp;

	begin();
	post_recv(b.qp, 2, part(&b, 0, LONG));
	qp = ibv_qp_to_qp_ex(a.qp);
	wr_begin(qp, 1);
	/* The key of an MR that was registered by a call cannot be invalidated. */
	ibv_wr_send_inv(qp, b.mr->rkey);
	ibv_wr_set_sge(qp, a.mr->lkey, (uintptr_t)a.mem, 8);
	wr_end(qp);
	CHECK_WC(a.cq, 1, IBV_WC_SUCCESS);
	CHECK_WC(b.cq, 2, IBV_WC_REM_INV_REQ_ERR);
	CHECK_STATE(b.qp, IBV_QPS_ERR);
	check_written(0, 8);
	end();
}

TEST(atomic_write, "HOST-1", "an atomic write stores its 8 bytes on the other host, and nothing beside them")
{
	static const size_t offs[] = { 0, 8, 4088, END_BYTES - 8 };
	struct ibv_qp_ex *qp;
	struct ibv_wc wc;
	size_t i;

	begin();
	qp = ibv_qp_to_qp_ex(a.qp);
	for (i = 0; i < sizeof(offs) / sizeof(*offs); i++) {
		memset(b.mem, 'b', END_BYTES);
		wr_begin(qp, i);
		ibv_wr_atomic_write(qp, b.mr->rkey, (uintptr_t)b.mem + offs[i], "aaaaaaaa");
		wr_end(qp);
		wc = CHECK_WC(a.cq, i, IBV_WC_SUCCESS);
		CHECK_EQ(wc.opcode, IBV_WC_ATOMIC_WRITE);
		check_written(offs[i], 8);
	}
	CHECK_NO_WC(b.cq);
	end();
}

TEST(flush, "HOST-1", "a flush completes after the writes before it, and only with the right to it")
{
	struct ibv_qp_ex *qp;
	struct ibv_mr *mr;
	struct ibv_wc wc;

	begin();
	qp = ibv_qp_to_qp_ex(a.qp);
	qp_allow(b.qp, RW | FG);
	mr = MUST(ibv_reg_mr(b.pd, b.mem, END_BYTES, LW | RW | FG));
	wr_begin(qp, 1);
	ibv_wr_rdma_write(qp, mr->rkey, (uintptr_t)b.mem);
	ibv_wr_set_sge(qp, a.mr->lkey, (uintptr_t)a.mem, LONG);
	qp->wr_id = 2;
	ibv_wr_flush(qp, mr->rkey, (uintptr_t)b.mem, LONG, IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE);
	wr_end(qp);
	CHECK_WC(a.cq, 1, IBV_WC_SUCCESS);
	wc = CHECK_WC(a.cq, 2, IBV_WC_SUCCESS);
	CHECK_EQ(wc.opcode, IBV_WC_FLUSH);
	check_written(0, LONG);
	/* Of the whole MR: address and length do not count. */
	wr_begin(qp, 3);
	ibv_wr_flush(qp, mr->rkey, 12345, -1UL, IBV_FLUSH_GLOBAL, IBV_FLUSH_MR);
	wr_end(qp);
	CHECK_WC(a.cq, 3, IBV_WC_SUCCESS);
	wr_begin(qp, 4);
	ibv_wr_flush(qp, b.mr->rkey, (uintptr_t)b.mem, LONG, IBV_FLUSH_GLOBAL,
		     IBV_FLUSH_RANGE);
	wr_end(qp);
	CHECK_WC(a.cq, 4, IBV_WC_REM_ACCESS_ERR);
	CHECK_OK(ibv_dereg_mr(mr));
	end();
}

TEST(sges, "HOST-1", "several SGEs on both sides, and inline data, arrive in their order")
{
	struct ibv_sge from[3], to[3];
	struct ibv_send_wr *wr;
	struct ibv_recv_wr recv = { .wr_id = 2, .sg_list = to, .num_sge = 3 }, *bad;
	char want[LONG];
	int i;

	hosts_up();
	a = end_new(0);
	b = end_new(1);
	ends_join(&a, &b, &joint_usual);
	memset(b.mem, 'b', END_BYTES);
	for (i = 0; i < LONG; i++)
		a.mem[i] = want[i] = i * 7 + i / 251;
	/* Lengths that fit no packet, and no SGE of the other side. */
	from[0] = (struct ibv_sge){ (uintptr_t)a.mem, 4097, a.mr->lkey };
	from[1] = (struct ibv_sge){ (uintptr_t)a.mem + 4097, 3, a.mr->lkey };
	from[2] = (struct ibv_sge){ (uintptr_t)a.mem + 4100, LONG - 4100, a.mr->lkey };
	to[0] = (struct ibv_sge){ (uintptr_t)b.mem + 0x8000, 1, b.mr->lkey };
	to[1] = (struct ibv_sge){ (uintptr_t)b.mem, 4098, b.mr->lkey };
	to[2] = (struct ibv_sge){ (uintptr_t)b.mem + 0x4000, LONG, b.mr->lkey };
	CHECK_OK(ibv_post_recv(b.qp, &recv, &bad));
	wr = send_wr(IBV_WR_SEND, 1, part(&a, 0, 0));
	wr->sg_list = from;
	wr->num_sge = 3;
	post(a.qp, wr);
	CHECK_WC(a.cq, 1, IBV_WC_SUCCESS);
	CHECK_EQ(CHECK_WC(b.cq, 2, IBV_WC_SUCCESS).byte_len, LONG);
	CHECK_MEM(b.mem + 0x8000, want, 1);
	CHECK_MEM(b.mem, want + 1, 4098);
	CHECK_MEM(b.mem + 0x4000, want + 4099, LONG - 4099);
	CHECK_ALL(b.mem + 0x4000 + LONG - 4099, 'b', 64);
	post_recv(b.qp, 4, part(&b, 0x8000, 64));
	/* No key, and the bytes may change at once. */
	wr = send_wr(IBV_WR_SEND, 3, (struct mem){ want, 32, 0xdead });
	wr->send_flags |= IBV_SEND_INLINE;
	post(a.qp, wr);
	memset(want, 0, 32);
	CHECK_WC(a.cq, 3, IBV_WC_SUCCESS);
	CHECK_EQ(CHECK_WC(b.cq, 4, IBV_WC_SUCCESS).byte_len, 32);
	CHECK_MEM(b.mem + 0x8000, a.mem, 32);
	end();
}
