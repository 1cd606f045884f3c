/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Two processes share a protection domain by a handle and a key. One process
 * dies.
 */
#include <signal.h>
#include <sys/wait.h>

#include <infiniband/shpd.h>

#include "say.h"

#define KEY 0x6f70656e20736573ULL

static char buffer[4096];

/* Create a domain, share it, work in it, and wait to be killed. */
static int maker(int handle)
{
	struct ibv_context *context = open_keel();
	struct ibv_shpd shpd;
	struct ibv_pd *pd;
	struct ibv_mr *mr;

	pd = ibv_alloc_pd(context);
	must(pd);
	must(ibv_alloc_shpd(pd, KEY, &shpd));
	did("ibv_alloc_shpd(key 0x%llx) -> handle 0x%08x", KEY, shpd.handle);
	mr = ibv_reg_mr(pd, buffer, sizeof(buffer), 0);
	must(mr);
	did("ibv_reg_mr() -> lkey 0x%08x", mr->lkey);
	/*
	 * The handle is plain data: a pipe, a file or shared memory can carry
	 * it.
	 */
	must(write(handle, &shpd, sizeof(shpd)) == sizeof(shpd));
	pause();
	return 1;
}

int main(void)
{
	struct ibv_context *context;
	struct ibv_pd *pd, *again;
	struct ibv_shpd shpd;
	int handle[2], status;
	pid_t child;

	say("One process makes a PD, shares it, and registers memory in it.");
	must(!pipe(handle));
	child = fork();
	if (!child)
		exit(maker(handle[1]));
	must(read(handle[0], &shpd, sizeof(shpd)) == sizeof(shpd));

	say("Another process joins with handle and key, and never without.");
	context = open_keel();
	must(!ibv_share_pd(context, &shpd, KEY + 1) && errno == EACCES);
	did("ibv_share_pd(handle 0x%08x, a wrong key) -> NULL, EACCES",
	    shpd.handle);
	pd = ibv_share_pd(context, &shpd, KEY);
	must(pd);
	did("ibv_share_pd(handle 0x%08x, the key) -> in", shpd.handle);
	tree();

	say("The first process dies with its objects. The domain lives on.");
	must(!kill(child, SIGKILL));
	must(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
	did("process %d was killed", child);
	tree();

	say("The handle still works, as long as somebody is in.");
	again = ibv_share_pd(context, &shpd, KEY);
	must(again);
	did("ibv_share_pd() -> in, once more");
	must_be(ibv_dealloc_pd(again), 0);
	must_be(ibv_dealloc_pd(pd), 0);

	say("After the last one has left it is dead, for ever.");
	must(!ibv_share_pd(context, &shpd, KEY) && errno == EACCES);
	did("ibv_share_pd() -> NULL, EACCES");
	tree();
	return ibv_close_device(context);
}
