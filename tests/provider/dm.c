// SPDX-License-Identifier: GPL-2.0
/*
 * Device memory: the mapping of a buffer from several extents, answers of the
 * kernel that are not believed, copies, and threads that map at once.
 */
#include <sys/mman.h>

#include "fake.h"
#include "keeldv.h"

#define LEN	(7 * FAKE_PAGE + 100)
#define THREADS	4

static struct ibv_dm *dm;

static void setup(uint64_t len)
{
	struct ibv_alloc_dm_attr attr = { .length = len };

	fake_open();
	dm = MUST(ibv_alloc_dm(fake.ctx, &attr));
}

static void finish(void)
{
	CHECK_OK(ibv_free_dm(dm));
	fake_close();
}

/* The byte of the device at an offset of the first buffer, see map_dm(). */
static uint8_t *byte(uint64_t offset)
{
	uint64_t size = (fake.dm[0].length + FAKE_PAGE - 1) / FAKE_PAGE *
			FAKE_PAGE;
	uint64_t extent = 2 * FAKE_PAGE;
	uint64_t start = offset / extent * extent;
	uint64_t len = size - start < extent ? size - start : extent;

	return fake.device + FAKE_PAGE + size - start - len + offset - start;
}

static char filler(uint64_t offset)
{
	return offset * 7 + offset / FAKE_PAGE + 1;
}

TEST(extents, "DM-5", "copies reach the bytes of the buffer in each of its extents, and no others")
{
	char data[LEN], back[LEN];
	int i;

	setup(LEN);
	for (i = 0; i < LEN; i++)
		data[i] = filler(i);
	CHECK_EQ(fake.calls[FAKE_MAP_DM], 0);
	CHECK_OK(ibv_memcpy_to_dm(dm, 0, data, LEN));
	CHECK_EQ(fake.calls[FAKE_MAP_DM], 4);
	for (i = 0; i < LEN; i++)
		CHECK_EQ((char)*byte(i), data[i]);
	CHECK_ALL(byte(LEN), 0, FAKE_PAGE - 100);
	CHECK_ALL(fake.device + 9 * FAKE_PAGE, 0, FAKE_DEVICE - 9 * FAKE_PAGE);
	CHECK_OK(ibv_memcpy_from_dm(back, dm, 0, LEN));
	CHECK_MEM(back, data, LEN);
	/* Across the end of an extent. */
	CHECK_OK(ibv_memcpy_to_dm(dm, 2 * FAKE_PAGE - 1, "xy", 2));
	CHECK_EQ(*byte(2 * FAKE_PAGE - 1), 'x');
	CHECK_EQ(*byte(2 * FAKE_PAGE), 'y');
	CHECK_OK(ibv_memcpy_from_dm(back, dm, 2 * FAKE_PAGE - 2, 4));
	CHECK_EQ(back[1], 'x');
	CHECK_EQ(back[3], filler(2 * FAKE_PAGE + 1));
	/* It is mapped once. */
	CHECK_EQ(fake.calls[FAKE_MAP_DM], 4);
	CHECK((char *)MUST(keeldv_dm_map(dm)) + 5 == (char *)to_kdm(dm)->map + 5);
	finish();
}

TEST(bounds, "DM-5", "a copy beyond the buffer is refused, and one of no bytes succeeds at its end")
{
	char data[8] = "1234567";

	setup(LEN);
	CHECK_OK(ibv_memcpy_to_dm(dm, LEN - 8, data, 8));
	CHECK_EQ(*byte(LEN - 2), '7');
	CHECK_RET(ibv_memcpy_to_dm(dm, LEN - 7, data, 8), EINVAL);
	CHECK_RET(ibv_memcpy_from_dm(data, dm, LEN - 7, 8), EINVAL);
	CHECK_OK(ibv_memcpy_to_dm(dm, LEN, data, 0));
	CHECK_OK(ibv_memcpy_to_dm(dm, LEN, NULL, 0));
	CHECK_OK(ibv_memcpy_from_dm(NULL, dm, 0, 0));
	CHECK_RET(ibv_memcpy_to_dm(dm, LEN + 1, data, 0), EINVAL);
	CHECK_RET(ibv_memcpy_to_dm(dm, LEN, data, 1), EINVAL);
	CHECK_RET(ibv_memcpy_to_dm(dm, 8, data, SIZE_MAX - 4), EINVAL);
	CHECK_RET(ibv_memcpy_from_dm(data, dm, UINT64_MAX, 2), EINVAL);
	CHECK_STR(data, "1234567");
	finish();
}

TEST(alignment, "DM-5", "a device that requires alignment refuses other offsets and lengths")
{
	char data[16] = {};

	setup(LEN);
	to_kctx(fake.ctx)->dm_access_align = 4;
	CHECK_OK(ibv_memcpy_to_dm(dm, 4, data, 8));
	CHECK_RET(ibv_memcpy_to_dm(dm, 2, data, 8), EINVAL);
	CHECK_RET(ibv_memcpy_to_dm(dm, 4, data, 7), EINVAL);
	CHECK_RET(ibv_memcpy_from_dm(data, dm, 1, 4), EINVAL);
	CHECK_RET(ibv_memcpy_from_dm(data, dm, 4, 2), EINVAL);
	finish();
}

static void check_answer(uint64_t start, uint64_t length)
{
	fake.dm_map = (struct keel_uapi_dm_map){
		.start = start, .length = length, .mmap_offset = FAKE_PAGE,
	};
	CHECK_NULL(keeldv_dm_map(dm), EPROTO);
	CHECK(!to_kdm(dm)->map);
}

TEST(answers, "DEV-4", "an extent that does not continue the mapping, is empty or exceeds the buffer is refused, and nothing stays mapped")
{
	unsigned char there;
	void *map;

	setup(LEN);
	map = MUST(mmap(NULL, 8 * FAKE_PAGE, PROT_NONE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	munmap(map, 8 * FAKE_PAGE);
	check_answer(FAKE_PAGE, FAKE_PAGE);
	check_answer(0, 9 * FAKE_PAGE);
	check_answer(0, UINT64_MAX - FAKE_PAGE + 1);
	/* The second extent may have 6 pages. */
	fake.dm_map_pass = 1;
	check_answer(2 * FAKE_PAGE, 7 * FAKE_PAGE);
	fake.dm_map_pass = 1;
	check_answer(0, 2 * FAKE_PAGE);
	fake.dm_map.length = 0;
	CHECK_SYS(mincore(map, FAKE_PAGE, &there), ENOMEM);
	/* Each call of the kernel, and each mapping, may fail. */
	fake.fail[FAKE_MAP_DM] = EIO;
	CHECK_NULL(keeldv_dm_map(dm), EIO);
	fake.fail[FAKE_MAP_DM] = EAGAIN;
	fake.pass[FAKE_MAP_DM] = 3;
	CHECK_NULL(keeldv_dm_map(dm), EAGAIN);
	fake.fail[FAKE_MMAP] = EMFILE;
	CHECK_NULL(keeldv_dm_map(dm), EMFILE);
	fake.fail[FAKE_MMAP] = EPERM;
	fake.pass[FAKE_MMAP] = 2;
	CHECK_NULL(keeldv_dm_map(dm), EPERM);
	CHECK_SYS(mincore(map, FAKE_PAGE, &there), ENOMEM);
	CHECK(!to_kdm(dm)->map);
	MUST(keeldv_dm_map(dm));
	finish();
}

TEST(skip, "DM-5,DM-6", "a buffer that starts inside its page is accessed there, and its page is unmapped when it is freed")
{
	unsigned char there;
	char *map, data[8];

	setup(100);
	fake.dm_skip = 192;
	CHECK_OK(ibv_memcpy_to_dm(dm, 99, "x", 1));
	CHECK_EQ(*byte(192 + 99), 'x');
	CHECK_ALL(byte(0), 0, 192 + 99);
	CHECK_RET(ibv_memcpy_to_dm(dm, 100, "x", 1), EINVAL);
	map = MUST(keeldv_dm_map(dm));
	CHECK_EQ((uintptr_t)map % FAKE_PAGE, 192);
	CHECK_EQ(map[99], 'x');
	*byte(192) = 'y';
	CHECK_OK(ibv_memcpy_from_dm(data, dm, 0, 1));
	CHECK_EQ(data[0], 'y');
	CHECK_OK(ibv_free_dm(dm));
	CHECK_SYS(mincore(map - 192, FAKE_PAGE, &there), ENOMEM);
	fake_close();
}

TEST(skip_too_far, "DEV-4", "a buffer of which the kernel says that it leaves its page is not mapped")
{
	static const struct { uint64_t len; uint32_t skip; } bad[] = {
		{ 100, FAKE_PAGE - 99 }, { 100, FAKE_PAGE }, { 100, UINT32_MAX },
		{ FAKE_PAGE, 1 }, { FAKE_PAGE + 1, 1 }, { LEN, 64 },
	};
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		setup(bad[i].len);
		fake.dm_skip = bad[i].skip;
		CHECK_NULL(keeldv_dm_map(dm), EPROTO);
		CHECK(!to_kdm(dm)->map);
		finish();
	}
	setup(100);
	fake.dm_skip = FAKE_PAGE - 100;
	CHECK_OK(ibv_memcpy_to_dm(dm, 99, "x", 1));
	CHECK_EQ(*byte(FAKE_PAGE - 1), 'x');
	finish();
}

/* The kernel returns an extent of no bytes. */
static void empty(enum fake_call call, uint32_t handle)
{
	if (call == FAKE_MAP_DM)
		FAIL("the provider maps on after an empty extent");
}

TEST(huge, "DEV-4", "a buffer whose mapping would exceed the address space is not mapped")
{
	struct ibv_dm *imported;

	setup(FAKE_PAGE);
	fake.dm[dm->handle].length = UINT64_MAX - 5;
	imported = MUST(ibv_import_dm(fake.ctx, dm->handle));
	fake.hook = empty;
	CHECK_NULL(keeldv_dm_map(imported), ENOMEM);
	ibv_unimport_dm(imported);
	fake.hook = NULL;
	finish();
}

TEST(unmap, "DM-5", "a buffer is unmapped when it is freed, and stays mapped if it cannot be freed")
{
	unsigned char there;
	void *map;

	setup(LEN);
	map = MUST(keeldv_dm_map(dm));
	CHECK_EQ((uintptr_t)map % FAKE_PAGE, 0);
	fake.fail[FAKE_FREE_DM] = EBUSY;
	CHECK_RET(ibv_free_dm(dm), EBUSY);
	CHECK_EQ(fake.holders_flags, KEEL_UAPI_HOLDERS_F_REFUSED);
	CHECK_OK(ibv_memcpy_to_dm(dm, 0, "z", 1));
	CHECK_EQ(*byte(0), 'z');
	CHECK_OK(ibv_free_dm(dm));
	CHECK_SYS(mincore(map, FAKE_PAGE, &there), ENOMEM);
	CHECK_SYS(mincore((char *)map + 7 * FAKE_PAGE, FAKE_PAGE, &there),
		  ENOMEM);
	fake_close();
}

/* The device is removed while the buffer is mapped for the copy. */
static void remove_device(enum fake_call call, uint32_t handle)
{
	if (call == FAKE_MAP_DM)
		fake_gone();
}

TEST(gone, "DEV-3", "copies return EIO after device removal, also if it begins during the copy")
{
	char data[8] = {};

	setup(LEN);
	fake.hook = remove_device;
	CHECK_RET(ibv_memcpy_to_dm(dm, 0, data, 8), EIO);
	CHECK_RET(ibv_memcpy_to_dm(dm, 0, data, 8), EIO);
	CHECK_RET(ibv_memcpy_from_dm(data, dm, 0, 8), EIO);
	CHECK_RET(ibv_memcpy_from_dm(data, dm, LEN, 8), EINVAL);
	finish();
	fake.hook = NULL;
	setup(LEN);
	fake.hook = remove_device;
	CHECK_RET(ibv_memcpy_from_dm(data, dm, 0, 8), EIO);
	finish();
}

TEST(create, "DM-1", "unknown members and failures are reported, and an import has the length and a mapping of its own")
{
	struct ibv_alloc_dm_attr attr = { .length = 64, .comp_mask = 1 };
	struct ibv_dm *imported;
	struct keeldv_dm_attr info;
	char c;

	setup(LEN);
	CHECK_NULL(ibv_alloc_dm(fake.ctx, &attr), EINVAL);
	attr.comp_mask = 0;
	fake.fail[FAKE_ALLOC_DM] = ENOMEM;
	CHECK_NULL(ibv_alloc_dm(fake.ctx, &attr), ENOMEM);
	fake.fail[FAKE_CALLOC] = ENOMEM;
	CHECK_NULL(ibv_alloc_dm(fake.ctx, &attr), ENOMEM);
	fake.fail[FAKE_QUERY_DM] = ENOENT;
	CHECK_NULL(ibv_import_dm(fake.ctx, dm->handle), ENOENT);
	imported = MUST(ibv_import_dm(fake.ctx, dm->handle));
	CHECK_OK(ibv_memcpy_to_dm(dm, LEN - 1, "q", 1));
	CHECK_OK(ibv_memcpy_from_dm(&c, imported, LEN - 1, 1));
	CHECK_EQ(c, 'q');
	CHECK(to_kdm(imported)->map != to_kdm(dm)->map);
	CHECK_RET(ibv_memcpy_from_dm(&c, imported, LEN, 1), EINVAL);
	CHECK_OK(keeldv_query_dm(imported, &info));
	CHECK_EQ(info.length, LEN);
	CHECK_EQ(info.start, 0);
	ibv_unimport_dm(imported);
	CHECK_OK(ibv_memcpy_from_dm(&c, dm, LEN - 1, 1));
	finish();
}

static pthread_barrier_t barrier;
static void *maps[THREADS];

static void *map_one(void *arg)
{
	int i = (intptr_t)arg;
	char c;

	pthread_barrier_wait(&barrier);
	/* Each thread has its own page, after all have mapped the buffer. */
	CHECK_OK(ibv_memcpy_to_dm(dm, i * FAKE_PAGE, "abcd" + i, 1));
	CHECK_OK(ibv_memcpy_from_dm(&c, dm, i * FAKE_PAGE, 1));
	CHECK_EQ(c, "abcd"[i]);
	maps[i] = MUST(keeldv_dm_map(dm));
	return NULL;
}

/* While one thread maps the buffer, the others find that it is not mapped. */
static void let_others_run(enum fake_call call, uint32_t handle)
{
	if (call == FAKE_MAP_DM)
		usleep(100);
}

TEST(threads, "DM-5", "threads that use a buffer for the first time at once map it once, and share the mapping")
{
	pthread_t thread[THREADS];
	int round, i;

	for (round = 0; round < fake_rounds(500); round++) {
		setup(LEN);
		fake.hook = let_others_run;
		fake.calls[FAKE_MAP_DM] = 0;
		CHECK_OK(pthread_barrier_init(&barrier, NULL, THREADS));
		for (i = 0; i < THREADS; i++)
			CHECK_OK(pthread_create(&thread[i], NULL, map_one,
						(void *)(intptr_t)i));
		for (i = 0; i < THREADS; i++)
			CHECK_OK(pthread_join(thread[i], NULL));
		for (i = 0; i < THREADS; i++) {
			CHECK(maps[i] == maps[0]);
			CHECK_EQ(*byte(i * FAKE_PAGE), "abcd"[i]);
		}
		CHECK_EQ(fake.calls[FAKE_MAP_DM], 4);
		CHECK_OK(pthread_barrier_destroy(&barrier));
		finish();
	}
}
