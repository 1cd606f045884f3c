// SPDX-License-Identifier: GPL-2.0
/*
 * The extended post API: every builder and setter, batches with an error in the
 * middle, abort, a full queue.
 */
#include "fake.h"

#define WRS	8

static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_qp_ex *ex;
static struct fake_qp *fqp;
static struct ibv_sge list[8];
static uint8_t data[80];

static uint64_t all_ops(enum ibv_qp_type type)
{
	uint64_t ud = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;

	if (type == IBV_QPT_UD)
		return ud;
	return ud | IBV_QP_EX_WITH_RDMA_WRITE |
	       IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
	       IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
	       IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
	       IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW |
	       IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_FLUSH |
	       IBV_QP_EX_WITH_ATOMIC_WRITE;
}

static void setup(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = type, .send_ops_flags = all_ops(type),
		.cap = { .max_send_wr = WRS, .max_recv_wr = 1,
			 .max_send_sge = 4, .max_recv_sge = 1,
			 .max_inline_data = 64 },
	};
	int i;

	fake_open();
	pd = MUST(ibv_alloc_pd(fake.ctx));
	cq = fake_new_cq(16);
	qp = fake_new_qp_ex(pd, cq, &attr);
	ex = MUST(ibv_qp_to_qp_ex(qp));
	fqp = fake_qp(qp);
	for (i = 0; i < 8; i++)
		list[i] = (struct ibv_sge){ 0x1000 + i, 10 + i, 0x20 + i };
	for (i = 0; i < 80; i++)
		data[i] = i + 1;
	/* Bytes of older WQEs must not remain. */
	memset(fake_slot(&fqp->sq, 0), 0xff, WRS * fqp->sq.stride);
}

static void finish(void)
{
	CHECK_OK(ibv_destroy_qp(qp));
	CHECK_OK(ibv_destroy_cq(cq));
	CHECK_OK(ibv_dealloc_pd(pd));
	fake_close();
}

static void start(uint64_t wr_id, unsigned int flags)
{
	ibv_wr_start(ex);
	ex->wr_id = wr_id;
	ex->wr_flags = flags;
}

/* Complete a batch of one WQE, and take it. Its union has these bytes. */
static struct keel_uapi_send_wqe *one(enum ibv_wr_opcode opcode, uint32_t imm,
				      const void *want, size_t len)
{
	unsigned int rung = fqp->doorbells;
	struct keel_uapi_send_wqe *wqe;

	CHECK_EQ(fake_posted(&fqp->sq), 0);
	CHECK_OK(ibv_wr_complete(ex));
	CHECK_EQ(fqp->doorbells, rung + 1);
	CHECK_EQ(fake_posted(&fqp->sq), 1);
	wqe = fake_take(&fqp->sq, ex->wr_id);
	CHECK_EQ(wqe->opcode, opcode);
	CHECK_EQ(wqe->imm, imm);
	if (len)
		CHECK_MEM(wqe->reserved, want, len);
	CHECK_ALL(wqe->reserved + len, 0, sizeof(wqe->reserved) - len);
	return wqe;
}

TEST(builders, "DEV-4", "each builder writes the members that the contract names, and zeros elsewhere")
{
	struct keel_uapi_send_wqe want = {};
	struct keel_uapi_send_wqe *wqe;

	setup(IBV_QPT_RC);
	start(1, IBV_SEND_SIGNALED | IBV_SEND_FENCE | IBV_SEND_SOLICITED);
	ibv_wr_send(ex);
	wqe = one(IBV_WR_SEND, 0, NULL, 0);
	CHECK_EQ(wqe->flags, ex->wr_flags);
	CHECK_EQ(wqe->num_sge | wqe->inline_len | wqe->srqn, 0);
	start(2, 0);
	ibv_wr_send_imm(ex, (__force __be32)0x11223344);
	one(IBV_WR_SEND_WITH_IMM, 0x11223344, NULL, 0);
	start(3, 0);
	ibv_wr_send_inv(ex, 0x55667788);
	one(IBV_WR_SEND_WITH_INV, 0x55667788, NULL, 0);
	start(4, 0);
	ibv_wr_local_inv(ex, 0x99aabbcc);
	one(IBV_WR_LOCAL_INV, 0x99aabbcc, NULL, 0);

	want.rdma.rkey = 0x777;
	want.rdma.remote_addr = 0x123456789abcdef;
	start(5, 0);
	ibv_wr_rdma_write(ex, 0x777, 0x123456789abcdef);
	one(IBV_WR_RDMA_WRITE, 0, &want.rdma, sizeof(want.rdma));
	start(6, 0);
	ibv_wr_rdma_write_imm(ex, 0x777, 0x123456789abcdef,
			      (__force __be32)0x44332211);
	one(IBV_WR_RDMA_WRITE_WITH_IMM, 0x44332211, &want.rdma,
	    sizeof(want.rdma));
	start(7, 0);
	ibv_wr_rdma_read(ex, 0x777, 0x123456789abcdef);
	one(IBV_WR_RDMA_READ, 0, &want.rdma, sizeof(want.rdma));

	want.atomic.compare_add = 0x1111222233334444;
	want.atomic.swap = 0x5555666677778888;
	want.atomic.rkey = 0x999;
	want.atomic.reserved = 0;
	start(8, 0);
	ibv_wr_atomic_cmp_swp(ex, 0x999, 0x123456789abcdef,
			      0x1111222233334444, 0x5555666677778888);
	one(IBV_WR_ATOMIC_CMP_AND_SWP, 0, &want.atomic, sizeof(want.atomic));
	want.atomic.swap = 0;
	start(9, 0);
	ibv_wr_atomic_fetch_add(ex, 0x999, 0x123456789abcdef,
				0x1111222233334444);
	one(IBV_WR_ATOMIC_FETCH_AND_ADD, 0, &want.atomic, sizeof(want.atomic));
	finish();
}

TEST(new_operations, "DEV-4", "an atomic write carries its 8 bytes, a flush its range, type and level")
{
	struct keel_uapi_send_wqe want = {
		.rdma = { .rkey = 0x777, .remote_addr = 0x8000 },
	};
	struct keel_uapi_send_wqe *wqe;

	setup(IBV_QPT_RC);
	start(1, IBV_SEND_SIGNALED);
	ibv_wr_atomic_write(ex, 0x777, 0x8000, data + 1);
	wqe = one(IBV_WR_ATOMIC_WRITE, 0, &want.rdma, sizeof(want.rdma));
	CHECK_EQ(wqe->flags, IBV_SEND_INLINE | IBV_SEND_SIGNALED);
	CHECK_EQ(wqe->inline_len, 8);
	CHECK_EQ(wqe->num_sge, 0);
	CHECK_MEM(fake_data(wqe), data + 1, 8);

	want = (struct keel_uapi_send_wqe){
		.flush = { .remote_addr = 0x9000, .length = 0x123456789,
			   .rkey = 0x888, .type = IBV_FLUSH_GLOBAL | IBV_FLUSH_PERSISTENT,
			   .level = IBV_FLUSH_MR },
	};
	start(2, 0);
	ibv_wr_flush(ex, 0x888, 0x9000, 0x123456789,
		     IBV_FLUSH_GLOBAL | IBV_FLUSH_PERSISTENT, IBV_FLUSH_MR);
	wqe = one(IBV_WR_FLUSH, 0, &want.flush, sizeof(want.flush));
	CHECK_EQ(wqe->num_sge | wqe->inline_len, 0);
	finish();
}

TEST(windows, "DEV-4", "a bind of a type 2 window has its range and both rkeys, and no type 1 window is bound")
{
	struct ibv_mr mr = { .lkey = 0x55 };
	struct ibv_mw mw = { .rkey = 0x1234, .type = IBV_MW_TYPE_2 };
	struct ibv_mw_bind_info info = {
		.mr = &mr, .addr = 0xaaaa, .length = 0xbbbb,
		.mw_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};
	struct keel_uapi_send_wqe want = {
		.bind = { .addr = 0xaaaa, .length = 0xbbbb, .lkey = 0x55,
			  .rkey = 0x1234, .new_rkey = 0x1299,
			  .access = IBV_ACCESS_REMOTE_WRITE },
	};

	setup(IBV_QPT_RC);
	start(1, 0);
	ibv_wr_bind_mw(ex, &mw, 0x1299, &info);
	one(IBV_WR_BIND_MW, 0, &want.bind, sizeof(want.bind));
	mw.type = IBV_MW_TYPE_1;
	start(2, 0);
	ibv_wr_bind_mw(ex, &mw, 0x1299, &info);
	CHECK_RET(ibv_wr_complete(ex), EINVAL);
	CHECK_EQ(fake_posted(&fqp->sq), 0);
	finish();
}

TEST(sges, "DEV-4", "a list of SGEs fits up to the number that the QP was created with, also with zeros in it")
{
	struct keel_uapi_send_wqe *wqe;
	size_t n;

	setup(IBV_QPT_RC);
	for (n = 0; n <= 4; n++) {
		start(n, 0);
		ibv_wr_send(ex);
		ibv_wr_set_sge_list(ex, n, n ? list : NULL);
		wqe = one(IBV_WR_SEND, 0, NULL, 0);
		CHECK_EQ(wqe->num_sge, n);
		CHECK_EQ(wqe->flags, 0);
		CHECK_MEM(fake_data(wqe), list, n * sizeof(*list));
	}
	for (; n < 7; n++) {
		start(n, 0);
		ibv_wr_send(ex);
		ibv_wr_set_sge_list(ex, n, list);
		CHECK_RET(ibv_wr_complete(ex), EINVAL);
	}
	start(8, 0);
	ibv_wr_rdma_read(ex, 1, 2);
	ibv_wr_set_sge_list(ex, (size_t)1 << 32, list);
	CHECK_RET(ibv_wr_complete(ex), EINVAL);
	start(9, 0);
	ibv_wr_send(ex);
	ibv_wr_set_sge(ex, 0, 0, 0);
	wqe = one(IBV_WR_SEND, 0, NULL, 0);
	CHECK_EQ(wqe->num_sge, 1);
	CHECK_ALL(fake_data(wqe), 0, sizeof(*list));
	start(10, 0);
	ibv_wr_send(ex);
	ibv_wr_set_sge(ex, 0x22, 0x1002, 12);
	wqe = one(IBV_WR_SEND, 0, NULL, 0);
	CHECK_MEM(fake_data(wqe), &list[2], sizeof(*list));
	finish();
}

TEST(inline_limit, "DEV-4", "inline data of several buffers, some empty, fits up to the limit and not one byte more")
{
	struct ibv_data_buf bufs[] = {
		{ NULL, 0 }, { data, 30 }, { data, 0 }, { data + 30, 34 },
		{ NULL, 0 },
	};
	struct keel_uapi_send_wqe *wqe;

	setup(IBV_QPT_RC);
	start(1, 0);
	ibv_wr_send(ex);
	ibv_wr_set_inline_data_list(ex, 5, bufs);
	wqe = one(IBV_WR_SEND, 0, NULL, 0);
	CHECK_EQ(wqe->inline_len, 64);
	CHECK_EQ(wqe->num_sge, 0);
	CHECK_EQ(wqe->flags, IBV_SEND_INLINE);
	CHECK_MEM(fake_data(wqe), data, 64);
	start(2, 0);
	ibv_wr_send(ex);
	ibv_wr_set_inline_data(ex, data, 64);
	CHECK_EQ(one(IBV_WR_SEND, 0, NULL, 0)->inline_len, 64);
	start(3, 0);
	ibv_wr_send(ex);
	ibv_wr_set_inline_data(ex, data, 65);
	CHECK_RET(ibv_wr_complete(ex), EINVAL);
	bufs[4] = (struct ibv_data_buf){ data, 1 };
	start(4, 0);
	ibv_wr_send(ex);
	ibv_wr_set_inline_data_list(ex, 5, bufs);
	CHECK_RET(ibv_wr_complete(ex), EINVAL);
	bufs[3].length = SIZE_MAX - 29;
	start(5, 0);
	ibv_wr_send(ex);
	ibv_wr_set_inline_data_list(ex, 5, bufs);
	CHECK_RET(ibv_wr_complete(ex), EINVAL);
	start(6, 0);
	ibv_wr_send(ex);
	ibv_wr_set_inline_data(ex, NULL, 0);
	wqe = one(IBV_WR_SEND, 0, NULL, 0);
	CHECK_EQ(wqe->inline_len, 0);
	CHECK_EQ(wqe->flags, IBV_SEND_INLINE);
	finish();
}

TEST(setters, "DEV-4", "the last setter of data counts, and what an operation cannot carry is refused")
{
	static const enum ibv_wr_opcode no_inline[] = {
		IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP,
		IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_LOCAL_INV, IBV_WR_FLUSH,
		IBV_WR_ATOMIC_WRITE,
	};
	struct keel_uapi_send_wqe *wqe;
	bool inl;
	int i;

	setup(IBV_QPT_RC);
	start(1, 0);
	ibv_wr_send(ex);
	ibv_wr_set_inline_data(ex, data, 10);
	ibv_wr_set_sge(ex, 1, 2, 3);
	wqe = one(IBV_WR_SEND, 0, NULL, 0);
	CHECK_EQ(wqe->flags, 0);
	CHECK_EQ(wqe->inline_len, 0);
	CHECK_EQ(wqe->num_sge, 1);
	start(2, 0);
	ibv_wr_send(ex);
	ibv_wr_set_sge_list(ex, 3, list);
	ibv_wr_set_inline_data(ex, data, 10);
	wqe = one(IBV_WR_SEND, 0, NULL, 0);
	CHECK_EQ(wqe->flags, IBV_SEND_INLINE);
	CHECK_EQ(wqe->inline_len, 10);
	CHECK_EQ(wqe->num_sge, 0);
	for (i = 0; i < 12; i++) {
		inl = i < 6;
		start(3, 0);
		switch (no_inline[i % 6]) {
		case IBV_WR_RDMA_READ:
			ibv_wr_rdma_read(ex, 1, 2);
			break;
		case IBV_WR_ATOMIC_CMP_AND_SWP:
			ibv_wr_atomic_cmp_swp(ex, 1, 2, 3, 4);
			break;
		case IBV_WR_ATOMIC_FETCH_AND_ADD:
			ibv_wr_atomic_fetch_add(ex, 1, 2, 3);
			break;
		case IBV_WR_LOCAL_INV:
			ibv_wr_local_inv(ex, 1);
			break;
		case IBV_WR_FLUSH:
			ibv_wr_flush(ex, 1, 2, 3, 1, 1);
			break;
		default:
			ibv_wr_atomic_write(ex, 1, 2, data);
		}
		if (inl)
			ibv_wr_set_inline_data(ex, data, 8);
		else
			ibv_wr_set_sge(ex, 1, 2, 3);
		/* Reads and atomics take SGEs. */
		CHECK_RET(ibv_wr_complete(ex), !inl && i % 6 < 3 ? 0 : EINVAL);
		CHECK_EQ(fake_posted(&fqp->sq), !inl && i % 6 < 3);
		while (fake_posted(&fqp->sq))
			CHECK_EQ(fake_take(&fqp->sq, 3)->num_sge, 1);
	}
	/*
	 * Without a builder, the setters have nothing to change, least of all
	 * the last WQE of the batch before, which belongs to the kernel.
	 */
	start(4, 0);
	ibv_wr_send(ex);
	ibv_wr_set_sge_list(ex, 1, list);
	CHECK_OK(ibv_wr_complete(ex));
	start(5, 0);
	ibv_wr_set_sge(ex, 1, 2, 3);
	ibv_wr_set_inline_data(ex, data, 8);
	CHECK_OK(ibv_wr_complete(ex));
	CHECK_EQ(fake_posted(&fqp->sq), 1);
	wqe = fake_take(&fqp->sq, 4);
	CHECK_EQ(wqe->num_sge, 1);
	CHECK_EQ(wqe->inline_len, 0);
	CHECK_MEM(fake_data(wqe), list, sizeof(*list));
	finish();
}
