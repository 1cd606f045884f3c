// SPDX-License-Identifier: GPL-2.0
/*
 * Names of kinds of objects and of shared resources, for debugfs, traces and
 * messages.
 */
#include <kunit/visibility.h>

#include "keel_obj.h"

static const char * const keel_kind_names[KEEL_KINDS] = {
#define KEEL_KIND(_name, _number, _word)				\
	[KEEL_##_name] = _word,
	KEEL_UAPI_KINDS(KEEL_KIND)
#undef KEEL_KIND
};

/**
 * keel_kind_name() - get the name of a kind of object
 * @kind: the kind
 *
 * Return: a constant string, never NULL.
 */
const char *keel_kind_name(enum keel_kind kind)
{
	if (kind >= KEEL_KINDS || !keel_kind_names[kind])
		return "?";
	return keel_kind_names[kind];
}
EXPORT_SYMBOL_IF_KUNIT(keel_kind_name);

static const char * const keel_resource_names[KEEL_RESOURCES] = {
	[KEEL_RES_DM_BYTES]	= "dm_bytes",
	[KEEL_RES_HANDLES]	= "shpd_handle",
	[KEEL_RES_GROUPS]	= "mcast_group",
	[KEEL_RES_LINKS]	= "link",
};

static_assert((int)KEEL_RESOURCES <= KEEL_QUOTAS);

/**
 * keel_resource_name() - get the name of a resource that users share
 * @what: enum keel_resource, or enum keel_kind
 *
 * Return: a constant string, never NULL.
 */
const char *keel_resource_name(unsigned int what)
{
	if (what < KEEL_KINDS || what >= KEEL_RESOURCES)
		return keel_kind_name(what);
	return keel_resource_names[what];
}
EXPORT_SYMBOL_IF_KUNIT(keel_resource_name);
