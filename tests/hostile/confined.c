// SPDX-License-Identifier: GPL-2.0
/*
 * Limits and privileges: what the rdma cgroup counts, what RLIMIT_MEMLOCK
 * bounds, and what a process in a container cannot do.
 */
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <infiniband/keeldv.h>
#include <infiniband/shpd.h>

#include "hold.h"
#include "peer.h"
#include "qp.h"
#include "raw.h"
#include "t.h"
#include "tree.h"

#define GROUP	"/sys/fs/cgroup/keeltest"
#define NOBODY	65534
#define MIB	(1024UL * 1024)

static char memory[16 * MIB] __attribute__((aligned(4096)));

/*
 * Remove the limit before the group: kernels like 6.12 keep the pool of a group
 * that had a limit, and fail on it at device removal.
 */
void t_after(void)
{
	t_write_file(GROUP "/rdma.max", KEEL0 " hca_handle=max hca_object=max");
	t_shell_status("rmdir " GROUP " 2>&1");
}

static void limit(int handles, int objects)
{
	char text[100];

	snprintf(text, sizeof(text), KEEL0 " hca_handle=%d hca_object=%d",
		 handles, objects);
	CHECK_OK(t_write_file(GROUP "/rdma.max", text));
}

/* Return the group's current count of "hca_handle" or "hca_object". */
static int used(const char *what)
{
	char *text = t_read_file(GROUP "/rdma.current"), *at;
	int n = 0;

	at = strstr(text, KEEL0);
	at = at ? strstr(at, what) : NULL;
	if (at)
		n = atoi(at + strlen(what) + 1);
	free(text);
	return n;
}

static struct ibv_context *try_open(void)
{
	struct ibv_device **list = MUST(ibv_get_device_list(NULL));
	struct ibv_context *ctx = NULL;
	int i, err;

	for (i = 0; list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), KEEL0)) {
			errno = 0;
			ctx = ibv_open_device(list[i]);
			break;
		}
	CHECK(list[i]);
	err = errno;
	ibv_free_device_list(list);
	errno = err;
	return ctx;
}

static void join_group(void)
{
	char pid[20];

	snprintf(pid, sizeof(pid), "%d", getpid());
	CHECK_OK(t_write_file(GROUP "/cgroup.procs", pid));
}

static void handles(struct peer *parent)
{
	struct ibv_context *a, *b;

	join_group();
	a = MUST(try_open());
	b = MUST(try_open());
	CHECK_EQ(used("hca_handle"), 2);
	CHECK_NULL(try_open(), EAGAIN);
	CHECK_EQ(used("hca_handle"), 2);
	CHECK_OK(ibv_close_device(b));
	CHECK_EQ(used("hca_handle"), 1);
	b = MUST(try_open());
	CHECK_OK(ibv_close_device(a));
	CHECK_OK(ibv_close_device(b));
}

static void in_group(void (*run)(struct peer *), int handles, int objects)
{
	struct peer p;

	SYS(mkdir(GROUP, 0755));
	limit(handles, objects);
	peer_start(&p, run);
	peer_end(&p);
	CHECK_EQ(used("hca_handle"), 0);
	CHECK_EQ(used("hca_object"), 0);
}

TEST(hca_handle, "DEV-4", "hca_handle of the rdma cgroup bounds contexts: the next open fails with EAGAIN, and succeeds after a close")
{
	in_group(handles, 2, 100);
}

/*
 * Members of struct hold that have a handle, in the order of hold_all(): 3 PDs,
 * TD, XRC domain, DM, 4 MRs, 2 windows, AH, 3 CQs, 2 SRQs, 9 QPs.
 */
#define OBJECTS	27

static void objects(struct peer *parent)
{
	struct ibv_td_init_attr td = {};
	struct hold h;

	join_group();
	hold_all(&h, KEEL0);
	CHECK_EQ(used("hca_handle"), 1);
	CHECK_EQ(used("hca_object"), OBJECTS);
	limit(2, OBJECTS);
	CHECK_NULL(ibv_alloc_pd(h.ctx), EAGAIN);
	CHECK_NULL(ibv_alloc_td(h.ctx, &td), EAGAIN);
	CHECK_EQ(used("hca_object"), OBJECTS);
	hold_free(&h);
	CHECK_EQ(used("hca_object"), 0);
}

TEST(hca_object, "DEV-4", "the rdma cgroup counts every object once, keel's own types included, and hca_object bounds them")
{
	in_group(objects, 2, 1000);
}

static void each(struct peer *parent)
{
	struct ibv_parent_domain_init_attr attr = {};
	struct ibv_td_init_attr td_attr = {};
	struct ibv_context *ctx;
	struct ibv_shpd shpd;
	struct ibv_pd *pd;
	struct ibv_td *td;

	join_group();
	ctx = MUST(try_open());
	attr.pd = pd = MUST(ibv_alloc_pd(ctx));
	CHECK_EQ(used("hca_object"), 1);
	attr.td = td = MUST(ibv_alloc_td(ctx, &td_attr));
	CHECK_EQ(used("hca_object"), 2);
	MUST(ibv_alloc_parent_domain(ctx, &attr));
	CHECK_EQ(used("hca_object"), 3);
	/*
	 * The shared handle is a number and no object: it ends with its domain.
	 */
	MUST(ibv_alloc_shpd(pd, 5, &shpd));
	CHECK_EQ(used("hca_object"), 3);
	MUST(ibv_share_pd(ctx, &shpd, 5));
	CHECK_EQ(used("hca_object"), 4);
	CHECK_NULL(ibv_alloc_td(ctx, &td_attr), EAGAIN);
	CHECK_NULL(ibv_alloc_parent_domain(ctx, &attr), EAGAIN);
	CHECK_NULL(ibv_share_pd(ctx, &shpd, 5), EAGAIN);
	CHECK_NULL(ibv_reg_mr(pd, memory, 1, 0), EAGAIN);
	CHECK_EQ(used("hca_object"), 4);
	CHECK_EQ(tree_count(KEEL0, "pd"), 2);
	CHECK_EQ(tree_count(KEEL0, "td"), 1);
	CHECK_EQ(tree_count(KEEL0, "mr"), 0);
}

TEST(each_kind, "DEV-4", "TDs, parent domains and instances of a shared PD are charged to the rdma cgroup, and a refused one leaves nothing")
{
	in_group(each, 1, 4);
}

static void memlock(struct peer *parent)
{
	struct rlimit lim = { MIB, MIB };
	struct ibv_context *ctx;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_pd *pd;

	SYS(setrlimit(RLIMIT_MEMLOCK, &lim));
	SYS(setgroups(0, NULL));
	SYS(setresgid(NOBODY, NOBODY, NOBODY));
	SYS(setresuid(NOBODY, NOBODY, NOBODY));
	ctx = dev_open(KEEL0);
	pd = MUST(ibv_alloc_pd(ctx));
	CHECK_NULL(ibv_reg_mr(pd, memory, 2 * MIB, 0), ENOMEM);
	/* The refused MR was not counted. */
	mr = MUST(ibv_reg_mr(pd, memory, MIB / 2, 0));
	CHECK_NULL(ibv_reg_mr(pd, memory, MIB / 2 + 4096, 0), ENOMEM);
	/* The rings of queues are pinned, too. */
	CHECK_NULL(ibv_create_cq(ctx, 65536, NULL, NULL, 0), ENOMEM);
	cq = MUST(ibv_create_cq(ctx, 1000, NULL, NULL, 0));
	CHECK_OK(ibv_destroy_cq(cq));
	CHECK_OK(ibv_dereg_mr(mr));
	/* The limit can be used to the last page. */
	CHECK_OK(ibv_dereg_mr(MUST(ibv_reg_mr(pd, memory, MIB, 0))));
	/* An on-demand MR pins nothing. */
	CHECK_OK(ibv_dereg_mr(MUST(ibv_reg_mr(pd, memory, sizeof(memory),
					      IBV_ACCESS_ON_DEMAND))));
}

TEST(rlimit, "DEV-4", "RLIMIT_MEMLOCK bounds the MRs and rings that an unprivileged process pins (ENOMEM), and destroying them uncharges")
{
	struct peer p;

	peer_start(&p, memlock);
	peer_end(&p);
}

/*
 * Enter a container: nobody outside, root inside, with namespaces of its own.
 * The process that returns is the first process of the container.
 */
static void contain(void)
{
	int status;
	pid_t pid;

	SYS(setgroups(0, NULL));
	SYS(setresgid(NOBODY, NOBODY, NOBODY));
	SYS(setresuid(NOBODY, NOBODY, NOBODY));
	SYS(prctl(PR_SET_DUMPABLE, 1));
	SYS(unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWPID | CLONE_NEWNS |
		    CLONE_NEWIPC));
	CHECK_OK(t_write_file("/proc/self/setgroups", "deny"));
	CHECK_OK(t_write_file("/proc/self/uid_map", "0 65534 1"));
	CHECK_OK(t_write_file("/proc/self/gid_map", "0 65534 1"));
	pid = SYS(fork());
	if (!pid)
		return;
	SYS(waitpid(pid, &status, 0));
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 99);
}

static void check_no_raw(struct ibv_context *ctx, struct ibv_pd *pd)
{
	struct ibv_cq *cq = cq_new(ctx);
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RAW_PACKET,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1,
			 .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 0x80010000,
	};
	struct ibv_qp *ud = qp_new(pd, cq, IBV_QPT_UD, NULL);

	/* No user can create raw packet QPs. */
	CHECK_NULL(ibv_create_qp(pd, &init), EOPNOTSUPP);
	/* Only the administrator can set controlled Q_Keys. */
	CHECK_RET(ibv_modify_qp(ud, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX |
				IBV_QP_PORT | IBV_QP_QKEY), EPERM);
}

/*
 * Check that the command fails for lack of privileges and for no other reason.
 */
static void check_not_permitted(const char *command)
{
	char *text = t_shell("%s 2>&1 || :", command);

	if (!strstr(text, "not permitted"))
		FAIL("%s: got \"%s\", want it not permitted", command, text);
	free(text);
}

/*
 * The debugfs directory of keel0, opened before the process enters the
 * container: the path may be closed too, but the test is about the files.
 */
static int debugfs;

static void check_administrators_files(void)
{
	CHECK_SYS(open("/sys/kernel/debug/keel/keel0/objects", O_RDONLY),
		  EACCES);
	CHECK_SYS(openat(debugfs, "objects", O_RDONLY), EACCES);
	CHECK_SYS(openat(debugfs, "kernel_objects", O_RDONLY), EACCES);
	CHECK_SYS(open("/sys/module/keel/parameters/dm_access_align", O_WRONLY),
		  EACCES);
	CHECK_SYS(mount("debugfs", "/sys/kernel/debug", "debugfs", 0, NULL),
		  EPERM);
	check_not_permitted("rdma link add mine type keel netdev lo");
	check_not_permitted("rdma link delete " KEEL0);
	check_not_permitted("rdma system set netns exclusive");
}

/* Another process sends these values of its objects. */
struct others {
	uint64_t addr;
	uint32_t rkey;
	uint32_t shpd;
};

static void contained(struct peer *parent)
{
	struct others theirs;
	struct ibv_context *ctx;
	struct ibv_shpd shpd;
	struct link l;
	struct ibv_mr *mr;
	struct ibv_pd *pd;

	peer_get_var(parent, theirs);
	contain();
	CHECK_EQ(getuid(), 0);
	CHECK_EQ(getpid(), 1);
	check_administrators_files();

	ctx = dev_open(KEEL0);
	pd = MUST(ibv_alloc_pd(ctx));
	check_no_raw(ctx, pd);
	shpd = (struct ibv_shpd){ .context = ctx, .handle = theirs.shpd };
	CHECK_NULL(ibv_share_pd(ctx, &shpd, 0), EACCES);
	mr = MUST(ibv_reg_mr(pd, memory, 4096, IBV_ACCESS_LOCAL_WRITE));
	/*
	 * The key of another process does not work, and its memory stays
	 * unchanged.
	 */
	l = link_new(pd, pd, IBV_QPT_RC);
	post_rdma(l.qp[0], IBV_WR_RDMA_WRITE, 7, MEM(mr), theirs.addr,
		  theirs.rkey);
	CHECK_WC(l.cq[0], 7, IBV_WC_REM_ACCESS_ERR);
	CHECK_OK(ibv_dereg_mr(mr));
}

TEST(container, "DEV-4,PD-4", "user nobody in a container can use the device, but not debugfs, other processes' objects or controlled Q_Keys")
{
	struct others mine = {};
	struct ibv_shpd shpd;
	struct ibv_context *ctx;
	struct ibv_mr *mr;
	struct ibv_pd *pd;
	struct peer p;

	debugfs = SYS(open("/sys/kernel/debug/keel/keel0", O_PATH | O_CLOEXEC));
	peer_start(&p, contained);
	ctx = dev_open(KEEL0);
	pd = MUST(ibv_alloc_pd(ctx));
	memset(memory, 'o', 4096);
	mr = MUST(ibv_reg_mr(pd, memory, 4096, IBV_ACCESS_LOCAL_WRITE |
			     IBV_ACCESS_REMOTE_WRITE));
	MUST(ibv_alloc_shpd(pd, 0x1234567890abcdefULL, &shpd));
	mine.rkey = mr->rkey;
	mine.shpd = shpd.handle;
	mine.addr = (uintptr_t)memory;
	peer_put_var(&p, mine);
	peer_end(&p);
	CHECK_ALL(memory, 'o', 4096);
	CHECK_EQ(tree_count(KEEL0, "pd"), 1);
	CHECK_EQ(tree_count(KEEL0, "mr"), 1);
}
