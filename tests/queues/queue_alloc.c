// SPDX-License-Identifier: GPL-2.0
/*
 * The allocators of a parent domain provide the buffers of queues.
 */
#include <sys/mman.h>
#include <sys/syscall.h>

#include <infiniband/keeldv.h>

#include "qp.h"
#include "t.h"
#include "tree.h"

#define PAGE	4096
#define BUFS	32
#define GUARD	256
#define POISON	0xa5

/* A buffer that alloc() returned. */
struct buf {
	char *ptr;
	size_t size;
	uint64_t type;
	bool freed;
};

/* A parent domain with allocators, and the calls that they got. */
struct pool {
	struct ibv_pd *parent;
	struct buf bufs[BUFS];
	int allocs, frees, asked;
	int fail_at;		/* the call that fails, or 0 */
	uint32_t default_for;	/* bits of types that use the default */
	size_t skew;		/* added to each pointer, to misalign it */
};

static char from[PAGE] __attribute__((aligned(PAGE)));
static char to[PAGE] __attribute__((aligned(PAGE)));

/* Count mmap() calls: the provider allocates its own rings with mmap(2). */
static int own_maps;

void *mmap(void *addr, size_t length, int prot, int flags, int fd, off_t off)
{
	own_maps++;
	return (void *)syscall(SYS_mmap, addr, length, prot, flags, fd, off);
}

static void *pool_alloc(struct ibv_pd *pd, void *context, size_t size,
			size_t alignment, uint64_t type)
{
	struct pool *pool = context;
	struct buf *b;

	CHECK(pd == pool->parent);
	CHECK_EQ(type >> 32, KEELDV_DRIVER_ID);
	CHECK((uint32_t)type >= KEELDV_RES_CQ &&
	      (uint32_t)type <= KEELDV_RES_SRQ);
	CHECK(size > 0);
	CHECK(alignment && !(alignment & (alignment - 1)));
	if (++pool->asked == pool->fail_at)
		return NULL;
	if (pool->default_for & 1U << (uint32_t)type)
		return IBV_ALLOCATOR_USE_DEFAULT;
	CHECK(pool->allocs < BUFS);
	b = &pool->bufs[pool->allocs++];
	/*
	 * The buffer is not zero, and the bytes behind it must stay unchanged.
	 */
	b->ptr = MUST(aligned_alloc(alignment, size + 2 * alignment));
	memset(b->ptr, POISON, size + 2 * alignment);
	b->ptr += pool->skew;
	b->size = size;
	b->type = type;
	return b->ptr;
}

static void pool_free(struct ibv_pd *pd, void *context, void *ptr,
		      uint64_t type)
{
	struct pool *pool = context;
	struct buf *b = pool->bufs;

	CHECK(pd == pool->parent);
	while (b < pool->bufs + pool->allocs && (b->ptr != ptr || b->freed))
		b++;
	if (b == pool->bufs + pool->allocs)
		FAIL("free: got a buffer that is not there, want one of alloc");
	CHECK_EQ(type, b->type);
	CHECK_ALL(b->ptr + b->size, POISON, GUARD);
	b->freed = true;
	pool->frees++;
	free(b->ptr - pool->skew);
}

static void pool_init(struct pool *pool, struct ibv_pd *pd)
{
	struct ibv_parent_domain_init_attr attr = {
		.pd = pd, .alloc = pool_alloc, .free = pool_free,
		.pd_context = pool,
		.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
			     IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT,
	};

	*pool = (struct pool){};
	pool->parent = MUST(ibv_alloc_parent_domain(pd->context, &attr));
}

/* Count the buffers of one type that are in use. */
static int live(const struct pool *pool, enum keeldv_res res)
{
	int i, n = 0;

	for (i = 0; i < pool->allocs; i++)
		n += !pool->bufs[i].freed &&
		     (uint32_t)pool->bufs[i].type == res;
	return n;
}

static void check_live(const struct pool *pool, int cqs, int sqs, int rqs,
		       int srqs)
{
	CHECK_EQ(live(pool, KEELDV_RES_CQ), cqs);
	CHECK_EQ(live(pool, KEELDV_RES_SQ), sqs);
	CHECK_EQ(live(pool, KEELDV_RES_RQ), rqs);
	CHECK_EQ(live(pool, KEELDV_RES_SRQ), srqs);
	CHECK_EQ(pool->allocs - pool->frees, cqs + sqs + rqs + srqs);
}

static struct ibv_cq *make_cq(struct ibv_pd *parent)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = QP_WRS, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD,
		.parent_domain = parent,
	};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(parent->context, &attr);

	return cq ? ibv_cq_ex_to_cq(cq) : NULL;
}

static struct ibv_qp *make_qp(struct ibv_pd *parent, struct ibv_cq *cq,
			      struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .srq = srq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8,
			 .max_send_sge = 1, .max_recv_sge = 1 },
	};

	return ibv_create_qp(parent, &init);
}

/*
 * Send a page from one QP to the other, which receives by its own queue or an
 * SRQ.
 */
static void check_message(struct ibv_pd *pd, struct ibv_cq *cq,
			  struct ibv_qp *a, struct ibv_qp *b,
			  struct ibv_srq *srq)
{
	struct ibv_mr *src = MUST(ibv_reg_mr(pd, from, PAGE, 0));
	struct ibv_mr *dst = MUST(ibv_reg_mr(pd, to, PAGE,
					     IBV_ACCESS_LOCAL_WRITE));

	memset(from, 'f', PAGE);
	memset(to, 't', PAGE);
	if (srq)
		post_srq_recv(srq, 1, MEM(dst));
	else
		post_recv(b, 1, MEM(dst));
	post_send(a, 2, MEM(src));
	CHECK_WC(cq, 1, IBV_WC_SUCCESS);
	CHECK_WC(cq, 2, IBV_WC_SUCCESS);
	CHECK_ALL(to, 'f', PAGE);
	CHECK_OK(ibv_dereg_mr(src));
	CHECK_OK(ibv_dereg_mr(dst));
}

TEST(every, "PDM-6,PDM-7", "alloc() gets each ring's size and type, free() gets each ring once, and the provider maps no ring of its own")
{
	struct ibv_srq_attr more = { .max_wr = 200 };
	struct ibv_pd *pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	struct ibv_qp *a, *b;
	struct ibv_srq *srq;
	struct ibv_cq *cq;
	struct pool pool;
	int maps;

	pool_init(&pool, pd);
	maps = own_maps;
	cq = MUST(make_cq(pool.parent));
	check_live(&pool, 1, 0, 0, 0);
	srq = srq_new(pool.parent);
	check_live(&pool, 1, 0, 0, 1);
	a = MUST(make_qp(pool.parent, cq, NULL));
	check_live(&pool, 1, 1, 1, 1);
	b = MUST(make_qp(pool.parent, cq, srq));
	check_live(&pool, 1, 2, 1, 1);
	qp_join(a, b);
	check_message(pd, cq, a, b, srq);
	check_message(pd, cq, b, a, NULL);
	CHECK_OK(ibv_resize_cq(cq, 1000));
	check_live(&pool, 1, 2, 1, 1);
	CHECK_OK(ibv_modify_srq(srq, &more, IBV_SRQ_MAX_WR));
	check_live(&pool, 1, 2, 1, 1);
	CHECK_EQ(pool.allocs, 7);
	check_message(pd, cq, a, b, srq);
	CHECK_OK(ibv_destroy_qp(b));
	check_live(&pool, 1, 1, 1, 1);
	CHECK_OK(ibv_destroy_qp(a));
	check_live(&pool, 1, 0, 0, 1);
	CHECK_OK(ibv_destroy_srq(srq));
	check_live(&pool, 1, 0, 0, 0);
	CHECK_OK(ibv_destroy_cq(cq));
	check_live(&pool, 0, 0, 0, 0);
	CHECK_EQ(own_maps, maps);
	CHECK_OK(ibv_dealloc_pd(pool.parent));
	CHECK_EQ(pool.frees, 7);
	/* Prove that own_maps counts the provider's own rings. */
	CHECK_OK(ibv_destroy_cq(cq_new(pd->context)));
	CHECK_EQ(own_maps, maps + 1);
}

TEST(contexts, "PDM-6,PDM-7", "each parent domain's allocator serves its own queues only, and a PD without allocators calls none")
{
	struct ibv_pd *pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	struct ibv_parent_domain_init_attr attr = { .pd = pd };
	struct ibv_pd *plain = MUST(ibv_alloc_parent_domain(pd->context, &attr));
	struct pool one, two;
	struct ibv_qp *a, *b;
	struct ibv_cq *cq;

	pool_init(&one, pd);
	pool_init(&two, pd);
	cq = MUST(make_cq(plain));
	a = MUST(make_qp(plain, cq, NULL));
	b = MUST(make_qp(pd, cq, NULL));
	CHECK_OK(ibv_destroy_qp(a));
	CHECK_OK(ibv_destroy_qp(b));
	check_live(&one, 0, 0, 0, 0);
	a = MUST(make_qp(one.parent, cq, NULL));
	check_live(&one, 0, 1, 1, 0);
	check_live(&two, 0, 0, 0, 0);
	b = MUST(make_qp(two.parent, cq, NULL));
	check_live(&one, 0, 1, 1, 0);
	check_live(&two, 0, 1, 1, 0);
	qp_join(a, b);
	check_message(pd, cq, a, b, NULL);
	CHECK_OK(ibv_destroy_qp(a));
	check_live(&one, 0, 0, 0, 0);
	check_live(&two, 0, 1, 1, 0);
	CHECK_OK(ibv_destroy_qp(b));
	check_live(&two, 0, 0, 0, 0);
}

/* Make call @at of alloc() fail, and with it the verb. */
#define CHECK_REFUSED(pool, at, call)					\
	do {								\
		(pool)->asked = 0;					\
		(pool)->fail_at = at;					\
		CHECK_NULL(call, ENOMEM);				\
		CHECK_EQ((pool)->asked, at);				\
	} while (0)

TEST(null, "PDM-6", "if alloc() returns NULL, the verb fails with ENOMEM, frees what it had allocated and changes nothing")
{
	struct ibv_pd *pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	struct ibv_srq_attr more = { .max_wr = 200 };
	struct ibv_srq_init_attr srq_attr = { .attr = { .max_wr = 8 } };
	struct ibv_qp *a, *b;
	struct ibv_srq *srq;
	struct ibv_cq *cq;
	struct pool pool;
	char *before;

	pool_init(&pool, pd);
	cq = MUST(make_cq(pool.parent));
	srq = srq_new(pool.parent);
	a = MUST(make_qp(pool.parent, cq, NULL));
	b = MUST(make_qp(pool.parent, cq, srq));
	qp_join(a, b);
	before = tree_settled(KEEL0);
	CHECK_REFUSED(&pool, 1, make_cq(pool.parent));
	CHECK_REFUSED(&pool, 1, ibv_create_srq(pool.parent, &srq_attr));
	CHECK_REFUSED(&pool, 1, make_qp(pool.parent, cq, NULL));
	CHECK_REFUSED(&pool, 2, make_qp(pool.parent, cq, NULL));
	check_live(&pool, 1, 2, 1, 1);
	pool.fail_at = 1;
	pool.asked = 0;
	CHECK_RET(ibv_resize_cq(cq, 1000), ENOMEM);
	pool.asked = 0;
	CHECK_RET(ibv_modify_srq(srq, &more, IBV_SRQ_MAX_WR), ENOMEM);
	check_live(&pool, 1, 2, 1, 1);
	CHECK_SAME_TREE(before);
	CHECK_EQ(cq->cqe, QP_WRS);
	check_message(pd, cq, a, b, srq);
}

TEST(use_default, "PDM-6", "if alloc() returns IBV_ALLOCATOR_USE_DEFAULT, the provider uses its own memory and does not call free() for it")
{
	static const uint32_t masks[] = {
		0x1e, 1 << KEELDV_RES_SQ, 1 << KEELDV_RES_RQ,
		1 << KEELDV_RES_CQ, 1 << KEELDV_RES_SRQ,
	};
	struct ibv_qp *a, *b;
	struct ibv_srq *srq;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct pool pool;
	int i, maps;

	for (i = 0; i < 5; i++) {
		/* A new context has no memory of former rings. */
		pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
		pool_init(&pool, pd);
		pool.default_for = masks[i];
		maps = own_maps;
		cq = MUST(make_cq(pool.parent));
		srq = srq_new(pool.parent);
		a = MUST(make_qp(pool.parent, cq, NULL));
		b = MUST(make_qp(pool.parent, cq, srq));
		CHECK_EQ(pool.asked, 5);
		check_live(&pool, !(masks[i] & 1 << KEELDV_RES_CQ),
			   masks[i] & 1 << KEELDV_RES_SQ ? 0 : 2,
			   !(masks[i] & 1 << KEELDV_RES_RQ),
			   !(masks[i] & 1 << KEELDV_RES_SRQ));
		CHECK_EQ(own_maps - maps, 5 - pool.allocs);
		qp_join(a, b);
		check_message(pd, cq, a, b, srq);
		check_message(pd, cq, b, a, NULL);
		CHECK_OK(ibv_destroy_qp(a));
		CHECK_OK(ibv_destroy_qp(b));
		CHECK_OK(ibv_destroy_srq(srq));
		CHECK_OK(ibv_destroy_cq(cq));
		check_live(&pool, 0, 0, 0, 0);
		CHECK_OK(ibv_dealloc_pd(pool.parent));
	}
}

TEST(misaligned, "PDM-6,DEV-4", "the kernel refuses a misaligned buffer with EINVAL, and the provider calls free() for it")
{
	struct ibv_pd *pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	struct ibv_cq *cq = cq_new(pd->context);
	struct pool pool;
	char *before;

	pool_init(&pool, pd);
	pool.skew = 8;
	before = tree_settled(KEEL0);
	CHECK_NULL(make_cq(pool.parent), EINVAL);
	CHECK_EQ(pool.frees, 1);
	CHECK_NULL(make_qp(pool.parent, cq, NULL), EINVAL);
	CHECK_EQ(pool.frees, 3);
	check_live(&pool, 0, 0, 0, 0);
	CHECK_SAME_TREE(before);
}
