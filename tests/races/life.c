// SPDX-License-Identifier: GPL-2.0
/*
 * A process is killed while it sends, and a device is removed while it is used.
 */
#include <signal.h>
#include <sys/wait.h>

#include "dev.h"
#include "duel.h"
#include "peer.h"
#include "qp.h"
#include "t.h"
#include "tree.h"

#define MIB	(1024UL * 1024)
#define LEN	(4 * MIB)
#define N_USES	6

void t_after(void)
{
	dev_del();
}

/* Memory of the victim and its killer. */
static struct shared {
	char from[LEN];
	uint32_t qpn, to_qpn, rkey;
	uint64_t addr;
	int go;
} *shared;

static struct peer victim;
static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *mr;
static char *to;
static long idle;

static void victim_run(struct peer *parent)
{
	struct ibv_pd *mine;
	struct ibv_mr *from ;
	struct ibv_send_wr *wr;
	struct ibv_qp *sender;

	/* The objects of a file live as long as any process has it. */
	SYS(close(ctx->cmd_fd));
	mine = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	from = MUST(ibv_reg_mr(mine, shared->from, LEN, 0));
	sender = qp_new(mine, cq_new(mine->context), IBV_QPT_RC, NULL);
	shared->qpn = sender->qp_num;
	peer_tell(parent);
	peer_wait(parent);
	qp_connect(sender, shared->to_qpn);
	wr = send_wr(IBV_WR_RDMA_WRITE_WITH_IMM, 1, MEM(from));
	wr->wr.rdma.remote_addr = shared->addr;
	wr->wr.rdma.rkey = shared->rkey;
	wr->imm_data = 42;
	peer_tell(parent);
	while (!__atomic_load_n(&shared->go, __ATOMIC_ACQUIRE))
		;
	post(sender, wr);
	pause();
}

static void new_victim(void)
{
	shared->go = 0;
	memset(to, 0, LEN);
	peer_start(&victim, victim_run);
	peer_wait(&victim);
	qp = qp_new(pd, cq, IBV_QPT_RC, NULL);
	qp_connect(qp, shared->qpn);
	post_recv(qp, 2, (struct mem){});
	shared->to_qpn = qp->qp_num;
	shared->rkey = mr->rkey;
	shared->addr = (uintptr_t)to;
	peer_tell(&victim);
	peer_wait(&victim);
}

/* The victim posts at once, because it waits for this. */
static void transfer(void)
{
	__atomic_store_n(&shared->go, 1, __ATOMIC_RELEASE);
}

static void kill_victim(void)
{
	SYS(kill(victim.pid, SIGKILL));
}

/*
 * The message arrived whole, with a completion, or there is none. In both cases the
 * receiver goes on, and the victim's objects are gone.
 */
static enum duel_first judge_kill(void)
{
	struct ibv_wc wc;
	int n;

	peer_kill(&victim, SIGKILL);
	CHECK_EQ(tree_count(KEEL0, NULL), idle + 1);
	n = ibv_poll_cq(cq, 1, &wc);
	CHECK(n >= 0);
	if (n) {
		CHECK_EQ(wc.status, IBV_WC_SUCCESS);
		CHECK_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
		CHECK_EQ(wc.imm_data, 42);
		CHECK_EQ(wc.byte_len, LEN);
		CHECK_MEM(to, shared->from, LEN);
	}
	CHECK_NO_WC(cq);
	CHECK_STATE(qp, IBV_QPS_RTS);
	CHECK_OK(ibv_destroy_qp(qp));
	return n ? DUEL_A : DUEL_B;
}

TEST_SLOW(kill, "PD-3,ISO-1", "SIGKILL against an RDMA write, both orders: the message arrives whole with its completion, or there is none", 240)
{
	size_t i;

	shared = peer_shared(sizeof(*shared));
	for (i = 0; i < LEN; i++)
		shared->from[i] = i * 7 + i / 4096;
	to = MUST(aligned_alloc(4096, LEN));
	ctx = dev_open(KEEL0);
	pd = MUST(ibv_alloc_pd(ctx));
	cq = cq_new(ctx);
	mr = MUST(ibv_reg_mr(pd, to, LEN, IBV_ACCESS_LOCAL_WRITE |
					  IBV_ACCESS_REMOTE_WRITE));
	idle = tree_count(KEEL0, NULL);
	duel_short(new_victim, transfer, kill_victim, judge_kill);
}

static int used;

static void use_pd(void)
{
	used = ibv_alloc_pd(ctx) ? 0 : errno;
}

static void use_mr(void)
{
	static char page[4096] __attribute__((aligned(4096)));

	used = ibv_reg_mr(pd, page, sizeof(page), 0) ? 0 : errno;
}

static void use_qp(void)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1,
			 .max_send_sge = 1, .max_recv_sge = 1 },
	};

	used = ibv_create_qp(pd, &attr) ? 0 : errno;
}

static void use_dm(void)
{
	struct ibv_alloc_dm_attr attr = { .length = 4096 };

	used = ibv_alloc_dm(ctx, &attr) ? 0 : errno;
}

static void use_cq(void)
{
	used = ibv_resize_cq(cq, 2 * QP_WRS);
}

static void use_port(void)
{
	struct ibv_port_attr attr;

	used = ibv_query_port(ctx, 1, &attr);
}

static void new_device(void)
{
	dev_add();
	ctx = dev_open(KEEL1);
	pd = MUST(ibv_alloc_pd(ctx));
	cq = cq_new(ctx);
}

static void remove_device(void)
{
	t_shell("rdma link delete " KEEL1);
}

/*
 * The removal ends the objects and what the file can do: each further call fails
 * with EIO.
 */
static enum duel_first judge_removal(void)
{
	CHECK(!dev_exists(KEEL1));
	CHECK_NULL(ibv_alloc_pd(ctx), EIO);
	if (used)
		CHECK_EQ(used, EIO);
	ibv_close_device(ctx);
	return used ? DUEL_B : DUEL_A;
}

TEST_SLOW(removal, "DEV-3", "six verbs against rdma link delete, both orders: the verb succeeds before, or fails with EIO", 1800)
{
	static void (* const uses[N_USES])(void) = {
		use_pd, use_mr, use_qp, use_dm, use_cq, use_port,
	};
	struct duel d = {
		.prepare = new_device, .b = remove_device,
		.judge = judge_removal, .slow = true,
	};
	int i;

	for (i = 0; i < N_USES; i++) {
		d.a = uses[i];
		duel_run(&d);
	}
}
