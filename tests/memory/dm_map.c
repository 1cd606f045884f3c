// SPDX-License-Identifier: GPL-2.0
/*
 * Mappings of device memory: which bytes they show, how long they hold pages,
 * and what happens to them when the process frees the buffer or exits, or the
 * device is removed.
 */
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <infiniband/keeldv.h>

#include "dev.h"
#include "peer.h"
#include "raw.h"
#include "t.h"
#include "tree.h"

#define PAGE	4096

void t_after(void)
{
	dev_del();
	module_restore();
}

static struct ibv_dm *alloc_dm(struct ibv_context *ctx, size_t length)
{
	struct ibv_alloc_dm_attr attr = { .length = length };

	return ibv_alloc_dm(ctx, &attr);
}

static uint64_t max_dm_size(struct ibv_context *ctx)
{
	struct ibv_device_attr_ex attr = {};

	CHECK_OK(ibv_query_device_ex(ctx, NULL, &attr));
	return attr.max_dm_size;
}

static struct keel_uapi_dm_map stretch_at(struct ibv_dm *dm, uint64_t offset)
{
	struct keel_uapi_dm_map map = { .reserved = 1 };

	CHECK_OK(raw_dm_map(dm->context->cmd_fd, dm->handle, offset, &map));
	CHECK_EQ(map.reserved, 0);
	return map;
}

static void *map_at(struct ibv_context *ctx, void *at,
		    const struct keel_uapi_dm_map *map)
{
	return mmap(at, map->length, PROT_READ | PROT_WRITE,
		    MAP_SHARED | (at ? MAP_FIXED : 0), ctx->cmd_fd,
		    map->mmap_offset);
}

/*
 * Create a mapping that the provider does not know. The buffer is one
 * contiguous extent.
 */
static unsigned char *own_map(struct ibv_dm *dm)
{
	struct keel_uapi_dm_map map = stretch_at(dm, 0);
	void *p = map_at(dm->context, NULL, &map);

	CHECK(p != MAP_FAILED);
	CHECK_EQ(map.start, 0);
	return p;
}

TEST(same_bytes, "DM-6", "stores through a mapping and ibv_memcpy_to_dm() reach the same bytes, at any size and alignment")
{
	struct ibv_dm *dm = MUST(alloc_dm(dev_open(KEEL0), 2 * PAGE));
	unsigned char *map = MUST(keeldv_dm_map(dm)), *own = own_map(dm);
	unsigned char got[16];
	uint64_t value = 0x1122334455667788ULL;
	int off;

	for (off = PAGE - 9; off < PAGE + 2; off++) {
		memset(map, 0, 2 * PAGE);
		map[off] = 0x99;
		memcpy(map + off + 1, &value, 8);
		*(uint16_t *)(own + off + 9) = 0xabcd;
		CHECK_OK(ibv_memcpy_from_dm(got, dm, off, 11));
		CHECK_MEM(got, "\x99\x88\x77\x66\x55\x44\x33\x22\x11\xcd\xab", 11);
		CHECK_OK(ibv_memcpy_to_dm(dm, off, "hello", 5));
		CHECK_MEM(own + off, "hello", 5);
		CHECK_MEM(map + off, "hello", 5);
	}
}

TEST(same_pointer, "DM-6", "keeldv_dm_map() returns the same pointer each time, and a different pointer for another buffer")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_dm *a = MUST(alloc_dm(ctx, PAGE)), *b = MUST(alloc_dm(ctx, 1));
	char *map = MUST(keeldv_dm_map(a));

	CHECK(keeldv_dm_map(a) == map);
	CHECK((char *)MUST(keeldv_dm_map(b)) != map);
	CHECK_NULL(keeldv_dm_map(NULL), EINVAL);
}

/* Go over the extents of the largest buffer, and return their number. */
static int count_stretches(struct ibv_context *ctx)
{
	uint64_t max = max_dm_size(ctx), at = 0;
	struct ibv_dm *dm = MUST(alloc_dm(ctx, max - 5));
	struct keel_uapi_dm_map map, again;
	int n = 0;

	while (at < max) {
		map = stretch_at(dm, at);
		CHECK_EQ(map.start, at);
		CHECK(map.length && map.length % PAGE == 0);
		CHECK_EQ(map.mmap_offset % PAGE, 0);
		/*
		 * The middle and the end of the extent return the same extent.
		 */
		again = stretch_at(dm, at + map.length / 2);
		CHECK_MEM(&again, &map, sizeof(map));
		if (at + map.length < max) {
			again = stretch_at(dm, at + map.length - 1);
			CHECK_MEM(&again, &map, sizeof(map));
		}
		at += map.length;
		n++;
	}
	CHECK_EQ(at, max);
	CHECK_RET(raw_dm_map(ctx->cmd_fd, dm->handle, max - 5, &map), EINVAL);
	CHECK_RET(raw_dm_map(ctx->cmd_fd, dm->handle, max, &map), EINVAL);
	CHECK_RET(raw_dm_map(ctx->cmd_fd, dm->handle, ~0ULL, &map), EINVAL);
	CHECK_OK(ibv_free_dm(dm));
	return n;
}

TEST(stretches, "DM-6", "the contiguous extents of the largest buffer follow one another without a gap up to its end")
{
	t_note("%d extents", count_stretches(dev_open(KEEL0)));
}

/*
 * Memory that is no power of 2 comes from several blocks of the kernel, which are rarely
 * neighbours.
 */
TEST(several, "DM-6", "a buffer of several extents has each of them at its own offset")
{
	struct ibv_context *ctx;
	int i, n, more = 0;
	char params[40];

	for (i = 2; i < 10; i++) {
		module_unload();
		snprintf(params, sizeof(params), "dm_size=%d", ((1 << i) - 1) * PAGE);
		module_load(params);
		ctx = dev_open(KEEL0);
		n = count_stretches(ctx);
		CHECK_OK(ibv_close_device(ctx));
		t_note("%d pages: %d extents", (1 << i) - 1, n);
		more += n > 1;
	}
	CHECK(more > 0);
}

static void check_mmap(struct ibv_context *ctx, size_t len, int flags,
		       uint64_t offset)
{
	CHECK_SYS(mmap(NULL, len, PROT_READ | PROT_WRITE, flags, ctx->cmd_fd,
		       offset), EINVAL);
}

TEST(refused, "DM-6,DEV-4", "mmap() refuses a private mapping, another length, another offset and another context with EINVAL")
{
	struct ibv_context *ctx = dev_open(KEEL0), *other = dev_open(KEEL0);
	struct ibv_dm *dm = MUST(alloc_dm(ctx, 2 * PAGE));
	struct keel_uapi_dm_map map = stretch_at(dm, 0);
	char *before = tree_text(KEEL0);
	uint64_t off = map.mmap_offset;

	CHECK_EQ(map.length, 2 * PAGE);
	check_mmap(ctx, 2 * PAGE, MAP_PRIVATE, off);
	check_mmap(ctx, PAGE, MAP_SHARED, off);
	check_mmap(ctx, 3 * PAGE, MAP_SHARED, off);
	check_mmap(ctx, 1ULL << 30, MAP_SHARED, off);
	check_mmap(ctx, PAGE, MAP_SHARED, off + PAGE);
	check_mmap(ctx, 2 * PAGE, MAP_SHARED, off + PAGE);
	check_mmap(ctx, 2 * PAGE, MAP_SHARED, off + 1000 * PAGE);
	check_mmap(ctx, 2 * PAGE, MAP_SHARED, off + (1ULL << 44));
	/* The offset is valid in this context only. */
	check_mmap(other, 2 * PAGE, MAP_SHARED, off);
	CHECK_SAME_TREE(before);
	CHECK(map_at(ctx, NULL, &map) != MAP_FAILED);
}

static sigjmp_buf fault_jump;

static void on_fault(int sig)
{
	siglongjmp(fault_jump, sig);
}

/* Return the signal that a read at p raises, or 0. */
static int fault_at(const volatile unsigned char *p)
{
	struct sigaction act = { .sa_handler = on_fault }, segv, bus;
	int sig;

	sigaction(SIGSEGV, &act, &segv);
	sigaction(SIGBUS, &act, &bus);
	sig = sigsetjmp(fault_jump, 1);
	if (!sig)
		(void)*p;
	sigaction(SIGSEGV, &segv, NULL);
	sigaction(SIGBUS, &bus, NULL);
	return sig;
}

TEST(no_further, "DM-6", "a mapping ends with the buffer's last page, and mremap() can neither grow nor duplicate it")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_dm *dm = MUST(alloc_dm(ctx, PAGE + 1));
	struct keel_uapi_dm_map map = stretch_at(dm, 0);
	unsigned char *p;

	/* The next page of the device's memory holds another buffer. */
	memset(MUST(keeldv_dm_map(MUST(alloc_dm(ctx, PAGE)))), 0xa5, PAGE);
	CHECK_EQ(map.length, 2 * PAGE);
	p = mmap(NULL, 4 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(map_at(ctx, p + PAGE, &map) == p + PAGE);
	CHECK_ALL(p + PAGE, 0, 2 * PAGE);
	CHECK_EQ(fault_at(p + PAGE - 1), SIGSEGV);
	CHECK_EQ(fault_at(p + 3 * PAGE), SIGSEGV);
	CHECK(mremap(p + PAGE, 2 * PAGE, 3 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED);
	SYS(munmap(p + 3 * PAGE, PAGE));
	CHECK(mremap(p + PAGE, 2 * PAGE, 3 * PAGE, 0) == MAP_FAILED);
	CHECK(mremap(p + PAGE, 0, 2 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED);
	CHECK_ALL(p + PAGE, 0, 2 * PAGE);
}

#define OWN	64

/* Bytes of a buffer that are its own: it has whole pages, or shares one. */
static size_t own_size(int i)
{
	size_t length = 1 + i * 100;

	return length > PAGE / 2 ? (length + PAGE - 1) / PAGE * PAGE : length;
}

/* Write to the pages of a buffer, which have bytes of this process only, or none. */
static void mark_pages(unsigned char *map, size_t length, unsigned char mark)
{
	unsigned char *at = map - (uintptr_t)map % PAGE, *end = map + length;

	while (at < end || (uintptr_t)at % PAGE) {
		if (*at && *at != mark)
			FAIL("a byte is 0x%x, want 0x%x or 0", *at, mark);
		*at++ = mark;
	}
}

static void own_bytes(struct peer *parent)
{
	struct ibv_context *ctx = dev_open(KEEL0);
	unsigned char *map[OWN];
	unsigned char mark;
	int i, round;

	peer_get_var(parent, mark);
	for (i = 0; i < OWN; i++) {
		map[i] = MUST(keeldv_dm_map(MUST(alloc_dm(ctx, 1 + i * 100))));
		CHECK_ALL(map[i], 0, own_size(i));
		/*
		 * Lengths are odd: the rest of the last page must not show a buffer
		 * of the other process.
		 */
		mark_pages(map[i], 1 + i * 100, mark);
	}
	for (round = 0; round < 20; round++) {
		peer_tell(parent);
		peer_wait(parent);
		for (i = 0; i < OWN; i++) {
			CHECK_ALL(map[i], mark, own_size(i));
			mark_pages(map[i], 1 + i * 100, mark);
		}
	}
}

TEST(nobody_elses, "DM-6", "small buffers of two processes never show each other's bytes, not even in their last pages")
{
	struct peer p[2];
	unsigned char mark;
	int i, round;

	for (i = 0; i < 2; i++) {
		peer_start(&p[i], own_bytes);
		mark = 0x40 + i;
		peer_put_var(&p[i], mark);
	}
	for (round = 0; round < 20; round++)
		for (i = 0; i < 2; i++) {
			peer_wait(&p[i]);
			peer_tell(&p[i]);
		}
	peer_end(&p[0]);
	peer_end(&p[1]);
}

/* Check that all device memory is free and zero. */
static void check_all_free(struct ibv_context *ctx)
{
	uint64_t max = max_dm_size(ctx);
	struct ibv_dm *dm = MUST(alloc_dm(ctx, max));

	CHECK_ALL(MUST(keeldv_dm_map(dm)), 0, max);
	CHECK_OK(ibv_free_dm(dm));
}

/* Check that no allocation returns a byte of [start, start + len). */
static void check_withheld(struct ibv_context *ctx, uint64_t start, size_t len)
{
	struct ibv_dm *got[600];
	uint64_t max = max_dm_size(ctx), sum = 0;
	struct keeldv_dm_attr attr;
	size_t step = max / 2;
	int n = 0;

	CHECK_NULL(alloc_dm(ctx, max), ENOMEM);
	while (step >= PAGE && n < 600) {
		got[n] = alloc_dm(ctx, step);
		if (!got[n]) {
			CHECK_EQ(errno, ENOMEM);
			step /= 2;
			continue;
		}
		CHECK_OK(keeldv_query_dm(got[n++], &attr));
		CHECK(attr.start >= start + len || attr.start + step <= start);
		sum += step;
	}
	CHECK_EQ(sum, max - len);
	while (n--)
		CHECK_OK(ibv_free_dm(got[n]));
}

TEST(after_free, "DM-6", "a mapping used after ibv_free_dm() reaches its old bytes, which no buffer gets before munmap()")
{
	struct ibv_context *ctx = dev_open(KEEL0), *other = dev_open(KEEL0);
	struct ibv_dm *dm = MUST(alloc_dm(ctx, 4 * PAGE));
	struct keel_uapi_dm_map map = stretch_at(dm, 0);
	unsigned char *p = own_map(dm);
	struct keeldv_dm_attr attr;
	struct tree tree;

	CHECK_OK(keeldv_query_dm(dm, &attr));
	memset(p, 0xc3, 4 * PAGE);
	CHECK_OK(ibv_free_dm(dm));
	tree_read(KEEL0, &tree);
	CHECK(tree_only(&tree, "dm")->closing);
	CHECK_ALL(p, 0xc3, 4 * PAGE);
	memset(p, 0x3c, 4 * PAGE);
	/* The old offset cannot be mapped again. */
	CHECK(map_at(ctx, NULL, &map) == MAP_FAILED);
	CHECK_EQ(errno, EINVAL);
	check_withheld(other, attr.start, 4 * PAGE);
	CHECK_ALL(p, 0x3c, 4 * PAGE);
	SYS(munmap(p, 4 * PAGE));
	CHECK_EQ(tree_count(KEEL0, NULL), 0);
	check_all_free(other);
}

TEST(part_unmapped, "DM-6", "after munmap() of parts of a mapping, no buffer gets its pages until the last part is unmapped")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_dm *dm = MUST(alloc_dm(ctx, 4 * PAGE));
	unsigned char *p = own_map(dm);
	struct keeldv_dm_attr attr;
	void *to;

	CHECK_OK(keeldv_query_dm(dm, &attr));
	CHECK_OK(ibv_free_dm(dm));
	SYS(munmap(p + PAGE, PAGE));
	check_withheld(ctx, attr.start, 4 * PAGE);
	memset(p, 1, PAGE);
	memset(p + 2 * PAGE, 2, 2 * PAGE);
	CHECK_EQ(fault_at(p + PAGE), SIGSEGV);
	SYS(munmap(p, PAGE));
	SYS(munmap(p + 3 * PAGE, PAGE));
	check_withheld(ctx, attr.start, 4 * PAGE);
	CHECK_ALL(p + 2 * PAGE, 2, PAGE);
	/* mremap() keeps the mapping's reference. */
	to = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(to != MAP_FAILED);
	p = mremap(p + 2 * PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to);
	CHECK(p == to);
	CHECK_ALL(p, 2, PAGE);
	check_withheld(ctx, attr.start, 4 * PAGE);
	SYS(munmap(p, PAGE));
	check_all_free(ctx);
}

TEST(forked, "DM-6", "a child keeps its inherited mapping until it exits, even if the parent frees the buffer")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_dm *dm = MUST(alloc_dm(ctx, 2 * PAGE));
	unsigned char *p = own_map(dm);
	struct keeldv_dm_attr attr;
	int fds[2], status;
	pid_t pid;

	CHECK_OK(keeldv_query_dm(dm, &attr));
	memset(p, 0x10, 2 * PAGE);
	SYS(pipe(fds));
	pid = SYS(fork());
	if (!pid) {
		char c;

		close(fds[1]);
		CHECK_ALL(p, 0x10, 2 * PAGE);
		memset(p, 0x20, PAGE);
		CHECK_EQ(read(fds[0], &c, 1), 0);
		/*
		 * The parent has freed the buffer and unmapped its copy by now.
		 */
		CHECK_ALL(p, 0x20, PAGE);
		CHECK_ALL(p + PAGE, 0x30, PAGE);
		memset(p, 0x40, 2 * PAGE);
		_exit(0);
	}
	while (((volatile unsigned char *)p)[PAGE - 1] != 0x20)
		usleep(1000);
	memset(p + PAGE, 0x30, PAGE);
	CHECK_OK(ibv_free_dm(dm));
	SYS(munmap(p, 2 * PAGE));
	check_withheld(ctx, attr.start, 2 * PAGE);
	close(fds[1]);
	SYS(waitpid(pid, &status, 0));
	CHECK_EQ(status, 0);
	check_all_free(ctx);
}

static void map_and_hold(struct peer *parent)
{
	struct ibv_context *ctx = dev_open(KEEL0);
	unsigned char *p = MUST(keeldv_dm_map(MUST(alloc_dm(ctx, 3 * PAGE))));
	struct ibv_dm *dm = MUST(alloc_dm(ctx, 3 * PAGE));

	memset(p, 0xff, 3 * PAGE);
	memset(own_map(dm), 0xff, 3 * PAGE);
	CHECK_OK(ibv_free_dm(dm));
	peer_tell(parent);
	peer_wait(parent);
}

TEST(exits, "DM-6,PD-3", "a process's mappings end with the process, killed or not, and their pages are zero afterwards")
{
	struct ibv_context *ctx;
	struct peer p;

	peer_start(&p, map_and_hold);
	peer_wait(&p);
	CHECK_EQ(tree_count(KEEL0, "dm"), 2);
	peer_kill(&p, SIGKILL);
	CHECK_EQ(tree_count(KEEL0, NULL), 0);
	peer_start(&p, map_and_hold);
	peer_wait(&p);
	peer_tell(&p);
	peer_end(&p);
	CHECK_EQ(tree_count(KEEL0, NULL), 0);
	ctx = dev_open(KEEL0);
	check_all_free(ctx);
}

TEST(closed, "DM-6", "a mapping outlives ibv_close_device(), and no other buffer gets its bytes until munmap()")
{
	struct ibv_context *ctx = dev_open(KEEL0), *other = dev_open(KEEL0);
	unsigned char *p = own_map(MUST(alloc_dm(ctx, 2 * PAGE)));

	memset(p, 0x77, 2 * PAGE);
	CHECK_OK(ibv_close_device(ctx));
	CHECK_ALL(p, 0x77, 2 * PAGE);
	CHECK_NULL(alloc_dm(other, max_dm_size(other)), ENOMEM);
	memset(p, 0x78, 2 * PAGE);
	SYS(munmap(p, 2 * PAGE));
	CHECK_EQ(tree_count(KEEL0, NULL), 0);
	check_all_free(other);
}

TEST(not_pinned, "DM-6", "ibv_reg_mr() refuses a mapping of device memory with EFAULT, so no MR can pin device memory")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	void *p = MUST(keeldv_dm_map(MUST(alloc_dm(ctx, PAGE))));

	CHECK_NULL(ibv_reg_mr(pd, p, PAGE, IBV_ACCESS_LOCAL_WRITE), EFAULT);
	CHECK_NULL(ibv_reg_mr(pd, p, 1, 0), EFAULT);
	CHECK_EQ(tree_count(KEEL0, "mr"), 0);
}

/* Remove the device: the mapping stays and shows no other buffer's bytes. */
static void check_removed(const char *remove, bool touch)
{
	struct ibv_context *ctx;
	unsigned char *p, *q;
	struct ibv_dm *dm;

	dev_add();
	ctx = dev_open(KEEL1);
	dm = MUST(alloc_dm(ctx, 3 * PAGE));
	p = MUST(keeldv_dm_map(dm));
	q = own_map(MUST(alloc_dm(ctx, 2 * PAGE)));
	memset(p, 0xdd, 3 * PAGE);
	memset(q, 0xee, 2 * PAGE);
	free(t_shell("%s", remove));
	CHECK(access("/sys/class/infiniband/" KEEL1, F_OK));
	if (touch) {
		CHECK_ALL(p, 0, 3 * PAGE);
		CHECK_ALL(q, 0, 2 * PAGE);
		memset(p, 0x11, 3 * PAGE);
		memset(q, 0x22, PAGE);
	}
	SYS(munmap(q, PAGE));
	CHECK_NULL(alloc_dm(ctx, PAGE), EIO);
	/*
	 * The kernel has already freed the buffer, so ibv_free_dm() succeeds.
	 */
	CHECK_OK(ibv_free_dm(dm));
	CHECK_OK(ibv_close_device(ctx));
	/* The rest of the mapping ends with the process. */
}

#define DELETE_LINK	"rdma link delete " KEEL1
/* The kernel removes the device in the background: wait for the removal. */
#define DELETE_NETDEV	"ip link delete " KEEL1_NETDEV "; i=0; " \
	"while [ -e /sys/class/infiniband/" KEEL1 " ] && " \
	"[ $i -lt 500 ]; do i=$((i + 1)); sleep 0.01; done"

TEST(link_deleted, "DM-6,DEV-3", "after rdma link delete, calls of a process with mappings fail with EIO, and its munmap() and exit succeed")
{
	check_removed(DELETE_LINK, false);
}

TEST(netdev_deleted, "DM-6,DEV-3", "after deletion of the netdev, calls of a process with mappings fail with EIO, and its munmap() and exit succeed")
{
	check_removed(DELETE_NETDEV, false);
}

/*
 * After device removal, ib_uverbs gives such a mapping an ordinary page at the
 * next access. UML has no special bit in its page tables. When UML's kernel
 * unmaps the page, it takes the page for an uncounted page and reports a "Bad
 * rss-counter state", with any driver.
 */
#define NO_SPECIAL	"UML's page tables have no special bit"

TEST_NOT_UML(link_deleted_touch, "DM-6,DEV-3", "after rdma link delete, a process can access its mappings and reads zeros, not the old bytes", NO_SPECIAL)
{
	check_removed(DELETE_LINK, true);
}

TEST_NOT_UML(netdev_deleted_touch, "DM-6,DEV-3", "after deletion of the netdev, a process can access its mappings and reads zeros, not the old bytes", NO_SPECIAL)
{
	check_removed(DELETE_NETDEV, true);
}
