// SPDX-License-Identifier: GPL-2.0
/*
 * One process writes messages of 66 MiB to another in a loop. The test kills
 * either process at a random moment.
 */
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

#include "big.h"
#include "peer.h"
#include "qp.h"
#include "t.h"

/* Copies of the big buffer that make up 66 MiB. */
#define COPIES		11
#define ROUNDS		40
/* In nanoseconds, the longest time before a kill. */
#define FIRST_SPAN	40000000
#define LAST_SPAN	1280000000
#define RIGHTS		(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | \
			 IBV_ACCESS_REMOTE_WRITE)

enum { WRITER, TARGET };

static struct board {
	uint32_t qpn[2], rkey;
	uint64_t addr;
	atomic_uint written;	/* messages completed */
} *board;

static struct big bigs[2];

struct side {
	struct ibv_context *ctx;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
};

/* On return this side and its peer are connected. */
static struct side side_open(int me, struct peer *parent)
{
	struct side s = { .ctx = dev_open(KEEL0) };
	struct ibv_pd *pd = MUST(ibv_alloc_pd(s.ctx));

	s.mr = MUST(me == WRITER ?
		    ibv_reg_mr(pd, big_map_flat(&bigs[me]), BIG_FLAT, RIGHTS) :
		    ibv_reg_mr(pd, big_map_long(&bigs[me], COPIES),
			       BIG_LEN(COPIES), RIGHTS));
	s.cq = cq_new(s.ctx);
	s.qp = big_qp(pd, s.cq, IBV_QPT_RC);
	board->qpn[me] = s.qp->qp_num;
	if (me == TARGET) {
		board->rkey = s.mr->rkey;
		board->addr = (uintptr_t)s.mr->addr;
	}
	peer_tell(parent);
	peer_wait(parent);
	qp_connect(s.qp, board->qpn[!me]);
	peer_tell(parent);
	peer_wait(parent);
	return s;
}

static void post_write(struct side *s)
{
	big_post(s->qp, IBV_WR_RDMA_WRITE, 0, s->mr->addr, s->mr->lkey, COPIES,
		 board->addr, board->rkey);
}

/*
 * The requester runs until the test kills it or its peer. If the peer dies, the
 * requester's retries run out.
 */
static void writer(struct peer *parent)
{
	struct side s = side_open(WRITER, parent);
	enum ibv_wc_status status;

	for (;;) {
		post_write(&s);
		status = wc_get(s.cq).status;
		if (status != IBV_WC_SUCCESS)
			break;
		atomic_fetch_add(&board->written, 1);
	}
	CHECK_STR(ibv_wc_status_str(status),
		  ibv_wc_status_str(IBV_WC_RETRY_EXC_ERR));
	CHECK_STATE(s.qp, IBV_QPS_ERR);
	/* The kernel flushes a WQE that is posted now. */
	post_write(&s);
	CHECK_EQ(wc_get(s.cq).status, IBV_WC_WR_FLUSH_ERR);
	CHECK_NO_EVENT(s.ctx);
	big_prove(s.qp, s.cq);
	peer_tell(parent);
}

/*
 * The responder runs until the test kills it or its peer. If the peer dies, the
 * responder gets no event and no CQE.
 */
static void target(struct peer *parent)
{
	struct side s = side_open(TARGET, parent);

	peer_wait(parent);
	CHECK_STATE(s.qp, IBV_QPS_RTS);
	CHECK_NO_WC(s.cq);
	CHECK_NO_EVENT(s.ctx);
	if (atomic_load(&board->written))
		CHECK_ALL(bigs[TARGET].flat, 'f', BIG_FLAT);
	big_prove(s.qp, s.cq);
	peer_tell(parent);
}

/* Kill one side at a random moment of @span; the other side goes on. */
static void one_round(uint64_t *seed, int victim, unsigned int span)
{
	unsigned int ns = t_random(seed) % span;
	struct timespec nap = { ns / 1000000000, ns % 1000000000 };
	struct peer sides[2];

	atomic_store(&board->written, 0);
	memset(bigs[TARGET].flat, 0, BIG_FLAT);
	peer_start(&sides[WRITER], writer);
	peer_start(&sides[TARGET], target);
	peers_turn(sides, 2);
	peers_turn(sides, 2);
	nanosleep(&nap, NULL);
	peer_kill(&sides[victim], SIGKILL);
	if (victim == WRITER)
		peer_tell(&sides[TARGET]);
	peer_wait(&sides[!victim]);
	peer_end(&sides[!victim]);
}

TEST_SLOW(loop, "PD-3,DEV-4", "one side of a loop of 66 MiB writes is killed: a requester's retries run out, a responder sees nothing, a new pair works", 200)
{
	uint64_t seed = 64;
	unsigned int span = FIRST_SPAN, whole = 0;
	int i;

	board = peer_shared(sizeof(*board));
	for (i = 0; i < 2; i++)
		bigs[i] = big_new();
	memset(bigs[WRITER].flat, 'f', BIG_FLAT);
	for (i = 0; i < ROUNDS; i++) {
		one_round(&seed, i % 2, span);
		whole += atomic_load(&board->written);
		/* A debug kernel is slow. */
		if (!whole && span < LAST_SPAN)
			span *= 2;
	}
	t_note("%d rounds, %u writes went through whole", ROUNDS, whole);
	CHECK(whole > 0);
}
