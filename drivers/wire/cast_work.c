// SPDX-License-Identifier: GPL-2.0
/*
 * Multicast to and from other hosts: the work of a device. It finds the lower device, gives
 * it a QP while there are groups or datagrams, attaches that to the groups, and sends.
 */
#include <linux/err.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <rdma/ib_cache.h>

#include "keel.h"
#include "keel_cast.h"

/* How often to look whether the QP is still that of the right device. */
#define KEEL_CAST_CHECK		(2 * HZ)
/* When to make another QP after an error, and when to look for a lower device again. */
#define KEEL_CAST_PAUSE		(HZ / 10 ?: 1)
#define KEEL_CAST_RETRY		HZ
/* How long a QP stays without groups and datagrams. */
#define KEEL_CAST_IDLE		(30 * HZ)

static struct keel_dev *keel_cast_dev(struct keel_cast *cast)
{
	return container_of(cast, struct keel_dev, cast);
}

/*
 * Find the port of a lower device of RoCE v2 that has a GID of the device: the first one that
 * links could use. Return: the device, with a reference; or NULL.
 */
static struct keel_lower *keel_cast_lower(struct keel_dev *kdev, u32 *port)
{
	const struct ib_gid_attr *attr, *found;
	static const union ib_gid nobody;
	struct keel_lower *lower;
	struct keel_ends ends;
	bool is;
	int i;

	for (i = 0; i < KEEL_GIDS; i++) {
		attr = rdma_get_gid_attr(&kdev->ib, KEEL_PORT, i);
		if (IS_ERR(attr))
			continue;
		is = attr->gid_type == IB_GID_TYPE_ROCE_UDP_ENCAP &&
		     keel_ends_of(attr, &nobody, &ends);
		rdma_put_gid_attr(attr);
		lower = is ? keel_lower_find(&ends, &found) : NULL;
		/* iWARP has no datagrams. */
		if (lower && found) {
			*port = found->port_num;
			rdma_put_gid_attr(found);
			return lower;
		}
		keel_lower_put(lower);
	}
	return NULL;
}

/* Is there a group, or a datagram? */
static bool keel_cast_is_wanted(struct keel_cast *cast)
{
	guard(spinlock)(&cast->lock);
	return cast->on && (!list_empty(&cast->todo) || !list_empty(&cast->groups) ||
			    !list_empty(&cast->failed) || cast->nmsgs);
}

static bool keel_cast_is_idle(struct keel_cast *cast)
{
	return !keel_cast_is_wanted(cast) &&
	       time_after(jiffies, READ_ONCE(cast->used) + KEEL_CAST_IDLE);
}

static bool keel_cast_is_on(struct keel_cast *cast)
{
	guard(spinlock)(&cast->lock);
	return cast->on;
}

/*
 * Now and then: is the QP one of another device than it should be? If not, try again to attach
 * it to groups.
 */
static bool keel_cast_is_astray(struct keel_cast *cast)
{
	struct keel_lower *lower;
	bool is;
	u32 port;

	if (time_before(jiffies, cast->check))
		return false;
	cast->check = jiffies + KEEL_CAST_CHECK;
	lower = keel_cast_lower(keel_cast_dev(cast), &port);
	is = !lower || !keel_cast_qp_is_at(cast->qp, lower, port);
	keel_lower_put(lower);
	guard(spinlock)(&cast->lock);
	list_splice_tail_init(&cast->failed, &cast->todo);
	return is;
}

/*
 * Return: a group that is attached, and is in the list of those to change from here on; or
 * NULL. Only the work frees it.
 */
static struct keel_cast_group *keel_cast_next_attached(struct keel_cast *cast)
{
	struct keel_cast_group *group;

	guard(spinlock)(&cast->lock);
	group = list_first_entry_or_null(&cast->groups, struct keel_cast_group, node);
	if (group) {
		list_move_tail(&group->node, &cast->todo);
		return group;
	}
	list_for_each_entry(group, &cast->todo, node)
		if (group->attached)
			return group;
	return NULL;
}

/* Destroy the QP. */
static void keel_cast_down(struct keel_cast *cast)
{
	struct keel_cast_qp *cqp = cast->qp;
	struct keel_cast_group *group;

	if (keel_cast_qp_is_broken(cqp))
		cast->retry = jiffies + KEEL_CAST_PAUSE;
	while ((group = keel_cast_next_attached(cast))) {
		keel_cast_qp_detach(cqp, group);
		group->attached = false;
	}
	scoped_guard(spinlock, &cast->lock) {
		list_splice_tail_init(&cast->failed, &cast->todo);
		cast->qp = NULL;
	}
	keel_cast_qp_destroy(cqp);
}

/* Make the QP. */
static void keel_cast_up(struct keel_cast *cast)
{
	struct keel_cast_qp *cqp = ERR_PTR(-ENODEV);
	struct keel_lower *lower;
	u32 port;

	lower = keel_cast_lower(keel_cast_dev(cast), &port);
	if (lower)
		cqp = keel_cast_qp_new(cast, lower, port);
	keel_lower_put(lower);
	if (IS_ERR(cqp)) {
		cast->retry = jiffies + KEEL_CAST_RETRY;
		return;
	}
	cast->check = jiffies + KEEL_CAST_CHECK;
	WRITE_ONCE(cast->used, jiffies);
	guard(spinlock)(&cast->lock);
	cast->qp = cqp;
}

/* Return: a group whose state is to change, out of all lists; or NULL. @wanted: of the group */
static struct keel_cast_group *keel_cast_next(struct keel_cast *cast, bool *wanted)
{
	struct keel_cast_group *group;

	guard(spinlock)(&cast->lock);
	list_for_each_entry(group, &cast->todo, node) {
		/* Those that are wanted wait for a QP. */
		if (!cast->qp && group->wanted)
			continue;
		list_del_init(&group->node);
		*wanted = group->wanted;
		return group;
	}
	return NULL;
}

/* Attach the QP to a group, or free that. */
static void keel_cast_change(struct keel_cast *cast, struct keel_cast_group *group,
			     bool wanted)
{
	if (!wanted) {
		if (group->attached)
			keel_cast_qp_detach(cast->qp, group);
		/* keel_cast_leave() was the last one to use it, before it was out of the list. */
		kfree(group);
		return;
	}
	group->attached = !keel_cast_qp_attach(cast->qp, group);
	guard(spinlock)(&cast->lock);
	if (list_empty(&group->node))
		list_add_tail(&group->node, group->attached ? &cast->groups : &cast->failed);
	else
		/* It has no members any more. First: there may be another one with its address. */
		list_move(&group->node, &cast->todo);
}

static void keel_cast_change_all(struct keel_cast *cast)
{
	struct keel_cast_group *group;
	bool wanted;

	while ((group = keel_cast_next(cast, &wanted)))
		keel_cast_change(cast, group, wanted);
}

static struct keel_cast_msg *keel_cast_next_msg(struct keel_cast *cast)
{
	struct keel_cast_msg *msg;

	guard(spinlock)(&cast->lock);
	msg = list_first_entry_or_null(&cast->queue, struct keel_cast_msg, waits);
	if (msg)
		list_del_init(&msg->waits);
	return msg;
}

/* Return: 0: a completion frees it; or a negative errno. */
static int keel_cast_send(struct keel_cast *cast, struct keel_cast_msg *msg)
{
	const struct ib_gid_attr *attr;
	struct keel_lower *lower;
	int ret = -ENETUNREACH;

	if (!cast->qp)
		return ret;
	lower = keel_lower_find(&msg->ends, &attr);
	if (!lower)
		return ret;
	if (attr && keel_cast_qp_is_at(cast->qp, lower, attr->port_num))
		ret = keel_cast_qp_send(cast->qp, msg, attr);
	if (attr)
		rdma_put_gid_attr(attr);
	keel_lower_put(lower);
	return ret;
}

/* Send what waits: no more than there can be at a time, so that the work goes on. */
static void keel_cast_transmit(struct keel_cast *cast)
{
	struct keel_cast_msg *msg;
	int n;

	for (n = 0; n < KEEL_CAST_SENDS; n++) {
		msg = keel_cast_next_msg(cast);
		if (!msg)
			return;
		if (keel_cast_send(cast, msg))
			keel_cast_msg_drop(msg);
	}
	keel_cast_run(cast);
}

/* Run again when there is something to do without an event. */
static void keel_cast_plan(struct keel_cast *cast)
{
	unsigned long now = jiffies;

	if (cast->qp)
		keel_cast_later(cast, KEEL_CAST_CHECK);
	else if (keel_cast_is_wanted(cast))
		keel_cast_later(cast, time_before(now, cast->retry) ? cast->retry - now : 1);
}

/**
 * keel_cast_work() - &keel_cast.work
 * @work: of a device
 */
void keel_cast_work(struct work_struct *work)
{
	struct keel_cast *cast = container_of(work, struct keel_cast, work);

	/* If it is set just now, what has changed is seen below, under the lock of lower.c. */
	if (READ_ONCE(cast->hurry)) {
		WRITE_ONCE(cast->hurry, false);
		cast->retry = jiffies;
		cast->check = jiffies;
	}
	if (cast->qp && (!keel_cast_is_on(cast) || keel_cast_qp_is_broken(cast->qp) ||
			 keel_cast_is_idle(cast) || keel_cast_is_astray(cast)))
		keel_cast_down(cast);
	/* First, those that nobody wants: they need no QP. */
	keel_cast_change_all(cast);
	if (!cast->qp && keel_cast_is_wanted(cast) && !time_before(jiffies, cast->retry))
		keel_cast_up(cast);
	keel_cast_change_all(cast);
	keel_cast_transmit(cast);
	keel_cast_plan(cast);
}

static u32 keel_cast_count(const struct list_head *list)
{
	const struct list_head *node;
	u32 n = 0;

	list_for_each(node, list)
		n++;
	return n;
}

/**
 * keel_cast_show() - print how a device reaches the groups of other hosts
 * @m: where to
 * @cast: of the device
 *
 * Context: may sleep.
 */
void keel_cast_show(struct seq_file *m, struct keel_cast *cast)
{
	u32 attached, others;

	guard(spinlock)(&cast->lock);
	attached = keel_cast_count(&cast->groups);
	others = keel_cast_count(&cast->todo) + keel_cast_count(&cast->failed);
	if (!cast->qp && !others)
		return;
	seq_printf(m, "groups %u attached %u datagrams %u over %s\n", attached + others,
		   attached, cast->nmsgs,
		   cast->qp ? keel_cast_qp_device(cast->qp) : "none");
}
