// SPDX-License-Identifier: GPL-2.0
/*
 * Quotas: the rule, users that take all they can, and the user of a process.
 */
#include <kunit/test.h>
#include <linux/cred.h>
#include <linux/err.h>
#include <linux/ktime.h>
#include <linux/user_namespace.h>

#include "compat.h"
#include "keel_quota.h"
#include "threads.h"

/* The resource that tests use, and another resource. */
#define WHAT	3
#define OTHER	4

static int quota_init(struct kunit *test)
{
	struct keel_quotas *quotas = kunit_kzalloc(test, sizeof(*quotas),
						   GFP_KERNEL);

	if (!quotas)
		return -ENOMEM;
	keel_quotas_init(quotas, "kunit");
	test->priv = quotas;
	return 0;
}

/* No user is left when a test ends. */
static void quota_exit(struct kunit *test)
{
	struct keel_quotas *quotas = test->priv;

	if (!quotas)
		return;
	keel_quotas_fini(quotas);
	KUNIT_EXPECT_TRUE(test, hash_empty(quotas->users));
	KUNIT_EXPECT_EQ(test, 0, atomic64_read(&quotas->count[WHAT]));
}

static struct keel_user *user_of(struct keel_quotas *quotas, u64 id)
{
	struct keel_user *user;

	hash_for_each_possible(quotas->users, user, node, id)
		if (user->id == id)
			return user;
	return NULL;
}

static struct keel_user *user_new(struct kunit *test, u64 id)
{
	struct keel_user *user = keel_user_get(test->priv, id, GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, user);
	KUNIT_EXPECT_EQ(test, id, user->id);
	return user;
}

struct check_case {
	const char *desc;
	u64 limit, count, held, n;
	int ret;
};

static const struct check_case check_cases[] = {
	{ "the first of many", 100, 0, 0, 1, 0 },
	{ "the last of half", 100, 49, 49, 1, 0 },
	{ "one beyond half", 100, 50, 50, 1, -EDQUOT },
	{ "half at once", 100, 0, 0, 50, 0 },
	{ "more than half at once", 100, 0, 0, 51, -EDQUOT },
	{ "all at once", 100, 0, 0, 100, -EDQUOT },
	{ "more than all", 100, 0, 0, 101, -ENOMEM },
	{ "half of an odd number", 101, 49, 49, 1, 0 },
	{ "more than half of an odd number", 101, 50, 50, 1, -EDQUOT },
	{ "half of what another left", 100, 50, 0, 25, 0 },
	{ "more than half of what another left", 100, 50, 0, 26, -EDQUOT },
	{ "a third beside two others", 99, 65, 32, 1, 0 },
	{ "one beyond a third", 99, 66, 33, 1, -EDQUOT },
	{ "the last two: one of them", 100, 98, 0, 1, 0 },
	{ "the last one", 100, 99, 0, 1, -EDQUOT },
	{ "none is left", 100, 100, 0, 1, -ENOMEM },
	{ "none is left, and none wanted", 100, 100, 0, 0, 0 },
	{ "the limit fell below the count", 10, 11, 0, 1, -ENOMEM },
	{ "there is nothing", 0, 0, 0, 1, -ENOMEM },
	{ "a sum that would wrap", 100, 99, 0, U64_MAX, -ENOMEM },
	{ "without a limit", S64_MAX / 2, 1000000, 1000000, 1000000, 0 },
};
KUNIT_ARRAY_PARAM_DESC(check, check_cases, desc);

/* ISO-5: the rule. */
static void iso_5_check(struct kunit *test)
{
	const struct check_case *c = test->param_value;

	KUNIT_EXPECT_EQ(test, c->ret,
			keel_quota_check(c->limit, c->count, c->held, c->n));
}

/* Take one by one until the user is refused. Returns the number. */
static u64 take_all(struct keel_user *user, bool all)
{
	u64 n = 0;

	while (!keel_user_charge(user, WHAT, 1, all))
		n++;
	return n;
}

/* Returns true if a user is freed whose next turn is in some time. */
static bool frees(struct keel_quotas *quotas, u64 id, s64 turn)
{
	struct keel_user *user = keel_user_get(quotas, id, GFP_KERNEL);

	if (!user)
		return false;
	keel_orphans_set(&user->orphans, turn);
	keel_user_put(user);
	return !user_of(quotas, id);
}

/*
 * ISO-2: a user that waits for its part of the time still waits if its last object is
 * destroyed and another one is created; a user that does not is freed.
 */
static void iso_2_debt(struct kunit *test)
{
	struct keel_quotas *quotas = test->priv;
	struct keel_user *user = user_new(test, 1000);
	u64 id, until;

	keel_orphans_set(&user->orphans, KEEL_ORPHANS_HOUR);
	until = user->orphans.turn.expires;
	/* Twice: it is kept once. */
	keel_user_put(user);
	KUNIT_EXPECT_PTR_EQ(test, user, user_new(test, 1000));
	KUNIT_EXPECT_EQ(test, until, (u64)user->orphans.turn.expires);
	keel_user_put(user);
	KUNIT_EXPECT_FALSE(test, hash_empty(quotas->users));
	KUNIT_EXPECT_EQ(test, 1, refcount_read(&user->ref));
	KUNIT_EXPECT_FALSE(test, frees(quotas, 1001, KEEL_ORPHANS_HOUR));
	KUNIT_EXPECT_TRUE(test, frees(quotas, 1002, -KEEL_ORPHANS_SAVED));
	/* The debt is over: the next user with the same hash forgets that user. */
	keel_orphans_set(&user->orphans, -KEEL_ORPHANS_SAVED);
	for (id = 1001; user_of(quotas, 1000) && id < 2000; id++)
		keel_user_put(user_new(test, id));
	KUNIT_EXPECT_PTR_EQ(test, NULL, user_of(quotas, 1000));
	/* Another one of them may use up a resource, and is kept for that, too. */
	user = user_new(test, 1001);
	keel_orphans_set(&user->orphans, KEEL_ORPHANS_HOUR);
	keel_user_keep(user);
	KUNIT_EXPECT_PTR_EQ(test, user, user_of(quotas, 1001));
}

struct greedy_case {
	const char *desc;
	u64 limit;
	/* Number that each user gets, in turn; 0 ends the list. */
	u64 gets[6];
};

static const struct greedy_case greedy_cases[] = {
	{ "16384", 16384, { 8192, 4096, 2048, 1024, 512, 256 } },
	{ "1000", 1000, { 500, 250, 125, 62, 31, 16 } },
	{ "7", 7, { 3, 2, 1, } },
	{ "2", 2, { 1, } },
	{ "1", 1, {} },
	{ "none", 0, {} },
};
KUNIT_ARRAY_PARAM_DESC(greedy, greedy_cases, desc);

/* ISO-5: a user that takes all it can leaves something for the next user. */
static void iso_5_greedy(struct kunit *test)
{
	const struct greedy_case *c = test->param_value;
	struct keel_quotas *quotas = test->priv;
	struct keel_user *user[ARRAY_SIZE(c->gets)];
	u64 sum = 0;
	int i;

	quotas->limit[WHAT] = c->limit;
	for (i = 0; i < ARRAY_SIZE(c->gets); i++) {
		user[i] = user_new(test, 1000 + i);
		KUNIT_EXPECT_EQ(test, c->gets[i], take_all(user[i], false));
		KUNIT_EXPECT_EQ(test, c->gets[i],
				atomic64_read(&user[i]->held[WHAT]));
		sum += c->gets[i];
		KUNIT_EXPECT_EQ(test, sum, atomic64_read(&quotas->count[WHAT]));
	}
	for (i = 0; i < ARRAY_SIZE(c->gets); i++) {
		keel_user_uncharge(user[i], WHAT, c->gets[i]);
		keel_user_put(user[i]);
	}
}

/* ISO-5: users that take in turn get equal shares. */
static void iso_5_equal(struct kunit *test)
{
	struct keel_quotas *quotas = test->priv;
	struct keel_user *user[4];
	int users, i, refused;

	quotas->limit[WHAT] = 6000;
	for (i = 0; i < ARRAY_SIZE(user); i++)
		user[i] = user_new(test, i);
	for (users = 1; users <= ARRAY_SIZE(user); users++) {
		do {
			refused = 0;
			for (i = 0; i < users; i++)
				if (keel_user_charge(user[i], WHAT, 1, false))
					refused++;
		} while (refused < users);
		for (i = 0; i < users; i++) {
			KUNIT_EXPECT_EQ(test, 6000 / (users + 1),
					atomic64_read(&user[i]->held[WHAT]));
			keel_user_uncharge(user[i], WHAT, 6000 / (users + 1));
		}
	}
	for (i = 0; i < ARRAY_SIZE(user); i++)
		keel_user_put(user[i]);
}

/* ISO-5, PD-5: a privileged process gets all that is left. */
static void iso_5_pd_5_all(struct kunit *test)
{
	struct keel_quotas *quotas = test->priv;
	struct keel_user *user = user_new(test, 1000), *root = user_new(test, 0);

	quotas->limit[WHAT] = 1000;
	KUNIT_EXPECT_EQ(test, 500, take_all(user, false));
	KUNIT_EXPECT_EQ(test, 500, take_all(root, true));
	KUNIT_EXPECT_EQ(test, -ENOMEM, keel_user_charge(root, WHAT, 1, true));
	KUNIT_EXPECT_EQ(test, -ENOMEM, keel_user_charge(user, WHAT, 1, false));
	keel_user_uncharge(root, WHAT, 500);
	/* The user still has a full share. */
	KUNIT_EXPECT_EQ(test, -EDQUOT, keel_user_charge(user, WHAT, 1, false));
	keel_user_uncharge(user, WHAT, 500);
	/* Other resources are counted separately. */
	KUNIT_EXPECT_EQ(test, 0, atomic64_read(&quotas->count[OTHER]));
	keel_user_put(root);
	keel_user_put(user);
}

/* A refused amount is not counted. */
static void quota_refused(struct kunit *test)
{
	static const u64 amounts[] = { 51, 100, 101, S64_MAX, U64_MAX };
	struct keel_quotas *quotas = test->priv;
	struct keel_user *user = user_new(test, 1000);
	int i;

	quotas->limit[WHAT] = 100;
	for (i = 0; i < ARRAY_SIZE(amounts); i++) {
		KUNIT_EXPECT_EQ(test, amounts[i] > 100 ? -ENOMEM : -EDQUOT,
				keel_user_charge(user, WHAT, amounts[i],
						 false));
		KUNIT_EXPECT_EQ(test, 0, atomic64_read(&user->held[WHAT]));
		KUNIT_EXPECT_EQ(test, 0, atomic64_read(&quotas->count[WHAT]));
	}
	KUNIT_EXPECT_EQ(test, 0, keel_user_charge(user, WHAT, 100, true));
	keel_user_uncharge(user, WHAT, 100);
	keel_user_put(user);
}

/* A user has one entry, as long as there is a reference. */
static void quota_users(struct kunit *test)
{
	struct keel_quotas *quotas = test->priv;
	struct keel_user *a = user_new(test, 1), *b = user_new(test, 2);
	struct keel_user *ns = user_new(test, 1ULL << 32);

	KUNIT_EXPECT_PTR_NE(test, a, b);
	KUNIT_EXPECT_PTR_NE(test, a, ns);
	KUNIT_EXPECT_PTR_EQ(test, a, user_new(test, 1));
	keel_user_put(a);
	KUNIT_EXPECT_PTR_EQ(test, a, user_new(test, 1));
	keel_user_put(a);
	keel_user_put(ns);
	keel_user_put(b);
	KUNIT_EXPECT_FALSE(test, hash_empty(quotas->users));
	keel_user_put(a);
	KUNIT_EXPECT_TRUE(test, hash_empty(quotas->users));
	keel_user_put(NULL);
}

/* ISO-5: keel_user_keep() keeps the count of a user without a reference. */
static void iso_5_kept(struct kunit *test)
{
	struct keel_quotas *quotas = test->priv;
	struct keel_user *user;
	int i;

	quotas->limit[WHAT] = 10;
	for (i = 0; i < 5; i++) {
		user = user_new(test, 1000);
		KUNIT_EXPECT_EQ(test, i, atomic64_read(&user->held[WHAT]));
		KUNIT_EXPECT_EQ(test, 0, keel_user_charge(user, WHAT, 1, false));
		keel_user_keep(user);
	}
	user = user_new(test, 1000);
	KUNIT_EXPECT_EQ(test, -EDQUOT, keel_user_charge(user, WHAT, 1, false));
	keel_user_put(user);
	KUNIT_EXPECT_FALSE(test, hash_empty(quotas->users));
	atomic64_set(&quotas->count[WHAT], 0);
}

/* The calling process: a kernel thread has no limit. */
static void quota_current(struct kunit *test)
{
	struct keel_quotas *quotas = test->priv;
	struct keel_user *user;

	quotas->limit[WHAT] = 10;
	user = keel_quota_charge(quotas, WHAT, 10, GFP_KERNEL);
	KUNIT_ASSERT_NOT_ERR_OR_NULL(test, user);
	KUNIT_EXPECT_EQ(test, 0, user->id);
	KUNIT_EXPECT_EQ(test, 10, atomic64_read(&user->held[WHAT]));
	KUNIT_EXPECT_EQ(test, -EDQUOT,
			PTR_ERR_OR_ZERO(keel_quota_charge(quotas, WHAT, 1,
							  GFP_KERNEL)));
	KUNIT_EXPECT_EQ(test, 1, refcount_read(&user->ref));
	keel_quota_uncharge(user, WHAT, 10);
	KUNIT_EXPECT_TRUE(test, hash_empty(quotas->users));
	keel_quota_uncharge(NULL, WHAT, 10);
}

/**
 * struct id_case - a process, and the user that it counts as
 * @desc: description
 * @uid: real user of the process
 * @depth: depth of its user namespace, 0 for the initial one
 * @owner: owner of the outermost namespace; user 7 owns the inner ones
 * @map: users that are mapped into the outermost namespace
 * @mapped: number of these users; 0: the namespace has no map yet
 * @id: expected user; NS is the number of the outermost namespace
 */
struct id_case {
	const char *desc;
	u32 uid;
	int depth;
	u32 owner;
	u32 map, mapped;
	u64 id;
};

#define NS	0x12345ULL

static const struct id_case id_cases[] = {
	{ "root", .uid = 0, .id = 0 },
	{ "a user", .uid = 1000, .id = 1000 },
	{ "a user's namespace, mapped to the user", .uid = 1000, .depth = 1,
	  .owner = 1000, .map = 1000, .mapped = 1, .id = 1000 },
	{ "a subordinate ID in it", .uid = 100005, .depth = 1,
	  .owner = 1000, .map = 100000, .mapped = 65536, .id = 1000 },
	{ "a namespace inside that", .uid = 100005, .depth = 2,
	  .owner = 1000, .map = 100000, .mapped = 65536, .id = 1000 },
	{ "many namespaces inside it", .uid = 100005, .depth = 30,
	  .owner = 1000, .map = 100000, .mapped = 65536, .id = 1000 },
	{ "a user's namespace without a map", .uid = 1000, .depth = 1,
	  .owner = 1000, .id = 1000 },
	{ "a container that root made", .uid = 200001, .depth = 1,
	  .owner = 0, .map = 200000, .mapped = 65536, .id = NS << 32 },
	{ "a namespace in such a container", .uid = 200001, .depth = 3,
	  .owner = 0, .map = 200000, .mapped = 65536, .id = NS << 32 },
	{ "root's namespace with root in it", .uid = 0, .depth = 1,
	  .owner = 0, .map = 0, .mapped = 1, .id = 0 },
	{ "root's namespace with all users in it", .uid = 1000, .depth = 1,
	  .owner = 0, .map = 0, .mapped = 65536, .id = 0 },
	{ "root's namespace without a map", .uid = 0, .depth = 1,
	  .owner = 0, .id = 0 },
};
KUNIT_ARRAY_PARAM_DESC(id, id_cases, desc);

static struct user_namespace *ns_new(struct kunit *test, u32 owner,
				     struct user_namespace *parent)
{
	struct user_namespace *ns = kunit_kzalloc(test, sizeof(*ns), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, ns);
	ns->owner = KUIDT_INIT(owner);
	ns->parent = parent;
	ns->level = parent->level + 1;
	return ns;
}

/* ISO-5: a user cannot become several users with user namespaces. */
static void iso_5_id(struct kunit *test)
{
	const struct id_case *c = test->param_value;
	struct user_namespace *ns = &init_user_ns;
	struct cred *cred;
	int i;

	cred = kunit_kzalloc(test, sizeof(*cred), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, cred);
	for (i = 0; i < c->depth; i++) {
		ns = ns_new(test, i ? 7 : c->owner, ns);
		ns->ns.inum = NS + i;
		if (i || !c->mapped)
			continue;
		ns->uid_map.nr_extents = 1;
		ns->uid_map.extent[0].lower_first = c->map;
		ns->uid_map.extent[0].count = c->mapped;
	}
	cred->uid = KUIDT_INIT(c->uid);
	cred->user_ns = ns;
	KUNIT_EXPECT_EQ(test, c->id, keel_user_id(cred));
}

#define THREADS_LIMIT	100
#define THREADS_ROUNDS	5000

struct quota_threads {
	struct keel_quotas *quotas;
	bool same;
	atomic_t wrong;
	atomic_t taken;
};

/* Take and release, with and without references: never more than half. */
static void quota_threads_member(void *arg, unsigned int who)
{
	struct quota_threads *s = arg;
	struct keel_user *user;
	u64 n;
	int i;

	for (i = 0; i < THREADS_ROUNDS; i++) {
		user = keel_user_get(s->quotas, s->same ? 5 : who, GFP_KERNEL);
		if (!user) {
			atomic_inc(&s->wrong);
			continue;
		}
		n = 1 + i % 30;
		if (!keel_user_charge(user, WHAT, n, false)) {
			atomic_inc(&s->taken);
			if (atomic64_read(&s->quotas->count[WHAT]) >
			    (s->same ? THREADS_LIMIT / 2 : THREADS_LIMIT))
				atomic_inc(&s->wrong);
			if (i % 7 == 0)
				threads_yield();
			keel_user_uncharge(user, WHAT, n);
		}
		keel_user_put(user);
	}
}

static void quota_threads_run(struct kunit *test, bool same)
{
	struct quota_threads s = { .quotas = test->priv, .same = same };

	s.quotas->limit[WHAT] = THREADS_LIMIT;
	threads_run(test, quota_threads_member, &s);
	KUNIT_EXPECT_EQ(test, 0, atomic_read(&s.wrong));
	KUNIT_EXPECT_GT(test, atomic_read(&s.taken), 0);
	KUNIT_EXPECT_TRUE(test, hash_empty(s.quotas->users));
}

/* ISO-5: several processes of a user get no more than one process. */
static void iso_5_threads_one_user(struct kunit *test)
{
	quota_threads_run(test, true);
}

static void quota_threads_users(struct kunit *test)
{
	quota_threads_run(test, false);
}

static struct kunit_case quota_test_cases[] = {
	KUNIT_CASE(iso_2_debt),
	KUNIT_CASE_PARAM(iso_5_check, check_gen_params),
	KUNIT_CASE_PARAM(iso_5_greedy, greedy_gen_params),
	KUNIT_CASE(iso_5_equal),
	KUNIT_CASE(iso_5_pd_5_all),
	KUNIT_CASE(quota_refused),
	KUNIT_CASE(quota_users),
	KUNIT_CASE(iso_5_kept),
	KUNIT_CASE(quota_current),
	KUNIT_CASE_PARAM(iso_5_id, id_gen_params),
	KUNIT_CASE(iso_5_threads_one_user),
	KUNIT_CASE(quota_threads_users),
	{}
};

static struct kunit_suite quota_test_suite = {
	.name = "keel_quota",
	.init = quota_init,
	.exit = quota_exit,
	.test_cases = quota_test_cases,
};
kunit_test_suite(quota_test_suite);
