/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Device memory, and how userspace maps it.
 */
#ifndef KEEL_DM_H
#define KEEL_DM_H

#include <linux/list.h>
#include <linux/mutex.h>
#include <rdma/ib_verbs.h>

#include "compat.h"
#include "keel_aperture.h"
#include "keel_obj.h"

struct keel_dev;

/**
 * struct keel_dm - a buffer of device memory
 * @obj: the object
 * @ap: the aperture it is in
 * @start: its offset in the aperture
 * @length: bytes, as requested; the rest of its last page stays unused
 * @user: the user whose quota counts its pages
 * @lock: protects @maps
 * @maps: mmap entries, each with a reference on @obj until its last mapping is
 *	closed
 */
struct keel_dm {
	struct keel_obj obj;
	struct keel_aperture *ap;
	u64 start;
	u64 length;
	struct keel_user *user;
	struct mutex lock;
	struct list_head maps __guarded_by(&lock);
};

struct keel_ib_dm {
	struct ib_dm ib;
	struct keel_dm *dm;
};

static inline struct keel_dm *to_kdm(struct ib_dm *ib)
{
	return container_of(ib, struct keel_ib_dm, ib)->dm;
}

/* dm_map.c */
const struct keel_aperture_seg *
keel_dm_map_seg(struct rdma_user_mmap_entry *entry);
void keel_dm_unmap(struct keel_dm *dm);

/* dm_export.c */
#if KEEL_DMABUF_EXPORT
void keel_dm_export_offer(struct keel_dev *kdev);
#else
static inline void keel_dm_export_offer(struct keel_dev *kdev)
{
}
#endif

#endif /* KEEL_DM_H */
