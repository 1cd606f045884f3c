// SPDX-License-Identifier: GPL-2.0
/*
 * Several threads use the same objects at once.
 *
 * A call that races returns one of a few errnos. The tests check that each
 * object is destroyed once, that nothing crashes and that nothing is left
 * behind.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include <infiniband/shpd.h>

#include "raw.h"
#include "t.h"
#include "tree.h"

#define PAGE	4096
#define THREADS	4

static char page[PAGE] __attribute__((aligned(PAGE)));

/*
 * Destroy an object by its handle: libibverbs would free its own structure
 * twice.
 */
static int destroy(int fd, uint32_t command, uint32_t handle)
{
	struct raw_invoke inv = {
		.command = command, .in = &handle, .in_len = sizeof(handle),
	};

	return raw_invoke(fd, &inv);
}

static int object_method(int fd, uint16_t object, uint16_t method,
			 uint16_t attr, uint32_t handle)
{
	struct raw_cmd cmd;

	raw_init(&cmd, object, method);
	raw_obj(&cmd, attr, handle);
	return raw_run(fd, &cmd);
}

static int free_td(int fd, uint32_t handle)
{
	return object_method(fd, KEEL_OBJECT_TD, KEEL_METHOD_TD_FREE,
			     KEEL_ATTR_TD_FREE_HANDLE, handle);
}

static int free_dm(int fd, uint32_t handle)
{
	return object_method(fd, UVERBS_OBJECT_DM, UVERBS_METHOD_DM_FREE,
			     UVERBS_ATTR_FREE_DM_HANDLE, handle);
}

static uint32_t new_td(int fd)
{
	struct raw_cmd cmd;

	raw_init(&cmd, KEEL_OBJECT_TD, KEEL_METHOD_TD_ALLOC);
	raw_new(&cmd, KEEL_ATTR_TD_ALLOC_HANDLE);
	CHECK_OK(raw_run(fd, &cmd));
	return cmd.attrs[0].data;
}

/* Return 0 or the errno. */
static int new_parent(int fd, uint32_t pd, uint32_t td, uint32_t *handle)
{
	struct keel_uapi_pd_info info;
	struct raw_cmd cmd;
	int ret;

	raw_init(&cmd, UVERBS_OBJECT_PD, KEEL_METHOD_PD_ALLOC_PARENT);
	raw_new(&cmd, KEEL_ATTR_PD_ALLOC_PARENT_HANDLE);
	raw_obj(&cmd, KEEL_ATTR_PD_ALLOC_PARENT_PD, pd);
	raw_obj(&cmd, KEEL_ATTR_PD_ALLOC_PARENT_TD, td);
	raw_out(&cmd, KEEL_ATTR_PD_ALLOC_PARENT_RESP, &info, sizeof(info));
	ret = raw_run(fd, &cmd);
	*handle = cmd.attrs[0].data;
	return ret;
}

/* Several threads run act() at the same time, round after round. */
struct race {
	int fd;
	void (*act)(struct race *r, int thread);
	int count;
	pthread_barrier_t start, end;
	atomic_bool over;
	/* The objects that the threads race for, created anew in each round. */
	uint32_t pd, td, dm, mr;
	struct ibv_context *ctx;
	struct ibv_shpd shpd;
	atomic_int won, made;
};

struct runner {
	struct race *race;
	int number;
	pthread_t thread;
};

static void *run(void *arg)
{
	struct runner *me = arg;

	for (;;) {
		pthread_barrier_wait(&me->race->start);
		if (me->race->over)
			return NULL;
		me->race->act(me->race, me->number);
		pthread_barrier_wait(&me->race->end);
	}
}

static void race_begin(struct race *r, struct runner *runners, int count)
{
	int i;

	r->ctx = dev_open(KEEL0);
	r->fd = r->ctx->cmd_fd;
	r->count = count;
	pthread_barrier_init(&r->start, NULL, count + 1);
	pthread_barrier_init(&r->end, NULL, count + 1);
	for (i = 0; i < count; i++) {
		runners[i].race = r;
		runners[i].number = i;
		CHECK_OK(pthread_create(&runners[i].thread, NULL, run,
					&runners[i]));
	}
}

static void race_round(struct race *r)
{
	r->won = r->made = 0;
	pthread_barrier_wait(&r->start);
	pthread_barrier_wait(&r->end);
}

static void race_end(struct race *r, struct runner *runners)
{
	int i;

	r->over = true;
	pthread_barrier_wait(&r->start);
	for (i = 0; i < r->count; i++)
		pthread_join(runners[i].thread, NULL);
}

/* Another thread won: the object is in use or destroyed. */
static bool is_lost(int ret)
{
	return ret == EBUSY || ret == ENOENT;
}

static void count_destroy(struct race *r, int ret)
{
	if (!ret)
		r->won++;
	else if (!is_lost(ret))
		FAIL("a destroy in a race: got %s, want 0, ENOENT or EBUSY",
		     t_errname(ret));
}

/*
 * For races in which other threads create objects: a new object may have the
 * handle by now, and its type does not match.
 */
static void count_reused(struct race *r, int ret)
{
	if (ret != EINVAL)
		count_destroy(r, ret);
}

static void destroy_all(struct race *r, int thread)
{
	/*
	 * The kernel uses a trylock, so each thread may find the object busy.
	 */
	count_destroy(r, destroy(r->fd, IB_USER_VERBS_CMD_DEREG_MR, r->mr));
	count_destroy(r, destroy(r->fd, IB_USER_VERBS_CMD_DEALLOC_PD, r->pd));
	count_destroy(r, free_td(r->fd, r->td));
	count_destroy(r, free_dm(r->fd, r->dm));
}

TEST(destroy_once, "DEV-4,PD-2,TD-1,DM-8", "if several threads destroy one PD, TD, DM or MR, one succeeds and the others get ENOENT or EBUSY")
{
	struct runner runners[THREADS];
	struct race r = { .act = destroy_all };
	struct ibv_alloc_dm_attr attr = { .length = 1 };
	struct ibv_pd *base;
	int i;

	race_begin(&r, runners, THREADS);
	base = MUST(ibv_alloc_pd(r.ctx));
	for (i = 0; i < t_rounds(400); i++) {
		r.pd = MUST(ibv_alloc_pd(r.ctx))->handle;
		r.td = new_td(r.fd);
		r.dm = MUST(ibv_alloc_dm(r.ctx, &attr))->handle;
		r.mr = MUST(ibv_reg_mr(base, page, PAGE, 0))->handle;
		race_round(&r);
		CHECK(r.won <= 4);
		/*
		 * If each thread found the object busy, the object still
		 * exists.
		 */
		r.won += !destroy(r.fd, IB_USER_VERBS_CMD_DEREG_MR, r.mr);
		r.won += !destroy(r.fd, IB_USER_VERBS_CMD_DEALLOC_PD, r.pd);
		r.won += !free_td(r.fd, r.td);
		r.won += !free_dm(r.fd, r.dm);
		CHECK_EQ(r.won, 4);
		CHECK_EQ(tree_count(KEEL0, NULL), 2);
	}
	race_end(&r, runners);
}

static void destroy_often(struct race *r)
{
	int i;

	for (i = 0; i < 5; i++) {
		count_reused(r, destroy(r->fd, IB_USER_VERBS_CMD_DEALLOC_PD,
					r->pd));
		count_reused(r, free_td(r->fd, r->td));
		count_reused(r, free_dm(r->fd, r->dm));
	}
}

static void try_parent(struct race *r)
{
	uint32_t parent;
	int ret = new_parent(r->fd, r->pd, r->td, &parent);

	if (ret && !is_lost(ret) && ret != EINVAL)
		FAIL("a parent domain in a race: got %s, want 0, ENOENT or EBUSY",
		     t_errname(ret));
	if (ret)
		return;
	/*
	 * While the parent domain lives, nobody can destroy its PD and its TD.
	 */
	r->made++;
	CHECK_RET(free_td(r->fd, r->td), EBUSY);
	CHECK_RET(destroy(r->fd, IB_USER_VERBS_CMD_DEALLOC_PD, r->pd), EBUSY);
	CHECK_OK(destroy(r->fd, IB_USER_VERBS_CMD_DEALLOC_PD, parent));
}

static void try_map(struct race *r)
{
	struct keel_uapi_dm_map map;
	int ret = raw_dm_map(r->fd, r->dm, 0, &map);
	void *p;

	if (ret && !is_lost(ret) && ret != EINVAL)
		FAIL("DM_MAP in a race: got %s, want 0, ENOENT or EBUSY",
		     t_errname(ret));
	if (ret)
		return;
	p = mmap(NULL, map.length, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd,
		 map.mmap_offset);
	if (p == MAP_FAILED)
		return;
	CHECK_ALL(p, 0, map.length);
	munmap(p, map.length);
}

/* Odd threads destroy the objects that the even threads use. */
static void use_or_destroy(struct race *r, int thread)
{
	int i;

	if (thread % 2) {
		destroy_often(r);
		return;
	}
	for (i = 0; i < 5; i++) {
		try_parent(r);
		try_map(r);
	}
}

TEST(use_while_destroyed, "PD-2,PDM-9,TD-2,DM-6", "if one thread uses and another destroys a PD, TD or DM, either the use fails (ENOENT, EBUSY) or the destroy (EBUSY)")
{
	struct runner runners[THREADS];
	struct race r = { .act = use_or_destroy };
	struct ibv_alloc_dm_attr attr = { .length = PAGE };
	int i, made = 0;

	race_begin(&r, runners, THREADS);
	for (i = 0; i < t_rounds(200); i++) {
		r.pd = MUST(ibv_alloc_pd(r.ctx))->handle;
		r.td = new_td(r.fd);
		r.dm = MUST(ibv_alloc_dm(r.ctx, &attr))->handle;
		race_round(&r);
		CHECK(r.won <= 3);
		made += r.made;
		destroy(r.fd, IB_USER_VERBS_CMD_DEALLOC_PD, r.pd);
		free_td(r.fd, r.td);
		free_dm(r.fd, r.dm);
		CHECK_EQ(tree_count(KEEL0, NULL), 0);
	}
	race_end(&r, runners);
	t_note("%d parent domains made in %d rounds", made, i);
}

static void share(struct race *r, int thread)
{
	struct raw_cmd cmd;
	uint64_t key = 1;
	uint32_t handle;
	int ret;

	raw_init(&cmd, UVERBS_OBJECT_PD, KEEL_METHOD_PD_SHARE);
	raw_obj(&cmd, KEEL_ATTR_PD_SHARE_HANDLE, r->pd);
	raw_in(&cmd, KEEL_ATTR_PD_SHARE_KEY, &key, 8);
	raw_out(&cmd, KEEL_ATTR_PD_SHARE_RESP_SHPD, &handle, 4);
	ret = raw_run(r->fd, &cmd);
	if (!ret)
		r->won++;
	else
		CHECK_RET(ret, EINVAL);
}

TEST(share_once, "SPD-1", "if several threads share one PD at once, one succeeds and the others get EINVAL")
{
	struct runner runners[THREADS];
	struct race r = { .act = share };
	int i;

	race_begin(&r, runners, THREADS);
	for (i = 0; i < t_rounds(200); i++) {
		r.pd = MUST(ibv_alloc_pd(r.ctx))->handle;
		race_round(&r);
		CHECK_EQ(r.won, 1);
		CHECK_EQ(tree_count(KEEL0, "shpd"), 1);
		CHECK_OK(destroy(r.fd, IB_USER_VERBS_CMD_DEALLOC_PD, r.pd));
	}
	race_end(&r, runners);
}

static void join_or_leave(struct race *r, int thread)
{
	struct ibv_pd *pd;

	if (!thread) {
		CHECK_OK(destroy(r->fd, IB_USER_VERBS_CMD_DEALLOC_PD, r->pd));
		return;
	}
	pd = ibv_share_pd(r->ctx, &r->shpd, 1);
	if (!pd) {
		CHECK_EQ(errno, EACCES);
		return;
	}
	r->won++;
	CHECK_OK(ibv_dealloc_pd(pd));
}

TEST(join_last, "SPD-6", "ibv_share_pd() during dealloc of the last instance joins the domain or gets EACCES, and leaves nothing behind")
{
	struct runner runners[THREADS];
	struct race r = { .act = join_or_leave };
	struct ibv_pd *pd;
	int i, joined = 0;

	race_begin(&r, runners, THREADS);
	for (i = 0; i < t_rounds(400); i++) {
		pd = MUST(ibv_alloc_pd(r.ctx));
		r.pd = pd->handle;
		MUST(ibv_alloc_shpd(pd, 1, &r.shpd));
		race_round(&r);
		joined += r.won;
		CHECK_NULL(ibv_share_pd(r.ctx, &r.shpd, 1), EACCES);
		CHECK_EQ(tree_count(KEEL0, NULL), 0);
	}
	race_end(&r, runners);
	t_note("%d of %d joined", joined, i * (THREADS - 1));
}

static void open_close(struct race *r, int thread)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = r->mr, .oflags = thread % 2 ? O_CREAT : 0,
	};
	struct ibv_xrcd *xrcd;
	int i;

	for (i = 0; i < 20; i++) {
		xrcd = ibv_open_xrcd(r->ctx, &attr);
		if (xrcd)
			CHECK_OK(ibv_close_xrcd(xrcd));
		else
			CHECK_EQ(errno, EAGAIN);
	}
}

TEST(xrcd_open_close, "XRC-7", "threads that open and close the XRCD of one inode find it or get EAGAIN, and the last close destroys it")
{
	struct runner runners[THREADS];
	struct race r = { .act = open_close };
	int i;

	r.mr = SYS(open("/tmp/race", O_RDWR | O_CREAT, 0600));
	race_begin(&r, runners, THREADS);
	for (i = 0; i < t_rounds(40); i++) {
		race_round(&r);
		CHECK_EQ(tree_count(KEEL0, NULL), 0);
	}
	race_end(&r, runners);
	unlink("/tmp/race");
}
