// SPDX-License-Identifier: GPL-2.0
/*
 * Multicast to and from other hosts: groups that have members on this host, and datagrams
 * that are to be sent. cast_work.c does what may sleep.
 */
#include <kunit/visibility.h>
#include <linux/err.h>
#include <linux/random.h>
#include <linux/slab.h>

#include "keel.h"
#include "keel_cast.h"

/**
 * keel_cast_run() - run &keel_cast.work
 * @cast: of a device
 *
 * Context: any.
 */
void keel_cast_run(struct keel_cast *cast)
{
	keel_wire_run(&cast->work);
}

/**
 * keel_cast_later() - run &keel_cast.work later
 * @cast: of a device; a call of its work
 * @delay: when, in jiffies from now
 *
 * &keel_cast.work is no delayed work: another thread that moves one forward may have taken it
 * off its queue for a moment, and keel_cast_flush() would not see it.
 *
 * Context: any.
 */
void keel_cast_later(struct keel_cast *cast, unsigned long delay)
{
	keel_wire_later(&cast->again, delay);
}

static void keel_cast_again(struct work_struct *work)
{
	keel_cast_run(container_of(to_delayed_work(work), struct keel_cast, again));
}

/**
 * keel_cast_init() - initialize the multicast of a device
 * @cast: of a new device
 * @run: keel_cast_work()
 */
void keel_cast_init(struct keel_cast *cast, work_func_t run)
	__context_unsafe(/* no other thread has it yet */)
{
	INIT_WORK(&cast->work, run);
	INIT_DELAYED_WORK(&cast->again, keel_cast_again);
	spin_lock_init(&cast->lock);
	INIT_LIST_HEAD(&cast->todo);
	INIT_LIST_HEAD(&cast->groups);
	INIT_LIST_HEAD(&cast->failed);
	INIT_LIST_HEAD(&cast->msgs);
	INIT_LIST_HEAD(&cast->queue);
	cast->cookie = cpu_to_le64(get_random_u64());
	cast->retry = jiffies;
}
EXPORT_SYMBOL_IF_KUNIT(keel_cast_init);

/**
 * keel_cast_hurry() - lower devices have come, or gone
 * @cast: of a device
 *
 * Context: any.
 */
void keel_cast_hurry(struct keel_cast *cast)
{
	WRITE_ONCE(cast->hurry, true);
	keel_cast_run(cast);
}

/**
 * keel_cast_start() - begin to reach other hosts
 * @cast: of a device
 *
 * Context: any but interrupts.
 */
void keel_cast_start(struct keel_cast *cast)
{
	scoped_guard(spinlock, &cast->lock)
		cast->on = true;
	keel_cast_hurry(cast);
}
EXPORT_SYMBOL_IF_KUNIT(keel_cast_start);

/**
 * keel_cast_stop() - undo keel_cast_start()
 * @cast: of a device; no other thread calls keel_cast_hurry() any more
 *
 * Context: may sleep. Waits for the lower device only.
 */
void keel_cast_stop(struct keel_cast *cast)
{
	scoped_guard(spinlock, &cast->lock)
		cast->on = false;
	keel_cast_run(cast);
	keel_cast_flush(cast);
	/* The work calls keel_cast_later() no more. */
	cancel_delayed_work_sync(&cast->again);
}
EXPORT_SYMBOL_IF_KUNIT(keel_cast_stop);

/**
 * keel_cast_flush() - wait until the lower device has what was wanted before this call
 * @cast: of a device
 *
 * Context: may sleep; no lock is held.
 */
void keel_cast_flush(struct keel_cast *cast)
{
	flush_work(&cast->work);
}

/**
 * keel_cast_group_new() - allocate a group that other hosts may send to
 * @cast: of a device
 * @gid: its address
 * @gfp: how to allocate
 *
 * Context: as @gfp says.
 * Return: the group, for keel_cast_leave(); or NULL.
 */
struct keel_cast_group *keel_cast_group_new(struct keel_cast *cast, const union ib_gid *gid,
					    gfp_t gfp)
{
	struct keel_cast_group *group = kzalloc_obj(*group, gfp);

	if (!group)
		return NULL;
	INIT_LIST_HEAD(&group->node);
	group->cast = cast;
	group->gid = *gid;
	return group;
}

/**
 * keel_cast_join() - the first QP is attached to a group
 * @group: the group
 *
 * The lower device receives its datagrams some time later: see keel_cast_flush().
 *
 * Context: any but interrupts.
 */
void keel_cast_join(struct keel_cast_group *group)
{
	struct keel_cast *cast = group->cast;

	scoped_guard(spinlock, &cast->lock) {
		group->wanted = true;
		list_add_tail(&group->node, &cast->todo);
	}
	keel_cast_run(cast);
}

/**
 * keel_cast_leave() - no QP is attached to a group any more
 * @group: the group, or NULL. The caller does not use it any more.
 *
 * Context: any but interrupts.
 */
void keel_cast_leave(struct keel_cast_group *group)
{
	struct keel_cast *cast;

	if (!group)
		return;
	cast = group->cast;
	scoped_guard(spinlock, &cast->lock) {
		/* Only this caller joins it: it has not done so. */
		if (!group->wanted) {
			kfree(group);
			return;
		}
		group->wanted = false;
		list_move_tail(&group->node, &cast->todo);
	}
	keel_cast_run(cast);
}

/* Users share the places for datagrams like other resources. */
static int keel_cast_room(const struct keel_cast *cast, const struct keel_user *user)
	__must_hold(&cast->lock)
{
	const struct keel_cast_msg *msg;
	u64 held = 0;

	list_for_each_entry(msg, &cast->msgs, node)
		held += msg->user == user;
	return keel_quota_check(KEEL_CAST_SENDS, cast->nmsgs, held, 1) ? -EAGAIN : 0;
}

/* Return: 0; -EAGAIN: too many are under way; -ENOLINK: the device is being removed. */
static int keel_cast_enter(struct keel_cast_msg *msg)
{
	struct keel_cast *cast = msg->cast;
	int ret;

	guard(spinlock)(&cast->lock);
	if (!cast->on)
		return -ENOLINK;
	ret = keel_cast_room(cast, msg->user);
	if (ret)
		return ret;
	list_add_tail(&msg->node, &cast->msgs);
	cast->nmsgs++;
	return 0;
}

/**
 * keel_cast_msg_new() - begin to send a datagram to a group
 * @cast: of the device
 * @user: whose it is, or NULL: the kernel
 * @len: bytes of its data
 * @gfp: how to allocate
 *
 * Context: as @gfp says; not in interrupts.
 * Return: the datagram, for keel_cast_msg_send() or keel_cast_msg_free(); or ERR_PTR(): -EAGAIN
 * if too many are under way now.
 */
struct keel_cast_msg *keel_cast_msg_new(struct keel_cast *cast, const struct keel_user *user,
					u32 len, gfp_t gfp)
{
	struct keel_cast_msg *msg;
	int ret;

	if (len > KEEL_CAST_DATA)
		return ERR_PTR(-EMSGSIZE);
	msg = kzalloc(struct_size(msg, data, len), gfp);
	if (!msg)
		return ERR_PTR(-ENOMEM);
	INIT_LIST_HEAD(&msg->waits);
	msg->cast = cast;
	msg->user = user;
	msg->len = len;
	ret = keel_cast_enter(msg);
	if (!ret)
		return msg;
	kfree(msg);
	return ERR_PTR(ret);
}
EXPORT_SYMBOL_IF_KUNIT(keel_cast_msg_new);

/**
 * keel_cast_msg_send() - send a datagram to a group
 * @msg: the datagram, with @msg->ends, @msg->sl, @msg->data and what @msg->frame has of the
 *	sender
 *
 * It is lost if there is no way to other hosts.
 *
 * Context: any but interrupts.
 */
void keel_cast_msg_send(struct keel_cast_msg *msg)
{
	struct keel_cast *cast = msg->cast;

	msg->frame.type = KEEL_FRAME_GROUP;
	msg->frame.credits = cpu_to_le16(KEEL_FRAME_VERSION);
	msg->frame.len = cpu_to_le32(msg->len);
	msg->frame.to = cpu_to_le32(IB_MULTICAST_QPN);
	msg->frame.cookie = cast->cookie;
	WRITE_ONCE(cast->used, jiffies);
	scoped_guard(spinlock, &cast->lock)
		list_add_tail(&msg->waits, &cast->queue);
	keel_cast_run(cast);
}

/**
 * keel_cast_msg_free() - free a datagram
 * @msg: the datagram, which was sent, or is not to be sent
 *
 * Context: any but interrupts.
 */
void keel_cast_msg_free(struct keel_cast_msg *msg)
{
	scoped_guard(spinlock, &msg->cast->lock) {
		list_del(&msg->node);
		msg->cast->nmsgs--;
	}
	kfree(msg);
}
EXPORT_SYMBOL_IF_KUNIT(keel_cast_msg_free);

/**
 * keel_cast_msg_drop() - lose a datagram
 * @msg: the datagram
 *
 * Context: any but interrupts.
 */
void keel_cast_msg_drop(struct keel_cast_msg *msg)
{
	keel_count(container_of(msg->cast, struct keel_dev, cast), ud_drops, 1);
	keel_cast_msg_free(msg);
}
