// SPDX-License-Identifier: GPL-2.0
/*
 * Requests for connections that one host forges in the names of others: host 1 sends them to
 * host 0, as the messages of ib_cm that they are.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <signal.h>
#include <sys/wait.h>

#include "cm.h"
#include "hosts.h"
#include "qp.h"
#include "t.h"

#define LINKS		"/sys/kernel/debug/keel/keel_a/links"
/* Names: 10.9.0.NAME to 10.9.0.NAME + NAMES - 1. */
#define NAME		32
#define NAMES		200

/* 10.9.0.0 */
#define NET		0x0a090000

static struct end a, b, forger;
static struct ibv_ah *victim;

void t_end(void)
{
	hosts_down();
}

/* A request that an honest host with the address 10.9.0.@last would send. */
static struct cm_req honest(int last)
{
	return cm_req_of(NET + last, NET + 1);
}

static void send_req(const struct cm_req *req)
{
	struct ibv_send_wr *wr;

	memcpy(forger.mem, req, sizeof(*req));
	wr = send_wr(IBV_WR_SEND, 1, (struct mem){ forger.mem, sizeof(*req), forger.mr->lkey });
	wr->wr.ud.ah = victim;
	wr->wr.ud.remote_qpn = GSI_QPN;
	wr->wr.ud.remote_qkey = GSI_QKEY;
	post(forger.qp, wr);
	CHECK_WC(forger.cq, 1, IBV_WC_SUCCESS);
}

static void forger_new(void)
{
	struct ibv_ah_attr to = { .is_global = 1, .port_num = 1, .grh.hop_limit = 64 };

	forger = end_new_lower(1);
	to.grh.sgid_index = forger.sgid;
	to.grh.dgid = gid_of_ipv4(NET + 1);
	victim = MUST(ibv_create_ah(forger.pd, &to));
	qp_ud_ready(forger.qp, GSI_QKEY);
}

static void begin(void)
{
	hosts_up();
	forger_new();
}

static void end(void)
{
	CHECK_OK(ibv_destroy_ah(victim));
	end_free(&forger);
}

/* To the victim, the names look as if hosts had them. */
static void names_exist(void)
{
	int i;

	for (i = 0; i < NAMES; i++)
		free(host_shell(0, "ip neigh replace 10.9.0.%d lladdr 02:00:00:00:00:01 dev keel_a "
				"nud permanent", NAME + i));
}

/* Send requests until it is killed. */
static pid_t flood(void)
{
	pid_t pid = SYS(fork());
	struct cm_req req;
	int i;

	/* The memory of the QP of the parent is not that of the child. */
	if (!pid)
		forger_new();
	for (i = 0; !pid; i++) {
		req = honest(NAME + i % NAMES);
		send_req(&req);
		usleep(5000);
	}
	return pid;
}

static void flood_end(pid_t pid)
{
	SYS(kill(pid, SIGKILL));
	CHECK_EQ(waitpid(pid, NULL, 0), pid);
}

/* A new connection comes up, which host @from asks for. */
static void works(int from)
{
	struct end *x = from ? &b : &a, *y = from ? &a : &b;

	/* That of before ends. */
	host_lower(0, 0);
	host_lower(0, 1);
	a = end_new(0);
	b = end_new(1);
	ends_join(&a, &b, &joint_patient);
	post_add(x->qp, 7, (struct mem){ x->mem, 8, x->mr->lkey }, (uintptr_t)y->mem,
		 y->mr->rkey, 1);
	CHECK_WC(x->cq, 7, IBV_WC_SUCCESS);
	end_free(&a);
	end_free(&b);
}

/* Does host 0 have a link to 10.9.0.@last? */
static bool has_link(int last)
{
	char *links = t_read_file(LINKS), text[40];
	bool has;

	snprintf(text, sizeof(text), " to ::ffff:10.9.0.%d ", last);
	has = strstr(links, text);
	free(links);
	return has;
}

static void wait_link(int last)
{
	int ms;

	for (ms = 0; !has_link(last); ms += 10) {
		if (ms > 5000)
			FAIL("no link to 10.9.0.%d", last);
		usleep(10000);
	}
}

/* A request has no effect, as the link of a later one shows. */
static void ignored(const struct cm_req *req, int last)
{
	struct cm_req control = honest(last);

	send_req(req);
	send_req(&control);
	wait_link(last);
	/* ib_cm may look at the first request later. */
	usleep(50000);
	CHECK(!has_link(NAME));
}

TEST_SLOW(values, "HOST-3", "requests with values that no host of keel sends are ignored", 60)
{
	struct cm_req req;
	int last = NAME;

	begin();
	names_exist();
	req = honest(NAME);
	req.hello.version = htole16(77);
	ignored(&req, ++last);
	req = honest(NAME);
	req.hello.magic = 0;
	ignored(&req, ++last);
	req = honest(NAME);
	req.ack_timeout = 31 << 3;
	ignored(&req, ++last);
	req = honest(NAME);
	req.psn_timeout = htonl(0x1234 << 8 | 31 << 3 | 7);
	ignored(&req, ++last);
	req = honest(NAME);
	req.eecn_timeout = htonl(31 << 3);
	ignored(&req, ++last);
	/* This host, a group, and nobody. */
	req = honest(1);
	ignored(&req, ++last);
	CHECK(!has_link(1));
	req = honest(NAME);
	req.from.raw[12] = 224;
	ignored(&req, ++last);
	req = honest(NAME);
	memset(&req.from, 0, sizeof(req.from));
	ignored(&req, ++last);
	/* Only these values made the difference. */
	req = honest(NAME);
	send_req(&req);
	wait_link(NAME);
	end();
}

TEST_SLOW(absent, "HOST-3", "requests in the name of hosts that are not there make no link, and hold up no other", 120)
{
	pid_t pid;
	int i;

	begin();
	/* A test before may have made them known. */
	free(host_shell(0, "ip neigh flush all nud permanent"));
	pid = flood();
	sleep(2);
	works(0);
	for (i = 0; i < NAMES; i++)
		CHECK(!has_link(NAME + i));
	flood_end(pid);
	end();
}

TEST_SLOW(many, "HOST-3", "requests in the name of many hosts keep no other host away, and leave nothing", 120)
{
	pid_t pid;
	int i, ms;

	begin();
	names_exist();
	pid = flood();
	wait_link(NAME + 1);
	works(0);
	works(1);
	flood_end(pid);
	for (i = 0; i < NAMES; i++)
		for (ms = 0; has_link(NAME + i); ms += 10) {
			if (ms > 20000)
				FAIL("the link to 10.9.0.%d stays", NAME + i);
			usleep(10000);
		}
	end();
}
