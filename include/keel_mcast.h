/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Multicast groups.
 */
#ifndef KEEL_MCAST_H
#define KEEL_MCAST_H

#include <linux/list.h>
#include <linux/spinlock.h>
#include <rdma/ib_verbs.h>

#include "compat.h"

struct keel_dev;
struct keel_qp;

/**
 * struct keel_mcasts - multicast groups of a device
 * @lock: protects the list and the members of every group
 * @groups: struct keel_mcast
 */
struct keel_mcasts {
	spinlock_t lock;
	struct list_head groups __guarded_by(&lock);
};

/* mcast.c */
void keel_mcasts_init(struct keel_mcasts *mcasts);
int keel_mcast_members(struct keel_dev *kdev, const union ib_gid *gid,
		       struct keel_qp ***list);
void keel_mcast_leave(struct keel_qp *qp);

#endif /* KEEL_MCAST_H */
