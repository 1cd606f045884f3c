// SPDX-License-Identifier: GPL-2.0
/*
 * MRs of several MiB: keel finds their bytes in blocks of 2 MiB. Messages begin and end
 * around the bounds of blocks and pages.
 */
#include <sys/mman.h>

#include "dev.h"
#include "qp.h"
#include "t.h"

#define PAGE	4096
#define MIB	(1024UL * 1024)
#define BLOCK	(2 * MIB)
#define ROOM	(8 * MIB)
#define NR_HUGE	"/proc/sys/vm/nr_hugepages"
#define RIGHTS	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |	\
		 IBV_ACCESS_REMOTE_WRITE)

static unsigned char small[ROOM];
static struct ibv_pd *pd;
static struct link l;
static struct ibv_mr *mr, *small_mr;

/* Byte @at of the memory, in round @round. */
static unsigned char value(size_t at, int round)
{
	return at / PAGE * 31 + at * 7 + round;
}

/* Write bytes to the memory, and read them back, by way of other memory. */
static void there_and_back(size_t at, size_t len, int round)
{
	unsigned char *mem = mr->addr;
	size_t i;

	for (i = 0; i < len; i++)
		small[i] = value(at + i, round);
	post_rdma(l.qp[0], IBV_WR_RDMA_WRITE, 1, (struct mem){ small, len, small_mr->lkey },
		  (uintptr_t)mem + at, mr->rkey);
	CHECK_WC(l.cq[0], 1, IBV_WC_SUCCESS);
	for (i = 0; i < len; i++)
		if (mem[at + i] != value(at + i, round))
			FAIL("byte %zu of %zu at %#zx: got %#x, want %#x", i, len, at,
			     mem[at + i], value(at + i, round));
	memset(small, 0, len);
	post_rdma(l.qp[0], IBV_WR_RDMA_READ, 2, (struct mem){ small, len, small_mr->lkey },
		  (uintptr_t)mem + at, mr->rkey);
	CHECK_WC(l.cq[0], 2, IBV_WC_SUCCESS);
	CHECK_EQ(memcmp(small, mem + at, len), 0);
}

static void messages(unsigned char *mem, size_t bytes)
{
	static const size_t lengths[] = { 1, 64, PAGE - 1, PAGE, PAGE + 1, 64 * 1024, BLOCK + 5 };
	static const long around[] = { -PAGE - 1, -PAGE, -70, -1, 0, 1, PAGE - 3 };
	size_t bound, at, i, j;
	int round = 0;

	pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	l = link_new(pd, pd, IBV_QPT_RC);
	small_mr = MUST(ibv_reg_mr(pd, small, sizeof(small), RIGHTS));
	mr = MUST(ibv_reg_mr(pd, mem, bytes, RIGHTS));
	for (bound = BLOCK; bound + BLOCK < bytes; bound += BLOCK)
		for (i = 0; i < sizeof(around) / sizeof(*around); i++)
			for (j = 0; j < sizeof(lengths) / sizeof(*lengths); j++) {
				/* Bounds are those of addresses, not of the MR. */
				at = bound - (uintptr_t)mem % BLOCK + around[i];
				there_and_back(at, lengths[j], round++);
			}
	/* All of it, and no byte more. */
	there_and_back(0, bytes, round);
	post_rdma(l.qp[0], IBV_WR_RDMA_READ, 3, (struct mem){ small, 1, small_mr->lkey },
		  (uintptr_t)mem + bytes, mr->rkey);
	CHECK_WC(l.cq[0], 3, IBV_WC_REM_ACCESS_ERR);
}

/* Memory from a page and some bytes after the start of a block on. */
static unsigned char *map(int flags)
{
	char *at = mmap(NULL, ROOM + BLOCK, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);

	SYS(at == MAP_FAILED ? -1 : 0);
	at += BLOCK - (uintptr_t)at % BLOCK;
	return (unsigned char *)at + PAGE + 123;
}

TEST_SLOW(pages, "DEV-4", "messages around the bounds of 2 MiB blocks reach their bytes in memory of single pages", 60)
{
	unsigned char *mem = map(0);

	t_scatter(mem - 123, ROOM - 2 * PAGE);
	messages(mem, ROOM - BLOCK - 3 * PAGE);
}

TEST_NOT_UML(huge, "DEV-4", "likewise, in huge pages", "it has no huge pages")
{
	CHECK_OK(t_write_file(NR_HUGE, "8"));
	messages(map(MAP_HUGETLB), ROOM - BLOCK - 3 * PAGE);
}

TEST_NOT_UML(mixed, "DEV-4", "likewise, in memory with a huge page between single ones", "it has no huge pages")
{
	unsigned char *mem;

	CHECK_OK(t_write_file(NR_HUGE, "8"));
	mem = map(0);
	/* The second block of the memory becomes a huge page. */
	SYS(mmap(mem - 123 - PAGE + BLOCK, BLOCK, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_FIXED, -1, 0) == MAP_FAILED ?
	    -1 : 0);
	messages(mem, ROOM - BLOCK - 3 * PAGE);
}

void t_after(void)
{
	if (!access(NR_HUGE, W_OK))
		t_write_file(NR_HUGE, "0");
}
