// SPDX-License-Identifier: GPL-2.0
/*
 * Links over iWARP: the addresses of their ends, and what two hosts tell each other.
 */
#include <kunit/test.h>
#include <linux/in6.h>
#include <linux/netdevice.h>
#include <linux/slab.h>
#include <net/net_namespace.h>
#include <rdma/ib_addr.h>

#include "keel_wire.h"

#define NETDEV	7

static struct sockaddr_storage iw_v4(u32 addr)
{
	struct sockaddr_storage at = {};
	struct sockaddr_in *in = (struct sockaddr_in *)&at;

	in->sin_family = AF_INET;
	in->sin_addr.s_addr = htonl(addr);
	in->sin_port = htons(1234);
	return at;
}

static struct sockaddr_storage iw_v6(u32 first, u32 last)
{
	struct sockaddr_storage at = {};
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&at;

	in6->sin6_family = AF_INET6;
	in6->sin6_addr.s6_addr32[0] = htonl(first);
	in6->sin6_addr.s6_addr32[3] = htonl(last);
	return at;
}

/**
 * struct iw_case - two addresses
 * @name: what they are
 * @local: of this side
 * @remote: of the other side
 * @ok: are they those of a link?
 */
struct iw_case {
	const char *name;
	struct sockaddr_storage local;
	struct sockaddr_storage remote;
	bool ok;
};

/* Two addresses are those of a link, unless they are the same, or of two families. */
static void host_3_ends(struct kunit *test)
{
	const struct iw_case cases[] = {
		{ "IPv4", iw_v4(0x0a090001), iw_v4(0x0a090002), true },
		{ "IPv6", iw_v6(0x20010db8, 1), iw_v6(0x20010db8, 2), true },
		{ "the same", iw_v4(0x0a090001), iw_v4(0x0a090001), false },
		{ "the same, IPv6", iw_v6(0xfe800000, 1), iw_v6(0xfe800000, 1), false },
		{ "two families", iw_v4(0x0a090001), iw_v6(0x20010db8, 2), false },
		{ "two families", iw_v6(0x20010db8, 1), iw_v4(0x0a090002), false },
		{ "none", {}, {}, false },
	};
	struct net_device *netdev = kunit_kzalloc(test, sizeof(*netdev), GFP_KERNEL);
	struct keel_ends ends;
	int i;

	KUNIT_ASSERT_NOT_NULL(test, netdev);
	dev_net_set(netdev, &init_net);
	netdev->ifindex = NETDEV;
	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		struct iw_case c = cases[i];

		memset(&ends, 0xee, sizeof(ends));
		KUNIT_EXPECT_EQ_MSG(test, c.ok,
				    keel_iw_ends(netdev, &c.local, &c.remote, &ends), "%s",
				    c.name);
	}
	{
		struct sockaddr_storage local = iw_v4(0x0a090001), remote = iw_v4(0x0a090002);
		struct keel_ends want = { .net = init_net.net_cookie, .netdev = NETDEV };

		want.sgid.raw[10] = 0xff;
		want.sgid.raw[11] = 0xff;
		want.dgid = want.sgid;
		*(__be32 *)&want.sgid.raw[12] = htonl(0x0a090001);
		*(__be32 *)&want.dgid.raw[12] = htonl(0x0a090002);
		memset(&ends, 0xee, sizeof(ends));
		KUNIT_EXPECT_TRUE(test, keel_iw_ends(netdev, &local, &remote, &ends));
		/* They are compared as a whole, with those of RoCE. */
		KUNIT_EXPECT_MEMEQ(test, &want, &ends, sizeof(want));
	}
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
	KUNIT_EXPECT_EQ(test, 0, in6->sin6_port);
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
	KUNIT_EXPECT_EQ(test, htonl(0x0a000003), in->sin_addr.s_addr);
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
	KUNIT_CASE(host_3_ends),
	KUNIT_CASE(host_1_addr),
	KUNIT_CASE(host_3_hello),
	{}
};

static struct kunit_suite link_iw_suite = {
	.name = "keel_link_iw",
	.test_cases = link_iw_cases,
};

kunit_test_suite(link_iw_suite);
