// SPDX-License-Identifier: GPL-2.0
/*
 * ibv_post_send() and ibv_bind_mw(): every opcode, lists with a bad work
 * request, a full queue, indexes that wrap, and the doorbell.
 */
#include "fake.h"

#define WRS	8

static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct fake_qp *fqp;
/* A work request of no list. */
static struct ibv_send_wr no_wr;
static struct ibv_sge sges[2] = {
	{ .addr = 0x1000, .length = 100, .lkey = 0x11 },
	{ .addr = 0x2000, .length = 0, .lkey = 0x22 },
};

static void setup(enum ibv_qp_type type)
{
	fake_open();
	pd = MUST(ibv_alloc_pd(fake.ctx));
	cq = fake_new_cq(16);
	qp = fake_new_qp(pd, cq, type, WRS);
	fqp = fake_qp(qp);
	fake_to(qp, IBV_QPS_RTS);
}

static void finish(void)
{
	CHECK_OK(ibv_destroy_qp(qp));
	CHECK_OK(ibv_destroy_cq(cq));
	CHECK_OK(ibv_dealloc_pd(pd));
	fake_close();
}

static struct ibv_send_wr *sends(int n)
{
	static struct ibv_send_wr wr[WRS + 4];
	int i;

	for (i = 0; i < n; i++)
		wr[i] = (struct ibv_send_wr){
			.wr_id = i, .opcode = IBV_WR_SEND, .sg_list = sges,
			.num_sge = 2, .next = i < n - 1 ? &wr[i + 1] : NULL,
		};
	return wr;
}

/* Post, and check the result and bad_wr. */
static void post(struct ibv_send_wr *wr, int err, struct ibv_send_wr *want)
{
	struct ibv_send_wr *bad = &no_wr;

	CHECK_RET(ibv_post_send(qp, wr, &bad), err);
	CHECK(bad == (want ? want : &no_wr));
}

/* Check the WQE of one work request, whose union has these bytes. */
static struct keel_uapi_send_wqe *check_wqe(const struct ibv_send_wr *wr,
					    uint32_t imm, const void *want,
					    size_t len)
{
	struct keel_uapi_send_wqe *wqe = fake_take(&fqp->sq, wr->wr_id);

	CHECK_EQ(wqe->opcode, wr->opcode);
	CHECK_EQ(wqe->flags, wr->send_flags);
	CHECK_EQ(wqe->imm, imm);
	if (len)
		CHECK_MEM(wqe->reserved, want, len);
	CHECK_ALL(wqe->reserved + len, 0, sizeof(wqe->reserved) - len);
	return wqe;
}

static void check_sges(struct keel_uapi_send_wqe *wqe, int n)
{
	CHECK_EQ(wqe->num_sge, n);
	CHECK_EQ(wqe->inline_len, 0);
	CHECK_MEM(fake_data(wqe), sges, n * sizeof(*sges));
}

#define IMM	((1U << IBV_WR_SEND_WITH_IMM) |				\
		 (1U << IBV_WR_SEND_WITH_INV) |				\
		 (1U << IBV_WR_RDMA_WRITE_WITH_IMM))

TEST(opcodes, "DEV-4", "each opcode has the members that the contract names in its WQE, and zeros elsewhere")
{
	static const enum ibv_wr_opcode plain[] = {
		IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_SEND_WITH_INV
	};
	static const enum ibv_wr_opcode rdma[] = {
		IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
		IBV_WR_ATOMIC_WRITE
	};
	static const enum ibv_wr_opcode atomic[] = {
		IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD
	};
	struct keel_uapi_send_wqe want = {};
	struct ibv_send_wr wr = {
		.wr_id = 0x1122334455667788, .sg_list = sges, .num_sge = 2,
		.invalidate_rkey = 0x99887766,
		.send_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE,
	};
	int i;

	setup(IBV_QPT_RC);
	/* Bytes of older WQEs must not remain. */
	memset(fake_slot(&fqp->sq, 0), 0xff, WRS * fqp->sq.stride);
	for (i = 0; i < 3; i++) {
		wr.opcode = plain[i];
		post(&wr, 0, NULL);
		check_sges(check_wqe(&wr, IMM >> wr.opcode & 1 ?
				     wr.invalidate_rkey : 0, NULL, 0), 2);
	}
	wr.wr.rdma.remote_addr = 0x123456789abc;
	wr.wr.rdma.rkey = 0x7777;
	want.rdma.remote_addr = 0x123456789abc;
	want.rdma.rkey = 0x7777;
	for (i = 0; i < 4; i++) {
		wr.opcode = rdma[i];
		post(&wr, 0, NULL);
		check_sges(check_wqe(&wr, IMM >> wr.opcode & 1 ?
				     wr.invalidate_rkey : 0, &want.rdma,
				     sizeof(want.rdma)), 2);
	}
	wr.wr.atomic.remote_addr = 0xcba987654321;
	wr.wr.atomic.compare_add = 0x1111111122222222;
	wr.wr.atomic.swap = 0x3333333344444444;
	wr.wr.atomic.rkey = 0x8888;
	want.atomic.remote_addr = 0xcba987654321;
	want.atomic.compare_add = 0x1111111122222222;
	want.atomic.swap = 0x3333333344444444;
	want.atomic.rkey = 0x8888;
	want.atomic.reserved = 0;
	for (i = 0; i < 2; i++) {
		wr.opcode = atomic[i];
		post(&wr, 0, NULL);
		check_sges(check_wqe(&wr, 0, &want.atomic,
				     sizeof(want.atomic)), 2);
	}
	wr.opcode = IBV_WR_LOCAL_INV;
	post(&wr, 0, NULL);
	CHECK_EQ(check_wqe(&wr, wr.invalidate_rkey, NULL, 0)->num_sge, 0);
	CHECK_EQ(fqp->doorbells, 10);
	CHECK_EQ(fake_posted(&fqp->sq), 0);
	finish();
}

TEST(bind, "DEV-4", "a bind of a type 2 window has its range and both rkeys, and no type 1 window is bound")
{
	struct ibv_mr mr = { .lkey = 0x55 };
	struct ibv_mw mw = { .rkey = 0x1234, .type = IBV_MW_TYPE_2 };
	struct keel_uapi_send_wqe want = {
		.bind = { .addr = 0xaaaa, .length = 0xbbbb, .lkey = 0x55,
			  .rkey = 0x1234, .new_rkey = 0x1299,
			  .access = IBV_ACCESS_REMOTE_READ },
	};
	struct ibv_send_wr wr = {
		.wr_id = 3, .opcode = IBV_WR_BIND_MW,
		.bind_mw = { .mw = &mw, .rkey = 0x1299, .bind_info = {
			.mr = &mr, .addr = 0xaaaa, .length = 0xbbbb,
			.mw_access_flags = IBV_ACCESS_REMOTE_READ } },
	};

	setup(IBV_QPT_RC);
	post(&wr, 0, NULL);
	check_wqe(&wr, 0, &want.bind, sizeof(want.bind));
	CHECK_EQ(mw.rkey, 0x1234);
	/* Without a region, as to unbind it. */
	wr.bind_mw.bind_info.mr = NULL;
	want.bind.lkey = 0;
	post(&wr, 0, NULL);
	check_wqe(&wr, 0, &want.bind, sizeof(want.bind));
	mw.type = IBV_MW_TYPE_1;
	post(&wr, EINVAL, &wr);
	wr.bind_mw.mw = NULL;
	post(&wr, EINVAL, &wr);
	CHECK_EQ(fake_posted(&fqp->sq), 0);
	CHECK_EQ(fqp->doorbells, 2);
	finish();
}

TEST(bind_mw, "DEV-4", "ibv_bind_mw() binds a type 1 window with the next rkey, which it takes over on success only")
{
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	struct ibv_mw_bind bind = { .wr_id = 9,
				    .send_flags = IBV_SEND_SIGNALED };
	struct keel_uapi_send_wqe *wqe;
	int i;

	setup(IBV_QPT_RC);
	mr = MUST(ibv_reg_mr(pd, sges, 64, 0));
	mw = MUST(ibv_alloc_mw(pd, IBV_MW_TYPE_1));
	bind.bind_info = (struct ibv_mw_bind_info){ .mr = mr, .addr = 16,
						    .length = 32 };
	mw->rkey = 0x33ff;
	CHECK_OK(ibv_bind_mw(qp, mw, &bind));
	/* Only its lower 8 bits count up. */
	CHECK_EQ(mw->rkey, 0x3300);
	wqe = fake_take(&fqp->sq, 9);
	CHECK_EQ(wqe->opcode, IBV_WR_BIND_MW);
	CHECK_EQ(wqe->flags, IBV_SEND_SIGNALED);
	CHECK_EQ(wqe->bind.rkey, 0x33ff);
	CHECK_EQ(wqe->bind.new_rkey, 0x3300);
	CHECK_EQ(wqe->bind.lkey, mr->lkey);
	CHECK_EQ(wqe->bind.addr, 16);
	CHECK_EQ(wqe->bind.length, 32);
	CHECK_EQ(wqe->bind.flags, KEEL_BIND_F_TYPE_1);
	CHECK_EQ(wqe->bind.reserved, 0);
	CHECK_EQ(fqp->doorbells, 1);

	bind.send_flags = IBV_SEND_INLINE;
	CHECK_RET(ibv_bind_mw(qp, mw, &bind), EINVAL);
	bind.send_flags = 0;
	for (i = 0; i < WRS; i++)
		CHECK_OK(ibv_bind_mw(qp, mw, &bind));
	CHECK_EQ(mw->rkey, 0x3300 + WRS);
	CHECK_RET(ibv_bind_mw(qp, mw, &bind), ENOMEM);
	CHECK_EQ(mw->rkey, 0x3300 + WRS);
	fake_gone();
	CHECK_RET(ibv_bind_mw(qp, mw, &bind), EIO);
	qp->state = IBV_QPS_RTR;
	CHECK_RET(ibv_bind_mw(qp, mw, &bind), EINVAL);
	CHECK_EQ(mw->rkey, 0x3300 + WRS);
	CHECK_EQ(fake_posted(&fqp->sq), WRS);
	CHECK_OK(ibv_dealloc_mw(mw));
	CHECK_OK(ibv_dereg_mr(mr));
	finish();
}

TEST(unsupported, "DEV-4", "an opcode that the QP type does not support, an unknown opcode or flag and a flush are refused")
{
	static const struct {
		enum ibv_qp_type type;
		unsigned int opcodes;
	} types[] = {
		{ IBV_QPT_RC, 0xc3ff }, { IBV_QPT_UC, 0x018f },
		{ IBV_QPT_UD, 0x000c }, { IBV_QPT_XRC_SEND, 0xc3ff },
	};
	struct keel_ah ah = {};
	struct ibv_mw mw = { .type = IBV_MW_TYPE_2 };
	struct ibv_send_wr wr;
	unsigned int op;
	bool good;
	size_t i;

	for (i = 0; i < sizeof(types) / sizeof(*types); i++) {
		setup(types[i].type);
		for (op = 0; op < 70; op++) {
			wr = (struct ibv_send_wr){ .opcode = op };
			if (op == IBV_WR_BIND_MW)
				wr.bind_mw.mw = &mw;
			else
				wr.wr.ud.ah = &ah.ibv_ah;
			good = op != IBV_WR_FLUSH && op < 16 &&
			       types[i].opcodes >> op & 1;
			post(&wr, good ? 0 : EINVAL, good ? NULL : &wr);
			CHECK_EQ(fake_posted(&fqp->sq), good);
			if (good)
				CHECK_EQ(fake_take(&fqp->sq, 0)->opcode, op);
		}
		wr = (struct ibv_send_wr){ .opcode = -1 };
		post(&wr, EINVAL, &wr);
		wr = (struct ibv_send_wr){ .opcode = IBV_WR_SEND };
		wr.wr.ud.ah = &ah.ibv_ah;
		for (op = IBV_SEND_IP_CSUM; op; op <<= 1) {
			wr.send_flags = op;
			post(&wr, EINVAL, &wr);
		}
		CHECK_EQ(fake_posted(&fqp->sq), 0);
		finish();
	}
}

TEST(address, "DEV-4", "a UD send has the number of its address handle, and an XRC send that of the SRQ")
{
	struct ibv_ah_attr attr = {};
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND };
	struct keel_uapi_send_wqe *wqe;
	struct ibv_ah *ah;

	setup(IBV_QPT_UD);
	ah = MUST(ibv_create_ah(pd, &attr));
	post(&wr, EINVAL, &wr);
	CHECK_EQ(fake_posted(&fqp->sq), 0);
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = 0x123;
	wr.wr.ud.remote_qkey = 0x456;
	post(&wr, 0, NULL);
	wqe = fake_take(&fqp->sq, 0);
	CHECK_EQ(wqe->ud.ah, 0xa4);
	CHECK_EQ(wqe->ud.qpn, 0x123);
	CHECK_EQ(wqe->ud.qkey, 0x456);
	CHECK_EQ(wqe->srqn, 0);
	CHECK_OK(ibv_destroy_ah(ah));
	finish();

	setup(IBV_QPT_XRC_SEND);
	wr.wr.ud.ah = NULL;
	wr.qp_type.xrc.remote_srqn = 0x789;
	post(&wr, 0, NULL);
	wqe = fake_take(&fqp->sq, 0);
	CHECK_EQ(wqe->srqn, 0x789);
	CHECK_ALL(wqe->reserved, 0, sizeof(wqe->reserved));
	finish();
	setup(IBV_QPT_RC);
	post(&wr, 0, NULL);
	CHECK_EQ(fake_take(&fqp->sq, 0)->srqn, 0);
	finish();
}

TEST(states, "DEV-4", "a QP before RTS refuses the whole list, and each later state takes it")
{
	static const enum ibv_qp_state states[] = {
		IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS,
		IBV_QPS_SQD, IBV_QPS_SQE, IBV_QPS_ERR
	};
	struct ibv_send_wr *wr = sends(2);
	size_t i;

	setup(IBV_QPT_RC);
	for (i = 0; i < 7; i++) {
		qp->state = states[i];
		post(wr, i < 3 ? EINVAL : 0, i < 3 ? wr : NULL);
		CHECK_EQ(fake_posted(&fqp->sq), i < 3 ? 0 : 2);
		CHECK_EQ(fqp->doorbells, i < 3 ? 0 : i - 2);
		while (fake_posted(&fqp->sq))
			fake_advance(&fqp->sq);
	}
	/* An empty list posts nothing, and rings no doorbell. */
	post(NULL, 0, NULL);
	CHECK_EQ(fqp->doorbells, 4);
	finish();
}
