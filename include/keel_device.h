/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How devices come and go.
 */
#ifndef KEEL_DEVICE_H
#define KEEL_DEVICE_H

#include <linux/kconfig.h>
#include <rdma/ib_verbs.h>

struct device;
struct keel_aperture;
struct net_device;
struct p2pdma_provider;
struct rdma_link_ops;

/**
 * struct keel_dev_spec - a device to be
 * @name: its name, or a pattern such as "keel%d"
 * @netdev: the netdev its port is on
 * @own_netdev: the device takes @netdev over when it is registered, and
 *	keel_netdev_destroy()s it when it goes; its name is no user's choice
 * @ap: its memory, likewise taken over; NULL for memory of the kernel
 * @provider: what stands for @ap in transfers between devices; NULL: nothing
 * @parent: what it belongs to, or NULL
 */
struct keel_dev_spec {
	const char *name;
	struct net_device *netdev;
	bool own_netdev;
	struct keel_aperture *ap;
	struct p2pdma_provider *provider;
	struct device *parent;
};

/* device.c */
struct ib_device *keel_dev_create(const struct keel_dev_spec *spec);

/* link.c */
extern struct rdma_link_ops keel_link_ops;
struct ib_device *keel_dev_create_own(struct keel_dev_spec *spec);

/* port.c */
int keel_port_init(void);
void keel_port_exit(void);

/* netdev.c */
struct net_device *keel_netdev_create(struct device *parent);
void keel_netdev_destroy(struct net_device *netdev);

/* pci.c */
#if IS_ENABLED(CONFIG_PCI)
int keel_pci_init(void);
void keel_pci_exit(void);
#else
static inline int keel_pci_init(void)
{
	return 0;
}

static inline void keel_pci_exit(void)
{
}
#endif

/* debugfs.c */
int keel_debugfs_init(void);
void keel_debugfs_exit(void);

#endif /* KEEL_DEVICE_H */
