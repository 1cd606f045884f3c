/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Protection domains and the domains behind them, thread domains, XRC domains.
 */
#ifndef KEEL_DOMAIN_H
#define KEEL_DOMAIN_H

#include <linux/atomic.h>
#include <linux/hashtable.h>
#include <linux/list.h>
#include <linux/refcount.h>
#include <linux/siphash.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>
#include <rdma/ib_verbs.h>

#include "keel_obj.h"

struct inode;
struct keel_dev;
struct keel_shpd;
struct keel_xrcd_pin;

/**
 * struct keel_shpds - shared-PD handles of a device
 * @lock: protects @table, and &keel_domain.shpd of every domain. A spinlock: its
 *	holder is not preempted, because the end of every PD needs it.
 * @table: by handle
 * @secret: generates the next handle from @given
 * @given: number of handles issued so far; no handle is issued twice
 */
struct keel_shpds {
	spinlock_t lock;
	DECLARE_HASHTABLE(table, 8) __guarded_by(&lock);
	siphash_key_t secret;
	u64 given __guarded_by(&lock);
};

/**
 * struct keel_domain - a protection scope that keys are checked against
 * @obj: its number is the number of the domain
 * @instances: PDs that are not parent domains; the domain can be shared while
 *	there is at least one
 * @shpd: its shared-PD handle or NULL, under &keel_shpds.lock
 *
 * A domain has no uobject: its instances and its shared-PD handle hold it.
 */
struct keel_domain {
	struct keel_obj obj;
	refcount_t instances;
	struct keel_shpd *shpd;
};

/**
 * keel_domain_join() - add an instance
 * @domain: the domain, which has an instance already
 */
static inline void keel_domain_join(struct keel_domain *domain)
{
	refcount_inc(&domain->instances);
}

/**
 * struct keel_td - a thread domain
 * @obj: the object
 * @users: parent domains that use it and have a uobject. It rises under the read
 *	lock of the TD's uobject. Destroy checks it under the write lock, so it
 *	cannot rise meanwhile. It falls under no lock: at worst, destroy returns
 *	-EBUSY although the last parent domain is just being destroyed.
 */
struct keel_td {
	struct keel_obj obj;
	atomic_t users;
};

/**
 * struct keel_pd - a PD, a parent domain, or an instance of a shared PD
 * @obj: the object; a PD holds its domain, a parent domain @base and @td
 * @holds: of @obj
 * @domain: its domain, held by @obj, directly or through @base
 * @base: the PD that a parent domain was created from, or NULL
 * @td: the thread domain of a parent domain, or NULL
 * @joined: an instance of a domain that another PD shared
 * @users: parent domains created from it, locked as &keel_td.users
 */
struct keel_pd {
	struct keel_obj obj;
	struct keel_hold holds[2];
	struct keel_domain *domain;
	struct keel_pd *base;
	struct keel_td *td;
	bool joined;
	atomic_t users;
};

/**
 * struct keel_xrcd - an XRC domain
 * @obj: the object
 * @ib: ib_core's structure, valid until @obj closes
 * @dev: device number of the filesystem of its inode
 * @ino: number of the inode
 * @tied: it has an inode
 * @pin: keeps the file system of its inode, or NULL
 */
struct keel_xrcd {
	struct keel_obj obj;
	struct ib_xrcd *ib;
	dev_t dev;
	u64 ino;
	bool tied;
	struct keel_xrcd_pin *pin;
};

/**
 * struct keel_xrcd_pins - file systems of domains that were closed, to be dropped later
 * @lock: protects the lists
 * @late: ib_uverbs may not have dropped the inode yet; one at most
 * @over: it has
 * @work: drops @over
 */
struct keel_xrcd_pins {
	spinlock_t lock;
	struct list_head late __guarded_by(&lock);
	struct list_head over __guarded_by(&lock);
	struct work_struct work;
};

struct keel_ib_pd {
	struct ib_pd ib;
	struct keel_pd *pd;
};

struct keel_ib_xrcd {
	struct ib_xrcd ib;
	struct keel_xrcd *xrcd;
};

static inline struct keel_ib_pd *to_kibpd(struct ib_pd *ib)
{
	return container_of(ib, struct keel_ib_pd, ib);
}

static inline struct keel_pd *to_kpd(struct ib_pd *ib)
{
	return to_kibpd(ib)->pd;
}

static inline struct keel_xrcd *to_kxrcd(struct ib_xrcd *ib)
{
	return container_of(ib, struct keel_ib_xrcd, ib)->xrcd;
}

/* xrcd_pin.c */
struct keel_xrcd_pin *keel_xrcd_pin_new(struct keel_dev *kdev,
					const struct inode *inode);
void keel_xrcd_pin_put(struct keel_dev *kdev, struct keel_xrcd_pin *pin);
void keel_xrcd_pins_init(struct keel_dev *kdev);
void keel_xrcd_pins_over(struct keel_dev *kdev, const struct task_struct *closer);

/* domain.c */
struct keel_domain *keel_domain_create(struct keel_dev *kdev, bool kernel);
void keel_domain_leave(struct keel_dev *kdev, struct keel_domain *domain);

/* shpd.c */
void keel_shpds_init(struct keel_shpds *shpds);
struct keel_domain *keel_shpd_join(struct keel_dev *kdev, u32 handle, u64 key);
struct keel_shpd *keel_shpd_remove(struct keel_shpds *shpds,
				   struct keel_domain *domain)
	__must_hold(&shpds->lock);
void keel_shpd_close(struct keel_shpd *shpd);
#if IS_ENABLED(CONFIG_KUNIT)
u32 keel_shpd_permute(const struct keel_shpds *shpds, u32 n);
bool keel_shpd_key_equal(u64 a, u64 b);
struct keel_shpd *keel_shpd_create(struct keel_dev *kdev,
				   struct keel_domain *domain, u64 key);
#endif

#endif /* KEEL_DOMAIN_H */
