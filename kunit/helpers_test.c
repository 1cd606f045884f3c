// SPDX-License-Identifier: GPL-2.0
/*
 * Threads that copy parts of a message together: all of its bytes, who stops when, and
 * threads that come late, have ended, or have a part when the worker wants to go on.
 */
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/mm.h>
#include <linux/preempt.h>
#include <linux/string.h>

#include "keel_helpers.h"
#include "keel_point.h"
#include "worker_jobs.h"

#define PART	KEEL_COPY_STEP
#define PARTS	40
#define BYTES	(PARTS * PART + 100)
#define TRIES	40

/**
 * struct helped - a test
 * @t: its workers
 * @lists: those that help
 * @helpers: they
 * @from: the source
 * @to: the destination
 * @mem: both
 * @src: as a list
 * @dst: as a list
 * @key: of the source
 * @ctl: the transfer
 * @asked: how often it asked whether to stop
 * @stop_at: when it is to stop
 * @big_threads: the parameter before the test
 */
struct helped {
	struct worker_test t;
	struct keel_workers lists[KEEL_HELPERS];
	struct keel_helpers *helpers;
	u8 *from, *to;
	struct keel_mem mem[2];
	struct keel_segs src, dst;
	struct keel_key key;
	struct keel_copy_ctl ctl;
	unsigned int asked, stop_at;
	int big_threads;
};

static bool stops(void *arg)
{
	struct helped *h = arg;

	return h->asked++ == h->stop_at;
}

static void begin(struct helped *h, u64 done)
{
	memset(h->to, 0, BYTES);
	keel_copy_ctl_init(&h->ctl, stops, h);
	h->ctl.done = done;
	h->asked = 0;
}

static u8 *memory(struct kunit *test, struct keel_mem *mem, struct keel_segs *segs)
{
	u8 *p = kvmalloc(BYTES, GFP_KERNEL);

	if (!p)
		return NULL;
	*mem = (struct keel_mem){ .type = KEEL_MEM_KERNEL, .start = (uintptr_t)p };
	segs->n = 1;
	segs->len = BYTES;
	segs->seg[0] = (struct keel_seg){ .mem = mem, .len = BYTES };
	return p;
}

static bool no_helpers(void)
{
	return IS_ENABLED(CONFIG_PREEMPT_RT) || !KEEL_THREAD_HAS_MM;
}

static int helped_init(struct kunit *test)
{
	struct helped *h = kunit_kzalloc(test, sizeof(*h), GFP_KERNEL);
	unsigned int i;

	if (!h)
		return -ENOMEM;
	if (no_helpers() || num_online_cpus() < 2)
		kunit_skip(test, "this kernel has no helpers, or one processor");
	h->big_threads = keel_big_threads;
	worker_test_setup(&h->t, test);
	for (i = 0; i < KEEL_HELPERS; i++)
		keel_workers_setup(&h->lists[i]);
	test->priv = h;
	h->from = memory(test, &h->mem[0], &h->src);
	h->to = memory(test, &h->mem[1], &h->dst);
	if (!h->from || !h->to)
		return -ENOMEM;
	for (i = 0; i < BYTES; i++)
		h->from[i] = 1 + i % 251;
	h->stop_at = UINT_MAX;
	return 0;
}

static void helped_exit(struct kunit *test)
{
	struct helped *h = test->priv;
	unsigned int i;

	if (!h)
		return;
	WRITE_ONCE(keel_point_hook.hit, NULL);
	keel_big_threads = h->big_threads;
	for (i = 0; i < KEEL_HELPERS; i++)
		keel_workers_stop(&h->lists[i]);
	keel_helpers_put(h->helpers);
	worker_test_end(&h->t);
	kvfree(h->from);
	kvfree(h->to);
}

/* Until the thread has noted what it may use: its priority is noted last. */
static void wait_for_start(const struct keel_worker *thread)
{
	unsigned long until = jiffies + TEST_PATIENCE;

	while (!READ_ONCE(thread->prio) && time_before(jiffies, until))
		usleep_range(100, 200);
}

/* As worker_of_thread(). */
static void get_helpers(struct helped *h, unsigned int n)
{
	struct kunit *test = current->kunit_test;
	unsigned int i;

	worker_test_open(&h->t);
	current->kunit_test = NULL;
	h->helpers = keel_helpers_new(h->lists, n);
	current->kunit_test = test;
	if (IS_ERR(h->helpers)) {
		h->helpers = NULL;
		KUNIT_FAIL_AND_ABORT(test, "no helpers");
	}
	KUNIT_ASSERT_EQ(test, n, h->helpers->n);
	for (i = 0; i < n; i++)
		wait_for_start(h->helpers->helper[i].thread);
}

static enum keel_copy_result copy(struct helped *h)
{
	enum keel_copy_result res;

	preempt_disable();
	res = keel_helpers_copy(h->helpers, &h->dst, &h->src, &h->ctl);
	preempt_enable();
	return res;
}

/* All parts are copied. */
static void copy_all(struct helped *h, u64 from)
{
	begin(h, from);
	KUNIT_EXPECT_EQ(h->t.test, KEEL_COPY_DONE, copy(h));
	KUNIT_EXPECT_EQ(h->t.test, from + (BYTES - from - 1) / PART * PART, h->ctl.done);
}

/* The bytes from @from on have arrived up to @done, and no others. */
static void check_done(struct helped *h, u64 from)
{
	struct kunit *test = h->t.test;
	u64 done = h->ctl.done;

	KUNIT_EXPECT_EQ(test, 0, (done - from) % PART);
	KUNIT_EXPECT_LT(test, done, BYTES);
	KUNIT_EXPECT_NULL(test, memchr_inv(h->to, 0, from));
	KUNIT_EXPECT_EQ(test, 0, memcmp(h->to + from, h->from + from, done - from));
	KUNIT_EXPECT_NULL(test, memchr_inv(h->to + done, 0, BYTES - done));
}

/* Until nobody works: the reference of the test is left. */
static void check_idle(struct helped *h)
{
	unsigned long until = jiffies + TEST_PATIENCE;

	while (kref_read(&h->helpers->ref) > 1 && time_before(jiffies, until))
		usleep_range(100, 200);
	KUNIT_EXPECT_EQ(h->t.test, 1, kref_read(&h->helpers->ref));
	KUNIT_EXPECT_PTR_EQ(h->t.test, NULL, h->helpers->share);
	KUNIT_EXPECT_EQ(h->t.test, 0, atomic_read(&h->helpers->busy));
}

/* The worker copies no part before a helper has begun to copy the first one. */
static bool begins_late(void *arg)
{
	struct helped *h = arg;
	unsigned int ms;

	for (ms = 0; !h->asked && !READ_ONCE(h->to[h->ctl.done]) && ms < 5000; ms++)
		mdelay(1);
	h->asked++;
	return false;
}

/* Copy all parts with helpers, if they come in time or are waited for, and then the rest. */
static void check_copy(struct helped *h, u64 from, bool waits)
{
	struct kunit *test = h->t.test;

	begin(h, from);
	if (waits)
		h->ctl.stop = begins_late;
	KUNIT_EXPECT_EQ(test, KEEL_COPY_DONE, copy(h));
	KUNIT_EXPECT_EQ(test, from + (BYTES - from - 1) / PART * PART, h->ctl.done);
	if (waits)
		KUNIT_EXPECT_TRUE(test, h->ctl.helped);
	check_done(h, from);
	h->ctl.stop = stops;
	KUNIT_EXPECT_EQ(test, KEEL_COPY_DONE, keel_copy(&h->dst, 0, &h->src, 0, BYTES, &h->ctl));
	KUNIT_EXPECT_EQ(test, 0, memcmp(h->to + from, h->from + from, BYTES - from));
}

/* DEV-4: all parts are copied once, in any number of threads; keel_copy() ends it. */
static void dev_4_helpers_copy(struct kunit *test)
{
	struct helped *h = test->priv;
	const u64 starts[] = { 0, 1, 1000, PART, 3 * PART + 7 };
	unsigned int i;

	get_helpers(h, KEEL_HELPERS);
	for (i = 0; i < TRIES; i++)
		check_copy(h, starts[i % ARRAY_SIZE(starts)], i < ARRAY_SIZE(starts));
	check_idle(h);
}

/* A message that is not big enough, or an attempt that has copied all: nothing to share. */
static void helpers_small(struct kunit *test)
{
	struct helped *h = test->priv;
	const u64 dones[] = { BYTES - SZ_1M + 1, BYTES - 1, BYTES, BYTES + 1, U64_MAX };
	unsigned int i;

	get_helpers(h, 1);
	for (i = 0; i < ARRAY_SIZE(dones); i++) {
		begin(h, dones[i]);
		KUNIT_EXPECT_EQ(test, KEEL_COPY_DONE, copy(h));
		KUNIT_EXPECT_EQ(test, dones[i], h->ctl.done);
		KUNIT_EXPECT_NULL(test, memchr_inv(h->to, 0, BYTES));
	}
	copy_all(h, BYTES - SZ_1M);
	check_idle(h);
}

/* ISO-1: the worker stops when it must, and then no helper copies. */
static void iso_1_helpers_stop(struct kunit *test)
{
	struct helped *h = test->priv;
	enum keel_copy_result want;

	get_helpers(h, KEEL_HELPERS);
	for (h->stop_at = 0; h->stop_at < 8; h->stop_at++) {
		begin(h, 5);
		want = copy(h) == KEEL_COPY_STOPPED ? KEEL_COPY_STOPPED : KEEL_COPY_DONE;
		check_done(h, 5);
		/* It has asked once more than it has copied parts, or none was left. */
		KUNIT_EXPECT_LE(test, h->asked, h->stop_at + 1);
		KUNIT_EXPECT_GE(test, h->ctl.done, 5 + (u64)min(h->asked - 1, PARTS) * PART);
		KUNIT_EXPECT_EQ(test, want, h->asked == h->stop_at + 1 && h->ctl.done > 5 ?
					    KEEL_COPY_STOPPED : KEEL_COPY_DONE);
		check_idle(h);
		check_done(h, 5);
	}
}

/* PD-2: a key that is invalidated ends the copy. */
static void pd_2_helpers_dead_key(struct kunit *test)
{
	struct helped *h = test->priv;

	enum keel_copy_result res;

	get_helpers(h, 1);
	h->key.dead = true;
	h->src.seg[0].key = &h->key;
	begin(h, 0);
	res = copy(h);
	check_done(h, 0);
	KUNIT_EXPECT_EQ(test, res, h->ctl.done ? KEEL_COPY_SRC : KEEL_COPY_DONE);
	KUNIT_EXPECT_EQ(test, 0, h->asked);
	h->src.seg[0].key = NULL;
	h->dst.seg[0].key = &h->key;
	begin(h, 0);
	res = copy(h);
	check_done(h, 0);
	KUNIT_EXPECT_EQ(test, res, h->ctl.done ? KEEL_COPY_DST : KEEL_COPY_DONE);
	KUNIT_EXPECT_EQ(test, 0, h->asked);
	check_idle(h);
}

/* A helper that does something else, or has ended: the worker copies alone. */
static void helpers_absent(struct kunit *test)
{
	struct helped *h = test->priv;
	struct keel_worker *thread;

	get_helpers(h, 1);
	thread = h->helpers->helper[0].thread;
	worker_test_hold(&h->t, thread);
	copy_all(h, 0);
	KUNIT_EXPECT_FALSE(test, h->ctl.helped);
	check_done(h, 0);
	/* Its job was taken back. */
	KUNIT_EXPECT_FALSE(test, keel_job_is_queued(&h->helpers->helper[0].job));
	KUNIT_EXPECT_EQ(test, 1, kref_read(&h->helpers->ref));
	worker_test_release(&h->t);
	keel_workers_stop(&h->lists[0]);
	keel_workers_setup(&h->lists[0]);
	copy_all(h, 0);
	KUNIT_EXPECT_FALSE(test, h->ctl.helped);
	check_done(h, 0);
	KUNIT_EXPECT_EQ(test, 1, kref_read(&h->helpers->ref));
}

static atomic_t looks;

static void count_looks(const char *name)
{
	if (!strcmp(name, "helper_looked"))
		atomic_inc(&looks);
}

/* ISO-1: helpers that may use one processor only, or have another priority, are not woken. */
static void iso_1_helpers_bound(struct kunit *test)
{
	struct helped *h = test->priv;
	struct keel_worker *thread;
	unsigned int i;

	get_helpers(h, 1);
	thread = h->helpers->helper[0].thread;
	atomic_set(&looks, 0);
	WRITE_ONCE(keel_point_hook.hit, count_looks);
	for (i = 0; i < 40; i++) {
		thread->wide = i % 2;
		thread->prio = current->normal_prio + i % 2;
		copy_all(h, 0);
		usleep_range(500, 1000);
	}
	check_idle(h);
	WRITE_ONCE(keel_point_hook.hit, NULL);
	KUNIT_EXPECT_EQ(test, 0, atomic_read(&looks));
}

/* Where the helper and the worker are. */
static struct {
	struct task_struct *worker;
	bool looked;		/* the helper has found the copy, and has no part yet */
	bool over;		/* the worker has taken it away */
	bool late;		/* the worker waited for that too long */
} at;

static void meet(const char *name)
{
	unsigned int ms;

	if (current != at.worker && !strcmp(name, "helper_looked")) {
		WRITE_ONCE(at.looked, true);
		for (ms = 0; !READ_ONCE(at.over) && ms < 5000; ms++)
			mdelay(1);
	} else if (current == at.worker && !strcmp(name, "share_over")) {
		WRITE_ONCE(at.over, true);
	}
}

/* The worker stops only when the helper has found the copy. */
static bool stops_late(void *arg)
{
	unsigned int ms;

	for (ms = 0; !READ_ONCE(at.looked) && ms < 5000; ms++)
		mdelay(1);
	at.late = ms == 5000;
	return true;
}

/*
 * A helper has found the copy when the worker takes it away: the worker waits for it, and the
 * part that it then copies counts.
 */
static void orders_helper_looked(struct kunit *test)
{
	struct helped *h = test->priv;

	get_helpers(h, 1);
	memset(&at, 0, sizeof(at));
	at.worker = current;
	begin(h, 0);
	h->ctl.stop = stops_late;
	WRITE_ONCE(keel_point_hook.hit, meet);
	KUNIT_EXPECT_EQ(test, KEEL_COPY_STOPPED, copy(h));
	WRITE_ONCE(keel_point_hook.hit, NULL);
	KUNIT_EXPECT_TRUE(test, h->ctl.helped);
	KUNIT_EXPECT_FALSE(test, at.late);
	KUNIT_EXPECT_TRUE(test, at.over);
	KUNIT_EXPECT_EQ(test, (u64)PART, h->ctl.done);
	check_done(h, 0);
	check_idle(h);
}

/* ISO-2: a process gets helpers once, for its first message that is big enough. */
static void iso_2_helpers_found(struct kunit *test)
{
	struct helped *h = test->priv;
	struct kunit *own = current->kunit_test;
	struct keel_worker *worker;
	struct keel_helpers *helpers;

	worker_test_open(&h->t);
	worker = h->t.worker;
	keel_big_threads = 0;
	keel_worker_want_help(worker, U64_MAX);
	KUNIT_EXPECT_FALSE(test, worker->wants_help);
	keel_big_threads = 2;
	keel_worker_want_help(worker, SZ_1M - 1);
	KUNIT_EXPECT_FALSE(test, worker->wants_help);
	keel_worker_want_help(worker, SZ_1M);
	KUNIT_EXPECT_TRUE(test, worker->wants_help);
	current->kunit_test = NULL;
	keel_worker_find_help(worker, h->lists);
	current->kunit_test = own;
	helpers = worker->helpers;
	KUNIT_ASSERT_NOT_NULL(test, helpers);
	KUNIT_EXPECT_EQ(test, 2, helpers->n);
	KUNIT_EXPECT_PTR_NE(test, helpers->helper[0].thread, helpers->helper[1].thread);
	KUNIT_EXPECT_FALSE(test, worker->wants_help);
	keel_worker_want_help(worker, SZ_1M);
	KUNIT_EXPECT_FALSE(test, worker->wants_help);
	/* Another thread of the process, which has seen that it was wanted. */
	worker->wants_help = true;
	keel_worker_find_help(worker, h->lists);
	KUNIT_EXPECT_FALSE(test, worker->wants_help);
	KUNIT_EXPECT_PTR_EQ(test, helpers, worker->helpers);
	KUNIT_EXPECT_EQ(test, 1, kref_read(&helpers->ref));
	/* Nobody wants them. */
	keel_worker_find_help(h->t.other, h->lists);
	KUNIT_EXPECT_NULL(test, h->t.other->helpers);
	keel_worker_want_help(h->t.other, SZ_1M);
	KUNIT_EXPECT_TRUE(test, h->t.other->wants_help);
	h->t.other->wants_help = false;
	h->t.other->helpless = true;
	keel_worker_want_help(h->t.other, SZ_1M);
	KUNIT_EXPECT_FALSE(test, h->t.other->wants_help);
}

static void helpers_most(struct kunit *test)
{
	const int wants[][2] = { { 0, 0 }, { 1, 1 }, { 3, 3 }, { 4, 3 }, { INT_MAX, 3 },
				 { -2, 0 }, { INT_MIN, 0 } };
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(wants); i++) {
		keel_big_threads = wants[i][0];
		KUNIT_EXPECT_EQ(test, wants[i][1], keel_helpers_most());
	}
	keel_big_threads = -1;
	KUNIT_EXPECT_EQ(test, clamp(min_t(int, num_online_cpus(), current->nr_cpus_allowed) - 2,
				    0, KEEL_HELPERS), keel_helpers_most());
}

static struct kunit_case helpers_cases[] = {
	KUNIT_CASE(dev_4_helpers_copy),
	KUNIT_CASE(helpers_small),
	KUNIT_CASE(iso_1_helpers_stop),
	KUNIT_CASE(pd_2_helpers_dead_key),
	KUNIT_CASE(helpers_absent),
	KUNIT_CASE(iso_1_helpers_bound),
	KUNIT_CASE(orders_helper_looked),
	KUNIT_CASE(iso_2_helpers_found),
	KUNIT_CASE(helpers_most),
	{}
};

static struct kunit_suite helpers_suite = {
	.name = "keel_helpers",
	.init = helped_init,
	.exit = helped_exit,
	.test_cases = helpers_cases,
};
kunit_test_suite(helpers_suite);
