// SPDX-License-Identifier: GPL-2.0
/*
 * A send WQE names on-demand memory that cannot be faulted in, because its
 * process holds its own mmap_lock. This must delay neither the target process,
 * nor others that send to the target.
 */
#include "iso.h"
#include "qp.h"
#include "stall.h"
#include "t.h"

static enum iso_type type;
static enum ibv_wr_opcode op;
/* Only the second half of the message comes from the stalled memory. */
static bool half;
/* Numbers of UD QPs. */
static struct {
	uint32_t server, third;
} *board;
static char page[ISO_PAGE] __attribute__((aligned(ISO_PAGE)));

/* Send from memory that cannot be faulted in. */
static void hostile(struct peer *parent)
{
	struct ibv_mr *mr;
	struct iso_end e;

	iso_open(&e, KEEL0, NULL, type);
	mr = iso_mr(&e, stall_memory(ISO_PAGE), IBV_ACCESS_ON_DEMAND);
	iso_meet(&e, parent);
	if (half) {
		e.split = mr;
		mr = iso_mr(&e, page, 0);
	}
	peer_wait(parent);
	stall_hold();
	peer_tell(parent);
	if (op == IBV_WR_SEND)
		iso_send(&e, 1, mr);
	else
		iso_rdma(&e, op, 1, mr);
	pause();
}

static void target_open(struct iso_end *e, struct peer *parent)
{
	iso_open(e, KEEL0, NULL, type);
	e->mr = iso_mr(e, page, 0);
	board->server = e->qp->qp_num;
	iso_meet(e, parent);
	iso_post_recv(e, 2, e->mr);
	peer_tell(parent);
	peer_wait(parent);
}

/* The target destroys its side step by step. */
static void target(struct peer *parent)
{
	struct iso_end e;

	target_open(&e, parent);
	qp_to(e.recv_qp, IBV_QPS_ERR);
	peer_tell(parent);
	peer_wait(parent);
	qp_to(e.recv_qp, IBV_QPS_RESET);
	peer_tell(parent);
	peer_wait(parent);
	CHECK_OK(ibv_destroy_qp(e.recv_qp));
	peer_tell(parent);
	peer_wait(parent);
	CHECK_OK(ibv_dereg_mr(e.mr));
	peer_tell(parent);
	peer_wait(parent);
}

/* The target deregisters its memory only. */
static void lender(struct peer *parent)
{
	struct iso_end e;

	target_open(&e, parent);
	CHECK_OK(ibv_dereg_mr(e.mr));
	peer_tell(parent);
	peer_wait(parent);
}

static void destroyer(struct peer *parent)
{
	struct iso_end e;

	target_open(&e, parent);
	CHECK_OK(ibv_destroy_qp(e.recv_qp));
	peer_tell(parent);
	peer_wait(parent);
}

/*
 * The target takes a message of the third process on each of two QPs. The UD QP
 * has one receive WQE, which the stalled datagram must not hold.
 */
static void server(struct peer *parent)
{
	struct iso_end e, rc;
	struct ibv_wc wc;

	target_open(&e, parent);
	iso_open(&rc, KEEL0, e.ctx, ISO_RC);
	rc.mr = iso_mr(&rc, page, 0);
	iso_meet(&rc, parent);
	iso_post_recv(&rc, 3, rc.mr);
	peer_tell(parent);
	CHECK_WC(rc.cq, 3, IBV_WC_SUCCESS);
	peer_tell(parent);
	wc = CHECK_WC(e.cq, 2, IBV_WC_SUCCESS);
	CHECK_EQ(wc.src_qp, board->third);
	peer_tell(parent);
	peer_wait(parent);
}

static void third(struct peer *parent)
{
	struct iso_end ud, rc;

	iso_open(&ud, KEEL0, NULL, ISO_UD);
	ud.mr = iso_mr(&ud, page, 0);
	board->third = ud.qp->qp_num;
	iso_connect(&ud, &(struct iso_addr){ .qpn = board->server });
	iso_open(&rc, KEEL0, ud.ctx, ISO_RC);
	rc.mr = iso_mr(&rc, page, 0);
	iso_meet(&rc, parent);
	peer_wait(parent);
	CHECK_OK(iso_send(&rc, 4, rc.mr));
	peer_tell(parent);
	peer_wait(parent);
	CHECK_OK(iso_send(&ud, 5, ud.mr));
	peer_tell(parent);
	peer_wait(parent);
}

static void start(struct stall *s, struct peer *v, enum iso_type t,
		  enum ibv_wr_opcode o, void (*run)(struct peer *parent))
{
	type = t;
	op = o;
	board = peer_shared(sizeof(*board));
	stall_start(s, hostile);
	peer_start(v, run);
	iso_introduce(&s->peer, v);
	/* The receive WQE is posted. */
	peer_wait(v);
	peer_tell(&s->peer);
	peer_wait(&s->peer);
	stall_settle(s);
}

static void check_end(struct stall *s, struct peer *v)
{
	CHECK_KILL(v, "a process that somebody sends to");
	stall_end(s);
	iso_check_empty(KEEL0);
}

static void check_calls(enum iso_type t, enum ibv_wr_opcode o)
{
	struct stall s;
	struct peer v;

	start(&s, &v, t, o, target);
	CHECK_STEP(&v, "ibv_modify_qp() to ERR");
	CHECK_STEP(&v, "ibv_modify_qp() to RESET");
	CHECK_STEP(&v, "ibv_destroy_qp()");
	CHECK_STEP(&v, "ibv_dereg_mr()");
	check_end(&s, &v);
}

static void check_one(enum iso_type t, enum ibv_wr_opcode o,
		      void (*run)(struct peer *parent), const char *what)
{
	struct stall s;
	struct peer v;

	start(&s, &v, t, o, run);
	CHECK_STEP(&v, what);
	check_end(&s, &v);
}

static void check_kill(enum iso_type t, enum ibv_wr_opcode o)
{
	struct stall s;
	struct peer v;

	start(&s, &v, t, o, target);
	check_end(&s, &v);
}

#define FROM	" from memory that cannot be faulted in, "
#define CALLS	"the target moves its QP to ERR and RESET, destroys the QP and deregisters its memory, each within 1 s"
#define KILLED	"a killed target exits within 1 s"

TEST(rc_calls, "ISO-1", "during an RC send" FROM CALLS)
{
	check_calls(ISO_RC, IBV_WR_SEND);
}

TEST(uc_calls, "ISO-1", "during a UC send" FROM CALLS)
{
	check_calls(ISO_UC, IBV_WR_SEND);
}

TEST(ud_calls, "ISO-1", "during a datagram" FROM CALLS)
{
	check_calls(ISO_UD, IBV_WR_SEND);
}

TEST(xrc_calls, "ISO-1", "during an XRC send" FROM CALLS)
{
	check_calls(ISO_XRC, IBV_WR_SEND);
}

TEST(write_calls, "ISO-1", "during an RDMA write" FROM CALLS)
{
	check_calls(ISO_RC, IBV_WR_RDMA_WRITE);
}

TEST(dereg, "ISO-1", "during an RDMA write" FROM "the target deregisters the written memory within 1 s")
{
	check_one(ISO_RC, IBV_WR_RDMA_WRITE, lender, "ibv_dereg_mr()");
}

TEST(destroy, "ISO-1", "during an RC send" FROM "the target destroys its QP in RTS within 1 s")
{
	check_one(ISO_RC, IBV_WR_SEND, destroyer, "ibv_destroy_qp()");
}

TEST(rc_kill, "ISO-1", "during an RC send" FROM KILLED)
{
	check_kill(ISO_RC, IBV_WR_SEND);
}

TEST(uc_kill, "ISO-1", "during a UC send" FROM KILLED)
{
	check_kill(ISO_UC, IBV_WR_SEND);
}

TEST(ud_kill, "ISO-1", "during a datagram" FROM KILLED)
{
	check_kill(ISO_UD, IBV_WR_SEND);
}

TEST(xrc_kill, "ISO-1", "during an XRC send" FROM KILLED)
{
	check_kill(ISO_XRC, IBV_WR_SEND);
}

TEST(write_kill, "ISO-1", "during an RDMA write" FROM KILLED)
{
	check_kill(ISO_RC, IBV_WR_RDMA_WRITE);
}

TEST(rc_half, "ISO-1", "during an RC send whose second half comes" FROM CALLS)
{
	half = true;
	check_calls(ISO_RC, IBV_WR_SEND);
}

TEST(third_party, "ISO-1", "during a datagram" FROM "messages of a third process to the same UD QP, and to another QP of the target, arrive within 1 s")
{
	struct stall s;
	struct peer v, t;

	start(&s, &v, ISO_UD, IBV_WR_SEND, server);
	peer_tell(&v);
	peer_start(&t, third);
	iso_introduce(&v, &t);
	peer_wait(&v);
	CHECK_STEP(&t, "ibv_post_send() by RC");
	CHECK_WITHIN(&v, "the RC message");
	CHECK_STEP(&t, "ibv_post_send() of a datagram");
	CHECK_WITHIN(&v, "the datagram");
	CHECK_KILL(&t, "the third process");
	check_end(&s, &v);
}
