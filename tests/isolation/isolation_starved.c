// SPDX-License-Identifier: GPL-2.0
/*
 * A sender that hardly gets a processor: either it has the lowest priority
 * beside busy loops in its cgroup, or its cgroup has used up its limit. The
 * sender must not delay the process that it sends to, at any point of a
 * transfer.
 */
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "cgroup.h"
#include "iso.h"
#include "qp.h"
#include "t.h"

#define BODY		(4UL << 20)
#define SGES		4
/* Loops beside the sender, in its cgroup. */
#define LOOPS		16
#define ROUNDS		(t_debug_kernel() ? 1 : 2)

void t_after(void)
{
	cgroup_remove();
}

static struct board {
	uint32_t qpn[2], rkey;
	uint64_t addr;
} *board;

static const char *cpu_max;
static unsigned char *from, *to;

static void loop(struct peer *parent)
{
	peer_wait(parent);
	for (;;)
		;
}

static struct ibv_qp *open_qp(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8,
			 .max_send_sge = SGES, .max_recv_sge = 1 },
	};

	return MUST(ibv_create_qp(pd, &init));
}

/* Write messages of 16 MiB in a loop. */
static void hostile(struct peer *parent)
{
	struct ibv_pd *pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	struct ibv_mr *mr = MUST(ibv_reg_mr(pd, from, BODY, ISO_RIGHTS));
	struct ibv_cq *cq = cq_new(pd->context);
	struct ibv_qp *qp = open_qp(pd, cq);
	struct sched_param none = {};
	struct ibv_sge sge[SGES];
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_RDMA_WRITE, .sg_list = sge, .num_sge = SGES,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;
	struct ibv_wc wc;
	int i;

	for (i = 0; i < SGES; i++)
		sge[i] = (struct ibv_sge){ (uintptr_t)from, BODY, mr->lkey };
	board->qpn[0] = qp->qp_num;
	peer_tell(parent);
	peer_wait(parent);
	wr.wr.rdma.remote_addr = board->addr;
	wr.wr.rdma.rkey = board->rkey;
	qp_connect(qp, board->qpn[1]);
	peer_tell(parent);
	peer_wait(parent);
	SYS(sched_setscheduler(0, SCHED_IDLE, &none));
	while (!ibv_post_send(qp, &wr, &bad))
		while (ibv_poll_cq(cq, 1, &wc) == 0)
			;
	pause();
}

/* The target of the writes destroys its QP. */
static void victim(struct peer *parent)
{
	struct ibv_pd *pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	size_t len = SGES * BODY;
	struct ibv_mr *mr;
	struct ibv_qp *qp = open_qp(pd, cq_new(pd->context));
	unsigned char *long_map;
	int i;

	/* Map one body several times: a mapped page is expensive in UML. */
	long_map = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS |
			MAP_NORESERVE, -1, 0);
	CHECK(long_map != MAP_FAILED);
	for (i = 0; i < SGES; i++)
		CHECK(mremap(to, 0, BODY, MREMAP_MAYMOVE | MREMAP_FIXED,
			     long_map + i * BODY) != MAP_FAILED);
	mr = MUST(ibv_reg_mr(pd, long_map, len, ISO_RIGHTS));
	board->qpn[1] = qp->qp_num;
	board->rkey = mr->rkey;
	board->addr = (uintptr_t)long_map;
	peer_tell(parent);
	peer_wait(parent);
	qp_connect(qp, board->qpn[0]);
	peer_tell(parent);
	peer_wait(parent);
	CHECK_OK(ibv_destroy_qp(qp));
	peer_tell(parent);
	peer_wait(parent);
	CHECK_OK(ibv_dereg_mr(mr));
	peer_tell(parent);
	peer_wait(parent);
}

static void share_bodies(void)
{
	board = peer_shared(sizeof(*board));
	from = peer_shared(BODY);
	to = peer_shared(BODY);
	memset(from, 'h', BODY);
}

/*
 * A killed process needs processor time to exit: this process lifts the limit
 * when the test ends for any reason. It is in a process group of its own,
 * because the test's group is killed.
 */
static void start_lifter(void)
{
	sigset_t set;
	int sig;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	if (!SYS(fork())) {
		setpgid(0, 0);
		SYS(prctl(PR_SET_PDEATHSIG, SIGTERM));
		sigwait(&set, &sig);
		/* The cgroup may be gone. */
		cgroup_try("cpu.max", "max");
		_exit(0);
	}
	sigprocmask(SIG_UNBLOCK, &set, NULL);
}

static void start_pair(struct peer pair[2])
{
	memset(to, 0, BODY);
	peer_start(&pair[0], hostile);
	peer_start(&pair[1], victim);
	peers_turn(pair, 2);
	peer_wait(&pair[0]);
	peer_wait(&pair[1]);
	cgroup_add(pair[0].pid);
	/* From here on the sender nearly always has a message in-flight. */
	peer_tell(&pair[0]);
	while (!__atomic_load_n(to, __ATOMIC_ACQUIRE))
		usleep(1000);
}

static void one_round(void)
{
	struct peer pair[2], l[LOOPS];
	int i;

	start_pair(pair);
	for (i = 0; i < LOOPS; i++) {
		peer_start(&l[i], loop);
		cgroup_add(l[i].pid);
	}
	for (i = 0; i < LOOPS; i++)
		peer_tell(&l[i]);
	if (cpu_max)
		cgroup_set("cpu.max", cpu_max);
	usleep(300000);
	CHECK_STEP(&pair[1], "ibv_destroy_qp()");
	CHECK_STEP(&pair[1], "ibv_dereg_mr()");
	CHECK_KILL(&pair[1], "a process that was written to");
	if (cpu_max)
		cgroup_set("cpu.max", "max");
	for (i = 0; i < LOOPS; i++)
		peer_kill(&l[i], SIGKILL);
	peer_kill(&pair[0], SIGKILL);
	iso_check_empty(KEEL0);
}

static void check_starved(const char *limit)
{
	int i;

	share_bodies();
	cpu_max = limit;
	/*
	 * As systemd does for each user, with the same weight. A process that moves itself
	 * would need processor time that it no longer gets.
	 */
	cgroup_make("cpu");
	if (limit)
		start_lifter();
	for (i = 0; i < ROUNDS; i++)
		one_round();
}

#define CALLS	", the target destroys its QP, deregisters its memory and dies, each within 1 s"

TEST(idle_priority, "ISO-1", "during RDMA writes of an idle priority process beside 16 busy loops in its cgroup" CALLS)
{
	check_starved(NULL);
}

TEST_NOT_UML(throttled, "ISO-1", "during RDMA writes of an idle priority process whose cgroup gets 1 ms of processor time per second" CALLS, "it has no bandwidth limits")
{
	check_starved("1000 1000000");
}
