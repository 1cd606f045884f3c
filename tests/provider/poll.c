// SPDX-License-Identifier: GPL-2.0
/*
 * Polling: ibv_poll_cq(), the extended functions and every member that they
 * read, indexes that wrap, and errors of the CQ.
 */
#include "fake.h"

#define CQES	8

/* A CQE whose members all differ. */
static const struct keel_uapi_cqe full = {
	.wr_id = 0x0102030405060708,
	.ts = 0x1112131415161718,
	.wall = 0x2122232425262728,
	.byte_len = 0x31323334,
	.imm = 0x41424344,
	.qp_num = 0x515253,
	.src_qp = 0x616263,
	.vendor_err = 0x71727374,
	.pkey_index = 0x8182,
	.slid = 0x9192,
	.status = IBV_WC_REM_ACCESS_ERR,
	.opcode = IBV_WC_RECV_RDMA_WITH_IMM,
	.sl = 0xa1,
};

static const struct {
	uint8_t cqe;
	unsigned int wc;
} flags[] = {
	{ 0, 0 },
	{ KEEL_CQE_F_GRH, IBV_WC_GRH },
	{ KEEL_CQE_F_IMM, IBV_WC_WITH_IMM },
	{ KEEL_CQE_F_INV, IBV_WC_WITH_INV },
	{ KEEL_CQE_F_GRH | KEEL_CQE_F_IMM | KEEL_CQE_F_IPV4,
	  IBV_WC_GRH | IBV_WC_WITH_IMM },
	{ KEEL_CQE_F_IPV4, 0 },
};

#define ALL_FLAGS	(IBV_WC_STANDARD_FLAGS |			\
			 IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |		\
			 IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)

static struct ibv_cq *cq;
static struct ibv_cq_ex *ex;

static void setup(uint64_t wc_flags, uint32_t cq_flags)
{
	fake_open();
	ex = fake_new_cq_ex(CQES, wc_flags, cq_flags);
	cq = ibv_cq_ex_to_cq(ex);
}

static void finish(void)
{
	CHECK_OK(ibv_destroy_cq(cq));
	fake_close();
}

/* Poll at most @room, and check that these wr_ids arrive. */
static void poll(int room, uint64_t first, int n)
{
	struct ibv_wc wc[2 * CQES];
	int i;

	memset(wc, 0xff, sizeof(wc));
	CHECK_EQ(ibv_poll_cq(cq, room, wc), n);
	for (i = 0; i < n; i++)
		CHECK_EQ(wc[i].wr_id, first + i);
	CHECK_ALL(&wc[n], 0xff, (2 * CQES - n) * sizeof(*wc));
}

TEST(members, "DEV-2", "ibv_poll_cq() returns every member of a CQE, and no service level of the path")
{
	struct keel_uapi_cqe cqe = full;
	struct ibv_wc wc;
	size_t i;

	setup(0, 0);
	for (i = 0; i < sizeof(flags) / sizeof(*flags); i++) {
		cqe.flags = flags[i].cqe;
		CHECK_OK(fake_add(cq, &cqe, false));
		memset(&wc, 0xff, sizeof(wc));
		CHECK_EQ(ibv_poll_cq(cq, 1, &wc), 1);
		CHECK(wc.wr_id == full.wr_id);
		CHECK_EQ(wc.status, IBV_WC_REM_ACCESS_ERR);
		CHECK_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
		CHECK_EQ(wc.vendor_err, 0x71727374);
		CHECK_EQ(wc.byte_len, 0x31323334);
		CHECK_EQ(wc.imm_data, (__force __be32)0x41424344);
		CHECK_EQ(wc.invalidated_rkey, 0x41424344);
		CHECK_EQ(wc.qp_num, 0x515253);
		CHECK_EQ(wc.src_qp, 0x616263);
		CHECK_EQ(wc.wc_flags, flags[i].wc);
		CHECK_EQ(wc.pkey_index, 0x8182);
		CHECK_EQ(wc.slid, 0x9192);
		CHECK_EQ(wc.sl, 0xa1);
		CHECK_EQ(wc.dlid_path_bits, 0);
	}
	finish();
}

TEST(members_ex, "DEV-2", "each ibv_wc_read_*() returns its member, timestamps included")
{
	struct ibv_poll_cq_attr attr = {};
	struct keel_uapi_cqe cqe = full;
	size_t i;

	setup(ALL_FLAGS, 0);
	for (i = 0; i < sizeof(flags) / sizeof(*flags); i++) {
		cqe.flags = flags[i].cqe;
		CHECK_OK(fake_add(cq, &cqe, false));
		CHECK_OK(ibv_start_poll(ex, &attr));
		CHECK(ex->wr_id == full.wr_id);
		CHECK_EQ(ex->status, IBV_WC_REM_ACCESS_ERR);
		CHECK_EQ(ibv_wc_read_opcode(ex), IBV_WC_RECV_RDMA_WITH_IMM);
		CHECK_EQ(ibv_wc_read_vendor_err(ex), 0x71727374);
		CHECK_EQ(ibv_wc_read_byte_len(ex), 0x31323334);
		CHECK_EQ(ibv_wc_read_imm_data(ex), (__force __be32)0x41424344);
		CHECK_EQ(ibv_wc_read_invalidated_rkey(ex), 0x41424344);
		CHECK_EQ(ibv_wc_read_qp_num(ex), 0x515253);
		CHECK_EQ(ibv_wc_read_src_qp(ex), 0x616263);
		CHECK_EQ(ibv_wc_read_wc_flags(ex), flags[i].wc);
		CHECK_EQ(ibv_wc_read_slid(ex), 0x9192);
		CHECK_EQ(ibv_wc_read_sl(ex), 0xa1);
		CHECK_EQ(ibv_wc_read_dlid_path_bits(ex), 0);
		CHECK(ibv_wc_read_completion_ts(ex) == full.ts);
		CHECK(ibv_wc_read_completion_wallclock_ns(ex) == full.wall);
		ibv_end_poll(ex);
	}
	CHECK_EQ(fake_cq(cq)->flags, KEEL_CQ_F_WALLCLOCK);
	finish();
}

TEST(requested, "DEV-2", "a CQ has the read functions that were requested, and those that every CQ has")
{
	static const struct {
		uint64_t flag;
		size_t offset;
	} ops[] = {
#define OP(flag, name)	\
	{ IBV_WC_EX_WITH_##flag, offsetof(struct ibv_cq_ex, read_##name) }
		OP(BYTE_LEN, byte_len), OP(IMM, imm_data), OP(QP_NUM, qp_num),
		OP(SRC_QP, src_qp), OP(SLID, slid), OP(SL, sl),
		OP(DLID_PATH_BITS, dlid_path_bits),
		OP(COMPLETION_TIMESTAMP, completion_ts),
		OP(COMPLETION_TIMESTAMP_WALLCLOCK, completion_wallclock_ns),
	};
	void *fn;
	size_t i, j;

	for (i = 0; i < sizeof(ops) / sizeof(*ops); i++) {
		setup(ops[i].flag, 0);
		for (j = 0; j < sizeof(ops) / sizeof(*ops); j++) {
			memcpy(&fn, (char *)ex + ops[j].offset, sizeof(fn));
			CHECK_EQ(!!fn, i == j);
		}
		CHECK(ex->read_opcode && ex->read_vendor_err &&
		      ex->read_wc_flags);
		/* The kernel learns which timestamps to take. */
		CHECK_EQ(fake_cq(cq)->flags, i == 8 ? KEEL_CQ_F_WALLCLOCK : 0);
		CHECK(fake_cq(cq)->wc_flags == ops[i].flag);
		finish();
	}
}

TEST(room, "DEV-2", "ibv_poll_cq() returns as many CQEs as fit or are there, in order, each once, at any index")
{
	static const uint32_t starts[] = { 0, 3, 0x7ffffffe, 0xfffffff9,
					   0xffffffff };
	size_t i;

	setup(0, 0);
	for (i = 0; i < sizeof(starts) / sizeof(*starts); i++) {
		fake_at(&to_kcq(cq)->ring, &fake_cq(cq)->ring, starts[i]);
		poll(4, 0, 0);
		fake_wcs(cq, 0, CQES);
		poll(0, 0, 0);
		poll(-1, 0, 0);
		CHECK_EQ(fake_queued(&fake_cq(cq)->ring), CQES);
		poll(3, 0, 3);
		CHECK_EQ(fake_queued(&fake_cq(cq)->ring), CQES - 3);
		fake_wcs(cq, CQES, 3);
		poll(CQES, 3, CQES);
		poll(CQES, 0, 0);
		fake_wcs(cq, 100, 1);
		poll(2 * CQES, 100, 1);
	}
	finish();
}

TEST(iterate, "DEV-2", "start, next and end poll iterate over the CQEs in order, and end poll consumes the current one")
{
	static const uint32_t starts[] = { 0, 0x7fffffff, 0xfffffffc };
	struct ibv_poll_cq_attr attr = {};
	struct fake_ring *ring;
	uint64_t id;
	size_t i;

	setup(0, 0);
	ring = &fake_cq(cq)->ring;
	for (i = 0; i < 3; i++) {
		fake_at(&to_kcq(cq)->ring, ring, starts[i]);
		CHECK_RET(ibv_start_poll(ex, &attr), ENOENT);
		/* The CQ is not locked now. */
		CHECK_RET(ibv_start_poll(ex, &attr), ENOENT);
		fake_wcs(cq, 0, CQES);
		CHECK_OK(ibv_start_poll(ex, &attr));
		CHECK_EQ(ex->wr_id, 0);
		CHECK_EQ(fake_queued(ring), CQES);
		for (id = 1; id < 4; id++) {
			CHECK_OK(ibv_next_poll(ex));
			CHECK_EQ(ex->wr_id, id);
			/* Those before it can be overwritten. */
			CHECK_EQ(fake_queued(ring), CQES - id);
		}
		ibv_end_poll(ex);
		CHECK_EQ(fake_queued(ring), CQES - 4);
		poll(1, 4, 1);
		CHECK_OK(ibv_start_poll(ex, &attr));
		CHECK_EQ(ex->wr_id, 5);
		CHECK_OK(ibv_next_poll(ex));
		CHECK_OK(ibv_next_poll(ex));
		CHECK_RET(ibv_next_poll(ex), ENOENT);
		CHECK_EQ(fake_queued(ring), 0);
		/* The kernel adds one meanwhile. */
		fake_wcs(cq, 50, 1);
		CHECK_OK(ibv_next_poll(ex));
		CHECK_EQ(ex->wr_id, 50);
		CHECK_RET(ibv_next_poll(ex), ENOENT);
		ibv_end_poll(ex);
		CHECK_EQ(fake_queued(ring), 0);
		poll(1, 0, 0);
	}
	finish();
}

TEST(start_attr, "DEV-4", "ibv_start_poll() refuses an unknown comp_mask, and takes no lock then")
{
	struct ibv_poll_cq_attr attr = { .comp_mask = 1 };

	setup(0, 0);
	fake_wcs(cq, 1, 1);
	CHECK_RET(ibv_start_poll(ex, &attr), EINVAL);
	CHECK_EQ(fake_locks, 0);
	poll(1, 1, 1);
	finish();
}

TEST(overrun, "DEV-4", "CQEs that were added before an overrun can be polled, and the CQ is empty afterwards")
{
	struct keel_uapi_cqe cqe = { .wr_id = 99 };

	setup(0, 0);
	fake_wcs(cq, 0, CQES);
	CHECK_RET(fake_add(cq, &cqe, false), EIO);
	poll(CQES, 0, CQES);
	/* No CQE is added any more. */
	CHECK_RET(fake_add(cq, &cqe, false), EIO);
	poll(CQES, 0, 0);
	finish();
}

TEST(invalid_index, "DEV-4", "a producer index that claims more CQEs than the ring has is EIO in every function, and changes nothing")
{
	struct ibv_poll_cq_attr attr = {};
	struct fake_ring *ring;
	struct ibv_wc wc;

	setup(0, 0);
	ring = &fake_cq(cq)->ring;
	fake_at(&to_kcq(cq)->ring, ring, -3U);
	fake_wcs(cq, 0, CQES);
	ring->head->kernel++;
	CHECK_EQ(ibv_poll_cq(cq, 1, &wc), -EIO);
	CHECK_RET(ibv_start_poll(ex, &attr), EIO);
	CHECK_EQ(ring->head->user, -3U);
	ring->head->kernel = -4U;
	CHECK_EQ(ibv_poll_cq(cq, 1, &wc), -EIO);
	ring->head->kernel = -3U + CQES;
	CHECK_OK(ibv_start_poll(ex, &attr));
	ring->head->kernel += 2;
	CHECK_RET(ibv_next_poll(ex), EIO);
	ibv_end_poll(ex);
	CHECK_EQ(ring->head->user, -2U);
	ring->head->kernel -= 2;
	poll(CQES, 1, CQES - 1);
	finish();
}

TEST(gone, "DEV-3", "after device removal, CQEs that are there can be polled, and then every function returns EIO")
{
	struct ibv_poll_cq_attr attr = {};
	struct ibv_wc wc;

	setup(0, 0);
	fake_wcs(cq, 0, 4);
	fake_gone();
	poll(2, 0, 2);
	CHECK_OK(ibv_start_poll(ex, &attr));
	CHECK_EQ(ex->wr_id, 2);
	CHECK_OK(ibv_next_poll(ex));
	CHECK_EQ(ex->wr_id, 3);
	CHECK_RET(ibv_next_poll(ex), EIO);
	ibv_end_poll(ex);
	CHECK_RET(ibv_start_poll(ex, &attr), EIO);
	CHECK_EQ(ibv_poll_cq(cq, 1, &wc), -EIO);
	CHECK_RET(ibv_req_notify_cq(cq, 0), EIO);
	finish();
}

TEST(lock, "PDM-4", "polling takes the lock once, and none in a single-threaded CQ")
{
	struct ibv_poll_cq_attr attr = {};
	pthread_spinlock_t *spin;
	int single;

	for (single = 0; single < 2; single++) {
		setup(0, single ? IBV_CREATE_CQ_ATTR_SINGLE_THREADED : 0);
		spin = &to_kcq(cq)->lock.spin;
		fake_locks = 0;
		fake_wcs(cq, 0, 4);
		poll(1, 0, 1);
		CHECK_EQ(fake_locks, !single);
		CHECK_OK(ibv_start_poll(ex, &attr));
		CHECK_EQ(pthread_spin_trylock(spin), single ? 0 : EBUSY);
		CHECK_OK(ibv_next_poll(ex));
		if (single)
			pthread_spin_unlock(spin);
		ibv_end_poll(ex);
		CHECK_EQ(fake_locks, single ? 0 : 2);
		CHECK_OK(pthread_spin_trylock(spin));
		pthread_spin_unlock(spin);
		CHECK_OK(ibv_req_notify_cq(cq, 0));
		CHECK_EQ(fake_locks, single ? 0 : 3);
		finish();
	}
}
