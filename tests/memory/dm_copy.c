// SPDX-License-Identifier: GPL-2.0
/*
 * Compare ibv_memcpy_to_dm() and ibv_memcpy_from_dm() with a model that is an
 * array of bytes.
 */
#include <sys/mman.h>

#include <infiniband/keeldv.h>

#include "t.h"

#define PAGE	4096
#define ALIGN	"/sys/module/keel/parameters/dm_access_align"

/* An odd length that covers two pages. */
#define LEN	5003
#define GUARD	64

static unsigned char model[LEN];
static unsigned char host[LEN + 2 * GUARD];

void t_after(void)
{
	/* Restore the default in case a test ended early. */
	t_write_file(ALIGN, "1");
}

static struct ibv_dm *alloc_dm(struct ibv_context *ctx, size_t length)
{
	struct ibv_alloc_dm_attr attr = { .length = length };

	return MUST(ibv_alloc_dm(ctx, &attr));
}

/* Fill with bytes that differ from one call to the next. */
static void fill(unsigned char *p, size_t len)
{
	static uint32_t state = 1;

	while (len--) {
		state = state * 1664525 + 1013904223;
		*p++ = state >> 24;
	}
}

static void try_to(struct ibv_dm *dm, const unsigned char *map, size_t off,
		   size_t len, size_t at)
{
	fill(host + at, len);
	memcpy(model + off, host + at, len);
	CHECK_OK(ibv_memcpy_to_dm(dm, off, host + at, len));
	CHECK_MEM(map, model, LEN);
}

static void try_from(struct ibv_dm *dm, size_t off, size_t len, size_t at)
{
	memset(host + at - 16, 0xee, len + 32);
	CHECK_OK(ibv_memcpy_from_dm(host + at, dm, off, len));
	CHECK_MEM(host + at, model + off, len);
	CHECK_ALL(host + at - 16, 0xee, 16);
	CHECK_ALL(host + at + len, 0xee, 16);
}

/* Offsets and ends to test around: the start, a page's edge, the end. */
static const size_t edges[] = { 0, PAGE, LEN };

static void each_near(struct ibv_dm *dm, const unsigned char *map, size_t off)
{
	size_t len, at;

	for (len = 0; len <= 35 && len <= LEN - off; len++)
		for (at = GUARD; at < GUARD + 16; at++) {
			try_to(dm, map, off, len, at);
			try_from(dm, off, len, at);
		}
}

TEST(combinations, "DM-5", "copies of every length at every offset and host alignment around the edges match a byte model")
{
	struct ibv_dm *dm = alloc_dm(dev_open(KEEL0), LEN);
	const unsigned char *map = MUST(keeldv_dm_map(dm));
	size_t i, off;

	CHECK_ALL(map, 0, 2 * PAGE);
	for (i = 0; i < 3; i++)
		for (off = edges[i] < 17 ? 0 : edges[i] - 17;
		     off <= edges[i] + 17 && off <= LEN; off++)
			each_near(dm, map, off);
	for (off = 0; off < LEN; off += 251) {
		try_to(dm, map, off, LEN - off, GUARD + off % 16);
		try_from(dm, off, LEN - off, GUARD + off % 16);
	}
	/* No copy wrote behind the buffer in its last page. */
	CHECK_ALL(map + LEN, 0, 2 * PAGE - LEN);
}

#define BIG	(9 * 1024 * 1024 + 13)

TEST(large, "DM-5", "large copies at odd offsets match a byte model across the contiguous extents of the device's memory")
{
	unsigned char *a = malloc(BIG), *b = malloc(BIG + 16);
	struct ibv_dm *dm = alloc_dm(dev_open(KEEL0), BIG);
	size_t off, len;
	int i;

	fill(a, BIG);
	CHECK_OK(ibv_memcpy_to_dm(dm, 0, a, BIG));
	for (i = 0; i < 40; i++) {
		off = (size_t)i * 234567 % BIG;
		len = (size_t)(i + 1) * 7654321 % (BIG - off);
		memset(b, 0, len + 16);
		CHECK_OK(ibv_memcpy_from_dm(b + i % 16, dm, off, len));
		CHECK_MEM(b + i % 16, a + off, len);
		/* Copy the same bytes back to another offset. */
		off = BIG - off - len;
		CHECK_OK(ibv_memcpy_to_dm(dm, off, b + i % 16, len));
		memcpy(a + off, b + i % 16, len);
	}
	CHECK_OK(ibv_memcpy_from_dm(b, dm, 0, BIG));
	CHECK_MEM(b, a, BIG);
}

TEST(range, "DM-5", "a copy outside the buffer, wrapped sums included, fails with EINVAL and copies nothing")
{
	static const uint64_t bad[][2] = {
		{ 0, LEN + 1 }, { 1, LEN }, { LEN - 1, 2 }, { LEN, 1 },
		{ LEN + 1, 0 }, { LEN + 1, 1 }, { 0, 2 * PAGE }, { PAGE, PAGE },
		{ 2 * PAGE, 0 }, { 2 * PAGE, 1 }, { ~0ULL, 0 }, { ~0ULL, 1 },
		{ ~0ULL, 2 }, { ~0ULL, LEN }, { 0, ~0ULL }, { 1, ~0ULL },
		{ 2, ~0ULL }, { LEN, ~0ULL }, { 1ULL << 63, 1ULL << 63 },
		{ PAGE, ~0ULL - PAGE + 1 }, { ~0ULL - PAGE + 1, PAGE },
		{ ~0ULL - PAGE + 1, PAGE + 1 }, { 1ULL << 32, 1 },
		{ (1ULL << 32) + 1, 8 },
	};
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_dm *dm = alloc_dm(ctx, LEN);
	unsigned char *map = MUST(keeldv_dm_map(dm)), *next;
	size_t i;

	next = MUST(keeldv_dm_map(alloc_dm(ctx, PAGE)));
	memset(map, 0x11, 2 * PAGE);
	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		memset(host, 0x22, sizeof(host));
		CHECK_RET(ibv_memcpy_to_dm(dm, bad[i][0], host, bad[i][1]),
			  EINVAL);
		CHECK_ALL(map, 0x11, 2 * PAGE);
		CHECK_ALL(next, 0, PAGE);
		CHECK_RET(ibv_memcpy_from_dm(host, dm, bad[i][0], bad[i][1]),
			  EINVAL);
		CHECK_ALL(host, 0x22, sizeof(host));
	}
	CHECK_OK(ibv_memcpy_to_dm(dm, LEN, host, 0));
	CHECK_OK(ibv_memcpy_from_dm(host, dm, LEN, 0));
	CHECK_ALL(map, 0x11, 2 * PAGE);
	CHECK_ALL(host, 0x22, sizeof(host));
}

TEST(no_byte_more, "DM-5", "a copy accesses no byte of host memory outside the requested range")
{
	struct ibv_dm *dm = alloc_dm(dev_open(KEEL0), LEN);
	unsigned char *p = mmap(NULL, 3 * PAGE, PROT_NONE,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_t len;

	/* One accessible page between two pages without access. */
	SYS(mprotect(p + PAGE, PAGE, PROT_READ | PROT_WRITE));
	for (len = 0; len < 70; len++) {
		CHECK_OK(ibv_memcpy_from_dm(p + PAGE, dm, 1, len));
		CHECK_OK(ibv_memcpy_from_dm(p + 2 * PAGE - len, dm, 1, len));
		CHECK_OK(ibv_memcpy_to_dm(dm, 1, p + PAGE, len));
		CHECK_OK(ibv_memcpy_to_dm(dm, 1, p + 2 * PAGE - len, len));
	}
	/* A copy of no bytes needs no pointer. */
	CHECK_OK(ibv_memcpy_to_dm(dm, 1, NULL, 0));
	CHECK_OK(ibv_memcpy_from_dm(NULL, dm, 1, 0));
}

static void set_align(const char *value, int want)
{
	CHECK_RET(t_write_file(ALIGN, value), want);
}

TEST(access_align, "DM-5", "with dm_access_align=4, an offset or a length that is no multiple of 4 is refused with EINVAL")
{
	struct ibv_context *old = dev_open(KEEL0), *ctx;
	struct ibv_dm *dm, *old_dm = alloc_dm(old, LEN);
	unsigned char *map;
	size_t off, len;

	CHECK_STR(t_read_file(ALIGN), "1\n");
	set_align("4", 0);
	CHECK_STR(t_read_file(ALIGN), "4\n");
	ctx = dev_open(KEEL0);
	dm = alloc_dm(ctx, LEN);
	map = MUST(keeldv_dm_map(dm));
	for (off = 0; off < 9; off++)
		for (len = 0; len < 9; len++) {
			int want = (off | len) % 4 ? EINVAL : 0;

			memset(map, 0x11, LEN);
			memset(host, 0x22, sizeof(host));
			CHECK_RET(ibv_memcpy_from_dm(host + 3, dm, off, len),
				  want);
			CHECK_ALL(host + 3, want ? 0x22 : 0x11, len);
			memset(host, 0x22, sizeof(host));
			CHECK_RET(ibv_memcpy_to_dm(dm, off, host + 3, len),
				  want);
			CHECK_ALL(map + off, want ? 0x11 : 0x22, len);
			/*
			 * A context keeps the alignment that was set when it
			 * was opened.
			 */
			CHECK_OK(ibv_memcpy_to_dm(old_dm, off, host, len));
		}
	set_align("1", 0);
	CHECK_OK(ibv_memcpy_to_dm(alloc_dm(dev_open(KEEL0), 9), 1, host, 3));
}

TEST(bad_align, "DM-5", "dm_access_align accepts powers of two up to a page and refuses all other values")
{
	static const char * const good[] = { "1", "2", "8", "0x40", "4096" };
	static const char * const bad[] = {
		"0", "3", "6", "-1", "-4", "8192", "2147483648", "four",
		"4 4",
	};
	size_t i;

	for (i = 0; i < sizeof(good) / sizeof(*good); i++)
		set_align(good[i], 0);
	set_align("2", 0);
	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		set_align(bad[i], EINVAL);
	set_align("4294967297", ERANGE);
	CHECK_STR(t_read_file(ALIGN), "2\n");
	set_align("1", 0);
}
