// SPDX-License-Identifier: GPL-2.0
/*
 * Links for the rest of this folder: references, events, and those that wait.
 */
#include <kunit/visibility.h>
#include <linux/minmax.h>
#include <linux/slab.h>

#include "keel_cast.h"
#include "keel_conn.h"

static struct workqueue_struct *keel_wire_wq;
static struct workqueue_struct *keel_cast_wq;
static const struct keel_wire_ops *keel_wire_ops;
static DEFINE_SPINLOCK(keel_requests_lock);
/* Those over RoCE, and over iWARP: a host can hold up those over siw as long as it likes. */
static u32 keel_requests[2] __guarded_by(&keel_requests_lock);

/**
 * keel_links_start() - prepare for links
 * @ops: receive frames
 *
 * Return: 0 or -ENOMEM.
 */
int keel_links_start(const struct keel_wire_ops *ops)
{
	keel_wire_ops = ops;
	/* The works of many links may wait for hosts that are silent: see &keel_cm_ops.end. */
	keel_wire_wq = alloc_workqueue("keel_wire", WQ_UNBOUND, WQ_MAX_ACTIVE);
	if (!keel_wire_wq)
		return -ENOMEM;
	/* Processes wait for some of these, so they wait for no other host. */
	keel_cast_wq = alloc_workqueue("keel_cast", WQ_UNBOUND, 0);
	if (keel_cast_wq)
		return 0;
	destroy_workqueue(keel_wire_wq);
	return -ENOMEM;
}
EXPORT_SYMBOL_IF_KUNIT(keel_links_start);

/**
 * keel_links_stop() - undo keel_links_start()
 *
 * Context: no link has a connection any more.
 */
void keel_links_stop(void)
{
	destroy_workqueue(keel_wire_wq);
	destroy_workqueue(keel_cast_wq);
}
EXPORT_SYMBOL_IF_KUNIT(keel_links_stop);

static void keel_link_release(struct kref *ref)
{
	struct keel_link *link = container_of(ref, struct keel_link, ref);

	kfree_rcu(link, rcu);
}

/**
 * keel_link_put() - drop a reference on a link
 * @link: the link
 *
 * Context: any.
 */
void keel_link_put(struct keel_link *link)
{
	kref_put(&link->ref, keel_link_release);
}
EXPORT_SYMBOL_IF_KUNIT(keel_link_put);

/**
 * keel_link_queue() - run &keel_link.work
 * @link: the link; the caller has a reference
 *
 * Context: any.
 */
void keel_link_queue(struct keel_link *link)
{
	kref_get(&link->ref);
	if (!queue_work(keel_wire_wq, &link->work))
		keel_link_put(link);
}
EXPORT_SYMBOL_IF_KUNIT(keel_link_queue);

/**
 * keel_link_later() - run &keel_link.work later, and not at the time of an earlier call
 * @link: the link; a call of its work
 * @delay: when, in jiffies from now
 *
 * Context: any but interrupts.
 */
void keel_link_later(struct keel_link *link, unsigned long delay)
{
	/* keel_link_stop() cancels it. */
	guard(spinlock)(&link->lock);
	if (link->dead)
		return;
	/* Something may have begun to wait just now: see keel_link_waits(). */
	if (link->up && keel_link_is_awaited(link))
		delay = min(delay, (unsigned long)KEEL_WAKE_TIME);
	kref_get(&link->ref);
	if (mod_delayed_work(keel_wire_wq, &link->again, delay))
		/* Not the last reference: likewise. */
		keel_link_put(link);
}

/**
 * keel_link_waits() - something has begun to wait for a link
 * @link: the link
 * @first: nothing else waits
 *
 * Context: any but interrupts.
 */
void keel_link_waits(struct keel_link *link, bool first)
{
	if (link->dead)
		return;
	if (!link->up) {
		keel_link_event(link, KEEL_LINK_WANTED);
		return;
	}
	/* It may be due in half a minute, or soon. */
	if (!first || (delayed_work_pending(&link->again) &&
		       time_before_eq(link->again.timer.expires, jiffies + KEEL_WAKE_TIME)))
		return;
	kref_get(&link->ref);
	if (mod_delayed_work(keel_wire_wq, &link->again, KEEL_WAKE_TIME))
		/* Not the last reference: the caller has one. */
		keel_link_put(link);
}

/**
 * keel_link_stop() - make a link carry nothing any more
 * @link: the link; the caller has a reference
 *
 * Its work, which the caller queues or is, ends what there is.
 *
 * Context: any but interrupts.
 */
void keel_link_stop(struct keel_link *link)
{
	scoped_guard(spinlock, &link->lock)
		link->dead = true;
	/* If it runs just now, it queues the work, which does nothing. */
	if (cancel_delayed_work(&link->again))
		keel_link_put(link);
}
EXPORT_SYMBOL_IF_KUNIT(keel_link_stop);

/**
 * keel_link_again() - &keel_link.again
 * @work: of the link; it has a reference, which ends here
 */
void keel_link_again(struct work_struct *work)
{
	struct keel_link *link = container_of(work, struct keel_link, again.work);

	keel_link_queue(link);
	keel_link_put(link);
}

/**
 * keel_link_event() - tell the work of a link what has happened
 * @link: the link; the caller has a reference
 * @event: the event
 *
 * Context: any.
 */
void keel_link_event(struct keel_link *link, enum keel_link_event event)
{
	if (!test_and_set_bit(event, &link->events))
		keel_link_queue(link);
}

/**
 * keel_conn_event() - tell the work of a link what has happened to its connection
 * @conn: the connection; the caller has a reference
 * @event: the event
 *
 * Context: any.
 */
void keel_conn_event(struct keel_conn *conn, enum keel_conn_event event)
{
	if (!test_and_set_bit(event, &conn->events))
		keel_link_queue(conn->link);
}

/**
 * keel_link_frame() - pass a frame on to its QP
 * @link: the link that has received it
 * @frame: a request, an answer or a datagram
 * @data: its data
 *
 * Context: may sleep.
 */
void keel_link_frame(struct keel_link *link, const struct keel_frame *frame,
		     const void *data)
{
	if (frame->type == KEEL_FRAME_REQUEST)
		keel_wire_ops->request(link, frame, data);
	else if (frame->type == KEEL_FRAME_DATAGRAM)
		keel_wire_ops->datagram(link, frame, data);
	else
		keel_wire_ops->answer(link, frame, data);
}

/**
 * keel_wire_run() - run a work that is no one of a link
 * @work: the work; keel_links_stop() waits for it
 *
 * Context: any.
 */
void keel_wire_run(struct work_struct *work)
{
	queue_work(keel_cast_wq, work);
}

/**
 * keel_wire_later() - run such a work later, and not at the time of an earlier call
 * @work: the work
 * @delay: when, in jiffies from now
 *
 * Context: any.
 */
void keel_wire_later(struct delayed_work *work, unsigned long delay)
{
	mod_delayed_work(keel_cast_wq, work, delay);
}

/**
 * keel_wire_group() - pass a datagram to a group on to its members
 * @kdev: the device
 * @ends: the group, and the sender
 * @frame: header of the datagram
 * @data: its data
 *
 * Context: may sleep.
 */
void keel_wire_group(struct keel_dev *kdev, const struct keel_ends *ends,
		     const struct keel_frame *frame, const void *data)
{
	keel_wire_ops->group(kdev, ends, frame, data);
}

/**
 * keel_link_leave() - take something out of the queues of a link
 * @link: the link
 * @wait: may be in a queue or not
 *
 * Context: any but interrupts.
 */
void keel_link_leave(struct keel_link *link, struct keel_link_wait *wait)
{
	keel_turns_del(wait->chunk ? &link->chunk_turns : &link->turns, wait);
	if (!wait->woken)
		return;
	link->nwoken--;
	link->nwoken_chunks -= wait->chunk;
	wait->woken = false;
	list_del_init(&wait->node);
}

/* Wake the next one, unless nothing waits there. Return: true if so. */
static bool keel_link_wake_one(struct keel_link *link, struct keel_turns *turns)
	__must_hold(&link->lock)
{
	struct keel_link_wait *wait = keel_turns_next(turns);

	if (!wait)
		return false;
	list_add_tail(&wait->node, &link->woken);
	wait->woken = true;
	wait->since = jiffies;
	link->nwoken++;
	link->nwoken_chunks += wait->chunk;
	/* keel_link_unwait() waits for this lock before it is freed. */
	keel_wire_ops->wake(wait);
	return true;
}

/* Chunks that nobody was woken for. */
static u32 keel_link_chunks(struct keel_link *link)
	__must_hold(&link->lock)
{
	u32 ready;

	if (!link->up)
		return 0;
	scoped_guard(spinlock, &link->up->lock)
		ready = keel_chunks_ready(link->up);
	/* Those that were woken may be stopped: only a half is kept for them. */
	return ready - min3(ready, link->nwoken_chunks, (u32)KEEL_CHUNKS / 2);
}

/**
 * keel_link_unchunk() - let those that wait for a chunk wait for a buffer
 * @link: the link, which has a new connection
 *
 * It has no chunks yet, and perhaps never: they may need none.
 *
 * Context: any but interrupts.
 */
void keel_link_unchunk(struct keel_link *link)
{
	struct keel_link_wait *wait;

	while ((wait = keel_turns_next(&link->chunk_turns))) {
		wait->chunk = false;
		keel_turns_add(&link->turns, wait);
	}
}
EXPORT_SYMBOL_IF_KUNIT(keel_link_unchunk);

/**
 * keel_link_is_open() - is a link up for datagrams?
 * @link: the link
 *
 * The other host gives credits for them with its first frame. A few milliseconds may pass until
 * then, and those of the kernel do not come again soon.
 *
 * Context: any but interrupts.
 * Return: true if so.
 */
bool keel_link_is_open(const struct keel_link *link)
{
	return link->up && test_bit(KEEL_CONN_CONFIRMED, &link->up->events);
}

static void keel_link_wake_locked(struct keel_link *link, u32 room)
	__must_hold(&link->lock)
{
	u32 kept = min(link->nwoken, KEEL_LINK_OPEN), chunks;

	/* First, because they are few. */
	chunks = keel_turns_empty(&link->chunk_turns) ? 0 : keel_link_chunks(link);
	for (; room > kept && chunks; room--, chunks--)
		if (!keel_link_wake_one(link, &link->chunk_turns))
			break;
	for (; room > kept; room--)
		if (!keel_link_wake_one(link, &link->turns))
			break;
}

/**
 * keel_link_wake_waiters() - wake those that wait in turn for a link
 * @link: the link; a call of its work, which has looked at datagrams that are kept
 * @room: number of frames that can be sent now
 *
 * Context: any but interrupts.
 */
void keel_link_wake_waiters(struct keel_link *link, u32 room)
{
	guard(spinlock)(&link->lock);
	keel_link_wake_locked(link, room);
}
EXPORT_SYMBOL_IF_KUNIT(keel_link_wake_waiters);

/**
 * keel_link_wake() - wake those that wait for a link
 * @link: the link
 * @room: number of frames that can be sent now
 *
 * One of each user is woken in turn. Buffers are kept for those that were woken, but not all:
 * some may not run.
 *
 * Context: any but interrupts.
 */
void keel_link_wake(struct keel_link *link, u32 room)
{
	guard(spinlock)(&link->lock);
	/* They had no room when it came up. Those of the kernel may have some without @room. */
	if (link->nheld && keel_link_is_open(link))
		keel_link_queue(link);
	keel_link_wake_locked(link, room);
}
EXPORT_SYMBOL_IF_KUNIT(keel_link_wake);

/* Return: there may be more. */
static bool keel_link_expire_some(struct keel_link *link)
{
	struct keel_link_wait *wait, *next;
	u32 left = KEEL_LINK_EXPIRE;

	guard(spinlock)(&link->lock);
	list_for_each_entry_safe(wait, next, &link->woken, node) {
		/* The others were woken even later. */
		if (time_before(jiffies, wait->since + KEEL_WAKE_TIME))
			return false;
		keel_link_leave(link, wait);
		if (!--left)
			return true;
	}
	return false;
}

/**
 * keel_link_expire() - keep no buffers any more for those that were woken a while ago
 * @link: the link
 *
 * Those that need one still ask again when they run.
 *
 * Context: may sleep.
 */
void keel_link_expire(struct keel_link *link)
{
	/* A user may have stopped many. */
	while (keel_link_expire_some(link))
		cond_resched();
}
EXPORT_SYMBOL_IF_KUNIT(keel_link_expire);

/**
 * keel_link_is_dead() - does a link carry nothing any more?
 * @link: the link
 *
 * Context: any but interrupts.
 * Return: true if so.
 */
bool keel_link_is_dead(struct keel_link *link)
{
	guard(spinlock)(&link->lock);
	return link->dead;
}
EXPORT_SYMBOL_IF_KUNIT(keel_link_is_dead);

/**
 * keel_request_begin() - begin to look at a request of another host
 * @lower: the device that has received it
 *
 * Context: any but interrupts.
 * Return: false if there are too many.
 */
bool keel_request_begin(const struct keel_lower *lower)
{
	guard(spinlock)(&keel_requests_lock);
	if (keel_requests[lower->cm->by_netdev] == KEEL_REQUESTS_MAX)
		return false;
	keel_requests[lower->cm->by_netdev]++;
	return true;
}
EXPORT_SYMBOL_IF_KUNIT(keel_request_begin);

/**
 * keel_request_end() - such a request has its connection, or is gone with all it took
 * @lower: the same device; the caller has a reference
 *
 * Context: any but interrupts.
 */
void keel_request_end(const struct keel_lower *lower)
{
	guard(spinlock)(&keel_requests_lock);
	keel_requests[lower->cm->by_netdev]--;
}
EXPORT_SYMBOL_IF_KUNIT(keel_request_end);

/**
 * keel_link_sooner() - when a link has something to do next
 * @next: in jiffies from now
 * @end: another time, in jiffies
 *
 * Return: the earlier one, in jiffies from now.
 */
unsigned long keel_link_sooner(unsigned long next, unsigned long end)
{
	unsigned long now = jiffies;

	return min(next, time_before(now, end) ? end - now : 1);
}

/**
 * keel_link_is_awaited() - does something wait for a link?
 * @link: the link
 *
 * Context: any but interrupts.
 * Return: true if so.
 */
bool keel_link_is_awaited(const struct keel_link *link)
{
	return !keel_turns_empty(&link->turns) || !keel_turns_empty(&link->chunk_turns) ||
	       !list_empty(&link->woken);
}

/**
 * keel_link_has_waiters() - does something wait for a link?
 * @link: the link
 *
 * Context: any but interrupts.
 * Return: true if so.
 */
bool keel_link_has_waiters(struct keel_link *link)
{
	guard(spinlock)(&link->lock);
	return keel_link_is_awaited(link);
}
EXPORT_SYMBOL_IF_KUNIT(keel_link_has_waiters);

/**
 * keel_link_unwait() - wait no more
 * @link: the link
 * @wait: may be in a queue or not
 *
 * Context: any but interrupts.
 */
void keel_link_unwait(struct keel_link *link, struct keel_link_wait *wait)
{
	guard(spinlock)(&link->lock);
	keel_link_leave(link, wait);
}
EXPORT_SYMBOL_IF_KUNIT(keel_link_unwait);
