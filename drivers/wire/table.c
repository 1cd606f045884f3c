// SPDX-License-Identifier: GPL-2.0
/*
 * The table of all links, by their ends.
 */
#include <kunit/visibility.h>
#include <linux/hashtable.h>
#include <linux/jhash.h>
#include <linux/seq_file.h>
#include <linux/slab.h>

#include "keel.h"
#include "keel_conn.h"

/* How long a link stays that nobody uses. */
#define KEEL_LINK_IDLE	(30 * HZ)

/* Maximum number of links. Those of users also count for KEEL_RES_LINKS. */
static const u32 keel_links_max[KEEL_LINK_ORIGINS] = {
	[KEEL_LINK_ASKED]	= 128,
	[KEEL_LINK_DATAGRAMS]	= 256,
	[KEEL_LINK_KERNEL]	= 256,
	[KEEL_LINK_USER]	= 1024,
};

static DEFINE_HASHTABLE(keel_links, 8);
static DEFINE_SPINLOCK(keel_links_lock);
static u32 keel_links_n[KEEL_LINK_ORIGINS] __guarded_by(&keel_links_lock);
/* All links of each origin, the one that was asked for last at the end. */
static struct list_head keel_links_age[KEEL_LINK_ORIGINS] = {
	LIST_HEAD_INIT(keel_links_age[0]),
	LIST_HEAD_INIT(keel_links_age[1]),
	LIST_HEAD_INIT(keel_links_age[2]),
	LIST_HEAD_INIT(keel_links_age[3]),
};

static_assert(KEEL_LINK_ORIGINS == 4);
static work_func_t keel_links_run;

/**
 * keel_links_init() - set the work of links
 * @run: &keel_link.work, which drops a reference
 */
void keel_links_init(work_func_t run)
{
	keel_links_run = run;
}
EXPORT_SYMBOL_IF_KUNIT(keel_links_init);

static u32 keel_ends_hash(const struct keel_dev *kdev, const struct keel_ends *ends)
{
	return jhash(ends, sizeof(*ends), hash_ptr(kdev, 32));
}

static struct keel_link *keel_link_find(struct keel_dev *kdev, const struct keel_ends *ends)
	__must_hold(&keel_links_lock)
{
	struct keel_link *link;

	hash_for_each_possible(keel_links, link, node, keel_ends_hash(kdev, ends))
		if (link->kdev == kdev && !link->ousted &&
		    !memcmp(&link->ends, ends, sizeof(*ends)))
			return link;
	return NULL;
}

/**
 * keel_link_alloc() - allocate a link that is in no table
 * @kdev: the device of this side
 * @ends: the ends, with no bytes between the members that are not 0
 * @gfp: how to allocate
 *
 * Context: as @gfp says.
 * Return: the link, for keel_link_use(), keel_link_get() or keel_link_put(); or NULL.
 */
struct keel_link *keel_link_alloc(struct keel_dev *kdev, const struct keel_ends *ends,
				  gfp_t gfp)
	__context_unsafe(/* no other thread has the link yet */)
{
	struct keel_link *link = kzalloc_obj(*link, gfp);

	if (!link)
		return NULL;
	kref_init(&link->ref);
	link->kdev = kdev;
	link->ends = *ends;
	INIT_WORK(&link->work, keel_links_run);
	INIT_DELAYED_WORK(&link->again, keel_link_again);
	spin_lock_init(&link->lock);
	spin_lock_init(&link->load.lock);
	INIT_LIST_HEAD(&link->age);
	INIT_LIST_HEAD(&link->guests);
	INIT_LIST_HEAD(&link->offers);
	keel_turns_init(&link->turns);
	keel_turns_init(&link->chunk_turns);
	INIT_LIST_HEAD(&link->woken);
	INIT_LIST_HEAD(&link->held);
	link->backoff = KEEL_BACKOFF_MIN;
	link->retry = jiffies;
	link->expire = jiffies;
	link->used = jiffies;
	link->moved = jiffies;
	return link;
}
EXPORT_SYMBOL_IF_KUNIT(keel_link_alloc);

static void keel_link_count(struct keel_link *link, enum keel_link_origin origin)
	__must_hold(&keel_links_lock)
{
	link->origin = origin;
	keel_links_n[origin]++;
	list_add_tail(&link->age, &keel_links_age[origin]);
}

static void keel_link_uncount(struct keel_link *link)
	__must_hold(&keel_links_lock)
{
	keel_links_n[link->origin]--;
	list_del_init(&link->age);
}

/* It is for others whether there is a connection just now. */
static bool keel_link_may_be_up(const struct keel_link *link)
{
	/* Its lock cannot be taken in interrupts. */
	return context_unsafe(READ_ONCE(link->up));
}

/*
 * The link of an origin that is to give way: the first that is not up and that nobody uses; else
 * the first that is not up; else the one that is idle longest.
 */
static struct keel_link *keel_links_oldest(enum keel_link_origin origin)
	__must_hold(&keel_links_lock)
{
	struct keel_link *link, *down = NULL, *oldest = NULL;

	list_for_each_entry(link, &keel_links_age[origin], age) {
		if (!keel_link_may_be_up(link)) {
			if (!link->users)
				return link;
			down = down ?: link;
		} else if (!oldest || time_before(READ_ONCE(link->used), READ_ONCE(oldest->used))) {
			oldest = link;
		}
	}
	return down ?: oldest;
}

/*
 * Let a link of an origin give way: other hosts, or users of rdma_cm, might take all. Return:
 * false if none has to.
 */
static bool keel_links_oust(enum keel_link_origin origin)
	__must_hold(&keel_links_lock)
{
	struct keel_link *link;

	/* QPs use these, or have used them until just now. */
	if (origin == KEEL_LINK_KERNEL || origin == KEEL_LINK_USER)
		return false;
	link = keel_links_oldest(origin);
	keel_link_uncount(link);
	/* It stays in the table until it has no connection: then keel_link_forget(). */
	WRITE_ONCE(link->ousted, true);
	keel_link_event(link, KEEL_LINK_OUSTED);
	return true;
}

/* May there be one more link of an origin? */
static bool keel_links_room(enum keel_link_origin origin)
	__must_hold(&keel_links_lock)
{
	return keel_links_n[origin] < keel_links_max[origin] || keel_links_oust(origin);
}

/*
 * Find a link; else @spare becomes one, if there are not too many of its origin. The
 * reference on @spare stays with the caller.
 */
static struct keel_link *keel_link_get_locked(struct keel_link *spare)
	__must_hold(&keel_links_lock)
{
	struct keel_link *link = keel_link_find(spare->kdev, &spare->ends);

	if (link) {
		list_move_tail(&link->age, &keel_links_age[link->origin]);
	} else {
		if (!keel_links_room(spare->origin))
			return NULL;
		link = spare;
		keel_link_count(link, spare->origin);
		kref_get(&link->ref);
		hash_add_rcu(keel_links, &link->node, keel_ends_hash(link->kdev, &link->ends));
	}
	kref_get(&link->ref);
	return link;
}

/* Take a link out of the table. Its reference is passed on. */
static void keel_link_del(struct keel_link *link)
	__must_hold(&keel_links_lock)
{
	hash_del_rcu(&link->node);
	if (!link->ousted)
		keel_link_uncount(link);
	keel_quota_uncharge(link->user, KEEL_RES_LINKS, 1);
	link->user = NULL;
}

/**
 * keel_link_get() - find a link that another host has asked for, or make it
 * @spare: from keel_link_alloc(), becomes the link if there is none with its ends
 *
 * The caller keeps the device of @spare from being removed, and drops @spare.
 *
 * Context: any.
 * Return: the link, with a reference for keel_link_put(); or NULL: there are too many.
 */
struct keel_link *keel_link_get(struct keel_link *spare)
{
	guard(spinlock_irqsave)(&keel_links_lock);
	return keel_link_get_locked(spare);
}
EXPORT_SYMBOL_IF_KUNIT(keel_link_get);

/**
 * keel_link_use() - find a link, or make it, and keep it
 * @spare: as keel_link_get(). If &keel_link.user is NULL afterwards, the link has it.
 *
 * Context: any.
 * Return: the link, for keel_link_unuse(); or NULL: there are too many.
 */
struct keel_link *keel_link_use(struct keel_link *spare)
{
	struct keel_link *link;

	guard(spinlock_irqsave)(&keel_links_lock);
	link = keel_link_get_locked(spare);
	if (!link)
		return NULL;
	/* For datagrams alone, it is enough that the link is there. */
	if (spare->origin > link->origin && spare->origin != KEEL_LINK_DATAGRAMS) {
		if (!keel_links_room(spare->origin)) {
			/* Not the last reference: the table has another one. */
			keel_link_put(link);
			return NULL;
		}
		keel_link_uncount(link);
		keel_link_count(link, spare->origin);
		/* It is charged to its first user. */
		swap(link->user, spare->user);
	}
	link->users++;
	return link;
}
EXPORT_SYMBOL_IF_KUNIT(keel_link_use);

/**
 * keel_link_join() - find a link, and keep it
 * @kdev: the device of this side
 * @ends: its ends
 *
 * Context: any.
 * Return: the link, for keel_link_unuse(); or NULL: there is none, or nobody is charged
 * for it.
 */
struct keel_link *keel_link_join(struct keel_dev *kdev, const struct keel_ends *ends)
{
	struct keel_link *link;

	guard(spinlock_irqsave)(&keel_links_lock);
	link = keel_link_find(kdev, ends);
	if (!link || !link->user)
		return NULL;
	link->users++;
	kref_get(&link->ref);
	return link;
}

/**
 * keel_link_lookup() - find a link
 * @kdev: the device of this side
 * @ends: its ends
 *
 * Context: any.
 * Return: the link, with a reference for keel_link_put(); or NULL.
 */
struct keel_link *keel_link_lookup(struct keel_dev *kdev, const struct keel_ends *ends)
{
	struct keel_link *link;

	guard(rcu)();
	hash_for_each_possible_rcu(keel_links, link, node, keel_ends_hash(kdev, ends))
		if (link->kdev == kdev && !READ_ONCE(link->ousted) &&
		    !memcmp(&link->ends, ends, sizeof(*ends)) &&
		    kref_get_unless_zero(&link->ref))
			return link;
	return NULL;
}
EXPORT_SYMBOL_IF_KUNIT(keel_link_lookup);

/*
 * Nobody uses a link any more: if it is up, it counts for nobody, and may stay for a while. If it
 * is not, it counts as before: users could make links without end else, so that those of other
 * hosts have to go, or that hosts which refuse are asked again and again. @over: only another host
 * keeps it, by guests.
 */
static void keel_link_retire(struct keel_link *link, bool over)
	__must_hold(&keel_links_lock)
{
	if (link->users || hlist_unhashed(&link->node) || link->ousted ||
	    link->origin == KEEL_LINK_ASKED || !(over || keel_link_may_be_up(link)))
		return;
	keel_link_uncount(link);
	/* There is: an older one gives way. */
	keel_links_room(KEEL_LINK_ASKED);
	keel_link_count(link, KEEL_LINK_ASKED);
	keel_quota_uncharge(link->user, KEEL_RES_LINKS, 1);
	link->user = NULL;
}

/**
 * keel_link_unuse() - undo keel_link_use()
 * @link: the link, or NULL
 *
 * Context: any.
 */
void keel_link_unuse(struct keel_link *link)
{
	if (!link)
		return;
	scoped_guard(spinlock_irqsave, &keel_links_lock)
		if (!--link->users && !hlist_unhashed(&link->node)) {
			keel_link_retire(link, false);
			keel_link_queue(link);
		}
	keel_link_put(link);
}
EXPORT_SYMBOL_IF_KUNIT(keel_link_unuse);

/**
 * keel_link_rests() - for how long may a link rest that nobody uses?
 * @link: the link; a call of its work
 * @connected: it has a connection, or may get one
 *
 * Without one, it stays until it may try again: another one with the same ends would do so at
 * once. If it has come up after nobody used it any more, it counts for nobody from now on.
 *
 * Context: any but interrupts.
 * Return: number of jiffies until it is to end; 0: now; ULONG_MAX: it is used.
 */
unsigned long keel_link_rests(struct keel_link *link, bool connected)
{
	unsigned long now = jiffies, end = link->retry, left;

	guard(spinlock_irqsave)(&keel_links_lock);
	if (link->users)
		return ULONG_MAX;
	if (connected)
		end = READ_ONCE(link->used) + KEEL_LINK_IDLE;
	left = time_before(now, end) ? end - now : 0;
	keel_link_retire(link, !left && !connected && link->nguests);
	return left;
}
EXPORT_SYMBOL_IF_KUNIT(keel_link_rests);

/**
 * keel_link_is_used() - may a QP or an AH of this side use a link?
 * @link: the link
 *
 * Context: any.
 * Return: true if so.
 */
bool keel_link_is_used(struct keel_link *link)
{
	return READ_ONCE(link->users);
}
EXPORT_SYMBOL_IF_KUNIT(keel_link_is_used);

/**
 * keel_link_forget() - take a link that nobody uses, or finds, out of the table
 * @link: the link, without a connection; a call of its work
 *
 * Context: any but interrupts.
 */
void keel_link_forget(struct keel_link *link)
{
	scoped_guard(spinlock_irqsave, &keel_links_lock) {
		if ((link->users && !link->ousted) || hlist_unhashed(&link->node))
			return;
		keel_link_del(link);
	}
	/* Others may have found it just now, for a connection: that is rejected. */
	keel_link_stop(link);
	/* One that was offered before: the caller runs once more. */
	keel_link_queue(link);
	/* The caller has another reference. */
	keel_link_put(link);
}

/* Return: a link of the device that is in the table, with a reference; or NULL. */
static struct keel_link *keel_links_take(struct keel_dev *kdev)
{
	struct keel_link *link;
	int i;

	guard(spinlock_irqsave)(&keel_links_lock);
	hash_for_each(keel_links, i, link, node) {
		if (link->kdev != kdev)
			continue;
		keel_link_del(link);
		return link;
	}
	return NULL;
}

/**
 * keel_links_remove() - end all links of a device
 * @kdev: the device, which no link finds any more
 *
 * QPs may still use the links, but those carry nothing, and do not use the device.
 *
 * Context: may sleep.
 */
void keel_links_remove(struct keel_dev *kdev)
{
	struct keel_link *link, *next;
	LIST_HEAD(links);

	/* All end at the same time, because each may take long: see &keel_cm_ops.end. */
	while ((link = keel_links_take(kdev))) {
		keel_link_stop(link);
		keel_link_queue(link);
		/* It is out of the table: nobody else uses this. */
		list_add_tail(&link->age, &links);
	}
	list_for_each_entry_safe(link, next, &links, age) {
		list_del_init(&link->age);
		flush_work(&link->work);
		keel_link_put(link);
	}
}
EXPORT_SYMBOL_IF_KUNIT(keel_links_remove);

/**
 * keel_links_lost() - end all connections over lower devices that are removed
 *
 * Context: any but interrupts.
 */
void keel_links_lost(void)
{
	struct keel_link *link;
	int i;

	guard(spinlock_irqsave)(&keel_links_lock);
	hash_for_each(keel_links, i, link, node)
		keel_link_queue(link);
}

static void keel_link_show(struct seq_file *m, struct keel_link *link)
{
	struct keel_conn *conn;

	guard(spinlock)(&link->lock);
	conn = link->up;
	seq_printf(m, "link %pI6c to %pI6c users %u connections %llu ",
		   link->ends.sgid.raw, link->ends.dgid.raw, READ_ONCE(link->users),
		   link->epoch);
	if (!conn) {
		seq_puts(m, "down\n");
		return;
	}
	guard(spinlock)(&conn->lock);
	seq_printf(m, "over %s credits %u free %u chunks %u\n", conn->lower->ib->name,
		   conn->credits, conn->nfree, keel_chunks_ready(conn));
}

/**
 * keel_links_show() - print the links of a device
 * @m: where to
 * @kdev: the device
 *
 * Context: may sleep.
 */
void keel_links_show(struct seq_file *m, struct keel_dev *kdev)
{
	struct keel_link *link;
	int i;

	guard(rcu)();
	hash_for_each_rcu(keel_links, i, link, node)
		if (link->kdev == kdev)
			keel_link_show(m, link);
}
