// SPDX-License-Identifier: GPL-2.0
/*
 * Shared protection domains: what does not need a queue pair.
 */
#include <fcntl.h>
#include <signal.h>

#include <infiniband/keeldv.h>
#include <infiniband/shpd.h>

#include "dev.h"
#include "peer.h"
#include "t.h"
#include "tree.h"

#define PAGE	4096
#define KEY	0x0123456789abcdefULL

static char page[PAGE] __attribute__((aligned(PAGE)));

void t_after(void)
{
	dev_del();
}

static struct keeldv_pd_attr query(struct ibv_pd *pd)
{
	struct keeldv_pd_attr attr;

	CHECK_OK(keeldv_query_pd(pd, &attr));
	return attr;
}

TEST(alloc, "SPD-1", "ibv_alloc_shpd() fills the caller's struct and returns it")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	struct ibv_shpd shpd = {};

	CHECK(ibv_alloc_shpd(pd, KEY, &shpd) == &shpd);
	CHECK(shpd.context == ctx);
	CHECK_EQ(tree_count(KEEL0, "shpd"), 1);
	CHECK_OK(ibv_dealloc_pd(pd));
	CHECK_EQ(tree_count(KEEL0, NULL), 0);
}

TEST(once, "SPD-1", "a second ibv_alloc_shpd() on one PD fails with EINVAL, and the first handle stays valid")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	struct ibv_shpd shpd, again;

	MUST(ibv_alloc_shpd(pd, KEY, &shpd));
	CHECK_NULL(ibv_alloc_shpd(pd, KEY, &again), EINVAL);
	CHECK_NULL(ibv_alloc_shpd(pd, KEY + 1, &again), EINVAL);
	CHECK_EQ(tree_count(KEEL0, "shpd"), 1);
	MUST(ibv_share_pd(ctx, &shpd, KEY));
	CHECK_NULL(ibv_share_pd(ctx, &shpd, KEY + 1), EACCES);
}

TEST(null, "SPD-1", "ibv_alloc_shpd() and ibv_share_pd() refuse NULL arguments with EINVAL")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	struct ibv_shpd shpd = {};

	CHECK_NULL(ibv_alloc_shpd(NULL, KEY, &shpd), EINVAL);
	CHECK_NULL(ibv_alloc_shpd(pd, KEY, NULL), EINVAL);
	CHECK_NULL(ibv_share_pd(NULL, &shpd, KEY), EINVAL);
	CHECK_NULL(ibv_share_pd(ctx, NULL, KEY), EINVAL);
	CHECK_EQ(tree_count(KEEL0, "shpd"), 0);
}

TEST(same_process, "SPD-2", "ibv_share_pd() in another context creates a new PD of the same domain")
{
	struct ibv_context *ctx = dev_open(KEEL0), *other = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx)), *a, *b;
	struct ibv_shpd shpd;
	struct tree tree;

	MUST(ibv_alloc_shpd(pd, KEY, &shpd));
	a = MUST(ibv_share_pd(other, &shpd, KEY));
	b = MUST(ibv_share_pd(ctx, &shpd, KEY));
	CHECK(a->context == other && b->context == ctx);
	CHECK(b != pd && b->handle != pd->handle);
	CHECK_EQ(query(a).kind, KEELDV_PD_SHARED);
	CHECK_EQ(query(a).domain, query(pd).domain);
	CHECK_EQ(query(b).domain, query(pd).domain);
	tree_read(KEEL0, &tree);
	CHECK_EQ(tree_value(tree_only(&tree, "domain"), "instances"), 3);
	CHECK_EQ(tree_count(KEEL0, "pd"), 3);
	CHECK_EQ(res_count(KEEL0, "pd"), 3);
}

/*
 * Return the domain of the PD of the MR with this key, against which keel
 * checks the key.
 */
static unsigned int domain_of_key(const struct tree *tree, uint32_t key)
{
	unsigned int pd;
	int i;

	for (i = 0; i < tree->count; i++) {
		const struct tree_obj *mr = &tree->objs[i];

		if (strcmp(mr->kind, "mr") || tree_value(mr, "key") != key)
			continue;
		CHECK_EQ(sscanf(mr->holds, "pd %u", &pd), 1);
		return tree_value(tree_find(tree, "pd", pd), "domain");
	}
	FAIL("no MR has key 0x%08x", key);
}

TEST(one_scope, "SPD-3", "MRs of all instances belong to the shared domain, and each MR has its own key")
{
	struct ibv_context *ctx = dev_open(KEEL0), *other = dev_open(KEEL0);
	struct ibv_pd *pd[3] = { MUST(ibv_alloc_pd(ctx)) }, *alone;
	struct ibv_shpd shpd;
	struct ibv_mr *mr[4];
	struct tree tree;
	int i, j;

	MUST(ibv_alloc_shpd(pd[0], KEY, &shpd));
	pd[1] = MUST(ibv_share_pd(other, &shpd, KEY));
	pd[2] = MUST(ibv_share_pd(ctx, &shpd, KEY));
	alone = MUST(ibv_alloc_pd(ctx));
	for (i = 0; i < 4; i++)
		mr[i] = MUST(ibv_reg_mr(i < 3 ? pd[i] : alone, page, PAGE, 0));
	tree_read(KEEL0, &tree);
	for (i = 0; i < 3; i++) {
		CHECK_EQ(domain_of_key(&tree, mr[i]->lkey), query(pd[0]).domain);
		for (j = 0; j < i; j++)
			CHECK(mr[j]->lkey != mr[i]->lkey);
	}
	CHECK(domain_of_key(&tree, mr[3]->lkey) != query(pd[0]).domain);
	tree_free(&tree);
}

#define FILE_NAME	"/tmp/shpd"

/* The handle reaches the other process by a file, a socket or shared memory. */
static void join_by_file(struct peer *parent)
{
	struct ibv_context *ctx = dev_open(KEEL0);
	int fd = SYS(open(FILE_NAME, O_RDONLY));
	struct ibv_shpd shpd;
	uint32_t domain;

	CHECK_EQ(SYS(read(fd, &shpd, sizeof(shpd))), sizeof(shpd));
	domain = query(MUST(ibv_share_pd(ctx, &shpd, KEY))).domain;
	peer_put_var(parent, domain);
}

static void join_by_pipe(struct peer *parent)
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_shpd shpd;
	uint32_t domain;

	peer_get_var(parent, shpd);
	domain = query(MUST(ibv_share_pd(ctx, &shpd, KEY))).domain;
	peer_put_var(parent, domain);
	peer_wait(parent);
}

static struct ibv_shpd *shared;

static void join_by_memory(struct peer *parent)
{
	struct ibv_context *ctx = dev_open(KEEL0);
	uint32_t domain;

	peer_wait(parent);
	domain = query(MUST(ibv_share_pd(ctx, shared, KEY))).domain;
	peer_put_var(parent, domain);
}

TEST(other_process, "SPD-2", "processes that got the handle by a file, a socket or shared memory join the same domain")
{
	struct peer by_file, by_pipe, by_memory;
	struct ibv_pd *pd;
	uint32_t domain;
	int fd;

	shared = peer_shared(PAGE);
	peer_start(&by_pipe, join_by_pipe);
	peer_start(&by_memory, join_by_memory);
	pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	MUST(ibv_alloc_shpd(pd, KEY, shared));
	fd = SYS(open(FILE_NAME, O_RDWR | O_CREAT | O_TRUNC, 0600));
	CHECK_EQ(SYS(write(fd, shared, sizeof(*shared))), sizeof(*shared));
	peer_start(&by_file, join_by_file);
	peer_put(&by_pipe, shared, sizeof(*shared));
	peer_tell(&by_memory);
	peer_get_var(&by_file, domain);
	CHECK_EQ(domain, query(pd).domain);
	peer_get_var(&by_pipe, domain);
	CHECK_EQ(domain, query(pd).domain);
	peer_get_var(&by_memory, domain);
	CHECK_EQ(domain, query(pd).domain);
	peer_end(&by_file);
	peer_end(&by_memory);
	CHECK_EQ(tree_count(KEEL0, "pd"), 2);
	peer_tell(&by_pipe);
	peer_end(&by_pipe);
	CHECK_EQ(tree_count(KEEL0, "pd"), 1);
	unlink(FILE_NAME);
}

TEST(refused_alike, "SPD-4", "ibv_share_pd() refuses a wrong key, an unknown handle and a dead handle alike, with EACCES, and changes nothing")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	struct ibv_pd *dead = MUST(ibv_alloc_pd(ctx));
	struct ibv_shpd shpd, none, gone;
	char *before;
	int bit;

	MUST(ibv_alloc_shpd(pd, KEY, &shpd));
	MUST(ibv_alloc_shpd(dead, KEY, &gone));
	CHECK_OK(ibv_dealloc_pd(dead));
	before = tree_text(KEEL0);
	for (bit = 0; bit < 64; bit++)
		CHECK_NULL(ibv_share_pd(ctx, &shpd, KEY ^ 1ULL << bit), EACCES);
	CHECK_NULL(ibv_share_pd(ctx, &shpd, 0), EACCES);
	CHECK_NULL(ibv_share_pd(ctx, &shpd, ~KEY), EACCES);
	CHECK_NULL(ibv_share_pd(ctx, &gone, KEY), EACCES);
	CHECK_NULL(ibv_share_pd(ctx, &gone, ~KEY), EACCES);
	none = shpd;
	for (bit = 0; bit < 32; bit++) {
		none.handle = shpd.handle ^ 1U << bit;
		CHECK_NULL(ibv_share_pd(ctx, &none, KEY), EACCES);
		CHECK_NULL(ibv_share_pd(ctx, &none, ~KEY), EACCES);
	}
	CHECK_SAME_TREE(before);
	MUST(ibv_share_pd(ctx, &shpd, KEY));
}

TEST(any_key, "SPD-4", "any 64-bit key works, 0 and all ones included, and only a PD's own key joins its domain")
{
	static const uint64_t keys[] = { 0, ~0ULL, 1, 1ULL << 63, 0xffffffff };
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_shpd shpd[5];
	struct ibv_pd *pd;
	int i, j;

	for (i = 0; i < 5; i++) {
		pd = MUST(ibv_alloc_pd(ctx));
		MUST(ibv_alloc_shpd(pd, keys[i], &shpd[i]));
		CHECK_EQ(query(MUST(ibv_share_pd(ctx, &shpd[i], keys[i]))).domain,
			 query(pd).domain);
	}
	for (i = 0; i < 5; i++)
		for (j = 0; j < 5; j++)
			if (i != j)
				CHECK_NULL(ibv_share_pd(ctx, &shpd[i], keys[j]),
					   EACCES);
}

#define MANY	256

TEST(not_guessable, "SPD-4", "shared PD handles of one device look random: no small steps, no bit that is mostly 0 or 1")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	uint32_t handle[MANY];
	struct ibv_shpd shpd;
	int i, j, bit, ones;

	for (i = 0; i < MANY; i++) {
		MUST(ibv_alloc_shpd(MUST(ibv_alloc_pd(ctx)), i, &shpd));
		handle[i] = shpd.handle;
		for (j = 0; j < i; j++)
			CHECK(handle[j] != handle[i]);
		/* This check fails by chance in 1 of 30,000 runs. */
		if (i)
			CHECK(handle[i] - handle[i - 1] + 256 > 512);
		if (i > 1)
			CHECK(handle[i] - handle[i - 1] !=
			      handle[i - 1] - handle[i - 2]);
	}
	/* A deviation of 64 from the mean is 8 standard deviations. */
	for (bit = 0; bit < 32; bit++) {
		for (i = ones = 0; i < MANY; i++)
			ones += handle[i] >> bit & 1;
		CHECK(ones > MANY / 4 && ones < MANY * 3 / 4);
	}
}

TEST(other_device, "SPD-5", "ibv_share_pd() refuses a handle of another keel device with EACCES")
{
	struct ibv_context *ctx, *other;
	struct ibv_shpd a, b;

	dev_add();
	ctx = dev_open(KEEL0);
	other = dev_open(KEEL1);
	MUST(ibv_alloc_shpd(MUST(ibv_alloc_pd(ctx)), KEY, &a));
	MUST(ibv_alloc_shpd(MUST(ibv_alloc_pd(other)), KEY, &b));
	CHECK_NULL(ibv_share_pd(other, &a, KEY), EACCES);
	CHECK_NULL(ibv_share_pd(ctx, &b, KEY), EACCES);
	MUST(ibv_share_pd(ctx, &a, KEY));
	MUST(ibv_share_pd(other, &b, KEY));
	CHECK_OK(ibv_close_device(other));
	CHECK_EQ(tree_count(KEEL1, NULL), 0);
}

TEST(instances, "SPD-6", "only its own objects keep an instance busy, and its owner deallocates it")
{
	struct ibv_context *ctx = dev_open(KEEL0), *other = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx)), *a;
	struct ibv_mr *mr, *mr_a;
	struct ibv_shpd shpd;

	MUST(ibv_alloc_shpd(pd, KEY, &shpd));
	a = MUST(ibv_share_pd(other, &shpd, KEY));
	mr = MUST(ibv_reg_mr(pd, page, PAGE, 0));
	mr_a = MUST(ibv_reg_mr(a, page, PAGE, 0));
	CHECK_RET(ibv_dealloc_pd(a), EBUSY);
	CHECK_RET(ibv_dealloc_pd(pd), EBUSY);
	CHECK_OK(ibv_dereg_mr(mr_a));
	CHECK_OK(ibv_dealloc_pd(a));
	CHECK_RET(ibv_dealloc_pd(pd), EBUSY);
	CHECK_OK(ibv_dereg_mr(mr));
	a = MUST(ibv_share_pd(other, &shpd, KEY));
	mr_a = MUST(ibv_reg_mr(a, page, PAGE, 0));
	CHECK_OK(ibv_dealloc_pd(pd));
	CHECK_RET(ibv_dealloc_pd(a), EBUSY);
	CHECK_OK(ibv_dereg_mr(mr_a));
	CHECK_OK(ibv_dealloc_pd(a));
	CHECK_EQ(tree_count(KEEL0, NULL), 0);
}

TEST(last_instance, "SPD-6", "the domain lives until its last instance is deallocated, and its handle is never valid again")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx)), *a, *b;
	uint32_t domain = query(pd).domain;
	struct ibv_shpd shpd, other;
	int i;

	MUST(ibv_alloc_shpd(pd, KEY, &shpd));
	a = MUST(ibv_share_pd(ctx, &shpd, KEY));
	CHECK_OK(ibv_dealloc_pd(pd));
	b = MUST(ibv_share_pd(ctx, &shpd, KEY));
	CHECK_OK(ibv_dealloc_pd(a));
	CHECK_EQ(query(b).domain, domain);
	CHECK_EQ(tree_count(KEEL0, "domain"), 1);
	CHECK_EQ(tree_count(KEEL0, "shpd"), 1);
	CHECK_OK(ibv_dealloc_pd(b));
	CHECK_EQ(tree_count(KEEL0, NULL), 0);
	CHECK_NULL(ibv_share_pd(ctx, &shpd, KEY), EACCES);
	for (i = 0; i < 1000; i++) {
		pd = MUST(ibv_alloc_pd(ctx));
		MUST(ibv_alloc_shpd(pd, KEY, &other));
		CHECK(other.handle != shpd.handle);
		if (i % 100 == 0)
			CHECK_NULL(ibv_share_pd(ctx, &shpd, KEY), EACCES);
		CHECK_OK(ibv_dealloc_pd(pd));
	}
}

static void share_and_hold(struct peer *parent)
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	struct ibv_shpd shpd;

	MUST(ibv_alloc_shpd(pd, KEY, &shpd));
	MUST(ibv_reg_mr(pd, page, PAGE, 0));
	MUST(ibv_alloc_mw(pd, IBV_MW_TYPE_1));
	peer_put_var(parent, shpd);
	pause();
}

TEST(owner_dies, "SPD-6,SPD-7", "the domain outlives the process that shared it, that process's objects do not, and the handle stays valid")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_shpd shpd;
	struct ibv_pd *a, *b;
	uint32_t domain;
	struct peer p;
	struct tree tree;

	peer_start(&p, share_and_hold);
	peer_get_var(&p, shpd);
	a = MUST(ibv_share_pd(ctx, &shpd, KEY));
	domain = query(a).domain;
	MUST(ibv_reg_mr(a, page, PAGE, 0));
	CHECK_EQ(tree_count(KEEL0, "mr"), 2);
	peer_kill(&p, SIGKILL);
	tree_read(KEEL0, &tree);
	CHECK_EQ(tree.count, 4);
	CHECK_EQ(tree_only(&tree, "domain")->id, domain);
	CHECK_EQ(tree_value(tree_only(&tree, "domain"), "instances"), 1);
	CHECK_EQ(tree_only(&tree, "pd")->pid, getpid());
	CHECK_EQ(tree_only(&tree, "mr")->pid, getpid());
	b = MUST(ibv_share_pd(ctx, &shpd, KEY));
	CHECK_EQ(query(b).domain, domain);
}

static void join_and_die(struct peer *parent)
{
	struct ibv_context *ctx;
	struct ibv_shpd shpd;
	struct ibv_pd *pd;
	struct ibv_parent_domain_init_attr attr = {};

	peer_get_var(parent, shpd);
	ctx = dev_open(KEEL0);
	pd = MUST(ibv_share_pd(ctx, &shpd, KEY));
	attr.pd = pd;
	MUST(ibv_reg_mr(pd, page, PAGE, 0));
	MUST(ibv_reg_mr(MUST(ibv_alloc_parent_domain(ctx, &attr)), page, 8, 0));
	peer_tell(parent);
	pause();
}

TEST(joiner_dies, "SPD-7", "the kernel destroys all objects of a dead process's instance and leaves the rest of the domain alone")
{
	struct ibv_context *ctx;
	struct ibv_shpd shpd;
	struct ibv_pd *pd;
	char *before;
	struct peer p;

	peer_start(&p, join_and_die);
	ctx = dev_open(KEEL0);
	pd = MUST(ibv_alloc_pd(ctx));
	MUST(ibv_alloc_shpd(pd, KEY, &shpd));
	MUST(ibv_reg_mr(pd, page, PAGE, 0));
	before = tree_text(KEEL0);
	peer_put_var(&p, shpd);
	peer_wait(&p);
	CHECK_EQ(tree_count(KEEL0, "pd"), 2);
	CHECK_EQ(tree_count(KEEL0, "mr"), 3);
	peer_kill(&p, SIGTERM);
	CHECK_SAME_TREE(before);
}

TEST(wrong_pd, "SPD-8", "ibv_alloc_shpd() refuses a parent domain and an instance from ibv_share_pd() with EINVAL")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	struct ibv_parent_domain_init_attr attr = { .pd = pd };
	struct ibv_pd *parent = MUST(ibv_alloc_parent_domain(ctx, &attr));
	struct ibv_pd *joined;
	struct ibv_shpd shpd, other;

	CHECK_NULL(ibv_alloc_shpd(parent, KEY, &other), EINVAL);
	CHECK_EQ(tree_count(KEEL0, "shpd"), 0);
	MUST(ibv_alloc_shpd(pd, KEY, &shpd));
	joined = MUST(ibv_share_pd(ctx, &shpd, KEY));
	CHECK_NULL(ibv_alloc_shpd(joined, KEY, &other), EINVAL);
	attr.pd = joined;
	parent = MUST(ibv_alloc_parent_domain(ctx, &attr));
	CHECK_NULL(ibv_alloc_shpd(parent, KEY, &other), EINVAL);
	CHECK_EQ(tree_count(KEEL0, "shpd"), 1);
}

TEST(below_parent, "SPD-2", "an instance of a shared domain can be the PD of a parent domain")
{
	struct ibv_context *ctx = dev_open(KEEL0);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	struct ibv_parent_domain_init_attr attr = {};
	struct ibv_shpd shpd;
	struct ibv_pd *parent;

	MUST(ibv_alloc_shpd(pd, KEY, &shpd));
	attr.pd = MUST(ibv_share_pd(ctx, &shpd, KEY));
	parent = MUST(ibv_alloc_parent_domain(ctx, &attr));
	CHECK_EQ(query(parent).domain, query(pd).domain);
	CHECK_RET(ibv_dealloc_pd(attr.pd), EBUSY);
	CHECK_OK(ibv_dealloc_pd(parent));
	CHECK_OK(ibv_dealloc_pd(attr.pd));
}
