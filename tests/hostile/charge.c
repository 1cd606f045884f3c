// SPDX-License-Identifier: GPL-2.0
/*
 * Kernel memory: objects of a process are charged to its memory cgroup,
 * uncharged after the process exits, and bounded by the cgroup's limit.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <infiniband/keeldv.h>

#include "peer.h"
#include "qp.h"
#include "t.h"
#include "tree.h"

#define GROUP	"/sys/fs/cgroup/keelmemory"
#define PAGE	4096UL
#define MIB	(1024UL * 1024)

/*
 * An MR of this size has a long page list: 8 bytes for each page, if no 2 MiB of its
 * memory are contiguous.
 */
#define REGION	(16 * MIB)
#define LIST	(REGION / PAGE * 8)

static char *memory;

void t_after(void)
{
	t_shell_status("rmdir " GROUP " 2>&1");
}

static void group_make(void)
{
	CHECK_OK(t_shell_status("grep -qw memory "
				"/sys/fs/cgroup/cgroup.controllers"));
	SYS(mkdir(GROUP, 0755));
}

static void group_join(void)
{
	char pid[20];

	snprintf(pid, sizeof(pid), "%d", getpid());
	CHECK_OK(t_write_file(GROUP "/cgroup.procs", pid));
}

static long group_value(const char *file, const char *word)
{
	char *text = t_read_file(file), *at = text;
	long value;

	if (word) {
		at = strstr(text, word);
		CHECK(at);
		at += strlen(word);
	}
	value = atol(at);
	free(text);
	return value;
}

/* Return the bytes of kernel memory charged to the group. */
static long group_kernel(void)
{
	return group_value(GROUP "/memory.stat", "\nkernel ");
}

static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_dm *dm;
static struct ibv_qp *ud;

static void *new_pd(void)
{
	return ibv_alloc_pd(pd->context);
}

static int free_pd(void *p)
{
	return ibv_dealloc_pd(p);
}

static void *new_parent(void)
{
	struct ibv_parent_domain_init_attr attr = { .pd = pd };

	return ibv_alloc_parent_domain(pd->context, &attr);
}

static void *new_td(void)
{
	struct ibv_td_init_attr attr = {};

	return ibv_alloc_td(pd->context, &attr);
}

static int free_td(void *td)
{
	return ibv_dealloc_td(td);
}

/* An on-demand MR has no page list: the kernel pins nothing. */
static void *new_odp(void)
{
	return ibv_reg_mr(pd, memory, PAGE, IBV_ACCESS_ON_DEMAND);
}

static void *new_mr(void)
{
	return ibv_reg_mr(pd, memory, REGION, 0);
}

static void *new_dm_mr(void)
{
	return ibv_reg_dm_mr(pd, dm, 0, PAGE, IBV_ACCESS_ZERO_BASED);
}

static int free_mr(void *mr)
{
	return ibv_dereg_mr(mr);
}

static void *new_mw(void)
{
	return ibv_alloc_mw(pd, IBV_MW_TYPE_1);
}

static int free_mw(void *mw)
{
	return ibv_dealloc_mw(mw);
}

static void *new_dm(void)
{
	struct ibv_alloc_dm_attr attr = { .length = PAGE };

	return ibv_alloc_dm(pd->context, &attr);
}

static int free_dm(void *p)
{
	return ibv_free_dm(p);
}

static void *new_xrcd(void)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};

	return ibv_open_xrcd(pd->context, &attr);
}

static int free_xrcd(void *xrcd)
{
	return ibv_close_xrcd(xrcd);
}

static void *new_ah(void)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1 };

	CHECK_OK(ibv_query_gid(pd->context, 1, 0, &attr.grh.dgid));
	return ibv_create_ah(pd, &attr);
}

static int free_ah(void *ah)
{
	return ibv_destroy_ah(ah);
}

static void *new_cq(void)
{
	return ibv_create_cq(pd->context, 1, NULL, NULL, 0);
}

static int free_cq(void *p)
{
	return ibv_destroy_cq(p);
}

static void *new_srq(void)
{
	return srq_new(pd);
}

static int free_srq(void *srq)
{
	return ibv_destroy_srq(srq);
}

static void *new_qp(void)
{
	return qp_new(pd, cq, IBV_QPT_RC, NULL);
}

static int free_qp(void *qp)
{
	return ibv_destroy_qp(qp);
}

/* Attach the QP to one more multicast group. */
static void *new_group(void)
{
	union ibv_gid *gid = calloc(1, sizeof(*gid));
	static uint16_t n;

	gid->raw[0] = 0xff;
	gid->raw[1] = 0x0e;
	memcpy(&gid->raw[14], &n, sizeof(n));
	n++;
	CHECK_OK(ibv_attach_mcast(ud, gid, 0));
	return gid;
}

static int free_group(void *gid)
{
	int ret = ibv_detach_mcast(ud, gid, 0);

	free(gid);
	return ret;
}

/*
 * The kernel charges at least this many bytes for each object; sizes are those
 * of slabs.
 */
static const struct kind {
	const char *what;
	void *(*make)(void);
	int (*unmake)(void *obj);
	int n;
	unsigned long bytes;
} kinds[] = {
	{ "PD", new_pd, free_pd, 2000, 460 },
	{ "parent domain", new_parent, free_pd, 3000, 250 },
	{ "TD", new_td, free_td, 4000, 140 },
	{ "on-demand MR", new_odp, free_mr, 2000, 400 },
	{ "MR of 16 MiB", new_mr, free_mr, 40, LIST },
	{ "MR of device memory", new_dm_mr, free_mr, 2000, 400 },
	{ "MW", new_mw, free_mw, 2000, 400 },
	{ "buffer of device memory", new_dm, free_dm, 3000, 205 },
	{ "XRC domain", new_xrcd, free_xrcd, 3000, 205 },
	/* Creating an AH takes a clock tick. */
	{ "AH", new_ah, free_ah, 300, 250 },
	{ "CQ", new_cq, free_cq, 1100, 250 },
	{ "SRQ", new_srq, free_srq, 1100, 250 },
	{ "multicast group", new_group, free_group, 1000, 100 },
	{ "QP", new_qp, free_qp, 500, 1000 },
};

/*
 * The kernel charges slabs by page or by object. Freed memory is uncharged
 * after a grace period, some of it later.
 */
static void check_returned(const struct kind *k, long before, long grown)
{
	int i;

	for (i = 0; i < 200 && group_kernel() - before > grown / 4; i++)
		usleep(50000);
	if (group_kernel() - before > grown / 4)
		FAIL("%s: got %ld bytes still charged of %ld, want a quarter at most",
		     k->what, group_kernel() - before, grown);
}

/* memory.stat shows changes of less than 128 pages only every other second. */
#define SETTLED		3

/* Bytes that the group has more than @before, once they are as many as they should be. */
static long grown_since(long before, long want)
{
	int i;

	for (i = 0; i < SETTLED * 10 && group_kernel() - before < want; i++)
		usleep(100000);
	return group_kernel() - before;
}

static void charge_kind(const struct kind *k)
{
	void **objs = calloc(k->n, sizeof(*objs));
	long before, grown;
	int i;

	/* Of what the last kind has returned, too. */
	sleep(SETTLED);
	before = group_kernel();
	for (i = 0; i < k->n; i++)
		objs[i] = MUST(k->make());
	grown = grown_since(before, k->n * k->bytes);
	t_note("%s: %ld bytes each", k->what, grown / k->n);
	if (grown < (long)(k->n * k->bytes))
		FAIL("%s: got %ld bytes charged each, want %lu", k->what,
		     grown / k->n, k->bytes);
	for (i = 0; i < k->n; i++)
		CHECK_OK(k->unmake(objs[i]));
	check_returned(k, before, grown);
	free(objs);
}

static void prepare(void)
{
	struct ibv_context *ctx;

	memory = mmap(NULL, REGION, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	t_scatter(memory, REGION);
	ctx = dev_open(KEEL0);
	pd = MUST(ibv_alloc_pd(ctx));
	cq = cq_new(ctx);
	ud = qp_new(pd, cq, IBV_QPT_UD, NULL);
	dm = new_dm();
	CHECK(dm);
}

static void charged(struct peer *parent)
{
	int kind;

	peer_get_var(parent, kind);
	group_join();
	prepare();
	charge_kind(&kinds[kind]);
}

/*
 * Use a new cgroup for each kind: memory that is freed late would be missing in
 * the next measurement.
 */
TEST_SLOW(charged, "ISO-5", "objects, page lists and multicast groups are charged to the creator's memory cgroup, and uncharged when destroyed", 120)
{
	struct peer p;
	int kind;

	for (kind = 0; kind < (int)(sizeof(kinds) / sizeof(*kinds)); kind++) {
		group_make();
		peer_start(&p, charged);
		peer_put_var(&p, kind);
		peer_end(&p);
		SYS(rmdir(GROUP));
	}
}

/* More page lists than the limit has room for. */
#define MOST	600
#define ROOM	(8 * MIB)

static int *made;

static void limited(struct peer *parent)
{
	char limit[30];

	group_join();
	prepare();
	snprintf(limit, sizeof(limit), "%ld",
		 group_value(GROUP "/memory.current", NULL) + (long)ROOM);
	CHECK_OK(t_write_file(GROUP "/memory.max", limit));
	for (*made = 0; *made < MOST; ++*made) {
		errno = 0;
		if (!new_mr()) {
			CHECK_EQ(errno, ENOMEM);
			return;
		}
	}
}

/*
 * The kernel either refuses the allocation, or its out-of-memory killer kills
 * the process. Both protect the memory of other processes.
 */
TEST_SLOW(limited, "ISO-5", "memory.max bounds the kernel memory of a process's objects: the kernel refuses (ENOMEM) or kills, and frees everything", 120)
{
	struct peer p;
	int status;

	made = peer_shared(sizeof(*made));
	group_make();
	peer_start(&p, limited);
	SYS(waitpid(p.pid, &status, 0));
	t_note("%d page lists of %lu KiB in %lu KiB; %s", *made, LIST / 1024,
	       ROOM / 1024, WIFSIGNALED(status) ? "killed" : "refused");
	CHECK(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL :
				    WEXITSTATUS(status) == 0);
	/*
	 * A page list takes twice its size where the kernel rounds to a power
	 * of two.
	 */
	CHECK(*made >= (int)(ROOM / LIST) / 4);
	CHECK(*made <= (int)(ROOM / LIST));
	CHECK(group_value(GROUP "/memory.events", "\nmax ") > 0);
	/* The device still works for other processes. */
	CHECK_EQ(tree_count(KEEL0, NULL), 0);
	prepare();
	CHECK_OK(free_mr(MUST(new_mr())));
}
