// SPDX-License-Identifier: GPL-2.0
/*
 * Small buffers of device memory, which share pages of their context.
 */
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <infiniband/keeldv.h>

#include "dev.h"
#include "peer.h"
#include "qp.h"
#include "raw.h"
#include "t.h"
#include "tree.h"
#include "user.h"

#define PAGE	4096
#define SMALL	64
#define COUNT	(PAGE / SMALL)
#define RIGHTS	(IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE |	\
		 IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

static unsigned char host[SMALL] __attribute__((aligned(8)));

void t_after(void)
{
	dev_del();
}

static struct ibv_dm *alloc_dm(struct ibv_context *ctx, size_t length)
{
	struct ibv_alloc_dm_attr attr = { .length = length };

	return MUST(ibv_alloc_dm(ctx, &attr));
}

static uint64_t start_of(struct ibv_dm *dm)
{
	struct keeldv_dm_attr attr;

	CHECK_OK(keeldv_query_dm(dm, &attr));
	return attr.start;
}

static uint64_t page_of(struct ibv_dm *dm)
{
	return start_of(dm) / PAGE;
}

/* Each has a byte of its own value in each place, and no others. */
static void check_marks(struct ibv_dm **dm, int n)
{
	unsigned char got[SMALL];
	int i;

	for (i = 0; i < n; i++) {
		CHECK_OK(ibv_memcpy_from_dm(got, dm[i], 0, SMALL));
		CHECK_ALL(got, i + 1, SMALL);
		CHECK_ALL((unsigned char *)MUST(keeldv_dm_map(dm[i])), i + 1, SMALL);
	}
}

TEST(one_page, "DM-6,DM-5", "64 buffers of 64 bytes take one page, the next one another, and each has its own bytes only")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_dm *dm[COUNT + 1];
	unsigned char mark[SMALL];
	int i;

	for (i = 0; i <= COUNT; i++) {
		dm[i] = alloc_dm(ctx, SMALL);
		CHECK_EQ(start_of(dm[i]) % SMALL, 0);
		if (i < COUNT)
			CHECK_EQ(page_of(dm[i]), page_of(dm[0]));
		memset(mark, i + 1, SMALL);
		CHECK_OK(ibv_memcpy_to_dm(dm[i], 0, mark, SMALL));
		check_marks(dm, i + 1);
	}
	CHECK(page_of(dm[COUNT]) != page_of(dm[0]));
	/* A bigger one and one with a coarse alignment have pages of their own. */
	CHECK_EQ(start_of(alloc_dm(ctx, PAGE / 2 + 1)) % PAGE, 0);
	check_marks(dm, COUNT + 1);
}

TEST(alignments, "DM-2", "small buffers have every alignment up to a page and beyond")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_alloc_dm_attr attr = { .length = 1 };
	uint32_t n;

	for (n = 0; n <= 16; n++) {
		attr.log_align_req = n;
		CHECK_EQ(start_of(MUST(ibv_alloc_dm(ctx, &attr))) & ((1ULL << n) - 1), 0);
		attr.length = attr.length * 3 % 1021;
	}
}

/* The pages of two small buffers of a child, which has the same file. */
static void child_pages(struct ibv_context *ctx, int user, uint64_t *pages)
{
	int status;
	pid_t pid = SYS(fork());

	if (!pid) {
		if (user)
			user_become(user);
		pages[0] = page_of(alloc_dm(ctx, SMALL));
		pages[1] = page_of(alloc_dm(ctx, SMALL));
		_exit(0);
	}
	SYS(waitpid(pid, &status, 0));
	CHECK_EQ(status, 0);
	CHECK(pages[0] != pages[1]);
}

TEST(contexts, "DM-6,ISO-5", "small buffers share pages with others of their process, context and user only")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_dm *dm = alloc_dm(ctx, SMALL);
	uint64_t *pages = peer_shared(2 * sizeof(*pages));
	int user, i;

	CHECK(page_of(alloc_dm(dev_open(KEEL0), SMALL)) != page_of(dm));
	for (user = 0; user <= 1000; user += 1000) {
		child_pages(ctx, user, pages);
		for (i = 0; i < 2; i++)
			CHECK(pages[i] != page_of(dm));
	}
	CHECK_EQ(page_of(alloc_dm(ctx, SMALL)), page_of(dm));
	user_become(1000);
	for (i = 0; i < 2; i++)
		CHECK(page_of(alloc_dm(ctx, SMALL)) != page_of(dm));
}

/* Allocate a small buffer with these flags, or none if NULL: return 0 or errno. */
static int alloc_raw(struct ibv_context *ctx, const uint32_t *flags, uint32_t *handle)
{
	uint64_t length = SMALL;
	uint32_t align = 0;
	struct raw_cmd cmd;
	struct ib_uverbs_attr *new;
	int ret;

	raw_init(&cmd, UVERBS_OBJECT_DM, UVERBS_METHOD_DM_ALLOC);
	new = raw_new(&cmd, UVERBS_ATTR_ALLOC_DM_HANDLE);
	raw_in(&cmd, UVERBS_ATTR_ALLOC_DM_LENGTH, &length, sizeof(length));
	raw_in(&cmd, UVERBS_ATTR_ALLOC_DM_ALIGNMENT, &align, sizeof(align));
	if (flags)
		raw_in(&cmd, KEEL_ATTR_DM_ALLOC_FLAGS, flags, sizeof(*flags));
	ret = raw_run(ctx->cmd_fd, &cmd);
	*handle = new->data;
	return ret;
}

TEST(flags, "DM-6,DEV-4", "a small buffer whose caller does not ask for it shares no page, and other flags are refused with EINVAL")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	const uint32_t none = 0, shares = KEEL_DM_ALLOC_SHARES_PAGE;
	const uint32_t bad[] = { 2, 3, 0x80000000 };
	struct keel_uapi_dm_map map;
	uint32_t handle[4], skip;
	char *before;
	int i;

	/* The first buffer of the page that two share. */
	CHECK_OK(alloc_raw(ctx, &shares, &handle[0]));
	CHECK_OK(alloc_raw(ctx, &none, &handle[1]));
	CHECK_OK(alloc_raw(ctx, NULL, &handle[2]));
	CHECK_OK(alloc_raw(ctx, &shares, &handle[3]));
	for (i = 0; i < 4; i++) {
		CHECK_OK(raw_dm_map_skip(ctx->cmd_fd, handle[i], &map, &skip));
		CHECK_EQ(skip, i == 3 ? SMALL : 0);
		CHECK_EQ(map.length, PAGE);
		CHECK_RET(raw_dm_map(ctx->cmd_fd, handle[i], 0, &map),
			  i == 0 || i == 3 ? EOPNOTSUPP : 0);
	}
	before = tree_text(KEEL0);
	for (i = 0; i < 3; i++)
		CHECK_RET(alloc_raw(ctx, &bad[i], &handle[0]), EINVAL);
	CHECK_SAME_TREE(before);
}

TEST(zero, "DM-4", "a small buffer is zero, although a mapping of its page has written there after the last owner freed it")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_dm *stays = alloc_dm(ctx, SMALL), *dm = alloc_dm(ctx, 3 * SMALL);
	unsigned char *map = MUST(keeldv_dm_map(stays)), got[3 * SMALL];
	uint64_t start = start_of(dm);

	/* The first two of a page. */
	CHECK_EQ(start_of(dm), start_of(stays) + SMALL);
	CHECK_EQ((uintptr_t)map % PAGE, start_of(stays) % PAGE);
	memset(map, 0x11, SMALL);
	memset(MUST(keeldv_dm_map(dm)), 0xff, 3 * SMALL);
	CHECK_OK(ibv_free_dm(dm));
	memset(map + SMALL, 0xaa, 3 * SMALL);
	dm = alloc_dm(ctx, 2 * SMALL + 1);
	CHECK_EQ(start_of(dm), start);
	CHECK_OK(ibv_memcpy_from_dm(got, dm, 0, 2 * SMALL + 1));
	CHECK_ALL(got, 0, 2 * SMALL + 1);
	CHECK_ALL(map, 0x11, SMALL);
}

/* A mapping of the page of a small buffer, without the library. */
static unsigned char *own_map(struct ibv_dm *dm, uint32_t *skip)
{
	struct keel_uapi_dm_map map;
	void *p;

	CHECK_OK(raw_dm_map_skip(dm->context->cmd_fd, dm->handle, &map, skip));
	CHECK_EQ(map.start, 0);
	CHECK_EQ(map.length, PAGE);
	p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, dm->context->cmd_fd,
		 map.mmap_offset);
	CHECK(p != MAP_FAILED);
	return p;
}

/* Nobody gets this page now, and everybody gets all others. */
static void check_withheld(struct ibv_context *ctx, uint64_t page)
{
	struct ibv_device_attr_ex attr = {};
	uint64_t pages, n;

	CHECK_OK(ibv_query_device_ex(ctx, NULL, &attr));
	pages = attr.max_dm_size / PAGE;
	for (n = 1; n < pages; n++)
		CHECK(page_of(alloc_dm(ctx, PAGE)) != page);
	CHECK_NULL(ibv_alloc_dm(ctx, &(struct ibv_alloc_dm_attr){ .length = 1 }), ENOMEM);
}

static void check_free(uint64_t page)
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_device_attr_ex attr = {};
	unsigned char *map;
	struct ibv_dm *dm;

	CHECK_OK(ibv_query_device_ex(ctx, NULL, &attr));
	dm = alloc_dm(ctx, attr.max_dm_size);
	map = MUST(keeldv_dm_map(dm));
	CHECK_ALL(map + page * PAGE, 0, PAGE);
	CHECK_OK(ibv_free_dm(dm));
	CHECK_OK(ibv_close_device(ctx));
}

/*
 * Two small buffers, of which one is mapped, are freed, and perhaps the context closed. The
 * mapping then is in this process, or in a child that has nothing else.
 */
static void check_stale(bool close_it, bool in_child)
{
	struct ibv_context *ctx = dev_open(KEEL0), *other = dev_open(KEEL0);
	struct ibv_dm *dm[2] = { alloc_dm(ctx, SMALL), alloc_dm(ctx, SMALL) };
	uint64_t page = page_of(dm[0]);
	unsigned char *map;
	uint32_t skip;
	pid_t pid = 0;

	map = own_map(dm[1], &skip);
	CHECK_EQ(skip, SMALL);
	memset(map, 0xee, PAGE);
	if (in_child) {
		pid = SYS(fork());
		if (!pid) {
			SYS(close(ctx->cmd_fd));
			SYS(close(other->cmd_fd));
			pause();
			_exit(0);
		}
		SYS(munmap(map, PAGE));
	}
	CHECK_OK(ibv_free_dm(dm[0]));
	CHECK_OK(ibv_free_dm(dm[1]));
	if (close_it)
		CHECK_OK(ibv_close_device(ctx));
	check_withheld(other, page);
	CHECK_OK(ibv_close_device(other));
	if (in_child) {
		SYS(kill(pid, SIGKILL));
		SYS(waitpid(pid, NULL, 0));
	} else {
		CHECK_ALL(map, 0xee, PAGE);
		SYS(munmap(map, PAGE));
	}
	check_free(page);
	if (!close_it)
		CHECK_OK(ibv_close_device(ctx));
}

TEST_SLOW(stale, "DM-6,DM-4", "while a mapping of a freed small buffer lives, here or in a child, nobody gets its page, also after the context was closed", 60)
{
	int i;

	for (i = 0; i < 4; i++)
		check_stale(i & 1, i & 2);
}

TEST(alone, "DM-6", "a small buffer with the alignment of a page owns it, so a child that inherits its mapping and nothing else sees no other buffer")
{
	struct ibv_alloc_dm_attr attr = { .length = SMALL, .log_align_req = 12 };
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_dm *dm = MUST(ibv_alloc_dm(ctx, &attr));
	unsigned char *map = MUST(keeldv_dm_map(dm)), secret[SMALL];
	int status;
	pid_t pid;

	CHECK_EQ((uintptr_t)map % PAGE, 0);
	memset(secret, 0x5e, SMALL);
	CHECK_OK(ibv_memcpy_to_dm(alloc_dm(ctx, SMALL), 0, secret, SMALL));
	pid = SYS(fork());
	if (!pid) {
		SYS(close(ctx->cmd_fd));
		CHECK_ALL(map, 0, PAGE);
		_exit(0);
	}
	SYS(waitpid(pid, &status, 0));
	CHECK_EQ(status, 0);
}

TEST(traffic, "DM-7", "RDMA writes and atomics to the region of a small buffer change its bytes only, and one byte further is refused")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	struct ibv_mr *mr = MUST(ibv_reg_mr(pd, host, SMALL, IBV_ACCESS_LOCAL_WRITE)), *to;
	struct link l = link_new(pd, pd, IBV_QPT_RC);
	struct ibv_dm *dm[3];
	uint64_t sum;
	int i;

	for (i = 0; i < 3; i++)
		dm[i] = alloc_dm(ctx, SMALL);
	CHECK_EQ(page_of(dm[2]), page_of(dm[0]));
	qp_allow(l.qp[1], IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
	to = MUST(ibv_reg_dm_mr(pd, dm[1], 0, SMALL, RIGHTS));
	memset(host, 0x21, SMALL);
	post_rdma(l.qp[0], IBV_WR_RDMA_WRITE, 1, MEM(mr), 0, to->rkey);
	CHECK_WC(l.cq[0], 1, IBV_WC_SUCCESS);
	post_add(l.qp[0], 2, (struct mem){ host, 8, mr->lkey }, 8, to->rkey, 1);
	CHECK_WC(l.cq[0], 2, IBV_WC_SUCCESS);
	CHECK_ALL((unsigned char *)MUST(keeldv_dm_map(dm[0])), 0, SMALL);
	CHECK_ALL((unsigned char *)MUST(keeldv_dm_map(dm[2])), 0, SMALL);
	CHECK_OK(ibv_memcpy_from_dm(&sum, dm[1], 8, 8));
	CHECK_EQ(sum, 0x2121212121212122);
	post_rdma(l.qp[0], IBV_WR_RDMA_WRITE, 3, MEM(mr), 1, to->rkey);
	CHECK_WC(l.cq[0], 3, IBV_WC_REM_ACCESS_ERR);
	CHECK_ALL((unsigned char *)MUST(keeldv_dm_map(dm[2])), 0, SMALL);
	CHECK_RET(ibv_free_dm(dm[1]), EBUSY);
}

struct told {
	uint32_t dm[2];
};

static void owner(struct peer *parent)
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_dm *dm[2] = { alloc_dm(ctx, SMALL), alloc_dm(ctx, SMALL) };
	struct told told = { { dm[0]->handle, dm[1]->handle } };

	CHECK_OK(ibv_memcpy_to_dm(dm[0], 0, "the first", 10));
	CHECK_OK(ibv_memcpy_to_dm(dm[1], 0, "the other", 10));
	peer_put_fd(parent, ctx->cmd_fd);
	peer_put_var(parent, told);
	peer_wait(parent);
	CHECK_MEM((char *)MUST(keeldv_dm_map(dm[0])), "the first", 10);
	CHECK_MEM((char *)MUST(keeldv_dm_map(dm[1])), "an answer", 10);
}

TEST(imported, "DM-9", "ibv_import_dm() of small buffers that share a page reaches the bytes of each")
{
	struct ibv_context *ctx;
	struct told told;
	struct peer p;
	char got[10];
	int i;

	peer_start(&p, owner);
	i = peer_get_fd(&p);
	peer_get_var(&p, told);
	ctx = MUST(ibv_import_device(i));
	for (i = 0; i < 2; i++) {
		struct ibv_dm *dm = MUST(ibv_import_dm(ctx, told.dm[i]));

		CHECK_OK(ibv_memcpy_from_dm(got, dm, 0, 10));
		CHECK_MEM(got, i ? "the other" : "the first", 10);
		if (i)
			CHECK_OK(ibv_memcpy_to_dm(dm, 0, "an answer", 10));
		ibv_unimport_dm(dm);
	}
	peer_tell(&p);
	peer_end(&p);
}

static void check_removed(bool touch)
{
	struct ibv_dm *dm[2];
	struct ibv_context *ctx;
	unsigned char *map[2];
	int i;

	dev_add();
	ctx = dev_open(KEEL1);
	for (i = 0; i < 2; i++) {
		dm[i] = alloc_dm(ctx, SMALL);
		map[i] = MUST(keeldv_dm_map(dm[i]));
		memset(map[i], 0x77, SMALL);
	}
	dev_del();
	for (i = 0; i < 2; i++) {
		CHECK_RET(ibv_memcpy_to_dm(dm[i], 0, "x", 1), EIO);
		if (touch)
			CHECK_ALL(map[i], 0, SMALL);
	}
	CHECK_OK(ibv_free_dm(dm[0]));
	CHECK_OK(ibv_free_dm(dm[1]));
	CHECK_OK(ibv_close_device(ctx));
}

TEST(removed, "DM-6,DEV-3", "after rdma link delete, copies to small buffers that share a page fail with EIO, and the end succeeds")
{
	check_removed(false);
}

/* See dm_map.c. */
TEST_NOT_UML(removed_touch, "DM-6,DEV-3", "after rdma link delete, small buffers that share a page read as zeros",
	     "UML's page tables have no special bit")
{
	check_removed(true);
}
