// SPDX-License-Identifier: GPL-2.0
/*
 * Big messages: a doorbell leaves those of 256 KiB or more to the worker, if that can run
 * on another processor than the caller. The counter big_msgs tells.
 */
#include <sys/resource.h>

#include "dev.h"
#include "iso.h"
#include "qp.h"
#include "t.h"

#define BIG	(256 * 1024)
#define SMALL	64
#define MIB	(1024 * 1024)
#define TRIES	50
#define RIGHTS	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |	\
		 IBV_ACCESS_REMOTE_WRITE)

static unsigned char from[MIB + SMALL], to[MIB + SMALL];
static struct ibv_pd *pd;
static struct ibv_mr *from_mr, *to_mr;

static void setup(void)
{
	size_t i;

	pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	from_mr = MUST(ibv_reg_mr(pd, from, sizeof(from), RIGHTS));
	to_mr = MUST(ibv_reg_mr(pd, to, sizeof(to), RIGHTS));
	for (i = 0; i < sizeof(from); i++)
		from[i] = i * 7 + i / 4096 + 1;
}

/* One message, and how many times the worker copied it. */
static long one(struct link *l, enum ibv_wr_opcode op, uint32_t len)
{
	bool reads = op == IBV_WR_RDMA_READ;
	struct mem mem = { reads ? to : from, len, (reads ? to_mr : from_mr)->lkey };
	long before = dev_counter("big_msgs");

	memset(to, 0, sizeof(to));
	if (op == IBV_WR_SEND)
		post_recv(l->qp[1], 2, MEM(to_mr));
	if (op == IBV_WR_SEND)
		post_send(l->qp[0], 1, mem);
	else
		post_rdma(l->qp[0], op, 1, mem, (uintptr_t)(reads ? from : to),
			  (reads ? from_mr : to_mr)->rkey);
	CHECK_WC(l->cq[0], 1, IBV_WC_SUCCESS);
	if (op == IBV_WR_SEND)
		CHECK_EQ(CHECK_WC(l->cq[1], 2, IBV_WC_SUCCESS).byte_len, len);
	CHECK_EQ(memcmp(from, to, len), 0);
	CHECK_ALL(to + len, 0, sizeof(to) - len);
	return dev_counter("big_msgs") - before;
}

/* A big message. While the worker does something else, the caller copies. */
static void big(struct link *l, enum ibv_wr_opcode op, uint32_t len, bool left)
{
	int tries;

	if (!left) {
		CHECK_EQ(one(l, op, len), 0);
		return;
	}
	for (tries = 0; !one(l, op, len); tries++)
		if (tries == TRIES)
			FAIL("the worker copied none of %d messages of %u bytes", TRIES, len);
}

/* Each operation, a byte below the bound, at it and above it. */
static void bound(bool left)
{
	static const enum ibv_wr_opcode ops[] = {
		IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
	};
	struct link l;
	int i;

	setup();
	l = link_new(pd, pd, IBV_QPT_RC);
	for (i = 0; i < 3; i++) {
		CHECK_EQ(one(&l, ops[i], SMALL), 0);
		CHECK_EQ(one(&l, ops[i], BIG - 1), 0);
		big(&l, ops[i], BIG, left);
		big(&l, ops[i], MIB, left);
	}
}

TEST_CASE(beside, "DEV-4", "the worker copies messages of 256 KiB or more, and no smaller ones, if the process has several processors",
	  ISO_NEEDS_THREADS)
{
	bound(t_processors() > 1);
}

TEST(alone, "DEV-4", "the caller copies messages of any size, if the process has one processor")
{
	t_one_processor();
	bound(false);
}

TEST(nicer, "ISO-2", "a thread copies messages of any size itself, if its priority is not that of the worker")
{
	struct link l;

	setup();
	l = link_new(pd, pd, IBV_QPT_RC);
	SYS(setpriority(PRIO_PROCESS, gettid(), 5));
	CHECK_EQ(one(&l, IBV_WR_RDMA_WRITE, MIB), 0);
	CHECK_EQ(one(&l, IBV_WR_SEND, MIB), 0);
}

TEST_CASE(parameter, "DEV-4", "the parameter big_bytes is the least length of big messages, and 0 is none",
	  ISO_NEEDS_THREADS)
{
	static const char path[] = "/sys/module/keel/parameters/big_bytes";
	bool left = t_processors() > 1;
	struct link l;

	setup();
	l = link_new(pd, pd, IBV_QPT_RC);
	CHECK_OK(t_write_file(path, "0"));
	CHECK_EQ(one(&l, IBV_WR_RDMA_WRITE, MIB), 0);
	CHECK_OK(t_write_file(path, "8192"));
	CHECK_EQ(one(&l, IBV_WR_RDMA_WRITE, 8191), 0);
	big(&l, IBV_WR_RDMA_WRITE, 8192, left);
}

void t_after(void)
{
	t_write_file("/sys/module/keel/parameters/big_bytes", "262144");
}

TEST(order, "DEV-4", "small messages behind a big one complete after it, in order, and overwrite its bytes")
{
	struct ibv_send_wr wr[4] = {}, *bad;
	struct ibv_sge sge[4];
	struct link l;
	int round, i;

	setup();
	l = link_new(pd, pd, IBV_QPT_RC);
	for (round = 0; round < 50; round++) {
		memset(to, 0, sizeof(to));
		for (i = 0; i < 4; i++) {
			/* The second and third write other bytes to its start. */
			sge[i] = (struct ibv_sge){
				(uintptr_t)from + i, i == 0 || i == 3 ? MIB : SMALL,
				from_mr->lkey,
			};
			wr[i] = (struct ibv_send_wr){
				.wr_id = i, .sg_list = &sge[i], .num_sge = 1,
				.opcode = IBV_WR_RDMA_WRITE,
				.send_flags = IBV_SEND_SIGNALED,
				.wr.rdma = { (uintptr_t)to, to_mr->rkey },
			};
		}
		/* The last one is left out in each second round. */
		for (i = 0; i < 3 + round % 2; i++)
			CHECK_OK(ibv_post_send(l.qp[0], &wr[i], &bad));
		for (i = 0; i < 3 + round % 2; i++)
			CHECK_WC(l.cq[0], i, IBV_WC_SUCCESS);
		CHECK_NO_WC(l.cq[0]);
		if (round % 2) {
			CHECK_EQ(memcmp(to, from + 3, MIB), 0);
			continue;
		}
		CHECK_EQ(memcmp(to, from + 2, SMALL), 0);
		CHECK_EQ(memcmp(to + SMALL, from + SMALL, MIB - SMALL), 0);
	}
}

TEST(refused, "DEV-4", "a big message that fails ends with the error that a caller would report, and those behind it are flushed")
{
	struct link l;

	setup();
	l = link_new(pd, pd, IBV_QPT_RC);
	post_rdma(l.qp[0], IBV_WR_RDMA_WRITE, 1, (struct mem){ from, MIB, from_mr->lkey },
		  (uintptr_t)to + 2 * SMALL, to_mr->rkey);
	post_rdma(l.qp[0], IBV_WR_RDMA_WRITE, 2, (struct mem){ from, MIB, from_mr->lkey },
		  (uintptr_t)to, to_mr->rkey);
	CHECK_WC(l.cq[0], 1, IBV_WC_REM_ACCESS_ERR);
	CHECK_WC(l.cq[0], 2, IBV_WC_WR_FLUSH_ERR);
	CHECK_ALL(to, 0, sizeof(to));
	CHECK_EQ(qp_state(l.qp[0]), IBV_QPS_ERR);
}
