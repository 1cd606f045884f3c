// SPDX-License-Identifier: GPL-2.0
/*
 * Multicast: which QPs get what is sent to a group. There is no wire, so a
 * group is a list of this device's QPs.
 */
#include <linux/capability.h>
#include <linux/err.h>
#include <linux/slab.h>

#include "keel_qp.h"

/**
 * struct keel_mcast - a group, as long as it has members
 * @node: in &keel_mcasts.groups
 * @gid: its address
 * @members: struct keel_member
 * @n: how many
 * @user: the user that it counts for, who made it; NULL if a consumer in the
 *	kernel did
 */
struct keel_mcast {
	struct list_head node;
	union ib_gid gid;
	struct list_head members;
	u32 n;
	struct keel_user *user;
};

/**
 * struct keel_member - a QP in a group
 * @node: in &keel_mcast.members
 * @of_qp: in &keel_qp.mcast
 * @group: the group
 * @qp: the QP. It has no reference: the QP leaves before it goes.
 * @attached: how many times; the core counts them all, and so the same number
 *	of detaches has to succeed
 */
struct keel_member {
	struct list_head node;
	struct list_head of_qp;
	struct keel_mcast *group;
	struct keel_qp *qp;
	u32 attached;
};

/**
 * keel_mcasts_init() - no groups yet
 * @mcasts: of a new device
 */
void keel_mcasts_init(struct keel_mcasts *mcasts)
{
	spin_lock_init(&mcasts->lock);
	INIT_LIST_HEAD(&mcasts->groups);
}

static struct keel_mcast *keel_mcast_find(struct keel_mcasts *mcasts,
					  const union ib_gid *gid)
{
	struct keel_mcast *group;

	list_for_each_entry(group, &mcasts->groups, node)
		if (!memcmp(&group->gid, gid, sizeof(*gid)))
			return group;
	return NULL;
}

/* A group for a QP that attaches to it first, not yet in the list. */
static struct keel_mcast *keel_mcast_make(struct keel_qp *qp,
					  const union ib_gid *gid)
{
	gfp_t gfp = keel_gfp_of(!qp->user);
	struct keel_mcast *group;

	group = kzalloc_obj(*group, gfp);
	if (!group)
		return NULL;
	if (qp->user) {
		group->user = keel_quota_charge(&qp->kdev->reg.quotas,
						KEEL_RES_GROUPS, 1, gfp);
		if (IS_ERR(group->user)) {
			kfree(group);
			return NULL;
		}
	}
	group->gid = *gid;
	INIT_LIST_HEAD(&group->members);
	INIT_LIST_HEAD(&group->node);
	return group;
}

/* A group without members is none. */
static void keel_mcast_drop(struct keel_mcast *group)
{
	if (!group || group->n)
		return;
	list_del(&group->node);
	keel_quota_uncharge(group->user, KEEL_RES_GROUPS, 1);
	kfree(group);
}

/* A QP is in few groups, but a group may have many QPs: look at its list. */
static struct keel_member *keel_member_find(struct keel_qp *qp,
					    const union ib_gid *gid)
{
	struct keel_member *member;

	list_for_each_entry(member, &qp->mcast, of_qp)
		if (!memcmp(&member->group->gid, gid, sizeof(*gid)))
			return member;
	return NULL;
}

static void keel_member_remove(struct keel_member *member)
{
	struct keel_mcast *group = member->group;

	list_del(&member->node);
	list_del(&member->of_qp);
	group->n--;
	kfree(member);
	keel_mcast_drop(group);
}

/* The places in a group are shared as everything else is. */
static int keel_mcast_room(const struct keel_mcast *group,
			   const struct keel_qp *qp)
{
	const struct keel_member *member;
	u64 held = 0;

	list_for_each_entry(member, &group->members, node)
		held += member->qp->obj.user == qp->obj.user;
	return keel_quota_check(KEEL_MAX_MCAST_QP, group->n, held, 1);
}

/**
 * struct keel_attach - a QP is about to be attached to a group
 * @qp: the QP
 * @gid: the address of the group
 * @member: of the QP, used if it is none yet
 * @group: used if there is none yet, or NULL
 * @all: the QP may have all that is free
 */
struct keel_attach {
	struct keel_qp *qp;
	const union ib_gid *gid;
	struct keel_member *member;
	struct keel_mcast *group;
	bool all;
};

/*
 * As far as it can be done without sleeping.
 * Return: 0; -EAGAIN: a group is needed; -EDQUOT: only who may have all can;
 * -ENOMEM.
 */
static int keel_mcast_try(struct keel_mcasts *mcasts, struct keel_attach *a)
{
	struct keel_member *member = keel_member_find(a->qp, a->gid);
	struct keel_mcast *group;
	int ret = 0;

	if (member) {
		member->attached++;
		return 0;
	}
	group = keel_mcast_find(mcasts, a->gid);
	if (group)
		ret = keel_mcast_room(group, a->qp);
	if (ret && !(ret == -EDQUOT && a->all))
		return ret;
	if (!group) {
		if (!a->group)
			return -EAGAIN;
		swap(group, a->group);
		list_add_tail(&group->node, &mcasts->groups);
	}
	swap(member, a->member);
	member->group = group;
	member->qp = a->qp;
	member->attached = 1;
	list_add_tail(&member->node, &group->members);
	list_add_tail(&member->of_qp, &a->qp->mcast);
	group->n++;
	return 0;
}

/* Return: whether to try again. */
static bool keel_mcast_retry(struct keel_attach *a, int ret)
{
	switch (ret) {
	case -EAGAIN:
		a->group = keel_mcast_make(a->qp, a->gid);
		return a->group;
	case -EDQUOT:
		a->all = !a->qp->user || capable(CAP_SYS_RESOURCE);
		return a->all;
	default:
		return false;
	}
}

/* The core has seen that it is a UD QP, and the address one of a group. */
static int keel_attach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid)
{
	struct keel_mcasts *mcasts = &to_kdev(ibqp->device)->mcasts;
	struct keel_attach a = { .qp = to_kqp(ibqp), .gid = gid };
	int ret;

	a.member = kzalloc_obj(*a.member, keel_gfp_of(!a.qp->user));
	if (!a.member)
		return -ENOMEM;
	do {
		scoped_guard(spinlock, &mcasts->lock)
			ret = keel_mcast_try(mcasts, &a);
	} while (keel_mcast_retry(&a, ret));
	kfree(a.member);
	keel_mcast_drop(a.group);
	return ret ? -ENOMEM : 0;
}

static int keel_detach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid)
{
	struct keel_mcasts *mcasts = &to_kdev(ibqp->device)->mcasts;
	struct keel_member *member;

	guard(spinlock)(&mcasts->lock);
	member = keel_member_find(to_kqp(ibqp), gid);
	if (!member)
		return -EINVAL;
	if (!--member->attached)
		keel_member_remove(member);
	return 0;
}

/**
 * keel_mcast_leave() - a QP that is destroyed leaves its groups
 * @qp: the QP; nobody attaches it any more
 *
 * The core refuses to destroy a QP that is attached, and detaches those of a
 * process that dies; so there should be none left.
 *
 * Context: may sleep.
 */
void keel_mcast_leave(struct keel_qp *qp)
{
	struct keel_mcasts *mcasts = &qp->kdev->mcasts;
	struct keel_member *member, *next;

	guard(spinlock)(&mcasts->lock);
	list_for_each_entry_safe(member, next, &qp->mcast, of_qp)
		keel_member_remove(member);
}

/* Return: how many, with references; or, if it is more than @room, none yet. */
static u32 keel_mcast_copy(struct keel_dev *kdev, const union ib_gid *gid,
			   struct keel_qp **list, u32 room)
{
	struct keel_member *member;
	struct keel_mcast *group;
	u32 n = 0;

	guard(spinlock)(&kdev->mcasts.lock);
	group = keel_mcast_find(&kdev->mcasts, gid);
	if (!group)
		return 0;
	if (group->n > room)
		return group->n;
	list_for_each_entry(member, &group->members, node)
		/* It left nobody's list, but its destroy may be under way. */
		if (keel_obj_tryget(&member->qp->obj))
			list[n++] = member->qp;
	return n;
}

/**
 * keel_mcast_members() - who gets a message to a group
 * @kdev: the device
 * @gid: the group
 * @list: set to an array of QPs, each with a reference for the caller to put;
 *	the array is the caller's to kfree(), or NULL.
 *
 * Context: may sleep.
 * Return: how many, or -ENOMEM.
 */
int keel_mcast_members(struct keel_dev *kdev, const union ib_gid *gid,
		       struct keel_qp ***list)
{
	u32 room = 0, n;

	*list = NULL;
	while ((n = keel_mcast_copy(kdev, gid, *list, room)) > room) {
		kfree(*list);
		*list = kmalloc_array(n, sizeof(**list), GFP_KERNEL);
		if (!*list)
			return -ENOMEM;
		room = n;
	}
	return n;
}

const struct ib_device_ops keel_mcast_ops = {
	.attach_mcast = keel_attach_mcast,
	.detach_mcast = keel_detach_mcast,
};
