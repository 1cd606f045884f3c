// SPDX-License-Identifier: GPL-2.0
/*
 * Create and remove devices. See dev.h.
 */
#include <time.h>

#include "dev.h"
#include "qp.h"
#include "t.h"

/* This file exists while the module may differ from its state after insmod. */
#define RELOAD	"/tmp/keel-reload"

void dev_del(void)
{
	if (access("/sys/class/infiniband/" KEEL1, F_OK) &&
	    access("/sys/class/net/" KEEL1_NETDEV, F_OK))
		return;
	t_shell_status("rdma link delete " KEEL1 " 2>&1; "
		       "ip link delete " KEEL1_NETDEV " 2>&1");
}

void dev_add(void)
{
	dev_del();
	t_shell("ip link add " KEEL1_NETDEV " type dummy && "
		"ip link set " KEEL1_NETDEV " up && "
		"rdma link add " KEEL1 " type keel netdev " KEEL1_NETDEV);
}

bool dev_bar(void)
{
	return !access("/sys/class/infiniband/" KEEL0 "/device", F_OK);
}

static long counter_now(const char *name)
{
	char *text, path[100];
	long n;

	snprintf(path, sizeof(path),
		 "/sys/class/infiniband/" KEEL0 "/ports/1/hw_counters/%s",
		 name);
	text = t_read_file(path);
	n = atol(text);
	free(text);
	return n;
}

/* ib_core caches the counters for 10 ms, and a tick, which is 10 ms or less. */
#define CACHED_MS	30

/* The clock of the ticks, which may be late. */
static long tick_ms(void)
{
	struct timespec now;

	SYS(clock_gettime(CLOCK_MONOTONIC_COARSE, &now));
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void wait_uncached(void)
{
	long start = tick_ms();

	do
		usleep(10000);
	while (tick_ms() - start < CACHED_MS);
}

long dev_counter(const char *name)
{
	wait_uncached();
	return counter_now(name);
}

void dev_counters(const char * const *names, int n, long *values)
{
	wait_uncached();
	while (n--)
		values[n] = counter_now(names[n]);
}

void dev_counter_wait(const char *name, long before, int n)
{
	int ms;

	for (ms = 0; dev_counter(name) < before + n; ms += 10) {
		if (ms > 5000)
			FAIL("%s: got %ld more, want %d", name,
			     dev_counter(name) - before, n);
		usleep(10000);
	}
}

bool dev_exists(const char *name)
{
	struct ibv_device **list = MUST(ibv_get_device_list(NULL));
	bool found = false;
	int i;

	for (i = 0; list[i]; i++)
		found |= !strcmp(ibv_get_device_name(list[i]), name);
	ibv_free_device_list(list);
	return found;
}

void dev_check_works(const char *name)
{
	static char from[4096], to[4096];
	struct ibv_context *ctx = dev_open(name);
	struct ibv_pd *pd = MUST(ibv_alloc_pd(ctx));
	struct ibv_mr *a = MUST(ibv_reg_mr(pd, from, sizeof(from), 0));
	struct ibv_mr *b = MUST(ibv_reg_mr(pd, to, sizeof(to),
					   IBV_ACCESS_LOCAL_WRITE));
	struct link l = link_new(pd, pd, IBV_QPT_RC);

	memset(from, 'w', sizeof(from));
	memset(to, 0, sizeof(to));
	post_recv(l.qp[1], 1, MEM(b));
	post_send(l.qp[0], 2, MEM(a));
	CHECK_WC(l.cq[1], 1, IBV_WC_SUCCESS);
	CHECK_WC(l.cq[0], 2, IBV_WC_SUCCESS);
	CHECK_ALL(to, 'w', sizeof(to));
	link_free(&l);
	CHECK_OK(ibv_dereg_mr(a));
	CHECK_OK(ibv_dereg_mr(b));
	CHECK_OK(ibv_dealloc_pd(pd));
	CHECK_OK(ibv_close_device(ctx));
}

bool module_loaded(void)
{
	return !access("/sys/module/keel", F_OK);
}

/*
 * If keel0 is a PCI function in this guest, the module has no default device.
 */
const char *module_usual(void)
{
	return getenv("KEEL_PARAMS") ?: "";
}

void module_restore(void)
{
	if (!access(RELOAD, F_OK))
		t_shell_status("rmmod keel 2>&1; insmod " MODULE_FILE
			       " %s && rm " RELOAD, module_usual());
}

void module_will_go(void)
{
	free(t_shell("touch " RELOAD));
}

void module_unload(void)
{
	module_will_go();
	free(t_shell("rmmod keel"));
	CHECK(!module_loaded());
}

void module_load(const char *params)
{
	free(t_shell("insmod " MODULE_FILE " %s", params));
	CHECK(module_loaded());
	if (params == module_usual())
		unlink(RELOAD);
}
