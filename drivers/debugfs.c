// SPDX-License-Identifier: GPL-2.0
/*
 * debugfs keel/<device>/objects: the tree of live objects.
 *
 * A line an object, below the object that it needs first:
 *
 *	domain 1 refs 1 pid 812 (demo) instances 1 held by pd 1
 *	  pd 1 refs 2 pid 812 (demo) domain 1 holds domain 1 held by mr 4
 *	    mr 4 refs 1 pid 812 (demo) key 0x00000457 length 4096 holds pd 1
 *
 * "refs" is one for the program that made it, one for each that it is held
 * by, and one for each mapping or operation under way. "closing" has no
 * program any more, only holders.
 */
#include <linux/debugfs.h>
#include <linux/seq_file.h>
#include <linux/slab.h>

#include "keel.h"

/* Holders named in a line before it says "and so many more". */
#define KEEL_SHOW_HOLDERS	8

static struct dentry *keel_debugfs_root;

/**
 * struct keel_snapshot - the objects of a device at one moment
 * @room: how many fit in @at
 * @count: how many there are
 * @at: each with a reference, in the order of the tree, and its depth there
 */
struct keel_snapshot {
	u32 room;
	u32 count;
	struct {
		struct keel_obj *obj;
		u8 depth;
	} at[] __counted_by(room);
};

static void keel_snapshot_put(struct keel_snapshot *snap)
{
	u32 i;

	for (i = 0; i < snap->count; i++)
		keel_obj_put(snap->at[i].obj);
	kvfree(snap);
}

/*
 * Add an object and all that are below it in the tree. The depth is bounded,
 * because an object only holds older kinds: domain, pd, parent, mr.
 */
static bool keel_snapshot_add(struct keel_snapshot *snap, struct keel_obj *obj,
			      u8 depth)
{
	const struct keel_hold *hold;

	if (snap->count == snap->room)
		return false;
	if (!keel_obj_tryget(obj))
		return true;
	snap->at[snap->count].obj = obj;
	snap->at[snap->count++].depth = depth;
	list_for_each_entry(hold, &obj->holders, node)
		/* An object is shown once: below its first hold. */
		if (hold == &hold->holder->holds[0] &&
		    !keel_snapshot_add(snap, hold->holder, depth + 1))
			return false;
	return true;
}

static bool keel_snapshot_fill(struct keel_snapshot *snap,
			       struct keel_registry *reg)
{
	struct keel_obj *obj;
	unsigned long id;
	int kind;

	/* RCU for what the xarrays find, the lock for the holder lists. */
	guard(rcu)();
	guard(spinlock)(&reg->lock);
	for (kind = 0; kind < KEEL_KINDS; kind++)
		xa_for_each(&reg->objs[kind], id, obj)
			if (!obj->holds[0].target &&
			    !keel_snapshot_add(snap, obj, 0))
				return false;
	return true;
}

static struct keel_snapshot *keel_snapshot_get(struct keel_registry *reg)
{
	struct keel_snapshot *snap;
	u32 room = 64;

	for (;;) {
		snap = kvzalloc(struct_size(snap, at, room), GFP_KERNEL);
		if (!snap)
			return NULL;
		snap->room = room;
		if (keel_snapshot_fill(snap, reg))
			return snap;
		keel_snapshot_put(snap);
		room *= 2;
	}
}

static void keel_show_holds(struct seq_file *m, const struct keel_obj *obj)
{
	const struct keel_hold *hold;
	u32 n = 0;
	int i;

	for (i = 0; i < KEEL_MAX_HOLDS; i++)
		if (obj->holds[i].target)
			seq_printf(m, "%s %s %u", i ? "," : " holds",
				   keel_kind_name(obj->holds[i].target->kind),
				   obj->holds[i].target->id);
	list_for_each_entry(hold, &obj->holders, node)
		if (n++ < KEEL_SHOW_HOLDERS)
			seq_printf(m, "%s %s %u", n > 1 ? "," : " held by",
				   keel_kind_name(hold->holder->kind),
				   hold->holder->id);
	if (n > KEEL_SHOW_HOLDERS)
		seq_printf(m, " and %u more", n - KEEL_SHOW_HOLDERS);
}

static int keel_objects_show(struct seq_file *m, void *v)
{
	struct keel_registry *reg = m->private;
	struct keel_snapshot *snap;
	u32 i;

	snap = keel_snapshot_get(reg);
	if (!snap)
		return -ENOMEM;
	for (i = 0; i < snap->count && !seq_has_overflowed(m); i++) {
		const struct keel_obj *obj = snap->at[i].obj;

		guard(spinlock)(&reg->lock);
		seq_printf(m, "%*s%s %u refs %u pid %d (%s)%s",
			   2 * snap->at[i].depth, "",
			   keel_kind_name(obj->kind), obj->id,
			   /* One of them is the snapshot's own. */
			   kref_read(&obj->ref) - 1,
			   pid_vnr(obj->pid), obj->comm,
			   obj->closing ? " closing" : "");
		if (obj->ops->describe)
			obj->ops->describe(obj, m);
		keel_show_holds(m, obj);
		seq_putc(m, '\n');
	}
	keel_snapshot_put(snap);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(keel_objects);

/**
 * keel_debugfs_init() - make the directory of the module
 */
void keel_debugfs_init(void)
{
	keel_debugfs_root = debugfs_create_dir("keel", NULL);
}

/**
 * keel_debugfs_exit() - remove it; no device may be left
 */
void keel_debugfs_exit(void)
{
	debugfs_remove(keel_debugfs_root);
}

/**
 * keel_debugfs_add() - show a device, under the name that it has now
 * @kdev: the device
 */
void keel_debugfs_add(struct keel_dev *kdev)
{
	kdev->debugfs = debugfs_create_dir(dev_name(&kdev->ib.dev),
					   keel_debugfs_root);
	debugfs_create_file("objects", 0400, kdev->debugfs, &kdev->reg,
			    &keel_objects_fops);
}

/**
 * keel_debugfs_del() - show it no more
 * @kdev: the device; may never have been shown
 *
 * Waits for readers: afterwards no reference of theirs is left.
 */
void keel_debugfs_del(struct keel_dev *kdev)
{
	debugfs_remove(kdev->debugfs);
}
