// SPDX-License-Identifier: GPL-2.0
/*
 * The memory of rings: sizes, alignment, fork(), the allocators of a parent
 * domain; and the arithmetic of their indexes.
 */
#include <sys/mman.h>

#include "fake.h"

/* The allocator of an application, which does not clear its memory. */
struct pool {
	void *next;
	unsigned int allocs, frees;
	struct ibv_pd *pd;
	void *context;
	size_t size, alignment;
	uint64_t type;
	void *freed;
	uint64_t freed_type;
};

static struct pool pool;

static void *pool_alloc(struct ibv_pd *pd, void *context, size_t size,
			size_t alignment, uint64_t type)
{
	pool.allocs++;
	pool.pd = pd;
	pool.context = context;
	pool.size = size;
	pool.alignment = alignment;
	pool.type = type;
	return pool.next;
}

static void pool_free(struct ibv_pd *pd, void *context, void *ptr,
		      uint64_t type)
{
	CHECK(pd == pool.pd);
	CHECK(context == pool.context);
	pool.frees++;
	pool.freed = ptr;
	pool.freed_type = type;
}

static struct keel_parent_domain parent = {
	.alloc = pool_alloc, .free = pool_free, .pd_context = &pool,
};

static uint32_t rounded(uint32_t entries)
{
	uint32_t n = 1;

	while (n < entries)
		n *= 2;
	return n;
}

TEST(sizes, "DEV-2", "a ring has the next power of two of slots, whole pages, and a header of zeros")
{
	static const uint32_t entries[] = { 1, 2, 3, 5, 63, 64, 65, 1000 };
	static const uint32_t strides[] = { 32, 64, 80, 1024 };
	struct keel_uapi_buf buf;
	struct keel_ring ring;
	uint32_t n, stride;
	size_t i, j;

	fake_open();
	for (i = 0; i < sizeof(entries) / sizeof(*entries); i++) {
		for (j = 0; j < sizeof(strides) / sizeof(*strides); j++) {
			n = rounded(entries[i]);
			stride = strides[j];
			CHECK_OK(keel_ring_alloc(&ring, NULL, NULL, KEEL_RES_SQ,
						 entries[i], stride));
			buf = keel_ring_buf(&ring);
			CHECK_EQ(buf.addr, (uintptr_t)ring.shared);
			CHECK_EQ(buf.addr % FAKE_PAGE, 0);
			CHECK_EQ(buf.entries, n);
			CHECK_EQ(buf.stride, stride);
			CHECK_EQ(ring.mask, n - 1);
			CHECK_EQ(ring.user, 0);
			CHECK_EQ(ring.size % FAKE_PAGE, 0);
			CHECK(ring.size >= 128 + n * stride);
			CHECK(ring.size < 128 + n * stride + FAKE_PAGE);
			CHECK_ALL(ring.shared, 0, ring.size);
			/* The last byte of the last slot belongs to it. */
			memset(keel_ring_entry(&ring, n - 1), 1, stride);
			CHECK(keel_ring_entry(&ring, n - 1) ==
			      (uint8_t *)ring.shared + 128 + (n - 1) * stride);
			CHECK(keel_ring_entry(&ring, n) ==
			      keel_ring_entry(&ring, 0));
			CHECK(keel_ring_entry(&ring, ~0U) ==
			      keel_ring_entry(&ring, n - 1));
			CHECK_EQ(fake.dontfork, ring.size);
			keel_ring_free(&ring);
			CHECK(!ring.shared);
			CHECK_EQ(fake.dontfork, 0);
			/* A second time, it does nothing. */
			keel_ring_free(&ring);
			CHECK_EQ(fake.dontfork, 0);
		}
	}
	fake_close();
}

TEST(unmapped, "DEV-2", "freeing a ring unmaps its memory")
{
	struct keel_ring ring;
	unsigned char there;
	void *mem;

	fake_open();
	CHECK_OK(keel_ring_alloc(&ring, NULL, NULL, KEEL_RES_CQ, 1000, 64));
	mem = ring.shared;
	CHECK_SYS(mincore(mem, FAKE_PAGE, &there), 0);
	keel_ring_free(&ring);
	CHECK_SYS(mincore(mem, FAKE_PAGE, &there), ENOMEM);
	/* Memory that cannot be excluded from fork() is not used, nor kept. */
	fake.fail[FAKE_DONTFORK] = EINVAL;
	CHECK_RET(keel_ring_alloc(&ring, NULL, NULL, KEEL_RES_CQ, 1000, 64), ENOMEM);
	CHECK(!ring.shared);
	CHECK_SYS(mincore(mem, FAKE_PAGE, &there), ENOMEM);
	fake.fail[FAKE_MMAP] = ENOMEM;
	CHECK_RET(keel_ring_alloc(&ring, NULL, NULL, KEEL_RES_CQ, 1000, 64), ENOMEM);
	CHECK(!ring.shared);
	keel_ring_free(&ring);
	fake_close();
}

/* Whether a page is mapped. */
static bool is_mapped(void *mem)
{
	unsigned char there;

	return !mincore(mem, FAKE_PAGE, &there);
}

TEST(pool, "DEV-2", "the memory of a freed ring is that of the next one of its size, with a header of zeros, and a fork() of the meantime has it")
{
	struct keel_ring_pool pool;
	struct keel_ring ring, other;
	void *small, *large;

	fake_open();
	keel_pool_init(&pool, KEEL_POOL_RINGS);
	CHECK_OK(keel_ring_alloc(&ring, &pool, NULL, KEEL_RES_CQ, 1, 64));
	CHECK_OK(keel_ring_alloc(&other, &pool, NULL, KEEL_RES_CQ, 100, 64));
	small = ring.shared;
	large = other.shared;
	CHECK_EQ(fake.dontfork, ring.size + other.size);
	memset(small, 7, ring.size);
	memset(large, 7, other.size);
	/* The smaller one last: the next ring needs another size than it has. */
	keel_ring_free(&other);
	keel_ring_free(&ring);
	CHECK(!ring.shared);
	CHECK_EQ(fake.dontfork, 0);
	CHECK(is_mapped(small) && is_mapped(large));
	/* Of no other size: 32 have 2 pages, 100 have 3. */
	CHECK_OK(keel_ring_alloc(&ring, &pool, NULL, KEEL_RES_SRQ, 64, 64));
	CHECK(ring.shared != small && ring.shared != large);
	keel_ring_free(&ring);
	CHECK_OK(keel_ring_alloc(&other, &pool, NULL, KEEL_RES_RQ, 100, 64));
	CHECK_OK(keel_ring_alloc(&ring, &pool, NULL, KEEL_RES_SQ, 1, 64));
	CHECK(ring.shared == small && other.shared == large);
	CHECK_ALL(small, 0, sizeof(*ring.shared));
	CHECK_ALL(large, 0, sizeof(*ring.shared));
	CHECK_EQ(ring.user, 0);
	CHECK_EQ(fake.dontfork, ring.size + other.size);
	/* There is one only. */
	CHECK_EQ(keel_pool_take(&pool, ring.size), NULL);
	/* No inline data stays. */
	memset(small, 7, ring.size);
	keel_ring_free(&ring);
	CHECK_ALL(small, 0, FAKE_PAGE);
	fake.fail[FAKE_DONTFORK] = EINVAL;
	CHECK_RET(keel_ring_alloc(&ring, &pool, NULL, KEEL_RES_SQ, 1, 64), ENOMEM);
	CHECK(!is_mapped(small));
	keel_ring_free(&other);
	keel_pool_fini(&pool);
	CHECK(!is_mapped(large));
	fake_close();
}

TEST(pool_full, "DEV-2", "a context keeps 16 rings of at most 16 KiB; the oldest is unmapped for a new one, and all are with the context")
{
	struct keel_ring_pool pool;
	struct keel_ring rings[KEEL_POOL_RINGS + 1], big;
	void *mem[KEEL_POOL_RINGS + 1];
	int i;

	CHECK_EQ(KEEL_POOL_RINGS, 16);
	fake_open();
	keel_pool_init(&pool, KEEL_POOL_RINGS);
	for (i = 0; i <= KEEL_POOL_RINGS; i++) {
		CHECK_OK(keel_ring_alloc(&rings[i], &pool, NULL, KEEL_RES_CQ, 1, 64));
		mem[i] = rings[i].shared;
	}
	for (i = 0; i <= KEEL_POOL_RINGS; i++)
		keel_ring_free(&rings[i]);
	CHECK(!is_mapped(mem[0]));
	for (i = 1; i <= KEEL_POOL_RINGS; i++)
		CHECK(is_mapped(mem[i]));
	/* The one that was freed last comes first. */
	CHECK(keel_pool_take(&pool, FAKE_PAGE) == mem[KEEL_POOL_RINGS]);
	keel_pool_put(&pool, mem[KEEL_POOL_RINGS], FAKE_PAGE);
	/* 16 KiB are kept, and not a page more. */
	CHECK_OK(keel_ring_alloc(&big, &pool, NULL, KEEL_RES_RQ, 256, 48));
	CHECK_EQ(big.size, 16384);
	mem[0] = big.shared;
	keel_ring_free(&big);
	CHECK(is_mapped(mem[0]) && !is_mapped(mem[1]));
	CHECK(keel_pool_take(&pool, 16384) == mem[0]);
	keel_pool_put(&pool, mem[0], 16384);
	CHECK_OK(keel_ring_alloc(&big, &pool, NULL, KEEL_RES_RQ, 256, 64));
	CHECK_EQ(big.size, 16384 + FAKE_PAGE);
	mem[1] = big.shared;
	keel_ring_free(&big);
	CHECK(!is_mapped(mem[1]));
	keel_pool_fini(&pool);
	for (i = 0; i <= KEEL_POOL_RINGS; i++)
		CHECK(!is_mapped(mem[i]));
	fake_close();
}

TEST(pool_none, "DEV-4", "with a module that may write to the ring of a destroyed queue, its memory is unmapped")
{
	struct keel_ring_pool none;
	struct keel_ring ring;
	void *mem;

	fake_open();
	CHECK_EQ(to_kctx(fake.ctx)->pool.room, KEEL_POOL_RINGS);
	keel_pool_init(&none, 0);
	CHECK_OK(keel_ring_alloc(&ring, &none, NULL, KEEL_RES_CQ, 1, 64));
	mem = ring.shared;
	keel_ring_free(&ring);
	CHECK(!is_mapped(mem));
	keel_pool_fini(&none);
	fake_close();
}

TEST(pool_context, "DEV-2", "the memory of the rings of a context is unmapped with it")
{
	struct ibv_cq *cq;
	void *mem;

	fake_open();
	cq = MUST(ibv_create_cq(fake.ctx, 1, NULL, NULL, 0));
	mem = to_kcq(cq)->ring.shared;
	CHECK_OK(ibv_destroy_cq(cq));
	CHECK(is_mapped(mem));
	fake_close();
	CHECK(!is_mapped(mem));
}

#define POOL_TURNS	2000

/* Create and destroy rings, whose memory no other thread has meanwhile. */
static void *pool_thread(void *pool)
{
	struct keel_ring rings[3];
	int i, j;

	for (i = 0; i < POOL_TURNS; i++) {
		for (j = 0; j < 3; j++) {
			CHECK_OK(keel_ring_alloc(&rings[j], pool, NULL, KEEL_RES_CQ, 1, 64));
			CHECK_ALL(rings[j].shared, 0, sizeof(*rings[j].shared));
			memset(rings[j].shared, 1 + j, rings[j].size);
		}
		for (j = 0; j < 3; j++) {
			CHECK_ALL(rings[j].shared, 1 + j, FAKE_PAGE);
			keel_ring_free(&rings[j]);
		}
	}
	return NULL;
}

TEST(pool_threads, "DEV-4", "threads that create and destroy queues never get one memory at the same time")
{
	struct keel_ring_pool pool;
	pthread_t threads[3];
	int i;

	fake_open();
	keel_pool_init(&pool, KEEL_POOL_RINGS);
	for (i = 0; i < 3; i++)
		CHECK_OK(pthread_create(&threads[i], NULL, pool_thread, &pool));
	for (i = 0; i < 3; i++)
		CHECK_OK(pthread_join(threads[i], NULL));
	CHECK(pool.n <= 9);
	keel_pool_fini(&pool);
	fake_close();
}

TEST(allocator, "PDM-6,PDM-7", "the application's allocator gets its context, the size, the alignment and the type, and its memory is cleared")
{
	static const enum keel_res_code res[] = {
		KEEL_RES_CQ, KEEL_RES_SQ, KEEL_RES_RQ, KEEL_RES_SRQ
	};
	struct keel_ring ring;
	void *mem;
	size_t i;

	fake_open();
	mem = MUST(aligned_alloc(FAKE_PAGE, 4 * FAKE_PAGE));
	pool.next = mem;
	for (i = 0; i < 4; i++) {
		memset(mem, 0x5a, 4 * FAKE_PAGE);
		CHECK_OK(keel_ring_alloc(&ring, NULL, &parent, res[i], 100, 64));
		CHECK_EQ(pool.allocs, i + 1);
		CHECK(pool.pd == &parent.pd.ibv_pd);
		CHECK(pool.context == &pool);
		CHECK_EQ(pool.size, 3 * FAKE_PAGE);
		CHECK_EQ(pool.alignment, FAKE_PAGE);
		CHECK(pool.type == ((uint64_t)KEEL_DRIVER_ID << 32 | res[i]));
		CHECK(ring.shared == mem);
		CHECK_ALL(ring.shared, 0, sizeof(*ring.shared));
		CHECK_EQ(fake.dontfork, 0);
		keel_ring_free(&ring);
		CHECK_EQ(pool.frees, i + 1);
		CHECK(pool.freed == mem);
		CHECK(pool.freed_type == pool.type);
	}
	free(mem);
	fake_close();
}

TEST(allocator_default, "PDM-6", "an allocator may pass the allocation to the provider, or fail")
{
	struct keel_ring ring;

	fake_open();
	pool.next = IBV_ALLOCATOR_USE_DEFAULT;
	CHECK_OK(keel_ring_alloc(&ring, NULL, &parent, KEEL_RES_SQ, 10, 64));
	CHECK_EQ(pool.allocs, 1);
	CHECK_EQ(fake.dontfork, FAKE_PAGE);
	CHECK_ALL(ring.shared, 0, ring.size);
	keel_ring_free(&ring);
	CHECK_EQ(pool.frees, 0);
	CHECK_EQ(fake.dontfork, 0);

	pool.next = NULL;
	CHECK_RET(keel_ring_alloc(&ring, NULL, &parent, KEEL_RES_SQ, 10, 64), ENOMEM);
	CHECK_EQ(pool.allocs, 2);
	keel_ring_free(&ring);
	CHECK_EQ(pool.frees, 0);
	fake_close();
}

static void *page_alloc(struct ibv_pd *pd, void *context, size_t size,
			size_t alignment, uint64_t type)
{
	pool.allocs++;
	return aligned_alloc(alignment, size);
}

/* An allocator of an application that fails internally, and leaves an errno. */
static void page_free(struct ibv_pd *pd, void *context, void *ptr,
		      uint64_t type)
{
	pool.frees++;
	free(ptr);
	errno = EDOM;
}

TEST(free_errno, "PDM-6", "a queue that the kernel refuses returns the errno of the kernel, and not that of the application's allocator")
{
	struct ibv_parent_domain_init_attr attr = {
		.alloc = page_alloc, .free = page_free,
		.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS,
	};
	struct ibv_cq_init_attr_ex cq_attr = {
		.cqe = 4, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD,
	};
	struct ibv_srq_init_attr srq_attr = {
		.attr = { .max_wr = 4, .max_sge = 1 },
	};
	struct ibv_qp_init_attr qp_attr = { .qp_type = IBV_QPT_RC };
	struct ibv_pd *pd, *domain;
	struct ibv_cq *cq;

	fake_open();
	pd = MUST(ibv_alloc_pd(fake.ctx));
	attr.pd = pd;
	domain = MUST(ibv_alloc_parent_domain(fake.ctx, &attr));
	cq = fake_new_cq(4);
	cq_attr.parent_domain = domain;
	fake.fail[FAKE_CREATE_CQ] = EPERM;
	CHECK_NULL(ibv_create_cq_ex(fake.ctx, &cq_attr), EPERM);
	CHECK_EQ(pool.frees, 1);
	fake.fail[FAKE_CREATE_SRQ] = EAGAIN;
	CHECK_NULL(ibv_create_srq(domain, &srq_attr), EAGAIN);
	CHECK_EQ(pool.frees, 2);
	qp_attr.send_cq = cq;
	qp_attr.recv_cq = cq;
	fake.fail[FAKE_CREATE_QP] = EACCES;
	CHECK_NULL(ibv_create_qp(domain, &qp_attr), EACCES);
	CHECK_EQ(pool.frees, 4);
	CHECK_EQ(pool.allocs, 4);
	CHECK_OK(ibv_destroy_cq(cq));
	CHECK_OK(ibv_dealloc_pd(domain));
	CHECK_OK(ibv_dealloc_pd(pd));
	fake_close();
}

TEST(full, "DEV-4", "a ring is full with as many WQEs as it has, and with an invalid kernel index, at any index")
{
	static const uint32_t starts[] = { 0, 1, 7, 8, 0x7fffffff, 0xfffffff8,
					   0xfffffffc, 0xffffffff };
	struct keel_ring ring;
	uint32_t i, n;

	fake_open();
	CHECK_OK(keel_ring_alloc(&ring, NULL, NULL, KEEL_RES_SQ, 8, 64));
	for (i = 0; i < sizeof(starts) / sizeof(*starts); i++) {
		ring.shared->kernel = starts[i];
		for (n = 0; n < 8; n++) {
			ring.user = starts[i] + n;
			CHECK(!keel_ring_is_full(&ring));
		}
		ring.user = starts[i] + 8;
		CHECK(keel_ring_is_full(&ring));
		/* The kernel takes one. */
		ring.shared->kernel++;
		CHECK(!keel_ring_is_full(&ring));
		/* The kernel's index is ahead, or too far behind. */
		ring.shared->kernel = ring.user + 1;
		CHECK(keel_ring_is_full(&ring));
		ring.shared->kernel = ring.user - 9;
		CHECK(keel_ring_is_full(&ring));
	}
	keel_ring_free(&ring);
	fake_close();
}

TEST(publish, "DEV-4", "the kernel sees the index that was published, and a reset sets it to 0")
{
	struct keel_ring none = {};
	struct keel_ring ring;
	struct keel_uapi_buf buf;

	fake_open();
	CHECK_OK(keel_ring_alloc(&ring, NULL, NULL, KEEL_RES_SQ, 8, 64));
	ring.user = 5;
	CHECK_EQ(ring.shared->user, 0);
	keel_ring_publish(&ring);
	CHECK_EQ(ring.shared->user, 5);
	ring.shared->kernel = 3;
	CHECK_EQ(keel_ring_kernel(&ring), 3);
	keel_ring_reset(&ring);
	CHECK_EQ(ring.user, 0);
	CHECK_EQ(ring.shared->user, 0);
	/* The kernel's part is left to the kernel. */
	CHECK_EQ(ring.shared->kernel, 3);
	keel_ring_free(&ring);

	/* A queue that does not exist. */
	keel_ring_reset(&none);
	buf = keel_ring_buf(&none);
	CHECK_ALL(&buf, 0, sizeof(buf));
	fake_close();
}

TEST(parents, "PDM-4", "queues of a PD use the thread domain and the allocators of a parent domain that was not imported")
{
	struct keel_td td;
	struct keel_pd plain = { .kind = KEEL_UAPI_PD_PLAIN };
	struct keel_parent_domain other = {
		.pd.kind = KEEL_UAPI_PD_PARENT, .td = &td,
	};

	CHECK(!keel_pd_parent(NULL));
	CHECK(!keel_pd_parent(&plain.ibv_pd));
	plain.kind = KEEL_UAPI_PD_SHARED;
	CHECK(!keel_pd_parent(&plain.ibv_pd));
	CHECK(keel_pd_parent(&other.pd.ibv_pd) == &other);
	CHECK(keel_is_single_threaded(&other));
	CHECK(!keel_is_single_threaded(NULL));
	other.td = NULL;
	CHECK(!keel_is_single_threaded(&other));
	other.imported = true;
	CHECK(!keel_pd_parent(&other.pd.ibv_pd));
}

TEST(locks, "PDM-4", "a single-threaded lock is not taken, any other one is taken once")
{
	struct keel_lock lock;

	keel_lock_init(&lock, true);
	keel_lock(&lock);
	keel_lock(&lock);
	CHECK_EQ(fake_locks, 0);
	keel_unlock(&lock);
	keel_lock_init(&lock, false);
	keel_lock(&lock);
	CHECK_EQ(fake_locks, 1);
	CHECK_EQ(pthread_spin_trylock(&lock.spin), EBUSY);
	keel_unlock(&lock);
	CHECK_OK(pthread_spin_trylock(&lock.spin));
	pthread_spin_unlock(&lock.spin);
	CHECK_EQ(fake_locks, 1);
}
