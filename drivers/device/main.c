// SPDX-License-Identifier: GPL-2.0
/*
 * keel: a software RDMA device with the whole uverbs object layer.
 * Module load and unload.
 */
#include <linux/module.h>
#include <rdma/rdma_netlink.h>

#include "keel.h"
#include "keel_device.h"
#include "keel_far.h"
#include "keel_orphans.h"
#include "keel_removal.h"

static bool default_device = true;
module_param(default_device, bool, 0444);
MODULE_PARM_DESC(default_device,
		 "Bring up keel0 on a netdev of its own at load (default yes)");

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
	ret = keel_orphans_load();
	if (ret)
		goto err_workers;
	ret = keel_removal_init();
	if (ret)
		goto err_orphans;
	ret = keel_port_init();
	if (ret)
		goto err_removal;
	ret = keel_wire_init(&keel_far_ops);
	if (ret)
		goto err_port;
	ret = keel_default_create();
	if (ret)
		goto err_wire;
	/* After keel0: a function must not get that name. */
	ret = keel_pci_init();
	if (ret)
		goto err_default;
	rdma_link_register(&keel_link_ops);
	return 0;

err_default:
	ib_unregister_driver(KEEL_RDMA_DRIVER);
err_wire:
	keel_wire_exit();
err_port:
	keel_port_exit();
err_removal:
	keel_removal_exit();
err_orphans:
	keel_orphans_unload();
err_workers:
	keel_workers_exit();
err_debugfs:
	keel_debugfs_exit();
	return ret;
}

static void __exit keel_exit(void)
{
	/* First prevent new devices, then remove devices, then their users. */
	rdma_link_unregister(&keel_link_ops);
	keel_pci_exit();
	ib_unregister_driver(KEEL_RDMA_DRIVER);
	keel_wire_exit();
	keel_port_exit();
	keel_removal_exit();
	keel_orphans_unload();
	keel_workers_exit();
	keel_debugfs_exit();
	/* kfree_rcu() of objects needs no code of this module. */
}

module_init(keel_init);
module_exit(keel_exit);

MODULE_AUTHOR("the keel authors");
MODULE_DESCRIPTION("Software RDMA device with the whole uverbs object layer");
MODULE_LICENSE("GPL");
MODULE_VERSION(KEEL_VERSION);
MODULE_ALIAS_RDMA_LINK("keel");
