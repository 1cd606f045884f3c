// SPDX-License-Identifier: GPL-2.0
/*
 * A long message is in-flight while a QP, memory, a key or a process of either
 * side is destroyed.
 *
 * Each side is a process. The test's own process watches both, kills, and sends
 * messages of its own, which must not be affected. If the long message
 * completes before the action takes effect, the attempt does not count and the
 * test repeats it. So the test also detects a kernel in which the action waits
 * until the message has completed. On-demand memory at the requester makes the
 * message last longer.
 */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "big.h"
#include "peer.h"
#include "qp.h"
#include "t.h"
#include "tree.h"

/* Copies of the big buffer in a long message of 36 MiB: most attempts hit it. */
#define COPIES		6
#define LONG		BIG_LEN(COPIES)
#define ATTEMPTS	40
#define RIGHTS		(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | \
			 IBV_ACCESS_REMOTE_WRITE)

enum { REQ, PEER };

enum victim {
	NOBODY,
	KILL_REQ,
	KILL_PEER,
};

enum memory {
	PINNED,
	DEMAND,
	WINDOW_1,
	WINDOW_2,
};

/* This process's side of the long message. */
struct side {
	struct peer *parent;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	unsigned char *map;
	size_t len;
};

/* An action on an in-flight message, and its expected results. */
struct deed {
	const char *what;
	void (*by_req)(struct side *s);
	void (*by_peer)(struct side *s);
	enum victim kill;		/* the test's process kills */
	enum memory mem[2];
	enum ibv_wc_status status;	/* of the requester */
	enum ibv_qp_state state[2];	/* if the QP still exists */
	bool access;	/* the peer gets an access error event */
	bool uc;
	bool either;	/* RETRY_EXC_ERR is correct as well */
	bool silent;	/* there is no completion */
	bool later;	/* waits for a receive WQE after its doorbell */
	bool released;	/* nobody writes the destination afterwards */
};

/* Values that the three processes share. */
static struct board {
	struct {
		uint32_t qpn, key;
		uint64_t addr;
	} side[2];
	atomic_bool posted;
	bool counts;
} *board;

static struct big bigs[2];
static const struct deed *deed;
static bool reads;

static struct big *destination(void)
{
	return &bigs[reads ? REQ : PEER];
}

static void in_the_middle(void)
{
	while (!big_began(destination()))
		sched_yield();
}

/* Clear the destination, so that a later write by any thread is detected. */
static void scrub(void)
{
	memset(destination()->flat + BIG_PAGE, 0, BIG_BODY);
}

static void *act(void *arg)
{
	struct side *s = arg;

	in_the_middle();
	(s->len == LONG ? deed->by_peer : deed->by_req)(s);
	if (deed->released)
		scrub();
	return NULL;
}

static struct ibv_qp *side_qp(struct side *s)
{
	return big_qp(s->pd, s->cq, deed->uc ? IBV_QPT_UC : IBV_QPT_RC);
}

/* The requester has one processor, and its thread copies the message. */
static bool by_caller;

static void side_open(struct side *s, int me, struct peer *parent)
{
	int access = RIGHTS | IBV_ACCESS_MW_BIND;

	s->parent = parent;
	/* Else its worker copies. */
	if (me == REQ && by_caller)
		t_one_processor();
	s->ctx = dev_open(KEEL0);
	s->pd = MUST(ibv_alloc_pd(s->ctx));
	s->cq = cq_new(s->ctx);
	s->len = me == PEER ? LONG : BIG_FLAT;
	s->map = me == PEER ? big_map_long(&bigs[me], COPIES) :
			      big_map_flat(&bigs[me]);
	if (deed->mem[me] == DEMAND)
		access = RIGHTS | IBV_ACCESS_ON_DEMAND;
	s->mr = MUST(ibv_reg_mr(s->pd, s->map, s->len, access));
	/*
	 * Create the QP last: the kernel destroys the newest object of a dead
	 * process first.
	 */
	s->qp = side_qp(s);
	board->side[me].qpn = s->qp->qp_num;
	board->side[me].key = s->mr->rkey;
	board->side[me].addr = (uintptr_t)s->map;
	peer_tell(parent);
	peer_wait(parent);
	qp_connect(s->qp, board->side[!me].qpn);
}

/* Bind a window, whose key the requester uses. */
static void side_bind(struct side *s)
{
	struct ibv_mw_bind_info info = {
		.mr = s->mr, .addr = (uintptr_t)s->map, .length = s->len,
		.mw_access_flags = IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_WRITE,
	};
	struct ibv_mw_bind bind = {
		.wr_id = 1, .send_flags = IBV_SEND_SIGNALED, .bind_info = info,
	};
	struct ibv_send_wr wr = {
		.wr_id = 1, .opcode = IBV_WR_BIND_MW,
		.send_flags = IBV_SEND_SIGNALED, .bind_mw.bind_info = info,
	};
	bool first = deed->mem[PEER] == WINDOW_1;

	s->mw = MUST(ibv_alloc_mw(s->pd, first ? IBV_MW_TYPE_1 :
						 IBV_MW_TYPE_2));
	board->side[PEER].key = ibv_inc_rkey(s->mw->rkey);
	if (first) {
		CHECK_OK(ibv_bind_mw(s->qp, s->mw, &bind));
	} else {
		wr.bind_mw.mw = s->mw;
		wr.bind_mw.rkey = board->side[PEER].key;
		post(s->qp, &wr);
	}
	CHECK_WC(s->cq, 1, IBV_WC_SUCCESS);
}

/*
 * If the attempt counts, check the state of the QP, and that a QP still works.
 */
static void side_check(struct side *s, int me)
{
	peer_tell(s->parent);
	peer_wait(s->parent);
	if (!board->counts)
		return;
	if (!s->qp)
		s->qp = side_qp(s);
	else
		CHECK_STATE(s->qp, deed->state[me]);
	if (me == PEER && deed->access)
		CHECK_EVENT(s->ctx, IBV_EVENT_QP_ACCESS_ERR, s->qp);
	CHECK_NO_EVENT(s->ctx);
	big_prove(s->qp, s->cq);
}

static void peer_side(struct peer *parent)
{
	struct side s = {};

	side_open(&s, PEER, parent);
	if (deed->mem[PEER] >= WINDOW_1)
		side_bind(&s);
	peer_tell(parent);
	peer_wait(parent);
	if (deed->later) {
		while (!atomic_load(&board->posted))
			sched_yield();
		post_recv(s.qp, 3, (struct mem){});
	}
	if (deed->by_peer)
		act(&s);
	if (deed->later)
		CHECK_WC(s.cq, 3, IBV_WC_SUCCESS);
	side_check(&s, PEER);
}

static void req_post(struct side *s)
{
	if (deed->later)
		post_send(s->qp, 4, (struct mem){});
	big_post(s->qp, reads ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, 5,
		 s->map, s->mr->lkey, COPIES, board->side[PEER].addr,
		 board->side[PEER].key);
}

static void req_complete(struct side *s)
{
	struct ibv_wc wc;

	/* Reset and destroy also purge earlier CQEs from the CQ. */
	if (deed->silent) {
		CHECK_NO_WC(s->cq);
		return;
	}
	wc = wc_get(s->cq);
	CHECK_EQ(wc.wr_id, 5);
	/* The message may have completed first: attempt() detects that. */
	if ((wc.status == IBV_WC_SUCCESS && big_ended(destination())) ||
	    (deed->either && wc.status == IBV_WC_RETRY_EXC_ERR))
		return;
	CHECK_STR(ibv_wc_status_str(wc.status), ibv_wc_status_str(deed->status));
}

static void req_side(struct peer *parent)
{
	struct side s = {};
	pthread_t thread;

	side_open(&s, REQ, parent);
	peer_tell(parent);
	peer_wait(parent);
	if (deed->by_req)
		CHECK_OK(pthread_create(&thread, NULL, act, &s));
	req_post(&s);
	atomic_store(&board->posted, true);
	if (deed->by_req)
		CHECK_OK(pthread_join(thread, NULL));
	req_complete(&s);
	side_check(&s, REQ);
}

/* Send one message of the test's own process, which must arrive whole. */
static void third_party(struct link *l, struct ibv_mr *mr, uint64_t *n)
{
	char *from = mr->addr, *to = from + 64;

	memset(from, ++*n, 64);
	post_recv(l->qp[1], *n, (struct mem){ to, 64, mr->lkey });
	post_send(l->qp[0], *n, (struct mem){ from, 64, mr->lkey });
	CHECK_WC(l->cq[1], *n, IBV_WC_SUCCESS);
	CHECK_WC(l->cq[0], *n, IBV_WC_SUCCESS);
	CHECK_ALL(to, (unsigned char)*n, 64);
}

static bool dies(int side)
{
	return deed->kill == (side == REQ ? KILL_REQ : KILL_PEER);
}

static bool has_objects(pid_t pid)
{
	struct tree tree;
	bool has = false;
	int i;

	tree_read(KEEL0, &tree);
	for (i = 0; i < tree.count; i++)
		has |= tree.objs[i].pid == pid;
	tree_free(&tree);
	return has;
}

static void kill_side(struct peer *side)
{
	pid_t pid = side->pid;

	peer_kill(side, SIGKILL);
	/*
	 * A thread that accesses the dead process's on-demand memory holds its
	 * address space, and with it the open files, for a moment longer.
	 */
	while (has_objects(pid))
		usleep(1000);
	/*
	 * The destination is shared memory, and its dead owner cannot clear it.
	 */
	if (deed->released)
		scrub();
}

static bool has_word(struct peer *side)
{
	struct pollfd fd = { .fd = side->fd, .events = POLLIN };

	return poll(&fd, 1, 0);
}

/* Send messages until each side has finished or is dead. */
static void watch(struct peer *sides, struct link *l, struct ibv_mr *mr,
		  uint64_t *n)
{
	bool done[2] = {};
	int i;

	while (!done[REQ] || !done[PEER]) {
		third_party(l, mr, n);
		for (i = 0; i < 2; i++) {
			if (done[i])
				continue;
			if (dies(i) ? !big_began(destination()) :
				      !has_word(&sides[i]))
				continue;
			if (dies(i))
				kill_side(&sides[i]);
			else
				peer_wait(&sides[i]);
			done[i] = true;
		}
	}
}

/* Return true if the action hit the message in-flight. */
static bool attempt(void)
{
	static char page[2 * 64] __attribute__((aligned(128)));
	struct peer sides[2];
	uint64_t n = 0;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct link l;
	bool counts;
	int i;

	big_clear(destination());
	board->counts = false;
	atomic_store(&board->posted, false);
	peer_start(&sides[PEER], peer_side);
	peer_start(&sides[REQ], req_side);
	pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	mr = MUST(ibv_reg_mr(pd, page, sizeof(page), IBV_ACCESS_LOCAL_WRITE));
	l = link_new(pd, pd, IBV_QPT_RC);
	peers_turn(sides, 2);
	peers_turn(sides, 2);
	watch(sides, &l, mr, &n);
	CHECK(big_began(destination()));
	counts = !big_ended(destination());
	board->counts = counts;
	if (counts && deed->released)
		CHECK_ALL(destination()->flat + BIG_PAGE, 0, BIG_BODY);
	for (i = 0; i < 2; i++)
		if (!dies(i)) {
			peer_tell(&sides[i]);
			peer_end(&sides[i]);
		}
	third_party(&l, mr, &n);
	CHECK_NO_EVENT(l.ctx);
	CHECK_OK(ibv_close_device(l.ctx));
	return counts;
}

static void setup(void)
{
	int i;

	board = peer_shared(sizeof(*board));
	for (i = 0; i < 2; i++)
		bigs[i] = big_new();
}

/* Run each case with a write and, except for UC, with a read. */
static void run(const struct deed *deeds)
{
	int i, n;

	setup();
	for (deed = deeds; deed->what; deed++)
		for (i = 0; i < (deed->uc ? 1 : 2); i++) {
			reads = i;
			memset(bigs[reads ? PEER : REQ].flat, 'f', BIG_FLAT);
			for (n = 1; !attempt(); n++)
				if (n == ATTEMPTS)
					FAIL("%s: got the message whole %d times, want it cut off",
					     deed->what, n);
			t_note("%s of %s: attempt %d", deed->what,
			       reads ? "a read" : "a write", n);
		}
}

static void destroys(struct side *s)
{
	CHECK_OK(ibv_destroy_qp(s->qp));
	s->qp = NULL;
}

static void deregs(struct side *s)
{
	CHECK_OK(ibv_dereg_mr(s->mr));
}

static void unmaps(struct side *s)
{
	SYS(munmap(s->map, s->len));
}

static void deallocs(struct side *s)
{
	CHECK_OK(ibv_dealloc_mw(s->mw));
}

static void invalidates(struct side *s)
{
	struct ibv_send_wr wr = {
		.wr_id = 2, .opcode = IBV_WR_LOCAL_INV,
		.send_flags = IBV_SEND_SIGNALED,
		.invalidate_rkey = board->side[PEER].key,
	};

	post(s->qp, &wr);
	CHECK_WC(s->cq, 2, IBV_WC_SUCCESS);
}

static void fails(struct side *s)
{
	qp_to(s->qp, IBV_QPS_ERR);
}

static void resets(struct side *s)
{
	qp_to(s->qp, IBV_QPS_RESET);
}

#define LEFT(req, peer)	{ IBV_QPS_ ## req, IBV_QPS_ ## peer }
/* For cases in which the requester's memory does not matter. */
#define SLOW(peer)	{ DEMAND, peer }

TEST_SLOW(peer_gone, "PD-3,DEV-4", "if the responder's QP is destroyed, reset or fails, an in-flight message runs out of retries and stops writing", 120)
{
	static const struct deed deeds[] = {
		{ "peer's QP destroyed", .by_peer = destroys,
		  .mem = SLOW(PINNED), .status = IBV_WC_RETRY_EXC_ERR,
		  .state = LEFT(ERR, RESET), .released = true },
		{ "peer's QP of UC destroyed", .by_peer = destroys, .uc = true,
		  .mem = SLOW(PINNED), .status = IBV_WC_SUCCESS,
		  .state = LEFT(RTS, RESET), .released = true },
		{ "peer's QP moved to the error state", .by_peer = fails,
		  .mem = SLOW(PINNED), .status = IBV_WC_RETRY_EXC_ERR,
		  .state = LEFT(ERR, ERR) },
		{ "peer's QP reset", .by_peer = resets,
		  .mem = SLOW(PINNED), .status = IBV_WC_RETRY_EXC_ERR,
		  .state = LEFT(ERR, RESET), .released = true },
		{}
	};

	run(deeds);
}

TEST_SLOW(memory_gone, "PD-4,SPD-7,DEV-4", "if memory of an in-flight message is deregistered or unmapped, the message ends with an access or protection error", 180)
{
	static const struct deed deeds[] = {
		{ "peer's region deregistered", .by_peer = deregs,
		  .mem = SLOW(PINNED), .status = IBV_WC_REM_ACCESS_ERR,
		  .state = LEFT(ERR, ERR), .access = true, .released = true },
		{ "peer's region deregistered under UC", .by_peer = deregs,
		  .mem = SLOW(PINNED), .status = IBV_WC_SUCCESS, .uc = true,
		  .state = LEFT(RTS, RTS), .released = true },
		{ "requester's region deregistered", .by_req = deregs,
		  .mem = { PINNED, DEMAND }, .status = IBV_WC_LOC_PROT_ERR,
		  .state = LEFT(ERR, RTS), .released = true },
		{ "peer's on-demand memory unmapped", .by_peer = unmaps,
		  .mem = { PINNED, DEMAND }, .status = IBV_WC_REM_ACCESS_ERR,
		  .state = LEFT(ERR, ERR), .access = true },
		{ "requester's on-demand memory unmapped", .by_req = unmaps,
		  .mem = { DEMAND, PINNED }, .status = IBV_WC_LOC_PROT_ERR,
		  .state = LEFT(ERR, RTS) },
		{}
	};

	run(deeds);
}

TEST_SLOW(window_gone, "PD-4,DEV-4", "if the window of an in-flight message is deallocated or invalidated, the message ends with a remote access error", 120)
{
	static const struct deed deeds[] = {
		{ "window of type 1 deallocated", .by_peer = deallocs,
		  .mem = SLOW(WINDOW_1), .status = IBV_WC_REM_ACCESS_ERR,
		  .state = LEFT(ERR, ERR), .access = true, .released = true },
		{ "window of type 2 deallocated", .by_peer = deallocs,
		  .mem = SLOW(WINDOW_2), .status = IBV_WC_REM_ACCESS_ERR,
		  .state = LEFT(ERR, ERR), .access = true, .released = true },
		{ "window invalidated", .by_peer = invalidates,
		  .mem = SLOW(WINDOW_2), .status = IBV_WC_REM_ACCESS_ERR,
		  .state = LEFT(ERR, ERR), .access = true, .released = true },
		{}
	};

	run(deeds);
}

static const struct deed req_deeds[] = {
	{ "requester's QP moved to the error state", .by_req = fails,
	  .mem = SLOW(PINNED), .status = IBV_WC_WR_FLUSH_ERR,
	  .state = LEFT(ERR, RTS) },
	{ "requester's QP reset", .by_req = resets, .silent = true,
	  .mem = SLOW(PINNED), .state = LEFT(RESET, RTS), .released = true },
	{ "requester's QP destroyed with nobody in its doorbell",
	  .by_req = destroys, .silent = true, .later = true,
	  .mem = SLOW(PINNED), .state = LEFT(RESET, RTS), .released = true },
	{ "requester's QP destroyed with a thread in its doorbell",
	  .by_req = destroys, .silent = true,
	  .mem = SLOW(PINNED), .state = LEFT(RESET, RTS), .released = true },
	{}
};

TEST_SLOW(req_gone, "PD-3,DEV-4", "if the requester's QP fails, is reset or destroyed, its in-flight message ends or is flushed, and the responder goes on", 120)
{
	run(req_deeds);
}

TEST_SLOW(req_gone_caller, "PD-3,DEV-4", "likewise, if the thread that posted the message copies it", 120)
{
	by_caller = true;
	run(req_deeds);
}

static const struct deed kill_deeds[] = {
	{ "peer killed", .kill = KILL_PEER, .mem = SLOW(PINNED),
	  .status = IBV_WC_RETRY_EXC_ERR, .state = LEFT(ERR, RESET),
	  .released = true },
	{ "peer with on-demand memory killed", .kill = KILL_PEER,
	  .mem = { PINNED, DEMAND }, .status = IBV_WC_REM_ACCESS_ERR,
	  .state = LEFT(ERR, RESET), .either = true, .released = true },
	{ "requester killed", .kill = KILL_REQ,
	  .state = LEFT(RESET, RTS), .released = true },
	{ "requester with on-demand memory killed", .kill = KILL_REQ,
	  .mem = { DEMAND, PINNED }, .state = LEFT(RESET, RTS),
	  .released = true },
	{}
};

TEST_SLOW(killed, "PD-3,SPD-7,DEV-4", "if the responder of an in-flight message is killed, retries run out; if the requester is killed, the responder goes on", 120)
{
	run(kill_deeds);
}

TEST_SLOW(killed_caller, "PD-3,SPD-7,DEV-4", "likewise, if the thread that posted the message copies it", 120)
{
	by_caller = true;
	run(kill_deeds);
}
