// SPDX-License-Identifier: GPL-2.0
/*
 * 600 send queues of hostile processes, which the kernel tries to run after a
 * receive WQE was posted, and cannot, because their memory cannot be faulted
 * in. The kernel must still do everything else that it does in the background.
 */
#include "iso.h"
#include "qp.h"
#include "stall.h"
#include "t.h"

#define CROWD		4
/* of each process */
#define PAIRS		75
/* Receive WQEs that an error flushes. */
#define FLUSHED		4

static char page[ISO_PAGE] __attribute__((aligned(ISO_PAGE)));

/*
 * All queues send from memory that cannot be faulted in, and wait for a receive
 * WQE. When the receive WQEs are posted, the kernel runs all these queues.
 */
static void hostile(struct peer *parent)
{
	struct ibv_pd *pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	struct ibv_cq *cq = cq_new(pd->context);
	struct ibv_mr *mr = MUST(ibv_reg_mr(pd, stall_memory(ISO_PAGE),
			ISO_PAGE, ISO_RIGHTS | IBV_ACCESS_ON_DEMAND));
	struct ibv_mr *to = MUST(ibv_reg_mr(pd, page, ISO_PAGE, ISO_RIGHTS));
	static struct ibv_qp *qp[2 * PAIRS];
	int i;

	for (i = 0; i < 2 * PAIRS; i++) {
		qp[i] = qp_new(pd, cq, IBV_QPT_RC, NULL);
		if (i % 2)
			qp_join(qp[i - 1], qp[i]);
	}
	for (i = 0; i < 2 * PAIRS; i++)
		post_send(qp[i], 1, MEM(mr));
	peer_tell(parent);
	peer_wait(parent);
	stall_hold();
	for (i = 0; i < 2 * PAIRS; i++)
		post_recv(qp[i], 2, MEM(to));
	peer_tell(parent);
	pause();
}

struct own {
	struct ibv_mr *mr;
	struct link l;
};

static void own_open(struct own *o)
{
	struct ibv_pd *pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));

	o->mr = MUST(ibv_reg_mr(pd, page, ISO_PAGE, ISO_RIGHTS));
	o->l = link_new(pd, pd, IBV_QPT_RC);
}

/* Post the receive WQE 50 ms after the send. */
static void recover(struct own *o)
{
	post_send(o->l.qp[0], 1, MEM(o->mr));
	usleep(50000);
	post_recv(o->l.qp[1], 2, MEM(o->mr));
	CHECK_WC(o->l.cq[0], 1, IBV_WC_SUCCESS);
	CHECK_WC(o->l.cq[1], 2, IBV_WC_SUCCESS);
}

/* The peer's request fails a QP, and the kernel flushes the QP. */
static void flush(struct own *o)
{
	int i;

	for (i = 0; i < FLUSHED; i++)
		post_recv(o->l.qp[1], 3, MEM(o->mr));
	post_rdma(o->l.qp[0], IBV_WR_RDMA_WRITE, 4, MEM(o->mr), 0,
		  o->mr->rkey);
	CHECK_WC(o->l.cq[0], 4, IBV_WC_REM_ACCESS_ERR);
	for (i = 0; i < FLUSHED; i++)
		CHECK_WC(o->l.cq[1], 3, IBV_WC_WR_FLUSH_ERR);
}

static void victim(struct peer *parent)
{
	struct own o;

	own_open(&o);
	peer_tell(parent);
	peer_wait(parent);
	recover(&o);
	peer_tell(parent);
	peer_wait(parent);
	flush(&o);
	peer_tell(parent);
	peer_wait(parent);
	link_free(&o.l);
	peer_tell(parent);
	peer_wait(parent);
}

/* Wait for a receive WQE that is never posted. */
static void waiter(struct peer *parent)
{
	struct own o;

	own_open(&o);
	post_send(o.l.qp[0], 1, MEM(o.mr));
	peer_tell(parent);
	peer_wait(parent);
}

TEST(crowd, "ISO-1", "beside 600 send queues with stalled memory, an RNR wait, a flush, ibv_destroy_qp() and a process's death end within 1 s")
{
	struct stall s[CROWD];
	struct peer v, w;
	int i;

	for (i = 0; i < CROWD; i++)
		stall_start(&s[i], hostile);
	for (i = 0; i < CROWD; i++)
		peer_wait(&s[i].peer);
	peer_start(&v, victim);
	peer_start(&w, waiter);
	peer_wait(&v);
	peer_wait(&w);
	for (i = 0; i < CROWD; i++)
		peer_tell(&s[i].peer);
	for (i = 0; i < CROWD; i++)
		peer_wait(&s[i].peer);
	/* Wait until the kernel has tried all queues. */
	usleep(300000);
	CHECK_STEP(&v, "the end of an RNR wait");
	CHECK_STEP(&v, "an error flush");
	CHECK_STEP(&v, "ibv_destroy_qp()");
	CHECK_KILL(&v, "a process without QPs");
	CHECK_KILL(&w, "a process whose send waits");
	for (i = 0; i < CROWD; i++)
		stall_end(&s[i]);
	iso_check_empty(KEEL0);
}
