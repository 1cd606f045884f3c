// SPDX-License-Identifier: GPL-2.0
/*
 * Points between two steps, for unit tests. See keel_point.h.
 */
#include <kunit/visibility.h>
#include <linux/export.h>

#include "compat.h"
#include "keel_point.h"

#ifdef KEEL_POINTS
struct keel_point_hook keel_point_hook;
EXPORT_SYMBOL_IF_KUNIT(keel_point_hook);
#endif
