/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A snapshot of a registry: the tree of its objects, for a reader who takes his time.
 */
#ifndef KEEL_SNAPSHOT_H
#define KEEL_SNAPSHOT_H

#include <linux/types.h>

#include "keel_obj.h"

/* The position behind the last object. */
#define KEEL_SNAPSHOT_END	U32_MAX

/**
 * struct keel_snapshot_at - an object of a snapshot
 * @obj: the object; the snapshot has a reference
 * @parent: position of the object that it holds first, or KEEL_SNAPSHOT_END
 * @child: position of the first object below it, or KEEL_SNAPSHOT_END
 * @next: position of the next object with the same parent, or KEEL_SNAPSHOT_END
 */
struct keel_snapshot_at {
	struct keel_obj *obj;
	u32 parent;
	u32 child;
	u32 next;
};

/**
 * struct keel_snapshot - the objects of a registry
 * @room: number of elements of @at
 * @count: number of objects
 * @kinds: positions of the first object of each kind; the last is @count
 * @root: position of the first object without a parent, or KEEL_SNAPSHOT_END
 * @at: the objects, by kind and number
 */
struct keel_snapshot {
	u32 room;
	u32 count;
	u32 kinds[KEEL_KINDS + 1];
	u32 root;
	struct keel_snapshot_at at[] __counted_by(room);
};

struct keel_snapshot *keel_snapshot_get(struct keel_registry *reg, bool kernel);
u32 keel_snapshot_next(const struct keel_snapshot *snap, u32 at, u32 *depth);
void keel_snapshot_put(struct keel_snapshot *snap);

#endif /* KEEL_SNAPSHOT_H */
