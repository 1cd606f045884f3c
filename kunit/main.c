// SPDX-License-Identifier: GPL-2.0
/*
 * keel_kunit.ko: unit tests of keel's core units, run when it is loaded.
 *
 * A case that proves requirements has their ids at the front of its name, in
 * lower case with underscores, as dm_2_alignment is about DM-2; further ids
 * stand at the front of the description of a parameter ("DM-6: ..."). What
 * reads the results looks in both places.
 */
#include <linux/module.h>

#include "compat.h"

KEEL_IMPORT_NS(EXPORTED_FOR_KUNIT_TESTING);
MODULE_DESCRIPTION("Unit tests of keel");
MODULE_LICENSE("GPL");
