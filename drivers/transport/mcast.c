// SPDX-License-Identifier: GPL-2.0
/*
 * Multicast: the QPs that receive the messages to a group. A group is a list of this device's
 * QPs. Other hosts send to it by &keel_dev.cast.
 */
#include <linux/capability.h>
#include <linux/err.h>
#include <linux/slab.h>

#include "keel_qp.h"

/**
 * struct keel_mcast - a multicast group; it exists while it has members
 * @node: in &keel_mcasts.groups
 * @gid: its address
 * @members: struct keel_member
 * @n: number of members
 * @user: the user whose quota the group is charged to: the one whose QP
 *	attached first; NULL if that was a kernel consumer's
 * @cast: the same for other hosts; or NULL: they are not reached
 */
struct keel_mcast {
	struct list_head node;
	union ib_gid gid;
	struct list_head members;
	u32 n;
	struct keel_user *user;
	struct keel_cast_group *cast;
};

/**
 * struct keel_member - a QP in a group
 * @node: in &keel_mcast.members
 * @of_qp: in &keel_qp.mcast
 * @group: the group
 * @qp: the QP, without a reference: it leaves its groups before it is destroyed
 * @attached: number of times that it was attached. ib_core counts each of them,
 *	so the same number of detaches must succeed.
 */
struct keel_member {
	struct list_head node;
	struct list_head of_qp;
	struct keel_mcast *group;
	struct keel_qp *qp;
	u32 attached;
};

/**
 * keel_mcasts_init() - initialize the multicast groups of a device
 * @mcasts: of a new device
 */
void keel_mcasts_init(struct keel_mcasts *mcasts)
{
	spin_lock_init(&mcasts->lock);
	/* No other thread has them yet. */
	context_unsafe(INIT_LIST_HEAD(&mcasts->groups));
}

/* Free a group that has no members. */
static void keel_mcast_free(struct keel_mcast *group)
{
	if (!group || group->n)
		return;
	list_del(&group->node);
	keel_cast_leave(group->cast);
	keel_quota_uncharge(group->user, KEEL_RES_GROUPS, 1);
	kfree(group);
}

static struct keel_mcast *keel_mcast_find(struct keel_mcasts *mcasts,
					  const union ib_gid *gid)
	__must_hold(&mcasts->lock)
{
	struct keel_mcast *group;

	list_for_each_entry(group, &mcasts->groups, node)
		if (!memcmp(&group->gid, gid, sizeof(*gid)))
			return group;
	return NULL;
}

/* Allocate a group for the first QP that attaches, not in the list yet. */
static struct keel_mcast *keel_mcast_make(struct keel_qp *qp,
					  const union ib_gid *gid)
{
	gfp_t gfp = keel_gfp_of(!qp->user);
	struct keel_mcast *group;

	group = kzalloc_obj(*group, gfp);
	if (!group)
		return NULL;
	group->gid = *gid;
	INIT_LIST_HEAD(&group->members);
	INIT_LIST_HEAD(&group->node);
	if (keel_wire_is_on()) {
		group->cast = keel_cast_group_new(&qp->kdev->cast, gid, gfp);
		if (!group->cast)
			goto err_group;
	}
	if (qp->user) {
		group->user = keel_quota_charge(&qp->kdev->reg.quotas,
						KEEL_RES_GROUPS, 1, gfp);
		if (IS_ERR(group->user))
			goto err_cast;
	}
	return group;

err_cast:
	keel_cast_leave(group->cast);
err_group:
	kfree(group);
	return NULL;
}

/* A QP is in few groups, a group may have many QPs: search the QP's list. */
static struct keel_member *keel_member_find(struct keel_qp *qp,
					    const union ib_gid *gid)
	__must_hold(&qp->kdev->mcasts.lock)
{
	struct keel_member *member;

	list_for_each_entry(member, &qp->mcast, of_qp)
		if (!memcmp(&member->group->gid, gid, sizeof(*gid)))
			return member;
	return NULL;
}

static void keel_member_remove(struct keel_mcasts *mcasts,
			       struct keel_member *member)
	__must_hold(&mcasts->lock)
{
	struct keel_mcast *group = member->group;

	list_del(&member->node);
	list_del(&member->of_qp);
	group->n--;
	kfree(member);
	keel_mcast_free(group);
}

/* The places in a group are shared by users like other resources. */
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
 * struct keel_attach - an attach of a QP to a group
 * @qp: the QP
 * @gid: the address of the group
 * @member: allocated member, used if the QP is not in the group yet
 * @group: allocated group, used if the group does not exist yet; or NULL
 * @all: the QP may use all free places
 */
struct keel_attach {
	struct keel_qp *qp;
	const union ib_gid *gid;
	struct keel_member *member;
	struct keel_mcast *group;
	bool all;
};

/*
 * The part of an attach that does not sleep.
 * Return: 0; -EAGAIN if a group must be allocated; -EDQUOT if the QP may attach
 * only with @a->all; -ENOMEM if the group is full.
 */
static int keel_mcast_try(struct keel_attach *a)
	__must_hold(&a->qp->kdev->mcasts.lock)
{
	struct keel_mcasts *mcasts = &a->qp->kdev->mcasts;
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
		if (group->cast)
			keel_cast_join(group->cast);
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

/* Return: true to retry. */
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

/* ib_core has checked that the QP is UD, and the address multicast. */
static int keel_attach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid)
{
	struct keel_attach a = { .qp = to_kqp(ibqp), .gid = gid };
	int ret;

	a.member = kzalloc_obj(*a.member, keel_gfp_of(!a.qp->user));
	if (!a.member)
		return -ENOMEM;
	do {
		scoped_guard(spinlock, &a.qp->kdev->mcasts.lock)
			ret = keel_mcast_try(&a);
	} while (keel_mcast_retry(&a, ret));
	kfree(a.member);
	keel_mcast_free(a.group);
	/* The QP receives what other hosts send from here on, if a lower device can. */
	if (!ret)
		keel_cast_flush(&a.qp->kdev->cast);
	return ret ? -ENOMEM : 0;
}

static int keel_detach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid)
{
	struct keel_qp *qp = to_kqp(ibqp);
	struct keel_mcasts *mcasts = &qp->kdev->mcasts;
	struct keel_member *member;

	guard(spinlock)(&mcasts->lock);
	member = keel_member_find(qp, gid);
	if (!member)
		return -EINVAL;
	if (!--member->attached)
		keel_member_remove(mcasts, member);
	return 0;
}

/**
 * keel_mcast_leave() - remove a QP that is being destroyed from its groups
 * @qp: the QP; no caller attaches it any more
 *
 * ib_core does not destroy a QP that is attached, and detaches the QPs of a
 * process that exits. So normally no group is left.
 *
 * Context: may sleep.
 */
void keel_mcast_leave(struct keel_qp *qp)
{
	struct keel_mcasts *mcasts = &qp->kdev->mcasts;
	struct keel_member *member, *next;

	guard(spinlock)(&mcasts->lock);
	list_for_each_entry_safe(member, next, &qp->mcast, of_qp)
		keel_member_remove(mcasts, member);
}

/*
 * Return: number of members, with references in @list; or, if there are more
 * than @room, their number only, without references.
 */
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
		/* A member's destroy may have begun: the lock keeps the member. */
		if (context_unsafe(keel_obj_tryget(&member->qp->obj)))
			list[n++] = member->qp;
	return n;
}

/**
 * keel_mcast_members() - list the QPs that receive a message to a group
 * @kdev: the device
 * @gid: the group
 * @list: set to an array of QPs, or NULL. The caller drops the reference on
 *	each QP, and calls kfree() on the array.
 *
 * Context: may sleep.
 * Return: number of QPs, or -ENOMEM.
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
