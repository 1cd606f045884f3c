// SPDX-License-Identifier: GPL-2.0
/*
 * The table of links: how many there may be of each origin, and which one gives way to
 * another one. No link has a connection.
 */
#include <kunit/test.h>

#include "keel.h"
#include "keel_conn.h"
#include "keel_point.h"

#define ASKED_MAX	128
#define DATAGRAMS_MAX	256
#define KERNEL_MAX	256
#define USER_MAX	1024

static const u32 links_max[KEEL_LINK_ORIGINS] = {
	[KEEL_LINK_ASKED]	= ASKED_MAX,
	[KEEL_LINK_DATAGRAMS]	= DATAGRAMS_MAX,
	[KEEL_LINK_KERNEL]	= KERNEL_MAX,
	[KEEL_LINK_USER]	= USER_MAX,
};

/**
 * struct links_one - a link of the test
 * @link: the link, with a reference of the test; or NULL
 * @uses: number of keel_link_use()
 */
struct links_one {
	struct keel_link *link;
	u32 uses;
};

/**
 * struct links - what a test has
 * @kdev: stands for a device, which no link uses
 * @conn: stands for a connection that is up
 * @asleep: the work of links does nothing
 * @one: the links, by the number in their ends
 */
struct links {
	struct keel_dev *kdev;
	struct keel_conn *conn;
	bool asleep;
	struct links_one one[USER_MAX + 2];
};

static struct links *all;

static const struct keel_wire_ops links_ops;

static void links_work(struct work_struct *work)
{
	if (READ_ONCE(all->asleep))
		keel_link_put(container_of(work, struct keel_link, work));
	else
		keel_link_work(work);
}

static void links_ends(struct keel_ends *ends, u32 nr)
{
	memset(ends, 0, sizeof(*ends));
	ends->net = 1;
	ends->netdev = 2;
	ends->dgid.global.interface_id = cpu_to_be64(nr);
}

static struct keel_link *links_spare(struct kunit *test, u32 nr,
				     enum keel_link_origin origin)
{
	struct keel_link *spare;
	struct keel_ends ends;

	links_ends(&ends, nr);
	spare = keel_link_alloc(all->kdev, &ends, GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, spare);
	spare->origin = origin;
	return spare;
}

/* Another host asks for a link, or this side uses it. Return: the link, or NULL. */
static struct keel_link *links_have(struct keel_link *spare)
{
	struct keel_link *link;

	if (spare->origin != KEEL_LINK_ASKED)
		return keel_link_use(spare);
	link = keel_link_get(spare);
	if (link)
		keel_link_put(link);
	return link;
}

/* Make link @nr. Return: false if there are too many. */
static bool links_make(struct kunit *test, u32 nr, enum keel_link_origin origin)
{
	struct keel_link *spare = links_spare(test, nr, origin);
	struct keel_link *link = links_have(spare);

	if (!link) {
		keel_link_put(spare);
		return false;
	}
	KUNIT_EXPECT_PTR_EQ(test, spare, link);
	all->one[nr].link = spare;
	all->one[nr].uses = origin != KEEL_LINK_ASKED;
	return true;
}

static void links_fill(struct kunit *test, u32 from, u32 to, enum keel_link_origin origin)
{
	for (; from < to; from++)
		KUNIT_ASSERT_TRUE_MSG(test, links_make(test, from, origin), "link %u", from);
}

/* Ask for link @nr, which exists, once more. */
static void links_again(struct kunit *test, u32 nr, enum keel_link_origin origin)
{
	struct keel_link *spare = links_spare(test, nr, origin);

	KUNIT_EXPECT_PTR_EQ(test, all->one[nr].link, links_have(spare));
	all->one[nr].uses += origin != KEEL_LINK_ASKED;
	keel_link_put(spare);
}

/* Is there a link with the ends of link @nr, and which one? */
static struct keel_link *links_find(u32 nr)
{
	struct keel_link *link;
	struct keel_ends ends;

	links_ends(&ends, nr);
	link = keel_link_lookup(all->kdev, &ends);
	if (link)
		keel_link_put(link);
	return link;
}

static void links_are_found(struct kunit *test, u32 from, u32 to)
{
	for (; from < to; from++)
		KUNIT_EXPECT_PTR_EQ_MSG(test, all->one[from].link, links_find(from),
					"link %u", from);
}

/* The work that is queued has run. It may queue itself once more. */
static void links_settle(struct keel_link *link)
{
	flush_work(&link->work);
	flush_work(&link->work);
}

/* Link @nr has left the table: only the test and its users have a reference. */
static void links_has_left(struct kunit *test, u32 nr)
{
	struct links_one *one = &all->one[nr];

	links_settle(one->link);
	KUNIT_EXPECT_TRUE_MSG(test, hlist_unhashed(&one->link->node), "link %u", nr);
	KUNIT_EXPECT_EQ_MSG(test, 1 + one->uses, kref_read(&one->link->ref), "link %u", nr);
}

static void links_unuse(u32 nr)
{
	all->one[nr].uses--;
	keel_link_unuse(all->one[nr].link);
}

static void links_set_up(u32 nr, struct keel_conn *conn)
{
	struct keel_link *link = all->one[nr].link;

	guard(spinlock)(&link->lock);
	link->up = conn;
}

/* End all links. */
static void links_drop(struct kunit *test)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(all->one); i++)
		if (all->one[i].link)
			links_set_up(i, NULL);
	keel_links_remove(all->kdev);
	for (i = 0; i < ARRAY_SIZE(all->one); i++) {
		if (!all->one[i].link)
			continue;
		while (all->one[i].uses)
			links_unuse(i);
		links_has_left(test, i);
		keel_link_put(all->one[i].link);
		all->one[i].link = NULL;
	}
}

/* As many links as there may be of an origin. Fails if others still count. */
static void links_fit(struct kunit *test, enum keel_link_origin origin)
{
	u32 i;

	for (i = 0; i < links_max[origin]; i++) {
		if (!links_make(test, i, origin))
			break;
		links_set_up(i, all->conn);
	}
	KUNIT_EXPECT_EQ_MSG(test, links_max[origin], i, "origin %d", origin);
	links_are_found(test, 0, i);
	if (origin == KEEL_LINK_KERNEL || origin == KEEL_LINK_USER) {
		KUNIT_EXPECT_FALSE(test, links_make(test, i, origin));
	} else {
		KUNIT_EXPECT_TRUE(test, links_make(test, i, origin));
		KUNIT_EXPECT_NULL(test, links_find(0));
	}
	links_drop(test);
}

static int links_init(struct kunit *test)
{
	all = kunit_kzalloc(test, sizeof(*all), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, all);
	all->kdev = kunit_kzalloc(test, sizeof(*all->kdev), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, all->kdev);
	all->conn = kunit_kzalloc(test, sizeof(*all->conn), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, all->conn);
	keel_links_init(links_work);
	return keel_links_start(&links_ops);
}

static void links_exit(struct kunit *test)
{
	int origin;

	WRITE_ONCE(all->asleep, false);
	WRITE_ONCE(keel_point_hook.hit, NULL);
	links_drop(test);
	for (origin = 0; origin < KEEL_LINK_ORIGINS; origin++)
		links_fit(test, origin);
	keel_links_stop();
}

/* Of the links that others have asked for, the oldest gives way to a new one, and ends. */
static void host_4_asked(struct kunit *test)
{
	links_fill(test, 0, ASKED_MAX, KEEL_LINK_ASKED);
	links_are_found(test, 0, ASKED_MAX);
	KUNIT_ASSERT_TRUE(test, links_make(test, ASKED_MAX, KEEL_LINK_ASKED));
	KUNIT_EXPECT_NULL(test, links_find(0));
	links_has_left(test, 0);
	KUNIT_EXPECT_TRUE(test, keel_link_is_dead(all->one[0].link));
	links_are_found(test, 1, ASKED_MAX + 1);
}

/* A link that was asked for just before is not the oldest any more. */
static void host_4_asked_again(struct kunit *test)
{
	links_fill(test, 0, ASKED_MAX, KEEL_LINK_ASKED);
	links_again(test, 0, KEEL_LINK_ASKED);
	KUNIT_ASSERT_TRUE(test, links_make(test, ASKED_MAX, KEEL_LINK_ASKED));
	links_are_found(test, 0, 1);
	KUNIT_EXPECT_NULL(test, links_find(1));
	links_has_left(test, 1);
	links_are_found(test, 2, ASKED_MAX + 1);
}

/* A link of datagrams gives way although it has users, who drop it afterwards. */
static void host_4_datagrams(struct kunit *test)
{
	links_fill(test, 0, DATAGRAMS_MAX, KEEL_LINK_DATAGRAMS);
	links_again(test, 0, KEEL_LINK_DATAGRAMS);
	KUNIT_ASSERT_TRUE(test, links_make(test, DATAGRAMS_MAX, KEEL_LINK_DATAGRAMS));
	KUNIT_EXPECT_NULL(test, links_find(1));
	links_has_left(test, 1);
	KUNIT_EXPECT_TRUE(test, keel_link_is_used(all->one[1].link));
	links_are_found(test, 0, 1);
	links_are_found(test, 2, DATAGRAMS_MAX + 1);
	links_unuse(1);
	links_has_left(test, 1);
	/* It does not count any more: one more link takes one more place. */
	KUNIT_ASSERT_TRUE(test, links_make(test, DATAGRAMS_MAX + 1, KEEL_LINK_DATAGRAMS));
	KUNIT_EXPECT_NULL(test, links_find(2));
	links_has_left(test, 2);
	links_are_found(test, 3, DATAGRAMS_MAX + 2);
}

/* Before it, one that nobody uses does, unless that is up. */
static void host_4_datagrams_unused(struct kunit *test)
{
	links_fill(test, 0, DATAGRAMS_MAX, KEEL_LINK_DATAGRAMS);
	/* Its work would end it. */
	WRITE_ONCE(all->asleep, true);
	links_unuse(9);
	links_settle(all->one[9].link);
	links_set_up(4, all->conn);
	links_unuse(4);
	links_settle(all->one[4].link);
	WRITE_ONCE(all->asleep, false);
	KUNIT_ASSERT_TRUE(test, links_make(test, DATAGRAMS_MAX, KEEL_LINK_DATAGRAMS));
	links_are_found(test, 0, DATAGRAMS_MAX);
	KUNIT_ASSERT_TRUE(test, links_make(test, DATAGRAMS_MAX + 1, KEEL_LINK_DATAGRAMS));
	KUNIT_EXPECT_NULL(test, links_find(9));
	links_has_left(test, 9);
	links_are_found(test, 0, 9);
	links_are_found(test, 10, DATAGRAMS_MAX + 2);
}

/* Links that are up give way last: if all are, that which was idle longest. */
static void host_4_up(struct kunit *test)
{
	u32 i;

	links_fill(test, 0, ASKED_MAX, KEEL_LINK_ASKED);
	for (i = 0; i < ASKED_MAX; i++) {
		links_set_up(i, all->conn);
		all->one[i].link->used = jiffies - (i == 7 ? 2 : 1) * HZ;
	}
	links_set_up(5, NULL);
	all->one[5].link->used = jiffies;
	KUNIT_ASSERT_TRUE(test, links_make(test, ASKED_MAX, KEEL_LINK_ASKED));
	links_set_up(ASKED_MAX, all->conn);
	KUNIT_EXPECT_NULL(test, links_find(5));
	links_has_left(test, 5);
	links_are_found(test, 0, 5);
	links_are_found(test, 6, ASKED_MAX + 1);
	KUNIT_ASSERT_TRUE(test, links_make(test, ASKED_MAX + 1, KEEL_LINK_ASKED));
	KUNIT_EXPECT_NULL(test, links_find(7));
	links_has_left(test, 7);
	links_are_found(test, 6, 7);
	links_are_found(test, 8, ASKED_MAX + 2);
}

/* A link that is not used any more, and is up, counts as if another host had asked for it. */
static void host_4_unused(struct kunit *test)
{
	links_fill(test, 0, ASKED_MAX, KEEL_LINK_ASKED);
	links_fill(test, ASKED_MAX, ASKED_MAX + 1, KEEL_LINK_USER);
	links_set_up(ASKED_MAX, all->conn);
	WRITE_ONCE(all->asleep, true);
	links_again(test, ASKED_MAX, KEEL_LINK_USER);
	links_unuse(ASKED_MAX);
	KUNIT_EXPECT_EQ(test, KEEL_LINK_USER, all->one[ASKED_MAX].link->origin);
	links_are_found(test, 0, ASKED_MAX);
	links_unuse(ASKED_MAX);
	KUNIT_EXPECT_EQ(test, KEEL_LINK_ASKED, all->one[ASKED_MAX].link->origin);
	KUNIT_EXPECT_NULL(test, links_find(0));
	links_are_found(test, 1, ASKED_MAX + 1);
	WRITE_ONCE(all->asleep, false);
}

/*
 * HOST-4: links that were never up do not make those of other hosts give way, however many a
 * user makes and leaves, unless one comes up.
 */
static void host_4_unused_down(struct kunit *test)
{
	struct links_one *one = &all->one[ASKED_MAX];

	links_fill(test, 0, ASKED_MAX, KEEL_LINK_ASKED);
	links_fill(test, ASKED_MAX, ASKED_MAX + 1, KEEL_LINK_USER);
	WRITE_ONCE(all->asleep, true);
	links_unuse(ASKED_MAX);
	KUNIT_EXPECT_EQ(test, KEEL_LINK_USER, one->link->origin);
	KUNIT_EXPECT_EQ(test, 0, keel_link_rests(one->link, false));
	KUNIT_EXPECT_EQ(test, KEEL_LINK_USER, one->link->origin);
	links_are_found(test, 0, ASKED_MAX + 1);
	links_set_up(ASKED_MAX, all->conn);
	KUNIT_EXPECT_NE(test, 0, keel_link_rests(one->link, true));
	KUNIT_EXPECT_EQ(test, KEEL_LINK_ASKED, one->link->origin);
	KUNIT_EXPECT_NULL(test, links_find(0));
	links_are_found(test, 1, ASKED_MAX + 1);
	WRITE_ONCE(all->asleep, false);
}

/* HOST-4: a link that could not connect stays until it may try again, whoever uses it. */
static void host_4_backoff(struct kunit *test)
{
	struct keel_link *link;

	links_fill(test, 0, 1, KEEL_LINK_USER);
	link = all->one[0].link;
	link->retry = jiffies + 1000 * HZ;
	links_unuse(0);
	links_settle(link);
	links_are_found(test, 0, 1);
	KUNIT_EXPECT_EQ(test, KEEL_LINK_USER, link->origin);
	links_again(test, 0, KEEL_LINK_USER);
	links_unuse(0);
	links_settle(link);
	KUNIT_EXPECT_TRUE(test, delayed_work_pending(&link->again));
	link->retry = jiffies;
	keel_link_queue(link);
	links_has_left(test, 0);
}

static void links_over(const char *name)
{
	if (!strcmp(name, "link_rested"))
		all->one[0].link->retry = jiffies;
}

/* HOST-4: it leaves the table, too, if that time is over just when the work has looked. */
static void host_4_backoff_over(struct kunit *test)
{
	struct keel_link *link;

	links_fill(test, 0, 1, KEEL_LINK_USER);
	link = all->one[0].link;
	link->retry = jiffies + 1000 * HZ;
	WRITE_ONCE(keel_point_hook.hit, links_over);
	links_unuse(0);
	links_settle(link);
	flush_delayed_work(&link->again);
	links_has_left(test, 0);
	WRITE_ONCE(keel_point_hook.hit, NULL);
}

/* HOST-4: another host does not keep a link that counts for a user. */
static void host_4_backoff_guest(struct kunit *test)
{
	struct keel_link *link;

	links_fill(test, 0, 1, KEEL_LINK_USER);
	link = all->one[0].link;
	link->retry = jiffies + 1000 * HZ;
	link->nguests = 1;
	WRITE_ONCE(all->asleep, true);
	links_unuse(0);
	KUNIT_EXPECT_NE(test, 0, keel_link_rests(link, false));
	KUNIT_EXPECT_EQ(test, KEEL_LINK_USER, link->origin);
	link->retry = jiffies;
	KUNIT_EXPECT_EQ(test, 0, keel_link_rests(link, false));
	KUNIT_EXPECT_EQ(test, KEEL_LINK_ASKED, link->origin);
	links_are_found(test, 0, 1);
	link->nguests = 0;
	links_settle(link);
	WRITE_ONCE(all->asleep, false);
}

/* Links of QPs of the kernel do not give way: a new one is refused. */
static void host_4_kernel(struct kunit *test)
{
	links_fill(test, 0, KERNEL_MAX, KEEL_LINK_KERNEL);
	KUNIT_EXPECT_FALSE(test, links_make(test, KERNEL_MAX, KEEL_LINK_KERNEL));
	links_are_found(test, 0, KERNEL_MAX);
	/* One that ends makes room. */
	links_unuse(7);
	links_has_left(test, 7);
	KUNIT_EXPECT_TRUE(test, links_make(test, KERNEL_MAX, KEEL_LINK_KERNEL));
}

/* As host_4_kernel(), for links of users. */
static void host_4_user(struct kunit *test)
{
	links_fill(test, 0, USER_MAX, KEEL_LINK_USER);
	KUNIT_EXPECT_FALSE(test, links_make(test, USER_MAX, KEEL_LINK_USER));
	links_are_found(test, 0, USER_MAX);
}

/* A link that another host has asked for counts for those who use it, and stays. */
static void host_4_promoted(struct kunit *test)
{
	links_fill(test, 0, 2, KEEL_LINK_ASKED);
	links_again(test, 0, KEEL_LINK_KERNEL);
	links_again(test, 1, KEEL_LINK_USER);
	KUNIT_EXPECT_EQ(test, KEEL_LINK_KERNEL, all->one[0].link->origin);
	KUNIT_EXPECT_EQ(test, KEEL_LINK_USER, all->one[1].link->origin);
	/* It does not fall back. */
	links_again(test, 0, KEEL_LINK_DATAGRAMS);
	links_again(test, 1, KEEL_LINK_ASKED);
	KUNIT_EXPECT_EQ(test, KEEL_LINK_KERNEL, all->one[0].link->origin);
	KUNIT_EXPECT_EQ(test, KEEL_LINK_USER, all->one[1].link->origin);
	links_fill(test, 2, ASKED_MAX + 2, KEEL_LINK_ASKED);
	links_are_found(test, 0, ASKED_MAX + 2);
	KUNIT_ASSERT_TRUE(test, links_make(test, ASKED_MAX + 2, KEEL_LINK_ASKED));
	KUNIT_EXPECT_NULL(test, links_find(2));
	links_are_found(test, 0, 2);
	links_are_found(test, 3, ASKED_MAX + 3);
}

/*
 * A link that another host has asked for is no way round the limit of those who use it, and
 * datagrams use it as it is.
 */
static void host_4_promoted_limit(struct kunit *test)
{
	struct keel_link *spare;

	links_fill(test, 0, DATAGRAMS_MAX, KEEL_LINK_DATAGRAMS);
	links_fill(test, DATAGRAMS_MAX, DATAGRAMS_MAX + 1, KEEL_LINK_ASKED);
	links_again(test, DATAGRAMS_MAX, KEEL_LINK_DATAGRAMS);
	KUNIT_EXPECT_EQ(test, KEEL_LINK_ASKED, all->one[DATAGRAMS_MAX].link->origin);
	links_are_found(test, 0, DATAGRAMS_MAX + 1);
	links_fill(test, 300, 300 + KERNEL_MAX, KEEL_LINK_KERNEL);
	links_fill(test, 300 + KERNEL_MAX, 301 + KERNEL_MAX, KEEL_LINK_ASKED);
	spare = links_spare(test, 300 + KERNEL_MAX, KEEL_LINK_KERNEL);
	KUNIT_EXPECT_NULL(test, keel_link_use(spare));
	keel_link_put(spare);
	links_are_found(test, 300, 301 + KERNEL_MAX);
	KUNIT_EXPECT_FALSE(test, keel_link_is_used(all->one[300 + KERNEL_MAX].link));
}

/* A link that another host has asked for, without a connection, leaves the table. */
static void host_4_no_connection(struct kunit *test)
{
	struct keel_link *link;

	all->one[0].link = links_spare(test, 0, KEEL_LINK_ASKED);
	link = keel_link_get(all->one[0].link);
	KUNIT_ASSERT_PTR_EQ(test, all->one[0].link, link);
	KUNIT_EXPECT_PTR_EQ(test, link, links_find(0));
	keel_link_queue(link);
	keel_link_put(link);
	links_settle(link);
	KUNIT_EXPECT_NULL(test, links_find(0));
	links_has_left(test, 0);
}

/* One host, two links: the old one gave way, has a user, and is in the table still. */
static void host_4_same_ends(struct kunit *test)
{
	struct links_one *old = &all->one[USER_MAX + 1];

	WRITE_ONCE(all->asleep, true);
	links_fill(test, 0, DATAGRAMS_MAX + 1, KEEL_LINK_DATAGRAMS);
	KUNIT_EXPECT_FALSE(test, hlist_unhashed(&all->one[0].link->node));
	KUNIT_EXPECT_NULL(test, links_find(0));
	*old = all->one[0];
	all->one[0] = (struct links_one){};
	KUNIT_ASSERT_TRUE(test, links_make(test, 0, KEEL_LINK_USER));
	KUNIT_EXPECT_PTR_NE(test, old->link, all->one[0].link);
	KUNIT_EXPECT_FALSE(test, hlist_unhashed(&old->link->node));
	links_are_found(test, 0, DATAGRAMS_MAX + 1);
	WRITE_ONCE(all->asleep, false);
	keel_link_queue(old->link);
	links_has_left(test, USER_MAX + 1);
	links_are_found(test, 0, DATAGRAMS_MAX + 1);
	links_again(test, 0, KEEL_LINK_DATAGRAMS);
}

/* The removal of a device ends all its links, even those that gave way, and no others. */
static void host_4_removed(struct kunit *test)
{
	struct keel_dev *other = kunit_kzalloc(test, sizeof(*other), GFP_KERNEL);
	struct keel_dev *kdev = all->kdev;
	u32 i;

	KUNIT_ASSERT_NOT_NULL(test, other);
	all->kdev = other;
	links_fill(test, USER_MAX, USER_MAX + 1, KEEL_LINK_KERNEL);
	all->kdev = kdev;
	links_fill(test, USER_MAX + 1, USER_MAX + 2, KEEL_LINK_USER);
	WRITE_ONCE(all->asleep, true);
	links_fill(test, 0, DATAGRAMS_MAX + 1, KEEL_LINK_DATAGRAMS);
	flush_work(&all->one[0].link->work);
	KUNIT_EXPECT_FALSE(test, hlist_unhashed(&all->one[0].link->node));
	WRITE_ONCE(all->asleep, false);
	keel_links_remove(kdev);
	for (i = 0; i <= DATAGRAMS_MAX; i++) {
		KUNIT_EXPECT_NULL(test, links_find(i));
		KUNIT_EXPECT_TRUE(test, keel_link_is_dead(all->one[i].link));
		links_has_left(test, i);
	}
	links_has_left(test, USER_MAX + 1);
	all->kdev = other;
	links_are_found(test, USER_MAX, USER_MAX + 1);
	keel_links_remove(other);
	all->kdev = kdev;
}

static struct kunit_case links_cases[] = {
	KUNIT_CASE(host_4_asked),
	KUNIT_CASE(host_4_asked_again),
	KUNIT_CASE(host_4_datagrams),
	KUNIT_CASE(host_4_datagrams_unused),
	KUNIT_CASE(host_4_up),
	KUNIT_CASE(host_4_unused),
	KUNIT_CASE(host_4_unused_down),
	KUNIT_CASE(host_4_backoff),
	KUNIT_CASE(host_4_backoff_over),
	KUNIT_CASE(host_4_backoff_guest),
	KUNIT_CASE(host_4_kernel),
	KUNIT_CASE(host_4_user),
	KUNIT_CASE(host_4_promoted),
	KUNIT_CASE(host_4_promoted_limit),
	KUNIT_CASE(host_4_no_connection),
	KUNIT_CASE(host_4_same_ends),
	KUNIT_CASE(host_4_removed),
	{}
};

static struct kunit_suite links_suite = {
	.name = "keel_links",
	.init = links_init,
	.exit = links_exit,
	.test_cases = links_cases,
};
kunit_test_suite(links_suite);
