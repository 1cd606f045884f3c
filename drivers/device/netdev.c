// SPDX-License-Identifier: GPL-2.0
/*
 * The netdev of a device that was created without one, which
 * Documentation/device.rst explains. keel drops frames sent to it, even reports
 * of multicast groups that rdma_cm joins.
 */
#include <linux/etherdevice.h>
#include <linux/netdevice.h>
#include <linux/rtnetlink.h>

#include "keel.h"
#include "keel_device.h"

/* Enough for packets of 4096 bytes: rdma_cm makes its path MTU from this. */
#define KEEL_NETDEV_MTU	9000

static netdev_tx_t keel_netdev_xmit(struct sk_buff *skb,
				    struct net_device *netdev)
{
	dev_lstats_add(netdev, skb->len);
	dev_kfree_skb(skb);
	return NETDEV_TX_OK;
}

static void keel_netdev_stats(struct net_device *netdev,
			      struct rtnl_link_stats64 *stats)
{
	dev_lstats_read(netdev, &stats->tx_packets, &stats->tx_bytes);
}

static const struct net_device_ops keel_netdev_ops = {
	.ndo_get_stats64 = keel_netdev_stats,
	.ndo_set_mac_address = eth_mac_addr,
	.ndo_start_xmit = keel_netdev_xmit,
	.ndo_validate_addr = eth_validate_addr,
};

static void keel_netdev_setup(struct net_device *netdev)
{
	ether_setup(netdev);
	netdev->netdev_ops = &keel_netdev_ops;
	netdev->pcpu_stat_type = NETDEV_PCPU_STAT_LSTATS;
	netdev->max_mtu = ETH_MAX_MTU;
	netdev->mtu = KEEL_NETDEV_MTU;
	netdev->flags |= IFF_NOARP;
	netdev->priv_flags |= IFF_NO_QUEUE | IFF_LIVE_ADDR_CHANGE;
	/* It is removed with its device, so it must not change namespaces. */
	keel_netdev_pin(netdev);
	eth_hw_addr_random(netdev);
}

/**
 * keel_netdev_create() - create a netdev "keel%d" in the initial namespace, up
 * @parent: its parent device, or NULL
 *
 * Context: may sleep, takes RTNL.
 * Return: the netdev, which the caller frees with keel_netdev_destroy(); or
 * ERR_PTR().
 */
struct net_device *keel_netdev_create(struct device *parent)
{
	struct net_device *netdev;
	int ret;

	netdev = alloc_netdev(0, "keel%d", NET_NAME_ENUM, keel_netdev_setup);
	if (!netdev)
		return ERR_PTR(-ENOMEM);
	SET_NETDEV_DEV(netdev, parent);
	ret = register_netdev(netdev);
	if (ret) {
		free_netdev(netdev);
		return ERR_PTR(ret);
	}
	rtnl_lock();
	ret = dev_open(netdev, NULL);
	rtnl_unlock();
	if (ret) {
		keel_netdev_destroy(netdev);
		return ERR_PTR(ret);
	}
	return netdev;
}

/**
 * keel_netdev_destroy() - destroy a netdev of keel_netdev_create()
 * @netdev: the netdev, or NULL; no ib_device uses it any more
 *
 * Context: may sleep, takes RTNL.
 */
void keel_netdev_destroy(struct net_device *netdev)
{
	if (!netdev)
		return;
	unregister_netdev(netdev);
	free_netdev(netdev);
}
