/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Creation and removal of devices.
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
 * struct keel_dev_spec - parameters of a new device
 * @name: its name, or a pattern such as "keel%d"
 * @netdev: the netdev of its port
 * @own_netdev: the registered device owns @netdev, and destroys it when it is
 *	removed. No user chose the name of the device.
 * @ap: its memory, which the registered device owns; NULL: allocate kernel memory
 * @provider: represents @ap in transfers between devices; NULL: no such transfers
 * @parent: its parent device, or NULL
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
