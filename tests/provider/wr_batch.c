// SPDX-License-Identifier: GPL-2.0
/*
 * Batches of the extended post API: an error in the middle, abort, a full queue,
 * indexes that wrap, addresses, opcodes of QP types.
 */
#include "fake.h"

#define WRS	8

static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_qp_ex *ex;
static struct fake_qp *fqp;

static void setup_signaled(enum ibv_qp_type type, int sig_all)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = type, .send_ops_flags = IBV_QP_EX_WITH_SEND,
		.sq_sig_all = sig_all,
		.cap = { .max_send_wr = WRS, .max_recv_wr = 1,
			 .max_send_sge = 4, .max_recv_sge = 1 },
	};

	fake_open();
	pd = MUST(ibv_alloc_pd(fake.ctx));
	cq = fake_new_cq(16);
	qp = fake_new_qp_ex(pd, cq, &attr);
	ex = MUST(ibv_qp_to_qp_ex(qp));
	fqp = fake_qp(qp);
}

static void setup(enum ibv_qp_type type)
{
	setup_signaled(type, 0);
}

static void finish(void)
{
	CHECK_OK(ibv_destroy_qp(qp));
	CHECK_OK(ibv_destroy_cq(cq));
	CHECK_OK(ibv_dealloc_pd(pd));
	fake_close();
}

/* Build sends with these wr_ids. */
static void sends(uint64_t first, int n)
{
	int i;

	for (i = 0; i < n; i++) {
		ex->wr_id = first + i;
		ex->wr_flags = 0;
		ibv_wr_send(ex);
		ibv_wr_set_sge(ex, 1, 2, 3);
	}
}

static void check_queue(uint64_t first, uint32_t n)
{
	uint32_t i;

	CHECK_EQ(fake_posted(&fqp->sq), n);
	for (i = 0; i < n; i++)
		fake_take(&fqp->sq, first + i);
}

static void check_unlocked(void)
{
	CHECK_OK(pthread_spin_trylock(&to_kqp(qp)->sq.lock.spin));
	pthread_spin_unlock(&to_kqp(qp)->sq.lock.spin);
}

static void bad_flag(void)
{
	ex->wr_flags = IBV_SEND_IP_CSUM;
	ibv_wr_send(ex);
	ex->wr_flags = 0;
}

static void bad_sges(void)
{
	struct ibv_sge sges[5] = {};

	ibv_wr_send(ex);
	ibv_wr_set_sge_list(ex, 5, sges);
}

static void bad_inline(void)
{
	static char data[65];

	ibv_wr_send(ex);
	ibv_wr_set_inline_data(ex, data, 65);
}

static void bad_address(void)
{
	struct ibv_ah ah = {};

	ibv_wr_send(ex);
	ibv_wr_set_ud_addr(ex, &ah, 1, 2);
}

static void bad_srqn(void)
{
	ibv_wr_send(ex);
	ibv_wr_set_xrc_srqn(ex, 1);
}

TEST(middle, "DEV-4", "after an error anywhere in a batch, the batch posts nothing, and the next batch is as usual")
{
	static void (*const bad[])(void) = {
		bad_flag, bad_sges, bad_inline, bad_address, bad_srqn,
	};
	unsigned int rung = 0;
	size_t i;
	int at;

	setup(IBV_QPT_RC);
	fake_at(&to_kqp(qp)->sq.ring, &fqp->sq, -5U);
	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		for (at = 0; at < 4; at++) {
			ibv_wr_start(ex);
			sends(0, at);
			bad[i]();
			sends(at, 4 - at);
			CHECK_RET(ibv_wr_complete(ex), EINVAL);
			check_unlocked();
			check_queue(0, 0);
			CHECK_EQ(fqp->doorbells, rung);
			ibv_wr_start(ex);
			sends(50, 2);
			CHECK_OK(ibv_wr_complete(ex));
			check_queue(50, 2);
			CHECK_EQ(fqp->doorbells, ++rung);
		}
	}
	/* keel supports TSO on no QP type: libibverbs has no such call. */
	CHECK(!ex->wr_send_tso);
	finish();
}

TEST(abort, "DEV-4", "an aborted batch leaves nothing, whether it had an error or not, and drops the lock")
{
	setup(IBV_QPT_RC);
	fake_at(&to_kqp(qp)->sq.ring, &fqp->sq, -1U);
	ibv_wr_start(ex);
	sends(0, 3);
	ibv_wr_abort(ex);
	check_unlocked();
	check_queue(0, 0);
	ibv_wr_start(ex);
	sends(0, 3);
	bad_flag();
	ibv_wr_abort(ex);
	check_unlocked();
	ibv_wr_start(ex);
	ibv_wr_abort(ex);
	CHECK_EQ(fqp->doorbells, 0);
	ibv_wr_start(ex);
	sends(7, WRS);
	CHECK_OK(ibv_wr_complete(ex));
	check_queue(7, WRS);
	finish();
}

TEST(empty, "DEV-4", "an empty batch rings no doorbell, and a batch in a state before RTS is refused")
{
	static const enum ibv_qp_state states[] = {
		IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS,
		IBV_QPS_SQD, IBV_QPS_SQE, IBV_QPS_ERR
	};
	int i;

	setup(IBV_QPT_RC);
	ibv_wr_start(ex);
	CHECK_OK(ibv_wr_complete(ex));
	CHECK_EQ(fqp->doorbells, 0);
	for (i = 0; i < 7; i++) {
		qp->state = states[i];
		ibv_wr_start(ex);
		sends(i, 1);
		CHECK_RET(ibv_wr_complete(ex), i < 3 ? EINVAL : 0);
		check_queue(i, i >= 3);
		CHECK_EQ(fqp->doorbells, i < 3 ? 0 : i - 2);
	}
	finish();
}

TEST(full, "DEV-4", "a batch that does not fit posts nothing, at any index, until the kernel takes enough")
{
	static const uint32_t starts[] = { 0, 5, 0x7ffffffe, 0xfffffff8,
					   0xfffffffd, 0xffffffff };
	size_t i;

	setup(IBV_QPT_RC);
	for (i = 0; i < sizeof(starts) / sizeof(*starts); i++) {
		fake_at(&to_kqp(qp)->sq.ring, &fqp->sq, starts[i]);
		ibv_wr_start(ex);
		sends(0, WRS + 1);
		CHECK_RET(ibv_wr_complete(ex), ENOMEM);
		check_queue(0, 0);
		ibv_wr_start(ex);
		sends(0, WRS - 1);
		CHECK_OK(ibv_wr_complete(ex));
		ibv_wr_start(ex);
		sends(WRS - 1, 2);
		CHECK_RET(ibv_wr_complete(ex), ENOMEM);
		CHECK_EQ(fake_posted(&fqp->sq), WRS - 1);
		fake_take(&fqp->sq, 0);
		/* The first error counts: ENOMEM, not EINVAL. */
		ibv_wr_start(ex);
		sends(WRS - 1, 3);
		bad_flag();
		CHECK_RET(ibv_wr_complete(ex), ENOMEM);
		ibv_wr_start(ex);
		sends(WRS - 1, 2);
		CHECK_OK(ibv_wr_complete(ex));
		check_queue(1, WRS);
	}
	finish();
}

TEST(taken_meanwhile, "DEV-4", "the kernel may take WQEs while a batch is built, and sees none of it before ibv_wr_complete()")
{
	int i;

	setup(IBV_QPT_RC);
	fake_at(&to_kqp(qp)->sq.ring, &fqp->sq, -20U);
	ibv_wr_start(ex);
	sends(0, WRS);
	CHECK_OK(ibv_wr_complete(ex));
	for (i = 0; i < 10; i++) {
		ibv_wr_start(ex);
		/* The kernel takes one, and makes room for one. */
		fake_take(&fqp->sq, WRS * i);
		sends(WRS * (i + 1), 1);
		CHECK_EQ(fake_posted(&fqp->sq), WRS - 1);
		check_queue(WRS * i + 1, WRS - 1);
		sends(WRS * (i + 1) + 1, WRS - 1);
		CHECK_EQ(fake_posted(&fqp->sq), 0);
		CHECK_OK(ibv_wr_complete(ex));
		CHECK_EQ(fake_posted(&fqp->sq), WRS);
	}
	check_queue(WRS * i, WRS);
	finish();
}

TEST(gone, "DEV-3", "after device removal, a batch that does not fit returns EIO, and so does the doorbell")
{
	setup(IBV_QPT_RC);
	fake_gone();
	fake.fail[FAKE_QP_DOORBELL] = EIO;
	ibv_wr_start(ex);
	sends(0, WRS);
	CHECK_RET(ibv_wr_complete(ex), EIO);
	ibv_wr_start(ex);
	sends(0, 1);
	CHECK_RET(ibv_wr_complete(ex), EIO);
	ibv_wr_start(ex);
	bad_flag();
	CHECK_RET(ibv_wr_complete(ex), EINVAL);
	check_unlocked();
	finish();
}

TEST(addresses, "DEV-4", "only UD takes an address handle, only XRC an SRQ number, and each is in its WQE")
{
	struct keel_uapi_send_wqe *wqe;
	struct ibv_ah_attr attr = {};
	struct ibv_ah *ah;

	setup(IBV_QPT_UD);
	ah = MUST(ibv_create_ah(pd, &attr));
	ibv_wr_start(ex);
	ibv_wr_set_ud_addr(ex, ah, 1, 2);
	sends(1, 1);
	ibv_wr_set_ud_addr(ex, ah, 0x123, 0x456);
	CHECK_OK(ibv_wr_complete(ex));
	wqe = fake_take(&fqp->sq, 1);
	CHECK_EQ(wqe->ud.ah, 0xa4);
	CHECK_EQ(wqe->ud.qpn, 0x123);
	CHECK_EQ(wqe->ud.qkey, 0x456);
	ibv_wr_start(ex);
	sends(1, 1);
	ibv_wr_set_ud_addr(ex, NULL, 0x123, 0x456);
	CHECK_RET(ibv_wr_complete(ex), EINVAL);
	ibv_wr_start(ex);
	bad_srqn();
	CHECK_RET(ibv_wr_complete(ex), EINVAL);
	CHECK_OK(ibv_destroy_ah(ah));
	finish();

	setup(IBV_QPT_XRC_SEND);
	ibv_wr_start(ex);
	ibv_wr_set_xrc_srqn(ex, 5);
	sends(2, 1);
	ibv_wr_set_xrc_srqn(ex, 0x789);
	CHECK_OK(ibv_wr_complete(ex));
	CHECK_EQ(fake_take(&fqp->sq, 2)->srqn, 0x789);
	finish();
}

TEST(types, "DEV-4", "every builder that the QP type does not support fails in ibv_wr_complete()")
{
	struct ibv_mw_bind_info info = {};
	struct ibv_mw mw = { .type = IBV_MW_TYPE_2 };
	uint64_t data = 0;
	int i;

	setup(IBV_QPT_UD);
	for (i = 0; i < 10; i++) {
		ibv_wr_start(ex);
		switch (i) {
		case 0:
			ibv_wr_send_inv(ex, 1);
			break;
		case 1:
			ibv_wr_local_inv(ex, 1);
			break;
		case 2:
			ibv_wr_rdma_write(ex, 1, 2);
			break;
		case 3:
			ibv_wr_rdma_write_imm(ex, 1, 2, 3);
			break;
		case 4:
			ibv_wr_rdma_read(ex, 1, 2);
			break;
		case 5:
			ibv_wr_atomic_cmp_swp(ex, 1, 2, 3, 4);
			break;
		case 6:
			ibv_wr_atomic_fetch_add(ex, 1, 2, 3);
			break;
		case 7:
			ibv_wr_atomic_write(ex, 1, 2, &data);
			break;
		case 8:
			ibv_wr_flush(ex, 1, 2, 3, 1, 1);
			break;
		default:
			ibv_wr_bind_mw(ex, &mw, 1, &info);
		}
		CHECK_RET(ibv_wr_complete(ex), EINVAL);
		check_queue(0, 0);
	}
	finish();
	/* The functions exist only if the application requests them. */
	fake_open();
	pd = MUST(ibv_alloc_pd(fake.ctx));
	cq = fake_new_cq(1);
	qp = fake_new_qp(pd, cq, IBV_QPT_RC, 1);
	CHECK(!ibv_qp_to_qp_ex(qp));
	finish();
}

TEST(lock, "PDM-4", "a batch has the lock of the send queue from ibv_wr_start() on")
{
	setup(IBV_QPT_RC);
	ibv_wr_start(ex);
	CHECK_EQ(pthread_spin_trylock(&to_kqp(qp)->sq.lock.spin), EBUSY);
	sends(0, 1);
	CHECK_EQ(pthread_spin_trylock(&to_kqp(qp)->sq.lock.spin), EBUSY);
	CHECK_OK(ibv_wr_complete(ex));
	check_unlocked();
	check_queue(0, 1);
	finish();
}

TEST(signaled, "DEV-4", "with sq_sig_all each WQE of a batch is signaled, without it those that say so")
{
	int all;

	for (all = 0; all < 2; all++) {
		setup_signaled(IBV_QPT_RC, all);
		ibv_wr_start(ex);
		sends(0, 1);
		ex->wr_id = 1;
		ex->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE;
		ibv_wr_send(ex);
		CHECK_OK(ibv_wr_complete(ex));
		CHECK_EQ(fake_take(&fqp->sq, 0)->flags,
			 all ? IBV_SEND_SIGNALED : 0);
		CHECK_EQ(fake_take(&fqp->sq, 1)->flags,
			 IBV_SEND_SIGNALED | IBV_SEND_FENCE);
		finish();
	}
}
