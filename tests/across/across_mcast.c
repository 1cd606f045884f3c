// SPDX-License-Identifier: GPL-2.0
/*
 * Datagrams to multicast groups that have members on the other host. Over siw there is no
 * multicast.
 */
#include <endian.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <signal.h>
#include <sys/wait.h>

#include "groups.h"
#include "t.h"
#include "user.h"

/* One packet of rxe has 4096 bytes, of which 96 are the header of the frame. */
#define MOST		4000

static struct crowd x;

void t_end(void)
{
	hosts_down();
}

/* A datagram of @len bytes of a has arrived. */
static void arrived(struct end *to, uint32_t len)
{
	struct ibv_wc wc = CHECK_WC(to->cq, 2, IBV_WC_SUCCESS);

	CHECK_EQ(wc.byte_len, GRH + len);
	CHECK_EQ(wc.opcode, IBV_WC_RECV);
	CHECK_EQ(wc.src_qp, x.a.qp->qp_num);
	CHECK_EQ(wc.wc_flags, IBV_WC_GRH | IBV_WC_WITH_IMM);
	CHECK_EQ(be32toh(wc.imm_data), len ^ 0xabcd);
	CHECK_MEM(to->mem + GRH, x.a.mem, len);
	CHECK_ALL(to->mem + GRH + len, 0xee, 64);
}

static void check_grh(const struct end *e, uint32_t len)
{
	const struct ip *ip = (const void *)(e->mem + 20);

	CHECK_EQ(ip->ip_v, 4);
	CHECK_EQ(ip->ip_tos, 0x28);
	CHECK_EQ(ip->ip_ttl, 5);
	CHECK_EQ(ntohs(ip->ip_len), 20 + 8 + len);
	CHECK_EQ(ntohl(ip->ip_src.s_addr), 0x0a090001);
	CHECK_EQ(ntohl(ip->ip_dst.s_addr), 0xef090001);
}

TEST(values, "HOST-1", "datagrams of 0 to 4000 bytes to a group arrive on the other host, with the GRH of the group")
{
	static const uint32_t lens[] = { 0, 1, 64, 1000, MOST - 1, MOST };
	size_t i;

	x = crowd_new();
	group_join(&x.b, &group4);
	for (i = 0; i < sizeof(lens) / sizeof(*lens); i++) {
		memset(x.a.mem, 0x51 + i, lens[i]);
		group_receive(&x.b);
		crowd_send(&x, x.ah, QP_QKEY, lens[i]);
		arrived(&x.b, lens[i]);
		check_grh(&x.b, lens[i]);
	}
	group_leave(&x.b, &group4);
	crowd_free(&x);
}

TEST(reply, "HOST-1", "a member answers the sender by the addresses of the datagram")
{
	struct ibv_ah_attr back;
	struct ibv_ah *reply;
	struct ibv_send_wr *wr;
	struct ibv_wc wc;

	x = crowd_new();
	group_join(&x.b, &group4);
	group_receive(&x.b);
	post_recv(x.a.qp, 2, end_part(&x.a, 8192, GRH + 64));
	crowd_send(&x, x.ah, QP_QKEY, 64);
	wc = CHECK_WC(x.b.cq, 2, IBV_WC_SUCCESS);
	/* ibv_init_ah_from_wc() wants a group to be an address of this host. */
	back = end_to(&x.b, &x.a);
	memcpy(back.grh.dgid.raw + 12, x.b.mem + 20 + offsetof(struct ip, ip_src), 4);
	CHECK_MEM(&back.grh.dgid, &x.a.gid, sizeof(x.a.gid));
	reply = MUST(ibv_create_ah(x.b.pd, &back));
	wr = send_wr(IBV_WR_SEND, 1, end_part(&x.b, GRH, 64));
	wr->wr.ud.ah = reply;
	wr->wr.ud.remote_qpn = wc.src_qp;
	wr->wr.ud.remote_qkey = QP_QKEY;
	post(x.b.qp, wr);
	CHECK_WC(x.b.cq, 1, IBV_WC_SUCCESS);
	wc = CHECK_WC(x.a.cq, 2, IBV_WC_SUCCESS);
	CHECK_EQ(wc.byte_len, GRH + 64);
	CHECK_EQ(wc.src_qp, x.b.qp->qp_num);
	CHECK_ALL(x.a.mem + 8192 + GRH, 0x41, 64);
	CHECK_OK(ibv_destroy_ah(reply));
	group_leave(&x.b, &group4);
	crowd_free(&x);
}

static int drops(int host)
{
	char *text = t_shell("cat /sys/class/infiniband/keel_%c/ports/1/hw_counters/ud_drops",
			     'a' + host);
	int n = atoi(text);

	free(text);
	return n;
}

/* Wait until host 0 has dropped so many. ib_core keeps counters for 10 ms. */
static void wait_drops(int n)
{
	int ms;

	for (ms = 0; drops(0) != n; ms += 20) {
		if (ms > 2000)
			FAIL("%d drops, want %d", drops(0), n);
		usleep(20000);
	}
}

/* b and d are members. */
static void check_is_long(uint32_t len)
{
	int before = drops(0);

	group_receive(&x.d);
	crowd_send(&x, x.ah, QP_QKEY, len);
	arrived(&x.d, len);
	end_is_silent(&x.b);
	wait_drops(before + 1);
}

static void check_is_short(uint32_t len)
{
	group_receive(&x.b);
	group_receive(&x.d);
	crowd_send(&x, x.ah, QP_QKEY, len);
	arrived(&x.b, len);
	arrived(&x.d, len);
}

TEST(long_ones, "HOST-1", "a datagram that does not fit into one packet reaches the members of its host only, and is counted")
{
	x = crowd_new();
	group_join(&x.b, &group4);
	group_join(&x.d, &group4);
	check_is_short(MOST);
	group_receive(&x.b);
	check_is_long(MOST + 1);
	check_is_long(4096);
	/* The MTU of the netdev decides. */
	free(host_shell(0, "ip link set keel_a mtu 1500"));
	check_is_long(937);
	check_is_long(MOST);
	crowd_send(&x, x.ah, QP_QKEY, 928);
	arrived(&x.b, 928);
	check_is_short(928);
	free(host_shell(0, "ip link set keel_a mtu 5000"));
	group_leave(&x.b, &group4);
	group_leave(&x.d, &group4);
	crowd_free(&x);
}

TEST(members, "HOST-1", "each member on the other host gets one datagram, others get none, and no more after it has left")
{
	x = crowd_new();
	group_join(&x.b, &group4);
	group_receive(&x.b);
	group_receive(&x.c);
	crowd_send(&x, x.ah, QP_QKEY, 100);
	arrived(&x.b, 100);
	end_is_silent(&x.c);
	group_join(&x.c, &group4);
	group_receive(&x.b);
	group_receive(&x.b);
	crowd_send(&x, x.ah, QP_QKEY, 200);
	arrived(&x.b, 200);
	arrived(&x.c, 200);
	end_is_silent(&x.b);
	group_leave(&x.b, &group4);
	group_receive(&x.c);
	crowd_send(&x, x.ah, QP_QKEY, 300);
	arrived(&x.c, 300);
	end_is_silent(&x.b);
	group_leave(&x.c, &group4);
	groups_wait(1, 0);
	group_receive(&x.c);
	crowd_send(&x, x.ah, QP_QKEY, 400);
	end_is_silent(&x.c);
	/* At once again. */
	group_join(&x.c, &group4);
	group_leave(&x.c, &group4);
	group_join(&x.c, &group4);
	crowd_send(&x, x.ah, QP_QKEY, 500);
	arrived(&x.c, 500);
	end_is_silent(&x.b);
	group_leave(&x.c, &group4);
	crowd_free(&x);
}

/* A user sends to another group as fast as possible, until it is killed. */
static pid_t flood_begin(int host, uid_t uid)
{
	const union ibv_gid other = { .raw = { [10] = 0xff, 0xff, 239, 9, 0, 3 } };
	pid_t pid = SYS(fork());
	struct ibv_send_wr *wr;
	struct ibv_wc wc;
	int under_way = 0;
	struct end e;

	if (pid)
		return pid;
	if (uid)
		user_become(uid);
	e = end_new_ud(host);
	qp_connect(e.qp, 0);
	wr = send_wr(IBV_WR_SEND, 1, end_part(&e, 0, 1000));
	wr->wr.ud.ah = group_ah(&e, &other);
	wr->wr.ud.remote_qpn = MULTICAST_QPN;
	wr->wr.ud.remote_qkey = QP_QKEY;
	for (;;) {
		for (; under_way < QP_WRS; under_way++)
			post(e.qp, wr);
		under_way -= ibv_poll_cq(e.cq, 1, &wc);
	}
}

static void flood_end(pid_t pid)
{
	SYS(kill(pid, SIGKILL));
	CHECK_EQ(waitpid(pid, NULL, 0), pid);
}

TEST_SLOW(at_once, "HOST-1", "when ibv_attach_mcast() returns, the lower device takes datagrams to the group, although it is busy", 60)
{
	static const char want[] = "groups 1 attached 1 ";
	pid_t pid;
	int i;

	x = crowd_new();
	pid = flood_begin(1, 1000);
	usleep(300000);
	for (i = 0; i < 50; i++) {
		group_join(&x.b, &group4);
		if (strncmp(groups_of(1), want, strlen(want)))
			FAIL("host b has \"%s\"", groups_of(1));
		group_leave(&x.b, &group4);
	}
	flood_end(pid);
	groups_wait(1, 0);
	crowd_free(&x);
}

TEST(burst, "HOST-1", "as many datagrams as there are receive WQEs arrive in turn, although they are sent at once")
{
	struct ibv_wc wc;
	int i, before;

	x = crowd_new();
	group_join(&x.b, &group4);
	crowd_get_through(&x);
	before = drops(0);
	memset(x.b.mem, 0xee, END_BYTES);
	for (i = 0; i < QP_WRS; i++)
		post_recv(x.b.qp, i, end_part(&x.b, i * 4096, GRH + 1000));
	/* More than those of one user that may be under way. */
	for (i = 0; i < QP_WRS; i++)
		crowd_post(&x, x.ah, QP_QKEY, 900 + i);
	for (i = 0; i < QP_WRS; i++)
		CHECK_WC(x.a.cq, 1, IBV_WC_SUCCESS);
	for (i = 0; i < QP_WRS; i++) {
		wc = CHECK_WC(x.b.cq, i, IBV_WC_SUCCESS);
		CHECK_EQ(wc.byte_len, GRH + 900 + i);
		CHECK_MEM(x.b.mem + i * 4096 + GRH, x.a.mem, 900 + i);
		CHECK_ALL(x.b.mem + i * 4096 + GRH + 900 + i, 0xee, 64);
	}
	wait_drops(before);
	group_leave(&x.b, &group4);
	crowd_free(&x);
}

TEST(qkey, "HOST-1", "a member gets only datagrams with its Q_Key")
{
	x = crowd_new();
	group_join(&x.b, &group4);
	group_receive(&x.b);
	crowd_send(&x, x.ah, QP_QKEY ^ 1, 64);
	crowd_send(&x, x.ah, QP_QKEY, 65);
	/* The other one would have come before. */
	arrived(&x.b, 65);
	end_is_silent(&x.b);
	group_leave(&x.b, &group4);
	crowd_free(&x);
}

TEST(own, "HOST-1", "members on the host of the sender get a datagram once, although the network returns it")
{
	x = crowd_new();
	group_join(&x.a, &group4);
	group_join(&x.d, &group4);
	group_join(&x.b, &group4);
	group_receive(&x.a);
	group_receive(&x.d);
	group_receive(&x.b);
	post_recv(x.a.qp, 3, end_part(&x.a, 8192, GRH + 4096));
	post_recv(x.d.qp, 3, end_part(&x.d, 8192, GRH + 4096));
	/* Its own WQE completes behind the receive WQE. */
	crowd_post(&x, x.ah, QP_QKEY, 64);
	CHECK_WC(x.a.cq, 2, IBV_WC_SUCCESS);
	CHECK_WC(x.a.cq, 1, IBV_WC_SUCCESS);
	CHECK_WC(x.d.cq, 2, IBV_WC_SUCCESS);
	CHECK_WC(x.b.cq, 2, IBV_WC_SUCCESS);
	end_is_silent(&x.a);
	end_is_silent(&x.d);
	group_leave(&x.a, &group4);
	group_leave(&x.b, &group4);
	group_leave(&x.d, &group4);
	crowd_free(&x);
}

/* Both have an address of the link scope. */
static int link_sgid(const struct end *e)
{
	struct ibv_gid_entry entry;
	int i;

	for (i = 0; i < 16; i++)
		if (!ibv_query_gid_ex(e->ctx, 1, i, &entry, 0) && entry.gid.raw[0] == 0xfe)
			return i;
	FAIL("no address of the link scope");
}

TEST(ipv6, "HOST-1", "a group of IPv6 reaches the other host, and no packet has addresses of both kinds")
{
	struct ibv_ah *ah6, *mixed;
	int v4, before;

	x = crowd_new();
	v4 = x.a.sgid;
	mixed = group_ah(&x.a, &group6);
	x.a.sgid = link_sgid(&x.a);
	ah6 = group_ah(&x.a, &group6);
	group_join(&x.b, &group6);
	group_receive(&x.b);
	before = drops(0);
	crowd_send(&x, mixed, QP_QKEY, 60);
	wait_drops(before + 1);
	crowd_send(&x, ah6, QP_QKEY, 70);
	arrived(&x.b, 70);
	CHECK_MEM(x.b.mem + 24, &group6, sizeof(group6));
	CHECK_EQ((uint8_t)x.b.mem[8], 0xfe);
	CHECK_EQ(ntohl(*(uint32_t *)x.b.mem) >> 20, 0x628);
	end_is_silent(&x.b);
	x.a.sgid = v4;
	group_leave(&x.b, &group6);
	CHECK_OK(ibv_destroy_ah(ah6));
	CHECK_OK(ibv_destroy_ah(mixed));
	crowd_free(&x);
}

TEST_SLOW(flood, "HOST-4", "all datagrams arrive while another QP sends to groups as fast as possible, of another user or of the same one", 60)
{
	static const uid_t uids[] = { 1000, 0 };
	pid_t pid;
	int i, j;

	x = crowd_new();
	group_join(&x.b, &group4);
	crowd_get_through(&x);
	for (i = 0; i < 2; i++) {
		pid = flood_begin(0, uids[i]);
		usleep(500000);
		for (j = 0; j < 50; j++) {
			group_receive(&x.b);
			crowd_send(&x, x.ah, QP_QKEY, 90);
			arrived(&x.b, 90);
		}
		flood_end(pid);
	}
	group_leave(&x.b, &group4);
	crowd_free(&x);
}

TEST_SLOW(mckey, "HOST-1", "mckey joins a group by rdma_cm on both hosts, and its messages arrive", 60)
{
	hosts_up();
	t_shell_status("rm -f /run/mckey");
	free(host_shell(1, "sh -c 'timeout 30 mckey -m 239.9.0.2 -b 10.9.0.2 >/run/said 2>&1; "
			"echo $? >/run/mckey' >/dev/null 2>&1 &"));
	groups_wait(1, 1);
	free(host_shell(0, "timeout 30 mckey -m 239.9.0.2 -b 10.9.0.1 -s"));
	t_shell_status("for i in $(seq 100); do [ -s /run/mckey ] && break; sleep 0.1; done");
	if (t_shell_status("grep -q '^0$' /run/mckey"))
		FAIL("the receiver says: %s", t_shell("cat /run/said"));
}
