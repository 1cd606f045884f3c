// SPDX-License-Identifier: GPL-2.0
/*
 * A device that the tests create and remove: its limits, its port, and what it frees.
 */
#include <kunit/test.h>
#include <linux/err.h>
#include <linux/if_arp.h>
#include <linux/mm.h>
#include <linux/netdevice.h>
#include <linux/sizes.h>
#include <rdma/ib_cache.h>
#include <rdma/rdma_netlink.h>

#include "keel.h"
#include "keel_device.h"
#include "keel_limits.h"

static int device_init(struct kunit *test)
{
	struct keel_dev_spec spec = { .name = "keel%d" };
	struct ib_device *ibdev;

	spec.ap = keel_aperture_mem_create(PAGE_SIZE);
	if (IS_ERR(spec.ap))
		return PTR_ERR(spec.ap);
	ibdev = keel_dev_create_own(&spec);
	if (IS_ERR(ibdev)) {
		keel_aperture_destroy(spec.ap);
		return PTR_ERR(ibdev);
	}
	test->priv = ibdev;
	return 0;
}

static void device_exit(struct kunit *test)
{
	struct ib_device *ibdev = test->priv;

	if (!ibdev)
		return;
	test->priv = NULL;
	ib_unregister_device(ibdev);
	put_device(&ibdev->dev);
}

/* DEV-2, ISO-5: the limits that the device reports are those that users share. */
static void dev_2_iso_5_limits(struct kunit *test)
{
	struct ib_device *ibdev = test->priv;
	const struct ib_device_attr *attr = &ibdev->attrs;
	const u64 *limit = to_kdev(ibdev)->reg.quotas.limit;
	u64 ram = (u64)totalram_pages() << PAGE_SHIFT;

	KUNIT_EXPECT_EQ(test, keel_limit_scale(262144, ram), limit[KEEL_PD]);
	KUNIT_EXPECT_EQ(test, keel_limit_scale(262144, ram), limit[KEEL_CQ]);
	KUNIT_EXPECT_EQ(test, keel_limit_scale(262144, ram), limit[KEEL_SRQ]);
	KUNIT_EXPECT_EQ(test, keel_limit_scale(262144, ram), limit[KEEL_QP]);
	KUNIT_EXPECT_EQ(test, keel_limit_scale(1048576, ram), limit[KEEL_MR]);
	KUNIT_EXPECT_EQ(test, keel_limit_scale(1048576, ram), limit[KEEL_MW]);
	KUNIT_EXPECT_EQ(test, keel_limit_scale(1048576, ram), limit[KEEL_AH]);
	KUNIT_EXPECT_EQ(test, (u64)attr->max_pd, limit[KEEL_PD]);
	KUNIT_EXPECT_EQ(test, (u64)attr->max_mr, limit[KEEL_MR]);
	KUNIT_EXPECT_EQ(test, (u64)attr->max_mw, limit[KEEL_MW]);
	KUNIT_EXPECT_EQ(test, (u64)attr->max_ah, limit[KEEL_AH]);
	KUNIT_EXPECT_EQ(test, (u64)attr->max_qp, limit[KEEL_QP]);
	KUNIT_EXPECT_EQ(test, (u64)attr->max_cq, limit[KEEL_CQ]);
	KUNIT_EXPECT_EQ(test, (u64)attr->max_srq, limit[KEEL_SRQ]);
	KUNIT_EXPECT_EQ(test, (u64)attr->max_mcast_grp, limit[KEEL_RES_GROUPS]);
	KUNIT_EXPECT_EQ(test, (u64)PAGE_SIZE, limit[KEEL_RES_DM_BYTES]);
	/* ibv_query_device() does not report these. */
	KUNIT_EXPECT_EQ(test, keel_limit_scale(262144, ram), limit[KEEL_TD]);
	KUNIT_EXPECT_EQ(test, keel_limit_scale(262144, ram), limit[KEEL_XRCD]);
	KUNIT_EXPECT_EQ(test, keel_limit_scale(1048576, ram), limit[KEEL_DM]);
	KUNIT_EXPECT_EQ(test, 1ULL << 32, limit[KEEL_RES_HANDLES]);
}

struct scale_case {
	const char *desc;
	u64 ram;
	unsigned int limit;
};

static const struct scale_case scale_cases[] = {
	{ "no memory", 0, 16384 },
	{ "512 MiB", SZ_512M, 16384 },
	{ "1 GiB", SZ_1G, 16384 },
	{ "more than 1 GiB", SZ_1G + PAGE_SIZE, 32768 },
	{ "4 GB", 4000000000ULL, 65536 },
	{ "8 GiB", SZ_8G, 131072 },
	{ "8 GiB and a page", SZ_8G + PAGE_SIZE, 262144 },
	{ "16 GB", 16000000000ULL, 262144 },
	{ "16 GiB", SZ_16G, 262144 },
	{ "16 GiB and a page", SZ_16G + PAGE_SIZE, 262144 },
	{ "all memory", U64_MAX, 262144 },
};
KUNIT_ARRAY_PARAM_DESC(scale, scale_cases, desc);

/* DEV-2: a machine with little memory has lower limits. */
static void dev_2_limit_scale(struct kunit *test)
{
	const struct scale_case *c = test->param_value;

	KUNIT_EXPECT_EQ(test, c->limit, keel_limit_scale(262144, c->ram));
	KUNIT_EXPECT_EQ(test, 4 * c->limit, keel_limit_scale(1048576, c->ram));
}

/* DEV-2: the port has one pkey, and no other index has one. */
static void dev_2_pkey(struct kunit *test)
{
	struct ib_device *ibdev = test->priv;
	u16 pkey = 0;

	KUNIT_EXPECT_EQ(test, 0, ib_query_pkey(ibdev, KEEL_PORT, 0, &pkey));
	KUNIT_EXPECT_EQ(test, 0xffff, pkey);
	pkey = 0x1234;
	KUNIT_EXPECT_EQ(test, -EINVAL, ib_query_pkey(ibdev, KEEL_PORT, 1, &pkey));
	KUNIT_EXPECT_EQ(test, -EINVAL, ib_query_pkey(ibdev, KEEL_PORT, U16_MAX, &pkey));
	KUNIT_EXPECT_EQ(test, 0x1234, pkey);
}

static void tunnel_setup(struct net_device *netdev)
{
	netdev->type = ARPHRD_NONE;
}

/* DEV-1: "rdma link add" refuses a netdev without a MAC address. */
static void dev_1_no_mac(struct kunit *test)
{
	struct net_device *netdev = alloc_netdev(0, "keelkunit%d", NET_NAME_UNKNOWN,
						 tunnel_setup);

	KUNIT_ASSERT_NOT_NULL(test, netdev);
	KUNIT_EXPECT_EQ(test, -EINVAL, keel_link_ops.newlink("keel_kunit", netdev));
	free_netdev(netdev);
}

/* DEV-2: the GIDs of the port are IP addresses, and all its counters start at 0. */
static void dev_2_port(struct kunit *test)
{
	struct ib_device *ibdev = test->priv;
	struct ib_port_attr attr = {};
	struct rdma_hw_stats *stats;
	int i, n;

	KUNIT_ASSERT_EQ(test, 0, ib_query_port(ibdev, KEEL_PORT, &attr));
	KUNIT_EXPECT_TRUE(test, attr.ip_gids);
	stats = ibdev->ops.alloc_hw_port_stats(ibdev, KEEL_PORT);
	KUNIT_ASSERT_NOT_NULL(test, stats);
	memset(stats->value, 0xa5, KEEL_NCOUNTERS * sizeof(*stats->value));
	n = ibdev->ops.get_hw_stats(ibdev, stats, KEEL_PORT, 0);
	KUNIT_EXPECT_EQ(test, (int)KEEL_NCOUNTERS, n);
	for (i = 0; i < n; i++)
		KUNIT_EXPECT_EQ_MSG(test, 0ULL, stats->value[i], "%s",
				    stats->descs[i].name);
	rdma_free_hw_stats_struct(stats);
}

/* DM-1: programs cannot map memory that the processor encrypts. */
static void dm_1_encrypted(struct kunit *test)
{
	struct ib_dm_alloc_attr attr = { .length = 8 };
	struct ib_device *ibdev = test->priv;
	struct ib_dm *dm;

	to_kdev(ibdev)->ap->encrypted = true;
	dm = ibdev->ops.alloc_dm(ibdev, NULL, &attr, NULL);
	KUNIT_EXPECT_PTR_EQ(test, ERR_PTR(-EOPNOTSUPP), dm);
	to_kdev(ibdev)->ap->encrypted = false;
}

/* DEV-3: the removed device has no reference on its state page any more. */
static void dev_3_state_page(struct kunit *test)
{
	struct ib_device *ibdev = test->priv;
	struct page *page = to_kdev(ibdev)->state;

	KUNIT_ASSERT_NOT_NULL(test, page);
	get_page(page);
	KUNIT_EXPECT_EQ(test, 2, page_count(page));
	device_exit(test);
	KUNIT_EXPECT_EQ(test, 1, page_count(page));
	put_page(page);
}

static struct kunit_case device_cases[] = {
	KUNIT_CASE(dev_2_iso_5_limits),
	KUNIT_CASE_PARAM(dev_2_limit_scale, scale_gen_params),
	KUNIT_CASE(dev_2_pkey),
	KUNIT_CASE(dev_1_no_mac),
	KUNIT_CASE(dev_2_port),
	KUNIT_CASE(dm_1_encrypted),
	KUNIT_CASE(dev_3_state_page),
	{}
};

static struct kunit_suite device_suite = {
	.name = "keel_device",
	.init = device_init,
	.exit = device_exit,
	.test_cases = device_cases,
};
kunit_test_suite(device_suite);
