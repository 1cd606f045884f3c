// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Memory: regions, windows, device memory. */
#include <sys/mman.h>

#include "kind.h"

#define RIGHTS		(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |	\
			 IBV_ACCESS_REMOTE_WRITE)

static char *memory;
static struct ibv_dm *dm;

void *memory_new(size_t length)
{
	void *new = mmap(NULL, length, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (new == MAP_FAILED)
		return NULL;
	/* Huge pages are a kind of their own. EINVAL: the kernel has none. */
	if (madvise(new, length, MADV_NOHUGEPAGE) && errno != EINVAL)
		return NULL;
	return memset(new, 1, length);
}

void *memory_huge(size_t length)
{
	void *new = mmap(NULL, length, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_POPULATE, -1, 0);

	return new == MAP_FAILED ? NULL : new;
}

static int prepare_pages(void)
{
	memory = memory_new(PAGES * PAGE);
	return memory ? 0 : -1;
}

static int prepare_gib(void)
{
	memory = memory_new(GIB);
	return memory ? 0 : -1;
}

static int prepare_huge(void)
{
	memory = memory_huge(GIB);
	return memory ? 0 : -1;
}

/* Not always the same page: the kernel counts pins of a page in 22 bits. */
static void *make_mr_4k(void)
{
	static unsigned int n;

	return ibv_reg_mr(world.pd, memory + n++ % PAGES * PAGE, PAGE, RIGHTS);
}

static void *make_mr_1m(void)
{
	static unsigned int n;

	return ibv_reg_mr(world.pd, memory + n++ % (PAGES * PAGE / MIB) * MIB, MIB, RIGHTS);
}

static void *make_mr_1g(void)
{
	return ibv_reg_mr(world.pd, memory, GIB, RIGHTS);
}

static void *make_mr_odp(void)
{
	return ibv_reg_mr(world.pd, memory, PAGE, RIGHTS | IBV_ACCESS_ON_DEMAND);
}

static int unmake_mr(void *mr)
{
	return ibv_dereg_mr(mr);
}

static void *make_mw(void)
{
	return ibv_alloc_mw(world.pd, IBV_MW_TYPE_1);
}

static int unmake_mw(void *mw)
{
	return ibv_dealloc_mw(mw);
}

static void *make_dm(size_t length)
{
	struct ibv_alloc_dm_attr attr = { .length = length };

	return ibv_alloc_dm(world.ctx, &attr);
}

static void *make_dm_64(void)
{
	return make_dm(64);
}

static void *make_dm_4k(void)
{
	return make_dm(PAGE);
}

static void *make_dm_1m(void)
{
	return make_dm(MIB);
}

static int unmake_dm(void *obj)
{
	return ibv_free_dm(obj);
}

static int prepare_dm(void)
{
	dm = make_dm(PAGE);
	return dm ? 0 : -1;
}

static void *make_mr_dm(void)
{
	return ibv_reg_dm_mr(world.pd, dm, 0, PAGE, RIGHTS | IBV_ACCESS_ZERO_BASED);
}

const struct kind memory_kinds[] = {
	{ "mr_4k", prepare_pages, make_mr_4k, unmake_mr },
	{ "mr_1m", prepare_pages, make_mr_1m, unmake_mr },
	{ "mr_1g", prepare_gib, make_mr_1g, unmake_mr },
	{ "mr_1g_huge", prepare_huge, make_mr_1g, unmake_mr },
	{ "mr_odp", prepare_pages, make_mr_odp, unmake_mr },
	{ "mr_dm", prepare_dm, make_mr_dm, unmake_mr },
	{ "mw", NULL, make_mw, unmake_mw },
	{ "dm_64", NULL, make_dm_64, unmake_dm },
	{ "dm_4k", NULL, make_dm_4k, unmake_dm },
	{ "dm_1m", NULL, make_dm_1m, unmake_dm },
	{}
};
