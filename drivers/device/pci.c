// SPDX-License-Identifier: GPL-2.0
/*
 * PCI functions whose memory BAR is device memory: each has one device, created
 * at probe and unregistered at remove.
 *
 * The driver binds QEMU's ivshmem, which only has such a BAR, by its ID. It
 * binds other functions by new_id or driver_override, and accesses no register.
 */
#include <linux/dma-mapping.h>
#include <linux/module.h>
#include <linux/pci.h>

#include "keel.h"
#include "keel_device.h"

#define KEEL_PCI_IVSHMEM	0x1110

static int bar = -1;
module_param(bar, int, 0644);
MODULE_PARM_DESC(bar,
		 "BAR that is device memory, of PCI functions bound from now on (default -1: the largest prefetchable one)");

static unsigned long bar_offset;
module_param(bar_offset, ulong, 0644);
MODULE_PARM_DESC(bar_offset,
		 "Bytes at the start of the BAR that keel leaves alone (default 0)");

static unsigned long bar_size;
module_param(bar_size, ulong, 0644);
MODULE_PARM_DESC(bar_size,
		 "Bytes of the BAR that are device memory (default 0: all from bar_offset on)");

/**
 * struct keel_pci - a function that is bound
 * @ibdev: its device, with a reference on the structure; the device may be
 *	unregistered before the function is unbound
 * @window: the part of the BAR that is device memory
 */
struct keel_pci {
	struct ib_device *ibdev;
	struct keel_bar_window window;
};

static int keel_pci_choose(struct pci_dev *pdev, struct keel_bar_window *window)
{
	struct keel_bar_window wish = {
		.bar = READ_ONCE(bar),
		.offset = READ_ONCE(bar_offset),
		.size = READ_ONCE(bar_size),
	};
	const char *why;
	int ret;

	ret = keel_bar_choose(pdev->resource, PCI_STD_NUM_BARS, &wish, window,
			      &why);
	if (ret && window->bar < 0)
		dev_err(&pdev->dev, "no device memory: no BAR %s\n", why);
	else if (ret)
		dev_err(&pdev->dev, "no device memory: BAR %d %s\n",
			window->bar, why);
	return ret;
}

/* Create the device on a BAR that keel has requested. */
static struct ib_device *keel_pci_create(struct pci_dev *pdev,
					 const struct keel_bar_window *window)
{
	struct keel_dev_spec spec = {
		.name = "keel%d", .parent = &pdev->dev,
	};
	struct ib_device *ibdev;

	spec.ap = keel_aperture_bar_create(pci_resource_start(pdev, window->bar) +
					   window->offset, window->size);
	if (IS_ERR(spec.ap)) {
		dev_err(&pdev->dev,
			"no device memory: BAR %d cannot be mapped (%llu bytes)\n",
			window->bar, window->size);
		return ERR_CAST(spec.ap);
	}
	spec.provider = keel_p2pdma_provider(pdev, window->bar);
	if (KEEL_DMABUF_EXPORT && !spec.provider)
		pci_info(pdev, "device memory cannot be a dma-buf: no transfers between devices here\n");
	ibdev = keel_dev_create_own(&spec);
	if (IS_ERR(ibdev))
		keel_aperture_destroy(spec.ap);
	return ibdev;
}

static int keel_pci_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct keel_pci *kpci;
	int ret;

	kpci = devm_kzalloc(&pdev->dev, sizeof(*kpci), GFP_KERNEL);
	if (!kpci)
		return -ENOMEM;
	ret = keel_pci_choose(pdev, &kpci->window);
	if (ret)
		return ret;
	ret = pci_enable_device_mem(pdev);
	if (ret)
		return ret;
	/* No DMA, but the function attaches to dma-bufs of BARs anywhere. */
	ret = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64));
	if (ret)
		goto err_disable;
	ret = pci_request_region(pdev, kpci->window.bar, "keel");
	if (ret) {
		dev_err(&pdev->dev,
			"no device memory: BAR %d is in use, see /proc/iomem\n",
			kpci->window.bar);
		goto err_disable;
	}
	kpci->ibdev = keel_pci_create(pdev, &kpci->window);
	if (IS_ERR(kpci->ibdev)) {
		ret = PTR_ERR(kpci->ibdev);
		goto err_region;
	}
	pci_set_drvdata(pdev, kpci);
	ibdev_info(kpci->ibdev,
		   "device memory is BAR %d, %llu bytes from 0x%llx on\n",
		   kpci->window.bar, kpci->window.size, kpci->window.offset);
	return 0;

err_region:
	pci_release_region(pdev, kpci->window.bar);
err_disable:
	pci_disable_device(pdev);
	return ret;
}

/*
 * Afterwards, nothing accesses the BAR. Unregistration, no matter which thread
 * began it, returns when mappings have lost their pages, every object is
 * destroyed, and keel_dev_release() has unmapped the kernel's mapping.
 */
static void keel_pci_remove(struct pci_dev *pdev)
{
	struct keel_pci *kpci = pci_get_drvdata(pdev);

	ib_unregister_device(kpci->ibdev);
	put_device(&kpci->ibdev->dev);
	pci_release_region(pdev, kpci->window.bar);
	pci_disable_device(pdev);
}

static const struct pci_device_id keel_pci_ids[] = {
	{ PCI_DEVICE(PCI_VENDOR_ID_REDHAT_QUMRANET, KEEL_PCI_IVSHMEM) },
	{}
};
MODULE_DEVICE_TABLE(pci, keel_pci_ids);

static struct pci_driver keel_pci_driver = {
	.name = "keel",
	.id_table = keel_pci_ids,
	.probe = keel_pci_probe,
	.remove = keel_pci_remove,
};

/**
 * keel_pci_init() - register the PCI driver
 *
 * If a function cannot be used, keel logs that, and this does not fail.
 *
 * Return: 0 or a negative errno.
 */
int keel_pci_init(void)
{
	return pci_register_driver(&keel_pci_driver);
}

/**
 * keel_pci_exit() - unregister the PCI driver, and remove its devices
 */
void keel_pci_exit(void)
{
	pci_unregister_driver(&keel_pci_driver);
}
