// SPDX-License-Identifier: GPL-2.0
/*
 * Two guests run this, with SIDE=a or SIDE=b. Side a works with the memory of side b, until
 * the guest of side b is killed: scripts/two-guests.d/killed. Each RC QP ends with the status of
 * its own timers. UC QPs go on.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <time.h>

#include <infiniband/keeldv.h>

#include "hosts.h"
#include "qp.h"
#include "t.h"

#define PORT	18500
/* Side a creates this file when all QPs have moved data. */
#define RUNS	"/tmp/keel-killed-runs"
#define LIMIT	400
/* Work requests of a QP at a time, and those that have to be done before the kill. */
#define WINDOW	4
#define FEW	20
/* Five packets. */
#define BYTES	20000
struct way {
	enum ibv_qp_type type;
	enum ibv_wr_opcode opcode;
	uint8_t timeout, retry_cnt;
};

static const struct way ways[] = {
	{ IBV_QPT_RC, IBV_WR_RDMA_WRITE, 17, 7 },
	{ IBV_QPT_RC, IBV_WR_SEND, 18, 3 },
	{ IBV_QPT_RC, IBV_WR_RDMA_READ, 19, 2 },
	{ IBV_QPT_RC, IBV_WR_ATOMIC_FETCH_AND_ADD, 18, 7 },
	{ IBV_QPT_RC, IBV_WR_RDMA_WRITE, 20, 2 },
	{ IBV_QPT_RC, IBV_WR_SEND, 20, 3 },
	{ IBV_QPT_UC, IBV_WR_RDMA_WRITE, 0, 0 },
	{ IBV_QPT_UC, IBV_WR_SEND, 0, 0 },
};

#define WAYS	(sizeof(ways) / sizeof(*ways))

/* A QP, as the other side knows it. */
struct told {
	union ibv_gid gid;
	uint64_t addr;
	uint32_t qpn;
	uint32_t rkey;
};

static struct user {
	const struct way *way;
	struct end e;
	struct told peer;
	uint64_t posted, done;
	long long last;		/* when the last one was done, ms */
	bool over;
} users[WAYS];

static bool is_a(void)
{
	const char *side = getenv("SIDE");

	CHECK(side && (*side == 'a' || *side == 'b'));
	return *side == 'a';
}

static long long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

/* A TCP connection between the sides. */
static int meet(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(PORT) };
	int s = SYS(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), one = 1, i;

	inet_aton("10.9.0.2", &at.sin_addr);
	if (is_a()) {
		for (i = 0; i < 600 && connect(s, (struct sockaddr *)&at, sizeof(at)); i++)
			usleep(100000);
		return s;
	}
	SYS(setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)));
	SYS(bind(s, (struct sockaddr *)&at, sizeof(at)));
	SYS(listen(s, 1));
	return SYS(accept4(s, NULL, NULL, SOCK_CLOEXEC));
}

static void post_receives(struct user *u, int n)
{
	for (; n; n--)
		post_recv(u->e.qp, 0, (struct mem){ u->e.mem, BYTES, u->e.mr->lkey });
}

static void join(int s)
{
	static const struct joint usual = { .rnr_retry = 7, .rnr_timer = 1, .psn = 0x123456 };
	struct told mine[WAYS], theirs[WAYS];
	size_t i;

	for (i = 0; i < WAYS; i++) {
		struct user *u = &users[i];

		u->way = &ways[i];
		u->e = u->way->type == IBV_QPT_RC ? end_new(!is_a()) : end_new_uc(!is_a());
		mine[i] = (struct told){ u->e.gid, (uintptr_t)u->e.mem, u->e.qp->qp_num,
					 u->e.mr->rkey };
	}
	CHECK_EQ(send(s, mine, sizeof(mine), 0), sizeof(mine));
	CHECK_EQ(recv(s, theirs, sizeof(theirs), MSG_WAITALL), sizeof(theirs));
	for (i = 0; i < WAYS; i++) {
		struct user *u = &users[i];
		struct ibv_qp qp = { .qp_num = theirs[i].qpn };
		struct end peer = { .gid = theirs[i].gid, .qp = &qp };
		struct joint j = usual;

		u->peer = theirs[i];
		j.timeout = u->way->timeout;
		j.retry_cnt = u->way->retry_cnt;
		end_connect(&u->e, &peer, &j);
		qp_allow(u->e.qp, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			 IBV_ACCESS_REMOTE_ATOMIC);
		if (!is_a())
			post_receives(u, QP_WRS / 2);
	}
	/* The other side is ready, too. */
	CHECK_EQ(send(s, mine, 1, 0), 1);
	CHECK_EQ(recv(s, mine, 1, 0), 1);
}

/* Side b: post receive WQEs again, until the guest is killed. */
static void serve(void)
{
	struct ibv_wc wc;
	size_t i;

	for (;; usleep(200))
		for (i = 0; i < WAYS; i++)
			while (ibv_poll_cq(users[i].e.cq, 1, &wc) == 1)
				post_receives(&users[i], 1);
}

static void post_next(struct user *u)
{
	struct mem mem = { u->e.mem + END_HALF, BYTES, u->e.mr->lkey };
	struct ibv_qp *qp = u->e.qp;
	uint64_t id = u->posted++;

	switch (u->way->opcode) {
	case IBV_WR_SEND:
		post_send(qp, id, mem);
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		mem.len = 8;
		post_add(qp, id, mem, u->peer.addr, u->peer.rkey, 1);
		break;
	default:
		post_rdma(qp, u->way->opcode, id, mem, u->peer.addr, u->peer.rkey);
	}
}

/* The first request has failed: when its timers were over. The others were flushed. */
static void check_end(struct user *u, const struct ibv_wc *wc)
{
	long long took = now_ms() - u->last;
	long long own = (4096LL << u->way->timeout) * (u->way->retry_cnt + 1) / 1000000;

	CHECK_EQ(wc->status, IBV_WC_RETRY_EXC_ERR);
	CHECK_EQ(wc->vendor_err, KEELDV_WHY_PEER);
	t_note("QP %zu ended after %lld ms, its timers are %lld ms", u - users, took, own);
	/* LIMIT ends those that are too late: emulated processors are slow. */
	if (took < own * 8 / 10)
		FAIL("QP %zu: got %lld ms, want %lld ms at least", u - users, took, own);
	while (++u->done < u->posted)
		CHECK_WC(u->e.cq, u->done, IBV_WC_WR_FLUSH_ERR);
	CHECK_STATE(u->e.qp, IBV_QPS_ERR);
	u->over = true;
}

static void work(struct user *u)
{
	struct ibv_wc wc;

	if (u->over)
		return;
	while (u->posted - u->done < WINDOW)
		post_next(u);
	if (ibv_poll_cq(u->e.cq, 1, &wc) != 1)
		return;
	CHECK_EQ(wc.wr_id, u->done);
	if (wc.status != IBV_WC_SUCCESS) {
		CHECK_EQ(u->way->type, IBV_QPT_RC);
		check_end(u, &wc);
		return;
	}
	u->last = now_ms();
	u->done++;
}

/* Whether all QPs have moved data, or all RC QPs are over. */
static bool all(bool over)
{
	size_t i;

	for (i = 0; i < WAYS; i++) {
		if (!over && users[i].done < FEW)
			return false;
		if (over && users[i].way->type == IBV_QPT_RC && !users[i].over)
			return false;
	}
	return true;
}

static void work_until(bool over)
{
	size_t i;

	for (; !all(over); usleep(200))
		for (i = 0; i < WAYS; i++)
			work(&users[i]);
}

/* UC knows no answers: requests are done that nobody has got. */
static void check_uc(struct user *u)
{
	uint64_t before = u->done;

	while (u->done < before + 2 * WINDOW)
		work(u);
}

TEST_SLOW(killed, "HOST-1", "the kernel of the other host is killed: each RC QP ends when its own timers are over, UC QPs go on", LIMIT)
{
	size_t i;

	unlink(RUNS);
	join(meet());
	if (!is_a())
		serve();
	work_until(false);
	SYS(close(SYS(creat(RUNS, 0600))));
	work_until(true);
	for (i = 0; i < WAYS; i++) {
		if (users[i].way->type == IBV_QPT_UC)
			check_uc(&users[i]);
		end_free(&users[i].e);
	}
}
