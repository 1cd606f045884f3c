// SPDX-License-Identifier: GPL-2.0
/*
 * Processes that hardly get a processor, and make calls without end that need a
 * lock which all processes need: a process that is preempted with the lock must
 * not delay the others.
 */
#include <pthread.h>
#include <sched.h>

#include <infiniband/shpd.h>

#include "cgroup.h"
#include "iso.h"
#include "qp.h"
#include "t.h"

/* Processes that make the calls, and busy loops beside them, in their cgroup. */
#define CALLERS		16
#define LOOPS		16
/* PDs that a caller shares, one after the other, before it allocates new ones. */
#define PDS		64

void t_after(void)
{
	cgroup_remove();
}

static struct ibv_context *ctx;
static struct ibv_qp *qp;

/* --- calls, with ctx and qp; those of callers return whether they succeeded --- */

static void set_policy(int new)
{
	struct sched_param param = { .sched_priority = new == SCHED_FIFO };

	SYS(sched_setscheduler(0, new, &param));
}

/* Of a caller, when it shares PDs. */
static int policy = SCHED_OTHER;

/*
 * The kernel takes rdmacg_mutex to charge and uncharge a PD. A caller that is preempted while it
 * holds the mutex delays all processes, with every driver (isolation.rst). So callers allocate
 * and free PDs with real-time priority, and only ibv_alloc_shpd() is tested.
 */
static bool share(void)
{
	struct ibv_pd *pds[PDS];
	struct ibv_shpd shpd;
	bool good = true;
	int i;

	set_policy(SCHED_FIFO);
	for (i = 0; i < PDS; i++)
		pds[i] = MUST(ibv_alloc_pd(ctx));
	set_policy(policy);
	for (i = 0; i < PDS; i++)
		good &= !!ibv_alloc_shpd(pds[i], 1, &shpd);
	set_policy(SCHED_FIFO);
	for (i = 0; i < PDS; i++)
		CHECK_OK(ibv_dealloc_pd(pds[i]));
	set_policy(policy);
	return good;
}

static void one_pd(void)
{
	CHECK_OK(ibv_dealloc_pd(MUST(ibv_alloc_pd(ctx))));
}

static bool modify(void)
{
	struct ibv_qp_attr attr = { .min_rnr_timer = 1 };

	return !ibv_modify_qp(qp, &attr, IBV_QP_MIN_RNR_TIMER);
}

static void show_qps(void)
{
	CHECK_EQ(t_shell_status("rdma resource show qp >/dev/null"), 0);
}

/* --- processes ----------------------------------------------------------- */

static bool (*abuse)(void);
static void (*use)(void);
/* Calls of the victim in each of its steps. */
static int calls = 20;
/* Threads of each caller. */
static int callers = 1;

static void *call_without_end(void *arg)
{
	for (;;)
		CHECK(abuse());
	return NULL;
}

static void caller(struct peer *parent)
{
	pthread_t thread;
	int i;

	ctx = dev_open(KEEL0);
	qp = qp_new(MUST(ibv_alloc_pd(ctx)), cq_new(ctx), IBV_QPT_RC, NULL);
	qp_connect(qp, qp->qp_num);
	CHECK(abuse());
	peer_tell(parent);
	peer_wait(parent);
	policy = SCHED_IDLE;
	set_policy(policy);
	for (i = 1; i < callers; i++)
		CHECK_OK(pthread_create(&thread, NULL, call_without_end, NULL));
	call_without_end(NULL);
}

static void loop(struct peer *parent)
{
	peer_wait(parent);
	for (;;)
		;
}

static void victim(struct peer *parent)
{
	int i;

	ctx = dev_open(KEEL0);
	peer_tell(parent);
	for (;;) {
		peer_wait(parent);
		for (i = 0; i < calls; i++)
			use();
		peer_tell(parent);
	}
}

static void check_calls(bool (*theirs)(void), void (*ours)(void),
			const char *what)
{
	struct peer v, c[CALLERS], l[LOOPS];
	int i;

	abuse = theirs;
	use = ours;
	/* As systemd puts the processes of each user into a cgroup of the same weight. */
	cgroup_make("cpu");
	peer_start(&v, victim);
	peer_wait(&v);
	for (i = 0; i < CALLERS; i++) {
		peer_start(&c[i], caller);
		peer_wait(&c[i]);
		cgroup_add(c[i].pid);
		peer_tell(&c[i]);
	}
	/* The callers are in their loops. */
	usleep(300000);
	for (i = 0; i < LOOPS; i++) {
		peer_start(&l[i], loop);
		cgroup_add(l[i].pid);
	}
	for (i = 0; i < LOOPS; i++)
		peer_tell(&l[i]);
	usleep(300000);
	for (i = 0; i < 3; i++)
		CHECK_STEP(&v, what);
	/* The loops first: the callers need processor time to exit. */
	for (i = 0; i < LOOPS; i++)
		peer_kill(&l[i], SIGKILL);
	for (i = 0; i < CALLERS; i++)
		peer_kill(&c[i], SIGKILL);
	peer_kill(&v, SIGKILL);
	iso_check_empty(KEEL0);
}

#define CALLERS_TITLE	" of 16 idle priority processes beside 16 busy loops in their cgroup, "

TEST(shpd, "ISO-1", "during ibv_alloc_shpd() without end" CALLERS_TITLE "20 PDs are allocated and freed within 1 s")
{
	check_calls(share, one_pd, "ibv_alloc_pd(), ibv_dealloc_pd()");
}

TEST(resource, "ISO-1", "during ibv_modify_qp() without end" CALLERS_TITLE "rdma resource show qp returns within 1 s")
{
	callers = 8;
	/* Each one starts a program. */
	calls = 1;
	check_calls(modify, show_qps, "rdma resource show qp");
}
