// SPDX-License-Identifier: GPL-2.0
/*
 * Datagrams over IPv6 and IPv4: the receive CQE, which describes the packet,
 * and the header in front of the message.
 */
#include <arpa/inet.h>

#include "qp.h"
#include "t.h"

#define PAGE	4096
#define LEN	64
#define GRH	40
#define IPV4	"192.0.2.93"

/* The packet type that NICs report in place of a service level. */
#define IPV6_PACKET	1
#define IPV4_PACKET	2

static char from[PAGE] __attribute__((aligned(PAGE)));
static char to[PAGE] __attribute__((aligned(PAGE)));

static struct ibv_pd *pd;
static struct mem out, in;

void t_after(void)
{
	t_shell_status("ip addr del " IPV4 "/24 dev " KEEL0 " 2>&1");
}

static void setup(void)
{
	free(t_shell("ip addr add " IPV4 "/24 dev " KEEL0));
	pd = MUST(ibv_alloc_pd(dev_open(KEEL0)));
	out = MEM(MUST(ibv_reg_mr(pd, from, PAGE, IBV_ACCESS_LOCAL_WRITE)));
	in = MEM(MUST(ibv_reg_mr(pd, to, PAGE, IBV_ACCESS_LOCAL_WRITE)));
	out.len = LEN;
	memset(from, 'f', PAGE);
	memset(to, 't', PAGE);
}

/* The GID of the netdev's IPv4 address, or the first GID, which is of IPv6. */
static uint8_t gid_index(bool ipv4, union ibv_gid *gid)
{
	union ibv_gid want = { .raw = { [10] = 0xff, [11] = 0xff } };
	int i, k;

	CHECK_EQ(inet_pton(AF_INET, IPV4, want.raw + 12), 1);
	/* A workqueue of ib_core adds the GID of a new address. */
	for (k = 0; k < 5000; k++, usleep(1000)) {
		for (i = 0; i < 16; i++) {
			CHECK_OK(ibv_query_gid(pd->context, 1, i, gid));
			if (!ipv4 || !memcmp(gid, &want, sizeof(want)))
				return i;
		}
	}
	FAIL("GIDs: got none of " IPV4 ", want one");
}

static struct ibv_ah *address(bool ipv4, union ibv_gid *gid)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1 };

	attr.grh.sgid_index = gid_index(ipv4, gid);
	attr.grh.dgid = *gid;
	attr.grh.hop_limit = 64;
	return MUST(ibv_create_ah(pd, &attr));
}

static void send_to(struct ibv_qp *from_qp, struct ibv_qp *to_qp,
		    struct ibv_ah *ah)
{
	struct ibv_send_wr *wr = send_wr(IBV_WR_SEND, 1, out);

	wr_to(wr, ah, to_qp);
	post(from_qp, wr);
}

/* Both headers end with the addresses. */
static void check_header(bool ipv4, const union ibv_gid *gid)
{
	size_t n = ipv4 ? 4 : 16;

	CHECK_EQ((uint8_t)to[ipv4 ? GRH - 20 : 0] >> 4, ipv4 ? 4 : 6);
	CHECK_MEM(to + GRH - n, gid->raw + 16 - n, n);
	CHECK_MEM(to + GRH - 2 * n, gid->raw + 16 - n, n);
	CHECK_ALL(to + GRH, 'f', LEN);
	CHECK_ALL(to + GRH + LEN, 't', LEN);
}

TEST(packet, "DEV-2", "sl in the receive CQE of a datagram tells RoCE v2 over IPv6 from IPv4, as with NICs, and an answer to its sender arrives")
{
	struct ibv_ah *ah, *back;
	union ibv_gid gid;
	struct ibv_wc wc;
	struct link l;
	int ipv4;

	setup();
	l = link_new(pd, pd, IBV_QPT_UD);
	for (ipv4 = 0; ipv4 < 2; ipv4++) {
		ah = address(ipv4, &gid);
		memset(to, 't', PAGE);
		post_recv(l.qp[1], 2, in);
		send_to(l.qp[0], l.qp[1], ah);
		CHECK_EQ(CHECK_WC(l.cq[0], 1, IBV_WC_SUCCESS).sl, 0);
		wc = CHECK_WC(l.cq[1], 2, IBV_WC_SUCCESS);
		CHECK_EQ(wc.sl, ipv4 ? IPV4_PACKET : IPV6_PACKET);
		CHECK_EQ(wc.wc_flags, IBV_WC_GRH);
		CHECK_EQ(wc.byte_len, GRH + LEN);
		CHECK_EQ(wc.src_qp, l.qp[0]->qp_num);
		check_header(ipv4, &gid);

		back = MUST(ibv_create_ah_from_wc(pd, &wc, (void *)to, 1));
		post_recv(l.qp[0], 3, in);
		send_to(l.qp[1], l.qp[0], back);
		CHECK_WC(l.cq[1], 1, IBV_WC_SUCCESS);
		wc = CHECK_WC(l.cq[0], 3, IBV_WC_SUCCESS);
		CHECK_EQ(wc.sl, ipv4 ? IPV4_PACKET : IPV6_PACKET);
		CHECK_OK(ibv_destroy_ah(back));
		CHECK_OK(ibv_destroy_ah(ah));
	}
	link_free(&l);
}

static struct ibv_cq_ex *cq_with_sl(void)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = QP_WRS, .wc_flags = IBV_WC_EX_WITH_SL,
	};

	return MUST(ibv_create_cq_ex(pd->context, &attr));
}

TEST(packet_ex, "DEV-2", "ibv_wc_read_sl() returns the same packet type")
{
	struct ibv_qp *a, *b;
	struct ibv_cq_ex *cq;
	union ibv_gid gid;
	struct ibv_ah *ah;
	int ipv4;

	setup();
	cq = cq_with_sl();
	a = qp_new(pd, cq_new(pd->context), IBV_QPT_UD, NULL);
	b = qp_new(pd, ibv_cq_ex_to_cq(cq), IBV_QPT_UD, NULL);
	qp_join(a, b);
	for (ipv4 = 0; ipv4 < 2; ipv4++) {
		ah = address(ipv4, &gid);
		post_recv(b, 2, in);
		send_to(a, b, ah);
		wc_start_poll(cq);
		CHECK_EQ(cq->wr_id, 2);
		CHECK_EQ(cq->status, IBV_WC_SUCCESS);
		CHECK_EQ(ibv_wc_read_sl(cq), ipv4 ? IPV4_PACKET : IPV6_PACKET);
		ibv_end_poll(cq);
		CHECK_OK(ibv_destroy_ah(ah));
	}
}

TEST(connected, "DEV-2", "sl is 0 in the receive CQE of a connected QP")
{
	struct link l;

	setup();
	l = link_new(pd, pd, IBV_QPT_RC);
	post_recv(l.qp[1], 2, in);
	post_send(l.qp[0], 1, out);
	CHECK_EQ(CHECK_WC(l.cq[1], 2, IBV_WC_SUCCESS).sl, 0);
	CHECK_EQ(CHECK_WC(l.cq[0], 1, IBV_WC_SUCCESS).sl, 0);
	link_free(&l);
}
