/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Objects and their lifetime.
 *
 * Everything that userspace can create on a keel device is a struct keel_obj inside
 * a structure of its own. The structures that ib_core allocates (struct ib_pd, ...)
 * only point to it:
 *
 *	uobject -> struct ib_xyz -> struct keel_obj <- holders
 *
 * The uobject owns one reference. An object that needs another object holds a
 * reference on it (a "hold") until it is itself released. So an object can outlive
 * its uobject, but a uobject never outlives its object. debugfs can list the
 * holders of every object.
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
#include <rdma/keel-abi.h>

#include "compat.h"
#include "keel_numbers.h"
#include "keel_quota.h"

/* Kinds of objects: KEEL_PD and so on, see KEEL_UAPI_KINDS(). */
enum keel_kind {
#define KEEL_KIND(_name, _number, _word)	KEEL_##_name = _number,
	KEEL_UAPI_KINDS(KEEL_KIND)
#undef KEEL_KIND
	KEEL_KINDS,
};

/**
 * enum keel_resource - resources that users share: objects, by kind, and others
 * @KEEL_RES_DM_BYTES: device memory
 * @KEEL_RES_HANDLES: handles of shared PDs, which are never reused
 * @KEEL_RES_GROUPS: multicast groups
 * @KEEL_RES_LINKS: links to other hosts
 * @KEEL_RESOURCES: number of resources
 */
enum keel_resource {
	KEEL_RES_DM_BYTES = KEEL_KINDS,
	KEEL_RES_HANDLES,
	KEEL_RES_GROUPS,
	KEEL_RES_LINKS,
	KEEL_RESOURCES,
};

/* Maximum number of objects that one object holds. */
#define KEEL_MAX_HOLDS	4

struct keel_obj;
struct seq_file;

/**
 * struct keel_obj_ops - operations of a kind of object
 * @release: the last reference was dropped: free what the object owns, and the
 *	object itself after an RCU grace period (kfree_rcu() on &keel_obj.rcu).
 *	The caller drops the holds afterwards. May sleep.
 * @describe: print the properties of the kind, or NULL. Called under
 *	&keel_registry.lock, so @closing cannot change meanwhile.
 */
struct keel_obj_ops {
	void (*release)(struct keel_obj *obj);
	void (*describe)(const struct keel_obj *obj, struct seq_file *m);
};

/* A reference of one object on another. */
struct keel_hold {
	struct keel_obj *holder;
	struct keel_obj *target;
	struct list_head node;		/* in target->holders */
};

/**
 * struct keel_registry - all objects of a device
 * @lock: protects the holder lists and @closing of every object. Taken in any
 *	context, inside any other lock; no lock is taken inside it.
 * @objs: by kind and number
 * @quotas: limits and use of each kind, of the device and of each user. Parent
 *	domains count as PDs and MRs of device memory as MRs, as in the limits of
 *	ibv_query_device().
 * @name: of the device, for trace events
 */
struct keel_registry {
	spinlock_t lock;
	struct keel_numbers objs[KEEL_KINDS];
	struct keel_quotas quotas;
	const char *name;
};

/**
 * struct keel_obj - common part of all objects
 * @ref: one for the uobject, one for every hold, one for each temporary user
 * @reg: the registry that lists it. The registry outlives it, because the device
 *	is freed only after every object.
 * @ops: operations of its kind
 * @id: number among its kind, not reused soon
 * @kind: its kind
 * @kernel: it belongs to a kernel consumer: userspace cannot access it, and no
 *	user's quota counts it. The creator of an object without holds sets it;
 *	other objects inherit it from the first object that they hold.
 * @closing: the uobject is destroyed, and only the holders keep the object
 * @user: the user that created it, whose quota counts it; NULL if @kernel
 * @pid: thread group that created it
 * @comm: name of that process
 * @holders: the objects that hold it
 * @nholders: number of holders
 * @nholds: number of @holds
 * @holds: the objects that it may hold, see keel_obj_may_hold(); the first is its parent
 *	in the debugfs tree
 * @rcu: for @ops->release
 */
struct keel_obj {
	struct kref ref;
	struct keel_registry *reg;
	const struct keel_obj_ops *ops;
	u32 id;
	enum keel_kind kind;
	bool kernel;
	bool closing __guarded_by(&reg->lock);
	u8 nholds;
	struct keel_user *user;
	struct pid *pid;
	char comm[TASK_COMM_LEN];
	struct list_head holders __guarded_by(&reg->lock);
	u32 nholders __guarded_by(&reg->lock);
	struct keel_hold *holds;
	struct rcu_head rcu;
};

/**
 * keel_obj_may_hold() - give an object room for its holds
 * @obj: the object, not added yet
 * @room: array of at most KEEL_MAX_HOLDS struct keel_hold, in the structure around @obj
 */
#define keel_obj_may_hold(obj, room) do {				\
	static_assert(ARRAY_SIZE(room) <= KEEL_MAX_HOLDS);		\
	(obj)->holds = (room);						\
	(obj)->nholds = ARRAY_SIZE(room);				\
} while (0)

void keel_registry_init(struct keel_registry *reg, const char *name);
void keel_registry_fini(struct keel_registry *reg);

int keel_obj_add_holds(struct keel_registry *reg, struct keel_obj *obj,
		       enum keel_kind kind, const struct keel_obj_ops *ops,
		       struct keel_obj *const *holds, gfp_t gfp);
void keel_obj_close(struct keel_obj *obj);
void keel_obj_put(struct keel_obj *obj);
void keel_obj_refused(struct keel_obj *obj);
u32 keel_obj_holders(struct keel_obj *obj, struct keel_uapi_holder *list,
		     u32 room);
const char *keel_kind_name(enum keel_kind kind);
const char *keel_resource_name(unsigned int what);

/**
 * keel_gfp_of() - allocation flags for memory that outlives a call
 * @kernel: it is for a kernel consumer: no process is charged
 *
 * Return: flags for process context. Allocations for a process are charged to its
 * memory cgroup.
 */
static inline gfp_t keel_gfp_of(bool kernel)
{
	return kernel ? GFP_KERNEL : GFP_KERNEL_ACCOUNT;
}

/**
 * keel_obj_add() - keel_obj_add_holds() for an object with at most two holds
 * @reg: where to list it
 * @obj: the object
 * @kind: its kind
 * @ops: operations of its kind
 * @first: an object that it needs, or NULL
 * @second: another one, or NULL; @obj has room for both
 *
 * Context: may sleep.
 * Return: as keel_obj_add_holds().
 */
static inline int keel_obj_add(struct keel_registry *reg, struct keel_obj *obj,
			       enum keel_kind kind,
			       const struct keel_obj_ops *ops,
			       struct keel_obj *first, struct keel_obj *second)
{
	struct keel_obj *const holds[] = { first, second };

	if (WARN_ON(obj->nholds < (second ? 2 : first ? 1 : 0) || obj->nholds > 2))
		return -EINVAL;
	return keel_obj_add_holds(reg, obj, kind, ops, holds, GFP_KERNEL);
}

/**
 * keel_obj_get() - take a reference; the caller has one already
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
 * Context: RCU read side.
 * Return: false if its last reference was dropped already.
 */
static inline bool keel_obj_tryget(struct keel_obj *obj)
	__must_hold_shared(RCU)
{
	return kref_get_unless_zero(&obj->ref);
}

#endif /* KEEL_OBJ_H */
