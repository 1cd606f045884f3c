// SPDX-License-Identifier: GPL-2.0
/*
 * Refusals by a QP on another host: the statuses are those of a QP on this host.
 */
#include "hosts.h"
#include "qp.h"
#include "t.h"

static struct end a, b;

void t_end(void)
{
	hosts_down();
}

static void begin(const struct joint *j)
{
	hosts_up();
	a = end_new(0);
	b = end_new(1);
	ends_join(&a, &b, j);
}

/* Connect both QPs again, as at first. */
static void again(void)
{
	qp_to(a.qp, IBV_QPS_RESET);
	qp_to(b.qp, IBV_QPS_RESET);
	ends_join(&a, &b, &joint_usual);
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

/* A write or read that the other host refuses. */
static void check_refused(enum ibv_wr_opcode op, uint32_t len, uint64_t addr, uint32_t rkey,
			  enum ibv_wc_status status)
{
	memset(b.mem, 0xee, END_BYTES);
	post_rdma(a.qp, op, 1, part(&a, 0, len), addr, rkey);
	CHECK_WC(a.cq, 1, status);
	CHECK_STATE(a.qp, IBV_QPS_ERR);
	CHECK_STATE(b.qp, IBV_QPS_ERR);
	CHECK_ALL(b.mem, 0xee, END_BYTES);
	again();
}

TEST(rkeys, "HOST-1", "a wrong rkey, a range beyond the memory and a missing right are refused on the other host, and no byte is written")
{
	uint64_t addr;

	begin(&joint_usual);
	addr = (uintptr_t)b.mem;
	check_refused(IBV_WR_RDMA_WRITE, 64, addr, b.mr->rkey ^ 0x100,
		      IBV_WC_REM_ACCESS_ERR);
	check_refused(IBV_WR_RDMA_READ, 64, addr, b.mr->rkey ^ 0x100, IBV_WC_REM_ACCESS_ERR);
	check_refused(IBV_WR_RDMA_WRITE, 64, addr + END_BYTES - 63, b.mr->rkey,
		      IBV_WC_REM_ACCESS_ERR);
	/* Several packets, of which only the last one exceeds the memory. */
	check_refused(IBV_WR_RDMA_WRITE, 100000, addr + END_BYTES - 99999, b.mr->rkey,
		      IBV_WC_REM_ACCESS_ERR);
	check_refused(IBV_WR_RDMA_READ, 100000, addr + END_BYTES - 99999, b.mr->rkey,
		      IBV_WC_REM_ACCESS_ERR);
	qp_allow(b.qp, 0);
	check_refused(IBV_WR_RDMA_WRITE, 64, addr, b.mr->rkey, IBV_WC_REM_INV_REQ_ERR);
	end();
}

TEST(aligned, "HOST-1", "an atomic whose address is not aligned is refused on the other host")
{
	begin(&joint_usual);
	post_add(a.qp, 1, part(&a, 0, 8), (uintptr_t)b.mem + 4, b.mr->rkey, 1);
	CHECK_WC(a.cq, 1, IBV_WC_REM_INV_REQ_ERR);
	CHECK_STATE(b.qp, IBV_QPS_ERR);
	end();
}

TEST(short_receive, "HOST-1", "a message that is longer than the receive WQE fails at both ends, whether it has one packet or more")
{
	static const uint32_t lens[] = { 65, 9000 };
	int i;

	begin(&joint_usual);
	for (i = 0; i < 2; i++) {
		memset(b.mem, 0xee, END_BYTES);
		post_recv(b.qp, 2, part(&b, 0, 64));
		post_send(a.qp, 1, part(&a, 0, lens[i]));
		CHECK_WC(a.cq, 1, IBV_WC_REM_INV_REQ_ERR);
		CHECK_WC(b.cq, 2, IBV_WC_LOC_LEN_ERR);
		CHECK_ALL(b.mem, 0xee, END_BYTES);
		again();
	}
	end();
}

TEST(no_receive, "HOST-1", "without a receive WQE, a send fails after rnr_retry, or waits for one")
{
	struct joint j = joint_usual;

	j.rnr_retry = 2;
	begin(&j);
	post_send(a.qp, 1, part(&a, 0, 64));
	CHECK_WC(a.cq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	again();
	/* It waits for ever now. */
	memset(a.mem, 0x5a, 20000);
	post_send(a.qp, 2, part(&a, 0, 20000));
	usleep(100000);
	CHECK_NO_WC(a.cq);
	post_recv(b.qp, 3, part(&b, 0, 20000));
	CHECK_WC(a.cq, 2, IBV_WC_SUCCESS);
	CHECK_EQ(CHECK_WC(b.cq, 3, IBV_WC_SUCCESS).byte_len, 20000);
	CHECK_ALL(b.mem, 0x5a, 20000);
	end();
}

TEST(nobody, "HOST-1", "a message to a QP that is not there, or not connected to this one, fails after its retries")
{
	struct joint j = joint_usual;

	j.timeout = 12;
	j.retry_cnt = 2;
	begin(&j);
	/* It is connected to another number. */
	qp_to(b.qp, IBV_QPS_RESET);
	a.qp->qp_num++;
	end_connect(&b, &a, &j);
	a.qp->qp_num--;
	post_recv(b.qp, 2, part(&b, 0, 64));
	post_send(a.qp, 1, part(&a, 0, 64));
	CHECK_WC(a.cq, 1, IBV_WC_RETRY_EXC_ERR);
	CHECK_NO_WC(b.cq);
	qp_to(a.qp, IBV_QPS_RESET);
	b.qp->qp_num += 100;
	end_connect(&a, &b, &j);
	b.qp->qp_num -= 100;
	post_send(a.qp, 3, part(&a, 0, 64));
	CHECK_WC(a.cq, 3, IBV_WC_RETRY_EXC_ERR);
	end();
}

TEST(psn, "HOST-1", "a message whose PSN is not the one that the other QP expects does not arrive")
{
	struct joint j = joint_usual;

	j.timeout = 12;
	j.retry_cnt = 2;
	begin(&j);
	qp_to(b.qp, IBV_QPS_RESET);
	j.psn += 7;
	end_connect(&b, &a, &j);
	post_recv(b.qp, 2, part(&b, 0, 64));
	post_send(a.qp, 1, part(&a, 0, 64));
	CHECK_WC(a.cq, 1, IBV_WC_RETRY_EXC_ERR);
	CHECK_NO_WC(b.cq);
	end();
}

TEST(later, "HOST-1", "a message waits for a QP that is connected later")
{
	begin(&joint_usual);
	qp_to(b.qp, IBV_QPS_RESET);
	qp_to(a.qp, IBV_QPS_RESET);
	end_connect(&a, &b, &joint_usual);
	memset(a.mem, 0x77, 64);
	post_send(a.qp, 1, part(&a, 0, 64));
	usleep(200000);
	CHECK_NO_WC(a.cq);
	end_connect(&b, &a, &joint_usual);
	post_recv(b.qp, 2, part(&b, 0, 64));
	CHECK_WC(a.cq, 1, IBV_WC_SUCCESS);
	CHECK_WC(b.cq, 2, IBV_WC_SUCCESS);
	CHECK_ALL(b.mem, 0x77, 64);
	end();
}
