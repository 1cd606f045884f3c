// SPDX-License-Identifier: GPL-2.0
/*
 * keel: a software RDMA device with the whole uverbs object layer.
 * Module load and unload, "rdma link add", and netdevs that change or go.
 */
#include <linux/if_arp.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/rtnetlink.h>
#include <rdma/rdma_netlink.h>

#include "keel.h"

static bool default_device = true;
module_param(default_device, bool, 0444);
MODULE_PARM_DESC(default_device,
		 "Bring up keel0 on a netdev of its own at load (default yes)");

static struct ib_device *keel_dev_on(struct net_device *netdev)
{
	return ib_device_get_by_netdev(netdev, KEEL_RDMA_DRIVER);
}

/* Makes "is there one" and "make one" one step. */
static DEFINE_MUTEX(keel_newlink_lock);

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
	ibdev = keel_dev_on(netdev);
	if (ibdev) {
		ib_device_put(ibdev);
		return -EEXIST;
	}
	ibdev = keel_dev_create(&spec);
	if (IS_ERR(ibdev))
		return PTR_ERR(ibdev);
	/*
	 * It went, or to another namespace, while the device could not be told.
	 * Either is one step under RTNL; from here on the device is told.
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
 * keel_dev_create_own() - bring up a device, and a netdev for it
 * @spec: what it shall be like; gets the netdev
 *
 * Nobody puts another device on that netdev meanwhile.
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
	ibdev = keel_dev_create(spec);
	if (IS_ERR(ibdev))
		keel_netdev_destroy(spec->netdev);
	return ibdev;
}

static struct rdma_link_ops keel_link_ops = {
	.type = "keel",
	.newlink = keel_newlink,
};

static void keel_port_event(struct ib_device *ibdev, struct net_device *netdev)
{
	bool up = netif_running(netdev) && netif_carrier_ok(netdev);
	struct keel_dev *kdev = to_kdev(ibdev);
	struct ib_event event = {
		.device = ibdev,
		.element.port_num = KEEL_PORT,
		.event = up ? IB_EVENT_PORT_ACTIVE : IB_EVENT_PORT_ERR,
	};

	ASSERT_RTNL();
	/* Much of what changes on a netdev changes nothing on the port. */
	if (READ_ONCE(kdev->port_event) == event.event)
		return;
	WRITE_ONCE(kdev->port_event, event.event);
	ib_dispatch_event(&event);
}

static int keel_netdev_event(struct notifier_block *nb, unsigned long event,
			     void *arg)
{
	struct net_device *netdev = netdev_notifier_info_to_dev(arg);
	struct ib_device *ibdev = keel_dev_on(netdev);

	if (!ibdev)
		return NOTIFY_DONE;
	switch (event) {
	case NETDEV_UNREGISTER:
		/* RTNL is held here, and unregistration takes it: queue it. */
		ib_unregister_device_queued(ibdev);
		break;
	case NETDEV_UP:
	case NETDEV_DOWN:
	case NETDEV_CHANGE:
		keel_port_event(ibdev, netdev);
		break;
	default:
		break;
	}
	ib_device_put(ibdev);
	return NOTIFY_DONE;
}

static struct notifier_block keel_netdev_nb = {
	.notifier_call = keel_netdev_event,
};

static int keel_default_create(void)
{
	struct keel_dev_spec spec = { .name = "keel%d" };
	struct ib_device *ibdev;

	if (!default_device)
		return 0;
	ibdev = keel_dev_create_own(&spec);
	if (IS_ERR(ibdev))
		return PTR_ERR(ibdev);
	put_device(&ibdev->dev);
	return 0;
}

static int __init keel_init(void)
{
	int ret;

	ret = keel_debugfs_init();
	if (ret)
		return ret;
	ret = keel_workers_init();
	if (ret)
		goto err_debugfs;
	ret = keel_gone_init();
	if (ret)
		goto err_workers;
	ret = register_netdevice_notifier(&keel_netdev_nb);
	if (ret)
		goto err_gone;
	ret = keel_default_create();
	if (ret)
		goto err_notifier;
	/* After keel0, whose name a function must not get. */
	ret = keel_pci_init();
	if (ret)
		goto err_default;
	rdma_link_register(&keel_link_ops);
	return 0;

err_default:
	ib_unregister_driver(KEEL_RDMA_DRIVER);
err_notifier:
	unregister_netdevice_notifier(&keel_netdev_nb);
err_gone:
	keel_gone_exit();
err_workers:
	keel_workers_exit();
err_debugfs:
	keel_debugfs_exit();
	return ret;
}

static void __exit keel_exit(void)
{
	/* No new device, then no device, then nobody who looks at them. */
	rdma_link_unregister(&keel_link_ops);
	keel_pci_exit();
	ib_unregister_driver(KEEL_RDMA_DRIVER);
	unregister_netdevice_notifier(&keel_netdev_nb);
	keel_gone_exit();
	keel_workers_exit();
	keel_debugfs_exit();
	/* The objects' kfree_rcu() needs no code of this module. */
}

module_init(keel_init);
module_exit(keel_exit);

MODULE_AUTHOR("the keel authors");
MODULE_DESCRIPTION("Software RDMA device with the whole uverbs object layer");
MODULE_LICENSE("GPL");
MODULE_VERSION(KEEL_VERSION);
MODULE_ALIAS_RDMA_LINK("keel");
