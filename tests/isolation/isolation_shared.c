// SPDX-License-Identifier: GPL-2.0
/*
 * A process uses on-demand memory of another process through a shared
 * protection domain, as its local memory and in ibv_advise_mr(). The memory
 * cannot be faulted in.
 */
#include <infiniband/shpd.h>

#include "iso.h"
#include "qp.h"
#include "stall.h"
#include "t.h"

#define KEY	0x15015015015ULL

static struct board {
	struct ibv_shpd shpd;
	uint32_t lkey;
	uint64_t addr;
} *board;

static char page[ISO_PAGE] __attribute__((aligned(ISO_PAGE)));

static void owner(struct peer *parent)
{
	struct ibv_pd *pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	void *memory = stall_memory(ISO_PAGE);
	struct ibv_mr *mr = MUST(ibv_reg_mr(pd, memory, ISO_PAGE, ISO_RIGHTS |
					    IBV_ACCESS_ON_DEMAND));

	MUST(ibv_alloc_shpd(pd, KEY, &board->shpd));
	board->lkey = mr->lkey;
	board->addr = (uintptr_t)memory;
	stall_hold();
	peer_tell(parent);
	pause();
}

static struct ibv_pd *share(void)
{
	return MUST(ibv_share_pd(dev_open(KEEL0), &board->shpd, KEY));
}

/* Send from the owner's memory to a QP of this process. */
static void sender(struct peer *parent)
{
	struct ibv_pd *pd = share();
	struct ibv_mr *mr = MUST(ibv_reg_mr(pd, page, ISO_PAGE, ISO_RIGHTS));
	struct link l = link_new(pd, pd, IBV_QPT_RC);
	struct mem theirs = { (void *)board->addr, 64, board->lkey };

	post_recv(l.qp[1], 1, MEM(mr));
	peer_wait(parent);
	post_send(l.qp[0], 2, theirs);
	peer_tell(parent);
	peer_wait(parent);
	CHECK_OK(ibv_destroy_qp(l.qp[1]));
	CHECK_OK(ibv_destroy_qp(l.qp[0]));
	peer_tell(parent);
	peer_wait(parent);
}

/* The call must return; its result does not matter. */
static void adviser(struct peer *parent)
{
	struct ibv_pd *pd = share();
	struct ibv_sge sge = { board->addr, ISO_PAGE, board->lkey };

	peer_wait(parent);
	ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
		      IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1);
	peer_tell(parent);
	peer_wait(parent);
}

static void start(struct stall *s, struct peer *v,
		  void (*run)(struct peer *parent))
{
	board = peer_shared(sizeof(*board));
	stall_start(s, owner);
	peer_wait(&s->peer);
	peer_start(v, run);
}

static void end(struct stall *s)
{
	stall_end(s);
	iso_check_empty(KEEL0);
}

TEST(calls, "ISO-1", "during a send from another process's stalled memory in a shared domain, posting and destroying both QPs return within 1 s")
{
	struct stall s;
	struct peer v;

	start(&s, &v, sender);
	CHECK_STEP(&v, "ibv_post_send()");
	CHECK_STEP(&v, "ibv_destroy_qp()");
	CHECK_KILL(&v, "a process without QPs");
	end(&s);
}

TEST(killed, "ISO-1", "during a send from another process's stalled memory in a shared domain, a killed sender exits within 1 s")
{
	struct stall s;
	struct peer v;

	start(&s, &v, sender);
	peer_tell(&v);
	usleep(100000);
	CHECK_KILL(&v, "a process that sends");
	end(&s);
}

TEST(advice, "ISO-1", "ibv_advise_mr() for another process's stalled memory in a shared domain returns within 1 s")
{
	struct stall s;
	struct peer v;

	start(&s, &v, adviser);
	CHECK_STEP(&v, "ibv_advise_mr()");
	CHECK_KILL(&v, "a process that advised");
	end(&s);
}
