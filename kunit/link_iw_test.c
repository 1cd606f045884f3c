// SPDX-License-Identifier: GPL-2.0
/*
 * Links over iWARP: the addresses of their ends, and what two hosts tell each other.
 */
#include <kunit/test.h>
#include <linux/in6.h>
#include <linux/netdevice.h>
#include <linux/slab.h>
#include <net/ipv6.h>
#include <net/net_namespace.h>
#include <rdma/ib_addr.h>

#include "keel_conn.h"

#define NETDEV	7

/* An address of a family, 4 or 6, or of none. */
static void iw_at(struct sockaddr_storage *at, int family, u8 last)
{
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)at;
	struct sockaddr_in *in = (struct sockaddr_in *)at;

	memset(at, 0, sizeof(*at));
	if (family == 4) {
		in->sin_family = AF_INET;
		in->sin_addr.s_addr = htonl(0x0a090000 + last);
		in->sin_port = htons(1234);
	} else if (family == 6) {
		in6->sin6_family = AF_INET6;
		in6->sin6_addr.s6_addr[0] = 0x20;
		in6->sin6_addr.s6_addr[15] = last;
	}
}

/**
 * struct iw_case - two addresses
 * @name: what they are
 * @local: family of this side
 * @local_last: last byte of its address
 * @remote: family of the other side
 * @remote_last: last byte of its address
 * @ok: are they those of a link?
 */
struct iw_case {
	const char *name;
	int local;
	u8 local_last;
	int remote;
	u8 remote_last;
	bool ok;
};

/* Two addresses are those of a link, unless they are the same, or of two families. */
static const struct iw_case iw_cases[] = {
	{ "IPv4", 4, 1, 4, 2, true },
	{ "IPv6", 6, 1, 6, 2, true },
	{ "the same", 4, 1, 4, 1, false },
	{ "the same, IPv6", 6, 1, 6, 1, false },
	{ "two families", 4, 1, 6, 2, false },
	{ "two families", 6, 1, 4, 2, false },
	{ "none", 0, 0, 0, 0, false },
};

static struct net_device *iw_netdev(struct kunit *test)
{
	struct net_device *netdev = kunit_kzalloc(test, sizeof(*netdev), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, netdev);
	dev_net_set(netdev, &init_net);
	netdev->ifindex = NETDEV;
	return netdev;
}

static void host_3_pairs(struct kunit *test)
{
	struct net_device *netdev = iw_netdev(test);
	struct sockaddr_storage local, remote;
	struct keel_ends ends;
	int i;

	for (i = 0; i < ARRAY_SIZE(iw_cases); i++) {
		iw_at(&local, iw_cases[i].local, iw_cases[i].local_last);
		iw_at(&remote, iw_cases[i].remote, iw_cases[i].remote_last);
		KUNIT_EXPECT_EQ_MSG(test, iw_cases[i].ok,
				    keel_iw_ends(netdev, &local, &remote, &ends), "%s",
				    iw_cases[i].name);
	}
}

/* They are compared as a whole, with those of RoCE. */
static void host_3_ends(struct kunit *test)
{
	struct keel_ends ends, want = { .net = init_net.net_cookie, .netdev = NETDEV };
	struct sockaddr_storage local, remote;

	ipv6_addr_set_v4mapped(htonl(0x0a090001), (struct in6_addr *)&want.sgid);
	ipv6_addr_set_v4mapped(htonl(0x0a090002), (struct in6_addr *)&want.dgid);
	memset(&ends, 0xee, sizeof(ends));
	iw_at(&local, 4, 1);
	iw_at(&remote, 4, 2);
	KUNIT_EXPECT_TRUE(test, keel_iw_ends(iw_netdev(test), &local, &remote, &ends));
	KUNIT_EXPECT_MEMEQ(test, &want, &ends, sizeof(want));
}

/* Only addresses of the link scope name the netdev. */
static void host_1_addr(struct kunit *test)
{
	struct sockaddr_storage at;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&at;
	struct sockaddr_in *in = (struct sockaddr_in *)&at;
	union ib_gid gid = {};

	gid.raw[0] = 0xfe;
	gid.raw[1] = 0x80;
	gid.raw[15] = 1;
	keel_iw_addr(&gid, NETDEV, &at);
	KUNIT_EXPECT_EQ(test, AF_INET6, at.ss_family);
	KUNIT_EXPECT_EQ(test, NETDEV, in6->sin6_scope_id);
	KUNIT_EXPECT_EQ(test, 0, ntohs(in6->sin6_port));
	KUNIT_EXPECT_MEMEQ(test, gid.raw, in6->sin6_addr.s6_addr, sizeof(gid));
	gid.raw[0] = 0x20;
	keel_iw_addr(&gid, NETDEV, &at);
	KUNIT_EXPECT_EQ(test, 0, in6->sin6_scope_id);
	memset(&gid, 0, sizeof(gid));
	gid.raw[10] = 0xff;
	gid.raw[11] = 0xff;
	gid.raw[12] = 10;
	gid.raw[15] = 3;
	keel_iw_addr(&gid, NETDEV, &at);
	KUNIT_EXPECT_EQ(test, AF_INET, at.ss_family);
	KUNIT_EXPECT_EQ(test, 0x0a000003, ntohl(in->sin_addr.s_addr));
}

/* Only root has ports below 1024. */
static void host_3_root(struct kunit *test)
{
	struct sockaddr_storage at;
	int family;

	for (family = 4; family <= 6; family += 2) {
		iw_at(&at, family, 1);
		/* Both have it at the same place. */
		((struct sockaddr_in *)&at)->sin_port = htons(1023);
		KUNIT_EXPECT_TRUE(test, keel_iw_is_root(&at));
		((struct sockaddr_in *)&at)->sin_port = htons(1024);
		KUNIT_EXPECT_FALSE(test, keel_iw_is_root(&at));
		((struct sockaddr_in *)&at)->sin_port = htons(0xff);
		KUNIT_EXPECT_TRUE(test, keel_iw_is_root(&at));
		((struct sockaddr_in *)&at)->sin_port = htons(0xff00);
		KUNIT_EXPECT_FALSE(test, keel_iw_is_root(&at));
	}
}

static void iw_no_work(struct work_struct *work)
{
	keel_link_put(container_of(work, struct keel_link, work));
}

/* Buffers that the hello does not tell of are credits that are owed. */
static void host_3_hello(struct kunit *test)
{
	struct keel_lower lower = {};
	struct keel_ends ends = {};
	struct keel_hello hello;
	struct keel_conn *conn;
	struct keel_link *link;

	kref_init(&lower.ref);
	init_completion(&lower.gone);
	keel_links_init(iw_no_work);
	link = keel_link_alloc(NULL, &ends, GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, link);
	conn = keel_conn_new(link, &lower);
	KUNIT_ASSERT_NOT_NULL(test, conn);
	keel_hello_set(&hello, conn, KEEL_LINK_SPARE);
	KUNIT_EXPECT_EQ(test, KEEL_LINK_SPARE, le16_to_cpu(hello.credits));
	KUNIT_EXPECT_TRUE(test, hello.cookie == conn->cookie);
	KUNIT_EXPECT_TRUE(test, keel_conn_up(conn));
	scoped_guard(spinlock, &conn->lock)
		KUNIT_EXPECT_EQ(test, KEEL_LINK_RECVS - KEEL_LINK_SPARE, conn->owed);
	KUNIT_EXPECT_TRUE(test, keel_hello_is_known(&hello));
	hello.version = cpu_to_le16(KEEL_FRAME_VERSION + 1);
	KUNIT_EXPECT_FALSE(test, keel_hello_is_known(&hello));
	hello.version = cpu_to_le16(KEEL_FRAME_VERSION);
	hello.magic = 0;
	KUNIT_EXPECT_FALSE(test, keel_hello_is_known(&hello));
	keel_conn_destroy(conn);
	KUNIT_EXPECT_EQ(test, 1, kref_read(&lower.ref));
	keel_link_put(link);
}

static struct kunit_case link_iw_cases[] = {
	KUNIT_CASE(host_3_pairs),
	KUNIT_CASE(host_3_ends),
	KUNIT_CASE(host_1_addr),
	KUNIT_CASE(host_3_root),
	KUNIT_CASE(host_3_hello),
	{}
};

static struct kunit_suite link_iw_suite = {
	.name = "keel_link_iw",
	.test_cases = link_iw_cases,
};

kunit_test_suite(link_iw_suite);
