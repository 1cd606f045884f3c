/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Device memory, and how userspace maps it.
 */
#ifndef KEEL_DM_H
#define KEEL_DM_H

#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/refcount.h>
#include <linux/spinlock.h>
#include <rdma/ib_verbs.h>

#include "compat.h"
#include "keel_aperture.h"
#include "keel_obj.h"

struct keel_dev;
struct keel_dm_page;
struct keel_quotas;
struct pid;

/**
 * struct keel_dm - a buffer of device memory
 * @obj: the object
 * @ap: the aperture it is in
 * @start: its offset in the aperture
 * @length: bytes, as requested
 * @page: the page that it shares with others of its context; NULL: it has pages of its own,
 *	and the rest of the last one stays unused
 * @user: the user whose quota counts its pages; NULL if it shares one
 * @lock: protects @maps
 * @maps: mmap entries, each with a reference on @obj until its last mapping is
 *	closed
 */
struct keel_dm {
	struct keel_obj obj;
	struct keel_aperture *ap;
	u64 start;
	u64 length;
	struct keel_dm_page *page;
	struct keel_user *user;
	struct mutex lock;
	struct list_head maps __guarded_by(&lock);
};

/**
 * struct keel_dm_pool - the pages that small buffers of a process share
 * @ref: one for the context, and one for each page
 * @ap: the aperture
 * @quotas: those of the device
 * @owner: the process that opened the context: the pages are for its buffers
 * @user: the user that it had then, as keel_user_id(), who pays for the pages
 * @lock: protects @pages, and the parts of each page
 * @pages: struct keel_dm_page that have room
 */
struct keel_dm_pool {
	refcount_t ref;
	struct keel_aperture *ap;
	struct keel_quotas *quotas;
	struct pid *owner;
	u64 user;
	spinlock_t lock;
	struct list_head pages __guarded_by(&lock);
};

struct keel_ib_dm {
	struct ib_dm ib;
	struct keel_dm *dm;
};

static inline struct keel_dm *to_kdm(struct ib_dm *ib)
{
	return container_of(ib, struct keel_ib_dm, ib)->dm;
}

/* dm_pool.c */
struct keel_dm_pool *keel_dm_pool_new(struct keel_aperture *ap,
				      struct keel_quotas *quotas, u64 user);
void keel_dm_pool_put(struct keel_dm_pool *pool);
bool keel_dm_pool_fits(const struct keel_dm_pool *pool, u64 length, u32 log_align);
int keel_dm_pool_alloc(struct keel_dm_pool *pool, struct keel_dm *dm, u32 log_align);
void keel_dm_pool_free(struct keel_dm *dm);

/* dm_map.c */
const struct keel_aperture_seg *
keel_dm_map_seg(struct rdma_user_mmap_entry *entry);
void keel_dm_unmap(struct keel_dm *dm);

/* dm_export.c */
#if KEEL_DMABUF_EXPORT
void keel_dm_export_offer(struct keel_dev *kdev);
bool keel_dm_export_offered(const struct keel_dev *kdev);
#else
static inline void keel_dm_export_offer(struct keel_dev *kdev)
{
}

static inline bool keel_dm_export_offered(const struct keel_dev *kdev)
{
	return false;
}
#endif

#endif /* KEEL_DM_H */
