/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Points between two steps whose order matters. There a unit test calls what
 * another thread could call meanwhile: kunit/orders_test.c. And functions that a unit
 * test replaces. Only builds with the unit tests have them.
 */
#ifndef KEEL_POINT_H
#define KEEL_POINT_H

#include <linux/compiler.h>

#ifdef KEEL_POINTS
#include <kunit/static_stub.h>

/**
 * keel_stub() - let a unit test replace a function, for calls of its own thread and of
 *	workers that this thread creates
 * @fn: the function; this is its first statement
 * @args: its arguments
 */
#define keel_stub(fn, args...)	KUNIT_STATIC_STUB_REDIRECT(fn, args)

/**
 * struct keel_point_hook - what the points of the module call
 * @hit: gets the name of the point; or NULL. Set by a test that is the only user
 *	of all devices.
 */
struct keel_point_hook {
	void (*hit)(const char *name);
};

extern struct keel_point_hook keel_point_hook;

/**
 * keel_point() - the place between two steps
 * @name: name of the place
 *
 * Context: any; that of the caller. Locks may be held.
 */
static inline void keel_point(const char *name)
{
	void (*hit)(const char *name) = READ_ONCE(keel_point_hook.hit);

	if (hit)
		hit(name);
}
#else
#define keel_stub(fn, args...)	do { } while (0)

static inline void keel_point(const char *name)
{
}
#endif

#endif /* KEEL_POINT_H */
