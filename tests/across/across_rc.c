// SPDX-License-Identifier: GPL-2.0
/*
 * Every operation of RC, between two hosts.
 */
#include "hosts.h"
#include "qp.h"
#include "t.h"

static struct end a, b;

void t_end(void)
{
	hosts_down();
}

static void begin(void)
{
	hosts_up();
	a = end_new(0);
	b = end_new(1);
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

static void pattern(char *p, size_t len, unsigned int seed)
{
	size_t i;

	for (i = 0; i < len; i++)
		p[i] = (i * 7 + i / 251 + seed) & 0xff;
}

TEST(send, "HOST-1", "a send arrives on the other host, from one byte to several packets")
{
	static const uint32_t lens[] = { 0, 1, 64, 4095, 4096, 4097, 8192, 100000, END_HALF };
	struct ibv_wc wc;
	size_t i;

	begin();
	for (i = 0; i < sizeof(lens) / sizeof(*lens); i++) {
		pattern(a.mem, lens[i], i);
		memset(b.mem, 0xee, END_BYTES);
		post_recv(b.qp, 2, part(&b, 0, END_BYTES));
		post_send(a.qp, 1, part(&a, 0, lens[i]));
		CHECK_WC(a.cq, 1, IBV_WC_SUCCESS);
		wc = CHECK_WC(b.cq, 2, IBV_WC_SUCCESS);
		CHECK_EQ(wc.byte_len, lens[i]);
		CHECK_EQ(wc.opcode, IBV_WC_RECV);
		CHECK_MEM(b.mem, a.mem, lens[i]);
		CHECK_ALL(b.mem + lens[i], 0xee, 64);
	}
	end();
}

TEST(imm, "HOST-1", "immediate data arrives with a send and with a write, of which the length is reported")
{
	struct ibv_send_wr *wr;
	struct ibv_wc wc;

	begin();
	pattern(a.mem, 10000, 3);
	post_recv(b.qp, 2, part(&b, 0, 10000));
	wr = send_wr(IBV_WR_SEND_WITH_IMM, 1, part(&a, 0, 10000));
	wr->imm_data = htobe32(0x11223344);
	post(a.qp, wr);
	CHECK_WC(a.cq, 1, IBV_WC_SUCCESS);
	wc = CHECK_WC(b.cq, 2, IBV_WC_SUCCESS);
	CHECK_EQ(be32toh(wc.imm_data), 0x11223344);
	CHECK_EQ(wc.wc_flags & IBV_WC_WITH_IMM, IBV_WC_WITH_IMM);
	CHECK_MEM(b.mem, a.mem, 10000);

	post_recv(b.qp, 3, part(&b, 0, 0));
	wr = send_wr(IBV_WR_RDMA_WRITE_WITH_IMM, 4, part(&a, 0, 9000));
	wr->imm_data = htobe32(0x55667788);
	wr->wr.rdma.remote_addr = (uintptr_t)b.mem + END_HALF;
	wr->wr.rdma.rkey = b.mr->rkey;
	post(a.qp, wr);
	CHECK_WC(a.cq, 4, IBV_WC_SUCCESS);
	wc = CHECK_WC(b.cq, 3, IBV_WC_SUCCESS);
	CHECK_EQ(be32toh(wc.imm_data), 0x55667788);
	CHECK_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	CHECK_EQ(wc.byte_len, 9000);
	CHECK_MEM(b.mem + END_HALF, a.mem, 9000);
	end();
}

TEST(rdma, "HOST-1", "RDMA writes and reads of any length move the bytes, and none beside them")
{
	static const uint32_t lens[] = { 0, 8, 4096, 5000, 65536, 300001 };
	size_t i;

	begin();
	for (i = 0; i < sizeof(lens) / sizeof(*lens); i++) {
		pattern(a.mem, lens[i], i);
		memset(b.mem, 0xee, END_BYTES);
		memset(a.mem + END_HALF, 0xdd, END_HALF);
		post_rdma(a.qp, IBV_WR_RDMA_WRITE, 1, part(&a, 0, lens[i]),
			  (uintptr_t)b.mem + 100, b.mr->rkey);
		CHECK_WC(a.cq, 1, IBV_WC_SUCCESS);
		CHECK_MEM(b.mem + 100, a.mem, lens[i]);
		CHECK_ALL(b.mem, 0xee, 100);
		CHECK_ALL(b.mem + 100 + lens[i], 0xee, 100);
		post_rdma(a.qp, IBV_WR_RDMA_READ, 2, part(&a, END_HALF, lens[i]),
			  (uintptr_t)b.mem + 100, b.mr->rkey);
		CHECK_EQ(CHECK_WC(a.cq, 2, IBV_WC_SUCCESS).byte_len, lens[i]);
		CHECK_MEM(a.mem + END_HALF, a.mem, lens[i]);
		CHECK_ALL(a.mem + END_HALF + lens[i], 0xdd, 100);
	}
	CHECK_NO_WC(b.cq);
	end();
}

/* Packets that host 0 has sent. */
static long packets(void)
{
	char *text;
	long n;

	/* ib_core caches counters for 10 ms, and a tick. */
	usleep(30000);
	text = t_read_file("/sys/class/infiniband/keel_a/ports/1/hw_counters/far_packets");
	n = atol(text);
	free(text);
	return n;
}

static void move_write(uint32_t len)
{
	memset(b.mem, 0xee, END_BYTES);
	post_rdma(a.qp, IBV_WR_RDMA_WRITE, 1, part(&a, 0, len), (uintptr_t)b.mem + 3, b.mr->rkey);
	CHECK_WC(a.cq, 1, IBV_WC_SUCCESS);
	CHECK_MEM(b.mem + 3, a.mem, len);
	CHECK_ALL(b.mem, 0xee, 3);
	CHECK_ALL(b.mem + 3 + len, 0xee, 100);
}

static void move_read(uint32_t len)
{
	memset(a.mem + END_HALF, 0xdd, END_HALF);
	post_rdma(a.qp, IBV_WR_RDMA_READ, 2, part(&a, END_HALF, len), (uintptr_t)b.mem + 3,
		  b.mr->rkey);
	CHECK_EQ(CHECK_WC(a.cq, 2, IBV_WC_SUCCESS).byte_len, len);
	CHECK_MEM(a.mem + END_HALF, b.mem + 3, len);
	CHECK_ALL(a.mem + END_HALF + len, 0xdd, 100);
}

static void move_send(uint32_t len)
{
	memset(b.mem, 0xee, END_BYTES);
	post_recv(b.qp, 3, part(&b, 5, END_HALF));
	post(a.qp, send_wr(IBV_WR_SEND, 3, part(&a, 0, len)));
	CHECK_WC(a.cq, 3, IBV_WC_SUCCESS);
	CHECK_EQ(CHECK_WC(b.cq, 3, IBV_WC_SUCCESS).byte_len, len);
	CHECK_MEM(b.mem + 5, a.mem, len);
	CHECK_ALL(b.mem + 5 + len, 0xee, 100);
}

static void move(uint32_t len, unsigned int seed)
{
	pattern(a.mem, len, seed);
	move_write(len);
	move_read(len);
	move_send(len);
}

#define CHUNK	(256 << 10)

TEST(long, "HOST-1", "long messages have the same bytes as short ones, with few packets once both sides have seen one")
{
	static const uint32_t lens[] = {
		END_HALF - 200, CHUNK, CHUNK + 1, CHUNK - 1, 300000, 5000, 4097, 4096,
		CHUNK + 4096, CHUNK + 4097,
	};
	long before, n;
	size_t i;

	begin();
	/* Each side gets its memory after it has seen a long message. */
	move(END_HALF - 200, 1);
	for (i = 0; i < sizeof(lens) / sizeof(*lens); i++) {
		before = packets();
		move(lens[i], i + 2);
		n = packets() - before;
		/* Three messages. On a slow guest, some are sent twice. */
		if (n < 3 || n > 6 * ((long)lens[i] / CHUNK + 1))
			FAIL("%u bytes: %ld packets", lens[i], n);
	}
	end();
}

TEST(atomic, "HOST-1", "atomics change the memory of the other host once, and return what it held")
{
	volatile uint64_t *word;
	uint64_t *old;
	struct ibv_send_wr *wr;
	int i;

	begin();
	word = (volatile uint64_t *)(b.mem + 64);
	old = (uint64_t *)a.mem;
	*word = 1000;
	for (i = 0; i < 50; i++) {
		post_add(a.qp, i, part(&a, 0, 8), (uintptr_t)word, b.mr->rkey, 3);
		CHECK_WC(a.cq, i, IBV_WC_SUCCESS);
		CHECK_EQ(*old, 1000 + 3 * i);
	}
	CHECK_EQ(*word, 1150);
	wr = send_wr(IBV_WR_ATOMIC_CMP_AND_SWP, 100, part(&a, 0, 8));
	wr->wr.atomic.remote_addr = (uintptr_t)word;
	wr->wr.atomic.rkey = b.mr->rkey;
	wr->wr.atomic.compare_add = 1150;
	wr->wr.atomic.swap = 7;
	post(a.qp, wr);
	CHECK_WC(a.cq, 100, IBV_WC_SUCCESS);
	CHECK_EQ(*old, 1150);
	CHECK_EQ(*word, 7);
	wr->wr_id = 101;
	post(a.qp, wr);
	CHECK_WC(a.cq, 101, IBV_WC_SUCCESS);
	CHECK_EQ(*old, 7);
	CHECK_EQ(*word, 7);
	end();
}

/* A message may be lost with its connection, and only then: a slow host may seem to be gone. */
static void uc_lost(int connections)
{
	if (host_connections(0) == connections)
		FAIL("a message was lost, but no connection has ended");
}

static void uc_write(uint32_t len)
{
	int ms, connections;

	for (;; uc_lost(connections)) {
		connections = host_connections(0);
		post_rdma(a.qp, IBV_WR_RDMA_WRITE, 2, part(&a, 0, len),
			  (uintptr_t)b.mem + END_HALF, b.mr->rkey);
		CHECK_WC(a.cq, 2, IBV_WC_SUCCESS);
		for (ms = 0; ms < 5000; ms++) {
			if (!memcmp(b.mem + END_HALF, a.mem, len))
				return;
			usleep(1000);
		}
	}
}

static struct ibv_wc uc_send(uint32_t len)
{
	int ms, connections;
	struct ibv_wc wc;

	post_recv(b.qp, 3, part(&b, 0, END_HALF));
	for (;; uc_lost(connections)) {
		connections = host_connections(0);
		post_send(a.qp, 4, part(&a, 0, len));
		CHECK_WC(a.cq, 4, IBV_WC_SUCCESS);
		for (ms = 0; ms < 5000; ms++) {
			if (ibv_poll_cq(b.cq, 1, &wc) == 1)
				return wc;
			usleep(1000);
		}
	}
}

TEST(uc, "HOST-1", "UC sends and writes arrive on the other host, and one without a receive WQE is lost without an error")
{
	static const uint32_t lens[] = { 0, 64, 4096, 30000, 300000 };
	struct ibv_wc wc;
	size_t i;

	hosts_up();
	a = end_new_uc(0);
	b = end_new_uc(1);
	ends_join(&a, &b, &joint_usual);
	for (i = 0; i < sizeof(lens) / sizeof(*lens); i++) {
		/* This one is lost. */
		post_send(a.qp, 1, part(&a, 0, lens[i]));
		CHECK_WC(a.cq, 1, IBV_WC_SUCCESS);
		pattern(a.mem, lens[i], i);
		memset(b.mem, 0xee, END_BYTES);
		uc_write(lens[i]);
		CHECK_ALL(b.mem + END_HALF + lens[i], 0xee, 64);
		wc = uc_send(lens[i]);
		CHECK_EQ(wc.status, IBV_WC_SUCCESS);
		CHECK_EQ(wc.wr_id, 3);
		CHECK_EQ(wc.byte_len, lens[i]);
		CHECK_MEM(b.mem, a.mem, lens[i]);
	}
	CHECK_STATE(a.qp, IBV_QPS_RTS);
	CHECK_STATE(b.qp, IBV_QPS_RTS);
	end();
}
