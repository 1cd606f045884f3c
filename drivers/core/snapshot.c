// SPDX-License-Identifier: GPL-2.0
/*
 * Snapshots of a registry. It may have a million objects, and their owners go on
 * meanwhile: no lock is held, and no grace period waits, for longer than a few objects
 * take. So a snapshot is of no single moment. It has each object that exists during the
 * whole of keel_snapshot_get(), and none without its parent.
 */
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <kunit/visibility.h>

#include "keel_point.h"
#include "keel_snapshot.h"

/* Room of a new snapshot, and objects that are found in one RCU read section. */
#define KEEL_SNAPSHOT_PIECE	64

static struct keel_snapshot *keel_snapshot_alloc(u32 room)
{
	struct keel_snapshot *snap;

	snap = kvzalloc(struct_size(snap, at, room), GFP_KERNEL);
	if (snap)
		snap->room = room;
	return snap;
}

/* Double the room. Returns NULL if memory is short: @snap is put then. */
static struct keel_snapshot *keel_snapshot_grow(struct keel_snapshot *snap)
{
	struct keel_snapshot *more = keel_snapshot_alloc(2 * snap->room);

	if (!more) {
		keel_snapshot_put(snap);
		return NULL;
	}
	more->count = snap->count;
	memcpy(more->kinds, snap->kinds, sizeof(snap->kinds));
	memcpy(more->at, snap->at, snap->count * sizeof(*snap->at));
	kvfree(snap);
	return more;
}

/*
 * Add a few objects of a kind, from number @id on, which is advanced. Returns false if
 * there are no more.
 */
static bool keel_snapshot_some(struct keel_snapshot *snap,
			       struct keel_numbers *objs, bool kernel, unsigned long *id)
{
	struct keel_obj *obj;
	int n = 0;

	/* Until it has a reference, RCU keeps an object that was found. */
	guard(rcu)();
	xa_for_each_start(&objs->xa, *id, obj, *id) {
		if (n++ == KEEL_SNAPSHOT_PIECE || snap->count == snap->room)
			return true;
		if (obj->kernel != kernel || !keel_obj_tryget(obj))
			continue;
		snap->at[snap->count++] = (struct keel_snapshot_at){
			.obj = obj,
			.parent = KEEL_SNAPSHOT_END,
			.child = KEEL_SNAPSHOT_END,
			.next = KEEL_SNAPSHOT_END,
		};
	}
	return false;
}

/* Returns the position of an object, or KEEL_SNAPSHOT_END. */
static u32 keel_snapshot_find(const struct keel_snapshot *snap,
			      const struct keel_obj *obj)
{
	u32 first = snap->kinds[obj->kind], end = snap->kinds[obj->kind + 1];

	while (first < end) {
		u32 middle = first + (end - first) / 2;

		if (snap->at[middle].obj == obj)
			return middle;
		if (snap->at[middle].obj->id < obj->id)
			first = middle + 1;
		else
			end = middle;
	}
	return KEEL_SNAPSHOT_END;
}

/* Link the objects to their parents, from the last to the first. */
static void keel_snapshot_link(struct keel_snapshot *snap)
{
	const struct keel_obj *obj;
	struct keel_obj *target;
	u32 at, parent, *list;

	snap->root = KEEL_SNAPSHOT_END;
	for (at = snap->count; at--; cond_resched()) {
		list = &snap->root;
		/* An object keeps its holds until it is released. */
		obj = snap->at[at].obj;
		target = obj->nholds ? obj->holds[0].target : NULL;
		if (target) {
			parent = keel_snapshot_find(snap, target);
			/* Both were created meanwhile. */
			if (parent == KEEL_SNAPSHOT_END)
				continue;
			snap->at[at].parent = parent;
			list = &snap->at[parent].child;
		}
		snap->at[at].next = *list;
		*list = at;
	}
}

/**
 * keel_snapshot_get() - get references on all objects
 * @reg: the registry
 * @kernel: the objects of kernel consumers; else those of userspace
 *
 * Context: may sleep.
 * Return: a snapshot, which the caller puts; NULL if memory is short.
 */
struct keel_snapshot *keel_snapshot_get(struct keel_registry *reg, bool kernel)
{
	struct keel_snapshot *snap = keel_snapshot_alloc(KEEL_SNAPSHOT_PIECE);
	unsigned long id;
	int kind;

	if (!snap)
		return NULL;
	for (kind = 0; kind < KEEL_KINDS; kind++) {
		snap->kinds[kind] = snap->count;
		id = 0;
		while (keel_snapshot_some(snap, &reg->objs[kind], kernel, &id)) {
			if (snap->count == snap->room)
				snap = keel_snapshot_grow(snap);
			if (!snap)
				return NULL;
			cond_resched();
		}
		keel_point("snapshot_kind");
	}
	snap->kinds[KEEL_KINDS] = snap->count;
	keel_snapshot_link(snap);
	return snap;
}
EXPORT_SYMBOL_IF_KUNIT(keel_snapshot_get);

/**
 * keel_snapshot_next() - walk the tree: parents first, by kind and number
 * @snap: the snapshot
 * @at: a position; &keel_snapshot.root at first
 * @depth: its depth in the tree, which is advanced; 0 at first
 *
 * Return: the next position, or KEEL_SNAPSHOT_END.
 */
u32 keel_snapshot_next(const struct keel_snapshot *snap, u32 at, u32 *depth)
{
	if (snap->at[at].child != KEEL_SNAPSHOT_END) {
		++*depth;
		return snap->at[at].child;
	}
	while (snap->at[at].next == KEEL_SNAPSHOT_END && *depth) {
		--*depth;
		at = snap->at[at].parent;
	}
	return snap->at[at].next;
}
EXPORT_SYMBOL_IF_KUNIT(keel_snapshot_next);

/**
 * keel_snapshot_put() - drop all references, and free the snapshot
 * @snap: the snapshot
 *
 * Context: as keel_obj_put().
 */
void keel_snapshot_put(struct keel_snapshot *snap)
{
	u32 at;

	for (at = 0; at < snap->count; at++) {
		keel_obj_put(snap->at[at].obj);
		cond_resched();
	}
	kvfree(snap);
}
EXPORT_SYMBOL_IF_KUNIT(keel_snapshot_put);
