// SPDX-License-Identifier: GPL-2.0
/*
 * Multicast between hosts. See groups.h.
 */
#include <endian.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>

#include "groups.h"
#include "qp.h"
#include "t.h"

const union ibv_gid group4 = { .raw = { [10] = 0xff, 0xff, 239, 9, 0, 1 } };
const union ibv_gid group6 = { .raw = { 0xff, 0x0e, [15] = 9 } };

/* A socket in the network namespace of a host. */
static int host_socket(int host, int family)
{
	int here = SYS(open("/proc/self/ns/net", O_RDONLY)), there, fd;
	char path[40];

	sprintf(path, "/run/netns/keel_%c", 'a' + host);
	there = SYS(open(path, O_RDONLY));
	SYS(setns(there, CLONE_NEWNET));
	fd = SYS(socket(family, SOCK_DGRAM, 0));
	SYS(setns(here, CLONE_NEWNET));
	close(there);
	close(here);
	return fd;
}

static void host_joins_ipv4(int host, const union ibv_gid *group)
{
	struct ip_mreqn req = { .imr_address.s_addr = htonl(0x0a090001 + host) };

	memcpy(&req.imr_multiaddr, group->raw + 12, sizeof(req.imr_multiaddr));
	SYS(setsockopt(host_socket(host, AF_INET), IPPROTO_IP, IP_ADD_MEMBERSHIP, &req,
		       sizeof(req)));
}

static void host_joins_ipv6(int host, const union ibv_gid *group)
{
	char *index = host_shell(host, "cat /sys/class/net/keel_%c/ifindex", 'a' + host);
	struct ipv6_mreq req = { .ipv6mr_interface = atoi(index) };

	memcpy(&req.ipv6mr_multiaddr, group, sizeof(*group));
	SYS(setsockopt(host_socket(host, AF_INET6), IPPROTO_IPV6, IPV6_JOIN_GROUP, &req,
		       sizeof(req)));
	free(index);
}

void host_joins(int host, const union ibv_gid *group)
{
	if (group->raw[0] == 0xff)
		host_joins_ipv6(host, group);
	else
		host_joins_ipv4(host, group);
}

const char *groups_of(int host)
{
	static char line[200];
	char path[60], *links, *at;

	sprintf(path, "/sys/kernel/debug/keel/keel_%c/links", 'a' + host);
	links = t_read_file(path);
	at = strstr(links, "groups ");
	snprintf(line, sizeof(line), "%.*s", at ? (int)strcspn(at, "\n") : 0, at ?: "");
	free(links);
	return line;
}

void groups_wait(int host, int n)
{
	char want[80];
	int ms;

	sprintf(want, "groups %d attached %d datagrams 0 over rxe_%c", n, n, 'a' + host);
	for (ms = 0; strcmp(groups_of(host), want); ms += 10) {
		if (ms > 10000)
			FAIL("host %c has \"%s\", want \"%s\"", 'a' + host, groups_of(host), want);
		usleep(10000);
	}
}

struct ibv_ah *group_ah(const struct end *e, const union ibv_gid *group)
{
	struct ibv_ah_attr attr = end_to(e, e);

	attr.grh.dgid = *group;
	attr.grh.traffic_class = 0x28;
	attr.grh.hop_limit = 5;
	return MUST(ibv_create_ah(e->pd, &attr));
}

struct crowd crowd_new(void)
{
	struct crowd x;
	int i;

	hosts_up();
	for (i = 0; i < HOSTS; i++) {
		host_joins(i, &group4);
		host_joins(i, &group6);
	}
	x.a = end_new_ud(0);
	x.b = end_new_ud(1);
	x.c = end_new_ud(1);
	x.d = end_new_ud(0);
	qp_connect(x.a.qp, 0);
	qp_connect(x.b.qp, 0);
	qp_connect(x.c.qp, 0);
	qp_connect(x.d.qp, 0);
	memset(x.a.mem, 0x41, 8192);
	x.ah = group_ah(&x.a, &group4);
	return x;
}

void crowd_free(struct crowd *x)
{
	CHECK_OK(ibv_destroy_ah(x->ah));
	end_free(&x->a);
	end_free(&x->b);
	end_free(&x->c);
	end_free(&x->d);
}

void group_join(struct end *e, const union ibv_gid *group)
{
	CHECK_OK(ibv_attach_mcast(e->qp, group, 0));
}

void group_leave(struct end *e, const union ibv_gid *group)
{
	CHECK_OK(ibv_detach_mcast(e->qp, group, 0));
}

struct mem end_part(const struct end *e, size_t off, uint32_t len)
{
	return (struct mem){ e->mem + off, len, e->mr->lkey };
}

void group_receive(struct end *e)
{
	memset(e->mem, 0xee, 8192);
	post_recv(e->qp, 2, end_part(e, 0, GRH + 4096));
}

void end_is_silent(struct end *e)
{
	usleep(200000);
	CHECK_NO_WC(e->cq);
}

void crowd_post(struct crowd *x, struct ibv_ah *to, uint32_t qkey, uint32_t len)
{
	struct ibv_send_wr *wr = send_wr(IBV_WR_SEND_WITH_IMM, 1, end_part(&x->a, 0, len));

	wr->imm_data = htobe32(len ^ 0xabcd);
	wr->wr.ud.ah = to;
	wr->wr.ud.remote_qpn = MULTICAST_QPN;
	wr->wr.ud.remote_qkey = qkey;
	post(x->a.qp, wr);
}

void crowd_send(struct crowd *x, struct ibv_ah *to, uint32_t qkey, uint32_t len)
{
	crowd_post(x, to, qkey, len);
	CHECK_WC(x->a.cq, 1, IBV_WC_SUCCESS);
}

void crowd_get_through(struct crowd *x)
{
	struct ibv_wc wc;
	int i;

	group_receive(&x->b);
	for (i = 0; i < 5000; i++) {
		/* One that has waited 100 ms was dropped, so no other is under way. */
		if (i % 50 == 0)
			crowd_send(x, x->ah, QP_QKEY, 80);
		usleep(10000);
		if (ibv_poll_cq(x->b.cq, 1, &wc) == 1) {
			CHECK_EQ(wc.status, IBV_WC_SUCCESS);
			CHECK_EQ(wc.byte_len, GRH + 80);
			return;
		}
	}
	FAIL("nothing has arrived");
}
