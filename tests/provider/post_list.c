// SPDX-License-Identifier: GPL-2.0
/*
 * Lists of send work requests: a bad one in the list, a full queue, indexes that
 * wrap, data that is too long, and a doorbell that fails.
 */
#include "fake.h"

#define WRS	8

static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct fake_qp *fqp;
static struct ibv_send_wr no_wr;
static struct ibv_sge sges[40];

static void setup(bool sig_all)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC, .sq_sig_all = sig_all,
		.cap = { .max_send_wr = WRS, .max_recv_wr = 1,
			 .max_send_sge = 2, .max_recv_sge = 1,
			 .max_inline_data = 64 },
	};
	int i;

	fake_open();
	pd = MUST(ibv_alloc_pd(fake.ctx));
	cq = fake_new_cq(16);
	attr.send_cq = cq;
	attr.recv_cq = cq;
	qp = MUST(ibv_create_qp(pd, &attr));
	CHECK_EQ(attr.cap.max_send_sge, 4);
	CHECK_EQ(attr.cap.max_inline_data, 64);
	fqp = fake_qp(qp);
	fake_to(qp, IBV_QPS_RTS);
	for (i = 0; i < 40; i++)
		sges[i] = (struct ibv_sge){ 0x1000 + i, i, 0x100 + i };
}

static void finish(void)
{
	CHECK_OK(ibv_destroy_qp(qp));
	CHECK_OK(ibv_destroy_cq(cq));
	CHECK_OK(ibv_dealloc_pd(pd));
	fake_close();
}

static struct ibv_send_wr *sends(uint64_t first, int n)
{
	static struct ibv_send_wr wr[WRS + 4];
	int i;

	for (i = 0; i < n; i++)
		wr[i] = (struct ibv_send_wr){
			.wr_id = first + i, .opcode = IBV_WR_SEND,
			.sg_list = sges, .num_sge = 1,
			.next = i < n - 1 ? &wr[i + 1] : NULL,
		};
	return wr;
}

static void post(struct ibv_send_wr *wr, int err, struct ibv_send_wr *want)
{
	struct ibv_send_wr *bad = &no_wr;

	CHECK_RET(ibv_post_send(qp, wr, &bad), err);
	CHECK(bad == (want ? want : &no_wr));
}

/* Check that exactly these wr_ids are in the queue, and take them. */
static void check_queue(uint64_t first, uint32_t n)
{
	uint32_t i;

	CHECK_EQ(fake_posted(&fqp->sq), n);
	for (i = 0; i < n; i++)
		fake_take(&fqp->sq, first + i);
}

TEST(bad_wr, "DEV-4", "of a list with a bad work request, those before it are posted with one doorbell, and none after it")
{
	struct ibv_send_wr *wr;
	unsigned int rung = 0;
	int bad;

	setup(false);
	for (bad = 0; bad < 5; bad++) {
		wr = sends(10 * bad, 5);
		wr[bad].opcode = IBV_WR_TSO;
		post(wr, EINVAL, &wr[bad]);
		check_queue(10 * bad, bad);
		rung += bad > 0;
		CHECK_EQ(fqp->doorbells, rung);
		/* The WQE of the bad one is written again by the next. */
		wr = sends(10 * bad, 5);
		wr[bad].num_sge = 5;
		post(wr, EINVAL, &wr[bad]);
		check_queue(10 * bad, bad);
		rung += bad > 0;
		CHECK_EQ(fqp->doorbells, rung);
	}
	post(sends(77, 3), 0, NULL);
	check_queue(77, 3);
	finish();
}

TEST(full, "DEV-4", "a full queue refuses the first work request that does not fit, until the kernel takes one, at any index")
{
	static const uint32_t starts[] = { 0, 3, 0x7ffffffe, 0xfffffff8,
					   0xfffffffd, 0xffffffff };
	struct ibv_send_wr *wr;
	uint64_t id;
	size_t i;

	setup(false);
	for (i = 0; i < sizeof(starts) / sizeof(*starts); i++) {
		fake_at(&to_kqp(qp)->sq.ring, &fqp->sq, starts[i]);
		wr = sends(0, WRS + 2);
		post(wr, ENOMEM, &wr[WRS]);
		CHECK_EQ(fqp->sq.head->user, starts[i] + WRS);
		wr = sends(WRS, 2);
		post(wr, ENOMEM, &wr[0]);
		/* Each WQE that the kernel takes makes room for one. */
		for (id = 0; id < 3 * WRS; id++) {
			fake_take(&fqp->sq, id);
			wr = sends(WRS + id, 2);
			post(wr, ENOMEM, &wr[1]);
		}
		check_queue(3 * WRS, WRS);
		post(sends(0, WRS), 0, NULL);
		check_queue(0, WRS);
	}
	finish();
}

TEST(kernel_index, "DEV-4", "a queue whose kernel index is invalid takes nothing")
{
	struct ibv_send_wr *wr = sends(0, 1);

	setup(false);
	fake_at(&to_kqp(qp)->sq.ring, &fqp->sq, 100);
	fqp->sq.head->kernel = 101;
	post(wr, ENOMEM, wr);
	fqp->sq.head->kernel = 100 - WRS - 1;
	post(wr, ENOMEM, wr);
	fqp->sq.head->kernel = 100 - WRS + 1;
	post(wr, 0, NULL);
	finish();
}

TEST(gone, "DEV-3", "after device removal, a full queue returns EIO, and a bad work request EINVAL")
{
	struct ibv_send_wr *wr;

	setup(false);
	post(sends(0, WRS), 0, NULL);
	fake_gone();
	wr = sends(0, 1);
	post(wr, EIO, wr);
	fake_take(&fqp->sq, 0);
	wr = sends(0, 2);
	wr[0].opcode = IBV_WR_DRIVER1;
	post(wr, EINVAL, wr);
	/* The doorbell reports the removal, of the first work request. */
	wr = sends(WRS, 1);
	fake.fail[FAKE_QP_DOORBELL] = EIO;
	post(wr, EIO, wr);
	finish();
}

TEST(doorbell, "DEV-4", "a doorbell that a signal interrupts is repeated, and after its error the list is in the queue, and bad_wr is its first work request")
{
	struct ibv_send_wr *wr = sends(0, 3);

	setup(false);
	fake.fail[FAKE_QP_DOORBELL] = EINTR;
	post(wr, 0, NULL);
	CHECK_EQ(fake.calls[FAKE_QP_DOORBELL], 2);
	CHECK_EQ(fqp->doorbells, 1);
	check_queue(0, 3);
	fake.fail[FAKE_QP_DOORBELL] = EAGAIN;
	post(wr, EAGAIN, wr);
	CHECK_EQ(fqp->doorbells, 1);
	check_queue(0, 3);
	/* The error of the list has priority. */
	wr[1].opcode = IBV_WR_TSO;
	fake.fail[FAKE_QP_DOORBELL] = EAGAIN;
	post(wr, EINVAL, &wr[1]);
	check_queue(0, 1);
	finish();
}

/* The kernel runs the queue inside of the doorbell. */
static void run(enum fake_call call, uint32_t handle)
{
	if (call != FAKE_QP_DOORBELL)
		return;
	CHECK_OK(pthread_spin_trylock(&to_kqp(qp)->sq.lock.spin));
	pthread_spin_unlock(&to_kqp(qp)->sq.lock.spin);
	check_queue(fqp->doorbells * 4 - 4, 4);
}

TEST(published, "DEV-4", "the doorbell finds all WQEs of the list in the queue")
{
	int i;

	setup(false);
	fake.hook = run;
	fake_at(&to_kqp(qp)->sq.ring, &fqp->sq, -13U);
	for (i = 0; i < 20; i++)
		post(sends(4 * i, 4), 0, NULL);
	CHECK_EQ(fqp->doorbells, 20);
	fake.hook = NULL;
	finish();
}

TEST(sges, "DEV-4", "as many SGEs as the QP was created with fit, one more or a negative number does not")
{
	struct ibv_send_wr *wr = sends(0, 1);
	struct keel_uapi_send_wqe *wqe;
	int n;

	setup(false);
	for (n = 0; n <= 4; n++) {
		wr->num_sge = n;
		wr->sg_list = n ? sges : NULL;
		post(wr, 0, NULL);
		wqe = fake_take(&fqp->sq, 0);
		CHECK_EQ(wqe->num_sge, n);
		CHECK_EQ(wqe->flags, 0);
		CHECK_MEM(fake_data(wqe), sges, n * sizeof(*sges));
	}
	wr->sg_list = sges;
	for (n = 5; n < 8; n++) {
		wr->num_sge = n;
		post(wr, EINVAL, wr);
	}
	wr->num_sge = 0x10000;
	post(wr, EINVAL, wr);
	wr->num_sge = -1;
	post(wr, EINVAL, wr);
	wr->num_sge = INT32_MIN;
	post(wr, EINVAL, wr);
	wr->num_sge = -1;
	wr->send_flags = IBV_SEND_INLINE;
	post(wr, EINVAL, wr);
	check_queue(0, 0);
	CHECK_EQ(fqp->doorbells, 5);
	finish();
}

TEST(inline_limit, "DEV-4", "inline data of several SGEs, some empty, fits up to the limit and not one byte more")
{
	struct ibv_send_wr *wr = sends(0, 1);
	struct keel_uapi_send_wqe *wqe;
	uint8_t data[80];
	int i;

	setup(false);
	for (i = 0; i < 80; i++)
		data[i] = i + 1;
	sges[0] = (struct ibv_sge){ 0, 0, 0 };
	sges[1] = (struct ibv_sge){ (uintptr_t)data, 30, 0 };
	sges[2] = (struct ibv_sge){ 8, 0, 0 };
	sges[3] = (struct ibv_sge){ (uintptr_t)data + 30, 34, 0 };
	sges[4] = (struct ibv_sge){ 0, 0, 0 };
	memset(fake_slot(&fqp->sq, 0), 0xff, WRS * fqp->sq.stride);
	wr->send_flags = IBV_SEND_INLINE | IBV_SEND_SOLICITED;
	wr->num_sge = 5;
	post(wr, 0, NULL);
	wqe = fake_take(&fqp->sq, 0);
	CHECK_EQ(wqe->inline_len, 64);
	CHECK_EQ(wqe->num_sge, 0);
	CHECK_EQ(wqe->flags, IBV_SEND_INLINE | IBV_SEND_SOLICITED);
	CHECK_MEM(fake_data(wqe), data, 64);
	wr->num_sge = 0;
	post(wr, 0, NULL);
	CHECK_EQ(fake_take(&fqp->sq, 0)->inline_len, 0);
	wr->num_sge = 5;
	for (i = 1; i < 4; i += 2) {
		sges[i].length++;
		post(wr, EINVAL, wr);
		sges[i].length--;
	}
	sges[4] = (struct ibv_sge){ (uintptr_t)data, 1, 0 };
	post(wr, EINVAL, wr);
	/* A sum that overflows 32 bits. */
	sges[3].length = UINT32_MAX - 29;
	post(wr, EINVAL, wr);
	check_queue(0, 0);
	finish();
}

TEST(inline_opcodes, "DEV-4", "operations that receive data, and those without data, refuse inline data")
{
	struct ibv_send_wr *wr = sends(0, 1);
	uint64_t data = 0x1234;
	unsigned int op;

	setup(false);
	sges[0] = (struct ibv_sge){ (uintptr_t)&data, 8, 0 };
	wr->send_flags = IBV_SEND_INLINE;
	for (op = IBV_WR_RDMA_WRITE; op <= IBV_WR_ATOMIC_FETCH_AND_ADD; op++) {
		wr->opcode = op;
		if (op < IBV_WR_RDMA_READ) {
			post(wr, 0, NULL);
			CHECK_MEM(fake_data(fake_take(&fqp->sq, 0)), &data, 8);
		} else {
			post(wr, EINVAL, wr);
		}
	}
	wr->opcode = IBV_WR_SEND_WITH_INV;
	post(wr, 0, NULL);
	CHECK_EQ(fake_take(&fqp->sq, 0)->inline_len, 8);
	wr->opcode = IBV_WR_ATOMIC_WRITE;
	post(wr, 0, NULL);
	CHECK_EQ(fake_take(&fqp->sq, 0)->inline_len, 8);
	finish();
}

TEST(signaled, "DEV-4", "with sq_sig_all each WQE is signaled, without it those that say so")
{
	struct ibv_send_wr *wr = sends(0, 1);

	setup(true);
	post(wr, 0, NULL);
	CHECK_EQ(fake_take(&fqp->sq, 0)->flags, IBV_SEND_SIGNALED);
	wr->send_flags = IBV_SEND_FENCE;
	post(wr, 0, NULL);
	CHECK_EQ(fake_take(&fqp->sq, 0)->flags,
		 IBV_SEND_SIGNALED | IBV_SEND_FENCE);
	finish();
	setup(false);
	wr->send_flags = 0;
	post(wr, 0, NULL);
	CHECK_EQ(fake_take(&fqp->sq, 0)->flags, 0);
	finish();
}

TEST(wr_null, "DEV-4", "SGEs of length 0 and of address 0 are passed to the kernel as they are")
{
	struct ibv_send_wr *wr = sends(0, 1);
	struct keel_uapi_send_wqe *wqe;
	struct keel_uapi_sge *sge;

	setup(false);
	sges[0] = (struct ibv_sge){ 0, 0, 0 };
	sges[1] = (struct ibv_sge){ UINT64_MAX, UINT32_MAX, UINT32_MAX };
	wr->num_sge = 2;
	post(wr, 0, NULL);
	wqe = fake_take(&fqp->sq, 0);
	sge = fake_data(wqe);
	CHECK_ALL(&sge[0], 0, sizeof(*sge));
	CHECK_ALL(&sge[1], 0xff, sizeof(*sge));
	CHECK_EQ(wqe->num_sge, 2);
	finish();
}
