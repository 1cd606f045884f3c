// SPDX-License-Identifier: GPL-2.0
/*
 * Registry of objects: creation, references, release, and which objects hold
 * others. A core unit: it depends on no uverbs and no device.
 */
#include <linux/err.h>
#include <linux/seq_file.h>
#include <kunit/visibility.h>

#include "keel_obj.h"
#include "keel_trace.h"

/**
 * keel_registry_init() - initialize an empty registry without limits
 * @reg: the registry
 * @name: name of the device; must stay valid as long as @reg
 */
void keel_registry_init(struct keel_registry *reg, const char *name)
{
	int i;

	spin_lock_init(&reg->lock);
	reg->name = name;
	keel_quotas_init(&reg->quotas, name);
	for (i = 0; i < KEEL_KINDS; i++)
		keel_numbers_init(&reg->objs[i], 1, INT_MAX);
}
EXPORT_SYMBOL_IF_KUNIT(keel_registry_init);

/**
 * keel_registry_fini() - destroy an empty registry
 * @reg: the registry
 *
 * ib_core destroys every uobject before the device is freed. A mapping of
 * device memory drops its reference when ib_core zaps it. So an object that is
 * still listed is a bug in keel, and its holder would access freed memory:
 * warn.
 */
void keel_registry_fini(struct keel_registry *reg)
{
	int i;

	for (i = 0; i < KEEL_KINDS; i++)
		keel_numbers_fini(&reg->objs[i], keel_kind_name(i));
	keel_quotas_fini(&reg->quotas);
}
EXPORT_SYMBOL_IF_KUNIT(keel_registry_fini);

/* Returns the kind whose limit applies to a kind. */
static enum keel_kind keel_quota(enum keel_kind kind)
{
	switch (kind) {
	case KEEL_PARENT:
		return KEEL_PD;
	case KEEL_DM_MR:
		return KEEL_MR;
	default:
		return kind;
	}
}

static void keel_obj_hold(struct keel_obj *obj, int slot,
			  struct keel_obj *target)
{
	struct keel_hold *hold = &obj->holds[slot];

	INIT_LIST_HEAD(&hold->node);
	hold->holder = obj;
	hold->target = target;
	if (target)
		kref_get(&target->ref);
}

/* Let @target list @hold. */
static void keel_hold_list(struct keel_registry *reg, struct keel_hold *hold,
			   struct keel_obj *target)
	__must_hold(&reg->lock)
{
	/* An object holds objects of its own device only. */
	lockdep_assert_held(&target->reg->lock);
	list_add_tail(&hold->node, &target->holders);
	target->nholders++;
}

/* Undo keel_hold_list(). @target is NULL if @hold is not used. */
static void keel_hold_unlist(struct keel_registry *reg, struct keel_hold *hold,
			     struct keel_obj *target)
	__must_hold(&reg->lock)
{
	list_del_init(&hold->node);
	if (!target)
		return;
	lockdep_assert_held(&target->reg->lock);
	target->nholders--;
}

static void keel_obj_list(struct keel_registry *reg, struct keel_obj *obj)
{
	int i;

	if (!obj->nholds)
		return;
	guard(spinlock_irqsave)(&reg->lock);
	for (i = 0; i < obj->nholds; i++)
		if (obj->holds[i].target)
			keel_hold_list(reg, &obj->holds[i], obj->holds[i].target);
}

/**
 * keel_obj_add_holds() - initialize an object and list it
 * @reg: the registry that lists it
 * @obj: the object, zeroed, inside a structure that is otherwise complete:
 *	debugfs can show it from here on
 * @kind: its kind
 * @ops: its operations
 * @holds: the objects that it needs, as many as it has room for, each may be NULL; the
 *	first is its parent in the tree
 * @gfp: flags for allocations
 *
 * The object takes a reference on each of @holds and drops it when it is
 * released. The caller must have its own reference on each during the call. The
 * caller owns the first reference of the object and drops it with
 * keel_obj_close().
 *
 * Context: may sleep if @gfp may.
 * Return: 0; -ENOMEM if memory is short, or if the device or the calling user
 * cannot have more objects of this kind. On failure, no reference was taken,
 * and the caller frees @obj.
 */
int keel_obj_add_holds(struct keel_registry *reg, struct keel_obj *obj,
		       enum keel_kind kind, const struct keel_obj_ops *ops,
		       struct keel_obj *const *holds, gfp_t gfp)
{
	enum keel_kind quota = keel_quota(kind);
	struct keel_user *user = NULL;
	int ret, i;

	if (obj->nholds && holds[0] && holds[0]->kernel)
		obj->kernel = true;
	if (!obj->kernel) {
		user = keel_quota_charge(&reg->quotas, quota, 1,
					 gfp | __GFP_ACCOUNT);
		if (IS_ERR(user))
			return -ENOMEM;
	}

	kref_init(&obj->ref);
	obj->reg = reg;
	obj->ops = ops;
	obj->kind = kind;
	obj->user = user;
	obj->pid = get_pid(task_tgid(current));
	/* get_task_comm() takes a lock that interrupts must not. */
	strscpy_pad(obj->comm, current->group_leader->comm);
	/* No other thread has the object yet. */
	context_unsafe(INIT_LIST_HEAD(&obj->holders));
	for (i = 0; i < obj->nholds; i++)
		keel_obj_hold(obj, i, holds[i]);

	/* From here on, readers find it. It is complete; its targets list it later. */
	ret = keel_number_add(&reg->objs[kind], &obj->id, NULL, obj, gfp);
	if (ret)
		goto err_count;
	keel_obj_list(reg, obj);
	trace_keel_obj_birth(obj);
	return 0;

err_count:
	/* The caller has references, so these are not the last ones. */
	for (i = obj->nholds - 1; i >= 0; i--)
		if (holds[i])
			keel_obj_put(holds[i]);
	put_pid(obj->pid);
	keel_quota_uncharge(user, quota, 1);
	return -ENOMEM;
}
EXPORT_SYMBOL_IF_KUNIT(keel_obj_add_holds);

/* Undo keel_obj_list(). @targets gets the targets. */
static void keel_holds_unlist(struct keel_obj *obj, struct keel_obj **targets)
{
	struct keel_registry *reg = obj->reg;
	int i;

	guard(spinlock_irqsave)(&reg->lock);
	for (i = 0; i < obj->nholds; i++) {
		targets[i] = obj->holds[i].target;
		keel_hold_unlist(reg, &obj->holds[i], targets[i]);
	}
}

static void keel_obj_release(struct kref *ref)
{
	struct keel_obj *obj = container_of(ref, struct keel_obj, ref);
	struct keel_obj *targets[KEEL_MAX_HOLDS];
	struct keel_registry *reg = obj->reg;
	struct keel_user *user = obj->user;
	enum keel_kind kind = obj->kind;
	int n = obj->nholds, i;

	trace_keel_obj_death(obj);
	/* No holder is left, and nobody else has the object. */
	context_unsafe(WARN_ON(!list_empty(&obj->holders)));
	keel_number_remove(&reg->objs[kind], obj->id);
	if (n)
		keel_holds_unlist(obj, targets);
	put_pid(obj->pid);
	obj->ops->release(obj);
	for (i = n - 1; i >= 0; i--)
		if (targets[i])
			keel_obj_put(targets[i]);
	/* Last: the limit counts objects that still take memory. */
	keel_quota_uncharge(user, keel_quota(kind), 1);
}

/**
 * keel_obj_put() - drop a reference
 * @obj: the object; may be freed afterwards
 *
 * Context: may sleep: the object may hold the last reference on another one.
 * Chains are as short as the tree is deep, because an object only holds older
 * kinds (see Documentation/objects.rst). Any context for an AH whose PD has
 * another reference.
 */
void keel_obj_put(struct keel_obj *obj)
{
	kref_put(&obj->ref, keel_obj_release);
}
EXPORT_SYMBOL_IF_KUNIT(keel_obj_put);

/**
 * keel_obj_close() - drop the reference of the uobject
 * @obj: the object; may be freed afterwards
 *
 * Context: as keel_obj_put().
 */
void keel_obj_close(struct keel_obj *obj)
{
	scoped_guard(spinlock_irqsave, &obj->reg->lock)
		obj->closing = true;
	keel_obj_put(obj);
}
EXPORT_SYMBOL_IF_KUNIT(keel_obj_close);

/* See keel_obj_holders(). With @global, pids are of the initial namespace. */
static u32 keel_obj_list_holders(struct keel_obj *obj,
				 struct keel_uapi_holder *list, u32 room,
				 bool global)
{
	const struct keel_hold *hold;
	u32 n = 0;

	guard(spinlock_irqsave)(&obj->reg->lock);
	list_for_each_entry(hold, &obj->holders, node) {
		const struct keel_obj *holder = hold->holder;

		/* Limit the time under the lock: there may be any number. */
		if (n == room)
			break;
		list[n].kind = holder->kind;
		list[n].id = holder->id;
		list[n].pid = global ? pid_nr(holder->pid) :
				       pid_vnr(holder->pid);
		strscpy(list[n].comm, holder->comm);
		n++;
	}
	return obj->nholders;
}

/**
 * keel_obj_holders() - list the holders of an object
 * @obj: the object; the caller has a reference
 * @list: gets the holders; zeroed by the caller
 * @room: number of elements of @list
 *
 * Process IDs are those of the caller's pid namespace, or 0 for a process that
 * is not visible from there.
 *
 * Return: the number of holders, which may exceed @room.
 */
u32 keel_obj_holders(struct keel_obj *obj, struct keel_uapi_holder *list,
		     u32 room)
{
	return keel_obj_list_holders(obj, list, room, false);
}
EXPORT_SYMBOL_IF_KUNIT(keel_obj_holders);

/**
 * keel_obj_refused() - trace a destroy that was refused
 * @obj: the object that is in use; the caller has a reference
 *
 * The trace event names the first holder.
 */
void keel_obj_refused(struct keel_obj *obj)
{
	struct keel_uapi_holder first = {};
	u32 n = keel_obj_list_holders(obj, &first, 1, true);

	trace_keel_destroy_refused(obj, n, &first);
}
