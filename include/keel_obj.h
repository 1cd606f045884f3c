/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Objects: the one lifetime rule.
 *
 * Everything that a program can make on a keel device is a struct keel_obj
 * inside a structure of its own. The structures that ib_core allocates (struct
 * ib_pd, ...) only point at it:
 *
 *	uobject -> struct ib_xyz -> struct keel_obj <- holders
 *
 * The uobject owns one reference, and every object that needs another one to
 * work holds a reference on it (a "hold") until it is itself released. So an
 * object can outlive its uobject, never the other way round, and debugfs can
 * say who holds what.
 */
#ifndef KEEL_OBJ_H
#define KEEL_OBJ_H

#include <linux/gfp.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/pid.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/xarray.h>
#include <rdma/keel-abi.h>

#include "compat.h"
#include "keel_quota.h"

/* Kinds of objects: KEEL_PD and so on, see KEEL_UAPI_KINDS(). */
enum keel_kind {
#define KEEL_KIND(_name, _number, _word)	KEEL_##_name = _number,
	KEEL_UAPI_KINDS(KEEL_KIND)
#undef KEEL_KIND
	KEEL_KINDS,
};

/**
 * enum keel_resource - what users share: objects, by their kind, and more
 * @KEEL_RES_DM_BYTES: device memory
 * @KEEL_RES_HANDLES: handles of shared PDs, which are used once
 * @KEEL_RES_GROUPS: multicast groups
 * @KEEL_RESOURCES: how many resources there are
 */
enum keel_resource {
	KEEL_RES_DM_BYTES = KEEL_KINDS,
	KEEL_RES_HANDLES,
	KEEL_RES_GROUPS,
	KEEL_RESOURCES,
};

/* No object holds more than this many others. */
#define KEEL_MAX_HOLDS	4

struct keel_obj;
struct seq_file;

/**
 * struct keel_obj_ops - what a kind of object does
 * @release: the last reference is gone: free what the object owns and the
 *	object itself, the latter after an RCU grace period (kfree_rcu() on
 *	&keel_obj.rcu). The holds are dropped by the caller afterwards. May
 *	sleep.
 * @describe: print what is particular to the object, or NULL. Called under
 *	&keel_registry.lock, so @closing cannot change under it.
 */
struct keel_obj_ops {
	void (*release)(struct keel_obj *obj);
	void (*describe)(const struct keel_obj *obj, struct seq_file *m);
};

/* One object's reference on another. */
struct keel_hold {
	struct keel_obj *holder;
	struct keel_obj *target;
	struct list_head node;		/* in target->holders */
};

/**
 * struct keel_registry - all objects of a device
 * @lock: protects the holder lists and @closing of every object; taken inside
 *	anything, in any context, and nothing is taken inside it
 * @objs: by kind and number
 * @next: where to look for the next number of a kind
 * @quotas: how many there may be of a kind, how many there are, and whose they
 *	are; parent domains count as PDs and MRs of device memory as MRs, because
 *	that is how a device states its limits
 * @name: of the device, for trace events
 */
struct keel_registry {
	spinlock_t lock;
	struct xarray objs[KEEL_KINDS];
	u32 next[KEEL_KINDS];
	struct keel_quotas quotas;
	const char *name;
};

/**
 * struct keel_obj - what all objects have
 * @ref: one for the uobject, one for every hold, one for whoever else uses
 *	the object at this moment
 * @reg: the registry that lists it; outlives it, because the device is only
 *	freed when every object is gone
 * @ops: what its kind does
 * @id: number in its kind, not used again soon
 * @kind: what it is
 * @kernel: it belongs to a consumer in the kernel: programs do not see it, and
 *	it does not count against their limits. The creator of an object that
 *	holds nothing sets it; the others have it from the first that they hold.
 * @closing: the uobject is gone and only the holders keep it
 * @user: the user that it counts for, who made it; NULL if @kernel
 * @pid: thread group that made it
 * @comm: name of that process
 * @holders: who holds it
 * @nholders: how many that are
 * @holds: whom it holds; the first one is its place in the tree of debugfs
 * @rcu: for @ops->release
 */
struct keel_obj {
	struct kref ref;
	struct keel_registry *reg;
	const struct keel_obj_ops *ops;
	u32 id;
	enum keel_kind kind;
	bool kernel;
	bool closing;
	struct keel_user *user;
	struct pid *pid;
	char comm[TASK_COMM_LEN];
	struct list_head holders;
	u32 nholders;
	struct keel_hold holds[KEEL_MAX_HOLDS];
	struct rcu_head rcu;
};

void keel_registry_init(struct keel_registry *reg, const char *name);
void keel_registry_fini(struct keel_registry *reg);

int keel_obj_add_holds(struct keel_registry *reg, struct keel_obj *obj,
		       enum keel_kind kind, const struct keel_obj_ops *ops,
		       struct keel_obj *const holds[KEEL_MAX_HOLDS], gfp_t gfp);
void keel_obj_close(struct keel_obj *obj);
void keel_obj_put(struct keel_obj *obj);
void keel_obj_refused(struct keel_obj *obj);
u32 keel_obj_holders(struct keel_obj *obj, struct keel_uapi_holder *list,
		     u32 room);
const char *keel_kind_name(enum keel_kind kind);
const char *keel_resource_name(unsigned int what);

/**
 * keel_gfp_of() - how to allocate what outlives a call
 * @kernel: it is for a consumer in the kernel: no process is to be charged
 *
 * Return: flags for process context; what a process makes is charged to its
 * memory cgroup.
 */
static inline gfp_t keel_gfp_of(bool kernel)
{
	return kernel ? GFP_KERNEL : GFP_KERNEL_ACCOUNT;
}

/**
 * keel_obj_add() - keel_obj_add_holds() for an object that holds two at most
 * @reg: where to list it
 * @obj: the object
 * @kind: what it is
 * @ops: what it does
 * @first: an object that it needs, or NULL
 * @second: another one, or NULL
 *
 * Context: may sleep.
 * Return: as keel_obj_add_holds().
 */
static inline int keel_obj_add(struct keel_registry *reg, struct keel_obj *obj,
			       enum keel_kind kind,
			       const struct keel_obj_ops *ops,
			       struct keel_obj *first, struct keel_obj *second)
{
	struct keel_obj *const holds[KEEL_MAX_HOLDS] = { first, second };

	return keel_obj_add_holds(reg, obj, kind, ops, holds, GFP_KERNEL);
}

/**
 * keel_obj_get() - take a reference on an object that has one already
 * @obj: the object
 */
static inline void keel_obj_get(struct keel_obj *obj)
{
	kref_get(&obj->ref);
}

/**
 * keel_obj_tryget() - take a reference on an object found under RCU
 * @obj: the object
 *
 * Return: false when its last reference is gone already.
 */
static inline bool keel_obj_tryget(struct keel_obj *obj)
{
	return kref_get_unless_zero(&obj->ref);
}

#endif /* KEEL_OBJ_H */
