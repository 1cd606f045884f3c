// SPDX-License-Identifier: GPL-2.0
/*
 * keel_kunit.ko: unit tests of keel's core units, run when it is loaded.
 *
 * A case that proves requirements has their ids at the front of its name, in
 * lower case with underscores: dm_4_dm_6_threads is about DM-4 and DM-6. Where
 * only some parameters of a case do, the ids are at the front of their
 * descriptions: "PD-4: another domain". scripts/kunit prints both in one way.
 */
#include <linux/module.h>

#include "compat.h"

KEEL_IMPORT_NS(EXPORTED_FOR_KUNIT_TESTING);
MODULE_DESCRIPTION("Unit tests of keel");
MODULE_LICENSE("GPL");
