// SPDX-License-Identifier: GPL-2.0
/*
 * Links that end: lower devices and devices of keel that are removed, netdevs that go
 * down, processes that are killed.
 */
#include <signal.h>
#include <sys/wait.h>

#include "hosts.h"
#include "peer.h"
#include "qp.h"
#include "t.h"

static struct end a, b;

void t_end(void)
{
	hosts_down();
}

static void begin(const struct joint *j)
{
	hosts_up();
	a = end_new(0);
	b = end_new(1);
	ends_join(&a, &b, j);
}

static void end(void)
{
	end_free(&a);
	end_free(&b);
}

static struct mem part(const struct end *e, size_t off, uint32_t len)
{
	return (struct mem){ e->mem + off, len, e->mr->lkey };
}

/* Add 1 to a word of the other host @n times; each result says that each was done once. */
static void add(struct end *from, struct end *to, uint64_t *sum, int n)
{
	for (; n; n--) {
		post_add(from->qp, *sum, part(from, 0, 8), (uintptr_t)to->mem, to->mr->rkey, 1);
		CHECK_WC(from->cq, *sum, IBV_WC_SUCCESS);
		CHECK_EQ(*(uint64_t *)from->mem, *sum);
		++*sum;
		CHECK_EQ(*(volatile uint64_t *)to->mem, *sum);
	}
}

TEST_SLOW(lower, "HOST-2", "lower devices that are removed and added again interrupt atomics, and each is done once", 240)
{
	uint64_t sum = 0;
	int i;

	begin(&joint_patient);
	for (i = 0; i < 4; i++) {
		pid_t pid;

		add(&a, &b, &sum, 20);
		pid = SYS(fork());
		if (!pid) {
			usleep(20000);
			host_lower(i % 2, 0);
			usleep(20000);
			host_lower(i % 2, 1);
			_exit(0);
		}
		add(&a, &b, &sum, 200);
		CHECK_EQ(waitpid(pid, NULL, 0), pid);
	}
	end();
}

TEST_SLOW(gone, "HOST-2", "if the lower device stays away, a message fails after its retries, and the QP works again after that", 120)
{
	struct joint j = joint_patient;
	uint64_t sum = 0;
	int i;

	j.timeout = 18;
	j.retry_cnt = 3;
	begin(&joint_patient);
	for (i = 0; i < 2; i++) {
		add(&a, &b, &sum, 3);
		qp_to(a.qp, IBV_QPS_RESET);
		qp_to(b.qp, IBV_QPS_RESET);
		ends_join(&a, &b, &j);
		host_lower(i, 0);
		post_add(a.qp, 1000, part(&a, 0, 8), (uintptr_t)b.mem, b.mr->rkey, 0);
		CHECK_WC(a.cq, 1000, IBV_WC_RETRY_EXC_ERR);
		CHECK_STATE(a.qp, IBV_QPS_ERR);
		host_lower(i, 1);
		qp_to(a.qp, IBV_QPS_RESET);
		qp_to(b.qp, IBV_QPS_RESET);
		ends_join(&a, &b, &joint_patient);
	}
	add(&a, &b, &sum, 3);
	end();
}

TEST_SLOW(cable, "HOST-2", "while the netdev is down nothing arrives, and afterwards everything does, once", 120)
{
	uint64_t sum = 0;

	begin(&joint_patient);
	add(&a, &b, &sum, 10);
	free(host_shell(1, "ip link set keel_b down"));
	post_add(a.qp, 1000, part(&a, 0, 8), (uintptr_t)b.mem, b.mr->rkey, 1);
	usleep(1500000);
	CHECK_NO_WC(a.cq);
	free(host_shell(1, "ip link set keel_b up"));
	host_address(1);
	CHECK_WC(a.cq, 1000, IBV_WC_SUCCESS);
	CHECK_EQ(*(uint64_t *)a.mem, sum);
	sum++;
	add(&a, &b, &sum, 10);
	end();
}

TEST_SLOW(keel, "HOST-2", "the device of keel on the other host can be removed while messages are on their way", 120)
{
	struct joint j = joint_patient;
	uint64_t sum = 0;
	struct ibv_wc wc;

	j.timeout = 18;
	j.retry_cnt = 3;
	begin(&j);
	add(&a, &b, &sum, 10);
	post_add(a.qp, 1000, part(&a, 0, 8), (uintptr_t)b.mem, b.mr->rkey, 1);
	free(t_shell("rdma link delete keel_b"));
	/* Only now, as the answer may come late. */
	wc = wc_get(a.cq);
	CHECK_EQ(wc.wr_id, 1000);
	CHECK_EQ(wc.status, a.mem[0] == (char)sum ? IBV_WC_SUCCESS : IBV_WC_RETRY_EXC_ERR);
	end_free(&a);
}

static void sender(struct peer *parent)
{
	union ibv_gid gid;
	uint32_t qpn;

	a = end_new(0);
	peer_put_var(parent, a.gid);
	peer_put_var(parent, a.qp->qp_num);
	b.qp = calloc(1, sizeof(*b.qp));
	peer_get_var(parent, gid);
	peer_get_var(parent, qpn);
	b.gid = gid;
	b.qp->qp_num = qpn;
	end_connect(&a, &b, &joint_patient);
	peer_tell(parent);
	for (;;) {
		post_send(a.qp, 1, part(&a, 0, END_HALF));
		CHECK_WC(a.cq, 1, IBV_WC_SUCCESS);
	}
}

TEST_SLOW(killed, "HOST-2", "a process that is killed while it sends a long message leaves its peer on the other host usable", 120)
{
	struct ibv_qp other;
	struct peer p;
	struct end e = {};

	hosts_up();
	peer_start(&p, sender);
	b = end_new(1);
	peer_get_var(&p, e.gid);
	e.qp = &other;
	peer_get_var(&p, other.qp_num);
	end_connect(&b, &e, &joint_patient);
	post_recv(b.qp, 2, part(&b, 0, END_BYTES));
	post_recv(b.qp, 3, part(&b, 0, END_BYTES));
	peer_put_var(&p, b.gid);
	peer_put_var(&p, b.qp->qp_num);
	peer_wait(&p);
	CHECK_WC(b.cq, 2, IBV_WC_SUCCESS);
	peer_kill(&p, SIGKILL);
	/* It connects to a new QP. */
	qp_to(b.qp, IBV_QPS_RESET);
	a = end_new(0);
	ends_join(&a, &b, &joint_patient);
	memset(a.mem, 0x31, 5000);
	post_recv(b.qp, 4, part(&b, 0, END_BYTES));
	post_send(a.qp, 1, part(&a, 0, 5000));
	CHECK_WC(a.cq, 1, IBV_WC_SUCCESS);
	CHECK_WC(b.cq, 4, IBV_WC_SUCCESS);
	CHECK_ALL(b.mem, 0x31, 5000);
	end();
}

TEST_SLOW(unload, "HOST-2", "the module can be unloaded while QPs of two hosts are connected", 60)
{
	uint64_t sum = 0;

	begin(&joint_patient);
	add(&a, &b, &sum, 10);
	end();
	hosts_down();
	hosts_up();
	a = end_new(0);
	b = end_new(1);
	ends_join(&a, &b, &joint_patient);
	sum = 0;
	add(&a, &b, &sum, 10);
	end();
}
