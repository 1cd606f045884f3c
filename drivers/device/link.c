// SPDX-License-Identifier: GPL-2.0
/*
 * "rdma link add": a device on an existing netdev, or on one created for it.
 */
#include <linux/if_arp.h>
#include <linux/netdevice.h>
#include <linux/rtnetlink.h>
#include <kunit/visibility.h>
#include <rdma/rdma_netlink.h>

#include "keel.h"
#include "keel_device.h"

/* Makes the check for a device and its creation atomic. */
static DEFINE_MUTEX(keel_newlink_lock);

static struct ib_device *keel_dev_create_locked(const struct keel_dev_spec *spec)
	__must_hold(&keel_newlink_lock)
{
	return keel_dev_create(spec);
}

/* rdma link add NAME type keel netdev IF */
static int keel_newlink(const char *name, struct net_device *netdev)
{
	struct keel_dev_spec spec = { .name = name, .netdev = netdev };
	struct net *net = dev_net(netdev);
	struct ib_device *ibdev;
	int ret = 0;

	/* GIDs and the node GUID are made from a MAC address. */
	if (netdev->type != ARPHRD_ETHER && netdev->type != ARPHRD_LOOPBACK)
		return -EINVAL;
	guard(mutex)(&keel_newlink_lock);
	ibdev = ib_device_get_by_netdev(netdev, KEEL_RDMA_DRIVER);
	if (ibdev) {
		ib_device_put(ibdev);
		return -EEXIST;
	}
	ibdev = keel_dev_create_locked(&spec);
	if (IS_ERR(ibdev))
		return PTR_ERR(ibdev);
	/*
	 * The netdev may have been removed, or moved to another namespace,
	 * before the notifier could find the device. Both happen under RTNL;
	 * from here on, the notifier finds it.
	 */
	rtnl_lock();
	if (!net_eq(dev_net(netdev), net) ||
	    netdev->reg_state != NETREG_REGISTERED)
		ret = -ENODEV;
	rtnl_unlock();
	if (ret)
		ib_unregister_device(ibdev);
	put_device(&ibdev->dev);
	return ret;
}

/**
 * keel_dev_create_own() - create and register a device with its own netdev
 * @spec: its properties; gets the netdev
 *
 * No other device can be added to that netdev meanwhile.
 *
 * Context: may sleep, takes RTNL.
 * Return: as keel_dev_create().
 */
struct ib_device *keel_dev_create_own(struct keel_dev_spec *spec)
{
	struct ib_device *ibdev;

	guard(mutex)(&keel_newlink_lock);
	spec->netdev = keel_netdev_create(spec->parent);
	if (IS_ERR(spec->netdev))
		return ERR_CAST(spec->netdev);
	spec->own_netdev = true;
	ibdev = keel_dev_create_locked(spec);
	if (IS_ERR(ibdev))
		keel_netdev_destroy(spec->netdev);
	return ibdev;
}
EXPORT_SYMBOL_IF_KUNIT(keel_dev_create_own);

struct rdma_link_ops keel_link_ops = {
	.type = "keel",
	.newlink = keel_newlink,
};
EXPORT_SYMBOL_IF_KUNIT(keel_link_ops);
