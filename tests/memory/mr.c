// SPDX-License-Identifier: GPL-2.0
/*
 * MRs of user memory: what does not need a message.
 */
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "peer.h"
#include "t.h"
#include "tree.h"

#define PAGE	4096

static unsigned char page[2 * PAGE] __attribute__((aligned(PAGE)));

/* Return how many KiB this process has pinned. */
static long pinned(void)
{
	char *text = t_read_file("/proc/self/status");
	char *at = strstr(text, "VmPin:");
	long kib;

	CHECK(at);
	kib = atol(at + 6);
	free(text);
	return kib;
}

static void *map_pages(int pages, int prot)
{
	void *p = mmap(NULL, pages * PAGE, prot, MAP_PRIVATE | MAP_ANONYMOUS,
		       -1, 0);

	CHECK(p != MAP_FAILED);
	return p;
}

TEST(known, "PD-2", "rdma resource and debugfs list an MR with its length and key until ibv_dereg_mr()")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	struct ibv_mr *mr = MUST(ibv_reg_mr(pd, page + 5, 1234, 0));
	struct tree tree;
	char *text;

	CHECK(mr->context == ctx && mr->pd == pd);
	CHECK(mr->addr == page + 5);
	CHECK_EQ(mr->length, 1234);
	CHECK(mr->lkey != 0);
	CHECK_EQ(mr->rkey, mr->lkey);
	tree_read(KEEL0, &tree);
	CHECK_EQ(tree_value(tree_only(&tree, "mr"), "length"), 1234);
	CHECK_EQ(tree_value(tree_only(&tree, "mr"), "key"), mr->lkey);
	text = t_shell("rdma -dd resource show mr | tr '\n' ' '");
	CHECK(strstr(text, "mrlen 1234"));
	CHECK(strstr(text, "drv_memory user"));
	CHECK_EQ(res_count(KEEL0, "mr"), 1);
	CHECK_OK(ibv_dereg_mr(mr));
	CHECK_EQ(res_count(KEEL0, "mr"), 0);
	CHECK_OK(ibv_dealloc_pd(pd));
}

#define MANY	300

TEST(keys, "PD-4", "keys of live MRs are all different and never 0, and a freed key is not the next key")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	struct ibv_mr *mr[MANY];
	uint32_t old;
	int i, j;

	for (i = 0; i < MANY; i++) {
		mr[i] = MUST(ibv_reg_mr(pd, page, PAGE, 0));
		CHECK(mr[i]->lkey != 0);
		for (j = 0; j < i; j++)
			CHECK(mr[j]->lkey != mr[i]->lkey);
	}
	for (i = 0; i < MANY; i++) {
		old = mr[i]->lkey;
		CHECK_OK(ibv_dereg_mr(mr[i]));
		mr[i] = MUST(ibv_reg_mr(pd, page, PAGE, 0));
		CHECK(mr[i]->lkey != old);
		/*
		 * The new key does not even have the same table index with
		 * another tail.
		 */
		CHECK(mr[i]->lkey >> 8 != old >> 8);
	}
}

TEST(pins, "PD-3", "the kernel pins the pages of an MR from ibv_reg_mr() to ibv_dereg_mr() or ibv_close_device()")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	unsigned char *p = map_pages(64, PROT_READ | PROT_WRITE);
	long before = pinned();
	struct ibv_mr *a, *b;

	a = MUST(ibv_reg_mr(pd, p, 64 * PAGE, IBV_ACCESS_LOCAL_WRITE));
	CHECK_EQ(pinned() - before, 64 * 4);
	/* Two bytes on two pages. */
	b = MUST(ibv_reg_mr(pd, p + PAGE - 1, 2, 0));
	CHECK_EQ(pinned() - before, 66 * 4);
	CHECK_OK(ibv_dereg_mr(a));
	CHECK_EQ(pinned() - before, 2 * 4);
	CHECK_OK(ibv_dereg_mr(b));
	CHECK_EQ(pinned() - before, 0);
	MUST(ibv_reg_mr(pd, p, 64 * PAGE, 0));
	CHECK_OK(ibv_close_device(ctx));
	CHECK_EQ(pinned() - before, 0);
}

TEST(limit, "DEV-4", "ibv_reg_mr() beyond RLIMIT_MEMLOCK fails with ENOMEM and pins nothing")
{
	struct rlimit limit = { .rlim_cur = 8 * PAGE, .rlim_max = 8 * PAGE };
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	unsigned char *p = map_pages(64, PROT_READ | PROT_WRITE);
	struct ibv_mr *mr;

	SYS(setrlimit(RLIMIT_MEMLOCK, &limit));
	/* RLIMIT_MEMLOCK does not limit root. */
	SYS(setresuid(65534, 65534, 65534));
	CHECK_NULL(ibv_reg_mr(pd, p, 9 * PAGE, 0), ENOMEM);
	mr = MUST(ibv_reg_mr(pd, p, 8 * PAGE, 0));
	CHECK_NULL(ibv_reg_mr(pd, p + 32 * PAGE, PAGE, 0), ENOMEM);
	CHECK_OK(ibv_dereg_mr(mr));
	mr = MUST(ibv_reg_mr(pd, p + 32 * PAGE, PAGE, 0));
	CHECK_OK(ibv_dereg_mr(mr));
	CHECK_OK(ibv_dealloc_pd(pd));
}

TEST(access_flags, "DEV-4", "ibv_reg_mr() refuses remote writes and atomics without LOCAL_WRITE, and unknown access flags, with EINVAL")
{
	static const int good[] = {
		0, IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_READ,
		IBV_ACCESS_MW_BIND, IBV_ACCESS_LOCAL_WRITE |
		IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC |
		IBV_ACCESS_REMOTE_READ, IBV_ACCESS_RELAXED_ORDERING,
	};
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	size_t i;

	for (i = 0; i < sizeof(good) / sizeof(*good); i++)
		CHECK_OK(ibv_dereg_mr(MUST(ibv_reg_mr(pd, page, 8, good[i]))));
	CHECK_NULL(ibv_reg_mr(pd, page, 8, IBV_ACCESS_REMOTE_WRITE), EINVAL);
	CHECK_NULL(ibv_reg_mr(pd, page, 8, IBV_ACCESS_REMOTE_ATOMIC), EINVAL);
	CHECK_NULL(ibv_reg_mr(pd, page, 8, 1 << 19), EINVAL);
	CHECK_EQ(tree_count(KEEL0, "mr"), 0);
}

TEST(bad_memory, "DEV-4", "ibv_reg_mr() refuses unmapped memory, and read-only memory with LOCAL_WRITE, with EFAULT")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	unsigned char *p = map_pages(4, PROT_READ | PROT_WRITE);
	long before = pinned();

	SYS(munmap(p + 2 * PAGE, PAGE));
	CHECK_NULL(ibv_reg_mr(pd, p, 3 * PAGE, 0), EFAULT);
	CHECK_NULL(ibv_reg_mr(pd, p, 2 * PAGE + 1, 0), EFAULT);
	CHECK_NULL(ibv_reg_mr(pd, p + 2 * PAGE, 1, 0), EFAULT);
	CHECK_NULL(ibv_reg_mr(pd, p + 3 * PAGE - 1, 2, 0), EFAULT);
	SYS(mprotect(p, PAGE, PROT_READ));
	CHECK_NULL(ibv_reg_mr(pd, p, PAGE, IBV_ACCESS_LOCAL_WRITE), EFAULT);
	SYS(mprotect(p, PAGE, PROT_NONE));
	CHECK_NULL(ibv_reg_mr(pd, p, PAGE, 0), EFAULT);
	CHECK_NULL(ibv_reg_mr(pd, (void *)PAGE, PAGE, 0), EFAULT);
	CHECK_EQ(pinned(), before);
	CHECK_EQ(tree_count(KEEL0, "mr"), 0);
	CHECK_OK(ibv_dereg_mr(MUST(ibv_reg_mr(pd, p + PAGE, PAGE,
					      IBV_ACCESS_LOCAL_WRITE))));
}

TEST(wrapped, "DEV-4", "ibv_reg_mr() refuses a length above max_mr_size, and addresses that wrap, with EINVAL")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	struct ibv_device_attr attr;

	CHECK_OK(ibv_query_device(ctx, &attr));
	CHECK_NULL(ibv_reg_mr(pd, page, attr.max_mr_size + 1, 0), EINVAL);
	CHECK_NULL(ibv_reg_mr(pd, page, SIZE_MAX, 0), EINVAL);
	CHECK_NULL(ibv_reg_mr(pd, page, SIZE_MAX - 4 * PAGE, 0), EINVAL);
	CHECK_NULL(ibv_reg_mr(pd, page, 1ULL << 63, 0), EINVAL);
	CHECK_NULL(ibv_reg_mr(pd, (void *)(~0UL - PAGE + 1), PAGE, 0), EINVAL);
	CHECK_NULL(ibv_reg_mr(pd, (void *)(~0UL - PAGE + 1), 2 * PAGE, 0),
		   EINVAL);
	/* The remote address must not wrap either. */
	CHECK_NULL(ibv_reg_mr_iova(pd, page, 2 * PAGE, ~0ULL - PAGE + 1, 0),
		   EINVAL);
	/* The kernel requires the same offset in the page. */
	CHECK_NULL(ibv_reg_mr_iova(pd, page, PAGE, 1, 0), EINVAL);
	CHECK_OK(ibv_dereg_mr(MUST(ibv_reg_mr_iova(pd, page, PAGE, 0, 0))));
	CHECK_OK(ibv_dereg_mr(MUST(ibv_reg_mr_iova(pd, page, PAGE,
						   ~0ULL - 2 * PAGE + 1, 0))));
	CHECK_EQ(tree_count(KEEL0, "mr"), 0);
}

TEST(unmapped_later, "PD-3", "an MR outlives munmap() of its memory, and its process can still exit")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	void *p = map_pages(8, PROT_READ | PROT_WRITE);
	struct ibv_mr *mr = MUST(ibv_reg_mr(pd, p, 8 * PAGE, 0));

	MUST(ibv_reg_mr(pd, p, 1, 0));
	SYS(munmap(p, 8 * PAGE));
	CHECK_OK(ibv_dereg_mr(mr));
	CHECK_EQ(tree_count(KEEL0, "mr"), 1);
}

static void leave_mrs(struct peer *parent)
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	void *p = map_pages(256, PROT_READ | PROT_WRITE);
	int i;

	for (i = 0; i < 100; i++)
		MUST(ibv_reg_mr(pd, p, 256 * PAGE, 0));
	peer_tell(parent);
	pause();
}

/* Return how many pages the kernel counts as pinned and not released. */
static long foll_pins(void)
{
	char *text;
	char *got, *put;
	long n;

	/* Let each processor add its count. */
	CHECK_OK(t_write_file("/proc/sys/vm/stat_refresh", "1"));
	text = t_read_file("/proc/vmstat");
	got = strstr(text, "nr_foll_pin_acquired ");
	put = strstr(text, "nr_foll_pin_released ");
	CHECK(got && put);
	n = atol(got + 21) - atol(put + 21);
	free(text);
	return n;
}

/*
 * Other kernel code pins about one page for the time of a file write: wait
 * until the count is stable.
 */
static long quiet_pins(void)
{
	long n = foll_pins(), again;
	int i;

	for (i = 0; i < 100; i++) {
		usleep(30000);
		again = foll_pins();
		if (again == n)
			break;
		n = again;
	}
	return n;
}

/* A write that is stalled longer than that has its page pinned: try again. */
static void check_pins(long want)
{
	int tries;

	for (tries = 0; quiet_pins() != want; tries++)
		if (tries > 50)
			FAIL("got %ld pinned pages, want %ld", quiet_pins(), want);
}

TEST(killed, "PD-3", "a killed process leaves no page pinned")
{
	struct peer p;
	long before;

	before = quiet_pins();
	peer_start(&p, leave_mrs);
	peer_wait(&p);
	CHECK_EQ(tree_count(KEEL0, "mr"), 100);
	check_pins(before + 100 * 256);
	peer_kill(&p, SIGKILL);
	check_pins(before);
	CHECK_EQ(tree_count(KEEL0, NULL), 0);
}
