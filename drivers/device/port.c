// SPDX-License-Identifier: GPL-2.0
/*
 * The port: ibv_query_port(). RoCE v2 on the device's netdev, which provides
 * its state and its GIDs, and nothing else: keel sends no packets.
 */
#include <linux/netdevice.h>
#include <rdma/ib_mad.h>

#include "compat.h"
#include "keel_device.h"
#include "keel_qp.h"

static int keel_query_port(struct ib_device *ibdev, u32 port,
			   struct ib_port_attr *attr)
{
	struct net_device *netdev = ib_device_get_netdev(ibdev, port);
	bool running = netdev && netif_running(netdev);
	bool up = running && netif_carrier_ok(netdev);

	dev_put(netdev);
	/* ib_core has cleared *attr. */
	attr->state = up ? IB_PORT_ACTIVE : IB_PORT_DOWN;
	attr->phys_state = up ? IB_PORT_PHYS_STATE_LINK_UP :
			   running ? IB_PORT_PHYS_STATE_POLLING :
				     IB_PORT_PHYS_STATE_DISABLED;
	/* keel copies bytes without packets: the netdev's MTU is no limit. */
	attr->max_mtu = IB_MTU_4096;
	attr->active_mtu = IB_MTU_4096;
	attr->max_msg_sz = KEEL_MAX_MSG;
	attr->port_cap_flags = IB_PORT_CM_SUP;
	attr->max_vl_num = 1;
	attr->gid_tbl_len = KEEL_GIDS;
	attr->pkey_tbl_len = KEEL_PKEYS;
	attr->ip_gids = true;
	/* Nominal: applications expect a value, near the speed of a copy. */
	attr->active_width = IB_WIDTH_4X;
	attr->active_speed = IB_SPEED_HDR;
	return 0;
}

static int keel_query_pkey(struct ib_device *ibdev, u32 port, u16 index,
			   u16 *pkey)
{
	if (index >= KEEL_PKEYS)
		return -EINVAL;
	*pkey = 0xffff;
	return 0;
}

static int keel_port_immutable(struct ib_device *ibdev, u32 port,
			       struct ib_port_immutable *immutable)
{
	/* With MADs and the CM, which rdma_cm needs. */
	immutable->core_cap_flags = RDMA_CORE_PORT_IBA_ROCE_UDP_ENCAP;
	immutable->max_mad_size = IB_MGMT_MAD_SIZE;
	immutable->gid_tbl_len = KEEL_GIDS;
	immutable->pkey_tbl_len = KEEL_PKEYS;
	return 0;
}

static enum rdma_link_layer keel_link_layer(struct ib_device *ibdev, u32 port)
{
	return IB_LINK_LAYER_ETHERNET;
}

/*
 * The notifier below raises the events of keel's ports. ib_core's own events
 * omit bonds, and all devices but one on a netdev. With this op, ib_core raises
 * none for keel.
 */
static void __maybe_unused
keel_report_port_event(struct ib_device *ibdev, struct net_device *netdev,
		       unsigned long event)
{
}

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
	/* Many changes of a netdev do not change the port. */
	if (READ_ONCE(kdev->port_event) == event.event)
		return;
	WRITE_ONCE(kdev->port_event, event.event);
	ib_dispatch_event(&event);
}

static int keel_netdev_event(struct notifier_block *nb, unsigned long event,
			     void *arg)
{
	struct net_device *netdev = netdev_notifier_info_to_dev(arg);
	struct ib_device *ibdev =
		ib_device_get_by_netdev(netdev, KEEL_RDMA_DRIVER);

	if (!ibdev)
		return NOTIFY_DONE;
	switch (event) {
	case NETDEV_UNREGISTER:
		/* RTNL is held here, and unregistration takes it: defer it. */
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

/**
 * keel_port_init() - register for changes and removal of netdevs
 *
 * Return: 0, or as register_netdevice_notifier().
 */
int keel_port_init(void)
{
	return register_netdevice_notifier(&keel_netdev_nb);
}

/**
 * keel_port_exit() - undo keel_port_init()
 */
void keel_port_exit(void)
{
	unregister_netdevice_notifier(&keel_netdev_nb);
}

const struct ib_device_ops keel_port_ops = {
	KEEL_REPORT_PORT_EVENT(keel_report_port_event)
	.get_link_layer = keel_link_layer,
	.get_port_immutable = keel_port_immutable,
	.query_pkey = keel_query_pkey,
	.query_port = keel_query_port,
};
