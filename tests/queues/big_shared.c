// SPDX-License-Identifier: GPL-2.0
/*
 * Big messages that several threads of a process copy together: the worker and its helpers.
 * The counter shared_msgs tells.
 */
#include <sys/resource.h>
#include <sys/wait.h>

#include <infiniband/keeldv.h>

#include "dev.h"
#include "iso.h"
#include "peer.h"
#include "qp.h"
#include "t.h"
#include "tree.h"
#include "user.h"

#define MIB	(1024 * 1024UL)
#define ROOM	(8 * MIB)
#define TRIES	200
#define PARAM	"/sys/module/keel/parameters/"
#define RIGHTS	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)

static unsigned char *from, *to;
static struct ibv_pd *pd;
static struct ibv_mr *from_mr, *to_mr;

void t_after(void)
{
	t_write_file(PARAM "big_threads", "-1");
	t_write_file(PARAM "share_bytes", "1048576");
}

static void setup(const char *threads)
{
	size_t i;

	CHECK_OK(t_write_file(PARAM "big_threads", threads));
	pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	from = peer_shared(ROOM);
	to = peer_shared(ROOM);
	from_mr = MUST(ibv_reg_mr(pd, from, ROOM, RIGHTS));
	to_mr = MUST(ibv_reg_mr(pd, to, ROOM, RIGHTS));
	for (i = 0; i < ROOM; i++)
		from[i] = i * 7 + i / 4096 + 1;
}

/* Some bytes differ from message to message, and none is 0. */
static void mark(int round)
{
	size_t i;

	for (i = round; i < ROOM; i += 65521)
		from[i] ^= 0x80;
	memset(to, 0, ROOM);
}

/* This thread needs no processor until then: with two of them, a helper gets one. */
static void rest(void)
{
	usleep(5000);
}

/* A message of several segments, none of which starts or ends at a page. */
static uint32_t post_scattered(struct ibv_qp *qp, enum ibv_wr_opcode op, uint64_t remote,
			       uint32_t rkey)
{
	static const uint32_t lens[] = { 1, 4 * MIB - 5, 70001, 2 * MIB };
	struct ibv_send_wr wr = {
		.wr_id = 1, .opcode = op, .send_flags = IBV_SEND_SIGNALED,
		.num_sge = 4, .wr.rdma = { remote, rkey },
	}, *bad;
	struct ibv_sge sge[4];
	uint32_t len = 0;
	bool reads = op == IBV_WR_RDMA_READ;
	int i;

	for (i = 0; i < 4; i++) {
		sge[i].addr = (uintptr_t)(reads ? to : from) + 33 + len;
		sge[i].length = lens[i];
		sge[i].lkey = (reads ? to_mr : from_mr)->lkey;
		len += lens[i];
	}
	wr.sg_list = sge;
	CHECK_OK(ibv_post_send(qp, &wr, &bad));
	return len;
}

/* One message of each operation, and how many of them helpers have copied with. */
static long all(struct link *l, int round)
{
	static const enum ibv_wr_opcode ops[] = {
		IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
	};
	long before = dev_counter("shared_msgs");
	uint32_t len;
	int i;

	for (i = 0; i < 3; i++) {
		bool reads = ops[i] == IBV_WR_RDMA_READ;

		mark(round * 3 + i);
		if (ops[i] == IBV_WR_SEND)
			post_recv(l->qp[1], 2, (struct mem){ to + 33, 7 * MIB, to_mr->lkey });
		len = post_scattered(l->qp[0], ops[i], (uintptr_t)(reads ? from : to) + 33,
				     (reads ? from_mr : to_mr)->rkey);
		rest();
		CHECK_WC(l->cq[0], 1, IBV_WC_SUCCESS);
		if (ops[i] == IBV_WR_SEND)
			CHECK_EQ(CHECK_WC(l->cq[1], 2, IBV_WC_SUCCESS).byte_len, len);
		CHECK_EQ(memcmp(from + 33, to + 33, len), 0);
		CHECK_ALL(to, 0, 33);
		CHECK_ALL(to + 33 + len, 0, ROOM - 33 - len);
	}
	return dev_counter("shared_msgs") - before;
}

static int threads(void)
{
	char *text = t_read_file("/proc/self/status");
	int n = atoi(strstr(text, "Threads:") + 8);

	free(text);
	return n;
}

TEST_CASE(whole, "DEV-4,ISO-2", "messages that the worker shares with a helper arrive whole, and change no other byte; the helper is a thread of the process",
	  .limit = 120, ISO_NEEDS_THREADS)
{
	struct link l;
	int round, before;
	long shared = 0;

	setup("1");
	l = link_new(pd, pd, IBV_QPT_RC);
	before = threads();
	/* Helpers need a processor of their own. */
	for (round = 0; !shared && t_processors() > 1; round++) {
		if (round == TRIES)
			FAIL("a helper took part in none of %d messages", 3 * TRIES);
		shared += all(&l, round);
	}
	CHECK_EQ(threads(), before + (t_processors() > 1));
}

TEST_CASE(none, "ISO-2", "without big_threads, and for smaller messages than share_bytes, a process gets no more threads",
	  ISO_NEEDS_THREADS)
{
	struct link l;
	int before;

	setup("0");
	l = link_new(pd, pd, IBV_QPT_RC);
	before = threads();
	CHECK_EQ(all(&l, 0), 0);
	CHECK_OK(t_write_file(PARAM "big_threads", "1"));
	CHECK_OK(t_write_file(PARAM "share_bytes", "8388608"));
	CHECK_EQ(all(&l, 1), 0);
	CHECK_EQ(threads(), before);
}

TEST_CASE(no_more, "ISO-2,DEV-4", "a process that cannot have more threads gets its messages copied without them",
	  ISO_NEEDS_THREADS)
{
	struct rlimit limit = { 1, 1 };
	struct link l;
	int before;

	setup("3");
	user_become(1000);
	l = link_new(pd, pd, IBV_QPT_RC);
	before = threads();
	SYS(setrlimit(RLIMIT_NPROC, &limit));
	CHECK_EQ(all(&l, 0), 0);
	CHECK_EQ(threads(), before);
}

TEST_CASE(device, "DM-5,DEV-4", "messages from and to device memory that a helper copies a part of arrive whole",
	  .limit = 120, ISO_NEEDS_THREADS)
{
	struct ibv_alloc_dm_attr attr = { .length = 4 * MIB };
	long before = 0;
	struct ibv_mr *mr;
	struct ibv_dm *dm;
	struct link l;
	int round;

	setup("1");
	l = link_new(pd, pd, IBV_QPT_RC);
	dm = MUST(ibv_alloc_dm(pd->context, &attr));
	mr = MUST(ibv_reg_dm_mr(pd, dm, 0, 4 * MIB, RIGHTS | IBV_ACCESS_ZERO_BASED));
	before = dev_counter("shared_msgs");
	for (round = 0; dev_counter("shared_msgs") == before && t_processors() > 1; round++) {
		if (round == TRIES)
			FAIL("helpers took part in none of %d messages", 2 * TRIES);
		mark(round);
		post_rdma(l.qp[0], IBV_WR_RDMA_WRITE, 1,
			  (struct mem){ from + 5, 4 * MIB - 9, from_mr->lkey }, 3, mr->rkey);
		rest();
		CHECK_WC(l.cq[0], 1, IBV_WC_SUCCESS);
		post_rdma(l.qp[0], IBV_WR_RDMA_READ, 2,
			  (struct mem){ to + 5, 4 * MIB - 9, to_mr->lkey }, 3, mr->rkey);
		rest();
		CHECK_WC(l.cq[0], 2, IBV_WC_SUCCESS);
		CHECK_EQ(memcmp(from + 5, to + 5, 4 * MIB - 9), 0);
		CHECK_ALL(to + 4 * MIB - 4, 0, MIB);
	}
}

static void busy(struct peer *parent)
{
	struct link l;
	int round;

	setup("3");
	l = link_new(pd, pd, IBV_QPT_RC);
	for (round = 0; t_processors() > 1 && !all(&l, round); round++)
		if (round == TRIES)
			FAIL("no helper took part in a message");
	peer_tell(parent);
	for (round = 0;; round++) {
		post_rdma(l.qp[0], IBV_WR_RDMA_WRITE, round, (struct mem){ from, ROOM,
			  from_mr->lkey }, (uintptr_t)to, to_mr->rkey);
		CHECK_WC(l.cq[0], round, IBV_WC_SUCCESS);
	}
}

TEST_CASE(ends, "PD-3,ISO-2", "a process that is stopped, continued and killed while helpers copy leaves nothing",
	  .limit = 120, ISO_NEEDS_THREADS)
{
	struct peer p;
	int round;

	for (round = 0; round < 10; round++) {
		peer_start(&p, busy);
		peer_wait(&p);
		usleep(1000 * round);
		if (round % 2) {
			SYS(kill(p.pid, SIGSTOP));
			usleep(20000);
			if (round % 4 == 3)
				SYS(kill(p.pid, SIGCONT));
		}
		peer_kill(&p, SIGKILL);
		CHECK_EQ(tree_count(KEEL0, NULL), 0);
	}
}
