// SPDX-License-Identifier: GPL-2.0
/*
 * Datagrams between two hosts; and rdma_cm, whose messages are datagrams of the GSI.
 */
#include <netinet/ip.h>

#include "dev.h"
#include "hosts.h"
#include "qp.h"
#include "t.h"

#define GRH	40
/* More datagrams than a QP keeps, or a link has buffers. */
#define THOUSAND	1000

static struct end a, b;
static struct ibv_ah *ah;

void t_end(void)
{
	hosts_down();
}

static void begin(void)
{
	struct ibv_ah_attr attr;

	hosts_up();
	a = end_new_ud(0);
	b = end_new_ud(1);
	qp_connect(a.qp, 0);
	qp_connect(b.qp, 0);
	attr = end_to(&a, &b);
	attr.grh.traffic_class = 0x28;
	ah = MUST(ibv_create_ah(a.pd, &attr));
}

static void end(void)
{
	CHECK_OK(ibv_destroy_ah(ah));
	end_free(&a);
	end_free(&b);
}

static struct mem part(const struct end *e, size_t off, uint32_t len)
{
	return (struct mem){ e->mem + off, len, e->mr->lkey };
}

static void send_to(struct end *from, struct ibv_ah *to, uint32_t qpn, uint32_t qkey,
		    uint32_t len)
{
	struct ibv_send_wr *wr = send_wr(IBV_WR_SEND_WITH_IMM, 1, part(from, 0, len));

	wr->imm_data = htobe32(len ^ 0xabcd);
	wr->wr.ud.ah = to;
	wr->wr.ud.remote_qpn = qpn;
	wr->wr.ud.remote_qkey = qkey;
	post(from->qp, wr);
	CHECK_WC(from->cq, 1, IBV_WC_SUCCESS);
}

/* Wait for a completion for two seconds. Return: the next one is of @imm. */
static bool wc_comes(struct ibv_cq *cq, uint32_t imm)
{
	struct ibv_wc wc;
	int i, n = 0;

	for (i = 0; i < 2000 && !n; i++) {
		n = ibv_poll_cq(cq, 1, &wc);
		if (!n)
			usleep(1000);
	}
	return n == 1 && wc.status == IBV_WC_SUCCESS && be32toh(wc.imm_data) == imm;
}

/* A datagram of @len bytes has arrived at @to from @from. */
static struct ibv_wc arrived(struct end *from, struct end *to, uint32_t len)
{
	struct ibv_wc wc = CHECK_WC(to->cq, 2, IBV_WC_SUCCESS);

	CHECK_EQ(wc.byte_len, GRH + len);
	CHECK_EQ(wc.opcode, IBV_WC_RECV);
	CHECK_EQ(wc.src_qp, from->qp->qp_num);
	CHECK_EQ(wc.wc_flags, IBV_WC_GRH | IBV_WC_WITH_IMM);
	CHECK_EQ(be32toh(wc.imm_data), len ^ 0xabcd);
	CHECK_MEM(to->mem + GRH, from->mem, len);
	CHECK_ALL(to->mem + GRH + len, 0xee, 64);
	return wc;
}

static void receive(struct end *e)
{
	memset(e->mem, 0xee, 8192);
	post_recv(e->qp, 2, part(e, 0, GRH + 4096));
}

/* An end whose receive queue has room for a burst. */
static struct end end_new_wide(int host)
{
	struct end e = end_new_ud(host);
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 1, .max_send_sge = 1, .max_recv_wr = THOUSAND,
			 .max_recv_sge = 1 },
		.qp_type = IBV_QPT_UD,
	};

	CHECK_OK(ibv_destroy_qp(e.qp));
	CHECK_OK(ibv_destroy_cq(e.cq));
	e.cq = MUST(ibv_create_cq(e.ctx, THOUSAND, NULL, NULL, 0));
	init.send_cq = e.cq;
	init.recv_cq = e.cq;
	e.qp = MUST(ibv_create_qp(e.pd, &init));
	return e;
}

/* Send datagrams as fast as the queue takes them. */
static void send_thousand(void)
{
	struct ibv_send_wr *wr;
	struct ibv_wc wc;
	int sent = 0, done = 0;

	while (done < THOUSAND) {
		for (; sent < THOUSAND && sent - done < QP_WRS; sent++) {
			wr = send_wr(IBV_WR_SEND_WITH_IMM, sent, part(&a, 0, 1000));
			wr->imm_data = htobe32(sent);
			wr->wr.ud.ah = ah;
			wr->wr.ud.remote_qpn = b.qp->qp_num;
			wr->wr.ud.remote_qkey = QP_QKEY;
			post(a.qp, wr);
		}
		wc = CHECK_WC(a.cq, done, IBV_WC_SUCCESS);
		CHECK_EQ(wc.opcode, IBV_WC_SEND);
		done++;
	}
}

/* Return: how many of them have arrived, in the order in which they were sent. */
static int thousand_arrive(void)
{
	int i;

	for (i = 0; i < THOUSAND; i++)
		post_recv(b.qp, i, part(&b, 0, GRH + 1000));
	send_thousand();
	for (i = 0; i < THOUSAND && wc_comes(b.cq, i); i++)
		;
	return i;
}

static void begin_wide(void)
{
	struct ibv_ah_attr attr;

	hosts_up();
	a = end_new_ud(0);
	b = end_new_wide(1);
	qp_connect(a.qp, 0);
	qp_connect(b.qp, 0);
	attr = end_to(&a, &b);
	ah = MUST(ibv_create_ah(a.pd, &attr));
	/* The first one establishes the connection. */
	receive(&b);
	send_to(&a, ah, b.qp->qp_num, QP_QKEY, 100);
	arrived(&a, &b, 100);
}

/* A sender that has waited 100 ms goes on: a slow machine has more attempts. */
TEST_SLOW(thousand, "HOST-4", "of a thousand datagrams none is lost, if there are receive WQEs for all", 120)
{
	int n = 0, tries;

	for (tries = 0; tries < 20 && n < THOUSAND; tries++) {
		begin_wide();
		n = thousand_arrive();
		end();
	}
	CHECK_EQ(n, THOUSAND);
}

/* The GRH names both ends. Over siw the hosts have IPv6 addresses. */
static void check_grh(void)
{
	const struct ibv_grh *grh = (const void *)b.mem;
	const struct ip *ip = (const void *)(b.mem + 20);

	if (!strcmp(hosts_over(), "siw")) {
		CHECK_EQ(ntohl(grh->version_tclass_flow) >> 20, 0x628);
		CHECK_MEM(&grh->sgid, &a.gid, sizeof(a.gid));
		CHECK_MEM(&grh->dgid, &b.gid, sizeof(b.gid));
		return;
	}
	CHECK_EQ(ip->ip_v, 4);
	CHECK_EQ(ip->ip_tos, 0x28);
	/* The kernel takes that of the route. */
	CHECK_EQ(ip->ip_ttl, 64);
	CHECK_EQ(ntohl(ip->ip_src.s_addr), 0x0a090001);
	CHECK_EQ(ntohl(ip->ip_dst.s_addr), 0x0a090002);
}

TEST(datagrams, "HOST-1", "datagrams of 0 to 4096 bytes arrive on the other host, with a GRH that leads back")
{
	static const uint32_t lens[] = { 0, 1, 64, 1000, 4095, 4096 };
	struct ibv_ah_attr back;
	struct ibv_ah *reply;
	struct ibv_wc wc;
	size_t i;

	begin();
	for (i = 0; i < sizeof(lens) / sizeof(*lens); i++) {
		memset(a.mem, 0x41 + i, lens[i]);
		receive(&b);
		send_to(&a, ah, b.qp->qp_num, QP_QKEY, lens[i]);
		wc = arrived(&a, &b, lens[i]);
		check_grh();
	}
	CHECK_OK(ibv_init_ah_from_wc(b.ctx, 1, &wc, (void *)b.mem, &back));
	CHECK_MEM(&back.grh.dgid, &a.gid, sizeof(a.gid));
	reply = MUST(ibv_create_ah(b.pd, &back));
	memset(b.mem, 0x77, 500);
	receive(&a);
	send_to(&b, reply, wc.src_qp, QP_QKEY, 500);
	arrived(&b, &a, 500);
	CHECK_OK(ibv_destroy_ah(reply));
	end();
}

TEST(lost, "HOST-1", "a datagram with a wrong Q_Key, for no QP, or without a receive WQE is lost")
{
	begin();
	memset(a.mem, 0x12, 4096);
	receive(&b);
	send_to(&a, ah, b.qp->qp_num, QP_QKEY ^ 1, 64);
	send_to(&a, ah, 0xfffffe, QP_QKEY, 64);
	send_to(&a, ah, b.qp->qp_num, QP_QKEY, 100);
	/* They would have come before. */
	arrived(&a, &b, 100);
	send_to(&a, ah, b.qp->qp_num, QP_QKEY, 200);
	usleep(200000);
	CHECK_NO_WC(b.cq);
	receive(&b);
	send_to(&a, ah, b.qp->qp_num, QP_QKEY, 300);
	arrived(&a, &b, 300);
	end();
}

static int burst_arrives(void)
{
	enum { N = 32 };
	struct ibv_send_wr *wr;
	int i, ms, connections;
	struct ibv_wc wc;
	uint64_t got = 0;

	begin();
	/* The connection is up after this. */
	receive(&b);
	send_to(&a, ah, b.qp->qp_num, QP_QKEY, 64);
	arrived(&a, &b, 64);
	connections = host_connections(0);
	for (i = 0; i < N; i++)
		post_recv(b.qp, i, part(&b, i * 8192, GRH + 4096));
	for (i = 0; i < N; i++) {
		memset(a.mem + i * 4096, i, 4096);
		wr = send_wr(IBV_WR_SEND, i, part(&a, i * 4096, 4096));
		wr->wr.ud.ah = ah;
		wr->wr.ud.remote_qpn = b.qp->qp_num;
		wr->wr.ud.remote_qkey = QP_QKEY;
		post(a.qp, wr);
	}
	for (i = 0; i < N; i++)
		CHECK_WC(a.cq, i, IBV_WC_SUCCESS);
	for (ms = 0; got < N && ms < 5000; ms++) {
		if (ibv_poll_cq(b.cq, 1, &wc) != 1) {
			usleep(1000);
			continue;
		}
		CHECK_EQ(wc.status, IBV_WC_SUCCESS);
		CHECK_EQ(wc.wr_id, got);
		CHECK_ALL(b.mem + got * 8192 + GRH, got, 4096);
		got++;
	}
	/* A slow host may seem to be gone. */
	if (host_connections(0) == connections)
		CHECK_EQ(got, N);
	end();
	return got == N;
}

TEST(burst, "HOST-1", "as many datagrams as there are receive WQEs arrive, although they are sent at once")
{
	while (!burst_arrives())
		;
}

TEST(many, "HOST-1", "datagrams to a QP that does not receive do not hold up those to others")
{
	struct end c;
	int i;

	begin();
	c = end_new_ud(1);
	qp_connect(c.qp, 0);
	memset(a.mem, 0x12, 4096);
	receive(&c);
	for (i = 0; i < 500; i++)
		send_to(&a, ah, b.qp->qp_num, QP_QKEY, 4096);
	/* One of them may find no buffer. */
	for (i = 0; i < 1000; i++) {
		struct ibv_wc wc;

		send_to(&a, ah, c.qp->qp_num, QP_QKEY, 64);
		usleep(10000);
		if (ibv_poll_cq(c.cq, 1, &wc) == 1) {
			CHECK_EQ(wc.status, IBV_WC_SUCCESS);
			CHECK_EQ(wc.byte_len, GRH + 64);
			break;
		}
	}
	CHECK(i < 1000);
	end_free(&c);
	end();
}

/* Wait for a server on host 1. */
static void wait_listener(void)
{
	int ms;

	for (ms = 0; host_shell_status(1, "rdma resource show cm_id | grep -q 'state LISTEN'");
	     ms += 50) {
		if (ms > 20000)
			FAIL("nobody listens on host 1");
		usleep(50000);
	}
	/* rdma_listen() sets the state a moment before ib_cm accepts requests. */
	usleep(300000);
}

static void check_used(const char *command)
{
	char *links = t_shell("cat /sys/kernel/debug/keel/keel_a/links");
	char over[20];

	snprintf(over, sizeof(over), " over %s_a", hosts_over());
	if (!strstr(links, over))
		FAIL("%s has used no link: %s", command, links);
	free(links);
}

TEST_SLOW(rping, "HOST-1", "rping connects by rdma_cm, and its data arrives on the other host", 60)
{
	hosts_up();
	free(host_shell(1, "rping -s -a %s -C 5 >/dev/null 2>&1 &", host_at(1, 1)));
	wait_listener();
	free(host_shell(0, "rping -c -a %s -C 5 -v", host_at(1, 0)));
	check_used("rping");
}

TEST_SLOW(ucmatose, "HOST-1", "ucmatose connects ten times at once by rdma_cm", 60)
{
	hosts_up();
	free(host_shell(1, "ucmatose -c 10 -b %s >/dev/null 2>&1 &", host_at(1, 1)));
	wait_listener();
	free(host_shell(0, "ucmatose -c 10 -s %s", host_at(1, 0)));
	check_used("ucmatose");
}
