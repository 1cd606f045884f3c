// SPDX-License-Identifier: GPL-2.0
/*
 * "rdma link add" on a netdev that goes away meanwhile, and a device that is enabled
 * again, as a move to another network namespace does.
 */
#include <kunit/test.h>
#include <linux/err.h>
#include <linux/etherdevice.h>
#include <linux/mm.h>
#include <linux/netdevice.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_netlink.h>

#include "keel.h"
#include "keel_device.h"

#define NAME	"keel_kunit"

/*
 * DEV-1, DEV-3: the netdev is not registered, as one that was removed before keel's
 * notifier could find the device. So the device goes, too.
 */
static void dev_1_dev_3_netdev_gone(struct kunit *test)
{
	struct net_device *netdev = alloc_etherdev(0);
	struct ib_device *ibdev;

	KUNIT_ASSERT_NOT_NULL(test, netdev);
	eth_hw_addr_random(netdev);
	KUNIT_EXPECT_EQ(test, -ENODEV, keel_link_ops.newlink(NAME, netdev));
	ibdev = ib_device_get_by_netdev(netdev, RDMA_DRIVER_UNKNOWN);
	KUNIT_EXPECT_NULL(test, ibdev);
	if (ibdev)
		ib_unregister_device_and_put(ibdev);
	free_netdev(netdev);
}

static struct ib_device *device_new(struct kunit *test)
{
	struct keel_dev_spec spec = { .name = "keel%d" };
	struct ib_device *ibdev;

	spec.ap = keel_aperture_mem_create(PAGE_SIZE);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, spec.ap);
	ibdev = keel_dev_create_own(&spec);
	if (IS_ERR(ibdev))
		keel_aperture_destroy(spec.ap);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, ibdev);
	return ibdev;
}

static struct keel_uapi_state *state_of(struct page *page)
{
	return page_address(page);
}

/* DEV-3: a device that returns has a new state page, and drops the old one. */
static void dev_3_enabled_again(struct kunit *test)
{
	struct ib_device *ibdev = device_new(test);
	struct keel_dev *kdev = to_kdev(ibdev);
	struct page *old = kdev->state;

	get_page(old);
	/* The device was not removed: its page is as good as before. */
	KUNIT_EXPECT_EQ(test, 0, ibdev->ops.enable_driver(ibdev));
	KUNIT_EXPECT_PTR_EQ(test, old, kdev->state);
	KUNIT_EXPECT_EQ(test, 2, page_count(old));
	/* Nobody has the device open. */
	WRITE_ONCE(state_of(old)->gone, 1);
	KUNIT_EXPECT_EQ(test, 0, ibdev->ops.enable_driver(ibdev));
	KUNIT_EXPECT_EQ(test, 1, page_count(old));
	KUNIT_EXPECT_EQ(test, 1, state_of(old)->gone);
	KUNIT_EXPECT_PTR_NE(test, old, kdev->state);
	if (kdev->state) {
		KUNIT_EXPECT_EQ(test, 1, page_count(kdev->state));
		KUNIT_EXPECT_EQ(test, 0, state_of(kdev->state)->gone);
	}
	put_page(old);
	ib_unregister_device(ibdev);
	put_device(&ibdev->dev);
}

static struct kunit_case link_cases[] = {
	KUNIT_CASE(dev_1_dev_3_netdev_gone),
	KUNIT_CASE(dev_3_enabled_again),
	{}
};

static struct kunit_suite link_suite = {
	.name = "keel_link",
	.test_cases = link_cases,
};
kunit_test_suite(link_suite);
