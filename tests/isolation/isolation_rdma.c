// SPDX-License-Identifier: GPL-2.0
/*
 * The memory behind an rkey cannot be faulted in, because its owner holds its
 * own mmap_lock. A process that reads, writes or changes that memory must not
 * be delayed: its calls return, and its WQE fails or waits.
 */
#include "iso.h"
#include "qp.h"
#include "stall.h"
#include "t.h"

/* How long the victim waits for a completion before it destroys its QP. */
#define PATIENCE_MS	500

static enum iso_type type;
static enum ibv_wr_opcode op;
static char page[ISO_PAGE] __attribute__((aligned(ISO_PAGE)));

/* Own memory that cannot be faulted in. */
static void hostile(struct peer *parent)
{
	struct iso_end e;

	iso_open(&e, KEEL0, NULL, type);
	e.mr = iso_mr(&e, stall_memory(ISO_PAGE), IBV_ACCESS_ON_DEMAND |
		      iso_flush_right());
	iso_meet(&e, parent);
	stall_hold();
	peer_tell(parent);
	pause();
}

/*
 * While the owner does not release its mmap_lock, a CQE need not come. A CQE
 * must have a status that names a remote error. A UC requester does not learn
 * of such an error. A flush touches no memory, so it may succeed.
 */
static void check_status(const struct iso_end *e, enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_REM_OP_ERR:
	case IBV_WC_RETRY_EXC_ERR:
		break;
	default:
		if (e->type != ISO_UC && op != IBV_WR_FLUSH)
			FAIL("status: got \"%s\", want a remote error or none",
			     ibv_wc_status_str(status));
		CHECK_EQ(status, IBV_WC_SUCCESS);
	}
}

static void wait_some_time(struct iso_end *e)
{
	struct ibv_wc wc;
	int ms, n = 0;

	for (ms = 0; ms < PATIENCE_MS && !n; ms += 10) {
		usleep(10000);
		n = ibv_poll_cq(e->cq, 1, &wc);
	}
	CHECK(n >= 0);
	if (n)
		check_status(e, wc.status);
}

static void victim(struct peer *parent)
{
	struct ibv_mr *mr;
	struct iso_end e;

	iso_open(&e, KEEL0, NULL, type);
	mr = iso_mr(&e, page, 0);
	iso_meet(&e, parent);
	peer_wait(parent);
	CHECK_OK(iso_rdma(&e, op, 2, mr));
	peer_tell(parent);
	wait_some_time(&e);
	peer_wait(parent);
	CHECK_OK(ibv_dereg_mr(mr));
	peer_tell(parent);
	peer_wait(parent);
	CHECK_OK(ibv_destroy_qp(e.qp));
	peer_tell(parent);
	peer_wait(parent);
}

static void start(struct stall *s, struct peer *v, enum iso_type t,
		  enum ibv_wr_opcode o)
{
	type = t;
	op = o;
	stall_start(s, hostile);
	peer_start(v, victim);
	iso_introduce(&s->peer, v);
	peer_wait(&s->peer);
}

static void check_calls(enum iso_type t, enum ibv_wr_opcode o)
{
	struct stall s;
	struct peer v;

	start(&s, &v, t, o);
	CHECK_STEP(&v, "posting");
	/* Meanwhile the victim polls for a completion. */
	usleep(PATIENCE_MS * 1000);
	CHECK_STEP(&v, "ibv_dereg_mr()");
	CHECK_STEP(&v, "ibv_destroy_qp()");
	CHECK_KILL(&v, "a process that has destroyed its QP");
	stall_end(&s);
	iso_check_empty(KEEL0);
}

/* Kill the requester while it posts, or a moment later. */
static void check_kill(enum iso_type t, enum ibv_wr_opcode o)
{
	struct stall s;
	struct peer v;

	start(&s, &v, t, o);
	peer_tell(&v);
	usleep(100000);
	CHECK_KILL(&v, "a process that has posted");
	stall_end(&s);
	iso_check_empty(KEEL0);
}

#define STALLED	" memory that cannot be faulted in, "
#define RETURN	"posting, ibv_dereg_mr() and ibv_destroy_qp() return within 1 s"
#define CALLS	RETURN ", and a CQE has a remote error"
#define KILLED	"a killed requester exits within 1 s"

TEST(read_calls, "ISO-1", "during an RDMA read of" STALLED CALLS)
{
	check_calls(ISO_RC, IBV_WR_RDMA_READ);
}

TEST(write_calls, "ISO-1", "during an RDMA write to" STALLED CALLS)
{
	check_calls(ISO_RC, IBV_WR_RDMA_WRITE);
}

TEST(uc_write_calls, "ISO-1", "during an RDMA write on UC to" STALLED RETURN)
{
	check_calls(ISO_UC, IBV_WR_RDMA_WRITE);
}

TEST(xrc_write_calls, "ISO-1", "during an RDMA write on XRC to" STALLED CALLS)
{
	check_calls(ISO_XRC, IBV_WR_RDMA_WRITE);
}

TEST(atomic_calls, "ISO-1", "during an atomic on" STALLED CALLS)
{
	check_calls(ISO_RC, IBV_WR_ATOMIC_FETCH_AND_ADD);
}

TEST(atomic_write_calls, "ISO-1", "during an atomic write to" STALLED CALLS)
{
	check_calls(ISO_RC, IBV_WR_ATOMIC_WRITE);
}

TEST_CASE(flush_calls, "ISO-1", "during a flush of" STALLED RETURN,
	  .not_kernel = "6.1.", .not_kernel_why = "which has no flush")
{
	check_calls(ISO_RC, IBV_WR_FLUSH);
}

TEST(read_kill, "ISO-1", "during an RDMA read of" STALLED KILLED)
{
	check_kill(ISO_RC, IBV_WR_RDMA_READ);
}

TEST(write_kill, "ISO-1", "during an RDMA write to" STALLED KILLED)
{
	check_kill(ISO_RC, IBV_WR_RDMA_WRITE);
}

TEST(uc_write_kill, "ISO-1", "during an RDMA write on UC to" STALLED KILLED)
{
	check_kill(ISO_UC, IBV_WR_RDMA_WRITE);
}

TEST(atomic_kill, "ISO-1", "during an atomic on" STALLED KILLED)
{
	check_kill(ISO_RC, IBV_WR_ATOMIC_FETCH_AND_ADD);
}

TEST(atomic_write_kill, "ISO-1", "during an atomic write to" STALLED KILLED)
{
	check_kill(ISO_RC, IBV_WR_ATOMIC_WRITE);
}
