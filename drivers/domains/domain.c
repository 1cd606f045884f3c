// SPDX-License-Identifier: GPL-2.0
/*
 * Domains: the protection scopes that keys are checked against.
 */
#include <linux/seq_file.h>
#include <linux/slab.h>

#include "keel.h"

static void keel_domain_release(struct keel_obj *obj)
{
	struct keel_domain *domain = container_of(obj, struct keel_domain, obj);

	kfree_rcu(domain, obj.rcu);
}

static void keel_domain_describe(const struct keel_obj *obj, struct seq_file *m)
{
	const struct keel_domain *domain =
		container_of(obj, struct keel_domain, obj);

	seq_printf(m, " instances %u", refcount_read(&domain->instances));
}

static const struct keel_obj_ops keel_domain_obj_ops = {
	.describe = keel_domain_describe,
	.release = keel_domain_release,
};

/**
 * keel_domain_create() - create a domain with one instance
 * @kdev: the device
 * @kernel: the domain is for a kernel consumer
 *
 * Return: the domain. The caller owns a reference (keel_obj_put()) and the
 * instance (keel_domain_leave()). Or ERR_PTR(-ENOMEM).
 */
struct keel_domain *keel_domain_create(struct keel_dev *kdev, bool kernel)
{
	struct keel_domain *domain = kzalloc_obj(*domain, keel_gfp_of(kernel));
	int ret;

	if (!domain)
		return ERR_PTR(-ENOMEM);
	refcount_set(&domain->instances, 1);
	domain->obj.kernel = kernel;
	ret = keel_obj_add(&kdev->reg, &domain->obj, KEEL_DOMAIN,
			   &keel_domain_obj_ops, NULL, NULL);
	if (ret) {
		kfree(domain);
		return ERR_PTR(ret);
	}
	return domain;
}

/**
 * keel_domain_leave() - drop an instance of a domain
 * @kdev: the device
 * @domain: the domain; the caller has a reference
 *
 * The last instance removes the shared-PD handle. The domain itself exists as
 * long as an object below it is in use.
 */
void keel_domain_leave(struct keel_dev *kdev, struct keel_domain *domain)
{
	struct keel_shpd *shpd;

	if (!refcount_dec_and_lock(&domain->instances, &kdev->shpds.lock))
		return;
	shpd = keel_shpd_remove(&kdev->shpds, domain);
	spin_unlock(&kdev->shpds.lock);
	keel_shpd_close(shpd);
}
