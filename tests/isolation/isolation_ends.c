// SPDX-License-Identifier: GPL-2.0
/*
 * Workers that are to end, of processes that are stopped at that moment, or get no
 * processor: the workers of other processes end, and so does rmmod.
 */
#include <dirent.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "cgroup.h"
#include "dev.h"
#include "iso.h"
#include "qp.h"
#include "t.h"
#include "user.h"

#define CONTEXTS	400
/* As KEEL_REAPS_OF_USER in drivers/core/. */
#define WAITING		8
#define ATTEMPTS	40
#define LOOPS		32
#define TOP_NICE	-20
#define BYTES		(1024UL << 10)
/* Without help, such a worker gets no processor in 20 s. */
#define RMMOD_MS	15000
/* The kernel reports threads that wait longer. */
#define HUNG_SECS	"/proc/sys/kernel/hung_task_timeout_secs"
#define HUNG_WARNINGS	"/proc/sys/kernel/hung_task_warnings"
#define SECS		2

/* A starved worker copies the first half to the second half. */
static char bytes[2 * BYTES];

/* Of the kernel, from the start of the program: the process of the test may fail. */
static char *hung_secs, *hung_warnings;

__attribute__((constructor))
static void save_settings(void)
{
	if (access(HUNG_SECS, F_OK))
		return;
	hung_secs = t_read_file(HUNG_SECS);
	hung_warnings = t_read_file(HUNG_WARNINGS);
}

void t_after(void)
{
	module_restore();
	cgroup_remove();
	if (hung_secs) {
		t_write_file(HUNG_SECS, hung_secs);
		t_write_file(HUNG_WARNINGS, hung_warnings);
	}
}

/* Count the threads of the kernel that wait for workers now. */
static int reaping(void)
{
	char *out = t_shell("grep -l '+keel_reap' /proc/[0-9]*/comm 2>/dev/null | wc -l");
	int n = atoi(out);

	free(out);
	return n;
}

/* Count the threads of a process, and call @fn for each but the first, if not NULL. */
static int threads(pid_t pid, void (*fn)(pid_t tid))
{
	char path[40];
	struct dirent *e;
	DIR *dir;
	int n = 0;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	dir = MUST(opendir(path));
	while ((e = readdir(dir))) {
		if (e->d_name[0] == '.')
			continue;
		n++;
		if (fn && atoi(e->d_name) != pid)
			fn(atoi(e->d_name));
	}
	closedir(dir);
	return n;
}

static void pin(pid_t tid, int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	SYS(sched_setaffinity(tid, sizeof(set), &set));
}

static void make_idle(pid_t tid)
{
	struct sched_param none = {};

	pin(tid, 0);
	SYS(sched_setscheduler(tid, SCHED_IDLE, &none));
}

/* In the second test they have the highest priority. They begin together. */
static int loop_nice;
static bool *loops_begin;

static void loop(struct peer *parent)
{
	SYS(setpriority(PRIO_PROCESS, 0, loop_nice));
	user_become(1000);
	pin(0, 0);
	peer_tell(parent);
	while (!__atomic_load_n(loops_begin, __ATOMIC_RELAXED))
		usleep(1000);
	for (;;)
		;
}

/* The workers of this process are to end when its child exits. */
static void hostile(struct peer *parent)
{
	struct ibv_context *ctx[CONTEXTS];
	int i, status;

	user_become(1000);
	for (i = 0; i < CONTEXTS; i++) {
		ctx[i] = dev_open(KEEL0);
		cq_new(ctx[i]);
	}
	if (!SYS(fork())) {
		peer_wait(parent);
		_exit(0);
	}
	for (i = 0; i < CONTEXTS; i++)
		CHECK_OK(ibv_close_device(ctx[i]));
	threads(getpid(), make_idle);
	peer_tell(parent);
	SYS(wait(&status));
	peer_tell(parent);
	pause();
}

/* This process, of another user, opens and closes the device. */
static void innocent(struct peer *parent)
{
	struct ibv_context *ctx;

	user_become(1001);
	for (;;) {
		ctx = dev_open(KEEL0);
		CHECK_OK(ibv_destroy_cq(cq_new(ctx)));
		CHECK_OK(ibv_close_device(ctx));
		peer_tell(parent);
		peer_wait(parent);
	}
}

/* Stop a process while its workers get no processor, and return how many others wait. */
static int stop_at(struct peer *h, struct peer *l, int ms)
{
	int waits;

	usleep(ms * 1000);
	/* Now some were about to end. */
	SYS(kill(h->pid, SIGSTOP));
	SYS(kill(l->pid, SIGSTOP));
	SYS(waitpid(h->pid, NULL, WUNTRACED));
	/* The others, that are about to end, do so. */
	usleep(200000);
	waits = reaping();
	t_note("stopped after %d ms: %d threads are left, %d kernel threads wait", ms,
	       threads(h->pid, NULL), waits);
	return waits;
}

/*
 * Stop a process again and again, until the greatest number of kernel threads waits for
 * its workers, and more are to end. Returns false if none are left before that.
 */
static bool attempt(struct peer *h)
{
	bool found, more;
	struct peer l;
	int ms = 0, waits;

	peer_start(h, hostile);
	peer_wait(h);
	peer_start(&l, loop);
	peer_wait(&l);
	peer_tell(h);
	peer_wait(h);
	do {
		waits = stop_at(h, &l, ms);
		CHECK(waits <= WAITING);
		more = threads(h->pid, NULL) > WAITING + 1;
		found = more && waits == WAITING;
		if (found)
			break;
		SYS(kill(l.pid, SIGCONT));
		SYS(kill(h->pid, SIGCONT));
		ms = (ms + 7) % 30;
	} while (more);
	peer_kill(&l, SIGKILL);
	return found;
}

/* Let the kernel report threads soon, if it looks for hung ones (Debian's does). */
static void report_hung(void)
{
	char text[16];

	if (!hung_secs)
		return;
	snprintf(text, sizeof(text), "%d", SECS);
	CHECK_OK(t_write_file(HUNG_SECS, text));
	CHECK_OK(t_write_file(HUNG_WARNINGS, "-1"));
}

/* Returns how many reports there are. */
static int reports(void)
{
	char *out = t_shell("dmesg | grep 'blocked for more than' | wc -l");
	int n = atoi(out);

	free(out);
	return n;
}

/* Wait until the kernel has looked for hung threads. */
static void check_none_hangs(void)
{
	int n;

	if (!hung_secs)
		return;
	n = reports();
	sleep(3 * SECS);
	CHECK_EQ(reports(), n);
}

static void check_ends(struct peer *p)
{
	int ms;

	for (ms = 0; threads(p->pid, NULL) > 1; ms += 10) {
		if (ms > ISO_MS)
			FAIL("got %d threads, want 1", threads(p->pid, NULL));
		usleep(10000);
	}
}

TEST_CASE(stopped, "ISO-1,ISO-2", "a process stopped while its workers end keeps few kernel threads waiting, none seems to hang, others live", .limit = 240, ISO_NEEDS_THREADS)
{
	struct peer h, p;
	int i;

	module_will_go();
	report_hung();
	loops_begin = peer_shared(sizeof(*loops_begin));
	*loops_begin = true;
	peer_start(&p, innocent);
	peer_wait(&p);
	for (i = 0; !attempt(&h); i++) {
		/* The moment must come. */
		CHECK(i + 1 < ATTEMPTS);
		peer_kill(&h, SIGKILL);
	}
	check_none_hangs();
	peer_tell(&p);
	peer_wait(&p);
	check_ends(&p);
	module_unload();
	CHECK_EQ(waitpid(p.pid, NULL, WNOHANG), 0);
	CHECK_EQ(threads(p.pid, NULL), 1);
	peer_kill(&p, SIGKILL);
	peer_kill(&h, SIGKILL);
}

/* Its worker always has something to do. */
static void starved(struct peer *parent)
{
	struct ibv_send_wr *wr, *bad;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_wc wc;
	struct link l;
	int n = 1;

	SYS(setpriority(PRIO_PROCESS, 0, TOP_NICE));
	user_become(1000);
	pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	l = link_new(pd, pd, IBV_QPT_RC);
	qp_allow(l.qp[1], IBV_ACCESS_REMOTE_WRITE);
	mr = MUST(ibv_reg_mr(pd, bytes, sizeof(bytes),
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
	wr = send_wr(IBV_WR_RDMA_WRITE, 1, (struct mem){ bytes, BYTES, mr->lkey });
	wr->wr.rdma.remote_addr = (uintptr_t)bytes + BYTES;
	wr->wr.rdma.rkey = mr->rkey;
	threads(getpid(), make_idle);
	peer_tell(parent);
	/* Until the device is removed. */
	while (n > 0 && !ibv_post_send(l.qp[0], wr, &bad))
		while (!(n = ibv_poll_cq(l.cq[0], 1, &wc)))
			sched_yield();
	pause();
}

static void unloads(struct peer *parent)
{
	peer_wait(parent);
	CHECK_EQ(t_shell_status("rmmod keel"), 0);
	peer_tell(parent);
	pause();
}

TEST_CASE(starved, "ISO-1", "rmmod does not wait for a worker of the lowest priority beside busy loops of its cgroup", .limit = 120, ISO_NEEDS_THREADS)
{
	struct peer s, u, l[LOOPS];
	int i;

	module_will_go();
	cgroup_make("cpu");
	loop_nice = TOP_NICE;
	loops_begin = peer_shared(sizeof(*loops_begin));
	peer_start(&u, unloads);
	peer_start(&s, starved);
	peer_wait(&s);
	cgroup_add(s.pid);
	for (i = 0; i < LOOPS; i++) {
		peer_start(&l[i], loop);
		cgroup_add(l[i].pid);
		peer_wait(&l[i]);
	}
	__atomic_store_n(loops_begin, true, __ATOMIC_RELAXED);
	/* The worker has had its turn. rmmod, which is outside, need not wait for the others. */
	cgroup_set("cpu.weight", "1");
	peer_tell(&u);
	iso_within(__FILE__, __LINE__, &u, RMMOD_MS, "rmmod");
	for (i = 0; i < LOOPS; i++)
		peer_kill(&l[i], SIGKILL);
	peer_kill(&s, SIGKILL);
	peer_kill(&u, SIGKILL);
}
