// SPDX-License-Identifier: GPL-2.0
/*
 * Processes that hardly get a processor, and bind windows without end to a region of
 * another process in their shared PD: a process that is preempted while it binds
 * must not delay the owner of the region.
 */
#include <sched.h>
#include <stddef.h>

#include <infiniband/shpd.h>
#include <rdma/keel-abi.h>
#include <rdma/keel-queue.h>

#include "cgroup.h"
#include "iso.h"
#include "qp.h"
#include "raw.h"
#include "t.h"

/* Processes that bind, and busy loops beside them, in their cgroup. */
#define BINDERS	16
#define LOOPS	16
#define KEY	0x1234567ULL
#define WRS	16384
/* Each bind has the next of 256 rkeys: it wraps around with the ring. */
#define RKEYS	256

void t_after(void)
{
	cgroup_remove();
}

static char page[ISO_PAGE] __attribute__((aligned(ISO_PAGE)));

/* Shared by all processes of a case. */
static struct board {
	struct ibv_shpd shpd;
	uint32_t lkey;
	uint64_t addr;
	uint32_t bound[BINDERS];
	bool failed;
} *board;

static struct {
	char *ring;
	size_t size;
} send_queue;

static void *ring_alloc(struct ibv_pd *pd, void *context, size_t size,
			size_t alignment, uint64_t type)
{
	char *ring = peer_shared(size);

	if ((uint32_t)type == KEEL_RES_SQ) {
		send_queue.ring = ring;
		send_queue.size = size;
	}
	return ring;
}

static void ring_free(struct ibv_pd *pd, void *context, void *m, uint64_t type)
{
}

/* A QP whose send queue this program fills itself. */
static struct ibv_qp *new_with_ring(struct ibv_pd *base, struct ibv_cq *cq)
{
	struct ibv_parent_domain_init_attr attr = {
		.pd = base, .alloc = ring_alloc, .free = ring_free,
		.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS,
	};
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq,
		.cap = { .max_send_wr = WRS, .max_recv_wr = 1,
			 .max_send_sge = 1, .max_recv_sge = 1 },
	};

	return MUST(ibv_create_qp(MUST(ibv_alloc_parent_domain(base->context,
							       &attr)), &init));
}

/* Fill the ring with binds of one window of type 1, without completions. */
static void write_binds(const struct ibv_mw *mw)
{
	size_t head = sizeof(struct keel_uapi_ring), i;
	size_t stride = (send_queue.size - head) / WRS / 64 * 64;
	uint32_t base = mw->rkey & ~(RKEYS - 1U);
	struct keel_uapi_send_wqe *wqe;

	for (i = 0; i < WRS; i++) {
		wqe = (void *)(send_queue.ring + head + i * stride);
		memset(wqe, 0, sizeof(*wqe));
		wqe->opcode = IBV_WR_BIND_MW;
		wqe->bind.addr = board->addr;
		wqe->bind.length = 64;
		wqe->bind.lkey = board->lkey;
		wqe->bind.rkey = base | (mw->rkey + i) % RKEYS;
		wqe->bind.new_rkey = base | (mw->rkey + i + 1) % RKEYS;
		wqe->bind.access = IBV_ACCESS_REMOTE_READ;
		wqe->bind.flags = KEEL_BIND_F_TYPE_1;
	}
}

static int ring_doorbell(const struct ibv_qp *qp)
{
	struct raw_cmd cmd;
	uint32_t qpn = qp->qp_num;

	raw_init(&cmd, UVERBS_OBJECT_QP, KEEL_METHOD_QP_DOORBELL);
	raw_in(&cmd, KEEL_ATTR_QP_DOORBELL_QPN, &qpn, sizeof(qpn));
	return raw_run(qp->context->cmd_fd, &cmd);
}

/* The number of this binder. */
static int number;

static void binder(struct peer *parent)
{
	struct ibv_pd *pd = MUST(ibv_share_pd(dev_open(KEEL0), &board->shpd,
					      KEY));
	struct ibv_cq *cq = cq_new(pd->context);
	struct ibv_qp *qp = new_with_ring(pd, cq);
	struct keel_uapi_ring *ring = (void *)send_queue.ring;
	struct sched_param none = {};
	struct ibv_wc wc;

	qp_connect(qp, qp->qp_num);
	write_binds(MUST(ibv_alloc_mw(pd, IBV_MW_TYPE_1)));
	/* The first ones succeed. */
	__atomic_store_n(&ring->user, RKEYS, __ATOMIC_RELEASE);
	CHECK_OK(ring_doorbell(qp));
	/* A doorbell leaves the rest to the worker after a while. */
	while (__atomic_load_n(&ring->kernel, __ATOMIC_ACQUIRE) != RKEYS) {
		CHECK_EQ(ibv_poll_cq(cq, 1, &wc), 0);
		usleep(1000);
	}
	CHECK_EQ(ibv_poll_cq(cq, 1, &wc), 0);
	peer_tell(parent);
	peer_wait(parent);
	SYS(sched_setscheduler(0, SCHED_IDLE, &none));
	for (;;) {
		__atomic_store_n(&ring->user, ring->kernel + WRS,
				 __ATOMIC_RELEASE);
		ring_doorbell(qp);
		board->bound[number] = ring->kernel;
		if (ibv_poll_cq(cq, 1, &wc))
			board->failed = true;
	}
}

static void loop(struct peer *parent)
{
	peer_wait(parent);
	for (;;)
		;
}

static void victim(struct peer *parent)
{
	struct ibv_pd *pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	struct ibv_mr *mr = MUST(ibv_reg_mr(pd, page, sizeof(page), ISO_RIGHTS |
					    IBV_ACCESS_MW_BIND));

	MUST(ibv_alloc_shpd(pd, KEY, &board->shpd));
	board->lkey = mr->lkey;
	board->addr = (uintptr_t)page;
	peer_tell(parent);
	peer_wait(parent);
	CHECK_OK(ibv_dereg_mr(mr));
	peer_tell(parent);
	pause();
}

/* @act: what the victim does while its region has windows. */
static void check_binds(void (*act)(struct peer *v))
{
	struct peer v, b[BINDERS], l[LOOPS];
	int i;

	board = peer_shared(sizeof(*board));
	cgroup_make("cpu");
	peer_start(&v, victim);
	peer_wait(&v);
	for (i = 0; i < BINDERS; i++) {
		number = i;
		peer_start(&b[i], binder);
		peer_wait(&b[i]);
		cgroup_add(b[i].pid);
	}
	for (i = 0; i < BINDERS; i++)
		peer_tell(&b[i]);
	/* All binders bind in their loops. */
	for (i = 0; i < BINDERS; i++)
		while (!*(volatile uint32_t *)&board->bound[i])
			usleep(1000);
	for (i = 0; i < LOOPS; i++) {
		peer_start(&l[i], loop);
		cgroup_add(l[i].pid);
	}
	for (i = 0; i < LOOPS; i++)
		peer_tell(&l[i]);
	usleep(500000);
	/* No bind has failed before the region is deregistered. */
	CHECK(!*(volatile bool *)&board->failed);
	act(&v);
	/* The loops first: the binders need processor time to exit. */
	for (i = 0; i < LOOPS; i++)
		peer_kill(&l[i], SIGKILL);
	for (i = 0; i < BINDERS; i++)
		peer_kill(&b[i], SIGKILL);
	iso_check_empty(KEEL0);
}

static void dereg(struct peer *v)
{
	CHECK_STEP(v, "ibv_dereg_mr()");
	peer_kill(v, SIGKILL);
}

static void die(struct peer *v)
{
	CHECK_KILL(v, "a process with a region that others bind to");
}

#define BINDERS_TITLE	" while 16 idle priority processes, beside 16 busy loops in their cgroup, bind windows to it without end"

TEST_CASE(dereg, "ISO-1,SPD-7", "ibv_dereg_mr() of a region in a shared PD returns within 1 s" BINDERS_TITLE,
	  .limit = 120)
{
	check_binds(dereg);
}

TEST_CASE(exit, "ISO-1,SPD-7", "the owner of a region in a shared PD is dead within 1 s of SIGKILL" BINDERS_TITLE,
	  .limit = 120)
{
	check_binds(die);
}
