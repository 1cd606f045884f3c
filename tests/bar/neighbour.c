// SPDX-License-Identifier: GPL-2.0
/*
 * Two guests share one file. Each runs this test, with NEIGHBOUR=a or b; they
 * wait for each other in /share.
 */
#include <fcntl.h>
#include <sys/stat.h>

#include <infiniband/keeldv.h>

#include "outside.h"
#include "t.h"

#define PAGE	4096
#define PARAMS	"/sys/module/keel/parameters/"
#define DRIVER	"/sys/bus/pci/drivers/keel/"

/* Seconds that one guest may be behind the other. */
#define PATIENCE	300

static bool is_a(void)
{
	const char *who = getenv("NEIGHBOUR");

	CHECK(who && (*who == 'a' || *who == 'b'));
	return *who == 'a';
}

/* Wait until both guests have called meet() with this name. */
static void meet(const char *where)
{
	char mine[64], other[64];
	int i;

	snprintf(mine, sizeof(mine), SHARE "/%s.%c", where, "ba"[is_a()]);
	snprintf(other, sizeof(other), SHARE "/%s.%c", where, "ab"[is_a()]);
	SYS(close(SYS(open(mine, O_WRONLY | O_CREAT | O_CLOEXEC, 0644))));
	for (i = 0; i < PATIENCE * 20 && access(other, F_OK); i++)
		usleep(50000);
	if (access(other, F_OK))
		FAIL("got nobody at %s, want the other guest", where);
}

static struct ibv_dm *dm_new(struct ibv_context *ctx, size_t len)
{
	struct ibv_alloc_dm_attr attr = { .length = len };

	return MUST(ibv_alloc_dm(ctx, &attr));
}

static uint64_t start_of(struct ibv_dm *dm)
{
	struct keeldv_dm_attr attr = {};

	CHECK_OK(keeldv_query_dm(dm, &attr));
	return attr.start;
}

static uint64_t max_dm_size(struct ibv_context *ctx)
{
	struct ibv_device_attr_ex attr;

	CHECK_OK(ibv_query_device_ex(ctx, NULL, &attr));
	return attr.max_dm_size;
}

TEST_SLOW(same, "DM-6", "two guests that share a whole BAR get buffers at the same place, and each sees the other's writes", 400)
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_dm *dm;
	unsigned char *p;
	char word[8];

	meet("same");
	dm = dm_new(ctx, 2 * PAGE);
	CHECK_EQ(start_of(dm), 0);
	p = MUST(keeldv_dm_map(dm));
	/*
	 * Both guests clear the buffer, so wait for both before the first
	 * write.
	 */
	meet("cleared");
	if (is_a())
		CHECK_OK(ibv_memcpy_to_dm(dm, 100, "from a\0", 8));
	meet("a wrote");
	CHECK_STR((char *)p + 100, "from a");
	if (!is_a())
		strcpy((char *)p + 5000, "from b");
	meet("b wrote");
	CHECK_OK(ibv_memcpy_from_dm(word, dm, 5000, 8));
	CHECK_STR(word, "from b");
	meet("both read");
}

#define BUFFERS	64

/* Check that no two buffers share a page. */
static void check_apart(const uint64_t *start, const size_t *len, int n)
{
	int i, j;

	for (i = 0; i < n; i++)
		for (j = 0; j < i; j++)
			CHECK(start[i] >= start[j] + len[j] ||
			      start[j] >= start[i] + len[i]);
}

TEST_SLOW(scribbled, "DM-1,DM-3", "a guest that overwrites every byte of the BAR does not disturb the allocator of the other guest", 400)
{
	struct ibv_context *ctx = dev_open(KEEL0);
	uint64_t max = max_dm_size(ctx), seed = 12345;
	uint64_t start[BUFFERS];
	struct ibv_dm *dm[BUFFERS];
	size_t len[BUFFERS];
	int round, i;
	void *all;

	if (!is_a()) {
		all = MUST(keeldv_dm_map(dm_new(ctx, max)));
		meet("scribble");
		for (i = 0; i < 1000 && access(SHARE "/scribbled.a", F_OK); i++)
			memset(all, 0xa5 + i, max);
		CHECK(i > 0);
		meet("scribbled");
		return;
	}
	meet("scribble");
	for (round = 0; round < 20; round++) {
		for (i = 0; i < BUFFERS; i++) {
			len[i] = (t_random(&seed) % 100 + 1) * PAGE;
			dm[i] = dm_new(ctx, len[i]);
			start[i] = start_of(dm[i]);
			CHECK(start[i] + len[i] <= max);
		}
		check_apart(start, len, BUFFERS);
		for (i = 0; i < BUFFERS; i++)
			CHECK_OK(ibv_free_dm(dm[(i * 13 + 5) % BUFFERS]));
	}
	/* No memory was lost: all can be allocated at once. */
	CHECK_OK(ibv_free_dm(dm_new(ctx, max)));
	meet("scribbled");
}

/* Unbind keel0 and bind it again, with another part of the BAR. */
static void rebind(uint64_t offset, uint64_t size)
{
	char text[32];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)offset);
	CHECK_OK(t_write_file(PARAMS "bar_offset", text));
	snprintf(text, sizeof(text), "%llu", (unsigned long long)size);
	CHECK_OK(t_write_file(PARAMS "bar_size", text));
	free(t_shell("f=$(cd " DRIVER " && echo 0000:*) && "
		     "echo $f > " DRIVER "unbind && "
		     "test ! -e /sys/class/infiniband/" KEEL0 " && "
		     "echo $f > " DRIVER "bind"));
}

TEST_SLOW(split, "DM-3,DM-6", "two guests that each use half of a BAR do not see each other's bytes, and write to their half of the file only", 400)
{
	uint64_t half, other, at;
	unsigned char mine = is_a() ? 0xaa : 0xbb, *p;
	unsigned char got[PAGE];
	struct ibv_context *ctx;
	struct ibv_dm *dm;
	struct stat st;
	int i, fd;

	SYS(stat(FILE0, &st));
	half = st.st_size / 2;
	rebind(is_a() ? 0 : half, half);
	ctx = dev_open(KEEL0);
	CHECK_EQ(max_dm_size(ctx), half);
	meet("split");
	dm = dm_new(ctx, half);
	CHECK_EQ(start_of(dm), 0);
	p = MUST(keeldv_dm_map(dm));
	for (i = 0; i < 3; i++) {
		memset(p, mine, half);
		meet((char *[]){ "round 1", "round 2", "round 3" }[i]);
		CHECK_ALL(p, mine, half);
	}
	meet("written");
	fd = SYS(open(FILE0, O_RDONLY | O_CLOEXEC));
	for (at = 0; at < half; at += half / 16) {
		other = is_a() ? half + at : at;
		CHECK_EQ(pread(fd, got, PAGE, (is_a() ? 0 : half) + at), PAGE);
		CHECK_ALL(got, mine, PAGE);
		CHECK_EQ(pread(fd, got, PAGE, other), PAGE);
		CHECK_ALL(got, mine ^ 0xaa ^ 0xbb, PAGE);
	}
	meet("compared");
}
