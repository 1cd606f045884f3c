// SPDX-License-Identifier: GPL-2.0
/*
 * Bytes that move between the guest and the file behind the BAR.
 *
 * The host checks what the guest wrote after the guest has ended. For each
 * buffer the test writes a file in /share/expect. Its name is the buffer's
 * start on the device, its content all bytes that the buffer's pages should
 * have.
 */
#include <fcntl.h>
#include <sys/stat.h>

#include <infiniband/keeldv.h>

#include "outside.h"
#include "qp.h"
#include "t.h"

#define PAGE	4096
#define PAGES	3
#define SIZE	(PAGES * PAGE)
/* An odd length. */
#define LEN	(SIZE - 1001)
#define OFF	37
#define N	(LEN - OFF - 111)
#define RIGHTS	(IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE |	\
		 IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |	\
		 IBV_ACCESS_REMOTE_ATOMIC)

/*
 * Objects of the test: a buffer beside the tested ones, and two connected QPs.
 */
static struct ibv_pd *pd;
static struct link l;
static struct ibv_mr *host_mr;
static unsigned char host[SIZE] __attribute__((aligned(PAGE)));

static void set_up(void)
{
	struct ibv_alloc_dm_attr attr = { .length = 5 * PAGE };

	pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	MUST(ibv_alloc_dm(pd->context, &attr));
	l = link_new(pd, pd, IBV_QPT_RC);
	host_mr = MUST(ibv_reg_mr(pd, host, SIZE, IBV_ACCESS_LOCAL_WRITE |
				  IBV_ACCESS_REMOTE_READ |
				  IBV_ACCESS_REMOTE_WRITE));
}

static struct mem in_host(uint32_t off, uint32_t len)
{
	return (struct mem){ host + off, len, host_mr->lkey };
}

struct buf {
	struct ibv_dm *dm;
	struct ibv_mr *mr;
	uint64_t start;
	unsigned char want[SIZE];
};

static struct buf *buf_new(void)
{
	struct ibv_alloc_dm_attr attr = { .length = LEN };
	struct buf *b = MUST(calloc(1, sizeof(*b)));
	struct keeldv_dm_attr dv = {};

	b->dm = MUST(ibv_alloc_dm(pd->context, &attr));
	b->mr = MUST(ibv_reg_dm_mr(pd, b->dm, 0, LEN, RIGHTS));
	CHECK_OK(keeldv_query_dm(b->dm, &dv));
	b->start = dv.start;
	return b;
}

static struct mem in_dm(const struct buf *b, uint64_t off, uint32_t len)
{
	return (struct mem){ (void *)off, len, b->mr->lkey };
}

/* Fill with random bytes, so that neighbours differ. */
static void fill(unsigned char *bytes, size_t n, uint64_t seed)
{
	while (n--)
		*bytes++ = t_random(&seed);
}

static void open_file(int *fd, int flags)
{
	*fd = SYS(open(FILE0, flags | O_CLOEXEC));
}

/* Write the expected bytes for the host, which compares them after the test. */
static void expect(const struct buf *b)
{
	char name[64];
	int fd;

	mkdir(SHARE "/expect", 0755);
	snprintf(name, sizeof(name), SHARE "/expect/%llu",
		 (unsigned long long)b->start);
	fd = SYS(open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
	CHECK_EQ(write(fd, b->want, SIZE), SIZE);
	SYS(close(fd));
}

/* Check the file as the host shares it with this guest. */
static void check_file(const struct buf *b)
{
	unsigned char got[SIZE];
	int fd;

	open_file(&fd, O_RDONLY);
	CHECK_EQ(pread(fd, got, SIZE, b->start), SIZE);
	CHECK_MEM(got, b->want, SIZE);
	SYS(close(fd));
}

TEST(in, "DM-5,DM-6,DM-7", "a copy, the mapping, an RDMA read and a message return the bytes that were written to the BAR's file")
{
	unsigned char got[N], *map;
	struct buf *b;
	int fd;

	set_up();
	b = buf_new();
	map = MUST(keeldv_dm_map(b->dm));
	CHECK_ALL(map, 0, SIZE);
	fill(b->want + OFF, N, 77);
	open_file(&fd, O_WRONLY);
	CHECK_EQ(pwrite(fd, b->want, SIZE, b->start), SIZE);
	SYS(close(fd));

	CHECK_OK(ibv_memcpy_from_dm(got, b->dm, OFF, N));
	CHECK_MEM(got, b->want + OFF, N);
	CHECK_MEM(map, b->want, SIZE);
	memset(host, 0, SIZE);
	post_rdma(l.qp[0], IBV_WR_RDMA_READ, 1, in_host(0, N), OFF,
		  b->mr->rkey);
	CHECK_WC(l.cq[0], 1, IBV_WC_SUCCESS);
	CHECK_MEM(host, b->want + OFF, N);
	memset(host, 0, SIZE);
	post_recv(l.qp[1], 2, in_host(0, N));
	post_send(l.qp[0], 3, in_dm(b, OFF, N));
	CHECK_WC(l.cq[1], 2, IBV_WC_SUCCESS);
	CHECK_MEM(host, b->want + OFF, N);
}

static void by_copy(struct buf *b)
{
	fill(b->want + OFF, N, 1);
	CHECK_OK(ibv_memcpy_to_dm(b->dm, OFF, b->want + OFF, N));
}

static void by_mapping(struct buf *b)
{
	unsigned char *map = MUST(keeldv_dm_map(b->dm));
	int i;

	fill(b->want + OFF, N, 2);
	for (i = 0; i < N; i++)
		((volatile unsigned char *)map)[OFF + i] = b->want[OFF + i];
}

static void by_rdma_write(struct buf *b)
{
	fill(b->want + OFF, N, 3);
	memcpy(host, b->want + OFF, N);
	post_rdma(l.qp[0], IBV_WR_RDMA_WRITE, 1, in_host(0, N), OFF,
		  b->mr->rkey);
	CHECK_WC(l.cq[0], 1, IBV_WC_SUCCESS);
}

static void by_rdma_read(struct buf *b)
{
	fill(b->want + OFF, N, 4);
	memcpy(host, b->want + OFF, N);
	post_rdma(l.qp[0], IBV_WR_RDMA_READ, 1, in_dm(b, OFF, N),
		  (uintptr_t)host, host_mr->rkey);
	CHECK_WC(l.cq[0], 1, IBV_WC_SUCCESS);
}

static void by_message(struct buf *b)
{
	fill(b->want + OFF, N, 5);
	memcpy(host, b->want + OFF, N);
	post_recv(l.qp[1], 1, in_dm(b, OFF, N));
	post_send(l.qp[0], 2, in_host(0, N));
	CHECK_WC(l.cq[1], 1, IBV_WC_SUCCESS);
	CHECK_WC(l.cq[0], 2, IBV_WC_SUCCESS);
}

static void by_atomics(struct buf *b)
{
	uint64_t word = 0x0123456789abcdef;
	struct ibv_send_wr *wr;

	post_add(l.qp[0], 1, in_host(0, 8), 64, b->mr->rkey, word);
	CHECK_WC(l.cq[0], 1, IBV_WC_SUCCESS);
	memcpy(b->want + 64, &word, 8);
	wr = send_wr(IBV_WR_ATOMIC_CMP_AND_SWP, 2, in_host(0, 8));
	wr->wr.atomic.remote_addr = 128;
	wr->wr.atomic.rkey = b->mr->rkey;
	wr->wr.atomic.swap = ~word;
	post(l.qp[0], wr);
	CHECK_WC(l.cq[0], 2, IBV_WC_SUCCESS);
	word = ~word;
	memcpy(b->want + 128, &word, 8);
}

TEST(out, "DM-5,DM-6,DM-7,DM-10", "bytes written by copy, mapping, RDMA, message and atomics are in the BAR's file at the buffer's start")
{
	static void (* const ways[])(struct buf *b) = {
		by_copy, by_mapping, by_rdma_write, by_rdma_read, by_message,
		by_atomics,
	};
	struct buf *b[6];
	int i;

	set_up();
	for (i = 0; i < 6; i++)
		b[i] = buf_new();
	for (i = 0; i < 6; i++)
		ways[i](b[i]);
	for (i = 0; i < 6; i++) {
		check_file(b[i]);
		expect(b[i]);
	}
	/* Freeing a buffer clears no byte, so the host finds all bytes. */
}
