// SPDX-License-Identifier: GPL-2.0
/*
 * Events of an object: who raises them, in which order, and what keeps the object.
 */
#include <kunit/static_stub.h>
#include <linux/workqueue.h>

#include "dummy_obj.h"
#include "keel_events.h"
#include "keel_quota.h"

#define RAISED	16

/**
 * struct source - an object with events
 * @events: its events
 * @dummy: the object
 * @raised: types of the events that were raised
 * @nr: their number
 * @refs: references on the object when the last was raised
 * @endless: each event causes another one
 * @more: number of events that do
 * @test: the test
 */
struct source {
	struct keel_events events;
	struct dummy *dummy;
	int raised[RAISED];
	unsigned int nr;
	unsigned int refs;
	bool endless;
	unsigned int more;
	struct kunit *test;
};

/* The handler has no other argument. */
static struct source *source;

static bool source_raising(void)
{
	if (!spin_trylock(&source->events.raising))
		return true;
	spin_unlock(&source->events.raising);
	return false;
}

static void source_raise(struct keel_obj *obj, int type)
{
	KUNIT_EXPECT_PTR_EQ(source->test, &source->dummy->obj, obj);
	KUNIT_EXPECT_TRUE(source->test, source_raising());
	KUNIT_EXPECT_LT(source->test, source->nr, RAISED);
	if (source->nr < RAISED)
		source->raised[source->nr++] = type;
	source->refs = dummy_refs(source->dummy);
	if (source->endless || (source->more && source->more--))
		keel_events_queue(&source->events, type);
}

static struct source *source_new(struct kunit *test, bool kernel)
{
	source = kunit_kzalloc(test, sizeof(*source), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, source);
	source->test = test;
	source->dummy = dummy_new(test, KEEL_CQ, 'c', NULL, NULL);
	source->dummy->obj.kernel = kernel;
	keel_events_init(&source->events, &source->dummy->obj, system_unbound_wq,
			 source_raise);
	return source;
}

static void source_end(struct source *s)
{
	KUNIT_EXPECT_EQ(s->test, 1, dummy_refs(s->dummy));
	dummy_close(s->dummy);
}

static void expect_raised(struct source *s, const int *types, unsigned int n)
{
	unsigned int i;

	KUNIT_EXPECT_EQ(s->test, n, s->nr);
	for (i = 0; i < min(n, s->nr); i++)
		KUNIT_EXPECT_EQ(s->test, types[i], s->raised[i]);
	s->nr = 0;
}

/* The object that &keel_events.wake was called for, without a lock. */
static void source_wake(struct keel_obj *obj, int type)
{
	KUNIT_EXPECT_PTR_EQ(source->test, &source->dummy->obj, obj);
	KUNIT_EXPECT_FALSE(source->test, source_raising());
	KUNIT_EXPECT_LT(source->test, source->nr, RAISED);
	if (source->nr < RAISED)
		source->raised[source->nr++] = type;
}

static int queue_result;
static unsigned int queued;

static int queue_stub(struct keel_worker *worker, struct keel_job *job)
{
	queued++;
	return queue_result;
}

static int cancel_result;

static bool cancel_stub(struct keel_worker *worker, struct keel_job *job)
{
	KUNIT_EXPECT_PTR_EQ(source->test, &source->events.job, job);
	/* The job may need the lock to end. */
	KUNIT_EXPECT_FALSE(source->test, source_raising());
	return cancel_result;
}

static void source_set_worker(struct source *s, struct keel_worker *worker)
{
	/* No other thread has the object. */
	context_unsafe(s->events.worker = worker);
}

static struct keel_worker *source_worker_of(struct source *s)
{
	/* Likewise. */
	return context_unsafe(s->events.worker);
}

/* A worker that never runs a job, because keel_job_queue() is replaced. */
static void source_worker(struct source *s, int result)
{
	static char worker[1024] __aligned(8);

	memset(worker, 0, sizeof(worker));
	queue_result = result;
	queued = 0;
	kunit_activate_static_stub(s->test, keel_job_queue, queue_stub);
	source_set_worker(s, (struct keel_worker *)worker);
}

/* ISO-1: the handler of a kernel consumer is called by the thread that raises. */
static void iso_1_events_kernel(struct kunit *test)
{
	struct source *s = source_new(test, true);

	keel_events_raise(&s->events, 3, false);
	keel_events_raise(&s->events, -2, true);
	expect_raised(s, (const int []){ 3, -2 }, 2);
	keel_events_close(&s->events);
	keel_events_raise(&s->events, 3, false);
	expect_raised(s, NULL, 0);
	source_end(s);
}

/* ISO-1: and not that of a process, even if the lock is that of the caller. */
static void iso_1_events_queued(struct kunit *test)
{
	static const int order[] = { 5, 5, 3, 9 };
	struct source *s = source_new(test, false);
	unsigned int i;

	source_worker(s, 1);
	keel_events_raise(&s->events, 5, false);
	keel_events_raise(&s->events, 3, true);
	keel_events_queue(&s->events, 5);
	keel_events_queue(&s->events, 9);
	expect_raised(s, NULL, 0);
	KUNIT_EXPECT_EQ(test, 4, queued);
	KUNIT_EXPECT_EQ(test, 5, dummy_refs(s->dummy));
	s->events.job.run(&s->events.job, true);
	expect_raised(s, order, ARRAY_SIZE(order));
	/* The job has dropped its reference after the last. */
	KUNIT_EXPECT_EQ(test, 5, s->refs);
	KUNIT_EXPECT_EQ(test, 4, dummy_refs(s->dummy));
	for (i = 0; i < 3; i++)
		s->events.job.run(&s->events.job, true);
	expect_raised(s, NULL, 0);
	source_end(s);
}

static struct keel_orphans *source_orphans(struct source *s)
{
	return &s->dummy->obj.user->orphans;
}

/* Let the workqueue raise all events. */
static void source_work(struct source *s)
{
	do {
		keel_orphans_set(source_orphans(s), 0);
	} while (keel_orphans_look(source_orphans(s)));
	keel_orphan_flush(&s->events.orphan);
}

/* ISO-2: of a dead process, equal events are raised once. */
static void iso_2_events_dead(struct kunit *test)
{
	struct source *s = source_new(test, false);
	unsigned int i;

	source_worker(s, 0);
	/* Queued already: the caller's reference is dropped. */
	for (i = 0; i < 1000; i++) {
		keel_events_queue(&s->events, 5);
		keel_events_queue(&s->events, 3);
	}
	KUNIT_EXPECT_EQ(test, 2000, queued);
	KUNIT_EXPECT_EQ(test, 1, dummy_refs(s->dummy));
	/* The worker ends at once. */
	keel_obj_get(&s->dummy->obj);
	s->events.job.run(&s->events.job, false);
	expect_raised(s, NULL, 0);
	KUNIT_EXPECT_EQ(test, 2001, queued);
	KUNIT_EXPECT_EQ(test, 1, dummy_refs(s->dummy));
	/* The workqueue raises them, one at a time. */
	source_set_worker(s, NULL);
	keel_obj_get(&s->dummy->obj);
	s->events.job.run(&s->events.job, false);
	source_work(s);
	expect_raised(s, (const int []){ 5, 3 }, 2);
	keel_events_close(&s->events);
	source_end(s);
}

/* ISO-1: an object with more events goes on, and keeps itself meanwhile. */
static void iso_1_events_more(struct kunit *test)
{
	struct source *s = source_new(test, false);

	s->more = 2;
	keel_events_queue(&s->events, 5);
	source_work(s);
	expect_raised(s, (const int []){ 5, 5, 5 }, 3);
	KUNIT_EXPECT_EQ(test, 2, s->refs);
	source_end(s);
}

/* DEV-3: nothing is raised after the destroy, and nothing is left queued. */
static void dev_3_events_closed(struct kunit *test)
{
	struct source *s = source_new(test, false);

	source_worker(s, 1);
	kunit_activate_static_stub(test, keel_job_cancel, cancel_stub);
	keel_events_queue(&s->events, 5);
	KUNIT_EXPECT_EQ(test, 2, dummy_refs(s->dummy));
	keel_obj_get(&s->dummy->obj);
	/* The job was queued: it does not run, and its reference is dropped. */
	cancel_result = true;
	keel_events_close(&s->events);
	KUNIT_EXPECT_EQ(test, 2, dummy_refs(s->dummy));
	/* It has run meanwhile, and has dropped its reference. */
	cancel_result = false;
	keel_events_close(&s->events);
	KUNIT_EXPECT_EQ(test, 2, dummy_refs(s->dummy));
	s->events.job.run(&s->events.job, true);
	expect_raised(s, NULL, 0);
	keel_events_queue(&s->events, 5);
	KUNIT_EXPECT_EQ(test, 1, queued);
	source_end(s);
}

/* DEV-3: likewise for a process without a worker. */
static void dev_3_events_closed_orphan(struct kunit *test)
{
	struct source *s = source_new(test, false);

	keel_orphans_set(source_orphans(s), KEEL_ORPHANS_HOUR);
	keel_events_queue(&s->events, 5);
	KUNIT_EXPECT_EQ(test, 2, dummy_refs(s->dummy));
	keel_events_close(&s->events);
	KUNIT_EXPECT_EQ(test, 1, dummy_refs(s->dummy));
	source_work(s);
	expect_raised(s, NULL, 0);
	keel_events_queue(&s->events, 5);
	source_end(s);
}

/* ISO-1: a worker that is replaced while the object is destroyed would be freed. */
static void iso_1_events_closed_own(struct kunit *test)
{
	struct source *s = source_new(test, false);
	struct keel_worker *worker;

	source_worker(s, 1);
	worker = source_worker_of(s);
	source_set_worker(s, NULL);
	KUNIT_EXPECT_NULL(test, keel_events_swap(&s->events, worker));
	KUNIT_EXPECT_PTR_EQ(test, worker, source_worker_of(s));
	source_set_worker(s, NULL);
	keel_events_close(&s->events);
	KUNIT_EXPECT_PTR_EQ(test, worker, keel_events_swap(&s->events, worker));
	KUNIT_EXPECT_NULL(test, source_worker_of(s));
	source_end(s);
}

/* ISO-1, ISO-2: a job ends, although each event causes the next one. */
static void iso_1_iso_2_events_endless(struct kunit *test)
{
	struct source *s = source_new(test, false);
	int i;

	source_worker(s, 0);
	s->endless = true;
	keel_events_queue(&s->events, 5);
	for (i = 0; i < 2; i++) {
		/* Queued already, so that neither event nor job adds a reference. */
		keel_obj_get(&s->dummy->obj);
		s->nr = 0;
		queued = 0;
		s->events.job.run(&s->events.job, true);
		KUNIT_EXPECT_EQ(test, KEEL_EVENTS_TYPES, s->nr);
		/* The job itself is queued once more. */
		KUNIT_EXPECT_EQ(test, KEEL_EVENTS_TYPES + 1, queued);
		KUNIT_EXPECT_EQ(test, 1, dummy_refs(s->dummy));
	}
	s->endless = false;
	keel_obj_get(&s->dummy->obj);
	s->nr = 0;
	queued = 0;
	s->events.job.run(&s->events.job, true);
	expect_raised(s, (const int []){ 5 }, 1);
	KUNIT_EXPECT_EQ(test, 0, queued);
	source_end(s);
}

/* ISO-1: without a worker, or if it is dead, the workqueue raises the event. */
static void iso_1_events_work(struct kunit *test)
{
	struct source *s = source_new(test, false);

	keel_events_queue(&s->events, 4);
	source_work(s);
	expect_raised(s, (const int []){ 4 }, 1);
	KUNIT_EXPECT_EQ(test, 1, dummy_refs(s->dummy));
	source_worker(s, -ESRCH);
	/* The workqueue must not try the worker again: its calls are not replaced. */
	keel_events_queue(&s->events, 6);
	source_work(s);
	KUNIT_EXPECT_EQ(test, 1, queued);
	expect_raised(s, (const int []){ 6 }, 1);
	source_end(s);
}

/* ISO-2: many requests to wake are one, in its place among the events. */
static void iso_2_events_wake(struct kunit *test)
{
	static const int order[] = { 4, KEEL_EVENT_WAKE, KEEL_EVENT_RUN };
	struct source *s = source_new(test, false);
	int i;

	s->events.wake = source_wake;
	source_worker(s, 0);
	for (i = 0; i < 2; i++) {
		keel_events_queue(&s->events, 4);
		keel_events_queue(&s->events, KEEL_EVENT_WAKE);
		keel_events_queue(&s->events, KEEL_EVENT_RUN);
		keel_events_queue(&s->events, KEEL_EVENT_WAKE);
		keel_events_queue(&s->events, KEEL_EVENT_RUN);
		keel_events_queue(&s->events, 6);
		keel_obj_get(&s->dummy->obj);
		s->events.job.run(&s->events.job, i == 0);
		if (i > 0)
			continue;
		/* Other objects are next. */
		expect_raised(s, order, ARRAY_SIZE(order));
		keel_obj_get(&s->dummy->obj);
		s->events.job.run(&s->events.job, true);
		expect_raised(s, (const int []){ 6 }, 1);
	}
	/* A dead worker wakes, and leaves the others. */
	expect_raised(s, (const int []){ KEEL_EVENT_WAKE, KEEL_EVENT_RUN }, 2);
	source_set_worker(s, NULL);
	keel_obj_get(&s->dummy->obj);
	s->events.job.run(&s->events.job, false);
	source_work(s);
	expect_raised(s, (const int []){ 4, 6 }, 2);
	source_end(s);
}

static struct kunit_case events_cases[] = {
	KUNIT_CASE(iso_1_events_kernel),
	KUNIT_CASE(iso_1_events_queued),
	KUNIT_CASE(iso_2_events_dead),
	KUNIT_CASE(iso_1_events_more),
	KUNIT_CASE(dev_3_events_closed),
	KUNIT_CASE(dev_3_events_closed_orphan),
	KUNIT_CASE(iso_1_events_closed_own),
	KUNIT_CASE(iso_1_iso_2_events_endless),
	KUNIT_CASE(iso_1_events_work),
	KUNIT_CASE(iso_2_events_wake),
	{}
};

static struct kunit_suite events_suite = {
	.name = "keel_events",
	.init = dummies_init,
	.exit = dummies_exit,
	.test_cases = events_cases,
};
kunit_test_suite(events_suite);
