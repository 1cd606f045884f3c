// SPDX-License-Identifier: GPL-2.0
/*
 * The objects that exist, by kind: which of them hold others, and their handles.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model.h"

struct world world;
struct result *result;

/* How many objects of a kind exist at most. */
static const int limits[KINDS] = {
	[K_DOMAIN] = 30, [K_PD] = 8, [K_PARENT] = 6, [K_TD] = 4, [K_XDOM] = 8,
	[K_SHPD] = 8, [K_DM] = 5, [K_MR] = 24, [K_DM_MR] = 8, [K_MW] = 8,
	[K_AH] = 6, [K_CQ] = 10, [K_SRQ] = 8, [K_QP] = 20, [K_XRCD] = 8,
	[K_IMPORT] = 6,
};

#define STALE		32

static uint32_t stale[STALE];
static unsigned int n_stale;

/* The third context is an import of the first: both have one file. */
int file_of(int ctx)
{
	return ctx == 1;
}

bool obj_has_room(enum kind kind)
{
	return world.n[kind] < limits[kind];
}

struct obj *obj_new(enum kind kind, int ctx)
{
	struct obj *o = calloc(1, sizeof(*o));

	if (!o || world.n[kind] == MAX_LIVE)
		diverge("the model has no room for objects of kind %d", kind);
	o->kind = kind;
	o->ctx = ctx;
	o->handle = UINT32_MAX;
	o->born = ++world.births;
	world.live[kind][world.n[kind]++] = o;
	return o;
}

static bool has_handle(const struct obj *o)
{
	return o->handle != UINT32_MAX;
}

struct obj *obj_by_handle(int file, uint32_t handle)
{
	int kind, i;

	for (kind = 0; kind < KINDS; kind++)
		for (i = 0; i < world.n[kind]; i++) {
			struct obj *o = world.live[kind][i];

			if (has_handle(o) && !o->dead && o->handle == handle &&
			    file_of(o->ctx) == file && kind != K_IMPORT)
				return o;
		}
	return NULL;
}

/* ib_core gives the lowest free handle of the file. */
uint32_t handle_next(int file)
{
	uint32_t handle = 0;

	while (obj_by_handle(file, handle))
		handle++;
	return handle;
}

struct obj *obj_new_handle(enum kind kind, int ctx, uint32_t handle)
{
	uint32_t want = handle_next(file_of(ctx));
	struct obj *o = obj_new(kind, ctx);

	/* libibverbs does not show the handles of all objects. */
	if (handle != UINT32_MAX && handle != want)
		diverge("handle: got %u, want %u", handle, want);
	o->handle = want;
	return o;
}

void obj_end(struct obj *o)
{
	struct obj **live = world.live[o->kind];
	int i;

	for (i = 0; i < world.n[o->kind] && live[i] != o; i++)
		;
	if (i == world.n[o->kind])
		diverge("the model ended an object twice");
	memmove(live + i, live + i + 1,
		(--world.n[o->kind] - i) * sizeof(*live));
	o->dead = true;
	if (has_handle(o))
		stale[n_stale++ % STALE] = o->handle;
}

uint32_t handle_stale(uint32_t n)
{
	unsigned int room = n_stale < STALE ? n_stale : STALE;

	return room && n % 4 ? stale[n / 4 % room] : n % 200;
}

void obj_hold(struct obj *o, struct obj *target)
{
	int i;

	if (!target)
		return;
	for (i = 0; i < MAX_HOLDS; i++) {
		if (o->holds[i] == target)
			return;
		if (!o->holds[i]) {
			o->holds[i] = target;
			return;
		}
	}
	diverge("the model has no room for another hold");
}

int obj_holders(const struct obj *o)
{
	int kind, i, j, n = 0;

	for (kind = 0; kind < K_TREE; kind++)
		for (i = 0; i < world.n[kind]; i++)
			for (j = 0; j < MAX_HOLDS; j++)
				n += world.live[kind][i]->holds[j] == o;
	return n;
}

struct obj *obj_pick(enum kind kind, uint32_t n)
{
	return world.n[kind] ? world.live[kind][n % world.n[kind]] : NULL;
}

struct obj *obj_pick_in(enum kind kind, int ctx, uint32_t n)
{
	struct obj *of[MAX_LIVE];
	int i, count = 0;

	for (i = 0; i < world.n[kind]; i++)
		if (world.live[kind][i]->ctx == ctx)
			of[count++] = world.live[kind][i];
	return count ? of[n % count] : NULL;
}

/* An import names a handle: the kernel may have given it to another object. */
static struct pd_ref ref_of(struct obj *o)
{
	struct pd_ref ref = { .ctx = o->ctx };
	struct obj *now;

	if (o->kind != K_IMPORT) {
		ref.pd = o;
		ref.p = o->pd.p;
		return ref;
	}
	ref.p = o->import.p;
	ref.import = o;
	now = obj_by_handle(file_of(o->ctx), o->handle);
	if (now && (now->kind == K_PD || now->kind == K_PARENT))
		ref.pd = now;
	else
		ref.err = now ? EINVAL : ENOENT;
	return ref;
}

static bool pd_pick_of(int ctx, uint32_t n, struct pd_ref *ref)
{
	static const enum kind kinds[] = { K_PD, K_PARENT, K_IMPORT };
	struct obj *of[3 * MAX_LIVE], *o;
	int i, k, count = 0;

	for (k = 0; k < COUNT(kinds); k++)
		for (i = 0; i < world.n[kinds[k]]; i++) {
			o = world.live[kinds[k]][i];
			if (o->kind == K_IMPORT && o->import.of != K_PD)
				continue;
			if (ctx < 0 || o->ctx == ctx)
				of[count++] = o;
		}
	if (!count)
		return false;
	/* Mostly the oldest ones, so that many objects are of one domain. */
	if (n % 4 && count > 3)
		count = 3;
	*ref = ref_of(of[n / 4 % count]);
	return true;
}

bool pd_pick(uint32_t n, struct pd_ref *ref)
{
	return pd_pick_of(-1, n, ref);
}

bool pd_pick_in(int ctx, uint32_t n, struct pd_ref *ref)
{
	return pd_pick_of(ctx, n, ref);
}

/* --- results ------------------------------------------------------------- */

void diverge(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(result->text, sizeof(result->text), fmt, ap);
	va_end(ap);
	result->diverged = true;
	result->at = world.step;
	if (world.talk)
		printf("\n    DIVERGED: %s\n", result->text);
	fflush(stdout);
	_exit(3);
}

void say(const char *fmt, ...)
{
	va_list ap;

	if (!world.talk)
		return;
	printf("\n    # ");
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
}

const char *errname(int err)
{
	const char *name = err ? strerrorname_np(err) : "success";

	return name ? name : "a number that is no errno";
}

bool expect(const char *call, int got, int want)
{
	say("%s: %s", call, errname(got));
	if (got != want)
		diverge("%s: got %s, want %s", call, errname(got),
			errname(want));
	if (want)
		result->refused++;
	else
		result->good++;
	return !want;
}

bool expect_ptr(const char *call, const void *got, int want)
{
	return expect(call, got ? 0 : errno ? errno : -1, want);
}

void idle(void)
{
	result->idle++;
}
