// SPDX-License-Identifier: GPL-2.0
/*
 * XRC between two hosts: an XRC_SEND QP of one, and on the other an XRC_RECV QP and SRQs of
 * several processes, which have a domain in common.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include <infiniband/keeldv.h>

#include "hosts.h"
#include "peer.h"
#include "qp.h"
#include "t.h"

#define FILE_OF_XRCD	"/tmp/keel-across-xrc"
#define LONG		10000
/* An RNR delay of 0.96 ms. */
#define RNR_SHORT	15

/* Gives up after about 2 s, and after 7 RNR delays. */
static const struct joint hasty = {
	.timeout = 17, .retry_cnt = 3, .rnr_retry = 6, .psn = 0x123456,
};

/* A process tells the test the numbers of its SRQ and of its memory. */
struct told {
	uint32_t srqn, rkey;
	uint64_t addr;
};

/* A process of host 1. */
struct owner {
	struct end e;
	struct ibv_xrcd *xrcd;
	struct ibv_srq *srq;
	struct told told;
};

/* The requester, of host 0. */
static struct end a;
static struct peer peers[2];
static struct told told[2];

void t_after(void)
{
	unlink(FILE_OF_XRCD);
}

void t_end(void)
{
	hosts_down();
}

static struct owner owner_new(void)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = SYS(open(FILE_OF_XRCD, O_RDONLY | O_CREAT, 0644)),
		.oflags = O_CREAT,
	};
	struct owner o = { .e = end_new(1) };

	o.xrcd = MUST(ibv_open_xrcd(o.e.ctx, &attr));
	o.srq = srq_new_xrc(o.e.pd, o.xrcd, o.e.cq);
	CHECK_OK(ibv_get_srq_num(o.srq, &o.told.srqn));
	o.told.rkey = o.e.mr->rkey;
	o.told.addr = (uintptr_t)o.e.mem;
	close(attr.fd);
	return o;
}

static struct mem part(const struct end *e, size_t off, uint32_t len)
{
	return (struct mem){ e->mem + off, len, e->mr->lkey };
}

/* Receive @n messages of LONG bytes, of which the first byte is @byte, @byte + 1, ... */
static void receive(struct owner *o, int n, char byte, uint32_t qpn)
{
	struct ibv_wc wc;
	int i;

	for (i = 0; i < n; i++) {
		wc = CHECK_WC(o->e.cq, i, IBV_WC_SUCCESS);
		CHECK_EQ(wc.opcode, IBV_WC_RECV);
		CHECK_EQ(wc.byte_len, LONG);
		CHECK_EQ(wc.qp_num, qpn);
		CHECK_ALL(o->e.mem + i * LONG, byte + i, LONG);
	}
	CHECK_NO_WC(o->e.cq);
}

static void post_receives(struct owner *o, int n)
{
	int i;

	for (i = 0; i < n; i++)
		post_srq_recv(o->srq, i, part(&o->e, i * LONG, LONG));
}

/* Create the XRC_RECV QP, and connect it to @to, whose GID is that of the test. */
static struct ibv_qp *recv_new(struct owner *o, uint32_t qpn, const struct end *to)
{
	struct ibv_qp *qp = qp_new_xrc_recv(o->xrcd);
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096, .dest_qp_num = qpn,
		.rq_psn = joint_usual.psn, .max_dest_rd_atomic = 4,
		.min_rnr_timer = RNR_SHORT, .ah_attr = end_to(&o->e, to),
	};

	qp_to_init(qp);
	CHECK_OK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
			       IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			       IBV_QP_MIN_RNR_TIMER));
	return qp;
}

/* The first process: it has the QP, and an SRQ. */
static struct ibv_qp *first_new(struct peer *parent, struct owner *o)
{
	struct ibv_qp *qp;
	struct end to;
	uint32_t qpn;

	*o = owner_new();
	peer_put_var(parent, o->told);
	peer_get_var(parent, qpn);
	peer_get_var(parent, to.gid);
	qp = recv_new(o, qpn, &to);
	peer_put_var(parent, qp->qp_num);
	return qp;
}

/* The second process: it has an SRQ, and no QP. */
static struct owner second_new(struct peer *parent)
{
	struct owner o = owner_new();

	peer_put_var(parent, o.told);
	return o;
}

/*
 * Start the processes, and connect the requester to the QP of the first one. Return: the
 * number of that QP.
 */
static uint32_t begin_with(struct end (*make)(int host), void (*first)(struct peer *parent),
			   void (*second)(struct peer *parent), const struct joint *j)
{
	struct ibv_qp qp = {};
	struct end to = { .qp = &qp };

	hosts_up();
	peer_start(&peers[0], first);
	if (second)
		peer_start(&peers[1], second);
	a = make(0);
	peer_get_var(&peers[0], told[0]);
	peer_put_var(&peers[0], a.qp->qp_num);
	peer_put_var(&peers[0], a.gid);
	peer_get_var(&peers[0], qp.qp_num);
	if (second)
		peer_get_var(&peers[1], told[1]);
	to.gid = a.gid;
	to.gid.raw[15] = 2;
	end_connect(&a, &to, j);
	return qp.qp_num;
}

static uint32_t begin(void (*first)(struct peer *parent), void (*second)(struct peer *parent),
		      const struct joint *j)
{
	return begin_with(end_new_xrc, first, second, j);
}

static struct ibv_send_wr *wr_of(enum ibv_wr_opcode op, uint64_t wr_id, int to, struct mem mem)
{
	struct ibv_send_wr *wr = send_wr(op, wr_id, mem);

	wr->qp_type.xrc.remote_srqn = told[to].srqn;
	wr->wr.rdma.rkey = told[to].rkey;
	wr->wr.rdma.remote_addr = told[to].addr + END_HALF;
	return wr;
}

static void send_byte(uint64_t wr_id, int to, char byte)
{
	memset(a.mem, byte, LONG);
	post(a.qp, wr_of(IBV_WR_SEND, wr_id, to, part(&a, 0, LONG)));
}

static void end(int n)
{
	int i;

	for (i = 0; i < n; i++)
		peer_end(&peers[i]);
	end_free(&a);
}

static void first_receives(struct peer *parent)
{
	struct owner o;
	struct ibv_qp *qp = first_new(parent, &o);

	post_receives(&o, 3);
	peer_tell(parent);
	peer_wait(parent);
	receive(&o, 3, 'a', qp->qp_num);
	peer_tell(parent);
	peer_wait(parent);
	CHECK_ALL(o.e.mem + END_HALF, 'w', LONG);
}

static void second_receives(struct peer *parent)
{
	struct owner o = second_new(parent);
	uint32_t qpn;

	peer_get_var(parent, qpn);
	post_receives(&o, 3);
	peer_tell(parent);
	peer_wait(parent);
	receive(&o, 3, 'k', qpn);
	peer_tell(parent);
	peer_wait(parent);
	CHECK_ALL(o.e.mem + END_HALF, 'x', LONG);
	CHECK_EQ(*(uint64_t *)(o.e.mem + END_HALF + LONG), 7);
}

/* Write to the memory of a process, read it, and add to it. */
static void check_rdma(int to, char byte)
{
	struct ibv_send_wr *wr;

	memset(a.mem, byte, LONG);
	post(a.qp, wr_of(IBV_WR_RDMA_WRITE, 20, to, part(&a, 0, LONG)));
	CHECK_WC(a.cq, 20, IBV_WC_SUCCESS);
	post(a.qp, wr_of(IBV_WR_RDMA_READ, 21, to, part(&a, END_HALF, LONG)));
	CHECK_EQ(CHECK_WC(a.cq, 21, IBV_WC_SUCCESS).byte_len, LONG);
	CHECK_ALL(a.mem + END_HALF, byte, LONG);
	wr = wr_of(IBV_WR_ATOMIC_FETCH_AND_ADD, 22, to, part(&a, 0, 8));
	wr->wr.atomic.remote_addr = told[to].addr + END_HALF + LONG;
	wr->wr.atomic.rkey = told[to].rkey;
	wr->wr.atomic.compare_add = 7;
	post(a.qp, wr);
	CHECK_WC(a.cq, 22, IBV_WC_SUCCESS);
}

TEST(both, "HOST-1,XRC-9", "one XRC_RECV QP takes messages of another host for the SRQs and the memory of two processes")
{
	uint32_t qpn = begin(first_receives, second_receives, &joint_usual);
	int i;

	peer_put_var(&peers[1], qpn);
	for (i = 0; i < 2; i++)
		peer_wait(&peers[i]);
	for (i = 0; i < 3; i++) {
		send_byte(i, 0, 'a' + i);
		CHECK_WC(a.cq, i, IBV_WC_SUCCESS);
		send_byte(10 + i, 1, 'k' + i);
		CHECK_WC(a.cq, 10 + i, IBV_WC_SUCCESS);
	}
	for (i = 0; i < 2; i++) {
		peer_tell(&peers[i]);
		peer_wait(&peers[i]);
		check_rdma(i, 'w' + i);
	}
	for (i = 0; i < 2; i++)
		peer_tell(&peers[i]);
	end(2);
}

static void first_waits(struct peer *parent)
{
	struct owner o;

	first_new(parent, &o);
	peer_wait(parent);
}

/* The next message fails, and the QP with it. */
static void check_refused(int to, uint64_t wr_id, enum ibv_wc_status status, uint32_t why)
{
	struct ibv_wc wc;

	send_byte(wr_id, to, 'a');
	wc = CHECK_WC(a.cq, wr_id, status);
	CHECK_EQ(wc.vendor_err, why);
	CHECK_STATE(a.qp, IBV_QPS_ERR);
}

TEST(no_srq, "HOST-1,XRC-9", "a message of another host for a number that is of no SRQ is refused")
{
	begin(first_waits, NULL, &joint_usual);
	told[0].srqn = 0xfffffe;
	check_refused(0, 1, IBV_WC_REM_INV_REQ_ERR, KEELDV_WHY_SRQ);
	peer_tell(&peers[0]);
	end(1);
}

TEST(wide, "HOST-3,XRC-9", "a number of an SRQ with more than 24 bits is refused, and ends no connection")
{
	int n;

	begin(first_waits, NULL, &joint_usual);
	check_rdma(0, 'w');
	n = host_connections(0);
	told[0].srqn = 0xffffffff;
	check_refused(0, 1, IBV_WC_REM_INV_REQ_ERR, KEELDV_WHY_SRQ);
	CHECK_EQ(host_connections(0), n);
	peer_tell(&peers[0]);
	end(1);
}

static void first_stays_ready(struct peer *parent)
{
	struct owner o;
	struct ibv_qp *qp = first_new(parent, &o);

	post_receives(&o, 1);
	peer_tell(parent);
	peer_wait(parent);
	CHECK_STATE(qp, IBV_QPS_RTR);
	CHECK_NO_WC(o.e.cq);
}

TEST(rc, "HOST-1,XRC-9", "an XRC_RECV QP takes no messages of an RC QP of another host, and stays as it is")
{
	begin_with(end_new, first_stays_ready, NULL, &hasty);
	peer_wait(&peers[0]);
	check_refused(0, 1, IBV_WC_RETRY_EXC_ERR, KEELDV_WHY_PEER);
	peer_tell(&peers[0]);
	end(1);
}

static void first_posts_late(struct peer *parent)
{
	struct owner o;
	struct ibv_qp *qp = first_new(parent, &o);

	peer_wait(parent);
	post_receives(&o, 1);
	peer_wait(parent);
	receive(&o, 1, 'a', qp->qp_num);
}

TEST(rnr, "HOST-1,XRC-9", "a message of another host waits until the SRQ has a receive WQE")
{
	begin(first_posts_late, NULL, &joint_usual);
	send_byte(1, 0, 'a');
	usleep(50000);
	CHECK_NO_WC(a.cq);
	peer_tell(&peers[0]);
	CHECK_WC(a.cq, 1, IBV_WC_SUCCESS);
	peer_tell(&peers[0]);
	end(1);
}

TEST(rnr_exceeded, "HOST-1,XRC-9", "a message of another host fails if the SRQ has no receive WQE for as long as rnr_retry says")
{
	begin(first_waits, NULL, &hasty);
	check_refused(0, 1, IBV_WC_RNR_RETRY_EXC_ERR, KEELDV_WHY_NOT_READY);
	peer_tell(&peers[0]);
	end(1);
}

static void second_posts(struct peer *parent)
{
	struct owner o = second_new(parent);

	post_receives(&o, 3);
	peer_tell(parent);
	peer_wait(parent);
}

TEST(killed, "HOST-1,XRC-9", "messages of another host for the SRQ of a process that was killed are refused")
{
	begin(first_waits, second_posts, &joint_usual);
	peer_wait(&peers[1]);
	check_rdma(1, 'x');
	peer_kill(&peers[1], SIGKILL);
	check_refused(1, 1, IBV_WC_REM_INV_REQ_ERR, KEELDV_WHY_SRQ);
	peer_tell(&peers[0]);
	end(1);
}

/* Return when all its threads have stopped. */
static void stop_second(void)
{
	int status;

	SYS(kill(peers[1].pid, SIGSTOP));
	CHECK_EQ(SYS(waitpid(peers[1].pid, &status, WUNTRACED)), peers[1].pid);
	CHECK(WIFSTOPPED(status));
}

static void first_destroys(struct peer *parent)
{
	struct owner o;
	struct ibv_qp *qp = first_new(parent, &o);

	peer_wait(parent);
	CHECK_OK(ibv_destroy_qp(qp));
	peer_tell(parent);
}

TEST(stopped, "HOST-1,ISO-1", "the owner of an XRC_RECV QP destroys it, although messages of another host wait for a process that is stopped")
{
	begin(first_destroys, second_posts, &hasty);
	peer_wait(&peers[1]);
	check_rdma(1, 'x');
	stop_second();
	send_byte(1, 1, 'a');
	/* The packets arrive meanwhile; else this test only proves less. */
	usleep(50000);
	CHECK_NO_WC(a.cq);
	peer_tell(&peers[0]);
	peer_wait(&peers[0]);
	CHECK_WC(a.cq, 1, IBV_WC_RETRY_EXC_ERR);
	SYS(kill(peers[1].pid, SIGCONT));
	peer_tell(&peers[1]);
	end(2);
}

TEST(resumed, "HOST-1,XRC-9", "messages of another host for a process that was stopped arrive when it goes on")
{
	uint32_t qpn = begin(first_waits, second_receives, &joint_patient);
	int i;

	peer_put_var(&peers[1], qpn);
	peer_wait(&peers[1]);
	stop_second();
	for (i = 0; i < 3; i++) {
		memset(a.mem + i * LONG, 'k' + i, LONG);
		post(a.qp, wr_of(IBV_WR_SEND, i, 1, part(&a, i * LONG, LONG)));
	}
	usleep(50000);
	CHECK_NO_WC(a.cq);
	SYS(kill(peers[1].pid, SIGCONT));
	for (i = 0; i < 3; i++)
		CHECK_WC(a.cq, i, IBV_WC_SUCCESS);
	peer_tell(&peers[1]);
	peer_wait(&peers[1]);
	check_rdma(1, 'x');
	for (i = 0; i < 2; i++)
		peer_tell(&peers[i]);
	end(2);
}
