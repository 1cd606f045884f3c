/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Two hosts: a process of host a reaches device memory, and the memory of a shared domain, of
 * processes of host b. A process is one of the host whose device it opens. Numbers and keys
 * are plain data: here a pipe carries them, and elsewhere the network.
 */
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <infiniband/keeldv.h>
#include <infiniband/shpd.h>

#include "talk.h"

#define LENGTH	65536
#define KEY	0x74776f20686f7374ULL
#define RIGHTS	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)

static const char text[] = "written by a process of the other host";

/* All that a process tells those of the other host, and of its own. */
struct told {
	uint32_t qpn, dm_rkey, rkey;
	uint64_t addr;
	union ibv_gid gid;
	struct ibv_shpd shpd;
};

static char page[4096] __attribute__((aligned(4096)));

/* The IPv4 address of the netdev. Return: its index. */
static int address(struct ibv_context *context, union ibv_gid *gid)
{
	static const union ibv_gid v4 = { .raw = { [10] = 0xff, [11] = 0xff } };
	int i;

	for (i = 0; ibv_query_gid(context, 1, i, gid) || memcmp(gid, &v4, 12); i++)
		must(i < 16);
	return i;
}

/* A process of host b: it shares its domain, in which it has memory. */
static int owner(int out, int stop)
{
	struct ibv_context *context = open_named("keel_b");
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct told told = { .addr = (uintptr_t)page };
	struct ibv_mr *mr;

	must(pd);
	must(ibv_alloc_shpd(pd, KEY, &told.shpd));
	mr = ibv_reg_mr(pd, page, sizeof(page), RIGHTS);
	must(mr);
	told.rkey = mr->rkey;
	did("host b: ibv_alloc_shpd(), ibv_reg_mr() -> rkey 0x%08x", mr->rkey);
	must(write(out, &told, sizeof(told)) == sizeof(told));
	wait_for(stop);
	did("host b: my memory says: \"%s\"", page);
	return strcmp(page, text) ? 1 : 0;
}

/* Another process of host b: it has the queue pair, in the same domain, and device memory. */
static int server(int in, int out, int stop, struct told *told)
{
	struct ibv_alloc_dm_attr attr = { .length = LENGTH };
	struct ibv_context *context = open_named("keel_b");
	struct ibv_pd *pd = ibv_share_pd(context, &told->shpd, KEY);
	struct told other;
	struct ibv_qp *qp;
	struct ibv_dm *dm;
	struct ibv_mr *mr;
	char *map;
	int sgid;

	must(pd);
	dm = ibv_alloc_dm(context, &attr);
	must(dm);
	map = keeldv_dm_map(dm);
	must(map);
	mr = ibv_reg_dm_mr(pd, dm, 0, LENGTH, RIGHTS | IBV_ACCESS_ZERO_BASED);
	must(mr);
	did("host b: ibv_share_pd() -> in; ibv_alloc_dm(), ibv_reg_dm_mr() -> rkey 0x%08x",
	    mr->rkey);
	qp = new_qp(pd, new_cq(context), IBV_QPT_RC);
	sgid = address(context, &told->gid);
	told->qpn = qp->qp_num;
	told->dm_rkey = mr->rkey;
	must(write(out, told, sizeof(*told)) == sizeof(*told));
	must(read(in, &other, sizeof(other)) == sizeof(other));
	connect_at(qp, other.qpn, &other.gid, sgid);
	tell(out);
	wait_for(stop);
	did("host b: my device memory says: \"%s\"", map + 100);
	return strcmp(map + 100, text) ? 1 : 0;
}

/* A child ends with this process. */
static pid_t start(void)
{
	pid_t child = fork();

	if (!child)
		must(!prctl(PR_SET_PDEATHSIG, SIGKILL));
	return child;
}

static void join(pid_t child)
{
	int status;

	must(waitpid(child, &status, 0) == child && !status);
}

int main(void)
{
	int up[2], down[2], stop[2], done[2], sgid;
	struct told told, mine = {};
	struct ibv_context *context;
	pid_t first, second;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_qp *qp;

	must(!pipe(up) && !pipe(down) && !pipe(stop) && !pipe(done));
	say("Host b: one process shares a domain, and another one joins it and has a queue pair.");
	first = start();
	if (!first)
		exit(owner(up[1], done[0]));
	must(read(up[0], &told, sizeof(told)) == sizeof(told));
	second = start();
	if (!second)
		exit(server(down[0], up[1], stop[0], &told));
	must(read(up[0], &told, sizeof(told)) == sizeof(told));

	say("Host a: a queue pair of this process is connected to that one. rxe carries it.");
	context = open_named("keel_a");
	pd = ibv_alloc_pd(context);
	must(pd);
	memcpy(page, text, sizeof(text));
	mr = ibv_reg_mr(pd, page, sizeof(page), IBV_ACCESS_LOCAL_WRITE);
	must(mr);
	qp = new_qp(pd, new_cq(context), IBV_QPT_RC);
	sgid = address(context, &mine.gid);
	mine.qpn = qp->qp_num;
	must(write(down[1], &mine, sizeof(mine)) == sizeof(mine));
	wait_for(up[0]);
	connect_at(qp, told.qpn, &told.gid, sgid);

	say("It writes to device memory of host b, as to any memory.");
	must(rdma_write(qp, mr, sizeof(text), 100, told.dm_rkey) == IBV_WC_SUCCESS);

	say("By the same queue pair, it writes to memory of the other process of the domain.");
	must(rdma_write(qp, mr, sizeof(text), told.addr, told.rkey) == IBV_WC_SUCCESS);
	tell(done[1]);
	join(first);

	say("That process has ended. The domain lives on, but its keys are refused.");
	must(rdma_write(qp, mr, sizeof(text), told.addr, told.rkey) == IBV_WC_REM_ACCESS_ERR);

	say("Objects belong to one host: the handle of the domain is worth nothing here.");
	must(!ibv_share_pd(context, &told.shpd, KEY) && errno == EACCES);
	did("host a: ibv_share_pd(handle 0x%08x, the key) -> NULL, EACCES", told.shpd.handle);
	tell(stop[1]);
	join(second);

	must_be(ibv_destroy_qp(qp), 0);
	must_be(ibv_dereg_mr(mr), 0);
	must_be(ibv_dealloc_pd(pd), 0);
	return ibv_close_device(context);
}
