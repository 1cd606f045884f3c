// SPDX-License-Identifier: GPL-2.0
/*
 * A process whose send queue its worker polls, and its child, which shares the queue.
 */
#include <sys/wait.h>

#include <infiniband/keeldv.h>

#include "iso.h"
#include "qp.h"
#include "rings.h"
#include "t.h"

#define TRIES	5000
/* Attempts to stop a process while it is polled. */
#define ATTEMPTS	20
#define LEN	8
/* In the page that the QP reads and writes. */
#define FROM	0
#define TO	64

static unsigned char *page;
static struct ibv_context *ctx;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *mr;
/* The child asks for polling, too; its parent was killed. */
static bool asks, killed;

static bool is_polled(void)
{
	return __atomic_load_n(&rings[0]->flags, __ATOMIC_ACQUIRE) & KEEL_RING_F_POLLED;
}

static void setup(void)
{
	ctx = dev_open(KEEL0);
	mr = MUST(ibv_reg_mr(rings_pd_shared(ctx), page, ISO_PAGE, ISO_RIGHTS));
	cq = cq_new(ctx);
	qp = qp_new(mr->pd, cq, IBV_QPT_RC, NULL);
	qp_connect(qp, qp->qp_num);
	CHECK_RET(keeldv_poll_sends(ctx, KEELDV_POLL_SENDS_MAX), 0);
}

/* The QP writes to itself. */
static void write_some(int value)
{
	struct mem mem = { page + FROM, LEN, mr->lkey };

	memset(page + FROM, value, LEN);
	post_rdma(qp, IBV_WR_RDMA_WRITE, 1, mem, (uintptr_t)page + TO, mr->rkey);
}

/* Until the queue is polled, which goes on for a second. */
static void begin(void)
{
	int tries;

	for (tries = 0; !is_polled(); tries++) {
		if (tries == TRIES)
			FAIL("got no polling after %d messages", tries);
		write_some(1);
		CHECK_WC(cq, 1, IBV_WC_SUCCESS);
		usleep(1000);
	}
}

/* Writes when it is told to, and tells whether the queue was polled then. */
static void child(struct peer *parent)
{
	bool polled;

	if (asks)
		CHECK_RET(keeldv_poll_sends(ctx, KEELDV_POLL_SENDS_MAX), 0);
	peer_tell(parent);
	peer_wait(parent);
	/* Until the death of its parent is noticed. */
	while (killed && is_polled())
		usleep(1000);
	polled = is_polled();
	write_some(2);
	/* Its parent's CQ is not shared, but the memory is. */
	while (__atomic_load_n(page + TO + LEN - 1, __ATOMIC_ACQUIRE) != 2)
		usleep(1000);
	CHECK_ALL(page + TO, 2, LEN);
	peer_tell(parent);
	peer_put_var(parent, polled);
	peer_wait(parent);
	_exit(0);
}

static void owner(struct peer *parent)
{
	setup();
	begin();
	if (!SYS(fork()))
		child(parent);
	for (;;)
		pause();
}

/* Return whether the queue was polled when the child posted. */
static bool attempt(bool kills)
{
	struct peer p;
	bool polled;

	killed = kills;
	memset(page, 0, ISO_PAGE);
	peer_start(&p, owner);
	peer_wait(&p);
	SYS(kill(p.pid, kills ? SIGKILL : SIGSTOP));
	SYS(waitpid(p.pid, NULL, WUNTRACED));
	peer_tell(&p);
	CHECK_WITHIN(&p, kills ? "a write after the death of the owner" :
				 "a write beside an owner that is stopped");
	peer_get_var(&p, polled);
	peer_tell(&p);
	if (!kills) {
		SYS(kill(p.pid, SIGKILL));
		SYS(waitpid(p.pid, NULL, 0));
	}
	SYS(close(p.fd));
	iso_check_empty(KEEL0);
	return polled;
}

static void stop_while_polled(void)
{
	int i;

	page = peer_shared(ISO_PAGE);
	for (i = 0; !attempt(false); i++)
		if (i == ATTEMPTS)
			FAIL("the queue was not polled in %d attempts", i);
}

TEST_CASE(stopped, "ISO-1", "a child that shares a queue posts to it, although its worker is that of the parent, which polled and is stopped", ISO_NEEDS_THREADS)
{
	stop_while_polled();
}

TEST_CASE(asked, "ISO-1", "the same, if the child has asked for polling by its own worker", ISO_NEEDS_THREADS)
{
	asks = true;
	stop_while_polled();
}

TEST_CASE(dead, "ISO-1,DEV-4", "a child that shares a queue and polls it rings a doorbell after the death of the parent that polled, and takes the queue over", ISO_NEEDS_THREADS)
{
	page = peer_shared(ISO_PAGE);
	asks = true;
	CHECK(!attempt(true));
}
